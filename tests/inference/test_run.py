"""The loop: restarts, seeds, tolerance, trace, callbacks, and stopping at the last good state."""

from __future__ import annotations

import copy
import math
import os
import pickle
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import pltf
from pltf.engines import registry
from pltf.inference.algebra.compiled import NumbaAlgebra
from pltf.inference.progress import SweepProgress
from pltf.inference.run import Stop, run
from pltf.inference.state import Method, Problem, State
from pltf.inference.vb import VB

X = np.random.default_rng(0).poisson(3.0, (6, 5, 4))
MODEL = pltf.cp(rank=2)
SILENT = SweepProgress(shown=False, restarts=1, max_iter=1)


def test_one_seed_gives_one_result() -> None:
    first, again, other = (MODEL.fit(X, seed=seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first.trace, again.trace)
    assert first.bound != other.bound


def test_a_restart_is_the_same_whatever_their_number() -> None:
    few, many = MODEL.fit(X, restarts=2, seed=5), MODEL.fit(X, restarts=4, seed=5)
    np.testing.assert_array_equal(few.restarts["bound"], many.restarts["bound"][:2])


def test_the_best_restart_is_kept_and_all_are_listed() -> None:
    fit = MODEL.fit(X, restarts=5, max_iter=10, tol=0)  # before two of them come to the same end
    table = fit.restarts
    assert table["bound"].nunique() == 5  # every restart has its own random numbers
    assert list(table.index) == [0, 1, 2, 3, 4]
    assert fit.bound == table["bound"].max()
    assert table["best"].sum() == 1
    assert table["bound"][table["best"]].item() == fit.bound
    assert table["n_iter"][table["best"]].item() == fit.n_iter
    assert (table["seconds"] > 0).all()


def test_a_drawn_seed_is_told_and_can_be_used_again() -> None:
    fit = MODEL.fit(X, seed=None)
    np.testing.assert_array_equal(MODEL.fit(X, seed=fit.seed).trace, fit.trace)
    assert MODEL.fit(X, seed=None).seed != fit.seed


@pytest.mark.parametrize("accelerate", [True, False])
def test_a_fit_ends_when_three_sweeps_add_less_than_the_tolerance(accelerate: bool) -> None:
    fit = MODEL.fit(X, tol=1e-4, accelerate=accelerate)
    gains = (fit.trace[3:] - fit.trace[:-3]) / np.abs(fit.trace[3:])
    assert fit.converged
    assert gains[-1] <= 1e-4
    assert (gains[:-1] > 1e-4).all()
    assert "3 iterations added less than 0.0001" in fit.stopped


def test_one_sweep_that_adds_little_is_not_the_end() -> None:
    """Accelerated sweeps are uneven: in the middle of a rise one of them may add next to nothing."""
    rise = [-90.0, -80.0, -79.9999999, -60.0, -40.0, -39.9999999, -39.9999998, -39.9999997, 0.0]
    method, state, problem = _steps(rise)
    one = run(problem, method, state, Stop(max_iter=9, tol=1e-6))
    assert list(one.trace) == rise[:8]


def test_zero_tolerance_runs_all_sweeps() -> None:
    fit = MODEL.fit(X, tol=0, max_iter=17)
    assert (fit.n_iter, fit.converged) == (17, False)
    assert fit.stopped == "reached the maximum of 17 iterations"


def test_too_few_sweeps_give_a_warning_that_advises() -> None:
    with pytest.warns(
        pltf.ConvergenceWarning, match="maximum of 3 iterations; raise max_iter or tol, or resume with init=fit"
    ):
        fit = MODEL.fit(X, max_iter=3)
    assert not fit.converged


def test_a_long_run_ends_where_rounding_ends_the_rise() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = pltf.nmf(rank=1).fit(X[0], tol=0, max_iter=20000, prior=pltf.Gamma())
    assert fit.n_iter < 20000
    assert (np.diff(fit.trace) >= 0).all()
    assert "(rounding): kept iteration" in fit.stopped
    assert fit.converged


def _steps(objectives: list[float]) -> tuple[Method, State, Problem]:
    """A made-up method that walks through given objectives."""
    problem = _problem()
    state = VB.begin(problem, *_start(problem))
    values = iter(objectives)

    def step(_: Problem, old: State) -> State:
        return replace(old, objective=next(values))

    return Method("walk", "bound", VB.begin, step, VB.resume), state, problem


def _problem() -> Problem:
    seen = pltf.observe(X)
    planned = MODEL.plan(seen, threads=1)
    priors = dict.fromkeys(MODEL.factors, pltf.Gamma())
    engine = registry.build(planned, {"X": seen})
    return Problem(engine, NumbaAlgebra(), planned.factor_shapes, priors, {}, seen.total, seen.saturated, eps=1e-16)


def _start(problem: Problem) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    Z = {name: np.ones(shape) for name, shape in problem.shapes.items()}
    return Z, Z


def test_a_fall_stops_at_the_last_good_state() -> None:
    method, state, problem = _steps([-10.0, -9.0, -9.5, -1.0])
    result = run(problem, method, state, Stop(max_iter=10, tol=0), SILENT)
    assert list(result.trace) == [-10.0, -9.0]
    assert result.state.objective == -9.0
    assert not result.converged
    assert result.stopped == "the ELBO fell by 0.5 at iteration 3 (more than rounding explains): kept iteration 2"


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_broken_objective_stops_at_the_last_good_state(bad: float) -> None:
    method, state, problem = _steps([-10.0, bad])
    result = run(problem, method, state, Stop(max_iter=10, tol=0), SILENT)
    assert list(result.trace) == [-10.0]
    assert result.stopped == f"the ELBO became {bad} at iteration 2: kept iteration 1"
    assert not result.converged


def test_a_broken_first_sweep_is_an_error() -> None:
    method, state, problem = _steps([math.nan])
    with pytest.raises(pltf.PltfError, match="the ELBO is nan after the first iteration: numbers out of range"):
        run(problem, method, state, Stop(max_iter=10, tol=0), SILENT)


def test_a_fall_is_reported_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    method, _, _ = _steps([-10.0, -9.0, -9.5])
    monkeypatch.setattr("pltf.fitting.METHODS", {"vb": method})
    with pytest.warns(pltf.ConvergenceWarning, match="fell by 0.5 at iteration 3"):
        MODEL.fit(X)


def test_callback_sees_every_sweep_and_can_stop() -> None:
    seen: list[tuple[int, int, float]] = []

    def watch(sweep: pltf.Sweep) -> bool:
        seen.append((sweep.restart, sweep.n_iter, sweep.bound))
        assert set(sweep.means) == {"A", "B", "C"}
        return sweep.restart == 1 and sweep.n_iter == 2

    fit = MODEL.fit(X, restarts=2, max_iter=4, tol=0, callback=watch)
    assert [entry[:2] for entry in seen] == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2)]
    assert list(fit.restarts["stopped"]) == ["reached the maximum of 4 iterations", "the callback asked to stop"]


