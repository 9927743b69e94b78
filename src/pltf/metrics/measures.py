"""Measures of what was predicted of cells, on bare arrays with weights."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, mean_poisson_deviance, roc_auc_score, root_mean_squared_error

from pltf.gamma import Array

MEASURES = ("auc", "average_precision", "log_likelihood", "deviance", "rmse")

_LEAST = 1e-280  # expected count that scikit-learn can divide by


class Judged:
    """Counts of cells, what was expected of them, and the log-probability that they were given."""

    def __init__(self, x: Array, mean: Array, log_prob: Array) -> None:
        self.x, self.mean, self._log_prob = x, mean, log_prob

    def measures(self, weight: Array) -> list[float]:
        """All measures, in their order, with a weight for each cell."""
        positive, rank, group = self._ranked
        together = np.bincount(group, weight, minlength=positive.size)
        drawn = weight > 0  # a log-probability may be -inf, where a point estimate has rate zero
        return [
            roc_auc_score(positive, rank, sample_weight=together),
            average_precision_score(positive, rank, sample_weight=together),
            np.average(self._log_prob[drawn], weights=weight[drawn]),
            np.inf if self._impossible[drawn].any() else self._deviance(weight),
            root_mean_squared_error(self.x, self.mean, sample_weight=weight),
        ]

    @cached_property
    def _impossible(self) -> NDArray[np.bool_]:
        """Counts where none was expected at all: point estimates can say so."""
        return np.asarray((self.mean == 0) & (self.x > 0))

    def _deviance(self, weight: Array) -> float:
        return float(mean_poisson_deviance(self.x, np.maximum(self.mean, _LEAST), sample_weight=weight))

    @cached_property
    def _ranked(self) -> tuple[NDArray[np.bool_], NDArray[np.intp], NDArray[np.intp]]:
        """Groups of cells that ranks cannot tell apart: whether above zero, their rank, and the group of each cell.

        Zeros with no cell above zero between them may be taken as one, whatever their means; with few links among
        many zeros that leaves few groups.
        """
        positive = self.x > 0
        marks = np.unique(self.mean[positive])
        rank = np.searchsorted(marks, self.mean, "left") + np.searchsorted(marks, self.mean, "right")  # odd: at a mark
        keys, group = np.unique(2 * rank + positive, return_inverse=True)
        return keys % 2 == 1, keys // 2, group


def resampled(positive: NDArray[np.bool_], count: int, seed: int) -> Iterator[Array]:
    """How often each cell is drawn in samples with replacement that have both kinds of cells."""
    rng = np.random.default_rng(seed)
    while count:
        weight = np.bincount(rng.integers(positive.size, size=positive.size), minlength=positive.size)
        if 0 < weight[positive].sum() < positive.size:
            count -= 1
            yield weight.astype(np.float64)
