"""Tables in Feather, the Arrow file format."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pltf.errors import PltfError
from pltf.io.columns import refuse_absent
from pltf.io.parquet import refuse_broken
from pltf.io.word_columns import CELL
from pltf.memory import Allowance

if TYPE_CHECKING:
    import pandas as pd

_MAGIC = b"ARROW1\0\0"
_DICTIONARY = 2  # a message type


def read_feather(
    path: Path, columns: Sequence[str] | None, allowance: Allowance, most: int | None = None
) -> pd.DataFrame:
    """Read a table with unchanged column names; integers with missing values stay integers."""
    import pyarrow as pa

    names = feather_columns(path)
    refuse_absent(path, columns or (), names)
    wanted = [at for at, name in enumerate(names) if columns is None or name in columns][:most]
    with path.open("rb") as raw:
        raw.seek(len(_MAGIC))
        for size in _sizes(pa.PythonFile(raw, mode="r")):
            allowance.take(size)
    with path.open("rb") as raw:
        raw.seek(len(_MAGIC))
        options = pa.ipc.IpcReadOptions(included_fields=wanted)
        with pa.ipc.open_stream(pa.PythonFile(raw, mode="r"), options=options) as batches:
            table = batches.read_all()
    allowance.take(CELL * float(table.num_rows) * len(wanted))
    refuse_broken(path, table)
    return table.to_pandas(integer_object_nulls=True, ignore_metadata=True)


def feather_batches(path: Path, columns: Sequence[str], allowance: Allowance) -> Iterator[Any]:
    """Arrow tables of some columns; each may take the whole allowance."""
    import pyarrow as pa

    wanted = [at for at, name in enumerate(feather_columns(path)) if name in columns]
    with path.open("rb") as raw:
        raw.seek(len(_MAGIC))
        if max(_sizes(pa.PythonFile(raw, mode="r")), default=0.0) > allowance.limit:
            allowance.refuse()
    with path.open("rb") as raw:
        raw.seek(len(_MAGIC))
        options = pa.ipc.IpcReadOptions(included_fields=wanted)
        with pa.ipc.open_stream(pa.PythonFile(raw, mode="r"), options=options) as batches:
            for batch in batches:
                table = pa.Table.from_batches([batch])
                refuse_broken(path, table)
                yield table


def feather_columns(path: Path) -> list[str]:
    """The names of the columns."""
    import pyarrow as pa

    with path.open("rb") as raw:
        if raw.read(len(_MAGIC)) != _MAGIC:
            raise PltfError(f"{path} is a Feather version 1 file: save it as version 2 or as Parquet")
        with pa.ipc.open_stream(pa.PythonFile(raw, mode="r")) as batches:
            return list(batches.schema.names)


def _sizes(file: Any) -> Iterator[float]:
    """The decompressed size of each message in the file."""
    import pyarrow as pa

    for message in pa.ipc.MessageReader.open_stream(file):
        if message.type in ("record batch", "dictionary"):
            yield _unpacked(memoryview(message.metadata), memoryview(message.body))


def _unpacked(head: memoryview, body: memoryview) -> float:
    """The decompressed size of the buffers of a message; compressed buffers begin with their size, or -1."""
    root = _Flat(head, struct.unpack_from("<I", head, 0)[0])
    batch = root.table(2)
    batch = batch.table(1) if batch is not None and root.byte(1) == _DICTIONARY else batch
    if batch is None or batch.table(3) is None:
        return float(len(body))
    total = 0.0
    for start, length in batch.pairs(2):
        size = struct.unpack_from("<q", body, start)[0] if length >= 8 else -1
        total += length if size < 0 else size
    return total


class _Flat:
    """A table in a FlatBuffer, the format of Arrow message headers."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - struct.unpack_from("<i", data, at)[0]

    def _field(self, number: int) -> int | None:
        place = 4 + 2 * number
        if place >= struct.unpack_from("<H", self._data, self._fields)[0]:
            return None
        offset = struct.unpack_from("<H", self._data, self._fields + place)[0]
        return self._at + offset if offset else None

    def byte(self, number: int) -> int:
        at = self._field(number)
        return 0 if at is None else self._data[at]

    def table(self, number: int) -> _Flat | None:
        at = self._field(number)
        return None if at is None else _Flat(self._data, at + struct.unpack_from("<I", self._data, at)[0])

    def pairs(self, number: int) -> Iterator[tuple[int, int]]:
        """Read a field that is a list of pairs of numbers."""
        at = self._field(number)
        if at is None:
            return
        at += struct.unpack_from("<I", self._data, at)[0]
        for one in range(struct.unpack_from("<I", self._data, at)[0]):
            yield struct.unpack_from("<qq", self._data, at + 4 + 16 * one)
