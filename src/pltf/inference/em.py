"""EM (maximum likelihood) and MAP: multiplicative updates; Xhat is recomputed after each factor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pltf.engines.factors import Versioned
from pltf.inference.accelerate import accelerated
from pltf.inference.algebra import Factors
from pltf.inference.state import FIRST_PACE, Method, Pace, Problem, State

# (problem, factor name, value, expected counts, exposure) -> new value
Update = Callable[[Problem, str, Any, Any, Any], Any]


def _em_update(problem: Problem, a: str, Z: Any, counts: Any, exposure: Any) -> Any:
    """Z_a <- Z_a*Delta_a(M*X/Xhat) / Delta_a(M); entries without observed cells stay unchanged."""
    return problem.algebra.em_estimate(Z, counts, exposure)


def _map_update(problem: Problem, a: str, Z: Any, counts: Any, exposure: Any) -> Any:
    """Z_a <- max(A_a - 1 + Z_a*Delta_a(M*X/Xhat), 0) / (A_a/B_a + Delta_a(M))."""
    return problem.algebra.map_estimate(counts, exposure, problem.priors[a])


def _state(problem: Problem, Z: Factors, pace: Pace = FIRST_PACE) -> State:
    """Estimates with their objective; the same pass gives the next counts of the first factor."""
    algebra, priors = problem.algebra, problem.priors.items()
    counts = problem.engine.counts(Z, problem.free[:1])
    objective = problem.log_likelihood(counts.log_term, problem.engine.total(Z))
    objective += sum(algebra.log_prior(Z[a], prior) for a, prior in priors)
    zeros = int(sum(algebra.unbounded_zeros(Z[a], prior) for a, prior in priors))
    return State(Z, Z, {}, {}, counts, problem.priors, float(objective), zeros, pace)


def _begin(problem: Problem, L: Factors, E: Factors) -> State:
    return _state(problem, L)


def _sweep(problem: Problem, state: State, update: Update) -> State:
    Z, counts, weight = Versioned.of(state.L), state.counts, {}
    for number, a in enumerate(problem.free):
        if number:
            counts = problem.engine.counts(Z, [a], log=False)
        weight[a] = counts.by_factor[a]
        Z = Z.updated({a: update(problem, a, Z[a], weight[a], problem.engine.exposure(Z, a))})
    if problem.trades is None:
        return _state(problem, Z)

    old, plain = ({a: factors[a] for a in problem.free} for factors in (state.L, Z))

    def candidate(free: Factors, pace: Pace) -> State:
        factors = Z if free is plain else Z.updated(free)  # the engine has cached sums for the plain factors
        return _state(problem, factors, pace)

    return accelerated(problem.algebra, state, old, plain, weight, candidate)


def _resume(problem: Problem, state: State) -> State:
    return _state(problem, {**state.E, **problem.fixed})


def _em_step(problem: Problem, state: State) -> State:
    return _sweep(problem, state, _em_update)


def _map_step(problem: Problem, state: State) -> State:
    return _sweep(problem, state, _map_update)


EM = Method("em", "log-likelihood", _begin, _em_step, _resume)
MAP = Method("map", "log-posterior", _begin, _map_step, _resume)
