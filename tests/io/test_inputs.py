"""Every kind of file that people have gives the same table, or one sentence."""

from __future__ import annotations

import gzip
import json
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest

import pltf
from pltf.errors import DataWarning, PltfError
from pltf.io.databases import without_password
from pltf.io.files import SourceTable, guess, read_data
from pltf.io.opening import packing_of
from pltf.io.reading import Reading
from pltf.io.sources import ShownPath, database_url
from tests.extras import MINIMAL, optional

pa, feather, openpyxl, duckdb, sqlalchemy = map(
    optional, ("pyarrow", "pyarrow.feather", "openpyxl", "duckdb", "sqlalchemy")
)
MB = 1_000_000
TABLE = pd.DataFrame({"user": ["ann", "bob", "007"], "page": ["x", "y", "x"], "n": [1, 2, 30]})
CSV = TABLE.to_csv(index=False)
Writer = Callable[[Path], Any]


def packed_zip(path: Path, text: str = CSV, *, name: str = "t.csv", how: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", how) as archive:
        archive.writestr(name, text)
    return path


def sqlite_table(path: Path, *names: str) -> Path:
    connection = sqlite3.connect(path)
    for name in names or ("visits",):
        TABLE.to_sql(name, connection, index=False)
    connection.close()
    return path


def duckdb_table(path: Path) -> Path:
    with duckdb.connect(str(path)) as connection:
        connection.execute('CREATE TABLE visits ("user" VARCHAR, page VARCHAR, n INTEGER)')
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?)", TABLE.to_numpy().tolist())
    return path


PLAIN: dict[str, Writer] = {
    "a.csv": lambda path: path.write_text(CSV),
    "a.csv.gz": lambda path: path.write_bytes(gzip.compress(CSV.encode())),
    "a.csv.zip": packed_zip,
    "a.zip": lambda path: packed_zip(path, TABLE.to_csv(index=False, sep="\t"), name="t.tsv"),
    "a.jsonl": lambda path: TABLE.to_json(path, orient="records", lines=True),
    "a.ndjson": lambda path: path.write_text("\n" + TABLE.to_json(orient="records", lines=True).replace("\n", "\n\n")),
    "a.json": lambda path: TABLE.to_json(path, orient="records", indent=1),
    "a.db": sqlite_table,
}  # fmt: skip
EXTRA: dict[str, Writer] = {
    "a.csv.zst": lambda path: path.write_bytes(pa.compress(CSV.encode(), codec="zstd", asbytes=True)),
    "a.xlsx": lambda path: TABLE.to_excel(path, index=False),
    "lower.xlsx": lambda path: TABLE.to_excel(path, index=False, startrow=2),
    "a.parquet": lambda path: TABLE.to_parquet(path),
    "a.feather": lambda path: feather.write_feather(TABLE, path),
    "plain.feather": lambda path: feather.write_feather(TABLE, path, compression="uncompressed"),
    "zstd.arrow": lambda path: feather.write_feather(TABLE.astype({"user": "category"}), path, compression="zstd"),
    "a.duckdb": duckdb_table,
}  # fmt: skip
EVERY = [*PLAIN, *(pytest.param(name, marks=pytest.mark.extra("io")) for name in EXTRA)]


def written(path: Path) -> Path:
    {**PLAIN, **EXTRA}[path.name](path)
    return path


def refusal(path: Path, **how: Any) -> str:
    with pytest.raises(PltfError) as caught:
        read_data(path, **how)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", EVERY)
def test_every_format_holds_the_same_table(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / name)
    kind = guess(path)
    assert SourceTable(path, kind, Reading()).columns() == ["user", "page", "n"]
    found = read_data(path, columns=["user", "n"], keys=["user"])
    assert list(found.columns) == ["user", "n"]
    assert found["user"].tolist() == TABLE["user"].tolist()
    assert found["n"].tolist() == TABLE["n"].tolist()
    assert "no column 'shop'; it has user, page, n" in refusal(path, columns=["shop"])
    assert read_data(path, most=2).shape == (3, 2)


