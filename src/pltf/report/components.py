"""Components by the counts that they explain, and the labels that make each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pltf.errors import PltfError
from pltf.fit import Fit
from pltf.gamma import Array, Factor, Posterior
from pltf.report.formatting import names

LEVEL = 0.9  # of all intervals in a report
FAINT = 0.001  # a share of a component that is not worth a bar
ALIKE = 1.01  # entries that differ by less than this factor
MOST = 60  # components that are shown of one latent index


@dataclass(frozen=True, eq=False)
class Ranking:
    """The components of a latent index, the largest first: number 1 is the one with the most counts."""

    index: str
    order: NDArray[np.intp]  # position of number 1, 2, ...
    mass: Array | None  # counts of each, in that order; None if they cannot be told
    share: Array | None
    used: int  # how many explain something

    @property
    def numbers(self) -> NDArray[np.intp]:
        """The number of each position."""
        return np.argsort(self.order) + 1


def rankings(fit: Fit) -> dict[str, Ranking]:
    """The components of every latent index."""
    return {index: _ranking(fit, index) for index in fit.model.sizes}


def _ranking(fit: Fit, index: str) -> Ranking:
    try:
        table = fit.components(index, top=0)
    except PltfError:  # no factor is in all tensors that the component takes part in
        size = fit.model.sizes[index]
        return Ranking(index, np.arange(size), None, None, size)
    mass = table["mass"].to_numpy(dtype=float)
    used = int((mass >= min(1.0, mass.sum() / 1000)).sum())
    return Ranking(index, table.index.to_numpy(dtype=np.intp), mass, table["share"].to_numpy(dtype=float), used)


@dataclass(frozen=True)
class Entry:
    """A label of a component: its share of the component, and between which shares it lies."""

    name: str
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Mode:
    """The largest entries of one factor in one component."""

    factor: str
    title: str  # the index, or several
    entries: tuple[Entry, ...]
    size: int  # how many entries there are in all
    held: float  # share of the component that those shown have together
    intervals: bool
    flat: bool  # all entries are alike: the data say nothing of them

    @property
    def longest(self) -> float:
        """Where the longest bar, or interval, ends."""
        return max((max(one.share, one.high) for one in self.entries), default=0.0)


@dataclass(frozen=True)
class Component:
    """One value of a latent index."""

    index: str
    number: int
    position: int
    mass: float | None
    share: float | None
    modes: tuple[Mode, ...]


def components(fit: Fit, ranked: Mapping[str, Ranking], top: int) -> dict[str, list[Component]]:
    """Of each latent index, the components that explain something, with their largest entries."""
    factors = fit.factors
    return {index: _of_index(fit, factors, ranked, index, top) for index in ranked}


def _of_index(
    fit: Fit, factors: Mapping[str, Factor], ranked: Mapping[str, Ranking], index: str, top: int
) -> list[Component]:
    ranking = ranked[index]
    shown = ranking.order[: min(ranking.used, MOST)]
    modes = [
        _modes(fit, name, factor, ranked, index, shown, top)
        for name, factor in factors.items()
        if index in factor.indices and len(factor.indices) > 1
    ]
    return [
        Component(
            index,
            n + 1,
            int(position),
            None if ranking.mass is None else float(ranking.mass[n]),
            None if ranking.share is None else float(ranking.share[n]),
            tuple(of_factor[n] for of_factor in modes),
        )
        for n, position in enumerate(shown)
    ]


def _modes(
    fit: Fit, name: str, factor: Factor, ranked: Mapping[str, Ranking], index: str, shown: NDArray[np.intp], top: int
) -> list[Mode]:
    """The largest entries of a factor in each of some components."""
    axis = factor.indices.index(index)
    others = tuple(one for one in factor.indices if one != index)
    mean = np.moveaxis(factor.mean, axis, 0)
    found = []
    for position in shown:
        of_one = mean[position]
        flat = of_one.reshape(-1)
        total = max(float(flat.sum()), np.finfo(float).tiny)
        best = largest(flat, top)
        best = best[: max(1, np.count_nonzero(flat[best] >= FAINT * total))]
        places = np.unravel_index(best, of_one.shape)
        at = tuple(np.insert(np.array(places), axis, position, axis=0))
        low, high = (end / total for end in intervals(factor, at))
        called = [
            _called(fit, other, where, ranked, len(others) > 1) for other, where in zip(others, places, strict=True)
        ]
        shares = flat[best] / total
        entries = [
            Entry(" · ".join(parts), *map(float, ends))
            for *ends, parts in zip(shares, low, high, zip(*called, strict=True), strict=True)
        ]
        found.append(
            Mode(
                name,
                " × ".join(others),
                tuple(entries),
                flat.size,
                float(shares.sum()),
                isinstance(factor, Posterior),
                bool(flat.size > 2 and flat.max() <= ALIKE * flat.min()),
            )
        )
    return found


def largest(values: Array, count: int) -> NDArray[np.intp]:
    """Positions of the largest values, these first; of equal ones the first."""
    if values.size <= count:
        return np.argsort(-values, kind="stable")
    some = np.sort(np.argpartition(-values, count)[:count])
    return some[np.argsort(-values[some], kind="stable")]


def intervals(factor: Factor, at: tuple[NDArray[np.intp], ...]) -> tuple[Array, Array]:
    """Intervals of some entries of a factor: of all they may take long."""
    if isinstance(factor, Posterior):
        return Posterior(("at",), factor.shape[at], factor.scale[at]).interval(LEVEL)
    value = factor.mean[at]
    return value, value


def _called(
    fit: Fit, index: str, positions: NDArray[np.intp], ranked: Mapping[str, Ranking], several: bool
) -> list[str]:
    """What entries are called: by their label, or by the number of the component that another latent index counts."""
    if index in ranked:
        return [f"{index} {ranked[index].numbers[position]}" for position in positions]
    return [f"{index} {name}" if several and index not in fit.labels else name for name in names(fit, index, positions)]
