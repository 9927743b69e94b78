"""The arrays of several problems of the same size on a device: what all have reached, and what they try next.

All of them lie in one flat array, array by array and lane by lane, so that lanes take their proposals in one operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from pltf.devices import Device
from pltf.engines.either import library
from pltf.gamma import Array
from pltf.inference.algebra.flat import Tree
from pltf.inference.algebra.recording import EAGER, Graphs, flattened, rebuilt, watched

# (arrays, each with the lanes along its first axis, controls) -> the same of the next proposals, and their bounds
Step = Callable[[Tree, Any], tuple[Tree, Any]]


def filled(shape: tuple[int, ...], value: float) -> Array:
    """An array on the host."""
    return np.full(shape, value)


JOINT = "all"  # the name of factors that are one array


def joined(names: Iterable[str], factors: Mapping[str, Any], *, lanes: bool = False) -> dict[str, Any]:
    """These factors, one after the other, as one array (of each lane).

    >>> joined(("A", "B"), {"A": np.ones((1, 2)), "B": np.zeros(1)})
    {'all': array([1., 1., 0.])}
    """
    chosen = [factors[a] for a in names]
    kept = chosen[0].shape[:lanes]
    return {JOINT: library(chosen[0]).concatenate([z.reshape(*kept, -1) for z in chosen], axis=-1)}


def parted(shapes: Mapping[str, tuple[int, ...]], factors: Mapping[str, Any]) -> dict[str, Any]:
    """The factors of these shapes that :func:`joined` made one array.

    >>> parted({"A": (1, 2), "B": (1,)}, {"all": np.array([1.0, 1.0, 0.0])})
    {'A': array([[1., 1.]]), 'B': array([0.])}
    """
    whole, parts, end = factors[JOINT], dict[str, Any](), 0
    for a, shape in shapes.items():
        start, end = end, end + prod(shape)
        parts[a] = whole[..., start:end].reshape(*whole.shape[:-1], *shape)
    return parts


class LaneArrays:
    """The arrays of this many lanes, and the step that makes proposals from them.

    The step is recorded once it has run a few times. It also gets ``controls``: numbers for each lane.
    """

    def __init__(self, device: Device, lanes: int, controls: int, step: Step) -> None:
        torch, place = device.torch, device.place
        self._device, self._lanes, self._make = device, lanes, step
        self._play: Callable[[], None] | None = None  # the recorded step
        self._done = 0  # steps before they were recorded
        self._waits = False  # for the device: such steps are not recorded
        self._form: Any = None
        self._told = torch.zeros(1 + controls, lanes, dtype=torch.float64, device=place)
        self._taken, self._controls = self._told[0], self._told[1:]
        # Page-locked, so that the host does not wait for the copy. It is done before the host writes there again:
        # before that, the host reads what the device has made of it.
        self._here = torch.zeros(1 + controls, lanes, dtype=torch.float64, pin_memory=device.where != "cpu")
        self._bounds = torch.zeros(lanes, dtype=torch.float64, device=place)

    def load(self, trees: Sequence[Tree]) -> None:
        """Begin with these arrays, on the host or the device; lanes beyond them repeat the first one."""
        leaves: list[list[Any]] = [[] for _ in trees]
        for tree, own in zip(trees, leaves, strict=True):
            form = flattened(tree, own)
        leaves += [leaves[0]] * (self._lanes - len(leaves))
        flat = self._flat([one for row in zip(*leaves, strict=True) for one in row])
        if self._form is None:
            self._form, self._shapes = form, [np.shape(leaf) for leaf in leaves[0]]
            lanes = [np.arange(self._lanes).repeat(prod(shape)) for shape in self._shapes]
            self._lane_of = self._device.put(np.concatenate(lanes))
            self._now, self._next = flat, flat.clone()
            return
        self._now.copy_(flat)
        self._next.copy_(flat)

    def proposed(self, taken: Sequence[bool], controls: Sequence[Sequence[float]]) -> list[float]:
        """The bounds of the next proposals, after the last ones were taken or not. One copy to the host."""
        self._tell(taken, controls)
        if self._done < EAGER - 1:
            self._step()
        elif self._done < EAGER:
            _, self._waits = watched(self._step)
        else:
            if self._done == EAGER and not self._waits:
                with suppress(RuntimeError):  # of CUDA
                    self._play = Graphs(self._device).recorded(self._step)
            (self._play or self._step)()
        self._done += 1
        bounds: list[float] = self._bounds.tolist()
        return bounds

    def fetched(self, taken: Sequence[bool]) -> list[Tree]:
        """The arrays of each lane on the host, after its last proposal was taken or not."""
        self._tell(taken)
        self._take()
        parts = [part.numpy() for part in self._parts(self._now.cpu())]
        return [rebuilt(self._form, (part[n].copy() for part in parts)) for n in range(self._lanes)]

    def _tell(self, taken: Sequence[bool], controls: Sequence[Sequence[float]] = ()) -> None:
        """Copy the decisions of the host to the device."""
        here = self._here.numpy()
        here[0] = taken
        if controls:
            here[1:] = np.array(controls, dtype=np.float64).T
        self._told.copy_(self._here, non_blocking=True)

    def _step(self) -> None:
        """Take the last proposals, and make the next ones. Nothing is copied to the host."""
        self._take()
        tree, bounds = self._make(rebuilt(self._form, self._parts(self._now)), self._controls)
        leaves: list[Any] = []
        flattened(tree, leaves)
        self._device.torch.cat([leaf.reshape(-1) for leaf in leaves], out=self._next)
        self._bounds.copy_(bounds)

    def _take(self) -> None:
        taken = self._taken.index_select(0, self._lane_of) > 0
        self._device.torch.where(taken, self._next, self._now, out=self._now)

    def _parts(self, flat: Any) -> Iterator[Any]:
        """The arrays, each with the lanes along its first axis."""
        parts = flat.split([self._lanes * prod(shape) for shape in self._shapes])
        return (part.reshape(self._lanes, *shape) for part, shape in zip(parts, self._shapes, strict=True))

    def _flat(self, leaves: Sequence[Any]) -> Any:
        """All entries; those on the host are copied to the device together."""
        torch, tensor = self._device.torch, self._device.torch.Tensor
        host = [np.asarray(leaf, dtype=np.float64).reshape(-1) for leaf in leaves if not isinstance(leaf, tensor)]
        copied = self._device.put(np.concatenate([np.empty(0), *host]))
        if len(host) == len(leaves):
            return copied
        parts = iter(copied.split([len(one) for one in host]))
        return torch.cat([leaf.reshape(-1) if isinstance(leaf, tensor) else next(parts) for leaf in leaves])
