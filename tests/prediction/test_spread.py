"""The spread of predictions: coverage on drawn data, and the sums that it is estimated from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pltf
from pltf.datasets import draw
from pltf.fit import with_spread
from pltf.prediction import moments
from pltf.prediction import spread as module
from pltf.prediction.spread import observed_sample, widened
from tests.prediction import COUPLED, CP, SHARED, TUCKER, every_cell, small_fit
from tests.reference import Array

DRAWN = {
    "cp": (pltf.cp(rank=5), (14, 12, 10)),
    "nmf": (pltf.nmf(rank=4), (40, 30)),
}


def drawn(kind: str, seed: int) -> tuple[pltf.Fit, Array, Any]:
    """A fit of data drawn from its model, their rates, and which of the cells it has seen."""
    model, shape = DRAWN[kind]
    rates = draw(model, shape, prior=pltf.Gamma(0.5, 1.0), seed=seed).rates["X"]
    rates = rates * 5 / rates.mean()
    rng = np.random.default_rng(seed)
    keep = rng.random(shape) < 0.8
    return model.fit(rng.poisson(rates), mask=keep, restarts=2, seed=seed), rates, keep


def covered(fit: pltf.Fit, rates: Array) -> float:
    low, high = fit.interval(draws=200)
    return float(np.mean((low <= rates) & (rates <= high)))


@pytest.mark.parametrize("kind", DRAWN)
def test_intervals_hold_the_rates_that_they_should(kind: str) -> None:
    """90 % intervals over three draws of the data; independent factors hold 69 to 79 %."""
    fits = [drawn(kind, seed) for seed in range(3)]
    assert 0.87 < np.mean([covered(fit, rates) for fit, rates, _ in fits]) < 0.93
    assert np.mean([covered(replace(fit, spread=1.0), rates) for fit, rates, _ in fits]) < 0.82


def test_means_stay_and_everything_else_agrees() -> None:
    fit, _, _ = drawn("nmf", 0)
    plain = replace(fit, spread=1.0)
    assert fit.spread > 1.2
    np.testing.assert_array_equal(fit.mean(), plain.mean())
    assert (fit.var() > plain.var()).all()
    some = every_cell((40, 30))[::40]
    rates = fit.sample(4000, some)
    np.testing.assert_allclose(rates.var(axis=0), fit.var(some), rtol=0.25)
    np.testing.assert_allclose(np.quantile(rates, [0.05, 0.95], axis=0), fit.interval(some, draws=4000), rtol=0.1)
    np.testing.assert_array_equal(fit.factors["W"].var, plain.factors["W"].var)


def test_what_nothing_is_known_of_keeps_its_prior() -> None:
    C, E = {"A": np.array([0.5, 0.4, 10.5])}, {"A": np.array([3.0, 1.0, 2.0])}
    shapes, scales = widened(C, E, {"A": pltf.Gamma(0.5, 3.0)}, 4.0)
    np.testing.assert_allclose(shapes["A"], [0.5, 0.4, 3.0])
    np.testing.assert_allclose(shapes["A"] * scales["A"], E["A"])


def test_one_component_needs_no_more() -> None:
    X = np.random.default_rng(0).poisson(np.outer([3, 9, 2, 5], [1, 4, 2]))
    assert pltf.nmf(rank=1).fit(X).spread == 1.0
    assert pltf.nmf(rank=2).fit(X, method="em").spread == 1.0


def test_of_a_coupled_model_and_with_fixed_factors() -> None:
    rng = np.random.default_rng(1)
    data = {"X": rng.poisson(3.0, (8, 7, 6)), "Y": rng.poisson(3.0, (7, 9))}
    assert COUPLED.fit(data).spread > 1.0
    assert CP.fit(data["X"], fixed={"A": np.ones((8, 2)), "B": np.ones((7, 2)) * [1, 2]}).spread >= 1.0


@pytest.mark.parametrize("storage", ["dense", "zero", "missing"])
def test_few_cells_estimate_the_sum_over_all(storage: str) -> None:
    """The weights add up to the number of observed cells, and busy cells to their sum, whatever the storage."""
    rng = np.random.default_rng(0)
    rates = np.outer(rng.gamma(0.5, 1.0, 150), rng.gamma(0.5, 1.0, 120))
    X, keep = rng.poisson(rates), rng.random(rates.shape) < 0.9
    listed = np.argwhere(keep & (X > 0)) if storage == "zero" else np.argwhere(keep)
    values = X[tuple(listed.T)]
    seen = {
        "dense": lambda: pltf.observe(X, keep),
        "zero": lambda: pltf.observe((listed, values), shape=X.shape, missing=np.argwhere(~keep)),
        "missing": lambda: pltf.observe((listed, values), shape=X.shape, unlisted="missing"),
    }[storage]()
    cells, weights = observed_sample(seen, 4000)
    assert cells.shape[1] <= 8000
    assert keep[tuple(cells)].all()
    assert weights.sum() == pytest.approx(keep.sum(), rel=0.1)
    assert weights @ rates[tuple(cells)] == pytest.approx(rates[keep].sum(), rel=0.1)
    whole, ones = observed_sample(seen, 10**6)
    assert len(np.unique(whole, axis=1).T) == whole.shape[1] == keep.sum()
    assert (ones == 1).all()


def test_a_sample_of_the_cells_gives_about_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fit, _, _ = drawn("cp", 0)
    monkeypatch.setattr(module, "MOST_CELLS", 300)
    assert drawn("cp", 0)[0].spread == pytest.approx(fit.spread, rel=0.2)


def test_files_keep_it_and_older_ones_have_none(tmp_path: Path) -> None:
    fit, _, _ = drawn("nmf", 1)
    fit.save(tmp_path / "run.nc")
    loaded = pltf.load(tmp_path / "run.nc")
    assert isinstance(loaded, pltf.Fit)
    assert loaded.spread == fit.spread
    np.testing.assert_array_equal(loaded.interval(draws=20), fit.interval(draws=20))
    assert small_fit(CP).spread == 1.0


def test_new_rows_are_as_uncertain() -> None:
    fit, rates, _ = drawn("nmf", 2)
    assert fit.fold_in(np.round(rates[:2]), "i").spread == fit.spread


def test_rates_that_are_next_to_nothing_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of components that have died: the quotient of variance and rate would be out of range."""
    X = np.random.default_rng(0).poisson(3.0, (30, 20))
    fit = pltf.nmf(rank=3).fit(X, dispersion=None)
    scales = {a: D.copy() for a, D in fit.D.items()}
    scales["W"][:10], scales["H"][:, :7] = 1e-160, 1e-160
    monkeypatch.setattr(module, "MOST_CELLS", 100)  # each stands for six
    assert with_spread(replace(fit, D=scales), {"X": module.Sample(pltf.observe(X))}).spread > 1


