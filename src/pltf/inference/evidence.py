"""The evidence by sequential Monte Carlo: data arrive in stages, and particles follow the posterior.

A count of rate Xhat is the number of events of a Poisson process of that rate over the time from 0 to 1. Give every
event a random time and let the events arrive in stages: stage k adds the counts y_k of a time slice of length d_k.
Given the rates, y_k ~ Poisson(d_k * Xhat), and the assignment of events to slices does not depend on the rates:

    p(x) = p(y_1, ..., y_K) / Multinomial(y | x, d),   so
    log p(x) = sum_k log E[ prod_cells Xhat^y_k * exp(-d_k * Xhat) | y_1, ..., y_{k-1} ] - sum_cells log x!

for any random times. The posterior after a stage is that of the same model with fewer counts and less exposure, so
Gibbs sweeps can move particles within it (Chopin 2002; Del Moral, Doucet and Jasra 2006). The estimate of p(x) is
unbiased for any number of particles and sweeps.

A link only states that there was an event, so its event cannot be given a time. Links arrive cell by cell instead,
each with its full exposure; cells that have not arrived yet are missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from pltf.engines.base import Engine
from pltf.inference.algebra import Factors, Key
from pltf.inference.gibbs import Sampler
from pltf.inference.state import Problem


@dataclass(frozen=True, eq=False)
class Stage:
    """The data that a stage adds, and the posterior after it."""

    new: Engine  # new data: counts of a time slice with the exposure of the slice, and the cells of links
    saturated: float  # sum y*log y of these counts
    problem: Problem  # all data so far

    def log_weight(self, Z: Factors) -> float:
        """sum y*log Xhat - d*Xhat over the counts, plus the log-likelihood of the links."""
        return float(self.new.counts(Z, ()).log_term + self.saturated - self.new.total(Z))


def log_evidence(
    stages: Iterable[Stage], particles: Sequence[Factors], sweeps: int, key: Key, moved: Callable[[int], None]
) -> float:
    """An estimate of log p(x) + sum log x! of the counts, from particles drawn from the prior.

    ``moved`` is called after every move of a particle, with the number of the stage.
    """
    total, weights = 0.0, list[float]()
    earlier: Problem | None = None
    for number, stage in enumerate(stages):
        if earlier is not None:
            sampler, new = Sampler(earlier), []
            for place, n in enumerate(resampled(weights, Random(repr((*key, number))).random())):
                new.append(_moved(sampler, particles[n], sweeps, (*key, number, place)))
                moved(number)
            particles = new
        weights = [stage.log_weight(Z) for Z in particles]
        total += log_mean(weights)
        if total == -math.inf:
            break
        earlier = stage.problem
    return total


def _moved(sampler: Sampler, Z: Factors, sweeps: int, key: Key) -> Factors:
    """A particle after some sweeps."""
    state = sampler.begin(Z, sampler.problem.priors, (*key, 0))
    for number in range(1, sweeps + 1):
        state = sampler.sweep(state, (*key, number))
    return state.E


def log_mean(logs: Sequence[float]) -> float:
    """The logarithm of the mean of numbers given by their logarithms.

    >>> round(log_mean([0.0, math.log(3.0)]), 9) == round(math.log(2.0), 9)
    True
    """
    largest = max(logs)
    if largest == -math.inf:
        return largest
    return largest + math.log(math.fsum(math.exp(one - largest) for one in logs) / len(logs))


def resampled(log_weights: Sequence[float], uniform: float) -> list[int]:
    """Indices of the surviving particles, repeated in proportion to their weights (systematic resampling).

    >>> resampled([0.0, math.log(4.0), -math.inf, 0.0], 0.5)
    [0, 1, 1, 3]
    """
    largest = max(log_weights)
    weights = [math.exp(one - largest) for one in log_weights]
    step, found, passed = math.fsum(weights) / len(weights), list[int](), 0.0
    for number, weight in enumerate(weights):
        passed += weight
        while len(found) < len(weights) and (len(found) + uniform) * step < passed:
            found.append(number)
    return found + [len(weights) - 1] * (len(weights) - len(found))
