"""Scores: every measure against its definition, popularity against a loop, intervals against a plain bootstrap."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import optimize, sparse, special, stats
from sklearn.metrics import average_precision_score, roc_auc_score

import pltf
import pltf.metrics
import pltf.plotting
from pltf import metrics
from pltf.data.split import HeldOut
from pltf.datasets import draw
from pltf.metrics.measures import Judged, resampled
from pltf.metrics.scores import _calibration, _tables
from tests.extras import optional
from tests.prediction import COUPLED, believing, every_cell, small_fit
from tests.reference import Array

plt = optional("matplotlib.pyplot")

MEASURES = ["auc", "average_precision", "log_likelihood", "deviance", "rmse"]

# -- measures -------------------------------------------------------------------------------------


def auc(positive: Any, said: Array, weight: Array) -> float:
    """How often a positive one is ahead of a negative one, ties for half."""
    won = total = 0.0
    for p in np.flatnonzero(positive):
        for q in np.flatnonzero(~positive):
            won += weight[p] * weight[q] * (0.5 * (said[p] == said[q]) + (said[p] > said[q]))
            total += weight[p] * weight[q]
    return won / total


def average_precision(positive: Any, said: Array, weight: Array) -> float:
    """Precision at each threshold, weighted by the recall that it adds."""
    total, before = 0.0, 0.0
    for threshold in np.unique(said)[::-1]:
        taken = weight[said >= threshold].sum()
        right = weight[(said >= threshold) & positive].sum()
        total += (right - before) / weight[positive].sum() * (right / taken if taken else 0.0)
        before = right
    return total


def deviance(x: Array, mean: Array, weight: Array) -> float:
    return float((weight * 2 * (special.xlogy(x, x) - special.xlogy(x, mean) - x + mean)).sum() / weight.sum())


@st.composite
def judged(draw: st.DrawFn) -> tuple[Array, Array, Array]:
    """Counts of both kinds, means with ties, weights of which some are zero."""
    count, rng = draw(st.integers(2, 30)), np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.poisson(draw(st.sampled_from([0.1, 0.7, 3.0])), count).astype(float)
    few = draw(st.sampled_from([2, 6, 10**6]))
    mean = rng.integers(1, few, count, endpoint=True) / few * draw(st.sampled_from([1e-8, 1.0, 1e6]))
    kind = draw(st.sampled_from(["ones", "counts", "any"]))
    weight = {"ones": np.ones(count), "counts": rng.poisson(1.0, count), "any": rng.gamma(0.5, 1, count)}[kind]
    assume(0 < weight[x > 0].sum() < weight.sum())
    return x, mean, weight.astype(float)


@given(judged())
def test_measures_are_what_they_are_called(case: tuple[Array, Array, Array]) -> None:
    x, mean, weight = case
    log_prob = stats.poisson.logpmf(x, mean)
    found = Judged(x, mean, log_prob).weighted(weight)
    expected = [
        auc(x > 0, mean, weight),
        average_precision(x > 0, mean, weight),
        (weight * log_prob).sum() / weight.sum(),
        deviance(x, mean, weight),
        math.sqrt((weight * (x - mean) ** 2).sum() / weight.sum()),
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@given(judged())
def test_equal_weights_are_none(case: tuple[Array, Array, Array]) -> None:
    x, mean, _ = case
    mean[0] *= x[0] == 0  # nothing was expected there
    asked = Judged(x, mean, stats.poisson.logpmf(x, mean))
    np.testing.assert_allclose(asked.weighted(np.full(x.size, 2.0)), asked.values(), rtol=1e-9, atol=1e-9)


@given(judged())
def test_what_was_not_expected_at_all(case: tuple[Array, Array, Array]) -> None:
    x, mean, _ = case
    place = np.flatnonzero(x)[0]
    mean[place] = 0
    asked = Judged(x, mean, stats.poisson.logpmf(x, mean))
    without = np.ones(x.size)
    without[place] = 0
    assert asked.values()[2:4] == asked.weighted(np.ones(x.size))[2:4] == [-math.inf, math.inf]
    assume((without * x).any())
    assert np.isfinite(asked.weighted(without)).all()


@given(judged())
def test_grouping_cells_changes_nothing(case: tuple[Array, Array, Array]) -> None:
    x, mean, weight = case
    found = Judged(x, mean, mean).weighted(weight)
    kept = weight > 0
    full = (x > 0)[kept], mean[kept]
    np.testing.assert_allclose(found[0], roc_auc_score(*full, sample_weight=weight[kept]), rtol=1e-12)
    np.testing.assert_allclose(found[1], average_precision_score(*full, sample_weight=weight[kept]), rtol=1e-12)


def test_average_precision_where_zeros_are_few() -> None:
    x, mean = np.array([0.0, 1.0, 1.0]), np.array([3.0, 2.0, 1.0])
    for found in (Judged(x, mean, mean).weighted(np.ones(3)), Judged(x, mean, mean).values()):
        assert found[1] == pytest.approx((1 / 2 + 2 / 3) / 2)


# -- scores of a fit ------------------------------------------------------------------------------


def links(seed: int = 0, shape: tuple[int, ...] = (9, 8), mean: float = 0.6) -> Array:
    rng = np.random.default_rng(seed)
    rates = mean * np.multiply.outer(rng.gamma(1, 1, shape[0]), rng.gamma(1, 1, shape[1:]))
    return rng.poisson(rates).astype(float)


X = links()
MASK = pltf.holdout(X, 0.4, seed=0)


@cache
def links_fit() -> pltf.Fit:
    return pltf.nmf(rank=2).fit(X, mask=MASK, max_iter=20, tol=0)


def test_the_table_holds_the_measures() -> None:
    scores = pltf.metrics.score(links_fit(), X, ~MASK, draws=50, resamples=20, seed=3)
    x, mean = X[~MASK], links_fit().mean(~MASK)
    np.testing.assert_array_equal(scores.values, x)
    np.testing.assert_array_equal(scores.means, mean)
    ones = np.ones(x.size)
    busy = scores.popularity
    expected = {
        "value": [
            auc(x > 0, mean, ones),
            average_precision(x > 0, mean, ones),
            links_fit().log_prob(~MASK, x, draws=50, seed=3).mean(),
            deviance(x, mean, ones),
            math.sqrt(((x - mean) ** 2).mean()),
        ],
        "popularity": [
            auc(x > 0, busy, ones),
            average_precision(x > 0, busy, ones),
            stats.poisson.logpmf(x, busy).mean(),
            deviance(x, busy, ones),
            math.sqrt(((x - busy) ** 2).mean()),
        ],
    }
    assert scores.table.index.tolist() == MEASURES
    for column, values in expected.items():
        np.testing.assert_allclose(scores.table[column], values, rtol=1e-10)
    for measure, value in zip(MEASURES, expected["value"], strict=True):
        assert getattr(scores, measure) == pytest.approx(value, rel=1e-10)
    lines = repr(scores).split("\n")
    assert lines[0] == f"<Scores of {x.size} cells, {(x > 0).sum()} of them above zero; 90% intervals"
    assert [line.split()[0] for line in lines[1:-1]] == MEASURES
    assert lines[-1].startswith("  90% intervals of the count contain ")


def test_intervals_are_those_of_a_plain_bootstrap() -> None:
    """300 samples against 1000 taken here: ends to within 0.45 of the width, and of the measures that are not ranks
    (these may be perfect) a share of 0.9 of the one in the other, to 0.06.

    Right intervals fail this less than once in a thousand seeds; 80 % intervals pass it once in a hundred.
    """
    scores = pltf.metrics.score(links_fit(), X, ~MASK, draws=50, resamples=300, seed=1)
    x, rng = X[~MASK], np.random.default_rng(7)
    drawn: list[tuple[float, ...]] = []
    log_prob = links_fit().log_prob(~MASK, x, draws=50, seed=1)
    wins = (scores.means[:, None] > scores.means) + 0.5 * (scores.means[:, None] == scores.means)
    while len(drawn) < 1000:
        some = rng.integers(x.size, size=x.size)
        held, mean = x[some], scores.means[some]
        if 0 < np.count_nonzero(held) < x.size:
            area = wins[np.ix_(some[held > 0], some[held == 0])].mean()
            precision = average_precision(held > 0, mean, np.ones(x.size))
            rest = log_prob[some].mean(), deviance(held, mean, np.ones(x.size)), ((held - mean) ** 2).mean() ** 0.5
            drawn.append((area, precision, *rest))
    low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
    for ends, column in ((low, "low"), (high, "high")):
        np.testing.assert_array_less(abs(scores.table[column] - ends), 0.45 * (high - low))
    inside = (scores.table["low"].to_numpy() <= drawn) & (drawn <= scores.table["high"].to_numpy())
    assert inside[:, 2:].mean() == pytest.approx(0.9, abs=0.06)
    assert (scores.table["low"] < scores.table["value"]).all()
    assert (scores.table["value"] < scores.table["high"]).all()


def test_seeds_levels_and_no_intervals() -> None:
    first, again, other = (
        pltf.metrics.score(links_fit(), X, ~MASK, resamples=20, seed=seed, draws=20) for seed in (1, 1, 2)
    )
    pd.testing.assert_frame_equal(first.table, again.table, check_exact=True)
    assert (first.table[["low", "high"]] != other.table[["low", "high"]]).any(axis=None)
    assert first.table["value"].drop("log_likelihood").equals(other.table["value"].drop("log_likelihood"))
    wide, narrow = (
        pltf.metrics.score(links_fit(), X, ~MASK, resamples=60, level=level, draws=20) for level in (0.95, 0.5)
    )
    for before in ("", "popularity_"):
        assert (wide.table[f"{before}low"] <= narrow.table[f"{before}low"]).all()
        assert (wide.table[f"{before}low"] < narrow.table[f"{before}low"])[2:].all()  # ranks may be perfect
        assert (wide.table[f"{before}high"] >= narrow.table[f"{before}high"]).all()
        assert (wide.table[f"{before}high"] > narrow.table[f"{before}high"])[2:].all()
    none = pltf.metrics.score(links_fit(), X, ~MASK, resamples=0, draws=20)
    assert none.table[["low", "high", "popularity_low", "popularity_high"]].isna().all(axis=None)
    assert none.table["value"].drop("log_likelihood").equals(wide.table["value"].drop("log_likelihood"))


def test_what_there_is_not_is_not_shown() -> None:
    assert "nan" not in repr(pltf.metrics.score(links_fit(), X, ~MASK, resamples=0, draws=2))


@pytest.mark.parametrize("form", ["mask", "rows", "tuple", "observation", "sparse", "table"])
def test_cells_and_data_in_every_form(form: str) -> None:
    expected = pltf.metrics.score(links_fit(), X, ~MASK, resamples=0, draws=20)
    cells: Any = {"rows": np.argwhere(~MASK), "tuple": np.nonzero(~MASK)}.get(form, ~MASK)
    i, j = np.indices(X.shape)
    table = pd.DataFrame({"n": X.ravel(), "j": j.ravel(), "i": i.ravel()})
    data: Any = {
        "observation": pltf.observe(X),
        "sparse": sparse.csr_array(X),
        "table": table.set_index(["i", "j"])["n"],
    }.get(form, X)
    scores = pltf.metrics.score(links_fit(), data, cells, resamples=0, draws=20)
    pd.testing.assert_frame_equal(scores.table, expected.table, rtol=1e-12)


# -- popularity -----------------------------------------------------------------------------------


def popular(train: Array, cells: Any) -> Array:
    """The most probable product of a mean and activities, whose logarithms have the prior a - exp(a), by L-BFGS.

    The cells that are used are not NaN.
    """
    used = ~np.isnan(train)
    x, at = train[used], np.argwhere(used)
    rows = np.cumsum((1, *train.shape))
    of_cell = np.hstack([np.zeros((len(at), 1), dtype=int), at + rows[:-1]])
    seen = np.unique(of_cell[:, 1:])  # the others have the most probable activity, 1

    def cost(log: Array) -> tuple[float, Array]:
        rate, prior = np.exp(log[of_cell].sum(axis=1)), np.zeros(log.size)
        prior[seen] = log[seen] - np.exp(log[seen])
        slope = np.zeros(log.size)
        slope[seen] = 1 - np.exp(log[seen])
        for column in of_cell.T:
            slope += np.bincount(column, x - rate, minlength=log.size)
        return -float((x * log[of_cell].sum(axis=1) - rate).sum() + prior.sum()), -slope

    start = np.zeros(rows[-1])
    start[0] = np.log(x.mean())
    found = optimize.minimize(cost, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-8}).x
    asked = np.hstack([np.zeros((len(cells), 1), dtype=int), np.asarray(cells) + rows[:-1]])
    return np.asarray(np.exp(found[asked].sum(axis=1)))


def seen_as(full: Array, keep: Any, storage: str) -> Any:
    """What is fitted: the cells that are kept, stored in some way."""
    if storage == "dense":
        return np.where(keep, full, np.nan)
    listed = np.argwhere(keep & (full > 0) if storage == "zero" else keep)
    missing = {"missing": np.argwhere(~keep)} if storage == "zero" else {"unlisted": "missing"}
    return pltf.observe((listed, full[tuple(listed.T)]), shape=full.shape, **missing)


KINDS = st.sampled_from(["dense", "zero", "missing"])


@given(KINDS, KINDS, st.integers(0, 10**6), st.integers(2, 3))
def test_popularity_is_a_plain_loop(fitted: str, scored: str, seed: int, modes: int) -> None:
    """Whatever the storage of the data of the fit and of the data that are scored."""
    full, rng = links(seed, (5, 4, 3)[:modes], 2.0), np.random.default_rng(seed)
    keep = rng.random(full.shape) < 0.6
    known = rng.random(full.shape) < 0.9  # some cells of what is scored are missing there
    hidden = np.argwhere(~keep & known & (rng.random(full.shape) < 0.8))
    train = np.where(keep & known, full, np.nan)
    held = full[tuple(hidden.T)]
    assume(0 < np.count_nonzero(held) < held.size and np.nansum(train) > 0)
    model = pltf.nmf(rank=1) if modes == 2 else pltf.cp(rank=1)
    fit = model.fit(seen_as(full, keep, fitted), max_iter=1, tol=0)
    scores = pltf.metrics.score(fit, seen_as(full, known, scored), hidden, resamples=0, draws=2)
    np.testing.assert_allclose(scores.popularity, popular(train, hidden), rtol=1e-6)
    np.testing.assert_array_equal(scores.values, held)


@pytest.mark.parametrize("model", [pltf.cp(rank=2), pltf.tucker(ranks=(2, 2, 2))], ids=["cp", "tucker"])
def test_popularity_of_a_fit_without_its_data_is_that_of_its_expected_counts(model: pltf.Model) -> None:
    fit = model.fit(np.random.default_rng(0).poisson(2.0, (5, 4, 3)), keep_data=False)
    cells = np.array([(0, 1, 2), (4, 0, 1), (3, 3, 0)])
    with pytest.warns(pltf.ScoreWarning, match="does not know which cells it was fitted to"):
        scores = pltf.metrics.score(fit, HeldOut(cells, np.array([1.0, 0.0, 3.0])))
    rates, (i, j, k) = fit.mean(), cells.T
    expected = rates.sum((1, 2))[i] * rates.sum((0, 2))[j] * rates.sum((0, 1))[k] / rates.sum() ** 2
    np.testing.assert_allclose(scores.popularity, expected, rtol=1e-10)


@given(KINDS, st.integers(0, 10**6), st.booleans())
def test_popularity_alone(storage: str, seed: int, everything: bool) -> None:
    """From data as for a fit; the cells that are asked for are left out, whatever they hold."""
    full, rng = links(seed, (5, 4), 2.0), np.random.default_rng(seed)
    known = rng.random(full.shape) < (1.0 if everything else 0.7)
    asked = np.argwhere(rng.random(full.shape) < 0.3)
    train = np.where(known, full, np.nan)
    train[tuple(asked.T)] = np.nan
    assume(len(asked) and np.nansum(train) > 0)
    found = pltf.metrics.popularity(seen_as(full, known, storage), asked)
    np.testing.assert_allclose(found, popular(train, asked), rtol=1e-6)
    masked = pltf.metrics.popularity(np.where(known, full, -1), tuple(asked.T), mask=known)
    np.testing.assert_allclose(masked, found, rtol=1e-10)


@pytest.mark.parametrize("shape", [(40, 12), (12, 9, 5)])
def test_large_counts_have_the_maximum_likelihood(shape: tuple[int, ...]) -> None:
    """One count more or less has no effect; half of the cells are missing, more of them in some rows."""
    rng = np.random.default_rng(0)
    rate = 1e9 * rng.gamma(1, 1, shape[0]).reshape(-1, *[1] * (len(shape) - 1)) * rng.gamma(1, 1, shape[1:])
    full = rng.poisson(rate).astype(float)
    seen = rng.random(shape) < rng.random(shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    seen[0] = seen[:, 0] = True
    train = np.where(seen, full, np.nan)
    fitted = np.ones(shape)
    for _ in range(300):
        for axis in range(len(shape)):
            others = tuple(other for other in range(len(shape)) if other != axis)
            counts, expected = (np.where(seen, one, 0.0).sum(axis=others, keepdims=True) for one in (full, fitted))
            fitted = fitted * counts / expected
    at = np.argwhere(~seen)
    np.testing.assert_allclose(pltf.metrics.popularity(train, at), fitted[tuple(at.T)], rtol=1e-5)


def test_one_component_does_not_beat_popularity_where_rows_lack_columns() -> None:
    """Popularity is a model with one component; counted in a single pass it was two nats worse."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        full = rng.poisson(100 * np.outer(rng.gamma(2, 1, 40), rng.gamma(2, 1, 12)))
        mask = pltf.holdout(full, 0.2, seed=seed)
        fit = pltf.nmf(rank=1).fit(full, mask=mask, dispersion=None)
        lead = pltf.metrics.score(fit, full, ~mask, ranking=False, resamples=0).lead.loc["log_likelihood", "value"]
        assert abs(lead) < 0.05


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ([(0, 8)], "at: row 0 has 8 for index 'axis 1', which runs from 0 to 7"),
        ([(0,)], r"at must list cells, one row of 2 positions each; got shape \(1, 1\)"),
        (None, "at: expected real or integer numbers"),
    ],
)
def test_popularity_of_no_such_cell(at: Any, message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message):
        pltf.metrics.popularity(X, at)


