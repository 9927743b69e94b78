"""Look up cells in a sorted list of cells."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Coords = NDArray[np.integer[Any]]  # (modes, cells)

_LARGEST_KEY = 2**63 - 1


class CellIndex:
    """A sorted list of distinct cells with lookup of positions in it.

    >>> import numpy as np
    >>> index = CellIndex(np.array([[0, 0, 3], [1, 2, 0]]), (4, 4))
    >>> index.find(np.array([[3, 3, 0], [0, 1, 2]]))
    array([ 2, -1,  1])
    """

    def __init__(self, coords: Coords, sizes: tuple[int, ...]) -> None:
        self._sizes, self._n = sizes, coords.shape[1]
        if math.prod(sizes) <= _LARGEST_KEY:
            self._keys = np.ravel_multi_index(tuple(coords), sizes) if self._n else np.empty(0, dtype=np.int64)
        else:
            self._prefixes = _prefixes(coords)

    def find(self, cells: Coords) -> NDArray[np.intp]:
        """Position of each cell in the list, or -1."""
        if not self._n:
            return np.full(cells.shape[1], -1, dtype=np.intp)
        if math.prod(self._sizes) <= _LARGEST_KEY:
            return _position(self._keys, np.ravel_multi_index(tuple(cells), self._sizes))
        found = np.zeros(cells.shape[1], dtype=np.int64)
        for mode, (values, pairs) in enumerate(self._prefixes):
            at = _position(values, cells[mode])
            known = (at >= 0) & (found >= 0)
            found = np.where(known, _position(pairs, np.where(known, found * len(values) + at, -1)), -1)
        return found


def order_of(sizes: tuple[int, ...], cells: Coords) -> NDArray[np.intp]:
    """Indices that sort cells by position; uses a linear index unless the tensor is too large for int64."""
    if math.prod(sizes) <= _LARGEST_KEY:
        return np.argsort(np.ravel_multi_index(tuple(cells), sizes), kind="stable")
    return np.lexsort(cells[::-1])


def distinct(cells: Coords) -> Coords:
    """Unique cells, sorted."""
    return np.unique(cells, axis=1) if cells.shape[1] else cells


def first_of_each(cells: Coords) -> NDArray[np.bool_]:
    """Which cells of a sorted list differ from the one before.

    >>> first_of_each(np.array([[0, 0, 3], [1, 1, 0]]))
    array([ True, False,  True])
    """
    first = np.ones(cells.shape[1], dtype=bool)
    first[1:] = (cells[:, 1:] != cells[:, :-1]).any(axis=0)
    return first


def _prefixes(coords: Coords) -> list[tuple[NDArray[Any], NDArray[np.int64]]]:
    """For each mode, its distinct values and the distinct pairs (prefix number, value number).

    The product of the sizes may exceed int64, but the numbers of prefixes and values are smaller than the length of
    the list. In a sorted list the prefixes are in order, so the last ones are the cells.
    """
    prefixes = []
    so_far = np.zeros(coords.shape[1], dtype=np.int64)
    for mode in coords:
        values = np.unique(mode)
        keys = so_far * len(values) + np.searchsorted(values, mode)
        pairs, so_far = np.unique(keys, return_inverse=True)
        prefixes.append((values, pairs))
    return prefixes


def _position(table: NDArray[Any], values: NDArray[Any]) -> NDArray[np.intp]:
    """Position of each value in a sorted array, or -1."""
    at = np.minimum(np.searchsorted(table, values), len(table) - 1)
    return np.asarray(np.where(table[at] == values, at, -1))
