"""Checks of observed values, and the constants of their likelihood."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pltf.data.device_arrays import is_foreign, on_host
from pltf.errors import ObservationError, PltfError

EXACT = 1 << 53  # above this, float64 cannot represent every integer
HISTOGRAM = 1 << 16  # counts below this are summed through a histogram
NEGATIVE, INFINITE, ROUNDED = ">= 0", "finite", "at most 2**53, or float64 would round them"  # rules for values
_NUMBERS = frozenset((bool, int, float))
STIRLING = 1e4  # above this, the asymptotic series is exact in float64


def numeric(value: Any, what: str, error: type[PltfError] = PltfError) -> NDArray[Any]:
    """A plain array of real numbers, or an error that names ``what``."""
    if has_masked(value):
        raise error(f"{what} must not have masked entries")
    if is_foreign(value):
        value = on_host(value, what)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as reason:
        raise error(f"{what}: expected a numeric array, got {type(value).__name__}: {reason}") from None
    if array.dtype.kind not in "biuf":
        raise error(f"{what}: expected real or integer numbers, got dtype {array.dtype}")
    return array


def has_masked(value: Any, depth: int = 64) -> bool:
    """Whether an array, or an array in nested lists, has masked entries; NumPy drops masks inside lists.

    >>> has_masked([np.ma.array([1, 2], mask=[False, True]), [3, 4]])
    True
    """
    if isinstance(value, np.ma.MaskedArray):
        return bool(np.ma.is_masked(value))
    if not isinstance(value, (list, tuple)) or not depth:
        return False
    plain = _NUMBERS.issuperset(map(type, value))  # skip lists of plain numbers
    return not plain and any(has_masked(one, depth - 1) for one in value)


def brief(value: Any) -> str:
    """A short one-line representation of a value.

    >>> brief(list(range(100)))
    '[0, 1, 2, 3, 4, 5, ...]'
    """
    return " ".join(reprlib.repr(value).split())


def find_bad(seen: NDArray[Any]) -> tuple[int, str] | None:
    """Position of the first invalid value, and the rule that it breaks."""
    kind = seen.dtype.kind
    if not seen.size or kind == "b":
        return None
    low, high = seen.min(), seen.max()
    if low < 0:
        return int(np.argmax(seen < 0)), NEGATIVE
    if kind == "f" and not np.isfinite(high):
        return int(np.argmax(~np.isfinite(seen))), INFINITE
    if kind in "iu" and high > EXACT:
        return int(np.argmax(seen > EXACT)), ROUNDED
    if kind == "f" and seen.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            rounded = seen.astype(np.float64) != seen
        if rounded.any():
            return int(np.argmax(rounded)), "exact in float64"
    return None


def constants(seen: NDArray[Any]) -> tuple[float, float]:
    """The sum of x and the sum of log Poisson(x; x); integer counts are summed through a histogram.

    >>> constants(np.array([0, 1, 2]))[0]
    3.0
    """
    if not seen.size:
        return 0.0, 0.0
    if float(seen.max()) < HISTOGRAM:
        whole = seen.astype(np.int64)
        if seen.dtype.kind != "f" or (whole == seen).all():
            return constants_of_counts(np.bincount(whole))
    x = seen.astype(np.float64)
    with np.errstate(over="ignore"):  # a total that is too large raises an error later
        return float(x.sum()), float(saturated_log_likelihood(x).sum())


def constants_of_counts(cells: NDArray[np.int64]) -> tuple[float, float]:
    """Like :func:`constants`, from the numbers of cells with value 0, 1, 2, ...

    >>> constants_of_counts(np.array([1, 1, 1]))[0]
    3.0
    """
    counts = np.flatnonzero(cells)
    cells = cells[counts]
    return float(cells @ counts), float(cells @ saturated_log_likelihood(counts))


def finite_total(parts: Iterable[float], name: str) -> float:
    """Check that the sum of all observed values fits in float64."""
    try:
        total = math.fsum(parts)
    except OverflowError:
        total = math.inf
    if not math.isfinite(total):
        raise ObservationError(f"{name}: observed values must add up to less than 1.8e308, got {total}")
    return total


def saturated_log_likelihood(x: NDArray[Any]) -> NDArray[np.float64]:
    """log Poisson(x; x) = x*log(x) - x - lgamma(x+1) of each count, without cancellation.

    >>> import numpy as np
    >>> saturated_log_likelihood(np.array([0.0, 1.0]))
    array([ 0., -1.])
    """
    x = np.asarray(x, dtype=np.float64)
    small, big = np.minimum(x, STIRLING), np.maximum(x, STIRLING)
    exact = special.xlogy(small, small) - small - special.gammaln(small + 1)
    series = -0.5 * (math.log(2 * math.pi) + np.log(big)) - 1 / (12 * big)
    return np.asarray(np.where(x > STIRLING, series, exact))


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view."""
    view = array.view()
    view.flags.writeable = False
    return view


def frozen(array: Any) -> NDArray[Any]:
    """The array itself, set to read-only."""
    kept: NDArray[Any] = np.asarray(array)
    kept.flags.writeable = False
    return kept
