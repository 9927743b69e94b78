"""Data in the files that people have: tables, arrays, lists of cells."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pltf.errors import PltfError, py
from pltf.io.arrays import read_mat, read_netcdf, read_npy, read_npz
from pltf.io.delimited import delimited_columns, read_delimited
from pltf.io.listed import read_tns
from pltf.io.opening import beginning, is_gzip, readable
from pltf.io.parquet import parquet_columns, read_parquet
from pltf.memory import Allowance
from pltf.store.fits import as_path

FORMATS = ("csv", "tsv", "parquet", "tns", "npz", "npy", "mat", "netcdf")
_TEXTS = ("csv", "tsv", "tns")
_ENDINGS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".tns": "tns",
    ".npz": "npz",
    ".npy": "npy",
    ".mat": "mat",
    ".nc": "netcdf",
    ".nc4": "netcdf",
    ".netcdf": "netcdf",
}
_MARKS = {
    b"PAR1": "parquet",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
    b"CDF": "netcdf",
    b"\x89HDF\r\n\x1a\n": "netcdf",
    b"MATLAB": "mat",
}
_LISTED = re.compile(rb"([0-9]+[ \t]+)+[0-9.eE+-]+")  # a line of positions and a value


def read_data(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    columns: Sequence[str] | None = None,
    keys: Sequence[str] = (),
    variable: str | None = None,
    limit: float | None = None,
    most: int | None = None,
) -> Any:
    """What a file holds, as :func:`pltf.observe` takes it: a table, an array, or listed cells with their shape.

    ``format`` is one of ``FORMATS``; if it is not said, it is guessed from the content, then from the ending. Of tables
    only ``columns`` are read, all if none are named; in text, ``keys`` are labels, which stay as they are written but
    for plain whole numbers; at most ``most`` columns are read. ``variable`` names the array in a file that has several.

    A file that would take more than ``limit`` bytes of memory is refused; by default, more than half of what is free.

    >>> import pandas as pd, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "events.csv")
    >>> pd.DataFrame({"user": ["ann", "bob"], "zip": ["007", "123"]}).to_csv(path, index=False)
    >>> read_data(path, keys=["user", "zip"]).values.tolist()
    [['ann', '007'], ['bob', '123']]
    """
    where = as_path(path)
    kind = guess(where) if format is None else _known(format)
    beginning(where)
    allowance = Allowance(where, limit)
    with readable(where, kind):
        if kind in ("csv", "tsv"):
            return read_delimited(where, kind, columns, keys, allowance, most)
        if kind == "parquet":
            return read_parquet(where, columns, allowance, most)
        return _READERS[kind](where, variable, allowance)


def guess(path: Path) -> str:
    """The format of a file, from its first bytes, then from its ending."""
    begin = beginning(path)
    marked = next((kind for mark, kind in _MARKS.items() if begin.startswith(mark)), None)
    if marked is not None:
        if is_gzip(path):
            raise PltfError(f"{path} is a {marked} file packed with gzip: unpack it first")
        return marked
    endings = [ending.lower() for ending in path.suffixes if ending.lower() != ".gz"]
    kind = _ENDINGS.get(endings[-1]) if endings else None
    if kind in (*_TEXTS, "mat"):  # MATLAB 4 had no mark
        return str(kind)
    if kind is not None:
        raise PltfError(f"{path} is not a {kind} file, despite its extension: say what it is with {py:format=}")
    if b"\x00" in begin:
        raise PltfError(f"{path} is an unsupported file type: say what it is with {py:format=} ({', '.join(FORMATS)})")
    return "tns" if _LISTED.fullmatch(_first_line(begin)) else "csv"


def _first_line(begin: bytes) -> bytes:
    lines = (line.strip() for line in begin.splitlines())
    return next((line for line in lines if line and not line.startswith(b"#")), b"")


def _known(format: Any) -> str:
    if format not in FORMATS:
        raise PltfError(f"{py:format} must be one of {', '.join(map(repr, FORMATS))}; got {format!r}")
    return str(format)


def table_columns(path: Path, kind: str, limit: float | None = None) -> list[str]:
    """The columns of a table in a file."""
    beginning(path)
    with readable(path, kind):
        if kind == "parquet":
            return parquet_columns(path)
        return delimited_columns(path, kind, Allowance(path, limit))


_READERS: dict[str, Callable[[Path, str | None, Allowance], Any]] = {
    "tns": read_tns,
    "npz": read_npz,
    "npy": read_npy,
    "mat": read_mat,
    "netcdf": read_netcdf,
}
