"""The baseline for all models: the product of the marginals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import opt_einsum

from pltf.data import CooObservation, Observation, observe
from pltf.data.cell_index import CellIndex, Coords, distinct
from pltf.data.pattern import Bools, ListedPattern, Pattern
from pltf.data.stored import StoredObservation, StoredPattern
from pltf.gamma import Array
from pltf.notation import Equation
from pltf.prediction.cells import Asked, as_cells

_AT_A_TIME = 1 << 20  # cells


def popularity(X: Any, at: Any, *, mask: Any = None) -> Array:
    """Expected counts of cells from the activities of their row, column, ... alone, without factorization.

    ``X`` and ``mask`` are data as for a fit; ``at`` lists cells as for :meth:`pltf.Fit.mean`, whose values are not
    used. Every position of every index has an activity relative to the mean: its observed count divided by the expected
    one, with one added to both, so that positions without data have activity 1. The expected count of a cell is the
    overall mean times the activities of its positions.

    >>> import numpy as np, pltf.metrics
    >>> X = np.array([[8.0, 4.0], [4.0, np.nan]])
    >>> pltf.metrics.popularity(X, [(1, 1)]).round(2)
    array([3.32])
    """
    seen = observe(X, mask, name="X")
    indices = tuple(f"axis {axis}" for axis in range(len(seen.shape)))
    return expected_by_popularity(seen, seen.pattern(), as_cells(at, seen.shape, seen.dims or indices, seen.labels).T)


def expected_by_popularity(seen: Observation, pattern: Pattern, cells: Coords) -> Array:
    """The same from cells that were observed according to ``pattern``; the cells ``at`` are never used."""
    totals, numbers = _marginals(seen, pattern, cells)
    mean = totals[0].sum() / max(numbers[0].sum(), 1)
    rate = np.full(cells.shape[1], mean)
    for mode, (total, number) in enumerate(zip(totals, numbers, strict=True)):
        rate *= ((total + 1) / (mean * number + 1))[cells[mode]]
    return rate


def expected_by_marginals(equation: Equation, factors: Mapping[str, Array], cells: Coords) -> Array:
    """The same without data: from the marginals of the expected counts of all cells."""
    terms = list(chain(*((factors[term.name], term.indices) for term in equation.factors)))
    total = float(opt_einsum.contract(*terms, ()))
    rate = np.full(cells.shape[1], total)
    for index, at in zip(equation.output.indices, cells, strict=True):
        rate *= opt_einsum.contract(*terms, (index,))[at] / total
    return rate


def _marginals(seen: Observation, pattern: Pattern, hidden: Coords) -> tuple[list[Array], list[Array]]:
    """For every mode: the sum over the training cells at each position, and their number."""
    totals, numbers = ([np.zeros(size) for size in seen.shape] for _ in range(2))
    apart = CellIndex(distinct(hidden), seen.shape)
    unlisted_zeros = _has_unlisted_zeros(seen, pattern)
    known = _observed_by(pattern, seen)
    for some, values in _with_all_values(seen, pattern):
        used = known(some) & ~np.isnan(values) & (apart.find(some) < 0)
        for mode, at in enumerate(some[:, used]):
            totals[mode] += np.bincount(at, values[used], minlength=seen.shape[mode])
            numbers[mode] += 0 if unlisted_zeros else np.bincount(at, minlength=seen.shape[mode])
    if unlisted_zeros:
        assert isinstance(seen, CooObservation | StoredObservation)
        missing = pattern.seen.missing if isinstance(pattern, StoredPattern) else getattr(pattern, "missing", None)
        assert missing is not None
        holes = distinct(np.concatenate([seen.missing, missing, hidden], axis=1))
        for mode, size in enumerate(seen.shape):
            numbers[mode] += float(math.prod(seen.shape) // size) - np.bincount(holes[mode], minlength=size)
    return totals, numbers


def _has_unlisted_zeros(seen: Observation, pattern: Pattern) -> bool:
    """Whether there are too many training cells to visit each: then unlisted cells are counted as zeros."""
    listed = isinstance(seen, CooObservation | StoredObservation) and seen.unlisted == "zero"
    return listed and isinstance(pattern, ListedPattern | StoredPattern) and pattern.unlisted == "zero"


def _observed_by(pattern: Pattern, seen: Observation) -> Callable[[Coords], Bools]:
    """Whether cells are in a pattern. For the pattern of a store, all its cells are, without a search."""
    same = isinstance(pattern, StoredPattern) and pattern.seen.digest() == seen.digest()
    return (lambda cells: np.ones(cells.shape[1], dtype=bool)) if same else pattern.observed


def _with_all_values(seen: Observation, pattern: Pattern) -> Iterator[tuple[Coords, Array]]:
    """Cells that include all training cells, or at least all non-zero ones, with their values, in blocks."""
    if isinstance(seen, StoredObservation) and (seen.unlisted == "missing" or _has_unlisted_zeros(seen, pattern)):
        yield from ((cells, values.astype(np.float64)) for cells, values in seen.blocks())
        return
    cells = Asked(seen.shape, _listed(seen, pattern))
    for part in cells.parts(_AT_A_TIME):
        some = cells.coords(part)
        yield some, seen.values_at(some)


def _listed(seen: Observation, pattern: Pattern) -> Coords | None:
    """The list of these cells; None for an array, all of whose cells can be visited."""
    if isinstance(pattern, ListedPattern) and pattern.missing is None:
        return pattern.coords
    if isinstance(seen, CooObservation) and (seen.unlisted == "missing" or _has_unlisted_zeros(seen, pattern)):
        return seen.coords
    return None
