"""What goes into a report."""

from __future__ import annotations

import builtins
import html
import json
import math
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pltf
import pltf.metrics
import pltf.report
from pltf import fit as fit_module
from pltf.data.split import MOST_SCORED, HeldOut
from pltf.errors import PltfError
from pltf.report import charts, formatting
from pltf.report.checks import checks
from pltf.report.components import components, intervals, rankings
from pltf.report.factors import MOST_ROWS, factor_views
from pltf.report.history import BoundCurve, search, trace
from pltf.report.overview import data_in_words, in_python
from pltf.report.predictions import PredictedCell, Predictions, predictions
from tests.report.fits import NASTY, WHERE, counts, labelled, scored, searched, users

pytestmark = pytest.mark.extra("plot")


def figures_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, flags=re.DOTALL)
    assert found is not None
    return dict(json.loads(found.group(1)))


def report_of(result: Any, folder: Path, **options: Any) -> str:
    path = folder / "report.html"
    pltf.report.write(result, path, progress=False, **options)
    assert [one.name for one in folder.iterdir()] == ["report.html"]
    return path.read_text(encoding="utf-8")


def section(text: str, name: str) -> str:
    return text.split(f'<section id="{name}"')[1].split("</section>")[0]


# -- components ---------------------------------------------------------------------------------


def test_components_have_the_largest_shares_with_intervals_first() -> None:
    fit = labelled()
    ranked = rankings(fit)
    found = components(fit, ranked, top=4)["r"]
    table = fit.components()
    assert [one.number for one in found] == table.index.tolist()
    assert [one.share for one in found] == pytest.approx(table["share"].tolist())
    mean = fit.factors["A"].mean[:, found[0].number]
    mode = found[0].modes[0]
    assert (mode.factor, mode.title, mode.size, len(mode.entries)) == ("A", "user", 30, 4)
    assert [one.share for one in mode.entries] == pytest.approx(np.sort(mean / mean.sum())[::-1][:4])
    assert mode.held == pytest.approx(sum(one.share for one in mode.entries))
    low, high = (end[:, found[0].number] / mean.sum() for end in fit.factors["A"].interval(0.9))
    first = int(np.argmax(mean))
    assert (mode.entries[0].low, mode.entries[0].high) == pytest.approx((low[first], high[first]))
    assert all(one.low < one.share < one.high for one in mode.entries)


def test_components_that_explain_nothing_are_left_out(tmp_path: Path) -> None:
    X = np.kron(np.diag([9, 5, 7]), np.ones((5, 4)))
    fit = pltf.nmf(rank=8).fit(X, prior=pltf.Gamma(learn="mean", tie="component"), restarts=3, progress=False)
    ranked = rankings(fit)
    assert ranked["r"].used == fit.effective_rank == 3
    assert len(components(fit, ranked, top=3)["r"]) == 3
    assert all(len(view.maps[0].columns) == 3 for view in factor_views(fit, ranked))
    assert "5 components of r explain less than one count each" in report_of(fit, tmp_path)


def test_an_entry_of_a_core_is_called_by_the_numbers_of_its_components() -> None:
    fit = pltf.tucker(ranks=(2, 2, 2)).fit(counts(), progress=False)
    ranked = rankings(fit)
    found = components(fit, ranked, top=3)
    assert list(found) == ["p", "q", "r"]
    core = found["p"][0].modes[-1]
    assert core.title == "q × r"
    q, r = np.unravel_index(np.argmax(fit.factors["G"].mean[found["p"][0].number]), (2, 2))
    assert core.entries[0].name == f"q {q} · r {r}"


# -- modes in an order --------------------------------------------------------------------------


def observed(labels: dict[str, Any], value: float = 4.0) -> pltf.Observation:
    shape = tuple(len(one) for one in labels.values())
    X = np.random.default_rng(0).poisson(value, shape)
    return pltf.observe(X, dims=tuple(labels), labels=labels)


def fitted(labels: dict[str, Any], rank: int = 2, **options: Any) -> pltf.Fit:
    with warnings.catch_warnings(action="ignore", category=pltf.ConvergenceWarning):
        return pltf.cp(tuple(labels), rank=rank).fit(observed(labels), max_iter=30, progress=False, **options)


def test_dates_and_numbers_are_curves_in_their_order() -> None:
    days = pd.date_range("2013-01-01", periods=40)[::-1]
    fit = fitted({"who": ["ann", "bob"], "day": days, "size": ["10", "9", "8.5"]})
    one = components(fit, rankings(fit), top=5)["r"][0]
    who, day, size = one.modes
    assert who.curve is None
    assert day.curve is not None
    assert size.curve is not None
    assert day.curve.scale.names[0] == "2013-01-01"
    assert size.curve.scale.x.tolist() == [8.5, 9.0, 10.0]
    mean = fit.factors["B"].mean[::-1, one.number]
    assert day.curve.mean == pytest.approx(mean / mean.sum())
    low, high = (end[::-1, one.number] / mean.sum() for end in fit.factors["B"].interval(0.9))
    assert day.curve.low == pytest.approx(low)
    assert day.curve.high == pytest.approx(high)


