"""Find the cells with the largest means without visiting all cells.

A model is a sum of products of non-negative factors. So Xhat of the largest entries of each factor over a box of cells
is an upper bound on Xhat of all cells in the box: a bound for branch and bound, for any model.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pltf.data.blocks import Block
from pltf.data.cell_index import Coords
from pltf.engines.plan import plan_equation
from pltf.errors import ScoreWarning, warn_caller
from pltf.gamma import Array
from pltf.inference.progress import Progress
from pltf.prediction.cells import Asked
from pltf.prediction.draws import DrawsInParts, at_least, entries_at
from pltf.prediction.moments import Belief, mean, variance
from pltf.prediction.noise import NegativeBinomial, Noise, Poisson, Strays, ZeroInflated

MOST_CHILDREN = 1 << 12  # boxes or cells per step
MOST_TRIED = 1024  # maximum number of examined cells per requested cell
MOST_BOXES = 1 << 14  # maximum number of boxes per search
MOST_JUDGED = 1 << 20  # maximum number of cells of a tensor that are all checked for support
Judgement = Callable[[Coords], NDArray[np.bool_]]  # of cells (modes, n)
_ROUNDING = 1 + 1e-12  # relative; rows without data can have millions of tied means


def most_probable(
    belief: Belief, k: int, atleast: int, choice: Choice, draws: int, seed: int, shown: bool
) -> tuple[Coords, Array]:
    """The ``k`` cells of a choice with the largest P(X >= atleast), and these probabilities.

    If the choice is a list, four times as many cells are preselected by mean and variance. Otherwise candidates are the
    cells with the largest means, four times as many in each round, until no other cell can be among the result: P(X >=
    1) is at most that of a rate equal to its mean (Jensen), and P(X >= n) <= mean / n (Markov). Strays are equally
    probable in all cells, so the search ignores them.
    """
    noise = belief.noise
    if not isinstance(noise, Strays):
        return _most_probable(belief, k, atleast, choice, draws, seed, shown)
    cells, p = _most_probable(replace(belief, noise=noise.inner), k, atleast, choice, draws, seed, shown)
    return cells, noise.mixed(p, atleast, mean(belief, Asked(belief.shape, cells)))


def _most_probable(
    belief: Belief, k: int, atleast: int, choice: Choice, draws: int, seed: int, shown: bool
) -> tuple[Coords, Array]:
    """The same without strays."""
    if choice.listed is not None:
        likely = _likely(belief, choice.listed, atleast)
        means = mean(belief, Asked(belief.shape, choice.listed))
        best = np.lexsort((*choice.listed[::-1], -means, -np.round(likely, 12)))[: 4 * k]
        return _drawn(belief, choice.listed[:, best], k, atleast, draws, seed, shown)
    count = 4 * k
    while True:
        with Progress(shown, None) as progress:
            found = largest(belief, count, choice.allowed, progress)
        kept = found.cells if choice.supported is None else found.cells[:, choice.supported(found.cells)]
        cells, probability = _drawn(belief, kept, k, atleast, draws, seed, shown)
        if probability.size < k and len(found.means) == count:  # too few supported cells
            if found.certain and count < MOST_TRIED * k:
                count *= 4
                continue
            text = f"of the {count:,} cells with the largest means, the data support {probability.size:,}"
            warn_caller(f"{text}; there may be more", ScoreWarning)
            return cells, probability
        if not found.certain:
            boxes = f"the search stopped after {MOST_BOXES:,} boxes of cells"
            warn_caller(f"{boxes}: others may have means of up to {found.rest:.3g}", ScoreWarning)
            return cells, probability
        most_else = min(_most_likely(belief.noise, found.rest), found.rest / atleast)
        if len(found.means) < count or most_else <= probability[-1]:
            return cells, probability
        if count >= MOST_TRIED * k:
            if most_else <= 2 * probability[-1]:  # ties and Monte Carlo error only
                return cells, probability
            text = f"these are the most probable of the {count:,} cells with the largest means; others may exceed them"
            warn_caller(f"{text}, because the posterior of some rates is very wide", ScoreWarning)
            return cells, probability
        count *= 4


def _most_likely(noise: Noise, mean: float) -> float:
    """The largest P(X >= 1) of a rate with this mean: that of a rate equal to it, where this is concave.

    It is concave for all kinds of noise except negative binomials with a power above 1, which are below a Poisson.
    """
    inner = noise.inner if isinstance(noise, ZeroInflated) else noise
    known = Poisson() if isinstance(inner, NegativeBinomial) and inner.power > 1 else noise
    return float(known.at_least(1, np.array([mean])).max())


def _drawn(
    belief: Belief, cells: Coords, k: int, atleast: int, draws: int, seed: int, shown: bool
) -> tuple[Coords, Array]:
    """The ``k`` most probable of some cells; among practically certain ones, those with the largest mean."""
    some = Asked(belief.shape, cells)
    probability = DrawsInParts(belief, some, draws, seed, shown).average(at_least(atleast))
    order = np.lexsort((*cells[::-1], -mean(belief, some), -np.round(probability, 12)))[:k]
    return cells[:, order], probability[order]


def _likely(belief: Belief, cells: Coords, atleast: int) -> Array:
    """Approximate P(X >= atleast), with a Gamma distribution of the mean and variance of each rate, noise included."""
    some = Asked(belief.shape, cells)
    known = mean(belief, some)
    spread = belief.noise.at(cells).excess(known, variance(belief, some))
    known = np.maximum(known, np.finfo(float).tiny)
    shape = known / np.maximum(spread / known, 1e-12 * known)
    return np.asarray(special.betainc(atleast, shape, known / (known + shape)))  # of a negative binomial


@dataclass(frozen=True, eq=False)
class Choice:
    """The cells to choose from: a predicate, and the list of them if it is known and short."""

    allowed: Judgement
    listed: Coords | None = None
    supported: Judgement | None = None  # an expensive predicate, only for the cells with the largest means

    def tied_down(self, supported: Judgement, shape: tuple[int, ...]) -> Choice:
        """The supported cells, listed if the tensor is small, as all of the largest means may be unsupported."""
        listed = self._of_small(shape) if self.listed is None else self.listed
        if listed is None:
            return replace(self, supported=supported)
        return replace(self, listed=listed[:, supported(listed)])

    def none_allowed(self, shape: tuple[int, ...]) -> bool:
        """Whether no cell may be chosen, supported or not; only small tensors are examined."""
        allowed = self._of_small(shape)
        return allowed is not None and not allowed.shape[1]

    def _of_small(self, shape: tuple[int, ...]) -> Coords | None:
        """The allowed cells of a small tensor; None for a large one."""
        if math.prod(shape) > MOST_JUDGED:
            return None
        cells = Asked(shape, None).coords(slice(0, math.prod(shape)))
        return cells[:, self.allowed(cells)]


@dataclass(frozen=True, eq=False)
class Largest:
    """Cells (modes, n) by decreasing mean; all other allowed cells have means of at most ``rest``.

    ``certain`` is False if the search was stopped early; then these may not be the largest.
    """

    cells: Coords
    means: Array
    rest: float
    certain: bool = True


def largest(belief: Belief, count: int, allowed: Judgement, progress: Progress) -> Largest:
    """The ``count`` allowed cells with the largest means, fewer if there are no more; the best so far if stopped."""
    tree = _Boxes(belief.averaged)
    queue = _Queue()
    queue.add(tree.top, np.zeros((len(tree.order), 1), dtype=np.intp), np.array([np.inf]))
    cells, means = np.empty((len(tree.order), 0), dtype=np.intp), np.empty(0)
    number = 0
    while queue and number < MOST_BOXES:
        worst = means[count - 1] if means.size >= count else 0.0
        if means.size >= count and queue.highest <= worst * _ROUNDING:
            break
        level, box = queue.pop()
        while level > 0:  # descend to the cells of the best box first, to find large means early
            below, bounds = tree.below(level, box)
            kept = bounds > worst * _ROUNDING if means.size >= count else np.ones(bounds.size, dtype=bool)
            number, level = number + 1, level - 1
            if level > 0 and kept.any():
                best = int(np.argmax(np.where(kept, bounds, -1.0)))
                kept[best], box = False, tuple(below[:, best].tolist())
                queue.add(level, below[:, kept], bounds[kept])
            elif level == 0:
                found = tree.cells(below)
                kept[kept] = allowed(found[:, kept])
                cells, means = np.concatenate([cells, found[:, kept]], axis=1), np.concatenate([means, bounds[kept]])
                order = np.lexsort((*cells[::-1], -means))[:count]
                cells, means = cells[:, order], means[order]
            else:
                break
        progress.show(number, f"{number:,} boxes of cells searched")
    rest = max(queue.highest if queue else 0.0, means[-1] if means.size == count else 0.0)
    return Largest(cells, means, rest, number < MOST_BOXES)


class _Queue:
    """Boxes by decreasing bound. Boxes found together stay together in order; only the first is in the heap."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []  # bound, shelf, place on the shelf
        self._shelves: dict[int, tuple[int, Coords, Array]] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._heap)

    @property
    def highest(self) -> float:
        """The bound of the next box."""
        return -self._heap[0][0]

    def add(self, level: int, boxes: Coords, bounds: Array) -> None:
        """Boxes (modes, n) of one level."""
        if bounds.size:
            order = np.argsort(-bounds, kind="stable")
            self._shelves[self._count] = level, boxes[:, order].astype(np.int32), bounds[order]
            heapq.heappush(self._heap, (-float(bounds[order[0]]), self._count, 0))
            self._count += 1

    def pop(self) -> tuple[int, tuple[int, ...]]:
        """The level and the place of the next box."""
        _, shelf, place = heapq.heappop(self._heap)
        level, boxes, bounds = self._shelves[shelf]
        if place + 1 < bounds.size:
            heapq.heappush(self._heap, (-float(bounds[place + 1]), shelf, place + 1))
        else:
            del self._shelves[shelf]
        return level, tuple(boxes[:, place].tolist())


