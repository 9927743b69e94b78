"""Run all candidates of a search, each with several restarts, on the available workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pltf.cluster import Cluster
from pltf.data import DenseObservation, Observation
from pltf.engines.cp import is_cp
from pltf.engines.plan import human
from pltf.errors import PltfError, py
from pltf.gamma import Array
from pltf.inference.batch import RestartBatch
from pltf.inference.race import BEHIND, all_until, judged, rounds, run_until
from pltf.inference.run import INTERRUPTED, Row, Run, Stop
from pltf.inference.state import Problem
from pltf.matching import similarities
from pltf.memory import memory_there_is
from pltf.selection.choice import FoldScores
from pltf.selection.folds import Data
from pltf.selection.grid import Label, shown
from pltf.selection.on_cluster import Spread, on_cluster
from pltf.threads import note_limit, single_threaded_blas
from pltf.workers import CannotStart, Job, Pool, Shared, SharedFolderLost, Task, drive, may_have_children, shared

if TYPE_CHECKING:
    from pltf.fitting import PreparedFit
    from pltf.options import FitOptions
    from pltf.selection.checkpoint import SearchStage
    from pltf.selection.heldout import FoldFindings

# Measured: benchmarks/NOTES.md
FLOPS, OVERHEAD = 1e10, 5e-4  # of a worker: floating-point operations per second, minimum seconds per sweep
LONG_SWEEP = 1e-2  # seconds: longer sweeps run well in threads
MOST_PROBLEMS = 4  # kept by a process
ROUNDING = 1e-12  # of ELBOs, relative
FEW = 5  # restarts: too few for a race
STATE_ARRAYS = 16  # number of arrays of the size of the factors in a run
LONG_SEARCH, SWEEPS = 4.0, 60  # seconds for which starting processes pays; assumed sweeps of a run


@dataclass(frozen=True)
class Options:
    """Options shared by all runs of a search."""

    fitting: FitOptions  # with a seed
    race: bool | None
    workers: int
    cluster: Cluster | None = None  # whose workers fit; None: this machine

    @property
    def seed(self) -> int:
        """Seed from which the seeds of all runs are derived."""
        return self.fitting.entropy(None)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Result of one candidate."""

    label: Label
    bound: float  # of its best run; NaN if it was only fitted to folds
    rows: tuple[Row, ...]  # of its restarts
    alike: Array  # similarity of each restart to the best one
    folds: FoldScores | None = None  # held-out scores, if requested
    entries: int = 0  # number of entries of its factors; known if there are folds


class Contender(NamedTuple):
    """A candidate that may win: its number, the entries of its factors, its best run."""

    number: int
    entries: int
    run: Run


@dataclass(eq=False)
class Findings:
    """Results of the candidates so far."""

    tol: float  # ELBOs with a smaller relative difference are equal
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    failures: dict[int, Exception] = field(default_factory=dict)
    contenders: list[Contender] = field(default_factory=list)
    interrupted: bool = False
    chosen: set[int] = field(default_factory=set)  # candidates whose best runs are kept whatever their ELBO

    @property
    def winner(self) -> Contender | None:
        """The highest ELBO; among equal ones, the candidate with the smallest factors, then the first."""
        return min(self._level, key=lambda one: (one.entries, one.number), default=None)

    @property
    def _level(self) -> list[Contender]:
        """The contenders whose ELBO equals the highest one."""
        highest = max((one.run.objective for one in self.contenders), default=0.0)
        least = highest - self.tol * max(abs(highest), 1.0)
        return [one for one in self.contenders if one.run.objective >= least]

    def told(self, candidates: Sequence[Candidate]) -> str:
        """Progress as text."""
        best = self.winner
        leader = f"; best so far {shown(candidates[best.number].label)}: {best.run.objective:.6g}" if best else ""
        return f"{len(self.outcomes)} of {len(candidates)} candidates{leader}"

    def take(self, number: int, candidate: Candidate) -> None:
        """Add the result of a candidate. Runs are large: only those that may win are kept."""
        runs = candidate.ended
        to_the_end = [run for run in runs if run.stopped != BEHIND]  # after an interrupt there may be none
        if not to_the_end:
            return
        best = max(to_the_end, key=lambda run: run.objective)  # the first of equal ones
        self.outcomes[number] = candidate.outcome(runs, best)
        self.contenders = [*self.contenders, Contender(number, candidate.entries, best)]
        level = self._level
        self.contenders = [one for one in self.contenders if one in level or one.number in self.chosen]


