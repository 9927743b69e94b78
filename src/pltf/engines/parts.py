"""Sums over cells in parts, which are read in blocks; no list of all cells is ever made.

How a sum is computed, by threads here, or by tasks in other processes:

- A part is cut into a few *pieces*, at positions of the mode by which it is sorted. One thread processes a piece, in
  blocks of cells that are copied into a small buffer.
- Sums for factors with this mode (*owned* factors) go to their own rows: no two pieces share a row.
- For all other factors each piece has *private* sums. They are added in a binary tree that depends only on the parts:
  node ``(level, k)`` is the sum of the pieces from ``k * 2**level`` to ``(k + 1) * 2**level`` - 1.

:func:`sums_of_run` returns the sums of a run of consecutive parts, with the nodes of the tree inside this run;
:func:`combined` completes the tree. Runs of any length, on any number of threads, finished in any order, therefore give
bit-identical sums::

    spec = spec_of(task, stored)                       # the same everywhere; everything here can be pickled
    ask = Ask(COUNTS, ("A", "B", "C"), log=True)
    found = [
        sums_of_run(spec, ask, stored.parts[a:b], span, spec.cut(factors, span), threads)
        for (a, b), span in ...                        # span: positions of the owned mode that belong to a run
    ]
    counts = spec.finished(ask, combined(spec, found), factors)

With ``spec_of(task, stored, site)`` each process sums on its own device (``torch/parts.py``): parts are the leaves of
the tree, and sums have the shapes of the factors.
"""

from __future__ import annotations

import math
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from operator import add, iadd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.cell_index import Coords
from pltf.data.numeric import read_only
from pltf.data.part_files import Part
from pltf.data.stored import StoredObservation
from pltf.devices import Site
from pltf.engines._numba import cp_counts, cp_exposure
from pltf.engines.base import Counting, Number, sum_of
from pltf.engines.chain import Chain, Layout, plan_chain
from pltf.engines.contraction import AnyArray
from pltf.engines.cp import CpFactors
from pltf.engines.interpreted import LINKS, ONES, RATIOS
from pltf.engines.kernels.allocation import cp_allocation
from pltf.engines.kernels.draws import Stream, stream
from pltf.engines.listed import LARGEST_ROW, FlatSums, as_factor, kernel_of, layouts_of
from pltf.engines.lists import cut_apart
from pltf.engines.over_lists import Key, OverLists
from pltf.engines.ways import PIECES, Task
from pltf.gamma import Array
from pltf.threads import keep_freed_memory, ordered_map

BLOCK = 1 << 15  # cells copied at a time: see benchmarks/NOTES.md, "Cells on disk"

COUNTS, EXPOSURE = "counts", "exposure"
Span = tuple[int, int]  # positions of the owned mode: first, and one past the last
Places = Mapping[str, tuple[slice, tuple[int, ...]]]  # slice of a node and shape, by factor


