"""Arrays in MATLAB 4 files, with an own reader because the SciPy reader may hang on damaged files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.sparse_parts import sparse_array
from pltf.memory import Allowance

_MARK = 4  # bytes, at least one of them 0; later versions begin with text
_HEADER = 20  # bytes: five integers
_LARGEST_CODE = 5000  # largest code of an array; with swapped bytes it is larger
# The last two digits of the code: number type and array class.
_TYPES = ("f8", "f4", "i4", "i2", "u2", "u1")
_DENSE, _TEXT, _SPARSE = range(3)


@dataclass(frozen=True)
class Stored4:
    """An array of numbers in a file."""

    table: NDArray[Any]  # as stored
    sparse: bool
    complex: bool

    def array(self, name: str, allowance: Allowance) -> Any:
        """The array, dense or sparse; ``name`` is for messages."""
        allowance.take(2 * self.table.size * (8 if self.sparse else self.table.itemsize))
        if self.complex:
            raise ValueError("it contains complex numbers")
        table = self.table.astype(self.table.dtype.newbyteorder("="))
        return _sparse(table, name) if self.sparse else table


def is_version_4(content: bytes) -> bool:
    """Whether a MATLAB file is of version 4."""
    return 0 in content[:_MARK]


def stored_arrays_4(content: bytes) -> dict[str, Stored4]:
    """The arrays of numbers in a file of version 4, by name."""
    order = "<" if int.from_bytes(content[:4], "little") <= _LARGEST_CODE else ">"
    found, at = {}, 0
    while at < len(content):
        if at + _HEADER > len(content):
            raise ValueError("it ends inside a header")
        code, rows, columns, imaginary, letters = np.frombuffer(content, f"{order}i4", 5, at).tolist()
        kind, form = _kind_and_form(code)
        if min(rows, columns, letters) < 0:
            raise ValueError(f"an array has the shape ({rows}, {columns}) and a name of {letters} characters")
        complex = imaginary == 1 and form != _SPARSE
        dtype, count, begin = np.dtype(order + kind), rows * columns, at + _HEADER + letters
        end = begin + (2 if complex else 1) * count * dtype.itemsize
        if end > len(content):
            raise ValueError(f"an array of shape ({rows}, {columns}) is truncated")
        if form != _TEXT:
            name = content[at + _HEADER : begin].strip(b"\x00").decode("latin1")
            table = np.frombuffer(content, dtype, count, begin).reshape(rows, columns, order="F")
            found[name] = Stored4(table, form == _SPARSE, complex or (form == _SPARSE and columns == 4))
        at = end
    return found


def _kind_and_form(code: int) -> tuple[str, int]:
    """The number type and class of an array, from the digits of its code."""
    machine, unused, kind, form = code // 1000, code // 100 % 10, code // 10 % 10, code % 10
    if machine not in (0, 1) or unused or kind >= len(_TYPES) or form not in (_DENSE, _TEXT, _SPARSE):
        raise ValueError(f"an array has the unknown type {code}")
    return _TYPES[kind], form


def _sparse(table: NDArray[Any], name: str) -> Any:
    """A sparse matrix from a table of rows, columns and values, with positions from 1 and the sizes last."""
    if table.shape[0] < 1 or table.shape[1] != 3:
        raise ValueError(f"a sparse array has a table of shape {table.shape}")
    places = table[:, :2]
    with np.errstate(invalid="ignore"):
        whole = places.astype(np.int64)
    if (whole != places).any():
        raise ValueError("a sparse array has positions that are not whole numbers")
    parts = {"data": table[:-1, 2].astype(np.float64), "coords": (whole[:-1] - 1).T}
    return sparse_array("coo", parts, whole[-1], name)