MODELS: dict[str, tuple[pltf.Model, dict[str, tuple[int, ...]]]] = {
    "cp": (CP, {"X": (60, 50, 40)}),
    "nmf, priors by row": (pltf.nmf(rank=3), {"X": (90, 80)}),
    "tucker": (TUCKER, {"X": (50, 40, 60)}),
    "shared": (SHARED, {"X": (40, 50, 45)}),
    "coupled": (COUPLED, {"X": (40, 60, 50), "Y": (60, 70)}),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_rows_of_the_cells_are_all_that_it_needs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample with fewer cells than there are rows; with all rows, the sums are the same."""
    rng, (model, shapes) = np.random.default_rng(2), MODELS[name]
    data = {a: rng.poisson(rng.gamma(0.3, 4.0, shape)) for a, shape in shapes.items()}
    prior = {"W": pltf.Gamma(rng.uniform(0.3, 1.0, (90, 1)), 2.0)} if "priors" in name else None
    fit = model.fit(data if len(data) > 1 else data["X"], prior=prior, max_iter=10, tol=0, dispersion=None)
    monkeypatch.setattr(module, "MOST_CELLS", 30)
    samples = {a: module.Sample(pltf.observe(X)) for a, X in data.items()}
    whole = with_spread(replace(fit, spread=1.0), samples).spread
    monkeypatch.setattr(moments, "MOST_WHOLE", 0)
    assert 1.0 < whole < module.MOST_SPREAD
    assert with_spread(replace(fit, spread=1.0), samples).spread == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("along", [(0,), (1,), (0, 2), ()])
def test_counts_of_large_factors_are_added_in_parts(along: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    C, A = np.random.default_rng(0).gamma(1.0, size=(41, 7, 3)), np.full((1, 7, 1), 0.5)
    expected = np.maximum(C - A, 0.0).sum(axis=along)
    monkeypatch.setattr(module, "AT_A_TIME", 100)
    sums = module._counts_behind(C, np.broadcast_to(A, C.shape), along)
    np.testing.assert_allclose(sums, expected, rtol=1e-13)