def test_long_curves_are_averages_with_their_own_intervals() -> None:
    fit = fitted({"who": ["ann", "bob"], "n": np.arange(1001)})
    one = components(fit, rankings(fit), top=5)["r"][0]
    curve = one.modes[1].curve
    assert curve is not None
    assert (curve.scale.group, len(curve.mean), curve.scale.names[:2]) == (3, 334, ("0 to 2", "3 to 5"))
    factor = fit.factors["B"]
    total = factor.mean[:, one.number].sum()
    drawn = factor.sample(4000, seed=0)[:, :3, one.number].mean(axis=1) / total
    assert curve.mean[0] == pytest.approx(factor.mean[:3, one.number].mean() / total)
    assert (curve.low[0], curve.high[0]) == pytest.approx(np.quantile(drawn, [0.05, 0.95]), rel=0.1)
    assert len(one.modes[1].entries) == 5  # they may be numbers of users


def test_hours_are_averaged_over_whole_days(tmp_path: Path) -> None:
    fit = fitted({"hour": pd.date_range("2013-01-01", periods=8000, freq="h"), "who": ["ann", "bob"]})
    curve = components(fit, rankings(fit), top=5)["r"][0].modes[0].curve
    assert curve is not None
    assert (curve.scale.group, curve.scale.names[0]) == (24, "2013-01-01 00:00 to 2013-01-01 23:00")
    text = report_of(fit, tmp_path)
    assert "8,000 in order, each point the average of 24" in text
    assert "each column is the average of 48 of hour" in text


def test_weekdays_and_months_are_in_the_order_of_the_calendar() -> None:
    weekdays = ["Fri", "Mon", "Sat", "Sun", "Thu", "Tue", "Wed"]
    fit = fitted({"who": ["ann", "bob"], "weekday": weekdays, "month": ["May", "April", "August"]})
    one = components(fit, rankings(fit), top=5)["r"][0]
    assert [entry.name for entry in one.modes[1].entries] == ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    assert [entry.name for entry in one.modes[2].entries] == ["April", "May", "August"]


def test_months_are_written_out(tmp_path: Path) -> None:
    when = pd.to_datetime(["2015-10-05", "2015-12-24", "2015-12-31", "2016-02-01"] * 3)
    events = pd.DataFrame({"who": ["ann", "bob", "cid"] * 4, "when": when})
    seen = pltf.observe(events, dims={"who": "who", "when:month": "month"})
    with warnings.catch_warnings(action="ignore", category=pltf.ConvergenceWarning):
        text = report_of(pltf.nmf(("who", "month"), rank=1).fit(seen, max_iter=5, progress=False), tmp_path)
    assert "October 2015, November 2015, December 2015, …, February 2016" in text
    assert "December 2015" in figures_of(text)["scales"]["month"]["names"]
    assert "2015-12" not in text


def test_no_label_is_dropped_silently() -> None:
    X = np.full((2, 7), 1e-9)
    X[:, 0] = 1000.0
    fit = pltf.nmf(rank=1).fit(X, progress=False)
    mode = components(fit, rankings(fit), top=10)["r"][0].modes[1]
    assert len(mode.entries) == mode.size == 7


def test_draws_have_intervals() -> None:
    fit = pltf.nmf(rank=1).fit(np.full((3, 4), 5.0), method="gibbs", burn_in=5, draws=40, progress=False)
    mode = components(fit, rankings(fit), top=10)["r"][0].modes[0]
    assert mode.intervals
    assert all(one.low < one.share < one.high for one in mode.entries)
    low, high = intervals(fit.factors["W"], (np.arange(3), np.zeros(3, dtype=int)), (2,))
    assert low.shape == high.shape == (2,)


def test_a_component_has_one_number(tmp_path: Path) -> None:
    fit = labelled()
    text = report_of(fit, tmp_path, scores=scored())
    order = fit.components().index.tolist()
    assert order != sorted(order)
    assert [int(n) for n in re.findall(r'id="component-r-(\d+)"', text)] == order
    assert figures_of(text)["A-0"]["columns"] == [str(n) for n in order]
    assert [point[2].split("\n")[0] for point in figures_of(text)["shares-r"]["points"]] == [
        f"component {n}" for n in order
    ]


# -- factors ------------------------------------------------------------------------------------


def test_heat_maps_of_large_factors_show_the_rows_with_the_most_counts() -> None:
    rng = np.random.default_rng(0)
    X = rng.poisson(np.outer(rng.gamma(0.5, 4.0, 2000), [3.0, 1.0, 2.0]))
    fit = pltf.nmf(rank=2).fit(X, max_iter=30, tol=0, progress=False)
    view = factor_views(fit, rankings(fit))[0]
    assert len(view.maps[0].rows) <= MOST_ROWS
    assert view.shown[0].endswith("of 2,000 along i")
    busy = np.argsort(-X.sum(axis=1))[:20]
    assert {str(n) for n in busy} <= set(view.maps[0].rows)


def test_heat_maps_hold_means_and_intervals() -> None:
    fit = labelled()
    ranked = rankings(fit)
    view = factor_views(fit, ranked)[1]
    shown = view.maps[0]
    assert (view.indices, shown.row_index, shown.column_index, shown.columns) == (
        ("place", "r"),
        "place",
        "r",
        tuple(map(str, ranked["r"].order)),
    )
    rows = np.array([WHERE.index(name) for name in shown.rows])
    at = rows[:, None], ranked["r"].order[None]
    assert shown.mean == pytest.approx(fit.factors["B"].mean[at])
    assert shown.low == pytest.approx(fit.factors["B"].interval(0.9)[0][at])
    assert shown.colour.max(axis=0) == pytest.approx(np.ones(3))


