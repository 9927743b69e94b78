"""Labelled arrays in other forms: wide tables, AnnData, MuData, and dimensions with arbitrary names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pltf.data.labels import split_bin
from pltf.errors import DataWarning, ObservationError, py, warn_caller

if TYPE_CHECKING:
    import pandas as pd

_OBS_VAR = ("obs", "var")


# -- wide tables --------------------------------------------------------------------------------


def long_or_array(table: Any, dims: Any, name: str) -> Any:
    """Convert a wide pandas table to a DataArray, and row labels that are indices to columns.

    A table is wide if it holds numbers, its columns are not the indices, and its rows or columns have names or labels.

    >>> import pandas as pd
    >>> visits = pd.crosstab(pd.Series(["ann", "bob"], name="user"), pd.Series(["bar", "gym"], name="place"))
    >>> long_or_array(visits, ("user", "place"), "data").shape
    (2, 2)
    """
    if type(table).__module__.split(".")[0] != "pandas" or not hasattr(table, "columns"):
        return table
    levels = [*table.index.names, *table.columns.names]
    if dims is None:
        named = all(isinstance(level, str) for level in levels) and len(set(levels)) == len(levels) > 1
        dims = levels if named and not set(levels) & set(table.columns) else None
    if isinstance(dims, str) or not isinstance(dims, (Sequence, Mapping)) or not len(dims):
        return table
    wanted = [one if one in levels else split_bin(one, name)[0] for one in dims if isinstance(one, str)]
    if not _is_wide(table, wanted):
        return with_index_columns(table, dims)
    names = _axis_names(levels, wanted, name)
    binned = [one for one, plain in zip(dims, wanted, strict=True) if one != plain]
    renamed = isinstance(dims, Mapping) and any(one != index for one, index in dims.items())
    if binned or renamed or len(names) > 2:
        named_table = table.set_axis(table.index.set_names(names[: table.index.nlevels]), axis=0)
        named_table = named_table.set_axis(table.columns.set_names(names[table.index.nlevels :]), axis=1)
        return named_table.stack(list(range(table.columns.nlevels)), future_stack=True)
    return _data_array(table, names)


def with_index_columns(table: Any, dims: Any) -> Any:
    """Add the row labels of a pandas table as columns, if they are indices that its columns lack.

    >>> import pandas as pd
    >>> visits = pd.DataFrame({"place": ["bar"]}, index=pd.Index(["ann"], name="user"))
    >>> list(with_index_columns(visits, ["user", "place"]).columns)
    ['user', 'place']
    """
    if type(table).__module__.split(".")[0] != "pandas" or not hasattr(table, "columns"):
        return table
    wanted = {
        part
        for one in (dims if isinstance(dims, (Sequence, Mapping)) else ())
        if isinstance(one, str)
        for part in (one, one.rpartition(":")[0])
    }
    rows = [level for level in table.index.names if level in wanted and level not in table.columns]
    return table.reset_index(level=rows) if rows else table


def _is_wide(table: pd.DataFrame, wanted: Sequence[str]) -> bool:
    """Whether a table is wide, with values in all columns."""
    levels = [*table.index.names, *table.columns.names]
    if len(wanted) != len(levels) or any(one in table.columns for one in wanted):
        return False
    if not all(dtype.kind in "biuf" for dtype in table.dtypes):
        return False
    plain_rows = getattr(table.index, "start", None) is not None and table.index.name is None
    plain_columns = all(isinstance(one, str) for one in table.columns) and table.columns.nlevels == 1
    return not (plain_rows and plain_columns and table.columns.names == [None])  # otherwise it may be a long table


def _axis_names(levels: Sequence[Any], wanted: Sequence[str], name: str) -> list[str]:
    """The indices along the rows and columns, matched by name, or by order where names are missing."""
    if set(levels) == set(wanted):
        return [str(level) for level in levels]
    if not any(level in wanted for level in levels):
        return list(wanted)
    rest = [one for one in wanted if one not in levels]
    unnamed = [level for level in levels if level not in wanted]
    if len(rest) == 1 and unnamed == [None]:
        return [level if level in wanted else rest[0] for level in levels]
    found = ", ".join(str(level) for level in levels)
    raise ObservationError(f"{name}: the rows and columns of a wide table must be {', '.join(wanted)}, got {found}")


def _data_array(table: pd.DataFrame, names: Sequence[str]) -> Any:
    import numpy as np
    import xarray as xr

    plain = all(isinstance(dtype, np.dtype) for dtype in table.dtypes)
    values = table.to_numpy() if plain else table.to_numpy(dtype=np.float64, na_value=np.nan)
    return xr.DataArray(values, dims=names, coords={names[0]: list(table.index), names[1]: list(table.columns)})


# -- AnnData and MuData -------------------------------------------------------------------------


def is_annotated(data: Any) -> bool:
    """Whether data are an AnnData or MuData object."""
    return type(data).__name__ in ("AnnData", "MuData") and hasattr(type(data), "obs_names")


def warn_of_layers(name: str, layers: Sequence[str], option: str) -> None:
    """Say that X is used although there are layers: often X has normalized values, and a layer the counts."""
    if layers:
        which = f"the layer{'s' * (len(layers) > 1)} {', '.join(layers)}"
        warn_caller(f"{name}: X is used, not {which}: select with {option}", DataWarning)


def annotated(data: Any, layer: str | None, dims: Any, name: str) -> tuple[Any, tuple[str, ...], dict[str, Any]]:
    """The matrix of an AnnData or of a modality of a MuData, the names of its axes, and their labels."""
    if hasattr(data, "mod"):
        modality, _, layer = (layer or "").partition("/")
        if modality not in data.mod:
            came = f"got {modality!r}" if modality else f"select one with {py:layer=}"
            raise ObservationError(f"{name} has the modalities {', '.join(data.mod)}: {came}")
        data = data.mod[modality]
    if layer and layer != "X" and layer not in data.layers:
        known = ", ".join(["X", *data.layers])
        raise ObservationError(f"{name} has the layers {known}: got {layer!r} for {py:layer}")
    matrix = data.layers[layer] if layer and layer != "X" else data.X
    if matrix is None:
        raise ObservationError(f"{name} has no X; its layers are {', '.join(data.layers)}: select one with {py:layer=}")
    matrix = matrix.to_memory() if hasattr(matrix, "to_memory") else matrix
    held = {axis: list(getattr(data, f"{axis}_names")) for axis in _OBS_VAR}
    for axis, labels in held.items():
        if len(set(labels)) < len(labels):
            advice = f"make them unique with .{axis}_names_make_unique()"
            raise ObservationError(f"{name}: duplicate names of {axis}: {advice}")
    names = dims if isinstance(dims, Mapping) else dict(zip(_OBS_VAR, dims or _OBS_VAR, strict=False))
    if set(names) != set(_OBS_VAR) or (not isinstance(dims, Mapping) and dims is not None and len(dims) != 2):
        raise ObservationError(f"{name} has the indices obs and var: {py:dims} must be two names")
    if not layer:
        warn_of_layers(name, list(data.layers), f"{py:layer=}")
    if not isinstance(dims, Mapping) and tuple(dims or ()) == ("var", "obs"):
        return matrix.T, ("var", "obs"), held
    return matrix, tuple(names[axis] for axis in _OBS_VAR), {names[axis]: held[axis] for axis in _OBS_VAR}


# -- dimensions with any name -------------------------------------------------------------------


def index_names(dims: Sequence[Any]) -> dict[Any, str]:
    """A valid index name for each dimension; valid names are unchanged.

    >>> index_names(["time", "grid-x", "2nd", "grid x"])
    {'time': 'time', 'grid-x': 'grid_x', '2nd': 'i2nd', 'grid x': 'grid_x_2'}
    """
    found: dict[Any, str] = {dim: str(dim) for dim in dims if is_index(str(dim))}
    for dim in dims:
        if dim in found:
            continue
        plain = re.sub(r"\W+", "_", str(dim)).strip("_") or "index"
        plain = plain if is_index(plain) else f"i{plain}"
        number, name = 1, plain
        while name in found.values():
            number += 1
            name = f"{plain}_{number}"
        found[dim] = name
    return {dim: found[dim] for dim in dims}


def is_index(name: str) -> bool:
    """Whether a name is a valid index name of a model."""
    return name.isidentifier()


def letters(modes: int) -> tuple[str, ...]:
    """Names for unnamed indices.

    >>> letters(3)
    ('i', 'j', 'k')
    """
    return tuple("ijklmnop"[:modes] if modes <= 8 else (f"i{n}" for n in range(modes)))
