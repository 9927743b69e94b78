"""Models of several tensors from the command line: options, model files, labels that are aligned."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pltf
from tests.cli import here
from tests.extras import optional

TEXT = "X[u,p]=U[u,r]*P[p,r]; Y[u,w]=U[u,r]*W[w,r]"
RNG = np.random.default_rng(4)
GROUPS = {f"u{n:02d}": n % 2 for n in range(16)}


def _events(users: list[str], kind: str, size: int, each: int) -> pd.DataFrame:
    """Events of users of two groups, each of which has its own half of the labels."""
    rows = [(user, f"{kind}{GROUPS[user] * size + RNG.integers(size)}") for user in users for _ in range(each)]
    return pd.DataFrame(rows, columns=["u", kind])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Visits of most users, words of most others, and a model file."""
    folder = tmp_path_factory.mktemp("coupled")
    users = list(GROUPS)
    _events(users[:12], "p", 4, 12).to_csv(folder / "visits.csv", index=False)
    words = _events(users[4:], "w", 3, 9).groupby(["u", "w"]).size().rename("n").reset_index()
    words.rename(columns={"u": "who"}).to_csv(folder / "words.csv", index=False)
    (folder / "model.toml").write_text(
        """
        model = '''
        X[u,p] = U[u,r] * P[p,r]
        Y[u,w] = U[u,r] * W[w,r]
        '''
        sizes = { r = 2 }
        priors.U = { shape = 0.5, mean = 10 }

        [data]
        X = "visits.csv"
        Y = { file = "words.csv", index = { who = "u" }, value = "n" }
        """
    )
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """A fit with the options of the command line."""
    words = ("-d", f"Y={folder / 'words.csv'}", "-i", "Y:who=u", "--value", "Y:n", "--count")
    data = ("-m", TEXT, "-s", "r=2", "-d", f"X={folder / 'visits.csv'}", *words)
    done = here("fit", *data, "--restarts", 2, "--holdout", 0.1, "--of", "X", "-o", folder / "run.nc")
    assert done.code == 0, done
    assert (
        "X has no row for 4 labels of 'u' (u12, u13, u14, u15): their cells are missing (--zeros u: zeros)" in done.out
    )
    assert "Y has no row for 4 labels of 'u' (u00, u01, u02, u03)" in done.out
    assert "cells of X" in done.out
    assert "than popularity: the AUC is" in done.out
    return folder / "run.nc"


def test_labels_are_aligned(run: Path) -> None:
    fit = pltf.load(run)
    assert isinstance(fit, pltf.Fit)
    assert fit.labels["u"].names() == list(GROUPS)
    assert fit.n_observed["Y"] == 12 * 6
    assert fit.origin["read"] == "X: --count --missing nan; Y: --index who=u,w=w --value n --missing nan"


def test_predictions_by_tensor(run: Path, folder: Path) -> None:
    asked = folder / "asked.csv"
    asked.write_text("u,p\nu12,p0\nu13,p0\n")  # users of whom there are words only
    done = here("predict", run, "--of", "X", "--cells", asked, "--json")
    first, second = (cell["mean"] for cell in json.loads(done.out)["cells"])
    assert first > 4 * second  # their words tell their group
    top = json.loads(here("predict", run, "--of", "Y", "--top", 3, "--json").out)
    assert top["of"] == "Y"
    assert {cell["u"] for cell in top["cells"]} <= {"u00", "u01", "u02", "u03"}  # missing cells come first


def test_scores_by_tensor(run: Path, folder: Path) -> None:
    done = json.loads(here("score", run, "--json").out)  # of the cells that were held out, so of X
    assert done["of"] == "X"
    assert done["beats_popularity"] is True
    assert done["verdict"].startswith("Better than popularity")
    assert "--of must be 'X', the tensor of the held-out cells, got 'Y'" in here("score", run, "--of", "Y").refusal
    (folder / "hidden.csv").write_text("u,w,n\nu00,w0,3\nu01,w0,0\n")
    assert json.loads(here("score", run, folder / "hidden.csv", "--of", "Y", "--json").out)["cells"] == 2


def test_info_and_report(run: Path, folder: Path) -> None:
    assert "X 16x8" in here("info", run).out
    assert here("plan", "-m", folder / "model.toml").code == 0


def test_a_model_file(folder: Path) -> None:
    assert here("fit", "-m", folder / "model.toml", "-o", folder / "file.nc", "-q").code == 0
    fit = pltf.load(folder / "file.nc")
    assert isinstance(fit, pltf.Fit)
    visits, words = (pd.read_csv(folder / f"{name}.csv") for name in ("visits", "words"))
    seen = {
        "X": pltf.observe(visits, dims=["u", "p"], count=True),
        "Y": pltf.observe(words, dims={"who": "u", "w": "w"}, value="n"),
    }
    model = pltf.Model(TEXT, r=2)
    assert fit.bound == model.fit(seen, prior={"U": pltf.Gamma(0.5, 10.0)}).bound
    done = here("fit", "-m", folder / "model.toml", "-s", "r=3", "-p", "shape=1", "-o", folder / "other.nc", "-q")
    assert done.code == 0
    other = pltf.load(folder / "other.nc")
    assert isinstance(other, pltf.Fit)
    assert (other.sizes["r"], float(np.max(other.priors["U"].shape))) == (3, 1.0)


