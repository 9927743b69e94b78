"""The compiled part of learning priors."""

from __future__ import annotations

import numba
import numpy as np

from pltf.special import ANY_ORDER

_STEPS, _SETTLED = 30, 1e-8


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
