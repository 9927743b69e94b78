"""Beyond the paper: learned priors, side matrices, coverage, other programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import mean
from typing import NamedTuple

import numpy as np

from experiments.common import Json
from experiments.coverage import ALONE, KINDS_OF_CELLS, WITH_SPREAD
from experiments.formatting import (
    LEVEL_NAMES,
    at_levels,
    counts,
    figure,
    gain,
    page,
    paired,
    percent,
    pm,
    prose,
    slashed,
    table,
)
from experiments.results import KNOWN, NO_SIDE, Saved, link_aucs, only, popular, popular_row, side_aucs
from experiments.settings import LEVELS
from experiments.side import EQUATIONS, LINKS, WITH_VISITS

PRIOR_NAMES = {
    "VB": "the paper's prior",
    "VB, default prior": "learned means (the default)",
    "VB, learned shapes": "learned shapes and means",
}
# AUC at 40, 60 and 80 % missing, means over 10 masks; measured earlier, not rerun here
ELSEWHERE = {
    "product of the observed means": (0.948, 0.940, 0.924),
    "bptf R=2 (hidden cells set to zero)": (0.960, 0.952, 0.934),
    "bptf R=20 (hidden cells set to zero)": (0.964, 0.953, 0.937),
    "tensorly R=2, masked": (0.944, 0.927, 0.905),
    "tensorly R=20, masked": (0.965, 0.956, 0.938),
    "pyttb R=2, Poisson": (0.932, 0.894, 0.815),
    "pyttb R=20, Poisson": (0.829, 0.743, 0.677),
    "torchnmf R=2": (0.933, 0.897, 0.819),
    "torchnmf R=20": (0.876, 0.815, 0.770),
}


def learned(saved: Saved) -> str:
    """Learned priors, compared with the fixed prior of the paper."""
    rows: list[Sequence[str]] = [popular_row(saved)]
    ahead: dict[str, list[str]] = {way: [] for way in PRIOR_NAMES}
    for rank in (2, 20):
        base = link_aucs(saved, f"CP R={rank}", "VB")
        for way, name in PRIOR_NAMES.items():
            auc = link_aucs(saved, f"CP R={rank}", way)
            rows.append((f"R={rank}, {name}", *map(pm, auc)))
            if way != "VB":
                rows.append(("... minus the paper's prior", *map(paired, auc, base)))
                better = list(map(counts, auc, base))
                ahead[way] += [f"R={rank} at {at_levels(better)}"] if any(better) else []
    said = [
        f"{name[0].upper()}{name[1:]}: "
        + (f"ahead with {' and with '.join(ahead[way])}." if ahead[way] else "no gain.")
        for way, name in PRIOR_NAMES.items()
        if way != "VB"
    ]
    return page(
        prose("""
            The paper uses one fixed prior for all factors, and says that adapting it is crucial. By default pltf learns
            the mean of each factor, and with `pltf.Gamma(learn="both")` the shapes too.
            """),
        table(("CP, VB: AUC", *LEVEL_NAMES), rows),
        prose(f"""
            {" ".join(said)} The purpose of learned means is not to predict links better, but to work for counts of any
            scale without tuning ([priors.md](priors.md)).
            """),
    )


def side(saved: Saved) -> str:
    """Coupled side matrices, and visits as a fixed factor."""
    found = saved["side"]
    plans = list(dict.fromkeys((row["prior"], row["rank"]) for row in found["rows"]))
    visits, settings = found["visits"], found["settings"]
    never = (
        "no user has a link at a location without a visit"
        if visits["linked if not"] == 0
        else "links elsewhere are rare"
    )
    return page(
        prose("""
            The paper names coupled factorization as its next step. UCLAF comes with four matrices that can be coupled:
            UserLoc (how often a user was at a location), LocFea (features of a location), UserUser and ActAct
            (similarity of users and of activities):
            """),
        "\n".join(f"    {equation}" for equation in (LINKS, *EQUATIONS.values())),
        prose(f"""
            In UserUser, -1 and the diagonal are treated as missing. In LocFea, the first column (a running number) and
            empty columns are left out. *0/1* uses only whether a value is above zero. *Weighted* matrices are scaled so
            that their total is {found["weight"]:g} times the number of observed links, because UserUser and UserLoc add
            up to thousands and would dominate a few hundred links. This weight was chosen after a trial on four of
            these masks, where 1 hurt more and 0.01 changed little; the choice can only favor coupling. *All four* uses
            UserLoc as 0/1. There are {settings["side_restarts"]} random starts, and {settings["side_shape_restarts"]}
            with learned shapes; these take many iterations, so only weighted matrices were tried with them.
            """),
        figure("side", "What each side matrix changes"),
        _coupling_verdict(found),
        *(_side_table(found, prior, rank) for prior, rank in plans),
        prose(f"""
            **UserLoc reveals hidden links.** Visits come from GPS tracks, links from comments on the same tracks, and
            {never}: {percent(visits["visited"], 1)} of the pairs of a user and a location have a visit.
            {percent(visits["linked if visited"])} of these have a link, and {percent(visits["linked if not"])} of the
            others. So UserLoc predicts hidden links without any model: it rules out nine cells in ten. In the table,
            *visited only* is the AUC among the hidden cells that remain.
            """),
        _visits_table(found, plans),
        _known_verdict(found, plans),
    )


def _coupling_verdict(found: Json) -> str:
    helped, hurt, gains = Counter[str](), Counter[str](), {}
    for row in found["rows"]:
        if row["case"] in (NO_SIDE, KNOWN):
            continue
        case, prior, rank, missing = (row[key] for key in ("case", "prior", "rank", "missing"))
        base = only(found["rows"], case=NO_SIDE, prior=prior, rank=rank, missing=missing)["auc"]
        helped[case] += counts(row["auc"], base)
        hurt[case] += counts(base, row["auc"])
        gains[f"{case}, R={rank}, {prior}, {percent(missing)} missing"] = gain(row["auc"], base)
    better, worse, total = helped.total(), hurt.total(), len(gains)
    most = max(gains, key=lambda name: gains[name])
    word = "does not help" if better <= total / 10 else "helps now and then" if better <= total / 2 else "helps"
    named = ", ".join(f"{case} ({times})" for case, times in helped.most_common() if times) or "none"
    return prose(f"""
        **Coupling {word} here.** Of {total} comparisons with no side data, {better} are better by more than two
        standard errors and {worse} are worse; by chance alone, a few in a hundred would be better. The better ones are:
        {named}. The largest gain is {gains[most]:+.4f} of AUC ({most}).
        """)


def _side_table(found: Json, prior: str, rank: int) -> str:
    cases = dict.fromkeys(row["case"] for row in found["rows"] if (row["prior"], row["rank"]) == (prior, rank))
    base = side_aucs(found, NO_SIDE, prior, rank)
    rows: list[Sequence[str]] = [("popularity", *(pm(row["popularity auc"]) for row in found["trivial"]))]
    rows.append((NO_SIDE, *map(pm, base)))
    for case in cases:
        if case not in (NO_SIDE, KNOWN):
            auc = side_aucs(found, case, prior, rank)
            rows.append((case, *(f"{pm(a)}, {paired(a, b)}" for a, b in zip(auc, base, strict=True))))
    return table((f"{_plan(prior, rank)}: AUC, difference", *LEVEL_NAMES), rows)


def _visits_table(found: Json, plans: Sequence[tuple[str, int]]) -> str:
    rows: list[Sequence[str]] = []
    for key, name in (
        ("popularity", "popularity, no model"),
        ("visits", "number of visits, no model"),
        ("both", "popularity, zero where not visited, no model"),
    ):
        for which, where in (("auc", ""), ("auc visited", ", visited only")):
            rows.append((name + where, *(pm(row[f"{key} {which}"]) for row in found["trivial"])))
    for prior, rank in plans:
        for case in (NO_SIDE, KNOWN):
            for which, where in (("auc", ""), ("auc visited", ", visited only")):
                auc = side_aucs(found, case, prior, rank, which)
                rows.append((f"{case}, {_plan(prior, rank)}{where}", *map(pm, auc)))
    return table(("AUC", *LEVEL_NAMES), rows)


def _plan(prior: str, rank: int) -> str:
    return f"R={rank}, {'default prior' if prior == 'default' else prior}"


def _known_verdict(found: Json, plans: Sequence[tuple[str, int]]) -> str:
    """Visits as a fixed factor: do they help beyond ruling out cells?"""
    pairs = [
        pair
        for prior, rank in plans
        for pair in zip(*(side_aucs(found, case, prior, rank, "auc visited") for case in (KNOWN, NO_SIDE)), strict=True)
    ]
    wins, gains = sum(counts(*pair) for pair in pairs), [gain(*pair) for pair in pairs]
    moral = (
        "Certain knowledge is worth more in the equation than as another matrix to explain."
        if wins > len(pairs) / 2
        else ""
    )
    return prose(f"""
        *Visits as a known factor* is `{WITH_VISITS}` with `Visited` fixed to 0/1: cells at locations that a user never
        visited then say nothing about that user. Among visited cells only, it is ahead of the model without side data
        in {wins} of {len(pairs)} comparisons, by {min(gains):+.3f} to {max(gains):+.3f}. {moral} (0/1 was chosen after
        a trial on four of these masks, where visit counts and their logarithms were worse.)
        """)


def sure(saved: Saved) -> str:
    """Coverage of the intervals."""
    found = saved["coverage"]
    edge, ninety = found["edge"], found["levels"].index(0.9)
    rows, means, off = [], {width: list[float]() for width in (WITH_SPREAD, ALONE)}, []
    for row in found["rows"]:
        held = {
            (width, kind): 100 * np.array(row[width][kind])[:, ninety] for width in means for kind in KINDS_OF_CELLS
        }
        for (width, _), one in held.items():
            means[width].append(float(np.mean(one)))
        rows.append((percent(row["missing"]), *(f"{pm(one, 1)} %" for one in held.values())))
        if any(not 87 <= held_by <= 93 for held_by in means[WITH_SPREAD][-len(KINDS_OF_CELLS) :]):
            off.append(rows[-1][0])
    least, most = min(means[WITH_SPREAD]), max(means[WITH_SPREAD])
    verdict = f"outside 87 to 93 % where {' and '.join(off)} are missing" if off else "about right"
    return page(
        prose(f"""
            The posterior treats all entries of all factors as independent, which they are not; such posteriors are
            known to be too narrow. So predictions widen it by `fit.spread`
            ([prediction.md](prediction.md#how-far-to-trust-the-intervals)). To test this, counts were drawn from the
            model ({edge}x{edge}x{edge}, CP R={found["rank"]}, factors from Gamma(shape 0.5, mean 1)) and fitted with
            the true rank and the default prior. The table shows the share of true rates within the 90 % intervals that
            pltf reports (`fit.interval`), and within those of the posterior alone (`replace(fit,
            spread=1.0).interval`).
            """),
        table(
            (
                "missing",
                "hidden cells",
                "observed cells",
                "hidden cells, posterior alone",
                "observed cells, posterior alone",
            ),
            rows,
        ),
        figure("coverage", "Coverage against the level of the intervals"),
        prose(f"""
            **90 % intervals contain {least:.0f} to {most:.0f} % of the true rates: {verdict}.** Those of the posterior
            alone contain {min(means[ALONE]):.0f} to {max(means[ALONE]):.0f} %. These are ideal conditions, with the
            form and the rank of the model known; [trust.md](trust.md) has real data. For your own data, hide cells and
            look at `pltf.metrics.score(...).calibration`.
            """),
    )


def beside_others(saved: Saved) -> str:
    """All results on hidden links, with popularity and other programs."""
    held = saved["links"]["rows"]
    names = sorted(dict.fromkeys((row["model"], row["way"]) for row in held), key=lambda name: name[0] != "popularity")
    rows: list[Sequence[str]] = []
    for model, way in names:
        found = [only(held, model=model, way=way, missing=missing) for missing in LEVELS]
        rows.append((f"{model}, {way}", *(pm(row["auc"]) for row in found), *(pm(row["ap"]) for row in found)))
    rows += [(f"*{name}*", *(f"{value:.3f}" for value in values), "", "", "") for name, values in ELSEWHERE.items()]
    wanted = [
        (bar.what, slashed(bar.wanted, 3), slashed(bar.got, 4), "yes" if bar.met else "**no**") for bar in bars(saved)
    ]
    return page(
        prose("""
            Everything that was run on hidden links. *Popularity, smoothed* adds one observed and one expected link to
            each user, location and activity, as `pltf.metrics` does, but does not allow for missing cells, as it does
            now; *plain* is the bare product of the observed means, in which most cells tie at zero. Rows in italics
            were measured before, on ten other masks, and not rerun here. One cell in a hundred is a link, so AUC mostly
            depends on cells that are unlikely to be links; average precision (AP) measures the top of the list.
            """),
        table(("", *(f"AUC, {name}" for name in LEVEL_NAMES), *(f"AP, {name}" for name in LEVEL_NAMES)), rows),
        "Targets for AUC at 40/60/80 % missing, set beforehand:",
        table(("", "target", "reached", "met"), wanted),
    )


class Bar(NamedTuple):
    """A target and the result, for each share of missing cells."""

    what: str
    wanted: Sequence[float]
    got: Sequence[float]

    @property
    def met(self) -> bool:
        """Whether the target was reached everywhere."""
        return all(g >= w for g, w in zip(self.got, self.wanted, strict=True))


def bars(saved: Saved) -> list[Bar]:
    """Targets and results of CP on hidden links."""
    held = []
    for rank in (2, 20):
        vb, em, default = (link_aucs(saved, f"CP R={rank}", way) for way in ("VB", "EM", "VB, default prior"))
        held.append(Bar(f"CP R={rank}, VB, the paper's prior", (0.960, 0.950, 0.930), list(map(mean, vb))))
        held.append(Bar(f"CP R={rank}, VB minus EM", (0.02, 0.02, 0.08), list(map(gain, vb, em))))
        held.append(Bar(f"CP R={rank}, VB, pltf's default prior", (0.968, 0.961, 0.947), list(map(mean, default))))
        rivals = np.max([*ELSEWHERE.values(), np.mean(popular(saved), axis=1)], axis=0).tolist()
        held.append(Bar(f"CP R={rank}, default prior, best of popularity and peers", rivals, list(map(mean, default))))
    return held


# title -> function that writes it, and the part whose results it needs
FURTHER: dict[str, tuple[Callable[[Saved], str], str]] = {
    "Learned priors": (learned, "links"),
    "Side matrices": (side, "side"),
    "How sure is the posterior": (sure, "coverage"),
    "Beside popularity and other programs": (beside_others, "links"),
}
