"""How much counts vary beyond Poisson, judged by cells that were held back from a fit.

Cells that a fit has seen cannot tell: it bends to them. So some observed cells are hidden, the model is fitted to the
rest, and the dispersion is what makes the hidden values most probable under the posterior predictive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, special

from pltf.data import Observation, observe
from pltf.data.cell_index import Coords
from pltf.data.split import Holdout, holdout
from pltf.errors import PltfError, py
from pltf.fit import Fit
from pltf.gamma import Array
from pltf.notation import Model
from pltf.prediction.dispersion import Dispersion
from pltf.prediction.noise import NegativeBinomial, Noise, ZeroInflated

SHARE = 0.1  # of the observed cells that are held back
MOST_POSITIVE, MOST_ZEROS, MOST_JUDGED = 1 << 12, 1 << 17, 1 << 13  # held-back cells, and zeros that are looked at
FEWEST_CELLS, FEWEST_POSITIVE = 200, 20  # observed, for an estimate
SEED = 0x0D15  # of what is held back: the fit has a stream of its own
LEAST_SIZE, LARGEST_SIZE = 1e-4, 1e6
GRID = 41  # sizes that are tried along an index
SURE = 2.0  # standard errors by which a richer noise must be better
MOST_LEVERAGE = 0.8
_TINY = np.finfo(np.float64).tiny

Refit = Callable[[Mapping[str, Observation]], Fit | None]  # to other data; None if it was interrupted
Along = tuple[str, int, int]  # an index, its axis in the tensor, its size


def checked(ask: float | str | None, model: Model) -> None:
    """Refuse an index that no tensor has."""
    observed = dict.fromkeys(index for indices in model.observed.values() for index in indices)
    if isinstance(ask, str) and ask != "auto" and ask.removeprefix("index:") not in observed:
        raise PltfError(f"{py:dispersion} must name an observed index ({', '.join(observed)}), got {ask!r}")


def dispersions(
    fit: Fit, seen: Mapping[str, Observation], ask: float | str | None, refit: Refit
) -> dict[str, Dispersion]:
    """What counts vary beyond Poisson, by tensor: as it was given, or estimated with a second fit.

    ``ask`` is a size, ``"auto"`` for one estimate, or ``"index:NAME"`` for one at each position of an index.
    """
    if ask is None:
        return {}
    counts = [name for name in seen if fit.likelihoods.get(name) != "bernoulli"]
    if not isinstance(ask, str):
        return {name: Dispersion(float(ask)) for name in counts}
    notes = {name: _unfit(seen[name]) for name in counts}
    hidden = {name: _hide(seen[name]) for name in counts if not notes[name]}
    for name in [name for name, one in hidden.items() if (one.x % 1 != 0).any()]:
        notes[name] = "its values are not whole numbers"
        del hidden[name]
    found = {name: Dispersion(note=note) for name, note in notes.items() if note}
    if not hidden:
        return found
    try:
        judge = refit({**seen, **{name: one.train for name, one in hidden.items()}})
    except PltfError as error:
        return found | {name: Dispersion(note=f"without some cells, {error}") for name in hidden}
    if judge is None:
        return found | {name: Dispersion(note="the estimate was interrupted") for name in hidden}
    index = ask.removeprefix("index:")
    for name, one in hidden.items():
        indices = fit.model.observed[name]
        along = (index, indices.index(index), fit.sizes[index]) if index in indices and ask != "auto" else None
        found[name] = estimate(one.judged_by(judge, name), along)
    return {name: found[name] for name in counts}


def _unfit(seen: Observation) -> str:
    """Why data cannot tell; empty if they can."""
    if seen.n_observed < FEWEST_CELLS:
        return f"there are fewer than {FEWEST_CELLS} observed cells to judge by"
    if seen.n_positive < FEWEST_POSITIVE:
        return f"there are fewer than {FEWEST_POSITIVE} cells above zero to judge by"
    if seen.largest <= 1:
        return "zeros and ones cannot vary more"
    return ""


@dataclass(frozen=True, eq=False)
class Hidden:
    """Data without some of their cells, and some of these."""

    train: Observation
    cells: Coords  # (modes, n)
    x: Array
    weight: Array
    correction: float  # of rates that were learned from too many zeros

    def judged_by(self, fit: Fit, name: str) -> HeldBack:
        """The cells with what a fit to the others believes of their rates."""
        mean = self.correction * fit.mean(self.cells.T, of=name, progress=False)
        variance = self.correction**2 * fit.var(self.cells.T, of=name, progress=False)
        held = HeldBack(self.cells, self.x, self.weight, mean, variance)
        return replace(held, variance=variance * understated(fit, held, self.train.n_observed))


def _hide(seen: Observation) -> Hidden:
    """Hide cells: the same share of zeros as of others, as long as they can be listed."""
    positive, zeros = seen.n_positive, seen.n_observed - seen.n_positive
    share = min(SHARE, MOST_POSITIVE / positive)
    some = round(share * positive)
    n_zeros = min(round(share * min(zeros, 10**300)), MOST_ZEROS)
    split = holdout(seen, share, by="nonzeros", negatives=n_zeros / some, seed=SEED)
    if isinstance(split, Holdout):
        train, cells, x = split.train, split.cells.T, split.values
    else:
        train = replace(observe(seen.values, split), dims=seen.dims, labels=seen.labels)
        cells = np.stack(np.nonzero(~split if seen.mask is None else seen.mask & ~split))
        x = seen.values[tuple(cells)].astype(np.float64)
    empty = np.flatnonzero(x == 0)
    left_out = np.random.default_rng(SEED).permutation(empty)[MOST_JUDGED:]
    judged = np.ones(x.size, dtype=bool)
    judged[left_out] = False
    cells, x = cells[:, judged], x[judged]
    stand_for = share * float(min(zeros, 10**300)) / max(1, np.count_nonzero(x == 0))
    correction = (1 - (n_zeros / zeros if zeros else share)) / (1 - share)
    return Hidden(train, cells, x, np.where(x == 0, stand_for, 1.0), correction)


def understated(fit: Fit, held: HeldBack, n_observed: int) -> float:
    """By how much a posterior of independent factors understates the variance of rates.

    Under a posterior that knows how factors depend on each other, the variances of the rates of all observed cells,
    each over its Poisson variance, add up to the number of parameters that the data determine: the trace of the hat
    matrix of a generalized linear model. For a cell that was not observed divide by what that leaves of the data.
    Without it the errors of a fit with many parameters would pass for dispersion.
    """
    supported = sum(float((1 - fit.priors[a].shape / C).clip(0).sum()) for a, C in fit.C.items())
    for index, size in fit.model.sizes.items():  # scales that factors may trade along it
        supported -= size * max(0, sum(index in fit.model.factors[a] for a in fit.C) - 1)
    scale = n_observed / float(held.weight.sum())
    believed = scale * float(held.weight @ (held.variance / np.maximum(held.mean, _TINY)))
    telling = scale * float(held.weight @ np.minimum(held.mean, 1.0))  # cells of tiny rates tell next to nothing
    left = 1 - min(supported / max(telling, 1.0), MOST_LEVERAGE)
    return max(1.0, supported / believed / left) if believed > 0 else 1.0


@dataclass(frozen=True, eq=False)
class HeldBack:
    """Cells that were hidden from a fit: what they hold, and what it believes of their rates.

    ``weight`` makes up for zeros of which only some are looked at.
    """

    cells: Coords  # (modes, n)
    x: Array
    weight: Array
    mean: Array  # of the rates
    variance: Array

    def log_prob(self, size: float | Array, zeros: float = 0.0) -> Array:
        """log P(X = x) of each cell, by a negative binomial that also has the variance of what is known of its rate.

        A rate with a Gamma posterior gives that of a Poisson exactly; in all other cases mean and variance are right.
        """
        known = self.variance / np.maximum(self.mean, _TINY) ** 2  # relative variance of the rate
        spread = known + (1 + known) / np.asarray(size)
        noise: Noise = NegativeBinomial(1 / np.maximum(spread, 1e-15))
        return (ZeroInflated(zeros, noise) if zeros else noise).log_prob(self.x, self.mean)

    def total(self, size: float, zeros: float = 0.0) -> float:
        """The log-likelihood."""
        return float(self.weight @ self.log_prob(size, zeros))

    def prefers(self, richer: Array, plain: Array) -> bool:
        """Whether cells are clearly more probable with a parameter more: by BIC, and not only a few of them.

        On the boundary, where the parameter is not needed, twice the gain is zero or chi-square distributed, half of
        the time each: a BIC of n cells is wrong there less often than with probability 1 / sqrt(n).
        """
        gain = self.weight * (richer - plain)
        error = math.sqrt(gain.size) * float(np.std(gain))
        return bool(gain.sum() > max(0.5 * math.log(gain.size), SURE * error))

    def factor(self, noise: Noise) -> float:
        """Variance over that of Poisson counts with the same rates, both summed over the cells."""
        extra = noise.at(self.cells).excess(self.mean, np.zeros_like(self.mean))
        return float(1 + (self.weight @ extra) / max(self.weight @ self.mean, _TINY))


def estimate(held: HeldBack, along: Along | None = None) -> Dispersion:
    """The dispersion that held-back cells support; ``along`` is an index, its axis and its size."""
    plain, size, zeros = held.log_prob(math.inf), math.inf, 0.0
    likely = _best_size(held)
    if held.prefers(held.log_prob(likely), plain):
        size, plain = likely, held.log_prob(likely)
    fewer, share = _best_with_zeros(held, likely)
    if share and held.prefers(held.log_prob(fewer, share), plain):
        size, zeros = fewer, share
    found = Dispersion(size, zeros=zeros, cells=held.x.size)
    noise = NegativeBinomial(size)
    if along is not None and not found.is_poisson:
        index, axis, length = along
        noise = NegativeBinomial(_sizes_along(held, axis, length, zeros), axis)
        found = replace(found, size=noise.size, index=index)
    return replace(found, factor=held.factor(ZeroInflated(zeros, noise) if zeros else noise))


def _best_size(held: HeldBack) -> float:
    """The most likely size."""
    found = optimize.minimize_scalar(
        lambda log_size: -held.total(math.exp(log_size)),
        bounds=(math.log(LEAST_SIZE), math.log(LARGEST_SIZE)),
        method="bounded",
        options={"xatol": 0.01},
    )
    return math.exp(float(found.x))


def _best_with_zeros(held: HeldBack, size: float) -> tuple[float, float]:
    """The most likely size and share of extra zeros; without a search where the first of them do not help."""
    if held.total(size, 0.01) <= held.total(size):
        return size, 0.0

    def parameters(at: Array) -> tuple[float, float]:
        return math.exp(np.clip(at[0], math.log(LEAST_SIZE), math.log(LARGEST_SIZE))), float(special.expit(at[1]))

    start, options = [math.log(size), -3.0], {"xatol": 0.02, "fatol": 0.1}
    found = optimize.minimize(lambda at: -held.total(*parameters(at)), start, method="Nelder-Mead", options=options)
    return parameters(found.x)


def _sizes_along(held: HeldBack, axis: int, length: int, zeros: float) -> Array:
    """A size for each position of an index.

    Their logarithms are taken for draws of a normal distribution, whose mean and spread are the most likely ones given
    all cells (empirical Bayes); each size is the posterior mean of its logarithm. So positions with few cells are
    drawn towards the common size, and all are where they hardly differ.
    """
    grid = np.linspace(math.log(LEAST_SIZE), math.log(LARGEST_SIZE), GRID)
    by_position = np.empty((length, GRID))
    for number, log_size in enumerate(grid):
        by_cell = held.weight * held.log_prob(math.exp(log_size), zeros)
        by_position[:, number] = np.bincount(held.cells[axis], by_cell, minlength=length)

    def posterior(at: Array) -> Array:
        """log of prior * likelihood of each size at each position, the prior adding up to one over the grid."""
        prior = -0.5 * ((grid - at[0]) / math.exp(at[1])) ** 2
        return by_position + prior - special.logsumexp(prior)

    start = np.array([grid[by_position.sum(axis=0).argmax()], 0.0])
    bounds = [(grid[0], grid[-1]), (math.log(grid[1] - grid[0]), math.log(10.0))]
    found = optimize.minimize(
        lambda at: -float(special.logsumexp(posterior(at), axis=1).sum()), start, method="Nelder-Mead", bounds=bounds
    )
    return np.asarray(np.exp(special.softmax(posterior(found.x), axis=1) @ grid))
