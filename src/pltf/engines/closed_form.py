"""Exposure of a fully observed tensor: the sums factorize, no cell is visited.

Factors may be NumPy arrays or PyTorch tensors; sums have the same type.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Self

import opt_einsum as oe

from pltf.engines.base import Counts, Number, OverArrays, chosen
from pltf.engines.contraction import subscripts
from pltf.engines.either import library, one_number, spread, summed, with_axes
from pltf.gamma import Array
from pltf.notation import Equation, Term


class ClosedForm(OverArrays):
    """Delta_a(1) of every factor of an equation. As a part of a sum it has exposures, but no counts."""

    def __init__(self, equation: Equation, sizes: Mapping[str, int]) -> None:
        self.names = tuple(term.name for term in equation.factors)
        self._one_factor = {term.name: _OneFactor(equation, term, sizes) for term in equation.factors}

    def counts(self, factors: Mapping[str, Array], wanted: Collection[str] | None = None, log: bool = True) -> Counts:
        """No counts: there are no cells here."""
        zeros = {name: library(factors[name]).zeros_like(factors[name]) for name in chosen(self.names, wanted)}
        return Counts(zeros, 0.0)

    def exposure(self, factors: Mapping[str, Array], of: str) -> Array:
        exposure: Array = spread(self.compact(factors, of), factors[of].shape)
        return exposure

    def compact(self, factors: Mapping[str, Array], of: str) -> Any:
        """Delta of ``of``, with axes of size 1 where it does not vary."""
        return self._one_factor[of](factors)

    def total(self, factors: Mapping[str, Array]) -> Number:
        return one_number(self._one_factor[self.names[-1]].total(factors))

    def fresh(self) -> Self:
        return self


class _OneFactor:
    def __init__(self, equation: Equation, of: Term, sizes: Mapping[str, int]) -> None:
        self._of = of.name
        self._others = [term for term in equation.factors if term is not of]
        places = [index for term in (*self._others, of) for index in term.indices]
        # An index that occurs in only one of the others, and not in this factor, is summed first.
        kept = [tuple(i for i in term.indices if places.count(i) > 1) for term in self._others]
        self._summed = [
            tuple(axis for axis, index in enumerate(term.indices) if index not in indices)
            for term, indices in zip(self._others, kept, strict=True)
        ]
        held = tuple(index for index in of.indices if places.count(index) > 1)
        self._new_axes = tuple(axis for axis, index in enumerate(of.indices) if index not in held)
        self._contract = None  # without other factors there is nothing to contract
        if self._others:
            shapes = [tuple(sizes[index] for index in indices) for indices in kept]
            self._contract = oe.contract_expression(subscripts(kept, held), *shapes)

    def __call__(self, factors: Mapping[str, Array]) -> Any:
        return with_axes(self._held(factors), self._new_axes)

    def total(self, factors: Mapping[str, Array]) -> Any:
        """The sum of all rates: the factor is summed first where its exposure does not vary."""
        return (summed(factors[self._of], self._new_axes) * self._held(factors)).sum()

    def _held(self, factors: Mapping[str, Array]) -> Any:
        """The exposure, without the axes along which it does not vary."""
        like = library(factors[self._of])
        if self._contract is None:
            return like.ones_like(factors[self._of][(0,) * len(self._new_axes)])
        terms = [summed(factors[term.name], axes) for term, axes in zip(self._others, self._summed, strict=True)]
        return like.asarray(self._contract(*terms))
