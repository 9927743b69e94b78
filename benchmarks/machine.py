"""Peak performance of this machine, as a reference for times: ``python -m benchmarks.machine``."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

import numpy as np
from threadpoolctl import threadpool_limits

REPEATS = 7


def main() -> None:
    print(f"CPU: {cpu()}, {os.cpu_count()} cores")
    for threads in (1, 2):
        print(f"{threads} thread{'s' if threads > 1 else ''}:")
        print(f"  copy of 256 MB      {copy_rate(1 << 25, threads) / 1e9:6.1f} GB/s (read + written)")
        print(f"  copy of 1 MB        {copy_rate(1 << 17, threads) / 1e9:6.1f} GB/s (read + written)")
        print(f"  sum of 500 MB       {read_rate(125_000_000, threads) / 1e9:6.1f} GB/s (read)")
        print(f"  dgemm 2000          {gemm_rate(2000, 2000, 2000, threads) / 1e9:6.1f} GFLOP/s")
        print(f"  dgemm 2500x7x50     {gemm_rate(2500, 7, 50, threads) / 1e9:6.1f} GFLOP/s")
        print(f"  dgemm 2500x50x7     {gemm_rate(2500, 50, 7, threads) / 1e9:6.1f} GFLOP/s")
    print(f"1 thread: log {elements_rate(np.log) / 1e6:.0f} M/s")


def cpu() -> str:
    """Name of the processor."""
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    return names[0].split(":")[1].strip() if names else platform.processor()


def cpu_seconds_of_others() -> float:
    """Time that all programs but this one have used the processor, since the machine started; 0 if it does not tell."""
    told = Path("/proc/stat")
    if not told.exists():
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = map(int, told.read_text().split("\n")[0].split()[1:9])
    own = os.times()
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK") - own.user - own.system


def copy_rate(size: int, threads: int) -> float:
    """Bytes a second, read and written, when each thread copies its part of an array of doubles."""
    parts = [(np.ones(size // threads), np.ones(size // threads)) for _ in range(threads)]
    times = max(1, (1 << 23) // size)  # enough work to outweigh the hand-over to the threads

    def copies(part: tuple[np.ndarray, np.ndarray]) -> None:
        for _ in range(times):
            np.copyto(part[1], part[0])

    with ThreadPoolExecutor(threads) as pool:
        seconds = fastest(lambda: list(pool.map(copies, parts)))
    return 2 * 8 * size * times / seconds


def read_rate(size: int, threads: int) -> float:
    """Bytes a second when each thread sums its part of an array of float32."""
    parts = np.array_split(np.ones(size, dtype=np.float32), threads)
    with ThreadPoolExecutor(threads) as pool:
        return 4 * size / fastest(lambda: read(pool, parts))


def read(pool: Executor, parts: Sequence[np.ndarray]) -> None:
    """Each number once, with one thread for each part."""
    for _ in pool.map(np.sum, parts):
        pass


def gemm_rate(m: int, k: int, n: int, threads: int) -> float:
    """Flops a second of (m, k) @ (k, n)."""
    left, right, out = np.ones((m, k)), np.ones((k, n)), np.empty((m, n))
    times = max(1, 10**8 // (2 * m * k * n))

    def products() -> None:
        for _ in range(times):
            np.matmul(left, right, out=out)

    with threadpool_limits(threads, user_api="blas"):
        return 2 * m * k * n * times / fastest(products)


def elements_rate(function: Callable[..., object]) -> float:
    """Elements a second of a NumPy function, on 75 000 doubles."""
    values = np.random.default_rng(0).uniform(0.5, 2.0, 75_000)
    out = np.empty_like(values)
    return values.size / fastest(lambda: function(values, out=out))


def fastest(work: Callable[[], object]) -> float:
    """Seconds of the fastest of a few calls, after a warm-up call."""
    work()
    seconds = []
    for _ in range(REPEATS):
        began = perf_counter()
        work()
        seconds.append(perf_counter() - began)
    return min(seconds)


if __name__ == "__main__":
    main()
