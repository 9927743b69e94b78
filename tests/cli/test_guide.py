"""A file and nothing else: what its columns are, and a command that works."""

from __future__ import annotations

import io
import shlex
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import pltf
from tests.cli import Outcome, here

RNG = np.random.default_rng(2)
ROWS = 400


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """A table with columns of every kind."""
    monkeypatch.chdir(tmp_path)
    days = pd.Timestamp("2026-01-01") + pd.to_timedelta(RNG.integers(0, 90, ROWS), unit="D")
    return pd.DataFrame(
        {
            "ride": np.arange(ROWS),
            "user": [f"u{n}" for n in RNG.integers(0, 30, ROWS)],
            "station_id": RNG.integers(100, 110, ROWS),
            "started": days.strftime("%Y-%m-%d"),
            "note": [f"note {n}" for n in range(ROWS)],
            "trips": RNG.integers(1, 5, ROWS),
            "price": RNG.random(ROWS).round(3),
        }
    )


def suggested(done: Outcome) -> list[str]:
    """The arguments of the command that is suggested, also if the given one was refused."""
    text = done.refusal.replace("for example: ", "Next: ") if done.code else done.out
    return shlex.split(text.partition("Next: pltf ")[2])


def test_columns_and_a_command_that_works(table: pd.DataFrame) -> None:
    table.to_csv("rides.csv", index=False)
    done = here("fit", "rides.csv")
    roles = {line.split()[0]: line.split()[1] for line in done.out.splitlines()[1:-1]}
    assert roles == {
        "ride": "not", "user": "labels?", "station_id": "labels?", "started": "dates?", "note": "not",
        "trips": "values?", "price": "not",
    }  # fmt: skip
    assert "rides.csv: 400 rows, 7 columns" in done.out
    command = suggested(done)
    index = "user,station_id,started:week"
    assert command == ["fit", "rides.csv", "--index", index, "--value", "trips", "--sum", "--cp", "5", "-o", "run.nc"]
    assert here(*command, "-q").code == 0
    fit = pltf.load("run.nc")
    assert isinstance(fit, pltf.Fit)
    assert fit.model.observed["X"] == ("user", "station_id", "started")


def test_the_model_that_was_asked_for_is_kept(table: pd.DataFrame) -> None:
    table[["user", "started"]].to_csv("two.csv", index=False)
    assert suggested(here("select", "two.csv", "--nmf", "2:4"))[-4:] == ["--nmf", "2:4", "-o", "search.nc"]
    assert suggested(here("select", "two.csv"))[4:6] == ["--nmf", "2:10"]
    assert "-o" not in suggested(here("plan", "two.csv"))
    assert here("fit", "two.csv", "--json").out == ""


def test_names_that_cannot_be_those_of_indices(table: pd.DataFrame) -> None:
    table = table[["user", "station_id"]].set_axis(["User name", "Last, first"], axis=1)
    table.assign(**{"Last, first": [f"s{n % 7}" for n in range(ROWS)]}).to_csv("odd.csv", index=False)
    command = suggested(here("fit", "odd.csv"))
    assert command[3] == 'User name=user_name,"Last, first=last_first"'
    assert here(*command, "-q").code == 0


def test_a_row_for_each_cell_has_its_value_in_the_column_that_is_left(tmp_path: Path) -> None:
    rows = [(f"a{n}", f"b{m}", n * m) for n in range(6) for m in range(5)]
    pd.DataFrame(rows, columns=["a", "b", "seats"]).to_csv(tmp_path / "cells.csv", index=False)
    command = suggested(here("fit", tmp_path / "cells.csv"))
    assert command[4:6] == ["--value", "seats"]
    assert "--sum" not in command


