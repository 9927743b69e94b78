"""One figure for each figure of the paper, and two more. Colours have the same meaning in all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

from experiments.common import FPR, Json
from experiments.coverage import ALONE, KINDS_OF_CELLS, WITH_SPREAD
from experiments.formatting import percent, spread, standard_error
from experiments.results import KNOWN, NO_SIDE, Saved, only, tucker_of_the_figure

VB, EM, POPULAR = "#0072B2", "#D55E00", "0.55"
LEVEL_COLOURS = {
    0.1: "#CC79A7",
    0.4: "#56B4E9",
    0.6: "#009E73",
    0.8: "#5B3A8C",
    0.95: "#B8860B",
}  # by the share that is missing
PRIOR_COLOURS = {(0.5, 10.0): VB, (10.0, 10.0): "#009E73", (100.0, 1.0): "#CC79A7"}
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.92",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "pltf",
}
Rows = Sequence[Json]


def draw(saved: Saved, folder: Path) -> None:
    """Draw every figure whose results exist."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (part, figure) in FIGURES.items():
        if part in saved:
            save(figure, saved[part], folder / f"paper-{name}.svg")


def save(figure: Callable[[Json], Any], found: Json, path: Path) -> None:
    """Draw a figure of these results into a file."""
    with mpl.rc_context(STYLE):
        drawn = figure(found)
        drawn.savefig(path, metadata={"Date": None})
        plt.close(drawn)


