"""Held-out scores: each candidate is fitted to the training data of every fold and predicts the held-out cells."""

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
from pltf.metrics.measures import RANKING, Judged
from pltf.prediction.dispersion import Dispersion
from pltf.selection.choice import FoldScores
from pltf.selection.folds import ENOUGH, LEAST, Data, Fold, HiddenCells, hidden_share
from pltf.selection.grid import Label
from pltf.selection.search import Candidate, Here, RemoteProblem, Source
from pltf.threads import single_threaded_blas
from pltf.workers import Job, Task

if TYPE_CHECKING:
    from pltf.fit import Fit
    from pltf.fitting import PreparedFit
    from pltf.options import FitOptions

# Measured: benchmarks/NOTES.md
TOLERANCE = 1e-5  # tolerance of fits to folds, unless a coarser one is given
SHARE = 4  # number of restarts of a candidate per restart in a fold
TWO_FROM = 5  # restarts that give a fold at least two
FEWEST_STARTS = 2  # in each fold, for criterion="auto" to use held-out cells
DRAWS = 100  # posterior draws for the held-out log-likelihood
FEWEST_HIDDEN = 200  # held-out cells needed to estimate the overdispersion
LOWEST = -1e6  # log-likelihood of a cell that a fixed factor makes impossible
_TINY = float(np.finfo(np.float64).tiny)

LOG_LIKELIHOOD = "log_likelihood"
SCORES = (LOG_LIKELIHOOD, *RANKING)


def fold_options(options: FitOptions, likelihood: Any = POISSON) -> FitOptions:
    """Options of a fit to a fold: few restarts and a coarse tolerance, because there are many fits.

    The likelihood is chosen from all data; the training data of a fold may look different.
    """
    return replace(
        options,
        likelihood=likelihood,
        restarts=max(2 if options.restarts >= TWO_FROM else 1, round(options.restarts / SHARE)),
        tol=max(options.tol, TOLERANCE),
        keep_data=False,
    )


class FoldOutcome(NamedTuple):
    """Result of a candidate in one fold."""

    bounds: Array  # of its restarts
    scores: Array  # (restarts, blocks)
    sweeps: int
    seconds: float


class FoldCandidate(Candidate):
    """A candidate that is fitted to the training data of one fold and predicts its held-out cells."""

    def __init__(self, label: Label, ready: PreparedFit, race: bool | None, fold: int, score: str) -> None:
        super().__init__(label, ready, race)
        self.fold, self.score = fold, score
        self.scores = dict[int, Array]()  # runs of the restarts that were not dropped

    def task(self, number: int, source: Source) -> Task:
        """Fit, then score."""
        yield from super().task(number, source)
        data = source.data if isinstance(source, Here) else None
        yield [
            Job(
                scored,
                (self._problem, self.ready, run, data, self.fold, self.score),
                partial(self.scores.__setitem__, run.restart),
            )
            for run in self.ended
            if run.stopped != BEHIND
        ]

    def result(self) -> FoldOutcome | None:
        """The result, if complete; a dropped restart counts as the worst."""
        runs = self.ended
        to_score = {run.restart for run in runs if run.stopped != BEHIND}
        if len(runs) < self.restarts or not to_score or self.scores.keys() != to_score:
            return None  # it was interrupted
        nothing = np.full_like(next(iter(self.scores.values())), np.nan)
        bounds = np.array([run.objective if run.restart in to_score else -np.inf for run in runs])
        scores = np.stack([self.scores.get(run.restart, nothing) for run in runs])
        return FoldOutcome(bounds, scores, sum(len(run.trace) for run in runs), sum(run.seconds for run in runs))

    def clear(self) -> None:
        """Release states, scores and data."""
        super().clear()
        self.scores = {}