def test_a_callback_may_answer_with_a_numpy_bool_and_cannot_spoil_the_state() -> None:
    def meddle(sweep: pltf.Sweep) -> object:
        sweep.means["A"] = np.full((6, 2), 1e3)  # type: ignore[index]
        return np.bool_(sweep.n_iter == 3)

    fit = MODEL.fit(X, tol=0, callback=meddle)
    assert (fit.n_iter, fit.stopped) == (3, "the callback asked to stop")
    np.testing.assert_array_equal(fit.trace, MODEL.fit(X, tol=0, max_iter=3).trace)
    with pytest.raises(ValueError, match="read-only"):
        MODEL.fit(X, callback=lambda sweep: sweep.means["A"].fill(0))


@pytest.mark.parametrize("method", ["em", "map"])
def test_a_start_at_the_optimum_is_kept(method: str) -> None:
    first = pltf.nmf(rank=1).fit(X[0], method=method, tol=0, max_iter=500)
    means = {name: factor.mean for name, factor in first.factors.items()}
    again = pltf.nmf(rank=1).fit(X[0], method=method, init=means)
    assert again.converged
    assert again.bound == pytest.approx(first.bound, rel=1e-12)
    assert again.bound >= first.bound - 1e-9


def test_float32_that_runs_out_of_digits_says_so() -> None:
    big = np.random.default_rng(0).poisson(1e8, (8, 7, 6))
    with pytest.warns(pltf.ConvergenceWarning, match=r"\(rounding\).*float32 may be too coarse .* dtype='float64'"):
        fit = pltf.cp(rank=3).fit(big, method="em", dtype="float32", accelerate=False)
    assert not fit.converged


