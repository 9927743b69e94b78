"""Restarts of one problem beside each other, and many problems beside each other, on a few threads.

A restart that is clearly behind is dropped. Who is behind is judged only when all restarts have done the same number
of sweeps, so nothing depends on which thread was faster: results are the same for any number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pltf.inference.run import ASKED, Run, Stop, run
from pltf.inference.state import Method, Problem, State

# Measured: benchmarks/NOTES.md
BURN_IN = 20  # sweeps before anybody is judged
ROUND = 1.5  # each judgement comes after so many times the sweeps of the one before
HOPE = 4.0  # a restart may still gain so many times what it has gained since the last judgement

BEHIND = "dropped: clearly behind another restart"
_PERIOD = 0.2  # seconds after which the main thread looks up, to hear an interrupt

T = TypeVar("T")
Job = Callable[[], Any]
Jobs = Generator[Sequence[Job], list[Any], T]  # yields jobs, is sent their results, returns something


class Restart:
    """A run that is done bit by bit: the very steps of one without a break."""

    def __init__(
        self, number: int, problem: Problem, method: Method, start: Callable[[Problem], State], stop: Stop
    ) -> None:
        self._number, self._method, self._start, self._stop = number, method, start, stop
        self._problem = problem
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        """What has been done so far."""
        assert self._run is not None
        return self._run

    @property
    def going(self) -> bool:
        """Whether it may go on."""
        return self.run.unfinished and self.run.n_swept < self._stop.max_iter

    def until(self, sweeps: int) -> None:
        """Go on to so many sweeps in all, or to the end."""
        if self._run is None:
            self._problem = replace(self._problem, engine=self._problem.engine.fresh())  # others run beside this one
            state, seconds = self._start(self._problem), 0.0
            trace: Sequence[float] = ()
        else:
            state, seconds, trace = self._run.state, self._run.seconds, self._run.trace.tolist()
        total = self._stop.max_iter
        stop = replace(self._stop, max_iter=min(sweeps, total) - len(trace))
        new = run(self._problem, self._method, state, stop, restart=self._number, earlier=trace)
        stopped = f"{total} sweeps are done" if new.unfinished else new.stopped
        self._run = replace(new, n_swept=len(new.trace), seconds=seconds + new.seconds, stopped=stopped)

    def drop(self) -> None:
        """End it where it is."""
        self._run = replace(self.run, stopped=BEHIND, unfinished=False)


def contest(restarts: Sequence[Restart], max_iter: int, racing: bool, ended: Callable[[Run], None]) -> Jobs[None]:
    """All restarts of a problem to their ends; those that are clearly behind end early. Tells of each end."""

    def go_on(one: Restart, sweeps: int) -> None:
        one.until(sweeps)
        if not one.going and one.run.stopped != ASKED:
            ended(one.run)

    going, sweeps = list(restarts), BURN_IN if racing else max_iter
    while going:
        yield [partial(go_on, one, sweeps) for one in going]
        best = max(one.run.objective for one in restarts)
        for one in going:
            if one.going and one.run.objective + HOPE * _lately_gained(one.run) < best:
                one.drop()
                ended(one.run)
        going = [one for one in going if one.going]
        sweeps = math.ceil(sweeps * ROUND)


def _lately_gained(run: Run) -> float:
    """What a run has gained since the last judgement."""
    earlier = max(int(len(run.trace) / ROUND), 1)
    return float(run.trace[-1] - run.trace[earlier - 1])


def drive(
    tasks: Iterable[Jobs[T]], workers: int, show: Callable[[], None]
) -> Generator[tuple[int, T | Exception], None, None]:
    """Run the jobs of many tasks on some threads; yields (number of the task, its result or error) as they end.

    ``show`` is called from time to time. A task is begun only when a worker would otherwise have nothing to do.
    Closing the iterator drops the jobs that have not begun, and waits for those that have.
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix="pltf-worker")
    waiting, pending = enumerate(tasks), _Pending(pool)
    try:
        while True:
            while pending.busy < workers and (opened := next(waiting, None)) is not None:
                yield from pending.advance(*opened, None)
            if not pending.open:
                return
            show()
            for number, task, results in pending.completed():
                yield from pending.advance(number, task, results)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _Pending:
    """Tasks whose jobs are on their way."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._batches: dict[int, tuple[Jobs[Any], list[Future[Any]]]] = {}

    @property
    def open(self) -> int:
        """Tasks that have not ended."""
        return len(self._batches)

    @property
    def busy(self) -> int:
        """Jobs that have not ended."""
        return sum(not future.done() for _, batch in self._batches.values() for future in batch)

    def completed(self) -> list[tuple[int, Jobs[Any], list[Future[Any]]]]:
        """Wait for a job to end; the tasks that have none left, taken out."""
        every = [future for _, batch in self._batches.values() for future in batch if not future.done()]
        wait(every, timeout=_PERIOD, return_when=FIRST_COMPLETED)
        through = [n for n, (_, batch) in self._batches.items() if all(future.done() for future in batch)]
        return [(n, *self._batches.pop(n)) for n in through]

    def advance(
        self, number: int, task: Jobs[T], done: list[Future[Any]] | None
    ) -> Iterator[tuple[int, T | Exception]]:
        """Hand a task the results of its jobs, and take the next ones; yields its end."""
        try:
            jobs = next(task) if done is None else task.send([future.result() for future in done])
        except StopIteration as end:
            yield number, end.value
        except Exception as error:
            task.close()
            yield number, error
        else:
            self._batches[number] = task, [self._pool.submit(job) for job in jobs]
