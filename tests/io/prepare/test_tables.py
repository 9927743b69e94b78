"""Tables of every kind, prepared and observed: both have the same cells and labels."""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pltf
from pltf.data.labels import BINS
from pltf.io.files import read_data
from tests.extras import required
from tests.io.prepare.reading import assert_same, refusal, stored

pa = required("pyarrow")
pq = required("pyarrow.parquet")
duckdb = required("duckdb")
pytestmark = pytest.mark.extra("io")

ZONE = "Europe/Berlin"
WORDS = ["b", "a", "é", "Z", "\U00010000", "\uffff", "aa", "", "a\x00b", "10", "9", "ａ"]
LABELS: dict[str, Any] = {
    "words": WORDS,
    "whole": [3, -1, 2**62, 7],
    "row": [5, 6, 7, 8, 9],
    "small": np.array([3, 1, 2], dtype=np.int8),
    "unsigned": np.array([3, 1, 200], dtype=np.uint8),
    "real": [0.5, -2.0, 3.0, 1e300],
    "single": np.array([0.5, -2.0], dtype=np.float32),
    "truth": [True, False],
    "dates": pd.to_datetime(["2026-11-09", "2024-02-29", "2026-11-09 18:30:01.25"], format="ISO8601"),
    "nanoseconds": pd.to_datetime(["2026-11-09 00:00:00.000000001", "2026-11-09"], format="ISO8601").as_unit("ns"),
    "seconds": pd.to_datetime(["1960-01-01", "2026-11-09"]).as_unit("s"),
    "zoned": pd.to_datetime(["2026-03-29 00:59", "2026-03-29 01:01", "2026-11-09 00:00"], utc=True).tz_convert(ZONE),
    "offset": pd.to_datetime(["2026-03-29 00:59", "2026-11-09 00:00"], utc=True).tz_convert("+05:30"),
    "days": [datetime.date(2026, 11, 9), datetime.date(1999, 12, 31)],
}


def drawn(rng: np.random.Generator, kinds: list[str], rows: int) -> pd.DataFrame:
    """A random table with columns of these kinds."""
    columns = {}
    for number, kind in enumerate(kinds):
        labels = pd.Series(LABELS[kind])
        columns[f"c{number}"] = labels.iloc[rng.integers(0, len(labels), rows)].reset_index(drop=True)
    return pd.DataFrame(columns)


def parquet(table: pd.DataFrame, path: Path) -> Path:
    """The table in a file."""
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), path, row_group_size=7)
    return path


def test_labels_of_every_kind_are_those_of_observe(tmp_path: Path) -> None:
    table = drawn(np.random.default_rng(5), list(LABELS), 60)
    dims = dict(zip(table.columns, LABELS, strict=True))
    seen = pltf.observe(table, dims=dims, count=True)
    pltf.prepare(table, tmp_path / "memory", dims=dims)
    pltf.prepare(parquet(table, tmp_path / "t.parquet"), tmp_path / "file", dims=dims)
    for name in ("memory", "file"):
        found = assert_same(tmp_path / name, seen)
        assert {dim: labels.zone for dim, labels in found.labels.items()} == {
            d: seen.labels[d].zone for d in dims.values()
        }


