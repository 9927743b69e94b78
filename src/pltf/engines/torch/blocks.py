"""Any equation over listed cells on a device: blocks of cells pass through a tree of pairwise contractions.

The cells of a block form one batch index. A factor with observed indices becomes a table of rows, gathered at the
cells; other factors stay as they are:

    ip,jq,kr,pqr->ijk   becomes   np,nq,nr,pqr->n   for the cells n of a block.

Forwards, the tree computes rates from rows; backwards, it computes each cell's contribution to the rows of each factor
from the ratios. These are summed by row in a fixed order (``sums.py``). Blocks are small enough for the memory budget:
nothing has the size of the cells times the latent indices.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from pltf.devices import Device
from pltf.engines.base import Number
from pltf.engines.contraction import Indices, Pair, Tree, plan_tree
from pltf.engines.either import added
from pltf.engines.lists import CellSource, WholeList
from pltf.engines.over_lists import Key
from pltf.engines.torch.cells import Tensor, in_full_precision, ratios
from pltf.engines.torch.draws import CountDraws
from pltf.engines.torch.row_lists import flat_rows
from pltf.engines.torch.sums import SegmentSums, narrow
from pltf.engines.ways import ALL, Task
from pltf.notation import Equation, Term

CELL = "(cell)"  # cannot be the name of an index of a model
HOST_BYTES = 64 << 20  # temporaries of a block on the CPU;
MOST_BYTES, SHARE = 1 << 30, 1 / 16  # on a GPU, and as a share of its memory
TYPICAL = 1 << 16  # cells for which the contraction order is optimized


def over_cells(equation: Equation) -> Equation:
    """The equation for listed cells: one index for cells replaces the observed indices.

    >>> import pltf
    >>> equation, = pltf.Model("ip,jq,kr,pqr->ijk", p=2, q=3, r=2).equations
    >>> print(over_cells(equation))
    X[(cell)] = Z1[(cell),p] * Z2[(cell),q] * Z3[(cell),r] * Z4[p,q,r]
    """
    observed = equation.output.indices

    def at_cells(term: Term) -> Term:
        latent = tuple(index for index in term.indices if index not in observed)
        return Term(term.name, (CELL, *latent) if len(latent) < len(term.indices) else latent)

    return Equation(Term(equation.output.name, (CELL,)), tuple(map(at_cells, equation.factors)))


class Leaf:
    """A factor as a table: one row per position of its observed indices, without latent indices unique to it."""

    def __init__(self, task: Task, number: int, kept: Indices) -> None:
        observed = task.equation.output.indices
        indices = task.equation.factors[number].indices
        held = [index for index in indices if index in observed or index in kept]
        seen = [index for index in indices if index in observed]
        self.modes = tuple(observed.index(index) for index in seen)
        self._shape = task.shape
        self.sizes = [task.sizes[index] for index in seen]
        self.latent = tuple(index for index in kept if index != CELL)
        self.kept = [task.sizes[index] for index in self.latent]
        self._lone = [axis for axis, index in enumerate(indices) if index not in held]
        self._axes = [indices.index(index) for index in (*seen, *self.latent)]

    @property
    def rows(self) -> int:
        """Number of positions of the observed indices."""
        return prod(self.sizes)

    @property
    def columns(self) -> int:
        """Number of entries of the latent indices that are kept."""
        return prod(self.kept)

    def table(self, factor: Tensor) -> Tensor:
        """A factor as (rows, columns); it may be the same memory."""
        entries = self._with_lone(factor)
        return entries.sum(dim=2) if self._lone else entries[:, :, 0]

    def lying(self, table: Tensor, shape: Sequence[int]) -> Tensor:
        """A table with the axes of its factor, constant along latent indices that were summed."""
        return self._as_factor(table[:, :, None].expand(-1, -1, prod(shape[axis] for axis in self._lone)), shape)

    def split(self, table: Tensor, factor: Tensor, draws: CountDraws) -> Tensor:
        """Counts of a table as counts of its factor: allocated at random along latent indices that were summed."""
        weights = self._with_lone(factor)
        if weights.shape[2] > 1:
            table = draws.split(table.reshape(-1), weights.reshape(table.numel(), -1))
        return self._as_factor(table.reshape(weights.shape), factor.shape)

    def _with_lone(self, factor: Tensor) -> Tensor:
        """(rows, columns, positions of latent indices that no other factor has)."""
        return factor.permute(self._axes + self._lone).reshape(self.rows, self.columns, -1)

    def _as_factor(self, array: Tensor, shape: Sequence[int]) -> Tensor:
        axes = self._axes + self._lone
        return array.reshape([shape[axis] for axis in axes]).permute(np.argsort(axes).tolist()).contiguous()

    def gathered(self, table: Tensor, at: Tensor) -> Tensor:
        """The rows at the cells ``at`` (modes, cells), with the axes of the leaf."""
        return (
            table.index_select(0, self.rows_of(at)).reshape(-1, *self.kept) if self.modes else table.reshape(self.kept)
        )

    def rows_of(self, at: Tensor) -> Tensor:
        """The row number of every cell; ``at`` is (modes, cells)."""
        return flat_rows(at, self.modes, self._shape)


def leaves_of(task: Task, tree: Tree) -> list[Leaf]:
    """The factors of a task as tables."""
    return [Leaf(task, n, tree.nodes[n]) for n in range(task.n_factors)]


@dataclass(frozen=True, eq=False)
class Grouping:
    """How the cells of a block are summed by the rows of a table."""

    order: Tensor | None  # permutation that sorts the cells by row; None: already sorted
    sums: SegmentSums

    @classmethod
    def of(cls, device: Device, rows: Tensor, size: int) -> Grouping:
        """Grouping for the given row of every cell; row numbers are below ``size``."""
        torch = device.torch
        own, order = torch.sort(rows, stable=True)
        sorted_already = bool((own == rows).all())
        found, counts = torch.unique_consecutive(own, return_counts=True)
        sums = SegmentSums.of(device, counts, found, size)
        return cls(None if sorted_already else narrow(torch, order, rows.numel()), sums)


class ListOnDevice:
    """A list in data order, on a device."""

    def __init__(self, device: Device, whole: WholeList) -> None:
        self.at = device.put(whole.coords)
        self.x: Tensor = None if whole.x is None else device.put(whole.x)


class BlockPasses:
    """Any equation: one pass computes all factors, block by block.

    With ``copies="one"`` the cells of a block are sorted in every pass, and only the list is kept.
    """

    def __init__(self, task: Task, cells: CellSource, device: Device, copies: str) -> None:
        self._task, self._device, self._keeps = task, device, copies == ALL
        self._names = [term.name for term in task.equation.factors]
        self._tree = cells_tree(task)
        self._root = len(self._tree.nodes) - 1
        self._leaves = leaves_of(task, self._tree)
        self._list: ListOnDevice = cells.once(("torch", device.where), partial(ListOnDevice, device))
        size = block_of(task, self._tree, device)
        count = self._list.at.shape[1]
        self._blocks = [slice(start, min(start + size, count)) for start in range(0, count, size)]
        self._groupings: dict[tuple[int, tuple[int, ...]], Grouping] = {}

    @in_full_precision
    def counts(
        self, factors: Mapping[str, Tensor], names: Collection[str], log: bool, key: Key = None
    ) -> tuple[dict[str, Tensor], Number]:
        """Counts of the named factors (expected, or sampled if there is a key), and the log term or NaN."""
        if key is not None:
            return self._allocated(factors, names, CountDraws(self._device, key))
        tables, sums = self._tables(factors, self._task.dtype), self._zeros(self._numbers(names))
        log_terms = [self._zero()]
        for number, block in enumerate(self._blocks):
            values = self._forward(tables, block, range(len(self._tree.nodes)))
            ratio, term = self._ratios(block, values, log)
            log_terms.append(term)
            self._add(sums, self._backward(values, ratio, sums), number)
        found = {}
        for n, table in sums.items():
            factor = self._rounded(factors[self._names[n]], self._task.dtype)
            found[self._names[n]] = (self._leaves[n].lying(table, factor.shape) * factor).contiguous()
        return found, added(log_terms) if log else math.nan

    def _allocated(
        self, factors: Mapping[str, Tensor], names: Collection[str], draws: CountDraws
    ) -> tuple[dict[str, Tensor], Number]:
        """Sampled counts, and the log term."""
        tables = self._tables(factors, np.dtype(np.float64))
        sums = self._zeros(self._numbers(names))
        log_terms = [self._zero()]
        for number, block in enumerate(self._blocks):
            values = self._forward(tables, block, range(len(self._tree.nodes)))
            log_terms.append(self._ratios(block, values, log=True)[1])
            counts = draws.hidden(self._list.x[block], values[self._root], bool(self._task.links))
            self._add(sums, self._split(values, counts, sums, draws), number)
        names = [self._names[n] for n in sums]
        found = {
            name: self._leaves[n].split(sums[n], factors[name], draws) for n, name in zip(sums, names, strict=True)
        }
        return found, added(log_terms)

    @property
    def together(self) -> tuple[frozenset[str], ...]:
        return (frozenset(self._names),)

    def exposure(self, factors: Mapping[str, Tensor], of: str) -> Tensor:
        torch, leaf = self._device.torch, self._names.index(of)
        tables, sums = self._tables(factors, np.dtype(np.float64)), self._zeros({leaf})
        others = [node for node, below in enumerate(self._tree.below) if leaf not in below]
        for number, block in enumerate(self._blocks):
            values = self._forward(tables, block, others)
            ones = torch.ones(block.stop - block.start, dtype=torch.float64, device=self._device.place)
            self._add(sums, self._backward(values, ones, {leaf}), number)
        return self._leaves[leaf].lying(sums[leaf], factors[of].shape)

    def _numbers(self, names: Collection[str]) -> list[int]:
        """Leaf numbers of the named factors."""
        return [n for n, name in enumerate(self._names) if name in names]

    def _rounded(self, factor: Tensor, dtype: np.dtype[Any]) -> Tensor:
        return factor.to(getattr(self._device.torch, dtype.name))

    def _tables(self, factors: Mapping[str, Tensor], dtype: np.dtype[Any]) -> list[Tensor]:
        """The factors as tables, rounded to a dtype."""
        named = zip(self._names, self._leaves, strict=True)
        return [leaf.table(self._rounded(factors[name], dtype)) for name, leaf in named]

    def _ratios(self, block: slice, values: Mapping[int, Tensor], log: bool) -> tuple[Tensor, Number]:
        """Ratios of the cells of a block, and their contribution to the log term."""
        x, rate = self._list.x[block], values[self._root]
        return ratios(self._device.torch, x, rate, None, links=bool(self._task.links), log=log)

    def _zero(self) -> Tensor:
        """The log term of an empty list."""
        return self._device.torch.zeros((), dtype=self._device.torch.float64, device=self._device.place)

    def _zeros(self, wanted: Collection[int]) -> dict[int, Tensor]:
        """Zero sums for the wanted leaves, as tables."""
        torch, place = self._device.torch, self._device.place
        shapes = {n: (self._leaves[n].rows, self._leaves[n].columns) for n in sorted(wanted)}
        return {n: torch.zeros(shape, dtype=torch.float64, device=place) for n, shape in shapes.items()}

    def _forward(self, tables: Sequence[Tensor], block: slice, nodes: Collection[int]) -> dict[int, Tensor]:
        """Values of the requested nodes of the tree for a block of cells."""
        return forward(self._tree, self._leaves, tables, self._list.at[:, block], nodes)

    def _backward(self, values: Mapping[int, Tensor], cells: Tensor, wanted: Collection[int]) -> dict[int, Tensor]:
        """Contribution of every cell to the wanted leaves."""
        delta = {self._root: cells}
        for step in reversed(self._tree.steps):
            above = delta.pop(step.out, None)
            if above is None:
                continue
            for node, sibling, down in ((step.left, step.right, step.to_left), (step.right, step.left, step.to_right)):
                if not self._tree.below[node].isdisjoint(wanted):
                    delta[node] = _down(down, above, values[sibling])
        return delta

    def _split(
        self, values: Mapping[int, Tensor], cells: Tensor, wanted: Collection[int], draws: CountDraws
    ) -> dict[int, Tensor]:
        """Allocate the counts of every cell to the entries of the wanted leaves.

        From the root down: the counts of a node are split over the indices that its step sums, and passed to both
        children, summed over the indices that these do not have. Counts that share a node without cells are added
        before they are split further, because a sum of multinomials with equal probabilities is a multinomial.
        """
        given = {self._root: cells}
        for step in reversed(self._tree.steps):
            above = given.pop(step.out, None)
            if above is None:
                continue
            drawn, indices = _split_step(step.forward, above, values[step.left], values[step.right], draws)
            for node in (step.left, step.right):
                if not self._tree.below[node].isdisjoint(wanted):
                    given[node] = _summed_to(drawn, indices, self._tree.nodes[node])
        return given

    def _add(self, sums: Mapping[int, Tensor], delta: Mapping[int, Tensor], number: int) -> None:
        """Add the contributions of the cells of a block to the rows of the tables."""
        for n, given in delta.items():
            leaf, parts = self._leaves[n], given.reshape(-1, self._leaves[n].columns)
            if leaf.modes:
                grouping = self._grouping(number, leaf)
                grouping.sums.add(parts, sums[n], grouping.order)
            else:
                sums[n].add_(parts)

    def _grouping(self, number: int, leaf: Leaf) -> Grouping:
        """The grouping of the cells of a block by the rows of a factor, shared by all factors with the same modes."""
        key = number, leaf.modes
        found = self._groupings.get(key)
        if found is None:
            found = Grouping.of(self._device, leaf.rows_of(self._list.at[:, self._blocks[number]]), leaf.rows)
            if self._keeps:
                self._groupings[key] = found
        return found


def forward(
    tree: Tree,
    leaves: Sequence[Leaf],
    tables: Sequence[Tensor],
    at: Tensor,
    nodes: Collection[int] | None = None,
) -> dict[int, Tensor]:
    """Values of all or some nodes of a tree, for cells at ``at`` (modes, cells)."""
    nodes = range(len(tree.nodes)) if nodes is None else nodes
    values = {n: leaf.gathered(tables[n], at) for n, leaf in enumerate(leaves) if n in nodes}
    for step in tree.steps:
        if step.out in nodes:
            values[step.out] = _contracted(step.forward, values[step.left], values[step.right])
    return values


def _down(pair: Pair, above: Tensor, sibling: Tensor) -> Tensor:
    """One step backwards. Sums over all cells of a block, and everything after them, are in float64."""
    if CELL in pair.left and CELL not in pair.out:
        above = above.double()
    return _contracted(pair, above, sibling.to(above.dtype))


def _contracted(pair: Pair, left: Tensor, right: Tensor) -> Tensor:
    """Contract a pair; elementwise if both sides have the same indices, because tiny batched products are slower."""
    if set(pair.left) != set(pair.right):
        return pair(left, right)
    return _summed_to(left * _spread(right, pair.right, pair.left), pair.left, pair.out)


def _split_step(pair: Pair, above: Tensor, left: Tensor, right: Tensor, draws: CountDraws) -> tuple[Tensor, Indices]:
    """The counts of a node, split over the indices that its step sums, and the indices of the result."""
    held = dict.fromkeys((*pair.out, *pair.left, *pair.right))
    indices = tuple(held)
    if len(indices) == len(pair.out):
        return above, indices
    weights = _spread(left, pair.left, indices) * _spread(right, pair.right, indices)
    drawn = draws.split(above.reshape(-1), weights.reshape(above.numel(), -1))
    return drawn.reshape(weights.shape), indices


def _spread(array: Tensor, indices: Indices, over: Indices) -> Tensor:
    """An array with axes of size 1 for the indices that it does not have."""
    order = [indices.index(index) for index in over if index in indices]
    return array.permute(order)[tuple(slice(None) if index in indices else None for index in over)]


def _summed_to(array: Tensor, indices: Indices, to: Indices) -> Tensor:
    """An array summed over all indices except some, in the order of these."""
    away = [axis for axis, index in enumerate(indices) if index not in to]
    kept = [index for index in indices if index in to]
    return (array.sum(dim=away) if away else array).permute([kept.index(index) for index in to])


def cells_tree(task: Task) -> Tree:
    """The contraction order for a block of cells."""
    return plan_tree(over_cells(task.equation), {**task.sizes, CELL: TYPICAL})


def cell_bytes(tree: Tree, task: Task) -> int:
    """Largest memory per cell of a block: values and gradients of every node, and copies of some."""

    def entries(indices: Collection[str]) -> int:
        return prod(task.sizes[index] for index in indices if index != CELL) if CELL in indices else 0

    sizes = [entries(node) for node in tree.nodes]
    split = max((entries({*step.forward.left, *step.forward.right}) for step in tree.steps), default=0)
    return 8 * (2 * sum(sizes) + 4 * max(sizes) + 4 * split * task.allocates)


def block_of(task: Task, tree: Tree, device: Device) -> int:
    """Number of cells per block."""
    return max(budget(device) // cell_bytes(tree, task), 1)


def budget(device: Device) -> int:
    """Memory budget of a block in bytes."""
    return HOST_BYTES if device.where == "cpu" else int(min(MOST_BYTES, device.memory()[1] * SHARE))
