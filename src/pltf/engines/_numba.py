"""Compiled kernels. Each states its NumPy equivalent; all release the GIL and are cached on disk."""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from pltf.engines.contraction import AnyArray

# Sums may be taken in the order that vectorizes; NaN and infinity keep their meaning.
_SUMS = {"reassoc", "contract", "nsz"}


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


@numba.njit(cache=True, nogil=True)
def add_rows(sums, rows, parts):  # type: ignore[no-untyped-def]
    """``np.add.at(sums, rows, parts)``: rows may repeat, and are added in order."""
    for n in range(rows.size):
        row = rows[n]
        for r in range(parts.shape[1]):
            sums[row, r] += parts[n, r]


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_SUMS)
def cp_counts(rows, x, Z, own, others, start, stop):  # type: ignore[no-untyped-def]
    """Expected counts of a CP model over listed cells [start, stop): gather, rate, ratio, scatter in one pass.

    ``rows`` (modes, cells) are rows of ``Z`` (all factors one under the other, first the mode whose rows this call
    owns); sums go to ``own`` or, the other modes, to ``others``. Returns sum x*log(Xhat/x). In NumPy::

        P = Z[rows].prod(axis=0)                      # (cells, R): never made here
        ratio = x / P.sum(axis=1)
        np.add.at(sums, rows, ratio[:, None] * P)     # for every mode
        return -(x * np.log(ratio)).sum()
    """
    modes, R, mine = rows.shape[0], Z.shape[1], own.shape[0]
    product = np.empty(R, Z.dtype)
    log_term = 0.0
    for n in range(start, stop):
        first = rows[0, n]
        for r in range(R):
            product[r] = Z[first, r]
        for mode in range(1, modes):
            row = rows[mode, n]
            for r in range(R):
                product[r] *= Z[row, r]
        rate = product[0]
        for r in range(1, R):
            rate += product[r]
        ratio = x[n] / rate
        log_term -= np.float64(x[n]) * math.log(np.float64(ratio))
        for r in range(R):
            product[r] *= ratio
            own[first, r] += product[r]
        for mode in range(1, modes):
            row = rows[mode, n] - mine
            for r in range(R):
                others[row, r] += product[r]
    return log_term


@numba.njit(cache=True, nogil=True, fastmath=_SUMS)
def cp_exposure(rows, Z, of, sums, first_row, start, stop):  # type: ignore[no-untyped-def]
    """Delta of mode ``of`` over listed cells [start, stop): the product of the other modes' rows, scattered.

    In NumPy: ``np.add.at(sums, rows[of] - first_row, np.delete(Z[rows], of, axis=0).prod(axis=0))``.
    """
    modes, R = rows.shape[0], Z.shape[1]
    product = np.empty(R, Z.dtype)
    for n in range(start, stop):
        product[:] = 1
        for mode in range(modes):
            if mode != of:
                row = rows[mode, n]
                for r in range(R):
                    product[r] *= Z[row, r]
        target = rows[of, n] - first_row
        for r in range(R):
            sums[target, r] += product[r]
