"""Tables in delimited text, CSV and TSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pltf.errors import PltfError
from pltf.io.arrow_text import arrow_columns
from pltf.io.columns import refuse_absent
from pltf.io.opening import opened
from pltf.io.word_columns import Rows, as_labels, as_numbers, word_columns

if TYPE_CHECKING:
    import pandas as pd

_SEPARATORS = ",\t;|"
_ROWS = 1 << 10  # of a text that are read at a time


def read_delimited(path: Path, kind: str, columns: Sequence[str] | None, keys: Sequence[str]) -> pd.DataFrame:
    """A table in text. Labels are read as they are written: "007" is no number, and "NA" may be a country."""
    import pandas as pd

    separator = _separator(path, kind)
    with _table_rows(path, separator) as (names, rows):
        refuse_absent(path, [*keys, *(columns or ())], names)
        wanted = [at for at, name in enumerate(names) if columns is None or name in columns or name in keys]
        held = arrow_columns(path, len(names), wanted, separator)
        if held is None:
            held = word_columns(rows, wanted)
    made = [
        as_labels(column, path) if names[at] in keys else as_numbers(column)
        for at, column in zip(wanted, held, strict=True)
    ]
    table = pd.DataFrame(dict(enumerate(made)))
    table.columns = pd.Index([names[at] for at in wanted], dtype=object)
    return table


def delimited_columns(path: Path, kind: str) -> list[str]:
    """The names of the columns."""
    with _table_rows(path, _separator(path, kind)) as (names, _):
        return names


@contextmanager
def _table_rows(path: Path, separator: str) -> Iterator[tuple[list[str], Iterator[Rows]]]:
    """The names of the columns of a text, and its rows, many at a time."""
    with opened(path) as file:
        reader = csv.reader(file, delimiter=separator, strict=True)
        names = [name.strip() for name in next(filter(None, reader), [])]
        if not any(names):
            raise PltfError(f"{path} must begin with the names of its columns")
        yield names, _whole_rows(reader, names, path, separator)


def _whole_rows(reader: Iterator[list[str]], names: list[str], path: Path, separator: str) -> Iterator[Rows]:
    """Rows that have a field for each column; lines that are blank are none."""
    while block := list(islice(reader, _ROWS)):
        rows = [row for row in block if row]
        if any(len(row) != len(names) for row in rows):
            _refuse_ragged(path, separator, len(names))
        if rows:
            yield rows


def _refuse_ragged(path: Path, separator: str, width: int) -> None:
    """Tell the first line that has more or fewer fields than there are columns."""
    with opened(path) as file:
        reader = csv.reader(file, delimiter=separator, strict=True)
        for row in filter(None, reader):
            if len(row) != width:
                raise PltfError(f"{path}: line {reader.line_num} has {len(row)} fields, and there are {width} columns")


def _separator(path: Path, kind: str) -> str:
    """What stands between the columns: the candidate that the first line has most of, outside quotes."""
    if kind == "tsv":
        return "\t"
    with opened(path) as file:
        line = next((line for line in iter(lambda: file.readline(1 << 16), "") if line.strip()), "")
    bare = re.sub(r'"[^"]*"', "", line)
    return max(_SEPARATORS, key=bare.count)
