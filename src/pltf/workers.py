"""Run many tasks on a few workers (threads or processes), with shared data that processes map from files.

Threads share all data, but only one of them runs Python at a time: suited to work that is mostly compiled code.
Processes suit everything else, and take a second to start.
"""

from __future__ import annotations

import atexit
import mmap
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    InvalidStateError,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pltf.errors import PltfError, py
from pltf.interrupts import interrupts_wait
from pltf.stale_files import held_folder
from pltf.threads import available_threads, note_limit, startable_threads

_PERIOD = 0.2  # seconds between checks of the main thread for an interrupt
RETRIES = 2  # of a job whose worker was killed
_LOOK = 2.0  # seconds between checks whether the parent exists
_IDLE = 60  # seconds after which idle processes end
_START = 60  # time limit in seconds for starting processes
_THREADS_EACH, _THREADS_HERE = 2, 4  # threads per worker process; threads to serve them, including the cleanup process
_PREFIX, _GO, _STOP = "pltf-", "go", "stop"  # prefix of shared folders, and files in them


class Job(NamedTuple):
    """A call for a worker, and a callback for its result."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    then: Callable[[Any], None]


Task = Generator[Sequence[Job], None, None]  # yields jobs, and continues when all of them are done


# -- pools --------------------------------------------------------------------------------------


class CannotStart(Exception):
    """The system does not let this process start the requested workers."""


class Pool:
    """Threads, or processes that are kept for the next pool of the same size.

    There may be fewer threads than requested if the system does not allow more. All processes are available, and each
    has run ``trial``, which should import what their jobs need; otherwise CannotStart is raised.
    """

    def __init__(self, workers: int, *, processes: bool, trial: Callable[[], object] = os.getpid) -> None:
        self._processes, self._trial = processes, trial
        self._executor: Executor = _waiting_processes(workers, trial) if processes else _new_threads(workers)
        self.workers = workers if processes else self._executor._max_workers  # type: ignore[attr-defined]
        self._lost = False  # whether its processes were killed and could not be replaced

    def submit(self, job: Job) -> Future[Any]:
        """Submit a job; starts new processes if one of the old ones was killed."""
        try:
            with _deaf_children():
                return self._executor.submit(job.function, *job.args)
        except BrokenExecutor:
            self._executor = self._started_again()
            with _deaf_children():
                return self._executor.submit(job.function, *job.args)

    def _started_again(self) -> Executor:
        """New processes; after a failure there is no second attempt, because each may take a minute."""
        reason: CannotStart | None = None
        if not self._lost:
            try:
                return _new_processes(self.workers, self._trial)
            except CannotStart as why:
                self._lost, reason = True, why
        raise PltfError(
            "a worker process was killed and no others can be started: raise the limit on processes (ulimit -u) "
            f"or memory (ulimit -v), or use {py:workers=1}"
        ) from reason

    def watch(self, futures: Iterable[Future[Any]]) -> None:
        """Make unfinishable jobs fail: loky before 3.7 does not report that its management thread died."""
        manager = getattr(self._executor, "_executor_manager_thread", None)
        if manager is not None and not manager.is_alive():
            for future in futures:
                with suppress(InvalidStateError):  # it was reported after all
                    future.set_exception(BrokenExecutor("the worker processes are no longer managed"))

    def withdraw(self, futures: Iterable[Future[Any]]) -> None:
        """Cancel jobs that have not started; processes still receive them, and see that they should stop."""
        if not self._processes:  # a broken process pool cannot handle cancelled futures
            for future in futures:
                future.cancel()

    def close(self) -> None:
        """Wait for threads; keep processes for the next pool, for a while."""
        if self._lost:
            _abandon(self._executor)
        elif self._processes:
            _keep(self.workers, self._executor)
        else:
            self._executor.shutdown(wait=True, cancel_futures=True)


def _new_threads(workers: int) -> Executor:
    """Started threads, as many as possible up to ``workers``."""
    count = startable_threads(workers)
    if 0 < count < workers:
        note_limit(f"only {count} of {workers} threads can be started: continuing with these")
    if not count:
        raise PltfError("no thread can be started: raise the limit on processes (ulimit -u) or memory (ulimit -v)")
    executor, begin = ThreadPoolExecutor(count), threading.Event()
    try:
        for _ in range(count):  # each blocks a thread, so that the next one starts another
            executor.submit(begin.wait)
    except RuntimeError:  # another program was faster
        begin.set()
        executor.shutdown(wait=True, cancel_futures=True)
        return _new_threads(count - 1)
    begin.set()
    return executor


class _Kept(NamedTuple):
    """Idle processes that wait for the next pool, and the timer that will end them."""

    workers: int
    executor: Executor
    timer: threading.Timer


_idle: list[_Kept] = []
_idle_lock = threading.Lock()


def _begin_anew() -> None:
    """A forked child has the list but not the threads that serve it; the lock may even be closed forever."""
    global _idle_lock
    _idle_lock = threading.Lock()
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def _keep(workers: int, executor: Executor) -> None:
    """Keep idle processes for the next pool, for a while.

    Their own timeout would not work: a pool that starts new processes for a job does not monitor them until the job has
    returned, and hangs if they are killed.
    """
    timer = threading.Timer(_IDLE, _end, [executor])
    timer.daemon = True
    with _idle_lock:
        _idle.append(_Kept(workers, executor, timer))
    try:
        timer.start()
    except RuntimeError:  # no thread can be started
        _end(executor)


def _end(executor: Executor) -> None:
    """End idle processes, unless they were taken in the meantime."""
    with _idle_lock:
        waiting = [kept for kept in _idle if kept.executor is executor]
        _idle[:] = [kept for kept in _idle if kept.executor is not executor]
    for kept in waiting:
        kept.timer.cancel()
        kept.executor.shutdown(wait=True)


@atexit.register
def _end_processes() -> None:
    for kept in list(_idle):
        _end(kept.executor)


def _waiting_processes(workers: int, trial: Callable[[], object]) -> Executor:
    """Idle processes, or new ones."""
    with _idle_lock:
        for number, kept in enumerate(_idle):
            if kept.workers == workers:
                del _idle[number]
                kept.timer.cancel()
                return kept.executor
    return _new_processes(workers, trial)


def _new_processes(workers: int, trial: Callable[[], object]) -> Executor:
    """New processes that have run a trial: loky waits forever for processes that a limit keeps from starting."""
    from loky import ProcessPoolExecutor

    needed = _THREADS_EACH * workers + _THREADS_HERE + available_threads()  # BLAS restarts its threads after a fork
    if startable_threads(needed) < needed:
        raise CannotStart
    executor: Executor | None = None
    try:
        with _deaf_children():
            executor = ProcessPoolExecutor(
                workers, initializer=_begin_work, initargs=(os.getpid(),), env={"OPENBLAS_NUM_THREADS": "1"}
            )
            trials = [executor.submit(trial) for _ in range(workers)]
        for one in trials:
            one.result(timeout=_START)
    except BaseException as error:
        _abandon(executor)
        if isinstance(error, Exception):
            raise CannotStart from error
        raise
    return executor


def _abandon(executor: Any) -> None:
    """End processes that may not have started, without waiting for them."""
    if executor is None:
        return
    with suppress(Exception):
        executor.shutdown(wait=False, kill_workers=True)
    for process in list(getattr(executor, "_processes", {}).values()):
        with suppress(Exception):
            process.kill()


def _begin_work(parent: int) -> None:
    """Initialization of a worker process; its parent may already have ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent
    threading.Thread(target=_end_with, args=[parent], daemon=True).start()