def test_factors_with_many_indices_are_cut_into_slices() -> None:
    fit = pltf.Model("ia,ajb,bk->ijk", a=3, b=2).fit(counts(), progress=False)
    view = factor_views(fit, rankings(fit))[1]
    assert len(view.maps) == 3
    assert view.maps[0].slice == f"a {rankings(fit)['a'].order[0]}"
    assert (view.maps[0].row_index, view.maps[0].column_index) == ("j", "b")
    assert max(one.colour.max() for one in view.maps) == pytest.approx(1)


def test_factors_with_two_observed_indices_have_a_map_for_each_component() -> None:
    fit = pltf.Model("X[i,j,k] = A[i,r] * B[j,k,r]", r=2).fit(counts(), progress=False)
    view = factor_views(fit, rankings(fit))[1]
    assert [one.slice for one in view.maps] == [f"component {n}" for n in rankings(fit)["r"].order]
    assert (view.maps[0].row_index, view.maps[0].column_index, view.by_component) == ("j", "k", True)
    assert all(one.colour.max() == pytest.approx(1) for one in view.maps)


def test_days_stay_in_their_order() -> None:
    rng = np.random.default_rng(0)
    when = pd.Timestamp("2026-11-02") + pd.to_timedelta(rng.integers(0, 60, 500), unit="D")
    events = pd.DataFrame({"who": rng.integers(0, 5, 500).astype(str), "when": when})
    seen = pltf.observe(events, dims={"who": "who", "when:week": "week"})
    fit = pltf.Model("X[who,week] = A[who,r] * B[week,r]", r=2).fit(seen, progress=False)
    shown = factor_views(fit, rankings(fit))[1].maps[0].columns
    assert shown[0] == "2026-11-02"
    assert list(shown) == sorted(shown)


# -- predictions --------------------------------------------------------------------------------


def test_predictions_are_those_of_top_with_what_was_hidden() -> None:
    fit = labelled()
    (found,) = predictions(fit, fit.held_out, 5, progress=False)
    assert (found.among, found.indices) == ("missing", ("user", "place", "day"))
    table = fit.top(5)
    assert sorted(one.mean for one in found.cells) == pytest.approx(sorted(table["mean"]))
    assert [round(one.prob, 3) for one in found.cells] == sorted(round(one.prob, 3) for one in found.cells)[::-1]
    X = counts()
    for one in found.cells:
        at = tuple(
            fit.labels[index].names().index(name)
            for index, name in zip(found.indices, one.names, strict=True)
            if name != "(blank)"
        )
        assert len(at) < 3 or one.held == X[at]
        assert one.rate_low <= one.rate_high
        assert one.count_low <= one.count_high


def test_the_probability_is_shown_where_it_says_more_than_the_count(tmp_path: Path) -> None:
    def of(*cells: tuple[float, float]) -> bool:
        shown = tuple(PredictedCell(("a",), prob, mean, 0.0, 1.0, 0.0, 1.0, None) for prob, mean in cells)
        return Predictions("X", ("i",), "missing", shown, ()).tells_probability

    assert of((0.7, 1.2), (0.3, 0.4))
    assert not of((0.999, 7.0), (0.98, 4.0))
    assert not of((0.7201, 700.0), (0.7202, 400.0))  # excess zeros
    assert not of((0.0010, 0.001001), (0.0005, 0.0005))
    X = np.random.default_rng(0).poisson(np.outer([9.0, 12, 8, 30, 10], [1.0, 2, 3, 1])).astype(float)
    X[[0, 1, 2, 3], [0, 1, 2, 3]] = np.nan
    fit = pltf.nmf(rank=1).fit(X, progress=False)
    means = [one.mean for one in predictions(fit, None, 4, progress=False)[0].cells]
    assert means == sorted(means)[::-1]
    text = report_of(fit, tmp_path)
    assert "Sorted by the expected count." in text
    assert "P(at least 1)" not in text


def test_without_missing_cells_zeros_are_predicted(tmp_path: Path) -> None:
    fit = pltf.cp(rank=2).fit(counts(), progress=False)
    assert predictions(fit, None, 5, progress=False)[0].among == "zero"
    assert "No cell is missing" in report_of(fit, tmp_path)


def test_without_zeros_nothing_is_predicted(tmp_path: Path) -> None:
    assert "There is no such cell" in report_of(pltf.nmf(rank=1).fit(np.ones((3, 4)), progress=False), tmp_path)


def test_a_search_that_was_ended_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = pltf.cp(rank=3).fit(
        pltf.observe((np.argwhere(counts()), counts()[counts() > 0]), shape=(30, 5, 4)), progress=False
    )
    monkeypatch.setattr("pltf.prediction.top.MOST_BOXES", 1)
    monkeypatch.setattr("pltf.prediction.top.MOST_JUDGED", 0)
    (found,) = predictions(fit, None, 5, progress=False)
    assert found.notes[0].startswith("The search stopped after 1 boxes of cells")


def test_a_tensor_that_is_too_large_to_build_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_module, "MOST_LISTED", 1000)  # so that this one is
    rng = np.random.default_rng(0)
    cells = np.unique(rng.integers(0, [10, 60, 80], (300, 3)), axis=0)
    seen = pltf.observe((cells, np.ones(len(cells))), shape=(10, 60, 80), unlisted="missing")
    with warnings.catch_warnings(action="ignore", category=pltf.ConvergenceWarning):
        fit = pltf.cp(rank=2).fit(seen, max_iter=5, progress=False)
    assert "Most probable missing cells" in report_of(fit, tmp_path)


