"""One file, several groups of arrays, and a text (JSON) that tells what they are."""

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
from pltf.store.inside import refuse_outside
from pltf.store.plain_file import check_plain_file

FORMAT = 2  # raised when older versions of pltf could not read what is written
_SIGN = "pltf"
_MARK, _END = b"\x89HDF\r\n\x1a\n", b"pltf checksum "
_CHECK, _PART = 16, 1 << 20  # bytes of a checksum, and that are read at a time for it
_ABOUT, _GROUP = "about.json", "pltf."  # a dot: no index and no factor is called so
_PACKED = 1 << 16  # entries from which on an array is worth packing
_NAME = 100  # bytes of the name of a file that its part has
_TEXTS = 1000  # that are read at a time
_STRING = 24  # bytes that a string takes beside its letters: where it is in the file, and in memory
_TOO_MUCH = "it tells of more than can be in it"
_TIGHTEST = 1100  # times that packing can make an array smaller: zlib's limit is 1032
_BARE = b"This is a netCDF dimension but not a netCDF variable"  # as netCDF marks the length of an axis


@dataclass
class Box:
    """Arrays with the names of their axes, and everything else as plain numbers, texts, lists and dictionaries."""

    about: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    dims: dict[str, tuple[str, ...]] = field(default_factory=dict)
    attrs: dict[str, dict[str, Any]] = field(default_factory=dict)  # what other programs should know of an array

    def put(
        self,
        name: str,
        array: NDArray[Any],
        dims: tuple[str, ...] | None = None,
        attrs: dict[str, Any] | None = None,
    ) -> None:
        """Add an array; without names its axes get some that no index has."""
        self.arrays[name] = np.asarray(array)
        self.dims[name] = dims or tuple(f"{name}.{axis}" for axis in range(self.arrays[name].ndim))
        self.attrs[name] = attrs or {}

    def get(self, name: str, shape: tuple[int, ...] | None = None, kinds: str = "f") -> NDArray[Any]:
        """An array, of the shape and of one of the kinds of numbers that it must have."""
        array = self.arrays[name]
        if shape is not None and array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape} and not {shape}")
        if array.dtype.kind not in kinds:
            raise ValueError(f"{name} cannot be {array.dtype}")
        return array


Boxes = dict[str, Box]


def write(path: Path, kind: str, boxes: Mapping[str, Box]) -> None:
    """Write a file under another name and rename it: whoever looks finds the old one or the new one, never a part.

    A process that is killed leaves a part behind, which the next one removes.
    """
    with replacing(path) as part:
        part.write_bytes(_image(kind, boxes))
        sign(part)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Another name to write to, which is then given the right one; nothing is left of it if that fails."""
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
    """Have files that are written in this block replace no others; yields, by what was asked for, the names they got.

    ``free`` finds a name that nothing has.
    """
    names: dict[Path, Path] = {}
    before = _free_names.set((free, names))
    try:
        yield names
    finally:
        _free_names.reset(before)


def _publish(part: Path, path: Path) -> None:
    """Give what is written its name, in one step: in place of what has it, or if that is to be left, a free one."""
    asked = _free_names.get()
    if asked is None:
        part.replace(path)
        return
    free, names = asked
    while True:
        names[path] = free(path)
        try:
            os.link(part, names[path])  # unlike a new name, a second one never replaces
        except FileExistsError:  # another program was quicker
            continue
        except OSError:  # a file has one name only on this file system
            part.replace(names[path])
        return


def _part_name(path: Path) -> str:
    """How the name of a part begins: cut by bytes, which file systems count, and not within a character."""
    return f".{path.name.encode('utf-8', 'surrogateescape')[:_NAME].decode('utf-8', 'ignore')}."


def check_writable(path: Path) -> None:
    """Refuse, before any work, a file that could not be created in the end: the name may be too long, the folder full.

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
    """A path whose name can be read, however long it is."""
    name = path.name
    return path if len(name) <= 100 else path.with_name(f"{name[:6]}...{name[-6:]}")


def _image(kind: str, boxes: Mapping[str, Box]) -> memoryview:
    """A netCDF file in memory: HDF5 may crash when a disk is full."""
    import h5netcdf

    image = io.BytesIO()
    with h5netcdf.File(image, "w") as file:
        file.attrs.update({"format": _SIGN, "format_version": FORMAT, "kind": kind})
        for name, box in boxes.items():
            _fill(file.create_group(_GROUP + name) if name else file, box)
    return image.getbuffer()


