"""Gap between ELBO and evidence, by the number of components.

Run as ``python -m benchmarks.evidence`` from the root of the project (5 min on two cores): NMF of 1 to 4 components on
6x5 counts that were drawn from two, with the prior that they were drawn from. Prints a table, and draws the means over
the draws as docs/figures/evidence-gap.svg.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import pltf
import pltf.datasets

SHAPE, TRUE_ORDER, ORDERS = (6, 5), 2, (1, 2, 3, 4)
PRIOR = pltf.Gamma(0.5, 1.5)
FIGURE = "docs/figures/evidence-gap.svg"


def measured(draw: int, order: int, runs: int) -> tuple[float, pltf.Evidence]:
    """The best ELBO of ten restarts, and the evidence."""
    model = pltf.nmf(rank=TRUE_ORDER)
    X = pltf.datasets.draw(model, SHAPE, prior=PRIOR, seed=draw).counts["X"]
    with warnings.catch_warnings(action="ignore"):
        fit = pltf.nmf(rank=order).fit(X, prior=PRIOR, restarts=10, dispersion=None, progress=False)
        return fit.bound, fit.evidence(particles=50, runs=runs, threads=1, progress=False)


def figure(bounds: NDArray[np.float64], logs: NDArray[np.float64], errors: NDArray[np.float64]) -> None:
    """Plot ELBO and evidence against the order, relative to the evidence of the true order."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "pltf"
    import matplotlib.pyplot as plt

    reference = ORDERS.index(TRUE_ORDER)
    true = logs[:, [reference]]
    drawn, ax = plt.subplots(figsize=(4.6, 3.2), layout="constrained")
    error = np.sqrt((errors**2 + errors[:, [reference]] ** 2).sum(axis=0)) / len(errors)  # of differences
    error[reference] = 0.0
    ax.errorbar(
        ORDERS, (logs - true).mean(axis=0), error, color="C1", marker="s", capsize=2, label="log evidence, 1 SE"
    )
    ax.plot(ORDERS, (bounds - true).mean(axis=0), "o-", color="C0", label="bound")
    ax.axvline(TRUE_ORDER, color="0.7", linestyle=":", zorder=0)
    ax.set(xlabel="components", ylabel="nats, relative to the evidence\nof two components", xticks=ORDERS)
    ax.legend()
    drawn.savefig(FIGURE, metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2, help="data sets (default 2)")
    parser.add_argument("--runs", type=int, default=8, help="independent runs of each estimate (default 8)")
    asked = parser.parse_args(arguments)
    console, table = Console(width=120), Table("draw", "components", "bound", "log evidence", "SE", "gap")
    found = []
    for draw in range(asked.draws):
        for order in ORDERS:
            bound, evidence = measured(draw, order, asked.runs)
            row = [f"{bound:.2f}", f"{evidence.log:.2f}", f"{evidence.error:.2f}", f"{evidence.log - bound:.2f}"]
            console.print(draw, order, *row)
            table.add_row(str(draw), str(order), *row)
            found.append((bound, evidence.log, evidence.error))
    console.print(table)
    bounds, logs, errors = np.array(found).reshape(asked.draws, len(ORDERS), 3).transpose(2, 0, 1)
    figure(bounds, logs, errors)


if __name__ == "__main__":
    main()
