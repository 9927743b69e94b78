"""What engines on lists of cells of a device promise beyond the contract."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from scipy import stats

import pltf
from pltf.devices import Device
from pltf.engines.listed import ListedEngine
from pltf.engines.lists import CellList
from pltf.engines.torch import blocks, cp_passes, row_lists, sums
from pltf.engines.torch import draws as draws_module
from pltf.engines.torch.cell_kernels import wide_log
from pltf.engines.torch.cp_passes import TorchCpPasses
from pltf.engines.torch.draws import CountDraws
from pltf.engines.torch.launch import launched
from pltf.engines.torch.listed import TorchListedEngine
from pltf.engines.torch.listed_memory import list_bytes
from pltf.engines.torch.sums import SegmentSums
from pltf.engines.ways import ALL, ONE, Task
from tests.on_device import ON_GPU, device
from tests.sm90 import compiled

pytestmark = pytest.mark.usefixtures("tensors_on_device")
torch.set_num_threads(1)
PLAIN, KERNELS = device(kernels=False), device(kernels=True)
DEVICES = pytest.mark.parametrize("device", [PLAIN, KERNELS], ids=["plain", "kernels"])

Factors = dict[str, Any]


def expected(engine: TorchListedEngine, factors: Factors, wanted: list[str] | None = None) -> Factors:
    """Counts as arrays."""
    return {name: part.cpu().numpy() for name, part in engine.counts(factors, wanted, log=False).by_factor.items()}  # type: ignore[attr-defined]


def drawn(engine: TorchListedEngine, factors: Factors, key: int = 1) -> Factors:
    """Counts as arrays."""
    return {name: part.cpu().numpy() for name, part in engine.allocate(factors, None, (key,)).by_factor.items()}  # type: ignore[attr-defined]


def problem(
    text: str, shape: tuple[int, ...], cells: int, dtype: str = "float64", mean: float = 2.0, **latent: int
) -> tuple[Task, CellList, Factors]:
    """A model of a list of positive cells, and factors on the device."""
    rng = np.random.default_rng(0)
    at = np.unique(rng.integers(0, shape, (cells, len(shape))), axis=0)
    seen = pltf.observe((at, rng.poisson(mean, len(at)) + 1.0), shape=shape)
    plan = pltf.Model(text, **latent).plan(seen, dtype=dtype)
    factors = {name: torch.tensor(rng.gamma(1.0, 1.0, size)) for name, size in plan.factor_shapes.items()}
    task = plan.equations[0].task
    return task, CellList(seen, "positive", task.dtype), factors


def assert_equals_host(engine: TorchListedEngine, task: Task, cells: CellList, factors: Factors, rtol: float) -> None:
    host, arrays = ListedEngine(task, cells, 1), {name: factor.cpu().numpy() for name, factor in factors.items()}
    exact, found = host.counts(arrays), expected(engine, factors)
    assert float(engine.counts(factors).log_term) == pytest.approx(exact.log_term, rel=rtol)
    for name in factors:
        np.testing.assert_allclose(found[name], exact.by_factor[name], rtol=rtol)
        exposure: Any = engine.exposure(factors, name)
        np.testing.assert_allclose(exposure.cpu().numpy(), host.exposure(arrays, name), rtol=1e-12)


# -- sums ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [2**31, 3], ids=["32 bits", "64 bits"])
@pytest.mark.parametrize("copies", [ALL, ONE])
@DEVICES
def test_chunks_pieces_and_permutations_give_the_same_sums(
    monkeypatch: pytest.MonkeyPatch, device: Device, copies: str, largest: int
) -> None:
    for module, name, value in (
        (row_lists, "MOST_CELLS", 5),
        (row_lists, "PIECE", 16),
        (sums, "MOST_PARTS", 2),
        (sums, "LARGEST", largest),
        (cp_passes, "MOST", 4),
        (blocks, "HOST_BYTES", 3000),
    ):
        monkeypatch.setattr(module, name, value)
    task, cells, factors = problem("ir,rj,kr->ijk", (3, 4, 9), 70, r=3)
    assert_equals_host(TorchListedEngine(task, cells, device, copies), task, cells, factors, 1e-12)


@pytest.mark.parametrize("modes", [2, 5])
def test_any_number_of_modes(modes: int) -> None:
    indices = "ijklm"[:modes]
    text = f"{','.join(f'{index}r' for index in indices)}->{indices}"
    task, cells, factors = problem(text, (3, 2, 2, 2, 2)[:modes], 20, "float32", r=6)
    assert_equals_host(TorchListedEngine(task, cells, KERNELS), task, cells, factors, 2e-6)


def test_ranks_beyond_what_a_program_holds_go_through_contractions() -> None:
    task, cells, factors = problem("ir,jr->ij", (3, 4), 9, r=1025)
    engine = TorchListedEngine(task, cells, KERNELS)
    assert not isinstance(engine._passes, TorchCpPasses)
    assert_equals_host(engine, task, cells, factors, 1e-12)


@DEVICES
def test_float32_adds_up_a_long_row_in_float64(monkeypatch: pytest.MonkeyPatch, device: Device) -> None:
    """Sums of a hundred thousand cells in float32 would be off by 1e-5 and more."""
    monkeypatch.setattr(cp_passes, "TILE", 1 << 14)
    monkeypatch.setattr(cp_passes, "MOST", 1024)
    found = []
    for dtype in ("float32", "float64"):
        task, cells, factors = problem(
            "ir,jr,kr,r->ijk" if device is PLAIN else "ir,jr,kr->ijk", (400, 400, 1), 100_000, dtype, r=2
        )
        name = list(factors)[-1]
        found.append(expected(TorchListedEngine(task, cells, device), factors, [name])[name])
    np.testing.assert_allclose(found[0], found[1], rtol=3e-7)


@DEVICES
def test_segments_are_added_up_in_levels(monkeypatch: pytest.MonkeyPatch, device: Device) -> None:
    monkeypatch.setattr(sums, "MOST_PARTS", 3)
    rng = np.random.default_rng(0)
    counts, rows = torch.tensor([1, 30, 2, 9]), torch.tensor([4, 0, 2, 3])
    parts = torch.tensor(rng.random((42, 3)), dtype=torch.float32)
    order = torch.tensor(rng.permutation(42), dtype=torch.int32)
    segments = SegmentSums.of(device, counts, rows, 6)
    assert len(segments.levels) == 4
    for some, where in (
        (parts, None),
        (parts, order),
        (parts.T.contiguous().T, order),
        (parts[:, :1].expand(-1, 3), None),
    ):
        into = torch.ones((6, 3), dtype=torch.float64)
        segments.add(some, into, where)
        added = np.ones((6, 3))
        laid = some.cpu().numpy() if where is None else some.cpu().numpy()[where.cpu().numpy()]
        ends = np.cumsum([0, *counts])
        for row, (a, b) in zip(rows.tolist(), pairwise(ends), strict=True):
            added[row] += laid[a:b].sum(axis=0, dtype=np.float64)
        np.testing.assert_allclose(into.cpu().numpy(), added, rtol=1e-6)


def test_cells_beyond_32_bits() -> None:
    """The cells at the end of a list of more than 2^32, of which no other page is ever touched."""
    from pltf.engines.torch.listed_kernels import COUNTS, cp_sums

    count, tail = 2**32 + 3, 3
    positions = untouched(2 * count, torch.int32).view(2, count)
    x = untouched(count, torch.float32)
    positions[0, -tail:], positions[1, -tail:] = torch.tensor([1, 2, 2]), torch.tensor([3, 3, 4])
    x[-tail:] = torch.tensor([2.0, 5.0, 1.0])
    table = torch.tensor(np.random.default_rng(0).random((5, 4)) + 0.5, dtype=torch.float32)
    starts, owners = torch.tensor([count - tail, count]), torch.zeros(1, dtype=torch.int32)
    parts, logs = torch.empty(1, 4), torch.empty(1, dtype=torch.float64)
    arrays = starts, owners, positions, None, x, table, parts, logs, count
    sizes = {"MODES": 2, "SKIPPED": -1, "KIND": COUNTS, "LOG": True, "WIDTH": 4, "COMPONENTS": 4, "CELLS": 4}
    launched(KERNELS, cp_sums, (1,), *arrays, **sizes)
    P = (table[0] * table[[1, 2, 2]] * table[[3, 3, 4]]).double().cpu().numpy()
    ratio = np.array([2.0, 5.0, 1.0]) / P.sum(axis=1)
    np.testing.assert_allclose(parts[0].cpu().numpy(), ratio @ P, rtol=1e-6)
    # The terms may cancel; each is as exact as float32 makes its ratio, so the scale of the error is the counts.
    counts = np.array([2.0, 5.0, 1.0])
    assert float(logs) == pytest.approx(-(counts * np.log(ratio)).sum(), abs=1e-6 * counts.sum())


def untouched(entries: int, dtype: Any) -> Any:
    """Zeros that take no memory until they are written, unless on a GPU."""
    if ON_GPU:
        return torch.zeros(entries, dtype=dtype)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    return torch.frombuffer(mmap.mmap(-1, entries * dtype.itemsize, flags=flags), dtype=dtype)


@triton.jit  # type: ignore[untyped-decorator]
def _logs(x: Any, out: Any, N: tl.constexpr) -> None:
    n = tl.arange(0, N)
    tl.store(out + n, wide_log(tl.load(x + n)))


def test_logarithms_of_float32_keep_their_digits() -> None:
    x = torch.tensor(10 ** np.random.default_rng(0).uniform(-37, 38, 4096)).to(torch.float32)
    x[:4] = torch.tensor([1.0, 0.75, 1.5, float("inf")])
    out = torch.empty(4096, dtype=torch.float64)
    launched(KERNELS, _logs, (1,), x, out, N=4096)
    assert out[3] == np.inf
    np.testing.assert_allclose(
        out[4:].cpu().numpy(), np.log(x[4:].double().cpu().numpy()), rtol=0, atol=1.2e-7
    )  # NumPy's is off by 3 units


# -- memory -------------------------------------------------------------------------------------


def bytes_of(call: Callable[[], Any]) -> tuple[Any, int, int]:
    """What a call returns, the bytes of tensors that it leaves behind, and those that there were at a time."""
    if ON_GPU:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = call()
        after, most = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
        return result, after - before, most - before
    kinds = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=kinds, profile_memory=True) as profile:
        result = call()
    told = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    taken = np.cumsum([0, *(event.nbytes() for event in sorted(told, key=lambda event: event.start_ns()))])
    return result, int(taken[-1]), int(taken.max())


@pytest.mark.parametrize("copies", [ALL, ONE])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("modes", [2, 3])
def test_lists_take_the_memory_that_is_planned(copies: str, dtype: str, modes: int) -> None:
    text, shape = ("ir,jr,kr->ijk", (3000, 2000, 50)) if modes == 3 else ("ir,jr->ij", (3000, 2000))
    task, cells, _ = problem(text, shape, 50_000, dtype, r=20)
    planned = list_bytes(task, len(cells.whole()), KERNELS, counted=True, copies=copies)
    engine, held, peak = bytes_of(lambda: TorchListedEngine(task, cells, KERNELS, copies))
    assert isinstance(engine._passes, TorchCpPasses)
    assert 0.9 * planned.held < held <= planned.held
    assert 0.3 * planned.making < peak - held <= planned.making


MODELS = pytest.mark.parametrize(
    ("text", "latent"),
    [("ir,jr,kr->ijk", {"r": 40}), ("ip,jq,kr,pqr->ijk", {"p": 4, "q": 3, "r": 3}), ("ir,jr,ij,kr->ijk", {"r": 30})],
)


@pytest.mark.parametrize("copies", [ALL, ONE])
@MODELS
def test_blocks_take_the_memory_that_is_planned(
    monkeypatch: pytest.MonkeyPatch, text: str, latent: dict[str, int], copies: str
) -> None:
    monkeypatch.setattr(blocks, "HOST_BYTES", 1 << 21)
    task, cells, factors = problem(text, (300, 200, 50), 10_000, "float32", **latent)
    task = replace(task, allocates=True)
    planned = list_bytes(task, len(cells.whole()), PLAIN, counted=True, copies=copies)
    engine, held, _ = bytes_of(lambda: TorchListedEngine(task, cells, PLAIN, copies))
    engine.exposure(factors, next(iter(factors)))  # what is made once is made by the first pass
    found, more, _ = bytes_of(lambda: engine.counts(factors))
    told = (found.log_term, *found.by_factor.values())
    held += more - sum(part.untyped_storage().nbytes() for part in told)
    assert held <= planned.held
    calls = (
        lambda: engine.counts(factors),
        lambda: engine.exposure(factors, "Z1"),
        lambda: engine.allocate(factors, None, (1,)),
    )
    peaks = [bytes_of(call)[2] for call in calls]
    assert 0.2 * planned.flight < max(peaks) <= planned.flight
    # Never the cells by the latent indices.
    assert max(peaks) < blocks.HOST_BYTES + 5 * 8 * sum(factor.numel() for factor in factors.values())


@DEVICES
def test_engines_on_the_same_data_share_its_lists(device: Device) -> None:
    rng = np.random.default_rng(0)
    at = np.unique(rng.integers(0, (40, 30, 20), (500, 3)), axis=0)
    seen = pltf.observe((at, rng.poisson(2.0, len(at)) + 1.0), shape=(40, 30, 20))
    lists = []
    for rank in (2, 5):
        task = pltf.Model("ir,jr,kr->ijk", r=rank).plan(seen).equations[0].task
        passes: Any = TorchListedEngine(task, CellList(seen, "positive", task.dtype), device)._passes
        lists.append(passes._lists if device.kernels else passes._list)
    assert lists[0] is lists[1]


# -- draws --------------------------------------------------------------------------------------


@DEVICES
@pytest.mark.parametrize(
    ("n", "p"), [(1, 0.3), (5, 0.01), (30, 0.2), (1000, 0.005), (40, 0.49), (10**4, 0.3), (10**9, 0.25), (10**9, 3e-9)]
)
def test_binomial_draws(monkeypatch: pytest.MonkeyPatch, device: Device, n: int, p: float) -> None:
    monkeypatch.setattr(draws_module, "ROWS", 1 << 14)
    rows = 1 << 14
    weights = torch.tensor([[p, 1 - p]], dtype=torch.float64).expand(rows, 2)
    found = CountDraws(device, (5,)).split(torch.full((rows,), float(n), dtype=torch.float64), weights).cpu().numpy()
    np.testing.assert_array_equal(found.sum(axis=1), n)
    assert_fits(found[:, 0], stats.binom(n, p))


@pytest.mark.parametrize("p", [2e-15, 0.4])
def test_binomial_draws_of_the_largest_counts(monkeypatch: pytest.MonkeyPatch, p: float) -> None:
    monkeypatch.setattr(draws_module, "ROWS", 1 << 14)
    n, rows = 2.0**53, 1 << 14
    weights = torch.tensor([[p, 1 - p]], dtype=torch.float64).repeat(rows, 1)
    found = CountDraws(KERNELS, (5,)).split(torch.full((rows,), n, dtype=torch.float64), weights).cpu().numpy()
    assert (found.sum(axis=1) == n).all()
    if p < 1e-9:
        assert_fits(found[:, 0], stats.poisson(n * p))
    else:
        assert stats.kstest((found[:, 0] - n * p) / np.sqrt(n * p * (1 - p)), "norm").pvalue > 1e-4


@DEVICES
@pytest.mark.parametrize("rate", [1e-12, 0.01, 0.7, 5.0, 9.0, 14.0, 300.0])
def test_hidden_counts_of_links(monkeypatch: pytest.MonkeyPatch, device: Device, rate: float) -> None:
    monkeypatch.setattr(draws_module, "ROWS", 1 << 14)
    rates = torch.full((1 << 14,), rate, dtype=torch.float64)
    found = CountDraws(device, (1, 2)).hidden(torch.ones(1 << 14), rates, links=True).cpu().numpy()
    assert found.min() >= 1
    assert_fits(found, stats.poisson(rate), given_above_zero=True)


def assert_fits(found: Any, law: Any, given_above_zero: bool = False) -> None:
    """Chi-square over ranges of about equal probability."""
    edges = np.unique(np.maximum(law.ppf(np.linspace(0, 1, 41)[1:-1]), float(given_above_zero)))
    below = np.array([0.0, *law.cdf(edges), 1.0])
    if given_above_zero:
        below[1:] = (below[1:] - law.pmf(0)) / law.sf(0)
    probability = np.diff(below)
    counts = np.diff([0, *(np.sum(found <= edge) for edge in edges), found.size])
    rare = probability * found.size < 1e-3
    assert not counts[rare].any()
    if (~rare).sum() > 1:
        likely = probability[~rare] / probability[~rare].sum()
        assert stats.chisquare(counts[~rare], likely * found.size).pvalue > 1e-4


@pytest.mark.parametrize("mean", [1.0, 6.0, 40.0, 1e5])
@pytest.mark.parametrize("links", [False, True])
def test_cells_are_allocated_as_a_multinomial(monkeypatch: pytest.MonkeyPatch, mean: float, links: bool) -> None:
    """Cells of one row with the same probabilities: what they draw adds up to one multinomial."""
    monkeypatch.setattr(cp_passes, "DRAWN", 1024)
    rng, rank = np.random.default_rng(1), 5
    x = np.ones((2, 1000)) if links else rng.poisson(mean, (2, 1000)) + 1.0
    seen = pltf.observe(x)
    task = pltf.Model("ir,jr->ij", r=rank).plan(seen).equations[0].task
    task = replace(task, likelihood="bernoulli" if links else "poisson")
    engine = TorchListedEngine(task, CellList(seen, "positive", task.dtype), KERNELS)
    rows = np.array([[0.1, 5.0, 0.0, 2.0, 1e-3], [1.0, 1.0, 1.0, 1.0, 1.0]]) * (mean / 7 if links else 1)
    factors = {"Z1": torch.tensor(rows), "Z2": torch.ones((1000, rank), dtype=torch.float64)}
    monkeypatch.setattr(engine, "names", ("Z1",))  # the rows of the other factor are many
    found = drawn(engine, factors)["Z1"]
    if not links:
        np.testing.assert_array_equal(found.sum(axis=1), x.sum(axis=1))
    for counts, weights in zip(found, rows, strict=True):
        some = weights > 0
        assert not counts[~some].any()
        assert stats.chisquare(counts[some], weights[some] / weights.sum() * counts.sum()).pvalue > 1e-4
    np.testing.assert_array_equal(drawn(engine, factors)["Z1"], found)
    assert (drawn(engine, factors, key=2)["Z1"] != found).any()


def test_bits_do_not_depend_on_the_size_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    task, cells, factors = problem("ir,jr->ij", (2, 6), 12, r=3, mean=20.0)
    found = []
    for size in (2, 16):
        monkeypatch.setattr(cp_passes, "DRAWN", size)
        found.append(drawn(TorchListedEngine(task, cells, KERNELS), factors))
    for name in factors:
        np.testing.assert_array_equal(found[0][name], found[1][name])


@DEVICES
@pytest.mark.parametrize("text", ["ir,jr->ij", "ir,jr,r->ij"])
def test_float32_draws_from_factors_that_are_not_rounded(device: Device, text: str) -> None:
    task, cells, factors = problem(text, (4, 5), 15, "float32", r=3)
    wide, _, _ = problem(text, (4, 5), 15, "float64", r=3)
    exact = float(TorchListedEngine(wide, cells, PLAIN).counts(factors).log_term)
    engine = TorchListedEngine(replace(task, allocates=True), cells, device)
    assert float(engine.allocate(factors, None, (1,)).log_term) == pytest.approx(exact, rel=1e-12)
    x = cells.whole().x
    assert x is not None
    assert {counts.sum() for counts in drawn(engine, factors).values()} == {x.sum()}


# -- compiling ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_kernels_compile_for_a_gpu_and_keep_to_its_registers() -> None:
    found = compiled("tests.engines.torch.list_kernels_sm90")
    assert len(found) > 10
    for name, kernel in found.items():
        assert kernel.stack == kernel.local == 0, name
        assert kernel.registers * kernel.threads <= 65536, name
