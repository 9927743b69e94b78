"""What dispersion does for predictions of hidden cells of real data: the table of docs/prediction.md.

python -m experiments.dispersion [--masks 3]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

import pltf
from experiments.common import Array
from experiments.trust.sets import digits, flights, les_miserables, reuters

LEVEL, ALARM = 0.9, 1e-4


SETS: dict[str, tuple[Callable[[], Array], pltf.Model]] = {
    "flights": (flights, pltf.cp(rank=8)),
    "digits": (digits, pltf.nmf(rank=16)),
    "Reuters": (reuters, pltf.nmf(rank=16)),
    "Les Miserables": (les_miserables, pltf.nmf(rank=5)),
}


def measured(fit: pltf.Fit, X: Array, at: NDArray[np.intp]) -> tuple[float, float, float, float]:
    """Log-likelihood a cell, coverage of count intervals, of those above zero, share of alarms."""
    x = X[tuple(at.T)]
    low, high = fit.interval(at, LEVEL, counts=True, draws=300, progress=False)
    inside = (low <= x) & (x <= high)
    alarms = fit.surprise(at, x, draws=100, progress=False) < ALARM
    log_prob = fit.log_prob(at, x, draws=100, progress=False)
    return float(log_prob.mean()), float(inside.mean()), float(inside[x > 0].mean()), float(alarms.mean())


def main() -> None:
    """Print a row for each set and share of hidden cells."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--masks", type=int, default=2)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--dispersion", default="auto")
    masks, chosen, ask = (getattr(parser.parse_args(), name) for name in ("masks", "sets", "dispersion"))
    warnings.simplefilter("ignore")
    print("set, hidden: log-likelihood, coverage, coverage above zero, alarms; Poisson -> with dispersion")
    for name in chosen:
        load, model = SETS[name]
        X = load()
        for hidden in (0.2, 0.5, 0.8):
            rows, said = [], ""
            for seed in range(masks):
                mask = pltf.holdout(X, hidden, seed=seed)
                at = np.argwhere(~mask)
                at = at[np.random.default_rng(seed).permutation(len(at))[:8000]]
                fit = model.fit(X, mask=mask, seed=seed, progress=False, dispersion=ask)
                rows.append(measured(replace(fit, dispersion={}), X, at) + measured(fit, X, at))
                said = str(fit.dispersion["X"])
            ll, cover, above, alarm, ll2, cover2, above2, alarm2 = np.mean(rows, axis=0)
            changed = f"{ll:.3f} -> {ll2:.3f}  {cover:.1%} -> {cover2:.1%}  {above:.1%} -> {above2:.1%}"
            print(f"{name:15}{hidden:.0%}  {changed}  {alarm:.3%} -> {alarm2:.3%}  {said}", flush=True)


if __name__ == "__main__":
    main()
