"""Hiding cells: what is hidden, what is left, and that nothing leaks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse, stats

import pltf
from pltf.data import CooObservation, random_cells
from pltf.fit import Fit
from tests.extras import optional

pydata = optional("sparse")

Array = NDArray[Any]
Bools = NDArray[np.bool_]


def counts(shape: tuple[int, ...], seed: int = 0, rate: float = 0.7) -> Array:
    return np.random.default_rng(seed).poisson(rate, shape).astype(float)


def as_list(X: Array, known: Bools, unlisted: str = "zero") -> CooObservation:
    """The same data as a list; every other zero of it is listed."""
    listed = known & ((X > 0) | (np.arange(X.size).reshape(X.shape) % 2 == 0))
    if unlisted == "missing":
        seen = pltf.observe((np.argwhere(known), X[known]), shape=X.shape, unlisted="missing")
    else:
        seen = pltf.observe((np.argwhere(listed), X[listed]), shape=X.shape, missing=np.argwhere(~known))
    assert isinstance(seen, CooObservation)
    return seen


def storages(X: Array, known: Bools) -> dict[str, Any]:
    return {
        "dense": np.where(known, X, np.nan),
        "zero": as_list(X, known, "zero"),
        "missing": as_list(X, known, "missing"),
    }


def hidden_cells(answer: Any, known: Bools) -> Bools:
    """Where cells are hidden, after a look at whether the two parts make up the whole."""
    if isinstance(answer, np.ndarray):
        assert answer.dtype == bool
        assert not answer[~known].any()
        return known & ~answer
    hidden = np.zeros(known.shape, dtype=bool)
    hidden[tuple(answer.cells.T)] = True
    assert hidden.sum() == len(answer.cells) == len(answer.values), "a cell is hidden twice"
    assert not hidden[~known].any()
    return hidden


def assert_parts_make_up(answer: pltf.Holdout, X: Array, known: Bools) -> None:
    """What is left to fit is what observe makes of the data without the hidden cells, which hold what they held."""
    hidden = hidden_cells(answer, known)
    train = answer.train
    assert isinstance(train, CooObservation)
    np.testing.assert_array_equal(answer.values, X[hidden])
    left = as_list(X, known & ~hidden, train.unlisted)
    assert [train.n_observed, train.total, train.largest] == [left.n_observed, left.total, left.largest]
    assert train.saturated == pytest.approx(left.saturated, rel=1e-12)
    assert [train.shape, train.unlisted, train.coords.dtype] == [left.shape, left.unlisted, left.coords.dtype]
    assert answer.cells.dtype == train.missing.dtype == left.missing.dtype
    for part in ("coords", "values", "missing"):
        np.testing.assert_array_equal(getattr(train, part), getattr(left, part))


# ---- every option on every storage


@st.composite
def problems(draw: st.DrawFn) -> tuple[Array, Bools, float, dict[str, Any]]:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    X = counts(shape, draw(st.integers(0, 999)), draw(st.sampled_from([0.2, 1.0, 5.0])))
    known = np.random.default_rng(draw(st.integers(0, 999))).random(shape) < draw(st.sampled_from([0.4, 0.9, 1.0]))
    axes = st.integers(0, len(shape) - 1)
    some = st.lists(axes, min_size=2, max_size=max(2, len(shape) - 1), unique=True).map(tuple)
    choices: list[st.SearchStrategy[dict[str, Any]]] = [
        st.just({}),
        st.just({"stratify": "value"}),
        st.fixed_dictionaries({"stratify": axes}),
        st.fixed_dictionaries({"by": axes}),
        st.fixed_dictionaries(
            {"by": st.just("nonzeros"), "negatives": st.sampled_from([0, 0.5, 1.0, 3])},
            optional={"stratify": axes},
        ),
    ]
    if len(shape) == 3:
        choices.append(st.fixed_dictionaries({"by": some}))
    options = draw(st.one_of(choices)) | {"seed": draw(st.integers(0, 99))}
    return X, known, draw(st.floats(0.02, 0.98)), options


def candidates(X: Array, known: Bools, by: Any) -> int:
    """How many things there are a fraction of."""
    if by == "cells":
        return int(known.sum())
    if by == "nonzeros":
        return int((known & (X > 0)).sum())
    return int(places(known, by).sum())


def places(cells: Bools, axes: int | tuple[int, ...]) -> Bools:
    """The positions along some axes at which there is any of the cells."""
    axes = axes if isinstance(axes, tuple) else (axes,)
    return np.asarray(cells.any(axis=tuple(axis for axis in range(cells.ndim) if axis not in axes), keepdims=True))


def check_counts(hidden: Bools, X: Array, known: Bools, fraction: float, options: dict[str, Any]) -> None:
    """As many as were asked for, of every kind."""
    by, stratify = options.get("by", "cells"), options.get("stratify")
    n = round(fraction * candidates(X, known, by))
    pool = known & (X > 0) if by == "nonzeros" else known
    if by not in ("cells", "nonzeros"):
        assert places(hidden, by).sum() == n
        np.testing.assert_array_equal(hidden, known & places(hidden, by))
        return
    assert (hidden & pool).sum() == n
    assert (hidden & ~pool).sum() == (round(options["negatives"] * n) if by == "nonzeros" else 0)
    strata = [pool & (X > 0), pool & (X == 0)] if stratify == "value" else []
    if isinstance(stratify, int):
        strata = [pool & (np.indices(X.shape)[stratify] == place) for place in range(X.shape[stratify])]
    for stratum in strata:
        assert abs((hidden & stratum).sum() - fraction * stratum.sum()) < 1 + 1e-9


@given(problems())
def test_hides_what_was_asked_for(problem: tuple[Array, Bools, float, dict[str, Any]]) -> None:
    X, known, fraction, options = problem
    by = options.get("by", "cells")
    n = candidates(X, known, by)
    some = round(fraction * n)
    short = round(options.get("negatives", 0) * some) > (known & (X == 0)).sum()
    for storage, data in storages(X, known).items():
        if some in (0, n) or short:
            with pytest.raises(pltf.PltfError, match=r"data must have|fraction must|negatives must"):
                pltf.holdout(data, fraction, **options)
            continue
        answer = pltf.holdout(data, fraction, **options)
        check_counts(hidden_cells(answer, known), X, known, fraction, options)
        assert isinstance(answer, np.ndarray if storage == "dense" else pltf.Holdout)
        if isinstance(answer, pltf.Holdout):
            assert_parts_make_up(answer, X, known)


@given(problems())
def test_no_storage_hides_other_cells(problem: tuple[Array, Bools, float, dict[str, Any]]) -> None:
    X, known, fraction, options = problem
    found = []
    for storage, data in storages(X, known).items():
        if storage == "zero" and options.get("by", "cells") == "cells" and isinstance(options.get("stratify"), int):
            continue  # each slice is drawn on its own
        try:
            found.append(hidden_cells(pltf.holdout(data, fraction, **options), known))
        except pltf.PltfError as refusal:
            found.append(np.array(str(refusal)))
    for one in found[1:]:
        np.testing.assert_array_equal(one, found[0])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stratify": "value"},
        {"stratify": 1},
        {"by": 0},
        {"by": (0, 2)},
        {"by": "nonzeros", "negatives": 2},
        {"by": "nonzeros", "stratify": 0, "negatives": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("beyond", [False, True])
def test_the_same_where_cells_are_too_many_to_count(
    options: dict[str, Any], beyond: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells are drawn and thrown away when taken, then; the second time without a single number for a cell."""
    X, known = counts((14, 13, 12), rate=0.02), np.random.default_rng(1).random((14, 13, 12)) < 0.98
    monkeypatch.setattr(random_cells, "SMALL", 14)
    if beyond:
        monkeypatch.setattr(random_cells, "order_of", lambda sizes, cells: np.lexsort(cells[::-1]))
    for seed in range(5):
        answer = pltf.holdout(as_list(X, known), 0.1, **options, seed=seed)
        assert_parts_make_up(answer, X, known)
        check_counts(hidden_cells(answer, known), X, known, 0.1, options)