def search(
    candidates: Sequence[Candidate],
    data: Data,
    options: Options,
    found: Findings | FoldFindings,
    show: Callable[[float, str], None],
    keeper: SearchStage | None = None,
    only: Iterable[int] | None = None,
) -> None:
    """Run the unfinished candidates, or those in ``only``; after an interrupt ``found`` has the finished results."""
    if keeper is not None:
        keeper.restore(candidates)
    wanted = range(len(candidates)) if only is None else only
    left = [number for number in wanted if number not in found.outcomes and number not in found.failures]

    def look_up() -> None:
        if keeper is not None and keeper.file.due():
            keeper.file.keep()
        show(sum(candidate.done for candidate in candidates), found.told(candidates))

    with ExitStack() as stack:
        source, pool = _workplace([candidates[number] for number in left], data, options, stack)
        tasks = (candidates[number].task(number, source) for number in left)
        try:
            with closing(drive(tasks, pool, look_up, source.stop)) as ends:
                for place, error in ends:
                    number = left[place]
                    if isinstance(error, SharedFolderLost):  # no other candidate has data either
                        raise error
                    if error is not None:
                        found.failures[number] = error
                    else:
                        found.take(number, candidates[number])
                    candidates[number].clear()
        except SharedFolderLost:
            if keeper is not None:
                keeper.file.keep()
            raise
        except KeyboardInterrupt:
            found.interrupted = True
            if keeper is not None:
                keeper.file.keep()
            for number in left:
                if number not in found.outcomes:
                    found.take(number, candidates[number])


class Here:
    """Data for threads of this process, and a stop signal."""

    def __init__(self, data: Data) -> None:
        self.data, self._told = data, threading.Event()

    def stop(self) -> None:
        """Make :meth:`stopping` return True."""
        self._told.set()

    def stopping(self, *_: object) -> bool:
        """Whether :meth:`stop` was called."""
        return self._told.is_set()


Source = Here | Shared | Spread  # of data, for workers


def _workplace(candidates: Sequence[Candidate], data: Data, options: Options, stack: ExitStack) -> tuple[Source, Pool]:
    """Workers and their data: on a cluster, in processes with a shared file, or in threads."""
    if options.cluster is not None:
        return on_cluster(options.cluster, Data(dict(data.seen), data.folds), options.workers)
    if candidates and _worth_processes(candidates, data.seen, options) and may_have_children():
        try:
            source = stack.enter_context(shared(Data(dict(data.seen), data.folds)))
            return source, Pool(options.workers, processes=True, trial=_get_ready)
        except OSError:  # no room for the file
            pass
        except CannotStart:
            note_limit(f"{options.workers} worker processes cannot be started: threads do the work")
    return Here(data), Pool(options.workers, processes=False)


def _get_ready() -> None:
    """Import what the jobs of a worker need: unpickling this function does."""


class Candidate:
    """A candidate being fitted."""

    def __init__(self, label: Label, ready: PreparedFit, race: bool | None) -> None:
        self.label, self.ready, self.race = label, ready, race
        self.fold: int | None = None  # whose cells are held out
        self.turn, self.runs = 0, dict[int, Run]()  # the current round, and the state of its restarts
        self._problem: Problem | RemoteProblem | None = None
        self._cleared = False

    @property
    def flops(self) -> float:
        """Floating-point operations per sweep."""
        return float(self.ready.planned.flops)

    @property
    def restarts(self) -> int:
        """Number of random restarts."""
        return self.ready.options.restarts

    @property
    def races(self) -> bool:
        """Whether restarts that are behind are dropped; by default where this was measured to be safe."""
        if self.race is not None:
            return self.race
        learns_shapes = any("shape" in prior.learns for prior in self.ready.priors.values())
        few = self.restarts < FEW  # the early leader may be the only one left
        return not few and not learns_shapes and all(map(is_cp, self.ready.model.equations))

    @property
    def entries(self) -> int:
        """Number of entries of all factors."""
        return sum(map(prod, self.ready.planned.factor_shapes.values()))

    def check_memory(self) -> None:
        """Raise an error if the runs do not fit in memory."""
        restarts = self.restarts
        need, (have, whose) = 8 * STATE_ARRAYS * self.entries * restarts, memory_there_is()
        if need > have:
            what = f"{restarts} restarts of {shown(self.label)} need {human(need, 'B')}"
            raise PltfError(f"{what} beside the data, but {whose} {human(have, 'B')}: lower {py:restarts}")

    @property
    def work(self) -> float:
        """Amount of work, if all runs take the same number of sweeps."""
        return self.flops * self.restarts

    @property
    def done(self) -> float:
        """Amount of work done; an unfinished run counts as half done."""
        return self.work if self._cleared else self.flops * sum(1 - run.unfinished / 2 for run in self.runs.values())

    @property
    def ended(self) -> list[Run]:
        """The finished runs."""
        runs = (self.runs[restart] for restart in sorted(self.runs))
        return [run for run in runs if not run.unfinished and run.stopped != INTERRUPTED]

    def task(self, number: int, source: Source) -> Task:
        """The jobs of all rounds."""
        if not isinstance(source, Here):
            self._problem = RemoteProblem(source, number, self.ready, self.fold)
        else:
            yield [Job(_built, (self.ready, source.data, self.fold), partial(setattr, self, "_problem"))]
        stop = replace(self.ready.options.stop, interrupted=source.stopping)
        for turn, sweeps in enumerate(rounds(stop.max_iter, self.races)):
            if turn < self.turn:
                continue
            self.turn = turn
            going = [restart for restart in range(self.restarts) if self._behind(restart, sweeps)]
            yield self._jobs(going, stop, sweeps)
            self.runs = {run.restart: run for run in judged([self.runs[restart] for restart in sorted(self.runs)])}
            if not any(run.unfinished for run in self.runs.values()):
                return

    def _behind(self, restart: int, sweeps: int) -> bool:
        """Whether a restart has done fewer than ``sweeps`` sweeps."""
        run = self.runs.get(restart)
        return run is None or (run.unfinished and len(run.trace) < sweeps)

    def _jobs(self, going: Sequence[int], stop: Stop, sweeps: int) -> list[Job]:
        """A job for each restart, or one for all of them if they run as a batch."""
        problem = self._problem
        batch = RestartBatch.of(problem, self.ready.method, self.restarts) if isinstance(problem, Problem) else None
        runs, head = {restart: self.runs.get(restart) for restart in going}, (problem, self.ready)
        if batch is not None and runs:  # after an interrupt all may have done this round
            return [Job(all_go_on, (batch, *head, runs, stop, sweeps), self.runs.update)]
        return [
            Job(go_on, (*head, restart, run, stop, sweeps), partial(self.runs.__setitem__, restart))
            for restart, run in runs.items()
        ]

    def outcome(self, runs: Sequence[Run], best: Run) -> Outcome:
        """Summary of its runs."""
        planned, others = self.ready.planned, [run for run in runs if run is not best]
        means = (run.state.E for run in others)
        alike = np.ones(len(runs))
        alike[[run is not best for run in runs]] = similarities(planned.model, planned.sizes, best.state.E, means)
        return Outcome(self.label, best.objective, tuple(run.row for run in runs), alike)

    def clear(self) -> None:
        """Release states and data, which are large."""
        self.runs, self._problem, self._cleared = {}, None, True


