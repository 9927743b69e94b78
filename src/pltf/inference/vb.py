"""Variational Bayes: Algorithm 1 of the paper, exact coordinate ascent on the bound."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from pltf.gamma import Array, Gamma, geomean_and_kl
from pltf.inference.accelerate import accelerated
from pltf.inference.balance import balanced
from pltf.inference.factors import Factors, frozen
from pltf.inference.priors import with_best_mean, with_best_shapes
from pltf.inference.state import Method, Problem, State


def begin(problem: Problem, L: Factors, E: Factors) -> State:
    """The state before the first sweep: no posterior yet, and so no bound."""
    return State(E, L, {}, {}, problem.engine.counts(L, problem.free), problem.priors, -math.inf)


def step(problem: Problem, state: State) -> State:
    """One sweep: the priors that learn, q(S) and every C from the same Xhat_L, then D and E factor by factor, then L.

    C_a = A_a + L_a * Delta_a^L(M*X/Xhat_L);   D_a = 1 / (A_a/B_a + Delta_a^E(M));   E_a = C_a*D_a
    """
    if state.C and problem.learns:
        better = with_best_shapes(state.priors, problem.learns, state.E, state.C, state.D, problem.threads)
        state = replace(state, priors=better)
    plain = {a: np.asarray(state.priors[a].shape) + state.counts.by_factor[a] for a in problem.free}
    if problem.trades is None:
        return _given_shapes(problem, state, plain)
    return accelerated(state, state.C, plain, state.C, partial(_given_shapes, problem, state), problem.threads)


def _given_shapes(problem: Problem, state: State, C: Factors) -> State:
    """The rest of a sweep, once its C are known."""
    E: dict[str, Array] = dict(state.E)
    D: dict[str, Array] = {}
    priors = dict(state.priors)
    for a in problem.free:
        exposure = problem.engine.exposure(E, a)
        if a in problem.learns and priors[a].learn != "shape":
            priors[a] = with_best_mean(priors[a], problem.learns[a], C[a], exposure)
        D[a] = frozen(1 / (priors[a].rate + exposure))
        E[a] = frozen(C[a] * D[a])
    expected = problem.engine.total(E)  # before the balance, which does not change it: known for free here
    if problem.trades:
        E, D = balanced(problem.trades, priors, E, D)
    return posterior_state(problem, priors, E, {a: frozen(C[a]) for a in C}, D, expected)


def posterior_state(
    problem: Problem, priors: Mapping[str, Gamma], E: Factors, C: Factors, D: Factors, expected: float
) -> State:
    """Posteriors with their bound; the pass also gives the counts of the next sweep.

    bound = sum M*( X*log Xhat_L - Xhat_E - lgamma(X+1) ) - sum_a KL( q(Z_a) || p(Z_a) )
    """
    known = {a: geomean_and_kl(C[a], D[a], priors[a], problem.threads) for a in problem.free}
    L = {**problem.fixed, **{a: frozen(geomean) for a, (geomean, _) in known.items()}}
    counts = problem.engine.counts(L, problem.free)
    kl = math.fsum(part for _, part in known.values())
    return State(E, L, C, D, counts, priors, problem.log_likelihood(counts.log_term, expected) - kl)


def resume(problem: Problem, state: State) -> State:
    """A state of another fit, judged by this problem; priors that learn go on from what they have learned."""
    if not set(problem.free) <= set(state.C):
        return begin(problem, {**state.L, **problem.fixed}, {**state.E, **problem.fixed})
    C, D = ({a: part[a] for a in problem.free} for part in (state.C, state.D))
    E = {**state.E, **problem.fixed}
    priors = {a: _gone_on(prior, state.priors.get(a, prior)) for a, prior in problem.priors.items()}
    return posterior_state(problem, priors, E, C, D, problem.engine.total(E))


def _gone_on(given: Gamma, earlier: Gamma) -> Gamma:
    """The prior to go on with: what an earlier fit has learned, where it learned the same."""
    same = given.learn is not None and (given.learn, given.tie) == (earlier.learn, earlier.tie)
    return earlier if same else given


VB = Method("vb", "bound", begin, step, resume)
