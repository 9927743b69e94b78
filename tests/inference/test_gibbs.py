"""The sampler against exact posteriors, and against itself: what must not change its distribution does not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from experiments.calibration import CASES, p_value, ranks
from numpy.typing import NDArray
from scipy import integrate, special, stats

import pltf
from pltf.fitting import prepare
from pltf.gamma import Array
from pltf.inference.algebra import Groups
from pltf.inference.algebra.chance import TINY, gamma_draws, stream, trade_draws
from pltf.inference.algebra.collapsed import Marginal, prior_draws
from pltf.inference.gibbs import WEAK, Sampler, traded
from pltf.inference.state import Problem
from pltf.options import FitOptions
from pltf.planning import observations, tensors

X = np.array([[2, 0], [1, 3]])
LINKS = np.array([[1, 0], [1, 1]])
A, B = 0.7, 1.5  # prior of counts
LINK_A, LINK_B = 1.5, 0.9  # prior of links: they say little of large rates, which mix slowly


def problem_of(model: pltf.Model, data: Any, mask: Any = None, **options: Any) -> Problem:
    chosen = FitOptions(method="gibbs", threads=1, **options)
    given, masks = tensors(model, data, mask)
    ready = prepare(model, given, masks, chosen)
    return ready.problem(observations(given, masks))


def rates_of_chain(problem: Problem, sweeps: int, seed: int = 5) -> Array:
    """Rates of an NMF after each sweep, the first hundred left out."""
    sampler = Sampler(problem)
    Z = {a: np.full(shape, 1.0) for a, shape in problem.shapes.items()}
    state, kept = sampler.begin({**Z, **problem.fixed}, problem.priors, (seed, 0)), []
    for sweep in range(1, sweeps + 1):
        state = sampler.sweep(state, (seed, sweep))
        kept.append(state.E["W"] @ state.E["H"])
    return np.array(kept[100:])


# -- exact posteriors ---------------------------------------------------------------------------


def exact_moments(counts: NDArray[np.int64], rank: int) -> tuple[float, Array, Array]:
    """Evidence, mean and second moment of the rates of an NMF of a small matrix, by enumerating all allocations.

    Given the allocated counts, W[i,r] = w_r * a share and H[r,j] = h_r * a share, where shares are Dirichlet and
    independent of (w_r, h_r), whose density is w^(a-1) h^(b-1) exp(-rate*(w + h) - w*h): h can be integrated out.
    """
    rate, (rows, columns) = A / B, counts.shape

    def integral(a: float, b: float, k: int) -> float:
        def over(u: float) -> float:
            w = np.exp(u)
            return float(np.exp((a + k) * u - rate * w + special.gammaln(b + k) - (b + k) * np.log(rate + w)))

        if (a, b, k) not in known:
            known[a, b, k] = integrate.quad(over, -60, 12, limit=500)[0]
        return known[a, b, k]

    known: dict[tuple[float, float, int], float] = {}
    total, first, second = 0.0, np.zeros(counts.shape), np.zeros(counts.shape)
    ways = [[s for s in itertools.product(range(x + 1), repeat=rank) if sum(s) == x] for x in counts.ravel()]
    for chosen in itertools.product(*ways):
        S = np.array(chosen, dtype=float).reshape(rows, columns, rank)
        weight = float(np.exp(-special.gammaln(S + 1).sum()))
        one, two = np.zeros(S.shape), np.zeros(S.shape)
        for r in range(rank):
            i, j = A + S[..., r].sum(axis=1), A + S[..., r].sum(axis=0)
            a, b = i.sum(), j.sum()
            logs = special.gammaln(i).sum() - special.gammaln(a) + special.gammaln(j).sum() - special.gammaln(b)
            none, once, twice = (integral(a, b, k) for k in range(3))
            weight *= float(np.exp(logs)) * none
            one[..., r] = np.outer(i / a, j / b) * once / none
            squares = i * (i + 1) / (a * (a + 1)), j * (j + 1) / (b * (b + 1))
            two[..., r] = np.outer(*squares) * twice / none
        total += weight
        first += weight * one.sum(axis=2)
        second += weight * (two.sum(axis=2) + one.sum(axis=2) ** 2 - (one**2).sum(axis=2))
    return total, first, second


def moments_of_links(links: Array) -> tuple[Array, Array]:
    """Mean and variance of the rates of links with one component.

    Given W a column of links factorises: each 1 - exp(-w h) is multiplied out, and h is integrated term by term.
    What is left are two integrals over the logarithms of W, by the trapezoidal rule.
    """
    grid = np.linspace(-40, 6, 700)
    w = np.exp(np.stack(np.meshgrid(grid, grid, indexing="ij")))
    density = np.exp(LINK_A * np.log(w).sum(axis=0) - LINK_A / LINK_B * w.sum(axis=0))

    def column(j: int, k: int) -> Array:
        """The integral over h of its prior, the likelihood of the column, and h^k."""
        there, total = np.flatnonzero(links[:, j]), np.zeros(density.shape)
        for size in range(len(there) + 1):
            for chosen in itertools.combinations(there, size):
                rows = [*np.flatnonzero(links[:, j] == 0), *chosen]
                rate = LINK_A / LINK_B + w[rows].sum(axis=0)
                total += (-1) ** size * np.exp(special.gammaln(LINK_A + k) - (LINK_A + k) * np.log(rate))
        return total

    whole = (density * column(0, 0) * column(1, 0)).sum()
    first, second = np.zeros(links.shape), np.zeros(links.shape)
    for i, j in np.ndindex(links.shape):
        beside = density * column(1 - j, 0)
        first[i, j] = (beside * w[i] * column(j, 1)).sum() / whole
        second[i, j] = (beside * w[i] ** 2 * column(j, 2)).sum() / whole
    return first, second - first**2


def check_moments(rates: Array, mean: Array, variance: Array) -> None:
    """Within four standard errors, as the chain itself tells them (means of batches)."""
    for drawn, wanted in ((rates, mean), ((rates - mean) ** 2, variance)):
        batches = drawn[: len(drawn) // 50 * 50].reshape(50, -1, *drawn.shape[1:]).mean(axis=1)
        error = batches.std(axis=0, ddof=1) / np.sqrt(50)
        assert (np.abs(drawn.mean(axis=0) - wanted) < 4 * error).all(), (drawn.mean(axis=0), wanted, error)
        assert (error < 0.2 * wanted).all(), "a test that says nothing"


@pytest.mark.parametrize(("rank", "trade"), [(1, True), (2, True), (2, False)])
def test_rates_of_a_tiny_problem_have_their_exact_moments(rank: int, trade: bool) -> None:
    total, first, second = exact_moments(X, rank)
    problem = problem_of(pltf.nmf(rank=rank), X, prior=pltf.Gamma(A, B))
    rates = rates_of_chain(problem if trade else replace(problem, trades=None), 1600)
    check_moments(rates, first / total, second / total - (first / total) ** 2)


def test_rates_of_links_have_their_exact_moments() -> None:
    problem = problem_of(pltf.nmf(rank=1), LINKS, prior=pltf.Gamma(LINK_A, LINK_B), likelihood="bernoulli")
    mean, variance = moments_of_links(LINKS)
    check_moments(rates_of_chain(problem, 2500), mean, variance)


@pytest.mark.parametrize("learn", ["mean", "shape", "both"])
def test_learned_hyperparameters_have_their_exact_moments(learn: str) -> None:
    """With H fixed, entries of W are independent given A and B: two integrals over their logarithms."""
    counts, H, spread, weight = np.array([[4, 1], [0, 0], [1, 2], [0, 0]]), np.array([[1.0, 0.4]]), 0.8, 3.0
    prior = pltf.Gamma(A, B, learn=learn)
    problem = problem_of(pltf.nmf(rank=1), counts, prior=prior, fixed={"H": H})
    log_a, log_b = (np.linspace(np.log(one) - 7, np.log(one) + 7, 301) for one in (A, B))
    a, b = np.meshgrid(
        np.exp(log_a) if "shape" in prior.learns else [A], np.exp(log_b) if "mean" in prior.learns else [B]
    )
    logs = -0.5 * (np.log(a / A) / spread) ** 2 - weight * (np.log(b) + B / b)
    n, rate = counts.sum(axis=1), a / b + H.sum()
    for k in n:
        logs = logs + special.gammaln(a + k) - special.gammaln(a) + a * np.log(a / b) - (a + k) * np.log(rate)
    p = np.exp(logs - logs.max())
    p /= p.sum()
    mean = np.array([(p * (a + k) / rate).sum() for k in n])
    second = np.array([(p * (a + k) * (a + k + 1) / rate**2).sum() for k in n])
    sampler = Sampler(problem, hyperprior=replace(WEAK, weight=weight, spread=spread))
    state, W, hyper = sampler.begin({"W": np.ones((4, 1)), "H": H}, problem.priors, (3, 0)), [], []
    for sweep in range(1, 1001):
        state = sampler.sweep(state, (3, sweep))
        W.append(state.E["W"][:, 0])
        hyper.append([np.log(value) for value in (state.priors["W"].shape, state.priors["W"].mean)])
    check_moments(np.array(W), mean, second - mean**2)
    for drawn, exact in zip(np.array(hyper).T, (np.log(a), np.log(b)), strict=True):
        if np.ptp(exact) > 0:
            middle = (p * exact).sum()
            check_moments(10 + drawn - middle, np.array(10.0), (p * (exact - middle) ** 2).sum())


SHORT = {
    "CP": replace(CASES["CP"], burn_in=25, thin=3),
    "NMF, learned mean and shape": replace(CASES["NMF, learned mean and shape"], burn_in=20, thin=3),
    "NMF of links, learned mean and shape": replace(CASES["NMF of links, learned mean and shape"], burn_in=20, thin=3),
}


@pytest.mark.parametrize("name", SHORT)
def test_ranks_of_true_values_are_uniform(name: str) -> None:
    """Simulation-based calibration in small; ``python -m experiments.calibration`` has the models that mix slower."""
    found = ranks(SHORT[name], 25)
    assert min(p_value(one, SHORT[name].draws) for one in found.values()) > 0.01


# -- single draws -------------------------------------------------------------------------------

MANY = 4000


def uniform(p: Array) -> None:
    """Probabilities that should be uniform are, at 1 %."""
    assert stats.kstest(p, "uniform").pvalue > 0.01


@pytest.mark.parametrize("shape", [0.02, 0.5, 1.0, 30.0])
def test_gamma_draws_have_their_distribution_and_are_never_zero(shape: float) -> None:
    z = gamma_draws(np.full(MANY, shape), np.full(MANY, 2.0), (3, 1))
    assert (z > 0).all()
    uniform(stats.gamma.cdf(z, shape, scale=2.0))
    assert gamma_draws(np.full(10, 1e-5), np.ones(10), (0,)).min() == TINY


@pytest.mark.parametrize("threads", [2, 5])
def test_gamma_draws_do_not_depend_on_threads(threads: int) -> None:
    C, D = stream((0,)).gamma(1.0, size=100_000), np.ones(100_000)
    np.testing.assert_array_equal(gamma_draws(C, D, (1, 2)), gamma_draws(C, D, (1, 2), threads))
    assert not np.array_equal(gamma_draws(C, D, (1, 2)), gamma_draws(C, D, (1, 3)))


@pytest.mark.parametrize("shared", [(0, 1), (0,), (1,), ()])
def test_counts_have_their_density_with_the_factor_integrated_out(shared: tuple[int, ...]) -> None:
    rng, groups = stream((1,)), Groups((3, 2), shared)
    n, exposure = rng.poisson(1.0, groups.shape).astype(float), rng.gamma(2.0, size=groups.shape)
    A, B = rng.gamma(2.0, size=groups.shape), rng.gamma(2.0, size=groups.value_shape)

    def log_integral(n: float, delta: float, shape: float, mean: float) -> float:
        def over(z: float) -> float:
            return float(z**n * np.exp(-delta * z) * stats.gamma.pdf(z, shape, scale=mean / shape))

        return float(np.log(sum(integrate.quad(over, *ends)[0] for ends in ((0, 1e-3), (1e-3, 1), (1, np.inf)))))

    marginal = Marginal(n, exposure, groups)

    def differences(of: Callable[[Array, Array], Array]) -> Array:
        """Constants do not matter."""
        return of(A, B) - of(2 * A, B / 3)

    found = differences(lambda A, B: marginal.log_density(marginal.rows(A), marginal.rows(B)))
    wanted = differences(lambda A, B: np.vectorize(log_integral)(n, exposure, A, B).sum(axis=shared).reshape(-1))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("size", "exposure"),
    [*itertools.product([1.0, 2_500.0, 9_999.0, 1e10, 1e15], [1e-3, 1e9]), (1.0, 0.0), (1.0, 1e-320)],
)
def test_the_density_keeps_its_digits_however_large_counts_are(size: float, exposure: float) -> None:
    """Against the same formula in 60 digits."""
    n = np.array([1.0, 2.0, 3.0, 4.0]) * size

    def exact(A: float, B: float) -> Any:
        rate = mpmath.mpf(A) / mpmath.mpf(B)
        each = (mpmath.loggamma(A + mpmath.mpf(k)) - k * mpmath.log(rate + exposure) for k in n)
        return sum(each) + n.size * (A * mpmath.log(rate / (rate + exposure)) - mpmath.loggamma(A))

    def found(A: float, B: float) -> float:
        return float(marginal.log_density(np.array([[A]]), np.array([[B]]))[0])

    marginal = Marginal(n, np.full(n.size, exposure), Groups((n.size,), (0,)))
    A, B = 0.5, size / exposure if exposure > 1e-300 else 1.0
    for near in ((A * 1.01, B), (A, B * 1.01), (300 * A, B / 3)):
        with mpmath.workdps(60):
            wanted = float(exact(*near) - exact(A, B))
        assert found(*near) - found(A, B) == pytest.approx(wanted, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("learn", ["mean", "shape", "both"])
def test_steps_leave_the_distribution_of_hyperparameters_as_it_is(learn: str) -> None:
    """A and B of their hyperpriors, z given them and counts given z: after steps given the counts, the same again."""
    rng, groups, hyperprior = stream((2,)), Groups((6, MANY), (0,)), replace(WEAK, weight=3.0, spread=0.7)
    given = pltf.Gamma(0.9, 2.0, learn=learn, tie="component")
    A, B = np.full((1, MANY), 0.9), np.full((1, MANY), 2.0)
    if "shape" in given.learns:
        A = A * np.exp(rng.normal(0, 0.7, A.shape))
    if "mean" in given.learns:
        B = B / rng.gamma(3.0, 1 / 3.0, B.shape)
    exposure = rng.gamma(2.0, size=groups.shape)
    n = rng.poisson(rng.gamma(A, B / A, groups.shape) * exposure).astype(float)
    drawn = given.with_values(A, B)
    for step in range(4):
        drawn = prior_draws(drawn, given, n, exposure, groups, hyperprior, (9, step))
    after_A, after_B = (np.asarray(one) for one in (drawn.shape, drawn.mean))
    for before, after, p in (
        (A, after_A, stats.norm.cdf(np.log(after_A / 0.9) / 0.7)),
        (B, after_B, stats.gamma.cdf(2.0 / after_B, 3.0, scale=1 / 3.0)),
    ):
        if np.ptp(before) > 0:
            uniform(p.reshape(-1))
            assert np.mean(np.abs(np.log(after / before)) > 0.05) > 0.5  # it did move
            assert np.corrcoef(np.log(after), np.log(before))[0, 1] > 0.1  # and did look at the counts
        else:
            np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize(
    ("alpha", "beta"), [((3.0, 5.0), (1.0, 2.0)), ((40.0, 40.0), (3.0, 900.0)), ((0.4, 2), (5, 1))]
)
def test_scales_of_two_factors_are_generalized_inverse_gaussian(
    alpha: tuple[float, float], beta: tuple[float, float]
) -> None:
    """s^(alpha_1 - alpha_2 - 1) exp(-beta_1 s - beta_2/s) ds, from wherever the trade begins."""
    basis = np.array([[1.0], [-1.0]]) / np.sqrt(2)
    s = np.exp(stream((4,)).normal(size=MANY))
    for step in range(20):  # it begins far away
        at = [np.full(MANY, one) for one in alpha], [beta[0] * s, beta[1] / s]
        s = s * trade_draws(*at, basis, (11, step))[0]
    p, b = alpha[0] - alpha[1], 2 * np.sqrt(beta[0] * beta[1])
    uniform(stats.geninvgauss.cdf(s, p, b, scale=np.sqrt(beta[1] / beta[0])))


def test_a_trade_leaves_the_prior_of_three_factors_as_it_is() -> None:
    """Draws of the prior, traded: still draws of the prior, with the rates as they were."""
    model, prior = pltf.cp(rank=500), pltf.Gamma(0.6, 2.0)
    problem = problem_of(model, np.ones((3, 2, 1), dtype=int), prior=prior)
    (trade,) = problem.trades or ()
    rng = stream((6,))
    Z = {a: prior.sample(shape, rng) for a, shape in problem.shapes.items()}
    new: Any = dict(Z)
    for step in range(4):
        new |= traded(problem, trade, new, problem.priors, (8, step))
    before, after = (np.einsum("ir,jr,kr->ijkr", *(one[a] for a in "ABC")) for one in (Z, new))
    np.testing.assert_allclose(after, before, rtol=1e-12)
    for a in "ABC":
        uniform(stats.gamma.cdf(new[a].reshape(-1), 0.6, scale=2.0 / 0.6))
        assert np.mean(np.abs(np.log(new[a] / Z[a])) > 0.1) > 0.5


def test_a_trade_of_nothing_does_nothing() -> None:
    basis = np.array([[1.0], [-1.0]])
    scales = trade_draws([np.ones(2), np.ones(2)], [np.array([0.0, 1.0]), np.ones(2)], basis, (1,))
    assert (scales[:, 0] == 1).all()
    assert (scales[:, 1] != 1).all()
