"""Many tasks on a few workers, threads or processes, with data that processes read from one place.

Threads share everything, but only one of them is in Python at a time: good for work that is long in compiled loops.
Processes are good for the rest, and take a second to start.
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

_PERIOD = 0.2  # seconds after which the main thread looks up, to hear an interrupt
RETRIES = 2  # of a job whose worker was killed
_LOOK = 2.0  # seconds between two looks for the parent
_IDLE = 60  # seconds after which processes with nothing to do end
_START = 60  # seconds in which processes must start
_THREADS_EACH, _THREADS_HERE = 2, 4  # of a worker process; to serve them, with the process that cleans up after them
_PREFIX, _GO, _STOP = "pltf-", "go", "stop"  # names of a shared folder, and of files in it


class Job(NamedTuple):
    """A call for a worker, and what to do with its result here."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    then: Callable[[Any], None]


Task = Generator[Sequence[Job], None, None]  # yields jobs, and goes on when all of them are done


# -- pools --------------------------------------------------------------------------------------


class CannotStart(Exception):
    """The system does not let this process start the workers that were asked for."""


class Pool:
    """Threads, or processes that are kept for the next pool of their number.

    Of threads there may be fewer than were asked for, where the system does not let more of them start. Processes are
    all there, and each has done ``trial``, which should import what their jobs need; otherwise CannotStart is raised.
    """

    def __init__(self, workers: int, *, processes: bool, trial: Callable[[], object] = os.getpid) -> None:
        self._processes, self._trial = processes, trial
        self._executor: Executor = _waiting_processes(workers, trial) if processes else _new_threads(workers)
        self.workers = workers if processes else self._executor._max_workers  # type: ignore[attr-defined]
        self._lost = False  # whether its processes were killed and no others could be started

    def submit(self, job: Job) -> Future[Any]:
        """Have a job done; by new processes, if one of the old ones was killed."""
        try:
            with _deaf_children():
                return self._executor.submit(job.function, *job.args)
        except BrokenExecutor:
            self._executor = self._started_again()
            with _deaf_children():
                return self._executor.submit(job.function, *job.args)

    def _started_again(self) -> Executor:
        """New processes; after the first failure no others are tried, as each try may take a minute."""
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
        """Have jobs fail that will never end: loky before 3.7 keeps to itself that the thread that serves them died."""
        manager = getattr(self._executor, "_executor_manager_thread", None)
        if manager is not None and not manager.is_alive():
            for future in futures:
                with suppress(InvalidStateError):  # it was told after all
                    future.set_exception(BrokenExecutor("nobody waits for the worker processes"))

    def withdraw(self, futures: Iterable[Future[Any]]) -> None:
        """Have jobs that have not begun left undone; processes do them, and find out that they are to stop."""
        if not self._processes:  # a broken pool of processes cannot tell futures that were cancelled
            for future in futures:
                future.cancel()

    def close(self) -> None:
        """Wait for threads; let processes wait for more to do, for a while."""
        if self._lost:
            _abandon(self._executor)
        elif self._processes:
            _keep(self.workers, self._executor)
        else:
            self._executor.shutdown(wait=True, cancel_futures=True)


def _new_threads(workers: int) -> Executor:
    """Threads that have started, as many of them as can be."""
    count = startable_threads(workers)
    if 0 < count < workers:
        note_limit(f"only {count} of {workers} threads can be started: the work goes on with these")
    if not count:
        raise PltfError("no thread can be started: raise the limit on processes (ulimit -u) or memory (ulimit -v)")
    executor, begin = ThreadPoolExecutor(count), threading.Event()
    try:
        for _ in range(count):  # each has a thread wait: the next one starts another
            executor.submit(begin.wait)
    except RuntimeError:  # another program was quicker
        begin.set()
        executor.shutdown(wait=True, cancel_futures=True)
        return _new_threads(count - 1)
    begin.set()
    return executor


class _Kept(NamedTuple):
    """Processes that wait for the next pool, and the timer that will end them."""

    workers: int
    executor: Executor
    timer: threading.Timer


_idle: list[_Kept] = []
_idle_lock = threading.Lock()


def _begin_anew() -> None:
    """A forked child has the list but not the threads that serve it; and the lock may be closed for ever."""
    global _idle_lock
    _idle_lock = threading.Lock()
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def _keep(workers: int, executor: Executor) -> None:
    """Let processes wait for the next pool, for a while.

    Their own timeout would not do: a pool that starts new processes for a job does not watch them until the job has
    come back, and waits for ever if they are killed.
    """
    timer = threading.Timer(_IDLE, _end, [executor])
    timer.daemon = True
    with _idle_lock:
        _idle.append(_Kept(workers, executor, timer))
    try:
        timer.start()
    except RuntimeError:  # no thread is left for it
        _end(executor)


