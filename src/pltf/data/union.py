"""Combine the record of observed cells with new data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pltf.data.aligned import moved, widened
from pltf.data.base import Observation
from pltf.data.cell_index import Coords, distinct, first_of_each
from pltf.data.coo import CooObservation
from pltf.data.dense import DenseObservation
from pltf.data.pattern import (
    MOST_KEPT,
    Bools,
    DensePattern,
    ForgottenPattern,
    ListedPattern,
    Pattern,
    listed_pattern,
    narrowest,
    slabs,
)
from pltf.data.stored import StoredObservation, StoredPattern
from pltf.errors import ObservationError, py

_AT_A_TIME = 1 << 17  # cells of an array at a time
Places = Sequence[NDArray[np.intp]]  # for each mode, the positions of new data among all positions


def spread_out(seen: Observation, places: Mapping[int, NDArray[np.intp]], shape: tuple[int, ...]) -> Observation:
    """Extend data to more positions along some modes; the new cells are zeros.

    >>> import numpy as np
    >>> from pltf.data.observe import observe
    >>> spread_out(observe(np.array([[3, 4]])), {0: np.array([2])}, (3, 2)).values.tolist()
    [[0, 0], [0, 0], [3, 4]]
    """
    if isinstance(seen, StoredObservation):
        raise ObservationError(f"{py:zeros} requires data in memory: prepare the store with {py:labels=} instead")
    at = [places.get(mode, np.arange(size)) for mode, size in enumerate(seen.shape)]
    wide = widened("new", seen, at, [np.zeros(size, dtype=bool) for size in shape])
    return replace(wide, dims=seen.dims, labels=seen.labels)


def united(old: Pattern, shape: tuple[int, ...], new: Observation | None = None, places: Places = ()) -> Pattern:
    """The union of old and new observed cells in a tensor that may have grown; of each cell the largest value.

    ``places`` has the positions of the new data. Where unlisted cells are zeros, a cell counts as observed if each of
    its positions appeared in any of the data, as if all data had come at once.
    """
    # Cells of a store are not copied; with more data, a saved fit of a store is a fit of no store.
    if isinstance(old, ForgottenPattern | StoredPattern) or isinstance(new, StoredObservation):
        return ForgottenPattern(old.unlisted)
    if isinstance(old, DensePattern):
        return _of_arrays(old, shape, new, places)
    assert isinstance(old, ListedPattern)
    return _of_lists(old, shape, new, places)


def n_observed(pattern: Pattern) -> int:
    """Number of observed cells.

    >>> from pltf.data.observe import observe
    >>> n_observed(observe(np.array([[1.0, np.nan]])).pattern())
    1
    """
    if isinstance(pattern, DensePattern):
        return math.prod(pattern.shape) if pattern.known is None else int(np.bitwise_count(pattern.known).sum())
    assert isinstance(pattern, ListedPattern)
    if pattern.missing is None:
        return int(pattern.coords.shape[1])
    sizes = pattern.sizes if pattern.reached is None else [int(one.sum()) for one in pattern.reached]
    return int(math.prod(sizes) - pattern.missing.shape[1])


def _values_at(new: Observation | None, places: Places, cells: Coords) -> NDArray[np.float64]:
    """Values of cells of the whole tensor in new data; NaN where they are absent or missing."""
    held = np.full(cells.shape[1], np.nan)
    if new is None:
        return held
    local = []
    for at, mode in zip(places, cells, strict=True):
        order = np.argsort(at, kind="stable")
        found = order[np.minimum(np.searchsorted(at, mode, sorter=order), at.size - 1)]
        local.append(np.where(at[found] == mode, found, -1))
    inside = np.logical_and.reduce([one >= 0 for one in local])
    held[inside] = new.values_at(np.stack(local)[:, inside])
    return held


# -- arrays -------------------------------------------------------------------------------------


def _of_arrays(old: DensePattern, shape: tuple[int, ...], new: Observation | None, places: Places) -> DensePattern:
    keeps = old.values is not None and math.prod(shape) <= MOST_KEPT
    known, above, values = [], [], []
    for cells, before in _held(old, shape):
        now = np.fmax(before, _values_at(new, places, cells))
        known.append(np.packbits(~np.isnan(now)))
        above.append(np.packbits(now > 0))
        values.append(now[now > 0] if keeps else now[:0])
    bits = np.concatenate(known)
    whole = bool(np.unpackbits(bits, count=math.prod(shape)).all())
    held = np.concatenate(values)
    kept = held.astype(narrowest(held), copy=False) if keeps else None
    return DensePattern(shape, None if whole else bits, np.concatenate(above), kept)


def _held(old: DensePattern, shape: tuple[int, ...]) -> Iterator[tuple[Coords, NDArray[np.float64]]]:
    """The cells of a shape in slabs, and their old values: NaN if not observed, 1 if the value was not kept."""
    taken = 0
    for rows in slabs(shape, _AT_A_TIME):
        slab = (min(rows.stop, shape[0]) - rows.start, *shape[1:])
        cells = np.indices(slab).reshape(len(shape), -1)
        cells[0] += rows.start
        inside = np.flatnonzero((cells < np.array(old.shape)[:, None]).all(axis=0))
        held = np.full(cells.shape[1], np.nan)
        held[inside[old.observed(cells[:, inside])]] = 0.0
        positive = inside[old.positive(cells[:, inside])]  # in the order of the values, as new positions come last
        held[positive] = 1.0 if old.values is None else old.values[taken : taken + positive.size]
        taken += positive.size
        yield cells, held


# -- lists --------------------------------------------------------------------------------------


def _of_lists(old: ListedPattern, shape: tuple[int, ...], new: Observation | None, places: Places) -> ListedPattern:
    coords, values = old.coords.astype(np.intp), old.values.astype(np.float64)
    if new is not None:
        cells, held = _listed(new, old.unlisted)
        coords = np.concatenate([coords, moved(cells, places)], axis=1)
        values = np.concatenate([values, held])
    order = np.lexsort(coords[::-1])
    coords, values = coords[:, order], values[order]
    first = first_of_each(coords)
    if values.size:
        coords, values = coords[:, first], np.maximum.reduceat(values, np.flatnonzero(first))
    if old.missing is None:
        return listed_pattern(shape, _narrow(coords, shape), values, None)
    holes = _narrow(_common_holes(old, new, places), shape)
    return listed_pattern(shape, _narrow(coords, shape), values, holes, _reached(old, shape, new, places))


def _narrow(cells: Coords, shape: tuple[int, ...]) -> Coords:
    return cells.astype(np.int32) if max(shape) <= np.iinfo(np.int32).max else cells


def _listed(new: Observation, unlisted: str) -> tuple[Coords, NDArray[np.float64]]:
    """The cells of new data to list: those above zero, or all observed ones where unlisted cells are missing."""
    if isinstance(new, CooObservation):
        return new.coords, new.values
    assert isinstance(new, DenseObservation)
    known = new.full_mask()
    cells = np.stack(np.nonzero(known if unlisted == "missing" else known & (new.values > 0)))
    return cells, new.values_at(cells)


def _holes(new: Observation) -> Coords:
    if isinstance(new, CooObservation):
        return new.missing
    assert isinstance(new, DenseObservation)
    return np.stack(np.nonzero(~new.full_mask()))


def _common_holes(old: ListedPattern, new: Observation | None, places: Places) -> Coords:
    """Missing cells of the old or the new data that neither has observed."""
    assert old.missing is not None
    before = old.missing.astype(np.intp)
    if new is None:
        return before
    now = moved(_holes(new), places)
    known = np.asarray((now < np.array(old.sizes)[:, None]).all(axis=0))
    known[known] = old.observed(now[:, known])
    return distinct(np.concatenate([before[:, np.isnan(_values_at(new, places, before))], now[:, ~known]], axis=1))


def _reached(
    old: ListedPattern, shape: tuple[int, ...], new: Observation | None, places: Places
) -> tuple[Bools, ...] | None:
    """The positions that appeared in old or new data; None if all did."""
    found: list[Bools] = []
    for mode, size in enumerate(shape):
        before = np.ones(old.sizes[mode], dtype=bool) if old.reached is None else old.reached[mode]
        one: Bools = np.zeros(size, dtype=bool)
        one[: before.size] = before
        if new is not None:
            one[places[mode]] = True
        found.append(one)
    return None if all(one.all() for one in found) else tuple(found)