# ---- the choice itself


@pytest.mark.parametrize("fraction", [0.03, 0.4, 0.9])
def test_a_mask_is_what_it_always_was(fraction: float) -> None:
    """Figures were made with these masks."""
    X = counts((30, 25, 20))
    X[X == 3] = np.nan
    keep = ~np.isnan(X)
    cells = np.flatnonzero(keep)
    hidden = np.random.default_rng(7).choice(cells.size, round(fraction * cells.size), replace=False)
    keep.flat[cells[hidden]] = False
    np.testing.assert_array_equal(pltf.holdout(X, fraction, seed=7), keep)


@pytest.mark.parametrize("options", [{}, {"by": 1}, {"stratify": 0}, {"by": "nonzeros", "negatives": 1.0}], ids=str)
def test_one_seed_one_answer(options: dict[str, Any]) -> None:
    X = counts((9, 9))
    for data in storages(X, X >= 0).values():
        first, second, other = (
            hidden_cells(pltf.holdout(data, 0.4, **options, seed=seed), X >= 0) for seed in (3, 3, 4)
        )
        np.testing.assert_array_equal(first, second)
        assert (first != other).any()


def test_forms_of_the_same_data() -> None:
    X = counts((8, 7))
    mask = np.random.default_rng(1).random(X.shape) < 0.8
    holes = np.where(mask, X, np.nan)
    expected = pltf.holdout(holes, 0.3)
    for dense in (np.ma.MaskedArray(X, ~mask), pltf.observe(X, mask), holes.tolist()):
        np.testing.assert_array_equal(pltf.holdout(dense, 0.3), expected)
    listed = pltf.holdout(pltf.observe((np.argwhere(X), X[X > 0]), shape=X.shape), 0.3)
    for form in (sparse.csr_array(X), sparse.coo_matrix(X), pydata.COO.from_numpy(X)):
        np.testing.assert_array_equal(pltf.holdout(form, 0.3).cells, listed.cells)


