"""Random numbers for places: each is a function of a key and of its place, so it does not depend on the others.

Every place has a stream of its own (see ``draws``), seeded with splitmix64 as the authors of xoshiro recommend.
"""

from __future__ import annotations

import math

import numpy as np

from pltf.engines.kernels.draws import poisson, uniform
from pltf.special import AS_WRITTEN, compiled

_helper = compiled(AS_WRITTEN, inside=True)
_loop = compiled(AS_WRITTEN)

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@_helper
def _mixed(x):  # type: ignore[no-untyped-def]
    """A bijection of 64-bit words in which every bit depends on all: the output of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))


@_helper
def _start(stream, at):  # type: ignore[no-untyped-def]
    for n in range(4):
        at += _STEP
        stream[n] = _mixed(at)


@_helper
def _normal(stream):  # type: ignore[no-untyped-def]
    """A standard normal number, by Marsaglia's polar method."""
    while True:
        u, v = 2 * uniform(stream) - 1, 2 * uniform(stream) - 1
        square = u * u + v * v
        if 0 < square < 1:
            return u * math.sqrt(-2 * math.log(square) / square)


@_helper
def _gamma(stream, shape):  # type: ignore[no-untyped-def]
    """A standard Gamma number (Marsaglia and Tsang, 2000); for shapes below 1 that of shape + 1, times a power."""
    d = (shape if shape >= 1 else shape + 1) - 1 / 3
    c = 1 / (3 * math.sqrt(d))
    while True:
        x = _normal(stream)
        w = c * x
        if w <= -1:
            continue
        u = 1 - uniform(stream)
        if u < 1 - 0.0331 * x**4:  # saves the logarithms of most
            break
        # x^2/2 + d * (1 - v + log(v)) with v = (1 + w)^3, without cancellation where d is large
        if math.log(u) < 0.5 * x * x + d * (3 * (math.log1p(w) - w) - w * w * (3 + w)):
            break
    value = d * (1 + w) ** 3
    return value if shape >= 1 else value * math.exp(math.log(1 - uniform(stream)) / shape)


@_loop
def places(rows):  # type: ignore[no-untyped-def]
    """A word for each place: a column of positions (modes, n)."""
    out = np.empty(rows.shape[1], np.uint64)
    for n in range(out.size):
        word = np.uint64(0)
        for m in range(rows.shape[0]):
            word = _mixed(word + np.uint64(rows[m, n]) + _STEP)
        out[n] = word
    return out


@_loop
def uniforms(key, places):  # type: ignore[no-untyped-def]
    """Uniform numbers in [0, 1)."""
    stream, out = np.empty(4, np.uint64), np.empty(places.size)
    for n in range(out.size):
        _start(stream, places[n] + key)
        out[n] = uniform(stream)
    return out


@_loop
def gammas(key, places, shapes):  # type: ignore[no-untyped-def]
    """Standard Gamma numbers of these shapes."""
    stream, out = np.empty(4, np.uint64), np.empty(places.size)
    for n in range(out.size):
        _start(stream, places[n] + key)
        out[n] = _gamma(stream, shapes[n])
    return out


@_loop
def poissons(key, places, rates):  # type: ignore[no-untyped-def]
    """Poisson counts of these rates."""
    stream, out = np.empty(4, np.uint64), np.empty(places.size, np.int64)
    for n in range(out.size):
        _start(stream, places[n] + key)
        out[n] = np.int64(poisson(stream, rates[n]))
    return out
