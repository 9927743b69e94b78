"""Scores of a fit on hidden cells, with their uncertainty and beside the popularity of rows and columns."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.data import Holdout, Observation
from pltf.data.cell_index import Coords
from pltf.data.labels import Labels
from pltf.data.observe import has_names, is_xarray, observed_again
from pltf.data.pattern import kept
from pltf.data.split import HeldOut
from pltf.errors import PltfError, ScoreWarning, flag, py, whole
from pltf.fit import Fit
from pltf.gamma import Array, level_of
from pltf.inference.progress import Progress
from pltf.likelihoods import BERNOULLI
from pltf.metrics.baseline import expected_by_popularity
from pltf.metrics.coverage import coverage, expected_deviance
from pltf.metrics.measures import Judged, resampled
from pltf.prediction.cells import as_cells, observed_like
from pltf.prediction.noise import Bernoulli

if TYPE_CHECKING:
    import pandas as pd

BINS = 10  # of the calibration


@dataclass(frozen=True, eq=False, repr=False)
class Scores:
    """How well hidden cells were predicted; :func:`pltf.metrics.score` makes it.

    >>> import numpy as np, pltf, pltf.metrics
    >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
    >>> mask = pltf.holdout(X, 0.4, seed=1)
    >>> scores = pltf.metrics.score(pltf.nmf(rank=1).fit(X, mask=mask), X, ~mask)
    >>> scores.table.index.tolist()
    ['auc', 'average_precision', 'log_likelihood', 'deviance', 'rmse']
    >>> scores.table.columns.tolist()
    ['value', 'low', 'high', 'popularity', 'popularity_low', 'popularity_high']
    >>> scores.calibration.columns.tolist()
    ['cells', 'expected', 'observed', 'low', 'high']
    >>> scores.coverage.index.tolist(), scores.coverage.columns.tolist()
    (['rate', 'count'], ['level', 'inside', 'expected'])
    """

    table: pd.DataFrame  # a row for each measure, with bootstrap intervals
    calibration: pd.DataFrame  # a row for each bin of cells, by their expected count
    popularity_calibration: pd.DataFrame  # the same by popularity
    values: Array  # what the cells hold
    means: Array  # what was expected of them
    popularity: Array  # and what by popularity alone
    level: float  # of the intervals
    coverage: pd.DataFrame  # of intervals of rates and counts: the share of the values inside, and the expected one
    expected_deviance: float = math.nan  # deviance of data drawn from the fit: what it would be if the fit were right

    @property
    def ranking(self) -> bool:
        """Whether AUC and average precision are among the measures."""
        return "auc" in self.table.index

    @property
    def auc(self) -> float:
        """Area under the ROC curve: how often a cell with a count has a larger expected count than one without."""
        return self._value("auc")

    @property
    def average_precision(self) -> float:
        """Area under the curve of precision against recall."""
        return self._value("average_precision")

    @property
    def log_likelihood(self) -> float:
        """Mean over the cells of the log-probability of what they hold, under the posterior predictive; in nats."""
        return self._value("log_likelihood")

    @property
    def deviance(self) -> float:
        """Mean Poisson deviance of the expected counts."""
        return self._value("deviance")

    @property
    def rmse(self) -> float:
        """Root of the mean squared error of the expected counts."""
        return self._value("rmse")

    def _value(self, measure: str) -> float:
        if measure not in self.table.index:
            raise PltfError(f"{measure} is not among these scores, which were made with {py:ranking=False}")
        return float(self.table.loc[measure, "value"])

    @property
    def headline(self) -> str:
        """The measure to look at first: ``"auc"`` if the cells are mostly zeros, otherwise ``"log_likelihood"``."""
        mostly_zeros = 2 * np.count_nonzero(self.values) <= self.values.size
        return "auc" if self.ranking and mostly_zeros else "log_likelihood"

    def verdict(self) -> str:
        """Whether the fit predicts better than popularity, by the headline measure and its interval.

        >>> import numpy as np, pltf, pltf.metrics
        >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
        >>> mask = pltf.holdout(X, 0.4, seed=1)
        >>> print(pltf.metrics.score(pltf.nmf(rank=1).fit(X, mask=mask), X, ~mask).verdict())  # doctest: +ELLIPSIS
        The fit predicts ... popularity alone: AUC ..., popularity ....
        """
        row = self.table.loc[self.headline]
        value, other = float(row["value"]), float(row["popularity"])
        name = "AUC" if self.headline == "auc" else "log-likelihood"
        told = f"{name} {value:.3f}, popularity {other:.3f}"
        if row["low"] <= other <= row["high"] or value == other:
            return f"The fit predicts held-out cells about as well as popularity alone: {told}."
        better = "better" if value > other else "worse"
        return f"The fit predicts held-out cells {better} than popularity alone: {told}."

    def plot(self, axes: Any = None) -> Any:
        """Calibration and ROC curve, side by side; returns the two axes.

        With ``ranking=False`` there is only the calibration: its axes are returned.

        >>> import matplotlib; matplotlib.use("agg")
        >>> import numpy as np, pltf, pltf.metrics
        >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
        >>> mask = pltf.holdout(X, 0.4, seed=1)
        >>> scores = pltf.metrics.score(pltf.nmf(rank=1).fit(X, mask=mask), X, ~mask)
        >>> [ax.get_xlabel() for ax in scores.plot()]
        ['expected count of a cell', 'false positive rate']
        """
        from pltf import plotting

        return plotting.scores(self, axes)

    def __repr__(self) -> str:
        positive, sampled = np.count_nonzero(self.values), self.table["low"].notna().all()
        about = f"; {self.level:.0%} intervals" if sampled else ""
        rows = [f"<Scores of {self.values.size:,} cells, {positive:,} of them above zero{about}"]
        for measure, row in self.table.iterrows():
            interval = f"({row['low']:.4f} to {row['high']:.4f})" if sampled else ""
            rows.append(f"  {measure:<18}{row['value']:>9.4f} {interval:<24} popularity {row['popularity']:.4f}")
        for kind, row in self.coverage.iterrows():
            share = f"{row['level']:.0%} intervals of the {kind} hold {row['inside']:.1%} of the values"
            rows.append(f"  {share} ({row['expected']:.1%} if the fit is right)")
        return "\n".join(rows) + ">"


def score(
    fit: Fit,
    X: Any = None,
    cells: Any = None,
    *,
    of: str | None = None,
    draws: int = 200,
    resamples: int = 200,
    level: float = 0.9,
    seed: int = 0,
    ranking: bool = True,
    progress: bool = True,
) -> Scores:
    """Compare what a fit predicts of hidden cells with what they hold, and with what popularity predicts.

    Parameters
    ----------
    X, cells
        The data with all their values, dense or listed, and which of their cells to look at: as for
        :meth:`pltf.Fit.mean`, for example ``~mask`` of the mask that the fit was given. Or a :class:`pltf.Holdout`
        alone, or nothing for a fit that comes with the cells that were hidden from it (``fit.held_out``). If ``X`` has
        names of its axes, as a DataArray, positions are along these, in their order there.
    of
        The tensor, when the model has several; ``X`` are its data.
    draws
        Draws of the posterior for the log-likelihood and the coverage of intervals.
    resamples, level, seed
        The intervals hold the value for a share of ``level`` of so many random samples of the cells, with replacement
        (bootstrap). They tell how sure the score is with cells as few as these, not how it would change with another
        mask: for that, hide others. ``resamples=0``: no intervals.
    ranking
        AUC and average precision tell whether cells with a count are ranked above empty ones, so both kinds must be
        among the cells. Where they are not, as in ratings of which none is zero, False leaves these two out.

    Of links (a fit with ``likelihood="bernoulli"``) what is expected is the probability of a link, and the deviance is
    that of the Bernoulli distribution. Popularity then is the rate, and its expected value the probability at it.

    Popularity is how busy each row, column, ... was over the cells that the fit has seen
    (:func:`pltf.metrics.popularity`): no factorization at all. What does not beat it has learned nothing else.

    >>> import numpy as np, pltf, pltf.metrics
    >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
    >>> mask = pltf.holdout(X, 0.4, seed=1)
    >>> fit = pltf.nmf(rank=1).fit(X, mask=mask)
    >>> scores = pltf.metrics.score(fit, X, ~mask)
    >>> bool(scores.auc > 0.8), bool(scores.rmse < X.std())
    (True, True)
    >>> pltf.metrics.score(fit, X, ~mask & (X > 0), ranking=False).table.index.tolist()
    ['log_likelihood', 'deviance', 'rmse']
    """
    if not isinstance(fit, Fit):
        raise PltfError(f"{py:fit} must be a pltf.Fit, got {type(fit).__name__}")
    resamples, level = whole("resamples", resamples, 0), level_of(level)
    seed, ranking, progress = whole("seed", seed, 0), flag("ranking", ranking), flag("progress", progress)
    name = fit.tensor(of)
    if not isinstance(X, Holdout):
        kept(fit.patterns[name], "X must be the Holdout that it was fitted to")
    seen, at, x = _held(fit, name, X, cells)
    pattern = fit.patterns[name] if fit.keeps_data else seen.pattern()
    if ranking:
        _need_both_kinds(x)
    held = fit.held_out if X is None else X
    if isinstance(held, HeldOut) and held.sampled:
        text = "zeros are rarer among the hidden cells than among all: AUC does not mind, but the other scores do"
        warnings.warn(f"{text}, and observed counts seem higher than expected", ScoreWarning, stacklevel=2)
    again = int(np.count_nonzero(pattern.observed(at)))
    if again:
        text = f"{again:,} of the {x.size:,} cells were seen by the fit: their scores tell what it remembers"
        warnings.warn(text, ScoreWarning, stacklevel=2)
    log_prob = fit.log_prob(at.T, x, draws=draws, seed=seed, of=name, progress=progress)
    busy = expected_by_popularity(seen, pattern, at)
    if fit.likelihoods.get(name) == BERNOULLI:  # of a link its probability is expected, of popularity that at its rate
        expected = fit.prob(at.T, draws=draws, seed=seed, of=name, progress=progress)
        fitted = Judged(x, expected, log_prob, ranking, links=True)
        simple = Judged(x, -np.expm1(-busy), Bernoulli().log_prob(x, busy), ranking, links=True)
        busy = simple.mean
    else:
        fitted = Judged(x, fit.mean(at.T, of=name), log_prob, ranking)
        noise = fit._noise(name).at(at)  # the same for both: only what they expect is compared
        simple = Judged(x, busy, noise.log_prob(x, busy), ranking)
    table = _table({"": fitted, "popularity": simple}, resamples, level, seed, progress)
    ours, theirs = (_calibration(x, said, resamples, level, seed, ranking) for said in (fitted.mean, busy))
    covered = coverage(fit, name, at, x, level, draws, seed)
    likely = expected_deviance(fit, name, at, fitted.mean, seed)
    return Scores(table, ours, theirs, x, fitted.mean, busy, level, covered, likely)


def _held(fit: Fit, name: str, X: Any, cells: Any) -> tuple[Observation, Coords, Array]:
    """The data, the cells (modes, n) and what they hold."""
    indices = fit.model.observed[name]
    shape = tuple(fit.sizes[index] for index in indices)
    source = X
    if X is None:
        X = fit.held_out
        if X is None:
            raise PltfError(f"{py:X} must be the data, for this fit does not come with cells that were hidden from it")
    if isinstance(X, (Holdout, HeldOut)):
        if cells is not None:
            raise PltfError(f"{py:cells} must be None when {py:X} is a Holdout: it has its own")
        source, cells = X.train if isinstance(X, Holdout) else observed_again(fit.patterns[name]), X.cells
    elif cells is None:
        raise PltfError(f"{py:cells} must say which cells to score, for example ~mask")
    seen = observed_like(source, indices, fit.labels, fit.sizes, "X", unlisted=fit.patterns[name].unlisted)
    if seen.shape != shape:
        raise PltfError(f"{py:X} must have the shape of {name} in the fit, {shape}; got {seen.shape}")
    at = _coords(cells, source, shape, indices, fit.labels)
    x = X.values if isinstance(X, (Holdout, HeldOut)) else seen.values_at(at)
    if not x.size:
        raise PltfError(f"{py:cells} must list at least one cell, got none")
    if np.isnan(x).any():
        cell = tuple(map(int, at[:, int(np.argmax(np.isnan(x)))]))
        raise PltfError(f"{py:X} must hold a value for each of the cells, but {cell} is missing")
    return seen, at, x


def _need_both_kinds(x: Array) -> None:
    if (x > 0).all() or not (x > 0).any():
        kind = "above zero" if (x > 0).all() else "zero"
        text = f"{py:cells} must hold zeros and counts for AUC and average precision, but all {x.size:,} are {kind}"
        raise PltfError(f"{text}: {py:ranking=False} leaves these out")


def _coords(
    cells: Any, source: Any, shape: tuple[int, ...], indices: tuple[str, ...], labels: Mapping[str, Labels]
) -> Coords:
    """Cells as (modes, n). If their data name their axes, positions are along these, in the order they have there."""
    if not _are_positions(cells):
        return as_cells(cells, shape, indices, labels, f"{py:cells}").T
    dims, own = indices, dict[str, Any]()
    if is_xarray(source):
        dims = tuple(map(str, source.dims))
        own = {dim: source.indexes[dim] for dim in dims if dim in source.indexes}
        shape = source.shape
    elif isinstance(source, Observation) and source.dims is not None:
        dims, shape, own = source.dims, source.shape, {dim: one.index for dim, one in source.labels.items()}
    elif hasattr(source, "index") and set(getattr(source.index, "names", ())) == set(indices):  # levels of a Series
        dims, sizes = tuple(source.index.names), dict(zip(indices, shape, strict=True))
        shape = tuple(sizes[dim] for dim in dims)
    at = dict(zip(dims, as_cells(cells, shape, dims, labels, f"{py:cells}").T, strict=True))
    for dim in own.keys() & labels.keys():
        at[dim] = labels[dim].positions(own[dim], f"X: labels of {dim!r}")[at[dim]]
    return np.stack([at[index] for index in indices])


def _are_positions(cells: Any) -> bool:
    """Whether cells go by numbers, and not by names and labels."""
    try:
        return not has_names(cells) and np.asarray(cells).dtype.kind in "biu"
    except (ValueError, TypeError):  # ragged rows, which are refused
        return False


def _table(predictions: Mapping[str, Judged], resamples: int, level: float, seed: int, progress: bool) -> pd.DataFrame:
    """A row for each measure: its value and interval, for each prediction."""
    import pandas as pd

    columns: dict[str, Array] = {}
    shares, done = [(1 - level) / 2, (1 + level) / 2], 0
    with Progress(progress, len(predictions) * resamples, time_left=True) as shown:
        for name, judged in predictions.items():
            drawn = np.full((max(resamples, 1), len(judged.measures)), np.nan)
            for row, weight in enumerate(resampled(judged.x > 0, resamples, seed, judged.ranking)):
                drawn[row] = judged.weighted(weight)
                done += 1
                shown.show(done, "bootstrap of the scores")
            low, high = np.quantile(drawn, shares, axis=0, method="nearest")  # some may be infinite
            before = f"{name}_" if name else ""
            value = np.asarray(judged.values())
            columns |= {name or "value": value, f"{before}low": low, f"{before}high": high}
    return pd.DataFrame(columns, index=pd.Index(judged.measures, name="measure"))


def _calibration(x: Array, mean: Array, resamples: int, level: float, seed: int, ranking: bool = True) -> pd.DataFrame:
    """Cells in bins of equal expected totals: their expected and observed mean counts, the latter with its interval."""
    import pandas as pd

    order = np.argsort(mean, kind="stable")
    so_far = np.cumsum(mean[order])
    cuts = np.searchsorted(so_far, so_far[-1] * np.arange(1, BINS) / BINS)
    of_cell = np.empty(x.size, dtype=np.intp)
    of_cell[order] = np.unique(np.searchsorted(cuts, np.arange(x.size), "right"), return_inverse=True)[1]
    cells = np.bincount(of_cell)
    drawn = np.full((max(resamples, 1), cells.size), np.nan)
    for row, weight in enumerate(resampled(x > 0, resamples, seed, ranking)):
        drawn[row] = np.bincount(of_cell, weight * x) / np.maximum(np.bincount(of_cell, weight), 1)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return pd.DataFrame(
        {
            "cells": cells,
            "expected": np.bincount(of_cell, mean) / cells,
            "observed": np.bincount(of_cell, x) / cells,
            "low": low,
            "high": high,
        }
    )
