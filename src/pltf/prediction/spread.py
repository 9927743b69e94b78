"""Spread: how much wider than the variational posterior predictions must be.

The variational posterior treats all entries of the factors as independent. But components share cells, so that one
gains what another loses, and the rates are less certain than independent entries imply. For a regular model the total
is known: over the observed cells, the variances of the rates in units of their Poisson noise add up to the number of
parameters that the data determine (the trace of the hat matrix). So the counts behind the posterior, C - A, are divided
by the number that makes the sum correct. Means do not change, and entries without data keep their prior.
docs/prediction.md shows the effect on intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pltf.data.base import Observation
from pltf.data.cell_index import Coords
from pltf.data.coo import CooObservation
from pltf.data.numeric import frozen
from pltf.data.stored import StoredObservation
from pltf.gamma import Array, Gamma
from pltf.inference.algebra import Factors
from pltf.inference.balance import trades
from pltf.inference.start import DEFAULT_PRIOR
from pltf.notation import Model
from pltf.prediction.cells import Asked
from pltf.prediction.moments import Belief, CellRows, mean, variance
from pltf.prediction.noise import Bernoulli

MOST_CELLS = 1 << 14  # of each tensor, used to estimate the sum
MOST_SAMPLED = 1 << 20  # listed cells of a store used to sample zeros by
MOST_SPREAD = 64.0
PARAMETERS_PER_COUNT = 3  # per component: those with few counts have few parameters
MOST_DETERMINED = 0.75  # parameters per observed cell
CLOSE = 0.01  # relative, of the sum
AT_A_TIME = 1 << 20  # entries of a factor
_STEPS = 12
_TINY = float(np.finfo(np.float64).tiny)
_NOTHING = 1e-150  # a rate


def widened(C: Factors, E: Factors, priors: Mapping[str, Gamma], spread: float) -> tuple[Factors, Factors]:
    """Shapes and scales of the posterior with its counts divided by ``spread``; the means E do not change.

    Factors kept by a fold-in have no prior; the default prior is used for them.
    """
    shapes = {}
    for a, shape in C.items():
        A, _ = priors.get(a, DEFAULT_PRIOR).broadcast(shape.shape)
        wide = np.asarray(shape - A)  # then in place: factors may be large
        wide /= spread
        wide += A
        np.copyto(wide, shape, where=shape <= A)
        shapes[a] = frozen(wide)
    return shapes, {a: frozen(E[a] / shape) for a, shape in shapes.items()}


@dataclass(frozen=True, eq=False)
class Sample:
    """Data, or the last of several batches, which represents all of them."""

    seen: Observation
    places: Sequence[NDArray[np.intp]] | None = None  # positions in the tensor; None: the same
    repeats: float = 1.0  # ratio of all observed cells to those of this batch


def spread_of(
    model: Model, beliefs: Mapping[str, Belief], priors: Mapping[str, Gamma], samples: Mapping[str, Sample]
) -> float:
    """The number (at least 1) by which predictions divide the counts behind a posterior."""
    if all(size == 1 for size in model.sizes.values()):
        return 1.0  # no components share a cell
    some = [_Cells(belief, priors, samples[name]) for name, belief in beliefs.items()]
    own = next(iter(beliefs.values()))

    def total(spread: float) -> float:
        return math.fsum(one.noise_units(spread) for one in some)

    n = math.fsum(one.repeats * one.seen.n_observed for one in samples.values())
    determined, independent = min(_determined(model, own.C, priors), MOST_DETERMINED * n), total(1.0)
    if not 0 < independent < determined:
        return 1.0
    # The deficit of the sum is larger for cells that were not observed.
    wanted = determined / (1 - (determined - independent) / n)
    return _solved(total, independent, wanted)


class _Cells:
    """Some observed cells of a tensor with their rows of the factors, to estimate sums over all cells."""

    def __init__(self, belief: Belief, priors: Mapping[str, Gamma], sample: Sample) -> None:
        coords, weights = observed_sample(sample.seen, MOST_CELLS)
        if sample.places is not None:
            coords = np.stack([at[mode] for at, mode in zip(sample.places, coords, strict=True)])
        rows, self._cells = CellRows.at(belief, Asked(belief.shape, coords))
        self._belief = rows.of_belief(belief)
        self._priors = {
            term.name: _prior_of(priors[term.name], belief.C[term.name].shape, term.indices, rows)
            for term in belief.equation.factors
            if term.name in belief.C and term.name in priors
        }
        unit = noise_unit(belief, mean(self._belief, self._cells))
        # For tiny rates the variance in these units is tiny too, and the quotient would be out of range.
        self._information = np.where(unit > _NOTHING, sample.repeats * weights / np.maximum(unit, _NOTHING), 0.0)

    def noise_units(self, spread: float) -> float:
        """The sum over the observed cells of Var(rate) times the Fisher information of one observation."""
        C, D = widened(self._belief.C, self._belief.E, self._priors, spread)
        return float(np.sum(self._information * variance(replace(self._belief, C=C, D=D), self._cells)))


def _prior_of(prior: Gamma, shape: tuple[int, ...], indices: Sequence[str], rows: CellRows) -> Gamma:
    """The prior of some rows of a factor."""
    if not rows.of or (np.ndim(prior.shape) == 0 and np.ndim(prior.mean) == 0):
        return prior
    A, B = prior.broadcast(shape)
    return prior.with_values(rows.take(A, indices), rows.take(B, indices))


def noise_unit(belief: Belief, rates: Array) -> Array:
    """The inverse Fisher information of a rate: itself for a count, exp(rate) - 1 for a link."""
    return np.maximum(np.expm1(np.minimum(rates, 50.0)) if isinstance(belief.noise, Bernoulli) else rates, _TINY)


def _determined(model: Model, C: Factors, priors: Mapping[str, Gamma]) -> float:
    """The number of parameters that the data determine: those of components with counts, minus free scales."""
    entries, determined = 0, 0.0
    for a, shape in C.items():
        A, _ = priors[a].broadcast(shape.shape)
        along = tuple(axis for axis, index in enumerate(model.factors[a]) if index not in model.sizes)
        column = _counts_behind(shape, A, along)
        determined += float(np.minimum(shape.size / column.size, PARAMETERS_PER_COUNT * column).sum())
        entries += shape.size
    scales = 0
    for trade in trades(model, {a: np.empty(0) for a in model.factors if a not in C}):
        a, axis = next(iter(trade.axes.items()))
        scales += trade.directions.shape[1] * C[a].shape[axis]
    return determined * max(entries - scales, 0) / max(entries, 1)


def _counts_behind(C: Array, A: Array, along: tuple[int, ...]) -> Array:
    """The sum of max(C - A, 0) along some axes; large factors are added in parts, as copying them takes longer."""
    if C.size <= AT_A_TIME:
        return np.asarray(np.maximum(C - A, 0.0).sum(axis=along))
    rows = max(1, AT_A_TIME // C[0].size)
    parts = (slice(at, at + rows) for at in range(0, len(C), rows))
    sums = [np.maximum(C[part] - A[part], 0.0).sum(axis=along) for part in parts]
    return np.asarray(sum(sums) if 0 in along else np.concatenate(sums))


def _solved(total: Callable[[float], float], at_one: float, wanted: float) -> float:
    """Solve for the spread at which an increasing total has the wanted value: bracketed secants of the logarithms."""
    low, high = (0.0, at_one), (math.log(MOST_SPREAD), math.nan)
    for _ in range(_STEPS):
        step = math.log(wanted / low[1])  # as if the total were proportional to the spread
        if not math.isnan(high[1]):
            step *= (high[0] - low[0]) / math.log(high[1] / low[1])
        at = min(low[0] + step, high[0])
        reached = total(math.exp(at))
        if abs(reached / wanted - 1) < CLOSE or (at == math.log(MOST_SPREAD) and reached < wanted):
            break
        low, high = ((at, reached), high) if reached < wanted else (low, (at, reached))
    return math.exp(at)


def observed_sample(seen: Observation, most: int) -> tuple[Coords, NDArray[np.float64]]:
    """A sample of observed cells (modes, n), and weights to estimate sums over all observed cells."""
    rng = np.random.default_rng(0)  # always the same cells
    if isinstance(seen, CooObservation):
        return _of_list(seen, seen.coords, most, rng)
    if isinstance(seen, StoredObservation):
        return _of_list(seen, seen.sample(rng, MOST_SAMPLED), most, rng)
    size = math.prod(seen.shape)
    flat = np.arange(size) if size <= most else rng.integers(size, size=most)
    cells = np.stack(np.unravel_index(flat, seen.shape))
    cells = cells[:, ~np.isnan(seen.values_at(cells))]
    return cells, np.full(cells.shape[1], seen.n_observed / max(cells.shape[1], 1))


def _of_list(
    seen: CooObservation | StoredObservation, coords: Coords, most: int, rng: np.random.Generator
) -> tuple[Coords, NDArray[np.float64]]:
    """Listed cells, and unlisted zeros if these are observed; ``coords`` are all or many listed cells."""
    here, listed = coords.shape[1], seen.listed if isinstance(seen, StoredObservation) else coords.shape[1]
    chosen = np.arange(here) if here <= most else np.sort(rng.choice(here, most, replace=False))
    cells, weights = coords[:, chosen].astype(np.intp), np.full(chosen.size, listed / max(chosen.size, 1))
    if seen.unlisted == "missing":
        return cells, weights
    zeros, of_zeros = _zeros(seen, coords, most, rng)
    return np.concatenate([cells, zeros], axis=1), np.concatenate([weights, of_zeros])


def _zeros(
    seen: CooObservation | StoredObservation, coords: Coords, most: int, rng: np.random.Generator
) -> tuple[Coords, NDArray[np.float64]]:
    """Unlisted observed zeros: rows, columns, ... with many counts are drawn more often, with smaller weights."""
    size = math.prod(seen.shape)
    if size <= most:
        cells = np.stack(np.unravel_index(np.arange(size), seen.shape))
        weights = np.ones(size)
    else:
        drawn, weights = [], np.full(most, 1 / most)
        for mode, length in enumerate(seen.shape):
            positions, share = _busy(coords[mode], length, most, rng)
            drawn.append(positions)
            weights = weights / share
        cells = np.stack(drawn)
    found = seen.find(cells).listed if isinstance(seen, StoredObservation) else seen._pattern.listed.find(cells) >= 0
    kept = (seen.values_at(cells) == 0) & ~found
    return cells[:, kept], weights[kept]


def _busy(listed: NDArray[np.integer], length: int, n: int, rng: np.random.Generator) -> tuple[Coords, Array]:
    """Positions along a mode, half uniform and half from the list, and their probabilities."""
    positions = rng.integers(length, size=n)
    if listed.size:
        positions = np.where(rng.random(n) < 0.5, positions, listed[rng.integers(listed.size, size=n)])
    names, place = np.unique(positions, return_inverse=True)
    sorted_list = np.sort(listed)
    times = np.searchsorted(sorted_list, names, "right") - np.searchsorted(sorted_list, names, "left")
    share = 0.5 / length + 0.5 * times / listed.size if listed.size else np.full(names.size, 1 / length)
    return positions.astype(np.intp), share[place]
