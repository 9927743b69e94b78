"""Variational Bayes: Algorithm 1 of the paper, exact coordinate ascent on the ELBO."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from pltf.engines.base import Counts, Number
from pltf.engines.either import added
from pltf.engines.factors import Versioned
from pltf.gamma import PARTS, Gamma
from pltf.inference.accelerate import Make, accelerated, unchanged
from pltf.inference.algebra import Factors
from pltf.inference.algebra.flat import Late
from pltf.inference.balance import balanced
from pltf.inference.priors import with_best_mean, with_best_shape
from pltf.inference.state import FIRST_PACE, Method, Pace, Problem, State, Trail

QUIET = 1e-4  # relative gain of the ELBO per iteration below which the shapes of priors are learned


def begin(problem: Problem, L: Factors, E: Factors) -> State:
    """The state before the first iteration: there is no posterior and no ELBO yet."""
    counts = problem.engine.counts(L, problem.free)
    return State(E, L, {}, {}, counts, problem.priors, -math.inf, waiting=problem.learns_shapes)


def step(problem: Problem, state: State) -> State:
    """One iteration: prior shapes, q(S) and every C from the same Xhat_L, then D and E factor by factor, then L.

    C_a = A_a + L_a * Delta_a^L(M*X/Xhat_L);   D_a = 1 / (A_a/B_a + Delta_a^E(M));   E_a = C_a*D_a
    """
    # At the beginning, small shapes would trap the factors near their start values.
    if not state.waiting:
        return _swept(problem, _with_better_shapes(problem, state) if problem.learns_shapes else state)
    new = _swept(problem, state)
    loud = new.objective - state.objective > QUIET * abs(new.objective)
    return replace(new, waiting=True) if loud else new


def _with_better_shapes(problem: Problem, state: State) -> State:
    """The state with the best prior shapes."""
    priors = {
        a: with_best_shape(problem.algebra, prior, problem.learns[a], state.E[a], state.C[a], state.D[a])
        if "shape" in prior.learns
        else prior
        for a, prior in state.priors.items()
    }
    return replace(state, priors=priors)


def _swept(problem: Problem, state: State) -> State:
    propose = partial(_proposed, problem, state)
    if problem.trades is None or not state.C:
        return propose(FIRST_PACE, unchanged)
    return accelerated(state, propose)


def _proposed(problem: Problem, state: State, pace: Pace, make: Make, *given: Any) -> State:
    """The rest of an iteration, given how its C follows from a plain one."""
    if problem.learns_shapes:  # which are learned on the host
        problem = replace(problem, priors=state.priors, recordings=None)
    parts: Posteriors = problem.replayed(
        completed, make, state.E, state.C, state.counts.by_factor, _learned_means(state.priors), *given
    )
    return state_of(problem, parts, pace)


class Posteriors(NamedTuple):
    """A state as arrays and numbers, all of which may stay on a device; of several restarts, with an axis over them."""

    E: Factors  # these four are all that a plain iteration needs; together, a recording copies them at once
    C: Factors
    counts: Factors
    means: Mapping[str, Any]  # learned ones, of priors
    trail: Trail | None
    L: Factors
    D: Factors
    log_term: Number
    bound: Number


def completed(
    problem: Problem, make: Make, E: Factors, old: Factors, counts: Factors, means: Mapping[str, Any], *given: Any
) -> Posteriors:
    """C from the counts, then D and E factor by factor, then L."""
    algebra, engine, priors = problem.algebra, problem.engine, with_means(problem.priors, means)
    C, trail = make(algebra, old, algebra.shapes(priors, counts), old, *given)
    E, D, free = Versioned.of(E), dict[str, Any](), dict(problem.fixed)
    for a in problem.free:
        exposure = engine.exposure(E, a)
        if "mean" in priors[a].learns:
            priors[a], D[a], free[a] = with_best_mean(algebra, priors[a], problem.learns[a], C[a], exposure)
        else:
            D[a], free[a] = algebra.scales(C[a], exposure, priors[a])
        E = E.updated({a: free[a]})
    expected = engine.total(E)  # balancing does not change it, and before it there is no extra cost
    if problem.trades:
        free, D = balanced(algebra, problem.trades, priors, free, D)
        E = Versioned(free)
    return _evaluated(problem, priors, E, C, D, expected)._replace(trail=trail)


def _evaluated(
    problem: Problem, priors: Mapping[str, Gamma], E: Factors, C: Factors, D: Factors, expected: Number
) -> Posteriors:
    """Given posteriors with their ELBO; the same pass gives the counts of the next iteration.

    ELBO = sum M*( X*log Xhat_L - Xhat_E - lgamma(X+1) ) - sum_a KL( q(Z_a) || p(Z_a) ); for links the first sum is
    sum M*( X*log(exp(Xhat_L)-1) - Xhat_E )
    """
    L, kl = dict(problem.fixed), []
    for a in problem.free:
        L[a], part = problem.algebra.geomean_kl(C[a], D[a], priors[a])
        kl.append(part)
    counts = problem.engine.counts(L, problem.free)
    bound = problem.log_likelihood(counts.log_term, expected) - added(kl)
    return Posteriors(E, C, counts.by_factor, _learned_means(priors), None, L, D, counts.log_term, bound)


class Learned(Mapping[str, Gamma]):
    """Priors with learned means that are results of a replay, until somebody asks for them."""

    def __init__(self, priors: Mapping[str, Gamma], means: Mapping[str, Any]) -> None:
        self._priors, self.means = priors, means

    def __getitem__(self, a: str) -> Gamma:
        prior = self._priors[a]
        return prior.with_values(prior.shape, self.means[a]) if a in self.means else prior

    def __iter__(self) -> Iterator[str]:
        return iter(self._priors)

    def __len__(self) -> int:
        return len(self._priors)


def _learned_means(priors: Mapping[str, Gamma]) -> Mapping[str, Any]:
    if isinstance(priors, Learned):
        return priors.means
    return {a: prior.mean for a, prior in priors.items() if "mean" in prior.learns}


def with_means(priors: Mapping[str, Gamma], means: Mapping[str, Any]) -> dict[str, Gamma]:
    """The priors with the means learned so far."""
    return dict(Learned(priors, means))


def state_of(problem: Problem, parts: Posteriors, pace: Pace) -> State:
    """The state with these arrays."""
    counts, pace = Counts(parts.counts, parts.log_term), Pace(pace.eta, pace.refused, parts.trail)
    priors: Mapping[str, Gamma] = Learned(problem.priors, parts.means)
    if not isinstance(parts.means, Late):
        priors = dict(priors)
    return State(parts.E, parts.L, parts.C, parts.D, counts, priors, float(parts.bound), pace=pace)


def posterior_state(
    problem: Problem, priors: Mapping[str, Gamma], E: Factors, C: Factors, D: Factors, expected: Number
) -> State:
    """The state of given posteriors."""
    problem = replace(problem, priors=priors)
    return state_of(problem, _evaluated(problem, priors, E, C, D, expected), FIRST_PACE)


def resume(problem: Problem, state: State) -> State:
    """The state of another fit under this problem; learned priors start from their learned values."""
    if not set(problem.free) <= set(state.C):
        return begin(problem, {**state.L, **problem.fixed}, {**state.E, **problem.fixed})
    C, D = ({a: part[a] for a in problem.free} for part in (state.C, state.D))
    E = {**state.E, **problem.fixed}
    priors = {a: gone_on(prior, state.priors.get(a, prior)) for a, prior in problem.priors.items()}
    state = posterior_state(problem, priors, E, C, D, problem.engine.total(E))
    return replace(state, waiting=problem.learns_shapes)


def gone_on(given: Gamma, earlier: Gamma) -> Gamma:
    """The prior to resume with: learned values of an earlier fit are kept if they were shared in the same way."""
    known = earlier.learns if given.tie == earlier.tie else ()
    shape, mean = (getattr(earlier if part in given.learns and part in known else given, part) for part in PARTS)
    return given.with_values(shape, mean)


VB = Method("vb", "bound", begin, step, resume)
