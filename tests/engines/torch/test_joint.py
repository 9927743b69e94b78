"""What the fused pass over listed cells of any equation promises beyond the contract."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import pltf
from pltf.engines import registry
from pltf.engines.torch import cp_passes, joint_passes, row_lists, sums
from pltf.engines.torch.blocks import BlockPasses, cells_tree, leaves_of
from pltf.engines.torch.joint_passes import JointPasses
from pltf.engines.torch.launch import launched
from pltf.engines.torch.listed import TorchListedEngine
from pltf.engines.torch.listed_memory import list_bytes
from pltf.engines.ways import ALL, ONE
from tests.engines.torch.test_listed import (
    KERNELS,
    PLAIN,
    assert_equals_host,
    bytes_of,
    expected,
    problem,
    untouched,
)

pytestmark = pytest.mark.usefixtures("tensors_on_device")

MODELS = {
    "tucker": ("ip,jq,kr,pqr->ijk", (3, 4, 9), {"p": 2, "q": 3, "r": 3}),
    "train": ("ip,jpq,kq->ijk", (3, 4, 9), {"p": 2, "q": 3}),
    "five modes": ("wr,hr,dr,ikr,jkr->whdij", (3, 2, 2, 3, 4), {"r": 3, "k": 2}),
    "pairs of modes": ("ir,jr,ij,kr->ijk", (3, 4, 5), {"r": 3}),
    "same rows": ("ir,irs,jst->ij", (7, 9), {"r": 3, "s": 2, "t": 2}),
    "no latent index": ("i,j->ij", (7, 9), {}),
    "one table for all modes": ("ijr,rs,s->ij", (7, 9), {"r": 3, "s": 2}),
}


@pytest.mark.parametrize("copies", [ALL, ONE])
@pytest.mark.parametrize("name", MODELS)
def test_equals_the_host(monkeypatch: pytest.MonkeyPatch, name: str, copies: str) -> None:
    """In chunks, pieces and levels, with numbers of 64 bits."""
    for module, option, value in (
        (row_lists, "MOST_CELLS", 9),
        (row_lists, "PIECE", 16),
        (sums, "MOST_PARTS", 2),
        (sums, "LARGEST", 3 if copies == ONE else 2**31),
        (cp_passes, "MOST", 4),
    ):
        monkeypatch.setattr(module, option, value)
    text, shape, latent = MODELS[name]
    dtype, rtol = ("float64", 1e-12) if copies == ALL else ("float32", 3e-6)
    task, cells, factors = problem(text, shape, 40, dtype, **latent)
    engine = TorchListedEngine(task, cells, KERNELS, copies)
    assert isinstance(engine._passes, JointPasses)
    assert_equals_host(engine, task, cells, factors, rtol)


def test_the_same_bits_in_every_run_and_for_some_factors() -> None:
    text, shape, latent = MODELS["tucker"]
    task, cells, factors = problem(text, shape, 60, "float32", **latent)
    once = expected(TorchListedEngine(task, cells, KERNELS), factors)
    engine = TorchListedEngine(task, cells, KERNELS)
    for name in factors:
        np.testing.assert_array_equal(expected(engine, factors, [name])[name], once[name])


def test_longer_joint_axes_and_allocation_go_through_contractions() -> None:
    task, cells, factors = problem("ip,jq,pq->ij", (3, 4), 9, p=33, q=32)
    engine = TorchListedEngine(task, cells, KERNELS)
    assert isinstance(engine._passes, BlockPasses)
    assert_equals_host(engine, task, cells, factors, 1e-12)
    short, cells, _ = problem("ip,jq,pq->ij", (3, 4), 9, p=32, q=32)
    assert isinstance(TorchListedEngine(short, cells, KERNELS)._passes, JointPasses)
    assert isinstance(TorchListedEngine(short, cells, PLAIN)._passes, BlockPasses)
    drawing = replace(short, allocates=True)
    assert isinstance(TorchListedEngine(drawing, cells, KERNELS)._passes, BlockPasses)


def test_exposures_of_sampled_fits_use_the_kernel() -> None:
    model, cells = pltf.tucker(ranks=(2, 2, 2)), np.array([[0, 0, 0], [1, 2, 3]])
    seen = pltf.observe((cells, [1.0, 2.0]), shape=(2, 3, 4), missing=[[1, 1, 1]])
    plan = model.plan(seen, engine="sparse", method="gibbs")
    engine: Any = registry.tensor_engine(plan.equations[0], seen, KERNELS)
    by_role = [type(part.engine._passes) for part in engine._parts if isinstance(part.engine, TorchListedEngine)]
    assert by_role == [BlockPasses, JointPasses]


def test_latent_indices_of_one_factor_do_not_lengthen_the_joint_axis() -> None:
    task, cells, factors = problem("ips,jqt,pq->ij", (3, 4), 9, p=3, q=2, s=40, t=50)
    engine = TorchListedEngine(task, cells, KERNELS)
    assert isinstance(engine._passes, JointPasses)
    assert engine._passes._latent == 6
    assert_equals_host(engine, task, cells, factors, 1e-12)


def test_cells_and_tables_beyond_32_bits() -> None:
    """The end of a list of more than 2^32 cells and of a table of more than 2^32 entries; no other page is touched."""
    from pltf.engines.torch.joint_kernels import OWNER, joint_sums
    from pltf.engines.torch.listed_kernels import COUNTS

    count, rows, columns = 2**32 + 3, 2**30 + 1, 4
    positions, x = untouched(count, torch.int32), untouched(count, torch.float32)
    table = untouched(columns + rows * columns, torch.float32)
    positions[-3:], x[-3:] = torch.tensor([0, rows - 1, rows - 1]), torch.tensor([2.0, 5.0, 1.0])
    rng = np.random.default_rng(0)
    a, first, last = (torch.tensor(rng.random(columns) + 0.5, dtype=torch.float32) for _ in range(3))
    table[:columns], table[columns : 2 * columns], table[-columns:] = a, first, last
    starts, owners = torch.tensor([count - 3, count]), torch.zeros(1, dtype=torch.int32)
    bases, widths = torch.tensor([0, columns]), torch.full((2,), columns, dtype=torch.int32)
    offsets = torch.arange(columns, dtype=torch.int32).repeat(2, 1)
    parts, logs = torch.empty(1, columns), torch.empty(1, dtype=torch.float64)
    arrays = starts, owners, positions, None, x, table, bases, widths, offsets, None, parts, logs
    sizes: dict[str, Any] = {"SLOTS": (OWNER, 0), "WANTED": 0, "KIND": COUNTS, "LOG": True}
    sizes |= joint_passes.joint_tile(columns, columns, 4)
    launched(KERNELS, joint_sums, (1,), *arrays, count, columns, columns, **sizes)
    P = torch.stack([first, last, last]).double().cpu().numpy()
    ratio = np.array([2.0, 5.0, 1.0]) / (P @ a.double().cpu().numpy())
    np.testing.assert_allclose(parts[0].cpu().numpy(), ratio @ P, rtol=1e-6)


@pytest.mark.parametrize(("copies", "dtype"), [(ALL, "float32"), (ONE, "float64")])
@pytest.mark.parametrize("name", ["tucker", "pairs of modes"])
def test_lists_take_the_memory_that_is_planned(name: str, copies: str, dtype: str) -> None:
    text, _, latent = MODELS[name]
    task, cells, _ = problem(text, (60, 50, 40), 50_000, dtype, **latent)
    planned = list_bytes(task, len(cells.whole()), KERNELS, counted=True, copies=copies)
    engine, held, peak = bytes_of(lambda: TorchListedEngine(task, cells, KERNELS, copies))
    assert isinstance(engine._passes, JointPasses)
    assert 0.9 * planned.held < held <= planned.held
    assert 0.3 * planned.making < peak - held <= planned.making


@pytest.mark.parametrize("name", ["tucker", "five modes", "same rows"])
def test_passes_take_the_memory_that_is_planned(name: str) -> None:
    """Never the cells, or the rows of a table, by the joint axis."""
    text, shape, _ = MODELS[name]
    latent = dict.fromkeys(MODELS[name][2], 8)
    task, cells, factors = problem(text, shape, 100, "float32", **latent)
    planned = list_bytes(task, len(cells.whole()), KERNELS, counted=True)
    engine = TorchListedEngine(task, cells, KERNELS)
    found, left, peak = bytes_of(lambda: engine._passes.counts(factors, list(factors), log=True))
    assert 0.2 * planned.flight < peak <= planned.flight + left
    assert found[0].keys() == factors.keys()
    for name in factors:
        assert bytes_of(partial(engine.exposure, factors, name))[2] <= planned.flight


def test_columns_along_the_joint_axis() -> None:
    task, _, _ = problem("ip,jqp,prq,kr->ijk", (2, 3, 4), 9, p=2, q=3, r=2)
    leaves = leaves_of(task, cells_tree(task))
    along = joint_passes.joint_columns(leaves, task.sizes)
    assert along.shape == (4, 12)
    np.testing.assert_array_equal(along[2], np.arange(12))
    assert len(set(zip(along[0], along[1], along[3], strict=True))) == 12
    for leaf, columns in zip(leaves, along, strict=True):
        members = joint_passes.members_of(columns)[: leaf.columns]
        for column, some in enumerate(members):
            np.testing.assert_array_equal(some[some >= 0], np.flatnonzero(columns == column))


def long_row(dtype: str) -> NDArray[np.float64]:
    task, cells, factors = problem("ir,jr,kr,r->ijk", (200, 200, 1), 30_000, dtype, r=2)
    name = list(factors)[-2]
    sums: NDArray[np.float64] = expected(TorchListedEngine(task, cells, KERNELS), factors, [name])[name]
    return sums


def test_float32_adds_up_a_long_row_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_passes, "TILE", 1 << 14)
    monkeypatch.setattr(cp_passes, "MOST", 1024)
    np.testing.assert_allclose(long_row("float32"), long_row("float64"), rtol=3e-7)
