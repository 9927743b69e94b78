"""Makers of files that nobody writes by mistake: parts that do not fit together, links to other files, bombs."""

from __future__ import annotations

import gzip
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

VALUES = np.arange(12.0)  # of a sparse matrix of 3 by 4, all its cells listed by columns
ROWS = [0, 1, 2] * 4
SOUND = [0, 3, 6, 9, 12]
FAR = 2_000_000_000
# What is wrong with the starts of the columns, or with the rows: each once crashed a reader or was read wrong.
UNSOUND: dict[str, dict[str, Any]] = {
    "far and back": {"starts": [0, FAR, FAR, FAR, -1]},
    "last below 0": {"starts": [0, 3, 6, 9, -1]},
    "falls": {"starts": [0, 9, 3, 9, 12]},
    "starts late": {"starts": [1, 3, 6, 9, 12]},
    "starts below 0": {"starts": [-3, 3, 6, 9, 12]},
    "ends late": {"starts": [0, 3, 6, 9, 13]},
    "too few columns": {"starts": [0, 3, 12]},
    "row below 0": {"rows": [0, 1, -2, *ROWS[3:]]},
    "row beyond": {"rows": [0, 1, FAR, *ROWS[3:]]},
    "too few rows": {"rows": ROWS[:-1]},
}


def sparse_npz(path: Path, starts: Any = SOUND, rows: Any = ROWS, format: str = "csc") -> Path:
    """A sparse matrix as SciPy saves it."""
    parts: dict[str, Any] = {"data": VALUES, "indices": np.array(rows), "indptr": np.array(starts)}
    shape = [3, 4] if format == "csc" else [4, 3]
    np.savez(path, format=np.array(format.encode()), shape=np.array(shape), **parts)
    return path


def sparse_mat(path: Path, starts: Any = SOUND, rows: Any = ROWS) -> Path:
    """A sparse matrix in a MATLAB file of version 5."""
    elements = [(6, 0x0005, 12), (5, 3, 4), (1, b"S"), (5, *rows), (5, *starts), (9, VALUES.tobytes())]
    path.write_bytes(matlab(elements))
    return path


def sparse_mat_73(path: Path, starts: Any = SOUND, rows: Any = ROWS) -> Path:
    """A sparse matrix in a MATLAB file of version 7.3, with the numbers of columns that the starts tell."""
    with h5py.File(path, "w", userblock_size=512) as file:
        group = file.create_group("S")
        group.attrs["MATLAB_sparse"] = np.uint64(3)
        for name, part in (("data", VALUES), ("ir", rows), ("jc", starts)):
            group.create_dataset(name, data=np.array(part))
    return as_mat_73(path)


def as_mat_73(path: Path) -> Path:
    """An HDF5 file with a block of 512 bytes at its top, marked as MATLAB marks it."""
    with path.open("r+b") as plain:
        plain.write(b"MATLAB 7.3 MAT-file, Platform: any".ljust(128))
    return path


SPARSE: dict[str, Callable[..., Path]] = {"npz": sparse_npz, "mat": sparse_mat, "73.mat": sparse_mat_73}


def matlab(elements: list[Any], packed: bool = False) -> bytes:
    """A file of one array: its elements are a code with whole numbers of four bytes, or with bytes."""
    parts = b""
    for code, *held in elements:
        content = held[0] if isinstance(held[0], bytes) else np.array(held, dtype="<i4").tobytes()
        parts += np.array([code, len(content)], dtype="<u4").tobytes() + content + bytes(-len(content) % 8)
    whole = np.array([14, len(parts)], dtype="<u4").tobytes() + parts
    if packed:
        tight = zlib.compress(whole)
        whole = np.array([15, len(tight)], dtype="<u4").tobytes() + tight
    return b" " * 124 + b"\x00\x01IM" + whole


def mat_of_no_version(path: Path) -> Path:
    """A file of version 5, but for the letters that tell the order of bytes: SciPy reads it, unchecked."""
    content = sparse_mat(path).read_bytes()
    path.write_bytes(content[:124] + b"\x00\x01??" + content[128:])
    return path


def mat_4(path: Path, code: int, rows: int, columns: int, held: bytes) -> Path:
    """A MATLAB file of version 4 with one array, of a type and a class that its code tells."""
    path.write_bytes(np.array([code, rows, columns, 0, 2], dtype="<i4").tobytes() + b"A\x00" + held)
    return path


