"""Files that strangers may send: they are refused in one sentence, or read right."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
from scipy import io, sparse

import pltf
from pltf.cli.main import run
from pltf.errors import PltfError
from pltf.io.files import read_data
from pltf.memory import SHARE, Allowance, at_hand
from pltf.store.container import sign
from tests import crafted
from tests.crafted import OUTSIDE, ROWS, SOUND, SPARSE, UNSOUND, VALUES, as_mat_73, reads_another
from tests.extras import optional

pa, pq = optional("pyarrow"), optional("pyarrow.parquet")
MB = 1_000_000
LIMIT = 20 * MB


def refusal(path: Path, **options: Any) -> str:
    """Why a file is not read: one line that names it."""
    with pytest.raises(PltfError) as caught:
        read_data(path, **options)
    text = str(caught.value)
    assert path.name in text
    assert "\n" not in text
    return text


# -- sparse matrices ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SPARSE)
def test_a_sound_sparse_file(kind: str, tmp_path: Path) -> None:
    found = read_data(SPARSE[kind](tmp_path / f"a.{kind}"))
    assert found.toarray().T.ravel().tolist() == VALUES.tolist()


FAULTS = [(kind, fault) for kind in SPARSE for fault in UNSOUND]
FAULTS.remove(("73.mat", "too few columns"))  # there the starts tell how many there are


@pytest.mark.parametrize(("kind", "fault"), FAULTS)
def test_sparse_files_whose_parts_do_not_fit(kind: str, fault: str, tmp_path: Path) -> None:
    """In this process: the check comes before any compiled code."""
    refusal(SPARSE[kind](tmp_path / f"a.{kind}", **UNSOUND[fault]))


def test_csr_and_wrong_kinds_of_numbers(tmp_path: Path) -> None:
    make = SPARSE["npz"]
    assert read_data(make(tmp_path / "a.npz", format="csr")).toarray().ravel().tolist() == VALUES.tolist()
    assert "indptr must be whole" in refusal(make(tmp_path / "b.npz", starts=[0.0, 3, 6, 9, 12]))
    assert "indices must be a list" in refusal(make(tmp_path / "c.npz", rows=[ROWS]))
    assert "'xyz' is unsupported" in refusal(make(tmp_path / "d.npz", starts=SOUND, format="xyz"))


# -- MATLAB ---------------------------------------------------------------------------------------


def test_a_header_of_no_version(tmp_path: Path) -> None:
    assert "its header has an unknown MATLAB version" in refusal(crafted.mat_of_no_version(tmp_path / "a.mat"))


@pytest.mark.parametrize("row", [0, -1, 4, crafted.FAR, 0.5, math.nan, math.inf])
def test_sparse_version_4_whose_parts_do_not_fit(row: float, tmp_path: Path) -> None:
    assert read_data(crafted.sparse_mat_4(tmp_path / "a.mat")).toarray().T.ravel().tolist() == VALUES.tolist()
    told = refusal(crafted.sparse_mat_4(tmp_path / "b.mat", rows=[row - 1, *ROWS[1:]]))
    assert "coords of axis 0 must be from 0 to 2" in told or "positions that are not whole numbers" in told


VERSION_4: dict[str, tuple[int, int, int, bytes, str]] = {
    "back to its own header": (50, -1, 22, b"", "shape (-1, 22)"),
    "sizes whose product is above 0": (0, -1, -1, bytes(8), "shape (-1, -1)"),
    "sizes whose product is beyond 64 bits": (0, 2**31 - 1, 2**31 - 1, b"", "is truncated"),
    "too short": (0, 2, 2, bytes(31), "is truncated"),
    "ends within a header": (0, 1, 1, bytes(10), "ends inside a header"),
    "numbers of a VAX": (2000, 1, 1, bytes(8), "unknown type 2000"),
    "a type that is none": (60, 1, 1, bytes(8), "unknown type 60"),
    "a sparse table of two columns": (2, 1, 2, bytes(16), "table of shape (1, 2)"),
    "an empty sparse table": (2, 0, 3, b"", "table of shape (0, 3)"),
}


@pytest.mark.parametrize("fault", VERSION_4)
def test_version_4_that_is_spoilt(fault: str, tmp_path: Path) -> None:
    """SciPy's reader never ends on the first of them; a hang would be ended by the time limit of the tests."""
    code, rows, columns, held, told = VERSION_4[fault]
    assert told in refusal(crafted.mat_4(tmp_path / "a.mat", code, rows, columns, held))


