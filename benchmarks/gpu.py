"""Sweeps on a GPU beside the least that the card needs: ``make bench-gpu``, or ``python -m benchmarks.gpu PROBLEM``.

Times are differences of two fits that differ in their sweeps alone, so neither compiling nor copying counts. The floor
is what the cells of a sweep take to be read once, or its multiplications to be done, whichever is more. ``--small``
cuts all problems down until any machine takes them, to see that they run.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import pltf
import pltf.datasets

BANDWIDTH, FLOPS = 4.25e12, 6.7e13  # of an H200: bytes a second as measured, float32 operations by its data sheet


@dataclass(frozen=True)
class Problem:
    """A model, its data, options of the fit, and the numbers of sweeps whose times are compared."""

    model: pltf.Model
    X: Any
    options: dict[str, Any]
    sweeps: tuple[int, int] = (10, 210)


def array(size: int, rank: int, missing: float = 0.0, seed: int = 0) -> Any:
    """CP counts of a cube, as float32 if some of them are missing."""
    drawn = pltf.datasets.draw(pltf.cp(rank=rank), (size,) * 3, prior=pltf.Gamma(0.5, 1.0), seed=seed)
    X = drawn.counts["X"].astype(np.float32)
    if missing:
        X[np.random.default_rng(seed).random(X.shape, dtype=np.float32) < missing] = np.nan
    return X


def listed(shape: Sequence[int], cells: int, seed: int = 0) -> pltf.Observation:
    """So many cells at random, more of them at low positions, as real lists have."""
    rng = np.random.default_rng(seed)
    coords = np.stack([(size * rng.random(cells, dtype=np.float32) ** 2.5).astype(np.int64) for size in shape], axis=1)
    coords = np.minimum(coords, np.array(shape) - 1)
    return pltf.observe((coords, rng.integers(1, 6, cells)), shape=tuple(shape), duplicates="sum")


def cube(small: bool) -> int:
    """The side of dense problems."""
    return 20 if small else 500


def dense(rank: int, missing: float = 0.0) -> Callable[[bool], Problem]:
    """Plain sweeps of CP over a cube."""
    options: dict[str, Any] = {"dtype": "float32", "accelerate": False}
    return lambda small: Problem(pltf.cp(rank=rank), array(cube(small), rank, missing), options)


def sparse(shape: Sequence[int], cells: float, rank: int = 20) -> Callable[[bool], Problem]:
    """Accelerated sweeps of CP over a list."""

    def made(small: bool) -> Problem:
        cut = 1e4 if small else 1.0
        sizes = [max(int(size / cut), 5) for size in shape]
        model = pltf.cp(rank=rank) if len(shape) > 2 else pltf.nmf(rank=rank)
        return Problem(model, listed(sizes, int(cells / cut)), {"dtype": "float32"}, (5, 25))

    return made


def tucker(small: bool) -> Problem:
    """Plain sweeps of a Tucker model over a cube."""
    side, rank = (12, 3) if small else (200, 10)
    model = pltf.tucker(ranks=(rank,) * 3)
    X = np.random.default_rng(0).poisson(1.0, (side,) * 3).astype(np.float32)
    return Problem(model, X, {"dtype": "float32", "accelerate": False})


PROBLEMS: dict[str, Callable[[bool], Problem]] = {
    "cp-500-7": dense(7),
    "cp-500-7-holes": dense(7, 0.4),
    "cp-500-20": dense(20),
    "tucker-200": tucker,
    "list-1e8": sparse((10**6, 5 * 10**5, 10**3), 1e8),
    "nmf-33e6": sparse((10**6, 3 * 10**4), 3.3e7),
    "list-1e9": sparse((10**7, 10**6, 5 * 10**3), 1e9),
}
USUAL = [name for name in PROBLEMS if name != "list-1e9"]  # that takes a quarter of an hour on the host


def seconds(problem: Problem, device: str) -> float:
    """Of a sweep."""

    def fit(sweeps: int) -> float:
        began = time.perf_counter()
        problem.model.fit(
            problem.X, device=device, tol=0, max_iter=sweeps, dispersion=None, keep_data=False, **problem.options
        )
        return time.perf_counter() - began

    few, many = problem.sweeps
    fit(2)  # compiles
    return (fit(many) - fit(few)) / (many - few)


def floor(problem: Problem) -> tuple[float, float]:
    """Bytes and multiplications of the cells of a sweep."""
    plan = problem.model.plan(problem.X, dtype="float32")
    (one,) = plan.equations
    facts = one.task.facts
    if plan.engine == "dense":
        return facts.cells * (4 + (facts.missing > 0)), 3 * one.task.tree.flops(one.task.sizes)
    modes = len(one.task.shape)
    return facts.positive * modes * (4 * (modes - 1) + 4), facts.positive * one.task.rank * 2 * modes * modes


def search(small: bool, device: str) -> float:
    """Seconds of a search of 90 fits to convergence, CP 50^3 of order 7, 40 % missing."""
    side = 12 if small else 50
    X, orders = array(side, 7, 0.4), range(2, 4) if small else range(2, 11)
    pltf.select(pltf.cp(rank=1), X, r=[2], restarts=1, criterion="bound", device=device, dispersion=None)
    began = time.perf_counter()
    pltf.select(pltf.cp(rank=1), X, r=orders, restarts=10, criterion="bound", device=device, dispersion=None)
    return time.perf_counter() - began


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("problems", nargs="*", choices=[*PROBLEMS, "search", []], help="default: all but list-1e9")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="the same problems, cut down")
    given = parser.parse_args()
    table = Table("problem", "sweep", "bytes", "floor", "times the floor", title=f"device {given.device}")
    console = Console(width=120)
    for name in given.problems or [*USUAL, "search"]:
        if name == "search":
            table.add_row("search of 90 fits", f"{search(given.small, given.device):.2f} s in all", "", "", "")
            continue
        problem = PROBLEMS[name](given.small)
        measured, (moved, operations) = seconds(problem, given.device), floor(problem)
        least = max(moved / BANDWIDTH, operations / FLOPS)
        row = (f"{1e3 * measured:.3g} ms", f"{moved:.3g}", f"{1e3 * least:.3g} ms", f"{measured / least:.3g}")
        table.add_row(name, *row)
        console.print(name, *row)
        assert math.isfinite(measured)
    console.print(table)


if __name__ == "__main__":
    main()
