"""Restarts of a small problem as one batch on a GPU: one pass of kernels serves all of them.

Each restart is a lane: a position along the first axis of all arrays. Lanes take the steps that they would take alone,
each with its own over-relaxation and quasi-Newton steps; the host only sees their bounds, and decides.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from pltf.errors import PltfError
from pltf.inference.accelerate import GROWTH, LIMIT, NOISE, REFUSALS, REMEMBERED, SHORTER, direction, longer, unchanged
from pltf.inference.algebra import Algebra, Factors, Groups
from pltf.inference.algebra.host import prior_value
from pltf.inference.algebra.lanes import LaneArrays, filled, joined, parted
from pltf.inference.progress import SweepProgress
from pltf.inference.run import INTERRUPTED, ZERO_RATE, Row, Run, Stop, at_limit, converged, no_rise
from pltf.inference.state import Method, Pace, Problem, State, Trail
from pltf.inference.vb import VB, Posteriors, completed, state_of

# Kernels over more leave little of a GPU idle. Of all lanes together:
MOST_CELLS = 1 << 22
MOST_ENTRIES = 1 << 18  # of a factor
CELL_BYTES, ENTRY_BYTES = 64, 512  # at most, with temporaries

IDLE = (False, False, 1.0, 1.0)  # controls of a lane that is not used
PLAIN, STRETCHED, WATCHED, MOVED = "plain", "stretched", "watched", "moved"  # iterations, as in accelerate.py


@dataclass
class Lane:
    """One restart: what has been reached, and what is tried next."""

    restart: int
    objective: float
    trace: list[float]
    before: int  # iterations of earlier runs
    seconds: float
    begun: bool
    accelerated: bool
    eta: float = 1.0
    refused: int = 0
    trail: bool = False
    tries: int = 0  # rejected proposals since the last iteration
    ended: dict[str, Any] | None = None
    quasi: bool = field(init=False)  # whether this iteration is a quasi-Newton step

    def __post_init__(self) -> None:
        self.quasi = self.refused >= REFUSALS

    @property
    def kind(self) -> str:
        """What is proposed."""
        if not self.accelerated or not self.begun:
            return PLAIN
        if not self.quasi:
            return STRETCHED if self.eta > 1 and not self.tries else PLAIN
        if not self.trail:
            return WATCHED
        return MOVED if self.tries < 2 else PLAIN

    @property
    def controls(self) -> tuple[bool, bool, float, float]:
        """Whether it goes further, whether it moves, and how far."""
        kind = self.kind
        return kind == STRETCHED, kind == MOVED, self.eta, SHORTER if self.tries else 1.0

    def takes(self, bound: float, problem: Problem, stop: Stop) -> bool:
        """Whether the lane takes the proposal with this bound, as an iteration."""
        kind = self.kind
        if kind in (STRETCHED, MOVED) and not bound >= self.objective:
            self.tries += 1
            self.refused += kind == STRETCHED
            return False
        if not math.isfinite(bound) or bound < self.objective:
            stopped, settled = no_rise(problem, VB.objective, self.objective, bound, len(self.trace), stop.tol)
            self.ended = {"stopped": stopped, "converged": settled}
            return False
        if kind == STRETCHED:
            self.eta = min(self.eta * GROWTH, LIMIT)
        elif self.begun and self.accelerated and not self.quasi:
            self.eta = GROWTH
        self.trail = kind in (WATCHED, MOVED)
        self.objective, self.begun, self.tries, self.quasi = bound, True, 0, self.refused >= REFUSALS
        self.trace.append(bound)
        done = converged(self.trace, 0, stop.tol, VB.objective)
        if done:
            self.ended = {"stopped": done, "converged": True}
        elif len(self.trace) - self.before >= stop.max_iter:
            self.ended = {"stopped": at_limit(stop.max_iter), "converged": False, "unfinished": True}
        return True


class RestartBatch:
    """A problem with so many lanes."""

    def __init__(self, problem: Problem, lanes: int) -> None:
        from pltf.engines.torch.lanes import DenseLanes
        from pltf.inference.algebra.on_device import DeviceAlgebra

        assert problem.recordings is not None
        device = problem.recordings.device
        # Without recordings, which hold this batch: memory of a device must not wait for the garbage collector.
        self._alone, self._lanes = replace(problem, recordings=None), lanes
        fixed = {a: z.expand(lanes, *z.shape).contiguous() for a, z in problem.fixed.items()}
        learns = {a: Groups((lanes, *one.shape), tuple(n + 1 for n in one.shared)) for a, one in problem.learns.items()}
        engine, algebra = DenseLanes(cast(Any, problem.engine), lanes), DeviceAlgebra(device, lanes)
        together = replace(self._alone, engine=engine, algebra=algebra, fixed=fixed, learns=learns)
        self._shapes = {a: problem.shapes[a] for a in problem.free}
        self._ones, self._zeros = (
            {a: filled(shape, value) for a, shape in self._shapes.items()} for value in (1.0, 0.0)
        )
        self._nowhere = joined(self._shapes, self._zeros)
        self._arrays = LaneArrays(device, lanes, len(IDLE), partial(_step, together))

    @staticmethod
    def of(problem: Problem, method: Method, lanes: int) -> RestartBatch | None:
        """The batch of a problem with so many lanes, made once; None where one would not work or pay."""
        if lanes < 2 or method is not VB or problem.recordings is None:
            return None
        known: dict[int, RestartBatch | None] = problem.recordings.batches
        if lanes not in known:
            known[lanes] = RestartBatch(problem, lanes) if _takes(problem, lanes) else None
        return known[lanes]

    def run(
        self, begins: Sequence[State | Run], restarts: Sequence[int], stop: Stop, progress: SweepProgress | None = None
    ) -> list[Run]:
        """What :func:`pltf.inference.run.run` gives for each, up to rounding."""
        began, lanes = time.perf_counter(), [self._lane(*one) for one in zip(begins, restarts, strict=True)]
        self._arrays.load([self._posteriors(one.state if isinstance(one, Run) else one) for one in begins])
        taken = [False] * self._lanes
        while any(lane.ended is None for lane in lanes):
            if stop.interrupted is not None and stop.interrupted():
                for lane in lanes:
                    lane.ended = lane.ended or {"stopped": INTERRUPTED, "converged": False}
                break
            unused = [IDLE] * (self._lanes - len(lanes))
            bounds = self._arrays.proposed(taken, [*(lane.controls for lane in lanes), *unused])
            for n, lane in enumerate(lanes):
                taken[n] = lane.ended is None and lane.takes(bounds[n], self._alone, stop)
            if progress is not None:
                most = max(len(lane.trace) for lane in lanes)
                progress.together(most, VB.objective, max(lane.objective for lane in lanes))
        reached = self._arrays.fetched(taken)
        seconds = time.perf_counter() - began
        return [self._run(lane, one, seconds) for lane, one in zip(lanes, reached, strict=False)]

    def best(self, start: Callable[[int], State], stop: Stop, *, shown: bool = False) -> tuple[Run, tuple[Row, ...]]:
        """What :func:`pltf.inference.run.best_of` gives for as many restarts as there are lanes."""
        restarts = range(self._lanes)
        with SweepProgress(shown, self._lanes, stop.max_iter) as progress:
            runs = self.run([start(n) for n in restarts], restarts, stop, progress)
        runs = [one for one in runs if one.n_swept]
        if not runs:
            raise KeyboardInterrupt
        return max(runs, key=lambda one: one.objective), tuple(one.row for one in runs)

    # -- lanes ----------------------------------------------------------------------------------

    def _lane(self, begin: State | Run, restart: int) -> Lane:
        state = begin.state if isinstance(begin, Run) else begin
        if float(state.counts.log_term) == -math.inf:
            raise PltfError(ZERO_RATE)
        trace, before, seconds = [], 0, 0.0
        if isinstance(begin, Run):
            trace, before, seconds = list(begin.trace), len(begin.trace) - begin.n_swept, begin.seconds
        pace, accelerated = state.pace, self._alone.trades is not None
        given = state.objective, trace, before, seconds, bool(state.C), accelerated
        return Lane(restart, *given, pace.eta, pace.refused, pace.trail is not None)

    def _run(self, lane: Lane, reached: Posteriors, seconds: float) -> Run:
        assert lane.ended is not None
        means = {a: prior_value(mean, self._alone.learns[a]) for a, mean in reached.means.items()}
        held = {a: self._alone.algebra.get(z) for a, z in self._alone.fixed.items()}
        E, L = ({a: held[a] if a in held else part[a] for a in self._alone.shapes} for part in (reached.E, reached.L))
        trail = _each(partial(parted, self._shapes), reached.trail) if reached.trail and lane.trail else None
        log_term = float(reached.log_term)
        reached = reached._replace(E=E, L=L, means=means, log_term=log_term, trail=trail)
        state = state_of(self._alone, reached, Pace(lane.eta, lane.refused))
        return Run(
            lane.restart,
            state.at_end if lane.ended["converged"] else state,
            tuple(lane.trace),
            lane.ended["converged"],
            lane.ended["stopped"],
            lane.seconds + seconds,
            len(lane.trace) - lane.before,
            lane.ended.get("unfinished", False),
        )

    # -- arrays ---------------------------------------------------------------------------------

    def _posteriors(self, state: State) -> Posteriors:
        """A state with all arrays that it can have, in the order of the model; pairs that its trail lacks are zero."""
        free = self._alone.free
        of = partial(_only, free)
        trail = None
        if self._alone.trades is not None:
            known, none = state.pace.trail, self._nowhere
            trail = Trail(none, none, ()) if known is None else _each(partial(joined, free), known)
            trail = trail._replace(pairs=(*((none, none),) * (REMEMBERED - len(trail.pairs)), *trail.pairs))
        means = {a: state.priors[a].mean for a in self._alone.learns}
        C, D, counts = of(state.C or self._ones), of(state.D or self._ones), of(state.counts.by_factor)
        return Posteriors(of(state.E), C, counts, means, trail, of(state.L), D, state.counts.log_term, state.objective)


def _step(problem: Problem, now: Posteriors, controls: Any) -> tuple[Posteriors, Any]:
    """The next proposals of all lanes, and their bounds."""
    fixed, learns = problem.fixed, problem.learns
    means = {a: mean.reshape(learns[a].value_shape) for a, mean in now.means.items()}
    make, given = (unchanged, ()) if now.trail is None else (_made, (now.trail, controls))
    problem = replace(problem, engine=problem.engine.fresh())
    new: Posteriors = completed(problem, make, {**fixed, **now.E}, now.C, now.counts, means, *given)
    E, L, C, D, counts = (_only(now.E, part) for part in (new.E, new.L, new.C, new.D, new.counts))
    means = _only(now.means, new.means)
    return Posteriors(E, C, counts, means, new.trail, L, D, new.log_term, new.bound), new.bound


def _takes(problem: Problem, lanes: int) -> bool:
    """Whether restarts of a problem can run as a batch, and are small enough for it."""
    priors = problem.priors.values()
    return (
        len(priors) == len(problem.free)
        and all(isinstance(prior.shape, float) and isinstance(prior.mean, float) for prior in priors)
        and all(one.count == 1 for one in problem.learns.values())
        and not problem.learns_shapes
        and _is_small(problem, lanes)
    )


def _is_small(problem: Problem, lanes: int) -> bool:
    from pltf.engines.torch.lanes import cells_for_lanes

    assert problem.recordings is not None
    device, cells = problem.recordings.device, cells_for_lanes(problem.engine)
    entries = [math.prod(shape) for shape in problem.shapes.values()]
    if not device.kernels or cells is None or lanes * cells > MOST_CELLS or lanes * max(entries) > MOST_ENTRIES:
        return False
    return lanes * (CELL_BYTES * cells + ENTRY_BYTES * sum(entries)) <= device.memory()[0]


def _only(names: Iterable[str], factors: Mapping[str, Any]) -> dict[str, Any]:
    """These factors, in this order."""
    return {a: factors[a] for a in names}


def _each(convert: Callable[[Factors], Factors], trail: Trail) -> Trail:
    pairs = tuple((convert(s), convert(y)) for s, y in trail.pairs)
    return Trail(convert(trail.before), convert(trail.residual), pairs)


def _made(
    algebra: Algebra[Any], old: Factors, plain: Factors, weight: Factors, trail: Trail, controls: Any
) -> tuple[Factors, Trail]:
    """Each lane's own proposal: plain, further in the same direction, or a quasi-Newton step.

    All factors are one array here, so that a kernel serves all of them.
    """
    stretches, moves, eta, length = controls.unbind(0)
    stretches, moves, nothing = stretches > 0, moves > 0, controls.new_zeros(())
    shapes = {a: tuple(z.shape[1:]) for a, z in plain.items()}
    old, plain, weight = (joined(shapes, factors, lanes=True) for factors in (old, plain, weight))

    def where(lanes: Any, factors: Factors, others: Factors) -> Factors:
        return {a: z.where(lanes[:, None], others[a]) for a, z in factors.items()}

    new = longer(algebra, trail, old, plain)
    step = direction(algebra, new, weight)
    assert step is not None
    # What other lanes remember would be pairs for their next steps.
    none = dict.fromkeys(old, nothing)
    pairs = tuple((where(moves, s, none), where(moves, y, none)) for s, y in new.pairs[-REMEMBERED:])
    far, moved = algebra.stretch(old, plain, eta, NOISE), algebra.move(old, plain, step, length)
    made = where(stretches, far, where(moves, moved, plain))
    return {a: z.contiguous() for a, z in parted(shapes, made).items()}, Trail(old, new.residual, pairs)
