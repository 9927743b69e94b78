"""Which engine takes which data, and why."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pltf.data import CooObservation, DenseObservation, Observation
from pltf.engines.base import CoupledEngine, Engine
from pltf.engines.dense import DenseEngine
from pltf.engines.dense_cp import CellTable, DenseCpEngine
from pltf.engines.plan import EquationPlan, ListedPlan, Plan
from pltf.engines.sparse import SparseEngine
from pltf.errors import EngineError, py

ENGINES = ("auto", "dense", "sparse")


def choose(engine: str, listed: Mapping[str, bool]) -> tuple[str, str]:
    """Name of the engine to use and the reason; ``listed`` says which tensors list their cells."""
    kinds = {True: "sparse", False: "dense"}
    needed = {kinds[one] for one in listed.values()}
    for name, one in listed.items():
        if engine not in ("auto", kinds[one]):
            what = "a list of cells" if one else "a dense array"
            raise EngineError(
                f"{py:engine={engine!r}} cannot take {name}, which is {what}: use 'auto' or {kinds[one]!r}"
            )
    if len(needed) == 2:
        return "dense and sparse", "each tensor in its own storage"
    names, several = " and ".join(listed), len(listed) > 1
    if needed == {"sparse"}:
        return "sparse", f"{names} {'list their cells' if several else 'lists its cells'}"
    return "dense", f"{names} {'are dense arrays' if several else 'is a dense array'}"


def build(plan: Plan, seen: Mapping[str, Observation]) -> Engine:
    """An engine bound to its data."""
    engines = {e.equation.output.name: _bound(e, seen[e.equation.output.name], plan.threads) for e in plan.equations}
    if len(engines) == 1:
        return next(iter(engines.values()))
    users = {
        factor: [e.output.name for e in plan.model.equations if factor in {t.name for t in e.factors}]
        for factor in plan.model.factors
    }
    return CoupledEngine(engines, users)


def _bound(plan: EquationPlan | ListedPlan, seen: Observation, threads: int) -> Engine:
    if seen.largest > float(np.finfo(plan.dtype).max):
        name = plan.equation.output.name
        raise EngineError(f"{name} holds {seen.largest:.3g}, which {plan.dtype.name} cannot: use {py:dtype='float64'}")
    if isinstance(plan, ListedPlan):
        assert isinstance(seen, CooObservation)
        return SparseEngine(plan, seen, threads)
    assert isinstance(seen, DenseObservation)
    fused = plan.is_cp and CellTable.fits(seen.values)
    return DenseCpEngine(plan, seen, threads) if fused else DenseEngine(plan, seen, threads)
