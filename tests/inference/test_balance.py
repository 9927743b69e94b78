"""Balance: never a prediction changed, always a higher bound, nothing left to do when repeated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

import pltf
import pltf.datasets
from pltf.inference.algebra.compiled import NumbaAlgebra
from pltf.inference.algebra.host import log_scales
from pltf.inference.balance import balanced, trades
from tests.strategies import Case, cases

ALGEBRA = NumbaAlgebra()


def kl(case: Case, means: dict[str, np.ndarray], free: list[str]) -> float:
    """KL terms of posteriors with these means and shape 1.7."""
    return sum(ALGEBRA.geomean_kl(np.full(means[a].shape, 1.7), means[a] / 1.7, case.priors[a])[1] for a in free)


@given(case=cases(), data=st.data())
def test_balance(case: Case, data: st.DataObject) -> None:
    held = set(data.draw(st.lists(st.sampled_from(sorted(case.init)), unique=True, max_size=1)))
    fixed = {name: case.init[name] for name in held}
    free = [name for name in case.init if name not in held]
    found = trades(case.model, fixed)
    D = {name: case.init[name] / 1.7 for name in free}
    E, scales = balanced(ALGEBRA, found, case.priors, case.init, D)
    for equation in case.model.equations:
        before, after = (case.reference().xhat(equation, means) for means in (case.init, E))
        np.testing.assert_allclose(after, before, rtol=1e-9)
    for name in held:
        assert E[name] is case.init[name]
    for name in free:
        np.testing.assert_allclose(scales[name] * 1.7, E[name], rtol=1e-12)
    first, after_kl = kl(case, dict(case.init), free), kl(case, E, free)
    assert after_kl <= first + 1e-9 * abs(first)
    for _ in range(2000):  # indices are done one after the other, so several of them take several rounds
        E, scales = balanced(ALGEBRA, found, case.priors, E, scales)
        previous, after_kl = after_kl, kl(case, E, free)
        if abs(previous - after_kl) <= 1e-13 * abs(after_kl):
            break
    E_again, _ = balanced(ALGEBRA, found, case.priors, E, scales)
    for name in free:
        np.testing.assert_allclose(E_again[name], E[name], rtol=2e-4)


def test_one_shared_index_settles_at_once() -> None:
    model = pltf.cp(rank=3)
    rng = np.random.default_rng(0)
    E = {name: rng.gamma(0.5, 10.0, (size, 3)) for name, size in zip("ABC", (9, 5, 7), strict=True)}
    priors = {"A": pltf.Gamma(0.5, 10.0), "B": pltf.Gamma(2.0, 0.1), "C": pltf.Gamma(rng.uniform(0.1, 2, (7, 3)), 3.0)}
    once, D = balanced(ALGEBRA, trades(model, {}), priors, E, E)
    twice, _ = balanced(ALGEBRA, trades(model, {}), priors, once, D)
    for name in E:
        np.testing.assert_allclose(twice[name], once[name], rtol=1e-6)


def test_scales_are_the_optimum_that_scipy_finds() -> None:
    rng = np.random.default_rng(1)
    directions = np.linalg.svd(np.array([[1.0, 1, 1, 0], [0, 0, 1, 1]]))[2][
        2:
    ].T  # two equations share the third factor
    for _ in range(20):
        alpha, beta = 10 ** rng.uniform(-2, 2, (4, 1)), 10 ** rng.uniform(-3, 3, (4, 1))

        def loss(t: np.ndarray, alpha: np.ndarray = alpha, beta: np.ndarray = beta) -> float:
            log_s = directions @ t
            return float(-(alpha[:, 0] * log_s - beta[:, 0] * np.exp(log_s)).sum())

        best = optimize.minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-10})
        log_s = log_scales(alpha, beta, directions)
        reached = -float((alpha * log_s - beta * np.exp(log_s)).sum())
        assert reached <= best.fun + 1e-8 * abs(best.fun)
        np.testing.assert_allclose(log_s[:3].sum(), 0, atol=1e-9)
        np.testing.assert_allclose(log_s[2:].sum(), 0, atol=1e-9)


def test_extreme_scales_are_brought_together() -> None:
    directions = np.linalg.svd(np.ones((1, 2)))[2][1:].T
    log_s = log_scales(np.array([[0.01], [50.0]]), np.array([[1e12], [1e-12]]), directions)
    assert np.isfinite(log_s).all()
    alpha_s = np.array([[0.01], [50.0]]) - np.array([[1e12], [1e-12]]) * np.exp(log_s)
    np.testing.assert_allclose(alpha_s[0], alpha_s[1], rtol=1e-5)  # both are mu, the multiplier of the constraint


def test_a_fit_is_balanced_at_its_end() -> None:
    X = np.random.default_rng(0).poisson(3.0, (8, 7, 6))
    fit = pltf.cp(rank=2).fit(X, prior=pltf.Gamma())
    prior = dict.fromkeys(fit.model.factors, pltf.Gamma())
    means = {name: factor.mean for name, factor in fit.factors.items()}
    E, _ = balanced(ALGEBRA, trades(fit.model, {}), prior, means, fit.D)
    for name in E:
        np.testing.assert_allclose(E[name], means[name], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["vb", "em"])
def test_acceleration_needs_fewer_sweeps(method: str) -> None:
    """Sweeps, not seconds: to come within 1e-6 of the best bound."""
    drawn = pltf.datasets.draw(pltf.nmf(rank=4), (40, 30), seed=3)
    fits = {
        accelerate: pltf.nmf(rank=4).fit(drawn.counts["X"], method=method, accelerate=accelerate, tol=0, max_iter=1500)
        for accelerate in (True, False)
    }
    best = max(fit.bound for fit in fits.values())
    sweeps = {key: int(np.argmax(fit.trace >= best - 1e-6 * abs(best))) for key, fit in fits.items()}
    assert fits[True].bound >= best - 1e-6 * abs(best)
    assert sweeps[False] == 0 or sweeps[True] * 2 < sweeps[False]
