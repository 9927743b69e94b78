"""Inject faults, and count how many are survived.

    python -m faults                ten minutes; the table goes into docs/faults.inc
    python -m faults --quick        two minutes, and no table
    python -m faults --only kills   one part: kills, files, systems or signals

Fails and reports the fault if one was not survived. Linux only: other systems have other limits and signals.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from faults.samples import done, events, fit_of
from faults.tally import Bench, Tally, folder

PARTS = {"kills": 0.35, "files": 0.3, "systems": 0.22, "signals": 0.13}  # shares of the time
MINUTES, QUICK = 10.0, 1.0
PAGE = Path("docs/faults.inc")
TOLD = 5  # faults of one kind that are printed


def main() -> None:
    """Run the parts, print the table, and fail if a fault was not survived."""
    parser = argparse.ArgumentParser(
        prog="python -m faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="about two minutes")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="parts")
    parser.add_argument("--minutes", type=float, help=f"how long (default: {MINUTES:g})")
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    asked = parser.parse_args()
    if sys.platform != "linux":
        parser.error(f"it needs Linux, got {sys.platform}")
    seconds = 60 * (asked.minutes or (QUICK if asked.quick else MINUTES))
    console, found = Console(soft_wrap=True), list[Tally]()
    with folder() as where:  # forks then have everything imported and compiled
        done(*fit_of(events(where), where / "fit.nc"))
    for name in asked.only or PARTS:
        began = time.monotonic()
        bench = Bench(np.random.default_rng([asked.seed, list(PARTS).index(name)]), PARTS[name] * seconds, asked.quick)
        for tally in importlib.import_module(f"faults.{name}").tallies(bench):
            found.append(tally)
            console.print(f"{tally.what}: {tally.why_not or f'{tally.survived} of {tally.tried} survived'}")
            for fault in tally.faults[:TOLD]:
                console.print(f"    {fault}", style="red", markup=False)
        console.print(f"{name}: {time.monotonic() - began:.0f} s", style="bold")
    console.print(_table(found))
    if not asked.quick and not asked.only:
        PAGE.write_text(_page(found))
        console.print(f"written: {PAGE}")
    sys.exit(any(one.faults for one in found))


def _table(found: list[Tally]) -> Table:
    table = Table("fault", "tried", "survived")
    for one in found:
        table.add_row(one.what, *((one.why_not, "") if one.why_not else (str(one.tried), str(one.survived))))
    return table


def _page(found: list[Tally]) -> str:
    rows = (f"| {one.what} | {one.why_not or one.tried} | {one.survived if one.tried else ''} |" for one in found)
    return "\n".join(["| fault | tried | survived |", "|---|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    main()
