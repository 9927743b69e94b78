"""A search as a user meets it: what it finds, what it tells, what it refuses."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import pltf
import pltf.datasets
from pltf.fitting import prepare
from pltf.inference.progress import Progress
from pltf.inference.race import BEHIND
from pltf.inference.run import Row
from pltf.options import FitOptions
from pltf.planning import observations
from pltf.selection import search
from pltf.workers import Job
from tests.extras import optional

plt = optional("matplotlib.pyplot")

MODEL = pltf.cp(rank=3)
X = pltf.datasets.draw(MODEL, (16, 15, 14), prior=pltf.Gamma(0.5, 2.0), seed=0).counts["X"]
KEEP = pltf.holdout(X, 0.3, seed=0)
select = partial(pltf.select, criterion="bound")  # tests/selection/test_heldout.py has the others


@pytest.fixture(scope="module")
def found() -> pltf.Selection:
    return select(MODEL, X, mask=KEEP, r=range(1, 6), restarts=4, race=False)


# -- results ------------------------------------------------------------------------------------


def test_the_order_is_found(found: pltf.Selection) -> None:
    assert found.best == {"r": 3}
    assert found.best_fit.model == MODEL
    assert found.best_fit.bound == found.table["bound"].max()
    assert not found.doubts


@pytest.mark.slow
def test_every_run_is_the_single_fit_with_its_seed(found: pltf.Selection) -> None:
    table = found.table
    assert list(table.columns) == [
        "r",
        "restart",
        "seed",
        "bound",
        "sweeps",
        "converged",
        "stopped",
        "seconds",
        "winner",
    ]
    assert len(table) == 20
    for row in table.itertuples():
        fit = MODEL.resized(r=row.r).fit(X, mask=KEEP, seed=row.seed)
        assert (fit.bound, fit.n_iter, fit.converged) == (row.bound, row.sweeps, row.converged)


def test_the_best_fit_is_the_fit_with_as_many_restarts(found: pltf.Selection) -> None:
    fit = MODEL.fit(X, mask=KEEP, restarts=4)
    np.testing.assert_array_equal(found.best_fit.trace, fit.trace)
    np.testing.assert_array_equal(found.best_fit.factors["A"].shape, fit.factors["A"].shape)
    assert found.best_fit.restarts.drop(columns="seconds").equals(fit.restarts.drop(columns="seconds"))
    further = MODEL.fit(X, mask=KEEP, init=found.best_fit, tol=0, max_iter=3)
    np.testing.assert_array_equal(further.trace, MODEL.fit(X, mask=KEEP, init=fit, tol=0, max_iter=3).trace)


def _bits(found: pltf.Selection) -> list[Any]:
    return [found.best, found.table.drop(columns="seconds").to_dict("list"), found.best_fit.trace.tolist()]


@cache
def _alone(race: bool) -> pltf.Selection:
    """By one worker, which is this process."""
    return select(MODEL, X, mask=KEEP, r=range(2, 5), restarts=3, race=race, workers=1)


@pytest.mark.slow
@pytest.mark.parametrize("race", [True, False])
@pytest.mark.parametrize(("workers", "processes"), [(1, False), (2, False), (5, False), (2, True)])
def test_results_do_not_depend_on_the_workers(
    monkeypatch: pytest.MonkeyPatch, race: bool, workers: int, processes: bool
) -> None:
    expected = _bits(_alone(race))
    monkeypatch.setattr(search, "_worth_processes", lambda *_: processes)
    found = select(MODEL, X, mask=KEEP, r=range(2, 5), restarts=3, race=race, workers=workers)
    assert _bits(found) == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sparse", "coupled", "tucker", "masked", "fortran"])
def test_processes_see_the_same_data(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    model: pltf.Model = MODEL
    data: Any = X
    if kind == "sparse":
        model, data = pltf.nmf(rank=2), sparse.coo_array(X[0])
    elif kind == "coupled":
        model = pltf.Model("X[i,j,k] = A[i,r] B[j,r] C[k,r]\nY[j,m] = B[j,r] D[m,r]", r=2)
        data = {"X": X, "Y": pltf.observe((np.argwhere(X[0] > 2), X[0][X[0] > 2]), shape=X[0].shape)}
    elif kind == "tucker":
        model = pltf.Model("ip,jq,kr,pqr->ijk", p=2, q=2, r=2)
    elif kind == "masked":
        data = np.where(KEEP, X, np.nan)
    else:
        data = np.asfortranarray(X.astype(np.float32))
    found = []
    for processes in (True, False):
        monkeypatch.setattr(search, "_worth_processes", lambda *_, processes=processes: processes)
        with warnings.catch_warnings(action="ignore", category=pltf.SelectionWarning):
            found.append(select(model, data, r=[1, 2], restarts=2))
    assert _bits(found[0]) == _bits(found[1])


def test_processes_are_for_long_searches_of_short_sweeps() -> None:
    def chosen(shape: tuple[int, ...], restarts: int, order: str = "C", workers: int = 2) -> bool:
        data = {"X": {"C": np.ones(shape), "F": np.ones(shape, order="F"), "gaps": np.ones(shape)[::2]}[order]}
        cells = []
        options = search.Options(FitOptions(restarts=restarts, threads=1), race=None, workers=workers)
        for r in range(2, 11):
            ready = prepare(pltf.cp(rank=r), data, {}, options.fitting)
            cells.append(search.Candidate({"r": r}, ready, options.race))
        return search._worth_processes(cells, observations(data, {}), options)

    assert chosen((50, 50, 50), 10)
    assert not chosen((50, 50, 50), 1)  # over before they have started
    assert not chosen((200, 200, 200), 10)  # threads need not wait for each other, and share all of it
    assert not chosen((50, 50, 50), 10, workers=1)
    assert chosen((50, 50, 50), 10, order="F")
    assert not chosen((100, 50, 50), 10, order="gaps")  # a view with gaps would come out of the file without them


@pytest.mark.slow
def test_a_race_drops_restarts_that_are_behind_and_keeps_the_winner() -> None:
    X = pltf.datasets.draw(pltf.cp(rank=5), (30, 30, 30), prior=pltf.Gamma(0.5, 1.0), seed=3).counts["X"]
    raced, full = (select(pltf.cp(rank=5), X, r=[3, 5, 7], restarts=6, race=race) for race in (None, False))
    assert raced.best == full.best == {"r": 5}
    assert raced.best_fit.bound == pytest.approx(full.best_fit.bound, rel=1e-6)
    table = raced.table
    dropped = table["stopped"] == "dropped"
    assert dropped.any()
    assert not table[dropped]["converged"].any()
    assert raced.summary()["dropped"].sum() == dropped.sum()
    assert table["sweeps"].sum() < full.table["sweeps"].sum()
    for row, whole in zip(table.itertuples(), full.table.itertuples(), strict=True):
        assert row.bound == whole.bound or (row.stopped == "dropped" and row.bound < whole.bound)


def test_no_race_ends_within_the_burn_in() -> None:
    raced, full = (select(MODEL, X, r=[3], restarts=3, max_iter=7, tol=0, race=race) for race in (True, False))
    assert _bits(raced) == _bits(full)
    assert set(raced.table["stopped"]) == {"max_iter"}


# -- grids --------------------------------------------------------------------------------------


def test_a_grid_over_several_indices() -> None:
    model = pltf.Model("ip,jq,kr,pqr->ijk", p=2, q=2, r=2)
    with warnings.catch_warnings(action="ignore"):
        found = select(model, X, p=[1, 2], r=(2, 3), restarts=2, max_iter=30)
    assert found.table[["p", "q", "r"]].drop_duplicates().values.tolist() == [
        [1, 2, 2],
        [1, 2, 3],
        [2, 2, 2],
        [2, 2, 3],
    ]
    assert set(found.best) == {"p", "q", "r"}


def test_models_of_different_form_are_compared() -> None:
    tucker = pltf.Model("X[i,j,k] = A[i,p] * B[j,q] * C[k,r] * G[p,q,r]", p=2, q=2, r=2)
    found = select([pltf.cp(rank=3), tucker], X, mask=KEEP, restarts=3)
    assert found.best["model"] == MODEL.text
    assert found.best["r"] == 3
    table = found.table
    assert list(table.columns[:4]) == ["model", "r", "p", "q"]
    assert table[table["model"] == MODEL.text]["p"].isna().all()
    assert table["r"].notna().all()
    assert found.summary().query("winner").iloc[0]["model"] == MODEL.text


def test_sizes_go_to_the_models_that_have_the_index() -> None:
    tucker = pltf.tucker(ranks=(2, 2, 2))
    with warnings.catch_warnings(action="ignore"):
        found = select([pltf.cp(rank=9), tucker], X, r=[1, 2], p=[3], restarts=1, max_iter=10)
    sizes = found.table[["p", "q", "r"]].astype("float").values.tolist()
    np.testing.assert_array_equal(sizes, [[np.nan, np.nan, 1], [np.nan, np.nan, 2], [3, 2, 1], [3, 2, 2]])


def test_models_that_come_twice_are_tried_once() -> None:
    found = select([pltf.cp(rank=2), pltf.cp(rank=3), pltf.cp(rank=4)], X, mask=KEEP, r=[2, 3, 4, 3], restarts=2)
    assert found.table["r"].tolist() == [2, 2, 3, 3, 4, 4]
    assert found.best == {"r": 3}


def test_priors_are_compared() -> None:
    priors = [pltf.Gamma(0.5, 10.0), None, {"A": pltf.Gamma(50.0, 0.01)}]
    found = select(MODEL, X, prior=priors, restarts=2)
    assert found.best == {"r": 3, "prior": "default"}
    assert found.table["prior"].tolist()[::2] == [
        "Gamma(shape=0.5, mean=10.0)",
        "default",
        "A: Gamma(shape=50.0, mean=0.01)",
    ]
    assert found.best_fit.priors["A"].learn == "mean"


@pytest.mark.parametrize("size", [3, np.int64(3), np.array(3)])
def test_one_size_may_be_given_as_a_number(size: Any) -> None:
    found = select(MODEL, X, r=size, restarts=2)
    assert (found.best, found.edges) == ({"r": 3}, {})


@pytest.mark.extra("plot")
def test_a_model_without_latent_index_is_one_candidate() -> None:
    found = select(pltf.Model("X[i] = A[i]"), X[0, 0], restarts=1)
    assert found.best == {}
    assert "the only candidate" in repr(found)
    with pytest.raises(pltf.PltfError, match="there is nothing to draw the ELBO against"):
        found.plot()


def test_bounds_that_are_the_same_go_to_the_smaller_model() -> None:
    """With a mean for each component, surplus ones cost nothing: from the true order on the bound is flat."""
    prior = pltf.Gamma(learn="mean", tie="component")
    found = select(MODEL, X, r=[5, 4, 3, 2], prior=prior, restarts=4)
    assert found.best == {"r": 3}
    bounds = found.summary().set_index("r")["best"]
    assert abs(bounds[4] - bounds[3]) < 1e-6 * abs(bounds[3])
    assert found.summary().query("winner")["r"].tolist() == [3]
    zeros = select(pltf.nmf(rank=1), np.zeros((4, 3)), r=[3, 2, 1], restarts=1)
    assert zeros.best == {"r": 1}


def test_priors_with_arrays_are_told_apart_and_equal_ones_tried_once() -> None:
    one, two = (pltf.Gamma(shape * np.ones((16, 1)), 1.0) for shape in (1, 2))
    priors = [{"A": one}, {"A": two}, None, None, pltf.Gamma(learn="mean"), pltf.Gamma(), pltf.Gamma()]
    found = select(MODEL, X, prior=priors, restarts=1, max_iter=5, tol=0)
    name = "A: Gamma(shape=<16x1 array>, mean=1.0)"
    assert found.table["prior"].tolist() == [name, f"{name} #2", "default", "Gamma(shape=0.5, mean=10.0)"]


def test_edges_are_those_of_models_of_the_same_form() -> None:
    rivals = [pltf.cp(rank=r) for r in (2, 3, 4)] + [pltf.tucker(ranks=(2, 2, r)) for r in (1, 2)]
    found = select(rivals, X, mask=KEEP, restarts=2)
    assert (found.best["r"], found.edges) == (3, {})


def test_restarts_race_where_it_is_safe() -> None:
    tucker = pltf.tucker(ranks=(2, 2, 2))
    priors = [None, pltf.Gamma(learn="both"), {"A": pltf.Gamma(learn="shape")}]
    for race, restarts, expected in (
        (None, 5, [True] + 5 * [False]),
        (None, 4, 6 * [False]),  # too few of them
        (True, 1, 6 * [True]),
        (False, 5, 6 * [False]),
    ):
        seen: list[bool] = []
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(action="ignore"):
            patch.setattr(search, "rounds", lambda most, racing, seen=seen: seen.append(racing) or [most])
            select([MODEL, tucker], X, prior=priors, restarts=restarts, max_iter=3, tol=0, race=race, workers=1)
        assert seen == expected


@pytest.mark.parametrize(
    ("sizes", "edges"),
    [([3, 4], {"r": "smallest"}), ([2, 3], {"r": "largest"}), ([2, 3, 4], {}), ([4, 3, 2], {}), ([3], {})],
)
def test_a_winner_at_the_edge_of_the_grid_is_told(sizes: list[int], edges: dict[str, str]) -> None:
    with warnings.catch_warnings(action="always", record=True) as told:
        found = select(MODEL, X, r=sizes, restarts=2)
    assert found.edges == edges
    assert bool(edges) == any("widen the grid" in str(one.message) for one in told)
    row = found.summary().query("winner").iloc[0]
    assert row["edge"] == "".join(f"{end} r" for end in edges.values())


def test_the_smallest_size_there_is_is_no_edge() -> None:
    found = select(pltf.nmf(rank=1), np.outer(np.arange(1, 9), np.arange(1, 8)), r=[1, 2, 3], restarts=2)
    assert (found.best, found.edges) == ({"r": 1}, {})


# -- telling ------------------------------------------------------------------------------------


def test_the_summary_adds_up(found: pltf.Selection) -> None:
    summary, table = found.summary(), found.table
    assert summary["r"].is_monotonic_increasing
    assert summary["r"][summary["winner"]].tolist() == [3]
    assert summary["gap"][summary["winner"]].tolist() == [0]
    assert summary["weight"].sum() == pytest.approx(1)
    for row in summary.itertuples():
        bounds = table[table["r"] == row.r]["bound"]
        assert (row.best, row.mean, row.restarts) == (bounds.max(), pytest.approx(bounds.mean()), 4)
        assert row.sd == pytest.approx(bounds.std())
        assert row.gap == pytest.approx(bounds.max() - found.best_fit.bound)


def test_restarts_agree_when_they_find_the_same_components(found: pltf.Selection) -> None:
    fits = [MODEL.fit(X, mask=KEEP, seed=int(seed)) for seed in found.table.query("r == 3")["seed"]]
    alike = [pltf.match(found.best_fit, fit).similarity for fit in fits]
    row = found.summary().query("r == 3").iloc[0]
    assert row["agree"] == np.mean(np.array(alike) >= 0.9)
    assert row["similarity"] == pytest.approx(np.mean(alike))


def test_repr_tells_the_winner(found: pltf.Selection) -> None:
    text = repr(found)
    assert "r=3: ELBO" in text
    assert "nats above the next" in text
    assert "5 candidates, 20 runs" in text
    assert "X 16x15x14 (2,352 cells observed)" in text


@pytest.mark.extra("plot")
def test_plots(found: pltf.Selection) -> None:
    ax = found.plot()
    assert ax.get_xlabel() == "size of r"
    assert sum(len(line.get_xdata()) for line in ax.get_lines()) == 20 + 5 + 1  # runs, best of each, winner
    with warnings.catch_warnings(action="ignore"):
        grid = select(pltf.tucker(ranks=(2, 2, 2)), X, p=[1, 2], q=[1, 2], restarts=1, max_iter=10)
        rivals = select([MODEL, pltf.tucker(ranks=(2, 2, 2))], X, restarts=1, max_iter=10, prior=[None, pltf.Gamma()])
    assert grid.plot().shape == (2,)
    assert [ax.get_xlabel() for ax in grid.plot()] == ["size of p", "size of q"]
    assert [ax.get_xlabel() for ax in rivals.plot()] == ["model", "size of r", "prior"]
    own = plt.subplots(1, 2)[1]
    assert grid.plot(own)[0] is own[0]
    for axes in (own[0], [1, 2]):
        with pytest.raises(pltf.PltfError, match="axes must hold 2"):
            grid.plot(axes)


# -- when things go wrong -----------------------------------------------------------------------


def test_a_candidate_that_fails_is_told_and_does_not_sink_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = search.go_on

    def fragile(source: Any, ready: Any, *rest: Any) -> Any:
        if ready.model.sizes["r"] == 4:
            raise pltf.PltfError("out of luck")
        return go_on(source, ready, *rest)

    monkeypatch.setattr(search, "go_on", fragile)
    with pytest.warns(pltf.SelectionWarning, match=r"1 of 4 candidates failed; r=4: out of luck"):
        found = select(MODEL, X, r=[2, 3, 4, 5], restarts=2)
    assert found.best == {"r": 3}
    assert found.failures == ({"r": 4, "error": "out of luck"},)
    assert set(found.table["r"]) == {2, 3, 5}
    assert "failed" in repr(found)
    with pytest.raises(pltf.PltfError, match="out of luck"):
        select(MODEL, X, r=[4], restarts=2)


def _dies_at_four(source: Any, ready: Any, *rest: Any) -> Any:
    if ready.model.sizes["r"] == 4:
        os._exit(1)
    return search.go_on(source, ready, *rest)


@pytest.mark.slow
def test_a_worker_that_is_killed_does_not_sink_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_worth_processes", lambda *_: True)

    def fragile(function: Any, args: Any, then: Any) -> Any:
        return Job(_dies_at_four, args, then)

    monkeypatch.setattr(search, "Job", fragile)
    with pytest.warns(pltf.SelectionWarning, match="a worker process was killed, possibly out of memory"):
        found = select(MODEL, X, r=[2, 3, 4, 5, 6], restarts=2, workers=1)
    assert found.best == {"r": 3}
    assert {"r": 4, "error": "a worker process was killed, possibly out of memory"} in found.failures
    assert {3, 6} <= set(found.table["r"])


def _interrupting(candidates: int) -> Any:
    """A show() that interrupts the search once so many candidates are done."""

    def show(_: Progress, done: float, text: str) -> None:
        first = text.split()[0]  # of a search it is a number
        if first.isdigit() and int(first) >= candidates:
            raise KeyboardInterrupt

    return show


@pytest.mark.slow
def test_an_interrupt_returns_what_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_worth_processes", lambda *_: False)
    model, sizes = pltf.nmf(rank=2), range(1, 12)
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "show", _interrupting(3))
        with pytest.warns(pltf.SelectionWarning, match="interrupted"):
            found = select(model, X[0], r=sizes, restarts=3, workers=1)
    assert found.interrupted
    assert 9 <= len(found.table) < 33
    assert found.edges == ({"r": "largest"} if found.best["r"] == found.table["r"].max() else {})
    for row in found.table.itertuples():
        assert row.bound == pltf.nmf(rank=row.r).fit(X[0], seed=row.seed).bound or row.stopped == "dropped"
    monkeypatch.setattr(Progress, "show", _interrupting(0))
    with pytest.raises(KeyboardInterrupt):
        select(model, X[0], r=sizes, restarts=3, workers=1)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
@pytest.mark.parametrize("processes", [True, False])
def test_ctrl_c_in_a_real_process(processes: bool) -> None:
    program = f"""
        import sys, warnings
        import numpy as np, pltf
        from pltf.selection import search
        from pltf.inference.progress import Progress
        search._worth_processes = lambda *_: {processes}
        X = np.random.default_rng(0).poisson(2.0, (30, 30, 30))
        class Watch(Progress):
            def show(self, done, text):
                if not text.startswith("0 of"):
                    print("going", flush=True)
        warnings.simplefilter("ignore")
        import pltf.selection.course as choose
        choose.Progress = Watch
        found = pltf.select(pltf.cp(rank=1), X, r=range(1, 100), restarts=3, criterion="bound")
        print("returned", found.interrupted, len(found.outcomes), flush=True)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "going\n"
    _signal_group(child.pid)
    try:
        out, err = child.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
    last = out.strip().splitlines()[-1]
    assert last.startswith("returned True"), err
    assert "Traceback" not in err


