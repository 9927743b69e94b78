"""Observed values: what they may be, and the constants of their likelihood."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pltf.errors import PltfError

_EXACT = 1 << 53  # above this float64 does not hold every whole number
_HISTOGRAM = 1 << 16  # counts below this are summed through a histogram
_STIRLING = 1e4  # above this the asymptotic series is exact to float64


def numeric(value: Any, what: str, error: type[PltfError] = PltfError) -> NDArray[Any]:
    """A plain array of real numbers, or an error that names ``what``."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise error(f"{what} must not have masked entries")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as reason:
        raise error(f"{what}: expected a numeric array, got {type(value).__name__}: {reason}") from None
    if array.dtype.kind not in "biuf":
        raise error(f"{what}: expected real or integer numbers, got dtype {array.dtype}")
    return array


def find_bad(seen: NDArray[Any]) -> tuple[int, str] | None:
    """Position of the first value that cannot be a count, and the rule that it breaks."""
    kind = seen.dtype.kind
    if not seen.size or kind == "b":
        return None
    low, high = seen.min(), seen.max()
    if low < 0:
        return int(np.argmax(seen < 0)), ">= 0"
    if kind == "f" and not np.isfinite(high):
        return int(np.argmax(~np.isfinite(seen))), "finite"
    if kind in "iu" and high > _EXACT:
        return int(np.argmax(seen > _EXACT)), "at most 2**53, or float64 would round them"
    if kind == "f" and seen.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            rounded = seen.astype(np.float64) != seen
        if rounded.any():
            return int(np.argmax(rounded)), "exact in float64"
    return None


def constants(seen: NDArray[Any]) -> tuple[float, float]:
    """sum of x and sum of log Poisson(x; x); whole counts go through a histogram.

    >>> constants(np.array([0, 1, 2]))[0]
    3.0
    """
    if not seen.size:
        return 0.0, 0.0
    if float(seen.max()) < _HISTOGRAM:
        whole = seen.astype(np.int64)
        if seen.dtype.kind != "f" or (whole == seen).all():
            cells = np.bincount(whole)  # how many cells hold 0, 1, 2, ...
            counts = np.flatnonzero(cells)
            cells = cells[counts]
            return float(cells @ counts), float(cells @ saturated_log_likelihood(counts))
    x = seen.astype(np.float64)
    return float(x.sum()), float(saturated_log_likelihood(x).sum())


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


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written through."""
    view = array.view()
    view.flags.writeable = False
    return view
