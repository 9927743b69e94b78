"""Folds of held-out cells, which candidates are fitted without and then predict."""

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
HIDDEN, MOST_HIDDEN = 0.1, 0.9  # share of observed cells held out in each fold; maximum of all folds
ENOUGH = 40  # non-zeros to hold out in a fold; with fewer data a larger share is held out
FEWEST = 30  # non-zeros in a fold needed for criterion="auto" to use held-out cells
BLOCKS = 10  # blocks of a fold that are scored separately, for the standard error
MOSTLY = 0.9  # share of the zeros to hold out in a fold; with fewer, rates are corrected
LEAST = 4  # minimum number of held-out non-zeros in a fold
SAMPLED = 20_000  # minimum number of held-out zeros if they are too many to hold out a share of them

Numbers = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class HiddenCells:
    """The held-out cells of one tensor in a fold, and their values."""

    cells: Coords  # (modes, n)
    values: Array
    weights: Array  # number of observed cells that each one represents
    blocks: Numbers  # block of each cell
    correction: float = 1.0  # of rates that were learned with too small a share of the zeros held out


@dataclass(frozen=True, eq=False)
class Fold:
    """The held-out cells of every tensor."""

    hidden: Mapping[str, HiddenCells]
    n_blocks: int

    def train(self, seen: Mapping[str, Observation]) -> dict[str, Observation]:
        """The data without the held-out cells."""
        return {name: without(one, self.hidden[name].cells) for name, one in seen.items()}


class Data(NamedTuple):
    """The data of a search and its folds of held-out cells."""

    seen: Mapping[str, Observation]
    folds: tuple[Fold, ...] = ()

    def part(self, fold: int | None) -> Mapping[str, Observation]:
        """All data, or the training data of a fold."""
        return self.seen if fold is None else self.folds[fold].train(self.seen)


def make_folds(seen: Mapping[str, Observation], count: int, seed: int, blocks: int = BLOCKS) -> tuple[Fold, ...]:
    """Disjoint folds of held-out cells, with the same share of non-zeros.

    A sparse tensor may have too many zeros to list. Then a sample of the zeros is held out, and each represents many:
    scores are weighted means.
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
    """Why there are too few data to choose by held-out cells; empty if there are enough."""
    positive, share = hidden_share(seen, count)
    if positive * share >= FEWEST:
        return ""
    folds = f"{count} folds of {FEWEST} would hold out more than {MOST_HIDDEN:.0%} of them"
    return f"{positive} observed non-zeros are too few: {folds}"


def hidden_share(seen: Mapping[str, Observation], count: int) -> tuple[int, float]:
    """Number of observed non-zeros, and the share held out in each fold."""
    positive = sum(one.n_positive for one in seen.values())
    return positive, min(max(HIDDEN, ENOUGH / max(positive, 1)), MOST_HIDDEN / count)


def _dealt(seen: Observation, count: int, share: float, blocks: int, seed: np.random.SeedSequence) -> list[HiddenCells]:
    """Held-out cells of one tensor, dealt to folds and blocks in turn: first the non-zeros, then the zeros."""
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
    """Correction of the rates if a smaller share of the zeros than of the non-zeros is held out."""
    n_positive, n_zeros = np.count_nonzero(hidden.values), np.count_nonzero(hidden.values == 0)
    zeros = seen.n_observed - seen.n_positive
    sampled = (
        isinstance(seen, CooObservation | StoredObservation)
        and seen.unlisted == "zero"
        and n_zeros < MOSTLY * HIDDEN * zeros
    )
    return float((1 - n_zeros / zeros) / (1 - n_positive / seen.n_positive)) if sampled else 1.0


def _hidden(seen: Observation, share: float, seed: int) -> tuple[Coords, Array]:
    """Cells to hold out in any fold, and their values."""
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
