"""Contribution of one observed cell, for Triton kernels: the counterpart of ``cells.py``."""
# Triton reads the source of these functions, and does not support Python type hints.
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def link_probability(rate):
    """1 - exp(-rate) without cancellation: a series for small rates, else exp."""
    TERMS: tl.constexpr = 9 if rate.dtype == tl.float32 else 14
    series = rate * 0 + 1.0
    for k in tl.static_range(TERMS, 1, -1):
        series = 1.0 - series * rate * (1.0 / k)
    return tl.where(rate < 0.5, rate * series, 1.0 - tl.exp(-rate))


@triton.jit
def ratio_of(x, rate, seen, LINKS: tl.constexpr):
    """M*X/Xhat, for links M*X/(1-exp(-Xhat)); 0 where a cell is not ``seen`` or has no count."""
    counted = seen & (x > 0)
    odds = tl.where(counted, link_probability(rate) if LINKS else rate, 1.0)
    return tl.where(counted, x / odds, 0.0)


@triton.jit
def log_term_of(x, rate, ratio, LINKS: tl.constexpr):
    """X*log(Xhat/X), for links log(exp(Xhat)-1), from the ratio; 0 where the ratio is zero."""
    term = -x * tl.log(tl.where(ratio > 0, ratio, 1.0))
    if LINKS:
        term += tl.where(ratio > 0, rate, 0.0)
    return tl.where(ratio > 0, term, 0.0)


@triton.jit
def wide_log(ratio):
    """Logarithm in float64 of a positive number of any type.

    For float32, the power of two is split off and its logarithm added in float64: the remaining factor is near 1, and
    the error of its float32 logarithm does not exceed that of the ratio. A float64 logarithm would dominate the cost of
    a cell.
    """
    if ratio.dtype == tl.float32:
        bits = ratio.to(tl.int32, bitcast=True)
        power = (bits - 0x3F400000) >> 23  # of two: the remaining factor is between 3/4 and 3/2
        left = (bits - (power << 23)).to(tl.float32, bitcast=True)
        log = tl.log(left).to(tl.float64) + power.to(tl.float64) * 0.6931471805599453
        return tl.where(ratio < float("inf"), log, float("inf"))
    else:
        return tl.log(ratio.to(tl.float64))


@triton.jit
def wide_log_term_of(x, rate, ratio, seen, LINKS: tl.constexpr):
    """:func:`log_term_of` in float64; infinite or NaN rates of non-zero cells are propagated."""
    term = -x.to(tl.float64) * wide_log(tl.where(ratio > 0, ratio, 1.0))
    if LINKS:
        term += tl.where(ratio > 0, rate, 0.0).to(tl.float64)
    return tl.where(ratio > 0, term, tl.where(seen & (x > 0) & ~(rate < float("inf")), rate, 0.0).to(tl.float64))


@triton.jit
def quick_ratio_of(x, rate, LINKS: tl.constexpr, NATIVE: tl.constexpr):
    """:func:`ratio_of` in float32, by an approximate reciprocal and a Newton step; requires x > 0.

    Needs half the instructions of a division. A rate of 0 is treated as 1e-38: :func:`log_parts` detects the ratio.
    """
    odds = tl.maximum(link_probability(rate) if LINKS else rate, 1.1754944e-38)
    if NATIVE:
        inverse = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [odds], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        inverse = 1.0 / odds
    ratio = x * inverse
    return tl.fma(tl.fma(-odds, ratio, x), inverse, ratio)


@triton.jit
def log_parts(ratio):
    """The log of a float32 as ``powers * log(2) / 2**23 + rest``, so that sums of large powers stay exact.

    Infinite above 2**120, the result of a rate of 0. The series is from the Cephes library.
    """
    bits = ratio.to(tl.int32, bitcast=True)
    power = (bits - 0x3F3504F3) & -0x800000  # the remaining factor is between sqrt(1/2) and sqrt(2)
    f = (bits - power).to(tl.float32, bitcast=True) - 1.0
    series = tl.fma(f, 7.0376836292e-2, -1.1514610310e-1)
    series = tl.fma(f, series, 1.1676998740e-1)
    series = tl.fma(f, series, -1.2420140846e-1)
    series = tl.fma(f, series, 1.4249322787e-1)
    series = tl.fma(f, series, -1.6668057665e-1)
    series = tl.fma(f, series, 2.0000714765e-1)
    series = tl.fma(f, series, -2.4999993993e-1)
    series = tl.fma(f, series, 3.3333331174e-1)
    series = tl.fma(f, series, -0.5)
    return tl.where(power > 120 * 0x800000, float("inf"), power.to(tl.float32)), tl.fma(series * f, f, f)
