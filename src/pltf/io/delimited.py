"""Tables in delimited text, CSV and TSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pltf.errors import PltfError
from pltf.io.arrow_text import arrow_columns
from pltf.io.columns import refuse_absent
from pltf.io.opening import Lines, opened
from pltf.io.word_columns import Rows, as_labels, as_numbers, word_columns
from pltf.memory import Allowance

if TYPE_CHECKING:
    import pandas as pd

_SEPARATORS = ",\t;|"
_ROWS, _CHARACTERS = 1 << 10, 1 << 22  # of a text that are read at a time


def read_delimited(
    path: Path,
    kind: str,
    columns: Sequence[str] | None,
    keys: Sequence[str],
    allowance: Allowance,
    most: int | None = None,
) -> pd.DataFrame:
    """A table in text, or at most so many of its columns.

    Labels are read as they are written: "007" is no number, and "NA" may be a country.
    """
    import pandas as pd

    separator = separator_of(path, kind)
    with _table_rows(path, separator, allowance) as (names, rows):
        refuse_absent(path, [*keys, *(columns or ())], names)
        wanted = [at for at, name in enumerate(names) if columns is None or name in columns or name in keys][:most]
        held = arrow_columns(path, len(names), wanted, separator, allowance)
        if held is None:
            held = word_columns(rows, wanted, allowance)
    made = [
        as_labels(column, path) if names[at] in keys else as_numbers(column)
        for at, column in zip(wanted, held, strict=True)
    ]
    table = pd.DataFrame(dict(enumerate(made)))
    table.columns = pd.Index([names[at] for at in wanted], dtype=object)
    return table


def delimited_columns(path: Path, kind: str, allowance: Allowance) -> list[str]:
    """The names of the columns."""
    with _table_rows(path, separator_of(path, kind), allowance) as (names, _):
        return names


@contextmanager
def _table_rows(path: Path, separator: str, allowance: Allowance) -> Iterator[tuple[list[str], Iterator[Rows]]]:
    """The names of the columns of a text, and its rows, many at a time."""
    with opened(path) as file:
        lines = Lines(file, allowance)
        reader = csv.reader(lines, delimiter=separator, strict=True)
        names = [name.strip() for name in next(filter(None, reader), [])]
        if not any(names):
            raise PltfError(f"{path} must begin with the names of its columns")
        lines.row_ended()
        yield names, _whole_rows(reader, lines, len(names), path)


def _whole_rows(reader: Any, lines: Lines, width: int, path: Path) -> Iterator[Rows]:
    """Rows that have a field for each column; lines that are blank are none."""
    rows, size = Rows(), 0
    for row in reader:
        size += lines.row_ended()
        if row and len(row) != width:
            raise PltfError(f"{path}: line {reader.line_num} has {len(row)} fields, and there are {width} columns")
        if row:
            rows.append(row)
        if rows and (len(rows) == _ROWS or size > _CHARACTERS):
            yield rows
            rows, size = Rows(), 0
    if rows:
        yield rows


def separator_of(path: Path, kind: str) -> str:
    """What stands between the columns: the candidate that the first line has most of, outside quotes."""
    if kind == "tsv":
        return "\t"
    with opened(path) as file:
        line = next((line for line in iter(lambda: file.readline(1 << 16), "") if line.strip()), "")
    bare = re.sub(r'"[^"]*"', "", line)
    return max(_SEPARATORS, key=bare.count)
