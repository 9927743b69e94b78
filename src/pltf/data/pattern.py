"""Which cells were observed, and their values: the compact record of the data in a fit."""

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

_SLAB = 1 << 20  # cells at a time; digests of data, and thus checkpoints, depend on it
_PACKED = 1 << 17  # cells packed at a time
MOST_KEPT = 1 << 26  # largest array whose values are kept, in cells


class Pattern(Protocol):
    """Looks up cells, given as (modes, cells)."""

    @property
    def unlisted(self) -> str:
        """What an unlisted cell is: "zero" or "missing"."""

    def observed(self, cells: Coords) -> Bools:
        """Whether each cell was observed."""

    def positive(self, cells: Coords) -> Bools:
        """Whether each cell was observed with a value above zero."""

    def missing_cells(self, most: int) -> Coords | None:
        """All cells that were not observed; None if they cannot be listed, or if there are more than ``most``."""


@dataclass(frozen=True)
class ForgottenPattern:
    """Stands for a record that was not kept; it only knows what an unlisted cell is.

    ``digest`` is the content hash of the cell store, for a saved fit of a store.
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
    """The pattern; if it was not kept, raise an error that ends with advice."""
    if isinstance(pattern, ForgottenPattern):
        raise _forgotten(pattern, otherwise)
    return pattern


def _forgotten(pattern: ForgottenPattern, otherwise: str = "") -> PltfError:
    if pattern.digest:
        reason = "a saved fit does not refer to its cell store, so it does not know which cells were observed"
        return PltfError(f"{reason}: name the store with {py:fit.with_store(path)}")
    origin = f"this fit was made with {py:keep_data=False}, or updates a fit of a cell store"
    reason = f"{origin}, so it does not know which cells were observed"
    return PltfError(f"{reason}: {otherwise or f'fit with {py:keep_data=True} to ask for them'}")


@dataclass(frozen=True, eq=False)
class DensePattern:
    """One bit per cell; a copy, so that the array may change."""

    shape: tuple[int, ...]
    known: NDArray[np.uint8] | None  # None: all
    above_zero: NDArray[np.uint8]
    values: NDArray[Any] | None  # of the cells above zero, in the narrowest type; None if there are too many

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
        """The data, NaN where they were missing."""
        if self.values is None:
            raise PltfError(f"a fit keeps the values of at most {MOST_KEPT:,} cells of an array: pass the data")
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


# Both fill an array of the right size: concatenating parts would take twice the memory.


def _packed(shape: tuple[int, ...], bools: Callable[[slice], Bools]) -> NDArray[np.uint8]:
    """Bits of an array."""
    packed, end = np.empty(-(-math.prod(shape) // 8), dtype=np.uint8), 0
    for rows in slabs(shape, _PACKED):
        bits = np.packbits(bools(rows))
        packed[end : end + bits.size] = bits
        end += bits.size
    return packed


def _collected(shape: tuple[int, ...], some: Callable[[slice], NDArray[Any]]) -> NDArray[Any]:
    """Concatenate values of each slab in the narrowest type that represents them all."""
    every = slabs(shape, _PACKED, multiple=1)
    kinds = [(part.size, narrowest(part)) for part in map(some, every)]
    held, end = np.empty(sum(size for size, _ in kinds), dtype=np.result_type(*(dtype for _, dtype in kinds))), 0
    for part in map(some, every):
        held[end : end + part.size] = part
        end += part.size
    return held


def narrowest(values: NDArray[Any]) -> np.dtype[Any]:
    """The narrowest type that represents the values exactly.

    >>> narrowest(np.array([0.0, 300.0])), narrowest(np.array([0.5]))
    (dtype('uint16'), dtype('float64'))
    """
    largest = values.max(initial=0)
    for dtype in (np.uint8, np.uint16, np.uint32):
        if largest <= np.iinfo(dtype).max and (values.dtype.kind != "f" or (values == np.floor(values)).all()):
            return np.dtype(dtype)
    return np.dtype(np.float32 if values.dtype == np.float32 else np.float64)


def slabs(shape: tuple[int, ...], cells: int = _SLAB, multiple: int = 8) -> list[slice]:
    """Slices of a few rows with about ``cells`` cells; eight rows fill whole bytes."""
    rows = multiple * max(1, cells // (multiple * math.prod(shape[1:])))
    return [slice(at, at + rows) for at in range(0, shape[0], rows)]


@dataclass(frozen=True, eq=False)
class ListedPattern:
    """Lists of cells with a value and of missing cells; all others are missing too, or zeros.

    Where they are zeros, ``reached`` has the positions of each mode that appeared in any data: a cell with another
    position is missing. None means all positions.
    """

    sizes: tuple[int, ...]
    coords: Coords
    values: NDArray[Any]  # of the listed cells
    missing: Coords | None  # None if unlisted cells are missing
    reached: tuple[Bools, ...] | None = None

    @property
    def unlisted(self) -> str:
        return "missing" if self.missing is None else "zero"

    @cached_property
    def listed(self) -> CellIndex:
        """Index of the listed cells."""
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
        return np.append(self.values > 0, [False])[
            self.listed.find(cells)
        ]  # -1, of cells that are not listed, selects the last

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
    """The pattern of listed cells, in the narrowest types."""
    found = next((dtype for dtype in (np.uint8, np.uint16) if max(sizes) <= np.iinfo(dtype).max + 1), None)

    def narrow(cells: Coords) -> Coords:
        return cells if found is None else cells.astype(found, copy=False)

    held = values.astype(narrowest(values), copy=False)
    return ListedPattern(sizes, narrow(coords), held, None if missing is None else narrow(missing), reached)
