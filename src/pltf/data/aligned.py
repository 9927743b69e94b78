"""Tensors that share an index, along the same labels: an outer join."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pltf.data.base import Observation
from pltf.data.cell_index import Coords
from pltf.data.coo import CooObservation
from pltf.data.dense import DenseObservation
from pltf.data.labels import Labels, together
from pltf.data.observe import observe
from pltf.errors import ObservationError, py_only

MOST_MISSING = 50_000_000  # cells of a list


@dataclass(frozen=True)
class Added:
    """Labels of an index that a tensor did not have."""

    tensor: str
    index: str
    labels: Labels
    zeros: bool  # whether their cells are zeros, or missing


def aligned(
    seen: Mapping[str, Observation], indices: Mapping[str, tuple[str, ...]], zeros: Collection[str] = ()
) -> tuple[dict[str, Observation], list[Added]]:
    """Tensors with the same labels along the indices they share, and the labels that were added to each.

    Cells of an added label are missing; along the indices named in ``zeros`` they are zeros, but for lists of which
    all cells that are not listed are missing.

    >>> import pandas as pd
    >>> X = observe(pd.DataFrame({"u": ["ann", "bob"], "p": ["bar", "gym"]}), dims=["u", "p"])
    >>> Y = observe(pd.DataFrame({"u": ["bob", "cid"], "w": ["yes", "no"]}), dims=["u", "w"])
    >>> both, added = aligned({"X": X, "Y": Y}, {"X": ("u", "p"), "Y": ("u", "w")})
    >>> both["X"]
    <CooObservation 3x2 float64: 4 of 6 cells observed, total 2>
    >>> [(one.tensor, one.index, one.labels, one.zeros) for one in added]
    [('X', 'u', <Labels cid>, False), ('Y', 'u', <Labels ann>, False)]
    """
    known = _joined(seen, indices)
    found, added = {}, []
    for name, one in seen.items():
        wider = {i: known[i] for i in indices[name] if i in one.labels and known[i] != one.labels[i]}
        found[name] = _widened(name, one, indices[name], wider, zeros) if wider else one
        for index, labels in wider.items():
            new = ~labels.index.isin(one.labels[index].index)
            if new.any():
                all_known = getattr(one, "unlisted", "zero") == "zero"
                new_ones = replace(labels, index=labels.index[new])
                added.append(Added(name, index, new_ones, zeros=index in zeros and all_known))
    return found, added


def _joined(seen: Mapping[str, Observation], indices: Mapping[str, tuple[str, ...]]) -> dict[str, Labels]:
    """All labels of every index, of all tensors that name them."""
    known: dict[str, Labels] = {}
    source: dict[str, str] = {}
    for name, one in seen.items():
        for index in indices[name]:
            labels = one.labels.get(index)
            if labels is None:
                continue
            if index in known:
                what = f"the labels of {index!r} in {source[index]} and {name}"
                labels = together(known[index], labels, what)
            known[index] = labels
            source.setdefault(index, name)
    return known


def _widened(
    name: str, seen: Observation, indices: tuple[str, ...], wider: Mapping[str, Labels], zeros: Collection[str]
) -> Observation:
    """One tensor along more labels."""
    places, absent = [], []  # for each mode: where its positions go; which of the new ones have missing cells
    for index, size in zip(indices, seen.shape, strict=True):
        labels = wider.get(index)
        at = np.arange(size) if labels is None else labels.index.get_indexer(seen.labels[index].index)
        new = np.ones(size if labels is None else len(labels), dtype=bool)
        new[at] = False
        places.append(np.asarray(at, dtype=np.intp))
        absent.append(new & (index not in zeros))
    if not isinstance(seen, CooObservation | DenseObservation):
        first = next(iter(wider))
        raise ObservationError(
            f"{name} is a cell store and lacks labels of {first!r} that another tensor has: prepare it with all labels"
        )
    return replace(widened(name, seen, places, absent), dims=indices, labels={**seen.labels, **wider})


def widened(
    name: str, seen: Observation, places: list[NDArray[np.intp]], absent: list[NDArray[np.bool_]]
) -> Observation:
    """Data at other positions of a larger tensor; cells at positions that are marked as ``absent`` are missing."""
    shape = tuple(one.size for one in absent)
    if isinstance(seen, DenseObservation):
        return _array_widened(seen, places, absent, shape)
    assert isinstance(seen, CooObservation)

    cells = (moved(seen.coords, places).T, seen.values)
    if seen.unlisted == "missing":
        return observe(cells, shape=shape, unlisted="missing")
    kept = math.prod(int(np.count_nonzero(~one)) for one in absent)
    if math.prod(shape) - kept > MOST_MISSING:
        advice = "say that they are zeros with --zeros"
        advice = f"give it all labels{py_only: with pltf.observe(..., labels=...)}, or {advice}"
        raise ObservationError(
            f"{name} lacks labels that another tensor has, so {math.prod(shape) - kept:,} of its cells are missing, "
            f"and at most {MOST_MISSING:,} can be: {advice}"
        )
    missing = np.concatenate([moved(seen.missing, places), _cells_where(absent)], axis=1)
    return observe(cells, shape=shape, missing=missing.T)


def moved(cells: Coords, places: Sequence[NDArray[np.intp]]) -> Coords:
    """Cells (modes, n) at other positions; ``places`` has the new ones of each mode."""
    return np.stack([at[mode] for at, mode in zip(places, cells, strict=True)])


def _cells_where(absent: list[NDArray[np.bool_]]) -> Coords:
    """The cells that have a marked position along any axis, each once."""
    found = []
    for mode, marked in enumerate(absent):
        ranges = [np.flatnonzero(~one) for one in absent[:mode]]
        ranges += [np.flatnonzero(marked), *(np.arange(one.size) for one in absent[mode + 1 :])]
        found.append(np.stack([one.ravel() for one in np.meshgrid(*ranges, indexing="ij")]))
    return np.concatenate(found, axis=1)


def _array_widened(
    seen: DenseObservation, places: list[NDArray[np.intp]], absent: list[NDArray[np.bool_]], shape: tuple[int, ...]
) -> Observation:
    values = np.zeros(shape, dtype=seen.values.dtype)
    known = np.ones(shape, dtype=bool)
    for mode, marked in enumerate(absent):
        known[(slice(None),) * mode + (marked,)] = False
    values[np.ix_(*places)] = seen.values
    if seen.mask is not None:
        known[np.ix_(*places)] = seen.mask
    return observe(values, known)
