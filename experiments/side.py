"""Do the side matrices of UCLAF help? They are coupled with the links, unchanged or weighted, or fixed as a factor.

The matrices are UserLoc (how often a user was at a location), LocFea (features of a location), UserUser and ActAct
(similarity of users and of activities).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

import pltf
import pltf.datasets
from experiments.common import Array, Json, counted, fitted, for_all_runs, popularity, starts
from experiments.settings import LEVELS, Settings

LINKS = "X[u,l,a] = U[u,r] * L[l,r] * A[a,r]"
WITH_VISITS = "X[u,l,a] = Visited[u,l] * U[u,r] * L[l,r] * A[a,r]"
EQUATIONS = {
    "UserLoc": "UserLoc[u,l] = U[u,r] * L[l,r] * W[r]",
    "LocFea": "LocFea[l,f] = L[l,r] * F[f,r]",
    "UserUser": "UserUser[u,v] = U[u,r] * V[v,r]",  # symmetric, but a factor may occur only once in an equation
    "ActAct": "ActAct[a,b] = A[a,r] * B[b,r]",
}
WEIGHT = 0.1  # total of a weighted matrix, as a share of the observed links


@dataclass(frozen=True)
class Case:
    """Matrices coupled with the links, and how their values are used."""

    name: str
    matrices: tuple[str, ...] = ()
    binary: tuple[str, ...] = ()  # reduced to whether a value is above zero
    weighted: bool = False  # each matrix scaled to a tenth of the observed links


ALL = tuple(EQUATIONS)
KNOWN_VISITS = Case("visits as a known factor")
CASES: tuple[Case, ...] = (
    Case("no side data"),
    Case("UserLoc, counts", ("UserLoc",)),
    Case("UserLoc, 0/1", ("UserLoc",), ("UserLoc",)),
    Case("UserLoc, 0/1, weighted", ("UserLoc",), ("UserLoc",), weighted=True),
    Case("LocFea", ("LocFea",)),
    Case("LocFea, 0/1", ("LocFea",), ("LocFea",)),
    Case("LocFea, weighted", ("LocFea",), weighted=True),
    Case("UserUser", ("UserUser",)),
    Case("UserUser, weighted", ("UserUser",), weighted=True),
    Case("ActAct", ("ActAct",)),
    Case("ActAct, weighted", ("ActAct",), weighted=True),
    Case("all four", ALL, ("UserLoc",)),
    Case("all four, weighted", ALL, ("UserLoc",), weighted=True),
    KNOWN_VISITS,
)
SHAPE_CASES = tuple(one for one in CASES if not one.matrices or one.weighted)  # learned shapes take many iterations


def run(settings: Settings) -> Json:
    """Scores of hidden links with and without side data, over all cells and over visited places only."""
    plans = [("default", rank, CASES, settings.side_restarts) for rank in settings.side_ranks]
    plans.append(("learned shapes", settings.side_shape_rank, SHAPE_CASES, settings.side_shape_restarts))
    cases = [
        (restarts, case, prior, rank, missing)
        for prior, rank, held, restarts in plans
        for missing in LEVELS
        for case in held
    ]
    scores = for_all_runs("links with side data", _scored, cases, settings.runs)
    rows = [
        {"case": case.name, "prior": prior, "rank": rank, "missing": missing, **_merged(runs)}
        for (_, case, prior, rank, missing), runs in zip(cases, scores, strict=True)
    ]
    levels = [(missing,) for missing in LEVELS]
    without = for_all_runs("visits and popularity", _without_a_fit, levels, settings.runs)
    trivial = [{"missing": missing, **_merged(runs)} for missing, runs in zip(LEVELS, without, strict=True)]
    return {"rows": rows, "trivial": trivial, "visits": _visits(), "weight": WEIGHT, **counted(rows)}


def matrices(data: pltf.datasets.Uclaf) -> dict[str, Array]:
    """The side matrices in a form that can be fitted: NaN where a value is unknown."""
    features = data.LocFea[:, 1:]  # the first column is the number of the location
    alike = np.where(data.UserUser < 0, np.nan, data.UserUser)  # -1 means unknown
    np.fill_diagonal(alike, np.nan)  # similarity to oneself is no information
    return {
        "UserLoc": data.UserLoc.astype(float),
        "LocFea": features[:, features.any(axis=0)],
        "UserUser": alike,
        "ActAct": data.ActAct,
    }


def coupled(case: Case, rank: int, data: pltf.datasets.Uclaf, keep: Array) -> tuple[pltf.Model, dict[str, Array]]:
    """The model of a case, and its data."""
    model = pltf.Model("\n".join([LINKS, *(EQUATIONS[name] for name in case.matrices)]), r=rank)
    held, links = matrices(data), data.X[keep].sum()
    given = {"X": np.where(keep, data.X, np.nan)}
    for name in case.matrices:
        values = np.where(held[name] > 0, 1.0, held[name]) if name in case.binary else held[name]
        given[name] = values * (WEIGHT * links / np.nansum(values)) if case.weighted else values
    return model, given


def _scored(restarts: int, case: Case, prior: str, rank: int, missing: float, run: int) -> Json:
    data = pltf.datasets.uclaf()
    keep = pltf.holdout(data.X, missing, seed=run)
    options: dict[str, Any] = {"prior": pltf.Gamma(learn="both") if prior == "learned shapes" else None}
    if case == KNOWN_VISITS:
        model, given = pltf.Model(WITH_VISITS, r=rank), {"X": np.where(keep, data.X, np.nan)}
        options["fixed"] = {"Visited": (data.UserLoc > 0).astype(float)}
    else:
        model, given = coupled(case, rank, data, keep)
    fit = fitted(model, given, restarts=restarts, run=run, **options)
    return {**_aucs(data, keep, fit.mean(of="X")), **starts(fit)}


def _without_a_fit(missing: float, run: int) -> Json:
    """Scores of visits and popularity alone."""
    data = pltf.datasets.uclaf()
    keep = pltf.holdout(data.X, missing, seed=run)
    popular, visits = popularity(data.X, keep), data.UserLoc[:, :, None]
    aucs = {
        "popularity": _aucs(data, keep, popular),
        "visits": _aucs(data, keep, np.broadcast_to(visits, data.X.shape)),
        "both": _aucs(data, keep, popular * (visits > 0)),
    }
    return {f"{name} {key}": value for name, scores in aucs.items() for key, value in scores.items()}


def _aucs(data: pltf.datasets.Uclaf, keep: Array, score: Array) -> Json:
    """AUC of all hidden cells, and of those at places that the user has visited."""
    visited = ~keep & np.greater(data.UserLoc, 0)[:, :, None]
    return {
        "auc": float(roc_auc_score(data.X[~keep], score[~keep])),
        "auc visited": float(roc_auc_score(data.X[visited], score[visited])),
    }


def _merged(runs: list[Json]) -> Json:
    """For each value the list over all runs; fits are counted."""
    counts = counted(runs) if "fits" in runs[0] else {}
    return {key: [run[key] for run in runs] for key in runs[0]} | counts


def _visits() -> Json:
    """What UserLoc tells about links: nobody has a link at a place without a visit."""
    data = pltf.datasets.uclaf()
    visited, linked = data.UserLoc > 0, data.X.sum(axis=2) > 0
    return {
        "visited": float(visited.mean()),
        "linked if visited": float(linked[visited].mean()),
        "linked if not": float(linked[~visited].mean()),
    }
