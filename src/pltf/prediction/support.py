"""Whether the data support a prediction, or it depends mostly on the prior and on unrelated cells.

Three tests, chosen because they flag gross errors on held-out cells of real tables and leave ordinary predictions alone
(figures in docs/prediction.md). A prediction is unsupported if

- the variance of its rate is more than five times what one observed count of the cell would leave: the product of
  factor entries that never occur together in the data is arbitrary;
- it is more than twice the largest value in any slice (row, column, ...) of the cell, unless values are links;
- one of its slices has no observed cell, in this tensor or in another one with the index.

The last two need the observed cells. A fit made with ``keep_data=False`` has only the first test.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.cell_index import Coords
from pltf.data.pattern import DensePattern, ListedPattern, Pattern
from pltf.data.stored import StoredPattern
from pltf.notation import Model
from pltf.prediction.cells import Asked
from pltf.prediction.moments import Belief, mean, variance
from pltf.prediction.noise import Bernoulli
from pltf.prediction.spread import noise_unit

MOST_NOISE = 5.0  # variance of a rate in units of the noise of one observation
MOST_ABOVE = 2.0  # multiple of the largest value in the slices of a cell
_CHUNK = 1 << 20  # cells of an array at a time

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Slices:
    """Largest observed value in each slice of each mode (infinite if unknown), and whether it has observed cells."""

    largest: tuple[NDArray[np.float64], ...]
    seen: tuple[Bools, ...]

    def reached(self, cells: Coords) -> NDArray[np.float64]:
        """The largest value in any slice of each cell (modes, n)."""
        return np.asarray(np.maximum.reduce([one[at] for one, at in zip(self.largest, cells, strict=True)]))

    def all_seen(self, cells: Coords) -> Bools:
        """Whether every slice of each cell has observed cells."""
        return np.asarray(np.logical_and.reduce([one[at] for one, at in zip(self.seen, cells, strict=True)]))


def slices_of(pattern: Pattern, shape: tuple[int, ...]) -> Slices | None:
    """The slices of a tensor; None if its cells were not stored."""
    if isinstance(pattern, DensePattern):
        return _of_array(pattern)
    if isinstance(pattern, StoredPattern):
        seen = pattern.seen
        return _of_lists(shape, seen.blocks(), None if seen.unlisted == "missing" else seen.missing)
    if isinstance(pattern, ListedPattern):
        return _of_lists(shape, [(pattern.coords, pattern.values)], pattern.missing, pattern.reached)
    return None


def joined(model: Model, slices: Mapping[str, Slices | None], fixed: Collection[str]) -> dict[str, Slices | None]:
    """Slices of the tensors of a model, combined over tensors that share an index.

    Observed cells in a row of one tensor support that row in all of them. If all factors of an index are fixed, as in a
    fold-in, no cell needs to be observed, and the largest value is unknown.
    """
    given = {i for i in model.observed_indices if all(a in fixed for a, held in model.factors.items() if i in held)}
    seen: dict[str, Bools] = {}
    for name, one in slices.items():
        if one is not None:
            for index, here in zip(model.observed[name], one.seen, strict=True):
                seen[index] = seen.get(index, False) | here | (index in given)

    def with_others(name: str, one: Slices) -> Slices:
        indices = model.observed[name]
        largest = (
            np.full_like(held, np.inf) if i in given else held for i, held in zip(indices, one.largest, strict=True)
        )
        return Slices(tuple(largest), tuple(seen[index] for index in indices))

    return {name: None if one is None else with_others(name, one) for name, one in slices.items()}


def supported(belief: Belief, slices: Slices | None, cells: Coords) -> Bools:
    """Whether the data support the prediction of each cell (modes, n)."""
    some = Asked(belief.shape, cells)
    rates = mean(belief, some)
    fine = np.ones(rates.shape, dtype=bool)
    if slices is not None:
        fine = slices.all_seen(cells)
        if not isinstance(belief.noise, Bernoulli):  # rates of links cannot be compared with values
            fine &= rates <= MOST_ABOVE * np.maximum(slices.reached(cells), 1.0)
    rest = Asked(belief.shape, cells[:, fine])
    if rest.size:
        fine[fine] = variance(belief, rest) <= MOST_NOISE * noise_unit(belief, rates[fine])
    return fine


def _of_lists(
    shape: tuple[int, ...],
    blocks: Iterable[tuple[Coords, NDArray[Any]]],
    missing: Coords | None,
    reached: tuple[Bools, ...] | None = None,
) -> Slices:
    """Slices of listed cells; other cells are missing, or zeros in slices that are ``reached`` but for ``missing``."""
    largest = tuple(np.zeros(size) for size in shape)
    listed = tuple(np.zeros(size, dtype=bool) for size in shape)
    for coords, values in blocks:
        for top, here, at in zip(largest, listed, coords, strict=True):
            np.maximum.at(top, at, values.astype(np.float64))
            here[at] = True
    if missing is None:
        return Slices(largest, listed)
    reached = reached or tuple(np.ones(size, dtype=bool) for size in shape)
    cells = math.prod(int(one.sum()) for one in reached)
    holes = (np.bincount(at, minlength=size) for at, size in zip(missing, shape, strict=True))
    seen = (one & (lost < cells // max(int(one.sum()), 1)) for one, lost in zip(reached, holes, strict=True))
    return Slices(largest, tuple(seen))


def _of_array(pattern: DensePattern) -> Slices:
    shape, size, at = pattern.shape, math.prod(pattern.shape), 0
    largest = tuple(np.full(n, 0.0 if pattern.values is not None else np.inf) for n in shape)
    seen = tuple(np.full(n, pattern.known is None) for n in shape)
    for begin in range(0, size, _CHUNK):
        part, count = slice(begin // 8, -(-min(begin + _CHUNK, size) // 8)), min(_CHUNK, size - begin)
        if pattern.known is not None:
            places = np.unravel_index(begin + np.flatnonzero(np.unpackbits(pattern.known[part], count=count)), shape)
            for mode, place in enumerate(places):
                seen[mode][place] = True
        if pattern.values is not None:
            above = begin + np.flatnonzero(np.unpackbits(pattern.above_zero[part], count=count))
            held = pattern.values[at : at + above.size].astype(np.float64)
            at += above.size
            for mode, place in enumerate(np.unravel_index(above, shape)):
                np.maximum.at(largest[mode], place, held)
    return Slices(largest, seen)
