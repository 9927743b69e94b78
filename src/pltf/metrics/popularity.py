"""The prediction that any model has to beat: rows, columns, ... as busy as they were, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from pltf.data import CooObservation, Observation
from pltf.data.lookup import CellIndex, Coords
from pltf.data.pattern import ListedPattern, Pattern
from pltf.gamma import Array

_AT_A_TIME = 1 << 20  # cells


def popularity(seen: Observation, pattern: Pattern, cells: Coords) -> Array:
    """Expected counts of cells: the mean of all, times how far the mean at each position is above or below it.

    Of ``seen`` only what ``pattern`` says was observed counts, and never the cells themselves. One more cell that holds
    the mean of all is added to those at each position, so that one of which nothing is known is like the others.
    """
    totals, numbers = _marginals(seen, pattern, cells)
    grand = totals[0].sum() / max(numbers[0].sum(), 1)
    rate = np.full(cells.shape[1], grand)
    if grand > 0:
        for mode, (total, number) in enumerate(zip(totals, numbers, strict=True)):
            rate *= ((total / grand + 1) / (number + 1))[cells[mode]]
    return rate


def _marginals(seen: Observation, pattern: Pattern, hidden: Coords) -> tuple[list[Array], list[Array]]:
    """For every mode: the sum over the training cells at each position, and their number."""
    totals, numbers = ([np.zeros(size) for size in seen.shape] for _ in range(2))
    apart = CellIndex(distinct(hidden), seen.shape)
    unlisted_zeros = _has_unlisted_zeros(seen, pattern)
    for some in _with_all_values(seen, pattern):
        values = seen.values_at(some)
        used = pattern.observed(some) & ~np.isnan(values) & (apart.find(some) < 0)
        for mode, at in enumerate(some[:, used]):
            totals[mode] += np.bincount(at, values[used], minlength=seen.shape[mode])
            numbers[mode] += 0 if unlisted_zeros else np.bincount(at, minlength=seen.shape[mode])
    if unlisted_zeros:
        assert isinstance(seen, CooObservation)
        assert isinstance(pattern, ListedPattern)
        assert pattern.missing is not None
        holes = distinct(np.concatenate([seen.missing, pattern.missing, hidden], axis=1))
        for mode, size in enumerate(seen.shape):
            numbers[mode] += math.prod(seen.shape) // size - np.bincount(holes[mode], minlength=size)
    return totals, numbers


def _has_unlisted_zeros(seen: Observation, pattern: Pattern) -> bool:
    """Whether training cells are too many to be gone through: then those that are not listed are counted as zeros."""
    listed = isinstance(seen, CooObservation) and seen.unlisted == "zero"
    return listed and isinstance(pattern, ListedPattern) and pattern.missing is not None


def _with_all_values(seen: Observation, pattern: Pattern) -> Iterator[Coords]:
    """Cells among which are all that are not zero, some at a time."""
    if isinstance(pattern, ListedPattern) and pattern.missing is None:
        cells = pattern.coords
    elif isinstance(seen, CooObservation):
        cells = seen.coords
    else:
        for start in range(0, math.prod(seen.shape), _AT_A_TIME):
            some = np.arange(start, min(start + _AT_A_TIME, math.prod(seen.shape)))
            yield np.stack(np.unravel_index(some, seen.shape))
        return
    for start in range(0, cells.shape[1], _AT_A_TIME):
        yield cells[:, start : start + _AT_A_TIME]


def distinct(cells: Coords) -> Coords:
    """Cells sorted, each once."""
    return np.unique(cells, axis=1) if cells.shape[1] else cells
