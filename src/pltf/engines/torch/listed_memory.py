"""Upper bounds for the device memory of lists of cells, computed from a plan; tight for long lists."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pltf.devices import Device
from pltf.engines.torch import cp_lists, sums
from pltf.engines.torch.blocks import Leaf, block_of, cell_bytes, cells_tree
from pltf.engines.torch.cp_passes import is_fused, width_of
from pltf.engines.ways import ALL, Task

WIDE = 8  # bytes of a float64
_SORTED = 56  # bytes per cell for sorting, in addition to the cell


@dataclass(frozen=True)
class ListBytes:
    """Device memory of one list of cells."""

    held: int  # while an engine exists; engines on the same data share most of it
    making: int  # in addition, while it is sorted
    flight: int  # in addition, during a pass: tables, sums, blocks

    @property
    def peak(self) -> int:
        """Largest memory at any time."""
        return self.held + max(self.making, self.flight)


def list_bytes(task: Task, cells: int, device: Device, *, counted: bool, copies: str = ALL) -> ListBytes:
    """Memory of an engine for a list of ``cells`` cells, with or without their counts.

    >>> import pltf
    >>> seen = pltf.observe(([(0, 0, 0)], [1.0]), shape=(10**6, 5 * 10**5, 1000))
    >>> plan, = pltf.cp(rank=20).plan(seen, dtype="float32").equations
    >>> kernels = list_bytes(plan.task, 10**8, Device("cpu", kernels=True), counted=True)
    >>> round(kernels.held / 1e9, 1), round(kernels.flight / 1e9, 1)
    (3.6, 1.0)
    """
    return (_fused if is_fused(task, device) else _in_blocks)(task, cells, device, counted, copies)


def _fused(task: Task, cells: int, device: Device, counted: bool, copies: str) -> ListBytes:
    """One sorted copy per mode, or one copy and permutations; chunks and their grouping; sums of the chunks."""
    modes, count, rank = len(task.shape), task.dtype.itemsize * counted, task.rank
    row, cell = _whole(sum(task.shape)), _whole(cells + 1)
    a_cell = modes * ((modes - 1) * row + count) if copies == ALL else modes * row + count + (modes - 1) * cell
    chunks = [min(size, cells) + cells // cp_lists.MOST_CELLS for size in task.shape]
    held = a_cell * cells
    for size, many in zip(task.shape, chunks, strict=True):
        held += (row + cell) * (many + 1) + _sums(min(size, cells), many, cells // cp_lists.MOST_CELLS + 1)
    parts = max(width_of(rank) * many + 2 * rank * size for many, size in zip(chunks, task.shape, strict=True))
    flight = WIDE * (parts + max(chunks) + (width_of(rank) + rank) * sum(task.shape))
    making = min(cells, cp_lists.PIECE) * (task.list_bytes + count + _SORTED) + 4 * WIDE * sum(task.shape)
    return ListBytes(held, making, flight)


def _in_blocks(task: Task, cells: int, device: Device, counted: bool, copies: str) -> ListBytes:
    """The list, and the grouping of its cells for every block and group of modes; a block; factors and their sums."""
    tree = cells_tree(task)
    block = min(block_of(task, tree, device), max(cells, 1))
    held = (task.list_bytes + task.dtype.itemsize * counted) * cells
    leaves = [Leaf(task, n, tree.nodes[n]) for n in range(task.n_factors)]
    groups = {tuple(leaf.modes): leaf.rows for leaf in leaves if leaf.modes}
    for group, rows in groups.items() if copies == ALL else ():
        sorted_already = group == tuple(range(len(group)))
        held += 0 if sorted_already else _whole(block) * cells
        held += -(-cells // block) * _sums(min(rows, block), block, block)
    flight = block * (cell_bytes(tree, task) + _SORTED) + 4 * WIDE * task.entries()
    return ListBytes(held, making=0, flight=flight)


def _sums(rows: int, parts: int, longest: int) -> int:
    """Memory of the grouping of ``parts`` parts into rows, at most ``longest`` per row."""
    parts_left, levels = parts, max(math.ceil(math.log(max(longest, 1), sums.MOST_PARTS)), 1)
    begins = 0
    for _ in range(levels):
        parts_left = parts_left // sums.MOST_PARTS
        begins += rows + parts_left + 1
    return _whole(parts + 1) * begins + _whole(rows) * rows


def _whole(limit: int) -> int:
    """Bytes of an integer below a limit."""
    return 4 if limit <= sums.LARGEST else 8
