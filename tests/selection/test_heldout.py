"""Searches that hidden cells decide: folds, the rule, the weights, and what users are told."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import pltf
from pltf.inference.race import BEHIND
from pltf.inference.run import Row
from pltf.selection import heldout, search
from pltf.selection.checkpoint import SearchCheckpoint
from pltf.selection.choice import (
    FoldScores,
    allowances,
    one_standard_error,
    wins_by_bound,
    wins_by_score,
    within_errors,
)
from pltf.selection.folds import HIDDEN, Fold, HiddenCells, make_folds
from pltf.selection.grid import GridPoint, wider
from pltf.selection.search import Outcome
from tests.selection.test_checkpoint import assert_same_search, loaded
from tests.store import quietly

X = np.random.default_rng(5).poisson(np.kron(np.diag([9, 5, 7]), np.ones((6, 6))) + 0.2)
MODEL = pltf.nmf(rank=1)
SMALL: dict[str, Any] = {"r": [2, 3, 4], "restarts": 2, "workers": 2, "criterion": "heldout"}


@pytest.fixture(scope="module")
def both() -> pltf.Selection:
    with warnings.catch_warnings(action="ignore"):
        return pltf.select(MODEL, X, **SMALL | {"criterion": "both", "r": range(1, 5)})


# -- folds --------------------------------------------------------------------------------------


def _observations() -> dict[str, pltf.Observation]:
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.4, (60, 40))
    mask = rng.random(counts.shape) < 0.8
    at = np.argwhere(mask)
    return {
        "dense": pltf.observe(counts),
        "masked": pltf.observe(counts, mask),
        "listed": pltf.observe(sparse.coo_array(counts)),
        "ratings": pltf.observe((at, counts[mask]), shape=counts.shape, unlisted="missing"),
    }


@pytest.mark.parametrize("kind", ["dense", "masked", "listed", "ratings"])
def test_folds_hide_different_observed_cells_with_the_same_share_of_non_zeros(kind: str) -> None:
    seen = _observations()[kind]
    folds = make_folds({"X": seen}, 5, seed=3)
    cells = np.concatenate([fold.hidden["X"].cells for fold in folds], axis=1)
    assert np.unique(cells, axis=1).shape == cells.shape
    assert cells.shape[1] == pytest.approx(5 * HIDDEN * seen.n_observed, abs=2)
    for fold in folds:
        hidden, train = fold.hidden["X"], fold.train({"X": seen})["X"]
        np.testing.assert_array_equal(hidden.values, seen.values_at(hidden.cells))
        assert (hidden.values > 0).mean() == pytest.approx(seen.n_positive / seen.n_observed, abs=0.02)
        assert np.isnan(train.values_at(hidden.cells)).all()
        assert train.n_observed == seen.n_observed - hidden.values.size
        assert train.total == pytest.approx(seen.total - hidden.values.sum())
        assert np.ptp(np.bincount(hidden.blocks, minlength=fold.n_blocks)) <= 2


def test_dense_and_listed_data_have_the_same_folds() -> None:
    dense, listed = (make_folds({"X": _observations()[kind]}, 4, seed=1) for kind in ("dense", "listed"))
    for one, other in zip(dense, listed, strict=True):
        np.testing.assert_array_equal(one.hidden["X"].cells, other.hidden["X"].cells)


def test_folds_are_those_of_the_seed() -> None:
    seen = {"X": _observations()["dense"]}
    first, again, other = (make_folds(seen, 3, seed=seed)[0].hidden["X"].cells for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert first.shape != other.shape or (first != other).any()


def test_of_too_many_zeros_some_stand_for_all() -> None:
    seen = pltf.observe(sparse.random_array((3000, 2000), density=2e-4, rng=0))
    for fold in make_folds({"X": seen}, 5, seed=0):
        hidden = fold.hidden["X"]
        positive = hidden.values > 0
        assert positive.sum() == pytest.approx(HIDDEN * seen.n_positive, abs=1)
        assert hidden.values.size < 10_000
        assert hidden.weights.sum() == pytest.approx(seen.n_observed / 5, rel=0.01)
        assert hidden.weights[positive].sum() == pytest.approx(seen.n_positive / 5, rel=0.01)


def test_scores_are_weighted_means_of_log_probabilities() -> None:
    fit = MODEL.fit(X)
    fold = make_folds({"X": pltf.observe(X)}, 5, seed=0, blocks=1)[0]
    hidden = fold.hidden["X"]
    expected = fit.log_prob(hidden.cells.T, hidden.values, draws=heldout.DRAWS)
    assert heldout.log_likelihood(fit, fold, 0) == pytest.approx([np.average(expected, weights=hidden.weights)])
    weights = np.where(np.arange(hidden.values.size) == 0, 1e12, hidden.weights)
    lopsided = Fold({"X": HiddenCells(hidden.cells, hidden.values, weights, hidden.blocks)}, 1)
    assert heldout.log_likelihood(fit, lopsided, 0) == pytest.approx([expected[0]])


def _overdispersed() -> Any:
    rng = np.random.default_rng(3)
    return rng.negative_binomial(1, 1 / (1 + rng.gamma(0.5, 4.0, (70, 3)) @ rng.gamma(0.5, 1.0, (3, 60))))


def test_folds_are_scored_with_the_dispersion_that_they_show() -> None:
    counts = _overdispersed()
    fold = make_folds({"X": pltf.observe(counts)}, 5, seed=0, blocks=1)[0]
    fit = pltf.nmf(rank=3).fit(fold.train({"X": pltf.observe(counts)})["X"], dispersion=None)
    poisson, shown, given, far = (
        heldout.log_likelihood(fit, fold, 0, dispersion)[0] for dispersion in (None, "auto", 1.0, 0.01)
    )
    assert shown > poisson + 0.5
    assert shown == pytest.approx(given, abs=0.03)  # strays make up for rates that are far off
    assert shown >= given > far
    few = make_folds({"X": pltf.observe(X)}, 5, seed=0)[0]  # cannot tell
    fit = MODEL.fit(X)
    np.testing.assert_array_equal(heldout.log_likelihood(fit, few, 0, "auto"), heldout.log_likelihood(fit, few, 0))
    links = pltf.nmf(rank=3).fit(counts > 0, likelihood="bernoulli")
    fold = make_folds({"X": pltf.observe(counts > 0)}, 5, seed=0)[0]
    np.testing.assert_array_equal(heldout.log_likelihood(links, fold, 0, 1.0), heldout.log_likelihood(links, fold, 0))


# -- the rule -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("means", "allowed", "sizes", "winner"),
    [
        ([-3.0, -1.05, -1.0, -1.01], [0.1] * 4, [1, 2, 3, 4], 1),
        ([-3.0, -1.15, -1.0, -1.01], [0.1] * 4, [1, 2, 3, 4], 2),
        ([-3.0, -1.15, -1.0, -1.01], [9.0, 0.1, 0.1, 0.1], [1, 2, 3, 4], 0),  # each has an error of its own
        ([-1.0, -1.05, -1.05], [0.1] * 3, [9, 4, 4], 1),  # the smallest, not the first of the grid
        ([-1.05, -1.02, -1.0], [0.1] * 3, [4, 4, 9], 1),  # of equal size the best, not the first
        ([-1.0, -1.1], [0.0, 0.0], [2, 1], 0),
    ],
)
def test_the_smallest_within_one_standard_error_wins(
    means: list[float], allowed: list[float], sizes: list[int], winner: int
) -> None:
    assert one_standard_error(means, np.tile(allowed, (len(means), 1)), sizes) == winner


def test_a_difference_must_stand_out_and_matter() -> None:
    """The error is that of the difference, and at least half of that of the score."""
    rng = np.random.default_rng(0)
    hard = rng.normal(0, 1, (5, 1, 4))
    alike, other = (FoldScores(np.zeros((5, 1)), hard + x, 1, 1.0) for x in (0.01, rng.normal(0, 3, (5, 1, 4))))
    best = FoldScores(np.zeros((5, 1)), hard, 1, 1.0)
    allowed = allowances([best, alike, other])
    assert allowed[0, 1] == pytest.approx(best.se / 2)
    difference = (other.best - best.best).ravel()
    assert allowed[0, 2] == pytest.approx(difference.std(ddof=1) / 20**0.5)


def _scores(mean: float, noise: float = 0.0, bounds: Any = None, seed: int = 0) -> FoldScores:
    rng = np.random.default_rng(seed)
    shared = np.random.default_rng(99).normal(0, 0.1, (5, 1, 4))  # some cells are harder for everybody
    scores = mean + shared + rng.normal(0, noise, (5, 2, 4))
    return FoldScores(np.zeros((5, 2)) if bounds is None else bounds, scores, 10, 1.0)


def test_the_restart_with_the_highest_bound_is_scored() -> None:
    scores = np.array([[[1.0, 1.0], [5.0, 7.0]], [[2.0, 4.0], [9.0, 9.0]]])
    found = FoldScores(np.array([[-2.0, -1.0], [-1.0, -2.0]]), scores, 10, 1.0)
    np.testing.assert_array_equal(found.best, [[5.0, 7.0], [2.0, 4.0]])
    assert found.mean == 4.5
    assert found.se == pytest.approx(np.std([5, 7, 2, 4], ddof=1) / 2)


def test_a_clear_winner_wins_always_and_an_unclear_one_does_not() -> None:
    clear = wins_by_score([_scores(-3.0), _scores(-1.0), _scores(-0.999)], [1, 2, 3], seed=0)
    assert clear.tolist() == [0, 1, 0]
    noisy = [_scores(-1.0, 0.5, seed=seed) for seed in range(4)]
    unclear = wins_by_score(noisy, [1, 2, 3, 4], seed=0)
    assert unclear.sum() == pytest.approx(1)
    assert unclear.max() < 0.95
    assert (unclear > 0.02).sum() > 1
    np.testing.assert_array_equal(unclear, wins_by_score(noisy, [1, 2, 3, 4], seed=0))


def test_restarts_are_drawn_again_and_dropped_ones_have_no_say() -> None:
    """One restart of two is far better in every fold: drawn twice, the other one loses to the smaller candidate."""
    scores = np.stack([np.full((5, 4), -1.0), np.full((5, 4), -9.0)], axis=1) + np.linspace(0, 0.1, 4)
    lucky = FoldScores(np.tile([0.0, -1.0], (5, 1)), scores, 10, 1.0)
    wins = wins_by_score([_scores(-2.5), lucky], [1, 2], seed=0)
    assert 0.05 < wins[1] < 0.95
    dropped = FoldScores(np.tile([0.0, -np.inf], (5, 1)), np.where(scores < -5, np.nan, scores), 10, 1.0)
    assert wins_by_score([_scores(-2.5), dropped], [1, 2], seed=0).tolist() == [0, 1]


def test_wins_by_bound() -> None:
    sure = wins_by_bound([np.array([-100.0, -100.0]), np.array([-50.0, -50.0])], seed=0)
    np.testing.assert_allclose(sure, [0, 1], atol=1e-12)
    lucky = wins_by_bound([np.full(5, -60.0), np.array([-50.0, -90, -90, -90, -90])], seed=0)
    assert lucky[1] == pytest.approx(1 - 0.8**5, abs=0.04)
    near = wins_by_bound([np.array([-50.0]), np.array([-51.0])], seed=0)
    assert near[1] == pytest.approx(1 / (1 + math.e))


def test_candidates_within_some_standard_errors() -> None:
    assert within_errors([-1.0, -1.15, -1.3], np.full((3, 3), 0.1), 2.0) == [0, 1]


# -- searches -----------------------------------------------------------------------------------


def test_hidden_cells_choose_if_nobody_says_what_and_data_suffice(tmp_path: Path) -> None:
    options: dict[str, Any] = {"r": [1, 2], "restarts": 5, "tol": 1e-3, "workers": 1}
    found = quietly(pltf.select, MODEL, _overdispersed()[:30, :30], **options)
    assert (found.criterion, found.note) == ("both", "")
    assert {"best", "heldout"} <= set(found.summary())

    few, path = X[:, :6], tmp_path / "search.nc"
    found = quietly(pltf.select, MODEL, few, checkpoint=path, **options)
    assert found.criterion == "bound"
    non_zeros = f"{np.count_nonzero(few)} observed non-zeros are too few"
    assert found.note == f"{non_zeros}: 5 folds of 30 would hold out more than 90% of them"
    assert f"chosen   by ELBO: {found.note}" in repr(found)
    assert loaded(path).note == found.note
    assert quietly(pltf.select, MODEL, few, score="auc", **options).criterion == "both"  # which asks for them

    quick = quietly(pltf.select, MODEL, _overdispersed()[:30, :30], **options | {"restarts": 4})
    assert (quick.criterion, quick.note) == (
        "bound",
        "with 4 restarts each fold gets only 1, which is unreliable",
    )
    once = quietly(pltf.select, MODEL, _overdispersed()[:30, :30], **options | {"restarts": 1})
    assert once.note == "with 1 restart each fold gets only 1, which is unreliable"
    alone = quietly(pltf.select, MODEL, _overdispersed(), **options | {"r": [2]})
    assert (alone.criterion, alone.note) == ("bound", "")


def test_a_search_by_the_bound_is_gone_on_with_by_the_bound(tmp_path: Path) -> None:
    options: dict[str, Any] = {"r": [1, 2], "restarts": 5, "tol": 1e-3, "workers": 1}
    counts, path = _overdispersed()[:30, :30], tmp_path / "search.nc"
    whole = quietly(pltf.select, MODEL, counts, criterion="bound", checkpoint=path, **options)
    assert_same_search(whole, quietly(pltf.select, MODEL, counts, checkpoint=path, resume=True, **options))


def test_hidden_cells_find_the_order(both: pltf.Selection) -> None:
    assert both.best == {"r": 3}
    summary = both.summary()
    assert summary["r"].tolist() == [1, 2, 3, 4]
    assert summary.query("winner")["r"].tolist() == [3]
    assert summary["heldout"][2] >= summary["heldout"].max() - summary["heldout_se"].max()
    assert summary["weight"].sum() == pytest.approx(1)
    assert "held out log likelihood -" in repr(both)
    np.testing.assert_array_equal(both.best_fit.trace, pltf.nmf(rank=3).fit(X, restarts=2).trace)
    folds = both.heldout
    assert folds.groupby("r")["score"].mean().to_numpy() == pytest.approx(
        summary.set_index("r")["heldout"].sort_index()
    )


def test_heldout_fits_only_the_winner_to_all_data(both: pltf.Selection) -> None:
    found = quietly(pltf.select, MODEL, X, **SMALL)
    assert set(found.table["r"]) == {3}
    assert len(found.summary()) == 3
    assert found.summary()["best"].isna().sum() == 2
    np.testing.assert_array_equal(found.best_fit.trace, both.best_fit.trace)
    scores = both.summary().set_index("r")["heldout"]
    assert found.summary().set_index("r")["heldout"].to_dict() == scores.drop(1).to_dict()  # the same folds for all


@pytest.mark.slow
@pytest.mark.parametrize("processes", [True, False])
def test_scores_do_not_depend_on_the_workers(monkeypatch: pytest.MonkeyPatch, processes: bool) -> None:
    monkeypatch.setattr(search, "_worth_processes", lambda *_: False)
    options = SMALL | {"r": [2, 3], "folds": 2}
    alone = quietly(pltf.select, MODEL, X, **options | {"workers": 1})
    monkeypatch.setattr(search, "_worth_processes", lambda *_: processes)
    assert_same_search(alone, quietly(pltf.select, MODEL, X, **options | {"workers": 2}))


def test_listed_and_coupled_data() -> None:
    dense, listed = (quietly(pltf.select, MODEL, data, **SMALL) for data in (X, sparse.coo_array(X)))
    left, right = (found.summary().set_index("r")["heldout"].sort_index() for found in (dense, listed))
    np.testing.assert_allclose(left, right, rtol=1e-3)
    model = pltf.Model("X[i,j] = A[i,r] B[j,r]\nY[j,m] = B[j,r] D[m,r]", r=1)
    found = quietly(pltf.select, model, {"X": X, "Y": X.T[:, :9]}, **SMALL | {"restarts": 1})
    assert found.best == {"r": 3}


def test_ranking_may_choose() -> None:
    found = quietly(pltf.select, MODEL, X, score="auc", **SMALL)
    scores = found.summary()["heldout"]
    assert ((scores > 0.5) & (scores <= 1)).all()
    assert "held out auc 0." in repr(found)


def test_the_grid_is_widened_while_the_best_is_at_its_edge() -> None:
    found = quietly(pltf.select, MODEL, X, **SMALL | {"r": [1, 2], "widen": True})
    assert found.best == {"r": 3}
    assert found.edges == {}
    assert sorted(found.summary()["r"]) == [1, 2, 3, 4]
    by_bound = quietly(pltf.select, MODEL, X, r=[4, 5], restarts=2, widen=True, workers=1, criterion="bound")
    assert by_bound.best == {"r": 3}


@pytest.mark.parametrize(
    ("sizes", "wide"),
    [
        ([2, 4, 6], [1, 2, 4, 6]),  # a whole step down would be 0
        ([5, 10], [1, 3, 5, 10]),
        ([10, 20], [5, 10, 20]),
        ([7, 9, 11], [3, 5, 7, 9, 11]),
        ([2, 50], [1, 2, 50]),
    ],
)
def test_a_grid_is_widened_down_to_one(sizes: list[int], wide: list[int]) -> None:
    points = [GridPoint({"r": r}, pltf.nmf(rank=r), None) for r in sizes]
    assert wider(points, {"r": "smallest"}) == {"r": wide}


def test_a_search_is_widened_down_to_one() -> None:
    flat = np.random.default_rng(0).poisson(3.0, (12, 10))
    found = quietly(pltf.select, MODEL, flat, r=[2, 4, 6], restarts=2, widen=True, workers=1, criterion="bound")
    assert found.best == {"r": 1}
    assert not any("widen" in text for text in found.doubts)


def test_doubts_when_criteria_disagree_or_nothing_is_clear(both: pltf.Selection) -> None:
    assert not any("disagree" in text for text in both.doubts)
    outcomes = {one.label["r"]: one for one in both.outcomes}
    wrong = pltf.Selection(**vars_of(both) | {"winner": outcomes[4], "best": {"r": 4}})
    (told,) = (text for text in wrong.doubts if "the criteria disagree: the ELBO is highest at r=3, by" in text)
    assert told.endswith("but held-out cells chose r=4; trust the held-out cells")
    assert any(text.startswith("held-out scores are inconclusive: r=3 to r=4 are within") for text in wrong.doubts)


def test_a_doubt_when_very_different_orders_predict_alike() -> None:
    found = quietly(pltf.select, MODEL, X, **SMALL | {"r": [1, 2, 5], "restarts": 1})
    level = tuple(replace(one, folds=_scores(-1.0)) for one in found.outcomes)
    found = pltf.Selection(**vars_of(found) | {"outcomes": level, "winner": level[0], "best": {"r": 1}})
    assert found.weights.tolist() == [1, 0, 0]
    assert any(text.startswith("held-out scores are inconclusive: r=1 to r=5 are within two") for text in found.doubts)


def test_of_few_data_a_larger_share_is_hidden() -> None:
    few, many = (pltf.observe(np.random.default_rng(0).poisson(0.5, shape)) for shape in ((20, 30), (60, 70)))
    shares = [make_folds({"X": one}, 5, seed=0)[0].hidden["X"].values.size / one.n_observed for one in (few, many)]
    assert shares == pytest.approx([40 / few.n_positive, HIDDEN], abs=0.01)


def vars_of(found: pltf.Selection) -> dict[str, Any]:
    return {name: value for name, value in vars(found).items() if name != "weights"}


def _by_bound(*bounds: list[float]) -> pltf.Selection:
    """A search by the bound with such restarts, for r = 1, 2, ...; the last one wins."""
    outcomes = []
    for n, one in enumerate(bounds, 1):
        rows = [Row(k, bound, n_iter=9, converged=True, stopped="", seconds=1.0) for k, bound in enumerate(one)]
        outcomes.append(Outcome({"r": n}, max(one), tuple(rows), np.ones(len(one))))
    return pltf.Selection(
        outcomes=tuple(outcomes),
        winner=outcomes[-1],
        best_fit=MODEL.fit(X),
        best={"r": len(bounds)},
        edges={},
        failures=(),
        interrupted=False,
        n_candidates=len(bounds),
        unsettled=0,
        seed=0,
    )


def test_a_doubt_when_restarts_differ_by_more_than_the_lead() -> None:
    clear = _by_bound([-300.0, -350.0], [-100.0, -180.0])
    assert clear.weights[1] == pytest.approx(1)
    assert not clear.doubts
    lucky = _by_bound([-110.0, -110.0], [-111.0, -111.0], [-109.0, -190.0, -190.0, -190.0])
    assert lucky.weights[2] < 0.5
    assert lucky.doubts[0].startswith(
        "restarts of r=3 differ by 81.0 nats, but its lead is only 1.0; with other restarts"
    )


def test_no_doubt_about_rounding_when_bounds_are_near_zero(both: pltf.Selection) -> None:
    assert not _by_bound([-2e-9, -2e-9], [-1e-9, -1e-9], [0.0, -9e-9]).doubts
    zeros = tuple(replace(one, bound=1e-9 * one.label["r"]) for one in both.outcomes)
    found = pltf.Selection(**vars_of(both) | {"outcomes": zeros, "winner": zeros[2]})
    assert not any("disagree" in text for text in found.doubts)


@pytest.mark.extra("plot")
def test_plots_show_both_curves(both: pltf.Selection) -> None:
    ax = both.plot()
    left, right = ax.figure.axes
    assert left is ax
    assert left.get_ylabel() == "ELBO (nats)"
    assert right.get_ylabel() == "held-out log-likelihood ± standard error"
    assert (left.get_title(), right.get_title()) == ("the ELBO is highest at r = 3\nheld-out cells choose r = 3", "")
    assert (left.yaxis.label.get_color(), right.yaxis.label.get_color()) == ("C0", "C1")
    heights = right.get_lines()[0].get_ydata()
    np.testing.assert_array_equal(heights, both.summary().sort_values("r")["heldout"])
    alone = quietly(pltf.select, MODEL, X, **SMALL | {"restarts": 1}).plot()
    assert len(alone.figure.axes) == 1
    assert alone.get_title() == "held-out cells choose r = 3"


def test_agreement_with_dropped_restarts_is_unknown() -> None:
    found = _by_bound([-100.0, -110.0, -120.0])
    rows = tuple(replace(row, stopped=BEHIND if row.restart else "") for row in found.winner.rows)
    winner = replace(found.winner, rows=rows)
    row = replace(found, outcomes=(winner,), winner=winner).summary().iloc[0]
    assert (row["known"], row["dropped"], row["restarts"]) == (1, 2, 3)
    assert math.isnan(row["agree"])


# -- saved, broken off --------------------------------------------------------------------------


def test_a_search_by_hidden_cells_comes_back(both: pltf.Selection, tmp_path: Path) -> None:
    both.save(tmp_path / "search.nc")
    again = loaded(tmp_path / "search.nc")
    assert_same_search(both, again, seconds=True)
    assert repr(again) == repr(both)


def test_a_search_of_version_0_1_has_no_hidden_cells() -> None:
    found = loaded(Path(__file__).parents[1] / "files" / "search-1.nc")
    assert found.criterion == "bound"
    assert "heldout" not in found.summary()
    assert found.heldout.empty


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["heldout", "both"])
def test_broken_off_in_the_folds_or_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, criterion: str) -> None:
    options = SMALL | {"criterion": criterion, "r": [2, 3], "folds": 2, "restarts": 1, "widen": True}
    path, kept, keep = tmp_path / "search.nc", list[bytes](), SearchCheckpoint.keep
    whole = quietly(pltf.select, MODEL, X, **options)

    def take(self: SearchCheckpoint) -> None:
        keep(self)
        kept.append(path.read_bytes())

    monkeypatch.setattr(SearchCheckpoint, "keep", take)
    assert_same_search(whole, quietly(pltf.select, MODEL, X, checkpoint=path, every=0, **options))
    monkeypatch.undo()
    assert len(kept) > 2
    for content in (kept[0], kept[len(kept) // 2], kept[-1]):
        path.write_bytes(content)
        assert_same_search(whole, quietly(pltf.select, MODEL, X, checkpoint=path, resume=True, **options))
    with pytest.raises(pltf.PltfError, match="is the search of a different call"):
        pltf.select(MODEL, X, checkpoint=path, resume=True, **options | {"criterion": "bound"})


def _interrupting(monkeypatch: pytest.MonkeyPatch, at: int) -> list[int]:
    """Have the search interrupted at one of the scores; gives what counts them."""
    scored, calls = heldout.scored, [0]

    def stop(*args: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            raise KeyboardInterrupt
        return scored(*args)

    monkeypatch.setattr(search, "_worth_processes", lambda *_: False)
    monkeypatch.setattr(heldout, "scored", stop)
    return calls


@pytest.mark.parametrize("criterion", ["heldout", "both"])
def test_an_interrupt_in_the_folds_gives_the_best_so_far(monkeypatch: pytest.MonkeyPatch, criterion: str) -> None:
    _interrupting(monkeypatch, at=12)
    options = SMALL | {"workers": 1, "restarts": 1, "criterion": criterion}
    found = quietly(pltf.select, MODEL, X, **options | {"widen": True})
    assert found.interrupted
    assert found.doubts[0] == "the search was interrupted: 2 of 3 candidates have results"
    assert found.best == {"r": 3}
    assert found.table["r"].tolist() == [3]
    assert found.heldout["r"].tolist() == [2] * 5 + [3] * 5
    assert found.best_fit.bound == pltf.nmf(rank=3).fit(X).bound


def test_a_fold_is_done_when_all_its_restarts_have_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a restart that was not scored in time would count as dropped, in the file as well."""
    path = tmp_path / "search.nc"
    options = SMALL | {"r": [2, 3], "folds": 2, "workers": 1, "restarts": 6, "every": 0, "race": False}
    whole = quietly(pltf.select, MODEL, X, **options)
    _interrupting(monkeypatch, at=6)  # of two starts in each of four folds: the second of the third fold
    part = quietly(pltf.select, MODEL, X, checkpoint=path, **options)
    assert part.interrupted
    assert part.heldout["r"].unique().tolist() == [2]
    assert_same_search(whole, quietly(pltf.select, MODEL, X, checkpoint=path, resume=True, **options))


