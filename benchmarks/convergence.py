"""Time until a fit is within 1e-6 of its best ELBO: accelerated and Algorithm 1, from the same starts.

Run as ``python -m benchmarks.convergence`` from the root of the project; about five minutes. With ``--optima`` it asks
instead whether acceleration ends at worse optima, over 20 starts.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import pltf
import pltf.datasets

PAPER = pltf.Gamma(0.5, 10.0)
CLOSE = 1e-6
PATIENCE = 30.0  # seconds for one run
SWEEPS = 40_000
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "convergence.svg"


@dataclass(frozen=True)
class Case:
    name: str
    model: pltf.Model
    data: Any


@dataclass(frozen=True)
class Trace:
    """Bounds and seconds after each sweep."""

    bounds: np.ndarray
    seconds: np.ndarray

    def reached(self, bound: float) -> int | None:
        """Number of the first sweep close to an ELBO."""
        close = np.flatnonzero(self.bounds >= bound - CLOSE * abs(bound))
        return int(close[0]) if close.size else None


def cases() -> Iterator[Case]:
    """The six problems."""
    for missing in (0.4, 0.8):
        model = pltf.cp(rank=7)
        X = pltf.datasets.draw(model, (50, 50, 50), seed=3).counts["X"]
        yield Case(f"CP 50^3 R=7, {missing:.0%} missing", model, pltf.observe(X, pltf.holdout(X, missing)))
    model = pltf.tucker(ranks=(3, 3, 2))
    X = pltf.datasets.draw(model, (30, 30, 30), seed=3).counts["X"]
    yield Case("Tucker 30^3 (3, 3, 2), 40% missing", model, pltf.observe(X, pltf.holdout(X, 0.4)))
    yield from _uclaf()
    yield Case("NMF 2000x1000 R=10, listed", pltf.nmf(rank=10), _listed(pltf.nmf(rank=10), (2000, 1000)))
    yield Case("CP 500x400x30 R=5, listed", pltf.cp(rank=5), _listed(pltf.cp(rank=5), (500, 400, 30)))


def _uclaf() -> Iterator[Case]:
    """The paper's data, if available."""
    try:
        X = pltf.datasets.uclaf().X
    except pltf.PltfError as error:
        print(f"without UCLAF: {error}")
        return
    yield Case("UCLAF CP R=20, 40% missing", pltf.cp(rank=20), pltf.observe(X, pltf.holdout(X, 0.4)))


def _listed(model: pltf.Model, shape: tuple[int, ...]) -> pltf.Observation:
    """Mostly zeros: factors with a small shape and a small mean."""
    prior = pltf.Gamma(shape=0.1, mean=0.2)
    X = pltf.datasets.draw(model, shape, prior=prior, seed=3).counts["X"]
    return pltf.observe((np.argwhere(X), X[X > 0]), shape=shape)


def trace(case: Case, seed: int, accelerate: bool) -> Trace:
    """One run, until the ELBO stops increasing or the maximum number of sweeps is done."""
    began, bounds, seconds = time.perf_counter(), [], []

    def tell(sweep: pltf.Sweep) -> bool:
        bounds.append(sweep.bound)
        seconds.append(time.perf_counter() - began)
        return seconds[-1] > PATIENCE

    options: Any = {"max_iter": SWEEPS, "tol": 0, "seed": seed, "progress": False}
    case.model.fit(case.data, prior=PAPER, accelerate=accelerate, callback=tell, **options)
    return Trace(np.asarray(bounds), np.asarray(seconds))


def compare(case: Case, seed: int) -> tuple[Trace, Trace, list[str], float | None]:
    """Both runs from one start, a row of the table, and the speed-up by acceleration."""
    fast, slow = trace(case, seed, accelerate=True), trace(case, seed, accelerate=False)
    best = max(fast.bounds.max(), slow.bounds.max())
    n, m = fast.reached(best), slow.reached(best)
    if n is None:
        return fast, slow, [case.name, str(seed), "another optimum", "", "", "", "", ""], None
    sweeps = (m if m is not None else len(slow.bounds) - 1) + 1
    seconds = float(slow.seconds[sweeps - 1])
    more, ratio = "" if m is not None else "> ", seconds / float(fast.seconds[n])
    row = [
        *(case.name, str(seed), f"{n + 1}", f"{more}{sweeps}", f"{fast.seconds[n]:.2f}", f"{more}{seconds:.2f}"),
        *(f"{more}{ratio:.1f}x", f"{best - slow.bounds.max():.3g}"),
    ]
    return fast, slow, row, ratio


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convergence", description=__doc__)
    parser.add_argument("--starts", type=int, default=3, help="starting points of each problem")
    parser.add_argument("--only", default="", help="only problems with this in their name")
    parser.add_argument("--optima", action="store_true", help="compare the optima reached from 20 starts")
    parser.add_argument("--figure", type=Path, default=FIGURE, help="where to draw the traces")
    options = parser.parse_args()
    chosen = [case for case in cases() if options.only in case.name]
    for case in chosen:
        case.model.fit(case.data, prior=PAPER, max_iter=60, tol=0, progress=False)  # compiles
    console = Console(width=None if sys.stdout.isatty() else 150)
    if options.optima:
        _show_optima(chosen, console)
    else:
        _show_speed(chosen, options.starts, options.figure, console)
    return 0


