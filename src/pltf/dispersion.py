"""Overdispersion, estimated from held-out cells.

It cannot be estimated from the cells of the fit, which overfits them. So some observed cells are held out, the model is
fitted to the rest, and the dispersion maximizes the posterior predictive probability of the held-out values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from pltf.data import DenseObservation, Observation
from pltf.data.cell_index import Coords
from pltf.data.numeric import EXACT
from pltf.data.split import Holdout, holdout
from pltf.errors import PltfError, py
from pltf.fit import Fit
from pltf.gamma import Array
from pltf.likelihoods import first_fraction
from pltf.notation import Model
from pltf.prediction.dispersion import Dispersion
from pltf.prediction.noise import log_prob_of_strays

SHARE, SHARE_OF_NEW = 0.1, 0.5  # share of the observed cells that are held out; of new data, that are used
MOST_POSITIVE, MOST_ZEROS, MOST_JUDGED = 1 << 12, 1 << 17, 1 << 13  # maximum numbers of held-out cells and of zeros
ENOUGH_POSITIVE, MOST_FOLDS = 200, 4  # with fewer held-out non-zeros, more folds are held out; their number
FEWEST_CELLS, FEWEST_POSITIVE = 200, 20  # observed, for an estimate
AT_A_TIME = 1 << 20  # cells of an array
SEED = 0x0D15  # of the held-out cells: separate from the seed of the fit
LEAST_SIZE, LARGEST_SIZE, LARGEST_POWER = 1e-4, 1e6, 2.0
LEAST_RATE = 1e-30  # smallest rate for powers: below it counts are zero whatever the noise
FEWEST_ZEROS = 1e-3  # extra ones, of all cells
MOST_STRAYS, LEAST_TYPICAL = 0.2, 0.1  # their share, and their mean above one
GRID, REACH = 41, 4.0  # number of sizes tried along an index, and range of their logarithms around the common one
SURE = 2.0  # standard errors by which a noise model with more parameters must be better
_TINY = float(np.finfo(np.float64).tiny)

Refit = Callable[[Mapping[str, Observation]], Fit | None]  # refit to other data; None if interrupted
Along = tuple[str, int, int]  # an index, its axis in the tensor, its size


def checked(ask: float | str | None, model: Model) -> None:
    """Raise an error for an unknown index."""
    observed = model.observed_indices
    if isinstance(ask, str) and ask != "auto" and ask.removeprefix("index:") not in observed:
        raise PltfError(f"{py:dispersion} must name an observed index ({', '.join(observed)}), got {ask!r}")


def dispersions(
    fit: Fit, seen: Mapping[str, Observation], ask: float | str | None, refit: Refit
) -> dict[str, Dispersion]:
    """Overdispersion by tensor: as given, or estimated with a second fit.

    ``ask`` is a size, ``"auto"`` for one estimate, or ``"index:NAME"`` for one at each position of an index.
    """
    if ask is None:
        return {}
    counts = [name for name in seen if fit.likelihoods.get(name) != "bernoulli"]
    if not isinstance(ask, str):
        return {name: Dispersion(float(ask)) for name in counts}
    notes = {name: _unfit(seen[name]) for name in counts}
    hidden = {name: _hide(seen[name]) for name in counts if not notes[name]}
    found = {name: Dispersion(note=note) for name, note in notes.items() if note}
    if not hidden:
        return found
    try:
        held = _held_back(hidden, seen, refit)
    except PltfError as error:
        return found | {name: Dispersion(note=f"without some cells, {error}") for name in hidden}
    if held is None:
        return found | {name: Dispersion(note="the estimate was interrupted") for name in hidden}
    index = None if ask == "auto" else ask.removeprefix("index:")
    for name, one in held.items():
        found[name] = estimate(one, _along(fit, name, index))
    return {name: found[name] for name in counts}


def dispersions_in_new(
    fit: Fit, seen: Mapping[str, Observation], places: Mapping[str, Sequence[NDArray[np.intp]]]
) -> dict[str, Dispersion]:
    """Overdispersion from data that are new to a fit, so that no cells need to be held out.

    ``places`` are the positions in the fit of the data, for each mode; new rows are left out. An estimate is kept if
    the data have fewer cells than it was made from; a given value is always kept.
    """
    found = dict(fit.dispersion)
    for name, earlier in fit.dispersion.items():
        given = not earlier.cells and not earlier.note
        if given or name not in seen or _unfit(seen[name]):
            continue
        held = _in_new(fit, name, _hide(seen[name], most=SHARE_OF_NEW), places[name])
        few = held.x.size < max(earlier.cells, FEWEST_CELLS) or np.count_nonzero(held.x) < FEWEST_POSITIVE
        if not few:
            found[name] = estimate(held, _along(fit, name, earlier.index))
    return found


def _along(fit: Fit, name: str, index: str | None) -> Along | None:
    """An index of a tensor, if the tensor has it."""
    indices = fit.model.observed[name]
    return (index, indices.index(index), fit.sizes[index]) if index in indices else None


def _in_new(fit: Fit, name: str, hidden: Hidden, places: Sequence[NDArray[np.intp]]) -> HeldBack:
    """Cells of new data in known rows, with the rates of the fit."""
    cells = np.stack([at[mode] for at, mode in zip(places, hidden.cells, strict=True)])
    sizes = [fit.sizes[index] for index in fit.model.observed[name]]
    known = (cells < np.array(sizes)[:, None]).all(axis=0)
    return HeldBack.of(fit, name, cells[:, known], hidden.x[known], hidden.weight[known])


def _held_back(
    hidden: Mapping[str, Hidden], seen: Mapping[str, Observation], refit: Refit
) -> dict[str, HeldBack] | None:
    """Held-out cells with the rates of fits to the other cells; None if a fit was interrupted.

    With few held-out non-zeros, several folds are used: a few dozen counts are not enough.
    """
    folds: list[dict[str, HeldBack]] = []
    fewest = min(int(np.count_nonzero(one.x)) for one in hidden.values())
    for fold in range(min(MOST_FOLDS, math.ceil(ENOUGH_POSITIVE / max(fewest, 1)))):
        now = hidden if fold == 0 else {name: _hide(seen[name], fold) for name in hidden}
        judge = refit({**seen, **{name: one.train for name, one in now.items()}})
        if judge is None:
            return None
        folds.append({a: HeldBack.of(judge, a, one.cells, one.x, one.weight, one.correction) for a, one in now.items()})
    return {name: together([one[name] for one in folds]) for name in hidden}


def _unfit(seen: Observation) -> str:
    """Why the dispersion cannot be estimated from the data; empty if it can."""
    if seen.n_observed < FEWEST_CELLS:
        return f"there are fewer than {FEWEST_CELLS} observed cells"
    if seen.n_positive < FEWEST_POSITIVE:
        return f"there are fewer than {FEWEST_POSITIVE} non-zeros"
    if seen.largest <= 1:
        return "all values are 0 or 1"
    if seen.largest > EXACT:
        return "it has values above 2**53, where floats cannot represent all whole numbers"
    if first_fraction(seen) is not None:
        return "its values are not whole numbers"
    return ""


@dataclass(frozen=True, eq=False)
class Hidden:
    """Training data and held-out cells."""

    train: Observation
    cells: Coords  # (modes, n)
    x: Array
    weight: Array
    correction: float  # correction of rates that were learned with too small a share of zeros held out


def _hide(seen: Observation, fold: int = 0, most: float = SHARE) -> Hidden:
    """Hold out cells: the same share of zeros and of non-zeros, as long as they can be listed. Folds are disjoint."""
    positive, zeros = seen.n_positive, seen.n_observed - seen.n_positive
    share: float = min(most, MOST_POSITIVE / positive)
    n_zeros = round(share * min(zeros, 10**300))
    train: Observation
    if isinstance(seen, DenseObservation):
        train, cells = _hidden_in_array(seen, share, SEED + fold)
        x = seen.values_at(cells)
    else:
        n_zeros = min(n_zeros, MOST_ZEROS)
        split = holdout(seen, share, by="nonzeros", negatives=n_zeros / round(share * positive), seed=SEED + fold)
        assert isinstance(split, Holdout)
        train, cells, x = split.train, split.cells.T, split.values
    empty = np.flatnonzero(x == 0)
    left_out = np.random.default_rng(SEED).permutation(empty)[MOST_JUDGED:]
    judged = np.ones(x.size, dtype=bool)
    judged[left_out] = False
    cells, x = cells[:, judged], x[judged]
    stand_for = share * float(min(zeros, 10**300)) / max(1, int(np.count_nonzero(x == 0)))
    correction = (1 - (n_zeros / zeros if zeros else share)) / (1.0 - share)
    return Hidden(train, cells, x, np.where(x == 0, stand_for, 1.0), correction)


def _hidden_in_array(seen: DenseObservation, share: float, seed: int) -> tuple[DenseObservation, Coords]:
    """An array without a share of its cells, and the observed ones among these; it allocates one mask."""
    rng, known = np.random.default_rng(seed), np.empty(seen.shape, dtype=bool)
    rows, cells = max(1, AT_A_TIME // max(1, known[0].size)), []
    for start in range(0, len(known), rows):
        part = slice(start, start + rows)
        hidden = rng.random(known[part].shape) < share
        np.logical_not(hidden, out=known[part])
        if seen.mask is not None:
            hidden &= seen.mask[part]
            known[part] &= seen.mask[part]
        cells.append(np.stack(np.nonzero(hidden)))
        cells[-1][0] += start
    return seen.within(known), np.concatenate(cells, axis=1)


@dataclass(frozen=True, eq=False)
class HeldBack:
    """Held-out cells: their values, and the mean and variance of their rates.

    ``weight`` corrects for zeros of which only a sample is used.
    """

    cells: Coords  # (modes, n)
    x: Array
    weight: Array
    mean: Array  # of the rates
    variance: Array

    @classmethod
    def of(cls, fit: Fit, name: str, cells: Coords, x: Array, weight: Array, correction: float = 1.0) -> HeldBack:
        """Held-out cells with the rates of a fit to the other cells; ``correction`` multiplies the rates."""
        mean = correction * fit.mean(cells.T, of=name, progress=False)
        return cls(cells, x, weight, mean, correction**2 * fit.var(cells.T, of=name, progress=False))

    @cached_property
    def _parts(self) -> tuple[NDArray[np.intp], NDArray[np.intp], Array, Array]:
        """Zeros, other cells, log x! of these, and the relative variance of all rates."""
        zeros, others = np.flatnonzero(self.x == 0), np.flatnonzero(self.x != 0)
        return zeros, others, special.gammaln(self.x[others] + 1), self.variance / self._mean / self._mean

    @cached_property
    def _mean(self) -> Array:
        return np.maximum(self.mean, _TINY)

    def log_prob(self, found: Dispersion) -> Array:
        """log P(X = x) of each cell under a negative binomial that includes the posterior variance of its rate.

        Exact for a Poisson with a Gamma posterior of the rate; otherwise mean and variance are exact. A search calls it
        a hundred times, so it has shortcuts that :class:`NegativeBinomial` does not have.
        """
        zeros, others, factorials, known = self._parts
        mean = self._mean / (1 - found.zeros)
        extra = 1 / np.asarray(found.size) * (np.maximum(mean, LEAST_RATE) ** -found.power if found.power else 1.0)
        shape = 1 / np.maximum(known + (1 + known) * extra, 1e-10)
        out = -shape * np.log1p(mean / shape)  # of a zero
        s, x = shape[others], self.x[others]
        out[others] += special.gammaln(x + s) - special.gammaln(s) - factorials - x * np.log1p(s / mean[others])
        if found.zeros:
            out += math.log1p(-found.zeros)
            out[zeros] = np.logaddexp(math.log(found.zeros), out[zeros])
        if found.strays:
            out += math.log1p(-found.strays)
            out[others] = np.logaddexp(math.log(found.strays) + log_prob_of_strays(x, found.typical), out[others])
        return out

    def total(self, found: Dispersion) -> float:
        """The log-likelihood."""
        return float(self.weight @ self.log_prob(found))

    def prefers(self, richer: Dispersion, plain: Dispersion) -> bool:
        """Whether more parameters are clearly better: by BIC, and not only for a few cells.

        If a parameter is not needed, it is on the boundary, and twice the gain is zero or chi-square distributed with
        probability 1/2 each: the BIC of n cells is then wrong with probability less than 1 / sqrt(n).
        """
        gain = self.weight * (self.log_prob(richer) - self.log_prob(plain))
        error = math.sqrt(gain.size) * float(np.std(gain))
        more = _parameters(richer) - _parameters(plain)
        return more > 0 and bool(gain.sum() > max(0.5 * more * math.log(gain.size), SURE * error))

    def factor(self, found: Dispersion, along: Along | None) -> float:
        """Variance relative to Poisson counts with the same rates, both summed over the cells."""
        size = found.size
        if found.index is not None and along is not None:
            size = np.asarray(size)[self.cells[along[1]]]
        noise = replace(found, size=size, index=None).noise(())
        extra = noise.excess(self.mean, np.zeros_like(self.mean))
        return float(1 + (self.weight @ extra) / max(float(self.weight @ self.mean), _TINY))


def together(held: list[HeldBack]) -> HeldBack:
    """The cells of all folds."""
    if len(held) == 1:
        return held[0]
    parts = ((one.cells, one.x, one.weight, one.mean, one.variance) for one in held)
    return HeldBack(*(np.concatenate(same, axis=-1) for same in zip(*parts, strict=True)))


def _parameters(found: Dispersion) -> int:
    return int(np.isfinite(found.size).any()) + (found.power > 0) + (found.zeros > 0)


def estimate(held: HeldBack, along: Along | None = None) -> Dispersion:
    """The dispersion that held-out cells support; ``along`` is an index, its axis and its size.

    A size, a power of the rate and excess zeros are tried in turn; each is kept if it is clearly better. Sizes along an
    index replace excess zeros, which they can imitate. Overdispersed counts may also have strays.
    """
    found, tried = Dispersion(), Dispersion(1.0)
    for free in (("size",), ("size", "power"), ("size", "power", "zeros")):
        tried = _most_likely(held, tried, free)
        if held.prefers(tried, found):
            found = tried
    if not found.is_poisson:
        found = _with_strays(held, found)
    if along is not None and not found.is_poisson:
        index, axis, length = along
        common = replace(found, zeros=0.0)
        found = replace(common, size=_sizes_along(held, axis, length, common), index=index)
    return replace(found, cells=held.x.size, factor=held.factor(found, along))


def _with_strays(held: HeldBack, plain: Dispersion) -> Dispersion:
    """The dispersion with strays: counts far too large for their rates.

    Strays are rare, so a handful of cells must be enough, which would pass no test. Therefore their share is always
    positive, with a prior as if one more had been seen: none among n cells does not mean that there are none. Their
    typical size is shrunk towards the mean over events of the count of their cell. The other parameters are estimated
    again, because strays affected them. The power may only decrease: a large power makes large counts more probable
    where rates are small, as strays do, and would go to its limit if strays explain every count.
    """
    free = (*(name for name in ("size", "power", "zeros") if getattr(plain, name)), "strays", "typical")
    common = max(float(held.x @ held.x / held.x.sum()) - 1, LEAST_TYPICAL)

    def log_prior(tried: Dispersion) -> float:
        if tried.power > plain.power:
            return -math.inf
        return math.log(max(tried.strays, _TINY)) - 0.5 * math.log((tried.typical - 1) / common) ** 2

    few = math.sqrt(float(held.weight[held.x > 0].sum())) / float(held.weight.sum())  # between one and all above zero
    begin = replace(plain, strays=min(few, MOST_STRAYS / 2), typical=1 + common)
    return _most_likely(held, begin, free, log_prior)


def likeliest(held: HeldBack) -> Dispersion:
    """The most likely size and strays, without a test.

    Candidates that are compared by few cells should not be Poisson in one case and overdispersed in another because of
    a test. If counts are Poisson, the size is large and has no effect.
    """
    return _with_strays(held, _most_likely(held, Dispersion(1.0), ("size",)))


@dataclass(frozen=True)
class Parameter:
    """A parameter in an optimization: transformation, inverse, initial value and first step."""

    place: Callable[[float], float]
    value: Callable[[float], float]
    begin: float
    step: float


_AXES: Mapping[str, Parameter] = {
    "size": Parameter(
        math.log, lambda at: math.exp(np.clip(at, math.log(LEAST_SIZE), math.log(LARGEST_SIZE))), 0.0, 1.0
    ),
    "power": Parameter(float, lambda at: float(np.clip(at, 0.0, LARGEST_POWER)), 0.3, -0.2),
    "zeros": Parameter(
        special.logit, lambda at: float(special.expit(at)) if at > special.logit(FEWEST_ZEROS) else 0.0, -3.0, 1.0
    ),
    "strays": Parameter(
        lambda share: special.logit(share / MOST_STRAYS), lambda at: MOST_STRAYS * float(special.expit(at)), -5.0, 1.0
    ),
    "typical": Parameter(lambda mean: math.log(mean - 1), lambda at: 1 + math.exp(np.clip(at, -9.0, 30.0)), 0.0, 1.0),
}


def _most_likely(
    held: HeldBack, begin: Dispersion, free: tuple[str, ...], log_prior: Callable[[Dispersion], float] = lambda _: 0.0
) -> Dispersion:
    """Maximum likelihood estimates of parameters, or with a prior, maximum a posteriori."""
    axes = [_AXES[name] for name in free]
    known = [float(getattr(begin, name)) for name in free]
    start = np.array([axis.place(value) if value else axis.begin for axis, value in zip(axes, known, strict=True)])

    def at(place: Array) -> Dispersion:
        values: dict[str, Any] = {name: _AXES[name].value(one) for name, one in zip(free, place, strict=True)}
        return replace(begin, **values)

    simplex = np.vstack([start, start + np.diag([axis.step for axis in axes])])
    options = {"xatol": 0.03, "fatol": 0.1, "initial_simplex": simplex}

    def cost(place: Array) -> float:
        tried = at(place)
        return -held.total(tried) - log_prior(tried)

    return at(optimize.minimize(cost, start, method="Nelder-Mead", options=options).x)


def _sizes_along(held: HeldBack, axis: int, length: int, common: Dispersion) -> Array:
    """A size for each position of an index.

    Log sizes have a normal prior, whose mean and standard deviation are estimated from all cells (empirical Bayes);
    each size is the exponential of its posterior mean. So positions with few cells are shrunk towards the common size,
    and all are if they hardly differ.
    """
    middle = math.log(min(float(common.size), LARGEST_SIZE))
    grid = np.linspace(middle - REACH, middle + REACH, GRID)
    by_position = np.empty((length, GRID))
    for number, log_size in enumerate(grid):
        by_cell = held.weight * held.log_prob(replace(common, size=math.exp(log_size)))
        by_position[:, number] = np.bincount(held.cells[axis], by_cell, minlength=length)

    def posterior(at: Array) -> Array:
        """log of prior * likelihood of each size at each position; the prior sums to one over the grid."""
        prior = -0.5 * ((grid - at[0]) / math.exp(at[1])) ** 2
        return np.asarray(by_position + prior - special.logsumexp(prior))

    start = np.array([middle, 0.0])
    bounds = [(grid[0], grid[-1]), (math.log(grid[1] - grid[0]) - 1, math.log(REACH))]
    found = optimize.minimize(
        lambda at: -float(special.logsumexp(posterior(at), axis=1).sum()), start, method="Nelder-Mead", bounds=bounds
    )
    return np.asarray(np.exp(special.softmax(posterior(found.x), axis=1) @ grid))
