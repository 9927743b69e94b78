"""Work over blocks with threads, reduced in a fixed order, so that the bits do not depend on their number."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")


def available_threads() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def single_threaded_blas() -> AbstractContextManager[Any]:
    """BLAS on one thread: the blocks bring the parallelism, and its sums keep one order."""
    limited: AbstractContextManager[Any] = ThreadpoolController().limit(limits=1, user_api="blas")
    return limited


def keep_freed_memory() -> None:
    """Let the allocator keep the temporaries of a block from one block to the next.

    glibc hands freed megabytes back to the system, and every sweep would fault them in again: at 50^3 that took
    as long as the arithmetic. It stops doing so once it has seen a larger array freed. Elsewhere this does nothing.
    """
    np.empty(24 << 20, dtype=np.uint8)


def ordered_map(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Results of ``function`` in the order of ``items``, with few of them waiting at a time."""
    if threads == 1:
        yield from map(function, items)
        return
    pool = _pool(threads)
    waiting: deque[Future[R]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > 2 * threads:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


@lru_cache(maxsize=4)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="pltf")
