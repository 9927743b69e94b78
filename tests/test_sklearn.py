"""PoissonNMF: a good citizen of scikit-learn, and pltf's own fit underneath."""

from __future__ import annotations

import pickle
import re
import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn.exceptions
from scipy import sparse, special
from sklearn.base import clone
from sklearn.decomposition import NMF
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import pltf
import pltf.sklearn
from pltf.datasets import draw
from pltf.sklearn import PoissonNMF
from tests.reference import Array

DRAWN = draw(pltf.nmf(rank=3), (60, 25), prior=pltf.Gamma(0.5, 2.0), seed=1)
X: Array = DRAWN.counts["X"].astype(np.float64)
RATES = DRAWN.rates["X"]
HOLES = np.random.default_rng(0).random(X.shape) < 0.2
WITH_HOLES: Array = np.where(HOLES, np.nan, X)
NAN = np.nan


def model(n_components: int = 3, **options: Any) -> PoissonNMF:
    return PoissonNMF(n_components, **{"random_state": 0, "n_init": 3} | options)


@cache
def fitted_model() -> PoissonNMF:
    return model().fit(X)


ESTIMATORS = [
    PoissonNMF(),
    PoissonNMF(n_components=1, prior_mean=1.0, n_init=2),
    PoissonNMF(n_components=3, prior_tie="component"),
]
CHECKS = [
    (estimator, check)
    for one in ESTIMATORS
    for estimator, check in estimator_checks_generator(one)
    if "array_api" not in check.func.__name__  # of those who claim to take arrays of other libraries
]


@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=[check.func.__name__ for _, check in CHECKS])
def test_scikit_learn_accepts_it(estimator: Any, check: Any) -> None:
    check(estimator)


def test_scikit_learn_has_checked_it_thoroughly() -> None:
    assert len(CHECKS) > 120


# -- pltf underneath ------------------------------------------------------------------------------


def test_it_is_the_fit_of_pltf() -> None:
    found = model(random_state=7, n_init=2).fit(WITH_HOLES)
    expected = pltf.nmf(rank=3).fit(WITH_HOLES, seed=7, restarts=2)
    np.testing.assert_array_equal(found.fit_.trace, expected.trace)
    np.testing.assert_array_equal(found.components_, expected.factors["H"].mean)
    assert (found.bound_, found.n_iter_) == (expected.bound, expected.n_iter)
    assert (found.n_components_, found.n_features_in_) == (3, 25)


@pytest.mark.parametrize(
    ("options", "prior"),
    [
        ({}, pltf.Gamma(0.5, 10.0, learn="mean")),
        ({"prior_mean": 2.0}, pltf.Gamma(0.5, 2.0)),
        ({"prior_mean": np.float32(2.0), "prior_shape": 1}, pltf.Gamma(1.0, 2.0)),
        ({"prior_shape": "learn"}, pltf.Gamma(learn="both")),
        ({"prior_shape": "learn", "prior_mean": 3}, pltf.Gamma(0.5, 3.0, learn="shape")),
        ({"prior_shape": 0.3, "prior_tie": "component"}, pltf.Gamma(0.3, 10.0, learn="mean", tie="component")),
    ],
)
def test_priors(options: dict[str, Any], prior: pltf.Gamma) -> None:
    expected = pltf.nmf(rank=3).fit(X, prior=prior, restarts=3)
    found = model(**options).fit(X)
    assert found.bound_ == expected.bound
    assert found.fit_.priors["W"].tie == prior.tie
    assert np.isfinite(found.transform(X)).all()


def test_means_by_component_prune() -> None:
    found = model(8, prior_tie="component").fit(X)
    assert found.fit_.effective_rank == 3


@pytest.mark.parametrize("data", [X, WITH_HOLES], ids=["whole", "with holes"])
def test_new_rows_are_a_fold_in(data: Array) -> None:
    """With this prior the bound of a row has one peak, and any start finds it."""
    new = fitted_model().fit_.fold_in(data, "i", tol=1e-10)
    np.testing.assert_allclose(fitted_model().transform(data), new.factors["W"].mean, rtol=1e-3, atol=1e-5)
    assert fitted_model().score(data) == pytest.approx(new.bound / np.isfinite(data).sum(), rel=1e-8)