@pytest.mark.parametrize("unlisted", ["zero", "missing"])
def test_popularity_of_a_holdout(unlisted: str) -> None:
    full = links(3, (9, 8), 2.0)
    known = np.random.default_rng(0).random(full.shape) < 0.9
    split = pltf.holdout(seen_as(full, known, unlisted), 0.3, seed=1)
    fit = pltf.nmf(rank=1).fit(split.train, max_iter=2, tol=0)
    scores = pltf.metrics.score(fit, split, resamples=0, draws=2)
    train = np.where(known, full, np.nan)
    train[tuple(split.cells.T)] = np.nan
    np.testing.assert_allclose(scores.popularity, popular(train, split.cells), rtol=1e-6)
    np.testing.assert_array_equal(scores.values, full[tuple(split.cells.T)])


@pytest.mark.parametrize("storage", ["dense", "zero", "missing"])
def test_what_the_cells_hold_is_not_used_to_predict_it(storage: str) -> None:
    """Neither by the fit nor by popularity, not even of cells that the fit has seen."""
    cells = np.argwhere(~MASK)
    changed = np.where(MASK, X, 3 * (X == 0))
    fit = pltf.nmf(rank=2).fit(np.where(MASK, X, np.nan), max_iter=5, tol=0)
    every = MASK | ~MASK
    one, two = (
        pltf.metrics.score(fit, seen_as(data, every, storage), cells, resamples=0, draws=5) for data in (X, changed)
    )
    np.testing.assert_array_equal(one.popularity, two.popularity)
    np.testing.assert_array_equal(one.means, two.means)
    assert (one.values != two.values).all()
    seeing = pltf.nmf(rank=2).fit(X, max_iter=5, tol=0)
    for data in (X, changed):
        with pytest.warns(pltf.ScoreWarning, match="were used in the fit"):
            scores = pltf.metrics.score(seeing, seen_as(data, every, storage), cells, resamples=0, draws=5)
        np.testing.assert_allclose(scores.popularity, one.popularity, rtol=1e-12)


