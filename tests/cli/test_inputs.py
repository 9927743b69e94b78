"""How files of every kind are read by the commands."""

from __future__ import annotations

import io
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import pltf
from pltf.cli import commands
from pltf.cli.main import run
from tests.cli import here

FIT = ("fit", "--nmf", "1", "-o", "out.nc", "--max-iter", "5")
EVENTS = "user,page,age\nann,x,31\nbob,y,27\nann,x,31\n"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fitted(*words: str) -> pltf.Fit:
    done = here(*FIT, "--force", *words)
    assert done.code == 0, done
    found = pltf.load("out.nc")
    assert isinstance(found, pltf.Fit)
    return found


def refused(*words: str) -> str:
    return here(*FIT, *words).refusal


def test_rows_are_counted_unless_a_column_is_named(desk: Path) -> None:
    (desk / "a.csv").write_text(EVENTS)
    done = here(*FIT, "a.csv", "-i", "user,page")
    told = "a.csv: every row counts one, and the column age is not used: name it with --value, or pass --count"
    assert (done.code, done.err) == (0, f"pltf: note: {told}\n")
    assert "3 rows of a.csv, each one count" in done.out
    assert "total 3" in done.out
    assert here(*FIT, "a.csv", "-i", "user,page", "--count", "--force").err == ""
    assert "line 2 and line 4; pass --sum to add them up" in refused(
        "a.csv", "-i", "user,page", "--value", "age", "--force"
    )


def test_blanks(desk: Path) -> None:
    (desk / "a.csv").write_text(" user ,page\nann,x\nann ,y\n")
    done = here(*FIT, "a.csv", "-i", "user,page")
    assert "were merged, such as 'ann' and 'ann ': --keep-blanks keeps them distinct" in done.err
    assert "user 1 x page 2" in done.out
    (desk / "b.csv").write_text("user,page\nann,x\nann ,y\n")
    fit = fitted("b.csv", "-i", "user,page", "--keep-blanks")
    assert fit.labels["user"].names() == ["ann", "ann "]
    (desk / "asked.csv").write_text("user,page\nann ,x\n")
    asked = here("predict", "out.nc", "--cells", "asked.csv", "--json")
    assert '"user": "ann "' in asked.out  # as the data of the fit were read
    for word in (" ann", "bob "):
        (desk / "asked.csv").write_text(f"user,page,n\n{word},x,1\n")
        unknown = f"line 2 has {word!r}, which is not one of its 2 labels"
        assert unknown in here("predict", "out.nc", "--cells", "asked.csv").refusal
        assert unknown in here("score", "out.nc", "asked.csv", "--value", "n").refusal


def test_numbers_that_are_ambiguous(desk: Path) -> None:
    (desk / "a.csv").write_text("user;page;n\nann;x;6.200\nbob;y;17\n")
    words = ("a.csv", "-i", "user,page", "--value", "n")
    assert "line 2 of column 'n' has 6.200, which is ambiguous: pass --decimal , if it is 6200" in refused(*words)
    assert here("convert", "a.csv", "b.npz", *words[1:], "--decimal", ",").out.count("total 6217") == 1
    assert here("convert", "a.csv", "c.npz", *words[1:], "--decimal", ".").out.count("total 23.2") == 1


@pytest.mark.parametrize(
    ("text", "words", "why"),
    [
        ("user,page,n\n\na,x,-1\n", ("--value", "n"), "line 3 of column 'n' holds -1"),
        ("user,page,n\na,x,1\n\nb,,1\n", ("--value", "n"), "column 'page': line 4 has no label"),
        ("user,page,n\na,x,many\n", ("--value", "n"), "line 2 of column 'n' has 'many', which is not a number"),
        ('user,page,n\na,x,"4,17"\n', ("--value", "n"), "line 2 of column 'n' has '4,17', which is not a number"),
        ('user,page,n\na,x,"6,200"\n', ("--value", "n"), "not a number; --decimal . reads thousands separators"),
        ("user,page\na,x\n", ("--date-format", "epoch"), "--date-format requires an index of dates"),
        ("user,page\na,x\n", ("--timezone", "UTC"), "--timezone requires an index of dates"),
    ],
)  # fmt: skip
def test_lines_are_counted_from_the_header(text: str, words: tuple[str, ...], why: str, desk: Path) -> None:
    (desk / "a.csv").write_text(text)
    assert why in refused("a.csv", "-i", "user,page", *words)


