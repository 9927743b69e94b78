"""The page: its content, in one self-contained file."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

from pltf.data.numeric import brief
from pltf.errors import PltfError, flag, py, whole
from pltf.fit import Fit
from pltf.inference.state import shown_objective
from pltf.metrics import Scores
from pltf.report import charts, formatting, overview
from pltf.report.charts import Chart, HeatChart
from pltf.report.checks import Checks, checks
from pltf.report.components import MOST, Component, components, rankings
from pltf.report.curves import Scale
from pltf.report.factors import factor_views
from pltf.report.formatting import sentence
from pltf.report.history import MOST_ROWS, SearchHistory, restarts, search, trace
from pltf.report.predictions import predictions
from pltf.selection import Selection
from pltf.store.container import replacing
from pltf.store.fits import as_path

MOST_IN_OVERVIEW = 12  # components
CELLS_PER_LABEL = 2  # predicted cells for each label of a mode


def write(
    result: Fit | Selection,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    scores: Scores | Mapping[str, Scores] | None = None,
    top: int = 10,
    progress: bool = True,
) -> None:
    """Write a report of a fit or of a search: one HTML file that opens in any browser, offline.

    Parameters
    ----------
    result
        A :class:`pltf.Fit`, or a :class:`pltf.Selection`: the report then has the order curve, and is otherwise about
        the best fit.
    path
        The file. An existing one is replaced as soon as the new one is complete.
    title
        Report title. Default: the indices of the data.
    scores
        From :func:`pltf.metrics.score`; for a coupled model a mapping from tensors to their scores. Default: scores
        of the held-out cells, if the fit has any.
    top
        How many labels are shown of each mode of a component. The table of predictions has twice as many rows.
    progress
        Show a progress bar on a terminal when something takes more than a second.

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
    result: Fit | Selection,
    *,
    title: str | None,
    scores: Scores | Mapping[str, Scores] | None = None,
    top: int,
    progress: bool,
) -> str:
    """The report of a fit or of a search as HTML."""
    fit, found = _checked(result)
    if title is not None and not isinstance(title, str):
        raise PltfError(f"{py:title} must be a text or None, got {brief(title)}")
    _check_scores(fit, scores)
    top, progress = whole("top", top, 1), flag("progress", progress)
    need_jinja()
    return page(fit, found, title, scores, top, progress)


def _check_scores(fit: Fit, scores: Any) -> None:
    every = scores if isinstance(scores, Mapping) else {} if scores is None else {None: scores}
    for name, one in every.items():
        if name is not None and name not in fit.model.observed:
            raise PltfError(
                f"{py:scores}: {brief(name)} is not a tensor of the model ({', '.join(fit.model.observed)})"
            )
        if not isinstance(one, Scores):
            expected = "the result of pltf.metrics.score, a mapping from tensors to such results, or None"
            raise PltfError(f"{py:scores} must be {expected}; got {brief(one)}")


def save(text: str, where: Path) -> None:
    """Write a report, with an atomic replace."""
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


def need_jinja() -> None:
    """Raise an error if no report can be written."""
    try:
        import jinja2  # noqa: F401
    except ModuleNotFoundError:
        raise PltfError("reports need jinja2: pip install 'pltf[plot]'") from None


def page(
    fit: Fit,
    found: Selection | None,
    title: str | None,
    scores: Scores | Mapping[str, Scores] | None,
    top: int,
    progress: bool,
) -> str:
    """The whole page as text."""
    ranked = rankings(fit)
    checked = checks(fit, scores, progress)
    check_charts = [_check_charts(one, len(checked) > 1) for one in checked]
    searched = None if found is None else search(found)
    told = restarts(fit)
    parts = components(fit, ranked, top)
    curves, scales = _curves(parts)
    views = factor_views(fit, ranked)
    heat_charts = [[charts.heat_map(one, f"{view.name}-{n}") for n, one in enumerate(view.maps)] for view in views]
    shares = {i: charts.shares(one) for i, one in ranked.items() if one.share is not None and len(one.order) > 1}
    order_charts, fit_charts = _order_charts(searched), _fit_charts(fit, told)
    every: list[Chart | HeatChart] = [*shares.values(), *curves.values(), *order_charts, *fit_charts]
    every += chain(*check_charts, *heat_charts)
    origin, versions = overview.provenance(fit)
    indices = overview.indices(fit)
    return _rendered(
        {one.name: one.data for one in every} | {"scales": _scales(scales)},
        title=title if title is not None else " × ".join(name for name, *_ in indices),
        headline=overview.headline(fit),
        fit=fit,
        objective=shown_objective(fit.objective),
        restart_objective=overview.restart_objective(fit),
        figures=overview.figures(fit, ranked, checked, searched),
        notes=[sentence(text) for text in _notes(fit, found, checked)],
        verdicts=[text for one, text in _verdicts(checked) if one],
        tensors=overview.tensors(fit),
        indices=indices,
        facts=overview.facts(fit),
        ranked=ranked,
        components=parts,
        curves=curves,
        most_components=MOST,
        most_in_overview=MOST_IN_OVERVIEW,
        shares=shares,
        factors=list(zip(views, heat_charts, strict=True)),
        predictions=predictions(fit, fit.held_out, CELLS_PER_LABEL * top, progress),
        checks=[
            (one, drawn)
            for one, drawn in zip(checked, check_charts, strict=True)
            if one.scores is not None or one.notes
        ],
        restarts=told[:MOST_ROWS],
        more_restarts=max(0, len(told) - MOST_ROWS),
        fit_charts=fit_charts,
        search=searched,
        order_charts=order_charts,
        origin=origin,
        versions=versions,
        in_python=overview.in_python(fit),
        data_in_words=overview.data_in_words(fit),
        words=formatting,
    )


