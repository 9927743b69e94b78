"""Read data files: tables, arrays and lists of cells."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pltf.errors import PltfError, choice, py
from pltf.io.annotated import read_annotated
from pltf.io.arrays import read_mat, read_netcdf, read_npy, read_npz
from pltf.io.columns import chosen_columns
from pltf.io.databases import database_rows, duckdb_batches, duckdb_columns, read_duckdb
from pltf.io.delimited import delimited_columns, line_of, read_delimited
from pltf.io.feather import feather_batches, feather_columns, read_feather
from pltf.io.json_lines import json_rows, line_of_record
from pltf.io.listed import read_tns
from pltf.io.opening import beginning, looks_like_utf_16, name_inside, packing_of, readable, zip_kind
from pltf.io.parquet import parquet_columns, read_parquet
from pltf.io.reading import TEXTS, Reading
from pltf.io.records import as_table, in_batches
from pltf.io.sources import ShownPath
from pltf.io.workbook import row_in_sheet, workbook_rows
from pltf.memory import Allowance
from pltf.store.fits import as_path

if TYPE_CHECKING:
    import pandas as pd

TABLES = ("csv", "tsv", "parquet", "feather", "excel", "jsonl", "json", "sqlite", "duckdb", "sql")
FORMATS = (*TABLES[:-1], "tns", "npz", "npy", "mat", "netcdf", "h5ad", "h5mu")
_ENDINGS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".xlsx": "excel",
    ".xlsm": "excel",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".duckdb": "duckdb",
    ".tns": "tns",
    ".npz": "npz",
    ".npy": "npy",
    ".mat": "mat",
    ".nc": "netcdf",
    ".nc4": "netcdf",
    ".netcdf": "netcdf",
    ".h5ad": "h5ad",
    ".h5mu": "h5mu",
}
_MARKS = {
    b"PAR1": "parquet",
    b"\x93NUMPY": "npy",
    b"ARROW1\0\0": "feather",
    b"FEA1": "feather",
    b"SQLite format 3\0": "sqlite",
    b"MuData (": "h5mu",  # before the HDF5
    b"CDF": "netcdf",
    b"\x89HDF\r\n\x1a\n": "netcdf",
    b"MATLAB": "mat",
}
_UNREAD = {
    b"\xd0\xcf\x11\xe0": "an older Excel workbook, or another Office file",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ\0": "compressed with xz",
    b"7z\xbc\xaf": "compressed with 7-Zip",
    b"%PDF": "a PDF",
}
_LISTED = re.compile(rb"([0-9]+[ \t]+)+[0-9.eE+-]+")  # a line of positions and a value


def read_data(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    keys: Sequence[str] = (),
    most: int | None = None,
    **how: Any,
) -> Any:
    """Read a file in a form that :func:`pltf.observe` accepts: a table, an array, or listed cells with a shape.

    ``how`` are the fields of :class:`Reading`. ``format`` is one of ``FORMATS``; by default, it is detected from the
    content, then from the extension. For tables, only ``columns`` are read (default: all), and at most ``most`` of
    them. In text formats, the columns ``keys`` hold labels: blanks around them are stripped, plain whole numbers become
    integers, and other labels are kept as written.

    A file that needs more than ``limit`` bytes of memory raises an error (default: half of the free memory).

    >>> import pandas as pd, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "events.csv")
    >>> pd.DataFrame({"user": ["ann", "bob"], "zip": ["007", "123"]}).to_csv(path, index=False)
    >>> read_data(path, keys=["user", "zip"]).values.tolist()
    [['ann', '007'], ['bob', '123']]
    """
    where, reading = path if isinstance(path, ShownPath) else as_path(path), Reading(**how)
    kind = kind_of(where, reading)
    if kind in TABLES:
        return SourceTable(where, kind, reading).read(columns, keys, most)
    allowance = Allowance(where, reading.limit)
    with readable(where, kind, reading.encoding):
        if kind == "tns":
            return read_tns(where, reading, allowance)
        return _READERS[kind](where, reading.variable, allowance)


@dataclass(frozen=True)
class SourceTable:
    """A table in a file or a database."""

    path: Path
    kind: str
    reading: Reading

    def columns(self) -> list[str]:
        """The names of the columns."""
        path, kind, reading = self.path, self.kind, self.reading
        with self._opened() as allowance:
            if kind in ("csv", "tsv"):
                return delimited_columns(path, kind, allowance, reading)
            if kind in _ARROW:
                return reading.header(_ARROW[kind][1](path))
            if kind == "duckdb":
                return duckdb_columns(path, reading, allowance)
            with _ROWS[kind](path, kind, reading, None, allowance) as (names, _):
                return names

    def read(self, columns: Sequence[str] | None, keys: Sequence[str] = (), most: int | None = None) -> pd.DataFrame:
        """Read some columns, or all, as :func:`read_data` does."""
        path, kind, reading = self.path, self.kind, self.reading
        with self._opened() as allowance:
            if kind in ("csv", "tsv"):
                return read_delimited(path, kind, reading, columns, keys, allowance, most)
            if kind in _ARROW:
                read, raw = _ARROW[kind]
                table = read(path, None if columns is None else self._written(raw(path), columns), allowance, most)
                return table.set_axis(reading.header(map(str, table.columns)), axis=1)
            if kind == "duckdb":
                return read_duckdb(path, reading, columns, allowance, most)
            with _ROWS[kind](path, kind, reading, columns, allowance) as (names, rows):
                return as_table(names, rows, allowance, most)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Some columns as tables of pandas or Arrow, in batches. Text and Parquet are for DuckDB."""
        path, kind, reading = self.path, self.kind, self.reading
        with self._opened() as allowance:
            if kind == "duckdb":
                yield from duckdb_batches(path, reading, columns, allowance)
            elif kind == "feather":
                wanted = self._written(feather_columns(path), columns)
                for table in feather_batches(path, wanted, allowance):
                    yield table.rename_columns(reading.header(table.column_names))
            else:
                with _ROWS[kind](path, kind, reading, columns, allowance) as (names, rows):
                    yield from in_batches(path, names, rows, reading.limit)

    def place(self, row: int) -> str:
        """The location of a row in its file, for messages: lines are counted from 1, including the header."""
        if self.kind in ("csv", "tsv"):
            return f"line {line_of(self.path, self.kind, self.reading, row)}"
        if self.kind == "jsonl":
            return f"line {line_of_record(self.path, self.reading, row)}"
        if self.kind == "excel":
            return f"row {row_in_sheet(self.path, self.reading, row)}"
        return f"{'record' if self.kind == 'json' else 'row'} {row + 1}"

    @contextmanager
    def _opened(self) -> Iterator[Allowance]:
        """What may be allocated for reading; errors of readers become one sentence."""
        allowance = Allowance(self.path, self.reading.limit)
        with readable(self.path, self.kind, self.reading.encoding):
            yield allowance

    def _written(self, names: Sequence[str], columns: Sequence[str]) -> list[str]:
        """The wanted columns as the file has them, possibly with blanks around them."""
        return [names[at] for at in chosen_columns(self.path, columns, self.reading.header(names))]


