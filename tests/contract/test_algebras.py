"""One suite for every algebra: against plain equations, SciPy and mpmath, and whole fits against each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special, stats

import pltf
import pltf.datasets
from pltf.engines import registry
from pltf.engines.base import Counts, Engine
from pltf.engines.factors import Versioned
from pltf.gamma import Array, Gamma
from pltf.inference import start
from pltf.inference.algebra import Algebra, Groups
from pltf.inference.algebra.arrays import ArrayAlgebra
from pltf.inference.algebra.compiled import NumbaAlgebra
from pltf.inference.algebra.host import directions, prior_on_host, traded
from pltf.inference.balance import trades
from pltf.inference.em import EM, MAP
from pltf.inference.priors import MEANS, groups
from pltf.inference.run import Run, Stop, Sweep, run
from pltf.inference.state import Method, Problem
from pltf.inference.vb import VB
from pltf.threads import PART
from tests.extras import TORCH, strict_arrays
from tests.on_device import device

STRICT = strict_arrays()

ALGEBRAS: dict[str, Callable[[], Algebra[Any]]] = {
    "numba, 1 thread": lambda: NumbaAlgebra(1),
    "numba, 2 threads": lambda: NumbaAlgebra(2),
    "arrays, numpy": lambda: ArrayAlgebra(np),
    "arrays, strict": lambda: ArrayAlgebra(STRICT),
}
if TORCH:
    ALGEBRAS["device"] = lambda: on_device(kernels=False)
    ALGEBRAS["device, kernels"] = lambda: on_device(kernels=True)


STACKING = [name for name in ALGEBRAS if name != "device, kernels"]  # those with inner products of their own


def on_device(*, kernels: bool) -> Algebra[Any]:
    """With Triton's kernels or without them."""
    from pltf.inference.algebra.on_device import DeviceAlgebra

    return DeviceAlgebra(device(kernels=kernels))


RNG = np.random.default_rng(0)
LARGE = 2 * PART + 3  # more than two parts
FULL = (5, 3, 4)
# Shapes from almost nothing to more counts than a float64 can tell apart, and many around the recurrence.
SHAPES = np.concatenate([10.0 ** np.arange(-300, 301, 25), 10.0 ** np.linspace(-3, 6, 60), np.arange(0.5, 13, 0.25)])
PRIORS = {
    "numbers": Gamma(0.7, 3.0),
    "full": Gamma(RNG.uniform(0.2, 3, FULL), RNG.uniform(0.5, 2, FULL)),
    "rows": Gamma(RNG.uniform(0.2, 3, (5, 1, 1)), 2.0),
    "columns": Gamma(0.4, RNG.uniform(0.5, 2, (4,))),
    "crossed": Gamma(np.array([[0.3], [0.8], [2.0]]), RNG.uniform(0.5, 2, (5, 1, 4))),
}


@pytest.fixture(autouse=True)
def _same_numbers_for_each_test() -> None:
    RNG.bit_generator.state = np.random.default_rng(1).bit_generator.state


@pytest.fixture(params=ALGEBRAS, name="algebra")
def _algebra(request: pytest.FixtureRequest) -> Algebra[Any]:
    return ALGEBRAS[request.param]()


@pytest.fixture(params=PRIORS, name="prior")
def _prior(request: pytest.FixtureRequest) -> Gamma:
    return PRIORS[request.param]


def positive(*shape: int) -> Array:
    return RNG.gamma(1.0, 2.0, shape) + 0.05


def same(algebra: Algebra[Any], got: Any, wanted: Array, rtol: float = 1e-13, atol: float = 0.0) -> None:
    np.testing.assert_allclose(algebra.get(got), wanted, rtol=rtol, atol=atol)
    assert algebra.get(got).shape == wanted.shape


# -- to and from the host -----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 1, 3)])
def test_what_is_put_comes_back(algebra: Algebra[Any], shape: tuple[int, ...]) -> None:
    host = np.asarray(RNG.random(shape))
    back = algebra.get(algebra.put(host.copy()))
    assert back.dtype == np.float64
    np.testing.assert_array_equal(back, host, strict=True)
    assert not back.flags.writeable


# -- posteriors ---------------------------------------------------------------------------------


def test_shapes_and_scales(algebra: Algebra[Any], prior: Gamma) -> None:
    counts, exposure = positive(*FULL), positive(*FULL)
    A, B = prior.broadcast(FULL)
    C = algebra.shapes({"Z": prior}, {"Z": algebra.put(counts), "other": algebra.put(counts)})
    assert list(C) == ["Z"]
    same(algebra, C["Z"], A + counts)
    D, E = algebra.scales(C["Z"], algebra.put(exposure), prior)
    same(algebra, D, 1 / (A / B + exposure))
    same(algebra, E, (A + counts) / (A / B + exposure))


