"""Convert user data to observations."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pltf.cluster import is_collection
from pltf.data.base import Observation
from pltf.data.coo import coo_observation
from pltf.data.dense import dense_observation
from pltf.data.device_arrays import dtype_of, is_sparse, on_device, sparse_parts
from pltf.data.forms import annotated, index_names, is_annotated, is_index, long_or_array, with_index_columns
from pltf.data.labels import Labels, given_labels, known_labels, refuse_unknown
from pltf.data.numeric import brief, has_masked, numeric
from pltf.data.on_device import device_observation
from pltf.data.pattern import DensePattern, ListedPattern, Pattern
from pltf.data.sparse_parts import as_coo, check_sparse
from pltf.data.stored import StoredPattern, is_store
from pltf.data.tables import EventTable, cells_of, is_table, read_table, refuse_twice, rows_by_label, warn_of_unused
from pltf.errors import DataWarning, ObservationError, call_checked, flag, py, warn_caller


@call_checked
def observe(
    data: Any,
    mask: Any = None,
    *,
    unlisted: str = "zero",
    missing: Any = None,
    shape: Sequence[int] | None = None,
    dims: Sequence[str] | Mapping[str, str] | None = None,
    value: str | None = None,
    count: bool = False,
    labels: Mapping[str, Any] | None = None,
    duplicates: str = "error",
    keep_blanks: bool = False,
    layer: str | None = None,
    name: str = "data",
) -> Observation:
    """Convert data to an observation: validated data that record which cells were observed.

    Inputs are never modified, and dense inputs are never copied.

    **Dense data**: an array of any real or integer type from NumPy or any library that supports DLPack (PyTorch, CuPy,
    also on a GPU), or an xarray DataArray with its dims and labels. A cell is missing where ``mask`` is False, where
    the array holds NaN, or where a ``numpy.ma`` array is masked. Zero is an ordinary value.

    **Tables** (pandas, polars, pyarrow): one row per cell or per event. ``dims`` lists the columns to use as indices,
    or maps columns to index names, as in ``{"user_id": "user"}``. The entries of these columns, including numbers, are
    labels. Dates can be binned with ``"when:week"`` (minute, hour, day, week, month, quarter, year, weekday,
    hourofday). ``value`` names the column of values. Without ``value``, every row counts as one, and a warning lists
    the unused columns; ``count=True`` turns the warning off. If the value of a row is missing, so is its cell. A pandas
    Series with labels is also a table. Leading and trailing blanks are stripped from labels and column names unless
    ``keep_blanks=True``.

    **Listed cells**: ``(coords, values)`` with ``shape=``, where ``coords`` has one row of positions per value; any
    ``scipy.sparse`` matrix or array; a pydata ``sparse.COO``; a sparse PyTorch tensor; or, with ``shape=``, a table
    whose columns hold positions.

    **Wide tables**: a pandas DataFrame with one index along the rows and another along the columns, such as the result
    of ``pd.crosstab``. **AnnData and MuData**: X or ``layer``, labelled with the names of obs and var. For MuData,
    ``layer="rna/counts"`` selects a layer of a modality.

    For tables and listed cells, ``unlisted`` sets the meaning of an absent cell: ``"zero"`` (counts) or ``"missing"``
    (ratings). With ``unlisted="zero"``, ``missing`` lists missing cells, as rows of positions or as a table. A listed
    zero is an observed zero. Duplicate cells are an error unless ``duplicates="sum"``. Dense data do not accept these
    options.

    ``labels`` sets all labels of an index and their order, including labels without a row, for example
    ``{"user": all_users}``. For arrays, it requires ``dims``. ``name`` is used in error messages.

    >>> import numpy as np, pandas as pd, pltf
    >>> counts = np.array([[3, 0], [1, 7]])
    >>> pltf.observe(counts)
    <DenseObservation 2x2 int64: 4 of 4 cells observed, total 11>
    >>> pltf.observe(counts, mask=counts != 7).n_observed
    3
    >>> events = pd.DataFrame({"who": ["ann", "bob", "ann"], "when": pd.to_datetime(["2026-11-09", "2026-11-10",
    ...                        "2026-11-20"])})
    >>> seen = pltf.observe(events, dims={"who": "user", "when:week": "week"})
    >>> seen
    <CooObservation 2x2 float64: 4 of 4 cells observed, total 3>
    >>> seen.labels["week"].names()
    ['2026-11-09', '2026-11-16']
    >>> cells, values = [(0, 1, 2), (4, 0, 0)], [5, 1]
    >>> pltf.observe((cells, values), shape=(5, 5, 5), missing=[(1, 1, 1)])
    <CooObservation 5x5x5 float64: 124 of 125 cells observed, total 6>
    """
    how: dict[str, Any] = {"unlisted": unlisted, "missing": missing, "duplicates": duplicates}
    given = _given(**how, shape=shape)
    if isinstance(data, Observation):
        changed = _given(**how, shape=shape, dims=dims, labels=labels)
        if mask is not None or missing is not None:
            raise _has_own_mask(name)
        if changed:
            raise ObservationError(f"{name} is already an observation: {py:{changed[0]}} cannot be changed")
        return data
    if is_collection(data):
        raise ObservationError(
            f"{name} is a Dask collection: write a cell store with {py:pltf.prepare}, or pass it directly to fit"
        )
    if is_annotated(data):
        if value is not None or count or shape is not None:
            raise ObservationError(f"{name} is an {type(data).__name__}: select its matrix with {py:layer=}")
        matrix, dims, of_axes = annotated(data, layer, dims, name)
        return observe(matrix, mask, dims=dims, labels={**of_axes, **(labels or {})}, name=name, **how)
    if layer is not None:
        raise ObservationError(f"{py:layer} requires AnnData or MuData, but {name} is {_article(data)}")
    if shape is None and not count and value is None:
        given_table, data = data, long_or_array(data, dims, name)
        dims = None if is_xarray(data) and data is not given_table and isinstance(dims, Mapping) else dims
    elif shape is None:
        data = with_index_columns(data, dims)
    if not is_table(data) and (value is not None or flag("count", count)):
        option = "value" if value is not None else "count"
        raise ObservationError(f"{py:{option}} requires a table, but {name} is {_article(data)}")
    known = given_labels(labels, f"{name}: ")
    check_sparse(data, name)
    if is_table(data):
        if mask is not None:
            raise _masks_a_list(name)
        with rows_by_label(data):
            table = read_table(
                data, dims, value, flag("count", count), shape, known, flag("keep_blanks", keep_blanks), name
            )
            seen: Observation = _of_table(table, known, **how, name=name)
        warn_of_unused(table.unused, name)
        return seen
    if is_xarray(data):
        data, mask, dims, known = _of_xarray(data, mask, dims, known, name)
    else:
        if is_frame(mask) and known and dims is not None:
            mask = frame_as_array(mask, _names(dims, name), known, f"{py:mask}")
        if is_xarray(mask):
            mask = _mask_like(mask, dims, known, name).values
    listed = _listed(data, shape, name)
    if listed is not None:
        if mask is not None:
            raise _masks_a_list(name)
        coords, values, shape = listed
        return _named(coo_observation(coords, values, shape, **how, name=name), dims, known, name)
    if isinstance(data, Mapping):
        which = f"{name}[{next(iter(data))!r}]" if data else "one of them"
        raise ObservationError(f"{name} must be the data of one tensor, got a mapping of {len(data)}: pass {which}")
    if given:
        advice = f": use {py:mask=}" if given[0] in ("missing", "unlisted") else f" ({type(data).__name__})"
        raise ObservationError(f"{py:{given[0]}} requires listed cells, but {name} is a dense array{advice}")
    tensor = on_device(data)
    array = _as_array(data, name) if tensor is None else tensor
    if not array.ndim:
        raise ObservationError(f"{name} must be an array with at least one axis, got a single number")
    if tensor is not None:
        there = None if mask is None else _mask_there(mask, tensor, name)
        return _named(device_observation(tensor, there, name), dims, known, name)
    kept = None if mask is None else _as_mask(mask, array.shape, name)
    if isinstance(data, np.ma.MaskedArray) and data.mask is not np.ma.nomask:
        unmasked = ~np.ma.getmaskarray(data)
        kept = unmasked if kept is None else kept & unmasked
    return _named(dense_observation(array, kept, name), dims, known, name)


def _of_table(
    table: EventTable, known: Mapping[str, Labels], *, unlisted: str, missing: Any, duplicates: str, name: str
) -> Observation:
    """Convert a table; rows without a value are missing cells."""
    refuse_unknown(known, table.dims, name)
    if missing is not None and is_table(missing):
        missing = cells_of(missing, table.dims, table.labels, f"{py:missing}", ObservationError)
    absent = np.isnan(table.values) if table.values.dtype.kind == "f" else np.zeros(len(table.values), dtype=bool)
    if not table.counted:
        refuse_twice(table, absent, duplicates, name)
    if absent.any() and unlisted != "missing":
        holes = table.coords[absent]
        given = holes[:0] if missing is None else numeric(missing, f"{py:missing}", ObservationError)
        fits = given.ndim == 2 and given.shape[1] == holes.shape[1]
        missing = np.concatenate([given, holes]) if fits or not given.size else given  # a wrong shape raises below
    seen = coo_observation(
        table.coords[~absent] if absent.any() else table.coords,
        table.values[~absent] if absent.any() else table.values,
        table.shape,
        unlisted=unlisted,
        missing=missing,
        duplicates="sum" if table.counted else duplicates,
        name=name,
    )
    return replace(seen, dims=table.dims, labels=table.labels)


def observed_again(pattern: Pattern) -> Observation:
    """Rebuild an observation from its pattern."""
    if isinstance(pattern, DensePattern):
        return observe(pattern.array())
    if isinstance(pattern, StoredPattern):
        return pattern.seen
    assert isinstance(pattern, ListedPattern)
    missing = None if pattern.missing is None else pattern.missing.T
    cells = pattern.coords.T, pattern.values
    return observe(cells, shape=pattern.sizes, unlisted=pattern.unlisted, missing=missing)


def in_order(seen: Observation, indices: tuple[str, ...], name: str) -> Observation:
    """Reorder the axes of an observation to match a model."""
    if seen.dims is None or seen.dims == indices:
        return seen
    if set(seen.dims) != set(indices):
        came, want = ", ".join(seen.dims), ", ".join(indices)
        raise ObservationError(f"{name} has the indices {came}, but the model has {want}")
    return seen.transposed(tuple(seen.dims.index(index) for index in indices))


def is_xarray(data: Any) -> bool:
    """Whether data are an xarray object with dims."""
    return type(data).__module__.split(".")[0] == "xarray" and hasattr(type(data), "dims")


def is_frame(data: Any) -> bool:
    """Whether data are a pandas DataFrame or Series, that is, an array with labels."""
    return type(data).__module__.split(".")[0] == "pandas" and hasattr(type(data), "axes")


def frame_as_array(frame: Any, dims: Sequence[str], labels: Mapping[str, Labels], name: str) -> Any:
    """Convert a DataFrame or Series to a DataArray; index and columns become labels of the dims that have labels."""
    import xarray as xr

    if len(frame.axes) != len(dims):
        raise ObservationError(f"{name} must have an axis for each of {', '.join(dims)}, got a {type(frame).__name__}")
    own = {dim: axis for dim, axis in zip(dims, frame.axes, strict=True) if dim in labels}
    for dim, axis in own.items():
        if axis.nlevels > 1:
            raise ObservationError(f"{name}: labels of {dim!r} must be a list of labels, got a MultiIndex")
    return xr.DataArray(frame.to_numpy(), dims=dims, coords=own)


def _of_xarray(
    data: Any, mask: Any, dims: Any, known: Mapping[str, Labels], name: str
) -> tuple[Any, Any, tuple[str, ...], dict[str, Labels]]:
    """The array, its mask, its dims in the requested order, and its labels. A plain mask has the axes of the data."""
    if not hasattr(type(data), "coords") or hasattr(type(data), "data_vars"):
        raise ObservationError(f"{name} must be the data of one tensor, got an xarray {type(data).__name__}")
    check_sparse(data.data, name)
    data, mask, wanted = _with_index_names(data, mask, dims, name)
    if sorted(wanted) != sorted(map(str, data.dims)):
        came, want = ", ".join(map(str, data.dims)), ", ".join(wanted)
        raise ObservationError(f"{name} has the dims {came}, but {want} were expected: use the same names")
    refuse_unknown(known, wanted, name)
    labels = {
        dim: known_labels(data.indexes[dim], f"{name}: labels of {dim!r}") for dim in wanted if dim in data.indexes
    }
    if is_frame(mask):
        mask = frame_as_array(mask, data.dims, labels, f"{py:mask}")
    elif mask is not None and not is_xarray(mask):
        mask = data.copy(data=_as_mask(mask, data.shape, name))
    mask = mask if mask is None else _mask_like(mask, wanted, labels, name)
    data = data.transpose(*wanted).reset_coords(drop=True)
    for dim, all_of_them in known.items():
        if dim in labels and labels[dim] != all_of_them:
            data, mask = _put_in_order(data, mask, dim, all_of_them, name)
        labels[dim] = all_of_them
    stored = data.data
    return stored if is_listed(stored) else data.values, None if mask is None else mask.values, wanted, labels


def _with_index_names(data: Any, mask: Any, dims: Any, name: str) -> tuple[Any, Any, tuple[str, ...]]:
    """Rename the dims of data and mask to valid index names; also return these names in the requested order."""
    names = index_names(data.dims)
    if isinstance(dims, Mapping):
        unknown = [dim for dim in dims if dim not in names]
        if unknown or len(dims) != len(names):
            known, came = ", ".join(map(str, data.dims)), ", ".join(map(str, dims))
            raise ObservationError(f"{name}: {py:dims} must name each of the dims {known}, got {came}")
        names = dict(dims)
        wanted = _names(list(names.values()), name)
    elif dims is None:
        wanted = tuple(names.values())
        for dim, index in names.items():
            if not is_index(str(dim)):
                warn_caller(f"{name}: the dim {str(dim)!r} is the index {index!r} in models", DataWarning)
    else:
        wanted = _names(dims, name)
        names = {dim: str(dim) if str(dim) in wanted else index for dim, index in names.items()}
    changed = {dim: index for dim, index in names.items() if dim != index}
    if changed:
        data = data.rename(changed)
        if is_xarray(mask) and hasattr(mask, "rename"):
            mask = mask.rename({dim: index for dim, index in changed.items() if dim in mask.dims})
    return data, mask, wanted


def _mask_like(mask: Any, dims: Any, labels: Mapping[str, Labels], name: str) -> Any:
    """Align the dims and labels of an xarray mask with the data."""
    if dims is None:
        raise ObservationError(
            f"{py:mask} has the dims {', '.join(map(str, mask.dims))}, and {name} has none: pass its values"
        )
    if not hasattr(type(mask), "coords") or set(mask.dims) != set(dims):
        raise ObservationError(f"{py:mask} must have the dims of {name}, {', '.join(map(str, dims))}")
    mask = mask.transpose(*dims)
    for dim, known in labels.items():
        if dim not in mask.indexes:
            continue
        mask = mask.isel({dim: known.sources(mask.indexes[dim], f"{py:mask}: labels of {dim!r}", ObservationError)})
    return mask.drop_vars(list(mask.coords))


def _put_in_order(data: Any, mask: Any, dim: str, known: Labels, name: str) -> tuple[Any, Any]:
    """Reindex data to all labels of an index; cells without data are missing."""
    what = f"{name}: labels of {dim!r}"
    at = known.positions(data.indexes[dim], what, ObservationError)
    if np.unique(at).size < at.size:
        raise ObservationError(f"{what}: several labels are in the same {known.bin}: sum them first")
    source = np.full(len(known), -1)
    source[at] = np.arange(at.size)
    absent = source < 0
    if absent.any():
        if is_listed(data.data):
            raise ObservationError(f"{what} must be all {len(known)} of them in a sparse array, got {at.size}")
        given = np.ones(data.shape, dtype=bool) if mask is None else mask.values
        mask = data.copy(data=given).drop_vars(list(data.coords))
    data = data.isel({dim: source})  # a copy, so make it contiguous
    data = data if is_listed(data.data) else data.copy(data=np.ascontiguousarray(data.values))
    if mask is not None:
        mask = mask.isel({dim: source}) & data[dim].copy(data=~absent).drop_vars(dim, errors="ignore")
    return data, mask


def _named(seen: Observation, dims: Any, labels: Mapping[str, Labels], name: str) -> Observation:
    if dims is None:
        if labels:
            raise ObservationError(f"{name}: {py:labels} requires {py:dims=}, the names of the axes")
        return seen
    dims = _names(dims, name)
    if len(dims) != len(seen.shape) or len(set(dims)) != len(dims):
        raise ObservationError(f"{name}: {py:dims} must be {len(seen.shape)} different names, got {brief(list(dims))}")
    for index, known in labels.items():
        refuse_unknown([index], dims, name)
        size = seen.shape[list(dims).index(index)]
        if len(known) != size:
            raise ObservationError(
                f"{name}: index {index!r} has {size} positions, but {py:labels} has {len(known)} labels for it"
            )
    return replace(seen, dims=tuple(dims), labels=dict(labels))


def _names(dims: Any, name: str) -> tuple[str, ...]:
    listed = isinstance(dims, Sequence) and not isinstance(dims, str)
    if not listed or not all(isinstance(dim, str) for dim in dims):
        raise ObservationError(f"{name}: {py:dims} must be a list of names such as ('i', 'j'), got {brief(dims)}")
    return tuple(dims)


def _masks_a_list(name: str) -> ObservationError:
    advice = f"use {py:missing=} or {py:unlisted=}"
    return ObservationError(f"{py:mask} requires a dense array, but {name} lists cells: {advice}")


def _article(data: Any) -> str:
    return "a list of cells" if is_listed(data) else f"an array ({type(data).__name__})"


def _given(unlisted: Any, duplicates: Any, **others: Any) -> list[str]:
    """The options for listed cells that differ from their defaults in observe."""
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
    """Whether data list their cells instead of storing all of them."""
    kind = type(data).__module__.split(".")[0]
    return isinstance(data, tuple) or sparse.issparse(data) or kind == "sparse" or is_table(data) or is_sparse(data)


def has_names(data: Any) -> bool:
    """Whether data have named axes or labelled cells, so that their shape is only known after reading."""
    return is_table(data) or is_xarray(data) or is_annotated(data)


def _listed(data: Any, shape: Sequence[int] | None, name: str) -> tuple[Any, Any, Sequence[int] | None] | None:
    """Rows of positions, values and shape of data that list cells; None for dense data."""
    if not is_listed(data):
        return None
    if isinstance(data, tuple):
        if len(data) != 2:
            raise ObservationError(f"{name}: a tuple must be (coords, values), got {len(data)} elements")
        return data[0], data[1], shape
    if shape is not None:
        raise ObservationError(f"{name} already has a shape, {data.shape}: {py:shape} must be None")
    if is_sparse(data):
        return sparse_parts(data)
    coo = as_coo(data, name)
    if sparse.issparse(data):
        return np.stack(coo.coords, axis=1), coo.data, coo.shape
    if coo.fill_value != 0:
        raise ObservationError(f"{name}: the fill value of a sparse array must be 0, got {coo.fill_value}")
    return coo.coords.T, coo.data, coo.shape


def _as_array(data: Any, name: str) -> NDArray[Any]:
    if isinstance(data, (str, os.PathLike)):
        advice = "read the file first, for example with pandas.read_csv"
        if is_store(os.fspath(data)):
            raise ObservationError(
                f"{name}: expected an array or a table, got the path of a cell store: open it with pltf.open"
            )
        raise ObservationError(f"{name}: expected an array or a table, got the text {brief(str(data))}: {advice}")
    if isinstance(data, np.ma.MaskedArray):
        return numeric(np.ma.getdata(data), name, ObservationError)
    if has_masked(data):
        raise ObservationError(f"{name}: combine a list of masked arrays into one array with numpy.ma.stack")
    return numeric(data, name, ObservationError)


def check_mask(mask: Any, shape: tuple[int, ...], name: str, data: Any) -> None:
    """Check the shape of a mask, and that the data accept one."""
    if isinstance(data, Observation):
        raise _has_own_mask(name)
    _check_shape(numeric(mask, f"{py:mask}", ObservationError).shape, shape, name)


def _has_own_mask(name: str) -> ObservationError:
    return ObservationError(
        f"{name} is already an observation with its own missing cells: {py:mask} and {py:missing} must be None"
    )


def _check_shape(came: tuple[int, ...], shape: tuple[int, ...], name: str) -> None:
    if came != shape:
        raise ObservationError(f"{py:mask} must have the shape of {name}, {shape}; got {came}")


def _as_mask(mask: Any, shape: tuple[int, ...], name: str) -> NDArray[np.bool_]:
    check_mask(mask, shape, name, None)
    known = numeric(mask, f"{py:mask}", ObservationError)
    if known.dtype.kind == "b":
        return known
    if ((known == 0) | (known == 1)).all():
        return known.astype(bool)
    raise _no_mask(known.dtype)


def _mask_there(mask: Any, tensor: Any, name: str) -> Any:
    """Copy a mask to the device of the data, if it is not there."""
    torch, shape, known = importlib.import_module("torch"), tuple(tensor.shape), on_device(mask)
    if known is None:
        return torch.tensor(_as_mask(mask, shape, name), device=tensor.device)
    _check_shape(tuple(known.shape), shape, name)
    if dtype_of(known) != "bool" and not bool(((known == 0) | (known == 1)).all()):
        raise _no_mask(dtype_of(known))
    return known.to(device=tensor.device, dtype=torch.bool)


def _no_mask(dtype: object) -> ObservationError:
    return ObservationError(f"{py:mask} must be boolean (True = observed), got {dtype} values other than 0 and 1")
