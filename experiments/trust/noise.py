"""A predictive distribution for tools that predict a single number per cell.

It is deliberately flexible: the mean of a cell is ``scale * (prediction + floor) ** power``, and counts are negative
binomial with some size (links: Poisson counts observed as zero or above zero). All four parameters maximize the
probability of held-back training cells. The scale corrects tools that treat hidden cells as zeros, the floor those that
call a count impossible, the power those whose predictions are too extreme or not extreme enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from experiments.common import Array
from experiments.trust.measures import Predicted

STARTS = ((0.0, -3.0, 0.0, 0.0), (0.0, -7.0, 0.0, 5.0))  # logs of scale, of floor over mean, of power, of size
BOUNDS = ((-9, 9), (-16, 2), (-1.6, 0.7), (-5, 12))  # a size of e^12 is Poisson


@dataclass(frozen=True)
class Noise:
    """The distribution of counts around the predictions of a tool."""

    scale: float
    floor: float
    power: float
    size: float
    links: bool

    def mean(self, predictions: Array) -> Array:
        """Expected counts, above zero everywhere."""
        return np.asarray(self.scale * (np.maximum(predictions, 0) + self.floor) ** self.power)

    def log_prob(self, x: Array, predictions: Array) -> Array:
        """Log-probability of each value."""
        mean = self.mean(predictions)
        if self.links:
            return np.where(x > 0, np.log(-np.expm1(-mean)), -mean)
        return np.asarray(stats.nbinom.logpmf(x, self.size, self.size / (self.size + mean)))

    def of(self, x: Array, predictions: Array) -> Predicted:
        """The predictive distribution at the true values ``x``."""
        mean = self.mean(predictions)
        if self.links:
            empty = np.exp(-mean)
            tails = np.where(x > 0, 1 - empty, 1.0), np.where(x > 0, 1.0, empty)
        else:
            counts = stats.nbinom(self.size, self.size / (self.size + mean))
            tails = counts.sf(x - 1), counts.cdf(x)
        return Predicted(predictions, self.log_prob(x, predictions), *map(np.asarray, tails))


def likeliest(x: Array, predictions: Array, *, links: bool) -> Noise:
    """The noise with the highest probability of the values."""
    typical = max(float(np.maximum(predictions, 0).mean()), 1e-9)

    def noise(logs: Array) -> Noise:
        scale, floor, power, size = map(float, np.exp(logs))
        return Noise(scale, floor * typical, power, size, links)

    def cost(logs: Array) -> float:
        return -float(noise(logs).log_prob(x, predictions).mean())

    found = [optimize.minimize(cost, start, method="L-BFGS-B", bounds=BOUNDS) for start in STARTS]
    return noise(min(found, key=lambda one: float(one.fun)).x)
