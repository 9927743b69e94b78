"""Segment sums of the rows of an array: in a fixed order, with short sequential sums only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pltf.devices import Device
from pltf.engines.torch.cells import Tensor, Torch
from pltf.engines.torch.launch import launched, power_of_two

MOST_PARTS = 64  # added sequentially
LARGEST = 2**31  # limit of 32-bit integers
TILE = 256  # entries per program: segments by columns


def type_of(torch: Torch, limit: int) -> Any:
    """PyTorch integer dtype for numbers below a limit: 32 bits if possible."""
    return torch.int32 if limit <= LARGEST else torch.int64


def narrow(torch: Torch, numbers: Tensor, limit: int) -> Tensor:
    """A copy of integers below a limit in the smaller dtype. The result must not keep a longer array alive."""
    return numbers.to(type_of(torch, limit), copy=True)


def starts_of(torch: Torch, counts: Tensor) -> Tensor:
    """Start of each segment with the given numbers of parts, and the end of the last one."""
    return torch.nn.functional.pad(torch.cumsum(counts, 0), (1, 0))


def cut(torch: Torch, counts: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Cut segments into pieces of at most ``most`` parts: number of pieces per segment, and where the pieces start."""
    pieces = (counts + (most - 1)) // most
    first = starts_of(torch, pieces)
    whole = torch.repeat_interleave(pieces)  # the segment of each piece
    begin = starts_of(torch, counts)
    inside = torch.arange(whole.numel(), device=counts.device) - first[whole]
    starts = begin[whole] + inside * most
    return pieces, torch.cat([starts, begin[-1:]])


@dataclass(frozen=True, eq=False)
class SegmentSums:
    """Sums parts that are ordered by segment, each segment into its own row.

    Segments are cut into pieces of a few parts, the sums of the pieces are cut again, and so on. Each level is summed
    in a fixed order, with all its pieces in parallel.
    """

    device: Device
    rows: Tensor  # distinct target rows of the segments
    levels: tuple[Tensor, ...]  # start of the pieces, by level

    @classmethod
    def of(cls, device: Device, counts: Tensor, rows: Tensor, size: int) -> SegmentSums:
        """For segments with these numbers of parts, each at least 1; row numbers are below ``size``."""
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
            into.index_add_(0, rows, sums)  # rows are distinct, so there are no collisions

    def _by_kernel(self, parts: Tensor, order: Any, starts: Tensor, rows: Any, into: Tensor) -> None:
        from pltf.engines.torch.listed_kernels import add_segments

        segments, columns = starts.numel() - 1, into.shape[1]
        wide = min(power_of_two(columns), TILE)
        many = max(TILE // wide, 1)
        grid = (-(-segments // many), -(-columns // wide))
        parts = parts.contiguous()
        operands = (parts, order, starts, rows, into, segments, parts.stride(0), columns)
        launched(self.device, add_segments, grid, *operands, SEGMENTS=many, COLUMNS=wide, num_warps=1)