def test_geomean_and_kl(algebra: Algebra[Any], prior: Gamma) -> None:
    """The textbook's formula; where terms do not go against each other it has its digits."""
    C, D = positive(*FULL), positive(*FULL)
    A, B = prior.broadcast(FULL)
    L, kl = algebra.geomean_kl(algebra.put(C), algebra.put(D), prior)
    same(algebra, L, np.exp(special.digamma(C)) * D)
    psi, rate = special.digamma(C), A / B
    wanted = (C - A) * psi - special.gammaln(C) + special.gammaln(A) - A * np.log(D * rate) + C * (D * rate - 1)
    assert float(kl) == pytest.approx(wanted.sum(), rel=1e-12)
    same(algebra, algebra.log_geomean(algebra.put(C), algebra.put(D)), psi + np.log(D), atol=4e-15)


def test_a_factor_may_be_a_single_number(algebra: Algebra[Any]) -> None:
    put, prior, one = algebra.put, Gamma(0.5, 2.0, learn="mean"), np.array(3.0)
    C = algebra.shapes({"Z": prior}, {"Z": put(one.copy())})["Z"]
    D, E = algebra.scales(C, put(one.copy()), prior)
    L, _ = algebra.geomean_kl(C, D, prior)
    B, *_ = algebra.best_scales(C, put(one.copy()), prior, Groups((), ()), MEANS)
    assert pytest.approx(1.0) == B
    wanted = {3.5: C, 1 / 3.25: D, 3.5 / 3.25: E, np.exp(special.digamma(3.5)) / 3.25: L}
    wanted |= {1.0: algebra.em_estimate(E, put(one.copy()), put(one.copy()))}
    wanted |= {2.5 / 3.25: algebra.map_estimate(put(one.copy()), put(one.copy()), prior)}
    for value, array in wanted.items():
        same(algebra, array, np.asarray(value))


def test_geometric_means_are_mpmaths_at_any_shape(algebra: Algebra[Any]) -> None:
    half = np.full(SHAPES.shape, 0.5)
    L, _ = algebra.geomean_kl(algebra.put(SHAPES.copy()), algebra.put(half), Gamma())
    log_L = algebra.get(algebra.log_geomean(algebra.put(SHAPES.copy()), algebra.put(half)))
    with mpmath.workdps(60):
        for shape, got, got_log in zip(SHAPES, algebra.get(L), log_L, strict=True):
            psi = mpmath.digamma(mpmath.mpf(float(shape)))
            exact = mpmath.exp(psi) / 2
            assert abs(mpmath.mpf(float(got_log)) - mpmath.log(exact)) < 1e-15 * (2 + abs(psi))
            if exact > 1e-300:
                # exp passes on the rounding of its argument, of two units in the last place
                assert abs(mpmath.mpf(float(got)) / exact - 1) < 3e-15 + (4.5e-16 * abs(psi) if shape < 1 else 0)
            else:
                assert got < 1e-299


@pytest.mark.parametrize(("A", "B", "D"), [(0.5, 10.0, 0.3), (3.0, 3e6, 1e4), (1e3, 25.0, 1e-5)])
def test_kl_is_mpmaths_at_any_shape(algebra: Algebra[Any], A: float, B: float, D: float) -> None:
    with mpmath.workdps(400):
        a, r, d = mpmath.mpf(A), mpmath.mpf(A / B), mpmath.mpf(D)
        for shape in SHAPES:
            _, got = algebra.geomean_kl(algebra.put(np.array([shape])), algebra.put(np.array([D])), Gamma(A, B))
            c = mpmath.mpf(float(shape))
            psi = mpmath.digamma(c)
            own = c * psi - mpmath.loggamma(c) - c
            rest = [-a * (psi + mpmath.log(d * r)), mpmath.loggamma(a), c * d * r]
            size = 1 + abs(own) + sum(abs(term) for term in rest)
            assert abs(float(got) - (own + sum(rest))) < 2e-15 * size, shape


