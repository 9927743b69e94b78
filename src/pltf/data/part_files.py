"""Cells in files: a folder of parts, sorted by the longest mode and cut at its positions.

A store is a folder::

    store.json          what is in it: names, sizes, totals, and a line for each other file, with its checksum
    part-00000.arrow    cells: int32 positions of each mode, and a column "value"; uncompressed Arrow IPC, one batch
    ...
    missing.arrow       cells that are missing among observed zeros, if there are any: positions alone
    labels-0.arrow      the labels of a mode, if it has any

``store.json`` is written last, so a folder without it is not a store. Every file is checked against its checksum the
first time that a process reads it. Nothing in a store is code.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.cell_index import Coords
from pltf.data.numeric import read_only
from pltf.errors import ObservationError

ABOUT, MISSING = "store.json", "missing.arrow"
FORMAT = 1  # raised when older versions of pltf could not read what is written
VALUE = "value"
CELLS_OF_A_PART = 1 << 21  # about so many: a part ends where a position of the longest mode ends
LONGEST = 2**31 - 1  # positions are int32
VALUE_TYPES = ("uint8", "uint16", "uint32", "float64")
_READ = 1 << 22  # bytes at a time

_checked: dict[Path, tuple[int, int, int, str]] = {}  # files whose checksum was right: size, time, inode, checksum


@dataclass(frozen=True)
class File:
    """A file of a store, as store.json has it."""

    path: Path
    size: int  # bytes
    checksum: str

    def check(self) -> None:
        """Refuse a file that is missing or has changed; its bytes are read once in a process."""
        try:
            stat = self.path.stat()
        except OSError as reason:
            raise ObservationError(f"{self.path} of a cell store is missing: {reason.strerror}") from None
        known = stat.st_size, stat.st_mtime_ns, stat.st_ino, self.checksum
        if _checked.get(self.path) == known:
            return
        if stat.st_size != self.size or checksum_of(self.path) != self.checksum:
            raise ObservationError(f"{self.path} of a cell store has changed since it was written: prepare it again")
        _checked[self.path] = known

    def about(self) -> dict[str, Any]:
        """The line of store.json."""
        return {"file": self.path.name, "size": self.size, "checksum": self.checksum}


@dataclass(frozen=True)
class Part:
    """Some cells, sorted by the owned mode: all those at positions ``first`` to ``last`` - 1 of it."""

    number: int
    cells: int
    first: int
    last: int

    def load(self) -> tuple[list[NDArray[np.int32]], NDArray[Any]]:
        """Positions of each mode, in the order of the store's modes, and values; they may be mapped files."""
        raise NotImplementedError

    def ahead(self) -> None:
        """Tell the system that this part is read soon."""


@dataclass(frozen=True)
class FilePart(Part):
    """A part in a file of a store."""

    file: File
    names: tuple[str, ...]  # of the columns of positions

    def load(self) -> tuple[list[NDArray[np.int32]], NDArray[Any]]:
        self.file.check()
        columns = read_columns(self.file.path, (*self.names, VALUE))
        if any(len(column) != self.cells for column in columns):
            raise ObservationError(f"{self.file.path} must have {self.cells:,} cells")
        return columns[:-1], columns[-1]

    def ahead(self) -> None:
        with suppress(OSError, AttributeError):  # Linux has it
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
    """Columns of an Arrow file of one batch, mapped and not copied."""
    import pyarrow as pa

    try:
        with pa.memory_map(os.fspath(path)) as source:
            batch = pa.ipc.open_file(source).get_batch(0)
        return [read_only(batch.column(name).to_numpy(zero_copy_only=True)) for name in names]
    except (pa.ArrowException, KeyError, OSError) as reason:
        raise ObservationError(f"{path} cannot be read as a part of a cell store: {reason}") from None


def write_columns(path: Path, columns: Mapping[str, Any]) -> File:
    """Write columns as an uncompressed Arrow file of one batch, to the disk."""
    import pyarrow as pa

    batch = pa.record_batch(dict(columns))
    with path.open("xb") as stream:
        with pa.ipc.new_file(stream, batch.schema) as writer:
            writer.write_batch(batch)
        stream.flush()
        os.fsync(stream.fileno())
    return File(path, path.stat().st_size, checksum_of(path))


def checksum_of(path: Path) -> str:
    """BLAKE2b of the bytes of a file."""
    whole = hashlib.blake2b(digest_size=16)
    with path.open("rb") as stream:
        while block := stream.read(_READ):
            whole.update(block)
    return whole.hexdigest()


# -- writing a store ----------------------------------------------------------------------------


class StoreWriter:
    """Writes a store into an empty folder, part by part; :meth:`finish` makes it one.

    Parts come sorted by the owned mode and do not share positions of it. The caller renames the folder when all is
    done, so that a killed process leaves no store behind.
    """

    def __init__(self, folder: Path, dims: Sequence[str], owner: int, unlisted: str, value_type: str) -> None:
        self._folder, self._dims, self._owner = folder, tuple(dims), owner
        self._unlisted, self._value_type = unlisted, np.dtype(value_type)
        self._parts: list[FilePart] = []
        self._totals = Totals()

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
        self._totals = self._totals.with_values(x)

    @property
    def totals(self) -> Totals:
        """Of the parts so far."""
        return self._totals

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return len(self._parts)

    def widen(self, value_type: str) -> None:
        """See to it that values of a type fit: the parts so far are written again, if theirs is narrower."""
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
        """Write what is left; ``labels`` has the line of store.json for each mode that has labels."""
        about: dict[str, Any] = {
            "format": "pltf cells",
            "version": FORMAT,
            "dims": list(self._dims),
            "sizes": [int(size) for size in sizes],
            "owner": self._owner,
            "unlisted": self._unlisted,
            "value_type": self._value_type.name,
            **self._totals.about(),
            "parts": [
                {"cells": part.cells, "first": part.first, "last": part.last, **part.file.about()}
                for part in self._parts
            ],
            "labels": dict(labels),
        }
        if missing is not None and missing.shape[1]:
            columns = dict(zip(self._dims, missing.astype(np.int32), strict=True))
            about["missing"] = {"cells": missing.shape[1], **write_columns(self._folder / MISSING, columns).about()}
        text = json.dumps(about, indent=1)
        with (self._folder / ABOUT).open("x", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())


@dataclass(frozen=True)
class Totals:
    """Constants of the values, added up part by part."""

    cells: int = 0
    positive: int = 0
    total: float = 0.0
    saturated: float = 0.0
    largest: float = 0.0

    def with_values(self, values: NDArray[Any]) -> Totals:
        """These and the values of one more part."""
        from pltf.data.numeric import constants

        total, saturated = constants(values)
        return Totals(
            self.cells + values.size,
            self.positive + int(np.count_nonzero(values)),
            self.total + total,
            self.saturated + saturated,
            max(self.largest, float(values.max(initial=0))),
        )

    def about(self) -> dict[str, Any]:
        """The lines of store.json."""
        return dict(vars(self))