def test_training_rows_are_near_what_the_fit_believes_of_them() -> None:
    W = fitted_model().transform(X)
    np.testing.assert_allclose(W, fitted_model().fit_.factors["W"].mean, rtol=0.1, atol=0.01 * W.max())
    np.testing.assert_allclose(
        fitted_model().inverse_transform(W), fitted_model().fit_.mean(), rtol=0.1, atol=0.01 * RATES.max()
    )
    np.testing.assert_array_equal(model().fit_transform(X), W)


@pytest.mark.parametrize(("prior_shape", "share"), [(0.5, 1.0), ("learn", 1.0), (0.1, 0.95)])
def test_a_row_depends_on_itself_alone(prior_shape: float | str, share: float) -> None:
    """A small shape gives a row many peaks: only rows that start alike end alike, wherever they stand."""
    fitted = model(5, prior_shape=prior_shape).fit(X)
    W, order = fitted.transform(WITH_HOLES), np.random.default_rng(1).permutation(len(X))
    alone = np.vstack([fitted.transform(row[None]) for row in WITH_HOLES])
    for other in (fitted.transform(WITH_HOLES[order])[np.argsort(order)], alone):
        moved = np.abs(other - W).max(axis=1) / W.max(axis=1)
        assert np.mean(moved < 1e-4) >= share


# -- batches --------------------------------------------------------------------------------------


def test_the_first_batch_is_a_fit() -> None:
    first, fitted = model().partial_fit(X), fitted_model()
    np.testing.assert_array_equal(first.components_, fitted.components_)
    assert (first.bound_, first.n_iter_, first.n_components_) == (fitted.bound_, fitted.n_iter_, 3)


def test_later_batches_update_the_components() -> None:
    """They are those of Fit.update, which keeps the rows of all batches, from posteriors that are not widened."""
    parts = np.array_split(WITH_HOLES, 3)
    found, fit = model(), pltf.nmf(rank=3).fit(parts[0], seed=0, restarts=3, dispersion=None)
    for number, part in enumerate(parts):
        found.partial_fit(part)
        fit = fit if number == 0 else replace(fit, spread=1.0).update(part, append="i", restarts=3)
        np.testing.assert_allclose(found.fit_.C["H"], fit.C["H"], rtol=1e-12)
        assert (found.bound_, found.n_iter_) == (fit.bound, fit.n_iter)
        assert found.fit_.sizes["i"] == len(part)
    assert fit.sizes["i"] == 60
    np.testing.assert_array_equal(found.components_, found.fit_.factors["H"].mean)
    assert found.fit_.batches["n_observed"].tolist() == [int(np.isfinite(one).sum()) for one in parts]
    assert found.fit_.priors["W"].learn == "mean"
    again = pickle.loads(pickle.dumps(found)).partial_fit(parts[0])
    np.testing.assert_array_equal(again.components_, found.partial_fit(parts[0]).components_)


def test_batches_come_close_to_a_fit_of_all() -> None:
    rows = np.random.default_rng(0).permutation(60)
    found = model(n_init=10)
    for part in np.array_split(X[rows], 4):
        found.partial_fit(part)
    first, whole = model(n_init=10).fit(X[rows[:15]]).score(X), fitted_model().score(X)
    assert whole - found.score(X) < 0.5 * (whole - first)


def test_batches_of_every_kind() -> None:
    names = [f"f{j}" for j in range(25)]
    table = pd.DataFrame(X, columns=names)
    found = model().partial_fit(table[:30]).partial_fit(table[30:])
    plain = model().partial_fit(X[:30]).partial_fit(sparse.csr_array(X[30:]))
    np.testing.assert_allclose(found.components_, plain.components_, rtol=1e-3, atol=1e-6)
    before = plain.components_
    nothing = plain.partial_fit(np.full((2, 25), NAN))
    np.testing.assert_array_equal(nothing.components_, before)
    one = plain.partial_fit(X[:1])
    assert one.fit_.sizes["i"] == 1
    np.testing.assert_array_equal(one.fit(X).components_, fitted_model().components_)  # begins anew


