"""Sweeps and seconds to come within 1e-6 of the best bound: accelerated against Algorithm 1, from the same starts.

Run as ``python -m benchmarks.convergence`` from the root of the project.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import pltf
import pltf.datasets

CLOSE = 1e-6
PATIENCE = 60.0  # seconds for one run


@dataclass(frozen=True)
class Case:
    name: str
    model: pltf.Model
    data: Any


def cases() -> Iterator[Case]:
    for missing in (0.4, 0.8):
        model = pltf.cp(rank=7)
        X = pltf.datasets.draw(model, (50, 50, 50), seed=3).counts["X"]
        yield Case(f"CP 50^3 R=7, {missing:.0%} missing", model, pltf.observe(X, pltf.holdout(X, missing)))
    model = pltf.tucker(ranks=(3, 3, 2))
    X = pltf.datasets.draw(model, (30, 30, 30), seed=3).counts["X"]
    yield Case("Tucker 30^3 (3, 3, 2), 40% missing", model, pltf.observe(X, pltf.holdout(X, 0.4)))
    yield Case("NMF 2000x1000 R=10, listed", pltf.nmf(rank=10), _listed(pltf.nmf(rank=10), (2000, 1000)))
    yield Case("CP 500x400x30 R=5, listed", pltf.cp(rank=5), _listed(pltf.cp(rank=5), (500, 400, 30)))


def _listed(model: pltf.Model, shape: tuple[int, ...]) -> pltf.Observation:
    """Mostly zeros: factors with a small shape and a small mean."""
    prior = pltf.Gamma(shape=0.1, mean=0.2)
    X = pltf.datasets.draw(model, shape, prior=prior, seed=3).counts["X"]
    return pltf.observe((np.argwhere(X), X[X > 0]), shape=shape)


def trace(case: Case, accelerate: bool) -> tuple[np.ndarray, np.ndarray]:
    """Bounds and seconds after each sweep."""
    began, bounds, seconds = time.perf_counter(), [], []

    def tell(sweep: pltf.Sweep) -> bool:
        bounds.append(sweep.bound)
        seconds.append(time.perf_counter() - began)
        return seconds[-1] > PATIENCE

    case.model.fit(case.data, max_iter=20_000, tol=0, accelerate=accelerate, callback=tell, progress=False)
    return np.asarray(bounds), np.asarray(seconds)


def main() -> None:
    console = Console(width=120)
    table = Table("problem", "sweeps", "plain", "fewer", "seconds", "plain", "less", "plain ends short by (nats)")
    for case in cases():
        console.print(f"{case.name} ...")
        case.model.fit(case.data, max_iter=2, tol=0, progress=False)  # compiles
        runs = {accelerate: trace(case, accelerate) for accelerate in (True, False)}
        best = max(bounds.max() for bounds, _ in runs.values())
        reached = {key: _first(bounds, best) for key, (bounds, _) in runs.items()}
        fast, slow = reached[True], reached[False]
        at = {key: runs[key][1][n] if n is not None else None for key, n in reached.items()}
        last = len(runs[False][0]), runs[False][1][-1]
        table.add_row(
            case.name,
            _text(fast, "{:d}", shift=1),
            _text(slow, "{:d}", shift=1) if slow is not None else f"> {last[0]}",
            "" if fast is None else f"{'> ' if slow is None else ''}{((slow or last[0] - 1) + 1) / (fast + 1):.0f}x",
            _text(at[True], "{:.2f}"),
            _text(at[False], "{:.2f}") if slow is not None else f"> {last[1]:.1f}",
            "" if at[True] is None else f"{'> ' if slow is None else ''}{(at[False] or last[1]) / at[True]:.0f}x",
            f"{best - runs[False][0].max():.3g}",
        )
    console.print(table)


def _first(bounds: np.ndarray, best: float) -> int | None:
    close = np.flatnonzero(bounds >= best - CLOSE * abs(best))
    return int(close[0]) if close.size else None


def _text(value: Any, form: str, shift: int = 0) -> str:
    return "not reached" if value is None else form.format(value + shift)


if __name__ == "__main__":
    main()
