"""Compiled kernels. Each states its NumPy equivalent; all release the GIL and are cached on disk."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from pltf.engines.contraction import AnyArray


@numba.njit(cache=True, nogil=True, error_model="numpy")
def ratio_in_place(x, known, rate, weight, log_ratio):  # type: ignore[no-untyped-def]
    """Turn the rates of a block into ratios M*X/Xhat; flat arrays, ``known`` may be None.

    ``weight`` gets M*X and ``log_ratio`` what is to be put through a logarithm: the ratio, or 1 where
    the cell is zero or missing. No branches, so that it vectorizes. In NumPy::

        weight[:] = np.where((x > 0) & known, x, 0)
        log_ratio[:] = np.where(weight > 0, x / rate, 1)
        rate[:] = np.where(weight > 0, x / rate, 0)
    """
    for n in range(x.size):
        seen = x[n] > 0 if known is None else (x[n] > 0) & known[n]
        ratio = x[n] / rate[n]
        weight[n] = x[n] if seen else 0
        log_ratio[n] = ratio if seen else 1
        rate[n] = ratio if seen else 0


def ratios(x: AnyArray, known: NDArray[np.bool_] | None, rate: AnyArray) -> float:
    """Turn flat rates into ratios M*X/Xhat in place, and return sum M*X*log(Xhat/X), in float64.

    The logarithms are NumPy's, which vectorize. A zero rate under a positive count gives -inf.
    """
    weight, log_ratio = np.empty(x.size), np.empty(x.size)
    ratio_in_place(x, known, rate, weight, log_ratio)
    np.log(log_ratio, out=log_ratio)
    return -float(weight @ log_ratio)
