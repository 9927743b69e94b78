"""Measure predictions and their uncertainty on real data, compare them with other tools, and write the page.

    python -m experiments.trust              everything, into docs/trust.md (long; rerun to resume)
    python -m experiments.trust --masks 1    the same with one mask of each set
    python -m experiments.trust --quick      a small part of everything, into trust-output/
    python -m experiments.trust --only real  one part; "--only page" writes the page from saved results

Every result is saved in trust-output/ at once. To recompute one, delete its file. UCLAF is read from the folder in the
environment variable PLTF_DATA, or downloaded.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from experiments.common import Json, console, parser_for, save_part, saved_parts
from experiments.trust import drawn, figures, order, page, ranking, real
from experiments.trust.store import Store
from experiments.trust.summary import goals

MASKS = 5
PARTS: dict[str, Callable[[Store, bool, int], Json]] = {
    "real": real.run,
    "links": real.run_links,
    "order": order.run,
    "drawn": drawn.run,
    "ranking": ranking.run,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts, save their results, and write figures and page."""
    written = "output folder for the page, figures/ and results"
    parser = parser_for("experiments.trust", __doc__, PARTS, "one mask, small data", written)
    parser.add_argument(
        "--masks", type=int, default=MASKS, help=f"number of masks, each of which hides other cells (default: {MASKS})"
    )
    parser.add_argument("--cores", type=int, default=-1, help="number of parallel processes (default: one per core)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no new computation after this time")
    asked = parser.parse_args(arguments)

    out = asked.out or Path("trust-output" if asked.quick else "docs")
    results = (asked.out or Path("trust-output")) / ("quick-results" if asked.quick else "results")
    results.mkdir(parents=True, exist_ok=True)
    until, quick = time.time() + 60 * asked.minutes, asked.quick
    cores, masks = (1, 1) if quick else (asked.cores, asked.masks)  # processes take longer to start than a quick run
    for name in asked.only or PARTS:
        if name != "page":
            work = partial(PARTS[name], Store(results / name, cores, until), quick, masks)
            save_part(results / f"{name}.json", work, quick=quick)
    saved = saved_parts(PARTS, results)
    figures.draw(saved, out / "figures")
    page.write(saved, out / "trust.md")
    for goal in goals(saved):
        console.print(f"{goal.what}: {goal.got}, wanted {goal.wanted}: {'met' if goal.met else 'NOT MET'}")
    console.print(f"written: {out / 'trust.md'} and figures in {out / 'figures'}")


if __name__ == "__main__":
    main()
