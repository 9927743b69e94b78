"""Figures 5 to 8: hidden links under CP and Tucker, by VB and by EM, with few and many components."""

from __future__ import annotations

from typing import Any

import pltf
from experiments.common import Json, counted, for_all_runs, over_runs, popularity_scores, scored_links
from experiments.settings import LEVELS, PAPER, Settings

RANKS = (2, 20)
WAYS: dict[str, dict[str, Any]] = {
    "VB": {"prior": PAPER},
    "EM": {"method": "em"},
    "VB, default prior": {},  # the mean of each factor is learned
    "VB, learned shapes": {"prior": pltf.Gamma(learn="both")},
}


def run(settings: Settings) -> Json:
    """Scores of hidden links for every model, method and share of missing cells."""
    ways = [(f"CP R={rank}", way) for rank in RANKS for way in WAYS]
    ways += [(_tucker_name(sizes), way) for sizes in settings.tucker_sizes for way in ("VB", "EM")]
    ways += [("popularity", "smoothed"), ("popularity", "plain")]
    cases = [(settings.restarts, model, way, missing) for model, way in ways for missing in LEVELS]
    scores = for_all_runs("CP and Tucker, VB and EM", _scored, cases, settings.runs)
    rows = [
        {"model": model, "way": way, "missing": missing, **over_runs(runs)}
        for (_, model, way, missing), runs in zip(cases, scores, strict=True)
    ]
    return {"rows": rows, "tucker": [_tucker_name(sizes) for sizes in settings.tucker_sizes], **counted(rows)}


def _tucker_name(sizes: tuple[int, ...]) -> str:
    return "Tucker " + "x".join(map(str, sizes))


def _model(name: str) -> pltf.Model:
    """The model with a name such as ``CP R=2`` or ``Tucker 2x2x2``."""
    kind, size = name.split(" ")
    if kind == "CP":
        return pltf.cp(rank=int(size.removeprefix("R=")))
    return pltf.tucker(ranks=tuple(map(int, size.split("x"))))


def _scored(restarts: int, model: str, way: str, missing: float, run: int) -> Json:
    if model == "popularity":
        return popularity_scores(way, missing, run)
    return scored_links(_model(model), missing, run, restarts=restarts, **WAYS[way])
