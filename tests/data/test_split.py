"""Hiding cells."""

from __future__ import annotations

import numpy as np
import pytest

import pltf


def test_hides_the_share_of_observed_cells() -> None:
    X = np.ones((20, 30))
    X[:, :10] = np.nan
    keep = pltf.holdout(X, 0.25, seed=0)
    assert keep.dtype == bool
    assert keep.sum() == 300
    assert not keep[:, :10].any()


def test_one_seed_one_mask() -> None:
    X = np.ones((9, 9))
    np.testing.assert_array_equal(pltf.holdout(X, 0.4, seed=3), pltf.holdout(X, 0.4, seed=3))
    assert (pltf.holdout(X, 0.4, seed=3) != pltf.holdout(X, 0.4, seed=4)).any()


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan")])
def test_refuses_a_fraction_that_is_none(fraction: float) -> None:
    with pytest.raises(pltf.PltfError, match="fraction must lie between 0 and 1"):
        pltf.holdout(np.ones((2, 2)), fraction)


def test_refuses_listed_cells() -> None:
    listed = ([(0, 1)], [3])
    for data in (listed, pltf.observe(listed, shape=(2, 2))):
        with pytest.raises(pltf.PltfError, match="data must be a dense array"):
            pltf.holdout(data, 0.5)
