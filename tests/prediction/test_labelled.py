"""Fits as labelled arrays: for xarray, and as draws for ArviZ."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pltf
from tests.extras import optional
from tests.prediction import sharpened
from tests.store import COUPLED, X, Y, labelled_fit

az = optional("arviz")

TRAIN = pltf.Model("X[i,j,k] = A[i,a] * B[a,j,b] * C[b,k] * S[]", a=2, b=2)


@pytest.fixture(scope="module")
def fit() -> pltf.Fit:
    return labelled_fit()


# -- xarray -------------------------------------------------------------------------------------


def test_one_dataset_has_it_all(fit: pltf.Fit) -> None:
    data = fit.to_xarray(level=0.8)
    assert data["A"].dims == ("who", "r")
    assert data["X"].dims == ("who", "n", "day")
    assert list(data["who"].values) == list("abcdef")
    assert data["day"].values[1] == np.datetime64("2026-11-16")
    assert data["r"].values.tolist() == [0, 1]
    for a, factor in fit.factors.items():
        low, high = factor.interval(0.8)
        for part, values in {"": factor.mean, "_sd": np.sqrt(factor.var), "_low": low, "_high": high}.items():
            np.testing.assert_array_equal(data[f"{a}{part}"], values)
        one = factor.to_xarray(0.8)
        np.testing.assert_array_equal(one["high"], data[f"{a}_high"])
    np.testing.assert_array_equal(data["X"], fit.mean())
    np.testing.assert_array_equal(data["X_sd"], np.sqrt(fit.var()))
    assert data.attrs["bound"] == fit.bound
    assert data.attrs["level"] == 0.8
    assert float(data["X"].sel(who="c", n=9, day="2026-11-23")) == fit.mean()[2, 3, 2]
    assert set(fit.to_xarray(predictions=False)) == {f"{a}{p}" for a in "ABC" for p in ("", "_sd", "_low", "_high")}


def test_intervals_of_predictions_if_asked_for(fit: pltf.Fit) -> None:
    data = fit.to_xarray(intervals=True, level=0.8, draws=50, seed=3)
    for kind, counts in (("rate", False), ("count", True)):
        low, high = fit.interval(level=0.8, counts=counts, draws=50, seed=3)
        np.testing.assert_array_equal(data[f"X_{kind}_low"], low)
        np.testing.assert_array_equal(data[f"X_{kind}_high"], high)
    assert data["X_rate_low"].dims == data["X"].dims
    assert "X_rate_low" not in fit.to_xarray()
    factors = fit.to_xarray(intervals=True, predictions=False)
    assert set(factors) == {f"{a}{p}" for a in "ABC" for p in ("", "_sd", "_low", "_high")}


@pytest.mark.parametrize("method", ["vb", "em", "map"])
def test_any_model_and_method(method: str) -> None:
    for model, given in ((TRAIN, X), (COUPLED, {"X": X, "Y": Y}), (pltf.Model("X[i,j,k] = A[i] * B[j,k]"), X)):
        fit = model.fit(given, method=method, max_iter=5, tol=0)
        data = fit.to_xarray()
        assert set(data.dims) == set(fit.sizes)
        for name in model.observed:
            np.testing.assert_array_equal(data[name], fit.mean(of=name))


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        ("X[i,j] = U[i,r] * U_sd[j,r]", "U_sd"),
        ("X[i,j] = U[i,r] * U_high[j,r]", "U_high"),
        ("X[i,j] = X_sd[i,r] * B[j,r]", "X_sd"),
        ("X[i,U] = U[i,r] * B[U,r]", "U"),
        ("X[i,X] = A[i,r] * B[X,r]", "X"),
        ("X[i,j] = A[i,A_low] * B[j,A_low]", "A_low"),
    ],
)
def test_names_that_would_mean_two_things(text: str, twice: str) -> None:
    latent = {"r": 1} if ",r]" in text else {"A_low": 1}
    fit = pltf.Model(text, **latent).fit(np.ones((2, 3)))
    with pytest.raises(pltf.PltfError, match=f"^two variables would be named '{twice}': rename an index, a factor or"):
        fit.to_xarray()


@pytest.mark.extra("arviz")
def test_names_of_parts_are_free() -> None:
    fit = pltf.Model("X[mean,sd] = low[mean,r] * high[sd,r]", r=1).fit(np.ones((2, 3)))
    data = fit.to_xarray()
    assert data["low"].dims == ("mean", "r")
    assert fit.to_arviz(draws=3).posterior["low"].dims == ("chain", "draw", "mean", "r")


@pytest.mark.extra("arviz")
def test_what_is_too_large_is_refused() -> None:
    fit = pltf.nmf(rank=1).fit(pltf.observe(([(0, 1)], [3.0]), shape=(10**5, 10**5)), max_iter=2, tol=0)
    with pytest.raises(pltf.PltfError, match=r"the result would take .*: predictions=False leaves them out"):
        fit.to_xarray()
    assert fit.to_xarray(predictions=False)["W"].shape == (10**5, 1)
    with pytest.raises(pltf.PltfError, match=r"take .*: use fewer draws, or select cells with at="):
        fit.to_arviz(draws=2)
    with pytest.raises(pltf.PltfError, match=r"the result would take .*: use fewer draws$"):
        fit.to_arviz(draws=10**4, at=(0, 1))
    assert fit.to_arviz(draws=2, at=[(0, 1), (0, 2)]).observed_data["X"].values.tolist() == [3, 0]


# -- ArviZ --------------------------------------------------------------------------------------


@pytest.mark.extra("arviz")
def test_arviz_summarizes_and_draws(fit: pltf.Fit) -> None:
    data = fit.to_arviz(draws=200)
    assert set(data.groups()) == {"posterior", "posterior_predictive", "log_likelihood", "observed_data"}
    table = az.summary(data, kind="stats")
    assert "A[a, 0]" in table.index
    assert len(table) == sum(one.mean.size for one in fit.factors.values())
    assert len(az.summary(data, var_names=["B"])) == 10
    axes = az.plot_forest(data, var_names=["A"], combined=True)
    assert len(axes) == 1


@pytest.mark.extra("arviz")
def test_draws_are_those_of_the_posterior(fit: pltf.Fit) -> None:
    draws = 4000
    data = fit.to_arviz(draws=draws)
    for a, factor in fit.factors.items():
        drawn = data.posterior[a].values[0]
        error = np.sqrt(factor.var / draws)
        assert (np.abs(drawn.mean(axis=0) - factor.mean) < 5 * error + 1e-12).mean() > 0.95
        assert data.posterior[a].dims[2:] == factor.indices
    assert list(data.posterior["who"].values) == list("abcdef")
    assert list(data.posterior["n"].values) == [-1, 3, 2, 9, 0]


@pytest.mark.extra("arviz")
@pytest.mark.parametrize("method", ["vb", "em"])
def test_predicted_counts_have_the_mean_and_the_variance_of_the_fit(method: str) -> None:
    draws = 4000
    fit = pltf.cp(rank=2).fit(X, method=method, max_iter=30, tol=0)
    fit = sharpened(fit, 20.0) if method == "vb" else fit  # heavy tails would need more draws
    data = fit.to_arviz(draws=draws, seed=3)
    counts = data.posterior_predictive["X"].values[0]
    assert counts.dtype == np.int64
    seen = ~np.isnan(X)
    assert counts.shape == (draws, seen.sum())
    mean, var = fit.mean(seen), fit.var(seen, counts=True)
    assert (np.abs(counts.mean(axis=0) - mean) < 4 * np.sqrt(var / draws) + 1e-3).mean() > 0.99
    ratio = counts.var(axis=0).sum() / var.sum()
    assert abs(ratio - 1) < 0.1
    np.testing.assert_array_equal(data.observed_data["X"].values, X[seen])


@pytest.mark.extra("arviz")
def test_draws_are_repeatable(fit: pltf.Fit) -> None:
    one, same, other = (fit.to_arviz(draws=5, seed=seed) for seed in (1, 1, 2))
    assert one.posterior.equals(same.posterior)
    assert one.posterior_predictive.equals(same.posterior_predictive)
    assert not one.posterior.equals(other.posterior)
    for a in "AB":
        assert not np.array_equal(one.posterior[a], other.posterior[a])


@pytest.mark.extra("arviz")
def test_listed_cells_are_named() -> None:
    table = pd.DataFrame({"who": ["b", "a"], "n": [3, 7], "count": [4.0, 2.5]})
    model = pltf.Model("X[who,n] = A[who,r] * B[n,r]", r=1)
    fit = model.fit(pltf.observe(table, dims=["who", "n"], value="count", unlisted="missing"))
    data = fit.to_arviz(draws=4)
    assert data.observed_data["X"].dims == ("X_cell",)
    assert data.observed_data["X"].values.tolist() == [2.5, 4.0]
    assert list(data.observed_data["X_cell"].values) == ["a, 7", "b, 3"]
    assert data.posterior_predictive["X"].shape == data.log_likelihood["X"].shape == (1, 4, 2)
    bare = pltf.nmf(rank=1).fit(pltf.observe(([(0, 1), (2, 2)], [1.0, 2.0]), shape=(3, 3), unlisted="missing"))
    assert list(bare.to_arviz(draws=2).observed_data["X_cell"].values) == ["0, 1", "2, 2"]
    one = bare.to_arviz(draws=2, at=[(0, 0), (2, 2)])  # the first of them is missing
    assert list(one.observed_data["X_cell"].values) == ["2, 2"]
    with pytest.raises(pltf.PltfError, match="at must list observed cells of X, but all 1 are missing"):
        bare.to_arviz(at=(0, 0))


@pytest.mark.extra("arviz")
def test_zeros_that_are_not_listed_are_observed_all_the_same() -> None:
    seen = pltf.observe(([(0, 1), (2, 2)], [1.0, 2.0]), shape=(3, 3), missing=[(1, 1)])
    data = pltf.nmf(rank=1).fit(seen).to_arviz(draws=3)
    assert data.observed_data["X"].values.tolist() == [0, 1, 0, 0, 0, 0, 0, 2]
    assert "1, 1" not in data.observed_data["X_cell"].values
    full = pltf.nmf(rank=1).fit(pltf.observe(([(0, 1), (2, 2)], [1.0, 2.0]), shape=(3, 3)))
    assert full.to_arviz(draws=3).observed_data["X"].values.tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 2]]


@pytest.mark.extra("arviz")
@pytest.mark.parametrize("likelihood", ["poisson", "bernoulli"])
def test_the_log_likelihood_is_that_of_the_draws(likelihood: str) -> None:
    x = np.array([[1.0, 0.0, 1.0], [np.nan, 1.0, 0.0]])
    data = pltf.nmf(rank=2).fit(x, likelihood=likelihood, dispersion=None).to_arviz(draws=50)
    rates = np.einsum("...ir,...rj->...ij", data.posterior["W"].values, data.posterior["H"].values)
    rates, seen = rates[..., ~np.isnan(x)], x[~np.isnan(x)]
    expected = (
        seen * np.log(rates) - rates
        if likelihood == "poisson"
        else np.where(seen == 1, np.log(-np.expm1(-rates)), -rates)
    )
    np.testing.assert_allclose(data.log_likelihood["X"], expected, rtol=1e-10)


@pytest.mark.extra("arviz")
@pytest.mark.extra("plot")
def test_arviz_compares_and_checks() -> None:
    x = np.random.default_rng(0).poisson(6.0, (12, 10)).astype(float)
    x[0, :4] = np.nan
    data = pltf.nmf(rank=1).fit(x).to_arviz(draws=200)
    with warnings.catch_warnings(action="ignore"):  # a few observations have much influence
        found = az.loo(data)
    assert found.n_data_points == 116
    assert found.elpd_loo == pytest.approx(-116 * 2.35, rel=0.1)
    matplotlib = optional("matplotlib")
    matplotlib.use("agg")
    ax = az.plot_ppc(data, num_pp_samples=5)
    assert ax.get_xlabel() == "X"
    optional("matplotlib.pyplot").close("all")


@pytest.mark.extra("arviz")
def test_coupled_tensors_together_or_one_of_them() -> None:
    fit = COUPLED.fit({"X": X, "Y": Y}, max_iter=5, tol=0)
    both = fit.to_arviz(draws=3)
    for group in ("posterior_predictive", "log_likelihood", "observed_data"):
        assert set(both[group]) == {"X", "Y"}
    assert both.posterior_predictive["Y"].dims == ("chain", "draw", "j", "m")
    one = fit.to_arviz(draws=3, of="Y")
    assert set(one.posterior) == set("ABCD")
    assert set(one.log_likelihood) == {"Y"}
    assert one.posterior.equals(both.posterior)
    with pytest.raises(pltf.PltfError, match="of must name an observed tensor"):
        fit.to_arviz(draws=3, at=[(0, 0)])
    assert fit.to_arviz(draws=3, of="Y", at=(0, 1)).observed_data["Y"].values.tolist() == [Y[0, 1]]


@pytest.mark.extra("arviz")
def test_em_fits_are_summarized_too() -> None:
    fit = TRAIN.fit(X, method="em", max_iter=5, tol=0)
    data = fit.to_arviz(draws=10)
    table = az.summary(data, kind="stats")
    assert (table["sd"] == 0).all()
    assert data.posterior["S"].dims == ("chain", "draw")


@pytest.mark.extra("arviz")
@pytest.mark.parametrize(
    ("text", "twice"),
    [
        ("X[draw,j] = A[draw,r] * B[j,r]", "draw"),
        ("X[i,j] = chain[i,r] * B[j,r]", "chain"),
        ("X[A,j] = A[A,r] * B[j,r]", "A"),
        ("X[i,X] = A[i,r] * B[X,r]", "X"),
    ],
)
def test_names_that_arviz_needs(text: str, twice: str) -> None:
    fit = pltf.Model(text, r=1).fit(np.ones((2, 3)))
    with pytest.raises(pltf.PltfError, match=f"^two variables would be named '{twice}'"):
        fit.to_arviz(draws=3)


@pytest.mark.extra("arviz")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"draws": 0}, "draws must be a whole number of at least 1, got 0"),
        ({"draws": 2.5}, r"draws must be a whole number of at least 1, got 2\.5"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"of": "Q"}, r"of must name an observed tensor \(X\), got 'Q'"),
    ],
)
def test_arguments_that_make_no_sense(fit: pltf.Fit, options: dict[str, Any], told: str) -> None:
    with pytest.raises(pltf.PltfError, match=f"^{told}$"):
        fit.to_arviz(**options)
    with pytest.raises(pltf.PltfError, match="level must"):
        fit.to_xarray(level=1.5)
    with pytest.raises(pltf.PltfError, match="predictions must be True or False"):
        fit.to_xarray(predictions="no")  # type: ignore[arg-type]


@pytest.mark.extra("arviz")
def test_rates_beyond_whole_numbers() -> None:
    fit = pltf.nmf(rank=1).fit(np.full((2, 2), 1e17))
    with pytest.raises(pltf.PltfError, match="were drawn, but whole counts end at 9e"):
        fit.to_arviz(draws=2)
