"""A dense array as a table of matrices: what the root of a contraction tree joins are its rows and its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data import DenseObservation
from pltf.data.blocks import Block, block_shape, blocks
from pltf.data.on_device import DeviceObservation
from pltf.devices import Device
from pltf.engines.contraction import Indices, Tree
from pltf.engines.either import permuted
from pltf.engines.plan import EquationPlan
from pltf.engines.torch.cells import Tensor

Piece = Callable[[NDArray[Any], NDArray[np.bool_] | None], NDArray[Any]]  # from values and mask to what is copied

PIECE_BYTES = 64 << 20  # of cells, on their way to the device

# Values that the device keeps as they came, by the bytes of those of the engine. Triton 3.6 cannot compile products of
# float64 that come from numbers of fewer than 4 bytes.
_KEPT: Mapping[int, Mapping[str, str]] = {
    4: {"bool": "u1", "uint8": "u1", "int8": "i1", "int16": "i2"},
    8: {"int32": "i4", "float32": "f4"},
}


def stored_dtype(came: np.dtype[Any], engine: np.dtype[Any]) -> np.dtype[Any]:
    """How the device holds values of the caller's dtype for an engine of another.

    >>> stored_dtype(np.dtype("i2"), np.dtype("f4")), stored_dtype(np.dtype("f8"), np.dtype("f4"))
    (dtype('int16'), dtype('float32'))
    """
    return np.dtype(_KEPT[engine.itemsize].get(came.name, engine)) if came.isnative else engine


@dataclass(frozen=True)
class Table:
    """Cells as matrices: Xhat (batch, rows, columns) = H (batch, rows, bond) @ C (batch, bond, columns).

    Batch are the observed indices that both sides of the root have: mostly there are none. Rows are those of one side
    alone, columns those of the other one, which has more positions; the bond are the latent indices that both sides
    have. A tree without steps has all of its cells as rows, of one column, and C = 1. In a table that is ``turned`` the
    columns are the side with fewer positions: so an array may lie already.
    """

    tree: Tree
    sizes: Mapping[str, int]
    turned: bool = False

    @cached_property
    def sides(self) -> tuple[int, int | None]:
        """The nodes that have the rows and the columns."""
        if not self.tree.steps:
            return 0, None
        root = self.tree.steps[-1]
        longer, shorter = (root.left, root.right)[:: 1 if self._own(root.left) >= self._own(root.right) else -1]
        return (longer, shorter) if self.turned else (shorter, longer)

    def _own(self, node: int) -> int:
        """Positions of the observed indices of a node."""
        return self.size(set(self.tree.nodes[node]) & set(self._output))

    @property
    def _output(self) -> Indices:
        return self.tree.equation.output.indices

    @cached_property
    def groups(self) -> tuple[Indices, Indices, Indices, Indices]:
        """The indices of the batch, the rows, the columns and the bond."""
        rows, columns = (set() if node is None else set(self.tree.nodes[node]) for node in self.sides)
        output = self._output
        return (
            tuple(index for index in output if index in rows and index in columns),
            tuple(index for index in output if index not in columns),
            tuple(index for index in output if index not in rows),
            tuple(index for index in self.tree.nodes[self.sides[0]] if index in columns and index not in output),
        )

    def size(self, indices: Iterable[str]) -> int:
        """Positions of some indices."""
        return prod(self.sizes[index] for index in indices)

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """How many matrices, and their rows and columns."""
        batch, rows, columns, _ = map(self.size, self.groups)
        return batch, rows, columns

    @cached_property
    def bond(self) -> int:
        """Terms of the sum of a rate."""
        return self.size(self.groups[-1])

    # -- factors --------------------------------------------------------------------------------

    def rows_of(self, value: Tensor) -> Tensor:
        """H (batch, rows, bond) from the value of the node that has the rows."""
        batch, rows, _, bond = self.groups
        return self._matrix(value, self.sides[0], (batch, rows, bond))

    def columns_of(self, value: Tensor) -> Tensor:
        """C (batch, bond, columns) from the value of the node that has the columns."""
        batch, _, columns, bond = self.groups
        assert self.sides[1] is not None
        return self._matrix(value, self.sides[1], (batch, bond, columns))

    def _matrix(self, value: Tensor, node: int, groups: Sequence[Indices]) -> Tensor:
        order = [self.tree.nodes[node].index(index) for group in groups for index in group]
        return permuted(value, order).reshape([self.size(group) for group in groups]).contiguous()

    def deltas(self, G: Tensor | None, S: Tensor | None) -> dict[int, Tensor]:
        """The sums for rows (batch, rows, bond) and for columns (batch, bond, columns) as those of the nodes."""
        batch, rows, columns, bond = self.groups
        first, second = self.sides
        found = {}
        if G is not None:
            found[first] = self._node(G, first, (*batch, *rows, *bond))
        if S is not None and second is not None:
            found[second] = self._node(S, second, (*batch, *bond, *columns))
        return found

    def _node(self, matrix: Tensor, node: int, came: Indices) -> Tensor:
        array = matrix.reshape([self.sizes[index] for index in came])
        return permuted(array, [came.index(index) for index in self.tree.nodes[node]])

    # -- cells ----------------------------------------------------------------------------------

    def cells(self, seen: DenseObservation, engine: np.dtype[Any], device: Device, width: int) -> Tensor:
        """The values on the device. A missing cell holds 0: it adds no more than one without a count."""
        dtype = stored_dtype(np.dtype(seen.dtype_name), engine)
        if isinstance(seen, DeviceObservation):
            return self._taken(seen.tensor, seen.known, dtype, device, width)

        def piece(values: NDArray[Any], mask: NDArray[np.bool_] | None) -> NDArray[Any]:
            with np.errstate(over="ignore", invalid="ignore"):  # what missing cells hold
                return np.array(values if mask is None else np.where(mask, values, 0), dtype, order="C")

        return self._copied(seen, dtype, device, width, piece)

    def mask(self, seen: DenseObservation, device: Device, width: int) -> Tensor:
        """Bytes on the device: 1 where a cell is observed."""
        if isinstance(seen, DeviceObservation):
            return self._taken(seen.known, None, np.dtype("u1"), device, width)
        return self._copied(seen, np.dtype("u1"), device, width, lambda _, mask: np.array(mask, np.uint8, order="C"))

    def copies(self, plan: EquationPlan, device: Device, width: int) -> bool:
        """Whether the device needs a copy of the values: it does not of those that it has in this very layout."""
        kept = "uint8" if plan.data_dtype.kind == "b" else plan.data_dtype.name
        same = stored_dtype(plan.data_dtype, plan.dtype).name == kept and width == self.shape[2]
        in_order = self._axes == sorted(self._axes)
        return not (same and in_order and not plan.masked and plan.place == device.where)

    @cached_property
    def _axes(self) -> list[int]:
        """The axes of the tensor in the order of the table."""
        return [self._output.index(index) for group in self.groups[:3] for index in group]

    def _taken(self, tensor: Tensor, known: Tensor, dtype: np.dtype[Any], device: Device, width: int) -> Tensor:
        """Cells that are on a device: where they are, if it is this one and they lie so; else a copy."""
        torch = device.torch
        wanted = getattr(torch, dtype.name)
        values = tensor.permute(self._axes)
        values = values.view(torch.uint8) if (values.dtype, wanted) == (torch.bool, torch.uint8) else values
        there = values.device == device.place and values.dtype == wanted
        if there and known is None and width == self.shape[2] and values.is_contiguous():
            return values.view(self.shape)
        mask = None if known is None else known.permute(self._axes)
        table = self._room(dtype, device, width)
        cells = self._cells_of(table, tuple(values.shape))
        for block in _pieces(tuple(values.shape)):
            cells[block] = values[block] if mask is None else torch.where(mask[block], values[block], 0)
        return table

    def _copied(self, seen: DenseObservation, dtype: np.dtype[Any], device: Device, width: int, piece: Piece) -> Tensor:
        """Rows of this width, filled up with zeros; piece by piece: nothing holds cells twice."""
        values = seen.values.transpose(self._axes)
        mask = None if seen.mask is None else seen.mask.transpose(self._axes)
        table = self._room(dtype, device, width)
        cells = self._cells_of(table, values.shape)
        for block in _pieces(values.shape):
            cells[block] = device.torch.from_numpy(piece(values[block], None if mask is None else mask[block]))
        return table

    def _room(self, dtype: np.dtype[Any], device: Device, width: int) -> Tensor:
        torch, (batch, rows, _) = device.torch, self.shape
        return torch.zeros((batch, rows, width), dtype=getattr(torch, dtype.name), device=device.place)

    def _cells_of(self, table: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The cells of a table, which may have columns that fill it up, as a tensor."""
        return table[:, :, : self.shape[2]].view(shape)


def _pieces(shape: tuple[int, ...]) -> list[Block]:
    """Blocks of cells on their way to the device."""
    return blocks(shape, block_shape(shape, lambda block: prod(block) * 8 <= PIECE_BYTES))
