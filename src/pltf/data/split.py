"""Hold out cells to evaluate predictions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from pltf.data.base import Observation
from pltf.data.cell_index import CellIndex, Coords, order_of
from pltf.data.coo import CooObservation
from pltf.data.dense import DenseObservation
from pltf.data.numeric import brief, constants, read_only
from pltf.data.observe import is_xarray, observe
from pltf.data.random_cells import (
    SMALL,
    Picks,
    check_listable,
    distinct_numbers,
    draw_cells,
    evenly,
    numbered,
    shares_of,
    sizes_of,
)
from pltf.data.stored import StoredObservation
from pltf.data.tables import is_table
from pltf.errors import ObservationError, PltfError, call_checked, is_number, py, whole

MOST_SCORED = 30_000  # held-out cells scored after a fit and in its report; more are slow and hardly change the scores
MOST_PLACES = 1 << 27  # along axes of a store, where whole positions are hidden


@dataclass(frozen=True, eq=False, repr=False)
class Holdout:
    """A split of listed cells into training and held-out cells, as returned by :func:`pltf.holdout`.

    Pass ``train`` to ``fit``; the held-out cells are missing in it. ``cells`` has one row of positions per held-out
    cell, in the form that ``fit.mean(at=cells)`` accepts, and ``values`` has their values.

    >>> import pltf
    >>> counts = pltf.observe(([(0, 1), (2, 0), (3, 3)], [5, 1, 2]), shape=(4, 4))
    >>> split = pltf.holdout(counts, 0.4, by="nonzeros", negatives=2, seed=3)
    >>> split
    <Holdout 4x4: 3 cells hidden, 1 of them non-zero; 13 left to fit>
    >>> split.cells.tolist(), split.values.tolist()
    ([[0, 2], [0, 3], [3, 3]], [0.0, 0.0, 2.0])
    >>> split.train
    <CooObservation 4x4 float64: 13 of 16 cells observed, total 6>
    """

    train: CooObservation | StoredObservation  # the data to fit
    cells: NDArray[np.integer[Any]]  # (cells, modes)
    values: NDArray[np.float64]  # values of the held-out cells

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.train.shape))
        hidden = f"{len(self.values):,} cells hidden, {np.count_nonzero(self.values):,} of them non-zero"
        return f"<Holdout {shape}: {hidden}; {self.train.n_observed:,} left to fit>"


@dataclass(frozen=True, eq=False, repr=False)
class HeldOut:
    """Held-out cells, one row of positions each, and their values.

    >>> HeldOut(np.array([[0, 1], [2, 0]]), np.array([3.0, 0.0]))
    <HeldOut 2 cells, 1 of them non-zero>
    """

    cells: NDArray[np.integer[Any]]  # (cells, modes)
    values: NDArray[np.float64]
    sampled: bool = False  # zeros are rarer here than among all cells
    of: str | None = None  # the tensor, where there are several

    def some(self, most: int) -> HeldOut:
        """At most this number of the cells, chosen at random but always the same.

        >>> HeldOut(np.arange(20).reshape(10, 2), np.ones(10)).some(3).cells.tolist()
        [[10, 11], [12, 13], [18, 19]]
        """
        if len(self.values) <= most:
            return self
        chosen = np.sort(np.random.default_rng(0).choice(len(self.values), most, replace=False))
        return replace(self, cells=self.cells[chosen], values=self.values[chosen])

    @property
    def both_kinds(self) -> bool:
        """Whether there are zeros and non-zeros."""
        return bool(0 < np.count_nonzero(self.values) < len(self.values))

    def __repr__(self) -> str:
        return f"<HeldOut {len(self.values):,} cells, {np.count_nonzero(self.values):,} of them non-zero>"


@overload
def holdout(
    data: NDArray[Any] | DenseObservation,
    fraction: float,
    *,
    by: str | int | tuple[str | int, ...] = "cells",
    stratify: str | int | None = None,
    negatives: float = 0.0,
    seed: int = 0,
) -> NDArray[np.bool_]: ...


@overload
def holdout(
    data: Any,
    fraction: float,
    *,
    by: str | int | tuple[str | int, ...] = "cells",
    stratify: str | int | None = None,
    negatives: float = 0.0,
    seed: int = 0,
) -> Any: ...


@call_checked
def holdout(
    data: Any,
    fraction: float,
    *,
    by: str | int | tuple[str | int, ...] = "cells",
    stratify: str | int | None = None,
    negatives: float = 0.0,
    seed: int = 0,
) -> NDArray[np.bool_] | Holdout:
    """Hold out a random ``fraction`` of the observed cells, to evaluate how well a fit predicts them.

    For dense data, the result is a mask for ``fit``, where True means keep; for a DataArray, the mask is a DataArray.
    Cells that are already missing are also False.
    For listed cells (``scipy.sparse``, pydata ``sparse``, or an observation with listed cells), the result is a
    :class:`pltf.Holdout` with the training data, the held-out cells and their values.

    ``by`` selects what is held out:

    - ``"cells"``: observed cells, including zeros.
    - ``"nonzeros"``: observed cells above zero. Zeros are kept, except that ``negatives`` observed zeros are held out
      per held-out non-zero; 1.0 gives equal numbers.
    - an axis: whole positions along it, for example all cells of a user, as for a new user without data.
    - a tuple of several axes, but not all: whole combinations of positions along them; these are fibres if one axis is
      left out. Positions without an observed cell do not count.

    ``stratify`` holds out the same fraction of each group, up to rounding: ``"value"`` (with ``by="cells"``) of zeros
    and of non-zeros; an axis (with ``by="cells"`` or ``"nonzeros"``) of every slice along it.

    An axis is given by its number or, if the data have named axes, by its name. ``"cells"``, ``"nonzeros"`` and
    ``"value"`` keep their meaning even if an axis has the same name.

    Held-out zeros of listed cells have to be listed as missing; at most 50 million can be held out.

    >>> import numpy as np, pltf
    >>> keep = pltf.holdout(np.ones((10, 10)), 0.4, seed=1)
    >>> int(keep.sum())
    60
    >>> pltf.holdout(np.ones((10, 10)), 0.4, stratify=0, seed=1).sum(axis=1).tolist()
    [6, 6, 6, 6, 6, 6, 6, 6, 6, 6]
    >>> pltf.holdout(np.ones((4, 3)), 0.5, by=0, seed=1).astype(int).tolist()
    [[1, 1, 1], [0, 0, 0], [0, 0, 0], [1, 1, 1]]
    >>> seen = pltf.observe(np.ones((4, 3)), dims=("user", "week"))
    >>> pltf.holdout(seen, 0.5, by="user", seed=1).astype(int).tolist()
    [[1, 1, 1], [0, 0, 0], [0, 0, 0], [1, 1, 1]]
    >>> from scipy import sparse
    >>> pltf.holdout(sparse.eye_array(10**4), 0.1, by="nonzeros", negatives=1)
    <Holdout 10000x10000: 2,000 cells hidden, 1,000 of them non-zero; 99,998,000 left to fit>
    """
    data = _observed(data) if is_table(data) else data  # a Series has named axes; other tables raise an error
    ask = _checked(fraction, by, stratify, negatives, _dims(data))
    rng = np.random.default_rng(whole("seed", seed, 0))
    seen = _observed(data)
    ask = _in_range(ask, len(seen.shape))
    if isinstance(seen, DenseObservation):
        mask = _mask(rng, ask, seen)
        return data.copy(data=mask) if is_xarray(data) else mask  # a mask with the same names
    if isinstance(seen, StoredObservation):
        return _split(seen, _from_store(rng, ask, seen))
    assert isinstance(seen, CooObservation)
    return _split(seen, _from_list(rng, ask, seen) if seen.unlisted == "missing" else _from_box(rng, ask, seen))


@dataclass(frozen=True)
class _Ask:
    """Validated options: the axes whose positions are hidden, if any; otherwise cells or non-zeros."""

    fraction: float
    axes: tuple[int, ...]
    nonzeros: bool
    stratify: str | int | None
    negatives: float

    @property
    def along(self) -> str:
        """The axes, in words."""
        return f"axis {self.axes[0]}" if len(self.axes) == 1 else f"axes {self.axes}"

    @property
    def two_kinds(self) -> bool:
        """Whether zeros and non-zeros are drawn separately; otherwise the values must not matter."""
        return self.nonzeros or self.stratify == "value"


def _dims(data: Any) -> tuple[str, ...]:
    """The names of the axes of data, if any."""
    return tuple(map(str, data.dims or ())) if isinstance(data, Observation) or is_xarray(data) else ()


def _checked(fraction: Any, by: Any, stratify: Any, negatives: Any, dims: tuple[str, ...]) -> _Ask:
    """Check what can be checked without the data."""
    if not is_number(fraction) or not 0 < fraction < 1:
        raise PltfError(f"{py:fraction} must lie between 0 and 1, got {brief(fraction)}")
    axes = _axes(by, dims)
    by_value = isinstance(stratify, str) and stratify == "value"
    strata = stratify if by_value else _number(stratify, dims)
    if not (strata is None or by_value or is_number(strata, whole=True)):
        raise PltfError(f"{py:stratify} must be None, 'value' or {_an_axis(dims)}, got {brief(stratify)}")
    if strata is not None and axes:
        raise PltfError(f"{py:stratify} requires {py:by='cells'} or {py:by='nonzeros'}, got {py:by={brief(by)}}")
    if by_value and by != "cells":
        raise PltfError(f"{py:stratify='value'} requires {py:by='cells'}, got {py:by={brief(by)}}")
    if not is_number(negatives) or not 0 <= negatives < math.inf:
        raise PltfError(f"{py:negatives} must be a number of at least 0, got {brief(negatives)}")
    if negatives and by != "nonzeros":
        raise PltfError(f"{py:negatives} requires {py:by='nonzeros'}, got {py:by={brief(by)}}")
    return _Ask(float(fraction), axes, by == "nonzeros", strata, float(min(negatives, 1e300)))


def _number(axis: Any, dims: tuple[str, ...]) -> Any:
    """Replace the name of an axis by its number; leave anything else unchanged."""
    return dims.index(axis) if isinstance(axis, str) and axis in dims else axis


def _an_axis(dims: tuple[str, ...]) -> str:
    """The accepted ways to specify an axis, for messages."""
    known = f"or the name of an axis ({', '.join(dims)})" if dims else "of an axis (the axes have no names)"
    return f"the number {known}"


def _axes(by: Any, dims: tuple[str, ...]) -> tuple[int, ...]:
    """The axes whose positions are hidden; empty for single cells."""
    if isinstance(by, str) and by in ("cells", "nonzeros"):
        return ()
    axes = [_number(axis, dims) for axis in (by if isinstance(by, tuple) and len(by) > 1 else (by,))]
    if not all(is_number(axis, whole=True) for axis in axes) or len(set(axes)) < len(axes):
        expected = f"'cells', 'nonzeros', {_an_axis(dims)} or a tuple of two or more different ones"
        raise PltfError(f"{py:by} must be {expected}; got {brief(by)}")
    return tuple(sorted(map(int, axes)))


def _in_range(ask: _Ask, modes: int) -> _Ask:
    stratify = () if ask.stratify in (None, "value") else (ask.stratify,)
    for argument, axes in (("by", ask.axes), ("stratify", stratify)):
        for axis in axes:
            if not 0 <= int(axis) < modes:
                raise PltfError(f"{py:{argument}} must name an axis of {py:data}, from 0 to {modes - 1}; got {axis}")
    if len(ask.axes) == modes > 1:
        raise PltfError(f"{py:by} must leave out at least one axis, or be 'cells'; got all {modes} axes")
    if modes == 1 and (ask.axes or stratify):  # slices of a vector are its cells
        return replace(ask, axes=(), stratify=None)
    return ask


def _observed(data: Any) -> Observation:
    try:
        return observe(data)
    except ObservationError as reason:
        if isinstance(data, tuple) or hasattr(data, "columns"):  # holdout has no options for these
            raise ObservationError(f"{reason.marked}: pass the result of pltf.observe(...)") from None
        raise


def _count(ask: _Ask, n: int, what: str) -> int:
    """How many of ``n`` items to hide: at least one, but not all."""
    if not n:
        raise ObservationError(f"{py:data} must have {what} to hide, got none")
    hidden = round(ask.fraction * min(n, 10**300))  # close to the float64 limit
    if not hidden:
        raise PltfError(f"{py:fraction} must hide at least one of {n:,} {what}, but {ask.fraction} of them rounds to 0")
    if hidden == n:
        raise PltfError(
            f"{py:fraction} must keep at least one of {n:,} {what}, but {ask.fraction} of them rounds to all"
        )
    return hidden


def _two_kinds(
    rng: np.random.Generator, ask: _Ask, nonzeros: int, zeros: int, group: Callable[[int], Picks]
) -> tuple[Picks, int]:
    """Which non-zeros to hide, and how many zeros; ``group`` returns the positions of the non-zeros along an axis."""
    some, n_zeros = _of_each_kind(rng, ask, nonzeros, zeros)
    if ask.stratify in (None, "value"):
        return rng.choice(nonzeros, some, replace=False), n_zeros
    return evenly(rng, ask.fraction, group(int(ask.stratify))), n_zeros


def _of_each_kind(rng: np.random.Generator, ask: _Ask, nonzeros: int, zeros: int) -> tuple[int, int]:
    if ask.stratify == "value":
        _count(ask, nonzeros + zeros, "observed cells")
        some, n_zeros = map(int, shares_of(rng, ask.fraction, (nonzeros, zeros)))
        return some, n_zeros
    some = _count(ask, nonzeros, "observed non-zeros")
    n_zeros = round(ask.negatives * some)
    if n_zeros > zeros:
        asked = f"{ask.negatives:g} for each of {some:,} non-zeros"
        raise PltfError(f"{py:negatives} must ask for at most {zeros:,} observed zeros, got {asked}")
    return some, n_zeros


def _pick(
    rng: np.random.Generator,
    ask: _Ask,
    n: int,
    nonzero: Callable[[], NDArray[np.bool_]],
    group: Callable[[tuple[int, ...]], Picks],
) -> Picks:
    """Which of ``n`` cells to hide.

    ``nonzero`` returns which of them are above zero, and is called only if needed;
    ``group`` numbers their positions along some axes.
    """
    if ask.axes:
        place = group(ask.axes)
        present = np.flatnonzero(np.bincount(place))
        some = _count(ask, present.size, f"observed positions along {ask.along}")
        return np.flatnonzero(np.isin(place, present[rng.choice(present.size, some, replace=False)]))
    if ask.two_kinds:
        held = nonzero()
        ones, zeros = np.flatnonzero(held), np.flatnonzero(~held)
        hidden, n_zeros = _two_kinds(rng, ask, ones.size, zeros.size, lambda axis: group((axis,))[ones])
        return np.concatenate([ones[hidden], zeros[rng.choice(zeros.size, n_zeros, replace=False)]])
    some = _count(ask, n, "observed cells")
    if ask.stratify is None:
        return rng.choice(n, some, replace=False)
    return evenly(rng, ask.fraction, group((int(ask.stratify),)))


def _mask(rng: np.random.Generator, ask: _Ask, seen: DenseObservation) -> NDArray[np.bool_]:
    """The mask of a dense array: True where a cell is kept."""
    keep = seen.full_mask().copy()
    cells = np.flatnonzero(keep)

    def group(axes: tuple[int, ...]) -> Picks:
        box = [size if axis in axes else 1 for axis, size in enumerate(seen.shape)]
        return np.broadcast_to(np.arange(math.prod(box)).reshape(box), seen.shape)[keep]

    keep.flat[cells[_pick(rng, ask, cells.size, lambda: seen.values[keep] > 0, group)]] = False
    return keep


def _from_list(rng: np.random.Generator, ask: _Ask, seen: CooObservation) -> Coords:
    """The cells to hide if unlisted cells are missing."""

    def group(axes: tuple[int, ...]) -> Picks:
        return numbered(sizes_of(seen.shape, axes), seen.coords[list(axes)])

    return seen.coords[:, _pick(rng, ask, seen.values.size, lambda: seen.values > 0, group)]


def _from_box(rng: np.random.Generator, ask: _Ask, seen: CooObservation) -> Coords:
    """The cells to hide if unlisted cells are zero; memory does not grow with the size of the tensor."""
    if ask.axes:
        return _blocks(rng, ask, seen)
    some = 0 if ask.nonzeros else _count(ask, seen.n_observed, "observed cells")
    check_listable(some)
    if ask.two_kinds:
        ones = seen.coords[:, seen.values > 0]
        zeros = seen.n_observed - ones.shape[1]
        hidden, n_zeros = _two_kinds(
            rng, ask, ones.shape[1], zeros, lambda axis: numbered(seen.shape[axis : axis + 1], ones[[axis]])
        )
        barred = np.concatenate([seen.missing, ones], axis=1)
        return np.concatenate([ones[:, hidden], draw_cells(rng, seen.shape, barred, n_zeros)], axis=1)
    if ask.stratify is None:
        return draw_cells(rng, seen.shape, seen.missing, some)
    return _of_each_slice(rng, ask.fraction, seen, int(ask.stratify))


def _from_store(rng: np.random.Generator, ask: _Ask, seen: StoredObservation) -> Coords:
    """The cells to hide in a store: small stores are read into memory, others are processed part by part."""
    if seen.listed <= SMALL:
        cells = seen.cells()
        return _from_list(rng, ask, cells) if seen.unlisted == "missing" else _from_box(rng, ask, cells)
    if seen.unlisted == "zero" and not ask.two_kinds:
        return _from_box(rng, ask, _no_cells(seen))  # the values do not matter
    if ask.axes:
        return _slices_of_store(rng, ask, seen)
    if not ask.two_kinds and ask.stratify is None:
        some = _count(ask, seen.listed, "observed cells")
        check_listable(some)
        return seen.pick(distinct_numbers(rng, seen.listed, some))
    if ask.stratify not in (None, "value"):
        raise PltfError(f"{py:stratify} must be None or 'value' for a store of more than {SMALL:,} cells")
    return _two_kinds_of_store(rng, ask, seen)


def _no_cells(seen: StoredObservation) -> CooObservation:
    """The same tensor and missing cells, without listed cells."""
    none: Coords = np.empty((len(seen.shape), 0), dtype=np.int32)
    return CooObservation(seen.n_observed, 0.0, 0.0, 0.0, seen.sizes, none, np.empty(0), "zero", seen.missing)


def _two_kinds_of_store(rng: np.random.Generator, ask: _Ask, seen: StoredObservation) -> Coords:
    """Draw non-zeros and zeros separately."""
    zeros = seen.n_observed - seen.n_positive
    some, n_zeros = _of_each_kind(rng, ask, seen.n_positive, zeros)
    check_listable(some + n_zeros)
    hidden = seen.pick(distinct_numbers(rng, seen.n_positive, some), lambda values: values > 0)
    if seen.unlisted == "missing":
        empty = seen.pick(distinct_numbers(rng, zeros, n_zeros), lambda values: values == 0)
    else:
        empty = _zeros_of_store(rng, seen, n_zeros)
    return np.concatenate([hidden, empty], axis=1)


def _zeros_of_store(rng: np.random.Generator, seen: StoredObservation, n: int) -> Coords:
    """Draw ``n`` distinct observed zeros, listed or not, by rejection sampling."""
    kept = np.empty((len(seen.shape), 0), dtype=np.int64)
    while kept.shape[1] < n:
        share = max(1 - seen.n_positive / seen.n_observed, 1e-3)
        more = np.stack([rng.integers(size, size=int((n - kept.shape[1]) / share) + 64) for size in seen.shape])
        more = more[:, seen.values_at(more) == 0]
        kept = np.concatenate([kept, more], axis=1)
        first = np.unique(numbered(seen.sizes, kept), return_index=True)[1]
        kept = kept[:, np.sort(first)[:n]]  # in order of drawing, not of position
    return kept


def _slices_of_store(rng: np.random.Generator, ask: _Ask, seen: StoredObservation) -> Coords:
    """All listed cells at some of the positions along some axes."""
    axes, sizes = list(ask.axes), sizes_of(seen.shape, ask.axes)
    if math.prod(sizes) > MOST_PLACES:
        raise PltfError(f"{py:by} must name axes with at most {MOST_PLACES:,} positions for a cell store of this size")
    cells = np.zeros(math.prod(sizes), dtype=np.int64)
    for coords, _ in seen.blocks():
        cells += np.bincount(np.ravel_multi_index(tuple(coords[axes]), sizes), minlength=cells.size)
    present = np.flatnonzero(cells)
    some = _count(ask, present.size, f"observed positions along {ask.along}")
    chosen = np.zeros(cells.size, dtype=bool)
    chosen[present[rng.choice(present.size, some, replace=False)]] = True
    check_listable(int(cells[chosen].sum()))
    found = [coords[:, chosen[np.ravel_multi_index(tuple(coords[axes]), sizes)]] for coords, _ in seen.blocks()]
    return np.concatenate(found, axis=1)


def _blocks(rng: np.random.Generator, ask: _Ask, seen: CooObservation) -> Coords:
    """All observed cells at some of the positions along some axes."""
    outer, inner = list(ask.axes), [axis for axis in range(len(seen.shape)) if axis not in ask.axes]
    sizes, inner_sizes = sizes_of(seen.shape, outer), sizes_of(seen.shape, inner)
    volume = math.prod(inner_sizes)
    holes = seen.missing[outer]
    _, first, n_holes = np.unique(numbered(sizes, holes), return_index=True, return_counts=True)
    empty = holes[:, first[n_holes == volume]]  # positions without an observed cell
    some = _count(ask, math.prod(sizes) - empty.shape[1], f"observed positions along {ask.along}")
    check_listable(some * volume)
    cells = np.empty((len(seen.shape), some * volume), dtype=seen.coords.dtype)
    cells[outer] = np.repeat(draw_cells(rng, sizes, empty, some), volume, axis=1)
    cells[inner] = np.tile(np.unravel_index(np.arange(volume), inner_sizes), some)
    return cells[:, CellIndex(seen.missing, seen.shape).find(cells) < 0]


def _of_each_slice(rng: np.random.Generator, fraction: float, seen: CooObservation, axis: int) -> Coords:
    """The same fraction of the observed cells of every slice along an axis."""
    size, others = seen.shape[axis], [other for other in range(len(seen.shape)) if other != axis]
    if size > SMALL:
        raise PltfError(f"{py:stratify} must name an axis of at most {SMALL:,} positions, but axis {axis} has {size:,}")
    sizes = sizes_of(seen.shape, others)
    holes = seen.missing[:, np.argsort(seen.missing[axis], kind="stable")]
    ends = np.searchsorted(holes[axis], np.arange(size + 1))
    shares = shares_of(rng, fraction, float(math.prod(sizes)) - np.diff(ends))
    parts = [
        draw_cells(rng, sizes, holes[others, ends[position] : ends[position + 1]], int(shares[position]))
        for position in np.flatnonzero(shares)
    ]
    return np.insert(np.concatenate(parts, axis=1), axis, np.repeat(np.arange(size), shares), axis=0)


def without(seen: Observation, cells: Coords) -> Observation:
    """The data with some observed cells (modes, n) set to missing.

    >>> without(observe(np.arange(4.0)), np.array([[1, 3]]))
    <DenseObservation 4 float64: 2 of 4 cells observed, total 2>
    """
    if isinstance(seen, CooObservation | StoredObservation):
        return _split(seen, cells).train
    assert isinstance(seen, DenseObservation)
    keep = seen.full_mask().copy()
    keep[tuple(cells)] = False
    return seen.within(keep)


def _split(seen: CooObservation | StoredObservation, cells: Coords) -> Holdout:
    if isinstance(seen, StoredObservation):
        cells = cells[:, order_of(seen.shape, cells)].astype(np.int32)
        left, held = seen.hiding(cells)
        return Holdout(left, read_only(cells.T), read_only(held))
    cells = cells[:, order_of(seen.shape, cells)].astype(seen.coords.dtype)
    at = CellIndex(seen.coords, seen.shape).find(cells)
    listed = at >= 0
    values = np.zeros(at.size)
    values[listed] = seen.values[at[listed]]
    keep = np.ones(seen.values.size, dtype=bool)
    keep[at[listed]] = False
    missing = seen.missing
    if seen.unlisted == "zero":  # otherwise the fit would treat them as zeros
        missing = np.concatenate([missing, cells], axis=1)
        missing = missing[:, order_of(seen.shape, missing)]
    kept = seen.values[keep]
    total, saturated = constants(kept)
    train = replace(
        seen,
        n_observed=seen.n_observed - at.size,
        total=total,
        saturated=saturated,
        largest=float(kept.max(initial=0)),
        coords=read_only(seen.coords[:, keep]),
        values=read_only(kept),
        missing=read_only(missing),
    )
    return Holdout(train, read_only(cells.T), read_only(values))
