"""Sums over the parts of a cell store, computed by the workers of a Dask cluster: one task per worker and pass.

Every worker has a run of consecutive parts, and with them the rows of the longest mode in these parts. A task receives
these rows and all of the other factors; it returns the sums of its rows and nodes of the tree over the private sums
(``parts.py``). So the result does not depend on the assignment of parts to workers or on the order of the answers.

A worker caches the description of its parts. A worker that takes over a task answers that it lacks the description,
and the task is sent again with it.

With a device, each worker computes its sums there, and the client needs none.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from pltf.cluster import Call, Cluster, Crew
from pltf.data import Observation
from pltf.data.part_files import File, FilePart, Part
from pltf.data.stored import StoredObservation
from pltf.devices import HOST, Site, site_of
from pltf.engines.parts import Ask, PartsEngine, RunSums, Span, Spec, Sums, combined, sums_of_run
from pltf.engines.ways import Task
from pltf.errors import PltfError
from pltf.gamma import Array
from pltf.memory import at_hand
from pltf.threads import available_threads, keep_freed_memory

_SLACK = 16  # tolerance for the length of a run, as a fraction, so that fewer tree nodes are split
_MOST_KNOWN = 8  # runs that a worker caches


class Share(NamedTuple):
    """The parts of a worker: the first, one past the last, and the positions that belong to them."""

    worker: str
    first: int
    last: int
    span: Span


@dataclass(frozen=True, eq=False)
class Told:
    """The description of its parts that a worker needs."""

    spec: Spec
    parts: tuple[Part, ...]


class ClusterEngine(PartsEngine):
    """Sums over the parts of a store, computed by the workers of a cluster."""

    def __init__(
        self, task: Task, stored: StoredObservation, threads: int, cluster: Cluster, site: Site | None = None
    ) -> None:
        super().__init__(task, stored, threads, site)
        self._cluster = cluster
        self._told: set[Share] = set()

    def _sums(self, ask: Ask, factors: Mapping[str, Array]) -> Sums:
        if not self._parts:
            return super()._sums(ask, factors)
        dtype = self._spec.precision(ask)
        factors = {name: factors[name].astype(dtype, copy=False) for name in self.names}  # as the kernels use them
        left = shares(self._parts, self._cluster.present(), self._spec.size)
        found: list[RunSums] = []
        while left:
            sums = self._cluster.results([self._call(share, ask, factors) for share in left])
            found += [one for one in sums if one is not None]
            left = [share for share, one in zip(left, sums, strict=True) if one is None]
            self._told.difference_update(left)
        return combined(self._spec, found)

    def _call(self, share: Share, ask: Ask, factors: Mapping[str, Array]) -> Call:
        told = None
        if share not in self._told:
            told = Told(self._spec, tuple(self._parts[share.first : share.last]))
            self._told.add(share)
        known_by = f"{self._spec.known_by} {share.first} {share.last}"
        args = (known_by, told, ask, share.span, self._spec.cut(factors, share.span))
        return Call(sums_here, args, share.worker)


def shares(parts: Sequence[Part], workers: Mapping[str, int], size: int) -> list[Share]:
    """Cut the parts into at most one run per worker, with about the same number of cells per thread."""
    some = list(workers)[: len(parts)]
    cuts = _cuts([part.cells for part in parts], [workers[one] for one in some])
    spans = pairwise([0, *(parts[cut].first for cut in cuts[1:-1]), size])
    return [Share(worker, *run, span) for worker, run, span in zip(some, pairwise(cuts), spans, strict=True)]


def _cuts(cells: Sequence[int], threads: Sequence[int]) -> list[int]:
    """Bounds of the runs, moved to multiples of high powers of two within the tolerance: the tree is split there."""
    done = np.array([0, *accumulate(cells)])
    slack, cuts = len(cells) // len(threads) // _SLACK, [0]
    for number, share in enumerate(accumulate(threads[:-1]), 1):
        fair = int(np.argmin(np.abs(done - done[-1] * share / sum(threads))))
        cut = _aligned(fair, slack)
        cuts.append(min(max(cut, cuts[-1] + 1), len(cells) - len(threads) + number))
    return [*cuts, len(cells)]


def _aligned(cut: int, slack: int) -> int:
    """The multiple of the highest power of two close to a given number."""
    near = range(max(cut - slack, 1), cut + slack + 1)
    return max(near, key=lambda one: (one & -one, -abs(one - cut)), default=cut)


# -- on a worker --------------------------------------------------------------------------------

_known: OrderedDict[str, Told] = OrderedDict()
_lock = threading.Lock()


def sums_here(known_by: str, told: Told | None, ask: Ask, span: Span, factors: Mapping[str, Array]) -> RunSums | None:
    """Sums over a run of parts; None if this worker does not have the description of the parts."""
    with _lock:
        if told is not None:
            _known[known_by] = told
            while len(_known) > _MOST_KNOWN:
                _known.popitem(last=False)
        told = _known.get(known_by)
    if told is None:
        return None
    keep_freed_memory()
    if told.spec.site is not None:
        _check(told.spec.site)
    return sums_of_run(told.spec, ask, told.parts, span, factors, _threads())


def _threads() -> int:
    """Number of threads of this worker."""
    from distributed import get_worker

    try:
        return int(get_worker().state.nthreads)
    except ValueError:  # not called by a worker
        return available_threads()


def _check(site: Site) -> None:
    """Raise an error if this worker, which may be new, has no such device."""
    from distributed import get_worker

    try:
        site.here()
    except PltfError as error:
        raise _unable(get_worker().address, error.marked) from None


# -- checks before the start --------------------------------------------------------------------


@dataclass(frozen=True)
class Sight:
    """Report of a worker about itself."""

    version: str
    unseen: str  # why it cannot read a file; empty if it can
    memory: float
    site: Site | None = None  # its device
    lacking: str = ""  # why it does not have the device


def sight(files: Sequence[File], device: str = HOST, dask_worker: Any = None) -> Sight:
    """Whether this worker can read the given files and has the device, and how much memory it has."""
    import pltf

    unseen = ""
    for file in files:
        try:
            file.check_size()
        except PltfError as error:
            unseen = str(error)
            break
    limit = getattr(getattr(dask_worker, "memory_manager", None), "memory_limit", None)
    site, lacking = _site_here(device)
    return Sight(pltf.__version__, unseen, min(float(limit or np.inf), at_hand()), site, lacking)


def _site_here(device: str) -> tuple[Site | None, str]:
    """The device of this process, without the cells of earlier fits, or why there is none."""
    if device == HOST:
        return None, ""
    try:
        return cleared_site(device), ""
    except PltfError as error:
        return None, error.marked


def cleared_site(device: str) -> Site:
    """The device of this process; drops the cells that earlier fits keep there."""
    from pltf.engines.torch.parts import kept

    kept.forget()
    return site_of(device)


def crew_for(cluster: Cluster, seen: Mapping[str, Observation], sums: bool = True, device: str = HOST) -> Crew:
    """The workers of a cluster; raises an error if one of them cannot work on the stores among the data.

    To compute sums, cells must be in files; data that workers fit as a whole may be in memory.
    """
    workers, alone = cluster.workers(), f"the Dask cluster at {cluster.address} has no workers"
    if not workers:
        raise PltfError(alone, argument="client")
    files = {name: _files(one, name, sums) for name, one in seen.items() if isinstance(one, StoredObservation)}
    able: dict[str, Sight] = {}
    for name, some in files.items() or [("", [])]:
        for address, found in cluster.everywhere(sight, some, device).items():
            if not isinstance(found, OSError):  # or the worker has died
                able[address] = _able(address, found, name)
    if device != HOST and not able:
        raise PltfError(alone, argument="client")
    memory = min((one.memory for one in able.values()), default=math.inf)
    return Crew(tuple(workers.values()), memory, _least({a: one.site for a, one in able.items() if one.site}))


def _least(sites: Mapping[str, Site]) -> Site | None:
    """The device with the least memory for a worker; raises an error if the devices differ."""
    if not sites:
        return None
    (first, known), sharing = next(iter(sites.items())), Counter(site.identity for site in sites.values())
    for address, site in sites.items():
        if site.described != known.described:
            differ = f"{known.described} of {first} and {site.described} of {address}"
            raise PltfError(f"the Dask workers must have the same device for the same result, but {differ} differ")
    each = [replace(site, free=site.free / sharing[site.identity]) for site in sites.values()]
    return min(each, key=lambda site: site.free)


def _files(stored: StoredObservation, name: str, needed: bool) -> list[File]:
    """Some files of a store."""
    parts = [part for part in stored.parts[:1] + stored.parts[-1:] if isinstance(part, FilePart)]
    if needed and stored.parts and not parts:
        raise PltfError(f"{name} is in memory, but cluster workers need a cell store: open one with pltf.open")
    return [part.file for part in parts]


def _able(address: str, found: Sight | Exception, name: str) -> Sight:
    """The report of a worker, checked for errors."""
    import pltf

    who = f"the Dask worker {address}"
    if isinstance(found, ImportError):
        raise PltfError(f"{who} cannot import pltf: {found}")
    if isinstance(found, Exception):
        raise found
    if found.version != pltf.__version__:
        raise PltfError(f"{who} has pltf {found.version}, but the client has {pltf.__version__}")
    if found.lacking:
        raise _unable(address, found.lacking)
    if found.unseen:
        advice = "write it to a folder that all workers can read under the same path"
        raise PltfError(f"{who} cannot read the cell store of {name} ({found.unseen}): {advice}")
    return found


def _unable(address: str, why: str) -> PltfError:
    return PltfError(f"the Dask worker {address} cannot use this device: {why}", argument="device")