def test_a_wide_table(tmp_path: Path) -> None:
    wide = pd.DataFrame(RNG.poisson(1.0, (9, 30)), columns=[f"y{n}" for n in range(30)])
    wide.assign(name=list("abcdefghi")).to_csv(tmp_path / "wide.csv", index=False)
    done = here("fit", tmp_path / "wide.csv")
    assert "wide.csv looks like a wide table, with a column for each label: read it with --wide" in done.out
    command = suggested(done)
    assert command[2:] == ["--wide", "--index", "name,column", "--nmf", "5", "-o", "run.nc"]
    assert suggested(here("fit", tmp_path / "wide.csv", "--wide")) == command
    assert here(*command[:-1], tmp_path / "run.nc", "-q").code == 0


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ([str(1_767_225_600 + 86400 * n) for n in range(20)], ["--date-format", "epoch"]),
        ([f"2026-01-{1 + n:02}T10:00+0{1 + n % 2}:00" for n in range(20)], ["--timezone", "UTC"]),
    ],
    ids=["numbers", "offsets"],
)
def test_a_wide_table_with_dates(when: list[str], told: list[str], tmp_path: Path) -> None:
    wide = pd.DataFrame(RNG.poisson(1.0, (20, 12)), columns=[f"y{n}" for n in range(12)])
    wide.map(lambda one: f"{one},5").assign(ts=when).to_csv(tmp_path / "wide.csv", index=False, sep=";")
    command = suggested(here("fit", tmp_path / "wide.csv"))
    assert command[2:] == ["--wide", "--index", "ts:day,column", "--decimal", ",", *told, "--nmf", "5", "-o", "run.nc"]
    assert here(*command[:-1], tmp_path / "run.nc", "-q").code == 0


def test_an_array_has_a_shape_and_a_command(tmp_path: Path) -> None:
    np.save(tmp_path / "counts.npy", RNG.poisson(1.0, (6, 5, 4)))
    done = here("fit", tmp_path / "counts.npy")
    assert "counts.npy: 6 x 5 x 4\nNext: pltf fit" in done.out
    assert suggested(done)[2:] == ["--cp", "5", "-o", "run.nc"]
    assert here(*suggested(done)[:-1], tmp_path / "run.nc", "-q").code == 0


def test_how_the_file_is_read_is_kept(tmp_path: Path) -> None:
    rows = [(f"a{n}", f"b{m}", f"{n},{m}5") for n in range(6) for m in range(5)]
    pd.DataFrame(rows, columns=["a", "b", "yield"]).to_csv(tmp_path / "comma.csv", index=False, sep=";")
    done = here("fit", tmp_path / "comma.csv")
    assert "numbers with decimal commas, 30 different: 0,05 to 5,45" in done.out
    command = suggested(done)
    assert command[2:8] == ["--index", "a,b", "--value", "yield", "--decimal", ","]
    assert here(*command[:-1], tmp_path / "run.nc", "-q").code == 0
    assert suggested(here("fit", tmp_path / "comma.csv", "--decimal", ","))[2:4] == ["--decimal", ","]


def test_incomplete_columns_and_copies_come_last(tmp_path: Path) -> None:
    ports = RNG.integers(0, 12, (300, 2))
    table = pd.DataFrame(ports, columns=["from", "to"]).map("p{}".format)
    codes = {"from_id": ports[:, 0] + 100, "to_id": ports[:, 1] + 100}
    tail = [f"n{n % 90}" if n % 3 else None for n in range(300)]
    table.assign(**codes, tail=tail, line=[f"l{n % 4}" for n in range(300)]).to_csv(tmp_path / "air.csv", index=False)
    done = here("fit", tmp_path / "air.csv")
    assert "60 different: n1 to n89; 100 missing" in done.out
    assert suggested(done)[3] == "from,to,line"


def test_of_several_columns_of_numbers_none_is_the_value(tmp_path: Path) -> None:
    rows = [(f"a{n}", f"b{m}", n * m, n + m + 0.5) for n in range(6) for m in range(5)]
    pd.DataFrame(rows, columns=["a", "b", "temp", "wind"]).to_csv(tmp_path / "weather.csv", index=False)
    assert "--value" not in suggested(here("fit", tmp_path / "weather.csv"))


