"""The problem, which is constant during a fit, and the state, which every iteration replaces."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from pltf.engines.base import Counts, Engine, Number
from pltf.gamma import Gamma
from pltf.inference.algebra import Algebra, Factors, Groups
from pltf.inference.algebra.host import prior_on_host

if TYPE_CHECKING:
    from pltf.inference.algebra.recording import Recordings
    from pltf.inference.balance import Trade


@dataclass(frozen=True, eq=False)
class Problem:
    """A model with its data, priors and fixed factors."""

    engine: Engine
    algebra: Algebra[Any]  # works on the arrays of the engine
    shapes: Mapping[str, tuple[int, ...]]  # of all factors, in model order
    priors: Mapping[str, Gamma]  # priors of the free factors, as given; empty for EM
    fixed: Factors
    total: float  # sum M*X over all tensors
    saturated: float  # sum M*log Poisson(X; X) over the count tensors
    eps: float  # relative rounding error of the engine's arithmetic
    trades: tuple[Trade, ...] | None = None  # possible exchanges of scale; None: plain iterations without acceleration
    learns: Mapping[str, Groups] = field(default_factory=dict)  # learned priors: which entries share a value
    links: float = 0.0  # sum M*X over the link tensors, whose log-likelihood has no constants
    recordings: Recordings | None = None  # of iterations on a device; kept by copies of the problem

    @cached_property
    def free(self) -> tuple[str, ...]:
        """Factors to be learned, in the order of their updates."""
        return tuple(name for name in self.shapes if name not in self.fixed)

    @cached_property
    def learns_shapes(self) -> bool:
        """Whether the shape of any prior is learned."""
        return any("shape" in self.priors[a].learns for a in self.learns)

    def log_likelihood(self, log_term: Number, expected: Number) -> Number:
        """The log-likelihood of all tensors, from the log term and the expected total sum M*Xhat.

        Counts: sum M*( X*log Xhat - Xhat - lgamma(X+1) ). Links: sum M*( X*log(exp(Xhat)-1) - Xhat ).
        """
        return self.saturated + log_term + ((self.total - self.links) - expected)

    def replayed(self, work: Callable[..., Any], make: Callable[..., Any], *given: Any) -> Any:
        """``work(problem, make, *given)``: nested mappings and tuples of arrays, replayed if there is a recording."""
        if self.recordings is None:
            return work(self, make, *given)
        return self.recordings.replayed((work, make), lambda *one: work(self._alone, make, *one), given)

    @property
    def _alone(self) -> Problem:
        """This problem, whose engine has remembered nothing yet."""
        return replace(self, engine=self.engine.fresh(), recordings=None)

    @cached_property
    def _size(self) -> float:
        """Magnitude of the terms of an objective: counts, prior counts, and entries."""
        size = self.total
        for a in self.free:
            size += math.prod(self.shapes[a])
            if a in self.priors:
                size += float((self.priors[a].broadcast(self.shapes[a])[0] - 1).clip(0).sum())
        return size

    def rounding(self, objective: float) -> float:
        """How much an objective can change by rounding alone."""
        return 100 * self.eps * (self._size + abs(objective))


class Trail(NamedTuple):
    """The last accelerated steps."""

    before: Factors  # the last C (for EM and MAP, the last estimates)
    residual: Factors  # its logarithm minus that of the result of a plain iteration
    pairs: tuple[tuple[Factors, Factors], ...]  # changes of the two between iterations, the latest last


@dataclass(frozen=True, eq=False)
class Pace:
    """How the next iteration is accelerated."""

    eta: float = 1.0  # factor of over-relaxation
    refused: int = 0  # number of rejected steps
    trail: Trail | None = None


FIRST_PACE = Pace()


@dataclass(frozen=True, eq=False)
class State:
    """All beliefs after an iteration, with the counts for the next one."""

    E: Factors  # mean of every factor; for EM and MAP the estimate
    L: Factors  # geometric mean; for EM and MAP the estimate as well
    C: Factors  # posterior shape of the free factors; empty before the first VB sweep and for EM, MAP
    D: Factors  # posterior scale, likewise
    counts: Counts  # at L
    priors: Mapping[str, Gamma]  # priors of the free factors, as learned so far; empty for EM
    objective: float  # ELBO, log-likelihood or log-posterior; -inf before the first VB iteration
    zeros: int = 0  # entries that MAP has set to zero: objectives are comparable only for the same number
    pace: Pace = FIRST_PACE
    waiting: bool = False  # whether prior shapes are learned, but not yet

    @property
    def at_end(self) -> State:
        """The state without what only further iterations of the same run need."""
        return replace(self, pace=replace(self.pace, trail=None))


def fetched(state: State, algebra: Algebra[Any]) -> State:
    """The state with all its arrays on the host, to be stored or shown."""
    if algebra.on_host:
        return state
    priors = {a: prior_on_host(algebra, prior) for a, prior in state.priors.items()}
    return replace(_converted(state, algebra.get), priors=priors)


def placed(state: State, algebra: Algebra[Any]) -> State:
    """The state with its arrays moved from the host to the algebra."""
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
    """An inference method: start from given L and E, iterate, and resume from a state."""

    name: str
    objective: str
    begin: Callable[[Problem, Factors, Factors], State]
    step: Callable[[Problem, State], State]
    resume: Callable[[Problem, State], State]


def shown_objective(name: str) -> str:
    """An objective as messages and tables call it; "bound" is its name in files and attributes."""
    return "ELBO" if name == "bound" else name
