"""Requested cells: listed ones, or all cells of a tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from pltf.data.base import Observation
from pltf.data.cell_index import Coords
from pltf.data.forms import is_annotated, long_or_array
from pltf.data.labels import Labels, shown
from pltf.data.numeric import brief, find_bad, numeric
from pltf.data.observe import has_names, in_order, is_xarray, observe
from pltf.data.tables import cells_of, is_table
from pltf.engines.plan import human
from pltf.errors import PltfError, py
from pltf.gamma import Array

_AT = f"{py:at}"
_Answer = TypeVar("_Answer", bound=NDArray[Any])
_NUMBERS = (bool, int, float, np.number, np.bool_)


@dataclass(frozen=True, eq=False)
class Asked:
    """Cells in the order of the results: rows of positions, or all cells of a tensor."""

    sizes: tuple[int, ...]  # of the tensor
    listed: Coords | None  # (modes, cells); None: all cells
    single: bool = False  # a single cell: its result has no axis of cells

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the results."""
        return self.sizes if self.listed is None else (self.listed.shape[1],)

    @property
    def size(self) -> int:
        """Their number, which may exceed machine integers."""
        return math.prod(self.shape)

    def coords(self, part: slice) -> Coords:
        """Some of the cells, as (modes, cells)."""
        if self.listed is not None:
            return self.listed[:, part]
        return np.stack(np.unravel_index(np.arange(part.start, part.stop), self.sizes))

    @property
    def places(self) -> Coords | tuple[NDArray[np.intp], ...]:
        """Positions along each mode, which broadcast to the shape of the results."""
        return np.indices(self.sizes, sparse=True, dtype=np.intp) if self.listed is None else self.listed

    def parts(self, most: int) -> Iterator[slice]:
        """The cells, at most so many at a time."""
        return (slice(at, min(at + most, self.size)) for at in range(0, self.size, most))

    def answer(self, array: _Answer) -> _Answer:
        """The result as returned: for a single cell, without its last axis."""
        if not self.single:
            return array
        return cast(_Answer, array[..., 0][()])  # a number if no axis is left

    def empty(self, *before: int) -> Array:
        """An array for the results: flat, with further axes before the cells."""
        try:
            return np.empty((*before, self.size))
        except (MemoryError, ValueError, OverflowError):
            size = human(8 * math.prod(before) * self.size, "B")
            raise PltfError(f"the result would take {size}: select fewer cells with {py:at=}") from None


def asked(at: Any, sizes: tuple[int, ...], indices: tuple[str, ...], labels: Mapping[str, Labels]) -> Asked:
    """The cells that ``at`` selects: one cell, an (n, modes) array, index arrays, a boolean array, or None for all."""
    if at is None:
        return Asked(sizes, None)
    single = isinstance(at, tuple) and len(at) == len(sizes) and all(map(_is_scalar, at))
    cells = as_cells([at] if single else at, sizes, indices, labels)
    return Asked(sizes, np.ascontiguousarray(cells.T), single)


def _is_scalar(one: Any) -> bool:
    """Whether it is a single label or position."""
    return isinstance(one, str) or (not getattr(one, "shape", ()) and not isinstance(one, (list, tuple, Mapping)))


