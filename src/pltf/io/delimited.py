"""Tables in delimited text: CSV and TSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.errors import PltfError, py
from pltf.io.arrow_text import arrow_columns
from pltf.io.columns import refuse_absent
from pltf.io.opening import Lines, opened
from pltf.io.reading import Reading
from pltf.io.word_columns import Rows, WordColumn, ambiguous_number, as_labels, as_numbers, word_columns
from pltf.memory import Allowance

if TYPE_CHECKING:
    import pandas as pd

_SEPARATORS = ",\t;|"
_ROWS, _CHARACTERS = 1 << 10, 1 << 22  # read at a time


def read_delimited(
    path: Path,
    kind: str,
    reading: Reading,
    columns: Sequence[str] | None,
    keys: Sequence[str],
    allowance: Allowance,
    most: int | None = None,
) -> pd.DataFrame:
    """Read a table from text, at most ``most`` of its columns.

    Labels are kept as written, except for blanks around them: "007" is not a number, and "NA" may be a country.
    """
    import pandas as pd

    separator = separator_of(path, kind, reading)
    with _table_rows(path, separator, reading, allowance) as (names, rows):
        refuse_absent(path, [*keys, *(columns or ())], names)
        wanted = [at for at, name in enumerate(names) if columns is None or name in columns or name in keys][:most]
        held = arrow_columns(path, len(names), wanted, separator, allowance, reading.encoding)
        if held is None:
            held = word_columns(rows, wanted, allowance)
    made: list[Any] = []
    for at, column in zip(wanted, held, strict=True):
        if names[at] in keys:
            made.append(as_labels(column, path, names[at], keep_blanks=reading.keep_blanks))
            continue
        if separator == ";" and reading.decimal is None and columns is not None:
            _refuse_ambiguous(column, path, kind, reading, names[at])
        made.append(as_numbers(column, reading.decimal))
    table = pd.DataFrame(dict(enumerate(made)))
    table.columns = pd.Index([names[at] for at in wanted], dtype=object)
    return table


def _refuse_ambiguous(column: WordColumn, path: Path, kind: str, reading: Reading, name: str) -> None:
    """Raise an error for numbers such as 6.200, which is 6.2 or, in German notation, 6200."""
    word = ambiguous_number(column.words)
    if word is None:
        return
    row = int(np.argmax(column.codes == column.words.index(word)))
    line = line_of(path, kind, reading, row)
    whole, part = word.strip().replace(".", ""), f"{float(word):g}"
    comma, point = "decimal=','", "decimal='.'"
    choices = f"{py:{comma}} if it is {whole}, {py:{point}} if it is {part}"
    raise PltfError(f"{path}: line {line} of column {name!r} has {word.strip()}, which is ambiguous: pass {choices}")


def delimited_columns(path: Path, kind: str, allowance: Allowance, reading: Reading) -> list[str]:
    """The names of the columns."""
    with _table_rows(path, separator_of(path, kind, reading), reading, allowance) as (names, _):
        return names


def line_of(path: Path, kind: str, reading: Reading, row: int) -> int:
    """The line on which a row of the table begins, counted from 1, including the header."""
    with opened(path, reading.encoding) as file:
        reader = csv.reader(file, delimiter=separator_of(path, kind, reading), strict=True)
        before, at = 0, -1  # the header is also a row
        for found in reader:
            at += bool(found)
            if found and at == row + 1:
                break
            before = reader.line_num
        return before + 1


@contextmanager
def _table_rows(
    path: Path, separator: str, reading: Reading, allowance: Allowance
) -> Iterator[tuple[list[str], Iterator[Rows]]]:
    """The names of the columns of a text, and its rows in blocks."""
    with opened(path, reading.encoding) as file:
        lines = Lines(file, allowance)
        reader = csv.reader(lines, delimiter=separator, strict=True)
        names = reading.header(next(filter(None, reader), []))
        if not any(names):
            raise PltfError(f"{path} must begin with a header, the names of its columns")
        lines.row_ended()
        yield names, _whole_rows(reader, lines, len(names), path)


def _whole_rows(reader: Any, lines: Lines, width: int, path: Path) -> Iterator[Rows]:
    """Rows with one field per column; blank lines are skipped."""
    rows, size = Rows(), 0
    for row in reader:
        size += lines.row_ended()
        if row and len(row) != width:
            raise PltfError(f"{path}: line {reader.line_num} has {len(row)} fields, but there are {width} columns")
        if row:
            rows.append(row)
        if rows and (len(rows) == _ROWS or size > _CHARACTERS):
            yield rows
            rows, size = Rows(), 0
    if rows:
        yield rows


def separator_of(path: Path, kind: str, reading: Reading) -> str:
    """The column separator: the most frequent candidate in the first line, outside quotes."""
    if kind == "tsv":
        return "\t"
    with opened(path, reading.encoding) as file:
        line = next((line for line in iter(lambda: file.readline(1 << 16), "") if line.strip()), "")
    bare = re.sub(r'"[^"]*"', "", line)
    return max(_SEPARATORS, key=bare.count)
