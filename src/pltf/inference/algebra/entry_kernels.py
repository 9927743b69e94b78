"""Triton kernels over the entries of factors: each reads its arrays once. Float64, one program per block.

Each docstring states the result in the notation of ``arrays.py``, the plain implementation. Sums are returned as one
number per program, to be added in order.
"""
# Triton reads the source of these functions, and does not support Python type hints.
# mypy: ignore-errors
# Annotations of arguments are Triton types and must stay objects: an unannotated number would be float32.

import triton
import triton.language as tl

from pltf.inference.algebra.arrays import NEWTON_SETTLED, NEWTON_STEPS

BLOCK = 1024  # entries per program
WARPS = 16  # two entries per thread: with more, registers spill
MOST_ROWS = 7  # of a stack: two per L-BFGS pair, and the residual
STEPS, SETTLED = tl.constexpr(NEWTON_STEPS), tl.constexpr(NEWTON_SETTLED)


@triton.jit
def _here(n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return at, at < n


@triton.jit
def _psi_parts(x):
    """(y, b, rho), as in ``arrays.py``: digamma(x) = log(y) + b."""
    y = x + 10.0
    w = 1.0 / y
    rho, slope = x * w, x * 0.0 + 1.0
    for k in tl.static_range(1, 10):
        u = (x + k) * w
        slope = slope * u + rho
        rho = rho * u
    v = w * w
    series = v * (1.0 / 12)
    series = v * (series - 691.0 / 32760)
    series = v * (series + 1.0 / 132)
    series = v * (series - 1.0 / 240)
    series = v * (series + 1.0 / 252)
    series = v * (series - 1.0 / 120)
    series = w * (series + 1.0 / 12)
    return y, -w * (0.5 + series) - w * slope / rho, rho


@triton.jit
def _stirling(y):
    w = 1.0 / y
    v = w * w
    series = v * (1.0 / 156)
    series = v * (series - 691.0 / 360360)
    series = v * (series + 1.0 / 1188)
    series = v * (series - 1.0 / 1680)
    series = v * (series + 1.0 / 1260)
    series = v * (series - 1.0 / 360)
    return w * (series + 1.0 / 12)


@triton.jit
def scales(C, exposure, D, E, rate, n, BLOCK: tl.constexpr):
    """D = 1 / (rate + exposure); E = C*D. The rate is an array of one number, as learned ones stay on the device."""
    at, inside = _here(n, BLOCK)
    d = 1.0 / (tl.load(exposure + at, mask=inside, other=1.0) + tl.load(rate))
    tl.store(D + at, d, mask=inside)
    tl.store(E + at, tl.load(C + at, mask=inside, other=0.0) * d, mask=inside)


@triton.jit
def geomean_kl(C, D, L, sums, rate, A: tl.float64, log_norm: tl.float64, n, BLOCK: tl.constexpr):
    """L = exp(digamma(C)) * D; the sum of KL( Gamma(C, scale D) || Gamma(A, A/B = rate) ), with the rate as above."""
    at, inside = _here(n, BLOCK)
    c, d = tl.load(C + at, mask=inside, other=1.0), tl.load(D + at, mask=inside, other=1.0)
    y, b, rho = _psi_parts(c)
    own = tl.log(rho * tl.sqrt(y)) + (c * b + 10.0) - _stirling(y) - 0.9189385332046727  # log(2 pi) / 2
    scaled = d * tl.load(rate)
    kl = own - (tl.log(scaled * y) + b) * A + log_norm + c * scaled
    tl.store(L + at, y * tl.exp(b) * d, mask=inside)
    tl.store(sums + tl.program_id(0), tl.sum(tl.where(inside, kl, 0.0), axis=0))


@triton.jit
def newton_sums(C, exposure, left, slope, A: tl.float64, B: tl.float64, n, BLOCK: tl.constexpr):
    """Sums of A*C*p and of A*C*p*p*exposure, with p = 1/(A + B*exposure)."""
    at, inside = _here(n, BLOCK)
    c, seen = tl.load(C + at, mask=inside, other=0.0), tl.load(exposure + at, mask=inside, other=0.0)
    p = 1.0 / (A + B * seen)
    part = A * c * p
    tl.store(left + tl.program_id(0), tl.sum(part, axis=0))
    tl.store(slope + tl.program_id(0), tl.sum(part * p * seen, axis=0))


@triton.jit
def best_means(C, exposure, shapes, means, least: tl.float64, most: tl.float64, n, BLOCK: tl.constexpr):
    """Newton's method for the mean of each group of n entries, in place, as ``arrays.newton``; a program per group."""
    own = tl.program_id(0).to(tl.int64) * n
    A, B = tl.load(shapes + tl.program_id(0)), tl.load(means + tl.program_id(0))
    change, step = B * 0.0 + 1.0, 0
    while (change > SETTLED) & (step < STEPS):
        left, slope = tl.zeros((BLOCK,), tl.float64), tl.zeros((BLOCK,), tl.float64)
        for first in range(0, n, BLOCK):
            at = first + tl.arange(0, BLOCK)
            c = tl.load(C + own + at, mask=at < n, other=0.0)
            seen = tl.load(exposure + own + at, mask=at < n, other=0.0)
            p = 1.0 / (A + B * seen)
            left += A * c * p
            slope += A * c * p * p * seen
        sum_left, sum_slope = tl.sum(left, axis=0), tl.sum(slope, axis=0)
        moves = sum_slope > 0
        new = B + (sum_left / (A * n) - 1.0) * sum_left / tl.where(moves, sum_slope, 1.0)
        new = tl.minimum(tl.maximum(tl.maximum(new, B / 100.0), least), most)
        change = tl.where(moves, tl.abs(new - B) / B, 0.0)
        B = tl.where(moves, new, B)
        step += 1
    tl.store(means + tl.program_id(0), B)


@triton.jit
def stretch(old, new, out, eta: tl.float64, noise: tl.float64, n, BLOCK: tl.constexpr):
    """old * (new/old)**eta; new where either is zero, and where it differs by no more than noise."""
    at, inside = _here(n, BLOCK)
    a, b = tl.load(old + at, mask=inside, other=1.0), tl.load(new + at, mask=inside, other=1.0)
    both = (a > 0) & (b > 0)
    step = tl.log(tl.where(both, b, 1.0) / tl.where(both, a, 1.0))
    moves = both & (tl.abs(b - a) > noise * a)
    tl.store(out + at, tl.where(moves, a * tl.exp(eta * tl.where(moves, step, 0.0)), b), mask=inside)


@triton.jit
def log_ratio(a, b, out, n, BLOCK: tl.constexpr):
    """log(a / b); 0 where either is zero."""
    at, inside = _here(n, BLOCK)
    x, y = tl.load(a + at, mask=inside, other=1.0), tl.load(b + at, mask=inside, other=1.0)
    both = (x > 0) & (y > 0)
    tl.store(out + at, tl.log(tl.where(both, x, 1.0) / tl.where(both, y, 1.0)), mask=inside)


@triton.jit
def move(old, plain, step, out, length: tl.float64, n, BLOCK: tl.constexpr):
    """old * exp(length*step); plain where it or old is zero."""
    at, inside = _here(n, BLOCK)
    a, b = tl.load(old + at, mask=inside, other=0.0), tl.load(plain + at, mask=inside, other=0.0)
    far = a * tl.exp(length * tl.load(step + at, mask=inside, other=0.0))
    tl.store(out + at, tl.where((a > 0) & (b > 0), far, b), mask=inside)


@triton.jit
def gram(r0, r1, r2, r3, r4, r5, r6, weight, sums, n, K: tl.constexpr, BLOCK: tl.constexpr):
    """Inner products of K rows with weights: sums[program, i*K + j] for j <= i."""
    at, inside = _here(n, BLOCK)
    w = tl.load(weight + at, mask=inside, other=0.0)
    rows = (r0, r1, r2, r3, r4, r5, r6)
    for i in tl.static_range(K):
        a = tl.load(rows[i] + at, mask=inside, other=0.0) * w
        for j in tl.static_range(i + 1):
            product = a * tl.load(rows[j] + at, mask=inside, other=0.0)
            tl.store(sums + tl.program_id(0).to(tl.int64) * K * K + i * K + j, tl.sum(product, axis=0))


@triton.jit
def combine(r0, r1, r2, r3, r4, r5, r6, shares, out, longest: tl.float64, n, K: tl.constexpr, BLOCK: tl.constexpr):
    """Linear combination of K rows, clipped to +-longest; rows with share 0 are ignored."""
    at, inside = _here(n, BLOCK)
    rows = (r0, r1, r2, r3, r4, r5, r6)
    far = tl.zeros((BLOCK,), tl.float64)
    for i in tl.static_range(K):
        share = tl.load(shares + i)
        far += tl.where(share != 0, share * tl.load(rows[i] + at, mask=inside, other=0.0), 0.0)
    tl.store(out + at, tl.minimum(tl.maximum(far, -longest), longest), mask=inside)
