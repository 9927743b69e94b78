"""Factors as heat maps: of large ones the rows with the most counts, of many-way ones slices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pltf.fit import Fit
from pltf.gamma import Array, Factor, Posterior
from pltf.report.components import Ranking, intervals, largest
from pltf.report.words import names

MOST_ROWS = 200
MOST_COLUMNS = 60
MOST_SLICES = 12


@dataclass(frozen=True, eq=False)
class HeatMap:
    """A matrix to look at."""

    factor: str
    slice: str  # which part of a many-way factor; empty if it is the whole
    row_index: str
    column_index: str
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
    by_column: bool  # colours are relative to the largest entry of a column; otherwise to that of the factor
    grouped: bool  # rows stand by their strongest component
    left_out: tuple[str, ...]
    fixed: bool


def factor_views(fit: Fit, ranked: Mapping[str, Ranking]) -> list[FactorView]:
    """Every factor."""
    return [_view(fit, name, factor, ranked) for name, factor in fit.factors.items()]


def _view(fit: Fit, name: str, factor: Factor, ranked: Mapping[str, Ranking]) -> FactorView:
    mean = factor.mean
    row, column = _axes(factor.indices, ranked)
    kept = {axis: _kept(factor.indices[axis], mean, axis, ranked) for axis in range(mean.ndim)}
    by_column = column is not None and factor.indices[column] in ranked and factor.indices[row] not in ranked
    by_column = by_column and mean.ndim == 2
    grouped = by_column and not _in_time(fit, factor.indices[row])
    if column is not None and by_column:
        kept[row] = _rows_to_show(mean if column == 1 else mean.T, kept[column], ranked[factor.indices[column]], grouped)
    slices = _slices(mean, kept, row, column)
    peak = _peaks(mean, column if by_column else None)
    maps = tuple(_map(fit, name, factor, ranked, kept, row, column, at, peak) for at in slices)
    left_out = [
        f"{len(kept[axis]):,} of {mean.shape[axis]:,} along {factor.indices[axis]}"
        for axis in (row, column)
        if axis is not None and len(kept[axis]) < mean.shape[axis]
    ]
    others = math.prod(size for axis, size in enumerate(mean.shape) if axis not in (row, column))
    if len(slices) < others:
        left_out.append(f"{len(slices)} of {others:,} slices")
    return FactorView(
        name, factor.indices, mean.shape, maps, by_column, grouped, tuple(left_out), name in fit.fixed
    )


def _axes(indices: tuple[str, ...], ranked: Mapping[str, Ranking]) -> tuple[int, int | None]:
    """Which axis goes down, and which across: an observed index and a latent one, if there are both."""
    observed = [axis for axis, index in enumerate(indices) if index not in ranked]
    row = observed[0] if observed else 0
    others = [axis for axis in range(len(indices)) if axis != row]
    latent = [axis for axis in others if indices[axis] in ranked]
    return row, (latent or others or [None])[-1]


def _in_time(fit: Fit, index: str) -> bool:
    """Whether positions follow each other, as days do."""
    labels = fit.labels.get(index)
    return labels is not None and (labels.bin is not None or labels.index.dtype.kind == "M")


def _kept(index: str, mean: Array, axis: int, ranked: Mapping[str, Ranking]) -> NDArray[np.intp]:
    """Positions of an axis that are shown: of components the largest, of others those of largest mean."""
    if index in ranked:
        return ranked[index].order[:MOST_COLUMNS]
    total = mean.sum(axis=tuple(other for other in range(mean.ndim) if other != axis))
    return np.sort(largest(total, MOST_ROWS))


def _rows_to_show(mean: Array, columns: NDArray[np.intp], ranking: Ranking, grouped: bool) -> NDArray[np.intp]:
    """The rows with the most counts: by the components that each is strong in, or in their own order."""
    share = mean / np.maximum(mean.sum(axis=0), np.finfo(float).tiny)
    mass = np.ones(mean.shape[1])
    if ranking.mass is not None:
        mass[ranking.order] = ranking.mass
    rows = np.sort(largest(share @ mass, MOST_ROWS))
    if not grouped:
        return rows
    relative = (mean / np.maximum(mean.max(axis=0), np.finfo(float).tiny))[rows][:, columns]
    return rows[np.lexsort((-relative.max(axis=1), relative.argmax(axis=1)))]


def _slices(mean: Array, kept: Mapping[int, NDArray[np.intp]], row: int, column: int | None) -> list[dict[int, int]]:
    """Positions along the axes that go neither down nor across: the largest slices, in their order."""
    others = [axis for axis in range(mean.ndim) if axis not in (row, column)]
    total = mean.sum(axis=tuple(axis for axis in (row, column) if axis is not None))
    every = list(itertools.islice(itertools.product(*(kept[axis].tolist() for axis in others)), 100_000))
    weight = np.array([total[at] for at in every])
    return [dict(zip(others, every[n], strict=True)) for n in np.sort(largest(weight, MOST_SLICES))]


def _peaks(mean: Array, column: int | None) -> Array:
    """The largest entry of each column, or of all; the colours are relative to it."""
    axes = tuple(axis for axis in range(mean.ndim) if axis != column)
    return np.maximum(mean.max(axis=axes, keepdims=True), np.finfo(float).tiny)


def _map(
    fit: Fit,
    name: str,
    factor: Factor,
    ranked: Mapping[str, Ranking],
    kept: Mapping[int, NDArray[np.intp]],
    row: int,
    column: int | None,
    at: Mapping[int, int],
    peak: Array,
) -> HeatMap:
    mean = factor.mean
    down, across = kept[row], kept[column] if column is not None else np.zeros(1, dtype=np.intp)
    full = {axis: np.full((len(down), len(across)), place, dtype=np.intp) for axis, place in at.items()}
    full[row] = np.repeat(down[:, None], len(across), axis=1)
    if column is not None:
        full[column] = np.repeat(across[None], len(down), axis=0)
    cells = tuple(full[axis] for axis in range(mean.ndim))
    low, high = intervals(factor, cells)
    values = mean[cells]
    return HeatMap(
        name,
        ", ".join(f"{factor.indices[axis]} {_numbered(fit, factor.indices[axis], [place], ranked)[0]}" for axis, place in at.items()),
        factor.indices[row],
        "" if column is None else factor.indices[column],
        tuple(_numbered(fit, factor.indices[row], down, ranked)),
        ("value",) if column is None else tuple(_numbered(fit, factor.indices[column], across, ranked)),
        np.broadcast_to(values / np.broadcast_to(peak, mean.shape)[cells], values.shape),
        values,
        low,
        high,
        isinstance(factor, Posterior),
    )


def _numbered(fit: Fit, index: str, positions: NDArray[np.intp] | list[int], ranked: Mapping[str, Ranking]) -> list[str]:
    """Labels of an observed index, numbers of the components of a latent one."""
    if index in ranked:
        return [str(ranked[index].numbers[position]) for position in positions]
    return names(fit, index, np.asarray(positions))
