"""Newton's method, compiled: for prior means and for balancing."""

from __future__ import annotations

import numpy as np

from pltf.compiling import njit
from pltf.special import ANY_ORDER, compiled

_STEPS, _SETTLED = 30, 1e-8  # for the mean of a prior
BALANCE_STEPS = 50
BALANCE_SETTLED = 1e-12  # what the last Newton step promised, relative to alpha


# One function: Numba may or may not inline a call to another one, depending on what comes from the cache, and the
# order of the sums would then change between processes.
@njit(cache=True, nogil=True, error_model="numpy", fastmath=ANY_ORDER)
def best_scales(C, x, A, B, least, most, D, E):  # type: ignore[no-untyped-def]
    """Solve ``sum A*C/(A + B*x) = sum A`` over the column of each group for B, in place; D = 1 / (A/B + x) and E = C*D.

    Arrays are (entries, groups); ``A`` may have one row. The reciprocal of the left side is concave in B: started from
    below, Newton steps never overshoot.
    """
    left, slope, norm = np.empty(B.size), np.empty(B.size), np.zeros(B.size)
    for n in range(A.shape[0]):
        for g in range(B.size):
            norm[g] += A[n, g] * (C.shape[0] // A.shape[0])
    for _ in range(_STEPS):
        for g in range(B.size):
            left[g], slope[g] = 0.0, 0.0
        if B.size == 1 and A.shape[0] == 1:
            shape, mean, a, b = A[0, 0], B[0], 0.0, 0.0
            for n in range(C.shape[0]):
                part = 1 / (shape + mean * x[n, 0])
                a += C[n, 0] * part
                b += C[n, 0] * part * part * x[n, 0]
            left[0], slope[0] = shape * a, shape * b
        else:
            for n in range(C.shape[0]):
                shapes = A[n if A.shape[0] > 1 else 0]
                for g in range(B.size):
                    part = 1 / (shapes[g] + B[g] * x[n, g])
                    left[g] += shapes[g] * C[n, g] * part
                    slope[g] += shapes[g] * C[n, g] * part * part * x[n, g]
        change = 0.0
        for g in range(B.size):
            if slope[g] > 0:
                new = B[g] + (left[g] / norm[g] - 1) * left[g] / slope[g]
                new = min(max(new, B[g] / 100, least), most)
                change = max(change, abs(new - B[g]) / B[g])
                B[g] = new
        if change <= _SETTLED:
            break
    for n in range(C.shape[0]):
        for g in range(B.size):
            D[n, g] = 1 / (A[n if A.shape[0] > 1 else 0, g] / B[g] + x[n, g])
            E[n, g] = C[n, g] * D[n, g]


# -- balance ------------------------------------------------------------------------------------
#
# Loops are explicit: array expressions use Numba's shape check, whose error message takes seconds to compile.

_helper = compiled(set(), inside=True)


@njit(cache=True, nogil=True, error_model="numpy")
def trade_log_scales(E, sizes, shapes, rates, directions, log_s):  # type: ignore[no-untyped-def]
    """:func:`maximize` for factors (entries, x) concatenated in E, each with a scalar shape and rate."""
    factors, width = log_s.shape
    alpha, beta, end = np.empty((factors, width)), np.zeros((factors, width)), 0
    for a in range(factors):
        for _ in range(sizes[a]):
            for x in range(width):
                beta[a, x] += E[end + x]
            end += width
        for x in range(width):
            alpha[a, x] = shapes[a] * sizes[a]
            beta[a, x] *= rates[a]
    maximize(alpha, beta, directions, log_s)


@njit(cache=True, nogil=True)
def scale_columns(E, D, sizes, s, new_E, new_D):  # type: ignore[no-untyped-def]
    """Multiply the columns of concatenated factors (entries, x), both E and D, by s: (factors, x)."""
    end = 0
    for a in range(s.shape[0]):
        for _ in range(sizes[a]):
            for x in range(s.shape[1]):
                new_E[end + x] = E[end + x] * s[a, x]
                new_D[end + x] = D[end + x] * s[a, x]
            end += s.shape[1]


@compiled(set())
def maximize(alpha, beta, directions, log_s):  # type: ignore[no-untyped-def]
    """Newton's method, independently for every x: log s = directions @ t, from t = 0 or from beta*s close to alpha.

    Far from balance Newton's equations are badly scaled; where beta*s is close to alpha they are not.
    """
    factors, size = directions.shape
    a, b, weight = np.empty(factors), np.empty(factors), np.empty(factors)
    here, there, change = np.empty(factors), np.empty(factors), np.empty(factors)
    gradient, step, H = np.empty(size), np.empty(size), np.empty((size, size))
    for x in range(alpha.shape[1]):
        has_maximum, total = True, 0.0
        for n in range(factors):
            a[n], b[n], here[n] = alpha[n, x], beta[n, x], 0.0
            has_maximum &= 0 < b[n] < np.inf
            total += a[n]
            weight[n] = np.log(a[n] / b[n])
        if not has_maximum:
            continue
        _times_transposed(directions, weight, step)
        _times(directions, step, there)
        if _value(a, b, there) > _value(a, b, here):
            here, there = there, here
        for _ in range(BALANCE_STEPS):
            for n in range(factors):
                weight[n] = b[n] * np.exp(here[n])
                change[n] = a[n] - weight[n]
            _times_transposed(directions, change, gradient)
            _solve(directions, weight, gradient, H, step)
            _times(directions, step, change)
            if _damped(a, b, here, change, there):
                here, there = there, here
            promised = 0.0
            for p in range(size):
                promised += gradient[p] * step[p]
            if promised <= BALANCE_SETTLED * total:
                break
        for n in range(factors):
            log_s[n, x] = here[n]


@_helper
def _times(matrix, v, out):  # type: ignore[no-untyped-def]
    """``out[:] = matrix @ v``."""
    for n in range(matrix.shape[0]):
        out[n] = 0
        for m in range(matrix.shape[1]):
            out[n] += matrix[n, m] * v[m]


@_helper
def _times_transposed(matrix, v, out):  # type: ignore[no-untyped-def]
    """``out[:] = matrix.T @ v``."""
    for m in range(matrix.shape[1]):
        out[m] = 0
        for n in range(matrix.shape[0]):
            out[m] += matrix[n, m] * v[n]


@_helper
def _solve(directions, weight, gradient, H, step):  # type: ignore[no-untyped-def]
    """``step[:] = solve(directions.T @ diag(weight) @ directions, gradient)``; H is a work matrix.

    Uses elimination: the matrix is positive definite and needs no pivoting.
    """
    size = directions.shape[1]
    for p in range(size):
        step[p] = gradient[p]
        for q in range(size):
            H[p, q] = 0
            for n in range(weight.size):
                H[p, q] += directions[n, p] * weight[n] * directions[n, q]
    for p in range(size):
        for q in range(p + 1, size):
            ratio = H[q, p] / H[p, p]
            for k in range(p, size):
                H[q, k] -= ratio * H[p, k]
            step[q] -= ratio * step[p]
    for p in range(size - 1, -1, -1):
        for q in range(p + 1, size):
            step[p] -= H[p, q] * step[q]
        step[p] /= H[p, p]


@_helper
def _damped(a, b, here, change, there):  # type: ignore[no-untyped-def]
    """Take the longest of 1, 1/2, 1/4, ... of a step that does not lower the value; False if there is none."""
    value, length = _value(a, b, here), 1.0
    for _ in range(60):
        for n in range(here.size):
            there[n] = here[n] + length * change[n]
        if _value(a, b, there) >= value:
            return True
        length /= 2
    return False


@_helper
def _value(a, b, log_s):  # type: ignore[no-untyped-def]
    """``(a * log_s - b * exp(log_s)).sum()``."""
    value = 0.0
    for n in range(a.size):
        value += a[n] * log_s[n] - b[n] * np.exp(log_s[n])
    return value


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def two_loops(G, q):  # type: ignore[no-untyped-def]
    """Coefficients of the L-BFGS step for each row, from the inner products; False if one is not finite."""
    size = q.size
    k = size // 2
    for i in range(size):
        for j in range(size):
            if not np.isfinite(G[i, j]):
                return False
    q[:] = 0.0
    q[-1] = -1.0
    along = np.empty(k)
    for i in range(k - 1, -1, -1):
        along[i] = _inner(G, i, q) / G[i, k + i]
        q[k + i] -= along[i]
    q *= G[k - 1, -2] / G[-2, -2]
    for i in range(k):
        q[i] += along[i] - _inner(G, k + i, q) / G[i, k + i]
    return True


@njit(cache=True, nogil=True, fastmath={"contract"})
def _inner(G, i, q):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(q.size):
        total += G[i, j] * q[j]
    return total
