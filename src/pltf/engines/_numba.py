"""Compiled kernels. Each states its NumPy equivalent; all release the GIL and are cached on disk."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from pltf.engines.contraction import AnyArray
from pltf.special import ANY_ORDER, log

_TILE = 512  # cells between two rounds of logarithms


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


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=ANY_ORDER)
def cp_counts(rows, x, Z, own, others, start, stop):  # type: ignore[no-untyped-def]
    """Expected counts of a CP model over listed cells [start, stop): gather, rate, ratio, scatter in one pass.

    ``rows`` (modes, cells) are rows of ``Z`` (all factors one under the other, first the mode by which the cells are
    sorted, whose rows this call owns); sums go to ``own`` or, the other modes, to ``others``. Returns
    sum x*log(Xhat/x). In NumPy::

        P = Z[rows].prod(axis=0)                      # (cells, R): never made here
        ratio = x / P.sum(axis=1)
        np.add.at(sums, rows, ratio[:, None] * P)     # for every mode
        return -(x * np.log(ratio)).sum()
    """
    R, mine, last = Z.shape[1], own.shape[0], rows.shape[0] - 1
    row_of_mine, between, product = np.empty(R, Z.dtype), np.empty(R, Z.dtype), np.empty(R, Z.dtype)
    all_but_last = row_of_mine if last == 1 else between
    sum_of_mine, ratios = np.zeros(R, Z.dtype), np.empty(_TILE, Z.dtype)
    first, log_term = -1, 0.0
    for tile in range(start, stop, _TILE):
        end = min(tile + _TILE, stop)
        for n in range(tile, end):
            if rows[0, n] != first:
                if first >= 0:
                    for r in range(R):
                        own[first, r] += sum_of_mine[r]
                first = rows[0, n]
                for r in range(R):
                    row_of_mine[r] = Z[first, r]
                    sum_of_mine[r] = 0
            if last > 1:
                row = rows[1, n]
                for r in range(R):
                    between[r] = row_of_mine[r] * Z[row, r]
            for mode in range(2, last):
                row = rows[mode, n]
                for r in range(R):
                    between[r] *= Z[row, r]
            row = rows[last, n]
            rate = Z.dtype.type(0)
            for r in range(R):
                product[r] = all_but_last[r] * Z[row, r]
                rate += product[r]
            ratio = x[n] / rate
            ratios[n - tile] = ratio
            row -= mine
            for r in range(R):
                sum_of_mine[r] += ratio * product[r]
                others[row, r] += ratio * product[r]
            for mode in range(1, last):
                row = rows[mode, n] - mine
                for r in range(R):
                    others[row, r] += ratio * product[r]
        for n in range(tile, end):
            log_term -= np.float64(x[n]) * log(np.float64(ratios[n - tile]))
    if first >= 0:
        for r in range(R):
            own[first, r] += sum_of_mine[r]
    return log_term


@numba.njit(cache=True, nogil=True, fastmath=ANY_ORDER)
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