def test_inputs_are_not_changed() -> None:
    X = counts((6, 5, 4))
    known = np.random.default_rng(1).random(X.shape) < 0.8
    for options in ({}, {"by": 0}, {"stratify": "value"}, {"by": "nonzeros", "negatives": 1.0, "stratify": 1}):
        holes, seen = np.where(known, X, np.nan), as_list(X, known)
        before = holes.copy(), seen.coords.copy(), seen.values.copy(), seen.missing.copy()
        for data in (holes, pltf.observe(X, known), seen):
            pltf.holdout(data, 0.3, **options)
        for now, then in zip((holes, seen.coords, seen.values, seen.missing), before, strict=True):
            np.testing.assert_array_equal(now, then)
    mask = known.copy()
    keep = pltf.holdout(pltf.observe(X, mask), 0.3)
    np.testing.assert_array_equal(mask, known)
    keep[:] = True  # the caller's own
    np.testing.assert_array_equal(mask, known)


@pytest.mark.parametrize("options", [{}, {"stratify": 2}, {"by": 1}, {"by": (0, 2)}], ids=str)
def test_values_have_no_say_in_the_choice(options: dict[str, Any]) -> None:
    X = counts((6, 5, 7))
    known = np.random.default_rng(1).random(X.shape) < 0.8
    others = np.random.default_rng(2).permutation(X.ravel()).reshape(X.shape) * 9
    for one, two in zip(storages(X, known).values(), storages(others, known).values(), strict=True):
        hidden = [hidden_cells(pltf.holdout(data, 0.3, **options), known) for data in (one, two)]
        np.testing.assert_array_equal(hidden[0], hidden[1])


def test_positions_without_an_observed_cell_do_not_count() -> None:
    X = np.ones((8, 3, 2))
    known = np.ones(X.shape, dtype=bool)
    known[2:6] = False  # 4 of 8 slices are left, 2 of them to hide
    known[0, 0, 0] = False
    for data in storages(X, known).values():
        for seed in range(5):
            hidden = hidden_cells(pltf.holdout(data, 0.5, by=0, seed=seed), known)
            assert hidden.any(axis=(1, 2)).sum() == 2
            assert hidden_cells(pltf.holdout(data, 0.5, by=(0, 1), seed=seed), known).any(axis=2).sum() == 6


def test_slices_without_an_observed_cell_change_nothing() -> None:
    X, known = counts((8, 5)), np.zeros((8, 5), dtype=bool)
    known[1::2] = True
    for seed in range(10):
        dense, listed = (
            pltf.holdout(data, 0.3, stratify=0, seed=seed)
            for data in (pltf.observe(X, known), as_list(X, known, "missing"))
        )
        np.testing.assert_array_equal(hidden_cells(dense, known), hidden_cells(listed, known))


def test_slices_of_a_vector_are_its_cells() -> None:
    x = counts((40,))
    for data in storages(x, x >= 0).values():
        expected = hidden_cells(pltf.holdout(data, 0.3, seed=2), x >= 0)
        for options in ({"by": 0}, {"stratify": 0}):
            np.testing.assert_array_equal(hidden_cells(pltf.holdout(data, 0.3, **options, seed=2), x >= 0), expected)


@pytest.mark.parametrize(("negatives", "zeros"), [(0, 0), (0.1, 0), (0.25, 1), (2, 6), (4, 12)])
def test_as_many_negatives_as_asked_for(negatives: float, zeros: int) -> None:
    """For each of three non-zeros; at most all zeros that there are."""
    X = np.array([1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0] + [0] * 6).reshape(6, 3)
    for data in storages(X, X >= 0).values():
        hidden = hidden_cells(pltf.holdout(data, 0.5, by="nonzeros", negatives=negatives), X >= 0)
        assert (hidden & (X == 0)).sum() == zeros
        assert (hidden & (X > 0)).sum() == 3


