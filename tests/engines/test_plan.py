"""The plan: decided from shapes, printed for people, and true to what is then used."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import pltf
from pltf.data.blocks import block_shape, blocks
from pltf.engines import plan as planning


def untouchable(shape: tuple[int, ...], dtype: str = "float64") -> Any:
    """An array of any size that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype=dtype), shape)


def test_the_data_are_not_touched() -> None:
    """A petabyte is planned at once."""
    plan = pltf.cp(rank=5).plan(untouchable((50_000, 50_000, 50_000)), threads=2)
    assert plan.data_bytes > 1e15
    assert plan.work_bytes < plan.data_bytes / 1000
    assert "one fused pass" in str(plan)
    assert "blocks of" in str(pltf.tucker(ranks=(2, 2, 2)).plan(untouchable((50_000, 50_000, 50_000)), threads=2))


def test_text_says_it_all() -> None:
    text = str(pltf.tucker(ranks=(3, 2, 2)).plan(untouchable((60, 50, 40), "int32"), dtype="float32", threads=1))
    assert text == (
        "model    X[i,j,k] = A[i,p] * B[j,q] * C[k,r] * G[p,q,r]  (p=3, q=2, r=2)\n"
        "engine   dense: X is a dense array\n"
        "X        60x50x40 int32; nothing missing, exposure in closed form\n"
        "compute  float32, 1 thread, blocks of 60x50x40: 1\n"
        "order    [i,p] [p,q,r] -> [i,q,r]; [k,r] [i,q,r] -> [i,k,q]; [j,q] [i,k,q] -> [i,j,k]\n"
        "memory   data 480.0 kB (not copied) + work 3.9 MB\n"
        "sweep    1.5 Mflop"
    )


def test_coupled_models_list_every_equation() -> None:
    model = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)
    text = str(model.plan({"X": untouchable((6, 5)), "Y": np.ma.masked_equal(np.eye(5), 0)}))
    assert "dense: X and Y are dense arrays" in text
    assert "Y        5x5 float64; with a mask" in text
    assert text.count("model ") == text.count("order ") == 2


def test_masks_are_known_without_reading() -> None:
    X = np.ones((4, 3))
    model = pltf.nmf(rank=2)

    def masked(data: Any) -> bool:
        (plan,) = model.plan(data).equations
        assert isinstance(plan, planning.EquationPlan)
        return plan.masked

    assert model.plan(X).unread == {"X"}
    assert masked(X)
    assert not masked(pltf.observe(X))
    assert model.plan(X, mask=X > 0).unread == frozenset()
    assert not masked(X.astype(int))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(pltf.PltfError, match=r"X must have 3 dimensions \(i, j, k\)"):
        pltf.cp(rank=2).plan(np.ones((2, 2)))
    with pytest.raises(pltf.ObservationError, match="mask must have the shape of X"):
        pltf.nmf(rank=2).plan(np.ones((2, 2)), mask=np.ones((3, 3)))
    with pytest.raises(pltf.ObservationError, match="has its holes already"):
        pltf.nmf(rank=2).plan(pltf.observe(np.ones((2, 2))), mask=np.ones((2, 2)))
    with pytest.raises(pltf.EngineError, match="engine must be one of"):
        pltf.nmf(rank=2).plan(np.ones((2, 2)), engine="quantum")


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (pltf.cp(rank=7), (300, 300, 300)),
        (pltf.cp(rank=50), (10, 3000, 3000)),
        (pltf.cp(rank=50), (1, 4000, 4000)),
        (pltf.tucker(ranks=(9, 8, 7)), (400, 300, 200)),
        (pltf.nmf(rank=20), (20000, 3000)),
        (pltf.cp(("a", "b", "c", "d", "e"), rank=10), (40, 40, 40, 40, 40)),
        (pltf.Model("X[i,j,k] = G[p,q] * A[i,p] * N[i,j] * B[j,k,q]", p=5, q=6), (200, 200, 200)),
    ],
    ids=lambda value: str(value)[:40],
)
def test_temporaries_stay_under_the_budget(model: pltf.Model, shape: tuple[int, ...]) -> None:
    """And nothing as large as cells x latent is ever made."""
    (plan,) = model.plan(untouchable(shape)).equations
    assert isinstance(plan, planning.EquationPlan)
    assert plan.block_bytes(plan.block) <= planning.BLOCK_BYTES
    kept = plan.shared_bytes if plan.shares else 0
    assert kept <= max(8 * planning.SHARED_BYTES, plan.data_bytes)
    assert len(plan.blocks) == plan.n_blocks


def test_contraction_orders_avoid_the_joint_array() -> None:
    """A core that stands first must not tempt the planner to multiply all other factors together."""
    (plan,) = pltf.Model("pqr,ip,jq,kr->ijk", p=6, q=6, r=6).plan(untouchable((100, 100, 100))).equations
    assert isinstance(plan, planning.EquationPlan)
    largest = max(plan.node_size(node) for node in plan.tree.nodes[:-1])
    assert largest <= 100 * 100 * 6


def test_a_large_core_does_not_cut_cells_to_crumbs() -> None:
    """A core does not get smaller when cells are cut, so it must not count towards the size of a block."""
    (plan,) = pltf.tucker(ranks=(102, 102, 102)).plan(untouchable((20, 20, 20))).equations
    assert isinstance(plan, planning.EquationPlan)
    assert plan.n_blocks <= 8


def test_a_sweep_passes_the_mask_twice_for_cp() -> None:
    (plan,) = pltf.cp(("i", "j", "k", "l"), rank=3).plan(untouchable((20, 20, 20, 20))).equations
    assert plan.tree.root_runs() == 2


def test_blocks_cover_every_cell_once() -> None:
    shape = (5, 7, 3)
    seen = np.zeros(shape, dtype=int)
    for block in blocks(shape, block_shape(shape, lambda block: math.prod(block) <= 6)):
        seen[block] += 1
    assert (seen == 1).all()


def test_numbers_for_people() -> None:
    assert [planning.human(n, "B") for n in (0, 999, 1500, 2.5e9, 3e15)] == [
        "0 B", "999 B", "1.5 kB", "2.5 GB", "3.0 PB",
    ]  # fmt: skip
