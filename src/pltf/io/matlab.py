"""Arrays of numbers in MATLAB files of version 5, read by hand: scipy's reader crashes on files that are spoilt."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Order = Literal["little", "big"]

_HEADER = 128  # bytes: a text, and two letters that tell the order of bytes
_ORDERS: dict[bytes, Order] = {b"IM": "little", b"MI": "big"}
# Codes as the description of the format has them: types of elements, and classes of arrays.
_MATRIX, _COMPRESSED = 14, 15
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_SPARSE = 5
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX = 0x0800


class Element(NamedTuple):
    """A part of a file, with the code of its type."""

    kind: int
    content: memoryview
    order: Order

    def numbers(self) -> NDArray[Any]:
        """What it holds, if that is numbers."""
        if self.kind not in _TYPES:
            raise ValueError(f"numbers were expected, and there is an element of type {self.kind}")
        return np.frombuffer(self.content, np.dtype(_TYPES[self.kind]).newbyteorder(self.order))


@dataclass(frozen=True)
class Stored:
    """An array of numbers in a file."""

    holds: int  # its class
    flags: int
    sizes: tuple[int, ...]
    parts: tuple[Element, ...]

    def array(self) -> Any:
        """The array, dense or sparse."""
        if self.flags & _COMPLEX:
            raise ValueError("it holds complex numbers")
        if self.holds == _SPARSE:
            return self._sparse()
        (values,) = self.parts
        if values.numbers().size != math.prod(self.sizes):
            raise ValueError(f"an array of the sizes {self.sizes} has {values.numbers().size} numbers")
        return values.numbers().astype(_CLASSES[self.holds]).reshape(self.sizes, order="F")

    def _sparse(self) -> Any:
        from scipy import sparse

        rows, starts, values = (one.numbers() for one in self.parts)
        count = int(starts[-1])
        parts = values[:count].astype(np.float64), rows[:count].astype(np.int64), starts.astype(np.int64)
        return sparse.csc_array(parts, shape=self.sizes)


def stored_arrays(path: Path) -> dict[str, Stored] | None:
    """The arrays of numbers in a file of version 5, by their names; None of a file of another version."""
    content = path.read_bytes()
    order = _ORDERS.get(content[_HEADER - 2 : _HEADER])
    if order is None:
        return None
    found = {}
    for one in _elements(memoryview(content)[_HEADER:], order):
        if one.kind == _COMPRESSED:
            one = next(_elements(memoryview(zlib.decompress(one.content)), order))
        if one.kind != _MATRIX:
            raise ValueError(f"an array was expected, and there is an element of type {one.kind}")
        flags, sizes, name, *parts = _elements(one.content, order)
        told = int(flags.numbers()[0])
        if told & 0xFF in (_SPARSE, *_CLASSES):
            shape = tuple(map(int, sizes.numbers()))
            found[bytes(name.content).decode("ascii")] = Stored(told & 0xFF, told, shape, tuple(parts))
    return found


def _elements(part: memoryview, order: Order) -> Iterator[Element]:
    """What lies one after the other in a part of a file."""
    at = 0
    while at < len(part):
        first, size = (int.from_bytes(part[place : place + 4], order) for place in (at, at + 4))
        kind, begin, after = first, at + 8, at + 8 + size + (0 if first == _COMPRESSED else -size % 8)
        if first >> 16:  # a small one lies within its tag
            kind, size, begin, after = first & 0xFFFF, first >> 16, at + 4, at + 8
        if begin + size > min(after, len(part)):
            raise ValueError(f"an element of {size} bytes reaches beyond its end")
        yield Element(kind, part[begin : begin + size], order)
        at = after
