"""Parts of iterations recorded as CUDA graphs: a replay launches all kernels of a part at once.

An iteration launches some hundred kernels, and preparing each takes Python longer than many take to run. What is
recorded must not wait for the device. Its arrays have fixed places: a replay copies its arguments there, and its
results from there, which pays while factors are small.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from pltf.devices import Device

EAGER = 2  # times a part is computed as usual before it is recorded: the first compiles kernels and fills caches
MOST_ENTRIES = 1 << 22  # of the arguments: launching kernels takes less time than copying more than that
SPARE = 1 << 28  # bytes of unused memory that PyTorch gives back before a recording takes its own

Tree = Any  # nested mappings and tuples of tensors and numbers


class Recordings:
    """Recordings of the parts of one problem's iterations, by what they compute and the form of their arguments."""

    def __init__(self, device: Device) -> None:
        self.device, self._lock = device, threading.Lock()
        self._done: dict[Hashable, int] = {}  # how often a part was computed without a recording
        self._idle: dict[Hashable, list[Recording]] = {}
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
        if not self._worth(key, leaves):
            return work(*given)
        with self._lock:
            idle = self._idle.setdefault(key, [])
            recording = idle.pop() if idle else None
        if recording is None:
            try:
                recording = Recording(self.device, work, leaves, form)
            except RuntimeError:  # of CUDA: the part copies something to the host
                self._unfit.add(key)
                return work(*given)
        found = recording.replay(leaves)
        idle.append(recording)
        return found

    def _worth(self, key: Hashable, leaves: Sequence[Any]) -> bool:
        arrays = [leaf for leaf in leaves if not isinstance(leaf, float)]
        if any(isinstance(array, np.ndarray) for array in arrays):  # means of an earlier fit, in the first iteration
            return False
        if key in self._unfit or sum(array.numel() for array in arrays) > MOST_ENTRIES:
            return False
        done = self._done[key] = self._done.get(key, 0) + 1
        return done > EAGER


class Recording:
    """Work on tensors of certain shapes, as a CUDA graph; on the host, for tests, it is computed again."""

    def __init__(self, device: Device, work: Callable[..., Tree], leaves: Sequence[Any], form: Hashable) -> None:
        self._device = device
        torch, place = device.torch, device.place
        self._given = [torch.empty(_shape(leaf), dtype=torch.float64, device=place) for leaf in leaves]
        self._used: Any = None  # event after the last use, which may be on another stream

        def again() -> None:
            found: list[Any] = []
            self._form = flattened(work(*rebuilt(form, iter(self._given))), found)
            self._shapes = [tuple(tensor.shape) for tensor in found]
            self._flat = torch.cat([tensor.reshape(-1) for tensor in found])

        if device.where == "cpu":
            self._play: Callable[[], None] = again
        else:
            self._play = recorded(device, again)

    def replay(self, leaves: Sequence[Any]) -> Tree:
        """The results for these arguments, in arrays of their own."""
        if self._device.where == "cpu":
            self._fill(leaves)
            self._play()
            flat = self._flat.clone()
        else:
            cuda = self._device.torch.cuda
            with cuda.device(self._device.place):
                if self._used is not None:
                    self._used.wait()
                self._fill(leaves)
                self._play()
                flat = self._flat.clone()
                self._used = cuda.Event()
                self._used.record()
        sizes = [_size(shape) for shape in self._shapes]
        parts = zip(flat.split(sizes), self._shapes, strict=True)
        return rebuilt(self._form, (part.view(shape) for part, shape in parts))

    def _fill(self, leaves: Sequence[Any]) -> None:
        tensors, places = [], []
        for leaf, place in zip(leaves, self._given, strict=True):
            if isinstance(leaf, float):
                place.fill_(leaf)
            else:
                tensors.append(leaf)
                places.append(place)
        self._device.torch._foreach_copy_(places, tensors)


def recorded(device: Device, work: Callable[[], None]) -> Callable[[], None]:
    """The function that replays ``work``, which must not wait for the device."""
    torch, place = device.torch, device.place
    if torch.cuda.memory_reserved(place) - torch.cuda.memory_allocated(place) > SPARE:
        torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(place), torch.cuda.stream(torch.cuda.Stream(place)):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            work()
        except BaseException:
            with suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()
    replay: Callable[[], None] = graph.replay
    return replay


def _shape(leaf: Any) -> tuple[int, ...]:
    return () if isinstance(leaf, float) else tuple(leaf.shape)


def _size(shape: Sequence[int]) -> int:
    size = 1
    for one in shape:
        size *= one
    return size


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
