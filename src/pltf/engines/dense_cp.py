"""The dense engine of CP models: fused kernels over the cells as a table."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  # the kernels call it: it must be there before its threads are limited
from numpy.typing import NDArray

from pltf.data import DenseObservation
from pltf.data.numeric import read_only
from pltf.engines._numba import mask_by_inner, mask_by_outer, outer_exposure, table_counts
from pltf.engines.base import Counts, lost_in_cast, sum_of
from pltf.engines.closed_form import ClosedForm
from pltf.engines.contraction import AnyArray
from pltf.engines.cp import CpFactors
from pltf.engines.factors import Version, Versioned
from pltf.engines.lists import MOST_CHUNKS
from pltf.engines.memo import Memo, Remembering
from pltf.engines.plan import SHARED_BYTES, EquationPlan
from pltf.gamma import Array
from pltf.threads import keep_freed_memory, ordered_map

SHORTEST_INNER, LONGEST_INNER = 32, 8192  # columns of a table: modes at the end go together, unless they are long
LEAST_CELLS, MOST_CELLS = 1 << 16, 1 << 20  # of a piece of a table
LEAST_MASK_CELLS = 1 << 18  # of a piece of a mask, whose sums take less time

T = TypeVar("T")


class Piece(NamedTuple):
    """Some rows of a table."""

    rows: slice
    leading: slice  # positions of the leading mode that they touch
    sizes: NDArray[np.int64]  # of the outer modes, the leading one cut to these
    first: int  # outer position of the first row, with the leading mode cut


class CellTable:
    """A dense array as a table without a copy: rows are positions of the outer modes, columns of the inner ones.

    Modes come in the order in which they lie in memory. The pieces depend on the shape alone.
    """

    def __init__(self, values: NDArray[Any]) -> None:
        self.order = _memory_order(values)
        shape = [values.shape[mode] for mode in self.order]
        self.n_outer = len(shape) - 1
        while self.n_outer > 1 and prod(shape[self.n_outer :]) < SHORTEST_INNER:
            if prod(shape[self.n_outer - 1 :]) > LONGEST_INNER:
                break
            self.n_outer -= 1
        self.outer, self.inner = tuple(shape[: self.n_outer]), tuple(shape[self.n_outer :])
        self.pieces = self._cut(values.size, LEAST_CELLS)
        self.mask_pieces = self._cut(values.size, LEAST_MASK_CELLS)

    @staticmethod
    def fits(values: NDArray[Any]) -> bool:
        """Whether an array is one piece of memory, with rows that are not too long."""
        order = _memory_order(values)
        return values.transpose(order).flags.c_contiguous and values.shape[order[-1]] <= LONGEST_INNER

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array of the same shape as such a table; copied if it lies in memory another way."""
        return np.ascontiguousarray(array.transpose(self.order)).reshape(prod(self.outer), prod(self.inner))

    def _cut(self, cells: int, least: int) -> list[Piece]:
        """Pieces of at least so many cells, if there are as many."""
        count = -(-cells // min(MOST_CELLS, max(least, cells // MOST_CHUNKS)))
        return [self._piece(rows) for rows in _evenly(prod(self.outer), count)]

    def _piece(self, rows: slice) -> Piece:
        below = prod(self.outer[1:])
        leading = slice(rows.start // below, -(-rows.stop // below))
        sizes = np.array([leading.stop - leading.start, *self.outer[1:]])
        return Piece(rows, leading, sizes, rows.start - leading.start * below)


class DenseCpEngine(Remembering):
    """Sums of a CP model over the cells of one dense tensor.

    Sums of the pieces are added in order: the number of threads changes no bit.
    """

    def __init__(self, plan: EquationPlan, seen: DenseObservation, threads: int) -> None:
        self._dtype, self._table = plan.dtype, CellTable(seen.values)
        self._threads = threads
        self._factors = CpFactors(plan.equation)
        self._names = [self._factors.names[mode] for mode in self._table.order]
        self.names = tuple(term.name for term in plan.equation.factors)
        self._values = self._table.of(seen.values)
        self._mask = None if seen.mask is None else self._table.of(seen.mask)
        self._closed_form = ClosedForm(plan.equation, plan.sizes) if seen.mask is None else None
        self._memo = Memo()
        seen_bytes = 8 * prod(self._table.outer) * plan.sizes[plan.equation.summed[0]]
        self._shares = seen_bytes <= max(SHARED_BYTES, plan.data_bytes // 16)
        keep_freed_memory()

    # -- counts ---------------------------------------------------------------------------------

    @np.errstate(invalid="ignore")  # a zero rate under a count makes NaN; log_term is -inf and says so
    def counts(self, factors: Mapping[str, Array], wanted: Collection[str] | None = None, log: bool = True) -> Counts:
        outer, inner = self._columns(factors, self._dtype)
        T = _products(inner)
        tables, inner_sums, log_terms = [np.zeros(part.shape) for part in outer], np.zeros(T.shape), []

        def one_piece(piece: Piece) -> tuple[Array, Array, float]:
            Z, mask = _side_by_side(outer, piece), None if self._mask is None else self._mask[piece.rows]
            sums, to_inner, x = np.zeros(Z.shape), np.zeros(T.shape), self._values[piece.rows]
            if x.dtype != self._dtype:
                with np.errstate(over="ignore"):  # what a missing cell holds may not fit, and does not matter
                    x = read_only(x.astype(self._dtype))  # as the data are: one compiled kernel for both
            return sums, to_inner, table_counts(x, mask, piece.first, Z, piece.sizes, T, sums, to_inner)

        for piece, (sums, to_inner, log_term) in self._over(self._table.pieces, one_piece):
            log_terms.append(log_term)
            for n, table in enumerate(tables):
                _add_mode(table, sums, piece, n)
            inner_sums += to_inner
        tables += [_without(inner_sums, inner, n) * part for n, part in enumerate(inner)]
        by_factor = {
            name: self._as_factor(n, table)
            for n, (name, table) in enumerate(zip(self._names, tables, strict=True))
            if wanted is None or name in wanted
        }
        log_term = sum_of(log_terms)
        return Counts(by_factor, log_term + lost_in_cast(log_term, by_factor, factors, self._dtype))

    # -- exposure, in float64 always: the bound takes its total from it -------------------------

    def exposure(self, factors: Mapping[str, Array], of: str) -> Array:
        if self._closed_form is not None:
            return np.array(np.broadcast_to(self._closed_form.compact(factors, of), factors[of].shape))
        n = self._names.index(of)
        outer, inner = self._columns(factors, np.dtype(np.float64))
        held = Versioned.of(factors).versions(self._names)
        if n < self._table.n_outer:
            return self._as_factor(n, self._outer_exposure(n, outer, inner, held[self._table.n_outer :]))
        W = self._memo.get("outer", held[: self._table.n_outer], lambda: self._seen_by_outer(outer))
        return self._as_factor(n, _without(W, inner, n - self._table.n_outer))

    def total(self, factors: Mapping[str, Array]) -> float:
        """From what the outer modes see of the mask, if that is known; else from an exposure."""
        W = self._memo.known("outer", Versioned.of(factors).versions(self._names[: self._table.n_outer]))
        if W is not None:
            _, inner = self._columns(factors, np.dtype(np.float64))
            return float((W * _products(inner)).sum())
        of = self._names[0]
        return float((factors[of] * self.exposure(factors, of)).sum())

    def _outer_exposure(
        self, n: int, outer: Sequence[Array], inner: Sequence[Array], held: tuple[Version, ...]
    ) -> Array:
        """The mask contracted with all modes but an outer one; ``held`` are the versions of the inner modes."""
        mask, T = self._mask, _products(inner)
        assert mask is not None

        def one_piece(piece: Piece) -> Array:
            def seen_by_inner() -> Array:
                V = np.empty((T.shape[0], piece.rows.stop - piece.rows.start))
                mask_by_inner(mask[piece.rows], T, V)
                return V

            V = self._memo.get(("inner", piece.rows.start), held, seen_by_inner) if self._shares else seen_by_inner()
            Z = _side_by_side(outer, piece)
            sums = np.zeros(Z.shape)
            outer_exposure(V, piece.first, Z, piece.sizes, n, sums)
            return sums

        table = np.zeros(outer[n].shape)
        for piece, sums in self._over(self._table.mask_pieces, one_piece):
            _add_mode(table, sums, piece, n)
        return table

    def _seen_by_outer(self, outer: Sequence[Array]) -> Array:
        """The mask contracted with all outer modes: (R, inner)."""
        mask, W = self._mask, np.zeros((len(outer[0]), prod(self._table.inner)))
        assert mask is not None

        def one_piece(piece: Piece) -> Array:
            part = np.zeros(W.shape)
            mask_by_outer(mask[piece.rows], piece.first, _side_by_side(outer, piece), piece.sizes, part)
            return part

        for _, part in self._over(self._table.mask_pieces, one_piece):
            W += part
        return W

    # -- factors and pieces ---------------------------------------------------------------------

    def _over(self, pieces: Sequence[Piece], one_piece: Callable[[Piece], T]) -> Iterator[tuple[Piece, T]]:
        return zip(pieces, ordered_map(one_piece, pieces, self._threads), strict=True)

    def _columns(self, factors: Mapping[str, Array], dtype: np.dtype[Any]) -> tuple[list[AnyArray], list[AnyArray]]:
        """(R, size) of every outer and of every inner mode."""
        rows = self._factors.rows(factors)
        columns = [np.ascontiguousarray(rows[mode].T, dtype=dtype) for mode in self._table.order]
        return columns[: self._table.n_outer], columns[self._table.n_outer :]

    def _as_factor(self, n: int, columns: Array) -> Array:
        return self._factors.as_factor(columns.T, self._table.order[n])


def _memory_order(values: NDArray[Any]) -> list[int]:
    return sorted(range(values.ndim), key=lambda mode: -values.strides[mode])


def _evenly(size: int, pieces: int) -> list[slice]:
    ends = [size * n // pieces for n in range(pieces + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(ends) if a < b]


def _side_by_side(outer: Sequence[AnyArray], piece: Piece) -> AnyArray:
    """Columns of the outer modes in one array; of the leading mode those of the piece."""
    return np.concatenate([outer[0][:, piece.leading], *outer[1:]], axis=1)


def _add_mode(table: Array, sums: Array, piece: Piece, n: int) -> None:
    """Add the sums of a piece, side by side, to the table of one outer mode."""
    first = int(piece.sizes[:n].sum())
    part = table[:, piece.leading] if n == 0 else table
    part += sums[:, first : first + piece.sizes[n]]


def _products(inner: Sequence[AnyArray], without: int = -1) -> AnyArray:
    """A column for each inner position: the product of the columns of the inner modes, but for one."""
    table = inner[0] if without != 0 else np.ones_like(inner[0])
    for n, part in enumerate(inner[1:], 1):
        factor = np.ones_like(part) if n == without else part
        table = (table[:, :, None] * factor[:, None, :]).reshape(len(table), -1)
    return table


def _without(table: Array, inner: Sequence[AnyArray], n: int) -> Array:
    """Sums for each column of an inner mode of a table (R, inner) times the columns of the other inner modes."""
    if len(inner) == 1:
        return table
    full = (table * _products(inner, n)).reshape(len(table), *(part.shape[1] for part in inner))
    return np.asarray(full.sum(axis=tuple(axis for axis in range(1, full.ndim) if axis != n + 1)))
