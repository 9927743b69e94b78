"""A table of events of any size, and what it takes to prepare and fit it.

    python benchmarks/large.py draw events --rows 30_000_000
    python benchmarks/large.py prepare events cells.pltf --memory 2e9

The drawn table has skewed users and places and the minutes of one week; about a third of the events repeat a cell of
another one. Each command tells the seconds it took and the most memory that its process had.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS_OF_A_FILE = 10_000_000
REPEATS = 0.5  # further events of a cell, on average
MONDAY = np.datetime64("2026-11-09T00:00", "m")


def draw(folder: Path, rows: int, users: int, places: int, hours: int, seed: int) -> None:
    """Write events to Parquet files in a new folder."""
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
    """Prepare what was drawn."""
    import pltf

    dims = {"user": "user", "place": "place", "when:hour": "hour"}
    print(pltf.prepare(folder / "*.parquet", output, dims=dims, memory_limit=memory, progress=True))


def main() -> None:
    """Run one command, and tell what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("folder", type=Path)
    for name, usual in (("rows", 30_000_000), ("users", 1_000_000), ("places", 100_000), ("hours", 168), ("seed", 0)):
        drawing.add_argument(f"--{name}", type=int, default=usual)
    preparing = commands.add_parser("prepare")
    preparing.add_argument("folder", type=Path)
    preparing.add_argument("output", type=Path)
    preparing.add_argument("--memory", type=float, help="limit for DuckDB, in bytes")
    options = vars(parser.parse_args())
    began = time.perf_counter()
    if options.pop("command") == "draw":
        draw(**options)
    else:
        prepare(**options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{time.perf_counter() - began:.1f} s, at most {peak / 2**30:.2f} GiB of memory")


if __name__ == "__main__":
    main()
