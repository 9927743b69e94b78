"""Data that keep coming: the posterior is the prior of the next batch, and nothing else changes."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, sparse, special, stats

import pltf
from pltf.options import FitOptions
from pltf.update import update
from tests.prediction import COUPLED, CP, SHARED, TRAIN, TUCKER, small_fit
from tests.reference import Array, Reference

MODELS = {"cp": CP, "tucker": TUCKER, "train": TRAIN, "shared": SHARED}
PLAIN_UPDATE: dict[str, Any] = {"tol": 0, "max_iter": 40}
SETTLED: dict[str, Any] = {"tol": 1e-12, "max_iter": 20_000}
PLAIN: dict[str, Any] = {"dispersion": None, "tol": 0, "max_iter": 40}


@cache
def fit_of(name: str) -> pltf.Fit:
    return small_fit(MODELS[name])


def batch(seed: int, shape: tuple[int, ...] = (4, 3, 3), holes: float = 0.2) -> Array:
    """Counts with holes."""
    rng = np.random.default_rng(100 + seed)
    X = rng.poisson(1.5, shape).astype(float)
    X[rng.random(shape) < holes] = np.nan
    return X


def past(fit: pltf.Fit, forget: float = 0.0) -> tuple[dict[str, Array], dict[str, Array]]:
    """Shape and rate of the prior of the next batch, from the textbook: a product of powers of densities.

    The counts behind the posterior are divided by its spread before; means stay.
    """
    shape, rate = {}, {}
    for a in fit.C:
        A, B = fit.priors[a].broadcast(fit.C[a].shape)
        C = np.where(fit.C[a] > A, A + (fit.C[a] - A) / fit.spread, fit.C[a])
        shape[a] = 1 + (1 - forget) * (C - 1) + forget * (A - 1)
        rate[a] = (1 - forget) * C / (fit.C[a] * fit.D[a]) + forget * A / B
    return shape, rate


def reference(fit: pltf.Fit, X: Mapping[str, Array], forget: float = 0.0) -> Reference:
    """The slow program, with the past as its prior."""
    shape, rate = past(fit, forget)
    known = {name: ~np.isnan(one) for name, one in X.items()}
    data = {name: np.nan_to_num(one) for name, one in X.items()}
    return Reference(fit.model, data, known, shape, {a: shape[a] / rate[a] for a in shape})


def assert_same(one: pltf.Fit, other: pltf.Fit, rtol: float = 0.0) -> None:
    for a in one.C:
        np.testing.assert_allclose(one.C[a], other.C[a], rtol=rtol, err_msg=a)
        np.testing.assert_allclose(one.D[a], other.D[a], rtol=rtol, err_msg=a)


# -- the recursion --------------------------------------------------------------------------------


@pytest.mark.parametrize("forget", [0.0, 0.3])
@pytest.mark.parametrize("name", MODELS)
def test_plain_sweeps_are_those_of_the_slow_program(name: str, forget: float) -> None:
    fit, X = fit_of(name), batch(1)
    slow = reference(fit, {"X": X}, forget)
    E = {a: slow.mean[a] for a in slow.mean}
    L = {a: np.exp(special.digamma(slow.shape[a])) * E[a] / slow.shape[a] for a in E}
    bounds, C, D = slow.vb(L, 7, E)
    options = FitOptions(tol=0, max_iter=7, accelerate=False)
    with warnings.catch_warnings(action="ignore"):
        new = update(fit, X, mask=None, forget=forget, append=(), zeros=(), options=options)
    np.testing.assert_allclose(new.trace, bounds, rtol=1e-10)
    for a in C:
        np.testing.assert_allclose(new.C[a], C[a], rtol=1e-9)
        np.testing.assert_allclose(new.D[a], D[a], rtol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_it_ends_where_a_plain_sweep_changes_nothing(name: str) -> None:
    fit, X = fit_of(name), batch(2)
    new = fit.update(X, **SETTLED)
    (bound,), C, D = reference(fit, {"X": X}).vb(
        {a: z.geomean for a, z in new.factors.items()}, 1, {a: z.mean for a, z in new.factors.items()}
    )
    assert new.bound == pytest.approx(bound, rel=1e-10)
    for a in C:
        np.testing.assert_allclose(new.C[a] * new.D[a], C[a] * D[a], rtol=2e-3, atol=1e-4)


def test_with_one_free_factor_batches_are_as_good_as_all_at_once() -> None:
    """Conjugacy: the posterior is exact, whatever the order of the data, and the bounds are exact and add up."""
    rng, H, prior = np.random.default_rng(0), np.array([[0.5, 2.0, 1.0, 0.0]]), pltf.Gamma(0.7, 2.0)
    X, keep = rng.poisson(2.0, (6, 4, 3)).astype(float), rng.random((6, 4, 3)) < 0.7
    X[..., 3, :] = 0
    fit = pltf.nmf(rank=1).fit(X[..., 0], mask=keep[..., 0], prior=prior, fixed={"H": H}, **PLAIN)
    for t in (1, 2):
        fit = fit.update(X[..., t], mask=keep[..., t])
    stacked = pltf.Model("X[i,j,t] = W[i,r] * H[r,j] * T[t]", r=1)  # rates are those of one batch
    whole = stacked.fit(X, mask=keep, prior=prior, fixed={"H": H, "T": np.ones(3)}, **PLAIN)
    np.testing.assert_allclose(fit.C["W"], whole.C["W"], rtol=1e-14)
    np.testing.assert_allclose(fit.D["W"], whole.D["W"], rtol=1e-14)
    assert fit.batches["bound"].sum() == pytest.approx(whole.bound, rel=1e-12)


@pytest.mark.filterwarnings("ignore:the new data have a total")
def test_forgetting_all_is_beginning_anew() -> None:
    X = np.random.default_rng(3).poisson(np.outer([9, 1, 5, 2], [7, 2, 1, 3]))
    prior = pltf.Gamma(0.5, 3.0)
    fit = pltf.nmf(rank=1).fit(100 + 0 * X, prior=prior, **PLAIN)
    anew = pltf.nmf(rank=1).fit(X, prior=prior, **SETTLED)
    nearly = [fit.update(X, forget=1 - eps, **SETTLED) for eps in (1e-2, 1e-5, 1e-9)]
    gaps = [abs(one.bound - anew.bound) for one in nearly]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-5
    np.testing.assert_allclose(nearly[2].mean(), anew.mean(), rtol=1e-5)


# -- the bound --------------------------------------------------------------------------------------


def test_the_bound_is_below_the_evidence_of_the_batch() -> None:
    """log p(new | posterior before) of one cell with two factors: one is integrated out by hand, the other here."""
    fit = pltf.nmf(rank=1).fit(np.array([[4.0]]), prior=pltf.Gamma(2.0, 1.5), **PLAIN)
    for forget in (0.0, 0.5):
        shape, rate = past(fit, forget)
        (C, D), (c, d) = ((shape[a][0, 0], 1 / rate[a][0, 0]) for a in "WH")

        def density(w: float, C: float = C, D: float = D, c: float = c, d: float = d) -> float:
            return float(stats.gamma.pdf(w, C, scale=D) * stats.nbinom.pmf(7, c, 1 / (1 + w * d)))

        evidence, _ = integrate.quad(density, 0, np.inf, epsabs=1e-12)
        bound = fit.update(np.array([[7.0]]), forget=forget, **SETTLED).bound
        assert bound < np.log(evidence) < bound + 0.2


def test_of_one_free_factor_the_bound_is_the_evidence() -> None:
    """A Poisson count with a Gamma rate is negative binomial."""
    fit = pltf.nmf(rank=1).fit(np.array([[4.0], [1.0]]), prior=pltf.Gamma(2.0, 1.5), fixed={"H": [[1.0]]}, **PLAIN)
    C, rate = fit.C["W"][:, 0], 1 / fit.D["W"][:, 0]
    expected = stats.nbinom.logpmf([7, 0], C, rate / (rate + 1)).sum()
    assert fit.update(np.array([[7.0], [0.0]])).bound == pytest.approx(expected, rel=1e-12)


def test_the_trace_rises_to_the_bound_and_batches_are_told() -> None:
    fit = fit_of("cp")
    new = fit.update(batch(1), forget=0.25).update(batch(2))
    assert (np.diff(new.trace) >= -1e-9).all()
    assert new.trace[-1] == new.bound
    table = new.batches
    assert table["forget"].tolist() == [0.0, 0.25, 0.0]
    assert table["bound"].tolist()[::2] == [fit.bound, new.bound]
    assert table["n_observed"].tolist()[0] == fit.n_observed["X"]
    assert fit.batches["bound"].tolist() == [fit.bound]
    assert [note for note in new.notes if "3 batches" in note]
    assert not [note for note in new.notes if "2 batches" in note]


# -- nothing, zeros, a lot ------------------------------------------------------------------------


@pytest.mark.parametrize("forget", [0.0, 0.4])
def test_nothing_new(forget: float) -> None:
    """The posterior stays, or fades; the evidence of nothing is 1."""
    fit = fit_of("tucker")
    new = fit.update(np.full((4, 3, 3), np.nan), forget=forget)
    shape, rate = past(fit, forget)
    for a in fit.C:
        np.testing.assert_allclose(new.C[a], shape[a], rtol=1e-14)
        np.testing.assert_allclose(new.D[a], 1 / rate[a], rtol=1e-14)
    assert (new.bound, new.trace.tolist(), new.converged, new.n_iter) == (0.0, [0.0], True, 1)
    assert new.n_observed == fit.n_observed
    if not forget:
        assert_same(new, fit)
        np.testing.assert_array_equal(new.mean(), fit.mean())


def test_zeros_are_data() -> None:
    """They bring exposure and no counts."""
    fit = pltf.nmf(rank=1).fit(np.full((3, 2), 4.0), prior=pltf.Gamma(0.5, 3.0), fixed={"H": [[1.0, 2.0]]}, **PLAIN)
    new = fit.update(np.zeros((3, 2)))
    np.testing.assert_array_equal(new.C["W"], fit.C["W"])
    np.testing.assert_allclose(1 / new.D["W"], 1 / fit.D["W"] + 3.0, rtol=1e-14)
    free = fit_of("cp").update(np.zeros((4, 3, 3)))
    assert (free.mean() < fit_of("cp").mean()).all()
    assert free.converged


def test_counts_that_have_become_huge_settle_by_rounding() -> None:
    rng = np.random.default_rng(0)
    rates = 1e7 * rng.gamma(0.5, 2.0, (12, 2)) @ rng.gamma(0.5, 2.0, (2, 9))
    fit = pltf.nmf(rank=2).fit(rng.poisson(rates), dispersion=None, restarts=2)
    with warnings.catch_warnings(action="error"):
        for _ in range(3):
            fit = fit.update(rng.poisson(rates))
    assert fit.converged


@pytest.mark.parametrize(("shape", "forget"), [(0.5, 0.0), (0.3, 0.1)])
def test_components_that_were_alike_part(shape: float, forget: float) -> None:
    """A posterior without a count is the same for all components: from there sweeps could not tell them apart.

    Forgetting rounds: 0.9 * 0.3 + 0.1 * 0.3 is more than 0.3, and no count stands behind that.
    """
    X = np.kron(np.diag([9, 7]), np.ones((5, 4)))
    prior = pltf.Gamma(shape, 1.0)
    nothing = pltf.nmf(rank=2).fit(pltf.observe(np.zeros((10, 8)), np.eye(10, 8) > 0), prior=prior, **PLAIN)
    new = nothing.update(X, restarts=5, forget=forget)
    assert new.effective_rank == 2
    assert len(new.restarts) == 5
    assert new.restarts["bound"].nunique() > 1


def test_new_rows_part_too() -> None:
    """All rows are new but those of one factor."""
    X = np.kron(np.diag([9, 7]), np.ones((5, 4)))
    fit = pltf.nmf(rank=2).fit(X, restarts=3, dispersion=None)
    new = fit.update(np.vstack([X, X[::-1]]), append="i")
    assert new.sizes["i"] == 30
    np.testing.assert_allclose(new.mean()[10:], np.vstack([X, X[::-1]]), atol=1.0)


# -- labels ---------------------------------------------------------------------------------------

USERS, PLACES = ["ann", "bob", "cid", "dee"], ["bar", "gym", "pool"]


def events(n: int, users: list[Any], places: list[str], seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"user": rng.choice(users, n), "place": rng.choice(places, n)})
    return table.astype({"user": object}) if isinstance(users[0], str) else table


@cache
def visits() -> pltf.Fit:
    return pltf.nmf(("user", "place"), rank=2).fit(events(200, USERS, PLACES), restarts=3)


def test_rows_go_by_their_labels() -> None:
    """Another order, and only some of them: the rows that are there learn, the others stay, new ones are added."""
    new = visits().update(events(90, ["zoe", "dee", "bob"], ["pool", "zoo", "bar"], seed=1), **SETTLED)
    assert new.labels["user"].names() == [*USERS, "zoe"]
    assert new.labels["place"].names() == [*PLACES, "zoo"]
    assert (new.sizes["user"], new.sizes["place"]) == (5, 4)
    for name, axis, absent, present in (("W", 0, [0, 2], [1, 3]), ("H", 1, [1], [0, 2])):
        before, after = (np.moveaxis(one.C[name], axis, 0) for one in (visits(), new))
        np.testing.assert_array_equal(after[absent], before[absent])
        assert (after[present].sum(axis=1) > before[present].sum(axis=1)).all()
    np.testing.assert_array_equal(new.D["W"][[0, 2]], visits().D["W"][[0, 2]])


def test_it_is_the_update_of_the_whole_tensor_in_which_absent_rows_are_missing() -> None:
    """Only rows with data take part: the others would not change anything."""
    table = events(90, ["dee", "bob"], ["pool", "bar"], seed=1)
    whole = np.full((4, 3), np.nan)
    whole[np.ix_([1, 3], [0, 2])] = 0
    np.add.at(whole, (pd.Index(USERS).get_indexer(table["user"]), pd.Index(PLACES).get_indexer(table["place"])), 1)
    some, all_of_them = visits().update(table, **SETTLED), visits().update(whole, **SETTLED)
    assert some.bound == pytest.approx(all_of_them.bound, rel=1e-9)
    assert_same(some, all_of_them, rtol=1e-4)


def test_the_order_of_rows_and_labels_does_not_matter() -> None:
    table = events(90, ["dee", "bob", "ann"], PLACES, seed=1)
    new = visits().update(table)
    assert_same(visits().update(table.iloc[::-1][["place", "user"]]), new)
    users = pd.CategoricalDtype(["dee", "ann", "bob"])
    other = visits().update(table.astype({"user": users}), **SETTLED)
    assert_same(other, visits().update(table, **SETTLED), rtol=1e-5)
    array = table.groupby(["user", "place"]).size().to_xarray().fillna(0)
    assert_same(visits().update(array.transpose("place", "user")[::-1], **SETTLED), other, rtol=1e-5)


def test_labels_that_have_no_row_are_told_by_whoever_has_them() -> None:
    """A category, or a label given to observe, is there with zeros."""
    table, everybody = events(90, ["bob", "dee"], PLACES, seed=1), {"user": USERS, "place": PLACES}
    new = visits().update(pltf.observe(table, dims=["user", "place"], labels=everybody))
    assert (1 / new.D["W"][0] > 1 / visits().D["W"][0]).all()
    assert_same(new, visits().update(table, zeros="user"))
    assert_same(new, visits().update(table, zeros=["user", "place"]))


@pytest.mark.filterwarnings("ignore:the new data have a total")
def test_absent_labels_may_be_zeros() -> None:
    new = visits().update(events(9, ["zoe"], ["zoo"], seed=1), zeros="place")
    assert new.sizes["place"] == 4
    assert (1 / new.D["H"] > 1 / np.pad(visits().D["H"], ((0, 0), (0, 1)), constant_values=np.inf)).all()
    np.testing.assert_array_equal(new.C["W"][:4], visits().C["W"])
    nobody = visits().update(events(0, ["ann"], ["bar"]), zeros=("user", "place"))
    assert nobody.bound < 0
    assert visits().update(events(0, ["ann"], ["bar"]), zeros="user").bound == 0.0


@pytest.mark.parametrize(
    ("first", "then", "names"),
    [
        ([3, 1, 2], [2, 7], ["1", "2", "3", "7"]),
        ([3, 1, 2], [2.0, 7.0], ["1", "2", "3", "7"]),
        ([0.5, 1.5], [1, 2], ["0.5", "1.5", "1.0", "2.0"]),
        ([True, False], [True], ["False", "True"]),
    ],
)
def test_labels_keep_their_type(first: list[Any], then: list[Any], names: list[str]) -> None:
    fit = pltf.nmf(("user", "place"), rank=1).fit(events(30, first, PLACES))
    new = fit.update(events(30, then, PLACES))
    assert new.labels["user"].names() == names
    assert new.labels["user"].index.dtype == fit.labels["user"].index.dtype


@pytest.mark.filterwarnings("ignore:the new data have a total")
def test_dates_are_binned_as_before(tmp_path: Path) -> None:
    days = pd.DataFrame({"when": pd.date_range("2026-11-02", periods=21, freq="D"), "place": ["bar", "gym", "gym"] * 7})
    model = pltf.nmf(("when", "place"), rank=1)
    fit = model.fit(pltf.observe(days[:14], dims=["when:week", "place"]))
    fit.save(tmp_path / "run.nc")
    for one in (fit, pltf.load(tmp_path / "run.nc")):
        assert isinstance(one, pltf.Fit)
        new = one.update(days[10:])
        assert new.labels["when"].names() == ["2026-11-02", "2026-11-09", "2026-11-16"]
        assert new.labels["when"].bin == "week"
    hours = days.assign(when=days["when"] + pd.to_timedelta(np.arange(21) % 3, unit="h"))
    of_day = model.fit(pltf.observe(hours, dims=["when:hourofday", "place"]))
    assert of_day.update(hours[:2]).sizes["when"] == 24


def test_new_rows_begin_at_the_learned_prior() -> None:
    """A new label without data has the prior; one learned for each row has the geometric mean of them."""
    fit = pltf.nmf(("user", "place"), rank=2).fit(
        events(200, USERS, PLACES), prior={"W": pltf.Gamma(0.5, 1.0, "mean", "index:user")}, **PLAIN
    )
    labels = {"user": ["zoe"], "place": PLACES}
    cells: dict[str, Any] = {"shape": (1, 3), "missing": [(0, 0), (0, 1), (0, 2)]}
    new = fit.update(pltf.observe((np.empty((0, 2), int), []), **cells, dims=("user", "place"), labels=labels))
    typical = np.exp(np.log(fit.priors["W"].mean).mean())
    np.testing.assert_allclose(new.C["W"][4], 0.5)
    np.testing.assert_allclose(new.D["W"][4], typical / 0.5, rtol=1e-12)
    assert np.shape(new.priors["W"].mean) == (5, 1)
    assert new.priors["H"] is not None
    again = new.update(events(30, ["zoe"], PLACES))
    assert (again.C["W"][4] > 0.5).any()


# -- storages, tensors, likelihoods ---------------------------------------------------------------


def forms(X: Array) -> dict[str, tuple[Any, Any]]:
    """The same data in several storages."""
    full = np.nan_to_num(X, nan=7.0)
    cells = np.argwhere(~np.isnan(X) & (X > 0))
    listed = cells, X[tuple(cells.T)]
    return {
        "nan": (X, None),
        "mask": (full, ~np.isnan(X)),
        "ma": (np.ma.masked_array(full, np.isnan(X)), None),
        "list": (pltf.observe(listed, shape=X.shape, missing=np.argwhere(np.isnan(X))), None),
        "float32": (X.astype(np.float32), None),
    }


@pytest.mark.parametrize("form", ["mask", "ma", "list", "float32"])
def test_every_storage_has_the_same_posterior(form: str) -> None:
    fit, X = fit_of("cp"), batch(1)
    data, mask = forms(X)[form]
    new, expected = fit.update(data, mask=mask, **SETTLED), fit.update(X, **SETTLED)
    assert_same(new, expected, rtol=1e-4)
    assert new.bound == pytest.approx(expected.bound, rel=1e-9)
    assert new.n_observed == expected.n_observed


def test_lists_and_sparse_matrices() -> None:
    X = np.random.default_rng(0).poisson(0.5, (6, 5))
    fit = pltf.nmf(rank=2).fit(sparse.coo_array(X), dispersion=None)
    cells = np.argwhere(X)
    expected = fit.update(sparse.coo_array(X))
    assert_same(fit.update((cells, X[tuple(cells.T)])), expected)
    assert expected.n_observed == {"X": 30}
    more = fit.update((np.array([[0, 1], [2, 3]]), [4, 1]), append="i")
    assert more.sizes["i"] == 9
    table = pd.DataFrame(cells, columns=["i", "j"]).assign(n=X[tuple(cells.T)])
    assert_same(fit.update(table.set_index(["i", "j"])["n"]), expected)


def test_coupled_tensors_may_come_alone() -> None:
    fit = small_fit(COUPLED)
    new = fit.update({"Y": np.full((3, 5), 4)}, **SETTLED)
    for a in ("A", "C"):
        np.testing.assert_array_equal(new.C[a], fit.C[a])
    (bound,), C, D = reference(fit, {"X": np.full((4, 3, 3), np.nan), "Y": np.full((3, 5), 4.0)}).vb(
        {a: z.geomean for a, z in new.factors.items()}, 1, {a: z.mean for a, z in new.factors.items()}
    )
    assert new.bound == pytest.approx(bound, rel=1e-9)
    np.testing.assert_allclose(new.C["B"] * new.D["B"], C["B"] * D["B"], rtol=2e-3)
    assert new.batches["n_observed"].tolist() == [sum(fit.n_observed.values()), 15]
    both = fit.update({"X": batch(1), "Y": batch(2, (3, 5))})
    assert both.history[-1].n_observed["Y"] == np.isfinite(batch(2, (3, 5))).sum()


def test_rows_that_only_one_of_two_tensors_has() -> None:
    """New items of which a coupled tensor knows nothing: their cells there are missing."""
    fit = small_fit(COUPLED)
    new = fit.update({"Y": np.full((2, 5), 4)}, append="j")
    assert new.mean(of="X").shape == (4, 5, 3)
    assert new.n_observed == {**fit.n_observed, "Y": 25}
    assert new.patterns["X"].observed(np.array([[0, 0], [3, 0], [0, 0]])).tolist() == [False, True]
    assert len(new.top(3, of="X", unsupported=True)) == 3


def test_fixed_factors_stay() -> None:
    C = np.ones((3, 2))
    fit = small_fit(CP, fixed={"C": C})
    new = fit.update(batch(1))
    assert isinstance(new.factors["C"], pltf.Point)
    np.testing.assert_array_equal(new.factors["C"].mean, C)
    assert new.fixed == {"C"}
    with pytest.raises(pltf.PltfError, match="C was fixed in the fit, so it has no values for new rows"):
        fit.update(batch(1), append="k")


def test_links() -> None:
    rng = np.random.default_rng(0)
    X = (rng.random((8, 7)) < 0.3).astype(float)
    fit = pltf.nmf(rank=2).fit(X, likelihood="bernoulli")
    new = fit.update(X)
    assert new.likelihoods == {"X": "bernoulli"}
    assert abs(new.prob() - X).sum() < abs(fit.prob() - X).sum()
    with pytest.raises(pltf.PltfError, match="X must hold only 0 and 1"):
        fit.update(2 * X)


def test_float32_threads_and_seeds() -> None:
    fit = small_fit(CP, dtype="float32", max_iter=30)
    with warnings.catch_warnings(action="ignore"):
        one, other = (fit.update(batch(1), threads=threads) for threads in (1, 2))
        assert_same(one, other)
        drawn = [fit.update(batch(1), append="i", seed=seed) for seed in (0, 0, 1)]
    assert one.dtype == "float32"
    assert_same(drawn[0], drawn[1])
    assert (drawn[0].C["A"] != drawn[2].C["A"]).any()


def test_a_fold_in_and_a_resumed_fit_can_be_updated() -> None:
    folded = fit_of("cp").fold_in(batch(3, (2, 3, 3)), "i")
    new = folded.update(batch(4, (2, 3, 3)))
    np.testing.assert_array_equal(new.C["B"], folded.C["B"])
    assert (new.C["A"] != folded.C["A"]).any()
    updated = fit_of("cp").update(batch(1))
    assert CP.fit(batch(1), init=updated, max_iter=3, tol=0).n_iter == 3
    assert updated.fold_in(batch(3, (1, 3, 3)), "i").sizes["i"] == 1


# -- what a user asks -----------------------------------------------------------------------------


def test_missing_cells_are_those_that_no_batch_has_observed() -> None:
    X, Y = batch(1, holes=0.5), batch(2, holes=0.5)
    new = CP.fit(X, **PLAIN).update(Y)
    both = np.isnan(X) & np.isnan(Y)
    assert new.n_observed == {"X": int((~both).sum())}
    table = new.top(100, among="missing", unsupported=True)
    assert {tuple(cell) for cell in table[["i", "j", "k"]].values.tolist()} == {tuple(c) for c in np.argwhere(both)}
    zeros = new.top(100, among="zero", unsupported=True)
    assert len(zeros) == int((~both & ~(np.fmax(np.nan_to_num(X), np.nan_to_num(Y)) > 0)).sum())


def test_components_count_all_batches() -> None:
    fit = fit_of("cp")
    X = batch(1)
    total = fit.components()["mass"].sum()
    assert fit.update(X).components()["mass"].sum() == pytest.approx(total + np.nansum(X))
    assert fit.update(X, forget=0.5).components()["mass"].sum() == pytest.approx(total / 2 + np.nansum(X))


def test_predictions_of_the_next_batch_get_surer() -> None:
    rng = np.random.default_rng(0)
    rates = rng.gamma(1.0, 1.0, (30, 2)) @ rng.gamma(1.0, 2.0, (2, 20))
    fit = pltf.nmf(rank=2).fit(rng.poisson(rates), restarts=3)
    first, errors = fit, []
    for _ in range(4):
        errors.append(float(np.sqrt(((fit.mean() - rates) ** 2).mean())))
        fit = fit.update(rng.poisson(rates))
    assert errors[-1] < 0.7 * errors[0]
    assert fit.var().sum() < 0.3 * first.var().sum()


def test_predictions_are_as_wide_as_those_of_a_fit_of_all() -> None:
    rng = np.random.default_rng(0)
    rates = rng.gamma(0.5, 2.0, (40, 3)) @ rng.gamma(0.5, 2.0, (3, 25))
    X = rng.poisson(rates, (5, 40, 25))
    whole = pltf.nmf(rank=3).fit(X.sum(axis=0), restarts=3, dispersion=None)
    fit = pltf.nmf(rank=3).fit(X[0], restarts=3, dispersion=None)
    for one in X[1:]:
        fit = fit.update(one)
    assert whole.spread > 1.5
    assert fit.var().sum() == pytest.approx(whole.var().sum() / 25, rel=0.1)
    few = fit.update(pltf.observe(X[0], np.random.default_rng(0).random((40, 25)) < 0.01))
    assert few.spread == fit.spread


def test_dispersion_is_judged_by_new_data() -> None:
    rng = np.random.default_rng(0)
    rates = 20 * rng.gamma(2.0, 0.5, (40, 1)) @ rng.gamma(2.0, 0.5, (1, 30))
    size = 2.0
    counts = rng.negative_binomial(size, size / (size + rates), (3, 40, 30))
    fit = pltf.nmf(rank=1).fit(counts[0])
    new = fit.update(counts[1])
    assert new.dispersion["X"].cells > fit.dispersion["X"].cells
    assert float(new.dispersion["X"].size) == pytest.approx(size, rel=0.3)
    few = new.update(pltf.observe(counts[2], rng.random((40, 30)) < 0.3))
    assert few.dispersion["X"] is new.dispersion["X"]  # fewer cells tell less
    given = pltf.nmf(rank=1).fit(counts[0], dispersion=7.0).update(counts[1])
    assert given.dispersion["X"].size == 7.0
    assert pltf.nmf(rank=1).fit(counts[0], dispersion=None).update(counts[1]).dispersion == {}
    along = pltf.nmf(rank=1).fit(counts[0], dispersion="index:i").update(counts[1][:3], append="i")
    assert np.shape(along.dispersion["X"].size) == (43,)


def test_without_its_data() -> None:
    fit = CP.fit(batch(1), keep_data=False, **PLAIN)
    new = fit.update(batch(2))
    assert not new.keeps_data
    assert new.n_observed == {"X": max(int(np.isfinite(batch(n)).sum()) for n in (1, 2))}
    kept = CP.fit(batch(1), **PLAIN)
    assert_same(kept.update(batch(2)), new)
    assert not kept.update(batch(2), keep_data=False).keeps_data
    listed = pltf.nmf(rank=1).fit(sparse.coo_array(np.eye(4)), keep_data=False)
    assert listed.update(sparse.coo_array(np.eye(4))).history[-1].n_observed == {"X": 16}


def test_files_and_pickles(tmp_path: Path) -> None:
    table = events(90, ["zoe", "dee", "bob"], ["pool", "zoo"], seed=1)
    new = visits().update(table, forget=0.1)
    new.save(tmp_path / "run.nc")
    for again in (pltf.load(tmp_path / "run.nc"), pickle.loads(pickle.dumps(new))):
        assert isinstance(again, pltf.Fit)
        assert again.history == new.history
        assert again.notes == new.notes
        assert_same(again, new)
        assert_same(again.update(table), new.update(table))
        assert again.update(table).n_observed == new.update(table).n_observed
    assert "3 batches" in repr(new.update(table).notes)


def test_the_evidence_of_several_batches_is_refused() -> None:
    with pytest.raises(pltf.PltfError, match="the evidence is defined for one batch of data"):
        fit_of("cp").update(batch(1)).evidence()


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"forget": 1.0}, "forget must be a number from 0 to below 1, got 1.0"),
        ({"forget": -0.1}, "forget must be a number from 0 to below 1, got -0.1"),
        ({"forget": True}, "forget must be a number from 0 to below 1, got True"),
        ({"forget": float("nan")}, "forget must be a number from 0 to below 1, got nan"),
        ({"forget": "much"}, "forget must be a number from 0 to below 1, got 'much'"),
        ({"append": "r"}, r"append must name an observed index of the model \(i, j, k\), or several; got 'r'"),
        ({"append": 3}, "append must name an observed index"),
        ({"append": [["i"]]}, "append must name an observed index"),
        ({"zeros": "i"}, "zeros names 'i', which has no labels in the fit: data without labels have all positions"),
        ({"mask": {"Y": np.ones((4, 3, 3))}}, "unknown tensor 'Y' in mask: the model has X"),
        ({"mask": np.ones((2, 2))}, r"mask must have the shape of X, \(4, 3, 3\); got \(2, 2\)"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1, got 0"),
    ],
)
def test_refused_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message) as refused:
        fit_of("cp").update(batch(1), **options)
    assert refused.value.argument in options


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            np.ones((5, 3, 3)),
            "index 'i' has size 5 in X and 4 in the fit: pass labels, or append='i' if all of its rows are",
        ),
        (np.ones((3, 4, 3)), "index 'i' has size 3 in X and 4 in the fit"),
        (np.ones((4, 3)), r"X must have the indices i, j, k, got shape \(4, 3\)"),
        (-np.ones((4, 3, 3)), "X: observed values must be >= 0"),
        ({}, "new must have data for at least one of X, got none"),
        ({"Z": np.ones(3)}, "unknown tensor 'Z' in new: the model has X"),
        (np.full((4, 3, 3), "a"), "expected real or integer numbers"),
        (pd.DataFrame({"i": [0], "j": [0]}), "X: a table must have a column for each of i, j, k; k is missing"),
        (pd.DataFrame({"i": [9], "j": [0], "k": [0]}), "9, which is not one of its 4 labels"),
    ],
)
def test_refused_data(data: Any, message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message):
        fit_of("cp").update(data)


def test_refused_fits() -> None:
    X = np.ones((4, 3))
    for method in ("em", "map", "gibbs"):
        short: dict[str, Any] = {"burn_in": 1, "draws": 4, "chains": 1} if method == "gibbs" else {}
        with warnings.catch_warnings(action="ignore"):
            fit = pltf.nmf(rank=1).fit(X, method=method, max_iter=2, **short)
        with pytest.raises(pltf.PltfError, match=f"update needs a fit with method='vb'.*method='{method}'"):
            fit.update(X)


def test_refused_labels() -> None:
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (events(9, [1, 2], PLACES), {}, "labels of 'user' must be words like the existing labels, got numbers"),
        (events(9, USERS, PLACES), {"append": "user"}, "append names 'user', which has labels in the fit"),
        (np.ones((4, 2)), {}, "index 'place' has size 2 in X and 3 in the fit: pass labels"),
        (
            pltf.observe(events(9, USERS, PLACES), dims=["user", "place"], unlisted="missing"),
            {},
            "X: cells that are not listed are missing, but in the data of the fit they are zeros: pass unlisted='zero'",
        ),
        (events(9, USERS, PLACES).rename(columns={"user": "who"}), {}, "user is missing"),
        (pltf.observe(np.ones((4, 3)), dims=("who", "place")), {}, "has the indices who, place"),
    ]
    for data, options, message in refused:
        with pytest.raises(pltf.PltfError, match=message):
            visits().update(data, **options)
    array = pltf.observe(np.ones((4, 3, 3)), dims=("i", "j", "k"), labels={"i": USERS})
    with pytest.raises(pltf.PltfError, match="X has labels for 'i', but the fit has none to match them with"):
        fit_of("cp").update(array)
    stars = pltf.nmf(("user", "place"), rank=1).fit(
        pltf.observe(events(9, USERS, PLACES), dims=["user", "place"], unlisted="missing", duplicates="sum")
    )
    with pytest.raises(pltf.PltfError, match="zeros requires data in which unlisted cells are zeros"):
        stars.update(events(9, USERS, PLACES), zeros="user")


def test_a_prior_that_differs_by_row_has_none_for_new_rows() -> None:
    fit = pltf.nmf(rank=1).fit(np.ones((3, 2)), prior={"W": pltf.Gamma(0.5, [[1.0], [2.0], [3.0]])}, **PLAIN)
    fit.update(np.ones((3, 2)))
    with pytest.raises(pltf.PltfError, match="the prior of W differs along 'i', so new rows have none"):
        fit.update(np.ones((3, 2)), append="i")


def test_batches_of_very_different_totals_are_reported() -> None:
    X = np.random.default_rng(0).poisson(3.0, (6, 5)).astype(float)
    fit = pltf.nmf(rank=1).fit(6 * X, **PLAIN)
    with pytest.warns(
        pltf.DataWarning, match=f"total of {X.sum():.0f}, and the earlier data of {6 * X.sum():.0f}, but"
    ):
        fit.update(X, **PLAIN_UPDATE)
    with warnings.catch_warnings(action="error"):
        second = fit.update(6 * X, **PLAIN_UPDATE)
        second.update(6 * X, forget=0.5, **PLAIN_UPDATE)
        fit.update(6 * X[:1], append="i", **PLAIN_UPDATE)  # other rows, not another length of time
        fit.update(np.where(np.eye(6, 5), 6 * X, np.nan), **PLAIN_UPDATE)  # fewer cells
    with pytest.warns(pltf.DataWarning, match=f"and an earlier batch of {6 * X.sum():.0f}, but"):
        second.update(X, **PLAIN_UPDATE)


@pytest.mark.filterwarnings("error::pltf.DataWarning")
def test_links_and_coupled_tensors_have_no_totals_to_compare() -> None:
    links = np.ones((12, 10))
    links[3, 4] = 0
    pltf.nmf(rank=1).fit(links, likelihood="bernoulli").update(links)
    rng = np.random.default_rng(0)
    X, Y = rng.poisson(0.5, (8, 6)), rng.poisson(20.0, (8, 6))
    model = pltf.Model("X[i,j] = A[i,r]*B[j,r]; Y[i,k] = A[i,r]*C[k,r]", r=1)
    model.fit({"X": X, "Y": Y}).update({"X": X})
