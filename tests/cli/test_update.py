"""pltf update: a saved fit and further data, read as its own were."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pltf
from pltf.cli.data import read_alike, reading_in_words
from tests.cli import here

FIT = ("fit", "a.csv", "-i", "who=user,place,when:week", "--value", "n", "--sum", "--cp", "2", "-o", "run.nc", "-q")
UPDATE = ("update", "run.nc", "b.csv", "-o", "run2.nc")


def visits(n: int, users: list[Any], start: str, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    days = pd.Timestamp(start) + pd.to_timedelta(rng.integers(0, 14, n), unit="D")
    columns = {"who": rng.choice(users, n), "place": rng.choice(["bar", "gym"], n), "when": days, "n": 1, "note": "x"}
    return pd.DataFrame(columns)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a fit and further data."""
    monkeypatch.chdir(tmp_path)
    visits(200, ["ann", "bob", "3"], "2026-11-02", 0).to_csv("a.csv", index=False)
    visits(90, ["bob", "dee"], "2026-11-16", 1).to_csv("b.csv", index=False)
    assert here(*FIT).code == 0
    return tmp_path


def loaded(path: str) -> pltf.Fit:
    found = pltf.load(path)
    assert isinstance(found, pltf.Fit)
    return found


def test_update(desk: Path) -> None:
    done = here(*UPDATE, "--json")
    told, fit = json.loads(done.out), loaded("run2.nc")
    observed = pltf.observe(
        pd.read_csv("b.csv", parse_dates=["when"]),
        dims={"who": "user", "place": "place", "when:week": "when"},
        value="n",
        duplicates="sum",
    )
    expected = loaded("run.nc").update(observed)
    np.testing.assert_array_equal(fit.trace, expected.trace)
    np.testing.assert_array_equal(fit.C["A"], expected.C["A"])
    assert fit.labels["user"].names() == ["3", "ann", "bob", "dee"]
    assert (told["bound"], told["new"]) == (fit.bound, {"user": 1, "when": 2})
    assert [one["n_observed"] for one in told["batches"]] == [12, 8]
    assert told["saved"] == "run2.nc"
    assert fit.origin["read"] == "--index who=user,place,when:week --value n --sum --missing nan"
    assert fit.origin["command"].startswith("pltf update run.nc b.csv")
    text = here("update", "run2.nc", "b.csv", "-o", "run3.nc").out
    assert "new  " not in text
    assert "learned from 3 batches of data" in text
    assert "batches  3" in here("info", "run3.nc").out
    assert "--index who=user" in here("info", "run3.nc").out


def test_options_are_handed_on(desk: Path) -> None:
    options = ("--forget", "0.2", "--zeros", "user,place", "--max-iter", "5", "--tol", "0", "--seed", "3")
    assert here(*UPDATE, *options, "--restarts", "2", "--no-keep-data", "-q").out == ""
    fit = loaded("run2.nc")
    assert (fit.n_iter, fit.seed, len(fit.rows), fit.keeps_data) == (5, 3, 2, False)
    assert fit.history[-1].forget == 0.2
    assert fit.history[-1].n_observed == {"X": 4 * 2 * 2}


def test_numbers_are_words_where_they_were(desk: Path) -> None:
    visits(20, [3, 4], "2026-11-02", 2).to_csv("b.csv", index=False)
    assert here(*UPDATE).code == 0
    assert loaded("run2.nc").labels["user"].names() == ["3", "ann", "bob", "4"]


def test_columns_may_be_called_otherwise(desk: Path) -> None:
    table = visits(20, ["ann"], "2026-11-02", 2).rename(columns={"who": "name"}).drop(columns=["n", "note"])
    table.to_csv("b.csv", index=False)
    assert "has no column 'who'" in here(*UPDATE).refusal
    assert here(*UPDATE, "-i", "name=user,place,when:week", "--count").code == 0
    assert loaded("run2.nc").history[-1].n_observed == {"X": 4}


