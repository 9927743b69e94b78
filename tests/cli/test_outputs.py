"""Where commands write: judged before any work, and once more when the result is there."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pltf
from pltf import stale_files
from pltf.cli import commands
from pltf.cli.parsing import free_path
from tests.cli import here

LONGEST = "日" * 84 + ".nc"  # 255 bytes in 87 characters
TOLD = "was created by another process meanwhile and is not overwritten: the result is in"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).poisson(2.0, (5, 4))
    np.save("x.npy", X)
    pltf.nmf(rank=1).fit(X).save("run.nc")
    Path("cells.csv").write_text("i,j\n0,1\n")
    Path("labelled.csv").write_text("user,place\nann,inn\nbob,pub\n")
    return tmp_path


def _appears(monkeypatch: pytest.MonkeyPatch, name: str, path: Path) -> None:
    """Let a file appear while a command does its work: when it calls a function of its module."""
    work: Callable[..., Any] = getattr(commands, name)

    def disturbed(*args: Any, **kwargs: Any) -> Any:
        path.write_text("of somebody else")
        return work(*args, **kwargs)

    monkeypatch.setattr(commands, name, disturbed)


COMMANDS = [
    pytest.param("_read", ("fit", "x.npy", "--nmf", "1"), "out.nc", "out-2.nc"),
    pytest.param("_read", ("select", "x.npy", "--nmf", "1:2", "--restarts", "1"), "out.nc", "out-2.nc"),
    pytest.param("_read", ("update", "run.nc", "x.npy"), "out.nc", "out-2.nc"),
    pytest.param("_fit_of", ("predict", "run.nc", "--cells", "cells.csv"), "out.csv.gz", "out-2.csv.gz"),
    pytest.param("load", ("report", "run.nc"), "out.html", "out-2.html", marks=pytest.mark.extra("plot")),
]


@pytest.mark.parametrize(("during", "command", "name", "other"), COMMANDS)
def test_a_file_that_appears_meanwhile_is_not_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, during: str, command: tuple[str, ...], name: str, other: str
) -> None:
    output = folder / name
    _appears(monkeypatch, during, output)
    told = here(*command, "-o", output, "--json", "--quiet")
    assert told.code == 0
    assert output.read_text() == "of somebody else"
    assert (folder / other).stat().st_size > 0
    assert f"{output} {TOLD} {folder / other}" in told.err
    assert json.loads(told.out)["saved"] == str(folder / other)


def _appears_while_written(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    """Let files appear one after the other, each when a whole file lies beside it and only has to get its name."""
    finish, left = os.fsync, iter(paths)

    def disturbed(file: int) -> None:
        finish(file)
        for path in itertools.islice(left, 1):
            path.write_text("of somebody else")

    monkeypatch.setattr("os.fsync", disturbed)


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize(
    ("command", "name", "other"), [pytest.param(*one.values[1:], marks=one.marks) for one in COMMANDS]
)
def test_a_file_that_appears_while_the_result_is_written_is_not_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], name: str, other: str, links: bool
) -> None:
    def unsupported(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr("os.link", unsupported)
    _appears_while_written(monkeypatch, folder / name)
    told = here(*command, "-o", name, "--json", "--quiet")
    assert told.code == 0
    assert Path(name).read_text() == "of somebody else"
    assert Path(other).stat().st_size > 0
    assert f"{name} {TOLD} {other}" in told.err
    assert json.loads(told.out)["saved"] == other
    assert not list(folder.glob(".*"))


def test_a_file_that_appears_in_the_last_moment_is_not_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, names = os.link, list[str]()

    def outrun(part: Path, name: Path) -> None:
        names.append(name.name)
        if len(names) < 3:
            name.write_text("of somebody else")
        link(part, name)

    monkeypatch.setattr("os.link", outrun)
    assert here("convert", "x.npy", "out.npz").code == 0
    assert names == ["out.npz", "out-2.npz", "out-3.npz"]
    assert Path("out.npz").read_text() == Path("out-2.npz").read_text() == "of somebody else"
    assert np.array_equal(np.load("out-3.npz")["array"], np.load("x.npy"))


def test_labels_that_appear_while_data_are_written_are_not_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _appears_while_written(monkeypatch, folder / "out.tns.labels.csv")
    told = here("convert", "labelled.csv", "out.tns", "-i", "user,place", "--count")
    assert told.code == 0
    assert Path("out.tns.labels.csv").read_text() == "of somebody else"
    assert "out.tns.labels-2.csv has the labels" in told.out
    assert Path("out.tns.labels-2.csv").read_text().startswith("index,position,label")


def test_force_and_python_replace_what_appears_while_they_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _appears_while_written(monkeypatch, folder / "out.nc", folder / "run.nc")
    assert here("fit", "x.npy", "--nmf", "1", "-o", "out.nc", "--force").err == ""
    pltf.load("out.nc").save("run.nc")
    assert isinstance(pltf.load("run.nc"), pltf.Fit)


def test_force_replaces_what_appears_meanwhile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _appears(monkeypatch, "_read", folder / "out.nc")
    told = here("fit", "x.npy", "--nmf", "1", "-o", "out.nc", "--force")
    assert (told.code, told.err) == (0, "")
    assert isinstance(pltf.load("out.nc"), pltf.Fit)


def test_a_link_to_nothing_is_replaced_only_if_asked_for(folder: Path) -> None:
    Path("out.nc").symlink_to("nowhere.nc")
    command = ("fit", "x.npy", "--nmf", "1", "-o", "out.nc")
    assert here(*command).refusal == "out.nc exists: use --force to overwrite it"
    told = here(*command, "--force")
    assert (told.code, told.err) == (0, "")
    assert isinstance(pltf.load("out.nc"), pltf.Fit)


def test_labels_beside_converted_data_move_with_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _appears(monkeypatch, "_read", folder / "out.tns")
    told = here("convert", "labelled.csv", "out.tns", "-i", "user,place", "--count")
    assert told.code == 0
    assert Path("out.tns").read_text() == "of somebody else"
    assert Path("out-2.tns").exists()
    assert Path("out-2.tns.labels.csv").exists()


def test_a_free_name_is_found_within_the_longest_name(folder: Path) -> None:
    Path(LONGEST).touch()
    free = free_path(Path(LONGEST))
    assert len(free.name.encode()) <= 255
    assert free.name.endswith("日-2.nc")
    free.touch()
    assert free_path(Path(LONGEST)).name.endswith("日-3.nc")


def test_a_name_of_255_bytes_is_written(folder: Path) -> None:
    assert here("fit", "x.npy", "--nmf", "1", "-o", LONGEST).code == 0
    assert isinstance(pltf.load(LONGEST), pltf.Fit)


@pytest.mark.parametrize("command", [("fit", "x.npy", "--nmf", "1"), ("select", "x.npy", "--nmf", "1:2")])
def test_a_name_that_is_too_long_is_refused_before_any_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(commands, "_read", lambda *_: pytest.fail("the data were read"))
    assert "File name too long" in here(*command, "-o", "a" * 253 + ".nc").refusal
    assert "File name too long" in here(*command, "-o", "a.nc", "--checkpoint", "b" * 253 + ".nc").refusal
    assert "File name too long" in here(*command, "-o", "a/" * 2100 + "b.nc").refusal


def test_a_folder_that_takes_no_file_is_told_before_any_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stale_files, "_held", full)
    monkeypatch.setattr(commands, "_read", lambda *_: pytest.fail("the data were read"))
    refusal = here("fit", "x.npy", "--nmf", "1", "-o", "out.nc").refusal
    assert refusal == "out.nc cannot be written: No space left on device"


def test_checks_leave_nothing_behind(folder: Path) -> None:
    before = set(folder.iterdir())
    here("fit", "x.npy", "--nmf", "1", "-o", "out.nc", "--checkpoint", "kept.nc", "--prior", "7")
    assert set(folder.iterdir()) == before
    with pytest.raises(pltf.PltfError, match="File name too long"):
        pltf.nmf(rank=1).fit(np.ones((2, 2)), checkpoint="c" * 300)
