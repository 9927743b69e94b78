"""The plan: decided before the work, printed for people, and true to what is then used."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pltf
from pltf.data.blocks import block_shape, blocks
from pltf.engines import plan as planning
from pltf.engines import ways


def untouchable(shape: tuple[int, ...], dtype: str = "float64") -> Any:
    """An array of any size that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype=dtype), shape)


def test_hardly_any_data_are_touched() -> None:
    """A petabyte is planned at once."""
    plan = pltf.cp(rank=5).plan(untouchable((50_000, 50_000, 50_000)), threads=2, engine="dense", dispersion=None)
    assert plan.data_bytes > 1e15
    assert plan.work_bytes < plan.data_bytes / 1000
    assert "one fused pass" in str(plan)
    tucker = pltf.tucker(ranks=(2, 2, 2)).plan(untouchable((50_000, 50_000, 50_000)), threads=2, engine="dense")
    assert "blocks of" in str(tucker)


def test_text_says_it_all() -> None:
    X = np.ones((60, 50, 40), dtype="int32")
    text = str(pltf.tucker(ranks=(3, 2, 2)).plan(X, dtype="float32", threads=1))
    assert re.sub(r"[0-9.]+x the time|about [0-9.]+ \w+|work [0-9.]+ MB|[0-9.]+ [kM]flop", "#", text) == (
        "model     X[i,j,k] = A[i,p] * B[j,q] * C[k,r] * G[p,q,r]  (p=3, q=2, r=2)\n"
        "engine    dense: X is an array\n"
        "X         60x50x40 int32; nothing missing\n"
        "counts    all cells (alternatives: sparse #)\n"
        "exposure  closed form (nothing is missing)\n"
        "compute   float32, 1 thread, blocks of 60x50x40: 1\n"
        "order     [i,p] [p,q,r] -> [i,q,r]; [k,r] [i,q,r] -> [i,k,q]; [j,q] [i,k,q] -> [i,j,k]\n"
        "memory    data 480.0 kB (not copied) + #; the program itself takes 0.2 GB\n"
        "sweep     #, #"
    )


def test_coupled_models_list_every_equation() -> None:
    model = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)
    text = str(model.plan({"X": untouchable((6, 5)), "Y": np.ma.masked_equal(np.eye(5), 0)}))
    assert "dense: X is an array; Y is an array" in text
    assert "Y         5x5 float64; 80.0% missing" in text
    assert text.count("model ") == text.count("order ") == 2


def test_what_is_missing_is_guessed_before_the_data_are_read() -> None:
    X = np.ones((4, 3))
    X[1] = np.nan
    model = pltf.nmf(rank=2)

    def facts(data: Any, **options: Any) -> ways.Facts:
        (plan,) = model.plan(data, **options).equations
        return plan.task.facts

    assert facts(X).unread
    assert not facts(X).exact
    assert facts(pltf.observe(X)) == replace(facts(pltf.observe(X)), missing=3, positive=9, exact=True, unread=False)
    assert facts(np.ones((4, 3)), mask=X > 0).missing > 0
    assert facts(np.ones((4, 3), int)).missing == 0


# -- the choice ---------------------------------------------------------------------------------


def task(text: str, shape: tuple[int, ...], density: float, missing: float, storage: str, **ranks: int) -> ways.Task:
    model = pltf.Model(text, **ranks)
    sizes = model.index_sizes({"X": shape})
    cells = math.prod(shape)
    facts = ways.Facts(
        storage, np.dtype(float), cells, int(cells * density * (1 - missing)), int(cells * missing), unlisted="zero"
    )
    return ways.Task(model.equations[0], sizes, np.dtype(np.float64), facts)


