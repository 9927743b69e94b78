"""Problems so small that every algebra solves them on the host."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pltf.gamma import Array, Gamma
from pltf.inference.algebra.base import Algebra, Factors, Groups

_NEWTON_STEPS, _SETTLED = 20, 1e-10  # for the shape of a prior
_CURVED = 1e-8  # of a pair of steps: what its curvature must be to be of use


# -- balance ------------------------------------------------------------------------------------


def directions(held: Sequence[Sequence[bool]]) -> Array:
    """Orthonormal basis, as columns, of the log-scales that add up to zero over each row that holds any of them."""
    rows = np.array([row for row in held if any(row)], dtype=np.float64)
    if not rows.size:
        return np.zeros((0, 0))
    _, singular, basis = np.linalg.svd(rows)
    return np.ascontiguousarray(basis[int((singular > 1e-9).sum()) :].T)


def traded(
    algebra: Algebra[Any], axes: Mapping[str, int], basis: Array, priors: Mapping[str, Gamma], E: Factors, D: Factors
) -> tuple[Factors, Factors]:
    """:meth:`Algebra.trade` of factors of any shape with any priors."""
    alpha = np.array([shapes_along(priors[a], E[a].shape, axis) for a, axis in axes.items()])
    beta = np.array([algebra.sum_along(E[a], priors[a].rate, axis) for a, axis in axes.items()])
    scales = dict(zip(axes, np.exp(log_scales(alpha, beta, basis)), strict=True))
    means = {a: algebra.scale_along(E[a], scales[a], axis) for a, axis in axes.items()}
    return means, {a: algebra.scale_along(D[a], scales[a], axis) for a, axis in axes.items()}


def shapes_along(prior: Gamma, shape: tuple[int, ...], axis: int) -> Array:
    """Sum of the prior's shapes over all axes of a factor but one."""
    if isinstance(prior.shape, float):
        return np.full(shape[axis], prior.shape * (math.prod(shape) // shape[axis]))
    others = tuple(n for n in range(len(shape)) if n != axis)
    return np.asarray(prior.broadcast(shape)[0].sum(axis=others))


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
    from pltf.inference.algebra.newton import two_loops  # brings the compiler

    used = _curved(G.tolist())
    if len(used) < len(G):
        G = G[np.ix_(used, used)]
    coefficients = np.zeros(used[-1] + 1)
    q = np.empty(len(used))
    if len(used) == 1 or not two_loops(G, q):
        return None
    coefficients[used] = q
    return coefficients.tolist()


def _curved(g: list[list[float]]) -> list[int]:
    """The rows without the pairs that show no curvature, or are out of range."""
    k = len(g) // 2
    kept = [i for i in range(k) if _CURVED * g[k + i][k + i] < g[i][k + i] < math.inf and math.isfinite(g[i][i])]
    return [*kept, *(k + i for i in kept), 2 * k]
