"""Tables in Parquet files and in delimited text files."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from pltf.data.numeric import EXACT, INFINITE, ROUNDED
from pltf.data.tables import Key
from pltf.errors import ObservationError, PltfError
from pltf.io.columns import refuse_absent
from pltf.io.delimited import delimited_columns, separator_of
from pltf.io.opening import packing_of, readable, unpacked
from pltf.io.prepare.database import Database, named, quoted
from pltf.io.prepare.sources import BAD, ROWS_TABLE, VALUE, Kind, Known, Rows, Source, column_kind, name_of, same_kinds
from pltf.io.reading import Reading
from pltf.io.word_columns import NO_VALUE, TRUTH, number_in
from pltf.memory import Allowance

_GLOB = frozenset("*?[")
_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"


class FileTable(Source):
    """Tables in files of one format."""

    def __init__(self, files: Sequence[Path], links: Path) -> None:
        self.original = list(files)
        self.files: list[Path] = [_as_read(file, links / f"source-{number}") for number, file in enumerate(files)]
        self.name = name_of(files)


def _as_read(file: Path, link: Path) -> Path:
    """A path to the file without characters that DuckDB takes for a pattern."""
    if not _GLOB & set(str(file)):
        return file.resolve() if not _GLOB & set(str(file.resolve())) else file.absolute()
    link.symlink_to(file.absolute())
    return link


def _decoded(file: Path, target: Path, encoding: str | None) -> Path:
    """A copy of text in UTF-8, without its compression, which DuckDB can read."""
    with unpacked(file, encoding) as text, target.open("wb") as copy:
        shutil.copyfileobj(text, copy)
    return target


class ParquetTable(FileTable):
    """Parquet files, which DuckDB reads again for each query: nothing is copied."""

    def __init__(self, files: Sequence[Path], links: Path) -> None:
        super().__init__(files, links)
        import pyarrow.parquet as pq

        self._schemas = []
        for file in files:
            with readable(file, "parquet"):
                self._schemas.append(pq.read_schema(file))

    def columns(self) -> list[str]:
        return list(self._schemas[0].names)

    def _kind(self, column: str) -> Kind:
        for file, schema in zip(self.original, self._schemas, strict=True):
            refuse_absent(file, [column], schema.names)
        found = [
            (str(file), column_kind(one.field(column).type))
            for file, one in zip(self.original, self._schemas, strict=True)
        ]
        return same_kinds(found, column)

    def rows(self, database: Database, keys: Sequence[Key], value: str | None, known: Known) -> Rows:
        kinds = [self._kind(key.column) for key in keys]
        its = None if value is None else self._kind_of_values(value)
        names = [f"{named(key.column)} AS c{number}" for number, key in enumerate(keys)]
        if value is not None and its is not None:
            names.append(f"{number_sql(named(value), its, self.name, value)} AS {VALUE}")
        files = ", ".join(quoted(str(file)) for file in self.files)
        read = f"read_parquet([{files}], union_by_name=true, hive_partitioning=false"
        originals = dict(zip(map(str, self.files), self.original, strict=True))
        columns, places = ", ".join(names), "filename AS file, file_row_number AS row"
        located = f"(SELECT {columns}, {places} FROM {read}, filename=true, file_row_number=true))"
        return Rows(f"(SELECT {columns} FROM {read}))", kinds, its, located=located, files=originals)

    def _kind_of_values(self, column: str) -> Kind:
        """The kind of the values; files may mix whole and real numbers."""
        try:
            return self._kind(column)
        except ObservationError:
            kinds = {column_kind(schema.field(column).type).name for schema in self._schemas}
            if kinds <= {"whole", "real", "decimals"}:
                return Kind("real")
            raise


def number_sql(cell: str, kind: Kind, name: str, column: str) -> str:
    """SQL for values, NULL where they are missing."""
    if kind.name == "real":
        return f"CASE WHEN isnan({cell}) THEN NULL ELSE CAST({cell} AS DOUBLE) END"
    if kind.name in ("whole", "decimals", "nothing", "truth"):
        return cell if kind.name == "whole" else f"CAST({cell} AS {'TINYINT' if kind.name == 'truth' else 'DOUBLE'})"
    raise ObservationError(f"{name}: column {column!r} must hold numbers, got {kind.description}")


class TextTable(FileTable):
    """Delimited text files, whose columns are read once into the database."""

    def __init__(self, files: Sequence[Path], links: Path, kind: str, reading: Reading) -> None:
        super().__init__(files, links)
        self._heads = []
        for number, file in enumerate(files):
            with readable(file, kind, reading.encoding):
                names = tuple(delimited_columns(file, kind, Allowance(file), reading))
                if reading.encoding is not None or packing_of(file) == "zip":
                    self.files[number] = _decoded(file, links / f"text-{number}", reading.encoding)
                self._heads.append((separator_of(file, kind, reading), names, packing_of(self.files[number])))

    def columns(self) -> list[str]:
        return list(self._heads[0][1])

    def rows(self, database: Database, keys: Sequence[Key], value: str | None, known: Known) -> Rows:
        wanted = [key.column for key in keys] + ([] if value is None else [value])
        for file, (_, names, _) in zip(self.original, self._heads, strict=True):
            refuse_absent(file, wanted, names)
        groups = groupby(zip(self.files, self._heads, strict=True), key=lambda one: one[1])
        parts = [_read_text([file for file, _ in some], head, keys, value) for head, some in groups]
        database.run(f"CREATE TABLE {ROWS_TABLE} AS {' UNION ALL '.join(parts)}")
        if value is not None:
            self._refuse_words(database, value)
        kinds = [Kind("text")] * len(keys)
        return Rows(ROWS_TABLE, kinds, None if value is None else Kind("real"), text=True)

    def _refuse_words(self, database: Database, value: str) -> None:
        found = database.rows(f"SELECT {BAD} FROM {ROWS_TABLE} WHERE {BAD} IS NOT NULL LIMIT 1")
        if not found:
            return
        word = found[0][0]
        if number_in(word) is None:
            advice = "to count rows, do not name a value column"
            raise PltfError(f"{self.name}: column {value!r} has {word[:40]!r}, which is not a number; {advice}")
        limit = INFINITE if math.isinf(float(number_in(word) or 0)) else ROUNDED
        raise ObservationError(f"{self.name}: observed values must be {limit}, but column {value!r} holds {word[:40]}")


def _read_text(
    files: Iterable[Path], head: tuple[str, tuple[str, ...], str | None], keys: Sequence[Key], value: str | None
) -> str:
    """SQL for the wanted columns of files with the same header."""
    separator, names, packed = head
    columns = ", ".join(f"'k{number}': 'VARCHAR'" for number in range(len(names)))
    how = (
        f"auto_detect=false, columns={{{columns}}}, header=true, delim={quoted(separator)}, quote='\"', escape='\"', "
        f"strict_mode=true, nullstr='', comment='', compression='{packed or 'none'}'"
    )
    wanted = [f"nullif({_stripped(f'k{names.index(key.column)}')}, '') AS c{number}" for number, key in enumerate(keys)]
    if value is not None:
        word = f"trim(k{names.index(value)})"
        wanted += [f"{_value_of(word)} AS {VALUE}", f"{_bad(word)} AS {BAD}"]
    return f"SELECT {', '.join(wanted)} FROM read_csv([{', '.join(quoted(str(file)) for file in files)}], {how})"


def _stripped(word: str) -> str:
    """SQL of a label without leading and trailing blanks."""
    return rf"regexp_replace({word}, '^\s+|\s+$', '', 'g')"


def _value_of(word: str) -> str:
    """SQL for the number in a string, as :func:`pltf.io.word_columns.number_in` reads it."""
    absent = ", ".join(map(quoted, sorted(NO_VALUE)))
    truth = " ".join(f"WHEN lower({word}) = {quoted(one)} THEN {number}" for one, number in TRUTH.items())
    number = f"WHEN regexp_full_match({word}, {quoted(_NUMBER)}) THEN TRY_CAST({word} AS DOUBLE)"
    return f"CASE WHEN {word} IS NULL OR {word} IN ({absent}) THEN NULL {number} {truth} END"


def _bad(word: str) -> str:
    """SQL for a string that is not a number, or not one that float64 represents exactly."""
    absent = ", ".join(map(quoted, sorted(NO_VALUE)))
    value, whole = _value_of(word), f"regexp_full_match({word}, '[+-]?[0-9]{{16,}}')"
    rounded = f"({whole} AND coalesce(TRY_CAST({word} AS HUGEINT) > {EXACT}, true))"
    return f"CASE WHEN {word} NOT IN ({absent}) AND ({value} IS NULL OR isinf({value}) OR {rounded}) THEN {word} END"
