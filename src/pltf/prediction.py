"""Predictions of cells from factors, without building the tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.values import numeric
from pltf.engines.plan import human, plan_equation
from pltf.errors import PltfError
from pltf.gamma import Array
from pltf.notation import Equation

Cells = NDArray[np.intp]


def rates(equation: Equation, factors: Mapping[str, Array], sizes: Mapping[str, int]) -> Array:
    """Xhat of every cell, block by block."""
    float64 = np.dtype(np.float64)
    plan = plan_equation(equation, sizes, float64, masked=False, dtype=float64)
    arrays = [factors[term.name] for term in equation.factors]
    try:
        out = np.empty(plan.shape)
    except (MemoryError, ValueError):
        size = human(8 * math.prod(plan.shape), "B")
        raise PltfError(f"the whole of {equation.output.name} would take {size}: name the cells with at=") from None
    for block in plan.blocks:
        out[block] = plan.tree.forward(plan.tree.block_leaves(arrays, block))[-1]
    return out


def rates_at(equation: Equation, factors: Mapping[str, Array], sizes: Mapping[str, int], cells: Cells) -> Array:
    """Xhat of listed cells, gathered block by block."""
    from pltf.engines.cells import CellEquation  # brings numba, which is not wanted when pltf is imported

    gathered = CellEquation(equation, sizes)
    arrays = [factors[term.name] for term in equation.factors]
    out = np.empty(len(cells))
    for start in range(0, len(cells), gathered.block):
        coords = cells[start : start + gathered.block].T
        out[start : start + gathered.block] = gathered.tree.forward(gathered.leaves(arrays, coords))[-1]
    return out


def as_cells(at: Any, shape: tuple[int, ...], indices: tuple[str, ...]) -> Cells:
    """Cells as an (n, modes) array: from such an array, from index arrays, or from a boolean mask."""
    if isinstance(at, tuple):
        arrays = [numeric(one, "at") for one in at]
        if len(arrays) != len(shape) or any(a.shape != arrays[0].shape or a.ndim != 1 for a in arrays):
            raise PltfError(f"at: a tuple must hold one index array for each of {', '.join(indices)}")
        cells = np.stack(arrays, axis=1)
    else:
        cells = numeric(at, "at")
        if cells.size == 0:
            cells = np.empty((0, len(shape)), dtype=np.intp)
        if cells.dtype == bool:
            if cells.shape != shape:
                raise PltfError(f"at: a boolean array must have the shape of the tensor, {shape}; got {cells.shape}")
            cells = np.argwhere(cells)
    if cells.ndim != 2 or cells.shape[1] != len(shape):
        raise PltfError(f"at must list cells, one row of {len(shape)} positions each; got shape {cells.shape}")
    if cells.size and cells.dtype.kind not in "iu":
        raise PltfError(f"at must hold whole numbers, got dtype {cells.dtype}")
    wrong = (cells < 0) | (cells >= np.asarray(shape))
    if wrong.any():
        row, axis = map(int, np.argwhere(wrong)[0])
        index, position = indices[axis], int(cells[row, axis])
        raise PltfError(f"at: row {row} has {position} for index '{index}', which runs from 0 to {shape[axis] - 1}")
    return cells.astype(np.intp, copy=False)
