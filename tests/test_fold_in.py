"""New rows with all else kept: a fit with fixed factors, to the bit."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import pltf
from tests.prediction import COUPLED, CP, SHARED, TRAIN, TUCKER, covariance, small_fit
from tests.reference import Array

MODELS = {"cp": CP, "tucker": TUCKER, "train": TRAIN, "shared": SHARED}
SIZES = {"i": 4, "j": 3, "k": 3, "m": 5}
RUN: dict[str, Any] = {"max_iter": 12, "tol": 0}


@cache
def fit_of(name: str) -> pltf.Fit:
    return small_fit(MODELS[name])


def rows(indices: str, new: str, count: int = 2, seed: int = 0) -> Array:
    """Data of new positions of one index, with a hole."""
    shape = [count if index == new else SIZES[index] for index in indices]
    X = np.random.default_rng(seed).poisson(2.0, shape).astype(float)
    X.flat[1] = np.nan
    return X


def by_hand(fit: pltf.Fit, new: pltf.Fit, X: Any, index: str, **options: Any) -> pltf.Fit:
    """What a fold-in is: a fit with the means of the other factors, and the priors as learned."""
    model = new.model
    fixed = {name: new.factors[name].mean for name, indices in model.factors.items() if index not in indices}
    if fit.method != "em" and "prior" not in options:
        free = [name for name in model.factors if name not in fixed]
        options["prior"] = {name: pltf.Gamma(fit.priors[name].shape, fit.priors[name].mean) for name in free}
    return model.fit(X, fixed=fixed, method=fit.method, **RUN | options)


def assert_same(new: pltf.Fit, expected: pltf.Fit, old: pltf.Fit, index: str) -> None:
    """Bit for bit: new rows as fitted, all else as it was."""
    assert new.bound == expected.bound
    np.testing.assert_array_equal(new.trace, expected.trace)
    for name, indices in new.model.factors.items():
        source = expected if index in indices else old
        for part in ("mean", "var"):
            np.testing.assert_array_equal(
                getattr(new.factors[name], part), getattr(source.factors[name], part), err_msg=f"{part} of {name}"
            )
    assert sorted([*new.C, *new.points]) == sorted(new.model.factors)
    assert list(new.C) == list(new.D)
    assert new.fixed == expected.fixed
    assert new.model == expected.model


@pytest.mark.parametrize("index", ["i", "j", "k"])
@pytest.mark.parametrize("name", MODELS)
def test_a_fold_in_is_a_fit_with_fixed_factors(name: str, index: str) -> None:
    fit, X = fit_of(name), rows("ijk", index)
    for options in ({"seed": 0}, {"seed": 5, "restarts": 3}):
        new = fit.fold_in(X, index, **RUN | options)
        assert_same(new, by_hand(fit, new, X, index, **options), fit, index)
        assert new.mean().shape == X.shape
    assert new.sizes[index] == 2


@pytest.mark.parametrize("name", MODELS)
def test_the_means_are_those_that_anyone_can_see(name: str) -> None:
    """Docs and docstring say so, to the bit: the means of the factors, and nothing that only the fit knows."""
    fit, X = fit_of(name), rows("ijk", "i")
    shown = {a: fit.factors[a].mean for a, indices in fit.model.factors.items() if "i" not in indices}
    priors = {a: pltf.Gamma(fit.priors[a].shape, fit.priors[a].mean) for a in fit.factors if a not in shown}
    expected = fit.model.fit(X, fixed=shown, prior=priors, **RUN)
    np.testing.assert_array_equal(fit.fold_in(X, "i", **RUN).trace, expected.trace)


@pytest.mark.parametrize("method", ["em", "map"])
@pytest.mark.parametrize("name", ["cp", "tucker"])
def test_points(name: str, method: str) -> None:
    fit = small_fit(MODELS[name], method=method)
    new = fit.fold_in(rows("ijk", "j"), "j", **RUN)
    assert_same(new, by_hand(fit, new, rows("ijk", "j"), "j"), fit, "j")
    assert new.method == method
    assert not new.var().any()


def test_float32_and_fixed_factors_stay_so() -> None:
    fit = small_fit(CP, dtype="float32", fixed={"C": np.ones((3, 2))})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pltf.ConvergenceWarning)
        new = fit.fold_in(rows("ijk", "i"), "i", **RUN)
        expected = by_hand(fit, new, rows("ijk", "i"), "i", dtype="float32")
    assert_same(new, expected, fit, "i")
    assert new.dtype == "float32"
    assert isinstance(new.factors["C"], pltf.Point)
    assert isinstance(new.factors["B"], pltf.Posterior)


# -- data -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["i", "j", "k"])
def test_one_row_may_come_without_its_axis(index: str) -> None:
    fit, X = fit_of("cp"), rows("ijk", index, 1)
    axis = "ijk".index(index)
    expected, row = fit.fold_in(X, index, **RUN), np.squeeze(X, axis)
    forms: list[tuple[Any, Any]] = [
        (row, None),
        (row.tolist(), None),
        (np.nan_to_num(row, nan=9.0), ~np.isnan(row)),
        (np.nan_to_num(X, nan=9.0), ~np.isnan(row)),
        (np.ma.masked_array(np.nan_to_num(row, nan=9.0), np.isnan(row)), None),
    ]
    for data, mask in forms:
        new = fit.fold_in(data, index, mask=mask, **RUN)
        assert_same(new, expected, fit, index)
        assert new.mean().shape == X.shape


def test_holes_in_every_form() -> None:
    fit, X = fit_of("cp"), rows("ijk", "i")
    expected, seen = fit.fold_in(X, "i", **RUN), ~np.isnan(X)
    for data, mask in [
        (np.nan_to_num(X, nan=9.0), seen),
        (np.ma.masked_array(np.nan_to_num(X, nan=9.0), ~seen), None),
        (pltf.observe(X), None),
        ({"X": X}, None),
        ({"X": np.nan_to_num(X)}, {"X": seen}),
    ]:
        assert_same(fit.fold_in(data, "i", mask=mask, **RUN), expected, fit, "i")
    cells = np.argwhere(seen)
    ratings = pltf.observe((cells, X[seen]), shape=X.shape, unlisted="missing")
    zeros = pltf.observe((np.argwhere(X > 0), X[X > 0]), shape=X.shape, missing=np.argwhere(~seen))
    for listed in (ratings, zeros):
        new = fit.fold_in(listed, "i", **RUN)
        assert new.engine == "sparse"
        np.testing.assert_allclose(new.trace, expected.trace, rtol=1e-10)
    assert new.top(3)[["i", "j", "k"]].to_numpy().tolist() == [[0, 0, 1]]


def test_listed_matrices_and_inputs_left_alone() -> None:
    rng = np.random.default_rng(0)
    fit = pltf.nmf(rank=2).fit(rng.poisson(1.0, (6, 5)), **RUN)
    X = rng.poisson(1.0, (3, 5)).astype(float)
    X[0, 0], X[2, 4] = 2.0, 1.0
    expected = fit.fold_in(X, "i", **RUN)
    for form in (sparse.csr_array(X), sparse.dok_array(X)):
        np.testing.assert_allclose(fit.fold_in(form, "i", **RUN).trace, expected.trace, rtol=1e-10)
    X[0, 0] = np.nan
    data, mask, means = X.copy(), rng.random(X.shape) < 0.8, {a: z.mean for a, z in fit.factors.items()}
    kept = mask.copy()
    fit.fold_in(data, "i", mask=mask, **RUN)
    np.testing.assert_array_equal(data, X)
    np.testing.assert_array_equal(mask, kept)
    for name, mean in means.items():
        np.testing.assert_array_equal(fit.factors[name].mean, mean)


def test_one_number_for_each_new_row() -> None:
    fit = pltf.Model("X[i] = A[i] * B[]").fit(np.array([1.0, 4.0, 2.0]), **RUN)
    new = fit.fold_in(7.0, "i", **RUN)
    assert new.mean().shape == (1,)
    assert_same(new, fit.fold_in([7.0], "i", **RUN), fit, "i")


# -- coupled models -------------------------------------------------------------------------------


def test_only_tensors_with_the_index_are_asked_for() -> None:
    fit, X, Y = small_fit(COUPLED), rows("ijk", "j"), rows("jm", "j")
    for lines, data, index in [
        ("X[i,j,k] = A[i,r] * B[j,r] * C[k,r]", rows("ijk", "i"), "i"),
        ("Y[j,m] = B[j,r] * D[m,r]", {"Y": rows("jm", "m")}, "m"),
        (COUPLED.text, {"X": X, "Y": Y}, "j"),
    ]:
        new = fit.fold_in(data, index, **RUN)
        assert_same(new, by_hand(fit, new, data, index), fit, index)
        assert new.model == pltf.Model(lines, r=2)
    row = fit.fold_in({"X": X[:, 0], "Y": Y[0]}, "j", **RUN)
    assert_same(row, by_hand(fit, row, {"X": X[:, :1], "Y": Y[:1]}, "j"), fit, "j")
    with pytest.raises(pltf.PltfError, match="X_new must be a mapping from tensor to array, with X and Y; got ndarray"):
        fit.fold_in(X, "j")
    with pytest.raises(pltf.PltfError, match="unknown tensor 'Y' in X_new: the model has X"):
        fit.fold_in({"X": rows("ijk", "i"), "Y": Y}, "i")


@pytest.mark.parametrize("method", ["vb", "em", "map"])
@pytest.mark.parametrize(("absent", "shape"), [("X", (4, 2, 3)), ("Y", (2, 5))])
def test_tensors_that_are_not_given_are_unobserved(absent: str, shape: tuple[int, ...], method: str) -> None:
    fit = small_fit(COUPLED, method=method)
    given = {name: one for name, one in (("X", rows("ijk", "j")), ("Y", rows("jm", "j"))) if name != absent}
    new, holes = fit.fold_in(given, "j", **RUN), {absent: np.full(shape, np.nan)}
    spelled_out = fit.fold_in(given | holes, "j", **RUN)
    assert_same(new, spelled_out, fit, "j")
    assert_same(new, by_hand(fit, new, given | holes, "j"), fit, "j")
    assert new.n_observed[absent] == 0
    for ask in ("mean", "var", "prob"):
        np.testing.assert_array_equal(getattr(new, ask)(of=absent), getattr(spelled_out, ask)(of=absent))
    assert new.mean(of=absent).shape == shape


def test_a_tensor_that_is_not_given_takes_no_room() -> None:
    """A million by a million cells of each new row, and no array of them is made."""
    model = pltf.Model("X[i,j,k] = A[i,r] * B[j,r] * C[k]\nY[j,m] = B[j,r] * D[m,r]", r=1)
    X = pltf.observe(([(0, 0, 0), (10**6 - 1, 1, 0)], [3, 4]), shape=(10**6, 2, 10**6), unlisted="missing")
    fit = model.fit({"X": X, "Y": np.ones((2, 3))}, max_iter=2, tol=0)
    new = fit.fold_in({"Y": np.ones((4, 3))}, "j", **RUN)
    assert new.mean([(5, 3, 7)], of="X").shape == (1,)


def test_rows_of_any_form_tell_how_many_the_others_have() -> None:
    fit, Y = small_fit(COUPLED), np.nan_to_num(rows("jm", "j"))
    labelled = pltf.observe(Y, dims=("j", "m"), labels={"j": ["new", "newer"]})
    forms = [Y, sparse.csr_array(Y), (np.argwhere(Y >= 0), Y.ravel()), labelled]
    for one, expected in zip([*forms, Y[0]], [Y, Y, Y, Y, Y[:1]], strict=True):
        new = fit.fold_in({"Y": one}, "j", **RUN)
        wanted = fit.fold_in({"X": np.full((4, len(expected), 3), np.nan), "Y": expected}, "j", **RUN)
        np.testing.assert_allclose(new.mean(of="X"), wanted.mean(of="X"), rtol=1e-8)
    assert fit.fold_in({"Y": labelled}, "j", **RUN).top(1, of="X")["j"][0] in ("new", "newer")


@pytest.mark.parametrize(
    ("data", "mask", "message"),
    [
        ({}, None, "X_new must have data for at least one of X, Y, got none"),
        ({"y": np.ones((2, 5))}, None, "unknown tensor 'y' in X_new: the model has X, Y"),
        ({"Y": np.ones((2, 5))}, {"X": np.ones((4, 2, 3))}, "mask names X, for which X_new has no data"),
        ({"Y": np.ones((2, 4))}, None, "X_new must have the sizes of the fit, but index 'm' is 4 in Y, and 5"),
        ({"Y": np.ones((1, 2, 5))}, None, r"Y must have 2 dimensions \(j, m\), got 3: shape \(1, 2, 5\)"),
        ({"Y": np.ones((0, 5))}, None, "Y has no cell: index 'j' has size 0"),
        ({"Y": np.full((2, 5), np.nan)}, None, "X and Y: at least one cell must be observed, but all are missing"),
    ],
)
def test_refused_data_of_some_tensors(data: Any, mask: Any, message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message):
        small_fit(COUPLED).fold_in(data, "j", mask=mask)


def test_an_index_that_another_tensor_observes() -> None:
    """m is observed in Y and summed in X: without Y it is latent, and of the size that it had."""
    model = pltf.Model("X[i,j] = A[i,m] * B[j,m]\nY[j,m] = B[j,m] * W[m]")
    rng = np.random.default_rng(0)
    fit = model.fit({"X": rng.poisson(2.0, (4, 3)), "Y": rng.poisson(2.0, (3, 5))}, **RUN)
    X = rng.poisson(2.0, (2, 3))
    new = fit.fold_in(X, "i", **RUN)
    assert_same(new, by_hand(fit, new, X, "i"), fit, "i")
    assert new.model == pltf.Model("X[i,j] = A[i,m] * B[j,m]", m=5)


# -- priors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("learn", ["mean", "shape", "both"])
@pytest.mark.parametrize("tie", ["factor", "component", "index:r", "index:j"])
def test_learned_priors_are_kept_as_values(tie: str, learn: str) -> None:
    model = pltf.Model("X[i,j,k] = A[i,j,r] * B[j,r] * C[k,r]", r=2)
    fit = small_fit(model, prior={"A": pltf.Gamma(0.7, 2.0, learn=learn, tie=tie)}, max_iter=30)
    new = fit.fold_in(rows("ijk", "i"), "i", **RUN)
    assert_same(new, by_hand(fit, new, rows("ijk", "i"), "i"), fit, "i")
    assert new.priors["A"].learn is None
    np.testing.assert_array_equal(new.priors["A"].mean, fit.priors["A"].mean)
    np.testing.assert_array_equal(new.priors["A"].shape, fit.priors["A"].shape)


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("learn", ["mean", "both"])
def test_what_was_learned_for_each_row_is_learned_for_each_new_row(learn: str, count: int) -> None:
    X = np.random.default_rng(1).poisson(3.0, (count, 5))
    prior = {"W": pltf.Gamma(0.7, 2.0, learn=learn, tie="index:i")}
    fit = pltf.nmf(rank=2).fit(X, prior=prior, max_iter=40, tol=0)
    new = fit.fold_in(3 * X[:1].repeat(2, axis=0), "i", max_iter=40, tol=0)
    assert new.priors["W"].learn == learn
    assert new.priors["W"].tie == "index:i"
    learned = [np.asarray(part) for part in (fit.priors["W"].shape, fit.priors["W"].mean)]
    shape, mean = (float(np.exp(np.log(part).mean())) if part.ndim else float(part) for part in learned)
    start = pltf.Gamma(shape, mean, learn=learn, tie="index:i")
    expected = by_hand(fit, new, 3 * X[:1].repeat(2, axis=0), "i", prior={"W": start}, max_iter=40)
    assert_same(new, expected, fit, "i")


def test_values_that_were_not_learned_are_kept_where_others_were() -> None:
    """Means are learned for each row; the shapes of the components were given, and hold for new rows too."""
    X = np.random.default_rng(1).poisson(3.0, (4, 5))
    given = pltf.Gamma([0.5, 5.0], 1.0, learn="mean", tie="index:i")
    fit = pltf.nmf(rank=2).fit(X, prior={"W": given}, **RUN)
    np.testing.assert_array_equal(fit.fold_in(X[:2], "i", **RUN).priors["W"].shape, [0.5, 5.0])


ALONG = r"the prior of W differs along 'i', so new rows have none: pass one with prior="


@pytest.mark.parametrize(
    "prior",
    [
        pltf.Gamma(np.arange(1.0, 5.0)[:, None], 2.0),
        pltf.Gamma(0.5, np.arange(1.0, 9.0).reshape(4, 2)),
        pltf.Gamma(np.arange(1.0, 5.0)[:, None], 2.0, learn="mean"),
        pltf.Gamma(np.arange(1.0, 5.0)[:, None], 2.0, learn="mean", tie="index:i"),
    ],
    ids=["shape", "mean", "shape, and a mean that is learned", "shape, and means that are learned for each row"],
)
def test_priors_that_differ_along_the_index_are_refused(prior: pltf.Gamma) -> None:
    fit = pltf.nmf(rank=2).fit(np.random.default_rng(1).poisson(3.0, (4, 5)), prior={"W": prior}, **RUN)
    with pytest.raises(pltf.PltfError, match=ALONG):
        fit.fold_in(np.ones((2, 5)), "i")
    other = pltf.Gamma(0.3, 4.0)
    new = fit.fold_in(np.ones((2, 5)), "i", prior=other, **RUN)
    assert_same(new, by_hand(fit, new, np.ones((2, 5)), "i", prior=other), fit, "i")
    assert fit.fold_in(np.ones((4, 3)), "j", **RUN).mean().shape == (4, 3)  # the other index is free of it


def test_arrays_that_do_not_differ_along_the_index_will_do() -> None:
    prior = {"W": pltf.Gamma([0.5, 2.0], [[3.0, 1.0]])}
    fit = pltf.nmf(rank=2).fit(np.random.default_rng(1).poisson(3.0, (4, 5)), prior=prior, **RUN)
    new = fit.fold_in(np.ones((2, 5)), "i", **RUN)
    assert_same(new, by_hand(fit, new, np.ones((2, 5)), "i"), fit, "i")


def test_a_prior_for_one_of_two_factors_leaves_the_other_as_learned() -> None:
    """The prior is as it was, unless another is given: what is said of A says nothing of N."""
    fit, X = fit_of("shared"), rows("ijk", "i")
    new = fit.fold_in(X, "i", prior={"A": pltf.Gamma(0.3, 4.0)}, **RUN)
    np.testing.assert_array_equal(new.priors["N"].mean, fit.priors["N"].mean)
    assert new.priors["A"].mean == 4.0


# -- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_predictions_know_that_the_others_are_uncertain(name: str) -> None:
    fit, X = fit_of(name), rows("ijk", "i")
    new = fit.fold_in(X, "i", **RUN)
    cell = (1, 2, 0)
    assert new.var()[cell] == pytest.approx(covariance(new, cell, cell), rel=1e-10)
    sure = by_hand(fit, new, X, "i").var()
    assert (new.var() > 1.01 * sure).all()
    drawn = new.sample(1000, [cell])[:, 0]
    assert drawn.var() == pytest.approx(new.var()[cell], rel=0.4)  # standard error: some 8 %


def test_rows_that_were_trained_on_are_found_again() -> None:
    """With the other factors at their means in place of their posteriors: nearly, not exactly."""
    rng = np.random.default_rng(0)
    X = rng.poisson(rng.gamma(1, 2, (30, 2)) @ rng.gamma(1, 2, (2, 25)))
    fit = pltf.nmf(rank=2).fit(X, tol=1e-9)
    new = fit.fold_in(X[:7], "i", tol=1e-9)
    np.testing.assert_allclose(new.mean(), fit.mean()[:7], rtol=0.1)
    for part in ("mean", "shape"):
        np.testing.assert_allclose(getattr(new.factors["W"], part), getattr(fit.factors["W"], part)[:7], rtol=0.1)


def test_a_fold_in_may_be_folded_into_and_gone_on_with() -> None:
    fit, X = fit_of("cp"), rows("ijk", "i")
    new = fit.fold_in(X, "i", **RUN)
    assert_same(new.fold_in(X, "i", **RUN), new, fit, "i")
    kept = {name: fit.factors[name].mean for name in "BC"}
    more = CP.fit(X, fixed=kept, prior=dict(new.priors), init=new, max_iter=3, tol=0)
    assert more.n_iter == 15
    assert more.bound >= new.bound
    assert new.components()["mass"].sum() == pytest.approx(np.nansum(X))
    with pytest.raises(pltf.PltfError, match="B was fixed in the fit, so its new rows have no prior: pass one with"):
        new.fold_in(np.ones((2, 3, 3)), "j")


def test_a_fit_that_has_not_converged_says_so_where_it_was_asked_for() -> None:
    with pytest.warns(pltf.ConvergenceWarning, match="the fit has not converged") as told:
        fit_of("cp").fold_in(rows("ijk", "i"), "i", max_iter=2)
    assert told[0].filename == __file__


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "index", "message"),
    [
        (np.ones((2, 3, 3)), "r", r"index must name an observed index of the model \(i, j, k\), got 'r'"),
        (np.ones((2, 3, 3)), 0, r"index must name an observed index of the model \(i, j, k\), got 0"),
        (np.ones((2, 3, 3)), ["i"], r"index must name an observed index of the model \(i, j, k\), got \['i'\]"),
        (
            np.ones((2, 4, 3)),
            "i",
            "X_new must have the sizes of the fit, but index 'j' is 4 in X, and 3 in the fit",
        ),
        (np.ones((3, 3)), "j", "X_new must have the sizes of the fit, but index 'i' is 3 in X, and 4 in"),
        (np.ones((4, 2, 2)), "j", "X_new must have the sizes of the fit, but index 'k' is 2 in X, and 3 in"),
        (np.ones(3), "i", r"X must have 3 dimensions \(i, j, k\), got 1: shape \(3,\)"),
        (np.ones((1, 2, 3, 3)), "i", r"X must have 3 dimensions \(i, j, k\), got 4: shape \(1, 2, 3, 3\)"),
        (np.ones((4, 3, 3, 1)), "j", r"X must have 3 dimensions \(i, j, k\), got 4: shape \(4, 3, 3, 1\)"),
        (np.ones((0, 3, 3)), "i", "X has no cell: index 'i' has size 0"),
        (np.full((2, 3, 3), np.nan), "i", "at least one cell must be observed, but all are missing"),
        (-np.ones((2, 3, 3)), "i", r"observed values must be >= 0, but cell \(0, 0, 0\) holds -1"),
        (None, "i", "X: expected real or integer numbers|X_new must"),
    ],
)
def test_refused_data(data: Any, index: Any, message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message):
        fit_of("cp").fold_in(data, index)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": np.ones((2, 3), dtype=bool)}, r"mask must .* \(2, 3, 3\)|mask must have the sizes of the fit"),
        ({"mask": np.ones((2, 4, 3), dtype=bool)}, "mask must have the sizes of the fit, but index 'j' is 4"),
        ({"mask": np.ones((1, 3, 3), dtype=bool)}, r"mask must have the shape of X, \(2, 3, 3\); got \(1, 3, 3\)"),
        ({"prior": {"B": pltf.Gamma(1.0, 1.0)}}, "prior names 'B', which is fixed and takes no prior"),
        ({"prior": 0.5}, "prior must be a Gamma or a mapping from factor to Gamma, got float"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1, got 0"),
        ({"tol": -1}, "tol must be a number from 0 to below 1, got -1"),
        ({"restarts": 0}, "restarts must be a whole number of at least 1, got 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"threads": 0}, "threads must be a whole number of at least 1, got 0"),
        ({"progress": None}, "progress must be True or False, got None"),
    ],
)
def test_refused_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message):
        fit_of("cp").fold_in(np.ones((2, 3, 3)), "i", **options)


def test_em_takes_no_prior() -> None:
    with pytest.raises(pltf.PltfError, match="method='em' has no prior"):
        small_fit(CP, method="em").fold_in(np.ones((2, 3, 3)), "i", prior=pltf.Gamma(1.0, 1.0))


def test_listed_rows_are_as_wide_as_the_fit() -> None:
    """Positions of a list, or of a table, need no shape: the fit knows it."""
    X = np.random.default_rng(0).poisson(1.0, (6, 5, 4))
    fit = pltf.cp(rank=2).fit(X)
    row = np.zeros((1, 5, 4))
    row[0, 3, 1], row[0, 1, 0] = 2, 1
    wanted = fit.fold_in(row, "i").factors["A"].mean
    cells, values = [(0, 3, 1), (0, 1, 0)], [2, 1]
    table = pd.DataFrame({"i": [0, 0], "j": [3, 1], "k": [1, 0], "n": values})
    for listed in (
        (cells, values),
        table.set_index(["i", "j", "k"])["n"],
        pltf.observe((cells, values), shape=(1, 5, 4)),
    ):
        np.testing.assert_allclose(fit.fold_in(listed, "i").factors["A"].mean, wanted, rtol=1e-6)
    sizes = pltf.nmf(rank=2).fit(X[0])
    one = sparse.coo_array(row[0, :, 1])
    wanted = sizes.fold_in(row[0, :, 1], "j").factors["H"].mean
    np.testing.assert_allclose(sizes.fold_in(one, "j").factors["H"].mean, wanted, rtol=1e-6)
    with pytest.raises(pltf.PltfError, match="mask requires that X_new is a plain array"):
        sizes.fold_in(one, "j", mask=np.ones(5))
    with pytest.raises(pltf.PltfError, match="row 0 has 9 for mode 1, which runs from 0 to 4"):
        fit.fold_in(([(0, 9, 1)], [1]), "i")