@dataclass(frozen=True)
class Ask:
    """What to sum: counts of some factors, expected or drawn with a key, or the exposure of one factor."""

    what: str
    wanted: tuple[str, ...]
    log: bool = False
    key: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Spec:
    """What all runs of a sum share; small, and independent of the number of runs and threads."""

    task: Task
    owner: int  # the mode by which parts are sorted
    columns: tuple[int, ...]  # for each mode, the column of a part with its positions
    n_parts: int
    pieces: int  # per part: a power of two
    zeros: bool  # whether parts may list zeros, which have no counts
    site: Site | None = None  # the device of each process; None: its CPU
    known_by: str = field(default_factory=lambda: uuid.uuid4().hex)  # what processes cache belongs to this

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The factors."""
        return tuple(term.name for term in self.task.equation.factors)

    @cached_property
    def owned(self) -> dict[str, int]:
        """Factors with the owned mode, and its axis in each."""
        index = self.task.equation.output.indices[self.owner]
        terms = self.task.equation.factors
        return {term.name: term.indices.index(index) for term in terms if index in term.indices}

    @property
    def size(self) -> int:
        """Size of the owned mode."""
        return self.task.shape[self.owner]

    @property
    def n_pieces(self) -> int:
        """Number of pieces of all parts: the leaves of the tree."""
        return self.n_parts * self.pieces

    def precision(self, ask: Ask) -> np.dtype[Any]:
        """The type to which kernels round the factors."""
        return self.task.dtype if ask.what == COUNTS else np.dtype(np.float64)

    def use(self, ask: Ask) -> int:
        """How the kernel of a chain uses the rate of a cell."""
        return ONES if ask.what == EXPOSURE else LINKS if self.task.links else RATIOS

    def rows(self, name: str, span: Span) -> tuple[slice, ...]:
        """The entries of a factor at some positions of the owned mode, or all entries of a factor without it."""
        return (*(slice(None),) * self.owned[name], slice(*span)) if name in self.owned else ()

    def cut(self, factors: Mapping[str, Array], span: Span) -> dict[str, Array]:
        """The factors of a run: owned factors are cut to its span."""
        if span == (0, self.size):
            return {name: factors[name] for name in self.names}
        return {name: factors[name][self.rows(name, span)] for name in self.names}

    @cached_property
    def chain(self) -> Chain:
        """For equations other than CP: the cheapest chain in the order of the cells."""
        others = [mode for mode in range(len(self.columns)) if mode != self.owner]
        by_size = sorted(others, key=lambda mode: (-self.task.shape[mode], self.columns[mode]))  # as pltf.prepare sorts
        return plan_chain(self.task.equation, self.task.sizes, self.task.facts.positive, self.owner, *by_size)

    def sizes(self, span: Span) -> dict[str, int]:
        """Sizes of all indices, where the owned one has the size of the span."""
        return {**self.task.sizes, self.task.equation.output.indices[self.owner]: span[1] - span[0]}

    def finished(self, ask: Ask, sums: Sums, factors: Mapping[str, Array]) -> dict[str, Array]:
        """Sums of all parts as arrays shaped like the factors."""
        if self.site is not None:
            return {name: sums.by_factor[name] for name in ask.wanted}
        if self.task.is_cp:
            turn = CpFactors(self.task.equation)
            return {name: turn.as_factor(sums.by_factor[name], turn.names.index(name)) for name in ask.wanted}
        return _finished_chain(self, ask, sums, factors)


@dataclass(frozen=True, eq=False)
class Node:
    """Private sums of the pieces below a node of the tree, in the layout of the kernel, and their log term."""

    sums: Array
    log_term: Number


@dataclass(frozen=True, eq=False)
class RunSums:
    """Sums of the parts of a run: owned factors within its span, and complete nodes of the tree."""

    span: Span
    own: Mapping[str, Array]
    nodes: Mapping[tuple[int, int], Node]
    private: Places


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of all parts by factor, in the layout of the kernel, and the log term."""

    by_factor: Mapping[str, Array]
    log_term: float


def spec_of(task: Task, stored: StoredObservation, site: Site | None = None) -> Spec:
    """What the sums over stored cells share."""
    zeros = stored.positive < stored.listed or task.dtype != np.float64  # a small count may round to zero in float32
    if site is not None and stored.parts:
        return Spec(task, stored.owner, stored.columns, len(stored.parts), 1, zeros, site)
    cells, pieces = sum(part.cells for part in stored.parts) // max(len(stored.parts), 1), PIECES
    while (
        pieces > 1 and cells < pieces * task.private
    ):  # clearing and adding private sums would take as long as the cells
        pieces //= 2
    return Spec(task, stored.owner, stored.columns, len(stored.parts), pieces, zeros)


# -- the tree -----------------------------------------------------------------------------------


class SumTree:
    """Adds nodes that arrive in any order, each as soon as its sibling has arrived."""

    def __init__(self, leaves: int, in_place: bool) -> None:
        self._leaves, self._in_place = leaves, in_place  # in place: added nodes may be overwritten
        self.nodes: dict[tuple[int, int], Node] = {}

    def add(self, level: int, k: int, node: Node) -> None:
        """Take a node, and add complete pairs."""
        while 1 << level < self._leaves:
            sibling = self.nodes.pop((level, k ^ 1), None)
            if sibling is not None:
                left, right = (sibling, node) if k & 1 else (node, sibling)
                node = self._joined(left, right)
            elif k & 1 or (k + 1) << level < self._leaves:  # its sibling has not arrived yet
                break
            level, k = level + 1, k >> 1
        self.nodes[level, k] = node

    def _joined(self, left: Node, right: Node) -> Node:
        join: Callable[[Array, Array], Array] = iadd if self._in_place else add
        return Node(join(left.sums, right.sums), left.log_term + right.log_term)


