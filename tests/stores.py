"""Small stores for tests, in memory or in files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pltf.data import CooObservation, StoredObservation
from pltf.data.part_files import MemoryPart, StoreWriter
from pltf.data.stored import open_store


def cuts_of(own: Any, parts: int) -> list[int]:
    """Where to cut sorted positions into about so many parts, at different positions."""
    ends = [own.size * n // parts for n in range(1, parts)]
    ends = [int(np.searchsorted(own, own[end])) for end in ends if end < own.size]
    return sorted({0, *ends, own.size})


def sorted_cells(seen: CooObservation, owner: int) -> tuple[Any, Any]:
    """Positions and values by the owned mode, then by the others."""
    others = [mode for mode in range(len(seen.shape)) if mode != owner]
    order = np.lexsort(seen.coords[[*reversed(others), owner]])
    return seen.coords[:, order].astype(np.int32), seen.values[order]


def in_memory(seen: CooObservation, parts: int = 3, owner: int | None = None) -> StoredObservation:
    """Listed cells as parts in memory."""
    owner = int(np.argmax(seen.shape)) if owner is None else owner
    coords, x = sorted_cells(seen, owner)
    cuts, made = cuts_of(coords[owner], parts), []
    for number, (a, b) in enumerate(pairwise(cuts)):
        own = coords[owner, a:b]
        made.append(MemoryPart(number, b - a, int(own[0]), int(own[-1]) + 1, tuple(coords[:, a:b].copy()), x[a:b]))
    known = (seen.n_observed, seen.total, seen.saturated, seen.largest, seen.sizes, seen.unlisted, owner)
    rest = (tuple(range(len(seen.shape))), tuple(made), seen.missing, seen.values.size, seen.n_positive, "float64")
    return StoredObservation(*known, *rest, dims=seen.dims, labels=seen.labels)


def write(seen: CooObservation, folder: Path, parts: int = 3, owner: int | None = None, kind: str = "float64") -> Path:
    """Listed cells as a store on disk."""
    owner = int(np.argmax(seen.shape)) if owner is None else owner
    dims = seen.dims or tuple("abcdefgh"[: len(seen.shape)])
    folder.mkdir()
    writer = StoreWriter(folder, dims, owner, seen.unlisted, kind)
    coords, x = sorted_cells(seen, owner)
    cuts = cuts_of(coords[owner], parts)
    for a, b in pairwise(cuts):
        writer.add(list(coords[:, a:b]), x[a:b])
    writer.finish(seen.sizes, {}, seen.missing)
    return folder


def stored(
    seen: CooObservation, folder: Path, parts: int = 3, owner: int | None = None, kind: str = "float64"
) -> StoredObservation:
    """Listed cells as an opened store."""
    return open_store(write(seen, folder, parts, owner, kind))
