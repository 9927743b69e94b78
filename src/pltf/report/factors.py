"""Factors as heat maps: of large ones the rows with the most counts, of many-way ones slices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pltf.fit import Fit
from pltf.gamma import Array, Factor, Posterior
from pltf.report.components import Ranking, intervals, largest
from pltf.report.formatting import names

MOST_ROWS = 200
MOST_COLUMNS = 60
MOST_SLICES = 12
FAINT = 0.01  # a row below this share of the largest entry, in every component, cannot be seen
_TINY = np.finfo(float).tiny


@dataclass(frozen=True, eq=False)
class HeatMap:
    """A matrix to look at."""

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


@dataclass(frozen=True, eq=False)
class FactorView:
    """What is shown of a factor, and what is left out."""

    name: str
    indices: tuple[str, ...]
    sizes: tuple[int, ...]
    maps: tuple[HeatMap, ...]
    by_column: bool  # colours are relative to the largest entry of a component; otherwise to that of the factor
    grouped: bool  # rows stand by their strongest component
    shown: tuple[str, ...]  # of how many, where not all are
    fixed: bool


def factor_views(fit: Fit, ranked: Mapping[str, Ranking]) -> list[FactorView]:
    """Every factor."""
    return [_Viewer(fit, name, factor, ranked).view() for name, factor in fit.factors.items()]


class _Viewer:
    """Looks at one factor: one axis goes down, one across, and there is a map for each position along the others."""

    def __init__(self, fit: Fit, name: str, factor: Factor, ranked: Mapping[str, Ranking]) -> None:
        self.fit, self.name, self.factor, self.ranked = fit, name, factor, ranked
        self.mean, self.indices = factor.mean, factor.indices
        self.row, self.column = self._axes()
        self.by_column = (
            len(self.indices) == 2 and self._is_latent(self.column) and not self._is_latent(self.row)
        )  # components have no scale in common
        self.grouped = self.by_column and not self._in_time()
        self.kept = [self._kept(axis) for axis in range(self.mean.ndim)]
        if self.by_column:
            self.kept[0 if self.row == 0 else 1] = self._rows()

    def view(self) -> FactorView:
        slices = self._slices()
        shown = [
            f"{len(self.kept[axis]):,} of {self.mean.shape[axis]:,} along {self.indices[axis]}"
            for axis in (self.row, self.column)
            if axis is not None and len(self.kept[axis]) < self.mean.shape[axis]
        ]
        others = math.prod(size for axis, size in enumerate(self.mean.shape) if axis not in (self.row, self.column))
        shown += [f"{len(slices)} of {others:,} slices"] if len(slices) < others else []
        maps = tuple(self._map(at) for at in slices)
        fixed = self.name in self.fit.fixed
        return FactorView(
            self.name, self.indices, self.mean.shape, maps, self.by_column, self.grouped, tuple(shown), fixed
        )

    def _is_latent(self, axis: int | None) -> bool:
        return axis is not None and self.indices[axis] in self.ranked

    def _axes(self) -> tuple[int | None, int | None]:
        """Which axis goes down, and which across: an observed index and a latent one, if there are both."""
        axes = range(len(self.indices))
        row = next((axis for axis in axes if not self._is_latent(axis)), 0 if self.indices else None)
        others = [axis for axis in axes if axis != row]
        latent = [axis for axis in others if self._is_latent(axis)]
        return row, next(reversed(latent or others), None)

    def _in_time(self) -> bool:
        """Whether rows follow each other, as days do."""
        labels = self.fit.labels.get(self.indices[self.row]) if self.row is not None else None
        return labels is not None and (labels.bin is not None or labels.index.dtype.kind == "M")

    def _kept(self, axis: int) -> NDArray[np.intp]:
        """Positions of an axis that are shown: components that explain something, labels of largest mean."""
        if self._is_latent(axis):
            ranking = self.ranked[self.indices[axis]]
            return ranking.order[: min(max(ranking.used, 1), MOST_COLUMNS)]
        total = self.mean.sum(axis=tuple(other for other in range(self.mean.ndim) if other != axis))
        return np.sort(largest(total, MOST_ROWS))

    def _rows(self) -> NDArray[np.intp]:
        """The rows with the most counts: by the components that each is strong in, or in their own order."""
        assert self.column is not None
        mean = self.mean if self.column == 1 else self.mean.T
        ranking, mass = self.ranked[self.indices[self.column]], np.ones(mean.shape[1])
        if ranking.mass is not None:
            mass[ranking.order] = ranking.mass
        counts = (mean / np.maximum(mean.sum(axis=0), _TINY)) @ mass
        rows = np.sort(largest(counts, MOST_ROWS))
        if not self.grouped:
            return rows
        relative = (mean[rows] / np.maximum(mean.max(axis=0), _TINY))[:, self.kept[self.column]]
        seen = relative.max(axis=1) >= FAINT
        rows, relative = (rows[seen], relative[seen]) if seen.any() else (rows, relative)
        return rows[np.lexsort((-relative.max(axis=1), relative.argmax(axis=1)))]

    def _slices(self) -> list[dict[int, int]]:
        """Positions along the axes that go neither down nor across: the largest slices, in their order."""
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
        mean = np.broadcast_to(self.mean[cells], shape)
        low, high = (np.broadcast_to(end, shape) for end in intervals(self.factor, cells))
        axes = tuple(axis for axis in range(self.mean.ndim) if axis != self.column or not self.by_column)
        peak = np.broadcast_to(self.mean.max(axis=axes, keepdims=True), self.mean.shape)[cells]
        return HeatMap(
            self.name,
            ", ".join(f"{self.indices[axis]} {self._called(axis, [place])[0]}" for axis, place in at.items()),
            "" if self.row is None else self.indices[self.row],
            "" if self.column is None else self.indices[self.column],
            self._called(self.row, down),
            self._called(self.column, across),
            mean / np.maximum(peak, _TINY),
            mean,
            low,
            high,
            isinstance(self.factor, Posterior),
        )

    def _called(self, axis: int | None, positions: Sequence[int] | NDArray[np.intp]) -> tuple[str, ...]:
        """Labels of an observed index, numbers of the components of a latent one."""
        if axis is None:
            return ("value",)
        index = self.indices[axis]
        if index in self.ranked:
            return tuple(str(self.ranked[index].numbers[position]) for position in positions)
        return tuple(names(self.fit, index, positions))
