"""Look up saved results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.common import Json
from experiments.formatting import pm
from experiments.settings import LEVELS
from experiments.side import CASES, KNOWN_VISITS

Saved = Mapping[str, Json]  # part -> its results
NO_SIDE, KNOWN = CASES[0].name, KNOWN_VISITS.name


def only(rows: Sequence[Json], **wanted: Any) -> Json:
    """The only row with these values."""
    (row,) = (row for row in rows if all(row[key] == value for key, value in wanted.items()))
    return row


def link_aucs(saved: Saved, model: str, way: str) -> list[list[float]]:
    """The AUC of each run, for each share of missing cells."""
    rows = saved["links"]["rows"]
    return [only(rows, model=model, way=way, missing=missing)["auc"] for missing in LEVELS]


def tucker_of_the_figure(links: Json) -> str:
    """The Tucker model with the highest ELBO: chosen without the hidden cells."""

    def bound(name: str) -> float:
        return float(np.sum([row["bound"] for row in links["rows"] if (row["model"], row["way"]) == (name, "VB")]))

    names: list[str] = links["tucker"]
    return max(names, key=bound)


def popular(saved: Saved) -> list[list[float]]:
    """The AUC of the popularity baseline."""
    return link_aucs(saved, "popularity", "smoothed")


def popular_row(saved: Saved) -> Sequence[str]:
    """A table row of the popularity baseline."""
    return ("popularity", *map(pm, popular(saved)))


def side_aucs(found: Json, case: str, prior: str, rank: int, which: str = "auc") -> list[list[float]]:
    """The AUC of each run with some side data, for each share of missing cells."""
    rows = found["rows"]
    return [only(rows, case=case, prior=prior, rank=rank, missing=missing)[which] for missing in LEVELS]
