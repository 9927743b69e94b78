"""What CUDA and PyTorch ask of who records graphs, with stand-ins for them; and that replays change no bits."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pltf.devices import ASIDE, Device
from pltf.fitting import prepare
from pltf.inference.algebra import recording
from pltf.inference.algebra.recording import Graphs
from pltf.inference.run import Run, Stop, run
from pltf.inference.vb import VB
from pltf.options import FitOptions
from pltf.planning import observations
from tests.extras import TORCH
from tests.on_device import NAMES
from tests.test_devices import CP, CUBE, with_holes

if not TORCH:
    pytest.skip("needs PyTorch", allow_module_level=True)

from tests.inference.test_recording import Cuda

HOLED = with_holes(CUBE)


class Watched(Cuda):
    """Also writes down the first use of cuBLAS."""

    def current_blas_handle(self) -> None:
        self.told.append("handle")


def graphs_on(cuda: Cuda) -> Graphs:
    place: Any = SimpleNamespace(where="cuda:0", place="cuda:0", unused=0, torch=SimpleNamespace(cuda=cuda))
    return Graphs(place)


def test_problems_are_recorded_on_one_stream_in_memory_of_their_own() -> None:
    """cuBLAS keeps its memory for each stream, for the life of the process."""
    cuda = Cuda()
    for _ in range(2):
        graphs_on(cuda).recorded(lambda: None)
    assert [one for one in cuda.told if "stream" in one] == ["stream 0"] * 2
    assert len({one[1] for one in cuda.told if one[0] == "begin"}) == 2


def test_cublas_is_ready_before_a_recording_begins() -> None:
    """In a thread that has multiplied nothing yet, the first product would make its handle."""
    cuda = Watched()
    graphs_on(cuda).recorded(lambda: None)
    assert cuda.told[:2] == ["stream 0", "handle"]
    assert cuda.told[2][0] == "begin"


def test_no_garbage_is_collected_while_a_graph_is_recorded() -> None:
    """Graphs of earlier fits may be among it, and CUDA breaks a recording off when one is destroyed."""
    collects: list[bool] = []
    graphs_on(Cuda()).recorded(lambda: collects.append(gc.isenabled()))
    assert collects == [False]
    assert gc.isenabled()


def test_a_graph_that_cannot_be_ended_stays() -> None:
    """PyTorch asks it about the memory of later recordings."""

    def broken_off() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    broken, cuda = SimpleNamespace(capture_begin=lambda *_, **__: None, capture_end=broken_off), Cuda()
    cuda.CUDAGraph = lambda: broken  # type: ignore[method-assign]
    for work in (lambda: None, broken_off):
        with pytest.raises(RuntimeError, match="capturing"):
            graphs_on(cuda).recorded(work)
        assert recording._broken.pop() is broken


@pytest.mark.parametrize("options", [{}, {"dtype": "float32"}, {"engine": "sparse"}], ids=str)
def test_a_run_goes_on_from_the_host_to_the_same_bits(options: dict[str, Any]) -> None:
    """As from a checkpoint, but without its file. What was replayed in one run is computed as usual in the other."""

    def go(begin: Any, sweeps: int) -> Run:
        ready = prepare(CP, {"X": HOLED}, {}, FitOptions(device=NAMES[0], progress=False, dispersion=None, **options))
        problem = ready.problem(observations({"X": HOLED}, {}))
        return run(problem, VB, begin or ready.starting(problem)[0](0), Stop(sweeps, 0.0))

    whole, half = go(None, 24), go(None, 11)
    np.testing.assert_array_equal(go(half, 24).trace, whole.trace)


@pytest.mark.parametrize(("free", "left"), [(9 << 30, (10 << 30) - ASIDE), (0, (1 << 30) - ASIDE), (-1 << 30, 0)])
def test_memory_that_no_plan_counts_is_left_on_a_gpu(free: int, left: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 GB is in PyTorch's cache."""
    known = {f"{kind}_bytes": {"all": {"current": held << 30}} for kind, held in (("reserved", 3), ("allocated", 2))}
    cuda = SimpleNamespace(mem_get_info=lambda _: (free, 16 << 30), memory_stats_as_nested_dict=lambda _: known)
    monkeypatch.setattr(Device, "torch", SimpleNamespace(cuda=cuda, device=str))
    assert Device("cuda:0", kernels=True).memory() == (left, 16 << 30)
