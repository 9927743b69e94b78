"""Kernels that allocate counts at random: the passes of ``listed_kernels.py`` with draws instead of expectations.

Random numbers are a function of a seed and the numbers of the cell, the draw and the attempt (Philox: Salmon et al.,
2011), so the result does not depend on the order of programs or the block size. All draws are whole numbers in
float64, exact up to 2^53, and their cost does not grow with the count. A cell whose rate is zero, infinite or NaN is
not allocated; the log term is then not finite.
"""
# Triton reads the source of these functions, and does not support Python type hints.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from pltf.engines.torch.cell_kernels import link_probability, ratio_of, wide_log_term_of

INVERTED = tl.constexpr(10.0)  # mean up to which inversion is used; above, rejection has the same cost for any mean
MOST_STEPS = tl.constexpr(120.0)  # a draw of mean 10 exceeds this with probability 1e-80
MOST_ATTEMPTS = tl.constexpr(1000)  # each is accepted with probability 0.7 or more: only a NaN needs this many
UNIT = tl.constexpr(2.0**-53)
HALF_LOG_TWO_PI = tl.constexpr(0.9189385332046727)
DIRECT = tl.constexpr(8)  # counts per cell up to which each one is drawn individually
HIDDEN, SINGLE, FIRST = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # numbers of draws; components start at FIRST


# -- random numbers -----------------------------------------------------------------------------


@triton.jit
def uniforms(seed, cell, number, attempt):
    """Two uniform numbers in [0, 1) with 53 bits, for every cell."""
    low, high = cell.to(tl.uint32), (cell >> 32).to(tl.uint32)
    a, b, c, d = tl.philox(seed, low, high, (low * 0 + number).to(tl.uint32), (low * 0 + attempt).to(tl.uint32))
    return unit(a, b), unit(c, d)


@triton.jit
def unit(high, low):
    """A uniform number in [0, 1) from 64 random bits."""
    return (((high.to(tl.uint64) << 32) | low.to(tl.uint64)) >> 11).to(tl.float64) * UNIT


@triton.jit
def any_of(mask):
    """Whether any element is true."""
    return tl.max(mask.to(tl.int32), axis=0) > 0


@triton.jit
def log1p(x):
    """log(1 + x) at full precision, for x above -1 (Kahan)."""
    u = 1.0 + x
    lost = u == 1.0
    return tl.where(lost, x, tl.log(tl.where(lost, 2.0, u)) * x / tl.where(lost, 1.0, u - 1.0))


@triton.jit
def stirling(k):
    """log(k!) minus Stirling's formula (k + 1/2) log(k + 1) - (k + 1) + log(2 pi)/2, for an integer k."""
    w = 1.0 / (k + 1.0)
    v = w * w
    series = w * (1.0 / 12.0 - v * (1.0 / 360.0 - v * (1.0 / 1260.0 - v * (1.0 / 1680.0))))
    factorial = tl.full(k.shape, 1.0, tl.float64)
    for i in tl.static_range(2, 10):
        factorial *= tl.where((k >= i) & (k < 10), i * 1.0, 1.0)
    few = tl.log(factorial) - ((k + 0.5) * tl.log(k + 1.0) - (k + 1.0) + HALF_LOG_TWO_PI)
    return tl.where(k < 10, few, series)  # the series is too inaccurate for small k


@triton.jit
def counted_up(left, chance, odds, more, going):
    """Inversion: subtract P(0), P(1), ... from a uniform number until it is used up.

    ``P(k) = P(k - 1) * (odds / k - more)``. For a binomial, odds is (n+1)*p/(1-p) and more is p/(1-p); for a Poisson
    variable, odds is the rate and more is zero.
    """
    k = tl.zeros(left.shape, tl.float64)
    going = going & (left > chance)
    while any_of(going):
        left = tl.where(going, left - chance, left)
        k = tl.where(going, k + 1.0, k)
        chance = tl.where(going, chance * (odds / tl.maximum(k, 1.0) - more), chance)
        going = going & (left > chance) & (chance > 0.0) & (k < MOST_STEPS)
    return k


# -- binomial -----------------------------------------------------------------------------------


