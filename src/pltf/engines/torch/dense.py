"""The dense engine on a device: all cells as a matrix of rates, and sums as products with both of its sides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np

from pltf.data import DenseObservation
from pltf.devices import Device
from pltf.engines.base import Counts, Number
from pltf.engines.factors import Versioned
from pltf.engines.over_tree import OverTree
from pltf.engines.plan import EquationPlan
from pltf.engines.torch.cells import Tensor
from pltf.engines.torch.fused import FusedPasses
from pltf.engines.torch.plain import PlainPasses
from pltf.engines.torch.table import Table, stored_dtype

_KEPT_BYTES = 16  # bytes per entry of a node: value and exposure, if cells are missing


class LazyTable:
    """The cells of a tensor as a table on a device, copied on first use."""

    def __init__(self, copy: Callable[[], Tensor]) -> None:
        self._copy, self._cells = copy, None

    @property
    def table(self) -> Tensor:
        """All cells."""
        if self._cells is None:
            self._cells = self._copy()
        return self._cells


class TorchDenseEngine(OverTree):
    """Sums over the cells of one dense tensor, on a device.

    Nodes of the contraction tree and all results of sums over cells are float64. With float32, the two children of the
    root are rounded once per pass, and the resulting loss of the log term is corrected.
    """

    def __init__(self, plan: EquationPlan, seen: DenseObservation, device: Device) -> None:
        super().__init__(plan.tree, plan.sizes, masked=seen.has_missing)
        self._dtype, self._device, self.links = plan.dtype, device, plan.links is not None
        table, passes = table_of(plan, device)
        self._table = table
        self._passes: Any = passes  # of any kind
        self._values = LazyTable(partial(table.cells, seen, plan.dtype, device, passes.width))
        self._mask = LazyTable(partial(_mask_of, seen, table, passes, device))
        self._one = device.torch.ones(1, 1, 1, dtype=device.torch.float64, device=device.place)

    # -- counts ---------------------------------------------------------------------------------

    def counts(self, factors: Mapping[str, Any], wanted: Collection[str] | None = None, log: bool = True) -> Counts:
        tree = self._tree
        leaves = [n for n, name in enumerate(tree.names) if wanted is None or name in wanted]
        values = tree.forward([tree.leaf(n, factors[name]) for n, name in enumerate(tree.names)], root=False)
        H, C = self._table.rows_of(values[self._table.sides[0]]), self._columns(values.__getitem__)
        G, S, log_term = self._sums(H, C, leaves, log)
        delta = tree.backward_from(values, self._table.deltas(G, S), leaves)
        by_factor = {tree.names[n]: (factors[tree.names[n]] * tree.unleaf(n, delta[n])).contiguous() for n in leaves}
        return Counts(by_factor, log_term)

    def _sums(self, H: Tensor, C: Tensor, leaves: Collection[int], log: bool) -> tuple[Tensor, Tensor, Number]:
        """Sums for rows and for columns, for each side that has wanted leaves, and the log term or NaN."""
        corrects = log and self._dtype != np.float64  # with the counts of both sides
        to_rows, to_columns = (
            node is not None and (corrects or not self._tree.below[node].isdisjoint(leaves))
            for node in self._table.sides
        )
        sums: tuple[Tensor, Tensor, Number] = self._passes.counts(
            self._values.table, H, C, to_rows=to_rows, to_columns=to_columns, log=log
        )
        return sums

    def _new_mask_delta(self, node: int, factors: Versioned[Any]) -> Tensor:
        """Computed from that of the parent; only the children of the root need a pass over the cells."""
        parents = self._tree.parents
        if node in parents and parents[node][0] in parents:
            parent, sibling, down = parents[node]
            return down(self._mask_delta(parent, factors), self._value(sibling, factors))
        passes, table, mask = self._passes, self._table, self._mask.table
        if node == table.sides[0]:
            C = self._columns(lambda node: self._value(node, factors))
            return table.deltas(passes.seen_by_rows(mask, C), None)[node]
        H = table.rows_of(self._value(table.sides[0], factors))
        return table.deltas(None, passes.seen_by_columns(mask, H))[node]

    def _columns(self, value: Callable[[int], Tensor]) -> Tensor:
        """C, from the values of nodes; 1 if no node has the columns."""
        node = self._table.sides[1]
        return self._one if node is None else self._table.columns_of(value(node))


def _mask_of(seen: DenseObservation, table: Table, passes: FusedPasses | PlainPasses, device: Device) -> Any:
    """The mask as the passes read it."""
    return passes.mask(table.mask(seen, device, passes.width))


def table_of(plan: EquationPlan, device: Device) -> tuple[Table, FusedPasses | PlainPasses]:
    """The table of a tensor and the passes over it; transposed if this avoids a copy of cells on the device."""
    table = Table(plan.tree, plan.sizes)
    passes = passes_over(table, plan, device)
    if plan.place == device.where and table.copies(plan, device, passes.width):
        turned = Table(plan.tree, plan.sizes, turned=True)
        over_turned = passes_over(turned, plan, device)
        if not turned.copies(plan, device, over_turned.width):
            return turned, over_turned
    return table, passes


def passes_over(table: Table, plan: EquationPlan, device: Device) -> FusedPasses | PlainPasses:
    """Passes by kernels if they are available and support the table, else plain ones."""
    links = plan.links is not None
    if FusedPasses.take(table, plan.dtype, device):
        return FusedPasses(table, plan.dtype, device, links)
    return PlainPasses(table, plan.dtype, device, links)


def bytes_of(plan: EquationPlan, device: Device, *, counts: bool = True) -> int:
    """Device memory for the sums over a tensor: cells, mask, nodes of the tree, and partial sums.

    Without ``counts`` only exposures are computed, and of the cells only the mask is stored.
    """
    table, passes = table_of(plan, device)
    batch, rows, columns = table.shape
    copied = counts and table.copies(plan, device, passes.width)
    cells = batch * rows * passes.width
    held = cells * (stored_dtype(plan.data_dtype, plan.dtype).itemsize if copied else 0)
    held += passes.mask_bytes + _KEPT_BYTES * sum(map(plan.node_size, plan.tree.nodes[:-1])) if plan.masked else 0
    flight = passes.bytes + passes.side_bytes * batch * (rows + columns) * table.bond
    return held + max(flight, cells * passes.packs if plan.masked else 0)