def test_nothing_but_zeros_to_learn_from() -> None:
    full = np.zeros((3, 4))
    full[0, 0] = 2
    mask = full == 0
    mask[1, 1] = False
    scores = pltf.metrics.score(pltf.nmf(rank=1).fit(full, mask=mask, max_iter=2, tol=0), full, ~mask, resamples=5)
    np.testing.assert_array_equal(scores.popularity, [0, 0])
    assert scores.table.loc["auc", "popularity"] == 0.5
    assert scores.table.loc["log_likelihood", "popularity"] == -np.inf


def test_popularity_in_spaces_beyond_machine_integers() -> None:
    rng, shape = np.random.default_rng(0), (10**5,) * 5
    cells = np.unique(rng.integers(0, 10**5, (150, 5)), axis=0)
    hidden = np.concatenate([cells[:20], rng.integers(0, 10**5, (50, 5))])
    whole = pltf.observe((cells, np.ones(len(cells))), shape=shape)
    train = pltf.observe((cells[20:], np.ones(len(cells) - 20)), shape=shape, missing=hidden)
    fit = pltf.Model("ir,jr,kr,lr,mr->ijklm", r=1).fit(train, max_iter=1, tol=0)
    scores = pltf.metrics.score(fit, whole, hidden, resamples=0, draws=2)
    grand, expected = (len(cells) - 20) / 1e25, np.ones(len(hidden))
    for mode in range(5):
        number = np.bincount(cells[20:, mode], minlength=10**5)[hidden[:, mode]]
        expected *= (number + 1) / (grand * 1e20 + 1)
    np.testing.assert_allclose(scores.popularity, grand * expected, rtol=1e-6)


