"""One file with several groups of arrays, and a JSON text that describes them."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pltf.errors import PltfError
from pltf.memory import Allowance
from pltf.stale_files import held_file
from pltf.store.foreign import check_plain_file, refuse_outside

FORMAT = 2  # increased when older versions of pltf cannot read new files
_SIGN = "pltf"
_MARK, _END = b"\x89HDF\r\n\x1a\n", b"pltf checksum "
_CHECK, _PART = 16, 1 << 20  # bytes of a checksum, and bytes read at a time to compute it
_ABOUT, _GROUP = "about.json", "pltf."  # the dot makes collisions with names of indices and factors impossible
_PACKED = 1 << 16  # arrays of integers with at least this many entries are compressed
_NAME = 100  # bytes of the file name that are used for the temporary name
_TEXTS = 1000  # number read at a time
_STRING = 24  # bytes per string in addition to its characters: its position in the file, and in memory
_TOO_MUCH = "it declares more data than it can contain"
_TIGHTEST = 1100  # largest compression ratio: zlib's limit is 1032
_BARE = b"This is a netCDF dimension but not a netCDF variable"  # how netCDF marks a dimension without coordinates


@dataclass
class Box:
    """Arrays with the names of their axes; everything else as plain numbers, strings, lists and dictionaries."""

    about: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    dims: dict[str, tuple[str, ...]] = field(default_factory=dict)
    attrs: dict[str, dict[str, Any]] = field(default_factory=dict)  # attributes of an array for other programs

    def put(
        self,
        name: str,
        array: NDArray[Any],
        dims: tuple[str, ...] | None = None,
        attrs: dict[str, Any] | None = None,
    ) -> None:
        """Add an array; without names, its axes get names that no index can have."""
        self.arrays[name] = np.asarray(array)
        self.dims[name] = dims or tuple(f"{name}.{axis}" for axis in range(self.arrays[name].ndim))
        self.attrs[name] = attrs or {}

    def get(self, name: str, shape: tuple[int, ...] | None = None, kinds: str = "f") -> NDArray[Any]:
        """An array, checked against the expected shape and kinds of numbers."""
        array = self.arrays[name]
        if shape is not None and array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
        if array.dtype.kind not in kinds:
            raise ValueError(f"{name} has unsupported dtype {array.dtype}")
        return array


Boxes = dict[str, Box]


def write(path: Path, kind: str, boxes: Mapping[str, Box]) -> None:
    """Write a file atomically: write under a temporary name, then rename, so that readers see the old or the new file.

    A killed process leaves its temporary file behind; the next write removes it.
    """
    with replacing(path) as part:
        part.write_bytes(_image(kind, boxes))
        sign(part)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name to write to and rename it at the end; if writing fails, it is removed."""
    try:
        with held_file(path.parent, _part_name(path), ".part") as part:
            yield part
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            _publish(part, path)
    except (OSError, MemoryError) as reason:
        told = getattr(reason, "strerror", None) or str(reason) or "out of memory"
        raise PltfError(f"{path} cannot be written: {told}") from None


_free_names: ContextVar[tuple[Callable[[Path], Path], dict[Path, Path]] | None] = ContextVar("names", default=None)


@contextmanager
def leaving_others(free: Callable[[Path], Path]) -> Iterator[dict[Path, Path]]:
    """Never overwrite existing files in this block; yields a mapping from requested to actual names.

    ``free`` finds an unused name.
    """
    names: dict[Path, Path] = {}
    before = _free_names.set((free, names))
    try:
        yield names
    finally:
        _free_names.reset(before)


def _publish(part: Path, path: Path) -> None:
    """Give a written file its final name atomically: replace the existing file, or use a free name if required."""
    asked = _free_names.get()
    if asked is None:
        part.replace(path)
        return
    free, names = asked
    while True:
        names[path] = free(path)
        try:
            os.link(part, names[path])  # unlike a rename, a link never overwrites
        except FileExistsError:  # another program was faster
            continue
        except OSError:  # this file system does not support hard links
            part.replace(names[path])
        return


