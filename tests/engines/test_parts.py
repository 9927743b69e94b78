"""Sums over parts: the same bits for any storage, threads and runs; nearly the same for other cuts into parts."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pltf
from pltf.data import CooObservation, StoredObservation
from pltf.engines import parts as parts_module
from pltf.engines.base import Counts
from pltf.engines.listed import ListedEngine
from pltf.engines.lists import CellList
from pltf.engines.parts import COUNTS, EXPOSURE, Ask, Node, PartsEngine, SumTree, combined, spec_of, sums_of_run
from pltf.engines.registry import facts_of
from pltf.engines.ways import Task
from pltf.gamma import Array
from tests.stores import in_memory, stored

T = TypeVar("T")
SHAPE = (40, 9, 7)
MODELS = {
    "cp": pltf.cp(rank=3),
    "tucker": pltf.tucker(ranks=(2, 3, 2)),
    "shared": pltf.Model("X[i,j,k] = A[i,p] * H[j,i,p,q] * C[k,q,s]", p=2, q=3, s=2),
}


def cells(unlisted: str = "zero", shape: tuple[int, ...] = SHAPE, share: float = 0.2) -> CooObservation:
    rng = np.random.default_rng(3)
    x = rng.poisson(1.0, shape) * (rng.random(shape) < share)
    listed = np.argwhere((x > 0) | (rng.random(shape) < 0.02))  # some zeros are listed too
    seen = pltf.observe((listed, x[tuple(listed.T)]), shape=shape, unlisted=unlisted)
    assert isinstance(seen, CooObservation)
    return seen


def task_of(model: pltf.Model, seen: Any, dtype: str = "float64", likelihood: str = "poisson") -> Task:
    (equation,) = model.equations
    sizes = model.index_sizes({"X": seen.shape})
    return Task(equation, sizes, np.dtype(dtype), facts_of(seen), likelihood)


def factors_of(task: Task) -> dict[str, Array]:
    rng = np.random.default_rng(5)
    return {term.name: rng.gamma(1.0, 1.0, [task.sizes[i] for i in term.indices]) for term in task.equation.factors}


def assert_same(one: Counts, other: Counts, rtol: float = 0.0) -> None:
    for name in other.by_factor:
        np.testing.assert_allclose(one.by_factor[name], other.by_factor[name], rtol=rtol, atol=0, strict=True)
    np.testing.assert_allclose(one.log_term, other.log_term, rtol=rtol, atol=0)


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> pltf.Model:
    return MODELS[request.param]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("owner", [0, 1, 2])
def test_files_memory_and_threads_give_the_same_bits(
    model: pltf.Model, dtype: str, owner: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "BLOCK", 50)
    seen = cells("missing")
    on_disk = stored(seen, tmp_path / "cells", parts=6, owner=owner, kind="uint16")
    task = task_of(model, on_disk, dtype)
    Z = factors_of(task)
    first = PartsEngine(task, on_disk, 1)
    for threads, other in itertools.product((1, 2, 4), (on_disk, on_disk.in_memory())):
        engine = PartsEngine(task, other, threads)
        assert_same(engine.counts(Z), first.counts(Z))
        assert_same(engine.allocate(Z, None, (7,)), first.allocate(Z, None, (7,)))
        for name in Z:
            np.testing.assert_array_equal(engine.exposure(Z, name), first.exposure(Z, name))


@pytest.mark.parametrize("likelihood", ["poisson", "bernoulli"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_equals_the_engine_of_lists(model: pltf.Model, dtype: str, likelihood: str) -> None:
    seen = cells("missing")
    task, listed_task = task_of(model, in_memory(seen), dtype, likelihood), task_of(model, seen, dtype, likelihood)
    Z, tight = factors_of(task), 1e-12 if dtype == "float64" else 1e-5
    lists = ListedEngine(listed_task, CellList(seen, "positive", task.dtype), 1)
    everything = ListedEngine(listed_task, CellList(seen, "observed", task.dtype), 1)
    for count, owner in ((1, 0), (2, 1), (7, 2), (40, 0)):
        engine = PartsEngine(task, in_memory(seen, count, owner), 2)
        assert_same(engine.counts(Z), lists.counts(Z), rtol=tight)
        for name in Z:
            np.testing.assert_allclose(engine.exposure(Z, name), everything.exposure(Z, name), rtol=1e-12)


def test_hidden_rows_count_as_if_they_were_not_there(model: pltf.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "BLOCK", 30)
    seen = cells("missing")
    held = pltf.holdout(seen, 0.3, seed=1)
    train, _ = in_memory(seen, 5).hiding(held.cells.T)
    assert isinstance(held.train, CooObservation)
    task, other = task_of(model, train), task_of(model, held.train)
    Z = factors_of(task)
    engine, lists = PartsEngine(task, train, 2), ListedEngine(other, CellList(held.train, "positive", task.dtype), 1)
    assert_same(engine.counts(Z), lists.counts(Z), rtol=1e-12)
    observed = ListedEngine(other, CellList(held.train, "observed", task.dtype), 1)
    for name in Z:
        np.testing.assert_allclose(engine.exposure(Z, name), observed.exposure(Z, name), rtol=1e-12)


def posted(thing: T) -> T:
    """What another process gets of it."""
    copy: T = pickle.loads(pickle.dumps(thing))
    return copy


def runs_of(data: StoredObservation, cuts: list[int]) -> list[tuple[slice, tuple[int, int]]]:
    """Parts of each run, and the positions that it answers for: all of them, gaps included."""
    ends, size = [0, *cuts, len(data.parts)], data.shape[data.owner]
    firsts = [0, *(data.parts[cut].first for cut in cuts), size]
    return [(slice(a, b), (p, q)) for a, b, p, q in zip(ends, ends[1:], firsts, firsts[1:], strict=False)]


@pytest.mark.parametrize("what", ["counts", "drawn", *"ABC"])
@pytest.mark.parametrize("owner", [0, 1])
def test_runs_of_any_length_and_order_give_the_same_bits(model: pltf.Model, what: str, owner: int) -> None:
    data = in_memory(cells("missing"), 7, owner)
    task = task_of(model, data)
    Z = factors_of(task)
    spec = spec_of(task, data)
    names = tuple(Z)
    if what in ("counts", "drawn"):
        ask = Ask(COUNTS, names, log=True, key=(3, 1) if what == "drawn" else None)
    else:
        ask = Ask(EXPOSURE, (names["ABC".index(what) % len(names)],))
    whole = (0, data.shape[owner])
    once = combined(spec, [sums_of_run(spec, ask, data.parts, whole, Z, 1)])
    reference = spec.finished(ask, once, Z)
    count = len(data.parts)
    for cuts in ([1], [3], [2, 5], list(range(1, count))):
        found = [
            posted(sums_of_run(posted(spec), ask, posted(data.parts[some]), span, spec.cut(Z, span), threads=2))
            for some, span in runs_of(data, cuts)
        ]
        for order in (found, found[::-1]):
            sums = combined(spec, order)
            np.testing.assert_equal(sums.log_term, once.log_term)
            for name, array in spec.finished(ask, sums, Z).items():
                np.testing.assert_array_equal(array, reference[name])


@given(leaves=st.integers(1, 40), seed=st.integers(0, 99))
def test_the_tree_is_the_same_in_any_order(leaves: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [Node(np.array([x]), x) for x in rng.random(leaves) * 10.0 ** rng.integers(-8, 8, leaves)]
    roots = set()
    for order in (range(leaves), rng.permutation(leaves)):
        tree = SumTree(leaves, in_place=False)
        for k in order:
            tree.add(0, int(k), values[k])
        (root,) = tree.nodes.values()
        roots.add((float(root.sums[0]), root.log_term))
    assert len(roots) == 1
    assert roots.pop()[0] == pytest.approx(sum(one.log_term for one in values))


def test_in_order_only_a_few_sums_wait() -> None:
    tree = SumTree(1000, in_place=True)
    for k in range(1000):
        tree.add(0, k, Node(np.ones(1), 1.0))
        assert len(tree.nodes) <= 10
    assert tree.nodes[10, 0].sums[0] == 1000


def test_a_store_of_no_cells() -> None:
    seen = pltf.observe((np.empty((0, 3), int), np.empty(0)), shape=SHAPE)
    assert isinstance(seen, CooObservation)
    data = in_memory(seen)
    task = task_of(pltf.cp(rank=2), data)
    counts = PartsEngine(task, data, 2).counts(factors_of(task))
    assert counts.log_term == 0.0
    assert all(not sums.any() for sums in counts.by_factor.values())


def test_long_private_sums_make_whole_parts_the_pieces() -> None:
    data = in_memory(cells())
    short, long = task_of(pltf.cp(rank=1), data), task_of(pltf.cp(rank=50), data)
    assert spec_of(short, data).pieces > spec_of(long, data).pieces == 1


def test_zero_rates_make_the_log_term_infinite() -> None:
    data = in_memory(cells())
    task = task_of(pltf.cp(rank=2), data)
    Z: Mapping[str, Array] = {**factors_of(task), "A": np.zeros((40, 2))}
    assert PartsEngine(task, data, 2).counts(Z).log_term == -np.inf


def test_a_written_kernel_takes_parts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "BLOCK", 70)
    data = in_memory(cells())
    task = task_of(MODELS["shared"], data)
    Z = factors_of(task)
    plain = PartsEngine(task, data, 2).counts(Z)
    monkeypatch.setattr("pltf.engines.listed.WORTH_COMPILING", 1)
    assert_same(PartsEngine(task, data, 2).counts(Z), plain, rtol=1e-12)


def test_int64_rows_where_factors_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    data = in_memory(cells())
    task = task_of(pltf.cp(rank=2), data)
    Z = factors_of(task)
    plain = PartsEngine(task, data, 1).counts(Z)
    monkeypatch.setattr(parts_module, "LARGEST_ROW", 10)
    assert_same(PartsEngine(task, data, 1).counts(Z), plain)


def test_an_error_in_a_part_is_told(tmp_path: Path) -> None:
    data = stored(cells(), tmp_path / "cells", parts=4)
    task = task_of(pltf.cp(rank=2), data)
    engine = PartsEngine(task, replace(data), 2)
    (tmp_path / "cells" / "part-00002.arrow").unlink()
    with pytest.raises(pltf.ObservationError, match=r"part-00002\.arrow of a cell store is missing"):
        engine.counts(factors_of(task))
