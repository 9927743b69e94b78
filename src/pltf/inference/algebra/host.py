"""Small problems that every algebra solves on the host."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pltf.gamma import Array, Gamma
from pltf.inference.algebra.base import Algebra, Factors, Groups

_NEWTON_STEPS, _SETTLED = 20, 1e-10  # for the shape of a prior
CURVED = 1e-8  # minimum relative curvature of a useful pair of steps


# -- balance ------------------------------------------------------------------------------------


def directions(held: Sequence[Sequence[bool]]) -> Array:
    """Orthonormal basis, as columns, of the log-scales that sum to zero over each row with any True."""
    rows = np.array([row for row in held if any(row)], dtype=np.float64)
    if not rows.size:
        return np.zeros((0, 0))
    _, singular, basis = np.linalg.svd(rows)
    return np.ascontiguousarray(basis[int((singular > 1e-9).sum()) :].T)


def traded(
    algebra: Algebra[Any], axes: Mapping[str, int], basis: Array, priors: Mapping[str, Gamma], E: Factors, D: Factors
) -> tuple[Factors, Factors]:
    """:meth:`Algebra.trade` for factors of any shape with any priors."""
    alpha = np.array([shapes_along(priors[a], E[a].shape, axis) for a, axis in axes.items()])
    beta = np.array([algebra.sum_along(E[a], priors[a].rate, axis) for a, axis in axes.items()])
    scales = dict(zip(axes, np.exp(log_scales(alpha, beta, basis)), strict=True))
    means = {a: algebra.scale_along(E[a], scales[a], axis) for a, axis in axes.items()}
    return means, {a: algebra.scale_along(D[a], scales[a], axis) for a, axis in axes.items()}


def shapes_along(prior: Gamma, shape: tuple[int, ...], axis: int) -> Array:
    """Sum of the prior shapes over all axes of a factor except one."""
    if isinstance(prior.shape, float):
        return np.full(shape[axis], prior.shape * (math.prod(shape) // shape[axis]))
    others = tuple(n for n in range(len(shape)) if n != axis)
    return np.asarray(prior.broadcast(shape)[0].sum(axis=others))


def log_scales(alpha: Array, beta: Array, directions: Array) -> Array:
    """log s that maximizes ``sum_a alpha_a log s_a - beta_a s_a`` for each x: damped Newton on a concave problem.

    ``alpha`` and ``beta`` are (factors, x). The result keeps every product of scales at 1, and is never worse than
    no change. Where a beta is zero or not finite there is no maximum, and the scales stay unchanged.
    """
    from pltf.inference.algebra.newton import maximize  # imports the compiler

    log_s = np.zeros(alpha.shape)
    maximize(alpha, beta, np.ascontiguousarray(directions), log_s)
    return log_s


# -- learned priors -----------------------------------------------------------------------------


def best_shapes(spread: Array, limits: tuple[float, float]) -> Array:
    """Solve log A - digamma(A) = spread, which falls from infinity to 0, by Newton's method on log A."""
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
    """One value per group, as an attribute of a prior."""
    if values.size == 1:
        return float(values.reshape(()))
    values = values.reshape(groups.value_shape)
    values.flags.writeable = False
    return values


def prior_on_host(algebra: Algebra[Any], prior: Gamma) -> Gamma:
    """The prior with its learned mean in host memory."""
    if "mean" not in prior.learns or isinstance(prior.mean, float):
        return prior
    mean = prior.mean if isinstance(prior.mean, np.ndarray) else algebra.get(prior.mean)
    return prior.with_values(prior.shape, float(mean.reshape(())) if mean.size == 1 else mean)


# -- quasi-Newton steps -------------------------------------------------------------------------


def lbfgs_coefficients(G: Array) -> list[float] | None:
    """Coefficients of the L-BFGS step for each row; None if there is no curvature information.

    ``G`` contains the inner products of the rows: the changes s of the last steps, the matching changes y of the
    residual, and the residual itself. The two loops only need coefficients.
    """
    from pltf.inference.algebra.newton import two_loops  # imports the compiler

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
    """Indices of the rows, without pairs that have no positive curvature or are not finite."""
    k = len(g) // 2
    kept = [i for i in range(k) if CURVED * g[k + i][k + i] < g[i][k + i] < math.inf and math.isfinite(g[i][i])]
    return [*kept, *(k + i for i in kept), 2 * k]
