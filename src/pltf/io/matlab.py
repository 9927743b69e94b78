"""Arrays in MATLAB 4 and 5 files, with an own reader because the SciPy reader crashes on damaged files."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pltf.data.sparse_parts import sparse_array
from pltf.io.matlab4 import Stored4, is_version_4, stored_arrays_4
from pltf.memory import Allowance

Order = Literal["little", "big"]

_TAG, _BEGINNING = 8, 4096  # bytes of a tag, and of the part with flags, sizes and name
_HEADER = 128  # bytes: a text, and two letters for the byte order
_ORDERS: dict[bytes, Order] = {b"IM": "little", b"MI": "big"}
# Codes of the format specification: element types and array classes.
_MATRIX, _COMPRESSED = 14, 15
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_SPARSE = 5
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_BYTES = 2
_COMPLEX, _LOGICAL = 0x0800, 0x0200


class Element(NamedTuple):
    """An element of a file, with the code of its type."""

    kind: int
    content: memoryview
    order: Order

    def numbers(self) -> NDArray[Any]:
        if self.kind not in _TYPES:
            raise ValueError(f"expected numbers, got an element of type {self.kind}")
        return np.frombuffer(self.content, np.dtype(_TYPES[self.kind]).newbyteorder(self.order))


@dataclass(frozen=True)
class Stored:
    """An array of numbers in a file."""

    flags: int  # the last byte is its class
    sizes: tuple[int, ...]
    element: Element  # still compressed: it may not be needed

    def array(self, name: str, allowance: Allowance) -> Any:
        """The array, dense or sparse; ``name`` is for messages."""
        if min(self.sizes, default=0) < 0:  # would increase the allowance
            raise ValueError(f"an array has a negative size: {self.sizes}")
        packed = _unpacked_size(self.element)
        dense = self.flags & 0xFF != _SPARSE
        made = math.prod(self.sizes) * np.dtype(_CLASSES[self.flags & 0xFF]).itemsize if dense else packed
        allowance.take(packed + 2 * made)
        parts = _parts(self.element)[3:]
        if self.flags & _COMPLEX:
            raise ValueError("it contains complex numbers")
        if self.flags & 0xFF == _SPARSE:
            return self._sparse(name, *parts)
        (values,) = parts
        if values.numbers().size != math.prod(self.sizes):
            raise ValueError(f"an array of shape {self.sizes} has {values.numbers().size} numbers")
        return values.numbers().astype(_CLASSES[self.flags & 0xFF]).reshape(self.sizes, order="F")

    def _sparse(self, name: str, rows: Element, starts: Element, values: Element) -> Any:
        ends = starts.numbers()
        if self.flags & _LOGICAL and len(values.content) < 8 * int(ends[-1]):  # declared doubles, stored as bytes
            values = values._replace(kind=_BYTES)
        if len(self.sizes) != 2 or ends.size != self.sizes[1] + 1:
            raise ValueError(f"a sparse array of shape {self.sizes} has {ends.size} column pointers")
        return matlab_sparse(values.numbers().astype(np.float64), rows.numbers(), ends, self.sizes[0], name)


def matlab_sparse(values: NDArray[Any], rows: NDArray[Any], starts: NDArray[Any], height: int, name: str) -> Any:
    """A sparse matrix in CSC form; entries allocated by MATLAB but unused are dropped.

    >>> matlab_sparse(np.array([7.0, 0.0]), np.array([1, 0]), np.array([0, 0, 1]), 2, "X").toarray().tolist()
    [[0.0, 0.0], [0.0, 7.0]]
    """
    count = int(starts[-1]) if starts.size else 0
    room = slice(count) if count >= 0 else slice(None)  # a negative one raises an error later
    parts = {"data": values[room], "indices": rows[room], "indptr": starts}
    return sparse_array("csc", parts, (height, starts.size - 1), name)


def stored_arrays(path: Path) -> Mapping[str, Stored | Stored4]:
    """The arrays of numbers in a file of version 4 or 5, by name."""
    content = path.read_bytes()
    if is_version_4(content):
        return stored_arrays_4(content)
    order = _ORDERS.get(content[_HEADER - 2 : _HEADER])
    if order is None:
        raise ValueError("its header has an unknown MATLAB version")
    found = {}
    for one in _elements(memoryview(content)[_HEADER:], order):
        flags, sizes, name = _head(one)
        if int(flags.numbers()[0]) & 0xFF in (_SPARSE, *_CLASSES) and name.content:
            shape = tuple(map(int, sizes.numbers()))
            found[bytes(name.content).decode("ascii")] = Stored(int(flags.numbers()[0]), shape, one)
    return found


def _parts(array: Element) -> list[Element]:
    """Split an array into flags, sizes, name and contents."""
    if array.kind == _COMPRESSED:
        array = next(_elements(_unpacked(array, _unpacked_size(array), whole=True), array.order))
    if array.kind != _MATRIX:
        raise ValueError(f"expected an array, got an element of type {array.kind}")
    return list(_elements(array.content, array.order))


def _head(array: Element) -> list[Element]:
    """Flags, sizes and name of an array; the rest is not decompressed."""
    packed = array.kind == _COMPRESSED
    kind = int.from_bytes(_unpacked(array, 4), array.order) if packed else array.kind
    if kind != _MATRIX:
        raise ValueError(f"expected an array, got an element of type {kind}")
    content = _unpacked(array, _BEGINNING)[_TAG:] if packed else array.content
    return list(islice(_elements(content, array.order), 3))


def _unpacked(array: Element, size: int, *, whole: bool = False) -> memoryview:
    """Decompress at most ``size`` bytes; ``whole`` also verifies the checksum."""
    packer = zlib.decompressobj()
    content = packer.decompress(array.content, size + (_TAG if whole else 0))  # reads the checksum too
    if whole and not packer.eof:
        raise ValueError("a compressed array does not have its declared size")
    return memoryview(content)


def _unpacked_size(array: Element) -> int:
    """The size of an array in bytes, from its own tag if it is compressed."""
    if array.kind != _COMPRESSED:
        return len(array.content)
    return _TAG + int.from_bytes(_unpacked(array, _TAG)[4:], array.order)


def _elements(part: memoryview, order: Order) -> Iterator[Element]:
    """The consecutive elements in a part of a file."""
    at = 0
    while at < len(part):
        first, size = (int.from_bytes(part[place : place + 4], order) for place in (at, at + 4))
        kind, begin, after = first, at + 8, at + 8 + size + (0 if first == _COMPRESSED else -size % 8)
        if first >> 16:  # a small element is stored in its tag
            kind, size, begin, after = first & 0xFFFF, first >> 16, at + 4, at + 8
        if begin + size > min(after, len(part)):
            raise ValueError(f"an element of {size} bytes is truncated")
        yield Element(kind, part[begin : begin + size], order)
        at = after
