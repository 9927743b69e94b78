"""The page: what is on it, put into one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from pltf.data.numeric import brief
from pltf.errors import PltfError, flag, py, whole
from pltf.fit import Fit
from pltf.metrics import Scores
from pltf.report import charts, formatting, overview
from pltf.report.charts import Chart
from pltf.report.checks import Checks, checks
from pltf.report.components import MOST, components, rankings
from pltf.report.factors import factor_views
from pltf.report.history import MOST_ROWS, restarts, search, trace
from pltf.report.predictions import predictions, sentence
from pltf.selection import Selection
from pltf.store.container import replacing
from pltf.store.fits import as_path

CELLS_PER_LABEL = 2  # predicted cells for each label of a mode


def write(
    result: Fit | Selection,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    scores: Scores | None = None,
    top: int = 10,
    progress: bool = True,
) -> None:
    """Write a report of a fit or of a search: one HTML file that opens anywhere, offline.

    Parameters
    ----------
    result
        A :class:`pltf.Fit`, or a :class:`pltf.Selection`: then the order curve is there too, and all else is of its
        best fit.
    path
        The file. One of that name is replaced, once the new one is whole.
    title
        Its heading; if none, the indices of the data.
    scores
        From :func:`pltf.metrics.score`. If none, and the fit comes with held-out cells, these are scored.
    top
        How many labels of each mode are shown of a component; of predicted cells there are twice as many.
    progress
        Show a bar on a terminal when something takes over a second.

    >>> import numpy as np, pltf, pltf.report, tempfile
    >>> from pathlib import Path
    >>> fit = pltf.nmf(rank=2).fit(np.array([[4.0, 2.0, 0.0], [2.0, np.nan, 1.0]]))
    >>> path = Path(tempfile.mkdtemp()) / "report.html"
    >>> pltf.report.write(fit, path, title="A small fit")
    >>> "<h1>A small fit</h1>" in path.read_text(encoding="utf-8")
    True
    """
    where = _file(path)
    save(text_of(result, title=title, scores=scores, top=top, progress=progress), where)


def text_of(
    result: Fit | Selection, *, title: str | None, scores: Scores | None = None, top: int, progress: bool
) -> str:
    """The report of a fit or of a search, as it is written to a file."""
    fit, found = _checked(result)
    if title is not None and not isinstance(title, str):
        raise PltfError(f"{py:title} must be a text or None, got {brief(title)}")
    if scores is not None and not isinstance(scores, Scores):
        raise PltfError(f"{py:scores} must be what pltf.metrics.score gives, or None; got {brief(scores)}")
    top, progress = whole("top", top, 1), flag("progress", progress)
    _need_tools()
    return page(fit, found, title, scores, top, progress)


def save(text: str, where: Path) -> None:
    """Write a report, whole or not at all."""
    with replacing(where) as part:
        part.write_bytes(text.encode("utf-8", "replace"))


def _checked(result: Any) -> tuple[Fit, Selection | None]:
    if isinstance(result, Selection):
        return result.best_fit, result
    if isinstance(result, Fit):
        return result, None
    raise PltfError(f"{py:result} must be a pltf.Fit or a pltf.Selection, got {brief(result)}")


def _file(path: Any) -> Path:
    where = as_path(path)
    if not where.parent.is_dir():
        raise PltfError(f"{py:path}: there is no folder {where.parent}")
    return where


def _need_tools() -> None:
    try:
        import jinja2
        import plotly.graph_objects  # noqa: F401

        del jinja2
    except ModuleNotFoundError as reason:
        missing = (reason.name or "plotly").split(".")[0]
        raise PltfError(f"reports need {missing}: pip install 'pltf[plot]'") from None


@dataclass(frozen=True, eq=False)
class FactorSection:
    """A factor with its charts."""

    view: Any
    charts: tuple[Chart, ...]


def page(fit: Fit, found: Selection | None, title: str | None, scores: Scores | None, top: int, progress: bool) -> str:
    """The whole page as text."""
    ranked = rankings(fit)
    checked = checks(fit, scores, progress)
    searched = None if found is None else search(found)
    told = restarts(fit)
    factor_sections = [
        FactorSection(view, tuple(charts.heat_map(one, f"{view.name}-{n}") for n, one in enumerate(view.maps)))
        for view in factor_views(fit, ranked)
    ]
    share_charts = {i: charts.shares(one) for i, one in ranked.items() if one.share is not None and len(one.order) > 1}
    order_charts = [] if searched is None else [charts.order(c, n) for n, c in enumerate(searched.curves)]
    order_charts += [] if searched is None else [charts.predicted(c, n) for n, c in enumerate(searched.score_curves)]
    fit_charts = [charts.trace(trace(fit), fit.objective)] if len(fit.trace) else []
    fit_charts += [charts.starts(told, "bound" if fit.draws else fit.objective)] if len(told) > 1 else []
    check_charts = [] if checked.scores is None else [charts.calibration(checked.scores)]
    check_charts += [charts.roc(checked.scores)] if checked.scores is not None and checked.scores.ranking else []
    every = [
        *share_charts.values(),
        *order_charts,
        *fit_charts,
        *check_charts,
        *(c for s in factor_sections for c in s.charts),
    ]
    origin, versions = overview.provenance(fit)
    return _rendered(
        every,
        title=title
        if title is not None
        else " × ".join(dict.fromkeys(i for n in fit.model.observed.values() for i in n)),
        headline=overview.headline(fit),
        fit=fit,
        figures=overview.figures(fit, ranked, checked, searched),
        notes=[sentence(text) for text in _notes(fit, found, checked)],
        indices=overview.indices(fit),
        facts=overview.facts(fit),
        ranked=ranked,
        components=components(fit, ranked, top),
        most_components=MOST,
        shares=share_charts,
        factors=factor_sections,
        predictions=predictions(fit, fit.held_out, CELLS_PER_LABEL * top, progress),
        checks=checked,
        check_charts=check_charts,
        restarts=told[:MOST_ROWS],
        more_restarts=max(0, len(told) - MOST_ROWS),
        fit_charts=fit_charts,
        search=searched,
        order_charts=order_charts,
        origin=origin,
        versions=versions,
        in_python=overview.in_python(fit),
        words=formatting,
    )


def _notes(fit: Fit, found: Selection | None, checked: Checks) -> list[str]:
    """What a reader should know before believing anything."""
    notes = []
    if not fit.converged:
        notes.append(f"the fit has not converged ({fit.stopped}): the factors may still change")
    notes += fit.notes
    if found is not None:
        notes += found.doubts
    if checked.scores is not None and not checked.measures[0].better:
        how = "ranked" if checked.scores.ranking else "predicted"
        notes.append(f"held-out cells are {how} no better than by popularity alone")
    return notes


def _rendered(every: list[Chart], **context: Any) -> str:
    """The template, filled. Its scripts may run by their hashes, and no other can; nothing may be loaded at all."""
    import jinja2
    from plotly.offline import get_plotlyjs

    here = files(__package__)
    style, script = ((here / name).read_text(encoding="utf-8") for name in ("style.css", "script.js"))
    library = _inline(get_plotlyjs())
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    trusted = environment.filters["safe"]
    template = environment.from_string((here / "template.html").read_text(encoding="utf-8"))
    return template.render(
        style=trusted(style),
        script=trusted(script),
        library=trusted(library),
        policy=f"{_digest(library)} {_digest(script)}",
        data=trusted(_as_json({one.name: json.loads(one.figure.to_json()) for one in every})),
        **context,
    )


def _inline(script: str) -> str:
    """A script that can stand between tags: in JavaScript ``<\\/`` is ``</``."""
    return re.sub(r"</(?=script)", r"<\\/", script, flags=re.IGNORECASE).replace("<!--", "<\\!--")


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _as_json(data: Any) -> str:
    """JSON that can stand in a page: no sign of it begins or ends a tag."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
