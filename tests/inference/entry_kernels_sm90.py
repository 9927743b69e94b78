"""The kernels over entries of factors, as they are compiled for a GPU."""

from __future__ import annotations

from typing import Any

from pltf.inference.algebra import entry_kernels as kernels

_NUMBERS = {"n": "i64", "width": "i64", "inner": "i64", "entries": "i64"}
_NUMBERS |= dict.fromkeys(("noise", "longest", "log_norm", "least", "most", "curved", "settled", "A", "B"), "fp64")
_SIZES = {
    "BLOCK": kernels.BLOCK,
    "K": kernels.MOST_ROWS,
    "FACTORS": 5,
    "SIZE": 4,
    "F": 8,
    "M": 4,
    "STEPS": 50,
}
_ONE_WARP = ("two_loops", "balance")


def _asked(name: str) -> tuple[Any, dict[str, str], dict[str, int], int]:
    """Types of the arguments of a kernel: arrays are float64."""
    kernel = getattr(kernels, name)
    sizes = {**_SIZES, "WIDTH": 8 if name == "two_loops" else 32}
    constants = {name: size for name, size in sizes.items() if name in kernel.arg_names}
    types = {name: _NUMBERS.get(name, "*fp64") for name in kernel.arg_names if name not in constants}
    return kernel, types, constants, 1 if name in _ONE_WARP else kernels.WARPS


NAMES = (
    *("scales", "geomean_kl", "newton_sums", "best_means", "stretch", "log_ratio", "move", "gram", "combine"),
    *("two_loops", "balance", "scale_along"),
)
SM90 = {name: _asked(name) for name in NAMES}