@dataclass(eq=False)
class FoldFindings:
    """Results of all folds so far; those of candidate ``n`` start at ``n * folds``."""

    folds: int
    outcomes: dict[int, FoldOutcome] = field(default_factory=dict)
    failures: dict[int, Exception] = field(default_factory=dict)
    interrupted: bool = False

    def take(self, number: int, candidate: Candidate) -> None:
        """Add the result of a candidate in a fold."""
        assert isinstance(candidate, FoldCandidate)
        result = candidate.result()
        if result is not None:
            self.outcomes[number] = result

    def told(self, candidates: Sequence[Candidate]) -> str:
        """Progress as text."""
        return f"{len(self.outcomes)} of {len(candidates)} fits to folds"

    def scores(self) -> dict[int, FoldScores]:
        """The scores of the candidates that have finished all folds."""
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
    ready: PreparedFit,
    run: Run,
    data: Data | None,
    fold: int,
    score: str,
) -> Array:
    """The score of each block of held-out cells of a fold for a run; executed by a worker."""
    if isinstance(source, RemoteProblem):
        data = source.data
        source = source.problem()
    assert data is not None
    problem = replace(source, engine=source.engine.fresh())  # others may run concurrently
    with single_threaded_blas:
        fit = ready.result(problem, run, (run.row,), data.part(fold))
        hidden = data.folds[fold]
        if score in RANKING:
            return ranked(fit, hidden, score)
        return log_likelihood(fit, hidden, ready.seed, ready.options.dispersion)


def log_likelihood(fit: Fit, fold: Fold, seed: int, dispersion: float | str | None = None) -> Array:
    """Mean posterior predictive log-likelihood of a held-out cell, for each block of a fold.

    ``dispersion``: that of the fit, None, a size, or estimated from the held-out cells.
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
    a = next((term.name for term in fit._equation(name).factors if term.name in fit.D), None)
    if correction == 1 or a is None:
        return fit
    return replace(fit, D={**fit.D, a: fit.D[a] * correction})


def _log_prob(fit: Fit, name: str, hidden: HiddenCells, seed: int, dispersion: float | str | None) -> Array:
    """Log-probability of each held-out cell of a tensor.

    If counts are overdispersed, a Poisson score is dominated by a few cells with large counts. So the overdispersion of
    a candidate is estimated from the same held-out cells, as for its predictions.
    """
    from pltf.dispersion import HeldBack, likeliest  # imported late: it imports optimizers

    if dispersion is None or (isinstance(dispersion, str) and not _may_vary(hidden.values)):
        at = tuple(hidden.cells)
        return fit.log_prob(at, hidden.values, draws=DRAWS, seed=seed, of=name, progress=False)
    each = hidden.weights / hidden.weights[hidden.values > 0].max(initial=_TINY)  # so that a non-zero has weight one
    held = HeldBack.of(fit, name, hidden.cells, hidden.values, each)
    return held.log_prob(likeliest(held) if isinstance(dispersion, str) else Dispersion(float(dispersion)))


def _may_vary(values: Array) -> bool:
    """Whether the overdispersion can be estimated from held-out cells: enough whole counts, not only 0 and 1."""
    enough = values.size >= FEWEST_HIDDEN and np.count_nonzero(values) >= ENOUGH / 2
    return bool(enough and values.max() > 1 and not (values % 1).any())


def ranked(fit: Fit, fold: Fold, score: str) -> Array:
    """AUC or average precision of the held-out cells of a fold: mean over the tensors with both zeros and non-zeros."""
    found = []
    for name, hidden in fold.hidden.items():
        positive = hidden.values > 0
        if positive.any() and not positive.all():
            mean = fit.mean(at=tuple(hidden.cells), of=name, progress=False)
            measures = Judged(hidden.values, mean, np.zeros_like(mean)).weighted(hidden.weights)
            found.append(measures[RANKING.index(score)])
    return np.array([np.mean(found)])


def check_enough(seen: Mapping[str, Observation], count: int, score: str) -> None:
    """Raise an error if there are too few non-zeros to hold out."""
    positive, share = hidden_share(seen, count)
    if positive * share < LEAST:
        least = math.ceil(LEAST / share)
        text = f"needs at least {least} observed non-zeros, to hold out {share:.0%} of them {count} times"
        other = "" if score == LOG_LIKELIHOOD else f" and {py:score='log_likelihood'}"
        raise PltfError(f"{py:criterion='heldout'} {text}; got {positive}: use {py:criterion='bound'}{other}")


def check_rankable(folds: Sequence[Fold], score: str) -> None:
    """Raise an error if held-out cells cannot be ranked."""
    for fold in folds if score in RANKING else ():
        kinds = [{bool(kind) for kind in hidden.values > 0} for hidden in fold.hidden.values()]
        if all(len(one) < 2 for one in kinds):
            text = f"{py:score={score!r}} needs both zeros and non-zeros among the held-out cells"
            raise PltfError(f"{text}: use {py:score='log_likelihood'}")
