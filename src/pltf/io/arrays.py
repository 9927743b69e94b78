"""Arrays in binary files: NumPy, SciPy, MATLAB and netCDF."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data import observe
from pltf.data.labels import counted, known_labels, with_bin
from pltf.data.numeric import EXACT
from pltf.data.sparse_parts import sparse_array
from pltf.errors import PltfError, py
from pltf.io.columns import in_words
from pltf.io.listed import ListedFile
from pltf.io.matlab import matlab_sparse, stored_arrays
from pltf.io.opening import beginning
from pltf.io.saved import is_saved
from pltf.memory import Allowance
from pltf.store.container import texts
from pltf.store.foreign import refuse_outside

_COPIES = 2  # copies of an array at the peak memory use
_STRING = 60  # size of a string object in bytes, without its characters


def read_npy(path: Path, variable: str | None, allowance: Allowance) -> Any:
    """Read the array in a .npy file."""
    _refuse_other(path, b"\x93NUMPY", "npy")
    with path.open("rb") as file:
        allowance.take(_npy_size(file))
    return np.load(path, allow_pickle=False)


def read_npz(path: Path, variable: str | None, allowance: Allowance) -> Any:
    """Read an array from a .npz file, or a tensor saved by SciPy, sparse or pltf as several arrays."""
    _refuse_other(path, b"PK", "npz")
    with np.load(path, allow_pickle=False) as loaded:
        held = _Arrays(loaded, allowance)
        names = held.keys()
        if variable is None and "fill_value" in names and held["fill_value"] != 0:
            raise PltfError(f"{path} must have the fill value 0, got {held['fill_value']}")
        if variable is None and {"coords", "data", "shape"} <= names:  # written by pydata sparse
            return ListedFile(held["coords"].T, held["data"], tuple(map(int, held["shape"])))
        if variable is None and {"format", "shape", "data"} <= names:
            return _from_scipy(path, held)
        if variable is None and {"pltf", "dims"} <= names:
            return _from_our_own(held)
        return held[chosen_array(path, variable, sorted(names))]


class _Arrays(Mapping[str, NDArray[Any]]):
    """The arrays of a .npz file; the memory of each is checked by its header before it is read."""

    def __init__(self, loaded: Any, allowance: Allowance) -> None:
        self._loaded, self._allowance = loaded, allowance
        members = set(loaded.zip.namelist())
        self._names = [name for name in loaded.files if f"{name}.npy" in members]

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._names:
            raise KeyError(name)
        member = f"{name}.npy"  # full name: another member may have the name of the array
        with self._loaded.zip.open(member) as file:
            self._allowance.take(_npy_size(file))
        found: NDArray[Any] = self._loaded[member]
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._names  # Mapping would read the array

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _npy_size(file: Any) -> float:
    """The memory of an array according to its header; strings may be empty, and become objects."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if min(shape, default=0) < 0:  # would increase the allowance
        raise ValueError(f"an array has a negative size: {shape}")
    each = _COPIES * dtype.itemsize + (0 if dtype.kind in "biufcmM" else _STRING)
    return float(each) * math.prod(shape)


def _from_scipy(path: Path, held: Mapping[str, Any]) -> Any:
    """A sparse matrix written by ``scipy.sparse.save_npz``."""
    format = held["format"].item()
    format = format.decode("ascii") if isinstance(format, bytes) else str(format)
    parts = {part: held[part] for part in ("data", "indices", "indptr", "offsets") if part in held}
    if format == "coo":
        parts["coords"] = [held["row"], held["col"]]
    return sparse_array(format, parts, held["shape"], str(path))


def _from_our_own(held: Mapping[str, Any]) -> Any:
    """Data written by ``pltf convert``."""
    dims = [str(dim) for dim in held["dims"]] or None
    labels = {}
    for dim in dims or ():
        if f"counted.{dim}" in held:
            labels[dim] = counted(int(held[f"counted.{dim}"]))
        elif f"labels.{dim}" in held:
            bin, zone = (str(held[f"{kind}.{dim}"]) if f"{kind}.{dim}" in held else None for kind in ("bins", "zones"))
            names = known_labels(held[f"labels.{dim}"], f"labels of {dim!r}").index
            labels[dim] = with_bin(names, bin, zone)
    named: dict[str, Any] = {"dims": dims, "labels": labels or None}
    if "array" in held:
        return observe(held["array"], held.get("mask"), **named)
    listed, shape = (held["cells"], held["values"]), tuple(map(int, held["shape"]))
    return observe(listed, shape=shape, missing=held.get("missing"), unlisted=str(held["unlisted"]), **named)


