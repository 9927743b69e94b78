"""Compiled kernels of dense tensors. Each docstring gives the NumPy equivalent; all release the GIL and are cached.

Loops are explicit: array expressions and slice assignments use Numba's shape check, and its error message alone takes
longer to compile than all kernels of an iteration.

Numba's cache only checks the file of the kernel itself: after a change in `pltf.special`, which is compiled into
these kernels, clear it.
"""

from __future__ import annotations

import math

import numpy as np

from pltf.special import ANY_ORDER, compiled, exponent_of, link_probability, log_mantissa, normal_range

APART = 128  # gap between an array that is written in a summation loop and the arrays that are read
_TILE_CELLS, _TILE_ROWS = 1 << 14, 8  # cells per tile of a table whose rates are stored, and minimum number of rows
_LN2 = math.log(2)

_kernel = compiled(ANY_ORDER)
_helper = compiled(ANY_ORDER, inside=True)


@_helper
def _ratios(x, known, rate, log):  # type: ignore[no-untyped-def]
    """:func:`ratios`, for kernels: code compiled into them must not come from the cache, or rounding is random."""
    zero, one = x.dtype.type(0), x.dtype.type(1)
    if not log:
        for n in range(x.size):
            seen = x[n] > 0 if known is None else (x[n] > 0) & known[n]
            ratio = x[n] / rate[n]
            rate[n] = ratio if seen else zero
        return math.nan
    least, most = normal_range(one)
    powers, rest, odd = 0.0, 0.0, 0
    for n in range(x.size):
        seen = x[n] > 0 if known is None else (x[n] > 0) & known[n]
        count, ratio = x[n] if seen else zero, x[n] / rate[n]
        rate[n] = ratio if seen else zero
        ratio = ratio if seen else one
        odd += not ((ratio >= least) & (ratio <= most))
        powers += np.float64(count) * exponent_of(ratio)
        rest += np.float64(count * log_mantissa(ratio))
    if odd:  # zero, infinite, NaN or subnormal: one by one
        powers, rest = 0.0, 0.0
        for n in range(x.size):
            if x[n] > 0 if known is None else (x[n] > 0) & known[n]:
                rest += np.float64(x[n]) * math.log(np.float64(rate[n]))
    return -(powers * _LN2 + rest)


@_helper
def _as_probabilities(x, known, rate):  # type: ignore[no-untyped-def]
    """Turn flat rates into the probabilities of links, 1-exp(-Xhat), and return the sum of the rates of links.

    With these instead of the rates, ratios and log terms of links are computed as for counts, up to that sum:
    1/(1-exp(-Xhat)), and log(exp(Xhat)-1) = Xhat + log(1-exp(-Xhat)).
    """
    zero, linked = x.dtype.type(0), 0.0
    for n in range(x.size):
        seen = x[n] > 0 if known is None else (x[n] > 0) & known[n]
        linked += np.float64(rate[n] if seen else zero)
    for n in range(x.size):  # a separate loop, which vectorizes
        rate[n] = link_probability(rate[n])
    return linked


@_kernel
def ratios(x, known, rate, log=True, links=None):  # type: ignore[no-untyped-def]
    """Turn flat rates into ratios M*X/Xhat in place, and return sum M*X*log(Xhat/X), or NaN without ``log``.

    With ``links`` the ratios are M*X/(1-exp(-Xhat)), and the result is sum M*X*log(exp(Xhat)-1).
    ``known`` may be None. A zero rate with a positive count gives -inf. In NumPy, for counts::

        seen = (x > 0) & known
        rate[:] = np.where(seen, x / rate, 0)
        return -(x[seen] * np.log(rate[seen])).sum()

    No branches, so that it vectorizes. Vector code is guarded by a test of the distance between arrays, and the
    fallback loop adds in another order: fewer than ``APART`` rates must be that far from the counts, or the rounding is
    random.
    """
    linked = 0.0 if links is None else _as_probabilities(x, known, rate)
    log_term = _ratios(x, known, rate, log)
    return log_term if links is None else log_term + linked


