"""The one loop: it owns sweeps, tolerance, trace, callbacks, restarts and progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pltf.errors import PltfError
from pltf.gamma import Array
from pltf.inference.factors import Factors
from pltf.inference.progress import SweepProgress
from pltf.inference.state import Method, Problem, State


@dataclass(frozen=True)
class Sweep:
    """What a callback is told after every sweep; by returning True it ends that restart.

    >>> import numpy as np, pltf
    >>> def watch(sweep):
    ...     return sweep.n_iter == 3
    >>> fit = pltf.nmf(rank=2).fit(np.diag([1, 2, 3, 4]), tol=0, callback=watch)
    >>> fit.n_iter, fit.stopped
    (3, 'the callback asked to stop')
    """

    restart: int
    n_iter: int
    bound: float
    means: Factors


Callback = Callable[[Sweep], object]
ASKED = "the callback asked to stop"
FEW = 3  # sweeps that have to add less than the tolerance together
SETTLED = 1e-9  # a fall by less than this share of the objective is the end of the road in float64


@dataclass(frozen=True)
class Stop:
    """When a run ends."""

    max_iter: int
    tol: float
    callback: Callback | None = None


@dataclass(frozen=True, eq=False)
class Run:
    """One run from one starting point."""

    restart: int
    state: State
    trace: Array  # objective after each sweep
    converged: bool
    stopped: str  # why, in words
    seconds: float
    n_swept: int  # sweeps of this run, without those it went on from
    unfinished: bool  # it only ran out of sweeps

    @property
    def objective(self) -> float:
        """The last value of the trace."""
        return self.state.objective

    @property
    def row(self) -> Row:
        """What a table of all runs says of this one."""
        return Row(self.restart, self.objective, len(self.trace), self.converged, self.stopped, self.seconds)


@dataclass(frozen=True)
class Row:
    """One restart in the table of all."""

    restart: int
    bound: float
    n_iter: int
    converged: bool
    stopped: str
    seconds: float


def best_of(
    problem: Problem,
    method: Method,
    start: Callable[[int], State],
    restarts: int,
    stop: Stop,
    *,
    earlier: Sequence[float] = (),
    shown: bool = False,
) -> tuple[Run, tuple[Row, ...]]:
    """Run every restart; keep the best and a row of each. ``start`` gives restart k its state."""
    best: Run | None = None
    rows = []
    with SweepProgress(shown, restarts, stop.max_iter) as progress:
        for restart in range(restarts):
            one = run(problem, method, start(restart), stop, progress, restart, earlier)
            rows.append(one.row)
            if best is None or one.objective > best.objective:
                best = one
    assert best is not None
    return best, tuple(rows)


def run(
    problem: Problem,
    method: Method,
    state: State,
    stop: Stop,
    progress: SweepProgress | None = None,
    restart: int = 0,
    earlier: Sequence[float] = (),
) -> Run:
    """Sweep until the last few sweeps add less than ``tol*|objective|``, or the objective no longer rises.

    ``earlier`` is the trace that the state comes with, when a fit goes on.
    """
    if state.counts.log_term == -math.inf:
        raise PltfError("a positive count has rate zero under these starting and fixed factors")
    began = time.perf_counter()
    trace, comparable_from = list(earlier), 0
    converged, unfinished, stopped = False, False, f"{stop.max_iter} sweeps are done"
    for _ in range(stop.max_iter):
        new = method.step(problem, state)
        comparable = new.zeros == state.zeros
        gain = new.objective - state.objective
        if not math.isfinite(new.objective) or (comparable and gain < 0):
            converged, stopped = _no_rise(problem, method, state, new, len(trace), stop.tol)
            break
        if not comparable or new.waiting != state.waiting:
            comparable_from = len(trace)
        state = new
        trace.append(new.objective)
        if progress is not None:
            progress.sweep(restart, len(trace), f"{method.objective} {new.objective:.6g}")
        if stop.callback is not None and _asks_to_stop(stop.callback(_told(restart, len(trace), new))):
            stopped = ASKED
            break
        if stop.tol > 0 and not new.waiting and _last_gain(trace, comparable_from) <= stop.tol * abs(new.objective):
            converged, stopped = True, f"{FEW} sweeps added less than {stop.tol:g} of the {method.objective}"
            break
    else:
        unfinished = True
    seconds = time.perf_counter() - began
    return Run(restart, state, np.asarray(trace), converged, stopped, seconds, len(trace) - len(earlier), unfinished)


def _last_gain(trace: Sequence[float], first: int) -> float:
    """What the last few sweeps have added. One alone may add little in the middle of a rise, when it is accelerated."""
    return trace[-1] - trace[-1 - FEW] if len(trace) - first > FEW else math.inf


def _told(restart: int, n_iter: int, state: State) -> Sweep:
    return Sweep(restart, n_iter, state.objective, dict(state.E))


def _asks_to_stop(answer: object) -> bool:
    return isinstance(answer, (bool, np.bool_)) and bool(answer)


def _no_rise(problem: Problem, method: Method, old: State, new: State, n_iter: int, tol: float) -> tuple[bool, str]:
    """Whether a sweep that did not raise the objective is convergence, and what to say of it."""
    name, kept = method.objective, f"kept sweep {n_iter}" if n_iter else "kept the start"
    if not math.isfinite(new.objective):
        if n_iter == 0:
            raise PltfError(f"the {name} is {new.objective} after the first sweep: the numbers are out of range")
        return False, f"the {name} became {new.objective} at sweep {n_iter + 1}: {kept}"
    fall = old.objective - new.objective
    rounding = fall <= problem.rounding(old.objective)
    cause = "rounding" if rounding else "more than rounding explains"
    # Where rounding is coarse, as in float32 with large counts, it can end a fit long before the tolerance is met.
    settled = rounding and (tol == 0 or fall <= max(tol, SETTLED) * abs(old.objective))
    return settled, f"the {name} fell by {fall:.2g} at sweep {n_iter + 1} ({cause}): {kept}"
