"""Any equation over listed cells on a device: one fused kernel, and one pass per factor.

All latent indices form one joint axis, and a factor is a table with one row per position of its observed indices::

    ip,jq,kr,pqr->ijk   becomes   rate[n] = sum over l of A[i[n],a[l]] * B[j[n],b[l]] * C[k[n],c[l]] * G[0,g[l]]

for the cells n and the positions l of the joint axis, where a, b, c and g are the columns of the tables. The cells are
sorted by the rows of each factor, as for CP. For allocation, see ``blocks.py``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.devices import Device
from pltf.engines.base import Number
from pltf.engines.contraction import Indices
from pltf.engines.lists import CellSource
from pltf.engines.over_lists import Key
from pltf.engines.torch.blocks import CELL, Leaf, cells_tree, leaves_of
from pltf.engines.torch.cells import Tensor
from pltf.engines.torch.cp_passes import cells_by, one_by_one
from pltf.engines.torch.launch import launched, power_of_two
from pltf.engines.torch.row_lists import Modes, RowList, sorted_lists
from pltf.engines.ways import Task

LONGEST = 1024  # largest joint axis of a program
TILE, PER_WARP = 1024, 4096  # bytes of cells times joint positions of a program, if possible; at most in each warp


def is_joint(task: Task, device: Device) -> bool:
    """Whether the kernel supports this task."""
    return device.kernels and fits(task)


def fits(task: Task) -> bool:
    """Whether the joint axis is short enough. Counts are only expected, not allocated."""
    return not task.allocates and joint_size(task) <= LONGEST


def joint_size(task: Task) -> int:
    """Length of the joint axis: latent indices that only one factor has are summed beforehand.

    >>> import numpy as np, pltf
    >>> plan, = pltf.Model("ip,jqs,pqr->ij", p=2, q=3, r=5, s=7).plan(np.ones((4, 3))).equations
    >>> joint_size(plan.task)
    6
    """
    held = {index for node in cells_tree(task).nodes[: task.n_factors] for index in node if index != CELL}
    return prod(task.sizes[index] for index in held)


def keys_of(leaves: list[Leaf]) -> list[Modes]:
    """The modes of the factors; first those of factors without modes, so that their only row is row 0."""
    return sorted({leaf.modes for leaf in leaves})


class JointPasses:
    """Models of any equation: a fused kernel visits the cells once per factor, sorted by its rows."""

    def __init__(self, task: Task, cells: CellSource, device: Device, copies: str) -> None:
        self._task, self._device = task, device
        self._names = [term.name for term in task.equation.factors]
        self._leaves = leaves_of(task, cells_tree(task))
        self._latent = joint_size(task)
        self._keys = keys_of(self._leaves)
        self._lists = sorted_lists(task, cells, device, copies, self._keys)
        self._bases, self._columns = self._tables_at()
        along = joint_columns(self._leaves, task.sizes)
        filled = np.pad(along, ((0, 0), (0, power_of_two(self._latent) - self._latent)))
        self._offsets = device.put(filled, device.torch.int32)
        self._members = [device.put(members_of(columns), device.torch.int32) for columns in along]

    def counts(
        self, factors: Mapping[str, Tensor], names: Collection[str], log: bool, key: Key = None
    ) -> tuple[dict[str, Tensor], Number]:
        """Expected counts of the named factors, and the log term or NaN."""
        from pltf.engines.torch.listed_kernels import COUNTS, LINKS

        assert key is None, "counts are allocated block by block: plan the task with allocates=True"
        dtype, kind = self._task.dtype, LINKS if self._task.links else COUNTS
        rounded = {name: factors[name].to(getattr(self._device.torch, dtype.name)) for name in self._names}
        table = self._table(rounded)

        def run(n: int, log: bool) -> tuple[Tensor, Number]:
            sums, log_term = self._pass(n, table, kind, log)
            return (self._lying(n, sums, factors) * rounded[self._names[n]]).contiguous(), log_term

        return one_by_one(self._names, names, log, run)

    @property
    def together(self) -> tuple[frozenset[str], ...]:
        return tuple(frozenset([name]) for name in self._names)

    def exposure(self, factors: Mapping[str, Tensor], of: str) -> Tensor:
        from pltf.engines.torch.listed_kernels import ONES

        n = self._names.index(of)
        return self._lying(n, self._pass(n, self._table(factors), ONES, log=False)[0], factors)

    def _pass(self, n: int, table: Tensor, kind: int, log: bool) -> tuple[Tensor, Number]:
        """Sums over the cells for every row of a factor, and the log term or NaN."""
        from pltf.engines.torch.joint_kernels import joint_sums

        leaf = self._leaves[n]
        one = self._lists.by_key[self._keys.index(leaf.modes)]
        parts = table.new_empty((one.n_chunks, leaf.columns))
        logs, stride = one.log_terms(log), one.positions.shape[1]
        arrays = (one.starts, one.owners, one.positions, one.order, one.x, table)
        tables = (self._bases, self._columns, self._offsets, self._members[n])
        sizes = {"SLOTS": self._slots(one), "WANTED": n, "KIND": kind, "LOG": log, **self._tile(leaf, table)}
        operands = (*arrays, *tables, parts, logs, stride, self._latent, leaf.columns)
        launched(self._device, joint_sums, (one.n_chunks,), *operands, **sizes)
        return one.summed(parts, leaf.columns), logs.sum() if log else math.nan

    def _lying(self, n: int, sums: Tensor, factors: Mapping[str, Tensor]) -> Tensor:
        return self._leaves[n].lying(sums, factors[self._names[n]].shape)

    def _table(self, factors: Mapping[str, Tensor]) -> Tensor:
        """The tables of all factors, end to end."""
        tables = (leaf.table(factors[name]) for leaf, name in zip(self._leaves, self._names, strict=True))
        return self._device.torch.cat([table.reshape(-1) for table in tables])

    def _tables_at(self) -> tuple[Tensor, Tensor]:
        """Where row 0 of each table would be, as rows are numbered over all keys; and the columns of each table."""
        starts = np.cumsum([0, *(leaf.rows * leaf.columns for leaf in self._leaves)])
        first = [self._lists.first[self._keys.index(leaf.modes)] for leaf in self._leaves]
        columns = np.array([leaf.columns for leaf in self._leaves])
        torch = self._device.torch
        return self._device.put(starts[:-1] - first * columns, torch.int64), self._device.put(columns, torch.int32)

    def _slots(self, one: RowList) -> tuple[int, ...]:
        """For each factor: which of the positions are its rows, or that all cells of a chunk have the same row."""
        from pltf.engines.torch.joint_kernels import ONLY, OWNER

        def slot(modes: Modes) -> int:
            key = self._keys.index(modes)
            return OWNER if key == one.own else one.held.index(key) if modes else ONLY

        return tuple(slot(leaf.modes) for leaf in self._leaves)

    def _tile(self, leaf: Leaf, table: Tensor) -> dict[str, int]:
        return joint_tile(self._latent, leaf.columns, table.dtype.itemsize)


def joint_columns(leaves: list[Leaf], sizes: Mapping[str, int]) -> NDArray[np.intp]:
    """Column of every table along the joint axis, in the order of the widest table, to read its entries in order."""
    widest_first = sorted(leaves, key=lambda leaf: -leaf.columns)
    latent = tuple(dict.fromkeys(index for leaf in widest_first for index in leaf.latent))
    return np.stack([columns_along(leaf.latent, latent, sizes) for leaf in leaves])


def members_of(columns: NDArray[np.intp]) -> NDArray[np.intp]:
    """The joint positions of each column of a table, filled up to powers of two with -1.

    >>> members_of(np.array([0, 1, 2, 0, 1, 2])).tolist()
    [[0, 3], [1, 4], [2, 5], [-1, -1]]
    """
    kept = int(columns.max()) + 1
    members = np.argsort(columns, kind="stable").reshape(kept, -1)
    missing = [(0, power_of_two(size) - size) for size in members.shape]
    return np.pad(members, missing, constant_values=-1)


def columns_along(held: Indices, latent: Indices, sizes: Mapping[str, int]) -> NDArray[np.intp]:
    """Column of a table with some latent indices, at every combination of positions of all of them.

    >>> columns_along(("q",), ("p", "q"), {"p": 2, "q": 3}).tolist()
    [0, 1, 2, 0, 1, 2]
    >>> columns_along(("q", "p"), ("p", "q"), {"p": 2, "q": 3}).tolist()
    [0, 2, 4, 1, 3, 5]
    """
    numbers = np.arange(prod(sizes[index] for index in held)).reshape([sizes[index] for index in held])
    ordered = numbers.transpose([held.index(index) for index in latent if index in held])
    spread = ordered.reshape([sizes[index] if index in held else 1 for index in latent])
    return np.broadcast_to(spread, [sizes[index] for index in latent]).reshape(-1)


def joint_tile(latent: int, kept: int, itemsize: int) -> dict[str, Any]:
    """Tile of a ``joint_sums`` program, for a factor with so many columns: some cells by the joint axis.

    >>> joint_tile(60, 10, 4)
    {'JOINT': 64, 'KEPT': 16, 'REST': 8, 'CELLS': 4, 'num_warps': 1}
    """
    joint = power_of_two(latent)
    sizes = {"JOINT": joint, "KEPT": power_of_two(kept), "REST": power_of_two(latent // kept)}
    return {**sizes, **cells_by(joint, TILE // itemsize, PER_WARP // itemsize)}