def _end(executor: Executor) -> None:
    """End processes, unless they were taken since."""
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
    """Processes that have nothing to do, or new ones."""
    with _idle_lock:
        for number, kept in enumerate(_idle):
            if kept.workers == workers:
                del _idle[number]
                kept.timer.cancel()
                return kept.executor
    return _new_processes(workers, trial)


def _new_processes(workers: int, trial: Callable[[], object]) -> Executor:
    """Processes that have done a trial: loky waits for ever for those that a limit keeps from starting."""
    from loky import ProcessPoolExecutor

    needed = _THREADS_EACH * workers + _THREADS_HERE + available_threads()  # BLAS starts its own again after a fork
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
    """End processes that may not have started, without waiting for what may never come."""
    if executor is None:
        return
    with suppress(Exception):
        executor.shutdown(wait=False, kill_workers=True)
    for process in list(getattr(executor, "_processes", {}).values()):
        with suppress(Exception):
            process.kill()


def _begin_work(parent: int) -> None:
    """What a worker process does first; its parent may be no more by then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    threading.Thread(target=_end_with, args=[parent], daemon=True).start()


def _end_with(parent: int) -> None:
    """End when the process that started this one is no more: killed, it could not tell."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes that are started here never hear of a Ctrl-C, nor of a terminal that is closed.

    They have what is blocked here blocked from the first. Workers end with this process; the one that loky starts to
    remove semaphores has to live longer.
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
    """Whether this process may start others."""
    return not multiprocessing.current_process().daemon


# -- data for other processes -------------------------------------------------------------------


@contextmanager
def shared(value: Any) -> Iterator[Shared]:
    """A value that other processes can take from a file; gone afterwards.

    Arrays are written once, as they lie in memory, and mapped from there: all processes look at the same pages.
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
    """The folder that processes share was removed while they needed it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        cause = "a program that cleans up temporary files may have done that; TMPDIR names another place"
        super().__init__(f"the folder {folder} that the worker processes share was removed: {cause}")

    def __reduce__(self) -> tuple[type[SharedFolderLost], tuple[str]]:
        return type(self), (self.folder,)


@dataclass(frozen=True)
class Shared:
    """A folder with a value for other processes, and a way to tell them to stop."""

    folder: str

    def value(self) -> Any:
        """The value; its arrays are read-only."""
        try:
            return _taken(self.folder)
        except FileNotFoundError:
            raise SharedFolderLost(self.folder) from None

    def stop(self) -> None:
        """Tell whoever looks at :meth:`stopping`, in any process."""
        with suppress(OSError):  # renamed, as that needs no space; a folder that is gone tells by itself
            os.rename(os.path.join(self.folder, _GO), os.path.join(self.folder, _STOP))

    def stopping(self, *_: object) -> bool:
        """Whether it was told to stop; an error if the folder is gone."""
        if os.path.exists(os.path.join(self.folder, _GO)):  # looked at after each sweep: no Path
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
    """Do the jobs of many tasks; yields (number of the task, its error if there was one) as they end.

    A task is begun only when a worker would otherwise have nothing to do. ``show`` is called from time to time. At an
    interrupt ``stop`` has to tell the jobs to end soon; every result that comes in still goes to its ``then``.
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
    """Tasks whose jobs are on their way."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._tasks: dict[int, Task] = {}
        self._jobs: dict[Future[Any], tuple[int, Job, int]] = {}  # with the tries that are left
        self._errors: dict[int, Exception] = {}
        self._draining = False

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
            for job in jobs:
                self._submit(number, job, RETRIES)

    def _submit(self, number: int, job: Job, tries: int) -> None:
        try:
            self._jobs[self._pool.submit(job)] = number, job, tries
        except Exception as error:
            self._errors.setdefault(number, error)

    def completed(self) -> list[tuple[int, Task, Exception | None]]:
        """Wait for a job to end; the tasks that have none left, with the error of one that failed."""
        wait(self._jobs, timeout=_PERIOD, return_when=FIRST_COMPLETED)
        self._pool.watch(self._jobs)
        self._take()
        left = {number for number, _, _ in self._jobs.values()}
        through = [number for number in self._tasks if number not in left]
        return [(number, self._tasks.pop(number), self._errors.pop(number, None)) for number in through]

    def _take(self) -> None:
        """Hand over the results of the jobs that have ended."""
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
                killed = PltfError("a worker process was killed, perhaps for want of memory")
                killed.__cause__ = error
                self._errors.setdefault(number, killed)
            elif isinstance(error, Exception):
                self._errors.setdefault(number, error)
            else:
                raise error

    def drain(self, deliver: Callable[[], None]) -> None:
        """Drop the jobs that have not begun, wait for the others and take what they bring."""
        self._draining = True
        self._pool.withdraw(self._jobs)
        while self.busy:
            wait(self._jobs, timeout=_PERIOD)
            self._pool.watch(self._jobs)
            deliver()
        self._take()
