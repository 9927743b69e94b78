"""The cells with the largest means, found without going through all of them.

A model is a sum of products of factors that are not negative. So Xhat of the largest entries of each factor over a box
of cells is at least as large as Xhat of any cell in the box: a bound for branch and bound, whatever the model.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pltf.data.blocks import Block
from pltf.data.lookup import Coords
from pltf.engines.plan import plan_equation
from pltf.gamma import Array
from pltf.inference.progress import Progress
from pltf.prediction.cells import Asked
from pltf.prediction.draws import Sampling, at_least
from pltf.prediction.moments import Belief, mean

MOST_CHILDREN = 1 << 12  # boxes, or cells, that are looked at in one step
MOST_TRIED = 64  # cells that are looked at for each of those that are wanted
_ROUNDING = 1 + 1e-9  # a bound is summed in another order than the cells below it


def most_probable(
    belief: Belief, k: int, atleast: int, choice: Choice, draws: int, seed: int, shown: bool
) -> tuple[Coords, Array]:
    """The ``k`` cells of a choice with the largest P(X >= atleast), and these probabilities.

    They are looked for among the cells of largest mean, four times as many each time, until no other cell can be
    among them: P(X >= 1) <= 1 - exp(-mean) by Jensen, P(X >= n) <= mean / n by Markov. At :data:`MOST_TRIED` times
    ``k`` it ends: there the probabilities are so alike that sampling could not tell them apart.
    """
    count = 4 * k
    while True:
        with Progress(shown, None) as progress:
            found = _listed(belief, count, choice) or largest(belief, count, choice.allowed, progress)
        sampling = Sampling(belief, Asked(belief.shape, found.cells), draws, seed, shown)
        probability = sampling.average(at_least(atleast))
        order = np.lexsort((-found.means, -probability))[:k]
        most_else = min(-math.expm1(-found.rest), found.rest / atleast)
        if len(found.means) < count or most_else <= probability[order[-1]] or count >= MOST_TRIED * k:
            return found.cells[:, order], probability[order]
        count *= 4


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
        if means.size >= count and -boxes[0][0] * _ROUNDING <= worst:
            break
        _, number, level, box = heapq.heappop(boxes)
        below, bounds = tree.below(level, box)
        if level > 1:
            for child, bound in zip(below.T.tolist(), bounds.tolist(), strict=True):
                if means.size < count or bound * _ROUNDING > worst:
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


def _listed(belief: Belief, count: int, choice: Choice) -> Largest | None:
    """The same from a list of all cells that are allowed, if there is one."""
    if choice.listed is None:
        return None
    means = mean(belief, Asked(belief.shape, choice.listed))
    order = np.lexsort((*choice.listed[::-1], -means))
    kept, rest = order[:count], order[count:]
    return Largest(choice.listed[:, kept], means[kept], float(means[rest[0]]) if rest.size else 0.0)


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