def test_every_tensor_of_a_coupled_model_is_predicted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    model = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * C[m,r]", r=2)
    X, Y = rng.poisson(2.0, (6, 5)).astype(float), rng.poisson(1.0, (5, 4)).astype(float)
    X[0, 0] = np.nan
    fit = model.fit({"X": X, "Y": Y}, progress=False)
    assert [(one.tensor, one.among) for one in predictions(fit, None, 3, progress=False)] == [
        ("X", "missing"),
        ("Y", "zero"),
    ]
    text = report_of(fit, tmp_path)
    assert "Most probable missing cells: X" in text
    assert "Most probable cells among the zeros: Y" in text


def test_a_coupled_fit_is_reported_with_all_its_tensors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    model = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * C[m,r]\nZ[m,k] = C[m,r] * D[k,r]", r=2)
    data = {name: rng.poisson(2.0, shape) for name, shape in {"X": (6, 5), "Y": (5, 4), "Z": (4, 3)}.items()}
    mask = {name: pltf.holdout(data[name], 0.3, seed=0) for name in "XY"}
    with warnings.catch_warnings(action="ignore", category=pltf.ConvergenceWarning):
        fit = model.fit(data, mask=mask, max_iter=20, progress=False)
    scores = {n: pltf.metrics.score(fit, data[n], ~mask[n], of=n, ranking=False, progress=False) for n in "XY"}
    text = report_of(fit, tmp_path, scores=scores)
    for name in "XYZ":
        assert f"observed cells of {name}" in text
    assert "X (6 i × 5 j), Y (5 j × 4 m) and Z (4 m × 3 k)" in text
    assert "B in X and Y; all 5" in text
    assert {"calibration-X", "calibration-Y"} <= set(figures_of(text))
    assert "held-out log-likelihood of Y" in text
    assert "No cells of Z were held out." in text
    assert "Most probable cells among the zeros: Z" in text


# -- checks -------------------------------------------------------------------------------------


def test_a_fit_that_is_worse_than_popularity_is_told_in_words(tmp_path: Path) -> None:
    good = pltf.metrics.score(labelled(), ranking=False, resamples=0, draws=5, progress=False)
    worse = replace(good, lead=good.lead.assign(value=-1.0))
    assert report_of(labelled(), tmp_path, scores=worse).count("Worse than popularity") == 2  # overview, checks
    text = report_of(labelled(), tmp_path, scores=good)
    assert ("Worse than popularity" in text, text.count("Better than popularity")) == (False, 2)


def test_the_headline_is_the_log_likelihood_unless_data_are_mostly_zeros(tmp_path: Path) -> None:
    scores = scored()
    third = np.arange(scores.values.size) % 3 == 0
    for values, name in ((np.where(third, 2.0, 0.0), "AUC"), (np.where(third, 0.0, 2.0), "log-likelihood")):
        text = report_of(labelled(), tmp_path, scores=replace(scores, values=values))
        assert f"<dt>held-out {name}</dt>" in text


def test_the_deviance_stands_beside_what_is_expected() -> None:
    X = np.random.default_rng(0).poisson(20.0, (30, 20))
    mask = pltf.holdout(X, 0.3, seed=0)
    scores = pltf.metrics.score(pltf.nmf(rank=1).fit(X, mask=mask, progress=False), X, ~mask, ranking=False)
    assert scores.expected_deviance == pytest.approx(1.05, abs=0.15)
    assert scores.deviance == pytest.approx(scores.expected_deviance, rel=0.3)
    (found,) = checks(labelled(), scored(), progress=False)
    assert "is expected if the fit is right" in next(one.words for one in found.measures if one.name == "deviance")
    assert math.isfinite(scored().expected_deviance)


def test_held_out_cells_are_scored() -> None:
    fit = labelled()
    assert fit.held_out is not None
    (found,) = checks(fit, None, progress=False)
    X = counts()
    expected = pltf.metrics.score(fit, X, tuple(fit.held_out.cells.T), progress=False)
    assert found.scores is not None
    assert found.scores.auc == pytest.approx(expected.auc)
    assert [one.name for one in found.measures][:2] == ["AUC", "average precision"]
    assert found.measures[0].popularity == pytest.approx(expected.table.loc["auc", "popularity"])


def test_of_very_many_held_out_cells_some_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pltf.report.checks.MOST_SCORED", 50)
    (found,) = checks(labelled(), None, progress=False)
    assert found.scores is not None
    assert found.scores.values.size == 50
    assert "chosen at random" in found.notes[0]
    assert MOST_SCORED > 1000


def test_held_out_cells_that_cannot_be_scored_are_a_note(tmp_path: Path) -> None:
    fit = pltf.nmf(rank=1).fit(np.array([[1.0, 2.0], [2.0, np.nan]]), progress=False)
    text = report_of(replace(fit, held_out=HeldOut(np.empty((0, 2), dtype=int), np.empty(0))), tmp_path)
    assert "The held-out cells could not be scored" in text