# -- calibration ----------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.sampled_from([2, 7, 60, 400]), st.sampled_from([0.5, 0.9]), st.booleans())
def test_calibration(seed: int, count: int, level: float, flat: bool) -> None:
    """Bins are runs of cells by their mean, of nearly the same expected total; intervals are those of a bootstrap."""
    rng = np.random.default_rng(seed)
    means = np.full(count, 0.3) if flat else rng.gamma(0.5, 2.0, count)
    x = rng.poisson(means).astype(float)
    x[:2] = 0, 1
    table = _calibration(x, means, 40, level, seed)
    picks = np.random.default_rng(seed)
    samples: list[Any] = []
    while len(samples) < 40:
        picked = picks.integers(count, size=count)
        samples += [picked] if 0 < np.count_nonzero(x[picked]) < count else []
    assert table.columns.tolist() == ["cells", "expected", "observed", "low", "high"]
    assert len(table) == 10 if count == 400 else len(table) <= 10
    assert table["cells"].sum() == count
    order, start = np.argsort(means, kind="stable"), 0
    for row in table.itertuples():
        part = order[start : start + row.cells]
        start += row.cells
        held = x[part].sum()
        assert row.expected == pytest.approx(means[part].mean())
        assert row.observed == pytest.approx(held / row.cells)
        inside = [x[picked[np.isin(picked, part)]] for picked in samples]
        means_of = [one.mean() for one in inside if one.size]  # a sample without these cells says nothing of them
        ends = np.quantile(means_of, [(1 - level) / 2, (1 + level) / 2])
        np.testing.assert_allclose([row.low, row.high], ends, atol=1e-12)
        if len(table) == 10:
            assert abs(means[part].sum() - means.sum() / 10) <= 1.001 * means.max()


