"""Where a fit starts: draws from the prior or at random, or arrays that the caller gives."""

from __future__ import annotations

import math

import numpy as np

from pltf.gamma import Gamma
from pltf.inference.factors import Factors, frozen
from pltf.inference.state import Problem

DEFAULT_PRIOR = Gamma(shape=0.5, mean=10.0, learn="mean")  # measured: docs/priors.md
MAP_PRIOR = Gamma(shape=1.0, mean=10.0)  # below 1 the density is unbounded at zero: it has no maximum


def restart_seed(seed: int, restart: int) -> int:
    """The seed of restart k, whatever their number: a fit with it as its own seed is that restart."""
    if restart == 0:
        return seed
    return int(np.random.SeedSequence(seed, spawn_key=(restart,)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator(seed: int) -> np.random.Generator:
    """Random numbers of a start."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))


def from_prior(problem: Problem, rng: np.random.Generator, smallest: float) -> tuple[Factors, Factors]:
    """L and E drawn from the prior (EM has none: from the default one).

    Draws of small shapes underflow. They are kept above a floor, so that no rate is zero at the start.
    """
    floor = smallest ** (1 / (len(problem.shapes) + 1))

    def draw() -> Factors:
        priors = {a: problem.priors.get(a, DEFAULT_PRIOR) for a in problem.free}
        drawn = {a: prior.sample(problem.shapes[a], rng) for a, prior in priors.items()}
        return {**problem.fixed, **{a: frozen(np.maximum(z, floor)) for a, z in drawn.items()}}

    return draw(), draw()


def at_random(problem: Problem, rng: np.random.Generator) -> tuple[Factors, Factors]:
    """L = E drawn uniformly from (0.5, 1.5), scaled so that the rates add up to the counts."""
    drawn = {a: rng.uniform(0.5, 1.5, problem.shapes[a]) for a in problem.free}
    expected = problem.engine.total({**problem.fixed, **drawn})
    ratio = problem.total / expected if expected > 0 and problem.total > 0 else 1.0
    scale = math.exp(math.log(ratio) / len(drawn))
    Z = {**problem.fixed, **{a: frozen(z * scale) for a, z in drawn.items()}}
    return Z, Z
