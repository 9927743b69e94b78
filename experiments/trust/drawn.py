"""Coverage of 90 % intervals of rates and of counts, on data drawn from the model."""

from __future__ import annotations

from functools import partial

import numpy as np

import pltf
import pltf.datasets
from experiments.common import Json, quietly
from experiments.trust import measures, ours
from experiments.trust.store import Store, complete
from experiments.trust.tasks import QUICK_SWEEPS, SWEEPS

PRIOR = pltf.Gamma(0.5, 1.0)
MISSING = 0.2
DRAWS = 400
CASES: dict[str, tuple[pltf.Model, tuple[int, ...]]] = {
    "NMF R=5": (pltf.nmf(rank=5), (60, 40)),
    "CP R=3": (pltf.cp(rank=3), (30, 30, 30)),
    "CP R=7": (pltf.cp(rank=7), (30, 30, 30)),
    "CP R=12": (pltf.cp(rank=12), (30, 30, 30)),
    "Tucker 3x3x2": (pltf.tucker(ranks=(3, 3, 2)), (20, 20, 20)),
}
WAYS = (
    ours.Way("VB"),
    ours.Way("Gibbs", ours.GIBBS),
)


def run(store: Store, quick: bool, draws: int) -> Json:
    """Coverage for every model, method and data set."""
    cases = list(CASES)[:1] if quick else list(CASES)
    ways = [way.name for way in WAYS if ours.known(way)]
    keys = [(case, way, draw) for case in cases for way in ways for draw in range(draws)]
    found = dict(complete(store, "drawn data", partial(covered, QUICK_SWEEPS if quick else SWEEPS), keys))
    rows = [
        {"case": case, "way": way, "draws": done}
        for case in cases
        for way in ways
        if (done := [found[case, way, draw] for draw in range(draws) if (case, way, draw) in found])
    ]
    return {"rows": rows, "level": measures.LEVEL, "missing": MISSING}


def covered(sweeps: int, case: str, name: str, draw: int) -> Json:
    """The shares of true rates and of hidden counts in their intervals, for one data set."""
    model, shape = CASES[case]
    way = next(way for way in WAYS if way.name == name)
    data = pltf.datasets.draw(model, shape, prior=PRIOR, seed=draw)
    X, truth = data.counts["X"], data.rates["X"]
    keep = pltf.holdout(X, MISSING, seed=draw)
    options = {**way.options, **(ours.chain(sweeps) if "method" in way.options else {})}
    with quietly():
        fit = model.fit(X, mask=keep, seed=draw, restarts=3, max_iter=2000, threads=1, progress=False, **options)
    hidden = ~keep
    low, high = fit.interval(at=hidden, level=measures.LEVEL, draws=DRAWS, progress=False)
    rates = float(np.mean((low <= truth[hidden]) & (truth[hidden] <= high)))
    return {"rates": rates, "counts": measures.covered(ours.said_of(fit, hidden, X[hidden], DRAWS))}
