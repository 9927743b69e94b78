"""Which cells were observed, which held something, and what: of every storage, against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pltf
from pltf.data import pattern as patterns
from pltf.data.cell_index import CellIndex
from tests.prediction import STORAGES, every_cell, stored, tensors
from tests.reference import Array

SIZES = [(4,), (3, 4), (2, 3, 3), (2**63 - 1,), (2**31, 2**32 - 1), (2**32, 2**31), (2**41, 7, 2**41), (2**62,) * 4]


@given(st.sampled_from(SIZES), st.sampled_from([np.int32, np.int64]), st.data())
def test_cells_are_found_where_they_stand(sizes: tuple[int, ...], dtype: type, data: st.DataObject) -> None:
    """A dictionary knows the place of each; index spaces may be beyond any machine integer."""
    last = [min(n - 1, np.iinfo(dtype).max) for n in sizes]
    few = [st.sampled_from(sorted({0, 1, n // 2, n})) for n in last]
    listed = sorted(data.draw(st.sets(st.tuples(*few), max_size=8)))
    asked = data.draw(st.lists(st.tuples(*few), max_size=8)) + listed
    index = CellIndex(np.array(listed, dtype=dtype).reshape(-1, len(sizes)).T, sizes)
    found = index.find(np.array(asked, dtype=dtype).reshape(-1, len(sizes)).T)
    place = {cell: n for n, cell in enumerate(listed)}
    assert found.tolist() == [place.get(cell, -1) for cell in asked]


@given(tensors(), st.sampled_from(STORAGES), st.sampled_from([8, 24, 1 << 20]))
@example(np.arange(33.0).reshape(11, 3) % 2, "mask", 24)  # slabs of rows that are not whole bytes by themselves
def test_every_storage_tells_the_same(full: Array, storage: str, slab: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns, "_PACKED", slab)
        seen = stored(full, storage)
        pattern = seen.pattern()
    cells = every_cell(full.shape).T
    np.testing.assert_array_equal(seen.values_at(cells), full.ravel())
    assert seen.values_at(cells).dtype == np.float64
    np.testing.assert_array_equal(pattern.observed(cells), ~np.isnan(full.ravel()))
    np.testing.assert_array_equal(pattern.positive(cells), full.ravel() > 0)
    nowhere = cells[:, :0]
    assert pattern.observed(nowhere).shape == pattern.positive(nowhere).shape == seen.values_at(nowhere).shape == (0,)


@given(tensors(), st.sampled_from(STORAGES))
def test_holes_are_listed_when_they_are_few(full: Array, storage: str) -> None:
    holes, pattern = np.argwhere(np.isnan(full)), stored(full, storage).pattern()
    listed = pattern.missing_cells(full.size)
    if storage == "ratings":  # too many, as a rule
        assert listed is None
        return
    assert listed is not None
    np.testing.assert_array_equal(listed.T, holes)
    if len(holes):
        assert pattern.missing_cells(len(holes) - 1) is None


@pytest.mark.parametrize("storage", STORAGES)
def test_a_pattern_of_data_that_change_does_not(storage: str) -> None:
    full = np.array([[1.0, np.nan, 0.0], [np.nan, 2.0, 0.0]])
    cells = every_cell(full.shape).T
    before = full.copy()
    missing = np.isnan(full)
    rows = np.asfortranarray(np.argwhere(~missing), dtype=np.int32)  # transposed it could be taken without a copy
    holes, values = np.asfortranarray(np.argwhere(missing), dtype=np.int32), full[~missing]
    data: dict[str, Any] = {
        "dense": (full, {}),
        "mask": (full, {"mask": missing}),
        "ma": (np.ma.masked_array(full, missing), {}),
        "holes": ((rows, values), {"shape": full.shape, "missing": holes}),
        "ratings": ((rows, values), {"shape": full.shape, "unlisted": "missing"}),
    }
    if storage == "mask":
        np.logical_not(missing, out=missing)
    pattern = pltf.observe(data[storage][0], **data[storage][1]).pattern()
    full[...], missing[...], rows[...], holes[...], values[...] = 9, False, 0, 1, 0
    np.testing.assert_array_equal(pattern.observed(cells), ~np.isnan(before.ravel()))
    np.testing.assert_array_equal(pattern.positive(cells), before.ravel() > 0)


def test_a_fit_keeps_the_pattern_of_what_it_saw() -> None:
    X = np.array([[1.0, np.nan, 0.0], [np.nan, 2.0, 0.0]])
    fit = pltf.nmf(rank=1).fit(X, max_iter=2, tol=0)
    X[:] = 1
    assert set(map(tuple, fit.top(9)[["i", "j"]].to_numpy())) == {(0, 1), (1, 0)}
    assert set(map(tuple, fit.top(9, "zero")[["i", "j"]].to_numpy())) == {(0, 2), (1, 2)}
