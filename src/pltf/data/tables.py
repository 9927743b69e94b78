"""Long tables: one row per cell or event, one column per index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pltf.data.labels import Labels, clean, labels_of, named_cell, shown, split_bin
from pltf.data.numeric import EXACT, brief, find_bad
from pltf.errors import DataWarning, ObservationError, PltfError, naming_rows, py, py_only, warn_caller
from pltf.hints import absent_column

if TYPE_CHECKING:
    import pandas as pd

_LAST = 2**63 - 1  # upper bound of sizes
_NUMBERS = (int, float, np.integer, np.floating, np.bool_)
_MODULES = ("pandas", "polars", "pyarrow")


class Key(NamedTuple):
    """A column of a table, the bin of its dates, and the name of its index."""

    column: Any
    bin: str | None
    dim: str


class EventTable(NamedTuple):
    """The cells of a table: rows of positions and their values, NaN where missing."""

    coords: NDArray[Any]
    values: NDArray[Any]
    shape: Sequence[int]
    dims: tuple[str, ...]
    labels: Mapping[str, Labels]
    counted: bool  # every row counts as one
    unused: tuple[Any, ...] = ()  # columns that could be the values


def is_table(data: Any) -> bool:
    """Whether data are a pandas, polars or pyarrow table, or a pandas Series with labels.

    >>> import pandas as pd
    >>> is_table(pd.DataFrame({"i": [0]})), is_table([[0]])
    (True, False)
    """
    kind, module = type(data), type(data).__module__.split(".")[0]
    parts = ("columns", "index", "levels") if module == "pandas" else ("columns",)
    return module in _MODULES and any(hasattr(kind, part) for part in parts)


def read_table(
    table: Any,
    dims: Any,
    value: Any,
    count: bool,
    shape: Sequence[int] | None,
    labels: Mapping[str, Labels],
    keep_blanks: bool,
    name: str,
) -> EventTable:
    """Read the cells of a table. With ``shape``, its columns hold positions, otherwise labels."""
    _refuse_lazy(table, name)
    if not hasattr(table, "columns"):
        table, dims, value = _from_series(table, dims, value, count, name)
    columns = column_names(table)
    keys = keys_of(dims, columns, name)
    chosen = value_column(columns, keys, value, count, name)
    used = [key.column for key in keys]
    unused = () if count or chosen is not None else tuple(one for one in columns if one not in used)
    if shape is not None:
        if labels:
            raise ObservationError(
                f"{name}: columns hold positions with {py:shape=} and labels with {py:labels=}: give only one"
            )
        coords, sizes, known = _positions(table, keys, name), shape, dict[str, Labels]()
    else:
        coords, known = _labelled(table, keys, labels, keep_blanks, name)
        sizes = tuple(len(known[key.dim]) for key in keys)
        if not all(sizes):
            raise ObservationError(
                f"{name}: an empty table requires {py:labels=} with all labels of each index, or {py:shape=}"
            )
    values = np.ones(len(coords), dtype=np.int64) if chosen is None else _numbers(table, chosen, name)
    return EventTable(coords, values, sizes, tuple(key.dim for key in keys), known, chosen is None, unused)


@contextmanager
def rows_by_label(table: Any) -> Iterator[None]:
    """In errors, name rows of a pandas table or Series by their labels, if these are not positions."""
    index: Any = getattr(table, "index", None)
    if type(table).__module__.split(".")[0] != "pandas" or _counts_rows(index):
        yield
        return
    with naming_rows(lambda row: f"row {shown(index[row]) if index.is_unique else row}"):
        yield


def _counts_rows(index: Any) -> bool:
    """Whether row labels equal positions."""
    return getattr(index, "start", None) == 0 and getattr(index, "step", None) == 1


def refuse_twice(table: EventTable, absent: NDArray[np.bool_], duplicates: str, name: str) -> None:
    """Raise an error if rows repeat a cell, or if a cell has a value in one row and none in another."""
    import pandas as pd

    cells = pd.DataFrame(table.coords)
    if duplicates == "sum":
        if not absent.any():
            return
        cells = cells.assign(absent=absent).drop_duplicates().drop(columns="absent")
    again = np.asarray(cells.duplicated())
    if not again.any():
        return
    position = table.coords[cells.index[int(np.argmax(again))]]
    first, second = np.flatnonzero((table.coords == position).all(axis=1))[:2]
    cell = named_cell(position, table.dims, table.labels)
    advice = (
        "one of them has no value"
        if duplicates == "sum"
        else f"pass {py:duplicates='sum'}{py_only: to observe} to add them up"
    )
    raise ObservationError(f"{name}: cell {cell} is listed more than once, in {py:rows {first} and {second}}; {advice}")


def cells_of(
    table: Any, indices: Sequence[str], labels: Mapping[str, Labels], what: str, error: type[PltfError]
) -> NDArray[Any]:
    """Positions (cells, modes) of the cells in a table; columns hold labels where the index has labels."""
    _refuse_lazy(table, what)
    if not hasattr(table, "columns"):
        levels = getattr(table, "index", table)  # of a Series, or a MultiIndex alone
        if levels is not table and table.dtype.name in ("bool", "boolean"):
            levels = levels[table.to_numpy(dtype=bool, na_value=False)]  # like a boolean array: where it is True
        frame = _levels(levels, what)
        nameless = all(level is None for level in levels.names) and frame.shape[1] == len(indices)
        table = frame.set_axis(list(indices), axis=1) if nameless else frame
    names = column_names(table)
    absent = [index for index in indices if index not in names]
    if absent:
        raise error(f"{what}: a table must have a column for each of {', '.join(indices)}; {absent[0]} is absent")
    columns = [column(table, index, what) for index in indices]
    found = [
        labels[index].positions(one, f"{what}: column {index!r}", error)
        if index in labels
        else _whole(one, f"{what}: column {index!r}", error)
        for index, one in zip(indices, columns, strict=True)
    ]
    return np.stack(found, axis=1)


def column_names(table: Any) -> list[Any]:
    """The names of the columns of any kind of table, or of the levels of a Series."""
    if not hasattr(table, "columns"):
        return list(getattr(table, "index", table).names)
    return list(table.column_names if hasattr(table, "column_names") else table.columns)


def column(table: Any, name: Any, what: str) -> pd.Series:
    """A column of any kind of table as a pandas Series."""
    import pandas as pd

    if column_names(table).count(name) > 1:
        raise ObservationError(f"{what}: the table has several columns {name!r}")
    if isinstance(table, pd.DataFrame):
        return table[name]
    if hasattr(table, "column_names"):  # pyarrow
        return pd.Series(table.column(name).to_pandas(integer_object_nulls=True))
    return _of_polars(table.get_column(name))


def _of_polars(found: Any) -> pd.Series:
    """Convert a polars column: integers with missing values stay integers, and dates keep their time zone."""
    import pandas as pd

    kind = str(found.dtype)
    if kind.startswith("Enum"):
        return pd.Series(pd.Categorical(found.to_list(), categories=found.dtype.categories.to_list()))
    zone = getattr(found.dtype, "time_zone", None)
    if zone is not None:
        return (
            pd.Series(found.dt.convert_time_zone("UTC").dt.replace_time_zone(None).to_numpy())
            .dt.tz_localize("UTC")
            .dt.tz_convert(zone)
        )
    gaps = found.dtype.is_integer() and found.null_count() > 0
    if gaps or kind in ("Categorical", "String", "Utf8") or "128" in kind or found.dtype.is_nested():
        return pd.Series(found.to_list(), dtype=object)
    return pd.Series(found.to_numpy())


def _refuse_lazy(table: Any, what: str) -> None:
    if hasattr(table, "collect_schema") and hasattr(table, "collect"):
        raise ObservationError(f"{what}: a lazy table must be collected first")


def _levels(index: pd.Index, what: str) -> pd.DataFrame:
    """The levels of a Series as columns."""
    named = [level for level in index.names if level is not None]
    twice = [level for place, level in enumerate(named) if level in named[:place]]
    if twice:
        raise ObservationError(f"{what}: several levels of the Series are named {twice[0]!r}")
    return index.to_frame(index=False)


# -- which columns ------------------------------------------------------------------------------


def _from_series(series: Any, dims: Any, value: Any, count: bool, name: str) -> tuple[Any, Any, Any]:
    """Convert a Series with labels to a table; unnamed levels get the names in ``dims``, in order."""
    if not hasattr(series, "to_frame") or not hasattr(series, "index"):
        raise ObservationError(f"{name}: expected a table or a Series, got a pandas {type(series).__name__}")
    frame = _levels(series.index, name)
    if all(level is None for level in series.index.names):
        names = list(dims) if isinstance(dims, (list, tuple)) else []
        if len(names) != frame.shape[1]:
            raise ObservationError(
                f"{name}: the levels of the Series have no names: give {py:dims=} with one name per level"
            )
        frame = frame.set_axis([split_bin(one, name)[0] for one in names], axis=1)
    keys = list(frame.columns)
    called = "value" if series.name is None or series.name in keys else series.name
    called = called if called not in keys else ("value",)
    frame[called] = series.to_numpy() if series.dtype.kind in "biuf" else series.array
    return frame, keys if dims is None else dims, called if value is None and not count else value


def keys_of(dims: Any, columns: list[Any], name: str) -> list[Key]:
    """The columns of the indices."""
    if dims is None:
        advice = f"{py_only:, as in pltf.observe(table, dims=['user', 'place'])}"
        raise ObservationError(f"{name}: a table requires {py:dims=}, the columns to use as indices{advice}")
    dims = dims.tolist() if hasattr(dims, "tolist") else dims  # for example table.columns[:2]
    if isinstance(dims, str) or not isinstance(dims, (Sequence, Mapping)) or not dims:
        raise ObservationError(f"{name}: {py:dims} must be a list of columns such as ('i', 'j'), got {brief(dims)}")
    keys = []
    for one in dims:
        # The name of a column may contain a colon.
        given, bin = (one, None) if one in columns else split_bin(one, f"{name}: {py:dims}")
        keys.append(Key(_as_written(given, columns), bin, dims[one] if isinstance(dims, Mapping) else given))
    for place, key in enumerate(keys):
        if key.column not in columns:
            known = ", ".join(map(str, columns))
            example = {"user_id": "user"}
            advice = f" (to map columns to indices, use for example {py:dims={example}})"
            near = absent_column(key.column, columns).removeprefix("; ")
            if near:
                advice = f" ({near})"
            if not near and not any(one.column in columns for one in keys):
                advice = f"{py_only: ({_of_no_column(keys, columns)})}"
            raise ObservationError(f"{name}: the table must have a column {key.column!r}; it has {known}{advice}")
        if key.dim in [other.dim for other in keys[:place]]:
            text = f"{name}: {py:dims} must name each column once, got {key.dim!r} twice"
            if key.bin is None:
                raise ObservationError(text)
            raise ObservationError(f"{text}; name the bins, for example {{'{key.column}:{key.bin}': '{key.bin}', ...}}")
        if not isinstance(key.dim, str):
            raise ObservationError(f"{name}: {py:dims} must be names of indices, got {key.dim!r}")
    return keys


def _of_no_column(keys: Sequence[Key], columns: Sequence[Any]) -> str:
    """Advice if a table has no column of any index."""
    indices = tuple(map(str, columns[: len(keys)]))
    if "".join(str(key.column) for key in keys) not in ("ij", "ijk") or not all(map(str.isidentifier, indices)):
        return ".stack() makes a wide table long, and .reset_index() turns an index into columns"
    kind = "nmf" if len(keys) == 2 else "cp"
    return f"name the indices as the columns, for example pltf.{kind}({indices}, rank=2)"


def _as_written(given: Any, columns: list[Any]) -> Any:
    """The name of a column as written in the table, possibly with blanks around it."""
    if given in columns or not isinstance(given, str):
        return given
    alike = [one for one in columns if isinstance(one, str) and one.strip() == given]
    return alike[0] if len(alike) == 1 else given


def value_column(columns: list[Any], keys: list[Key], value: Any, count: bool, name: str) -> Any:
    """The column of values, or None if every row counts as one. It is never guessed."""
    if value is None:
        return None
    value = _as_written(value, columns)
    if count:
        raise ObservationError(
            f"{name}: {py:value={value!r}} names a column, but {py:count=True} counts rows: give only one"
        )
    if value not in columns:
        raise ObservationError(f"{name}: {py:value} must be a column of the table, got {value!r}")
    if any(key.column == value and not key.bin for key in keys):
        raise ObservationError(f"{name}: column {value!r} cannot hold both labels and values")
    return value


def warn_of_unused(columns: Sequence[Any], name: str, advice: str = "") -> None:
    """Say which columns were not used when rows were counted because no column of values was named."""
    if not columns:
        return
    few = ", ".join(map(str, columns[:5])) + (f" and {len(columns) - 5} more" if len(columns) > 5 else "")
    told = f"the column {few} is not used" if len(columns) == 1 else f"the columns {few} are not used"
    one = "it" if len(columns) == 1 else "one"
    advice = advice or f"name {one} with {py:value=}{py_only: in pltf.observe}, or pass {py:count=True}"
    warn_caller(f"{name}: every row counts one, and {told}: {advice}", DataWarning)


# -- what they hold -----------------------------------------------------------------------------


def _labelled(
    table: Any, keys: list[Key], given: Mapping[str, Labels], keep_blanks: bool, name: str
) -> tuple[NDArray[np.intp], dict[str, Labels]]:
    """Positions of the rows, and the labels, either given or found in the table."""
    known, positions = {}, []
    for key in keys:
        held, what = column(table, key.column, name), f"{name}: column {key.column!r}"
        if key.dim in given:
            labels = given[key.dim]
            labels = replace(labels, bin=key.bin) if key.bin else labels
            at = labels.positions(held, what, ObservationError)
        else:
            labels, at = labels_of(held, what, key.bin, keep_blanks=keep_blanks)
        known[key.dim] = labels
        positions.append(at)
    return np.stack(positions, axis=1), known


def _positions(table: Any, keys: list[Key], name: str) -> NDArray[np.int64]:
    columns = []
    for key in keys:
        what = f"{name}: column {key.column!r}"
        if key.bin is not None:
            raise ObservationError(
                f"{what} holds positions because {py:shape=} is given: it cannot be binned by {key.bin}"
            )
        positions = _whole(column(table, key.column, name), what, ObservationError)
        if positions.size and positions.max() >= _LAST:
            raise ObservationError(f"{what} must hold positions below 2**63 - 1, got {positions.max()}")
        columns.append(positions)
    return np.stack(columns, axis=1)


def _whole(held: pd.Series, what: str, error: type[PltfError]) -> NDArray[np.int64]:
    """A column of positions."""
    positions = clean(held, what, error)
    if len(positions) and positions.dtype.kind not in "iu":
        kind = "words" if positions.dtype == object else f"dtype {positions.dtype}"
        raise error(f"{what} must hold whole numbers, got {kind}")
    return np.asarray(positions, dtype=np.int64)


def _numbers(table: Any, chosen: Any, name: str) -> NDArray[Any]:
    """A column of values, NaN where missing."""
    held = column(table, chosen, name)
    what = f"{name}: column {chosen!r}"
    absent = np.asarray(held.isna())
    present: NDArray[Any] = np.asarray(held[~absent])
    if present.dtype == object:  # large or missing integers, mixed types, or words
        words = {type(one).__name__ for one in present if not isinstance(one, _NUMBERS)}
        if words:
            raise ObservationError(f"{what} must hold numbers, got {' and '.join(sorted(words)[:3])}")
        whole = [one for one in present if isinstance(one, (int, np.integer))]
        _refuse_rounding(max(whole, default=0), what)
        present = present.astype(np.float64)
    if present.dtype.kind not in "biuf":
        raise ObservationError(f"{what} must hold numbers, got dtype {held.dtype}")
    bad = find_bad(present)
    if bad is not None:
        row = int(np.flatnonzero(~absent)[bad[0]])
        held_there = f"{py:row {row}} of column {chosen!r} holds {present[bad[0]]}"
        raise ObservationError(f"{name}: observed values must be {bad[1]}, but {held_there}")
    if not absent.any():
        return present
    if present.dtype.kind in "iu" and present.size:
        _refuse_rounding(present.max(), what)
    values = np.full(absent.size, np.nan)
    values[~absent] = present
    return values


def _refuse_rounding(largest: Any, what: str) -> None:
    if largest > EXACT:
        raise ObservationError(f"{what} must hold at most 2**53, or float64 would round it; got {brief(int(largest))}")
