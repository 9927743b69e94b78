"""Turning what people have into observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pltf.data.base import Observation
from pltf.data.coo import coo_observation
from pltf.data.dense import dense_observation
from pltf.data.values import brief, has_masked, numeric
from pltf.errors import ObservationError

_LAST = 2**63 - 1  # of all sizes


def observe(
    data: Any,
    mask: Any = None,
    *,
    unlisted: str = "zero",
    missing: Any = None,
    shape: Sequence[int] | None = None,
    dims: Sequence[str] | None = None,
    duplicates: str = "error",
    name: str = "data",
) -> Observation:
    """Check data once and say which of its cells were observed. Inputs are never changed, dense ones never copied.

    Dense: an array of any real or integer type. A cell is missing where ``mask`` is False, where the array holds
    NaN, and where a ``numpy.ma`` array is masked; zero is a value.

    Listed cells: ``(coords, values)`` with a row of positions for each value and ``shape=``, any ``scipy.sparse``
    matrix or array, a pydata ``sparse.COO``, or a pandas table with a column of positions for each of ``dims`` and
    one more column for the values. ``unlisted`` says what an absent cell is: ``"zero"`` (counts) or ``"missing"``
    (ratings); ``missing`` lists holes in the first kind, a row of positions each. A listed zero is an observed zero.
    A cell listed twice is an error, unless ``duplicates="sum"``. All of these are refused with dense data.

    ``name`` stands in the error messages.

    >>> import numpy as np, pltf
    >>> counts = np.array([[3, 0], [1, 7]])
    >>> pltf.observe(counts)
    <DenseObservation 2x2 int64: 4 of 4 cells observed, total 11>
    >>> pltf.observe(counts, mask=counts != 7).n_observed
    3
    >>> cells, values = [(0, 1, 2), (4, 0, 0)], [5, 1]
    >>> pltf.observe((cells, values), shape=(5, 5, 5), missing=[(1, 1, 1)])
    <CooObservation 5x5x5 float64: 124 of 125 cells observed, total 6>
    """
    given = _given(unlisted=unlisted, missing=missing, shape=shape, dims=dims, duplicates=duplicates)
    if isinstance(data, Observation):
        if mask is not None or missing is not None:
            raise ObservationError(f"{name} is an observation and has its holes already: mask and missing must be None")
        if given:
            raise ObservationError(f"{name} is an observation already: {given[0]} cannot be changed")
        return data
    listed = _listed(data, shape, dims, name)
    if listed is not None:
        if mask is not None:
            raise ObservationError(f"mask goes with a dense array, but {name} lists cells: use missing= or unlisted=")
        coords, values, shape = listed
        return coo_observation(
            coords, values, shape, unlisted=unlisted, missing=missing, duplicates=duplicates, name=name
        )
    if isinstance(data, Mapping):
        raise ObservationError(f"{name} must be the data of one tensor, got a mapping of {len(data)}")
    if given:
        advice = ": use mask=" if given[0] in ("missing", "unlisted") else f" ({type(data).__name__})"
        raise ObservationError(f"{given[0]} goes with listed cells, but {name} is a dense array{advice}")
    array = _as_array(data, name)
    if not array.ndim:
        raise ObservationError(f"{name} must be an array with at least one axis, got a single number")
    known = None if mask is None else _as_mask(mask, array.shape, name)
    if isinstance(data, np.ma.MaskedArray) and data.mask is not np.ma.nomask:
        unmasked = ~np.ma.getmaskarray(data)
        known = unmasked if known is None else known & unmasked
    return dense_observation(array, known, name)


def _given(unlisted: Any, duplicates: Any, **others: Any) -> list[str]:
    """The options of listed cells that are not as they stand in the signature of observe."""
    words = {"unlisted": (unlisted, "zero"), "duplicates": (duplicates, "error")}
    changed = [option for option, (word, usual) in words.items() if not isinstance(word, str) or word != usual]
    return changed + [option for option, value in others.items() if value is not None]


def shape_and_dtype(data: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of an observation or a dense array, without reading a value."""
    if isinstance(data, Observation):
        return data.shape, np.dtype(data.dtype_name)
    values = _as_array(data, name)
    return values.shape, values.dtype


def is_listed(data: Any) -> bool:
    """Whether data list their cells, rather than holding all of them."""
    kind = type(data).__module__.split(".")[0]
    return isinstance(data, tuple) or sparse.issparse(data) or kind in ("sparse", "pandas")


