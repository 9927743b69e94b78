"""Recognize the kind of a source."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scipy import sparse

from pltf.data import Observation
from pltf.data.numeric import brief
from pltf.data.observe import is_frame, is_xarray
from pltf.data.stored import is_store
from pltf.data.tables import is_table
from pltf.errors import ObservationError, PltfError, py
from pltf.io.databases import is_url
from pltf.io.files import TABLES, kind_of
from pltf.io.prepare import dense, streams
from pltf.io.prepare.files import ParquetTable, TextTable
from pltf.io.prepare.sources import Source
from pltf.io.reading import Reading
from pltf.io.sources import ShownPath, database_url

_PATTERN = frozenset("*?[")
_OF_FILES = {"variable": "a file of arrays", "sheet": "a workbook", "query": "a database", "encoding": "a text file"}


def opened_source(source: Any, work: Path, reading: Reading, connection: Any, name: str | None) -> Source:
    """The source as rows; ``work`` is a folder for links to files."""
    called = name or "data"
    if connection is not None:
        _refuse_of_files(reading)
        return _of_sql(source, connection, called)
    opened = _of_paths(source, work, reading)
    if opened is None:
        _refuse_of_files(reading)
        opened = _of_object(source, called)
    if name is not None:
        opened.name = name
    return opened


def _refuse_of_files(reading: Reading) -> None:
    """Refuse options that only files have."""
    for option, kind in _OF_FILES.items():
        given = getattr(reading, option)
        if given is not None:
            raise PltfError(f"{py:{option}} requires {kind}, got {brief(given)}")


def _of_sql(source: Any, connection: Any, name: str) -> Source:
    if not isinstance(source, str) or not hasattr(connection, "sql"):
        raise ObservationError(f"{py:connection} must be a DuckDB connection, and {py:source} an SQL query")
    try:
        relation = connection.sql(source)
    except Exception as reason:  # DuckDB reports errors in the query
        raise ObservationError(f"{py:source} is not a valid DuckDB query: {' '.join(str(reason).split())}") from None
    if relation is None:
        raise ObservationError(f"{py:source} must be a query that returns rows, got {brief(source)}")
    return streams.of_relation(relation, name)


def _of_object(source: Any, name: str) -> Source:
    """A source in memory or in batches."""
    module = type(source).__module__.split(".")[0]
    _refuse_others(source, module, name)
    if module in ("dask", "dask_expr") and hasattr(source, "partitions") and hasattr(source, "columns"):
        return streams.of_dask(source, name)
    if module in ("duckdb", "_duckdb") and hasattr(source, "project"):
        return streams.of_relation(source, name)
    if module == "pyarrow" and hasattr(source, "get_fragments"):
        return streams.of_dataset(source, name)
    if is_table(source):
        return streams.of_table(source, name)
    if is_xarray(source):
        return dense.of_xarray(source, name)
    if dense.is_array(source):
        return dense.DenseArray(source, name)
    if _are_tables(source) or (isinstance(source, Iterable) and not isinstance(source, (dict, bytes, list, tuple))):
        return streams.of_batches(source, name)
    raise ObservationError(f"{py:source} must be files, tables or an array, got {_in_words(source)}")


def _refuse_others(source: Any, module: str, name: str) -> None:
    """Refuse data that would lose labels or missing cells if they were read as a table or an array."""
    advice = ""
    if isinstance(source, Observation):
        advice = "an observation is in memory already, or a cell store: pass the data it was made of"
    elif sparse.issparse(source) or module == "sparse":
        advice = "a sparse array is in memory already: fit it as it is, or pass a table of its cells"
    elif is_frame(source) and not hasattr(source, "columns"):
        advice = f"a {type(source).__name__} must be a table: pass its reset_index()"
    elif hasattr(source, "collect_schema") and hasattr(source, "collect"):
        advice = "a lazy table must be collected first; to read it in pieces, pass its files"
    if advice:
        raise ObservationError(f"{name}: {advice}")


def _are_tables(source: Any) -> bool:
    return isinstance(source, (list, tuple)) and bool(source) and all(hasattr(one, "columns") for one in source)


def _in_words(source: Any) -> str:
    return f"an empty {type(source).__name__}" if source in ([], (), {}) else type(source).__name__


# -- files --------------------------------------------------------------------------------------


def _of_paths(source: Any, work: Path, reading: Reading) -> Source | None:
    """A source in files or in a database; None if the source is not made of paths."""
    given = [source] if _is_path(source) else source
    if not isinstance(given, (list, tuple)) or not given or not all(map(_is_path, given)):
        return None
    files = [file for one in given for file in _expanded(one)]
    twice = [file for place, file in enumerate(files) if file in files[:place]] if len(files) < 1000 else []
    if twice:
        raise PltfError(f"{twice[0]} is listed twice")
    if len(files) == 1 and files[0].is_dir():
        if is_store(files[0]):
            raise PltfError(f"{files[0]} is a cell store already")
        array = dense.of_zarr(files[0], reading.variable)
        reading.check(files[0], "zarr")
        return array
    kinds = [kind_of(file, reading) for file in files]
    others = [file for file, kind in zip(files, kinds, strict=True) if kind != kinds[0]]
    if others:
        raise PltfError(f"all files must have one format: {files[0]} is {kinds[0]}, and {others[0]} is not")
    if kinds[0] == "parquet":
        return ParquetTable(files, work)
    if kinds[0] in ("csv", "tsv"):
        return TextTable(files, work, kinds[0], reading)
    if kinds[0] in TABLES:
        return streams.of_files(files, kinds[0], reading)
    if len(files) > 1:
        raise PltfError(f"several files must be tables, and {files[0]} is {kinds[0]}")
    return _of_one(files[0], kinds[0], reading)


def _of_one(file: Path, kind: str, reading: Reading) -> Source:
    if kind == "tns":
        return streams.TnsFile(file, reading.encoding)
    if kind == "npy":
        return dense.of_npy(file)
    if kind == "netcdf":
        return dense.of_hdf5(file, reading.variable)
    raise PltfError(f"{file} cannot be prepared: {kind} files are read whole, with pltf.observe")


def _is_path(one: Any) -> bool:
    return isinstance(one, (str, os.PathLike)) and isinstance(os.fspath(one), str)


def _expanded(given: Any) -> list[Path]:
    """The files that match a pattern, sorted, or the file with this name, or the database at this URL."""
    if isinstance(given, ShownPath):
        return [given]
    text = os.fspath(given)
    if "\0" in text or not text:
        raise PltfError(f"{py:source} must be a file name, got {brief(text)}")
    if is_url(text):
        return [database_url(text) or Path(text)]
    if not _PATTERN & set(text) or os.path.lexists(text):
        return [Path(text)]
    found = sorted(glob.glob(text, recursive=True))
    if not found:
        raise PltfError(f"no file matches {text}")
    return [Path(one) for one in found]
