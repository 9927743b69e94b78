"""JSON: one record per line, or a list of records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pltf.errors import PltfError
from pltf.io.columns import chosen_columns
from pltf.io.opening import Lines, opened
from pltf.io.reading import Reading
from pltf.io.records import plain_value
from pltf.memory import Allowance

_EXPANDED = 40  # most bytes of Python objects per character of JSON, as in [[],[],[]]
_WANTED = 'must be a list of records, or have one record per line (in pandas: to_json(path, orient="records"))'
Record = dict[str, Any]


@contextmanager
def json_rows(
    path: Path, kind: str, reading: Reading, columns: Sequence[str] | None, allowance: Allowance
) -> Iterator[tuple[list[str], Iterator[list[Any]]]]:
    """The names of some fields, or of all, and the rows of their values; absent fields are missing values."""
    known = json_columns(path, kind, reading, Allowance(path, allowance.limit))
    names = [known[at] for at in chosen_columns(path, columns, known)]
    yield (
        names,
        (
            [plain_value(path, record.get(name), where, name) for name in names]
            for where, record in _records(path, kind, reading, allowance)
        ),
    )


def json_columns(path: Path, kind: str, reading: Reading, allowance: Allowance) -> list[str]:
    """The names of all fields, in order of first appearance."""
    known: Record = {}
    for _, record in _records(path, kind, reading, allowance):
        if not record.keys() <= known.keys():
            known |= dict.fromkeys(record)
    if not known:
        raise PltfError(f"{path} has no records")
    return list(known)


def line_of_record(path: Path, reading: Reading, row: int) -> int:
    """The line number of a record, counted from 1."""
    with opened(path, reading.encoding) as file:
        lines = (number for number, line in enumerate(file, 1) if line.strip())
        return next(number for at, number in enumerate(lines) if at == row)


def _records(path: Path, kind: str, reading: Reading, allowance: Allowance) -> Iterator[tuple[str, Record]]:
    """The records and their locations, for messages."""
    with opened(path, reading.encoding) as file:
        if kind == "json":
            found = _whole(path, file.read(int(min(allowance.left / _EXPANDED, 2**62)) + 1), allowance)
            texts: Iterator[tuple[str, Any]] = ((f"record {number}", one) for number, one in enumerate(found, 1))
        else:
            texts = _lines(path, Lines(file, allowance))
        for where, record in texts:
            if not isinstance(record, dict):
                raise PltfError(f'{path}: {where} must be an object such as {{"user": "ann"}}')
            if record and all(isinstance(value, (list, dict)) for value in record.values()):
                raise PltfError(f"{path} {_WANTED}")  # columns, as pandas writes them by default
            blanks = not reading.keep_blanks and any(name != name.strip() for name in record)
            yield where, {name.strip(): value for name, value in record.items()} if blanks else record


def _lines(path: Path, lines: Lines) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(lines, 1):
        lines.row_ended()
        if line.strip():
            yield f"line {number}", _parsed(path, line, f"line {number}")


def _whole(path: Path, text: str, allowance: Allowance) -> list[Any]:
    allowance.take(_EXPANDED * len(text))
    found = _parsed(path, text, "it")
    if not isinstance(found, list):
        raise PltfError(f"{path} {_WANTED}")
    return found


def _parsed(path: Path, text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as reason:
        told = "it is nested too deeply" if isinstance(reason, RecursionError) else str(reason).split(":")[0]
        raise PltfError(f"{path}: {where} is not JSON: {told[:1].lower()}{told[1:]}") from None
