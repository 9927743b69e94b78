"""HTML for fits, searches and scores in notebooks: small tables and a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.errors import PltfError
from pltf.html import card, code, facts, picture, table
from pltf.likelihoods import in_words
from pltf.report.formatting import many, nats, number, percent, seconds

if TYPE_CHECKING:
    from pltf.fit import Fit
    from pltf.metrics import Scores
    from pltf.selection import Selection

MOST_ROWS = 12  # of a table
MOST_MAPS = 4  # factors in a picture
MOST_MAP_ROWS = 16


def fit_html(fit: Fit) -> str:
    """How the fit went, its components, and heat maps of its factors."""
    method = ", ".join(filter(None, (fit.method, in_words(fit.likelihoods), fit.dtype, f"{fit.engine} engine")))
    state = "converged" if fit.converged else f"not converged ({fit.stopped})"
    reached = f"{nats(fit.bound)} after {many(fit.n_iter, 'iteration')}, {state}"
    objective = "ELBO" if fit.objective == "bound" else fit.objective
    told = {"data": fit.data, "method": method, objective: reached}
    if len(fit.rows) > 1:
        bounds = [row.bound for row in fit.rows]
        told["restarts"] = f"{len(bounds)}, from {nats(min(bounds))} to {nats(max(bounds))}"
    if fit.history:
        told["batches"] = f"{len(fit.history)}"
    for name, found in fit.dispersion.items():
        told[f"counts of {name}" if len(fit.dispersion) > 1 else "counts"] = str(found)
    told |= {"notes": " ".join(fit.notes)} if fit.notes else {}
    told["time"] = seconds(fit.seconds)
    return card("Fit", code(fit.model.text), facts(told), _components(fit), picture(_factors, fit, "factors"))


def _components(fit: Fit) -> str:
    """The largest components of every latent index, with their top labels."""
    parts = []
    for index in fit.mass:
        found = fit.components(index)
        rows = [
            (f"{index}={n}", percent(row.iloc[1]), *(", ".join(map(str, tops)) for tops in row.iloc[2:]))
            for n, row in found.head(MOST_ROWS).iterrows()
        ]
        parts.append(table(("component", "share", *found.columns[2:]), rows, more=len(found) - len(rows)))
    return "".join(parts)


def _factors(fit: Fit, figure: Any) -> None:
    from pltf.plotting import factors

    names = [name for name, indices in fit.model.factors.items() if len(indices) == 2][:MOST_MAPS]
    if names:
        figure.set_size_inches(2.4 * len(names), 3)
        factors(fit, names, figure.subplots(1, len(names)), most=MOST_MAP_ROWS)


def selection_html(found: Selection) -> str:
    """The chosen candidate, all candidates, the doubts, and the curve."""
    from pltf.selection.result import overview

    told = {"best": ", ".join(f"{name}={value}" for name, value in found.best.items()) or "the only candidate"}
    told |= {"data": found.best_fit.data, "chosen by": "held-out cells" if found.by_hidden_cells else "the ELBO"}
    told |= {"note": found.note} if found.note else {}
    told |= {f"doubt {n}": text for n, text in enumerate(found.doubts, start=1)}
    shown = overview(found, MOST_ROWS)
    rows = [tuple(row) for row in shown.itertuples(index=False)]
    candidates = table(tuple(shown.columns), rows, more=len(found.outcomes) - len(rows), bold=shown.iloc[:, 0] == "*")
    return card("Selection", code(found.best_fit.model.text), facts(told), candidates, picture(_curve, found, "search"))


def _curve(found: Selection, figure: Any) -> None:
    from pltf.plotting import search
    from pltf.plotting.of_searches import varied_in

    try:
        count = len(varied_in(found))
    except PltfError:  # there is nothing to draw it against
        return
    figure.set_size_inches(5 * count, 3.2)
    search(found, figure.subplots(1, count))


def scores_html(scores: Scores) -> str:
    """Each score with its interval, compared with popularity, and the calibration."""
    positive = np.count_nonzero(scores.values)
    told = {"cells": f"{scores.values.size:,}, {positive:,} of them above zero"}
    held = scores.coverage.loc["count"]
    inside = f"{percent(held['inside'])} of the counts lie in their {percent(held['level'])} intervals"
    told["coverage"] = f"{inside} (expected: {percent(held['expected'])})"
    rows = [
        (
            str(measure).replace("_", " "),
            number(row["value"], 4),
            "–" if np.isnan(row["low"]) else f"{number(row['low'], 4)} to {number(row['high'], 4)}",
            number(row["popularity"], 4),
        )
        for measure, row in scores.table.iterrows()
    ]
    columns = ("", "fit", f"{percent(scores.level)} interval", "popularity")
    return card("Scores", facts(told), table(columns, rows), picture(_calibration, scores, "calibration"))


def _calibration(scores: Scores, figure: Any) -> None:
    from pltf import plotting

    count = 1 + scores.ranking
    figure.set_size_inches(4 * count, 3.2)
    plotting.scores(scores, figure.subplots(1, count))