def test_order_of_axes_does_not_matter() -> None:
    X = counts((4, 5, 6))
    np.testing.assert_array_equal(pltf.holdout(X, 0.4, by=(2, 0)), pltf.holdout(X, 0.4, by=(0, 2)))


NAMES = ("user", "place", "act")


def named(X: Array, known: Bools) -> dict[str, Any]:
    """The same data with names of their axes, in every form that has some."""
    cells = pd.MultiIndex.from_arrays(np.argwhere(known).T, names=NAMES)
    forms: dict[str, Any] = {name: replace(pltf.observe(one), dims=NAMES) for name, one in storages(X, known).items()}
    array = xr.DataArray(np.where(known, X, np.nan), dims=NAMES)
    return forms | {"xarray": array, "series": pd.Series(X[known], index=cells)}


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"by": "user"}, {"by": 0}),
        ({"by": ("place", "user")}, {"by": (0, 1)}),
        ({"by": ("act", 1)}, {"by": (1, 2)}),
        ({"stratify": "act"}, {"stratify": 2}),
        ({"by": "nonzeros", "stratify": "place"}, {"by": "nonzeros", "stratify": 1}),
    ],
)
def test_axes_by_name(options: dict[str, Any], numbers: dict[str, Any]) -> None:
    X = counts((6, 5, 4))
    for form, data in named(X, np.random.default_rng(1).random(X.shape) < 0.9).items():
        answers = [pltf.holdout(data, 0.4, seed=3, **asked) for asked in (options, numbers)]
        one, two = (answer.cells if isinstance(answer, pltf.Holdout) else np.asarray(answer) for answer in answers)
        np.testing.assert_array_equal(one, two, err_msg=form)


def test_words_keep_their_meaning_whatever_axes_are_called() -> None:
    X = counts((6, 5, 4))
    odd = xr.DataArray(X, dims=("cells", "nonzeros", "value"))
    words: list[dict[str, Any]] = [{"by": "cells"}, {"by": "nonzeros"}, {"stratify": "value"}]
    for options in words:
        np.testing.assert_array_equal(pltf.holdout(odd, 0.3, **options), pltf.holdout(X, 0.3, **options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "usr"}, r"by must be 'cells', .* the name of an axis \(user, place, act\) or a tuple .*; got 'usr'"),
        ({"by": ("user", "usr")}, r"by must be .* \(user, place, act\) .* got \('user', 'usr'\)"),
        ({"by": ("user", 0)}, r"by must be .* two or more different ones; got \('user', 0\)"),
        ({"by": "value"}, r"by must be .* \(user, place, act\) .* got 'value'"),
        ({"by": NAMES}, "by must leave out at least one axis, or be 'cells'; got all 3 axes"),
        ({"stratify": "usr"}, r"stratify must be None, 'value' or .* \(user, place, act\), got 'usr'"),
        ({"stratify": "user", "by": "act"}, "stratify requires by='cells' or by='nonzeros', got by='act'"),
    ],
)
def test_refuses_names_that_there_are_not(options: dict[str, Any], message: str) -> None:
    X = counts((6, 5, 4))
    for data in named(X, X >= 0).values():
        with pytest.raises(pltf.PltfError, match=message) as refused:
            pltf.holdout(data, 0.4, **options)
        assert "\n" not in str(refused.value)


def test_an_empty_list_has_zeros_to_hide() -> None:
    nothing = pltf.observe(([], []), shape=(5, 4))
    for options in ({}, {"by": 1}, {"stratify": "value"}, {"stratify": 0}):
        answer = pltf.holdout(nothing, 0.25, **options)
        assert not answer.values.any()
        assert len(answer.values) == 5
        assert answer.train.n_observed == 15


# ---- chances: each test is made once, with a fixed seed; a sound choice fails it with the probability FALSE_ALARM

FALSE_ALARM = 1e-4


def assert_uniform(times: NDArray[np.int64], drawn: int, rounds: int) -> None:
    """Chi-square of how often each cell was drawn, ``drawn`` different ones a round."""
    n = times.size
    expected = rounds * drawn / n
    spread = expected * (1 - drawn / n) * n / (n - 1)  # draws without replacement are not independent
    assert stats.chi2.sf(((times - expected) ** 2).sum() / spread, n - 1) > FALSE_ALARM