def order(found: Json) -> Any:
    """Figure 2: the ELBO against the order, relative to the best order of each run."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    edge = found["edge"]
    for ax, rows, title in (
        (axes[0], found["synthetic"], f"(a) synthetic {edge}x{edge}x{edge}, true order 7"),
        (axes[1], [row for row in found["uclaf"] if row["prior"] == "paper"], "(b) UCLAF"),
    ):
        for n, row in enumerate(rows):
            _bound_curve(ax, row, f"{percent(row['missing'])} missing", LEVEL_COLOURS[row["missing"]], ring=9 + 4 * n)
        _order_axes(ax, rows[0]["orders"], title)
    axes[0].axvline(7, color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    _nats_below(axes[0], least=100)
    axes[0].legend(loc="lower right")
    axes[1].legend(loc="lower left")
    return figure


def scale(found: Json) -> Any:
    """Figure 3: the ELBO against the order, at two sizes."""
    figure, ax = plt.subplots(figsize=(5.4, 3.8), layout="constrained")
    for row, colour, ring in zip(found["sizes"], ("#56B4E9", "#5B3A8C"), (9, 13), strict=True):
        edge = row["edge"]
        _bound_curve(ax, row, f"{edge}x{edge}x{edge}", colour, ring)
    _order_axes(ax, found["sizes"][0]["orders"], "nothing missing, true order 7")
    ax.axvline(7, color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    _nats_below(ax, least=100)
    ax.legend(loc="lower right")
    return figure


def _bound_curve(ax: Any, row: Json, label: str, colour: str, ring: float) -> None:
    """Mean gap of each order to the best one, with a band of one standard deviation; the peak is ringed."""
    bounds = np.array(row["bounds"])
    below = bounds - bounds.max(axis=1, keepdims=True)
    mean, sd = below.mean(axis=0), spread(below)
    peak = int(np.argmax(mean))
    ax.fill_between(row["orders"], mean - sd, np.minimum(mean + sd, 0), color=colour, alpha=0.2, linewidth=0)
    ax.plot(row["orders"], mean, "-o", color=colour, markersize=3.5, label=f"{label}: peak at {row['orders'][peak]}")
    ax.plot(row["orders"][peak], mean[peak], "o", color=colour, markersize=ring, fillstyle="none", markeredgewidth=1.6)


def _order_axes(ax: Any, orders: Sequence[int], title: str) -> None:
    ax.set(xlabel="order |r| (components)", ylabel="ELBO, relative to its peak (nats)", title=title)
    ax.set_xticks([r for r in orders if len(orders) < 12 or r == 1 or r % 2 == 0])


def _nats_below(ax: Any, least: float) -> None:
    """Logarithmic scale below the peak: too few components cost a thousand times as much as too many."""
    ax.set_yscale("symlog", linthresh=least)
    lowest = np.floor(np.log10(-ax.dataLim.y0))
    ax.set_yticks([0, *(-(10.0**n) for n in range(2, int(lowest) + 1))])
    ax.set_ylim(top=least / 2)


def priors(found: Json) -> Any:
    """Figure 4: three priors, CP with two components."""
    figure, axes = _roc_panels(found["popularity"])
    for ax, missing in axes:
        for (shape, mean), colour in PRIOR_COLOURS.items():
            row = only(found["rows"], shape=shape, mean=mean, missing=missing)
            _roc(ax, row, f"VB, A={shape:g}, B={mean:g}", colour)
    return _with_legends(figure, axes)


def _link_figure(pairs: Callable[[Json], Sequence[tuple[str, str, str, dict[str, Any]]]]) -> Callable[[Json], Any]:
    """A figure of ROC curves from the results on links: model, method, label and style of each curve."""

    def figure_of(found: Json) -> Any:
        popular = [row for row in found["rows"] if row["way"] == "smoothed"]
        figure, axes = _roc_panels(popular)
        for ax, missing in axes:
            for model, way, label, look in pairs(found):
                _roc(ax, only(found["rows"], model=model, way=way, missing=missing), label, **look)
        return _with_legends(figure, axes)

    return figure_of


def _vb_and_em(model: str) -> Sequence[tuple[str, str, str, dict[str, Any]]]:
    return [(model, "VB", f"{model}, VB", {"colour": VB}), (model, "EM", f"{model}, EM", {"colour": EM})]


def _two_ranks(way: str, colour: str) -> Sequence[tuple[str, str, str, dict[str, Any]]]:
    few, many = {"colour": colour}, {"colour": colour, "linestyle": "--"}
    return [("CP R=2", way, f"{way}, R=2", few), ("CP R=20", way, f"{way}, R=20", many)]


def _roc_panels(popular: Rows) -> tuple[Any, list[tuple[Any, float]]]:
    figure, axes = plt.subplots(1, len(popular), figsize=(11, 3.7), layout="constrained", sharey=True)
    for ax, row in zip(axes, popular, strict=True):
        _roc(ax, row, "popularity", POPULAR, linewidth=1.0)
        ax.set(
            title=f"{percent(row['missing'])} missing", xlabel="false positive rate", xlim=(-0.01, 1), ylim=(0, 1.01)
        )
    axes[0].set_ylabel("true positive rate")
    return figure, [(ax, row["missing"]) for ax, row in zip(axes, popular, strict=True)]


def _roc(ax: Any, row: Json, label: str, colour: str, **look: Any) -> None:
    auc = np.array(row["auc"])
    text = f"{label}: AUC {auc.mean():.3f} ± {spread(auc):.3f}"
    ax.plot(FPR, row["tpr"], color=colour, label=text, **({"linewidth": 1.6} | look))


def _with_legends(figure: Any, axes: Sequence[tuple[Any, float]]) -> Any:
    for ax, _ in axes:
        lines, labels = ax.get_legend_handles_labels()
        ax.legend(lines[1:] + lines[:1], labels[1:] + labels[:1], loc="lower right")  # popularity last
    return figure


def side(found: Json) -> Any:
    """Difference to no side data, for each matrix, prior and share of missing cells."""
    plans = list(dict.fromkeys((row["prior"], row["rank"]) for row in found["rows"]))
    cases = [case for case in dict.fromkeys(row["case"] for row in found["rows"]) if case not in (NO_SIDE, KNOWN)]
    width = 2.2 + 2.4 * len(plans)
    figure, axes = plt.subplots(1, len(plans), figsize=(width, 4.8), layout="constrained", sharey=True, sharex=True)
    for ax, (prior, rank) in zip(axes, plans, strict=True):
        rows = [row for row in found["rows"] if (row["prior"], row["rank"]) == (prior, rank)]
        ax.axvline(0, color="0.4", linewidth=0.8)
        for row in (row for row in rows if row["case"] in cases):
            gain = np.array(row["auc"]) - only(rows, case=NO_SIDE, missing=row["missing"])["auc"]
            place = cases.index(row["case"]) + (row["missing"] - 0.6)  # a fifth of a row apart
            look = {"color": LEVEL_COLOURS[row["missing"]], "markersize": 4, "linewidth": 1.4}
            ax.errorbar(gain.mean(), place, xerr=2 * standard_error(gain), fmt="o", **look)
        ax.set_title(f"R={rank}, {'default prior' if prior == 'default' else prior}")
        ax.set_xscale("symlog", linthresh=0.01, linscale=1.0)
        ax.set_xticks([-0.1, -0.01, 0, 0.01], ["−0.1", "−0.01", "0", "0.01"])
        ax.minorticks_off()
    axes[0].set_yticks(range(len(cases)), cases)
    axes[0].invert_yaxis()
    label = "AUC of hidden links: difference to no side data (mean ± 2 standard errors; logarithmic beyond ±0.01)"
    figure.supxlabel(label, fontsize=9)
    figure.legend(handles=_level_handles(found["rows"]), loc="outside upper center", ncols=3)
    return figure


def _level_handles(rows: Rows) -> list[Any]:
    levels = sorted({row["missing"] for row in rows})
    return [
        Line2D([], [], color=LEVEL_COLOURS[m], marker="o", markersize=4, label=f"{percent(m)} missing") for m in levels
    ]


def coverage(found: Json) -> Any:
    """Coverage against the nominal level: solid with spread, dashed for the posterior alone."""
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.9), layout="constrained", sharey=True)
    levels = 100 * np.array(found["levels"])
    for ax, kind in zip(axes, KINDS_OF_CELLS, strict=True):
        ax.plot([0, 100], [0, 100], color="0.4", linewidth=0.8, linestyle=":", label="nominal level")
        for row in found["rows"]:
            held, colour = 100 * np.array(row[WITH_SPREAD][kind]), LEVEL_COLOURS[row["missing"]]
            mean, sd = held.mean(axis=0), spread(held)
            ax.fill_between(levels, mean - sd, mean + sd, color=colour, alpha=0.12, linewidth=0)
            ax.plot(levels, mean, "-o", color=colour, markersize=3.5, label=f"{percent(row['missing'])} missing")
            alone = 100 * np.mean(row[ALONE][kind], axis=0)
            ax.plot(levels, alone, "--", color=colour, linewidth=0.9)
        ax.plot([], [], "--", color="0.4", linewidth=0.9, label="posterior alone")
        ax.set(title=f"{kind} cells", xlabel="level of the intervals (%)", xlim=(48, 101))
    axes[0].set_ylabel("true rates within them (%)")
    lines = [line for ax in axes for line in ax.get_lines()[1:] if len(line.get_ydata())]
    axes[0].set_ylim(min(line.get_ydata().min() for line in lines) - 8, 101)
    axes[0].legend(loc="upper left")
    return figure


FIGURES: dict[str, tuple[str, Callable[[Json], Any]]] = {
    "order": ("order", order),
    "scale": ("scale", scale),
    "priors": ("priors", priors),
    "cp": ("links", _link_figure(lambda found: _vb_and_em("CP R=2"))),
    "tucker": ("links", _link_figure(lambda found: _vb_and_em(tucker_of_the_figure(found)))),
    "vb-ranks": ("links", _link_figure(lambda found: _two_ranks("VB", VB))),
    "em-ranks": ("links", _link_figure(lambda found: _two_ranks("EM", EM))),
    "side": ("side", side),
    "coverage": ("coverage", coverage),
}
