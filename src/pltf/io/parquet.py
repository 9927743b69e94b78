"""Tables in Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pltf.errors import PltfError
from pltf.io.word_columns import CELL
from pltf.memory import Allowance

if TYPE_CHECKING:
    import pandas as pd

_ROWS = 1 << 16  # rows read at a time


def read_parquet(
    path: Path, columns: Sequence[str] | None, allowance: Allowance, most: int | None = None
) -> pd.DataFrame:
    """Read a table with unchanged column names; integers with missing values stay integers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        cut = names[:most] if most is not None and len(names) > most else None
        wanted = cut if columns is None else list(columns)
        allowance.take(CELL * float(file.metadata.num_rows) * len(wanted or names))
        allowance.take(_unpacked(file.metadata, set(wanted or names)))
        batches = []
        for batch in file.iter_batches(_rows_at_a_time(file.metadata, allowance), columns=wanted):
            allowance.take(batch.nbytes)
            batches.append(batch)
        kinds = batches[0].schema if batches else file.read(columns=wanted).schema
        held = pa.Table.from_batches(batches, kinds)
    refuse_broken(path, held)
    return held.to_pandas(integer_object_nulls=True, ignore_metadata=True)


def parquet_columns(path: Path) -> list[str]:
    """The names of the columns."""
    import pyarrow.parquet as pq

    return list(pq.read_schema(path).names)


def _unpacked(facts: Any, wanted: set[str]) -> int:
    """The size of the wanted columns in the largest row group, which is decompressed as a whole."""
    groups = (facts.row_group(number) for number in range(facts.num_row_groups))
    return max((_wanted_bytes(group, wanted) for group in groups), default=0)


def _wanted_bytes(group: Any, wanted: set[str]) -> int:
    """The size of the wanted columns in a row group; parts of nested columns are named ``column.part``."""
    size = 0
    for chunk in map(group.column, range(group.num_columns)):
        if any(name in wanted for name in accumulate(chunk.path_in_schema.split("."), "{}.{}".format)):
            size += max(chunk.total_uncompressed_size, 0)  # a negative size would increase the allowance
    return size


def _rows_at_a_time(facts: Any, allowance: Allowance) -> int:
    """The number of rows that fit in memory even if each holds the longest possible word."""
    sizes = (facts.row_group(group).total_byte_size for group in range(facts.num_row_groups))
    return int(min(max(allowance.left // max(1, *sizes, 1), 1), _ROWS))


def refuse_broken(path: Path, table: Any) -> None:
    """Raise an error for a column that is invalid for its type, such as text that is not UTF-8."""
    import pyarrow as pa

    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as reason:
            told = "is not valid UTF-8 text" if "UTF" in str(reason) else f"is damaged: {reason}"
            raise PltfError(f"{path}: column {name!r} {told}") from None