def sparse_mat_4(path: Path, starts: Any = SOUND, rows: Any = ROWS) -> Path:
    """A sparse matrix in a MATLAB file of version 4, whose columns are listed for each value."""
    columns = np.repeat(np.arange(4), np.diff(starts))
    table = np.array([[*(np.array(rows) + 1), 3], [*(columns + 1), 4], [*VALUES, 0]])
    return mat_4(path, 2, table.shape[1], 3, table.tobytes())


# -- links out of the file ------------------------------------------------------------------------


def _stored_outside(file: h5py.File, other: Path) -> None:
    file.create_dataset("X", (4,), "<f8", external=[(str(other), 0, 32)])


def _virtual(file: h5py.File, other: Path) -> None:
    layout = h5py.VirtualLayout((4,), "<f8")
    layout[:] = h5py.VirtualSource(str(other), "secret", (4,), "<f8")
    file.create_virtual_dataset("X", layout)


def _link_outside(file: h5py.File, other: Path) -> None:
    file["X"] = h5py.ExternalLink(str(other), "secret")


def _soft_link_outside(file: h5py.File, other: Path) -> None:
    file["door"] = h5py.ExternalLink(str(other), "/")
    file["X"] = h5py.SoftLink("/door/secret")


def _part_outside(file: h5py.File, other: Path) -> None:
    group = file.create_group("X")
    group.attrs["MATLAB_sparse"] = np.uint64(3)
    group["data"] = h5py.ExternalLink(str(other), "secret")
    group["ir"], group["jc"] = np.zeros(4, dtype=int), np.array([0, 4])


OUTSIDE: dict[str, Callable[[h5py.File, Path], None]] = {
    "external storage": _stored_outside,
    "virtual": _virtual,
    "external link": _link_outside,
    "soft link over an external one": _soft_link_outside,
    "part behind an external link": _part_outside,
}


def reads_another(path: Path, how: str, other: Path) -> Path:
    """An HDF5 file (as MATLAB has them, if its name says so) that takes numbers from another, which is made too."""
    with h5py.File(other, "w") as secret:
        secret["secret"] = np.arange(4.0)
    with h5py.File(path, "w", userblock_size=512 if path.suffix == ".mat" else 0) as file:
        OUTSIDE[how](file, other)
    return as_mat_73(path) if path.suffix == ".mat" else path


def zone_of_another(path: Path, other: Path) -> Path:
    """Data as ``pltf convert`` writes them, whose dates have a time zone that pandas would read from another file."""
    other.write_bytes(struct.pack(">4s16x6llbb4s", b"TZif", 0, 0, 0, 0, 1, 4, 3600, 0, 0, b"CET"))
    dates = np.array(["2026-11-09", "2026-11-10"], dtype="datetime64[us]")
    zone: dict[str, Any] = {"labels.when": dates, "zones.when": np.array(f"dateutil/{other}")}
    np.savez(path, pltf=1, dims=np.array(["when", "row"]), array=np.eye(2), **zone)
    return path


# -- bombs ----------------------------------------------------------------------------------------