def test_lines_of_other_texts(desk: Path) -> None:
    (desk / "a.tns").write_text("# a comment\n1 1 3\n\n2 1 -4\n")
    assert "line 4" in refused("a.tns") or "-4" in refused("a.tns")
    (desk / "a.csv").write_text(EVENTS)
    fitted("a.csv", "-i", "user,page", "--count")
    (desk / "asked.csv").write_text("user,page\nann,x\n\ncid,x\n")
    assert (
        "line 4 has 'cid', which is not one of its 2 labels"
        in here("predict", "out.nc", "--cells", "asked.csv").refusal
    )
    (desk / "held.csv").write_text("user,page,n\nann,x,1\nann,x,2\n")
    told = here("score", "out.nc", "held.csv", "--value", "n").refusal
    assert "line 3 repeats a cell of an earlier row" in told
    assert "--value must say which column of held.csv holds the values" in here("score", "out.nc", "held.csv").refusal


# -- dates ------------------------------------------------------------------------------------------


def days(*words: str) -> list[str]:
    return fitted("a.csv", *words).labels["when"].names()


def test_dates_in_any_form(desk: Path) -> None:
    (desk / "a.csv").write_text("user,when\nann,09.11.2026\nbob,11.11.2026\n")
    day = ("-i", "user,when:day")
    assert days(*day, "--date-format", "%d.%m.%Y") == ["2026-11-09", "2026-11-10", "2026-11-11"]
    assert (
        "line 2 of column 'when' has '09.11.2026', which is not a date such as 2026-11-09; set the format"
        in refused("a.csv", *day, "--force")
    )
    told = refused("a.csv", *day, "--date-format", "%m/%d/%Y", "--force")
    assert "line 2 of column 'when' has '09.11.2026', which does not match --date-format %m/%d/%Y" in told
    (desk / "a.csv").write_text("user,when\nann,20261109\nbob,20261110\n")
    assert days(*day, "--date-format", "%Y%m%d") == ["2026-11-09", "2026-11-10"]
    assert "--date-format %Y%m%d reads days such as 20261109" in refused("a.csv", *day, "--force")


@pytest.mark.parametrize(("form", "scale"), [("epoch", 1), ("epoch-ms", 1000), ("epoch-ns", 10**9)])
def test_seconds_since_1970(form: str, scale: int, desk: Path) -> None:
    moment = 1_774_744_200  # 2026-03-29 00:30 in UTC, half an hour before summer time
    (desk / "a.csv").write_text(f"user,when\nann,{moment * scale}\nbob,{(moment + 3600) * scale}\n")
    assert f"--date-format {form} reads" in refused("a.csv", "-i", "user,when:hour")
    assert days("-i", "user,when:hour", "--date-format", form) == ["2026-03-29", "2026-03-29 01:00:00"]
    assert fitted("a.csv", "-i", "user,when:hour", "--date-format", form).labels["when"].zone == "UTC"
    berlin = days("-i", "user,when:hour", "--date-format", form, "--timezone", "Europe/Berlin")
    assert (berlin[0], berlin[-1]) == ("2026-03-29 01:00:00", "2026-03-29 03:00:00")
    (desk / "a.csv").write_text(f"user,when\nann,{moment}\nbob,soon\n")
    assert "line 3 of column 'when' has 'soon', which does not match --date-format" in refused(
        "a.csv", "-i", "user,when:hour", "--date-format", form, "--force"
    )


def test_time_zones(desk: Path) -> None:
    hour = ("-i", "user,when:hour", "--timezone", "Europe/Berlin")
    (desk / "a.csv").write_text(
        "user,when\nann,2026-10-25T00:30Z\nbob,2026-10-25T02:30+01:00\ncid,2026-10-25 02:30-00:00\n"
    )
    assert days(*hour) == ["2026-10-25 02:00:00", "2026-10-25 03:00:00"]  # two moments that the clock shows alike
    (desk / "a.csv").write_text("user,when\nann,2026-10-25 02:30\nbob,2026-10-25 03:30\n")
    fit = fitted("a.csv", *hour)
    assert (fit.labels["when"].zone, fit.labels["when"].names()[0]) == ("Europe/Berlin", "2026-10-25 02:00:00")
    (desk / "a.csv").write_text("user,when\nann,2026-03-29 02:30\n")
    told = refused("a.csv", *hour, "--force")
    assert "line 2 of column 'when' has 2026-03-29 02:30:00, which does not exist in Europe/Berlin" in told
    assert "--timezone must be a time zone such as Europe/Berlin" in refused(
        "a.csv", "-i", "user,when:hour", "--timezone", "Mars", "--force"
    )


