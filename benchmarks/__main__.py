"""Run every contender on every problem, each in its own process, and print the results."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path

from rich.console import Console

from benchmarks import tables
from benchmarks.machine import cpu
from benchmarks.peers import CONTENDERS, OURS, Contender
from benchmarks.problems import SPECS, Spec
from benchmarks.processes import Failed, last_line, python
from benchmarks.tables import Row

REPEATS = 3
QUICK_SWEEPS = 6
PACKAGES = ("pltf", "numpy", "scipy", "pyttb", "tensorly", "torch", "torchnmf", "scikit-learn", "hpfrec")


def main() -> int:
    options = _options()
    pairs = _pairs(options.quick, options.only)
    if not pairs:
        names = ", ".join([*SPECS, *CONTENDERS])
        print(f"no problem and no contender has {options.only!r} in its name; there are {names}")
        return 2
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(f"{cpu()}, {os.cpu_count()} cores, {_load()}; {_versions()}", highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        rows = _run(pairs, options.quick, Path(folder), console)
    console.print(f"done, {_load()}", highlight=False)
    tables.show(rows, console)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few sweeps, small problems: a check")
    parser.add_argument(
        "--only", metavar="NAME", default="", help="only problems, or contenders beside pltf, with NAME in their name"
    )
    return parser.parse_args()


def _versions() -> str:
    return ", ".join(f"{name} {_version(name)}" for name in PACKAGES)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _load() -> str:
    """Report other work on the machine, which makes timings unreliable."""
    return f"load {os.getloadavg()[0]:.1f}"


def _pairs(quick: bool, only: str) -> list[tuple[Spec, Contender]]:
    """The contenders for each problem. pltf is always included, as ratios need it."""
    named = {name for name in CONTENDERS if only in name}
    named |= set(OURS if named else ())
    return [
        (spec, contender)
        for spec in SPECS.values()
        for contender in CONTENDERS.values()
        if contender.takes(spec)
        and (spec.quick if quick else spec.full)
        and (only in spec.name or contender.name in named)
    ]


def _run(pairs: list[tuple[Spec, Contender]], quick: bool, folder: Path, console: Console) -> list[Row]:
    rows = []
    for spec, some in groupby(pairs, key=lambda pair: pair[0]):
        console.print(f"drawing {spec.name}: {spec.title}", highlight=False)
        file = folder / f"{spec.name}.npz"
        problem = _drawn(spec, file)
        for _, contender in some:
            row = _one(spec, contender, quick, file) if problem is None else Row(spec, contender, 0, None, problem)
            rows.append(row)
            line = f"  {spec.name}  {contender.name}: {tables.summary(row)}"
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        file.unlink(missing_ok=True)  # some are large
    return rows


def _drawn(spec: Spec, file: Path) -> str | None:
    """Write the data of a problem; returns the reason if that failed."""
    try:
        python("benchmarks.problems", spec.name, str(file))
    except Failed as error:
        return f"not drawn: {error}"
    return None


def _one(spec: Spec, contender: Contender, quick: bool, file: Path) -> Row:
    """A row of the table; if the contender failed, a row with the reason."""
    sweeps, repeats = (QUICK_SWEEPS, 1) if quick else (spec.sweeps, REPEATS)
    try:
        said = python("benchmarks.measure", contender.name, str(sweeps), str(repeats), str(file))
        return Row(spec, contender, sweeps, json.loads(last_line(said)))
    except (Failed, ValueError) as error:
        return Row(spec, contender, sweeps, None, str(error))


if __name__ == "__main__":
    sys.exit(main())
