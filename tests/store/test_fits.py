"""Fits that come back from a file as they were."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5netcdf
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import pltf
from pltf.data.split import HeldOut
from pltf.fit import resumable
from tests.store import COUPLED, X, Y, assert_same, labelled_fit, quietly
from tests.strategies import Case, cases

NAMES = ["about", "trace", "r", "data", "values", "mean", "sd", "held_out", "search", "checkpoint", "run", "cell", "λ"]
NAMES += ["日本", "Ångström", "_", "U", "U_sd", "json", "pltf", "kind", "group", "Dimid", "dtype", "coordinates"]
LABELS: list[Any] = [
    st.text(max_size=5),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    *(st.builds(np.datetime64, st.integers(-(2**40), 2**40), st.just(unit)) for unit in ("s", "ms", "us", "ns")),
]


def saved(fit: pltf.Fit, folder: Path) -> pltf.Fit:
    fit.save(folder / "fit.nc")
    again = pltf.load(folder / "fit.nc")
    assert isinstance(again, pltf.Fit)
    assert not [one for one in folder.iterdir() if one.name.endswith(".part")]
    return again


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fits")


# -- any fit ------------------------------------------------------------------------------------


def renamed(case: Case, names: list[str]) -> Case:
    """The same problem with other names: factors and tensors share theirs with indices, where that is allowed."""
    found = dict.fromkeys(re.findall(r"\w+(?=\[)", case.model.text))
    arrays = dict(zip(found, names, strict=False))
    indices = dict(zip(case.sizes, reversed(names), strict=False))
    text = re.sub(r"(\w+)\[", lambda m: f"{arrays[m[1]]}[", case.model.text)
    text = re.sub(r"\[(.*?)\]", lambda m: f"[{','.join(indices[i] for i in m[1].split(',') if i)}]", text)

    def turned(by_name: Mapping[str, Any]) -> dict[str, Any]:
        return {arrays[name]: one for name, one in by_name.items()}

    model = pltf.Model(text, **{indices[i]: size for i, size in case.model.sizes.items()})
    return Case(model, turned(case.data), turned(case.masks), turned(case.priors), turned(case.init))


def stored(draw: st.DrawFn, case: Case) -> dict[str, Any]:
    """The data in one of the ways in which they may come."""
    how = draw(st.sampled_from(["dense", "fortran", "listed", "ratings"]))
    found: dict[str, Any] = {}
    labels: dict[str, Any] = {}
    for name, indices in case.model.observed.items():
        x, mask = case.data[name], case.masks[name]
        if how in ("dense", "fortran"):
            x = np.where(mask, x, np.nan)
            for index in indices:
                if index not in labels and draw(st.booleans()):
                    values = draw(st.sampled_from(LABELS))
                    size = case.sizes[index]
                    some = draw(st.lists(values, unique=True, min_size=0, max_size=size))
                    if len(some) == size:
                        labels[index] = some
            here = {i: labels[i] for i in indices if i in labels}
            found[name] = pltf.observe(np.asarray(x, order="F" if how == "fortran" else "C"), dims=indices, labels=here)
        elif how == "listed":
            at = np.argwhere(mask & (x > 0))
            found[name] = pltf.observe((at, x[tuple(at.T)]), shape=x.shape, missing=np.argwhere(~mask))
        else:
            found[name] = pltf.observe((np.argwhere(mask), x[mask]), shape=x.shape, unlisted="missing")
    return found


@st.composite
def problems(draw: st.DrawFn) -> tuple[pltf.Model, dict[str, Any], dict[str, Any]]:
    """A model, data and options of a short fit."""
    case = renamed(draw(cases()), draw(st.permutations(NAMES)))
    method = draw(st.sampled_from(["vb", "vb", "em", "map"]))
    learn = draw(st.sampled_from([None, "mean", "both"])) if method == "vb" else None
    options: dict[str, Any] = {"method": method, "accelerate": draw(st.booleans()), "tol": 0, "max_iter": 9}
    free = list(case.init)
    if len(free) > 1 and draw(st.booleans()):
        options["fixed"] = {free[0]: case.init[free.pop(0)]}
    if learn is not None:
        options["prior"] = {a: pltf.Gamma(0.5, 2.0, learn=learn, tie=draw(TIES)) for a in free}
    elif method == "vb":
        options["prior"] = {a: case.priors[a] for a in free}
    elif method == "map":  # with shapes below 1 all may end at zero, which is refused
        options["prior"] = {a: pltf.Gamma(1 + case.init[a], 2.0) for a in free}
    if draw(st.booleans()):
        options["init"] = {a: case.init[a] for a in free}
    options["dtype"] = draw(st.sampled_from(["float64", "float64", "float32"]))
    return case.model, stored(draw, case), options


TIES = st.sampled_from(["factor", "component"])


@pytest.mark.slow
@settings(max_examples=30)
@given(problem=problems())
def test_any_fit_comes_back_to_the_bit(folder: Path, problem: tuple[pltf.Model, Any, Any]) -> None:
    model, data, options = problem
    fit = quietly(model.fit, data, **options)
    again = saved(fit, folder)
    assert_same(fit, again)
    for name in model.observed:
        np.testing.assert_array_equal(fit.mean(of=name), again.mean(of=name))
        np.testing.assert_array_equal(fit.prob(of=name, draws=5), again.prob(of=name, draws=5))
    copied = pickle.loads(pickle.dumps(fit))
    further = [quietly(model.fit, data, **{**options, "init": one, "max_iter": 3}) for one in (copied, again)]
    assert_same(*further, seconds=False)
    with xr.open_datatree(folder / "fit.nc", decode_times=False) as tree:
        np.testing.assert_array_equal(tree["run.trace"], fit.trace)
        for a, indices in model.factors.items():
            for key in (f"{a}.shape", f"{a}.scale") if a in fit.C else (f"{a}.mean",):
                assert set(tree[key].dims) == set(indices)
            mean = tree[f"{a}.shape"] * tree[f"{a}.scale"] if a in fit.C else tree[f"{a}.mean"]
            np.testing.assert_array_equal(mean.transpose(*indices), fit.factors[a].mean)


# -- what people do with them -------------------------------------------------------------------


def test_everything_that_is_asked_of_a_loaded_fit_is_as_it_was(tmp_path: Path) -> None:
    fit = labelled_fit()
    again = saved(fit, tmp_path)
    assert_same(fit, again)
    for ask in (pltf.Fit.top, pltf.Fit.components, lambda one: one.restarts, lambda one: one.top(3, "zero")):
        pd.testing.assert_frame_equal(ask(fit), ask(again), check_exact=True)
    assert repr(fit) == repr(again)
    assert fit.effective_rank == again.effective_rank
    assert fit.to_xarray().identical(again.to_xarray())
    at = pd.DataFrame({"who": ["f", "a"], "n": [-1, 9], "day": ["2026-11-09", "2026-11-30"]})
    np.testing.assert_array_equal(fit.sample(3, at), again.sample(3, at))
    np.testing.assert_array_equal(fit.var(at), again.var(at))
    with pytest.raises(ValueError, match="read-only"):
        again.C["A"][0] = 1


@pytest.mark.parametrize("coupled", [False, True])
def test_new_rows_are_folded_into_a_loaded_fit_as_into_the_fit(tmp_path: Path, coupled: bool) -> None:
    model: pltf.Model = COUPLED if coupled else pltf.cp(rank=2)
    fit = model.fit({"X": X, "Y": Y} if coupled else X, prior=pltf.Gamma(0.5, 2.0, learn="mean", tie="component"))
    again = saved(fit, tmp_path)
    new = [one.fold_in(X[:2] + 1, "i") for one in (fit, again)]
    assert_same(*new, seconds=False)
    assert_same(new[0], saved(new[0], tmp_path))


def test_only_the_fit_itself_goes_on_as_if_there_had_been_no_break(tmp_path: Path) -> None:
    """Its copies have its posterior, and find the pace again."""
    model = pltf.cp(rank=3)
    fit, whole = (model.fit(X, tol=0, max_iter=sweeps) for sweeps in (40, 70))
    assert resumable(fit).pace.trail is not None
    assert_same(model.fit(X, tol=0, max_iter=30, init=fit), replace(whole, rows=whole.rows), seconds=False)
    for other in (saved(fit, tmp_path), pickle.loads(pickle.dumps(fit)), copy.copy(fit), replace(fit, seed=0)):
        assert resumable(other).pace.trail is None
        gone_on = model.fit(X, tol=0, max_iter=30, init=other)
        assert gone_on.trace[:40].tolist() == fit.trace.tolist()
        assert (np.diff(gone_on.trace[39:]) >= 0).all()
        assert gone_on.bound == pytest.approx(whole.bound, rel=1e-4)


def test_a_fit_that_has_converged_lets_its_steps_go() -> None:
    model = pltf.cp(rank=3)
    fit = model.fit(X, tol=1e-7, max_iter=10_000)
    assert fit.converged
    assert resumable(fit).pace.trail is None
    more = model.fit(X, tol=1e-9, max_iter=10_000, init=fit)
    assert more.converged
    assert more.trace[: fit.n_iter].tolist() == fit.trace.tolist()
    assert more.bound >= fit.bound


def test_shapes_of_priors_are_learned_on(tmp_path: Path) -> None:
    prior = pltf.Gamma(learn="both", tie="index:i")
    model = pltf.Model("X[i,j,k] = A[i,r] * B[i,j,r] * C[i,k,r]", r=2)
    fit = model.fit(X, prior=prior, tol=0, max_iter=25)
    again = saved(fit, tmp_path)
    assert_same(fit, again)
    more = model.fit(X, prior=prior, tol=0, max_iter=5, init=again)
    assert more.trace[:25].tolist() == fit.trace.tolist()
    assert not np.array_equal(more.priors["A"].shape, fit.priors["A"].shape)


def test_a_fit_of_the_command_line_keeps_its_cells_and_its_origin(tmp_path: Path) -> None:
    held = HeldOut(np.array([[0, 1, 0], [5, 4, 3]]), np.array([3.0, 0.0]), sampled=True)
    fit = replace(pltf.cp(rank=1).fit(X), held_out=held, origin={"file": "a.csv", "pltf": "0.0"})
    again = saved(fit, tmp_path)
    assert again.held_out is not None
    np.testing.assert_array_equal(again.held_out.cells, held.cells, strict=True)
    np.testing.assert_array_equal(again.held_out.values, held.values, strict=True)
    assert again.held_out.sampled
    assert again.origin["file"] == "a.csv"
    assert again.origin["pltf"] == "0.0"
    assert {"saved", "python", "numpy", "scipy", "numba"} < set(again.origin)
    assert saved(again, tmp_path).origin == again.origin
    none = HeldOut(np.empty((0, 3), dtype=np.int64), np.empty(0))
    assert saved(replace(fit, held_out=none), tmp_path).held_out is not None


def test_tensors_without_a_count_and_bits_without_values(tmp_path: Path) -> None:
    zeros = [np.zeros((3, 4)), pltf.observe((np.empty((0, 2), dtype=int), []), shape=(3, 4))]
    for data in zeros:
        fit = pltf.nmf(rank=1).fit(data)
        assert_same(fit, saved(fit, tmp_path))
    fit = pltf.cp(rank=1).fit(X)
    bits = replace(fit, patterns={"X": replace(fit.patterns["X"], values=None)})  # type: ignore[type-var]
    assert saved(bits, tmp_path).patterns["X"].values is None  # type: ignore[attr-defined]


def test_tensors_beyond_any_machine_integer(tmp_path: Path) -> None:
    sizes = {f"i{n}": 2000 for n in range(7)}
    model = pltf.Model(f"X[{','.join(sizes)}] = {' '.join(f'F{n}[i{n},r]' for n in range(7))}", r=1)
    at = np.random.default_rng(0).integers(0, 2000, (30, 7))
    fit = model.fit(pltf.observe((at, np.ones(30)), shape=tuple(sizes.values())), max_iter=3, tol=0)
    again = saved(fit, tmp_path)
    assert_same(fit, again)
    assert again.n_observed["X"] == 2000**7


# -- labels -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        ["", "a", " a", "a ", "nan", "\n"],
        pd.Index(["a\0b", "a", "\ud800", "\\u0000", '"', "\0"], dtype=object),
        ["x" * 70_000, "y"],
        [True, False],
        [False, True],
        [1.5, -2.0, 1e300, 5e-324, -0.0],
        [-5, 3, 2**62, -(2**63)],
        np.array([3, 1], dtype=np.int8),
        pd.DatetimeIndex(np.array(["0001-01-01", "9000-01-01", "1970-01-01"], dtype="M8[us]")),
        np.array(["2262-04-12", "1677-09-20"], dtype="datetime64[s]"),
        np.array(["2021-05-05T01:02:03.123456789", "2020-01-01"], dtype="datetime64[ns]"),
        pd.date_range("2026-01-01", periods=3, tz="Europe/Istanbul"),
        pd.Categorical(["b", "a", "c"], categories=["c", "b", "a"]),
        pd.period_range("2020", "2022", freq="Y"),
    ],
    ids=str,
)
def test_labels_come_back_with_their_type_and_in_their_order(tmp_path: Path, labels: Any) -> None:
    seen = pltf.observe(np.ones((len(labels), 2)), dims=["i", "j"], labels={"i": labels})
    fit = pltf.nmf(rank=1).fit(seen)
    again = saved(fit, tmp_path)
    assert_same(fit, again)
    assert fit.top(1, "all")["i"][0] == again.top(1, "all")["i"][0]
    assert_same(again, saved(again, tmp_path))
    with xr.open_dataset(tmp_path / "fit.nc") as data:  # whatever the labels, xarray can open it
        assert data.sizes["i"] == len(labels)


def test_xarray_knows_labels_too(tmp_path: Path) -> None:
    labelled_fit().save(tmp_path / "fit.nc")
    with xr.open_dataset(tmp_path / "fit.nc") as data:
        assert data["who"].values.tolist() == list("abcdef")
        assert data["day"].values[1] == np.datetime64("2026-11-16")
        mean = data["A.shape"] * data["A.scale"]
        assert float(mean.sel(who="b", r=1)) == labelled_fit().factors["A"].mean[1, 1]
        np.testing.assert_array_equal(data["r.mass"], labelled_fit().mass["r"])
    with h5netcdf.File(tmp_path / "fit.nc") as file:
        assert file.attrs["format"] == "pltf"
        assert file["pltf.data/X/values"].shape == (int((X > 0).sum()),)


def test_bins_of_dates_are_kept(tmp_path: Path) -> None:
    events = pd.DataFrame({"when": pd.date_range("2026-01-01", periods=40, freq="5D"), "who": list("abcd") * 10})
    for bin in ("week", "month", "weekday", "hourofday"):
        seen = pltf.observe(events, dims={f"when:{bin}": "when", "who": "who"}, count=True)
        fit = pltf.Model("X[when,who] = A[when,r] * B[who,r]", r=1).fit(seen)
        again = saved(fit, tmp_path)
        assert_same(fit, again)
        assert again.labels["when"].bin == bin
        at = pd.DataFrame({"when": ["2026-01-08"], "who": ["b"]})
        np.testing.assert_array_equal(fit.mean(at), again.mean(at))


# -- writing ------------------------------------------------------------------------------------


def test_a_file_is_replaced_only_by_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "fit.nc"
    fit = pltf.nmf(rank=1).fit(np.ones((2, 3)))
    fit.save(path)
    before = path.read_bytes()
    monkeypatch.setattr("pltf.store.container.sign", lambda path: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(pltf.PltfError, match=r"fit\.nc cannot be written: No space left"):
        fit.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.setattr("pltf.store.container.sign", lambda path: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(pltf.PltfError, match=r"fit\.nc cannot be written: out of memory"):
        fit.save(path)
    monkeypatch.undo()
    pltf.nmf(rank=2).fit(np.ones((2, 3))).save(path)
    assert pltf.load(path).model.sizes == {"r": 2}  # type: ignore[union-attr]


@pytest.mark.parametrize("path", [None, 3, "", "a\0b", b"fit.nc", ["fit.nc"]])
def test_what_is_no_path_is_told_in_a_sentence(path: Any) -> None:
    for call in (pltf.nmf(rank=1).fit(np.ones((2, 3))).save, pltf.load):
        with pytest.raises(pltf.PltfError, match=r"^path must be a file name, got"):
            call(path)


def test_folders_that_are_not_there(tmp_path: Path) -> None:
    fit = pltf.nmf(rank=1).fit(np.ones((2, 3)))
    with pytest.raises(pltf.PltfError, match=r"fit\.nc cannot be written: No such file or directory"):
        fit.save(tmp_path / "nowhere" / "fit.nc")
    with pytest.raises(pltf.PltfError, match="is a folder"):
        fit.save(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(pltf.PltfError, match="cannot be written: Not a directory"):
        fit.save(tmp_path / "file" / "fit.nc")
