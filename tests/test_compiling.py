"""The cache of compiled functions may be out of reach, full or damaged; settings that leave no compiler are refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pltf
from tests.cli import SCRIPT

CALL = """
import resource, sys
if len(sys.argv) > 1:  # bytes that a file may have: what is above fails as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
import numpy as np
from pltf.special import combine_loop
out = np.empty(2)
combine_loop(np.ones(1), np.arange(2.0).reshape(1, 2), 9.0, out)
assert out.tolist() == [0, 1]
print(sum(combine_loop.stats.cache_hits.values()), combine_loop.stats.cache_path)
"""


def called(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Call a compiled function in another process: cache hits, the folder of the cache, and all that was told."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [sys.executable, "-c", CALL, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    hits, folder = done.stdout.split()
    return int(hits), folder, done.stderr


@pytest.fixture
def closed(tmp_path: Path) -> dict[str, str]:
    """A copy of the package and a home, in neither of which a folder can be made, by root either."""
    package = tmp_path / "site" / "pltf"
    shutil.copytree(Path(pltf.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [package, *(one for one in package.rglob("*") if one.is_dir())]:
        (folder / "__pycache__").touch()
    (tmp_path / "home").touch()
    (tmp_path / "tmp").mkdir()
    home = str(tmp_path / "home")
    return {"PYTHONPATH": str(package.parent), "HOME": home, "XDG_CACHE_HOME": home, "TMPDIR": str(tmp_path / "tmp")}


def test_without_a_folder_a_private_temporary_one_is_used(closed: dict[str, str]) -> None:
    hits, folder, told = called(**closed)
    private = Path(folder).parent
    assert hits == 0
    assert private.parent == Path(closed["TMPDIR"])
    assert private.stat().st_mode & 0o077 == 0
    assert told.count("RuntimeWarning:") == 1
    assert f"compiled functions are kept in {private}, as no other folder can be written to" in told
    assert called(**closed)[:2] == (1, folder)
    private.chmod(0o777)  # others may have put anything there
    hits, folder, told = called(**closed)
    assert (hits, folder) == (0, "None")


def test_without_any_folder_there_is_no_cache(closed: dict[str, str]) -> None:
    name = f"pltf-compiled-{os.geteuid()}" if hasattr(os, "geteuid") else "pltf-compiled-"
    Path(closed["TMPDIR"], name).touch()
    hits, folder, told = called(**closed)
    assert (hits, folder) == (0, "None")
    assert told.count("RuntimeWarning:") == 1
    assert "compiled functions cannot be kept, as no folder can be written to" in told


def test_a_damaged_cache_is_left_aside_and_mended(tmp_path: Path) -> None:
    assert called(NUMBA_CACHE_DIR=str(tmp_path))[0] == 0
    assert called(NUMBA_CACHE_DIR=str(tmp_path))[0] == 1
    for ending in ("nbi", "nbc"):
        for file in tmp_path.rglob(f"*.{ending}"):
            file.write_bytes(b"\x80\x04" + file.read_bytes()[2 : file.stat().st_size // 2])
        assert called(NUMBA_CACHE_DIR=str(tmp_path))[0] == 0
        assert called(NUMBA_CACHE_DIR=str(tmp_path))[0] == 1


@pytest.mark.skipif(sys.platform == "win32", reason="has no limits")
def test_a_full_cache_is_left_aside(tmp_path: Path) -> None:
    hits, folder, told = called("100", NUMBA_CACHE_DIR=str(tmp_path))
    assert hits == 0
    assert told.count("RuntimeWarning:") == 1
    assert f"compiled functions cannot be kept in {folder} (File too large)" in told
    assert called(NUMBA_CACHE_DIR=str(tmp_path))[0] == 0
    assert called(NUMBA_CACHE_DIR=str(tmp_path))[0] == 1


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("NUMBA_DISABLE_JIT", "1", "pltf needs the compiler of Numba: unset NUMBA_DISABLE_JIT"),
        ("NUMBA_NUM_THREADS", "0", "NUMBA_NUM_THREADS must be a whole number of at least 1, got 0"),
    ],
)
def test_settings_without_a_compiler_are_refused(tmp_path: Path, name: str, value: str, why: str) -> None:
    (tmp_path / "x.csv").write_text("a,b,n\n1,1,2\n1,2,3\n")
    command = [str(SCRIPT), "fit", "x.csv", "--index", "a,b", "--nmf", "1", "-o", "run.nc", "--quiet"]
    env = {**os.environ, name: value}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (2, f"pltf: {why}\n")
