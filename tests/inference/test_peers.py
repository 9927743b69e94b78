"""EM step by step beside libraries that have it."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from sklearn.decomposition import non_negative_factorization

import pltf
from tests.extras import optional

cp_apr, ktensor, tensor = (optional(f"pyttb.{name}") for name in ("cp_apr", "ktensor", "tensor"))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("sweeps", [1, 2, 5, 20])
def test_nmf_equals_scikit_learn(sweeps: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.poisson(3.0, (12, 9)).astype(float)
    W, H = rng.random((12, 4)) + 0.1, rng.random((4, 9)) + 0.1
    fit = pltf.nmf(rank=4).fit(X, method="em", init={"W": W, "H": H}, max_iter=sweeps, tol=0, accelerate=False)
    theirs_W, theirs_H, _ = non_negative_factorization(
        X, W.copy(), H.copy(), n_components=4, init="custom", solver="mu",
        beta_loss="kullback-leibler", max_iter=sweeps, tol=0,
    )  # fmt: skip
    np.testing.assert_allclose(fit.factors["W"].mean, theirs_W, rtol=1e-9)
    np.testing.assert_allclose(fit.factors["H"].mean, theirs_H, rtol=1e-9)


@pytest.mark.parametrize("sweeps", [1, 2, 5, 20])
def test_cp_equals_pyttb(sweeps: int) -> None:
    """pyttb normalizes its columns after each factor, so the reconstructions are compared."""
    rng = np.random.default_rng(0)
    X = rng.poisson(3.0, (6, 5, 4)).astype(float)
    init = {name: rng.random((size, 3)) + 0.1 for name, size in zip("ABC", X.shape, strict=True)}
    fit = pltf.cp(rank=3).fit(X, method="em", init=init, max_iter=sweeps, tol=0, accelerate=False)
    start = ktensor.ktensor([init[name].copy() for name in "ABC"], np.ones(3))
    with contextlib.redirect_stdout(io.StringIO()):
        found, _, _ = cp_apr.cp_apr(
            tensor.tensor(X), 3, algorithm="mu", init=start, maxiters=sweeps, maxinneriters=1, stoptol=0.0,
            kappa=0.0, printitn=0, printinneritn=0,
        )  # fmt: skip
    np.testing.assert_allclose(fit.mean(), found.full().data, rtol=1e-8)
