"""Problems so small that every algebra solves them on the host."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pltf.gamma import Array, Gamma
from pltf.inference.algebra.base import Groups

_NEWTON_STEPS, _SETTLED = 20, 1e-10  # for the shape of a prior
_CURVED = 1e-8  # of a pair of steps: what its curvature must be to be of use


# -- balance ------------------------------------------------------------------------------------


def directions(held: Sequence[Sequence[bool]]) -> Array:
    """Orthonormal basis, as columns, of the log-scales that add up to zero over each row that holds any of them."""
    rows = np.array([row for row in held if any(row)], dtype=np.float64)
    if not rows.size:
        return np.zeros((0, 0))
    _, singular, basis = np.linalg.svd(rows)
    return np.asarray(basis[int((singular > 1e-9).sum()) :].T)


def shapes_along(prior: Gamma, shape: tuple[int, ...], axis: int) -> Array:
    """Sum of the prior's shapes over all axes of a factor but one."""
    if isinstance(prior.shape, float):
        sums = np.empty(shape[axis])
        sums.fill(prior.shape * (math.prod(shape) // shape[axis]))
        return sums
    others = tuple(n for n in range(len(shape)) if n != axis)
    return np.asarray(prior.broadcast(shape)[0].sum(axis=others))


def balancing_scales(alpha: Sequence[Array], beta: Sequence[Array], directions: Array) -> Array:
    """exp of :func:`log_scales`."""
    return np.exp(log_scales(np.array(alpha), np.array(beta), directions))


def log_scales(alpha: Array, beta: Array, directions: Array) -> Array:
    """log s that maximizes ``sum_a alpha_a log s_a - beta_a s_a`` for each x: damped Newton, concave.

    ``alpha`` and ``beta`` are (factors, x). The result keeps every product of scales at 1, and is never
    worse than doing nothing. Where a beta is zero or out of range there is no maximum, and nothing is done.
    """
    from pltf.inference.algebra.newton import maximize  # brings the compiler

    log_s = np.zeros(alpha.shape)
    maximize(alpha, beta, np.ascontiguousarray(directions), log_s)
    return log_s


# -- priors that are learned --------------------------------------------------------------------


def best_shapes(spread: Array, limits: tuple[float, float]) -> Array:
    """The A of log A - digamma(A) = spread, which falls from infinity to 0: Newton's method on log A."""
    from scipy.special import digamma, polygamma

    s = np.maximum(spread, 1 / (2 * limits[1]))
    A = (3 - s + np.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
    for _ in range(_NEWTON_STEPS):
        step = (np.log(A) - digamma(A) - s) / (A * (1 / A - polygamma(1, A)))  # of log A
        A = A * np.exp(-np.clip(step, -2, 2))
        if np.abs(step).max() < _SETTLED:
            break
    return np.asarray(np.clip(A, *limits))


def prior_value(values: Array, groups: Groups) -> float | Array:
    """A value for each group as part of a prior."""
    if values.size == 1:
        return float(values.reshape(()))
    values = values.reshape(groups.value_shape)
    values.flags.writeable = False
    return values


# -- quasi-Newton steps -------------------------------------------------------------------------


def quasi_newton(G: Array) -> list[float] | None:
    """What the step of L-BFGS takes of each row; None while there is no curvature to go by.

    ``G`` are the inner products of the rows: the changes s of the last steps, as many changes y of the residual, and
    the residual itself. The two loops then need no more than coefficients.
    """
    used = _curved(G.tolist())
    k = len(used) // 2
    if len(used) < len(G):
        G = G[np.ix_(used, used)]
    if not (k and np.isfinite(G).all()):
        return None
    rows, g = list(G), G.tolist()
    q, along = np.zeros(2 * k + 1), [0.0] * k
    q[-1] = 1
    for i in reversed(range(k)):
        along[i] = rows[i].dot(q) / g[i][k + i]
        q[k + i] -= along[i]
    q *= g[k - 1][-2] / g[-2][-2]
    for i in range(k):
        q[i] += along[i] - rows[k + i].dot(q) / g[i][k + i]
    coefficients = dict(zip(used, q.tolist(), strict=True))
    return [-coefficients.get(n, 0.0) for n in range(used[-1] + 1)]


def _curved(g: list[list[float]]) -> list[int]:
    """The rows without the pairs that show no curvature, or are out of range."""
    k = len(g) // 2
    kept = [i for i in range(k) if _CURVED * g[k + i][k + i] < g[i][k + i] < math.inf and math.isfinite(g[i][i])]
    return [*kept, *(k + i for i in kept), 2 * k]
