"""The dense engine for CP models: fused kernels over the cells as a matrix."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  # the kernels call it: it must be there before its threads are limited
from numpy.typing import NDArray

from pltf.data import DenseObservation
from pltf.data.numeric import read_only
from pltf.engines.base import Counting, OverArrays, sum_of
from pltf.engines.contraction import AnyArray
from pltf.engines.cp import CpFactors
from pltf.engines.factors import Version, Versioned
from pltf.engines.kernels.dense import group_exposure, mask_by_inner, mask_by_outer, table_counts
from pltf.engines.lists import MOST_CHUNKS
from pltf.engines.memo import Memo, Remembering
from pltf.engines.plan import SHARED_BYTES, EquationPlan
from pltf.gamma import Array
from pltf.threads import keep_freed_memory, ordered_map

SHORTEST_INNER, LONGEST_INNER = 32, 8192  # columns of a table: trailing modes are merged up to this length
LEAST_CELLS, MOST_CELLS = 1 << 16, 1 << 20  # per piece of a table
LEAST_MASK_CELLS = 1 << 18  # per piece of a mask, whose sums are cheaper

T = TypeVar("T")


class Piece(NamedTuple):
    """A range of rows of a table."""

    rows: slice
    leading: slice  # positions of the leading mode in these rows
    cut: NDArray[np.int64]  # the first row, then the sizes of the outer modes, the leading one cut
    width: int  # sum of these sizes


class CellTable:
    """A dense array viewed as a matrix without a copy: rows are positions of outer modes, columns of inner ones.

    Modes are in memory order. The pieces depend only on the shape.
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
        """Whether an array is contiguous, with rows that are not too long."""
        order = _memory_order(values)
        return values.transpose(order).flags.c_contiguous and values.shape[order[-1]] <= LONGEST_INNER

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        """View an array of the same shape as such a matrix; it is copied if its memory order differs."""
        return np.ascontiguousarray(array.transpose(self.order)).reshape(prod(self.outer), prod(self.inner))

    def _cut(self, cells: int, least: int) -> list[Piece]:
        """Pieces of at least ``least`` cells, if there are enough cells."""
        count = -(-cells // min(MOST_CELLS, max(least, cells // MOST_CHUNKS)))
        return [self._piece(rows) for rows in _evenly(prod(self.outer), count)]

    def _piece(self, rows: slice) -> Piece:
        below = prod(self.outer[1:])
        leading = slice(rows.start // below, -(-rows.stop // below))
        first = rows.start - leading.start * below
        sizes = (leading.stop - leading.start, *self.outer[1:])
        return Piece(rows, leading, np.array([first, *sizes]), sum(sizes))


class Modes(NamedTuple):
    """The outer or the inner modes of a table: a group of columns of Z, which contains all factors side by side."""

    numbers: range  # numbers of the modes, in table order
    sizes: NDArray[np.int64]
    first: int  # first column in Z

    @classmethod
    def of(cls, shape: tuple[int, ...], before: tuple[int, ...]) -> Modes:
        """Modes of these sizes, placed after modes of the sizes ``before``."""
        return cls(range(len(before), len(before) + len(shape)), np.array(shape), sum(before))


class DenseCpEngine(Counting, OverArrays, Remembering):
    """Sums of a CP model over the cells of one dense tensor.

    Sums of the pieces are added in order: the result does not depend on the number of threads.
    """

    def __init__(self, plan: EquationPlan, seen: DenseObservation, threads: int) -> None:
        self._dtype, self._table, self._links = plan.dtype, CellTable(seen.values), plan.links
        self._threads = threads
        self._factors = CpFactors(plan.equation)
        self._names = [self._factors.names[mode] for mode in self._table.order]
        self.names = tuple(term.name for term in plan.equation.factors)
        self._rank = plan.sizes[plan.equation.summed[0]]
        self._outer = Modes.of(self._table.outer, ())
        self._inner = Modes.of(self._table.inner, self._table.outer)
        self._values = self._table.of(seen.values)
        self._mask = None if seen.mask is None else self._table.of(seen.mask)
        self._seen = seen  # keeps the shared lists alive as long as the engine
        self._starts = [0, *itertools.accumulate((*self._table.outer, *self._table.inner))]  # first column of each mode
        self._memo = Memo()
        seen_bytes = 8 * prod(self._table.outer) * self._rank
        self._shares = seen_bytes <= max(SHARED_BYTES, plan.data_bytes // 16)
        keep_freed_memory()

    # -- counts ---------------------------------------------------------------------------------

    def _passed(
        self, factors: Mapping[str, Array], names: Sequence[str], log: bool, key: tuple[int, ...] | None
    ) -> tuple[dict[str, Array], float]:
        taken = [n for n, name in enumerate(self._names) if name in names]
        Z = self._columns(factors, self._dtype)
        outer_sums, inner_sums, log_terms = self._sums(Z, taken, log)
        by_factor = {
            self._names[n]: self._as_factor(
                n, outer_sums if n in self._outer.numbers else self._inner_counts(n, inner_sums, Z)
            )
            for n in taken
        }
        return by_factor, sum_of(log_terms) if log else math.nan

    def _sums(self, Z: AnyArray, taken: Collection[int], log: bool) -> tuple[Array, Array, list[float]]:
        """Sums over all cells for the columns of the outer modes and for every inner position, with log terms."""
        to_outer, to_inner = (any(n in modes.numbers for n in taken) for modes in (self._outer, self._inner))
        inner_shape = (self._rank, self._values.shape[1] if to_inner else 0)

        def one_piece(piece: Piece) -> tuple[Array, Array, float]:
            x, known = self._cells(piece.rows)
            sums, inner_sums = np.zeros((self._rank, piece.width)), np.zeros(inner_shape)
            place = (self._outer.sizes, self._inner.sizes, piece.rows.start, piece.cut)
            wanted = (to_outer, to_inner, log, self._links)
            return sums, inner_sums, table_counts(x, known, Z, *place, *wanted, sums, inner_sums)

        if len(self._table.pieces) == 1:
            outer_sums, inner_sums, log_term = one_piece(self._table.pieces[0])
            return outer_sums, inner_sums, [log_term]
        outer_sums, inner_sums, log_terms = np.zeros((self._rank, self._inner.first)), np.zeros(inner_shape), []
        for piece, (sums, more, log_term) in self._over(self._table.pieces, one_piece):
            _add_piece(outer_sums, sums, piece)
            inner_sums += more
            log_terms.append(log_term)
        return outer_sums, inner_sums, log_terms

    def _cells(self, rows: slice) -> tuple[AnyArray, NDArray[np.bool_] | None]:
        """Values and mask of some rows, in the dtype of the engine."""
        x, known = self._values[rows], None if self._mask is None else self._mask[rows]
        if x.dtype != self._dtype:
            with np.errstate(over="ignore"):  # missing cells may contain values that overflow, which are ignored
                x = read_only(x.astype(self._dtype))  # read-only like the data: one compiled kernel for both
        return x, known

    def _inner_counts(self, n: int, inner_sums: Array, Z: AnyArray) -> Array:
        """Counts of an inner mode, in its columns of the group, from the sums of every inner position."""
        return self._along_inner(n, inner_sums, Z) * Z[:, self._inner.first :]

    # -- exposure, always in float64: it determines the total in the ELBO ------------------------

    def exposure(self, factors: Mapping[str, Array], of: str) -> Array:
        n, held = self._names.index(of), Versioned.of(factors)
        if self._mask is None:
            others = [m for m in range(len(self._names)) if m != n]
            return np.array(np.broadcast_to(self._closed_form(others, n, held), factors[of].shape), order="C")
        Z = self._known_columns(held)
        if n in self._outer.numbers:
            return self._as_factor(n, self._outer_exposure(n, Z, held))
        W = self._memo.get("outer", self._versions(self._outer, held), lambda: self._seen_by_outer(Z))
        return self._as_factor(n, self._along_inner(n, W, Z))

    def total(self, factors: Mapping[str, Array]) -> float:
        """Computed from the exposure of an inner mode if the mask sums over the outer modes are cached."""
        held = Versioned.of(factors)
        if self._mask is None:
            return float(self._closed_form(range(len(self._names)), 0, held).sum())
        of = self._names[-1 if self._memo.holds("outer", self._versions(self._outer, held)) else 0]
        return float((factors[of] * self.exposure(held, of)).sum())

    def _outer_exposure(self, n: int, Z: Array, held: Versioned[Array]) -> Array:
        """The mask contracted with all modes except an outer one."""
        mask, versions = self._mask, self._versions(self._inner, held)
        assert mask is not None

        def one_piece(piece: Piece) -> Array:
            def seen_by_inner() -> Array:
                V = np.empty((self._rank, piece.rows.stop - piece.rows.start))
                mask_by_inner(mask[piece.rows], Z, self._inner.sizes, V)
                return V

            key = ("inner", piece.rows.start)
            V = self._memo.get(key, versions, seen_by_inner) if self._shares else seen_by_inner()
            sums = np.zeros((self._rank, piece.width))
            group_exposure(V, Z, 0, self._outer.sizes, piece.rows.start, piece.cut, n, sums)
            return sums

        if len(self._table.mask_pieces) == 1:
            return one_piece(self._table.mask_pieces[0])
        table = np.zeros((self._rank, self._inner.first))
        for piece, sums in self._over(self._table.mask_pieces, one_piece):
            _add_piece(table, sums, piece)
        return table

    def _seen_by_outer(self, Z: Array) -> Array:
        """The mask contracted with all outer modes: (R, inner)."""
        mask = self._mask
        assert mask is not None
        shape = self._rank, mask.shape[1]

        def one_piece(piece: Piece) -> Array:
            part = np.zeros(shape)
            mask_by_outer(mask[piece.rows], Z, self._outer.sizes, piece.rows.start, part)
            return part

        if len(self._table.mask_pieces) == 1:
            return one_piece(self._table.mask_pieces[0])
        W = np.zeros(shape)
        for _, part in self._over(self._table.mask_pieces, one_piece):
            W += part
        return W

    def _along_inner(self, n: int, table: Array, Z: AnyArray) -> Array:
        """Sums, for the columns of an inner mode, of a table (R, inner) times the columns of the other inner modes."""
        sizes = self._inner.sizes
        if len(sizes) == 1:
            return table
        sums, whole = np.zeros((self._rank, Z.shape[1] - self._inner.first)), np.array([0, *sizes])
        Z = Z.astype(np.float64, copy=False)  # one compiled kernel for both dtypes
        group_exposure(table, Z, self._inner.first, sizes, 0, whole, n - self._inner.numbers.start, sums)
        return sums

    def _closed_form(self, of: Iterable[int], like: int, factors: Versioned[Array]) -> Array:
        """Product over factors of their sums over positions, for each r; broadcasts to the factor of a mode."""
        product = prod(self._column_sums(n, factors) for n in of)
        return self._factors.as_factor(np.asarray(product)[None], self._table.order[like])

    def _column_sums(self, n: int, factors: Versioned[Array]) -> Array:
        """Sum of the factor of a mode over positions, for each r."""

        def summed() -> Array:
            return np.asarray(self._factors.rows(factors)[self._table.order[n]].sum(axis=0))

        return self._memo.get(("sum", n), factors.versions([self._names[n]]), summed)

    # -- factors and pieces ---------------------------------------------------------------------

    def _over(self, pieces: Sequence[Piece], one_piece: Callable[[Piece], T]) -> Iterator[tuple[Piece, T]]:
        return zip(pieces, ordered_map(one_piece, pieces, self._threads), strict=True)

    def _versions(self, modes: Modes, factors: Versioned[Array]) -> tuple[Version, ...]:
        return factors.versions([self._names[n] for n in modes.numbers])

    def _columns(self, factors: Mapping[str, Array], dtype: np.dtype[Any]) -> AnyArray:
        """Z (R, sum of sizes): the factors of all modes, side by side."""
        rows = self._factors.rows(factors)
        Z = np.empty((self._rank, self._starts[-1]), dtype)
        return np.concatenate([rows[mode].T for mode in self._table.order], axis=1, out=Z, casting="same_kind")

    def _known_columns(self, factors: Versioned[Array]) -> Array:
        """As :meth:`_columns` in float64; factors that have not changed since the last call are not copied again."""
        versions, last = factors.versions(self._names), self._memo.last("columns")
        if last is None:
            return self._memo.get("columns", versions, lambda: self._columns(factors, np.dtype(np.float64)))
        if last[0] == versions:
            return last[1]
        Z, rows = last[1].copy(), self._factors.rows(factors)
        for n, (before, now) in enumerate(zip(last[0], versions, strict=True)):
            if before != now:
                Z[:, self._starts[n] : self._starts[n + 1]] = rows[self._table.order[n]].T
        return self._memo.get("columns", versions, lambda: Z)

    def _as_factor(self, n: int, columns: Array) -> Array:
        """The columns of a mode, given those of its group, with the axis order of its factor."""
        modes = self._outer if n in self._outer.numbers else self._inner
        mine = columns[:, self._starts[n] - modes.first : self._starts[n + 1] - modes.first]
        return self._factors.as_factor(mine.T, self._table.order[n])


def _memory_order(values: NDArray[Any]) -> list[int]:
    return sorted(range(values.ndim), key=lambda mode: -values.strides[mode])


def _evenly(size: int, pieces: int) -> list[slice]:
    ends = [size * n // pieces for n in range(pieces + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(ends) if a < b]


def _add_piece(table: Array, sums: Array, piece: Piece) -> None:
    """Add the sums of a piece, where the leading mode is restricted, to the sums of all outer modes."""
    touched, rest = piece.leading.stop - piece.leading.start, table.shape[1] - piece.width
    table[:, piece.leading] += sums[:, :touched]
    table[:, touched + rest :] += sums[:, touched:]