def test_a_model_file_in_yaml(folder: Path) -> None:
    optional("yaml").safe_load("")
    (folder / "model.yaml").write_text(
        """
        model: |
          X[u,p] = U[u,r] * P[p,r]
          Y[u,w] = U[u,r] * W[w,r]
        sizes: {r: 2}
        priors:
          U: {shape: 0.5, mean: 10}
        data:
          X: visits.csv
          Y: {file: words.csv, index: {who: u}, value: n}
        """
    )
    fits = []
    for name in ("model.yaml", "model.toml"):
        assert here("fit", "-m", folder / name, "-o", folder / "yaml.nc", "-q", "--force").code == 0
        fits.append(pltf.load(folder / "yaml.nc"))
    yaml, toml = fits
    assert isinstance(yaml, pltf.Fit)
    assert isinstance(toml, pltf.Fit)
    assert yaml.bound == toml.bound


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("model: [", "is not valid YAML: expected the node content, but found '<stream end>' (line 1)"),
        ("model: 2013-02-99", "is not valid YAML: day is out of range for month"),
        ("[" * 2000, "is not valid YAML"),
        ("sizes: {r: !!bool maybe}", "is not valid YAML: a value does not match its tag"),
        ("sizes: {r: !!timestamp soon}", "is not valid YAML: a value does not match its tag"),
        ("- model", "a model file must be a table, got ['model']"),
        ("", "a model file must be a table, got None"),
        ("model: !!python/object/apply:os.system [true]", "is not valid YAML: could not determine a constructor"),
        ("a: &x [1, 2]\nb: [*x, *x]", "must not have aliases such as *name"),
        ("model: ij->ij\nsizes: {no: 2}", "sizes: put the key False in quotes"),
        ("model: ij->ij\ndata: {X: {index: {2014: u}}}", "data.X.index: put the key 2014 in quotes"),
    ],
)
def test_a_bad_model_file_in_yaml(text: str, why: str, tmp_path: Path) -> None:
    optional("yaml").safe_load("")
    (tmp_path / "model.yml").write_text(text)
    refusal = here("fit", "-m", tmp_path / "model.yml", "-o", tmp_path / "out.nc").refusal
    assert "model.yml" in refusal
    assert why in refusal


def test_a_range_in_yaml(folder: Path) -> None:
    """YAML 1.1 has 1:2 as the number 62, in base 60."""
    optional("yaml").safe_load("")
    (folder / "range.yaml").write_text("model: X[u,p] = U[u,r] * P[p,r]\nsizes:\n  r: 1:2\ndata: {X: visits.csv}")
    words = ("select", "-m", folder / "range.yaml", "--restarts", 1, "--workers", 1, "--max-iter", 5, "--json")
    done = here(*words)
    assert done.code == 0, done
    assert [one["r"] for one in json.loads(done.out)["candidates"]] == [1, 2]


