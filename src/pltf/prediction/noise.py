"""Distribution of a value given its rate: Poisson, overdispersed, with excess zeros or strays, or 0/1.

A fit has a posterior of the rates. :class:`Noise` is the distribution of the value of a cell given its rate. Its mean
is usually the rate; with :class:`Bernoulli` and :class:`Strays` it is another increasing function of the rate. So rates
and rankings do not depend on the noise.

Probabilities of values can be computed on a device: then values and rates are tensors of PyTorch. That of a negative
binomial there is in ``device_noise.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pltf.data.cell_index import Coords
from pltf.engines.either import library
from pltf.errors import PltfError
from pltf.gamma import Array
from pltf.prediction.keyed import KeyedRandom

LARGEST_RATE = 2.0**53  # floats above this do not represent all whole numbers
LARGEST_SHAPE = 1e25  # a negative binomial of this size equals a Poisson in all digits, and does not overflow
SMALLEST_SHAPE = 1e-100  # of the shape of a rate
STIRLING = 32.0  # the series below is exact from here on

Places = Coords | tuple[NDArray[np.intp], ...]  # positions of cells along each mode, which may broadcast
Source = np.random.Generator | KeyedRandom
Numbers = Any  # an array of NumPy, or a tensor


class Noise(Protocol):
    """The distribution of a value given its rate; arguments are numbers or arrays over cells, and broadcast."""

    def at(self, cells: Places) -> Noise:
        """The noise of some cells (modes, n)."""
        return self  # the same everywhere

    def log_prob(self, x: Numbers, rates: Numbers) -> Numbers:
        """log P(X = x); for values that are not whole the same expression, if it is defined."""

    def at_least(self, k: Numbers | int, rates: Numbers) -> Numbers:
        """P(X >= k)."""

    def at_most(self, k: Numbers | int, rates: Numbers) -> Numbers:
        """P(X <= k)."""

    def draw(self, rng: Source, rates: Array) -> NDArray[np.int64]:
        """Draw a value for each rate; :func:`draw_counts` raises an error for rates that are too large."""

    def excess(self, mean: Array, of_rate: Array) -> Array:
        """Variance of a value in excess of a Poisson with known rate, for a rate with this mean and variance."""

    def variance(self, mean: Array, of_rate: Array) -> Array:
        """Variance of a value whose rate has this mean and variance."""
        return self.excess(mean, of_rate) + mean


def draw_counts(noise: Noise, rng: Source, rates: Array) -> NDArray[np.int64]:
    """A count for each rate.

    >>> draw_counts(Poisson(), np.random.default_rng(0), np.array([0.0, 1e15])).shape
    (2,)
    """
    largest = rates.max(initial=0.0)
    if largest > LARGEST_RATE:
        raise PltfError(f"rates of up to {largest:.2g} were drawn, but whole counts end at {LARGEST_RATE:.2g}")
    return noise.draw(rng, rates)


def special_of(array: Numbers) -> Any:
    """The special functions of the library of an array."""
    return special if library(array) is np else library(array).special


def _filled(k: Numbers | int, rates: Numbers) -> Numbers:
    """A number for each rate: many functions of PyTorch take no plain number."""
    return library(rates).full_like(rates, k) if isinstance(k, int) else k


@dataclass(frozen=True)
class Poisson(Noise):
    """Poisson counts.

    >>> Poisson().at_least(1, np.array([0.0, 2.0])).round(4).tolist()
    [0.0, 0.8647]
    """

    def log_prob(self, x: Numbers, rates: Numbers) -> Numbers:
        functions = special_of(rates)
        return functions.xlogy(x, rates) - rates - functions.gammaln(x + 1)

    def at_least(self, k: Numbers | int, rates: Numbers) -> Numbers:
        xp = library(rates)
        if isinstance(k, int) and k < 2:
            return -xp.expm1(-rates) if k == 1 else xp.ones_like(rates)
        k = _filled(k, rates)
        return xp.where(k > 0, special_of(rates).gammainc(xp.clip(k, 1, None), rates), 1.0)

    def at_most(self, k: Numbers | int, rates: Numbers) -> Numbers:
        return special_of(rates).gammaincc(_filled(k, rates) + 1, rates)

    def draw(self, rng: Source, rates: Array) -> NDArray[np.int64]:
        return rng.poisson(rates)

    def excess(self, mean: Array, of_rate: Array) -> Array:
        return of_rate


@dataclass(frozen=True)
class Bernoulli(Noise):
    """Links: 1 where a Poisson count of this rate is above zero, otherwise 0.

    >>> Bernoulli().log_prob(np.array([0.0, 1.0, 2.0]), np.array([0.5, 0.5, 0.5])).round(4).tolist()
    [-0.5, -0.9328, -inf]
    """

    def log_prob(self, x: Numbers, rates: Numbers) -> Numbers:
        xp = library(rates)
        with np.errstate(divide="ignore"):
            link = xp.log(-xp.expm1(-rates))
        return xp.where(x == 1, link, xp.where(x == 0, -rates, -xp.inf))

    def at_least(self, k: Numbers | int, rates: Numbers) -> Numbers:
        xp, k = library(rates), _filled(k, rates)
        return xp.where(k <= 0, 1.0, xp.where(k <= 1, -xp.expm1(-rates), 0.0))

    def at_most(self, k: Numbers | int, rates: Numbers) -> Numbers:
        xp, k = library(rates), _filled(k, rates)
        return xp.where(k < 0, 0.0, xp.where(k < 1, xp.exp(-rates), 1.0))

    def draw(self, rng: Source, rates: Array) -> NDArray[np.int64]:
        return (rng.random(np.shape(rates)) < -np.expm1(-rates)).astype(np.int64)

    def excess(self, mean: Array, of_rate: Array) -> Array:
        return of_rate  # of the latent count

    def variance(self, mean: Array, of_rate: Array) -> Array:
        """p * (1 - p), with p as if the rate had the Gamma distribution of this mean and variance."""
        scale = of_rate / np.maximum(mean, np.finfo(float).tiny)
        exponent = np.where(scale > 0, np.log1p(scale) / np.where(scale > 0, scale, 1.0), 1.0) * mean
        return np.exp(-exponent) * -np.expm1(-exponent)


@dataclass(frozen=True, eq=False)
class NegativeBinomial(Noise):
    """Counts with mean m and variance m + m^2 / s: Poisson with Gamma rates of shape s = size * m^power.

    ``size`` is one number, or an array along one axis (``axis``) of the tensor; infinity is a Poisson. Power 0 is the
    usual negative binomial, where all rates have the same relative variance. With power 1 the variance is a multiple of
    the mean.

    >>> noise = NegativeBinomial(0.5)
    >>> float(noise.variance(np.array(3.0), np.array(0.0)))
    21.0
    >>> noise.at_least(30, np.array([3.0])) > 1e8 * Poisson().at_least(30, np.array([3.0]))
    array([ True])
    """

    size: float | Array
    axis: int | None = None
    power: float = 0.0

    def at(self, cells: Places) -> NegativeBinomial:
        if self.axis is None:
            return self
        return NegativeBinomial(np.asarray(self.size)[cells[self.axis]], power=self.power)

    def _shape(self, rates: Array) -> Array:
        """Shape of the Gamma distribution of a rate: finite and positive."""
        shape = self.size * rates**self.power if self.power else self.size
        return np.clip(shape, SMALLEST_SHAPE, LARGEST_SHAPE)

    def log_prob(self, x: Array, rates: Array) -> Numbers:
        size = self._shape(rates)
        if np.all(size >= STIRLING):
            return log_prob_of_large(x, rates, size)
        choose = -np.log(size + x) - special.betaln(size, x + 1)
        small = choose - size * np.log1p(rates / size) + special.xlogy(x, rates / (size + rates))
        if np.all(size < STIRLING):
            return small
        return np.where(size < STIRLING, small, log_prob_of_large(x, rates, np.maximum(size, STIRLING)))

    def at_least(self, k: Array | int, rates: Array) -> Array:
        tail = _beta_tail(np.maximum(k, 1), self._shape(rates), rates, upper=True)
        return np.where(np.asarray(k) > 0, tail, 1.0)

    def at_most(self, k: Array | int, rates: Array) -> Array:
        return _beta_tail(np.asarray(k) + 1, self._shape(rates), rates, upper=False)

    def draw(self, rng: Source, rates: Array) -> NDArray[np.int64]:
        size = self._shape(rates)
        varied = rates * (rng.standard_gamma(size, np.shape(rates)) / size)
        return rng.poisson(np.minimum(varied, LARGEST_RATE))

    def excess(self, mean: Array, of_rate: Array) -> Array:
        """With a power, evaluated at the mean rate, not averaged over rates."""
        shape = self._shape(mean) if self.power else np.asarray(self.size)
        return of_rate + (of_rate + mean * mean) / shape


@dataclass(frozen=True, eq=False)
class ZeroInflated(Noise):
    """Counts with excess zeros in a ``share`` of all cases; other counts are larger, so the mean is the rate.

    >>> noise = ZeroInflated(0.2, Poisson())
    >>> float(noise.at_most(0, np.array(50.0)))
    0.2
    """

    share: float
    inner: Noise

    def at(self, cells: Places) -> ZeroInflated:
        return ZeroInflated(self.share, self.inner.at(cells))

    def log_prob(self, x: Numbers, rates: Numbers) -> Numbers:
        xp = library(rates)
        counted = float(np.log1p(-self.share)) + self.inner.log_prob(x, rates / (1 - self.share))
        zero = xp.logaddexp(xp.full_like(counted, float(np.log(self.share))), counted)
        return xp.where(x == 0, zero, counted)

    def at_least(self, k: Numbers | int, rates: Numbers) -> Numbers:
        counted = (1 - self.share) * self.inner.at_least(k, rates / (1 - self.share))
        return library(rates).where(_filled(k, rates) > 0, counted, 1.0)

    def at_most(self, k: Numbers | int, rates: Numbers) -> Numbers:
        counted = self.share + (1 - self.share) * self.inner.at_most(k, rates / (1 - self.share))
        return library(rates).where(_filled(k, rates) >= 0, counted, 0.0)

    def draw(self, rng: Source, rates: Array) -> NDArray[np.int64]:
        counted = rng.random(np.shape(rates)) >= self.share
        return np.where(counted, self.inner.draw(rng, np.minimum(rates / (1 - self.share), LARGEST_RATE)), 0)

    def excess(self, mean: Array, of_rate: Array) -> Array:
        left = 1 - self.share
        inner = self.inner.excess(mean / left, of_rate / left**2)
        extra: Array = left * inner + self.share / left * mean * mean
        return extra


@dataclass(frozen=True, eq=False)
class Strays(Noise):
    """Counts with strays, independent of their rate, in a ``share`` of all cases.

    Strays are positive and geometric with mean ``typical``. Cells with rate zero have none.

    >>> noise = Strays(0.01, 50.0, Poisson())
    >>> noise.at_least(40, np.array([0.0, 0.1, 5.0])).round(5).tolist()
    [0.0, 0.00455, 0.00455]
    """

    share: float
    typical: float
    inner: Noise

    def at(self, cells: Places) -> Strays:
        return Strays(self.share, self.typical, self.inner.at(cells))

    def log_prob(self, x: Numbers, rates: Numbers) -> Numbers:
        xp, inner, stray = library(rates), self.inner.log_prob(x, rates), log_prob_of_strays(x, self.typical)
        with np.errstate(invalid="ignore"):  # the less improbable of two impossible values
            mixed = xp.logaddexp(float(np.log1p(-self.share)) + inner, float(np.log(self.share)) + stray)
        return xp.where(rates > 0, mixed, inner)

    def at_least(self, k: Numbers | int, rates: Numbers) -> Numbers:
        return self.mixed(self.inner.at_least(k, rates), k, rates)

    def at_most(self, k: Numbers | int, rates: Numbers) -> Numbers:
        share = self._share(rates)
        return (1 - share) * self.inner.at_most(k, rates) + share * (1 - self._longer(_filled(k, rates)))

    def mixed(self, at_least: Numbers, k: Numbers | int, rates: Numbers) -> Numbers:
        """P(X >= k), given that of the inner noise."""
        share = self._share(rates)
        return (1 - share) * at_least + share * self._longer(_filled(k, rates) - 1)

    def _share(self, rates: Numbers) -> Numbers:
        xp = library(rates)
        return xp.where(rates > 0, xp.full_like(rates, self.share), 0.0)

    def _longer(self, k: Numbers) -> Numbers:
        """P(X > k) of a stray."""
        xp = library(k)
        return xp.exp(special_of(k).xlog1py(xp.clip(k, 0, None), -1 / self.typical))

    def draw(self, rng: Source, rates: Array) -> NDArray[np.int64]:
        stray = (rng.random(np.shape(rates)) < self.share) & (rates > 0)
        return np.where(stray, rng.geometric(1 / self.typical, np.shape(rates)), self.inner.draw(rng, rates))

    def excess(self, mean: Array, of_rate: Array) -> Array:
        return self.variance(mean, of_rate) - mean

    def variance(self, mean: Array, of_rate: Array) -> Array:
        within = (1 - self.share) * self.inner.variance(mean, of_rate) + self.share * self.typical * (self.typical - 1)
        between = self.share * (1 - self.share) * (mean - self.typical) ** 2
        return np.where(mean > 0, within + between, 0.0)


def log_prob_of_strays(x: Numbers, typical: float) -> Numbers:
    """log P(X = x) of a positive geometric count.

    >>> log_prob_of_strays(np.array([0.0, 1.0, 2.0]), 2.0).round(4).tolist()
    [-inf, -0.6931, -1.3863]
    """
    xp = library(x)
    log_prob = special_of(x).xlog1py(xp.clip(x - 1, 0, None), -1 / typical) - float(np.log(typical))
    return xp.where(x > 0, log_prob, -xp.inf)


def _beta_tail(k: Array | int, size: Array, rates: Array, *, upper: bool) -> Array:
    """P(X >= k) or P(X < k) of a negative binomial, for k >= 1."""
    k, size, rates = np.broadcast_arrays(k, size, rates)
    of_counted, of_other = (special.betainc, special.betaincc) if upper else (special.betaincc, special.betainc)
    few, sums, out = rates <= size, size + rates, np.empty(rates.shape)
    out[few] = of_counted(k[few], size[few], (rates / sums)[few])  # not both for every cell, as they are slow
    out[~few] = of_other(size[~few], k[~few], (size / sums)[~few])
    return out


def log_prob_of_large(x: Numbers, rates: Numbers, size: Numbers) -> Numbers:
    """log P(X = x) of a negative binomial of large size; equals a Poisson in the limit.

    Gamma(size + x) / Gamma(size) by Stirling's series, without the terms that cancel with the powers.
    """
    xp, functions, more = library(rates), special_of(rates), x >= rates
    beside = xp.where(more, x - rates, rates - x) / (size + xp.where(more, rates, x))
    ratio = xp.where(more, 1.0, -1.0) * xp.log1p(beside)  # log((size + x) / (size + rates))
    powers = functions.xlogy(x, rates) - functions.gammaln(x + 1) - x + (size + x) * ratio - 0.5 * xp.log1p(x / size)
    return powers + stirling_rest(size + x) - stirling_rest(size)


def stirling_rest(z: Numbers) -> Numbers:
    """log Gamma(z) - ((z - 1/2) log z - z + log(2 pi) / 2), for large z."""
    inverse = 1 / z
    square = inverse * inverse
    return inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
