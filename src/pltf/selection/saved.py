"""Searches in files."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from pltf.fit import Fit
from pltf.selection.result import Selection
from pltf.selection.search import Outcome
from pltf.store.container import Box, Boxes, write
from pltf.store.fits import as_path, fit_boxes, fit_from
from pltf.store.serialize import rows_as_text, rows_from_text, told

SEARCH = "search"
_TOLD = {"best": dict, "edges": dict, "interrupted": bool, "n_candidates": int, "unsettled": int, "seed": int}


def save_search(found: Selection, path: str | os.PathLike[str], more: Boxes | None = None) -> None:
    """Write a search to a file: the fit that won, and what came of all the others."""
    write(as_path(path), SEARCH, {**fit_boxes(found.best_fit), "search": _box(found), **(more or {})})


def _box(found: Selection) -> Box:
    box = Box({name: getattr(found, name) for name in _TOLD})
    box.about["winner"] = next(n for n, one in enumerate(found.outcomes) if one is found.winner)
    box.about["failures"] = [dict(one) for one in found.failures]
    box.about["edges"] = dict(found.edges)
    box.about["outcomes"] = [outcome_as_text(one) for one in found.outcomes]
    return box


def outcome_as_text(one: Outcome) -> dict[str, Any]:
    """What came of a candidate, as plain things."""
    return {"label": one.label, "bound": one.bound, "rows": rows_as_text(one.rows), "alike": one.alike.tolist()}


def outcome_from_text(one: dict[str, Any]) -> Outcome:
    """The outcome again."""
    rows, alike = rows_from_text(one["rows"]), np.array(one["alike"], dtype=np.float64)
    if not rows or alike.shape != (len(rows),):
        raise ValueError("not every run is there")
    return Outcome(dict(one["label"]), float(one["bound"]), rows, alike)


def search_from(boxes: Boxes) -> Selection:
    """The search that was saved."""
    about = boxes["search"].about
    outcomes = tuple(outcome_from_text(one) for one in about["outcomes"])
    fit: Fit = fit_from(boxes)
    return Selection(
        **told(about, _TOLD),
        outcomes=outcomes,
        winner=outcomes[about["winner"]],
        best_fit=fit,
        failures=tuple(map(dict, about["failures"])),
    )
