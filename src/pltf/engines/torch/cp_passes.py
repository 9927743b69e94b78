"""A CP model over listed cells on a device: one fused kernel, and one pass per mode."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from pltf.devices import Device
from pltf.engines.base import Number
from pltf.engines.cp import CpFactors
from pltf.engines.lists import CellSource
from pltf.engines.over_lists import Key
from pltf.engines.torch.cells import Tensor
from pltf.engines.torch.draws import seed_on
from pltf.engines.torch.launch import launched, power_of_two
from pltf.engines.torch.row_lists import RowList, sorted_lists
from pltf.engines.ways import Task

WIDEST = 1024  # largest number of components of a program
TILE = 2048  # bytes of cells times components per warp
LEAST, MOST = 4, 32  # cells per program at a time
DRAWN = 32  # cells per allocating program: one per thread


def is_fused(task: Task, device: Device) -> bool:
    """Whether the kernels support this task."""
    return task.is_cp and device.kernels and width_of(task.rank) <= WIDEST


class TorchCpPasses:
    """CP models of any order, including NMF: a fused kernel visits the cells once per mode, sorted by it."""

    def __init__(self, task: Task, cells: CellSource, device: Device, copies: str) -> None:
        self._task, self._device, self._factors = task, device, CpFactors(task.equation)
        self._width = width_of(task.rank)
        self._lists = sorted_lists(task, cells, device, copies, [(mode,) for mode in range(len(task.shape))])

    def counts(
        self, factors: Mapping[str, Tensor], names: Collection[str], log: bool, key: Key = None
    ) -> tuple[dict[str, Tensor], Number]:
        """Counts of the named factors (expected, or sampled if there is a key), and the log term or NaN."""
        table = self._table(factors, self._task.dtype if key is None else np.dtype(np.float64))
        modes = [mode for mode, name in enumerate(self._factors.names) if name in names]
        # For allocation, a log term from another pass would cost an extra pass per group of factors.
        logged = modes[0] if modes and key is not None else 0
        return one_by_one(self._factors.names, names, log, lambda n, log: self._pass(n, table, log, key), logged)

    @property
    def together(self) -> tuple[frozenset[str], ...]:
        return tuple(frozenset([name]) for name in self._factors.names)

    def exposure(self, factors: Mapping[str, Tensor], of: str) -> Tensor:
        from pltf.engines.torch.listed_kernels import ONES

        mode, dtype = self._factors.names.index(of), np.dtype(np.float64)
        return self._expected(mode, self._table(factors, dtype), dtype, ONES, log=False)[0]

    def _pass(self, mode: int, table: Tensor, log: bool, key: Key) -> tuple[Tensor, Number]:
        """Counts of one factor, and the log term or NaN."""
        from pltf.engines.torch.listed_kernels import COUNTS, LINKS

        if key is None:
            return self._expected(mode, table, self._task.dtype, LINKS if self._task.links else COUNTS, log)
        return self._drawn(mode, table, seed_on(self._device, key, mode))

    def _expected(self, mode: int, table: Tensor, dtype: np.dtype[Any], kind: int, log: bool) -> tuple[Tensor, Number]:
        """Sums of one pass by the rows of its mode, and the log term or NaN."""
        from pltf.engines.torch.listed_kernels import cp_sums

        one = self._lists.by_key[mode]
        parts = table.new_empty((one.n_chunks, self._width))
        logs = one.log_terms(log)
        arrays = (one.starts, one.owners, one.positions, one.order, one.x, table, parts, logs, one.positions.shape[1])
        sizes = {"MODES": len(one.positions), "SKIPPED": one.skipped, "KIND": kind, "LOG": log}
        launched(self._device, cp_sums, (one.n_chunks,), *arrays, **sizes, **tile(self._task.rank, dtype))
        return self._as_factor(mode, one, parts), logs.sum() if log else math.nan

    def _drawn(self, mode: int, table: Tensor, seed: Tensor) -> tuple[Tensor, Number]:
        """Sampled counts, and the log term."""
        from pltf.engines.torch.allocation_kernels import DIRECT, cp_draws

        one, logs = self._lists.by_key[mode], self._lists.by_key[mode].log_terms(log=True)
        parts = logs.new_empty((one.n_chunks, self._width))
        arrays = (one.starts, one.owners, one.positions, one.order, one.x, table, parts, logs, seed)
        links = bool(self._task.links)
        sizes = {"MODES": len(one.positions), "SKIPPED": one.skipped, "LINKS": links}
        sizes |= {"MANY": links or self._lists.largest > DIRECT.value}
        sizes |= drawing_tile(self._task.rank)
        launched(self._device, cp_draws, (one.n_chunks,), *arrays, one.positions.shape[1], self._task.rank, **sizes)
        return self._as_factor(mode, one, parts), logs.sum()

    def _as_factor(self, mode: int, one: RowList, parts: Tensor) -> Tensor:
        """Sums of the chunks of each row, with the axis order of the factor."""
        return self._factors.turned(one.summed(parts, self._task.rank), mode).contiguous()

    def _table(self, factors: Mapping[str, Tensor], dtype: np.dtype[Any]) -> Tensor:
        """All factors stacked, one row per position, padded with zeros to the table width."""
        torch, rows = self._device.torch, self._factors.rows(factors)
        ends = list(itertools.accumulate(map(len, rows)))
        table = torch.zeros((ends[-1], self._width), dtype=getattr(torch, dtype.name), device=self._device.place)
        for end, factor in zip(ends, rows, strict=True):
            table[end - len(factor) : end, : self._task.rank] = factor
        return table


def width_of(rank: int) -> int:
    """Number of table columns for ``rank`` components, for aligned reads.

    >>> width_of(7), width_of(20)
    (8, 20)
    """
    return -(-rank // 4) * 4


def one_by_one(
    names: Sequence[str],
    wanted: Collection[str],
    log: bool,
    run: Callable[[int, bool], tuple[Tensor, Number]],
    logged: int = 0,
) -> tuple[dict[str, Tensor], Number]:
    """Sums of the wanted factors, one pass for each, and the log term or NaN.

    The log term always comes from the same pass, so that it does not depend on which factors are wanted.
    """
    sums: dict[str, Tensor] = {}
    log_term: Number = math.nan
    for n, name in enumerate(names):
        with_log = log and n == logged
        if name in wanted or with_log:
            sums[name], term = run(n, with_log)
            log_term = term if with_log else log_term
    return {name: sums[name] for name in wanted}, log_term


def tile(rank: int, dtype: np.dtype[Any]) -> dict[str, int]:
    """Tile of a ``cp_sums`` program: some cells by all components, 64 bytes per thread.

    >>> tile(20, np.dtype(np.float32))
    {'WIDTH': 20, 'COMPONENTS': 32, 'CELLS': 16, 'num_warps': 1}
    """
    width = width_of(rank)
    components = power_of_two(width)
    entries = TILE // dtype.itemsize
    return {"WIDTH": width, "COMPONENTS": components, **cells_by(components, entries, entries)}


def cells_by(columns: int, entries: int, most: int) -> dict[str, int]:
    """Cells that a program processes at a time, for about so many entries; and its warps, for at most so many in each.

    >>> cells_by(32, 512, 512), cells_by(1024, 512, 512), cells_by(1024, 512, 1024)
    ({'CELLS': 16, 'num_warps': 1}, {'CELLS': 4, 'num_warps': 8}, {'CELLS': 4, 'num_warps': 4})
    """
    cells = min(max(entries // columns, LEAST), MOST)
    return {"CELLS": cells, "num_warps": max(cells * columns // most, 1)}


def drawing_tile(rank: int) -> dict[str, int]:
    """Tile of a ``cp_draws`` program: some cells, component by component."""
    width = width_of(rank)
    return {"WIDTH": width, "COMPONENTS": power_of_two(width), "CELLS": DRAWN, "num_warps": 1}
