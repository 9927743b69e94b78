"""Stores that are larger than the memory a process may take: the limit is enforced by the system (RLIMIT_AS)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pltf.data.part_files import StoreWriter
from tests.extras import required

pa = required("pyarrow")
pq = required("pyarrow.parquet")
required("duckdb")
pytestmark = [
    pytest.mark.extra("io"),
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them"),
]

LIMITED = """
import os, resource, sys
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # the other one reserves 1 GiB when it is first used
import numpy as np, pandas as pd, pltf
from pathlib import Path

def limit(room):
    "Let this process take so many bytes of address space more than it has now."
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + room,) * 2)

source, target = sys.argv[1:]
"""

FIT = """
def fit(path):
    options = dict(max_iter=2, tol=0, threads=2, dispersion=None, progress=False)
    return pltf.nmf(("i", "j"), rank=2).fit(pltf.open(path), **options)

pltf.prepare(np.eye(9), target, dims=["i", "j"], progress=False)
fit(target)  # compiles
limit(80 << 20)
print(fit(source).n_iter)
try:
    pltf.open(source).in_memory()
except MemoryError:
    print("too large for memory")
"""

PREPARE = """
options = dict(dims=["user", "place"], memory_limit=100e6, threads=2, progress=False)
pltf.prepare(pd.DataFrame({"user": ["a"], "place": [1]}), target, **options)  # imports
limit(650 << 20)
try:
    pltf.observe(pd.read_parquet(source), dims=["user", "place"])
except MemoryError:
    print("too large for memory")
print(pltf.prepare(source, target, overwrite=True, **options).total)
"""


def run(code: str, *arguments: Path) -> list[str]:
    """The lines that a limited process prints."""
    command = [sys.executable, "-c", LIMITED + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_fit_of_more_cells_than_memory(tmp_path: Path) -> None:
    writer, rng = StoreWriter(_made(tmp_path / "large"), ("i", "j"), 0, "zero", "float64"), np.random.default_rng(0)
    rows, columns = 1000, 1000
    for part in range(10):  # of 16 MB each
        i = np.repeat(np.arange(part * rows, (part + 1) * rows, dtype=np.int32), columns)
        writer.add([i, np.tile(np.arange(columns, dtype=np.int32), rows)], rng.integers(1, 9, i.size))
    writer.finish((10 * rows, columns), {}, None)
    assert run(FIT, tmp_path / "large", tmp_path / "small") == ["2", "too large for memory"]


def test_a_table_larger_than_memory_is_prepared(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(0), 5_000_000
    users = pa.array([f"a user with a long name {number:07}" for number in range(30_000)])
    table = {"user": users.take(pa.array(rng.integers(0, 30_000, n))), "place": rng.integers(0, 5000, n)}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    del table
    found = run(PREPARE, tmp_path / "t.parquet", tmp_path / "cells")
    assert found == ["too large for memory", "5000000.0"]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
