"""Fits that are broken off and gone on with: the same bits as without a break."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pltf
from pltf.engines import ways
from pltf.inference.run import Sweep
from pltf.store import container
from pltf.store.checkpoint import FitCheckpoint
from tests.store import COUPLED, X, Y, assert_same, change_about, quietly

CP = pltf.cp(rank=2)
FILES = Path(__file__).parents[1] / "files"
FULL = np.nan_to_num(X)
AT = np.argwhere(FULL > 0)
LISTED = pltf.observe((AT, FULL[tuple(AT.T)]), shape=X.shape, missing=np.argwhere(np.isnan(X)))
RATINGS = pltf.observe((AT, FULL[tuple(AT.T)]), shape=X.shape, unlisted="missing")
BOTH = {"X": X, "Y": Y}
FIXED = {"A": np.linspace(0.1, 2, 12).reshape(6, 2)}


@cache
def first_fit() -> pltf.Fit:
    return CP.fit(X, tol=0, max_iter=15)


# Model, data and options; options that hold a fit are made when they are asked for.
PROBLEMS: dict[str, tuple[pltf.Model, Any, dict[str, Any] | Callable[[], dict[str, Any]]]] = {
    "vb": (CP, X, {"restarts": 3}),
    "em": (CP, X, {"method": "em", "restarts": 2}),
    "map": (CP, X, {"method": "map", "prior": pltf.Gamma(2.0, 3.0), "restarts": 2}),
    "learned shapes": (CP, X, {"prior": pltf.Gamma(learn="both", tie="component")}),
    "array priors": (CP, X, {"prior": {"A": pltf.Gamma(np.full((6, 1), 0.3), np.ones(2))}}),
    "plain": (CP, X, {"accelerate": False, "tol": 0, "max_iter": 20, "restarts": 2}),
    "float32": (CP, X, {"dtype": "float32", "tol": 1e-4, "restarts": 2}),
    "init": (CP, X, lambda: {"init": first_fit()}),
    "arrays": (CP, X, lambda: {"init": {a: first_fit().factors[a].mean for a in "ABC"}}),
    "random": (CP, X, {"init": "random", "seed": 5}),
    "fixed": (CP, X, {"fixed": FIXED}),
    "coupled": (COUPLED, BOTH, {}),
    "fortran": (pltf.tucker(ranks=(2, 2, 2)), np.asfortranarray(X), {"restarts": 2, "max_iter": 15, "tol": 0}),
    "train": (pltf.Model("ia,ajb,bk->ijk", a=2, b=2), X.transpose(2, 0, 1), {"max_iter": 15, "tol": 0}),
    "listed": (CP, LISTED, {}),
    "ratings": (pltf.tucker(ranks=(2, 2, 2)), RATINGS, {"max_iter": 15, "tol": 0}),
    "no latent": (pltf.Model("X[i,j,k] = A[i] * B[j,k] * S[]"), X, {"restarts": 2}),
    "threads": (CP, X, {"threads": 1}),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_broken_off_at_some_sweeps(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the file after a sweep, gone on with."""
    model, data, given = PROBLEMS[name]
    options = given() if callable(given) else given
    sweeps = list[Sweep]()
    whole = quietly(model.fit, data, callback=sweeps.append, **options)
    moments = {1, len(sweeps) // 3, len(sweeps) // 2, len(sweeps) - 2}
    path, kept, done = tmp_path / "run.nc", list[bytes](), 0

    def take(sweep: Sweep) -> None:
        nonlocal done
        done += 1
        if path.exists() and done - 1 in moments:
            kept.append(path.read_bytes())

    monkeypatch.setattr(FitCheckpoint, "due", lambda self: done in moments)
    kept_all = quietly(model.fit, data, checkpoint=path, callback=take, **options)
    assert_same(whole, kept_all, seconds=False)
    assert len(set(kept)) >= 3
    monkeypatch.undo()
    for content in dict.fromkeys(kept):
        path.write_bytes(content)
        with pytest.raises(
            pltf.PltfError, match="a checkpoint of a fit that has not ended: continue it with resume=True"
        ):
            pltf.load(path)
        assert_same(whole, quietly(model.fit, data, checkpoint=path, resume=True, **options), seconds=False)
        assert os.listdir(tmp_path) == ["run.nc"]
    loaded = pltf.load(path)
    assert isinstance(loaded, pltf.Fit)
    assert_same(whole, loaded, seconds=False)


class Break(Exception):
    """Of a callback."""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["vb", "em"])
