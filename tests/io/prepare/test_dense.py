"""Dense arrays in files, block by block."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

import pltf
from pltf.cli.spelling import option
from pltf.errors import PltfError
from pltf.io.prepare import dense
from tests.extras import required
from tests.io.prepare.reading import refusal, stored

required("duckdb")
zarr = required("zarr")
pytestmark = pytest.mark.extra("io")


def drawn(holes: float, dtype: str = "float64") -> NDArray[Any]:
    """Counts with holes."""
    rng = np.random.default_rng(3)
    counts = rng.poisson(0.5, (7, 12, 5)).astype(dtype)
    if holes:
        counts[rng.random(counts.shape) < holes] = np.nan
    return counts


def written(array: NDArray[Any], kind: str, folder: Path) -> tuple[Any, dict[str, Any]]:
    """The array as a source, and what goes with it."""
    if kind == "npy":
        np.save(folder / "x.npy", array)
        return folder / "x.npy", {}
    if kind == "memmap":
        np.save(folder / "x.npy", array)
        return np.load(folder / "x.npy", mmap_mode="r"), {}
    if kind == "zarr":
        zarr.create_array(str(folder / "x.zarr"), data=array, chunks=(3, 5, 5))
        return folder / "x.zarr", {}
    if kind == "group":
        zarr.open_group(str(folder / "x.zarr"), mode="w").create_array("a/X", data=array, chunks=(7, 1, 2))
        return folder / "x.zarr" / "a", {"variable": "X"}
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("deep/X", data=array, chunks=(2, 5, 2))
        file.create_dataset("other", data=[1.0])
    if kind == "hdf5":
        return folder / "x.h5", {"variable": "deep/X"}
    return h5py.File(folder / "x.h5")["deep/X"], {}


def assert_same(path: Path, array: NDArray[Any]) -> None:
    """The store has the cells of the array."""
    found = stored(path)
    absent = np.isnan(array)
    filled = np.full(array.shape, 0.0 if found.about["unlisted"] == "zero" else np.nan)
    for cell, x in found.cells.items():
        filled[cell] = x
    filled[tuple(found.missing)] = np.nan
    np.testing.assert_array_equal(filled, array)
    assert found.about["total"] == array[~absent].sum()
    assert found.about["sizes"] == list(array.shape)


@pytest.mark.parametrize("kind", ["npy", "memmap", "zarr", "group", "hdf5", "dataset"])
def test_arrays_of_every_kind(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "_CELLS", 30)  # so that there are several blocks
    array = drawn(0.2)
    source, options = written(array, kind, tmp_path)
    pltf.prepare(source, tmp_path / "cells", dims=["a", "b", "c"], cells_per_part=20, **options)
    assert_same(tmp_path / "cells", array)
    assert stored(tmp_path / "cells").about["dims"] == ["a", "b", "c"]


@pytest.mark.parametrize("holes", [0.0, 0.8])
def test_the_rarer_cells_are_listed(holes: float, tmp_path: Path) -> None:
    array = drawn(holes)
    pltf.prepare(array, tmp_path / "cells")
    assert_same(tmp_path / "cells", array)
    found = stored(tmp_path / "cells")
    assert found.about["unlisted"] == ("missing" if holes else "zero")
    assert len(found.cells) == (np.isfinite(array).sum() if holes else np.count_nonzero(array))


@pytest.mark.parametrize("dtype", ["uint8", "bool", "float32", "int64"])
def test_types(dtype: str, tmp_path: Path) -> None:
    array = drawn(0.0, dtype)
    pltf.prepare(array, tmp_path / "cells")
    assert_same(tmp_path / "cells", array.astype(float))


def test_labels_of_an_array(tmp_path: Path) -> None:
    array = drawn(0.0)[:2, :3, :4]
    pltf.prepare(array, tmp_path / "cells", dims=["a", "b", "c"], labels={"b": ["x", "z", "y"]})
    assert stored(tmp_path / "cells").labels["b"].names() == ["x", "z", "y"]
    told = refusal(array, tmp_path / "few", dims=["a", "b", "c"], labels={"b": ["x", "y"]})
    assert "index 'b' has 3 positions, but labels has 2 for it" in told


def test_refusals(tmp_path: Path) -> None:
    array = drawn(0.0)
    assert "must be 3 different names" in refusal(array, tmp_path / "cells", dims=["a", "b"])
    array[6, 2, 1] = -1
    assert "must be >= 0, but cell (6, 2, 1) holds -1.0" in refusal(array, tmp_path / "cells")
    assert "must hold real or whole numbers" in refusal(array.astype(str), tmp_path / "cells")
    source, _ = written(drawn(0.0), "hdf5", tmp_path)
    several = "has the arrays deep/X, other"
    assert f"{several}: select one with variable=" in refusal(source, tmp_path / "cells")
    assert f"{several}: got 'Y'" in refusal(source, tmp_path / "cells", variable="Y")
    with pytest.raises(PltfError) as caught:
        pltf.prepare(source, tmp_path / "cells")
    assert "select one with --variable" in caught.value.spelled(option)
    h5py.File(tmp_path / "empty.h5", "w").close()
    assert "empty.h5 has no array of numbers" in refusal(tmp_path / "empty.h5", tmp_path / "cells")
    source, _ = written(drawn(0.0), "zarr", tmp_path)
    assert "query cannot be used here" in refusal(source, tmp_path / "cells", query="X")
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing" / "zarr.json").write_text("{")
    assert "cannot be read as Zarr" in refusal(tmp_path / "nothing", tmp_path / "cells")


def test_pickles_in_zarr_are_not_loaded(tmp_path: Path) -> None:
    group = tmp_path / "x.zarr"
    zarr.create_array(str(group), shape=(4,), chunks=(4,), dtype="f8", zarr_format=2)
    about = json.loads((group / ".zarray").read_text())
    (group / ".zarray").write_text(json.dumps({**about, "filters": [{"id": "pickle", "protocol": 5}]}))
    assert "pickle" in refusal(group, tmp_path / "cells")


def test_frostt(tmp_path: Path) -> None:
    path = tmp_path / "x.tns"
    path.write_text("# sizes 4 3\n\n1 2 3.5\n  4\t1   2 # a comment\n2 2 nan\n")
    pltf.prepare(path, tmp_path / "cells", dims=["a", "b"])
    found = stored(tmp_path / "cells")
    assert found.cells == {(0, 1): 3.5, (3, 0): 2.0}
    assert found.missing.tolist() == [[1], [1]]
    assert found.labels["a"].names() == ["1", "2", "3", "4"]
    path.write_text("1 2 1\n4 1 2\n")
    pltf.prepare(path, tmp_path / "more")
    assert stored(tmp_path / "more").about["sizes"] == [4, 2]
    for text, why in (
        ("# sizes 3 3\n1 2 1\n4 1 2\n", "must hold positions from 1 to 3, got 4"),
        ("0 2 1\n", "must hold positions from 1"),
        ("1 2 1\n1 2 1\n", "cell (1, 2) is listed more than once"),
        ("1 2 1\n1 2\n", "cannot be read as tns"),
        ("1 x 1\n", "cannot be read as tns"),
        ("# nothing\n", "lists no cells"),
    ):
        path.write_text(text)
        assert why in refusal(path, tmp_path / "no")
    path.write_text("1 2 1 # Zoë\n", encoding="utf-16")
    pltf.prepare(path, tmp_path / "wide", encoding="utf-16")
    assert stored(tmp_path / "wide").cells == {(0, 1): 1.0}
    path.write_text("# Zoë\n1 2 1\n", encoding="cp1252")
    assert "x.tns is not valid UTF-8 text: set encoding=" in refusal(path, tmp_path / "no")


def test_a_masked_array_has_missing_cells(tmp_path: Path) -> None:
    array = np.ma.masked_equal(np.arange(6).reshape(2, 3), 2)
    pltf.prepare(array, tmp_path / "cells")
    assert_same(tmp_path / "cells", np.array([[0, 1, np.nan], [3, 4, 5]]))
    pltf.prepare(np.ma.masked_less(np.arange(6).reshape(2, 3), 5), tmp_path / "few")
    assert stored(tmp_path / "few").cells == {(1, 2): 5.0}


@pytest.mark.parametrize("lazy", [False, True])
def test_dims_and_labels_of_xarray(lazy: bool, tmp_path: Path) -> None:
    xr = required("xarray")
    values = drawn(0.2)[:4, :3, 0]
    held = required("dask.array").from_array(values, chunks=(3, 2)) if lazy else values
    array = xr.DataArray(held, dims=("user", "place"), coords={"place": ["x", "z", "y"]})
    pltf.prepare(array, tmp_path / "cells")
    assert_same(tmp_path / "cells", values)
    found = stored(tmp_path / "cells")
    assert found.about["dims"] == ["user", "place"]
    assert {dim: labels.names() for dim, labels in found.labels.items()} == {"place": ["x", "z", "y"]}
    assert "got an xarray Dataset" in refusal(array.to_dataset(name="X"), tmp_path / "more")


def test_a_dask_array_is_read_by_its_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "_CELLS", 30)
    array = drawn(0.2)
    pltf.prepare(required("dask.array").from_array(array, chunks=(3, 5, 2)), tmp_path / "cells")
    assert_same(tmp_path / "cells", array)
