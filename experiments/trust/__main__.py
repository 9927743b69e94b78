"""Measure predictions and their uncertainty on real data, compare them with other tools, and write the page.

    python -m experiments.trust              everything, into docs/trust.md (long; rerun to resume)
    python -m experiments.trust --masks 1    the same with one mask of each set
    python -m experiments.trust --quick      a small part of everything, into trust-output/
    python -m experiments.trust --only real  one part; "--only page" writes the page from saved results

Every result is saved in trust-output/ at once. To recompute one, delete its file. UCLAF is read from the folder in the
environment variable PLTF_DATA, or downloaded.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.common import Json, console, machine
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
    parser = argparse.ArgumentParser(
        prog="python -m experiments.trust", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one mask, small data")
    parser.add_argument("--only", nargs="+", choices=[*PARTS, "page"], metavar="PART", help=", ".join([*PARTS, "page"]))
    parser.add_argument(
        "--masks", type=int, default=MASKS, help=f"number of masks, each of which hides other cells (default: {MASKS})"
    )
    parser.add_argument("--cores", type=int, default=-1, help="number of parallel processes (default: one per core)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no new computation after this time")
    parser.add_argument("--out", type=Path, help="output folder for the page, figures/ and results")
    asked = parser.parse_args(arguments)

    out = asked.out or Path("trust-output" if asked.quick else "docs")
    results = (asked.out or Path("trust-output")) / ("quick-results" if asked.quick else "results")
    results.mkdir(parents=True, exist_ok=True)
    until = time.time() + 60 * asked.minutes
    for name in asked.only or PARTS:
        if name != "page":
            _run(name, asked, results, until)
    saved = {name: json.loads(path.read_text()) for name in PARTS if (path := results / f"{name}.json").exists()}
    figures.draw(saved, out / "figures")
    page.write(saved, out / "trust.md")
    for goal in goals(saved):
        console.print(f"{goal.what}: {goal.got}, wanted {goal.wanted}: {'met' if goal.met else 'NOT MET'}")
    console.print(f"written: {out / 'trust.md'} and figures in {out / 'figures'}")


def _run(name: str, asked: argparse.Namespace, results: Path, until: float) -> None:
    console.print(f"{name} ...")
    began = time.perf_counter()
    quick = asked.quick
    cores = 1 if quick else asked.cores  # starting processes would take longer than the work
    found = PARTS[name](Store(results / name, cores, until), quick, 1 if quick else asked.masks)
    seconds = time.perf_counter() - began
    about = {"seconds": round(seconds, 1), "quick": quick, "machine": machine()}
    (results / f"{name}.json").write_text(json.dumps({**found, **about}) + "\n")
    console.print(f"{name}: {seconds:.0f} s", style="bold")


if __name__ == "__main__":
    main()
