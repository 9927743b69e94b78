"""What cannot be prepared is refused in one sentence, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pltf
from pltf.errors import PltfError
from pltf.io.prepare import cells as cells_module
from pltf.io.prepare import coding, run
from tests.extras import required
from tests.io.prepare.reading import refusal, stored

pa = required("pyarrow")
pq = required("pyarrow.parquet")
duckdb = required("duckdb")
pytestmark = pytest.mark.extra("io")

EVENTS = pd.DataFrame({"user": ["a", "b", "b"], "n": [1, 2, 3], "x": [0.5, 1.0, 2.0]})


def text(path: Path, content: str) -> Path:
    """A file."""
    path.write_text(content, encoding="utf-8")
    return path


def parquet(path: Path, **columns: Any) -> Path:
    """A table in a file."""
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    ("column", "values", "why"),
    [
        ("x", [1.0, -2.0], "observed values must be >= 0, but one is -2.0 (row 2 of "),
        ("x", [1.0, np.inf], "observed values must be finite, but one is inf (row 2 of "),
        ("x", [1, 2**53 + 2], "at most 2**53, or float64 would round them"),
        ("x", ["1", "2"], "column 'x' must hold numbers, got text"),
        ("user", ["a", None], "column 'user': 1 row has no label (row 2 of "),
        ("user", [None, None], "column 'user' has no labels"),
        ("user", [1.0, np.nan], "column 'user': 1 row has no label"),
        ("user", [1.0, -np.inf], "labels must be finite, got -inf (row 2 of "),
        ("user", [1, 2**63], "whole numbers must be below 2**63, got 9223372036854775808"),
        ("user", [b"a", b"b"], "column 'user' must hold strings, numbers or dates, got binary"),
        ("user", [[1], [2]], "column 'user' must hold strings, numbers or dates, got list"),
    ],
)
def test_of_columns(column: str, values: list[Any], why: str, tmp_path: Path) -> None:
    columns: dict[str, Any] = {"user": ["a", "b"], "x": [1, 2]} | {column: values}
    if values[-1] == 2**63:
        columns[column] = pa.array(values, pa.uint64())
    file = parquet(tmp_path / "t.parquet", **columns)
    assert why in refusal(file, tmp_path / "cells", dims=["user"], value="x")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("user,x\n", "has no rows"),
        ("user,x\na,1\n,2\n", "column 'user': 1 row has no label"),
        ("user,x\na,1\nb,many\n", "column 'x' has 'many', which is not a number"),
        ("user,x\na,1\nb,-3\n", "observed values must be >= 0, but one is -3.0"),
        ("user,x\na,inf\nb,3\n", "must be finite, but column 'x' holds inf"),
        ("user,x\na,9007199254740993\n", "at most 2**53, or float64 would round them"),
        ("user,x\na,1,2\n", "Expected Number of Columns: 2 Found: 3"),
        ("user,y\na,1\n", "has no column 'x'; it has user, y"),
        ("user,x\na\x00b,1\n", "NUL"),
        ("user,x,x\na,1,2\n", "has several columns 'x'"),
    ],
)
def test_of_text(content: str, why: str, tmp_path: Path) -> None:
    file = text(tmp_path / "t.csv", content)
    if "'x'; it" in why:
        why = "value must be a column of the table, got 'x'; it has user, y"
    assert why in refusal(file, tmp_path / "cells", dims=["user"], value="x")


def test_of_text_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"user,n\nb\xe9b,1\n")
    assert "utf-8" in refusal(tmp_path / "t.csv", tmp_path / "cells", dims=["user"]).lower()


def test_of_several_files(tmp_path: Path) -> None:
    one, two = parquet(tmp_path / "1.parquet", user=["a"]), parquet(tmp_path / "2.parquet", user=[1])
    told = refusal([one, two], tmp_path / "cells", dims=["user"])
    assert told == f"column 'user' must have one type, but it has text in {one} and whole numbers in {two}"
    three, four = parquet(tmp_path / "3.parquet", use=["a"]), text(tmp_path / "4.csv", "user\na\n")
    told = refusal([one, three], tmp_path / "cells", dims=["user"])
    assert told == f"{three} has no column 'user'; it has use; did you mean 'use'?"
    assert "all files must have one format" in refusal([one, four], tmp_path / "cells", dims=["user"])
    assert "is listed twice" in refusal([one, one], tmp_path / "cells", dims=["user"])
    assert "no file matches" in refusal(str(tmp_path / "none*.csv"), tmp_path / "cells", dims=["user"])
    assert "there is no file" in refusal(tmp_path / "none.csv", tmp_path / "cells", dims=["user"])
    (tmp_path / "5.parquet").write_bytes(b"PAR1 and no more PAR1")
    assert "5.parquet cannot be read as parquet" in refusal(tmp_path / "5.parquet", tmp_path / "cells", dims=["user"])


def test_of_batches_that_are_not_alike(tmp_path: Path) -> None:
    told = refusal(iter([EVENTS, EVENTS.assign(user=[1, 2, 3])]), tmp_path / "cells", dims=["user"])
    assert told.endswith("must have one type, but it has text in the first batch and whole numbers in batch 2")
    told = refusal(iter([EVENTS, EVENTS[["n"]]]), tmp_path / "cells", dims=["user"])
    assert told == "data has no column 'user'; it has n"
    twice = pa.table([["a"], ["b"], [1]], names=["user", "user", "n"])
    for source in (twice, iter(twice.to_batches()), twice.to_pandas()):
        told = refusal(source, tmp_path / "cells", dims=["user"], value="n")
        assert told == "data has several columns 'user': rename them"
    assert "data has no rows" in refusal(iter([]), tmp_path / "cells", dims=["user"])
    assert "data has no rows" in refusal(iter([EVENTS[:0]]), tmp_path / "cells", dims=["user"])
    assert "must yield tables or Arrow batches, got int" in refusal(iter([1]), tmp_path / "cells", dims=["user"])

    def broken() -> Any:
        yield EVENTS
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        pltf.prepare(broken(), tmp_path / "cells", dims=["user"])
    assert list(tmp_path.iterdir()) == []


def test_of_text_in_another_encoding(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(",,\n1,2,3\n", encoding="utf-16")
    told = refusal(file, tmp_path / "cells", dims=["user"], encoding="utf-16")
    assert told == f"{file} must begin with a header, the names of its columns"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "a table requires dims=, the columns to use as indices"),
        ({"dims": ["usr"]}, "the table must have a column 'usr'; it has user, n, x (did you mean 'user'?)"),
        ({"dims": ["user:fortnight"]}, "must end in one of minute"),
        ({"dims": ["user", "user"]}, "must name each column once"),
        ({"dims": ["user:week"]}, "must hold dates such as 2026-11-09"),
        ({"dims": ["n:week"]}, "must hold dates to be binned by week, got whole numbers"),
        ({"dims": ["user"], "value": "m"}, "value must be a column of the table, got 'm'; it has user, n, x"),
        ({"dims": ["user"], "value": "user"}, "cannot hold both labels and values"),
        ({"dims": ["user"], "unlisted": "maybe"}, "unlisted must be one of 'zero', 'missing'"),
        ({"dims": ["user"], "duplicates": "keep"}, "duplicates must be one of"),
        ({"dims": ["user"], "shape": (3,)}, "must hold whole numbers, got text"),
        ({"dims": ["x"], "shape": (3,)}, "must hold whole numbers, got real numbers"),
        ({"dims": ["n"], "shape": (2**31,)}, "shape must be whole numbers from 1 to 2**31 - 1"),
        ({"dims": ["n"], "shape": (9,), "labels": {"n": [1]}}, "columns hold positions with shape="),
        ({"dims": ["user"], "labels": {"who": ["a"]}}, "labels names 'who', but the indices are user"),
        ({"dims": ["user"], "labels": {"user": [1, 2]}}, "holds text, but the labels of 'user' are whole numbers"),
        ({"dims": ["user"], "memory_limit": 1000}, "memory_limit must be a number of bytes, at least"),
        ({"dims": ["user"], "threads": 0}, "threads must be a whole number of at least 1"),
        ({"dims": ["user"], "variable": "X"}, "variable requires a file of arrays"),
        ({"dims": ["user"], "sheet": "X"}, "sheet requires a workbook, got 'X'"),
        ({"dims": ["user"], "query": "X"}, "query requires a database, got 'X'"),
        ({"dims": ["user"], "encoding": "cp1252"}, "encoding requires a text file, got 'cp1252'"),
        ({"dims": ["user"], "connection": 3}, "connection must be a DuckDB connection"),
    ],
)
def test_of_arguments(options: dict[str, Any], why: str, tmp_path: Path) -> None:
    assert why in refusal(EVENTS, tmp_path / "cells", **options)


def test_of_sql(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        for query in ("SELECT FROM", "SELECT * FROM nothing"):
            told = refusal(query, tmp_path / "cells", dims=["i"], connection=connection)
            assert told.startswith("source ")
        told = refusal("SELECT 1", tmp_path / "cells", dims=["i"], connection=connection, query="x")
        assert told == "query requires a database, got 'x'"


def test_of_data_that_would_lose_something(tmp_path: Path) -> None:
    sparse, counts = required("scipy.sparse"), np.eye(3)
    for source, why in (
        (EVENTS.set_index("user")["n"], "data: a Series must be a table: pass its reset_index()"),
        (sparse.coo_array(counts), "data: a sparse array is in memory already"),
        (pltf.observe(counts), "data: an observation is in memory already"),
        ((counts, counts), "source must be files, tables or an array, got tuple"),
        ([], "source must be files, tables or an array, got an empty list"),
        ({"user": ["a"]}, "source must be files, tables or an array, got dict"),
        (counts.tolist(), "source must be files, tables or an array, got list"),
    ):
        assert refusal(source, tmp_path / "cells", dims=["i", "j"]).startswith(why)


def test_of_folders(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    told = refusal(tmp_path / "events", tmp_path / "cells", dims=["user"])
    assert told.endswith(
        "events is a folder, and it has no Zarr array: name files, such as '" + str(tmp_path / "events" / "*.parquet'")
    )
    pltf.prepare(EVENTS, tmp_path / "cells", dims=["user"])
    assert refusal(tmp_path / "cells", tmp_path / "more") == f"{tmp_path / 'cells'} is a cell store already"
    for given in (tmp_path / "cells", str(tmp_path / "cells")):
        with pytest.raises(PltfError, match=r"got the path of a cell store: open it with pltf\.open"):
            pltf.nmf(rank=1).fit(given)
    with pytest.raises(PltfError, match="path must be the name of a cell store, got 3"):
        pltf.open(3)  # type: ignore[arg-type]


def test_of_sums_that_are_too_large(tmp_path: Path) -> None:
    for value, why in ((2**53, "less than 2**53, or float64 would round them"), (1.7e308, "must add up to less than")):
        table = pd.DataFrame({"user": ["a", "a"], "x": [value, value]})
        told = refusal(table, tmp_path / "cells", dims=["user"], value="x", duplicates="sum")
        assert why in told


def test_of_too_many_missing_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells_module, "MOST_MISSING", 2)
    table = EVENTS.assign(user=list("abc"), x=np.nan)
    told = refusal(table, tmp_path / "cells", dims=["user"], value="x")
    assert "there are more than 2 missing cells: use unlisted='missing'" in told


# -- files that lie there -----------------------------------------------------------------------


def test_an_existing_store_is_replaced_only_if_asked(tmp_path: Path) -> None:
    target = tmp_path / "cells"
    pltf.prepare(EVENTS, target, dims=["user"])
    assert refusal(EVENTS, target, dims=["user"]) == f"{target} exists: pass overwrite=True to replace it"
    refusal(EVENTS.assign(user=None), target, dims=["user"], overwrite=True)
    assert stored(target).about["cells"] == 2  # a failure leaves the old one
    pltf.prepare(EVENTS, target, dims=["n"], overwrite=True)
    assert stored(target).about["dims"] == ["n"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["cells"]
    text(target / "mine.txt", "dear")
    assert "contains other files besides a cell store ('mine.txt')" in refusal(
        EVENTS, target, dims=["user"], overwrite=True
    )


def test_a_store_that_another_process_writes_meanwhile_stays(tmp_path: Path) -> None:
    target = tmp_path / "cells"

    def events() -> Iterator[pd.DataFrame]:
        yield EVENTS
        pltf.prepare(EVENTS, target, dims=["n"])
        yield EVENTS

    with pytest.raises(PltfError, match="cells exists: pass overwrite=True to replace it"):
        pltf.prepare(events(), target, dims=["user"])
    assert stored(target).about["dims"] == ["n"]
    assert [one.name for one in tmp_path.iterdir()] == ["cells"]
    pltf.prepare(EVENTS, target, dims=["user"], overwrite=True)
    assert stored(target).about["dims"] == ["user"]


def test_a_store_that_another_process_writes_at_the_same_moment_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "cells"
    pltf.prepare(EVENTS, target, dims=["n"])
    monkeypatch.setattr(os.path, "lexists", lambda _: False)
    assert refusal(EVENTS, target, dims=["user"]).startswith(f"{target} cannot be written: ")
    assert stored(target).about["dims"] == ["n"]


@pytest.mark.parametrize("name", ["value", ""])
def test_names_that_a_store_cannot_have(name: str, tmp_path: Path) -> None:
    told = refusal(EVENTS, tmp_path / "cells", dims={"user": name})
    assert told == f"data: an index of a cell store cannot be called {name!r}: rename it"
    told = refusal(np.ones((2, 2)), tmp_path / "cells", dims=["a", name])
    assert told == f"data: an index of a cell store cannot be called {name!r}: rename it"


def test_the_largest_whole_number_is_a_label(tmp_path: Path) -> None:
    ends = [-(2**63), 2**63 - 1]
    pltf.prepare(pd.DataFrame({"i": ends}), tmp_path / "cells", dims=["i"])
    assert stored(tmp_path / "cells").labels["i"].index.tolist() == ends


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_nothing_but_a_store_is_replaced(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "cells"
    if kind == "folder":
        target.mkdir()
    elif kind == "file":
        text(target, "dear")
    else:
        target.symlink_to(tmp_path / "elsewhere")
    told = refusal(EVENTS, target, dims=["user"], overwrite=True)
    assert told == f"{target} exists and is not a cell store, so it is not replaced: choose another name"


def test_of_targets(tmp_path: Path) -> None:
    with pytest.raises(PltfError, match="there is no folder"):
        pltf.prepare(EVENTS, tmp_path / "no" / "cells", dims=["user"])
    with pytest.raises(PltfError, match="path must be a shorter folder name"):
        pltf.prepare(EVENTS, tmp_path / ("x" * 245), dims=["user"])
    for path in ("", ".", 3, "a\0b"):
        with pytest.raises(PltfError, match="must be a folder name"):
            pltf.prepare(EVENTS, path, dims=["user"])  # type: ignore[arg-type]


def test_a_source_that_changes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = parquet(tmp_path / "t.parquet", user=["a", "b"])

    def changing(*arguments: Any) -> Any:
        os.utime(file, ns=(1, 1))
        return coding.coded(*arguments)

    monkeypatch.setattr(run, "coded", changing)
    assert (
        refusal(file, tmp_path / "cells", dims=["user"]) == f"{file} changed while it was being read: run prepare again"
    )


def test_names_of_files_and_columns_are_names_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "it's [1]*"
    folder.mkdir()
    column = 'a "b"; DROP TABLE x; --'
    parquet(folder / "x=1?.parquet", **{column: ["a", "b"]})
    parquet(folder / "x=12.parquet", **{column: ["c", "d"]})
    text(folder / "x.csv", f'"{column.replace(chr(34), chr(34) * 2)}"\na\nb\n')
    for number, name in enumerate(("x=1?.parquet", "x.csv")):
        pltf.prepare(folder / name, tmp_path / f"{number}", dims={column: "a"})
        assert stored(tmp_path / f"{number}").labels["a"].names() == ["a", "b"]


def test_the_database_reads_nothing_else(tmp_path: Path) -> None:
    from pltf.inference.progress import Progress
    from pltf.io.prepare.database import Database, Stages

    file, other = parquet(tmp_path / "a.parquet", i=[1]), parquet(tmp_path / "b.parquet", i=[1])
    with Database(tmp_path, [file], 1e8, 1, Stages("data", Progress(shown=False, total=1.0))) as database:
        assert database.rows(f"SELECT i FROM read_parquet('{file}')") == [(1,)]
        for query in (
            f"SELECT * FROM read_parquet('{other}')",
            "SELECT * FROM read_csv('/etc/passwd')",
            "SET enable_external_access = true",
            f"COPY (SELECT 1) TO '{tmp_path / 'out.csv'}'",
            "INSTALL httpfs",
            f"ATTACH '{tmp_path / 'other.duckdb'}' AS other",
        ):
            with pytest.raises(PltfError):
                database.rows(query)


# -- processes that end -------------------------------------------------------------------------

_ENDLESS = """
import sys, itertools, pandas as pd, pltf
def events():
    for number in itertools.count():
        if number == 3:
            print("reading", flush=True)
        yield pd.DataFrame({"user": [number] * 1000})
