"""An engine whose cells were watched for a share of the time: exposures are that share of the whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pltf.engines.base import Counts, Engine, Number
from pltf.gamma import Array


@dataclass(frozen=True, eq=False)
class Scaled:
    """The sums of an engine with exposures times a number."""

    engine: Engine
    share: float

    @property
    def names(self) -> tuple[str, ...]:
        """The factors that it knows."""
        return self.engine.names

    @property
    def together(self) -> tuple[frozenset[str], ...]:
        """As of the engine."""
        return self.engine.together

    def counts(self, factors: Mapping[str, Array], wanted: Collection[str] | None = None, log: bool = True) -> Counts:
        """As of the engine: rates that are all multiplied by one number share out counts alike."""
        return self.engine.counts(factors, wanted, log)

    def allocate(self, factors: Mapping[str, Array], wanted: Collection[str] | None, key: tuple[int, ...]) -> Counts:
        """As of the engine."""
        return self.engine.allocate(factors, wanted, key)

    def exposure(self, factors: Mapping[str, Array], of: str) -> Array:
        return self.engine.exposure(factors, of) * self.share  # this way round: NumPy's numbers do not know tensors

    def total(self, factors: Mapping[str, Array]) -> Number:
        return self.share * self.engine.total(factors)

    def fresh(self) -> Scaled:
        """The same with nothing remembered."""
        return replace(self, engine=self.engine.fresh())
