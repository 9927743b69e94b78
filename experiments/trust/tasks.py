"""Hidden cells of a data set: the input of a tool, and the cells that score it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

import pltf
from experiments.common import Array

INNER = 0.1  # share of the training cells held back to choose settings
FEW = 20_000  # with fewer training cells, settings are chosen on several folds
FOLDS = 3
SWEEPS, QUICK_SWEEPS = 300, 20  # per chain of the sampler


@dataclass(frozen=True)
class Task:
    """Data, the cells to learn from, and the cells to predict."""

    X: Array
    keep: NDArray[np.bool_]
    hidden: NDArray[np.bool_]
    links: bool
    seed: int
    quick: bool = False  # one fold, and short chains

    @property
    def sweeps(self) -> int:
        """Sweeps per chain of the sampler."""
        return QUICK_SWEEPS if self.quick else SWEEPS

    @property
    def asked(self) -> Array:
        """The values of the hidden cells."""
        return self.X[self.hidden]

    def inner(self) -> list[Task]:
        """Tasks to predict some of the training cells, in one fold or several, for the choice of settings.

        Folds are disjoint.
        """
        folds = FOLDS if self.keep.sum() < FEW and not self.quick else 1
        left, tasks = self.keep, []
        for fold in range(folds):
            share = INNER * self.keep.sum() / left.sum()
            kept = pltf.holdout(np.where(left, self.X, np.nan), share, stratify="value", seed=self.seed + 1 + fold)
            hidden = left & ~np.asarray(kept)
            tasks.append(replace(self, keep=self.keep & ~hidden, hidden=hidden))
            left = left & ~hidden
        return tasks


def task(X: Array, level: float, mask: int, *, links: bool = False, quick: bool = False) -> Task:
    """Hide a random share of the cells."""
    keep = np.asarray(pltf.holdout(X, level, seed=mask))
    return Task(X, keep, ~keep, links, mask, quick)