class _Boxes:
    """A tree of boxes of cells. At level 0 a box is a cell; at level l it spans about b^l positions of each index."""

    def __init__(self, belief: Belief) -> None:
        self._equation, sizes = belief.equation, belief.sizes
        indices = self._equation.output.indices
        self._branch = max(2, int(MOST_CHILDREN ** (1 / len(indices))))
        self.order = [_alike_together(belief, index) for index in indices]
        position = dict(zip(indices, self.order, strict=True))
        arrays = [entries_at(belief.E[t.name], t.indices, position) for t in self._equation.factors]
        self._levels = [(dict(sizes), arrays)]
        while any(self._levels[-1][0][index] > 1 for index in indices):
            self._levels.append(self._pooled(*self._levels[-1]))
        self.top = max(1, len(self._levels) - 1)
        float64 = np.dtype(np.float64)
        self._tree = plan_equation(self._equation, sizes, float64, masked=False, dtype=float64).tree

    def _pooled(self, sizes: Mapping[str, int], arrays: list[Array]) -> tuple[dict[str, int], list[Array]]:
        """The largest entries over groups of positions along each observed index."""
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
        """Cells from their positions in the order of the boxes."""
        return np.stack([order[place] for order, place in zip(self.order, places, strict=True)])


def _alike_together(belief: Belief, index: str) -> NDArray[np.intp]:
    """An order of the positions of an index that groups similar and large ones, for tighter boxes."""
    columns = []
    for term in belief.equation.factors:
        if index in term.indices:
            axis = term.indices.index(index)
            columns.append(np.moveaxis(belief.E[term.name], axis, 0).reshape(belief.sizes[index], -1))
    profile = np.concatenate(columns, axis=1)
    share = profile / np.maximum(profile.sum(axis=0), np.finfo(float).tiny)
    strongest = share.argmax(axis=1)
    return np.lexsort((-share.max(axis=1), strongest))