def test_broken_off_again_and_again(tmp_path: Path, method: str) -> None:
    """By a callback that fails in each run at the second sweep, so that each run adds one."""
    options: dict[str, Any] = {"method": method, "restarts": 2, "tol": 0, "max_iter": 14}
    whole, path = CP.fit(X, **options), tmp_path / "run.nc"
    runs = 0
    while runs < 100:
        left, runs = 2, runs + 1

        def fail(sweep: Sweep) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise Break

        try:
            fit = CP.fit(X, callback=fail, checkpoint=path, every=0, resume=True, **options)
            break
        except Break:
            pass
    assert runs > 26
    assert_same(whole, fit, seconds=False)
    assert fit.seconds > 0


def test_a_fit_that_has_ended_is_given_back_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run.nc"
    fit = CP.fit(X, checkpoint=path)
    content = path.read_bytes()

    def never(sweep: Sweep) -> None:
        raise AssertionError

    assert_same(fit, CP.fit(X, checkpoint=path, resume=True, callback=never))
    assert path.read_bytes() == content
    loaded = pltf.load(path)
    assert isinstance(loaded, pltf.Fit)
    assert_same(fit, loaded)


def test_a_seed_that_nobody_gave_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.nc"

    def fail(sweep: Sweep) -> None:
        if sweep.n_iter == 5:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        CP.fit(X, seed=None, checkpoint=path, every=0, callback=fail)
    fit = CP.fit(X, seed=None, checkpoint=path, resume=True)
    assert_same(fit, CP.fit(X, seed=fit.seed), seconds=False)
    assert CP.fit(X, seed=None, checkpoint=path, resume=True).seed == fit.seed


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    numbers = {"tol": np.float32(1e-3), "max_iter": np.int64(300), "seed": np.uint8(3), "restarts": np.int32(2)}
    for _ in range(2):
        CP.fit(X, checkpoint=tmp_path / "run.nc", every=np.int64(0), resume=np.True_, **numbers)  # type: ignore[arg-type]


# -- time ---------------------------------------------------------------------------------------


