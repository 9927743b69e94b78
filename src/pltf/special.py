"""Logarithm, exponential and parts of the Gamma function, as compiled loops that vectorize.

SciPy's digamma and gammaln process one entry at a time, about 20 ns each: they would take half the time of an
iteration over millions of parameters. The functions here have no branches and no calls, so loops over them vectorize.
Series are truncated where the first omitted term is below 5e-17 of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Any

from pltf.compiling import njit  # before Numba: it checks settings with which Numba cannot be imported

# isort: split

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic, overload

# Sums keep their written order, which matters here; a product and a sum may be fused into one instruction.
AS_WRITTEN = {"contract", "nsz"}
# Sums may be reordered for vectorization; NaN and infinity keep their meaning.
ANY_ORDER = {"reassoc", "contract", "nsz"}


def compiled(fastmath: Set[str], inside: bool = False) -> Any:
    """Decorator that compiles a function without the GIL; ``inside`` is for functions called only from compiled code.

    Those have no Python entry point and are not cached: otherwise it would be random whether the cached code is
    inlined, and thus how it rounds.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath, "no_cfunc_wrapper": True}
    options |= {"no_cpython_wrapper": True} if inside else {"cache": True}
    return njit(**options)


_helper = compiled(AS_WRITTEN, inside=True)
_loop = compiled(ANY_ORDER)

_LN2_HIGH = 0.6931471803691238  # 32 bits of log 2, so that its product with an exponent is exact,
_LN2_LOW = 1.9082149292705877e-10  # and the rest
_SQRT_HALF = int(np.float64(math.sqrt(0.5)).view(np.int64))  # as bits
_LARGEST = float(np.finfo(np.float64).max)
_SQRT_HALF_32 = int(np.float32(math.sqrt(0.5)).view(np.int32))
_LARGEST_32 = np.finfo(np.float32).max
_ROUND = 1.5 * 2.0**52  # a number added to this is rounded to an integer, stored in the low bits of the sum
_ROUND_BITS = int(np.float64(_ROUND).view(np.int64))
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def _reinterpreted(source: Any, target: Any, kind: Any) -> Any:
    """A compiled function that reinterprets the bits of one type as another."""

    @intrinsic
    def cast(typing_context: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], kind)

        return target(source), codegen

    return cast


_bits = _reinterpreted(numba.float64, numba.int64, ir.IntType(64))
_from_bits = _reinterpreted(numba.int64, numba.float64, ir.DoubleType())
_bits_32 = _reinterpreted(numba.float32, numba.int32, ir.IntType(32))
_from_bits_32 = _reinterpreted(numba.int32, numba.float32, ir.FloatType())


@_helper
def log(x):  # type: ignore[no-untyped-def]
    """``np.log`` of a non-negative number.

    x = 2^k * m with m from sqrt(1/2) to sqrt(2), and log m = 2 artanh(s) = 2s (1 + s^2/3 + s^4/5 + ...), where
    s = (m-1)/(m+1).
    """
    tiny = x < 1e-300
    scaled = x * 2.0**54 if tiny else x  # scale subnormal numbers into the normal range
    bits = _bits(scaled) - _SQRT_HALF
    exponent = bits >> 52
    f = _from_bits(bits - (exponent << 52) + _SQRT_HALF) - 1.0
    k = exponent - 54.0 if tiny else exponent * 1.0
    s = f / (2.0 + f)
    z = s * s
    z2 = z * z
    z4 = z2 * z2
    low = (1 / 3 + z * (1 / 5)) + z2 * (1 / 7 + z * (1 / 9))
    high = (1 / 11 + z * (1 / 13)) + z2 * (1 / 15 + z * (1 / 17)) + z4 * (1 / 19)
    value = k * _LN2_HIGH + (2 * s + (2 * s * z * (low + z4 * high) + k * _LN2_LOW))
    value = value if x <= _LARGEST else x  # infinity, NaN
    return -math.inf if x == 0 else value


