"""Parts of iterations recorded as CUDA graphs: a replay launches all kernels of a part at once.

An iteration launches some hundred kernels, and preparing each takes Python longer than many take to run. What is
recorded must not wait for the device. Its arrays have fixed places: a replay copies its arguments there, and its
results from there, which pays while factors are small. Both lie in one flat array each. Arguments that are results of
the last replay, as in most iterations, are known as such and copied at once.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from pltf.devices import Device
from pltf.inference.algebra.flat import ALIGNED, Copied, Origin, Tree, places_of, reader

EAGER = 2  # times a part is computed as usual before it is recorded: the first compiles kernels and fills caches
MOST_ENTRIES = 1 << 22  # of the arguments: launching kernels takes less time than copying more than that
SPARE = 1 << 28  # bytes of unused memory that PyTorch gives back before a recording takes its own


class Recordings:
    """Recordings of the parts of one problem's iterations, by what they compute and the form of their arguments."""

    def __init__(self, device: Device) -> None:
        self.device, self._graphs, self._lock = device, Graphs(device), threading.Lock()
        self._done: dict[Hashable, int] = {}  # how often a part was computed without a recording
        self._made: dict[Hashable, Recording] = {}
        self._known: dict[Hashable, Route] = {}  # the recordings by where their arguments come from
        self._unfit: set[Hashable] = set()  # parts that wait for the device
        self.batches: dict[int, Any] = {}  # of the problem, by their lanes

    @classmethod
    def on(cls, device: Device | None) -> Recordings | None:
        """Recordings on a GPU whose kernels run through Triton; None elsewhere."""
        return None if device is None or device.where == "cpu" or not device.kernels else cls(device)

    def replayed(self, key: Hashable, work: Callable[..., Tree], given: Tree) -> Tree:
        """``work(*given)``, from a recording after the first times."""
        origin = Origin(given)
        route = self._known.get((key, origin.mark)) if origin.known else None
        if route is not None:
            with self._lock:
                return route.recording.replay_from(origin, route)
        leaves: list[Any] = []
        form = flattened(given, leaves)
        full = key, form
        if full in self._unfit or not _worth(leaves):
            return work(*given)
        done = self._done[full] = self._done.get(full, 0) + 1
        if done < EAGER:
            return work(*given)
        if done == EAGER:
            found, waits = watched(lambda: work(*given))
            if waits:
                self._unfit.add(full)
            return found
        with self._lock:
            try:
                if full not in self._made:
                    self._made[full] = Recording(self._graphs, work, leaves, form)
            except RuntimeError:  # of CUDA
                self._unfit.add(full)
            else:
                made = self._made[full]
                if origin.known:
                    self._known[key, origin.mark] = made.route_from(origin)
                return made.replay(leaves)
        return work(*given)


def _worth(leaves: Sequence[Any]) -> bool:
    """Whether to record work on these arguments."""
    arrays = [leaf for leaf in leaves if not isinstance(leaf, float)]
    if any(isinstance(array, np.ndarray) for array in arrays):  # means of an earlier fit, in the first iteration
        return False
    return bool(sum(array.numel() for array in arrays) <= MOST_ENTRIES)


