"""Coverage of the intervals of counts and rates on held-out cells, and the expected coverage."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import special

from pltf.data.cell_index import Coords
from pltf.errors import PltfError
from pltf.fit import Fit
from pltf.gamma import Array
from pltf.likelihoods import BERNOULLI

if TYPE_CHECKING:
    import pandas as pd

DEVIANCE_DRAWS = 20  # repeats; each draws all cells
MOST_DRAWN = 1 << 23  # numbers in memory at a time


def coverage(fit: Fit, name: str, at: Coords, x: Array, level: float, draws: int, seed: int) -> pd.DataFrame:
    """Share of counts inside the intervals of rates and of counts, and the expected share if the fit is correct.

    Counts vary around their rates, so few of them lie in the interval of the rate. The interval of the count has whole
    ends and contains more than ``level`` of the counts. So compare the share with the expected one.
    """
    import pandas as pd

    inside, expected = np.zeros((2, 2))
    step = max(1, MOST_DRAWN // draws)
    try:
        for begin in range(0, x.size, step):
            part = slice(begin, begin + step)
            of_part = _of_part(fit, name, at[:, part], x[part], level, draws, seed)
            inside, expected = inside + of_part[0], expected + of_part[1]
    except PltfError:  # rates beyond whole numbers
        inside, expected = np.full((2, 2), np.nan)
    table = {"level": level, "inside": inside / x.size, "expected": expected / x.size}
    found = pd.DataFrame(table, index=pd.Index(["rate", "count"], name="interval"))
    return found.loc[["count"]] if fit.likelihoods.get(name) == BERNOULLI else found  # a link is not a rate


def expected_deviance(fit: Fit, name: str, at: Coords, mean: Array, seed: int) -> float:
    """Mean deviance of counts drawn from the fit: the expected deviance if the fit is correct.

    It is not zero: for Poisson counts about 1 where rates are large, and less where they are small.
    """
    links, total = fit.likelihoods.get(name) == BERNOULLI, 0.0
    step = max(1, MOST_DRAWN // DEVIANCE_DRAWS)
    try:
        for begin in range(0, mean.size, step):
            part = slice(begin, begin + step)
            drawn = fit.sample(DEVIANCE_DRAWS, at[:, part].T, counts=True, seed=seed, of=name, progress=False)
            x, expected = drawn.astype(np.float64), mean[part]
            total += float(special.kl_div(x, expected).sum())
            total += float(special.kl_div(1 - x, 1 - expected).sum()) if links else 0.0
    except PltfError:  # rates beyond whole numbers
        return math.nan
    return 2 * total / (DEVIANCE_DRAWS * mean.size)


def _of_part(
    fit: Fit, name: str, at: Coords, x: Array, level: float, draws: int, seed: int
) -> tuple[list[float], list[float]]:
    """How many cells lie in the intervals of their rate and count, and the expected number."""
    ends, inside, expected = np.array([(1 - level) / 2, (1 + level) / 2]), [], []
    rates, counts = (
        fit.sample(draws, at.T, counts=one, seed=seed, of=name, progress=False).astype(np.float64)
        for one in (False, True)
    )
    for drawn, whole in ((rates, False), (counts, True)):
        low, high = _quantiles(fit, name, drawn, ends, "inverted_cdf" if whole else "linear")
        inside.append(float(np.count_nonzero((low <= x) & (x <= high))))
        expected.append(float(((low <= counts) & (counts <= high)).mean(axis=0).sum()))
    return inside, expected


def _quantiles(fit: Fit, name: str, drawn: Array, levels: Array, method: Literal["inverted_cdf", "linear"]) -> Array:
    """Quantiles of the draws of each cell (draws, cells), on the device of the fit if there are many."""
    device = fit._belief(name).device_for(drawn.size)
    if device is None:
        return np.asarray(np.quantile(drawn, levels, axis=0, method=method))
    from pltf.prediction.on_device import quantiles

    return quantiles(device, drawn, levels, method)