def combined(spec: Spec, runs: Iterable[RunSums]) -> Sums:
    """Sums of all parts from those of runs, in any order, which contain each part once."""
    tree, own, private = SumTree(spec.n_pieces, in_place=False), dict[str, Array](), dict[str, Any]()
    for one in runs:
        for (level, k), node in one.nodes.items():
            tree.add(level, k, node)
        for name, sums in one.own.items():
            _put(spec, own, name, sums, one.span)
        private.update(one.private)
    if not tree.nodes:
        raise AssertionError("combined needs at least one run")
    (root,) = tree.nodes.values()
    shared = {name: root.sums[at].reshape(shape) for name, (at, shape) in private.items()}
    return Sums({**own, **shared}, root.log_term)


def _put(spec: Spec, own: dict[str, Array], name: str, sums: Array, span: Span) -> None:
    """Copy the sums of a span to their place among those of all positions."""
    if span == (0, spec.size):
        own[name] = sums
        return
    axis = spec.owned[name] if spec.site is not None else 0 if spec.task.is_cp else _axis_in_kernel(spec, name)
    if name not in own:
        shape = list(sums.shape)
        shape[axis] = spec.size
        own[name] = np.zeros(shape)
    own[name][(slice(None),) * axis + (slice(*span),)] = sums


# -- a run --------------------------------------------------------------------------------------


def sums_of_run(
    spec: Spec, ask: Ask, parts: Sequence[Part], span: Span, factors: Mapping[str, Array], threads: int
) -> RunSums:
    """Sums over consecutive parts; ``factors`` are those of ``spec.cut`` for the span of the run."""
    if spec.site is not None:
        from pltf.engines.torch.parts import sums_on_device

        return sums_on_device(spec, ask, parts, span, factors)
    kernel = (_CpKernel if spec.task.is_cp else _ChainKernel)(spec, ask, span, factors)
    tree = SumTree(spec.n_pieces, in_place=True)
    opened = [_Opened(part, spec.pieces) for part in parts]
    pieces = [(n, piece) for n in range(len(parts)) for piece in range(spec.pieces)]
    lead = 1 + threads // spec.pieces

    def one_piece(which: tuple[int, int]) -> Node:
        n, piece = which
        if not piece and n + lead < len(parts):
            parts[n + lead].ahead()
        private, key = kernel.private(), ask.key
        number = parts[n].number * spec.pieces + piece
        chance = None if key is None else stream((*key, number))
        with opened[n] as (columns, x):
            own = columns[spec.columns[spec.owner]]
            terms = [
                kernel.call(rows, values, private, chance, count)
                for rows, values, count in _blocks(
                    spec, ask, kernel, parts[n], columns, x, cut_apart(own, spec.pieces)[piece]
                )
            ]
        return Node(private, sum_of(terms) if ask.log else math.nan)

    for (n, piece), node in zip(pieces, ordered_map(one_piece, pieces, threads), strict=True):
        tree.add(0, parts[n].number * spec.pieces + piece, node)
    if not spec.n_parts:
        tree.add(0, 0, Node(kernel.private(), 0.0 if ask.log else math.nan))
    return RunSums(span, kernel.own(), tree.nodes, kernel.places())


class _Opened:
    """A part that its first piece opens and its last piece closes."""

    def __init__(self, part: Part, pieces: int) -> None:
        self._part, self._left, self._lock = part, pieces, threading.Lock()
        self._loaded: tuple[list[NDArray[np.int32]], NDArray[Any]] | None = None

    def __enter__(self) -> tuple[list[NDArray[np.int32]], NDArray[Any]]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._part.load()
            return self._loaded

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._left -= 1
            if not self._left:
                self._loaded = None


def _blocks(
    spec: Spec,
    ask: Ask,
    kernel: _CpKernel | _ChainKernel,
    part: Part,
    columns: Sequence[NDArray[np.int32]],
    x: NDArray[Any],
    piece: tuple[int, int],
) -> Iterator[tuple[Coords, AnyArray, int]]:
    """The cells of a piece in blocks, in one buffer: rows (modes, block), values and their number."""
    start, stop = piece
    size = min(BLOCK, stop - start)
    rows, counted = np.empty((len(spec.columns), size), kernel.row_type), ask.what == COUNTS
    values = np.empty(size if counted else 0, kernel.dtype)
    for at in range(start, stop, BLOCK):
        some = slice(at, min(at + BLOCK, stop))
        count = some.stop - some.start
        keep = part.kept(some)
        if counted:
            values[:count] = x[some]
            keep = above_zero(values[:count], keep) if spec.zeros else keep
        for row, (mode, offset) in zip(rows, kernel.order, strict=True):
            np.add(columns[spec.columns[mode]][some], offset, out=row[:count])
        if keep is not None:
            whole, count = count, int(np.count_nonzero(keep))
            for row in rows:
                row[:count] = row[:whole][keep]
            if counted:
                values[:count] = values[:whole][keep]
        yield rows, values, count


