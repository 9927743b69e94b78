"""The sparse engine: sums over listed cells; an absent cell costs nothing."""

from __future__ import annotations

import itertools
import math
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from pltf.data import CooObservation
from pltf.data.cell_index import Coords
from pltf.engines._numba import cp_counts, cp_exposure, ratios
from pltf.engines.all_ones import AllOnes
from pltf.engines.base import Counts, lost_in_cast, sum_of
from pltf.engines.cells import CellEquation
from pltf.engines.contraction import AnyArray
from pltf.engines.cp import CpFactors
from pltf.engines.factors import Version, Versioned
from pltf.engines.memo import Memo, Remembering
from pltf.engines.plan import MOST_CHUNKS, ListedPlan
from pltf.errors import ConvergenceWarning, py
from pltf.gamma import Array
from pltf.threads import keep_freed_memory, ordered_map

PRIVATE_BYTES = 256 << 20  # sums that chunks may hold for themselves, all together
LARGEST_ROW = np.iinfo(np.int32).max
CANCELLED = 1e-9  # share of the closed form below which the difference has too few digits
MOST_CELLS = 1 << 24  # that may be added up one by one instead

T = TypeVar("T")


class SparseEngine(Remembering):
    """Sums over the cells of one tensor that is given as a list."""

    def __init__(self, plan: ListedPlan, seen: CooObservation, threads: int) -> None:
        self._plan, self._threads = plan, threads
        self._names = tuple(term.name for term in plan.equation.factors)
        lists = ListedCp if plan.is_cp else ListedAny
        self._lists = partial(lists, plan, threads=threads)
        self._positive: Listed = self._lists(Cells(seen, "positive", partial(_positive, seen, plan.dtype), plan.dtype))
        self._seen = seen
        cells, sign = _exposed(seen)
        self._exposed: Listed | None = None
        if cells is not None:
            self._exposed = self._lists(Cells(seen, "exposed", lambda: (cells, None), plan.dtype))
        self._all_ones = AllOnes(plan.equation, plan.sizes) if sign < 0 else None
        self._empty = _empty_entries(plan, seen, cells) if sign < 0 and cells is not None else {}
        self._observed: Listed | None = None
        self._memo = Memo()
        keep_freed_memory()

    @np.errstate(invalid="ignore")  # a zero rate under a count makes NaN; log_term is -inf and says so
    def counts(self, factors: Mapping[str, Array], wanted: Collection[str] | None = None, log: bool = True) -> Counts:
        names = [name for name in self._names if wanted is None or name in wanted]
        sums, log_term = self._positive.counts([factors[name] for name in self._names], names)
        return Counts(sums, log_term + lost_in_cast(log_term, sums, factors, self._plan.dtype, self._threads))

    def exposure(self, factors: Mapping[str, Array], of: str) -> Array:
        others = self._others(Versioned.of(factors), of)
        return self._memo.get(("exposure", of), others, lambda: self._new_exposure(factors, of))

    def _new_exposure(self, factors: Mapping[str, Array], of: str) -> Array:
        """Over the observed cells, or in closed form less the holes: whichever list is shorter."""
        arrays = [factors[name] for name in self._names]
        if self._all_ones is None:
            assert self._exposed is not None
            return self._exposed.exposure(arrays, of)
        whole = np.broadcast_to(self._all_ones.exposure(factors, of), factors[of].shape)
        if self._exposed is None:
            return np.array(whole)
        exposure = whole - self._exposed.exposure(arrays, of)
        if of in self._empty:
            exposure[self._empty[of]] = 0.0  # exactly: no observed cell touches these
        if self._has_cancelled(exposure, whole, of):
            observed = self._over_observed_cells()
            return np.maximum(exposure, 0.0) if observed is None else observed.exposure(arrays, of)
        return exposure

    def _over_observed_cells(self) -> Listed | None:
        """The observed cells one by one; None, with a warning, if they are too many."""
        if self._observed is None:
            listed = self._seen.unlisted == "missing"
            if not listed and math.prod(self._seen.shape) > MOST_CELLS:
                text = "missing cells have rates so far above the observed ones that exposures keep few digits"
                advice = f"list the observed cells, with {py:unlisted='missing'}"
                warnings.warn(f"{text}: {advice}", ConvergenceWarning, stacklevel=2)
                return None
            cells = self._seen.coords if listed else _complement(self._seen.missing, self._seen.shape)
            self._observed = self._lists(Cells(self._seen, "observed", lambda: (cells, None), self._plan.dtype))
        return self._observed

    def _has_cancelled(self, exposure: Array, whole: Array, of: str) -> bool:
        """Whether holes take so much of an entry's closed form that the rest has lost its digits."""
        cancelled = exposure < CANCELLED * whole
        return bool(cancelled.any() and (of not in self._empty or (cancelled & ~self._empty[of]).any()))

    def total(self, factors: Mapping[str, Array]) -> float:
        factors = Versioned.of(factors)
        known = [n for n in self._names if self._memo.holds(("exposure", n), self._others(factors, n))]
        of = known[0] if known else self._names[-1]
        return float((factors[of] * self.exposure(factors, of)).sum())

    def _others(self, factors: Versioned[Array], of: str) -> tuple[Version, ...]:
        return factors.versions(name for name in self._names if name != of)


