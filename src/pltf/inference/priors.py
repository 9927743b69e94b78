"""Learning the priors: hyperparameters that maximize the ELBO, given the posteriors of the factors.

For each group of entries that share a value, with <z> = E and <log z> = log L:

    mean    B = mean(<z>)
    shape   log A - digamma(A) = mean( log B + <z>/B - <log z> ) - 1
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pltf.errors import PltfError, py
from pltf.gamma import Gamma
from pltf.inference.algebra import Algebra, Groups
from pltf.inference.algebra.host import best_shapes, prior_value

SHAPES = (1e-2, 1e6)  # below, exp<log z> underflows; above, the prior is practically a single value
MEANS = (1e-30, 1e30)  # the scale of an empty component is arbitrary and could diverge


def groups(prior: Gamma, shape: tuple[int, ...], indices: tuple[str, ...], latent: Collection[str], a: str) -> Groups:
    """The groups of entries that share a learned value, by the prior of factor ``a``."""
    found = Groups(shape, _shared_axes(prior, indices, latent, a))
    for part in prior.learns:
        value = getattr(prior, part)
        if found.vary(value):
            whose = "the whole factor" if prior.tie == "factor" else f"each {prior.tie.removeprefix('index:')}"
            begin = f"a learned {part} must start with one value for {whose}"
            raise PltfError(f"{py:prior} of {a}: {begin}, got {value.shape}")
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


def with_best_shape(algebra: Algebra[Any], prior: Gamma, groups: Groups, E: Any, C: Any, D: Any) -> Gamma:
    """The prior with the shape that maximizes the ELBO for these posteriors."""
    spread = algebra.spreads(E, algebra.log_geomean(C, D), prior.mean, groups)
    return prior.with_values(prior_value(best_shapes(spread, SHAPES), groups), prior.mean)


def with_best_mean(
    algebra: Algebra[Any], prior: Gamma, groups: Groups, C: Any, exposure: Any
) -> tuple[Gamma, Any, Any]:
    """Best prior mean jointly with the posterior scales, given the posterior shapes; returns the prior, D and E.

    Alternating B = mean(<z>) and <z> = C / (A/B + Delta) would be slow where the prior outweighs the counts. Together
    they are one equation for B, mean( C / (A + B*Delta) ) = 1 (weighted by A if that varies). The reciprocal of its
    left side is nearly linear in B, so a few Newton steps solve it.
    """
    mean, D, E = algebra.best_scales(C, exposure, prior, groups, MEANS)
    return prior.with_values(prior.shape, mean), D, E
