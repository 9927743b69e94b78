"""Small shapes, huge counts, tiny data, more components than data, empty slices: finite, and never falling."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import pltf


def assert_sane(fit: pltf.Fit) -> None:
    assert np.isfinite(fit.trace).all()
    assert (np.diff(fit.trace) >= 0).all()
    assert "more than rounding" not in fit.stopped
    for factor in fit.factors.values():
        assert np.isfinite(factor.mean).all()
        assert (factor.mean >= 0).all()


def counts(mean: float, shape: tuple[int, ...] = (8, 7, 6)) -> Any:
    return np.random.default_rng(0).poisson(mean, shape)


@pytest.mark.parametrize("method", ["vb", "em"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "case",
    [
        ({"rank": 3}, counts(2.0), {"shape": 0.01}),
        ({"rank": 1}, counts(2.0), {"shape": 0.01}),
        ({"rank": 3}, counts(0.02), {"shape": 0.01}),
        ({"rank": 3}, counts(1e8), {}),
        ({"rank": 3}, counts(1e8), {"mean": 1e-3}),
        ({"rank": 2}, counts(5.0, (1, 1, 1)), {}),
        ({"rank": 1}, np.zeros((1, 1, 1)), {}),
        ({"rank": 1}, counts(3.0), {}),
        ({"rank": 60}, counts(1.0, (3, 2, 2)), {}),
        ({"rank": 60}, counts(1.0, (3, 2, 2)), {"shape": 0.01}),
        ({"rank": 3}, np.zeros((4, 3, 2)), {}),
        ({"rank": 3}, counts(2.0) * 1e-6, {}),
        ({"rank": 2}, counts(2.0), {"shape": 1e4, "mean": 1e-4}),
    ],
    ids=[
        "small shape", "small shape, rank 1", "small shape, few counts", "huge counts", "huge counts, tiny prior",
        "one cell", "one zero", "rank 1", "more components than data", "and small shapes", "all zero", "tiny values",
        "strong prior",
    ],
)  # fmt: skip
def test_finite_and_monotone(case: Any, dtype: str, method: str) -> None:
    ranks, X, prior = case
    options: dict[str, Any] = {} if method == "em" else {"prior": pltf.Gamma(**({"shape": 0.5, "mean": 10.0} | prior))}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "float32 computes the", pltf.ConvergenceWarning)  # of huge counts
        fit = pltf.cp(**ranks).fit(X, method=method, max_iter=150, tol=0, dtype=dtype, restarts=2, **options)
    assert_sane(fit)


def test_float32_says_when_it_cannot_tell_the_bound() -> None:
    X = counts(3.0).astype(float)
    X[0, 0, 0] = 1e15
    with pytest.warns(pltf.ConvergenceWarning) as warned:
        pltf.cp(rank=3).fit(X, dtype="float32", tol=0, max_iter=20)
    assert "float32 computes the bound only to within 1e+07 for counts this large" in str(warned[-1].message)


def test_huge_counts_keep_the_digits_of_the_bound() -> None:
    """Counts of 1e9 leave a bound of a few nats a cell; the model is conjugate, so 60 digits are at hand."""
    x = np.array([1e9, 3e9])
    fit = pltf.Model("X[i] = A[i]").fit(x, prior=pltf.Gamma(0.5, 1e9), max_iter=3, tol=0)
    assert fit.bound == pytest.approx(_exact_evidence(x, 0.5, 1e9), abs=2e-6)  # eps times the counts


def _exact_evidence(x: Any, shape: float, mean: float) -> float:
    import mpmath

    with mpmath.workdps(60):
        rate = mpmath.mpf(shape) / mean
        total = mpmath.mpf(0)
        for one in map(mpmath.mpf, x.tolist()):
            total += shape * mpmath.log(rate) - mpmath.loggamma(shape) + mpmath.loggamma(shape + one)
            total -= (shape + one) * mpmath.log(rate + 1) + mpmath.loggamma(one + 1)
        return float(total)


def test_missing_slices_fall_back_to_the_prior() -> None:
    X = counts(3.0).astype(float)
    X[2] = np.nan  # a slice
    X[:, 3, 4] = np.nan  # a fibre
    prior = pltf.Gamma(0.7, 4.0)
    plain = pltf.cp(rank=2).fit(X, prior=prior, max_iter=50, tol=0, accelerate=False)
    np.testing.assert_allclose(plain.factors["A"].mean[2], 4.0)
    fit = pltf.cp(rank=2).fit(X, prior=prior, tol=1e-10)  # balanced: there once the scales have settled
    assert_sane(fit)
    np.testing.assert_allclose(fit.factors["A"].shape[2], 0.7)
    np.testing.assert_allclose(fit.factors["A"].mean[2], 4.0, rtol=1e-3)
    assert fit.mean(at=[(2, 0, 0), (0, 3, 4)]).shape == (2,)


def test_zero_slices_are_evidence_of_small_rates() -> None:
    X = counts(3.0)
    X[2] = 0
    fit = pltf.cp(rank=2).fit(X, prior=pltf.Gamma(0.7, 4.0), max_iter=50, tol=0)
    assert_sane(fit)
    np.testing.assert_allclose(fit.factors["A"].shape[2], 0.7)
    assert (fit.factors["A"].mean[2] < 1.0).all()
    assert fit.mean(at=[(2, 0, 0)])[0] < 0.2


def test_em_leaves_untouched_entries_as_they_are() -> None:
    X = counts(3.0).astype(float)
    X[2] = np.nan
    init = {name: np.full((size, 2), 1.5) for name, size in zip("ABC", X.shape, strict=True)}
    init["A"][:, 1] = 0.5
    fit = pltf.cp(rank=2).fit(X, method="em", init=init, max_iter=10, tol=0)
    np.testing.assert_array_equal(fit.factors["A"].mean[2], init["A"][2])


def test_zero_is_not_missing() -> None:
    X = np.array([[0.0, 4.0], [4.0, 0.0]])
    zeros, holes = (pltf.nmf(rank=1).fit(x, max_iter=20, tol=0) for x in (X, np.where(X == 0, np.nan, X)))
    assert zeros.mean()[0, 0] < holes.mean()[0, 0]


def test_float32_agrees_with_float64() -> None:
    X = counts(3.0)
    wide, narrow = (pltf.cp(rank=3).fit(X, max_iter=40, tol=0, dtype=dtype) for dtype in ("float64", "float32"))
    assert narrow.bound == pytest.approx(wide.bound, rel=1e-5)
    assert narrow.trace.dtype == np.float64
    np.testing.assert_allclose(narrow.mean(), wide.mean(), rtol=1e-2)


def test_float32_keeps_the_bound_of_large_counts() -> None:
    """4e8 counts in all: a bound summed in float32 would be off by tens of nats, and would seem to fall."""
    X = np.random.default_rng(0).poisson(np.random.default_rng(1).gamma(0.5, 8000, (50, 50, 40)))
    wide, narrow = (
        pltf.cp(rank=3).fit(X, max_iter=30, tol=0, accelerate=False, dtype=dtype) for dtype in ("float64", "float32")
    )
    assert narrow.n_iter == 30
    np.testing.assert_allclose(narrow.trace, wide.trace, rtol=2e-6)


def test_the_trace_of_map_falls_only_where_entries_become_zero() -> None:
    """Their density has no bound and counts nothing: docs/concepts/em.md explains the fall."""
    X, zeros = np.random.default_rng(0).poisson(1.0, (20, 15)), list[int]()

    def count(sweep: pltf.Sweep) -> None:
        zeros.append(sum(int(np.count_nonzero(mean == 0)) for mean in sweep.means.values()))

    fit = pltf.nmf(rank=4).fit(X, method="map", prior=pltf.Gamma(0.5, 10.0), callback=count, dispersion=None)
    fell, more = np.diff(fit.trace) < 0, np.diff(zeros) > 0
    assert fell.any()
    assert more[fell].all()
