"""What engines on lists of cells promise beyond the contract."""

from __future__ import annotations

import tracemalloc
from functools import partial
from typing import Any

import numpy as np
import pytest

import pltf
from pltf.data import CooObservation
from pltf.engines import listed, lists, registry
from pltf.engines.listed import CpPasses, ListedEngine, _CpPass
from pltf.engines.lists import MOST_CHUNKS, WholeList
from pltf.engines.sum import SumEngine


def listed_cp(shape: tuple[int, ...], n: int, rank: int = 3) -> CpPasses:
    rng = np.random.default_rng(0)
    cells = np.unique(np.stack([rng.integers(0, size, n) for size in shape], axis=1), axis=0)
    seen = {"X": pltf.observe((cells, np.ones(len(cells))), shape=shape)}
    engine = registry.build(pltf.cp(tuple("ijk"[: len(shape)]), rank=rank).plan(seen, threads=2), seen)
    passes = positive(engine)._passes
    assert isinstance(passes, CpPasses)
    return passes


def positive(engine: Any) -> ListedEngine:
    """The part of an engine that has the counts."""
    assert isinstance(engine, SumEngine)
    (found,) = (part.engine for part in engine._parts if part.counts)
    assert isinstance(found, ListedEngine)
    return found


@pytest.mark.parametrize("owner", [0, 1])
def test_no_two_chunks_have_a_row_in_common(owner: int) -> None:
    """They add to it at the same time, in their own threads."""
    rng = np.random.default_rng(0)
    coords = np.stack([rng.zipf(1.5, 5000) % 40, rng.integers(0, 300, 5000)])
    one = _CpPass((40, 300), WholeList(coords, np.ones(5000)), owner, [])
    assert one.chunks[0][0] == 0
    assert one.chunks[-1][1] == 5000
    assert 2 < len(one.chunks) <= MOST_CHUNKS
    rows = [set(one.rows[0, start:stop].tolist()) for start, stop in one.chunks]
    assert sum(map(len, rows)) == len(set.union(*rows))


def test_short_modes_are_private_and_long_ones_owned(monkeypatch: pytest.MonkeyPatch) -> None:
    def ways(engine: CpPasses) -> list[tuple[int, list[int]]]:
        return [(one.owner, list(one.short)) for one in engine._passes]

    assert ways(listed_cp((50, 400, 9), 20_000)) == [(1, [0, 2])]
    assert ways(listed_cp((3000, 4000, 9), 20_000)) == [(1, [2]), (0, [])]  # more rows than a chunk has cells
    monkeypatch.setattr(listed, "PRIVATE_BYTES", 8 * 3 * 20 * MOST_CHUNKS)  # room for 20 rows
    assert ways(listed_cp((50, 400, 9), 20_000)) == [(1, [2]), (0, [])]


def test_rows_beyond_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert listed_cp((50, 400, 9), 2000)._passes[0].rows.dtype == np.int32
    monkeypatch.setattr(listed, "LARGEST_ROW", 458)
    assert listed_cp((50, 400, 9), 2000)._passes[0].rows.dtype == np.int64  # 459 rows in all


def test_a_warning_where_digits_are_lost_and_cells_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MOST_CELLS", 100)
    holes = [(0, 2, k) for k in range(9)]
    seen = {"X": pltf.observe(([(0, 1, 1)], [2]), shape=(3, 5, 10), missing=holes)}
    engine = registry.build(pltf.cp(rank=1).plan(seen), seen)
    factors = {"A": np.ones((3, 1)), "B": np.ones((5, 1)), "C": np.ones((10, 1))}
    factors["B"][2] = 1e17
    factors["C"][9] = 1e-17
    with pytest.warns(pltf.ConvergenceWarning, match="exposures lose precision"):
        exposure = engine.exposure(factors, "A")
    assert (exposure >= 0).all()