@pytest.mark.parametrize(("value", "none"), [(4.0, "are empty"), (0.0, "hold a count")])
def test_held_out_cells_of_one_kind_have_no_roc_curve(value: float, none: str, tmp_path: Path) -> None:
    fit = pltf.nmf(rank=1).fit(np.array([[1.0, 2.0], [2.0, np.nan]]), progress=False)
    text = report_of(replace(fit, held_out=HeldOut(np.array([[1, 1]]), np.array([value]))), tmp_path)
    told = f"There is no ROC curve: it needs both empty cells and cells with a count, and none of 1 {none}."
    assert told in text
    assert "calibration" in figures_of(text)
    assert "roc" not in figures_of(text)
    assert "could not be scored" not in text
    assert formatting.number(abs(fit.mean()[1, 1] - value)) in text  # the RMSE
    for shown in ("mean log-probability", "mean Poisson deviance", "root mean squared error"):
        assert shown in text
    assert "top-ranked" not in text


def test_scores_without_ranking_are_shown(tmp_path: Path) -> None:
    scores = pltf.metrics.score(labelled(), ranking=False, resamples=0, draws=5, progress=False)
    text = report_of(labelled(), tmp_path, scores=scores)
    assert "There is no ROC curve, because the scores were made with ranking=False." in text
    assert formatting.number(scores.deviance) in text


def test_scores_that_are_given_are_shown(tmp_path: Path) -> None:
    X = counts()
    mask = pltf.holdout(X, 0.4, seed=5)
    fit = pltf.cp(rank=2).fit(X, mask=mask, progress=False)
    scores = pltf.metrics.score(fit, X, ~mask, progress=False)
    text = report_of(fit, tmp_path, scores=scores)
    assert f"<strong>{scores.log_likelihood:.3f}</strong>".replace("-", "−") in text  # fewer zeros than counts
    assert {"calibration", "roc"} <= set(figures_of(text))


def test_warnings_about_scores_become_notes(tmp_path: Path) -> None:
    X = counts()
    fit = pltf.cp(rank=2).fit(X, progress=False)
    at = np.argwhere(X >= 0)[:40]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = report_of(replace(fit, held_out=HeldOut(at, X[tuple(at.T)].astype(float))), tmp_path)
    assert "40 of the 40 cells were used in the fit" in text


# -- history ------------------------------------------------------------------------------------


def test_values_at_infinity_leave_the_charts_whole(tmp_path: Path) -> None:
    fit = labelled()
    rows = tuple(replace(row, bound=-math.inf) if n == 2 else row for n, row in enumerate(fit.rows))
    text = report_of(replace(fit, rows=rows, trace=np.array([-np.inf, -5.0, -3.0])), tmp_path, scores=scored())
    assert len(figures_of(text)["trace"]["points"]) == len(figures_of(text)["starts"]["points"]) == 2
    assert not re.search(r'(cx|cy|x1|y1|d)="[^"]*(nan|inf)', text)


def test_a_long_trace_keeps_its_ends() -> None:
    fit = labelled()
    long = replace(fit, trace=np.linspace(-1e5, -1e4, 50_000))
    thin = trace(long)
    assert len(thin.sweep) <= 1001
    assert (thin.sweep[0], thin.sweep[-1]) == (1, 50_000)
    assert thin.bound[-1] == -1e4


def test_a_search_has_its_curve_and_table(tmp_path: Path) -> None:
    found = searched()
    told = search(found)
    summary = found.summary().sort_values("best", ascending=False, ignore_index=True)
    assert [one["best"] for one in told.candidates] == summary["best"].tolist()
    (curve,) = told.curves
    assert curve.values == (1, 2, 3, 4)
    assert curve.best[curve.values.index(curve.winner)] == max(curve.best) == summary["best"][0]
    assert len(curve.runs) == 12
    assert "order-0" in figures_of(report_of(found, tmp_path, scores=scored()))


def test_scores_on_hidden_cells_have_a_curve_and_a_column(tmp_path: Path) -> None:
    X = counts()[:8]
    with warnings.catch_warnings(action="ignore"):
        found = pltf.select(pltf.cp(rank=1), X, r=[1, 2, 3], restarts=1, workers=1, criterion="heldout")
    told = search(found)
    (curve,) = told.score_curves
    assert (curve.values, curve.winner, told.lead) == ((1, 2, 3), found.best["r"], None)
    assert dict(zip(curve.values, curve.best, strict=True)) == found.summary().set_index("r")["heldout"].to_dict()
    page = report_of(found, tmp_path, scores=scored())
    assert "hidden-0" in figures_of(page)
    first = told.candidates[0]
    assert f"{first['heldout']:.4f} ± {first['heldout_se']:.4f}".replace("-", "−") in page
    assert "nan" not in page.split("How many components?")[1].split("</table>")[0]


def test_models_of_different_sizes_are_compared_by_hidden_cells(tmp_path: Path) -> None:
    """Only the winner is fitted to all cells, so the table of runs has no column for the sizes of the others."""
    X = counts()[:, :, 0]
    models = [pltf.nmf(rank=1), pltf.Model("X[i,j] = A[i,p] * G[p,q] * B[j,q]", p=1, q=1)]
    with warnings.catch_warnings(action="ignore"):
        found = pltf.select(models, X, restarts=1, workers=1, criterion="heldout")
    assert [curve.name for curve in search(found).score_curves] == ["model"]
    assert figures_of(report_of(found, tmp_path))


