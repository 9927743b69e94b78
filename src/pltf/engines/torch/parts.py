"""Sums over the parts of a cell store on a device, part by part.

The device holds the factors that all parts share, the rows of one part, and its cells. Cells of other parts stay there
between passes as far as the plan allows (``Site.room``), and are dropped a while after the last pass. Runs of one
process take turns, so that together they need no more memory than one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import accumulate, pairwise
from math import nan, prod

import numpy as np

from pltf.data.part_files import Part
from pltf.devices import HOST, Device
from pltf.engines.base import Number
from pltf.engines.either import fetched
from pltf.engines.lists import WholeList
from pltf.engines.parts import COUNTS, Ask, Node, RunSums, Span, Spec, SumTree, above_zero
from pltf.engines.torch.cells import Tensor
from pltf.engines.torch.listed import Passes, passes_over
from pltf.engines.torch.listed_memory import list_bytes
from pltf.gamma import Array

Key = tuple[str, int, bool]  # of a list: engine, number of the part, whether it has counts

IDLE = 60.0  # seconds after the last pass until cells on the device are dropped
_turn = threading.Lock()


def sums_on_device(spec: Spec, ask: Ask, parts: Sequence[Part], span: Span, factors: Mapping[str, Array]) -> RunSums:
    """As ``parts.sums_of_run``, on the device of this process; sums have the shapes of the factors."""
    assert spec.site is not None
    with _turn, kept.used(), _repeatable(spec.site):
        run = _Run(spec, ask, span, spec.site.here(), factors)
        for part, following in zip(parts, [*parts[1:], None], strict=True):
            run.add(part, following)
        return run.found()


class _Run:
    """The sums of consecutive parts: a leaf of the tree for each part."""

    def __init__(self, spec: Spec, ask: Ask, span: Span, device: Device, factors: Mapping[str, Array]) -> None:
        self._spec, self._ask, self._span, self._device = spec, ask, span, device
        self._factors = {name: factors[name].astype(spec.precision(ask), copy=False) for name in spec.names}
        self._shared = {name: self._put(self._factors[name]) for name in spec.names if name not in spec.owned}
        self._own = {name: np.zeros(factors[name].shape) for name in ask.wanted if name in spec.owned}
        self._tree = SumTree(spec.n_pieces, in_place=True)

    def add(self, part: Part, following: Part | None) -> None:
        """Add a part; if its cells must be read, the following part is read ahead."""
        rows = (part.first - self._span[0], part.last - self._span[0])
        owned = {name: self._put(self._factors[name][self._spec.rows(name, rows)]) for name in self._spec.owned}
        sums, log_term = self._sums(part, following, {**self._shared, **owned})
        for name, own in self._own.items():
            own[self._spec.rows(name, rows)] = fetched(sums[name])
        private = [sums[name].reshape(-1) for name in self._ask.wanted if name in self._shared]
        nothing = self._device.torch.zeros(0, dtype=self._device.torch.float64, device=self._device.place)
        self._tree.add(0, part.number, Node(self._device.torch.cat([nothing, *private]), log_term))

    def found(self) -> RunSums:
        """The sums, on the host."""
        nodes = {at: Node(fetched(node.sums), float(node.log_term)) for at, node in self._tree.nodes.items()}
        shapes = {name: self._shared[name].shape for name in self._ask.wanted if name in self._shared}
        ends = pairwise(accumulate(map(prod, shapes.values()), initial=0))
        places = {name: (slice(*some), tuple(shape)) for (name, shape), some in zip(shapes.items(), ends, strict=True)}
        return RunSums(self._span, self._own, nodes, places)

    def _put(self, factor: Array) -> Tensor:
        return self._device.put(factor, self._device.torch.float64)

    def _sums(
        self, part: Part, following: Part | None, factors: Mapping[str, Tensor]
    ) -> tuple[Mapping[str, Tensor], Number]:
        """Sums of a part by factor, and its log term or NaN."""
        ask, passes = self._ask, self._passes(part, following)
        if ask.what != COUNTS:
            return {name: passes.exposure(factors, name) for name in ask.wanted}, nan
        key = None if ask.key is None else (*ask.key, part.number)
        return passes.counts(factors, ask.wanted, ask.log, key)

    def _passes(self, part: Part, following: Part | None) -> Passes:
        spec, device = self._spec, self._device
        assert spec.site is not None
        counted = self._ask.what == COUNTS or not spec.zeros  # without zeros, one list serves both
        key = spec.known_by, part.number, counted
        known = kept.passes(key)
        if known is not None:
            return known
        if following is not None:
            following.ahead()
        task = replace(spec.task if counted else spec.task.uncounted, sizes=spec.sizes((part.first, part.last)))
        made = passes_over(task, _cells_of(spec, part, counted), device)
        kept.keep(key, made, list_bytes(task, part.cells, device, counted=counted).held, spec.site.room)
        return made


def _cells_of(spec: Spec, part: Part, counted: bool) -> WholeList:
    """The cells of a part, with positions of the owned mode from 0."""
    columns, x = part.load()
    keep, values = part.kept(slice(0, part.cells)), None
    if counted:
        values = x.astype(spec.task.dtype)
        keep = above_zero(values, keep) if spec.zeros else keep
    coords = np.stack([columns[column] for column in spec.columns])
    coords[spec.owner] -= part.first
    if keep is not None:
        coords, values = np.ascontiguousarray(coords[:, keep]), None if values is None else values[keep]
    return WholeList(coords, values)


@contextmanager
def _repeatable(device: Device) -> Iterator[None]:
    """On the host, PyTorch's sums depend on its number of threads: one."""
    if device.where != HOST:
        yield
        return
    threads = device.torch.get_num_threads()
    device.torch.set_num_threads(1)
    try:
        yield
    finally:
        device.torch.set_num_threads(threads)


class KeptPasses:
    """Passes over parts whose cells stay on the device, of all runs of this process."""

    def __init__(self) -> None:
        self._held: dict[Key, tuple[Passes, int]] = {}
        self._lock = threading.RLock()  # an engine may be collected, and its cells dropped, at any time
        self._timer = threading.Timer(IDLE, self.forget)

    @property
    def parts(self) -> int:
        """Number of lists that stay on the device."""
        return len(self._held)

    @property
    def bytes(self) -> int:
        """Their memory."""
        return sum(size for _, size in list(self._held.values()))

    def passes(self, key: Key) -> Passes | None:
        """The passes over a part, if its cells stay on the device."""
        return self._held.get(key, (None, 0))[0]

    def keep(self, key: Key, made: Passes, size: int, room: float) -> None:
        """Keep the cells of a part, which take ``size`` bytes, if there is room for them."""
        with self._lock:
            if size + self.bytes <= room:
                self._held[key] = made, size

    def forget(self, known_by: str = "") -> None:
        """Drop the cells of one engine, or of all, and give the memory back to the device."""
        with self._lock:
            gone = [key for key in list(self._held) if not known_by or key[0] == known_by]
            for key in gone:
                self._held.pop(key, None)
        if gone:
            import torch

            torch.cuda.empty_cache()  # does nothing without a GPU

    @contextmanager
    def used(self) -> Iterator[None]:
        """Keep cells during a pass and for a while after it."""
        self._timer.cancel()
        try:
            yield
        finally:
            self._timer = threading.Timer(IDLE, self.forget)
            self._timer.daemon = True
            with suppress(RuntimeError):  # no thread can be started: cells stay until the engine ends
                self._timer.start()


kept = KeptPasses()
