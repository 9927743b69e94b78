"""Readers against files whose content is known."""

from __future__ import annotations

import gzip
import pickle
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import io as scipy_io
from scipy import sparse

import pltf
from pltf.errors import PltfError
from pltf.io.files import FORMATS, SourceTable, guess, read_data
from pltf.io.listed import ListedFile
from pltf.io.reading import Reading
from pltf.io.saved import is_saved
from pltf.io.word_columns import number_in
from tests.crafted import as_mat_73, matlab
from tests.extras import optional

pydata = optional("sparse")


def held(path: Path, text: str | bytes) -> Path:
    """A file with this content."""
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(path: Path, **options: Any) -> str:
    """Why a file is not read: one line."""
    with pytest.raises(PltfError) as caught:
        read_data(path, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert path.name in text or "format must" in text
    return text


# -- text ---------------------------------------------------------------------------------------

TABLE = "user,place,n\nann,bar,3\nbob,gym,0\n"
TEXTS = {
    "plain.csv": TABLE.encode(),
    "no_ending": TABLE.encode(),
    "other.txt": TABLE.encode(),
    "crlf.csv": TABLE.replace("\n", "\r\n").encode(),
    "cr.csv": TABLE.replace("\n", "\r").encode(),
    "no_newline.csv": TABLE.rstrip().encode(),
    "blank_lines.csv": TABLE.replace("\n", "\n\n").encode(),
    "bom.csv": b"\xef\xbb\xbf" + TABLE.encode(),
    "semicolons.csv": TABLE.replace(",", ";").encode(),
    "pipes.csv": TABLE.replace(",", "|").encode(),
    "tabs.csv": TABLE.replace(",", "\t").encode(),
    "tabs.tsv": TABLE.replace(",", "\t").encode(),
    "quoted.csv": b'"user","place","n"\n"ann","bar",3\n"bob","gym","0"\n',
    "spaces_in_header.csv": TABLE.replace(",", " ,", 2).replace("user", " user").encode(),
    "packed.csv.gz": gzip.compress(TABLE.encode()),
    "packed.tsv.gz": gzip.compress(TABLE.replace(",", "\t").encode()),
    "packed_in_secret.csv": gzip.compress(TABLE.encode()),
    "whole.CSV": TABLE.encode(),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_table_in_text_is_read_however_it_is_written(name: str, tmp_path: Path) -> None:
    path = held(tmp_path / name, TEXTS[name])
    table = read_data(path, keys=["user", "place"])
    assert list(table.columns) == SourceTable(path, guess(path), Reading()).columns() == ["user", "place", "n"]
    assert table.values.tolist() == [["ann", "bar", 3], ["bob", "gym", 0]]
    assert table["n"].dtype == np.int64


def test_labels_stay_as_they_are_written(tmp_path: Path) -> None:
    words = ["007", "NA", "nan", " x", "1e3", "é", 'say "hi"', "a,b", "a\nb", "-0", "None"]
    path = tmp_path / "labels.csv"
    pd.DataFrame({"who": words, "n": range(len(words))}).to_csv(path, index=False)
    table = read_data(path, keys=["who"])
    plain = [word.strip() for word in words]
    assert table["who"].tolist() == plain
    assert list(table["who"].cat.categories) == sorted(plain)
    assert read_data(path, keys=["who"], keep_blanks=True)["who"].tolist() == words


def test_labels_that_are_all_plain_whole_numbers_are_numbers(tmp_path: Path) -> None:
    path = held(tmp_path / "a.csv", "who,n\n10,1\n9,1\n-3,1\n999999999999999999,1\n")
    table = read_data(path, keys=["who"])
    assert list(table["who"].cat.categories) == [-3, 9, 10, 999999999999999999]
    path = held(tmp_path / "b.csv", "who,n\n10,1\n09,1\n")
    assert list(read_data(path, keys=["who"])["who"].cat.categories) == ["09", "10"]


def test_an_empty_field_is_no_label(tmp_path: Path) -> None:
    table = read_data(held(tmp_path / "a.csv", "who,n\nann,1\n,2\n"), keys=["who"])
    assert table["who"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("word", "number"),
    [("3", 3), ("+3", 3), ("-3", -3), ("0.1", 0.1), (".5", 0.5), ("1e3", 1000.0), ("9007199254740993", 2**53 + 1)]
    + [("inf", float("inf")), ("TRUE", 1), ("false", 0), (" 7 ", 7)]
    + [(word, None) for word in ("x", "1,5", "1_000", "0x10", "1 2", "٣", "½", "--1", "e5", ".")],
)
def test_numbers_in_words(word: str, number: float | None) -> None:
    found = number_in(word)
    assert found == number
    assert type(found) is type(number)


@pytest.mark.parametrize("word", ["", "NA", "N/A", "NaN", "nan", "null", "None", "<NA>", "-"])
def test_words_for_no_value(word: str, tmp_path: Path) -> None:
    table = read_data(held(tmp_path / "a.csv", f"who,n\nann,{word}\nbob,2.5\n"), keys=["who"])
    assert np.isnan(table["n"][0])
    assert table["n"][1] == 2.5


def test_numbers_are_those_of_python_to_the_bit(tmp_path: Path) -> None:
    numbers = np.concatenate([np.random.default_rng(0).random(500) * 10.0 ** np.arange(-250, 250), [0.1, 2.0**53]])
    path = held(tmp_path / "a.csv", "n\n" + "\n".join(map(repr, numbers.tolist())))
    assert (read_data(path)["n"].to_numpy() == numbers).all()


def test_whole_numbers_beyond_float64_are_not_rounded(tmp_path: Path) -> None:
    table = read_data(held(tmp_path / "a.csv", "n,m\n9007199254740993,9007199254740993\n1,\n"))
    assert table["n"].tolist() == [2**53 + 1, 1]
    assert table["m"][0] == 2**53 + 1  # as it is: whoever uses it refuses it
    with pytest.raises(PltfError, match=r"2\*\*53"):
        pltf.observe(
            read_data(held(tmp_path / "b.csv", "i,m\n1,9007199254740993\n2,0.5\n"), keys=["i"]), dims=["i"], value="m"
        )


def test_a_column_with_a_word_is_words(tmp_path: Path) -> None:
    assert read_data(held(tmp_path / "a.csv", "n\n1\ntwo\n"))["n"].tolist() == ["1", "two"]


def test_only_the_columns_that_are_asked_for_are_read(tmp_path: Path) -> None:
    path = held(tmp_path / "a.csv", "a,b,a,,c\n1,2,3,4,5\n")
    assert list(read_data(path, columns=["c"], keys=["b"]).columns) == ["b", "c"]
    assert list(read_data(path).columns) == ["a", "b", "a", "", "c"]
    assert "several columns 'a'" in refusal(path, columns=["a"])
    assert "no column 'z'; it has a, b, a, '', c" in refusal(path, columns=["z"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "is empty"),
        (b"\n\n", "names of its columns"),
        (b",,\n1,2,3\n", "names of its columns"),
        (b"a,b\n1,2\n1\n", "line 3 has 1 fields, but there are 2 columns"),
        (b"a,b\n1,2\n\n1,2,3\n", "line 4 has 3 fields"),
        (b'a,b\n"x\ny",1\n1\n', "line 4 has 1 fields"),
        (b'a,b\n"1,2\n', "unexpected end of data"),
        (b'a,b\n"1"x,2\n', "expected after"),
        (b"a,b\nx\x00y,1\n", "NUL"),
        (b"a,b\n\xff,1\n", "UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "UTF-16"),
        (gzip.compress(b"a,b\n" + b"1,2\n" * 99999)[:-30], "ended before the end"),
        (b"\x1f\x8bgarbage", "cannot be read"),
    ],
)
def test_a_broken_text_is_refused(text: bytes, why: str, tmp_path: Path) -> None:
    assert why in refusal(held(tmp_path / "a.csv", text), keys=["a"] if b"\x00" in text else [])


def test_a_header_alone_is_an_empty_table(tmp_path: Path) -> None:
    assert read_data(held(tmp_path / "a.csv", "a,b\n"), keys=["a"]).shape == (0, 2)


# -- Parquet ------------------------------------------------------------------------------------


@pytest.mark.extra("io")
def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pd.DataFrame({"who": ["007", "NA"], "n": pd.array([2**53 - 1, None], dtype="Int64"), "x": [0.1, 2.5]})
    table.set_index("who").to_parquet(path)
    assert SourceTable(path, "parquet", Reading()).columns() == ["n", "x", "who"]
    found = read_data(path, columns=["who", "n"])
    assert found["who"].tolist() == ["007", "NA"]
    assert found["n"][0] == 2**53 - 1
    assert found["n"].isna().tolist() == [False, True]
    assert "no column 'z'" in refusal(path, columns=["z"])
    assert "cannot be read as parquet" in refusal(held(tmp_path / "b.parquet", path.read_bytes()[:-40]))


# -- lists of cells -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("1 2 3\n4 1 0.5\n", (4, 2)),
        ("# a comment\n\n1 2 3 # and another\n  4\t1   0.5\n", (4, 2)),
        ("2\n5 6\n1 2 3\n4 1 0.5\n", (5, 6)),
        ("# top\n2\n5 6\n1 2 3\n4 1 0.5\n", (5, 6)),
        ("# sizes 5 6\n1 2 3\n4 1 0.5\n", (5, 6)),
        ("1 2 3\r\n4 1 5e-1\r\n", (4, 2)),
    ],
)
@pytest.mark.parametrize("name", ["a.tns", "a.tns.gz"])
def test_tns(text: str, shape: tuple[int, ...], name: str, tmp_path: Path) -> None:
    path = held(tmp_path / name, gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    found = read_data(path)
    assert isinstance(found, ListedFile)
    assert found.coords.tolist() == [[0, 1], [3, 0]]
    assert found.values.tolist() == [3, 0.5]
    assert found.shape == shape


def test_tns_of_no_cells(tmp_path: Path) -> None:
    found = read_data(held(tmp_path / "a.tns", "2\n5 6\n"))
    assert (found.coords.shape, found.values.shape, found.shape) == ((0, 2), (0,), (5, 6))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0 1 5\n", "positions from 1"),
        ("1.5 1 5\n", "positions from 1"),
        ("-1 1 5\n", "positions from 1"),
        ("1 1 5\n1 1\n", "line 2 has 2 numbers, but the first line has 3"),
        ("7\n", "at least one position"),
        ("2\n1 1 5\n", "at least one position"),
        ("x\n", "at least one position"),
        ("# nothing\n", "at least one position"),
        ("# sizes 2 2\n1 1 1 5\n", "3 positions per line, but 2 sizes"),
        ("99999999999999999999 1 5\n", "positions from 1"),
    ],
)
def test_a_broken_tns_is_refused(text: str, why: str, tmp_path: Path) -> None:
    assert why in refusal(held(tmp_path / "a.tns", text))