@triton.jit
def binomial(seed, cell, number, n, p, asked):
    """Binomial(n, p), for integer n and p of at most 1/2; 0 where it is not requested."""
    mean = n * p
    few, many = asked & (mean < INVERTED), asked & (mean >= INVERTED)
    drawn = tl.zeros(n.shape, tl.float64)
    if any_of(few):
        u, _ = uniforms(seed, cell, number, 0)
        odds = p / (1.0 - p)
        # P(0) is at least 1 - np: most draws do not need the power.
        chance = tl.exp(tl.where(few, n, 0.0) * log1p(-p))
        k = tl.minimum(counted_up(1.0 - u, chance, (n + 1.0) * odds, odds, few & (u < mean)), n)
        drawn = tl.where(few, k, drawn)
    if any_of(many):
        drawn = tl.where(many, binomial_by_rejection(seed, cell, number, n, p, many), drawn)
    return drawn


@triton.jit
def binomial_by_rejection(seed, cell, number, n, p, asked):
    """Binomial of mean 10 or more: transformed rejection with a squeeze (Hörmann, 1993: BTRS).

    Logarithms near 1 are computed from the difference to 1, so that n may be as large as 2^53.
    """
    n, p = tl.where(asked, n, 40.0), tl.where(asked, p, 0.5)
    spread = tl.sqrt(n * p * (1.0 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre, sure, alpha = n * p + 0.5, 0.92 - 4.2 / b, (2.83 + 5.1 / b) * spread
    drawn = tl.zeros(n.shape, tl.float64)
    attempt = 0
    while any_of(asked) & (attempt < MOST_ATTEMPTS):
        u, v = uniforms(seed, cell, number, attempt)
        near = tl.maximum(0.5 - tl.abs(u - 0.5), UNIT)
        k = tl.floor((2.0 * a / near + b) * (u - 0.5) + centre)
        inside = (k >= 0.0) & (k <= n)
        taken = inside & (near >= 0.07) & (v <= sure)
        if any_of(asked & inside & ~taken):
            height = tl.log(tl.maximum(v, UNIT) * alpha / (a / (near * near) + b))
            taken = taken | (inside & (height <= log_ratio(n, p, tl.where(inside, k, 0.0))))
        drawn = tl.where(asked & taken, k, drawn)
        asked = asked & ~taken
        attempt += 1
    return drawn


@triton.jit
def log_ratio(n, p, k):
    """log of P(k) / P(m) of a binomial with mode m."""
    m = tl.floor((n + 1.0) * p)
    step, odds = m - k, p / (1.0 - p)
    value = step * tl.log((m + 1.0) / (odds * (n - m + 1.0))) + (n + 1.0) * log1p(-step / (n - k + 1.0))
    value += (k + 0.5) * (log1p(step / (k + 1.0)) - log1p(-step / (n - k + 1.0)))
    return value + stirling(m) + stirling(n - m) - stirling(k) - stirling(n - k)


# -- hidden counts of links ---------------------------------------------------------------------


@triton.jit
def positive_poisson(seed, cell, rate, asked):
    """A zero-truncated Poisson count; 0 where it is not requested.

    The first event comes before time 1; the later ones are Poisson with the rate of the remaining time.
    """
    rate = tl.where(asked, rate, 1.0)
    u, _ = uniforms(seed, cell, HIDDEN, 0)
    left = tl.maximum(rate + log1p(-u * link_probability(rate)), 0.0)
    return tl.where(asked, 1.0 + poisson(seed, cell, left, asked), 0.0)


@triton.jit
def poisson(seed, cell, mean, asked):
    """A Poisson count."""
    few, many = asked & (mean < INVERTED), asked & (mean >= INVERTED)
    drawn = tl.zeros(mean.shape, tl.float64)
    if any_of(few):
        u, _ = uniforms(seed, cell, HIDDEN, 1)
        mild = tl.where(few, mean, 0.0)
        drawn = counted_up(1.0 - u, tl.exp(-mild), mild, 0.0, few)
    if any_of(many):
        drawn = tl.where(many, poisson_by_rejection(seed, cell, mean, many), drawn)
    return drawn


@triton.jit
def poisson_by_rejection(seed, cell, mean, asked):
    """Poisson with mean 10 or more: transformed rejection (Hörmann, 1993: PTRS)."""
    mean = tl.where(asked, mean, 10.0)
    b = 0.931 + 2.53 * tl.sqrt(mean)
    a = -0.059 + 0.02483 * b
    sure, scale = 0.9277 - 3.6224 / (b - 2.0), 1.1239 + 1.1328 / (b - 3.4)
    drawn = tl.zeros(mean.shape, tl.float64)
    attempt = 2  # after those of positive_poisson and poisson
    while any_of(asked) & (attempt < MOST_ATTEMPTS):
        u, v = uniforms(seed, cell, HIDDEN, attempt)
        near = tl.maximum(0.5 - tl.abs(u - 0.5), UNIT)
        k = tl.floor((2.0 * a / near + b) * (u - 0.5) + mean + 0.43)
        inside = (k >= 0.0) & ((near >= 0.013) | (v <= near))
        taken = (k >= 0.0) & (near >= 0.07) & (v <= sure)
        if any_of(asked & inside & ~taken):
            height = tl.log(tl.maximum(v, UNIT) * scale / (a / (near * near) + b))
            taken = taken | (inside & (height <= log_poisson(mean, tl.where(inside, k, 0.0))))
        drawn = tl.where(asked & taken, k, drawn)
        asked = asked & ~taken
        attempt += 1
    return drawn


@triton.jit
def log_poisson(mean, k):
    """log P(k) = k log(mean) - mean - log k!, computed from differences without cancellation."""
    ahead = mean - k - 1.0
    return (k + 0.5) * log1p(ahead / (k + 1.0)) - ahead - HALF_LOG_TWO_PI - 0.5 * tl.log(mean) - stirling(k)


@triton.jit
def hidden_counts(x, rate, seed, cell, seen, LINKS: tl.constexpr):
    """The counts to allocate: values of cells, or sampled hidden counts of links; 0 if the rate is zero."""
    drawable = seen & (rate > 0) & (rate < float("inf"))
    if LINKS:
        return positive_poisson(seed, cell, rate, drawable)
    else:
        return tl.where(drawable, x, 0.0)


# -- multinomial --------------------------------------------------------------------------------


@triton.jit
def share(seed, cell, r, left, weight, rest, many, most):
    """Number of remaining counts that one component draws, for cells with many counts; not for the largest component.

    The largest weight gets the remainder: then no probability exceeds 1/2, and none is a difference of nearly equal
    numbers.
    """
    asked = many & (r != most) & (left > 0) & (weight > 0)
    p = tl.where(asked, weight / tl.where(asked, rest, 1.0), 0.0)
    return binomial(seed, cell, FIRST + r, left, p, asked)


@triton.jit
def weight_of(
    table, own, positions, stride, cell, seen, r, MODES: tl.constexpr, SKIPPED: tl.constexpr, WIDTH: tl.constexpr
):
    """Contribution of component r to the rate of each cell, in float64."""
    weight = tl.where(seen, tl.load(table + own * WIDTH + r).to(tl.float64), 0.0)
    for n in tl.static_range(MODES):
        if n != SKIPPED:
            row = tl.load(positions + n * stride + cell, mask=seen, other=0).to(tl.int64)
            weight *= tl.load(table + row * WIDTH + r, mask=seen, other=0.0).to(tl.float64)
    return weight


@triton.jit(do_not_specialize=["stride", "R"])
def cp_draws(
    starts,  # up to log_terms as in cp_sums; parts are in float64
    owners,
    positions,
    order,
    x,
    table,
    parts,
    log_terms,
    seeds,  # (1,)
    stride,
    R,
    MODES: tl.constexpr,
    SKIPPED: tl.constexpr,
    WIDTH: tl.constexpr,
    COMPONENTS: tl.constexpr,
    CELLS: tl.constexpr,
    LINKS: tl.constexpr,
    MANY: tl.constexpr,  # whether any cell can have more than a few counts
):
    """Allocate the counts of the cells of one chunk at random, and sum them by component.

    A few counts are drawn individually: each goes to the component whose share of the rate contains a uniform number.
    Many counts are drawn by binomials, component by component, from the remaining ones.
    """
    chunk = tl.program_id(0).to(tl.int64)
    start = tl.load(starts + chunk).to(tl.int64)
    count = (tl.load(starts + chunk + 1).to(tl.int64) - start).to(tl.int32)
    stride = stride.to(tl.int64)
    own, seed = tl.load(owners + chunk).to(tl.int64), tl.load(seeds)
    components, c, d = tl.arange(0, COMPONENTS), tl.arange(0, CELLS), tl.arange(0, DIRECT // 2)
    sums = tl.zeros((COMPONENTS,), tl.float64)
    logs = tl.zeros((CELLS,), tl.float64)
    for first in range(0, count, CELLS):
        seen = first + c < count
        number = start + first + c  # of the cell, for its random numbers
        cell = number
        if order is not None:
            cell = tl.load(order + number, mask=seen, other=0).to(tl.int64)
        rate, largest = tl.zeros((CELLS,), tl.float64), tl.zeros((CELLS,), tl.float64)
        most = tl.zeros((CELLS,), tl.int32)
        for r in range(0, R):
            weight = weight_of(table, own, positions, stride, cell, seen, r, MODES, SKIPPED, WIDTH)
            rate += weight
            most = tl.where(weight > largest, r, most)
            largest = tl.maximum(largest, weight)
        counts = tl.load(x + cell, mask=seen, other=0.0).to(tl.float64)
        logs += wide_log_term_of(counts, rate, ratio_of(counts, rate, seen, LINKS), seen, LINKS)
        left = hidden_counts(counts, rate, seed, number, seen, LINKS)
        many = left > DIRECT
        u, v = uniforms(seed, number[:, None] + tl.zeros((1, DIRECT // 2), tl.int64), SINGLE, d[None, :])
        u, v = u * rate[:, None], v * rate[:, None]
        single = (left[:, None] > d[None, :]) & ~many[:, None]
        double = (left[:, None] > d[None, :] + DIRECT // 2) & ~many[:, None]
        below, rest = tl.zeros((CELLS,), tl.float64), rate
        for r in range(0, R):
            weight = weight_of(table, own, positions, stride, cell, seen, r, MODES, SKIPPED, WIDTH)
            above, from_, to = below + weight, below[:, None], (below + weight)[:, None]
            hits = (single & (u >= from_) & (u < to)).to(tl.float64) + (double & (v >= from_) & (v < to)).to(tl.float64)
            drawn = tl.where(r != most, tl.sum(hits, axis=1), 0.0)
            if MANY and any_of(many):
                drawn += share(seed, number, r, left, weight, rest, many, most)
            left -= drawn
            rest -= tl.where(r != most, weight, 0.0)
            below = above
            sums += tl.where(components == r, tl.sum(drawn, axis=0), 0.0)
        sums += tl.sum(tl.where(most[:, None] == components[None, :], left[:, None], 0.0), axis=0)
    tl.store(parts + chunk * WIDTH + components, sums, mask=components < WIDTH)
    tl.store(log_terms + chunk, tl.sum(logs, axis=0))


@triton.jit(do_not_specialize=["rows", "terms"])
def split_rows(
    counts,  # (rows,) in float64
    weights,  # (rows, terms) in float64
    drawn,  # (rows, terms) out, in float64
    seeds,  # (1,)
    rows,
    terms,
    ROWS: tl.constexpr,  # per program
):
    """``drawn[n]`` = multinomial of ``counts[n]`` over the weights of row n."""
    number = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    seen, seed = number < rows, tl.load(seeds)
    at = number * terms
    left = tl.load(counts + number, mask=seen, other=0.0)
    rest, largest = tl.zeros((ROWS,), tl.float64), tl.zeros((ROWS,), tl.float64)
    most = tl.zeros((ROWS,), tl.int32)
    for s in range(0, terms):
        weight = tl.load(weights + at + s, mask=seen, other=0.0)
        rest += weight
        most = tl.where(weight > largest, s, most)
        largest = tl.maximum(largest, weight)
    for s in range(0, terms):
        weight = tl.load(weights + at + s, mask=seen, other=0.0)
        some = share(seed, number, s, left, weight, rest, seen, most)
        left -= some
        rest -= tl.where(s != most, weight, 0.0)
        tl.store(drawn + at + s, some, mask=seen & (s != most))
    tl.store(drawn + at + most, left, mask=seen)


@triton.jit(do_not_specialize=["cells"])
def draw_links(x, rates, drawn, seeds, cells, CELLS: tl.constexpr):
    """``drawn[n]`` = the hidden count of a link with this rate, in float64."""
    number = tl.program_id(0).to(tl.int64) * CELLS + tl.arange(0, CELLS)
    seen, seed = number < cells, tl.load(seeds)
    counts = tl.load(x + number, mask=seen, other=0.0).to(tl.float64)
    rate = tl.load(rates + number, mask=seen, other=0.0).to(tl.float64)
    tl.store(drawn + number, hidden_counts(counts, rate, seed, number, seen & (counts > 0), LINKS=True), mask=seen)
