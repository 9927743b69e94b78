"""Mean and variance of cells, against a loop over pairs of values of the latent indices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import pltf
from pltf.prediction import moments
from pltf.prediction.cells import Asked
from tests.prediction import (
    COUPLED,
    CP,
    SHARED,
    TRAIN,
    TUCKER,
    covariance,
    drawn_rates,
    equation_of,
    every_cell,
    fitted,
    latent_values,
    sharpened,
    small_fit,
)
from tests.reference import Reference
from tests.strategies import Case, cases, cp_cases, cut_small

MODELS = {"cp": CP, "tucker": TUCKER, "train": TRAIN, "shared": SHARED, "coupled": COUPLED}


def some_cells(shape: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    cells = every_cell(shape)
    return [tuple(map(int, cell)) for cell in cells[:: max(1, -(-len(cells) // count))]]


@given(st.one_of(cases(), cp_cases()), st.sampled_from([64, 1 << 20]), st.data())
def test_moments_are_exact(case: Case, block: int, data: st.DataObject) -> None:
    """Any model, any factors fixed: at listed cells and of the whole tensor, whatever the blocks."""
    names = list(case.model.factors)
    fixed = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names) - 1))
    with pytest.MonkeyPatch.context() as patch:
        cut_small(patch, block)
        patch.setattr(moments, "MOST_WHOLE", 0 if block == 64 else 1 << 20)
        fit = fitted(case, tuple(fixed))
        E = {a: factor.mean for a, factor in fit.factors.items()}
        for of, indices in case.model.observed.items():
            equation = equation_of(fit, of)
            assume(len(latent_values(fit, equation)) <= 12)  # of which the loop takes all pairs
            cells = some_cells(tuple(fit.sizes[i] for i in indices), 6)
            mean, var = fit.mean(of=of), fit.var(of=of)
            np.testing.assert_allclose(mean, Reference(fit.model, {}, {}).xhat(equation, E), rtol=1e-12)
            expected = [covariance(fit, cell, cell, of) for cell in cells]
            at = tuple(np.array(cells).T)
            np.testing.assert_allclose(var[at], expected, rtol=1e-11)
            np.testing.assert_allclose(fit.var(cells, of=of), expected, rtol=1e-11)
            np.testing.assert_allclose(fit.mean(cells, of=of), mean[at], rtol=1e-12)
            np.testing.assert_allclose(fit.var(cells[-1:], of=of), expected[-1:], rtol=1e-11)
            np.testing.assert_allclose(fit.mean(cells[-1:], of=of), mean[cells[-1]], rtol=1e-12)
            np.testing.assert_allclose(fit.var(counts=True, of=of), var + mean, rtol=1e-14)


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_lost_where_the_posterior_is_sharp(name: str) -> None:
    """E[Xhat^2] - E[Xhat]^2 would have no digit left."""
    fit = sharpened(small_fit(MODELS[name]), 1e12)
    cells = some_cells((4, 3, 3), 5)
    expected = [covariance(fit, cell, cell) for cell in cells]
    assert max(expected / fit.mean(cells, of="X") ** 2) < 1e-10
    np.testing.assert_allclose(fit.var(cells, of="X"), expected, rtol=1e-11)
    np.testing.assert_allclose(fit.var(of="X")[tuple(np.array(cells).T)], expected, rtol=1e-11)


@pytest.mark.parametrize("method", ["em", "map"])
@pytest.mark.parametrize("name", MODELS)
def test_single_values_do_not_vary(name: str, method: str) -> None:
    fit = small_fit(MODELS[name], method=method)
    np.testing.assert_array_equal(fit.var(of="X"), np.zeros((4, 3, 3)))
    np.testing.assert_array_equal(fit.var([(1, 2, 0)], counts=True, of="X"), fit.mean([(1, 2, 0)], of="X"))


def test_what_is_not_fixed_still_varies() -> None:
    fit = small_fit(TUCKER, fixed={"G": np.ones((2, 2, 2)), "A": np.ones((4, 2))})
    assert fit.var()[1, 2, 0] == pytest.approx(covariance(fit, (1, 2, 0), (1, 2, 0)), rel=1e-12)
    assert fit.var().min() > 0


@given(cp_cases())
def test_the_short_form_of_cp_is_the_sum_over_sets_of_factors(case: Case) -> None:
    belief = fitted(case)._belief("X")
    squares = {name: E**2 for name, E in belief.E.items()}
    spread = {name: C * belief.D[name] ** 2 for name, C in belief.C.items()}
    subsets = itertools.chain.from_iterable(itertools.combinations(spread, n + 1) for n in range(len(spread)))
    reference, total = Reference(case.model, {}, {}), np.zeros(belief.shape)
    for chosen in subsets:
        total += reference.xhat(*moments._of_subset(belief, chosen, squares, spread))
    np.testing.assert_allclose(fitted(case).var(), total, rtol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_sampling_agrees(name: str) -> None:
    """36 cells of 5 models; a right answer would be more than 5 standard errors off with probability 1e-4."""
    fit = sharpened(small_fit(MODELS[name]), 5.0)  # less skewed: errors near normal
    rates = drawn_rates(fit, 4000, seed=1)
    n, off = len(rates), rates - fit.mean(of="X")
    var = (off**2).mean(axis=0)
    assert (abs(off.mean(axis=0)) < 5 * np.sqrt(var / n)).all()
    assert (abs(var - fit.var(of="X")) < 5 * (off**2).std(axis=0) / np.sqrt(n)).all()


@pytest.mark.parametrize(
    ("model", "shape"),
    [(pltf.nmf(rank=2), (8, 7)), (pltf.cp(rank=2), (6, 5, 4)), (pltf.tucker(ranks=(2, 2, 2)), (6, 5, 4))],
    ids=["nmf", "cp", "tucker"],
)
@pytest.mark.parametrize("accelerate", [True, False])  # without, one factor alone takes the size of the counts
def test_the_variance_of_huge_rates_is_a_number(model: pltf.Model, shape: tuple[int, ...], accelerate: bool) -> None:
    X = np.random.default_rng(0).poisson(5.0, shape)
    large, huge = (
        model.fit(X * scale, max_iter=20, tol=0, accelerate=accelerate, dispersion=None) for scale in (1e100, 1e300)
    )
    for at in (None, every_cell(shape)):
        for counts in (False, True):
            variance = huge.var(at, counts=counts)
            assert np.isfinite(variance).all()
            np.testing.assert_allclose(variance / 1e200, large.var(at, counts=counts), rtol=0.1)


@pytest.mark.filterwarnings("ignore:the chains have not converged")
@pytest.mark.parametrize("scale", [1.0, 1e20, 1e40, 1e300])
def test_the_variance_of_huge_rates_is_a_number_by_draws_too(scale: float) -> None:
    """Draws of such rates differ by rounding alone, and its square may be beyond all numbers."""
    X = np.floor(np.random.default_rng(0).poisson(50.0, (8, 7)) * scale)
    model = pltf.nmf(rank=1)
    fit = model.fit(X, method="gibbs", chains=2, burn_in=20, draws=40, dispersion=None, progress=False)
    known = model.fit(X, dispersion=None, progress=False)
    for at in (None, every_cell(X.shape)):
        for counts in (False, True):
            ratio = fit.var(at, counts=counts) / known.var(at, counts=counts)
            assert np.isfinite(ratio).all()
            assert 0.1 < np.median(ratio) < 10


def test_dividing_by_powers_of_two_loses_no_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = small_fit(TUCKER)
    plain = fit.var()
    monkeypatch.setattr(moments, "_LARGE", -64)
    assert np.array_equal(fit.var(), plain)


def test_huge_counts_have_no_dispersion() -> None:
    X = np.random.default_rng(0).poisson(5.0, (20, 15)) * 1e300
    fit = pltf.nmf(rank=1).fit(X, method="em", max_iter=20, tol=0)
    assert "2**53" in fit.dispersion["X"].note


@pytest.mark.parametrize("name", MODELS)
def test_a_few_cells_need_only_their_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = small_fit(MODELS[name])
    (of, *_), cells = fit.model.observed, [(1, 0, 1), (1, 2, 1)]
    whole = fit.mean(cells, of=of), fit.var(cells, of=of)
    monkeypatch.setattr(moments, "MOST_WHOLE", 0)
    rows, among = moments.CellRows.at(fit._belief(of), Asked(fit._belief(of).shape, np.array(cells).T))
    assert {index: places.tolist() for index, places in rows.of.items()} == {"i": [1], "j": [0, 2], "k": [1]}
    assert among.sizes == (1, 2, 1)
    for few, all_rows in zip((fit.mean(cells, of=of), fit.var(cells, of=of)), whole, strict=True):
        np.testing.assert_allclose(few, all_rows, rtol=1e-13)
