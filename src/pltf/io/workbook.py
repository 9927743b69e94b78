"""Excel workbooks."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any
from zipfile import ZipFile

from pltf.errors import PltfError, py
from pltf.io.columns import chosen_columns, in_words
from pltf.io.reading import Reading
from pltf.memory import Allowance

_MOST_ROWS = 1 << 20  # that a sheet can have
_EXPANDED = 8  # bytes in memory for each byte of shared words
_EXPANDED_ROW = 40  # and for each byte of a row, at most: as in <c/><c/>
_BLOCK, _LONGEST_END = 1 << 16, 256  # bytes
_ROW_END = re.compile(rb"</(?:[\w.-]+:)?row\s*>|<(?:[\w.-]+:)?row\b[^<>]*/>")
Cells = tuple[Any, ...]


@contextmanager
def workbook_rows(
    path: Path, kind: str, reading: Reading, columns: Sequence[str] | None, allowance: Allowance
) -> Iterator[tuple[list[str], Iterator[list[Any]]]]:
    """Some columns of a sheet, or all, and their rows; the first row is the header, and empty rows are skipped."""
    with _rows(path, reading, allowance) as rows:
        names = _names(path, reading, rows)
        wanted = chosen_columns(path, columns, names)
        yield [names[at] for at in wanted], ([row[at] if at < len(row) else None for at in wanted] for _, row in rows)


def row_in_sheet(path: Path, reading: Reading, row: int) -> int:
    """The row number in the sheet of a row of the table."""
    with _rows(path, reading, Allowance(path, reading.limit)) as rows:
        return next(number for at, (number, _) in enumerate(rows) if at == row + 1)


def _names(path: Path, reading: Reading, rows: Iterator[tuple[int, Cells]]) -> list[str]:
    _, first = next(rows, (0, ()))
    names = ["" if one is None else str(one).removesuffix(" 00:00:00") for one in first]
    while names and not names[-1]:
        names.pop()
    if not names:
        raise PltfError(f"{path}: the sheet must begin with a header, but it is empty")
    return reading.header(names)


@contextmanager
def _rows(path: Path, reading: Reading, allowance: Allowance) -> Iterator[Iterator[tuple[int, Cells]]]:
    """The non-empty rows of the sheet, with their numbers."""
    import openpyxl

    _check_archive(path, allowance)
    with warnings.catch_warnings(action="ignore"):  # about styles and the like
        book = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
    with closing(book):
        sheet = book[_chosen(path, reading.sheet, book)]
        sheet.reset_dimensions()  # a file may declare the maximum width
        with closing(sheet.iter_rows(values_only=True)) as held:
            rows = enumerate(islice(held, _MOST_ROWS), 1)
            yield ((number, row) for number, row in rows if any(one is not None for one in row))


def _check_archive(path: Path, allowance: Allowance) -> None:
    """Check the memory of shared strings, which are read at once, and reject XML entity definitions."""
    with ZipFile(path) as archive:
        for one in archive.infolist():
            if one.filename.endswith("sharedStrings.xml"):
                allowance.take(_EXPANDED * one.file_size)
            elif not one.filename.startswith("xl/worksheets/") and one.filename.endswith((".xml", ".rels")):
                allowance.take(one.file_size)
            if one.filename.endswith((".xml", ".rels")):
                with archive.open(one) as file:
                    if b"<!DOCTYPE" in file.read(2048):
                        raise PltfError(f"{path} is not a plain workbook: {one.filename} has a document type")
            if one.filename.startswith("xl/worksheets/") and one.filename.endswith(".xml"):
                with archive.open(one) as file:
                    _check_rows(path, file, allowance)


def _check_rows(path: Path, file: IO[bytes], allowance: Allowance) -> None:
    """Refuse rows that would take too much memory: each is held as a whole, whatever the number of its cells."""
    most, since, last = allowance.left / _EXPANDED_ROW, 0, b""
    while block := file.read(_BLOCK):
        text = last + block
        if b"<![CDATA[" in text or b"<!--" in text:  # where ends of rows could be faked
            raise PltfError(f"{path} is not a plain workbook: a sheet has comments or character data")
        since = 0 if _ROW_END.search(text) else since + len(block)
        if since > most:
            allowance.refuse()
        last = text[-_LONGEST_END:]


def _chosen(path: Path, sheet: str | None, book: Any) -> str:
    names = [one.title for one in book.worksheets]
    shown = [one.title for one in book.worksheets if one.sheet_state == "visible"]
    if sheet is None and len(shown or names) == 1:
        return str((shown or names)[0])
    if sheet is None or sheet not in names:
        came = f"got {sheet!r}" if sheet is not None else f"select one with {py:sheet=}"
        raise PltfError(f"{path} has the sheets {in_words(names)}: {came}")
    return sheet