def gzip_bomb(path: Path, size: int, row: bytes = b"a,b,1\n", head: bytes = b"i,j,n\n") -> Path:
    """A table that is packed to a thousandth."""
    with gzip.open(path, "wb") as file:
        file.write(head)
        block = row * (1 + (1 << 20) // len(row))
        for _ in range(0, size, len(block)):
            file.write(block)
    return path


def mat_bomb(path: Path, size: int) -> Path:
    """Zeros of so many bytes in a MATLAB file."""
    path.write_bytes(matlab([(6, 0x0006, 0), (5, 1, size // 8), (1, b"X"), (9, bytes(size))], packed=True))
    return path


def mat_of_sizes_below_0(path: Path, size: int) -> Path:
    """Zeros of so many bytes in a MATLAB file, whose sizes would give memory back."""
    path.write_bytes(matlab([(6, 0x0006, 0), (5, -1, size // 8), (1, b"X"), (9, bytes(size))], packed=True))
    return path


def hdf5_bomb(path: Path, size: int) -> Path:
    """Zeros of so many bytes in an HDF5 file, none of which is written."""
    with h5py.File(path, "w", userblock_size=512 if path.suffix == ".mat" else 0) as file:
        file.create_dataset("X", (size // 8,), "<f8", chunks=True, compression="gzip")
    return as_mat_73(path) if path.suffix == ".mat" else path


def netcdf_coordinate(path: Path, size: int) -> Path:
    """Ten numbers with a coordinate that is not their index and takes so many bytes, packed."""
    with h5py.File(path, "w") as file:
        file["row"] = np.arange(10)
        file["row"].make_scale("row")
        file["X"] = np.arange(10.0)
        file.create_dataset("big", (10,), f"S{size // 10}", chunks=(1,), compression="gzip")
        for name in ("X", "big"):
            file[name].dims[0].attach_scale(file["row"])
        file["X"].attrs["coordinates"] = "big"
    return path


def words_in_hdf5(file: h5py.File, name: str, count: int, word: str) -> None:
    """A packed list of strings that are all the same one, which is stored once."""
    _all_the_same(file, name, count, h5py.string_dtype(), word)


def _all_the_same(group: h5py.Group, name: str, count: int, dtype: Any, one: Any) -> None:
    group.create_dataset(name, (count,), dtype, chunks=(count,), compression="gzip")[0] = one
    group.file.flush()
    _, packed = group[name].id.read_direct_chunk((0,))
    places = zlib.decompress(packed)
    group[name].id.write_direct_chunk((0,), zlib.compress(places[: len(places) // count] * count))


def sparse_mat_73_of_lists(path: Path, count: int, length: int) -> Path:
    """A sparse matrix whose values are lists, all of them the same one."""
    with h5py.File(path, "w", userblock_size=512) as file:
        group = file.create_group("S")
        group.attrs["MATLAB_sparse"] = np.uint64(1)
        _all_the_same(group, "data", count, h5py.vlen_dtype("<f8"), np.zeros(length))
        group["ir"], group["jc"] = np.zeros(count, dtype=int), np.array([0, count])
    return as_mat_73(path)


def netcdf_words(path: Path, count: int, word: str) -> Path:
    """Numbers whose labels are all the same string."""
    return _netcdf_labels(path, count, h5py.string_dtype(), word)


def netcdf_lists(path: Path, count: int, length: int) -> Path:
    """Numbers whose labels are lists, all of them the same one."""
    return _netcdf_labels(path, count, h5py.vlen_dtype("<f8"), np.zeros(length))


def _netcdf_labels(path: Path, count: int, dtype: Any, one: Any) -> Path:
    with h5py.File(path, "w") as file:
        _all_the_same(file, "row", count, dtype, one)
        file["row"].make_scale("row")
        file.create_dataset("X", (count,), "<f8", chunks=(count,), compression="gzip")
        file["X"].dims[0].attach_scale(file["row"])
    return path


def npz_bomb(path: Path, size: int) -> Path:
    """Zeros of so many bytes in a packed .npz file."""
    np.savez_compressed(path, X=np.zeros(size // 8))
    return path


def npz_of_two_names(path: Path, size: int) -> Path:
    """Beside a small array X.npy one of so many bytes called X, which NumPy takes for it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, count in (("X.npy", 3), ("X", size // 8)):
            with file.open(name, "w") as array:
                np.save(array, np.zeros(count))
    return path


def npz_of_names(path: Path, count: int, letters: int) -> Path:
    """Data as ``pltf convert`` writes them, with very many names of so few letters."""
    head = {"descr": f"|S{letters}", "fortran_order": False, "shape": (count,)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        with file.open("pltf.npy", "w") as array:
            np.save(array, np.array(1))
        with file.open("dims.npy", "w") as array:
            np.lib.format.write_array_header_1_0(array, head)
            array.write(bytes(count * letters))
    return path


def parquet_bomb(path: Path, rows: int, word: int = 1) -> Path:
    """A column of one word, which is stored once."""
    import pyarrow as pa
    from pyarrow import parquet

    codes = pa.array(np.zeros(rows, dtype=np.int32))
    parquet.write_table(pa.table({"who": pa.DictionaryArray.from_arrays(codes, pa.array(["x" * word]))}), path)
    return path


def parquet_word(path: Path, size: int) -> Path:
    """A table of one row with one word of so many letters, in a column whose name has a dot, beside a number."""
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table({"who.called": ["x" * size], "n": [1]})
    parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    return path
