"""Uncompressed Arrow files, memory-mapped without a copy, as a stranger may have written them."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAGIC = b"ARROW1\0\0"  # begins a file; the same messages as in a stream follow
HEADER, COMPRESSION = 2, 3  # fields of the tables Message and RecordBatch in the Arrow format


def mapped_table(path: Path) -> Any:
    """All batches of a file as a table whose columns are no longer than the file; raises ValueError and OSError.

    A compressed file would be unpacked into memory, whatever its size, before anything could be checked. And where the
    index at the end of a file names the same batch again and again, its columns have any length; it is not read here.
    """
    import pyarrow as pa

    with pa.memory_map(os.fspath(path)) as source:
        schema = pa.ipc.open_file(source).schema
        source.seek(len(MAGIC))
        first, *messages = pa.ipc.MessageReader.open_stream(source)
        batches = []
        for message in messages:
            if (first.type, message.type) != ("schema", "record batch"):
                raise ValueError("it must consist of batches")
            if _is_compressed(message.metadata.to_pybytes()):
                raise ValueError("it is compressed")
            batches.append(pa.ipc.read_record_batch(message, schema))
        return pa.Table.from_batches(batches, schema)


def _is_compressed(metadata: bytes) -> bool:
    """Whether the metadata of a batch, which Arrow has verified, name a compression."""
    batch = FlatTable.root(memoryview(metadata)).table(HEADER)
    return batch is not None and batch.table(COMPRESSION) is not None


class FlatTable:
    """A table in a FlatBuffer, the format of Arrow message headers."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - struct.unpack_from("<i", data, at)[0]

    @classmethod
    def root(cls, data: memoryview) -> FlatTable:
        """The outermost table."""
        return cls(data, struct.unpack_from("<I", data)[0])

    def _field(self, number: int) -> int | None:
        place = 4 + 2 * number  # behind the size of this list of offsets, and that of the table
        if place >= struct.unpack_from("<H", self._data, self._fields)[0]:
            return None
        offset = struct.unpack_from("<H", self._data, self._fields + place)[0]
        return self._at + offset if offset else None

    def byte(self, number: int) -> int:
        """Read a field that is a byte."""
        at = self._field(number)
        return 0 if at is None else self._data[at]

    def table(self, number: int) -> FlatTable | None:
        """Read a field that is a table."""
        at = self._field(number)
        return None if at is None else FlatTable(self._data, at + struct.unpack_from("<I", self._data, at)[0])

    def pairs(self, number: int) -> Iterator[tuple[int, int]]:
        """Read a field that is a list of pairs of numbers."""
        at = self._field(number)
        if at is None:
            return
        at += struct.unpack_from("<I", self._data, at)[0]
        for one in range(struct.unpack_from("<I", self._data, at)[0]):
            yield struct.unpack_from("<qq", self._data, at + 4 + 16 * one)