@dataclass(frozen=True, eq=False)
class RemoteProblem:
    """A problem for another process, with data in a shared file."""

    source: Shared | Spread
    number: int
    ready: PreparedFit
    fold: int | None

    def problem(self) -> Problem:
        """The problem, cached in each process."""
        key = self.source.folder, self.number
        with _building:  # workers of a cluster have several threads
            if key not in _problems:
                while len(_problems) >= MOST_PROBLEMS:
                    del _problems[next(iter(_problems))]
                _problems[key] = _built(self.ready, self.data, self.fold)
            return _problems[key]

    @property
    def data(self) -> Data:
        """All data of the search."""
        data: Data = self.source.value()
        return data


def _built(ready: PreparedFit, data: Data, fold: int | None) -> Problem:
    return ready.problem(data.part(fold))


_problems: dict[tuple[str, int], Problem] = {}  # of a worker process
_building = threading.Lock()


def go_on(
    source: Problem | RemoteProblem, ready: PreparedFit, restart: int, run: Run | None, stop: Stop, sweeps: int
) -> Run:
    """Start or continue a restart until it has done ``sweeps`` sweeps in total; executed by a worker."""
    problem = source.problem() if isinstance(source, RemoteProblem) else source
    problem = replace(problem, engine=problem.engine.fresh())  # others may run concurrently
    with single_threaded_blas:
        begin = ready.starting(problem)[0](restart) if run is None else run
        return run_until(problem, ready.method, begin, stop, restart, sweeps)


def all_go_on(
    batch: RestartBatch, problem: Problem, ready: PreparedFit, runs: Mapping[int, Run | None], stop: Stop, sweeps: int
) -> dict[int, Run]:
    """As :func:`go_on`, for restarts that run as a batch."""
    with single_threaded_blas:
        start, _ = ready.starting(problem)
        begins = [start(restart) if run is None else run for restart, run in runs.items()]
        return {run.restart: run for run in all_until(batch, begins, stop, list(runs), sweeps)}


def _worth_processes(candidates: Iterable[Candidate], seen: Mapping[str, Observation], options: Options) -> bool:
    """Whether processes are faster than threads: many short sweeps."""
    seconds = [OVERHEAD + candidate.flops / FLOPS for candidate in candidates]
    long_enough = sum(seconds) * SWEEPS * options.fitting.restarts > LONG_SEARCH
    return options.workers > 1 and long_enough and max(seconds) < LONG_SWEEP and all(map(_compact, seen.values()))


def _compact(seen: Observation) -> bool:
    """Whether arrays keep their memory layout in a file; otherwise sums would be taken in another order."""
    arrays = (seen.values, seen.mask) if isinstance(seen, DenseObservation) else ()
    return all(array is None or array.flags.forc for array in arrays)
