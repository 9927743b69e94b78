"""Upper bounds for the device memory of lists of cells, computed from a plan; tight for long lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pltf.devices import Device
from pltf.engines.torch import row_lists, sums
from pltf.engines.torch.blocks import block_of, cell_bytes, cells_tree, leaves_of
from pltf.engines.torch.cp_passes import is_fused, width_of
from pltf.engines.torch.joint_passes import is_joint, joint_size, keys_of
from pltf.engines.torch.launch import power_of_two
from pltf.engines.torch.row_lists import Modes, most_cells, rows_of_key
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
    task = task if counted else task.uncounted
    memory = _fused if is_fused(task, device) else _joint if is_joint(task, device) else _in_blocks
    return memory(task, cells, device, counted, copies)


def _fused(task: Task, cells: int, device: Device, counted: bool, copies: str) -> ListBytes:
    """The list sorted by each mode; tables, and the sums of the chunks."""
    rank, width = task.rank, width_of(task.rank)
    held, making, chunks = _sorted_lists(task, [(mode,) for mode in range(len(task.shape))], cells, counted, copies)
    parts = max(width * many + 2 * rank * size for many, size in zip(chunks, task.shape, strict=True))
    flight = WIDE * (parts + max(chunks) + (width + rank) * sum(task.shape))
    return ListBytes(held, making, flight)


def _joint(task: Task, cells: int, device: Device, counted: bool, copies: str) -> ListBytes:
    """The list sorted by the rows of each factor; factors, their tables, and the sums of the chunks."""
    leaves = leaves_of(task, cells_tree(task))
    keys = keys_of(leaves)
    held, making, chunks = _sorted_lists(task, keys, cells, counted, copies)
    many = dict(zip(keys, chunks, strict=True))
    parts = max(leaf.columns * (_with_levels(many[leaf.modes]) + 2 * leaf.rows) for leaf in leaves)
    flight = WIDE * (parts + max(chunks) + 4 * task.entries())
    return ListBytes(held + _offset_bytes(task), making, flight)


def _sorted_lists(
    task: Task, keys: Sequence[Modes], cells: int, counted: bool, copies: str
) -> tuple[int, int, list[int]]:
    """Memory of a list sorted by some keys, held and while it is made; and the number of chunks by key.

    There is one sorted copy per key, or one copy and permutations; and chunks and their grouping.
    """
    count, sizes = task.dtype.itemsize * counted, [rows_of_key(task.shape, key) for key in keys]
    row, cell = _whole(sum(sizes)), _whole(cells + 1)
    sorting = sum(1 for key in keys if key)
    alone = (sorting < len(keys)) * row
    a_cell = sorting * ((sorting - 1) * row + count) + alone
    if copies != ALL:
        a_cell = sorting * row + count + (sorting - 1) * cell
    more = cells // most_cells(cells)
    chunks = [min(size, cells) + more for size in sizes]
    held = a_cell * cells
    for size, many in zip(sizes, chunks, strict=True):
        held += (row + cell) * (many + 1) + _sums(min(size, cells), many, more + 1)
    flat = WIDE * any(len(key) > 1 for key in keys)
    making = min(cells, row_lists.PIECE) * (task.list_bytes + count + _SORTED + 2 * flat) + 4 * WIDE * sum(sizes)
    return held, making, chunks


def _offset_bytes(task: Task) -> int:
    """Memory of the columns of all tables along the joint axis, and of the joint positions of all columns."""
    return task.n_factors * (4 * (1 + 4) * power_of_two(joint_size(task)) + 2 * WIDE)


def _in_blocks(task: Task, cells: int, device: Device, counted: bool, copies: str) -> ListBytes:
    """The list, and the grouping of its cells for every block and group of modes; a block; factors and their sums."""
    tree = cells_tree(task)
    block = min(block_of(task, tree, device), max(cells, 1))
    held = (task.list_bytes + task.dtype.itemsize * counted) * cells
    groups = {leaf.modes: leaf.rows for leaf in leaves_of(task, tree) if leaf.modes}
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


def _with_levels(parts: int) -> int:
    """Parts, and their sums on all levels but the last."""
    return parts + parts // (sums.MOST_PARTS - 1) + 1


def _whole(limit: int) -> int:
    """Bytes of an integer below a limit."""
    return 4 if limit <= sums.LARGEST else 8
