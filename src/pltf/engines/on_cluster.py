"""Sums over the parts of a store, taken by the workers of a Dask cluster: one task a worker for each pass.

Every worker has a run of parts that follow each other, and with them the rows of the longest mode in these parts. A
task gets these rows, and all of the other factors; it answers with the sums of its rows and with nodes of the tree over
the private sums (``parts.py``). So nothing depends on which worker has what, or on who comes first.

A worker remembers what it was told of its parts. Another one that has to take a task over says that it was told
nothing, and is told.
"""

from __future__ import annotations

import math
import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from pltf.cluster import Call, Cluster, Crew
from pltf.data import Observation
from pltf.data.part_files import File, FilePart, Part
from pltf.data.stored import StoredObservation
from pltf.engines.parts import COUNTS, Ask, PartsEngine, RunSums, Span, Spec, Sums, combined, sums_of_run
from pltf.engines.ways import Task
from pltf.errors import PltfError
from pltf.gamma import Array
from pltf.memory import at_hand
from pltf.threads import available_threads

_SLACK = 16  # a run may be longer or shorter by this share of it, so that fewer nodes of the tree are cut
_MOST_KNOWN = 8  # runs that a worker remembers


class Share(NamedTuple):
    """The parts that a worker has: from the first to before the last, and the positions that they answer for."""

    worker: str
    first: int
    last: int
    span: Span


@dataclass(frozen=True, eq=False)
class Told:
    """What a worker has to know of its parts."""

    spec: Spec
    parts: tuple[Part, ...]


class ClusterEngine(PartsEngine):
    """Sums over the parts of a store, on the workers of a cluster."""

    def __init__(self, task: Task, stored: StoredObservation, threads: int, cluster: Cluster) -> None:
        super().__init__(task, stored, threads)
        self._cluster = cluster
        self._name = uuid.uuid4().hex  # by which workers remember what they were told
        self._told: set[Share] = set()

    def _sums(self, ask: Ask, factors: Mapping[str, Array]) -> Sums:
        if not self._parts:
            return super()._sums(ask, factors)
        dtype = self._spec.task.dtype if ask.what == COUNTS else np.dtype(np.float64)
        factors = {name: factors[name].astype(dtype, copy=False) for name in self.names}  # what kernels make of them
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
        known_by = f"{self._name} {share.first} {share.last}"
        args = (known_by, told, ask, share.span, self._spec.cut(factors, share.span))
        return Call(sums_here, args, share.worker)


def shares(parts: Sequence[Part], workers: Mapping[str, int], size: int) -> list[Share]:
    """Cut parts into a run for each worker, about as many cells a thread; not more runs than parts."""
    some = list(workers)[: len(parts)]
    cuts = _cuts([part.cells for part in parts], [workers[one] for one in some])
    spans = pairwise([0, *(parts[cut].first for cut in cuts[1:-1]), size])
    return [Share(worker, *run, span) for worker, run, span in zip(some, pairwise(cuts), spans, strict=True)]


def _cuts(cells: Sequence[int], threads: Sequence[int]) -> list[int]:
    """Where runs begin and end. Where it hardly matters, at multiples of high powers of two: there the tree is cut."""
    done = np.array([0, *accumulate(cells)])
    slack, cuts = len(cells) // len(threads) // _SLACK, [0]
    for number, share in enumerate(accumulate(threads[:-1]), 1):
        fair = int(np.argmin(np.abs(done - done[-1] * share / sum(threads))))
        cut = _aligned(fair, slack)
        cuts.append(min(max(cut, cuts[-1] + 1), len(cells) - len(threads) + number))
    return [*cuts, len(cells)]


def _aligned(cut: int, slack: int) -> int:
    """The number that is a multiple of the highest power of two, not far from another one."""
    near = range(max(cut - slack, 1), cut + slack + 1)
    return max(near, key=lambda one: (one & -one, -abs(one - cut)), default=cut)


# -- on a worker --------------------------------------------------------------------------------

_known: OrderedDict[str, Told] = OrderedDict()
_lock = threading.Lock()


def sums_here(known_by: str, told: Told | None, ask: Ask, span: Span, factors: Mapping[str, Array]) -> RunSums | None:
    """Sums over a run of parts; None if this worker was told nothing of them."""
    with _lock:
        if told is not None:
            _known[known_by] = told
            while len(_known) > _MOST_KNOWN:
                _known.popitem(last=False)
        told = _known.get(known_by)
    if told is None:
        return None
    return sums_of_run(told.spec, ask, told.parts, span, factors, _threads())


def _threads() -> int:
    """Of this worker."""
    from distributed import get_worker

    try:
        return int(get_worker().state.nthreads)
    except ValueError:  # called by something else
        return available_threads()


# -- before the start ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Sight:
    """What a worker says of itself."""

    version: str
    unseen: str  # why it cannot read a file; empty if it can
    memory: float


def sight(files: Sequence[File], dask_worker: Any = None) -> Sight:
    """Whether this worker sees some files, and how much memory it has."""
    import pltf

    unseen = ""
    for file in files:
        try:
            file.check_size()
        except PltfError as error:
            unseen = str(error)
            break
    limit = getattr(getattr(dask_worker, "memory_manager", None), "memory_limit", None)
    return Sight(pltf.__version__, unseen, min(float(limit or np.inf), at_hand()))


def crew_for(cluster: Cluster, seen: Mapping[str, Observation], sums: bool = True) -> Crew:
    """The workers of a cluster; one sentence if one of them cannot work on the stores among some data.

    To take sums, cells must be in files; what a worker fits as a whole need not be.
    """
    workers = cluster.workers()
    if not workers:
        raise PltfError(f"the Dask cluster at {cluster.address} has no workers", argument="client")
    files = {name: _files(one, name, sums) for name, one in seen.items() if isinstance(one, StoredObservation)}
    memory = math.inf
    for name, some in files.items() or [("", [])]:
        for address, found in cluster.everywhere(sight, some).items():
            if not isinstance(found, OSError):  # or it has died
                memory = min(memory, _able(address, found, name).memory)
    return Crew(tuple(workers.values()), memory)


def _files(stored: StoredObservation, name: str, needed: bool) -> list[File]:
    """Some files of a store."""
    parts = [part for part in stored.parts[:1] + stored.parts[-1:] if isinstance(part, FilePart)]
    if needed and stored.parts and not parts:
        raise PltfError(f"{name} is in memory: workers of a cluster need a cell store, opened with pltf.open")
    return [part.file for part in parts]


def _able(address: str, found: Sight | Exception, name: str) -> Sight:
    """What a worker says of itself, if it can work."""
    import pltf

    who = f"the Dask worker {address}"
    if isinstance(found, ImportError):
        raise PltfError(f"{who} cannot import pltf: {found}")
    if isinstance(found, Exception):
        raise found
    if found.version != pltf.__version__:
        raise PltfError(f"{who} has pltf {found.version}, and the client {pltf.__version__}")
    if found.unseen:
        advice = "write it to a folder that all workers see under the same path"
        raise PltfError(f"{who} does not see the cell store of {name} ({found.unseen}): {advice}")
    return found
