"""Scores of a fit on held-out cells, with uncertainty and the popularity of rows and columns as baseline."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pltf.data import Holdout, Observation
from pltf.data.cell_index import Coords
from pltf.data.labels import Labels
from pltf.data.observe import has_names, is_xarray, observed_again
from pltf.data.pattern import ForgottenPattern, kept
from pltf.data.split import HeldOut
from pltf.errors import PltfError, ScoreWarning, flag, py, warn_caller, whole
from pltf.fit import Fit
from pltf.gamma import Array, level_of
from pltf.inference.progress import Progress
from pltf.likelihoods import BERNOULLI
from pltf.metrics.baseline import expected_by_marginals, expected_by_popularity
from pltf.metrics.coverage import coverage, expected_deviance
from pltf.metrics.measures import Judged, resampled
from pltf.prediction.cells import as_cells, observed_like
from pltf.prediction.noise import Bernoulli

if TYPE_CHECKING:
    import pandas as pd

BINS = 10  # of the calibration
MUCH, FEW = 10.0, 0.1  # nats that a single cell loses; share of the cells that are few
_WORDS = {"log_likelihood": "log-likelihood", "auc": "AUC"}
_LESS_IS_BETTER = ("deviance", "rmse")
_ADVICE = {
    "Worse than popularity": "; the row and column totals alone predict these cells better than the components, "
    "so try fewer components, more restarts or another prior",
    "About as good as popularity": ", a difference within chance for {:,} cells",
    "Worse than chance": "; 0.5 is guessing",
    "No better than chance": "; 0.5 is guessing",
}


@dataclass(frozen=True, eq=False, repr=False)
class Scores:
    """Scores on held-out cells, as returned by :func:`pltf.metrics.score`.

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
    >>> print(scores.verdict())  # doctest: +ELLIPSIS
    About as good as popularity: the log-likelihood is ...
    """

    table: pd.DataFrame  # a row for each measure, with bootstrap intervals
    calibration: pd.DataFrame  # a row for each bin of cells, by their expected count
    popularity_calibration: pd.DataFrame  # the same for popularity
    values: Array  # values of the cells
    means: Array  # expected values
    popularity: Array  # expected values by popularity alone
    level: float  # of the intervals
    coverage: pd.DataFrame  # intervals of rates and counts: share of the values inside, and expected share
    lead: pd.DataFrame  # a row for each measure: improvement over popularity, with intervals
    sampled: bool = False  # zeros were sampled, so they are rarer than in all cells
    expected_deviance: float = math.nan  # expected deviance if the fit is correct
    lead_by_cell: Array | None = None  # improvement of the log-probability of each cell over popularity
    supported: NDArray[np.bool_] | None = None  # whether the data support the prediction of each cell
    of_supported: pd.DataFrame | None = None  # value and popularity for these cells alone, if there are others

    @property
    def ranking(self) -> bool:
        """Whether AUC and average precision are among the measures.

        >>> import numpy as np, pltf, pltf.metrics
        >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
        >>> mask = pltf.holdout(X, 0.4, seed=1)
        >>> scores = pltf.metrics.score(pltf.nmf(rank=1).fit(X, mask=mask), X, ~mask)
        >>> scores.ranking
        True
        """
        return "auc" in self.table.index

    @property
    def auc(self) -> float:
        """Area under the ROC curve: probability that a non-zero has a larger expected count than a zero.

        >>> import numpy as np, pltf, pltf.metrics
        >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
        >>> mask = pltf.holdout(X, 0.4, seed=1)
        >>> scores = pltf.metrics.score(pltf.nmf(rank=1).fit(X, mask=mask), X, ~mask)
        >>> 0.5 < scores.auc <= 1
        True
        """
        return self._value("auc")

    @property
    def average_precision(self) -> float:
        """Area under the precision-recall curve.

        >>> import numpy as np, pltf, pltf.metrics
        >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
        >>> mask = pltf.holdout(X, 0.4, seed=1)
        >>> scores = pltf.metrics.score(pltf.nmf(rank=1).fit(X, mask=mask), X, ~mask)
        >>> 0.5 < scores.average_precision <= 1
        True
        """
        return self._value("average_precision")

    @property
    def log_likelihood(self) -> float:
        """Mean posterior predictive log-probability of the values of the cells, in nats.

        >>> import numpy as np, pltf, pltf.metrics
        >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
        >>> mask = pltf.holdout(X, 0.4, seed=1)
        >>> scores = pltf.metrics.score(pltf.nmf(rank=1).fit(X, mask=mask), X, ~mask)
        >>> scores.log_likelihood < 0
        True
        """
        return self._value("log_likelihood")

    @property
    def deviance(self) -> float:
        """Mean Poisson deviance of the expected counts.

        >>> import numpy as np, pltf, pltf.metrics
        >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
        >>> mask = pltf.holdout(X, 0.4, seed=1)
        >>> scores = pltf.metrics.score(pltf.nmf(rank=1).fit(X, mask=mask), X, ~mask)
        >>> scores.deviance > 0
        True
        """
        return self._value("deviance")

    @property
    def rmse(self) -> float:
        """Root of the mean squared error of the expected counts.

        >>> import numpy as np, pltf, pltf.metrics
        >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
        >>> mask = pltf.holdout(X, 0.4, seed=1)
        >>> scores = pltf.metrics.score(pltf.nmf(rank=1).fit(X, mask=mask), X, ~mask)
        >>> scores.rmse > 0
        True
        """
        return self._value("rmse")

    @property
    def headline(self) -> str:
        """The measure to look at first: the log-likelihood, or AUC if at least half of the cells are zeros.

        If nearly all cells are zeros, the log-likelihood mostly measures how rare non-zeros are, and AUC measures which
        cells they are. AUC is also the headline if zeros were sampled, which changes the log-likelihood.

        >>> import numpy as np, pltf, pltf.metrics
        >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
        >>> mask = pltf.holdout(X, 0.4, seed=1)
        >>> scores = pltf.metrics.score(pltf.nmf(rank=1).fit(X, mask=mask), X, ~mask)
        >>> scores.headline
        'log_likelihood'
        """
        mostly_zeros = self.sampled or 2 * np.count_nonzero(self.values) <= self.values.size
        return "auc" if self.ranking and mostly_zeros else "log_likelihood"

    @property
    def beats_popularity(self) -> bool | None:
        """Whether the headline measure is better than that of popularity; None if the difference is not significant.

        It is significant if the bootstrap interval of the difference (``lead``) excludes zero. Without intervals
        (``resamples=0``) the sign of the difference decides.

        >>> import numpy as np, pltf, pltf.metrics
        >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
        >>> mask = pltf.holdout(X, 0.4, seed=1)
        >>> scores = pltf.metrics.score(pltf.nmf(rank=1).fit(X, mask=mask), X, ~mask)
        >>> print(scores.beats_popularity)  # too few cells to tell
        None
        """
        return self._leads(self.headline)

    def _leads(self, measure: str) -> bool | None:
        """Whether a measure is better than that of popularity; None if the difference is not significant."""
        value, low, high = self.lead.loc[measure, ["value", "low", "high"]]
        low, high = (value, value) if np.isnan(low) else (low, high)
        return True if low > 0 else False if high < 0 else None

    @property
    def _loses_by_few(self) -> bool:
        """Whether the log-likelihood is worse than that of popularity because of a few cells.

        Then the bootstrap cannot tell, but such losses are not chance: even one of them is improbable.
        """
        if self.lead_by_cell is None or self._leads("log_likelihood") is not None:
            return False
        large = self.lead_by_cell < -MUCH
        whole = float(self.lead_by_cell.sum())
        few = 0 < np.count_nonzero(large) <= max(1.0, FEW * large.size)
        return bool(whole < -MUCH and few and float(self.lead_by_cell[large].sum()) < whole / 2)

    def verdict(self) -> str:
        """One sentence: whether the fit predicts better than the popularity of rows and columns alone.

        >>> import numpy as np, pltf, pltf.metrics
        >>> rng = np.random.default_rng(0)
        >>> X = rng.poisson(np.outer(rng.gamma(2.0, 1.0, 30), rng.gamma(2.0, 1.0, 20)))  # popularity is all there is
        >>> mask = pltf.holdout(X, 0.4, seed=0)
        >>> scores = pltf.metrics.score(pltf.nmf(rank=8).fit(X, mask=mask, method="em"), X, ~mask)
        >>> scores.headline, scores.beats_popularity
        ('log_likelihood', False)
        >>> scores.verdict().split(":")[0]
        'Worse than popularity'
        """
        row = self.table.loc[self.headline]
        compared = f"the {_WORDS[self.headline]} is {row['value']:.4g} (popularity {row['popularity']:.4g})"
        found = self._found()
        return f"{found}: {compared}{self._otherwise()}{_ADVICE.get(found, '').format(self.values.size)}."

    def _found(self) -> str:
        """The verdict in a few words."""
        beats = self.beats_popularity
        if self.headline == "auc" and self.auc < 0.5 and beats is not False:
            return "No better than chance" if self.table.loc["auc", "high"] >= 0.5 else "Worse than chance"
        if self._loses_by_few and self.headline == "log_likelihood":
            return "Worse on average, because of a few cells"
        other = self._other_leads()
        if beats is None:
            return "Mixed" if other is False else "About as good as popularity"
        if other is (not beats):
            return "Mixed"
        return "Better than popularity" if beats else "Worse than popularity"

    @property
    def _other(self) -> str | None:
        """The other main measure."""
        other = "log_likelihood" if self.headline == "auc" else "auc"
        return other if other in self.table.index else None

    def _other_leads(self) -> bool | None:
        """Whether the other main measure is better than that of popularity; None if it is not significant."""
        if self._other is None:
            return None
        return False if self._other == "log_likelihood" and self._loses_by_few else self._leads(self._other)

    def _otherwise(self) -> str:
        """The other main measure, if it disagrees."""
        beats, other = self.beats_popularity, self._other
        if other is None or (beats is None and self._other_leads() is not False):
            return ""
        row, lead = self.table.loc[other], self.lead.loc[other, "value"]
        if not lead or (lead > 0) == beats:  # without a winner, the other one is worse
            return ""
        few = ", because of a few cells" if other == "log_likelihood" and self._loses_by_few else ""
        values = f"{row['value']:.4g} against {row['popularity']:.4g}"
        return f", but the {_WORDS[other]} is {'better' if lead > 0 else 'worse'} ({values}{few})"

    @property
    def support_note(self) -> str:
        """A sentence on cells whose predictions the data do not support (:meth:`pltf.Fit.supported`); empty if none.

        >>> import numpy as np, pltf, pltf.metrics
        >>> X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
        >>> mask = pltf.holdout(X, 0.4, seed=1)
        >>> print(pltf.metrics.score(pltf.nmf(rank=1).fit(X, mask=mask), X, ~mask).support_note)  # doctest: +ELLIPSIS
        The data do not support the predictions of 1 of these 6 cells: without them, the log-likelihood is ...
        """
        loose = 0 if self.supported is None else int(np.count_nonzero(~self.supported))
        if not loose:
            return ""
        told = f"The data do not support the predictions of {loose:,} of these {self.values.size:,} cells"
        if self.of_supported is None:
            return f"{told}."
        measure = self.headline if self.headline in self.of_supported.index else "log_likelihood"
        value, popularity = self.of_supported.loc[measure]
        return f"{told}: without them, the {_WORDS[measure]} is {value:.4g} (popularity {popularity:.4g})."

    def _value(self, measure: str) -> float:
        if measure not in self.table.index:
            raise PltfError(f"these scores have no {measure}, as they were computed with {py:ranking=False}")
        return float(self.table.loc[measure, "value"])

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

    def _repr_html_(self) -> str:
        from pltf.notebooks import scores_html

        return scores_html(self)

    def __repr__(self) -> str:
        positive, sampled = np.count_nonzero(self.values), self.table["low"].notna().all()
        about = f"; {self.level:.0%} intervals" if sampled else ""
        rows = [f"<Scores of {self.values.size:,} cells, {positive:,} of them above zero{about}"]
        for measure, row in self.table.iterrows():
            interval = f"({row['low']:.4f} to {row['high']:.4f})" if sampled else ""
            rows.append(f"  {measure:<18}{row['value']:>9.4f} {interval:<24} popularity {row['popularity']:.4f}")
        for _, row in self.coverage[self.coverage.index == "count"].iterrows():
            share = f"{row['level']:.0%} intervals of the count contain {row['inside']:.1%} of the values"
            rows.append(f"  {share} ({row['expected']:.1%} if the fit is correct)")
        rows += [f"  {self.support_note}"] if self.support_note else []
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
    ranking: bool | None = None,
    progress: bool = True,
) -> Scores:
    """Score the predictions of a fit for held-out cells, and compare them with the popularity baseline.

    Parameters
    ----------
    X, cells
        The complete data, dense or listed, and the cells to score, given as for :meth:`pltf.Fit.mean`; for example
        ``~mask``, where ``mask`` is the mask of the fit. Or a :class:`pltf.Holdout` alone, or nothing for a fit that
        stores its held-out cells (``fit.held_out``). If ``X`` has named axes, as a DataArray, positions are in the
        order of these axes.
    of
        Name of the tensor when the model has several; ``X`` is its data.
    draws
        Number of posterior draws for the log-likelihood and the coverage of intervals.
    resamples, level, seed
        Bootstrap intervals with probability ``level``, from ``resamples`` samples of the cells with replacement. They
        measure the uncertainty due to the number of cells, not the variation between masks. ``resamples=0``: no
        intervals.
    ranking
        Compute AUC and average precision, which measure whether non-zeros are ranked above zeros, so the cells must
        have both. Default: if they do. False leaves them out, for example for ratings without zeros.

    For links (``likelihood="bernoulli"``) the expected value of a cell is the probability of a link, and the deviance
    is that of the Bernoulli distribution. Popularity is then used as a rate, and converted to a probability.

    Popularity is the product of the marginals of the cells that the fit has seen (:func:`pltf.metrics.popularity`). A
    fit that is no better has learned nothing beyond them.

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
    seed, progress = whole("seed", seed, 0), flag("progress", progress)
    ranking = None if ranking is None else flag("ranking", ranking)
    name = _tensor(fit, X, of)
    if not isinstance(X, Holdout | HeldOut):
        kept(fit.patterns[name], "pass the Holdout that it was fitted to as X")
    seen, at, x = _held(fit, name, X, cells)
    ranking = _ranked(x, ranking)
    held = fit.held_out if X is None else X
    sampled = isinstance(held, HeldOut) and held.sampled
    if sampled:
        text = "zeros are rarer among the held-out cells than in the data: this affects all scores but AUC"
        warn_caller(f"{text}, and observed counts seem higher than expected", ScoreWarning)
    busy = _popularity(fit, name, seen, at)
    log_prob = fit.log_prob(at.T, x, draws=draws, seed=seed, of=name, progress=progress)
    if fit.likelihoods.get(name) == BERNOULLI:  # expected: the probability of a link
        expected = fit.prob(at.T, draws=draws, seed=seed, of=name, progress=progress)
        fitted = Judged(x, expected, log_prob, ranking, links=True)
        simple = Judged(x, -np.expm1(-busy), Bernoulli().log_prob(x, busy), ranking, links=True)
        busy = simple.mean
    else:
        fitted = Judged(x, fit.mean(at.T, of=name), log_prob, ranking)
        noise = fit._noise(name).at(at)  # the same for both: only expected counts are compared
        simple = Judged(x, busy, noise.log_prob(x, busy), ranking)
    table, lead = _tables(fitted, simple, resamples, level, seed, progress=progress)
    ours, theirs = (_calibration(x, said, resamples, level, seed, ranking) for said in (fitted.mean, busy))
    covered = coverage(fit, name, at, x, level, draws, seed)
    likely = expected_deviance(fit, name, at, fitted.mean, seed)
    supported = fit.supported(at.T, of=name)
    by_cell, alone = fitted.lead_by_cell(simple), _of_some(fitted, simple, supported)
    return Scores(
        table, ours, theirs, x, fitted.mean, busy, level, covered, lead, sampled, likely, by_cell, supported, alone
    )


