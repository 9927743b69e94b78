"""Sums over the cells of one dense tensor for several sets of factors at once, which are lanes along a first axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pltf.devices import Device
from pltf.engines.base import Number
from pltf.engines.contraction import tree_with
from pltf.engines.over_tree import OverTree
from pltf.engines.torch.cells import Tensor, ratios
from pltf.engines.torch.dense import LazyTable, TorchDenseEngine
from pltf.notation import Equation, Term

LANE = "_lane"  # an observed index of all factors: no name in a model begins so


class DenseLanes(TorchDenseEngine):
    """As :class:`TorchDenseEngine` in float64. Log terms and totals are arrays, with a number for each lane."""

    def __init__(self, one: TorchDenseEngine, lanes: int) -> None:
        table = one._table
        equation = _with_lanes(table.tree.equation)
        sizes = {**table.sizes, LANE: lanes}
        OverTree.__init__(self, tree_with(equation, table.tree), sizes, masked=one._closed_form is None)
        self._dtype, self._device, self._one, self.links = one._dtype, one._device, one._one, one.links
        self._table = replace(table, tree=self._tree, sizes=sizes)
        shape = self._table.shape
        self._values = LazyTable(lambda: one._values.table[:, :, : shape[2]].expand(shape))
        self._mask = LazyTable(lambda: one._passes.ones(one._mask.table).expand(shape))
        self._passes = LanePasses(one._device, one.links)

    def total(self, factors: Mapping[str, Any]) -> Number:
        of = self._cheapest(factors)
        return (factors[of] * self.exposure(factors, of)).flatten(1).sum(1)


class LanePasses:
    """The sums over a table of cells with a matrix of rates for each lane: all at once, as tables are small."""

    def __init__(self, device: Device, links: bool) -> None:
        self._torch, self._links = device.torch, links

    def counts(
        self, X: Tensor, H: Tensor, C: Tensor, *, to_rows: bool, to_columns: bool, log: bool
    ) -> tuple[Tensor | None, Tensor | None, Number]:
        """(X/Xhat) @ C.T and H.T @ (X/Xhat), as wanted, and the log terms or NaN."""
        ratio, log_terms = ratios(self._torch, X, H @ C, None, links=self._links, log=log, over=(1, 2))
        return ratio @ C.mT if to_rows else None, H.mT @ ratio if to_columns else None, log_terms

    def seen_by_rows(self, mask: Tensor, C: Tensor) -> Tensor:
        """mask @ C.T."""
        return mask @ C.mT

    def seen_by_columns(self, mask: Tensor, H: Tensor) -> Tensor:
        """H.T @ mask."""
        return H.mT @ mask


def cells_for_lanes(engine: Any) -> int | None:
    """Number of cells of an engine that has a version for lanes; None for others."""
    if not isinstance(engine, TorchDenseEngine) or engine._dtype.itemsize != 8:
        return None
    batch, rows, columns = engine._table.shape
    return rows * columns if engine._tree.steps and batch == 1 else None


def _with_lanes(equation: Equation) -> Equation:
    def held(term: Term) -> Term:
        return Term(term.name, (LANE, *term.indices))

    return Equation(held(equation.output), tuple(map(held, equation.factors)))
