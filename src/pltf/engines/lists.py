"""Lists of cells, created from any observation and shared by all engines on the same data."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from pltf.data import CooObservation, DenseObservation, Observation
from pltf.data.cell_index import Coords
from pltf.data.numeric import read_only
from pltf.data.stored import StoredObservation
from pltf.engines.contraction import AnyArray

MOST_CHUNKS = 8  # per list of cells; also the largest number of threads used
MOST_BY_NUMPY = 1 << 18  # cells: NumPy sorts these in 20 ms, which takes less than loading a compiled loop

T = TypeVar("T")


class CellList:
    """A list of cells of some data: non-zeros with their counts, all observed cells, or listed missing cells.

    Engines on the same data share derived lists as long as one of them exists.
    """

    def __init__(self, seen: Observation, role: str, dtype: np.dtype[Any]) -> None:
        self._seen, self._role, self._dtype = seen, role, dtype

    def whole(self) -> WholeList:
        """Indices and counts, in data order."""
        return self._once((), lambda: WholeList(*_cells(self._seen, self._role, self._dtype)))

    def sorted_by(self, modes: Sequence[int]) -> SortedList:
        """The list sorted by these modes, and cut into chunks at positions of the first one."""
        return self._once(("sorted", *modes), lambda: SortedList(self.whole(), modes))

    def once(self, key: tuple[Any, ...], make: Callable[[WholeList], T]) -> T:
        """A cached object derived from the list."""
        return self._once(key, lambda: make(self.whole()))

    def _once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        return shared(self._seen, (self._role, self._dtype.name, *key), make)


_made_of: WeakKeyDictionary[Observation, WeakValueDictionary[Any, Any]] = WeakKeyDictionary()
_making = threading.RLock()


def shared(seen: Observation, key: tuple[Any, ...], make: Callable[[], T]) -> T:
    """The cached object for this key if it still exists, else a new one."""
    with _making:
        known = _made_of.setdefault(seen, WeakValueDictionary())
        found: T | None = known.get(key)
        if found is None:
            found = known[key] = make()
        return found


class CellSource(Protocol):
    """Cells from which engines make their own lists."""

    def once(self, key: tuple[Any, ...], make: Callable[[WholeList], T]) -> T:
        """An object derived from the list in data order."""
        ...


class WholeList:
    """The list in data order."""

    def __init__(self, coords: Coords, x: AnyArray | None) -> None:
        self.coords, self.x = coords, x

    def __len__(self) -> int:
        return int(self.coords.shape[1])

    def once(self, key: tuple[Any, ...], make: Callable[[WholeList], T]) -> T:
        """As :meth:`CellList.once`, for a list that no other engine uses."""
        return make(self)


class SortedList:
    """A list sorted by all its modes in some order; its chunks own their positions of the first mode."""

    def __init__(self, whole: WholeList, modes: Sequence[int]) -> None:
        coords = whole.coords[list(modes)]
        natural = list(modes) == list(range(len(modes)))  # the order of the data
        order = slice(None) if natural else np.lexsort(coords[::-1])
        # Always read-only, whether copied or not: one compiled kernel for both.
        self.rows: Coords = read_only(np.ascontiguousarray(coords[:, order]))
        self.x = None if whole.x is None else read_only(np.ascontiguousarray(whole.x[order]))
        self.chunks = chunks_of(self.rows[0])


def order_by(positions: NDArray[np.integer[Any]], size: int) -> NDArray[np.intp]:
    """Indices that sort positions below ``size``; equal ones keep their order.

    >>> order_by(np.array([2, 0, 2, 1]), 3)
    array([1, 3, 0, 2])
    """
    if positions.size < MOST_BY_NUMPY or 2 * size > positions.size:
        return np.argsort(positions, kind="stable")
    from pltf.engines._numba import counting_sort  # imports the compiler

    order, ends = np.empty(positions.size, dtype=np.intp), np.zeros(size, dtype=np.intp)
    counting_sort(read_only(np.ascontiguousarray(positions)), ends, order)
    return order


def chunks_of(own: Coords) -> list[tuple[int, int]]:
    """Chunks of a list, cut where the sorted positions change; they depend only on the list."""
    return [(a, b) for a, b in cut_apart(own, MOST_CHUNKS) if a < b] or [(0, 0)]


def cut_apart(own: Coords, pieces: int) -> list[tuple[int, int]]:
    """Cut sorted positions into pieces of about the same length that share no position; some may be empty."""
    ends = [own.size * n // pieces for n in range(1, pieces)]
    ends = [int(np.searchsorted(own, own[end], side="left")) for end in ends if end < own.size]
    return list(itertools.pairwise([0, *ends, own.size]))


def _cells(seen: Observation, role: str, dtype: np.dtype[Any]) -> tuple[Coords, AnyArray | None]:
    """Indices (modes, cells), sorted, and the counts of the positive ones."""
    if isinstance(seen, CooObservation):
        return _positive(seen, dtype) if role == "positive" else (_listed(seen, role), None)
    if isinstance(seen, StoredObservation):
        assert seen.unlisted == "zero", "listed cells of a store stay on disk"
        assert role != "positive", "listed cells of a store stay on disk"
        return seen.missing if role == "holes" else _where(~_mask_of(seen.missing, seen.shape)), None
    assert isinstance(seen, DenseObservation)
    if role == "positive":
        chosen = _above_zero(seen.values, dtype)
        chosen &= True if seen.mask is None else seen.mask
        coords = _where(chosen)
        return coords, seen.values[tuple(coords)].astype(dtype)
    mask = np.ones(seen.shape, dtype=bool) if seen.mask is None else seen.mask
    return _where(mask if role == "observed" else ~mask), None


def _above_zero(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.bool_]:
    """Which values are positive after conversion to a dtype: small values may become zero."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):  # values of missing cells are ignored
        if values.dtype.kind != "f" or np.can_cast(values.dtype, dtype):  # the comparison needs no copy
            return np.asarray(values > 0)
        return np.asarray(values.astype(dtype) > 0)


