"""CP models, including NMF: every factor is a matrix with one row per position of its own observed index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pltf.engines.contraction import AnyArray
from pltf.notation import Equation


def is_cp(equation: Equation) -> bool:
    """Whether there are at least two factors, each with one observed index of its own and the one summed index."""
    observed, summed = equation.output.indices, equation.summed
    held = sorted(index for term in equation.factors for index in term.indices if index in observed)
    pairs = all(len(term.indices) == 2 and set(summed) <= set(term.indices) for term in equation.factors)
    return len(summed) == 1 and len(observed) > 1 and pairs and held == sorted(observed)


class CpFactors:
    """Maps observed modes to factors and their orientation."""

    def __init__(self, equation: Equation) -> None:
        observed = equation.output.indices
        terms = [next(term for term in equation.factors if index in term.indices) for index in observed]
        self.names = [term.name for term in terms]  # by mode
        self._flipped = [term.indices[0] != index for term, index in zip(terms, observed, strict=True)]

    def rows(self, factors: Mapping[str, AnyArray]) -> list[AnyArray]:
        """The factor of every mode as (size, R)."""
        arrays = [factors[name] for name in self.names]
        return [array.T if flipped else array for array, flipped in zip(arrays, self._flipped, strict=True)]

    def as_factor(self, rows: AnyArray, mode: int) -> AnyArray:
        """The rows of a mode, with the axis order of its factor."""
        return np.ascontiguousarray(self.turned(rows, mode))

    def turned(self, rows: Any, mode: int) -> Any:
        """As :meth:`as_factor`, as a view and for arrays of any library."""
        return rows.T if self._flipped[mode] else rows
