"""Chains over listed cells: the right order, and the written kernel is the interpreted one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pltf
from pltf.data import CooObservation
from pltf.engines import generated, listed, registry
from pltf.engines.base import Engine
from pltf.engines.chain import plan_chain, runs_of
from tests.reference import Array

MODELS = {
    "tucker": ("ip,jq,kr,pqr->ijk", (9, 8, 7), {"p": 3, "q": 2, "r": 4}),
    "train": ("ia,ajb,bk->ijk", (9, 8, 7), {"a": 3, "b": 2}),
    "two cores": ("ip,pr,jq,qr->ij", (9, 8), {"p": 3, "q": 2, "r": 4}),
    "shared modes": ("ikr,jkr,ij,kr->ij", (9, 8), {"k": 3, "r": 2}),
    "lone index": ("ipr,jr,jq->ij", (9, 8), {"p": 3, "q": 2, "r": 2}),
    "no latent index": ("i,j,ij->ij", (9, 8), {}),
}


def problem(
    name: str, dtype: str = "float64", threads: int = 1, likelihood: str = "poisson"
) -> tuple[Engine, dict[str, Array]]:
    text, shape, sizes = MODELS[name]
    model, rng = pltf.Model(text, **sizes), np.random.default_rng(0)
    x = rng.poisson(0.6, shape)
    x = x if likelihood == "poisson" else np.minimum(x, 1)
    holes = np.argwhere((x == 0) & (rng.random(shape) < 0.2))
    seen = {"X": pltf.observe((np.argwhere(x), x[x > 0]), shape=shape, missing=holes)}
    plan = model.plan(seen, dtype=dtype, threads=threads, engine="sparse")
    factors = {name: rng.random(size) + 0.1 for name, size in plan.factor_shapes.items()}
    plan = plan.knowing({"X": registry.facts_of(seen["X"])}, {"X": likelihood})
    return registry.build(plan, seen), factors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("tucker", "float64"), ("tucker", "float32"), *((name, "float64") for name in MODELS if name != "tucker")],
)
def test_a_written_kernel_is_the_interpreted_one(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for likelihood in ("poisson", "bernoulli"):  # one kernel for both
        with monkeypatch.context() as patch:
            assert_same_sums(name, dtype, likelihood, patch)


def assert_same_sums(name: str, dtype: str, likelihood: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, factors = problem(name, dtype, likelihood=likelihood)
    expected = slow.counts(factors)
    exposures = {a: slow.exposure(factors, a) for a in factors}
    one = {a: slow.counts(factors, [a], log=False) for a in factors}
    monkeypatch.setattr(listed, "WORTH_COMPILING", 0)
    rtol = 1e-12 if dtype == "float64" else 1e-5
    for threads in (1, 2):
        fast, _ = problem(name, dtype, threads, likelihood)
        counts = fast.counts(factors)
        assert counts.log_term == pytest.approx(expected.log_term, rel=rtol)
        for a in factors:
            np.testing.assert_allclose(counts.by_factor[a], expected.by_factor[a], rtol=rtol)
            np.testing.assert_allclose(fast.exposure(factors, a), exposures[a], rtol=1e-12)
            alone = fast.counts(factors, [a], log=False)
            np.testing.assert_array_equal(alone.by_factor[a], counts.by_factor[a])
            np.testing.assert_allclose(alone.by_factor[a], one[a].by_factor[a], rtol=rtol)
            assert np.isnan(alone.log_term)


def test_models_of_the_same_form_have_the_same_kernel() -> None:
    chains = [
        plan_chain(pltf.Model(text, **sizes).equations[0], all_sizes, 1000, 0)
        for text, sizes, all_sizes in [
            ("X[i,j] = A[i,p] * G[p,q] * B[j,q]", {"p": 3, "q": 3}, {"i": 9, "j": 8, "p": 3, "q": 3}),
            ("Y[u,v] = C[u,s] * K[s,t] * D[v,t]", {"s": 4, "t": 4}, {"u": 30, "v": 20, "s": 4, "t": 4}),
        ]
    ]
    assert generated.source(chains[0]) == generated.source(chains[1])


def test_sources_are_kept_for_the_next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    path = generated._kept("def kernel(): pass\n")
    assert path is not None
    assert path.parent == tmp_path / "pltf-chains"
    path.write_text("something else")
    assert generated._kept("def kernel(): pass\n") == path
    assert path.read_text() == "def kernel(): pass\n"
    assert [one.name for one in path.parent.iterdir()] == [path.name]


ANOTHER_PROCESS = """
import numpy as np, pltf
from pltf.engines import generated, listed
from pltf.engines.chain import plan_chain