_lists_of: WeakKeyDictionary[CooObservation, WeakValueDictionary[Any, Any]] = WeakKeyDictionary()
_making = threading.RLock()


class Cells:
    """A list of cells of some data. Engines on the same data share what they make of it, while one of them lives."""

    def __init__(
        self,
        seen: CooObservation,
        role: str,
        make: Callable[[], tuple[Coords, AnyArray | None]],
        dtype: np.dtype[Any],
    ) -> None:
        self._seen, self._key, self._make = seen, (role, dtype.name), make

    def whole(self) -> _Whole:
        """Positions and counts, in the order of the data."""
        return self._once((), lambda: _Whole(*self._make()))

    def sorted_by(self, shape: tuple[int, ...], owner: int, short: Sequence[int]) -> _Pass:
        """The list sorted by a mode."""

        def make() -> _Pass:
            whole = self.whole()
            return _Pass(shape, whole.coords, whole.x, owner, short)

        return self._once((owner, *short), make)

    def _once(self, part: tuple[int, ...], make: Callable[[], T]) -> T:
        with _making:
            known = _lists_of.setdefault(self._seen, WeakValueDictionary())
            found: T | None = known.get((*self._key, part))
            if found is None:
                found = known[(*self._key, part)] = make()
            return found


class _Whole:
    """A list as it is."""

    def __init__(self, coords: Coords, x: AnyArray | None) -> None:
        self.coords, self.x = coords, x


def _positive(seen: CooObservation, dtype: np.dtype[Any]) -> tuple[Coords, AnyArray]:
    """The cells with a positive count; in float32 a small one may be zero."""
    x = seen.values.astype(dtype)
    positive = x > 0
    return np.ascontiguousarray(seen.coords[:, positive]), x[positive]


class Listed(Protocol):
    """Sums over a list of cells."""

    def counts(self, factors: Sequence[Array], names: Sequence[str]) -> tuple[dict[str, Array], float]:
        """Expected counts of the named factors and sum x*log(Xhat/x)."""
        ...

    def exposure(self, factors: Sequence[Array], of: str) -> Array:
        """Delta of one factor over the cells of the list."""
        ...


