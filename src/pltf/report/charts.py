"""The charts: axes, shapes and tooltips.

Blue is the fit, orange a highlight, grey the baseline. The colours differ for colour-blind readers too, on a light and
on a dark page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pltf.gamma import Array
from pltf.metrics import Scores
from pltf.report.checks import roc_curve
from pltf.report.components import Ranking
from pltf.report.curves import Curve
from pltf.report.drawing import (
    DARK,
    LIGHT,
    Axis,
    Tick,
    axis,
    band,
    bars,
    dots,
    image,
    line,
    path,
    plain_numbers,
    thinned,
    whiskers,
)
from pltf.report.factors import HeatMap
from pltf.report.formatting import distinct, nats, number, percent, rounded
from pltf.report.history import BoundCurve, ScoreCurve, Trace
from pltf.report.ordering import nice

ROW = 17  # pixels of a row of a heat map
TALLEST = 760
SLICE_HEIGHT = 380
LONGEST_ROW, LONGEST_COLUMN = 30, 12  # characters
LONGEST_NARROW = 13  # of a row where there is little room, as on a phone
Points = list[tuple[float, float, str]]


@dataclass(frozen=True, eq=False)
class Chart:
    """A chart, and where it goes on the page."""

    name: str  # the id of its place
    words: str  # for those who cannot see it
    height: int
    x: Axis
    y: Axis
    paths: str = ""  # lines and areas
    marks: str = ""  # dots, bars and whiskers, above the lines
    legend: tuple[tuple[str, str], ...] = ()  # class and text
    over: tuple[Tick, ...] = ()  # texts above the plot, as over bars
    data: Mapping[str, Any] = field(default_factory=dict)  # tooltips
    remark: str = ""
    inside: bool = False  # names along the upright axis are long, and stand in the plot


@dataclass(frozen=True, eq=False)
class HeatChart:
    """A heat map: an image with a pixel for each cell."""

    name: str
    words: str
    height: int
    rows: tuple[Tick, ...]
    narrow: tuple[str, ...]  # the texts of rows where there is little room
    columns: tuple[Tick, ...]
    every_row: int  # pixels of the chart when every row has its label; 0 if each has one already
    size: tuple[int, int]
    light: str  # addresses of the images
    dark: str
    across: str
    data: Mapping[str, Any]


def _points(x: Array, y: Array, texts: Sequence[str]) -> Points:
    """Positions and tooltips of points, without infinite ones."""
    every = zip(x, y, texts, strict=True)
    return [(float(a), float(b), text) for a, b, text in every if np.isfinite(a) and np.isfinite(b)]


# -- components ---------------------------------------------------------------------------------


def shares(ranking: Ranking) -> Chart:
    """The share of the counts that each component explains, the largest first."""
    assert ranking.share is not None
    assert ranking.mass is not None
    count = len(ranking.order)
    x = 100 * (np.arange(count) + 0.5) / count
    top = 1.12 * max(float(ranking.share.max()), 1e-9)
    y = axis("share of the counts", 0.0, top, _percents(top, 5))
    places = y.place(ranking.share)
    names = [str(position) for position in ranking.order]
    texts = [
        f"component {name}\n{percent(share)} of the counts\n{number(mass)} counts"
        for name, share, mass in zip(names, ranking.share, ranking.mass, strict=True)
    ]
    colours = ["blue" if n < ranking.used else "grey" for n in range(count)]
    return Chart(
        f"shares-{ranking.index}",
        f"Bars: share of the counts of each of {count} components of {ranking.index}, the largest first.",
        230,
        Axis("component", 0, count, thinned(x.tolist(), names), grid=False),
        y,
        marks=bars(x.tolist(), 70 / count, places.tolist(), colours),
        over=tuple(
            Tick(a, percent(share), count > 7, height)
            for a, share, height in zip(x.tolist(), ranking.share, places.tolist(), strict=True)
        )
        if count <= 14
        else (),
        data={"points": _points(x, places, texts), "by": "x"},
    )


def _percents(top: float, most: int) -> list[tuple[float, str]]:
    """Ticks from zero, in percent."""
    ticks = nice(0.0, 100 * top, most)
    return [(one / 100, f"{text} %") for one, text in zip(ticks, plain_numbers(ticks), strict=True)]


def curve(found: Curve, name: str) -> Chart:
    """The shares of a component along an ordered index, with the band of their intervals."""
    top = 1.06 * max(float(found.high.max()), float(found.mean.max()), 1e-300)
    y = axis("", 0.0, top, _percents(top, 4))
    x = found.scale.axis
    at, mean, low, high = x.place(found.scale.x), *(y.place(one) for one in (found.mean, found.low, found.high))
    marks = dots(at, mean, "blue", 2.5) if len(at) <= 40 else ""
    area = band(at.tolist(), low.tolist(), high.tolist(), "band") if found.intervals else ""
    numbers = {"mean": rounded(100 * found.mean), "top": 100 * top}
    if found.intervals:
        numbers |= {"low": rounded(100 * found.low), "high": rounded(100 * found.high)}
    index, size = found.scale.index, len(found.scale.order.positions)
    words = f"Line: the shares along {index}, {size:,} values in their order."
    data = {"curve": index, **numbers}
    return Chart(name, words, 130, x, y, area + path(at, mean, "stroke blue"), marks, data=data)


# -- how the fit went ---------------------------------------------------------------------------


def trace(found: Trace, objective: str) -> Chart:
    """The objective after each iteration."""
    last = int(found.sweep[-1])
    low, high = _rise(found.bound)
    x = axis("iteration (log scale)", 0.96, 1.04 * max(last, 2), _ones_two_fives(last), log=True)
    y = axis(f"{objective} (nats)", low, high)
    at, values = x.place(found.sweep), y.place(found.bound)
    seen = np.isfinite(values) & (values >= 0)
    texts = [
        f"iteration {sweep:,}\n{nats(bound, 2)} nats"
        for sweep, bound in zip(found.sweep[seen].tolist(), found.bound[seen], strict=True)
    ]
    return Chart(
        "trace",
        f"Line: the {objective} after each of {last} iterations.",
        300,
        x,
        y,
        path(at, np.maximum(values, -1000), "stroke blue"),
        dots(at[seen], values[seen], "blue", 3) if len(at) <= 60 else "",
        data={"points": _points(at[seen], values[seen], texts), "by": "x"},
        remark="" if seen.all() else "The first iterations lie below the chart.",
    )


def _ones_two_fives(last: int) -> list[tuple[float, str]]:
    """Ticks 1, 2, 5, 10, ... of a logarithmic axis."""
    return [(step * 10**power, f"{step * 10**power:,}") for power in range(10) for step in (1, 2, 5)]


def _rise(bound: Array) -> tuple[float, float]:
    """The range of the axis: the first iterations may be so far below that the rest looks flat."""
    values = bound[2:] if len(bound) > 8 else bound
    values = values[np.isfinite(values)]
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    room = 0.06 * max(high - low, 1e-9 * abs(high), 1e-9)
    return low - room, high + room


def starts(found: Sequence[Any], objective: str) -> Chart:
    """The values of all restarts, sorted."""
    bounds = np.array([one.bound for one in found])
    known = bounds[np.isfinite(bounds)] if np.isfinite(bounds).any() else np.zeros(1)
    room = max(0.08 * float(np.ptp(known)), 0.5)  # nearly equal restarts should look equal
    y = axis(f"{objective} (nats)", float(known.min()) - room, float(known.max()) + room)
    count = len(found)
    x = axis("restart, from best to worst", 0.5, count + 0.5, _counted(count), grid=False)
    at, values = x.place(np.arange(1, count + 1)), y.place(bounds)
    marks = "".join(
        dots([a], [b], f"{'orange' if one.best else 'blue'}{'' if one.converged else ' open'}", 6 if one.best else 4.5)
        for a, b, one in zip(at, values, found, strict=True)
    )
    texts = [
        f"restart {one.restart}\n{nats(one.bound, 2)} nats ({nats(one.gap, 2)})\n{one.n_iter:,} iterations"
        for one in found
    ]
    words = f"Dots: the {objective} of each of {count} restarts, the best marked."
    return Chart("starts", words, 260, x, y, marks=marks, data={"points": _points(at, values, texts), "by": "xy"})


def _counted(count: int) -> list[tuple[float, str]]:
    every = range(1, count + 1) if count <= 30 else [int(one) for one in nice(1, count, 12)]
    return [(n, str(n)) for n in every]


def order(found: BoundCurve, number_of: int) -> Chart:
    """The ELBO against a size, a model or a prior."""
    top = max(found.best)
    runs = [(value, bound, dropped) for value, bound, dropped in found.runs if value in found.values]
    low = min([bound for _, bound, dropped in runs if not dropped] + list(found.best))
    room = 0.08 * max(top - low, 1.0)
    values = axis("ELBO (nats)", low - room, top + room)
    texts = [f"{found.name} {value}\nbest {nats(best)} nats ({nats(best - top)})" for value, best in _pairs(found)]
    chosen = [(value, best) for value, best in _pairs(found) if value == found.winner]
    legend = [("dot blue", "best run"), *([("dot orange open", "chosen")] if chosen else []), ("dot grey", "one run")]
    legend += [("dot grey open", "dropped early")] if any(gone for _, _, gone in runs) else []
    words = f"Line: the best ELBO for each {found.name} that was tried; dots: single runs{_choice(found)}."
    name = f"order-{number_of}"
    frame = _Against(found.name, found.ordered, found.values, values)
    shown = [(value, bound, gone) for value, bound, gone in runs if bound >= low - room]
    marks = frame.dots([one[:2] for one in shown if one[2]], "grey open", 3)
    marks += frame.dots([one[:2] for one in shown if not one[2]], "grey", 3)
    marks += frame.dots(list(_pairs(found)), "blue", 4) + frame.dots(chosen, "orange open", 7)
    return frame.chart(name, words, list(_pairs(found)), texts, marks, legend)


def predicted(found: ScoreCurve, number_of: int) -> Chart:
    """The score on held-out cells against a size, a model or a prior."""
    best, errors = np.array(found.best), np.nan_to_num(np.array(found.errors))
    low, high = float((best - errors).min()), float((best + errors).max())
    room = 0.08 * max(high - low, 1e-6)
    values = axis(f"{found.score} of held-out cells", low - room, high + room)
    frame = _Against(found.name, found.ordered, found.values, values)
    texts = [
        f"{found.name} {value}\n{one:.4f} ± {error:.4f}"
        for (value, one), error in zip(_pairs(found), errors, strict=True)
    ]
    marks = frame.whiskers(best - errors, best + errors) + frame.dots(list(_pairs(found)), "blue", 4)
    chosen = [(found.winner, found.reached)] if found.winner is not None else []
    marks += frame.dots(chosen, "orange open", 7)
    words = f"Line: the {found.score} of held-out cells for each {found.name}, with standard errors"
    legend = [("dot blue", "score and standard error"), *([("dot orange open", "chosen")] if chosen else [])]
    return frame.chart(f"hidden-{number_of}", f"{words}{_choice(found)}.", list(_pairs(found)), texts, marks, legend)


def _choice(found: BoundCurve | ScoreCurve) -> str:
    return "" if found.winner is None else f"; {found.winner} was chosen"


def _pairs(found: BoundCurve | ScoreCurve) -> list[tuple[Any, float]]:
    return list(zip(found.values, found.best, strict=True))


class _Against:
    """A chart against sizes, from left to right, or against models or priors, from top to bottom."""

    def __init__(self, name: str, ordered: bool, tried: Sequence[Any], values: Axis) -> None:
        self.ordered, self.values, count = ordered, values, len(tried)
        if ordered:
            room = 0.06 * max(max(tried) - min(tried), 1)
            few = tried if count <= 25 else [int(one) for one in nice(min(tried), max(tried), 12)]
            ticks = [(one, str(one)) for one in few]
            self.along = axis(f"size of {name}", min(tried) - room, max(tried) + room, ticks, grid=False)
            self.places = dict(zip(tried, self.along.place(tried).tolist(), strict=True))
        else:
            at = [100 * (count - n - 0.5) / count for n in range(count)]
            texts = distinct([str(one) for one in tried], 120)
            self.along = Axis(name, 0, 1, tuple(Tick(a, text) for a, text in zip(at, texts, strict=True)))
            self.places = dict(zip(tried, at, strict=True))

    def at(self, points: Sequence[tuple[Any, float]]) -> tuple[Array, Array]:
        """Positions of points, from left to right and upwards."""
        along = np.array([self.places[value] for value, _ in points])
        values = self.values.place([number for _, number in points])
        return (along, values) if self.ordered else (values, along)

    def dots(self, points: Sequence[tuple[Any, float]], css: str, radius: float) -> str:
        return dots(*self.at(points), css, radius) if points else ""

    def whiskers(self, low: Array, high: Array) -> str:
        along, (below, above) = list(self.places.values()), (self.values.place(end) for end in (low, high))
        if self.ordered:
            return whiskers(along, below, above, "blue")
        return "".join(line((a, b), (y, y), "whisker blue") for y, a, b in zip(along, below, above, strict=True))

    def chart(
        self,
        name: str,
        words: str,
        best: Sequence[tuple[Any, float]],
        texts: Sequence[str],
        marks: str,
        legend: Sequence[tuple[str, str]],
    ) -> Chart:
        x, y = self.at(best)
        data = {"points": _points(x, y, texts), "by": "xy"}
        if self.ordered:
            found = path(x, y, "stroke blue")
            return Chart(name, words, 320, self.along, self.values, found, marks, tuple(legend), data=data)
        height = 30 + 64 * len(self.places)
        return Chart(
            name, words, height, self.values, self.along, marks=marks, legend=tuple(legend), data=data, inside=True
        )


# -- factors ------------------------------------------------------------------------------------


def heat_map(found: HeatMap, name: str) -> HeatChart:
    """A factor, or a slice of it."""
    rows, columns = distinct(found.rows, LONGEST_ROW), distinct(found.columns, LONGEST_COLUMN)
    height = min(TALLEST, max(60, ROW * len(rows)))
    height = min(height, SLICE_HEIGHT) if found.slice else height
    step = max(1, -(-len(rows) * 11 // height))
    centre = [100 * (n + 0.5) / len(rows) for n in range(len(rows))]
    middle = [100 * (n + 0.5) / len(columns) for n in range(len(columns))]
    data: dict[str, Any] = {
        "rows": list(found.rows),
        "columns": list(found.columns),
        "down": found.row_index or "value",
        "across": _across(found) or "value",
        "mean": rounded(found.mean.ravel()),
    }
    if found.intervals:
        data |= {"low": rounded(found.low.ravel()), "high": rounded(found.high.ravel())}
    told = f"{len(rows)} rows of {found.row_index}, {len(columns)} columns"
    return HeatChart(
        name,
        f"Heat map: {found.factor} {found.slice}, {told}.",
        height,
        tuple(Tick(at, text, bool(n % step)) for n, (at, text) in enumerate(zip(centre, rows, strict=True))),
        tuple(distinct(found.rows, LONGEST_NARROW)),
        found.ticks or thinned(middle, columns),
        ROW * len(rows) if step > 1 else 0,
        (len(rows), len(columns)),
        image(found.colour, LIGHT),
        image(found.colour, DARK),
        _across(found),
        data,
    )


def _across(found: HeatMap) -> str:
    if found.slice or not found.column_index:
        return found.column_index
    return f"component ({found.column_index})" if found.by_component else found.column_index


# -- checks -------------------------------------------------------------------------------------


def calibration(scores: Scores, name: str = "calibration") -> Chart:
    """Observed against expected counts in bins of cells."""
    fitted, popular = scores.calibration, scores.popularity_calibration
    shown = np.concatenate([part[column] for part in (fitted, popular) for column in ("expected", "observed", "high")])
    shown = shown[np.isfinite(shown) & (shown > 0)]
    shown = shown if shown.size else np.ones(1)  # all counts may be zeros
    ends = float(shown.min() / 1.6), float(shown.max() * 1.6)
    x = axis("expected count of a cell", *ends, _decades(*ends), log=True)
    y = axis("observed count of a cell", *ends, _decades(*ends), log=True)
    grey, ours = _bins(popular, x, y, "grey", 3.5, "popularity"), _bins(fitted, x, y, "blue", 4.5, "fit")
    return Chart(
        name,
        f"Dots: observed against expected counts in {len(fitted)} bins of cells.",
        360,
        x,
        y,
        path([0, 100], [0, 100], "stroke thin grey dashed"),
        grey[0] + ours[0],
        (("line grey dashed", "perfect"), ("dot grey", "popularity"), ("dot blue", "fit")),
        data={"points": grey[1] + ours[1], "by": "xy"},
    )


def _decades(low: float, high: float) -> list[tuple[float, str]]:
    """Plain numbers along a logarithmic axis."""
    first, last = (int(np.floor(np.log10(end))) for end in (low, high))
    steps = (1,) if last - first > 2 else (1, 2, 5)
    found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return [(tick, f"{tick:g}" if tick < 1e5 else f"{tick:.0e}") for tick in found]


def _bins(table: Any, x: Axis, y: Axis, css: str, radius: float, name: str) -> tuple[str, Points]:
    """Bins with their intervals; bins without observed counts are at the lower edge."""
    expected, observed = (table[column].to_numpy(dtype=float) for column in ("expected", "observed"))
    high, low = (np.nan_to_num(table[end].to_numpy(dtype=float), nan=0.0) for end in ("high", "low"))
    at, value = x.place(np.maximum(expected, x.low)), y.place(np.maximum(observed, y.low))
    ends = y.place(np.maximum(low, y.low)), y.place(np.maximum(high, np.maximum(observed, y.low)))
    known = high > 0
    marks = whiskers(at[known], ends[0][known], ends[1][known], css)
    zero = observed <= 0
    marks += dots(at[~zero], value[~zero], css, radius) + dots(at[zero], value[zero], f"{css} open", radius)
    texts = [
        f"{name}\nexpected {number(a)}\nobserved {number(b)}\n{int(cells):,} cells"
        for a, b, cells in zip(expected, observed, table["cells"], strict=True)
    ]
    return marks, _points(at, value, texts)


def roc(scores: Scores, name: str = "roc") -> Chart:
    """True against false positive rates, compared with popularity."""
    x = axis("false positive rate", 0.0, 1.0, _percents(1.0, 6))
    y = axis("true positive rate", 0.0, 1.0, _percents(1.0, 6))
    paths, points = path([0, 100], [0, 100], "stroke thin grey dashed"), Points()
    legend = [("line grey dashed", "chance")]
    for who, said, column, css in (
        ("popularity", scores.popularity, "popularity", "grey"),
        ("fit", scores.means, "value", "blue"),
    ):
        wrong, right = roc_curve(scores.values, said)
        paths += path(100 * wrong, 100 * right, f"stroke {css}")
        legend.append((f"line {css}", f"{who}, AUC {scores.table.loc['auc', column]:.3f}"))
        texts = [
            f"{who}\nfalse positives {percent(a)}\ntrue positives {percent(b)}"
            for a, b in zip(wrong, right, strict=True)
        ]
        points += _points((100 * wrong).round(2), (100 * right).round(2), texts)
    words = f"ROC curve of the fit, AUC {scores.auc:.3f}, compared with that of popularity."
    return Chart(name, words, 360, x, y, paths, legend=tuple(legend), data={"points": points, "by": "xy"})
