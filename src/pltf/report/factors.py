"""Factors as heat maps: the rows with the most counts, and slices of factors with many indices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pltf.fit import Fit
from pltf.gamma import Array, Factor, Point
from pltf.report.components import Ranking, averages, intervals, largest
from pltf.report.curves import Scale, scales_of
from pltf.report.drawing import Tick
from pltf.report.formatting import names

MOST_ROWS = 200
MOST_COLUMNS = 60
MOST_SLICES = 12
FEW = 24  # columns of an ordered index that are named one by one
_TINY = np.finfo(float).tiny


@dataclass(frozen=True, eq=False)
class HeatMap:
    """A heat map."""

    factor: str
    slice: str  # which part of a many-way factor; empty if it is the whole
    row_index: str
    column_index: str  # empty if there is just one column
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    colour: Array  # from 0 to 1
    mean: Array
    low: Array
    high: Array
    intervals: bool
    by_component: bool  # the columns are components
    ticks: tuple[Tick, ...] = ()  # of the columns of an ordered index, if there are many


@dataclass(frozen=True, eq=False)
class FactorView:
    """The heat maps of a factor, and what they leave out."""

    name: str
    indices: tuple[str, ...]
    sizes: tuple[int, ...]
    maps: tuple[HeatMap, ...]
    by_component: bool  # colours are relative to the largest entry of a component; otherwise to that of the factor
    grouped: bool  # rows are sorted by their strongest component
    ordered: str  # the index that goes across in its own order; empty if none does
    averaged: tuple[str, ...]  # what several positions in a row are drawn as
    shown: tuple[str, ...]  # of how many, where not all are
    fixed: bool


def factor_views(fit: Fit, ranked: Mapping[str, Ranking]) -> list[FactorView]:
    """Every factor."""
    scales = scales_of(fit, MOST_ROWS)
    return [_Viewer(fit, name, factor, ranked, scales).view() for name, factor in fit.factors.items()]


class _Viewer:
    """The heat maps of one factor: one axis goes down, one across, and each position along the others has its own map.

    Of an index with an order all positions are shown, in this order; where there are many, averages of several in a
    row. If a factor has just such an index and a latent one, the index goes across, from left to right.
    """

    def __init__(
        self, fit: Fit, name: str, factor: Factor, ranked: Mapping[str, Ranking], scales: Mapping[str, Scale]
    ) -> None:
        self.fit, self.name, self.factor, self.ranked, self.scales = fit, name, factor, ranked, scales
        self.mean, self.indices = factor.mean, factor.indices
        self.row, self.column = self._axes()
        latent = [axis for axis in range(len(self.indices)) if self._is_latent(axis)]
        one = len(latent) == 1 and len(self.indices) > 1
        self.by_component = latent[0] if one else None  # the axis of components, which have no scale in common
        both = one and len(self.indices) == 2
        self.grouped = both and self.indices[self.row or 0] not in scales
        self.kept = [self._kept(axis) for axis in range(self.mean.ndim)]
        if self.grouped:
            self.kept[self.row or 0] = self._rows()
        if both and not self.grouped:
            self.row, self.column = self.column, self.row

    def view(self) -> FactorView:
        slices = self._slices()
        shown = [
            f"{len(self.kept[axis]):,} of {self.mean.shape[axis]:,} along {self.indices[axis]}"
            for axis in (self.row, self.column)
            if axis is not None and len(self.kept[axis]) < self.mean.shape[axis]
        ]
        others = math.prod(size for axis, size in enumerate(self.mean.shape) if axis not in (self.row, self.column))
        shown += [f"{len(slices)} of {others:,} slices"] if len(slices) < others else []
        across = "" if self.column is None else self.indices[self.column]
        return FactorView(
            self.name,
            self.indices,
            self.mean.shape,
            tuple(self._map(at) for at in slices),
            self.by_component is not None,
            self.grouped,
            across if across in self.scales else "",
            tuple(
                f"each {kind} is the average of {self._group(axis)} of {self.indices[axis]}"
                for kind, axis in (("row", self.row), ("column", self.column))
                if axis is not None and self._group(axis) > 1
            ),
            tuple(shown),
            self.name in self.fit.fixed,
        )

    def _is_latent(self, axis: int | None) -> bool:
        return axis is not None and self.indices[axis] in self.ranked

    def _axes(self) -> tuple[int | None, int | None]:
        """The axes that go down and across: two observed indices, or an observed one and a latent one."""
        axes = range(len(self.indices))
        observed = [axis for axis in axes if not self._is_latent(axis)]
        latent = [axis for axis in axes if self._is_latent(axis)]
        if len(observed) >= 2 and len(latent) == 1:  # a map for each component
            return observed[0], observed[1]
        row = next(iter([*observed, *axes]), None)
        others = [axis for axis in axes if axis != row]
        return row, next(reversed([axis for axis in others if axis in latent] or others), None)

    def _kept(self, axis: int) -> NDArray[np.intp]:
        """The positions of an axis to show: components that explain something, labels with the largest means."""
        index = self.indices[axis]
        if self._is_latent(axis):
            ranking = self.ranked[index]
            return ranking.order[: min(max(ranking.used, 1), MOST_COLUMNS)]
        if index in self.scales:
            return self.scales[index].order.positions
        total = self.mean.sum(axis=tuple(other for other in range(self.mean.ndim) if other != axis))
        return np.sort(largest(total, MOST_ROWS))

    def _rows(self) -> NDArray[np.intp]:
        """The rows with the most counts, sorted by their strongest component."""
        assert self.column is not None
        mean = self.mean if self.column == 1 else self.mean.T
        ranking, mass = self.ranked[self.indices[self.column]], np.ones(mean.shape[1])
        if ranking.mass is not None:
            mass[ranking.order] = ranking.mass
        counts = (mean / np.maximum(mean.sum(axis=0), _TINY)) @ mass
        rows = np.sort(largest(counts, MOST_ROWS))
        relative = (mean[rows] / np.maximum(mean.max(axis=0), _TINY))[:, self.kept[self.column]]
        return rows[np.lexsort((-relative.max(axis=1), relative.argmax(axis=1)))]

    def _slices(self) -> list[dict[int, int]]:
        """Positions along the other axes: the largest slices, in order."""
        drawn = [axis for axis in (self.row, self.column) if axis is not None]
        others = [axis for axis in range(self.mean.ndim) if axis not in drawn]
        total = self.mean.sum(axis=tuple(drawn))
        every = list(itertools.islice(itertools.product(*(self.kept[axis].tolist() for axis in others)), 100_000))
        weight = np.array([total[at] for at in every])
        return [dict(zip(others, every[n], strict=True)) for n in np.sort(largest(weight, MOST_SLICES))]

    def _map(self, at: Mapping[int, int]) -> HeatMap:
        one = np.zeros(1, dtype=np.intp)
        down, across = (one if axis is None else self.kept[axis] for axis in (self.row, self.column))
        grid = {self.row: down[:, None], self.column: across[None]}
        shape = len(down), len(across)
        cells = tuple(np.broadcast_to(at.get(axis, grid.get(axis, 0)), shape) for axis in range(self.mean.ndim))
        groups = self._group(self.row), self._group(self.column)
        mean = averages(np.broadcast_to(self.mean[cells], shape), groups)
        low, high = (np.broadcast_to(end, mean.shape) for end in intervals(self.factor, cells, groups))
        axes = tuple(axis for axis in range(self.mean.ndim) if axis != self.by_component)
        peak = np.broadcast_to(self.mean.max(axis=axes, keepdims=True), self.mean.shape)[cells]
        peak = averages(np.broadcast_to(peak, shape), groups)
        return HeatMap(
            self.name,
            ", ".join(f"{self._title(axis)} {self._called(axis, [place])[0]}" for axis, place in at.items()),
            "" if self.row is None else self.indices[self.row],
            "" if self.column is None else self.indices[self.column],
            self._named(self.row, down),
            self._named(self.column, across),
            mean / np.maximum(peak, _TINY),
            mean,
            low,
            high,
            not isinstance(self.factor, Point),
            self.by_component is not None and self.by_component == self.column,
            self._ticks(),
        )

    def _title(self, axis: int) -> str:
        return "component" if axis == self.by_component else self.indices[axis]

    def _scale(self, axis: int | None) -> Scale | None:
        return None if axis is None else self.scales.get(self.indices[axis])

    def _group(self, axis: int | None) -> int:
        scale = self._scale(axis)
        return 1 if scale is None else scale.group

    def _ticks(self) -> tuple[Tick, ...]:
        """Ticks of many ordered columns; if there are few, each has a name."""
        scale = self._scale(self.column)
        if scale is None or scale.order.kind == "names" or (scale.order.kind == "numbers" and len(scale.x) <= FEW):
            return ()
        values = [scale.axis.low + tick.at / 100 * (scale.axis.high - scale.axis.low) for tick in scale.axis.ticks]
        places = np.interp(values, scale.x, 100 * (np.arange(len(scale.x)) + 0.5) / len(scale.x))
        return tuple(Tick(float(at), tick.text, tick.minor) for at, tick in zip(places, scale.axis.ticks, strict=True))

    def _named(self, axis: int | None, positions: NDArray[np.intp]) -> tuple[str, ...]:
        """The names of rows or columns."""
        scale = self._scale(axis)
        return self._called(axis, positions) if scale is None else scale.names

    def _called(self, axis: int | None, positions: Sequence[int] | NDArray[np.intp]) -> tuple[str, ...]:
        """Labels of an observed index, numbers of the components of a latent one."""
        return ("value",) if axis is None else tuple(names(self.fit, self.indices[axis], positions))
