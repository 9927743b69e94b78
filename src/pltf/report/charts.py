"""The charts, as plotly figures.

Colours of text and grid come from the style sheet of the page, which has a light and a dark one. Those of the data are
blue for the fit, orange for what stands out and grey for what it is compared with: they differ for every kind of sight,
and can be seen on both. All text that comes from the data goes through :func:`plain`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pltf.errors import PltfError
from pltf.metrics import Scores
from pltf.report.checks import roc_curve
from pltf.report.components import LEVEL, Ranking
from pltf.report.factors import HeatMap
from pltf.report.formatting import number, percent, plain, short
from pltf.report.history import Curve, Restart, ScoreCurve, Trace

BLUE, ORANGE, GREY = "#2f7fc1", "#d1600e", "#87909b"
SCALE = [[0.0, "#f1f4f8"], [0.5, "#6ba3d4"], [1.0, "#0b3c6f"]]  # the page puts a dark one in its place, where asked
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
ROW = 17  # pixels of a labelled row of a heat map
TALLEST = 760
_BARE = "<extra></extra>"  # plotly puts the name of the trace beside a hover text, unless told not to


@dataclass(frozen=True, eq=False)
class Chart:
    """A figure, and where it goes on the page."""

    name: str  # the id of its place
    figure: Any
    height: int
    words: str  # for those who cannot see it
    remark: str = ""


def graph_objects() -> Any:
    """plotly, or one sentence."""
    try:
        import plotly.graph_objects as go
    except ModuleNotFoundError:
        raise PltfError("reports need plotly: pip install 'pltf[plot]'") from None
    return go


def shares(ranking: Ranking) -> Chart:
    """How much of all counts each component explains."""
    assert ranking.share is not None
    assert ranking.mass is not None
    go = graph_objects()
    count = len(ranking.order)
    bars = go.Bar(
        x=[str(n) for n in range(1, count + 1)],
        y=ranking.share,
        marker_color=[BLUE if n < ranking.used else GREY for n in range(count)],
        customdata=[[percent(s), number(m)] for s, m in zip(ranking.share, ranking.mass, strict=True)],
        text=[percent(share) for share in ranking.share] if count <= 12 else None,
        textposition="outside",
        cliponaxis=False,
        hovertemplate="component %{x}<br>%{customdata[0]} of the counts<br>%{customdata[1]} counts<extra></extra>",
    )
    figure = _figure(go, bars, x="component", y="share of the counts")
    figure.update_xaxes(type="category", showgrid=False)
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    figure.update_layout(bargap=0.35 if count < 15 else 0.15)
    words = f"Bars: share of the counts of each of {count} components of {ranking.index}."
    return Chart(f"shares-{ranking.index}", figure, 260, words)


def trace(found: Trace, objective: str) -> Chart:
    """The bound after each sweep."""
    go = graph_objects()
    line = go.Scatter(
        x=found.sweep,
        y=found.bound,
        mode="lines+markers" if len(found.sweep) <= 60 else "lines",
        line={"color": BLUE, "width": 2},
        marker={"size": 5},
        hovertemplate="sweep %{x}<br>%{y:,.2f} nats<extra></extra>",
    )
    figure = _figure(go, line, x="sweep (log scale)", y=f"{objective} (nats)")
    figure.update_xaxes(type="log", tickmode="array", **_ones_two_fives(int(found.sweep[-1])))
    figure.update_yaxes(tickformat=",.6~g" if abs(found.bound[-1]) < 1e6 else ".4~s", range=_rise(found.bound))
    remark = "The first sweeps lie below the chart." if found.bound[0] < figure.layout.yaxis.range[0] else ""
    return Chart("trace", figure, 320, f"Line: the {objective} after each of {int(found.sweep[-1])} sweeps.", remark)


def _ones_two_fives(last: int) -> dict[str, Any]:
    """Ticks 1, 2, 5, 10, ... of a logarithmic axis, and its range."""
    ticks = [step * 10**power for power in range(10) for step in (1, 2, 5) if step * 10**power <= max(last, 2)]
    wide = np.log10(max(last, 2))
    return {"tickvals": ticks, "ticktext": [f"{tick:,}" for tick in ticks], "range": [-0.04 * wide, 1.04 * wide]}


def _rise(bound: Sequence[float] | np.ndarray[Any, Any]) -> list[float]:
    """The range of the axis: the first sweeps may be so far below that the rest looks flat."""
    values = np.asarray(bound, dtype=float)
    begin = values[min(2, len(values) - 1)] if len(values) > 8 else values[0]
    low, high = min(begin, values[-1]), values.max()
    room = 0.06 * max(high - low, 1e-9 * abs(high), 1e-9)
    return [float(low - room), float(high + room)]


def starts(found: Sequence[Restart], objective: str) -> Chart:
    """The bounds of all restarts, sorted."""
    go = graph_objects()
    dots = go.Scatter(
        x=list(range(1, len(found) + 1)),
        y=[one.bound for one in found],
        mode="markers",
        marker={
            "color": [ORANGE if one.best else BLUE for one in found],
            "size": [13 if one.best else 10 for one in found],
            "opacity": 1,
            "symbol": ["circle" if one.converged else "circle-open" for one in found],
        },
        customdata=[[one.restart, f"{one.sweeps:,}", f"{one.gap:,.2f}".replace("-", "−")] for one in found],
        hovertemplate="restart %{customdata[0]}<br>%{y:,.2f} nats (%{customdata[2]})<br>%{customdata[1]} sweeps"
        + _BARE,
    )
    figure = _figure(go, dots, x="restart, from best to worst", y=f"{objective} (nats)")
    figure.update_xaxes(dtick=1 if len(found) <= 20 else None, range=[0.5, len(found) + 0.5], showgrid=False)
    bounds = [one.bound for one in found]
    room = max(0.06 * (max(bounds) - min(bounds)), 0.5)  # starts that agree should look so
    span = [min(bounds) - room, max(bounds) + room]
    figure.update_yaxes(tickformat=_ticks(span), range=span)
    return Chart("starts", figure, 300, f"Dots: the {objective} of each of {len(found)} restarts, the best marked.")


def _ticks(values: Sequence[float]) -> str:
    """As many decimals as the range of an axis needs."""
    spread = max(values) - min(values)
    return ",.0f" if spread > 20 else ",.1f" if spread > 2 else ",.2f" if spread > 0.2 else ",.4f"


def order(curve: Curve, number_of: int) -> Chart:
    """The bound against a size, a model or a prior."""
    go = graph_objects()
    place = {value: value if curve.ordered else plain(short(str(value), 60)) for value in curve.values}
    runs = [(place[value], bound) for value, bound, dropped in curve.runs if not dropped and value in place]
    dropped = [(place[value], bound) for value, bound, gone in curve.runs if gone and value in place]
    top = max(curve.best)
    traces = [
        _dots(go, dropped, "dropped early", {"color": GREY, "symbol": "x-thin-open", "size": 7}),
        _dots(go, runs, "one run", {"color": GREY, "size": 6, "opacity": 0.75}),
        go.Scatter(
            x=[place[value] for value in curve.values],
            y=list(curve.best),
            name="best run",
            mode="lines+markers" if curve.ordered else "markers",
            line={"color": BLUE, "width": 2},
            marker={"size": 8},
            customdata=[f"{best - top:,.1f}".replace("-", "−") for best in curve.best],
            hovertemplate="%{x}<br>%{y:,.1f} nats (%{customdata})<extra></extra>",
        ),
        _dots(
            go,
            [(place[curve.winner], top)],
            "chosen",
            {"color": ORANGE, "size": 13, "symbol": "circle-open", "line": {"width": 3}},
        ),
    ]
    if not curve.ordered:  # long names go beside the dots
        for one in traces:
            one.x, one.y = one.y, one.x
            one.hovertemplate = "%{y}<br>%{x:,.1f} nats<extra></extra>"
        figure = _figure(go, *[one for one in traces if one.x], x="bound (nats)", y="")
        figure.update_yaxes(type="category", autorange="reversed", automargin=True)
    else:
        figure = _figure(go, *[one for one in traces if one.x], x=f"size of {curve.name}", y="bound (nats)")
        few = len(curve.values) <= 25
        figure.update_xaxes(
            tickmode="array" if few else None, tickvals=list(curve.values) if few else None, showgrid=False
        )
        low = min(min(bound for _, bound in runs), min(curve.best))
        room = 0.08 * max(top - low, 1.0)
        figure.update_yaxes(range=[low - room, top + room], tickformat=_ticks([low, top]))
    _with_legend(figure)
    words = f"Line: the best bound for each {curve.name} that was tried; dots: single runs; {curve.winner} was chosen."
    return Chart(f"order-{number_of}", figure, 360 if curve.ordered else 120 + 60 * len(curve.values), words)


def predicted(curve: ScoreCurve, number_of: int) -> Chart:
    """The score on hidden cells against a size, a model or a prior."""
    go = graph_objects()
    place = {value: value if curve.ordered else plain(short(str(value), 60)) for value in curve.values}
    scores = go.Scatter(
        x=[place[value] for value in curve.values],
        y=list(curve.best),
        error_y={"type": "data", "array": list(curve.errors), "color": BLUE},
        name="score and standard error",
        mode="lines+markers" if curve.ordered else "markers",
        line={"color": BLUE, "width": 2},
        marker={"size": 8},
        hovertemplate="%{x}<br>%{y:.4f}<extra></extra>",
    )
    marker = {"color": ORANGE, "size": 13, "symbol": "circle-open", "line": {"width": 3}}
    chosen = _dots(go, [(place[curve.winner], curve.reached)], "chosen", marker)
    chosen.hovertemplate = "%{x}<br>%{y:.4f}<extra></extra>"
    label = f"size of {curve.name}" if curve.ordered else curve.name
    figure = _figure(go, scores, chosen, x=label, y=f"{curve.score} of hidden cells")
    if curve.ordered and len(curve.values) <= 25:
        figure.update_xaxes(tickmode="array", tickvals=list(curve.values), showgrid=False)
    _with_legend(figure)
    words = f"Line: the {curve.score} of hidden cells for each {curve.name}, with standard errors"
    words = f"{words}; {curve.winner} was chosen."
    return Chart(f"hidden-{number_of}", figure, 360, words)


def _dots(go: Any, points: Sequence[tuple[Any, float]], name: str, marker: dict[str, Any]) -> Any:
    return go.Scatter(
        x=[x for x, _ in points],
        y=[y for _, y in points],
        name=name,
        mode="markers",
        marker=marker,
        hovertemplate="%{x}<br>%{y:,.1f} nats<extra></extra>",
    )


def heat_map(found: HeatMap, name: str) -> Chart:
    """A factor, or a slice of it; few rows are tall enough to be read, many are there to be seen at once."""
    go = graph_objects()
    rows, columns = _categories(found.rows), _categories(found.columns, 12)
    text = [
        [_told(*entry, found.intervals) for entry in zip(*row, strict=True)]
        for row in zip(found.mean.tolist(), found.low.tolist(), found.high.tolist(), strict=True)
    ]
    gap = 1 if len(rows) <= 80 else 0
    down, across = plain(found.row_index) or "value", plain(found.column_index) or "value"
    image = go.Heatmap(
        x=columns,
        y=rows,
        z=np.asarray(found.colour, dtype=np.float32),
        text=text,
        zmin=0,
        zmax=1,
        colorscale=SCALE,
        showscale=False,
        xgap=gap,
        ygap=gap,
        hoverongaps=False,
        hovertemplate=f"{down}: %{{y}}<br>{across}: %{{x}}<br>%{{text}}{_BARE}",
    )
    figure = _figure(go, image, x=_across(found), y="")
    figure.update_xaxes(type="category", showgrid=False, ticks="", side="bottom")
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False, ticks="", automargin=True)
    figure.update_yaxes(
        dtick=1 if len(rows) <= (18 if found.slice else 45) else None,
        tickfont_size=11,
        title_text=plain(found.row_index) if found.slice else None,
    )
    height = min(TALLEST, max(120, ROW * len(rows)) + 60)
    words = f"Heat map: {found.factor} {found.slice}, {len(rows)} rows of {found.row_index}, {len(columns)} columns."
    return Chart(name, figure, min(height, 380) if found.slice else height, words)


def _across(found: HeatMap) -> str:
    return found.column_index if found.slice or not found.column_index else f"component ({found.column_index})"


def _categories(labels: Sequence[str], longest: int = 24) -> list[str]:
    """Labels of an axis, cut to what fits; two that look alike then are told apart by a number."""
    found: dict[str, None] = {}
    for label in labels:
        name = plain(short(" ".join(label.split()), longest))
        numbered = (f"{name} ({number})" for number in itertools.count(2))
        found[next(one for one in itertools.chain([name], numbered) if one not in found)] = None
    return list(found)


def _told(mean: float, low: float, high: float, intervals: bool) -> str:
    return f"{number(mean)} ({LEVEL:.0%}: {number(low)} to {number(high)})" if intervals else number(mean)


def calibration(scores: Scores) -> Chart:
    """Observed against expected counts in bins of cells."""
    go = graph_objects()
    fitted, popular = scores.calibration, scores.popularity_calibration
    shown = np.concatenate([part[column] for part in (fitted, popular) for column in ("expected", "observed", "high")])
    shown = shown[np.isfinite(shown) & (shown > 0)]
    shown = shown if shown.size else np.ones(1)  # zeros may be all there is
    ends = [float(shown.min() / 1.6), float(shown.max() * 1.6)]
    line = go.Scatter(
        x=ends, y=ends, mode="lines", line={"color": GREY, "width": 1, "dash": "dot"}, name="perfect", hoverinfo="skip"
    )
    traces = [line, _bins(go, popular, "popularity", GREY, ends[0]), _bins(go, fitted, "fit", BLUE, ends[0])]
    figure = _figure(go, *traces, x="expected count of a cell", y="observed count of a cell")
    span = [float(np.log10(end)) for end in ends]
    figure.update_xaxes(type="log", range=span, **_decades(ends))
    figure.update_yaxes(type="log", range=span, **_decades(ends))
    _with_legend(figure)
    return Chart("calibration", figure, 400, f"Dots: observed against expected counts in {len(fitted)} bins of cells.")


def _decades(ends: Sequence[float]) -> dict[str, Any]:
    """Plain numbers along a logarithmic axis."""
    low, high = (int(np.floor(np.log10(end))) for end in ends)
    steps = (1,) if high - low > 2 else (1, 2, 5)
    ticks = [
        step * 10.0**power
        for power in range(low, high + 1)
        for step in steps
        if ends[0] <= step * 10.0**power <= ends[1]
    ]
    return {"tickmode": "array", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _bins(go: Any, table: Any, name: str, colour: str, least: float) -> Any:
    """Bins with their intervals; where nothing was observed they stand at the lower edge."""
    observed = table["observed"].to_numpy(dtype=float)
    y = np.maximum(observed, least)
    high, low = (np.nan_to_num(table[end].to_numpy(dtype=float), nan=0.0) for end in ("high", "low"))
    bars = {
        "type": "data",
        "symmetric": False,
        "array": np.maximum(high - y, 0),
        "arrayminus": np.clip(y - np.maximum(low, least), 0, None),
    }
    return go.Scatter(
        x=table["expected"].to_numpy(dtype=float),
        y=y,
        name=name,
        mode="markers",
        marker={
            "color": colour,
            "size": 8 if colour == BLUE else 6,
            "symbol": ["circle" if o > 0 else "triangle-down" for o in observed],
        },
        error_y={**bars, "color": colour, "thickness": 1.5, "width": 0},
        customdata=[[number(o), f"{int(cells):,}"] for o, cells in zip(observed, table["cells"], strict=True)],
        hovertemplate=name + "<br>expected %{x:.3~g}<br>observed %{customdata[0]}<br>%{customdata[1]} cells" + _BARE,
    )


def roc(scores: Scores) -> Chart:
    """True against false positive rates, beside popularity."""
    go = graph_objects()
    traces = [
        go.Scatter(
            x=[0, 1],
            y=[0, 1],
            mode="lines",
            line={"color": GREY, "width": 1, "dash": "dot"},
            name="chance",
            hoverinfo="skip",
        )
    ]
    for name, said, column, colour in (
        ("popularity", scores.popularity, "popularity", GREY),
        ("fit", scores.means, "value", BLUE),
    ):
        wrong, right = roc_curve(scores.values, said)
        area = scores.table.loc["auc", column]
        traces.append(
            go.Scatter(
                x=wrong,
                y=right,
                mode="lines",
                line={"color": colour, "width": 2.5 if name == "fit" else 2},
                name=f"{name}, AUC {area:.3f}",
                hovertemplate=f"{name}<br>false positives %{{x:.1%}}<br>true positives %{{y:.1%}}<extra></extra>",
            )
        )
    figure = _figure(go, *traces, x="false positive rate", y="true positive rate")
    figure.update_xaxes(range=[-0.01, 1.01], tickformat=".0%")
    figure.update_yaxes(range=[-0.01, 1.02], tickformat=".0%")
    _with_legend(figure)
    return Chart("roc", figure, 400, f"ROC curve of the fit, AUC {scores.auc:.3f}, beside that of popularity.")


def _figure(go: Any, *traces: Any, x: str, y: str) -> Any:
    """A figure in the style of the page."""
    heading = {"standoff": 10, "font": {"size": 12}}
    axis = {
        "zeroline": False,
        "gridcolor": "#e3e7ec",
        "linecolor": "#aab2bc",
        "automargin": True,
        "tickfont": {"size": 11},
    }
    layout = {
        "template": go.layout.Template(),
        "font": {"family": FONT, "size": 12, "color": "#3c4654"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 20, "t": 12, "b": 8, "pad": 4},
        "showlegend": False,
        "hoverlabel": {"align": "left", "font": {"family": FONT, "size": 12}},
        "xaxis": {**axis, "showgrid": True, "title": {**heading, "text": plain(x)}},
        "yaxis": {**axis, "showgrid": True, "title": {**heading, "text": plain(y)}},
    }
    return go.Figure(list(traces), layout)


def _with_legend(figure: Any) -> None:
    figure.update_layout(
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom", "font": {"size": 12}},
    )
