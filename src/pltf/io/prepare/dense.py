"""Dense arrays, read in blocks: Zarr, HDF5, NumPy, Dask, xarray."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.labels import known_labels
from pltf.data.numeric import find_bad
from pltf.data.tables import Key
from pltf.errors import ObservationError, PltfError, py
from pltf.io.arrays import chosen_array
from pltf.io.opening import readable
from pltf.io.prepare.cells import MOST_MISSING
from pltf.io.prepare.database import Database
from pltf.io.prepare.sources import ROWS_TABLE, VALUE, Kind, Known, Rows, Source
from pltf.store.foreign import refuse_outside

_CELLS = 1 << 22  # of a block
_OF_ZARR = ("zarr.json", ".zarray", ".zgroup")


class DenseArray(Source):
    """An array in which NaN is missing and zero is a value."""

    def __init__(
        self,
        array: Any,
        name: str,
        files: Sequence[Path] = (),
        dims: Sequence[str] = (),
        labels: Known | None = None,
    ) -> None:
        if not isinstance(array.dtype, np.dtype):
            known = "NumPy, HDF5, Zarr, Dask or xarray"
            raise ObservationError(
                f"{name} must be an array of {known}, got {type(array).__module__}.{type(array).__name__}"
            )
        if array.dtype.kind not in "biuf":
            raise ObservationError(f"{name} must hold real or whole numbers, got {array.dtype}")
        if not array.ndim or not math.prod(array.shape):
            raise ObservationError(f"{name} must not be empty, got an array of shape {tuple(array.shape)}")
        _refuse_pickles(array, name)
        self.name, self.files, self._array = name, list(files), array
        self.unlisted, self.dims, self._labels = "zero", tuple(dims), dict(labels or {})

    def columns(self) -> list[str]:
        return [f"i{axis}" for axis in range(self._array.ndim)]

    def labels(self, keys: Sequence[Key]) -> Known:
        named = zip(keys, self.dims, strict=True) if self.dims else ()
        return {key.dim: self._labels[dim] for key, dim in named if dim in self._labels}

    def sizes(self) -> tuple[int, ...]:
        return tuple(map(int, self._array.shape))

    def rows(self, database: Database, keys: Sequence[Key], value: str | None, known: Known) -> Rows:
        """A table of the cells to list."""
        import pyarrow as pa

        self.unlisted = self._choice()
        names = [f"c{axis}" for axis in range(self._array.ndim)]
        schema = pa.schema([*((name, pa.int64()) for name in names), (VALUE, pa.float64())])
        database.create(ROWS_TABLE, schema, self._listed(schema))
        return Rows(ROWS_TABLE, [Kind("whole")] * len(names), Kind("real"))

    def _choice(self) -> str:
        """Whether unlisted cells are zero or missing: "missing" if most cells are."""
        absent = 0
        for corner, block, missing in _blocks(self._array):
            bad = find_bad(block[~missing])
            if bad is not None:
                at = np.argwhere(~missing)[bad[0]]
                cell = tuple(int(n) for n in at + corner)
                raise ObservationError(
                    f"{self.name}: observed values must be {bad[1]}, but cell {cell} holds {block[tuple(at)]}"
                )
            absent += int(missing.sum())
        if 2 * absent > math.prod(self.sizes()):
            return "missing"
        if absent > MOST_MISSING:
            raise ObservationError(
                f"{self.name} has {absent:,} missing cells, and a store can list at most {MOST_MISSING:,}"
            )
        return "zero"

    def _listed(self, schema: Any) -> Iterator[Any]:
        import pyarrow as pa

        for corner, block, missing in _blocks(self._array):
            at = np.nonzero(~missing if self.unlisted == "missing" else missing | (block != 0))
            values = pa.array(block[at].astype(np.float64), mask=missing[at])
            columns = [pa.array(one.astype(np.int64) + first) for one, first in zip(at, corner, strict=True)]
            yield pa.record_batch([*columns, values], schema=schema)


def _blocks(array: Any) -> Iterator[tuple[NDArray[np.int64], NDArray[Any], NDArray[np.bool_]]]:
    """Blocks of whole chunks: where each begins, its values, and which of its cells are missing."""
    shape = tuple(map(int, array.shape))
    chunks = getattr(array, "chunks", None) or (1,) * len(shape)
    steps = [max(one) if isinstance(one, tuple) else one for one in chunks]  # Dask has the sizes of all chunks
    for axis in reversed(range(len(shape))):
        room = _CELLS // max(1, math.prod(steps))
        steps[axis] = min(shape[axis], steps[axis] * max(1, room))
    for corner in itertools.product(*(range(0, size, step) for size, step in zip(shape, steps, strict=True))):
        inside = tuple(slice(at, min(at + step, size)) for at, step, size in zip(corner, steps, shape, strict=True))
        block = array[inside]
        values = np.asarray(block)
        missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, dtype=bool)
        if isinstance(block, np.ma.MaskedArray):
            missing |= np.ma.getmaskarray(block)
        yield np.array(corner), values, missing


def _refuse_pickles(array: Any, name: str) -> None:
    """Refuse a Zarr array with pickled chunks: reading them would run code."""
    metadata = getattr(array, "metadata", None)
    if metadata is not None and "pickle" in json.dumps(metadata.to_dict(), default=str).lower():
        raise PltfError(f"{name} holds pickled objects, which are not loaded: save numbers")


# -- arrays in files ----------------------------------------------------------------------------


def is_array(data: Any) -> bool:
    """Whether data are an array that can be read in blocks."""
    return all(hasattr(data, name) for name in ("shape", "dtype", "ndim")) and not hasattr(data, "columns")


def of_xarray(array: Any, name: str) -> DenseArray:
    """An xarray.DataArray with its dims and labels; one that Dask or a file holds is read block by block."""
    if not hasattr(type(array), "coords") or hasattr(type(array), "data_vars"):
        raise ObservationError(f"{name} must be the data of one tensor, got an xarray {type(array).__name__}")
    dims = tuple(map(str, array.dims))
    labels = {
        dim: known_labels(array.indexes[dim], f"{name}: labels of {dim!r}") for dim in dims if dim in array.indexes
    }
    return DenseArray(array.variable, name, dims=dims, labels=labels)


def of_npy(path: Path) -> DenseArray:
    """A .npy file, memory-mapped."""
    with readable(path, "npy"):
        return DenseArray(np.load(path, mmap_mode="r", allow_pickle=False), str(path), [path])


def of_zarr(path: Path, variable: str | None) -> DenseArray:
    """An array in a Zarr folder."""
    try:
        import zarr
    except ImportError:
        raise PltfError(f"{path} needs zarr to be read: pip install zarr") from None
    if not any((path / name).exists() for name in _OF_ZARR):
        raise PltfError(f"{path} is a folder, and it has no Zarr array: name files, such as '{path / '*.parquet'}'")
    with readable(path, "Zarr"):
        held = zarr.open(str(path), mode="r")
    if hasattr(held, "dtype"):
        if variable is not None:
            raise PltfError(f"{path} has one array: {py:variable} must be None")
        return DenseArray(held, str(path))
    return DenseArray(held[chosen_array(path, variable, sorted(name for name, _ in held.arrays()))], str(path))


def of_hdf5(path: Path, variable: str | None) -> DenseArray:
    """A dataset of an HDF5 file, which stays open while the array is in use."""
    import h5py

    with readable(path, "HDF5"):
        file = h5py.File(path, "r")
    refuse_outside(path, file)
    found: list[str] = []
    file.visititems(lambda name, one: found.append(name) if isinstance(one, h5py.Dataset) and one.ndim else None)
    return DenseArray(file[chosen_array(path, variable, found)], str(path), [path])
