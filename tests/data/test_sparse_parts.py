"""Sparse arrays whose parts do not fit together are refused before compiled code sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy import sparse

import pltf
from pltf.data.sparse_parts import check_sparse, sparse_array
from pltf.errors import PltfError
from pltf.sklearn import PoissonNMF
from tests.crafted import FAR, ROWS, SOUND, UNSOUND, VALUES
from tests.extras import optional

pydata = optional("sparse")


def spoilt(kind: str, starts: Any = SOUND, rows: Any = ROWS) -> Any:
    """A matrix of SciPy with other parts than it was made of."""
    good = sparse.csc_array((VALUES, ROWS, SOUND), shape=(3, 4))
    array = good if kind.startswith("csc") else good.T
    array = array if kind.endswith("array") else type(array)(array)
    array.indptr, array.indices = np.array(starts), np.array(rows)
    return array


@pytest.mark.parametrize("fault", UNSOUND)
@pytest.mark.parametrize("kind", ["csc_array", "csr_array"])
def test_scipy_matrices_whose_parts_do_not_fit(kind: str, fault: str) -> None:
    bad = spoilt(kind, **UNSOUND[fault])
    with pytest.raises(PltfError, match=r"indptr|indices|index"):
        pltf.observe(bad)
    with pytest.raises(PltfError, match="X: "):
        PoissonNMF(2).fit(bad)
    with pytest.raises(PltfError, match=r"indptr|indices|index"):
        pltf.nmf(rank=1).fit(bad)


def test_the_refusal_is_one_sentence() -> None:
    with pytest.raises(PltfError) as told:
        pltf.observe(spoilt("csc_array", [0, FAR, FAR, FAR, -1]), name="visits")
    assert str(told.value) == f"visits: indptr must never fall, but {FAR} stands before -1"


@pytest.mark.parametrize("row", [[0, 5], [0, -1], [0, 1, 1], [0.0, 1.0]])
def test_coo_whose_parts_do_not_fit(row: list[Any]) -> None:
    bad = sparse.coo_array(np.eye(2))
    bad.coords = (np.array(row), np.array([0, 1]))
    with pytest.raises(PltfError, match="coords of axis 0 must be"):
        pltf.observe(bad)


def test_dia_and_bsr_whose_parts_do_not_fit() -> None:
    diagonals = sparse.dia_array(np.eye(3))
    diagonals.offsets = np.array([0, 1, 2])
    with pytest.raises(PltfError, match="a row for each of 3 offsets"):
        pltf.observe(diagonals)
    blocks = sparse.bsr_array(np.ones((4, 4)), blocksize=(2, 2))
    blocks.indices = np.array([0, 1, 0, FAR])
    with pytest.raises(PltfError, match="indices must be from 0 to 1"):
        pltf.observe(blocks)


def spoilt_lists(rows: Any, values: Any) -> Any:
    """A matrix of lists with others in its first row."""
    array = sparse.lil_array((2, 3))
    array.rows[0], array.data[0] = rows, values
    return array


UNSOUND_LISTS: dict[str, tuple[Any, Any, str]] = {
    "more values": ([0], [1.0] * 5_000_000, "an index for each of 5000000 values of row 0, got 1"),
    "fewer values": ([0, 1], [1.0], "an index for each of 1 values of row 0, got 2"),
    "beyond": ([100], [1.0], "indices must be from 0 to 2, got 100"),
    "far beyond": ([2**70], [1.0], "indices must be from 0 to 2, got 1180591620717411303424"),
    "below 0": ([-1], [1.0], "indices must be from 0 to 2, got -1"),
    "no whole number": ([0.5], [1.0], "indices must be whole numbers"),
    "a list within": ([[0]], [1.0], "indices must be whole numbers"),
    "no list": (None, [1.0], "rows must be an array of 2 lists"),
    "no list of values": ([0], (1.0,), "data must be an array of 2 lists"),
}


@pytest.mark.parametrize("fault", UNSOUND_LISTS)
def test_lil_whose_parts_do_not_fit(fault: str) -> None:
    *lists, told = UNSOUND_LISTS[fault]
    with pytest.raises(PltfError, match=told):
        pltf.observe(spoilt_lists(*lists))
    with pytest.raises(PltfError, match=f"X: .*{told}"):
        PoissonNMF(2).fit(spoilt_lists(*lists))


def test_lil_with_more_rows_than_its_shape() -> None:
    bad = sparse.lil_array((2, 3))
    bad.rows = sparse.lil_array((2000, 3)).rows
    with pytest.raises(PltfError, match="rows must be an array of 2 lists"):
        pltf.observe(bad)


def test_what_scipy_cannot_convert() -> None:
    with pytest.raises(PltfError, match=r"data is a damaged lil array: .*not str"):
        pltf.observe(spoilt_lists([0], ["many"]))
    bad = sparse.dok_array((2, 3))
    bad._dict[100, 0] = 1.0
    with pytest.raises(PltfError, match=r"data is a damaged dok array: .*exceeds"):
        pltf.observe(bad)


@pytest.mark.parametrize("offset", [2**62, -(2**62), 4, -3])
def test_dia_with_offsets_beyond_its_shape(offset: int) -> None:
    diagonals = sparse.dia_array(np.ones((3, 4)))
    diagonals.offsets = np.array([*diagonals.offsets[:-1], offset])
    with pytest.raises(PltfError, match=f"offsets must be from -2 to 3, got {offset}"):
        pltf.observe(diagonals)


@pytest.mark.parametrize("format", ["csr", "csc", "bsr", "coo", "dia", "lil", "dok"])
def test_sound_ones_are_read_as_before(format: str) -> None:
    X = np.arange(12).reshape(4, 3) % 5
    for made in (sparse.csr_array(X), sparse.csr_matrix(X), sparse.csr_array((4, 3), dtype=int)):
        seen = pltf.observe(made.asformat(format))
        assert seen.total == made.sum()
        assert seen.shape == (4, 3)


@pytest.mark.parametrize("values", [[2**63], [-1], [0.5], [[3, 4]]])
def test_shapes_that_are_none(values: list[Any]) -> None:
    kind = np.uint64 if values == [2**63] else None
    with pytest.raises(PltfError, match=r"shape must (be|have sizes)"):
        sparse_array("csr", {}, np.array(values, dtype=kind), "data")  # type: ignore[arg-type]


def test_a_format_that_nobody_knows() -> None:
    with pytest.raises(PltfError, match="format 'odd' is unsupported"):
        sparse_array("odd", {"data": VALUES}, (3, 4), "data")


def test_pydata_arrays_whose_parts_do_not_fit() -> None:
    rows = pydata.GCXS.from_numpy(np.arange(12.0).reshape(3, 2, 2) + 1)
    check_sparse(rows, "data")
    assert pltf.observe(rows).total == 78
    rows.indptr = np.array([0, FAR, FAR, 12])[: rows.indptr.size]
    with pytest.raises(PltfError, match="indptr must"):
        pltf.observe(rows)
    cells = pydata.COO.from_numpy(np.eye(3))
    cells.coords[0, 1] = FAR
    with pytest.raises(PltfError, match="coords of axis 0 must be from 0 to 2"):
        pltf.observe(xr.DataArray(cells, dims=("i", "j")))
