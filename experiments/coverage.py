"""How often intervals of rates contain the true rate, on data drawn from the model.

``python -m experiments.coverage [DRAWS]`` prints the table of docs/prediction.md: models, counts and missing shares,
with and without the spread of predictions.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

import pltf
import pltf.datasets
from experiments.common import Array, Json, bar, counted, fitted, starts
from experiments.settings import Settings

RANK = 3
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # nominal levels of the intervals
KINDS_OF_CELLS = ("hidden", "observed")
WITH_SPREAD, ALONE = "with spread", "posterior alone"  # the intervals of pltf, and those of q alone
MISSING = (0.1, 0.4, 0.8, 0.95)
RESTARTS = 5


def run(settings: Settings) -> Json:
    """The share of true rates in their intervals, with and without spread, for hidden and for observed cells."""
    rows = []
    for missing in MISSING:
        held = [
            _covered(missing, number, settings)
            for number in bar(range(settings.runs), f"intervals, {missing:.0%} missing", settings.runs)
        ]
        shares = {
            width: {kind: [one[width][kind] for one in held] for kind in KINDS_OF_CELLS}
            for width in (WITH_SPREAD, ALONE)
        }
        rows.append({"missing": missing, **shares, **counted(held)})
    return {"edge": settings.coverage_edge, "rank": RANK, "levels": LEVELS, "rows": rows, **counted(rows)}


def _covered(missing: float, run: int, settings: Settings) -> Json:
    """Coverage at every level, for one draw of the data."""
    model = pltf.cp(rank=RANK)
    drawn = pltf.datasets.draw(model, (settings.coverage_edge,) * 3, prior=pltf.Gamma(0.5, 1.0), seed=run)
    X, truth = drawn.counts["X"], drawn.rates["X"]
    keep = pltf.holdout(X, missing, seed=run)
    fit = fitted(model, X, mask=keep, restarts=RESTARTS, run=run)
    cells = dict(zip(KINDS_OF_CELLS, (_some(~keep, settings, run), _some(keep, settings, run)), strict=True))
    held = {
        width: {kind: [_share(one, truth, at, level, settings) for level in LEVELS] for kind, at in cells.items()}
        for width, one in ((WITH_SPREAD, fit), (ALONE, replace(fit, spread=1.0)))
    }
    return {**held, **starts(fit)}


def _some(among: Array, settings: Settings, run: int) -> tuple[Array, ...]:
    """Random cells, as index arrays."""
    cells = np.argwhere(among)
    chosen = np.random.default_rng(run).choice(len(cells), min(settings.coverage_cells, len(cells)), replace=False)
    return tuple(cells[chosen].T)


def _share(fit: pltf.Fit, truth: Array, at: tuple[Array, ...], level: float, settings: Settings) -> float:
    low, high = fit.interval(at=at, level=level, draws=settings.coverage_draws, progress=False)
    return float(np.mean((low <= truth[at]) & (truth[at] <= high)))


# -- models, with and without the spread of predictions -----------------------------------------

CP_EDGE = (20, 20, 20)
KINDS: dict[str, tuple[pltf.Model, tuple[int, ...], float, float]] = {  # model, shape, mean count, missing share
    "NMF R=2, 150x60": (pltf.nmf(rank=2), (150, 60), 2.0, 0.2),
    "NMF R=5, 60x50, mean 0.3": (pltf.nmf(rank=5), (60, 50), 0.3, 0.2),
    "NMF R=5, 60x50": (pltf.nmf(rank=5), (60, 50), 3.0, 0.2),
    "NMF R=5, 60x50, mean 30": (pltf.nmf(rank=5), (60, 50), 30.0, 0.2),
    "NMF R=12, 150x60, mean 10": (pltf.nmf(rank=12), (150, 60), 10.0, 0.2),
    "NMF R=12, 100x60, mean 2": (pltf.nmf(rank=12), (100, 60), 2.0, 0.2),
    "CP R=3": (pltf.cp(rank=3), CP_EDGE, 3.0, 0.2),
    "CP R=7": (pltf.cp(rank=7), CP_EDGE, 3.0, 0.2),
    "CP R=7, mean 0.3": (pltf.cp(rank=7), CP_EDGE, 0.3, 0.2),
    "CP R=7, mean 30": (pltf.cp(rank=7), CP_EDGE, 30.0, 0.2),
    "CP R=7, 80 % missing": (pltf.cp(rank=7), CP_EDGE, 3.0, 0.8),
    "CP R=12": (pltf.cp(rank=12), CP_EDGE, 3.0, 0.2),
    "CP R=6 fitted, 3 true": (pltf.cp(rank=6), CP_EDGE, 3.0, 0.2),
    "Tucker 3x3x2": (pltf.tucker(ranks=(3, 3, 2)), CP_EDGE, 3.0, 0.2),
    "Tucker 2x3x2, 14x12x10": (pltf.tucker(ranks=(2, 3, 2)), (14, 12, 10), 5.0, 0.2),
}
TRUE = {"CP R=6 fitted, 3 true": pltf.cp(rank=3)}


def spread_table(draws: int) -> str:
    """A row for each kind of data: coverage of 90 % intervals, for observed and hidden cells, by size of the rate."""
    head = "| data | independent: observed | hidden | with spread: observed | hidden | small, middle, large rates |"
    rows = [head, "|---|---|---|---|---|---|"]
    for kind in KINDS:
        held = np.mean([_held(kind, seed) for seed in range(draws)], axis=0)
        shares = [f"{share:.0%}".replace("%", " %") for share in held]
        rows.append(f"| {kind} | {' | '.join(shares[:4])} | {', '.join(shares[4:])} |")
        print(rows[-1], file=sys.stderr, flush=True)
    return "\n".join(rows)


def _held(kind: str, seed: int) -> Array:
    """Coverage without and with spread, for observed and hidden cells; with spread, also by thirds of the rates."""
    model, shape, mean, missing = KINDS[kind]
    rates = pltf.datasets.draw(TRUE.get(kind, model), shape, prior=pltf.Gamma(0.5, 1.0), seed=seed).rates["X"]
    rates = rates * mean / rates.mean()
    rng = np.random.default_rng(seed)
    X, keep = rng.poisson(rates), rng.random(shape) >= missing
    fit = model.fit(X, mask=keep, restarts=3, seed=seed, progress=False)
    inside = []
    for one in (replace(fit, spread=1.0), fit):
        low, high = one.interval(draws=300, progress=False)
        inside.append((low <= rates) & (rates <= high))
    by_size = np.array_split(np.argsort(fit.mean(progress=False), axis=None), 3)
    halves = [held[among].mean() for held in inside for among in (keep, ~keep)]
    return np.array([*halves, *(inside[1].reshape(-1)[third].mean() for third in by_size)])


if __name__ == "__main__":
    print(spread_table(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
