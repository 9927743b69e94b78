"""Ways to compute the sums over one tensor, their costs, and the choice of the cheapest.

Counts visit all cells of an array or a list of the non-zeros. Exposures have a closed form if no cell is missing;
otherwise they visit a mask of all cells, the missing cells (subtracted from the closed form), or the observed cells.
The storage of the input does not decide: the data are converted to the cheapest layout if it fits into memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np

from pltf.engines.chain import plan_chain
from pltf.engines.contraction import Tree, plan_tree
from pltf.engines.cp import is_cp
from pltf.likelihoods import BERNOULLI, POISSON
from pltf.notation import Equation

ENGINES = ("auto", "dense", "sparse")
DENSE, LISTED = KINDS = "dense", "sparse"  # counts
ALL, ONE = "all", "one"  # on a device: a sorted copy of a list per mode, or one copy and permutations
STORED = "parts"  # counts of cells that stay on disk: the only way for them
CLOSED_FORM, MASK, HOLES, OBSERVED = "closed form", "mask", "holes", "observed"  # exposures

PIECES = 4  # per part of stored cells: a few parts keep several threads busy
WORTH_COMPILING = 300_000  # from this number of cells, a kernel is generated for a model that is not CP
WRITTEN, INTERPRETED = 1.4, 5.0  # nanoseconds per estimated nanosecond of a chain: generated kernel, general kernel
IN_BLOCKS = 1.15  # slowdown compared with a list, for cells that are copied block by block
ALLOCATED_CP, ALLOCATED_CHAIN = 2.0, 9.0  # slowdown of allocation (of mostly small counts) over expectation
CLEARLY = 1.25  # copy the data into another layout only if that is this many times faster,
NOTICEABLE = 3e-4  # and saves at least this many seconds per iteration
_FINDING = 16  # bytes per cell while an array is converted to a list


@dataclass(frozen=True)
class Facts:
    """Properties of the data of one tensor."""

    storage: str  # DENSE, LISTED or STORED
    data_dtype: np.dtype[Any]
    cells: int
    positive: int
    missing: int
    exact: bool = True  # False: estimated from a sample of the cells
    unread: bool = False  # missing cells are unknown until the data are read
    unlisted: str = ""  # of a list: "zero" or "missing"
    listed: int = 0  # cells of the list
    holes: int = 0  # listed missing cells
    owner: int = 0  # cells on disk: the mode by which their parts are sorted,
    parts: int = 0  # number of parts,
    most: int = 0  # largest number of cells of a part,
    widest: int = 0  # and of its positions,
    on_disk: int = 0  # and the size of all parts in bytes
    table: bool = True  # whether the array is contiguous with rows that are not too long
    place: str = ""  # the device that already has the array, with its cells in order

    @property
    def observed(self) -> int:
        """Cells that are not missing."""
        return self.cells - self.missing


@dataclass(frozen=True)
class Way:
    """One way to compute a sum, and its cost."""

    name: str
    seconds: float  # per iteration, on one thread
    bytes: int  # in addition to the data

    def times(self, other: Way) -> float:
        """How many times slower this way is than another one."""
        return self.seconds / max(other.seconds, 1e-9)


@dataclass(frozen=True)
class Task:
    """The sums over the cells of one tensor."""

    equation: Equation
    sizes: Mapping[str, int]
    dtype: np.dtype[Any]
    facts: Facts
    likelihood: str = POISSON
    allocates: bool = False  # counts are sampled instead of expected: they then come from a list
    on_device: bool = False

    @property
    def links(self) -> Literal[True] | None:
        """True if cells are links; None if they are counts (kernels are then compiled without a branch)."""
        return True if self.likelihood == BERNOULLI else None

    @property
    def uncounted(self) -> Task:
        """The task for cells without counts, of which only exposures are computed."""
        return replace(self, allocates=False) if self.allocates else self

    @cached_property
    def is_cp(self) -> bool:
        """Whether the fused CP kernels support this equation."""
        return is_cp(self.equation)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return tuple(self.sizes[index] for index in self.equation.output.indices)

    @cached_property
    def rank(self) -> int:
        """Product of the sizes of all summed indices."""
        return prod(self.sizes[index] for index in self.equation.summed)

    @cached_property
    def tree(self) -> Tree:
        """Contraction tree over an array."""
        return plan_tree(self.equation, self.sizes)

    @property
    def n_factors(self) -> int:
        """Number of factors in the equation."""
        return len(self.equation.factors)

    @property
    def private(self) -> int:
        """Entries of the private sums of a part of stored cells: all factors without the owned mode."""
        return self.entries(self.equation.output.indices[self.facts.owner])

    def entries(self, without: str = "") -> int:
        """Entries of all factors, or of those that do not have an index."""
        held = [term.indices for term in self.equation.factors if without not in term.indices]
        return sum(prod(self.sizes[index] for index in indices) for indices in held)

    @property
    def list_bytes(self) -> int:
        """Bytes for the indices of one listed cell."""
        return len(self.shape) * (4 if max(self.shape) < 2**31 else 8)


# -- cost of an iteration: seconds on one thread, fitted to measurements (benchmarks/NOTES.md) --


def counts_ways(task: Task) -> dict[str, Way]:
    """Ways to compute counts; there is only one way to allocate them."""
    return _priced(task, _counts_ways(task))


def exposure_ways(task: Task) -> dict[str, Way]:
    """Ways to compute exposures."""
    return _priced(task, _exposure_ways(task))


def _priced(task: Task, ways: list[Way]) -> dict[str, Way]:
    """The ways by name, with their cost on the device of a task; missing cells of stores are visited on the host."""
    known = {way.name: way for way in ways}
    if not task.on_device:
        return known
    from pltf.engines.torch.cost import way_seconds

    there = {STORED, OBSERVED} if task.facts.storage == STORED else known.keys()
    return {n: replace(way, seconds=way_seconds(task, n)) if n in there else way for n, way in known.items()}


def _counts_ways(task: Task) -> list[Way]:
    facts, drawn = task.facts, 1.0
    if task.allocates:
        drawn = ALLOCATED_CP if task.is_cp else ALLOCATED_CHAIN
    if facts.storage == STORED:
        return [Way(STORED, 1e-9 * IN_BLOCKS * drawn * _listed_counts(task), 0)]
    wide = facts.storage == LISTED
    copied = facts.positive * (task.list_bytes + task.dtype.itemsize + _FINDING * (not wide))
    listed = Way(LISTED, 1e-9 * drawn * _listed_counts(task), copied)
    made = facts.cells * task.dtype.itemsize if wide else 0
    return [listed] if task.allocates else [Way(DENSE, 1e-9 * _dense_counts(task), made), listed]


def _exposure_ways(task: Task) -> list[Way]:
    facts = task.facts
    if not facts.missing:
        return [Way(CLOSED_FORM, 0.0, 0)]
    if facts.storage == STORED:  # the parts, or the missing cells, which are in memory; others are not listed or masked
        if facts.unlisted == "missing":
            return [Way(OBSERVED, 1e-9 * IN_BLOCKS * _listed_exposures(task, facts.observed), 0)]
        return [Way(HOLES, 1e-9 * _listed_exposures(task, facts.missing), facts.missing * task.list_bytes)]
    mask = facts.cells if facts.storage == LISTED else 0  # must be created, also to find the cells that are not listed
    ways = [Way(MASK, 1e-9 * _mask_exposures(task), mask)]
    for name, cells in ((HOLES, facts.missing), (OBSERVED, facts.observed)):
        made = 0 if name == _given(facts) else 2 * mask + _FINDING * cells
        ways.append(Way(name, 1e-9 * _listed_exposures(task, cells), made + cells * task.list_bytes))
    return ways


def _given(facts: Facts) -> str:
    """The exposures that do not need a copy of the data."""
    if facts.storage == DENSE:
        return MASK
    return OBSERVED if facts.unlisted == "missing" else HOLES


def _dense_counts(task: Task) -> float:
    narrow = 0.6 if task.dtype == np.float32 else 1.0
    if task.is_cp and task.facts.table:
        return task.facts.cells * (1.3 + 0.17 * task.rank) * narrow
    flops = 3 * task.tree.flops(task.sizes)
    return (3.5 * task.facts.cells + 0.13 * flops) * narrow


def _mask_exposures(task: Task) -> float:
    if task.is_cp and task.facts.table:
        return task.facts.cells * (0.1 + 0.13 * task.rank)
    root = task.tree.steps[-1].forward.flops(task.sizes) if task.tree.steps else 0
    return task.tree.root_runs() * (1.0 * task.facts.cells + 0.11 * root)


def _listed_counts(task: Task) -> float:
    if task.is_cp:
        return task.facts.positive * (15 + 0.25 * task.rank * len(task.shape))
    return _chain(task, task.facts.positive)


def _listed_exposures(task: Task, cells: int) -> float:
    """Exposures of all factors, one by one."""
    if task.is_cp:
        return task.n_factors * cells * (4 + 0.2 * task.rank * len(task.shape))
    return 1.1 * task.n_factors * _chain(task, cells)


def _chain(task: Task, cells: int) -> float:
    owner = max(range(len(task.shape)), key=lambda mode: task.shape[mode])
    slow = WRITTEN if cells >= WORTH_COMPILING else INTERPRETED
    return slow * plan_chain(task.equation, task.sizes, cells, owner).cost(task.sizes, cells)


# -- the choice ---------------------------------------------------------------------------------


def choose(task: Task, engine: str, memory: float) -> tuple[Way, Way]:
    """Choose the ways for counts and exposures; ``memory`` limits their total memory."""
    counts, exposures = counts_ways(task), exposure_ways(task)
    usual = exposures.get(CLOSED_FORM) or exposures[_given(task.facts)]
    if task.facts.storage == STORED:
        return counts[STORED], usual
    if engine == DENSE:
        return counts.get(DENSE, counts[LISTED]), exposures.get(CLOSED_FORM) or exposures[MASK]
    if engine == LISTED:
        lists = [way for name, way in exposures.items() if name != MASK]
        return counts[LISTED], _cheapest(usual if usual in lists else lists[0], lists, memory)
    chosen = _cheapest(counts.get(task.facts.storage, counts[LISTED]), counts.values(), memory)
    return chosen, _cheapest(usual, exposures.values(), memory - chosen.bytes)


def _cheapest(usual: Way, ways: Iterable[Way], memory: float) -> Way:
    """The cheapest way that fits into memory; keeps ``usual`` unless another way is clearly cheaper."""
    best = min((way for way in ways if way.bytes <= memory or way is usual), key=lambda way: way.seconds)
    clearly = usual.seconds > CLEARLY * best.seconds and usual.seconds - best.seconds > NOTICEABLE
    return best if clearly else usual