def kind_of(path: Path, reading: Reading) -> str:
    """The format of a file, given or detected; raises an error for options that it does not support."""
    if getattr(path, "url", None) is not None:
        kind = "sql"
    else:
        kind = guess(path, reading.encoding) if reading.format is None else choice("format", reading.format, FORMATS)
        beginning(path, reading.encoding if kind in TEXTS else None)
    reading.check(path, kind)
    return kind


def guess(path: Path, encoding: str | None = None) -> str:
    """Detect the format of a file from its first bytes, then from its extension."""
    begin = beginning(path)
    packing = packing_of(path)
    if packing is None and begin.startswith(b"PK\x03\x04"):
        return _of_archive(path)
    marked = next((kind for mark, kind in _MARKS.items() if begin.startswith(mark)), None)
    marked = "duckdb" if begin[8:12] == b"DUCK" else marked
    endings = [ending.lower() for ending in name_inside(path).suffixes if ending.lower() not in (".gz", ".zst", ".zip")]
    kind = _ENDINGS.get(endings[-1]) if endings else None
    if marked is not None:
        if packing is not None:
            raise PltfError(f"{path} is a {marked} file compressed with {packing}: decompress it first")
        return str(kind) if marked == "netcdf" and kind in ("h5ad", "h5mu") else marked
    unread = next((told for mark, told in _UNREAD.items() if begin.startswith(mark)), None)
    if unread is not None and kind not in ("csv", "tsv"):
        raise PltfError(f"{path} is {unread}, which cannot be read: save it as CSV or .xlsx")
    if looks_like_utf_16(begin) and encoding is None:
        raise PltfError(f"{path} seems to be UTF-16 text: pass {py:encoding='utf-16'}")
    if kind in ("json", "jsonl"):
        return "json" if begin.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[") else "jsonl"
    if kind in (*TEXTS, "mat"):  # MATLAB 4 files have no signature
        return str(kind)
    if kind is not None:
        raise PltfError(f"{path} is not a {kind} file, despite its extension: set {py:format=}")
    if b"\x00" in begin and encoding is None:
        raise PltfError(f"{path} has an unsupported file type: set {py:format=} ({', '.join(FORMATS)})")
    if re.match(rb'\s*(\[\s*)?\{\s*"', begin):
        return "json" if begin.lstrip().startswith(b"[") else "jsonl"
    return "tns" if _LISTED.fullmatch(_first_line(begin)) else "csv"


def _of_archive(path: Path) -> str:
    """The format of a file whose format is based on ZIP."""
    kind = zip_kind(path)
    if kind == "ods":
        raise PltfError(f"{path} is an OpenDocument file, which cannot be read: save it as CSV or .xlsx")
    return str(kind)


def _first_line(begin: bytes) -> bytes:
    lines = (line.strip() for line in begin.splitlines())
    return next((line for line in lines if line and not line.startswith(b"#")), b"")


NamesAndRows = AbstractContextManager[tuple[list[str], Iterator[Sequence[Any]]]]
_ARROW = {"parquet": (read_parquet, parquet_columns), "feather": (read_feather, feather_columns)}
_ROWS: dict[str, Callable[..., NamesAndRows]] = {
    "excel": workbook_rows,
    "jsonl": json_rows,
    "json": json_rows,
    "sqlite": database_rows,
    "sql": database_rows,
}
_READERS: dict[str, Callable[[Path, str | None, Allowance], Any]] = {
    "npz": read_npz,
    "npy": read_npy,
    "mat": read_mat,
    "netcdf": read_netcdf,
    "h5ad": read_annotated,
    "h5mu": read_annotated,
}
