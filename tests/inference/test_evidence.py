"""The bound against the evidence itself: closed forms, quadrature, enumeration, Monte Carlo."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats
from scipy.special import gammaln

import pltf

Array = NDArray[np.float64]


def log_gamma_poisson(x: Array, exposure: Array, shape: float, mean: float) -> float:
    """log of the integral of prod_n Poisson(x_n; t_n*z) over z ~ Gamma(shape, mean)."""
    rate = shape / mean
    return float(
        (x * np.log(np.where(x > 0, exposure, 1)) - gammaln(x + 1)).sum()
        + shape * math.log(rate)
        - gammaln(shape)
        + gammaln(shape + x.sum())
        - (shape + x.sum()) * math.log(rate + exposure.sum())
    )


def test_exact_where_the_posterior_is_a_gamma() -> None:
    """One factor, one entry a cell: q is the posterior, so bound and log evidence are equal."""
    x = np.array([0.0, 3.0, 11.0, 2.5])
    fit = pltf.Model("X[i] = A[i]").fit(x, prior=pltf.Gamma(0.7, 4.0), max_iter=3, tol=0)
    expected = sum(log_gamma_poisson(np.array([one]), np.ones(1), 0.7, 4.0) for one in x)
    assert fit.bound == pytest.approx(expected, rel=1e-12)


def test_exact_with_a_fixed_factor_and_a_hole() -> None:
    """A[i] with known exposures B[j]: conjugate, and the missing cell drops out altogether."""
    x = np.array([[2.0, 0.0, 5.0], [1.0, np.nan, 1.0]])
    known = np.array([0.5, 1.5, 2.0])
    model = pltf.Model("X[i,j] = A[i] * B[j]")
    fit = model.fit(x, prior=pltf.Gamma(2.0, 3.0), fixed={"B": known}, max_iter=3, tol=0)
    expected = log_gamma_poisson(x[0], known, 2.0, 3.0) + log_gamma_poisson(x[1, [0, 2]], known[[0, 2]], 2.0, 3.0)
    assert fit.bound == pytest.approx(expected, rel=1e-12)


def test_exact_when_everything_is_shared_by_two_tensors() -> None:
    """Two tensors that see the same factor: the evidence of both together."""
    model = pltf.Model("X[i] = A[i]\nY[i] = A[i]")
    x, y = np.array([3.0, 0.0]), np.array([1.0, 4.0])
    fit = model.fit({"X": x, "Y": y}, prior=pltf.Gamma(0.5, 10.0), max_iter=3, tol=0)
    expected = sum(log_gamma_poisson(np.array(pair), np.ones(2), 0.5, 10.0) for pair in zip(x, y, strict=True))
    assert fit.bound == pytest.approx(expected, rel=1e-12)


def log_evidence_of_row(x: tuple[int, ...], shape: float, mean: float) -> float:
    """X[0,j] = a*b_j: each b_j is integrated in closed form, a by quadrature."""
    rate = shape / mean

    def integrand(a: float) -> float:
        logs = [
            gammaln(n + shape) - gammaln(shape) - gammaln(n + 1)
            + n * math.log(a / (a + rate)) + shape * math.log(rate / (a + rate))
            for n in x
        ]  # fmt: skip
        return math.exp(sum(logs) + stats.gamma.logpdf(a, shape, scale=1 / rate))

    pieces = [integrate.quad(integrand, low, high, limit=200)[0] for low, high in ((0, 1e-3), (1e-3, 1), (1, np.inf))]
    return math.log(sum(pieces))


def log_evidence_of_mixture(x: tuple[int, ...], shape: float, mean: float) -> float:
    """R = 2: the counts of the two components are independent, so enumerate how each count splits."""
    terms = [
        log_evidence_of_row(split, shape, mean)
        + log_evidence_of_row(tuple(n - s for n, s in zip(x, split, strict=True)), shape, mean)
        for split in itertools.product(*(range(n + 1) for n in x))
    ]
    return float(np.logaddexp.reduce(terms))


@pytest.mark.parametrize("shape", [0.5, 2.0])
@pytest.mark.parametrize("x", [(0,), (3,), (2, 0), (1, 4)])
@pytest.mark.parametrize("rank", [1, 2])
def test_bound_is_below_the_evidence(x: tuple[int, ...], shape: float, rank: int) -> None:
    prior = pltf.Gamma(shape, 3.0)
    evidence = (log_evidence_of_row if rank == 1 else log_evidence_of_mixture)(x, shape, 3.0)
    fit = pltf.nmf(rank=rank).fit(np.array([x]), prior=prior, restarts=3, max_iter=500, tol=1e-10)
    assert fit.bound <= evidence + 1e-9
    assert fit.bound > evidence - 3.0  # and not uselessly far below


def test_quadrature_is_normalized() -> None:
    """The yardstick itself: probabilities of all counts add up to one."""
    total = sum(math.exp(log_evidence_of_row((n,), 2.0, 1.0)) for n in range(60))
    assert total == pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["ir,jr,kr->ijk", "ip,jq,pq->ij", "ia,ajb,bk->ijk"])
def test_bound_equals_monte_carlo(spec: str) -> None:
    """E_q[ log p(X,S,Z) - log q(S,Z) ] with S and Z drawn from q, textbook densities only."""
    rng = np.random.default_rng(3)
    indices = dict.fromkeys(i for i in spec if i.isalpha())
    output = spec.split("->")[1]
    model = pltf.Model(spec, **{i: 2 for i in indices if i not in output})
    x = rng.poisson(2.0, (3, 2, 2)[: len(output)])
    mask = rng.random(x.shape) < 0.8
    shape, mean = 0.6, 2.0
    fit = model.fit(x, mask=mask, prior=pltf.Gamma(shape, mean), max_iter=20, tol=0, seed=1)
    values = [monte_carlo_draw(fit, spec, x, mask, shape, mean, rng) for _ in range(4000)]
    error = float(np.std(values)) / math.sqrt(len(values))
    assert error < 0.2
    assert fit.bound == pytest.approx(np.mean(values), abs=4 * error)


def monte_carlo_draw(
    fit: pltf.Fit, spec: str, x: NDArray[np.int64], mask: NDArray[np.bool_], shape: float, mean: float,
    rng: np.random.Generator,
) -> float:  # fmt: skip
    inputs, output = spec.split("->")
    latent = "".join(dict.fromkeys(i for i in inputs if i.isalpha() and i not in output))
    joint = f"{inputs}->{output}{latent}"
    cells = (*x.shape, -1)
    L = np.einsum(joint, *(factor.geomean for factor in fit.factors.values())).reshape(cells)
    Z = [rng.gamma(factor.shape, factor.scale) for factor in fit.factors.values()]
    rate = np.einsum(joint, *Z).reshape(cells)
    p = L[mask] / L[mask].sum(axis=1, keepdims=True)  # of every observed cell at once: scipy is slow to call
    S = rng.multinomial(x[mask], p)
    total = float(stats.poisson.logpmf(S, rate[mask]).sum() - stats.multinomial.logpmf(S, x[mask], p).sum())
    for z, factor in zip(Z, fit.factors.values(), strict=True):
        total += float(stats.gamma.logpdf(z, shape, scale=mean / shape).sum())
        total -= float(stats.gamma.logpdf(z, factor.shape, scale=factor.scale).sum())
    return total
