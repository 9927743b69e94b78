"""Tensors that share an index, along the same labels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pltf
from pltf.data import aligned as aligning
from pltf.data.aligned import aligned
from pltf.data.base import Observation
from pltf.errors import ObservationError

X = pd.DataFrame({"u": ["ann", "bob", "bob"], "p": ["bar", "gym", "bar"], "n": [1, 2, 3]})
Y = pd.DataFrame({"u": ["bob", "cid"], "w": ["yes", "no"], "n": [4, 5]})
INDICES = {"X": ("u", "p"), "Y": ("u", "w")}


def seen(unlisted: str = "zero") -> dict[str, Observation]:
    return {
        "X": pltf.observe(X, dims=["u", "p"], value="n", unlisted=unlisted),
        "Y": pltf.observe(Y, dims=["u", "w"], value="n", unlisted=unlisted),
    }


def test_lists_whose_other_cells_are_zeros() -> None:
    both, added = aligned(seen(), INDICES)
    assert [(one.tensor, one.index, one.labels.names()) for one in added] == [("X", "u", ["cid"]), ("Y", "u", ["ann"])]
    assert both["X"].labels["u"].names() == both["Y"].labels["u"].names() == ["ann", "bob", "cid"]
    cells = np.indices((3, 2)).reshape(2, -1)
    np.testing.assert_array_equal(both["X"].values_at(cells).reshape(3, 2), [[1, 0], [3, 2], [np.nan, np.nan]])
    np.testing.assert_array_equal(both["Y"].values_at(cells).reshape(3, 2), [[np.nan, np.nan], [0, 4], [5, 0]])


def test_zeros_where_they_are_asked_for() -> None:
    both, added = aligned(seen(), INDICES, zeros=("u",))
    assert all(one.zeros for one in added)
    assert not both["X"].has_missing
    assert both["X"].total == 6


def test_lists_whose_other_cells_are_missing() -> None:
    both, added = aligned(seen(unlisted="missing"), INDICES, zeros=("u",))
    assert not any(one.zeros for one in added)
    assert [both[name].n_observed for name in "XY"] == [3, 2]
    assert both["X"].shape == (3, 2)


def test_arrays_and_the_holes_of_several_axes() -> None:
    wide = X.pivot(index="u", columns="p", values="n").stack(future_stack=True).to_xarray()
    other = Y.pivot(index="u", columns="w", values="n").fillna(0).stack().to_xarray().rename(w="p")
    arrays = {"X": pltf.observe(wide), "Y": pltf.observe(other.assign_coords(p=["gym", "pub"]))}
    both, _ = aligned(arrays, {"X": ("u", "p"), "Y": ("u", "p")})
    assert both["X"].labels["p"].names() == ["bar", "gym", "pub"]
    held = both["Y"].values_at(np.indices((3, 3)).reshape(2, -1)).reshape(3, 3)
    np.testing.assert_array_equal(held, [[np.nan] * 3, [np.nan, 0, 4], [np.nan, 5, 0]])


def test_bins_from_the_first_to_the_last() -> None:
    days = pd.DataFrame({"d": ["2026-01-01", "2026-01-02"], "p": ["a", "b"]})
    more = pd.DataFrame({"d": ["2026-01-02", "2026-01-05"], "p": ["a", "b"]})
    both = {name: pltf.observe(one, dims=["d:day", "p"]) for name, one in (("X", days), ("Y", more))}
    found, _ = aligned(both, {"X": ("d", "p"), "Y": ("d", "p")})
    assert len(found["X"].labels["d"]) == 5
    months = {"X": both["X"], "Y": pltf.observe(more, dims=["d:month", "p"])}
    with pytest.raises(ObservationError, match="must be binned the same way, got by day and by month"):
        aligned(months, {"X": ("d", "p"), "Y": ("d", "p")})


def test_more_missing_cells_than_can_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligning, "MOST_MISSING", 1)
    with pytest.raises(ObservationError, match="X lacks labels that another tensor has, so 2 of its cells are missing"):
        aligned(seen(), INDICES)
    aligned(seen(), INDICES, zeros=("u",))


def test_inputs_stay_as_they_are() -> None:
    before = seen()
    digests = {name: one.digest() for name, one in before.items()}
    aligned(before, INDICES)
    assert {name: one.digest() for name, one in before.items()} == digests