def test_calibration_of_a_fit() -> None:
    scores = pltf.metrics.score(links_fit(), X, ~MASK, resamples=0, draws=2, level=0.7)
    pd.testing.assert_frame_equal(scores.calibration, _calibration(X[~MASK], links_fit().mean(~MASK), 0, 0.7, 0))
    pd.testing.assert_frame_equal(scores.popularity_calibration, _calibration(X[~MASK], scores.popularity, 0, 0.7, 0))
    assert scores.level == 0.7


# -- without AUC and average precision -------------------------------------------------------------


CHOSEN = {"above zero": ~MASK & (X > 0), "zero": ~MASK & (X == 0), "both": ~MASK, "one": np.argwhere(~MASK)[:1]}


@pytest.mark.parametrize("cells", CHOSEN.values(), ids=CHOSEN)
def test_cells_of_any_kind_without_ranking(cells: Any) -> None:
    scores = pltf.metrics.score(links_fit(), X, cells, ranking=False, draws=50, resamples=40)
    x = X[cells] if cells.dtype == bool else X[tuple(cells.T)]
    mean, log_prob, ones = links_fit().mean(cells), links_fit().log_prob(cells, x, draws=50), np.ones(x.size)
    expected = [log_prob.mean(), deviance(x, mean, ones), math.sqrt(((x - mean) ** 2).mean())]
    assert scores.table.index.tolist() == MEASURES[2:]
    np.testing.assert_allclose(scores.table["value"], expected, rtol=1e-10)
    assert (scores.log_likelihood, scores.deviance, scores.rmse) == pytest.approx(expected, rel=1e-10)
    for before, value in (("", "value"), ("popularity_", "popularity")):
        assert (scores.table[f"{before}low"] <= scores.table[value] + 1e-12).all()
        assert (scores.table[value] <= scores.table[f"{before}high"] + 1e-12).all()
    assert scores.calibration["cells"].sum() == x.size
    assert [line.split()[0] for line in repr(scores).split("\n")[1:-1]] == MEASURES[2:]
    assert not scores.ranking


def test_ranking_changes_no_other_measure() -> None:
    ranked, rest = (
        pltf.metrics.score(links_fit(), X, ~MASK, draws=20, resamples=20, ranking=way) for way in (True, False)
    )
    assert ranked.ranking
    pd.testing.assert_frame_equal(ranked.table[2:], rest.table, check_exact=True)
    pd.testing.assert_frame_equal(ranked.calibration, rest.calibration, check_exact=True)


def test_samples_have_both_kinds_only_to_be_ranked() -> None:
    positive = np.array([True, False])
    assert all(weight.tolist() == [1, 1] for weight in resampled(positive, 50, 0))
    assert {tuple(weight) for weight in resampled(positive, 50, 0, ranking=False)} == {(1, 1), (2, 0), (0, 2)}


def test_ratings_are_scored() -> None:
    """Of listed ratings none is zero, and all else is missing."""
    stars = np.clip(links(3, mean=2.0), 0, 4) + 0.5
    at = np.argwhere(np.random.default_rng(0).random(stars.shape) < 0.7)
    held = pltf.holdout(pltf.observe((at, stars[tuple(at.T)]), shape=stars.shape, unlisted="missing"), 0.3, seed=0)
    fit = pltf.nmf(rank=1).fit(held.train)
    with pytest.raises(pltf.PltfError, match=f"all {len(held.values)} are above zero: ranking=False leaves these out"):
        pltf.metrics.score(fit, held, ranking=True)
    with pytest.warns(pltf.ScoreWarning, match=f"all {len(held.values)} are above zero: these are left out"):
        scores = pltf.metrics.score(fit, held, resamples=5)
    assert not scores.ranking
    assert scores.rmse == pytest.approx(math.sqrt(((held.values - fit.mean(held.cells)) ** 2).mean()))


@pytest.mark.extra("plot")
def test_what_was_left_out_is_refused() -> None:
    scores = pltf.metrics.score(links_fit(), X, ~MASK, ranking=False, draws=2, resamples=0)
    for measure in MEASURES[:2]:
        text = f"^these scores have no {measure}, as they were computed with ranking=False$"
        with pytest.raises(pltf.PltfError, match=text):
            getattr(scores, measure)
    figures = plt.get_fignums()
    with pytest.raises(pltf.PltfError, match=r"^a ROC curve needs scores that .*, and these were made with ranking=F"):
        pltf.plotting.roc(scores)
    assert plt.get_fignums() == figures


