"""Hidden cells of a data set: what a tool is given, and what it is judged by."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

import pltf
from experiments.common import Array

INNER = 0.1  # share of the training cells that are held back to choose settings
FEW = 20_000  # training cells below which settings are chosen on several such shares, one after the other
FOLDS = 3
SWEEPS, QUICK_SWEEPS = 300, 20  # of each chain of a sampler


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
        """Of each chain of a sampler."""
        return QUICK_SWEEPS if self.quick else SWEEPS

    @property
    def asked(self) -> Array:
        """The values of the hidden cells."""
        return self.X[self.hidden]

    def inner(self) -> list[Task]:
        """The same, with some of the training cells to predict: settings are chosen on these, in one fold or several.

        The cells of different folds are different ones.
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
    """Hide a share of the cells at random."""
    keep = np.asarray(pltf.holdout(X, level, seed=mask))
    return Task(X, keep, ~keep, links, mask, quick)