pltf.prepare(events(), sys.argv[1], dims=["user"])
"""


def started(target: Path) -> subprocess.Popen[str]:
    """A process that is reading."""
    process = subprocess.Popen(
        [sys.executable, "-c", _ENDLESS, str(target)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    time.sleep(0.2)
    return process


@pytest.mark.slow
def test_a_killed_process_leaves_no_store_and_the_next_one_sweeps(tmp_path: Path) -> None:
    process = started(tmp_path / "cells")
    process.kill()
    process.communicate()
    assert [one.name[:7] for one in tmp_path.iterdir()] == [".cells."]
    pltf.prepare(EVENTS, tmp_path / "cells", dims=["user"])
    assert [one.name for one in tmp_path.iterdir()] == ["cells"]


@pytest.mark.slow
def test_an_interrupt_cleans_up(tmp_path: Path) -> None:
    process = started(tmp_path / "cells")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_full_disk_is_told_in_one_sentence(tmp_path: Path) -> None:
    """A limit on the size of files stands for a disk that is full."""
    table = pd.DataFrame({"user": np.random.default_rng(0).permutation(3_000_000)})
    pq.write_table(pa.Table.from_pandas(table), tmp_path / "t.parquet")
    work = f"import pltf; pltf.prepare({str(tmp_path / 't.parquet')!r}, {str(tmp_path / 'cells')!r}, dims=['user'])"
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (9_000_000, 9_000_000))"
    code = f"import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); {limit}; {work}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert [one.name for one in tmp_path.iterdir()] == ["t.parquet"]
    last = done.stderr.splitlines()[-1]
    assert "File too large" in last or "full" in last, last
    assert json.dumps(last)
