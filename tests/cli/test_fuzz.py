"""Whatever a file holds: a result that is right, or one sentence; never a traceback, never half a file."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import io as scipy_io
from scipy import sparse

import pltf
from pltf.data.observe import observed_again
from tests.cli import here
from tests.cli.test_convert import cells
from tests.extras import MINIMAL

words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=4)
labels = st.sampled_from(["ann", "bob", "007", "7", "NA", "", " x", "a,b", 'q"q', "1.0", "2026-01-05"]) | words
numbers = st.sampled_from(["0", "1", "3", "2.5", "", "NA", "1e3", "true", "-1", "inf", "x", "9007199254740993"])


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[str]], str, bool]:
    """Rows of two labels and perhaps a value, what stands between them, and whether there are values."""
    with_values = draw(st.booleans())
    row = st.tuples(labels, labels, numbers) if with_values else st.tuples(labels, labels)
    rows = draw(st.lists(row, max_size=6))
    return [list(one) for one in rows], draw(st.sampled_from(",;\t|")), with_values


def by_hand(rows: list[list[str]], with_values: bool) -> dict[tuple[str, str], float | None] | None:
    """What the cells hold, from a loop over the rows; None for rows at which a person would balk."""
    listed: dict[tuple[str, str], float | None] = {}
    for who, where, *words in rows:
        if not who or not where or (with_values and (who, where) in listed):
            return None
        if not with_values:
            listed[who, where] = (listed.get((who, where)) or 0) + 1
        elif words[0] in ("-1", "inf", "x", "9007199254740993"):
            return None
        else:
            listed[who, where] = 1.0 if words[0] == "true" else _number(words[0])
    X = {(a, b): listed.get((a, b), 0.0) for a in {a for a, _ in listed} for b in {b for _, b in listed}}
    return X if any(value is not None for value in X.values()) else None


def _number(word: str) -> float | None:
    return float(word) if word not in ("", "NA") else None


@pytest.mark.slow
@given(made=tables(), quote=st.booleans(), bom=st.booleans(), ending=st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=120)
def test_tables(
    made: tuple[list[list[str]], str, bool],
    quote: bool,
    bom: bool,
    ending: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    rows, separator, with_values = made
    folder = tmp_path_factory.mktemp("fuzz")
    out = io.StringIO()
    quote = quote or any("\r" in word for row in rows for word in row)  # which csv would leave bare
    how: Literal[0, 1] = csv.QUOTE_ALL if quote else csv.QUOTE_MINIMAL
    writer = csv.writer(out, delimiter=separator, quoting=how, lineterminator=ending)
    writer.writerows([["who", "where", "n"][: 2 + with_values], *rows])
    path = folder / "a.csv"
    path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + out.getvalue().encode())
    before = path.read_bytes()
    how_read = ["-i", "who,where", "--keep-blanks", *(["--value", "n"] if with_values else [])]
    done = here("fit", path, *how_read, "--nmf", 1, "--max-iter", 2, "-o", folder / "run.nc", "--quiet")
    assert path.read_bytes() == before
    assert done.out == ""
    expected = by_hand(rows, with_values)
    if expected is None:
        assert done.refusal
        assert [one.name for one in folder.iterdir()] == ["a.csv"]
        return
    assert (done.code, done.err) == (0, "")
    assert sorted(one.name for one in folder.iterdir()) == ["a.csv", "run.nc"]
    fit = pltf.load(folder / "run.nc")
    assert isinstance(fit, pltf.Fit)
    names = [fit.labels[index].names() for index in ("who", "where")]
    held = cells(observed_again(fit.patterns["X"])).items()
    assert {(names[0][int(i)], names[1][int(j)]): value for (i, j), value in held} == expected


# -- bytes --------------------------------------------------------------------------------------

COUNTS = np.random.default_rng(0).poisson(1.0, (4, 3))


def _saved(write: Callable[[Path], Any], name: str, folder: Path) -> bytes:
    write(folder / name)
    return (folder / name).read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A small file of every format."""
    folder = tmp_path_factory.mktemp("whole")
    table = pd.DataFrame({"i": list("aabbc"), "j": [1, 2, 1, 3, 1], "n": [1, 2, 3, 4, 5]})
    array = xr.Dataset({"X": (("i", "j"), COUNTS)}, {"i": list("abcd")})
    makers: dict[str, Callable[[Path], Any]] = {
        "a.csv": lambda path: table.to_csv(path, index=False),
        "a.csv.gz": lambda path: table.to_csv(path, index=False),
        "a.parquet": table.to_parquet,
        "a.tns": lambda path: path.write_text("1 1 3\n2 3 1\n4 2 0.5\n"),
        "a.npy": lambda path: np.save(path, COUNTS),
        "a.npz": lambda path: np.savez(path, COUNTS),
        "s.npz": lambda path: sparse.save_npz(path, sparse.csr_array(COUNTS)),
        "a.mat": lambda path: scipy_io.savemat(path, {"X": COUNTS}),
        "3.nc": lambda path: array.to_netcdf(path, engine="scipy"),
        "4.nc": lambda path: array.to_netcdf(path, engine="h5netcdf"),
        "run.nc": lambda path: pltf.nmf(rank=1).fit(COUNTS).save(path),
    }
    return {name: _saved(makers[name], name, folder) for name in NAMES}


