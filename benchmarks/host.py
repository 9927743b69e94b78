"""What the host takes for an iteration on a GPU: ``python -m benchmarks.host``, on any machine with PyTorch.

Sums over cells and recordings do nothing here, and objectives rise by themselves. What is left is Python, and PyTorch's
own time for a call, but not that of CUDA: launches, copies and waiting take some microseconds each beside it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np

import pltf
from pltf.fitting import PreparedFit, prepare
from pltf.inference import em, vb
from pltf.inference.algebra.lanes import LaneArrays
from pltf.inference.algebra.recording import Graphs, Recordings
from pltf.inference.batch import RestartBatch
from pltf.inference.run import Stop, run
from pltf.inference.state import Pace, Problem, State, placed
from pltf.options import FitOptions
from pltf.planning import observations

ITERATIONS, ROUNDS, LANES = 1000, 9, 10
KINDS: dict[str, tuple[dict[str, Any], int]] = {  # options, and rejected steps before the first one
    "plain": ({"accelerate": False}, 0),
    "over-relaxed": ({}, 0),
    "quasi-Newton": ({}, 4),
    "EM": ({"method": "em"}, 0),
}


def once(self: Graphs, work: Callable[[], None]) -> Callable[[], None]:
    """Stands in for a recording: only its first replay computes anything."""
    done: list[bool] = []

    def play() -> None:
        if not done:
            done.append(True)
            work()

    return play


def rising() -> Callable[[object], float]:
    """Stands in for reading an objective."""
    level = itertools.count()

    def read(objective: object) -> float:
        float(objective)  # type: ignore[arg-type]
        return float(next(level))

    return read


def ready(**options: Any) -> tuple[PreparedFit, Problem]:
    """CP 50^3, 40 % missing."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((50, 50, 50)) < 0.4, np.nan, rng.poisson(2.0, (50, 50, 50)))
    made = FitOptions(device="torch:cpu", tol=0, max_iter=10**6, dispersion=None, progress=False, **options)
    found = prepare(pltf.cp(rank=7), {"X": X}, {}, made)
    return found, found.problem(observations({"X": X}, {}))


def iterations(options: dict[str, Any], refused: int) -> Callable[[int], object]:
    """Replayed iterations of one fit."""
    fit, problem = ready(**options)

    def gone_on(state: State, many: int) -> State:
        return placed(run(problem, fit.method, state, Stop(many, 0.0)).state, problem.algebra)

    state = gone_on(fit.starting(problem)[0](0), 2)
    state = gone_on(replace(state, pace=Pace(1.0, refused)), 16)  # records all that is needed
    return lambda many: gone_on(state, many)


def proposals() -> Callable[[int], object]:
    """Replayed proposals of a batch."""
    fit, problem = ready(restarts=LANES)
    batch = RestartBatch(problem, LANES)
    arrays, level = batch._arrays, itertools.count()
    start, _ = fit.starting(problem)
    begins = [start(n) for n in range(LANES)]

    def step(_: LaneArrays) -> None:
        arrays._bounds.fill_(float(next(level)))

    def gone_on(many: int) -> object:
        with patch.object(LaneArrays, "_step", step):
            return batch.run(begins, range(LANES), Stop(many, 0.0))

    return gone_on


def took(work: Callable[[int], object]) -> float:
    """Microseconds of processor time for each of many iterations, the median of several rounds."""
    work(20)
    seconds = []
    for _ in range(ROUNDS):
        ticks = [time.process_time()]
        for many in (20, 20 + ITERATIONS):
            work(many)
            ticks.append(time.process_time())
        seconds.append((ticks[2] - 2 * ticks[1] + ticks[0]) / ITERATIONS)
    return 1e6 * median(seconds)


def main() -> None:
    read = rising()
    everywhere = classmethod(lambda cls, device: device and cls(device))
    with (
        patch.object(Graphs, "recorded", once),
        patch.object(Recordings, "on", everywhere),
        patch.object(vb, "float", read, create=True),
        patch.object(em, "float", read, create=True),
    ):
        for name, (options, refused) in KINDS.items():
            print(f"iteration, {name}: {took(iterations(options, refused)):.1f} us", flush=True)
        print(f"proposal of {LANES} restarts: {took(proposals()):.1f} us")


if __name__ == "__main__":
    main()
