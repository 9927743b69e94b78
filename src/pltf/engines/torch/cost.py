"""What a sweep takes on a GPU: bytes, and seconds from what was measured on an H200. No PyTorch is needed here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pltf.devices import Device
from pltf.engines.ways import ALL, CLOSED_FORM, DENSE, HOLES, MASK, OBSERVED, ONE, Task, Way

if TYPE_CHECKING:
    from pltf.engines.plan import TensorPlan

BANDWIDTH = 4.25e12  # bytes a second, of a copy
DENSE_RATE = 1e13  # operations a second of a pass over an array, with the logarithm
LISTED_RATE = 186e9  # cells times components a second, of all passes over a list for CP
SCATTERED = 3.0  # times as long with one copy of a list, whose cells are gathered: from the bytes that it reads
CHAINED = 8.0  # times as long for another model of as many operations
LAUNCHES, LAUNCH = 60, 8e-6  # kernels that a sweep starts, and the seconds that each of them takes at least
ENTRY_BYTES = 400  # that the arithmetic on factors reads and writes, for an entry
PREDICTED_ENTRY = 32  # bytes of an entry of a factor of which rates are predicted: as it came, and as a table
PREDICTED_BLOCKS = 4  # blocks that a prediction holds: of rates, or of draws and what it takes to sort them


def seconds_of(task: Task, counts: Way, exposure: Way, copies: str = ALL) -> float:
    """Of the sums over one tensor, in a sweep.

    >>> import numpy as np, pltf
    >>> plan, = pltf.cp(rank=20).plan(pltf.observe((np.zeros((1, 3), int), [1]), shape=(10**6, 10**6, 10))).equations
    >>> seconds_of(plan.task, plan.counts, plan.exposure) < 1e-5
    True
    """
    facts, times = task.facts, SCATTERED if copies == ONE else 1.0
    counted = _array(task, 3, task.dtype.itemsize) if counts.name == DENSE else times * _list(task, facts.positive)
    cells = {HOLES: facts.missing, OBSERVED: facts.observed}
    exposed = {CLOSED_FORM: 0.0, MASK: 2 * _array(task, 1, 1)}.get(exposure.name)
    return counted + (times * _list(task, cells[exposure.name]) if exposed is None else exposed)


def _array(task: Task, products: int, itemsize: int) -> float:
    """A pass over all cells: it reads them, and goes through the last contraction of the tree that often."""
    root = task.tree.steps[-1].forward.flops(task.sizes) if task.tree.steps else task.facts.cells
    return max(task.facts.cells * itemsize / BANDWIDTH, products * root / DENSE_RATE)


def _list(task: Task, cells: int) -> float:
    """The passes over a list for all factors."""
    if task.is_cp:
        return cells * task.rank / LISTED_RATE
    a_cell = task.tree.flops(task.sizes) / task.facts.cells
    return CHAINED * cells * a_cell / LISTED_RATE


def bytes_of(plan: TensorPlan, device: Device) -> int:
    """Memory of a device that the sums over one tensor take: cells, masks, sorted lists, partial sums and temporaries.

    >>> import numpy as np, pltf
    >>> plan, = pltf.cp(rank=7).plan(np.ones((50, 40, 30))).equations
    >>> bytes_of(plan, Device("cpu", kernels=False)) > 8 * 50 * 40 * 30
    True
    """
    from pltf.engines.torch import dense
    from pltf.engines.torch.listed_memory import list_bytes

    facts = plan.task.facts
    cells = {HOLES: facts.missing, OBSERVED: facts.observed}.get(plan.exposure.name, 0)
    array = dense.bytes_of(plan.dense, device, counts=plan.counts.name == DENSE) if plan.is_array else 0
    lists = [(facts.positive, True)] if plan.counts.name != DENSE else []
    lists += [(cells, False)] if cells else []
    return array + sum(
        list_bytes(plan.task, n, device, counted=counted, copies=plan.copies).peak for n, counted in lists
    )


def predict_bytes(device: Device, entries: int) -> int:
    """Memory of a device that predictions take from factors of so many entries, however many cells are asked for.

    >>> predict_bytes(Device("cpu", kernels=False), 10**6)
    300435456
    """
    from pltf.engines.torch.blocks import budget

    return PREDICTED_ENTRY * entries + PREDICTED_BLOCKS * budget(device)