@pytest.mark.parametrize("prior", [Gamma(0.5, 3.0), Gamma(RNG.uniform(0.2, 1, 7), 3.0), Gamma(np.full((9500, 1), 0.5))])
def test_large_factors_are_the_sum_of_their_parts(algebra: Algebra[Any], prior: Gamma) -> None:
    shape = (9500, 7)
    C, D = positive(*shape), positive(*shape)
    A, B = prior.broadcast(shape)
    L, kl = algebra.geomean_kl(algebra.put(C), algebra.put(D), prior)
    same(algebra, L, np.exp(special.digamma(C)) * D)
    rows = [
        algebra.geomean_kl(
            algebra.put(C[n : n + 500]), algebra.put(D[n : n + 500]), Gamma(A[n : n + 500], B[n : n + 500])
        )
        for n in range(0, 9500, 500)
    ]
    assert float(kl) == pytest.approx(sum(float(part) for _, part in rows), rel=1e-12)
    same(algebra, algebra.log_geomean(algebra.put(C), algebra.put(D)), special.digamma(C) + np.log(D), atol=4e-15)


# -- priors that are learned --------------------------------------------------------------------


def mean_on_host(algebra: Algebra[Any], B: Any) -> Any:
    return prior_on_host(algebra, Gamma(learn="mean").with_values(0.5, B)).mean


@pytest.mark.parametrize("shared", [(0, 1, 2), (0,), (2,), (1,), (0, 2), (1, 2)])
@pytest.mark.parametrize("varying", [False, True])
def test_best_means_solve_their_equation(algebra: Algebra[Any], shared: tuple[int, ...], varying: bool) -> None:
    A = RNG.uniform(0.3, 2.0, FULL) if varying else np.full(FULL, 0.7)
    C, exposure, tied = positive(*FULL) + A, positive(*FULL), Groups(FULL, shared)
    prior = Gamma(A if varying else 0.7, 1.0, learn="mean")
    B, D, E = algebra.best_scales(algebra.put(C), algebra.put(exposure), prior, tied, MEANS)
    B = mean_on_host(algebra, B)
    assert isinstance(B, float) if len(shared) == 3 else np.shape(B) == tied.value_shape
    left = (A * C / (A + B * exposure)).sum(axis=shared)
    np.testing.assert_allclose(left, A.sum(axis=shared), rtol=1e-12)
    same(algebra, D, 1 / (A / B + exposure))
    same(algebra, E, C / (A / B + exposure))


def test_best_means_stop_at_their_limits_and_stay_where_nothing_was_exposed(algebra: Algebra[Any]) -> None:
    C, exposure = np.array([[0.5, 5.0, 5.0]] * 4), np.array([[1.0, 0.0, 1e-40]] * 4)
    prior = Gamma(0.5, np.array([[1.0, 2.0, 3.0]]), learn="mean")
    B, *_ = algebra.best_scales(algebra.put(C), algebra.put(exposure), prior, Groups((4, 3), (0,)), (1e-3, 1e3))
    np.testing.assert_array_equal(mean_on_host(algebra, B), [[1e-3, 2.0, 1e3]])


@pytest.mark.parametrize("start", [1e-20, 1.0, 1e20])
@pytest.mark.parametrize("shared", [(0, 1), (0,), (1,)])
def test_best_means_take_the_same_steps_in_every_algebra(
    algebra: Algebra[Any], shared: tuple[int, ...], start: float
) -> None:
    """Also from far away, for groups that are larger than a block of a kernel, and where a group has few counts."""
    rng, shape = np.random.default_rng(2), (2, 5000) if shared == (1,) else (5000, 2)
    C, exposure, tied = rng.gamma(0.5, size=shape) + 0.5, rng.gamma(0.1, size=shape), Groups(shape, shared)
    C[(1, ...) if shared == (1,) else (..., 1)] = 0.5 + 1e-3
    prior = Gamma(0.5, start, learn="mean")
    here, there = (
        one.best_scales(one.put(C.copy()), one.put(exposure.copy()), prior, tied, MEANS)
        for one in (NumbaAlgebra(), algebra)
    )
    np.testing.assert_allclose(mean_on_host(algebra, there[0]), here[0], rtol=1e-10)
    for mine, theirs in zip(here[1:], there[1:], strict=True):
        same(algebra, theirs, mine, rtol=1e-10)


@pytest.mark.skipif(not TORCH, reason="needs torch")
def test_large_factors_learn_their_mean_with_many_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    algebra, prior = on_device(kernels=True), Gamma(0.5, 7.0, learn="mean")
    C, exposure = (algebra.put(positive(3000, 2)) for _ in range(2))
    one = algebra.best_scales(C, exposure, prior, Groups((3000, 2), (0, 1)), MEANS)
    monkeypatch.setattr("pltf.inference.algebra.on_device.MOST_AT_ONCE", 1)
    many = algebra.best_scales(C, exposure, prior, Groups((3000, 2), (0, 1)), MEANS)
    for mine, theirs in zip(one, many, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=1e-13)