# -- arrays -------------------------------------------------------------------------------------

COUNTS = np.random.default_rng(1).poisson(0.7, (5, 4))


def test_npy_and_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", COUNTS)
    assert (read_data(tmp_path / "a.npy") == COUNTS).all()
    np.savez(tmp_path / "one.npz", COUNTS)
    assert (read_data(tmp_path / "one.npz") == COUNTS).all()
    np.savez(tmp_path / "two.npz", A=COUNTS, B=COUNTS * 2)
    assert (read_data(tmp_path / "two.npz", variable="B") == COUNTS * 2).all()
    assert "arrays A, B: select one with variable=" in refusal(tmp_path / "two.npz")
    assert "arrays A, B: got 'C'" in refusal(tmp_path / "two.npz", variable="C")


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "bsr"])
def test_npz_of_scipy(format: str, tmp_path: Path) -> None:
    sparse.save_npz(tmp_path / "a.npz", sparse.coo_array(COUNTS).asformat(format))
    assert (read_data(tmp_path / "a.npz").toarray() == COUNTS).all()


def test_npz_of_pydata_sparse(tmp_path: Path) -> None:
    pydata.save_npz(tmp_path / "a.npz", pydata.COO.from_numpy(COUNTS))
    found = read_data(tmp_path / "a.npz")
    again = np.zeros(found.shape)
    again[tuple(found.coords.T)] = found.values
    assert (again == COUNTS).all()
    pydata.save_npz(tmp_path / "b.npz", pydata.COO.from_numpy(COUNTS, fill_value=1))
    assert "fill value 0" in refusal(tmp_path / "b.npz")


