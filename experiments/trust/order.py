"""How many components: what each criterion chooses on real data, and what its choice costs on other hidden cells."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import partial
from typing import Any

import pltf
from experiments.common import Json, console, quietly
from experiments.trust import ours, sets
from experiments.trust.sets import RealSet
from experiments.trust.store import Store, complete
from experiments.trust.tasks import Task, task

LEVEL = 0.2  # share of cells that are hidden from every search
RESTARTS = 3
CRITERIA = ("bound", "heldout", "both")


def run(store: Store, quick: bool, masks: int) -> Json:
    """For each set and mask: the hidden log-likelihood at every order, and the orders that were chosen."""
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
            rows.append({"set": one.name, "ranks": list(one.ranks), "masks": found})
    return {"rows": rows, "criteria": list(_criteria())}


def searched(one: RealSet, mask: int) -> Json:
    """One mask of one set."""
    outer = task(one.load(), LEVEL, mask, links=one.links)
    way = next(way for way in reversed(ours.WAYS) if way.takes(one.links) and ours.known(way) and _plain(way))
    (model,) = ours.models(outer.X.ndim, replace(way, pairs=False))
    judged = []
    for rank in one.ranks:
        said = ours.predicted(ours.fits(outer, way, model, rank, "default"), outer).log_prob
        judged.append({"log_likelihood": float(said.mean()), "se": float(said.std(ddof=1) / said.size**0.5)})
    chosen = {name: _chosen(one, outer, ours.MODELS[model](1), way, options) for name, options in _criteria().items()}
    return {"judged": judged, "chosen": chosen}


def _plain(way: ours.Way) -> bool:
    """By variational Bayes, from one start: what a search fits."""
    return "method" not in way.options and way.starts == 1


def _criteria() -> dict[str, dict[str, Any]]:
    """What this version of pltf can choose by."""
    if "criterion" in inspect.signature(pltf.select).parameters:
        return {name: {"criterion": name} for name in CRITERIA}
    return {"bound": {}}


def _chosen(one: RealSet, outer: Task, model: pltf.Model, way: ours.Way, options: dict[str, Any]) -> int:
    likelihood = {name: way.options[name] for name in ("likelihood",) if name in way.options}
    with quietly():
        found = pltf.select(
            model,
            outer.X,
            mask=outer.keep,
            restarts=RESTARTS,
            max_iter=ours.MAX_ITER,
            tol=ours.TOL,
            workers=1,
            progress=False,
            r=one.ranks,
            **likelihood,
            **options,
        )
    return int(found.best["r"])
