"""Random numbers for compiled kernels: uniform, binomial, multinomial, Poisson, and zero-truncated Poisson.

A stream is an array of four 64-bit words, the state of xoshiro256++ (Blackman and Vigna, 2021), seeded with NumPy's
``SeedSequence``. All draws are whole numbers in float64, exact up to 2^53, and their cost does not grow with the count.
NumPy's generators can be called from Numba too, but this one is twice as fast there, and its draws are the same in
every version.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pltf.special import AS_WRITTEN, compiled

Stream = NDArray[np.uint64]

INVERTED = 10.0  # mean up to which inversion is used; above, rejection has the same cost for any mean
_MOST_STEPS = 120.0  # a draw of mean 10 exceeds this with probability 1e-80
_UNIT = 2.0**-53

_helper = compiled(AS_WRITTEN, inside=True)


def stream(key: Sequence[int]) -> Stream:
    """A random stream; different keys have independent streams.

    >>> bool((stream((7, 0)) == stream((7, 0))).all()), bool((stream((7, 0)) == stream((7, 1))).any())
    (True, False)
    """
    # The length distinguishes (1,) from (1, 0), which are the same for SeedSequence.
    return np.random.SeedSequence((len(key), *key)).generate_state(4, np.uint64).astype(np.uint64, copy=False)


@_helper
def _rotated(x, k):  # type: ignore[no-untyped-def]
    return (x << np.uint64(k)) | (x >> np.uint64(64 - k))


@_helper
def uniform(stream):  # type: ignore[no-untyped-def]
    """A uniform number in [0, 1) with 53 bits."""
    a, b, c, d = stream[0], stream[1], stream[2], stream[3]
    drawn = _rotated(a + d, 23) + a
    c ^= a
    d ^= b
    stream[0], stream[1], stream[2], stream[3] = a ^ d, b ^ c, c ^ (b << np.uint64(17)), _rotated(d, 45)
    # In the order of the original xoshiro: c ^= a; d ^= b; b ^= c; a ^= d; c ^= (old b) << 17; d = rotl(d, 45).
    return np.int64(drawn >> np.uint64(11)) * _UNIT


@_helper
def _stirling(k):  # type: ignore[no-untyped-def]
    """log(k!) minus Stirling's formula (k + 1/2) log(k + 1) - (k + 1) + log(2 pi)/2, for an integer k."""
    if k < 10:  # the series is too inaccurate for small k
        factorial = 1.0
        for i in range(2, int(k) + 1):
            factorial *= i
        return math.log(factorial) - ((k + 0.5) * math.log(k + 1) - (k + 1) + 0.5 * math.log(2 * math.pi))
    w = 1 / (k + 1)
    v = w * w
    return w * (1 / 12 - v * (1 / 360 - v * (1 / 1260 - v * (1 / 1680))))


@_helper
def rarer(stream, n, p):  # type: ignore[no-untyped-def]
    """Binomial(n, p), for integer n and p of at most 1/2."""
    if n * p < INVERTED:
        return _counted_up(stream, n, p)
    return _by_rejection(stream, n, p)


@_helper
def _counted_up(stream, n, p):  # type: ignore[no-untyped-def]
    """Binomial by inversion: subtract P(0), P(1), ... from a uniform number until it is used up."""
    u = uniform(stream)
    if u >= n * p:  # P(0) is at least 1 - np
        return 0.0
    if n == 1:
        return 1.0
    odds, k = p / (1 - p), 0.0
    chance, left, most = math.exp(n * math.log1p(-p)), 1 - u, min(n, _MOST_STEPS)
    while left > chance and k < most:
        left -= chance
        k += 1
        chance *= odds * (n - k + 1) / k
    return k


@_helper
def _by_rejection(stream, n, p):  # type: ignore[no-untyped-def]
    """Binomial of mean 10 or more: transformed rejection with a squeeze (Hörmann, 1993: BTRS).

    Logarithms near 1 are computed from the difference to 1, so that n may be as large as 2^53.
    """
    q = 1 - p
    spread = math.sqrt(n * p * q)
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre, sure = n * p + 0.5, 0.92 - 4.2 / b
    while True:
        u, v = uniform(stream) - 0.5, uniform(stream)
        near = 0.5 - abs(u)
        if near == 0:
            continue
        k = math.floor((2 * a / near + b) * u + centre)
        if near >= 0.07 and v <= sure:
            return k
        if k < 0 or k > n:
            continue
        alpha = (2.83 + 5.1 / b) * spread
        if math.log(v * alpha / (a / (near * near) + b)) <= _log_ratio(n, p, k):
            return k


@_helper
def _log_ratio(n, p, k):  # type: ignore[no-untyped-def]
    """log of P(k) / P(m) of a binomial with mode m."""
    m = math.floor((n + 1) * p)
    step, odds = m - k, p / (1 - p)
    value = step * math.log((m + 1) / (odds * (n - m + 1))) + (n + 1) * math.log1p(-step / (n - k + 1))
    value += (k + 0.5) * (math.log1p(step / (k + 1)) - math.log1p(-step / (n - k + 1)))
    return value + _stirling(m) + _stirling(n - m) - _stirling(k) - _stirling(n - k)


@_helper
def positive_poisson(stream, rate):  # type: ignore[no-untyped-def]
    """A zero-truncated Poisson count of this rate."""
    if rate >= INVERTED:
        k = 0.0
        while k == 0:
            k = _poisson(stream, rate)
        return k
    left, k, chance = 1 - uniform(stream), 1.0, rate / math.expm1(rate) if rate > 0 else 1.0
    while left > chance and k < _MOST_STEPS:
        left -= chance
        k += 1
        chance *= rate / k
    return k


@_helper
def poisson(stream, rate):  # type: ignore[no-untyped-def]
    """A Poisson count of this rate."""
    if rate >= INVERTED:
        return _poisson(stream, rate)
    left, k, chance = 1 - uniform(stream), 0.0, math.exp(-rate)
    while left > chance and k < _MOST_STEPS:
        left -= chance
        k += 1
        chance *= rate / k
    return k


@_helper
def _poisson(stream, rate):  # type: ignore[no-untyped-def]
    """Poisson with rate 10 or more: transformed rejection (Hörmann, 1993: PTRS)."""
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    sure, scale = 0.9277 - 3.6224 / (b - 2), 1.1239 + 1.1328 / (b - 3.4)
    while True:
        u, v = uniform(stream) - 0.5, uniform(stream)
        near = 0.5 - abs(u)
        if near == 0:
            continue
        k = math.floor((2 * a / near + b) * u + rate + 0.43)
        if near >= 0.07 and v <= sure:
            return k
        if k < 0 or (near < 0.013 and v > near):
            continue
        # log P(k) = k log(rate) - rate - log k!, computed from differences without cancellation
        ahead = (rate - k - 1) / (k + 1)
        log_chance = (k + 0.5) * math.log1p(ahead) - (rate - k - 1) - 0.5 * math.log(2 * math.pi * rate) - _stirling(k)
        if math.log(v * scale / (a / (near * near) + b)) <= log_chance:
            return k