@pytest.mark.parametrize("name", EVERY)
def test_a_small_limit_holds(name: str, tmp_path: Path) -> None:
    assert "raise this with limit=" in refusal(written(tmp_path / name), limit=50)


# -- packed files -----------------------------------------------------------------------------------


def test_an_archive_must_hold_one_file(tmp_path: Path) -> None:
    path = packed_zip(tmp_path / "a.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("__MACOSX/._t.csv", "litter")
    assert len(read_data(path)) == 3
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("u.csv", CSV)
    assert "must contain one file, got 2 (t.csv, u.csv): extract it first" in refusal(path)
    uncommon = packed_zip(tmp_path / "b.zip", how=zipfile.ZIP_LZMA)
    assert "uses an unsupported compression method" in refusal(uncommon)
    assert "OpenDocument" in refusal(packed_zip(tmp_path / "c.ods", name="content.xml"))


def test_a_broken_archive(tmp_path: Path) -> None:
    whole = packed_zip(tmp_path / "a.zip").read_bytes()
    (tmp_path / "b.zip").write_bytes(whole[: len(whole) // 2])
    assert "b.zip" in refusal(tmp_path / "b.zip")


def test_bombs_in_archives(tmp_path: Path) -> None:
    path = packed_zip(tmp_path / "a.zip", "a,b\n" + "1,2\n" * 4 * MB)
    assert path.stat().st_size < MB
    assert "would take more than 20.0 MB" in refusal(path, limit=20 * MB)
    line = packed_zip(tmp_path / "b.zip", "a," * 4 * MB)
    assert "would take more than 20.0 MB" in refusal(line, limit=20 * MB)
    if MINIMAL:
        return
    (tmp_path / "c.csv.zst").write_bytes(pa.compress(b"a,b\n" + b"1,2\n" * 4 * MB, codec="zstd", asbytes=True))
    assert "would take more than 20.0 MB" in refusal(tmp_path / "c.csv.zst", limit=20 * MB)


@pytest.mark.extra("io")
def test_a_cut_zstandard_file_is_refused(tmp_path: Path) -> None:
    whole = pa.compress(CSV.encode() * 1000, codec="zstd", asbytes=True)
    (tmp_path / "a.csv.zst").write_bytes(whole[:-20])
    assert "cannot be read as data: Truncated compressed stream" in refusal(tmp_path / "a.csv.zst")


@pytest.mark.parametrize(
    ("begin", "why"),
    [
        (b"\xd0\xcf\x11\xe0", "an older Excel workbook"),
        (b"BZh91AY", "compressed with bzip2"),
        (b"%PDF-1.4", "a PDF"),
        (b"FEA1", "a Feather version 1 file"),
    ],
)
def test_what_cannot_be_read_is_named(begin: bytes, why: str, tmp_path: Path) -> None:
    if MINIMAL and begin == b"FEA1":
        return
    (tmp_path / "a").write_bytes(begin + bytes(40))
    assert why in refusal(tmp_path / "a")


# -- encodings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le", "utf-8-sig", "latin-1"])
def test_encodings(encoding: str, tmp_path: Path) -> None:
    rows = "".join(f"Zoë{n % 7},{n}\n" for n in range(40_000))  # longer than a block
    (tmp_path / "a.csv").write_text("wer,n\n" + rows, encoding=encoding, newline="")
    found = read_data(tmp_path / "a.csv", keys=["wer"], encoding=encoding)
    assert found.shape == (40_000, 2)
    assert found["wer"].cat.categories.tolist() == [f"Zoë{n}" for n in range(7)]
    assert found["n"].tolist() == list(range(40_000))


def test_wrong_encodings(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("wer,n\nZoë,1\n", encoding="cp1252")
    assert "is not valid UTF-8 text: set encoding=, for example cp1252" in refusal(path)
    assert "is not valid shift_jis text" in refusal(path, encoding="shift_jis")
    for wrong in ("nonsense", "zlib", "rot13"):
        assert f"encoding must be an encoding such as utf-8, cp1252 or utf-16, got {wrong!r}" in refusal(
            path, encoding=wrong
        )
    path.write_text("wer,n\nZoë,1\n", encoding="utf-16")
    assert "seems to be UTF-16 text: pass encoding='utf-16'" in refusal(path)


def test_options_go_with_their_formats(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv")
    for option in ("sheet", "query", "variable"):
        assert f"{option} cannot be used here: {path} is a csv file" in refusal(path, **{option: "A"})
    assert "decimal must be one of '.', ','" in refusal(path, decimal=";")


# -- numbers and blanks in text ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "decimal", "numbers"),
    [
        (["6.200", "17"], ",", [6200, 17]),
        (["6.200", "17"], ".", [6.2, 17]),
        (["6.200,5", "1.234.567"], ",", [6200.5, 1234567]),
        (["6,200.5", "1,234,567"], ".", [6200.5, 1234567]),
        (["1 234,5", "4,17"], ",", [1234.5, 4.17]),
        (["0.250", "6.200"], None, [0.25, 6.2]),
        (["6.25", "6.200"], None, [6.25, 6.2]),
        ([",5", "-"], ",", [0.5, np.nan]),
    ],
)
def test_decimal_signs(words: list[str], decimal: str | None, numbers: list[float], tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("user;n\n" + "".join(f"u{at};{word}\n" for at, word in enumerate(words)))
    found = read_data(path, columns=["n"], decimal=decimal)["n"]
    np.testing.assert_array_equal(found.to_numpy(dtype=float), numbers)


def test_ambiguous_numbers_are_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('user;n\n\n"a\nb";17\nc;6.200\n')
    told = refusal(path, columns=["n"])
    assert "line 5 of column 'n' has 6.200, which is ambiguous: pass decimal=',' if it is 6200, decimal='.'" in told
    path.write_text("user,n\na,6.200\n")  # with commas between the columns it is a decimal point
    assert read_data(path, columns=["n"])["n"].tolist() == [6.2]
    path.write_text("user;n\na;4.17\n")
    assert read_data(path, columns=["n"], decimal=",")["n"].tolist() == ["4.17"]  # no number there


def test_blanks_around_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(" user ,page\nann,x\nann ,x\n bob,y\n")
    with pytest.warns(DataWarning, match="column 'user': 2 labels that differ only in leading or trailing blanks were"):
        found = read_data(path, keys=["user"])
    assert list(found.columns) == ["user", "page"]
    assert found["user"].tolist() == ["ann", "ann", "bob"]
    kept = read_data(path, keys=[" user "], keep_blanks=True)
    assert kept[" user "].tolist() == ["ann", "ann ", " bob"]
    path.write_text("user,page\n 1,x\n2 ,y\n  ,y\n")  # nothing is merged: no warning
    assert read_data(path, keys=["user"])["user"].cat.categories.tolist() == [1, 2]


# -- rows in messages -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.csv", 'a,b\n1,2\n\n"x\ny",3\n4,5\n', "line 6"),
        ("b.csv", "\na,b\n1,2\n2,3\n4,5\n", "line 5"),
        ("a.jsonl", '{"a": 1}\n\n{"a": 2}\n{"a": 3}\n', "line 4"),
        ("a.json", '[{"a": 1}, {"a": 2}, {"a": 3}]', "record 3"),
    ],
)
def test_places(name: str, text: str, place: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert SourceTable(tmp_path / name, guess(tmp_path / name), Reading()).place(2) == place


@pytest.mark.extra("io")
def test_places_in_a_sheet(tmp_path: Path) -> None:
    path = written(tmp_path / "lower.xlsx")
    assert SourceTable(path, "excel", Reading()).place(1) == "row 5"


# -- JSON -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1}\n{"a": }\n', "line 2 is not JSON: expecting value"),
        ('{"a": 1}\n[1]\n', "line 2 must be an object"),
        ('{"a": 1}\n{"a": 1, "b": {"c": 1}}\n', "line 2 of column 'b' has an object"),
        ('{"a": {"0": 1}, "b": {"0": "x"}}', 'one record per line (in pandas: to_json(path, orient="records"))'),
        ('{"a": ' + "[" * 100_000 + "\n", "is not JSON"),
        ("{}\n", "has no records"),
    ],
)
def test_broken_json_lines(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    assert why in refusal(tmp_path / "a.jsonl")


def test_records_need_not_have_all_fields(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{" a ": 1}\n{"b": "x", "a": 9007199254740993}\n')
    found = read_data(tmp_path / "a.jsonl")
    assert found["a"].tolist() == [1, 9007199254740993]
    assert found["b"].tolist()[1] == "x"
    assert pd.isna(found["b"][0])


def test_a_list_of_lists_is_measured(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" + "[]," * 200_000 + "[]]")
    assert "would take more than 5.0 MB" in refusal(tmp_path / "a.json", limit=5 * MB)


# -- Excel ------------------------------------------------------------------------------------------


@pytest.mark.extra("io")
def test_sheets(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    with pd.ExcelWriter(path) as book:
        TABLE.to_excel(book, sheet_name="first", index=False)
        TABLE.assign(n=7).to_excel(book, sheet_name="second", index=False)
    assert "has the sheets first, second: select one with sheet=" in refusal(path)
    assert "has the sheets first, second: got 'third'" in refusal(path, sheet="third")
    assert read_data(path, sheet="second")["n"].tolist() == [7, 7, 7]


def rewritten(path: Path, member: str, change: Callable[[bytes], bytes]) -> Path:
    """A workbook with a member changed."""
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in held.items():
            archive.writestr(name, change(content) if name == member else content)
    return path


@pytest.mark.extra("io")
def test_crafted_workbooks(tmp_path: Path) -> None:
    sheet = "xl/worksheets/sheet1.xml"
    entities = b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "bbbb">]>'
    path = rewritten(written(tmp_path / "a.xlsx"), sheet, lambda xml: entities + xml)
    assert "sheet1.xml has a document type" in refusal(path)
    wide = rewritten(
        written(tmp_path / "a.xlsx"), sheet, lambda xml: xml.replace(b'ref="A1:C4"', b'ref="A1:XFD1048576"')
    )
    assert read_data(wide).shape == (3, 3)
    many = written(tmp_path / "a.xlsx")
    with zipfile.ZipFile(many, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/sharedStrings.xml", b"<sst>" + b"<si><t>a</t></si>" * MB + b"</sst>")
    assert many.stat().st_size < MB
    assert "would take more than 20.0 MB" in refusal(many, limit=20 * MB)


@pytest.mark.extra("io")
@pytest.mark.parametrize(
    "inside", [b"<c/>" * MB, b"<c><is><t>" + b"a" * 4 * MB + b"</t></is></c>"], ids=["wide", "long"]
)
def test_rows_that_unpack_to_much(inside: bytes, tmp_path: Path) -> None:
    sheet = "xl/worksheets/sheet1.xml"
    row = b"<row>" + inside + b"</row></sheetData>"
    path = rewritten(written(tmp_path / "a.xlsx"), sheet, lambda xml: xml.replace(b"</sheetData>", row))
    assert path.stat().st_size < MB
    assert "would take more than 20.0 MB" in refusal(path, limit=20 * MB)
    faked = rewritten(path, sheet, lambda xml: xml.replace(b"</sheetData>", b"<!--</row>--></sheetData>"))
    assert "a sheet has comments" in refusal(faked)


@pytest.mark.extra("io")
def test_many_rows_of_a_workbook(tmp_path: Path) -> None:
    pd.DataFrame({"user": ["ann"] * 9000, "n": range(9000)}).to_excel(tmp_path / "a.xlsx", index=False)
    assert len(read_data(tmp_path / "a.xlsx", limit=8 * MB)) == 9000


# -- Feather ----------------------------------------------------------------------------------------


@pytest.mark.extra("io")
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_feather_is_measured_before_it_is_unpacked(
    compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.feather"
    feather.write_feather(pa.table({"a": np.zeros(3 * MB)}), path, compression=compression)
    assert path.stat().st_size < MB
    open_stream = pa.ipc.open_stream
    monkeypatch.setattr(pa.ipc, "open_stream", lambda file: open_stream(file))  # for the names, and not for the cells
    assert "would take more than 20.0 MB" in refusal(path, limit=20 * MB)


@pytest.mark.extra("io")
def test_broken_feather(tmp_path: Path) -> None:
    whole = written(tmp_path / "a.feather").read_bytes()
    for end in (20, len(whole) // 3, len(whole) // 2):
        (tmp_path / "b.feather").write_bytes(whole[:end])
        assert "b.feather" in refusal(tmp_path / "b.feather")


# -- databases --------------------------------------------------------------------------------------


def test_queries_of_sqlite(tmp_path: Path) -> None:
    path = sqlite_table(tmp_path / "a.db", "visits", 'it\'s "odd"')
    assert 'has the tables it\'s "odd", visits: give the name of one, or a SQL query, with query=' in refusal(path)
    assert len(read_data(path, query='it\'s "odd"')) == 3
    query = "SELECT user AS who, sum(n) AS n FROM visits GROUP BY 1 ORDER BY 2"
    assert read_data(path, query=query).to_numpy().tolist() == [["ann", 1], ["bob", 2], ["007", 30]]
    assert "has no table 'shop'; it has" in refusal(path, query="shop")
    before = path.read_bytes()
    other = tmp_path / "other.db"
    for wrong in ("DELETE FROM visits", f"ATTACH '{other}' AS other", "PRAGMA user_version = 3"):
        assert refusal(path, query=wrong).startswith("query may only read, got ")
    assert "cannot be read as sqlite" in refusal(path, query="no query at all")
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.db"]
    endless = "WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a) SELECT n FROM a"
    assert "would take more than 20.0 MB" in refusal(path, query=endless, limit=20 * MB)
    query = "SELECT x'00' AS b, 'ann' AS user"
    assert "row 1 of column 'b' has binary data" in refusal(path, query=query)
    assert read_data(path, query=query, columns=["user"])["user"].tolist() == ["ann"]


@pytest.mark.extra("io")
def test_queries_of_duckdb(tmp_path: Path) -> None:
    path = duckdb_table(tmp_path / "a.duckdb")
    (tmp_path / "secret.csv").write_text("a\n1\n")
    assert read_data(path, query="SELECT page, sum(n) AS n FROM visits GROUP BY 1 ORDER BY 1")["n"].tolist() == [31, 2]
    secret = f"SELECT * FROM read_csv('{tmp_path / 'secret.csv'}')"
    for wrong in (secret, f"COPY visits TO '{tmp_path / 'out.csv'}'", "DELETE FROM visits"):
        assert "cannot be read as duckdb" in refusal(path, query=wrong)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.duckdb", "secret.csv"]
    many = "SELECT range AS n FROM range(100000000)"
    assert "would take more than 20.0 MB" in refusal(path, query=many, limit=20 * MB)


@pytest.mark.extra("io")
def test_urls(tmp_path: Path) -> None:
    path = sqlite_table(tmp_path / "a.db")
    assert database_url(f"sqlite:///{path}") == path  # read as a file
    url = f"sqlite+pysqlite:///{path}"
    source = database_url(url)
    assert source is not None
    assert len(read_data(source)) == 3
    assert len(read_data(source, query="SELECT * FROM visits WHERE n > 1")) == 2
    assert read_data(source, query="SELECT ' :n' AS a, '12:30' AS b").to_numpy().tolist() == [[" :n", "12:30"]]
    for query in ("DROP TABLE visits", "-- SELECT\n DELETE FROM visits", "/* SELECT */ INSERT INTO visits SELECT 1"):
        assert "query must be a SELECT" in refusal(source, query=query)
    assert len(read_data(source, query="-- all of them\nSELECT * FROM visits")) == 3
    absent = database_url(f"sqlite+pysqlite:///{tmp_path / 'absent.db'}")
    assert absent is not None
    assert refusal(absent, query="visits") == f"there is no file {tmp_path / 'absent.db'}"
    assert not (tmp_path / "absent.db").exists()
    secret = database_url("nosuch://ann:pa55@host/shop")
    assert secret is not None
    assert refusal(secret, query="visits") == "nosuch://ann:***@host/shop is not a URL that SQLAlchemy can read"
    assert without_password("fit mysql://a:b@c/d -o x") == "fit mysql://a:***@c/d -o x"
    assert database_url("plain.csv") is None
    with pytest.raises(PltfError, match="cannot be read over the network: download it first"):
        database_url("https://host/a.csv")


# -- AnnData and MuData -----------------------------------------------------------------------------


def annotated(path: Path, *, sparse: bool = False, names: tuple[str, ...] = ("c1", "c2")) -> Path:
    """A file as anndata writes it."""
    multimodal = path.suffix == ".h5mu"
    with h5py.File(path, "w", userblock_size=512 if multimodal else 0) as file:
        into(file.create_group("mod/rna") if multimodal else file, sparse, names)
    if multimodal:
        with path.open("r+b") as raw:
            raw.write(b"MuData (format-version=0.1.0;creator=muon)")
    return path


def into(group: Any, sparse: bool, names: tuple[str, ...]) -> None:
    counts = np.array([[1, 0, 2], [0, 3, 0]])
    if sparse:
        held = group.create_group("X")
        held.attrs.update({"encoding-type": "csr_matrix", "shape": (2, 3)})
        for part, values in {"data": [1.0, 2.0, 3.0], "indices": [0, 2, 1], "indptr": [0, 2, 3]}.items():
            held[part] = values
    else:
        group["X"] = counts
    group["layers/raw"] = counts * 2
    for axis, labels in (("obs", names), ("var", ("g1", "g2", "g3"))):
        frame = group.create_group(axis)
        frame.attrs["_index"] = "_index"
        frame["_index"] = list(labels)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", ["a.h5ad", "a.h5mu"])
def test_annotated_files(name: str, sparse: bool, tmp_path: Path) -> None:
    path = annotated(tmp_path / name, sparse=sparse)
    with pytest.warns(pltf.DataWarning, match="X is used, not the layer raw: select with variable="):
        seen = read_data(path, variable="rna" if name == "a.h5mu" else None)
    assert read_data(path, variable="rna/X" if name == "a.h5mu" else "X").total == seen.total
    assert (seen.dims, seen.total, seen.shape) == (("obs", "var"), 6.0, (2, 3))
    assert seen.labels["obs"].names() == ["c1", "c2"]
    assert read_data(path, variable="rna/raw" if name == "a.h5mu" else "raw").total == 12.0
    wrong = "rna/none" if name == "a.h5mu" else "none"
    assert "has the layers X, raw: got 'none' for variable=" in refusal(path, variable=wrong)


def test_odd_annotated_files(tmp_path: Path) -> None:
    assert "duplicate label 'c1'" in refusal(annotated(tmp_path / "a.h5ad", names=("c1", "c1")))
    assert "has the modalities rna: got 'atac'" in refusal(annotated(tmp_path / "a.h5mu"), variable="atac")
    with h5py.File(tmp_path / "b.h5ad", "w") as file:
        file.create_dataset("X", (40_000, 40_000), dtype="f4", chunks=True)
        file.create_group("obs"), file.create_group("var")
    assert "would take more than 20.0 MB" in refusal(tmp_path / "b.h5ad", limit=20 * MB)
    with h5py.File(tmp_path / "c.h5ad", "w") as file:
        file["X"] = h5py.ExternalLink("a.h5ad", "X")
    assert "from another file" in refusal(tmp_path / "c.h5ad")


# -- what has no name of its own --------------------------------------------------------------------


def test_a_source_is_called_as_people_know_it(tmp_path: Path) -> None:
    source = ShownPath.called("standard input", written(tmp_path / "a.csv"))
    assert (str(source), source.name) == ("standard input", "standard input")
    assert len(read_data(source)) == 3
    assert "standard input has no column 'shop'" in refusal(source, columns=["shop"])
    assert str(source.parent) == str(tmp_path)
    assert source.read_text().startswith("user,page,n\n")
    assert packing_of(source) is None
    assert json.loads(TABLE.to_json(orient="records"))[0]["user"] == "ann"
    assert pltf.observe(read_data(source, keys=["user", "page"]), dims=["user", "page"], value="n").total == 33
