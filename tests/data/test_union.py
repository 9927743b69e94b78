"""What was observed so far and what comes beside it: of every storage, against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pltf
from pltf.data import union
from pltf.data.pattern import Bools, DensePattern, ForgottenPattern, ListedPattern, Pattern
from pltf.data.union import n_observed, spread_out, united
from pltf.prediction.support import slices_of
from tests.prediction import STORAGES, every_cell, stored, tensors
from tests.reference import Array

LISTS = ("holes", "ratings")


def grown(old: Array, new: Array, places: list[np.ndarray], shape: tuple[int, ...]) -> Array:
    """Of each cell the largest value that was observed, NaN if none was; cell by cell."""
    out = np.full(shape, np.nan)
    out[tuple(map(slice, old.shape))] = old
    for cell in np.argwhere(~np.isnan(new)):
        at = tuple(int(place[n]) for place, n in zip(places, cell, strict=True))
        out[at] = np.fmax(out[at], new[tuple(cell)])
    return out


@st.composite
def batches(draw: st.DrawFn) -> tuple[Array, Array, list[np.ndarray], tuple[int, ...]]:
    """Data, more data, where their positions stand, and the shape of all."""
    old = draw(tensors())
    places, shape = [], []
    for size in old.shape:
        more = draw(st.integers(0, 2))
        some = draw(st.lists(st.integers(0, size + more - 1), min_size=1, unique=True))
        some += [n for n in range(size, size + more) if n not in some]  # nobody is new without data
        places.append(np.array(draw(st.permutations(some))))
        shape.append(size + more)
    new = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).poisson(0.8, [one.size for one in places])
    holes = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).random(new.shape) < draw(st.sampled_from([0, 0.4]))
    return old, np.where(holes, np.nan, new), places, tuple(shape)


def told(pattern: Pattern, shape: tuple[int, ...]) -> tuple[Bools, Bools]:
    cells = every_cell(shape).T
    return pattern.observed(cells).reshape(shape), pattern.positive(cells).reshape(shape)


@given(batches(), st.sampled_from(["dense", "mask"]), st.sampled_from(STORAGES), st.sampled_from([8, 1 << 17]))
def test_of_arrays(
    some: tuple[Array, Array, list[np.ndarray], tuple[int, ...]], storage: str, other: str, slab: int
) -> None:
    old, new, places, shape = some
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(union, "_AT_A_TIME", slab)
        pattern = united(stored(old, storage).pattern(), shape, stored(new, other), places)
    expected = grown(old, new, places, shape)
    assert isinstance(pattern, DensePattern)
    observed, positive = told(pattern, shape)
    np.testing.assert_array_equal(observed, ~np.isnan(expected))
    np.testing.assert_array_equal(positive, expected > 0)
    np.testing.assert_array_equal(pattern.array(), expected)
    assert n_observed(pattern) == observed.sum()


@given(batches(), st.sampled_from(["dense", "mask", "ratings"]))
def test_of_lists_whose_other_cells_are_missing(
    some: tuple[Array, Array, list[np.ndarray], tuple[int, ...]], other: str
) -> None:
    old, new, places, shape = some
    pattern = united(stored(old, "ratings").pattern(), shape, stored(new, other), places)
    expected = grown(old, new, places, shape)
    assert isinstance(pattern, ListedPattern)
    observed, positive = told(pattern, shape)
    np.testing.assert_array_equal(observed, ~np.isnan(expected))
    np.testing.assert_array_equal(positive, expected > 0)
    np.testing.assert_array_equal(pattern.values, expected[tuple(pattern.coords)])
    assert n_observed(pattern) == observed.sum()


@given(batches(), st.sampled_from(["dense", "mask", "holes"]))
def test_of_lists_whose_other_cells_are_zeros(
    some: tuple[Array, Array, list[np.ndarray], tuple[int, ...]], other: str
) -> None:
    """A cell is missing if it was a hole, and never observed; there is no row here that no data have had."""
    old, new, places, shape = some
    pattern = united(stored(old, "holes").pattern(), shape, stored(new, other), places)
    expected = grown(old, new, places, shape)
    named_hole = np.zeros(shape, dtype=bool)
    named_hole[tuple(map(slice, old.shape))] = np.isnan(old)
    named_hole[np.ix_(*places)] |= np.isnan(new)
    missing = named_hole & np.isnan(expected)
    assert isinstance(pattern, ListedPattern)
    observed, positive = told(pattern, shape)
    np.testing.assert_array_equal(observed, ~missing)
    np.testing.assert_array_equal(positive, expected > 0)
    assert n_observed(pattern) == observed.sum()
    listed = pattern.missing_cells(10**6)
    assert listed is not None
    assert listed.shape[1] == missing.sum()


def test_rows_that_no_data_have_had() -> None:
    """A tensor that grows because another one did: new rows are missing, until they come."""
    old = stored(np.array([[1.0, 0.0], [np.nan, 2.0]]), "holes").pattern()
    grown = united(old, (3, 3))
    assert isinstance(grown, ListedPattern)
    observed, _ = told(grown, (3, 3))
    assert observed.tolist() == [[True, True, False], [False, True, False], [False, False, False]]
    assert n_observed(grown) == 3
    assert grown.missing_cells(10**6) is None
    slices = slices_of(grown, (3, 3))
    assert slices is not None
    assert [one.tolist() for one in slices.seen] == [[True, True, False], [True, True, False]]
    again = united(grown, (3, 3), stored(np.array([[5.0]]), "holes"), [np.array([2]), np.array([2])])
    assert isinstance(again, ListedPattern)
    assert again.reached is None
    assert n_observed(again) == 8


def test_a_pattern_that_was_not_kept_stays_so() -> None:
    forgotten = ForgottenPattern("zero")
    for before in (forgotten, ForgottenPattern("zero", "content hash of a store")):  # no store has all of the cells
        assert united(before, (3, 3), pltf.observe(np.ones((3, 3))), [np.arange(3)] * 2) == forgotten


@pytest.mark.parametrize("storage", STORAGES[:4])
def test_data_along_more_rows(storage: str) -> None:
    full = np.array([[1.0, np.nan, 0.0], [0.0, 3.0, 2.0]])
    wide = spread_out(stored(full, storage), {0: np.array([3, 1])}, (4, 3))
    expected = np.zeros((4, 3))
    expected[[3, 1]] = full
    np.testing.assert_array_equal(wide.values_at(every_cell((4, 3)).T).reshape(4, 3), expected)
    assert wide.n_observed == 11
    assert math.prod(wide.shape) == 12
