"""Balance: factors trade scale along the indices they share, to where their priors want it.

Multiply Z_a by s_a(x) along an index x, with product 1 over the factors of each equation: no rate changes, only the
KL terms do, through ``sum_a [ alpha_a(x) log s_a(x) - beta_a(x) s_a(x) ]`` with alpha_a(x) the sum of A_a and
beta_a(x) the sum of E_a*A_a/B_a over the entries of factor a at x. Sweeps alone move along these directions only
through the weak prior, and crawl; here the maximum is found at once, for the price of the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numba
import numpy as np

from pltf.gamma import Array, Gamma
from pltf.inference.factors import Factors, frozen
from pltf.notation import Equation, Model

_NEWTON_STEPS = 50
_SETTLED = 1e-12  # what the last Newton step promised, relative to alpha


@dataclass(frozen=True, eq=False)
class Trade:
    """The free factors that hold an index, and how they may trade scale along it."""

    index: str
    axes: Mapping[str, int]  # factor -> the axis of the index
    directions: Array  # (factors, m): log s = directions @ t keeps the product of every equation


def trades(model: Model, fixed: Factors) -> tuple[Trade, ...]:
    """All trades that a model allows; fixed factors keep their scale."""
    found = []
    for index in dict.fromkeys(i for indices in model.factors.values() for i in indices):
        axes = {a: held.index(index) for a, held in model.factors.items() if index in held and a not in fixed}
        directions = _directions(model.equations, tuple(axes))
        if directions.shape[1]:
            found.append(Trade(index, axes, directions))
    return tuple(found)


def _directions(equations: Sequence[Equation], factors: tuple[str, ...]) -> Array:
    """Orthonormal basis of the log-scales that add up to zero in every equation."""
    names = [{term.name for term in equation.factors} for equation in equations]
    sums = np.array([[float(a in held) for a in factors] for held in names if held.intersection(factors)])
    if not factors:
        return np.zeros((0, 0))
    _, singular, rows = np.linalg.svd(sums)
    return np.asarray(rows[int((singular > 1e-9).sum()) :].T)


def balanced(
    found: Sequence[Trade], priors: Mapping[str, Gamma], E: Factors, D: Factors
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Means and scales after every trade, one index after the other."""
    E, D = dict(E), dict(D)
    for trade in found:
        alpha = np.array([_shapes_along(priors[a], E[a].shape, axis) for a, axis in trade.axes.items()])
        beta = np.array([_rated_along(priors[a], E[a], axis) for a, axis in trade.axes.items()])
        for log_s, (a, axis) in zip(log_scales(alpha, beta, trade.directions), trade.axes.items(), strict=True):
            s = np.exp(log_s).reshape([-1 if n == axis else 1 for n in range(E[a].ndim)])
            E[a], D[a] = frozen(E[a] * s), frozen(D[a] * s)
    return E, D


def _shapes_along(prior: Gamma, shape: tuple[int, ...], axis: int) -> Array:
    """Sum of the prior's shapes over all axes but one."""
    if isinstance(prior.shape, float):
        return np.full(shape[axis], prior.shape * (prod(shape) // shape[axis]))
    return _along(prior.broadcast(shape)[0], axis)


def _rated_along(prior: Gamma, E: Array, axis: int) -> Array:
    """Sum of means times the prior's rates over all axes but one."""
    return _along(E, axis) * prior.rate if prior.rate.ndim == 0 else _along(E * prior.rate, axis)


def _along(array: Array, axis: int) -> Array:
    """Sum over all axes but one."""
    return np.asarray(array.sum(axis=tuple(n for n in range(array.ndim) if n != axis)))


def log_scales(alpha: Array, beta: Array, directions: Array) -> Array:
    """log s that maximizes ``sum_a alpha_a log s_a - beta_a s_a`` for each x: damped Newton, concave.

    ``alpha`` and ``beta`` are (factors, x). The result keeps every product of scales at 1, and is never
    worse than doing nothing. Where a beta is zero or out of range there is no maximum, and nothing is done.
    """
    log_s = np.zeros_like(alpha)
    _maximize(alpha, beta, np.ascontiguousarray(directions), log_s)
    return log_s


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _maximize(alpha, beta, directions, log_s):  # type: ignore[no-untyped-def]
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
        for _ in range(_NEWTON_STEPS):
            weight = b * np.exp(here)
            gradient = _times(directions.T, a - weight)
            step = _solved(directions, weight, gradient)
            here = _damped(a, b, here, _times(directions, step))
            if (gradient * step).sum() <= _SETTLED * a.sum():
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
    return (a * log_s - b * np.exp(log_s)).sum()
