"""Compiled kernels. Each states its NumPy equivalent; all release the GIL and are cached on disk.

Numba's cache looks at the file of a kernel alone: after a change in `pltf.special`, which is compiled into these,
clear it.
"""

from __future__ import annotations

import numba
import numpy as np

from pltf.special import ANY_ORDER, natural_log

_APART = 128  # entries between the small arrays of a kernel
_TILE = 512  # listed cells between two rounds of logarithms
_TILE_CELLS, _TILE_ROWS = 1 << 14, 8  # cells of a table whose rates are held at a time, and rows at least


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=ANY_ORDER)
def ratios(x, known, rate):  # type: ignore[no-untyped-def]
    """Turn flat rates into ratios M*X/Xhat in place, and return sum M*X*log(Xhat/X); ``known`` may be None.

    No branches, so that it vectorizes. A zero rate under a positive count gives -inf. In NumPy::

        seen = (x > 0) & known
        rate[:] = np.where(seen, x / rate, 0)
        return -(x[seen] * np.log(rate[seen])).sum()
    """
    zero, one = x.dtype.type(0), x.dtype.type(1)
    for n in range(x.size):
        seen = x[n] > 0 if known is None else (x[n] > 0) & known[n]
        ratio = x[n] / rate[n]
        rate[n] = ratio if seen else zero
    # A sum in a loop of its own: beside a store its order would depend on where the arrays lie.
    log_term = 0.0
    for n in range(x.size):
        seen = x[n] > 0 if known is None else (x[n] > 0) & known[n]
        log_term -= np.float64(x[n] if seen else zero) * natural_log(rate[n] if seen else one)
    return log_term


# Dense CP. Cells are seen as a table (outer, inner), and a call takes rows from outer position ``first`` on. It goes
# through the leading modes, whose factors lie side by side in Z (R, sum of sizes); T (R, inner) is that of the inner
# position. U (R, outer), the products of columns of Z, is made for a tile at a time. R comes first, so that loops go
# along positions.


@numba.njit(cache=True, nogil=True)
def _columns_at(position, sizes):  # type: ignore[no-untyped-def]
    """The columns of Z at an outer position, one for each mode."""
    columns, below, rest = np.empty_like(sizes), sizes.sum(), position
    for mode in range(sizes.size - 1, -1, -1):
        below -= sizes[mode]
        columns[mode], rest = below + rest % sizes[mode], rest // sizes[mode]
    return columns


@numba.njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def _multiply(u, Z, sizes, first, without):  # type: ignore[no-untyped-def]
    """``u[:, n] *=`` the columns of Z at outer position ``first + n``, but for those of mode ``without``.

    As long as only the last mode goes on, the product of the others stays.
    """
    last, n = sizes.size - 1, 0
    while n < u.shape[1]:
        columns = _columns_at(first + n, sizes)
        start, run = columns[last], min(u.shape[1] - n, Z.shape[1] - columns[last])
        for r in range(u.shape[0]):
            product = u.dtype.type(1)
            for mode in range(last):
                if mode != without:
                    product *= Z[r, columns[mode]]
            here, there = u[r, n : n + run], Z[r, start : start + run]
            if without == last:
                for k in range(run):
                    here[k] *= product
            else:
                for k in range(run):
                    here[k] *= product * there[k]
        n += run