def _show_speed(chosen: list[Case], starts: int, figure: Path, console: Console) -> None:
    table = Table(
        *("problem", "start", "sweeps", "plain", "seconds", "plain", "less time", "plain ends short by (nats)"),
        title=f"To within {CLOSE:g} of the best bound",
    )
    of_problem, traces = [], []
    for case in chosen:
        console.print(f"{case.name} ...")
        ratios = []
        for seed in range(starts):
            fast, slow, row, ratio = compare(case, seed)
            table.add_row(*row)
            ratios += [] if ratio is None else [ratio]
            if seed == 0:
                traces.append((case.name, fast, slow))
        of_problem.append(geometric_mean(ratios))
    console.print(table)
    each = ", ".join(f"{ratio:.1f}" for ratio in of_problem)
    console.print(f"times less, geometric mean of the starts: {each} (wanted: at least 3 each)")
    console.print(f"median of the problems: {median(of_problem):.1f} (wanted: at least 10)")
    _draw(traces, figure)


def _show_optima(chosen: list[Case], console: Console, starts: int = 20, sweeps: int = 2000) -> None:
    table = Table(
        *("problem", "mean gain (nats)", "sd", "higher", "lower", "as good"),
        title=f"Bound of the accelerated fit less that of the plain one, {starts} starts, {sweeps} sweeps at most",
    )
    for case in chosen:
        console.print(f"{case.name} ...")
        bounds = np.array([[_bound(case, seed, sweeps, fast) for fast in (True, False)] for seed in range(starts)])
        gain, near = bounds[:, 0] - bounds[:, 1], CLOSE * np.abs(bounds).max(axis=1)
        counted = [(gain > near).sum(), (gain < -near).sum(), (np.abs(gain) <= near).sum()]
        table.add_row(case.name, f"{gain.mean():.2f}", f"{gain.std():.2f}", *map(str, counted))
    console.print(table)


def _bound(case: Case, seed: int, sweeps: int, accelerate: bool) -> float:
    """The final ELBO of a fit with many sweeps."""
    options: Any = {"max_iter": sweeps, "tol": 0, "seed": seed, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pltf.ConvergenceWarning)  # a fall by rounding ends it: fine here
        return case.model.fit(case.data, prior=PAPER, accelerate=accelerate, **options).bound


def _draw(traces: list[tuple[str, Trace, Trace]], figure: Path) -> None:
    """Plot the distance of each run to the best ELBO against time."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    panels, axes = plt.subplots(2, 3, figsize=(11, 6), layout="constrained", squeeze=False)
    for panel, (name, fast, slow) in zip(axes.flat, traces, strict=False):
        best = max(fast.bounds.max(), slow.bounds.max())
        for run, label, colour in ((slow, "Algorithm 1", "tab:gray"), (fast, "accelerated", "tab:blue")):
            gap = np.maximum((best - run.bounds) / abs(best), 1e-12)
            panel.loglog(run.seconds, gap, label=label, color=colour)
        panel.axhline(CLOSE, color="black", linewidth=0.8, linestyle=":")
        panel.set_title(name, fontsize=9)
        panel.set_ylim(1e-10, 1)
    for panel in axes[-1]:
        panel.set_xlabel("seconds")
    for panel in axes[:, 0]:
        panel.set_ylabel("bound short of the best, relative")
    axes[0, 0].legend(frameon=False)
    figure.parent.mkdir(parents=True, exist_ok=True)
    panels.savefig(figure)


if __name__ == "__main__":
    sys.exit(main())
