"""Balancing: factors exchange scale along the indices they share, to the optimum of their priors.

Multiply Z_a by s_a(x) along an index x, with product 1 over the factors of each equation. No rate changes, only the
KL terms do, by ``sum_a [ alpha_a(x) log s_a(x) - beta_a(x) s_a(x) ]``, where alpha_a(x) is the sum of A_a and
beta_a(x) the sum of E_a*A_a/B_a over the entries of factor a at x. Plain iterations move along these directions only
through the weak prior, and are slow; here the maximum is computed directly, at a cost proportional to the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pltf.gamma import Array, Gamma
from pltf.inference.algebra import Algebra, Factors
from pltf.inference.algebra.host import directions
from pltf.notation import Model


@dataclass(frozen=True, eq=False)
class Trade:
    """The free factors that have an index, and the directions in which they can exchange scale along it."""

    index: str
    axes: Mapping[str, int]  # factor -> the axis of the index
    directions: Array  # (factors, m): log s = directions @ t keeps the product of every equation


def trades(model: Model, fixed: Factors) -> tuple[Trade, ...]:
    """All exchanges of scale that a model allows; fixed factors keep their scale."""
    found = []
    held_by = [{term.name for term in equation.factors} for equation in model.equations]
    for index in dict.fromkeys(i for indices in model.factors.values() for i in indices):
        axes = {a: held.index(index) for a, held in model.factors.items() if index in held and a not in fixed}
        basis = directions([[a in names for a in axes] for names in held_by])
        if basis.shape[1]:
            found.append(Trade(index, axes, basis))
    return tuple(found)


def balanced(
    algebra: Algebra[Any], found: Sequence[Trade], priors: Mapping[str, Gamma], E: Factors, D: Factors
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Means and scale parameters after balancing along every index in turn."""
    E, D = dict(E), dict(D)
    for trade in found:
        means, scales = algebra.trade(trade.axes, trade.directions, priors, E, D)
        E.update(means)
        D.update(scales)
    return E, D