@_helper
def log_32(x):  # type: ignore[no-untyped-def]
    """:func:`log` of a float32, in float32 but for the exponent: twice as many per instruction. Returns a float64."""
    one, two = np.float32(1), np.float32(2)
    tiny = x < np.float32(1e-36)
    scaled = x * np.float32(2.0**25) if tiny else x
    bits = numba.int32(_bits_32(scaled) - numba.int32(_SQRT_HALF_32))
    exponent = numba.int32(bits >> numba.int32(23))
    mantissa = numba.int32(numba.int32(bits - numba.int32(exponent << numba.int32(23))) + numba.int32(_SQRT_HALF_32))
    f = _from_bits_32(mantissa) - one
    k = exponent - 25.0 if tiny else exponent * 1.0
    s = f / (two + f)
    z = s * s
    series = np.float32(1 / 3) + z * (np.float32(1 / 5) + z * (np.float32(1 / 7) + z * np.float32(1 / 9)))
    value = k * math.log(2) + np.float64(two * s + two * s * z * series)
    value = value if x <= _LARGEST_32 else np.float64(x)
    return -math.inf if x == 0 else value


def natural_log(x: float) -> float:
    """The logarithm; in compiled code :func:`log` or :func:`log_32`, by the type of x."""
    return math.log(x)


@overload(natural_log)
def _natural_log(x):  # type: ignore[no-untyped-def]
    chosen = log_32 if x == numba.float32 else log
    return lambda x: chosen(x)


# For numbers that are not zero, subnormal, infinite or NaN: x = 2^k * m with m from sqrt(1/2) to sqrt(2), so that
# log x = k log 2 + log m. Without the other cases, a loop takes two thirds of the time of one over `log`.


@_helper
def _exponent(x):  # type: ignore[no-untyped-def]
    return (_bits(x) - _SQRT_HALF) >> 52


@_helper
def _log_mantissa(x):  # type: ignore[no-untyped-def]
    """2s + s R(s^2) with s = (m-1)/(m+1): R is the best polynomial (FreeBSD's msun), exact to 2^-58."""
    bits = _bits(x) - _SQRT_HALF
    f = _from_bits(bits - ((bits >> 52) << 52) + _SQRT_HALF) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = 0.6666666666666735 + w * (0.2857142874366239 + w * (0.1818357216161805 + w * 0.14798198605116586))
    even = 0.3999999999940942 + w * (0.22222198432149784 + w * 0.15313837699209373)
    return 2 * s + s * (z * odd + w * even)


@_helper
def _exponent_32(x):  # type: ignore[no-untyped-def]
    return numba.int32(numba.int32(_bits_32(x) - numba.int32(_SQRT_HALF_32)) >> numba.int32(23))


@_helper
def _log_mantissa_32(x):  # type: ignore[no-untyped-def]
    """:func:`_log_mantissa` of a float32, as a float32."""
    bits = numba.int32(_bits_32(x) - numba.int32(_SQRT_HALF_32))
    power = numba.int32(numba.int32(bits >> numba.int32(23)) << numba.int32(23))
    f = _from_bits_32(numba.int32(numba.int32(bits - power) + numba.int32(_SQRT_HALF_32))) - np.float32(1)
    s = f / (np.float32(2) + f)
    z = s * s
    w = z * z
    odd, even = np.float32(0.6666666) + w * np.float32(0.28498787), np.float32(0.40000972) + w * np.float32(0.24279079)
    return np.float32(2) * s + s * (z * odd + w * even)


def exponent_of(x: float) -> int:
    """k, an integer; in compiled code of a float64 or float32."""
    return math.frexp(x * math.sqrt(2))[1] - 1


def log_mantissa(x: float) -> float:
    """log m, in the type of x."""
    return math.log(x) - exponent_of(x) * math.log(2)


def normal_range(x: float) -> tuple[float, float]:
    """The smallest and the largest normal number of the type of x."""
    return float(np.finfo(type(x)).tiny), float(np.finfo(type(x)).max)


@overload(exponent_of)
def _exponent_of(x):  # type: ignore[no-untyped-def]
    chosen = _exponent_32 if x == numba.float32 else _exponent
    return lambda x: chosen(x)


