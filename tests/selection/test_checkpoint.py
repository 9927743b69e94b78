"""Searches that are saved, broken off and gone on with."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pltf
from pltf.selection import search
from pltf.selection.checkpoint import SearchCheckpoint
from pltf.store import container
from tests.extras import MINIMAL
from tests.store import assert_same, change_about, quietly

X = np.random.default_rng(3).poisson(np.kron(np.diag([9, 5, 7]), np.ones((3, 4))) + 0.2)
MODEL = pltf.nmf(rank=1)
SMALL: dict[str, Any] = {"r": range(1, 5), "restarts": 3, "workers": 2, "criterion": "bound"}


def assert_same_search(one: pltf.Selection, other: pltf.Selection, *, seconds: bool = False) -> None:
    drop = [] if seconds else ["seconds"]
    pd.testing.assert_frame_equal(one.table.drop(columns=drop), other.table.drop(columns=drop), check_exact=True)
    left, right = (found.summary().drop(columns=drop) for found in (one, other))
    pd.testing.assert_frame_equal(left, right, check_exact=True)
    for name in ("best", "edges", "interrupted", "n_candidates", "unsettled", "seed", "doubts"):
        assert getattr(one, name) == getattr(other, name)
    assert [dict(failure) for failure in one.failures] == [dict(failure) for failure in other.failures]
    assert_same(one.best_fit, other.best_fit, seconds=seconds)


def loaded(path: Path) -> pltf.Selection:
    found = pltf.load(path)
    assert isinstance(found, pltf.Selection)
    return found


# -- saved --------------------------------------------------------------------------------------

SEARCHES: dict[str, dict[str, Any]] = {
    "sizes": {},
    "priors": {"prior": [None, pltf.Gamma(0.5, 1.0), {"W": pltf.Gamma(np.full(2, 0.3), 1.0)}], "r": [2]},
    "models": {"model": [pltf.nmf(rank=2), pltf.Model("X[i,j] = W[i,r] * S[r,q] * H[q,j]", r=2, q=2)]},
    "doubts": {"max_iter": 5, "r": [1, 2]},
    "one": {"r": 3, "restarts": 1},
    "raced": {"race": True, "restarts": 6},
}


@pytest.mark.parametrize("name", SEARCHES)
def test_any_search_comes_back(name: str, tmp_path: Path) -> None:
    options = SMALL | SEARCHES[name]
    found = quietly(pltf.select, options.pop("model", MODEL), X, **options)
    found.save(tmp_path / "search.nc")
    again = loaded(tmp_path / "search.nc")
    assert_same_search(found, again, seconds=True)
    assert repr(found) == repr(again)
    if not MINIMAL:
        labels, same = ([one.get_xlabel() for one in np.ravel(held.plot())] for held in (found, again))
        assert labels == same
    again.save(tmp_path / "again.nc")
    assert_same_search(found, loaded(tmp_path / "again.nc"), seconds=True)


def test_failures_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = search.go_on

    def fail(source: Any, ready: Any, *args: Any) -> Any:
        if ready.model.sizes["r"] == 2:
            raise OSError("the moon is full")
        return whole(source, ready, *args)

    monkeypatch.setattr(search, "go_on", fail)
    found = quietly(pltf.select, MODEL, X, checkpoint=tmp_path / "search.nc", **SMALL)
    again = loaded(tmp_path / "search.nc")
    assert_same_search(found, again)
    assert again.failures == ({"r": 2, "error": "OSError the moon is full"},)


@pytest.mark.parametrize(
    "edit",
    [
        lambda about: about.update(winner=99),
        lambda about: about.update(outcomes=[]),
        lambda about: about["outcomes"][0].update(alike=[1.0]),
        lambda about: about["outcomes"][0].update(rows=[]),
        lambda about: about.update(seed=None),
        lambda about: about.update(failures=3),
        lambda about: about.pop("edges"),
    ],
)
def test_what_is_told_of_a_search_may_be_made_up(tmp_path: Path, edit: Any) -> None:
    pltf.load(FILE)
    path = tmp_path / "search.nc"
    path.write_bytes(FILE.read_bytes())
    change_about(path, edit, "pltf.search")
    with pytest.raises(pltf.PltfError, match=r"search\.nc is damaged or was not saved by pltf"):
        pltf.load(path)


FILE = Path(__file__).parents[1] / "files" / "search-1.nc"


# -- broken off ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("race", [True, False])
def test_broken_off_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, race: bool) -> None:
    """What is in the file whenever the search looks up, gone on with."""
    options = SMALL | {"race": race, "restarts": 4, "tol": 1e-8}
    whole = pltf.select(MODEL, X, **options)
    path, kept = tmp_path / "search.nc", list[bytes]()
    keep = SearchCheckpoint.keep

    def take(self: SearchCheckpoint, *args: Any) -> None:
        keep(self, *args)
        kept.append(path.read_bytes())

    monkeypatch.setattr(SearchCheckpoint, "keep", take)
    assert_same_search(whole, pltf.select(MODEL, X, checkpoint=path, every=0, **options))
    monkeypatch.undo()
    assert len(kept) > 1
    for content in dict.fromkeys([*kept[:2], *kept[2::5], kept[-1]]):
        path.write_bytes(content)
        with pytest.raises(pltf.PltfError, match="is a checkpoint of a search that has not ended"):
            pltf.load(path)
        assert_same_search(whole, pltf.select(MODEL, X, checkpoint=path, resume=True, **options))
        assert os.listdir(tmp_path) == ["search.nc"]
    assert_same_search(whole, loaded(path))
    monkeypatch.setattr(search, "go_on", lambda *_: pytest.fail("it has ended"))
    assert_same_search(whole, pltf.select(MODEL, X, checkpoint=path, resume=True, **options))


def test_a_candidate_that_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, begun, go_on, stop = tmp_path / "search.nc", list[int](), search.go_on, True

    def note(source: Any, ready: Any, *args: Any) -> Any:
        begun.append(ready.model.sizes["r"])
        if stop and begun[-1] == 3:
            raise KeyboardInterrupt
        return go_on(source, ready, *args)

    options = SMALL | {"workers": 1, "race": False}
    monkeypatch.setattr(search, "go_on", note)
    part = quietly(pltf.select, MODEL, X, checkpoint=path, **options)
    assert part.interrupted
    assert part.doubts[0] == "the search was interrupted: 2 of 4 candidates have results"
    begun.clear()
    stop = False
    again = pltf.select(MODEL, X, checkpoint=path, resume=True, **options)
    assert set(begun) == {3, 4}
    assert_same_search(pltf.select(MODEL, X, **options), again)


@pytest.mark.slow
def test_broken_off_in_the_middle_of_a_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some restarts are further than others then, and none may be judged."""
    options: dict[str, Any] = {"r": [4, 5], "restarts": 6, "tol": 1e-9, "workers": 1, "race": True}
    go_on, jobs, last = search.go_on, 0, 10**9

    def count(*args: Any) -> Any:
        nonlocal jobs
        jobs += 1
        if jobs > last:
            raise KeyboardInterrupt
        return go_on(*args)

    monkeypatch.setattr(search, "go_on", count)
    data = np.random.default_rng(8).poisson(2.0, (12, 10))
    whole = quietly(pltf.select, MODEL, data, **options)
    assert (whole.table["stopped"] == "dropped").any()
    for moment in np.linspace(7, jobs - 1, 4).astype(int):
        jobs, last, path = 0, moment, tmp_path / f"{moment}.nc"
        with contextlib.suppress(KeyboardInterrupt):  # if no candidate is done yet
            assert quietly(pltf.select, MODEL, data, checkpoint=path, **options).interrupted
        last = 10**9
        assert_same_search(whole, quietly(pltf.select, MODEL, data, checkpoint=path, resume=True, **options))


