"""The device that tests of the GPU's code run on: a GPU in `make test-gpu`, and the host elsewhere."""

from __future__ import annotations

import os
from typing import Any

import pytest

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


def name(*, kernels: bool) -> str:
    """The name of the device in the options, with kernels or with plain PyTorch."""
    if kernels and not ON_GPU:
        quicken()
    return CUDA if ON_GPU else INTERPRETED if kernels else PLAIN


def put(array: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A tensor in the memory of the device; where that is the host's, it is taken for one of a device."""
    import torch

    if not ON_GPU:
        monkeypatch.setattr("pltf.data.device_arrays.lies_on_host", lambda _: False)
    return torch.tensor(array, device="cuda:0" if ON_GPU else "cpu")
