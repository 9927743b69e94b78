"""What a newcomer meets: names, docstrings, imports, README, demo."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import pltf
import pltf.datasets
import pltf.io
import pltf.metrics
import pltf.plotting
import pltf.report
import pltf.sklearn
from tests.snippets import run_python_blocks

ROOT = Path(__file__).parents[1]
HEAVY = (
    "torch",
    "dask",
    "distributed",
    "matplotlib",
    "numba",
    "pandas",
    "sklearn",
    "rich",
    "loky",
    "scipy",
    "xarray",
    "typer",
)


def public_names() -> list[tuple[str, object]]:
    modules: list[ModuleType] = [pltf, pltf.datasets, pltf.io, pltf.metrics, pltf.report, pltf.sklearn]
    names = [(f"{m.__name__}.{name}", getattr(m, name)) for m in modules for name in m.__all__]
    plots = [(f"pltf.plotting.{n}", f) for n, f in inspect.getmembers(pltf.plotting, inspect.isfunction) if n[0] != "_"]
    methods = [
        (f"pltf.{c.__name__}.{n}", getattr(c, n))
        for c in (pltf.Model, pltf.Fit, pltf.Selection, pltf.Match, pltf.metrics.Scores)
        for n in vars(c)
        if n[0] != "_"
    ]
    return names + plots + [(name, method) for name, method in methods if inspect.isfunction(method)]


@pytest.mark.parametrize(("name", "thing"), public_names(), ids=[name for name, _ in public_names()])
def test_every_public_name_has_an_example(name: str, thing: object) -> None:
    documentation = inspect.getdoc(thing) or ""
    assert ">>> " in documentation, f"{name} has no example"


def imported_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_brings_nothing_heavy() -> None:
    assert not imported_by("import pltf").intersection(HEAVY)
    assert not imported_by("import pltf, pltf.plotting").intersection(HEAVY)


def test_that_test_can_fail() -> None:
    assert "pandas" in imported_by("import pltf, pandas")


@pytest.mark.extra("plot")
def test_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_python_blocks(ROOT / "README.md") >= 3


def test_readme_names_the_commands_on_its_first_screen() -> None:
    screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:40])
    assert "make demo" in screen
    assert "make test" in screen
    assert "make test" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.extra("plot")
def test_demo_finds_the_order(tmp_path: Path) -> None:
    script = str(ROOT / "examples" / "demo.py")
    command = [sys.executable, script, "--size", "20", "--restarts", "2", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "120"})
    assert "4 <-" in done.stdout
    for words in ("Bounds", "correlation with the true rates", "mean deviance", "Largest components", "time"):
        assert words in done.stdout
    assert (tmp_path / "bound.png").read_bytes().startswith(b"\x89PNG")


def test_no_absolute_paths_in_the_package() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        assert not re.search(r"[\"'/](home|root|work|tmp)/", path.read_text()), path
