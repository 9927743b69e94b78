"""Parallel work over blocks, reduced in a fixed order: the result does not depend on the number of threads."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from queue import SimpleQueue
from typing import Any, TypeVar

from threadpoolctl import OpenBLASController, ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")


def available_threads() -> int:
    """Number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_ATTEMPTS, _LAG = 3, 0.02  # seconds: the system counts a thread for a short time after it has ended


def startable_threads(count: int) -> int:
    """How many more threads the system currently lets this process start, at most ``count``.

    >>> startable_threads(2)
    2
    """
    most = 0
    for _ in range(_ATTEMPTS):
        most = max(most, _started_at_once(count))
        if most == count:
            break
        time.sleep(_LAG)
    return most


def _started_at_once(count: int) -> int:
    """How many threads could be started, at most ``count``; all of them have ended."""
    end, started = threading.Event(), list[threading.Thread]()
    try:
        for _ in range(count):
            one = threading.Thread(target=end.wait, daemon=True)
            one.start()
            started.append(one)
    except (RuntimeError, MemoryError):  # a limit on processes, or on memory for the stacks
        pass
    finally:
        end.set()
        for one in started:
            one.join()
    return len(started)


def note_limit(text: str) -> None:
    """Warn that a system limit slows down the work."""
    warnings.warn(
        f"{text}; limits on processes (ulimit -u) or memory (ulimit -v) are low", RuntimeWarning, stacklevel=2
    )


class _SingleThreadedBlas:
    """Reference-counted limit: the first user sets it, the last one restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                _let_any_thread_set_limits()
                self._limit = _libraries(len(sys.modules)).limit(limits=1, user_api="blas")

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                _let_any_thread_set_limits()
                self._limit.restore_original_limits()
                _let_any_thread_set_limits()


@lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """Libraries with thread pools; searched again only after new imports, because that takes milliseconds."""
    return ThreadpoolController()


def _let_any_thread_set_limits() -> None:
    """Newer threadpoolctl only lets the first thread set limits; here another thread may be the last user."""
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


single_threaded_blas = _SingleThreadedBlas()
"""Limit BLAS to one thread: parallelism comes from the blocks, and BLAS sums keep one order."""


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h


def keep_freed_memory() -> None:
    """Let the allocator keep the temporaries of a block for the next block.

    glibc returns freed megabytes to the system, and every iteration would page them in again: for 50^3 cells this took
    as long as the arithmetic. By itself, glibc stops doing so once a larger array has been freed, but not in a worker
    of Dask, which sets ``MALLOC_TRIM_THRESHOLD_``. Does nothing on other systems.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, TypeError):  # no glibc
        return
    set_option(_M_MMAP_THRESHOLD, 24 << 20)
    set_option(_M_TRIM_THRESHOLD, 48 << 20)


class _Task:
    """A call for the first thread that claims it. Plain locks keep the overhead low."""

    __slots__ = ("_argument", "_done", "_error", "_free", "_function", "_result")

    def __init__(self, function: Callable[[Any], Any], argument: Any) -> None:
        self._function, self._argument = function, argument
        self._free, self._done = threading.Lock(), threading.Lock()
        self._done.acquire()
        self._result: Any = None
        self._error: BaseException | None = None

    def claim(self) -> bool:
        """Claim the task; returns whether no other thread has started it."""
        return self._free.acquire(blocking=False)

    def run(self) -> None:
        """Make the call; only for the thread that has claimed it."""
        try:
            self._result = self._function(self._argument)
        except BaseException as error:  # raised again in result()
            self._error = error
        self._done.release()

    def result(self) -> Any:
        """Wait for the result, or raise its error."""
        with self._done:
            if self._error is not None:
                raise self._error
            return self._result

    def finished(self) -> bool:
        """Whether the result is available."""
        return not self._done.locked()


def ordered_map(function: Callable[[T], R], items: Sequence[T], threads: int) -> Iterator[R]:
    """Results of ``function`` in the order of ``items``, with a small number in progress at a time.

    The calling thread works too: on the next item, or while another thread processes that one, on one not yet started.
    """
    if threads == 1 or len(items) < 2:
        yield from map(function, items)
        return
    queue, ahead = _workers(threads - 1), 2 * threads
    if queue is None:
        yield from map(function, items)
        return
    begun: dict[int, _Task] = {}
    try:
        for n in range(len(items)):
            for m in range(n + len(begun), min(n + ahead, len(items))):
                begun[m] = _Task(function, items[m])
                if m:  # the first one is for the calling thread
                    queue.put(begun[m])
            while not begun[n].finished():
                mine = next((task for task in begun.values() if task.claim()), None)
                if mine is None:
                    break
                mine.run()
            yield begun.pop(n).result()
    finally:  # after an error, do not wait for the others
        for task in begun.values():
            task.claim()


PART = 1 << 15  # entries of an array that are processed at a time


def in_parts(function: Callable[[slice], R], size: int, threads: int) -> Iterator[R]:
    """Results of ``function`` on the parts of an array, in order; the parts depend only on the size."""
    parts = [slice(at, min(at + PART, size)) for at in range(0, size, PART)]
    return ordered_map(function, parts, threads)


def run_all(work: Iterator[object]) -> None:
    """Run work and discard its results."""
    for _ in work:
        pass


@lru_cache(maxsize=4)
def _workers(threads: int) -> SimpleQueue[_Task] | None:
    """The queue from which ``threads`` threads take their tasks; None if no thread can be started."""
    queue: SimpleQueue[_Task] = SimpleQueue()
    for n in range(threads):
        try:
            threading.Thread(target=_work, args=(queue,), name=f"pltf_{n}", daemon=True).start()
        except RuntimeError:  # the calling thread does the remaining work
            note_limit(f"only {n + 1} of {threads + 1} threads can be started: continuing with these")
            return queue if n else None
    return queue


def _work(queue: SimpleQueue[_Task]) -> None:
    while True:
        task = queue.get()
        if task.claim():
            task.run()
        del task  # release its data before the next one arrives


if hasattr(os, "register_at_fork"):  # a forked child has the queue but not its threads
    os.register_at_fork(after_in_child=_workers.cache_clear)