def as_cells(
    at: Any, shape: tuple[int, ...], indices: tuple[str, ...], labels: Mapping[str, Labels], name: str = _AT
) -> NDArray[np.intp]:
    """Cells as an (n, modes) array: from such an array, a table, rows of labels, index arrays, or a boolean mask."""
    if is_xarray(at):
        at = _where(at, shape, indices, labels, name)
    elif is_table(at):
        at = cells_of(at, indices, labels, name, PltfError)
    elif labels and not isinstance(at, tuple):
        at = _by_labels(at, indices, labels, name)
    if isinstance(at, tuple):
        arrays = [numeric(one, name) for one in at] if len(at) == len(shape) else []
        if not arrays or any(a.shape != arrays[0].shape or a.ndim != 1 for a in arrays):
            each = f"each of {', '.join(indices)}"
            raise PltfError(f"{name}: a tuple must hold one label, position or index array for {each}")
        cells = np.stack(arrays, axis=1)
    else:
        cells = numeric(at, name)
        if cells.shape in ((0,), (0, len(shape))):
            cells = np.empty((0, len(shape)), dtype=np.intp)
        if cells.dtype == bool:
            if cells.shape != shape:
                raise PltfError(
                    f"{name}: a boolean array must have the shape of the tensor, {shape}; got {cells.shape}"
                )
            cells = np.argwhere(cells)
        elif cells.ndim == len(shape) == 1:
            cells = cells[:, None]  # of a vector, positions are cells
    if cells.ndim != 2 or cells.shape[1] != len(shape):
        raise PltfError(f"{name} must list cells, one row of {len(shape)} positions each; got shape {cells.shape}")
    if cells.size and cells.dtype.kind not in "iu":
        raise PltfError(f"{name} must hold whole numbers, got dtype {cells.dtype}")
    wrong = (cells < 0) | (cells >= np.asarray(shape))
    if wrong.any():
        row, axis = map(int, np.argwhere(wrong)[0])
        index, position = indices[axis], int(cells[row, axis])
        raise PltfError(
            f"{name}: {py:row {row}} has {position} for index '{index}', which runs from 0 to {shape[axis] - 1}"
        )
    return cells.astype(np.intp, copy=False)


def _where(
    at: Any, shape: tuple[int, ...], indices: tuple[str, ...], labels: Mapping[str, Labels], name: str
) -> NDArray[np.intp]:
    """The cells where a DataArray is True, in its order, which is that of values[at]."""
    _check_dims(at, indices, name)
    if at.dtype != bool:
        raise PltfError(f"{name}: a DataArray must be boolean, got dtype {at.dtype}")
    columns = dict(zip(map(str, at.dims), np.nonzero(at.values), strict=True))
    for index, size in zip(indices, shape, strict=True):
        if index in labels and index in at.indexes:
            what, own = f"{name}: labels of {index!r}", at.indexes[index]
            if own.has_duplicates:
                raise PltfError(f"{what}: the label {shown(own[own.duplicated()][0])} occurs twice")
            places = labels[index].positions(own, what)
            columns[index] = places[columns[index]]
        elif at.sizes[index] != size:
            raise PltfError(f"{name} must have {size} positions along {index!r}, got {at.sizes[index]}")
    return np.stack([columns[index] for index in indices], axis=1)


def _check_dims(array: Any, indices: tuple[str, ...], name: str) -> None:
    if set(array.dims) != set(indices):
        came, want = ", ".join(map(str, array.dims)), ", ".join(indices)
        raise PltfError(f"{name} has the dims {came}, but {want} were expected")


def _by_labels(at: Any, indices: tuple[str, ...], labels: Mapping[str, Labels], name: str) -> Any:
    """Rows with a string are labels. Arrays of numbers are positions; lists of numbers must not be ambiguous."""
    if not isinstance(at, (list, np.ndarray)) or not len(at):
        return at
    if isinstance(at, np.ndarray) and at.dtype.kind in "biuf":
        return at
    rows = [tuple(row) if isinstance(row, (list, tuple, np.ndarray)) else () for row in at]
    if any(len(row) != len(indices) for row in rows):
        if any(isinstance(word, str) for word in (*at, *(word for row in rows for word in row))):
            expected = f"cells, each of them a row of {len(indices)} labels ({', '.join(indices)})"
            raise PltfError(f"{name} must list {expected}; got {brief(list(at))}")
        return at
    if all(isinstance(one, _NUMBERS) for row in rows for one in row):
        if not isinstance(at[0], np.ndarray):
            _refuse_ambiguous(indices, labels, name)
        return at
    columns = zip(indices, map(list, zip(*rows, strict=True)), strict=True)
    found = [labels[i].positions(column, f"{name}: {i!r}") if i in labels else column for i, column in columns]
    return np.stack([np.asarray(column) for column in found], axis=1)


