"""Many tasks on a few workers, threads or processes, with data that processes read from one place.

Threads share everything, but only one of them is in Python at a time: good for work that is long in compiled loops.
Processes are good for the rest, and take a second to start.
"""

from __future__ import annotations

import mmap
import pickle
import signal
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pltf.errors import PltfError

_PERIOD = 0.2  # seconds after which the main thread looks up, to hear an interrupt
_IDLE = 60  # seconds after which processes with nothing to do end


class Job(NamedTuple):
    """A call for a worker, and what to do with its result here."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    then: Callable[[Any], None]


Task = Generator[Sequence[Job], None, None]  # yields jobs, and goes on when all of them are done


# -- pools --------------------------------------------------------------------------------------


class Pool:
    """Workers that can be told to stop."""

    def __init__(self, workers: int, *, processes: bool) -> None:
        self.workers = workers
        self.stopping = threading.Event()
        self._threads = None if processes else ThreadPoolExecutor(workers, "pltf-worker")

    def submit(self, job: Job) -> Future[Any]:
        """Have a job done."""
        return self._executor().submit(job.function, *job.args)

    def _executor(self) -> Executor:
        """The threads; or the processes, started anew if one of them was killed."""
        return self._threads or _processes(self.workers)

    def stop(self) -> None:
        """End work that is on its way: processes at once, threads as soon as they look at ``stopping``."""
        self.stopping.set()
        if self._threads is None:
            _processes(self.workers).shutdown(wait=True, kill_workers=True)  # type: ignore[call-arg]

    def close(self) -> None:
        """Wait for what has begun. Processes stay for the next search, for a while."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)


def _processes(workers: int) -> Executor:
    from loky import get_reusable_executor

    executor: Executor = get_reusable_executor(workers, timeout=_IDLE, initializer=_ignore_interrupts)
    return executor


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one


# -- data for other processes -------------------------------------------------------------------


@contextmanager
def shared(value: Any) -> Iterator[str]:
    """A file that processes can take a value from with :func:`taken`; gone afterwards.

    Arrays are written once, as they lie in memory, and mapped from there: all processes look at the same pages.
    """
    with tempfile.TemporaryDirectory(prefix="pltf-", ignore_cleanup_errors=True) as folder:
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        raw = [buffer.raw() for buffer in buffers]
        Path(folder, "head").write_bytes(pickle.dumps((head, [part.nbytes for part in raw])))
        with Path(folder, "arrays").open("wb") as file:
            for part in raw:
                file.write(part)
                file.write(bytes(-part.nbytes % mmap.PAGESIZE))
        yield folder


@lru_cache(maxsize=1)
def taken(folder: str) -> Any:
    """The value in a shared file; its arrays are read-only."""
    head, sizes = pickle.loads(Path(folder, "head").read_bytes())
    with Path(folder, "arrays").open("rb") as file:
        pages = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if any(sizes) else memoryview(b"")
    parts, at = [], 0
    for size in sizes:
        parts.append(pages[at : at + size])
        at += size + -size % mmap.PAGESIZE
    return pickle.loads(head, buffers=parts)


# -- tasks --------------------------------------------------------------------------------------


def drive(tasks: Iterable[Task], pool: Pool, show: Callable[[], None]) -> Iterator[tuple[int, Exception | None]]:
    """Do the jobs of many tasks; yields (number of the task, its error if there was one) as they end.

    A task is begun only when a worker would otherwise have nothing to do. ``show`` is called from time to time. After
    an interrupt every result that had come in has gone to its ``then``.
    """
    waiting, open_tasks = enumerate(tasks), _Open(pool)
    try:
        while True:
            while open_tasks.busy < pool.workers and (begun := next(waiting, None)) is not None:
                yield from open_tasks.advance(*begun)
            if not open_tasks:
                return
            show()
            for number, task, error in open_tasks.completed():
                yield from [(number, error)] if error else open_tasks.advance(number, task)
    except BaseException:
        pool.stop()
        open_tasks.drain()
        raise
    finally:
        pool.close()


class _Open:
    """Tasks whose jobs are on their way."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._tasks: dict[int, Task] = {}
        self._jobs: dict[Future[Any], tuple[int, Job]] = {}
        self._errors: dict[int, Exception] = {}

    def __bool__(self) -> bool:
        return bool(self._tasks)

    @property
    def busy(self) -> int:
        """Jobs that have not ended."""
        return sum(not future.done() for future in self._jobs)

    def advance(self, number: int, task: Task) -> Iterator[tuple[int, Exception | None]]:
        """Take the next jobs of a task; yields its end."""
        try:
            jobs = next(task)
        except StopIteration:
            yield number, None
        except Exception as error:
            yield number, error
        else:
            self._tasks[number] = task
            self._jobs.update({self._pool.submit(job): (number, job) for job in jobs})

    def completed(self) -> list[tuple[int, Task, Exception | None]]:
        """Wait for a job to end; the tasks that have none left, with the error of one that failed."""
        wait(self._jobs, timeout=_PERIOD, return_when=FIRST_COMPLETED)
        self._take()
        left = {number for number, _ in self._jobs.values()}
        through = [number for number in self._tasks if number not in left]
        return [(number, self._tasks.pop(number), self._errors.pop(number, None)) for number in through]

    def _take(self) -> None:
        """Hand over the results of the jobs that have ended."""
        for future in [future for future in self._jobs if future.done()]:
            number, job = self._jobs.pop(future)
            if future.cancelled():
                continue
            error = future.exception()
            if error is None:
                job.then(future.result())
            elif isinstance(error, BrokenExecutor):
                self._errors.setdefault(number, PltfError("a worker process was killed, perhaps for want of memory"))
            elif isinstance(error, Exception):
                self._errors.setdefault(number, error)
            else:
                raise error

    def drain(self) -> None:
        """Drop the jobs that have not begun, wait for the others and take what they bring."""
        for future in self._jobs:
            future.cancel()
        wait(self._jobs)
        self._take()