def test_a_widened_search_broken_off_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The winner of the first grid is needed to widen it again, when those of wider grids are far ahead."""
    counts = np.random.default_rng(0).poisson(np.kron(np.diag([9, 5, 7, 8, 6]), np.ones((4, 4))) + 0.05)
    options = SMALL | {"r": [1, 2, 3], "restarts": 2, "workers": 1, "widen": True}
    path, kept, keep = tmp_path / "search.nc", list[bytes](), SearchCheckpoint.keep

    def take(self: SearchCheckpoint) -> None:
        keep(self)
        kept.append(path.read_bytes())

    monkeypatch.setattr(SearchCheckpoint, "keep", take)
    monkeypatch.setattr(SearchCheckpoint, "due", lambda self: self._n_done > self._done)
    whole = quietly(pltf.select, MODEL, counts, checkpoint=path, **options)
    monkeypatch.undo()
    assert whole.best == {"r": 5}
    assert len(kept) > 3
    for content in kept:
        path.write_bytes(content)
        assert_same_search(whole, quietly(pltf.select, MODEL, counts, checkpoint=path, resume=True, **options))

    path.write_bytes(kept[-1])
    change_about(path, lambda about: about.update(contenders=[]), "pltf.checkpoint")
    with pytest.raises(pltf.PltfError, match=r"search\.nc is damaged or was not saved by pltf"):
        pltf.select(MODEL, counts, checkpoint=path, resume=True, **options)


@pytest.mark.filterwarnings("ignore::pltf.errors.SelectionWarning")  # what comes out depends on the seed
def test_a_seed_that_nobody_gave_is_kept(tmp_path: Path) -> None:
    first = pltf.select(MODEL, X, seed=None, checkpoint=tmp_path / "a.nc", **SMALL)
    again = pltf.select(MODEL, X, seed=None, checkpoint=tmp_path / "a.nc", resume=True, **SMALL)
    assert_same_search(first, again, seconds=True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"seed": 1}, r"a different seed \(0 there, 1 here\)"),
        ({"restarts": 2}, r"a different restarts \(3 there, 2 here\)"),
        ({"r": range(1, 4)}, "a different grid"),
        ({"prior": [None, pltf.Gamma(0.5, 1.0)]}, "a different grid"),
        ({"race": False}, r"a different race \(None there, False here\)"),
        ({"tol": 1e-3}, r"a different tol \(1e-06 there, 0\.001 here\)"),
        ({"dtype": np.float32}, r"a different dtype \(float64 there, float32 here\)"),
        ({"fixed": {"H": np.ones((1, 12))}, "r": 1}, "a different (grid|fixed)"),
        ({"X": X + 1}, "different data"),
    ],
)
def test_another_search_does_not_go_on(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    path = tmp_path / "search.nc"
    pltf.select(MODEL, X, checkpoint=path, **SMALL)
    call: dict[str, Any] = {"X": X, "checkpoint": path, "resume": True} | SMALL | options
    with pytest.raises(pltf.PltfError, match=rf"search\.nc was started with {told}: it cannot be resumed$"):
        pltf.select(MODEL, **call)


def test_files_that_are_no_checkpoint_of_a_search(tmp_path: Path) -> None:
    path = tmp_path / "search.nc"
    pltf.select(MODEL, X, **SMALL).save(path)
    with pytest.raises(pltf.PltfError, match=r"search\.nc already exists: resume from it with resume=True"):
        pltf.select(MODEL, X, checkpoint=path, **SMALL)
    with pytest.raises(pltf.PltfError, match="is not a checkpoint"):
        pltf.select(MODEL, X, checkpoint=path, resume=True, **SMALL)
    path.unlink()
    pltf.select(MODEL, X, checkpoint=path, **SMALL)
    with pytest.raises(pltf.PltfError, match=r"search\.nc is the search of a different call$"):
        MODEL.fit(X, checkpoint=path, resume=True)


def test_a_folder_that_goes_away_costs_no_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    keep = SearchCheckpoint.keep

    def remove(self: SearchCheckpoint, *args: Any) -> None:
        if folder.exists():
            folder.rmdir()
        keep(self, *args)

    monkeypatch.setattr(SearchCheckpoint, "keep", remove)
    with pytest.warns(RuntimeWarning, match=r"search\.nc cannot be written: .*; continuing without a checkpoint"):
        found = pltf.select(MODEL, X, checkpoint=folder / "search.nc", every=0, **SMALL)
    assert_same_search(found, pltf.select(MODEL, X, **SMALL))


# -- killed -------------------------------------------------------------------------------------

CHILD = """
import sys, time
from pathlib import Path
import numpy as np
import pltf
from pltf.selection import search
from pltf.selection.checkpoint import SearchCheckpoint

