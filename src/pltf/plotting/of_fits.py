"""Figures of fits: components, factors, courses over time, and the trace."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pltf.errors import PltfError, py, whole
from pltf.hints import suggestion
from pltf.plotting.axes import new_axes, panels, plain

if TYPE_CHECKING:
    from pltf.data.labels import Labels
    from pltf.fit import Fit
    from pltf.gamma import Array, Factor

MOST_BARS = 40
MOST_CURVES = 10
MOST_TICKS = 40  # names beside an axis
_NUMBERS = "Miuf"  # kinds of labels that have a place on an axis
_TINY = np.finfo(float).tiny


def trace(fit: Fit, ax: Any = None) -> Any:
    """The evidence lower bound (ELBO), or the objective of EM and MAP, against the iterations; returns the axes.

    >>> import matplotlib; matplotlib.use("agg")
    >>> import numpy as np, pltf, pltf.plotting
    >>> ax = pltf.plotting.trace(pltf.nmf(rank=1).fit(np.ones((3, 4))))
    >>> ax.get_xlabel()
    'iteration'
    """
    ax = new_axes(ax)
    ax.plot(np.arange(1, fit.n_iter + 1), fit.trace, marker="o" if fit.n_iter == 1 else None)
    ax.set_xlabel("iteration")
    ax.set_ylabel(f"{'ELBO' if fit.objective == 'bound' else fit.objective} (nats)")
    return ax


def components(fit: Fit, ax: Any = None, *, index: str | None = None, top: int = 3) -> Any:
    """The share of the counts that each component explains, the largest on top, with its top labels; returns the axes.

    Components have the numbers that they have in the factors and in :meth:`pltf.Fit.components`. ``index`` names the
    latent index, if the model has several; ``top`` is the number of labels of each factor.

    >>> import matplotlib; matplotlib.use("agg")
    >>> import numpy as np, pltf, pltf.plotting
    >>> fit = pltf.nmf(rank=2).fit(np.kron(np.diag([9, 5]), np.ones((3, 2))), restarts=3)
    >>> pltf.plotting.components(fit).get_xlabel()
    'share of the counts'
    """
    table = fit.components(index, top=top)
    shown = table.iloc[:MOST_BARS]
    names = [
        _of_component(f"{table.index.name}={n}", row[2:]) for n, row in zip(shown.index, shown.values, strict=True)
    ]
    lines = max(name.count("\n") + 1 for name in names)
    ax = new_axes(ax, (6, 1 + len(names) * (0.15 + 0.15 * lines)))
    places = np.arange(len(names))
    bars = ax.barh(places, shown["share"], color="C0")
    ax.bar_label(bars, [f" {share:.1%}" for share in shown["share"]], fontsize=8)
    ax.set_yticks(places, names, fontsize=8)
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.set_xlabel("share of the counts")
    some = f" (the largest {len(shown)} of {len(table)})" if len(shown) < len(table) else ""
    ax.set_title(f"components{some}")
    return ax


def _of_component(number: str, tops: Sequence[Sequence[Any]]) -> str:
    """The number of a component, and a line for the top labels of each factor."""
    return "\n".join([number, *(", ".join(plain(label, 18) for label in labels) for labels in tops if len(labels))])


def factors(fit: Fit, names: str | Sequence[str] | None = None, axes: Any = None, *, most: int = 40) -> Any:
    """Heat maps of factors, one panel for each; returns an array of axes.

    Colours are relative to the largest entry of each component. Rows with dates or numbers as labels are all shown, in
    their order. Others are sorted by their strongest component; of more than ``most``, those with the largest entries
    are shown, and the title says so. ``names`` says which factors; by default all of them.

    >>> import matplotlib; matplotlib.use("agg")
    >>> import numpy as np, pltf, pltf.plotting
    >>> fit = pltf.nmf(("user", "place"), rank=2).fit(np.ones((3, 2)))
    >>> [ax.get_title() for ax in pltf.plotting.factors(fit)]
    ['W[user,r]', 'H[r,place]']
    """
    known, most = fit.factors, whole("most", most, 1)
    chosen = [names] if isinstance(names, str) else list(known if names is None else names)
    maps = [_heat_map(fit, name, known[name], most) for name in chosen]
    height = 1.5 + 0.17 * min(max((len(one.rows) for one in maps), default=1), MOST_TICKS)
    drawn = panels(len(maps), axes, sharey=False, size=(3.6, max(3.0, height)))
    for one, ax in zip(maps, drawn, strict=True):
        ax.imshow(one.colour, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        _name_ticks(ax.yaxis, one.rows, most)
        _name_ticks(ax.xaxis, one.columns, most)
        ax.tick_params(axis="x", rotation=90 if sum(map(len, one.columns)) > 20 else 0)
        ax.set(ylabel=one.row_index, xlabel=one.column_index)
        ax.set_title(one.title, fontsize=9)
    return np.array(drawn, dtype=object)


@dataclass(frozen=True, eq=False)
class _HeatMap:
    title: str
    row_index: str
    column_index: str
    rows: list[str]
    columns: list[str]
    colour: Array  # from 0 to 1


def _heat_map(fit: Fit, name: str, factor: Factor, most: int) -> _HeatMap:
    """A factor as a matrix: an observed index goes down if there is one, all others go across."""
    indices, title = factor.indices, f"{name}[{','.join(factor.indices)}]"
    if not indices:
        return _HeatMap(title, "", "", [""], [""], np.ones((1, 1)))
    mean = factor.mean
    down = next((axis for axis, index in enumerate(indices) if index not in fit.model.sizes), 0)
    others = [axis for axis in range(mean.ndim) if axis != down]
    matrix = np.moveaxis(mean, down, 0).reshape(mean.shape[down], -1)
    by_component = indices[down] not in fit.model.sizes and len(others) == 1
    peak = matrix.max(axis=0, keepdims=True) if by_component else matrix.max()
    colour = matrix / np.maximum(peak, _TINY)
    rows = _shown_rows(colour, most, fit.labels.get(indices[down]))
    if len(rows) < len(matrix):
        title += f"\n{len(rows)} of {len(matrix):,} along {indices[down]}"
    names = [[_name(fit, indices[axis], at) for at in range(mean.shape[axis])] for axis in others]
    return _HeatMap(
        title,
        indices[down],
        ", ".join(indices[axis] for axis in others),
        [_name(fit, indices[down], at) for at in rows],
        [", ".join(cell) for cell in itertools.product(*names)],
        colour[rows],
    )


def _shown_rows(colour: Array, most: int, labels: Labels | None) -> NDArray[np.intp]:
    """All rows if they are ordered; otherwise those with the largest entries, by their strongest component."""
    if labels is not None and is_ordered(labels):
        numbers = labels.index.dtype.kind in _NUMBERS  # updates append new ones
        return np.argsort(np.asarray(labels.index), kind="stable") if numbers else np.arange(len(colour))
    rows = np.sort(np.argsort(-colour.max(axis=1), kind="stable")[:most])
    if labels is None:
        return rows
    return rows[np.lexsort((-colour[rows].max(axis=1), colour[rows].argmax(axis=1)))]


def _name(fit: Fit, index: str, position: int) -> str:
    labels = fit.labels.get(index)
    return str(position) if labels is None else plain(labels.called([position])[0])


def _name_ticks(axis: Any, names: list[str], most: int = MOST_TICKS) -> None:
    """Names along an axis: all of them, or every second, third, ... if there are many."""
    step = -(-len(names) // min(most, MOST_TICKS))
    axis.set_ticks(range(0, len(names), step), names[::step], fontsize=7)


def is_ordered(labels: Labels) -> bool:
    """Whether labels are ordered: dates, hours, weekdays, numbers."""
    return labels.bin is not None or labels.index.dtype.kind in _NUMBERS


def time_courses(fit: Fit, index: str | None = None, ax: Any = None, *, level: float = 0.9) -> Any:
    """The counts that each component explains along an index with an order, with credible intervals; returns the axes.

    ``index`` is by default the first whose labels are dates, hours, weekdays or numbers. ``level`` is the probability
    of the bands. Of more than ten components the largest ten are drawn, and the title says so.

    >>> import matplotlib; matplotlib.use("agg")
    >>> import numpy as np, pandas as pd, pltf, pltf.plotting
    >>> days = pd.date_range("2026-01-05", periods=20)
    >>> visits = pd.DataFrame({"user": np.tile(["ann", "bob"], 10), "day": days})
    >>> fit = pltf.nmf(("user", "day"), rank=2).fit(visits)
    >>> pltf.plotting.time_courses(fit).get_xlabel()
    'day'
    """
    index = _index_in_time(fit, index)
    name, latent = _curves_of(fit, index)
    factor = fit.factors[name]
    across = factor.indices[0] == latent
    mean, low, high = (one.T if across else one for one in (factor.mean, *factor.interval(level)))
    mass = fit.mass.get(latent)
    scale = np.ones(mean.shape[1]) if mass is None else mass / np.maximum(mean.sum(axis=0), _TINY)
    largest = np.argsort(-scale * mean.sum(axis=0), kind="stable")[:MOST_CURVES]
    ax, places = new_axes(ax, (8, 4)), _places(fit, index)
    order = np.argsort(places, kind="stable")  # updates append new dates
    for n in np.sort(largest):
        middle, *ends = (scale[n] * one[order, n] for one in (mean, low, high))
        (line,) = ax.plot(places[order], middle, label=f"{latent}={n}", marker="o" if len(mean) < 30 else None)
        ax.fill_between(places[order], *ends, color=line.get_color(), alpha=0.2, lw=0)
    if index in fit.labels and fit.labels[index].index.dtype.kind not in _NUMBERS:
        _name_ticks(ax.xaxis, [_name(fit, index, at) for at in range(len(mean))])
    some = f" (the largest {len(largest)} of {mean.shape[1]} components)" if len(largest) < mean.shape[1] else ""
    ax.set(xlabel=index, ylabel=f"entries of {name}" if mass is None else "counts explained", ylim=(0, None))
    ax.set_title(f"components along {index}{some}")
    ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax


def _places(fit: Fit, index: str) -> NDArray[Any]:
    """Places of the positions of an index: their dates or numbers, or 0, 1, 2, ..."""
    labels = fit.labels.get(index)
    if labels is not None and labels.index.dtype.kind in _NUMBERS:
        return np.asarray(labels.index)
    return np.arange(fit.sizes[index])


def _index_in_time(fit: Fit, index: str | None) -> str:
    observed = [i for i in fit.sizes if i not in fit.model.sizes]
    if index is None:
        found = [i for i in observed if i in fit.labels and is_ordered(fit.labels[i])]
        if not found:
            told = f"none of {', '.join(observed)} has dates, hours, weekdays or numbers as labels"
            raise PltfError(f"{told}: name an index with {py:index=}")
        return found[0]
    if index not in observed:
        known = f"{py:index} must be an observed index ({', '.join(observed)})"
        raise PltfError(f"{known}, got {index!r}{suggestion(index, observed)}")
    return index


def _curves_of(fit: Fit, index: str) -> tuple[str, str]:
    """The factor whose columns are curves along an index, and the latent index that numbers them."""
    for name, indices in fit.model.factors.items():
        latent = [i for i in indices if i in fit.model.sizes]
        if index in indices and len(indices) == 2 and latent:
            return name, latent[0]
    raise PltfError(f"no factor has '{index}' and one latent index, and nothing else")