class Trap:
    """What must not be unpacked."""

    def __reduce__(self) -> Any:
        return (pytest.fail, ("unpickled",))


def test_pickles_are_refused_and_not_opened(tmp_path: Path) -> None:
    trap = np.array([Trap()], dtype=object)
    np.save(tmp_path / "a.npy", trap, allow_pickle=True)
    np.savez(tmp_path / "a.npz", trap)
    held(tmp_path / "p.npy", pickle.dumps(Trap()))
    assert "Python objects, which are not loaded" in refusal(tmp_path / "a.npy")
    assert "Python objects, which are not loaded" in refusal(tmp_path / "a.npz")
    for kind in ("npy", "npz", "mat", "netcdf", "parquet"):
        refusal(tmp_path / "p.npy", format=kind)


def test_a_zip_file_that_is_no_npz(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("events.csv", TABLE)
    assert "no array of numbers" in refusal(tmp_path / "a.zip", format="npz")


@pytest.mark.parametrize("format", ["4", "5"])
def test_mat(format: str, tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    scipy_io.savemat(path, {"X": COUNTS.astype(float), "S": sparse.csc_matrix(COUNTS.astype(float))}, format=format)
    assert guess(path) == "mat"
    assert (read_data(path, variable="X") == COUNTS).all()
    assert (read_data(path, variable="S").toarray() == COUNTS).all()
    assert "arrays X, S" in refusal(path)


def test_mat_with_cells_and_structs_beside(tmp_path: Path) -> None:
    words = np.empty((1, 2), dtype=object)
    words[0, 0], words[0, 1] = "bar", "gym"
    scipy_io.savemat(tmp_path / "a.mat", {"X": COUNTS, "names": words, "about": {"year": 2026}, "title": "visits"})
    assert (read_data(tmp_path / "a.mat") == COUNTS).all()
    scipy_io.savemat(tmp_path / "b.mat", {"names": words})
    assert "no array of numbers" in refusal(tmp_path / "b.mat")


KINDS = ["float64", "float32", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_mat_is_read_as_scipy_reads_it(kind: str, compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    given = {"X": np.arange(24).reshape(2, 3, 4).astype(kind), "n": np.ones((1, 1), dtype=kind), "much": COUNTS * 1e9}
    scipy_io.savemat(path, given, do_compression=compressed)
    theirs = scipy_io.loadmat(path)
    for name in given:
        ours = read_data(path, variable=name)
        assert ours.dtype == theirs[name].dtype
        np.testing.assert_array_equal(ours, theirs[name])


@pytest.mark.filterwarnings("ignore:The default value for `spmatrix`:DeprecationWarning")  # of SciPy 1.18
@pytest.mark.parametrize("compressed", [True, False])
def test_sparse_mat_is_read_as_scipy_reads_it(compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    for kind in (float, bool):
        scipy_io.savemat(path, {"S": sparse.csc_matrix(COUNTS.astype(kind))}, do_compression=compressed)
        np.testing.assert_array_equal(read_data(path).toarray(), scipy_io.loadmat(path)["S"].toarray())


def test_sparse_mat_as_matlab_writes_it(tmp_path: Path) -> None:
    """With more room than numbers; and logical ones, which it calls doubles though each is a byte."""
    head = [(6, 0x0205, 3), (5, 2, 3), (1, b"S")]
    rows, ends = (5, 0, 1, 9), (5, 0, 1, 1, 2)
    for flags, values in ((0x0205, (9, bytes([1, 1, 0]))), (0x0005, (9, np.array([1.0, 1.0, 7.0]).tobytes()))):
        head[0] = (6, flags, 3)
        (tmp_path / "a.mat").write_bytes(matlab([*head, rows, ends, values]))
        assert read_data(tmp_path / "a.mat").toarray().tolist() == [[1, 0, 0], [0, 0, 1]]


def test_mat_of_the_other_order_of_bytes(tmp_path: Path) -> None:
    """Every word of a small file turned round, as a machine with the other order would have written it."""
    words = [14, 56, 6, 8, 6, 0, 5, 8, 1, 2, 0x10001, int.from_bytes(b"X\0\0\0", "big"), 5, 8, 7, 8]
    content = b" " * 124 + b"\x01\x00MI" + b"".join(word.to_bytes(4, "big") for word in words)
    (tmp_path / "a.mat").write_bytes(content)
    assert read_data(tmp_path / "a.mat").tolist() == [[7.0, 8.0]]


def test_mat_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    scipy_io.savemat(path, {"X": COUNTS + 1j})
    assert "complex" in refusal(path)
    scipy_io.savemat(path, {"X": COUNTS})
    whole = path.read_bytes()
    place = whole.index(b"X\0") + 4  # of the code of the type of the numbers
    for code in (0, 8, 14, 15, 99, 255):  # scipy's reader would take each of them for a place in memory
        path.write_bytes(whole[:place] + bytes([code]) + whole[place + 1 :])
        assert f"of type {code}" in refusal(path)


def mat_73(path: Path) -> Path:
    """A file as MATLAB 7.3 writes it: HDF5 after 512 bytes of text."""
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("X", data=COUNTS.T.astype(float)).attrs["MATLAB_class"] = np.bytes_("double")
        file.create_dataset("title", data=np.array([[66, 67]], dtype=np.uint16)).attrs["MATLAB_class"] = np.bytes_(
            "char"
        )
        group, columns = file.create_group("S"), sparse.csc_array(COUNTS.astype(float))
        group.attrs["MATLAB_sparse"] = np.uint64(5)
        for name, part in (("data", columns.data), ("ir", columns.indices), ("jc", columns.indptr)):
            group.create_dataset(name, data=part.astype(float if name == "data" else np.uint64))
    return as_mat_73(path)


def test_mat_73(tmp_path: Path) -> None:
    path = mat_73(tmp_path / "a.mat")
    assert (read_data(path, variable="X") == COUNTS).all()
    assert (read_data(path, variable="S").toarray() == COUNTS).all()
    assert "arrays S, X" in refusal(path)


@pytest.mark.parametrize(("engine", "format"), [("scipy", "NETCDF3_CLASSIC"), ("h5netcdf", "NETCDF4")])
def test_netcdf(engine: Any, format: Any, tmp_path: Path) -> None:
    days = pd.date_range("2026-01-01", periods=4)
    data = xr.Dataset({"n": (("who", "day"), COUNTS), "m": (("who", "day"), COUNTS * 2.5)}, {"day": days})
    data.to_netcdf(tmp_path / "a.nc", engine=engine, format=format)
    found = read_data(tmp_path / "a.nc", variable="m")
    assert found.dims == ("who", "day")
    assert (found.values == COUNTS * 2.5).all()
    assert (found.indexes["day"] == days).all()
    assert "arrays n, m" in refusal(tmp_path / "a.nc")
    data[["n"]].to_netcdf(tmp_path / "b.nc", engine=engine, format=format)
    assert (read_data(tmp_path / "b.nc").values == COUNTS).all()


def test_netcdf_with_gaps_beyond_float64(tmp_path: Path) -> None:
    data = xr.Dataset({"n": ("i", np.array([2**53 + 1, -1]), {"_FillValue": np.int64(-1)})})
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    assert "2**53" in refusal(tmp_path / "a.nc")


def test_hdf5_without_dimensions(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file.create_dataset("n", data=COUNTS)
    assert (read_data(tmp_path / "a.nc").values == COUNTS).all()


def test_what_pltf_saved_is_no_data(tmp_path: Path) -> None:
    pltf.nmf(rank=1).fit(COUNTS).save(tmp_path / "run.nc")
    assert is_saved(tmp_path / "run.nc")
    assert "saved by pltf, but data are expected" in refusal(tmp_path / "run.nc")
    np.save(tmp_path / "a.npy", COUNTS)
    assert not is_saved(tmp_path / "a.npy")


# -- which format -------------------------------------------------------------------------------


def test_the_content_is_believed_before_the_ending(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", COUNTS)
    (tmp_path / "a.npy").rename(tmp_path / "a.csv")
    assert guess(tmp_path / "a.csv") == "npy"
    assert guess(held(tmp_path / "b", "1 2 3\n2 2 1\n")) == "tns"
    assert guess(held(tmp_path / "b.txt", "1 2 3\n2 2 1\n")) == "tns"
    assert guess(held(tmp_path / "c.dat", "user place\n")) == "csv"


PARQUET = pytest.param("parquet", marks=pytest.mark.extra("io"))


@pytest.mark.parametrize("ending", ["npy", "npz", PARQUET, "nc"])
def test_a_name_that_promises_too_much(ending: str, tmp_path: Path) -> None:
    assert "despite its extension" in refusal(held(tmp_path / f"a.{ending}", TABLE))


def test_what_cannot_be_read(tmp_path: Path) -> None:
    assert "an unsupported file type" in refusal(held(tmp_path / "a", b"\x00\x01"))
    assert "decompress it first" in refusal(held(tmp_path / "a.npy.gz", gzip.compress(b"\x93NUMPY")))
    assert "there is no file" in refusal(tmp_path / "none.csv")
    assert "is a folder" in refusal(tmp_path)
    assert "format must be one of" in refusal(held(tmp_path / "a.csv", TABLE), format="xml")
    for kind in set(FORMATS) - {"csv", "tsv"}:
        refusal(tmp_path / "a.csv", format=kind)
