"""Figure 3: the order of a small and of a large tensor, and the time of 2000 iterations."""

from __future__ import annotations

import time

import pltf
from experiments.common import Json, bar, counted, quietly
from experiments.order import TRUE_ORDER, drawn, searched
from experiments.settings import PAPER, Settings


def run(settings: Settings) -> Json:
    """The ELBO of every order at both sizes, with nothing missing, and seconds for a number of plain iterations."""
    small, large = settings.small, settings.large
    sizes = [
        _searches(small, settings.runs, settings.order_restarts, "float64", settings.synthetic_orders),
        _searches(large, settings.large_runs, settings.large_restarts, "float32", settings.synthetic_orders),
    ]
    times = [
        _timed(small, "float64", settings.timings, settings.sweeps),
        _timed(small, "float32", settings.timings, settings.sweeps),
        _timed(large, "float32", 1, settings.sweeps),
    ]
    return {"sizes": sizes, "times": times, **counted(sizes)}


def _searches(edge: int, runs: int, restarts: int, dtype: str, orders: tuple[int, ...]) -> Json:
    """One tensor at a time: drawing a large one takes much memory."""
    found = [
        searched(drawn(edge, run, dtype), orders, restarts, run, prior=PAPER, dtype=dtype)
        for run in bar(range(runs), f"orders of {edge}^3", runs)
    ]
    return {
        "edge": edge,
        "dtype": dtype,
        "restarts": restarts,
        "orders": orders,
        "best": [one["best"] for one in found],
        "bounds": [one["bounds"] for one in found],
        **counted(found),
    }


def _timed(edge: int, dtype: str, repeats: int, sweeps: int) -> Json:
    """Seconds for a number of iterations of exactly Algorithm 1, at the true order, without compilation."""
    X, model = drawn(edge, 0, dtype), pltf.cp(rank=TRUE_ORDER)

    def seconds(sweeps: int, seed: int) -> float:
        began = time.perf_counter()
        model.fit(X, prior=PAPER, dtype=dtype, max_iter=sweeps, tol=0, accelerate=False, seed=seed, progress=False)
        return time.perf_counter() - began

    with quietly():
        seconds(2, 0)
        taken = [
            seconds(sweeps, run) for run in bar(range(repeats), f"{sweeps} iterations of {edge}^3, {dtype}", repeats)
        ]
    return {"edge": edge, "dtype": dtype, "sweeps": sweeps, "seconds": taken}