@pytest.mark.parametrize("in_array", [False, True])
def test_cells_are_listed_once_for_all_copies_of_an_engine(monkeypatch: pytest.MonkeyPatch, in_array: bool) -> None:
    """Where holes cancel exposures; each recorded iteration on a GPU has a copy of its own."""
    X, keep = np.zeros((3, 5, 10)), np.ones((3, 5, 10), dtype=bool)
    X[0, 1, 1], keep[0, 2, :9] = 2, False
    holes, task = [(0, 2, k) for k in range(9)], pltf.cp(rank=1)
    seen = {"X": pltf.observe(X, keep) if in_array else pltf.observe(([(0, 1, 1)], [2]), shape=X.shape, missing=holes)}
    plan = task.plan(seen, engine="sparse")
    assert plan.equations[0].exposure.name == "holes"
    factors = {"A": np.ones((3, 1)), "B": np.ones((5, 1)), "C": np.ones((10, 1))}
    factors["B"][2] = 1e17
    factors["C"][9] = 1e-17
    built: list[Any] = []

    def noted(make: Any, *args: Any, **options: Any) -> Any:
        built.append(make(*args, **options))
        return built[-1]

    for name in ("_listed", "_array"):
        monkeypatch.setattr(registry, name, partial(noted, getattr(registry, name)))
    engine = registry.build(plan, seen)
    before = len(built)
    exposures = [one.exposure(factors, "A") for one in (engine.fresh(), engine.fresh(), engine, engine.fresh().fresh())]
    assert len(built) == before + 1
    wanted = built[-1].fresh().exposure(factors, "A")
    np.testing.assert_allclose(wanted[0], 4 * 9 + 1)
    for exposure in exposures:
        np.testing.assert_array_equal(exposure, wanted)


def test_an_array_is_not_listed_where_holes_cancel_exposures() -> None:
    """Its mask tells as much: a list would take 33 bytes for each of its observed cells."""
    rng = np.random.default_rng(0)
    keep = rng.random((2000, 2000)) < 0.99
    keep[:, 0] = False
    keep[0, 0] = True
    seen = {"X": pltf.observe(rng.poisson(0.02, keep.shape), keep)}
    plan = pltf.Model("X[i,j] = A[i,r] * B[j,r]", r=2).plan(seen)
    assert plan.equations[0].exposure.name == "holes"
    engine = registry.build(plan, seen)
    factors = {"A": np.ones((2000, 2)), "B": np.ones((2000, 2))}
    factors["B"][0] = 1e17
    engine.exposure(factors, "B")
    tracemalloc.start()
    try:
        exposure = engine.exposure(factors, "A")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(exposure, keep @ factors["B"], rtol=1e-12)
    assert peak < 8 * keep.size


def test_float32_adds_up_a_long_row_in_float64() -> None:
    """Four hundred thousand cells in the one row of a mode: float32 sums would be off by 1e-5 and more."""
    rng = np.random.default_rng(0)
    cells = np.stack([np.arange(400_000) // 1000, np.arange(400_000) % 1000, np.zeros(400_000, int)], axis=1)
    seen = {"X": pltf.observe((cells, rng.poisson(3.0, 400_000) + 1.0), shape=(400, 1000, 1))}
    factors = {"A": rng.random((400, 2)), "B": rng.random((1000, 2)), "C": np.ones((1, 2))}
    wide, narrow = (
        registry.build(pltf.cp(rank=2).plan(seen, dtype=dtype, threads=2), seen).counts(factors).by_factor["C"]
        for dtype in ("float64", "float32")
    )
    np.testing.assert_allclose(narrow, wide, rtol=3e-7)


@pytest.mark.parametrize("text", ["ir,jr,kr->ijk", "ir,jr,kr,r->ijk"])
def test_engines_on_the_same_data_share_its_sorted_lists(text: str) -> None:
    rng = np.random.default_rng(0)
    cells = np.unique(rng.integers(0, (40, 30, 20), (500, 3)), axis=0)
    seen = pltf.observe((cells, rng.poisson(2.0, len(cells)) + 1), shape=(40, 30, 20))
    engines = [registry.build(pltf.Model(text, r=r).plan(seen), {"X": seen}) for r in (2, 5)]
    held = [{id(array) for array in _arrays(engine)} for engine in engines]
    assert held[0] == held[1]
    assert held[0]
    alone = registry.build(pltf.Model(text, r=5).plan(seen, dtype="float32"), {"X": seen})
    assert not held[0] & {id(array) for array in _arrays(alone)}
    assert isinstance(seen, CooObservation)
    kept = len(lists._made_of[seen])
    del engines, alone
    assert len(lists._made_of[seen]) == 0 < kept


def _arrays(engine: Any) -> list[Any]:
    """The lists that an engine of positive cells goes through."""
    passes = positive(engine)._passes
    return [one.rows if isinstance(passes, CpPasses) else one.cells.rows for one in passes._passes]  # type: ignore[union-attr]


@pytest.mark.parametrize(("size", "count"), [(1, 10), (7, 1000), (300, 1000), (600, 1000), (5, 0)])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_lists_are_sorted_as_numpy_does(size: int, count: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = np.random.default_rng(0).integers(0, size, count).astype(dtype)
    expected = np.argsort(positions, kind="stable")
    np.testing.assert_array_equal(lists.order_by(positions, size), expected)
    monkeypatch.setattr(lists, "MOST_BY_NUMPY", 0)
    np.testing.assert_array_equal(lists.order_by(positions, size), expected)
