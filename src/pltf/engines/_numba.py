"""Compiled kernels. Each docstring gives the NumPy equivalent; all kernels release the GIL and are cached on disk.

Numba's cache only checks the file of the kernel itself: after a change in `pltf.special`, which is compiled into
these kernels, clear it.
"""

from __future__ import annotations

import numpy as np

from pltf.compiling import njit
from pltf.special import ANY_ORDER, link_probability, natural_log

APART = 128  # gap between the small arrays of a kernel: see benchmarks/NOTES.md, "Bits and chance"
TILE = 512  # listed cells between two computations of logarithms


@njit(cache=True, nogil=True, error_model="numpy", fastmath=ANY_ORDER)
def cp_counts(rows, x, Z, own, others, private, to_own, to_others, log, links, start, stop):  # type: ignore[no-untyped-def]
    """Expected counts of a CP model over listed cells [start, stop): gather, rate, ratio, scatter in one pass.

    ``rows`` (modes, cells) are row numbers in ``Z`` (all factors stacked, first the mode by which the cells are sorted;
    this call owns its rows). Sums of that mode are added to ``own``, those of the last ``private`` modes to ``others``,
    each if wanted. Returns sum x*log(Xhat/x), or 0 without ``log``. With ``links`` (None: counts) ratios are
    x/(1-exp(-Xhat)), and the result is sum x*log(exp(Xhat)-1). In NumPy, for counts::

        P = Z[rows].prod(axis=0)                      # (cells, R): never made here
        ratio = x / P.sum(axis=1)
        np.add.at(sums, rows, ratio[:, None] * P)     # for these modes
        return -(x * np.log(ratio)).sum()
    """
    R, first_private, last = Z.shape[1], Z.shape[0] - others.shape[0], rows.shape[0] - 1
    # Rows of one array, far apart: whether a loop is vectorized, and therefore its rounding, depends on the distance
    # between its arrays, which is random for separate arrays.
    work, sum_of_mine = np.zeros((3, max(R, APART)), Z.dtype), np.zeros(R)
    row_of_mine, between, product = work[0, :R], work[1, :R], work[2, :R]
    all_but_last = row_of_mine if last == 1 else between
    quotients = np.empty(TILE, Z.dtype)
    first, log_term = -1, 0.0
    for tile in range(start, stop, TILE):
        at, values = rows[:, tile : min(tile + TILE, stop)], x[tile : min(tile + TILE, stop)]
        for n in range(values.size):
            if at[0, n] != first:
                if first >= 0:
                    for r in range(R):
                        own[first, r] += sum_of_mine[r]
                first = at[0, n]
                for r in range(R):
                    row_of_mine[r] = Z[first, r]
                    sum_of_mine[r] = 0
            if last > 1:
                row = at[1, n]
                for r in range(R):
                    between[r] = row_of_mine[r] * Z[row, r]
            for mode in range(2, last):
                row = at[mode, n]
                for r in range(R):
                    between[r] *= Z[row, r]
            row = at[last, n]
            rate = Z.dtype.type(0)
            for r in range(R):
                product[r] = all_but_last[r] * Z[row, r]
                rate += product[r]
            if links is not None:  # log(exp(rate)-1) = rate + log(1-exp(-rate))
                log_term += rate if log else 0.0
                rate = Z.dtype.type(link_probability(rate))
            ratio = values[n] / rate
            quotients[n] = ratio
            if private and to_own and to_others:
                row -= first_private
                for r in range(R):
                    sum_of_mine[r] += ratio * product[r]
                    others[row, r] += ratio * product[r]
            elif to_own:
                for r in range(R):
                    sum_of_mine[r] += ratio * product[r]
            elif private and to_others:
                row -= first_private
                for r in range(R):
                    others[row, r] += ratio * product[r]
            if to_others:
                for mode in range(last - private + 1, last):
                    row = at[mode, n] - first_private
                    for r in range(R):
                        others[row, r] += ratio * product[r]
        if log:
            for n in range(values.size):
                log_term -= np.float64(values[n]) * natural_log(quotients[n])
    if first >= 0:
        for r in range(R):
            own[first, r] += sum_of_mine[r]
    return log_term


@njit(cache=True, nogil=True, fastmath=ANY_ORDER)
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


@njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def cp_rates(rows, Z, out):  # type: ignore[no-untyped-def]
    """Rates of a CP model at listed cells; ``rows`` (modes, cells) are row numbers in ``Z``, all factors stacked.

    In NumPy: ``out[:] = Z[rows].prod(axis=0).sum(axis=1)``.
    """
    R, last = Z.shape[1], rows.shape[0] - 1
    product = np.empty(R, Z.dtype)
    for n in range(out.size):
        row = rows[0, n]
        for r in range(R):
            product[r] = Z[row, r]
        for mode in range(1, last):
            row = rows[mode, n]
            for r in range(R):
                product[r] *= Z[row, r]
        row = rows[last, n]
        rate = Z.dtype.type(0)
        for r in range(R):
            rate += product[r] * Z[row, r]
        out[n] = rate


@njit(cache=True, nogil=True)
def counting_sort(positions, ends, order):  # type: ignore[no-untyped-def]
    """Indices that sort positions below ``ends.size``; ``ends`` begins with zeros.

    In NumPy: ``order[:] = np.argsort(positions, kind="stable")``.
    """
    for position in positions:
        ends[position] += 1
    before = 0
    for position in range(ends.size):
        here = ends[position]
        ends[position] = before
        before += here
    for n in range(positions.size):
        position = positions[n]
        order[ends[position]] = n
        ends[position] += 1
