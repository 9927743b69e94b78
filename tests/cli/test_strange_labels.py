"""Labels and names of columns from strangers: they drive no terminal and no spreadsheet."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pltf
from pltf.cli import commands
from pltf.inference.progress import Progress
from tests.cli import Outcome, here

ESCAPE = "\x1b]0;owned\x07"
SHOWN = r"\x1b]0;owned\x07"
LABEL = f"ann{ESCAPE}"
FORMULAS = ["=1+2", "+1", "-2+3", "@SUM(A1)", "\tx"]
NOTE = "labels look like formulas"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _table(name: str, users: list[str], index: str = "user") -> None:
    rng = np.random.default_rng(0)
    rows = [(user, place, count) for user in users for place, count in enumerate(rng.poisson(3.0, 4))]
    pd.DataFrame(rows, columns=[index, "place", "n"]).to_csv(name, index=False)


def _fitted(users: list[str]) -> Outcome:
    _table("a.csv", users)
    return here("fit", "a.csv", "-i", "user,place", "--value", "n", "--keep-blanks", "--nmf", "1", "-o", "run.nc")


def _harmless(told: Outcome) -> Outcome:
    driving = [one for one in told.out + told.err if not one.isprintable() and one not in "\n\t"]
    assert not driving, told
    return told


def test_labels_are_shown_escaped() -> None:
    told = _harmless(_fitted([LABEL, "bob", "two\nlines"]))
    assert f"ann{SHOWN}" in told.out
    assert r"two\nlines" in told.out
    assert SHOWN in _harmless(here("info", "run.nc")).out


def test_columns_are_shown_escaped() -> None:
    _table("a.csv", [LABEL, "bob"], index=f"user{ESCAPE}")
    told = _harmless(here("info", "a.csv"))
    assert f"user{SHOWN}" in told.out
    assert f"ann{SHOWN}" in told.out
    refused = _harmless(here("fit", "a.csv", "-i", "shop", "--cp", "1", "-o", "run.nc"))
    assert f"user{SHOWN}" in refused.refusal


def test_predictions_on_a_terminal_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    _fitted([LABEL, "bob"])
    monkeypatch.setattr(commands, "is_terminal", lambda: True)
    told = _harmless(here("predict", "run.nc", "--top", "3", "--among", "all"))
    assert f"ann{SHOWN}" in told.out


def test_a_column_of_any_name_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of the first argument of a method."""
    _table("a.csv", ["ann", "bob"], index="self")
    assert here("fit", "a.csv", "-i", "self,place", "--value", "n", "--nmf", "1", "-o", "run.nc").code == 0
    monkeypatch.setattr(commands, "is_terminal", lambda: True)
    told = here("predict", "run.nc", "--top", "2", "--among", "all")
    assert (told.code, told.err) == (0, "")
    assert told.out.split()[0] == "self"


def test_a_column_of_dates_or_of_words_has_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    days = pd.DataFrame({"user": ["ann", "bob"] * 20, "self": pd.date_range("2026-01-01", periods=40).astype(str)})
    days.to_csv("days.csv", index=False)
    assert here("fit", "days.csv", "-i", "user,self:month", "--nmf", "1", "-o", "days.nc").code == 0
    monkeypatch.setattr(commands, "is_terminal", lambda: True)
    assert "January 2026" in here("predict", "days.nc", "--top", "2", "--among", "all").out
    for name, label in (("words.csv", "x"), ("numbers.csv", "3")):
        pd.DataFrame({"user": ["ann", "bob"] * 2, "self": ["1", "2", "2", label]}).to_csv(name, index=False)
    assert here("fit", "words.csv", "-i", "user,self", "--nmf", "1", "-o", "words.nc").code == 0
    assert here("update", "words.nc", "numbers.csv", "-o", "more.nc").code == 0


def test_files_with_strange_names_are_shown_escaped() -> None:
    assert SHOWN in _harmless(here("info", f"none{ESCAPE}.csv")).refusal
    _table(f"a{ESCAPE}.csv", ["ann", "bob"])
    told = _harmless(here("fit", f"a{ESCAPE}.csv", "-i", "user,place", "--value", "n", "--nmf", "1", "-o", "run.nc"))
    assert SHOWN in told.out
    assert SHOWN in _harmless(here("info", "run.nc")).out


