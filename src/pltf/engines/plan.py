"""What a fit will cost, decided from shapes alone: contraction orders, blocks, memory, flops."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from pltf.data.blocks import Block, block_shape, blocks
from pltf.engines.contraction import Indices, Tree, plan_tree
from pltf.engines.cp import is_cp
from pltf.notation import Equation, Model

BLOCK_BYTES = 16 << 20  # temporaries of one block
MOST_CHUNKS = 8  # of a list of cells, and of a small tensor: more threads than that are not used
SHARED_BYTES = 16 << 20  # a partial contraction of the whole mask that is always worth keeping


@dataclass(frozen=True)
class EquationPlan:
    """How the sums over the cells of one observed tensor will be done.

    >>> import numpy as np, pltf
    >>> plan, = pltf.cp(rank=7).plan(np.zeros((300, 300, 300))).equations
    >>> plan.block, plan.n_blocks
    ((10, 75, 300), 120)
    """

    equation: Equation
    sizes: Mapping[str, int]
    data_dtype: np.dtype[Any]
    masked: bool
    dtype: np.dtype[Any]
    tree: Tree

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the observed tensor."""
        return tuple(self.sizes[index] for index in self.equation.output.indices)

    @cached_property
    def block(self) -> tuple[int, ...]:
        """Shape of a block of cells: as large as the budget of temporaries allows."""
        return block_shape(self.shape, lambda block: self.block_bytes(block) <= BLOCK_BYTES)

    @property
    def n_blocks(self) -> int:
        """How many blocks there are."""
        return prod(-(-size // step) for size, step in zip(self.shape, self.block, strict=True))

    @cached_property
    def blocks(self) -> list[Block]:
        """The blocks, in the order in which their sums are added."""
        return blocks(self.shape, self.block)

    @cached_property
    def is_cp(self) -> bool:
        """Whether a fused kernel takes its counts."""
        return is_cp(self.equation)

    def block_bytes(self, block: tuple[int, ...]) -> int:
        """Temporaries of a block: every node's value and derivative, data and mask cast, logarithms."""
        sizes = {**self.sizes, **dict(zip(self.equation.output.indices, block, strict=True))}
        cells = set(self.equation.output.indices)  # a core does not get smaller when cells are cut
        nodes = sum(self.node_size(node, sizes) for node in self.tree.nodes if not cells.isdisjoint(node))
        return (2 * nodes + 2 * prod(block)) * self.dtype.itemsize + 2 * 8 * prod(block)

    def node_size(self, node: Indices, sizes: Mapping[str, int] | None = None) -> int:
        """Entries of a node of the contraction tree."""
        sizes = self.sizes if sizes is None else sizes
        return prod(sizes[index] for index in node)

    @cached_property
    def shares(self) -> bool:
        """Whether partial contractions of the whole mask are small enough to keep between factors."""
        limit = max(SHARED_BYTES, self.data_bytes // 16)
        return all(self.node_size(node) * 8 <= limit for node in self.tree.nodes[:-1])

    @property
    def flops(self) -> int:
        """Flops of a sweep: counts of all factors, and their exposures."""
        sizes = {**self.sizes, **dict(zip(self.equation.output.indices, self.block, strict=True))}
        one_block = self.tree.sweep_flops(sizes) if self.masked else 3 * self.tree.flops(sizes)
        return one_block * self.n_blocks

    @property
    def data_bytes(self) -> int:
        """The caller's array and mask, which are used where they are."""
        return prod(self.shape) * (self.data_dtype.itemsize + self.masked)

    @property
    def shared_bytes(self) -> int:
        """Partial contractions kept between factors."""
        if not (self.masked and self.shares):
            return 0
        return 2 * sum(self.node_size(node) for node in self.tree.nodes[:-1]) * 8

    @property
    def flight_bytes(self) -> int:
        """Temporaries of a block in flight."""
        return self.block_bytes(self.block)

    @property
    def pieces(self) -> int:
        """How many blocks can be worked on at a time."""
        return self.n_blocks

    def describe(self, unread: bool) -> str:
        """The data, in words."""
        shape = f"{_by(self.shape)} {self.data_dtype.name}"
        if not self.masked:
            return f"{shape}; nothing missing, exposure in closed form"
        if unread:
            return f"{shape}; missing cells show when the data are read: planned as if there were some"
        return f"{shape}; with a mask"

    def describe_work(self) -> str:
        """How the cells are cut, in words."""
        if self.is_cp:
            return "one fused pass"
        return f"blocks of {_by(self.block)}: {self.n_blocks}"


@dataclass(frozen=True)
class ListedPlan:
    """How the sums over a tensor of listed cells will be done.

    >>> import numpy as np, pltf
    >>> seen = pltf.observe((np.array([[0, 5, 1]]), np.array([3.0])), shape=(10**6,) * 3)
    >>> plan, = pltf.cp(rank=7).plan(seen).equations
    >>> plan.is_cp, plan.rank
    (True, 7)
    """

    equation: Equation
    sizes: Mapping[str, int]
    dtype: np.dtype[Any]
    n_listed: int
    n_missing: int
    unlisted: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the observed tensor."""
        return tuple(self.sizes[index] for index in self.equation.output.indices)

    @cached_property
    def is_cp(self) -> bool:
        """Whether a fused kernel takes it."""
        return is_cp(self.equation)

    @property
    def rank(self) -> int:
        """Size of all summed indices together."""
        return prod(self.sizes[index] for index in self.equation.summed)

    @cached_property
    def tree(self) -> Tree:
        """Contraction over a gathered cell."""
        from pltf.engines.cells import CellEquation

        return CellEquation(self.equation, self.sizes).tree

    @property
    def pieces(self) -> int:
        """How many chunks can be worked on at a time."""
        return MOST_CHUNKS

    @property
    def flops(self) -> int:
        """Flops of a sweep: counts, and the exposures where they go over a list."""
        from pltf.engines.cells import CELL

        cell = self.tree.flops({**self.sizes, CELL: 1})
        listed = self.n_listed if self.unlisted == "missing" else self.n_missing
        return 3 * cell * self.n_listed + 2 * cell * listed

    @property
    def data_bytes(self) -> int:
        """Positions and values."""
        modes = len(self.shape)
        wide = 4 if max(self.shape) < 2**31 else 8
        return self.n_listed * (modes * wide + 8) + self.n_missing * modes * wide

    @property
    def flight_bytes(self) -> int:
        """Sums of one chunk, at most."""
        return 8 * self.rank * (sum(self.shape) - max(self.shape)) + (1 << 20)

    @property
    def shared_bytes(self) -> int:
        """A copy of the list, sorted for the engine."""
        return self.data_bytes

    def describe(self, unread: bool) -> str:
        """The data, in words."""
        holes = f", but for {self.n_missing:,} that are missing" if self.n_missing else ""
        rest = {"zero": f"all others are zero{holes}", "missing": "all others are missing"}[self.unlisted]
        return f"{_by(self.shape)}; {self.n_listed:,} cells listed, {rest}"

    def describe_work(self) -> str:
        """How the cells are gone through, in words."""
        return "one fused pass" if self.is_cp else "gathered blocks"


@dataclass(frozen=True, repr=False)
class Plan:
    """The cost of a fit before it starts; print it.

    >>> import numpy as np, pltf
    >>> print(pltf.cp(rank=7).plan(np.zeros((50, 40, 30)), threads=2))
    model    X[i,j,k] = A[i,r] * B[j,r] * C[k,r]  (r=7)
    engine   dense: X is a dense array
    X        50x40x30 float64; missing cells show when the data are read: planned as if there were some
    compute  float64, 2 threads, one fused pass
    order    [j,r] [k,r] -> [j,k,r]; [i,r] [j,k,r] -> [i,j,k]
    memory   data 540.0 kB (not copied) + work 3.3 MB
    sweep    4.3 Mflop
    """

    model: Model
    engine: str
    reason: str
    dtype: np.dtype[Any]
    threads: int
    equations: tuple[EquationPlan | ListedPlan, ...]
    unread: frozenset[str] = frozenset()  # tensors whose missing cells only reading them would show

    @property
    def sizes(self) -> Mapping[str, int]:
        """Size of every index."""
        return self.equations[0].sizes

    @property
    def factor_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of every factor, in model order."""
        return {name: tuple(self.sizes[i] for i in indices) for name, indices in self.model.factors.items()}

    def knowing(self, masked: Mapping[str, bool]) -> Plan:
        """The plan once the data are read, and it is known which tensors have missing cells."""
        equations = tuple(
            replace(e, masked=masked[e.equation.output.name]) if isinstance(e, EquationPlan) else e
            for e in self.equations
        )
        return replace(self, equations=equations, unread=frozenset())

    @property
    def data_bytes(self) -> int:
        """Bytes of the data and masks, which are used where they are."""
        return sum(equation.data_bytes for equation in self.equations)

    @property
    def work_bytes(self) -> int:
        """Bytes that a fit takes beside the data: parameters, blocks in flight, shared contractions."""
        parameters = sum(prod(shape) for shape in self.factor_shapes.values())
        flight = [e.flight_bytes * min(self.threads, e.pieces) for e in self.equations]
        shared = sum(e.shared_bytes for e in self.equations)
        return (
            20 * parameters * 8 + max(flight) + shared
        )  # 20: C, D, E, L, counts of two states, their last steps, copies

    @property
    def flops(self) -> int:
        """Flops of one sweep."""
        return sum(equation.flops for equation in self.equations)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        sizes = ", ".join(f"{index}={size}" for index, size in self.model.sizes.items())
        rows = [("model", f"{e.equation}" + (f"  ({sizes})" if sizes else "")) for e in self.equations]
        rows.append(("engine", f"{self.engine}: {self.reason}"))
        for e in self.equations:
            rows.append((e.equation.output.name, e.describe(e.equation.output.name in self.unread)))
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        cut = ", ".join(e.describe_work() for e in self.equations)
        rows.append(("compute", f"{self.dtype.name}, {threads}, {cut}"))
        rows += [("order", "; ".join(str(s.forward) for s in e.tree.steps) or "none") for e in self.equations]
        memory = f"data {human(self.data_bytes, 'B')} (not copied) + work {human(self.work_bytes, 'B')}"
        rows.append(("memory", memory))
        rows.append(("sweep", human(self.flops, "flop")))
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def plan_equation(
    equation: Equation,
    sizes: Mapping[str, int],
    data_dtype: np.dtype[Any],
    masked: bool,
    dtype: np.dtype[Any],
) -> EquationPlan:
    """Plan the sums over one observed tensor."""
    return EquationPlan(equation, dict(sizes), data_dtype, masked, dtype, plan_tree(equation, sizes))


def physical_memory() -> float:
    """Bytes of memory that this machine has; infinite where it does not tell."""
    if not hasattr(os, "sysconf"):
        return float("inf")
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def human(amount: float, unit: str) -> str:
    """A number a person can read.

    >>> human(27_000_000, "B")
    '27.0 MB'
    """
    for prefix in ("", "k", "M", "G", "T", "P", "E"):
        if amount < 1000 or prefix == "E":
            return f"{amount:.0f} {unit}" if not prefix else f"{amount:.1f} {prefix}{unit}"
        amount /= 1000
    raise AssertionError


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
