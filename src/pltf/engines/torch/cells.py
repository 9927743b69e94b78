"""Contribution of one observed cell, in plain PyTorch: its ratio and its part of the log term."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from pltf.devices import Device
from pltf.engines.base import Number
from pltf.engines.torch.launch import launched

PROGRAM, WARPS = 2048, 4  # entries of factors per program

Tensor = Any  # torch.Tensor, which is imported only when needed
Torch = Any
P = ParamSpec("P")
R = TypeVar("R")


class _FullPrecision:
    """No TF32, which has 10 bits, in products of float32. The setting is one for all threads of a process: the first
    block that needs it sets it, and the last one restores what the program asked for.
    """

    def __init__(self) -> None:
        self._lock, self._blocks, self._asked = threading.Lock(), 0, None

    @contextmanager
    def of(self, torch: Torch) -> Iterator[None]:
        products = torch.backends.cuda.matmul
        # PyTorch 2.9 and later warn about the old name, and raise an error if a program uses both.
        name, exact = ("fp32_precision", "ieee") if hasattr(products, "fp32_precision") else ("allow_tf32", False)
        with self._lock:
            if not self._blocks:
                self._asked = getattr(products, name)
                setattr(products, name, exact)
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks:
                    setattr(products, name, self._asked)


_full_precision = _FullPrecision()


def in_full_precision(work: Callable[P, R]) -> Callable[P, R]:
    """A method whose products of float32 do not use TF32, also where the program allows it."""

    @wraps(work)
    def done(*args: P.args, **kwargs: P.kwargs) -> R:
        passes: Any = args[0]
        with _full_precision.of(passes._device.torch):
            return work(*args, **kwargs)

    return done


def ratios(
    torch: Torch, x: Tensor, rate: Tensor, known: Tensor | None, *, links: bool, log: bool, over: tuple[int, ...] = ()
) -> tuple[Tensor, Number]:
    """M*X/Xhat of every cell, and sum M*X*log(Xhat/X) over all axes or those given, or NaN without ``log``.

    For links M*X/(1-exp(-Xhat)), and sum M*X*log(exp(Xhat)-1). A zero rate with a positive count gives -inf.

    >>> import torch
    >>> ratios(torch, torch.tensor([2.0, 0.0]), torch.tensor([1.0, 3.0]), None, links=False, log=False)
    (tensor([2., 0.]), nan)
    """
    seen = x > 0 if known is None else (x > 0) & known
    odds = -torch.expm1(-rate) if links else rate
    ratio = torch.where(seen, x / odds, 0)
    if not log:
        return ratio, math.nan
    # In float64: the relative error of a float32 logarithm would be that of the rates, times every count.
    terms = torch.where(seen, x, 0).double().mul_(torch.where(seen, ratio, 1).double().log_())
    linked = torch.where(seen, rate, 0).sum(over, dtype=torch.float64) if links else 0.0
    return ratio, linked - terms.sum(over)


def lost_in_cast(
    device: Device, log_term: Tensor, counts: Mapping[str, Tensor], factors: Mapping[str, Tensor], dtype: np.dtype[Any]
) -> Number:
    """Loss of the log term when every L is rounded to L': sum of counts * log(L/L'), as ``base.lost_in_cast``.

    >>> import torch
    >>> one = torch.ones(1, dtype=torch.float64)
    >>> counts, factors = {"A": 1e8 * one}, {"A": one * (1 + 3e-8)}
    >>> lost = lost_in_cast(Device("cpu", kernels=False), one.sum(), counts, factors, np.dtype(np.float32))
    >>> round(float(lost), 6)
    3.0
    """
    if dtype == np.float64:
        return 0.0
    torch, loss = device.torch, _loss_by_kernel if device.kernels else _loss
    lost = sum(loss(device, counts[name], factors[name]) for name in counts)
    return torch.where(torch.isfinite(log_term), lost, 0.0)


def _loss(device: Device, counts: Tensor, L: Tensor) -> Tensor:
    rounded = L.float().double()
    logs = device.torch.where(rounded > 0, L / rounded, 1).log_()
    return logs.mul_(counts).sum()


def _loss_by_kernel(device: Device, counts: Tensor, L: Tensor) -> Tensor:
    """The same; reads both arrays once instead of five times."""
    from pltf.engines.torch.side_kernels import cast_loss

    entries = L.numel()
    programs = -(-entries // PROGRAM)
    sums = L.new_empty(programs)
    arrays = (counts.contiguous(), L.contiguous(), sums)
    launched(device, cast_loss, (programs,), *arrays, entries, BLOCK=PROGRAM, num_warps=WARPS)
    return sums.sum()
