"""Running all candidates of a search, each from several starts, on the workers at hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pltf.data import DenseObservation, Observation
from pltf.engines.plan import human, physical_memory
from pltf.errors import PltfError
from pltf.gamma import Array
from pltf.inference.progress import Progress
from pltf.inference.race import BEHIND, judged, rounds, run_until
from pltf.inference.run import ASKED, Row, Run, Stop
from pltf.inference.state import Problem
from pltf.matching import similarity
from pltf.selection.grid import Label, shown
from pltf.threads import single_threaded_blas
from pltf.workers import Job, Pool, Task, drive, shared, taken

if TYPE_CHECKING:
    from pltf.api import Prepared

# Measured: benchmarks/NOTES.md
FLOPS, OVERHEAD = 1e10, 5e-4  # of a worker: floating-point operations a second, seconds a sweep takes at least
LONG_SWEEP = 1e-2  # seconds: from here on threads keep out of each other's way
MOST_PROBLEMS = 4  # that a process remembers
STATE_ARRAYS = 16  # arrays of the size of the factors that a run holds
LONG_SEARCH, SWEEPS = 4.0, 60  # seconds that make starting processes worth while; sweeps of a run, for a guess


@dataclass(frozen=True)
class Options:
    """What all runs of a search have in common."""

    restarts: int
    seed: int
    stop: Stop
    racing: bool
    workers: int


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of one candidate."""

    label: Label
    rows: tuple[Row, ...]  # of its restarts
    alike: Array  # similarity of each with the best of them

    @property
    def bounds(self) -> Array:
        """Of its restarts."""
        return np.array([row.bound for row in self.rows])

    @property
    def bound(self) -> float:
        """Of its best restart."""
        return float(self.bounds.max())


class Winner(NamedTuple):
    """The candidate with the highest bound, and its best run."""

    number: int
    run: Run


@dataclass(eq=False)
class Search:
    """All that has come of the candidates so far."""

    outcomes: dict[int, Outcome] = field(default_factory=dict)
    failures: dict[int, Exception] = field(default_factory=dict)
    winner: Winner | None = None
    interrupted: bool = False

    def take(self, number: int, cell: Cell) -> None:
        """Add what came of a candidate; of all runs only the best is kept whole."""
        runs = cell.ended
        whole = [run for run in runs if run.stopped != BEHIND]  # after an interrupt there may be none
        if not whole:
            return
        best = max(whole, key=lambda run: run.objective)  # the first of equal ones
        self.outcomes[number] = cell.outcome(runs, best)
        if self.winner is None or (-best.objective, number) < (-self.winner.run.objective, self.winner.number):
            self.winner = Winner(number, best)


def search(cells: Sequence[Cell], seen: Mapping[str, Observation], options: Options, bar: Progress) -> Search:
    """Run all candidates; after an interrupt, what was finished."""
    found = Search()

    def show() -> None:
        best = found.winner
        leader = f"; best so far {shown(cells[best.number].label)}: {best.run.objective:.6g}" if best else ""
        bar.show(sum(cell.done for cell in cells), f"{len(found.outcomes)} of {len(cells)} candidates{leader}")

    processes = _worth_processes(cells, seen, options)
    pool = Pool(options.workers, processes=processes)
    with shared(dict(seen)) if processes else nullcontext() as folder:
        tasks = (cell.task(number, seen, folder, pool) for number, cell in enumerate(cells))
        try:
            for number, error in drive(tasks, pool, show):
                if error is not None:
                    found.failures[number] = error
                else:
                    found.take(number, cells[number])
                cells[number].clear()
        except KeyboardInterrupt:
            found.interrupted = True
            for number, cell in enumerate(cells):
                found.take(number, cell)
            if found.winner is None:
                raise
    return found