def _fill(group: Any, box: Box) -> None:
    """Put what is in a box into a group of a file.

    An array is written as it lies in memory: sums over it then take the same order when it is read again.
    """
    import h5py

    text = h5py.string_dtype()
    sized = (zip(box.dims[key], array.shape, strict=True) for key, array in box.arrays.items())
    group.dimensions = {name: size for pairs in sized for name, size in pairs}
    for key, array in box.arrays.items():
        order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
        names = tuple(box.dims[key][axis] for axis in order)
        packing = {"compression": "gzip", "compression_opts": 1, "shuffle": True} if _worth_packing(array) else {}
        dtype = text if array.dtype == object else array.dtype
        stored = group.create_variable(key, names, dtype, data=array.transpose(order), **packing)
        stored.attrs.update({**box.attrs[key], "axes": np.argsort(order)} if array.ndim > 1 else box.attrs[key])
    group.create_variable(_ABOUT, (), text, data=np.array(as_text(box.about), dtype=object))


def _worth_packing(array: NDArray[Any]) -> bool:
    return array.size >= _PACKED and array.dtype.kind in "iu"


def sign(path: Path) -> None:
    """Add a checksum at the end, where HDF5 does not look.

    HDF5 would find some damages only by running in circles, and none in the numbers.
    """
    with path.open("rb+") as file:
        file.write(_END + _checksum(file, path.stat().st_size))


def _signed(path: Path) -> bool:
    """Whether a file ends with its checksum."""
    length = path.stat().st_size - len(_END) - _CHECK
    with path.open("rb") as file:
        return length > 0 and _END + _checksum(file, length) == file.read()


def _checksum(file: BinaryIO, length: int) -> bytes:
    """Of so many bytes."""
    whole = hashlib.blake2b(digest_size=_CHECK)
    while length and (part := file.read(min(length, _PART))):
        whole.update(part)
        length -= len(part)
    return whole.digest()


def as_text(plain: Any) -> str:
    """Plain things as JSON, NumPy's numbers among them."""
    return json.dumps(plain, default=lambda number: number.item())


def read(path: Path, limit: float | None = math.inf) -> tuple[str, Boxes]:
    """The kind of a file and what is in it, if that is not more than so many bytes; None: by the memory at hand.

    Readers of netCDF would take hints of the file on how to decode it, and follow its links to other files.
    """
    import h5py

    _refuse_foreign(path)
    most, allowance = _TIGHTEST * path.stat().st_size, Allowance(path, limit)
    with readable(path), h5py.File(path, "r", rdcc_nbytes=most) as file:  # or a chunk of strings is unpacked for each
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
    """What is stored in a file by its full name, with its bytes; links are not followed, so nothing goes round.

    Nothing of it is left open: that would keep what was unpacked of it.
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
    """Numbers or strings, laid out as they were; strings of so many characters in all."""
    array = texts(stored, allowance, most) if stored.dtype.kind == "O" else np.asarray(stored[...])
    if array.dtype.kind not in "iufO":
        raise ValueError(f"{stored.name} cannot be {array.dtype}")
    return array.transpose(stored.attrs.get("axes", range(array.ndim)))


def texts(stored: Any, allowance: Allowance, most: float = math.inf) -> NDArray[Any]:
    """Strings, some at a time: a file may have one of them stand for many, and each takes memory of its own."""
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
    """Tell at once what is no file of the right kind, or not whole."""
    check_plain_file(path)
    try:
        with path.open("rb") as file:
            begin = file.read(len(_MARK))
        whole = begin == _MARK and _signed(path)
    except OSError as reason:
        raise PltfError(f"{path} cannot be read: {reason.strerror or reason}") from None
    if begin != _MARK:
        raise PltfError(f"{path} is not a file that pltf saved")
    if not whole:
        raise PltfError(f"{path} is damaged, or was not saved by pltf: its checksum is absent or wrong")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file makes of the readers into one sentence."""
    try:
        yield
    except MemoryError:  # the file may be all right
        raise
    except Exception as reason:
        if isinstance(reason, PltfError) and str(path) in str(reason):  # a sentence already
            raise
        text = " ".join(str(reason).split())[:200]
        raise PltfError(f"{path} is damaged or was not saved by pltf: {text}") from None


def _checked_kind(path: Path, attrs: Mapping[Any, Any]) -> str:
    if attrs.get("format") != _SIGN:
        raise PltfError(f"{path} is not a file that pltf saved")
    version = int(np.asarray(attrs["format_version"]).item())
    if version > FORMAT:
        raise PltfError(f"{path} has format {version}, and this pltf reads up to {FORMAT}: use a newer pltf")
    return str(attrs["kind"])
