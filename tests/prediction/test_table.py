"""Predictions in one table, of single cells, and by default of those that people mean."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pltf

VISITS = pd.DataFrame({"user": list("aabcd"), "place": ["x", "y", "x", "z", "z"], "n": [3, 1, 4, 2, 5]})
MODEL = pltf.Model("X[user,place] = U[user,r] * P[place,r]", r=2)


@pytest.fixture(scope="module")
def fit() -> pltf.Fit:
    return MODEL.fit(pltf.observe(VISITS, dims=["user", "place"], value="n"))


def test_a_table_has_what_the_methods_answer(fit: pltf.Fit) -> None:
    cells = pd.DataFrame({"place": ["y", "x"], "user": ["d", "a"], "other": [1, 2]}, index=["first", "second"])
    how: dict[str, Any] = {"draws": 60, "seed": 4}
    table = fit.predict(cells, atleast=2, level=0.8, **how)
    assert table.index.tolist() == ["first", "second"]
    assert table[["user", "place"]].values.tolist() == [["d", "y"], ["a", "x"]]
    at = table[["user", "place"]]
    expected = {"mean": fit.mean(at), "sd": np.sqrt(fit.var(at)), "prob": fit.prob(at, 2, **how)}
    expected |= {"supported": fit.supported(at)}
    for kind, counts in (("rate", False), ("count", True)):
        ends = fit.interval(at, 0.8, counts=counts, **how)
        expected |= dict(zip((f"{kind}_low", f"{kind}_high"), ends, strict=True))
    assert list(table.columns) == ["user", "place", *expected]
    for column, values in expected.items():
        np.testing.assert_array_equal(table[column], values)
    assert table["supported"].dtype == bool


def test_without_cells_all_of_the_tensor(fit: pltf.Fit) -> None:
    table = fit.predict()
    assert table[["user", "place"]].values.tolist() == [[user, place] for user in "abcd" for place in "xyz"]
    np.testing.assert_array_equal(table["mean"], fit.mean().ravel())
    np.testing.assert_array_equal(table["rate_high"], fit.interval()[1].ravel())


def test_positions_where_there_are_no_labels() -> None:
    X = np.random.default_rng(0).poisson(3.0, (4, 5)).astype(float)
    X[1, 2] = X[3, 0] = np.nan
    table = pltf.nmf(rank=1).fit(X).predict(np.isnan(X))
    assert table[["i", "j"]].values.tolist() == [[1, 2], [3, 0]]
    assert len(pltf.nmf(rank=1).fit(X).predict(np.empty((0, 2), dtype=int))) == 0


@pytest.mark.parametrize("method", ["vb", "em", "gibbs"])
def test_a_single_cell_by_its_labels(method: str) -> None:
    fit = MODEL.resized(r=1).fit(pltf.observe(VISITS, dims=["user", "place"], value="n"), method=method)
    one, listed = ("c", "x"), [("c", "x")]
    for answer in (fit.mean, fit.var, fit.prob, fit.supported):
        got = answer(one)
        assert np.ndim(got) == 0
        assert isinstance(got, np.generic)
        assert got == answer(listed)[0]
    assert fit.var(one, counts=True) == fit.var(listed, counts=True)[0]
    assert fit.interval(one) == tuple(end[0] for end in fit.interval(listed))
    assert fit.log_prob(one, 2) == fit.log_prob(listed, [2])[0] == fit.log_prob(one, [2])
    assert fit.surprise(one, 2, tail="both") == fit.surprise(listed, [2], tail="both")[0]
    np.testing.assert_array_equal(fit.sample(7, one), fit.sample(7, listed)[:, 0])
    assert fit.predict(one)[["user", "place"]].values.tolist() == [["c", "x"]]


def test_single_cells_by_positions_and_what_is_none() -> None:
    X = np.arange(6.0).reshape(2, 3)
    fit = pltf.nmf(rank=1).fit(X)
    assert fit.mean((1, 2)) == fit.mean()[1, 2]
    assert fit.mean((np.int64(1), 2)) == fit.mean()[1, 2]
    assert fit.mean(np.nonzero(X)).shape == (5,)
    vector = pltf.Model("X[i] = A[i,r] * B[r]", r=1).fit(np.arange(3.0))
    assert vector.mean((2,)) == vector.mean()[2]
    assert vector.mean(np.nonzero([1, 0, 1])).shape == (2,)
    with pytest.raises(pltf.PltfError, match="whole numbers, got dtype float64"):
        fit.mean((0.5, 1))


def test_a_label_that_is_not_known(fit: pltf.Fit) -> None:
    with pytest.raises(pltf.PltfError, match=r"'place': row 0 has 'w', which is not one of its 3 labels"):
        fit.mean(("a", "w"))


def test_numbers_that_are_labels_are_not_taken_for_positions() -> None:
    table = pd.DataFrame({"user": [7, 8, 9], "place": [1, 0, 1]})
    fit = pltf.nmf(("user", "place"), rank=1).fit(table)
    with pytest.raises(pltf.PltfError, match="the labels of 'user' are numbers, so numbers are ambiguous"):
        fit.mean((1, 0))


def test_top_takes_zeros_where_nothing_is_missing(fit: pltf.Fit) -> None:
    pd.testing.assert_frame_equal(fit.top(3), fit.top(3, "zero"))
    X = np.array([[4.0, np.nan], [2.0, 0.0]])
    holes = pltf.nmf(rank=1).fit(X)
    pd.testing.assert_frame_equal(holes.top(3), holes.top(3, "missing"))
    with pytest.raises(pltf.PltfError, match=r"no cell of X is missing: among must be 'zero' or 'all'"):
        fit.top(3, "missing")


def test_a_factor_that_does_not_exist(fit: pltf.Fit) -> None:
    with pytest.raises(KeyError, match=r"^no factor 'Z': the factors are U, P$"):
        fit.factors["Z"]
    with pytest.raises(pltf.PltfError, match=r"no factor 'p': the factors are U, P; did you mean 'P'\?"):
        fit.factors["p"]
    assert fit.factors.get("Z") is None
    assert "Z" not in fit.factors
    assert list(fit.factors) == ["U", "P"]


def test_what_a_table_cannot_hold(fit: pltf.Fit) -> None:
    with pytest.raises(pltf.PltfError, match="index 'prob' has the name of a column"):
        pltf.nmf(("user", "prob"), rank=1).fit(np.ones((2, 2))).predict()
    large = pltf.nmf(rank=1).fit(pltf.observe(([(0, 1)], [3.0]), shape=(10**5, 10**5)), max_iter=2, tol=0)
    with pytest.raises(pltf.PltfError, match=r"the result would take .*: select fewer cells with at="):
        large.predict()
    for wrong in ({"level": 2}, {"atleast": 0}, {"draws": 0}, {"seed": -1}, {"progress": 1}, {"of": "Q"}):
        (name,) = wrong
        with pytest.raises(pltf.PltfError, match=rf"^{name} must "):
            fit.predict(**wrong)


def test_public_names_alone() -> None:
    shown = set(dir(pltf))
    assert set(pltf.__all__) <= shown
    assert all(inspect.ismodule(getattr(pltf, name)) for name in shown - set(pltf.__all__) - {"__version__"})
    assert not {"TYPE_CHECKING", "_HOMES", "fit", "gamma"} & shown
