"""Tables in files, long and wide, for the commands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pltf.cli.dates import with_dates
from pltf.data import Observation, observe
from pltf.data.labels import labels_of
from pltf.data.numeric import brief, find_bad
from pltf.errors import PltfError, naming_rows
from pltf.io.columns import is_nameless, refuse_absent
from pltf.io.files import SourceTable
from pltf.io.word_columns import WordColumn, as_labels, number_in

if TYPE_CHECKING:
    import pandas as pd

_COMMAS = re.compile(r"-?([0-9]{1,3}(\.[0-9]{3})+,[0-9]+|[0-9]+,([0-9]{1,2}|[0-9]{4,}))")  # before decimals
_GROUPS = re.compile(r"-?[0-9]{1,3}([,.'’ ][0-9]{3})+")


def numbers_in(table: SourceTable, column: pd.Series, name: str) -> pd.Series:
    """Parse words in a column of values as numbers; an error names the first invalid one."""
    if column.dtype.kind != "O" or not any(isinstance(one, str) for one in column):
        return column
    found = [number_in(one, table.reading.decimal) if isinstance(one, str) else one for one in column]
    for row, (word, number) in enumerate(zip(column, found, strict=True)):
        if number is None and isinstance(word, str):
            raise PltfError(f"{table.path}: {table.place(row)} of column {name!r} has {brief(word)}, {_advice(word)}")
    return column.__class__(found, index=column.index, dtype=object).infer_objects()


def _advice(word: str) -> str:
    """Advice for a word that should be a number."""
    if _COMMAS.fullmatch(word.strip()):
        return "which is not a number; --decimal , reads decimal commas"
    if _GROUPS.fullmatch(word.strip()):
        sign = "," if "." in word else "."
        return f"which is not a number; --decimal {sign} reads thousands separators"
    return "which is not a number; to count rows instead, use --count"


def column_of(key: str, columns: Sequence[str]) -> str:
    """The column of an index that may have a bin: ``when`` for ``when:week``.

    >>> column_of("when:week", ["when", "who"]), column_of("a:b", ["a:b"])
    ('when', 'a:b')
    """
    return key if key in columns else key.rpartition(":")[0] or key


def wide_table(
    table: SourceTable, dims: Mapping[str, str], options: Mapping[str, Any], duplicates: str
) -> tuple[Observation, str]:
    """Read a wide table: columns that label the rows, and one column of values per label of the last index."""
    import pandas as pd

    columns = table.columns()
    *keys, across = dims
    if not keys:
        advice = "the columns that label the rows, then a name for the index along the others, as in -i user,page"
        raise PltfError(f"--wide needs at least two names with --index: {advice}")
    if across in columns:
        advice = "a long table is read without --wide"
        raise PltfError(
            f"--wide needs a new name for the index along the columns, and {across!r} is a column: {advice}"
        )
    labelled = [column_of(one, columns) for one in keys]
    if labelled[0] not in columns and is_nameless(columns[0]):  # unnamed row labels written by pandas
        dims = {columns[0] if one == keys[0] else one: index for one, index in dims.items()}
        labelled[0] = keys[0] = columns[0]
    refuse_absent(table.path, labelled, columns)
    rows = table.read(None, labelled)
    others = [name for name in rows.columns if name not in labelled]
    if not len(rows) or not others:
        raise PltfError(f"{table.path} has no {'columns of values' if len(rows) else 'rows'}")
    if not all(others) or len(set(others)) < len(others):
        wrong = "a column without a name" if not all(others) else "several columns with the same name"
        raise PltfError(f"{table.path} has {wrong}, but --wide uses the names as labels")
    values = np.column_stack([_values(table, rows[name], name) for name in others])
    _refuse_bad(table, values, others)
    source = f"{len(rows):,} x {len(others):,} values of {table.path}"
    header = as_labels(WordColumn(others, np.arange(len(others))), table.path, "header", keep_blanks=True)
    if len(keys) == 1 and keys[0] == labelled[0] and ":" not in across:
        what = f"{table.path}: column {labelled[0]!r}"
        with naming_rows(table.place):
            labels, at = labels_of(rows[labelled[0]], what, None, keep_blanks=table.reading.keep_blanks)
        if len(labels) == len(rows):
            named = {dims[keys[0]]: labels.at(at), dims[across]: list(header)}
            return observe(values, dims=list(dims.values()), labels=named, name=table.path.name), source
    long = pd.DataFrame({name: np.repeat(np.asarray(rows[name].astype(object)), len(others)) for name in labelled})
    along, value = _free("along", long.columns), _free("value", [*long.columns, "along"])
    long[along], long[value] = pd.Categorical(list(header) * len(rows), categories=list(header)), values.ravel()
    last = along + across[len(column_of(across, ())) :] if ":" in across else along
    wanted = {**{one: dims[one] for one in keys}, last: dims[across]}
    long = with_dates(table, long, {one: column_of(one, long.columns) for one in wanted}, options)
    blanks = table.reading.keep_blanks
    with naming_rows(lambda row: table.place(row // len(others))):
        seen = observe(long, dims=wanted, value=value, duplicates=duplicates, keep_blanks=blanks, name=table.path.name)
    return seen, source


def _refuse_bad(table: SourceTable, values: NDArray[Any], names: Sequence[str]) -> None:
    """Raise an error for the first negative or infinite value, with its line and column."""
    bad = find_bad(np.where(np.isnan(values), 0.0, values) if values.dtype.kind == "f" else values)
    if bad is not None:
        row, column = divmod(bad[0], len(names))
        held = f"{table.place(row)} of column {names[column]!r} holds {values[row, column]:g}"
        raise PltfError(f"{table.path}: observed values must be {bad[1]}, but {held}")


def _values(table: SourceTable, column: pd.Series, name: str) -> Any:
    found = numbers_in(table, column, name)
    if found.dtype.kind not in "biuf":
        absent = np.asarray(found.isna())
        if found.dtype.kind != "O" or any(isinstance(one, str) for one in found[~absent]):
            raise PltfError(f"{table.path}: column {name!r} must hold numbers: if it holds labels, add it to --index")
        return np.where(absent, np.nan, found.astype(object)).astype(np.float64)
    return found.to_numpy()


def _free(name: str, taken: Sequence[str]) -> str:
    """A name that no column has."""
    while name in taken:
        name += "_"
    return name
