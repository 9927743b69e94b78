"""Noise against scipy.stats, mpmath and the limits it must have."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest
from scipy import stats

from pltf.errors import PltfError
from pltf.prediction.noise import Bernoulli, NegativeBinomial, Noise, Poisson, Strays, ZeroInflated, draw_counts

RATES = np.array([1e-12, 1e-3, 0.4, 1.0, 7.5, 300.0, 1e6])
COUNTS = np.array([0.0, 1.0, 2.0, 5.0, 60.0, 1000.0, 1e6])
X, M = (one.reshape(-1) for one in np.meshgrid(COUNTS, RATES))
SIZES = [1e-3, 0.5, 1.0, 31.9, 32.0, 1e3]


def exact_log_prob(x: float, m: float, r: float) -> float:
    with mpmath.workdps(80):
        x, m, r = mpmath.mpf(x), mpmath.mpf(m), mpmath.mpf(r)
        choose = mpmath.loggamma(x + r) - mpmath.loggamma(r) - mpmath.loggamma(x + 1)
        return float(choose + r * mpmath.log(r / (r + m)) + x * mpmath.log(m / (r + m)))


def exact_tail(k: int, m: float, r: float) -> float:
    """P(X >= k): one less the probabilities below, with as many digits as that needs."""
    with mpmath.workdps(500):
        m, r = mpmath.mpf(m), mpmath.mpf(r)
        one, below = mpmath.exp(r * mpmath.log(r / (r + m))), mpmath.mpf(0)
        for x in range(k):
            below, one = below + one, one * (x + r) / (x + 1) * m / (r + m)
        return float(1 - below)


@pytest.mark.parametrize("size", [1e-9, 0.3, 1.0, 31.9, 32.0, 1e4, 1e9, 1e15])
def test_log_prob_of_a_negative_binomial_has_its_digits(size: float) -> None:
    found = NegativeBinomial(size).log_prob(X, M)
    exact = np.array([exact_log_prob(x, m, size) for x, m in zip(X, M, strict=True)])
    # as many digits as the largest of its terms leaves: those of a Poisson
    scale = 1 + X * np.abs(np.log(M)) + X * np.log1p(X) + M
    assert np.abs((found - exact) / scale).max() < 1e-14


@pytest.mark.parametrize("size", SIZES)
def test_negative_binomial_agrees_with_scipy(size: float) -> None:
    digits = (X < 1e6) & (M > 1e-4) & (M < 1e6)  # elsewhere scipy has too few: it takes p = size / (size + m)
    x, m = X[digits], M[digits]
    noise, theirs = NegativeBinomial(size), stats.nbinom(size, size / (size + m))
    np.testing.assert_allclose(noise.log_prob(x, m), theirs.logpmf(x), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(noise.at_most(x, m), theirs.cdf(x), rtol=1e-7)
    np.testing.assert_allclose(noise.at_least(x, m), theirs.sf(x - 1), rtol=1e-7, atol=1e-250)
    np.testing.assert_allclose(noise.variance(m, 0 * m), theirs.var(), rtol=1e-7)


@pytest.mark.parametrize("size", [1e-8, 0.5, 40.0, 1e6, 1e12])
def test_small_tails_of_a_negative_binomial_have_their_digits(size: float) -> None:
    for k, m in itertools.product([1, 3, 40], [1e-9, 0.2, 5.0, 1e5]):
        exact = exact_tail(k, m, size)
        if exact > 1e-290:
            found = NegativeBinomial(size).at_least(np.array([float(k)]), np.array([m]))[0]
            assert found == pytest.approx(exact, rel=1e-9), (k, m)


@pytest.mark.parametrize("size", [1e25, 1e200, np.inf])
def test_a_negative_binomial_of_infinite_size_is_a_poisson(size: float) -> None:
    noise, poisson = NegativeBinomial(size), Poisson()
    np.testing.assert_allclose(noise.log_prob(X, M), poisson.log_prob(X, M), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(noise.at_least(X, M), poisson.at_least(X, M), rtol=1e-8, atol=1e-300)
    np.testing.assert_allclose(noise.at_most(X, M), poisson.at_most(X, M), rtol=1e-8, atol=1e-300)
    assert np.array_equal(noise.variance(M, M**2), poisson.variance(M, M**2)) or size < np.inf


def test_poisson_agrees_with_scipy() -> None:
    noise, theirs = Poisson(), stats.poisson(M)
    np.testing.assert_allclose(noise.log_prob(X, M), theirs.logpmf(X), rtol=1e-12)
    np.testing.assert_allclose(noise.at_most(X, M), theirs.cdf(X), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(noise.at_least(X, M), theirs.sf(X - 1), rtol=1e-9, atol=1e-300)
    for k in (0, 1, 2, 9):
        np.testing.assert_allclose(noise.at_least(k, RATES), stats.poisson(RATES).sf(k - 1), rtol=1e-9)


def test_bernoulli_agrees_with_scipy() -> None:
    noise, theirs = Bernoulli(), stats.bernoulli(-np.expm1(-M))
    links = X <= 1
    x, m, p = X[links], M[links], -np.expm1(-M[links])
    np.testing.assert_allclose(noise.log_prob(x, m)[m < 9], stats.bernoulli(p).logpmf(x)[m < 9], rtol=1e-10)
    assert noise.log_prob(np.array([0.0]), np.array([1e6]))[0] == -1e6
    assert np.isneginf(noise.log_prob(X, M)[X > 1]).all()
    np.testing.assert_allclose(noise.at_most(X, M), theirs.cdf(X), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(noise.at_least(X, M), theirs.sf(X - 1), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(noise.variance(M, 0 * M), theirs.var(), rtol=1e-9, atol=1e-15)


def test_variance_of_links_counts_in_how_little_is_known_of_their_rates() -> None:
    rate = np.random.default_rng(0).gamma(0.5, 2.0, 400_000)  # mean 1, variance 2
    p = -np.expm1(-rate).mean()
    assert Bernoulli().variance(np.array(1.0), np.array(2.0)) == pytest.approx(p * (1 - p), rel=0.01)


NOISES: list[Noise] = [
    Poisson(),
    Bernoulli(),
    NegativeBinomial(0.3),
    NegativeBinomial(50.0),
    ZeroInflated(0.3, Poisson()),
    ZeroInflated(0.1, NegativeBinomial(2.0)),
    Strays(0.02, 40.0, Poisson()),
    Strays(0.3, 1.0, Poisson()),
    Strays(0.1, 3.0, ZeroInflated(0.1, NegativeBinomial(2.0))),
]


def expected(noise: Noise, rate: float) -> float:
    """The mean of a value."""
    if isinstance(noise, Strays):
        return (1 - noise.share) * rate + noise.share * noise.typical
    return float(-np.expm1(-rate)) if isinstance(noise, Bernoulli) else rate


@pytest.mark.parametrize("noise", NOISES, ids=repr)
@pytest.mark.parametrize("rate", [0.05, 2.0, 20.0])
def test_the_parts_of_a_noise_agree(noise: Noise, rate: float) -> None:
    """Probabilities add up, tails are their sums, mean and variance are theirs, and draws come from them."""
    x = np.arange(3000.0)
    p = np.exp(noise.log_prob(x, np.full(x.size, rate)))
    assert p.sum() == pytest.approx(1, abs=1e-9)
    below = noise.at_most(x, np.full(x.size, rate))
    np.testing.assert_allclose(below, np.cumsum(p), atol=1e-9)
    np.testing.assert_allclose(noise.at_least(x, np.full(x.size, rate)), 1 - np.cumsum(p) + p, atol=1e-9)
    for k in (0, 1, 4):
        assert noise.at_least(k, np.array([rate]))[0] == pytest.approx(p[k:].sum(), abs=1e-9)
    mean, variance = p @ x, p @ x**2 - (p @ x) ** 2
    assert mean == pytest.approx(expected(noise, rate), rel=1e-6)
    assert noise.variance(np.array(rate), np.array(0.0)) == pytest.approx(variance, rel=1e-6)
    drawn = noise.draw(np.random.default_rng(1), np.full(40_000, rate))
    assert drawn.dtype == np.int64
    for k in (0, 1, 5, 30):
        assert (drawn <= k).mean() == pytest.approx(below[k], abs=0.015)


def test_noise_along_an_axis_goes_by_the_cell() -> None:
    noise = NegativeBinomial(np.array([0.5, np.inf]), axis=1)
    cells, x, rates = np.array([[3, 4, 5], [1, 0, 1]]), np.array([2.0, 2.0, 2.0]), np.array([1.0, 1.0, 3.0])
    found = noise.at(cells).log_prob(x, rates)
    expected = [Poisson().log_prob(x[:1], rates[:1])[0], NegativeBinomial(0.5).log_prob(x[:1], rates[:1])[0]]
    np.testing.assert_allclose(found[:2], expected)
    wrapped = ZeroInflated(0.1, noise).at(cells)
    assert wrapped.at_least(1, rates).shape == (3,)


def test_a_rate_of_zero_is_a_certain_zero() -> None:
    zero = np.zeros(2)
    for noise in NOISES:
        assert noise.log_prob(np.array([0.0, 1.0]), zero).tolist() == [pytest.approx(0.0, abs=1e-15), -np.inf]
        assert noise.at_least(1, zero).tolist() == [0.0, 0.0]
        assert not noise.draw(np.random.default_rng(0), zero).any()


def test_counts_of_huge_rates_are_refused() -> None:
    with pytest.raises(PltfError, match="whole counts end at"):
        draw_counts(Poisson(), np.random.default_rng(0), np.array([1e17]))
    assert (draw_counts(NegativeBinomial(0.01), np.random.default_rng(0), np.full(1000, 9e15)) >= 0).all()
