"""Xhat: sums over the latent indices of products of factors, for all cells or for listed ones."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from pltf.data.lookup import Coords
from pltf.engines.cp import CpFactors, is_cp
from pltf.engines.plan import human, plan_equation
from pltf.errors import PltfError
from pltf.gamma import Array
from pltf.notation import Equation


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


class RatesAt:
    """Xhat of listed cells (modes, n), made ready once for many sets of factors."""

    def __init__(self, equation: Equation, sizes: Mapping[str, int], cells: Coords) -> None:
        self._equation, self._cells = equation, cells
        if is_cp(equation):
            self._cp = CpFactors(equation)
            lengths = [sizes[index] for index in equation.output.indices]
            self._rows = np.ascontiguousarray(cells + np.cumsum([0, *lengths[:-1]])[:, None], dtype=np.int64)
        else:
            from pltf.engines.cells import CellEquation  # brings numba, which is not wanted when pltf is imported

            self._gathered = CellEquation(equation, sizes)

    def __call__(self, factors: Mapping[str, Array]) -> Array:
        out = np.empty(self._cells.shape[1])
        if is_cp(self._equation):
            from pltf.engines._numba import cp_rates

            cp_rates(self._rows, np.concatenate(self._cp.rows(factors)), out)
            return out
        arrays = [factors[term.name] for term in self._equation.factors]
        for start in range(0, len(out), self._gathered.block):
            some = slice(start, start + self._gathered.block)
            out[some] = self._gathered.tree.forward(self._gathered.leaves(arrays, self._cells[:, some]))[-1]
        return out