def test_it_is_kept_every_so_many_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, written = 0.0, list[float]()
    monkeypatch.setattr("pltf.store.checkpoint.time.monotonic", lambda: now)
    monkeypatch.setattr("pltf.store.checkpoint.write", lambda *_: written.append(now))

    def tick(sweep: Sweep) -> None:
        nonlocal now
        now += 1

    CP.fit(X, tol=0, max_iter=20, checkpoint=tmp_path / "run.nc", every=6, callback=tick)
    assert written == [6, 12, 18]
    written.clear()
    CP.fit(X, tol=0, max_iter=20, checkpoint=tmp_path / "other.nc", callback=tick)
    assert not written


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"every": -1}, "every must be a number of seconds of at least 0, got -1"),
        ({"every": "often"}, "every must be a number of seconds of at least 0, got 'often'"),
        ({"every": True}, "every must be a number of seconds of at least 0, got True"),
        ({"every": float("nan")}, "every must be a number of seconds of at least 0, got nan"),
        ({"every": float("inf")}, "every must be a number of seconds of at least 0, got inf"),
        ({"every": None}, "every must be a number of seconds of at least 0, got None"),
        ({"resume": 1}, "resume must be True or False, got 1"),
        ({"resume": True}, "resume=True needs checkpoint=, the file to resume from"),
        ({"checkpoint": 3}, "checkpoint must be a file name, got 3"),
        ({"checkpoint": ""}, "checkpoint must be a file name, got ''"),
        ({"checkpoint": "."}, r"checkpoint must be a file name, but \. is a folder"),
        ({"checkpoint": "no/where.nc"}, "checkpoint must be in an existing folder, but no does not exist"),
    ],
)
def test_arguments_that_make_no_sense(options: dict[str, Any], told: str) -> None:
    for call in (CP.fit, lambda X, **more: pltf.select(CP, X, **more)):
        with pytest.raises(pltf.PltfError, match=f"^{told}$"):
            call(X, **options)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A checkpoint of a fit in the middle."""
    path = tmp_path_factory.mktemp("kept") / "run.nc"

    def fail(sweep: Sweep) -> None:
        if sweep.n_iter == 5:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        CP.fit(X, checkpoint=path, every=0, callback=fail, restarts=2)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"seed": 1}, r"a different seed \(0 there, 1 here\)"),
        ({"restarts": 3}, r"a different restarts \(2 there, 3 here\)"),
        ({"tol": 1e-3}, r"a different tol \(1e-06 there, 0\.001 here\)"),
        ({"max_iter": 9}, r"a different max_iter \(2000 there, 9 here\)"),
        ({"method": "em"}, r"a different method \(vb there, em here\)"),
        ({"prior": pltf.Gamma(0.5, 1.0)}, "a different prior"),
        ({"prior": pltf.Gamma(0.5, np.full((1, 2), 10.0), learn="mean", tie="component")}, "a different prior"),
        ({"init": "random"}, r"a different init \(prior there, random here\)"),
        ({"fixed": FIXED}, "a different (prior|fixed)"),
        ({"dtype": "float32"}, r"a different dtype \(float64 there, float32 here\)"),
        ({"accelerate": False}, r"a different accelerate \(True there, False here\)"),
        ({"X": X + 1}, "different data"),
        ({"X": np.nan_to_num(X)}, "different data"),
        ({"X": pltf.observe(X, dims=list("ijk"), labels={"i": list("abcdef")})}, "different data"),
        ({"X": LISTED}, "different data"),
        ({"model": pltf.cp(rank=3)}, r"a different model \(Model\(.*r=2\) there, Model\(.*r=3\) here\)"),
    ],
)
def test_another_call_does_not_go_on(kept: bytes, tmp_path: Path, options: dict[str, Any], told: str) -> None:
    path = tmp_path / "run.nc"
    path.write_bytes(kept)
    model = options.pop("model", CP)
    call = {"X": X, "restarts": 2, "checkpoint": path, "resume": True} | options
    with pytest.raises(pltf.PltfError, match=rf"run\.nc was started with {told}: it cannot be resumed$"):
        model.fit(**call)
    assert path.read_bytes() == kept


def test_files_that_are_no_checkpoint_of_this(kept: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.nc"
    path.write_bytes(kept)
    with pytest.raises(pltf.PltfError, match=r"run\.nc already exists: resume from it with resume=True, or remove it$"):
        CP.fit(X, checkpoint=path)
    with pytest.raises(pltf.PltfError, match=r"run\.nc is the fit of a different call$"):
        pltf.select(CP, X, r=[1, 2], checkpoint=path, resume=True)
    path.write_bytes(kept[:-9])
    with pytest.raises(pltf.PltfError, match="its checksum is missing or wrong"):
        CP.fit(X, checkpoint=path, resume=True)
    first_fit().save(path)
    with pytest.raises(pltf.PltfError, match=r"run\.nc is not a checkpoint$"):
        CP.fit(X, checkpoint=path, resume=True)
    path.write_text("notes of mine")
    with pytest.raises(pltf.PltfError, match="is not a file saved by pltf"):
        CP.fit(X, checkpoint=path, resume=True)
    assert path.read_text() == "notes of mine"


@pytest.mark.parametrize(
    ("group", "edit"),
    [
        ("pltf.checkpoint", lambda about: about.pop("identity")),
        ("pltf.checkpoint", lambda about: about["identity"].update(seed="0")),
        ("pltf.checkpoint", lambda about: about.update(rows=[{}])),
        ("pltf.going", lambda about: about["run"].update(n_swept=None)),
        ("pltf.going", lambda about: about["state"]["pace"].update(trail={"before": ["A"], "pairs": 9})),
        ("pltf.going", lambda about: about["state"]["E"].append("Z")),
        ("pltf.going", lambda about: about["state"]["L"].remove("A")),
        ("pltf.going", lambda about: about.pop("priors")),
    ],
)
def test_a_checkpoint_may_be_made_up(
    kept: bytes, tmp_path: Path, group: str, edit: Callable[[dict[str, Any]], None]
) -> None:
    path = tmp_path / "run.nc"
    path.write_bytes(kept)
    change_about(path, edit, group)
    with pytest.raises(pltf.PltfError, match="is damaged or was not saved by pltf"):
        CP.fit(X, restarts=2, seed=None, checkpoint=path, resume=True)


# -- disks that fail ----------------------------------------------------------------------------


def test_a_folder_that_goes_away_costs_no_work(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    def remove(sweep: Sweep) -> None:
        if sweep.n_iter == 3:
            (folder / "run.nc").unlink()
            folder.rmdir()

    with warnings.catch_warnings(record=True, action="always") as told:
        fit = CP.fit(X, tol=0, max_iter=6, checkpoint=folder / "run.nc", every=0, callback=remove)
    assert_same(fit, CP.fit(X, tol=0, max_iter=6), seconds=False)
    assert len(told) == 5  # of sweeps 3 to 6, and of the end
    for one in told:
        assert one.category is RuntimeWarning
        assert str(one.message).endswith(
            "run.nc cannot be written: No such file or directory; continuing without a checkpoint"
        )


def test_what_was_left_of_a_write_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".run.nc.0123456789abcdef.part").write_bytes(b"half a file")
    CP.fit(X, checkpoint=tmp_path / "run.nc")
    assert os.listdir(tmp_path) == ["run.nc"]


# -- killed -------------------------------------------------------------------------------------

KILLED = """
import sys, time
from pathlib import Path
import numpy as np
import pltf
from pltf.store import container
from pltf.store.checkpoint import FitCheckpoint