def test_one_column_of_dates_twice(desk: Path) -> None:
    (desk / "a.csv").write_text("user,when\nann,2026-11-09 18:00\nbob,2026-11-10 07:00\n")
    fit = here("fit", "a.csv", "-i", "user,when:weekday=day,when:hourofday=hour", "--cp", "1", "-o", "out.nc")
    assert "user 2 x day 7 x hour 24" in fit.out


def test_bins_are_called_as_in_the_report(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk / "a.csv").write_text("user,when\nann,2015-11-09\nbob,2015-12-01\nann,2016-01-05\n")
    done = here(*FIT, "a.csv", "-i", "user,when:month")
    assert "December 2015" in done.out
    assert "2015-12" not in done.out + here("info", "out.nc").out
    asked = ("predict", "out.nc", "--top", "3")
    assert here(*asked).out.count("2015-12,") == 1  # a pipe gets dates that can be read again
    assert here(*asked, "--json").out.count('"2015-12"') == 1
    monkeypatch.setattr(commands, "is_terminal", lambda: True)
    assert here(*asked).out.count("December 2015") == 1
    for date in ("2015-12-24", "2015-12", "December 2015"):
        (desk / "asked.csv").write_text(f"user,when\nann,{date}\n")
        assert date in here("predict", "out.nc", "--cells", "asked.csv").out  # as it was asked
    seen = pltf.observe(pd.read_csv("a.csv"), dims=["user", "when:month"])
    assert repr(seen.labels["when"]) == "<Labels November 2015, December 2015, January 2016>"
    assert "December 2015" in seen._repr_html_()


def test_bins_can_be_asked_for_as_they_are_shown(desk: Path) -> None:
    (desk / "a.csv").write_text("when\n2015-11-09 10:30\n2015-12-01 07:00\n2016-01-05 10:00\n")
    index = "when:weekday=day,when:hourofday=hour,when:year=year"
    assert here("fit", "a.csv", "-i", index, "--cp", "1", "-o", "out.nc").code == 0
    asked = ("predict", "out.nc", "--cells", "asked.csv")
    (desk / "asked.csv").write_text("day,hour,year\nMonday,10,2015\n")
    by_label = here(*asked, "--json").out
    (desk / "asked.csv").write_text("day,hour,year\n2015-11-09,2015-11-09T10:30,2015-03-04\n")
    assert json.loads(by_label)["cells"][0]["mean"] == json.loads(here(*asked, "--json").out)["cells"][0]["mean"]
    fit = pltf.load("out.nc")
    assert isinstance(fit, pltf.Fit)
    assert fit.mean([("Monday", 10, 2015)]) == fit.mean([("Monday", 10, "2015")])
    for row, told in {
        "Mon,10,2015": "column 'day': line 2 has 'Mon', which is not a day from Monday to Sunday",
        "Monday,25,2015": "column 'hour': line 2 has 25, which is not an hour from 0 to 23",
    }.items():
        (desk / "asked.csv").write_text(f"day,hour,year\n{row}\n")
        assert told in here(*asked).refusal


def test_rows_without_a_label_can_be_left_out(desk: Path) -> None:
    (desk / "a.csv").write_text("user,when,n\nann,2026-11-09,1\n,2026-11-10,2\nzoe,,4\nbob,2026-11-10,8\n")
    asked = (*FIT, "a.csv", "-i", "user,when:day", "--value", "n")
    assert here(*asked).refusal == (
        "a.csv: column 'user': line 3 has no label (and 1 more): --drop-missing leaves such rows out"
    )
    done = here(*asked, "--drop-missing")
    assert "2 of the 4 rows of a.csv have no label and are left out" in done.err
    assert "user 2 x when 2" in done.out
    assert "total 9" in done.out
    (desk / "b.csv").write_text("user,when,n\n,2026-11-10,2\nbob,2026-11-10,-8\n")
    assert "line 3 of column 'n' holds -8" in here("update", "out.nc", "b.csv", "-o", "out2.nc").err  # read alike


# -- wide tables and arrays with names --------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.csv", pytest.param("a.xlsx", marks=pytest.mark.extra("io")), "a.jsonl"])
def test_wide_tables(name: str, desk: Path) -> None:
    wide = pd.DataFrame({"user": ["bob", "ann"], "x": [1, 0], "y": [3, 4]})
    write: dict[str, Callable[[], object]] = {
        "a.csv": lambda: wide.to_csv(name, index=False),
        "a.xlsx": lambda: wide.to_excel(name, index=False),
        "a.jsonl": lambda: wide.to_json(name, orient="records", lines=True),
    }
    write[name]()
    fit = fitted(name, "--wide", "-i", "user,page")
    assert (fit.labels["user"].names(), fit.labels["page"].names()) == (["bob", "ann"], ["x", "y"])
    assert fit.mean([("ann", "y")]) > fit.mean([("ann", "x")])