def test_a_fold_that_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, options = tmp_path / "search.nc", SMALL | {"workers": 1, "restarts": 1}
    calls = _interrupting(monkeypatch, at=4)
    with pytest.raises(KeyboardInterrupt):  # there is no candidate that is through with all folds
        pltf.select(MODEL, X, checkpoint=path, **options)
    again = quietly(pltf.select, MODEL, X, checkpoint=path, resume=True, **options)
    assert calls == [4 + 3 * 5 - 3]
    assert_same_search(quietly(pltf.select, MODEL, X, **options), again)


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"criterion": "aic"}, "criterion must be one of 'auto', 'bound', 'heldout', 'both'; got 'aic'"),
        ({"criterion": "heldout", "folds": 1}, "folds must be a whole number of at least 2, got 1"),
        ({"criterion": "heldout", "score": "rmse"}, "score must be one of"),
        (
            {"criterion": "bound", "score": "auc"},
            "score='auc' requires criterion='heldout' or criterion='both', got criterion='bound'",
        ),
        ({"widen": 1}, "widen must be True or False, got 1"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message):
        pltf.select(MODEL, X, r=[1, 2], **options)


def test_data_that_are_too_few_to_hide_some_are_refused() -> None:
    message = "criterion='heldout' needs at least 23 observed non-zeros, to hold out 18% of them 5 times; got 6"
    with pytest.raises(pltf.PltfError, match=f"^{message}: use criterion='bound'$"):
        pltf.select(MODEL, np.eye(6), r=[1, 2], criterion="heldout")
    with pytest.raises(pltf.PltfError, match=f"^{message}: use criterion='bound' and score='log_likelihood'$"):
        pltf.select(MODEL, np.eye(6), r=[1, 2], score="auc")
    with pytest.raises(pltf.PltfError, match=r"score='auc' needs both zeros and non-zeros among the held-out cells"):
        pltf.select(MODEL, X + 1, r=[1, 2], criterion="heldout", score="auc")