@pytest.mark.parametrize(("form", "unit"), [("epoch", 1), ("epoch-ms", 1000)])
def test_dates_as_numbers(table: pd.DataFrame, form: str, unit: int) -> None:
    seconds = 1_767_225_600 + RNG.integers(0, 90 * 86400, ROWS)
    kept = table[["user", "station_id"]].assign(ts=seconds * unit, account_id=seconds)
    kept.to_csv("rides.csv", index=False)
    done = here("fit", "rides.csv")
    assert f"dates?    dates as numbers ({form}), " in done.out
    assert "2026-01-01" in done.out
    command = suggested(done)
    assert command[2:6] == ["--index", "user,station_id,ts:week", "--date-format", form]
    assert here(*command, "-q").code == 0
    fit = pltf.load("run.nc")
    assert isinstance(fit, pltf.Fit)
    assert len(fit.labels["ts"]) == 14
    assert shlex.join(suggested(here("fit", "rides.csv", "--date-format", form))).count("date-format") == 1


def test_dates_of_several_offsets_need_a_clock(tmp_path: Path) -> None:
    when = [f"2026-0{1 + n % 9}-11 10:00:00-0{5 + n % 2}:00" for n in range(60)]
    table = pd.DataFrame({"when": when, "who": [f"u{n % 7}" for n in range(60)]})
    table.to_csv(tmp_path / "commits.csv", index=False)
    command = suggested(here("fit", tmp_path / "commits.csv"))
    assert command[4:6] == ["--timezone", "UTC"]
    assert here(*command[:-1], tmp_path / "run.nc", "-q").code == 0


def test_showing_the_columns_is_no_error_but_a_fit_without_them_is(table: pd.DataFrame) -> None:
    table[["user", "started"]].to_csv("two.csv", index=False)
    shown = here("fit", "two.csv")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines()[-1].startswith("Next: pltf fit two.csv --index user,started:week")
    for asked in (("--nmf", "5"), ("-o", "run.nc"), ("-q",)):
        assert "--index must say which columns are indices" in here("fit", "two.csv", *asked).refusal
        assert not Path("run.nc").exists()


