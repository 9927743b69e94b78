"""Sums over parts on a device: nearly those of the host, the same bits for any runs, and cells that stay there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pltf
from pltf.cluster import Crew
from pltf.devices import Device, Site, site_of
from pltf.engines import on_cluster
from pltf.engines import plan as plan_module
from pltf.engines.parts import COUNTS, EXPOSURE, Ask, PartsEngine, combined, spec_of, sums_of_run
from pltf.engines.torch import blocks, cost
from pltf.engines.torch import parts as torch_parts
from pltf.engines.torch.listed_memory import list_bytes
from pltf.engines.torch.parts import kept
from tests.engines.test_parts import MODELS, assert_same, cells, factors_of, posted, runs_of, task_of
from tests.engines.torch.test_listed import bytes_of
from tests.on_device import ON_GPU
from tests.on_device import name as name_on_device
from tests.stores import in_memory

NAME = "cuda" if ON_GPU else "torch:cpu"


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> pltf.Model:
    return MODELS[request.param]


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    kept.forget()


def there(room: float = 1e9, *, kernels: bool = False) -> Site:
    """The device of the tests, with room for cells."""
    return replace(site_of(name_on_device(kernels=kernels)), room=room)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("unlisted", ["zero", "missing"])
def test_nearly_the_sums_of_the_host(model: pltf.Model, unlisted: str, dtype: str) -> None:
    """With listed zeros, hidden rows, and parts sorted by any mode."""
    for owner in range(3):
        data, _ = in_memory(cells(unlisted), 5, owner).hiding(np.array([[1, 2, 3], [4, 5, 6], [0, 1, 2]]))
        task = task_of(model, data, dtype)
        Z, rtol = factors_of(task), 1e-12 if dtype == "float64" else 1e-5
        here, device = PartsEngine(task, data, 2), PartsEngine(task, data, 2, there())
        assert_same(device.counts(Z), here.counts(Z), rtol)
        for name in Z:
            np.testing.assert_allclose(device.exposure(Z, name), here.exposure(Z, name), rtol=1e-12)


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("what", ["counts", "drawn", "A", "B"])
def test_runs_of_any_length_and_order_give_the_same_bits(model: pltf.Model, what: str, kernels: bool) -> None:
    """Whether cells stay on the device or not."""
    data = in_memory(cells("missing", (12, 5, 4)), 5)
    task = replace(task_of(model, data), allocates=what == "drawn")
    Z, spec = factors_of(task), spec_of(task, data, there(kernels=kernels))
    key = (3, 1) if what == "drawn" else None
    ask = Ask(EXPOSURE, (what,)) if what in Z else Ask(COUNTS, tuple(Z), log=True, key=key)
    once = combined(spec, [sums_of_run(spec, ask, data.parts, (0, 12), Z, 1)])
    for cuts, room in (([1], 1e9), ([2, 3], 0.0), (list(range(1, len(data.parts))), 3000.0)):
        other = posted(replace(spec, site=there(room, kernels=kernels), known_by=f"{room}"))
        found = [
            posted(sums_of_run(other, ask, posted(data.parts[some]), span, other.cut(Z, span), 1))
            for some, span in runs_of(data, cuts)
        ]
        for order in (found, found[::-1]):
            sums = combined(other, order)
            np.testing.assert_equal(sums.log_term, once.log_term)
            for name in ask.wanted:
                np.testing.assert_array_equal(sums.by_factor[name], once.by_factor[name])


def test_each_part_has_its_own_draws(model: pltf.Model) -> None:
    """Parts with the same cells, except for their positions of the owned mode."""
    x = np.zeros((8, 6, 5))
    x[:] = 7.0
    seen: Any = pltf.observe((np.argwhere(x), x.ravel()), shape=x.shape)
    data = in_memory(seen, 8)
    task = task_of(model, data)
    Z = {name: np.ones_like(array) for name, array in factors_of(task).items()}
    drawn = PartsEngine(task, data, 1, there()).allocate(Z, None, (5,)).by_factor["A"]
    assert len({row.tobytes() for row in drawn}) == len(drawn)


def test_fused_kernels_draw_the_counts_of_each_factor_apart() -> None:
    data = in_memory(cells())
    for name, groups in (("cp", 3), ("tucker", 1)):
        task = task_of(MODELS[name], data)
        assert len(PartsEngine(task, data, 1, there(kernels=True)).together) == groups
        assert len(PartsEngine(task, data, 1).together) == 1


def test_threads_of_pytorch_do_not_change_a_bit() -> None:
    import torch

    data = in_memory(cells("missing", (60, 60, 40), share=0.9), 2)
    task = task_of(MODELS["cp"], data)
    Z, before = factors_of(task), torch.get_num_threads()
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(PartsEngine(task, data, 1, there()).counts(Z))
        assert torch.get_num_threads() == threads
    torch.set_num_threads(before)
    assert_same(found[1], found[0])
    assert_same(found[2], found[0])


# -- cells that stay ----------------------------------------------------------------------------


def test_cells_stay_as_far_as_there_is_room() -> None:
    data = in_memory(cells("missing"), 6)
    task = task_of(MODELS["cp"], data)
    Z = factors_of(task)
    sizes = [
        list_bytes(replace(task, sizes={**task.sizes, "i": p.last - p.first}), p.cells, there(), counted=counted).held
        for p in data.parts
        for counted in (True, False)
    ]
    assert spec_of(task, data).zeros, "so that the cells of exposures are other ones"
    for room, most in ((0.0, 0), (3.0 * max(sizes), 6), (1e9, len(sizes))):
        engine = PartsEngine(task, data, 1, there(room))
        first = engine.counts(Z)
        engine.exposure(Z, "A")
        assert kept.bytes <= room
        assert kept.parts <= most
        assert (kept.parts > 0) == (room > 0)
        assert_same(engine.counts(Z), first)
        del engine
        assert not kept.parts, "an engine takes its cells with it"


def test_cells_that_stay_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data = in_memory(cells("missing"), 6)
    task, read = task_of(MODELS["tucker"], data), list[int]()
    before = torch_parts._cells_of

    def cells_of(spec: Any, part: Any, counted: bool) -> Any:
        read.append(part.number)
        return before(spec, part, counted)

    monkeypatch.setattr(torch_parts, "_cells_of", cells_of)
    engine, Z = PartsEngine(task, data, 1, there()), factors_of(task)
    for _ in range(2):
        engine.counts(Z)
    assert read == list(range(6))


def test_cells_are_dropped_a_while_after_the_last_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    gone, before = threading.Event(), torch_parts.KeptPasses.forget

    def forget(self: Any) -> None:
        before(self)
        gone.set()

    monkeypatch.setattr(torch_parts.KeptPasses, "forget", forget)
    monkeypatch.setattr(torch_parts, "IDLE", 0.05)
    data = in_memory(cells())
    task = task_of(MODELS["cp"], data)
    engine = PartsEngine(task, data, 1, there())
    engine.counts(factors_of(task))
    assert gone.wait(10)
    assert not kept.parts
    monkeypatch.undo()
    assert_same(engine.counts(factors_of(task)), PartsEngine(task, data, 1).counts(factors_of(task)), rtol=1e-12)


# -- plans and checks ---------------------------------------------------------------------------


def test_the_plan_tells_of_the_device() -> None:
    store = in_memory(cells())
    plan = MODELS["cp"].plan(store, device=NAME)
    assert f"cells on disk on {NAME} (" in str(plan)
    assert " of cells stay there between passes, of " in str(plan)
    assert plan.device is None
    assert plan.site is not None
    assert 0 < plan.device_bytes < plan.site.free
    assert plan.device_bytes + plan.room == pytest.approx(plan_module.SHARE_OF_DEVICE * plan.site.free)
    assert MODELS["cp"].plan(store).device_bytes == MODELS["cp"].plan(store, device="auto").device_bytes == 0


def test_the_memory_of_a_device_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "memory", lambda _: (1000.0, 2000.0))
    with pytest.raises(pltf.PltfError, match=f"the fit needs .* on device='{NAME}', which has 1.0 kB free"):
        MODELS["cp"].fit(in_memory(cells()), device=NAME)
    assert MODELS["cp"].plan(in_memory(cells()), device=NAME).room == 0.0


def test_larger_parts_need_more_memory_and_more_parts_do_not() -> None:
    few, many = (MODELS["cp"].plan(in_memory(cells(), parts), device=NAME) for parts in (2, 20))
    assert few.device_bytes > 2 * many.device_bytes


@pytest.mark.skipif(ON_GPU, reason="counts the memory of the host")
@pytest.mark.parametrize("room", [0.0, 1e9])
def test_no_more_memory_than_planned(model: pltf.Model, room: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "HOST_BYTES", 1 << 19)
    data = in_memory(cells("missing", (300, 90, 40), share=0.05), 8)
    task = replace(task_of(model, data), allocates=True)
    Z, site = factors_of(task), there(room)
    engine, planned = PartsEngine(task, data, 1, site), cost.bytes_of_parts(task, site)
    for call in (lambda: engine.counts(Z), lambda: engine.exposure(Z, "A"), lambda: engine.allocate(Z, None, (1,))):
        before = kept.bytes
        peak = bytes_of(call)[2]
        assert 0.2 * planned < peak <= planned + kept.bytes - before
    assert kept.bytes <= room


def test_workers_with_different_devices_are_refused() -> None:
    site = there()
    other = replace(site, described="another one")
    with pytest.raises(pltf.PltfError, match=r"must have the same device for the same result, but .* of b differ"):
        on_cluster._least({"a": site, "b": other})
    with pytest.raises(pltf.PltfError, match=f"device='{NAME}' is .* here and another one elsewhere"):
        other.here()


def test_workers_with_one_device_share_its_memory() -> None:
    sites = {str(n): replace(there(), identity=f"machine {n % 3}", free=12.0 + n) for n in range(5)}
    least = on_cluster._least(sites)
    assert least is not None
    assert least.free == 6.0
    assert on_cluster._least({}) is None


def test_the_time_of_a_plan_is_shared_by_the_devices_of_a_cluster() -> None:
    plan = MODELS["cp"].plan(in_memory(cells()), device=NAME)
    four = replace(plan, crew=Crew((1, 1, 1, 1), 1e9, plan.site))
    assert four.seconds < plan.seconds
    assert plan.site is not None
    assert replace(plan, site=replace(plan.site, free=0.0)).seconds > plan.seconds, "cells that do not stay are read"


def test_a_store_of_no_cells_needs_no_device() -> None:
    seen: Any = pltf.observe((np.empty((0, 3), int), np.empty(0)), shape=(4, 3, 2))
    data = in_memory(seen)
    task = task_of(pltf.cp(rank=2), data)
    counts = PartsEngine(task, data, 2, there()).counts(factors_of(task))
    assert all(not sums.any() for sums in counts.by_factor.values())


def test_coupled_tensors_in_memory_stay_on_the_host() -> None:
    model = pltf.Model("X[i,j] = A[i,r] * B[j,r]; Y[i,k] = A[i,r] * C[k,r]", r=2)
    seen: Any = pltf.observe((np.argwhere(np.ones((9, 4))), np.arange(36.0)), shape=(9, 4))
    data = {"X": in_memory(seen), "Y": np.random.default_rng(0).poisson(2.0, (9, 5)).astype(float)}
    options: Any = {"max_iter": 5, "tol": 0, "progress": False, "dispersion": None}
    here, device = model.fit(data, **options), model.fit(data, device=NAME, **options)
    np.testing.assert_allclose(device.bound, here.bound, rtol=1e-10)
    assert device.device == "cpu"


def test_sums_need_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no other thread can be started, cells stay on the device until their engine ends."""

    def refuse(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    data = in_memory(cells("zero"), 2, 0)
    task = task_of(MODELS["cp"], data, "float64")
    engine = PartsEngine(task, data, 1, there())
    monkeypatch.setattr(threading.Timer, "start", refuse)
    engine.counts(factors_of(task))
    assert kept.parts == 2
