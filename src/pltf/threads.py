"""Work over blocks with threads, reduced in a fixed order, so that the bits do not depend on their number."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import OpenBLASController, ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")


def available_threads() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _SingleThreadedBlas:
    """Counts who wants it: the first one in sets the limit, the last one out takes it away."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                _let_any_thread_set_limits()
                self._limit = ThreadpoolController().limit(limits=1, user_api="blas")

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                _let_any_thread_set_limits()
                self._limit.restore_original_limits()
                _let_any_thread_set_limits()


def _let_any_thread_set_limits() -> None:
    """Newer threadpoolctl lets only the first thread set limits; here the last one out may be another one."""
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


single_threaded_blas = _SingleThreadedBlas()
"""BLAS on one thread: the blocks bring the parallelism, and its sums keep one order."""


def keep_freed_memory() -> None:
    """Let the allocator keep the temporaries of a block from one block to the next.

    glibc hands freed megabytes back to the system, and every sweep would fault them in again: at 50^3 that took
    as long as the arithmetic. It stops doing so once it has seen a larger array freed. Elsewhere this does nothing.
    """
    np.empty(24 << 20, dtype=np.uint8)


def ordered_map(function: Callable[[T], R], items: Sequence[T], threads: int) -> Iterator[R]:
    """Results of ``function`` in the order of ``items``, with few of them waiting at a time.

    The calling thread works too: on the next item, or while another thread has that one, on one that none has begun.
    """
    if threads == 1 or len(items) < 2:
        yield from map(function, items)
        return
    pool, ahead = _pool(threads - 1), 2 * threads
    begun = {n: pool.submit(function, items[n]) for n in range(1, min(ahead, len(items)))}
    done = {0: function(items[0])}
    for n in range(len(items)):
        if n + ahead < len(items):
            begun[n + ahead] = pool.submit(function, items[n + ahead])
        while n not in done:
            mine = None if begun[n].done() else next((m for m, future in begun.items() if future.cancel()), None)
            if mine is None:
                done[n] = begun.pop(n).result()
            else:
                del begun[mine]
                done[mine] = function(items[mine])
        yield done.pop(n)


PART = 1 << 15  # entries of an array that are worked on at a time


def in_parts(function: Callable[[slice], R], size: int, threads: int) -> Iterator[R]:
    """Results of ``function`` on the parts of an array, in their order; the parts depend on the size alone."""
    parts = [slice(at, min(at + PART, size)) for at in range(0, size, PART)]
    return ordered_map(function, parts, threads)


def run_all(work: Iterator[object]) -> None:
    """Run work whose results do not matter."""
    for _ in work:
        pass


@lru_cache(maxsize=4)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="pltf")


if hasattr(os, "register_at_fork"):  # a forked child has the pool but not its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
