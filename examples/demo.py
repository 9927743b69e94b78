"""Find the number of components of a count tensor, and predict held-out cells.

Draws a 50x50x50 count tensor from a CP model with 4 components, holds out 40 % of its cells, chooses among 2 to 6
components by the ELBO, and predicts the held-out cells.

    python examples/demo.py [--size 50] [--restarts 3] [--out demo-output]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sklearn.metrics import mean_poisson_deviance

import pltf
import pltf.datasets

TRUE_ORDER, ORDERS, HIDDEN = 4, range(2, 7), 0.4


def main(size: int, restarts: int, out: Path) -> None:
    console = Console()
    began = time.perf_counter()
    model = pltf.cp(rank=TRUE_ORDER)
    drawn = pltf.datasets.draw(model, (size,) * 3, prior=pltf.Gamma(shape=0.5, mean=1.0), seed=1)
    X = drawn.counts["X"]
    keep = pltf.holdout(X, HIDDEN, seed=1)
    console.print(f"data     {pltf.observe(X, keep)!r}, mean {X.mean():.2f}, true order {TRUE_ORDER}", soft_wrap=True)

    found = pltf.select(model, X, mask=keep, r=ORDERS, restarts=restarts, criterion="bound")
    console.print(summary_table(found))
    console.print(repr(found), markup=False, soft_wrap=True)
    fit = found.best_fit
    report_hidden(fit, X, drawn.rates["X"], ~keep, console)
    console.print(components_table(fit))
    console.print(f"figure   {draw_curve(found, out)}")
    console.print(f"time     {time.perf_counter() - began:.1f} s in all")


def summary_table(found: pltf.Selection) -> Table:
    table = Table(title="Bounds, in nats")
    for heading in ("r", "best", "gap", "sd", "agree", "dropped"):
        table.add_column(heading, justify="right", no_wrap=True)
    for _, row in found.summary().iterrows():
        best = row["winner"]
        table.add_row(
            f"{row['r']} <-" if best else f"{row['r']}   ",
            f"{row['best']:.1f}",
            f"{row['gap']:.1f}",
            f"{row['sd']:.1f}",
            f"{row['agree']:.0%}",
            str(row["dropped"]),
            style="bold green" if best else None,
        )
    return table


def report_hidden(fit: pltf.Fit, X: np.ndarray, rate: np.ndarray, hidden: np.ndarray, console: Console) -> None:
    """Compare the predictions of held-out cells with their true counts and rates."""
    predicted = fit.mean(at=hidden)
    counts, truth = X[hidden], rate[hidden]
    console.print(
        f"hidden   {predicted.size:,} cells predicted; correlation with the true rates "
        f"{np.corrcoef(predicted, truth)[0, 1]:.4f}, with the counts {np.corrcoef(predicted, counts)[0, 1]:.4f}\n"
        f"         mean deviance {mean_poisson_deviance(counts, predicted):.4f}; "
        f"the true rates have {mean_poisson_deviance(counts, truth):.4f}, "
        f"the mean count {mean_poisson_deviance(counts, np.full(counts.shape, X[~hidden].mean())):.4f}",
        soft_wrap=True,
    )


def components_table(fit: pltf.Fit) -> Table:
    found = fit.components()
    table = Table("component", "counts explained", "share", *map(escape, found.columns[2:]), title="Largest components")
    for component, row in found.iterrows():
        entries = [", ".join(map(str, positions)) for positions in row[2:]]
        table.add_row(str(component), f"{row['mass']:,.0f}", f"{row['share']:.1%}", *entries)
    return table


def draw_curve(found: pltf.Selection, out: Path) -> Path:
    matplotlib.use("agg")
    out.mkdir(parents=True, exist_ok=True)
    path = out / "bound.png"
    found.plot().figure.savefig(path, dpi=150)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=50, help="cells along each of the three modes (default 50)")
    parser.add_argument("--restarts", type=int, default=3, help="random restarts for each order (default 3)")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="folder for the figure")
    arguments = parser.parse_args()
    main(arguments.size, arguments.restarts, arguments.out)
