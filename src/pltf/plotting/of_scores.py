"""Figures of scores: calibration and ROC curve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.errors import PltfError, py
from pltf.plotting.axes import new_axes, panels

if TYPE_CHECKING:
    import pandas as pd

    from pltf.metrics import Scores


def scores(found: Scores, axes: Any = None) -> Any:
    """Calibration and ROC curve of scores, side by side; returns the two axes.

    Of scores with ``ranking=False`` it is the calibration alone, and returns its axes.

    >>> import matplotlib; matplotlib.use("agg")
    >>> import numpy as np, pltf, pltf.metrics, pltf.plotting
    >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
    >>> mask = pltf.holdout(X, 0.4, seed=1)
    >>> fit = pltf.nmf(rank=1).fit(X, mask=mask)
    >>> ax, _ = pltf.plotting.scores(pltf.metrics.score(fit, X, ~mask))
    >>> ax.get_ylabel()
    'observed count of a cell'
    """
    if not found.ranking:
        return calibration(found, *panels(1, axes))
    left, right = panels(2, axes, sharey=False)
    calibration(found, left)
    roc(found, right)
    return np.array([left, right], dtype=object)


def calibration(found: Scores, ax: Any = None) -> Any:
    """Observed against expected mean counts, in bins of cells with equal expected totals; returns the axes.

    >>> import matplotlib; matplotlib.use("agg")
    >>> import numpy as np, pltf, pltf.metrics, pltf.plotting
    >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
    >>> mask = pltf.holdout(X, 0.4, seed=1)
    >>> fit = pltf.nmf(rank=1).fit(X, mask=mask)
    >>> pltf.plotting.calibration(pltf.metrics.score(fit, X, ~mask)).get_title()
    'calibration'
    """
    ax = new_axes(ax)
    label = f"fit, with {found.level:.0%} intervals"
    _bins(ax, found.popularity_calibration, color="0.6", markersize=3, label="popularity")
    _bins(ax, found.calibration, color="C0", markersize=4, label=label)
    tables = (found.calibration, found.popularity_calibration)
    shown = np.concatenate([table[column] for table in tables for column in ("expected", "observed", "low", "high")])
    shown = shown[shown > 0] if (shown > 0).any() else np.ones(1)  # zeros may be all there is
    ends = [shown.min() / 1.5, shown.max() * 1.5]
    ax.plot(ends, ends, color="0.6", linewidth=1, zorder=1, label="as expected")
    ax.set_xscale("log")
    ax.set_yscale("log", nonpositive="clip")
    ax.set(xlim=ends, ylim=ends, xlabel="expected count of a cell", ylabel="observed count of a cell")
    ax.set_title("calibration")
    ax.legend(loc="upper left", frameon=False)
    return ax


def _bins(ax: Any, table: pd.DataFrame, **style: Any) -> None:
    """Observed against expected mean counts of bins, with intervals where there are some."""
    below, above = (table["observed"] - table["low"]).clip(0), (table["high"] - table["observed"]).clip(0)
    bars = None if table["low"].isna().any() else [below, above]
    ax.errorbar(table["expected"], table["observed"], yerr=bars, fmt="o", capsize=2, **style)


def roc(found: Scores, ax: Any = None) -> Any:
    """ROC curve of cells above zero against zeros, compared with that of popularity; returns the axes.

    >>> import matplotlib; matplotlib.use("agg")
    >>> import numpy as np, pltf, pltf.metrics, pltf.plotting
    >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
    >>> mask = pltf.holdout(X, 0.4, seed=1)
    >>> fit = pltf.nmf(rank=1).fit(X, mask=mask)
    >>> pltf.plotting.roc(pltf.metrics.score(fit, X, ~mask)).get_title()
    'ROC'
    """
    from sklearn.metrics import roc_curve

    if not found.ranking:
        raise PltfError(
            f"a ROC curve needs scores that rank zeros and counts, and these were made with {py:ranking=False}"
        )
    ax = new_axes(ax)
    for name, said, column, style in (
        ("fit", found.means, "value", {"color": "C0"}),
        ("popularity", found.popularity, "popularity", {"color": "0.5", "linewidth": 1}),
    ):
        wrong, right, _ = roc_curve(found.values > 0, said)
        ax.plot(wrong, right, label=f"{name}, AUC {found.table.loc['auc', column]:.3f}", **style)
    ax.plot([0, 1], [0, 1], ":", color="0.7", linewidth=1)
    ax.set(xlabel="false positive rate", ylabel="true positive rate", title="ROC")
    ax.legend(loc="lower right", frameon=False)
    return ax
