"""Sampling of the learned hyperparameters of a factor with the factor itself integrated out.

Given its allocated counts n and its exposure Delta, an entry z ~ Gamma(A, mean B) has the marginal

    integral of z^n exp(-Delta*z) p(z) dz  =  Gamma(A + n)/Gamma(A) * (A/B)^A / (A/B + Delta)^(A + n)

A and B are sampled from the product of these over a group of entries, times their hyperprior. Conditional on z they
would mix slowly where most entries have no counts: these are near zero because A is small, and vice versa.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from pltf.gamma import Array, Gamma
from pltf.inference.algebra.base import Groups, Key
from pltf.inference.algebra.chance import slice_step, stream
from pltf.inference.algebra.host import prior_value

# Directions in the plane of (log A, log B): shape at fixed mean, mean at fixed shape, and both at fixed rate A/B.
_DIRECTIONS = {("shape",): ((1, 0),), ("mean",): ((0, 1),), ("shape", "mean"): ((1, 0), (0, 1), (1, 1))}

_LARGE = 1e4  # counts: log Gamma has eleven decimal places up to here; above, use Stirling's formula


@dataclass(frozen=True)
class Hyperprior:
    """Prior of learned hyperparameters, centred at the initial values of the factor's prior.

    1/B ~ Gamma(shape ``weight``, mean 1/B_0): as informative as ``weight`` entries of shape 1. It keeps the scales of
    factors, of which only the product is identified, within some orders of magnitude.
    log A ~ Normal(log A_0, ``spread``). Both are limited to a range.
    """

    weight: float
    spread: float
    shapes: tuple[float, float]
    means: tuple[float, float]

    def of_shape(self, A: Array, centre: Array) -> Array:
        """Log density of log A, up to a constant."""
        return self._within(A, self.shapes, -0.5 * (np.log(A / centre) / self.spread) ** 2)

    def of_mean(self, B: Array, centre: Array) -> Array:
        """Log density of log B, up to a constant."""
        return self._within(B, self.means, -self.weight * (np.log(B) + centre / B))

    def _within(self, value: Array, limits: tuple[float, float], log_density: Array) -> Array:
        return np.where((value < limits[0]) | (value > limits[1]), -np.inf, log_density)


class Marginal:
    """Log density of the counts of each group of entries. Arrays have one row per group.

    Terms that depend only on the counts are omitted. They are far larger than the rest if counts are huge, and their
    rounding errors would be as large as the differences that a slice step evaluates.
    """

    def __init__(self, counts: Array, exposure: Array, groups: Groups) -> None:
        self._groups = groups
        n, self._exposure = self.rows(counts), self.rows(exposure)
        self._at = np.nonzero(n)  # entries without counts need no Gamma functions
        self._n = n[self._at]
        seen = self._with_counts(self._exposure)
        exposed = seen > 0
        self._log_exposure = np.log(np.where(exposed, seen, 1.0))
        self._exposed = np.where(exposed, 0.0, -np.inf)  # log(1) or log(0)

    def rows(self, values: ArrayLike) -> Array:
        """Values that broadcast to the factor, as (groups, entries), or (groups, 1) if constant within groups."""
        given, groups = np.asarray(values, dtype=np.float64), self._groups
        shape = groups.shape if groups.vary(given) else groups.value_shape
        full = np.broadcast_to(given, shape).transpose((*groups.apart, *groups.shared))
        return full.reshape(groups.count, -1)

    @property
    def width(self) -> Array:
        """Width of a slice: about that of the density of a logarithm, given the number of entries with counts."""
        return np.minimum(1.0, 3.0 / np.sqrt(1 + np.bincount(self._at[0], minlength=self._groups.count)))

    def log_density(self, A: Array, B: Array) -> Array:
        """Log density of each group at shapes A and means B, up to a constant."""
        from scipy.special import gammaln

        rate = A / B
        without = np.log1p(self._exposure / rate)  # log( (A/B + Delta) / (A/B) )
        relative = self._with_counts(np.log(rate)) - self._log_exposure
        ratio = log_gamma_ratio(self._with_counts(A), self._n) - self._with_counts(gammaln(A))
        counted = ratio - self._n * np.logaddexp(relative, self._exposed)  # n * log( (A/B + Delta) / Delta )
        sums = np.bincount(self._at[0], counted, minlength=self._groups.count)
        return np.asarray(sums - np.einsum("ge,ge->g", np.broadcast_to(A, without.shape), without))

    def _with_counts(self, rows: Array) -> Array:
        """The rows of the entries with counts."""
        group, place = self._at
        return rows[group, place] if rows.shape[1] > 1 else rows[group, 0]


def log_gamma_ratio(A: Array, n: Array) -> Array:
    """log Gamma(A + n), minus log Gamma(n) if n is so large that the difference would lose precision.

    For such n it uses Stirling's formula, log Gamma(x) = (x - 1/2) log x - x + log(2 pi)/2 + 1/(12 x).
    """
    from scipy.special import gammaln

    found: Array = gammaln(A + n)
    large = n >= _LARGE
    if large.any():
        A, n = A[large], n[large]
        found[large] = (n - 0.5) * np.log1p(A / n) + A * (np.log(A + n) - 1) - A / (12 * n * (A + n))
    return found


def prior_draws(
    present: Gamma, given: Gamma, counts: Array, exposure: Array, groups: Groups, hyperprior: Hyperprior, key: Key
) -> Gamma:
    """The prior after a slice step along each learned direction; ``given`` has the initial values.

    The factor must be sampled next, before anything that is conditional on it: the two steps together are a joint
    draw of the hyperparameters and the factor.
    """
    marginal, rng = Marginal(counts, exposure, groups), stream(key)
    centres = marginal.rows(given.shape), marginal.rows(given.mean)
    A, B = marginal.rows(present.shape), marginal.rows(present.mean)
    if "shape" in given.learns:
        A = np.clip(A, *hyperprior.shapes)
    if "mean" in given.learns:
        B = np.clip(B, *hyperprior.means)
    for direction in _DIRECTIONS[given.learns]:
        log_density = partial(_along, marginal, hyperprior, centres, (A, B), direction)
        t = slice_step(log_density, np.zeros(groups.count), rng, marginal.width)
        A, B = _moved((A, B), direction, t)
    shape = prior_value(A, groups) if "shape" in given.learns else present.shape
    mean = prior_value(B, groups) if "mean" in given.learns else present.mean
    return given.with_values(shape, mean)


def _along(
    marginal: Marginal,
    hyperprior: Hyperprior,
    centres: tuple[Array, Array],
    start: tuple[Array, Array],
    direction: tuple[int, int],
    t: Array,
) -> Array:
    """Log density of each group at t along a direction."""
    A, B = _moved(start, direction, t)
    value = np.zeros(t.shape)
    if direction[0]:
        value += hyperprior.of_shape(A, centres[0])[:, 0]
    if direction[1]:
        value += hyperprior.of_mean(B, centres[1])[:, 0]
    return value + marginal.log_density(A, B)


def _moved(start: tuple[Array, Array], direction: tuple[int, int], t: Array) -> tuple[Array, Array]:
    A, B = (one * np.exp(t)[:, None] if moves else one for one, moves in zip(start, direction, strict=True))
    return A, B
