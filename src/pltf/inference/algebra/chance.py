"""Random draws of a sampler, made on the host with explicit keys: the result does not depend on the threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from pltf.gamma import Array
from pltf.inference.algebra.base import Key
from pltf.threads import PART, in_parts, run_all

TINY = float(np.finfo(np.float64).tiny)  # floor for draws of tiny shapes, which underflow
_SHRINKS = 200  # of a slice: after this many it is as narrow as rounding

DrawPart = Callable[[Array, Array, np.random.Generator], Array]  # from shape and scale


def chain_seed(seed: int, chain: int) -> int:
    """The seed of a chain, in 63 bits; different from the seeds of restarts."""
    state = np.random.SeedSequence(seed, spawn_key=(1, chain)).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def stream(key: Key) -> np.random.Generator:
    """The random generator of a key."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(key[0], spawn_key=key[1:])))


def gamma_part(C: Array, D: Array, rng: np.random.Generator) -> Array:
    """Draws of one part. Below shape 1: a draw with shape C + 1 times U^(1/C), whose logarithm does not underflow."""
    small = C < 1
    z = rng.standard_gamma(C + small)
    if small.any():
        z[small] *= np.exp(-rng.standard_exponential(int(small.sum())) / C[small])
    return z * D


def gamma_draws(
    C: Array, D: Array, key: Key, threads: int = 1, least: float = TINY, draw: DrawPart = gamma_part
) -> Array:
    """Draws from Gamma(shape C, scale D), at least ``least``; each part of the entries has its own generator."""
    shape, scale, out = C.reshape(-1), D.reshape(-1), np.empty(C.size)

    def one_part(part: slice) -> None:
        drawn = draw(shape[part], scale[part], stream((*key, part.start // PART)))
        np.maximum(drawn, least, out=out[part])

    run_all(in_parts(one_part, out.size, threads))
    return out.reshape(C.shape)


# -- exchange of scales -------------------------------------------------------------------------


def trade_draws(alpha: Sequence[Array], beta: Sequence[Array], basis: Array, key: Key) -> Array:
    """s sampled from the density exp( sum_a alpha_a log s_a - beta_a s_a ) along log s = basis @ t, for each x.

    ``alpha`` and ``beta`` have one row over x per factor. Makes one slice step along each direction in turn; positions
    with a beta that is zero or not finite stay unchanged.
    """
    a, b = np.array(alpha), np.array(beta)
    log_s, rng = np.zeros(a.shape), stream(key)
    proper = ((b > 0) & np.isfinite(b)).all(axis=0)
    a, b = a[:, proper], b[:, proper]
    moved = np.zeros(a.shape)
    for direction in basis.T:
        along = direction[:, None]
        log_density = partial(_along, direction @ a, b * np.exp(moved), along)
        moved += along * slice_step(log_density, np.zeros(a.shape[1]), rng)
    log_s[:, proper] = moved
    return np.exp(log_s)


def _along(slope: Array, weight: Array, along: Array, t: Array) -> Array:
    """Log density of an exchange at t along one direction."""
    return np.asarray(slope * t - (weight * np.exp(along * t)).sum(axis=0))


def slice_step(
    log_density: Callable[[Array], Array], x: Array, rng: np.random.Generator, width: float | Array = 1.0
) -> Array:
    """One step of slice sampling, independently for every x, stepping out by ``width`` and shrinking (Neal 2003)."""
    with np.errstate(over="ignore", invalid="ignore"):
        level = log_density(x) - rng.standard_exponential(x.shape)
        low = x - width * rng.random(x.shape)
        high = low + width
        for end, step in ((low, -width), (high, width)):
            while (inside := log_density(end) > level).any():
                end += step * inside
        new, open_ = x.copy(), np.ones(x.shape, dtype=bool)
        for _ in range(_SHRINKS):
            tried = low + (high - low) * rng.random(x.shape)
            taken = open_ & (log_density(tried) >= level)
            new[taken] = tried[taken]
            open_ &= ~taken
            if not open_.any():
                break
            low, high = np.where(tried < x, tried, low), np.where(tried < x, high, tried)
    return new
