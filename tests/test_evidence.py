"""The evidence, against sums and integrals that are exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import gammaln

import pltf
from pltf.evidence import Evidence, evidence
from tests.reference import Array

SHAPE, MEAN = 0.8, 3.0
PRIOR = pltf.Gamma(SHAPE, MEAN)


def poisson_gamma(x: Array, scale: float, shape: float, mean: float) -> Array:
    """log p(x) of x ~ Poisson(a * scale) with a ~ Gamma(shape, mean): negative binomial."""
    rate = shape / mean
    return np.asarray(
        gammaln(x + shape)
        - gammaln(shape)
        - gammaln(x + 1)
        + shape * np.log(rate / (rate + scale))
        + x * np.log(scale / (rate + scale))
    )


def exact_scaled(x: Array) -> float:
    """log p(x) of X[i] = A[i] * B: the integral over B of a product of negative binomials."""
    shape, mean = SHAPE, MEAN

    def at(log_b: float) -> float:
        b = math.exp(log_b)
        return math.exp(poisson_gamma(x, b, shape, mean).sum() + stats.gamma.logpdf(b, shape, scale=mean / shape)) * b

    return math.log(integrate.quad(at, -30, 10, limit=500, epsabs=0)[0])


def assert_near(found: Evidence, exact: float) -> None:
    assert found.error < 0.3
    assert abs(found.log - exact) < 4 * found.error + 0.02


QUICK: Any = {"prior": PRIOR, "stages": 8, "particles": 30, "sweeps": 1, "runs": 4}


def test_one_component_equals_quadrature_and_missing_cells_are_not_there() -> None:
    x = np.array([3.0, np.nan, 7.0, np.nan, 1.0])
    found = evidence(pltf.Model("X[i] = A[i] * B[]"), x, seed=2, **QUICK)
    assert_near(found, exact_scaled(x[np.isfinite(x)]))


def test_two_components_equal_the_sum_over_all_allocations() -> None:
    """One cell, x = s_1 + s_2 with s_r ~ Poisson(A[r] * B[r]), independent of each other."""
    x = 9
    each = np.array([exact_scaled(np.array([float(s)])) for s in range(x + 1)])
    exact = math.log(np.exp(each + each[::-1]).sum())
    model = pltf.Model("X[i] = A[i,r] * B[r]", r=2)
    found = evidence(model, np.array([float(x)]), seed=3, **QUICK)
    assert_near(found, exact)


def test_a_list_of_cells_has_the_evidence_of_the_array() -> None:
    x = np.array([3.0, 0.0, 7.0, 0.0, 1.0])
    listed = pltf.observe((np.array([[0], [2], [4]]), np.array([3.0, 7.0, 1.0])), shape=(5,), missing=[(1,)])
    found = evidence(pltf.Model("X[i] = A[i] * B[]"), listed, seed=4, **QUICK)
    assert_near(found, exact_scaled(x[[0, 2, 3, 4]]))


def test_the_same_seed_gives_the_same_estimate() -> None:
    x = np.array([[3, 1], [0, 2]])
    first, again = (
        evidence(pltf.nmf(rank=2), x, prior=PRIOR, seed=6, stages=3, particles=5, threads=n) for n in (1, 2)
    )
    assert first == again


def test_what_cannot_be_done_is_refused() -> None:
    x = np.array([[1, 0], [0, 1]])
    with pytest.raises(pltf.PltfError, match="must not be learned"):
        evidence(pltf.nmf(rank=2), x, prior=pltf.Gamma(0.5, 1.0, learn="mean"))
    with pytest.raises(pltf.PltfError, match="counts only"):
        evidence(pltf.nmf(rank=2), x, prior=PRIOR, likelihood="bernoulli")
    with pytest.raises(pltf.PltfError, match="particles"):
        evidence(pltf.nmf(rank=2), x, particles=0)
