"""Learning the priors: the values that raise the bound most, given what is believed of the factors.

Over each group of entries that share a value, with <z> = E and <log z> = log L:

    mean    B = mean(<z>)
    shape   log A - digamma(A) = mean( log B + <z>/B - <log z> ) - 1
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, polygamma

from pltf.errors import PltfError
from pltf.gamma import Array, Gamma, log_geometric_mean
from pltf.inference.factors import Factors, frozen

SHAPES = (1e-2, 1e6)  # below, exp<log z> has no digits left; above, the prior is a single value
MEANS = (1e-30, 1e30)
GROWTH = 10.0  # of a mean in one sweep: where a component has died, scales mean nothing and could run away
_NEWTON_STEPS, _SETTLED = 20, 1e-10


def shared_axes(prior: Gamma, indices: tuple[str, ...], latent: Collection[str], factor: str) -> tuple[int, ...]:
    """The axes of a factor along which a learned value is one and the same."""
    every = tuple(range(len(indices)))
    if prior.tie == "factor":
        return every
    if prior.tie == "component":
        observed = tuple(axis for axis in every if indices[axis] not in latent)
        return observed or every
    index = prior.tie.removeprefix("index:")
    if index not in indices:
        held = ", ".join(indices)
        raise PltfError(
            f"prior of {factor}: tie={prior.tie!r} needs a factor with index '{index}', and {factor} has {held}"
        )
    return tuple(axis for axis in every if indices[axis] != index)


def with_best_shapes(
    priors: Mapping[str, Gamma], axes: Mapping[str, tuple[int, ...]], E: Factors, C: Factors, D: Factors, threads: int
) -> dict[str, Gamma]:
    """All priors, those that learn their shape with the best one for these posteriors.

    ``axes`` are those along which a learned value is shared.
    """
    found = dict(priors)
    for a, shared in axes.items():
        if "shape" in priors[a].learns:
            log_L = log_geometric_mean(C[a], D[a], threads)
            found[a] = priors[a].with_values(best_shape(E[a], log_L, priors[a].mean, shared), priors[a].mean)
    return found


def with_best_mean(prior: Gamma, shared: tuple[int, ...], C: Array, exposure: Array) -> Gamma:
    """The prior at the mean that is best together with the posterior scales, given the posterior shapes.

    B = mean(<z>) and <z> = C / (A/B + Delta) in turns would creep where the prior outweighs the counts. Together they
    are one equation for B, mean( C / (A + B*Delta) ) = 1 (weighted by A, if that varies), with a left side whose
    reciprocal is nearly linear in B: a few steps of Newton's method.
    """
    A = np.broadcast_to(np.asarray(prior.shape), C.shape)
    weight = A / A.mean(axis=shared, keepdims=True) * C
    B = np.broadcast_to(np.asarray(prior.mean), C.shape).mean(axis=shared, keepdims=True)
    most = np.minimum(GROWTH * B, MEANS[1])
    for _ in range(_NEWTON_STEPS):
        part = 1 / (A + B * exposure)
        left = (weight * part).mean(axis=shared, keepdims=True)
        slope = (weight * part * part * exposure).mean(axis=shared, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = np.where(slope > 0, B + (left - 1) * left / slope, B)
        new = np.clip(newton, np.maximum(B / 100, MEANS[0]), most)
        settled = np.abs(new - B).max() <= _SETTLED * B.max()
        B = new
        if settled:
            break
    return prior.with_values(prior.shape, _value(B))


def best_shape(E: Array, log_L: Array, mean: ArrayLike, shared: tuple[int, ...]) -> ArrayLike:
    """The A that maximizes the sum of <log p(z)> over each group."""
    B = np.asarray(mean)
    spread = (E / B + np.log(B) - log_L).mean(axis=shared, keepdims=True) - 1
    return _value(_shape_of(spread))


def _value(array: Array) -> ArrayLike:
    return float(array.reshape(())) if array.size == 1 else frozen(array)


def _shape_of(spread: Array) -> Array:
    """The A of log A - digamma(A) = spread, which falls from infinity to 0: Newton's method on log A."""
    s = np.maximum(spread, 1 / (2 * SHAPES[1]))
    A = (3 - s + np.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
    for _ in range(_NEWTON_STEPS):
        step = (np.log(A) - digamma(A) - s) / (A * (1 / A - polygamma(1, A)))  # of log A
        A = A * np.exp(-np.clip(step, -2, 2))
        if np.abs(step).max() < _SETTLED:
            break
    return np.asarray(np.clip(A, *SHAPES))
