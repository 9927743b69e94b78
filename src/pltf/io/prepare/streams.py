"""Sources that are read once, in batches: tables in memory and in files, iterables of tables, DuckDB relations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from pltf.data.labels import Labels, known_labels
from pltf.data.numeric import EXACT
from pltf.data.tables import Key
from pltf.errors import ObservationError, PltfError
from pltf.io.arrow_text import whole_lines
from pltf.io.columns import refuse_absent
from pltf.io.files import SourceTable
from pltf.io.listed import single_lines, tns_head
from pltf.io.opening import Lines, opened, readable, unpacked
from pltf.io.prepare.database import Database, named
from pltf.io.prepare.sources import ROWS_TABLE, VALUE, Kind, Known, Rows, Source, column_kind, name_of
from pltf.io.reading import Reading
from pltf.memory import Allowance

_ROWS = 1 << 18  # of a batch
_KEPT = {"text": "large_string", "whole": "int64", "real": "float64", "truth": "bool"}


class Stream(Source):
    """A table in batches; ``begin`` yields them, with at least the wanted columns."""

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        begin: Callable[[Sequence[str]], Iterable[Any]],
        categories: Known | None = None,
    ) -> None:
        self.name = name
        self._columns, self._begin, self._categories = list(columns), begin, categories or {}

    def columns(self) -> list[str]:
        return self._columns

    def labels(self, keys: Sequence[Key]) -> Known:
        """Categories are labels in their order, unless they are dates to be binned."""
        return {
            key.dim: self._categories[key.column] for key in keys if key.column in self._categories and key.bin is None
        }

    def rows(self, database: Database, keys: Sequence[Key], value: str | None, known: Known) -> Rows:
        wanted = [key.column for key in keys] + ([] if value is None else [value])
        names = [f"c{number}" for number in range(len(keys))] + ([] if value is None else [VALUE])
        plain = [key.dim not in known or not known[key.dim].keeps_blanks for key in keys]
        batches = _alike(self._begin(list(dict.fromkeys(wanted))), wanted, names, plain, self.name)
        first = next(batches, None)
        if first is None:
            raise ObservationError(f"{self.name} has no rows")
        kinds = [column_kind(first.schema.field(name).type) for name in names[: len(keys)]]
        database.create(ROWS_TABLE, first.schema, chain([first], batches))
        return Rows(ROWS_TABLE, kinds, None if value is None else Kind("real"))


def _alike(
    blocks: Iterable[Any], wanted: Sequence[str], names: Sequence[str], plain: Sequence[bool], name: str
) -> Iterator[Any]:
    """Convert batches to the types of the first one. Blanks around labels are stripped where ``plain``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types: list[Any] = []
    for number, block in enumerate(blocks):
        table = _as_table(block, wanted, name)
        if not table.num_rows:
            continue
        held = []
        for place, column in enumerate(wanted):
            what = f"{name}: column {column!r}"
            array = table.column(column).combine_chunks()
            if place >= len(plain):
                held.append(_values(array, what))
                continue
            type_ = _kept_type(array.type)
            if len(types) <= place:
                types.append(type_)
            labels = _labels(array, types[place], what, number)
            held.append(
                pc.utf8_trim_whitespace(labels) if plain[place] and column_kind(labels.type).name == "text" else labels
            )
        yield from pa.table(held, names=list(names)).to_batches(_ROWS)


def _as_table(block: Any, wanted: Sequence[str], name: str) -> Any:
    """A batch of any library as an Arrow table."""
    import pyarrow as pa

    if hasattr(block, "columns") and not hasattr(block, "column_names"):
        refuse_absent(name, wanted, list(block.columns))
    try:
        if isinstance(block, pa.RecordBatch):
            block = pa.Table.from_batches([block])
        elif type(block).__module__.split(".")[0] == "pandas":
            block = pa.Table.from_pandas(block[list(wanted)], preserve_index=False)
        elif not isinstance(block, pa.Table):
            block = pa.table(block)  # libraries with the Arrow interface, such as polars
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as reason:
        raise ObservationError(f"{name}: each column of a table must have one type: {_first_line(reason)}") from None
    refuse_absent(name, wanted, block.column_names)
    return block


