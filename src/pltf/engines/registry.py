"""Builds engines from a plan: one builder for each way to visit the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.cluster import Cluster
from pltf.data import CooObservation, DenseObservation, Observation
from pltf.data.on_device import DeviceObservation
from pltf.data.stored import StoredObservation
from pltf.devices import Device, Site
from pltf.engines.base import Engine
from pltf.engines.closed_form import ClosedForm
from pltf.engines.dense import DenseEngine
from pltf.engines.dense_cp import LONGEST_INNER, CellTable, DenseCpEngine
from pltf.engines.listed import ListedEngine
from pltf.engines.lists import CellList, as_dense, untouched
from pltf.engines.on_cluster import ClusterEngine
from pltf.engines.parts import PartsEngine
from pltf.engines.plan import Plan, TensorPlan
from pltf.engines.sum import SumEngine, Summand
from pltf.engines.ways import CLOSED_FORM, DENSE, HOLES, LISTED, MASK, OBSERVED, STORED, Facts
from pltf.errors import EngineError, py

Where = int | Device  # number of host threads, or a device

MOST_CELLS = 1 << 24  # largest number of cells that are visited one by one where exposures would lose precision


def facts_of(seen: Observation) -> Facts:
    """Properties of data in memory or in a store."""
    cells = math.prod(seen.shape)
    missing = cells - seen.n_observed
    storage, told, dtype = DENSE, dict[str, Any](), np.dtype(seen.dtype_name)
    if isinstance(seen, CooObservation):
        storage = LISTED
        told = {"unlisted": seen.unlisted, "listed": seen.coords.shape[1], "holes": seen.missing.shape[1]}
        told |= {"table": seen.shape[-1] <= LONGEST_INNER}
    elif isinstance(seen, StoredObservation):
        storage = STORED
        told = {"unlisted": seen.unlisted, "listed": seen.listed, "holes": seen.missing.shape[1]}
        told |= {"owner": seen.owner, "parts": len(seen.parts), "on_disk": seen.cell_bytes}
        told["most"] = max((part.cells for part in seen.parts), default=0)
        told["widest"] = max((part.last - part.first for part in seen.parts), default=0)
    elif isinstance(seen, DeviceObservation):
        told = {"place": seen.place}
    elif isinstance(seen, DenseObservation):
        told = {"table": CellTable.fits(seen.values)}
    return Facts(storage, dtype, cells, seen.n_positive, missing, **told)


def build(plan: Plan, seen: Mapping[str, Observation]) -> Engine:
    """Build an engine with its data; the sums over several tensors are added."""
    for name, one in seen.items():
        if one.largest > float(np.finfo(plan.dtype).max):
            raise EngineError(
                f"{name} contains {one.largest:.3g}, which is too large for {plan.dtype.name}: use {py:dtype='float64'}"
            )
    where = plan.device or plan.threads
    site = None if plan.site is None else replace(plan.site, room=plan.room)
    engines = [tensor_engine(e, seen[e.name], where, plan.cluster, site) for e in plan.equations]
    return engines[0] if len(engines) == 1 else SumEngine([Summand(engine) for engine in engines])


def tensor_engine(
    plan: TensorPlan,
    seen: Observation,
    where: Where,
    cluster: Cluster | None = None,
    site: Site | None = None,
) -> Engine:
    """The sums over one tensor: counts computed one way, exposures the same or another way."""
    if plan.counts.name == STORED:
        return _over_store(plan, seen, where, cluster, site)
    counted = _listed(plan, seen, "positive", where) if plan.counts.name == LISTED else _array(plan, seen, where)
    if plan.counts.name == DENSE and plan.exposure.name in (CLOSED_FORM, MASK):
        return counted
    return _with_exposures(counted, plan, seen, where)


def _with_exposures(counted: Engine, plan: TensorPlan, seen: Observation, where: Where) -> Engine:
    """The counts of an engine, with exposures that are computed in another way."""
    parts, observed = [Summand(counted, exposure=0)], None
    if plan.exposure.name in (CLOSED_FORM, HOLES):
        parts.append(Summand(ClosedForm(plan.equation, plan.task.sizes), counts=False))
    if plan.exposure.name == HOLES:
        parts.append(Summand(_listed(plan, seen, "holes", where), counts=False, exposure=-1))
        observed = _Observed(plan, seen, where)
    if plan.exposure.name == MASK:
        parts.append(Summand(_array(plan, seen, where, values=False), counts=False))
    if plan.exposure.name == OBSERVED:
        parts.append(Summand(_listed(plan, seen, _observed_role(plan, seen), where), counts=False))
    return SumEngine(parts, observed)


def _over_store(
    plan: TensorPlan, seen: Observation, where: Where, cluster: Cluster | None, site: Site | None
) -> Engine:
    """Sums over cells that stay on disk, computed by this process or the workers of a cluster, on CPUs or devices.

    Sums over missing cells, which are in memory, are computed here by threads.
    """
    assert isinstance(seen, StoredObservation)
    assert isinstance(where, int)
    head = plan.task, seen, where
    engine = PartsEngine(*head, site) if cluster is None else ClusterEngine(*head, cluster, site)
    if plan.exposure.name == OBSERVED:
        return SumEngine([Summand(engine, exposure=0), Summand(engine, counts=False)])
    return _with_exposures(engine, plan, seen, where)


def _observed_role(plan: TensorPlan, seen: Observation) -> str:
    """The list of observed cells; if all are positive, that of the non-zeros (small counts may be zero in float32)."""
    same = seen.n_positive == seen.n_observed and plan.task.dtype == np.float64
    return "positive" if same else "observed"


def _listed(plan: TensorPlan, seen: Observation, role: str, where: Where) -> Engine:
    task = plan.task if role == "positive" else plan.task.uncounted
    cells = CellList(seen, role, task.dtype)
    if isinstance(where, Device):
        from pltf.engines.torch.listed import TorchListedEngine

        return TorchListedEngine(task, cells, where, plan.copies)
    return ListedEngine(task, cells, where)


def _array(plan: TensorPlan, seen: Observation, where: Where, *, values: bool = True) -> Engine:
    """An engine on an array; without ``values`` only for exposures."""
    array = as_dense(seen, plan.task.dtype, values)
    if isinstance(where, Device):
        from pltf.engines.torch.dense import TorchDenseEngine

        return TorchDenseEngine(plan.dense, array, where)
    fused = plan.task.is_cp and CellTable.fits(array.values)
    return DenseCpEngine(plan.dense, array, where) if fused else DenseEngine(plan.dense, array, where)


@dataclass(frozen=True, eq=False)
class _Observed:
    """The observed cells of a tensor, for exposures that lose their precision in a difference."""

    plan: TensorPlan
    seen: Observation
    where: Where
    known: dict[str, NDArray[np.bool_]] = field(default_factory=dict)  # cached results

    def engine(self) -> Engine | None:
        """Visits the mask of an array, or a list cell by cell; None if the list would be too long."""
        return None if self._built is None else self._built.fresh()

    @cached_property
    def _built(self) -> Engine | None:
        """Built once for all copies of an engine: recorded iterations on a GPU make a new copy each time."""
        if isinstance(self.seen, DenseObservation):
            return _array(self.plan, self.seen, self.where, values=False)
        if self.plan.task.facts.cells > MOST_CELLS:
            return None
        return _listed(self.plan, self.seen, "observed", self.where)

    def untouched(self, of: str) -> NDArray[np.bool_]:
        """Entries of a factor without observed cells."""
        if of not in self.known:
            self.known[of] = self._untouched(of)
        return self.known[of]

    def _untouched(self, of: str) -> NDArray[np.bool_]:
        observed = self.plan.equation.output.indices
        indices = next(term.indices for term in self.plan.equation.factors if term.name == of)
        modes = [observed.index(index) for index in indices if index in observed]
        if not modes:
            return np.full((1,) * len(indices), self.seen.n_observed == 0)
        axes = tuple(axis for axis, index in enumerate(indices) if index not in observed)
        return np.expand_dims(untouched(self.seen, modes), axes)
