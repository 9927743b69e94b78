"""Components by the counts that they explain, with their top labels or curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.errors import PltfError
from pltf.fit import Fit
from pltf.gamma import Array, Factor, Point, Posterior, Samples
from pltf.report.curves import MOST_POINTS, Curve, Scale, averaged, peaks, scales_of
from pltf.report.formatting import distinct, names

LEVEL = 0.9  # probability of all intervals in a report
ALIKE = 1.01  # entries that differ by less than this factor
MOST = 60  # components shown per latent index
MOST_DRAWN = 10_000  # points of all curves along an index
WIDE = 60  # positions of a curve; longer ones have the whole width
CALENDAR = 12  # weekdays or months are all shown
LONGEST = 90  # characters of a label, which is wrapped; the tooltip has the full label
MOST_NUMBERS = 100  # numbers along a curve; if there are more, which may be ids, the largest are listed too
BRIEF = 3  # labels of a mode in the overview
_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Ranking:
    """The components of a latent index, the largest first, numbered by their position in the arrays."""

    index: str
    order: NDArray[np.intp]  # positions
    mass: Array | None  # counts of each, in that order; None if they are unknown
    share: Array | None
    used: int  # components that explain something


def rankings(fit: Fit) -> dict[str, Ranking]:
    """The components of every latent index."""
    return {index: _ranking(fit, index) for index in fit.model.sizes}


def _ranking(fit: Fit, index: str) -> Ranking:
    try:
        table = fit.components(index, top=0)
    except PltfError:  # no factor occurs in all tensors of the component
        size = fit.model.sizes[index]
        return Ranking(index, np.arange(size), None, None, size)
    mass = table["mass"].to_numpy(dtype=float)
    used = int((mass >= min(1.0, mass.sum() / 1000)).sum())
    return Ranking(index, table.index.to_numpy(dtype=np.intp), mass, table["share"].to_numpy(dtype=float), used)


@dataclass(frozen=True)
class Entry:
    """A label of a component: its share of the component, and the interval of the share."""

    name: str
    full: str  # the name, however long
    share: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class ComponentFactor:
    """One factor in one component: its largest entries, or a curve."""

    factor: str
    title: str  # the index, or several
    tensors: tuple[str, ...]  # that the factor is in
    entries: tuple[Entry, ...]
    curve: Curve | None
    size: int  # entries in all
    held: float  # share of the component in the entries shown
    intervals: bool
    flat: bool  # all entries are equal: the data have no information about them

    @property
    def wide(self) -> bool:
        """Whether it is a curve of full width."""
        return self.curve is not None and self.size > WIDE and not self.flat

    @property
    def longest(self) -> float:
        """The end of the longest bar or interval."""
        return max((max(one.share, one.high) for one in self.entries), default=0.0)

    @property
    def brief(self) -> str:
        """The labels with the largest shares."""
        if self.flat:
            return "all alike"
        if self.curve is not None and not self.entries:
            return self.curve.peaks.removeprefix("Highest: ")
        return ", ".join(one.name for one in sorted(self.entries, key=lambda one: -one.share)[:BRIEF])


@dataclass(frozen=True, eq=False)
class Component:
    """One value of a latent index."""

    number: int  # its position in the arrays
    mass: float | None
    share: float | None
    modes: tuple[ComponentFactor, ...]

    @property
    def columns(self) -> int:
        """The number of modes next to each other, without those of full width."""
        narrow = sum(not mode.wide for mode in self.modes)
        return 2 if narrow == 4 else max(1, min(narrow, 3))

    @property
    def summary(self) -> str:
        """The first label of each mode."""
        return " · ".join(mode.entries[0].name for mode in self.modes if mode.entries and not mode.flat)


def components(fit: Fit, ranked: Mapping[str, Ranking], top: int) -> dict[str, list[Component]]:
    """The components of each latent index that explain something, the largest first."""
    factors, found = fit.factors, {}
    shown_of = {index: ranking.order[: min(ranking.used, MOST)] for index, ranking in ranked.items()}
    curves = max(map(len, shown_of.values()), default=1)  # along an index; if there are many, they have fewer points
    scales = scales_of(fit, min(MOST_POINTS, MOST_DRAWN // max(1, curves)))
    for index, ranking in ranked.items():
        shown = shown_of[index]
        modes = [
            _Modes(fit, name, factor, index, scales, top)
            for name, factor in factors.items()
            if index in factor.indices and len(factor.indices) > 1
        ]
        mass, share = ([None] * len(shown) if one is None else one.tolist() for one in (ranking.mass, ranking.share))
        found[index] = [
            Component(int(position), mass[n], share[n], tuple(one.of(int(position)) for one in modes))
            for n, position in enumerate(shown)
        ]
    return found


class _Modes:
    """The entries of a factor for each component."""

    def __init__(self, fit: Fit, name: str, factor: Factor, index: str, scales: Mapping[str, Scale], top: int) -> None:
        self.fit, self.name, self.factor, self.index, self.top = fit, name, factor, index, top
        self.axis = factor.indices.index(index)
        self.others = tuple(one for one in factor.indices if one != index)
        self.mean = np.moveaxis(factor.mean, self.axis, 0)
        self.scale = scales.get(self.others[0]) if len(self.others) == 1 else None
        self.tensors = tuple(e.output.name for e in fit.model.equations if name in {term.name for term in e.factors})

    def of(self, position: int) -> ComponentFactor:
        """One component."""
        flat = self.mean[position].reshape(-1)
        alike = bool(flat.size > 2 and flat.max() <= ALIKE * flat.min())
        curve = self._curve(position, flat) if self.scale is not None and self.scale.order.curve else None
        listed = curve is None or (flat.size > MOST_NUMBERS and curve.scale.order.kind == "numbers")
        entries = self._entries(position, flat, self._chosen(flat)) if listed else ()
        return ComponentFactor(
            self.name,
            " × ".join(self.others),
            self.tensors,
            entries,
            curve,
            flat.size,
            sum(one.share for one in entries),
            not isinstance(self.factor, Point),
            alike,
        )

    def _chosen(self, flat: Array) -> NDArray[np.intp]:
        """The entries to show: all in the order of the index if it has one and they fit, otherwise the largest."""
        if self.scale is not None and flat.size <= max(self.top, CALENDAR if self.scale.order.kind == "names" else 2):
            return self.scale.order.positions
        return largest(flat, self.top)

    def _entries(self, position: int, flat: Array, chosen: NDArray[np.intp]) -> tuple[Entry, ...]:
        total = max(float(flat.sum()), _TINY)
        places = np.unravel_index(chosen, self.mean.shape[1:])
        low, high = (end / total for end in intervals(self.factor, self._at(position, places)))
        parts = [
            _called(self.fit, other, where, len(self.others) > 1)
            for other, where in zip(self.others, places, strict=True)
        ]
        called = [" · ".join(one) for one in zip(*parts, strict=True)]
        shares = (flat[chosen] / total).tolist()
        ends = zip(distinct(called, LONGEST), called, shares, low.tolist(), high.tolist(), strict=True)
        return tuple(Entry(*one) for one in ends)

    def _at(self, position: int, places: tuple[NDArray[np.intp], ...]) -> tuple[NDArray[np.intp], ...]:
        return tuple(np.insert(np.array(places), self.axis, position, axis=0))

    def _curve(self, position: int, flat: Array) -> Curve:
        assert self.scale is not None
        scale, total = self.scale, max(float(flat.sum()), _TINY)
        at = self._at(position, (scale.order.positions,))
        low, high = (end / total for end in intervals(self.factor, at, (scale.group,)))
        mean = averaged(flat[scale.order.positions] / total, scale.group)
        told = peaks(self.fit.labels[scale.index], flat / total)
        certain = isinstance(self.factor, Point)
        return Curve(scale, mean, low, high, not certain, told)


def largest(values: Array, count: int) -> NDArray[np.intp]:
    """Positions of the largest values in decreasing order; ties in their order."""
    if values.size <= count:
        return np.argsort(-values, kind="stable")
    some = np.sort(np.argpartition(-values, count)[:count])
    return some[np.argsort(-values[some], kind="stable")]


def intervals(factor: Factor, at: tuple[NDArray[np.intp], ...], groups: tuple[int, ...] = ()) -> tuple[Array, Array]:
    """Intervals of some entries of a factor, or of averages of neighbours along each axis of ``at``."""
    if isinstance(factor, Samples):
        entries: tuple[Any, ...] = (slice(None), slice(None), *at)
        drawn = averages(factor.draws[entries], groups, 2)
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=(0, 1))
        return low, high
    if not isinstance(factor, Posterior):
        value = averages(factor.mean[at], groups)
        return value, value
    shape, scale = factor.shape[at], factor.scale[at]
    if any(one > 1 for one in groups):  # a Gamma distribution with the mean and the variance of the average
        mean, var = averages(shape * scale, groups), averages(shape * scale**2, groups) / _sizes(shape.shape, groups)
        scale = var / np.maximum(mean, _TINY)
        shape = mean / np.maximum(scale, _TINY)
    return Posterior(tuple(f"axis {n}" for n in range(shape.ndim)), shape, scale).interval(LEVEL)


def averages(values: Array, groups: tuple[int, ...], first: int = 0) -> Array:
    """Averages along several axes."""
    for axis, group in enumerate(groups, first):
        values = averaged(values, group, axis)
    return values


def _sizes(shape: tuple[int, ...], groups: tuple[int, ...]) -> Array:
    """The number of values in each average."""
    each = (np.diff([*range(0, size, group), size]) for size, group in zip(shape, groups, strict=True))
    return reduce(np.multiply.outer, each, np.ones((), dtype=np.float64))


def _called(fit: Fit, index: str, positions: NDArray[np.intp], several: bool) -> list[str]:
    """Names of entries: labels, or numbers of components of another latent index."""
    called = names(fit, index, positions)
    return [f"{index} {name}" for name in called] if several and index not in fit.labels else called