def _first_line(reason: Exception) -> str:
    return " ".join(str(reason.args[0] if reason.args else reason).split())[:200]


def _kept_type(type_: Any) -> Any:
    """The type in which labels are stored in the database."""
    import pyarrow as pa

    kind = column_kind(type_).name
    if kind in _KEPT:
        return getattr(pa, _KEPT[kind] if kind != "truth" else "bool_")()
    if kind == "dates" and pa.types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp("us", type_.tz)  # the only type with a time zone in DuckDB
    return type_


def _labels(array: Any, type_: Any, what: str, number: int) -> Any:
    import pyarrow as pa

    if column_kind(array.type) != column_kind(type_) and not pa.types.is_null(array.type):
        its, first = column_kind(array.type).description, column_kind(type_).description
        raise ObservationError(
            f"{what} must have one type, but it has {first} in the first batch and {its} in batch {number + 1}"
        )
    if pa.types.is_dictionary(array.type):  # Arrow cannot cast all views, which polars uses
        array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(type_))
    try:
        return array.cast(type_)
    except pa.ArrowInvalid as reason:
        if pa.types.is_uint64(array.type):
            raise ObservationError(f"{what}: whole numbers must be below 2**63") from None
        raise ObservationError(f"{what} cannot be stored as {type_}: {_first_line(reason)}") from None


def _values(array: Any, what: str) -> Any:
    """A column of values in float64, null where they are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column_kind(array.type)
    if kind.name not in ("whole", "real", "truth", "decimals", "nothing"):
        raise ObservationError(f"{what} must hold numbers, got {kind.description}")
    if kind.name == "whole" and (pc.max(array).as_py() or 0) > EXACT:
        high = pc.max(array).as_py()
        raise ObservationError(f"{what} must hold at most 2**53, or float64 would round it; got {high}")
    array = array.cast(pa.uint8()) if kind.name == "truth" else array
    array = array.cast(pa.float64(), safe=False)
    return pc.if_else(pc.is_nan(array), None, array) if kind.name == "real" else array


# -- kinds of sources ---------------------------------------------------------------------------


def of_table(table: Any, name: str) -> Stream:
    """A table in memory: pandas, polars or pyarrow."""
    import pyarrow as pa

    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    columns = list(table.column_names if hasattr(table, "column_names") else table.columns)

    def begin(wanted: Sequence[str]) -> Iterator[Any]:
        yield from _as_table(table, wanted, name).select(list(wanted)).to_batches(_ROWS)

    return Stream(name, columns, begin, _categories(table, columns, name))


def _categories(table: Any, columns: Sequence[str], name: str) -> dict[str, Labels]:
    found: dict[str, Labels] = {}
    for column in columns:
        categories = _categories_of(table[column]) if columns.count(column) == 1 else None
        if categories is not None:
            found[column] = known_labels(categories, f"{name}: column {column!r}: categories")
    return found


def _categories_of(column: Any) -> Any:
    """The categories of a column or None; polars categories other than Enum have no fixed order."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        if not pa.types.is_dictionary(column.type) or not column.num_chunks:
            return None
        return column.unify_dictionaries().chunk(0).dictionary.to_pandas()
    kind = str(getattr(column, "dtype", ""))
    if kind == "category":
        return column.dtype.categories
    return column.dtype.categories.to_list() if kind.startswith("Enum") else None


def of_relation(relation: Any, name: str) -> Stream:
    """A DuckDB relation, read on its own connection."""

    def begin(wanted: Sequence[str]) -> Iterator[Any]:
        yield from relation.project(", ".join(map(named, wanted))).to_arrow_reader(_ROWS)

    return Stream(name, list(relation.columns), begin)


