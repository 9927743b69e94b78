"""How well each candidate predicts hidden cells: it is fitted to the rest of the data, fold by fold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pltf.data import Observation
from pltf.errors import PltfError, py
from pltf.gamma import Array
from pltf.inference.race import BEHIND
from pltf.inference.run import Run
from pltf.inference.state import Problem
from pltf.likelihoods import BERNOULLI, POISSON
from pltf.metrics.measures import Judged
from pltf.prediction.dispersion import Dispersion
from pltf.selection.choice import FoldScores
from pltf.selection.folds import ENOUGH, LEAST, Data, Fold, HiddenCells, hidden_share
from pltf.selection.grid import Label
from pltf.selection.search import Candidate, Here, Options, RemoteProblem, Source
from pltf.threads import single_threaded_blas
from pltf.workers import Job, Task

if TYPE_CHECKING:
    from pltf.fit import Fit
    from pltf.fitting import Prepared

# Measured: benchmarks/NOTES.md
TOLERANCE = 1e-5  # of a fit to a fold, unless a coarser one is asked for
SHARE = 4  # restarts of a candidate per restart in a fold
TWO_FROM = 5  # restarts from which on a fold has at least two
FEWEST_STARTS = 2  # in each fold, for hidden cells to choose unasked
DRAWS = 100  # of the posterior, for the log-likelihood of hidden cells
FEWEST_HIDDEN = 200  # hidden cells that can tell how much counts vary beyond Poisson
LOWEST = -1e6  # log-likelihood of a cell that a fixed factor makes impossible
_TINY = float(np.finfo(np.float64).tiny)

LOG_LIKELIHOOD, RANKING = "log_likelihood", ("auc", "average_precision")
SCORES = (LOG_LIKELIHOOD, *RANKING)


def fold_options(options: Options, likelihood: Any = POISSON) -> Options:
    """The options of a fit to a fold: few restarts and a coarse tolerance, for there are many of them.

    The likelihood is that of all data: what a fold leaves may look otherwise.
    """
    fitting = replace(
        options.fitting,
        likelihood=likelihood,
        restarts=max(2 if options.restarts >= TWO_FROM else 1, round(options.restarts / SHARE)),
        tol=max(options.fitting.tol, TOLERANCE),
        keep_data=False,
    )
    return replace(options, fitting=fitting)


class FoldOutcome(NamedTuple):
    """What came of a candidate in one fold."""

    bounds: Array  # of its restarts
    scores: Array  # (restarts, blocks)
    sweeps: int
    seconds: float


class FoldCandidate(Candidate):
    """A candidate that is fitted to one fold and has to predict the hidden cells."""

    def __init__(self, label: Label, ready: Prepared, options: Options, fold: int, score: str) -> None:
        super().__init__(label, ready, options)
        self.fold, self.score = fold, score
        self.scores = dict[int, Array]()  # of the restarts that were not dropped

    def task(self, number: int, source: Source) -> Task:
        """Fit, then score."""
        yield from super().task(number, source)
        data = source.data if isinstance(source, Here) else None
        yield [
            Job(
                scored,
                (self._problem, self.ready, run, self._options.seed, data, self.fold, self.score),
                partial(self.scores.__setitem__, run.restart),
            )
            for run in self.ended
            if run.stopped != BEHIND
        ]

    def result(self) -> FoldOutcome | None:
        """What came of it, if all of it was done; a restart that was dropped counts as the worst."""
        runs = self.ended
        to_score = {run.restart for run in runs if run.stopped != BEHIND}
        if len(runs) < self._options.restarts or not to_score or self.scores.keys() != to_score:
            return None  # it was interrupted
        nothing = np.full_like(next(iter(self.scores.values())), np.nan)
        bounds = np.array([run.objective if run.restart in to_score else -np.inf for run in runs])
        scores = np.stack([self.scores.get(run.restart, nothing) for run in runs])
        return FoldOutcome(bounds, scores, sum(len(run.trace) for run in runs), sum(run.seconds for run in runs))

    def clear(self) -> None:
        """Let go of states, scores and data."""
        super().clear()
        self.scores = {}


@dataclass(eq=False)
class FoldFindings:
    """All that has come of the folds so far; candidate ``n`` has those from ``n * folds`` on."""

    folds: int
    outcomes: dict[int, FoldOutcome] = field(default_factory=dict)
    failures: dict[int, Exception] = field(default_factory=dict)
    interrupted: bool = False

    def take(self, number: int, candidate: FoldCandidate) -> None:
        """Add what came of a candidate in a fold."""
        result = candidate.result()
        if result is not None:
            self.outcomes[number] = result

    def told(self, candidates: Sequence[Candidate]) -> str:
        """How far it is, in words."""
        return f"{len(self.outcomes)} of {len(candidates)} fits to folds"

    def scores(self) -> dict[int, FoldScores]:
        """The scores of the candidates that are through with all folds."""
        found = {}
        for first in range(0, max(self.outcomes, default=-1) + 1, self.folds):
            parts = [self.outcomes.get(first + fold) for fold in range(self.folds)]
            whole = [one for one in parts if one is not None]
            if len(whole) == self.folds:
                bounds, scores, sweeps, seconds = zip(*whole, strict=True)
                found[first // self.folds] = FoldScores(np.stack(bounds), np.stack(scores), sum(sweeps), sum(seconds))
        return found

    def failed(self) -> dict[int, Exception]:
        """The candidates that failed in one of the folds."""
        return {number // self.folds: self.failures[number] for number in sorted(self.failures, reverse=True)}


def scored(
    source: Problem | RemoteProblem,
    ready: Prepared,
    run: Run,
    seed: int,
    data: Data | None,
    fold: int,
    score: str,
) -> Array:
    """The score of each block of a fold's hidden cells under a run; done by a worker."""
    if isinstance(source, RemoteProblem):
        data = source.data
        source = source.problem()
    assert data is not None
    problem = replace(source, engine=source.engine.fresh())  # others may run beside this one
    with single_threaded_blas:
        fit = ready.result(problem, run, (run.row,), seed, data.part(fold))
        hidden = data.folds[fold]
        if score in RANKING:
            return ranked(fit, hidden, score)
        return log_likelihood(fit, hidden, seed, ready.options.dispersion)