def test_wide_tables_of_more_columns_and_of_dates(desk: Path) -> None:
    (desk / "a.csv").write_text(
        "user,place,2026-01-05,2026-01-06,2026-01-12\nann,gym,1,2,3\nann,bar,0,1,0\nbob,gym,0,0,1\n"
    )
    done = here("fit", "a.csv", "--wide", "-i", "user,place,when:week", "--cp", "1", "--sum", "-o", "out.nc")
    assert "user 2 x place 2 x when 2" in done.out, done
    told = here("fit", "a.csv", "--wide", "-i", "user,place,when", "--cp", "1", "-o", "out.nc", "--force")
    assert "user 2 x place 2 x when 3" in told.out
    (desk / "a.csv").write_text("user,place,2026-01-05,2026-01-06\nann,gym,1,\n")
    told = here("fit", "a.csv", "--wide", "-i", "user,place,when", "--cp", "1", "-o", "out.nc", "--force")
    assert "1 cells observed, 1 of them above zero" in told.out  # an empty cell is missing
    weeks = ("-i", "user,place,when:week", "--sum")
    assert "one of them has no value" in here("convert", "a.csv", "x.npz", "--wide", *weeks).refusal
    (desk / "b.csv").write_text(",x,y\nann,1,2\nbob,3,4\n")  # as pandas writes row labels without a name
    assert fitted("b.csv", "--wide", "-i", "user,page").labels["user"].names() == ["ann", "bob"]


@pytest.mark.parametrize(
    ("text", "words", "why"),
    [
        ("user,x\nann,1\n", ("-i", "user"), "--wide needs at least two names with --index"),
        ("user,x\nann,1\n", ("-i", "who,page"), "no column 'who'; it has user, x"),
        ("user,x,y\nann,1,many\n", ("-i", "user,page"), "line 2 of column 'y' has 'many', which is not a number"),
        ("user,x,x\nann,1,2\n", ("-i", "user,page"), "several columns with the same name"),
        ("user,x,\nann,1,2\n", ("-i", "user,page"), "a column without a name"),
        ("user\nann\n", ("-i", "user,page"), "no columns of values"),
        ("user,page,n\nann,7,1\n", ("-i", "user,page"), "and 'page' is a column: a long table is read without --wide"),
        ("user,x\nann,1\n", ("-i", "user,page", "--value", "x"), "--value cannot be used here"),
        ("user,x\nann,1\nann,2\n", ("-i", "user,page"), "listed more than once, in line 2 and line 3; pass --sum"),
    ],
)
def test_wide_tables_that_cannot_be_read(text: str, words: tuple[str, ...], why: str, desk: Path) -> None:
    (desk / "a.csv").write_text(text)
    assert why in refused("a.csv", "--wide", *words)


def test_dimensions_with_any_name(desk: Path) -> None:
    array = xr.DataArray(np.eye(2), dims=("the-user", "page"), coords={"the-user": ["a", "b"]}, name="n")
    array.to_netcdf("a.nc", engine="h5netcdf")
    done = here(*FIT, "a.nc")
    assert "a.nc (the_user is 'the-user'): the_user 2 x page 2" in done.out
    assert fitted("a.nc", "-i", "the-user=who,page").labels["who"].names() == ["a", "b"]
    assert list(fitted("a.nc", "-i", "i,j").labels) == ["i"]
    assert "--index must name the dimensions of a.nc, the-user, page" in refused("a.nc", "-i", "page,x", "--force")


# -- standard input, and what was read before -------------------------------------------------------


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes, terminal: bool = False) -> None:
    stdin = SimpleNamespace(buffer=io.BytesIO(content), isatty=lambda: terminal)
    monkeypatch.setattr(sys, "stdin", stdin)


def test_standard_input(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, EVENTS.encode())
    done = here(*FIT, "-", "-i", "user,page", "--count")
    assert "3 rows of standard input, each one count" in done.out
    pipe(monkeypatch, EVENTS.encode())
    assert "standard input has no column 'shop'" in refused("-", "-i", "user,shop", "--force")
    pipe(monkeypatch, EVENTS.encode())
    asked = here("predict", "out.nc", "--cells", "-", "--json")
    assert asked.code == 0
    pipe(monkeypatch, b"")
    assert refused("-", "-i", "user,page", "--force") == "standard input is empty"
    pipe(monkeypatch, b"", terminal=True)
    assert "nothing is piped into it" in refused("-", "-i", "user,page", "--force")
    pipe(monkeypatch, b"x" * 3_000_000)
    assert "standard input would take more than 2.0 MB" in refused("-", "-i", "user,page", "--force", "--limit", "2MB")
    assert sorted(one.name for one in desk.iterdir()) == ["out.nc"]