def watched(work: Callable[[], Tree]) -> tuple[Tree, bool]:
    """The result of some work, and whether it waits for the device: for a number, or for a copy to or from the host.

    CUDA would break off the recording of such work, which PyTorch does not recover from: its random numbers and its
    memory would no longer be usable as before, also outside of pltf.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    waits = False

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal waits
            found = called(*args, **(kwargs or {}))
            if called._schema.name in _MOVES:
                places = {one.device.type for one in (*args[:2], found) if hasattr(one, "device")} or {"cpu"}
                waits |= places != {"cpu"} and (len(places) > 1 or not hasattr(found, "device"))
            return found

    with Watch():
        return work(), waits


_MOVES = ("aten::_local_scalar_dense", "aten::_to_copy", "aten::copy_")


class Recording:
    """Work on tensors of certain shapes, as a CUDA graph."""

    def __init__(self, graphs: Graphs, work: Callable[..., Tree], leaves: Sequence[Any], form: Hashable) -> None:
        self._graphs, self._torch = graphs, graphs.device.torch
        here = {"dtype": self._torch.float64, "device": graphs.device.place}
        places, size = places_of([_shape(leaf) for leaf in leaves])
        self._inlet = self._torch.zeros(size, **here)  # the arguments
        given = [place.of(self._inlet) for place in places]
        numbered = [isinstance(leaf, float) for leaf in leaves]
        self._tensors = [place for place, number in zip(places, numbered, strict=True) if not number]
        self._at_numbers = [one for one, number in zip(given, numbered, strict=True) if number]
        self._numbers: list[float] = []  # that are there now
        self._gap = self._torch.zeros(ALIGNED - 1, **here)  # the graph reads it

        def again() -> None:
            found: list[Any] = []
            self._form = flattened(work(*rebuilt(form, iter(given))), found)
            self._shapes = [tuple(tensor.shape) for tensor in found]
            padded = ((tensor.reshape(-1), self._gap[: -tensor.numel() % ALIGNED]) for tensor in found)
            self._flat = self._torch.cat(list(chain.from_iterable(padded)))

        self._play = graphs.recorded(again)
        self._read: Callable[[Any], Tree] | None = None

    def replay(self, leaves: Sequence[Any]) -> Tree:
        """The results for these arguments, in an array of their own."""
        tensors = [leaf for leaf in leaves if not isinstance(leaf, float)]
        places = [place.of(self._inlet) for place in self._tensors]
        numbers = [leaf for leaf in leaves if isinstance(leaf, float)]
        return self._played(lambda: self._torch._foreach_copy_(places, tensors), numbers)

    def replay_from(self, origin: Origin, route: Route) -> Tree:
        """As :meth:`replay`, for arguments that lie in flat arrays."""

        def fill() -> None:
            for run, place in route.copies:
                place.copy_(origin.flats[run.flat].narrow(0, run.start, run.size))

        return self._played(fill, origin.numbers)

    def route_from(self, origin: Origin) -> Route:
        """How arguments of this origin come here."""
        runs = origin.runs(self._tensors)
        return Route(self, [(run, self._inlet.narrow(0, run.there, run.size)) for run in runs])

    def _played(self, fill: Callable[[], None], numbers: list[float]) -> Tree:
        with self._graphs.in_turn():
            fill()
            if numbers != self._numbers:
                for place, number in zip(self._at_numbers, numbers, strict=True):
                    place.fill_(number)
                self._numbers = numbers
            self._play()
            flat = self._flat.clone()
        if self._read is None:
            self._read = reader(self._form, iter(places_of(self._shapes)[0]))
        return self._read(flat)


class Route(NamedTuple):
    """A recording, and the copies of its arguments from where they come from to where it reads them."""

    recording: Recording
    copies: Sequence[tuple[Copied, Any]]


class Graphs:
    """Records CUDA graphs, which share the memory of their temporary arrays: their replays must not overlap.

    On the host, for tests, work is not recorded, but computed again.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._pool: Any = None
        self._used: Any = None  # the stream of the last use

    def recorded(self, work: Callable[[], None]) -> Callable[[], None]:
        """The function that replays ``work``, which must not wait for the device."""
        if self.device.where == "cpu":
            return work
        torch, place = self.device.torch, self.device.place
        if self.device.unused > SPARE:
            torch.cuda.empty_cache()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with _undisturbed(), torch.cuda.device(place), torch.cuda.stream(_stream_on(torch.cuda, place)):
            torch.cuda.current_blas_handle()  # the first product of a thread makes it, which CUDA does not record
            graph.capture_begin(self._pool, capture_error_mode="thread_local")
            try:
                work()
            except BaseException:
                with suppress(RuntimeError):
                    _end(graph)
                raise
            _end(graph)
        replay: Callable[[], None] = graph.replay
        return replay

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Replay a graph, and use its results, after the last replay.

        Work of one stream is done in order, so only another stream has to wait: for all that was put on the last one.
        Copies and replays use the device of their arrays and its current stream, whatever device is the current one.
        """
        if self.device.where != "cpu":
            stream = self.device.torch.cuda.current_stream(self.device.place)
            if self._used is not None and self._used != stream:
                stream.wait_stream(self._used)
            self._used = stream
        yield


_one = threading.Lock()
_broken: list[Any] = []  # graphs that could not be ended: PyTorch asks them about the memory of all later ones


@contextmanager
def _undisturbed() -> Iterator[None]:
    """One recording at a time, and no garbage collector, which may destroy an older one: CUDA does not permit that."""
    with _one:
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()


@cache
def _stream_on(cuda: Any, place: Any) -> Any:
    """Where everything is recorded. One for all: cuBLAS keeps 32 MB for each stream and thread that it has served."""
    return cuda.Stream(place)


def _end(graph: Any) -> None:
    try:
        graph.capture_end()
    except RuntimeError:
        _broken.append(graph)
        raise


def _shape(leaf: Any) -> tuple[int, ...]:
    return () if isinstance(leaf, float) else tuple(leaf.shape)


def flattened(tree: Tree, leaves: list[Any]) -> Hashable:
    """The form of a tree, which tells trees of other keys, types or shapes apart; its leaves are appended to a list.

    >>> import numpy as np
    >>> leaves = []
    >>> form = flattened(({"A": np.ones(2)}, None, 0.5), leaves)
    >>> leaves
    [array([1., 1.]), 0.5]
    >>> rebuilt(form, iter(["a", "b"]))
    ({'A': 'a'}, None, 'b')
    """
    if hasattr(tree, "shape") or isinstance(tree, float):  # first: most are, and to ask for mappings takes longest
        leaves.append(tree)
        return "leaf", _shape(tree), ()
    if isinstance(tree, Mapping):
        return dict, tuple(tree), tuple(flattened(one, leaves) for one in tree.values())
    if isinstance(tree, tuple):
        return type(tree), (), tuple(flattened(one, leaves) for one in tree)
    assert tree is None or isinstance(tree, int)
    return None, tree, ()


def rebuilt(form: Any, leaves: Iterator[Any]) -> Tree:
    """The tree of this form with these leaves."""
    kind, keys, children = form
    if kind is None:
        return keys
    if kind == "leaf":
        return next(leaves)
    below = [rebuilt(child, leaves) for child in children]
    if kind is dict:
        return dict(zip(keys, below, strict=True))
    return tuple(below) if kind is tuple else kind(*below)
