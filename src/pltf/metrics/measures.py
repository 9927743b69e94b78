"""Measures of predictions of cells, on plain arrays with weights."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pltf.gamma import Array

RANKING = ("auc", "average_precision")  # measures of the ranking of non-zeros above zeros; they need both
REST = ("log_likelihood", "deviance", "rmse")

_LEAST = 1e-280  # smallest number to divide by


class Judged:
    """Counts of cells, their expected counts and their log-probabilities."""

    def __init__(self, x: Array, mean: Array, log_prob: Array, ranking: bool = True, links: bool = False) -> None:
        self.x, self.mean, self._log_prob, self.ranking, self._links = x, mean, log_prob, ranking, links
        self.measures = (*RANKING, *REST) if ranking else REST

    def part(self, some: NDArray[np.bool_]) -> Judged:
        """Some of the cells; without rankings if they are not of both kinds."""
        x = self.x[some]
        ranking = self.ranking and bool(0 < np.count_nonzero(x) < x.size)
        return Judged(x, self.mean[some], self._log_prob[some], ranking, self._links)

    def lead_by_cell(self, other: Judged) -> Array:
        """Log-probability of each cell above that of another prediction; zero where both are impossible."""
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(self._log_prob - other._log_prob, nan=0.0, posinf=np.inf, neginf=-np.inf)

    def values(self) -> list[float]:
        """All measures, in their order."""
        from sklearn.metrics import average_precision_score, roc_auc_score, root_mean_squared_error  # slow to import

        positive = self.x > 0
        ranking = (roc_auc_score, average_precision_score) if self.ranking else ()
        return [
            *(measure(positive, self.mean) for measure in ranking),
            float(self._log_prob.mean()),
            self._deviance(),
            root_mean_squared_error(self.x, self.mean),
        ]

    def _deviance(self) -> float:
        impossible = (self.x > 0) & (self.mean == 0)  # possible for point estimates
        if self._links or impossible.any():
            return float(self._terms[1].mean())
        from sklearn.metrics import mean_poisson_deviance

        return float(mean_poisson_deviance(self.x, np.maximum(self.mean, _LEAST)))

    def weighted(self, weight: Array) -> list[float]:
        """The measures with a weight for each cell, from precomputed sums, as there are hundreds of resamples."""
        drawn = weight > 0  # terms may be infinite
        log_prob, deviance, square = np.average(self._terms[:, drawn], axis=1, weights=weight[drawn])
        return [*(self._weighted_ranking(weight) if self.ranking else ()), log_prob, deviance, np.sqrt(square)]

    def _weighted_ranking(self, weight: Array) -> Array:
        """AUC and average precision."""
        above, zeros = (np.bincount(self._rank, part, minlength=self._ranks) for part in self._kinds * weight)
        hits, misses = np.cumsum(above[::-1]), np.cumsum(zeros[::-1])  # above a threshold, from the highest on
        behind = misses[-1] - misses + zeros[::-1] / 2  # zeros with a lower rank, plus half of the ties
        precision = hits / np.maximum(hits + misses, _LEAST)
        areas: Array = above[::-1] @ np.array([behind / misses[-1], precision]).T / hits[-1]
        return areas

    @cached_property
    def _terms(self) -> Array:
        """The contribution of each cell to log-probability, deviance and squared error."""
        deviance = 2 * special.kl_div(self.x, self.mean)
        if self._links:
            deviance += 2 * special.kl_div(1 - self.x, 1 - self.mean)
        return np.array([self._log_prob, deviance, (self.x - self.mean) ** 2])

    @cached_property
    def _kinds(self) -> Array:
        positive = self.x > 0
        return np.array([positive, ~positive], dtype=np.float64)

    @cached_property
    def _rank(self) -> NDArray[np.intp]:
        """Rank of each cell by its mean, in ascending order: odd at the mean of a non-zero, even between two of them.

        Zeros between the same two non-zeros share a rank, so few non-zeros among many zeros give few ranks.
        """
        marks = np.unique(self.mean[self.x > 0])
        return np.searchsorted(marks, self.mean, "left") + np.searchsorted(marks, self.mean, "right")

    @cached_property
    def _ranks(self) -> int:
        return int(self._rank.max()) + 1


def resampled(positive: NDArray[np.bool_], count: int, seed: int, ranking: bool = True) -> Iterator[Array]:
    """How often each cell occurs in samples with replacement; for rankings, samples have zeros and non-zeros."""
    rng = np.random.default_rng(seed)
    while count:
        weight = np.bincount(rng.integers(positive.size, size=positive.size), minlength=positive.size)
        if not ranking or 0 < weight[positive].sum() < positive.size:
            count -= 1
            yield weight.astype(np.float64)
