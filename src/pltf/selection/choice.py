"""Which candidate wins, and how often it would win with other restarts and held-out cells. Plain arrays only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.gamma import Array

Numbers = NDArray[np.integer[Any]]

RESAMPLES = 1000
MATTERS = 0.5  # standard errors of a score below which differences are ignored (benchmarks/NOTES.md)
UNCLEAR = 2.0  # standard errors within which held-out scores do not separate candidates


@dataclass(frozen=True, eq=False)
class FoldScores:
    """Held-out scores of one candidate by fold and restart.

    >>> scores = FoldScores(np.array([[-9.0, -8.0]]), np.array([[[1.0, 3.0], [2.0, 4.0]]]), 40, 0.1)
    >>> scores.mean, scores.se
    (3.0, 1.0)
    """

    bounds: Array  # (folds, restarts): ELBOs of the training cells
    scores: Array  # (folds, restarts, blocks)
    sweeps: int
    seconds: float

    @cached_property
    def best(self) -> Array:
        """Scores (folds, blocks) of the restart with the highest ELBO; restarts are never chosen by held-out score."""
        chosen = self.bounds.argmax(axis=1)
        best: Array = self.scores[np.arange(len(chosen)), chosen]
        return best

    @property
    def mean(self) -> float:
        """Mean score of a held-out cell."""
        return float(self.best.mean())

    @property
    def se(self) -> float:
        """Standard error of the mean over all blocks of all folds, as there are few folds."""
        return standard_error(self.best)


def standard_error(values: Array) -> float:
    """Standard error of the mean of independent values.

    >>> standard_error(np.array([1.0, 2.0, 3.0, 4.0]))
    0.6454972243679028
    """
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else float("nan")


def allowances(found: Sequence[FoldScores]) -> Array:
    """Tolerated score differences (best, other): ``other`` may be this much behind ``best`` and count as equal.

    The standard error of their difference over blocks, but at least half the standard error of the best score. Cells
    that are hard to predict are hard for all candidates, so differences have much smaller standard errors than scores.
    Without the minimum, negligible gains would count: models with too many components still predict slightly better.
    """
    scores = np.stack([one.best.ravel() for one in found])
    n = scores.shape[1]
    if n < 2:
        return np.zeros((len(scores), len(scores)))
    differences = scores[:, None] - scores[None]
    paired = differences.std(axis=2, ddof=1) / np.sqrt(n)
    own = scores.std(axis=1, ddof=1) / np.sqrt(n)
    allowed: Array = np.maximum(paired, MATTERS * own[:, None])
    return allowed


def one_standard_error(means: Sequence[float] | Array, allowed: Array, sizes: Sequence[int]) -> int:
    """The smallest candidate with a mean within one standard error of the best; among equal sizes, the best.

    ``allowed`` are the standard errors returned by :func:`allowances`.

    >>> one_standard_error([-2.0, -1.02, -1.0], np.full((3, 3), 0.05), [3, 6, 9])
    1
    """
    return min(within_errors(means, allowed, 1.0), key=lambda n: (sizes[n], -means[n], n))


def within_errors(means: Sequence[float] | Array, allowed: Array, number: float) -> list[int]:
    """The candidates within ``number`` standard errors of the best."""
    known = np.asarray(means, dtype=np.float64)
    best = int(known.argmax())
    return [int(n) for n in np.flatnonzero(known >= known[best] - number * allowed[best])]


def wins_by_score(found: Sequence[FoldScores], sizes: Sequence[int], seed: int, resamples: int = RESAMPLES) -> Array:
    """How often each candidate wins when restarts, folds and blocks of held-out cells are resampled.

    In a sample, folds and blocks are the same for all candidates; restarts are drawn for each candidate.
    """
    rng = np.random.default_rng(seed)
    folds, _, blocks = found[0].scores.shape
    fold = rng.integers(folds, size=(resamples, folds, 1))
    block = rng.integers(blocks, size=(resamples, folds, blocks))
    means = np.stack([_resampled(one, fold, block, rng) for one in found], axis=1)
    allowed = allowances(found)
    chosen = [one_standard_error(one, allowed, sizes) for one in means]
    wins: Array = np.bincount(chosen, minlength=len(found)) / resamples
    return wins


def _resampled(one: FoldScores, fold: Numbers, block: Numbers, rng: np.random.Generator) -> Array:
    """Mean scores with resampled restarts, on these folds and blocks."""
    folds, restarts = one.bounds.shape
    drawn = rng.integers(restarts, size=(len(fold), folds, restarts))
    bounds = one.bounds[np.arange(folds)[:, None], drawn]
    restart = np.take_along_axis(drawn, bounds.argmax(axis=2)[..., None], axis=2)  # (resamples, folds, 1)
    known = np.isfinite(bounds.max(axis=2))[..., None]  # dropped restarts have no scores
    restart = np.where(known, restart, one.bounds.argmax(axis=1)[:, None])
    scores: Array = one.scores[fold, np.take_along_axis(restart, fold, axis=1), block]
    means: Array = scores.mean(axis=(1, 2))
    return means


def wins_by_bound(bounds: Sequence[Array], seed: int, resamples: int = RESAMPLES) -> Array:
    """How often each candidate wins when restarts are resampled; ``bounds`` are the ELBOs of its restarts.

    Candidates within a few nats share a win in proportion to exp(gap).

    >>> wins_by_bound([np.array([-10.0]), np.array([-10.0])], seed=0)
    array([0.5, 0.5])
    """
    rng = np.random.default_rng(seed)
    best = np.stack([one[rng.integers(one.size, size=(resamples, one.size))].max(axis=1) for one in bounds])
    shares = np.exp(best - best.max(axis=0))
    wins: Array = (shares / shares.sum(axis=0)).mean(axis=1)
    return wins
