"""Random numbers for start values: drawn on the host, so that a start does not depend on the device."""

from __future__ import annotations

import numpy as np

from pltf.gamma import Array, Gamma
from pltf.inference.algebra import chance

MOST_AT_ONCE = 1 << 20  # entries of a factor: drawing them takes some 50 ms, so threads would hardly help


def restart_seed(seed: int, restart: int) -> int:
    """The seed of restart k, for any number of restarts: a fit with this seed reproduces that restart."""
    if restart == 0:
        return seed
    return int(np.random.SeedSequence(seed, spawn_key=(restart,)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator(seed: int) -> np.random.Generator:
    """The random generator of a start."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))


def prior_draw(prior: Gamma, shape: tuple[int, ...], rng: np.random.Generator, least: float, threads: int) -> Array:
    """A draw of a factor from its prior, at least ``least``."""
    A, scale = prior.broadcast(shape)[0], np.asarray(prior.mean) / np.asarray(prior.shape)
    return gamma_draw(A, np.broadcast_to(scale, shape), rng, least, threads)


def gamma_draw(C: Array, D: Array, rng: np.random.Generator, least: float, threads: int) -> Array:
    """A draw of a factor from Gamma(shape C, scale D), at least ``least``.

    Large factors are drawn by several threads, in parts of fixed size. Each part has its own child of the seed of the
    start, so the draw does not depend on the number of threads.
    """
    if C.size <= MOST_AT_ONCE:
        return (rng.standard_gamma(C) * D).clip(least)
    seeds = rng.bit_generator.seed_seq
    assert isinstance(seeds, np.random.SeedSequence)
    (own,) = seeds.spawn(1)
    assert isinstance(own.entropy, int)
    return chance.gamma_draws(C, D, (own.entropy, *own.spawn_key), threads, least, _part)


def _part(C: Array, D: Array, rng: np.random.Generator) -> Array:
    """Draws of one part. Of shape 1/2, the default, they are half the squares of normal ones, which is faster."""
    if (C != 0.5).any():
        return chance.gamma_part(C, D, rng)
    return 0.5 * rng.standard_normal(C.size) ** 2 * D
