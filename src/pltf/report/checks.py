"""How well hidden cells were predicted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pltf.data.split import HeldOut
from pltf.errors import PltfError
from pltf.fit import Fit
from pltf.gamma import Array
from pltf.metrics import Scores, score
from pltf.report.formatting import many
from pltf.report.predictions import held_tensor, noted, sentence

MOST_SCORED = 30_000  # held-out cells; more take long and say little more
MOST_POINTS = 400  # of a ROC curve

# What each measure is, whether more of it is better, and what it is measured in.
MEASURES = {
    "auc": ("AUC", "how often a cell with a count is ranked above an empty one; 0.5 is chance, 1 is perfect", True),
    "average_precision": (
        "average precision",
        "how many of the top-ranked cells hold a count, over all cut-offs",
        True,
    ),
    "log_likelihood": ("log-likelihood", "log-probability of what a cell held, in nats, averaged over cells", True),
    "deviance": ("deviance", "mean Poisson deviance between expected and observed counts", False),
    "rmse": ("RMSE", "typical error of the expected count, in counts", False),
}


@dataclass(frozen=True)
class Measure:
    """A row of the table of scores."""

    name: str
    words: str
    value: float
    low: float
    high: float
    popularity: float
    better: bool  # than popularity
    more_is_better: bool


@dataclass(frozen=True, eq=False)
class Checks:
    """Scores, if there are any, and what to say of them."""

    scores: Scores | None
    measures: tuple[Measure, ...] = ()
    notes: tuple[str, ...] = ()
    coverage: tuple[str, ...] = ()  # of the intervals, in words


def checks(fit: Fit, scores: Scores | None, progress: bool) -> Checks:
    """The scores that were given, or those of the cells that were held out."""
    notes: list[str] = []
    if scores is None and fit.held_out is not None:
        with noted() as notes:
            try:
                scores = _scored(fit, fit.held_out, notes, progress)
            except PltfError as reason:
                notes.append(sentence(f"the held-out cells could not be scored: {reason}"))
    if scores is None:
        return Checks(None, notes=tuple(notes))
    if not scores.ranking:
        notes.append(_no_roc(scores))
    return Checks(scores, _measures(scores), tuple(notes), _coverage(scores))


def _scored(fit: Fit, held: HeldOut, notes: list[str], progress: bool) -> Scores:
    if len(held.values) > MOST_SCORED:
        some = np.random.default_rng(0).choice(len(held.values), MOST_SCORED, replace=False)
        notes.append(f"Scored on {MOST_SCORED:,} of the {many(len(held.values), 'held-out cell')}, chosen at random.")
        held = HeldOut(held.cells[some], held.values[some], held.sampled)
    both = bool(0 < np.count_nonzero(held.values) < len(held.values))
    return score(fit, held, of=held_tensor(fit), ranking=both, progress=progress)


def _no_roc(scores: Scores) -> str:
    """Why there is no ROC curve."""
    positive, cells = np.count_nonzero(scores.values), len(scores.values)
    if 0 < positive < cells:
        return "There is no ROC curve, for the scores were made with ranking=False."
    kind = f"of {many(cells, 'cell')} none {'is empty' if positive else 'holds one'}"
    return f"There is no ROC curve: it tells cells with a count from empty ones, and {kind}."


def _measures(scores: Scores) -> tuple[Measure, ...]:
    rows = []
    for key, row in scores.table.iterrows():
        name, words, more = MEASURES[str(key)]
        ahead = row["value"] > row["popularity"] if more else row["value"] < row["popularity"]
        value, low, high, popularity = (float(row[column]) for column in ("value", "low", "high", "popularity"))
        rows.append(Measure(name, words, value, low, high, popularity, bool(ahead), more))
    return tuple(rows)


def _coverage(scores: Scores) -> tuple[str, ...]:
    """How many values the intervals hold, and how many they should."""
    told = []
    for kind, row in scores.coverage.iterrows():
        held = f"The {row['level']:.0%} intervals of the {kind} hold {row['inside']:.1%} of the values"
        told.append(f"{held}; {row['expected']:.1%} if the fit is right.")
    return (*told, "Counts scatter around their rates, so the intervals of the rate should hold few of them.")


def roc_curve(values: Array, means: Array) -> tuple[Array, Array]:
    """False and true positive rates, as many points as can be seen."""
    from sklearn.metrics import roc_curve

    wrong, right, _ = roc_curve(values > 0, means)
    if wrong.size > MOST_POINTS:
        along = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(wrong), np.diff(right)))])
        kept = np.unique(np.searchsorted(along, np.linspace(0, along[-1], MOST_POINTS)).clip(max=wrong.size - 1))
        wrong, right = wrong[kept], right[kept]
    return wrong, right