def _signal_group(pid: int) -> None:
    """As a terminal does: to the process and its children."""
    os.killpg(pid, signal.SIGINT)


def test_an_outcome_is_told_by_runs_that_came_to_their_ends() -> None:
    """After an interrupt one may have been dropped for a leader that never arrived."""
    fit = MODEL.fit(X, tol=0, max_iter=2)
    rows = [
        Row(restart, bound, n_iter=9, converged=not stopped, stopped=stopped, seconds=1.0)
        for restart, (bound, stopped) in enumerate([(-30.0, ""), (-20.0, BEHIND), (-34.0, "")])
    ]
    winner = search.Outcome({"r": 3}, -30.0, tuple(rows), np.array([1.0, 0.95, 0.85]))
    other = search.Outcome({"r": 2}, -40.0, (rows[0],), np.array([1.0]))
    found = pltf.Selection(
        (other, winner), winner, fit, {"r": 3}, {}, (), interrupted=True, n_candidates=2, unsettled=0, seed=0
    )
    first = found.summary().query("winner").iloc[0]
    assert (first["r"], first["best"], first["mean"], first["dropped"]) == (3, -30.0, -32.0, 1)
    assert first["agree"] == 0.5
    assert first["similarity"] == pytest.approx(1.85 / 2)
    assert found.summary()["sd"].isna().tolist() == [True, False]
    assert "r=3: ELBO -30.000000, 10.0 nats above the next" in repr(found)
    assert "1 of 2 found the same components, 1 more were dropped" in repr(found)


