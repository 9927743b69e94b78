"""The problem, which a fit never changes, and the state, which every sweep replaces."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from pltf.engines.base import Counts, Engine
from pltf.gamma import Array, Gamma
from pltf.inference.factors import Factors

if TYPE_CHECKING:
    from pltf.inference.balance import Trade  # it brings the compiler
    from pltf.inference.priors import Groups


@dataclass(frozen=True, eq=False)
class Problem:
    """A model bound to its data, its priors and its fixed factors."""

    engine: Engine
    shapes: Mapping[str, tuple[int, ...]]  # of all factors, in model order
    priors: Mapping[str, Gamma]  # of the free factors, as given; empty for EM
    fixed: Factors
    total: float  # sum M*X over all tensors
    saturated: float  # sum M*log Poisson(X; X) over all tensors
    eps: float  # relative rounding of the engine's arithmetic
    trades: tuple[Trade, ...] | None = None  # how factors may trade scale; None: plain sweeps, no acceleration
    threads: int = 1
    learns: Mapping[str, Groups] = field(default_factory=dict)  # priors to be learned: which entries share a value

    @cached_property
    def free(self) -> tuple[str, ...]:
        """Factors to be learned, in the order in which a sweep updates them."""
        return tuple(name for name in self.shapes if name not in self.fixed)

    @cached_property
    def learns_shapes(self) -> bool:
        """Whether the shape of any prior is to be learned."""
        return any("shape" in self.priors[a].learns for a in self.learns)

    def log_likelihood(self, log_term: float, expected: float) -> float:
        """sum M*( X*log Xhat - Xhat - lgamma(X+1) ), from the log term and the expected total sum M*Xhat."""
        return self.saturated + log_term + (self.total - expected)

    def rounding(self, objective: float) -> float:
        """How much rounding alone may change an objective: its terms are of the size of counts and entries."""
        entries = sum(math.prod(self.shapes[name]) for name in self.free)
        return 100 * self.eps * (self.total + entries + abs(objective))


@dataclass(frozen=True, eq=False)
class Trail:
    """Where the last accelerated sweeps went."""

    before: Factors  # the last C (for EM and MAP the last estimates)
    residual: Array  # the logarithm of it less that of what a plain sweep makes of it; all factors in one array
    pairs: tuple[tuple[Array, Array], ...]  # changes of the two from sweep to sweep, the newest last


@dataclass(frozen=True, eq=False)
class Pace:
    """How the next sweep may try to go further than a plain one."""

    eta: float = 1.0  # over-relaxation
    refused: int = 0  # how often that has failed
    trail: Trail | None = None


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
    pace: Pace = Pace()
    waiting: bool = False  # the shapes of priors are to be learned, but not yet


@dataclass(frozen=True)
class Method:
    """A way of inference: how to begin from given L and E, one sweep, and how to go on from a state."""

    name: str
    objective: str
    begin: Callable[[Problem, Factors, Factors], State]
    step: Callable[[Problem, State], State]
    resume: Callable[[Problem, State], State]