def _end_with(parent: int) -> None:
    """End when the parent process has ended: a killed parent cannot notify its children."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes started in this block never receive Ctrl-C or a hang-up signal of the terminal.

    They inherit the blocked signals. Workers end with this process; loky's process that removes semaphores must outlive
    it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGHUP])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def may_have_children() -> bool:
    """Whether this process may start child processes."""
    return not multiprocessing.current_process().daemon


# -- data for other processes -------------------------------------------------------------------


@contextmanager
def shared(value: Any) -> Iterator[Shared]:
    """Share a value with other processes through a file, which is removed at the end.

    Arrays are written once, with their memory layout, and memory-mapped: all processes share the same pages.
    """
    with held_folder(Path(tempfile.gettempdir()), _PREFIX) as folder:
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        raw = [buffer.raw() for buffer in buffers]
        (folder / "head").write_bytes(pickle.dumps((head, [part.nbytes for part in raw])))
        with (folder / "arrays").open("wb") as file:
            for part in raw:
                file.write(part)
                file.write(bytes(-part.nbytes % mmap.PAGESIZE))
        (folder / _GO).touch()
        yield Shared(str(folder))


class SharedFolderLost(PltfError):
    """The shared folder of the processes was removed while they needed it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        cause = "possibly by a program that cleans up temporary files; set TMPDIR to use another folder"
        super().__init__(f"the shared folder {folder} of the worker processes was removed: {cause}")

    def __reduce__(self) -> tuple[type[SharedFolderLost], tuple[str]]:
        return type(self), (self.folder,)


