"""Synthetic draws."""

from __future__ import annotations

import numpy as np
import pytest

import pltf
import pltf.datasets


def test_counts_follow_their_rates() -> None:
    drawn = pltf.datasets.draw(pltf.cp(rank=3), (30, 20, 10), seed=2)
    A, B, C = (drawn.factors[name] for name in "ABC")
    np.testing.assert_allclose(drawn.rates["X"], np.einsum("ir,jr,kr->ijk", A, B, C))
    residual = (drawn.counts["X"] - drawn.rates["X"]).sum() / np.sqrt(drawn.rates["X"].sum())
    assert abs(residual) < 4


def test_one_seed_one_draw() -> None:
    first, again, other = (pltf.datasets.draw(pltf.nmf(rank=2), (5, 6), seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.counts["X"], again.counts["X"])
    assert (first.rates["X"] != other.rates["X"]).any()


def test_coupled_draws_share_factors() -> None:
    model = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)
    drawn = pltf.datasets.draw(model, {"X": (4, 5), "Y": (5, 6)})
    np.testing.assert_allclose(drawn.rates["Y"], drawn.factors["B"] @ drawn.factors["D"].T)
    with pytest.raises(pltf.PltfError, match="shape must give a shape for each of X, Y, got X"):
        pltf.datasets.draw(model, (4, 5))


def test_the_prior_is_used() -> None:
    drawn = pltf.datasets.draw(pltf.nmf(rank=3), (300, 200), prior=pltf.Gamma(50.0, 4.0))
    assert drawn.factors["W"].mean() == pytest.approx(4.0, rel=0.05)
    assert drawn.factors["W"].var() == pytest.approx(16 / 50, rel=0.2)


def test_refusals() -> None:
    model = pltf.nmf(rank=2)
    with pytest.raises(pltf.PltfError, match=r"shape must be sizes such as \(50, 50, 50\), got 5"):
        pltf.datasets.draw(model, 5)
    with pytest.raises(pltf.PltfError, match="every size of shape must be a whole number of at least 1, got -5"):
        pltf.datasets.draw(model, (5, -5))
    with pytest.raises(pltf.PltfError, match="prior must be a Gamma, got dict"):
        pltf.datasets.draw(model, (5, 5), prior={})  # type: ignore[arg-type]
    with pytest.raises(pltf.PltfError, match="prior makes rates of"):
        pltf.datasets.draw(model, (5, 5), prior=pltf.Gamma(1.0, 1e20))
    with pytest.raises(pltf.PltfError, match="seed must be a whole number of at least 0, got -1"):
        pltf.datasets.draw(model, (5, 5), seed=-1)
