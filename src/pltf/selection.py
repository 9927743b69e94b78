"""How many components? Every size, model and prior of a grid, from many starts; the bound decides."""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.data import Observation
from pltf.data.values import brief
from pltf.engines.plan import human, physical_memory
from pltf.errors import PltfError, SelectionWarning, whole
from pltf.fit import Fit
from pltf.gamma import Array, Gamma
from pltf.inference.progress import Progress
from pltf.inference.race import BEHIND, Jobs, Restart, contest, drive
from pltf.inference.run import Row, Run, Stop
from pltf.inference.start import restart_seed
from pltf.inference.state import Problem, State
from pltf.matching import similarity
from pltf.notation import Model
from pltf.threads import available_threads, single_threaded_blas

if TYPE_CHECKING:
    import pandas as pd

    from pltf.api import Prepared

ALIKE = 0.9  # restarts with at least this similarity have found the same components
STATE_ARRAYS = 16  # arrays of the size of the factors that a run holds

Prior = Gamma | Mapping[str, Gamma] | None
Label = dict[str, Any]  # what tells a candidate from the others: sizes, model, prior


def select(
    model: Model | Sequence[Model],
    X: Any,
    *,
    mask: Any = None,
    prior: Prior | Sequence[Prior] = None,
    restarts: int = 10,
    seed: int | None = 0,
    max_iter: int = 2000,
    tol: float = 1e-6,
    init: str = "prior",
    fixed: Mapping[str, Any] | None = None,
    dtype: Any = "float64",
    engine: str = "auto",
    accelerate: bool = True,
    race: bool = True,
    workers: int | None = None,
    progress: bool = True,
    **sizes: int | Iterable[int],
) -> Selection:
    """Fit a model at every size of a grid, from several starts each; the highest bound wins.

    Parameters
    ----------
    model
        A model, or several: their bounds can be compared as long as they describe the same tensors.
    X, mask, max_iter, tol, init, fixed, dtype, engine, accelerate
        As for :meth:`pltf.Model.fit`; the method is variational Bayes.
    prior
        As for :meth:`pltf.Model.fit`, or a list of such priors: each of them is tried.
    restarts, seed
        Starts of each candidate. A run equals the single fit with its sizes, its prior and its seed (see ``table``).
    race
        Drop restarts that are clearly behind another one of the same candidate. False: run all of them to the end.
    workers
        Fits at a time (default: one a core). Their number does not change a bit of any result. The data are shared.
    progress
        Show a bar with the time left on a terminal. Ctrl-C ends the search and gives what is finished.
    sizes
        Sizes to try for latent indices, such as ``r=range(2, 11)``; several of them make a grid. An index that is not
        named keeps the size that its model has.

    >>> import pltf, pltf.datasets
    >>> X = pltf.datasets.draw(pltf.cp(rank=2), (15, 15, 15), prior=pltf.Gamma(0.5, 2.0), seed=0).counts["X"]
    >>> found = pltf.select(pltf.cp(rank=1), X, r=range(1, 5), restarts=3)
    >>> found.best
    {'r': 2}
    >>> found.best_fit.factors["A"].mean.shape
    (15, 2)
    >>> list(found.table.columns)
    ['r', 'restart', 'seed', 'bound', 'sweeps', 'converged', 'stopped', 'seconds']
    """
    from pltf import api  # brings the compiler, which `import pltf` should not wait for

    models = _models(model)
    options = _Options(
        restarts=whole("restarts", restarts, 1),
        seed=api.seed_of(seed),
        stop=Stop(whole("max_iter", max_iter, 1), api.tolerance(tol)),
        racing=api.flag("race", race),
    )
    if not isinstance(init, str):
        raise PltfError(f"init must be 'prior' or 'random' in a search, got {type(init).__name__}")
    shown = api.flag("progress", progress)
    candidates = _candidates(models, _priors(prior), _grid(models, sizes))
    data, masks = api.tensors(models[0], X, mask)
    workers = available_threads() if workers is None else whole("workers", workers, 1)
    threads = max(1, available_threads() // min(workers, len(candidates) * options.restarts))
    settings = {"init": init, "fixed": fixed, "dtype": dtype, "engine": engine, "accelerate": accelerate}
    cells = []
    for label, one, chosen in candidates:
        ready = api.prepare(one, data, masks, method="vb", prior=chosen, threads=threads, **settings)
        _check_memory(ready, label, options.restarts)
        cells.append(_Cell(label, ready, options))
    seen = api.observations(data, masks)
    with single_threaded_blas, Progress(shown, sum(cell.work for cell in cells), time_left=True) as bar:
        return _search(cells, seen, workers, options, bar)


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """The result of a search: every run, the winner, and how sure that is.

    >>> import numpy as np, pltf
    >>> X = np.kron(np.diag([9, 5, 7]), np.ones((5, 4)))
    >>> found = pltf.select(pltf.nmf(rank=1), X, r=range(1, 6), restarts=3)
    >>> found.best
    {'r': 3}
    >>> found.summary()[["r", "gap", "agree"]].head(1)
       r  gap  agree
    0  3  0.0    1.0
    """

    outcomes: tuple[Outcome, ...]  # of every candidate with a run, in the order of the grid
    best_fit: Fit
    best: Label  # {"r": 7}; with "model" and "prior" where there were several
    edges: Mapping[str, str]  # indices at the end of their range: "smallest" or "largest"
    failures: tuple[Mapping[str, Any], ...]  # candidates that failed, each with its "error"
    interrupted: bool
    n_candidates: int
    seed: int

    @property
    def table(self) -> pd.DataFrame:
        """One row a run: what was tried, restart, seed, bound, sweeps, whether and why it stopped, seconds.

        >>> import numpy as np, pltf
        >>> X = np.eye(6) + 1
        >>> table = pltf.select(pltf.nmf(rank=1), X, r=[1, 2], restarts=2).table
        >>> row = table.iloc[3]
        >>> bool(pltf.nmf(rank=row["r"]).fit(X, seed=row["seed"]).bound == row["bound"])
        True
        """
        return _frame([(one.label, _told(row, self.seed)) for one in self.outcomes for row in one.rows])

    def summary(self) -> pd.DataFrame:
        """One row a candidate, the best first.

        ``best``, ``mean``, ``sd``: of the bounds of its restarts, dropped ones where they stood. ``gap``: from its best to
        the winner's. ``weight``: its probability, had all candidates the same beforehand and were the bound the
        evidence. ``agree``: the share of its restarts that found the same components as its best one (similarity of
        0.9 or more, see :func:`pltf.match`), and ``similarity`` the mean. ``dropped``: restarts that lost the race.
        ``edge``: whether the winner has the largest or the smallest size tried.
        """
        best = np.array([one.bound for one in self.outcomes])
        weight = np.exp(best - best.max())
        rows = [
            (
                one.label,
                {
                    "best": one.bound,
                    "mean": one.bounds.mean(),
                    "sd": one.bounds.std(ddof=1) if len(one.bounds) > 1 else 0.0,
                    "gap": one.bound - best.max(),
                    "weight": share,
                    "restarts": len(one.rows),
                    "agree": float((one.alike >= ALIKE).mean()),
                    "similarity": float(one.alike.mean()),
                    "dropped": sum(row.stopped == BEHIND for row in one.rows),
                    "seconds": sum(row.seconds for row in one.rows),
                    "edge": ", ".join(f"{end} {i}" for i, end in self.edges.items()) if one.label == self.best else "",
                },
            )
            for one, share in zip(self.outcomes, weight / weight.sum(), strict=True)
        ]
        return _frame(rows).sort_values("best", ascending=False, kind="stable", ignore_index=True)

    def plot(self, axes: Any = None) -> Any:
        """The bound against each size that was varied, with every run; returns the axes."""
        from pltf.plotting import search

        return search(self, axes)

    def __repr__(self) -> str:
        first, *others = sorted((one.bound for one in self.outcomes), reverse=True)
        winner = self.summary().iloc[0]
        lead = f"{first - others[0]:,.1f} nats above the next" if others else "the only candidate"
        runs = sum(len(one.rows) for one in self.outcomes)
        lines = [
            f"<Selection of {self.best_fit.model!r}",
            f"  best     {_shown(self.best)}: bound {first:.6f}, {lead}",
            f"  restarts {winner['agree']:.0%} of {winner['restarts']} found the same components",
            f"  search   {len(self.outcomes)} candidates, {runs} runs, {self.table['seconds'].sum():.1f} s of fitting",
        ]
        return "\n".join([*lines, *(f"  doubt    {text}" for text in _doubts(self))]) + ">"


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of one candidate."""

    label: Label
    rows: tuple[Row, ...]  # of its restarts
    alike: Array  # similarity of each with the best of them

    @property
    def bounds(self) -> Array:
        """Of its restarts."""
        return np.array([row.bound for row in self.rows])

    @property
    def bound(self) -> float:
        """Of its best restart."""
        return float(self.bounds.max())


@dataclass(frozen=True)
class _Options:
    restarts: int
    seed: int
    stop: Stop
    racing: bool


class _Cell:
    """A candidate on its way."""

    def __init__(self, label: Label, ready: Prepared, options: _Options) -> None:
        self.label, self.ready, self._options = label, ready, options
        self._every: list[Restart] = []
        self._ended: list[int] = []
        self._weight = sum(map(prod, ready.planned.factor_shapes.values()))  # a sweep costs about so much

    @property
    def work(self) -> float:
        """All of it, in units of no meaning."""
        return self._weight * self._options.restarts

    @property
    def done(self) -> float:
        """How much of it is done."""
        return self._weight * len(self._ended)

    def jobs(self, seen: Mapping[str, Observation], interrupted: threading.Event) -> Jobs[tuple[Outcome, Run] | None]:
        """Everything that there is to do."""
        (problem,) = yield [partial(self.ready.problem, seen)]
        stop = replace(self._options.stop, callback=lambda _: interrupted.is_set())
        self._every = [self._restart(number, problem, stop) for number in range(self._options.restarts)]
        yield from contest(self._every, stop.max_iter, self._options.racing, self._tell)
        settled: list[tuple[Outcome, Run] | None] = yield [self.settled]
        return settled[0]

    def _restart(self, number: int, problem: Problem, stop: Stop) -> Restart:
        def begin(own: Problem) -> State:
            start, _ = self.ready.starting(own, self._options.seed)
            return start(number)

        return Restart(number, problem, self.ready.method, begin, stop)

    def _tell(self, run: Run) -> None:
        self._ended.append(run.restart)  # from any thread

    def settled(self) -> tuple[Outcome, Run] | None:
        """What came of the runs that have ended, and the best of them."""
        runs = [self._every[number].run for number in sorted(self._ended)]
        if not runs:
            return None
        self._every = []  # their states are large
        best = max(runs, key=lambda run: run.objective)
        planned = self.ready.planned
        alike = [similarity(planned.model, planned.sizes, best.state.E, run.state.E) for run in runs]
        return Outcome(self.label, tuple(run.row for run in runs), np.array(alike)), best


def _search(
    cells: Sequence[_Cell], seen: Mapping[str, Observation], workers: int, options: _Options, bar: Progress
) -> Selection:
    """Run all cells; the winner is the first of those with the highest bound."""
    interrupted = threading.Event()
    outcomes: dict[int, Outcome] = {}
    failures: dict[int, Exception] = {}
    winner: tuple[int, Run] | None = None

    def take(number: int, settled: tuple[Outcome, Run] | None) -> None:
        nonlocal winner
        if settled is None:
            return
        outcomes[number], run = settled
        if winner is None or (-run.objective, number) < (-winner[1].objective, winner[0]):
            winner = number, run

    def show() -> None:
        leader = f"; best so far {_shown(cells[winner[0]].label)}: {winner[1].objective:.6g}" if winner else ""
        bar.show(sum(cell.done for cell in cells), f"{len(outcomes)} of {len(cells)} candidates{leader}")

    ends = drive((cell.jobs(seen, interrupted) for cell in cells), workers, show)
    try:
        for number, end in ends:
            if isinstance(end, Exception):
                failures[number] = end
            else:
                take(number, end)
    except KeyboardInterrupt:
        interrupted.set()
        ends.close()
        for number, cell in enumerate(cells):
            if number not in outcomes and number not in failures:
                take(number, cell.settled())
        if winner is None:
            raise
    if winner is None:
        raise next(iter(failures.values()))
    return _selection(cells, seen, options, outcomes, failures, winner, interrupted.is_set())


def _selection(
    cells: Sequence[_Cell],
    seen: Mapping[str, Observation],
    options: _Options,
    outcomes: Mapping[int, Outcome],
    failures: Mapping[int, Exception],
    winner: tuple[int, Run],
    interrupted: bool,
) -> Selection:
    number, run = winner
    ready, label = cells[number].ready, cells[number].label
    problem = ready.problem(seen)
    found = Selection(
        outcomes=tuple(outcomes[n] for n in sorted(outcomes)),
        best_fit=ready.result(problem, run, outcomes[number].rows, options.seed, seen),
        best=dict(label),
        edges=_edges(ready.model, [cell.ready.model for cell in cells]),
        failures=tuple({**cells[n].label, "error": str(failures[n])} for n in sorted(failures)),
        interrupted=interrupted,
        n_candidates=len(cells),
        seed=options.seed,
    )
    ready.warn_of(run, options.stop, problem.total, stacklevel=5)
    for text in _doubts(found):
        warnings.warn(text, SelectionWarning, stacklevel=4)
    return found


def _doubts(found: Selection) -> list[str]:
    """What a user should know about a search, one sentence each."""
    texts = []
    if found.interrupted:
        texts.append(
            f"the search was interrupted: {len(found.outcomes)} of {found.n_candidates} candidates have results"
        )
    if found.failures:
        first = found.failures[0]
        label = {name: value for name, value in first.items() if name != "error"}
        texts.append(
            f"{len(found.failures)} of {found.n_candidates} candidates failed; {_shown(label)}: {first['error']}"
        )
    if found.edges:
        ends = " and ".join(f"the {end} {index} tried" for index, end in found.edges.items())
        texts.append(f"the best candidate ({_shown(found.best)}) has {ends}: widen the grid")
    return texts


# -- what is to be tried ------------------------------------------------------------------------


def _models(given: Any) -> list[Model]:
    models = [given] if isinstance(given, Model) else list(given) if isinstance(given, (list, tuple)) else []
    if not models or not all(isinstance(one, Model) for one in models):
        raise PltfError(f"model must be a Model or a list of them, got {brief(given)}")
    first = models[0]
    for one in models:
        if dict(one.observed) != dict(first.observed):
            shown = [", ".join(str(e.output) for e in model.equations) for model in (first, one)]
            raise PltfError(f"models can be compared only on the same tensors, got {shown[0]} and {shown[1]}")
    return models


def _priors(given: Any) -> list[Prior]:
    priors = list(given) if isinstance(given, (list, tuple)) else [given]
    if not priors:
        raise PltfError("prior is an empty list: nothing to try")
    return priors


def _grid(models: Sequence[Model], sizes: Mapping[str, Any]) -> dict[str, list[int]]:
    """The sizes to try for each index, each once."""
    latent = list(dict.fromkeys(index for one in models for index in one.sizes))
    observed = {index: name for name, indices in models[0].observed.items() for index in indices}
    grid = {}
    for index, given in sizes.items():
        if index in observed:
            raise PltfError(f"index '{index}' is observed in {observed[index]}: its size comes from the data")
        if index not in latent:
            known = ", ".join(latent) or "none"
            raise PltfError(
                f"unknown argument '{index}': it is no option, and the latent indices to be sized are {known}"
            )
        if isinstance(given, (str, Mapping)) or not (isinstance(given, Iterable) or np.ndim(given) == 0):
            raise PltfError(f"sizes of '{index}' must be whole numbers, got {brief(given)}")
        values = list(given) if isinstance(given, Iterable) else [given]
        if not values:
            raise PltfError(f"sizes of '{index}' are empty: nothing to try")
        grid[index] = list(dict.fromkeys(whole(f"sizes of '{index}'", value, 1) for value in values))
    return grid


def _candidates(
    models: Sequence[Model], priors: Sequence[Prior], grid: Mapping[str, list[int]]
) -> list[tuple[Label, Model, Prior]]:
    """Every model at every size with every prior, each once and with what tells it from the others."""
    several = len({one.text for one in models}) > 1
    found: dict[tuple[Model, int], tuple[Label, Model, Prior]] = {}
    for one in models:
        varied = {index: sizes for index, sizes in grid.items() if index in one.sizes}
        for values in itertools.product(*varied.values()):
            sized = one.resized(**dict(zip(varied, values, strict=True)))
            for number, prior in enumerate(priors):
                label: Label = {"model": one.text} if several else {}
                label |= sized.sizes
                label |= {"prior": _named(prior)} if len(priors) > 1 else {}
                found.setdefault((sized, number), (label, sized, prior))
    return list(found.values())


def _named(prior: Prior) -> str:
    if isinstance(prior, Mapping):
        return ", ".join(f"{factor}: {one!r}" for factor, one in prior.items())
    return "default" if prior is None else repr(prior)


def _check_memory(ready: Prepared, label: Label, restarts: int) -> None:
    entries = sum(map(prod, ready.planned.factor_shapes.values()))
    need, have = 8 * STATE_ARRAYS * entries * restarts, physical_memory()
    if need > have:
        what = f"{restarts} restarts of {_shown(label)} need {human(need, 'B')}"
        raise PltfError(f"{what} beside the data, and this machine has {human(have, 'B')}: lower restarts")


def _edges(winner: Model, tried: Iterable[Model]) -> dict[str, str]:
    """Where the winner has the largest or the smallest of several sizes of an index; size 1 is no edge."""
    alike = [one for one in tried if one.text == winner.text]
    edges = {}
    for index, size in winner.sizes.items():
        values = {one.sizes[index] for one in alike}
        if len(values) > 1 and size == max(values):
            edges[index] = "largest"
        elif len(values) > 1 and size == min(values) > 1:
            edges[index] = "smallest"
    return edges


# -- words and tables ---------------------------------------------------------------------------


def _shown(label: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in label.items()) or "the model"


def _told(row: Row, seed: int) -> dict[str, Any]:
    """A run in the table of all."""
    told = vars(row) | {"seed": restart_seed(seed, row.restart), "sweeps": row.n_iter}
    return {name: told[name] for name in ("restart", "seed", "bound", "sweeps", "converged", "stopped", "seconds")}


def _frame(rows: Sequence[tuple[Label, Mapping[str, Any]]]) -> pd.DataFrame:
    """A table with what was tried on the left; sizes that a model does not have are missing."""
    import pandas as pd

    names = dict.fromkeys(name for label, _ in rows for name in label)
    sizes = [name for name in names if name not in ("model", "prior")]
    order = [*(name for name in names if name == "model"), *sizes, *(name for name in names if name == "prior")]
    table = pd.DataFrame([{**label, **told} for label, told in rows])
    some = [name for name in sizes if table[name].isna().any()]
    return table[[*order, *rows[0][1]]].astype(dict.fromkeys(some, "Int64"))
