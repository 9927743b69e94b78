"""Random draws of counts on a device: multinomials, and hidden counts of links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pltf.devices import Device
from pltf.engines.torch.cells import Tensor
from pltf.engines.torch.launch import launched

ROWS = 32  # drawn by a program at a time: one per thread


def seed_of(key: Sequence[int], *more: int) -> int:
    """A seed of 63 bits; different keys have different seeds.

    >>> seed_of((7, 0)) == seed_of((7, 0)), seed_of((7,), 0) == seed_of((7, 0))
    (True, False)
    """
    # The length distinguishes (1,) from (1, 0), which are the same for SeedSequence.
    words = np.random.SeedSequence((len(key), *key, *more)).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))


class CountDraws:
    """Random numbers of one key, draw by draw: with kernels (``allocation_kernels.py``) or with PyTorch's generator."""

    def __init__(self, device: Device, key: Sequence[int]) -> None:
        self._device, self._key, self._calls = device, key, 0
        self._generator = device.torch.Generator(device.place).manual_seed(seed_of(key))

    def split(self, counts: Tensor, weights: Tensor) -> Tensor:
        """Multinomial of every count over the weights of its row: (rows), (rows, terms), in float64."""
        if not self._device.kernels:
            return self._split(counts, weights)
        from pltf.engines.torch.allocation_kernels import split_rows

        (rows, terms), weights = weights.shape, weights.contiguous()
        drawn = self._device.torch.empty_like(weights)
        operands = (counts.contiguous(), weights, drawn, self._seed(), rows, terms)
        launched(self._device, split_rows, (-(-rows // ROWS),), *operands, ROWS=ROWS, num_warps=1)
        return drawn

    def hidden(self, x: Tensor, rate: Tensor, links: bool) -> Tensor:
        """The counts to allocate, in float64: sampled for links, and 0 if the rate is zero."""
        torch = self._device.torch
        x, drawable = x.double(), (rate > 0) & (rate < float("inf"))
        if not links:
            return torch.where(drawable, x, 0)
        if self._device.kernels:
            return self._links(x, rate)
        # The first event comes before time 1; the later ones are Poisson with the rate of the remaining time.
        rate = torch.where(drawable, rate, 1)
        u = torch.rand(rate.shape, generator=self._generator, dtype=torch.float64, device=rate.device)
        left = (rate + torch.log1p(u * torch.expm1(-rate))).clamp_min_(0)
        return torch.where(drawable, 1 + torch.poisson(left, generator=self._generator), 0)

    def _links(self, x: Tensor, rate: Tensor) -> Tensor:
        from pltf.engines.torch.allocation_kernels import draw_links

        x, rate, cells = x.contiguous(), rate.contiguous(), x.numel()
        drawn = self._device.torch.empty_like(x)
        operands = (x, rate, drawn, self._seed(), cells)
        launched(self._device, draw_links, (-(-cells // ROWS),), *operands, CELLS=ROWS, num_warps=1)
        return drawn

    def _seed(self) -> Tensor:
        """Seed of the next draw, in device memory."""
        self._calls += 1
        return seed_on(self._device, self._key, self._calls)

    def _split(self, counts: Tensor, weights: Tensor) -> Tensor:
        """Conditional binomials, term by term; the largest term gets the remainder, so that no p exceeds 1/2."""
        torch = self._device.torch
        most, rest, left = weights.argmax(dim=1), weights.sum(dim=1), counts.clone()
        drawn = torch.zeros_like(weights)
        for s in range(weights.shape[1]):
            weight = torch.where(most == s, 0, weights[:, s])
            p = torch.where(weight > 0, weight / rest, 0).clamp_max_(0.5)
            drawn[:, s] = torch.binomial(left, p, generator=self._generator)
            left, rest = left - drawn[:, s], rest - weight
        return drawn.scatter_add_(1, most[:, None], left[:, None])


def seed_on(device: Device, key: Sequence[int], *more: int) -> Any:
    """A seed in device memory: for a plain number, Triton would compile special kernels for some values."""
    return device.put([seed_of(key, *more)], device.torch.int64)
