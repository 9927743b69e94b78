"""Random draws of a sampler. They are made on the host, each from a key of its own: threads do not change a bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from pltf.gamma import Array
from pltf.inference.algebra.base import Key
from pltf.threads import PART, in_parts, run_all

TINY = float(np.finfo(np.float64).tiny)  # draws of tiny shapes underflow: they stop here, and have a logarithm
_SHRINKS = 200  # of a slice: after so many it is as narrow as rounding


def chain_seed(seed: int, chain: int) -> int:
    """The seed of a chain, in 63 bits; no restart has it."""
    state = np.random.SeedSequence(seed, spawn_key=(1, chain)).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def stream(key: Key) -> np.random.Generator:
    """The random numbers of a key."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(key[0], spawn_key=key[1:])))


def gamma_draws(C: Array, D: Array, key: Key, threads: int = 1) -> Array:
    """Draws of Gamma(shape C, scale D), none of them zero; each part of the entries has its own random numbers."""
    shape, scale, out = C.reshape(-1), D.reshape(-1), np.empty(C.size)

    def one_part(part: slice) -> None:
        out[part] = _gamma_part(shape[part], scale[part], stream((*key, part.start // PART)))

    run_all(in_parts(one_part, out.size, threads))
    return out.reshape(C.shape)


def _gamma_part(C: Array, D: Array, rng: np.random.Generator) -> Array:
    """Below shape 1: the draw of shape C + 1 times U^(1/C), whose logarithm does not underflow."""
    small = C < 1
    z = rng.standard_gamma(C + small)
    if small.any():
        z[small] *= np.exp(-rng.standard_exponential(int(small.sum())) / C[small])
    return np.maximum(z * D, TINY)


# -- trade of scales ----------------------------------------------------------------------------


def trade_draws(alpha: Sequence[Array], beta: Sequence[Array], basis: Array, key: Key) -> Array:
    """s drawn from the density exp( sum_a alpha_a log s_a - beta_a s_a ) along log s = basis @ t, for each x.

    ``alpha`` and ``beta`` hold a row over x for each factor. One slice step along each direction in turn; where a beta
    is zero or out of range nothing is done.
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
    """The log density of a trade at t along one direction."""
    return np.asarray(slope * t - (weight * np.exp(along * t)).sum(axis=0))


def slice_step(
    log_density: Callable[[Array], Array], x: Array, rng: np.random.Generator, width: float | Array = 1.0
) -> Array:
    """One step of slice sampling of every x by itself, stepping out by ``width`` and shrinking (Neal 2003)."""
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
