"""Work over threads: the order of results, who works, and what goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from pltf.threads import PART, in_parts, ordered_map


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 20])
def test_results_come_in_order(threads: int, count: int) -> None:
    def slow_first(n: int) -> int:
        time.sleep(0.002 * (n % 3 == 0))
        return n * n

    assert list(ordered_map(slow_first, range(count), threads)) == [n * n for n in range(count)]


def test_every_thread_works_and_few_results_wait() -> None:
    lock, workers, begun, taken, most = threading.Lock(), Counter[threading.Thread](), 0, 0, 0
    main_was_busy, other_has_begun = threading.Event(), threading.Event()

    def work(n: int) -> int:
        nonlocal begun, most
        me = threading.current_thread()
        with lock:
            workers[me] += 1
            begun += 1
            most = max(most, begun - taken)
        # Each waits for the other, so that the outcome does not depend on how busy the machine is.
        if me is not threading.main_thread():
            other_has_begun.set()
            assert main_was_busy.wait(60)
        elif workers[me] == 4:
            main_was_busy.set()
        elif workers[me] > 4:
            assert other_has_begun.wait(60)
        return n

    for _ in ordered_map(work, range(40), 2):
        time.sleep(0.002)  # what takes the results is slow: the others must not run far ahead
        with lock:
            taken += 1
    assert len(workers) == 2
    assert workers[threading.main_thread()] >= 4  # it does not wait while there is work
    assert most <= 6  # of 40


@pytest.mark.parametrize("bad", [0, 1, 9])
def test_an_error_comes_out(bad: int) -> None:
    def work(n: int) -> int:
        if n == bad:
            raise ValueError(f"{n} is bad")
        return n

    for threads in (1, 2):
        with pytest.raises(ValueError, match=f"{bad} is bad"):
            list(ordered_map(work, range(10), threads))


def test_parts_cover_an_array_once() -> None:
    parts = list(in_parts(lambda part: part, 2 * PART + 5, 2))
    assert [(part.start, part.stop) for part in parts] == [(0, PART), (PART, 2 * PART), (2 * PART, 2 * PART + 5)]


_FAULTS = """
import resource
import numpy as np
from pltf.threads import keep_freed_memory

keep_freed_memory()
for _ in range(3):
    np.ones(1 << 20, np.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    np.ones(1 << 20, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts page faults of glibc")
@pytest.mark.parametrize("threshold", [None, "65536"], ids=["plain", "in a worker of Dask"])
def test_freed_memory_is_kept(threshold: str | None) -> None:
    env = {**os.environ, **({} if threshold is None else {"MALLOC_TRIM_THRESHOLD_": threshold})}
    found = subprocess.run([sys.executable, "-c", _FAULTS], env=env, capture_output=True, text=True, check=True)
    assert int(found.stdout) < 100  # 256 for each array otherwise