# Dense CP. Cells are viewed as a table (outer, inner), and a call processes rows from outer position ``first`` on.
# Factors of all modes are side by side in Z (R, sum of sizes), those of the outer modes first. R is the first axis,
# so that loops run along positions. A group of modes is given by its first column ``at`` of Z and its sizes.
# Constants are written as np.int64(0): for a bare 0, Numba compiles a separate function.
#
# U (R, outer) are the products of the columns of the outer modes, computed for a tile of rows at a time, and
# T (R, inner) those of the columns of the inner modes.


@_helper
def _find_columns(position, at, sizes, columns):  # type: ignore[no-untyped-def]
    """Write the columns at a position of a group of modes, one per mode."""
    end, rest = at + sizes.sum(), position
    for mode in range(sizes.size - 1, -1, -1):
        end -= sizes[mode]
        columns[mode], rest = end + rest % sizes[mode], rest // sizes[mode]


@_helper
def _products(Z, at, sizes, first, without, u):  # type: ignore[no-untyped-def]
    """Write into ``u[:, n]`` the product of the columns at position ``first + n``, without those of mode ``without``.

    As long as only the last mode changes, the product of the others is reused.
    """
    last, n, columns = sizes.size - 1, 0, np.empty_like(sizes)
    while n < u.shape[1]:
        _find_columns(first + n, at, sizes, columns)
        start, run = columns[last], min(u.shape[1] - n, sizes[last] - (first + n) % sizes[last])
        for r in range(u.shape[0]):
            product = u.dtype.type(1)
            for mode in range(last):
                if mode != without:
                    product *= Z[r, columns[mode]]
            here, there = u[r, n : n + run], Z[r, start : start + run]
            if without == last:
                for k in range(run):
                    here[k] = product
            else:
                for k in range(run):
                    here[k] = product * there[k]
        n += run


@_helper
def _add(parts, sums, sizes, first, only):  # type: ignore[no-untyped-def]
    """Add ``parts[:, n]`` to the columns of ``sums`` at position ``first + n``: those of mode ``only``, or all (-1)."""
    last, n, columns = sizes.size - 1, 0, np.empty_like(sizes)
    while n < parts.shape[1]:
        _find_columns(first + n, np.int64(0), sizes, columns)
        start, run = columns[last], min(parts.shape[1] - n, sizes[last] - (first + n) % sizes[last])
        for r in range(parts.shape[0]):
            here, there = parts[r, n : n + run], sums[r, start : start + run]
            if only < 0 or only == last:
                for k in range(run):
                    there[k] += here[k]
            total = 0.0
            for k in range(run):
                total += here[k]
            for mode in range(last):
                if only < 0 or only == mode:
                    sums[r, columns[mode]] += total
        n += run


@_helper
def _transposed(table, out):  # type: ignore[no-untyped-def]
    """``out[:] = table.T``."""
    for n in range(out.shape[0]):
        for m in range(out.shape[1]):
            out[n, m] = table[m, n]


