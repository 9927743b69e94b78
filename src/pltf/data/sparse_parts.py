"""Validate the arrays of sparse containers, because compiled code in SciPy would read out of bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pltf.data.numeric import brief
from pltf.errors import ObservationError

_COMPRESSED = ("csr", "csc", "bsr")
_PARTS = dict.fromkeys(_COMPRESSED, ("data", "indices", "indptr")) | {
    "coo": ("data", "coords"),
    "dia": ("data", "offsets"),
}
_LARGEST = 2**63 - 1


def check_sparse(data: Any, name: str) -> None:
    """Raise an error for an inconsistent SciPy or pydata sparse array; other data are accepted."""
    if sparse.issparse(data):
        if data.format == "lil":
            _check_lists(data.rows, data.data, data.shape, name)
        elif data.format in _PARTS:  # DOK is a dictionary, which compiled code does not read
            parts = {part: getattr(data, part) for part in _PARTS[data.format]}
            _check_parts(data.format, parts, data.shape, name)
    elif type(data).__module__.split(".")[0] == "sparse":
        if hasattr(data, "indptr") and len(data.shape) > 1:  # GCXS: a matrix whose rows and columns are several modes
            major, minor = data._compressed_shape
            _check_compressed(data.indptr, data.indices, len(data.data), major, minor, name)
        elif hasattr(data, "coords"):
            _check_coords(data.coords, len(data.data), data.shape, name)


def as_coo(data: Any, name: str) -> Any:
    """Convert a validated sparse array to COO; errors of its library become an ObservationError."""
    try:
        return data.asformat("coo")
    except (ArithmeticError, LookupError, TypeError, ValueError) as reason:
        raise ObservationError(f"{name} is a damaged {data.format} array: {reason}") from reason


def sparse_array(format: str, parts: Mapping[str, Any], shape: Sequence[int], name: str) -> Any:
    """Build a SciPy array from its parts, with the names used by SciPy, after checking that they are consistent.

    >>> parts = {"data": np.array([5.0]), "indices": np.array([1]), "indptr": np.array([0, 0, 1])}
    >>> sparse_array("csr", parts, (2, 3), "data").toarray().tolist()
    [[0.0, 0.0, 0.0], [0.0, 5.0, 0.0]]
    >>> sparse_array("csr", parts | {"indptr": np.array([0, 9, 1])}, (2, 3), "data")
    Traceback (most recent call last):
        ...
    pltf.errors.ObservationError: data: indptr must never fall, but 9 stands before 1
    """
    shape = _checked_shape(shape, name)
    _check_parts(format, parts, shape, name)
    if format == "coo":
        return sparse.coo_array((parts["data"], tuple(parts["coords"])), shape=shape)
    if format == "dia":
        return sparse.dia_array((parts["data"], parts["offsets"]), shape=shape)
    kind = getattr(sparse, f"{format}_array")
    return kind((parts["data"], _native(parts["indices"]), _native(parts["indptr"])), shape=shape)


def _native(numbers: NDArray[Any]) -> NDArray[Any]:
    """Convert to the integer types of SciPy, which would misread others such as uint64 or swapped byte order."""
    return numbers if numbers.dtype in (np.int32, np.int64) else numbers.astype(np.int64)


def _check_parts(format: str, parts: Mapping[str, Any], shape: tuple[int, ...], name: str) -> None:
    values = np.asarray(parts["data"])
    if format == "coo":
        _check_list(values, "data", name)
        _check_coords(parts["coords"], len(values), shape, name)
    elif format == "dia":
        offsets = _whole(parts["offsets"], "offsets", name)
        if values.ndim != 2 or len(values) != offsets.size or len(shape) != 2:
            raise ObservationError(f"{name}: data must have a row for each of {offsets.size} offsets")
        _check_between(offsets, 1 - shape[0], shape[1] - 1, "offsets", name)
    elif format in _COMPRESSED:
        rows, columns = shape if len(shape) == 2 else (1, shape[0])  # csr_array may be one-dimensional
        if format == "bsr":
            rows, columns = _in_blocks(values, shape, name)
        else:
            _check_list(values, "data", name)
        major, minor = (columns, rows) if format == "csc" else (rows, columns)
        _check_compressed(parts["indptr"], parts["indices"], len(values), major, minor, name)
    else:
        raise ObservationError(f"{name}: sparse format {brief(format)} is unsupported")


def _checked_shape(shape: Any, name: str) -> tuple[int, ...]:
    sizes = _whole(shape, "shape", name)
    if not sizes.size or (sizes < 0).any() or (sizes > _LARGEST).any():
        raise ObservationError(f"{name}: shape must have sizes from 0 to {_LARGEST}, got {brief(sizes.tolist())}")
    return tuple(sizes.tolist())


def _in_blocks(values: NDArray[Any], shape: tuple[int, ...], name: str) -> tuple[int, int]:
    """The numbers of rows and columns of blocks."""
    if values.ndim != 3 or len(shape) != 2 or 0 in values.shape[1:]:
        raise ObservationError(f"{name}: data must be blocks of a matrix, got shape {values.shape}")
    if shape[0] % values.shape[1] or shape[1] % values.shape[2]:
        raise ObservationError(f"{name}: blocks of {values.shape[1:]} do not fill the shape {shape}")
    return shape[0] // values.shape[1], shape[1] // values.shape[2]


def _check_compressed(starts: Any, indices: Any, count: int, major: int, minor: int, name: str) -> None:
    """Raise an error for a compressed matrix with a row (for csc, a column) out of bounds."""
    starts, indices = _whole(starts, "indptr", name), _whole(indices, "indices", name)
    if starts.size != major + 1:
        raise ObservationError(f"{name}: indptr must have {major + 1} entries, got {starts.size}")
    if starts[0] != 0:
        raise ObservationError(f"{name}: indptr must start at 0, got {starts[0]}")
    falls = starts[1:] < starts[:-1]
    if falls.any():
        at = int(np.argmax(falls))
        raise ObservationError(f"{name}: indptr must never fall, but {starts[at]} stands before {starts[at + 1]}")
    if starts[-1] != indices.size:
        raise ObservationError(f"{name}: indptr must end at the number of indices, {indices.size}; got {starts[-1]}")
    if indices.size != count:
        raise ObservationError(f"{name}: there must be an index for each of {count} values, got {indices.size}")
    _check_between(indices, 0, minor - 1, "indices", name)


def _check_coords(coords: Any, count: int, shape: tuple[int, ...], name: str) -> None:
    if len(coords) != len(shape):
        raise ObservationError(f"{name}: coords must be {len(shape)} lists, got {len(coords)}")
    for axis, (places, size) in enumerate(zip(coords, shape, strict=True)):
        places = _whole(places, f"coords of axis {axis}", name)
        if places.size != count:
            raise ObservationError(
                f"{name}: coords of axis {axis} must be one for each of {count} values, got {places.size}"
            )
        _check_between(places, 0, size - 1, f"coords of axis {axis}", name)


def _check_lists(rows: Any, values: Any, shape: tuple[int, ...], name: str) -> None:
    """Raise an error for a LIL matrix with more values than indices in a row; SciPy allocates for the indices."""
    for part, what in ((rows, "rows"), (values, "data")):
        lists = isinstance(part, np.ndarray) and part.shape == shape[:1] and all(type(one) is list for one in part)
        if not lists:
            raise ObservationError(f"{name}: {what} must be an array of {shape[0]} lists")
    for row, (places, held) in enumerate(zip(rows, values, strict=True)):
        if len(places) != len(held):
            raise ObservationError(
                f"{name}: there must be an index for each of {len(held)} values of row {row}, got {len(places)}"
            )
    listed = list(chain.from_iterable(rows))
    if not all(isinstance(place, (int, np.integer)) for place in listed):
        raise ObservationError(f"{name}: indices must be whole numbers")
    _check_between(np.array(listed), 0, shape[1] - 1, "indices", name)


def _check_between(numbers: NDArray[Any], least: int, most: int, what: str, name: str) -> None:
    wrong = (numbers < least) | (numbers > most)
    if wrong.any():
        raise ObservationError(f"{name}: {what} must be from {least} to {most}, got {numbers[np.argmax(wrong)]}")


def _check_list(values: NDArray[Any], what: str, name: str) -> None:
    if values.ndim != 1:
        raise ObservationError(f"{name}: {what} must be a list, got shape {values.shape}")


def _whole(part: Any, what: str, name: str) -> NDArray[Any]:
    numbers = np.asarray(part)
    _check_list(numbers, what, name)
    if numbers.dtype.kind not in "iu" and numbers.size:
        raise ObservationError(f"{name}: {what} must be whole numbers, got dtype {numbers.dtype}")
    return numbers