@pytest.mark.parametrize("criterion", ["bound", "heldout", "both"])
def test_a_chosen_model_without_the_size_that_others_have(criterion: str, tmp_path: Path) -> None:
    models = [pltf.nmf(rank=1), pltf.Model("X[i,j] = A[i] * B[j]")]
    X = np.random.default_rng(0).poisson(3.0, (12, 10))
    with warnings.catch_warnings(action="ignore"):
        found = pltf.select(models, X, r=[2, 3], restarts=1, workers=1, criterion=criterion)
    assert "r" not in found.best
    assert "None was chosen" not in report_of(found, tmp_path)


def test_the_chosen_size_is_marked_at_its_own_bound() -> None:
    """By held-out cells another one may be chosen than by the ELBO."""
    runs = ((1, -5.0, False), (2, -3.0, False))
    curve = BoundCurve("r", ordered=True, values=(1, 2), best=(-5.0, -3.0), runs=runs, winner=1)
    marks = charts.order(curve, 0).marks
    chosen, best = (re.findall(rf'class="{css}" cx="(.*?)%" cy="(.*?)%"', marks) for css in ("orange open", "blue"))
    assert chosen == best[:1]


def test_models_and_priors_are_compared_by_name(tmp_path: Path) -> None:
    X = counts()[:8]
    with warnings.catch_warnings(action="ignore"):
        models = [pltf.cp(rank=2), pltf.tucker(ranks=(2, 2, 2))]
        options: dict[str, Any] = {"restarts": 2, "workers": 1, "criterion": "bound"}
        found = pltf.select(models, X, prior=[pltf.Gamma(0.5, 10.0), pltf.Gamma(0.5, 1.0)], **options)
    told = search(found)
    assert [curve.name for curve in told.curves] == ["model", "prior"]
    assert {"order-0", "order-1"} <= set(figures_of(report_of(found, tmp_path, scores=scored())))


# -- the page -----------------------------------------------------------------------------------


def test_labels_cannot_leave_their_place(tmp_path: Path) -> None:
    text = report_of(searched(), tmp_path, scores=scored(), title="<script>alert(3)</script>{{7*7}}")
    page = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)  # without those that are ours
    assert len(re.findall(r"<script", text)) == 2
    assert "<img src=x" not in page
    assert "<b>bold" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", page)[0]
    data = re.search(r'id="figures">(.*?)</script>', text, flags=re.DOTALL)
    assert data is not None
    assert not set("<>&") & set(data.group(1))
    assert set(figures_of(text)["A-0"]["rows"]) == {*users()[:7], "(blank)", *users()[8:]}


def test_nothing_is_loaded(tmp_path: Path) -> None:
    text = html.unescape(report_of(labelled(), tmp_path, scores=scored()))
    assert "default-src 'none'; script-src 'sha256-" in text
    page = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert len(text) < 150_000
    assert not re.search(r'(src|href)="?(https?:|//)', page)
    assert "unsafe-eval" not in page
    assert "@import" not in page


