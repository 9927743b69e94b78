"""The number of components chosen by ELBO and held-out cells on real data, and its score on other cells."""

from __future__ import annotations

from functools import partial
from typing import Any

import pltf
from experiments.common import Json, console, quietly
from experiments.trust import ours, sets
from experiments.trust.sets import RealSet
from experiments.trust.store import Store, complete
from experiments.trust.tasks import Task, task

LEVEL = 0.2  # share of cells hidden from every search
RESTARTS, QUICK_RESTARTS = 10, 5
ORDERS = {
    "Les Miserables": (1, 2, 3, 4, 5, 6, 8, 12),
    "Reuters": (8, 16, 24, 32, 40),
    "digits": (8, 12, 16, 24, 32),
    "flights": (4, 8, 12, 16, 24),
    "imports": (1, 2, 3, 4, 6, 8),
}
CRITERIA = ("hidden cells", "bound")


def run(store: Store, quick: bool, masks: int) -> Json:
    """For each data set and mask: the hidden log-likelihood of every order, and the chosen orders."""
    rows = []
    for one in sets.SMALL[:-1] if quick else sets.SETS:
        try:
            one.load()
        except ImportError as error:
            console.print(f"  {one.name} is left out: {error}")
            continue
        keys = [(mask,) for mask in range(masks)]
        found = [row for _, row in complete(store.part(one.name), one.name, partial(searched, one), keys)]
        if found:
            rows.append({"set": one.name, "orders": list(_orders(one)), "masks": found})
    return {"rows": rows}


def _orders(one: RealSet) -> tuple[int, ...]:
    return ORDERS.get(one.name, one.ranks)


def searched(one: RealSet, mask: int) -> Json:
    """One mask of one set."""
    outer = task(one.load(), LEVEL, mask, links=one.links)
    model = (pltf.nmf if outer.X.ndim == 2 else pltf.cp)(rank=1)
    options: dict[str, Any] = {
        "mask": outer.keep,
        "restarts": QUICK_RESTARTS if one.quick else RESTARTS,
        "max_iter": ours.MAX_ITER,
        "tol": ours.TOL,
        "progress": False,
        "likelihood": "bernoulli" if one.links else "poisson",
    }
    with quietly():
        found = pltf.select(model, outer.X, r=_orders(one), workers=1, **options)
        fits = {order: model.resized(r=order).fit(outer.X, threads=1, **options) for order in _orders(one)}
    by_bound = max(found.outcomes, key=lambda outcome: outcome.bound).label["r"]
    return {
        "judged": [_judged(fit, outer) for fit in fits.values()],
        "chosen": {"hidden cells": int(found.best["r"]), "bound": int(by_bound)},
        "weight": float(found.summary().query("winner")["weight"].iloc[0]),
    }


def _judged(fit: pltf.Fit, outer: Task) -> Json:
    said = ours.log_prob([fit], outer)
    return {"log_likelihood": float(said.mean()), "se": float(said.std(ddof=1) / said.size**0.5)}
