"""EM (maximum likelihood) and MAP: multiplicative updates, Xhat renewed after each factor."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pltf.engines.factors import Versioned
from pltf.gamma import Array
from pltf.inference.accelerate import accelerated
from pltf.inference.factors import Factors, frozen
from pltf.inference.state import Method, Problem, State

# (problem, factor, its value, its expected counts, its exposure) -> its new value
Update = Callable[[Problem, str, Array, Array, Array], Array]


def _em_update(problem: Problem, a: str, Z: Array, counts: Array, exposure: Array) -> Array:
    """Z_a <- Z_a*Delta_a(M*X/Xhat) / Delta_a(M); entries that touch no observed cell stay."""
    seen = exposure > 0
    return np.where(seen, counts / np.where(seen, exposure, 1), Z)


def _map_update(problem: Problem, a: str, Z: Array, counts: Array, exposure: Array) -> Array:
    """Z_a <- max(A_a - 1 + Z_a*Delta_a(M*X/Xhat), 0) / (A_a/B_a + Delta_a(M))."""
    prior = problem.priors[a]
    return np.maximum(np.asarray(prior.shape) - 1 + counts, 0) / (prior.rate + exposure)


def _state(problem: Problem, Z: Factors) -> State:
    """Estimates with their objective; the pass also gives the first factor's next counts."""
    counts = problem.engine.counts(Z, problem.free[:1])
    objective = problem.log_likelihood(counts.log_term, problem.engine.total(Z))
    objective += sum(float(prior.log_pdf(Z[a]).sum()) for a, prior in problem.priors.items())
    zeros = sum(int(((Z[a] == 0) & (np.asarray(p.shape) < 1)).sum()) for a, p in problem.priors.items())
    return State(Z, Z, {}, {}, counts, problem.priors, objective, zeros)


def _begin(problem: Problem, L: Factors, E: Factors) -> State:
    return _state(problem, L)


def _sweep(problem: Problem, state: State, update: Update) -> State:
    Z, counts, weight = Versioned.of(state.L), state.counts, {}
    for number, a in enumerate(problem.free):
        if number:
            counts = problem.engine.counts(Z, [a], log=False)
        weight[a] = counts.by_factor[a]
        Z = Z.updated({a: frozen(update(problem, a, Z[a], weight[a], problem.engine.exposure(Z, a)))})
    if problem.trades is None:
        return _state(problem, Z)

    def candidate(free: Factors) -> State:
        return _state(problem, Z.updated({a: frozen(free[a]) for a in free}))

    old, plain = ({a: factors[a] for a in problem.free} for factors in (state.L, Z))
    return accelerated(state, old, plain, weight, candidate, problem.threads)


def _resume(problem: Problem, state: State) -> State:
    return _state(problem, {**state.E, **problem.fixed})


def _em_step(problem: Problem, state: State) -> State:
    return _sweep(problem, state, _em_update)


def _map_step(problem: Problem, state: State) -> State:
    return _sweep(problem, state, _map_update)


EM = Method("em", "log-likelihood", _begin, _em_step, _resume)
MAP = Method("map", "log-posterior", _begin, _map_step, _resume)