def test_batches_that_are_refused() -> None:
    found = model().partial_fit(X)
    with pytest.raises(ValueError, match="X has 24 features, but PoissonNMF is expecting 25 features"):
        found.partial_fit(X[:, 1:])
    with pytest.raises(ValueError, match="Negative values in data"):
        found.partial_fit(-X)
    with pytest.raises(pltf.PltfError, match="n_init must be a whole number of at least 1, got 0"):
        clone(found).set_params(n_init=0).partial_fit(X)
    with pytest.warns(sklearn.exceptions.ConvergenceWarning, match="reached the maximum of 2 iterations") as told:
        found.set_params(max_iter=2).partial_fit(X)
    assert told[0].filename == __file__


# -- what it finds --------------------------------------------------------------------------------


def deviance(x: Array, rate: Array) -> float:
    """Mean Kullback-Leibler divergence of cells."""
    return float(np.mean(special.xlogy(x, x) - special.xlogy(x, rate) - x + rate))


def test_it_stands_beside_nmf_of_scikit_learn() -> None:
    """As near to the counts as maximum likelihood, but for what the priors take; nearer to the rates behind them."""
    peer = NMF(3, beta_loss="kullback-leibler", solver="mu", init="nndsvda", max_iter=2000, tol=1e-6)
    theirs = peer.inverse_transform(peer.fit_transform(X))
    ours = fitted_model().inverse_transform(fitted_model().transform(X))
    assert deviance(X, theirs) <= deviance(X, ours) < 1.05 * deviance(X, theirs)
    assert deviance(RATES, ours) < deviance(RATES, theirs)
    for_many = model().fit(100 * X)  # where counts are large the priors no longer matter
    many = for_many.inverse_transform(for_many.transform(100 * X))
    assert deviance(100 * X, many) == pytest.approx(100 * deviance(X, theirs), rel=0.01)


def test_missing_cells_are_told() -> None:
    fitted = model().fit(WITH_HOLES)
    told = fitted.inverse_transform(fitted.transform(WITH_HOLES))[HOLES]
    assert np.corrcoef(told, RATES[HOLES])[0, 1] > 0.98
    assert deviance(X[HOLES], told) < 0.3 * deviance(X[HOLES], np.full(told.size, X[~HOLES].mean()))


@pytest.mark.parametrize("data", [X, WITH_HOLES, sparse.csr_array(X)], ids=["whole", "with holes", "sparse"])
def test_a_search_finds_the_order(data: Any) -> None:
    search = GridSearchCV(model(), {"n_components": [1, 2, 3, 4, 5]}, cv=KFold(3), error_score="raise")
    assert search.fit(data).best_params_ == {"n_components": 3}
    assert search.best_estimator_.score(data) == search.score(data)


def test_score_is_a_mean_over_observed_cells() -> None:
    twice = np.vstack([WITH_HOLES, WITH_HOLES])
    assert fitted_model().score(twice) == pytest.approx(fitted_model().score(WITH_HOLES), rel=1e-9)
    assert fitted_model().score(X) > fitted_model().score(np.random.default_rng(0).permuted(X, axis=1))


# -- data -----------------------------------------------------------------------------------------


def few(data: Any) -> PoissonNMF:
    """As many sweeps for dense and sparse data, before the acceleration makes much of the last digits."""
    return model(tol=0, max_iter=8).fit(data)


def assert_same(found: PoissonNMF, data: Any, expected: PoissonNMF, dense: Array) -> None:
    np.testing.assert_allclose(found.components_, expected.components_, rtol=1e-7)
    np.testing.assert_allclose(found.transform(data), expected.transform(dense), rtol=1e-7)
    np.testing.assert_allclose(found.score(data), expected.score(dense), rtol=1e-7)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csr_matrix])
def test_sparse_equals_dense(kind: str, make: Any) -> None:
    data = make(X).asformat(kind)
    found = few(data)
    assert found.fit_.engine == "sparse"
    assert_same(found, data, few(X), X)


def test_nan_in_sparse_data_is_missing() -> None:
    data = sparse.coo_array(WITH_HOLES)
    found, dense = few(data), few(WITH_HOLES)
    assert found.fit_.n_observed == dense.fit_.n_observed
    assert_same(found, data, dense, WITH_HOLES)