@pytest.mark.parametrize("method", ["em", "map"])
def test_point_estimates_have_no_intervals(method: str, tmp_path: Path) -> None:
    fit = pltf.cp(rank=2).fit(counts(), method=method, progress=False)
    text = report_of(fit, tmp_path)
    assert "single values, without intervals" in text
    assert not components(fit, rankings(fit), 3)["r"][0].modes[0].intervals


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("X[a,b,c,d,e,f] = A[a,r]*B[b,r]*C[c,r]*D[d,r]*E[e,r]*F[f,r]", (3, 2, 3, 2, 3, 2)),
        ("X[i,j] = A[i]*B[j]", (4, 3)),
        ("X[i,j] = S[]*A[i,j,r]", (4, 3)),
    ],
)
def test_unusual_models_are_reported(text: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    model = pltf.Model(text, **({"r": 2} if "r]" in text else {}))
    with warnings.catch_warnings(action="ignore", category=pltf.ConvergenceWarning):
        fit = model.fit(np.random.default_rng(0).poisson(2.0, shape), max_iter=20, progress=False)
    found = report_of(fit, tmp_path)
    assert len(figures_of(found)) >= len(model.factors) + 1
    assert "</html>" in found


def test_data_of_zeros_only_are_reported(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore", category=pltf.ConvergenceWarning):
        fit = pltf.nmf(rank=2).fit(np.zeros((4, 3)), progress=False)
    assert "trace" in figures_of(report_of(fit, tmp_path))


def test_what_was_loaded_is_reported_alike(tmp_path: Path) -> None:
    labelled().save(tmp_path / "run.nc")
    again = pltf.load(tmp_path / "run.nc")
    folder = tmp_path / "out"
    folder.mkdir()
    text = report_of(again, folder, scores=scored())
    assert "alert(2)" in text
    assert figures_of(text)["trace"]["points"]


def test_the_command_and_the_versions_are_told(tmp_path: Path) -> None:
    text = report_of(labelled(), tmp_path, scores=scored())
    assert "pltf fit &#39;&lt;script&gt;alert(2)" in text
    assert "<dt>pltf</dt><dd>0.1.0</dd>" in text
    assert "fit = model.fit(data, restarts=3, seed=0)" in text


ASKED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "stop": {"tol": 1e-3, "max_iter": 170, "seed": 5},
    "prior": {"prior": pltf.Gamma(0.3, 2.0)},
    "priors": {"prior": {"A": pltf.Gamma(0.3, 2.0), "C": pltf.Gamma(0.5, 1.0, learn="mean", tie="component")}},
    "ways": {"method": "em", "init": "random", "dtype": "float32", "accelerate": False, "restarts": 2},
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=list(ASKED))
def test_the_code_does_it_again(asked: dict[str, Any], tmp_path: Path) -> None:
    X = np.random.default_rng(0).poisson(3.0, (6, 5, 4))
    fit = pltf.cp(rank=2).fit(X, **asked)
    fit.save(tmp_path / "run.nc")
    for one in (fit, pltf.load(tmp_path / "run.nc")):
        assert isinstance(one, pltf.Fit)
        known: dict[str, Any] = {"data": X}
        exec(in_python(one), known)
        np.testing.assert_array_equal(known["fit"].trace, fit.trace)


def test_the_code_of_a_search_does_its_best_fit_again() -> None:
    X = np.random.default_rng(0).poisson(3.0, (6, 5, 4))
    with warnings.catch_warnings(action="ignore", category=pltf.SelectionWarning):
        found = pltf.select(pltf.cp(rank=2), X, r=[1, 2], prior=[None, pltf.Gamma(1.0, 1.0)], restarts=2, tol=1e-4)
    known: dict[str, Any] = {"data": X}
    exec(in_python(found.best_fit), known)
    np.testing.assert_array_equal(known["fit"].trace, found.best_fit.trace)


def test_what_is_too_large_for_the_code_goes_by_its_name() -> None:
    large: dict[str, Any] = {
        "prior": pltf.Gamma(np.full((1, 2), 0.5), 1.0),
        "init": {"A": np.ones((6, 2)), "C": np.ones((4, 2))},
    }
    fit = pltf.cp(rank=2).fit(np.ones((6, 5, 4)), fixed={"B": np.ones((5, 2))}, max_iter=3, tol=0, **large)
    code = in_python(fit)
    assert "prior=prior, max_iter=3, tol=0.0, init=init, fixed=fixed)" in " ".join(code.split())


def test_the_overview_tells_what_each_component_is_made_of(tmp_path: Path) -> None:
    overview = section(report_of(labelled(), tmp_path, scores=scored()), "overview")
    ranked = rankings(labelled())
    parts = components(labelled(), ranked, 10)["r"]
    rows = re.findall(r'<a class="badge" href="#component-r-(\d+)">(.*?)</tr>', overview, re.DOTALL)
    assert [int(number) for number, _ in rows] == [one.number for one in parts]
    for (_, row), one in zip(rows, parts, strict=True):
        for mode in one.modes:
            largest = max(mode.entries, key=lambda entry: entry.share)
            assert mode.brief.startswith(largest.name)
            assert mode.brief in html.unescape(row)


def test_good_verdicts_are_in_the_overview_too(tmp_path: Path) -> None:
    good = replace(scored(), lead=scored().lead.assign(value=1.0, low=0.5, high=1.5))
    assert good.beats_popularity
    overview = section(report_of(labelled(), tmp_path, scores=good), "overview")
    assert f'<p class="note good">{checks(labelled(), good, progress=False)[0].verdict}</p>' in html.unescape(overview)


def test_rows_stay_apart_where_there_is_little_room() -> None:
    rows = ("MCDONNELL DOUGLAS", "MCDONNELL DOUGLAS AIRCRAFT CO", "MCDONNELL DOUGLAS CORPORATION", "BEECH")
    X = np.random.default_rng(0).poisson(3.0, (4, 5))
    fit = pltf.nmf(("who", "where"), rank=1).fit(pltf.observe(X, dims=("who", "where"), labels={"who": rows}))
    (found,) = [one for view in factor_views(fit, rankings(fit)) for one in view.maps if one.row_index == "who"]
    narrow = charts.heat_map(found, "W").narrow
    assert len(set(narrow)) == 4
    assert max(map(len, narrow)) <= charts.LONGEST_NARROW + len(" (2)")


def test_the_report_says_what_the_data_in_the_code_stand_for(tmp_path: Path) -> None:
    told = data_in_words(labelled())
    assert "run the command above: it reads the data and holds out the same cells" in told
    assert "data stands for the data as it reads them, with the held-out cells missing" in told
    assert told in report_of(labelled(), tmp_path, scores=scored())
    alone = data_in_words(replace(labelled(), origin={}))
    assert "the data that the fit was given, with the same cells missing (held out, or never observed)" in alone
    assert data_in_words(pltf.nmf(rank=1).fit(np.ones((3, 2)))).startswith("Here data stands for the data that the fit")


def test_a_search_by_held_out_cells_does_not_say_that_none_were_held_out(tmp_path: Path) -> None:
    X = np.random.default_rng(0).poisson(3.0, (12, 10))
    with warnings.catch_warnings(action="ignore"):
        found = pltf.select(pltf.nmf(rank=1), X, r=[1, 2], restarts=1, workers=1, criterion="heldout", progress=False)
    told = section(report_of(found, tmp_path), "checks")
    assert "The search held out cells to compare the candidates" in told
    assert "No cells were held out" not in told


def test_a_fit_of_a_store_names_the_option_of_the_command_line(tmp_path: Path) -> None:
    table = pd.DataFrame({"who": ["a", "b", "a"], "where": ["x", "x", "y"]})
    store = pltf.prepare(table, tmp_path / "cells.pltf", dims=["who", "where"])
    pltf.nmf(("who", "where"), rank=1).fit(pltf.open(store)).save(tmp_path / "run.nc")
    fit = pltf.load(tmp_path / "run.nc")
    assert isinstance(fit, pltf.Fit)
    (told,) = predictions(fit, None, 5, progress=False)
    assert told.notes[0].endswith("fit.with_store(path), or with pltf report RUN --store FOLDER.")


# -- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"result": 3}, "result must be a pltf.Fit or a pltf.Selection, got 3"),
        ({"path": ""}, "path must be a file name, got ''"),
        ({"path": 7}, "path must be a file name, got 7"),
        ({"path": "."}, "path must be a file name, but . is a folder"),
        ({"path": "none/report.html"}, "path: there is no folder none"),
        ({"title": 3}, "title must be a text or None, got 3"),
        (
            {"scores": 0.9},
            "scores must be the result of pltf.metrics.score, a mapping from tensors to such results, or None; got 0.9",
        ),
        ({"scores": {"Y": 0.9}}, "scores: 'Y' is not a tensor of the model (X)"),
        ({"top": 0}, "top must be a whole number of at least 1, got 0"),
        ({"progress": "yes"}, "progress must be True or False, got 'yes'"),
    ],
)
def test_what_cannot_be_right_is_told(
    options: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"result": labelled(), "path": "report.html", **options}
    with pytest.raises(PltfError, match=f"^{re.escape(message)}$"):
        pltf.report.write(given.pop("result"), given.pop("path"), **given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["jinja2"])
