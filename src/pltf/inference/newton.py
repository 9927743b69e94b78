"""The compiled part of learning priors."""

from __future__ import annotations

import numba
import numpy as np

from pltf.special import ANY_ORDER

_STEPS, _SETTLED = 30, 1e-8


@numba.njit(cache=True, nogil=True, error_model="numpy")
def best_means(C, x, A, B, least, most):  # type: ignore[no-untyped-def]
    """Solve ``sum A*C/(A + B*x) = sum A`` over each group for B, in place.

    Arrays are (outer, groups, inner), ``A`` may have outer and inner of size 1. The reciprocal of the left side is
    concave in B: from below Newton's steps never go too far.
    """
    left, slope, norm = np.empty(B.size), np.empty(B.size), np.zeros(B.size)
    for n in range(A.shape[0]):
        for g in range(B.size):
            norm[g] += A[n, g].sum() * (C.shape[0] // A.shape[0]) * (C.shape[2] // A.shape[2])
    for _ in range(_STEPS):
        left[:] = 0
        slope[:] = 0
        for n in range(C.shape[0]):
            shapes = A[n if A.shape[0] > 1 else 0]
            if C.shape[2] == 1:
                _add_row(C[n, :, 0], x[n, :, 0], shapes[:, 0], B, left, slope)
            else:
                for g in range(B.size):
                    _add_run(C[n, g], x[n, g], shapes[g], g, B, left, slope)
        change = 0.0
        for g in range(B.size):
            if slope[g] > 0:
                new = B[g] + (left[g] / norm[g] - 1) * left[g] / slope[g]
                new = min(max(new, B[g] / 100, least), most[g])
                change = max(change, abs(new - B[g]) / B[g])
                B[g] = new
        if change <= _SETTLED:
            break


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=ANY_ORDER)
def _add_row(C, x, A, B, left, slope):  # type: ignore[no-untyped-def]
    """Add one entry to the sums of each group."""
    for g in range(C.size):
        part = 1 / (A[g] + B[g] * x[g])
        left[g] += A[g] * C[g] * part
        slope[g] += A[g] * C[g] * part * part * x[g]


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=ANY_ORDER)
def _add_run(C, x, A, g, B, left, slope):  # type: ignore[no-untyped-def]
    """Add many entries to the sums of one group."""
    a, b, mean, one = 0.0, 0.0, B[g], A.size == 1
    for n in range(C.size):
        shape = A[0] if one else A[n]
        part = 1 / (shape + mean * x[n])
        a += shape * C[n] * part
        b += shape * C[n] * part * part * x[n]
    left[g] += a
    slope[g] += b
