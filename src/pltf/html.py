"""What notebooks show of models, fits, searches, scores and observations: small tables and one picture.

Everything that comes from data is escaped: a label such as ``<script>`` is text.
"""

from __future__ import annotations

import base64
import html
import io
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.data.labels import in_short
from pltf.errors import PltfError
from pltf.likelihoods import in_words
from pltf.report.formatting import many, nats, number, percent, seconds
from pltf.terminal import printable

if TYPE_CHECKING:
    from pltf.data import Observation
    from pltf.fit import Fit
    from pltf.metrics import Scores
    from pltf.notation import Model
    from pltf.selection import Selection

MOST_ROWS = 12  # of a table
MOST_MAPS = 4  # factors in a picture
MOST_MAP_ROWS = 16
LONGEST = 60  # characters of a text in a table
COLOURS = 64  # of a picture: a third of the bytes
_LEFT, _RIGHT = (f"text-align:{side};vertical-align:top;padding:0.1em 0.6em" for side in ("left", "right"))
_NUMBER = re.compile(r"[<>]?\s*[-−+]?\d[\d,.]*(e[-+]\d+)?( ?%| s| nats)?")


# -- what is shown ------------------------------------------------------------------------------


def model_html(model: Model) -> str:
    """The equations, and the indices with their sizes."""
    tensors = {i for indices in model.observed.values() for i in indices}
    held = dict.fromkeys(i for indices in (*model.observed.values(), *model.factors.values()) for i in indices)
    rows = [
        (
            index,
            "observed" if index in tensors else "latent",
            "from the data" if index not in model.sizes else f"{model.sizes[index]:,}",
            ", ".join(name for name, indices in model.factors.items() if index in indices),
        )
        for index in held
    ]
    return card("Model", code(model.text), table(("index", "", "size", "factors"), rows))


def fit_html(fit: Fit) -> str:
    """How the fit went, its components, and heat maps of its factors."""
    method = ", ".join(filter(None, (fit.method, in_words(fit.likelihoods), fit.dtype, f"{fit.engine} engine")))
    state = "converged" if fit.converged else f"not converged ({fit.stopped})"
    told = {
        "data": fit.data,
        "method": method,
        fit.objective: f"{nats(fit.bound)} after {many(fit.n_iter, 'iteration')}, {state}",
    }
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
    """What was chosen, all candidates, the doubts, and the curve."""
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
    """Each score with its interval, beside that of popularity, and the calibration."""
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


def observation_html(seen: Observation) -> str:
    """How much was observed, and the indices with their labels."""
    cells = 1
    for size in seen.shape:
        cells *= size
    told = {
        "observed": f"{seen.n_observed:,} of {many(cells, 'cell')}" if seen.has_missing else f"all {cells:,} cells",
        "above zero": f"{seen.n_positive:,}",
        "total": f"{number(seen.total)}, at most {number(seen.largest)} in a cell",
        "values": seen.dtype_name,
    }
    dims = seen.dims or tuple(f"axis {n}" for n in range(len(seen.shape)))
    rows = [
        (
            dim,
            f"{size:,}",
            in_short(seen.labels[dim].index) if dim in seen.labels else f"0 to {size - 1:,}",
            (seen.labels[dim].bin or "") if dim in seen.labels else "positions",
        )
        for dim, size in zip(dims, seen.shape, strict=True)
    ]
    return card(type(seen).__name__, facts(told), table(("index", "size", "labels", ""), rows))


# -- pieces of a page ---------------------------------------------------------------------------


def card(title: str, *parts: str) -> str:
    """A block with a title."""
    return f'<div style="max-width:60em"><strong>pltf.{escaped(title)}</strong>{"".join(parts)}</div>'


def escaped(text: object, longest: int = LONGEST) -> str:
    """Text of data as text of a page, cut if it is long.

    >>> escaped("<script>&"), escaped("a" * 9, 5)
    ('&lt;script&gt;&amp;', 'aaaa…')
    """
    plain = printable(text, keep="")
    return html.escape(plain if len(plain) <= longest else f"{plain[: longest - 1]}…")


def code(text: str) -> str:
    """Equations."""
    return f'<pre style="margin:0.3em 0">{html.escape(printable(text))}</pre>'


def facts(told: Mapping[str, str]) -> str:
    """Names and what is said of each."""
    rows = "".join(
        f'<tr><th style="{_LEFT}">{escaped(name)}</th><td style="{_LEFT}">{escaped(text, 400)}</td></tr>'
        for name, text in told.items()
    )
    return f"<table>{rows}</table>"


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, more: int = 0, bold: Iterable[bool] | None = None
) -> str:
    """A table; numbers stand on the right."""
    head = "".join(f'<th style="{_LEFT}">{escaped(column)}</th>' for column in columns)
    strong = bold if bold is not None else [False] * len(rows)
    weights = ["bold" if is_bold else "normal" for is_bold in strong]
    body = "".join(
        f'<tr style="font-weight:{weight}">{"".join(map(_cell, row))}</tr>'
        for row, weight in zip(rows, weights, strict=True)
    )
    rest = f'<tr><td colspan="{len(columns)}" style="{_LEFT}">and {more:,} more</td></tr>' if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}{rest}</tbody></table>"


def _cell(value: object) -> str:
    text = str(value)
    style = _RIGHT if _NUMBER.fullmatch(text) else _LEFT
    return f'<td style="{style}">{escaped(text)}</td>'


def picture(draw: Callable[[Any, Any], None], thing: Any, about: str) -> str:
    """What is drawn on a figure of its own; nothing where matplotlib is absent, or nothing was drawn."""
    try:
        from matplotlib.figure import Figure
        from PIL import Image  # matplotlib needs it too
    except ModuleNotFoundError:
        return ""
    figure, page = Figure(layout="constrained", facecolor="white"), io.BytesIO()
    with warnings.catch_warnings(action="ignore"):  # of letters that the font lacks
        draw(thing, figure)
        if not figure.axes:
            return ""
        figure.savefig(page, format="png", dpi=110)
    small = io.BytesIO()
    Image.open(page).convert("RGB").quantize(COLOURS).save(small, format="png", optimize=True)
    data = base64.b64encode(small.getvalue()).decode("ascii")
    width = round(96 * figure.get_size_inches()[0] * 0.9)
    return f'<img alt="{escaped(about)}" width="{width}" style="max-width:100%" src="data:image/png;base64,{data}">'
