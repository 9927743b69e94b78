"""EM (maximum likelihood) and MAP: multiplicative updates; Xhat is recomputed after each factor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from pltf.engines.base import Counts, Number
from pltf.engines.factors import Versioned
from pltf.inference.accelerate import Make, accelerated, unchanged
from pltf.inference.algebra import Factors
from pltf.inference.algebra.flat import Late
from pltf.inference.state import FIRST_PACE, Method, Pace, Problem, State, Trail

# (problem, factor name, value, expected counts, exposure) -> new value
Update = Callable[[Problem, str, Any, Any, Any], Any]


def _em_update(problem: Problem, a: str, Z: Any, counts: Any, exposure: Any) -> Any:
    """Z_a <- Z_a*Delta_a(M*X/Xhat) / Delta_a(M); entries without observed cells stay unchanged."""
    return problem.algebra.em_estimate(Z, counts, exposure)


def _map_update(problem: Problem, a: str, Z: Any, counts: Any, exposure: Any) -> Any:
    """Z_a <- max(A_a - 1 + Z_a*Delta_a(M*X/Xhat), 0) / (A_a/B_a + Delta_a(M))."""
    return problem.algebra.map_estimate(counts, exposure, problem.priors[a])


class Estimates(NamedTuple):
    """Estimates with their objective, all of which may stay on a device."""

    Z: Factors
    counts: Factors  # of the first factor
    log_term: Number
    objective: Number
    zeros: Number
    trail: Trail | None


def _evaluated(problem: Problem, Z: Factors, trail: Trail | None = None) -> Estimates:
    """Estimates with their objective; the same pass gives the next counts of the first factor."""
    algebra, priors = problem.algebra, problem.priors.items()
    counts = problem.engine.counts(Z, problem.free[:1])
    objective = problem.log_likelihood(counts.log_term, problem.engine.total(Z))
    objective += sum(algebra.log_prior(Z[a], prior) for a, prior in priors)
    zeros = sum(algebra.unbounded_zeros(Z[a], prior) for a, prior in priors)
    return Estimates(Z, counts.by_factor, counts.log_term, objective, zeros, trail)


def _state(problem: Problem, parts: Estimates, pace: Pace = FIRST_PACE) -> State:
    Z, counts = parts.Z, Counts(parts.counts, parts.log_term)
    pace = replace(pace, trail=parts.trail)
    return State(Z, Z, {}, {}, counts, problem.priors, float(parts.objective), int(parts.zeros), pace)


def _begin(problem: Problem, L: Factors, E: Factors) -> State:
    return _state(problem, _evaluated(problem, L))


def _sweep(update: Update, problem: Problem, state: State) -> State:
    Z, weight = problem.replayed(_updated, update, state.L, state.counts.by_factor)
    old, plain = (_only(problem, factors) for factors in (state.L, Z))

    def propose(pace: Pace, make: Make, *given: Any) -> State:
        return _state(problem, problem.replayed(_completed, make, Z, old, plain, weight, *given), pace)

    return propose(FIRST_PACE, unchanged) if problem.trades is None else accelerated(state, propose)


def _only(problem: Problem, factors: Factors) -> Factors:
    """The free factors; results of a replay stay as they are if these are all, and are known again by the next one."""
    if isinstance(factors, Late) and not problem.fixed:
        return factors
    return {a: factors[a] for a in problem.free}


def _updated(problem: Problem, update: Update, Z: Factors, first: Factors) -> tuple[Factors, Factors]:
    """The result of a plain iteration, with the expected counts of every factor when it was updated."""
    Z, weight = Versioned.of(Z), {}
    for number, a in enumerate(problem.free):
        weight[a] = problem.engine.counts(Z, [a], log=False).by_factor[a] if number else first[a]
        Z = Z.updated({a: update(problem, a, Z[a], weight[a], problem.engine.exposure(Z, a))})
    return Z, weight


def _completed(
    problem: Problem, make: Make, Z: Factors, old: Factors, plain: Factors, weight: Factors, *given: Any
) -> Estimates:
    """The rest of an iteration, given how its estimates follow from a plain one."""
    free, trail = make(problem.algebra, old, plain, weight, *given)
    Z = Versioned.of(Z)
    # The engine has cached sums for the plain factors.
    return _evaluated(problem, Z if free is plain else Z.updated(free), trail)


def _resume(problem: Problem, state: State) -> State:
    return _state(problem, _evaluated(problem, {**state.E, **problem.fixed}))


EM = Method("em", "log-likelihood", _begin, partial(_sweep, _em_update), _resume)
MAP = Method("map", "log-posterior", _begin, partial(_sweep, _map_update), _resume)