listed.WORTH_COMPILING = 0
X = np.random.default_rng(0).poisson(1.0, (9, 8, 7))
fit = pltf.tucker(ranks=(2, 2, 2)).fit(X, engine="sparse", max_iter=3, tol=0)
kernel = generated.compiled(plan_chain(fit.model.equations[0], fit.sizes, int((X > 0).sum()), 0))
print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()), repr(fit.bound))
"""


@pytest.mark.slow
def test_a_second_process_takes_kernels_from_the_cache(tmp_path: Path) -> None:
    told = [
        subprocess.run(
            [sys.executable, "-c", ANOTHER_PROCESS],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for _ in range(2)
    ]
    assert [one[:2] for one in told] == [["0", "1"], ["1", "0"]]
    assert told[0][2] == told[1][2]


def test_no_folder_to_write_to_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "_folders", lambda: iter([Path("/proc/nowhere")]))
    assert generated._kept("def kernel(): pass\n") is None
    text = "def kernel(x):\n    return x + np.float64(1)\n"
    assert generated._compiled(text)(2.0) == 3.0


def test_what_the_first_modes_decide_is_computed_once_for_all_cells_that_share_them() -> None:
    equation = pltf.Model("wr,hr,dr,ikr,jkr->whdij", r=10, k=6).equations[0]
    sizes = {"w": 27, "h": 24, "d": 7, "i": 100, "j": 100, "r": 10, "k": 6}
    chain = plan_chain(equation, sizes, 300_000, 3)
    assert chain.modes[0] == 3
    widths = [len(step.after) for step in chain.steps]
    assert widths[-1] == 0
    assert [step.level for step in chain.steps] == sorted(step.level for step in chain.steps)
    assert chain.cost(sizes, 300_000) <= plan_chain(equation, sizes, 300_000, 0).cost(sizes, 300_000) * 3


def test_runs_are_those_of_cells_at_random() -> None:
    rng, shape, n = np.random.default_rng(0), (30, 20, 10), 2000
    cells = np.unique(np.stack([rng.integers(0, size, n) for size in shape], axis=1), axis=0)
    found = [len(np.unique(cells[:, : k + 1], axis=0)) for k in range(3)]
    np.testing.assert_allclose(runs_of(shape, n)[1:], found, rtol=0.03)
    assert runs_of((10**6, 10**6, 10**6), 10**6)[-1] == pytest.approx(10**6)


def test_a_factor_too_large_for_private_sums_has_a_pass_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, factors = problem("train")
    monkeypatch.setattr(listed, "PRIVATE_BYTES", 8 * 8 * 20)  # room for twenty entries
    cut, _ = problem("train", threads=2)
    for a in factors:
        np.testing.assert_allclose(cut.counts(factors).by_factor[a], whole.counts(factors).by_factor[a], rtol=1e-12)
        np.testing.assert_allclose(cut.exposure(factors, a), whole.exposure(factors, a), rtol=1e-12)
    assert cut.counts(factors).log_term == pytest.approx(whole.counts(factors).log_term, rel=1e-13)


def test_nothing_of_the_size_of_cells_times_latent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tucker 5x5x5 over 200,000 cells would gather 200 MB."""
    import tracemalloc

    rng = np.random.default_rng(0)
    cells = np.unique(rng.integers(0, (300, 200, 100), (200_000, 3)), axis=0)
    seen = {"X": pltf.observe((cells, np.ones(len(cells))), shape=(300, 200, 100))}
    assert isinstance(seen["X"], CooObservation)
    plan = pltf.tucker(ranks=(5, 5, 5)).plan(seen, threads=1, engine="sparse")
    factors = {name: rng.random(size) + 0.1 for name, size in plan.factor_shapes.items()}
    engine = registry.build(plan, seen)
    engine.counts(factors)
    tracemalloc.start()
    engine.counts(factors)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2e6