@numba.njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def _add(parts, sums, sizes, first, only):  # type: ignore[no-untyped-def]
    """Add ``parts[:, n]`` to the columns of every mode at outer position ``first + n``, or of one mode (-1: all)."""
    last, n = sizes.size - 1, 0
    while n < parts.shape[1]:
        columns = _columns_at(first + n, sizes)
        start, run = columns[last], min(parts.shape[1] - n, sums.shape[1] - columns[last])
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


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=ANY_ORDER)
def table_counts(x, known, first, Z, sizes, T, sums, inner_sums):  # type: ignore[no-untyped-def]
    """Expected counts of a CP model: rates, ratios and all sums, a cache-sized tile at a time.

    ``known`` may be None. Returns sum M*X*log(Xhat/X), and adds to ``sums`` (as Z) and ``inner_sums`` (as T)::

        Q = known * x / (U.T @ T)
        sums[every column of position n] += (U * (Q @ T.T).T)[:, n]
        inner_sums += U @ Q                              # times T they are counts
    """
    outer, inner = x.shape
    R, tile = T.shape[0], min(outer, max(_TILE_ROWS, _TILE_CELLS // inner))
    U, V, Q = np.empty(R * tile, x.dtype), np.empty((tile, R), x.dtype), np.empty((tile, inner), x.dtype)
    Tt, part = np.ascontiguousarray(T.T), np.empty((R, inner), x.dtype)
    log_term = 0.0
    for start in range(0, outer, tile):
        stop = min(start + tile, outer)
        size = stop - start
        u, v, q = U[: R * size].reshape(R, size), V[:size], Q[:size]
        u[:] = 1
        _multiply(u, Z, sizes, first + start, -1)
        np.dot(u.T, T, q)
        seen = None if known is None else known[start:stop].reshape(-1)
        log_term += ratios(x[start:stop].reshape(-1), seen, q.reshape(-1))
        np.dot(q, Tt, v)
        np.dot(u, q, part)
        inner_sums += part
        u *= v.T
        _add(u, sums, sizes, first + start, -1)
    return log_term


@numba.njit(cache=True, nogil=True)
def _as_numbers(known, m):  # type: ignore[no-untyped-def]
    """``m[:] = known``, flat; written out, it becomes vector code."""
    for n in range(known.size):
        m[n] = np.float64(known[n])


@numba.njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def mask_by_inner(known, T, V):  # type: ignore[no-untyped-def]
    """``V[:] = T @ known.T``: what the inner modes see of the mask, for every outer position."""
    outer, inner = known.shape
    R, tile = T.shape[0], min(outer, max(_TILE_ROWS, _TILE_CELLS // inner))
    Tt, M, part = np.ascontiguousarray(T.T), np.empty((tile, inner)), np.empty((tile, R))
    for start in range(0, outer, tile):
        stop = min(start + tile, outer)
        m, v = M[: stop - start], part[: stop - start]
        _as_numbers(known[start:stop].reshape(-1), m.reshape(-1))
        np.dot(m, Tt, v)
        V[:, start:stop] = v.T


@numba.njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def mask_by_outer(known, first, Z, sizes, W):  # type: ignore[no-untyped-def]
    """``W += U @ known``: what the outer modes see of the mask, for every inner position."""
    outer, inner = known.shape
    R, tile = Z.shape[0], min(outer, max(_TILE_ROWS, _TILE_CELLS // inner))
    M, U, part = np.empty((tile, inner)), np.empty(R * tile), np.empty((R, inner))
    for start in range(0, outer, tile):
        stop = min(start + tile, outer)
        m, u = M[: stop - start], U[: R * (stop - start)].reshape(R, stop - start)
        _as_numbers(known[start:stop].reshape(-1), m.reshape(-1))
        u[:] = 1
        _multiply(u, Z, sizes, first + start, -1)
        np.dot(u, m, part)
        W += part


@numba.njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def outer_exposure(V, first, Z, sizes, of, sums):  # type: ignore[no-untyped-def]
    """Add to the columns of outer mode ``of`` in ``sums`` (as Z) the products of V with the columns of the others."""
    u = V.copy()
    _multiply(u, Z, sizes, first, of)
    _add(u, sums, sizes, first, of)


@numba.njit(cache=True, nogil=True)
def add_rows(sums, rows, parts):  # type: ignore[no-untyped-def]
    """``np.add.at(sums, rows, parts)``: rows may repeat, and are added in order."""
    for n in range(rows.size):
        row = rows[n]
        for r in range(parts.shape[1]):
            sums[row, r] += parts[n, r]


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=ANY_ORDER)
def cp_counts(rows, x, Z, own, others, private, start, stop):  # type: ignore[no-untyped-def]
    """Expected counts of a CP model over listed cells [start, stop): gather, rate, ratio, scatter in one pass.

    ``rows`` (modes, cells) are rows of ``Z`` (all factors one under the other, first the mode by which the cells are
    sorted, whose rows this call owns). Sums of that mode go to ``own``, those of the last ``private`` modes to
    ``others``. Returns sum x*log(Xhat/x). In NumPy::

        P = Z[rows].prod(axis=0)                      # (cells, R): never made here
        ratio = x / P.sum(axis=1)
        np.add.at(sums, rows, ratio[:, None] * P)     # for these modes
        return -(x * np.log(ratio)).sum()
    """
    R, first_private, last = Z.shape[1], Z.shape[0] - others.shape[0], rows.shape[0] - 1
    # Rows of one array, far apart: whether a loop becomes vector code, and so how it rounds, depends on how far apart
    # the arrays in it begin, and of arrays of their own that is chance.
    work, sum_of_mine = np.zeros((3, max(R, _APART)), Z.dtype), np.zeros(R)
    row_of_mine, between, product = work[0, :R], work[1, :R], work[2, :R]
    all_but_last = row_of_mine if last == 1 else between
    quotients = np.empty(_TILE, Z.dtype)
    first, log_term = -1, 0.0
    for tile in range(start, stop, _TILE):
        at, values = rows[:, tile : min(tile + _TILE, stop)], x[tile : min(tile + _TILE, stop)]
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
            ratio = values[n] / rate
            quotients[n] = ratio
            if private:
                row -= first_private
                for r in range(R):
                    sum_of_mine[r] += ratio * product[r]
                    others[row, r] += ratio * product[r]
            else:
                for r in range(R):
                    sum_of_mine[r] += ratio * product[r]
            for mode in range(last - private + 1, last):
                row = at[mode, n] - first_private
                for r in range(R):
                    others[row, r] += ratio * product[r]
        for n in range(values.size):
            log_term -= np.float64(values[n]) * natural_log(quotients[n])
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


@numba.njit(cache=True, nogil=True, fastmath=ANY_ORDER)
def cp_rates(rows, Z, out):  # type: ignore[no-untyped-def]
    """Rates of a CP model at listed cells; ``rows`` (modes, cells) are rows of ``Z``, all factors one under the other.

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
