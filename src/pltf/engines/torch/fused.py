"""Passes over a table of cells with kernels that read the cells once: rates, ratios, log term and all sums.

A pass rounds and pads the sides of the table, visits the cells, and finishes the sums for the sides.
"""

from __future__ import annotations

import importlib
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
SIDE = 2048  # entries of a side per program
BLOCK = 1024  # numbers that a single program adds at a time
WARPS = 4  # per program: the number that a tensor core product on Hopper uses
PARTS_BYTES = 256 << 20  # budget for the row sums of blocks of columns before they are added
WORDS = 16  # per block of a mask: the fewest that tensor cores multiply
MASK_TERMS = 32  # with more, tiles of a mask have fewer positions
FEW_CELLS = 1 << 22  # below this, sums have the zeros of padded terms: one compiled kernel then does for many bonds
MOST_BOND = {4: 128, 8: 64}  # by the bytes of a number: tiles with more terms do not fit into registers


@dataclass(frozen=True)
class Tiles:
    """How kernels tile a table, and how Triton compiles them.

    Based on the code that Triton generates for an H200 (benchmarks/NOTES.md): instructions per cell, and registers.
    """

    rows: int = 64
    columns: int = 64
    mask_outer: int = 128
    stages: int = 2

    @classmethod
    def of(cls, dtype: np.dtype[Any], device: Device) -> Tiles:
        """Tiles for numbers of this dtype."""
        if device.where == "cpu":  # small tiles, for tests
            return cls(16, 16, 16)
        return cls() if dtype == np.float32 else cls(columns=32, stages=1)

    def width(self, columns: int) -> int:
        """Number of columns, rounded up to whole tiles."""
        return -(-columns // self.columns) * self.columns


@dataclass(frozen=True, eq=False)
class Bits:
    """A mask as bits, once for the exposures of each side; see ``mask_kernels.py``."""

    by_rows: Tensor  # (blocks of columns, rows, words)
    by_columns: Tensor  # (blocks of rows, columns, words)


def cut(tiles: int, many: int) -> tuple[int, int]:
    """Tiles per group, and number of groups, such that there are enough programs."""
    each = -(-tiles // min(tiles, -(-PROGRAMS // many)))
    return each, -(-tiles // each)


def bits_of(inner: int) -> int:
    """Bits per word of a mask: few where few positions would leave most of them empty.

    >>> bits_of(500), bits_of(100)
    (32, 8)
    """
    return 32 if inner > 8 * WORDS else 8


def whole_words(inner: int) -> int:
    """Number of bits for so many positions, rounded up to whole blocks of words.

    >>> whole_words(500), whole_words(100)
    (512, 128)
    """
    block = bits_of(inner) * WORDS
    return -(-inner // block) * block


def terms_of(bond: int) -> int:
    """Terms that a program over cells computes: tensor cores multiply no fewer than 16."""
    return max(16, power_of_two(bond))


def has_tensor_cores(device: Device) -> bool:
    """Whether a GPU has bfloat16 tensor cores that Triton supports with PTX."""
    torch = device.torch
    return not torch.version.hip and bool(torch.cuda.get_device_capability(device.place) >= (8, 0))


def shared_memory(device: Device) -> int:
    """Bytes of shared memory that a program may have on a GPU."""
    driver = importlib.import_module("triton.runtime.driver").driver.active
    return int(driver.utils.get_device_properties(device.place.index)["max_shared_mem"])


def shared_bytes(dtype: np.dtype[Any], terms: int) -> int:
    """The most that a program over cells takes, for any capability: an H200 has it for all bonds."""
    return 48 * 1024 + 1024 * terms if dtype.itemsize == 4 else 24 * 1024 + 1280 * terms


class FusedPasses:
    """The sums over a table of one matrix, whose cells X (1, rows, width) have the rates H (1, rows, bond) @ C."""

    side_bytes = 40  # per entry of a side: value, matrix, sums, and sums for the factors
    packs = 1  # bytes per cell of a mask before it is packed

    def __init__(self, table: Table, dtype: np.dtype[Any], device: Device, links: bool) -> None:
        self._device, self._dtype, self._links = device, dtype, links
        self._narrow = dtype != np.float64
        self._tiles = Tiles.of(dtype, device)
        _, self._rows, self._columns = table.shape
        self._bond, self._terms = table.bond, terms_of(table.bond)
        self.width = self._tiles.width(self._columns)
        self._summed = self._terms if self._rows * self.width < FEW_CELLS else self._bond
        self._cut_rows()

    @staticmethod
    def take(table: Table, dtype: np.dtype[Any], device: Device) -> bool:
        """Whether the kernels support a table."""
        one_matrix = bool(table.tree.steps) and table.shape[0] == 1
        if not (device.kernels and one_matrix and table.bond <= MOST_BOND[dtype.itemsize]):
            return False
        needs = shared_bytes(dtype, terms_of(table.bond))
        return device.where == "cpu" or (has_tensor_cores(device) and needs <= shared_memory(device))

    def _cut_rows(self) -> None:
        """Slabs of blocks whose partial sums fit the budget, and groups of rows: enough programs, all with tiles."""
        blocks, tiles = self.width // self._tiles.columns, -(-self._rows // self._tiles.rows)
        self._slab = min(blocks, max(1, PARTS_BYTES // (self._rows * self._summed * self._dtype.itemsize)))
        self._row_tiles, self._groups = cut(tiles, self._slab)
        self._padded = self._groups * self._row_tiles * self._tiles.rows

    @property
    def bytes(self) -> int:
        """Memory of a pass in addition to cells, nodes and their sums."""
        parts = self._slab * self._rows + self._groups * self.width
        return (parts * self._summed + (self._padded + self.width) * self._terms) * self._dtype.itemsize

    # -- counts ---------------------------------------------------------------------------------

    def counts(
        self, X: Tensor, H: Tensor, C: Tensor, *, to_rows: bool, to_columns: bool, log: bool
    ) -> tuple[Tensor | None, Tensor | None, Number]:
        """(X/Xhat) @ C.T and H.T @ (X/Xhat), as wanted, and the log term or NaN."""
        H, C = H[0], C[0].T
        h, c = self._empty(self._padded, self._terms), self._empty(self._terms, self.width)
        rounded = self._rounded(H, h), self._rounded(C, c.T)
        G, S, of_cells = self._over_cells(X[0], h, c, (to_rows, to_columns, log))
        rows, columns = self._wide(self._rows, self._bond), self._wide(self._bond, self._columns)
        finished = self._finished(G, H, rows), self._finished(S.mT, C, columns.T)
        log_term = self._log_term(of_cells, rounded, finished) if log else math.nan
        return rows[None] if to_rows else None, columns[None] if to_columns else None, log_term

    def _rounded(self, side: Tensor, out: Tensor) -> Tensor:
        """Write a side (positions, bond) to ``out``, padded with zeros; the sums of each program."""
        from pltf.engines.torch.side_kernels import round_side

        each = SIDE // self._terms
        programs = -(-len(out) // each)
        totals = self._wide(programs * self._narrow, self._terms)
        operands = (side, out, totals, len(side), len(out), self._bond, *side.stride(), *out.stride())
        self._launch(round_side, (programs,), *operands, POSITIONS=each)
        return totals

    def _over_cells(
        self, X: Tensor, h: Tensor, c: Tensor, wanted: tuple[bool, bool, bool]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Partial sums for rows (parts, rows, bond) and columns (parts, bond, columns), and those of programs."""
        torch, step = self._device.torch, self._slab * self._tiles.columns
        slabs = [slice(first, min(first + step, self.width)) for first in range(0, self.width, step)]
        S, G, sums = self._empty(self._groups * wanted[1], self._summed, self.width), None, []
        for slab in slabs:
            parts, own = self._over_slab(X[:, slab], h, c[:, slab], S[:, :, slab], wanted)
            parts = self._fewer(parts)
            if len(slabs) > 1:
                parts = parts.sum(0, keepdim=True, dtype=torch.float64)
            G = parts if G is None else G.add_(parts)
            sums.append(own)
        return G, self._fewer(S), sums[0] if len(slabs) == 1 else torch.cat(sums, 1)

    def _over_slab(
        self, X: Tensor, h: Tensor, c: Tensor, S: Tensor, wanted: tuple[bool, bool, bool]
    ) -> tuple[Tensor, Tensor]:
        """Results of the programs of a slab: sums for rows, and log terms with sums of the rates; writes S."""
        from pltf.engines.torch.dense_kernels import table_counts

        tiles, to_rows, to_columns, log = self._tiles, *wanted
        blocks = X.shape[1] // tiles.columns
        G = self._empty(blocks * to_rows, self._rows, self._summed)
        sums = self._wide(2, blocks * self._groups * log)
        launched(
            self._device,
            table_counts,
            (blocks, self._groups),
            *(X, h, c, G, S, sums, self._rows, self.width, self._row_tiles),
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
        return G, sums

    def _fewer(self, parts: Tensor) -> Tensor:
        """Partial sums, added in float64 and in a fixed order until few are left."""
        if parts.shape[0] <= PARTS:
            return parts
        from pltf.engines.torch.dense_kernels import add_parts

        count, size = parts.shape[0], parts[0].numel()
        many = -(-size // ENTRIES)
        each, groups = cut(-(-count // PARTS), many)
        out = self._wide(groups, *parts.shape[1:])
        operands = (parts, out, count, size, each * PARTS)
        launched(self._device, add_parts, (many, groups), *operands, PARTS=PARTS, ENTRIES=ENTRIES, num_warps=WARPS)
        return out

    def _finished(self, parts: Tensor, side: Tensor, out: Tensor) -> Tensor:
        """Write the totals of partial sums (parts, positions, bond) to ``out``; the sums of each program."""
        from pltf.engines.torch.side_kernels import finish_side

        together = power_of_two(min(max(len(parts), 1), PARTS))
        each = max(SIDE // (self._terms * together), 1)
        programs = -(-len(side) // each)
        totals = self._wide(2, programs * self._narrow)
        strides = (*parts.stride(), *side.stride(), *out.stride())
        operands = (parts, side, out, totals, len(parts), len(side), self._bond, *strides)
        self._launch(finish_side, (programs * bool(len(parts)),), *operands, POSITIONS=each, PARTS=together)
        return totals

    def _log_term(self, of_cells: Tensor, rounded: tuple[Tensor, Tensor], finished: tuple[Tensor, Tensor]) -> Tensor:
        """The log term; in float32 corrected for rounding."""
        if not self._narrow:
            return of_cells[0].sum()
        from pltf.engines.torch.side_kernels import log_term

        out = self._wide()
        arrays = (of_cells, *rounded, *finished)
        counts = (of_cells.shape[1], *map(len, rounded), *(one.shape[1] for one in finished))
        shape = {"TERMS": self._terms, "BLOCK": BLOCK}
        launched(self._device, log_term, (1,), *arrays, out, *counts, **shape, num_warps=WARPS)
        return out

    def _launch(self, kernel: Any, grid: tuple[int, ...], *operands: Any, **shape: int) -> None:
        """Run a kernel over a side."""
        shape |= {"TERMS": self._terms, "NARROW": self._narrow}
        launched(self._device, kernel, grid, *operands, **shape, num_warps=WARPS)

    def _empty(self, *shape: int) -> Tensor:
        """An array of the dtype of the cells."""
        torch = self._device.torch
        return torch.empty(shape, dtype=getattr(torch, self._dtype.name), device=self._device.place)

    def _wide(self, *shape: int) -> Tensor:
        """An array of float64."""
        torch = self._device.torch
        return torch.empty(shape, dtype=torch.float64, device=self._device.place)

    # -- exposure -------------------------------------------------------------------------------

    def mask(self, cells: Tensor) -> Bits:
        """The bits of a mask (1, rows, width) of bytes."""
        along, across = cells[0, :, : self._columns], cells[0, :, : self._columns].T
        return Bits(self._packed(along), self._packed(across))

    @property
    def mask_bytes(self) -> int:
        """Memory of the bits of a mask."""
        sides = (self._rows, self._columns), (self._columns, self._rows)
        return sum(outer * whole_words(inner) // 8 for outer, inner in sides)

    def ones(self, mask: Bits) -> Tensor:
        """A mask (1, rows, columns) in float64."""
        bit = self._device.torch.arange(bits_of(self._columns), device=self._device.place)[:, None]
        ones = (mask.by_rows[:, :, None, :] >> bit) & 1  # (blocks, rows, bits, words)
        return ones.transpose(0, 1).reshape(self._rows, -1)[None, :, : self._columns].double()

    def seen_by_rows(self, mask: Bits, C: Tensor) -> Tensor:
        """mask @ C.T: the mask contracted with the columns."""
        return self._seen(mask.by_rows, C[0].T)[None]

    def seen_by_columns(self, mask: Bits, H: Tensor) -> Tensor:
        """H.T @ mask: the mask contracted with the rows."""
        return self._seen(mask.by_columns, H[0]).T[None]

    def _packed(self, cells: Tensor) -> Tensor:
        """The bits (blocks, outer, words) of a mask (outer, inner)."""
        from pltf.engines.torch.mask_kernels import pack_mask

        (outer, inner), tile, torch = cells.shape, self._tiles.mask_outer, self._device.torch
        bits = bits_of(inner)
        blocks = whole_words(inner) // (bits * WORDS)
        packed = cells.new_empty((blocks, outer, WORDS), dtype=torch.int32 if bits == 32 else torch.uint8)
        operands = (cells, packed, outer, inner, blocks, *cells.stride())
        shape = {"OUTER": tile, "WORDS": WORDS, "BITS": bits}
        launched(self._device, pack_mask, (-(-outer // tile) * blocks,), *operands, **shape, num_warps=WARPS)
        return packed

    def _seen(self, packed: Tensor, W: Tensor) -> Tensor:
        """M @ W, for the bits of M (outer, inner)."""
        from pltf.engines.torch.mask_kernels import mask_sums

        terms = max(8, power_of_two(self._bond))
        blocks, outer, _ = packed.shape
        tile = self._tiles.mask_outer * MASK_TERMS // max(terms, MASK_TERMS)
        many = -(-outer // tile)
        each, groups = cut(blocks, many)
        parts = self._wide(groups, outer, self._bond)
        operands = (packed, W, parts, outer, len(W), each, self._bond, *W.stride())
        shape = {"TERMS": terms, "OUTER": tile, "WORDS": WORDS, "BITS": bits_of(len(W))}
        launched(self._device, mask_sums, (many, groups), *operands, **shape, num_warps=WARPS, num_stages=2)
        return parts[0] if groups == 1 else parts.sum(0)