@pytest.mark.parametrize("storage", ["dense", "zero", "zero, drawn blindly", "missing"])
def test_negatives_are_uniform_among_the_zeros(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.zeros((12, 10))
    X.flat[[5, 17, 60, 61]] = [1, 2, 1, 4]
    known = np.ones(X.shape, dtype=bool)
    known[3, 3:5] = False
    monkeypatch.setattr(random_cells, "SMALL", 0 if "blindly" in storage else 1000)
    data, rounds = storages(X, known)[storage.split(",")[0]], 3000
    times = sum(
        hidden_cells(pltf.holdout(data, 0.5, by="nonzeros", negatives=2, seed=seed), known).astype(int)
        for seed in range(rounds)
    )
    assert isinstance(times, np.ndarray)
    assert_uniform(times[known & (X == 0)], drawn=4, rounds=rounds)
    assert_uniform(times[known & (X > 0)], drawn=2, rounds=rounds)


@pytest.mark.parametrize("options", [{}, {"by": 0}, {"stratify": 0}, {"stratify": 1}], ids=str)
@pytest.mark.parametrize("storage", ["dense", "zero"])
def test_cells_are_hidden_with_one_probability(storage: str, options: dict[str, Any]) -> None:
    """Slices of 5 cells at 0.3 have 1 or 2 hidden, of 3 cells none or 1, and no place is better than another."""
    X, rounds = counts((3, 5)), 3000
    data = storages(X, X >= 0)[storage]
    hidden = np.array([hidden_cells(pltf.holdout(data, 0.3, **options, seed=k), X >= 0) for k in range(rounds)])
    share = hidden[0].sum() / X.size  # of 15 cells, 0.3 are 4 and not 4.5; of 3 slices, 1
    far = stats.norm.isf(FALSE_ALARM / 2 / X.size) * math.sqrt(share * (1 - share) / rounds)
    assert (abs(hidden.mean(axis=0) - share) < far).all()


def test_groups_of_any_size_have_their_share() -> None:
    """Groups of 1, 2 and 7 cells: rounding may not starve the small ones."""
    X, rounds = counts((3, 7)), 3000
    known = np.arange(7) < np.array([1, 2, 7])[:, None]
    data = as_list(X, known, "missing")
    hidden = [hidden_cells(pltf.holdout(data, 0.4, stratify=0, seed=k), known) for k in range(rounds)]
    share = np.mean(hidden, axis=0)[known]  # 0.4 of 10 cells are 4: nothing to be rounded in total
    assert (abs(share - 0.4) < stats.norm.isf(FALSE_ALARM / 20) * math.sqrt(0.24 / rounds)).all()


# ---- tensors that no memory holds


def far_apart(n: int, shape: tuple[int, ...]) -> CooObservation:
    rng = np.random.default_rng(0)
    cells = np.unique(np.stack([rng.integers(size, size=n) for size in shape], axis=1), axis=0)
    seen = pltf.observe((cells, rng.poisson(2, len(cells)) + 1), shape=shape, missing=[(1,) * len(shape)])
    assert isinstance(seen, CooObservation)
    return seen


def rows(cells: Array) -> set[tuple[int, ...]]:
    return set(map(tuple, cells.tolist()))


@pytest.mark.parametrize("shape", [(10**6,) * 4, (10**5,) * 3, (2**62, 2**62), (2**63 - 1, 3)], ids=str)
@pytest.mark.parametrize("stratify", [None, 0])
def test_negatives_of_huge_tensors(shape: tuple[int, ...], stratify: int | None) -> None:
    seen = far_apart(2000, shape)
    answer = pltf.holdout(seen, 0.25, by="nonzeros", stratify=stratify, negatives=3, seed=1)
    listed, hidden = rows(seen.coords.T), rows(answer.cells)
    assert len(hidden) == len(answer.cells) == 2000
    assert len(hidden & listed) == np.count_nonzero(answer.values) == 500
    assert (1,) * len(shape) not in hidden
    assert rows(answer.train.coords.T) == listed - hidden
    assert rows(answer.train.missing.T) == hidden | rows(seen.missing.T)
    assert answer.train.n_observed == seen.n_observed - 2000 == math.prod(shape) - 2001
    assert (np.diff(np.lexsort(answer.cells.T[::-1])) == 1).all()
    held = dict(zip(map(tuple, seen.coords.T.tolist()), seen.values, strict=True))
    assert [held.get(tuple(cell), 0.0) for cell in answer.cells.tolist()] == answer.values.tolist()
    zeros = answer.cells[answer.values == 0]
    for positions, size in zip(zeros.T, shape, strict=True):
        times = np.bincount((positions / size * min(size, 10)).astype(int), minlength=min(size, 10))
        assert stats.chisquare(times).pvalue > FALSE_ALARM


def test_cells_and_slices_of_huge_tensors() -> None:
    seen = far_apart(2000, (10**6,) * 4)
    assert len(pltf.holdout(seen, 1e-21).cells) == 1000
    assert len(pltf.holdout(seen, 1e-21, stratify="value").cells) == 1000
    long = far_apart(2000, (10**6, 10**6, 1000, 10**6))
    by_slice = pltf.holdout(long, 1.5e-18, stratify=2)  # 1.5 of each of a thousand slices
    assert set(np.bincount(by_slice.cells[:, 2], minlength=1000)) == {1, 2}
    wide = far_apart(2000, (10**6, 10**6, 2, 3))
    fibres = pltf.holdout(wide, 1e-9, by=(0, 1))
    assert fibres.cells.shape == (6000, 4)
    assert len(rows(fibres.cells[:, :2])) == 1000
    slices = pltf.holdout(far_apart(5000, (10**4, 50, 40)), 0.001, by=0)
    assert slices.cells.shape == (20_000, 3)
    assert np.count_nonzero(slices.values)


def test_a_fit_takes_what_is_left() -> None:
    answer = pltf.holdout(far_apart(500, (10**4,) * 4), 0.2, by="nonzeros", negatives=1)
    fit = pltf.cp(tuple("ijkl"), rank=2).fit(answer.train, max_iter=2, tol=0)
    assert fit.mean(at=answer.cells).shape == (200,)


@pytest.mark.parametrize("options", [{}, {"by": 0}, {"by": (0, 1)}, {"stratify": 1}, {"stratify": "value"}], ids=str)
@pytest.mark.parametrize("shape", [(10**5, 10**4, 10), (10**6,) * 4, (2**62,) * 20], ids=["1e10", "1e24", "2^1240"])
def test_refuses_to_list_too_many_zeros(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    advice = "hide a share of the non-zeros with by='nonzeros' and negatives="
    with pytest.raises(pltf.PltfError, match=f"at most 50,000,000 cells of a list can be hidden, .* {advice}"):
        pltf.holdout(far_apart(100, shape), 0.1, **options)


def test_other_limits_of_lists() -> None:
    seen = far_apart(100, (10**6,) * 4)
    with pytest.raises(pltf.PltfError, match=r"got 10,000,000,000: lower fraction or negatives"):
        pltf.holdout(seen, 0.1, by="nonzeros", negatives=10**9)
    with pytest.raises(pltf.PltfError, match="stratify must name an axis of at most 4,194,304 positions, but axis 0"):
        pltf.holdout(far_apart(100, (10**7, 3)), 0.1, stratify=0)


# ---- leaks


def same_fit(one: Fit, two: Fit) -> bool:
    same = all(np.array_equal(one.factors[name].mean, two.factors[name].mean) for name in one.factors)
    return same and np.array_equal(one.trace, two.trace)


ALL_OPTIONS: list[dict[str, Any]] = [
    {},
    {"stratify": "value"},
    {"stratify": 0},
    {"by": 1},
    {"by": "nonzeros", "negatives": 1},
    {"by": "nonzeros", "stratify": 1, "negatives": 1},
]


@pytest.mark.parametrize("options", ALL_OPTIONS, ids=str)
def test_a_fit_knows_nothing_of_hidden_cells_of_an_array(options: dict[str, Any]) -> None:
    X = counts((9, 8))
    keep = pltf.holdout(X, 0.3, **options)
    model = pltf.nmf(rank=2)
    fit = model.fit(X, mask=keep, max_iter=5, tol=0)
    for poison in (1e6, np.nan):
        assert same_fit(fit, model.fit(np.where(keep, X, poison), mask=keep, max_iter=5, tol=0))
    assert not same_fit(fit, model.fit(np.where(keep, X, 1e6), max_iter=5, tol=0))


@pytest.mark.parametrize("options", ALL_OPTIONS, ids=str)
@pytest.mark.parametrize("unlisted", ["zero", "missing"])
def test_a_fit_knows_nothing_of_hidden_cells_of_a_list(unlisted: str, options: dict[str, Any]) -> None:
    """Hidden non-zeros are made wild, and hidden zeros too where the choice does not look at values."""
    X = counts((9, 8))
    known = np.random.default_rng(1).random(X.shape) < 0.9
    answer = pltf.holdout(as_list(X, known, unlisted), 0.3, **options)
    hidden = hidden_cells(answer, known)
    looks = options.get("by") == "nonzeros" or options.get("stratify") == "value"
    wild = np.where(hidden & (X > 0) if looks else hidden, 1e6, X)
    poisoned = pltf.holdout(as_list(wild, known, unlisted), 0.3, **options)
    np.testing.assert_array_equal(poisoned.cells, answer.cells)
    assert poisoned.values.max() == 1e6
    model = pltf.cp(("i", "j"), rank=2)
    fits = [model.fit(train, max_iter=5, tol=0) for train in (answer.train, poisoned.train)]
    assert same_fit(*fits)
    assert not same_fit(fits[0], model.fit(as_list(wild, known, unlisted), max_iter=5, tol=0))


def test_a_list_fits_as_its_array_does() -> None:
    """Hidden cells are missing to the fit, not zero."""
    X = counts((9, 8, 7))
    for options in ({}, {"by": 0}, {"by": "nonzeros", "negatives": 1}):
        model = pltf.cp(rank=2)
        dense = model.fit(X, mask=pltf.holdout(X, 0.3, **options), max_iter=5, tol=0)
        for unlisted in ("zero", "missing"):
            listed = model.fit(pltf.holdout(as_list(X, X >= 0, unlisted), 0.3, **options).train, max_iter=5, tol=0)
            np.testing.assert_allclose(listed.trace, dense.trace, rtol=1e-9)


# ---- the answer, and refusals


def test_a_holdout_cannot_be_changed() -> None:
    answer = pltf.holdout(sparse.csr_array(counts((6, 5))), 0.2, by="nonzeros", negatives=1)
    hidden = len(answer.cells)
    assert (
        repr(answer)
        == f"<Holdout 6x5: {hidden} cells hidden, {hidden // 2} of them non-zero; {30 - hidden} left to fit>"
    )
    for array in (answer.cells, answer.values, answer.train.coords, answer.train.values, answer.train.missing):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        answer.values = np.zeros(3)
    assert answer != pltf.Holdout(answer.train, answer.cells, answer.values)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan"), True, "half", None, 0.5j, np.array([0.5])])
def test_refuses_a_fraction_that_is_none(fraction: Any) -> None:
    with pytest.raises(pltf.PltfError, match="fraction must lie between 0 and 1, got"):
        pltf.holdout(np.ones((2, 2)), fraction)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "rows"}, r"by must be .*, the number of an axis \(the axes have no names\) or a tuple .* got 'rows'"),
        ({"by": None}, "by must be .* got None"),
        ({"by": True}, "by must be .* got True"),
        ({"by": 1.0}, "by must be .* got 1.0"),
        ({"by": ()}, r"by must be .* got \(\)"),
        ({"by": (1,)}, r"by must be .* a tuple of two or more different ones; got \(1,\)"),
        ({"by": (1, 1)}, r"by must be .* got \(1, 1\)"),
        ({"by": ("cells", 1)}, r"by must be .* got \('cells', 1\)"),
        ({"by": [0, 1]}, r"by must be .* got \[0, 1\]"),
        ({"by": 3}, "by must name an axis of data, from 0 to 2; got 3"),
        ({"by": -1}, "by must name an axis of data, from 0 to 2; got -1"),
        ({"by": (0, 3)}, "by must name an axis of data, from 0 to 2; got 3"),
        ({"by": (0, 1, 2)}, "by must leave out at least one axis, or be 'cells'; got all 3 axes"),
        ({"stratify": "cells"}, r"stratify must be .* the number of an axis \(the axes have no names\), got 'cells'"),
        ({"stratify": (0, 1)}, r"stratify must be None, 'value' or the number of an axis .*, got \(0, 1\)"),
        ({"stratify": False}, "stratify must be .* got False"),
        ({"stratify": 3}, "stratify must name an axis of data, from 0 to 2; got 3"),
        ({"stratify": -1, "by": "nonzeros"}, "stratify must name an axis of data, from 0 to 2; got -1"),
        ({"stratify": "value", "by": "nonzeros"}, "stratify='value' requires by='cells', got by='nonzeros'"),
        ({"stratify": "value", "by": 0}, "stratify requires by='cells' or by='nonzeros', got by=0"),
        ({"stratify": 0, "by": (0, 1)}, r"stratify requires by='cells' or by='nonzeros', got by=\(0, 1\)"),
        ({"negatives": 1.0}, "negatives requires by='nonzeros', got by='cells'"),
        ({"negatives": 1.0, "by": 0}, "negatives requires by='nonzeros', got by=0"),
        ({"negatives": -1, "by": "nonzeros"}, "negatives must be a number of at least 0, got -1"),
        ({"negatives": math.nan, "by": "nonzeros"}, "negatives must be a number of at least 0, got nan"),
        ({"negatives": math.inf, "by": "nonzeros"}, "negatives must be a number of at least 0, got inf"),
        ({"negatives": True, "by": "nonzeros"}, "negatives must be a number of at least 0, got True"),
        ({"negatives": "all", "by": "nonzeros"}, "negatives must be a number of at least 0, got 'all'"),
        ({"negatives": 2, "by": "nonzeros"}, "negatives must ask for at most 10 observed zeros, got 2 for each of 7"),
        ({"negatives": 10**400, "by": "nonzeros"}, "negatives must ask for at most 10 observed zeros"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"seed": 0.5}, "seed must be a whole number of at least 0, got 0.5"),
        ({"seed": None}, "seed must be a whole number of at least 0, got None"),
    ],
)
@pytest.mark.parametrize("storage", ["dense", "zero", "missing"])
def test_refusals(options: dict[str, Any], message: str, storage: str) -> None:
    X = np.ones((4, 3, 2))
    X.flat[:10] = 0
    with pytest.raises(pltf.PltfError, match=message) as refused:
        pltf.holdout(storages(X, X >= 0)[storage], 0.5, **options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("fraction", "options", "message"),
    [
        (0.1, {}, "fraction must hide at least one of 4 observed cells, but 0.1 of them rounds to 0"),
        (0.9, {}, "fraction must keep at least one of 4 observed cells, but 0.9 of them rounds to all"),
        (0.1, {"stratify": "value"}, "fraction must hide at least one of 4 observed cells"),
        (0.9, {"stratify": 0}, "fraction must keep at least one of 4 observed cells"),
        (0.1, {"by": 0}, "fraction must hide at least one of 2 observed positions along axis 0"),
        (0.9, {"by": (0, 1)}, r"fraction must keep at least one of 2 observed positions along axes \(0, 1\)"),
        (0.2, {"by": "nonzeros"}, "fraction must hide at least one of 2 observed non-zeros"),
        (0.8, {"by": "nonzeros", "stratify": 0}, "fraction must keep at least one of 2 observed non-zeros"),
    ],
)
@pytest.mark.parametrize("storage", ["dense", "zero", "missing"])
def test_refuses_to_hide_none_or_all(fraction: float, options: dict[str, Any], message: str, storage: str) -> None:
    X, known = np.zeros((3, 1, 3)), np.zeros((3, 1, 3), dtype=bool)
    X[0, 0, 0] = X[2, 0, 1] = 5
    known[::2, 0, :2] = True
    with pytest.raises(pltf.PltfError, match=message):
        pltf.holdout(storages(X, known)[storage], fraction, **options)


