"""The baseline for all models: one activity for each row, column, ..."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
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
MOST_SWEEPS, CLOSE = 200, 1e-8  # over the modes; relative change of the activities where they end

Exposure = Callable[[int, list[Array]], Array]  # of a mode: the activities of the other modes, summed over cells


def popularity(X: Any, at: Any, *, mask: Any = None) -> Array:
    """Expected counts of cells from the activities of their row, column, ... alone, without factorization.

    ``X`` and ``mask`` are data as for a fit; ``at`` lists cells as for :meth:`pltf.Fit.mean`, whose values are not
    used. The expected count of a cell is a mean times the activities of its positions. The activity of a position is
    its observed count divided by the count expected in its observed cells, with one added to both, so that positions
    without data have activity 1. This is iterated until it no longer changes: the model with one component that makes
    the counts most probable.

    >>> import numpy as np, pltf.metrics
    >>> X = np.array([[80.0, 40.0], [40.0, np.nan]])
    >>> pltf.metrics.popularity(X, [(1, 1)]).round(2)
    array([20.49])
    """
    seen = observe(X, mask, name="X")
    indices = tuple(f"axis {axis}" for axis in range(len(seen.shape)))
    return expected_by_popularity(seen, seen.pattern(), as_cells(at, seen.shape, seen.dims or indices, seen.labels).T)


def expected_by_popularity(seen: Observation, pattern: Pattern, cells: Coords) -> Array:
    """The same from cells that were observed according to ``pattern``; the cells ``at`` are never used."""
    totals, exposure = _marginals(seen, pattern, cells)
    mean, activities = _most_probable(totals, exposure)
    rate = np.full(cells.shape[1], mean)
    for activity, at in zip(activities, cells, strict=True):
        rate *= activity[at]
    return rate


def expected_by_marginals(equation: Equation, factors: Mapping[str, Array], cells: Coords) -> Array:
    """The same without data: from the marginals of the expected counts of all cells."""
    terms = list(chain(*((factors[term.name], term.indices) for term in equation.factors)))
    total = float(opt_einsum.contract(*terms, ()))
    rate = np.full(cells.shape[1], total)
    for index, at in zip(equation.output.indices, cells, strict=True):
        rate *= opt_einsum.contract(*terms, (index,))[at] / total
    return rate


def _most_probable(totals: list[Array], exposure: Exposure) -> tuple[float, list[Array]]:
    """Mean and activities that make the counts most probable, by iterative proportional fitting.

    The activities have the prior density a * exp(-a). Every step increases the posterior, which is concave in
    logarithms: an activity given the others, their scale, which is 1 on average where cells were observed, and the
    mean. If all cells are observed, the first sweep is exact.
    """
    ones = [np.ones(total.size) for total in totals]
    observed = [exposure(mode, ones) for mode in range(len(totals))]  # number of cells
    whole, activities = float(totals[0].sum()), ones
    mean = whole / max(float(observed[0].sum()), 1.0)
    for _ in range(MOST_SWEEPS if whole else 0):
        change = 0.0
        for mode, total in enumerate(totals):
            relative = exposure(mode, activities)
            new = (total + 1) / (mean * relative + 1)
            new[observed[mode] > 0] /= new[observed[mode] > 0].mean()
            mean = whole / float(new @ relative)
            change = max(change, float(np.max(abs(new / activities[mode] - 1))))
            activities[mode] = new
        if change < CLOSE:
            break
    return mean, activities


def _marginals(seen: Observation, pattern: Pattern, hidden: Coords) -> tuple[list[Array], Exposure]:
    """The sums over the training cells at each position of each mode, and their exposure."""
    totals, training = [np.zeros(size) for size in seen.shape], list[Bools]()
    apart = CellIndex(distinct(hidden), seen.shape)
    known = _observed_by(pattern, seen)
    on_disk = isinstance(seen, StoredObservation) and seen.unlisted == "missing"
    for some, values in _with_all_values(seen, pattern):
        used = known(some) & ~np.isnan(values) & (apart.find(some) < 0)
        training.append(used[:1] if on_disk and used.all() else used)  # no byte for each cell of a store
        for mode, at in enumerate(some[:, used]):
            totals[mode] += np.bincount(at, values[used], minlength=seen.shape[mode])
    if _has_unlisted_zeros(seen, pattern):
        return totals, partial(_of_all_but, _holes(seen, pattern, hidden))
    if isinstance(seen, StoredObservation) and on_disk:
        return totals, partial(_of_listed, lambda: _blocks(seen, training))
    used, coords = np.concatenate([np.zeros(0, dtype=bool), *training]), _listed(seen, pattern)
    if coords is None:
        return totals, partial(_of_array, used.reshape(seen.shape))
    some = coords[:, used]
    return totals, partial(_of_listed, lambda: [some])


def _blocks(seen: StoredObservation, training: list[Bools]) -> Iterator[Coords]:
    """The training cells of a store, in blocks."""
    return (some if used.all() else some[:, used] for (some, _), used in zip(seen.blocks(), training, strict=True))


def _holes(seen: Observation, pattern: Pattern, hidden: Coords) -> Coords:
    """The cells that are not used, if all others are."""
    assert isinstance(seen, CooObservation | StoredObservation)
    missing = pattern.seen.missing if isinstance(pattern, StoredPattern) else getattr(pattern, "missing", None)
    assert missing is not None
    return distinct(np.concatenate([seen.missing, missing, hidden], axis=1))


def _of_array(used: Bools, mode: int, activities: list[Array]) -> Array:
    """Exposure of cells that are marked in an array."""
    others: list[Any] = [part for axis, one in enumerate(activities) if axis != mode for part in (one, [axis])]
    return np.asarray(np.einsum(used, list(range(used.ndim)), *others, [mode]), dtype=np.float64)


def _of_listed(blocks: Callable[[], Iterable[Coords]], mode: int, activities: list[Array]) -> Array:
    """Exposure of listed cells."""
    out = np.zeros(activities[mode].size)
    for cells in blocks():
        weight = np.ones(cells.shape[1])
        for axis, one in enumerate(activities):
            if axis != mode:
                weight *= one[cells[axis]]
        out += np.bincount(cells[mode], weight, minlength=out.size)
    return out


def _of_all_but(holes: Coords, mode: int, activities: list[Array]) -> Array:
    """Exposure of all cells but listed ones."""
    every = math.prod(float(one.sum()) for axis, one in enumerate(activities) if axis != mode)
    left: Array = np.maximum(every - _of_listed(lambda: [holes], mode, activities), 0.0)
    return left


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