def slowly(path, content):  # so that many a kill comes in the middle
    with path.open("wb") as file:
        for part in range(4):
            size = len(content) // 4 + 1
            file.write(content[part * size : (part + 1) * size])
            file.flush()
            time.sleep(0.03)

def tell(sweep):
    print("going", flush=True)

Path.write_bytes = slowly
X = np.load(sys.argv[1])
pltf.cp(rank=3).fit(X, restarts=3, tol=1e-8, checkpoint=sys.argv[2], every=0, resume=True, callback=tell)
print("done", flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
def test_killed_in_the_middle_of_writes(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    data = rng.poisson(2.0, (12, 11, 10))
    np.save(tmp_path / "X.npy", data)
    path, left = tmp_path / "out" / "run.nc", 0
    path.parent.mkdir()
    for kills in range(40):
        if left and kills >= 5:
            break
        command = [sys.executable, "-c", KILLED, str(tmp_path / "X.npy"), str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "going\n"
            time.sleep(rng.uniform(0.1, 0.7))
            child.send_signal(signal.SIGKILL)
        left += bool(list(path.parent.glob(".run.nc.*.part")))
        if path.exists():
            assert container.read(path)
    fit = pltf.cp(rank=3).fit(data, restarts=3, tol=1e-8, checkpoint=path, resume=True)
    assert_same(pltf.cp(rank=3).fit(data, restarts=3, tol=1e-8), fit, seconds=False)
    assert os.listdir(path.parent) == ["run.nc"]
    assert left, "no kill came in the middle of a write"


def test_a_checkpoint_of_version_0_1_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "kept.nc"
    path.write_bytes((FILES / "checkpoint-1.nc").read_bytes())
    data = np.arange(30.0).reshape(6, 5) % 7
    data[1, 2] = np.nan
    options: dict[str, Any] = {"max_iter": 30, "tol": 0, "seed": 3, "prior": pltf.Gamma(0.5, 2.0)}
    sweeps = list[Sweep]()
    resumed = pltf.nmf(rank=2).fit(data, checkpoint=path, resume=True, callback=sweeps.append, **options)
    assert 20 <= len(sweeps) < 30  # the others were kept
    np.testing.assert_allclose(resumed.trace, pltf.nmf(rank=2).fit(data, **options).trace, rtol=1e-9)


def test_a_fit_is_resumed_the_way_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine may have less memory, and its plan would choose otherwise."""
    counts = (np.random.default_rng(0).random((60, 50, 40)) < 0.02).astype(float)
    monkeypatch.setattr(ways, "NOTICEABLE", 0.0)
    whole = pltf.cp(rank=3).fit(counts, max_iter=12, tol=0)
    assert whole.engine == "sparse"

    def stop(sweep: Any) -> bool:
        return bool(sweep.n_iter == 6)

    path = tmp_path / "fit.nc"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FitCheckpoint, "end", lambda self, fit: None)
        pltf.cp(rank=3).fit(counts, max_iter=12, tol=0, checkpoint=path, every=0, callback=stop)
    monkeypatch.setattr(ways, "NOTICEABLE", 1.0)
    assert pltf.cp(rank=3).fit(counts, max_iter=2, tol=0).engine == "dense"
    with pytest.raises(pltf.PltfError, match=r"was started with a different engine \(sparse there, dense here\)"):
        pltf.cp(rank=3).fit(counts, max_iter=12, tol=0, checkpoint=path, resume=True, engine="dense")
    gone_on = pltf.cp(rank=3).fit(counts, max_iter=12, tol=0, checkpoint=path, resume=True)
    assert gone_on.engine == "sparse"
    np.testing.assert_array_equal(gone_on.trace, whole.trace)
