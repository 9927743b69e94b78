"""The files of a cell store: cells sorted by the longest mode, in parts that end at its positions.

A store is a folder::

    store.json          names, sizes, totals, and an entry for each other file with its checksum
    part-00000.arrow    cells: int32 positions of each mode, and a column "value"; uncompressed Arrow IPC, one batch
    ...
    missing.arrow       positions of missing cells among observed zeros, if there are any
    labels-0.arrow      labels of a mode, if it has any

``store.json`` is written last, so a folder without it is not a store. Each file is checked against its checksum when a
process first reads it. Nothing in a store is code.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.arrow_files import mapped_table
from pltf.data.cell_index import Coords
from pltf.data.numeric import constants, read_only
from pltf.errors import ObservationError

ABOUT, MISSING = "store.json", "missing.arrow"
FORMAT = 1  # to be raised when older versions of pltf cannot read new stores
VALUE = "value"
CELLS_OF_A_PART = 1 << 21  # approximate: a part ends where a position of the longest mode ends
LONGEST = 2**31 - 1  # positions are int32
VALUE_TYPES = ("uint8", "uint16", "uint32", "float64")
_LOOKED_AT = 1 << 20  # cells at a time

# Files that were checked: size, time, inode, checksum, and what was required.
_checked: dict[Path, tuple[Any, ...]] = {}


@dataclass(frozen=True)
class File:
    """A file of a store, as described in store.json."""

    path: Path
    size: int  # bytes
    checksum: str

    @classmethod
    def of(cls, path: Path) -> File:
        """A complete file as it is now."""
        return cls(path, path.stat().st_size, checksum_of(path))

    def check(self, also: Callable[[], None] | None = None, known_by: tuple[Any, ...] = ()) -> None:
        """Raise an error if the file is missing or has changed, or if ``also`` raises one; once in a process.

        ``known_by`` is what ``also`` depends on: with other values the check is repeated.
        """
        status = self.check_size()
        known = status.st_size, status.st_mtime_ns, status.st_ino, self.checksum, known_by
        if _checked.get(self.path) == known:
            return
        if checksum_of(self.path) != self.checksum:
            raise self._changed()
        if also is not None:
            also()
        _checked[self.path] = known

    def check_size(self) -> os.stat_result:
        """Raise an error if the file is missing, no plain file, or of another size; returns its status."""
        try:
            status = self.path.stat()
        except OSError as reason:
            raise ObservationError(f"{self.path} of a cell store is missing: {reason.strerror}") from None
        if not stat.S_ISREG(status.st_mode):  # reading a pipe or a device might never end
            raise ObservationError(f"{self.path} of a cell store must be a plain file")
        if status.st_size != self.size:
            raise self._changed()
        return status

    def _changed(self) -> ObservationError:
        return ObservationError(f"{self.path} of a cell store has changed since it was written: run prepare again")

    def about(self) -> dict[str, Any]:
        """The entry for store.json."""
        return {"file": self.path.name, "size": self.size, "checksum": self.checksum}


@dataclass(frozen=True)
class Part:
    """Cells sorted by the owned mode: all those at its positions ``first`` to ``last`` - 1."""

    number: int
    cells: int
    first: int
    last: int
    skipped: NDArray[np.int64] | None = field(default=None, kw_only=True, compare=False, repr=False)  # rows, sorted

    def kept(self, rows: slice) -> NDArray[np.bool_] | None:
        """Which of some rows are not skipped; None if none is skipped."""
        if self.skipped is None:
            return None
        first, last = np.searchsorted(self.skipped, (rows.start, rows.stop))
        if first == last:
            return None
        keep = np.ones(rows.stop - rows.start, dtype=bool)
        keep[self.skipped[first:last] - rows.start] = False
        return keep

    def unskipped(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows from their ranks among those that are not skipped."""
        if self.skipped is None:
            return ranks
        return ranks + np.searchsorted(self.skipped - np.arange(self.skipped.size), ranks, side="right")

    def load(self) -> tuple[list[NDArray[np.int32]], NDArray[Any]]:
        """Positions of each mode, in the order of the store's modes, and values; they may be memory-mapped."""
        raise NotImplementedError

    def ahead(self) -> None:
        """Ask the system to read this part ahead."""