def test_a_pickled_or_copied_fit_goes_on() -> None:
    first = MODEL.fit(X, tol=0, max_iter=5)
    assert first.factors["A"].mean.shape == (6, 2)
    longer = MODEL.fit(X, tol=0, max_iter=10)
    for same in (pickle.loads(pickle.dumps(first)), copy.deepcopy(first)):
        np.testing.assert_allclose(MODEL.fit(X, tol=0, max_iter=5, init=same).trace, longer.trace, rtol=1e-9)


def test_blas_has_one_thread_during_a_fit_and_all_after() -> None:
    def threads() -> list[int]:
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    before, during = threads(), []
    with ThreadPoolExecutor(2) as pool:  # two fits at a time: the first to end must not lift the limit of the other
        list(pool.map(lambda n: MODEL.fit(X, tol=0, max_iter=n, callback=lambda _: during.extend(threads())), (5, 60)))
    assert set(during) == {1}
    assert threads() == before


FORK = """
import multiprocessing, numpy as np, pltf
from pltf.engines import dense_cp

dense_cp.LEAST_CELLS = dense_cp.MOST_CELLS = 100  # pieces enough for threads
X = np.random.default_rng(0).poisson(1.0, (12, 12, 12))

def fit(_):
    return pltf.cp(rank=2).fit(X, max_iter=2, tol=0, threads=2).bound

here = fit(0)
there, = multiprocessing.get_context("fork").Pool(1).map_async(fit, [0]).get(timeout=60)
assert here == there
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
def test_a_forked_child_can_fit() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], check=True, timeout=120)


def test_an_error_in_a_callback_comes_through() -> None:
    def broken(_: pltf.Sweep) -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        MODEL.fit(X, callback=broken)


def test_going_on_with_another_prior_starts_a_new_trace() -> None:
    first = MODEL.fit(X, tol=0, max_iter=5)
    other = MODEL.fit(X, tol=0, max_iter=5, init=first, prior=pltf.Gamma(2.0, 1.0))
    assert (other.n_iter, other.stopped) == (5, "reached the maximum of 5 iterations")
    assert other.trace[0] != first.trace[0]
    same = MODEL.fit(X, tol=0, max_iter=5, init=first)
    assert same.n_iter == 10
    np.testing.assert_array_equal(same.trace[:5], first.trace)


def test_going_on_from_another_method_starts_at_its_means() -> None:
    em = MODEL.fit(X, method="em", tol=0, max_iter=5)
    means = {name: factor.mean for name, factor in em.factors.items()}
    from_fit, from_arrays = (MODEL.fit(X, tol=0, max_iter=3, init=init) for init in (em, means))
    np.testing.assert_array_equal(from_fit.trace, from_arrays.trace)


@pytest.mark.parametrize("method", ["vb", "em"])
def test_going_on_with_a_factor_set_free_starts_a_new_trace(method: str) -> None:
    known = {"A": np.ones((6, 2))}
    first = MODEL.fit(X, method=method, fixed=known, tol=0, max_iter=5)
    second = MODEL.fit(X, method=method, init=first, tol=0, max_iter=5)
    assert second.n_iter == 5
    assert (second.factors["A"].mean != 1).any()


@pytest.mark.parametrize("method", ["vb", "em", "map"])
@pytest.mark.parametrize("init", ["prior", "random"])
def test_starts_work_for_every_method(method: str, init: str) -> None:
    prior = pltf.Gamma(2.0, 1.0) if method != "em" else None
    fit = MODEL.fit(X, method=method, init=init, prior=prior, tol=0, max_iter=20)
    assert fit.n_iter == 20
    assert (np.diff(fit.trace) >= 0).all()


def test_map_with_small_shapes_sets_entries_to_zero() -> None:
    """The density has no maximum at such entries; they leave the model, and the rest keeps rising."""
    fit = pltf.cp(rank=6).fit(X, method="map", prior=pltf.Gamma(0.5, 10.0), tol=0, max_iter=60, init="random")
    zeros = [int((factor.mean == 0).sum()) for factor in fit.factors.values()]
    assert sum(zeros) > 0
    assert np.isfinite(fit.trace).all()
    assert fit.method == "map"
    falls = np.diff(fit.trace) < 0
    assert falls.any()  # where entries were set to zero, and only there: the run went on
    assert "zero" not in fit.stopped or fit.n_iter < 60
