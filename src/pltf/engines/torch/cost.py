"""Cost of an iteration on a GPU: bytes, and seconds based on measurements on an H200. Does not import PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pltf.devices import Device
from pltf.engines.ways import ALL, CLOSED_FORM, DENSE, HOLES, MASK, OBSERVED, ONE, Task, Way

if TYPE_CHECKING:
    from pltf.engines.plan import TensorPlan

BANDWIDTH = 4.25e12  # bytes per second of a copy
DENSE_RATE = 1e13  # operations per second of a pass over an array, including the logarithm
LISTED_RATE = 186e9  # cells times components per second, for all passes over a list for CP
SCATTERED = 3.0  # slowdown with one copy of a list, whose cells are gathered: estimated from the bytes read
CHAINED = 8.0  # slowdown for other models with the same number of operations
LAUNCHES, LAUNCH = 60, 8e-6  # kernels per iteration, and the minimum time of each in seconds
ENTRY_BYTES = 400  # bytes that the factor arithmetic reads and writes per entry
PREDICTED_ENTRY = 32  # bytes per factor entry for predicting rates: the factor and its table
PREDICTED_BLOCKS = 4  # blocks that a prediction holds: rates, or draws and their sorting


def seconds_of(task: Task, counts: Way, exposure: Way, copies: str = ALL) -> float:
    """Seconds of the sums over one tensor, per iteration.

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
    """A pass over all cells: reads them, and evaluates the last contraction of the tree ``products`` times."""
    root = task.tree.steps[-1].forward.flops(task.sizes) if task.tree.steps else task.facts.cells
    return max(task.facts.cells * itemsize / BANDWIDTH, products * root / DENSE_RATE)


def _list(task: Task, cells: int) -> float:
    """The passes over a list, for all factors."""
    if task.is_cp:
        return cells * task.rank / LISTED_RATE
    a_cell = task.tree.flops(task.sizes) / task.facts.cells
    return CHAINED * cells * a_cell / LISTED_RATE


def bytes_of(plan: TensorPlan, device: Device) -> int:
    """Device memory for the sums over one tensor: cells, masks, sorted lists, partial sums and temporaries.

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
    """Device memory for predictions from factors with ``entries`` entries, for any number of cells.

    >>> predict_bytes(Device("cpu", kernels=False), 10**6)
    300435456
    """
    from pltf.engines.torch.blocks import budget

    return PREDICTED_ENTRY * entries + PREDICTED_BLOCKS * budget(device)
