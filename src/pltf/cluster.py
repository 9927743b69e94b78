"""Calls on the workers of a Dask cluster, which may die, join and leave; `distributed` is imported when needed.

A call is self-contained, so the scheduler can run it on any worker, and again if that worker dies. Results are
transferred directly from the workers. Permanent failures raise a clear error.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, wait
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

from pltf.devices import Site
from pltf.errors import PltfError, py

PATIENCE = 60.0  # seconds without workers after which a fit ends
LOOK = 1.0  # seconds between checks of the cluster while its workers compute
RETRIES = 5  # of a call whose workers were killed (beyond the scheduler's own retries) or that the scheduler dropped
CONNECT = 10.0  # seconds within which a scheduler must answer
_SERVED = "running"


@dataclass(frozen=True, eq=False)
class Call:
    """A call, and optionally the worker that should run it."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    worker: str | None = None


@dataclass(frozen=True, eq=False)
class _Made:
    """The return value of a call; None means that there is no result."""

    result: Any


def _make(call: Call, *more: Any) -> _Made:
    return _Made(call.function(*call.args, *more))


def _itself(value: Any) -> Any:
    return value


# -- clients ------------------------------------------------------------------------------------


def distributed_for(what: str) -> Any:
    """Import the package, or raise an error that says what needs it."""
    try:
        return import_module("distributed")
    except ImportError:
        raise PltfError(f"{what} needs Dask: pip install 'pltf[dask]'") from None


def check_client(name: str, value: Any) -> Any:
    """A client of a Dask cluster, or None."""
    if value is None:
        return None
    if type(value).__module__.split(".")[0] != "distributed" or not hasattr(value, "scheduler_info"):
        raise PltfError(f"{py:{name}} must be a distributed.Client, got {type(value).__name__}")
    if value.asynchronous:
        raise PltfError(f"{py:{name}} must be a synchronous client, got one with asynchronous=True")
    return value


def is_collection(data: Any) -> bool:
    """Whether data are a dask.dataframe or a dask.array.

    >>> is_collection([1, 2])
    False
    """
    return type(data).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(data, "__dask_graph__")


def client_for(given: Any, data: Any) -> Any:
    """The given client; for Dask collections without one, the default client."""
    several = data.values() if isinstance(data, Mapping) else [data]
    return _default_client() if given is None and any(map(is_collection, several)) else given


def _default_client() -> Any:
    """The default client of Dask, or None."""
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """A client of the scheduler at an address, closed at the end of the block; None without an address."""
    if address is None:
        yield None
        return
    distributed = distributed_for(f"{py:client}")
    _try(address)  # a client that cannot connect logs errors for a long time
    with distributed.Client(address, set_as_default=False) as client:
        yield client


def _try(address: str) -> None:
    """Connect to a scheduler once, or raise an error."""
    import asyncio

    comm, security = import_module("distributed.comm"), import_module("distributed.security")

    async def once() -> None:
        args = security.Security().get_connection_args("client")
        found = await comm.connect(address, timeout=CONNECT, **args)
        await found.close()

    try:
        asyncio.run(once())
    except Exception as reason:  # depends on the kind of address
        text = " ".join(str(reason).split()) or type(reason).__name__
        raise PltfError(f"there is no Dask scheduler at {address}: {text}", argument="client") from None


@dataclass(frozen=True)
class Crew:
    """The workers of a cluster at planning time."""

    threads: tuple[int, ...]  # of each worker
    memory: float  # smallest memory of a worker, in bytes
    site: Site | None = None  # the device of each worker, with the least memory; None: its CPU


# -- a cluster ----------------------------------------------------------------------------------


