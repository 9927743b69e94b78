"""The kernels over entries of factors, as they are compiled for a GPU."""

from __future__ import annotations

from typing import Any

from pltf.inference.algebra import entry_kernels as kernels

_ARRAYS = {"C", "D", "E", "L", "exposure", "sums", "left", "slope", "old", "new", "out", "a", "b", "plain", "step"}
_ARRAYS |= {"weight", "shares", "rate", "shapes", "means", *(f"r{n}" for n in range(kernels.MOST_ROWS))}
_CONSTANTS = {"BLOCK": kernels.BLOCK, "K": kernels.MOST_ROWS}


def _asked(kernel: Any) -> tuple[Any, dict[str, str], dict[str, int], int]:
    """Types of the arguments of a kernel: arrays and numbers are float64, n is int64."""
    constants = {name: value for name, value in _CONSTANTS.items() if name in kernel.arg_names}
    types = {"n": "i64"} | {name: "*fp64" if name in _ARRAYS else "fp64" for name in kernel.arg_names if name != "n"}
    return kernel, {name: types[name] for name in kernel.arg_names if name not in constants}, constants, kernels.WARPS


NAMES = ("scales", "geomean_kl", "newton_sums", "best_means", "stretch", "log_ratio", "move", "gram", "combine")
SM90 = {name: _asked(getattr(kernels, name)) for name in NAMES}
