"""Time of allocating counts relative to expected counts, by size of the counts: ``python -m benchmarks.allocation``.

Both go through the same list in turns, on one thread; the least processor time of some rounds of each is kept.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

import pltf
from pltf.engines import registry
from pltf.engines.base import Engine
from pltf.engines.plan import Plan, plan_tensor
from pltf.gamma import Array

MODELS = {
    "CP R=20": (pltf.cp(rank=20), (10_000, 8_000, 500)),
    "NMF R=20": (pltf.nmf(rank=20), (50_000, 20_000)),
    "Tucker 5x5x5": (pltf.tucker(ranks=(5, 5, 5)), (1000, 800, 500)),
    "train (4, 4)": (pltf.Model("ia,ajb,bk->ijk", a=4, b=4), (1000, 800, 500)),
}
MEANS = (1.2, 5.0, 100.0, 1e6)
CELLS = 1_000_000
ROUNDS = 5


def allocating(plan: Plan) -> Plan:
    """The plan of a fit that allocates counts."""
    tasks = [replace(e.task, allocates=True) for e in plan.equations]
    return replace(plan, equations=tuple(plan_tensor(task, plan.asked) for task in tasks))


def engine_of(model: pltf.Model, shape: tuple[int, ...], mean: float, cells: int) -> tuple[Engine, dict[str, Array]]:
    """Random cells with positive counts of this mean, and factors of shape 0.5."""
    rng = np.random.default_rng(0)
    coords = np.unique(np.stack([rng.integers(0, size, cells) for size in shape], axis=1), axis=0)
    counts = 1 + rng.poisson(mean - 1, len(coords))
    seen = {"X": pltf.observe((coords, counts), shape=shape)}
    plan = allocating(model.plan(seen, threads=1))
    return registry.build(plan, seen), {name: rng.gamma(0.5, 1.0, size) for name, size in plan.factor_shapes.items()}


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main(cells: int = CELLS) -> None:
    """Print nanoseconds a cell of both passes, and their ratio."""
    for name, (model, shape) in MODELS.items():
        for mean in MEANS:
            engine, factors = engine_of(model, shape, mean, cells)
            passes = partial(engine.counts, factors), partial(engine.allocate, factors, None, (0,))
            times = np.array([[seconds(one) for one in passes] for _ in range(1 + ROUNDS)])[1:].min(axis=0)
            expected, drawn = 1e9 * times / cells
            print(f"{name:<14} mean {mean:<7g} {expected:6.1f} ns {drawn:7.1f} ns {drawn / expected:5.1f}x")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
