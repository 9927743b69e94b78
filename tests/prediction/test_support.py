"""Unsupported predictions."""

from __future__ import annotations

import numpy as np
import pytest

import pltf
from pltf.prediction.support import slices_of
from tests.prediction import STORAGES, stored

BLOCKS = np.full((12, 12), np.nan)  # two tables that share a row at most: nothing says how large the others are
BLOCKS[:6, :6] = np.random.default_rng(0).poisson(np.outer(np.arange(1, 7), np.arange(1, 7)))
BLOCKS[6:, 6:] = np.random.default_rng(1).poisson(200.0, (6, 6))


def test_cells_that_lie_between_unconnected_tables_are_marked() -> None:
    fit = pltf.nmf(rank=2).fit(BLOCKS, restarts=3)
    known = fit.supported(~np.isnan(BLOCKS))
    assert known.mean() > 0.97
    huge = fit.mean() > 2 * np.nanmax(BLOCKS)
    assert not fit.supported()[huge].any()


def test_rows_without_any_observed_cell_are_marked() -> None:
    X = np.random.default_rng(0).poisson(3.0, (6, 5)).astype(float)
    X[2], X[1, 1] = np.nan, np.nan
    fit = pltf.nmf(rank=1).fit(X)
    assert not fit.supported()[2].any()
    assert fit.supported()[[0, 1, 3, 4, 5]].all()


def test_far_above_anything_observed_is_marked() -> None:
    """EM has no variance: 100 x 100 / 1 where a row and a column hold at most 100."""
    X = np.array([[1.0, 100.0], [100.0, np.nan]])
    fit = pltf.nmf(rank=1).fit(X, method="em")
    assert fit.mean()[1, 1] > 1000
    assert fit.supported().tolist() == [[True, True], [True, False]]


def test_ordinary_predictions_are_not_marked() -> None:
    X = np.random.default_rng(0).poisson(np.outer(np.arange(1, 21), np.arange(1, 16)) / 10)
    keep = pltf.holdout(X, 0.3, seed=0)
    assert pltf.nmf(rank=2).fit(X, mask=keep, restarts=2).supported().mean() > 0.98


def test_top_leaves_them_out_unless_asked() -> None:
    X = np.random.default_rng(0).poisson(3.0, (6, 5)).astype(float)
    X[2], X[1, 1] = np.nan, np.nan
    fit = pltf.nmf(rank=1).fit(X, prior=pltf.Gamma(1.0, 10.0))
    assert fit.top(20)[["i", "j", "supported"]].values.tolist() == [[1, 1, True]]
    everything = fit.top(20, unsupported=True)
    assert len(everything) == 6
    assert everything["supported"].sum() == 1
    only = np.where(np.isnan(X) & (np.arange(6)[:, None] != 2), 1.0, X)
    with pytest.raises(pltf.PltfError, match=r"supported by the data: unsupported=True includes the others"):
        pltf.nmf(rank=1).fit(only).top(3)


def test_where_no_cell_is_zero_that_is_said() -> None:
    with pytest.raises(pltf.PltfError, match="no cell of X is zero: among='all' searches the others"):
        pltf.nmf(rank=1).fit(np.ones((4, 3))).top(3)


def test_large_tensors_are_judged_only_where_means_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pltf.prediction.top.MOST_JUDGED", 0)
    monkeypatch.setattr("pltf.fit.MOST_LISTED", 1)
    X = np.random.default_rng(0).poisson(np.outer(np.arange(1, 21), np.arange(1, 16)) / 10).astype(float)
    X[3:6, 4:9] = np.nan
    X[7] = np.nan
    fit = pltf.nmf(rank=1).fit(X, prior=pltf.Gamma(1.0, 50.0))
    found = fit.top(5)
    assert found["supported"].all()
    assert 7 not in set(found["i"])


def test_a_large_tensor_without_supported_cells_among_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pltf.prediction.top.MOST_JUDGED", 0)
    monkeypatch.setattr("pltf.prediction.top.MOST_TRIED", 4)
    monkeypatch.setattr("pltf.fit.MOST_LISTED", 1)
    X = np.random.default_rng(0).poisson(3.0, (20, 15)).astype(float)
    X[7:], X[0, 0] = np.nan, np.nan
    fit = pltf.nmf(rank=1).fit(X, prior={"W": pltf.Gamma(1.0, 1e3), "H": pltf.Gamma(1.0, 1.0)})
    with (
        pytest.warns(
            pltf.ScoreWarning, match="of the 4 cells with the largest means, the data support 0; there may be more"
        ),
        pytest.raises(pltf.PltfError, match="supported by the data"),
    ):
        fit.top(1)


@pytest.mark.parametrize("storage", STORAGES)
def test_slices_of_any_storage(storage: str) -> None:
    full = np.random.default_rng(0).poisson(2.0, (5, 4, 3)).astype(float)
    full[1], full[:, 2] = np.nan, np.nan
    full[0, :, 1] = 0
    found = slices_of(stored(full, storage).pattern(), full.shape)
    assert found is not None
    for mode in range(3):
        others = tuple(axis for axis in range(3) if axis != mode)
        np.testing.assert_array_equal(found.largest[mode], np.nan_to_num(full).max(axis=others))
        np.testing.assert_array_equal(found.seen[mode], (~np.isnan(full)).any(axis=others))


def test_without_the_data_only_the_variance_tells() -> None:
    X = np.random.default_rng(0).poisson(3.0, (6, 5)).astype(float)
    X[2] = np.nan
    fit = pltf.nmf(rank=1).fit(X, keep_data=False, prior=pltf.Gamma(0.5, 0.1))
    assert fit.supported().all()
    assert not pltf.nmf(rank=1).fit(X, keep_data=False, prior=pltf.Gamma(0.1, 10.0)).supported()[2].any()


def test_sure_links_are_supported() -> None:
    """The rate of a link that is nearly certain is above 2, and there is no value that large."""
    rng = np.random.default_rng(0)
    sure = np.kron(np.eye(2), np.ones((20, 20)))
    X = (rng.random((40, 40)) < np.where(sure > 0, 0.97, 0.02)).astype(int)
    mask = pltf.holdout(X, 0.2, seed=0)
    fit = pltf.nmf(rank=2).fit(X, mask=mask, likelihood="bernoulli")
    assert fit.mean(~mask).max() > 2.0
    assert fit.supported(~mask).all()