def _popularity(fit: Fit, name: str, seen: Observation | None, at: Coords) -> Array:
    """Expected counts by popularity; warns of cells that the fit was fitted to, or that it does not know them."""
    forgotten = fit.patterns[name]
    if seen is None:
        assert isinstance(forgotten, ForgottenPattern)
        advice = f"; {py:fit.with_store(path)} names its cell store" if forgotten.digest else ""
        text = "this fit does not know which cells it was fitted to, so popularity is that of its expected counts"
        warn_caller(f"{text}{advice}", ScoreWarning)
        means = {a: factor.mean for a, factor in fit.factors.items()}
        return expected_by_marginals(fit._equation(name), means, at)
    pattern = fit.patterns[name] if fit.keeps_data else seen.pattern()
    again = int(np.count_nonzero(pattern.observed(at)))
    if again:
        number = f"{again:,} of the {at.shape[1]:,} cells"
        warn_caller(f"{number} were used in the fit: their scores measure the fit, not prediction", ScoreWarning)
    return expected_by_popularity(seen, pattern, at)


def _tensor(fit: Fit, X: Any, of: str | None) -> str:
    """The tensor to score; for held-out cells, their tensor."""
    held = fit.held_out if X is None else X
    hidden = held.of if isinstance(held, HeldOut) else None
    if hidden is not None and of is not None and fit.tensor(of) != hidden:
        raise PltfError(f"{py:of} must be {hidden!r}, the tensor of the held-out cells, got {of!r}")
    return fit.tensor(of if of is not None else hidden)


