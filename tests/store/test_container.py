"""Files that are damaged, foreign or made up: one sentence each, and nothing is run."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import pltf
from pltf.store import container
from pltf.store.container import Box, read, write
from tests.store import X, change, change_about, labelled_fit

Edit = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "fit.nc"
    labelled_fit().save(path)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, whole: bytes) -> Path:
    """A file that was saved, for the test to spoil."""
    path = tmp_path / "fit.nc"
    path.write_bytes(whole)
    return path


def refused(path: Path, match: str) -> None:
    with pytest.raises(pltf.PltfError, match=match) as told:
        pltf.load(path)
    assert "\n" not in str(told.value)
    assert str(path) in str(told.value)


# -- boxes --------------------------------------------------------------------------------------


def test_what_is_put_into_boxes_comes_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    one = Box({"text": 'å"\n\0\ud800', "many": [1, 2.5, None, True, -np.inf], "large": 2**200, "number": np.int64(3)})
    one.put("f", np.asfortranarray(rng.random((3, 4))), ("i", "j"))
    one.put("t", rng.random((2, 3, 4)).transpose(2, 0, 1))
    one.put("rows", rng.random((8, 3))[::2], ("i2", "k"))
    one.put("none", np.empty((0, 2), dtype=np.uint8))
    one.put("single", np.array(0.1), ())
    one.put("packed", np.arange(100_000, dtype=np.uint32) % 7)
    write(tmp_path / "a.nc", "thing", {"": one, "two/three": Box({"x": 1})})
    assert (tmp_path / "a.nc").stat().st_size < 100_000
    kind, boxes = read(tmp_path / "a.nc")
    assert kind == "thing"
    assert boxes["two/three"].about == {"x": 1}
    assert boxes[""].about == {**one.about, "number": 3}
    for name, array in one.arrays.items():
        again = boxes[""].arrays[name]
        np.testing.assert_array_equal(array, again, strict=True)
        assert np.argsort(array.strides).tolist() == np.argsort(again.strides).tolist()


# -- damage -------------------------------------------------------------------------------------


def test_a_file_that_was_cut_short(path: Path, whole: bytes) -> None:
    for length in [*range(30), *range(30, len(whole), 997), *range(len(whole) - 40, len(whole))]:
        path.write_bytes(whole[:length])
        refused(path, "is not a file saved by pltf|is damaged or was not saved by pltf")


@settings(max_examples=100)
@given(at=st.floats(0, 1, exclude_max=True), by=st.integers(1, 255))
def test_a_file_with_a_wrong_byte(tmp_path_factory: pytest.TempPathFactory, whole: bytes, at: float, by: int) -> None:
    spoilt = bytearray(whole)
    spoilt[int(at * len(whole))] ^= by
    path = tmp_path_factory.getbasetemp() / "spoilt.nc"
    path.write_bytes(spoilt)
    refused(path, "is not a file saved by pltf|is damaged or was not saved by pltf")


def test_a_file_that_goes_on(path: Path, whole: bytes) -> None:
    path.write_bytes(whole + b"more")
    refused(path, "its checksum is missing or wrong")


# -- foreign files ------------------------------------------------------------------------------


class Poison:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def test_a_pickle_is_never_unpickled(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        (tmp_path / "fit.nc").write_bytes(pickle.dumps(Poison(victim), protocol))
        refused(tmp_path / "fit.nc", "is not a file saved by pltf")
    np.savez(tmp_path / "fit.npz", allow_pickle=True, x=np.array([Poison(victim)], dtype=object))
    refused(tmp_path / "fit.npz", "is not a file saved by pltf")
    pickle.loads(pickle.dumps(Poison(victim))).close()
    assert victim.exists()  # the poison works


def test_loading_needs_no_pickle(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("unpickled")

    for name in ("load", "loads", "Unpickler", "_load", "_loads", "_Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    assert isinstance(pltf.load(path), pltf.Fit)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.nc"
    refused(path, "^there is no file ")
    for content in (b"", b"\x89HDF", b"CDF\x01" + bytes(100), b"i,j,x\n0,1,3\n", b"\x89HDF\r\n\x1a\n", bytes(1000)):
        path.write_bytes(content)
        refused(path, "is not a file saved by pltf|is damaged or was not saved by pltf")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "b")
    refused(path, "is not a file saved by pltf")
    xr.Dataset({"x": ("i", np.arange(3))}).to_netcdf(path, engine="h5netcdf")
    refused(path, "its checksum is missing or wrong")
    container.sign(path)
    refused(path, "is not a file saved by pltf")
    with h5py.File(path, "w") as file:
        file["x"] = 1
        file.attrs["format"] = np.void(b"pltf")
    container.sign(path)
    refused(path, "is damaged or was not saved by pltf")
    refused(tmp_path, "path must be a file name, but .* is a folder")


# -- made up ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda about: about.update(method="mcmc"), "unknown method 'mcmc'"),
        (lambda about: about.update(method=["vb"]), "unknown method"),
        (lambda about: about.update(model="X[who,n,day] = A[who"), "expected"),
        (lambda about: about.update(model="X[who,n,day] = A[who,r] * B[n,r] * Q[day,r]"), "some factors are missing"),
        (lambda about: about.update(model=3), "the model must be text"),
        (lambda about: about.update(latent={"r": 10**15}), "invalid sizes"),
        (lambda about: about.update(latent={"r": -1}), "whole number"),
        (lambda about: about.update(latent={}), "has no size"),
        (lambda about: about["sizes"].update(who=10**12), "must have shape"),
        (lambda about: about["sizes"].update(who=-6), "invalid sizes"),
        (lambda about: about["sizes"].update(who="many"), "invalid literal"),
        (lambda about: about["sizes"].pop("n"), "'n'"),
        (lambda about: about.update(sizes=[1, 2]), "items"),
        (lambda about: about["posterior"]["random"].remove("A"), "some factors are missing"),
        (lambda about: about["posterior"]["points"].append("A"), "some factors are missing"),
        (lambda about: about["posterior"]["points"].append("Z"), "some factors are missing"),
        (lambda about: about["posterior"]["mass"].append("q"), "'q'"),
        (lambda about: about.update(posterior=None), "not subscriptable"),
        (lambda about: about.pop("posterior"), "'state'"),
        (lambda about: about.update(bound="high"), "could not convert"),
        (lambda about: about["priors"]["A"].update(shape=-1.0), "must be positive"),
        (lambda about: about["priors"]["A"].update(mean=None), r"'A\.prior\.mean'"),
        (lambda about: about["priors"]["A"].update(learn="all"), "learn must be"),
        (lambda about: about.update(seed="0"), "invalid seed: '0'"),
        (lambda about: about.update(converged=1), "invalid converged: 1"),
        (lambda about: about.update(rows=[{"restart": 0}]), "'bound'"),
        (lambda about: about.update(rows=[]), "one row per restart"),
        (lambda about: about["rows"][0].update(seconds="long"), "invalid seconds: 'long'"),
        (lambda about: about.update(n_observed={}), "'X'"),
        (lambda about: about["labels"]["who"].update(kind="float64"), "who has unsupported dtype object"),
        (lambda about: about["labels"]["who"].update(kind="V8"), "'V'"),
        (lambda about: about["labels"]["who"].update(kind="json"), "Expecting value"),
        (lambda about: about["labels"]["day"].update(bin="fortnight"), "must have 4 different labels"),
        (lambda about: about["labels"].update(r={"kind": "int64", "bin": None}), "'r'"),
        (lambda about: about.update(origin=7), "not iterable"),
        (lambda about: about.update(options=7), "not iterable"),
        (lambda about: about.clear(), "'model'"),
    ],
)
def test_what_is_told_of_a_fit_may_be_made_up(path: Path, edit: Edit, told: str) -> None:
    change_about(path, edit)
    refused(path, f"fit.nc is damaged or was not saved by pltf: .*{told}")


@pytest.mark.parametrize("text", ["", "[1]", "{", "null", "[" * 100_000, '{"model": ' + "9" * 9999 + "}"])
def test_texts_that_tell_nothing(path: Path, text: str) -> None:
    def edit(file: h5py.File) -> None:
        file["about.json"][()] = text

    change(path, edit)
    refused(path, "is damaged or was not saved by pltf")


def _put(name: str, array: Any) -> Callable[[h5py.File], None]:
    def edit(file: h5py.File) -> None:
        if name in file:
            del file[name]
        if array is not None:
            file[name] = array

    return edit


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (_put("A.scale", None), r"'A\.scale'"),
        (_put("A.scale", np.ones((6, 3))), r"A\.scale must have shape \(6, 2\), got \(6, 3\)"),
        (_put("A.scale", np.full((6, 2), np.nan)), r"A\.scale must hold finite numbers in float64"),
        (_put("A.scale", np.ones((6, 2), dtype=np.float32)), r"A\.scale must hold finite numbers in float64"),
        (_put("A.scale", np.ones((6, 2), dtype=complex)), "unsupported dtype complex"),
        (_put("A.scale", np.array([b"abc"] * 12).reshape(6, 2)), "unsupported dtype"),
        (_put("run.trace", np.ones((2, 2))), "reshape"),
        (_put("run.trace", np.array(1.0)), "unsized"),
        (_put("who", np.array(list("aabcde"), dtype=h5py.string_dtype())), "who must have 6 different labels"),
        (_put("n", np.arange(4)), r"n must have shape \(5,\), got \(4,\)"),
        (_put("pltf.data/X/above_zero", np.zeros(2, dtype=np.uint8)), "above_zero must have shape"),
        (_put("pltf.data/X/known", np.zeros(2, dtype=np.uint8)), "known must have shape"),
        (_put("pltf.data/X/values", np.ones(3)), "some non-zero cells have no value"),
        (_put("pltf.data/X/values", np.array([-1.0])), "values must be finite and non-negative"),
        (_put("pltf.data/X/about.json", None), "'storage'"),
        (_put("pltf.data", None), "'data/X'"),
        (_put("A.scale", h5py.SoftLink("/A.scale")), r"'A\.scale'"),
    ],
)
def test_arrays_may_be_made_up(path: Path, edit: Callable[[h5py.File], None], told: str) -> None:
    change(path, edit)
    refused(path, f"fit.nc is damaged or was not saved by pltf: .*{told}")


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ([[0, 0], [1, 9]], "cells must be inside the tensor"),
        ([[0, 0], [-1, 0]], "cells must be inside the tensor"),
        ([[0, 0], [0, 0]], "sorted and unique"),
        ([[1, 0], [0, 0]], "sorted and unique"),
        ([[0.0, 1.0], [0.0, 0.0]], "cells has unsupported dtype float64"),
        ([[0], [1]], "some cells have no value"),
    ],
)
def test_listed_cells_may_be_made_up(tmp_path: Path, cells: Any, told: str) -> None:
    path = tmp_path / "fit.nc"
    pltf.nmf(rank=1).fit(pltf.observe(([(0, 1), (2, 2)], [1.0, 2.0]), shape=(3, 3), missing=[(1, 1)])).save(path)
    change(path, _put("pltf.data/X/cells", np.array(cells)))
    refused(path, told)
    change(path, _put("pltf.data/X/cells", np.array([[0, 2], [1, 2]])))
    pltf.load(path)
    change(path, _put("pltf.data/X/missing", np.array([[9], [9]])))
    refused(path, "cells must be inside the tensor")


def test_a_format_to_come(path: Path) -> None:
    change(path, lambda file: file.attrs.modify("format_version", 3))
    refused(path, "has format 3, but this pltf reads up to 2: upgrade it")
    change(path, lambda file: file.attrs.create("format_version", "one"))
    refused(path, "is damaged or was not saved by pltf")
    change(path, lambda file: file.attrs.create("format_version", [1, 1]))
    refused(path, "is damaged or was not saved by pltf")
    change(path, lambda file: file.attrs.pop("format_version"))
    refused(path, "is damaged or was not saved by pltf")
    change(path, lambda file: file.attrs.create("format_version", 2))
    pltf.load(path)
    change(path, lambda file: file.attrs.modify("kind", "poem"))
    refused(path, "is damaged or was not saved by pltf: 'poem'")


def test_a_string_that_stands_for_many(path: Path) -> None:
    def edit(file: h5py.File) -> None:
        text = h5py.string_dtype()
        file.create_dataset("extra", (10**6,), dtype=text, fillvalue="A" * 60_000, chunks=(1000,))

    change(path, edit)
    refused(path, "it declares more data than it can contain")


def test_factors_below_zero(path: Path) -> None:
    def edit(file: h5py.File) -> None:
        file["A.scale"][...] = -3.0

    change(path, edit)
    refused(path, "scale must not be negative")


def test_arrays_larger_than_the_file_are_not_made(path: Path) -> None:
    def edit(file: h5py.File) -> None:
        del file["A.scale"]
        file.create_dataset("A.scale", (10**7, 10**7), chunks=(10**3, 10**3), compression="gzip", dtype=np.float64)

    change(path, edit)
    refused(path, "it declares more data than it can contain")


def test_groups_that_hold_each_other(path: Path) -> None:
    def edit(file: h5py.File) -> None:
        file["pltf.data/again"] = file["pltf.data"]
        file["round"] = h5py.SoftLink("/")

    change(path, edit)
    pltf.load(path)


def test_arrays_of_other_files_are_not_read(path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(np.ones(12).tobytes())

    def external(file: h5py.File) -> None:
        del file["A.scale"]
        file.create_dataset("A.scale", (6, 2), dtype=np.float64, external=[(str(secret), 0, 96)])

    def virtual(file: h5py.File) -> None:
        del file["A.scale"]
        layout = h5py.VirtualLayout((6, 2), dtype=np.float64)
        layout[:] = h5py.VirtualSource(str(secret), "x", shape=(6, 2))
        file.create_virtual_dataset("A.scale", layout)

    for edit in (external, virtual, _put("A.scale", h5py.ExternalLink("elsewhere.nc", "/A.scale"))):
        change(path, edit)
        refused(path, r"takes .A\.scale. from another file")


# -- disks --------------------------------------------------------------------------------------

FULL = """
import os, resource, signal, sys, warnings
import numpy as np, pltf
folder = sys.argv[1]
path = os.path.join(folder, "fit.nc")
fit = pltf.cp(rank=4).fit(np.ones((9, 8, 7)), max_iter=9, tol=0)
fit.save(path)
size = os.path.getsize(path)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for limit in (0, 100, 5000, size - 40, size - 1):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        fit.save(path)
    except pltf.PltfError as error:
        print(error)
    assert os.listdir(folder) == ["fit.nc"]
    with warnings.catch_warnings(record=True, action="always") as told:
        pltf.cp(rank=4).fit(np.ones((9, 8, 7)), max_iter=9, tol=0, checkpoint=os.path.join(folder, "c.nc"), every=0)
    print(len(told), told[-1].message)
    assert set(os.listdir(folder)) <= {"fit.nc", "c.nc"}
    if os.path.exists(os.path.join(folder, "c.nc")):
        os.remove(os.path.join(folder, "c.nc"))
assert pltf.load(path).bound == fit.bound
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of POSIX")
def test_a_full_disk(tmp_path: Path) -> None:
    """HDF5 would crash while it closes a file that it cannot write."""
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 10
    for saving, keeping in zip(lines[::2], lines[1::2], strict=True):
        assert re.search(r"fit\.nc cannot be written: File too large$", saving)
        assert re.search(r"^\d+ .*c\.nc cannot be written: File too large; continuing without a checkpoint$", keeping)


def test_the_text_of_a_file_is_plain(path: Path) -> None:
    with h5py.File(path) as file:
        about = json.loads(file["about.json"].asstr()[()])
    assert about["model"] == "X[who,n,day] = A[who,r] * B[n,r] * C[day,r]"
    assert about["priors"]["A"]["learn"] == "mean"
    assert about["seed"] == 0
    assert X.shape == tuple(about["sizes"][index] for index in ("who", "n", "day"))
    assert h5py.is_hdf5(path)