@overload(log_mantissa)
def _log_mantissa_of(x):  # type: ignore[no-untyped-def]
    chosen = _log_mantissa_32 if x == numba.float32 else _log_mantissa
    return lambda x: chosen(x)


@overload(normal_range)
def _normal_range(x):  # type: ignore[no-untyped-def]
    kind = np.float32 if x == numba.float32 else np.float64
    least, most = np.finfo(kind).tiny, np.finfo(kind).max
    return lambda x: (least, most)


@_helper
def exp(x):  # type: ignore[no-untyped-def]
    """``np.exp``: 2^k * e^f with f of at most log(2)/2, by its series."""
    x = max(min(x, 800.0), -800.0)
    rounded = x * (1 / math.log(2)) + _ROUND
    k = rounded - _ROUND
    f = (x - k * _LN2_HIGH) - k * _LN2_LOW
    f2 = f * f
    f4 = f2 * f2
    low = (1 / 2 + f * (1 / 6)) + f2 * (1 / 24 + f * (1 / 120))
    middle = (1 / 720 + f * (1 / 5040)) + f2 * (1 / 40320 + f * (1 / 362880))
    high = (1 / 3628800 + f * (1 / 39916800)) + f2 * (1 / 479001600 + f * (1 / 6227020800))
    value = 1 + (f + f2 * (low + f4 * (middle + f4 * high)))
    whole = _bits(rounded) - _ROUND_BITS
    half = whole >> 1  # in two steps: 2^k alone may overflow where the product does not
    return value * _from_bits((half + 1023) << 52) * _from_bits((whole - half + 1023) << 52)


@_helper
def link_probability(rate):  # type: ignore[no-untyped-def]
    """``-np.expm1(-rate)`` of a non-negative rate: the probability of a positive count. Returns a float64.

    exp(-rate) = 2^k * e^f as in :func:`exp`, and 1 - 2^k e^f = (1 - 2^k) - 2^k (e^f - 1), without cancellation.
    """
    x = -min(np.float64(rate), 700.0)
    rounded = x * (1 / math.log(2)) + _ROUND
    k = rounded - _ROUND
    f = (x - k * _LN2_HIGH) - k * _LN2_LOW
    f2 = f * f
    f4 = f2 * f2
    low = (1 / 2 + f * (1 / 6)) + f2 * (1 / 24 + f * (1 / 120))
    middle = (1 / 720 + f * (1 / 5040)) + f2 * (1 / 40320 + f * (1 / 362880))
    high = (1 / 3628800 + f * (1 / 39916800)) + f2 * (1 / 479001600 + f * (1 / 6227020800))
    power = _from_bits((_bits(rounded) - _ROUND_BITS + 1023) << 52)
    return (1 - power) - power * (f + f2 * (low + f4 * (middle + f4 * high)))


@_helper
def link_ratio(rate):  # type: ignore[no-untyped-def]
    """The expected hidden count of a link divided by its rate, ``1 / (1 - exp(-rate))``. Returns a float64."""
    return 1 / link_probability(rate)


@_helper
def _psi_parts(x):  # type: ignore[no-untyped-def]
    """(y, b, rho) of x > 0, for y = x + 10: digamma(x) = log(y) + b, and rho = x (x+1) ... (x+9) / y^10.

    digamma(x) = digamma(y) - rho'/rho, and from 10 on digamma is given by its asymptotic series.
    """
    y = x + 10.0
    w = 1 / y
    rho, slope = x * w, 1.0
    for k in range(1, 10):
        u = (x + k) * w
        slope = slope * u + rho
        rho = rho * u
    v = w * w
    v2 = v * v
    series = (1 / 12 - v * (1 / 120)) + v2 * (
        (1 / 252 - v * (1 / 240)) + v2 * ((1 / 132 - v * (691 / 32760)) + v2 * (1 / 12))
    )
    return y, -w * (0.5 + w * series) - w * slope / rho, rho