def above_zero(values: AnyArray, keep: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Which rows are kept and have a positive count; None if all are."""
    positive = values > 0
    if keep is not None:
        positive &= keep
    return None if positive.all() else positive


class _CpKernel:
    """CP: all factors stacked, the owned one first; sums are counts, with a row for each position."""

    def __init__(self, spec: Spec, ask: Ask, span: Span, factors: Mapping[str, Array]) -> None:
        task, turn = spec.task, CpFactors(spec.task.equation)
        self._ask, self._links = ask, task.links
        modes = [spec.owner, *(mode for mode in range(len(task.shape)) if mode != spec.owner)]
        self._names = [turn.names[mode] for mode in modes]
        rows = turn.rows(factors)
        self.dtype = spec.precision(ask)
        self._Z = np.ascontiguousarray(np.concatenate([rows[mode] for mode in modes], dtype=self.dtype))
        self._first: list[int] = [0, *accumulate(rows[mode].shape[0] for mode in modes)]
        self.row_type: np.dtype[Any] = np.dtype(np.int32 if self._first[-1] <= LARGEST_ROW else np.int64)
        offsets = [-span[0], *self._first[1:-1]]
        # Modes in the order of the rows, and offsets to add to positions.
        self.order = [(mode, self.row_type.type(at)) for mode, at in zip(modes, offsets, strict=True)]
        self._to_own = self._names[0] in ask.wanted
        self._to_others = any(name in ask.wanted for name in self._names[1:])
        self._of = self._names.index(ask.wanted[0]) if ask.what == EXPOSURE else -1  # whose exposure
        self._own = np.zeros(
            (0 if self._of > 0 else self._first[1], self._Z.shape[1])
        )  # the kernel writes counts there even if they are not wanted
        # The kernel needs its length to locate private sums; pages that are not touched take no memory.
        self._unwanted = np.empty((self._private_rows, self._Z.shape[1]))

    @property
    def _private_rows(self) -> int:
        """Rows of all other factors, or of the one whose exposure is wanted."""
        if self._of > 0:
            return self._first[self._of + 1] - self._first[self._of]
        return self._first[-1] - self._first[1] if self._of < 0 else 0

    def private(self) -> Array:
        """Zeros for private sums."""
        rows = self._private_rows if self._to_others else 0
        return np.zeros((rows, self._Z.shape[1]))

    def call(self, rows: Coords, x: AnyArray, private: Array, chance: Stream | None, stop: int) -> float:
        """Sum over the first ``stop`` cells of a block."""
        if self._ask.what == EXPOSURE:
            sums = self._own if self._to_own else private
            cp_exposure(rows, self._Z, self._of, sums, 0 if self._to_own else self._first[self._of], 0, stop)
            return 0.0
        others = private if self._to_others else self._unwanted
        head = (rows, x, self._Z, self._own, others, len(self.order) - 1)
        how = (self._to_own, self._to_others, self._ask.log, self._links)
        term: float = cp_counts(*head, *how, 0, stop) if chance is None else cp_allocation(*head, *how, chance, 0, stop)
        return term

    def own(self) -> dict[str, Array]:
        """Sums of owned factors."""
        return {self._names[0]: self._own} if self._to_own else {}

    def places(self) -> Places:
        """Where private sums are."""
        R = self._Z.shape[1]
        if self._ask.what == EXPOSURE:
            name = self._names[self._of]
            return {name: (slice(None), (self._private_rows, R))} if self._of else {}
        places = {}
        for n, name in enumerate(self._names[1:], 1):
            at = slice(self._first[n] - self._first[1], self._first[n + 1] - self._first[1])
            places[name] = (at, (at.stop - at.start, R))
        return {name: place for name, place in places.items() if name in self._ask.wanted}


class _ChainKernel:
    """Any equation: a chain over the cells in their order (``chain.py``); sums are Delta.

    Cells that are not sorted by all modes are processed correctly, but more slowly.
    """

    def __init__(self, spec: Spec, ask: Ask, span: Span, factors: Mapping[str, Array]) -> None:
        self._ask, chain, sizes = ask, spec.chain, spec.sizes(span)
        self.dtype = spec.precision(ask)
        self.row_type: np.dtype[Any] = np.dtype(np.int32)
        self.order = [(mode, np.int32(-span[0] if mode == spec.owner else 0)) for mode in chain.modes]
        arrays = [factors[name].astype(self.dtype, copy=False) for name in spec.names]
        self._layouts = layouts_of(chain, sizes)
        owned = [spec.names.index(name) for name in spec.owned]
        wanted = [spec.names.index(name) for name in ask.wanted]
        self._held = FlatSums(chain, self._layouts, owned, arrays, wanted, spec.use(ask))
        self._found = {spec.names[n]: n for n in wanted}
        self._owned = spec.owned
        cells = max(spec.task.facts.positive, spec.task.facts.listed)
        self._kernel = kernel_of(chain, sizes, cells, draws=ask.key is not None)

    def private(self) -> Array:
        return self._held.private()

    def call(self, rows: Coords, x: AnyArray, private: Array, chance: Stream | None, stop: int) -> float:
        return self._held.call(self._kernel, read_only(rows), read_only(x), self._ask.log, private, chance, 0, stop)

    def own(self) -> dict[str, Array]:
        mine = {name: n for name, n in self._found.items() if name in self._owned}
        sums = self._held.found(np.empty(0))
        return {name: sums[n].reshape(self._layouts[n].shape) for name, n in mine.items()}

    def places(self) -> Places:
        others = {name: n for name, n in self._found.items() if name not in self._owned}
        return {name: (self._held.place(n), self._layouts[n].shape) for name, n in others.items()}


def _finished_chain(spec: Spec, ask: Ask, sums: Sums, factors: Mapping[str, Array]) -> dict[str, Array]:
    """The sums of a chain, shaped like their factors."""
    found = {}
    for name in ask.wanted:
        n = spec.names.index(name)
        layout = Layout(spec.task.equation, n, spec.chain.latent, spec.task.sizes)
        factor = factors[name].astype(spec.precision(ask), copy=False)
        chance = None if ask.key is None else stream((*ask.key, spec.n_pieces + n))
        found[name] = as_factor(layout, sums.by_factor[name].reshape(-1), factor, spec.use(ask), chance)
    return found


def _axis_in_kernel(spec: Spec, name: str) -> int:
    """Axis of the owned mode in an owned factor, in the layout of the kernel."""
    seen = spec.chain.seen(spec.names.index(name))
    return seen.index(spec.task.equation.output.indices[spec.owner])


# -- the engine ---------------------------------------------------------------------------------


def _drop(known_by: str) -> None:
    """Drop the cells that stay on the device of this process for an engine."""
    from pltf.engines.torch.parts import kept

    kept.forget(known_by)


class PartsEngine(Counting, OverLists):
    """Sums over the parts of stored cells, on the threads or the device of one process."""

    def __init__(self, task: Task, stored: StoredObservation, threads: int, site: Site | None = None) -> None:
        self._spec, self._parts, self._threads = spec_of(task, stored, site), stored.parts, threads
        self.names, self._dtype = self._spec.names, task.dtype
        keep_freed_memory()
        if self._spec.site is not None:
            weakref.finalize(self, _drop, self._spec.known_by).atexit = False

    def _passed(
        self, factors: Mapping[str, Array], names: Sequence[str], log: bool, key: Key
    ) -> tuple[dict[str, Array], Number]:
        ask = Ask(COUNTS, tuple(names), log, key)
        sums = self._sums(ask, factors)
        return self._spec.finished(ask, sums, factors), sums.log_term

    @property
    def together(self) -> tuple[frozenset[str], ...]:
        """One pass computes all factors, except in the fused kernels of devices, which have a pass for each."""
        site = self._spec.site
        if site is not None:
            from pltf.engines.torch.cp_passes import is_fused

            if is_fused(self._spec.task, site):
                return tuple(frozenset([name]) for name in self.names)
        return (frozenset(self.names),)

    def exposure(self, factors: Mapping[str, Array], of: str) -> Array:
        ask = Ask(EXPOSURE, (of,))
        return self._spec.finished(ask, self._sums(ask, factors), factors)[of]

    def _sums(self, ask: Ask, factors: Mapping[str, Array]) -> Sums:
        whole = (0, self._spec.size)
        cut = self._spec.cut(factors, whole)
        return combined(self._spec, [sums_of_run(self._spec, ask, self._parts, whole, cut, self._threads)])
