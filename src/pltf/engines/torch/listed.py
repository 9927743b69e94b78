"""Sums over a list of cells, on a device; absent cells cost nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from pltf.devices import Device
from pltf.engines.base import Counts
from pltf.engines.lists import CellSource
from pltf.engines.over_lists import Key, OverLists
from pltf.engines.torch.blocks import BlockPasses
from pltf.engines.torch.cells import Tensor, lost_in_cast
from pltf.engines.torch.cp_passes import TorchCpPasses, is_fused
from pltf.engines.torch.joint_passes import JointPasses, is_joint
from pltf.engines.ways import ALL, Task


class TorchListedEngine(OverLists):
    """Sums over one list of cells of a tensor or of a part of a tensor. For ``copies`` see ``ways.py``."""

    def __init__(self, task: Task, cells: CellSource, device: Device, copies: str = ALL) -> None:
        self.names = tuple(term.name for term in task.equation.factors)
        self._dtype, self._device = task.dtype, device
        self._passes = passes_over(task, cells, device, copies)

    def _counted(
        self, factors: Mapping[str, Tensor], wanted: Collection[str] | None, log: bool, key: Key = None
    ) -> Counts:
        names = [name for name in self.names if wanted is None or name in wanted]
        # The correction for rounding needs the counts of all factors. Draws use float64 factors.
        rounded = log and key is None and self._dtype == np.float32
        sums, log_term = self._passes.counts(factors, self.names if rounded else names, log, key)
        if rounded:
            log_term = log_term + lost_in_cast(self._device, log_term, sums, factors, self._dtype)
        return Counts({name: sums[name] for name in names}, log_term)

    @property
    def together(self) -> tuple[frozenset[str], ...]:
        return self._passes.together

    def exposure(self, factors: Mapping[str, Tensor], of: str) -> Tensor:
        return self._passes.exposure(factors, of)


Passes = TorchCpPasses | JointPasses | BlockPasses  # over a list of cells


def passes_over(task: Task, cells: CellSource, device: Device, copies: str = ALL) -> Passes:
    """Passes with a fused kernel that supports the task, otherwise block by block."""
    fused = TorchCpPasses if is_fused(task, device) else JointPasses if is_joint(task, device) else BlockPasses
    return fused(task, cells, device, copies)