def _held(fit: Fit, name: str, X: Any, cells: Any) -> tuple[Observation | None, Coords, Array]:
    """The data (None if the fit has forgotten them), the cells (modes, n) and their values."""
    indices = fit.model.observed[name]
    shape = tuple(fit.sizes[index] for index in indices)
    source = X
    if X is None:
        X = fit.held_out
        if X is None:
            raise PltfError(f"{py:X} must be the data, because this fit has no held-out cells")
    if isinstance(X, (Holdout, HeldOut)):
        if cells is not None:
            raise PltfError(f"{py:cells} must be None when {py:X} is a Holdout, which has its own cells")
        if isinstance(X, HeldOut) and isinstance(fit.patterns[name], ForgottenPattern):
            return None, _coords(X.cells, None, shape, indices, fit.labels), X.values
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


def _ranked(x: Array, ranking: bool | None) -> bool:
    """Whether to compute AUC and average precision."""
    both = bool((x > 0).any() and not (x > 0).all())
    if ranking is False or both:
        return ranking is not False
    kind = "above zero" if (x > 0).all() else "zero"
    text = f"{py:cells} must have zeros and non-zeros for AUC and average precision, but all {x.size:,} are {kind}"
    if ranking:
        raise PltfError(f"{text}: {py:ranking=False} leaves these out")
    warn_caller(f"{text}: these are left out", ScoreWarning)
    return False


