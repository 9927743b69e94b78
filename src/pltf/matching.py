"""Match the components of two fits, which have arbitrary order and scale.

A component is identified by the expected counts that it explains. Its profile along an observed index is the share of
each position in these counts. The similarity of two components is the product of the cosines of their profiles over
the indices of a tensor. Several tensors are weighted by the counts that the two components explain in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import opt_einsum as oe

from pltf.engines.contraction import subscripts
from pltf.errors import PltfError, py
from pltf.fit import Fit, component_index
from pltf.gamma import Array
from pltf.inference.algebra import Factors
from pltf.notation import Equation, Model

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Match:
    """Pairs of matching components and their similarities.

    >>> import numpy as np, pltf
    >>> X = np.kron(np.diag([9, 5]), np.ones((4, 4)))
    >>> model = pltf.nmf(rank=2)
    >>> pltf.match(model.fit(X, seed=1), model.fit(X, seed=2))
    <Match along r: 2 pairs, similarity 1.000>
    """

    index: str  # the latent index along which components are matched
    a: Array  # components of the first fit, largest first
    b: Array  # their partners in the second
    similarities: Array  # similarity of each pair, from 0 to 1
    shares_a: Array  # of the expected counts of the first fit
    shares_b: Array  # of the expected counts of the second fit

    @property
    def similarity(self) -> float:
        """Mean over the pairs, weighted by the counts they explain; components without a partner count as 0.

        >>> import numpy as np, pltf
        >>> fit = pltf.nmf(rank=2).fit(np.eye(3) + 1)
        >>> round(pltf.match(fit, fit).similarity, 6)
        1.0
        """
        return float(((self.shares_a + self.shares_b) / 2) @ self.similarities)

    @property
    def table(self) -> pd.DataFrame:
        """One row for each pair, largest first: components, similarity, shares of the expected counts.

        >>> import numpy as np, pltf
        >>> fit = pltf.nmf(rank=2).fit(np.eye(3) + 1)
        >>> list(pltf.match(fit, fit).table.columns)
        ['a', 'b', 'similarity', 'share_a', 'share_b']
        """
        import pandas as pd

        columns = {"a": self.a, "b": self.b, "similarity": self.similarities}
        return pd.DataFrame({**columns, "share_a": self.shares_a, "share_b": self.shares_b})

    def __repr__(self) -> str:
        return f"<Match along {self.index}: {len(self.a)} pairs, similarity {self.similarity:.3f}>"


def match(fit_a: Fit, fit_b: Fit, index: str | None = None) -> Match:
    """Match the components of two fits with components in any order and number.

    The fits may differ in restarts, data, priors, sizes of latent indices or in the whole model; they must have
    the same observed indices at the same sizes wherever ``index`` is summed over. ``index`` is the latent index that
    numbers the components, needed when a model has several.

    >>> import numpy as np, pltf
    >>> X = np.kron(np.diag([9, 5, 7]), np.ones((4, 3, 1)))
    >>> three, two = (pltf.cp(rank=r).fit(X, restarts=3) for r in (3, 2))
    >>> pltf.match(three, three).similarity.__round__(6)
    1.0
    >>> len(pltf.match(three, two).table)
    2
    """
    for argument, fit in (("fit_a", fit_a), ("fit_b", fit_b)):
        if not isinstance(fit, Fit):
            raise PltfError(f"{py:{argument}} must be a Fit, got {type(fit).__name__}")
    index = component_index(fit_a.model, index)
    if index not in fit_b.model.sizes:
        known = ", ".join(fit_b.model.sizes) or "none"
        raise PltfError(f"{py:fit_b} must have the latent index '{index}', got {known}")
    for observed in fit_a.labels.keys() & fit_b.labels.keys():
        if fit_a.labels[observed] != fit_b.labels[observed]:
            raise PltfError(f"{py:fit_b} must have the same labels of '{observed}' as {py:fit_a}, in the same order")
    a, b = (profiles(fit.model, fit._means, fit.sizes, index) for fit in (fit_a, fit_b))
    _check_alike(a, b)
    return matched(index, a, b)


@dataclass(frozen=True, eq=False)
class Profiles:
    """What each component explains: (components, positions) along every observed index of every tensor."""

    along: Mapping[tuple[str, str], Array]  # (tensor, index) -> rows of unit length, or of zeros
    mass: Mapping[str, Array]  # tensor -> expected counts of each component

    @property
    def share(self) -> Array:
        """Share of each component in all expected counts."""
        mass = np.sum(list(self.mass.values()), axis=0)
        return np.asarray(mass / mass.sum() if mass.sum() > 0 else np.full(mass.size, 1 / mass.size))


def profiles(model: Model, E: Factors, sizes: Mapping[str, int], index: str) -> Profiles:
    """Profiles of the components of a latent index, computed from the factors alone."""
    along, mass = {}, {}
    for equation in model.equations:
        if index not in equation.summed:
            continue
        tensor = equation.output.name
        for observed in equation.output.indices:
            rows = _explained(equation, E, index, observed)
            along[tensor, observed], mass[tensor] = _unit(rows), rows.sum(axis=1)
    return Profiles(along, mass)


def matched(index: str, a: Profiles, b: Profiles) -> Match:
    """The pairs with the largest sum of similarities, each weighted by what it explains."""
    from scipy.optimize import linear_sum_assignment  # slow to import

    alike, share_a, share_b = _alike(a, b), a.share, b.share
    one, other = linear_sum_assignment(-alike * (share_a[:, None] + share_b) / 2)
    order = np.argsort(-share_a[one], kind="stable")
    one, other = one[order], other[order]
    return Match(index, one, other, alike[one, other], share_a[one], share_b[other])


def _alike(a: Profiles, b: Profiles) -> Array:
    """Similarity of every component of one with every component of the other."""
    cosines = {tensor: np.ones((len(mass), len(b.mass[tensor]))) for tensor, mass in a.mass.items()}
    for (tensor, observed), rows in a.along.items():
        others = b.along[tensor, observed]
        nothing_a, nothing_b = (np.asarray(~one.any(axis=1)) for one in (rows, others))
        neither = nothing_a[:, None] & nothing_b  # two components that explain nothing of a tensor are equal there
        cosines[tensor] *= np.where(neither, 1.0, np.clip(rows @ others.T, 0, 1))
    masses = {tensor: a.mass[tensor][:, None] + b.mass[tensor] for tensor in cosines}
    total = np.sum(list(masses.values()), axis=0)
    even = np.full(total.shape, 1 / len(masses))
    weights = {t: np.divide(mass, total, out=even.copy(), where=total > 0) for t, mass in masses.items()}
    return np.asarray(np.sum([weights[tensor] * cosines[tensor] for tensor in cosines], axis=0))


def similarities(model: Model, sizes: Mapping[str, int], E: Factors, others: Iterable[Factors]) -> list[float]:
    """Similarity of a result to each of the others."""
    own = {index: profiles(model, E, sizes, index) for index in model.sizes}

    def to(other: Factors) -> float:
        found = [matched(index, one, profiles(model, other, sizes, index)).similarity for index, one in own.items()]
        return float(np.mean(found)) if found else 1.0

    return [to(other) for other in others]


def _explained(equation: Equation, E: Factors, index: str, observed: str) -> Array:
    """The expected counts of each component at each position of an observed index: (components, positions)."""
    places = [i for term in equation.factors for i in term.indices]
    kept, arrays = [], []
    for term in equation.factors:  # an index that only one factor has is summed before anything else
        stays = tuple(i for i in term.indices if places.count(i) > 1 or i in (index, observed))
        kept.append(stays)
        arrays.append(E[term.name].sum(axis=tuple(axis for axis, i in enumerate(term.indices) if i not in stays)))
    return np.asarray(_contraction(subscripts(kept, (index, observed)), *(array.shape for array in arrays))(*arrays))


@lru_cache(maxsize=64)
def _contraction(formula: str, *shapes: tuple[int, ...]) -> Any:
    """A compiled contraction: to find its path takes longer than a small contraction itself."""
    return oe.contract_expression(formula, *shapes)


def _unit(rows: Array) -> Array:
    scaled = rows / np.maximum(rows.max(axis=1, keepdims=True), np.finfo(float).tiny)
    return np.asarray(scaled / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), np.finfo(float).tiny))


def _check_alike(a: Profiles, b: Profiles) -> None:
    if a.along.keys() != b.along.keys():
        shown = [", ".join(f"{tensor}[{index}]" for tensor, index in one.along) for one in (a, b)]
        raise PltfError(f"{py:fit_a} and {py:fit_b} must explain the same tensors, got {shown[0]} and {shown[1]}")
    for (tensor, index), rows in a.along.items():
        sizes = rows.shape[1], b.along[tensor, index].shape[1]
        if sizes[0] != sizes[1]:
            raise PltfError(f"index '{index}' of {tensor} must have one size, got {sizes[0]} and {sizes[1]}")
