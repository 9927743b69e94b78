"""Random numbers of compiled kernels, against SciPy's distributions. Seeds are fixed: what passes once always does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from pltf.engines.kernels import draws

Array = NDArray[np.float64]
N = 40_000
UNLIKELY = 1e-4  # p-value of a test below which a sampler is wrong: there are some 50 of them


@numba.njit
def uniforms(stream, out):  # type: ignore[no-untyped-def]
    for n in range(out.size):
        out[n] = draws.uniform(stream)


@numba.njit
def binomials(stream, n, p, out):  # type: ignore[no-untyped-def]
    for k in range(out.size):
        out[k] = draws.rarer(stream, n, p)


@numba.njit
def positive_poissons(stream, rate, out):  # type: ignore[no-untyped-def]
    for k in range(out.size):
        out[k] = draws.positive_poisson(stream, rate)


def drawn(loop: Callable[..., None], *parameters: float) -> Array:
    out = np.empty(N)
    loop(draws.stream((3, *(math.frexp(p)[1] + 2000 for p in parameters))), *parameters, out)
    return out


def p_value(found: Array, cdf: Callable[[Any], Any], quantile: Callable[[Any], Any]) -> float:
    """Of a chi-square test in some 40 bins of about equal probability, the tails among them."""
    edges = np.unique(quantile(np.linspace(0, 1, 41)[1:-1]))
    chances = np.diff(np.concatenate([[0.0], cdf(edges), [1.0]]))
    counts = np.bincount(np.searchsorted(edges, found), minlength=edges.size + 1)
    keep = chances * N >= 5
    counts, chances = (np.append(one[keep], one[~keep].sum()) for one in (counts, chances))
    if chances[-1] * N < 1e-6:
        assert counts[-1] == 0
        counts, chances = counts[:-1], chances[:-1]
    return float(stats.chisquare(counts, chances / chances.sum() * N).pvalue) if counts.size > 1 else 1.0


def test_the_generator_is_xoshiro256_plus_plus() -> None:
    """The first numbers from the state 1, 2, 3, 4, as the authors' program has them."""
    known = [41943041, 58720359, 3588806011781223, 3591011842654386, 9228616714210784205, 9973669472204895162]
    out = np.empty(len(known))
    uniforms(np.array([1, 2, 3, 4], dtype=np.uint64), out)
    np.testing.assert_array_equal(out, [(one >> 11) * 2.0**-53 for one in known])


def test_uniform_numbers() -> None:
    found = drawn(uniforms)
    assert found.min() >= 0
    assert found.max() < 1
    assert stats.kstest(found, "uniform").pvalue > UNLIKELY
    pairs = stats.chi2_contingency(np.histogram2d(found[:-1], found[1:], bins=8)[0])
    assert pairs.pvalue > UNLIKELY


def test_streams_of_neighbouring_keys_have_nothing_in_common() -> None:
    keys = [(1,), (1, 0), (0, 1), (1, 0, 0), (2,), (2**40,), (1, 2**40)]
    first = np.array([drawn_from(key) for key in keys])
    assert len({row.tobytes() for row in first}) == len(keys)
    assert abs(np.corrcoef(first) - np.eye(len(keys))).max() < 0.05


def drawn_from(key: tuple[int, ...]) -> Array:
    out = np.empty(10_000)
    uniforms(draws.stream(key), out)
    return out


@pytest.mark.parametrize("n", [1, 2, 7, 25, 100, 3000, 10**6, 10**9, 2**50])
@pytest.mark.parametrize("p", [1e-12, 1e-6, 1e-3, 0.05, 0.3, 0.5])
def test_binomial(n: int, p: float) -> None:
    found, exact = drawn(binomials, n, p), stats.binom(n, p)
    assert ((found >= 0) & (found <= n) & (found == np.floor(found))).all()
    assert p_value(found, exact.cdf, exact.ppf) > UNLIKELY
    z = (found.mean() - exact.mean()) * math.sqrt(N) / exact.std()
    assert abs(z) < 4.5


@pytest.mark.parametrize("mean", [9.9, 10.1, 12.0])
def test_binomial_where_one_method_follows_the_other(mean: float) -> None:
    exact = stats.binom(200, mean / 200)
    assert p_value(drawn(binomials, 200, mean / 200), exact.cdf, exact.ppf) > UNLIKELY


@pytest.mark.parametrize("rate", [1e-300, 1e-9, 0.01, 0.5, 3.0, 9.99, 10.01, 40.0, 1e4, 1e9])
def test_poisson_above_zero(rate: float) -> None:
    found, whole = drawn(positive_poissons, rate), stats.poisson(rate)
    above = -math.expm1(-rate)
    assert found.min() >= 1
    assert (found == np.floor(found)).all()

    def cdf(k: Array) -> Array:
        return np.asarray(1 - whole.sf(k) / above)

    assert p_value(found, cdf, lambda q: whole.isf((1 - q) * above)) > UNLIKELY
