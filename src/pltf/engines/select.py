"""Which engine takes which data, and why."""

from __future__ import annotations

from collections.abc import Mapping

from pltf.data import Observation
from pltf.engines.base import CoupledEngine, Engine
from pltf.engines.dense import DenseEngine
from pltf.engines.plan import Plan
from pltf.errors import EngineError

ENGINES = ("auto", "dense")


def choose(engine: str, tensors: Mapping[str, object]) -> tuple[str, str]:
    """Name of the engine to use and the reason."""
    if engine not in ENGINES:
        raise EngineError(f"engine must be one of {', '.join(map(repr, ENGINES))}; got {engine!r}")
    names = " and ".join(tensors)
    return "dense", f"{names} {'is a dense array' if len(tensors) == 1 else 'are dense arrays'}"


def build(plan: Plan, seen: Mapping[str, Observation]) -> Engine:
    """An engine bound to its data."""
    engines = {
        e.equation.output.name: DenseEngine(e, seen[e.equation.output.name], plan.threads) for e in plan.equations
    }
    if len(engines) == 1:
        return next(iter(engines.values()))
    users = {
        factor: [e.output.name for e in plan.model.equations if factor in {t.name for t in e.factors}]
        for factor in plan.model.factors
    }
    return CoupledEngine(engines, users)
