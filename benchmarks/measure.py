"""One contender on one problem, in a separate process; the last line printed is the result in JSON.

``python -m benchmarks.measure CONTENDER SWEEPS REPEATS FILE``
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from benchmarks.machine import cpu_seconds_of_others
from benchmarks.peers import CONTENDERS, Contender, Outcome, Runner
from benchmarks.problems import Problem, load

WARM_UP = 2  # sweeps of a run that are not timed
SHORT = 0.3  # seconds


@dataclass(frozen=True)
class Cost:
    """Seconds a sweep, memory, and what disturbed the measurement."""

    fastest: float
    median: float
    peak_mb: float  # of the process
    above_mb: float  # of that, what the fit took beyond interpreter, packages and data
    data_mb: float
    others: float  # cores that other programs kept busy meanwhile


@dataclass(frozen=True)
class Result(Cost):
    """What was measured."""

    divergence: float  # nan of a contender that fits nothing
    at_truth: float  # divergence of the factors that drew the data


def measure(contender: str, sweeps: int, repeats: int, path: Path) -> Result:
    """Run a contender ``repeats`` times; measure the time of its sweeps, its memory and its objective."""
    how = CONTENDERS[contender]
    outcome, spent = cost(how, _as_given(load(path), how), sweeps, repeats)
    factors = [np.asarray(factor, dtype=np.float64) for factor in outcome.factors]
    whole = load(path)
    reached = whole.divergence(factors) if factors else math.nan
    return Result(**asdict(spent), divergence=reached, at_truth=whole.divergence(whole.truth))


def cost(how: Contender, problem: Problem, sweeps: int, repeats: int) -> tuple[Outcome, Cost]:
    """The result of a contender after ``sweeps`` of a problem in its precision, with time and memory."""
    # A tiny problem first: it imports and compiles what is needed, off the clock and the memory.
    how.run(_as_given(problem.tiny(), how), WARM_UP + 1)
    peak_before, resident = _peak_mb(), _resident_mb()
    _forget_peak()
    began, before = perf_counter(), cpu_seconds_of_others()
    outcome, fastest, middle = _timed(how.run, problem, sweeps, repeats)
    others = _cores(cpu_seconds_of_others() - before, perf_counter() - began)
    peak = _peak_mb()
    above = max(0.0, peak - resident)
    return outcome, Cost(fastest, middle, max(peak, peak_before), above, problem.nbytes / 1e6, others)


def _as_given(problem: Problem, how: Contender) -> Problem:
    """The problem in the contender's precision, and without a mask if it supports none."""
    return replace(
        problem,
        X=problem.X.astype(how.dtype, copy=False),
        start=[factor.astype(how.dtype, copy=False) for factor in problem.start],
        mask=problem.mask if how.masks else None,
    )


def _timed(run: Runner, problem: Problem, sweeps: int, repeats: int) -> tuple[Outcome, float, float]:
    """The outcome of a run of ``sweeps``, and the least and the median time of a sweep."""
    outcome, seconds = _one_run(run, problem, sweeps)
    if outcome.marks:
        outcomes = [outcome, *(run(problem, sweeps) for _ in range(repeats - 1))]
        each = [time for one in outcomes for time in np.diff(one.marks)[WARM_UP - 1 :]]
        return outcome, float(min(each)), float(median(each))
    # It does not tell its sweeps: a run less a run of half as many leaves preparation out.
    half = sweeps // 2
    long = [seconds, *(_one_run(run, problem, sweeps)[1] for _ in range(repeats - 1))]
    short = [_one_run(run, problem, half)[1] for _ in range(repeats)]
    more = sweeps - half
    if min(long) <= min(short) or median(long) <= median(short):
        raise RuntimeError(f"{sweeps} sweeps took no longer than {half}: the machine is too busy to time them")
    return outcome, (min(long) - min(short)) / more, (median(long) - median(short)) / more


def _one_run(run: Runner, problem: Problem, sweeps: int) -> tuple[Outcome, float]:
    began = perf_counter()
    outcome = run(problem, sweeps)
    return outcome, perf_counter() - began


def _cores(used: float, seconds: float) -> float:
    """Cores in use; 0 over a time too short for the system's clock, which ticks a hundred times a second."""
    return max(0.0, used / seconds) if seconds > SHORT else 0.0


def _peak_mb() -> float:
    unit = 1 if sys.platform == "darwin" else 1024  # macOS tells bytes, Linux kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def _resident_mb() -> float:
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6
    return _peak_mb()


def _forget_peak() -> None:
    """Reset the peak memory, if the system can: compiling may take more than the fit."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    name, sweeps, repeats, file = sys.argv[1:]
    print(json.dumps(asdict(measure(name, int(sweeps), int(repeats), Path(file)))))