# -- warnings and refusals ------------------------------------------------------------------------


def test_cells_that_were_seen_are_told_of() -> None:
    with pytest.warns(pltf.ScoreWarning) as told:
        pltf.metrics.score(links_fit(), X, np.ones(X.shape, dtype=bool), resamples=0, draws=2)
    text = f"{MASK.sum()} of the {X.size} cells were used in the fit: their scores measure the fit, not prediction"
    assert str(told[0].message) == text
    assert told[0].filename == __file__


HOLED = np.where(np.indices(X.shape).sum(axis=0) == 0, np.nan, X)
SPLIT = pltf.holdout(sparse.csr_array(X), 0.3, seed=0)
BOTH_KINDS = "cells must have zeros and non-zeros for AUC and average precision"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X,), "cells must say which cells to score, for example ~mask"),
        ((SPLIT, SPLIT.cells), "cells must be None when X is a Holdout, which has its own cells"),
        ((X[:-1], ~MASK), r"X must have the shape of X in the fit, \(9, 8\); got \(8, 8\)"),
        ((X, ~MASK[:-1]), r"cells: a boolean array must have the shape of the tensor, \(9, 8\); got \(8, 8\)"),
        ((X, [(0, 8)]), "cells: row 0 has 8 for index 'j', which runs from 0 to 7"),
        ((X, []), "cells must list at least one cell, got none"),
        ((X, np.zeros(X.shape, dtype=bool)), "cells must list at least one cell, got none"),
        ((HOLED, [(1, 1), (0, 0)]), r"X must hold a value for each of the cells, but \(0, 0\) is missing"),
        ((-X, ~MASK), r"X: observed values must be >= 0"),
    ],
)
def test_refusals(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message):
        pltf.metrics.score(links_fit(), *arguments)


@pytest.mark.parametrize(("cells", "kind"), [(X > 0, "above zero"), (X == 0, "zero")])
def test_ranking_needs_both_kinds_of_cells(cells: Any, kind: str) -> None:
    with pytest.raises(pltf.PltfError, match=rf"{BOTH_KINDS}, but all \d+ are {kind}: ranking=False leaves these out"):
        pltf.metrics.score(links_fit(), X, cells, ranking=True)


def test_only_a_fit_is_scored() -> None:
    with pytest.raises(pltf.PltfError, match=r"fit must be a pltf\.Fit, got ndarray"):
        pltf.metrics.score(X, X, ~MASK)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resamples": -1}, "resamples must be a whole number of at least 0, got -1"),
        ({"draws": 0}, "draws must be a whole number of at least 1, got 0"),
        ({"level": 1}, "level must lie between 0 and 1, got 1"),
        ({"seed": None}, "seed must be a whole number of at least 0, got None"),
        ({"ranking": "no"}, "ranking must be True or False, got 'no'"),
        ({"progress": 2}, "progress must be True or False, got 2"),
        ({"of": "Y"}, r"of must name an observed tensor \(X\), got 'Y'"),
    ],
)
def test_refused_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message):
        pltf.metrics.score(links_fit(), X, ~MASK, **options)


# -- extremes -------------------------------------------------------------------------------------


def test_point_estimates_of_zero() -> None:
    """EM may be sure that nothing comes, and wrong: the likelihood is zero, and nothing else breaks."""
    full = np.array([[0.0, 0.0, 50.0], [1.0, 0.0, 2.0], [0.0, 3.0, 1.0]])
    mask = np.ones((3, 3), dtype=bool)
    mask[0, 2] = mask[1, 1] = mask[2, 0] = False
    fit = pltf.nmf(rank=1).fit(full, mask=mask, method="em")
    assert fit.mean()[0, 2] == 0
    scores = pltf.metrics.score(fit, full, ~mask, resamples=50)
    assert scores.log_likelihood == -np.inf
    assert scores.table.loc["log_likelihood", "low"] == -np.inf
    assert scores.deviance == np.inf
    assert np.isfinite(scores.table.loc["deviance", "popularity"])
    assert scores.auc == 0


def test_coupled_models() -> None:
    fit = small_fit(COUPLED)
    rng = np.random.default_rng(5)
    full = rng.poisson(1.0, (4, 3, 3)).astype(float)
    hidden = ~fit.patterns["X"].observed(every_cell((4, 3, 3)).T).reshape(4, 3, 3)
    full[hidden] = np.arange(hidden.sum()) % 2
    scores = pltf.metrics.score(fit, full, hidden, of="X", resamples=10, draws=10)
    np.testing.assert_array_equal(scores.means, fit.mean(hidden, of="X"))
    np.testing.assert_allclose(
        scores.popularity, popular(np.where(hidden, np.nan, full), np.argwhere(hidden)), rtol=1e-6
    )
    with pytest.raises(pltf.PltfError, match=r"of must name an observed tensor \(X, Y\), got None"):
        pltf.metrics.score(fit, full, hidden)


# -- plots ----------------------------------------------------------------------------------------


