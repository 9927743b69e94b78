"""What is refused: in one sentence, with exit code 2, before any work, and with nothing left on disk."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import pltf
from tests.cli import here

TABLE = "user,place,n\nann,bar,3\nbob,gym,1\nann,gym,2\n"
FIT = ("fit", "a.csv", "-i", "user,place", "-o", "out.nc", "--value", "n")
NMF = (*FIT, "--nmf", "1")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with some files."""
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text(TABLE)
    Path("words.csv").write_text("user,place,n\nann,bar,3\nbob,gym,many\n")
    Path("twice.csv").write_text("user,place,n\nann,bar,3\nann,bar,4\n")
    Path("twins.csv").write_text("user,user,n\nann,bar,3\n")
    Path("no_label.csv").write_text("user,place,n\nann,bar,3\n,gym,1\n")
    Path("minus.csv").write_text("user,place,n\nann,bar,-3\n")
    Path("huge.csv").write_text("user,place,n\nann,bar,9007199254740993\nbob,bar,0.5\n")
    Path("head.csv").write_text("user,place,n\n")
    Path("short.csv").write_text("user,place,n\nann,bar\n")
    Path("dates.csv").write_text("user,when\nann,05/01/2026\n")
    Path("spoilt.csv").write_text("mean,user,place\n1,ann,bar\n")
    Path("a.tns").write_text("1 1 3\n2 2 1\n")
    Path("commas.csv").write_text("user;place;n\nann;bar;4,17\n")
    Path("spaces.csv").write_text("User ID,place,n\nann,bar,4\n")
    Path("twice.tns").write_text("1 2 3\n1 2 3\n")
    Path("wide.csv").write_text("user,p,q\nann,1,\nbob,2,-2\n")
    Path("years.csv").write_text("user,year\nann,2013\n")
    with closing(sqlite3.connect("a.db")) as connection:
        connection.execute("CREATE TABLE a (user TEXT, n INTEGER)")
    Path("folder").mkdir()
    np.save("x.npy", np.ones((3, 2)))
    np.save("cube.npy", np.ones((3, 2, 2)))
    pltf.nmf(rank=1).fit(np.eye(3) + 1).save("run.nc")
    Path("cut.nc").write_bytes(Path("run.nc").read_bytes()[:5000])
    return tmp_path


