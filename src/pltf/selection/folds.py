"""Folds of hidden cells: what every candidate is fitted without, and then has to predict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pltf.data import DenseObservation, Observation, StoredObservation
from pltf.data.cell_index import Coords
from pltf.data.coo import CooObservation
from pltf.data.split import holdout, without
from pltf.gamma import Array

# Measured: benchmarks/NOTES.md
HIDDEN, MOST_HIDDEN = 0.1, 0.9  # share of the observed cells that each fold hides, and all of them together at most
ENOUGH = 40  # non-zeros that a fold should hide; of fewer data a larger share is hidden
FEWEST = 30  # non-zeros that a fold should hide for hidden cells to choose unasked
BLOCKS = 10  # parts of a fold whose scores are kept apart, for the standard error
MOSTLY = 0.9  # of the zeros that a fold should hide: with fewer of them rates are corrected
LEAST = 4  # non-zeros that a fold must hide at least
SAMPLED = 20_000  # zeros of a list that are hidden at least, if they are too many to hide a share of them all

Numbers = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class HiddenCells:
    """Cells of one tensor that a fold hides, and what they hold."""

    cells: Coords  # (modes, n)
    values: Array
    weights: Array  # how many observed cells each of them stands for
    blocks: Numbers  # the part of the fold that each is in
    correction: float = 1.0  # of rates that were learned without these non-zeros, but with too many of the zeros


@dataclass(frozen=True, eq=False)
class Fold:
    """Hidden cells of every tensor."""

    hidden: Mapping[str, HiddenCells]
    n_blocks: int

    def train(self, seen: Mapping[str, Observation]) -> dict[str, Observation]:
        """The data without the hidden cells."""
        return {name: without(one, self.hidden[name].cells) for name, one in seen.items()}


class Data(NamedTuple):
    """What a search works on: the data, and the folds of hidden cells."""

    seen: Mapping[str, Observation]
    folds: tuple[Fold, ...] = ()

    def part(self, fold: int | None) -> Mapping[str, Observation]:
        """All data, or those that a fold leaves."""
        return self.seen if fold is None else self.folds[fold].train(self.seen)


def make_folds(seen: Mapping[str, Observation], count: int, seed: int, blocks: int = BLOCKS) -> tuple[Fold, ...]:
    """Folds that hide different cells each, with the same share of non-zeros.

    A tensor that lists its non-zeros may have far more zeros than can be hidden. Then only some of them are, and each
    stands for many: scores are weighted means.
    """
    positive, share = hidden_share(seen, count)
    blocks = max(1, min(blocks, int(positive * share) // 2))
    folds = _folds(seen, count, share, blocks, seed)
    full = all(len(set().union(*(one.blocks.tolist() for one in fold.hidden.values()))) == blocks for fold in folds)
    return folds if full else _folds(seen, count, share, 1, seed)


def _folds(seen: Mapping[str, Observation], count: int, share: float, blocks: int, seed: int) -> tuple[Fold, ...]:
    parts = {
        name: _dealt(one, count, share, blocks, np.random.SeedSequence(seed, spawn_key=(n,)))
        for n, (name, one) in enumerate(seen.items())
    }
    return tuple(Fold({name: hidden[fold] for name, hidden in parts.items()}, blocks) for fold in range(count))


def too_few(seen: Mapping[str, Observation], count: int) -> str:
    """Why data are too few for hidden cells to choose well; empty if they are not."""
    positive, share = hidden_share(seen, count)
    if positive * share >= FEWEST:
        return ""
    folds = f"{count} folds of {FEWEST} would hide more than {MOST_HIDDEN:.0%} of them"
    return f"{positive} observed non-zeros are too few: {folds}"


def hidden_share(seen: Mapping[str, Observation], count: int) -> tuple[int, float]:
    """Observed non-zeros, and the share of them that each fold hides."""
    positive = sum(one.n_positive for one in seen.values())
    return positive, min(max(HIDDEN, ENOUGH / max(positive, 1)), MOST_HIDDEN / count)


def _dealt(seen: Observation, count: int, share: float, blocks: int, seed: np.random.SeedSequence) -> list[HiddenCells]:
    """Hidden cells of one tensor, dealt to folds and their blocks like cards: non-zeros first, then zeros."""
    first, second = seed.generate_state(2)
    cells, values = _hidden(seen, count * share, int(first))
    positive = values > 0
    n_positive = int(np.count_nonzero(positive))
    stands_for = np.where(positive, seen.n_positive / max(n_positive, 1), 1.0)
    n_zeros = values.size - n_positive
    stands_for[~positive] = (seen.n_observed - seen.n_positive) / max(n_zeros, 1)
    order = np.random.default_rng(int(second)).permutation(values.size)
    order = order[np.argsort(~positive[order], kind="stable")]
    place = np.empty(values.size, dtype=np.int64)
    place[order] = np.arange(values.size)
    dealt = []
    for fold in range(count):
        mine = np.flatnonzero(place % count == fold)
        block = place[mine] // count % blocks
        one = HiddenCells(np.ascontiguousarray(cells[:, mine]), values[mine], stands_for[mine], block)
        dealt.append(replace(one, correction=_correction(seen, one)))
    return dealt


def _correction(seen: Observation, hidden: HiddenCells) -> float:
    """What rates have to be multiplied by if only some zeros are hidden, and so non-zeros more often than they."""
    n_positive, n_zeros = np.count_nonzero(hidden.values), np.count_nonzero(hidden.values == 0)
    zeros = seen.n_observed - seen.n_positive
    sampled = (
        isinstance(seen, CooObservation | StoredObservation)
        and seen.unlisted == "zero"
        and n_zeros < MOSTLY * HIDDEN * zeros
    )
    return float((1 - n_zeros / zeros) / (1 - n_positive / seen.n_positive)) if sampled else 1.0


def _hidden(seen: Observation, share: float, seed: int) -> tuple[Coords, Array]:
    """Cells to hide in any fold, and what they hold."""
    if isinstance(seen, DenseObservation):
        keep = holdout(seen, share, stratify="value", seed=seed)
        hidden = ~keep if seen.mask is None else seen.mask & ~keep
        cells = np.stack(np.nonzero(hidden))
        return cells, seen.values_at(cells)
    assert isinstance(seen, CooObservation | StoredObservation)
    zeros = seen.n_observed - seen.n_positive
    most = max(SAMPLED, seen.n_positive)
    how: dict[str, Any] = {"by": "cells", "stratify": "value"}
    if seen.unlisted == "zero" and zeros * share > most:
        how = {"by": "nonzeros", "negatives": most / max(round(seen.n_positive * share), 1)}
    split = holdout(seen, share, seed=seed, **how)
    return np.ascontiguousarray(split.cells.T), split.values
