"""Cost of an iteration on a GPU: bytes, and seconds based on measurements on an H200. Does not import PyTorch."""

from __future__ import annotations

from dataclasses import replace

from pltf.devices import Device
from pltf.engines.plan import TensorPlan
from pltf.engines.torch import blocks, dense
from pltf.engines.torch.blocks import CELL, cells_tree, leaves_of
from pltf.engines.torch.joint_passes import fits, joint_size
from pltf.engines.torch.launch import power_of_two
from pltf.engines.torch.listed_memory import ListBytes, list_bytes
from pltf.engines.ways import CLOSED_FORM, DENSE, HOLES, LISTED, MASK, OBSERVED, ONE, STORED, Task

BANDWIDTH = 4.25e12  # bytes per second of a copy
DENSE_RATE = 1e13  # operations per second of a pass over an array, including the logarithm
LISTED_RATE = 186e9  # cells times components per second, for all passes over a list for CP
SCATTERED = 3.0  # slowdown with one copy of a list, whose cells are gathered: estimated from the bytes read
# For other models with a kernel (joint_passes.py), estimated from its instructions: benchmarks/NOTES.md.
ISSUED = 4.6e11  # instructions of warps per second: half of what the schedulers can issue
PER_CELL, PER_VALUE = 50, 5  # instructions per pass: for a cell, and for the values of 32 joint positions of a factor
GATHERED = 5.4e12  # bytes per second of rows of tables, as for CP
CHAIN_RATE = 2e10  # operations of rates per second, for all passes over a list for models without a kernel
FED = 2e-8  # seconds to read, copy and sort a cell that does not stay on the device: a guess, not measured
LAUNCHES, LAUNCH = 60, 8e-6  # kernels per iteration, and the minimum time of each in seconds
ENTRY_BYTES = 400  # bytes that the factor arithmetic reads and writes per entry
PREDICTED_ENTRY = 32  # bytes per factor entry for predicting rates: the factor and its table
PREDICTED_BLOCKS = 4  # blocks that a prediction holds: rates, or draws and their sorting


def way_seconds(task: Task, name: str) -> float:
    """Seconds of one way to compute the sums over a tensor, per iteration.

    >>> import numpy as np, pltf
    >>> plan, = pltf.cp(rank=20).plan(pltf.observe((np.zeros((1, 3), int), [1]), shape=(10**6, 10**6, 10))).equations
    >>> way_seconds(plan.task, "sparse") < 1e-5
    True

    >>> from dataclasses import replace
    >>> plan, = pltf.tucker(ranks=(5, 5, 5)).plan(np.ones((9, 8, 7))).equations
    >>> million = replace(plan.task.facts, positive=10**6)
    >>> round(1e3 * way_seconds(replace(plan.task, facts=million), "sparse"), 1)
    1.1
    """
    facts = task.facts
    lists = {LISTED: facts.positive, STORED: facts.positive, HOLES: facts.missing, OBSERVED: facts.observed}
    if name in lists:
        return _list(task if name in (LISTED, STORED) else task.uncounted, lists[name])
    if name == DENSE:
        return _array(task, 3, task.dtype.itemsize)
    return 0.0 if name == CLOSED_FORM else 2 * _array(task, 2, 1)  # exposures for both sides of the root, in float64


def seconds_of(plan: TensorPlan) -> float:
    """Seconds of the sums over one tensor, per iteration."""
    listed = SCATTERED if plan.copies == ONE else 1.0
    ways = plan.counts, plan.exposure
    return sum(way.seconds * (1.0 if way.name in (DENSE, MASK) else listed) for way in ways)


def _array(task: Task, products: int, itemsize: int) -> float:
    """A pass over all cells: reads them, and evaluates the last contraction of the tree ``products`` times."""
    root = task.tree.steps[-1].forward.flops(task.sizes) if task.tree.steps else task.facts.cells
    return max(task.facts.cells * itemsize / BANDWIDTH, products * root / DENSE_RATE)


def _list(task: Task, cells: int) -> float:
    """The passes over a list, for all factors."""
    if task.is_cp:
        return cells * task.rank / LISTED_RATE
    if fits(task):
        return _joint(task, cells)
    return cells * cells_tree(task).flops({**task.sizes, CELL: 1}) / CHAIN_RATE


def _joint(task: Task, cells: int) -> float:
    """A pass for each factor over a list: its instructions, or the rows of the other factors that it gathers."""
    warps = power_of_two(joint_size(task)) / 32
    instructions = PER_CELL * min(warps, 1) + PER_VALUE * task.n_factors * warps
    rows = sum(leaf.columns for leaf in leaves_of(task, cells_tree(task)) if leaf.modes) * task.dtype.itemsize
    return cells * max(task.n_factors * instructions / ISSUED, (task.n_factors - 1) * rows / GATHERED)


def bytes_of(plan: TensorPlan, device: Device) -> int:
    """Device memory for the sums over one tensor: cells, masks, sorted lists, partial sums and temporaries.

    >>> import numpy as np, pltf
    >>> plan, = pltf.cp(rank=7).plan(np.ones((50, 40, 30))).equations
    >>> bytes_of(plan, Device("cpu", kernels=False)) > 8 * 50 * 40 * 30
    True
    """
    facts = plan.task.facts
    cells = {HOLES: facts.missing, OBSERVED: facts.observed}.get(plan.exposure.name, 0)
    array = dense.bytes_of(plan.dense, device, counts=plan.counts.name == DENSE) if plan.is_array else 0
    lists = [(facts.positive, True)] if plan.counts.name != DENSE else []
    lists += [(cells, False)] if cells else []
    return array + sum(
        list_bytes(plan.task, n, device, counted=counted, copies=plan.copies).peak for n, counted in lists
    )


def bytes_of_parts(task: Task, device: Device) -> int:
    """Device memory for the sums over the parts of a store, without the cells that stay there between passes.

    One part is in work; its factors and sums are float64. The sums of some parts wait in the tree.
    """
    part = _largest_part(task)
    waiting = task.private * (task.facts.parts.bit_length() + 2)
    return _part_bytes(part, device).peak + 8 * (2 * part.entries() + waiting)


def cells_of_parts(task: Task, device: Device) -> float:
    """Device memory for the cells of all parts of a store."""
    part = _largest_part(task)
    return _part_bytes(part, device).held / max(part.facts.most, 1) * task.facts.listed


def feeding_seconds(plan: TensorPlan) -> float:
    """Seconds of an iteration for cells that do not stay on the device, if none does."""
    passes = 1 + (plan.exposure.name == OBSERVED) * plan.task.n_factors
    return FED * passes * plan.task.facts.listed


def _largest_part(task: Task) -> Task:
    owned = task.equation.output.indices[task.facts.owner]
    return replace(task, sizes={**task.sizes, owned: max(task.facts.widest, 1)})


def _part_bytes(part: Task, device: Device) -> ListBytes:
    return list_bytes(part, part.facts.most, device, counted=True)


def predict_bytes(device: Device, entries: int) -> int:
    """Device memory for predictions from factors with ``entries`` entries, for any number of cells.

    >>> predict_bytes(Device("cpu", kernels=False), 10**6)
    300435456
    """
    return PREDICTED_ENTRY * entries + PREDICTED_BLOCKS * blocks.budget(device)