def read_mat(path: Path, variable: str | None, allowance: Allowance) -> Any:
    """Read an array of numbers from a MATLAB file of any version."""
    if beginning(path).startswith((b"MATLAB 7.3", b"\x89HDF")):
        return _mat_73(path, variable, allowance)
    allowance.take(path.stat().st_size)
    stored = stored_arrays(path)
    return stored[chosen_array(path, variable, list(stored))].array(str(path), allowance)


def _mat_73(path: Path, variable: str | None, allowance: Allowance) -> Any:
    """Read MATLAB 7.3: HDF5 with reversed axes, and sparse matrices in CSC form."""
    import h5py

    with h5py.File(path, "r") as file:
        refuse_outside(path, file)
        names = [name for name, one in file.items() if _is_array(one)]
        one = file[chosen_array(path, variable, names)]
        if not isinstance(one, h5py.Group):
            allowance.take(hdf5_size(one))
            return np.asarray(one).T
        for part in ("data", "ir", "jc"):
            if one[part].dtype.kind not in "iufb":  # an element of another type may be a whole list
                raise ValueError(f"the part {part!r} of a sparse array must be numbers")
            allowance.take(hdf5_size(one[part]))
        values, rows, starts = (np.asarray(one[part]) for part in ("data", "ir", "jc"))
        return matlab_sparse(values, rows, starts, int(one.attrs["MATLAB_sparse"]), str(path))


def hdf5_size(stored: Any) -> float:
    """The memory of an HDF5 array converted to float, and of one chunk, which may be larger."""
    chunk = math.prod(stored.chunks or ()) * float(stored.dtype.itemsize)
    return float(_COPIES * stored.size * max(stored.dtype.itemsize, 8) + chunk)


def _is_array(one: Any) -> bool:
    """Whether an item of a MATLAB file is an array of numbers."""
    if one is None:  # a broken link
        return False
    if "MATLAB_sparse" in one.attrs:
        return "data" in one
    kind = getattr(getattr(one, "dtype", None), "kind", "")
    return (
        kind in "iufb" and kind != "" and one.attrs.get("MATLAB_class") != b"char" and "MATLAB_empty" not in one.attrs
    )


def read_netcdf(path: Path, variable: str | None, allowance: Allowance) -> Any:
    """Read an array of numbers from a netCDF file, with its labels."""
    import h5py
    import xarray as xr

    if is_saved(path):  # also checks that HDF5 can open the file
        raise PltfError(f"{path} is a fit or a search saved by pltf, but data are expected here")
    if h5py.is_hdf5(path):
        cache = int(min(max(allowance.left, 0), 2**62))  # strings are read in parts, and their chunks may be large
        with h5py.File(path, "r", rdcc_nbytes=cache) as file:
            refuse_outside(path, file)
            _take_labels(file, allowance)
    with warnings.catch_warnings(action="ignore"), xr.open_dataset(path, decode_timedelta=False) as data:
        names = [str(name) for name, one in data.data_vars.items() if one.dtype.kind in "iufb" and one.ndim]
        chosen = data[chosen_array(path, variable, names)].reset_coords(drop=True)  # not labels, of any size
        allowance.take(_COPIES * float(chosen.size) * max(chosen.dtype.itemsize, 8))
        array = chosen.load()
    stored = np.dtype(array.encoding.get("dtype", array.dtype))
    if stored.kind in "iu" and array.dtype.kind == "f" and array.size and float(array.max()) >= EXACT:
        raise PltfError(f"{path} has whole numbers above 2**53 and missing values: float64 would round them")
    return array


def _take_labels(file: Any, allowance: Allowance) -> None:
    """Check the memory of labels, which xarray reads at once; a string element may be large."""
    import h5py

    for one in file.values():
        if isinstance(one, h5py.Dataset) and one.is_scale:
            allowance.take(hdf5_size(one))
            if one.ndim and one.dtype.kind == "O":
                if h5py.check_string_dtype(one.dtype) is None:
                    raise ValueError(f"labels must be strings or numbers, but {one.name} has another type")
                texts(one, allowance)
        elif isinstance(one, h5py.Dataset) and one.chunks:
            allowance.take(math.prod(one.chunks) * float(one.dtype.itemsize))


def chosen_array(path: Path, variable: str | None, names: Sequence[str]) -> str:
    """The array to read from a file with these arrays."""
    if variable is None and len(names) == 1:
        return names[0]
    if not names:
        raise PltfError(f"{path} has no array of numbers")
    if variable is None or variable not in names:
        came = f"got {variable!r}" if variable is not None else f"select one with {py:variable=}"
        raise PltfError(f"{path} has the arrays {in_words(names)}: {came}")
    return variable


def _refuse_other(path: Path, mark: bytes, kind: str) -> None:
    with path.open("rb") as file:
        if not file.read(len(mark)).startswith(mark):
            raise PltfError(f"{path} is not a {kind} file")