def of_batches(blocks: Any, name: str) -> Stream:
    """A RecordBatchReader, or an iterable of batches or tables."""
    rest = iter(blocks)
    first = next(rest, None)
    if first is None:
        raise ObservationError(f"{name} has no rows")
    columns = _names_of(first)
    if columns is None:
        raise ObservationError(f"{name} must yield tables or Arrow batches, got {type(first).__name__}")
    return Stream(name, columns, lambda wanted: chain([first], rest))


def _names_of(table: Any) -> list[str] | None:
    import pyarrow as pa

    if isinstance(table, (pa.RecordBatch, pa.Table)):
        return list(table.schema.names)
    return list(table.columns) if hasattr(table, "columns") else None


def of_dataset(dataset: Any, name: str) -> Stream:
    """A pyarrow.dataset.Dataset, batch by batch."""
    return Stream(name, list(dataset.schema.names), lambda wanted: dataset.to_batches(columns=list(wanted)))


def of_dask(frame: Any, name: str) -> Stream:
    """A dask.dataframe, one partition at a time."""

    def begin(wanted: Sequence[str]) -> Iterable[Any]:
        some = frame[list(wanted)]
        return (some.partitions[number].compute() for number in range(some.npartitions))

    return Stream(name, list(frame.columns), begin)


def of_files(files: Sequence[Path], kind: str, reading: Reading) -> Stream:
    """Tables in files of one format, or in a database, one batch at a time."""

    def begin(wanted: Sequence[str]) -> Iterator[Any]:
        for file in files:
            yield from SourceTable(file, kind, reading).batches(wanted)

    stream = Stream(name_of(files), SourceTable(files[0], kind, reading).columns(), begin)
    stream.files = [file for file in files if kind != "sql"]
    return stream


# -- FROSTT -------------------------------------------------------------------------------------


class TnsFile(Stream):
    """A .tns file: each line has positions, counted from 1, and a value."""

    def __init__(self, path: Path, encoding: str | None) -> None:
        with readable(path, "tns", encoding), opened(path, encoding) as file:
            lines = enumerate(single_lines(Lines(file, Allowance(path))), 1)
            self._shape, first = tns_head(lines)
        if first is None:
            raise PltfError(f"{path} lists no cells")
        self._skip, modes = first[0] - 1, len(first[1]) - 1
        if modes < 1:
            raise PltfError(f"{path} must have at least one position and a value in each line")
        if self._shape is not None and len(self._shape) != modes:
            raise PltfError(f"{path} has {modes} positions in a line, but {len(self._shape)} sizes in its header")
        self._path, self._encoding, self.files, self.modes = path, encoding, [path], modes
        super().__init__(str(path), [*map(str, range(modes)), VALUE], self._batches)

    def sizes(self) -> tuple[int, ...]:
        return self._shape or (0,) * self.modes

    def _batches(self, wanted: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import csv

        names = [*map(str, range(self.modes)), VALUE]
        types = {name: pa.int64() for name in names[:-1]} | {VALUE: pa.float64()}
        skip = self._skip
        with readable(self._path, "tns", self._encoding), unpacked(self._path, self._encoding) as file:
            for block in whole_lines(file):
                while skip and block:
                    block, skip = block.partition(b"\n")[2], skip - 1
                block = _plain(block)
                if not block.strip():
                    continue
                table = csv.read_csv(
                    pa.BufferReader(block),
                    csv.ReadOptions(column_names=names, block_size=len(block) + 1, use_threads=False),
                    csv.ParseOptions(delimiter=" "),
                    csv.ConvertOptions(column_types=types),
                )
                yield from table.to_batches()


def _plain(block: bytes) -> bytes:
    """Lines with single spaces between numbers and without comments."""
    if b"#" in block:
        block = re.sub(rb"#[^\n]*", b"", block)
    if b"\t" in block or b"  " in block or b"\r" in block:
        block = re.sub(rb"[ \t\r]+", b" ", block)
    if b"\n " in block or b" \n" in block or block[:1] == b" " or block[-1:] == b" ":
        block = re.sub(rb"(?m)^ | $", b"", block)
    return block