def test_version_4_is_bounded(tmp_path: Path) -> None:
    path = crafted.mat_4(tmp_path / "a.mat", 0, 1, MB, bytes(8 * MB))
    assert "raise this with limit=" in refusal(path, limit=LIMIT)
    assert read_data(path, limit=30 * MB).shape == (1, MB)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["f8", "f4", "i4", "i2", "u2", "u1"])
def test_version_4_is_read_as_scipy_reads_it(kind: str, order: str, tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    held = np.arange(6).reshape(2, 3)
    code = (1000 if order == ">" else 0) + 10 * ["f8", "f4", "i4", "i2", "u2", "u1"].index(kind)
    head = np.array([code, 2, 3, 0, 2], dtype=f"{order}i4").tobytes()
    path.write_bytes(head + b"A\x00" + held.astype(order + kind).tobytes(order="F"))
    assert read_data(path).dtype == np.dtype(kind)
    assert read_data(path).tolist() == io.loadmat(path)["A"].tolist() == held.tolist()


def test_sizes_below_0_give_no_memory_back(tmp_path: Path) -> None:
    path = crafted.mat_of_sizes_below_0(tmp_path / "a.mat", 50 * MB)
    assert "an array has a negative size" in refusal(path, limit=LIMIT)


# -- other files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(-1,), (2, -3), (-1, -4)])
def test_an_array_of_numpy_with_a_size_below_0(shape: tuple[int, ...], tmp_path: Path) -> None:
    """NumPy would take it for all that is there, whatever the limit."""
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
        file.write(np.zeros(4096).tobytes())
    assert "an array has a negative size" in refusal(path, limit=100)


def test_time_zones_are_not_read_from_files(tmp_path: Path) -> None:
    """pandas opens any file that a zone of this kind names, and waits for ever if it is a pipe."""
    path = crafted.zone_of_another(tmp_path / "a.npz", tmp_path / "other")
    assert pd.DatetimeTZDtype(tz=str(np.load(path)["zones.when"]))
    assert read_data(path).labels["when"].zone is None


@pytest.mark.parametrize("how", OUTSIDE)
@pytest.mark.parametrize("ending", ["mat", "nc"])
def test_no_other_file_is_read(ending: str, how: str, tmp_path: Path) -> None:
    told = refusal(reads_another(tmp_path / f"a.{ending}", how, tmp_path / "other.h5"))
    assert "from another file" in told


@pytest.mark.parametrize("ending", ["mat", "nc"])
def test_a_link_to_a_name_in_the_same_file(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{ending}"
    with h5py.File(path, "w", userblock_size=512 if ending == "mat" else 0) as file:
        file["X"] = np.arange(4.0)
        file["Y"] = h5py.SoftLink("/X")
        if ending == "mat":
            file["Z"] = h5py.SoftLink("/nothing")
    if ending == "mat":
        as_mat_73(path)
    assert np.asarray(read_data(path, variable="Y")).tolist() == [0, 1, 2, 3]


# -- bombs ----------------------------------------------------------------------------------------

BOMBS: dict[str, Callable[[Path], Path]] = {
    "a.csv.gz": lambda path: crafted.gzip_bomb(path, 8 * MB),
    "long_line.csv.gz": lambda path: crafted.gzip_bomb(path, 8 * MB, row=b"a,"),
    "long_header.csv.gz": lambda path: crafted.gzip_bomb(path, 8 * MB, row=b"a,", head=b""),
    "one_row.csv.gz": lambda path: crafted.gzip_bomb(path, 8 * MB, row=b'"a\nb",'),
    "words.csv.gz": lambda path: crafted.gzip_bomb(path, 40 * MB, row=b"a" * 100_000 + b',"\n",1\n'),
    "a.tns.gz": lambda path: crafted.gzip_bomb(path, 2 * MB, row=b"1 1 1\n", head=b"1 1 1\n"),
    "long_line.tns.gz": lambda path: crafted.gzip_bomb(path, 8 * MB, row=b"1 ", head=b"1 1 1\n"),
    "a.mat": lambda path: crafted.mat_bomb(path, 50 * MB),
    "73.mat": lambda path: crafted.hdf5_bomb(path, 50 * MB),
    "a.nc": lambda path: crafted.hdf5_bomb(path, 50 * MB),
    "a.npz": lambda path: crafted.npz_bomb(path, 50 * MB),
    "names.npz": lambda path: crafted.npz_of_names(path, 5 * MB, 1),
    "empty.npz": lambda path: crafted.npz_of_names(path, 1000 * MB, 0),
    "words.nc": lambda path: crafted.netcdf_words(path, 400_000, "xy"),
}


@pytest.mark.parametrize("name", [name for name in BOMBS if name != "words.csv.gz"])
def test_what_would_take_too_much_is_refused(name: str, tmp_path: Path) -> None:
    path = BOMBS[name](tmp_path / name)
    assert path.stat().st_size < MB
    assert "would take more than 20.0 MB of memory to read: raise this with limit=" in refusal(path, limit=LIMIT)


@pytest.mark.parametrize("name", ["a.csv.gz", "a.mat", "73.mat", "a.nc", "a.npz"])
def test_the_limit_can_be_raised(name: str, tmp_path: Path) -> None:
    assert math.prod(read_data(BOMBS[name](tmp_path / name), limit=1000 * MB).shape) > MB


def test_words_that_are_long_but_few_are_read(tmp_path: Path) -> None:
    assert len(read_data(BOMBS["words.csv.gz"](tmp_path / "words.csv.gz"), limit=LIMIT)) > 300


@pytest.mark.extra("io")
def test_bombs_in_parquet(tmp_path: Path) -> None:
    many = crafted.parquet_bomb(tmp_path / "many.parquet", 3 * MB)
    assert "raise this with limit=" in refusal(many, limit=LIMIT)
    long = crafted.parquet_bomb(tmp_path / "long.parquet", 10_000, word=MB)
    assert "raise this with limit=" in refusal(long, limit=LIMIT)
    assert len(read_data(many, limit=1000 * MB)) == 3 * MB


@pytest.mark.extra("io")
def test_a_long_word_in_parquet_is_measured_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = crafted.parquet_word(tmp_path / "a.parquet", 30 * MB)
    assert path.stat().st_size < MB
    assert read_data(path, limit=100 * MB)["who.called"].str.len().tolist() == [30 * MB]
    assert read_data(path, columns=["n"], limit=LIMIT)["n"].tolist() == [1]
    monkeypatch.delattr(pq.ParquetFile, "iter_batches")
    assert "raise this with limit=" in refusal(path, limit=LIMIT)


def test_coordinates_that_are_no_labels_are_not_read(tmp_path: Path) -> None:
    found = read_data(crafted.netcdf_coordinate(tmp_path / "a.nc", 50 * MB), limit=LIMIT)
    assert list(found.coords) == ["row"]
    assert found.values.tolist() == list(range(10))


def test_arrays_of_npz_are_counted_once(tmp_path: Path) -> None:
    matrix = sparse.csr_array(np.ones((1, MB)))  # 12 MB, counted twice
    sparse.save_npz(tmp_path / "a.npz", matrix)
    assert read_data(tmp_path / "a.npz", limit=25 * MB).nnz == MB


@pytest.mark.parametrize("make", [crafted.netcdf_lists, crafted.sparse_mat_73_of_lists])
def test_lists_are_no_numbers(make: Callable[..., Path], tmp_path: Path) -> None:
    """One list may stand for all, and each takes memory of its own."""
    path = make(tmp_path / ("a.nc" if make is crafted.netcdf_lists else "a.mat"), 20_000, 1000)
    assert "numbers" in refusal(path, limit=LIMIT)


def test_the_array_of_npz_that_is_measured_is_the_one_that_is_read(tmp_path: Path) -> None:
    assert read_data(crafted.npz_of_two_names(tmp_path / "a.npz", 50 * MB), variable="X", limit=LIMIT).shape == (3,)


@pytest.mark.parametrize(("count", "word"), [(400_000, "xy"), (20_000, "x" * 1000)])
def test_strings_of_a_saved_fit_are_bounded_too(count: int, word: str, tmp_path: Path) -> None:
    path = tmp_path / "run.nc"
    pltf.nmf(rank=1).fit(np.eye(3), max_iter=2, tol=0).save(path)
    with h5py.File(path, "r+") as file:
        crafted.words_in_hdf5(file, "words", count, word)
        file["noise"] = np.random.default_rng(0).random(10_000)  # or it would tell of more than can be in it
    sign(path)
    pltf.load(path, limit=1000 * MB)
    with pytest.raises(PltfError, match="raise this with limit="):
        pltf.load(path, limit=LIMIT)


def test_a_large_chunk_of_strings_is_unpacked_once(tmp_path: Path) -> None:
    """HDF5 keeps small ones only, and labels are looked at some at a time: it took minutes."""
    path = crafted.netcdf_words(tmp_path / "a.nc", MB, "x")
    began = time.process_time()
    assert "would take more than" in refusal(path, limit=70 * MB)
    assert time.process_time() - began < 10


def test_a_saved_fit_is_bounded_too(tmp_path: Path) -> None:
    pltf.nmf(rank=2).fit(np.eye(30), max_iter=2, tol=0).save(tmp_path / "run.nc")
    pltf.load(tmp_path / "run.nc", limit=MB)
    with pytest.raises(
        PltfError, match=r"run\.nc would take more than 0\.0 MB of memory to read: raise this with limit="
    ):
        pltf.load(tmp_path / "run.nc", limit=1000)


@pytest.mark.parametrize("limit", [0, -1, math.nan, "8GB", True])
def test_limits_that_are_none(limit: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES)
    with pytest.raises(PltfError, match="limit must be a number of bytes above 0"):
        read_data(tmp_path / "a.npy", limit=limit)


def test_the_command_line_names_its_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(BOMBS["a.csv.gz"](tmp_path / "a.csv.gz"))
    for command in (["info", path], ["fit", path, "-i", "i,j", "--sum", "--nmf", "1", "-o", str(tmp_path / "run.nc")]):
        assert run([*command, "--limit", "20MB"]) == 2
        said = capsys.readouterr().err
        advice = "raise this with --limit, or write a cell store with pltf prepare\n"
        assert said.endswith(f"20.0 MB of memory to read: {advice}")
    assert run(["info", path, "--limit", "lots"]) == 2
    assert "--limit must be a memory size such as 8GB or 500MB, got 'lots'" in capsys.readouterr().err


def test_the_memory_at_hand_is_the_least_of_all() -> None:
    """In a process of its own: ulimit holds for good."""
    code = """
import resource
from pltf.memory import Allowance, at_hand
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
print(at_hand())
try:
    Allowance("a.csv").take(6 << 30)
except ValueError as error:
    print(error)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert 0 < float(told[0]) < 6 << 30
    assert told[1].startswith("a.csv would take more than ")
    assert f"{SHARE:.0%} of the free memory" in told[1]
    assert Allowance("a.csv").limit <= at_hand()


def test_a_packed_array_whose_checksum_is_wrong(tmp_path: Path) -> None:
    path = crafted.mat_bomb(tmp_path / "a.mat", 800)
    assert read_data(path).shape == (1, 100)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert "cannot be read" in refusal(path)


def test_very_many_columns_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = 20_000
    (tmp_path / "wide.csv").write_text(",".join(f"c{n}" for n in range(many)) + "\n" + ",".join("7" * many) + "\n")
    assert run(["info", str(tmp_path / "wide.csv")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("1 rows, 20000 columns")
    assert lines[-1] == "  and 10,000 more columns"
    assert len(lines) == 10_002
    assert lines[1] == "  c0     whole numbers, 1 different: 7 to 7"


# -- what is no plain file ------------------------------------------------------------------------


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe.nc"
    os.mkfifo(path)
    return path


def test_pipes_are_refused_and_not_waited_for(pipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hang would be ended by the time limit of the tests."""
    with pytest.raises(PltfError, match="is not a regular file"):
        pltf.load(pipe)
    with pytest.raises(PltfError, match="is not a regular file"):
        pltf.nmf(rank=1).fit(np.eye(2), checkpoint=pipe, resume=True)
    pltf.nmf(rank=1).fit(np.eye(2)).save(tmp_path / "run.nc")
    saved, out = str(tmp_path / "run.nc"), str(tmp_path / "out")
    for command in (
        ["report", str(pipe), "-o", f"{out}.html"],
        ["predict", str(pipe), "--top", "1"],
        ["predict", saved, "--cells", str(pipe), "--format", "csv"],
        ["score", str(pipe)],
        ["score", saved, str(pipe)],
        ["info", str(pipe)],
        ["convert", str(pipe), f"{out}.npz", "--format", "csv"],
    ):
        assert run(command) == 2, command
        assert f"{pipe} is not a regular file: save the output of a pipe to a file first" in capsys.readouterr().err


def test_a_file_on_standard_input_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("i,n\na,1\n")
    with (tmp_path / "a.csv").open() as file:
        told = subprocess.run(
            [sys.executable, "-m", "pltf", "info", "/dev/stdin"], stdin=file, capture_output=True, text=True, check=True
        )
    assert "1 rows, 2 columns" in told.stdout


def test_links_that_go_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    for command in (
        ["info", str(loop)],
        ["convert", str(loop), str(tmp_path / "out.npz"), "-i", "i,j"],
        ["fit", str(loop), "-i", "i,j", "--nmf", "1", "-o", str(tmp_path / "run.nc"), "--checkpoint", str(loop)],
        ["report", str(loop), "-o", str(tmp_path / "out.html")],
    ):
        assert run(command) == 2, command
        told = capsys.readouterr().err
        assert "internal error" not in told
        assert "loop.csv" in told
    with pytest.raises(PltfError, match=r"loop\.csv cannot be read: Too many levels of symbolic links"):
        pltf.load(loop)


# -- Parquet --------------------------------------------------------------------------------------


@pytest.mark.extra("io")
def test_binary_in_parquet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    binary = pa.array([b"\xff\xfe", b"ok", b"ok"])
    text = pa.Array.from_buffers(pa.string(), 3, binary.buffers())  # which it is not
    for name, column in (("string", text), ("dictionary", text.dictionary_encode())):
        pq.write_table(pa.table({"who": column, "n": [1, 2, 3]}), tmp_path / f"{name}.parquet")
        told = refusal(tmp_path / f"{name}.parquet")
        assert told.endswith(f"{name}.parquet: column 'who' is not valid UTF-8 text")
    path = tmp_path / "binary.parquet"
    pq.write_table(pa.table({"who": binary, "n": [1, 2, 3]}), path)
    assert run(["info", str(path)]) == 0
    assert "words, 2 different: b'\\xff\\xfe' to b'ok'" in capsys.readouterr().out
    assert run(["convert", str(path), str(tmp_path / "out.npz"), "--index", "who", "--sum"]) == 2
    assert "column 'who' must hold strings, numbers or dates, got bytes" in capsys.readouterr().err
