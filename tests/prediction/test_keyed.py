"""Random numbers by place: the right distributions, independent between places, keys and calls."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pltf.prediction.keyed import KeyedRandom, places_of
from pltf.prediction.noise import NegativeBinomial, Strays, ZeroInflated

N = 40_000
PLACES = places_of(np.stack(np.unravel_index(np.arange(N), (200, 200))))


def source(*key: int) -> KeyedRandom:
    return KeyedRandom(key, PLACES)


@pytest.mark.parametrize("shape", [1e-3, 0.05, 0.7, 1.0, 3.0, 1e3, 1e12])
def test_gammas(shape: float) -> None:
    drawn = source(1).standard_gamma(shape)
    if shape < 0.01:  # most underflow: compare those that do not
        expected, limit = stats.gamma(shape).sf(1e-3), 1e-3
        assert abs((drawn > limit).mean() - expected) < 5 * np.sqrt(expected / N)
    else:
        assert stats.kstest(drawn, stats.gamma(shape).cdf).pvalue > 1e-4


@pytest.mark.parametrize("rate", [0.0, 1e-3, 0.8, 9.99, 10.0, 300.0, 1e6])
def test_poisson_counts(rate: float) -> None:
    drawn = source(2).poisson(np.full(N, rate))
    assert drawn.dtype == np.int64
    for share in (0.05, 0.3, 0.5, 0.9, 0.99):
        k = stats.poisson.ppf(share, rate) if rate else 0
        expected = stats.poisson.cdf(k, rate)
        assert abs((drawn <= k).mean() - expected) <= 5 * np.sqrt(expected * (1 - expected) / N) + 1e-9


def test_geometric_counts() -> None:
    for mean in (1.0, 1.5, 40.0):
        drawn = source(3).geometric(1 / mean)
        assert drawn.min() == 1
        assert abs(drawn.mean() - mean) <= 5 * np.sqrt(mean * (mean - 1) / N)
        assert abs((drawn == 1).mean() - 1 / mean) <= 5 * np.sqrt((1 - 1 / mean) / mean / N)


def test_counts_with_all_kinds_of_noise_have_its_probabilities() -> None:
    noise, rates = Strays(0.05, 20.0, ZeroInflated(0.2, NegativeBinomial(0.7))), np.full(N, 4.0)
    drawn = noise.draw(source(4), rates)
    for k in (0, 1, 3, 10, 30):
        expected = float(noise.at_most(k, rates[:1])[0])
        assert abs((drawn <= k).mean() - expected) < 5 * np.sqrt(expected * (1 - expected) / N)


def test_neighbours_keys_and_calls_are_independent() -> None:
    first = source(5, 0)
    one, again, other = first.random(), first.random(), source(5, 1).random()
    pairs = [(one, again), (one, other), (one[:-1], one[1:]), (one[:-200], one[200:]), (one, first.standard_gamma(2.0))]
    for a, b in pairs:
        assert stats.spearmanr(a, b).pvalue > 1e-4
    table = np.histogram2d(one[:-1], one[1:], bins=8, range=[[0, 1], [0, 1]])[0]
    assert stats.chi2_contingency(table).pvalue > 1e-4
    np.testing.assert_array_equal(source(5, 0).random(), one)


def test_a_place_draws_alone_as_among_others() -> None:
    some = slice(70, 90)
    for draw in (KeyedRandom.random, KeyedRandom.standard_gamma, KeyedRandom.poisson):
        arguments = [] if draw is KeyedRandom.random else [np.linspace(0.1, 30, N)]
        every = draw(source(6), *arguments)
        few = draw(KeyedRandom((6,), PLACES[some]), *(one[some] for one in arguments))
        np.testing.assert_array_equal(few, every[some])
    assert len(np.unique(PLACES)) == N
