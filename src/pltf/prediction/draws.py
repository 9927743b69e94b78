"""What only sampling can tell of cells: probabilities, intervals, tails, and the draws themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pltf.data.cell_index import Coords
from pltf.gamma import Array
from pltf.inference.progress import Progress
from pltf.prediction.cells import Asked
from pltf.prediction.moments import Belief, mean, variance
from pltf.prediction.noise import Noise, draw_counts
from pltf.prediction.rates import RatesAt
from pltf.threads import available_threads, ordered_map, single_threaded_blas

MOST_CELLS = 1 << 20  # whose rates are held at a time
MOST_BYTES = 256 << 20  # of draws that are held to be sorted

LEAST_SPREAD, LARGEST_SPREAD = 1e-9, 4.0  # relative variance of a rate for which weights help
FEWEST_DRAWS = 50  # that are worth it
_TINY = np.finfo(np.float64).tiny

Tail = Callable[[Noise, Array, slice], Array]  # probabilities of counts, given noise and rates of some cells
Drawn = NDArray[np.float64] | NDArray[np.int64]  # rates or counts


class Draws:
    """Rates of some cells under factors drawn from the posterior; only entries that the cells touch are drawn."""

    def __init__(self, belief: Belief, cells: Coords, seed: int) -> None:
        self._seed, self.noise = seed, belief.noise.at(cells)
        sizes, positions, at = dict(belief.sizes), {}, np.empty_like(cells)
        for mode, index in enumerate(belief.equation.output.indices):
            touched = np.zeros(belief.sizes[index], dtype=bool)
            touched[cells[mode]] = True
            positions[index] = np.flatnonzero(touched)
            sizes[index] = positions[index].size
            at[mode] = (np.cumsum(touched) - 1)[cells[mode]]
        self._rates = RatesAt(belief.equation, sizes, at)
        self._terms = belief.equation.factors
        self._part = [
            {
                term.name: _taken(arrays[term.name], term.indices, positions)
                for term in self._terms
                if term.name in arrays
            }
            for arrays in (belief.C, belief.D, belief.E)
        ]

    def rates(self, number: int) -> Array:
        """Rates of all cells under draw ``number``, which is the same however many there are."""
        rng, (C, D, E) = self.generator(number), self._part
        drawn = {term.name: term.name in C for term in self._terms}
        return self._rates({a: rng.standard_gamma(C[a]) * D[a] if random else E[a] for a, random in drawn.items()})

    def counts(self, number: int) -> NDArray[np.int64]:
        """Counts of all cells under draw ``number``."""
        return draw_counts(self.noise, self.generator(number, 1), self.rates(number))

    def generator(self, *number: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=number))


def _taken(array: Array, indices: tuple[str, ...], positions: dict[str, NDArray[np.intp]]) -> Array:
    """The entries of a factor at some positions."""
    for axis, index in enumerate(indices):
        if index in positions:
            array = array.take(positions[index], axis=axis)
    return array


class Sampling:
    """Goes through cells in parts and through the draws of each part, on all threads, with a bar."""

    def __init__(self, belief: Belief, cells: Asked, draws: int, seed: int, progress: bool) -> None:
        self._belief, self.cells, self._draws, self._seed = belief, cells, draws, seed
        self._progress = progress

    def sample(self, counts: bool) -> Drawn:
        """All draws of all cells together, along a new first axis."""
        out: Drawn = self.cells.empty(self._draws)
        out = out.view(np.int64) if counts else out
        for _, _, draws in self._parts(max(self.cells.size, 1), counts=counts):
            for number, drawn in enumerate(draws):
                out[number] = drawn
        return out.reshape(self._draws, *self.cells.shape)

    def average(self, tail: Tail) -> Array:
        """A probability of counts: its mean over the draws of their rates, weighted so that the mean rate is right.

        The mean rate is known exactly. Weights on a straight line over the rates, none below zero, bring that of the
        draws to it, or as near as they can: for small rates next to no error is left. Rates that are so uncertain that
        their largest draws decide the mean are left alone.
        """
        out, (exact, spread) = self.cells.empty(), self._moments()
        for part, noise, draws in self._parts(MOST_CELLS):
            known, n = exact[part], self._draws
            p, off, p_off, off_off = np.zeros((4, known.size))
            least, most = np.full((2, known.size), [[np.inf], [-np.inf]])
            for rates in draws:
                one, beside = tail(noise, rates, part), rates / np.maximum(known, _TINY) - 1
                p += one
                off += beside
                p_off += one * beside
                off_off += beside * beside
                np.minimum(least, beside, out=least)
                np.maximum(most, beside, out=most)
            p, off = p / n, off / n
            useful = (spread[part] > LEAST_SPREAD) & (spread[part] < LARGEST_SPREAD) & (n >= FEWEST_DRAWS)
            step = np.where(useful, off / np.where(useful, off_off / n - off * off, 1.0), 0.0)
            furthest = step * (np.where(step > 0, most, least) - off)  # a draw has the weight 1 - step * (beside - off)
            out[part] = np.clip(p - step / np.maximum(furthest, 1.0) * (p_off / n - p * off), 0.0, 1.0)
        return out.reshape(self.cells.shape)

    def _moments(self) -> tuple[Array, Array]:
        """The exact mean of each rate, and its variance over the square of that."""
        known = mean(self._belief, self.cells).reshape(-1)
        return known, variance(self._belief, self.cells).reshape(-1) / np.maximum(known, _TINY) / np.maximum(
            known, _TINY
        )

    def log_likelihood(self, x: Array) -> Array:
        """log P(X = x) of each cell: the logarithm of its mean over the draws."""
        out = self.cells.empty()
        for part, noise, draws in self._parts(MOST_CELLS):
            total = np.full(part.stop - part.start, -np.inf)
            for rates in draws:
                np.logaddexp(total, noise.log_prob(x[part], rates), out=total)
            out[part] = total - np.log(self._draws)
        return out.reshape(self.cells.shape)

    def quantiles(self, levels: tuple[float, ...], counts: bool) -> Array:
        """Quantiles of the draws of each cell, along a new first axis; of counts they are counts."""
        out = self.cells.empty(len(levels))
        method: Literal["inverted_cdf", "linear"] = "inverted_cdf" if counts else "linear"
        for part, _, draws in self._parts(max(1, MOST_BYTES // (8 * self._draws)), counts=counts):
            drawn = np.empty((part.stop - part.start, self._draws))
            for number, one in enumerate(draws):
                drawn[:, number] = one
            out[:, part] = np.quantile(drawn, np.asarray(levels), axis=1, method=method, overwrite_input=True)
        return out.reshape(len(levels), *self.cells.shape)

    def _parts(self, most: int, counts: bool = False) -> Iterator[tuple[slice, Noise, Iterator[Any]]]:
        total = max(1, self.cells.size * self._draws)
        with single_threaded_blas, Progress(self._progress, total, time_left=True) as progress:
            for part in self.cells.parts(most):
                draws = Draws(self._belief, self.cells.coords(part), self._seed)
                yield part, draws.noise, self._shown(draws.counts if counts else draws.rates, part, progress)

    def _shown(self, draw: Callable[[int], Drawn], part: slice, progress: Progress) -> Iterator[Any]:
        cells, text = part.stop - part.start, f"{self._draws} draws of {self.cells.size:,} cells"
        for number, drawn in enumerate(ordered_map(draw, range(self._draws), available_threads()), start=1):
            progress.show(part.start * self._draws + cells * number, text)
            yield drawn


def at_least(k: Array | int) -> Tail:
    """P(X >= k); ``k`` has a number for each cell, or is one for all."""
    return lambda noise, rates, part: noise.at_least(k if isinstance(k, int) else k[part], rates)


def at_most(k: Array) -> Tail:
    """P(X <= k); ``k`` has a number for each cell."""
    return lambda noise, rates, part: noise.at_most(k[part], rates)
