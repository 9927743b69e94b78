"""Data through other formats and back: the same cells, labels and holes."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import pltf
from pltf.cli.data import _save_arrays, observed, write_observation
from pltf.data import DenseObservation, Observation
from pltf.errors import PltfError
from tests.cli import SCRIPT, here
from tests.extras import MINIMAL

VALUES = [0.0, 1.0, 3.0, 0.1, 1 / 3, 2.0**53, 1e300, 5e-324]
WAYS = [".csv", ".tsv", ".csv.gz", *([] if MINIMAL else [".parquet"]), ".tns", ".tns.gz", ".npz", ".nc"]


def read(path: Path, index: str | None = None, missing: str = "nan", value: str | None = None) -> Observation:
    """What the commands take a file for."""
    options = dict.fromkeys(("variable", "format", "limit")) | {"value": value, "count": False, "sum": False}
    return observed(path, {**options, "index": index, "missing": missing})[0]


def cells(seen: Observation) -> dict[tuple[str, ...], float | None]:
    """What every cell holds, by its labels in words; None where it is missing."""
    at = np.stack(np.unravel_index(np.arange(math.prod(seen.shape)), seen.shape))
    dims = seen.dims or [""] * len(seen.shape)
    names = [
        seen.labels[d].names() if d in seen.labels else list(map(str, range(n)))
        for d, n in zip(dims, seen.shape, strict=True)
    ]
    held = [None if math.isnan(value) else value for value in seen.values_at(at).tolist()]
    return {tuple(names[m][n] for m, n in enumerate(cell)): value for cell, value in zip(at.T, held, strict=True)}


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    """Arrays and lists with holes, labels of several kinds or none, slices that are empty."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    dims = ["who", "where", "when"][: len(shape)]
    kinds: list[Any] = [
        lambda n: [f"w{k}" for k in range(n)][::-1],
        lambda n: list(range(7, 7 + n)),
        lambda n: pd.date_range("2026-01-05", periods=n, freq="D"),
        lambda n: ["NA", "007", "a,b", "é"][:n],
    ]
    labels = {d: draw(st.sampled_from(kinds))(n) for d, n in zip(dims, shape, strict=True)}
    size = math.prod(shape)
    values = draw(st.lists(st.sampled_from(VALUES), min_size=size, max_size=size))
    X = np.reshape(values, shape)
    holes = np.reshape(draw(st.lists(st.booleans(), min_size=size, max_size=size)), shape)
    named: dict[str, Any] = {"dims": dims, "labels": labels} if draw(st.booleans()) else {}
    storage = draw(st.sampled_from(["dense", "zero", "missing"]))
    if storage == "dense":
        return pltf.observe(X, ~holes, **named)
    listed = np.argwhere(~holes & ((X > 0) | (storage == "missing")))
    missing = np.argwhere(holes) if storage == "zero" else None
    return pltf.observe((listed, X[tuple(listed.T)]), shape=shape, unlisted=storage, missing=missing, **named)