@dataclass(frozen=True)
class Shared:
    """A folder with a value for other processes, and a stop signal for them."""

    folder: str

    def value(self) -> Any:
        """The value; its arrays are read-only."""
        try:
            return _taken(self.folder)
        except FileNotFoundError:
            raise SharedFolderLost(self.folder) from None

    def stop(self) -> None:
        """Set the stop signal that :meth:`stopping` reads, in any process."""
        with suppress(OSError):  # a rename needs no disk space; a removed folder is a signal by itself
            os.rename(os.path.join(self.folder, _GO), os.path.join(self.folder, _STOP))

    def stopping(self, *_: object) -> bool:
        """Whether the stop signal is set; raises an error if the folder is gone."""
        if os.path.exists(os.path.join(self.folder, _GO)):  # called in every iteration: Path would be slow
            return False
        if os.path.exists(os.path.join(self.folder, _STOP)):
            return True
        raise SharedFolderLost(self.folder)


@lru_cache(maxsize=1)
def _taken(folder: str) -> Any:
    head, sizes = pickle.loads(Path(folder, "head").read_bytes())
    with Path(folder, "arrays").open("rb") as file:
        pages = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if any(sizes) else memoryview(b"")
    parts, at = [], 0
    for size in sizes:
        parts.append(pages[at : at + size])
        at += size + -size % mmap.PAGESIZE
    return pickle.loads(head, buffers=parts)


# -- tasks --------------------------------------------------------------------------------------


def drive(
    tasks: Iterable[Task], pool: Pool, show: Callable[[], None], stop: Callable[[], None]
) -> Generator[tuple[int, Exception | None]]:
    """Run the jobs of many tasks; yields (number of the task, its error or None) as they end.

    A task is started only when a worker would otherwise be idle. ``show`` is called from time to time. At an
    interrupt ``stop`` must make the jobs end soon; every result that arrives is still passed to its ``then``.
    """
    waiting, open_tasks = enumerate(tasks), _Open(pool)
    with interrupts_wait() as presses:
        try:
            while True:
                while open_tasks.busy < pool.workers and (begun := next(waiting, None)) is not None:
                    yield from open_tasks.advance(*begun)
                if not open_tasks:
                    return
                show()
                presses.deliver()
                for number, task, error in open_tasks.completed():
                    yield from [(number, error)] if error else open_tasks.advance(number, task)
        except BaseException:
            stop()
            open_tasks.drain(presses.deliver)
            raise
        finally:
            pool.close()


class _Open:
    """Tasks with running jobs."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._tasks: dict[int, Task] = {}
        self._jobs: dict[Future[Any], tuple[int, Job, int]] = {}  # with the remaining retries
        self._errors: dict[int, Exception] = {}
        self._draining = False

    def __bool__(self) -> bool:
        return bool(self._tasks)

    @property
    def busy(self) -> int:
        """Number of unfinished jobs."""
        return sum(not future.done() for future in self._jobs)

    def advance(self, number: int, task: Task) -> Iterator[tuple[int, Exception | None]]:
        """Submit the next jobs of a task; yields its end."""
        try:
            jobs = next(task)
        except StopIteration:
            yield number, None
        except Exception as error:
            yield number, error
        else:
            self._tasks[number] = task
            for job in jobs:
                self._submit(number, job, RETRIES)

    def _submit(self, number: int, job: Job, tries: int) -> None:
        try:
            self._jobs[self._pool.submit(job)] = number, job, tries
        except Exception as error:
            self._errors.setdefault(number, error)

    def completed(self) -> list[tuple[int, Task, Exception | None]]:
        """Wait for a job to end; returns the tasks without remaining jobs, with the error if one failed."""
        wait(self._jobs, timeout=_PERIOD, return_when=FIRST_COMPLETED)
        self._pool.watch(self._jobs)
        self._take()
        left = {number for number, _, _ in self._jobs.values()}
        through = [number for number in self._tasks if number not in left]
        return [(number, self._tasks.pop(number), self._errors.pop(number, None)) for number in through]

    def _take(self) -> None:
        """Pass on the results of finished jobs."""
        for future in [future for future in self._jobs if future.done()]:
            number, job, tries = self._jobs.pop(future)
            if future.cancelled():
                continue
            error = future.exception()
            if error is None:
                job.then(future.result())
            elif isinstance(error, BrokenExecutor) and tries and not self._draining:
                self._submit(number, job, tries - 1)
            elif isinstance(error, BrokenExecutor):
                killed = PltfError("a worker process was killed, possibly out of memory")
                killed.__cause__ = error
                self._errors.setdefault(number, killed)
            elif isinstance(error, Exception):
                self._errors.setdefault(number, error)
            else:
                raise error

    def drain(self, deliver: Callable[[], None]) -> None:
        """Drop the jobs that have not started, wait for the others and pass on their results."""
        self._draining = True
        self._pool.withdraw(self._jobs)
        while self.busy:
            wait(self._jobs, timeout=_PERIOD)
            self._pool.watch(self._jobs)
            deliver()
        self._take()
