"""Dense arrays in device memory, validated and kept there."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.blocks import Block, block_shape, blocks
from pltf.data.dense import DenseObservation, facts_of
from pltf.data.device_arrays import dtype_of
from pltf.data.numeric import (
    EXACT,
    HISTOGRAM,
    INFINITE,
    NEGATIVE,
    ROUNDED,
    STIRLING,
    constants_of_counts,
    read_only,
)

Tensor = Any  # torch.Tensor, imported lazily
BLOCK_CELLS = 1 << 24  # cells checked at a time


@dataclass(frozen=True, eq=False, repr=False)
class DeviceObservation(DenseObservation):
    """A dense tensor in device memory, which engines on that device use in place.

    ``values`` and ``mask`` are copies on the host, made on first use.

    >>> import torch
    >>> seen = device_observation(torch.tensor([[1.0, float("nan")], [0.0, 3.0]]), None, "X")
    >>> seen
    <DeviceObservation 2x2 float32: 3 of 4 cells observed, total 4>
    >>> seen.values
    array([[ 1., nan],
           [ 0.,  3.]], dtype=float32)
    """

    values: NDArray[Any] = field(init=False)
    mask: NDArray[np.bool_] | None = field(init=False)
    tensor: Tensor
    known: Tensor  # True = observed; None = all observed

    def __getattr__(self, name: str) -> Any:
        if name not in ("values", "mask"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        tensor = self.tensor if name == "values" else self.known
        held = None if tensor is None else read_only(tensor.cpu().numpy())
        object.__setattr__(self, name, held)
        return held

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def dtype_name(self) -> str:
        return dtype_of(self.tensor)

    @cached_property
    def n_positive(self) -> int:
        return sum(int((seen > 0).sum()) for _, seen in _observed(self.tensor, self.known))

    @property
    def has_missing(self) -> bool:
        return self.known is not None

    @property
    def place(self) -> str:
        """The PyTorch name of the device if the tensor is contiguous, otherwise an empty string."""
        return str(self.tensor.device) if self.tensor.is_contiguous() else ""

    def _read(self) -> tuple[Any, Any]:
        values = self.values if "values" in vars(self) else _Reader(self.tensor)
        return values, None if self.known is None else _Reader(self.known)

    def mask_alone(self) -> DenseObservation:
        return replace(self, tensor=self.known)

    def within(self, known: NDArray[np.bool_]) -> DenseObservation:
        there = _torch().tensor(known, device=self.tensor.device)
        return replace(device_observation(self.tensor, there, "X"), dims=self.dims, labels=self.labels)

    def _permuted(self, order: tuple[int, ...]) -> dict[str, Any]:
        known = None if self.known is None else self.known.permute(order)
        return {"tensor": self.tensor.permute(order), "known": known}


class _Reader:
    """A tensor that is read part by part, as host arrays."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor, self.shape = tensor, tuple(tensor.shape)
        self.size, self.dtype = math.prod(self.shape), np.dtype(dtype_of(tensor))

    def __getitem__(self, part: Any) -> NDArray[Any]:
        if isinstance(part, tuple):
            part = tuple(_torch().tensor(at.astype(np.int64)) if isinstance(at, np.ndarray) else at for at in part)
        return np.asarray(self._tensor[part].cpu().numpy())


def _torch() -> Any:
    return importlib.import_module("torch")


def device_observation(tensor: Tensor, known: Tensor, name: str) -> DeviceObservation:
    """Validate the observed cells of a tensor and compute the constants on its device; ``name`` is for messages."""
    known = _without_nan(tensor, known)
    if known is not None and bool(known.all()):
        known = None

    def wrong(block: Block, position: int) -> str:
        cell = _cell(known, block, tuple(tensor[block].shape), position)
        return f"cell {cell} holds {tensor[cell].cpu().numpy()[()]}"

    return DeviceObservation(*facts_of(_observed(tensor, known), _find_bad, _constants, wrong, name), tensor, known)


def _observed(tensor: Tensor, known: Tensor) -> Any:
    """The observed values, block by block, with booleans as 1 and 0."""
    shape = tuple(tensor.shape)
    for block in blocks(shape, block_shape(shape, lambda block: math.prod(block) <= BLOCK_CELLS)):
        seen = tensor[block].reshape(-1) if known is None else tensor[block][known[block]]
        yield block, seen.to(_torch().uint8) if dtype_of(seen) == "bool" else seen


def _without_nan(tensor: Tensor, known: Tensor) -> Tensor:
    """The mask without the cells that are NaN."""
    if not tensor.is_floating_point() or not any(bool(seen.isnan().any()) for _, seen in _observed(tensor, known)):
        return known
    present = tensor.isnan().logical_not_()
    return present if known is None else present.logical_and_(known)


def _find_bad(seen: Tensor) -> tuple[int, str] | None:
    """Position of the first invalid value, and the rule that it breaks, as for host arrays."""
    low, high = seen.min(), seen.max()
    if bool(low < 0):
        return _first(seen < 0), NEGATIVE
    if seen.is_floating_point() and not bool(high.isfinite()):
        return _first(seen.isfinite().logical_not_()), INFINITE
    if dtype_of(seen) == "int64" and int(high) > EXACT:
        return _first(seen > EXACT), ROUNDED
    return None


def _first(wrong: Tensor) -> int:
    return int(wrong.nonzero()[0])


def _cell(known: Tensor, block: Block, shape: tuple[int, ...], position: int) -> tuple[int, ...]:
    """The cell that an observed value of a block comes from."""
    if known is None:
        inside = tuple(map(int, np.unravel_index(position, shape)))
    else:
        inside = tuple(known[block].nonzero()[position].tolist())
    return tuple(cut.start + at for cut, at in zip(block, inside, strict=True))


def _constants(seen: Tensor) -> tuple[float, float]:
    """The sum of x and the sum of log Poisson(x; x); a histogram of integer counts is summed on the host."""
    torch = _torch()
    if float(seen.max()) < HISTOGRAM:
        whole = seen.to(torch.int64)
        if not seen.is_floating_point() or bool((whole == seen).all()):
            return constants_of_counts(torch.bincount(whole).cpu().numpy())
    x = seen.double()
    small, big = x.clip(max=STIRLING), x.clip(min=STIRLING)
    exact = torch.xlogy(small, small) - small - torch.lgamma(small + 1)
    series = -0.5 * (math.log(2 * math.pi) + big.log()) - 1 / (12 * big)
    return float(x.sum()), float(torch.where(x > STIRLING, series, exact).sum())