def _positive(seen: CooObservation, dtype: np.dtype[Any]) -> tuple[Coords, AnyArray]:
    """The cells with a positive count; small counts may become zero in float32."""
    x = seen.values.astype(dtype)
    positive = x > 0
    if positive.all():
        return seen.coords, x
    return np.ascontiguousarray(seen.coords[:, positive]), x[positive]


def _listed(seen: CooObservation, role: str) -> Coords:
    given = seen.coords if seen.unlisted == "missing" else seen.missing
    is_given = role == ("observed" if seen.unlisted == "missing" else "holes")
    return given if is_given else _where(~_mask_of(given, seen.shape))


def _mask_of(coords: Coords, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    mask = np.zeros(shape, dtype=bool)
    mask[tuple(coords)] = True
    return mask


def _where(chosen: NDArray[np.bool_]) -> Coords:
    """The indices of the True cells of a mask (modes, cells), in the smallest integer type."""
    narrow = np.int32 if max(chosen.shape) <= np.iinfo(np.int32).max else np.int64
    flat = np.flatnonzero(chosen)
    coords = np.empty((chosen.ndim, flat.size), narrow)
    for mode in reversed(range(chosen.ndim)):  # one by one: np.nonzero would need several times the memory
        coords[mode] = flat % chosen.shape[mode]
        flat //= chosen.shape[mode]
    return coords


def as_dense(seen: Observation, dtype: np.dtype[Any], values: bool) -> DenseObservation:
    """Data as an array with a mask; without ``values`` only the mask, which also stands in for the values."""
    if isinstance(seen, DenseObservation):
        return seen if values or not seen.has_missing else seen.mask_alone()
    assert isinstance(seen, CooObservation)
    return shared(seen, ("dense", dtype.name if values else None), lambda: _made_dense(seen, dtype, values))


def _made_dense(seen: CooObservation, dtype: np.dtype[Any], values: bool) -> DenseObservation:
    mask = None
    if seen.has_missing:
        listed = seen.unlisted == "missing"
        mask = _mask_of(seen.coords if listed else seen.missing, seen.shape)
        mask = read_only(mask if listed else ~mask)
    if not values:
        assert mask is not None
        return _masked(seen, mask, mask)
    array = np.zeros(seen.shape, dtype)
    array[tuple(seen.coords)] = seen.values
    return _masked(seen, read_only(array), mask)


def _masked(seen: Observation, values: NDArray[Any], mask: NDArray[np.bool_] | None) -> DenseObservation:
    return DenseObservation(seen.n_observed, seen.total, seen.saturated, seen.largest, values, mask)


def untouched(seen: Observation, modes: Sequence[int]) -> NDArray[np.bool_]:
    """Positions of some modes without observed cells."""
    shape = tuple(seen.shape[mode] for mode in modes)
    if isinstance(seen, DenseObservation):
        others = tuple(mode for mode in range(len(seen.shape)) if mode not in modes)
        if seen.mask is None:
            return np.zeros(shape, dtype=bool)
        found: NDArray[np.bool_] = np.asarray(~seen.mask.any(axis=others))
        return found.transpose([sorted(modes).index(mode) for mode in modes])
    assert isinstance(seen, CooObservation) or (isinstance(seen, StoredObservation) and seen.unlisted == "zero")
    listed = seen.coords if isinstance(seen, CooObservation) and seen.unlisted == "missing" else seen.missing
    numbers = np.ravel_multi_index(tuple(listed[list(modes)]), shape) if listed.shape[1] else np.empty(0, np.int64)
    counts = np.bincount(numbers, minlength=math.prod(shape)).reshape(shape)
    each = math.prod(seen.shape) // math.prod(shape)
    return counts == 0 if seen.unlisted == "missing" else counts >= each
