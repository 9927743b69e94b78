"""Variational Bayes: Algorithm 1 of the paper, exact coordinate ascent on the ELBO."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pltf.engines.base import Number
from pltf.engines.either import added
from pltf.engines.factors import Versioned
from pltf.gamma import PARTS, Gamma
from pltf.inference.accelerate import accelerated
from pltf.inference.algebra import Factors
from pltf.inference.balance import balanced
from pltf.inference.priors import with_best_mean, with_best_shape
from pltf.inference.state import FIRST_PACE, Method, Pace, Problem, State

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
    plain = problem.algebra.shapes(state.priors, state.counts.by_factor)
    if problem.trades is None:
        return _given_shapes(problem, state, plain, FIRST_PACE)
    return accelerated(problem.algebra, state, state.C, plain, state.C, partial(_given_shapes, problem, state))


def _given_shapes(problem: Problem, state: State, C: Factors, pace: Pace) -> State:
    """The rest of an iteration, given its C."""
    algebra, engine = problem.algebra, problem.engine
    E, means, D, priors = Versioned.of(state.E), dict(problem.fixed), dict[str, Any](), dict(state.priors)
    for a in problem.free:
        exposure = engine.exposure(E, a)
        if "mean" in priors[a].learns:
            priors[a], D[a], means[a] = with_best_mean(algebra, priors[a], problem.learns[a], C[a], exposure)
        else:
            D[a], means[a] = algebra.scales(C[a], exposure, priors[a])
        E = E.updated({a: means[a]})
    expected = engine.total(E)  # balancing does not change it, and before it there is no extra cost
    if problem.trades:
        means, D = balanced(algebra, problem.trades, priors, means, D)
        E = Versioned(means)
    return posterior_state(problem, priors, E, C, D, expected, pace)


def posterior_state(
    problem: Problem,
    priors: Mapping[str, Gamma],
    E: Factors,
    C: Factors,
    D: Factors,
    expected: Number,
    pace: Pace = FIRST_PACE,
) -> State:
    """The state of given posteriors with its ELBO; the same pass gives the counts of the next iteration.

    ELBO = sum M*( X*log Xhat_L - Xhat_E - lgamma(X+1) ) - sum_a KL( q(Z_a) || p(Z_a) ); for links the first sum is
    sum M*( X*log(exp(Xhat_L)-1) - Xhat_E )
    """
    L, kl = dict(problem.fixed), []
    for a in problem.free:
        L[a], part = problem.algebra.geomean_kl(C[a], D[a], priors[a])
        kl.append(part)
    counts = problem.engine.counts(L, problem.free)
    bound = float(problem.log_likelihood(counts.log_term, expected) - added(kl))
    return State(E, L, C, D, counts, priors, bound, pace=pace)


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
