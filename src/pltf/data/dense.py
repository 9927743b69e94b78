"""A dense array with holes, and the constants of its likelihood."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pltf.data.blocks import Block, block_shape, blocks
from pltf.errors import ObservationError

_BLOCK_CELLS = 1 << 18
_EXACT = 1 << 53  # above this float64 does not hold every whole number
_HISTOGRAM = 1 << 16  # counts below this are summed through a histogram
_STIRLING = 1e4  # above this the asymptotic series is exact to float64


@dataclass(frozen=True, eq=False, repr=False)
class DenseObservation:
    """A dense tensor of which some cells were observed.

    ``values`` is the caller's array, not a copy; where ``mask`` is False it may hold anything.

    >>> import numpy as np, pltf
    >>> seen = pltf.observe(np.array([[1.0, np.nan], [0.0, 3.0]]))
    >>> seen
    <DenseObservation 2x2 float64: 3 of 4 cells observed, total 4>
    >>> seen.mask
    array([[ True, False],
           [ True,  True]])
    """

    values: NDArray[Any]
    mask: NDArray[np.bool_] | None  # True = observed; None = all of them
    n_observed: int
    total: float  # sum M*X
    saturated: float  # sum M*log Poisson(X; X): the log-likelihood of a perfect fit

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self.values.shape

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        cells = f"{self.n_observed:,} of {self.values.size:,} cells observed"
        return f"<DenseObservation {shape} {self.values.dtype}: {cells}, total {self.total:g}>"


def dense_observation(values: NDArray[Any], mask: NDArray[np.bool_] | None, name: str) -> DenseObservation:
    """Check the observed cells of an array and sum up the constants; ``name`` is for messages."""
    mask = _without_nan(values, mask)
    if mask is not None and mask.all():
        mask = None
    n_observed, totals, saturated = 0, [], []
    for block, seen in _observed(values, mask):
        if seen.size:
            _check(values, mask, block, seen, name)
            total, peak = _constants(seen)
            totals.append(total)
            saturated.append(peak)
            n_observed += seen.size
    return DenseObservation(
        _read_only(values),
        None if mask is None else _read_only(mask),
        n_observed,
        math.fsum(totals),
        math.fsum(saturated),
    )


def saturated_log_likelihood(x: NDArray[Any]) -> NDArray[np.float64]:
    """log Poisson(x; x) = x*log(x) - x - lgamma(x+1) of each count, without cancellation.

    >>> import numpy as np
    >>> saturated_log_likelihood(np.array([0.0, 1.0]))
    array([ 0., -1.])
    """
    x = np.asarray(x, dtype=np.float64)
    exact = special.xlogy(x, x) - x - special.gammaln(x + 1)
    big = np.maximum(x, _STIRLING)
    series = -0.5 * np.log(2 * math.pi * big) - 1 / (12 * big)
    return np.asarray(np.where(x > _STIRLING, series, exact))


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _observed(values: NDArray[Any], mask: NDArray[np.bool_] | None) -> Iterator[tuple[Block, NDArray[Any]]]:
    """The observed values, block by block."""
    shape = block_shape(values.shape, lambda block: math.prod(block) <= _BLOCK_CELLS)
    for block in blocks(values.shape, shape):
        yield block, values[block].ravel() if mask is None else values[block][mask[block]]


def _without_nan(values: NDArray[Any], mask: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """The mask less the cells that hold NaN."""
    if values.dtype.kind != "f" or not any(np.isnan(seen).any() for _, seen in _observed(values, mask)):
        return mask
    known: NDArray[np.bool_] = np.isnan(values)
    np.logical_not(known, out=known)
    if mask is not None:
        known &= mask
    return known


def _check(values: NDArray[Any], mask: NDArray[np.bool_] | None, block: Block, seen: NDArray[Any], name: str) -> None:
    def refuse(bad: NDArray[np.bool_], rule: str) -> None:
        wrong = np.zeros(values[block].shape, dtype=bool)
        wrong[... if mask is None else mask[block]] = bad.reshape(wrong.shape) if mask is None else bad
        cell = tuple(int(s.start + at) for s, at in zip(block, np.argwhere(wrong)[0], strict=True))
        raise ObservationError(f"{name}: observed values must be {rule}, but cell {cell} holds {values[cell]}")

    if seen.dtype.kind in "if" and seen.min() < 0:
        refuse(seen < 0, ">= 0")
    if seen.dtype.kind == "f" and np.isinf(seen.max()):
        refuse(np.isinf(seen), "finite")
    if seen.dtype.kind in "iu" and seen.dtype.itemsize == 8 and seen.max() > _EXACT:
        refuse(seen > _EXACT, "at most 2**53, or float64 would round them")
    if seen.dtype.kind == "f" and seen.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            rounded = seen.astype(np.float64)
        if (rounded != seen).any():
            refuse(rounded != seen, "exact in float64")


def _constants(seen: NDArray[Any]) -> tuple[float, float]:
    """sum of x and sum of log Poisson(x; x); whole counts go through a histogram."""
    if float(seen.max()) < _HISTOGRAM:
        whole = seen.astype(np.int64)
        if seen.dtype.kind != "f" or (whole == seen).all():
            cells = np.bincount(whole)  # how many cells hold 0, 1, 2, ...
            counts = np.flatnonzero(cells)
            cells = cells[counts]
            return float(cells @ counts), float(cells @ saturated_log_likelihood(counts))
    x = seen.astype(np.float64)
    return float(x.sum()), float(saturated_log_likelihood(x).sum())
