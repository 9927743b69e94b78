"""Start values: small factors keep the draws of earlier versions, large ones do not depend on the threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

import pltf
from pltf.gamma import Gamma
from pltf.inference.algebra import chance, draws
from pltf.inference.algebra.draws import MOST_AT_ONCE, gamma_draw, generator, prior_draw
from pltf.threads import PART, R, ordered_map

LARGE = (MOST_AT_ONCE // 20 + 1, 20)
PRIORS = {
    "scalar": Gamma(0.5, 10.0),
    "by component": Gamma(np.linspace(0.3, 2.0, 20), np.linspace(1.0, 5.0, 20)),
    "by row": Gamma(0.5, np.linspace(1.0, 5.0, LARGE[0])[:, None]),
}


@pytest.mark.parametrize("prior", [Gamma(0.5, 10.0), Gamma([0.3, 2.0], [[1.0], [7.0], [3.0]])])
def test_small_factors_keep_their_draws(prior: Gamma) -> None:
    rng, own, floor = np.random.default_rng(np.random.SeedSequence(7, spawn_key=(0,))), generator(7), 1e-3
    for _ in range(2):  # one generator draws all factors of a start
        A, B = prior.broadcast((3, 2))
        expected = (rng.standard_gamma(A) * (B / A)).clip(floor)
        np.testing.assert_array_equal(prior_draw(prior, (3, 2), own, floor, 3), expected)


@pytest.mark.parametrize("name", PRIORS)
def test_large_factors_do_not_depend_on_the_threads(name: str) -> None:
    first, *others = (prior_draw(PRIORS[name], LARGE, generator(7), 1e-3, threads) for threads in (1, 2, 5))
    assert first.shape == LARGE
    assert first.min() == 1e-3
    for other in others:
        np.testing.assert_array_equal(other, first)
    assert (prior_draw(PRIORS[name], LARGE, generator(8), 1e-3, 2) != first).mean() > 0.9


@pytest.mark.parametrize("shape", [0.1, 0.5, 1.0, 4.0])
def test_large_factors_are_gamma_with_independent_parts(shape: float) -> None:
    rng, prior = generator(3), Gamma(shape, 10.0)
    first, second = (prior_draw(prior, LARGE, rng, 0.0, 2).reshape(-1) for _ in range(2))
    known = stats.gamma(shape, scale=10.0 / shape).cdf
    assert first.min() > 0
    assert stats.kstest(first, known).pvalue > 1e-3
    assert first.mean() == pytest.approx(10.0, rel=6 / np.sqrt(shape * first.size))
    parts = [first[at : at + PART] for at in range(0, first.size - PART, PART)]
    pvalues = [stats.kstest(part, known).pvalue for part in parts]
    assert stats.kstest(pvalues, "uniform").pvalue > 1e-3
    independent = np.corrcoef([*parts, second[:PART]])[np.triu_indices(len(parts) + 1, 1)]
    assert abs(independent).max() < 6 / np.sqrt(PART)


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors of more than 200 entries count as large, and are drawn in parts of 50."""
    monkeypatch.setattr(draws, "MOST_AT_ONCE", 200)
    monkeypatch.setattr(chance, "PART", 50)

    def in_parts(function: Callable[[slice], R], size: int, threads: int) -> Iterator[R]:
        return ordered_map(function, [slice(at, min(at + 50, size)) for at in range(0, size, 50)], threads)

    monkeypatch.setattr(chance, "in_parts", in_parts)


def fitted(threads: int, likelihood: str = "poisson", **options: Any) -> pltf.Fit:
    """A fit with a large factor W of 210 entries, and a small one H of 180."""
    X = np.random.default_rng(0).random((70, 60)) < 0.3
    options = {"max_iter": 3, "tol": 0, "likelihood": likelihood, "dispersion": None, **options}
    return pltf.nmf(rank=3).fit(X.astype(int), threads=threads, **options)


def test_large_factors_have_other_draws(request: pytest.FixtureRequest) -> None:
    before = fitted(1)
    request.getfixturevalue("cut")
    assert abs(fitted(1).bound - before.bound) > 1e-6


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("likelihood", ["poisson", "bernoulli"])
def test_fits_of_large_factors_do_not_depend_on_the_threads(likelihood: str) -> None:
    one, other = (fitted(threads, likelihood, restarts=2) for threads in (1, 3))
    np.testing.assert_array_equal(one.trace, other.trace)
    assert one.restarts["bound"].tolist() == other.restarts["bound"].tolist()
    assert one.restarts["bound"].nunique() == 2


@pytest.mark.usefixtures("cut")
def test_updates_of_large_factors_do_not_depend_on_the_threads() -> None:
    fit, new = fitted(1), np.random.default_rng(1).poisson(0.3, (70, 60))
    one, other = (fit.update(new, threads=threads).factors for threads in (1, 3))
    for a, factor in one.items():
        np.testing.assert_array_equal(factor.mean, other[a].mean)


def test_posteriors_are_drawn_in_the_same_way() -> None:
    C, D = np.full(LARGE, 3.0), np.full(LARGE, 0.5)
    drawn = gamma_draw(C, D, generator(1), 0.0, 2)
    np.testing.assert_array_equal(drawn, gamma_draw(C, D, generator(1), 0.0, 1))
    assert stats.kstest(drawn[:5000].reshape(-1), stats.gamma(3.0, scale=0.5).cdf).pvalue > 1e-3
