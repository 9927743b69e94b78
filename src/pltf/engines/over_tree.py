"""Exposures of an array through the contraction tree, on the host or a device: what passes over its cells share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pltf.engines.base import Number, OverArrays
from pltf.engines.closed_form import ClosedForm
from pltf.engines.contraction import Tree
from pltf.engines.either import one_number, spread
from pltf.engines.factors import Version, Versioned
from pltf.engines.memo import Memo, Remembering


class OverTree(OverArrays, Remembering):
    """An engine over an array, which keeps partial results for the nodes of its tree.

    Exposures are always float64: they determine the total in the ELBO.
    """

    def __init__(self, tree: Tree, sizes: Mapping[str, int], *, masked: bool) -> None:
        self._tree, self._memo = tree, Memo()
        self.names = tree.names
        self._closed_form = None if masked else ClosedForm(tree.equation, sizes)

    def exposure(self, factors: Mapping[str, Any], of: str) -> Any:
        if self._closed_form is not None:
            return self._closed_form.exposure(factors, of)
        leaf = self._tree.names.index(of)
        delta = self._mask_delta(leaf, Versioned.of(factors))
        return spread(self._tree.unleaf(leaf, delta), factors[of].shape)

    def total(self, factors: Mapping[str, Any]) -> Number:
        of = self._cheapest(factors)
        return one_number((factors[of] * self.exposure(factors, of)).sum())

    def _cheapest(self, factors: Mapping[str, Any]) -> str:
        """A factor whose exposure is cached, if any: all of them give the same total."""
        names = self._tree.names
        if self._closed_form is None and isinstance(factors, Versioned):
            for leaf, name in enumerate(names):
                if self._memo.holds(("delta", leaf), self._outside(leaf, factors)):
                    return name
        return names[-1]

    def _mask_delta(self, node: int, factors: Versioned[Any]) -> Any:
        """Delta(M) of a node, cached while the factors outside it stay the same."""
        outside = self._outside(node, factors)
        return self._memo.get(("delta", node), outside, lambda: self._new_mask_delta(node, factors))

    def _new_mask_delta(self, node: int, factors: Versioned[Any]) -> Any:
        """Delta(M) of a node, from that of its parent or by a pass over the cells."""
        raise NotImplementedError

    def _value(self, node: int, factors: Versioned[Any]) -> Any:
        """Value of a node over the whole tensor, cached while its factors stay the same."""
        tree = self._tree
        if node < len(tree.names):
            return tree.leaf(node, factors[tree.names[node]])
        step = tree.steps[node - len(tree.names)]
        below = factors.versions(tree.names[leaf] for leaf in sorted(tree.below[node]))
        return self._memo.get(
            ("value", node),
            below,
            lambda: step.forward(self._value(step.left, factors), self._value(step.right, factors)),
        )

    def _outside(self, node: int, factors: Versioned[Any]) -> tuple[Version, ...]:
        return factors.versions(
            name for leaf, name in enumerate(self._tree.names) if leaf not in self._tree.below[node]
        )