def test_columns_that_say_the_same_or_less_are_not_indices(tmp_path: Path) -> None:
    at = RNG.integers(0, 60, 600)
    table = pd.DataFrame({"state": at // 10, "city": at, "zip": at + 7000, "day": RNG.integers(0, 9, 600)})
    table[["state", "city"]] = table[["state", "city"]].map("c{}".format)
    table.to_csv(tmp_path / "shop.csv", index=False)
    assert suggested(here("fit", tmp_path / "shop.csv"))[3] == "city,day"


def test_the_year_of_a_date_is_not_used_twice(tmp_path: Path) -> None:
    months = pd.date_range("1900-01-01", periods=300, freq="MS")
    table = pd.DataFrame({"Year": months.year, "month": months.month_name(), "births": range(300), "date": months})
    table.rename(columns={"births": "count"}).to_csv(tmp_path / "births.csv", index=False)
    assert suggested(here("fit", tmp_path / "births.csv"))[3:6] == ["Year,month", "--value", "count"]


def test_the_month_of_a_week_is_not_used(table: pd.DataFrame) -> None:
    table.assign(month=table["started"].str[5:7].astype(int)).to_csv("rides.csv", index=False)
    assert suggested(here("fit", "rides.csv"))[3] == "user,station_id,started:week"


def test_whole_numbers_are_rather_the_values(table: pd.DataFrame) -> None:
    table.rename(columns={"price": "sales", "trips": "quantity"})[["user", "started", "sales", "quantity"]].to_csv(
        "a.csv"
    )
    assert suggested(here("fit", "a.csv"))[4:6] == ["--value", "quantity"]


def test_dates_as_in_emails(tmp_path: Path) -> None:
    when = [f"Mon, {1 + n % 28} Apr 2017 15:11:58 -0{5 + n % 2}00" for n in range(60)]
    pd.DataFrame({"commit": range(60), "date": when}).to_csv(tmp_path / "commits.csv", index=False)
    done = here("fit", tmp_path / "commits.csv")
    assert "dates?    dates as %a, %d %b %Y" in done.out
    command = suggested(done)
    assert command[3] == "date:weekday=weekday,date:day=day"
    assert command[4:8] == ["--date-format", "%a, %d %b %Y %H:%M:%S %z", "--timezone", "UTC"]
    assert here(*command[:-1], tmp_path / "run.nc", "-q").code == 0


def test_a_first_row_that_looks_like_values(tmp_path: Path) -> None:
    (tmp_path / "no_header.csv").write_text("ann,bar,3\nbob,gym,1\nann,gym,2\n")
    assert "is 3 a value? Then put names above it." in here("fit", tmp_path / "no_header.csv").out


def test_a_table_that_nothing_can_be_guessed_of(tmp_path: Path) -> None:
    pd.DataFrame({"x": RNG.random(50), "y": RNG.random(50)}).to_csv(tmp_path / "xy.csv", index=False)
    assert suggested(here("fit", tmp_path / "xy.csv"))[3:] == ["COLUMN,COLUMN", "--cp", "5"]


def test_the_command_reads_the_file_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    events = pd.DataFrame({"user": ["ann", "bob", "ann"] * 9, "page": ["x", "y", "y"] * 9})
    with closing(sqlite3.connect("shop.db")) as connection:
        events.to_sql("visits", connection, index=False)
        events.to_sql("other", connection, index=False)
    query = ("--query", "SELECT * FROM visits")
    command = suggested(here("fit", "shop.db", *query, "--limit", "1GB"))
    assert command[2:4] == [*query]
    assert here(*command, "--max-iter", 3).code == 0
    piped = SimpleNamespace(buffer=io.BytesIO(events.to_csv(index=False).encode()), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", piped)
    assert suggested(here("fit", "-"))[:2] == ["fit", "-"]


def test_dates_alone_keep_their_values_and_leave_out_rows_without_a_date(tmp_path: Path) -> None:
    days = pd.date_range("2026-01-01", periods=50).strftime("%Y-%m-%d").tolist()
    sales = pd.DataFrame({"date": [*days, None], "sales": np.arange(51) % 7 + 1})
    sales.to_csv(tmp_path / "ts.csv", index=False)
    command = suggested(here("fit", tmp_path / "ts.csv"))
    assert command[command.index("--value") + 1] == "sales"
    assert "--drop-missing" in command
    assert here(*command[:-2], "-o", tmp_path / "run.nc", "-q").code == 0


def test_whole_numbers_with_blanks_are_labels(tmp_path: Path) -> None:
    days = pd.date_range("2026-01-01", periods=40).strftime("%Y-%m-%d").tolist()
    rows = {"user": [*RNG.integers(1, 6, 39).astype(str), ""], "date": days, "place": list("abcd") * 10}
    pd.DataFrame(rows).to_csv(tmp_path / "ids.csv", index=False)
    command = suggested(here("fit", tmp_path / "ids.csv"))
    assert "user" in command[command.index("--index") + 1].split(",")
    assert "--value" not in command
    assert "--drop-missing" in command


def test_a_label_that_repeats_the_date_still_makes_a_command(tmp_path: Path) -> None:
    days = pd.date_range("2026-01-01", periods=300)
    rows = {"when": days.strftime("%Y-%m-%d"), "month": days.strftime("%b"), "n": np.arange(300) % 5 + 1}
    pd.DataFrame(rows).to_csv(tmp_path / "mb.csv", index=False)
    command = suggested(here("fit", tmp_path / "mb.csv"))
    assert "COLUMN,COLUMN" not in command
    assert here(*command[:-2], "-o", tmp_path / "run.nc", "-q").code == 0
