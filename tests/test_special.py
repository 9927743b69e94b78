"""The compiled functions against mpmath and NumPy, from subnormal numbers to the largest."""

from __future__ import annotations

from typing import Any

import mpmath
import numba
import numpy as np
import pytest
from scipy import special as scipy_special

from pltf import special
from pltf.gamma import Array


@numba.njit
def _map_log(x, out):  # type: ignore[no-untyped-def]
    for n in range(x.size):
        out[n] = special.log(x[n])


@numba.njit
def _map_exp(x, out):  # type: ignore[no-untyped-def]
    for n in range(x.size):
        out[n] = special.exp(x[n])


@numba.njit
def _map_natural_log(x, out):  # type: ignore[no-untyped-def]
    for n in range(x.size):
        out[n] = special.natural_log(x[n])


@numba.njit
def _map_link_probability(x, out):  # type: ignore[no-untyped-def]
    for n in range(x.size):
        out[n] = special.link_probability(x[n])


def _mapped(loop: Any, x: Array) -> Array:
    out = np.empty_like(x)
    loop(x, out)
    return out


def _units_apart(got: Array, wanted: Array) -> float:
    return float((np.abs(got - wanted) / np.spacing(np.abs(wanted))).max())


def test_log_is_numpys_to_two_units_in_the_last_place() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [np.exp(rng.uniform(-744, 709, 50_000)), rng.uniform(0.4, 2.5, 50_000), 1 + rng.normal(0, 1e-6, 9)]
    )
    assert _units_apart(_mapped(_map_log, x), np.log(x)) <= 2
    ends = np.array([5e-324, 1e-310, np.finfo(float).tiny, 1.0, np.finfo(float).max])
    assert _units_apart(_mapped(_map_log, ends)[[0, 1, 2, 4]], np.log(ends)[[0, 1, 2, 4]]) <= 2
    np.testing.assert_array_equal(_mapped(_map_log, np.array([1.0, 0.0, np.inf, np.nan])), [0, -np.inf, np.inf, np.nan])


def test_the_probability_of_a_link_has_all_digits_at_any_rate() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([np.exp(rng.uniform(-700, 7, 50_000)), rng.uniform(0, 3, 50_000), [1e-310, 700.0, 1e300]])
    assert _units_apart(_mapped(_map_link_probability, x), -np.expm1(-x)) <= 3
    np.testing.assert_array_equal(_mapped(_map_link_probability, np.array([0.0, np.inf])), [0, 1])


def test_log_of_float32_is_numpys_to_its_precision() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([np.exp(rng.uniform(-87, 88, 50_000)), rng.uniform(0.4, 2.5, 50_000), [1e-45, 1e-40, 1.2e-38]])
    x = x.astype(np.float32)
    got, wanted = np.empty(x.size), np.log(x.astype(np.float64))
    _map_natural_log(x, got)
    assert (np.abs(got - wanted) <= 6e-8).all()  # of a mantissa's logarithm, which is 0.35 at most; exponents are exact
    ends = np.array([1.0, 0.0, np.inf, np.nan], dtype=np.float32)
    out = np.empty(4)
    _map_natural_log(ends, out)
    np.testing.assert_array_equal(out, [0, -np.inf, np.inf, np.nan])


def test_exp_is_numpys_to_two_units_in_the_last_place() -> None:
    x = np.concatenate([np.random.default_rng(0).uniform(-745, 709.7, 100_000), [0.0, 1.0, -1e-300]])
    assert _units_apart(_mapped(_map_exp, x), np.exp(x)) <= 2
    np.testing.assert_array_equal(
        _mapped(_map_exp, np.array([-np.inf, -800, 710, np.inf, np.nan])), [0, 0, *2 * [np.inf], np.nan]
    )


# Shapes from almost nothing to more counts than a float64 can tell apart, and many around the recurrence.
SHAPES = np.concatenate([10.0 ** np.arange(-300, 301, 25), 10.0 ** np.linspace(-3, 6, 60), np.arange(0.5, 13, 0.25)])


def test_geometric_mean_is_mpmaths_at_any_shape() -> None:
    L = np.empty_like(SHAPES)
    special.geomean_loop(SHAPES, np.full(SHAPES.shape, 0.5), L)
    with mpmath.workdps(60):
        for shape, got in zip(SHAPES, L, strict=True):
            log_mean = mpmath.digamma(mpmath.mpf(float(shape)))
            exact = mpmath.exp(log_mean) / 2
            if exact > 1e-300:
                # exp passes on the rounding of its argument, of two units in the last place
                assert abs(mpmath.mpf(float(got)) / exact - 1) < 3e-15 + (4.5e-16 * abs(log_mean) if shape < 1 else 0)
            else:
                assert got < 1e-299


@pytest.mark.parametrize(("A", "rate", "D"), [(0.5, 0.05, 0.3), (3.0, 1e-6, 1e4), (1e3, 40.0, 1e-5)])
def test_kl_is_mpmaths_at_any_shape(A: float, rate: float, D: float) -> None:
    lgamma_A = float(scipy_special.gammaln(A))
    with mpmath.workdps(400):
        a, r, d = (mpmath.mpf(value) for value in (A, rate, D))
        for shape in SHAPES:
            one: Any = [np.array([value]) for value in (shape, D, A, rate, lgamma_A)]
            got = special.kl_loop(one[0], one[1], one[2], one[3], one[4], np.empty(1))
            c = mpmath.mpf(float(shape))
            psi = mpmath.digamma(c)
            own = c * psi - mpmath.loggamma(c) - c
            rest = [-a * (psi + mpmath.log(d * r)), mpmath.loggamma(a), c * d * r]
            size = 1 + abs(own) + sum(abs(term) for term in rest)
            assert abs(got - (own + sum(rest))) < 2e-15 * size, shape
