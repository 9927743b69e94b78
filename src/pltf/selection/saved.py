"""Saving and loading searches."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from pltf.selection.choice import FoldScores
from pltf.selection.heldout import FoldOutcome
from pltf.selection.result import Selection
from pltf.selection.search import Outcome
from pltf.store.container import Box, Boxes, write
from pltf.store.fits import as_path, fit_boxes, fit_from
from pltf.store.serialize import rows_as_text, rows_from_text, told

SEARCH = "search"
_LATER = {"criterion": "bound", "score": "log_likelihood", "note": ""}  # since 0.2, with their values before
_TOLD = {"best": dict, "edges": dict, "interrupted": bool, "n_candidates": int, "unsettled": int, "seed": int}
_TYPES: dict[str, type] = {**_TOLD, **dict.fromkeys(_LATER, str)}


def save_search(found: Selection, path: str | os.PathLike[str], more: Boxes | None = None) -> None:
    """Write a search to a file: the best fit, and the results of all others."""
    write(as_path(path), SEARCH, {**fit_boxes(found.best_fit), "search": _box(found), **(more or {})})


def _box(found: Selection) -> Box:
    box = Box({name: getattr(found, name) for name in _TYPES})
    box.about["winner"] = next(n for n, one in enumerate(found.outcomes) if one is found.winner)
    box.about["failures"] = [dict(one) for one in found.failures]
    box.about["edges"] = dict(found.edges)
    box.about["outcomes"] = [outcome_as_text(one) for one in found.outcomes]
    return box


def outcome_as_text(one: Outcome) -> dict[str, Any]:
    """The outcome of a candidate as plain values."""
    text = {"label": one.label, "bound": one.bound, "rows": rows_as_text(one.rows), "alike": one.alike.tolist()}
    return text if one.folds is None else text | {"folds": fold_as_text(one.folds), "entries": one.entries}


def outcome_from_text(one: dict[str, Any]) -> Outcome:
    """The outcome from plain values."""
    rows, alike = rows_from_text(one["rows"]), np.array(one["alike"], dtype=np.float64)
    folds = FoldScores(*fold_from_text(one["folds"], 2)) if "folds" in one else None
    if not (rows or folds) or alike.shape != (len(rows),):
        raise ValueError("runs are missing")
    return Outcome(dict(one["label"]), float(one["bound"]), rows, alike, folds, int(one.get("entries", 0)))


def fold_as_text(one: FoldOutcome | FoldScores) -> dict[str, Any]:
    """The scores of a candidate in one fold, or in all folds, as plain values."""
    return {
        "bounds": one.bounds.tolist(),
        "scores": one.scores.tolist(),
        "sweeps": one.sweeps,
        "seconds": one.seconds,
    }


def fold_from_text(one: dict[str, Any], axes: int = 1) -> FoldOutcome:
    """The scores from plain values; ``bounds`` has ``axes`` axes."""
    bounds, scores = (np.array(one[name], dtype=np.float64) for name in ("bounds", "scores"))
    if bounds.ndim != axes or scores.ndim != axes + 1 or scores.shape[:-1] != bounds.shape or not scores.size:
        raise ValueError("scores are missing")
    return FoldOutcome(bounds, scores, int(one["sweeps"]), float(one["seconds"]))


def search_from(boxes: Boxes) -> Selection:
    """The search that was saved."""
    about = boxes["search"].about
    outcomes = tuple(outcome_from_text(one) for one in about["outcomes"])
    return Selection(
        **told(_LATER | about, _TYPES),
        outcomes=outcomes,
        winner=outcomes[about["winner"]],
        best_fit=fit_from(boxes),
        failures=tuple(map(dict, about["failures"])),
    )
