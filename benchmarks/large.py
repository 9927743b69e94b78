"""A table of events of any size: time and memory to prepare and fit it.

    python -m benchmarks.large draw events --rows 300_000_000
    python -m benchmarks.large prepare events cells.pltf --limit 3
    python -m benchmarks.large fit cells.pltf --rank 10 --sweeps 5 --limit 3
    python -m benchmarks.large sweeps cells.pltf --rank 10 --cells 30_000_000

The drawn table has skewed users and places and the hours of one week; about a third of the events repeat a cell of
another one. ``--limit`` is the address space that the process may take, in GiB (``RLIMIT_AS``): an allocation beyond it
fails. Each command prints the seconds it took and the peak memory of its process: all resident memory, and the part of
it that is not mapped files (pages of mapped files are dropped by the system when it needs them).

``sweeps`` compares sweeps over the store with sweeps over the same cells in memory, in alternation, once while the page
cache holds the store and once after the store was dropped from it (``posix_fadvise``, Linux), beside the rate at which
the disk reads the same files.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pltf.data import StoredObservation

GIB = 1 << 30
ROWS_OF_A_FILE = 10_000_000
REPEATS = 0.5  # further events of a cell, on average
MONDAY = np.datetime64("2026-11-09T00:00", "m")


def draw(folder: Path, rows: int, users: int, places: int, hours: int, seed: int) -> None:
    """Write events to Parquet files in a new folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    names = pa.array([f"user{number:08d}" for number in np.random.default_rng(seed).permutation(users)])
    for number, first in enumerate(range(0, rows, ROWS_OF_A_FILE)):
        rng = np.random.default_rng((seed, number))
        n = min(ROWS_OF_A_FILE, rows - first)
        times = 1 + rng.poisson(REPEATS, size=int(n / (1 + REPEATS) * 1.01) + 100)
        cells = np.repeat(np.arange(times.size), times)[:n]
        rng.shuffle(cells)
        user, place = (skewed(rng, times.size, size)[cells] for size in (users, places))
        hour = rng.integers(0, hours, times.size)[cells]
        when = MONDAY + (hour * 60 + rng.integers(0, 60, n)).astype("timedelta64[m]")
        table = pa.table(
            {
                "user": names.take(pa.array(user)),
                "place": pa.array(place + 1000),
                "when": pa.array(when.astype("datetime64[us]")),
            }
        )
        pq.write_table(table, folder / f"events-{number:03}.parquet", row_group_size=1 << 20)


