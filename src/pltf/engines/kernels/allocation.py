"""Kernels that allocate counts: every count of a cell is assigned at random to one of the terms of its rate.

They are the passes of ``_numba.cp_counts`` and ``interpreted.run`` with draws instead of expectations. Multinomials are
drawn by search in cumulative sums for few counts and by conditional binomials for many, so the time per cell does not
grow with its count. For links the hidden count is drawn first. A cell whose rate is zero, infinite or NaN is not
allocated; the log term is then not finite.
"""

from __future__ import annotations

import math

import numpy as np

from pltf.compiling import njit
from pltf.engines._numba import APART, TILE
from pltf.engines.interpreted import FACTOR, LINKS, T_IN, T_OUT, TO_FACTOR, TO_T_IN, _forward
from pltf.engines.kernels.draws import positive_poisson, rarer, uniform
from pltf.special import ANY_ORDER, AS_WRITTEN, compiled, link_probability, natural_log

DIRECT = 6.0  # counts per cell that are added individually
ONE_BY_ONE = 4.0  # counts per term up to which drawing each count is faster than a binomial per term

_helper = compiled(AS_WRITTEN, inside=True)


@_helper
def _accumulated(weights, sums):  # type: ignore[no-untyped-def]
    """The total, and ``sums[:] = np.cumsum(weights)``."""
    total = 0.0
    for r in range(weights.size):
        total += weights[r]
        sums[r] = total
    return total


@_helper
def _found(sums, at):  # type: ignore[no-untyped-def]
    """The first cumulative sum above a number smaller than the last one; in NumPy, searchsorted."""
    r = 0
    for k in range(sums.size - 1):
        r += sums[k] <= at
    return r


@_helper
def _drawn(stream, count, weights, sums, drawn):  # type: ignore[no-untyped-def]
    """``drawn[:]`` = multinomial of a count over the weights; ``sums`` is a work array of the same length."""
    for r in range(weights.size):
        drawn[r] = 0.0
    if count <= ONE_BY_ONE * weights.size:
        total = _accumulated(weights, sums)
        for _ in range(int(count)):
            drawn[_found(sums, uniform(stream) * total)] += 1
    else:
        _by_binomials(stream, count, weights, drawn)


@_helper
def _by_binomials(stream, count, weights, drawn):  # type: ignore[no-untyped-def]
    """Draw many counts by conditional binomials, into ``drawn``, which must be zero.

    The largest weight gets the remainder: then no probability exceeds 1/2, and none is a difference of nearly equal
    numbers.
    """
    rest, most = 0.0, 0
    for r in range(weights.size):
        rest += weights[r]
        if weights[r] > weights[most]:
            most = r
    left = count
    for r in range(weights.size):
        if r != most and left > 0 and weights[r] > 0:
            drawn[r] = rarer(stream, left, weights[r] / rest)
            left -= drawn[r]
            rest -= weights[r]
    drawn[most] = left


@_helper
def _hidden(links, x, rate, stream):  # type: ignore[no-untyped-def]
    """The count of a cell to allocate, its ratio, and its contribution to the log term beyond x*log(ratio)."""
    if not links:
        return x if 0 < rate < math.inf else 0.0, x / rate, 0.0
    count = positive_poisson(stream, rate) if 0 < rate < math.inf else 0.0
    return count, 1 / link_probability(rate), rate


@njit(cache=True, nogil=True, error_model="numpy", fastmath=ANY_ORDER)
def cp_allocation(rows, x, Z, own, others, private, to_own, to_others, log, links, stream, start, stop):  # type: ignore[no-untyped-def]
    """Counts of a CP model over listed cells [start, stop), allocated at random: ``cp_counts`` with a stream.

    Adds whole numbers to ``own`` and ``others``, each if wanted, from the same draw. Returns the log term of
    ``cp_counts``. In NumPy, for counts::

        P = Z[rows].prod(axis=0)                      # (cells, R): never made here
        S = rng.multinomial(x, P / P.sum(axis=1, keepdims=True))
        np.add.at(sums, rows, S)                      # for these modes
        return (x * np.log(P.sum(axis=1) / x)).sum()
    """
    R, first_private, last = Z.shape[1], Z.shape[0] - others.shape[0], rows.shape[0] - 1
    work = np.zeros((5, max(R, APART)))  # rows far apart: see cp_counts
    row_of_mine, between, product, sums, drawn = work[0, :R], work[1, :R], work[2, :R], work[3, :R], work[4, :R]
    all_but_last = row_of_mine if last == 1 else between
    quotients = np.ones(TILE)
    first, log_term = -1, 0.0
    for tile in range(start, stop, TILE):
        at, values = rows[:, tile : min(tile + TILE, stop)], x[tile : min(tile + TILE, stop)]
        for n in range(values.size):
            if at[0, n] != first:
                first = at[0, n]
                for r in range(R):
                    row_of_mine[r] = Z[first, r]
            if last > 1:
                row = at[1, n]
                for r in range(R):
                    between[r] = row_of_mine[r] * Z[row, r]
            for mode in range(2, last):
                row = at[mode, n]
                for r in range(R):
                    between[r] *= Z[row, r]
            row, rate = at[last, n], 0.0
            for r in range(R):
                product[r] = all_but_last[r] * Z[row, r]
                rate += product[r]
            count, quotients[n], more = _hidden(links is not None, np.float64(values[n]), rate, stream)
            log_term += more
            if count <= DIRECT:
                total = _accumulated(product, sums)
                for _ in range(int(count)):
                    r = _found(sums, uniform(stream) * total)
                    if to_own:
                        own[first, r] += 1
                    if to_others:
                        for mode in range(last - private + 1, last + 1):
                            others[at[mode, n] - first_private, r] += 1
                continue
            _drawn(stream, count, product, sums, drawn)
            for r in range(R):
                if drawn[r] > 0:
                    if to_own:
                        own[first, r] += drawn[r]
                    if to_others:
                        for mode in range(last - private + 1, last + 1):
                            others[at[mode, n] - first_private, r] += drawn[r]
        if log:
            for n in range(values.size):
                log_term -= np.float64(values[n]) * natural_log(quotients[n])
    return log_term