def _part_name(path: Path) -> str:
    """Prefix of the temporary name: limited in bytes, as file systems count, without splitting a character."""
    return f".{path.name.encode('utf-8', 'surrogateescape')[:_NAME].decode('utf-8', 'ignore')}."


def check_writable(path: Path) -> None:
    """Raise an error before any work if the file could not be created at the end (name too long, full disk, ...).

    >>> check_writable(Path("run" * 100 + ".nc"))
    Traceback (most recent call last):
        ...
    pltf.errors.PltfError: runrun...run.nc cannot be written: File name too long
    """
    try:
        with suppress(FileNotFoundError):
            path.lstat()
        with held_file(path.parent, _part_name(path), ".part"):
            pass
    except OSError as reason:
        raise PltfError(f"{_shortened(path)} cannot be written: {reason.strerror or reason}") from None


def _shortened(path: Path) -> Path:
    """A path with a readable name, however long it is."""
    name = path.name
    return path if len(name) <= 100 else path.with_name(f"{name[:6]}...{name[-6:]}")


def _image(kind: str, boxes: Mapping[str, Box]) -> memoryview:
    """A netCDF file built in memory: HDF5 may crash when a disk is full."""
    import h5netcdf

    image = io.BytesIO()
    with h5netcdf.File(image, "w") as file:
        file.attrs.update({"format": _SIGN, "format_version": FORMAT, "kind": kind})
        for name, box in boxes.items():
            _fill(file.create_group(_GROUP + name) if name else file, box)
    return image.getbuffer()


def _fill(group: Any, box: Box) -> None:
    """Write the contents of a box to a group of a file.

    An array keeps its memory layout: sums over it then have the same order after it is read again.
    """
    import h5py

    text = h5py.string_dtype()
    sized = (zip(box.dims[key], array.shape, strict=True) for key, array in box.arrays.items())
    group.dimensions = {name: size for pairs in sized for name, size in pairs}
    for key, array in box.arrays.items():
        order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
        names = tuple(box.dims[key][axis] for axis in order)
        packed = array.size >= _PACKED and array.dtype.kind in "iu"
        packing = {"compression": "gzip", "compression_opts": 1, "shuffle": True} if packed else {}
        dtype = text if array.dtype == object else array.dtype
        stored = group.create_variable(key, names, dtype, data=array.transpose(order), **packing)
        stored.attrs.update({**box.attrs[key], "axes": np.argsort(order)} if array.ndim > 1 else box.attrs[key])
    group.create_variable(_ABOUT, (), text, data=np.array(as_text(box.about), dtype=object))


def sign(path: Path) -> None:
    """Append a checksum at the end of the file, where HDF5 does not look.

    HDF5 hangs on some kinds of damage, and does not notice damaged numbers.
    """
    with path.open("rb+") as file:
        file.write(_END + _checksum(file, path.stat().st_size))


def _signed(path: Path) -> bool:
    """Whether a file ends with a valid checksum."""
    length = path.stat().st_size - len(_END) - _CHECK
    with path.open("rb") as file:
        return length > 0 and _END + _checksum(file, length) == file.read()


def _checksum(file: BinaryIO, length: int) -> bytes:
    """Checksum of the first ``length`` bytes."""
    whole = hashlib.blake2b(digest_size=_CHECK)
    while length and (part := file.read(min(length, _PART))):
        whole.update(part)
        length -= len(part)
    return whole.digest()


def as_text(plain: Any) -> str:
    """Plain data as JSON, including NumPy scalars."""
    return json.dumps(plain, default=lambda number: number.item())


