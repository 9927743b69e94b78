"""From labels to positions, in SQL, with all labels on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pltf.data.labels import Labels, labels_of, shown
from pltf.data.part_files import LONGEST
from pltf.data.stored_labels import LABEL, write_labels
from pltf.data.tables import Key
from pltf.errors import ObservationError, py
from pltf.io.prepare.database import ROWS, Database, quoted
from pltf.io.prepare.dates import bin_of, clock, on_the_wall, refuse_ambiguous, span, zone_name
from pltf.io.prepare.sources import Kind, Rows

_WHOLE = "0|-?[1-9][0-9]{0,17}"  # text that is read as whole numbers, if this holds for the whole column
_KINDS = {"O": "text", "i": "whole", "f": "real", "b": "truth", "M": "dates"}


@dataclass(frozen=True)
class Mode:
    """How a column is turned into positions of a mode."""

    dim: str
    size: int
    code: str  # SQL for the position, from the row and the joined tables
    join: str = ""  # SQL that joins tables of positions
    line: dict[str, Any] | None = None  # entry for the labels in store.json


@dataclass(frozen=True)
class Column:
    """A column of labels."""

    database: Database
    rows: Rows
    number: int
    key: Key
    name: str  # of the data

    @property
    def what(self) -> str:
        """For messages."""
        return f"{self.name}: column {self.key.column!r}"

    @property
    def cell(self) -> str:
        """SQL for the label as it was read."""
        return f"r.c{self.number}"

    @property
    def kind(self) -> Kind:
        """The type of its labels."""
        return self.rows.kinds[self.number]

    def one(self, query: str) -> tuple[Any, ...]:
        """The only row of a result."""
        return self.database.rows(query)[0]


def coded(column: Column, folder: Path, known: Labels | None) -> Mode:
    """Turn labels into positions; unless ``known`` has the labels, they are found and written to the folder."""
    kind = column.kind
    if kind.name == "nothing":
        raise ObservationError(f"{column.what} has no labels")
    if kind.name not in _KINDS.values():
        raise ObservationError(f"{column.what} must hold strings, numbers or dates, got {kind.description}")
    _refuse_absent(column)
    if known is not None:
        return _given(column, folder, known)
    return _in_bins(column, folder, column.key.bin) if column.key.bin else _found(column, folder)


def _refuse_absent(column: Column) -> None:
    absent = f"{column.cell} IS NULL" + (f" OR isnan({column.cell})" if column.kind.name == "real" else "")
    # Not WHERE: Parquet statistics ignore NaN, and DuckDB would skip these rows.
    count = column.one(f"SELECT count_if({absent}) FROM {column.rows.table} r")[0]
    if count:
        where = column.rows.where(column.database, absent)
        several = "1 row has" if count == 1 else f"{count:,} rows have"
        raise ObservationError(f"{column.what}: {several} no label{where}: drop these rows or fill in a label")


def _refuse_long(column: Column, size: int) -> None:
    if size > LONGEST:
        raise ObservationError(
            f"{column.what} has {size:,} labels, and a mode of a cell store can have at most {LONGEST:,}"
        )


# -- positions ----------------------------------------------------------------------------------


def positions(column: Column, folder: Path, size: int | None, first: int) -> Mode:
    """A column of positions that start at ``first``; those that start at 1 become labels, too."""
    if column.key.bin is not None:
        raise ObservationError(
            f"{column.what} holds positions, because {py:shape=} is given, and cannot be binned by {column.key.bin}"
        )
    if column.kind.name == "text" and column.rows.text:
        _refuse_words(column)
    elif column.kind.name != "whole":
        raise ObservationError(f"{column.what} must hold whole numbers, got {column.kind.description}")
    _refuse_absent(column)
    cell = f"CAST({column.cell} AS BIGINT)"
    low, high = column.one(f"SELECT min({cell}), max({cell}) FROM {column.rows.table} r")
    size = high + 1 - first if size is None else size
    if low < first or high - first >= size:
        wrong = low if low < first else high
        where = column.rows.where(column.database, f"CAST({column.cell} AS BIGINT) = {wrong}")
        last = size - 1 + first
        raise ObservationError(f"{column.what} must hold positions from {first} to {last}, got {wrong}{where}")
    _refuse_long(column, size)
    line = _write_range(folder, column.number, first, size) if first else None
    return Mode(column.key.dim, size, f"{cell} - {first}", line=line)


def _refuse_words(column: Column) -> None:
    """Raise an error for positions in text files that are not whole numbers."""
    wrong = f"NOT regexp_full_match({column.cell}, {quoted(_WHOLE)})"
    found = column.database.rows(f"SELECT {column.cell} AS c FROM {column.rows.table} r WHERE {wrong} LIMIT 1")
    if found:
        raise ObservationError(f"{column.what} must hold whole numbers, got {shown(found[0][0])}")


def _write_range(folder: Path, number: int, first: int, size: int) -> dict[str, Any]:
    """Write labels that are consecutive integers."""
    import pyarrow as pa

    starts = range(first, first + size, ROWS)
    return write_labels(folder, number, (pa.array(np.arange(n, min(n + ROWS, first + size))) for n in starts))


# -- labels found in the data --------------------------------------------------------------------


def _found(column: Column, folder: Path) -> Mode:
    """All labels of a column, sorted."""
    zone = None if column.kind.zone is None else zone_name(column.kind.zone, column.what)
    cell = column.cell if zone is None else on_the_wall(column.cell, zone)
    distinct = f"labels{column.number}"
    column.database.run(f"CREATE TABLE {distinct} AS SELECT DISTINCT {cell} AS l FROM {column.rows.table} r")
    count = column.one(f"SELECT count(*) FROM {distinct}")[0]
    _refuse_long(column, count)
    if zone is not None:
        refuse_ambiguous(column, count, zone)
    kept = _kept(column, distinct)
    if kept == "CAST({} AS BIGINT)":
        low, high = column.one(f"SELECT min({kept.format('l')}), max({kept.format('l')}) FROM {distinct}")
        if high - low + 1 == count:  # consecutive integers need no table
            line = _write_range(folder, column.number, low, count)
            return Mode(column.key.dim, count, f"{kept.format(cell)} - ({low})", line=line)
    batches = column.database.batches(f"SELECT {kept.format('l')} AS l FROM {distinct} ORDER BY 1")
    line = write_labels(folder, column.number, (batch.column(0) for batch in batches), zone=zone)
    column.database.run(f"DROP TABLE {distinct}")
    return _by_table(column, folder, line, kept.format(cell))


def _kept(column: Column, distinct: str) -> str:
    """SQL that converts a label to the type it is stored in, with a placeholder for the label."""
    kind = column.kind.name
    if kind == "text" and column.rows.text:
        query = f"bool_and(regexp_full_match(l, {quoted(_WHOLE)})), bool_or(contains(l, chr(0)))"
        whole, broken = column.one(f"SELECT {query} FROM {distinct}")
        if broken:
            raise ObservationError(f"{column.what} must be text without NUL characters")
        return "CAST({} AS BIGINT)" if whole else "{}"
    if kind == "whole":
        high = int(column.one(f"SELECT CAST(max(l) AS VARCHAR) FROM {distinct}")[0])
        if high >= 2**63:
            raise ObservationError(f"{column.what}: whole numbers must be below 2**63, got {high}")
        return "CAST({} AS BIGINT)"
    if kind == "real":
        wrong = column.database.rows(f"SELECT CAST(l AS DOUBLE) AS l FROM {distinct} WHERE NOT isfinite(l) LIMIT 1")
        if wrong:
            where = column.rows.where(column.database, f"isinf({column.cell})")
            raise ObservationError(f"{column.what}: labels must be finite, got {wrong[0][0]}{where}")
        return "CAST({} AS DOUBLE)"
    return "{}"


def _by_table(column: Column, folder: Path, line: dict[str, Any], key: str, join: str = "", cast: str = "l") -> Mode:
    """Positions from a table of the labels in a file, joined to the rows by ``key``."""
    import pyarrow as pa

    path, table, alias = str(folder / line["file"]), f"codes{column.number}", f"t{column.number}"

    def batches() -> Iterator[Any]:
        first = 0
        with pa.OSFile(path) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                labels = reader.get_batch(number).column(LABEL)
                yield pa.record_batch({"l": labels, "p": np.arange(first, first + len(labels), dtype=np.int64)})
                first += len(labels)

    with pa.OSFile(path) as file:
        type_ = pa.ipc.open_file(file).schema.field(LABEL).type
    column.database.create(table, pa.schema([("l", type_), ("p", pa.int64())]), batches(), f"{cast} AS l, p")
    join = f"{join} JOIN {table} {alias} ON {alias}.l = {key}"
    return Mode(column.key.dim, line["count"], f"{alias}.p", join, line)


# -- bins of dates, and given labels -----------------------------------------------------------


def _in_bins(column: Column, folder: Path, bin: str) -> Mode:
    """All bins from the first to the last."""
    moment, join, zone = clock(column)
    labels = replace(labels_of(span(column, moment, join), column.what, bin)[0], zone=zone)
    line = write_labels(folder, column.number, labels)
    return _by_table(column, folder, line, bin_of(bin, moment), join, _of_bins(bin))


def _of_bins(bin: str | None) -> str:
    """SQL for labels of dates, to compare with times."""
    return "l" if bin in ("weekday", "hourofday") else "CAST(l AS TIMESTAMP)"


def _given(column: Column, folder: Path, known: Labels) -> Mode:
    """Positions among given labels; a row with another label is an error."""
    labels = replace(known, bin=column.key.bin) if column.key.bin else known
    kind, join, cast = _KINDS[labels.index.dtype.kind], "", "l"
    if labels.bin is not None or kind == "dates":
        if column.kind.zone is not None and labels.zone is None:
            zone = column.kind.zone
            raise ObservationError(f"{column.what} has dates in the time zone {zone}, but the labels have no time zone")
        key, join, _ = clock(column, labels.zone)
        key, cast = key if labels.bin is None else bin_of(labels.bin, key), _of_bins(labels.bin)
    else:
        key, cast = _comparable(column, kind)
    mode = _by_table(column, folder, write_labels(folder, column.number, labels), key, join, cast)
    _refuse_unknown(column, mode, labels)
    return mode


def _comparable(column: Column, kind: str) -> tuple[str, str]:
    """SQL for the labels of a column and for given labels, to compare them."""
    its = column.kind.name
    numbers = ("whole", "real")
    if kind in numbers and its == "text" and column.rows.text:
        return f"TRY_CAST({column.cell} AS {'BIGINT' if kind == 'whole' else 'DOUBLE'})", "l"
    if kind in numbers and its in numbers and kind != its:
        return f"CAST({column.cell} AS DOUBLE)", "CAST(l AS DOUBLE)"
    if kind != its:
        other = Kind(kind).description
        raise ObservationError(
            f"{column.what} holds {column.kind.description}, but the labels of {column.key.dim!r} are {other}"
        )
    return column.cell, "l"


def _refuse_unknown(column: Column, mode: Mode, labels: Labels) -> None:
    joins = mode.join.replace(" JOIN codes", " LEFT JOIN codes")
    found = column.database.rows(
        f"SELECT {column.cell} FROM {column.rows.table} r {joins} WHERE {mode.code} IS NULL LIMIT 1"
    )
    if found:
        known = f"one of its {len(labels):,} labels, {labels.summary}"
        where = column.rows.where(column.database, f"CAST({column.cell} AS VARCHAR) = {quoted(str(found[0][0]))}")
        raise ObservationError(f"{column.what} has {shown(found[0][0])}{where}, which is not {known}")
