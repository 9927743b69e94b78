"""Coverage of 90 % intervals on data drawn from the model, for Gibbs sampling and VB, and how well chains mix.

    python -m experiments.sampled [number of data sets]

Rates: the share of true rates in their intervals. Counts: the share of hidden counts in theirs. Intervals of counts
often contain more than their level, because counts are whole numbers; ``exact`` breaks ties at their ends at random.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pltf
import pltf.datasets

Array = NDArray[Any]

LEVEL, HIDDEN, RESTARTS = 0.9, 0.2, 3
PRIOR = pltf.Gamma(0.5, 1.0)  # of the factors


@dataclass(frozen=True)
class Case:
    """A model and the shape of its tensor."""

    model: pltf.Model
    shape: tuple[int, ...]


CASES: Mapping[str, Case] = {
    "NMF R=5, 40x30": Case(pltf.nmf(rank=5), (40, 30)),
    "CP R=3, 20x18x16": Case(pltf.cp(rank=3), (20, 18, 16)),
    "CP R=7, 20x18x16": Case(pltf.cp(rank=7), (20, 18, 16)),
    "CP R=12, 20x18x16": Case(pltf.cp(rank=12), (20, 18, 16)),
    "Tucker 3x3x2, 20x18x16": Case(pltf.tucker(ranks=(3, 3, 2)), (20, 18, 16)),
}


def measured(case: Case, seed: int) -> dict[str, float]:
    """Coverage of both methods for one data set, and effective draws per sweep."""
    drawn = pltf.datasets.draw(case.model, case.shape, prior=PRIOR, seed=seed)
    X, truth = drawn.counts["X"], drawn.rates["X"]
    mask = pltf.holdout(X, HIDDEN, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pltf.ConvergenceWarning)
        vb = case.model.fit(X, mask=mask, restarts=RESTARTS, seed=seed, progress=False)
        fit = case.model.fit(X, mask=mask, method="gibbs", init=vb, seed=seed, progress=False)
    found = {f"{name} {what}": value for name, one in (("Gibbs", fit), ("VB", vb))
             for what, value in coverage(one, X, truth, ~mask, seed).items()}  # fmt: skip
    table, (chains, draws) = fit.diagnostics(), fit.draws[next(iter(fit.draws))].shape[:2]
    for which in ("median", "worst"):
        row = table.loc[f"rates of X, {which}"]
        found |= {f"R-hat, {which}": row["rhat"], f"effective draws a sweep, {which}": row["ess"] / (chains * draws)}
    return found


def coverage(fit: pltf.Fit, X: Array, truth: Array, hidden: Array, seed: int) -> dict[str, float]:
    """The shares of rates and of counts in their intervals."""
    low, high = fit.interval(level=LEVEL, progress=False)
    held = (low <= truth) & (truth <= high)
    least, most = fit.interval(at=hidden, level=LEVEL, counts=True, progress=False)
    x = X[hidden]
    upper = fit.surprise(hidden, x, progress=False)
    lower = fit.surprise(hidden, x, tail="lower", progress=False)
    place = 1 - upper + np.random.default_rng(seed).random(x.size) * (upper + lower - 1)
    tail = (1 - LEVEL) / 2
    return {
        "rates, hidden": float(held[hidden].mean()),
        "rates, observed": float(held[~hidden].mean()),
        "counts": float(((least <= x) & (x <= most)).mean()),
        "counts, exact": float(((place > tail) & (place < 1 - tail)).mean()),
    }


def main(runs: int = 10) -> None:
    """Print means over the data sets."""
    for name, case in CASES.items():
        rows = [measured(case, seed) for seed in range(runs)]
        print(name)
        for what in rows[0]:
            values = np.array([row[what] for row in rows])
            print(f"  {what:<34} {values.mean():.3f} ({values.min():.3f} to {values.max():.3f})", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
