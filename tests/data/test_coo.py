"""Listed cells: what an absent one is, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import pltf
from pltf import memory
from pltf.data import CooObservation
from tests.extras import optional

pydata = optional("sparse")

CELLS = np.array([[2, 0, 1], [0, 1, 0], [0, 0, 3]])
VALUES = np.array([5, 0, 2])
SHAPE = (3, 2, 4)


def observe(*arguments: Any, **options: Any) -> CooObservation:
    seen = pltf.observe(*arguments, **options)
    assert isinstance(seen, CooObservation)
    return seen


def test_cells_are_sorted_and_inputs_left_alone() -> None:
    cells, values = CELLS.copy(), VALUES.copy()
    seen = observe((cells, values), shape=SHAPE)
    np.testing.assert_array_equal(seen.coords.T, [[0, 0, 3], [0, 1, 0], [2, 0, 1]])
    np.testing.assert_array_equal(seen.values, [2, 0, 5])
    np.testing.assert_array_equal(cells, CELLS)
    np.testing.assert_array_equal(values, VALUES)
    with pytest.raises(ValueError, match="read-only"):
        seen.values[0] = 1


def test_three_meanings_of_an_absent_cell() -> None:
    zero = observe((CELLS, VALUES), shape=SHAPE)
    holes = observe((CELLS, VALUES), shape=SHAPE, missing=[(1, 1, 1), (1, 1, 1), (2, 1, 3)])
    ratings = observe((CELLS, VALUES), shape=SHAPE, unlisted="missing")
    assert [seen.n_observed for seen in (zero, holes, ratings)] == [24, 22, 3]
    assert [seen.has_missing for seen in (zero, holes, ratings)] == [False, True, True]
    assert {seen.total for seen in (zero, holes, ratings)} == {7.0}
    assert len({seen.saturated for seen in (zero, holes, ratings)}) == 1


def test_one_storage_as_good_as_another() -> None:
    dense = np.zeros((4, 5))
    dense[[0, 3, 1], [4, 2, 0]] = [3, 1, 7]
    rows, columns = np.nonzero(dense)
    table = pd.DataFrame({"n": dense[rows, columns], "j": columns, "i": rows})
    forms = [
        observe((np.argwhere(dense), dense[dense > 0]), shape=(4, 5)),
        *(
            observe(getattr(sparse, kind)(dense))
            for kind in ("coo_array", "csr_array", "csc_matrix", "dok_array", "lil_array")
        ),
        observe(pydata.COO.from_numpy(dense)),
        observe(table, dims=("i", "j"), value="n", shape=(4, 5)),
    ]
    for seen in forms:
        assert seen.shape == (4, 5)
        np.testing.assert_array_equal(seen.coords, forms[0].coords)
        np.testing.assert_array_equal(seen.values, forms[0].values)


def test_a_fit_takes_them_as_they_are() -> None:
    dense = np.random.default_rng(0).poisson(0.5, (9, 8))
    rows, columns = np.nonzero(dense)
    table = pd.DataFrame({"i": rows, "j": columns, "n": dense[rows, columns]})
    model = pltf.nmf(rank=2)
    expected = model.fit(dense, max_iter=20, tol=0, accelerate=False)
    of_table = pltf.observe(table, dims=("i", "j"), value="n")
    for form in (sparse.dok_array(dense), sparse.csr_matrix(dense), pydata.COO.from_numpy(dense), of_table):
        fit = model.fit(form, max_iter=20, tol=0, accelerate=False)
        assert fit.engine == "sparse"
        np.testing.assert_allclose(fit.trace, expected.trace, rtol=1e-10)
    assert "lists its cells" in str(model.plan(sparse.csr_matrix(dense)))


def test_index_spaces_beyond_machine_integers() -> None:
    wide = observe((np.array([[2**40, 3, 5], [1, 2**40, 7]]), [1, 2]), shape=(2**41, 2**41, 2**41))
    assert wide.n_observed == 2**123
    assert wide.coords.dtype == np.int64
    assert observe((np.array([[2**31 - 1, 0]]), [1]), shape=(2**31, 2)).coords.dtype == np.int64
    assert "2" in repr(wide)


@pytest.mark.parametrize("shape", [(5, 4, 3), (2**31, 2**31, 2), (2**31, 2**31, 3), (2**62, 5, 2**40)])
def test_cells_are_sorted_by_mode_after_mode_whatever_the_size(shape: tuple[int, ...]) -> None:
    """Also where the cells can no longer be counted in int64; the rows of a cell are added up as they come."""
    rng = np.random.default_rng(1)
    cells = np.stack([rng.choice([0, 1, size // 2, size - 1], 200) for size in shape], axis=1)
    values = rng.random(200) * 10.0 ** rng.integers(-9, 9, 200)
    seen = observe((cells, values), shape=shape, duplicates="sum")
    distinct, at = np.unique(cells, axis=0, return_inverse=True)
    sums = np.array([np.add.reduceat(values[at.ravel() == place], [0])[0] for place in range(len(distinct))])
    np.testing.assert_array_equal(seen.coords.T, distinct)
    assert (seen.values == sums).all()


def test_a_huge_tensor_fits() -> None:
    """10^15 cells, of which a thousand are listed: nothing of the size of the tensor is made."""
    rng = np.random.default_rng(0)
    cells = np.unique(rng.integers(0, 10**5, (1000, 3)), axis=0)
    seen = observe((cells, rng.poisson(2, len(cells)) + 1), shape=(10**5, 10**5, 10**5))
    fit = pltf.cp(rank=2).fit(seen, max_iter=3, tol=0)
    assert np.isfinite(fit.trace).all()
    assert fit.mean(at=cells[:5]).shape == (5,)
    with pytest.raises(pltf.PltfError, match=r"all cells of X would take 8\.0 PB: select cells with at="):
        fit.mean()


def test_duplicates() -> None:
    cells, values = [(0, 1), (1, 1), (0, 1)], [1, 2, 4]
    with pytest.raises(pltf.ObservationError, match=r"cell \(0, 1\) is listed more than once; pass duplicates='sum'"):
        observe((cells, values), shape=(2, 2))
    seen = observe((cells, values), shape=(2, 2), duplicates="sum")
    np.testing.assert_array_equal(seen.values, [5, 2])
    doubled = sparse.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(2, 2))
    with pytest.raises(pltf.ObservationError, match="listed more than once"):
        observe(doubled)


def listed(**options: Any) -> dict[str, Any]:
    return {"data": (CELLS, VALUES), "shape": SHAPE} | options


def table(**options: Any) -> dict[str, Any]:
    return {"data": pd.DataFrame({"i": [0], "j": [1], "n": [2]})} | options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": (CELLS, VALUES)}, "listed cells require shape="),
        (
            {"data": (CELLS, VALUES), "shape": (3, 2)},
            r"must have a row of 2 positions for each cell, got shape \(3, 3\)",
        ),
        ({"data": (CELLS, VALUES), "shape": (3, 2, 0)}, "shape must be whole numbers from 1 to"),
        ({"data": (CELLS, VALUES), "shape": (2, 2, 4)}, "row 0 has 2 for mode 0, which runs from 0 to 1"),
        ({"data": (-CELLS, VALUES), "shape": SHAPE}, "row 0 has -2 for mode 0"),
        ({"data": (CELLS * 1.0, VALUES), "shape": SHAPE}, "coords must be whole numbers, got dtype float64"),
        ({"data": (CELLS, VALUES[:2]), "shape": SHAPE}, "coords and values must have the same length, got 3 and 2"),
        ({"data": (CELLS, -VALUES), "shape": SHAPE}, r"must be >= 0, but cell \(2, 0, 1\) holds -5"),
        ({"data": (CELLS, VALUES * np.nan), "shape": SHAPE}, "must be finite, but cell"),
        ({"data": (CELLS, VALUES + np.inf), "shape": SHAPE}, "must be finite, but cell|must be >= 0"),
        ({"data": (CELLS, ["a", "b", "c"]), "shape": SHAPE}, "values: expected real or integer numbers, got dtype <U1"),
        ({"data": (CELLS, VALUES, 3), "shape": SHAPE}, r"a tuple must be \(coords, values\), got 3 elements"),
        (listed(unlisted="nan"), "unlisted must be one of 'zero', 'missing'; got 'nan'"),
        (listed(duplicates="max"), "duplicates must be one of 'error', 'sum'"),
        (listed(missing=[(0, 0)]), "missing must have a row of 3 positions"),
        (listed(missing=[(0, 0, 9)]), "missing must be inside the tensor, but row 0 has 9"),
        (listed(missing=CELLS[:1]), r"cell \(2, 0, 1\) is listed both with a value and in missing"),
        (listed(missing=CELLS, unlisted="missing"), "missing lists missing cells among observed zeros"),
        (listed(mask=np.ones(SHAPE)), "mask requires a dense array"),
        ({"data": np.ones((2, 2)), "unlisted": "missing"}, "unlisted requires listed cells, .* use mask="),
        ({"data": np.ones((2, 2)), "missing": [(0, 0)]}, "missing requires listed cells, .* use mask="),
        (
            {"data": np.ones((2, 2)), "duplicates": "sum"},
            r"duplicates requires .* data is a dense array \(ndarray\)",
        ),
        ({"data": np.ones((2, 2)), "duplicates": None}, "duplicates requires listed cells"),
        ({"data": np.ones((2, 2)), "dims": ("i", "j", "k")}, "dims must be 2 different names, got"),
        ({"data": np.ones((2, 2)), "value": "n"}, r"value requires a table, but data is an array \(ndarray\)"),
        (listed(count=True), "count requires a table, but data is a list of cells"),
        ({"data": [CELLS, VALUES], "shape": SHAPE}, r"shape requires listed cells, .* a dense array \(list\)"),
        ({"data": sparse.eye_array(3), "shape": (3, 3)}, "already has a shape"),
        ({"data": pydata.COO.from_numpy(np.eye(2)) + 1}, "fill value of a sparse array must be 0, got 1"),
        ({"data": pd.DataFrame({"i": [1], "n": [1]})}, "a table requires dims="),
        (
            {"data": pd.DataFrame({"i": [1], "n": [1]}), "dims": ("i", "j")},
            "the table must have a column 'j'; it has i, n",
        ),
        (
            {"data": pd.DataFrame({"i": ["x"], "n": [1]}), "dims": ("i",), "shape": (3,)},
            "column 'i' must hold whole numbers",
        ),
        ({"data": pd.MultiIndex.from_tuples([(0, 1)])}, "expected a table or a Series, got a pandas MultiIndex"),
        ({"data": pd.Series([1.0])}, "the levels of the Series have no names: give dims="),
    ],
)
def test_refusals(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(pltf.ObservationError, match=message):
        pltf.observe(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (listed(shape=5), "shape must be whole numbers from 1 to .* got 5"),
        (listed(shape=(3, 2, 2**64)), "shape must be whole numbers from 1 to"),
        (listed(unlisted=np.array(["zero"])), "unlisted must be one of"),
        (listed(data=(CELLS, np.ma.masked_equal(VALUES, 0))), "values must not have masked entries"),
        (listed(data=([[1, 2, 3], [1]], [1, 2])), "coords: expected a numeric array, got list"),
        (listed(data=([(0, 0, 0)] * 2, [1e308] * 2), duplicates="sum"), "must be finite"),
        (
            {"data": pltf.observe((CELLS, VALUES), shape=SHAPE), "unlisted": "missing"},
            "data is already an observation: unlisted cannot be changed",
        ),
        (
            {"data": pltf.observe(np.ones(3)), "duplicates": "sum"},
            "already an observation: duplicates cannot",
        ),
        ({"data": pltf.observe(np.ones(3)), "dims": ("i",)}, "already an observation: dims cannot"),
        (
            {"data": pltf.observe((CELLS, VALUES), shape=SHAPE), "shape": SHAPE},
            "already an observation: shape cannot",
        ),
        (listed(shape={3, 2, 4}), "shape must be whole numbers from 1 to .* got {2, 3, 4}"),
        (listed(shape=(size for size in SHAPE)), "shape must be whole numbers from 1 to .* got <generator"),
        (listed(shape=np.ones((2, 2), dtype=int)), r"shape must be .* got array\(\[\[1, 1\], \[1, 1\]\]\)"),
        (listed(shape=np.array(3)), r"shape must be .* got array\(3\)"),
        (
            listed(data=(CELLS[:2].T, VALUES[:2])),
            r"coords must have a row of 3 positions for each cell, got shape \(3, 2\): transpose it",
        ),
        (listed(data=(np.empty((0, 5), dtype=int), [])), r"row of 3 positions for each cell, got shape \(0, 5\)"),
        (listed(data=(CELLS > 0, VALUES)), "coords must be whole numbers, got dtype bool"),
        (listed(data=([np.ma.masked_equal(row, 0) for row in CELLS], VALUES)), "coords must not have masked entries"),
        (listed(data=(CELLS, [1, 2, np.ma.masked])), "values must not have masked entries"),
        (listed(data=(CELLS, np.array([1, 2, 3], dtype="m8[s]"))), "numbers, got dtype timedelta64"),
        (listed(data=(CELLS, [2**60, 1, 1])), r"at most 2\*\*53, or float64 would round them, but cell \(2, 0, 1\)"),
        (listed(data=(CELLS, [1e308, 1e308, 1.0])), "data: observed values must add up to less than 1.8e308, got inf"),
        ({"data": pd.DataFrame({"i": [-1], "n": [1]}), "dims": ("i",), "shape": (3,)}, "row 0 has -1 for mode 0"),
        (table(dims=5), r"dims must be a list of columns such as \('i', 'j'\), got 5"),
        (table(dims="ij"), "dims must be a list of columns .* got 'ij'"),
        (table(dims={"i", "j"}), "dims must be a list of columns .* got {'i', 'j'}"),
        (table(dims=()), r"dims must be a list of columns .* got \(\)"),
        (table(dims=("i", "j", "i")), "dims must name each column once, got 'i' twice"),
        (
            {"data": pd.DataFrame([[0, 1, 2]]), "dims": (0,)},
            "dims must be names of indices, got 0",
        ),
        (
            {"data": pd.DataFrame({"i": np.array([2**63], dtype=np.uint64), "n": [1]}), "dims": ("i",)},
            r"column 'i': whole numbers must be below 2\*\*63, got 9223372036854775808",
        ),
        (
            {"data": pd.DataFrame({"i": [2**63 - 1], "n": [1]}), "dims": ("i",), "shape": (3,)},
            "column 'i' must hold positions below",
        ),
    ],
)
def test_more_refusals(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(pltf.ObservationError, match=message) as refused:
        pltf.observe(**arguments)
    assert "\n" not in str(refused.value)


def test_sums_of_whole_numbers_stay_exact() -> None:
    """2**53 + 1 is no float64: what was added up to that much is refused, what was listed once is not."""
    twice = [(0, 0), (0, 0), (1, 1)]
    seen = observe((twice, [2**52, 2**52 - 1, 2**53]), shape=(2, 2), duplicates="sum")
    np.testing.assert_array_equal(seen.values, [2**53 - 1, 2**53])
    with pytest.raises(pltf.ObservationError, match=r"the values of cell \(0, 0\) must add up to less than 2\*\*53"):
        observe((twice, [2**53, 1, 1]), shape=(2, 2), duplicates="sum")
    assert observe((twice, [2.0**53, 1.0, 1.0]), shape=(2, 2), duplicates="sum").values[0] == 2.0**53
    np.testing.assert_array_equal(observe((twice, [True] * 3), shape=(2, 2), duplicates="sum").values, [2, 1])


def test_columns_may_be_named_by_the_table_itself() -> None:
    cells = pd.DataFrame({"i": [0, 1], "j": [1, 0], "n": [2, 3]})
    np.testing.assert_array_equal(observe(cells, dims=cells.columns[:2], value="n").coords, [[0, 1], [1, 0]])


def test_an_empty_list_is_no_cell() -> None:
    assert observe(([], []), shape=(4, 4)).n_observed == 16
    assert observe((CELLS, VALUES), shape=SHAPE, missing=[]).n_observed == 24


def test_tables_with_columns_of_several_kinds_of_integers() -> None:
    table = pd.DataFrame({"i": pd.array([1, 0], dtype="Int64"), "j": np.array([0, 1], dtype=np.uint64), "n": [2, 3]})
    np.testing.assert_array_equal(observe(table, dims=("i", "j"), value="n").coords, [[0, 1], [1, 0]])


def test_values_at_the_edge_of_float32() -> None:
    model = pltf.nmf(rank=2)
    tiny = pltf.observe(([(0, 0), (1, 1)], [1e-50, 1.0]), shape=(2, 2))
    assert np.isfinite(model.fit(tiny, dtype="float32", max_iter=3, tol=0).bound)
    for big in (pltf.observe(([(0, 0)], [1e39]), shape=(2, 2)), np.array([[1e39, 1.0], [2.0, 3.0]])):
        with pytest.raises(pltf.EngineError, match=r"X contains 1e\+39, which is too large for float32: use"):
            model.fit(big, dtype="float32")


def test_a_fit_that_cannot_be_held_is_refused() -> None:
    with pytest.raises(pltf.PltfError, match=r"the fit needs .* TB beside the data, and this machine has"):
        pltf.nmf(rank=2).fit(pltf.observe(([(0, 0)], [1]), shape=(10**12, 4)))


def test_a_fit_beyond_the_limit_of_the_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "limited", lambda: 1e6)
    with pytest.raises(
        pltf.PltfError, match=r"the fit needs .* MB beside .*, and the limit of this process is 1\.0 MB"
    ):
        pltf.nmf(rank=2).fit(pltf.observe(([(0, 0)], [1]), shape=(10**5, 4)))


def test_engines_take_any_storage() -> None:
    fits = [
        pltf.nmf(rank=1).fit(data, engine=engine)
        for data in (sparse.eye_array(3), np.eye(3))
        for engine in ("dense", "sparse")
    ]
    assert [fit.engine for fit in fits] == ["dense", "sparse"] * 2
    np.testing.assert_allclose([fit.bound for fit in fits], fits[0].bound, rtol=1e-12)


@pytest.mark.parametrize("text", ["Y[j,m] = B[j,r] * D[m,r]", "Y[j,m] = B[j,r] * D[m,r] * G[r]"])
def test_a_list_may_be_wholly_missing_in_a_coupled_model(text: str) -> None:
    X = np.random.default_rng(0).poisson(1.0, (6, 5))
    nothing = pltf.observe((np.empty((0, 2), dtype=int), []), shape=(5, 7), unlisted="missing")
    model = pltf.Model(f"X[i,j] = A[i,r] * B[j,r]\n{text}", r=2)
    both = model.fit({"X": X, "Y": nothing}, max_iter=10, tol=0, accelerate=False)
    assert both.n_observed["Y"] == 0
    np.testing.assert_allclose(both.factors["D"].mean, 10.0)
    assert (np.diff(both.trace) > 0).all()


def test_coupled_tensors_of_mixed_storage() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.poisson(1.0, (6, 5)), rng.poisson(0.3, (5, 7))
    model = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)
    dense = model.fit({"X": X, "Y": Y}, max_iter=20, tol=0, accelerate=False)
    mixed = model.fit({"X": X, "Y": sparse.csr_array(Y)}, max_iter=20, tol=0, accelerate=False)
    assert mixed.engine == "dense and sparse"
    np.testing.assert_allclose(mixed.trace, dense.trace, rtol=1e-10)
