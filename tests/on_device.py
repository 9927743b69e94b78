"""The device that tests of the GPU's code run on: a GPU in `make test-gpu`, and the host elsewhere."""

from __future__ import annotations

import os

from pltf.devices import CUDA, INTERPRETED, PLAIN, Device
from tests.extras import TORCH
from tests.interpreter import quicken

ON_GPU = bool(os.environ.get("PLTF_TEST_GPU"))
NAMES: tuple[str, ...] = () if not TORCH else (CUDA,) if ON_GPU else (PLAIN, INTERPRETED)


def device(*, kernels: bool) -> Device:
    """The device, with kernels or with plain PyTorch."""
    if kernels and not ON_GPU:
        quicken()
    return Device(f"{CUDA}:0" if ON_GPU else "cpu", kernels)