@dataclass(frozen=True)
class FilePart(Part):
    """A part in a file; if ``sizes`` are known, its cells are checked when it is first read."""

    file: File
    names: tuple[str, ...]  # of the position columns
    value_type: str | None = field(default=None, kw_only=True)
    sizes: tuple[int, ...] = field(default=(), kw_only=True)  # of the modes, in the order of the columns
    owner: int = field(default=0, kw_only=True)  # the column by which it is sorted

    def load(self) -> tuple[list[NDArray[np.int32]], NDArray[Any]]:
        held_to = (self.cells, self.first, self.last, self.names, self.sizes, self.owner)
        self.file.check(self._check if self.sizes else None, held_to)
        return self._read()

    def _read(self) -> tuple[list[NDArray[np.int32]], NDArray[Any]]:
        *columns, x = read_columns(self.file.path, (*self.names, VALUE))
        if any(len(column) != self.cells for column in (*columns, x)):
            raise ObservationError(f"{self.file.path} must have {self.cells:,} cells")
        if any(column.dtype != np.int32 for column in columns) or self.value_type not in (None, x.dtype.name):
            raise ObservationError(f"{self.file.path} must have int32 positions and {self.value_type} values")
        return columns, x

    def _check(self) -> None:
        """Refuse cells outside the tensor, even with a correct checksum: compiled code would access invalid memory."""
        columns, x = self._read()
        for start in range(0, self.cells, _LOOKED_AT):
            rows = slice(start, start + _LOOKED_AT)
            for name, column, size in zip(self.names, columns, self.sizes, strict=True):
                if column[rows].min() < 0 or column[rows].max() >= size:
                    raise self._damaged(f"must have positions of {name!r} from 0 to {size - 1}")
            own = columns[self.owner][max(start - 1, 0) : rows.stop]
            if own.min() < self.first or own.max() >= self.last or (own[1:] < own[:-1]).any():
                wanted = f"must be sorted by {self.names[self.owner]!r}, from {self.first} to {self.last - 1}"
                raise self._damaged(wanted)
            if x.dtype.kind == "f" and not (np.isfinite(x[rows]) & (x[rows] >= 0)).all():
                raise self._damaged("must have values that are finite and not negative")

    def _damaged(self, wanted: str) -> ObservationError:
        return ObservationError(f"{self.file.path} {wanted}: run prepare again")

    def ahead(self) -> None:
        with suppress(OSError, AttributeError):  # on Linux only
            handle = os.open(self.file.path, os.O_RDONLY)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(handle)


@dataclass(frozen=True, eq=False)
class MemoryPart(Part):
    """A part in memory."""

    columns: tuple[NDArray[np.int32], ...]
    values: NDArray[Any]

    def load(self) -> tuple[list[NDArray[np.int32]], NDArray[Any]]:
        return list(self.columns), self.values


# -- Arrow files --------------------------------------------------------------------------------


def read_columns(path: Path, names: Sequence[str]) -> list[NDArray[Any]]:
    """Columns of an Arrow file with one batch, memory-mapped without a copy."""
    import pyarrow as pa

    try:
        (batch,) = mapped_table(path).to_batches()
        batch.validate()
        return [read_only(batch.column(name).to_numpy(zero_copy_only=True)) for name in names]
    except (pa.ArrowException, KeyError, OSError, ValueError, struct.error) as reason:
        told = " ".join(str(reason).split())
        raise ObservationError(f"{path} cannot be read as a part of a cell store: {told}") from None


def write_columns(path: Path, columns: Mapping[str, Any]) -> File:
    """Write columns as an uncompressed Arrow file with one batch, and flush it to disk."""
    import pyarrow as pa

    batch = pa.record_batch(dict(columns))
    with durable(path) as stream, pa.ipc.new_file(stream, batch.schema) as writer:
        writer.write_batch(batch)
    return File.of(path)


