"""Overhead of a Dask cluster per sweep, time of its transfers, and fits with killed workers.

    python benchmarks/cluster.py sweep --cells 30_000_000 --workers 4 --rank 20
    python benchmarks/cluster.py terms --workers 4
    python benchmarks/cluster.py kill --cells 300_000 --kills 30

`sweep` times sweeps in this process, on as many threads as there are cores, and on a LocalCluster of processes with one
thread each, in alternation. `terms` has the terms of the formula in docs/howto/cluster.md. `kill` kills workers with
SIGKILL at random moments of fits, and compares each of these with a fit in this process.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import pltf
from pltf.cluster import Call, Cluster
from pltf.data.part_files import StoreWriter

DIMS, PLACES, HOURS, OF_A_USER = ("user", "place", "hour"), 5000, 168, 300
QUICK: dict[str, Any] = {"tol": 0, "dispersion": None, "progress": False, "accelerate": False}


def draw(folder: Path, cells: int, parts: int, seed: int = 0) -> Any:
    """A store with about this number of cells."""
    rng, users = np.random.default_rng(seed), max(cells // OF_A_USER, parts)
    folder.mkdir()
    writer = StoreWriter(folder, DIMS, 0, "zero", "uint8")
    cuts = np.linspace(0, users, parts + 1).astype(int)
    for first, last in pairwise(cuts):
        others = (PLACES * rng.random((last - first) * OF_A_USER) ** 2).astype(np.int64) * HOURS
        others += rng.integers(0, HOURS, others.size)
        keys = np.unique(np.repeat(np.arange(first, last), OF_A_USER) * (PLACES * HOURS) + others)
        columns = [keys // (PLACES * HOURS), keys // HOURS % PLACES, keys % HOURS]
        writer.add([column.astype(np.int32) for column in columns], 1 + rng.poisson(0.5, keys.size))
    writer.finish((users, PLACES, HOURS), {}, None)
    return pltf.open(folder)


@contextmanager
def local(workers: int) -> Iterator[Any]:
    """The client of a cluster of processes with one thread each."""
    distributed, dask = import_module("distributed"), import_module("dask")
    dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"})  # on a busy machine they take a while
    known = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with (
        distributed.LocalCluster(n_workers=workers, **known) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def paces(model: pltf.Model, seen: Any, sweeps: int, client: Any = None) -> list[float]:
    """Seconds of each sweep of a fit."""
    ends: list[float] = []
    model.fit(seen, max_iter=sweeps, client=client, callback=lambda _: ends.append(time.perf_counter()), **QUICK)
    return list(np.diff(ends))


def sweep(folder: Path, cells: int, workers: int, rank: int, rounds: int, sweeps: int) -> None:
    """Time sweeps on this machine and on the cluster."""
    seen, model = draw(folder / "cells", cells, max(cells >> 21, 2 * workers)), pltf.cp(DIMS, rank=rank)
    print(f"{seen.listed:,} cells, {len(seen.parts)} parts, rank {rank}")
    with local(workers) as client:
        paces(model, seen, 3)
        paces(model, seen, 3, client)
        ratios = []
        for _ in range(rounds):
            here = statistics.median(paces(model, seen, sweeps))
            there = statistics.median(paces(model, seen, sweeps, client))
            ratios.append(there / here)
            print(f"here {here:.3f} s, on {workers} workers {there:.3f} s: {ratios[-1]:.2f} times", flush=True)
    print(f"median {statistics.median(ratios):.2f}")


def terms(workers: int) -> None:
    """Latency of a pass, and speed of array transfers."""
    with local(workers) as client:
        cluster = Cluster(client)

        def seconds(array: Any, function: Any) -> float:
            taken = []
            for _ in range(7):
                began = time.perf_counter()
                cluster.results([Call(function, (array,), worker) for worker in cluster.present()])
                taken.append(time.perf_counter() - began)
            return statistics.median(taken)

        latency, large = seconds(0, _size), np.ones(1_250_000)
        there, back = (seconds(large, function) - latency for function in (_size, _itself))
        sent = workers * large.nbytes / 1e6
        print(f"a pass without data {1e3 * latency:.0f} ms")
        print(f"to the workers {sent / there:.0f} MB/s, back {sent / max(back - there, 1e-9):.0f} MB/s")


def _size(array: Any) -> int:
    return int(np.size(array))


def _itself(array: Any) -> Any:
    return array


def kill(folder: Path, cells: int, workers: int, kills: int, seed: int) -> None:
    """Kill workers during fits."""
    seen, model = draw(folder / "cells", cells, 3 * workers), pltf.cp(DIMS, rank=5)
    known, done = model.fit(seen, max_iter=20, **QUICK), [0]
    with local(workers) as client:

        def killing() -> None:
            rng = np.random.default_rng(seed)
            for number in range(kills):
                client.wait_for_workers(workers)
                time.sleep(rng.random() * 2)
                alive = list(client.run(os.getpid, on_error="ignore").values())  # one that only starts is not killed
                os.kill(alive[rng.integers(len(alive))], signal.SIGKILL)
                done[0] = number + 1

        thread, fits, began = threading.Thread(target=killing), 0, time.perf_counter()
        thread.start()
        while thread.is_alive():
            before = done[0]
            fit = model.fit(seen, max_iter=20, client=client, **QUICK)
            same = np.array_equal(fit.trace, known.trace) and all(
                np.array_equal(fit.factors[name].mean, known.factors[name].mean) for name in known.factors
            )
            fits += 1
            print(f"fit {fits}: {done[0] - before} kills, {'the same bits' if same else 'OTHER BITS'}", flush=True)
            if not same:
                raise SystemExit(1)
        thread.join()
        print(f"{done[0]} kills in {fits} fits, {time.perf_counter() - began:.0f} s: no hang, no other bits")


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    usual = {
        "sweep": {"cells": 3_000_000, "workers": 4, "rank": 20, "rounds": 5, "sweeps": 6},
        "terms": {"workers": 4},
        "kill": {"cells": 300_000, "workers": 4, "kills": 30, "seed": 0},
    }
    for name, options in usual.items():
        command = commands.add_parser(name)
        for option, value in options.items():
            command.add_argument(f"--{option}", type=int, default=value)
    given = vars(parser.parse_args())
    command = given.pop("command")
    if command == "terms":
        terms(**given)
        return
    with tempfile.TemporaryDirectory() as folder:
        (sweep if command == "sweep" else kill)(Path(folder), **given)


if __name__ == "__main__":
    main()