REFUSED = [
    ((), ""),
    (("frobnicate",), "there is no command 'frobnicate'"),
    (("fit", "a.csv", "-o", "out.nc"), "for example: pltf fit a.csv --index user,place --value n --nmf 5 -o run.nc"),
    (("fit", "a.csv", "-i", "user,place", "--nmf", "1"), "--output must name the file for the fit"),
    ((*NMF, "--frobnicate"), "--frobnicate"),
    ((*NMF, "--restarts", "0"), "--restarts"),
    ((*NMF, "--restarts", "two"), "--restarts"),
    ((*NMF, "--method", "magic"), "--method must be one of vb, em, map, gibbs; got 'magic'"),
    ((*NMF, "--missing", "zero"), "--missing"),
    ((*NMF, "--format", "xml"), "--format"),
    ((*NMF, "--tol", "-1"), "--tol"),
    ((*NMF, "--holdout", "1"), "--holdout must be above 0 and below 1, such as 0.1, got 1"),
    ((*NMF, "--resume"), "--resume needs --checkpoint"),
    ((*NMF, "--checkpoint", "a.csv"), "--checkpoint must be a separate file, and a.csv holds the data"),
    ((*NMF, "--checkpoint", "out.nc"), "--checkpoint and the output must be two files, and both are out.nc"),
    (("fit", "a.csv", "--nmf", "1", "-i", "user,place", "-o", "out.csv"), "the output must end in .nc, got 'out.csv'"),
    (("report", "run.nc", "-o", "out.csv"), "the output must end in .html, .htm, got 'out.csv'"),
    (
        ("fit", "commas.csv", *NMF[2:]),
        "line 2 of column 'n' has '4,17', which is not a number; --decimal , reads decimal",
    ),
    (("fit", "spaces.csv", "--nmf", "1", "-o", "out.nc", "-i", "User ID,place"), "as in 'User ID=user_id'"),
    (("fit", "twice.tns", "--nmf", "1", "-o", "out.nc"), "cell (0, 1) is listed more than once"),
    (
        ("fit", "a.tns", "--model", "X[a,b,c]=U[a,r]*V[b,r]*W[c,r]", "--size", "r=1", "-o", "out.nc"),
        "the model has a, b, c",
    ),
    (("fit", "row 3.csv", "--nmf", "1", "-i", "user,place", "-o", "out.nc"), "there is no file row 3.csv"),
    (("info", "cut.nc"), "cut.nc is damaged: it begins like a netCDF file"),
    ((*NMF, "--nmf", "100000000000"), "--nmf"),
    ((*NMF, "--checkpoint", "nowhere/a.nc"), "--checkpoint must be in an existing folder"),
    ((*NMF, "--count"), "give only one of them"),
    ((*NMF, "--value", "z"), "--value is given twice: n and z"),
    ((*NMF, "--variable", "X"), "--variable cannot be used here"),
    (FIT, "one of --model, --cp, --tucker and --nmf must say what to fit, got none"),
    ((*NMF, "--cp", "2"), "got --cp and --nmf"),
    ((*FIT, "--cp", "2:4"), "--cp must be one size here: to try several, use pltf select"),
    ((*FIT, "--cp", "none"), "--cp must be a whole number of at least 1, got 'none'"),
    ((*FIT, "--cp", "2", "--size", "r=3"), "--size goes with --model"),
    ((*FIT, "--tucker", "2"), "--tucker must have a rank for each of user, place, got 1"),
    ((*FIT, "--model", "ir,jr->ij"), "'r' has no size: give it as --size r=3"),
    ((*FIT, "--model", "ir,jr->ij", "--size", "r"), "--size must be like r=7, got 'r'"),
    ((*FIT, "--model", "ir,jr->ij", "-s", "r=2", "-s", "r=3"), "--size is given twice for 'r'"),
    ((*FIT, "--model", "ir,jr->ij", "--size", "r=2:3"), "--size must be one size"),
    ((*FIT, "--model", "ir,jr->ij", "--size", "r=2"), "the model has i, j"),
    ((*NMF, "--prior", "7"), "--prior must be like shape=0.5,mean=10"),
    ((*NMF, "--prior", "shape=x"), "--prior: shape must be a number, got 'x'"),
    ((*NMF, "--prior", "shape=-1"), "shape must be positive"),
    ((*NMF, "--prior", "Q:shape=1"), "--prior names 'Q'"),
    ((*NMF, "--prior", "shape=1", "--prior", "mean=1"), "--prior is given twice"),
    (("fit", "none.csv", *NMF[2:]), "there is no file none.csv"),
    (("fit", "folder", *NMF[2:]), "folder is a folder"),
    (("fit", "run.nc", "--nmf", "1", "-o", "out.nc"), "saved by pltf, but data are expected here"),
    (
        ("fit", "a.csv", "--nmf", "1", "-o", "out.nc"),
        "--index must say which columns are indices, for example: "
        "pltf fit a.csv --index user,place --value n --nmf 1 -o run.nc",
    ),
    (("fit", "a.csv", "--nmf", "1", "-o", "out.nc", "-i", "user,shop"), "no column 'shop'"),
    (("fit", "wide.csv", "--nmf", "1", "-o", "out.nc", "-i", "user,page", "--wide"), "line 3 of column 'q' holds -2"),
    (("fit", "years.csv", "--nmf", "1", "-o", "out.nc", "-i", "user,year:month"), "--date-format %Y reads years"),
    (
        ("fit", "a.db", "--nmf", "1", "-o", "out.nc", "-i", "user,n", "--query", "DELETE FROM a"),
        "--query may only read, got 'DELETE FROM a'",
    ),
    ((*NMF[:1], "no_label.csv", *NMF[2:]), "column 'user': line 3 has no label: --drop-missing leaves such rows out"),
    (
        ("fit", "a.csv", "-i", "user", "--count", "--sum", "--cp", "2", "-o", "out.nc"),
        "--cp needs at least two indices, and the data have only",
    ),
    (("report", "run.nc"), "--output is missing (The HTML file, such as report.html)"),
    (("fit", "a.csv", "--nmf", "1", "-o", "out.nc", "-i", "user,user"), "--index names 'user' twice"),
    (("fit", "a.csv", "--nmf", "1", "-o", "out.nc", "-i", "user,,place"), "columns with commas between them"),
    (("fit", "a.csv", "--nmf", "1", "-o", "out.nc", "-i", "user,place:week"), "not a date such as 2026-11-09"),
    (("fit", "a.csv", "--nmf", "1", "-o", "out.nc", "-i", "user,place:decade"), "must end in one of minute"),
    (("fit", "dates.csv", "--nmf", "1", "-o", "out.nc", "-i", "user,when:day"), "not a date such as 2026-11-09"),
    (("fit", "words.csv", *NMF[2:]), "line 3 of column 'n' has 'many', which is not a number"),
    (("fit", "twice.csv", *NMF[2:]), "pass --sum to add them up"),
    (("fit", "twins.csv", "--nmf", "1", "-o", "out.nc", "-i", "user,n"), "several columns 'user'"),
    (("fit", "no_label.csv", *NMF[2:]), "line 3 has no label"),
    (("fit", "minus.csv", *NMF[2:]), "must be >= 0"),
    (("fit", "huge.csv", *NMF[2:]), "2**53"),
    (("fit", "head.csv", *NMF[2:]), "head.csv has no rows"),
    (("fit", "short.csv", *NMF[2:]), "line 2 has 2 fields, but there are 3 columns"),
    (("fit", "a.tns", "--nmf", "1", "-o", "out.nc", "--value", "n"), "--value cannot be used here"),
    (("fit", "a.tns", "--nmf", "1", "-o", "out.nc", "-i", "a=b,c"), "plain names of the axes"),
    (("fit", "a.tns", "--nmf", "1", "-o", "out.nc", "-i", "a"), "2 different names"),
    (("fit", "x.npy", "--nmf", "1", "-o", "out.nc", "--sum"), "--sum cannot be used here"),
    (("fit", "x.npy", "--nmf", "1", "-o", "out.nc", "--missing", "unlisted"), "requires a table or a list of cells"),
    (("fit", "cube.npy", "--nmf", "1", "-o", "out.nc"), "--nmf needs two indices, and the data have 3"),
    (("fit", "a.csv", "--nmf", "1", "-i", "user,place", "-o", "run.nc"), "run.nc exists: use --force to overwrite it"),
    (("fit", "a.csv", "--nmf", "1", "-i", "user,place", "-o", "a.csv", "--force"), "is the input"),
    (("fit", "a.csv", "--nmf", "1", "-i", "user,place", "-o", "folder/../a.csv", "--force"), "is the input"),
    (
        ("fit", "a.csv", "--nmf", "1", "-i", "user,place", "-o", "folder"),
        "the output must be a file, and folder is a folder",
    ),
    (("fit", "a.csv", "--nmf", "1", "-i", "user,place", "-o", "nowhere/out.nc"), "there is no folder nowhere"),
    (("fit", "a.csv", "--nmf", "1", "-i", "user,place", "-o", "-"), "must be a file name, got '-'"),
    (("fit", "a.csv", "--nmf", "1", "-i", "user,place", "-o", "/dev/null", "--force"), "not a regular file"),
    (("select", "x.npy", "--nmf", "4:2"), "go from a smaller to a larger number"),
    (("select", "x.npy", "--nmf", "4:12:4"), "a range such as 2:10 or a list such as 2,4,8, got '4:12:4'"),
    (("select", "x.npy", "--nmf", "1:2", "--workers", "0"), "--workers"),
    (("predict", "run.nc"), "either --cells FILE, the cells to predict, or --top N"),
    (("predict", "run.nc", "--cells", "a.csv", "--top", "3"), "either --cells"),
    (("predict", "run.nc", "--cells", "a.csv", "--among", "all"), "--among needs --top"),
    (("predict", "run.nc", "--cells", "a.csv"), "no column 'i'"),
    (("predict", "run.nc", "--cells", "x.npy"), "--cells must be a table with the columns i, j"),
    (("predict", "run.nc", "--top", "3", "--among", "missing"), "--among must be 'zero' or 'all'"),
    (("predict", "run.nc", "--top", "3", "--among", "all", "--level", "1"), "--level must lie between 0 and 1"),
    (("predict", "run.nc", "--top", "3", "--among", "all", "-o", "out.xlsx"), "must end in .csv, .tsv, .parquet"),
    (("predict", "run.nc", "--top", "3", "--among", "all", "-o", "run.nc", "--force"), "is the input"),
    (("predict", "a.csv", "--top", "3"), "a.csv is not a file saved by pltf"),
    (("score", "run.nc"), "run.nc has no held-out cells"),
    (("score", "run.nc", "--value", "n"), "no FILE is given"),
    (("score", "run.nc", "x.npy"), "must be a table with the columns i, j"),
    (("score", "run.nc", "a.csv"), "no column 'i'"),
    (("report", "none.nc", "-o", "out.html"), "there is no file none.nc"),
    (("report", "run.nc", "-o", "run.nc", "--force"), "is the input"),
    (("plan", "x.npy"), "must say which model to fit"),
    (("info", "none"), "there is no file none"),
    (("info", "wrods.csv"), "there is no file wrods.csv; did you mean 'words.csv'?"),
    (("report", "rnu.nc", "-o", "out.html"), "there is no file rnu.nc; did you mean 'run.nc'?"),
    (("convert", "a.csv", "out.xlsx", "-i", "user,place"), "must end in .csv, .tsv, .parquet, .pq, .tns, .npz, .nc"),
    (("convert", "a.csv", "out.npz.gz", "-i", "user,place"), "must end in"),
    (("convert", "a.csv", "out.npz"), "--index must say which columns"),
    (("demo", "a.csv"), "a.csv is a file, and the demo needs a folder"),
]


