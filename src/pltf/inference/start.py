"""Start values of a fit: draws from the prior, random numbers, or given arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pltf.gamma import Array, Gamma, Posterior
from pltf.inference.algebra import Factors
from pltf.inference.algebra.draws import gamma_draw, generator, prior_draw, restart_seed
from pltf.inference.state import Problem

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DEFAULT_PRIOR", "MAP_PRIOR", "Known", "at_random", "from_prior", "generator", "restart_seed"]

DEFAULT_PRIOR = Gamma(shape=0.5, mean=10.0, learn="mean")  # measured: docs/priors.md
MAP_PRIOR = Gamma(shape=1.0, mean=10.0)  # with a shape below 1 the density is unbounded at zero: there is no maximum


def from_prior(
    problem: Problem, rng: np.random.Generator, smallest: float, threads: int = 1
) -> tuple[Factors, Factors]:
    """L and E drawn from the prior (EM has none and uses the default prior).

    Draws of small shapes underflow; they are clipped to a floor, so that no rate is zero at the start. With links they
    are scaled to the data: links carry little information about large rates, and convergence from there is slow.
    """
    floor = smallest ** (1 / (len(problem.shapes) + 1))

    def draw() -> Factors:
        priors = {a: problem.priors.get(a, DEFAULT_PRIOR) for a in problem.free}
        drawn = {a: prior_draw(prior, problem.shapes[a], rng, floor, threads) for a, prior in priors.items()}
        if problem.links:
            return _scaled(problem, drawn)
        return {**problem.fixed, **{a: problem.algebra.put(z) for a, z in drawn.items()}}

    return draw(), draw()


@dataclass(frozen=True, eq=False)
class Known:
    """Start values for resuming: known posteriors, and random draws where nothing is known.

    Without random draws, entries about which nothing is known (new rows) would stay equal in all components.
    """

    posteriors: Mapping[str, Posterior]  # of the free factors
    known: Mapping[str, Array]  # 1 for entries with observed counts, 0 for others; broadcasts to the factor

    def draw(
        self, problem: Problem, rng: np.random.Generator, smallest: float, threads: int = 1
    ) -> tuple[Factors, Factors]:
        """L and E of every factor."""
        floor, L, E = smallest ** (1 / (len(problem.shapes) + 1)), dict(problem.fixed), dict(problem.fixed)
        for a, z in self.posteriors.items():
            for Z, value in ((L, z.geomean), (E, z.mean)):
                drawn = gamma_draw(z.shape, z.scale, rng, 0.0, threads)
                Z[a] = problem.algebra.put((self.known[a] * value + (1 - self.known[a]) * drawn).clip(floor))
        return L, E


def at_random(problem: Problem, rng: np.random.Generator) -> tuple[Factors, Factors]:
    """L = E drawn uniformly from (0.5, 1.5), scaled so that the rates add up to the counts."""
    Z = _scaled(problem, {a: rng.uniform(0.5, 1.5, problem.shapes[a]) for a in problem.free})
    return Z, Z


def _scaled(problem: Problem, drawn: Mapping[str, Any]) -> Factors:
    """The drawn free factors, rescaled so that the rates add up to the counts."""
    put = problem.algebra.put
    expected = float(problem.engine.total({**problem.fixed, **{a: put(z) for a, z in drawn.items()}}))
    ratio = problem.total / expected if expected > 0 and problem.total > 0 else 1.0
    scale = math.exp(math.log(ratio) / len(drawn))
    return {**problem.fixed, **{a: put(z * scale) for a, z in drawn.items()}}
