"""What engines over listed cells share, on the host or a device."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Self

from pltf.engines.base import Counts, Number
from pltf.engines.either import one_number

Key = tuple[int, ...] | None  # of random numbers; None: expected counts


class OverLists:
    """An engine that visits listed cells: expected and drawn counts come from the same pass, and nothing is cached."""

    names: tuple[str, ...]

    def counts(self, factors: Mapping[str, Any], wanted: Collection[str] | None = None, log: bool = True) -> Counts:
        return self._counted(factors, wanted, log)

    def allocate(self, factors: Mapping[str, Any], wanted: Collection[str] | None, key: tuple[int, ...]) -> Counts:
        return self._counted(factors, wanted, log=True, key=key)

    def _counted(
        self, factors: Mapping[str, Any], wanted: Collection[str] | None, log: bool, key: Key = None
    ) -> Counts:
        raise NotImplementedError

    def exposure(self, factors: Mapping[str, Any], of: str) -> Any:
        raise NotImplementedError

    def total(self, factors: Mapping[str, Any]) -> Number:
        of = self.names[-1]
        return one_number((factors[of] * self.exposure(factors, of)).sum())

    def fresh(self) -> Self:
        return self
