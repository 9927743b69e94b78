"""The Gamma distribution against scipy.stats and samples."""

from __future__ import annotations

import itertools
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

import pltf
from pltf.gamma import geometric_mean
from pltf.inference.algebra.compiled import NumbaAlgebra

C = np.array([[0.01, 0.5, 1.0], [3.0, 250.0, 2e4]])
D = np.array([[3.0, 0.1, 2.0], [1e-3, 5.0, 1e4]])


def test_moments_and_intervals_are_scipys() -> None:
    z = pltf.Posterior(("i", "r"), C, D)
    law = stats.gamma(C, scale=D)
    np.testing.assert_allclose(z.mean, law.mean())
    np.testing.assert_allclose(z.var, law.var())
    low, high = z.interval(0.8)
    np.testing.assert_allclose(low, law.ppf(0.1), rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(high, law.ppf(0.9), rtol=1e-10)


def test_geometric_mean_is_that_of_samples() -> None:
    shape, scale = np.array([0.7, 4.0]), np.array([2.0, 0.5])
    logs = np.log(pltf.Posterior(("i",), shape, scale).sample(200_000, seed=0))
    error = logs.std(axis=0) / np.sqrt(len(logs))
    np.testing.assert_array_less(np.abs(np.log(geometric_mean(shape, scale)) - logs.mean(axis=0)), 4 * error)


def test_geometric_mean_of_large_shapes_keeps_its_digits() -> None:
    with mpmath.workdps(40):
        for shape in (0.5, 9.9e3, 1.01e4, 1e6, 1e12):
            exact = mpmath.exp(mpmath.digamma(mpmath.mpf(shape)))
            error = abs(mpmath.mpf(float(geometric_mean(np.array([shape]), np.ones(1))[0])) / exact - 1)
            assert error < 2e-15


@pytest.mark.parametrize(("shape", "scale"), [(0.6, 2.0), (5.0, 0.3), (3e4, 1e-4)])
def test_kl_is_the_integral(shape: float, scale: float) -> None:
    prior = pltf.Gamma(1.5, 2.0)
    q, p = stats.gamma(shape, scale=scale), stats.gamma(1.5, scale=2.0 / 1.5)
    edges = q.ppf([1e-14, 0.01, 0.5, 0.99, 1 - 1e-14])
    pieces = [
        integrate.quad(lambda z: q.pdf(z) * (q.logpdf(z) - p.logpdf(z)), low, high)[0]
        for low, high in itertools.pairwise(edges)
    ]
    assert NumbaAlgebra().geomean_kl(np.array([shape]), np.array([scale]), prior)[1] == pytest.approx(
        sum(pieces), rel=1e-6
    )


def test_samples_have_the_moments_and_the_seed_decides() -> None:
    z = pltf.Posterior(("i",), np.array([0.5, 9.0]), np.array([2.0, 0.1]))
    draws = z.sample(100_000, seed=1)
    np.testing.assert_allclose(draws.mean(axis=0), z.mean, rtol=0.02)
    np.testing.assert_allclose(draws.var(axis=0), z.var, rtol=0.05)
    np.testing.assert_array_equal(z.sample(3, seed=1), z.sample(3, seed=1))
    assert (z.sample(3, seed=1) != z.sample(3, seed=2)).any()


def test_a_point_is_sure_of_itself() -> None:
    value = np.array([1.0, 2.0])
    z = pltf.Point(("i",), value)
    np.testing.assert_array_equal(z.sample(2), [value, value])
    np.testing.assert_array_equal(z.interval(0.5), (value, value))
    assert not z.var.any()
    with pytest.raises(pltf.PltfError, match="it has no posterior scale"):
        _ = z.scale


def test_prior_arrays_are_copied() -> None:
    shape = np.array([0.5, 1.0])
    prior = pltf.Gamma(shape, 3.0)
    shape[0] = 99
    np.testing.assert_array_equal(prior.shape, [0.5, 1.0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": 0}, "shape must be positive and finite, got 0.0"),
        ({"mean": -1.0}, "mean must be positive and finite, got -1.0"),
        ({"mean": np.inf}, "mean must be positive and finite, got inf"),
        ({"shape": np.nan}, "shape must be positive and finite, got nan"),
        ({"shape": "a"}, "Gamma: shape: expected real or integer numbers, got dtype <U1"),
        ({"shape": -np.ones((50, 50))}, "shape must be positive and finite, got -1.0$"),
        ({"shape": [[1], [1, 2]]}, "Gamma: shape: expected a numeric array, got list"),
        ({"shape": np.ones(2), "mean": np.ones(3)}, r"shape and mean must broadcast together, got \(2,\) and \(3,\)"),
    ],
)
def test_refused_priors(arguments: Any, message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message):
        pltf.Gamma(**arguments)


@pytest.mark.parametrize("z", [pltf.Posterior(("i",), np.ones(2), np.ones(2)), pltf.Point(("i",), np.ones(2))])
def test_refused_levels_and_draws(z: Any) -> None:
    for level in (0, 1, 90, "a"):
        with pytest.raises(pltf.PltfError, match="level must lie between 0 and 1"):
            z.interval(level)
    for n in (0, 2.5, True):
        with pytest.raises(pltf.PltfError, match="n must be a whole number of at least 1"):
            z.sample(n)


def test_where_arrays_lie_does_not_change_a_bit() -> None:
    """Compiled loops may take another way if arrays begin close to each other: stir the heap and look."""
    rng = np.random.default_rng(0)
    for size in (5, 8, 14, 30):
        shape, scale = rng.gamma(1.0, 5.0, size), rng.random(size)
        seen, kept = set(), []
        for _ in range(200):
            L, kl = NumbaAlgebra().geomean_kl(shape.copy(), scale.copy(), pltf.Gamma(np.full(size, 0.5), 10.0))
            far = NumbaAlgebra().stretch({"A": shape.copy()}, {"A": scale.copy()}, 1.3, 1e-11)["A"]
            seen.add((kl, L.tobytes(), far.tobytes()))
            kept += [np.empty(rng.integers(1, 300), np.uint8) for _ in range(10)]
            del kept[:: rng.integers(2, 4)]
        assert len(seen) == 1