@_kernel
def table_counts(x, known, Z, outer, inner, first, cut, to_outer, to_inner, log, links, sums, inner_sums):  # type: ignore[no-untyped-def]
    """Expected counts of a CP model: rates, ratios and the wanted sums, one cache-sized tile at a time.

    ``known`` may be None; ``outer`` and ``inner`` are the sizes of the modes. ``sums`` has the columns of the outer
    modes, restricted to the positions of the leading mode in ``x``; ``cut`` contains the first row in these terms, then
    the sizes. Returns the log term (see :func:`ratios`) or NaN, and adds, as wanted, for counts::

        Q = known * x / (U.T @ T)
        sums[every column of position n] += (U * (Q @ T.T).T)[:, n]
        inner_sums += U @ Q                              # times T they are counts
    """
    rows, columns = x.shape
    R, tile, none = Z.shape[0], min(rows, max(_TILE_ROWS, _TILE_CELLS // columns)), np.int64(-1)
    T, Tt, part = np.empty((R, columns), x.dtype), np.empty((columns, R), x.dtype), np.empty((R, columns), x.dtype)
    _products(Z, outer.sum(), inner, np.int64(0), none, T)
    _transposed(T, Tt)
    U, V = np.empty(R * tile, x.dtype), np.empty((tile, R), x.dtype)
    Q = np.empty(tile * columns + 2 * APART, x.dtype)[APART:]
    log_term = 0.0
    for start in range(0, rows, tile):
        stop = min(start + tile, rows)
        u, q = U[: R * (stop - start)].reshape(R, stop - start), Q[: (stop - start) * columns]
        _products(Z, np.int64(0), outer, first + start, none, u)
        table = q.reshape(stop - start, columns)
        np.dot(u.T, T, table)
        seen = None if known is None else known[start:stop].reshape(-1)
        if links is not None:
            log_term += _as_probabilities(x[start:stop].reshape(-1), seen, q)
        log_term += _ratios(x[start:stop].reshape(-1), seen, q, log)
        if to_inner:
            np.dot(u, table, part)
            for r in range(R):
                for k in range(columns):
                    inner_sums[r, k] += part[r, k]
        if to_outer:
            v = V[: stop - start]
            np.dot(table, Tt, v)
            for r in range(R):
                for n in range(stop - start):
                    u[r, n] *= v[n, r]
            _add(u, sums, cut[1:], cut[0] + start, none)
    return log_term


@_helper
def _as_numbers(known, m):  # type: ignore[no-untyped-def]
    """``m[:] = known``, flat; as an explicit loop, it vectorizes."""
    for n in range(known.size):
        m[n] = np.float64(known[n])


@_kernel
def mask_by_inner(known, Z, inner, V):  # type: ignore[no-untyped-def]
    """``V[:] = T @ known.T``: the mask contracted with the inner modes, for every row."""
    rows, columns = known.shape
    R, tile = Z.shape[0], min(rows, max(_TILE_ROWS, _TILE_CELLS // columns))
    T, Tt, M, part = np.empty((R, columns)), np.empty((columns, R)), np.empty((tile, columns)), np.empty((tile, R))
    _products(Z, Z.shape[1] - inner.sum(), inner, np.int64(0), np.int64(-1), T)
    _transposed(T, Tt)
    for start in range(0, rows, tile):
        stop = min(start + tile, rows)
        m, v = M[: stop - start], part[: stop - start]
        _as_numbers(known[start:stop].reshape(-1), m.reshape(-1))
        np.dot(m, Tt, v)
        _transposed(v, V[:, start:stop])


@_kernel
def mask_by_outer(known, Z, outer, first, W):  # type: ignore[no-untyped-def]
    """``W += U @ known``: the mask contracted with the outer modes, for every inner position."""
    rows, columns = known.shape
    R, tile = Z.shape[0], min(rows, max(_TILE_ROWS, _TILE_CELLS // columns))
    M, U, part = np.empty((tile, columns)), np.empty(R * tile), np.empty((R, columns))
    for start in range(0, rows, tile):
        stop = min(start + tile, rows)
        m, u = M[: stop - start], U[: R * (stop - start)].reshape(R, stop - start)
        _as_numbers(known[start:stop].reshape(-1), m.reshape(-1))
        _products(Z, np.int64(0), outer, first + start, np.int64(-1), u)
        np.dot(u, m, part)
        for r in range(R):
            for k in range(columns):
                W[r, k] += part[r, k]


@_kernel
def group_exposure(V, Z, at, sizes, first, cut, of, sums):  # type: ignore[no-untyped-def]
    """Add to the columns of mode ``of`` in ``sums`` the products of V with the columns of the others of its group.

    ``sums`` and ``cut`` are as in :func:`table_counts`. In NumPy, for the first of two modes::

        sums[:, : sizes[0]] += (V.reshape(R, *sizes) * Z[:, None, at + sizes[0] :]).sum(axis=2)
    """
    u = np.empty(V.shape)
    _products(Z, at, sizes, first, of, u)
    for r in range(V.shape[0]):
        for n in range(V.shape[1]):
            u[r, n] *= V[r, n]
    _add(u, sums, cut[1:], cut[0], of)