def test_further_data_are_read_as_the_first(desk: Path) -> None:
    text = "user;n;when\nZo\u00eb;6.200;09.11.2026\nbob;1;10.11.2026\n"
    (desk / "a.csv").write_text(text, encoding="cp1252")
    words = ("--encoding", "cp1252", "--decimal", ",", "--date-format", "%d.%m.%Y", "--value", "n")
    fit = fitted("a.csv", "-i", "user,when:day", *words)
    assert fit.origin["read"] == (
        "--index user,when:day --value n --missing nan --encoding cp1252 --decimal , --date-format %d.%m.%Y"
    )
    assert run(["update", "out.nc", "a.csv", "-o", "more.nc", "--quiet"]) == 0
    again = pltf.load("more.nc")
    assert isinstance(again, pltf.Fit)
    assert again.labels["user"].names() == fit.labels["user"].names()


def test_passwords_are_not_kept(desk: Path) -> None:
    told = refused("mysql+nosuch://ann:pa55@host/shop", "-i", "user,page")
    assert "pa55" not in told


def test_further_data_of_another_format(desk: Path) -> None:
    (desk / "a.csv").write_text("user;page;n\nann;x;1,0\nbob;y;2,0\n", encoding="cp1252")
    words = ("--encoding", "cp1252", "--decimal", ",", "--value", "n")
    fitted("a.csv", "-i", "user,page", *words)
    (desk / "b.jsonl").write_text('{"user": "ann", "page": "y", "n": 3}\n')
    done = here("update", "out.nc", "b.jsonl", "-o", "more.nc")  # has no decimal commas
    assert done.code == 0, done
    refusal = here("update", "out.nc", "b.jsonl", "-o", "more.nc", "--force", "--decimal", ",").refusal
    assert refusal == "--decimal cannot be used here: b.jsonl is a jsonl file"


def test_cells_are_read_with_the_same_options(desk: Path) -> None:
    (desk / "a.csv").write_text("user,page,n\nann,x,3\nann,y,1\nbob,x,2\nZo\u00eb,y,4\n")
    fitted("a.csv", "-i", "user,page", "--value", "n")
    (desk / "held.csv").write_text("user;page;n\nZo\u00eb;x;1,5\nbob;y;0,0\n", encoding="cp1252")
    how = ("--encoding", "cp1252")
    assert "--decimal , reads decimal commas" in here("score", "out.nc", "held.csv", "--value", "n", *how).refusal
    done = here("score", "out.nc", "held.csv", "--value", "n", *how, "--decimal", ",")
    assert done.code == 0, done
    asked = here("predict", "out.nc", "--cells", "held.csv", *how, "--json")
    assert [cell["user"] for cell in json.loads(asked.out)["cells"]] == ["Zo\u00eb", "bob"]
    assert here("score", "out.nc", *how).refusal == "--encoding needs a table of cells, and no FILE is given"


def test_stores_from_standard_input_and_databases(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, EVENTS.encode())
    done = here("prepare", "-", "-i", "user,page", "-o", "piped.pltf")
    assert (done.code, done.err) == (0, "")
    assert "2 of 2 user, 2 page; total 3" in done.out
    with closing(sqlite3.connect("shop.db")) as base, base:
        pd.read_csv(io.StringIO(EVENTS)).to_sql("visits", base, index=False)
        pd.DataFrame({"x": [1]}).to_sql("others", base, index=False)
    words = ("-i", "user,page", "--value", "age", "--sum", "-o", "shop.pltf", "--force")
    assert "has the tables others, visits: give the name of one" in here("prepare", "shop.db", *words).refusal
    for source in ("shop.db", f"sqlite:///{desk / 'shop.db'}", f"sqlite+pysqlite:///{desk / 'shop.db'}"):
        done = here("prepare", source, "--query", "visits", *words)
        assert "total 89" in done.out, done
    assert here("fit", "shop.pltf", "--nmf", "1", "-o", "out.nc").code == 0
    (desk / "a.csv").write_text(EVENTS)
    assert (
        "--query cannot be used here: a.csv is a csv file" in here("prepare", "a.csv", "--query", "x", *words).refusal
    )
    absent = here("prepare", "shop.db", "--query", "visits", "-i", "shop", *words[2:]).refusal
    assert absent == "shop.db: the table must have a column 'shop'; it has user, page, age"
    for url in ("https://x.org/a.csv", "nonsense://x"):
        assert here("prepare", url, *words).code == 2