def test_cells_that_are_listed_twice_add_up() -> None:
    half = sparse.coo_array(X)
    cells = tuple(np.tile(at, 2) for at in half.coords)
    data = sparse.coo_array((np.tile(half.data / 2, 2), cells), shape=X.shape)
    indptr, indices = np.array([0, 2]), np.array([1, 1])
    row = sparse.csr_array((np.array([1.0, 2.0]), indices, indptr), shape=(1, 25))
    assert_same(few(data), data, few(X), X)
    np.testing.assert_allclose(fitted_model().transform(row), fitted_model().transform(np.eye(1, 25, 1) * 3), rtol=1e-6)
    assert row.data.tolist() == [1.0, 2.0]
    assert data.nnz == 2 * half.nnz


def test_masked_arrays_and_tables() -> None:
    expected = model().fit(WITH_HOLES)
    for data in (np.ma.masked_array(X.astype(int), HOLES), pd.DataFrame(X).mask(HOLES), WITH_HOLES.tolist()):
        found = model().fit(data)
        assert found.bound_ == expected.bound_
        np.testing.assert_array_equal(found.transform(data), expected.transform(WITH_HOLES))


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32, bool])
def test_any_real_type(dtype: Any) -> None:
    data = (X > 0) if dtype is bool else X.astype(dtype) if dtype is not np.uint8 else np.minimum(X, 255).astype(dtype)
    found = model().fit(data)
    assert found.bound_ == pytest.approx(model().fit(data.astype(float)).bound_, rel=1e-12)
    assert found.transform(data).dtype == np.float64


def test_inputs_stay_as_they_are() -> None:
    dense, listed = WITH_HOLES.copy(), sparse.csr_array(WITH_HOLES)
    for data in (dense, listed):
        model().fit(data).transform(data)
    np.testing.assert_array_equal(dense, WITH_HOLES)
    np.testing.assert_array_equal(listed.toarray(), WITH_HOLES)


@pytest.mark.parametrize(
    "data",
    [
        [[3.0]],
        [[3.0, 0.0, 1.0]],
        [[3.0], [0.0], [1.0]],
        [[NAN, NAN], [1.0, 2.0]],
        [[NAN, 1.0], [NAN, 2.0]],
        [[0.0, 0.0], [1.0, 2.0]],
        [[0.0, 1.0], [0.0, 2.0]],
        [[0.0, 0.0], [0.0, 0.0]],
        [[0.0, NAN], [NAN, NAN]],
        [[1e-9, 1e9], [1e9, 1e-9]],
    ],
    ids=str,
)
def test_small_and_empty_data(data: Any) -> None:
    rows = np.array(data)
    for given in (rows, sparse.csr_array(rows)):
        fitted = model(2).fit(given)
        W = fitted.transform(given)
        for found in (fitted.components_, W, fitted.inverse_transform(W), fitted.transform(np.full(rows.shape, 5.0))):
            assert np.isfinite(found).all()
            assert (found >= 0).all()
        assert np.isfinite(fitted.score(given))


def test_a_row_with_no_observed_cell_has_the_mean_of_the_prior() -> None:
    expected = np.full((1, 3), fitted_model().fit_.priors["W"].mean)
    empty: Array = np.full((1, 25), NAN)
    np.testing.assert_array_equal(fitted_model().transform(empty), expected)
    np.testing.assert_allclose(fitted_model().transform(np.vstack([X[:4], empty]))[4:], expected, rtol=1e-12)


# -- life in scikit-learn -------------------------------------------------------------------------


def test_random_state() -> None:
    def bound(random_state: Any) -> float:
        return float(PoissonNMF(3, random_state=random_state, max_iter=5, tol=0).fit(X).bound_)

    assert bound(3) == bound(3) == bound(np.int64(3)) != bound(4)
    assert bound(np.random.RandomState(3)) == bound(np.random.RandomState(3))
    state = np.random.RandomState(3)
    assert bound(state) != bound(state)
    assert bound(None) != bound(None)


def test_a_clone_is_unfitted_and_gives_the_same() -> None:
    again = clone(fitted_model())
    assert again.get_params() == fitted_model().get_params()
    with pytest.raises(sklearn.exceptions.NotFittedError):
        again.transform(X)
    assert again.fit(X).bound_ == fitted_model().bound_


