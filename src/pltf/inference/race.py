"""Parallel restarts of one problem; restarts that are clearly worse are dropped.

Restarts are compared only when all of them have done the same number of iterations, so nothing depends on the speed
of workers: results are the same for any number of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pltf.inference.batch import RestartBatch
from pltf.inference.run import Run, Stop, at_limit, run
from pltf.inference.state import Method, Problem, State

# Measured: benchmarks/NOTES.md
BURN_IN = 20  # iterations before the first comparison
ROUND = 1.5  # factor between the numbers of iterations of successive comparisons
HOPE = 4.0  # a restart may still gain this many times its gain since the last comparison

BEHIND = "dropped: behind another restart"


def run_until(problem: Problem, method: Method, start: State | Run, stop: Stop, restart: int, sweeps: int) -> Run:
    """A run up to ``sweeps`` iterations in total, or to its end; resuming does not change its steps."""
    return _until(run(problem, method, start, _limited(stop, sweeps), restart=restart), stop)


def all_until(
    batch: RestartBatch, starts: Sequence[State | Run], stop: Stop, restarts: Sequence[int], sweeps: int
) -> list[Run]:
    """As :func:`run_until`, for restarts that run as a batch."""
    return [_until(new, stop) for new in batch.run(starts, restarts, _limited(stop, sweeps))]


def _limited(stop: Stop, sweeps: int) -> Stop:
    return replace(stop, max_iter=min(sweeps, stop.max_iter))


def _until(new: Run, stop: Stop) -> Run:
    """A run that has reached a limited number of iterations, which may not be all of them."""
    stopped = at_limit(stop.max_iter) if new.unfinished else new.stopped
    return replace(new, stopped=stopped, unfinished=new.unfinished and len(new.trace) < stop.max_iter)


def rounds(max_iter: int, racing: bool) -> Iterator[int]:
    """Numbers of iterations after which restarts are compared."""
    sweeps = BURN_IN if racing else max_iter
    while sweeps < max_iter:
        yield sweeps
        sweeps = math.ceil(sweeps * ROUND)
    yield max_iter


def judged(runs: Sequence[Run]) -> list[Run]:
    """The runs; those that are clearly worse than the best one are marked as ended."""
    best = max(run.objective for run in runs)
    return [_dropped(run) if run.unfinished and _best_hope(run) < best else run for run in runs]


def _dropped(run: Run) -> Run:
    return replace(run, stopped=BEHIND, unfinished=False)


def _best_hope(run: Run) -> float:
    """An optimistic final ELBO of a run, extrapolated from its gain since the last comparison."""
    earlier = max(int(len(run.trace) / ROUND), 1)
    return run.objective + HOPE * float(run.trace[-1] - run.trace[earlier - 1])
