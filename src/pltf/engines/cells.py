"""An equation over listed cells: every observed index becomes the number of the cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from pltf.data.cell_index import Coords
from pltf.engines._numba import add_rows
from pltf.engines.contraction import AnyArray, Tree, plan_tree
from pltf.gamma import Array
from pltf.notation import Equation, Term

CELL = "#"  # the number of the cell; no index has such a name

BLOCK_BYTES = 1 << 20  # temporaries of one block of listed cells: they should stay in cache


class CellEquation:
    """``ip,jq,kr,pqr->ijk`` over cells n = 1..N is ``np,nq,nr,pqr->n``: gather, contract, scatter."""

    def __init__(self, equation: Equation, sizes: Mapping[str, int]) -> None:
        self.equation = equation
        observed = equation.output.indices
        self._factors = [_CellFactor(term, observed, sizes) for term in equation.factors]
        terms = tuple(factor.gathered for factor in self._factors)
        inner = Equation(Term(equation.output.name, (CELL,)), terms)
        self.tree: Tree = plan_tree(inner, {**sizes, CELL: 1 << 10})
        widths = sum(prod(sizes[i] for i in node if i != CELL) for node in self.tree.nodes if CELL in node)
        self.block = max(1, BLOCK_BYTES // (2 * 8 * widths))

    def leaves(self, arrays: Sequence[AnyArray], coords: Coords) -> list[AnyArray]:
        """Leaves of the tree over some cells."""
        return [
            self.tree.leaf(n, factor.gather(array, coords))
            for n, (factor, array) in enumerate(zip(self._factors, arrays, strict=True))
        ]

    def zeros(self, leaf: int) -> Array:
        """Where the sums of a factor are gathered up."""
        return self._factors[leaf].zeros()

    def scatter(self, sums: Array, leaf: int, delta: AnyArray, coords: Coords) -> None:
        """Add what the cells give to a factor."""
        self._factors[leaf].scatter(sums, self.tree.unleaf(leaf, delta), coords)

    def finish(self, sums: Array, leaf: int) -> Array:
        """Sums in the layout of the factor."""
        return self._factors[leaf].finish(sums)


class _CellFactor:
    """One factor: which of its axes the cell decides."""

    def __init__(self, term: Term, observed: Sequence[str], sizes: Mapping[str, int]) -> None:
        seen = [index for index in term.indices if index in observed]
        rest = [index for index in term.indices if index not in observed]
        self._order = [term.indices.index(index) for index in (*seen, *rest)]
        self._modes = [observed.index(index) for index in seen]
        self._rows = tuple(sizes[index] for index in seen)
        self._shape = tuple(sizes[index] for index in (*seen, *rest))
        self.gathered = Term(term.name, (CELL, *rest) if seen else tuple(rest))

    def gather(self, array: AnyArray, coords: Coords) -> AnyArray:
        if not self._modes:
            return array
        gathered: AnyArray = array.transpose(self._order)[tuple(coords[mode] for mode in self._modes)]
        return gathered

    def zeros(self) -> Array:
        return np.zeros(self._shape)

    def scatter(self, sums: Array, delta: AnyArray, coords: Coords) -> None:
        if not self._modes:
            sums += delta
            return
        rows = np.ravel_multi_index([coords[mode] for mode in self._modes], self._rows)
        width = self._shape[len(self._rows) :]
        full = np.ascontiguousarray(np.broadcast_to(delta, (len(rows), *width)))
        add_rows(sums.reshape(prod(self._rows), -1), rows, full.reshape(len(rows), -1))

    def finish(self, sums: Array) -> Array:
        return np.array(sums.transpose(np.argsort(self._order)), order="C")
