"""Random choice of cells: stratified by group, or from a tensor that is never allocated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.cell_index import CellIndex, Coords, order_of
from pltf.errors import PltfError, py, py_only

Picks = NDArray[np.integer[Any]]  # numbers of cells or other items

MOST = 5 * 10**7  # most unlisted cells to hide; each of them has to be listed
SMALL = 1 << 22  # tensors of at most this many cells may be enumerated


def check_listable(cells: int) -> None:
    """Raise an error if the list of hidden cells would be too long."""
    if cells > MOST:
        other = f"{py_only: or negatives, or hide a share of the non-zeros with by='nonzeros' and negatives=}"
        advice = f"lower {py:fraction}{other}"
        raise PltfError(f"at most {MOST:,} cells of a list can be hidden, got {cells:,}: {advice}")


def shares_of(rng: np.random.Generator, fraction: float, sizes: Any) -> NDArray[np.int64]:
    """How many to hide in each group: each share rounded up or down, with the total share rounded."""
    order = rng.permutation(len(sizes))  # otherwise rounding would favour some groups
    ends = fraction * np.cumsum(np.asarray(sizes, dtype=np.float64)[order])
    spare = math.floor(ends[-1]) + 1 - ends[-1]  # an offset of at least this rounds the total up
    start = rng.uniform(0, spare) if round(ends[-1]) <= ends[-1] else rng.uniform(spare, 1)
    shares = np.empty(len(sizes), dtype=np.int64)
    shares[order] = np.diff(np.floor(ends + start), prepend=0)
    return shares


def evenly(rng: np.random.Generator, fraction: float, group: Picks) -> Picks:
    """Which items to hide, the same share of each group."""
    sizes = np.bincount(group)
    sizes = sizes[sizes > 0]
    order = rng.permutation(group.size)
    order = order[np.argsort(group[order], kind="stable")]  # sorted by group, random within each group
    rank = np.arange(group.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return order[rank < np.repeat(shares_of(rng, fraction, sizes), sizes)]


def draw_cells(rng: np.random.Generator, sizes: tuple[int, ...], barred: Coords, n: int) -> Coords:
    """Draw ``n`` distinct cells of a tensor uniformly, excluding the barred ones."""
    check_listable(n)
    volume = math.prod(sizes)
    if volume <= max(SMALL, 8 * (barred.shape[1] + n)):  # enumerate the free cells: rejection may take long
        taken = np.sort(np.ravel_multi_index(tuple(barred), sizes))
        free = rng.choice(volume - taken.size, n, replace=False)
        cells = free + np.searchsorted(taken - np.arange(taken.size), free, side="right")
        return np.stack(np.unravel_index(cells, sizes))
    index = CellIndex(barred[:, order_of(sizes, barred)], sizes)
    drawn = np.empty((len(sizes), 0), dtype=np.int64)
    while drawn.shape[1] < n:  # 7 in 8 cells are free: one pass is nearly always enough
        more = np.stack([rng.integers(size, size=n + n // 4 + 64) for size in sizes])
        drawn = np.concatenate([drawn, more[:, index.find(more) < 0]], axis=1)
        first = np.unique(numbered(sizes, drawn), return_index=True)[1]
        drawn = drawn[:, np.sort(first)[:n]]  # in order of drawing, not of position
    return drawn


def distinct_numbers(rng: np.random.Generator, volume: int, n: int) -> NDArray[np.int64]:
    """Draw ``n`` distinct numbers below ``volume`` uniformly, sorted, with memory proportional to ``n``."""
    if 2 * n > volume:  # draw the complement
        out = distinct_numbers(rng, volume, volume - n)
        return np.delete(np.arange(volume), out)
    drawn = np.empty(0, dtype=np.int64)
    while drawn.size < n:
        more = np.concatenate([drawn, rng.integers(volume, size=n + n // 4 + 64)])
        first = np.unique(more, return_index=True)[1]
        drawn = more[np.sort(first)[:n]]  # in order of drawing, not of size
    return np.sort(drawn)


def sizes_of(sizes: tuple[int, ...], axes: Sequence[int]) -> tuple[int, ...]:
    """The sizes of some axes."""
    return tuple(sizes[axis] for axis in axes)


def numbered(sizes: tuple[int, ...], cells: Coords) -> Picks:
    """The rank of each cell among the distinct cells of a list, from 0."""
    order = order_of(sizes, cells)
    rank = np.zeros(order.size, dtype=np.int64)
    rank[order[1:]] = np.cumsum((cells[:, order[1:]] != cells[:, order[:-1]]).any(axis=0))
    return rank