@pytest.mark.parametrize("shared", [(0, 1, 2), (0,), (1, 2)])
def test_spreads(algebra: Algebra[Any], prior: Gamma, shared: tuple[int, ...]) -> None:
    E, log_L, B = positive(*FULL), RNG.normal(size=FULL), prior.broadcast(FULL)[1]
    got = algebra.spreads(algebra.put(E), algebra.put(log_L), prior.mean, Groups(FULL, shared))
    wanted = (E / B + np.log(B) - log_L).mean(axis=shared, keepdims=True) - 1
    np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=1e-13, strict=True)


# -- estimates ----------------------------------------------------------------------------------


def test_em_estimates(algebra: Algebra[Any]) -> None:
    Z, counts, exposure = positive(4, 3), positive(4, 3), positive(4, 3)
    put = algebra.put
    same(algebra, algebra.em_estimate(put(Z.copy()), put(counts.copy()), put(exposure.copy())), counts / exposure)
    exposure[1], counts[1] = 0, 0
    wanted = np.array([counts[0] / exposure[0], Z[1], *(counts[2:] / exposure[2:])])
    same(algebra, algebra.em_estimate(put(Z), put(counts), put(exposure)), wanted)


def test_map_estimates_and_their_density(algebra: Algebra[Any], prior: Gamma) -> None:
    counts, exposure = RNG.gamma(0.3, 1.0, FULL), positive(*FULL)
    A, B = prior.broadcast(FULL)
    Z = algebra.map_estimate(algebra.put(counts), algebra.put(exposure), prior)
    wanted = np.maximum(A - 1 + counts, 0) / (A / B + exposure)
    same(algebra, Z, wanted)
    zero = wanted == 0
    assert zero.any()
    assert not zero[A >= 1].any()
    assert int(algebra.unbounded_zeros(Z, prior)) == zero.sum()
    density = stats.gamma(A, scale=B / A).logpdf(np.where(zero, 1, wanted))
    log_norm = A * np.log(A / B) - special.gammaln(A)  # all that is left of the density where an entry is zero
    assert float(algebra.log_prior(Z, prior)) == pytest.approx(np.where(zero, log_norm, density).sum(), rel=1e-12)


def test_an_exponential_prior_has_a_density_at_zero(algebra: Algebra[Any]) -> None:
    Z = algebra.put(np.array([0.0, 2.0]))
    assert float(algebra.log_prior(Z, Gamma(1.0, 4.0))) == pytest.approx(-2 * np.log(4) - 0.5)
    assert algebra.unbounded_zeros(Z, Gamma(1.0, 4.0)) == 0


# -- balance ------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sums_and_scales_along_an_axis(algebra: Algebra[Any], prior: Gamma, axis: int) -> None:
    E, s = positive(*FULL), positive(FULL[axis])
    A, B = prior.broadcast(FULL)
    others = tuple(n for n in range(3) if n != axis)
    got = algebra.sum_along(algebra.put(E), prior.rate, axis)
    np.testing.assert_allclose(got, (E * A / B).sum(axis=others), rtol=1e-13, strict=True)
    along = np.expand_dims(s, others)
    same(algebra, algebra.scale_along(algebra.put(E), s, axis), E * along)