@contextmanager
def durable(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file for writing, and flush it to disk at the end."""
    with path.open("xb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def checksum_of(path: Path) -> str:
    """BLAKE2b hash of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


# -- writing a store ----------------------------------------------------------------------------


class StoreWriter:
    """Writes a store into an empty folder, part by part; :meth:`finish` completes it.

    Parts are added in the order of the owned mode and do not share its positions. The caller renames the folder at the
    end, so that a killed process leaves no store.
    """

    def __init__(self, folder: Path, dims: Sequence[str], owner: int, unlisted: str, value_type: str) -> None:
        self._folder, self._dims, self._owner = folder, tuple(dims), owner
        self._unlisted, self._value_type = unlisted, np.dtype(value_type)
        self._parts: list[FilePart] = []
        self.totals = Totals()  # of the parts so far

    def add(self, columns: Sequence[NDArray[np.int32]], values: NDArray[Any]) -> None:
        """Write a part: a column of positions for each mode, in the order of ``dims``, and checked values."""
        own = columns[self._owner]
        first, last = int(own[0]), int(own[-1]) + 1
        assert not self._parts or first >= self._parts[-1].last, "parts come in the order of the owned mode"
        number = len(self._parts)
        x = values.astype(self._value_type)
        named = dict(zip(self._dims, columns, strict=True)) | {VALUE: x}
        file = write_columns(self._folder / f"part-{number:05}.arrow", named)
        self._parts.append(FilePart(number, len(x), first, last, file, self._dims))
        self.totals = self.totals.with_values(x)

    @property
    def parts(self) -> int:
        """Number of parts so far."""
        return len(self._parts)

    def widen(self, value_type: str) -> None:
        """Use at least this type for values; parts written with a narrower type are rewritten."""
        wider, names = np.dtype(value_type), [*self._dims, VALUE]
        if VALUE_TYPES.index(wider.name) <= VALUE_TYPES.index(self._value_type.name):
            return
        self._value_type = wider
        for number, part in enumerate(self._parts):
            columns, values = part.load()
            new = self._folder / f"{part.file.path.name}.new"
            file = write_columns(new, dict(zip(names, [*columns, values.astype(wider)], strict=True)))
            new.replace(part.file.path)
            self._parts[number] = replace(part, file=replace(file, path=part.file.path))

    def finish(self, sizes: Sequence[int], labels: Mapping[str, Mapping[str, Any]], missing: Coords | None) -> None:
        """Complete the store; ``labels`` has the entry of store.json for each mode with labels."""
        about: dict[str, Any] = {
            "format": "pltf cells",
            "version": FORMAT,
            "dims": list(self._dims),
            "sizes": [int(size) for size in sizes],
            "owner": self._owner,
            "unlisted": self._unlisted,
            "value_type": self._value_type.name,
            **vars(self.totals),
            "parts": [
                {"cells": part.cells, "first": part.first, "last": part.last, **part.file.about()}
                for part in self._parts
            ],
            "labels": dict(labels),
        }
        if missing is not None and missing.shape[1]:
            columns = dict(zip(self._dims, missing.astype(np.int32), strict=True))
            about["missing"] = {"cells": missing.shape[1], **write_columns(self._folder / MISSING, columns).about()}
        with durable(self._folder / ABOUT) as stream:
            stream.write(json.dumps(about, indent=1).encode())


@dataclass(frozen=True)
class Totals:
    """Constants of the values, summed over parts: fields of store.json."""

    cells: int = 0
    positive: int = 0
    total: float = 0.0
    saturated: float = 0.0
    largest: float = 0.0

    def with_values(self, values: NDArray[Any]) -> Totals:
        """Add the values of a part."""
        total, saturated = constants(values)
        return Totals(
            self.cells + values.size,
            self.positive + int(np.count_nonzero(values)),
            self.total + total,
            self.saturated + saturated,
            max(self.largest, float(values.max(initial=0))),
        )
