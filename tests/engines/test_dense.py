"""What the dense engine promises beyond the contract: no wasted passes, no wasted memory."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import pltf
from pltf.engines import plan as planning
from pltf.engines import select
from pltf.engines._numba import ratios
from pltf.engines.contraction import Tree
from pltf.engines.dense import DenseEngine


def engine(model: pltf.Model, X: np.ndarray, mask: np.ndarray | None = None) -> DenseEngine:
    seen = {"X": pltf.observe(X, mask)}
    built = select.build(model.plan(seen, threads=1), seen)
    assert isinstance(built, DenseEngine)
    return built


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the passes over the mask: each goes from the root of the tree, once a block."""
    seen: list[int] = []
    descend = Tree.descend

    def counted(self: Tree, values: list[np.ndarray], cells: np.ndarray, node: int) -> np.ndarray:
        if cells.ndim and node in self.parents:
            seen.append(node)
        return descend(self, values, cells, node)

    monkeypatch.setattr(Tree, "descend", counted)
    return seen


def test_partial_sums_of_the_mask_are_shared_within_a_sweep(passes: list[int]) -> None:
    X = np.random.default_rng(0).poisson(2.0, (5, 5, 5))
    mask = X != 3
    MODEL = pltf.cp(rank=2)
    MODEL.fit(X, mask=mask, max_iter=10, tol=0, threads=1, accelerate=False)
    assert len(passes) == 20  # two a sweep, not three, and none for the total


def test_nothing_missing_touches_no_cell(passes: list[int]) -> None:
    X = np.random.default_rng(0).poisson(2.0, (5, 5, 5))
    pltf.cp(rank=2).fit(X, max_iter=10, tol=0, threads=1, accelerate=False)
    assert passes == []


def test_large_partial_sums_are_not_kept(monkeypatch: pytest.MonkeyPatch, passes: list[int]) -> None:
    monkeypatch.setattr(planning, "SHARED_BYTES", 0)
    X = np.random.default_rng(0).poisson(2.0, (5, 5, 5))
    pltf.cp(rank=9).fit(X, mask=X != 3, max_iter=10, tol=0, threads=1, accelerate=False)
    assert len([node for node in passes if node < 3]) >= 30  # a pass for every factor


def test_ratio_kernel_is_its_numpy_equivalent() -> None:
    rng = np.random.default_rng(0)
    dtypes: tuple[Any, ...] = (np.float64, np.float32)
    for dtype in dtypes:
        x = rng.poisson(1.0, 1000).astype(dtype)
        x[::7] = np.nan
        known = rng.random(1000) < 0.7
        known[::7] = False
        rate = (10.0 ** rng.uniform(-30, 30, 1000)).astype(dtype)
        seen = known & (x > 0)
        expected = np.where(seen, x / rate, 0).astype(dtype)
        log_term = -(x[seen].astype(float) * np.log((x[seen] / rate[seen]).astype(float))).sum()
        got = rate.copy()
        assert ratios(x, known, got) == pytest.approx(log_term, rel=1e-12)
        np.testing.assert_array_equal(got, expected)
        whole = np.where(np.isnan(x), 0, x).astype(dtype)
        ratios(whole, None, rate)
        np.testing.assert_array_equal(rate > 0, whole > 0)


MEMORY = """
import resource, sys
import numpy as np, pltf

rng = np.random.default_rng(0)
shape = (300, 300, 300)
X = np.empty(shape, dtype="float32")
mask = np.empty(shape, dtype=bool)
for i in range(shape[0]):
    X[i] = rng.poisson(2.0, shape[1:])
    mask[i] = rng.random(shape[1:]) < 0.6
pltf.cp(rank=2).fit(X[:3, :3, :3], mask=mask[:3, :3, :3], dtype="float32", max_iter=2, tol=0)  # compiles
data = X.nbytes + mask.nbytes
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
pltf.cp(rank=7).fit(X, mask=mask, dtype="float32", max_iter=3, tol=0)
print((data + peak() - before) / data)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
def test_peak_memory_of_27_million_cells() -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    assert float(done.stdout) <= 1.5
