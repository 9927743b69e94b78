"""What people hand over, as rows that a database can read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pltf.data.labels import Labels
from pltf.data.tables import Key
from pltf.errors import ObservationError, PltfError
from pltf.io.prepare.database import Database

ROWS_TABLE = "staged"  # what is read once only is kept here
VALUE, BAD = "v", "bad"  # columns beside those of the indices, c0, c1, ...; words that are no numbers


@dataclass(frozen=True)
class Kind:
    """What a column holds."""

    name: str  # "words", "whole", "real", "truth", "dates", or another type in words
    zone: str | None = None

    @property
    def told(self) -> str:
        """In words."""
        known = {"whole": "whole numbers", "real": "real numbers", "truth": "True and False"}
        return known.get(self.name, self.name) + (f" of {self.zone}" if self.zone else "")


@dataclass(frozen=True)
class Rows:
    """Rows in the database: the columns c0, c1, ... of the indices, and v of the values."""

    table: str  # what stands behind FROM
    kinds: Sequence[Kind]  # of the indices
    value: Kind | None
    text: bool = False  # everything is in words: labels of whole numbers are such all the same
    located: str | None = None  # the same with the columns "file" and "row"
    files: Mapping[str, Path] = field(default_factory=dict)  # by their names in there

    def where(self, database: Database, wrong: str) -> str:
        """The first row for which something is wrong, in words; "" if that cannot be told."""
        if self.located is None:
            return ""
        query = f"SELECT file, row FROM {self.located} r WHERE {wrong} ORDER BY file, row LIMIT 1"
        try:
            found = database.rows(query)
        except PltfError:  # the file has columns of these names
            return ""
        return f" (row {found[0][1] + 1} of {self.files[found[0][0]]})" if found else ""


class Source(Protocol):
    """Where rows come from."""

    name: str

    @property
    def files(self) -> Sequence[Path]:
        """The files that the database may read."""

    def columns(self) -> list[str]:
        """The names of the columns."""

    def labels(self, keys: Sequence[Key]) -> Mapping[str, Labels]:
        """The labels of indices that the source knows: those of categories."""

    def rows(self, database: Database, keys: Sequence[Key], value: str | None) -> Rows:
        """The rows, of these columns."""

    def sizes(self) -> tuple[int, ...] | None:
        """The sizes of the modes, if the columns hold positions."""


def kind_of(type_: Any) -> Kind:
    """The kind of an Arrow type."""
    import pyarrow.types as of

    if of.is_dictionary(type_):
        return kind_of(type_.value_type)
    if of.is_timestamp(type_):
        return Kind("dates", type_.tz)
    tests: dict[str, tuple[Callable[[Any], bool], ...]] = {
        "words": (of.is_string, of.is_large_string, of.is_string_view),
        "whole": (of.is_integer,),
        "real": (of.is_floating,),
        "truth": (of.is_boolean,),
        "dates": (of.is_date,),
        "decimals": (of.is_decimal,),
        "nothing": (of.is_null,),
    }
    return Kind(next((name for name, known in tests.items() if any(test(type_) for test in known)), str(type_)))


def same_kinds(found: Sequence[tuple[str, Kind]], column: str) -> Kind:
    """The kind of a column that several files or batches have, which must be one; ``found`` says where it has which."""
    where, kind = found[0]
    for other, its in found[1:]:
        if its != kind:
            raise ObservationError(
                f"column {column!r} must be of one kind, and holds {kind.told} in {where} and {its.told} in {other}"
            )
    return kind


@dataclass
class Fingerprint:
    """Files as they were before they were read."""

    files: Sequence[Path]
    known: list[tuple[int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.known = list(self._now())

    def _now(self) -> Iterator[tuple[int, int, int]]:
        for file in self.files:
            try:
                stat = file.stat()
            except OSError:
                yield -1, -1, -1
            else:
                yield stat.st_size, stat.st_mtime_ns, stat.st_ino

    def check(self) -> None:
        """Refuse files that have changed since."""
        for file, before, now in zip(self.files, self.known, self._now(), strict=True):
            if before != now:
                raise PltfError(f"{file} has changed while it was read: prepare it again")
