"""A dense array as a table of matrices: the children of the root of a contraction tree are its rows and columns."""

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

Piece = Callable[[NDArray[Any], NDArray[np.bool_] | None], NDArray[Any]]  # from values and mask to the data to copy

PIECE_BYTES = 64 << 20  # of cells per copy to the device

# Value dtypes that the device keeps unchanged, by the bytes of the engine's dtype. Triton 3.6 cannot compile float64
# products of converted numbers of fewer than 4 bytes.
_KEPT: Mapping[int, Mapping[str, str]] = {
    4: {"bool": "u1", "uint8": "u1", "int8": "i1", "int16": "i2"},
    8: {"int32": "i4", "float32": "f4"},
}


def stored_dtype(came: np.dtype[Any], engine: np.dtype[Any]) -> np.dtype[Any]:
    """The device dtype for values of the caller's dtype and an engine of another dtype.

    >>> stored_dtype(np.dtype("i2"), np.dtype("f4")), stored_dtype(np.dtype("f8"), np.dtype("f4"))
    (dtype('int16'), dtype('float32'))
    """
    return np.dtype(_KEPT[engine.itemsize].get(came.name, engine)) if came.isnative else engine


@dataclass(frozen=True)
class Table:
    """Cells as matrices: Xhat (batch, rows, columns) = H (batch, rows, bond) @ C (batch, bond, columns).

    The batch has the observed indices that both sides of the root have, usually none. Rows are the indices of one side
    only, columns those of the other side, which has more positions; the bond has the latent indices that both sides
    have. A tree without steps has all of its cells as rows, with one column, and C = 1. In a ``turned`` (transposed)
    table the columns are the side with fewer positions, which may match the layout of an existing array.
    """

    tree: Tree
    sizes: Mapping[str, int]
    turned: bool = False

    @cached_property
    def sides(self) -> tuple[int, int | None]:
        """The nodes of the rows and the columns."""
        if not self.tree.steps:
            return 0, None
        root = self.tree.steps[-1]
        longer, shorter = (root.left, root.right)[:: 1 if self._own(root.left) >= self._own(root.right) else -1]
        return (longer, shorter) if self.turned else (shorter, longer)

    def _own(self, node: int) -> int:
        """Number of positions of the observed indices of a node."""
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
        """Number of positions of some indices."""
        return prod(self.sizes[index] for index in indices)

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Number of matrices, and their rows and columns."""
        batch, rows, columns, _ = map(self.size, self.groups)
        return batch, rows, columns

    @cached_property
    def bond(self) -> int:
        """Number of terms in the sum of a rate."""
        return self.size(self.groups[-1])

    # -- factors --------------------------------------------------------------------------------

    def rows_of(self, value: Tensor) -> Tensor:
        """H (batch, rows, bond) from the value of the row node."""
        batch, rows, _, bond = self.groups
        return self._matrix(value, self.sides[0], (batch, rows, bond))

    def columns_of(self, value: Tensor) -> Tensor:
        """C (batch, bond, columns) from the value of the column node."""
        batch, _, columns, bond = self.groups
        assert self.sides[1] is not None
        return self._matrix(value, self.sides[1], (batch, bond, columns))

    def _matrix(self, value: Tensor, node: int, groups: Sequence[Indices]) -> Tensor:
        order = [self.tree.nodes[node].index(index) for group in groups for index in group]
        return permuted(value, order).reshape([self.size(group) for group in groups])

    def deltas(self, G: Tensor | None, S: Tensor | None) -> dict[int, Tensor]:
        """The sums for rows (batch, rows, bond) and columns (batch, bond, columns), by node."""
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
        """The values on the device. Missing cells are 0: they contribute no more than cells without counts."""
        dtype = stored_dtype(np.dtype(seen.dtype_name), engine)
        if isinstance(seen, DeviceObservation):
            return self._taken(seen.tensor, seen.known, dtype, device, width)

        def piece(values: NDArray[Any], mask: NDArray[np.bool_] | None) -> NDArray[Any]:
            with np.errstate(over="ignore", invalid="ignore"):  # values of missing cells
                return np.array(values if mask is None else np.where(mask, values, 0), dtype, order="C")

        return self._copied(seen, dtype, device, width, piece)

    def mask(self, seen: DenseObservation, device: Device, width: int) -> Tensor:
        """Mask bytes on the device: 1 where a cell is observed."""
        if isinstance(seen, DeviceObservation):
            return self._taken(seen.known, None, np.dtype("u1"), device, width)
        return self._copied(seen, np.dtype("u1"), device, width, lambda _, mask: np.array(mask, np.uint8, order="C"))

    def copies(self, plan: EquationPlan, device: Device, width: int) -> bool:
        """Whether the device needs a copy of the values: not if it has them in this layout."""
        kept = "uint8" if plan.data_dtype.kind == "b" else plan.data_dtype.name
        same = stored_dtype(plan.data_dtype, plan.dtype).name == kept and width == self.shape[2]
        in_order = self._axes == sorted(self._axes)
        return not (same and in_order and not plan.masked and plan.place == device.where)

    @cached_property
    def _axes(self) -> list[int]:
        """The axes of the tensor in table order."""
        return [self._output.index(index) for group in self.groups[:3] for index in group]

    def _taken(self, tensor: Tensor, known: Tensor, dtype: np.dtype[Any], device: Device, width: int) -> Tensor:
        """Cells that are on a device: without a copy if the device and the layout match."""
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
        """Rows of this width, padded with zeros; copied in pieces, so that no cells are held twice."""
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
        """The cells of a table, without padding columns, as a tensor."""
        return table[:, :, : self.shape[2]].view(shape)


def _pieces(shape: tuple[int, ...]) -> list[Block]:
    """Blocks of cells for the copy to the device."""
    return blocks(shape, block_shape(shape, lambda block: prod(block) * 8 <= PIECE_BYTES))
