"""What counts as seen, and what is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from scipy.special import gammaln, xlogy

import pltf
from pltf.data import dense, numeric

MASKED = np.ma.MaskedArray([1.0, 2.0], [False, True])


def observe(*arguments: Any, **options: Any) -> Any:
    """pltf.observe, for tests that look inside an observation of a known kind."""
    return pltf.observe(*arguments, **options)


def test_nan_masked_arrays_and_masks_mean_the_same() -> None:
    X = np.arange(12.0).reshape(3, 4)
    mask = X % 5 != 0
    forms = [
        observe(X, mask),
        observe(X, mask.astype(int)),
        observe(np.where(mask, X, np.nan)),
        observe(np.ma.MaskedArray(X, ~mask)),
        observe(np.ma.MaskedArray(np.where(mask, X, -1), ~mask), mask),
        observe(np.where(mask, X, np.nan).tolist()),
    ]
    for seen in forms:
        assert seen.mask is not None
        np.testing.assert_array_equal(seen.mask, mask)
        assert seen.n_observed == mask.sum()
        assert seen.total == X[mask].sum()


def test_nan_and_mask_add_up() -> None:
    X = np.array([[1.0, np.nan], [3.0, 4.0]])
    seen = observe(X, np.array([[True, True], [False, True]]))
    assert seen.mask is not None
    np.testing.assert_array_equal(seen.mask, [[True, False], [False, True]])


def test_zero_is_a_value_and_a_full_mask_is_none() -> None:
    X = np.zeros((2, 3), dtype=int)
    assert observe(X).n_observed == 6
    assert observe(X, np.ones((2, 3), dtype=bool)).mask is None


def test_nothing_is_copied_or_changed() -> None:
    X = np.arange(6.0).reshape(2, 3)
    mask = np.array([[True, False, True], [True, True, True]])
    before, mask_before = X.copy(), mask.copy()
    seen = observe(X, mask)
    assert np.shares_memory(seen.values, X)
    assert seen.mask is not None
    assert np.shares_memory(seen.mask, mask)
    pltf.nmf(rank=2).fit(X, mask=mask)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(mask, mask_before)
    assert X.flags.writeable
    assert mask.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        seen.values[0, 0] = 5


def test_read_only_input_is_fine() -> None:
    X = np.arange(6.0).reshape(2, 3)
    X.flags.writeable = False
    assert pltf.nmf(rank=1).fit(X).converged


def test_an_observation_is_taken_as_it_is() -> None:
    seen = observe(np.ones((2, 3)))
    assert observe(seen) is seen
    with pytest.raises(
        pltf.ObservationError,
        match="is already an observation with its own missing cells: mask and missing must be None",
    ):
        observe(seen, np.ones((2, 3), dtype=bool))


@pytest.mark.parametrize("scale", [1.0, 0.37, 1e5, 1e9])
def test_constants(scale: float) -> None:
    x = np.random.default_rng(0).poisson(3.0, (40, 30)) * scale
    seen = observe(x)
    assert seen.total == pytest.approx(x.sum(), rel=1e-14)
    assert seen.saturated == pytest.approx((xlogy(x, x) - x - gammaln(x + 1)).sum(), rel=1e-5 if scale > 1e8 else 1e-9)


def test_saturated_log_likelihood_has_no_cancellation() -> None:
    """At 1e15 the terms are 3e16 and their sum is -18: the naive formula is off by more than that."""
    import mpmath

    with mpmath.workdps(50):
        for x in (9.99e3, 1.001e4, 1e9, 1e15):
            exact = x * mpmath.log(x) - x - mpmath.loggamma(mpmath.mpf(x) + 1)
            assert numeric.saturated_log_likelihood(np.array([x]))[0] == pytest.approx(float(exact), rel=1e-11)


def test_lists_of_masked_arrays_keep_or_say_their_masks() -> None:
    assert observe([np.ma.MaskedArray([1, 2])] * 2).n_observed == 4
    assert observe(np.ma.stack([MASKED, MASKED])).n_observed == 2
    for call in (pltf.nmf(rank=1).fit, pltf.nmf(rank=1).plan, lambda X: pltf.holdout(X, 0.5)):
        with pytest.raises(pltf.ObservationError, match="combine a list of masked arrays into one array"):
            call([MASKED, MASKED])
    with pytest.raises(pltf.PltfError, match=r"fixed\['W'\] must not have masked entries"):
        pltf.nmf(rank=1).fit(np.ones((1, 2)), fixed={"W": [np.ma.MaskedArray([1.0], [True])]})


def test_the_largest_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = observe(np.array([1.7e308]))
    assert seen.total == 1.7e308
    assert seen.saturated == pytest.approx(-0.5 * (np.log(2 * np.pi) + np.log(1.7e308)))
    monkeypatch.setattr(dense, "_BLOCK_CELLS", 1)
    with pytest.raises(pltf.ObservationError, match="must add up to less than"):
        observe(np.full(2, 1.7e308))


def test_checks_reach_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "_BLOCK_CELLS", 4)
    X = np.ones((5, 7))
    X[4, 6] = -1
    with pytest.raises(pltf.ObservationError, match=r"cell \(4, 6\) holds -1.0"):
        observe(X)
    mask = np.ones((5, 7), dtype=bool)
    mask[4, 6] = False
    assert observe(X, mask).total == 34
    mask[0, 0] = False
    X[3, 5] = np.inf
    with pytest.raises(pltf.ObservationError, match=r"must be finite, but cell \(3, 5\) holds inf"):
        observe(X, mask)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.array([1.0, -2.0]), r"observed values must be >= 0, but cell \(1,\) holds -2.0"),
        (np.array([3, -2]), r"observed values must be >= 0, but cell \(1,\) holds -2"),
        (np.array([1.0, np.inf]), r"observed values must be finite, but cell \(1,\) holds inf"),
        (np.array([1.0, -np.inf]), r"observed values must be >= 0, but cell \(1,\) holds -inf"),
        (np.array([2**60]), r"at most 2\*\*53, or float64 would round them, but cell \(0,\) holds"),
        (np.array([2**63], dtype=np.uint64), r"at most 2\*\*53"),
        (np.array([1.0 + 0j]), "expected real or integer numbers, got dtype complex128"),
        (np.array([None, 1]), "expected real or integer numbers, got dtype object"),
        (np.array([Decimal(1)]), "expected real or integer numbers, got dtype object"),
        (np.array(["a", "b"]), "expected real or integer numbers, got dtype <U1"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "expected real or integer numbers, got dtype datetime64"),
        ([[1, 2], [3]], "expected a numeric array, got list"),
        ("text", "expected an array or a table, got the text 'text': read the file first"),
        ([MASKED, MASKED], "data: combine a list of masked arrays into one array with numpy.ma.stack"),
        ([[MASKED], ([1, 2],)], "combine a list of masked arrays into one array"),
        ([[1.0, np.ma.masked]], "combine a list of masked arrays into one array"),
        (5, "data must be an array with at least one axis, got a single number"),
        (np.array(np.nan), "data must be an array with at least one axis"),
        (np.ma.masked, "data must be an array with at least one axis"),
        (np.full(2, 1.7e308), "data: observed values must add up to less than 1.8e308, got inf"),
    ],
)
def test_refused_data(data: Any, message: str) -> None:
    with pytest.raises(pltf.ObservationError, match=message):
        observe(data)


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="long double is float64 on this platform")
def test_long_doubles_must_be_exact_in_float64() -> None:
    with pytest.raises(pltf.ObservationError, match="exact in float64"):
        observe(np.array([np.longdouble(1) + np.finfo(np.longdouble).eps]))


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.ones((2, 2), dtype=bool), r"mask must have the shape of data, \(2, 3\); got \(2, 2\)"),
        (np.full((2, 3), 0.5), "mask must be boolean"),
        (np.full((2, 3), 2), "mask must be boolean"),
        (np.full((2, 3), "yes"), "mask: expected real or integer numbers, got dtype <U3"),
        ([[True, False], [True]], "mask: expected a numeric array, got list"),
        (np.ma.MaskedArray(np.ones((2, 3)), np.eye(2, 3, dtype=bool)), "mask must not have masked entries"),
        ([np.ma.MaskedArray([True] * 3, [False, True, False])] * 2, "mask must not have masked entries"),
    ],
)
def test_refused_masks(mask: Any, message: str) -> None:
    with pytest.raises(pltf.ObservationError, match=message):
        observe(np.ones((2, 3)), mask)


def test_some_cell_must_be_observed() -> None:
    with pytest.raises(pltf.ObservationError, match="X: at least one cell must be observed, but all are missing"):
        pltf.nmf(rank=1).fit(np.full((2, 3), np.nan))
    with pytest.raises(pltf.ObservationError, match="at least one cell must be observed"):
        pltf.nmf(rank=1).fit(np.ones((2, 3)), mask=np.zeros((2, 3), dtype=bool))
    with pytest.raises(pltf.PltfError, match="X has no cell: index 'i' has size 0"):
        pltf.nmf(rank=1).fit(np.ones((0, 3)))
    assert observe(np.ones((0, 3))).n_observed == 0


def test_one_tensor_of_a_coupled_model_may_be_wholly_missing() -> None:
    model = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)
    fit = model.fit({"X": np.ones((3, 4)), "Y": np.full((4, 5), np.nan)}, tol=0, max_iter=5)
    assert fit.n_observed["Y"] == 0
    with pytest.raises(pltf.ObservationError, match="X and Y: at least one cell"):
        model.fit({"X": np.full((3, 4), np.nan), "Y": np.full((4, 5), np.nan)})


def test_repr_says_what_was_seen() -> None:
    seen = observe(np.array([[1.5, np.nan]], dtype="float32"))
    assert repr(seen) == "<DenseObservation 1x2 float32: 1 of 2 cells observed, total 1.5>"
