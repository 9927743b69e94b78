"""Read data files: tables, arrays and lists of cells."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pltf.errors import PltfError, choice, py
from pltf.io.annotated import read_annotated
from pltf.io.arrays import read_mat, read_netcdf, read_npy, read_npz
from pltf.io.columns import refuse_absent
from pltf.io.databases import database_rows, duckdb_batches, duckdb_columns, read_duckdb
from pltf.io.delimited import delimited_columns, line_of, read_delimited
from pltf.io.feather import feather_batches, feather_columns, read_feather
from pltf.io.json_lines import json_rows, line_of_record
from pltf.io.listed import read_tns
from pltf.io.opening import beginning, looks_like_utf_16, name_inside, packing_of, readable, zip_kind
from pltf.io.parquet import parquet_columns, read_parquet
from pltf.io.reading import TEXTS, Reading
from pltf.io.records import as_table, in_batches
from pltf.io.sources import Source
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
    where, reading = path if isinstance(path, Source) else as_path(path), Reading(**how)
    kind = kind_of(where, reading)
    allowance = Allowance(where, reading.limit)
    with readable(where, kind, reading.encoding):
        if kind in TABLES:
            return _table_reader(where, kind, reading, columns, keys, allowance, most)
        if kind == "tns":
            return read_tns(where, reading, allowance)
        return _READERS[kind](where, reading.variable, allowance)


def _table_reader(
    path: Path,
    kind: str,
    reading: Reading,
    columns: Sequence[str] | None,
    keys: Sequence[str],
    allowance: Allowance,
    most: int | None,
) -> pd.DataFrame:
    if kind in ("csv", "tsv"):
        return read_delimited(path, kind, reading, columns, keys, allowance, most)
    if kind in _ARROW:
        read, raw = _ARROW[kind]
        table = read(path, None if columns is None else _written(path, raw(path), reading, columns), allowance, most)
        return table.set_axis(reading.header(map(str, table.columns)), axis=1)
    if kind == "duckdb":
        return read_duckdb(path, reading, columns, allowance, most)
    with _ROWS[kind](path, kind, reading, columns, allowance) as (names, rows):
        return as_table(names, rows, allowance, most)


def _written(path: Path, names: Sequence[str], reading: Reading, columns: Sequence[str]) -> list[str]:
    """The wanted columns as the file has them, possibly with blanks around them."""
    plain = reading.header(names)
    refuse_absent(path, columns, plain)
    return [one for one, name in zip(names, plain, strict=True) if name in columns]


def table_batches(path: Path, kind: str, reading: Reading, columns: Sequence[str]) -> Iterator[Any]:
    """Some columns of a table, of pandas or Arrow, in batches. Text and Parquet are for DuckDB."""
    allowance = Allowance(path, reading.limit)
    with readable(path, kind, reading.encoding):
        if kind == "duckdb":
            yield from duckdb_batches(path, reading, columns, allowance)
        elif kind == "feather":
            wanted = _written(path, feather_columns(path), reading, columns)
            for table in feather_batches(path, wanted, allowance):
                yield table.rename_columns(reading.header(table.column_names))
        else:
            with _ROWS[kind](path, kind, reading, columns, allowance) as (names, rows):
                yield from in_batches(path, names, rows, reading.limit)


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


def table_columns(path: Path, kind: str, reading: Reading | None = None) -> list[str]:
    """The columns of a table in a file."""
    reading = reading or Reading()
    allowance = Allowance(path, reading.limit)
    with readable(path, kind, reading.encoding):
        if kind in ("csv", "tsv"):
            return delimited_columns(path, kind, allowance, reading)
        if kind in _ARROW:
            return reading.header(_ARROW[kind][1](path))
        if kind == "duckdb":
            return duckdb_columns(path, reading, allowance)
        with _ROWS[kind](path, kind, reading, None, allowance) as (names, _):
            return names


def place_of(path: Path, kind: str, reading: Reading, row: int) -> str:
    """The location of a row in its file, for messages: lines are counted from 1, including the header."""
    if kind in ("csv", "tsv"):
        return f"line {line_of(path, kind, reading, row)}"
    if kind == "jsonl":
        return f"line {line_of_record(path, reading, row)}"
    if kind == "excel":
        return f"row {row_in_sheet(path, reading, row)}"
    return f"{'record' if kind == 'json' else 'row'} {row + 1}"


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
