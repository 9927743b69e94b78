"""Predictions from posterior draws: probabilities, intervals, tail probabilities, and the draws themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pltf.data.cell_index import Coords
from pltf.devices import Device
from pltf.engines.either import fetched, library
from pltf.gamma import Array
from pltf.inference.progress import Progress
from pltf.prediction.cells import Asked
from pltf.prediction.keyed import KeyedRandom, places_of
from pltf.prediction.moments import DRAW, Belief, mean, variance
from pltf.prediction.noise import Noise, draw_counts
from pltf.prediction.rates import RatesAt
from pltf.threads import available_threads, ordered_map, single_threaded_blas

MOST_CELLS = 1 << 20  # cells whose rates are in memory at a time
MOST_BYTES = 256 << 20  # of draws that are in memory to be sorted

LEAST_SPREAD, LARGEST_SPREAD = 1e-9, 4.0  # relative variance of a rate for which weights help
FEWEST_DRAWS = 50  # that are worth it
_TINY = np.finfo(np.float64).tiny

Drawn = NDArray[np.float64] | NDArray[np.int64]  # rates or counts


class Draws:
    """Rates of some cells under factors drawn from the posterior; only the needed entries are drawn.

    A draw of an entry depends on the seed, the number of the draw and the position of the entry; that of a count on the
    position of its cell. So the same cell has the same draws in every request.

    For chains, the stored draws are used in turn, evenly spaced if ``draws`` is less than their number. On a device,
    rates are tensors there; the factors are drawn on the host and are the same.
    """

    def __init__(self, belief: Belief, cells: Coords, seed: int, draws: int, device: Device | None = None) -> None:
        self._seed, self.noise = seed, belief.noise.at(cells)
        self._chosen = evenly(draws, belief.n_draws) if belief.draws else None
        sizes, positions, at = dict(belief.sizes), {}, np.empty_like(cells)
        for mode, index in enumerate(belief.equation.output.indices):
            touched = np.zeros(belief.sizes[index], dtype=bool)
            touched[cells[mode]] = True
            positions[index] = np.flatnonzero(touched)
            sizes[index] = positions[index].size
            at[mode] = (np.cumsum(touched) - 1)[cells[mode]]
        self.rates = RatesAt(belief.equation, sizes, at) if device is None else _rates_on(belief, sizes, at, device)
        self._places, self._terms = places_of(cells), belief.equation.factors
        self._part = [
            {
                term.name: entries_at(arrays[term.name], term.indices, positions)
                for term in self._terms
                if term.name in arrays
            }
            for arrays in (belief.C, belief.D, belief.E)
        ]
        self._entries = {
            term.name: places_of(flat_positions(belief.C[term.name].shape, term.indices, positions)[None])
            for term in self._terms
            if term.name in belief.C
        }
        self._chain = {
            term.name: entries_at(belief.draws[term.name], (DRAW, *term.indices), positions)
            for term in self._terms
            if term.name in belief.draws
        }

    def factors(self, number: int) -> dict[str, Array]:
        """Draw ``number`` of the factors; independent of the total number of draws."""
        C, D, E = self._part
        if self._chosen is not None:
            which = self._chosen[number % len(self._chosen)]
            return {**E, **{a: array[which] for a, array in self._chain.items()}}
        return {
            term.name: self._gamma(number, n, C[term.name]) * D[term.name] if term.name in C else E[term.name]
            for n, term in enumerate(self._terms)
        }

    def _gamma(self, number: int, n: int, shape: Array) -> Array:
        """Entries of factor ``n``, before they are scaled."""
        source = KeyedRandom((self._seed, number, 0, n), self._entries[self._terms[n].name])
        return source.standard_gamma(shape.reshape(-1)).reshape(shape.shape)

    def counts(self, number: int, rates: Array) -> NDArray[np.int64]:
        """Counts of all cells given the rates of draw ``number``."""
        return draw_counts(self.noise, KeyedRandom((self._seed, number, 1), self._places), fetched(rates))


def _rates_on(belief: Belief, sizes: Mapping[str, int], cells: Coords, device: Device) -> Callable[..., Any]:
    """Rates of cells as tensors."""
    from pltf.prediction.on_device import RatesOn

    rates, at = RatesOn(belief.equation, sizes, device), device.put(cells)
    return lambda factors: rates.at(rates.tables(factors), at)


def evenly(wanted: int, number: int) -> NDArray[np.intp]:
    """Positions of the requested number of draws, or of all."""
    return np.arange(min(wanted, number)) * number // min(wanted, number)


def entries_at(array: Array, indices: tuple[str, ...], positions: Mapping[str, NDArray[np.intp]]) -> Array:
    """The entries of a factor at some positions."""
    for axis, index in enumerate(indices):
        if index in positions:
            array = array.take(positions[index], axis=axis)
    return array


def flat_positions(
    shape: tuple[int, ...], indices: tuple[str, ...], positions: Mapping[str, NDArray[np.intp]]
) -> NDArray[np.int64]:
    """Where those entries are in the whole factor, counted row by row."""
    flat, every = np.zeros(1, dtype=np.int64), zip(indices, shape, strict=True)
    for index, size in every:
        flat = np.add.outer(flat * size, positions.get(index, np.arange(size))).reshape(-1)
    return flat


class DrawsInParts:
    """Iterates over parts of the cells and over the draws of each part, on all threads, with a progress bar.

    Uses a device for many cells; then the arrays of a part are tensors.
    """

    def __init__(self, belief: Belief, cells: Asked, draws: int, seed: int, progress: bool) -> None:
        self._belief, self.cells, self._draws, self._seed = belief, cells, draws, seed
        self._progress = progress
        self._different = min(draws, belief.n_draws or draws)  # chains have no more draws
        self._device = belief.device_for(cells.size * self._different)
        if self._device is not None:
            from pltf.prediction.on_device import check_room

            check_room(self._device, sum(belief.E[term.name].size for term in belief.equation.factors))

    def sample(self, counts: bool) -> Drawn:
        """All draws of all cells, along a new first axis."""
        out: Drawn = self.cells.empty(self._draws)
        out = out.view(np.int64) if counts else out
        for _, _, draws in self._parts(max(self.cells.size, 1), self._draws, counts=counts):
            for number, drawn in enumerate(draws):
                out[number] = fetched(drawn)
        return out.reshape(self._draws, *self.cells.shape)

    def average(self, tail: Tail) -> Array:
        """A probability of counts: its mean over draws of the rates, weighted so that the mean rate is exact.

        The exact mean rate is known. Non-negative weights, linear in the rate, make the mean of the draws equal to it,
        or as close as possible; for small rates almost no error is left. Rates that are so uncertain that their largest
        draws dominate the mean are not weighted.
        """
        if self._belief.draws:
            return self._plain_average(tail)
        exact, spread = (moment(self._belief, self.cells).reshape(-1) for moment in (mean, variance))
        out, spread = self.cells.empty(), spread / np.maximum(exact, _TINY) / np.maximum(exact, _TINY)
        for part, noise, draws in self._parts(MOST_CELLS, self._different):
            of_part, known, n = tail.of(part, self._put), self._put(exact[part]), self._draws
            xp, above_zero = library(known), library(known).clip(known, _TINY, None)
            p, off, p_off, off_off = (xp.zeros_like(known) for _ in range(4))
            least, most = xp.full_like(known, np.inf), xp.full_like(known, -np.inf)
            for rates in draws:
                one, beside = of_part(noise, rates), rates / above_zero - 1
                p += one
                off += beside
                p_off += one * beside
                off_off += beside * beside
                xp.minimum(least, beside, out=least)
                xp.maximum(most, beside, out=most)
            p, off = p / n, off / n
            relative = self._put(spread[part])
            useful = (relative > LEAST_SPREAD) & (relative < LARGEST_SPREAD) & (n >= FEWEST_DRAWS)
            step = xp.where(useful, off / xp.where(useful, off_off / n - off * off, 1.0), 0.0)
            furthest = step * (xp.where(step > 0, most, least) - off)  # a draw has the weight 1 - step * (beside - off)
            weighted = p - step / xp.clip(furthest, 1.0, None) * (p_off / n - p * off)
            out[part] = fetched(xp.clip(weighted, 0.0, 1.0))
        return out.reshape(self.cells.shape)

    def _plain_average(self, tail: Tail) -> Array:
        """The unweighted mean over the draws of a chain: there is no better mean rate."""
        out = self.cells.empty()
        for part, noise, draws in self._parts(MOST_CELLS, self._different):
            of_part = tail.of(part, self._put)
            total: Any = 0.0
            for rates in draws:
                total = of_part(noise, rates) + total
            out[part] = fetched(total / self._different)
        return out.reshape(self.cells.shape)

    def log_likelihood(self, x: Array) -> Array:
        """log P(X = x) of each cell: the log of the mean over the draws."""
        out = self.cells.empty()
        for part, noise, draws in self._parts(MOST_CELLS, self._different):
            held = self._put(x[part])
            xp, total = library(held), library(held).full_like(held, -np.inf)
            for rates in draws:
                xp.logaddexp(total, noise.log_prob(held, rates), out=total)
            out[part] = fetched(total) - np.log(self._different)
        return out.reshape(self.cells.shape)

    def quantiles(self, levels: tuple[float, ...], counts: bool) -> Array:
        """Quantiles of the draws of each cell, along a new first axis; those of counts are counts."""
        out = self.cells.empty(len(levels))
        method: Literal["inverted_cdf", "linear"] = "inverted_cdf" if counts else "linear"
        number = self._draws if counts else self._different
        for part, _, draws in self._parts(max(1, MOST_BYTES // (8 * number)), number, counts=counts):
            if self._device is None:
                drawn = np.empty((part.stop - part.start, number))
                for place, one in enumerate(draws):
                    drawn[:, place] = one
                found = np.quantile(drawn, np.asarray(levels), axis=1, method=method, overwrite_input=True)
            else:
                found = self._sorted_there(draws, part.stop - part.start, number, np.asarray(levels), method)
            out[:, part] = found
        return out.reshape(len(levels), *self.cells.shape)

    def _sorted_there(self, draws: Iterator[Any], cells: int, number: int, levels: Array, method: str) -> Array:
        """Quantiles of the draws of a part, on the device."""
        from pltf.prediction.on_device import of_draws

        assert self._device is not None
        torch = self._device.torch
        drawn = torch.empty(number, cells, dtype=torch.float64, device=self._device.place)
        for place, one in enumerate(draws):
            drawn[place] = self._put(one) if isinstance(one, np.ndarray) else one
        return np.asarray(fetched(of_draws(drawn, levels, method)))

    def _put(self, array: Any) -> Any:
        """A float64 array where the draws are."""
        array = np.asarray(array, dtype=np.float64)
        return array if self._device is None else self._device.put(array)

    def _parts(self, most: int, number: int, counts: bool = False) -> Iterator[tuple[slice, Any, Iterator[Any]]]:
        """Parts of the cells, the noise of each, and its draws: rates, or counts (always on the host)."""
        total = max(1, self.cells.size * number)
        with single_threaded_blas, Progress(self._progress, total, time_left=True) as progress:
            for part in self.cells.parts(most):
                draws = Draws(self._belief, self.cells.coords(part), self._seed, number, self._device)
                drawn = self._shown(self._drawn(draws, number, counts), part, number, progress)
                yield part, self._noise(draws.noise), drawn

    def _noise(self, noise: Noise) -> Any:
        """Noise that takes the rates of a part."""
        if self._device is None:
            return noise
        from pltf.prediction.device_noise import noise_on

        return noise_on(noise, self._put)

    def _drawn(self, draws: Draws, number: int, counts: bool) -> Iterator[Any]:
        """The draws, one after the other. A device computes one at a time to limit its memory."""
        every, threads = range(number), available_threads()

        def end(place: int, factors: Mapping[str, Array]) -> Any:
            rates = draws.rates(factors)
            return draws.counts(place, rates) if counts else rates

        if self._device is None:
            return ordered_map(lambda place: end(place, draws.factors(place)), every, threads)
        return map(end, every, ordered_map(draws.factors, every, threads))

    def _shown(self, drawn: Iterator[Any], part: slice, number: int, progress: Progress) -> Iterator[Any]:
        cells, text = part.stop - part.start, f"{number} draws of {self.cells.size:,} cells"
        for done, one in enumerate(drawn, start=1):
            progress.show(part.start * number + cells * done, text)
            yield one


@dataclass(frozen=True, eq=False)
class Tail:
    """P(X >= k) or P(X <= k); ``k`` is an array with a number for each cell, or one number."""

    upper: bool
    k: Array | int

    def of(self, part: slice, put: Callable[[Array], Any]) -> Callable[[Any, Any], Any]:
        """The probability for some cells, given their noise and rates; ``put`` copies ``k`` to their device."""
        k = self.k if isinstance(self.k, int) else put(self.k[part])
        return lambda noise, rates: noise.at_least(k, rates) if self.upper else noise.at_most(k, rates)


def at_least(k: Array | int) -> Tail:
    """P(X >= k)."""
    return Tail(upper=True, k=k)


def at_most(k: Array) -> Tail:
    """P(X <= k)."""
    return Tail(upper=False, k=k)
