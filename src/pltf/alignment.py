"""Align draws of factors with a reference: the order and the scale of components.

The rates of a draw are invariant under permutation of components and exchange of scale between factors. A chain may
do both, so averaging a factor over draws would mix different components. Each draw is therefore permuted and rescaled
to match the reference as closely as possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pltf.gamma import Array, Gamma
from pltf.inference.algebra import Factors
from pltf.inference.balance import Trade
from pltf.matching import matched, profiles
from pltf.notation import Model

_TINY = np.finfo(np.float64).tiny
_TURNS, _SETTLED = 100, 1e-6  # iterations over trades, and the tolerance for changes of a logarithm


def align(
    model: Model,
    sizes: Mapping[str, int],
    priors: Mapping[str, Gamma],
    found: Sequence[Trade],
    reference: Factors,
    draws: Mapping[str, Array],
    shapes: Mapping[str, Array],
    mass: Mapping[str, Array],
) -> int:
    """Align draws with the reference, in place; returns the number of draws with permuted components.

    ``draws`` and learned ``shapes`` of priors are (chain, draw, *axes of the factor), ``mass`` of a latent index is
    (chain, draw, component). Factors that were not drawn are in the reference and stay unchanged.
    """
    orders = {index: profiles(model, reference, sizes, index) for index in exchangeable(model, priors, draws)}
    places = list(np.ndindex(next(iter(draws.values())).shape[:2]))
    moved = 0
    for place in places:
        changed = False
        for index, wanted in orders.items():
            Z = {**reference, **{a: array[place] for a, array in draws.items()}}
            pairs = matched(index, wanted, profiles(model, Z, sizes, index))
            order = np.empty(sizes[index], dtype=np.intp)
            order[pairs.a] = pairs.b
            if (order != np.arange(order.size)).any():
                _reorder(model, index, order, place, draws, shapes, mass)
                changed = True
        moved += changed
        _rescale(found, place, reference, draws)
    return moved


def exchangeable(model: Model, priors: Mapping[str, Gamma], drawn: Mapping[str, Array]) -> tuple[str, ...]:
    """Latent indices with exchangeable components: neither fixed factors nor priors distinguish them."""
    found = []
    for index in model.sizes:
        holding = [(a, indices.index(index)) for a, indices in model.factors.items() if index in indices]
        if all(a in drawn and not _varies(priors[a], axis, len(model.factors[a])) for a, axis in holding):
            found.append(index)
    return tuple(found)


def _varies(prior: Gamma, axis: int, ndim: int) -> bool:
    """Whether the given values of a prior vary along an axis; learned values do not count."""
    values = [np.asarray(getattr(prior, part)) for part in ("shape", "mean") if part not in prior.learns]
    return any(v.ndim >= ndim - axis and v.shape[axis - ndim] > 1 for v in values)


def _reorder(
    model: Model,
    index: str,
    order: NDArray[np.intp],
    place: tuple[int, ...],
    draws: Mapping[str, Array],
    shapes: Mapping[str, Array],
    mass: Mapping[str, Array],
) -> None:
    for arrays in (draws, shapes):
        for a, array in arrays.items():
            if index in model.factors[a]:
                axis = model.factors[a].index(index)
                if array[place].shape[axis] > 1:
                    array[place] = array[place].take(order, axis=axis)
    if index in mass:
        mass[index][place] = mass[index][place][order]


def _rescale(found: Sequence[Trade], place: tuple[int, ...], reference: Factors, draws: Mapping[str, Array]) -> None:
    """Exchange scales so that the logarithms of sums along each index are as close as possible to the reference.

    A factor may be part of several trades that affect each other: they are repeated until convergence.
    """
    for _ in range(_TURNS):
        furthest = 0.0
        for trade in found:
            far = [_log_sums(reference[a], n) - _log_sums(draws[a][place], n) for a, n in trade.axes.items()]
            moved = trade.directions @ (trade.directions.T @ np.array(far))
            for (a, axis), log_s in zip(trade.axes.items(), moved, strict=True):
                draws[a][place] *= np.exp(log_s).reshape(-1, *(1,) * (draws[a].ndim - 3 - axis))
            furthest = max(furthest, float(np.abs(moved).max()))
        if furthest < _SETTLED or len(found) < 2:
            break


def _log_sums(Z: Array, axis: int) -> Array:
    others = tuple(n for n in range(Z.ndim) if n != axis)
    return np.asarray(np.log(np.maximum(Z.sum(axis=others), _TINY)))