def _listed(
    data: Any, shape: Sequence[int] | None, dims: Sequence[str] | None, name: str
) -> tuple[Any, Any, Sequence[int] | None] | None:
    """Rows of positions, values and shape of data that list cells; None for dense data."""
    if not is_listed(data):
        return None
    if isinstance(data, tuple):
        if len(data) != 2:
            raise ObservationError(f"{name}: a tuple must be (coords, values), got {len(data)} things")
        return data[0], data[1], shape
    if shape is not None and not type(data).__module__.startswith("pandas"):
        raise ObservationError(f"{name} has a shape of its own, {data.shape}: shape must be None")
    if sparse.issparse(data):
        coo = data.tocoo()
        return np.stack(coo.coords, axis=1), coo.data, coo.shape
    if type(data).__module__.startswith("pandas"):
        return _table(data, shape, dims, name)
    data = data.asformat("coo")
    if data.fill_value != 0:
        raise ObservationError(f"{name}: a sparse array must be filled with 0, got fill value {data.fill_value}")
    return data.coords.T, data.data, data.shape


def _table(
    table: Any, shape: Sequence[int] | None, dims: Sequence[str] | None, name: str
) -> tuple[Any, Any, Sequence[int]]:
    """A pandas table with a column of positions for each index and one of values."""
    if not hasattr(table, "columns"):
        raise ObservationError(f"{name}: expected a table with columns, got a pandas {type(table).__name__}")
    columns = list(table.columns)
    if dims is None:
        raise ObservationError(f"{name}: a table needs dims=, the columns that hold positions")
    dims = dims.tolist() if hasattr(dims, "tolist") else dims  # table.columns[:2] is as good as a list
    if not isinstance(dims, Sequence) or isinstance(dims, str) or not dims:
        raise ObservationError(f"{name}: dims must be a list of columns such as ('i', 'j'), got {brief(dims)}")
    twice = [index for place, index in enumerate(dims) if index in dims[:place]]
    if twice:
        raise ObservationError(f"{name}: dims must name each column once, got {twice[0]!r} twice")
    absent = [index for index in dims if index not in columns]
    if absent:
        raise ObservationError(
            f"{name}: the table must have a column {absent[0]!r}; it has {', '.join(map(str, columns))}"
        )
    rest = [column for column in columns if column not in dims]
    if len(rest) != 1:
        found = ", ".join(map(str, rest)) or "none"
        raise ObservationError(
            f"{name}: besides {', '.join(map(str, dims))} the table must have one column of values, got {found}"
        )
    rows = np.stack([_column(table, index, name) for index in dims], axis=1)
    if shape is None:
        if not len(rows):
            raise ObservationError(f"{name}: an empty table needs shape=")
        shape = tuple(max(int(last), 0) + 1 for last in rows.max(axis=0))
    return rows, table[rest[0]].to_numpy(), shape


def _column(table: Any, index: str, name: str) -> NDArray[Any]:
    """One column of positions."""
    column = table[index]
    if column.ndim != 1:
        raise ObservationError(f"{name}: the table has several columns {index!r}")
    if str(column.dtype).startswith(("Int", "UInt")) and not column.isna().any():  # pandas' own integers
        column = column.astype("int64")
    positions: NDArray[Any] = column.to_numpy()
    if positions.dtype.kind not in "iu":
        raise ObservationError(f"{name}: column {index!r} must hold whole numbers, got dtype {positions.dtype}")
    if positions.size and positions.max() >= _LAST:
        raise ObservationError(f"{name}: column {index!r} must hold positions below 2**63 - 1, got {positions.max()}")
    return positions.astype(np.int64, copy=False)


def _as_array(data: Any, name: str) -> NDArray[Any]:
    if isinstance(data, np.ma.MaskedArray):
        return numeric(np.ma.getdata(data), name, ObservationError)
    if has_masked(data):
        raise ObservationError(f"{name}: masked arrays in a list must be made one array, with numpy.ma.stack")
    return numeric(data, name, ObservationError)


def check_mask(mask: Any, shape: tuple[int, ...], name: str, data: Any) -> None:
    """Refuse a mask that cannot be one, by its shape and the kind of data it comes with."""
    if isinstance(data, Observation):
        raise ObservationError(f"{name} is an observation and has its holes already: mask and missing must be None")
    known = numeric(mask, "mask", ObservationError)
    if known.shape != shape:
        raise ObservationError(f"mask must have the shape of {name}, {shape}; got {known.shape}")


def _as_mask(mask: Any, shape: tuple[int, ...], name: str) -> NDArray[np.bool_]:
    check_mask(mask, shape, name, None)
    known = np.asarray(mask)
    if known.dtype.kind == "b":
        return known
    if ((known == 0) | (known == 1)).all():
        return known.astype(bool)
    raise ObservationError(f"mask must be boolean (True = observed), got {known.dtype} values other than 0 and 1")