def log_likelihood(fit: Fit, fold: Fold, seed: int, dispersion: float | str | None = None) -> Array:
    """Mean posterior-predictive log-likelihood of a hidden cell, for each block of a fold.

    Counts vary beyond Poisson as ``dispersion`` says: as the fit has it, None, by a size, or as the hidden cells do.
    """
    total, cells = np.zeros((2, fold.n_blocks))
    for name, hidden in fold.hidden.items():
        if hidden.values.size:
            ask = None if fit.likelihoods.get(name) == BERNOULLI else dispersion
            found = _log_prob(_scaled(fit, name, hidden.correction), name, hidden, seed, ask)
            total += np.bincount(hidden.blocks, hidden.weights * np.maximum(found, LOWEST), fold.n_blocks)
            cells += np.bincount(hidden.blocks, hidden.weights, fold.n_blocks)
    mean: Array = total / cells
    return mean


def _scaled(fit: Fit, name: str, correction: float) -> Fit:
    """The fit with the rates of a tensor times a number."""
    equation = next(one for one in fit.model.equations if one.output.name == name)
    a = next((term.name for term in equation.factors if term.name in fit.D), None)
    if correction == 1 or a is None:
        return fit
    return replace(fit, D={**fit.D, a: fit.D[a] * correction})


def _log_prob(fit: Fit, name: str, hidden: HiddenCells, seed: int, dispersion: float | str | None) -> Array:
    """Log-probability of each hidden cell of a tensor.

    Where counts vary beyond Poisson, a score that allows none of it is made by a few cells with large counts. So the
    cells that judge a candidate also say how much its counts vary: that is how its predictions would be used.
    """
    from pltf.dispersion import HeldBack, likeliest  # brings optimizers, which `import pltf` should not wait for

    if dispersion is None or (isinstance(dispersion, str) and not _may_vary(hidden.values)):
        at = tuple(hidden.cells)
        return fit.log_prob(at, hidden.values, draws=DRAWS, seed=seed, of=name, progress=False)
    mean = fit.mean(hidden.cells.T, of=name, progress=False)
    variance = fit.var(hidden.cells.T, of=name, progress=False)
    each = hidden.weights / hidden.weights[hidden.values > 0].max(initial=_TINY)  # so that a non-zero counts once
    held = HeldBack(hidden.cells, hidden.values, each, mean, variance)
    return held.log_prob(likeliest(held) if isinstance(dispersion, str) else Dispersion(float(dispersion)))


def _may_vary(values: Array) -> bool:
    """Whether hidden cells can tell how much counts vary: many of them, whole, and not only zeros and ones."""
    enough = values.size >= FEWEST_HIDDEN and np.count_nonzero(values) >= ENOUGH / 2
    return bool(enough and values.max() > 1 and not (values % 1).any())


def ranked(fit: Fit, fold: Fold, score: str) -> Array:
    """AUC or average precision of the hidden cells of a fold, its mean over the tensors that have both kinds."""
    found = []
    for name, hidden in fold.hidden.items():
        positive = hidden.values > 0
        if positive.any() and not positive.all():
            mean = fit.mean(at=tuple(hidden.cells), of=name, progress=False)
            measures = Judged(hidden.values, mean, np.zeros_like(mean)).weighted(hidden.weights)
            found.append(measures[RANKING.index(score)])
    return np.array([np.mean(found)])


def check_enough(seen: Mapping[str, Observation], count: int, score: str) -> None:
    """Refuse to hide cells of data that have too few non-zeros."""
    positive, share = hidden_share(seen, count)
    if positive * share < LEAST:
        least = math.ceil(LEAST / share)
        text = f"needs at least {least} observed non-zeros, to hide {share:.0%} of them {count} times"
        other = "" if score == LOG_LIKELIHOOD else f" and {py:score='log_likelihood'}"
        raise PltfError(f"{py:criterion='heldout'} {text}; got {positive}: use {py:criterion='bound'}{other}")


def check_rankable(folds: Sequence[Fold], score: str) -> None:
    """Refuse to rank where there is nothing to tell apart."""
    for fold in folds if score in RANKING else ():
        kinds = [{bool(kind) for kind in hidden.values > 0} for hidden in fold.hidden.values()]
        if all(len(one) < 2 for one in kinds):
            text = f"{py:score={score!r}} needs zeros and non-zeros among the hidden cells, and there is only one kind"
            raise PltfError(f"{text}: use {py:score='log_likelihood'}")
