"""The main loop: iterations, tolerance, trace, callbacks, restarts and progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pltf.errors import PltfError, is_flag
from pltf.inference.algebra import Factors
from pltf.inference.progress import SweepProgress
from pltf.inference.state import Method, Problem, State, fetched, placed, shown_objective


@dataclass(frozen=True)
class Sweep:
    """State passed to a callback after every iteration (sweep); return True to stop the restart.

    >>> import numpy as np, pltf
    >>> def watch(sweep):
    ...     return sweep.n_iter == 3
    >>> fit = pltf.nmf(rank=2).fit(np.diag([1, 2, 3, 4]), tol=0, callback=watch)
    >>> fit.n_iter, fit.stopped
    (3, 'the callback asked to stop')
    """

    restart: int  # number of the restart or chain, from 0
    n_iter: int  # iterations so far, at least 1
    bound: float  # the objective after this iteration
    means: Factors  # current mean of each factor, by name


Callback = Callable[[Sweep], object]
ASKED = "the callback asked to stop"
INTERRUPTED = "interrupted"
LIMIT = "reached the maximum of"
ZERO_RATE = "some positive counts have rate zero under the given start values and fixed factors"
FEW = 3  # number of last iterations that must together add less than the tolerance
SETTLED = 1e-9  # a relative fall of the objective below this is rounding in float64, and counts as convergence


@dataclass(frozen=True)
class Stop:
    """Stopping criteria of a run."""

    max_iter: int
    tol: float
    callback: Callback | None = None
    interrupted: Callable[[], bool] | None = None  # called after each iteration


@dataclass(frozen=True, eq=False)
class Run:
    """One run from one start."""

    restart: int
    state: State  # on the host
    trace: tuple[float, ...]  # objective after each iteration
    converged: bool
    stopped: str  # the reason, as text
    seconds: float
    n_swept: int  # iterations of this run, without those of the fit it resumed from
    unfinished: bool  # it only reached the maximum number of iterations
    comparable_from: int = 0  # the first iteration from which on trace values are comparable

    @property
    def objective(self) -> float:
        """The last value of the trace."""
        return self.state.objective

    @property
    def row(self) -> Row:
        """Row of this run in the table of restarts."""
        return Row(self.restart, self.objective, len(self.trace), self.converged, self.stopped, self.seconds)


@dataclass(frozen=True)
class Row:
    """One restart in the table of restarts."""

    restart: int
    bound: float
    n_iter: int
    converged: bool
    stopped: str
    seconds: float


@dataclass(frozen=True, eq=False)
class Standing:
    """Progress of a fit: the best finished run, a row for each finished run, and the current run."""

    best: Run | None
    rows: tuple[Row, ...]
    going: Run


class RunKeeper(Protocol):
    """Saves the progress of a fit, so that it can be resumed."""

    standing: Standing | None  # from an earlier, interrupted fit

    def due(self) -> bool:
        """Whether a checkpoint is due."""

    def keep(self, standing: Standing) -> None:
        """Save the progress."""


def best_of(
    problem: Problem,
    method: Method,
    start: Callable[[int], State],
    restarts: int,
    stop: Stop,
    *,
    earlier: Sequence[float] = (),
    shown: bool = False,
    keeper: RunKeeper | None = None,
) -> tuple[Run, tuple[Row, ...]]:
    """Run every restart; return the best run and a row for each. ``start`` gives the initial state of restart k."""
    standing = keeper.standing if keeper is not None else None
    best, rows = (None, ()) if standing is None else (standing.best, standing.rows)
    with SweepProgress(shown, restarts, stop.max_iter) as progress:
        for restart in range(len(rows), restarts):
            begins = [start(restart) if standing is None else standing.going]
            standing = None

            def keep(going: Run, best: Run | None = best, rows: tuple[Row, ...] = rows) -> None:
                assert keeper is not None
                keeper.keep(Standing(best, rows, going))

            due = keeper.due if keeper is not None else None
            one = run(problem, method, begins.pop(), stop, progress, restart, earlier, due, keep)
            interrupted = one.stopped == INTERRUPTED
            if interrupted and keeper is not None:
                keep(one)
            if one.n_swept or not interrupted:
                rows = (*rows, one.row)
                best = one if best is None or one.objective > best.objective else best
            if interrupted:
                break
    if best is None:
        raise KeyboardInterrupt
    return best, rows


def run(
    problem: Problem,
    method: Method,
    begin: State | Run,
    stop: Stop,
    progress: SweepProgress | None = None,
    restart: int = 0,
    earlier: Sequence[float] = (),
    due: Callable[[], bool] | None = None,
    keep: Callable[[Run], None] | None = None,
) -> Run:
    """Iterate until the last iterations together add less than ``tol*|objective|``, or the objective stops rising.

    Starts from a state (with the trace ``earlier`` if it continues a fit), or resumes an interrupted run with exactly
    the steps of an uninterrupted one. Whenever a checkpoint is ``due``, ``keep`` receives the run so far.
    """
    if isinstance(begin, Run):
        state, trace, comparable_from = placed(begin.state, problem.algebra), list(begin.trace), begin.comparable_from
        before, seconds = len(trace) - begin.n_swept, begin.seconds
    else:
        state, trace, comparable_from = begin, list(earlier), 0
        before, seconds = len(trace), 0.0
    del begin  # frees its memory after the first iteration
    if state.counts.log_term == -math.inf:
        raise PltfError(ZERO_RATE)
    began = time.perf_counter() - seconds

    def so_far(stopped: str, converged: bool = False, unfinished: bool = False) -> Run:
        seconds, swept = time.perf_counter() - began, len(trace) - before
        known = fetched(state.at_end if converged else state, problem.algebra)
        return Run(restart, known, tuple(trace), converged, stopped, seconds, swept, unfinished, comparable_from)

    while len(trace) - before < stop.max_iter:
        if stop.interrupted is not None and stop.interrupted():
            return so_far(INTERRUPTED)
        new = method.step(problem, state)
        comparable = new.zeros == state.zeros
        gain = new.objective - state.objective
        if not math.isfinite(new.objective) or (comparable and gain < 0):
            reason = no_rise(problem, method.objective, state.objective, new.objective, len(trace), stop.tol)
            return so_far(*reason)
        if not comparable or new.waiting != state.waiting:
            comparable_from = len(trace)
        state = new
        trace.append(new.objective)
        if progress is not None:
            progress.sweep(restart, len(trace), method.objective, new.objective)
        if stop.callback is not None and asks_to_stop(stop.callback(_told(problem, restart, len(trace), new))):
            return so_far(ASKED)
        done = "" if new.waiting else converged(trace, comparable_from, stop.tol, method.objective)
        if done:
            return so_far(done, converged=True)
        if due is not None and keep is not None and due():
            keep(so_far(INTERRUPTED, unfinished=True))
    return so_far(at_limit(stop.max_iter), unfinished=True)


def at_limit(max_iter: int) -> str:
    """Why a run stopped that has done all its iterations."""
    return f"{LIMIT} {max_iter} iteration{'s' * (max_iter != 1)}"


def is_limit(stopped: str) -> bool:
    """Whether a run stopped at its maximum of iterations, also in the words of version 0.1."""
    return stopped.startswith(LIMIT) or stopped.endswith("sweeps are done")


def converged(trace: Sequence[float], comparable_from: int, tol: float, objective: str) -> str:
    """Why a run has converged, if it has."""
    if tol > 0 and _last_gain(trace, comparable_from) <= tol * abs(trace[-1]):
        return f"{FEW} iterations added less than {tol:g} of the {shown_objective(objective)}"
    return ""


def _last_gain(trace: Sequence[float], first: int) -> float:
    """Gain of the last iterations together: with acceleration, a single one may add little before a large gain."""
    return trace[-1] - trace[-1 - FEW] if len(trace) - first > FEW else math.inf


def _told(problem: Problem, restart: int, n_iter: int, state: State) -> Sweep:
    return Sweep(restart, n_iter, state.objective, {a: problem.algebra.get(E) for a, E in state.E.items()})


def asks_to_stop(answer: object) -> bool:
    """Whether a callback returned True."""
    return is_flag(answer) and bool(answer)


def no_rise(problem: Problem, objective: str, old: float, new: float, n_iter: int, tol: float) -> tuple[str, bool]:
    """The reason for stopping after an iteration that did not raise the objective, and whether it is convergence."""
    name, kept = shown_objective(objective), f"kept iteration {n_iter}" if n_iter else "kept the start"
    if not math.isfinite(new):
        if n_iter == 0:
            raise PltfError(f"the {name} is {new} after the first iteration: numbers out of range")
        return f"the {name} became {new} at iteration {n_iter + 1}: {kept}", False
    fall = old - new
    rounding = fall <= problem.rounding(old)
    cause = "rounding" if rounding else "more than rounding explains"
    # Where rounding is coarse, as in float32 with large counts, it can end a fit long before the tolerance is reached.
    settled = rounding and (tol == 0 or fall <= max(tol, SETTLED) * abs(old))
    return f"the {name} fell by {fall:.2g} at iteration {n_iter + 1} ({cause}): {kept}", settled