@pytest.mark.extra("plot")
@pytest.mark.parametrize(
    ("means", "counts"),
    [
        ([0.5, 1.0, 2.0, 3.0], (1e15, 0.0, 1.0, 3.0)),
        ([0.0, 0.0, 0.0, 0.0], (5.0, 0.0, 2.0, 1e-9)),
        ([0.0, 0.0, 0.0, 7.0], (0.0, 0.0, 0.0, 1.0)),
        ([1e-300, 1e-200, 1e-10, 1.0], (1e15, 0.0, 1.0, 3.0)),
        ([1e-320, 1e-320, 1e-320, 1e-320], (5.0, 0.0, 2.0, 1e-9)),
        ([1e-12, 1.0, 1e15, 1e120], (0.0, 0.0, 0.0, 1.0)),
    ],
)
def test_plots_draw_whatever_comes(means: list[float], counts: tuple[float, ...]) -> None:
    """Warnings are errors here; drawing finds what putting it together does not."""
    fit = pltf.nmf(rank=1).fit(np.ones((1, 4)), max_iter=1, tol=0, method="em", fixed={"W": np.ones((1, 1))})
    fit = believing(fit, {"H": np.array([means])}, {"H": np.ones((1, 4))})
    fit = replace(fit, C={}, D={}, points={a: one.mean for a, one in fit.factors.items()})
    with pytest.warns(pltf.ScoreWarning):
        scores = pltf.metrics.score(fit, np.array([counts]), np.ones((1, 4), dtype=bool), resamples=5, draws=1)
    left, right = scores.plot()
    left.figure.canvas.draw()
    assert left.get_xlabel() == "expected count of a cell"
    assert f"fit, AUC {scores.auc:.3f}" in [line.get_label() for line in right.lines]
    low, high = left.get_xlim()
    shown = scores.calibration[["expected", "high"]].to_numpy()
    assert low < shown[shown > 0].min()
    assert shown.max() < high


@pytest.mark.extra("plot")
def test_plots_go_where_they_are_told() -> None:
    scores = pltf.metrics.score(links_fit(), X, ~MASK, resamples=0, draws=5)
    axes = plt.subplots(1, 2)[1]
    assert list(scores.plot(axes)) == list(axes)
    for curve, column in zip(axes[1].lines, ("value", "popularity"), strict=False):
        area = np.trapezoid(curve.get_ydata(), curve.get_xdata())
        assert area == pytest.approx(scores.table.loc["auc", column])
    for points, table in zip(axes[0].lines, (scores.popularity_calibration, scores.calibration), strict=False):
        np.testing.assert_allclose(points.get_xydata(), table[["expected", "observed"]])
    with pytest.raises(pltf.PltfError, match="axes must hold 2 of matplotlib, one for each panel; got 1"):
        scores.plot(axes[0])


@pytest.mark.extra("plot")
@pytest.mark.parametrize("kind", CHOSEN)
def test_without_ranking_the_calibration_is_drawn(kind: str) -> None:
    scores = pltf.metrics.score(links_fit(), X, CHOSEN[kind], ranking=False, resamples=5, draws=2)
    ax = plt.subplots()[1]
    assert scores.plot(ax) is ax
    ax.figure.canvas.draw()
    for (points, *_), table in zip(ax.containers, (scores.popularity_calibration, scores.calibration), strict=True):
        np.testing.assert_allclose(points.get_xydata(), table[["expected", "observed"]])
    assert scores.plot().get_title() == "calibration"
    with pytest.raises(pltf.PltfError, match="axes must hold 1 of matplotlib, one for each panel; got 2"):
        scores.plot(plt.subplots(1, 2)[1])


@pytest.mark.extra("plot")
def test_zeros_where_nothing_was_expected_are_drawn() -> None:
    full = np.array([[0.0, 0.0], [0.0, 0.0]])
    mask = np.array([[True, False], [True, True]])
    scores = pltf.metrics.score(pltf.nmf(rank=1).fit(full, mask=mask, method="em"), full, ~mask, ranking=False)
    assert scores.means.tolist() == scores.popularity.tolist() == [0]
    assert (scores.log_likelihood, scores.deviance, scores.rmse) == pytest.approx((0, 0, 0))
    scores.plot().figure.canvas.draw()


def test_coverage_of_rates_and_counts() -> None:
    """Of counts drawn from the model the share inside is the expected one; that of rates is far below the level."""
    rates = draw(pltf.nmf(rank=2), (60, 50), prior=pltf.Gamma(1.0, 2.0), seed=0).rates["X"]
    X = np.random.default_rng(0).poisson(rates)
    mask = pltf.holdout(X, 0.3, seed=0)
    fit = pltf.nmf(rank=2).fit(X, mask=mask, restarts=2)
    table = pltf.metrics.score(fit, X, ~mask, resamples=0, level=0.8).coverage
    low, high = fit.interval(~mask, 0.8, counts=True, draws=200)
    assert table.loc["count", "inside"] == np.mean((low <= X[~mask]) & (X[~mask] <= high))
    assert abs(table["inside"] - table["expected"]).max() < 0.04
    assert table.loc["rate", "expected"] < 0.7 < table.loc["count", "expected"]
    assert (table["level"] == 0.8).all()


# -- against popularity ---------------------------------------------------------------------------


def _scores_of_means(x: Array, means: Array, popularity: Array) -> metrics.Scores:
    """Scores of made-up predictions."""
    fitted, simple = (Judged(x, one, stats.poisson.logpmf(x, one)) for one in (means, popularity))
    table, lead = _tables(fitted, simple, 50, 0.9, 0, progress=False)
    empty = pd.DataFrame()
    by_cell = fitted.lead_by_cell(simple)
    return metrics.Scores(table, empty, empty, x, means, popularity, 0.9, empty, lead, lead_by_cell=by_cell)


def test_the_verdict_says_which_of_two_predictions_is_better() -> None:
    rng = np.random.default_rng(0)
    rate = rng.gamma(2.0, 2.0, 500)
    x, flat = rng.poisson(rate).astype(float), np.full(500, rate.mean())
    alike = [rate * rng.gamma(50.0, 1 / 50, 500) for _ in range(2)]
    better, worse, same = (_scores_of_means(x, *two) for two in ((rate, flat), (flat, rate), alike))
    assert (better.beats_popularity, worse.beats_popularity, same.beats_popularity) == (True, False, None)
    assert better.headline == "log_likelihood"
    words = r"Better than popularity: the log-likelihood is -\d\.\d+ \(popularity -\d\.\d+\)\."
    assert re.fullmatch(words, better.verdict())
    assert "try fewer components" in worse.verdict()
    assert "within chance for 500 cells" in same.verdict()
    np.testing.assert_allclose(better.lead["value"], -worse.lead["value"])
    assert (better.lead["low"] <= better.lead["value"]).all()


