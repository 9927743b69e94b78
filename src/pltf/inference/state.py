"""The problem, which a fit never changes, and the state, which every sweep replaces."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pltf.engines.base import Counts, Engine, Number
from pltf.gamma import Gamma
from pltf.inference.algebra import Algebra, Factors, Groups

if TYPE_CHECKING:
    from pltf.inference.balance import Trade


@dataclass(frozen=True, eq=False)
class Problem:
    """A model bound to its data, its priors and its fixed factors."""

    engine: Engine
    algebra: Algebra[Any]  # of the arrays that the engine takes and gives
    shapes: Mapping[str, tuple[int, ...]]  # of all factors, in model order
    priors: Mapping[str, Gamma]  # of the free factors, as given; empty for EM
    fixed: Factors
    total: float  # sum M*X over all tensors
    saturated: float  # sum M*log Poisson(X; X) over the tensors of counts
    eps: float  # relative rounding of the engine's arithmetic
    trades: tuple[Trade, ...] | None = None  # how factors may trade scale; None: plain sweeps, no acceleration
    learns: Mapping[str, Groups] = field(default_factory=dict)  # priors to be learned: which entries share a value
    links: float = 0.0  # sum M*X over the tensors of links, which have no constants in the log-likelihood

    @cached_property
    def free(self) -> tuple[str, ...]:
        """Factors to be learned, in the order in which a sweep updates them."""
        return tuple(name for name in self.shapes if name not in self.fixed)

    @cached_property
    def learns_shapes(self) -> bool:
        """Whether the shape of any prior is to be learned."""
        return any("shape" in self.priors[a].learns for a in self.learns)

    def log_likelihood(self, log_term: Number, expected: Number) -> Number:
        """The log-likelihood of all tensors, from the log term and the expected total sum M*Xhat.

        Counts: sum M*( X*log Xhat - Xhat - lgamma(X+1) ). Links: sum M*( X*log(exp(Xhat)-1) - Xhat ).
        """
        return self.saturated + log_term + ((self.total - self.links) - expected)

    @cached_property
    def _size(self) -> float:
        """Of the terms of an objective: counts, those that priors stand for, and entries."""
        size = self.total
        for a in self.free:
            size += math.prod(self.shapes[a])
            if a in self.priors:
                size += float((self.priors[a].broadcast(self.shapes[a])[0] - 1).clip(0).sum())
        return size

    def rounding(self, objective: float) -> float:
        """How much rounding alone may change an objective."""
        return 100 * self.eps * (self._size + abs(objective))


@dataclass(frozen=True, eq=False)
class Trail:
    """Where the last accelerated sweeps went."""

    before: Factors  # the last C (for EM and MAP the last estimates)
    residual: Factors  # the logarithm of it less that of what a plain sweep makes of it
    pairs: tuple[tuple[Factors, Factors], ...]  # changes of the two from sweep to sweep, the newest last


@dataclass(frozen=True, eq=False)
class Pace:
    """How the next sweep may try to go further than a plain one."""

    eta: float = 1.0  # over-relaxation
    refused: int = 0  # how often that has failed
    trail: Trail | None = None


FIRST_PACE = Pace()


@dataclass(frozen=True, eq=False)
class State:
    """What is believed after a sweep, with the counts that the next sweep starts from."""

    E: Factors  # mean of every factor; for EM and MAP the estimate
    L: Factors  # geometric mean; for EM and MAP the estimate too
    C: Factors  # posterior shape of the free factors; empty before the first VB sweep and for EM, MAP
    D: Factors  # posterior scale, likewise
    counts: Counts  # at L
    priors: Mapping[str, Gamma]  # of the free factors, as learned so far; empty for EM
    objective: float  # bound, log-likelihood or log-posterior; -inf before the first VB sweep
    zeros: int = 0  # entries that MAP has set to zero: objectives compare only while it stays
    pace: Pace = FIRST_PACE
    waiting: bool = False  # the shapes of priors are to be learned, but not yet


def fetched(state: State, algebra: Algebra[Any]) -> State:
    """The state with all of its arrays on the host, to be kept or shown."""
    return state if algebra.on_host else _converted(state, algebra.get)


def placed(state: State, algebra: Algebra[Any]) -> State:
    """A state from the host, to go on with."""
    return state if algebra.on_host else _converted(state, algebra.put)


def _converted(state: State, convert: Callable[[Any], Any]) -> State:
    def all_of(factors: Factors) -> Factors:
        return {a: convert(array) for a, array in factors.items()}

    E, L, C, D = (all_of(factors) for factors in (state.E, state.L, state.C, state.D))
    counts = Counts(all_of(state.counts.by_factor), float(state.counts.log_term))
    pace, trail = state.pace, state.pace.trail
    if trail is not None:
        pairs = tuple((all_of(s), all_of(y)) for s, y in trail.pairs)
        pace = replace(pace, trail=Trail(all_of(trail.before), all_of(trail.residual), pairs))
    return replace(state, E=E, L=L, C=C, D=D, counts=counts, pace=pace)


@dataclass(frozen=True)
class Method:
    """A way of inference: how to begin from given L and E, one sweep, and how to go on from a state."""

    name: str
    objective: str
    begin: Callable[[Problem, Factors, Factors], State]
    step: Callable[[Problem, State], State]
    resume: Callable[[Problem, State], State]