def test_the_warning_of_a_fit_that_has_not_converged_is_passed_on() -> None:
    with pytest.warns(pltf.ConvergenceWarning, match="has not converged"), pytest.warns(pltf.SelectionWarning) as told:
        found = select(MODEL, X, r=[3], restarts=2, max_iter=4)
    assert found.doubts == ("2 of 2 runs did not converge: raise max_iter",)
    assert any(str(one.message) == found.doubts[0] for one in told)


def test_inputs_are_not_changed() -> None:
    data, mask, fixed = X.astype(float), KEEP.copy(), np.ones((16, 2))
    copies = data.copy(), mask.copy(), fixed.copy()
    select(pltf.cp(rank=2), data, mask=mask, fixed={"A": fixed}, restarts=2)
    for now, before in zip((data, mask, fixed), copies, strict=True):
        np.testing.assert_array_equal(now, before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"r": []}, "sizes of 'r' must have at least one size, got none"),
        ({"r": range(0)}, "sizes of 'r' must have at least one size, got none"),
        ({"r": [0, 1]}, "every size of 'r' must be a whole number of at least 1, got 0"),
        ({"r": [2, -3]}, "every size of 'r' must be a whole number of at least 1, got -3"),
        ({"r": [2.5]}, "every size of 'r' must be a whole number of at least 1, got 2.5"),
        ({"r": 0}, "every size of 'r' must be a whole number of at least 1, got 0"),
        ({"r": b"7"}, "sizes of 'r' must be whole numbers, got b'7'"),
        ({"r": "7"}, "sizes of 'r' must be whole numbers, got '7'"),
        ({"r": None}, "every size of 'r' must be a whole number of at least 1, got None"),
        ({"i": [2, 3]}, "index 'i' is observed in X: its size comes from the data"),
        ({"q": [2, 3]}, "unknown argument 'q': neither an option nor one of the latent indices, r"),
        ({"restart": 3}, "unknown argument 'restart'"),
        ({"restarts": 0}, "restarts must be a whole number of at least 1, got 0"),
        ({"restarts": 2.0}, "restarts must be a whole number of at least 1, got 2.0"),
        ({"workers": 0}, "workers must be a whole number of at least 1, got 0"),
        ({"race": "yes"}, "race must be True or False, got 'yes'"),
        ({"progress": 1}, "progress must be True or False, got 1"),
        ({"tol": -1}, "tol must be a number from 0 to below 1, got -1"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1, got 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"prior": []}, "prior is empty: pass at least one prior"),
        ({"prior": [pltf.Gamma(), 0.5]}, "prior must be a Gamma or a mapping from factor to Gamma, got float"),
        ({"init": {"A": 1}}, "init must be 'prior' or 'random' in a search, got dict"),
        ({"init": "zero"}, "init must be one of 'prior', 'random'; got 'zero'"),
        ({"mask": np.ones(3)}, "mask"),
        ({"engine": "abacus"}, "engine must be one of"),
    ],
)
def test_bad_arguments_are_refused_in_one_sentence(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(pltf.PltfError, match=re.escape(message)) as refusal:
        select(MODEL, X, **arguments)
    assert "\n" not in str(refusal.value)


def test_what_is_wrong_at_one_size_only_names_it() -> None:
    with pytest.raises(pltf.PltfError, match=re.escape("at r=3: fixed['A'] must have shape (16, 3)")):
        select(MODEL, X, r=[2, 3], fixed={"A": np.ones((16, 2))})


def test_in_a_daemonic_process_threads_do_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_worth_processes", lambda *_: True)
    monkeypatch.setattr(search, "may_have_children", lambda: False)
    monkeypatch.setattr(search, "shared", None)
    assert select(MODEL, X, r=[3], restarts=2).best == {"r": 3}


def test_without_a_folder_for_the_data_threads_do_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_worth_processes", lambda *_: True)
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.tempdir", os.path.join(os.sep, "nowhere", "at", "all"))
        assert select(MODEL, X, r=[3], restarts=2).best == {"r": 3}


def test_losing_the_shared_folder_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a search that was interrupted: what is done is kept, and the same call goes on to the same result."""
    monkeypatch.setattr(search, "_worth_processes", lambda *_: True)
    asked: dict[str, Any] = {"r": range(1, 7), "restarts": 2, "seed": 3, "workers": 2, "checkpoint": tmp_path / "c.nc"}

    def lose(_: Any, done: float, text: str) -> None:
        if not text.startswith(("0 of", "1 of")):
            for folder in tmp_path.glob("pltf-*"):
                shutil.rmtree(folder, ignore_errors=True)

    with monkeypatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path))  # no folder of another search is in there
        patch.setattr(Progress, "show", lose)
        with pytest.raises(pltf.PltfError, match="of the worker processes was removed"):
            select(MODEL, X, every=0, **asked)
    found = select(MODEL, X, resume=True, **asked)
    assert len(found.outcomes) == 6
    assert not found.failures
    assert _bits(found) == _bits(select(MODEL, X, **{**asked, "checkpoint": None}))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        *(
            (
                pltf.Model(f"X[i,j,k] = A[i,{name}] B[j,{name}] C[k,{name}]", **{name: 2}),
                f"latent index '{name}' has the name of a column of the table: rename it",
            )
            for name in ("bound", "winner", "fold", "score", "se")
        ),
        ("ir,jr->ij", "model must be a Model or a list of them, got 'ir,jr->ij'"),
        ([], "model must be a Model or a list of them, got []"),
        ([MODEL, 3], "model must be a Model or a list of them"),
        ([MODEL, pltf.nmf(rank=2)], "models can be compared only on the same tensors, got X[i,j,k] and X[i,j]"),
    ],
)
def test_models_that_cannot_be_compared_are_refused(model: Any, message: str) -> None:
    with pytest.raises(pltf.PltfError, match=re.escape(message)):
        select(model, X)


def test_a_search_that_cannot_fit_in_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = 3 * (16 + 15 + 14)
    have = 5 * 8 * search.STATE_ARRAYS * entries, "the limit of this process is"
    monkeypatch.setattr(search, "memory_there_is", lambda: have)
    assert select(MODEL, X, r=[3], restarts=5, max_iter=3, tol=0).best == {"r": 3}
    message = r"10 restarts of r=3 need .* but the limit of this process is .* lower restarts"
    with pytest.raises(pltf.PltfError, match=message):
        select(MODEL, X, r=[3])


@pytest.fixture(autouse=True)
def no_files_are_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("shared")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield
    assert not list(folder.iterdir())


def test_tables_are_in_the_order_of_the_sizes_with_the_winner_marked() -> None:
    found = select(MODEL, X, r=[4, 3, 1, 2], restarts=2)
    assert found.summary()["r"].tolist() == [1, 2, 3, 4]
    assert found.table["r"].tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
    assert found.table.groupby("r")["winner"].all().to_dict() == {1: False, 2: False, 3: True, 4: False}
    rows = [line.split() for line in repr(found).splitlines()]
    assert next(row for row in rows if row[:1] == ["*"])[:2] == ["*", "3"]
    assert [row[0] for row in rows if len(row) > 3 and row[0] in ("1", "2", "4") and "nats" in row] == ["1", "2", "4"]
    grid = select(pltf.tucker(ranks=(2, 2, 2)), X, q=[2, 1], p=[2, 1], restarts=1, max_iter=3, tol=0)
    assert grid.summary()[["p", "q"]].values.tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]
    many = replace(found, outcomes=found.outcomes * 9)
    assert "and 6 more candidates, with lower scores" in repr(many)
