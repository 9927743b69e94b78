"""Look up and compare saved results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.common import Json
from experiments.results import Saved
from experiments.trust.sets import UCLAF

Rows = Sequence[Json]
SVD = "SVD of log(1+x)"
CHOSEN = "pltf, chosen"
COVERED = (0.87, 0.93)  # target coverage of 90 % intervals of counts
ALARMS = 0.0005  # target: the largest share of surprises among hidden cells
UCLAF_AUC, UCLAF_AP = (0.978, 0.970, 0.957), (0.55, 0.45, 0.36)  # at 40, 60 and 80 % hidden


@dataclass(frozen=True)
class Goal:
    """A goal, and what was reached."""

    what: str
    wanted: str
    got: str
    met: bool
    missed: tuple[str, ...] = ()  # where it was missed, and by how much


def is_ours(tool: str) -> bool:
    """Whether it is a variant of pltf."""
    return tool.startswith("pltf")


def mean_of(row: Json, measure: str) -> float:
    """Mean over the masks."""
    return float(np.mean([mask[measure] for mask in row["masks"]]))


def by_set(rows: Rows) -> dict[str, dict[float, list[Json]]]:
    """Rows by data set and level, in their order."""
    found: dict[str, dict[float, list[Json]]] = {}
    for row in rows:
        found.setdefault(row["set"], {}).setdefault(row["level"], []).append(row)
    return found


def tools_of(rows: Rows) -> list[str]:
    """The names of the tools."""
    return list(dict.fromkeys(row["tool"] for row in rows))


def best_of(rows: Iterable[Json], *, ours: bool, measure: str = "log_likelihood") -> Json:
    """The best row of pltf, or of the other tools."""
    return max((row for row in rows if is_ours(row["tool"]) == ours), key=lambda row: mean_of(row, measure))


def recommended(rows: Rows) -> Json:
    """On each mask, the variant of pltf with the highest probability of held-back training cells."""
    ours = [row for row in rows if is_ours(row["tool"])]
    masks = [
        max(same, key=lambda mask: float(mask["inner"])) for same in zip(*(row["masks"] for row in ours), strict=True)
    ]
    return {**ours[0], "tool": CHOSEN, "masks": masks}


def goals(saved: Saved) -> list[Goal]:
    """All goals whose results exist."""
    found: list[Goal] = []
    if "real" in saved and saved["real"]["rows"]:
        found += _real_goals(saved["real"]["rows"])
    if "links" in saved and saved["links"]["rows"]:
        found += _link_goals(saved["links"]["rows"])
    return found


def _real_goals(rows: Rows) -> list[Goal]:
    cases = [
        (f"{name} {100 * level:.0f} %", some) for name, levels in by_set(rows).items() for level, some in levels.items()
    ]

    def count(what: str, miss: Callable[[Rows], str], among: str = "") -> Goal:
        asked = [(place, miss(some)) for place, some in cases if place.startswith(among)]
        missed = tuple(f"{place}: {why}" for place, why in asked if why)
        return Goal(what, "all", f"{len(asked) - len(missed)} of {len(asked)}", not missed, missed)

    goals = [
        count("log-likelihood above popularity and every peer", _behind),
        count("count intervals hold 87 to 93 %", _uncovered),
        count("at most 0.05 % of hidden cells below p = 0.0001", _alarmed),
    ]
    if any(row["set"] == "Reuters" for row in rows):
        goals.append(count("AUC at least that of the SVD on Reuters", _ranks_worse, "Reuters"))
    return goals


# Each says how a goal was missed, or "" if it was met.


def _behind(some: Rows) -> str:
    ours, peer = recommended(some), best_of(some, ours=False)
    mine, theirs = (mean_of(row, "log_likelihood") for row in (ours, peer))
    return "" if mine > theirs else f"pltf {mine:.3f}, {peer['tool']} {theirs:.3f}"


def _uncovered(some: Rows) -> str:
    held = mean_of(recommended(some), "covered")
    return "" if COVERED[0] <= held <= COVERED[1] else f"{100 * held:.1f} %"


def _alarmed(some: Rows) -> str:
    alarms = mean_of(recommended(some), "alarms")
    return "" if alarms <= ALARMS else f"{100 * alarms:.2f} %"


def _ranks_worse(some: Rows) -> str:
    (svd,) = (row for row in some if row["tool"] == SVD)
    mine, theirs = mean_of(recommended(some), "auc"), mean_of(svd, "auc")
    return "" if mine >= theirs else f"pltf {mine:.3f}, SVD {theirs:.3f}"


def _link_goals(rows: Rows) -> list[Goal]:
    goals = []
    for measure, name, wanted in (("auc", "AUC", UCLAF_AUC), ("ap", "average precision", UCLAF_AP)):
        least = dict(zip(UCLAF.levels, wanted, strict=True))
        levels = by_set(rows)[UCLAF.name]
        got = {level: mean_of(recommended(some), measure) for level, some in levels.items()}
        met = all(value >= least[level] for level, value in got.items())
        at = "/".join(f"{100 * level:.0f}" for level in got)
        goals.append(
            Goal(f"UCLAF, {name}, {at} % hidden", _slashed(least[level] for level in got), _slashed(got.values()), met)
        )
    return goals


def outranked(rows: Rows) -> list[str]:
    """Where another tool ranks hidden cells better than the chosen variant of pltf."""
    found = []
    for name, levels in by_set(rows).items():
        for level, some in levels.items():
            for measure, told in (("auc", "AUC"), ("ap", "average precision")):
                peer = best_of(some, ours=False, measure=measure)
                mine, theirs = mean_of(recommended(some), measure), mean_of(peer, measure)
                if theirs > mine:
                    found.append(f"{name} {100 * level:.0f} %, {told}: {peer['tool']} {theirs:.3f}, pltf {mine:.3f}")
    return found


def _slashed(values: Iterable[float]) -> str:
    return " / ".join(f"{value:.3f}" for value in values)