class Cell:
    """A candidate on its way."""

    def __init__(self, label: Label, ready: Prepared, options: Options) -> None:
        self.label, self.ready, self._options = label, ready, options
        self._runs: dict[int, Run] = {}
        self._problem: Problem | Remote | None = None
        self._n_ended = 0

    @property
    def flops(self) -> float:
        """Of a sweep."""
        return float(self.ready.planned.flops)

    @property
    def work(self) -> float:
        """All of it, in units of no meaning."""
        return self.flops * self._options.restarts

    @property
    def done(self) -> float:
        """How much of it is done."""
        return self.flops * self._n_ended

    @property
    def ended(self) -> list[Run]:
        """The runs that have come to their ends."""
        runs = (self._runs[restart] for restart in sorted(self._runs))
        return [run for run in runs if not run.unfinished and run.stopped != ASKED]

    def task(self, number: int, seen: Mapping[str, Observation], folder: str | None, pool: Pool) -> Task:
        """Everything that there is to do, round by round."""
        if folder is not None:
            self._problem, stop = Remote(folder, number, self.ready), self._options.stop
        else:
            yield [Job(self.ready.problem, (seen,), self._bind)]
            stop = replace(self._options.stop, callback=lambda _: pool.stopping.is_set())
        going = list(range(self._options.restarts))
        for sweeps in rounds(stop.max_iter, self._options.racing):
            yield [self._job(restart, stop, sweeps) for restart in going]
            self._runs = {run.restart: run for run in judged(list(self._runs.values()))}
            self._n_ended = len(self.ended)
            going = [restart for restart in going if self._runs[restart].unfinished]
            if not going:
                return

    def _job(self, restart: int, stop: Stop, sweeps: int) -> Job:
        args = (self._problem, self.ready, self._options.seed, restart, self._runs.get(restart), stop, sweeps)
        return Job(go_on, args, partial(self._take, restart))

    def _bind(self, problem: Problem) -> None:
        self._problem = problem

    def _take(self, restart: int, run: Run) -> None:
        self._runs[restart] = run
        self._n_ended += not run.unfinished

    def outcome(self, runs: Sequence[Run], best: Run) -> Outcome:
        """What is told of its runs."""
        planned = self.ready.planned
        alike = [similarity(planned.model, planned.sizes, best.state.E, run.state.E) for run in runs]
        return Outcome(self.label, tuple(run.row for run in runs), np.array(alike))

    def clear(self) -> None:
        """Let go of states and data, which are large."""
        self._runs, self._problem = {}, None


@dataclass(frozen=True, eq=False)
class Remote:
    """A problem for another process: its data are in a shared file."""

    folder: str
    number: int
    ready: Prepared

    def problem(self) -> Problem:
        """The problem, built once in each process as long as it is one of the last."""
        key = self.folder, self.number
        if key not in _problems:
            while len(_problems) >= MOST_PROBLEMS:
                del _problems[next(iter(_problems))]
            _problems[key] = self.ready.problem(taken(self.folder))
        return _problems[key]


_problems: dict[tuple[str, int], Problem] = {}  # of a worker process


def go_on(
    source: Problem | Remote, ready: Prepared, seed: int, restart: int, run: Run | None, stop: Stop, sweeps: int
) -> Run:
    """A restart from its beginning, or from where it stood, to so many sweeps in all; done by a worker."""
    problem = source.problem() if isinstance(source, Remote) else source
    with single_threaded_blas:
        if run is None:
            start, _ = ready.starting(replace(problem, engine=problem.engine.fresh()), seed)
            return run_until(problem, ready.method, start(restart), stop, restart, sweeps)
        return run_until(problem, ready.method, run, stop, restart, sweeps)


def _worth_processes(cells: Iterable[Cell], seen: Mapping[str, Observation], options: Options) -> bool:
    """Whether processes beat threads: sweeps are short, and there are enough of them."""
    seconds = [OVERHEAD + cell.flops / FLOPS for cell in cells]
    long_enough = sum(seconds) * SWEEPS * options.restarts > LONG_SEARCH
    return options.workers > 1 and long_enough and max(seconds) < LONG_SWEEP and all(map(_compact, seen.values()))


def _compact(seen: Observation) -> bool:
    """Whether an array comes out of a file as it was: others would be laid out anew, and sums take another order."""
    arrays = (seen.values, seen.mask) if isinstance(seen, DenseObservation) else ()
    return all(array is None or array.flags.forc for array in arrays)


def check_memory(ready: Prepared, label: Label, restarts: int) -> None:
    entries = sum(map(prod, ready.planned.factor_shapes.values()))
    need, have = 8 * STATE_ARRAYS * entries * restarts, physical_memory()
    if need > have:
        what = f"{restarts} restarts of {shown(label)} need {human(need, 'B')}"
        raise PltfError(f"{what} beside the data, and this machine has {human(have, 'B')}: lower restarts")
