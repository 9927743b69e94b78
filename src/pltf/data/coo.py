"""Listed cells: a sparse tensor whose absent cells are either zero or missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.base import Observation
from pltf.data.cell_index import Coords, distinct, first_of_each, order_of
from pltf.data.numeric import EXACT, brief, constants, find_bad, finite_total, numeric, read_only
from pltf.data.pattern import ListedPattern, Pattern, listed_pattern
from pltf.errors import ObservationError, choice, is_number, py, py_only

UNLISTED = ("zero", "missing")
DUPLICATES = ("error", "sum")


@dataclass(frozen=True, eq=False, repr=False)
class CooObservation(Observation):
    """Cells of a tensor, listed by position; no array of the size of the tensor is allocated.

    Cells are sorted by position. With ``unlisted="zero"``, an absent cell is an observed zero unless it is in
    ``missing``; with ``unlisted="missing"``, it is missing. A listed zero is an observed zero.

    >>> import numpy as np, pltf
    >>> seen = pltf.observe((np.array([[0, 5], [2, 7]]), np.array([3.0, 1.0])), shape=(10**6, 10**6))
    >>> seen
    <CooObservation 1000000x1000000 float64: 1,000,000,000,000 of 1,000,000,000,000 cells observed, total 4>
    >>> pltf.observe((np.array([[0, 5]]), np.array([3.0])), shape=(9, 9), unlisted="missing").n_observed
    1
    """

    sizes: tuple[int, ...]
    coords: Coords
    values: NDArray[np.float64]
    unlisted: str
    missing: Coords  # missing cells, if unlisted is "zero"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sizes

    @property
    def dtype_name(self) -> str:
        return str(self.values.dtype)

    @cached_property
    def n_positive(self) -> int:
        return int(np.count_nonzero(self.values))

    @cached_property
    def _pattern(self) -> ListedPattern:
        missing = self.missing if self.unlisted == "zero" else None
        return ListedPattern(self.sizes, self.coords, self.values, missing)

    def pattern(self) -> Pattern:
        return listed_pattern(self.sizes, self.coords, self.values, self._pattern.missing)

    def values_at(self, cells: Coords) -> NDArray[np.float64]:
        listed = np.append(self.values, 0.0)[self._pattern.listed.find(cells)]  # position -1 (not found) is the last
        return np.where(self._pattern.observed(cells), listed, np.nan)

    def first_where(self, wrong: Callable[[NDArray[Any]], NDArray[np.bool_]]) -> tuple[tuple[int, ...], float] | None:
        found = wrong(self.values)
        if not found.any():
            return None
        first = int(np.argmax(found))
        return tuple(map(int, self.coords[:, first])), float(self.values[first])

    def _parts(self) -> Iterator[NDArray[Any]]:
        yield np.frombuffer(self.unlisted.encode(), dtype=np.uint8)
        yield from (self.coords, self.values, self.missing)

    def _permuted(self, order: tuple[int, ...]) -> dict[str, Any]:
        sizes = tuple(self.sizes[axis] for axis in order)
        coords, values = sort_cells(self.coords[list(order)], self.values, sizes)
        cells = {"coords": read_only(coords), "values": read_only(values)}
        return {"sizes": sizes, **cells, "missing": permuted_cells(self.missing, order)}


def coo_observation(
    coords: Any,
    values: Any,
    shape: Any,
    *,
    unlisted: str,
    missing: Any,
    duplicates: str,
    name: str,
) -> CooObservation:
    """Validate listed cells; ``coords`` and ``missing`` have one row per cell."""
    choice("unlisted", unlisted, UNLISTED, ObservationError)
    choice("duplicates", duplicates, DUPLICATES, ObservationError)
    if missing is not None and unlisted == "missing":
        raise ObservationError(
            f"{py:missing} lists missing cells among observed zeros, but with {py:unlisted='missing'} all are missing"
        )
    sizes = _shape(shape, name)
    x = _values(values, name)
    at = _positions(coords, sizes, f"{name}: coords")
    if at.shape[1] != x.size:
        raise ObservationError(f"{name}: coords and values must have the same length, got {at.shape[1]} and {x.size}")
    _check_values(at, x, name)
    at, x = _merged(*sort_cells(at, x, sizes), duplicates, name)
    _check_values(at, x, name)  # check again: sums may be too large
    holes = _positions(np.empty((0, len(sizes)), dtype=int) if missing is None else missing, sizes, f"{py:missing}")
    holes = distinct(holes)
    _check_disjoint(at, holes)
    n_observed = x.size if unlisted == "missing" else math.prod(sizes) - holes.shape[1]
    total, saturated = constants(x)
    total = finite_total([total], name)
    largest = float(x.max(initial=0))
    arrays = (read_only(at), read_only(x), unlisted, read_only(holes))
    return CooObservation(n_observed, total, saturated, largest, sizes, *arrays)


def _check_values(at: Coords, x: NDArray[Any], name: str) -> None:
    bad = find_bad(x)
    if bad is not None:
        cell = tuple(map(int, at[:, bad[0]]))
        raise ObservationError(f"{name}: observed values must be {bad[1]}, but cell {cell} holds {x[bad[0]]}")


def _shape(shape: Any, name: str) -> tuple[int, ...]:
    if shape is None:
        raise ObservationError(f"{name}: listed cells require {py:shape=}, the sizes of the tensor")
    sizes = whole_sizes(shape)
    if not sizes or max(sizes) >= 2**63:
        raise ObservationError(
            f"{name}: {py:shape} must be whole numbers from 1 to 2**63 - 1, one for each mode; got {brief(shape)}"
        )
    return sizes


def whole_sizes(shape: Any) -> tuple[int, ...]:
    """A shape of whole numbers above zero; empty for anything else."""
    ordered = isinstance(shape, Sequence) or (isinstance(shape, np.ndarray) and shape.ndim)
    sizes = tuple(shape) if ordered else ()
    return tuple(map(int, sizes)) if all(is_number(n, whole=True) and n > 0 for n in sizes) else ()


def _values(values: Any, name: str) -> NDArray[Any]:
    x = numeric(values, f"{name}: values", ObservationError)
    if x.ndim != 1:
        raise ObservationError(f"{name}: values must be a list of numbers, got shape {x.shape}")
    return x


def _positions(cells: Any, sizes: tuple[int, ...], what: str) -> Coords:
    """Convert rows of positions to shape (modes, cells), in the smallest integer type that fits."""
    rows = numeric(cells, what, ObservationError)
    if rows.shape in ((0,), (0, len(sizes))):  # an empty list has no integer dtype
        rows = np.empty((0, len(sizes)), dtype=np.int64)
    if rows.ndim != 2 or rows.shape[1] != len(sizes):
        came = f"{rows.shape}: transpose it" if rows.shape[:1] == (len(sizes),) and rows.ndim == 2 else rows.shape
        raise ObservationError(f"{what} must have a row of {len(sizes)} positions for each cell, got shape {came}")
    if rows.dtype.kind not in "iu":
        raise ObservationError(f"{what} must be whole numbers, got dtype {rows.dtype}")
    for mode, size in enumerate(sizes):
        wrong = (rows[:, mode] < 0) | (rows[:, mode] >= size)
        if wrong.any():
            row = int(np.argmax(wrong))
            came = f"{py:row {row}} has {int(rows[row, mode])} for mode {mode}"
            raise ObservationError(f"{what} must be inside the tensor, but {came}, which runs from 0 to {size - 1}")
    narrow = np.int32 if max(sizes) <= np.iinfo(np.int32).max else np.int64
    return np.ascontiguousarray(rows.T, dtype=narrow)


def permuted_cells(cells: Coords, order: tuple[int, ...]) -> Coords:
    """Cells with permuted axes, sorted again."""
    cells = cells[list(order)]
    return read_only(cells[:, np.lexsort(cells[::-1])])


def sort_cells(at: Coords, x: NDArray[Any], sizes: tuple[int, ...]) -> tuple[Coords, NDArray[Any]]:
    """Sort cells by position (stable)."""
    order = order_of(sizes, at)
    return at[:, order], x[order]


def _merged(at: Coords, x: NDArray[Any], duplicates: str, name: str) -> tuple[Coords, NDArray[np.float64]]:
    """Sorted unique cells and their float64 values."""
    new = first_of_each(at)
    if new.all():
        return at, x.astype(np.float64)
    if duplicates == "error":
        cell = tuple(map(int, at[:, int(np.argmin(new))]))
        advice = f"pass {py:duplicates='sum'}{py_only: to observe} to add them up"
        raise ObservationError(f"{name}: cell {cell} is listed more than once; {advice}")
    first = np.flatnonzero(new)
    with np.errstate(over="ignore"):
        sums = np.add.reduceat(x, first, dtype=np.float64)
    inexact = (sums >= EXACT) & (np.diff(first, append=x.size) > 1)
    if x.dtype.kind in "iu" and inexact.any():
        cell = tuple(map(int, at[:, first[np.argmax(inexact)]]))
        limit = "less than 2**53, or float64 would round them"
        raise ObservationError(f"{name}: the values of cell {cell} must add up to {limit}")
    return at[:, new], sums


def _check_disjoint(at: Coords, holes: Coords) -> None:
    """Raise an error for a cell listed both with a value and as missing."""
    if not at.shape[1] or not holes.shape[1]:
        return
    both = np.concatenate([at, holes], axis=1)
    both = both[:, np.lexsort(both[::-1])]
    new = first_of_each(both)
    if not new.all():
        cell = tuple(map(int, both[:, int(np.argmin(new))]))
        raise ObservationError(f"cell {cell} is listed both with a value and in {py:missing}")