@pytest.mark.parametrize("kind", ["us", "ns", ZONE, "+05:30", "date", "words", "odd words"])
def test_bins_are_those_of_observe(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    moments = pd.Series(pd.Timestamp("1969-12-20") + pd.to_timedelta(rng.integers(0, 10**16, 40), unit="ns"))
    moments[0] = pd.Timestamp("2026-03-29 00:59:59.999999999")
    held = {
        "us": lambda: moments.dt.as_unit("us"),
        "ns": lambda: moments,
        ZONE: lambda: moments.dt.as_unit("us").dt.tz_localize("UTC").dt.tz_convert(ZONE),
        "+05:30": lambda: moments.dt.as_unit("us").dt.tz_localize("UTC").dt.tz_convert("+05:30"),
        "date": lambda: moments.dt.date,
        "words": lambda: moments.dt.strftime("%Y-%m-%dT%H:%M:%S.%f"),
        "odd words": lambda: moments.dt.strftime("%Y%m%dT%H%M%S%z").where(
            moments.index % 2 == 0, "1990-01-01T00Z"[:-1]
        ),
    }[kind]()
    table = pd.DataFrame({"when": held})
    dims = {f"when:{bin}": bin for bin in BINS if bin != "minute"}
    seen = pltf.observe(table, dims=dims, count=True)
    pltf.prepare(parquet(table, tmp_path / "t.parquet"), tmp_path / "file", dims=dims)
    pltf.prepare(table, tmp_path / "memory", dims=dims)
    for name in ("file", "memory"):
        found = assert_same(tmp_path / name, seen)
        assert all(found.labels[dim].zone == seen.labels[dim].zone for dim in seen.labels)


def test_minutes(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"when": pd.to_datetime(["2026-11-09 18:30:59.999999999", "2026-11-09 18:00"], format="ISO8601")}
    )
    pltf.prepare(table, tmp_path / "cells", dims=["when:minute"])
    assert_same(tmp_path / "cells", pltf.observe(table, dims=["when:minute"], count=True))


