"""An engine whose cells were observed for a fraction of the time: its exposures are multiplied by that fraction."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pltf.engines.base import Counts, Engine, Number
from pltf.gamma import Array


@dataclass(frozen=True, eq=False)
class Scaled:
    """The sums of an engine, with exposures multiplied by a number."""

    engine: Engine
    share: float

    @property
    def names(self) -> tuple[str, ...]:
        return self.engine.names

    @property
    def together(self) -> tuple[frozenset[str], ...]:
        return self.engine.together

    def counts(self, factors: Mapping[str, Array], wanted: Collection[str] | None = None, log: bool = True) -> Counts:
        """As for the wrapped engine: a common factor of all rates does not change the allocation of counts."""
        return self.engine.counts(factors, wanted, log)

    def allocate(self, factors: Mapping[str, Array], wanted: Collection[str] | None, key: tuple[int, ...]) -> Counts:
        return self.engine.allocate(factors, wanted, key)

    def exposure(self, factors: Mapping[str, Array], of: str) -> Array:
        return self.engine.exposure(factors, of) * self.share  # in this order: NumPy scalars do not support tensors

    def total(self, factors: Mapping[str, Array]) -> Number:
        return self.share * self.engine.total(factors)

    def fresh(self) -> Scaled:
        return replace(self, engine=self.engine.fresh())
