"""How often intervals of rates hold the true rate, on data drawn from the model."""

from __future__ import annotations

import numpy as np

import pltf
import pltf.datasets
from experiments.common import Array, Json, bar, counted, fitted, starts
from experiments.settings import Settings

RANK = 3
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # that the intervals claim
MISSING = (0.1, 0.4, 0.8, 0.95)
RESTARTS = 5


def run(settings: Settings) -> Json:
    """The share of true rates within their intervals, for hidden and for observed cells."""
    rows = []
    for missing in MISSING:
        held = [
            _covered(missing, number, settings)
            for number in bar(range(settings.runs), f"intervals, {missing:.0%} missing", settings.runs)
        ]
        shares = {kind: [one[kind] for one in held] for kind in ("hidden", "observed")}
        rows.append({"missing": missing, **shares, **counted(held)})
    return {"edge": settings.coverage_edge, "rank": RANK, "levels": LEVELS, "rows": rows, **counted(rows)}


def _covered(missing: float, run: int, settings: Settings) -> Json:
    """Coverage at every level, for one draw of the data."""
    model = pltf.cp(rank=RANK)
    drawn = pltf.datasets.draw(model, (settings.coverage_edge,) * 3, prior=pltf.Gamma(0.5, 1.0), seed=run)
    X, truth = drawn.counts["X"], drawn.rates["X"]
    keep = pltf.holdout(X, missing, seed=run)
    fit = fitted(model, X, mask=keep, restarts=RESTARTS, run=run)
    cells = {"hidden": _some(~keep, settings, run), "observed": _some(keep, settings, run)}
    held = {kind: [_share(fit, truth, at, level, settings) for level in LEVELS] for kind, at in cells.items()}
    return {**held, **starts(fit)}


def _some(among: Array, settings: Settings, run: int) -> tuple[Array, ...]:
    """Cells at random, as index arrays."""
    cells = np.argwhere(among)
    chosen = np.random.default_rng(run).choice(len(cells), min(settings.coverage_cells, len(cells)), replace=False)
    return tuple(cells[chosen].T)


def _share(fit: pltf.Fit, truth: Array, at: tuple[Array, ...], level: float, settings: Settings) -> float:
    low, high = fit.interval(at=at, level=level, draws=settings.coverage_draws, progress=False)
    return float(np.mean((low <= truth[at]) & (truth[at] <= high)))
