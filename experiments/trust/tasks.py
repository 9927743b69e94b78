"""Hidden cells of a data set: what a tool is given, and what it is judged by."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

import pltf
from experiments.common import Array

INNER = 0.1  # share of the training cells on which settings are chosen


@dataclass(frozen=True)
class Task:
    """Data, the cells to learn from, and the cells to predict."""

    X: Array
    keep: NDArray[np.bool_]
    hidden: NDArray[np.bool_]
    links: bool
    seed: int

    @property
    def asked(self) -> Array:
        """The values of the hidden cells."""
        return self.X[self.hidden]

    def inner(self) -> Task:
        """The same, with some of the training cells to predict: settings are chosen on these."""
        seen = np.where(self.keep, self.X, np.nan)
        keep = np.asarray(pltf.holdout(seen, INNER, stratify="value", seed=self.seed + 1))
        return replace(self, keep=keep, hidden=self.keep & ~keep)


def task(X: Array, level: float, mask: int, *, links: bool = False) -> Task:
    """Hide a share of the cells at random."""
    keep = np.asarray(pltf.holdout(X, level, seed=mask))
    return Task(X, keep, ~keep, links, mask)
