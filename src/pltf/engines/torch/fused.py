"""Passes over a table of cells with kernels that read the cells once: rates, ratios, log term and all sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pltf.devices import Device
from pltf.engines.base import Number
from pltf.engines.torch.cells import Tensor
from pltf.engines.torch.launch import launched, power_of_two
from pltf.engines.torch.table import Table

PROGRAMS = 1024  # programs per pass, if there are enough tiles: several per multiprocessor on any GPU
PARTS, ENTRIES = 16, 128  # added by a program at a time
WARPS = 4  # per program: the number that a tensor core product on Hopper uses
PARTS_BYTES = 256 << 20  # budget for the row sums of blocks of columns before they are added
FEW_CELLS = 1 << 22  # below this, sums have the zeros of padded terms: one compiled kernel then does for many bonds
MOST_BOND = {4: 128, 8: 64}  # by the bytes of a number: tiles with more terms do not fit into registers


@dataclass(frozen=True)
class Tiles:
    """How kernels tile a table, and how Triton compiles them.

    Based on the code that Triton generates for an H200 (benchmarks/NOTES.md): instructions per cell, and registers.
    """

    rows: int = 64
    columns: int = 64
    mask_outer: int = 64
    mask_inner: int = 32
    stages: int = 2

    @classmethod
    def of(cls, dtype: np.dtype[Any], device: Device) -> Tiles:
        """Tiles for numbers of this dtype."""
        if device.where == "cpu":  # small tiles, for tests
            return cls(16, 16, 16, 16)
        return cls() if dtype == np.float32 else cls(columns=32, stages=1)

    def width(self, columns: int) -> int:
        """Number of columns, rounded up to whole tiles."""
        return -(-columns // self.columns) * self.columns


def cut(tiles: int, many: int) -> tuple[int, int]:
    """Tiles per group, and number of groups, such that there are enough programs."""
    each = -(-tiles // min(tiles, -(-PROGRAMS // many)))
    return each, -(-tiles // each)


def has_tensor_cores(device: Device) -> bool:
    """Whether a GPU has bfloat16 tensor cores that Triton supports with PTX."""
    torch = device.torch
    return not torch.version.hip and bool(torch.cuda.get_device_capability(device.place) >= (8, 0))


class FusedPasses:
    """The sums over a table of one matrix, whose cells X (1, rows, width) have the rates H (1, rows, bond) @ C."""

    def __init__(self, table: Table, dtype: np.dtype[Any], device: Device, links: bool) -> None:
        self._device, self._dtype, self._links = device, dtype, links
        self._tiles = Tiles.of(dtype, device)
        _, self._rows, self._columns = table.shape
        self._bond, self._terms = table.bond, max(16, power_of_two(table.bond))
        self.width = self._tiles.width(self._columns)
        self._summed = self._terms if self._rows * self.width < FEW_CELLS else self._bond
        self._cut_rows()

    @staticmethod
    def take(table: Table, dtype: np.dtype[Any], device: Device) -> bool:
        """Whether the kernels support a table."""
        one_matrix = bool(table.tree.steps) and table.shape[0] == 1
        runs = device.kernels and (device.where == "cpu" or has_tensor_cores(device))
        return runs and one_matrix and table.bond <= MOST_BOND[dtype.itemsize]

    def _cut_rows(self) -> None:
        """Slabs of blocks whose partial sums fit the budget, and groups of rows: enough programs, all with tiles."""
        blocks, tiles = self.width // self._tiles.columns, -(-self._rows // self._tiles.rows)
        self._slab = min(blocks, max(1, PARTS_BYTES // (self._rows * self._summed * self._dtype.itemsize)))
        self._row_tiles, self._groups = cut(tiles, self._slab)

    @property
    def bytes(self) -> int:
        """Memory of a pass in addition to cells, nodes and their sums."""
        parts = self._slab * self._rows + self._groups * self._slab * self._tiles.columns
        return (parts + self._rows + self.width) * self._summed * self._dtype.itemsize

    # -- counts ---------------------------------------------------------------------------------

    def counts(
        self, X: Tensor, H: Tensor, C: Tensor, *, to_rows: bool, to_columns: bool, log: bool
    ) -> tuple[Tensor | None, Tensor | None, Number]:
        """(X/Xhat) @ C.T and H.T @ (X/Xhat) in float64, as wanted, and the log term or NaN."""
        torch, H, C = self._device.torch, H[0], C[0]
        h, c = self._filled_up(H, C)
        G = torch.zeros_like(H, dtype=torch.float64) if to_rows else None
        S = torch.zeros_like(C, dtype=torch.float64) if to_columns else None
        logs = []
        for first in range(0, self.width, self._slab * self._tiles.columns):
            slab = slice(first, min(first + self._slab * self._tiles.columns, self.width))
            parts = self._over_slab(X[0], h, c, slab, (G is not None, S is not None, log))
            if G is not None:
                G += self._added(parts[0])[:, : self._bond]
            if S is not None:
                S[:, slab] = self._added(parts[1])[: self._bond, : self._columns - first]
            logs.append(parts[2].sum(1))
        log_term = self._log_term(torch.stack(logs).sum(0), H, C, G) if log else math.nan
        return None if G is None else G[None], None if S is None else S[None], log_term

    def _filled_up(self, H: Tensor, C: Tensor) -> tuple[Tensor, Tensor]:
        """Both padded with zeros to whole tiles: then only cells need a mask."""
        h = H.new_zeros(self._groups * self._row_tiles * self._tiles.rows, self._terms)
        c = C.new_zeros(self._terms, self.width)
        h[: self._rows, : self._bond] = H
        c[: self._bond, : self._columns] = C
        return h, c

    def _over_slab(
        self, X: Tensor, h: Tensor, c: Tensor, slab: slice, wanted: tuple[bool, bool, bool]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Results of the programs of a slab: sums for rows and columns, and log terms with sums of rates."""
        from pltf.engines.torch.dense_kernels import table_counts

        tiles, columns = self._tiles, slab.stop - slab.start
        blocks, groups = columns // tiles.columns, self._groups
        to_rows, to_columns, log = wanted
        G = h.new_empty(blocks * to_rows, self._rows, self._summed)
        S = h.new_empty(groups * to_columns, self._summed, columns)
        sums = h.new_empty(2, blocks * groups * log, dtype=self._device.torch.float64)
        launched(
            self._device,
            table_counts,
            (blocks, groups),
            *(X[:, slab], h, c[:, slab], G, S, sums),
            *(self._rows, self.width, columns, self._row_tiles),
            BOND=self._summed,
            TERMS=self._terms,
            ROWS=tiles.rows,
            COLUMNS=tiles.columns,
            LINKS=self._links,
            LOG=log,
            TO_ROWS=to_rows,
            TO_COLUMNS=to_columns,
            NATIVE=self._device.where != "cpu",
            num_warps=WARPS,
            num_stages=tiles.stages,
        )
        return G, S, sums

    def _added(self, parts: Tensor) -> Tensor:
        """The partial sums, added in float64 and in a fixed order."""
        if parts.shape[0] == 1:
            return parts[0].double()
        from pltf.engines.torch.dense_kernels import add_parts

        count, size = parts.shape[0], parts[0].numel()
        many = -(-size // ENTRIES)
        each, groups = cut(-(-count // PARTS), many)
        out = parts.new_empty(groups, *parts.shape[1:], dtype=self._device.torch.float64)
        operands = (parts, out, count, size, each * PARTS)
        launched(self._device, add_parts, (many, groups), *operands, PARTS=PARTS, ENTRIES=ENTRIES, num_warps=WARPS)
        return out.sum(0)

    def _log_term(self, sums: Tensor, H: Tensor, C: Tensor, G: Tensor | None) -> Tensor:
        """The log term, corrected for rates that are slightly too small because of truncation on tensor cores.

        The relative loss is nearly the same for all rates; it is measured by their sum, which is known.
        """
        if self._dtype == np.float64 or G is None:
            return sums[0]
        torch, (log_term, rates) = self._device.torch, sums
        exact = (H.sum(0, dtype=torch.float64) * C.sum(1, dtype=torch.float64)).sum()
        lost = (G * H).sum() * torch.log(exact / rates)
        return torch.where(torch.isfinite(log_term) & torch.isfinite(lost), log_term + lost, log_term)

    # -- exposure -------------------------------------------------------------------------------

    def seen_by_rows(self, mask: Tensor, C: Tensor) -> Tensor:
        """mask @ C.T: the mask contracted with the columns."""
        return self._seen(mask, C[0].T, (self._rows, self._columns), (self.width, 1))[None]

    def seen_by_columns(self, mask: Tensor, H: Tensor) -> Tensor:
        """H.T @ mask: the mask contracted with the rows."""
        return self._seen(mask, H[0], (self._columns, self._rows), (1, self.width)).T[None]

    def _seen(self, mask: Tensor, W: Tensor, sizes: tuple[int, int], steps: tuple[int, int]) -> Tensor:
        """M @ W, where M has these sizes and strides in the mask."""
        from pltf.engines.torch.dense_kernels import mask_sums

        outer, inner = self._tiles.mask_outer, self._tiles.mask_inner
        many, tiles = -(-sizes[0] // outer), -(-sizes[1] // inner)
        each, groups = cut(tiles, many)
        parts = W.new_empty(groups, sizes[0], self._bond)
        operands = (mask, W, parts, *sizes, each, *steps, *W.stride())
        shape = {"BOND": self._bond, "TERMS": self._terms, "OUTER": outer, "INNER": inner}
        launched(self._device, mask_sums, (many, groups), *operands, **shape, num_warps=WARPS)
        return parts.sum(0)