def skewed(rng: np.random.Generator, n: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions of which the first ones are much more frequent than the last."""
    drawn: np.ndarray[tuple[int], np.dtype[np.int64]] = (size * rng.random(n) ** 2).astype(np.int64)
    return drawn


def prepare(folder: Path, output: Path, memory: float | None) -> None:
    """Prepare the drawn events."""
    import pltf

    dims = {"user": "user", "place": "place", "when:hour": "hour"}
    print(pltf.prepare(folder / "*.parquet", output, dims=dims, memory_limit=memory, progress=True))


# -- fits -----------------------------------------------------------------------------------------


def seconds_of(data: Any, rank: int, sweeps: int, threads: int | None, accelerate: bool = False) -> list[float]:
    """Seconds of each sweep of a CP fit but the first, in which files are checked and kernels compiled."""
    import pltf

    marks: list[float] = []
    pltf.cp(data.dims or (), rank=rank).fit(
        data,
        max_iter=sweeps + 1,
        tol=0,
        threads=threads,
        accelerate=accelerate,
        dispersion=None,
        keep_data=False,
        progress=False,
        callback=lambda _: marks.append(time.perf_counter()),
    )
    return [after - before for before, after in pairwise(marks)]


def fit(store: Path, rank: int, sweeps: int, threads: int | None) -> None:
    """Fit a store with the default options, for a few sweeps."""
    import pltf

    data = pltf.open(store)
    print(data)
    print(pltf.cp(data.dims or (), rank=rank).plan(data, threads=threads, dispersion=None))
    took = seconds_of(data, rank, sweeps, threads, accelerate=True)
    print(f"sweeps of a fit: {' '.join(f'{one:.2f}' for one in took)} s")


def sweeps(store: Path, rank: int, sweeps: int, threads: int | None, cells: int, repeats: int) -> None:
    """Time sweeps over a store and over the same cells in memory, in alternation."""
    import pltf
    from pltf.data.part_files import FilePart

    data = first_parts(pltf.open(store), cells)
    files = [part.file.path for part in data.parts if isinstance(part, FilePart)]
    size = sum(file.stat().st_size for file in files)
    lists, parts = data.cells(), data.in_memory()
    print(f"{data.listed:,} cells, {size / 1e9:.2f} GB")
    ways: dict[str, tuple[Any, Callable[[], None]]] = {
        "list in memory": (lists, lambda: None),
        "parts in memory": (parts, lambda: None),
        "store, in the page cache": (data, lambda: read(files)),
        "store, not in the page cache": (data, lambda: dropped(files)),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    rates = []
    for _ in range(repeats):
        for name, (seen, before) in ways.items():
            before()
            took[name] += (
                cold(seen, files, rank, threads, sweeps) if "not" in name else seconds_of(seen, rank, sweeps, threads)
            )
        dropped(files)
        began = time.perf_counter()
        read(files)
        rates.append(size / (time.perf_counter() - began))
    best = {name: min(each) for name, each in took.items()}
    for name, each in took.items():
        share = best["list in memory"] / best[name]
        print(
            f"{name:<30} {best[name]:8.3f} s (median {statistics.median(each):.3f}), {share:4.0%} as fast as the list"
        )
    print(f"the disk reads these files at {max(rates) / 1e9:.2f} GB/s: {size / max(rates):.3f} s")


def cold(data: StoredObservation, files: Sequence[Path], rank: int, threads: int | None, sweeps: int) -> list[float]:
    """Seconds of sweeps, each of which finds the files out of the page cache."""
    import pltf

    marks: list[tuple[float, float]] = []

    def drop(_: object) -> None:
        end = time.perf_counter()
        dropped(files)
        marks.append((end, time.perf_counter()))

    options: dict[str, Any] = {"dispersion": None, "accelerate": False, "keep_data": False, "progress": False}
    pltf.cp(data.dims or (), rank=rank).fit(data, max_iter=sweeps + 1, tol=0, threads=threads, callback=drop, **options)
    return [after[0] - before[1] for before, after in pairwise(marks)]


def first_parts(data: StoredObservation, cells: int) -> StoredObservation:
    """The first parts of a store, with at least so many cells. Its totals are wrong; times do not depend on them."""
    chosen, listed = [], 0
    for part in data.parts:
        chosen.append(part)
        listed += part.cells
        if listed >= cells:
            break
    share = listed / data.listed
    return replace(data, parts=tuple(chosen), listed=listed, positive=listed, total=data.total * share)


def read(files: Sequence[Path]) -> None:
    """Read whole files."""
    room = bytearray(1 << 22)
    for file in files:
        with file.open("rb", buffering=0) as stream:
            while stream.readinto(room):
                pass


def dropped(files: Sequence[Path]) -> None:
    """Drop files from the page cache of the system."""
    for file in files:
        handle = os.open(file, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


# -- memory ---------------------------------------------------------------------------------------


@contextmanager
def watched() -> Iterator[dict[str, int]]:
    """The largest memory of this process, in bytes: all that is resident, without mapped files, and address space."""
    most = {"resident": 0, "without mapped files": 0, "address space": 0}
    done = threading.Event()

    def look() -> None:
        while True:
            lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
            now = {name: 1024 * int(lines[name].split()[0]) for name in ("VmRSS", "RssAnon", "VmSize")}
            for name, size in zip(most, now.values(), strict=True):
                most[name] = max(most[name], size)
            if done.wait(0.02):
                return

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        done.set()
        watcher.join()


COMMANDS: dict[str, Callable[..., None]] = {"draw": draw, "prepare": prepare, "fit": fit, "sweeps": sweeps}


def main() -> None:
    """Run one command, and print its time and memory."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.large", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    drawing, preparing, fitting, sweeping = (commands.add_parser(name) for name in COMMANDS)
    for one in (drawing, preparing, fitting, sweeping):
        one.add_argument("store" if one in (fitting, sweeping) else "folder", type=Path)
        one.add_argument("--limit", type=float, metavar="GIB", help="address space of the process")
    for name, usual in (("rows", 30_000_000), ("users", 400_000), ("places", 100_000), ("hours", 168), ("seed", 0)):
        drawing.add_argument(f"--{name}", type=int, default=usual)
    preparing.add_argument("output", type=Path)
    preparing.add_argument("--memory", type=float, help="limit for DuckDB, in bytes")
    for one in (fitting, sweeping):
        one.add_argument("--rank", type=int, default=10)
        one.add_argument("--sweeps", type=int, default=5)
        one.add_argument("--threads", type=int)
    sweeping.add_argument("--cells", type=int, default=30_000_000, help="use the first parts with at least so many")
    sweeping.add_argument("--repeats", type=int, default=3)
    options = vars(parser.parse_args())
    command, limit = options.pop("command"), options.pop("limit")
    if limit is not None:
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # its own allocator reserves 1 GiB at once
        resource.setrlimit(resource.RLIMIT_AS, (int(limit * GIB),) * 2)
    began = time.perf_counter()
    with watched() as most:
        COMMANDS[command](**options)
    peaks = ", ".join(f"{name} {size / GIB:.2f} GiB" for name, size in most.items())
    print(f"{time.perf_counter() - began:.1f} s; at most: {peaks}")


if __name__ == "__main__":
    main()
