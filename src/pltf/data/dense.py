"""Dense arrays with missing cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.base import Observation
from pltf.data.blocks import Block, block_shape, blocks
from pltf.data.cell_index import Coords
from pltf.data.numeric import constants, find_bad, finite_total, read_only
from pltf.data.pattern import Pattern, dense_pattern, slabs
from pltf.errors import ObservationError

_BLOCK_CELLS = 1 << 18


@dataclass(frozen=True, eq=False, repr=False)
class DenseObservation(Observation):
    """A dense tensor with observed and missing cells.

    ``values`` is the caller's array, not a copy; it may hold anything where ``mask`` is False.

    >>> import numpy as np, pltf
    >>> seen = pltf.observe(np.array([[1.0, np.nan], [0.0, 3.0]]))
    >>> seen
    <DenseObservation 2x2 float64: 3 of 4 cells observed, total 4>
    >>> seen.mask
    array([[ True, False],
           [ True,  True]])
    """

    values: NDArray[Any]
    mask: NDArray[np.bool_] | None  # True = observed; None = all observed

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype_name(self) -> str:
        return str(self.values.dtype)

    @cached_property
    def n_positive(self) -> int:
        return sum(int(np.count_nonzero(seen)) for _, seen in _observed(*self._read()))

    @property
    def has_missing(self) -> bool:
        return self.mask is not None

    def pattern(self) -> Pattern:
        return dense_pattern(*self._read())

    def values_at(self, cells: Coords) -> NDArray[np.float64]:
        at, (values, mask) = tuple(cells), self._read()
        found = np.asarray(values[at], dtype=np.float64)
        return found if mask is None else np.where(mask[at], found, np.nan)

    def first_where(self, wrong: Callable[[NDArray[Any]], NDArray[np.bool_]]) -> tuple[tuple[int, ...], float] | None:
        values, mask = self._read()
        for block, seen in _observed(values, mask):
            found = wrong(seen)
            if found.any():
                position = int(np.argmax(found))
                return _cell(values, mask, block, position), float(seen[position])
        return None

    def _read(self) -> tuple[Any, Any]:
        """Values and mask, or objects that read them part by part as host arrays."""
        return self.values, self.mask

    def _parts(self) -> Iterator[NDArray[Any]]:
        values, mask = self._read()
        for rows in slabs(self.shape):
            if mask is None:
                yield values[rows]
            else:
                known = mask[rows]
                yield known
                yield values[rows][known]

    def full_mask(self) -> NDArray[np.bool_]:
        """The mask as an array, also where all cells are observed."""
        return np.ones(self.shape, dtype=bool) if self.mask is None else self.mask

    def mask_alone(self) -> DenseObservation:
        """The mask also as values, for callers that only need the mask."""
        assert self.mask is not None
        return replace(self, values=self.mask)

    def within(self, known: NDArray[np.bool_]) -> DenseObservation:
        """The data, observed only where ``mask`` is True."""
        return replace(dense_observation(self.values, known, "X"), dims=self.dims, labels=self.labels)

    def _permuted(self, order: tuple[int, ...]) -> dict[str, Any]:
        mask = None if self.mask is None else self.mask.transpose(order)
        return {"values": self.values.transpose(order), "mask": mask}


def dense_observation(values: NDArray[Any], mask: NDArray[np.bool_] | None, name: str) -> DenseObservation:
    """Validate the observed cells of an array and compute the constants; ``name`` is for messages."""
    mask = _without_nan(values, mask)
    if mask is not None and mask.all():
        mask = None

    def wrong(block: Block, position: int) -> str:
        cell = _cell(values, mask, block, position)
        return f"cell {cell} holds {values[cell]}"

    known = None if mask is None else read_only(mask)
    facts = facts_of(_observed(values, mask), find_bad, constants, wrong, name)
    return DenseObservation(*facts, read_only(values), known)


def facts_of(
    observed: Iterable[tuple[Block, Any]],
    find_bad: Callable[[Any], tuple[int, str] | None],
    constants: Callable[[Any], tuple[float, float]],
    wrong: Callable[[Block, int], str],
    name: str,
) -> tuple[int, float, float, float]:
    """Number of observed values, their total, saturated log-likelihood and largest one; refuses invalid values.

    ``wrong`` says which cell an observed value of a block comes from, and what it holds.
    """
    n_observed, largest, totals, saturated = 0, 0.0, [], []
    for block, seen in observed:
        if not len(seen):
            continue
        bad = find_bad(seen)
        if bad is not None:
            raise ObservationError(f"{name}: observed values must be {bad[1]}, but {wrong(block, bad[0])}")
        total, peak = constants(seen)
        totals.append(total)
        saturated.append(peak)
        n_observed += len(seen)
        largest = max(largest, float(seen.max()))
    return n_observed, finite_total(totals, name), math.fsum(saturated), largest


def _has_nan(values: NDArray[Any], mask: NDArray[np.bool_] | None, block: Block) -> bool:
    """Whether an observed value of a block is NaN; without picking out the observed ones, which takes longer."""
    found = np.isnan(values)
    return bool(found.any() if mask is None else (found & mask[block]).any())


def _blocks(shape: tuple[int, ...]) -> list[Block]:
    return blocks(shape, block_shape(shape, lambda block: math.prod(block) <= _BLOCK_CELLS))


def _observed(values: NDArray[Any], mask: NDArray[np.bool_] | None) -> Iterator[tuple[Block, NDArray[Any]]]:
    """The observed values, block by block."""
    for block in _blocks(values.shape):
        yield block, values[block].ravel() if mask is None else values[block][mask[block]]


def _cell(values: NDArray[Any], mask: NDArray[np.bool_] | None, block: Block, position: int) -> tuple[int, ...]:
    """The cell that an observed value of a block comes from."""
    if mask is None:
        inside = np.unravel_index(position, values[block].shape)
    else:
        inside = tuple(np.argwhere(mask[block])[position])
    return tuple(int(cut.start + at) for cut, at in zip(block, inside, strict=True))


def _without_nan(values: NDArray[Any], mask: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """The mask without the cells that are NaN."""
    if values.dtype.kind != "f" or not any(_has_nan(values[block], mask, block) for block in _blocks(values.shape)):
        return mask
    known: NDArray[np.bool_] = np.isnan(values)
    np.logical_not(known, out=known)
    if mask is not None:
        known &= mask
    return known
