"""How well held-out cells were predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pltf.data.split import MOST_SCORED, HeldOut
from pltf.errors import PltfError
from pltf.fit import Fit
from pltf.gamma import Array
from pltf.metrics import Scores, score
from pltf.report.formatting import number, percent, reason
from pltf.report.predictions import held_tensor, noted

MOST_POINTS = 400  # of a ROC curve

# Name and description of each measure, and whether more is better.
MEASURES = {
    "auc": ("AUC", "how often a cell with a count is ranked above an empty one; 0.5 is chance, 1 is perfect", True),
    "average_precision": (
        "average precision",
        "the share of top-ranked cells that have a count, over all cut-offs",
        True,
    ),
    "log_likelihood": ("log-likelihood", "mean log-probability of the held-out values, in nats per cell", True),
    "deviance": ("deviance", "mean Poisson deviance between expected and observed counts", False),
    "rmse": ("RMSE", "root mean squared error of the expected count", False),
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


@dataclass(frozen=True, eq=False)
class Checks:
    """The scores of one tensor, if there are any, and notes on them."""

    tensor: str
    scores: Scores | None
    measures: tuple[Measure, ...] = ()
    headline: Measure | None = None
    verdict: str = ""
    notes: tuple[str, ...] = ()
    coverage: tuple[str, ...] = ()  # coverage of the intervals, in words

    @property
    def is_poor(self) -> bool:
        """Whether the verdict is a warning: worse than popularity or chance, or mixed."""
        return self.verdict.startswith(("Worse", "Mixed", "No better"))


def checks(fit: Fit, scores: Scores | Mapping[str, Scores] | None, progress: bool) -> list[Checks]:
    """For each tensor, the given scores, or those of the held-out cells."""
    if isinstance(scores, Scores):
        scores = {held_tensor(fit) or next(iter(fit.model.observed)): scores}
    given = scores or {}
    return [_of_tensor(fit, name, given.get(name), not given, progress) for name in fit.model.observed]


def _of_tensor(fit: Fit, name: str, scores: Scores | None, held_out: bool, progress: bool) -> Checks:
    notes: list[str] = []
    if held_out and fit.held_out is not None and held_tensor(fit) == name:
        with noted() as notes:
            try:
                scores = _scored(fit, name, fit.held_out, notes, progress)
            except PltfError as error:
                notes.append(f"The held-out cells could not be scored: {reason(error)}")
    if scores is None:
        return Checks(name, None, notes=tuple(notes))
    if not scores.ranking:
        notes.append(_no_roc(scores))
    if scores.support_note:
        notes.append(scores.support_note.replace(" -", " −"))
    measures = _measures(scores)
    headline = measures[list(scores.table.index).index(scores.headline)]
    return Checks(
        name,
        scores,
        measures,
        headline,
        scores.verdict().replace(" -", " −").replace("(-", "(−"),
        tuple(notes),
        _coverage(scores),
    )


def _scored(fit: Fit, name: str, held: HeldOut, notes: list[str], progress: bool) -> Scores:
    some, every = held.some(MOST_SCORED), len(held.values)
    if len(some.values) < every:
        scored = f"{len(some.values):,} of the {every:,} held-out cells, chosen at random"
        notes.append(f"Scored on {scored}, as after pltf fit; pltf score and pltf.metrics.score take all.")
    return score(fit, some, of=name, ranking=some.both_kinds, progress=progress)


def _no_roc(scores: Scores) -> str:
    """Why there is no ROC curve."""
    positive, cells = np.count_nonzero(scores.values), len(scores.values)
    if 0 < positive < cells:
        return "There is no ROC curve, because the scores were made with ranking=False."
    kind = "are empty" if positive else "hold a count"
    return f"There is no ROC curve: it needs both empty cells and cells with a count, and none of {cells:,} {kind}."


def _measures(scores: Scores) -> tuple[Measure, ...]:
    rows = []
    for key, row in scores.table.iterrows():
        name, words, more = MEASURES[str(key)]
        ahead = row["value"] > row["popularity"] if more else row["value"] < row["popularity"]
        value, low, high, popularity = (float(row[column]) for column in ("value", "low", "high", "popularity"))
        if key == "deviance" and math.isfinite(scores.expected_deviance):
            words += f"; {number(scores.expected_deviance)} is expected if the fit is right"
        else:
            words += f"; {'more' if more else 'less'} is better"
        rows.append(Measure(name, words, value, low, high, popularity, bool(ahead)))
    return tuple(rows)


def _coverage(scores: Scores) -> tuple[str, ...]:
    """The share of the values in the intervals, and the expected share."""
    told = []
    for kind, row in scores.coverage.iterrows():
        held = f"{percent(row['inside'])} of the values lie in the {percent(row['level'])} intervals of the {kind}"
        told.append(f"{held} ({percent(row['expected'])} expected if the fit is right).")
    if "rate" in scores.coverage.index and scores.coverage.loc["rate", "expected"] < 0.5:
        told.append("Counts scatter around their rates, so few of them lie in the intervals of the rate.")
    return tuple(told)


def roc_curve(values: Array, means: Array) -> tuple[Array, Array]:
    """False and true positive rates, at most :data:`MOST_POINTS` of them."""
    from sklearn.metrics import roc_curve

    wrong, right, _ = roc_curve(values > 0, means)
    if wrong.size > MOST_POINTS:
        along = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(wrong), np.diff(right)))])
        kept = np.unique(np.searchsorted(along, np.linspace(0, along[-1], MOST_POINTS)).clip(max=wrong.size - 1))
        wrong, right = wrong[kept], right[kept]
    return wrong, right