UBER = ("wr,hr,dr,ikr,jkr->whdij", (27, 24, 7, 100, 100))


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("text", "shape", "density", "missing", "ranks", "counts", "exposure"),
    [
        (*UBER, 0.0063, 0.1, {"r": 10, "k": 6}, "sparse", "mask"),
        ("ir,jr,kr->ijk", (300, 300, 300), 0.001, 0.0, {"r": 10}, "sparse", "closed form"),
        ("ir,jr,kr->ijk", (300, 300, 300), 0.5, 0.6, {"r": 10}, "dense", "mask"),
        ("ir,jr,kr->ijk", (300, 300, 300), 0.001, 0.0001, {"r": 10}, "sparse", "holes"),
        ("ir,jr,kr->ijk", (300, 300, 300), 0.5, 0.999, {"r": 10}, "sparse", "observed"),
        ("ip,jq,kr,pqr->ijk", (300, 300, 300), 0.5, 0.1, {"p": 5, "q": 5, "r": 5}, "dense", "mask"),
    ],
)
def test_the_choice_does_not_depend_on_how_the_data_came_in(
    text: str,
    shape: tuple[int, ...],
    density: float,
    missing: float,
    ranks: dict[str, int],
    counts: str,
    exposure: str,
    storage: str,
) -> None:
    one = task(text, shape, density, missing, storage, **ranks)
    assert tuple(way.name for way in ways.choose(one, "auto", 1e10)) == (counts, exposure)


def test_small_data_stay_as_they_are() -> None:
    """Laying them out anew would not be noticed, and results keep their last bits."""
    for storage, expected in (("dense", ("dense", "mask")), ("sparse", ("sparse", "holes"))):
        one = task("ir,jr,kr->ijk", (20, 20, 20), 0.5, 0.4, storage, r=3)
        assert tuple(way.name for way in ways.choose(one, "auto", 1e10)) == expected


def test_nothing_is_laid_out_that_does_not_fit() -> None:
    one = task("ip,jq,kr,pqr->ijk", (300, 300, 300), 0.5, 0.1, "sparse", p=5, q=5, r=5)
    assert ways.choose(one, "auto", 1e10)[0].name == "dense"
    assert [way.name for way in ways.choose(one, "auto", 1e6)] == ["sparse", "holes"]


def test_an_engine_that_is_asked_for_is_taken() -> None:
    one = task("ir,jr,kr->ijk", (300, 300, 300), 0.001, 0.1, "dense", r=10)
    assert [way.name for way in ways.choose(one, "dense", 1e10)] == ["dense", "mask"]
    assert [way.name for way in ways.choose(one, "sparse", 1e10)] == ["sparse", "holes"]


def test_the_plan_of_a_fit_knows_its_data() -> None:
    rng = np.random.default_rng(0)
    X = (rng.random((200, 200, 100)) < 0.001).astype(float)
    fit = pltf.cp(rank=10).fit(X, max_iter=2, tol=0, progress=False)
    assert fit.engine == "sparse"
    assert "but 0.10% of its cells are above zero" in str(pltf.cp(rank=10).plan(pltf.observe(X)))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(pltf.PltfError, match=r"X must have 3 dimensions \(i, j, k\)"):
        pltf.cp(rank=2).plan(np.ones((2, 2)))
    with pytest.raises(pltf.ObservationError, match="mask must have the shape of X"):
        pltf.nmf(rank=2).plan(np.ones((2, 2)), mask=np.ones((3, 3)))
    with pytest.raises(pltf.ObservationError, match="with its own missing cells"):
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
    plan = model.plan(untouchable(shape)).equations[0].dense
    assert plan.block_bytes(plan.block) <= planning.BLOCK_BYTES
    kept = plan.shared_bytes if plan.shares else 0
    assert kept <= max(8 * planning.SHARED_BYTES, plan.data_bytes)
    assert len(plan.blocks) == plan.n_blocks


def test_contraction_orders_avoid_the_joint_array() -> None:
    """A core that stands first must not tempt the planner to multiply all other factors together."""
    plan = pltf.Model("pqr,ip,jq,kr->ijk", p=6, q=6, r=6).plan(untouchable((100, 100, 100))).equations[0].dense
    largest = max(plan.node_size(node) for node in plan.tree.nodes[:-1])
    assert largest <= 100 * 100 * 6


def test_a_large_core_does_not_cut_cells_to_crumbs() -> None:
    """A core does not get smaller when cells are cut, so it must not count towards the size of a block."""
    plan = pltf.tucker(ranks=(102, 102, 102)).plan(untouchable((20, 20, 20))).equations[0].dense
    assert plan.n_blocks <= 8


def test_a_sweep_passes_the_mask_twice_for_cp() -> None:
    (plan,) = pltf.cp(("i", "j", "k", "l"), rank=3).plan(untouchable((20, 20, 20, 20))).equations
    assert plan.task.tree.root_runs() == 2


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
