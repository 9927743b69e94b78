"""The sampler against exact posteriors, and against itself: what must not change its distribution does not."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from experiments.calibration import CASES, p_value, ranks
from numpy.typing import NDArray
from scipy import integrate, special, stats

import pltf
from pltf.fitting import prepare
from pltf.gamma import Array
from pltf.inference.algebra import Groups
from pltf.inference.algebra.chance import TINY, gamma_draws, mean_draws, shape_draws, stream, trade_draws
from pltf.inference.gibbs import Sampler, traded
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


def test_ranks_of_true_values_are_uniform() -> None:
    """Simulation-based calibration in small; ``python -m experiments.calibration`` has the models that mix slower."""
    case = replace(CASES["CP"], burn_in=25, draws=9, thin=3)
    found = ranks(case, 25)
    assert min(p_value(one, case.draws) for one in found.values()) > 0.01


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


def test_means_have_their_conjugate_distribution() -> None:
    """1/B ~ Gamma(weight, mean 1/B_0) and z | B, drawn together: given z, 1/B has the same distribution again."""
    rng, groups, weight, shape = stream((1,)), Groups((5, MANY), (0,)), 3.0, 0.8
    inverse = rng.gamma(weight, 1 / (weight * 2.0), MANY)
    z = rng.gamma(shape, size=(5, MANY)) / (shape * inverse)
    sums = np.full((1, MANY), 5 * shape), (shape * z).sum(axis=0, keepdims=True)
    drawn = np.asarray(mean_draws(*sums, 2.0, groups, weight, (1e-30, 1e30), (7,))).reshape(-1)
    uniform(stats.gamma.cdf(1 / drawn, weight, scale=1 / (weight * 2.0)))
    assert np.corrcoef(np.log(drawn), -np.log(inverse))[0, 1] > 0.3  # it did look at z


def test_a_slice_step_leaves_the_distribution_of_shapes_as_it_is() -> None:
    """log A ~ Normal and z | A, drawn together: after steps given z, log A has the same distribution."""
    rng, groups, sd, n = stream((2,)), Groups((6, MANY), (0,)), 0.7, 6
    A = np.exp(rng.normal(np.log(0.9), sd, MANY))
    z = rng.gamma(A, size=(n, MANY)) / A * 3.0
    spread = (z / 3.0 - np.log(z / 3.0)).mean(axis=0) - 1
    stepped: Any = A.reshape(1, MANY)
    for step in range(5):
        stepped = shape_draws(stepped, spread, 0.9, groups, sd, (1e-9, 1e9), (9, step))
    moved = np.log(stepped).reshape(-1)
    uniform(stats.norm.cdf(moved, np.log(0.9), sd))
    assert np.mean(np.abs(moved - np.log(A)) > 0.05) > 0.5  # it did move


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
