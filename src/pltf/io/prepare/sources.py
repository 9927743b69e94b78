"""Data sources as rows that DuckDB can read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pltf.data.labels import Labels
from pltf.data.tables import Key
from pltf.errors import ObservationError, PltfError
from pltf.io.prepare.database import Database

ROWS_TABLE = "staged"  # for sources that can be read only once
Known = Mapping[str, Labels]  # by index
VALUE, BAD = "v", "bad"  # columns besides those of the indices, c0, c1, ...; BAD has text that is not a number


@dataclass(frozen=True)
class Kind:
    """The type of a column."""

    name: str  # "text", "whole", "real", "truth", "dates", or the name of another type
    zone: str | None = None

    @property
    def description(self) -> str:
        """For messages."""
        known = {"whole": "whole numbers", "real": "real numbers", "truth": "True and False"}
        return known.get(self.name, self.name) + (f" of {self.zone}" if self.zone else "")


@dataclass(frozen=True)
class Rows:
    """Rows in the database, with columns c0, c1, ... for the indices and v for the values."""

    table: str  # for the FROM clause
    kinds: Sequence[Kind]  # of the index columns
    value: Kind | None
    text: bool = False  # all columns are text, but labels may still be whole numbers
    located: str | None = None  # the same rows with columns "file" and "row"
    files: Mapping[str, Path] = field(default_factory=dict)  # by their names in the database

    def where(self, database: Database, wrong: str) -> str:
        """Describe the first row that satisfies a condition; "" if it is not known."""
        if self.located is None:
            return ""
        query = f"SELECT file, row FROM {self.located} r WHERE {wrong} ORDER BY file, row LIMIT 1"
        try:
            found = database.rows(query)
        except PltfError:  # the file has columns with these names
            return ""
        return f" (row {found[0][1] + 1} of {self.files[found[0][0]]})" if found else ""


class Source(ABC):
    """A source of rows."""

    name: str
    files: Sequence[Path] = ()  # that DuckDB may read

    @abstractmethod
    def columns(self) -> list[str]:
        """The names of the columns, of the first file if there are several."""

    @abstractmethod
    def rows(self, database: Database, keys: Sequence[Key], value: str | None, known: Known) -> Rows:
        """The rows, with these columns; ``known`` are labels that need not be found."""

    def labels(self, keys: Sequence[Key]) -> Known:
        """Labels that the source defines itself, such as categories."""
        return {}

    def sizes(self) -> tuple[int, ...] | None:
        """The sizes of the modes if the columns hold positions, zero if not known; otherwise None."""
        return None


def name_of(files: Sequence[Path]) -> str:
    """What files are called in messages."""
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def column_kind(type_: Any) -> Kind:
    """The kind of column for an Arrow type."""
    import pyarrow.types as of

    if of.is_dictionary(type_):
        return column_kind(type_.value_type)
    if of.is_timestamp(type_):
        return Kind("dates", type_.tz)
    tests: dict[str, tuple[Callable[[Any], bool], ...]] = {
        "text": (of.is_string, of.is_large_string, of.is_string_view),
        "whole": (of.is_integer,),
        "real": (of.is_floating,),
        "truth": (of.is_boolean,),
        "dates": (of.is_date,),
        "decimals": (of.is_decimal,),
        "nothing": (of.is_null,),
    }
    return Kind(next((name for name, known in tests.items() if any(test(type_) for test in known)), str(type_)))


def same_kinds(found: Sequence[tuple[str, Kind]], column: str) -> Kind:
    """The kind of a column in several files or batches, which must agree; ``found`` has the kind for each of them."""
    where, kind = found[0]
    for other, its in found[1:]:
        if its != kind:
            both = f"{kind.description} in {where} and {its.description} in {other}"
            raise ObservationError(f"column {column!r} must have one type, but it has {both}")
    return kind


@contextmanager
def unchanged(files: Sequence[Path]) -> Iterator[None]:
    """Raise an error at the end if one of these files has changed meanwhile."""
    before = list(map(_stamp, files))
    yield
    for file, stamp in zip(files, before, strict=True):
        if _stamp(file) != stamp:
            raise PltfError(f"{file} changed while it was being read: run prepare again")


def _stamp(file: Path) -> tuple[int, int, int] | None:
    """Size, time and number of a file; None if there is none."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns, stat.st_ino
