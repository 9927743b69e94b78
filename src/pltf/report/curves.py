"""Shares of a component along an ordered index: a curve and the band of its intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pltf.data.labels import Labels
from pltf.fit import Fit
from pltf.gamma import Array
from pltf.report.drawing import Axis, axis
from pltf.report.formatting import listed, probability
from pltf.report.ordering import Order, order_of, ticks

MOST_POINTS = 400  # points of a curve; on longer ones a point is the average of neighbouring positions
PEAKS = 3  # named positions
_TICKS = 7
_WHOLE = (1, 2, 3, 4, 6, 12, 24, 48, 72, 168)  # groups of dates


@dataclass(frozen=True, eq=False)
class Scale:
    """The axis of an ordered index: the points along it and their names."""

    index: str
    order: Order
    group: int  # positions per point
    x: Array
    names: tuple[str, ...]
    axis: Axis


@dataclass(frozen=True, eq=False)
class Curve:
    """The shares along an index, with their intervals."""

    scale: Scale
    mean: Array
    low: Array
    high: Array
    intervals: bool
    peaks: str  # the positions with the largest shares


def scale_of(index: str, labels: Labels, order: Order, most: int) -> Scale:
    """The axis of an index: a point for each position, or for the average of several if there are too many.

    >>> import pandas as pd
    >>> days = Labels(pd.date_range("2013-01-01", periods=1000))
    >>> scale = scale_of("day", days, order_of(days), MOST_POINTS)
    >>> scale.group, scale.names[0], len(scale.x)
    (3, '2013-01-01 to 2013-01-03', 334)
    """
    size = len(order.positions)
    group = _group(size, most, dates=order.kind == "dates")
    begin = np.arange(0, size, group)
    ends = (labels.called(order.positions[at]) for at in (begin, np.minimum(begin + group, size) - 1))
    called = tuple(first if first == last else f"{first} to {last}" for first, last in zip(*ends, strict=True))
    x = averaged(order.values, group)
    room = 0.02 * float(x[-1] - x[0])
    along = axis("", float(x[0]) - room, float(x[-1]) + room, ticks(order, _TICKS), grid=False)
    return Scale(index, order, group, x, called, along)


def scales_of(fit: Fit, most: int) -> dict[str, Scale]:
    """The axis of each index that has an order."""
    orders = {index: order_of(labels) for index, labels in fit.labels.items()}
    return {index: scale_of(index, fit.labels[index], order, most) for index, order in orders.items() if order}


def _group(size: int, most: int, *, dates: bool) -> int:
    """The number of positions per point; for hours whole days, to average over the time of day."""
    least = -(-size // most)
    return next((one for one in _WHOLE if one >= least), least) if dates else least


def averaged(values: Array, group: int, axis: int = 0) -> Array:
    """Averages of ``group`` neighbouring values; the last one may have fewer.

    >>> averaged(np.array([1.0, 3.0, 5.0]), 2).tolist()
    [2.0, 5.0]
    """
    if group == 1:
        return values
    begin = np.arange(0, values.shape[axis], group)
    sizes = np.diff([*begin, values.shape[axis]])
    total = np.add.reduceat(values, begin, axis=axis)
    return np.asarray(total / sizes.reshape([-1 if one == axis else 1 for one in range(values.ndim)]))


def peaks(labels: Labels, share: Array) -> str:
    """The positions with the largest shares, in words."""
    best = np.argsort(-share, kind="stable")[:PEAKS]
    return "Highest: " + listed(
        [
            f"{name} ({probability(share[n])})".replace(" %", "\u00a0%")
            for name, n in zip(labels.called(best), best, strict=True)
        ]
    )
