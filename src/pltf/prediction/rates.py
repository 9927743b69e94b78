"""Xhat: sums over latent indices of products of factors, for all or listed cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from pltf.data.cell_index import Coords
from pltf.engines.cp import CpFactors, is_cp
from pltf.engines.plan import human, plan_equation
from pltf.errors import PltfError, py
from pltf.gamma import Array
from pltf.notation import Equation

_AT_A_TIME = 1 << 22  # cells per call of a compiled loop

Tell = Callable[[int], None]  # number of further cells done


def no_one(cells: int) -> None:
    """Tell nobody."""


def rates(equation: Equation, factors: Mapping[str, Array], sizes: Mapping[str, int], tell: Tell = no_one) -> Array:
    """Xhat of every cell, block by block."""
    float64 = np.dtype(np.float64)
    plan = plan_equation(equation, sizes, float64, masked=False, dtype=float64)
    arrays = [factors[term.name] for term in equation.factors]
    try:
        out = np.empty(plan.shape)
    except (MemoryError, ValueError):
        size = human(8 * math.prod(plan.shape), "B")
        raise PltfError(f"all cells of {equation.output.name} would take {size}: select cells with {py:at=}") from None
    for block in plan.blocks:
        out[block] = plan.tree.forward(plan.tree.block_leaves(arrays, block))[-1]
        tell(out[block].size)
    return out


class RatesAt:
    """Xhat of listed cells (modes, n), prepared once for many sets of factors."""

    def __init__(self, equation: Equation, sizes: Mapping[str, int], cells: Coords) -> None:
        self._equation, self._cells = equation, cells
        if is_cp(equation):
            self._cp = CpFactors(equation)
            lengths = [sizes[index] for index in equation.output.indices]
            self._rows = np.ascontiguousarray(cells + np.cumsum([0, *lengths[:-1]])[:, None], dtype=np.int64)
        else:
            self._sizes = sizes

    def __call__(self, factors: Mapping[str, Array], tell: Tell = no_one) -> Array:
        out = np.empty(self._cells.shape[1])
        if is_cp(self._equation):
            from pltf.engines._numba import cp_rates

            Z = np.concatenate(self._cp.rows(factors))
            for start in range(0, len(out), _AT_A_TIME):
                some = slice(start, start + _AT_A_TIME)
                cp_rates(np.ascontiguousarray(self._rows[:, some]), Z, out[some])
                tell(out[some].size)
            return out
        from pltf.engines.listed import rates_at  # imports the compiler

        arrays = [factors[term.name] for term in self._equation.factors]
        for start in range(0, len(out), _AT_A_TIME):
            some = slice(start, start + _AT_A_TIME)
            out[some] = rates_at(self._equation, self._sizes, arrays, self._cells[:, some])
            tell(out[some].size)
        return out
