"""Rerun the experiments of the paper; write the results as figures and a page.

    python -m experiments              everything, into docs/ (less than an hour on two cores)
    python -m experiments --quick      a small part of everything, into paper-output/ (some minutes)
    python -m experiments --only side  one part; "--only page" writes figures and page from saved results

The results of each part are saved as JSON, so parts can be run one by one. The UCLAF data are read from the folder in
the environment variable PLTF_DATA, or downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from experiments import coverage, figures, further, links, order, page, priors, scale, side
from experiments.common import Json, console, parser_for, save_part, saved_parts
from experiments.formatting import slashed
from experiments.settings import FULL, QUICK, Settings

PARTS: dict[str, Callable[[Settings], Json]] = {
    "order": order.run,
    "scale": scale.run,
    "priors": priors.run,
    "links": links.run,
    "side": side.run,
    "coverage": coverage.run,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts, save their results, and write figures and page."""
    written = "output folder for the page and figures/; if given, also for the results"
    asked = parser_for("experiments", __doc__, PARTS, "few runs and small grids", written).parse_args(arguments)

    settings = QUICK if asked.quick else FULL
    out = asked.out or Path("paper-output" if asked.quick else "docs")
    results = (asked.out or Path("paper-output")) / ("quick-results" if asked.quick else "results")
    results.mkdir(parents=True, exist_ok=True)
    for name in asked.only or PARTS:
        if name != "page":
            save_part(results / f"{name}.json", partial(PARTS[name], settings), settings=asdict(settings))
    saved = saved_parts(PARTS, results)
    figures.draw(saved, out / "figures")
    page.write(saved, out / "paper.md")
    for bar in further.bars(saved) if "links" in saved else ():
        console.print(
            f"{bar.what}: {slashed(bar.got, 4)}, wanted {slashed(bar.wanted, 3)}: {'met' if bar.met else 'NOT MET'}"
        )
    console.print(f"written: {out / 'paper.md'} and figures in {out / 'figures'}")


if __name__ == "__main__":
    main()
