"""Sums over a list of cells; absent cells cost nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.cell_index import Coords
from pltf.data.numeric import read_only
from pltf.engines._numba import cp_counts, cp_exposure
from pltf.engines.base import Counting, sum_of
from pltf.engines.chain import Chain, Layout, plan_chain
from pltf.engines.contraction import AnyArray
from pltf.engines.cp import CpFactors
from pltf.engines.generated import compiled
from pltf.engines.interpreted import (
    FORWARD,
    LINKS,
    ONES,
    RATES,
    RATIOS,
    TO_FACTOR,
    TO_T_IN,
    run,
    splits,
    tables_of,
)
from pltf.engines.kernels.allocation import chain_allocation, cp_allocation, split_rows
from pltf.engines.kernels.draws import Stream, stream
from pltf.engines.lists import MOST_CHUNKS, CellList, SortedList, WholeList, chunks_of, order_by
from pltf.engines.over_lists import Key, OverLists
from pltf.engines.plan import PRIVATE_BYTES
from pltf.engines.ways import WORTH_COMPILING, Task
from pltf.gamma import Array
from pltf.notation import Equation
from pltf.threads import keep_freed_memory, ordered_map

LARGEST_ROW = np.iinfo(np.int32).max


class ListedEngine(Counting, OverLists):
    """Sums over one list of cells of a tensor or of a part of a tensor."""

    def __init__(self, task: Task, cells: CellList, threads: int) -> None:
        self.names = tuple(term.name for term in task.equation.factors)
        self._dtype, self._threads = task.dtype, threads
        self._passes = (CpPasses if task.is_cp else ChainPasses)(task, cells, threads)
        keep_freed_memory()

    def _passed(
        self, factors: Mapping[str, Array], names: Sequence[str], log: bool, key: Key
    ) -> tuple[dict[str, Array], float]:
        return self._passes.counts([factors[name] for name in self.names], names, log, key)

    @property
    def together(self) -> tuple[frozenset[str], ...]:
        return self._passes.together

    def exposure(self, factors: Mapping[str, Array], of: str) -> Array:
        return self._passes.exposure([factors[name] for name in self.names], of)


# -- CP: one fused kernel -----------------------------------------------------------------------


class CpPasses:
    """CP models of any order, including NMF: one fused kernel.

    Cells are sorted by the longest mode and cut into chunks between its rows, so that each chunk owns its rows of that
    mode. For short modes each chunk has private sums, which are added in the order of the chunks. A mode that is too
    long for this gets a separate pass, sorted by it. All this depends only on the list, not on the number of threads.
    """

    def __init__(self, task: Task, cells: CellList, threads: int) -> None:
        self._dtype, self._threads, self._links = task.dtype, threads, task.links
        shape = task.shape
        self._factors = CpFactors(task.equation)
        self._order = [term.name for term in task.equation.factors]
        by_size = sorted(range(len(shape)), key=lambda mode: -shape[mode])
        whole = cells.whole()  # keep the list alive while the passes are created
        most = min(PRIVATE_BYTES // (8 * task.rank), len(whole))
        room = most // MOST_CHUNKS  # rows of private sums per chunk
        short = [m for n, m in enumerate(by_size) if n and sum(shape[k] for k in by_size[n:]) <= room]
        ways = [(by_size[0], *short), *((mode,) for mode in by_size[1:] if mode not in short)]
        self._passes = [cells.once(("cp", *way), partial(_CpPass, shape, owner=way[0], short=way[1:])) for way in ways]

    def counts(
        self, factors: Sequence[Array], names: Sequence[str], log: bool, key: Key = None
    ) -> tuple[dict[str, Array], float]:
        """Counts of the named factors (expected, or sampled if there is a key), and the log term or NaN."""
        rows = self._rows(factors)
        sums: dict[int, Array] = {}
        log_terms: list[float] = []
        logs = _pass_with_log(self.together, names, log, key)
        for number, one in enumerate(self._passes):
            to_own = self._factors.names[one.owner] in names
            to_others = any(self._factors.names[mode] in names for mode in one.short)
            if not (to_own or to_others or number == logs):
                continue
            of_pass, wanted = None if key is None else (*key, number), (to_own, to_others, number == logs)
            own, others, terms = self._one_pass(one, one.stacked(rows, self._dtype), wanted, of_pass)
            sums |= {one.owner: own, **one.split(others)}
            log_terms += terms if number == logs else []
        parts = {self._factors.names[mode]: self._factors.as_factor(part, mode) for mode, part in sums.items()}
        return {name: parts[name] for name in names}, sum_of(log_terms) if log else math.nan

    @property
    def together(self) -> tuple[frozenset[str], ...]:
        names = self._factors.names
        return tuple(frozenset(names[mode] for mode in (one.owner, *one.short)) for one in self._passes)

    def _one_pass(
        self, one: _CpPass, Z: AnyArray, wanted: tuple[bool, bool, bool], key: Key
    ) -> tuple[Array, Array, list[float]]:
        """Sums of the rows owned by chunks, private sums of chunks, and log terms, as wanted."""
        own, others = np.zeros((one.size, Z.shape[1])), np.zeros((one.n_private, Z.shape[1]))

        def one_chunk(numbered: tuple[int, tuple[int, int]]) -> tuple[Array, float]:
            number, chunk = numbered
            private = np.zeros(others.shape)  # float64: millions of cells may contribute to one row
            head = one.rows, one.x, Z, own, private, len(one.short), *wanted, self._links
            chance = _stream(key, number)
            if chance is None:
                return private, cp_counts(*head, *chunk)
            return private, cp_allocation(*head, chance, *chunk)

        log_terms = []
        for private, log_term in ordered_map(one_chunk, list(enumerate(one.chunks)), self._threads):
            others += private
            log_terms.append(log_term)
        return own, others, log_terms

    def exposure(self, factors: Sequence[Array], of: str) -> Array:
        mode, rows = self._factors.names.index(of), self._rows(factors)
        one = next(one for one in self._passes if mode in (one.owner, *one.short))
        Z, at = one.stacked(rows, np.dtype(np.float64)), one.order.index(mode)
        sums = np.zeros(rows[mode].shape)

        def one_chunk(chunk: tuple[int, int]) -> Array:
            mine = np.zeros_like(sums) if at else sums
            cp_exposure(one.rows, Z, at, mine, one.first[at], *chunk)
            return mine

        for private in ordered_map(one_chunk, one.chunks, self._threads):
            if at:
                sums += private
        return self._factors.as_factor(sums, mode)

    def _rows(self, factors: Sequence[Array]) -> list[Array]:
        return self._factors.rows(dict(zip(self._order, factors, strict=True)))


class _CpPass:
    """The list sorted by one mode, which is owned by chunks, and the short modes with private sums."""

    def __init__(self, shape: tuple[int, ...], whole: WholeList, owner: int, short: Sequence[int]) -> None:
        between = [mode for mode in range(len(shape)) if mode != owner and mode not in short]
        self.owner, self.short, self.order = owner, short, [owner, *between, *short]
        sizes = [shape[mode] for mode in self.order]
        self.first = [0, *itertools.accumulate(sizes)]  # first row of each mode
        self.size, self.n_private = shape[owner], sum(shape[mode] for mode in short)
        self._ends = list(itertools.accumulate(shape[mode] for mode in short))[:-1]
        by_owner = order_by(whole.coords[owner], shape[owner])
        self.rows: Coords = np.empty(whole.coords.shape, np.int32 if self.first[-1] <= LARGEST_ROW else np.int64)
        for n, mode in enumerate(self.order):
            self.rows[n] = whole.coords[mode].take(by_owner)
            self.rows[n] += self.first[n]
        self.x = None if whole.x is None else whole.x.take(by_owner)
        self.chunks = chunks_of(self.rows[0])

    def split(self, others: Array) -> dict[int, Array]:
        """Split the stacked rows by short mode."""
        return dict(zip(self.short, np.split(others, self._ends), strict=True)) if self.short else {}

    def stacked(self, rows: Sequence[Array], dtype: np.dtype[Any]) -> AnyArray:
        """All factors stacked, one row per position, the owned mode first."""
        return np.ascontiguousarray(np.concatenate([rows[mode] for mode in self.order], dtype=dtype))


# -- any model: chains --------------------------------------------------------------------------


class ChainPasses:
    """Any model: a chain over the sorted cells (``chain.py``).

    Chunks own the factors with the first sort mode, which is the longest one; for other factors they have private sums.
    Factors that are too large for this get a separate pass.
    """

    def __init__(self, task: Task, cells: CellList, threads: int) -> None:
        equation, sizes = task.equation, task.sizes
        self._dtype, self._threads, self._ratios = task.dtype, threads, LINKS if task.links else RATIOS
        self._names = tuple(term.name for term in equation.factors)
        whole = cells.whole()  # keep the list alive while the passes are created
        count = len(whole)
        entries = [math.prod(sizes[index] for index in term.indices) for term in equation.factors]
        modes = sorted(range(len(task.shape)), key=lambda mode: -task.shape[mode])
        room = PRIVATE_BYTES // (8 * MOST_CHUNKS)
        left, self._passes = set(range(len(entries))), list[_ChainPass]()
        for owner in modes:
            index = equation.output.indices[owner]
            own = {n for n in left if index in equation.factors[n].indices}
            chain = plan_chain(equation, sizes, count, owner)
            small = {n for n in left - own if entries[n] <= room or not chain.seen(n)}
            if own:
                self._passes.append(_ChainPass(chain, sizes, cells.sorted_by(chain.modes), own, small))
                left -= own | small

    def counts(
        self, factors: Sequence[Array], names: Sequence[str], log: bool, key: Key = None
    ) -> tuple[dict[str, Array], float]:
        arrays = [array.astype(self._dtype, copy=False) for array in factors]
        sums: dict[int, Array] = {}
        log_term = math.nan
        wanted = {self._names.index(name) for name in names}
        logs = _pass_with_log(self.together, names, log, key)
        for number, one in enumerate(self._passes):
            mine, logged = wanted & one.gives, number == logs
            if not (mine or logged):
                continue
            of_pass = None if key is None else (*key, number)
            found, term = one.run(arrays, mine, self._ratios, self._threads, logged, of_pass)
            sums |= found
            log_term = term if logged else log_term
        return {name: sums[n] for n, name in enumerate(self._names) if n in wanted}, log_term

    @property
    def together(self) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(self._names[n] for n in one.gives) for one in self._passes)

    def exposure(self, factors: Sequence[Array], of: str) -> Array:
        leaf = self._names.index(of)
        one = next(one for one in self._passes if leaf in one.gives)
        return one.run(factors, {leaf}, ONES, self._threads)[0][leaf]


@dataclass(frozen=True, eq=False)
class _ChainPass:
    """One pass over the list: a chain, the cells in its order, and the factors whose sums it computes."""

    chain: Chain
    sizes: Mapping[str, int]
    cells: SortedList
    own: Collection[int]
    private: Collection[int]

    @property
    def gives(self) -> set[int]:
        """Factors whose sums it computes."""
        return {*self.own, *self.private}

    def run(
        self,
        factors: Sequence[AnyArray],
        wanted: set[int],
        what: int,
        threads: int,
        log: bool = False,
        key: Key = None,
    ) -> tuple[dict[int, Array], float]:
        """Sums of the wanted factors as in :func:`as_factor`, and the log term or NaN."""
        kernel = kernel_of(self.chain, self.sizes, self.cells.rows.shape[1], draws=key is not None)
        held = FlatSums(self.chain, self.layouts, self.own, factors, wanted, what)
        x = read_only(np.empty(0, held.F.dtype)) if self.cells.x is None else self.cells.x

        def one_chunk(numbered: tuple[int, tuple[int, int]]) -> tuple[Array, float]:
            number, chunk = numbered
            private = held.private()
            return private, held.call(kernel, self.cells.rows, x, log, private, _stream(key, number), *chunk)

        log_terms, others = [], held.private()
        for private, log_term in ordered_map(one_chunk, list(enumerate(self.cells.chunks)), threads):
            others += private
            log_terms.append(log_term)
        chance = {n: _stream(key, len(self.cells.chunks) + n) for n in wanted}
        flat = held.found(others)
        found = {n: as_factor(self.layouts[n], flat[n], factors[n], what, chance[n]) for n in wanted}
        return found, sum_of(log_terms) if log else math.nan

    @cached_property
    def layouts(self) -> list[Layout]:
        """Kernel layouts of the factors."""
        return layouts_of(self.chain, self.sizes)


def layouts_of(chain: Chain, sizes: Mapping[str, int]) -> list[Layout]:
    """Kernel layouts of the factors of a chain."""
    return [Layout(chain.equation, n, chain.latent, sizes) for n in range(len(chain.equation.factors))]


def as_factor(layout: Layout, sums: Array, factor: AnyArray, what: int, chance: Stream | None) -> Array:
    """Flat sums shaped like their factor: exposures, or counts, which are expected or sampled.

    Sampled counts are split at random over indices that no other factor has.
    """
    if chance is None:
        return layout.unflat(sums) if what == ONES else layout.unflat(sums) * factor
    weights = layout.rows(factor)
    drawn = np.zeros(weights.shape)
    split_rows(chance, sums, weights, drawn)
    return layout.from_rows(drawn)


def kernel_of(chain: Chain, sizes: Mapping[str, int], cells: int, *, draws: bool) -> Callable[..., float]:
    """The kernel of a chain: for draws, generated for it if there are enough cells, or the general one."""
    return _kernel_of(chain, tuple(sizes.items()), cells >= WORTH_COMPILING, draws)


@lru_cache(maxsize=64)
def _kernel_of(chain: Chain, known: tuple[tuple[str, int], ...], many: bool, draws: bool) -> Callable[..., float]:
    sizes = dict(known)
    if draws:
        return partial(chain_allocation, tables_of(chain, sizes), splits(chain, sizes))
    if many:
        return partial(compiled(chain), np.array([sizes[index] for index in chain.indices], dtype=np.int64))
    return partial(run, tables_of(chain, sizes))


class FlatSums:
    """Factors and sums as flat arrays for the kernel of a chain.

    Sums of owned factors are stored here; those of other factors go to an array passed with every call.
    """

    def __init__(
        self,
        chain: Chain,
        layouts: Sequence[Layout],
        owned: Collection[int],
        factors: Sequence[AnyArray],
        wanted: Collection[int],
        what: int,
    ) -> None:
        flat = [layout.flat(factor) for layout, factor in zip(layouts, factors, strict=True)]
        self.F, self._F_at = np.concatenate(flat), _starts([array.size for array in flat])[:-1]
        self._sizes = [array.size if n in wanted else 0 for n, array in enumerate(flat)]
        self._wanted, self._what = wanted, what
        self._owned = np.array([n in owned for n in range(len(flat))])
        own_at = _starts([size if n in owned else 0 for n, size in enumerate(self._sizes)])
        other_at = _starts([0 if n in owned else size for n, size in enumerate(self._sizes)])
        self._own, self._n_private = np.zeros(own_at[-1]), int(other_at[-1])
        self._sums_at = np.where(self._owned, own_at[:-1], other_at[:-1])
        self._todo = todo_of(chain, wanted, what)

    def private(self) -> Array:
        """Zeros for the sums of factors that are not owned."""
        return np.zeros(self._n_private)

    def call(
        self,
        kernel: Callable[..., float],
        rows: Coords,
        x: AnyArray,
        log: bool,
        private: Array,
        array: NDArray[Any] | None,
        start: int,
        stop: int,
    ) -> float:
        """Add cells [start, stop); returns the log term or NaN. ``array`` is a random stream, or takes the rates."""
        array = np.empty(0) if array is None else array
        head = (rows, x, self._what, log, self._todo, self.F, self._F_at, self._own, private)
        return kernel(*head, self._sums_at, self._owned, array, start, stop)

    def found(self, others: Array) -> dict[int, Array]:
        """Flat sums of every wanted factor."""
        arrays = {n: self._own if self._owned[n] else others for n in self._wanted}
        return {n: array[self.place(n)] for n, array in arrays.items()}

    def place(self, n: int) -> slice:
        """Slice of the sums of a factor."""
        return slice(int(self._sums_at[n]), int(self._sums_at[n]) + self._sizes[n])


def todo_of(chain: Chain, wanted: Collection[int], what: int) -> NDArray[np.bool_]:
    """The tasks of each step: forward, to its factor, to the previous step."""
    at = [n for n, step in enumerate(chain.steps) if step.factor in wanted]
    first, last = min(at, default=len(chain.steps)), max(at, default=-1)
    todo = np.zeros((len(chain.steps), 3), dtype=bool)
    for n, step in enumerate(chain.steps):
        todo[n, FORWARD] = what != ONES or n < last
        todo[n, TO_FACTOR] = step.factor in wanted
        todo[n, TO_T_IN] = n > first
    return todo


def _pass_with_log(passes: Sequence[frozenset[str]], names: Sequence[str], log: bool, key: Key) -> int:
    """The pass that computes the log term; -1 for none.

    Always the first one, so that its result does not depend on which factors are wanted. For allocation this would
    cost an extra pass per group of factors, so it is the first pass that runs.
    """
    if not log:
        return -1
    return next((n for n, held in enumerate(passes) if key is not None and held.intersection(names)), 0)


def _stream(key: Key, number: int) -> Stream | None:
    """The random stream with a number, if there is a key."""
    return None if key is None else stream((*key, number))


def _starts(sizes: Sequence[int]) -> NDArray[np.int64]:
    return np.array([0, *itertools.accumulate(sizes)], dtype=np.int64)


def rates_at(
    equation: Equation, sizes: Mapping[str, int], factors: Sequence[AnyArray], cells: Coords
) -> NDArray[np.float64]:
    """Xhat of listed cells (modes, n) in any order."""
    chain = plan_chain(equation, sizes, cells.shape[1], 0)
    held, out = FlatSums(chain, layouts_of(chain, sizes), (), factors, (), RATES), np.empty(cells.shape[1])
    rows, x = read_only(np.ascontiguousarray(cells[list(chain.modes)])), read_only(np.empty(0))
    held.call(partial(run, tables_of(chain, sizes)), rows, x, False, held.private(), out, 0, out.size)  # noqa: FBT003
    return out