PARQUET = () if MINIMAL else ("a.parquet",)
NAMES = ("a.csv", "a.csv.gz", *PARQUET, "a.tns", "a.npy", "a.npz", "s.npz", "a.mat", "3.nc", "4.nc", "run.nc")


def tried(path: Path) -> None:
    """Give a file to the commands that read files: an answer or one sentence, and nothing left behind."""
    content = path.read_bytes()
    output = path.with_name("out.npz")
    for command in (("info", path), ("convert", path, output, "-q"), ("predict", path, "--top", 1, "--among", "all")):
        done = here(*command)
        assert done.code in (0, 2), done
        if done.code == 2:
            assert done.refusal
        assert "should not" not in done.err, done
    expected = {path.name, output.name} if output.exists() else {path.name}
    assert {one.name for one in path.parent.iterdir()} == expected
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", NAMES)
def test_whole_files_are_fine(name: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(whole[name])
    tried(tmp_path / name)
    assert here("info", tmp_path / name).code == 0


PLACE = st.integers(0, 2**31)  # of a byte in a file of any length


@pytest.mark.slow
@given(
    name=st.sampled_from(NAMES),
    bytes_=st.lists(st.tuples(PLACE, st.integers(0, 255)), max_size=4),
    end=PLACE | st.none(),
)
@settings(max_examples=150)
def test_spoilt_files(
    name: str,
    bytes_: list[tuple[int, int]],
    end: int | None,
    whole: dict[str, bytes],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    content = bytearray(whole[name])
    for place, byte in bytes_:
        content[place % len(content)] = byte
    cut = len(content) if end is None else 1 + end % len(content)
    path = tmp_path_factory.mktemp("spoilt") / name
    path.write_bytes(bytes(content[:cut]))
    tried(path)


@pytest.mark.slow
@given(
    content=st.binary(max_size=200) | st.text(max_size=60).map(str.encode) | st.binary(max_size=60).map(gzip.compress),
    name=st.sampled_from(["a", "a.txt", *NAMES]),
    mark=st.sampled_from(
        [b"", b"PAR1", b"\x93NUMPY", b"PK\x03\x04", b"CDF\x01", b"\x89HDF\r\n\x1a\n", b"MATLAB 5.0", b"\x1f\x8b"]
    ),
)
@settings(max_examples=80)
def test_any_bytes(content: bytes, name: str, mark: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("bytes") / name
    path.write_bytes(mark + content)
    tried(path)


@pytest.mark.slow
@given(
    arguments=st.lists(
        st.sampled_from(["fit", "info", "-o", "--cp", "x", "-1", "--index", "a,b", "--", "", "é"]) | words
    )
)
@settings(max_examples=60)
def test_any_arguments(arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("arguments")
        patch.chdir(folder)
        done = here(*arguments)
        assert done.code in (0, 2), done
        assert "should not" not in done.err, done
        assert not list(folder.iterdir()) or "demo" in arguments
