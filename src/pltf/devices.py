"""Where a fit is computed: on the host with compiled code, or on a GPU with PyTorch and Triton.

Names are those of PyTorch: ``"cpu"``, ``"cuda"``, ``"cuda:1"``. Two more run the GPU code on the host, slowly, for
tests: ``"torch:cpu"`` uses plain PyTorch, and ``"triton:cpu"`` uses the kernels in Triton's interpreter, which needs
``TRITON_INTERPRET=1`` in the environment. PyTorch is imported only if a device other than the host is requested.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
from dataclasses import dataclass
from typing import Any

from pltf.errors import PltfError, py

HOST, AUTO, CUDA = "cpu", "auto", "cuda"
PLAIN, INTERPRETED = "torch:cpu", "triton:cpu"
ASIDE = 1 << 29  # bytes of a GPU for what no plan counts: cuBLAS, the memory of recordings, rounding by the allocator
_NAMES = re.compile(rf"{HOST}|{AUTO}|{CUDA}(:\d+)?|{PLAIN}|{INTERPRETED}")


def check_device(name: str, value: Any) -> str:
    """The validated name of a device. :func:`device_of` checks whether it is available."""
    text = str(value) if type(value).__module__ == "torch" else value  # torch.device("cuda:0")
    if text == "mps":
        reason = "Apple's GPUs have no float64, which factors and the ELBO need"
        raise PltfError(f"{py:{name}='mps'} is not supported: {reason}")
    if not isinstance(text, str) or not _NAMES.fullmatch(text):
        raise PltfError(f"{py:{name}} must be 'cpu', 'cuda', 'cuda:1' (or another number) or 'auto', got {value!r}")
    return text


@dataclass(frozen=True)
class Device:
    """A PyTorch device.

    >>> device = Device("cpu", kernels=False)
    >>> device.torch.ones(2, device=device.place)
    tensor([1., 1.])
    """

    where: str  # its PyTorch name
    kernels: bool  # whether Triton kernels run there; otherwise plain PyTorch is used

    @property
    def torch(self) -> Any:
        """The torch module."""
        return importlib.import_module("torch")

    @property
    def place(self) -> Any:
        """The device as a torch.device."""
        return self.torch.device(self.where)

    @property
    def name(self) -> str:
        """The name of the device in the options."""
        return self.where if self.where != "cpu" else INTERPRETED if self.kernels else PLAIN

    @property
    def label(self) -> str:
        """A description of the device."""
        return "the CPU, with PyTorch" if self.where == "cpu" else str(self.torch.cuda.get_device_name(self.place))

    @property
    def kind(self) -> str:
        """Its model and the versions of the software, on which the last digits of results depend."""
        triton = f", Triton {importlib.import_module('triton').__version__}" if self.kernels else ""
        return f"{self.label}, PyTorch {self.torch.__version__}{triton}"

    def memory(self) -> tuple[float, float]:
        """Bytes that a fit may use, including the cache of PyTorch, and total bytes."""
        if self.where == "cpu":
            from pltf.memory import at_hand

            left = at_hand()
            return left, left
        free, total = self.torch.cuda.mem_get_info(self.place)
        return float(max(free + self.unused - ASIDE, 0)), float(total)

    @property
    def unused(self) -> int:
        """Bytes of a GPU that PyTorch holds without using them."""
        # memory_reserved and memory_allocated would sort all statistics, which takes longer than a small iteration.
        known = self.torch.cuda.memory_stats_as_nested_dict(self.place)
        held, used = (known.get(f"{kind}_bytes", {}) for kind in ("reserved", "allocated"))
        return int(held["all"]["current"] - used["all"]["current"]) if held and used else 0

    def put(self, array: Any, dtype: Any = None) -> Any:
        """Copy a host array to the device."""
        return self.torch.tensor(array, dtype=dtype, device=self.place)


@dataclass(frozen=True)
class Site(Device):
    """The device of a process as described to another one, which may have no such device."""

    asked: str  # its name in the options
    described: str  # its kind
    identity: str  # processes with the same one share its memory
    free: float  # bytes
    total: float
    room: float = 0.0  # bytes of cells that may stay on the device between passes

    @property
    def name(self) -> str:
        return self.asked

    @property
    def kind(self) -> str:
        return self.described

    @property
    def label(self) -> str:
        return self.described

    def memory(self) -> tuple[float, float]:
        return self.free, self.total

    def here(self) -> Device:
        """The device of this process; raises an error if it is of another kind, as results would then differ."""
        device = device_of(self.asked)
        assert device is not None
        if device.kind != self.described:
            others = f"{device.kind} here and {self.described} elsewhere"
            raise PltfError(f"{py:device={self.asked!r}} is {others}, and results of different devices differ")
        return device


def site_of(name: str) -> Site:
    """The device of this name in this process, described for other processes.

    >>> site_of("torch:cpu").asked
    'torch:cpu'
    """
    device = device_of(name)
    assert device is not None, "only for devices other than the host"
    on_host = device.where == HOST
    identity = platform.node() if on_host else device.torch.cuda.get_device_properties(device.place).uuid
    return Site(device.where, device.kernels, name, device.kind, str(identity), *device.memory())


def device_of(name: str) -> Device | None:
    """The device of this name, or None for the host; raises an error if it is not available.

    >>> device_of("cpu")
    """
    if name in (HOST, AUTO):
        return None
    torch = _torch(name)
    if name in (PLAIN, INTERPRETED):
        if name == INTERPRETED and not (os.environ.get("TRITON_INTERPRET") == "1" and _has_triton()):
            raise PltfError(f"{py:device={name!r}} needs Triton, and TRITON_INTERPRET=1 in the environment")
        return Device("cpu", kernels=name == INTERPRETED)
    if not torch.cuda.is_available():
        found = f"PyTorch {torch.__version__} finds none"
        raise PltfError(f"{py:device={name!r}} needs a GPU, and {found}: use {py:device='cpu'}")
    number = int(name.partition(":")[2] or torch.cuda.current_device())
    if number >= torch.cuda.device_count():
        raise PltfError(f"{py:device={name!r}} does not exist: PyTorch finds {torch.cuda.device_count()} GPUs, from 0")
    return Device(f"{CUDA}:{number}", kernels=_has_triton())


def gpu() -> Device | None:
    """The GPU that ``"auto"`` may use, if there is one."""
    try:
        return device_of(CUDA)
    except PltfError:
        return None


def _torch(name: str) -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise PltfError(f"{py:device={name!r}} needs PyTorch: pip install 'pltf[gpu]'") from None


def _has_triton() -> bool:
    try:
        importlib.import_module("triton")
    except ImportError:
        return False
    return True
