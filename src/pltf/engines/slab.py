"""A slab of a tensor as a part of it: some positions of one index, with a separate engine."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pltf.engines.base import Counts, Engine, Number, OverArrays
from pltf.engines.either import library, spread
from pltf.engines.factors import Versioned
from pltf.gamma import Array
from pltf.notation import Equation


class Slab(OverArrays):
    """Sums over some positions of an index, with the shapes of the whole tensor."""

    def __init__(self, engine: Engine, equation: Equation, index: str, positions: slice) -> None:
        self._engine, self._positions = engine, positions
        held = {term.name: term.indices for term in equation.factors}
        self._axes = {name: indices.index(index) for name, indices in held.items() if index in indices}
        self.names = tuple(held)

    def counts(self, factors: Mapping[str, Array], wanted: Collection[str] | None = None, log: bool = True) -> Counts:
        found = self._engine.counts(self._cut(factors), wanted, log)
        return Counts({name: self._put(sums, factors, name) for name, sums in found.by_factor.items()}, found.log_term)

    def exposure(self, factors: Mapping[str, Array], of: str) -> Array:
        return self._put(self._engine.exposure(self._cut(factors), of), factors, of)

    def total(self, factors: Mapping[str, Array]) -> Number:
        return self._engine.total(self._cut(factors))

    def fresh(self) -> Slab:
        twin = object.__new__(Slab)
        twin.__dict__.update(self.__dict__, _engine=self._engine.fresh())
        return twin

    def _cut(self, factors: Mapping[str, Array]) -> Versioned[Array]:
        """The factors at these positions; a slice keeps the version of the whole array: it is always the same slice."""
        whole = Versioned.of(factors)
        arrays = {name: whole[name] for name in self.names}
        for name in self._axes:
            part = arrays[name][self._where(name)]
            arrays[name] = spread(part, part.shape)
        return Versioned(arrays, dict(zip(self.names, whole.versions(self.names), strict=True)))

    def _put(self, sums: Array, factors: Mapping[str, Array], name: str) -> Array:
        if name not in self._axes:
            return sums
        whole: Array = library(sums).zeros_like(factors[name])
        whole[self._where(name)] = sums
        return whole

    def _where(self, name: str) -> tuple[slice, ...]:
        return (*(slice(None),) * self._axes[name], self._positions)