@_loop
def geomean_loop(C, D, L):  # type: ignore[no-untyped-def]
    """``L[:] = exp(digamma(C)) * D``, flat arrays; full precision at any C."""
    for n in range(C.size):
        y, b, _ = _psi_parts(C[n])
        L[n] = y * exp(b) * D[n]


@_loop
def log_geomean_loop(C, D, out):  # type: ignore[no-untyped-def]
    """``out[:] = digamma(C) + log(D)``; flat arrays."""
    for n in range(C.size):
        y, b, _ = _psi_parts(C[n])
        out[n] = log(y * D[n]) + b


@_loop
def kl_loop(C, D, A, rate, lgamma_A, L):  # type: ignore[no-untyped-def]
    """Sum of KL( Gamma(C, scale D) || Gamma(A, rate) ), and ``L[:] = exp(digamma(C)) * D``; flat arrays.

    KL = [C digamma(C) - lgamma(C) - C] - A (digamma(C) + log(D rate)) + lgamma(A) + C D rate. The large terms in the
    bracket cancel: with Stirling's series s for lgamma(y), y = C + 10, the bracket is
    log(rho sqrt(y)) + C b + 10 - s - log(2 pi)/2.
    """
    total = 0.0
    for n in range(C.size):
        x = C[n]
        y, b, rho = _psi_parts(x)
        L[n] = y * exp(b) * D[n]
        w = 1 / y
        v = w * w
        v2 = v * v
        early = (1 / 12 - v * (1 / 360)) + v2 * (1 / 1260 - v * (1 / 1680))
        late = (1 / 1188 - v * (691 / 360360)) + v2 * (1 / 156)
        stirling = w * (early + v2 * v2 * late)
        scaled = D[n] * rate[n]
        bracket = log(rho * math.sqrt(y)) + (x * b + 10.0) - stirling - _HALF_LOG_2PI
        total += bracket - A[n] * (log(scaled * y) + b) + lgamma_A[n] + x * scaled
    return total


@_loop
def stretch_loop(old, new, eta, noise, out):  # type: ignore[no-untyped-def]
    """``out[:] = old * (new/old)**eta`` where both are positive and the step is above noise, else ``new``; flat."""
    for n in range(old.size):
        moves = (old[n] > 0) & (new[n] > 0) & (abs(new[n] - old[n]) > noise * old[n])
        far = old[n] * exp(eta * log(new[n] / old[n]))
        out[n] = far if moves else new[n]


@_loop
def log_ratio_loop(a, b, out):  # type: ignore[no-untyped-def]
    """``out[:] = log(a / b)``, or 0 where either is zero; flat arrays."""
    for n in range(a.size):
        out[n] = log(a[n] / b[n] if (a[n] > 0) & (b[n] > 0) else 1.0)


@_loop
def move_loop(old, plain, step, out):  # type: ignore[no-untyped-def]
    """``out[:] = old * exp(step)``, or ``plain`` where ``plain`` or ``old`` is zero; flat arrays."""
    for n in range(old.size):
        far = old[n] * exp(step[n])
        out[n] = far if (old[n] > 0) & (plain[n] > 0) else plain[n]


@njit(cache=True, nogil=True, error_model="numpy")
def combine_loop(shares, rows, longest, out):  # type: ignore[no-untyped-def]
    """``out[:] = shares @ rows``, clipped to +-longest; rows are added in order, those with share 0 are skipped."""
    for n in range(out.size):
        out[n] = 0.0
    for k in range(shares.size):
        if shares[k] != 0:
            for n in range(out.size):
                out[n] += shares[k] * rows[k, n]
    for n in range(out.size):
        if out[n] < -longest:
            out[n] = -longest
        elif out[n] > longest:
            out[n] = longest


@_loop
def cast_loss_loop(counts, before, after):  # type: ignore[no-untyped-def]
    """Sum of ``counts * log(before / after)``, skipping entries where after is zero; flat arrays."""
    total = 0.0
    for n in range(counts.size):
        rounded = np.float64(after[n])
        total += counts[n] * log(before[n] / rounded if rounded > 0 else 1.0)
    return total