def test_a_fit_that_failed_is_no_fit() -> None:
    failed = model()
    with pytest.raises(pltf.PltfError, match="at least one cell"):
        failed.fit(np.full((3, 2), NAN))
    for use in (failed.transform, failed.inverse_transform, failed.score):
        with pytest.raises(sklearn.exceptions.NotFittedError):
            use(np.ones((3, 2)))


def test_names_and_tables() -> None:
    table = pd.DataFrame(X, columns=[f"word {j}" for j in range(25)], index=range(100, 160))
    fitted = model().set_output(transform="pandas").fit(table)
    W = fitted.transform(table)
    assert W.columns.tolist() == ["poissonnmf0", "poissonnmf1", "poissonnmf2"]
    assert fitted.get_feature_names_out().tolist() == W.columns.tolist()
    assert W.index.equals(table.index)
    assert fitted.feature_names_in_[1] == "word 1"
    np.testing.assert_array_equal(fitted.inverse_transform(W), W.to_numpy() @ fitted.components_)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.transform(table[table.columns[::-1]])


def test_features_go_by_their_names_in_the_fit() -> None:
    words = [f"word {j}" for j in range(25)]
    plain, table = pd.DataFrame(WITH_HOLES), pd.DataFrame(WITH_HOLES, columns=words)
    unnamed, fitted = model().fit(plain), model().fit(table)
    assert list(fitted.fit_.labels["j"].index) == words
    assert {word for row in fitted.fit_.components()["H[j]"] for word in row} <= set(words)
    assert set(fitted.fit_.top(5)["j"]) <= set(words)
    assert "i" not in fitted.fit_.labels
    assert [fitted.bound_, fitted.score(table)] == [unnamed.bound_, unnamed.score(plain)]
    np.testing.assert_array_equal(fitted.components_, unnamed.components_)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(table), unnamed.transform(plain))
    assert again.fit_.labels == fitted.fit_.labels
    assert not clone(fitted).fit(WITH_HOLES).fit_.labels
    assert not fitted.fit(WITH_HOLES).fit_.labels, "names of an earlier fit"


def test_listed_features_go_by_their_names_too() -> None:
    listed = pd.DataFrame.sparse.from_spmatrix(sparse.csr_array(X), columns=[f"word {j}" for j in range(25)])
    assert model().fit(listed).fit_.labels["j"].at([3]).tolist() == ["word 3"]


def test_names_that_stand_twice_are_no_labels() -> None:
    fitted = model()
    fitted.feature_names_in_ = np.array(["a", "b", "a"], dtype=object)
    seen = pltf.observe(np.ones((2, 3)))
    assert fitted._named(seen) is seen


def test_sparse_weights_can_be_turned_back() -> None:
    W = np.diag([1.0, 2.0, 0.0])
    np.testing.assert_array_equal(fitted_model().inverse_transform(sparse.csr_array(W)), W @ fitted_model().components_)


def test_in_a_pipeline() -> None:
    rng, label = np.random.default_rng(0), np.arange(60) % 2
    counts = rng.poisson(rng.gamma(1.0, 4.0, (60, 1)) * rng.gamma(0.3, 1.0, (2, 25))[label]).astype(float)
    counts[rng.random(counts.shape) < 0.2] = NAN
    pipeline = Pipeline([("nmf", model()), ("scale", StandardScaler()), ("tell", LogisticRegression())])
    search = GridSearchCV(pipeline, {"nmf__n_components": [1, 2], "nmf__prior_mean": [1.0, "learn"]}, cv=3)
    search.fit(counts, label)
    assert search.best_params_["nmf__n_components"] == 2
    assert search.best_score_ > 0.9


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_searches_run_side_by_side(backend: str) -> None:
    grid = {"n_components": [2, 3]}
    alone = GridSearchCV(model(), grid, cv=2).fit(X)
    with joblib.parallel_config(backend=backend):
        together = GridSearchCV(model(), grid, cv=2, n_jobs=2, error_score="raise").fit(X)
    np.testing.assert_array_equal(together.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])


