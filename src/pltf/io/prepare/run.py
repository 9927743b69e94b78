"""Turn a source of any size into a cell store."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pltf.data.coo import DUPLICATES, UNLISTED, whole_sizes
from pltf.data.forms import letters
from pltf.data.labels import Labels, given_labels, refuse_unknown, shown
from pltf.data.numeric import EXACT, INFINITE, NEGATIVE, ROUNDED, brief
from pltf.data.part_files import CELLS_OF_A_PART, LONGEST, StoreWriter
from pltf.data.part_files import VALUE as COUNT_COLUMN
from pltf.data.stored import StoredObservation, open_store
from pltf.data.stored_labels import LABEL, write_labels
from pltf.data.tables import Key, keys_of
from pltf.engines.plan import human
from pltf.errors import ObservationError, PltfError, choice, flag, py, whole
from pltf.inference.progress import Progress
from pltf.io.columns import in_words
from pltf.io.prepare.cells import Cells, Keys, Packing
from pltf.io.prepare.coding import Column, Mode, coded, positions
from pltf.io.prepare.database import Database, Stages
from pltf.io.prepare.dense import DenseArray
from pltf.io.prepare.opening import opened_source
from pltf.io.prepare.sources import VALUE, Rows, Source, unchanged
from pltf.io.prepare.streams import TnsFile
from pltf.io.prepare.target import checked_target, new_store
from pltf.io.reading import Reading
from pltf.memory import at_hand, checked_limit, save_address_space
from pltf.threads import available_threads

_LARGEST_SHARE, _MOST_MEMORY, _LEAST_MEMORY = 0.25, 2 << 30, 64 << 20


@dataclass(frozen=True)
class Prepared:
    """The store that :func:`pltf.prepare` has written; it can be used as a path."""

    path: Path
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    cells: int
    missing: int
    parts: int
    total: float
    size: int  # bytes
    seconds: float

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def open(self) -> StoredObservation:
        """Open the store, as :func:`pltf.open` does."""
        return open_store(self.path)

    def __str__(self) -> str:
        sizes = ", ".join(f"{size:,} {dim}" for dim, size in zip(self.dims, self.shape, strict=True))
        parts = "1 part" if self.parts == 1 else f"{self.parts:,} parts"
        missing = f", {self.missing:,} missing" if self.missing else ""
        return (
            f"{self.path}: {self.cells:,} cells{missing} of {sizes} in {parts}, total {self.total:g}, "
            f"{human(self.size, 'B')}, {self.seconds:.1f} s"
        )


def prepare(
    source: Any,
    path: str | os.PathLike[str],
    *,
    dims: Sequence[str] | Mapping[str, str] | None = None,
    value: str | None = None,
    unlisted: str = "zero",
    shape: Sequence[int] | None = None,
    labels: Mapping[str, Any] | None = None,
    duplicates: str = "error",
    variable: str | None = None,
    sheet: str | None = None,
    query: str | None = None,
    encoding: str | None = None,
    connection: Any = None,
    memory_limit: float | None = None,
    threads: int | None = None,
    cells_per_part: int = CELLS_OF_A_PART,
    overwrite: bool = False,
    progress: bool = True,
    name: str | None = None,
) -> Prepared:
    """Sort a table or array of any size into a cell store, a folder on disk that :func:`pltf.open` opens.

    Neither the data nor the cells need to fit in memory. The arguments are those of :func:`pltf.observe`, with one
    difference: without ``value=`` every row counts one. A row without a value makes its cell missing.

    Parameters
    ----------
    source
        Files: a path, a pattern such as ``"events/*.parquet"``, or a list of them, all of one format: CSV, TSV (also
        .gz, .zst, .zip), Parquet, Feather, JSON lines, Excel, SQLite or DuckDB; the URL of a database; one ``.tns``,
        ``.npy``, HDF5 or Zarr. Tables of pandas, polars, pyarrow or ``dask.dataframe``; an
        iterable of tables or Arrow batches; a DuckDB relation, or SQL with ``connection=``. Dense arrays of NumPy,
        h5py, Zarr, Dask and xarray, where NaN is missing and zero is a value.
    path
        The folder to write. It appears when everything is written, and not before.
    dims, value, unlisted, shape, labels, duplicates
        As for :func:`pltf.observe`.
    variable
        Name of the array, in a file with several arrays.
    sheet, query, encoding
        Sheet of a workbook; SQL or the name of a table, for a database; encoding of text, such as ``"cp1252"``.
    connection
        A DuckDB connection, if ``source`` is an SQL query.
    memory_limit
        Bytes for reading and sorting; what does not fit is written to a temporary folder beside ``path``. Python needs
        some 500 MB more. Default: a quarter of the free memory, at most 2 GiB.
    threads
        Default: all cores.
    cells_per_part
        Approximate number of cells in a part. A part ends where a position of the longest mode ends.
    overwrite
        Replace an existing store.
    progress
        Show progress on the terminal.
    name
        Name of the data in messages.

    Returns
    -------
    Prepared
        Path, shape, number of cells and size of the store; ``open()`` opens it.

    Examples
    --------
    >>> import pandas as pd, pltf, tempfile, os
    >>> events = pd.DataFrame({"who": ["ann", "bob", "ann"], "where": ["bar", "bar", "bar"]})
    >>> path = os.path.join(tempfile.mkdtemp(), "cells.pltf")
    >>> store = pltf.prepare(events, path, dims={"who": "user", "where": "place"})
    >>> store.shape, store.cells, store.total
    ((2, 1), 2, 3.0)
    >>> store.open()
    <StoredObservation 2x1 uint8: 2 of 2 cells observed, total 3>
    """
    began = time.perf_counter()
    target = checked_target(path, flag("overwrite", overwrite))
    choice("unlisted", unlisted, UNLISTED, ObservationError)
    choice("duplicates", duplicates, DUPLICATES, ObservationError)
    whole("cells_per_part", cells_per_part, 1)
    save_address_space()
    memory = _memory(memory_limit)
    threads = available_threads() if threads is None else whole("threads", threads, 1)
    given = given_labels(labels, "")
    reading = Reading(variable=variable, sheet=sheet, query=query, encoding=encoding)
    with (
        new_store(target, overwrite) as (store, folder),
        Progress(flag("progress", progress), 1.0, time_left=True) as bar,
    ):
        data = opened_source(source, folder, reading, connection, name)
        keys = _keys(data, dims, shape)
        _check_value(data, keys, value)
        stages = Stages(data.name, bar)
        with unchanged(data.files), Database(folder, data.files, memory, threads, stages) as database:
            stages.start("reading", 0.0, 0.2)
            known = {**data.labels(keys), **given}
            rows = data.rows(database, keys, _value_of(data, value), known)
            unlisted = data.unlisted if isinstance(data, DenseArray) else unlisted
            modes = _modes(database, data, rows, keys, shape, known, store, stages)
            packing = Packing.of([mode.size for mode in modes])
            work = _Work(database, data.name, rows, modes, store, stages, packing)
            done = work.cells(unlisted, duplicates, cells_per_part)
        size = sum(file.stat().st_size for file in store.iterdir())
    return Prepared(path=target, **done, size=size, seconds=time.perf_counter() - began)


# -- arguments ----------------------------------------------------------------------------------


def _memory(limit: float | None) -> float:
    if limit is None:
        return max(min(_LARGEST_SHARE * at_hand(), _MOST_MEMORY), _LEAST_MEMORY)
    try:
        memory = checked_limit(limit)
    except PltfError:
        memory = 0.0
    if not _LEAST_MEMORY <= memory < math.inf:
        raise PltfError(f"{py:memory_limit} must be a number of bytes, at least {_LEAST_MEMORY:,}; got {brief(limit)}")
    return memory


def _keys(data: Source, dims: Any, shape: Any) -> list[Key]:
    if isinstance(data, (DenseArray, TnsFile)):
        keys = _axes(data, dims, shape)
    else:
        keys = keys_of(dims, data.columns(), data.name)
    reserved = [key.dim for key in keys if key.dim in ("", COUNT_COLUMN)]
    if reserved:
        raise ObservationError(f"{data.name}: an index of a cell store cannot be called {reserved[0]!r}: rename it")
    return keys


def _axes(data: DenseArray | TnsFile, dims: Any, shape: Any) -> list[Key]:
    """The axes of a source without column names."""
    sizes = data.sizes()
    if shape is not None and tuple(shape) != sizes:
        raise ObservationError(f"{data.name} has the shape {sizes}: {py:shape} must be None")
    columns, names = data.columns()[: len(sizes)], dims
    if isinstance(dims, Mapping) and all(column == name for column, name in dims.items()):  # from the command line
        names = list(dims)
    if dims is None and isinstance(data, DenseArray) and data.dims:
        names = list(data.dims)
    elif dims is None:
        names = letters(len(sizes))
    listed = isinstance(names, (list, tuple)) and all(isinstance(one, str) for one in names)
    if not listed or len(names) != len(sizes) or len(set(names)) != len(sizes):
        raise ObservationError(f"{data.name}: {py:dims} must be {len(sizes)} different names, got {brief(dims)}")
    return [Key(column, None, dim) for column, dim in zip(columns, names, strict=True)]


def _check_value(data: Source, keys: Sequence[Key], value: Any) -> None:
    if value is None:
        return
    if isinstance(data, (DenseArray, TnsFile)):
        raise ObservationError(f"{py:value} requires a table, and {data.name} is not one")
    columns = data.columns()
    if value not in columns:
        advice = f"it has {in_words(columns)}"
        raise ObservationError(f"{data.name}: {py:value} must be a column of the table, got {brief(value)}; {advice}")
    if any(key.column == value and key.bin is None for key in keys):
        raise ObservationError(f"{data.name}: column {value!r} cannot hold both labels and values")


def _value_of(data: Source, value: str | None) -> str | None:
    return VALUE if isinstance(data, (DenseArray, TnsFile)) else value


# -- the work -----------------------------------------------------------------------------------


def _modes(
    database: Database,
    data: Source,
    rows: Rows,
    keys: Sequence[Key],
    shape: Any,
    known: Mapping[str, Labels],
    store: Path,
    stages: Stages,
) -> list[Mode]:
    """Find the positions of each index, and write its labels to the store."""
    refuse_unknown(known, [key.dim for key in keys], data.name)
    sizes = data.sizes() if shape is None else _sizes(shape, len(keys), data.name)
    if sizes is not None and known and not isinstance(data, (DenseArray, TnsFile)):
        raise ObservationError(
            f"{data.name}: columns hold positions with {py:shape=}, and labels with {py:labels=}: pass only one of them"
        )
    modes = []
    for number, key in enumerate(keys):
        stages.start(f"labels of {key.dim}", 0.2 + 0.3 * number / len(keys), 0.2 + 0.3 * (number + 1) / len(keys))
        column = Column(database, rows, number, key, data.name)
        if not database.rows(f"SELECT 1 FROM {rows.table} r LIMIT 1"):
            _refuse_empty(data)
        if sizes is None:
            modes.append(coded(column, store, known.get(key.dim)))
        else:
            first = int(isinstance(data, TnsFile))
            mode = positions(column, store, sizes[number] or None, first)
            modes.append(_labelled(mode, known.get(key.dim), store, number, data.name))
    return modes


def _labelled(mode: Mode, labels: Labels | None, store: Path, number: int, name: str) -> Mode:
    """Give an axis of an array its labels."""
    if labels is None or mode.line is not None:
        return mode
    if len(labels) != mode.size:
        raise ObservationError(
            f"{name}: index {mode.dim!r} has {mode.size} positions, but {py:labels} has {len(labels)} for it"
        )
    return replace(mode, line=write_labels(store, number, labels))


def _sizes(shape: Any, modes: int, name: str) -> tuple[int, ...]:
    sizes = whole_sizes(shape)
    if len(sizes) != modes or max(sizes) > LONGEST:
        raise ObservationError(
            f"{name}: {py:shape} must be whole numbers from 1 to 2**31 - 1, one for each of {modes} modes; "
            f"got {brief(shape)}"
        )
    return sizes


def _refuse_empty(data: Source) -> None:
    if isinstance(data, DenseArray) and data.unlisted == "zero":
        raise ObservationError(f"{data.name} has only zeros")
    raise ObservationError(f"{data.name} has no rows")


@dataclass(frozen=True)
class _Work:
    """Sorts rows and writes parts, once positions are known."""

    database: Database
    name: str
    rows: Rows
    modes: list[Mode]
    store: Path
    stages: Stages
    packing: Packing

    def cells(self, unlisted: str, duplicates: str, cells_per_part: int) -> dict[str, Any]:
        """Sort the rows and write the parts; returns fields of :class:`Prepared`."""
        counted = self.rows.value is None
        whole_values = True if counted else self._checked_values()
        packing, dims = self.packing, tuple(mode.dim for mode in self.modes)
        writer = StoreWriter(self.store, dims, packing.owner, unlisted, "uint8")
        cells = Cells(
            writer=writer,
            packing=packing,
            size=cells_per_part,
            counted=counted,
            whole=whole_values,
            duplicates=duplicates,
            unlisted=unlisted,
            called=self._called,
        )
        self.stages.start("sorting", 0.5, 0.8)
        for keys, values in self._sorted(duplicates == "sum" and not whole_values):
            cells.take(keys, values)
            self.stages.start("writing", 0.8, 1.0)
        missing = cells.finish()
        totals = writer.totals
        if not math.isfinite(totals.total):
            raise ObservationError(f"{self.name}: observed values must add up to less than 1.8e308, got {totals.total}")
        lines = {mode.dim: mode.line for mode in self.modes if mode.line is not None}
        sizes = tuple(mode.size for mode in self.modes)
        writer.finish(sizes, lines, missing if unlisted == "zero" else None)
        found = {"shape": sizes, "dims": dims, "cells": totals.cells, "missing": missing.shape[1]}
        return found | {"parts": writer.parts, "total": totals.total}

    def _sorted(self, by_value: bool) -> Any:
        """Sorted keys (keys, rows) and values; equal keys sorted by value if the order matters for their sum."""
        packed = self.packing.sql([mode.code for mode in self.modes])
        names = [f"k{number}" for number in range(len(packed))]
        columns = [f"{sql} AS {name}" for sql, name in zip(packed, names, strict=True)]
        columns += [] if self.rows.value is None else [f"CAST(r.{VALUE} AS DOUBLE) AS {VALUE}"]
        joins = " ".join(mode.join for mode in self.modes)
        order = ", ".join([*names, VALUE] if by_value else names)
        query = f"SELECT {', '.join(columns)} FROM {self.rows.table} r {joins} ORDER BY {order}"
        for batch in self.database.batches(query):
            keys = np.stack([batch.column(number).to_numpy() for number in range(len(names))])
            yield keys, None if self.rows.value is None else batch.column(len(names)).to_numpy(zero_copy_only=False)

    def _checked_values(self) -> bool:
        """Refuse values that cannot be counts; returns whether all are whole numbers."""
        v = f"r.{VALUE}"
        query = f"min({v}), max({v}), bool_and({v} % 1 = 0)"
        low, high, whole_values = self.database.rows(f"SELECT {query} FROM {self.rows.table} r")[0]
        exact = self.rows.value is not None and self.rows.value.name == "whole"
        for wrong, rule in (
            (low is not None and low < 0, NEGATIVE),
            (high is not None and math.isinf(high), INFINITE),
            (exact and high is not None and high > EXACT, ROUNDED),
        ):
            if wrong:
                bad = low if rule == NEGATIVE else high
                where = self.rows.where(
                    self.database, f"{VALUE} = {bad!r}" if math.isfinite(bad) else f"isinf({VALUE})"
                )
                raise ObservationError(f"{self.name}: observed values must be {rule}, but one is {bad}{where}")
        return bool(whole_values is None or whole_values)

    def _called(self, keys: Keys) -> str:
        """Describe a cell by its labels."""
        import pyarrow as pa

        names = []
        for mode, (position,) in zip(self.modes, self.packing.columns(keys), strict=True):
            if mode.line is None:
                names.append(str(position))
                continue
            with pa.memory_map(str(self.store / mode.line["file"])) as file:
                label = pa.ipc.open_file(file).read_all().column(LABEL)[int(position)]
            names.append(shown(label.as_py()))
        return f"({', '.join(names)})"
