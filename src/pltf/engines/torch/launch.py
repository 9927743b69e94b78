"""Launch Triton kernels on the device that holds their arrays."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from pltf.devices import Device


def launched(device: Device, kernel: Any, grid: tuple[int, ...], *operands: Any, **options: Any) -> None:
    """Run a kernel for all programs of a grid; does nothing if the grid is empty."""
    if 0 in grid:
        return
    options.setdefault("enable_fp_fusion", True)  # independent of the default of the version
    # Triton launches kernels on the current device, wherever the arrays are.
    with nullcontext() if device.place.type == "cpu" else device.torch.cuda.device(device.place):
        kernel[grid](*operands, **options)


def power_of_two(number: int) -> int:
    """The next power of two, as required for the sizes of Triton blocks.

    >>> [power_of_two(n) for n in (1, 2, 3, 20)]
    [1, 2, 4, 32]
    """
    return 1 << (number - 1).bit_length()
