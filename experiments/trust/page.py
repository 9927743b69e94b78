"""The page "Can I trust it?", written from the existing results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from experiments.common import Json
from experiments.formatting import page, percent, prose, spread, table
from experiments.results import Saved
from experiments.trust import measures, order, ranking
from experiments.trust.sets import SETS
from experiments.trust.summary import ALARMS, by_set, goals, mean_of, outranked, recommended, tools_of
from experiments.trust.tasks import FOLDS, INNER

Rows = Sequence[Json]


def write(saved: Saved, path: Path) -> None:
    """Write the page."""
    sections = [
        f"## {title}\n\n{tell(saved[part]) if _has(saved, part) else _missing(part)}"
        for title, (part, tell) in SECTIONS.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(_opening(saved), *sections, _again(saved)) + "\n", encoding="utf-8")


def _opening(saved: Saved) -> str:
    quick = any(found["quick"] for found in saved.values())
    rows = [(goal.what, goal.wanted, goal.got, "yes" if goal.met else "**no**") for goal in goals(saved)]
    return page(
        "# Can I trust it?",
        "> **A quick run**, to test that everything works. Its numbers mean nothing." if quick else "",
        prose(f"""
            Predictions are only as useful as their stated uncertainty is honest. This page measures both on data that
            were not drawn from the model: cells are hidden, predicted, and compared with their true values, side by
            side with other tools on the same cells. `make trust` writes this page from its results:
            {_number_of_masks(saved)}.

            Every tool chooses its settings, including the number of components, on {percent(INNER)} of the training
            cells ({FOLDS} times {percent(INNER)} if there are few cells). These cells are called held-back cells; the
            hidden cells of a mask are never used for a choice. *pltf, chosen* is the variant of pltf that gave the
            held-back cells the highest probability. The list of variants itself is not free of such knowledge. It was
            drawn up after trials that were scored on hidden cells: two masks of UCLAF and one each of digits, Reuters
            and imports. Three more decisions were made that way: to estimate the dispersion of few counts from several
            folds (the first two masks of Les Miserables); to allow for strays, and how to estimate them (the first
            three masks of Les Miserables, flights, Reuters and digits); and to sample links with four chains, the
            default, instead of the two that are used for counts to save time (ten masks of UCLAF, where AUC with two
            chains was 0.9568 at 80 % hidden). Tools that predict a single number for a cell get the best noise
            distribution that the held-back cells support: a negative binomial (for links, a Bernoulli probability) with
            its own scale, power, floor and dispersion. So they are judged by how well they predict, not by a likelihood
            that they do not claim. *Popularity* is the product-of-marginals baseline: it knows how active each row and
            column is, and nothing else. Its figures here are of an older version, which was weaker: it did not allow
            for the cells that a row or column is missing.
            """),
        table(("goal", "wanted", "reached", "met"), rows) if rows else "",
        _missed(saved),
        _outranked(saved),
    )


def _outranked(saved: Saved) -> str:
    found = [one for part in ("real", "links") if _has(saved, part) for one in outranked(saved[part]["rows"])]
    lead = "Where another tool ranks the hidden cells better:"
    return page(lead, "\n".join(f"- {one}." for one in found)) if found else ""


def _number_of_masks(saved: Saved) -> str:
    """The number of masks of each part."""
    parts = {"real": "five sets", "links": "UCLAF", "order": "numbers of components", "ranking": "ranking"}
    masks = {title: len(saved[part]["rows"][0]["masks"]) for part, title in parts.items() if _has(saved, part)}
    if _has(saved, "drawn"):
        masks["drawn data"] = len(saved["drawn"]["rows"][0]["draws"])
    told = ", ".join(f"{title} {number}" for title, number in masks.items())
    return f"cells were hidden anew this often at each level: {told}"


def _has(saved: Saved, part: str) -> bool:
    return part in saved and bool(saved[part]["rows"])


WHY = {
    "Les Miserables 20 %": """These are four cells of 5,930, and three of them
        are one pair: Cosette and Valjean share 31 chapters, more than any other pair, and are hidden on three masks.
        The fourth is Cosette and Marius, who share 21. Both numbers are far above what the other chapters of these
        characters suggest, so they are real surprises. Wider tails, which allow for the uncertainty of the size of
        strays (a fold has only two to ten of them here), were tried: they gave one alarm fewer at the same
        log-likelihood, too little to keep.""",
    "digits 80 %": "Values cannot exceed 16, and intervals of counts do not know that.",
}  # explanations of missed goals


def _missed(saved: Saved) -> str:
    """Missed goals: where, by how much, and why."""
    missed = []
    for goal in goals(saved):
        why = [
            " ".join(text.split()) for place, text in WHY.items() if any(one.startswith(place) for one in goal.missed)
        ]
        missed += [" ".join([f"- {goal.what}: {'; '.join(goal.missed)}.", *why])] if goal.missed else []
    return (
        page("Goals that were missed (set, share of hidden cells, and the value reached):", "\n".join(missed))
        if missed
        else ""
    )


def _real(found: Json) -> str:
    rows: Rows = found["rows"]
    about = {row["set"]: f"{row['about']}; {'x'.join(map(str, row['shape']))} cells" for row in rows}
    absent = [f"{name}: {why}" for name, why in found["absent"].items()]
    return page(
        "\n".join(f"- **{name}**: {text}." for name, text in about.items()),
        prose(f"Not in these tables: {'; '.join(absent)}.") if absent else "",
        _not_yet(rows) if not found["quick"] else "",
        _measure_table(rows, "log_likelihood", "Log-likelihood of a hidden cell, in nats (higher is better).", 3),
        "![Log-likelihood relative to the best pltf](figures/trust-leads.svg)",
        prose(
            "Blue: variants of pltf; orange: other tools. A point above the line is better than every variant of pltf."
        ),
        _measure_table(rows, "auc", "AUC: how often a non-zero is ranked above a zero.", 3),
        _measure_table(rows, "ap", "Average precision of the same ranking.", 3),
        _measure_table(
            rows,
            "covered",
            f"""Coverage of {percent(measures.LEVEL)} intervals of counts. Counts are whole numbers, so an interval
            cannot contain exactly {percent(measures.LEVEL)}. A count at an end of its interval is therefore counted in
            part, by the share of its probability that is inside. A correct predictive distribution then gives
            {percent(measures.LEVEL)}, however small the counts are.""",
            1,
            percent,
        ),
        _measure_table(
            rows,
            "alarms",
            f"""False alarms: hidden cells with `surprise` (the probability of a count at least as large) below
            {measures.ALARM:g}. At most {percent(ALARMS, 2)} are wanted.""",
            3,
            percent,
        ),
    )


def _not_yet(rows: Rows) -> str:
    """Data sets and levels without results."""
    there = {(row["set"], row["level"]) for row in rows}
    levels = {one.name: [level for level in one.levels if (one.name, level) not in there] for one in SETS}
    missing = [f"{name} at {', '.join(percent(level) for level in some)}" for name, some in levels.items() if some]
    return prose(f"**Not measured yet**: {'; '.join(missing)}.") if missing else ""


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}"


def _measure_table(
    rows: Rows, measure: str, caption: str, digits: int, told: Callable[[float, int], str] = _number
) -> str:
    """A row for each tool, and a column for each data set with its levels."""
    sets = by_set(rows)
    lines = []
    for tool in [*tools_of(rows), CHOSEN]:
        line = [tool]
        for levels in sets.values():
            line.append(" / ".join(_cell(some, tool, measure, digits, told) for some in levels.values()))
        lines.append(line)
    header = [
        "tool",
        *(f"{name}, {'/'.join(f'{100 * n:.0f}' for n in levels)} % hidden" for name, levels in sets.items()),
    ]
    return page(prose(caption), table(header, lines))


CHOSEN = "**pltf, chosen**"


def _cell(some: Rows, tool: str, measure: str, digits: int, told: Callable[[float, int], str]) -> str:
    row = recommended(some) if tool == CHOSEN else next((row for row in some if row["tool"] == tool), None)
    return told(mean_of(row, measure), digits).removesuffix(" %") if row else "-"


def _links(found: Json) -> str:
    rows: Rows = found["rows"]
    chosen = [recommended(some) for levels in by_set(rows).values() for some in levels.values()]
    settings = sorted({", ".join(map(str, mask["setting"])) for row in chosen for mask in row["masks"]})
    return page(
        prose(f"UCLAF: {rows[0]['about']}, on {len(rows[0]['masks'])} masks."),
        _measure_table(rows, "auc", "AUC.", 3),
        _measure_table(rows, "ap", "Average precision.", 3),
        _measure_table(rows, "log_likelihood", "Log-likelihood of a hidden cell.", 4),
        prose(f"Chosen without the hidden cells (model, components, prior): {'; '.join(settings)}."),
        prose("""
            Three things make the difference on links. The **likelihood**: a link says that a hidden count is above
            zero, not that it is one. The **posterior**: a Gibbs sampler with learned shapes finds factors that are far
            sparser than under the default prior. And the **model**: in CP, a user and a place that share no component
            can never meet, but a user who did one thing at a place is likely to do another there. A factor over pairs
            expresses this:
            """),
        RECIPE,
    )


RECIPE = """```python
import pltf

model = pltf.Model("X[user,place,act] = A[user,r] * B[place,r] * C[act,r] * V[user,place]", r=10)
prior = {name: pltf.Gamma(0.5, 1.0, learn="both") for name in "ABC"} | {"V": pltf.Gamma(0.1, 1.0)}
```"""


NAMES = {"hidden cells": "held-out cells", "bound": "ELBO"}  # names of the criteria in the results


def _order(found: Json) -> str:
    lines = []
    for row in found["rows"]:
        masks, orders = row["masks"], row["orders"]
        means = np.mean([[one["log_likelihood"] for one in mask["judged"]] for mask in masks], axis=0)
        line = [row["set"], str(orders[int(np.argmax(means))]), f"{means.max():.4f}"]
        for name in order.CRITERIA:
            reached = np.mean([_reached(orders, mask, name)["log_likelihood"] for mask in masks])
            near = sum(_near(orders, mask, name) for mask in masks)
            chosen = ", ".join(str(mask["chosen"][name]) for mask in masks)
            line += [chosen, f"{reached:.4f} ({near} of {len(masks)})"]
        lines.append([*line, f"{np.mean([mask['weight'] for mask in masks]):.2f}"])
    header = ["set", "best order", "its log-likelihood"]
    header += [text for name in order.CRITERIA for text in (f"chosen by {NAMES[name]}", "log-likelihood")]
    return page(
        prose(f"""
            The number of components that `pltf.select` chooses on each mask, with {percent(order.LEVEL)} of the cells
            hidden from it: by held-out cells of its own, which is the default, and by the ELBO. Next to it is the
            log-likelihood of the cells that no search saw, as a mean over the masks. In parentheses is the number of
            masks on which it is within one standard error of the best order of that mask. The best order of a single
            mask is partly chance, so the first columns show the order that is best over all masks. The weight is how
            certain the search says its choice is.
            """),
        table((*header, "weight"), lines),
    )


def _reached(orders: Sequence[int], mask: Json, criterion: str) -> Json:
    judged: Json = mask["judged"][orders.index(mask["chosen"][criterion])]
    return judged


def _near(orders: Sequence[int], mask: Json, criterion: str) -> bool:
    best = max(mask["judged"], key=lambda one: float(one["log_likelihood"]))
    reached = _reached(orders, mask, criterion)["log_likelihood"]
    return bool(reached >= best["log_likelihood"] - best["se"])


def _drawn(found: Json) -> str:
    lines = []
    for row in found["rows"]:
        shares = ([100 * draw[kind] for draw in row["draws"]] for kind in ("rates", "counts"))
        lines.append([row["case"], row["way"], *(f"{np.mean(some):.1f} ± {spread(some):.1f}" for some in shares)])
    return page(
        prose(f"""
            Data drawn from the model, {percent(found["missing"])} hidden. Here the true rates are known. The table
            shows the share of hidden cells whose rate, and whose count, is inside its {percent(found["level"])}
            interval (mean and standard deviation over the draws).
            """),
        table(("model", "method", "rates", "counts"), lines),
        "![Coverage of intervals on drawn data](figures/trust-coverage.svg)",
    )


def _again(saved: Saved) -> str:
    spent = {part: sum(one["seconds"] for row in saved[part]["rows"] for one in _runs(row)) / 60 for part in saved}
    minutes = ", ".join(f"{part} {some:.0f}" for part, some in spent.items())
    return page(
        "## Run it again",
        "    make trust                               # everything, into docs/; rerun to resume\n"
        "    make trust ARGS='--masks 1 --minutes 30' # part of it; existing results are kept\n"
        "    make trust QUICK=1                       # a small part of everything, into trust-output/",
        prose(f"""
            Results are stored one by one in `trust-output/`; delete a file to compute it again. `make trust
            ARGS="--only real"` runs one part. Computing time behind the tables above, in minutes of one core:
            {minutes}.
            """),
    )


def _runs(row: Json) -> list[Json]:
    """The results behind a row."""
    runs: list[Json] = row.get("masks") or row["draws"]
    return runs


def _missing(part: str) -> str:
    return f"There are no results yet: `python -m experiments.trust --only {part}`."


SECTIONS: dict[str, tuple[str, Callable[[Json], str]]] = {
    "Hidden cells of real data": ("real", _real),
    "Links": ("links", _links),
    "How many components": ("order", _order),
    "Intervals on data from the model": ("drawn", _drawn),
    "Where another tool is the better choice": ("ranking", ranking.tell),
}
