"""Delimited text: what is read through pyarrow is what the strict parser reads, to the last bit and the last word."""

from __future__ import annotations

import csv
import gzip
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pltf.errors import PltfError
from pltf.io import arrow_text, delimited
from pltf.io.files import SourceTable, read_data
from pltf.io.reading import Reading

BOM = "\ufeff".encode()
PLAIN = b"user,place,n\nann,bar,3\nbob,007,0\n,NA,2.5\n"


def outcome(path: Path, kind: str, **options: Any) -> list[Any]:
    """What comes of reading a file, in a form that can be compared: all of the table, or what the error says."""
    try:
        table = read_data(path, format=kind, **options)
    except PltfError as error:
        return [str(error)]
    return [list(table.columns), [_content(table.iloc[:, at]) for at in range(table.shape[1])]]


def _content(column: pd.Series) -> Any:
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return column.dtype, list(map(repr, column))
    categories = column.cat.categories
    return categories.dtype, list(categories), column.cat.codes.dtype, list(column.cat.codes)


@contextmanager
def strict_parser() -> Iterator[None]:
    """Without the way through pyarrow."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(delimited, "arrow_columns", lambda *_: None)
        yield


@contextmanager
def watched() -> Iterator[list[bool]]:
    """Whether each table that is read goes through pyarrow."""
    taken: list[bool] = []

    def columns(*given: Any) -> Any:
        held = arrow_text.arrow_columns(*given)
        taken.append(held is not None)
        return held

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(delimited, "arrow_columns", columns)
        yield taken


@contextmanager
def small(block: int, limit: int) -> Iterator[None]:
    """With blocks of few bytes, and few characters allowed in a field."""
    before = csv.field_size_limit(limit)
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(arrow_text, "_BLOCK", block)
            yield
    finally:
        csv.field_size_limit(before)


def both_agree(path: Path, content: bytes, kind: str = "csv", packed: bool = False) -> bool:
    """Compare the two parsers on a text, read in several ways; whether all went through pyarrow."""
    path.write_bytes(gzip.compress(content) if packed else content)
    try:
        names = SourceTable(path, kind, Reading()).columns()
    except PltfError:
        names = []
    single = [name for name in names if names.count(name) == 1]
    with watched() as taken:
        for options in ({}, {"keys": single}, {"keys": single[:1], "columns": single[-1:]}):
            ours = outcome(path, kind, **options)
            with strict_parser():
                assert ours == outcome(path, kind, **options)
    return bool(taken) and all(taken)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("text") / "table"


# -- the way through pyarrow is taken ------------------------------------------------------------

ORDINARY = {
    "plain": PLAIN,
    "no newline at the end": PLAIN.rstrip(),
    "crlf": PLAIN.replace(b"\n", b"\r\n"),
    "mixed line ends": PLAIN.replace(b"\n", b"\r\n", 2),
    "bom": BOM + PLAIN,
    "bom before blank lines": BOM + b"\n\r\n" + PLAIN,
    "bom twice": BOM + BOM + PLAIN,
    "semicolons": PLAIN.replace(b",", b";"),
    "pipes": PLAIN.replace(b",", b"|"),
    "tabs": PLAIN.replace(b",", b"\t"),
    "blank lines": b"\r\n\n" + PLAIN.replace(b"\n", b"\n\n\r\n"),
    "all quoted": b'"user","place","n"\n"ann","bar",3\n"b, ""bob""","",""\n"""","\t","1"\n',
    "accents": "wer,n\nZoë,1\n北京,2\n".encode(),
    "duplicate and empty names": b"a,a,,b\n1,2,3,4\n",
    "one column": b"a\n1\n\n2\n",
    "one column, quoted": b'a\n""\n"x"\n',
    "header alone": b"a,b\n",
    "header alone, no newline": b"a,b",
    "trailing separators": b"a,b,\n1,2,\n",
    "blanks in fields": b" a , b\n x , 1\n",
    "words like null": b"a,b\nnull,NULL\nNone,#N/A\nnan,N/A\n",
    "words like numbers": b"a,b\n007,1e3\n0x1,+5\ntrue,2026-11-09\n",
    "a BOM in a field": "a,b\nx\ufeff,1\ny,\ufeff\n".encode(),
    "other line separators": "a,b\nx\u2028y,1\n\x0b\x0c\x1c\x85,2\n".encode(),
}


@pytest.mark.extra("io")
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("block", [5, 1 << 20])
@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_tables_go_through_pyarrow(name: str, block: int, packed: bool, file: Path) -> None:
    with small(block, 131072):
        assert both_agree(file, ORDINARY[name], "tsv" if name == "tabs" else "csv", packed)


@pytest.mark.extra("io")
def test_a_table_of_many_blocks(file: Path) -> None:
    rows = "".join(f"u{n % 97},{n},p{n % 5:03d},{n / 7}\n" for n in range(120_000))
    assert len(rows) > 2 * arrow_text._BLOCK
    assert both_agree(file, b"user,id,place,x\n" + rows.encode())


# -- the strict parser reads what is left ---------------------------------------------------------

UNUSUAL = {
    "empty": b"",
    "blank lines alone": b"\n\r\n\n",
    "no names": b",,\n1,2,3\n",
    "too few fields": b"a,b\n1,2\n1\n",
    "too many fields": b"a,b\n1,2\n\n1,2,3\n",
    "blanks in a line": b"a,b\n1,2\n  \n",
    "too few after a line end in quotes": b'a,b\n"x\ny",1\n1\n',
    "line end in quotes": b'a,b\n"x\ny",1\n"\r\n",2\n',
    "line end in quotes in the header": b'"a\nb",c\n1,2\n',
    "quote in the middle": b'a,b\nsize 5" x,1\n',
    "two quotes in the middle": b'a,b\nx""y,1\n',
    "quotes after a word": b'a,b\nx"y",1\n',
    "quote after a blank": b'a,b\n "x",1\n',
    "word after a quote": b'a,b\n"1"x,2\n',
    "blank after a quote": b'a,b\n"1" ,2\n',
    "no quote at the end": b'a,b\n"1,2\n',
    "no quote at the end of the header": b'a,"b',
    "cr alone": PLAIN.replace(b"\n", b"\r"),
    "one cr alone": b"a,b\n1,2\r3,4\n",
    "cr twice": b"a,b\r\r\n1,2\r\r\n",
    "cr at the end": b"a,b\n1,2\r",
    "nul": b"a,b\nx\x00y,1\n",
    "nul in the header": b"a\x00,b\n1,2\n",
    "latin-1": b"a,b\n\xe9,1\n",
    "latin-1 in the last line": b"a,b\n1,1\n1,\xe9",
    "latin-1 in a column that may not be read": b"a,b,c\n" + b"1,2,3\n" * 9999 + b"1,\xe9,2\n",
    "ragged, then latin-1": b"a,b\n1\n\xe9,1\n",
    "ragged, then latin-1 much later": b"a,b\n1\n" + b"1,2\n" * 9999 + b"\xe9,1\n",
    "half a character at the end": b"a,b\n1,\xc3",
    "utf-16": "a,b\n1,2\n".encode("utf-16"),
    "bom after the header": b"a,b\n" + BOM + b"x,1\n",
    "long field": b"a,b\n" + b"x" * 200_000 + b",1\n",
    "long line of short fields": b"a,b\n" + b"x" * 100_000 + b"," + b"y" * 100_000 + b"\n",
    "long header": b"a" * 200_000 + b",b\n1,2\n",
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("block", [3, 1 << 20])
@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_tables_give_the_same_table_or_error(name: str, block: int, packed: bool, file: Path) -> None:
    with small(max(block, len(UNUSUAL[name]) // 1000), 131072):
        assert not both_agree(file, UNUSUAL[name], packed=packed)


def test_a_packed_file_that_breaks_off(file: Path) -> None:
    whole = gzip.compress(b"a,b\n" + bytes(str(list(range(9999))), "ascii").replace(b" ", b"1\n"))
    for end in (len(whole) - 4, len(whole) - 30, len(whole) // 2, 20, 5):
        both_agree(file, whole[:end])
    both_agree(file, gzip.compress(b"a,b\n1\n" + b"1,2\n" * 9999)[:-20])


def test_the_line_of_a_broken_row_is_told(file: Path) -> None:
    file.write_bytes(b"a,b\n" + b"1,2\n" * 400_000 + b"1\n")
    assert outcome(file, "csv") == [f"{file}: line 400002 has 1 fields, but there are 2 columns"]


# -- any text ---------------------------------------------------------------------------------------

PIECES = [b",", b"\n", b"\r\n", b"\r", b'"', b'""', b'","', b'"\n"', b";", b"\t", b"|", b" ", b"\x00", BOM]
PIECES += [
    b"a",
    b"b",
    b"007",
    b"NA",
    b"null",
    b"1",
    b"2.5",
    b"-1",
    b"true",
    b"x" * 9,
    "é".encode(),
    b"\xff",
    b"\\",
    b"#",
]
WORDS = st.one_of(
    st.sampled_from(["", "007", "NA", "1", "2.5", 'say "hi"', "a,b", "a\nb", " ", '"']), st.text(max_size=4)
)
SIZES = {"block": st.sampled_from([1, 2, 3, 7, 20, 1 << 20]), "limit": st.sampled_from([3, 12, 131072])}


@settings(max_examples=150, deadline=None)
@given(
    text=st.lists(st.sampled_from(PIECES), max_size=25).map(b"".join),
    header=st.sampled_from([b"", b"u,v\n", b"u,v,w\n"]),
    **SIZES,
)
@example(text=b'""\n\n""', header=b"", block=1, limit=131072)
def test_any_text_is_read_alike(text: bytes, header: bytes, block: int, limit: int, file: Path) -> None:
    with small(block, limit):
        both_agree(file, header + text)


@pytest.mark.extra("io")
@settings(max_examples=80, deadline=None)
@given(rows=st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=8), ends=st.sampled_from(["\n", "\r\n"]), **SIZES)
def test_tables_as_programs_write_them_are_read_alike(
    rows: list[tuple[str, ...]], ends: str, block: int, limit: int, file: Path
) -> None:
    with file.open("w", encoding="utf-8", errors="surrogatepass", newline="") as out:
        csv.writer(out, lineterminator=ends).writerows([("a", "b", "c"), *rows])
    content = file.read_bytes()
    with small(block, limit):
        taken = both_agree(file, content)
    odd = any(sign in word for row in rows for word in row for sign in "\n\r\x00")
    assert taken or odd or limit < len(content) or any("\ufeff" in row[0][:1] for row in rows)


# -- without pyarrow --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ORDINARY, "too few fields", "cr alone", "line end in quotes"])
def test_all_of_it_works_without_pyarrow(name: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes((ORDINARY | UNUSUAL)[name])
    expected = outcome(file, "csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # importing it fails
    with watched() as taken:
        found = outcome(file, "csv")
    assert taken == [False]
    assert found == expected