class ListedAny:
    """Any model: blocks of cells are gathered, contracted and scattered."""

    def __init__(self, plan: ListedPlan, cells: Cells, threads: int) -> None:
        self._cells, self._whole = CellEquation(plan.equation, plan.sizes), cells.whole()
        self._names = tuple(term.name for term in plan.equation.factors)
        self._coords, self._x, self._dtype = self._whole.coords, self._whole.x, plan.dtype
        self._blocks = [slice(at, at + self._cells.block) for at in range(0, self._coords.shape[1], self._cells.block)]
        self._threads = min(threads, max(1, len(self._blocks)))

    def counts(self, factors: Sequence[Array], names: Sequence[str]) -> tuple[dict[str, Array], float]:
        cells, x = self._cells, self._x
        assert x is not None
        arrays = [array.astype(self._dtype, copy=False) for array in factors]
        leaves = [self._names.index(name) for name in names]

        def one_block(block: slice) -> tuple[dict[int, AnyArray], float]:
            values = cells.tree.forward(cells.leaves(arrays, self._coords[:, block]))
            rate = np.array(values[-1], order="C")
            log_term = ratios(x[block], None, rate)
            with np.errstate(invalid="ignore"):
                return cells.tree.backward(values, rate, leaves), log_term

        sums = {leaf: cells.zeros(leaf) for leaf in leaves}
        log_terms = []
        for block, (delta, log_term) in self._over_blocks(one_block):
            log_terms.append(log_term)
            for leaf in leaves:
                cells.scatter(sums[leaf], leaf, delta[leaf], self._coords[:, block])
        return (
            {self._names[n]: cells.finish(sums[n], n) * arrays[n] for n in leaves},
            sum_of(log_terms),
        )

    def exposure(self, factors: Sequence[Array], of: str) -> Array:
        cells, leaf = self._cells, self._names.index(of)
        sums = cells.zeros(leaf)

        def one_block(block: slice) -> AnyArray:
            coords = self._coords[:, block]
            values = cells.tree.forward(cells.leaves(factors, coords), root=False)
            return cells.tree.descend(values, np.ones(coords.shape[1]), leaf)

        for block, delta in self._over_blocks(one_block):
            cells.scatter(sums, leaf, delta, self._coords[:, block])
        return cells.finish(sums, leaf)

    def _over_blocks(self, one_block: Any) -> Iterator[tuple[slice, Any]]:
        return zip(self._blocks, ordered_map(one_block, self._blocks, self._threads), strict=True)