def slowly(path, content):
    with path.open("wb") as file:
        file.write(content[:len(content) // 2])
        file.flush()
        time.sleep(0.1)
        file.write(content[len(content) // 2:])

def keep(self, *args, keep=SearchCheckpoint.keep):
    print("going", flush=True)
    keep(self, *args)

if __name__ == "__main__":
    Path.write_bytes = slowly
    SearchCheckpoint.keep = keep
    search._worth_processes = lambda *_: sys.argv[3] == "processes"
    X = np.load(sys.argv[1])
    options = {"r": range(1, 6), "restarts": 4, "tol": 1e-9, "workers": 2}
    found = pltf.select(pltf.nmf(rank=1), X, checkpoint=sys.argv[2], every=0, resume=True, **options)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_killed_in_the_middle(tmp_path: Path, workers: str) -> None:
    rng = np.random.default_rng(4)
    data = rng.poisson(np.kron(np.diag([9, 5, 7]), np.ones((20, 30))) + 0.2)
    np.save(tmp_path / "X.npy", data)
    (tmp_path / "child.py").write_text(CHILD)
    path = tmp_path / "out" / "search.nc"
    path.parent.mkdir()
    command = [sys.executable, str(tmp_path / "child.py"), str(tmp_path / "X.npy"), str(path), workers]
    for _ in range(3):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "going\n"
            time.sleep(rng.uniform(0.05, 0.6))
            child.send_signal(signal.SIGKILL)
        if path.exists():
            assert container.read(path)
    options: dict[str, Any] = {"r": range(1, 6), "restarts": 4, "tol": 1e-9, "workers": 2}
    found = quietly(pltf.select, MODEL, data, checkpoint=path, resume=True, **options)
    assert_same_search(quietly(pltf.select, MODEL, data, **options), found)
    assert os.listdir(path.parent) == ["search.nc"]
