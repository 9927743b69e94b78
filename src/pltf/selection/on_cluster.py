"""The jobs of a search on the workers of a Dask cluster, each of which gets the data once."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from pltf.cluster import Call, Cluster
from pltf.errors import PltfError
from pltf.workers import Job, Pool

_MOST_HELD = 2  # number of searches whose data a worker keeps


def on_cluster(cluster: Cluster, data: Any, workers: int) -> tuple[Spread, Pool]:
    """The data of a search on the workers of a cluster, and a pool of these workers."""
    source = Spread(uuid.uuid4().hex, cluster)
    return source, ClusterPool(cluster, source, cluster.holding(data), workers)


class Spread:
    """Data that each worker of a cluster has, and a way to tell jobs to stop; the counterpart of ``workers.Shared``."""

    def __init__(self, folder: str, cluster: Cluster | None = None) -> None:
        self.folder = folder  # not a folder, but a unique name of the search
        self._cluster = cluster

    def __reduce__(self) -> tuple[type[Spread], tuple[str]]:
        return type(self), (self.folder,)

    def value(self) -> Any:
        """The data, on a worker."""
        return _held[self.folder]

    def stop(self) -> None:
        """Make :meth:`stopping` return True on all workers."""
        assert self._cluster is not None
        with suppress(PltfError):  # a closed cluster has stopped
            self._cluster.everywhere(_stop, self.folder)

    def stopping(self, *_: object) -> bool:
        """Whether this worker was told to stop."""
        return self.folder in _stopped


class ClusterPool(Pool):
    """Threads that wait for the workers of a cluster, one for each running job."""

    def __init__(self, cluster: Cluster, source: Spread, data: Any, workers: int) -> None:
        super().__init__(workers, processes=False)
        self._cluster, self._source, self._data = cluster, source, data

    def submit(self, job: Job) -> Future[Any]:
        """Run a job on a worker; on another one if that worker is killed."""
        return super().submit(job._replace(function=self._done, args=(job.function, job.args)))

    def _done(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        (result,) = self._cluster.results([Call(_work, (self._source.folder, function, args))], self._data)
        return result


# -- on a worker --------------------------------------------------------------------------------

_held: OrderedDict[str, Any] = OrderedDict()
_stopped: set[str] = set()
_lock = threading.Lock()


def _work(name: str, function: Callable[..., Any], args: tuple[Any, ...], data: Any) -> Any:
    with _lock:
        _held[name] = data
        _held.move_to_end(name)
        while len(_held) > _MOST_HELD:
            _held.popitem(last=False)
    return function(*args)


def _stop(name: str) -> None:
    _stopped.add(name)
