"""The cells with the largest means, found without going through all of them.

A model is a sum of products of factors that are not negative. So Xhat of the largest entries of each factor over a box
of cells is at least as large as Xhat of any cell in the box: a bound for branch and bound, whatever the model.
"""

from __future__ import annotations

import heapq
import itertools
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pltf.data.blocks import Block
from pltf.data.lookup import Coords
from pltf.engines.plan import plan_equation
from pltf.errors import ScoreWarning
from pltf.gamma import Array
from pltf.inference.progress import Progress
from pltf.prediction.cells import Asked
from pltf.prediction.draws import Sampling, at_least
from pltf.prediction.moments import Belief, mean, variance

MOST_CHILDREN = 1 << 12  # boxes, or cells, that are looked at in one step
MOST_TRIED = 1024  # cells that are looked at for each of those that are wanted
_ROUNDING = 1 + 1e-12  # means that differ by less are the same: rows of which nothing is known tie by the million


def most_probable(
    belief: Belief, k: int, atleast: int, choice: Choice, draws: int, seed: int, shown: bool
) -> tuple[Coords, Array]:
    """The ``k`` cells of a choice with the largest P(X >= atleast), and these; fewer if there are no more.

    If the choice is listed, four times as many are chosen by what mean and variance tell, and drawn. Otherwise they are
    looked for among the cells of largest mean, four times as many each time, until no other cell can be among
    them: P(X >= 1) <= 1 - exp(-mean) by Jensen, P(X >= n) <= mean / n by Markov.
    """
    if choice.listed is not None:
        likely = _likely(belief, choice.listed, atleast)
        best = np.lexsort((*choice.listed[::-1], -likely))[: 4 * k]
        return _drawn(belief, choice.listed[:, best], k, atleast, draws, seed, shown)
    count = 4 * k
    while True:
        with Progress(shown, None) as progress:
            found = largest(belief, count, choice.allowed, progress)
        cells, probability = _drawn(belief, found.cells, k, atleast, draws, seed, shown)
        most_else = min(-math.expm1(-found.rest), found.rest / atleast)
        if len(found.means) < count or most_else <= probability[-1]:
            return cells, probability
        if count >= MOST_TRIED * k:
            if most_else <= 2 * probability[-1]:  # no more than rows alike and draws that differ
                return cells, probability
            text = f"of the {count:,} cells of largest mean these are the most probable; others may be more so"
            warnings.warn(f"{text}, for the posterior of some rates is very wide", ScoreWarning, stacklevel=3)
            return cells, probability
        count *= 4


def _drawn(
    belief: Belief, cells: Coords, k: int, atleast: int, draws: int, seed: int, shown: bool
) -> tuple[Coords, Array]:
    """The ``k`` most probable of some cells."""
    sampling = Sampling(belief, Asked(belief.shape, cells), draws, seed, shown)
    probability = sampling.average(at_least(atleast))
    order = np.lexsort((*cells[::-1], -probability))[:k]
    return cells[:, order], probability[order]


def _likely(belief: Belief, cells: Coords, atleast: int) -> Array:
    """About P(X >= atleast): as if every rate had the Gamma distribution with its mean and variance."""
    some = Asked(belief.shape, cells)
    known, spread = mean(belief, some), variance(belief, some)
    known = np.maximum(known, np.finfo(float).tiny)
    shape = known / np.maximum(spread / known, 1e-12 * known)
    return np.asarray(special.betainc(atleast, shape, known / (known + shape)))  # of a negative binomial


@dataclass(frozen=True, eq=False)
class Choice:
    """Which cells may be chosen: a judgement of cells, and the list of them if it is known and short."""

    allowed: Callable[[Coords], NDArray[np.bool_]]
    listed: Coords | None = None


@dataclass(frozen=True, eq=False)
class Largest:
    """Cells (modes, n) by falling mean; every other cell that is allowed has a mean of at most ``rest``."""

    cells: Coords
    means: Array
    rest: float


