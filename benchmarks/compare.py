"""Compare commits: ``make compare BASE=HEAD~1``, or ``python -m benchmarks.compare COMMIT COMMIT ...``.

The sources of each commit go into a folder of their own. The benchmarks of the working tree run on them in alternation,
so that other load disturbs all of them alike. Times are ratios to the first commit: below 1 is faster. If two commits
reach different results, the table says so.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.problems import SPECS
from benchmarks.processes import ROOT, Failed, last_line, python

PROBLEMS = ("cp-50", "cp-50-masked", "nmf-2000", "cp-sparse-small", "nmf-sparse-small")
CONTENDERS = ("pltf vb", "pltf em")
WORKING = "."  # the working tree, whatever is committed
SAME = 1e-6  # relative difference of divergences that is called none


@dataclass(frozen=True)
class Version:
    """A commit, and where its sources are."""

    name: str
    source: Path


def unpacked(commit: str, folder: Path) -> Version:
    """The sources of a commit, in a separate folder."""
    if commit == WORKING:
        return Version("working tree", ROOT / "src")
    name = _git("log", "-1", "--format=%h %s", commit).decode().strip()
    with tarfile.open(fileobj=io.BytesIO(_git("archive", commit, "src"))) as archive:
        archive.extractall(folder / name[:7], filter="data")
    return Version(name[:60], folder / name[:7] / "src")


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


def measured(problem: str, contender: str, versions: Sequence[Version], rounds: int, file: Path) -> list[Any]:
    """The results of all rounds for each version, or the reason for a failure."""
    results: list[Any] = [[] for _ in versions]
    arguments = (contender, str(SPECS[problem].sweeps), "1", str(file))
    for _ in range(rounds):
        for n, version in enumerate(versions):
            if not isinstance(results[n], str):
                try:
                    results[n].append(
                        json.loads(last_line(python("benchmarks.measure", *arguments, source=version.source)))
                    )
                except (Failed, ValueError) as error:
                    results[n] = str(error)
    return results


def cell(result: Any, base: Any) -> str:
    """Time relative to the first version, and other differences."""
    if isinstance(result, str) or isinstance(base, str):
        return result if isinstance(result, str) else "no base"
    ratio = median(one["fastest"] for one in result) / median(one["fastest"] for one in base)
    reached, wanted = result[0]["divergence"], base[0]["divergence"]
    differs = "" if math.isclose(reached, wanted, rel_tol=SAME) else f", divergence {reached:.6g} for {wanted:.6g}"
    return f"{ratio:.2f}{differs}"


def main() -> int:
    """Print a row for each commit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description="time of several commits")
    parser.add_argument("commits", nargs="+", help="the first is the base; '.' is the working tree")
    parser.add_argument("--rounds", type=int, default=3, help="times that each is measured (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="NAME", help="only problems with NAME in their name")
    options = parser.parse_args()
    console = Console(width=200)
    commits = options.commits if len(options.commits) > 1 else [*options.commits, WORKING]
    problems = [name for name in PROBLEMS if options.only in name]
    columns = [(problem, contender) for problem in problems for contender in CONTENDERS]
    table = Table("commit", *(f"{problem}\n{contender.removeprefix('pltf ')}" for problem, contender in columns))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        versions = [unpacked(commit, folder) for commit in commits]
        cells: list[list[str]] = [[] for _ in versions]
        for problem in problems:
            file = folder / f"{problem}.npz"
            python("benchmarks.problems", problem, str(file))
            for contender in CONTENDERS:
                console.print(f"{problem}, {contender}", highlight=False)
                results = measured(problem, contender, versions, options.rounds, file)
                for row, result in zip(cells, results, strict=True):
                    row.append(cell(result, results[0]))
    for version, row in zip(versions, cells, strict=True):
        table.add_row(escape(version.name), *map(escape, row))
    console.print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