def _refuse_ambiguous(indices: tuple[str, ...], labels: Mapping[str, Labels], name: str) -> None:
    """Raise an error if numbers in a list may be positions or labels: if labels are other numbers."""
    for index in indices:
        held = labels[index].index if index in labels else None
        if held is not None and held.dtype.kind in "iuf" and not np.array_equal(held, np.arange(len(held))):
            advice = "pass labels as a table, or positions as an array"
            raise PltfError(f"{name}: the labels of {index!r} are numbers, so numbers are ambiguous: {advice}")


def observed_like(
    data: Any,
    indices: tuple[str, ...],
    labels: Mapping[str, Labels],
    sizes: Mapping[str, int],
    name: str,
    *,
    unlisted: str = "zero",
    new: str | None = None,
    value: str | None = None,
) -> Observation:
    """Read more data for a fit, matched by its labels; labels of index ``new`` may be new.

    ``unlisted`` says what the unlisted cells of a table are; ``value`` is its column of values.
    """
    data = data if value is not None else long_or_array(data, indices, name)
    data = observe(data, dims=indices, name=name) if is_annotated(data) else data
    if isinstance(data, Observation) or not has_names(data):
        seen = in_order(observe(data, name=name), indices, name)
        check_labels(seen, {i: labels[i] for i in labels if i != new}, name)
        return seen
    known = dict(labels)
    if is_table(data):
        import pandas as pd

        known = {i: labels.get(i, Labels(pd.RangeIndex(sizes[i]))) for i in indices}
    of_table: dict[str, Any] = {"unlisted": unlisted, "value": value} if is_table(data) else {}
    kept = {i: known[i] for i in indices if i in known and i != new}
    seen = observe(data, dims=indices, labels=kept, name=name, **of_table)
    return replace(seen, labels={i: one for i, one in seen.labels.items() if i in labels or i == new})


def labelled_array(array: Any, indices: tuple[str, ...], labels: Mapping[str, Labels], name: str) -> Any:
    """The values of a DataArray with axes and labels in the order of a fit."""
    _check_dims(array, indices, name)
    array = array.transpose(*indices)
    for index in indices:
        if index in labels and index in array.indexes:
            array = array.isel({index: labels[index].sources(array.indexes[index], f"{name}: labels of {index!r}")})
    return array.values


def check_labels(seen: Observation, known: Mapping[str, Labels], name: str) -> None:
    """Raise an error if the labels of an observation differ from those of the fit."""
    for index, labels in seen.labels.items():
        if index in known and labels != known[index]:
            raise PltfError(f"{name} and the fit have different labels of {index!r}: pass the table or array itself")


def observed_values(values: Any, cells: Asked, indices: tuple[str, ...], labels: Mapping[str, Labels]) -> Array:
    """A value for each requested cell, finite and non-negative; from a DataArray, its values at the cells."""
    if is_xarray(values) and set(values.dims) == set(indices):
        values = labelled_array(values, indices, labels, f"{py:values}")
        if values.shape != cells.sizes:
            raise PltfError(f"{py:values} must have the shape of the tensor, {cells.sizes}; got {values.shape}")
        values = values if cells.listed is None else values[tuple(cells.listed)]
    x = numeric(values, f"{py:values}")
    x = x.reshape(cells.shape) if cells.single and not x.ndim else x
    if x.shape != cells.shape:
        raise PltfError(f"{py:values} must have a number for each cell, of shape {cells.shape}; got {x.shape}")
    bad = find_bad(x.reshape(-1))
    if bad is not None:
        raise PltfError(f"{py:values} must be {bad[1]}, got {x.reshape(-1)[bad[0]]}")
    return x.astype(np.float64)