@pytest.mark.parametrize(
    ("said", "threads"), [("1", 1), ("0", 1), ("1,2", 1), ("", None), ("many", None), ("9999", None)]
)
def test_threads_are_those_of_openmp(said: str, threads: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert pltf.sklearn._threads() == (threads or pltf.threads.available_threads())


# -- warnings and refusals ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pltf.ConvergenceWarning, sklearn.exceptions.ConvergenceWarning])
def test_a_fit_that_has_not_settled_is_told_of_once(kind: type[Warning]) -> None:
    with pytest.warns(kind) as told:
        hasty = model(max_iter=4, n_init=1).fit(X)
    assert [str(one.message) for one in told] == [
        "PoissonNMF has not converged: reached the maximum of 4 iterations; raise max_iter or tol"
    ]
    assert told[0].filename == __file__
    assert hasty.n_iter_ == 4
    with pytest.warns(kind, match="has not converged: reached the maximum of 4 iterations"):
        hasty.transform(X)


def test_a_given_number_of_sweeps_is_no_failure() -> None:
    found = model(max_iter=4, tol=0).fit(X)
    assert found.n_iter_ == 4
    found.transform(X)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"n_components": 0}, "n_components must be a whole number of at least 1, got 0"),
        ({"n_components": 2.5}, "n_components must be a whole number of at least 1, got 2.5"),
        ({"n_components": "auto"}, "n_components must be a whole number of at least 1, got 'auto'"),
        ({"n_init": 0}, "n_init must be a whole number of at least 1, got 0"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1, got 0"),
        ({"tol": -1}, "tol must be a number from 0 to below 1, got -1"),
        ({"random_state": -1}, "random_state must be a whole number of at least 0, got -1"),
        ({"prior_shape": 0}, "prior_shape must be a positive number or 'learn', got 0"),
        ({"prior_shape": NAN}, "prior_shape must be a positive number or 'learn', got nan"),
        ({"prior_mean": True}, "prior_mean must be a positive number or 'learn', got True"),
        ({"prior_mean": "guess"}, "prior_mean must be a positive number or 'learn', got 'guess'"),
        ({"prior_mean": np.ones(3)}, "prior_mean must be a positive number or 'learn', got array([1., 1., 1.])"),
        ({"prior_tie": "index:i"}, "prior_tie must be one of 'factor', 'component'; got 'index:i'"),
        (
            {"prior_tie": "component", "prior_mean": 1.0},
            "prior_tie='component' needs prior_shape='learn' or prior_mean='learn', or both",
        ),
    ],
    ids=lambda case: "-".join(map(str, case)) if isinstance(case, dict) else "",
)
def test_bad_parameters(options: dict[str, Any], text: str) -> None:
    with pytest.raises(pltf.PltfError, match=f"^{re.escape(text)}$"):
        PoissonNMF(**options).fit(X)


def test_bad_random_state() -> None:
    with pytest.raises(ValueError, match="cannot be used to seed"):
        PoissonNMF(random_state="dice").fit(X)


NEGATIVE = "Negative values in data passed to PoissonNMF: X must be >= 0, but it holds -2.0"


@pytest.mark.parametrize("data", [[[NAN, -2.0], [1.0, 2.0]], sparse.csr_array([[0.0, -2.0]])], ids=["dense", "sparse"])
def test_negative_values(data: Any) -> None:
    fitted = model(1).fit(np.ones((2, 2)))
    for use in (clone(fitted).fit, fitted.transform, fitted.score):
        with pytest.raises(pltf.PltfError, match=f"^{re.escape(NEGATIVE)}$"):
            use(data)


def test_data_that_cannot_be_used() -> None:
    with pytest.raises(pltf.PltfError, match="at least one cell must be observed"):
        model().fit(np.full((3, 2), NAN))
    with pytest.raises(pltf.PltfError, match=r"^X must have an observed cell to be scored, but all are missing$"):
        fitted_model().score(np.full((3, 25), NAN))
    with pytest.raises(ValueError, match="infinity"):
        model().fit([[1.0, np.inf]])
    text = "X must have a column for each of the 3 components, as transform returns it; got 2"
    with pytest.raises(pltf.PltfError, match=f"^{text}$"):
        fitted_model().inverse_transform(np.ones((4, 2)))


def test_warnings_of_others_are_left_alone() -> None:
    before = list(warnings.filters)
    model().fit(X).transform(X)
    assert warnings.filters == before
