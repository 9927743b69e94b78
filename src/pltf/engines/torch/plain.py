"""Passes over a table of cells in plain PyTorch, in blocks: used where no kernels run, and as their reference."""

from __future__ import annotations

from functools import cached_property
from math import prod

from pltf.data.blocks import Block, block_shape, blocks
from pltf.devices import Device
from pltf.engines.base import Number
from pltf.engines.either import added
from pltf.engines.torch.cells import Tensor, in_full_precision, ratios
from pltf.engines.torch.table import Table

ON_HOST = 256 << 20  # bytes for the temporaries of a block
SHARE = 1 / 16  # of the device memory, for the same
_CELL_BYTES = 40  # temporaries per cell: count, rate, ratio and those of the logarithm


def block_bytes(device: Device) -> float:
    """Budget for the temporaries of a block, in bytes."""
    return ON_HOST if device.where == "cpu" else SHARE * device.memory()[1]


class PlainPasses:
    """The sums over a table, whose cells X (batch, rows, columns) have the rates H (batch, rows, bond) @ C."""

    def __init__(self, table: Table, device: Device, links: bool) -> None:
        self._device, self._links, self._shape = device, links, table.shape
        self.width = self._shape[2]
        self._most = block_bytes(device)

    @in_full_precision
    def counts(
        self, X: Tensor, H: Tensor, C: Tensor, *, to_rows: bool, to_columns: bool, log: bool
    ) -> tuple[Tensor | None, Tensor | None, Number]:
        """(X/Xhat) @ C.T and H.T @ (X/Xhat) in float64, as wanted, and the log term or NaN."""
        G, S = (self._zeros(sums) if wanted else None for sums, wanted in ((H, to_rows), (C, to_columns)))
        log_terms = []
        for block in self._blocks():
            batch, rows, columns = block
            h, c = H[batch, rows], C[batch, :, columns]
            ratio, log_term = ratios(self._device.torch, X[block].to(H.dtype), h @ c, None, links=self._links, log=log)
            log_terms.append(log_term)
            if G is not None:
                G[batch, rows] += ratio @ c.mT
            if S is not None:
                S[batch, :, columns] += h.mT @ ratio
        return G, S, added(log_terms)

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

    def _zeros(self, like: Tensor) -> Tensor:
        return like.new_zeros(like.shape, dtype=self._device.torch.float64)

    def _blocks(self) -> list[Block]:
        return blocks(self._shape, self._block)

    @cached_property
    def _block(self) -> tuple[int, ...]:
        return block_shape(self._shape, lambda block: prod(block) * _CELL_BYTES <= self._most)
