"""Uncompressed Arrow files, memory-mapped without a copy, as a stranger may have written them."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

_MAGIC = b"ARROW1\0\0"  # begins a file; the same messages as in a stream follow
_HEADER, _COMPRESSION = 2, 3  # fields of the tables Message and RecordBatch in the Arrow format


def mapped_table(path: Path) -> Any:
    """All batches of a file as a table whose columns are no longer than the file; raises ValueError and OSError.

    A compressed file would be unpacked into memory, whatever its size, before anything could be checked. And where the
    index at the end of a file names the same batch again and again, its columns have any length; it is not read here.
    """
    import pyarrow as pa

    with pa.memory_map(os.fspath(path)) as source:
        schema = pa.ipc.open_file(source).schema
        source.seek(len(_MAGIC))
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
    """Whether the metadata of a batch, a FlatBuffer that Arrow has verified, name a compression."""
    (message,) = struct.unpack_from("<I", metadata)
    batch = _field(metadata, message, _HEADER)
    (offset,) = struct.unpack_from("<I", metadata, batch)
    return _field(metadata, batch + offset, _COMPRESSION) != 0


def _field(metadata: bytes, table: int, number: int) -> int:
    """Where a field of a table is; 0 if it is not there."""
    (back,) = struct.unpack_from("<i", metadata, table)
    offsets = table - back
    (size,) = struct.unpack_from("<H", metadata, offsets)
    if size < 6 + 2 * number:  # its own size, that of the table, and an offset for each field
        return 0
    (offset,) = struct.unpack_from("<H", metadata, offsets + 4 + 2 * number)
    return table + offset if offset else 0