def test_arrays_by_position(desk: Path) -> None:
    np.save("x.npy", np.random.default_rng(0).poisson(3.0, (4, 3)))
    np.save("y.npy", np.random.default_rng(1).poisson(3.0, (2, 3)))
    assert here("fit", "x.npy", "--nmf", "1", "-o", "arrays.nc", "-q").code == 0
    assert here("update", "arrays.nc", "y.npy", "--append", "i", "-o", "more.nc", "-q").code == 0
    assert loaded("more.nc").sizes["i"] == 6
    refusal = here("update", "arrays.nc", "y.npy", "-o", "other.nc").refusal
    assert (
        "index 'i' has size 2 in X and 4 in the fit: pass labels, or --append i if all of its rows are new" in refusal
    )
    Path("x.tns").write_text("1 1 3\n2 2 1\n")
    Path("y.tns").write_text("1 1 3\n3 2 1\n")
    assert here("fit", "x.tns", "--nmf", "1", "-o", "listed.nc", "-q").code == 0
    assert here("update", "listed.nc", "y.tns", "-o", "listed2.nc", "-q").code == 0
    assert loaded("listed2.nc").labels["i"].names() == ["1", "2", "3"]


def test_a_fit_that_does_not_know_how_it_was_read() -> None:
    """One that was made in Python, or by an earlier version: by the names of its indices."""
    days = pd.DataFrame({"when": pd.date_range("2026-11-02", periods=21, freq="D"), "place": ["bar", "gym", "gym"] * 7})
    fit = pltf.nmf(("when", "place"), rank=1).fit(pltf.observe(days, dims=["when:week", "place"]))
    options: dict[str, Any] = {"index": None, "value": None, "count": False, "sum": False, "missing": None}
    found = read_alike(fit, options, Path("more.csv"))
    assert found == {"index": "when:week,place", "value": None, "count": False, "sum": False, "missing": "nan"}
    kept = replace(fit, origin={"read": reading_in_words({**found, "value": "n", "sum": True})})
    assert read_alike(kept, options, Path("more.csv")) == {**found, "value": "n", "sum": True}
    assert read_alike(kept, {**options, "count": True}, Path("more.csv"))["value"] is None
    assert read_alike(kept, {**options, "index": "place"}, Path("more.csv"))["index"] == "place"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("update", "run.nc"), "FILE is missing (Data: CSV, TSV"),
        ((*UPDATE[:3],), "--output is missing (File for the updated fit, such as run2.nc)"),
        (("update", "run.nc", "b.csv", "-o", "run.nc", "--force"), "run.nc is the input: write to another"),
        (("update", "run.nc", "b.csv", "-o", "out.csv"), "the output must end in .nc"),
        ((*UPDATE, "--forget", "1"), "--forget must be a number from 0 to below 1, got 1.0"),
        ((*UPDATE, "--zeros", "act"), "--zeros must name an observed index of the model (user, place, when)"),
        ((*UPDATE, "--append", "user"), "--append names 'user', which has labels in the fit"),
        ((*UPDATE, "--zeros", "user,"), "--zeros must be names with commas between them, got 'user,'"),
        ((*UPDATE, "--missing", "unlisted"), "in the data of the fit they are zeros: pass --missing nan"),
        ((*UPDATE, "--value", "note"), "which is not a number"),
        (("update", "b.csv", "b.csv", "-o", "run2.nc"), "b.csv is not a file saved by pltf"),
        (
            ("update", "em.nc", "b.csv", "-o", "run2.nc"),
            "update needs a fit with --method vb, but this",
        ),
        (("update", "coupled.nc", "b.csv", "-o", "run2.nc"), "is a fit of several tensors"),
    ],
)
def test_refused(command: tuple[str, ...], why: str, desk: Path) -> None:
    X = np.eye(3) + 1
    pltf.nmf(rank=1).fit(X, method="em").save("em.nc")
    pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * D[m,r]", r=1).fit({"X": X, "Y": X}).save("coupled.nc")
    assert why in here(*command).refusal
    assert not Path("run2.nc").exists()


def test_ctrl_c_saves_the_best_so_far(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a fit: with a code of its own."""
    update = pltf.Fit.update

    def broken_off(self: pltf.Fit, *arguments: Any, **options: Any) -> pltf.Fit:
        return replace(update(self, *arguments, **options), stopped="interrupted", converged=False)

    monkeypatch.setattr(pltf.Fit, "update", broken_off)
    done = here(*UPDATE)
    assert done.code == 130
    assert "the best so far, for it was interrupted" in done.out


def test_unused_columns_are_named_once(desk: Path) -> None:
    fitted = here("fit", "a.csv", "-i", "who,place", "--nmf", "1", "-o", "new.nc", "--max-iter", "5")
    assert "the columns when, n, note are not used" in fitted.err
    assert "not used" not in here("update", "new.nc", "b.csv", "-o", "new2.nc", "--max-iter", "5").err
