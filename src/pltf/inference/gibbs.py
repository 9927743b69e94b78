"""Gibbs sampling: draws from the exact posterior, by sweeps over the full conditionals.

A sweep samples what an iteration of variational Bayes computes as expectations. Given all Z, every count is allocated
to the latent configurations (one pass of the engine); given the allocated counts, factor by factor

    Z_a ~ Gamma( A_a + counts_a, rate A_a/B_a + Delta_a^Z(M) )

Learned hyperparameters have weak hyperpriors; those of a factor are sampled just before the factor, given only its
counts. An exchange of scales ends the sweep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pltf.engines.base import Counts, Number
from pltf.engines.factors import Versioned
from pltf.gamma import Gamma
from pltf.inference.algebra import Factors, Key
from pltf.inference.algebra.chance import trade_draws
from pltf.inference.algebra.collapsed import Hyperprior, prior_draws
from pltf.inference.algebra.host import shapes_along
from pltf.inference.balance import Trade
from pltf.inference.priors import MEANS, SHAPES
from pltf.inference.state import Problem, State

NAME, OBJECTIVE = "gibbs", "log-likelihood"

_ALLOCATE, _FACTOR, _PRIOR, _TRADE = range(4)  # part of a key: what is sampled


WEAK = Hyperprior(weight=1e-3, spread=2.0, shapes=SHAPES, means=MEANS)


@dataclass(frozen=True, eq=False)
class Sampler:
    """Sweeps for one problem. The state of a chain has its factors in both E and L.

    The counts of the first group of factors (``engine.together``) in the state are allocated at these factors, ready
    for the next sweep. Counts of other groups come from within the sweep, after the factors of earlier groups were
    sampled; the next sweep allocates them again.
    """

    problem: Problem
    counted: frozenset[str] = frozenset()  # fixed factors whose counts are needed nevertheless
    hyperprior: Hyperprior = WEAK

    def begin(self, Z: Factors, priors: Mapping[str, Gamma], key: Key) -> State:
        """The initial state of a chain that starts at Z."""
        return self._state(Versioned.of(Z), priors, {}, self.problem.engine.total(Z), key)

    def sweep(self, state: State, key: Key) -> State:
        """Run one sweep; ``key`` is (seed, number of the sweep)."""
        problem, algebra, engine = self.problem, self.problem.algebra, self.problem.engine
        Z, counts, priors = Versioned.of(state.E), dict(state.counts.by_factor), dict(state.priors)
        for number, group in enumerate(engine.together):
            if number:  # those of the first group were sampled with the state
                counts |= self._allocated(Z, number, key).by_factor
            for place, a in enumerate(problem.free):
                if a in group:
                    exposure = engine.exposure(Z, a)
                    priors[a] = self._hyperparameters(a, counts[a], exposure, priors[a], (*key, _PRIOR, place))
                    C = algebra.shapes({a: priors[a]}, counts)[a]
                    D, _ = algebra.scales(C, exposure, priors[a])
                    Z = Z.updated({a: algebra.gamma_draws(C, D, (*key, _FACTOR, place))})
        expected = engine.total(Z)  # before the exchange of scales, which does not change it: no extra cost here
        Z = self._traded(Z, priors, key)
        return self._state(Z, priors, counts, expected, key)

    def _allocated(self, Z: Factors, number: int, key: Key) -> Counts:
        """Sampled counts of a group of factors, allocated to the latent configurations at Z."""
        group = self.problem.engine.together[number]
        wanted = [a for a in self.problem.shapes if a in group and (a not in self.problem.fixed or a in self.counted)]
        return self.problem.engine.allocate(Z, wanted, (*key, _ALLOCATE, number))

    def _state(
        self, Z: Factors, priors: Mapping[str, Gamma], counts: Mapping[str, Any], expected: Number, key: Key
    ) -> State:
        """The state at Z, with its log-likelihood; the same pass allocates the counts for the next sweep."""
        first = self._allocated(Z, 0, key)
        known = Counts({**counts, **first.by_factor}, first.log_term)
        objective = float(self.problem.log_likelihood(first.log_term, expected))
        return State(Z, Z, {}, {}, known, priors, objective)

    def _hyperparameters(self, a: str, counts: Any, exposure: Any, prior: Gamma, key: Key) -> Gamma:
        """The prior of a factor with new hyperparameters, given the counts but not the factor (sampled next)."""
        problem, get = self.problem, self.problem.algebra.get
        if a not in problem.learns:
            return prior
        return prior_draws(
            prior, problem.priors[a], get(counts), get(exposure), problem.learns[a], self.hyperprior, key
        )

    def _traded(self, Z: Versioned[Any], priors: Mapping[str, Gamma], key: Key) -> Versioned[Any]:
        """Z after an exchange of scales along every index that free factors share."""
        for place, trade in enumerate(self.problem.trades or ()):
            Z = Z.updated(traded(self.problem, trade, Z, priors, (*key, _TRADE, place)))
        return Z


def traded(problem: Problem, trade: Trade, Z: Factors, priors: Mapping[str, Gamma], key: Key) -> Factors:
    """The factors times scales s_a(x), sampled along the directions of a trade; no rate changes.

    Multiplying the n_a entries of Z_a at x by s_a changes the log density of their prior by
    ``(alpha_a - n_a) log s_a - beta_a (s_a - 1)``, where alpha_a is the sum of A and beta_a that of Z*A/B over these
    entries. The move of Z has the Jacobian ``prod_a s_a^(n_a)``, which cancels n_a. With log s = basis @ t the moves
    form a group whose invariant measure is dt, so t must be sampled from the density
    ``exp( sum_a alpha_a log s_a - beta_a s_a )`` (Liu and Sabatti 2000), whose maximum is the balance of VB. For two
    factors, s has a generalized inverse Gaussian distribution.
    """
    algebra, axes = problem.algebra, trade.axes
    alpha = [shapes_along(priors[a], problem.shapes[a], axis) for a, axis in axes.items()]
    beta = [algebra.sum_along(Z[a], priors[a].rate, axis) for a, axis in axes.items()]
    scales = trade_draws(alpha, beta, trade.directions, key)
    return {a: algebra.scale_along(Z[a], s, axis) for (a, axis), s in zip(axes.items(), scales, strict=True)}
