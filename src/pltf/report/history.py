"""How the fit went: the ELBO over the iterations, the restarts, the search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.fit import Fit
from pltf.gamma import Array
from pltf.selection import Selection
from pltf.selection.grid import is_size
from pltf.selection.result import best_scores, labels_of

MOST_POINTS = 1000  # of a trace
MOST_ROWS = 40  # of a table


@dataclass(frozen=True, eq=False)
class Trace:
    """The ELBO after each iteration."""

    sweep: NDArray[np.intp]
    bound: Array


@dataclass(frozen=True, eq=False)
class BoundCurve:
    """The ELBO against one varied quantity."""

    name: str
    ordered: bool  # sizes; otherwise models or priors
    values: tuple[Any, ...]  # what was tried
    best: tuple[float, ...]  # the best ELBO of each
    runs: tuple[tuple[Any, float, bool], ...]  # every run: where, its ELBO, whether it was dropped
    winner: Any  # None if the winner is a model without this index


@dataclass(frozen=True, eq=False)
class ScoreCurve:
    """The score on held-out cells against one varied quantity."""

    name: str
    ordered: bool
    score: str  # what is scored, in words
    values: tuple[Any, ...]
    best: tuple[float, ...]  # the best score of each
    errors: tuple[float, ...]  # and its standard error
    winner: Any
    reached: float  # the score of the winner


@dataclass(frozen=True, eq=False)
class SearchHistory:
    """The result of a search."""

    best: dict[str, str]
    lead: float | None  # nats to the next candidate; None if there is no other
    runs: int
    seconds: float
    candidates: tuple[dict[str, Any], ...]  # rows of the summary, with their label
    left_out: int  # candidates that the table does not show
    curves: tuple[BoundCurve, ...]
    by_hidden_cells: bool
    score_curves: tuple[ScoreCurve, ...]


def trace(fit: Fit) -> Trace:
    """The trace; a long one is thinned, less at its beginning."""
    n = len(fit.trace)
    at = np.arange(n)
    if n > MOST_POINTS:
        at = np.unique(np.concatenate([at[:100], np.geomspace(100, n - 1, MOST_POINTS - 100).astype(np.intp), [n - 1]]))
    return Trace(at + 1, np.asarray(fit.trace)[at])


def restarts(fit: Fit) -> list[Any]:
    """The table of restarts, the best first, with gaps to the best."""
    table = fit.restarts.reset_index()
    table["gap"] = table["bound"] - table["bound"].max()
    return list(table.sort_values(["best", "bound"], ascending=False, kind="stable").itertuples(index=False))


def search(found: Selection) -> SearchHistory:
    """The search, for tables and curves."""
    chosen_by = "heldout" if found.by_hidden_cells else "best"
    summary = found.summary().sort_values(["winner", chosen_by], ascending=False)
    labels = labels_of(summary)
    candidates = [row | {"label": {name: str(row[name]) for name in labels}} for row in summary.to_dict("records")]
    lead = None
    if len(candidates) > 1 and not found.by_hidden_cells:
        lead = found.winner.bound - max(one["best"] for one in candidates[1:])
    return SearchHistory(
        {name: str(value) for name, value in found.best.items()},
        lead,
        sum(one["restarts"] for one in candidates) + sum(one.folds.bounds.size for one in found.outcomes if one.folds),
        sum(one["seconds"] for one in candidates),
        tuple(candidates[:MOST_ROWS]),
        max(0, len(candidates) - MOST_ROWS),
        tuple(_curves(found, labels)),
        found.by_hidden_cells,
        tuple(_score_curves(found, labels)),
    )


def _score_curves(found: Selection, labels: list[str]) -> list[ScoreCurve]:
    """For each varied quantity, the best score of each value."""
    folds, curves = found.winner.folds, list[ScoreCurve]()
    if folds is None:
        return curves
    for name in labels:
        best = best_scores(found, name)
        if len(best) > 1:
            means, errors = zip(*best.values(), strict=True)
            score, winner = found.score.replace("_", " "), found.best.get(name)
            curves.append(ScoreCurve(name, is_size(name), score, tuple(best), means, errors, winner, folds.mean))
    return curves


def _curves(found: Selection, labels: list[str]) -> list[BoundCurve]:
    table = found.table  # without folds: a search by held-out cells has runs of the winner only
    curves = []
    for name in (one for one in labels if one in table):
        known = table.dropna(subset=[name])
        if known[name].nunique() < 2:
            continue
        ordered = is_size(name)
        places = known[name].astype(int) if ordered else known[name].astype(str)
        dropped = known["stopped"] == "dropped"
        best = known[~dropped].groupby(places[~dropped], sort=ordered)["bound"].max()
        runs = zip(places.tolist(), known["bound"].tolist(), dropped.tolist(), strict=True)
        values, winner = tuple(best.index.tolist()), found.best.get(name)
        curves.append(BoundCurve(name, ordered, values, tuple(map(float, best)), tuple(runs), winner))
    return curves
