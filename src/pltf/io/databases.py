"""Tables in databases: SQLite, DuckDB, and any database given by URL."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pltf.data.numeric import brief
from pltf.errors import PltfError, py
from pltf.io.columns import chosen_columns, in_words
from pltf.io.reading import Reading
from pltf.io.records import plain_value
from pltf.io.word_columns import CELL
from pltf.memory import Allowance

if TYPE_CHECKING:
    import pandas as pd

_ROWS = 1 << 12  # rows fetched at a time
_BATCH = 1 << 16  # rows per DuckDB batch
_LEAST = 64e6  # minimum memory of DuckDB in bytes
_URL = re.compile(r"([a-zA-Z][\w+.-]*)://.*", re.DOTALL)
_SECRET = re.compile(r"(?<=://)([^/@\s:]*):([^/@\s]*)@")


def is_url(text: str) -> bool:
    """Whether a text is a database URL.

    >>> is_url("postgresql://ann@host/shop"), is_url("shop.db")
    (True, False)
    """
    return _URL.fullmatch(text) is not None


def without_password(text: str) -> str:
    """Hide the passwords of URLs in a text.

    >>> without_password("pltf fit postgresql://ann:secret@host/shop")
    'pltf fit postgresql://ann:***@host/shop'
    """
    return _SECRET.sub(r"\1:***@", text)


@contextmanager
def database_rows(
    path: Path, kind: str, reading: Reading, columns: Sequence[str] | None, allowance: Allowance
) -> Iterator[tuple[list[str], Iterator[list[Any]]]]:
    """The names and rows of some columns, or of all, of the result of a query."""
    with (_sqlite if kind == "sqlite" else _by_url)(path, reading, allowance) as (written, rows):
        known = reading.header(written)
        wanted = [(at, known[at]) for at in chosen_columns(path, columns, known)]
        yield (
            [name for _, name in wanted],
            (
                [plain_value(path, row[at], f"row {number}", name) for at, name in wanted]
                for number, row in enumerate(rows, 1)
            ),
        )


def _query(path: Path, query: str | None, tables: Sequence[str]) -> str:
    """The query; selects the whole table if a table is named, or if there is only one."""
    name = tables[0] if query is None and len(tables) == 1 else query
    if name is None:
        held = f"the tables {in_words(tables)}" if tables else "no tables"
        raise PltfError(f"{path} has {held}: give the name of one, or a SQL query, with {py:query=}")
    if name in tables:
        name = 'SELECT * FROM "' + name.replace('"', '""') + '"'
    elif not re.search(r"\s", name.strip()):
        raise PltfError(f"{path} has no table {name!r}; it has {in_words(tables) or 'none'}")
    return name


# -- SQLite -------------------------------------------------------------------------------------


@contextmanager
def _sqlite(path: Path, reading: Reading, allowance: Allowance) -> Iterator[tuple[list[str], Iterator[Sequence[Any]]]]:
    """Column names and rows of an SQLite query, which has read-only access to this file only."""
    with closing(
        sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
    ) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, int(min(max(allowance.left, 1 << 16), 2**30)))
        names = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY 1"
        query = _query(path, reading.query, [name for (name,) in connection.execute(names)])
        connection.set_authorizer(_only_reads)
        try:
            cursor = connection.execute(query)
        except sqlite3.DatabaseError as reason:
            if str(reason) == "not authorized":
                raise PltfError(f"{py:query} may only read, got {brief(query)}") from None
            raise
        if cursor.description is None:
            raise PltfError(f"{py:query} must be a SELECT, got {query[:60]!r}")
        yield [one[0] for one in cursor.description], _fetched(cursor)


def _only_reads(action: int, *_: object) -> int:
    """Allow what a query needs, but no access to other files."""
    allowed = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY


def _fetched(cursor: Any) -> Iterator[Sequence[Any]]:
    while rows := cursor.fetchmany(_ROWS):
        yield from rows


# -- DuckDB -------------------------------------------------------------------------------------


@contextmanager
def _duckdb(path: Path, reading: Reading, allowance: Allowance) -> Iterator[Any]:
    """The result of a DuckDB query, which has read-only access to this file only."""
    import duckdb

    memory = int(min(max(allowance.left, _LEAST), 2**50))
    config: Any = {
        "memory_limit": f"{memory}B",
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    with duckdb.connect(str(path), read_only=True, config=config) as connection:
        for setting in ("temp_directory = ''", "enable_external_access = false", "lock_configuration = true"):
            connection.execute(f"SET {setting}")
        tables = connection.execute("SELECT table_name FROM information_schema.tables ORDER BY 1").fetchall()
        found = connection.sql(_query(path, reading.query, [name for (name,) in tables]))
        if found is None:
            raise PltfError(f"{py:query} must be a SELECT, got {str(reading.query)[:60]!r}")
        yield found


def read_duckdb(
    path: Path, reading: Reading, columns: Sequence[str] | None, allowance: Allowance, most: int | None
) -> pd.DataFrame:
    """Read the result of a query."""
    import pyarrow as pa

    batches = []
    for batch in duckdb_batches(path, reading, columns, allowance, most):
        allowance.take(batch.nbytes + CELL * float(batch.num_rows) * batch.num_columns)
        batches.append(batch)
    return pa.concat_tables(batches).to_pandas(integer_object_nulls=True, ignore_metadata=True)


def duckdb_batches(
    path: Path, reading: Reading, columns: Sequence[str] | None, allowance: Allowance, most: int | None = None
) -> Iterator[Any]:
    """The result of a query as Arrow tables, the first of which may be empty."""
    import pyarrow as pa

    with _duckdb(path, reading, allowance) as result:
        names = reading.header(result.columns)
        wanted = chosen_columns(path, columns, names)[:most]
        reader = result.to_arrow_reader(_BATCH)
        for batch in chain([reader.schema.empty_table()], reader):
            yield pa.table(
                [batch.column(at) for at in wanted],
                schema=pa.schema([reader.schema.field(at).with_name(names[at]) for at in wanted]),
            )


def duckdb_columns(path: Path, reading: Reading, allowance: Allowance) -> list[str]:
    """The column names of the result of a query."""
    with _duckdb(path, reading, allowance) as result:
        return reading.header(result.columns)


_COMMENT = re.compile(r"\s+|--[^\n]*(\n|$)|/\*.*?\*/", re.DOTALL)
_READS = re.compile(r"[(\s]*(select|with|values|table|from|show|describe|explain)\b", re.IGNORECASE)


def _only_select(query: str) -> str:
    """A query, if it begins as those do that only read; some databases change tables at once.

    >>> _only_select("/* all of them */ SELECT * FROM shop")
    '/* all of them */ SELECT * FROM shop'
    """
    at = 0
    while found := _COMMENT.match(query, at):
        at = found.end()
    if not _READS.match(query, at):
        raise PltfError(f"{py:query} must be a SELECT, got {query[:60]!r}")
    return query


def _literal(query: str) -> str:
    """A query for ``sqlalchemy.text``, which would take ``:name`` for a parameter."""
    return re.sub(r"(?<![:\w\\]):(?=\w)", r"\\:", query)


# -- by URL -------------------------------------------------------------------------------------


@contextmanager
def _by_url(path: Path, reading: Reading, allowance: Allowance) -> Iterator[tuple[list[str], Iterator[Sequence[Any]]]]:
    """Column names and rows of a query of any database supported by SQLAlchemy."""
    import sqlalchemy

    try:
        engine = sqlalchemy.create_engine(str(getattr(path, "url", path)))
    except sqlalchemy.exc.ArgumentError:
        raise PltfError(f"{path} is not a URL that SQLAlchemy can read") from None
    held = engine.url.database
    if engine.dialect.name == "sqlite" and held and held != ":memory:" and not Path(held).is_file():
        raise PltfError(f"there is no file {held}")  # SQLite would make an empty one
    try:
        tables = sqlalchemy.inspect(engine).get_table_names() if reading.query is None else [reading.query]
        tables = [] if reading.query is not None and re.search(r"\s", reading.query.strip()) else tables
        with engine.connect().execution_options(stream_results=True) as connection:
            result = connection.execute(sqlalchemy.text(_literal(_only_select(_query(path, reading.query, tables)))))
            if not result.returns_rows:
                raise PltfError(f"{py:query} must be a SELECT, got {str(reading.query)[:60]!r}")
            yield list(result.keys()), _fetched(result)
    finally:
        engine.dispose()