def read(path: Path, limit: float | None = math.inf) -> tuple[str, Boxes]:
    """The kind of a file and its contents, if they need at most ``limit`` bytes; None: the available memory.

    netCDF readers would follow decoding hints in the file and links to other files.
    """
    import h5py

    _refuse_foreign(path)
    most, allowance = _TIGHTEST * path.stat().st_size, Allowance(path, limit)
    with readable(path), h5py.File(path, "r", rdcc_nbytes=most) as file:  # else a chunk of strings is unpacked for each
        kind = _checked_kind(path, file.attrs)
        refuse_outside(path, file)
        stored = _stored(file)
        size = sum(stored.values())
        if size > most:
            raise ValueError(_TOO_MUCH)
        allowance.take(size)
        boxes = Boxes()
        for name in stored:
            group, _, key = name.rpartition("/")
            box = boxes.setdefault(group.removeprefix(_GROUP), Box())
            if key == _ABOUT:
                box.about = json.loads(file[name].asstr()[()])
            else:
                box.put(key, _array(file[name], allowance, most))
        return kind, boxes


def _stored(file: Any) -> dict[str, int]:
    """Full names of everything stored in a file, with sizes in bytes; links are not followed, so cycles are harmless.

    Closes every object: open ones would keep their decompressed data.
    """
    import h5py

    found = {}

    def note(name: str, one: Any) -> None:
        if isinstance(one, h5py.Dataset) and not bytes(one.attrs.get("NAME", b"")).startswith(_BARE):
            each = one.dtype.itemsize if one.dtype.kind != "O" else _STRING
            found[name] = max(one.size, math.prod(one.chunks or ())) * each

    file.visititems(note)
    return found


def _array(stored: Any, allowance: Allowance, most: int) -> NDArray[Any]:
    """Numbers or strings with the stored layout; strings are limited in their total length."""
    array = texts(stored, allowance, most) if stored.dtype.kind == "O" else np.asarray(stored[...])
    if array.dtype.kind not in "iufO":
        raise ValueError(f"{stored.name} has unsupported dtype {array.dtype}")
    return array.transpose(stored.attrs.get("axes", range(array.ndim)))


def texts(stored: Any, allowance: Allowance, most: float = math.inf) -> NDArray[Any]:
    """Read strings in batches: a file can store many strings as one, but each needs memory of its own."""
    found: list[str] = []
    for at in range(0, len(stored), _TEXTS):
        part = stored.asstr()[at : at + _TEXTS].tolist()
        most -= sum(map(len, part))
        if most < 0:
            raise ValueError(_TOO_MUCH)
        allowance.take(sum(map(sys.getsizeof, part)))
        found += part
    return np.array(found, dtype=object)


def _refuse_foreign(path: Path) -> None:
    """Raise an error at once for files of the wrong kind or incomplete files."""
    check_plain_file(path)
    try:
        with path.open("rb") as file:
            begin = file.read(len(_MARK))
        whole = begin == _MARK and _signed(path)
    except OSError as reason:
        raise PltfError(f"{path} cannot be read: {reason.strerror or reason}") from None
    if begin != _MARK:
        raise PltfError(f"{path} is not a file saved by pltf")
    if not whole:
        raise PltfError(f"{path} is damaged or was not saved by pltf: its checksum is missing or wrong")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn all reader errors caused by a damaged file into one clear message."""
    try:
        yield
    except MemoryError:  # the file may be intact
        raise
    except Exception as reason:
        if isinstance(reason, PltfError) and str(path) in str(reason):  # already a clear message
            raise
        text = " ".join(str(reason).split())[:200]
        raise PltfError(f"{path} is damaged or was not saved by pltf: {text}") from None


def _checked_kind(path: Path, attrs: Mapping[Any, Any]) -> str:
    if attrs.get("format") != _SIGN:
        raise PltfError(f"{path} is not a file saved by pltf")
    version = int(np.asarray(attrs["format_version"]).item())
    if version > FORMAT:
        raise PltfError(f"{path} has format {version}, but this pltf reads up to {FORMAT}: upgrade it")
    return str(attrs["kind"])
