"""From a plan to engines: every way through the data has its builder here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pltf.data import CooObservation, DenseObservation, Observation
from pltf.engines.base import Engine
from pltf.engines.closed_form import ClosedForm
from pltf.engines.dense import DenseEngine
from pltf.engines.dense_cp import CellTable, DenseCpEngine
from pltf.engines.listed import ListedEngine
from pltf.engines.lists import CellList, as_dense, untouched
from pltf.engines.plan import Plan, TensorPlan
from pltf.engines.sum import Part, SumEngine
from pltf.engines.ways import CLOSED_FORM, DENSE, HOLES, LISTED, MASK, Facts
from pltf.errors import EngineError

MOST_CELLS = 1 << 24  # that may be added up one by one where exposures would lose their digits


def facts_of(seen: Observation) -> Facts:
    """What is known of data that were read."""
    cells = math.prod(seen.shape)
    missing = cells - seen.n_observed
    if isinstance(seen, CooObservation):
        listed, holes = seen.coords.shape[1], seen.missing.shape[1]
        dtype = np.dtype(seen.values.dtype)
        return Facts(LISTED, dtype, cells, seen.n_positive, missing, unlisted=seen.unlisted, listed=listed, holes=holes)
    assert isinstance(seen, DenseObservation)
    table = CellTable.fits(seen.values)
    return Facts(DENSE, seen.values.dtype, cells, seen.n_positive, missing, table=table)


def build(plan: Plan, seen: Mapping[str, Observation]) -> Engine:
    """An engine bound to its data."""
    for name, one in seen.items():
        if one.largest > float(np.finfo(plan.dtype).max):
            raise EngineError(f"{name} holds {one.largest:.3g}, which {plan.dtype.name} cannot: use dtype='float64'")
    engines = [tensor_engine(e, seen[e.name], plan.threads) for e in plan.equations]
    return engines[0] if len(engines) == 1 else SumEngine([Part(engine) for engine in engines])


def tensor_engine(plan: TensorPlan, seen: Observation, threads: int) -> Engine:
    """The sums over one tensor: counts in one way, exposures in the same or in another."""
    if plan.counts.name == DENSE and plan.exposure.name in (CLOSED_FORM, MASK):
        return _array(plan, as_dense(seen, plan.task.dtype, values=True), threads)
    if plan.counts.name == DENSE:
        counts = _array(plan, as_dense(seen, plan.task.dtype, values=True), threads)
    else:
        counts = _listed(plan, seen, "positive", threads)
    exposures = exposure_parts(plan, seen, threads)
    observed = _Observed(plan, seen, threads) if plan.exposure.name == HOLES else None
    return SumEngine([Part(counts, exposure=0), *exposures], observed)


def exposure_parts(plan: TensorPlan, seen: Observation, threads: int) -> list[Part]:
    """Parts that add up to the exposures of a tensor, and have no counts."""
    closed_form = Part(ClosedForm(plan.equation, plan.task.sizes), counts=False)
    if plan.exposure.name == CLOSED_FORM:
        return [closed_form]
    if plan.exposure.name == MASK:
        return [Part(_array(plan, as_dense(seen, plan.task.dtype, values=False), threads), counts=False)]
    if plan.exposure.name == HOLES:
        return [closed_form, Part(_listed(plan, seen, "holes", threads), counts=False, exposure=-1)]
    return [Part(_listed(plan, seen, _observed_role(seen), threads), counts=False)]


def _observed_role(seen: Observation) -> str:
    """The list of observed cells; if all of them are positive, that of these."""
    return "positive" if seen.n_positive == seen.n_observed else "observed"


def _array(plan: TensorPlan, seen: DenseObservation, threads: int) -> Engine:
    if plan.task.is_cp and CellTable.fits(seen.values):
        return DenseCpEngine(plan.dense, seen, threads)
    return DenseEngine(plan.dense, seen, threads)


def _listed(plan: TensorPlan, seen: Observation, role: str, threads: int) -> ListedEngine:
    return ListedEngine(plan.task, CellList(seen, role, plan.task.dtype), threads)


@dataclass(frozen=True, eq=False)
class _Observed:
    """The observed cells of a tensor, for exposures that are lost in a difference."""

    plan: TensorPlan
    seen: Observation
    threads: int

    def engine(self) -> Engine | None:
        """Goes through them one by one; None if they are too many."""
        if self.plan.task.facts.cells > MOST_CELLS:
            return None
        return _listed(self.plan, self.seen, "observed", self.threads)

    def untouched(self, of: str) -> NDArray[np.bool_]:
        """Entries of a factor that no observed cell touches."""
        observed = self.plan.equation.output.indices
        indices = next(term.indices for term in self.plan.equation.factors if term.name == of)
        modes = [observed.index(index) for index in indices if index in observed]
        if not modes:
            return np.full((1,) * len(indices), self.seen.n_observed == 0)
        axes = tuple(axis for axis, index in enumerate(indices) if index not in observed)
        return np.expand_dims(untouched(self.seen, modes), axes)
