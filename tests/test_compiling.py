"""The cache of compiled functions may be out of reach, full or damaged; settings that leave no compiler are refused."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core import caching

import pltf
from pltf import compiling
from pltf.compiling import njit
from tests.cli import SCRIPT

CALL = """
import numpy as np
from pltf.special import combine_loop
out = np.empty(2)
combine_loop(np.ones(1), np.arange(2.0).reshape(1, 2), 9.0, out)
print(out.tolist(), combine_loop.stats.cache_path)
"""


@pytest.fixture(autouse=True)
def nothing_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_notes", [])
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))


def double(x: float) -> float:
    return 2 * x


def hits() -> int:
    """Compile a function, or take it from the cache; how often it was found there."""
    compiled = njit(double, cache=True)
    assert compiled(3.0) == 6.0
    return sum(compiled.stats.cache_hits.values())


def test_without_a_folder_a_private_temporary_one_is_used(tmp_path: Path) -> None:
    """Neither the package nor the home can be written to, as in a container; by root either."""
    package, home, temporary = tmp_path / "site" / "pltf", tmp_path / "home", tmp_path / "tmp"
    shutil.copytree(Path(pltf.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [package, *(one for one in package.rglob("*") if one.is_dir())]:
        (folder / "__pycache__").touch()
    home.touch()
    temporary.mkdir()
    changed = {"PYTHONPATH": package.parent, "HOME": home, "XDG_CACHE_HOME": home, "TMPDIR": temporary}
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **{name: str(path) for name, path in changed.items()}}
    env.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run([sys.executable, "-c", CALL], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (private,) = temporary.iterdir()
    assert done.stdout.startswith(f"[0.0, 1.0] {private}{os.sep}")
    assert private.stat().st_mode & 0o022 == 0
    assert done.stderr.count("RuntimeWarning:") == 1
    assert f"compiled functions are cached in {private}, because no other folder is writable" in done.stderr


@pytest.fixture
def only_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Only one folder can be written to: the temporary one."""

    def ensure(locator: Any) -> None:
        if not locator.get_cache_path().startswith(str(tmp_path / "tmp")):
            raise PermissionError
        Path(locator.get_cache_path()).mkdir(parents=True, exist_ok=True)

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", ensure)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    compiling.temporary_folder.cache_clear()
    yield tmp_path / "tmp"
    compiling.temporary_folder.cache_clear()


def test_a_temporary_folder_that_others_can_write_to_is_not_used(only_temporary: Path) -> None:
    with pytest.warns(RuntimeWarning, match="compiled functions are cached in"):
        assert hits() == 0
    assert hits() == 1  # and nothing is told again
    (private,) = only_temporary.iterdir()
    private.chmod(0o777)
    compiling.temporary_folder.cache_clear()
    assert hits() == 0


def test_without_any_folder_there_is_no_cache(only_temporary: Path) -> None:
    private = compiling.temporary_folder()
    assert private is not None
    private.rmdir()
    private.touch()
    compiling.temporary_folder.cache_clear()
    with pytest.warns(RuntimeWarning, match="compiled functions cannot be cached, because no folder is writable"):
        assert hits() == 0
    assert hits() == 0


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_a_damaged_cache_is_left_aside_and_mended(tmp_path: Path, ending: str) -> None:
    assert [hits(), hits()] == [0, 1]
    (file,) = (tmp_path / "cache").rglob(f"*.{ending}")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert [hits(), hits()] == [0, 1]


def test_a_full_cache_is_left_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(caching.IndexDataCacheFile, "_open_for_write", full)
        with pytest.warns(RuntimeWarning, match=r"cannot be cached in \S+ \(No space left on device\)"):
            assert hits() == 0
        assert hits() == 0
    assert [hits(), hits()] == [0, 1]


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
