"""Figure 2: the ELBO against the order, with 40, 60 or 80 % of the cells missing."""

from __future__ import annotations

import pltf
import pltf.datasets
from experiments.common import Array, Json, bar, counted, quietly, search_starts, uclaf_split
from experiments.settings import LEVELS, MAX_ITER, PAPER, TOL, Settings

TRUE_ORDER = 7
PRIORS = {"paper": PAPER, "default": None}


def run(settings: Settings) -> Json:
    """The ELBO of every order on synthetic data and on UCLAF; on UCLAF also with the default prior of pltf."""
    edge = settings.small
    synthetic = [_searches(f"synthetic, {missing:.0%} missing", missing, "paper", settings, edge) for missing in LEVELS]
    uclaf = [
        _searches(f"UCLAF, {prior} prior, {missing:.0%} missing", missing, prior, settings)
        for prior in PRIORS
        for missing in LEVELS
    ]
    return {"edge": edge, "synthetic": synthetic, "uclaf": uclaf, **counted(synthetic + uclaf)}


def drawn(edge: int, run: int, dtype: str = "float64") -> Array:
    """Counts of a CP model of order 7 with factors from Gamma(shape 0.5, mean 1)."""
    model, prior = pltf.cp(rank=TRUE_ORDER), pltf.Gamma(0.5, 1.0)
    return pltf.datasets.draw(model, (edge,) * 3, prior=prior, seed=run).counts["X"].astype(dtype)


def searched(X: Array, orders: tuple[int, ...], restarts: int, run: int, **options: object) -> Json:
    """The best ELBO of every order, and the chosen order."""
    with quietly():
        found = pltf.select(
            pltf.cp(rank=TRUE_ORDER),
            X,
            r=orders,
            restarts=restarts,
            seed=run,
            max_iter=MAX_ITER,
            tol=TOL,
            progress=False,
            **options,  # type: ignore[arg-type]
        )
    best = found.summary().set_index("r")["best"]
    return {"best": found.best["r"], "bounds": [float(best[r]) for r in orders], **search_starts(found)}


def _searches(title: str, missing: float, prior: str, settings: Settings, edge: int = 0) -> Json:
    """One search per run; a search uses all cores."""
    orders = settings.synthetic_orders if edge else settings.uclaf_orders
    found = []
    for run in bar(range(settings.runs), title, settings.runs):
        if edge:
            X = drawn(edge, run)
            keep = pltf.holdout(X, missing, seed=run)
        else:
            X, keep = uclaf_split(missing, run)
        found.append(searched(X, orders, settings.order_restarts, run, mask=keep, prior=PRIORS[prior]))
    return {
        "missing": missing,
        "prior": prior,
        "orders": orders,
        "best": [one["best"] for one in found],
        "bounds": [one["bounds"] for one in found],
        **counted(found),
    }
