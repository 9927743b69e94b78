"""Files that strangers may send: they are refused in one sentence, or read right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pltf.errors import PltfError
from pltf.io.files import read_data
from tests.crafted import OUTSIDE, ROWS, SOUND, SPARSE, UNSOUND, VALUES, as_mat_73, reads_another


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


# -- other files ----------------------------------------------------------------------------------


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