class ListedCp:
    """CP of any order, NMF included: one fused kernel.

    Cells are sorted by the longest mode and cut into chunks at its rows, so that each chunk owns its rows of that mode.
    Of short modes a chunk has sums of its own, which are added up in the order of the chunks. A mode too long for that
    gets a pass of its own, sorted by it. All this depends on the list alone: the number of threads changes no bit.
    """

    def __init__(self, plan: ListedPlan, cells: Cells, threads: int) -> None:
        self._dtype, self._threads = plan.dtype, threads
        whole = cells.whole()  # for now: what is sorted needs it no more
        self._factors = CpFactors(plan.equation)
        self._order = [term.name for term in plan.equation.factors]
        by_size = sorted(range(len(plan.shape)), key=lambda mode: -plan.shape[mode])
        most = min(PRIVATE_BYTES // (8 * plan.rank), whole.coords.shape[1])
        room = most // MOST_CHUNKS  # rows a chunk may hold for itself
        short = [m for n, m in enumerate(by_size) if n and sum(plan.shape[k] for k in by_size[n:]) <= room]
        long = [mode for mode in by_size[1:] if mode not in short]
        self._passes = [cells.sorted_by(plan.shape, by_size[0], short)]
        self._passes += [cells.sorted_by(plan.shape, mode, []) for mode in long]

    def counts(self, factors: Sequence[Array], names: Sequence[str]) -> tuple[dict[str, Array], float]:
        rows = self._rows(factors)
        sums: dict[int, Array] = {}
        log_terms: list[float] = []
        for number, one in enumerate(self._passes):
            if number and self._factors.names[one.owner] not in names:
                continue
            Z = one.stacked(rows, self._dtype)
            own, others, terms = self._one_pass(one, Z)
            sums |= {one.owner: own, **one.split(others)}
            log_terms += [] if number else terms
        parts = {self._factors.names[mode]: self._factors.as_factor(part, mode) for mode, part in sums.items()}
        return {name: parts[name] for name in names}, sum_of(log_terms)

    def _one_pass(self, one: _Pass, Z: AnyArray) -> tuple[Array, Array, list[float]]:
        """Counts of the rows that the chunks own, of those they hold for themselves, and the log terms."""
        own, others = np.zeros((one.size, Z.shape[1])), np.zeros((one.n_private, Z.shape[1]))

        def one_chunk(chunk: tuple[int, int]) -> tuple[Array, float]:
            private = np.zeros(others.shape)  # float64: millions of cells may add to one row
            return private, cp_counts(one.rows, one.x, Z, own, private, len(one.short), *chunk)

        log_terms = []
        for private, log_term in ordered_map(one_chunk, one.chunks, self._threads):
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


class _Pass:
    """The list sorted by one mode, which chunks of it own, and the short modes of which they have sums of their own."""

    def __init__(
        self, shape: tuple[int, ...], coords: Coords, x: AnyArray | None, owner: int, short: Sequence[int]
    ) -> None:
        between = [mode for mode in range(len(shape)) if mode != owner and mode not in short]
        self.owner, self.short, self.order = owner, short, [owner, *between, *short]
        sizes = [shape[mode] for mode in self.order]
        self.first = [0, *itertools.accumulate(sizes)]  # where the rows of each mode begin
        self.size, self.n_private = shape[owner], sum(shape[mode] for mode in short)
        self._ends = list(itertools.accumulate(shape[mode] for mode in short))[:-1]
        by_owner = np.argsort(coords[owner], kind="stable")
        self.rows: Coords = np.empty(coords.shape, np.int32 if self.first[-1] <= LARGEST_ROW else np.int64)
        for n, mode in enumerate(self.order):
            self.rows[n] = coords[mode][by_owner]
            self.rows[n] += self.first[n]
        self.x = None if x is None else x[by_owner]
        self.chunks = self._cut(MOST_CHUNKS)

    def _cut(self, count: int) -> list[tuple[int, int]]:
        """Chunks of the list, at rows of the owned mode."""
        own: Coords = self.rows[0]
        ends = [own.size * n // count for n in range(1, count)]
        ends = [int(np.searchsorted(own, own[end], side="left")) for end in ends if end < own.size]
        return [(a, b) for a, b in itertools.pairwise([0, *ends, own.size]) if a < b] or [(0, 0)]

    def split(self, others: Array) -> dict[int, Array]:
        """The rows of each short mode."""
        return dict(zip(self.short, np.split(others, self._ends), strict=True)) if self.short else {}

    def stacked(self, rows: Sequence[Array], dtype: np.dtype[Any]) -> AnyArray:
        """All factors one under the other, a row for each position, the owned mode first."""
        return np.ascontiguousarray(np.concatenate([rows[mode] for mode in self.order], dtype=dtype))


def _exposed(seen: CooObservation) -> tuple[Coords | None, int]:
    """The cells to go through for an exposure, and 1 if they are observed or -1 if they are holes.

    The shorter of the two lists: the one that was given, or the rest of the tensor when that is shorter still.
    """
    given = seen.coords if seen.unlisted == "missing" else seen.missing
    sign = 1 if seen.unlisted == "missing" else -1
    rest = math.prod(seen.shape) - given.shape[1]
    if rest < given.shape[1]:
        given, sign = _complement(given, seen.shape), -sign
    if given.shape[1] == 0 and sign < 0:
        return None, -1
    return given, sign


def _complement(coords: Coords, shape: tuple[int, ...]) -> Coords:
    """All other cells of the tensor."""
    absent = np.ones(shape, dtype=bool)
    absent[tuple(coords)] = False
    return np.ascontiguousarray(np.stack(np.nonzero(absent)).astype(coords.dtype))


def _empty_entries(plan: ListedPlan, seen: CooObservation, holes: Coords) -> dict[str, NDArray[np.bool_]]:
    """Entries of each factor that no observed cell touches: where holes are all there is."""
    observed = plan.equation.output.indices
    empty = {}
    for term in plan.equation.factors:
        modes = [observed.index(index) for index in term.indices if index in observed]
        if not modes:
            continue
        shape = tuple(seen.shape[mode] for mode in modes)
        cells = math.prod(seen.shape) // math.prod(shape)
        if holes.shape[1] < cells:
            continue  # too few to fill a slice
        counts = np.bincount(np.ravel_multi_index(tuple(holes[modes]), shape), minlength=math.prod(shape))
        full = (counts >= cells).reshape(shape)
        if full.any():
            axes = [term.indices.index(index) for index in term.indices if index not in observed]
            order = [index for index in term.indices if index in observed]
            ranked = full.transpose([modes.index(observed.index(index)) for index in order])
            size = tuple(plan.sizes[index] for index in term.indices)
            empty[term.name] = np.broadcast_to(np.expand_dims(ranked, tuple(axes)), size)
    return empty
