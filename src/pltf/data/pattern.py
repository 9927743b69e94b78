"""Which cells were observed, and what they held: what a fit keeps of its data, in little space."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pltf.data.cell_index import CellIndex, Coords
from pltf.errors import PltfError, py

Bools = NDArray[np.bool_]

_SLAB = 1 << 20  # cells at a time: digests of data depend on it, and so do checkpoints
_PACKED = 1 << 17  # cells that are packed at a time
MOST_KEPT = 1 << 26  # cells of an array whose values are kept


class Pattern(Protocol):
    """Answers for cells, given as (modes, cells)."""

    @property
    def unlisted(self) -> str:
        """What a cell is of which nothing is said: "zero" or "missing"."""
        ...

    def observed(self, cells: Coords) -> Bools:
        """Whether each cell was observed."""
        ...

    def positive(self, cells: Coords) -> Bools:
        """Whether each cell was observed with a value above zero."""
        ...

    def missing_cells(self, most: int) -> Coords | None:
        """All cells that were not observed; None if they cannot be listed, or are more than so many."""
        ...


@dataclass(frozen=True)
class ForgottenPattern:
    """Stands for cells that were not kept: of them it only knows what one that is not listed would be.

    ``digest`` is that of a cell store, which a saved fit does not refer to.
    """

    unlisted: str
    digest: str = ""

    def observed(self, cells: Coords) -> Bools:
        raise _forgotten(self)

    def positive(self, cells: Coords) -> Bools:
        raise _forgotten(self)

    def missing_cells(self, most: int) -> Coords | None:
        raise _forgotten(self)


def kept(pattern: Pattern, otherwise: str) -> Pattern:
    """The pattern; if it was not kept, a sentence that ends with what can be done about it, or cannot."""
    if isinstance(pattern, ForgottenPattern):
        raise _forgotten(pattern, otherwise)
    return pattern


def _forgotten(pattern: ForgottenPattern, otherwise: str = "") -> PltfError:
    if pattern.digest:
        reason = "a saved fit does not refer to its cell store, so it does not know which cells were observed"
        return PltfError(f"{reason}: name the store with {py:fit.with_store(path)}")
    reason = f"this fit was made with {py:keep_data=False}, so it does not know which cells were observed"
    return PltfError(f"{reason}: {otherwise or f'fit with {py:keep_data=True} to ask for them'}")


@dataclass(frozen=True, eq=False)
class DensePattern:
    """Bits, an eighth of a byte a cell; the caller may change the array that they come from."""

    shape: tuple[int, ...]
    known: NDArray[np.uint8] | None  # None: all
    above_zero: NDArray[np.uint8]
    values: NDArray[Any] | None  # of the cells above zero, in the narrowest type that holds them; None: too many

    @property
    def unlisted(self) -> str:
        return "zero"

    def observed(self, cells: Coords) -> Bools:
        return np.ones(cells.shape[1], dtype=bool) if self.known is None else self._bits(self.known, cells)

    def positive(self, cells: Coords) -> Bools:
        return self._bits(self.above_zero, cells)

    def missing_cells(self, most: int) -> Coords | None:
        count = math.prod(self.shape)
        if self.known is None:
            return np.empty((len(self.shape), 0), dtype=np.intp)
        if count > most:
            return None
        return np.stack(np.unravel_index(np.flatnonzero(np.unpackbits(self.known, count=count) == 0), self.shape))

    def array(self) -> NDArray[np.float64]:
        """The data as they were, NaN where they were missing."""
        if self.values is None:
            raise PltfError(f"a fit keeps no more than {MOST_KEPT:,} cells of an array: pass the data themselves")
        count = math.prod(self.shape)
        flat = np.zeros(count)
        flat[np.unpackbits(self.above_zero, count=count).view(bool)] = self.values
        if self.known is not None:
            flat[np.unpackbits(self.known, count=count) == 0] = np.nan
        return flat.reshape(self.shape)

    def _bits(self, packed: NDArray[np.uint8], cells: Coords) -> Bools:
        flat = np.ravel_multi_index(tuple(cells), self.shape)
        return np.asarray(packed[flat >> 3] >> (7 - (flat & 7)).astype(np.uint8) & 1, dtype=bool)


def dense_pattern(values: NDArray[Any], mask: Bools | None) -> DensePattern:
    """The pattern of an array."""

    def above_zero(rows: slice) -> Bools:
        positive: Bools = values[rows] > 0
        return positive if mask is None else positive & mask[rows]

    known = None if mask is None else _packed(values.shape, lambda rows: mask[rows])
    bits = _packed(values.shape, above_zero)
    held = None
    if values.size <= MOST_KEPT:
        held = _collected(values.shape, lambda rows: values[rows][above_zero(rows)])
    return DensePattern(values.shape, known, bits, held)


# Both fill an array of the right size: put together from parts, it would be held twice for a moment.


def _packed(shape: tuple[int, ...], bools: Callable[[slice], Bools]) -> NDArray[np.uint8]:
    """Bits of an array."""
    packed, end = np.empty(-(-math.prod(shape) // 8), dtype=np.uint8), 0
    for rows in slabs(shape, _PACKED):
        bits = np.packbits(bools(rows))
        packed[end : end + bits.size] = bits
        end += bits.size
    return packed


def _collected(shape: tuple[int, ...], some: Callable[[slice], NDArray[Any]]) -> NDArray[Any]:
    """Some numbers of each slab, one after the other, in the narrowest type that holds them all."""
    every = slabs(shape, _PACKED, multiple=1)
    kinds = [(part.size, narrowest(part)) for part in map(some, every)]
    held, end = np.empty(sum(size for size, _ in kinds), dtype=np.result_type(*(dtype for _, dtype in kinds))), 0
    for part in map(some, every):
        held[end : end + part.size] = part
        end += part.size
    return held


def narrowest(values: NDArray[Any]) -> np.dtype[Any]:
    """The smallest type that holds numbers exactly."""
    largest = values.max(initial=0)
    for dtype in (np.uint8, np.uint16, np.uint32):
        if largest <= np.iinfo(dtype).max and (values.dtype.kind != "f" or (values == np.floor(values)).all()):
            return np.dtype(dtype)
    return np.dtype(np.float32 if values.dtype == np.float32 else np.float64)


def slabs(shape: tuple[int, ...], cells: int = _SLAB, multiple: int = 8) -> list[slice]:
    """A few rows at a time, of about so many cells; eight rows are whole bytes."""
    rows = multiple * max(1, cells // (multiple * math.prod(shape[1:])))
    return [slice(at, at + rows) for at in range(0, shape[0], rows)]


@dataclass(frozen=True, eq=False)
class ListedPattern:
    """Lists of cells: those with a value, and the holes; all others are holes too, or zeros.

    Where they are zeros, ``reached`` tells of each mode which of its positions any data have had: a cell that has
    another position is a hole. None: data have had all of them.
    """

    sizes: tuple[int, ...]
    coords: Coords
    values: NDArray[Any]  # of each of them
    missing: Coords | None  # None: what is not listed is missing
    reached: tuple[Bools, ...] | None = None

    @property
    def unlisted(self) -> str:
        return "missing" if self.missing is None else "zero"

    @cached_property
    def listed(self) -> CellIndex:
        """Where a cell stands in the list."""
        return CellIndex(self.coords, self.sizes)

    @cached_property
    def _holes(self) -> CellIndex | None:
        return None if self.missing is None else CellIndex(self.missing, self.sizes)

    def observed(self, cells: Coords) -> Bools:
        if self._holes is None:
            return self.listed.find(cells) >= 0
        found: Bools = self._holes.find(cells) < 0
        for mode, reached in zip(cells, self.reached or (), strict=False):
            found &= reached[mode]
        return found

    def positive(self, cells: Coords) -> Bools:
        return np.append(self.values > 0, [False])[self.listed.find(cells)]  # position -1, of none, is the last

    def missing_cells(self, most: int) -> Coords | None:
        if self.missing is None or self.reached is not None or self.missing.shape[1] > most:
            return None
        return self.missing.astype(np.intp)


def listed_pattern(
    sizes: tuple[int, ...],
    coords: Coords,
    values: NDArray[Any],
    missing: Coords | None,
    reached: tuple[Bools, ...] | None = None,
) -> ListedPattern:
    """The pattern of listed cells, in the narrowest numbers that hold them."""
    found = next((dtype for dtype in (np.uint8, np.uint16) if max(sizes) <= np.iinfo(dtype).max + 1), None)

    def narrow(cells: Coords) -> Coords:
        return cells if found is None else cells.astype(found, copy=False)

    held = values.astype(narrowest(values), copy=False)
    return ListedPattern(sizes, narrow(coords), held, None if missing is None else narrow(missing), reached)