# -- chains -------------------------------------------------------------------------------------


@_helper
def _split(stream, count, a, a_at, b, b_at, terms, room, to_a, to_b, b_sums_at, gives_a, gives_b):  # type: ignore[no-untyped-def]
    """Allocate a count to the terms ``a * b`` of a sum, and add it to the entries of both."""
    size = terms.shape[0]
    weights, drawn = room[0, :size], room[2, :size]
    for s in range(size):
        weights[s] = np.float64(a[a_at + terms[s, 0]]) * b[b_at + terms[s, 1]]
    _drawn(stream, count, weights, room[1, :size], drawn)
    for s in range(size):
        if drawn[s] > 0:
            if gives_a:
                to_a[a_at + terms[s, 0]] += drawn[s]
            if gives_b:
                to_b[b_sums_at + terms[s, 1]] += drawn[s]


@_helper
def _split_back(s, tables, splits, todo, F, F_at, row_of, T, dT, own, others, sums_at, owned, stream, room):  # type: ignore[no-untyped-def]
    """Allocate the counts of T_out to the terms of its sum, for the factor and T_in, and reset them."""
    steps, _, widths, _, _, _ = tables
    where, outs, terms = splits
    f, t_in, t_out = steps[s, FACTOR], steps[s, T_IN], steps[s, T_OUT]
    gives, to_factor, to_t_in = todo[s, TO_FACTOR] or todo[s, TO_T_IN], todo[s, TO_FACTOR], todo[s, TO_T_IN]
    sums, at = own if owned[f] else others, row_of[f] * widths[f]
    mine, summed = outs[where[s, 0] : where[s + 1, 0]], terms[where[s, 1] : where[s + 1, 1]]
    for o in range(mine.shape[0]):
        if gives and dT[t_out + o] > 0:
            i, j = t_in + mine[o, 0], at + mine[o, 1]
            to = (dT, sums, sums_at[f] + j, to_t_in, to_factor)
            _split(stream, dT[t_out + o], T, i, F, F_at[f] + j, summed, room, *to)
        dT[t_out + o] = 0


@njit(cache=True, nogil=True, error_model="numpy", fastmath=ANY_ORDER)
def chain_allocation(  # type: ignore[no-untyped-def]
    tables, splits, rows, x, what, log, todo, F, F_at, own, others, sums_at, owned, stream, start, stop
):
    """Run a chain over cells [start, stop) and allocate their counts: ``interpreted.run`` with a stream.

    Backwards, every count of T_out is allocated to one of the terms ``T_in * F`` of its sum. Counts of cells that share
    a T_in are added before they are split further, because a sum of multinomials with equal probabilities is a
    multinomial. Returns the log term of ``run``.
    """
    steps, strips, widths, strides, levels, work = tables
    modes, last = rows.shape[0], steps.shape[0] - 1
    T = np.zeros(work + 2 * APART, F.dtype)[APART:-APART]
    dT = np.zeros(work + 2 * APART)[APART:-APART]
    T[0] = 1
    row_of, here = np.zeros(widths.size, np.int64), np.full(modes, -1, np.int64)
    room = np.zeros((3, splits[2].shape[0] + APART))
    back = (tables, splits, todo, F, F_at, row_of, T, dT, own, others, sums_at, owned, stream, room)
    quotients, rate_at, log_term = np.empty(TILE), steps[last, T_OUT], 0.0 if log else np.nan
    for s in range(levels[0], levels[1]):
        _forward(steps[s], strips, F, F_at[steps[s, FACTOR]], T)
    for tile in range(start, stop, TILE):
        end = min(tile + TILE, stop)
        for n in range(tile, end):
            level = 0
            while level < modes - 1 and rows[level, n] == here[level]:
                level += 1
            if n > start:
                for s in range(last, levels[level + 1] - 1, -1):
                    _split_back(s, *back)
            for m in range(level, modes):
                here[m] = rows[m, n]
            for s in range(levels[level + 1], last + 1):
                f = steps[s, FACTOR]
                row = 0
                for m in range(modes):
                    row += strides[f, m] * here[m]
                row_of[f] = row
                _forward(steps[s], strips, F, F_at[f] + row * widths[f], T)
            count, ratio, more = _hidden(what == LINKS, np.float64(x[n]), np.float64(T[rate_at]), stream)
            dT[rate_at], quotients[n - tile] = count, ratio
            log_term += more
        if log:
            for n in range(end - tile):
                log_term -= np.float64(x[tile + n]) * natural_log(quotients[n])
    if stop > start:
        for s in range(last, -1, -1):
            _split_back(s, *back)
    return log_term


@njit(cache=True, nogil=True, error_model="numpy")
def split_rows(stream, counts, weights, drawn):  # type: ignore[no-untyped-def]
    """``drawn[n]`` = multinomial of ``counts[n]`` over the weights of row n: (rows), (rows, terms), (rows, terms)."""
    weight, sums = np.zeros(weights.shape[1]), np.zeros(weights.shape[1])
    for n in range(counts.size):
        if counts[n] > 0:
            weight[:] = weights[n]
            _drawn(stream, counts[n], weight, sums, drawn[n])
