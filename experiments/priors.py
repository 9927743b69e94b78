"""Figure 4: predictions under fixed priors, CP with two components."""

from __future__ import annotations

import pltf
from experiments.common import Json, counted, for_all_runs, over_runs, popularity_scores, scored_links
from experiments.settings import LEVELS, Settings

# Shape and mean for all factors; the last is for the claim in the text that a mean above 10 is better still
PRIORS = ((0.5, 10.0), (10.0, 10.0), (100.0, 1.0), (0.5, 100.0))
RANK = 2


def run(settings: Settings) -> Json:
    """Scores of hidden links under each prior, and of the popularity baseline."""
    cases = [(settings.restarts, *prior, missing) for prior in PRIORS for missing in LEVELS]
    scores = for_all_runs("CP R=2 under fixed priors", _scored, cases, settings.runs)
    rows = [
        {"shape": shape, "mean": mean, "missing": missing, **over_runs(runs)}
        for (_, shape, mean, missing), runs in zip(cases, scores, strict=True)
    ]
    popular = for_all_runs(
        "popularity", popularity_scores, [("smoothed", missing) for missing in LEVELS], settings.runs
    )
    beside = [{"missing": missing, **over_runs(runs)} for missing, runs in zip(LEVELS, popular, strict=True)]
    return {"rows": rows, "popularity": beside, **counted(rows)}


def _scored(restarts: int, shape: float, mean: float, missing: float, run: int) -> Json:
    return scored_links(pltf.cp(rank=RANK), missing, run, prior=pltf.Gamma(shape, mean), restarts=restarts)
