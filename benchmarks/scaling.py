"""Seconds a sweep and peak memory as the number of non-zeros grows: ``python -m benchmarks.scaling``.

Variational Bayes of a sparse CP in float64; the shape stays, and each size runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.machine import cpu
from benchmarks.measure import Cost, cost
from benchmarks.peers import CONTENDERS
from benchmarks.problems import draw_listed
from benchmarks.processes import ROOT, Failed, last_line, python
from benchmarks.tables import disturbance

SHAPE = (10_000, 8_000, 500)
RANK = 10
SIZES = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000)
SWEEPS = 8
FIGURE = ROOT / "docs" / "figures" / "scaling.svg"

Costs = Mapping[int, Cost | str]  # by non-zeros; a string says why there is none


def main() -> int:
    options = _options()
    if options.one is not None:
        print(json.dumps(asdict(_measured(options.one))))
        return 0
    sizes = [size for size in SIZES if size <= options.up_to]
    if not sizes:
        print(f"the smallest size is {SIZES[0]} non-zeros, got --up-to {options.up_to}")
        return 2
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(f"{cpu()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", highlight=False)
    costs = {size: _in_process(size, console) for size in sizes}
    console.print(_table(costs))
    console.print("Peak memory: of the whole process, with the drawing of the data; of which the fit: beyond the data.")
    measured = {size: found for size, found in costs.items() if isinstance(found, Cost)}
    if measured:
        draw_figure(measured, options.figure)
        console.print(f"figure: {options.figure}", highlight=False, soft_wrap=True)
    return 0 if len(measured) == len(costs) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--up-to", type=int, default=SIZES[-1], metavar="N", help="leave larger sizes out")
    parser.add_argument("--figure", type=Path, default=FIGURE, metavar="FILE", help="where the figure goes")
    parser.add_argument("--one", type=int, metavar="N", help="measure one size in this process and print JSON")
    return parser.parse_args()


def _in_process(size: int, console: Console) -> Cost | str:
    try:
        found: Cost | str = Cost(**json.loads(last_line(python("benchmarks.scaling", "--one", str(size)))))
    except (Failed, ValueError) as error:
        found = f"failed: {error}"
    said = found if isinstance(found, str) else f"{found.fastest:.4f} s a sweep, peak {found.peak_mb:.0f} MB"
    console.print(f"  {size:,} non-zeros: {said}", highlight=False, markup=False, soft_wrap=True)
    return found


def _measured(size: int) -> Cost:
    return cost(CONTENDERS["pltf vb"], draw_listed(SHAPE, RANK, size), SWEEPS, repeats=1)[1]


def _table(costs: Costs) -> Table:
    table = Table(title=_title(), title_justify="left")
    times = ("s/sweep\nmin", "s/sweep\nmedian", "ns/non-zero\nmin")
    headings = ("non-zeros", *times, "data\nMB", "peak\nMB", "of which\nfit MB")
    for heading in headings:
        table.add_column(heading, justify="right")
    table.add_column("remark")
    for size, found in costs.items():
        cells = ["-"] * 6 + [escape(found)] if isinstance(found, str) else _cells(size, found)
        table.add_row(f"{size:,}", *cells)
    return table


def _cells(size: int, found: Cost) -> Sequence[str]:
    times = (f"{found.fastest:.4f}", f"{found.median:.4f}", f"{1e9 * found.fastest / size:.1f}")
    memory = (f"{mb:.0f}" for mb in (found.data_mb, found.peak_mb, found.above_mb))
    return (*times, *memory, disturbance(found.others))


def _title() -> str:
    return f"CP {'x'.join(map(str, SHAPE))}, R={RANK}, vb, float64"


def draw_figure(costs: Mapping[int, Cost], path: Path) -> None:
    """Seconds a sweep by non-zeros, both axes in logarithms, beside a line of slope 1 through the last point."""
    import matplotlib.pyplot as plt

    sizes = list(costs)
    seconds = [found.fastest for found in costs.values()]
    with plt.rc_context({"svg.hashsalt": "pltf", "font.size": 10}):
        figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
        straight = [seconds[-1] * size / sizes[-1] for size in sizes]
        axes.loglog(sizes, straight, "--", color="0.6", label="slope 1: time in proportion to non-zeros")
        axes.loglog(sizes, seconds, "o-", color="tab:blue", label="pltf vb")
        axes.set_xlabel("non-zero cells")
        axes.set_ylabel("time of a sweep (s)")
        axes.set_title(f"{_title()}, {os.cpu_count()} cores", fontsize=10)
        axes.grid(visible=True, which="major", color="0.9")
        axes.legend(frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