def _curves(parts: Mapping[str, Sequence[Component]]) -> tuple[dict[tuple[str, int, str], Chart], list[Scale]]:
    """The curves of all components, by index, number and factor; and their axes."""
    found, scales = {}, dict[str, Scale]()
    for index, some in parts.items():
        for one in some:
            for mode in one.modes:
                if mode.curve is not None and not mode.flat:
                    name = f"curve-{index}-{one.number}-{mode.factor}"
                    found[index, one.number, mode.factor] = charts.curve(mode.curve, name)
                    scales[mode.title] = mode.curve.scale
    return found, list(scales.values())


def _scales(scales: Sequence[Scale]) -> dict[str, Any]:
    """The points of each axis and their names, which all curves along it share."""
    return {one.index: {"x": one.axis.place(one.x).tolist(), "names": list(one.names)} for one in scales}


def _check_charts(found: Checks, several: bool) -> list[Chart]:
    if found.scores is None:
        return []
    end = f"-{found.tensor}" if several else ""
    drawn = [charts.calibration(found.scores, f"calibration{end}")]
    return drawn + ([charts.roc(found.scores, f"roc{end}")] if found.scores.ranking else [])


def _order_charts(searched: SearchHistory | None) -> list[Chart]:
    if searched is None:
        return []
    bounds = [charts.order(curve, n) for n, curve in enumerate(searched.curves)]
    return bounds + [charts.predicted(curve, n) for n, curve in enumerate(searched.score_curves)]


def _fit_charts(fit: Fit, told: Sequence[Any]) -> list[Chart]:
    drawn = [charts.trace(trace(fit), shown_objective(fit.objective))] if len(fit.trace) else []
    return drawn + ([charts.starts(told, overview.restart_objective(fit))] if len(told) > 1 else [])


def _notes(fit: Fit, found: Selection | None, checked: Sequence[Checks]) -> list[str]:
    """Warnings about the results for the reader."""
    notes = []
    if not fit.converged:
        notes.append(f"the fit has not converged ({fit.stopped}): the factors may still change")
    notes += fit.notes
    if found is not None:
        notes += found.doubts
    return notes + [text for good, text in _verdicts(checked) if not good]


def _verdicts(checked: Sequence[Checks]) -> list[tuple[bool, str]]:
    """For each tensor with scores, whether it is predicted better than by popularity, and the verdict in words."""
    return [
        (
            bool(one.scores.beats_popularity) and not one.is_poor,
            f"{one.tensor}: {one.verdict}" if len(checked) > 1 else one.verdict,
        )
        for one in checked
        if one.scores is not None
    ]


def _rendered(data: Mapping[str, Any], **context: Any) -> str:
    """The filled template. Only its own scripts may run, by their hash, and nothing may be loaded."""
    import jinja2

    here = files(__package__)
    style, script = ((here / name).read_text(encoding="utf-8") for name in ("style.css", "script.js"))
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    trusted = environment.filters["safe"]
    template = environment.from_string((here / "template.html").read_text(encoding="utf-8"))
    return template.render(
        style=trusted(style),
        script=trusted(script),
        policy=_digest(script),
        data=trusted(_as_json(data)),
        **context,
    )


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _as_json(data: Any) -> str:
    """JSON for a page, with the characters of tags escaped."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
