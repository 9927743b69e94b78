"""Wide tables, AnnData and MuData, dimensions with any name, and what is said about columns and blanks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import sparse

import pltf
from pltf.data import DenseObservation
from pltf.data.forms import index_names
from pltf.errors import DataWarning, ObservationError
from tests.extras import TORCH

USERS, PLACES = ["bob", "ann", "bob", "eve"], ["bar", "gym", "gym", "bar"]
WIDE = pd.crosstab(pd.Series(USERS, name="user"), pd.Series(PLACES, name="place"))
COUNTS = np.array([[0, 1], [1, 1], [1, 0]])
EVENTS = pd.DataFrame({"user": USERS, "place": PLACES, "age": [31, 27, 31, 60]})
NMF = pltf.nmf(("user", "place"), rank=1)


def values(seen: Any) -> Any:
    assert isinstance(seen, DenseObservation)
    return np.asarray(seen.values)


# -- columns that are not used ----------------------------------------------------------------------


def test_no_column_is_taken_for_values() -> None:
    with pytest.warns(DataWarning, match="every row counts one, and the column age is not used") as told:
        seen = pltf.observe(EVENTS, dims=["user", "place"])
    assert told[0].filename == __file__
    assert seen.total == len(EVENTS)
    with pytest.warns(
        DataWarning, match="columns age, b are not used: name one with value= in pltf.observe, or pass count=True"
    ):
        NMF.fit(EVENTS.assign(b=1), max_iter=2, tol=0)
    assert pltf.observe(EVENTS, dims=["user", "place"], count=True).total == len(EVENTS)  # without a warning
    assert pltf.observe(EVENTS, dims=["user", "place"], value="age").total == EVENTS["age"].sum()


def test_values_that_are_not_whole_numbers_get_a_note() -> None:
    fit = NMF.fit(np.array([[0.0, 1.5], [2.0, 1.0]]), max_iter=2, tol=0)
    assert [note.split(":")[0] for note in fit.notes] == [
        "X holds values that are not whole numbers, such as 1.5 in cell (0, 1)"
    ]
    assert NMF.fit(np.array([[0.0, 3.0], [2.0, 1.0]]), max_iter=2, tol=0).notes == ()


# -- blanks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [object, "str", "category"])
def test_blanks_around_labels_do_not_count(kind: Any) -> None:
    table = pd.DataFrame({" user ": pd.Series(["ann ", "bob", "ann", "\u00a0cid"]).astype(kind)})
    with pytest.warns(DataWarning, match="column ' user ': 2 labels that differ only in leading or trailing blanks"):
        seen = pltf.observe(table, dims=["user"])
    assert (seen.dims, sorted(seen.labels["user"].names())) == (("user",), ["ann", "bob", "cid"])
    kept = pltf.observe(table, dims=["user"], keep_blanks=True)
    assert sorted(kept.labels["user"].names()) == sorted(["ann ", "bob", "ann", "\u00a0cid"])
    assert kept.labels["user"].positions(["ann ", "ann"], "who").tolist() != [0, 0]
    assert (
        seen.labels["user"].positions([" bob"], "who").tolist() == seen.labels["user"].positions(["bob"], "").tolist()
    )


def test_where_labels_have_blanks_these_are_not_stripped() -> None:
    rows = pd.DataFrame({"user": ["ann", "ann ", "bob"], "place": ["x", "y", "x"]})
    fit = NMF.fit(pltf.observe(rows, dims=["user", "place"], keep_blanks=True), max_iter=2, tol=0)
    with pytest.raises(pltf.PltfError, match="row 0 has ' ann', which is not one of its 3 labels"):
        fit.mean((" ann", "x"))
    assert fit.update(rows).labels["user"].names() == ["ann", "ann ", "bob"]
    assert fit.update(rows.replace("bob", "bob ")).labels["user"].names() == ["ann", "ann ", "bob", "bob "]


def test_blanks_that_merge_nothing_are_not_told() -> None:
    seen = pltf.observe(pd.DataFrame({"user": ["b ", "a"]}), dims=["user"])
    assert seen.labels["user"].names() == ["a", "b"]
    ordered = pd.Categorical(["b ", "a"], categories=["b ", "a"])
    assert pltf.observe(pd.DataFrame({"user": ordered}), dims=["user"]).labels["user"].names() == ["b", "a"]


# -- rows in messages -------------------------------------------------------------------------------


def test_rows_are_named_by_their_labels() -> None:
    table = EVENTS.assign(age=[1, 2, -3, 4])
    for index, told in (
        (None, "row 2 "),
        (list("abcd"), "row 'c' "),
        ([9, 8, 7, 6], "row 7 "),
        ([1, 1, 1, 1], "row 2 "),
    ):
        with pytest.raises(ObservationError, match=told):
            pltf.observe(table if index is None else table.set_axis(index), dims=["user", "place"], value="age")
    series = table.set_index(["user", "place"])["age"]
    with pytest.raises(ObservationError, match=r"row \('bob', 'gym'\) of column 'age' holds -3"):
        pltf.observe(series)
    twice = EVENTS.set_axis(list("abcd")).assign(place="bar")
    with pytest.raises(ObservationError, match="in row 'a' and row 'c'"):
        pltf.observe(twice, dims=["user", "place"], value="age")


# -- wide tables ------------------------------------------------------------------------------------


def test_a_wide_table_is_read_by_its_names() -> None:
    seen = pltf.observe(WIDE)
    assert (seen.dims, values(seen).tolist()) == (("user", "place"), COUNTS.tolist())
    assert seen.labels["place"].names() == ["bar", "gym"]
    turned = pltf.observe(WIDE, dims=["place", "user"])
    assert (turned.dims, values(turned).tolist()) == (("place", "user"), COUNTS.T.tolist())
    fit = NMF.fit(WIDE.T, max_iter=2, tol=0)  # whichever way it lies
    assert fit.labels["user"].names() == ["ann", "bob", "eve"]
    assert pltf.observe(WIDE, dims={"user": "who", "place": "where"}).labels["who"].names() == ["ann", "bob", "eve"]


def test_wide_tables_without_names() -> None:
    plain = WIDE.rename_axis(index=None, columns=None)
    seen = pltf.observe(plain, dims=["user", "place"])
    assert (values(seen).tolist(), seen.labels["user"].names()) == (COUNTS.tolist(), ["ann", "bob", "eve"])
    half = WIDE.rename_axis(index=None)
    assert values(pltf.observe(half, dims=["place", "user"])).tolist() == COUNTS.T.tolist()
    assert values(pltf.observe(pd.DataFrame(COUNTS), dims=["i", "j"])).tolist() == COUNTS.tolist()
    gaps = plain.astype("Int64").mask(plain == 0)
    assert pltf.observe(gaps, dims=["user", "place"]).n_observed == 4


def test_wide_tables_of_more_indices() -> None:
    table = EVENTS.assign(day=[1, 1, 2, 2])
    wide = pd.crosstab([table["user"], table["day"]], table["place"])
    seen = pltf.observe(wide)
    assert seen.dims == ("user", "day", "place")
    assert seen.total == len(table)


def test_a_long_table_is_not_taken_for_a_wide_one() -> None:
    with pytest.raises(ObservationError, match="must have a column 'user'; it has user_id, page_id, n"):
        pltf.observe(pd.DataFrame({"user_id": [1], "page_id": [2], "n": [3]}), dims=["user", "page"])
    with pytest.raises(ObservationError, match="requires dims="):
        pltf.observe(pd.DataFrame({"user_id": [1], "page_id": [2]}))
    rows = EVENTS.set_index("user")
    assert pltf.observe(rows, dims=["user", "place"], value="age").total == EVENTS["age"].sum()
    with pytest.raises(ObservationError, match="rows and columns of a wide table must be user, page, got user, shop"):
        pltf.observe(WIDE.rename_axis(columns="shop"), dims=["user", "page"])


# -- dimensions with any name -----------------------------------------------------------------------


def test_dimensions_get_names_that_models_can_have() -> None:
    array = xr.DataArray(COUNTS, dims=("the user", "2nd"), coords={"the user": ["a", "b", "c"]})
    with pytest.warns(DataWarning) as told:
        seen = pltf.observe(array)
    assert [str(one.message) for one in told] == [
        "data: the dim 'the user' is the index 'the_user' in models",
        "data: the dim '2nd' is the index 'i2nd' in models",
    ]
    assert (seen.dims, seen.labels["the_user"].names()) == (("the_user", "i2nd"), ["a", "b", "c"])
    fit = pltf.nmf(("the_user", "i2nd"), rank=1).fit(array, mask=array > 0, max_iter=2, tol=0)
    assert fit.labels["the_user"].names() == ["a", "b", "c"]
    renamed = pltf.observe(array, dims={"2nd": "place", "the user": "user"})
    assert (renamed.dims, values(renamed).tolist()) == (("place", "user"), COUNTS.T.tolist())
    assert index_names(["a b", "a-b", "é", 3]) == {"a b": "a_b", "a-b": "a_b_2", "é": "é", 3: "i3"}


# -- AnnData and MuData -----------------------------------------------------------------------------


class AnnData:
    """What the class of anndata has."""

    def __init__(self, matrix: Any, cells: list[str], genes: list[str]) -> None:
        self.X, self.layers = matrix, {"raw": 2 * COUNTS}
        self._names = cells, genes

    @property
    def obs_names(self) -> pd.Index:
        """Names of the rows."""
        return pd.Index(self._names[0])

    @property
    def var_names(self) -> pd.Index:
        """Names of the columns."""
        return pd.Index(self._names[1])


class MuData:
    """What the class of mudata has."""

    obs_names = ()

    def __init__(self, **mod: AnnData) -> None:
        self.mod = mod


CELLS = AnnData(COUNTS, ["c1", "c2", "c3"], ["g1", "g2"])


@pytest.mark.parametrize("matrix", [COUNTS, sparse.csr_array(COUNTS), sparse.csr_matrix(COUNTS)])
def test_annotated_data(matrix: Any) -> None:
    cells = AnnData(matrix, ["c1", "c2", "c3"], ["g1", "g2"])
    with pytest.warns(pltf.DataWarning, match="X is used, not the layer raw: select with layer="):
        pltf.observe(cells)
    cells.layers.clear()
    seen = pltf.observe(cells)
    assert (seen.dims, seen.total, seen.labels["obs"].names()) == (("obs", "var"), 4, ["c1", "c2", "c3"])
    assert pltf.observe(CELLS, layer="raw").total == 8
    assert pltf.observe(CELLS, layer="X").total == 4
    assert pltf.observe(cells, dims=["cell", "gene"]).labels["gene"].names() == ["g1", "g2"]
    assert pltf.observe(cells, dims={"var": "gene", "obs": "cell"}).dims == ("cell", "gene")
    assert pltf.observe(cells, dims=["var", "obs"]).shape == (2, 3)
    fit = pltf.nmf(("cell", "gene"), rank=1).fit(cells, max_iter=3, tol=0)
    assert fit.labels["cell"].names() == ["c1", "c2", "c3"]
    assert fit.update(cells, max_iter=2, tol=0).labels["gene"].names() == ["g1", "g2"]


def test_modalities() -> None:
    both = MuData(rna=CELLS, atac=AnnData(5 * COUNTS, ["c1", "c2", "c3"], ["p1", "p2"]))
    assert pltf.observe(both, layer="atac/X").total == 20
    assert pltf.observe(both, layer="rna/raw").total == 8


@pytest.mark.parametrize(
    ("data", "options", "why"),
    [
        (CELLS, {"layer": "log"}, "has the layers X, raw: got 'log' for layer"),
        (CELLS, {"dims": ["cell"]}, "dims must be two names"),
        (CELLS, {"value": "n"}, "select its matrix with layer="),
        (AnnData(None, ["a"], ["b"]), {}, "has no X; its layers are raw: select one with layer="),
        (AnnData(COUNTS, ["a", "a", "b"], ["c", "d"]), {}, r"duplicate names of obs: .* \.obs_names_make_unique"),
        (MuData(rna=CELLS), {}, "has the modalities rna: select one with layer="),
        (MuData(rna=CELLS), {"layer": "dna"}, "has the modalities rna: got 'dna'"),
        (COUNTS, {"layer": "raw"}, "layer requires AnnData or MuData"),
    ],
)
def test_annotated_data_that_cannot_be_read(data: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ObservationError, match=why):
        pltf.observe(data, **options)


if TORCH:

    def test_tensors_of_torch() -> None:
        import torch

        tensor = torch.tensor(COUNTS, dtype=torch.float32, requires_grad=True)
        seen = pltf.observe(tensor, dims=["user", "place"], labels={"user": ["a", "b", "c"]})
        assert (seen.total, seen.labels["user"].names()) == (4, ["a", "b", "c"])
        assert pltf.observe(torch.tensor(COUNTS).to_sparse()).total == 4
