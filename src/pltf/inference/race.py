"""Restarts of one problem beside each other; one that is clearly behind is dropped.

Who is behind is judged only when all restarts have done the same number of sweeps, so nothing depends on which worker
was faster: results are the same for any number of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pltf.inference.run import Run, Stop, run
from pltf.inference.state import Method, Problem, State

# Measured: benchmarks/NOTES.md
BURN_IN = 20  # sweeps before anybody is judged
ROUND = 1.5  # each judgement comes after so many times the sweeps of the one before
HOPE = 4.0  # a restart may still gain so many times what it has gained since the last judgement

BEHIND = "dropped: behind another restart"


def run_until(problem: Problem, method: Method, start: State | Run, stop: Stop, restart: int, sweeps: int) -> Run:
    """A run up to so many sweeps in all, or to its end; going on takes the very steps of a run without a break."""
    limit = replace(stop, max_iter=min(sweeps, stop.max_iter))
    new = run(problem, method, start, limit, restart=restart)
    stopped = f"{stop.max_iter} sweeps are done" if new.unfinished else new.stopped
    return replace(new, stopped=stopped, unfinished=new.unfinished and len(new.trace) < stop.max_iter)


def rounds(max_iter: int, racing: bool) -> Iterator[int]:
    """The numbers of sweeps after which restarts are judged."""
    sweeps = BURN_IN if racing else max_iter
    while sweeps < max_iter:
        yield sweeps
        sweeps = math.ceil(sweeps * ROUND)
    yield max_iter


def judged(runs: Sequence[Run]) -> list[Run]:
    """The runs, those that are clearly behind the best of them ended."""
    best = max(run.objective for run in runs)
    return [_dropped(run) if run.unfinished and _best_hope(run) < best else run for run in runs]


def _dropped(run: Run) -> Run:
    return replace(run, stopped=BEHIND, unfinished=False)


def _best_hope(run: Run) -> float:
    """What the bound of a run may still come to, by what it has gained since the last judgement."""
    earlier = max(int(len(run.trace) / ROUND), 1)
    return run.objective + HOPE * float(run.trace[-1] - run.trace[earlier - 1])
