"""Does the plan choose well? Time every way through the data (``python -m benchmarks.ways``).

Seconds are those of the process on one thread, the least of several rounds, for the sums of one sweep: counts of all
factors, and their exposures one after the other. The table says what the plan chose, what would have been best, and how
far the plan's estimates are off.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import pltf
from pltf.data import Observation
from pltf.engines import registry
from pltf.engines.factors import Versioned
from pltf.engines.plan import TensorPlan
from pltf.engines.ways import Way, counts_ways, exposure_ways
from pltf.threads import single_threaded_blas

HOPELESS = 30.0  # times the best estimate: not timed


@dataclass(frozen=True)
class Problem:
    """A model and data of a given density."""

    name: str
    model: pltf.Model
    seen: Observation


def problems(quick: bool) -> Iterator[Problem]:
    """CP, Tucker, trains and the model of NNEinFact's Uber data; dense to sparse, whole to mostly missing."""
    tucker, train = pltf.tucker(ranks=(5, 5, 5)), pltf.Model("ia,ajb,bk->ijk", a=4, b=4)
    drawn: list[tuple[str, pltf.Model, tuple[int, ...], float, float]] = [
        ("CP R=10", pltf.cp(rank=10), (200, 200, 200), 0.001, 0.0),
        ("CP R=10", pltf.cp(rank=10), (200, 200, 200), 0.01, 0.01),
        ("CP R=10", pltf.cp(rank=10), (200, 200, 200), 0.1, 0.1),
        ("CP R=10", pltf.cp(rank=10), (200, 200, 200), 0.5, 0.6),
        ("Tucker 5x5x5", tucker, (150, 150, 150), 0.001, 0.01),
        ("Tucker 5x5x5", tucker, (150, 150, 150), 0.05, 0.1),
        ("Tucker 5x5x5", tucker, (150, 150, 150), 0.5, 0.6),
        ("train (4, 4)", train, (200, 150, 100), 0.01, 0.6),
        ("train (4, 4)", train, (200, 150, 100), 0.2, 0.0),
    ]
    for name, model, shape, density, missing in drawn:
        rng = np.random.default_rng(0)
        small = tuple(size // 4 for size in shape) if quick else shape
        X = rng.poisson(-math.log1p(-density), small).astype(float)
        mask = rng.random(small) >= missing if missing else None
        yield Problem(f"{name}, {density:.1%} above zero, {missing:.0%} missing", model, pltf.observe(X, mask))
    path = Path(os.environ.get("PLTF_DATA", ".")) / "uber.npz"
    if path.is_file() and not quick:
        X = np.load(path)["Y"]
        mask = np.random.default_rng(0).random(X.shape) >= 0.1
        seen = pltf.observe(X.astype(np.float32), mask)
        yield Problem("Uber model r=10 k=6, 10% missing", pltf.Model("wr,hr,dr,ikr,jkr->whdij", r=10, k=6), seen)
        yield Problem("Uber CP R=60, 10% missing", pltf.Model("wr,hr,dr,ir,jr->whdij", r=60), seen)


def seconds(work: Callable[[], Any], rounds: int) -> float:
    """The minimum of several rounds."""
    work()
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def timed(problem: Problem, rounds: int) -> tuple[TensorPlan, dict[str, float], dict[str, float]]:
    """The plan, and the time of each way of counts and of exposures."""
    whole = problem.model.plan(problem.seen, threads=1)
    (plan,) = whole.equations
    rng = np.random.default_rng(1)
    factors = Versioned({name: rng.random(shape) + 0.1 for name, shape in whole.factor_shapes.items()})

    def engine(counts: Way, exposure: Way) -> Any:
        new = replace(whole, equations=(TensorPlan(plan.task, counts, exposure),))
        return registry.build(new, {plan.name: problem.seen})

    def exposures(engine: Any) -> None:
        """As in a sweep: each factor changes before the next one is requested, and valid results are cached."""
        now, fresh = factors, engine.fresh()
        for name in factors:
            fresh.exposure(now, name)
            now = now.updated({name: now[name]})

    by_counts, by_exposure = counts_ways(plan.task), exposure_ways(plan.task)
    some = next(iter(by_exposure.values()))
    counts = {}
    for name, way in _hopeful(by_counts):
        built = engine(way, some)
        counts[name] = seconds(partial(built.counts, factors), rounds)
    exposed = {}
    for name, way in _hopeful(by_exposure):
        built = engine(by_counts["sparse"], way)
        exposed[name] = seconds(partial(exposures, built), rounds)
    return plan, counts, exposed


def _hopeful(ways: dict[str, Way]) -> Iterator[tuple[str, Way]]:
    best = min(way.seconds for way in ways.values())
    return ((name, way) for name, way in ways.items() if way.seconds <= HOPELESS * max(best, 1e-4))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small problems, to see that it runs")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print("| problem | way | estimated ms | measured ms | |\n|---|---|---:|---:|---|")
    ratios = []
    for problem in problems(args.quick):
        with single_threaded_blas:
            plan, counts, exposed = timed(problem, args.rounds)
        estimates = (counts_ways(plan.task), exposure_ways(plan.task))
        for kind, chosen, measured, known in zip(
            ("counts", "exposure"), (plan.counts.name, plan.exposure.name), (counts, exposed), estimates, strict=True
        ):
            best = min(measured, key=lambda name: measured[name])
            for name, time_taken in measured.items():
                marks = ("chosen " if name == chosen else "") + ("best" if name == best else "")
                row = f"{1e3 * known[name].seconds:.2f} | {1e3 * time_taken:.2f} | {marks} |"
                print(f"| {problem.name} | {kind}: {name} | {row}", flush=True)
        total = counts[plan.counts.name] + exposed[plan.exposure.name]
        ratios.append(total / (min(counts.values()) + min(exposed.values())))
        print(f"| {problem.name} | **chosen / best** | | {ratios[-1]:.2f} | |", flush=True)
    print(f"\nworst: {max(ratios):.2f} times the best choice")


if __name__ == "__main__":
    main()