def test_where_most_cells_are_zeros_auc_comes_first() -> None:
    rng = np.random.default_rng(1)
    rate = rng.gamma(0.2, 0.5, 2000)
    x = rng.poisson(rate).astype(float)
    scores = _scores_of_means(x, rate * 40, np.full(2000, rate.mean()))  # ranked well, and much too many
    assert scores.headline == "auc"
    half = _scores_of_means(np.append(x[x > 0], 0.0), *(np.ones((x > 0).sum() + 1),) * 2)
    assert half.headline == "log_likelihood"
    assert replace(half, sampled=True).headline == "auc"
    assert scores.beats_popularity
    assert scores.verdict().startswith("Mixed: the AUC is ")
    assert "but the log-likelihood is worse" in scores.verdict()


def test_a_ranking_worse_than_guessing_is_not_called_better() -> None:
    rng = np.random.default_rng(2)
    x = rng.poisson(rng.gamma(0.2, 0.5, 2000)).astype(float)
    wrong, worse = 0.5 / (1 + x) + 0.3 * rng.random(2000), 0.5 / (1 + x)
    scores = _scores_of_means(x, wrong, worse)
    assert scores.beats_popularity
    assert scores.auc < 0.5
    assert re.fullmatch(
        r"Worse than chance: the AUC is 0\.\d+ \(popularity .*\).*; 0\.5 is guessing\.", scores.verdict()
    )


@pytest.mark.parametrize("zeros", [False, True])
def test_a_few_impossible_predictions_are_not_within_chance(zeros: bool) -> None:
    """They lose hundreds of nats, but half of all bootstrap samples are without them."""
    rng = np.random.default_rng(0)
    rate = rng.gamma(2.0, 0.3 if zeros else 20.0, 52)
    rate[0] = 0.01
    x = rng.poisson(rate).astype(float)
    wild = rate.copy()
    wild[1] += 500.0
    scores = _scores_of_means(x, wild, np.full(52, rate.mean()) if zeros else rate * rng.gamma(10.0, 0.1, 52))
    assert scores.headline == ("auc" if zeros else "log_likelihood")
    assert "worse" in scores.verdict().lower()
    assert "because of a few cells" in scores.verdict()
    assert "within chance" not in scores.verdict()


def test_scores_tell_which_predictions_the_data_do_not_support() -> None:
    train = np.full((12, 12), np.nan)
    train[:11] = np.random.default_rng(0).poisson(5.0, (11, 12))  # nothing is known of the last row
    full = np.where(np.isnan(train), 5.0, train)
    train[0, :4] = np.nan
    fit = pltf.nmf(rank=1).fit(train)
    cells = np.argwhere(np.isnan(train))
    scores = pltf.metrics.score(fit, full, cells, ranking=False, resamples=20)
    assert scores.supported is not None
    assert scores.supported.tolist() == [True] * 4 + [False] * 12
    alone = pltf.metrics.score(fit, np.where(np.isnan(train), full, train), cells[:4], ranking=False, resamples=0)
    assert scores.of_supported is not None
    assert scores.of_supported.loc["log_likelihood", "value"] == pytest.approx(alone.log_likelihood, rel=0.1)
    assert "do not support the predictions of 12 of these 16 cells: without them" in scores.support_note
    assert scores.support_note in repr(scores)
    assert not alone.support_note


def test_cells_hidden_from_one_of_several_tensors() -> None:
    model = pltf.Model("X[i,j] = A[i,r] * B[j,r]; Y[i,k] = A[i,r] * C[k,r]", r=1)
    data = {"X": np.outer([1, 2, 3], [2, 1, 0]), "Y": np.ones((3, 2))}
    fit = replace(model.fit(data), held_out=HeldOut(np.array([[0, 0], [1, 2]]), np.array([2.0, 0.0]), of="X"))
    with pytest.warns(pltf.ScoreWarning, match="were used in the fit"):
        assert metrics.score(fit).values.tolist() == [2, 0]
    with pytest.raises(pltf.PltfError, match="of must be 'X', the tensor of the held-out cells, got 'Y'"):
        metrics.score(fit, of="Y")


def test_calibration_intervals_of_bins_with_few_cells_do_not_reach_zero() -> None:
    """A resample without the cells of a bin says nothing about them."""
    rng = np.random.default_rng(0)
    X = np.round(np.outer([1.0] * 20 + [400.0], rng.gamma(50.0, 0.04, 15))) + 1
    mask = pltf.holdout(X, 0.3, seed=1)
    scores = pltf.metrics.score(pltf.nmf(rank=1).fit(X, mask=mask), X, ~mask, ranking=False, progress=False)
    few = scores.calibration.query("cells <= 2")
    assert len(few)
    assert (few["low"] > 0.5 * few["observed"]).all()
    assert (few["high"] >= few["observed"]).all()


@pytest.mark.filterwarnings("ignore:this fit does not know")
def test_a_mixed_verdict_names_the_measure_that_disagrees() -> None:
    X = np.array([[4.0, 2.0], [2.0, 0.0]])
    fit = pltf.nmf(rank=1).fit(X, method="gibbs", keep_data=False, dispersion=None)
    verdict = pltf.metrics.score(fit, HeldOut(np.array([[0, 1], [1, 1]]), np.array([1.0, 0.0])), resamples=0).verdict()
    assert verdict.startswith("Mixed: the AUC is 1 (popularity 1), but the log-likelihood is worse (")