@pytest.mark.parametrize(("command", "why"), REFUSED, ids=lambda one: " ".join(one) if isinstance(one, tuple) else "")
def test_refused(command: tuple[str, ...], why: str, desk: Path) -> None:
    before = {name: Path(name).read_bytes() for name in os.listdir(desk) if Path(name).is_file()}
    done = here(*command, *(["--json"] if len(command) > 1 else []))
    if command:
        assert why in done.refusal
        assert done.out == ""
    assert done.code == 2
    assert {name: Path(name).read_bytes() for name in os.listdir(desk) if Path(name).is_file()} == before
    assert not list(desk.glob("**/*.part"))


def test_a_model_that_cannot_be_read_is_shown_with_the_place(desk: Path) -> None:
    done = here(*FIT, "--model", "X[i,j] = A[i,r] * A[j,r]", "--size", "r=2")
    assert done.code == 2
    assert done.err.splitlines()[0].startswith("pltf: factor A occurs twice")
    assert done.err.splitlines()[2].strip() == "^"


def test_force_replaces(desk: Path) -> None:
    assert here("fit", "a.csv", "-i", "user,place", "--nmf", "1", "-o", "run.nc", "--force", "-q").code == 0
    fit = pltf.load("run.nc")
    assert isinstance(fit, pltf.Fit)
    assert fit.labels["user"].names() == ["ann", "bob"]


def test_labels_beside_a_tns_file_are_not_replaced_either(desk: Path) -> None:
    Path("out.tns.labels.csv").write_text("mine")
    assert "out.tns.labels.csv exists" in here("convert", "a.csv", "out.tns", "-i", "user,place").refusal
    assert Path("out.tns.labels.csv").read_text() == "mine"


def test_rows_are_added_up_and_counted_when_asked_for(desk: Path) -> None:
    for options, total in ((("--value", "n", "--sum"), 7), (("--count",), 2)):
        done = here("convert", "twice.csv", "out.npz", "-i", "user,place", *options, "--force")
        assert done.code == 0, done
        assert f"total {total}" in done.out


def test_notes_are_kept_back_by_quiet(desk: Path) -> None:
    command = ("fit", "x.npy", "--nmf", "1", "--max-iter", "1", "--force", "-o", "out.nc")
    told = here(*command)
    assert told.code == 0
    assert told.err.startswith("pltf: note: the fit has not converged")
    assert "--max-iter" in told.err
    assert here(*command, "--quiet").err == ""
