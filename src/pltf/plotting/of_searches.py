"""Figures of searches: ELBO and held-out scores against the sizes that were tried."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.errors import PltfError
from pltf.plotting.axes import new_axes, panels

if TYPE_CHECKING:
    from pltf.fit import Fit
    from pltf.selection import Selection


def bound_curve(bounds: Mapping[int, Fit | float | Sequence[float]], ax: Any = None, *, index: str = "r") -> Any:
    """The ELBO against the size of a latent index: every restart, the best of each size and its gap to the highest.

    ``bounds`` maps each size to a fit, an ELBO, or the ELBOs of several restarts. The highest ELBO has a ring.

    >>> import matplotlib; matplotlib.use("agg")
    >>> import pltf.plotting
    >>> ax = pltf.plotting.bound_curve({2: [-30.0, -31.0], 3: [-20.0, -25.0], 4: [-24.0, -24.5]})
    >>> ax.get_title()
    'the ELBO is highest at r = 3'
    """
    return _bound_curve(bounds, new_axes(ax), index, None)


def _bound_curve(bounds: Mapping[int, Any], ax: Any, index: str, chosen: int | None) -> Any:
    """The curve, with a ring at the chosen size; None: that with the highest ELBO."""
    orders = sorted(bounds)
    runs = {order: _bounds(bounds[order]) for order in orders}
    best = [max(runs[order]) for order in orders]
    winner = orders[int(np.argmax(best))]
    for order in orders:
        ax.plot([order] * len(runs[order]), runs[order], "o", color="0.6", markersize=4, zorder=2)
    ax.plot(orders, best, "-o", color="C0", zorder=3)
    chosen = winner if chosen is None else chosen
    _ring(ax, chosen, best[orders.index(chosen)], "o")
    for order, value in zip(orders, best, strict=True):
        words = ["highest" if chosen != winner else "best"] if order == winner else [f"{value - max(best):,.0f}"]
        gap = ", ".join([*words, *(["chosen"] if order == chosen != winner else [])])
        ax.annotate(gap, (order, value), xytext=(7, -11), textcoords="offset points", fontsize=8)
    ax.margins(x=0.12, y=0.12)
    ax.ticklabel_format(axis="y", style="plain", useOffset=False)
    ax.set_xticks(orders)
    ax.set_xlabel(f"size of {index}")
    ax.set_ylabel("ELBO (nats)")
    ax.set_title(f"the ELBO is highest at {index} = {winner}")
    return ax


def search(found: Selection, axes: Any = None) -> Any:
    """The results of a search, with one panel for each size, model or prior that was varied; returns the axes.

    Each panel shows the ELBO of all runs (crosses: runs that were stopped early) and the best run for each value. Rings
    mark what was chosen, which may have a lower ELBO than another if held-out cells chose it.
    Scores on held-out cells have their own axis on the right, or the whole panel if the search did not use the ELBO.

    >>> import matplotlib; matplotlib.use("agg")
    >>> import numpy as np, pltf
    >>> X = np.kron(np.diag([9, 5]), np.ones((5, 4)))
    >>> ax = pltf.select(pltf.nmf(rank=1), X, r=range(1, 5), restarts=2).plot()
    >>> ax.get_title()
    'the ELBO is highest at r = 2'
    """
    varied = varied_in(found)
    drawn = panels(len(varied), axes, sharey=found.criterion != "both")
    for name, ax in zip(varied, drawn, strict=True):
        if found.criterion != "heldout":
            _bounds_against(name, found, ax)
        if found.by_hidden_cells:
            _scores_against(name, found, ax if found.criterion == "heldout" else ax.twinx(), ax)
    for ax in drawn[1:] if found.criterion != "both" else ():
        ax.set_ylabel("")
    return drawn[0] if len(drawn) == 1 else np.array(drawn, dtype=object)


def varied_in(found: Selection) -> list[str]:
    """The sizes, models and priors that were varied, one per panel."""
    from pltf.selection.result import labels_of

    summary = found.summary()
    labels = labels_of(summary)
    varied = [name for name in labels if summary[name].nunique() > 1] or labels[:1]
    if not varied:
        raise PltfError("the model has no latent index: there is nothing to draw the ELBO against")
    return varied


def _bounds_against(name: str, found: Selection, ax: Any) -> None:
    """The ELBO of every run against one varied quantity."""
    from pltf.selection.grid import is_size

    known = found.table.dropna(subset=[name])
    dropped = known["stopped"] == "dropped"
    runs = {value: part["bound"].tolist() for value, part in known[~dropped].groupby(name, sort=False)}
    chosen = found.best.get(name)  # the winner may be a model without this index
    if not is_size(name):
        place = next((n for n, one in enumerate(runs) if str(one) == str(chosen)), None)
        _bound_curve(dict(enumerate(runs.values())), ax, name, place)
        ax.set_xticks(range(len(runs)), [textwrap.fill(str(one), 24) for one in runs])
        ax.set(xlabel=name, title=f"best {name}")
        places = known[dropped][name].map({value: place for place, value in enumerate(runs)})
    else:
        _bound_curve({int(value): bounds for value, bounds in runs.items()}, ax, name, chosen)
        places = known[dropped][name].astype(int)
    limits = ax.get_ylim()  # runs that were dropped early may be far below
    ax.plot(places, known[dropped]["bound"], "x", color="0.75", markersize=4, zorder=1, label="dropped")
    ax.set_ylim(limits)


def _scores_against(name: str, found: Selection, ax: Any, titled: Any) -> None:
    """Scores on held-out cells with their standard errors: the best candidate for each value, and the winner.

    The title goes below that of the axes ``titled``.
    """
    from pltf.selection.grid import is_size
    from pltf.selection.result import best_scores

    best, sizes = best_scores(found, name), is_size(name)
    values = list(best)
    places = values if sizes else list(range(len(values)))
    means, errors = np.array(list(best.values())).T
    ax.errorbar(places, means, errors, color="C1", marker="s", markersize=5, capsize=3, zorder=3)
    if name in found.best:  # the winner may be a model without this index
        place, folds = places[values.index(found.best[name])], found.winner.folds
        assert folds is not None
        _ring(ax, place, folds.mean, "s")
    ax.set_xticks(places, None if sizes else [textwrap.fill(str(one), 24) for one in values])
    ax.set_xlabel(f"size of {name}" if sizes else name)
    ax.margins(x=0.12)
    ax.set_ylabel(f"held-out {found.score.replace('log_', 'log-').replace('_', ' ')} ± standard error")
    if ax is not titled:  # which axis goes with which curve
        titled.yaxis.label.set_color("C0")
        ax.yaxis.label.set_color("C1")
    chosen = f"held-out cells choose {name} = {found.best[name]}" if name in found.best else ""
    title = chosen if sizes else f"best {name}"
    titled.set_title("\n".join(dict.fromkeys(filter(None, (titled.get_title(), title)))))


def _ring(ax: Any, x: float, y: float, marker: str) -> None:
    ax.plot([x], [y], marker, color="C3", markersize=11, fillstyle="none", markeredgewidth=2, zorder=4)


def _bounds(given: Fit | float | Sequence[float]) -> list[float]:
    rows = getattr(given, "rows", None)
    return [row.bound for row in rows] if rows is not None else [float(one) for one in np.atleast_1d(np.asarray(given))]
