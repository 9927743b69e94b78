"""The cost of a fit, planned before it starts: engines, contraction orders, blocks, memory, time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np

from pltf.cluster import Cluster, Crew
from pltf.data.blocks import Block, block_shape, blocks
from pltf.devices import Device, Site
from pltf.engines.contraction import Indices, Tree, plan_tree
from pltf.engines.lists import MOST_CHUNKS
from pltf.engines.ways import (
    ALL,
    CLOSED_FORM,
    DENSE,
    HOLES,
    LISTED,
    MASK,
    OBSERVED,
    ONE,
    PIECES,
    STORED,
    Facts,
    Task,
    Way,
    choose,
    counts_ways,
    exposure_ways,
)
from pltf.memory import memory_there_is
from pltf.notation import Equation, Model

BLOCK_BYTES = 16 << 20  # budget for the temporaries of one block
PRIVATE_BYTES = 256 << 20  # budget for the private sums of the chunks of a list
SHARE_OF_MEMORY = 0.25  # share of the memory that copies of the data may use
SHARE_OF_DEVICE = 0.8  # share of the free memory of a device for the sums over parts, with the cells that stay there
SHARED_BYTES = 16 << 20  # a partial contraction of the whole mask is always kept up to this size

# Memory of a fit in addition to the data, as measured: benchmarks/NOTES.md
HELD = 24  # arrays of the size of the factors: two states, the L-BFGS history, and the temporaries of a step
HELD_BY_ESTIMATES = 20  # EM and MAP, which have no scale parameters
HELD_PLAINLY = 14  # without acceleration
HELD_ON_DEVICE = 24  # two states of five arrays, the L-BFGS history, and the temporaries of a step
HELD_WHILE_JUDGING = 12  # the finished fit, while a second one estimates the dispersion
_IN_HAND = 8 << 20  # bytes of the block of stored cells that a thread processes, with its temporaries
_RECEIVED = 3  # copies of the factors that a cluster worker holds: as received, unpacked, and in kernel layout
_SORTING, _FINDING_ZEROS = 16, 12  # bytes per listed cell: for sorting, and for finding the cells that are not listed
_HIDING = 2  # bytes per cell of an array with held-out cells
_DRAWN = 256 << 20  # bytes of draws that predictions sort at a time; sorting takes the same again
_PREDICTED = 240  # bytes per cell for its mean, variance, probability and intervals
_HELD_BY_PREDICTIONS = 12  # arrays of the size of the factors: the posterior, the widened posterior, and the draws
_HELD_BY_A_RUN = 6  # per restart of a search
_HELD_BY_REPORTS = 2
_PAGE = 80 << 20  # bytes of a report: charts and the plotting library
_LOOKED_UP = 130  # bytes per listed cell, to find the most probable unlisted zeros


@dataclass(frozen=True)
class EquationPlan:
    """How the sums over all cells of an array are computed.

    >>> import numpy as np, pltf
    >>> plan, = pltf.cp(rank=7).plan(np.zeros((300, 300, 300))).equations
    >>> plan.dense.block, plan.dense.n_blocks
    ((10, 75, 300), 120)
    """

    equation: Equation
    sizes: Mapping[str, int]
    data_dtype: np.dtype[Any]
    masked: bool
    dtype: np.dtype[Any]
    tree: Tree
    links: Literal[True] | None = None  # see Task
    place: str = ""  # see Facts

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the observed tensor."""
        return tuple(self.sizes[index] for index in self.equation.output.indices)

    @cached_property
    def block(self) -> tuple[int, ...]:
        """Shape of a block of cells: the largest whose temporaries fit into the budget."""
        return block_shape(self.shape, lambda block: self.block_bytes(block) <= BLOCK_BYTES)

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return prod(-(-size // step) for size, step in zip(self.shape, self.block, strict=True))

    @cached_property
    def blocks(self) -> list[Block]:
        """The blocks, in the order in which their sums are added."""
        return blocks(self.shape, self.block)

    def block_bytes(self, block: tuple[int, ...]) -> int:
        """Temporaries of a block: value and derivative of every node, data and mask after the cast, logarithms."""
        sizes = {**self.sizes, **dict(zip(self.equation.output.indices, block, strict=True))}
        cells = set(self.equation.output.indices)  # cutting the cells does not make a core smaller
        nodes = sum(self.node_size(node, sizes) for node in self.tree.nodes if not cells.isdisjoint(node))
        return (2 * nodes + 2 * prod(block)) * self.dtype.itemsize + 2 * 8 * prod(block)

    def node_size(self, node: Indices, sizes: Mapping[str, int] | None = None) -> int:
        """Number of entries of a node of the contraction tree."""
        sizes = self.sizes if sizes is None else sizes
        return prod(sizes[index] for index in node)

    @cached_property
    def shares(self) -> bool:
        """Whether partial contractions of the whole mask are small enough to keep between factors."""
        limit = max(SHARED_BYTES, self.data_bytes // 16)
        return all(self.node_size(node) * 8 <= limit for node in self.tree.nodes[:-1])

    @property
    def data_bytes(self) -> int:
        """Size of the caller's array and mask, which are not copied."""
        return prod(self.shape) * (self.data_dtype.itemsize + self.masked)

    @property
    def shared_bytes(self) -> int:
        """Size of the partial contractions kept between factors."""
        if not (self.masked and self.shares):
            return 0
        return 2 * sum(self.node_size(node) for node in self.tree.nodes[:-1]) * 8


@dataclass(frozen=True)
class TensorPlan:
    """How the sums over the cells of one observed tensor are computed, and the cost of the alternatives.

    >>> import numpy as np, pltf
    >>> seen = pltf.observe((np.array([[0, 5, 1]]), np.array([3.0])), shape=(10**6,) * 3)
    >>> plan, = pltf.cp(rank=7).plan(seen).equations
    >>> plan.counts.name, plan.exposure.name
    ('sparse', 'closed form')
    """

    task: Task
    counts: Way
    exposure: Way
    copies: str = ALL  # of lists on a device: ALL or ONE

    @property
    def equation(self) -> Equation:
        """Equation of the tensor."""
        return self.task.equation

    @property
    def name(self) -> str:
        """Name of the tensor."""
        return self.equation.output.name

    @cached_property
    def dense(self) -> EquationPlan:
        """Plan of the contractions over an array."""
        task = self.task
        known = task.facts.data_dtype if task.facts.storage == DENSE else task.dtype
        masked, place = task.facts.missing > 0, task.facts.place
        return EquationPlan(task.equation, task.sizes, known, masked, task.dtype, task.tree, task.links, place)

    @property
    def has_lists(self) -> bool:
        """Whether a pass visits the cells of a list."""
        return self.counts.name == LISTED or self.exposure.name in (HOLES, OBSERVED)

    @property
    def on_site(self) -> bool:
        """Whether the cells stay on disk, and their sums are computed on a device."""
        return self.task.on_device and self.task.facts.storage == STORED

    @property
    def is_array(self) -> bool:
        """Whether a pass visits all cells of an array."""
        return self.counts.name == DENSE or self.exposure.name == MASK

    @property
    def data_bytes(self) -> int:
        """Size of the caller's data, which are not copied."""
        facts = self.task.facts
        if facts.storage == DENSE:
            return facts.cells * (facts.data_dtype.itemsize + (facts.missing > 0 or facts.unread))
        if facts.storage == STORED:
            return facts.holes * self.task.list_bytes
        return facts.listed * (self.task.list_bytes + 8) + facts.holes * self.task.list_bytes

    @property
    def made_bytes(self) -> int:
        """Size of the copies of the data that the chosen ways need, and of partial results kept between factors."""
        kept = self.dense.shared_bytes if self.exposure.name == MASK else 0
        return self.counts.bytes + self.exposure.bytes + kept + self._tree_bytes

    @property
    def _tree_bytes(self) -> int:
        """Size of the private sums of parts that wait to be added."""
        facts = self.task.facts
        return 8 * self.task.private * (facts.parts.bit_length() + 3) if facts.storage == STORED else 0

    @property
    def listing_bytes(self) -> int:
        """Temporary memory for sorting a list and for finding the cells that are not listed, before the iterations."""
        facts = self.task.facts
        if facts.storage != LISTED:
            return 0
        return _SORTING * facts.positive + _FINDING_ZEROS * facts.listed * (facts.unlisted == "zero")

    @property
    def judging_bytes(self) -> int:
        """Size of the training data of the second fit, which estimates the dispersion, and of its copies."""
        if self.task.facts.storage in (LISTED, STORED):
            return self.data_bytes + self.made_bytes + self.listing_bytes
        return _HIDING * self.task.facts.cells + self.made_bytes

    @property
    def flight_bytes(self) -> int:
        """Temporaries of one thread, or of the one that prepares parts for a device."""
        if self.on_site:  # the cells of a part twice, and the sums of a run
            return 2 * self.task.facts.most * (self.task.list_bytes + 8) + 2 * 8 * self.task.private
        if self.task.facts.storage == STORED:  # private sums of a piece, and of one that waits to be added
            return 2 * 8 * self.task.private + _IN_HAND
        return (
            (self._private_bytes() if self.has_lists else 0)
            + (self.dense.block_bytes(self.dense.block) if self.is_array else 0)
            + (1 << 20)
        )

    def worker_bytes(self, workers: int, threads: int) -> int:
        """Memory of a cluster worker: its rows of the factors, and its own sums."""
        task = self.task
        rows = -(-(task.entries() - task.private) // workers)
        received = _RECEIVED * 8 * (rows + task.private) + 2 * 8 * rows
        return received + self._tree_bytes + min(threads, self.pieces) * self.flight_bytes

    def _private_bytes(self) -> int:
        """Private sums of a chunk of a list: all factors without the longest index."""
        task = self.task
        longest = max(task.equation.output.indices, key=lambda index: task.sizes[index])
        return min(8 * task.entries(longest), PRIVATE_BYTES)

    @property
    def pieces(self) -> int:
        """Number of threads that can work in parallel."""
        if self.on_site:
            return 1
        if self.task.facts.storage == STORED:
            return max(self.task.facts.parts, 1) * PIECES
        return self.dense.n_blocks if self.is_array else MOST_CHUNKS

    @property
    def flops(self) -> int:
        """Approximate flops of one iteration: counts and exposures of all factors."""
        facts = self.task.facts
        a_cell = self.task.tree.flops(self.task.sizes) / facts.cells
        over = {MASK: facts.cells, HOLES: facts.missing, OBSERVED: facts.observed, CLOSED_FORM: 0}[self.exposure.name]
        counted = facts.cells if self.counts.name == DENSE else facts.positive
        return int(a_cell * (3 * counted + 2 * over))

    @property
    def seconds(self) -> float:
        """Seconds of one iteration, on one thread."""
        return self.counts.seconds + self.exposure.seconds

    def rows(self) -> list[tuple[str, str]]:
        """The plan as rows of text: the data, and how they are visited."""
        facts = self.task.facts
        about = "" if facts.exact else "about "
        counts = "all cells" if self.counts.name == DENSE else f"the {about}{facts.positive:,} non-zeros"
        ways = {
            CLOSED_FORM: "closed form (nothing is missing)",
            MASK: "a mask of all cells",
            HOLES: f"closed form less {about}{facts.missing:,} holes",
            OBSERVED: f"the {about}{facts.observed:,} observed cells",
        }
        return [
            (self.name, self._data()),
            ("counts", counts + self._others(self.counts, counts_ways(self.task))),
            ("exposure", ways[self.exposure.name] + self._others(self.exposure, exposure_ways(self.task))),
        ]

    def _data(self) -> str:
        facts, shape = self.task.facts, _by(self.task.shape)
        if facts.storage == LISTED:
            return f"{shape}; {facts.listed:,} cells listed, {self._rest()}"
        if facts.storage == STORED:
            parts = f"{facts.parts:,} part{'s' * (facts.parts != 1)} on disk, {human(facts.on_disk, 'B')}"
            return f"{shape}; {facts.listed:,} cells in {parts}; {self._rest()}"
        if facts.unread:
            return (
                f"{shape} {facts.data_dtype.name}; missing cells are unknown until the data are read, some are assumed"
            )
        missing = f"{facts.missing / facts.cells:.1%} missing" if facts.missing else "nothing missing"
        where = f" on {facts.place}" if facts.place else ""
        return f"{shape} {facts.data_dtype.name}{where}; {missing}"

    def _rest(self) -> str:
        """Describe the cells that are not listed."""
        facts = self.task.facts
        holes = f", except {facts.holes:,} missing ones" if facts.holes else ""
        return {"zero": f"all others are zero{holes}", "missing": "all others are missing"}[facts.unlisted]

    def _others(self, chosen: Way, ways: Mapping[str, Way]) -> str:
        """Memory of the chosen way, and relative time of the alternatives."""
        if self.task.facts.unread and chosen is self.exposure:
            return ""
        made = f"; copied for this: {human(chosen.bytes, 'B')}" if chosen.bytes >= 1 << 20 else ""
        others = [f"{way.name} {way.times(chosen):.2g}x" for way in ways.values() if way.name != chosen.name]
        return made + (f" (alternatives: {', '.join(others)} the time)" if others and chosen.seconds else "")


@dataclass(frozen=True, repr=False)
class Plan:
    """The cost of a fit before it starts. Print it to see a summary.

    >>> import numpy as np, pltf
    >>> print(pltf.cp(rank=7).plan(np.ones((50, 40, 30), int), threads=2))  # doctest: +ELLIPSIS
    model     X[i,j,k] = A[i,r] * B[j,r] * C[k,r]  (r=7)
    engine    dense: X is an array
    X         50x40x30 int64; nothing missing
    counts    all cells (alternatives: sparse ...x the time)
    exposure  closed form (nothing is missing)
    compute   float64, 2 threads, one fused pass
    order     [j,r] [k,r] -> [j,k,r]; [i,r] [j,k,r] -> [i,j,k]
    memory    data 480.0 kB (not copied) + work ...
    sweep     ... Mflop, about ... us
    """

    model: Model
    asked: str  # "auto", "dense" or "sparse"
    dtype: np.dtype[Any]
    threads: int
    equations: tuple[TensorPlan, ...]
    pinned: Mapping[str, tuple[str, ...]] | None = None  # ways chosen by an earlier plan, by tensor
    held: int = HELD  # arrays of the size of the factors that a fit holds at the same time
    judges: bool = True  # whether a second fit estimates the dispersion
    device: Device | None = None  # where sums and factors are computed; None: the host
    cluster: Cluster | None = None  # its workers compute the sums over stores; None: this process
    crew: Crew | None = None  # these workers, at the time of planning
    site: Site | None = None  # the device of each process that sums the parts of stores; None: its CPU

    @property
    def engine(self) -> str:
        """How cells are visited for the counts: ``"dense"``, ``"sparse"`` or ``"parts"``."""
        return " and ".join(sorted({e.counts.name for e in self.equations}))

    @property
    def reason(self) -> str:
        """Why this engine was chosen."""
        if self.asked != "auto":
            return "as asked for"
        return "; ".join(_reason(e) for e in self.equations)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Size of every index."""
        return self.equations[0].task.sizes

    @property
    def factor_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of every factor, in model order."""
        return {name: tuple(self.sizes[i] for i in indices) for name, indices in self.model.factors.items()}

    def knowing(self, facts: Mapping[str, Facts], likelihoods: Mapping[str, str]) -> Plan:
        """Update the plan once the data are read. Keeps the number of list copies: free device memory changes."""
        plans = []
        for e in self.equations:
            task = replace(e.task, facts=facts[e.name], likelihood=likelihoods[e.name])
            ways = (self.pinned or {}).get(e.name)
            copies = e.copies if ways is None else ONE if ONE in ways else ALL
            device = device_for(task, self.device, self.site)
            plans.append(replace(plan_tensor(task, self.asked, ways, device), copies=copies))
        return replace(self, equations=tuple(plans))

    def with_room(self) -> Plan:
        """The plan with a single copy of each list, if the device has no memory for one per mode."""
        if self.device is None or self.device_bytes <= self.device.memory()[0]:
            return self
        return replace(self, equations=tuple(replace(e, copies=ONE) if e.has_lists else e for e in self.equations))

    @property
    def ways(self) -> dict[str, tuple[str, ...]]:
        """How counts and exposures of every tensor are computed, and whether a device holds each list only once."""
        return {e.name: (e.counts.name, e.exposure.name, *((ONE,) if e.copies == ONE else ())) for e in self.equations}

    @property
    def data_bytes(self) -> int:
        """Bytes of the data and masks, which are not copied."""
        return sum(equation.data_bytes for equation in self.equations)

    @property
    def work_bytes(self) -> int:
        """Memory of a fit besides the data: parameters, blocks, copies, and the second fit for the dispersion."""
        flight = max(e.flight_bytes * min(self.threads, e.pieces) for e in self.equations)
        made = sum(e.made_bytes for e in self.equations)
        listing = sum(e.listing_bytes for e in self.equations)
        return max(self.held * self._factor_bytes + flight, listing) + made + self._judging_bytes

    @property
    def _judging_bytes(self) -> int:
        if not self.judges:
            return 0
        return HELD_WHILE_JUDGING * self._factor_bytes + sum(e.judging_bytes for e in self.equations)

    @property
    def _factor_bytes(self) -> int:
        return 8 * sum(prod(shape) for shape in self.factor_shapes.values())

    @property
    def peak_bytes(self) -> int:
        """Memory of a fit: the data and :attr:`work_bytes`. Python, packages and kernels need 0.2 GB more."""
        return self.data_bytes + self.work_bytes

    def search_bytes(self, workers: int = 1, restarts: int = 10) -> int:
        """Memory of a search by ELBO, including the data, if this is the plan of its largest candidate.

        Includes the fit and its other restarts, and the parallel fits or the one that estimates the dispersion, which
        runs after them. Worker processes need 0.2 GB more each.

        >>> import numpy as np, pltf
        >>> plan = pltf.cp(rank=7).plan(np.ones((50, 40, 30), dtype=int), threads=1)
        >>> plan.search_bytes(workers=1, restarts=1) == plan.peak_bytes + 6 * 8 * 7 * (50 + 40 + 30)
        True
        """
        beside = (workers - 1) * (self.held * self._factor_bytes + max(e.flight_bytes for e in self.equations))
        more = max(beside - self._judging_bytes, 0)
        return self.peak_bytes + more + restarts * _HELD_BY_A_RUN * self._factor_bytes

    def predict_bytes(self, cells: int, draws: int = 1000) -> int:
        """Memory for predicting ``cells`` cells with intervals and probabilities, including the fit and its data.

        >>> import numpy as np, pltf
        >>> plan = pltf.cp(rank=7).plan(np.ones((50, 40, 30), dtype=int))
        >>> human(plan.predict_bytes(cells=1000), "B")
        '16.8 MB'
        """
        drawn = 2 * min(8 * draws * cells, _DRAWN)
        return self.data_bytes + _HELD_BY_PREDICTIONS * self._factor_bytes + drawn + _PREDICTED * cells

    @property
    def predict_device_bytes(self) -> int:
        """Memory that predictions need on the device, for any number of cells; 0 on the host."""
        if self.device is None:
            return 0
        from pltf.engines.torch import cost

        return cost.predict_bytes(self.device, self._factor_bytes // 8)

    @property
    def report_bytes(self) -> int:
        """Memory of a report, including the fit and its data."""
        zeros = sum(e.task.facts.listed for e in self.equations if e.task.facts.unlisted == "zero")
        return self.data_bytes + _HELD_BY_REPORTS * self._factor_bytes + _PAGE + _LOOKED_UP * zeros

    @property
    def flops(self) -> int:
        """Flops of one iteration."""
        return sum(equation.flops for equation in self.equations)

    @property
    def device_bytes(self) -> float:
        """Memory on the device: factors, cells and partial sums; 0 on the host.

        For cell stores, of each process, without the cells that may stay on the device.
        """
        from pltf.engines.torch import cost

        if self.site is not None:
            return max(self._of_parts(cost.bytes_of_parts))
        if self.device is None:
            return 0.0
        tensors = sum(cost.bytes_of(e, self.device) for e in self.equations)
        return HELD_ON_DEVICE * self._factor_bytes + tensors

    @property
    def room(self) -> float:
        """Device memory of each process for cells that stay there between passes."""
        return 0.0 if self.site is None else max(SHARE_OF_DEVICE * self.site.free - self.device_bytes, 0.0)

    @property
    def cells_bytes(self) -> float:
        """Device memory for the cells of all stores, if all of them stay there."""
        from pltf.engines.torch import cost

        return sum(self._of_parts(cost.cells_of_parts), 0.0)

    def _of_parts(self, cost: Callable[[Task, Device], float]) -> list[float]:
        """A cost of the sums over each store on a device."""
        return [] if self.site is None else [cost(e.task, self.site) for e in self.equations if e.on_site]

    @property
    def worker_bytes(self) -> int:
        """Memory that a cluster worker needs; 0 without a cluster."""
        if self.crew is None:
            return 0
        stored, threads = [e for e in self.equations if e.task.facts.storage == STORED], self.crew.threads
        return max(e.worker_bytes(len(threads), max(threads)) for e in stored)

    @property
    def seconds(self) -> float:
        """Approximate time of one iteration: this many threads of the machine in benchmarks/NOTES.md, or an H200."""
        if self.device is not None:
            from pltf.engines.torch import cost

            tensors = sum(map(cost.seconds_of, self.equations))
            return tensors + self._factor_bytes / 8 * cost.ENTRY_BYTES / cost.BANDWIDTH + cost.LAUNCHES * cost.LAUNCH
        threads = self.threads if self.crew is None else sum(self.crew.threads)
        parallel = sum(
            self._site_seconds(e) if e.on_site else e.seconds / min(threads, e.pieces) for e in self.equations
        )
        return parallel + 2e-8 * (self._factor_bytes // 8) + 2e-4

    def _site_seconds(self, plan: TensorPlan) -> float:
        """Approximate time of an iteration over a store on the devices of all processes."""
        from pltf.engines.torch import cost

        stay = min(self._devices * self.room / max(self.cells_bytes, 1.0), 1.0)
        return (plan.seconds + (1 - stay) * cost.feeding_seconds(plan)) / self._devices

    @property
    def _devices(self) -> int:
        return 1 if self.crew is None else len(self.crew.threads)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        sizes = ", ".join(f"{index}={size}" for index, size in self.model.sizes.items())
        rows = [("model", f"{e.equation}" + (f"  ({sizes})" if sizes else "")) for e in self.equations]
        rows.append(("engine", f"{self.engine}: {self.reason}"))
        rows += [row for e in self.equations for row in e.rows()]
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        where = threads if self.device is None else f"on {self.device.name} ({self.device.label})"
        cut = ", ".join(_work(e) for e in self.equations)
        where += "" if self.site is None else f", cells on disk on {self.site.name} ({self.site.label})"
        rows.append(("compute", f"{self.dtype.name}, {where}, {cut}"))
        rows += [("order", "; ".join(str(s.forward) for s in e.task.tree.steps) or "none") for e in self.equations]
        disk = sum(e.task.facts.on_disk for e in self.equations)
        held = [f"data {human(self.data_bytes, 'B')} (not copied)"] if self.data_bytes or not disk else []
        memory = " + ".join([*held, f"work {human(self.work_bytes, 'B')}"])
        memory += f"; cells {human(disk, 'B')} (on disk)" if disk else ""
        rows.append(("memory", f"{memory}; the program itself takes 0.2 GB"))
        if self.device is not None:
            free, total = (human(amount, "B") for amount in self.device.memory())
            once = any(e.copies == ONE for e in self.equations)
            lists = "; one sorted copy of each list, as there is no room for one for each mode" if once else ""
            rows.append(("device", f"{human(self.device_bytes, 'B')} of {free} free; it has {total}{lists}"))
        if self.site is not None:
            amounts = self.device_bytes, self.site.free, self.room, self.cells_bytes
            need, free, room, cells = (human(amount, "B") for amount in amounts)
            who = "" if self.crew is None else "each worker needs "
            stay = f"up to {room} of cells stay there between passes, of {cells} in all"
            rows.append(("device", f"{who}{need} of {free} free; {stay}"))
        if self.crew is not None:
            workers, count, each = len(self.crew.threads), sum(self.crew.threads), human(self.worker_bytes, "B")
            crew = f"{workers} worker{'s' * (workers > 1)}, {count} thread{'s' * (count > 1)} in all"
            least = human(self.crew.memory, "B")
            rows.append(("cluster", f"{crew}; each worker needs {each} + 0.3 GB for the program, of {least} at least"))
        rows.append(("sweep", f"{human(self.flops, 'flop')}, about {in_time(self.seconds)}"))
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _reason(plan: TensorPlan) -> str:
    facts = plan.task.facts
    storage = {DENSE: "is an array", LISTED: "lists its cells", STORED: "stays on disk"}[facts.storage]
    if plan.counts.name == facts.storage:
        return f"{plan.name} {storage}"
    about = "" if facts.exact else "about "
    return f"{plan.name} {storage}, but {about}{facts.positive / facts.cells:.2%} of its cells are above zero"


def _work(plan: TensorPlan) -> str:
    """How a pass visits the cells, as text."""
    if plan.task.is_cp:
        return "one fused pass"
    if plan.is_array and plan.counts.name == DENSE:
        return f"blocks of {_by(plan.dense.block)}: {plan.dense.n_blocks}"
    return "chains of contractions"


def device_for(task: Task, device: Device | None, site: Site | None) -> Device | None:
    """Where the sums over a tensor are computed; None: on the host.

    With cell stores the factors are on the host, and with them the sums over tensors in memory.
    """
    return site if task.facts.storage == STORED else device


def plan_tensor(
    task: Task, engine: str, pinned: tuple[str, ...] | None = None, device: Device | None = None
) -> TensorPlan:
    """The cheapest ways to visit one tensor, or those chosen by an earlier plan for these data."""
    task = replace(task, on_device=device is not None)
    counts, exposures = counts_ways(task), exposure_ways(task)
    if pinned is not None and pinned[0] in counts and pinned[1] in exposures:
        return TensorPlan(task, counts[pinned[0]], exposures[pinned[1]])
    memory = memory_there_is()[0] if device is None else device.memory()[1]
    return TensorPlan(task, *choose(task, engine, SHARE_OF_MEMORY * memory))


def plan_equation(
    equation: Equation,
    sizes: Mapping[str, int],
    data_dtype: np.dtype[Any],
    masked: bool,
    dtype: np.dtype[Any],
) -> EquationPlan:
    """Plan the sums over one observed tensor."""
    return EquationPlan(equation, dict(sizes), data_dtype, masked, dtype, plan_tree(equation, sizes))


def human(amount: float, unit: str) -> str:
    """A number with a readable unit.

    >>> human(27_000_000, "B")
    '27.0 MB'
    """
    for prefix in ("", "k", "M", "G", "T", "P", "E"):
        if amount < 1000 or prefix == "E":
            return f"{amount:.0f} {unit}" if not prefix else f"{amount:.1f} {prefix}{unit}"
        amount /= 1000
    raise AssertionError


def in_time(seconds: float) -> str:
    """A time with a readable unit.

    >>> in_time(0.0321)
    '32 ms'
    """
    unit, size = next((one for one in (("s", 1.0), ("ms", 1e-3)) if seconds >= one[1]), ("us", 1e-6))
    return f"{float(f'{seconds / size:.2g}'):g} {unit}"


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