def test_labels_that_are_numbers_in_one_file_and_words_in_another(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("u,p\n1,a\n2,b\n3,a\n")
    (tmp_path / "y.csv").write_text("u,w\n1,c\nx9,d\n")
    files = ("-d", f"X={tmp_path / 'x.csv'}", "-d", f"Y={tmp_path / 'y.csv'}")
    done = here("fit", "-m", TEXT, "-s", "r=1", *files, "--count", "--zeros", "u", "-o", tmp_path / "run.nc")
    assert done.code == 0, done
    assert "their cells are zeros" in done.out
    fit = pltf.load(tmp_path / "run.nc")
    assert isinstance(fit, pltf.Fit)
    assert fit.labels["u"].names() == ["1", "2", "3", "x9"]
    assert fit.n_observed == {"X": 8, "Y": 8}


@pytest.mark.slow
def test_a_search(folder: Path) -> None:
    done = here("select", "-m", folder / "model.toml", "-s", "r=1:3", "--restarts", 2, "-o", folder / "search.nc")
    assert done.code == 0, done
    assert "best         r=2" in done.out
    assert here("predict", folder / "search.nc", "--of", "Y", "--top", 2).code == 0


FILES = ("-d", "X=visits.csv", "-d", "Y=words.csv")
FIT = ("fit", "-m", TEXT, "-s", "r=2", "-o", "out.nc")
REFUSED = [
    (FIT, "there are no data for X: name a file (--data X=FILE)"),
    ((*FIT, *FILES[:2]), "there are no data for Y: name a file (--data Y=FILE)"),
    ((*FIT, "visits.csv"), "give each its file (--data X=FILE --data Y=FILE), not visits.csv"),
    ((*FIT, *FILES, "-d", "Z=a.csv"), "--data names 'Z', and the model has X, Y"),
    ((*FIT, *FILES, "-d", "x=a.csv"), "did you mean 'X'? Names are case-sensitive"),
    ((*FIT, "-d", "visits.csv"), "--data must be like X=visits.csv, got 'visits.csv'"),
    ((*FIT, "-d", "X=a.csv", "-d", "X=b.csv"), "--data is given twice for 'X'"),
    ((*FIT, *FILES, "-i", "who=q"), "--index names 'q', and the indices of the model are u, p, w"),
    ((*FIT, *FILES, "--value", "Y:n"), "words.csv has no column 'u'; it has who, w, n"),
    ((*FIT, *FILES, "--missing", "Y:unlited"), "got 'unlited'; did you mean 'unlisted'?"),
    ((*FIT, *FILES, "--format", "csv"), "--format is for one file"),
    ((*FIT, *FILES, "-i", "Y:who=u", "--value", "Y:n", "--zeros", "v"), "--zeros names 'v'"),
    ((*FIT, *FILES, "-i", "Y:who=u", "--value", "Y:n", "--of", "X"), "--of needs --holdout"),
    ((*FIT, *FILES, "-i", "Y:who=u", "--value", "Y:n", "--holdout", "0.1", "--of", "x"), "--of must name a tensor"),
    (("fit", "-m", "none.toml", "-o", "out.nc"), "there is no model file none.toml"),
    (("fit", "-m", "model.json", "-o", "out.nc"), "a model file must be TOML or YAML (.toml, .yaml, .yml)"),
    (("fit", "-m", "broken.toml", "-o", "out.nc"), "broken.toml is not valid TOML"),
    (("fit", "-m", "typo.toml", "-o", "out.nc"), "typo.toml has an unknown key 'size'; known are"),
    (("fit", "-m", "empty.toml", "-o", "out.nc"), "empty.toml must have the equations as the text 'model'"),
    (("fit", "-m", "flag.toml", "-o", "out.nc"), "flag.toml: data.X.sum must be true or false, got 'yes'"),
    (("predict", "run.nc", "--top", "3", "--of", "Z"), "--of must name a tensor of the model (X, Y), got 'Z'"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "why"), REFUSED, ids=lambda one: " ".join(one) if isinstance(one, tuple) else "")
def test_refused(command: tuple[str, ...], why: str, folder: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    Path("broken.toml").write_text("model = ")
    Path("typo.toml").write_text("model = 'ir,jr->ij'\nsize = { r = 2 }")
    Path("empty.toml").write_text("")
    Path("flag.toml").write_text("model = 'ir,jr->ij'\nsizes = { r = 2 }\ndata.X = { file = 'a.csv', sum = 'yes' }")
    assert why in here(*command).refusal
    assert not Path("out.nc").exists()


def test_one_tensor_of_dates_one_of_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    users = ["ann", "bob", "cid"] * 4
    seconds = [1_761_350_400 + 86_400 * (n % 5) for n in range(12)]
    pd.DataFrame({"u": users, "when": seconds}).to_csv("visits.csv", index=False)
    words = pd.DataFrame({"u": ["ann", "bob", "cid"], "w": ["x", "y", "x"], "n": [2, 3, 1]})
    with closing(sqlite3.connect("words.db")) as connection:
        words.to_sql("words", connection, index=False)
    text = "X[u,day]=U[u,r]*D[day,r]; Y[u,w]=U[u,r]*W[w,r]"
    data = ("-m", text, "-s", "r=1", "-d", "X=visits.csv", "-d", "Y=sqlite:///words.db")
    dates = ("--timezone", "Europe/Berlin", "--date-format", "epoch")
    done = here("fit", *data, "-i", "X:when:day=day", "--value", "Y:n", *dates, "-o", "run.nc", "--max-iter", 9)
    assert done.code == 0, done
    fit = pltf.load("run.nc")
    assert isinstance(fit, pltf.Fit)
    assert fit.labels["day"].names()[0] == "2025-10-25"
    words.to_csv("held.csv", index=False)
    scored = here("score", "run.nc", "held.csv", "--of", "Y", "--no-ranking")  # the column of values is known
    assert scored.code == 0, scored
    late = here("fit", *data, "-i", "X:when=day", "--value", "Y:n", *dates, "-o", "other.nc").refusal
    assert late == "--date-format goes with an index of dates, such as --index user,when:day"
    piped = here("fit", *data[:-1], "Y=-", "-o", "other.nc").refusal
    assert piped == "--data needs a file for Y: only FILE may be - for standard input"
