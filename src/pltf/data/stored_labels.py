"""Labels of a mode in a cell store: an Arrow file with one column, which may be larger than memory."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.arrow_files import mapped_table
from pltf.data.labels import Labels, with_bin
from pltf.data.part_files import File, durable
from pltf.errors import ObservationError, is_number

if TYPE_CHECKING:
    import pandas as pd

LABEL = "label"  # name of the column
_UNITS = ("s", "ms", "us", "ns")
KINDS = ("string", "int64", "float64", "bool", *(f"datetime64[{unit}]" for unit in _UNITS))
_ROWS = 1 << 17  # in a batch


class StoredLabels(Labels):
    """Labels in a file. They become Python objects only when all of them are used."""

    def __init__(
        self,
        index: pd.Index | None,
        bin: str | None,
        zone: str | None,
        file: File | None = None,
        kind: str = "",
        count: int = 0,
    ) -> None:
        """With an ``index``, which :func:`dataclasses.replace` passes, these are labels in memory."""
        own: dict[str, Any] = {"bin": bin, "zone": zone, "_file": file, "_kind": kind, "_count": count}
        self.__dict__.update(own if index is None else own | {"index": index, "_count": len(index)})

    def __getattr__(self, name: str) -> Any:  # called only for attributes that are not set yet
        if name != "index" or self.__dict__.get("_file") is None:
            raise AttributeError(name)
        self.__dict__["index"] = index = self._checked()
        return index

    def _checked(self) -> pd.Index:
        """All labels, checked to be distinct."""
        index = _as_index(self._column(), self._kind, self._file.path)
        if not index.is_monotonic_increasing and index.has_duplicates:  # of a sorted index the check is cheap
            raise ObservationError(f"{self._file.path} must not repeat a label")
        return index

    def _column(self) -> Any:
        """The column of the file, memory-mapped."""
        self._file.check(self._check, (self._kind, self._count))
        return self._read()

    def _check(self) -> None:
        """Refuse a damaged file, even with a correct checksum: its strings would be read from invalid memory."""
        import pyarrow as pa

        column, path = self._read(), self._file.path
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as reason:
            raise _unreadable(path, reason) from None

    def _read(self) -> Any:
        import pyarrow as pa

        path = self._file.path
        try:
            column = mapped_table(path).column(LABEL)
        except (pa.ArrowException, KeyError, OSError, ValueError, struct.error) as reason:
            raise _unreadable(path, reason) from None
        if len(column) != self._count or column.null_count or column.type != _arrow_type(self._kind):
            raise ObservationError(f"{path} must have {self._count:,} labels of the type {self._kind}")
        return column

    def __len__(self) -> int:
        return int(self._count)

    def at(self, positions: Any) -> pd.Index:
        """The labels of positions, without reading the others."""
        if "index" in self.__dict__:
            return super().at(positions)
        at = np.asarray(positions, dtype=np.intp)
        at = np.where(at < 0, at + len(self), at)
        if at.size and not 0 <= at.min() <= at.max() < len(self):
            raise IndexError(f"positions must be from 0 to {len(self) - 1}")
        return _as_index(self._column().take(at), self._kind, self._file.path)


def _unreadable(path: Path, reason: Exception) -> ObservationError:
    return ObservationError(f"{path} cannot be read as the labels of a cell store: {' '.join(str(reason).split())}")


def write_labels(folder: Path, number: int, labels: Labels | Iterable[Any], zone: str | None = None) -> dict[str, Any]:
    """Write the labels of mode ``number``; returns the entry for store.json.

    ``labels`` are :class:`Labels` with their bin and time zone, or an iterable of Arrow arrays, of which only one is in
    memory at a time.
    """
    import pyarrow as pa

    bin = None
    if isinstance(labels, Labels):
        bin, zone = labels.bin, labels.zone
        labels = [pa.array(labels.index.to_numpy(), from_pandas=False)]
    path = folder / f"labels-{number}.arrow"
    kind, count = _write(path, labels)
    return {**File.of(path).about(), "kind": kind, "bin": bin, "zone": zone, "count": count}


def _write(path: Path, arrays: Iterable[Any]) -> tuple[str, int]:
    """Write arrays as batches of a file; returns the kind and the number of labels."""
    import pyarrow as pa

    writer, kind, count = None, "", 0
    with durable(path) as stream:
        try:
            for array in arrays:
                kind = kind or label_kind(array.type, path)
                column = array.cast(_arrow_type(kind))
                if column.null_count:
                    raise ObservationError(f"{path}: a label is missing")
                if writer is None:
                    writer = pa.ipc.new_file(stream, pa.schema([(LABEL, column.type)]))
                writer.write_table(pa.table({LABEL: column}), max_chunksize=_ROWS)
                count += len(column)
        finally:
            if writer is not None:
                writer.close()
    if not count:
        raise ObservationError(f"{path}: an index must have at least one label")
    return kind, count


def label_kind(type_: Any, what: object) -> str:
    """The kind of labels for an Arrow type: one of ``KINDS``."""
    import pyarrow.types as of

    if of.is_dictionary(type_):
        return label_kind(type_.value_type, what)
    if of.is_string(type_) or of.is_large_string(type_) or type_ == "string_view":
        return "string"
    if of.is_integer(type_):
        return "int64"
    if of.is_floating(type_):
        return "float64"
    if of.is_boolean(type_):
        return "bool"
    if of.is_date(type_):
        return "datetime64[s]"
    if of.is_timestamp(type_):
        return f"datetime64[{type_.unit}]"
    raise ObservationError(f"{what}: labels must be strings, numbers or dates, got {type_}")


def _arrow_type(kind: str) -> Any:
    """The Arrow type in which labels of a kind are stored."""
    import pyarrow as pa

    if kind.startswith("datetime64"):
        return pa.timestamp(kind[len("datetime64[") : -1])
    return {"string": pa.large_string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}[kind]


def _as_index(column: Any, kind: str, path: Path) -> pd.Index:
    import pandas as pd

    if kind == "string":
        try:
            words: NDArray[Any] = np.empty(len(column), dtype=object)
            words[:] = column.to_pylist()
        except UnicodeDecodeError:
            raise ObservationError(f"{path} must contain UTF-8 text") from None
        return pd.Index(words, dtype=object)
    return pd.Index(column.to_numpy())


def read_labels(file: File, line: Mapping[str, Any]) -> Labels:
    """The labels of an entry of store.json from :func:`write_labels`; the file is read when they are used."""
    import pandas as pd

    kind: Any = line.get("kind")
    count: Any = line.get("count")
    if kind not in KINDS or not is_number(count, whole=True) or not 0 < count < 2**63:
        raise ObservationError(f"{file.path.parent} is not a cell store of this version: its labels cannot be read")
    told = with_bin(pd.Index([], dtype=object if kind == "string" else kind), line.get("bin"), line.get("zone"))
    return StoredLabels(None, told.bin, told.zone, file=file, kind=kind, count=count)
