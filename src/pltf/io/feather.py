"""Tables in Feather, the Arrow file format."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pltf.data.arrow_files import COMPRESSION, HEADER, MAGIC, FlatTable
from pltf.errors import PltfError
from pltf.io.columns import chosen_columns
from pltf.io.parquet import refuse_broken
from pltf.io.word_columns import CELL
from pltf.memory import Allowance

if TYPE_CHECKING:
    import pandas as pd

_TYPE, _DATA, _BUFFERS = 1, 1, 2  # fields of the tables Message, DictionaryBatch and RecordBatch in the Arrow format
_DICTIONARY = 2  # a message type


def read_feather(
    path: Path, columns: Sequence[str] | None, allowance: Allowance, most: int | None = None
) -> pd.DataFrame:
    """Read a table with unchanged column names; integers with missing values stay integers."""
    wanted = chosen_columns(path, columns, feather_columns(path))[:most]
    for size in _sizes(path):
        allowance.take(size)
    with _batches(path, wanted) as batches:
        table = batches.read_all()
    allowance.take(CELL * float(table.num_rows) * len(wanted))
    refuse_broken(path, table)
    return table.to_pandas(integer_object_nulls=True, ignore_metadata=True)


def feather_batches(path: Path, columns: Sequence[str], allowance: Allowance) -> Iterator[Any]:
    """Arrow tables of some columns; each may take the whole allowance."""
    import pyarrow as pa

    if max(_sizes(path), default=0.0) > allowance.limit:
        allowance.refuse()
    with _batches(path, chosen_columns(path, columns, feather_columns(path))) as batches:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            refuse_broken(path, table)
            yield table


def feather_columns(path: Path) -> list[str]:
    """The names of the columns."""
    import pyarrow as pa

    with path.open("rb") as raw:
        if raw.read(len(MAGIC)) != MAGIC:
            raise PltfError(f"{path} is a Feather version 1 file: save it as version 2 or as Parquet")
        with pa.ipc.open_stream(pa.PythonFile(raw, mode="r")) as batches:
            return list(batches.schema.names)


@contextmanager
def _batches(path: Path, wanted: Sequence[int]) -> Iterator[Any]:
    """A reader of the batches of a file, with the columns at these positions."""
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(included_fields=wanted)
    with path.open("rb") as raw:
        raw.seek(len(MAGIC))
        with pa.ipc.open_stream(pa.PythonFile(raw, mode="r"), options=options) as batches:
            yield batches


def _sizes(path: Path) -> Iterator[float]:
    """The decompressed size of each message in the file."""
    import pyarrow as pa

    with path.open("rb") as raw:
        raw.seek(len(MAGIC))
        for message in pa.ipc.MessageReader.open_stream(pa.PythonFile(raw, mode="r")):
            if message.type in ("record batch", "dictionary"):
                yield _unpacked(memoryview(message.metadata), memoryview(message.body))


def _unpacked(head: memoryview, body: memoryview) -> float:
    """The decompressed size of the buffers of a message; compressed buffers begin with their size, or -1."""
    root = FlatTable.root(head)
    batch = root.table(HEADER)
    batch = batch.table(_DATA) if batch is not None and root.byte(_TYPE) == _DICTIONARY else batch
    if batch is None or batch.table(COMPRESSION) is None:
        return float(len(body))
    total = 0.0
    for start, length in batch.pairs(_BUFFERS):
        size = struct.unpack_from("<q", body, start)[0] if length >= 8 else -1
        total += length if size < 0 else size
    return total
