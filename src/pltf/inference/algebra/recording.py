"""Parts of iterations recorded as CUDA graphs: a replay launches all kernels of a part at once.

An iteration launches some hundred kernels, and preparing each takes Python longer than many take to run. What is
recorded must not wait for the device. Its arrays have fixed places: a replay copies its arguments there, and its
results from there, which pays while factors are small.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from pltf.devices import Device

EAGER = 2  # times a part is computed as usual before it is recorded: the first compiles kernels and fills caches
MOST_ENTRIES = 1 << 22  # of the arguments: launching kernels takes less time than copying more than that
SPARE = 1 << 28  # bytes of unused memory that PyTorch gives back before a recording takes its own
ALIGNED = 2  # numbers: Triton compiles a kernel once more for arrays that do not begin at a multiple of 16 bytes

Tree = Any  # nested mappings and tuples of tensors and numbers


class Recordings:
    """Recordings of the parts of one problem's iterations, by what they compute and the form of their arguments."""

    def __init__(self, device: Device) -> None:
        self.device, self._graphs, self._lock = device, Graphs(device), threading.Lock()
        self._done: dict[Hashable, int] = {}  # how often a part was computed without a recording
        self._made: dict[Hashable, Recording] = {}
        self._unfit: set[Hashable] = set()  # parts that wait for the device
        self.batches: dict[int, Any] = {}  # of the problem, by their lanes

    @classmethod
    def on(cls, device: Device | None) -> Recordings | None:
        """Recordings on a GPU whose kernels run through Triton; None elsewhere."""
        return None if device is None or device.where == "cpu" or not device.kernels else cls(device)

    def replayed(self, key: Hashable, work: Callable[..., Tree], given: Tree) -> Tree:
        """``work(*given)``, from a recording after the first times."""
        leaves: list[Any] = []
        form = flattened(given, leaves)
        key = key, form
        if key in self._unfit or not _worth(leaves):
            return work(*given)
        done = self._done[key] = self._done.get(key, 0) + 1
        if done <= EAGER:
            found, waits = watched(lambda: work(*given))
            if waits and done == EAGER:
                self._unfit.add(key)
            return found
        with self._lock:
            try:
                if key not in self._made:
                    self._made[key] = Recording(self._graphs, work, leaves, form)
            except RuntimeError:  # of CUDA
                self._unfit.add(key)
            else:
                return self._made[key].replay(leaves)
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
        self._given = [self._torch.empty(_shape(leaf), **here) for leaf in leaves]
        self._gap = self._torch.zeros(ALIGNED - 1, **here)  # the graph reads it

        def again() -> None:
            found: list[Any] = []
            self._form = flattened(work(*rebuilt(form, iter(self._given))), found)
            self._shapes = [tuple(tensor.shape) for tensor in found]
            padded = ((tensor.reshape(-1), self._gap[: -tensor.numel() % ALIGNED]) for tensor in found)
            self._flat = self._torch.cat(list(chain.from_iterable(padded)))

        self._play = graphs.recorded(again)

    def replay(self, leaves: Sequence[Any]) -> Tree:
        """The results for these arguments, in arrays of their own."""
        with self._graphs.in_turn():
            self._fill(leaves)
            self._play()
            flat = self._flat.clone()
        sizes = [prod(shape) for shape in self._shapes]
        parts = flat.split([size + -size % ALIGNED for size in sizes])
        arrays = (part[:size].view(shape) for part, size, shape in zip(parts, sizes, self._shapes, strict=True))
        return rebuilt(self._form, arrays)

    def _fill(self, leaves: Sequence[Any]) -> None:
        tensors, places = [], []
        for leaf, place in zip(leaves, self._given, strict=True):
            if isinstance(leaf, float):
                place.fill_(leaf)
            else:
                tensors.append(leaf)
                places.append(place)
        self._torch._foreach_copy_(places, tensors)


class Graphs:
    """Records CUDA graphs, which share the memory of their temporary arrays: their replays must not overlap.

    On the host, for tests, work is not recorded, but computed again.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._pool: Any = None
        self._used: Any = None  # event after the last use, which may be on another stream

    def recorded(self, work: Callable[[], None]) -> Callable[[], None]:
        """The function that replays ``work``, which must not wait for the device."""
        if self.device.where == "cpu":
            return work
        torch, place = self.device.torch, self.device.place
        if torch.cuda.memory_reserved(place) - torch.cuda.memory_allocated(place) > SPARE:
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
        """Replay a graph, and use its results, after the last replay."""
        if self.device.where == "cpu":
            yield
            return
        cuda = self.device.torch.cuda
        with cuda.device(self.device.place):
            if self._used is not None:
                self._used.wait()
            yield
            self._used = cuda.Event()
            self._used.record()


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
    if isinstance(tree, Mapping):
        return dict, tuple(tree), tuple(flattened(one, leaves) for one in tree.values())
    if isinstance(tree, tuple):
        return type(tree), (), tuple(flattened(one, leaves) for one in tree)
    if tree is None or isinstance(tree, int):
        return None, tree, ()
    leaves.append(tree)
    return "leaf", _shape(tree), ()


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