@pytest.mark.slow
@given(seen=observations(), ending=st.sampled_from(WAYS))
@settings(max_examples=100)
def test_there_and_back(seen: Observation, ending: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("there")
    path = folder / f"x{ending}"
    unlisted = getattr(seen, "unlisted", "zero") == "missing"
    if ending.startswith(".tns") and seen.has_missing and not unlisted:
        with pytest.raises(pltf.PltfError, match="cannot store missing cells"):
            write_observation(seen, path, folder / "labels.csv")
        assert not list(folder.iterdir())
        return
    written = write_observation(seen, path, folder / "labels.csv")
    assert sorted(folder.iterdir()) == sorted(written)
    table = not ending.startswith((".tns", ".npz", ".nc"))
    index = ",".join(seen.dims or (f"axis{n}" for n in range(len(seen.shape)))) if table else None
    missing = "unlisted" if unlisted and ending not in (".npz", ".nc") else "nan"
    again = read(path, index, missing, "value" if table else None)
    if ending.startswith(".tns"):
        assert list(cells(again).values()) == list(cells(seen).values())
        assert again.shape == seen.shape
    else:
        assert cells(again) == cells(seen)
    if ending == ".npz":
        assert type(again) is type(seen)
        assert (again.dims, again.n_observed, again.dtype_name) == (seen.dims, seen.n_observed, seen.dtype_name)
        assert all(again.labels[dim] == seen.labels[dim] for dim in seen.labels)


def test_weeks_are_weeks_again(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("who,when\nann,2026-01-07\nbob,2026-01-20\n")
    assert here("convert", tmp_path / "a.csv", tmp_path / "a.npz", "-i", "who,when:week", "-q").code == 0
    seen = read(tmp_path / "a.npz")
    assert seen.labels["when"].names() == ["2026-01-05", "2026-01-12", "2026-01-19"]
    assert seen.labels["when"].bin == "week"


def test_a_npz_file_holds_the_arrays_of_the_data_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numpy 2.0 stores every keyword as an array, also those that are options of later versions."""
    genuine, given = np.savez_compressed, set[str]()

    def save(file: Any, **arrays: Any) -> None:
        given.update(arrays)
        genuine(file, **arrays)

    monkeypatch.setattr(np, "savez_compressed", save)
    (tmp_path / "a.csv").write_text("who,when,n\nann,2026-01-07,1\nbob,2026-01-20,2\n")
    assert here("convert", tmp_path / "a.csv", tmp_path / "a.npz", "-i", "who,when:week", "-q").code == 0
    listed = {
        "pltf",
        "dims",
        "labels.who",
        "labels.when",
        "bins.when",
        "cells",
        "values",
        "shape",
        "unlisted",
        "missing",
    }
    with np.load(tmp_path / "a.npz", allow_pickle=False) as held:
        assert set(held.files) == given == listed
        assert all(held[name].dtype.kind in "iufUM" for name in listed)


def test_python_objects_are_not_pickled_into_a_npz_file(tmp_path: Path) -> None:
    with pytest.raises(PltfError, match=r"a\.npz cannot store 'y': it has Python objects"):
        _save_arrays({"x": np.arange(3), "y": np.array([None])}, tmp_path / "a.npz")
    assert not (tmp_path / "a.npz").exists()


def test_what_a_table_cannot_say_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("who,film,stars\nann,up,3\nbob,up,0\n")
    read_as = ("-i", "who,film", "--value", "stars", "--missing", "unlisted")
    command = ("convert", tmp_path / "a.csv", tmp_path / "b.csv", *read_as)
    done = here(*command)
    assert "read it with --value value --missing unlisted; cells without a row are missing" in done.out
    assert (tmp_path / "b.csv").read_text() == "who,film,value\nann,up,3\nbob,up,0\n"


def test_a_dense_array_stays_one(tmp_path: Path) -> None:
    X = np.array([[1, 0], [5, 2]], dtype=np.int16)
    np.save(tmp_path / "a.npy", X)
    assert here("convert", tmp_path / "a.npy", tmp_path / "a.npz", "-i", "i,j", "-q").code == 0
    seen = read(tmp_path / "a.npz")
    assert isinstance(seen, DenseObservation)
    assert seen.values.dtype == np.int16
    assert here("convert", tmp_path / "a.npz", tmp_path / "a.nc", "-q").code == 0
    assert xr.open_dataset(tmp_path / "a.nc")["X"].dtype == np.int16


def test_nothing_large_is_made_of_a_list(tmp_path: Path) -> None:
    (tmp_path / "a.tns").write_text("# sizes 100000000 100000000\n1 1 3\n")
    assert "netCDF stores dense arrays" in here("convert", tmp_path / "a.tns", tmp_path / "a.nc").refusal
    assert "would lose 99,999,999 positions" in here("convert", tmp_path / "a.tns", tmp_path / "a.csv").refusal
    assert here("convert", tmp_path / "a.tns", tmp_path / "a.npz").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "a.tns"]


def test_cells_of_a_tns_file_are_asked_for_as_they_stand_in_it(tmp_path: Path) -> None:
    counts = np.outer([9, 1, 4], [5, 2, 7, 1])
    lines = [f"{i + 1} {j + 1} {n}" for (i, j), n in np.ndenumerate(counts)]
    (tmp_path / "a.tns").write_text("\n".join(lines))
    (tmp_path / "cells.csv").write_text("i,j\n1,1\n3,4\n")
    assert here("fit", tmp_path / "a.tns", "--nmf", 1, "-o", tmp_path / "run.nc").code == 0
    done = here("predict", tmp_path / "run.nc", "--cells", tmp_path / "cells.csv", "-o", tmp_path / "out.csv")
    assert done.code == 0
    fit, told = pltf.load(tmp_path / "run.nc"), pd.read_csv(tmp_path / "out.csv")
    assert isinstance(fit, pltf.Fit)
    assert told[["i", "j"]].values.tolist() == [[1, 1], [3, 4]]
    np.testing.assert_allclose(told["mean"], fit.mean()[[0, 2], [0, 3]], rtol=1e-6)
    for name in ("b.csv", "b.npz", "b.nc", "b.tns"):
        assert here("convert", tmp_path / "a.tns", tmp_path / name).code == 0
    assert pd.read_csv(tmp_path / "b.csv").iloc[0].tolist() == [1, 1, 45]
    assert (tmp_path / "b.tns").read_text().splitlines()[1:] == lines
    assert not (tmp_path / "b.tns.labels.csv").exists()
    again = here("fit", tmp_path / "b.npz", "--nmf", 1, "-o", tmp_path / "again.nc")
    assert again.code == 0
    second = pltf.load(tmp_path / "again.nc")
    assert isinstance(second, pltf.Fit)
    assert second.bound == fit.bound
    assert second.labels == fit.labels


@pytest.mark.extra("io")
@pytest.mark.parametrize("ending", [".npz", ".nc", ".parquet"])
def test_dates_keep_their_zone(ending: str, tmp_path: Path) -> None:
    moments = pd.date_range("2026-03-27 12:00", periods=5, freq="D", tz="Europe/Berlin")
    pd.DataFrame({"who": list("abcab"), "when": moments, "n": range(1, 6)}).to_parquet(tmp_path / "a.parquet")
    index = ("-i", "who,when:day")
    assert here("convert", tmp_path / "a.parquet", tmp_path / f"b{ending}", *index).code == 0
    fits = []
    for name in ("a.parquet", f"b{ending}"):
        more = index if name.endswith(".parquet") else ()
        assert here("fit", tmp_path / name, *more, "--nmf", 1, "-o", tmp_path / "run.nc", "--force").code == 0
        fits.append(pltf.load(tmp_path / "run.nc"))
    first, second = fits
    assert isinstance(first, pltf.Fit)
    assert isinstance(second, pltf.Fit)
    assert (second.labels["when"].bin, second.labels["when"].zone) == ("day", "Europe/Berlin")
    assert second.labels == first.labels
    asked = pd.DataFrame({"who": ["a"], "when": [pd.Timestamp("2026-03-28 23:30", tz="UTC")]})
    np.testing.assert_array_equal(second.mean(asked), second.mean(np.array([[0, 2]])))


def test_a_full_disk(tmp_path: Path) -> None:
    """HDF5 crashes when it cannot write."""
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((100, 100)))
    command = f"ulimit -f 20; {SCRIPT} convert a.npy b.nc"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert done.stderr.startswith("pltf: b.nc cannot be written: ")
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


@pytest.mark.parametrize("told", [{"bin": "week"}, {"bin": [1, 2]}, {"zone": "UTC"}, {"bin": 3, "zone": "Europe"}])
def test_what_other_programs_tell_of_an_axis(told: dict[str, Any], tmp_path: Path) -> None:
    array = xr.DataArray(np.ones((2, 3)), {"i": [5, 6], "t": pd.date_range("2026-01-01", periods=3)}, ("i", "t"))
    for dim, attrs in (("i", told), ("t", {"zone": "Europe"})):
        array[dim].attrs.update(attrs)
    array.to_dataset(name="X").to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    assert here("fit", tmp_path / "a.nc", "--nmf", 1, "-o", tmp_path / "run.nc").code == 0
    fit = pltf.load(tmp_path / "run.nc")
    assert isinstance(fit, pltf.Fit)
    assert [(one.bin, one.zone) for one in fit.labels.values()] == [(None, None), (None, None)]