@pytest.mark.parametrize("stopped", [False, True])
def test_where_the_chosen_candidate_fails_on_all_data_hidden_cells_choose_again(
    stopped: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its rivals were fitted before that was known, and the run of the one with the highest bound is at hand."""
    go_on, seconds = search.go_on, list[int]()

    def fragile(source: Any, ready: Any, *rest: Any) -> Any:
        r, on_all_data = ready.model.sizes["r"], ready.options.keep_data  # folds keep none
        if on_all_data and r == 1:
            raise pltf.PltfError("out of luck")
        if on_all_data and r == 2:
            seconds.append(r)
            if stopped and len(seconds) == 2:  # while it is fitted again
                raise KeyboardInterrupt
        return go_on(source, ready, *rest)

    monkeypatch.setattr(search, "_worth_processes", lambda *_: False)
    monkeypatch.setattr(search, "go_on", fragile)
    monkeypatch.setattr("pltf.selection.course.one_standard_error", lambda *_: 0)  # the smallest wins
    where = {"checkpoint": tmp_path / "search.nc"} if stopped else {}
    options = SMALL | {"r": [1, 2, 3, 4], "restarts": 1, "criterion": "both", "workers": 1} | where
    with warnings.catch_warnings(action="ignore"):
        found = pltf.select(MODEL, X, **options)
        if stopped:
            assert found.interrupted
            found = pltf.select(MODEL, X, **options, resume=True)
    assert found.best == {"r": 2}
    assert found.winner.bound < np.nanmax([one.bound for one in found.outcomes])
    assert found.best_fit.bound == found.winner.bound
    assert found.failures == ({"r": 1, "error": "out of luck"},)
    assert any("out of luck" in doubt for doubt in found.doubts)


def test_a_candidate_that_fails_in_a_fold_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    scored = heldout.scored

    def fragile(source: Any, ready: Any, *rest: Any) -> Any:
        if ready.model.sizes["r"] == 4:
            raise pltf.PltfError("out of luck")
        return scored(source, ready, *rest)

    monkeypatch.setattr(search, "_worth_processes", lambda *_: False)
    monkeypatch.setattr(heldout, "scored", fragile)
    with warnings.catch_warnings(action="ignore"):
        found = pltf.select(MODEL, X, **SMALL | {"restarts": 1})
    assert found.best == {"r": 3}
    assert found.failures == ({"r": 4, "error": "out of luck"},)
