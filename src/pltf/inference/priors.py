"""Learning the priors: the values that raise the bound most, given what is believed of the factors.

Over each group of entries that share a value, with <z> = E and <log z> = log L:

    mean    B = mean(<z>)
    shape   log A - digamma(A) = mean( log B + <z>/B - <log z> ) - 1
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, polygamma

from pltf.errors import PltfError, py
from pltf.gamma import Array, Gamma, log_geometric_mean
from pltf.inference.factors import frozen

SHAPES = (1e-2, 1e6)  # below, exp<log z> has no digits left; above, the prior is a single value
MEANS = (1e-30, 1e30)  # where a component has died, its scale means nothing and may run away
_NEWTON_STEPS, _SETTLED = 20, 1e-10  # for a shape


class Groups:
    """Which entries of a factor share a learned value."""

    def __init__(self, shape: tuple[int, ...], shared: tuple[int, ...]) -> None:
        self.shape, self.shared = shape, shared  # of the factor; axes along which the value is one and the same
        apart = tuple(axis for axis in range(len(shape)) if axis not in shared)
        self._order, self._columns = (*shared, *apart), prod(shape[axis] for axis in apart)
        self._value_shape = tuple(1 if axis in shared else size for axis, size in enumerate(shape))

    def table(self, values: ArrayLike) -> Array:
        """Values that broadcast to the factor, a column for each group; one row if they do not vary in any group."""
        array = np.asarray(values, dtype=np.float64)
        if array.ndim == 0:
            return np.full((1, self._columns), array)
        if array.shape != self.shape:
            array = array.reshape((1,) * (len(self.shape) - array.ndim) + array.shape)
            varies = any(array.shape[axis] > 1 for axis in self.shared)
            array = np.broadcast_to(array, self.shape if varies else self._value_shape)
        return np.ascontiguousarray(array.transpose(self._order)).reshape(-1, self._columns)

    def value(self, row: Array) -> ArrayLike:
        """A value of each group as part of a prior."""
        return float(row.reshape(())) if row.size == 1 else frozen(row.reshape(self._value_shape))


def groups(prior: Gamma, shape: tuple[int, ...], indices: tuple[str, ...], latent: Collection[str], a: str) -> Groups:
    """The groups that a prior of factor ``a`` asks for."""
    found = Groups(shape, _shared_axes(prior, indices, latent, a))
    for part in prior.learns:
        if len(found.table(getattr(prior, part))) > 1:
            whose = "the whole factor" if prior.tie == "factor" else f"each {prior.tie.removeprefix('index:')}"
            came = np.shape(getattr(prior, part))
            raise PltfError(
                f"{py:prior} of {a}: a {part} that is learned must begin with one value for {whose}, got {came}"
            )
    return found


def _shared_axes(prior: Gamma, indices: tuple[str, ...], latent: Collection[str], a: str) -> tuple[int, ...]:
    every = tuple(range(len(indices)))
    if prior.tie == "factor":
        return every
    if prior.tie == "component":
        return tuple(axis for axis in every if indices[axis] not in latent) or every
    index = prior.tie.removeprefix("index:")
    if index not in indices:
        held = f"{a} has {', '.join(indices)}" if indices else f"{a} has none"
        raise PltfError(f"{py:prior} of {a}: {py:tie={prior.tie!r}} needs a factor with index '{index}', and {held}")
    return tuple(axis for axis in every if indices[axis] != index)


def with_best_shape(prior: Gamma, groups: Groups, E: Array, C: Array, D: Array, threads: int) -> Gamma:
    """The prior at the shape that is best for these posteriors."""
    shape = best_shape(E, log_geometric_mean(C, D, threads), prior.mean, groups.shared)
    return prior.with_values(groups.value(shape), prior.mean)


def with_best_mean(prior: Gamma, groups: Groups, C: Array, exposure: Array) -> Gamma:
    """The prior at the mean that is best together with the posterior scales, given the posterior shapes.

    B = mean(<z>) and <z> = C / (A/B + Delta) in turns would creep where the prior outweighs the counts. Together they
    are one equation for B, mean( C / (A + B*Delta) ) = 1 (weighted by A, if that varies), with a left side whose
    reciprocal is nearly linear in B: a few steps of Newton's method.
    """
    from pltf.inference.newton import best_means  # brings the compiler, which `import pltf` should not wait for

    B = groups.table(prior.mean).reshape(-1).copy()
    best_means(groups.table(C), groups.table(exposure), groups.table(prior.shape), B, *MEANS)
    return prior.with_values(prior.shape, groups.value(B))


def best_shape(E: Array, log_L: Array, mean: ArrayLike, shared: tuple[int, ...]) -> Array:
    """The A that maximizes the sum of <log p(z)> over each group."""
    B = np.asarray(mean)
    spread = (E / B + np.log(B) - log_L).mean(axis=shared, keepdims=True) - 1
    return _shape_of(spread)


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
