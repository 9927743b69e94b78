"""Gibbs sampling: draws from the posterior itself, by sweeps of draws from its conditionals.

A sweep draws what a sweep of variational Bayes expects. Given all Z, every count is allocated over the latent
configurations (a pass of the engine); given the allocated counts, factor by factor

    Z_a ~ Gamma( A_a + counts_a, rate A_a/B_a + Delta_a^Z(M) )

Then hyperparameters that are learned, with weak hyperpriors, and the trade of scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pltf.engines.base import Counts
from pltf.engines.factors import Versioned
from pltf.gamma import Gamma
from pltf.inference.algebra import Factors, Key
from pltf.inference.algebra.chance import mean_draws, shape_draws, trade_draws
from pltf.inference.algebra.host import shapes_along
from pltf.inference.balance import Trade
from pltf.inference.priors import MEANS, SHAPES
from pltf.inference.state import Problem, State

NAME, OBJECTIVE = "gibbs", "log-likelihood"

_ALLOCATE, _FACTOR, _MEAN, _SHAPE, _TRADE = range(5)  # in keys: what is drawn


@dataclass(frozen=True)
class Hyperprior:
    """What is believed of learned hyperparameters before the data, around the values that a prior begins with.

    1/B ~ Gamma(shape ``weight``, mean 1/B_0): it weighs as much as ``weight`` entries of shape 1 would. It is there to
    keep the scales of factors, which only their product ties down, within some orders of magnitude.
    log A ~ Normal(log A_0, ``spread``).
    """

    weight: float = 1e-3
    spread: float = 2.0


WEAK = Hyperprior()


@dataclass(frozen=True, eq=False)
class Sampler:
    """Sweeps over a problem. The state of a chain has its factors in E and L, and counts allocated at them."""

    problem: Problem
    counted: frozenset[str] = frozenset()  # factors whose counts are wanted although they are fixed
    hyperprior: Hyperprior = WEAK

    def begin(self, Z: Factors, priors: Mapping[str, Gamma], key: Key) -> State:
        """The state of a chain that starts at Z."""
        return self._state(Versioned.of(Z), priors, {}, self.problem.engine.total(Z), key)

    def sweep(self, state: State, key: Key) -> State:
        """One sweep; ``key`` is a seed and the number of the sweep."""
        problem, algebra, engine = self.problem, self.problem.algebra, self.problem.engine
        Z, counts = Versioned.of(state.E), dict(state.counts.by_factor)
        for number, group in enumerate(engine.together):
            if number:  # for the first group they were drawn with the state
                counts |= self._allocated(Z, number, key).by_factor
            for place, a in enumerate(problem.free):
                if a in group:
                    C = algebra.shapes({a: state.priors[a]}, counts)[a]
                    D, _ = algebra.scales(C, engine.exposure(Z, a), state.priors[a])
                    Z = Z.updated({a: algebra.gamma_draws(C, D, (*key, _FACTOR, place))})
        expected = engine.total(Z)  # before the trade, which does not change it: known for free here
        priors = self._hyperparameters(Z, state.priors, key)
        Z = self._traded(Z, priors, key)
        return self._state(Z, priors, counts, expected, key)

    def _allocated(self, Z: Factors, number: int, key: Key) -> Counts:
        """Counts of a group of factors, drawn over the latent configurations at Z."""
        group = self.problem.engine.together[number]
        wanted = [a for a in self.problem.shapes if a in group and (a not in self.problem.fixed or a in self.counted)]
        return self.problem.engine.allocate(Z, wanted, (*key, _ALLOCATE, number))

    def _state(
        self, Z: Factors, priors: Mapping[str, Gamma], counts: Mapping[str, Any], expected: float, key: Key
    ) -> State:
        """The state at Z, with its log-likelihood; the pass for it allocates the counts of the next sweep."""
        first = self._allocated(Z, 0, key)
        known = Counts({**counts, **first.by_factor}, first.log_term)
        return State(Z, Z, {}, {}, known, priors, self.problem.log_likelihood(first.log_term, expected))

    def _hyperparameters(self, Z: Factors, priors: Mapping[str, Gamma], key: Key) -> dict[str, Gamma]:
        """Learned means from their conjugate conditionals, then learned shapes by a slice step."""
        problem, algebra, drawn = self.problem, self.problem.algebra, dict(priors)
        for place, (a, groups) in enumerate(problem.learns.items()):
            given = problem.priors[a]
            if "mean" in given.learns:
                sums = algebra.prior_sums(Z[a], drawn[a], groups)
                mean_key, weight = (*key, _MEAN, place), self.hyperprior.weight
                B = mean_draws(*sums, given.mean, groups, weight, MEANS, mean_key)
                drawn[a] = given.with_values(drawn[a].shape, B)
            if "shape" in given.learns:
                spread = algebra.spreads(Z[a], algebra.log(Z[a]), drawn[a].mean, groups)
                shape_key, sd = (*key, _SHAPE, place), self.hyperprior.spread
                A = shape_draws(drawn[a].shape, spread, given.shape, groups, sd, SHAPES, shape_key)
                drawn[a] = given.with_values(A, drawn[a].mean)
        return drawn

    def _traded(self, Z: Versioned[Any], priors: Mapping[str, Gamma], key: Key) -> Versioned[Any]:
        """Z after a trade of scales along every index that free factors share."""
        for place, trade in enumerate(self.problem.trades or ()):
            Z = Z.updated(traded(self.problem, trade, Z, priors, (*key, _TRADE, place)))
        return Z


def traded(problem: Problem, trade: Trade, Z: Factors, priors: Mapping[str, Gamma], key: Key) -> Factors:
    """The factors of a trade, times scales s_a(x) drawn along its directions; no rate changes.

    Multiplying the n_a entries of Z_a at x by s_a changes the log density of their prior by
    ``(alpha_a - n_a) log s_a - beta_a (s_a - 1)``, where alpha_a is the sum of A and beta_a that of Z*A/B over these
    entries. The move of Z has the Jacobian ``prod_a s_a^(n_a)``, which takes the n_a away again. With log s = basis @ t
    the moves are a group, whose invariant measure is dt; so t has to be drawn from the density
    ``exp( sum_a alpha_a log s_a - beta_a s_a )`` (Liu and Sabatti 2000), whose maximum is the balance of VB. Of two
    factors it is a generalized inverse Gaussian of s.
    """
    algebra, axes = problem.algebra, trade.axes
    alpha = [shapes_along(priors[a], problem.shapes[a], axis) for a, axis in axes.items()]
    beta = [algebra.sum_along(Z[a], priors[a].rate, axis) for a, axis in axes.items()]
    scales = trade_draws(alpha, beta, trade.directions, key)
    return {a: algebra.scale_along(Z[a], s, axis) for (a, axis), s in zip(axes.items(), scales, strict=True)}
