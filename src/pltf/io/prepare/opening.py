"""Which kind of source it is that somebody hands over."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pltf.data.numeric import brief
from pltf.data.tables import is_table
from pltf.errors import ObservationError, PltfError, py
from pltf.io.files import guess
from pltf.io.opening import packing_of
from pltf.io.prepare import dense, streams
from pltf.io.prepare.files import ParquetTable, TextTable
from pltf.io.prepare.sources import Source
from pltf.store.plain_file import check_plain_file

_PATTERN = frozenset("*?[")


def opened_source(source: Any, work: Path, variable: str | None, connection: Any, name: str | None) -> Source:
    """The source of rows; ``work`` is a folder for links to files."""
    called = name or "data"
    if connection is not None:
        return _of_sql(source, connection, called)
    opened = _of_paths(source, work, variable)
    if opened is None:
        if variable is not None:
            raise PltfError(f"{py:variable} goes with a file of arrays, got {brief(variable)}")
        opened = _of_object(source, called)
    if name is not None:
        opened.name = name
    return opened


def _of_sql(source: Any, connection: Any, name: str) -> Source:
    if not isinstance(source, str) or not hasattr(connection, "sql"):
        raise ObservationError(f"{py:connection} must be a connection of DuckDB, and {py:source} SQL for it")
    try:
        relation = connection.sql(source)
    except Exception as reason:  # of DuckDB, about the text of somebody's query
        raise ObservationError(
            f"{py:source} is no query that DuckDB can read: {' '.join(str(reason).split())}"
        ) from None
    if relation is None:
        raise ObservationError(f"{py:source} must be a query that has rows, got {brief(source)}")
    return streams.of_relation(relation, name)


def _of_object(source: Any, name: str) -> Source:
    """A source in memory, or one that comes in batches."""
    module = type(source).__module__.split(".")[0]
    if module in ("dask", "dask_expr") and hasattr(source, "partitions"):
        return streams.of_dask(source, name)
    if module in ("duckdb", "_duckdb") and hasattr(source, "project"):
        return streams.of_relation(source, name)
    if hasattr(source, "collect_schema") and hasattr(source, "collect"):
        raise ObservationError(f"{name}: a lazy table must be collected first")
    if is_table(source) and hasattr(source, "columns"):
        return streams.of_table(source, name)
    if dense.is_array(source):
        return dense.DenseArray(source, name)
    if isinstance(source, Iterable) and not isinstance(source, (dict, bytes)):
        return streams.of_batches(source, name)
    raise ObservationError(f"{py:source} must be files, tables or an array, got {type(source).__name__}")


# -- files --------------------------------------------------------------------------------------


def _of_paths(source: Any, work: Path, variable: str | None) -> Source | None:
    """Files; None if the source is something else."""
    given = [source] if _is_path(source) else source
    if not isinstance(given, (list, tuple)) or not given or not all(map(_is_path, given)):
        return None
    files = [file for one in given for file in _expanded(os.fspath(one))]
    twice = [file for place, file in enumerate(files) if file in files[:place]] if len(files) < 1000 else []
    if twice:
        raise PltfError(f"{twice[0]} is given twice")
    if len(files) == 1 and files[0].is_dir():
        return dense.of_zarr(files[0], variable)
    kinds = [_kind(file) for file in files]
    others = [file for file, kind in zip(files, kinds, strict=True) if kind != kinds[0]]
    if others:
        raise PltfError(f"all files must be of one format: {files[0]} is {kinds[0]}, and {others[0]} is not")
    if variable is not None and kinds[0] != "netcdf":
        raise PltfError(f"{py:variable} goes with a file of arrays, and {files[0]} is {kinds[0]}")
    if kinds[0] == "parquet":
        return ParquetTable(files, work)
    if kinds[0] in ("csv", "tsv"):
        return TextTable(files, work, kinds[0])
    if len(files) > 1:
        raise PltfError(f"several files must be tables, and {files[0]} is {kinds[0]}")
    return _of_one(files[0], kinds[0], variable)


def _of_one(file: Path, kind: str, variable: str | None) -> Source:
    if kind == "tns":
        return streams.TnsFile(file)
    if kind == "npy":
        return dense.of_npy(file)
    if kind == "netcdf":
        return dense.of_hdf5(file, variable)
    raise PltfError(f"{file} cannot be prepared: {kind} files are read as a whole, with pltf.observe")


def _is_path(one: Any) -> bool:
    return isinstance(one, (str, os.PathLike)) and isinstance(os.fspath(one), str)


def _expanded(text: str) -> list[Path]:
    """The files of a pattern, sorted, or the file of that name."""
    if "\0" in text or not text:
        raise PltfError(f"{py:source} must be the name of a file, got {brief(text)}")
    if not _PATTERN & set(text) or os.path.lexists(text):
        return [Path(text)]
    found = sorted(glob.glob(text, recursive=True))
    if not found:
        raise PltfError(f"there are no files {text}")
    return [Path(one) for one in found]


def _kind(file: Path) -> str:
    check_plain_file(file)
    kind = guess(file)
    if packing_of(file) == "zip":
        raise PltfError(f"{file} is packed with zip: unpack it first")
    return kind
