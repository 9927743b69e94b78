"""Links (Bernoulli-Poisson): the bound against the evidence, EM and MAP against scipy, storages against each other."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, optimize, stats
from scipy.special import digamma, gammaln

import pltf
import pltf.datasets

Array = NDArray[np.float64]
LINKS = "bernoulli"


def drawn_links(model: pltf.Model, shape: tuple[int, ...], seed: int = 0) -> Array:
    drawn = pltf.datasets.draw(model, shape, prior=pltf.Gamma(0.7, 0.9), seed=seed)
    return (drawn.counts["X"] > 0) * 1.0


# -- the bound ----------------------------------------------------------------------------------


def test_exact_where_nothing_is_linked() -> None:
    """Of zeros the posterior is a Gamma: bound and log evidence are equal, and those of counts."""
    options: dict[str, Any] = {"prior": pltf.Gamma(0.7, 4.0), "max_iter": 3, "tol": 0}
    model = pltf.Model("X[i] = A[i]")
    links, counts = (model.fit(np.zeros(4), likelihood=kind, **options) for kind in (LINKS, "poisson"))
    assert links.bound == pytest.approx(4 * 0.7 * math.log((0.7 / 4) / (0.7 / 4 + 1)), rel=1e-12)
    assert links.bound == pytest.approx(counts.bound, rel=1e-12)


def test_the_bound_is_its_definition() -> None:
    """E_q[ log p(X, N, A) - log q(N, A) ] of one link, summed over the hidden count N from 1 on."""
    shape, mean = 0.8, 2.0
    fit = pltf.Model("X[i] = A[i]").fit(np.ones(1), prior=pltf.Gamma(shape, mean), likelihood=LINKS, max_iter=7, tol=0)
    C, D = fit.factors["A"].shape[0], fit.factors["A"].scale[0]
    N = np.arange(1, 60)
    q = stats.poisson.pmf(N, math.exp(digamma(C)) * D)
    q /= q.sum()
    log_p = N * (digamma(C) + math.log(D)) - C * D - gammaln(N + 1)
    rate = shape / mean
    kl = (C - shape) * digamma(C) - gammaln(C) + gammaln(shape) - shape * math.log(D * rate) + C * (D * rate - 1)
    assert fit.bound == pytest.approx(float((q * (log_p - np.log(q))).sum()) - kl, rel=1e-10)


def log_evidence_of_row(x: tuple[int, ...], rank: int, shape: float, mean: float) -> float:
    """X[0,j] = sum_r a_r*b_rj: no link among some cells has a closed form given a; the rest by inclusion, exclusion."""
    rate = shape / mean

    def none_among(cells: int) -> float:
        """P(no link in so many cells) of one component: each b is integrated in closed form, a by quadrature."""

        def integrand(a: float) -> float:
            return (rate / (rate + a)) ** (shape * cells) * float(stats.gamma.pdf(a, shape, scale=1 / rate))

        return sum(integrate.quad(integrand, *ends, limit=200)[0] for ends in ((0, 1e-3), (1e-3, 1), (1, np.inf)))

    links, empty = sum(x), len(x) - sum(x)
    signs = [(-1) ** n * math.comb(links, n) * none_among(empty + n) ** rank for n in range(links + 1)]
    return math.log(math.fsum(signs))


@pytest.mark.parametrize("shape", [0.5, 2.0])
@pytest.mark.parametrize("x", [(0,), (1,), (1, 0), (1, 1), (0, 1, 1)])
@pytest.mark.parametrize("rank", [1, 2])
def test_bound_is_below_the_evidence(x: tuple[int, ...], shape: float, rank: int) -> None:
    prior, data = pltf.Gamma(shape, 3.0), np.array([x])
    evidence = log_evidence_of_row(x, rank, shape, 3.0)
    fit = pltf.nmf(rank=rank).fit(data, prior=prior, likelihood=LINKS, restarts=3, max_iter=500, tol=1e-10)
    assert fit.bound <= evidence + 1e-9
    assert fit.bound > evidence - 6.0  # and not uselessly far below: the hidden count takes its share of the gap


def test_the_evidence_is_normalized() -> None:
    """The yardstick itself: probabilities of all tables add up to one."""
    total = sum(math.exp(log_evidence_of_row(x, 2, 0.5, 3.0)) for x in itertools.product((0, 1), repeat=3))
    assert total == pytest.approx(1.0, abs=1e-6)


def test_bound_is_below_the_evidence_with_a_fixed_factor_and_a_hole() -> None:
    """A[i] with known exposures: the evidence is a sum of Laplace transforms of the prior."""
    x, known, shape, mean = np.array([1.0, 0.0, 1.0, np.nan]), np.array([0.5, 1.5, 2.0, 9.0]), 2.0, 3.0
    model = pltf.Model("X[i,j] = A[i] * B[j]")
    options: dict[str, Any] = {"prior": pltf.Gamma(shape, mean), "likelihood": LINKS, "tol": 1e-12}
    fit = model.fit(x[None], fixed={"B": known}, **options)
    laplace = [(shape / mean / (shape / mean + t)) ** shape for t in (1.5, 2.0, 3.5, 4.0)]
    evidence = math.log(laplace[0] - laplace[1] - laplace[2] + laplace[3])
    assert evidence - 0.5 < fit.bound <= evidence


@pytest.mark.parametrize("method", ["vb", "em", "map"])
@pytest.mark.parametrize("accelerate", [True, False])
@pytest.mark.parametrize("text", ["ir,jr,kr->ijk", "ip,jq,kr,pqr->ijk", "ia,ajb,bk->ijk"])
def test_the_objective_never_falls(text: str, method: str, accelerate: bool) -> None:
    model = pltf.Model(text, **{index: 2 for index in "rpqab" if index in text})
    X = drawn_links(pltf.cp(rank=2), (8, 7, 6))
    mask = pltf.holdout(X, 0.2, seed=0)
    options: dict[str, Any] = {"method": method, "accelerate": accelerate, "max_iter": 60, "tol": 0}
    options |= {"prior": pltf.Gamma(1.5, 1.0)} if method == "map" else {}
    fit = model.fit(X, mask=mask, likelihood=LINKS, progress=False, **options)
    assert (np.diff(fit.trace) >= 0).all()
    assert "more than rounding" not in fit.stopped
    assert fit.n_iter > 20


# -- EM and MAP against scipy -------------------------------------------------------------------

TABLE = np.array([[1, 0, 1, 0, 1], [0, 1, 1, 0, np.nan], [1, 1, 0, 1, 0], [0, 0, 1, 1, 0]])


def log_likelihood(X: Array, rate: Array) -> float:
    """Of a table of links with holes, written plainly."""
    p = 1 - np.exp(-rate)
    return float(np.log(p[X == 1]).sum() + np.log(1 - p[X == 0]).sum())


def best_by_scipy(extra: Any = lambda W, H: 0.0) -> float:
    """The largest log-likelihood of rank 1, and of what is added to it, from several starts."""

    def loss(logs: Array) -> float:
        W, H = np.exp(logs[:4]), np.exp(logs[4:])
        return -log_likelihood(TABLE, np.outer(W, H)) - float(extra(W, H))

    rng = np.random.default_rng(0)
    return max(-float(optimize.minimize(loss, rng.normal(0, 0.5, 9), tol=1e-12).fun) for _ in range(4))


@pytest.mark.parametrize("accelerate", [True, False])
def test_em_finds_the_largest_likelihood(accelerate: bool) -> None:
    options: dict[str, Any] = {"method": "em", "likelihood": LINKS, "accelerate": accelerate, "tol": 1e-12}
    fit = pltf.nmf(rank=1).fit(TABLE, init="random", max_iter=5000, **options)
    assert fit.bound == pytest.approx(log_likelihood(TABLE, fit.mean()), rel=1e-12)
    assert fit.bound == pytest.approx(best_by_scipy(), rel=1e-7)


def test_map_finds_the_largest_posterior() -> None:
    prior = pltf.Gamma(2.0, 1.5)
    fit = pltf.nmf(rank=1).fit(TABLE, method="map", prior=prior, likelihood=LINKS, tol=1e-12)

    def log_prior(W: Array, H: Array) -> float:
        return float(stats.gamma.logpdf(np.concatenate([W, H]), 2.0, scale=1.5 / 2.0).sum())

    assert fit.bound == pytest.approx(best_by_scipy(log_prior), rel=1e-7)


def test_ones_alone_have_no_largest_likelihood() -> None:
    """Rates grow without limit, and the log-likelihood to zero: no sweep may break on the way."""
    fit = pltf.nmf(rank=2).fit(np.ones((5, 4)), method="em", likelihood=LINKS, max_iter=300, tol=0)
    assert -0.1 < fit.bound <= 0
    assert (np.diff(fit.trace) >= 0).all()
    assert fit.prob().min() > 0.99


# -- storages, dtypes, threads ------------------------------------------------------------------


@pytest.mark.parametrize("method", ["vb", "em"])
@pytest.mark.parametrize("model", [pltf.cp(rank=3), pltf.tucker(ranks=(2, 2, 2))])
def test_storages_engines_and_dtypes_agree(model: pltf.Model, method: str) -> None:
    X = drawn_links(pltf.cp(rank=2), (9, 8, 7))
    mask = pltf.holdout(X, 0.3, seed=0)
    listed = mask & (X > 0)
    data = [
        pltf.observe(X, mask),
        pltf.observe((np.argwhere(listed), X[listed]), shape=X.shape, missing=np.argwhere(~mask)),
        pltf.observe((np.argwhere(mask), X[mask]), shape=X.shape, unlisted="missing"),
        pltf.observe(X.astype(bool), mask),
    ]
    options: dict[str, Any] = {"method": method, "likelihood": LINKS, "max_iter": 20, "tol": 0, "progress": False}
    first = model.fit(data[0], **options)
    for seen in data:
        for engine in ("auto", "dense", "sparse"):
            fit = model.fit(seen, engine=engine, **options)
            np.testing.assert_allclose(fit.trace[:8], first.trace[:8], rtol=1e-9)
    single = model.fit(data[1], dtype="float32", **options)
    np.testing.assert_allclose(single.trace[:8], first.trace[:8], rtol=1e-5)


def test_threads_do_not_change_a_bit() -> None:
    rng = np.random.default_rng(0)
    X = (rng.random((90, 80, 40)) < 0.02) * 1.0
    for engine in ("dense", "sparse"):
        options: dict[str, Any] = {"likelihood": LINKS, "engine": engine, "max_iter": 5, "tol": 0}
        one, two = (pltf.cp(rank=3).fit(X, threads=threads, **options) for threads in (1, 2))
        np.testing.assert_array_equal(one.trace, two.trace)
        for name, factor in one.factors.items():
            np.testing.assert_array_equal(factor.mean, two.factors[name].mean)


# -- coupled tensors, learned priors ------------------------------------------------------------


def test_each_tensor_has_its_own_likelihood() -> None:
    """A tensor of links beside one of counts: both parts of the bound, and where one is missing, the other alone."""
    rng = np.random.default_rng(0)
    X, Y = (rng.random((6, 5)) < 0.4) * 1.0, rng.poisson(3.0, (5, 4)) * 1.0
    both = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,k] = B[j,r] * C[k,r]", r=2)
    prior = pltf.Gamma(0.8, 1.2)
    init = {name: rng.gamma(1.0, 1.0, (size, 2)) for name, size in zip("ABC", (6, 5, 4), strict=True)}
    options: dict[str, Any] = {"prior": prior, "max_iter": 10, "tol": 0, "accelerate": False}
    hidden = {"Y": np.zeros(Y.shape, dtype=bool)}
    coupled = both.fit({"X": X, "Y": Y}, mask=hidden, likelihood={"X": LINKS}, init=init, **options)
    start = {name: init[name] for name in "AB"}
    alone = pltf.Model("X[i,j] = A[i,r] * B[j,r]", r=2).fit(X, likelihood=LINKS, init=start, **options)
    assert coupled.likelihoods == {"X": LINKS, "Y": "poisson"}
    np.testing.assert_allclose(coupled.trace, alone.trace, rtol=1e-9)
    swapped = both.fit({"X": X, "Y": Y}, likelihood={"X": LINKS}, **options)
    plain = both.fit({"X": X, "Y": Y}, **options)
    assert swapped.bound != pytest.approx(plain.bound, rel=1e-3)
    assert (np.diff(swapped.trace) >= 0).all()


def test_learned_priors_raise_the_bound() -> None:
    X = drawn_links(pltf.cp(rank=2), (12, 10, 8))
    options: dict[str, Any] = {"likelihood": LINKS, "tol": 1e-6, "progress": False}
    given = pltf.cp(rank=2).fit(X, prior=pltf.Gamma(0.5, 10.0), **options)
    learned = pltf.cp(rank=2).fit(X, prior=pltf.Gamma(0.5, 10.0, learn="both"), **options)
    assert learned.bound > given.bound
    assert (np.diff(learned.trace) >= 0).all()


def test_small_rates_are_counts() -> None:
    """Where links are rare, a link and a count of one are the same thing."""
    rng = np.random.default_rng(0)
    X = (rng.random((200, 100)) < 0.002) * 1.0
    links, counts = (pltf.nmf(rank=1).fit(X, likelihood=kind, tol=1e-9) for kind in (LINKS, "poisson"))
    assert links.bound == pytest.approx(counts.bound, rel=5e-3)
    np.testing.assert_allclose(links.mean().sum(), counts.mean().sum(), rtol=5e-3)
