"""Balance: factors trade scale along the indices they share, to where their priors want it.

Multiply Z_a by s_a(x) along an index x, with product 1 over the factors of each equation: no rate changes, only the
KL terms do, through ``sum_a [ alpha_a(x) log s_a(x) - beta_a(x) s_a(x) ]`` with alpha_a(x) the sum of A_a and
beta_a(x) the sum of E_a*A_a/B_a over the entries of factor a at x. Sweeps alone move along these directions only
through the weak prior, and crawl; here the maximum is found at once, for the price of the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
        alpha = np.array([_along(priors[a].broadcast(E[a].shape)[0], axis) for a, axis in trade.axes.items()])
        beta = np.array([_along(E[a] * priors[a].rate, axis) for a, axis in trade.axes.items()])
        for log_s, (a, axis) in zip(log_scales(alpha, beta, trade.directions), trade.axes.items(), strict=True):
            s = np.exp(log_s).reshape([-1 if n == axis else 1 for n in range(E[a].ndim)])
            E[a], D[a] = frozen(E[a] * s), frozen(D[a] * s)
    return E, D


def _along(array: Array, axis: int) -> Array:
    """Sum over all axes but one."""
    return np.asarray(array.sum(axis=tuple(n for n in range(array.ndim) if n != axis)))


def log_scales(alpha: Array, beta: Array, directions: Array) -> Array:
    """log s that maximizes ``sum_a alpha_a log s_a - beta_a s_a`` for each x: damped Newton, concave.

    ``alpha`` and ``beta`` are (factors, x). The result keeps every product of scales at 1, and is never
    worse than doing nothing. Where a beta is zero or out of range there is no maximum, and nothing is done.
    """
    beta = np.where((np.isfinite(beta) & (beta > 0)).all(axis=0), beta, alpha)
    log_s, value = np.zeros_like(alpha), _value(alpha, beta, np.zeros_like(alpha))
    # Far from balance Newton's equations are badly scaled; where beta*s follows alpha they are not.
    even = directions @ (directions.T @ np.log(alpha / beta))
    better = _value(alpha, beta, even) > value
    if better.any():
        log_s = np.where(better, even, log_s)
        value = _value(alpha, beta, log_s)
    for _ in range(_NEWTON_STEPS):
        weight = beta * np.exp(log_s)
        gradient = directions.T @ (alpha - weight)  # (m, x)
        hessian = np.einsum("ap,ax,aq->xpq", directions, weight, directions)
        step = np.linalg.solve(hessian, gradient.T[..., None])[..., 0].T  # (m, x)
        log_s, value = _damped(alpha, beta, log_s, directions @ step, value)
        gain = (gradient * step).sum(axis=0)
        if (gain <= _SETTLED * alpha.sum(axis=0)).all():
            break
    return log_s


def _damped(alpha: Array, beta: Array, log_s: Array, step: Array, value: Array) -> tuple[Array, Array]:
    """The longest of the steps 1, 1/2, 1/4, ... that raises the value, for each x by itself."""
    length = np.ones_like(value)
    for _ in range(60):
        trial = log_s + length * step
        reached = _value(alpha, beta, trial)
        fell = ~(reached >= value)
        if not fell.any():
            return trial, reached
        length[fell] /= 2
    length[fell] = 0
    return log_s + length * step, np.where(fell, value, reached)


def _value(alpha: Array, beta: Array, log_s: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray((alpha * log_s - beta * np.exp(log_s)).sum(axis=0))