def test_missing_packages_are_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit, real = labelled(), builtins.__import__

    def absent(wanted: str, *rest: Any, **more: Any) -> Any:
        if wanted.split(".")[0] == name:
            raise ModuleNotFoundError(f"No module named {wanted!r}", name=wanted)
        return real(wanted, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(PltfError, match=rf"^reports need {name}: pip install 'pltf\[plot\]'$"):
        pltf.report.write(fit, tmp_path / "report.html")


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("the old one")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(PltfError, match="cannot be written: No space left on device"):
        pltf.report.write(labelled(), path, progress=False)
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "the old one"


# -- words --------------------------------------------------------------------------------------


def test_labels_that_are_cut_stay_apart() -> None:
    long = ["x" * 40 + "a" * 40 + "c", "x" * 40 + "b" * 40 + "c", "x" * 40 + "a" * 41 + "c"]
    found = formatting.distinct([*NASTY, *long], 24)
    assert len(set(found)) == len([*NASTY, *long])
    assert all(len(one) <= 28 for one in found)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (0.0, "0"),
        (-0.0924, "−0.0924"),
        (1e-7, "1.0e-07"),
        (3.25, "3.25"),
        (249.0, "249"),
        (1234.5, "1,234"),
        (float("inf"), "∞"),
    ],
)
def test_numbers_have_digits_that_count(x: float, text: str) -> None:
    assert formatting.number(x) == text


def contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_text_can_be_read_in_light_and_dark() -> None:
    style = (Path(charts.__file__).parent / "style.css").read_text()
    themes = [dict(re.findall(r"--(\w+): (#\w{6});", part)) for part in style.split("prefers-color-scheme: dark")[:2]]
    for theme in themes:
        for ground in ("page", "card"):
            for ink in ("ink", "soft", "blue", "orange"):
                assert contrast(theme[ink], theme[ground]) >= 4.5, (ink, ground)
            for mark in ("bar", "mute", "accent"):
                assert contrast({**themes[0], **theme}[mark], theme[ground]) >= 3, (mark, ground)
        assert contrast(theme["ink"], theme["warn"]) >= 4.5


def test_cells_that_the_data_do_not_tie_down_are_told(tmp_path: Path) -> None:
    X = np.random.default_rng(0).poisson(3.0, (6, 5)).astype(float)
    X[2], X[1, 1] = np.nan, np.nan
    fit = pltf.nmf(rank=1).fit(X, prior=pltf.Gamma(1.0, 10.0), progress=False)
    (found,) = predictions(fit, None, 20, progress=False)
    assert len(found.cells) == 1
    assert "5 of the 6 most probable cells are left out (expected count up to " in found.notes[0]
    page = report_of(fit, tmp_path)
    assert "the data say too little about them" in page
    assert "90 % interval of the rate" in page
    assert "90 % interval of the count" in page


def test_overdispersed_counts_show_the_interval_of_the_count_first(tmp_path: Path) -> None:
    X = np.random.default_rng(0).poisson(3.0, (8, 8)).astype(float)
    X[2, 2:4] = np.nan
    fit = pltf.nmf(rank=1).fit(X, progress=False)
    for dispersion, first, words in (
        (pltf.Dispersion(0.5, cells=300, factor=348.0), "count", "these vary 348 times more, so use the interval of"),
        (pltf.Dispersion(), "rate", "The interval of the rate contains the expected count"),
    ):
        page = report_of(replace(fit, dispersion={"X": dispersion}), tmp_path)
        other = "rate" if first == "count" else "count"
        assert page.index(f"90 % interval of the {first}<") < page.index(f"90 % interval of the {other}<")
        assert words in page


def test_control_characters_of_labels_are_shown(tmp_path: Path) -> None:
    labels = ["a\x00b", "c\x1b[31m", "\u202eabc"]
    table = pd.DataFrame({"user": labels * 2, "page": ["x", "y", "z", "y", "z", "x"]})
    text = report_of(pltf.nmf(("user", "page"), rank=1).fit(table), tmp_path)
    assert not set(text) & {"\x00", "\x1b", "\u202e"}
    assert "a\\x00b" in text
    assert "\\u202eabc" in text