def test_errors_and_warnings_in_python_are_escaped() -> None:
    assert str(pltf.PltfError(f"no label {LABEL}")) == f"no label ann{SHOWN}"
    assert pltf.ScoreWarning(f"no label {LABEL}").spelled(str) == f"no label ann{SHOWN}"
    assert "\x0e" not in str(pltf.PltfError("shift out: \x0e"))  # the mark of a piece of Python, without its end
    fit = pltf.nmf(["user", "place"], rank=1).fit(
        pd.DataFrame({"user": [LABEL, "bob"], "place": ["a", "b"], "n": [1, 2]}).set_index(["user", "place"])["n"]
    )
    with pytest.raises(pltf.PltfError) as refused:
        fit.mean([(f"eve{ESCAPE}", "a")])
    assert str(refused.value).isprintable()


def test_progress_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    monkeypatch.setattr("sys.stderr", told)
    monkeypatch.setattr(Progress, "lines_every", 0.0)
    with Progress(True, 3) as progress:  # noqa: FBT003
        progress.show(1, f"one{ESCAPE}\nof three")
    assert told.getvalue() == f"one{SHOWN}\\nof three\n"


def test_formulas_in_exported_tables_are_told_once() -> None:
    _fitted([*FORMULAS, "ann"])
    told = here("predict", "run.nc", "--top", "24", "--among", "all", "-o", "out.csv")
    assert told.err.count(NOTE) == 1
    assert "--spreadsheet-safe" in told.err
    assert set(pd.read_csv("out.csv")["user"]) == {*FORMULAS, "ann"}
    assert NOTE in here("convert", "a.csv", "again.tsv", "-i", "user,place", "--value", "n").err
    assert NOTE in here("convert", "a.csv", "again.tns", "-i", "user,place", "--value", "n").err
    assert here("convert", "a.csv", "again.parquet", "-i", "user,place", "--value", "n").err == ""


@pytest.mark.parametrize("name", ["out.csv", "out.tsv.gz"])
def test_formulas_are_quoted_on_request(name: str) -> None:
    _fitted([*FORMULAS, "ann"])
    told = here("predict", "run.nc", "--top", "24", "--among", "all", "-o", name, "--spreadsheet-safe")
    assert (told.code, told.err) == (0, "")
    table = pd.read_csv(name, sep="\t" if "tsv" in name else ",")
    assert set(table["user"]) == {*(f"'{one}" for one in FORMULAS), "ann"}
    piped = here("predict", "run.nc", "--top", "24", "--among", "all", "--spreadsheet-safe")
    assert set(pd.read_csv(io.StringIO(piped.out))["user"]) == {*(f"'{one}" for one in FORMULAS), "ann"}


def test_converted_labels_are_quoted_on_request() -> None:
    _table("a.csv", [*FORMULAS, "ann"])
    for name, labels in (("b.csv", "b.csv"), ("b.tns", "b.tns.labels.csv")):
        assert here("convert", "a.csv", name, "-i", "user,place", "--value", "n", "--spreadsheet-safe").err == ""
        assert "'=1+2" in Path(labels).read_text()
        assert ",=1+2" not in Path(labels).read_text()
    refusal = here("convert", "a.csv", "b.npz", "-i", "user,place", "--value", "n", "--spreadsheet-safe").refusal
    assert refusal == "--spreadsheet-safe requires .csv or .tsv output, got .npz"


def test_plain_tables_are_written_without_a_note() -> None:
    _fitted(["ann", "bob"])
    assert here("predict", "run.nc", "--top", "3", "--among", "all", "-o", "out.csv").err == ""


def test_a_table_is_made_safe_in_python() -> None:
    table = pd.DataFrame([["=a", -1.0, ""], ["b", 2.0, "@c"]], columns=["user", "=x", "user"])
    table = table.astype({"=x": float})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        safe = pltf.io.spreadsheet_safe(table)
    assert safe.columns.tolist() == ["user", "'=x", "user"]
    assert safe.to_numpy().tolist() == [["'=a", -1.0, ""], ["b", 2.0, "'@c"]]
    assert table.iloc[0, 0] == "=a"
    words = pd.DataFrame({"user": pd.Categorical(["=a", "b", "=a"])})
    assert pltf.io.spreadsheet_safe(words)["user"].tolist() == ["'=a", "b", "'=a"]