@pytest.mark.parametrize("storage", ["dense", "zero", "missing"])
def test_refuses_data_with_nothing_to_hide(storage: str) -> None:
    nothing = storages(np.ones((2, 3, 2)), np.zeros((2, 3, 2), dtype=bool))[storage]
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "cells"),
        ({"stratify": "value"}, "cells"),
        ({"stratify": 1}, "cells"),
        ({"by": 1}, "positions along axis 1"),
        ({"by": (0, 2)}, r"positions along axes \(0, 2\)"),
        ({"by": "nonzeros"}, "non-zeros"),
    ]
    for options, what in cases:
        with pytest.raises(pltf.ObservationError, match=f"data must have observed {what} to hide, got none"):
            pltf.holdout(nothing, 0.5, **options)
    with pytest.raises(pltf.ObservationError, match="data must have observed non-zeros to hide, got none"):
        pltf.holdout(storages(np.zeros((2, 3)), np.ones((2, 3), dtype=bool))[storage], 0.5, by="nonzeros")


def test_refuses_lists_without_a_shape() -> None:
    table = pd.DataFrame({"i": [0, 1], "j": [1, 0], "n": [2, 3]})
    with pytest.raises(
        pltf.ObservationError, match=r"listed cells require shape=.*: pass the result of pltf.observe\(...\)"
    ):
        pltf.holdout(([(0, 1)], [3]), 0.5)
    with pytest.raises(
        pltf.ObservationError, match=r"a table requires dims=.*: pass the result of pltf.observe\(...\)"
    ):
        pltf.holdout(table, 0.5)
    assert len(pltf.holdout(pltf.observe(table, dims=("i", "j"), value="n"), 0.5).cells) == 2


def test_options_are_checked_before_data_are_read() -> None:
    bad = np.full((2, 2), -1.0)
    with pytest.raises(pltf.ObservationError, match="observed values must be >= 0"):
        pltf.holdout(bad, 0.5)
    wrong: dict[str, Any] = {"by": "rows", "stratify": "rows", "negatives": -1, "seed": -1}
    for option, value in wrong.items():
        with pytest.raises(pltf.PltfError, match=f"{option} must"):
            pltf.holdout(bad, 0.5, **{option: value})