def _coords(
    cells: Any, source: Any, shape: tuple[int, ...], indices: tuple[str, ...], labels: Mapping[str, Labels]
) -> Coords:
    """Cells as (modes, n). If the data have named axes, positions are in the order of these axes."""
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
    """Whether cells are given as numbers, not as names or labels."""
    try:
        return not has_names(cells) and np.asarray(cells).dtype.kind in "biu"
    except (ValueError, TypeError):  # ragged rows, which raise an error later
        return False


def _tables(
    fitted: Judged, simple: Judged, resamples: int, level: float, seed: int, *, progress: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A row for each measure: value and interval, for the fit and for popularity; and the lead of the fit."""
    import pandas as pd

    measures, drawn = fitted.measures, np.full((2, max(resamples, 1), len(fitted.measures)), np.nan)
    shares, done = [(1 - level) / 2, (1 + level) / 2], 0
    with Progress(progress, 2 * resamples, time_left=True) as shown:
        for number, judged in enumerate((fitted, simple)):  # of the same samples
            for row, weight in enumerate(resampled(judged.x > 0, resamples, seed, judged.ranking)):
                drawn[number, row] = judged.weighted(weight)
                done += 1
                shown.show(done, "bootstrap of the scores")
    values = np.array([judged.values() for judged in (fitted, simple)])
    low, high = np.quantile(drawn, shares, axis=1, method="nearest")  # some may be infinite
    index = pd.Index(measures, name="measure")
    columns = [("value", "low", "high"), ("popularity", "popularity_low", "popularity_high")]
    of_both = zip(columns, zip(values, low, high, strict=True), strict=True)
    table = {name: one for names, three in of_both for name, one in zip(names, three, strict=True)}
    return pd.DataFrame(table, index=index), _lead(values, drawn, shares, index)


def _of_some(fitted: Judged, simple: Judged, some: NDArray[np.bool_]) -> pd.DataFrame | None:
    """The measures of the fit and of popularity for some of the cells; None for all or none of them."""
    import pandas as pd

    if some.all() or not some.any():
        return None
    parts = [judged.part(some) for judged in (fitted, simple)]
    columns = dict(zip(("value", "popularity"), (part.values() for part in parts), strict=True))
    return pd.DataFrame(columns, index=pd.Index(parts[0].measures, name="measure"))


def _lead(values: Array, drawn: Array, shares: list[float], index: pd.Index) -> pd.DataFrame:
    """Improvement of the measures of the first prediction over the second, with intervals."""
    import pandas as pd

    sign = np.where(np.isin(index, _LESS_IS_BETTER), -1.0, 1.0)
    with np.errstate(invalid="ignore"):  # infinities of both
        ahead, differences = sign * (values[0] - values[1]), sign * (drawn[0] - drawn[1])
    low, high = np.quantile(differences, shares, axis=0, method="nearest")
    return pd.DataFrame({"value": ahead, "low": low, "high": high}, index=index)


def _calibration(x: Array, mean: Array, resamples: int, level: float, seed: int, ranking: bool = True) -> pd.DataFrame:
    """Calibration: expected and observed mean counts, with intervals, in bins of equal expected totals."""
    import pandas as pd

    order = np.argsort(mean, kind="stable")
    so_far = np.cumsum(mean[order])
    cuts = np.searchsorted(so_far, so_far[-1] * np.arange(1, BINS) / BINS)
    of_cell = np.empty(x.size, dtype=np.intp)
    of_cell[order] = np.unique(np.searchsorted(cuts, np.arange(x.size), "right"), return_inverse=True)[1]
    cells = np.bincount(of_cell)
    drawn = np.full((max(resamples, 1), cells.size), np.nan)
    for row, weight in enumerate(resampled(x > 0, resamples, seed, ranking)):
        times = np.bincount(of_cell, weight)
        np.divide(np.bincount(of_cell, weight * x), times, out=drawn[row], where=times > 0)
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of bins that were never drawn
        low, high = np.nanquantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return pd.DataFrame(
        {
            "cells": cells,
            "expected": np.bincount(of_cell, mean) / cells,
            "observed": np.bincount(of_cell, x) / cells,
            "low": low,
            "high": high,
        }
    )
