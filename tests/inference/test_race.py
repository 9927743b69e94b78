"""The race of restarts: when it judges, whom it drops, and that breaks change nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pltf
from pltf.fitting import prepare
from pltf.inference.methods import METHODS
from pltf.inference.race import BEHIND, judged, rounds, run_until
from pltf.inference.run import Run, Stop, is_limit, run
from pltf.inference.state import Problem, State
from pltf.options import FitOptions
from pltf.planning import observations

X = np.random.default_rng(0).poisson(3.0, (8, 7, 6))


def _start(learn: str = "mean") -> tuple[Problem, State]:
    data = {"X": X}
    ready = prepare(pltf.cp(rank=3), data, {}, FitOptions(prior=pltf.Gamma(learn=learn), threads=1))
    problem = ready.problem(observations(data, {}))
    start, _ = ready.starting(problem)
    return problem, start(0)


def _run(trace: list[float], unfinished: bool = True) -> Run:
    _, state = _start()
    state = replace(state, objective=trace[-1])
    return Run(0, state, tuple(trace), not unfinished, "", 0.0, len(trace), unfinished)


def test_judgements_come_later_and_later() -> None:
    assert list(rounds(100, racing=True)) == [20, 30, 45, 68, 100]
    assert list(rounds(20, racing=True)) == [20]
    assert list(rounds(7, racing=True)) == [7]
    assert list(rounds(2000, racing=False)) == [2000]


def test_a_run_is_dropped_if_four_times_its_last_gain_does_not_reach_the_best() -> None:
    # Of 30 sweeps the first 20 were there at the last judgement: since then these have gained 10.
    rising = [*np.linspace(-100, -60, 20), *np.linspace(-59, -50, 10)]
    for best, dropped in ((-10.1, False), (-9.9, True)):
        leader, follower = judged([_run([best - 1, best], unfinished=False), _run(rising)])
        assert leader.stopped == ""
        assert (follower.stopped == BEHIND) == dropped
        assert follower.unfinished != dropped


def test_the_leader_and_those_that_have_ended_are_never_dropped() -> None:
    flat = [-50.0] * 30
    ended, leader = judged([_run([-90.0] * 30, unfinished=False), _run(flat)])
    assert ended.stopped == leader.stopped == ""
    assert leader.unfinished


@pytest.mark.parametrize("learn", ["mean", "both"])
def test_a_run_with_breaks_takes_the_steps_of_one_without(learn: str) -> None:
    problem, state = _start(learn)
    whole = run(problem, METHODS["vb"], state, Stop(200, 1e-7))
    part = run_until(problem, METHODS["vb"], state, Stop(200, 1e-7), 0, 5)
    assert part.unfinished
    assert len(part.trace) == 5
    for sweeps in (6, 17, 40, 200):
        if part.unfinished:
            part = run_until(problem, METHODS["vb"], part, Stop(200, 1e-7), 0, sweeps)
    np.testing.assert_array_equal(part.trace, whole.trace)
    assert (part.converged, part.stopped) == (whole.converged, whole.stopped)


def test_a_run_out_of_sweeps_says_so() -> None:
    problem, state = _start()
    part = run_until(problem, METHODS["vb"], state, Stop(9, 0.0), 0, 5)
    whole = run_until(problem, METHODS["vb"], part, Stop(9, 0.0), 0, 13)
    assert (part.unfinished, whole.unfinished) == (True, False)
    assert (whole.n_swept, whole.stopped) == (9, "reached the maximum of 9 iterations")
    assert is_limit(whole.stopped)
    assert is_limit("9 sweeps are done")  # in files of version 0.1
