"""Newton's method, compiled: for the means of priors, and for the balance."""

from __future__ import annotations

import numba
import numpy as np

from pltf.special import ANY_ORDER

_STEPS, _SETTLED = 30, 1e-8  # for the mean of a prior
_BALANCE_STEPS = 50
_BALANCE_SETTLED = 1e-12  # what the last Newton step promised, relative to alpha


# One function, for a call of another one may be inlined or not, depending on which of them comes from the cache: the
# order of its sums would then change from process to process.
@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=ANY_ORDER)
def best_means(C, x, A, B, least, most):  # type: ignore[no-untyped-def]
    """Solve ``sum A*C/(A + B*x) = sum A`` over the column of each group for B, in place.

    Arrays are (entries, groups), ``A`` may be one row. The reciprocal of the left side is concave in B: from below
    Newton's steps never go too far.
    """
    left, slope, norm = np.empty(B.size), np.empty(B.size), np.zeros(B.size)
    for n in range(A.shape[0]):
        for g in range(B.size):
            norm[g] += A[n, g] * (C.shape[0] // A.shape[0])
    for _ in range(_STEPS):
        left[:] = 0
        slope[:] = 0
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


# -- balance ------------------------------------------------------------------------------------


@numba.njit(cache=True, nogil=True, error_model="numpy")
def maximize(alpha, beta, directions, log_s):  # type: ignore[no-untyped-def]
    """Newton's method for every x by itself: log s = directions @ t, from t = 0 or from where beta*s follows alpha.

    Far from balance Newton's equations are badly scaled; where beta*s follows alpha they are not.
    """
    for x in range(alpha.shape[1]):
        a, b = alpha[:, x].copy(), beta[:, x].copy()
        if not (np.isfinite(b) & (b > 0)).all():
            continue
        here = np.zeros_like(a)
        even = _times(directions, _times(directions.T, np.log(a / b)))
        if _value(a, b, even) > _value(a, b, here):
            here = even
        for _ in range(_BALANCE_STEPS):
            weight = b * np.exp(here)
            gradient = _times(directions.T, a - weight)
            step = _solved(directions, weight, gradient)
            here = _damped(a, b, here, _times(directions, step))
            if (gradient * step).sum() <= _BALANCE_SETTLED * a.sum():
                break
        log_s[:, x] = here


@numba.njit(cache=True, nogil=True)
def _times(matrix, v):  # type: ignore[no-untyped-def]
    """``matrix @ v``."""
    out = np.zeros(matrix.shape[0])
    for n in range(matrix.shape[0]):
        for m in range(matrix.shape[1]):
            out[n] += matrix[n, m] * v[m]
    return out


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _solved(directions, weight, gradient):  # type: ignore[no-untyped-def]
    """``solve(directions.T @ diag(weight) @ directions, gradient)``, by elimination: positive definite, no pivots."""
    size = directions.shape[1]
    H, step = np.zeros((size, size)), gradient.copy()
    for n in range(weight.size):
        for p in range(size):
            for q in range(size):
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
    return step


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _damped(a, b, here, step):  # type: ignore[no-untyped-def]
    """The longest of the steps 1, 1/2, 1/4, ... that does not lower the value, or none."""
    value, length = _value(a, b, here), 1.0
    for _ in range(60):
        there = here + length * step
        if _value(a, b, there) >= value:
            return there
        length /= 2
    return here


@numba.njit(cache=True, nogil=True)
def _value(a, b, log_s):  # type: ignore[no-untyped-def]
    total = 0.0
    for n in range(a.size):
        total += a[n] * log_s[n] - b[n] * np.exp(log_s[n])
    return total
