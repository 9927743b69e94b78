"""Fits on a Dask cluster whose workers have devices: the same bits as one process with such a device."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pltf
from pltf import fitting, planning
from pltf.cluster import Cluster
from pltf.devices import device_of
from pltf.engines import on_cluster
from tests.cli import here
from tests.extras import TORCH, required
from tests.on_device import ON_GPU
from tests.stores import stored
from tests.test_cluster import CP, LEARNED, QUIET, SHORT, TUCKER, assert_same, cells, only

if not TORCH:
    pytest.skip("needs PyTorch", allow_module_level=True)

from pltf.engines.torch import cost
from pltf.engines.torch import parts as torch_parts

distributed = required("distributed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pltf.ConvergenceWarning", "ignore::pltf.SelectionWarning"),
]

NAME = "cuda" if ON_GPU else "torch:cpu"
DEVICE: Mapping[str, Any] = {"device": NAME}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Of three processes with one thread each."""
    with (
        distributed.LocalCluster(n_workers=3, threads_per_worker=1, **QUIET) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A store of nine parts."""
    return stored(cells("missing"), tmp_path_factory.mktemp("stores") / "cells", parts=9)


PROBLEMS: Mapping[str, Any] = {
    "missing": (CP, cells("missing"), {"prior": LEARNED}),
    "holes": (TUCKER, cells(holes=30), {}),
    "float32": (TUCKER, cells("missing"), {"dtype": "float32"}),
    "links": (CP, cells(most=1), {"likelihood": "bernoulli"}),
    "gibbs": (CP, cells(), {"method": "gibbs", "chains": 1, "burn_in": 1, "draws": 4, "dtype": "float32"}),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_same_bits_on_any_number_of_workers(client: Any, problem: str, tmp_path: Path) -> None:
    """And nearly those of the CPU, except for random draws."""
    model, seen, options = PROBLEMS[problem]
    store, options = stored(seen, tmp_path / "cells", parts=7), {**SHORT, **options}
    alone, host = model.fit(store, **DEVICE, **options), model.fit(store, **options)
    if problem != "gibbs":
        np.testing.assert_allclose(alone.bound, host.bound, rtol=1e-6 if problem == "float32" else 1e-10)
    for count in (1, 3):
        with pytest.MonkeyPatch.context() as patch:
            only(count, patch)
            assert_same(model.fit(store, client=client, **DEVICE, **options), alone)


def test_dispersion_and_hidden_cells(client: Any, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "JUDGING_SWEEPS", (3, 3))
    train = pltf.holdout(data, 0.2, seed=1).train
    options = {**SHORT, "dispersion": "auto", **DEVICE}
    alone, together = CP.fit(train, **options), CP.fit(train, client=client, **options)
    assert_same(together, alone)
    assert repr(together.dispersion) == repr(alone.dispersion)


def test_the_plan_tells_of_the_devices(client: Any, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, alone = CP.plan(data, client=client, **DEVICE), CP.plan(data, **DEVICE)
    assert re.search(r"device +each worker needs .* free; up to .* of cells stay there between passes", str(plan))
    assert plan.site is not None
    assert alone.site is not None
    assert plan.device_bytes == alone.device_bytes
    assert plan.site.free < alone.site.free / 2, "three workers share the memory"
    monkeypatch.setattr(cost, "bytes_of_parts", lambda *_: 1 << 60)
    with pytest.raises(
        pltf.PltfError, match=rf"each worker of the cluster needs .* on device='{NAME}', which has .* f"
    ):
        CP.fit(data, client=client, **DEVICE)


def test_a_worker_without_the_device(client: Any, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the start, and when a worker with another device joins."""
    with pytest.raises(pltf.PltfError, match=r"^the Dask worker tcp://\S+ cannot use this device: device='cuda:99' "):
        CP.fit(data, client=client, device="cuda:99")
    least = on_cluster._least

    def other(sites: Any) -> Any:
        found = least(sites)
        assert found is not None
        return replace(found, described="another device")

    monkeypatch.setattr(on_cluster, "_least", other)
    said = r"^the Dask worker tcp://\S+ cannot use this device: .* here and another device elsewhere"
    with pytest.raises(pltf.PltfError, match=said):
        CP.fit(data, client=client, **DEVICE)


def test_a_search_runs_on_the_cpus_of_workers(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where this machine has a GPU that the workers may not have."""
    device = device_of(NAME)
    assert device is not None
    monkeypatch.setattr(planning, "gpu", lambda: device)
    monkeypatch.setattr(planning, "PAYS", 0.0)
    options = {**SHORT, "r": [1, 2], "restarts": 2, "criterion": "bound", "engine": "dense"}
    seen = np.random.default_rng(0).poisson(1.0, (6, 5, 4))
    assert pltf.select(CP, seen, device="auto", **options).best_fit.device == device.name
    assert pltf.select(CP, seen, device="auto", client=client, **options).best_fit.device == "cpu"


def _staying() -> int:
    return torch_parts.kept.parts


def test_cells_stay_on_the_devices_between_passes(client: Any, data: Any) -> None:
    CP.fit(data, client=client, **DEVICE, **SHORT)
    assert sum(client.run(_staying).values()) == len(data.parts)
    CP.plan(data, client=client, **DEVICE)
    assert not sum(client.run(_staying).values()), "a plan drops the cells of earlier fits"


# -- workers that come and go -------------------------------------------------------------------


def _die_once(marker: str) -> None:
    """Have the first task of all workers kill the worker in the middle."""
    before = torch_parts.sums_on_device

    def dies(*args: Any) -> Any:
        try:
            Path(marker).touch(exist_ok=False)
        except FileExistsError:
            return before(*args)
        os.kill(os.getpid(), signal.SIGKILL)

    vars(torch_parts)["sums_on_device"] = dies


def test_a_worker_that_is_killed_changes_nothing(data: Any, tmp_path: Path) -> None:
    alone, marker = CP.fit(data, **DEVICE, **SHORT), tmp_path / "killed"
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, **QUIET) as cluster,
        distributed.Client(cluster) as client,
    ):

        def kill(sweep: pltf.Sweep) -> None:
            if sweep.n_iter == 1:
                client.run(_die_once, str(marker))

        assert_same(CP.fit(data, client=client, callback=kill, **DEVICE, **SHORT), alone)
    assert marker.exists()


def test_workers_that_join_and_leave(client: Any, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts go to other workers; cells that stay where they were are not in the way."""
    alone, passes, workers = CP.fit(data, **DEVICE, **SHORT), 0, Cluster.present

    def changing(self: Cluster) -> dict[str, int]:
        nonlocal passes
        passes += 1
        return dict(list(workers(self).items())[passes % 3 :])

    monkeypatch.setattr(Cluster, "present", changing)
    assert_same(CP.fit(data, client=client, **DEVICE, **SHORT), alone)
    assert passes > 4


def test_a_fit_goes_on_from_a_checkpoint(client: Any, data: Any, tmp_path: Path) -> None:
    """With a cluster or without one; only on the same device."""
    options = {**SHORT, "checkpoint": tmp_path / "fit.nc", "every": 0}

    def die(sweep: pltf.Sweep) -> None:
        if sweep.n_iter == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        CP.fit(data, client=client, callback=die, **DEVICE, **options)
    with pytest.raises(pltf.PltfError, match="is the fit of a different call"):
        CP.fit(data, client=client, **{**options, "resume": True})
    assert_same(CP.fit(data, **{**DEVICE, **options, "resume": True}), CP.fit(data, **DEVICE, **SHORT))


# -- the command line ---------------------------------------------------------------------------


def test_the_command_line(client: Any, tmp_path: Path) -> None:
    store = stored(cells(), tmp_path / "cells")
    options = ["--max-iter", 3, "--tol", 0, "--dispersion", "none", "--quiet", "--scheduler", client.scheduler.address]
    fit = ["fit", tmp_path / "cells", "--cp", 2, "-o", tmp_path / "one.nc", *options, "--device"]
    here(*fit, NAME)
    assert_same(pltf.load(tmp_path / "one.nc"), CP.fit(store, **DEVICE, **SHORT))
    refused = here(*fit, "cuda:99", "--force").refusal
    assert re.match(r"the Dask worker tcp://\S+ cannot use this device: --device cuda:99 ", refused)
