"""Passes over a table of cells in plain PyTorch, in blocks: used where no kernels run, and as their reference."""

from __future__ import annotations

import math
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from pltf.data.blocks import Block, block_shape, blocks
from pltf.devices import Device
from pltf.engines.base import Number
from pltf.engines.either import added
from pltf.engines.torch.cells import Tensor, in_full_precision, lost_in_cast, ratios
from pltf.engines.torch.table import Table

ON_HOST = 256 << 20  # bytes for the temporaries of a block
SHARE = 1 / 16  # of the device memory, for the same
_CELL_BYTES = 40  # temporaries per cell: count, rate, ratio and those of the logarithm


def block_bytes(device: Device) -> float:
    """Budget for the temporaries of a block, in bytes."""
    return ON_HOST if device.where == "cpu" else SHARE * device.memory()[1]


class PlainPasses:
    """The sums over a table, whose cells X (batch, rows, columns) have the rates H (batch, rows, bond) @ C."""

    side_bytes = 72  # per entry of a side: value, matrix, rounded copy, sums, logarithms
    packs = 0  # bytes per cell of a mask before it is packed

    def __init__(self, table: Table, dtype: np.dtype[Any], device: Device, links: bool) -> None:
        self._device, self._dtype, self._links, self._shape = device, dtype, links, table.shape
        self.width = self._shape[2]
        self._most = block_bytes(device)

    @in_full_precision
    def counts(
        self, X: Tensor, H: Tensor, C: Tensor, *, to_rows: bool, to_columns: bool, log: bool
    ) -> tuple[Tensor | None, Tensor | None, Number]:
        """(X/Xhat) @ C.T and H.T @ (X/Xhat) in float64, as wanted, and the log term or NaN."""
        torch = self._device.torch
        G, S = (torch.zeros_like(side) if wanted else None for side, wanted in ((H, to_rows), (C, to_columns)))
        rounded = [side.to(getattr(torch, self._dtype.name)) for side in (H, C)]
        log_terms = []
        for block in self._blocks():
            batch, rows, columns = block
            h, c = rounded[0][batch, rows], rounded[1][batch, :, columns]
            ratio, log_term = ratios(torch, X[block].to(h.dtype), h @ c, None, links=self._links, log=log)
            log_terms.append(log_term)
            if G is not None:
                G[batch, rows] += ratio @ c.mT
            if S is not None:
                S[batch, :, columns] += h.mT @ ratio
        log_term = added(log_terms) if log else math.nan
        if log and self._dtype != np.float64:
            sides = {name: (sums, side) for name, sums, side in (("H", G, H), ("C", S, C)) if sums is not None}
            counts = {name: sums * side for name, (sums, side) in sides.items()}
            exact = {name: side for name, (_, side) in sides.items()}
            log_term = log_term + lost_in_cast(self._device, log_term, counts, exact, self._dtype)
        return G, S, log_term

    def mask(self, cells: Tensor) -> Tensor:
        """The bytes of a mask, as they are."""
        return cells

    def ones(self, mask: Tensor) -> Tensor:
        """A mask in float64."""
        return mask.double()

    @property
    def mask_bytes(self) -> int:
        """Memory of a mask."""
        return prod(self._shape)

    def seen_by_rows(self, mask: Tensor, C: Tensor) -> Tensor:
        """mask @ C.T: the mask contracted with the columns."""
        G = C.new_zeros(*mask.shape[:2], C.shape[1])
        for block in self._blocks():
            batch, rows, columns = block
            G[batch, rows] += mask[block].to(C.dtype) @ C[batch, :, columns].mT
        return G

    def seen_by_columns(self, mask: Tensor, H: Tensor) -> Tensor:
        """H.T @ mask: the mask contracted with the rows."""
        S = H.new_zeros(mask.shape[0], H.shape[2], mask.shape[2])
        for block in self._blocks():
            batch, rows, columns = block
            S[batch, :, columns] += H[batch, rows].mT @ mask[block].to(H.dtype)
        return S

    @property
    def bytes(self) -> int:
        """Memory of a pass in addition to cells, nodes and their sums."""
        return prod(self._block) * _CELL_BYTES

    def _blocks(self) -> list[Block]:
        return blocks(self._shape, self._block)

    @cached_property
    def _block(self) -> tuple[int, ...]:
        return block_shape(self._shape, lambda block: prod(block) * _CELL_BYTES <= self._most)