def largest(belief: Belief, count: int, allowed: Callable[[Coords], NDArray[np.bool_]], progress: Progress) -> Largest:
    """The ``count`` allowed cells of largest mean; fewer if there are no more."""
    tree = _Boxes(belief)
    numbered = itertools.count()  # boxes of one bound are taken in the order in which they were found
    boxes: list[tuple[float, int, int, tuple[int, ...]]] = [(-np.inf, 0, tree.top, (0,) * len(tree.order))]
    cells, means = np.empty((len(tree.order), 0), dtype=np.intp), np.empty(0)
    while boxes:
        worst = means[count - 1] if means.size >= count else 0.0
        if means.size >= count and -boxes[0][0] <= worst * _ROUNDING:
            break
        _, number, level, box = heapq.heappop(boxes)
        below, bounds = tree.below(level, box)
        if level > 1:
            for child, bound in zip(below.T.tolist(), bounds.tolist(), strict=True):
                if means.size < count or bound > worst * _ROUNDING:
                    heapq.heappush(boxes, (-bound, next(numbered) + 1, level - 1, tuple(child)))
        else:
            found = tree.cells(below)
            kept = (bounds > worst) if means.size >= count else np.ones(bounds.size, dtype=bool)
            kept[kept] = allowed(found[:, kept])
            cells, means = np.concatenate([cells, found[:, kept]], axis=1), np.concatenate([means, bounds[kept]])
            order = np.lexsort((*cells[::-1], -means))[:count]
            cells, means = cells[:, order], means[order]
        progress.show(number, f"looked into {number:,} boxes of cells")
    rest = max(-boxes[0][0] if boxes else 0.0, means[-1] if means.size == count else 0.0)
    return Largest(cells, means, rest)


class _Boxes:
    """A tree of boxes of cells. At level 0 a box is a cell; at level l it spans some b^l positions of each index."""

    def __init__(self, belief: Belief) -> None:
        self._equation, sizes = belief.equation, belief.sizes
        indices = self._equation.output.indices
        self._branch = max(2, int(MOST_CHILDREN ** (1 / len(indices))))
        self.order = [_alike_together(belief, index) for index in indices]
        position = dict(zip(indices, self.order, strict=True))
        arrays = [_sorted(belief.E[t.name], t.indices, position) for t in self._equation.factors]
        self._levels = [(dict(sizes), arrays)]
        while any(self._levels[-1][0][index] > 1 for index in indices):
            self._levels.append(self._pooled(*self._levels[-1]))
        self.top = max(1, len(self._levels) - 1)
        float64 = np.dtype(np.float64)
        self._tree = plan_equation(self._equation, sizes, float64, masked=False, dtype=float64).tree

    def _pooled(self, sizes: Mapping[str, int], arrays: list[Array]) -> tuple[dict[str, int], list[Array]]:
        """The largest entries of every few positions along each observed index."""
        pooled, observed = dict(sizes), self._equation.output.indices
        for index in observed:
            pooled[index] = -(-sizes[index] // self._branch)
        out = []
        for term, array in zip(self._equation.factors, arrays, strict=True):
            for axis, index in enumerate(term.indices):
                if index in observed:
                    array = np.maximum.reduceat(array, range(0, array.shape[axis], self._branch), axis=axis)
            out.append(array)
        return pooled, out

    def below(self, level: int, box: tuple[int, ...]) -> tuple[Coords, Array]:
        """The boxes in a box, and their bounds; at level 1 the cells in it, and their means."""
        sizes, arrays = self._levels[min(level - 1, len(self._levels) - 1)]
        limits = [sizes[index] for index in self._equation.output.indices]
        block: Block = tuple(
            slice(at * self._branch, min((at + 1) * self._branch, n)) for at, n in zip(box, limits, strict=True)
        )
        bounds = self._tree.forward(self._tree.block_leaves(arrays, block))[-1]
        inside = np.indices(bounds.shape).reshape(len(block), -1)
        return inside + np.array([cut.start for cut in block])[:, None], bounds.reshape(-1)

    def cells(self, places: Coords) -> Coords:
        """Cells from their places in the order of the boxes."""
        return np.stack([order[place] for order, place in zip(self.order, places, strict=True)])


def _alike_together(belief: Belief, index: str) -> NDArray[np.intp]:
    """An order of the positions of an index in which those alike, and large ones, stand together: tighter boxes."""
    columns = []
    for term in belief.equation.factors:
        if index in term.indices:
            axis = term.indices.index(index)
            columns.append(np.moveaxis(belief.E[term.name], axis, 0).reshape(belief.sizes[index], -1))
    profile = np.concatenate(columns, axis=1)
    share = profile / np.maximum(profile.sum(axis=0), np.finfo(float).tiny)
    strongest = share.argmax(axis=1)
    return np.lexsort((-share.max(axis=1), strongest))


def _sorted(array: Array, indices: tuple[str, ...], order: Mapping[str, NDArray[np.intp]]) -> Array:
    for axis, index in enumerate(indices):
        if index in order:
            array = array.take(order[index], axis=axis)
    return array