@pytest.mark.parametrize("seed", range(4))
def test_random_tables_are_those_of_observe(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    kinds = [str(one) for one in rng.choice(list(LABELS), size=rng.integers(1, 5))]
    table, dims = drawn(rng, kinds, 300), [f"c{number}" for number in range(len(kinds))]
    pltf.prepare(table, tmp_path / "counted", dims=dims, cells_per_part=9)
    found = assert_same(tmp_path / "counted", pltf.observe(table, dims=dims, count=True))
    assert len(found.parts) > 1 or max(found.about["sizes"]) < 6
    table["x"] = rng.integers(0, 900, 300) if seed % 2 else rng.gamma(1.0, size=300)
    pltf.prepare(parquet(table, tmp_path / "t.parquet"), tmp_path / "sums", dims=dims, value="x", duplicates="sum")
    assert_same(tmp_path / "sums", pltf.observe(table, dims=dims, value="x", duplicates="sum"))
    once = table.drop_duplicates(dims).reset_index(drop=True)
    once.loc[rng.random(len(once)) < 0.3, "x"] = np.nan
    for unlisted in ("zero", "missing"):
        pltf.prepare(once, tmp_path / unlisted, dims=dims, value="x", unlisted=unlisted, cells_per_part=20)
        assert_same(tmp_path / unlisted, pltf.observe(once, dims=dims, value="x", unlisted=unlisted))


@pytest.mark.parametrize("packed", [False, True])
def test_text_is_read_as_the_command_line_reads_it(packed: bool, tmp_path: Path) -> None:
    ending = ".csv.gz" if packed else ".csv"
    table = pd.DataFrame(
        {
            "zip": ["007", "123", "7", "NA", "a,b", 'say "x"', "two\nlines", "é"],
            "number": ["12", "-3", "0", "12", "5", "12", "0", "-3"],
            "when": ["2026-11-09", "2026-11-09T18:30", "2026-12-01 00:00:01.5", "2026-11-10"] * 2,
            "odd": ["2026-11-09", "20261110", "2026-11-09T18:30:01.123456789", "2026-11-10"] * 2,
            "x": ["1", "2.5", "NA", "", " 7 ", "1e2", "true", ".5"],
        }
    )
    first, second = tmp_path / f"one{ending}", tmp_path / f"two{ending}"
    table[:5].to_csv(first, index=False)
    table[5:].to_csv(second, index=False, columns=["x", "zip", "when", "odd", "number"])
    whole = tmp_path / "whole.csv"
    table.to_csv(whole, index=False)
    dims = ["zip", "number", "when:hour", "odd:week"]
    keys = ["zip", "number", "when", "odd"]
    seen = pltf.observe(read_data(whole, keys=keys, columns=[*keys, "x"]), dims=dims, value="x")
    pltf.prepare([first, second], tmp_path / "cells", dims=dims, value="x")
    found = assert_same(tmp_path / "cells", seen)
    assert found.labels["zip"].index.dtype == object
    assert found.labels["number"].index.tolist() == [-3, 0, 5, 12]
    seen = pltf.observe(read_data(whole, keys=["when"], columns=["when"]), dims=["when"], count=True)
    pltf.prepare(whole, tmp_path / "words", dims=["when"])
    assert_same(tmp_path / "words", seen)


def test_dates_in_words_may_have_a_zone(tmp_path: Path) -> None:
    table = pd.DataFrame({"when": ["2026-11-09T23:30+01:00", "2026-11-10T00:30:00+01:00"], "who": ["a", "b"]})
    pltf.prepare(table, tmp_path / "cells", dims=["when:day", "who"])
    found = assert_same(tmp_path / "cells", pltf.observe(table, dims=["when:day", "who"], count=True))
    assert found.labels["when"].zone == "UTC+01:00"


def test_moments_that_are_one_by_the_clock_are_refused(tmp_path: Path) -> None:
    moments = pd.to_datetime(["2026-10-25 00:30", "2026-10-25 01:30"], utc=True).tz_convert(ZONE)
    told = refusal(pd.DataFrame({"t": moments}), tmp_path / "cells", dims=["t"])
    assert "two times with the same local time in Europe/Berlin" in told


def batches(table: pd.DataFrame) -> Iterator[Any]:
    """A table in batches of different libraries and types."""
    polars = required("polars")
    yield table[:0]
    yield table[:40]
    yield pa.Table.from_pandas(table[40:80], preserve_index=False)
    yield polars.from_pandas(table[80:120])
    yield from pa.Table.from_pandas(table[120:].astype({"n": np.int16}), preserve_index=False).to_batches(50)


@pytest.mark.parametrize(
    "kind", ["pandas", "polars", "arrow", "reader", "batches", "relation", "sql", "dask", "dataset"]
)
def test_sources_of_every_kind(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    table = drawn(rng, ["words", "dates"], 200).assign(n=rng.integers(0, 30_000, 200))
    table["c1"] = table["c1"].dt.as_unit("us")
    connection: Any = duckdb.connect()
    options: dict[str, Any] = {}
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    if kind == "sql":
        connection.register("events", arrow)
        options["connection"] = connection
    source: Any = {
        "pandas": lambda: table,
        "polars": lambda: required("polars").from_pandas(table),
        "arrow": lambda: arrow,
        "reader": lambda: pa.RecordBatchReader.from_batches(arrow.schema, iter(arrow.to_batches(17))),
        "batches": lambda: batches(table),
        "relation": lambda: connection.from_arrow(arrow),
        "sql": lambda: "SELECT c0, c1, CAST(n AS HUGEINT) AS n FROM events",
        "dataset": lambda: required("pyarrow.dataset").dataset(arrow),
        "dask": lambda: required("dask.dataframe").from_pandas(table, npartitions=3),
    }[kind]
    dims = {"c0": "user", "c1:month": "month"}
    done = pltf.prepare(source(), tmp_path / "cells", dims=dims, value="n", duplicates="sum", **options)
    seen = pltf.observe(table, dims=dims, value="n", duplicates="sum")
    found = assert_same(tmp_path / "cells", seen)
    assert (done.cells, done.shape, done.total) == (len(found.cells), seen.shape, seen.total)
    connection.close()


@pytest.mark.parametrize(
    "kind",
    ["feather", "jsonl", "json", "excel", "sqlite", "duckdb", "sql", "zip", "zst", "utf-16", "gz and utf-16", "cp1252"],
)
def test_files_of_every_kind(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("databases", "records"):
        monkeypatch.setattr(f"pltf.io.{module}._BATCH", 70)
    rng = np.random.default_rng(9)
    words = [" Zoë", "ann ", "bob", "10", "9"]
    table = pd.DataFrame({"user": rng.choice(words, 200), "shop": rng.integers(8, 12, 200)})
    table["when"] = [f"2026-{month:02d}-15" for month in rng.integers(1, 6, 200)]
    table["n"] = pd.array([*rng.integers(0, 9, 199), None], dtype="Int64")
    table.loc[199, "shop"] = 12  # a cell without a value
    files, options = written(table, kind, tmp_path)
    dims = {"user": "who", "shop": "shop", "when:month": "month"}
    done = pltf.prepare(
        files, tmp_path / "cells", dims=dims, value="n", duplicates="sum", unlisted="missing", **options
    )
    seen = pltf.observe(table, dims=dims, value="n", duplicates="sum", unlisted="missing")
    found = assert_same(tmp_path / "cells", seen)
    assert (done.cells, done.shape, done.total) == (len(found.cells), seen.shape, seen.total)
    assert found.labels["who"].names() == ["10", "9", "Zoë", "ann", "bob"]


def written(table: pd.DataFrame, kind: str, folder: Path) -> tuple[Any, dict[str, Any]]:
    """A table in files, and the options that read them."""
    path = folder / f"a.{ {'excel': 'xlsx', 'sql': 'sqlite'}.get(kind, kind) }"
    if kind in ("sqlite", "sql"):
        with closing(sqlite3.connect(path)) as base, base:
            table.to_sql("visits", base, index=False)
            pd.DataFrame({"x": [b"0"]}).to_sql("others", base, index=False)
        query = "SELECT * FROM visits"
        return (f"sqlite:////{path}" if kind == "sql" else path), {"query": query if kind == "sql" else "visits"}
    if kind == "duckdb":
        arrow = pa.Table.from_pandas(table, preserve_index=False)
        with duckdb.connect(str(path)) as base:
            base.register("arrow", arrow)
            base.execute("CREATE TABLE visits AS SELECT * FROM arrow").fetchall()
        return path, {}
    if kind == "feather":  # in two files
        for name, half in zip("ab", (table.iloc[:90], table.iloc[90:]), strict=True):
            schema = pa.schema([("user", pa.dictionary(pa.int8(), pa.string())), ("shop", pa.int64())])
            schema = schema.append(pa.field("when", pa.string())).append(pa.field("n", pa.int64()))
            arrow = pa.Table.from_pandas(half.astype({"user": "category"}), schema=schema, preserve_index=False)
            required("pyarrow.feather").write_feather(arrow, folder / f"{name}.feather", chunksize=40)
        return str(folder / "*.feather"), {}
    if kind == "excel":
        with pd.ExcelWriter(path) as book:
            pd.DataFrame({"x": [1]}).to_excel(book, sheet_name="first", index=False)
            table.to_excel(book, sheet_name="second", index=False)
        return path, {"sheet": "second"}
    if kind in ("json", "jsonl"):
        table.to_json(path, orient="records", lines=kind == "jsonl")
        return path, {}
    if kind == "zip":
        table.to_csv(folder / "a.csv.zip", index=False)
        return folder / "a.csv.zip", {}
    if kind == "zst":
        with pa.output_stream(str(folder / "a.csv.zst"), compression="zstd") as file:
            file.write(table.to_csv(index=False).encode())
        return folder / "a.csv.zst", {}
    encoding = kind.removeprefix("gz and ")
    path = folder / ("a.csv" if encoding == kind else "a.csv.gz")
    table.to_csv(path, index=False, encoding=encoding)
    return path, {"encoding": encoding}


def test_columns_of_feather_files(tmp_path: Path) -> None:
    feather = required("pyarrow.feather")
    feather.write_feather(pa.table({" user ": ["a", "b"], "n": [1, 2]}), tmp_path / "a.feather")
    feather.write_feather(pa.table({"user": ["b"], "m": [3]}), tmp_path / "b.feather")
    feather.write_feather(pa.table([["a"], ["b"], [1]], names=["user", "user", "n"]), tmp_path / "twice.feather")
    asked: dict[str, Any] = {"dims": ["user"], "value": "n"}
    pltf.prepare(tmp_path / "a.feather", tmp_path / "cells", **asked)
    assert stored(tmp_path / "cells").labels["user"].names() == ["a", "b"]
    told = refusal([tmp_path / "a.feather", tmp_path / "b.feather"], tmp_path / "no", **asked)
    assert f"{tmp_path / 'b.feather'} has no column 'n'; it has user, m" in told
    assert "has several columns 'user'" in refusal(tmp_path / "twice.feather", tmp_path / "no", **asked)


@pytest.mark.parametrize("labels", [[" ann", "bob "], ["ann", "bob"]])
def test_blanks_of_given_labels(labels: list[str], tmp_path: Path) -> None:
    table = pd.DataFrame({"user": ["bob ", " ann"], "n": [1, 2]})
    how: dict[str, Any] = {"dims": ["user"], "value": "n", "labels": {"user": labels}}
    pltf.prepare(table, tmp_path / "cells", **how)
    assert_same(tmp_path / "cells", pltf.observe(table, **how))


def test_categories_are_labels_in_their_order(tmp_path: Path) -> None:
    words = pd.Categorical(["low", "high", "low"], categories=["low", "middle", "high"])
    table = pd.DataFrame({"size": words, "who": ["a", "b", "b"]})
    seen = pltf.observe(table, dims=["size", "who"])
    for number, source in enumerate((table, pa.Table.from_pandas(table), required("polars").from_pandas(table))):
        pltf.prepare(source, tmp_path / f"{number}", dims=["size", "who"])
        if number < 2:
            assert_same(tmp_path / f"{number}", seen)
    enum = required("polars").Enum(["low", "middle", "high"])
    polars = required("polars").DataFrame(
        {"size": ["low", "high", "low"], "who": ["a", "b", "b"]}, schema_overrides={"size": enum}
    )
    pltf.prepare(polars, tmp_path / "enum", dims=["size", "who"])
    assert_same(tmp_path / "enum", pltf.observe(polars, dims=["size", "who"]))


@pytest.mark.parametrize("kind", ["words", "whole", "real", "dates", "zoned", "truth"])
def test_given_labels_are_all_labels_in_their_order(kind: str, tmp_path: Path) -> None:
    table = drawn(np.random.default_rng(3), [kind, "row"], 30)
    all_of_them = pd.Index(list(dict.fromkeys(pd.Series(LABELS[kind]))))[::-1]
    options: Any = {"dims": ["c0", "c1"], "labels": {"c0": all_of_them}}
    pltf.prepare(table, tmp_path / "cells", **options)
    assert_same(tmp_path / "cells", pltf.observe(table, count=True, **options))
    few: Any = {**options, "labels": {"c0": all_of_them[:1]}}
    told = refusal(table, tmp_path / "few", **few)
    assert "which is not one of its 1 labels" in told


def test_given_bins(tmp_path: Path) -> None:
    table = drawn(np.random.default_rng(3), ["dates", "row"], 30)
    for bin, labels in (("month", pd.date_range("2024-01-01", "2026-12-01", freq="MS")), ("hourofday", [18, 0, 7])):
        options: Any = {"dims": {f"c0:{bin}": "when", "c1": "c1"}, "labels": {"when": labels}}
        pltf.prepare(table, tmp_path / bin, **options)
        assert_same(tmp_path / bin, pltf.observe(table, count=True, **options))


def test_columns_of_positions(tmp_path: Path) -> None:
    table = pd.DataFrame({"i": [0, 4, 4], "j": [2, 0, 0]})
    options: Any = {"dims": ["i", "j"], "shape": (6, 3)}
    table.to_csv(tmp_path / "t.csv", index=False)
    for number, source in enumerate((table, tmp_path / "t.csv")):
        pltf.prepare(source, tmp_path / f"{number}", **options)
        assert_same(tmp_path / f"{number}", pltf.observe(table, count=True, **options))
    for source in (table, tmp_path / "t.csv"):
        told = refusal(source, tmp_path / "x", dims=["i", "j"], shape=(4, 3))
        assert "column 'i' must hold positions from 0 to 3, got 4" in told


def test_many_modes_do_not_fit_in_one_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    sizes = (2**31 - 1, 2**20, 2**30, 2**31 - 1, 3)
    table = pd.DataFrame({f"i{n}": rng.integers(0, 2, 90) * (size - 1) for n, size in enumerate(sizes)})
    pltf.prepare(table, tmp_path / "cells", dims=list(table.columns), shape=sizes, cells_per_part=3)
    assert_same(tmp_path / "cells", pltf.observe(table, dims=list(table.columns), shape=sizes, count=True))


@pytest.mark.parametrize("counts", [[1, 255], [1, 256], [1] * 9 + [70_000], [3, 2**32], [1, 300, 0.5]])
def test_values_have_the_narrowest_type_that_holds_them(counts: list[float], tmp_path: Path) -> None:
    table = pd.DataFrame({"i": np.arange(len(counts)), "x": counts})
    pltf.prepare(table, tmp_path / "cells", dims=["i"], value="x", cells_per_part=1)
    found = assert_same(tmp_path / "cells", pltf.observe(table, dims=["i"], value="x"))
    kinds = [kind for kind in ("uint8", "uint16", "uint32") if max(counts) <= np.iinfo(kind).max]
    assert found.about["value_type"] == ("float64" if counts[-1] == 0.5 or not kinds else kinds[0])
    assert len(found.parts) == len(counts)


def test_a_position_is_never_cut(tmp_path: Path) -> None:
    table = pd.DataFrame({"i": [0] + [1] * 50 + [2, 3, 4, 5, 6], "j": [0, *range(50), 0, 0, 0, 0, 0]})
    table = pd.concat([table, pd.DataFrame({"i": np.arange(7, 60), "j": 0})])
    pltf.prepare(table, tmp_path / "cells", dims=["i", "j"], cells_per_part=4)
    found = assert_same(tmp_path / "cells", pltf.observe(table, dims=["i", "j"], count=True))
    assert [at.shape[1] for at in found.parts[:3]] == [1, 50, 4]


def test_threads_and_memory_do_not_change_a_bit(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    table = drawn(rng, ["words", "dates", "row"], 20_000).assign(x=rng.gamma(1.0, size=20_000))
    for threads in (1, 2, 3):
        options: Any = {"dims": ["c0", "c1", "c2"], "value": "x", "duplicates": "sum", "cells_per_part": 40}
        pltf.prepare(table, tmp_path / f"{threads}", threads=threads, memory_limit=1e8, **options)
    texts = [(tmp_path / f"{threads}" / "store.json").read_text() for threads in (1, 2, 3)]
    assert texts[0] == texts[1] == texts[2]


def test_rows_of_one_cell_may_have_to_be_one(tmp_path: Path) -> None:
    table = pd.DataFrame({"i": ["a", "b", "a"], "j": [1, 2, 1], "x": [1.0, 2.0, 3.0]})
    options: Any = {"dims": ["i", "j"], "value": "x"}
    assert "cell ('a', 1) is listed more than once; pass duplicates='sum'" in refusal(table, tmp_path / "x", **options)
    table.loc[2, "x"] = np.nan
    told = refusal(table, tmp_path / "x", duplicates="sum", **options)
    assert "cell ('a', 1) is listed more than once; one of its rows has no value" in told
    table.loc[0, "x"] = np.nan
    pltf.prepare(table, tmp_path / "cells", duplicates="sum", **options)
    assert_same(tmp_path / "cells", pltf.observe(table, duplicates="sum", **options))


def test_a_store_without_cells(tmp_path: Path) -> None:
    table = pd.DataFrame({"i": ["a", "b"], "x": [np.nan, np.nan]})
    pltf.prepare(table, tmp_path / "cells", dims=["i"], value="x")
    found = stored(tmp_path / "cells")
    assert found.missing.tolist() == [[0, 1]]
    assert found.about["parts"] == []


def test_progress_never_goes_back() -> None:
    """A stage may have several queries, each of which starts at zero."""
    from pltf.inference.progress import Progress
    from pltf.io.prepare.database import Stages

    class Kept(Progress):
        def show(self, done: float, text: str) -> None:
            shown.append(done)

    shown: list[float] = []
    stages = Stages("data", Kept(shown=False, total=1.0))
    stages.start("labels", 0.2, 0.5)
    for percent in (10, 90, 0, -1, 95):  # DuckDB answers -1 if it does not know
        stages.update(percent)
    stages.start("sorting", 0.5, 0.8)
    stages.update(50)
    np.testing.assert_allclose(shown, [0.2, 0.23, 0.47, 0.47, 0.47, 0.485, 0.5, 0.65])