class Cluster:
    """The workers of a client."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._order: list[str] = []

    @property
    def threads(self) -> int:
        """Total number of threads."""
        return sum(self.workers().values())

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        scheduler = self._client.scheduler
        return "" if scheduler is None else str(scheduler.address)

    def workers(self) -> dict[str, int]:
        """Threads of each worker, by address. The order is kept: a new worker takes the place of one that left."""
        with self._reached():
            now: Mapping[str, int] = self._client.nthreads()
        new = [address for address in now if address not in self._order]
        kept = [address if address in now else new.pop(0) if new else None for address in self._order]
        self._order = [address for address in [*kept, *new] if address is not None]
        return {address: now[address] for address in self._order}

    def present(self) -> dict[str, int]:
        """As :attr:`workers`, once there is a worker; raises an error if none appears."""
        patience = _Patience(self.address)
        while not patience.tried(found := self.workers()):
            time.sleep(LOOK)
        return found

    def everywhere(self, function: Callable[..., Any], *args: Any) -> dict[str, Any]:
        """The result of a function on each worker, or the error it raises there."""
        with self._reached():
            found: dict[str, Any] = self._client.run(function, *args, on_error="return")
        return found

    def holding(self, value: Any) -> Any:
        """Store a value on the cluster for calls: workers copy it from each other, and a lost value is recreated."""
        with self._reached():
            return self._submitted(_itself, value, key="pltf-data")

    def results(self, calls: Sequence[Call], *held: Any) -> list[Any]:
        """The results of all calls, in order; values held by the cluster are their last arguments."""
        found: dict[int, Any] = {}
        for _ in range(1 + RETRIES):
            left = [n for n in range(len(calls)) if n not in found]
            failed = self._tried({n: calls[n] for n in left}, found, held)
            if len(found) == len(calls):
                return [found[n] for n in range(len(calls))]
        raise PltfError(
            f"the workers of the Dask cluster at {self.address} were killed repeatedly, "
            f"possibly out of memory: {failed}"
        )

    def _tried(self, calls: Mapping[int, Call], found: dict[int, Any], held: tuple[Any, ...]) -> str:
        """Run calls, add their results to ``found``, and return why some are missing."""
        with self._reached():
            futures = {n: self._called(call, held) for n, call in calls.items()}
        for n, made in self._gathered(futures).items():
            if made is not None:
                found[n] = made.result
        why = ""
        for n, future in futures.items():
            if n not in found:
                why = self._why(future)
        return why

    def _called(self, call: Call, held: tuple[Any, ...]) -> Any:
        where = {} if call.worker is None else {"workers": [call.worker], "allow_other_workers": True}
        return self._submitted(_make, call, *held, key=f"pltf-{call.function.__name__}", **where)

    def _submitted(self, function: Callable[..., Any], *args: Any, key: str, **where: Any) -> Any:
        import dask

        with dask.config.set({"distributed.admin.large-graph-warning-threshold": 1 << 62}):  # large arrays are intended
            return self._client.submit(function, *args, key=f"{key}-{uuid.uuid4().hex}", pure=False, **where)

    def _gathered(self, futures: Mapping[int, Any]) -> Mapping[int, _Made | None]:
        """The results, None for failed calls; raises an error if the scheduler or all workers are gone."""
        import asyncio

        waiting = self._client.gather(futures, errors="skip", direct=True, asynchronous=True)
        result = asyncio.run_coroutine_threadsafe(waiting, self._client.loop.asyncio_loop)
        patience = _Patience(self.address)
        try:
            while not wait([result], timeout=LOOK).done:
                patience.tried(self.workers())
            with self._reached():
                found: Mapping[int, _Made | None] = result.result()
            return found
        finally:
            result.cancel()

    def _why(self, future: Any) -> str:
        """Why a call has no result, if a retry may help; otherwise raises its error."""
        from distributed import KilledWorker

        if self._client.status != _SERVED:
            self._lost()
        if future.status != "error":
            return "its tasks were cancelled"
        with self._reached():
            error = future.exception()
        if isinstance(error, KilledWorker):
            return f"{error.last_worker.address} was the last"
        raise error

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Raise a clear error if the scheduler cannot be reached."""
        import asyncio

        if self._client.status != _SERVED:
            self._lost()
        try:
            yield
        except (OSError, CancelledError, asyncio.CancelledError):
            self._lost()

    def _lost(self) -> NoReturn:
        where = f" at {self.address}" if self.address else ""
        raise PltfError(
            f"the Dask scheduler{where} is gone, or the client is closed: connect to a cluster again and resume from a "
            f"checkpoint with {py:resume=True}",
            argument="client",
        ) from None


class _Patience:
    """Measures how long a cluster has been without workers; raises an error after the limit."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._alone: float | None = None  # since when

    def tried(self, workers: Mapping[str, int]) -> bool:
        """Whether there are workers."""
        if workers:
            self._alone = None
            return True
        self._alone = self._alone or time.monotonic()
        if time.monotonic() - self._alone >= PATIENCE:
            raise PltfError(
                f"the Dask cluster at {self._address} has had no workers for {PATIENCE:.0f} seconds: start some, and "
                f"resume from a checkpoint with {py:resume=True}",
                argument="client",
            )
        return False
