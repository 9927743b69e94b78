"""Small data, commands on them, and checks of the files they write."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pltf
from pltf.cli.main import run

INDICES = ("user", "place", "week")
FIT = ("--restarts", 4, "--max-iter", 100, "--tol", 0, "--dispersion", "none", "--every", 0.2)
SEARCH = ("--restarts", 2, "--max-iter", 25, "--tol", 0, "--dispersion", "none", "--every", 0, "--workers", 2)


@cache
def table() -> pd.DataFrame:
    """Counts of 20 users at 12 places in 6 weeks, with labels."""
    drawn = pltf.datasets.draw(pltf.cp(rank=3), (20, 12, 6), prior=pltf.Gamma(0.5, 1.5), seed=0)
    cells = np.argwhere(drawn.counts["X"] > 0)
    columns = {name: [f"{name}-{at}" for at in cells[:, axis]] for axis, name in enumerate(INDICES)}
    return pd.DataFrame({**columns, "n": drawn.counts["X"][tuple(cells.T)]})


def events(where: Path) -> Path:
    """The table in a file."""
    path = where / "events.csv"
    table().to_csv(path, index=False)
    return path


def fit_of(data: Path, out: Path, *more: object) -> list[object]:
    """The command that fits it and resumes from its checkpoint."""
    kept = ("--checkpoint", out.with_name("kept.nc"), "--resume", "--force", "--quiet")
    return ["fit", data, "--index", ",".join(INDICES), "--value", "n", "--cp", 3, *FIT, *kept, "-o", out, *more]


def search_of(data: Path, out: Path, *more: object) -> list[object]:
    """The command that searches its order and resumes from its checkpoint."""
    kept = ("--checkpoint", out.with_name("kept.nc"), "--resume", "--force", "--quiet")
    return [
        "select",
        data,
        "--index",
        ",".join(INDICES),
        "--value",
        "n",
        "--cp",
        "1:4",
        *SEARCH,
        *kept,
        "-o",
        out,
        *more,
    ]


def convert_of(data: Path, out: Path, *more: object) -> list[object]:
    """The command that writes it in another format."""
    return ["convert", data, out, "--index", ",".join(INDICES), "--value", "n", "--quiet", *more]


def done(*arguments: object) -> None:
    """A command that must succeed."""
    code = run([str(one) for one in arguments])
    assert code == 0, arguments


def same(path: Path, whole: Path) -> str:
    """The difference between two saved fits or searches; "" if they are bit-identical."""
    try:
        one, other = (_numbers(pltf.load(each)) for each in (path, whole))
    except pltf.PltfError as error:
        return f"{path.name} cannot be loaded: {error}"
    return "" if one == other else f"{path.name} differs from a run that was not disturbed"


def _numbers(saved: pltf.Fit | pltf.Selection) -> list[Any]:
    if isinstance(saved, pltf.Selection):
        bounds = [(dict(one.label), one.bound) for one in saved.outcomes]
        return [bounds, *_numbers(saved.best_fit)]
    return [saved.bound, *(part[name].tobytes() for part in (saved.C, saved.D) for name in sorted(part))]


def left_over(where: Path) -> str:
    """Temporary files left behind; "" if there are none."""
    names = [one.name for one in where.iterdir() if one.name.endswith(".part") or one.name.startswith("pltf-")]
    return f"left behind: {', '.join(names)}" if names else ""


def loads(*paths: Path) -> str:
    """Which existing files cannot be loaded."""
    for path in paths:
        if path.exists():
            try:
                pltf.load(path)
            except pltf.PltfError as error:
                return f"{path.name} cannot be loaded: {error}"
    return ""
