"""Convergence diagnostics of chains: rank-normalized split R-hat and bulk effective sample size (ESS).

Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), as in Stan and ArviZ. Arrays are (chain, draw).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from pltf.gamma import Array
from pltf.prediction.cells import Asked
from pltf.prediction.moments import Belief, rates_of_draws

if TYPE_CHECKING:
    import pandas as pd

CELLS = 200  # number of cells of each tensor whose rates are examined
LARGEST_RHAT, FEWEST_EFFECTIVE = 1.05, 100  # limits for converged chains
LARGEST_OF_SHARES = 1.2  # and the R-hat of shares of components


def rhat(draws: Array) -> float:
    """R-hat: standard deviation of all chains together relative to single chains; 1 if they agree.

    >>> import numpy as np
    >>> same = np.random.default_rng(0).normal(size=(4, 500))
    >>> bool(rhat(same) < 1.01), bool(rhat(same + np.arange(4)[:, None]) > 1.5)
    (True, True)
    """
    if np.ptp(draws) == 0:
        return 1.0
    halves = _halves(draws)
    return max(_rhat(_normal_scores(halves)), _rhat(_normal_scores(np.abs(halves - np.median(halves)))))


def ess(draws: Array) -> float:
    """Effective sample size: number of independent draws that estimate the mean equally well.

    >>> import numpy as np
    >>> independent = np.random.default_rng(0).normal(size=(4, 500))
    >>> bool(1500 < ess(independent) < 2500), bool(ess(independent.cumsum(axis=1)) < 50)
    (True, True)
    """
    if np.ptp(draws) == 0:
        return float(draws.size)
    return _ess(_normal_scores(_halves(draws)))


def _halves(draws: Array) -> Array:
    """Split every chain into two, so that a drifting chain disagrees with itself."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _normal_scores(draws: Array) -> Array:
    from scipy import stats  # slow to import

    ranks = stats.rankdata(draws, method="average").reshape(draws.shape)
    return np.asarray(special.ndtri((ranks - 3 / 8) / (draws.size + 1 / 4)))


def _rhat(draws: Array) -> float:
    n = draws.shape[1]
    within, between = draws.var(axis=1, ddof=1).mean(), n * draws.mean(axis=1).var(ddof=1)
    if within == 0:
        return 1.0 if between == 0 else float("inf")
    return float(np.sqrt((between / within + n - 1) / n))


def _ess(draws: Array) -> float:
    """Sum of the autocorrelations of all chains while pairs of them are positive (Geyer 1992)."""
    n = draws.shape[1]
    centred = draws - draws.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * n, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n].mean(axis=0) / n
    within = covariance[0] * n / (n - 1)
    total = covariance[0] + draws.mean(axis=1).var(ddof=1)
    if total == 0:
        return float(draws.size)
    rho = 1 - (within - covariance) / total
    rho[0] = 1.0
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)[: max(1, (n - 3) // 2 + 1)]
    end = int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else len(pairs) - 1
    falling = np.minimum.accumulate(pairs[:end])
    last = max(float(rho[2 * end]), 0.0) if 2 * end < n else 0.0  # the next one alone if positive
    tau = -1 + 2 * falling.sum() + last
    return float(draws.size / max(tau, 1 / np.log10(draws.size)))


def table(quantities: Mapping[str, Array]) -> pd.DataFrame:
    """R-hat and ESS of quantities (chain, draw); for arrays (chain, draw, n), median and worst."""
    import pandas as pd

    rows: dict[str, tuple[float, float]] = {}
    for name, draws in quantities.items():
        if draws.ndim == 2:
            rows[name] = rhat(draws), ess(draws)
            continue
        each = [(rhat(draws[..., n]), ess(draws[..., n])) for n in range(draws.shape[2])]
        hats, sizes = (np.array(column) for column in zip(*each, strict=True))
        rows[f"{name}, median"] = float(np.median(hats)), float(np.median(sizes))
        rows[f"{name}, worst"] = float(hats.max()), float(sizes.min())
    return pd.DataFrame.from_dict(rows, orient="index", columns=["rhat", "ess"]).rename_axis("quantity")


def some_rates(belief: Belief, chains: int) -> Array:
    """Rates of random cells under every draw: (chain, draw, cell)."""
    rng = np.random.default_rng(0)
    cells = np.stack([rng.integers(0, size, CELLS) for size in belief.shape])
    drawn = np.stack(list(rates_of_draws(belief, Asked(belief.shape, cells))))
    return drawn.reshape(chains, -1, CELLS)


def trouble(found: pd.DataFrame) -> str:
    """The problem with chains as text; empty if they have converged.

    The worst of many rates is ignored, as it is bad by chance. Shares of overlapping components mix slowly while their
    sum does not, so they have a larger limit.
    """
    shares = found.index.str.startswith("share")
    judged = found[~shares & ~found.index.str.endswith("worst")]
    for some, most in ((judged["rhat"], LARGEST_RHAT), (found["rhat"][shares], LARGEST_OF_SHARES)):
        if some.max() > most:
            return f"R-hat of {some.idxmax()} is {some.max():.2f}, above {most}"
    size = judged["ess"]
    if size.min() < FEWEST_EFFECTIVE:
        return f"{size.idxmin()} has an effective sample size of {size.min():.0f}, below {FEWEST_EFFECTIVE}"
    return ""