@pytest.mark.parametrize("prior", [Gamma(0.7, 3.0), Gamma(np.array([[0.2, 0.5, 3.0]]), 2.0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_trades_keep_products_and_please_the_priors(algebra: Algebra[Any], prior: Gamma, order: Any) -> None:
    """What is left over of ``alpha - beta*s`` is the same for both factors: the multiplier of the constraint."""
    E, D = ({a: np.array(positive(size, 3), order=order) for a, size in (("A", 40), ("B", 7))} for _ in range(2))
    priors, basis = {"A": prior, "B": Gamma(2.0, 0.1)}, directions([[True, True]])
    held = [{a: algebra.put(z.copy(order="K")) for a, z in one.items()} for one in (E, D)]
    new_E, new_D = (
        {a: algebra.get(z) for a, z in one.items()} for one in algebra.trade({"A": 1, "B": 1}, basis, priors, *held)
    )
    s = {a: (new_E[a] / E[a])[0] for a in E}
    np.testing.assert_allclose(s["A"] * s["B"], 1, rtol=1e-12)
    left = []
    for a in E:
        np.testing.assert_allclose(new_E[a], E[a] * s[a], rtol=1e-13)
        np.testing.assert_allclose(new_D[a], D[a] * s[a], rtol=1e-13)
        shape, mean = priors[a].broadcast(E[a].shape)
        left.append(shape.sum(axis=0) - (new_E[a] * shape / mean).sum(axis=0))
    np.testing.assert_allclose(left[0], left[1], rtol=1e-5)


@pytest.mark.parametrize("width", [1, 2, 3, 8, 33])
def test_tables_trade_to_the_same_bits_as_factors_of_any_shape(width: int) -> None:
    algebra, axes, basis = NumbaAlgebra(), {"A": 1, "B": 1, "C": 1}, directions([[True, True, True]])
    E, D = ({a: positive(size, width) for a, size in (("A", 1000), ("B", 1), ("C", 17))} for _ in range(2))
    priors = {a: Gamma(shape, 3.0) for a, shape in (("A", 0.5), ("B", 1.3), ("C", 0.1))}
    fast, slow = algebra.trade(axes, basis, priors, E, D), traded(algebra, axes, basis, priors, E, D)
    for one, other in zip(fast, slow, strict=True):
        for a in axes:
            np.testing.assert_array_equal(one[a], other[a])


def test_a_vector_is_its_own_sum(algebra: Algebra[Any]) -> None:
    np.testing.assert_array_equal(algebra.sum_along(algebra.put(np.arange(3.0)), 2.0, 0), [0, 2, 4])


# -- acceleration -------------------------------------------------------------------------------

ROW = {"A": (2, 3), "B": (), "C": (LARGE,)}


def row(make: Callable[..., Any]) -> dict[str, Array]:
    return {name: np.asarray(make(size=shape)) for name, shape in ROW.items()}


def put_all(algebra: Algebra[Any], *rows: Mapping[str, Array]) -> Any:
    placed = [{name: algebra.put(array.copy()) for name, array in one.items()} for one in rows]
    return placed if len(placed) > 1 else placed[0]


def same_rows(algebra: Algebra[Any], got: Any, wanted: Mapping[str, Array], rtol: float = 1e-13) -> None:
    assert list(got) == list(wanted)
    for name in wanted:
        same(algebra, got[name], wanted[name], rtol)


def pair_with_zeros() -> tuple[dict[str, Array], dict[str, Array]]:
    old, new = (row(partial(RNG.gamma, 1.0, 1.0)) for _ in range(2))
    old["A"][0, :2], new["A"][0, 1:] = 0, 0
    new["C"][:9] = old["C"][:9] * (1 + 1e-13)  # noise
    return old, new


def test_stretched_steps_are_powers(algebra: Algebra[Any]) -> None:
    old, new = pair_with_zeros()
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = {name: np.asarray(old[name] * (new[name] / old[name]) ** 1.7) for name in old}
    wanted["A"][0], wanted["C"][:9] = new["A"][0], new["C"][:9]
    before, after = put_all(algebra, old, new)
    same_rows(algebra, algebra.stretch(before, after, 1.7, 1e-11), wanted)


def test_log_ratios_and_differences(algebra: Algebra[Any]) -> None:
    old, new = pair_with_zeros()
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = {name: np.asarray(np.log(old[name] / new[name])) for name in old}
    wanted["A"][0] = 0
    ratio = algebra.log_ratio(*put_all(algebra, old, new))
    for name in wanted:
        same(algebra, ratio[name], wanted[name], rtol=1e-13, atol=1e-15)
    same_rows(algebra, algebra.difference(ratio, ratio), {name: 0 * old[name] for name in old})


@pytest.mark.parametrize("algebra", STACKING, indirect=True)
def test_inner_products_and_combinations(algebra: Any) -> None:
    rows, weight = [row(RNG.normal) for _ in range(3)], row(partial(RNG.gamma, 1.0, 1.0))
    placed = put_all(algebra, *rows)
    wanted = [[sum((weight[a] * s[a] * y[a]).sum() for a in s) for y in rows] for s in rows]
    stack = algebra.stack(placed)
    np.testing.assert_allclose(algebra.gram(stack, put_all(algebra, weight)), wanted, rtol=1e-11)
    coefficients = [0.5, -1.5, 2.0]
    far = {a: sum(q * one[a] for q, one in zip(coefficients, rows, strict=True)) for a in ROW}
    cut = {a: np.clip(far[a], -2, 2) for a in ROW}
    assert (cut["C"] != far["C"]).any()
    got = algebra.combine(coefficients, stack, 2.0)
    for name in cut:
        same(algebra, got[name], cut[name], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("algebra", STACKING, indirect=True)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, for the infinity
def test_inner_products_tell_of_steps_out_of_range(algebra: Any) -> None:
    one, endless = {"A": algebra.put(np.array([1.0, 2.0]))}, {"A": algebra.put(np.array([np.inf, 0.0]))}
    stack = algebra.stack([one, endless])
    G = algebra.gram(stack, one)
    assert G[0, 0] == 9
    assert not np.isfinite(G[1]).any()
    same(algebra, algebra.combine([0.5, 0.0], stack, 2.0)["A"], np.array([0.5, 1.0]))


Pair = tuple[dict[str, Array], dict[str, Array]]  # the change of the logarithms, and that of the residual


def curved_pair(sign: float = 1.0) -> Pair:
    s = row(RNG.normal)
    return s, {name: sign * one * RNG.uniform(0.5, 2.0, one.shape) for name, one in s.items()}


def two_loops(pairs: list[Pair], residual: dict[str, Array], weight: dict[str, Array]) -> dict[str, Array]:
    """The step of L-BFGS, as in the textbooks."""

    def inner(a: dict[str, Array], b: dict[str, Array]) -> float:
        return float(sum((weight[name] * a[name] * b[name]).sum() for name in a))

    def plus(a: dict[str, Array], share: float, b: dict[str, Array]) -> dict[str, Array]:
        return {name: a[name] + share * b[name] for name in a}

    q, along = {name: -one for name, one in residual.items()}, []
    for s, y in reversed(pairs):
        along.append(inner(s, q) / inner(s, y))
        q = plus(q, -along[-1], y)
    s, y = pairs[-1]
    q = {name: one * inner(s, y) / inner(y, y) for name, one in q.items()}
    for (s, y), a in zip(pairs, reversed(along), strict=True):
        q = plus(q, a - inner(y, q) / inner(s, y), s)
    return q


def quasi_newton(algebra: Algebra[Any], pairs: list[Pair], residual: Any, weight: Any, longest: float) -> Any:
    rows = [*(s for s, _ in pairs), *(y for _, y in pairs), residual]
    placed = [put_all(algebra, one) for one in rows]
    with np.errstate(all="ignore"):
        return algebra.quasi_newton(placed, put_all(algebra, weight), longest)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_quasi_newton_steps_are_those_of_lbfgs(algebra: Algebra[Any], number: int) -> None:
    residual, weight = row(RNG.normal), row(partial(RNG.gamma, 1.0, 1.0))
    pairs = [curved_pair() for _ in range(number)]
    far = two_loops(pairs, residual, weight)
    cut = {name: np.asarray(np.clip(one, -0.7, 0.7)) for name, one in far.items()}
    assert 0.01 < (cut["C"] != far["C"]).mean() < 0.99
    step = quasi_newton(algebra, pairs, residual, weight, 0.7)
    for name in cut:
        same(algebra, step[name], cut[name], rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, for the infinity
@pytest.mark.parametrize("what", ["falls", "is endless"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_quasi_newton_steps_leave_out_pairs_without_curvature(algebra: Algebra[Any], what: str, place: int) -> None:
    residual, weight = row(RNG.normal), row(partial(RNG.gamma, 1.0, 1.0))
    pairs = [curved_pair() for _ in range(2)]
    useless = curved_pair(-1.0 if what == "falls" else 1.0)
    if what == "is endless":
        useless[0]["C"][5], useless[1]["A"][0, 0] = np.inf, np.inf
    wanted = two_loops(pairs, residual, weight)
    step = quasi_newton(algebra, [*pairs[:place], useless, *pairs[place:]], residual, weight, 1e9)
    for name in wanted:
        same(algebra, step[name], wanted[name], rtol=1e-9, atol=1e-12)


def test_without_curvature_there_is_no_quasi_newton_step(algebra: Algebra[Any]) -> None:
    residual, weight = row(RNG.normal), row(partial(RNG.gamma, 1.0, 1.0))
    for pairs in ([], [curved_pair(-1.0)]):
        step = quasi_newton(algebra, pairs, residual, weight, 2.0)
        assert step is None or all(np.isnan(algebra.get(one)).all() for one in step.values())


def test_moves(algebra: Algebra[Any]) -> None:
    (old, plain), step = pair_with_zeros(), row(RNG.normal)
    wanted = {name: np.asarray(old[name] * np.exp(0.25 * step[name])) for name in old}
    wanted["A"][0] = plain["A"][0]
    before, after, by = put_all(algebra, old, plain, step)
    same_rows(algebra, algebra.move(before, after, by, 0.25), wanted)


def test_threads_do_not_change_a_bit() -> None:
    (old, new), weight = pair_with_zeros(), row(partial(RNG.gamma, 1.0, 1.0))
    results = []
    for threads in (1, 2, 3):
        algebra = NumbaAlgebra(threads)
        ratio = algebra.log_ratio(old, new)
        stack = algebra.stack([ratio, weight])
        far, G = algebra.combine([0.3, 0.2], stack, 2.0), algebra.gram(stack, weight)
        L, kl = algebra.geomean_kl(weight["C"] + 1e-9, weight["C"], Gamma(0.5, np.full(LARGE, 2.0)))
        moved, stretched = algebra.move(old, new, far, 1.0), algebra.stretch(old, new, 1.5, 1e-11)
        arrays = [*ratio.values(), *far.values(), G, L, *moved.values(), *stretched.values()]
        results.append((kl, *(array.tobytes() for array in arrays)))
    assert results[0] == results[1] == results[2]


def test_factors_on_the_host_are_closed_to_changes() -> None:
    algebra, prior = NumbaAlgebra(), Gamma()
    C = algebra.shapes({"A": prior}, {"A": np.ones((2, 3))})
    D, E = algebra.scales(C["A"], np.ones((2, 3)), prior)
    L, _ = algebra.geomean_kl(C["A"], D, prior)
    moved = algebra.move(C, C, algebra.log_ratio(C, C), 1.0)
    for array in (C["A"], D, E, L, moved["A"], algebra.scale_along(E, np.ones(3), 1), algebra.put(np.ones(2))):
        assert not array.flags.writeable


# -- whole fits ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Elsewhere:
    """An engine on the host for factors of any algebra."""

    engine: Engine
    algebra: Algebra[Any]

    @property
    def names(self) -> tuple[str, ...]:
        return self.engine.names

    def _here(self, factors: Mapping[str, Any]) -> Versioned[Array]:
        given = Versioned.of(factors)
        versions = dict(zip(given, given.versions(given), strict=True))
        return Versioned({a: self.algebra.get(array) for a, array in given.items()}, versions)

    def counts(self, factors: Mapping[str, Any], wanted: Collection[str] | None = None, log: bool = True) -> Counts:
        return self._there(self.engine.counts(self._here(factors), wanted, log))

    def allocate(self, factors: Mapping[str, Any], wanted: Collection[str] | None, key: tuple[int, ...]) -> Counts:
        return self._there(self.engine.allocate(self._here(factors), wanted, key))

    @property
    def together(self) -> tuple[frozenset[str], ...]:
        return self.engine.together

    def _there(self, found: Counts) -> Counts:
        return Counts({a: self.algebra.put(array) for a, array in found.by_factor.items()}, found.log_term)

    def exposure(self, factors: Mapping[str, Any], of: str) -> Any:
        return self.algebra.put(self.engine.exposure(self._here(factors), of))

    def total(self, factors: Mapping[str, Any]) -> float:
        return float(self.engine.total(self._here(factors)))

    def fresh(self) -> Elsewhere:
        return replace(self, engine=self.engine.fresh())


CP, TUCKER = pltf.cp(rank=3), pltf.tucker(ranks=(2, 2, 2))
COUPLED = pltf.Model("X[i,j,k] = A[i,r] * B[j,r] * C[k,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)
X = pltf.datasets.draw(CP, (12, 11, 10), seed=1).counts["X"].astype(float)
X[RNG.random(X.shape) < 0.2] = np.nan
Y = RNG.poisson(3.0, (11, 6)).astype(float)
HELD = {"B": RNG.gamma(1.0, 1.0, (11, 3))}

FITS: dict[str, tuple[pltf.Model, Method, Gamma | None, dict[str, Array]]] = {
    "vb": (CP, VB, Gamma(0.5, 10.0), {}),
    "vb, learned means": (CP, VB, Gamma(0.5, 10.0, learn="mean"), {}),
    "vb, learned priors": (CP, VB, Gamma(0.5, 10.0, learn="both", tie="component"), {}),
    "vb, fixed": (CP, VB, Gamma(0.5, 10.0, learn="mean"), HELD),
    "tucker": (TUCKER, VB, Gamma(0.5, 10.0, learn="mean"), {}),
    "coupled": (COUPLED, VB, Gamma(0.5, 10.0, learn="mean"), {}),
    "em": (CP, EM, None, {}),
    "em, fixed": (CP, EM, None, HELD),
    "coupled em": (COUPLED, EM, None, {}),
    "map": (CP, MAP, Gamma(1.5, 10.0), {}),
}


def problem_of(name: str, algebra: Algebra[Any]) -> tuple[Problem, Method]:
    model, method, prior, fixed = FITS[name]
    seen = {"X": pltf.observe(X)} | ({"Y": pltf.observe(Y)} if model is COUPLED else {})
    planned = model.plan(seen, threads=1)
    priors = {} if prior is None else {a: prior for a in model.factors if a not in fixed}
    shapes = planned.factor_shapes
    learning = {a: groups(p, shapes[a], model.factors[a], model.sizes, a) for a, p in priors.items() if p.learn}
    engine: Any = registry.build(planned, seen)
    problem = Problem(
        engine=engine if algebra.on_host else Elsewhere(engine, algebra),
        algebra=algebra,
        shapes=shapes,
        priors=priors,
        fixed={a: algebra.put(array.copy()) for a, array in fixed.items()},
        total=sum(one.total for one in seen.values()),
        saturated=sum(one.saturated for one in seen.values()),
        eps=2.2e-16,
        trades=trades(model, fixed),
        learns=learning,
    )
    return problem, method


def fitted(name: str, algebra: Algebra[Any], sweeps: int = 40, begin: Run | None = None, **options: Any) -> Run:
    problem, method = problem_of(name, algebra)
    drawn = start.from_prior(problem, start.generator(0), 1e-308)
    stop = Stop(sweeps, 0.0, **options)
    return run(problem, method, method.begin(problem, *drawn) if begin is None else begin, stop)


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("xp", [np, STRICT], ids=["numpy", "strict"])
def test_a_fit_is_the_same_in_every_algebra(name: str, xp: Any) -> None:
    usual, other = fitted(name, NumbaAlgebra(2)), fitted(name, ArrayAlgebra(xp))
    assert usual.state.pace.refused > 0  # it was accelerated
    assert usual.objective == pytest.approx(other.objective, rel=1e-9)
    together = min(len(usual.trace), len(other.trace))  # one that has settled ends when rounding lets the bound fall
    assert together >= 30
    np.testing.assert_allclose(other.trace[:together], usual.trace[:together], rtol=1e-9)
    for a, mean in usual.state.E.items():
        assert isinstance(other.state.E[a], np.ndarray)
        np.testing.assert_allclose(other.state.E[a], mean, rtol=1e-4, atol=1e-6)


def test_some_of_these_fits_come_to_quasi_newton_steps() -> None:
    trails = [fitted(name, NumbaAlgebra()).state.pace.trail for name in FITS]
    assert sum(trail is not None for trail in trails) >= 3


@pytest.mark.parametrize("name", ["vb, learned priors", "em"])
def test_a_run_goes_on_from_the_host(name: str) -> None:
    algebra = ArrayAlgebra(STRICT)
    whole, half = fitted(name, algebra), fitted(name, algebra, 25)
    assert all(isinstance(array, np.ndarray) for array in half.state.counts.by_factor.values())
    gone_on = fitted(name, algebra, begin=half)
    np.testing.assert_array_equal(gone_on.trace, whole.trace)


def test_callbacks_see_arrays_of_the_host() -> None:
    told: list[Sweep] = []
    fitted("vb", ArrayAlgebra(STRICT), 2, callback=told.append)
    assert all(isinstance(mean, np.ndarray) for sweep in told for mean in sweep.means.values())


def test_the_scaled_random_start_is_the_same_in_every_algebra() -> None:
    Z = []
    for algebra in (NumbaAlgebra(), ArrayAlgebra(STRICT)):
        problem, _ = problem_of("em", algebra)
        Z.append({a: algebra.get(z) for a, z in start.at_random(problem, start.generator(1))[0].items()})
    for a in Z[0]:
        np.testing.assert_array_equal(Z[0][a], Z[1][a])


# -- draws --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ALGEBRAS if "device" not in name])
def test_gamma_draws_of_the_host_are_the_same_anywhere(name: str) -> None:
    algebra = ALGEBRAS[name]()
    C, D = RNG.gamma(0.5, size=LARGE), RNG.gamma(1.0, size=LARGE)
    drawn = algebra.get(algebra.gamma_draws(algebra.put(C), algebra.put(D), (5, 1)))
    np.testing.assert_array_equal(drawn, NumbaAlgebra(1).gamma_draws(C, D, (5, 1)))


@pytest.mark.parametrize("shape", [0.02, 0.7, 1.0, 30.0])
def test_gamma_draws_are_gamma_and_go_by_their_key(algebra: Algebra[Any], shape: float) -> None:
    C, D = algebra.put(np.full(20_000, shape)), algebra.put(np.full(20_000, 3.0))
    first, again, other = (algebra.get(algebra.gamma_draws(C, D, key)) for key in ((5, 1), (5, 1), (5, 2)))
    np.testing.assert_array_equal(first, again)
    assert first.min() > 0
    assert abs(np.corrcoef(first, other)[0, 1]) < 0.05
    # of a shape of 0.02 some draws lie below the least number; there the distribution has a step
    assert stats.kstest(np.concatenate([first, other]), stats.gamma(shape, scale=3.0).cdf).pvalue > 1e-3
