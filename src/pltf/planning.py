"""Read the data of each tensor, and plan a fit: engines, memory, time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pltf.cluster import Cluster, Crew, is_collection
from pltf.data import Observation, StoredObservation, observe
from pltf.data.aligned import aligned
from pltf.data.device_arrays import on_device
from pltf.data.labels import Labels
from pltf.data.observe import check_mask, has_names, in_order, is_listed, shape_and_dtype
from pltf.devices import AUTO, HOST, Device, Site, device_of, gpu
from pltf.engines.on_cluster import cleared_site, crew_for
from pltf.engines.plan import HELD, HELD_BY_ESTIMATES, HELD_PLAINLY, Plan, device_for, plan_tensor
from pltf.engines.registry import facts_of
from pltf.engines.ways import DENSE, STORED, Facts, Task
from pltf.errors import ObservationError, PltfError, py, py_only
from pltf.hints import suggestion
from pltf.inference.gibbs import NAME as GIBBS
from pltf.notation import Model
from pltf.options import FitOptions
from pltf.threads import available_threads

PAYS = 2.0  # speed-up over the CPU needed for device="auto" to use a GPU: starting it takes seconds


def plan(model: Model, X: Any, *, mask: Any, options: FitOptions) -> Plan:
    """Plan a fit from shapes, dtypes and a sample of the cells; see :meth:`pltf.Model.plan`."""
    data, masks = tensors(model, X, mask)
    arrays = {name: shape_and_dtype(one, name) for name, one in data.items()}
    sizes = model.index_sizes({name: shape for name, (shape, _) in arrays.items()})
    for name, given in masks.items():
        check_mask(given, arrays[name][0], name, data[name])
    compute: np.dtype[Any] = np.dtype(options.dtype)
    threads = available_threads() if options.threads is None else options.threads
    _refuse_for_stores(data, options)
    facts = {
        name: facts_of(one) if isinstance(one, Observation) else _guessed_facts(one, masks.get(name))
        for name, one in data.items()
    }
    allocates = options.method == "gibbs"
    tasks = [Task(e, sizes, compute, facts[e.output.name], allocates=allocates) for e in model.equations]
    judges = isinstance(options.dispersion, str) and not allocates
    cluster, crew = _cluster(data, options)
    stored = any(task.facts.storage == STORED for task in tasks)
    site = _site(options.device, crew) if stored else None

    def on(device: Device | None) -> Plan:
        plans = tuple(plan_tensor(task, options.engine, device=device_for(task, device, site)) for task in tasks)
        more = (None, _held(options), judges, device, cluster, crew, site)
        return Plan(model, options.engine, compute, threads, plans, *more).with_room()

    if stored:
        return on(None)
    return _where_it_pays(on) if options.device == AUTO else on(device_of(options.device))


def _site(device: str, crew: Crew | None) -> Site | None:
    """Where sums over cell stores are computed, if not on the CPU."""
    if device in (AUTO, HOST):
        return None
    return cleared_site(device) if crew is None else crew.site


def _refuse_for_stores(data: Mapping[str, Any], options: FitOptions) -> None:
    """Raise an error for options that cell stores do not support."""
    name = next((name for name, one in data.items() if isinstance(one, StoredObservation)), None)
    if name is not None and options.engine == DENSE:
        raise PltfError(f"{py:engine={options.engine!r}} needs the cells in memory, and {name} is a cell store")


def _cluster(data: Mapping[str, Any], options: FitOptions) -> tuple[Cluster | None, Crew | None]:
    """The cluster that computes the sums over cell stores, and its workers, which have been checked."""
    if options.client is None:
        return None, None
    cluster, stores = Cluster(options.client), {n: x for n, x in data.items() if isinstance(x, StoredObservation)}
    if not stores:
        came = " and ".join(type(one).__name__ for one in data.values())
        raise PltfError(
            f"{py:client} needs a cell store that all workers see, got {came}: write one with {py:pltf.prepare}"
            f"{py_only:, and pass pltf.open(path)}"
        )
    return cluster, crew_for(cluster, stores, device=HOST if options.device == AUTO else options.device)


def _where_it_pays(on: Callable[[Device | None], Plan]) -> Plan:
    """The plan on the GPU if there is one, the fit fits in its memory, and sweeps are clearly faster."""
    here, device = on(None), gpu()
    if device is None:
        return here
    there = on(device)
    fits = there.device_bytes <= device.memory()[0]
    return there if fits and there.seconds * PAYS <= here.seconds else here


def _held(options: FitOptions) -> int:
    """Number of arrays of the size of the factors in memory at a time."""
    if not options.accelerate or options.method == GIBBS:
        return HELD_PLAINLY
    return HELD_BY_ESTIMATES if options.method in ("em", "map") else HELD


_RUNS, _RUN = 64, 1024  # a sample of an array: number and length of runs of cells


def _guessed_facts(data: Any, mask: Any) -> Facts:
    """Estimate the facts of an unread array from a sample of its cells."""
    array = np.ma.getdata(data) if isinstance(data, np.ma.MaskedArray) else np.asarray(data)
    if isinstance(data, np.ma.MaskedArray) and data.mask is not np.ma.nomask:
        mask = ~np.ma.getmaskarray(data) if mask is None else np.asarray(mask) & ~np.ma.getmaskarray(data)
    rng, cells = np.random.default_rng(0), math.prod(array.shape)
    at = tuple(rng.integers(0, size, _RUNS) for size in array.shape[:-1])
    start = int(rng.integers(0, max(array.shape[-1] - _RUN, 0) + 1))
    sample, known = (
        None if one is None else np.asarray(np.asarray(one)[..., start : start + _RUN][at]) for one in (array, mask)
    )
    assert sample is not None
    known = np.ones(sample.shape, bool) if known is None else known.astype(bool)
    seen = known & ~np.isnan(sample) if sample.dtype.kind == "f" else known
    positive = float(np.mean(seen & (sample > 0))) if sample.size else 0.0
    unread = mask is None and sample.dtype.kind == "f"
    missing = 0 if mask is None and not unread else max(1, round(float(1 - np.mean(seen)) * cells))
    return Facts(DENSE, array.dtype, cells, round(positive * cells), missing, exact=False, unread=unread)


def by_tensor(model: Model, given: Any, argument: str, partial: bool = False) -> dict[str, Any]:
    """The data or argument of each observed tensor."""
    names = tuple(model.observed)
    if not isinstance(given, Mapping) or is_listed(given):  # scipy's dok_array is a mapping too
        if len(names) > 1:
            wanted = " and ".join(names)
            came = type(given).__name__
            raise PltfError(f"{py:{argument}} must be a mapping from tensor to array, with {wanted}; got {came}")
        return {names[0]: given}
    unknown = [name for name in given if name not in names]
    absent = [name for name in names if name not in given]
    if unknown:
        near = suggestion(unknown[0], names)
        raise PltfError(f"unknown tensor {unknown[0]!r} in {py:{argument}}: the model has {', '.join(names)}{near}")
    if absent and not partial:
        raise PltfError(f"{py:{argument}} must have an array for every tensor of the model, but {absent[0]} is absent")
    return {name: given[name] for name in names if name in given}


def tensors(model: Model, X: Any, mask: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Data and masks by tensor. Data that are listed, have labels or are on a device are read here, once.

    Tensors that share an index get the union of their labels; cells of added labels are missing.
    """
    data = by_tensor(model, X, "the data")
    masks = {} if mask is None else by_tensor(model, mask, "mask", partial=True)
    for name, one in data.items():
        indices = model.observed[name]
        if is_collection(one):
            from pltf.io.prepare.collections import stored_collection  # imports a database

            data[name] = stored_collection(one, masks.pop(name, None), indices, name)
        elif is_listed(one) or has_names(one) or on_device(one) is not None:
            data[name] = observe(one, masks.pop(name, None), dims=indices, name=name)
        elif isinstance(one, Observation):
            data[name] = in_order(one, indices, name)
    if len(data) > 1:
        seen = {name: one for name, one in data.items() if isinstance(one, Observation)}
        data |= aligned(seen, model.observed)[0]
    return data, masks


def labels_by_index(seen: Mapping[str, Observation]) -> dict[str, Labels]:
    """The labels of every index that has labels; tensors that share an index have been aligned."""
    return {index: labels for one in seen.values() for index, labels in one.labels.items()}


def observations(data: Mapping[str, Any], masks: Mapping[str, Any]) -> dict[str, Observation]:
    seen = {name: observe(one, masks.get(name), name=name) for name, one in data.items()}
    if not any(one.n_observed for one in seen.values()):
        names = " and ".join(seen)
        raise ObservationError(
            f"{names}: at least one cell must be observed, but all are missing{py_only: (mask: True = observed)}"
        )
    return seen
