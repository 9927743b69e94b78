"""Sums of engines: parts of a tensor, coupled tensors, cells on other machines.

Sums may be NumPy arrays or PyTorch tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pltf.engines.base import Counts, Engine, Number
from pltf.engines.either import added, library, like, one_number
from pltf.engines.factors import Version, Versioned
from pltf.engines.memo import Memo
from pltf.errors import ConvergenceWarning, py, warn_caller
from pltf.gamma import Array

CANCELLED = 1e-9  # relative size below which a difference has lost its precision


@dataclass(frozen=True, eq=False)
class Summand:
    """An engine and its contributions to a sum."""

    engine: Engine
    counts: bool = True
    exposure: int = 1  # 1: added, -1: subtracted (the cells are missing), 0: not used


class Observed(Protocol):
    """The observed cells of a tensor, for exposures that lose their precision in a difference."""

    def engine(self) -> Engine | None:
        """An engine that visits them one by one; None if there are too many."""

    def untouched(self, of: str) -> NDArray[np.bool_]:
        """Entries of a factor without observed cells, in a shape that broadcasts to it."""


class SumEngine:
    """The sums of its parts, added in order.

    Each part may have only some of the factors, as in coupled tensors. Where missing cells are subtracted from a closed
    form, ``observed`` is used if the difference loses too much precision.
    """

    def __init__(self, parts: Sequence[Summand], observed: Observed | None = None) -> None:
        self._parts, self._observed = tuple(parts), observed
        self.names = tuple(dict.fromkeys(name for part in parts for name in part.engine.names))
        self._exact: Engine | None = None
        self._memo: Memo[Array] = Memo()

    def counts(self, factors: Mapping[str, Array], wanted: Collection[str] | None = None, log: bool = True) -> Counts:
        return self._added(wanted, lambda engine, held, _: engine.counts(factors, held, log))

    def allocate(self, factors: Mapping[str, Array], wanted: Collection[str] | None, key: tuple[int, ...]) -> Counts:
        """Allocates each part with its own random numbers."""
        return self._added(wanted, lambda engine, held, number: engine.allocate(factors, held, (*key, number)))

    def _added(self, wanted: Collection[str] | None, of_part: Callable[[Engine, list[str], int], Counts]) -> Counts:
        names = self.names if wanted is None else tuple(name for name in self.names if name in wanted)
        sums: dict[str, Array] = {}
        log_term: Number = 0.0
        for number, engine in enumerate(self._counting):
            held = [name for name in names if name in engine.names]
            found = of_part(engine, held, number)
            log_term += found.log_term
            for name in held:
                sums[name] = sums[name] + found.by_factor[name] if name in sums else found.by_factor[name]
        return Counts({name: sums[name] for name in names}, log_term)

    @property
    def _counting(self) -> list[Engine]:
        """Parts that have counts."""
        return [part.engine for part in self._parts if part.counts]

    @cached_property
    def together(self) -> tuple[frozenset[str], ...]:
        """Groups of factors that no part draws separately."""
        groups: list[set[str]] = []
        for name in self.names:
            found = next((group for group in groups if self._drawn_at_once({*group, name})), None)
            if found is None:
                groups.append({name})
            else:
                found.add(name)
        return tuple(map(frozenset, groups))

    def _drawn_at_once(self, names: Collection[str]) -> bool:
        """Whether every part has all its factors among these in one group."""
        held = ([group.intersection(names) for group in engine.together] for engine in self._counting)
        return all(sum(map(bool, shares)) <= 1 for shares in held)

    def exposure(self, factors: Mapping[str, Array], of: str) -> Array:
        factors = Versioned.of(factors)
        others = self._others(factors, of)
        return self._memo.get(of, others, lambda: self._new_exposure(factors, of))

    def _new_exposure(self, factors: Versioned[Array], of: str) -> Array:
        parts = [part for part in self._parts if part.exposure and of in part.engine.names]
        added = reduce(add, (part.engine.exposure(factors, of) for part in parts if part.exposure > 0))
        holes = [part.engine.exposure(factors, of) for part in parts if part.exposure < 0]
        if not holes:
            return added
        return self._checked(added - reduce(add, holes), added, factors, of)

    def _checked(self, exposure: Array, added: Array, factors: Versioned[Array], of: str) -> Array:
        """The difference, or the sum over the observed cells where the difference has lost its precision."""
        cancelled = exposure < CANCELLED * added
        if not cancelled.any() or self._observed is None:
            return exposure.clip(0.0)
        untouched = like(self._observed.untouched(of), exposure)
        exposure = library(exposure).where(untouched, 0.0, exposure)
        if not (cancelled & ~untouched).any():
            return exposure
        if self._exact is None:
            self._exact = self._observed.engine()
        if self._exact is not None:
            return self._exact.exposure(factors, of)
        text = "the rates of missing cells are so much larger than the observed ones that exposures lose precision"
        advice = f"list the observed cells, with {py:unlisted='missing'}"
        warn_caller(f"{text}: {advice}", ConvergenceWarning)
        return exposure.clip(0.0)

    def total(self, factors: Mapping[str, Array]) -> Number:
        """For one tensor, from the exposure of any factor (a cached one if possible); for several, tensor by tensor."""
        if any(set(part.engine.names) != set(self.names) for part in self._parts):
            return added([part.exposure * part.engine.total(factors) for part in self._parts])
        factors = Versioned.of(factors)
        known = [name for name in self.names if self._memo.holds(name, self._others(factors, name))]
        of = (known or self.names[-1:])[0]
        return one_number((factors[of] * self.exposure(factors, of)).sum())

    def fresh(self) -> SumEngine:
        return SumEngine([replace(part, engine=part.engine.fresh()) for part in self._parts], self._observed)

    def _others(self, factors: Versioned[Array], of: str) -> tuple[Version, ...]:
        return factors.versions(name for name in self.names if name != of)
