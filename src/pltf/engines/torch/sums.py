"""Sums over segments of the rows of an array: in fixed order, and no row of a few is added up one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pltf.devices import Device
from pltf.engines.torch.cells import Tensor, Torch
from pltf.engines.torch.launch import launched, power_of_two

MOST_PARTS = 64  # that are added one after the other
LARGEST = 2**31  # of which numbers of 32 bits are below
TILE = 256  # entries of a program: segments by columns


def type_of(torch: Torch, limit: int) -> Any:
    """PyTorch's type of whole numbers below a limit: of 32 bits if that is enough."""
    return torch.int32 if limit <= LARGEST else torch.int64


def narrow(torch: Torch, numbers: Tensor, limit: int) -> Tensor:
    """A copy of whole numbers below a limit in the type of these. What is kept must not hold a longer array."""
    return numbers.to(type_of(torch, limit), copy=True)


def starts_of(torch: Torch, counts: Tensor) -> Tensor:
    """Where segments of so many parts begin, and where the last one ends."""
    return torch.nn.functional.pad(torch.cumsum(counts, 0), (1, 0))


def cut(torch: Torch, counts: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Segments cut into pieces of at most so many parts: how many pieces of each, and where the pieces begin."""
    pieces = (counts + (most - 1)) // most
    first = starts_of(torch, pieces)
    whole = torch.repeat_interleave(pieces)  # the segment of each piece
    begin = starts_of(torch, counts)
    inside = torch.arange(whole.numel(), device=counts.device) - first[whole]
    starts = begin[whole] + inside * most
    return pieces, torch.cat([starts, begin[-1:]])


@dataclass(frozen=True, eq=False)
class SegmentSums:
    """Adds up parts that lie segment by segment, each segment into a row of its own.

    Segments are cut to pieces of a few parts, the sums of the pieces once more, and so on: every level is added up in
    fixed order, and all its pieces at a time.
    """

    device: Device
    rows: Tensor  # where each segment goes, each row once
    levels: tuple[Tensor, ...]  # where the pieces of each level begin

    @classmethod
    def of(cls, device: Device, counts: Tensor, rows: Tensor, size: int) -> SegmentSums:
        """For segments of so many parts, at least one each; rows are below a size."""
        torch, levels = device.torch, []
        parts = int(counts.sum())
        while True:
            counts, starts = cut(torch, counts, MOST_PARTS)
            levels.append(narrow(torch, starts, parts + 1))
            if starts.numel() - 1 == rows.numel():
                return cls(device, narrow(torch, rows, size), tuple(levels))

    def add(self, parts: Tensor, into: Tensor, order: Tensor | None = None) -> None:
        """``into[rows[s]] += sum of parts[order]`` over segment s; ``into`` (rows, columns) is float64."""
        for level in self.levels[:-1]:
            sums = into.new_zeros((level.numel() - 1, into.shape[1]))
            self._add(parts, order, level, None, sums)
            parts, order = sums, None
        self._add(parts, order, self.levels[-1], self.rows, into)

    def _add(self, parts: Tensor, order: Tensor | None, starts: Tensor, rows: Tensor | None, into: Tensor) -> None:
        if self.device.kernels:
            self._by_kernel(parts, order, starts, rows, into)
            return
        torch, columns = self.device.torch, into.shape[1]
        some = parts[:, :columns] if order is None else parts[:, :columns].index_select(0, order)
        sums = torch.segment_reduce(some, "sum", offsets=starts, axis=0, initial=0, unsafe=True).double()
        if rows is None:
            into += sums
        else:
            into.index_add_(0, rows, sums)  # each row once: nothing collides

    def _by_kernel(self, parts: Tensor, order: Any, starts: Tensor, rows: Any, into: Tensor) -> None:
        from pltf.engines.torch.listed_kernels import add_segments

        segments, columns = starts.numel() - 1, into.shape[1]
        wide = min(power_of_two(columns), TILE)
        many = max(TILE // wide, 1)
        grid = (-(-segments // many), -(-columns // wide))
        parts = parts.contiguous()
        operands = (parts, order, starts, rows, into, segments, parts.stride(0), columns)
        launched(self.device, add_segments, grid, *operands, SEGMENTS=many, COLUMNS=wide, num_warps=1)
