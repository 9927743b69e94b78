"""What a newcomer meets: names, docstrings, imports, README, demo."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
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


MODULES: tuple[ModuleType, ...] = (
    pltf, pltf.datasets, pltf.io, pltf.metrics, pltf.plotting, pltf.report, pltf.sklearn
)  # fmt: skip


def public_names() -> Iterator[tuple[str, object]]:
    """All public names, with the methods and properties of classes."""
    for module in MODULES:
        for name in module.__all__:
            thing = getattr(module, name)
            yield f"{module.__name__}.{name}", thing
            if inspect.isclass(thing) and not issubclass(thing, Exception):
                yield from members(f"{module.__name__}.{name}", thing)


def left_out() -> set[str]:
    """Members of public classes that the reference leaves out: internals without a leading underscore."""
    text = "".join(page.read_text() for page in sorted((ROOT / "docs" / "api").glob("*.md")))
    found = re.findall(r"autoclass:: (\S+)\n(?:   :\S+:.*\n)*?   :exclude-members: (.*)", text)
    return {f"{name}.{member.strip()}" for name, members in found for member in members.split(",")}


def members(name: str, of: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties of a class, its own and those of base classes in pltf."""
    for attribute in dir(of):
        owner = next(base for base in of.__mro__ if attribute in vars(base))
        thing = vars(owner)[attribute]
        function = getattr(thing, "__func__", None) or getattr(thing, "fget", None) or getattr(thing, "func", thing)
        absent = str(inspect.getdoc(thing)).startswith("Raises an error")  # the class has an example of it
        if owner.__module__.startswith("pltf") and attribute[0] != "_" and inspect.isfunction(function) and not absent:
            yield f"{name}.{attribute}", function


NAMES = {name: thing for name, thing in public_names() if name not in left_out()}


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(NAMES[name]) or ""), f"{name} has no example"


@pytest.mark.parametrize("name", [name for name, thing in NAMES.items() if inspect.isfunction(thing)])
def test_every_public_function_has_types(name: str) -> None:
    signature = inspect.signature(NAMES[name])  # type: ignore[arg-type]
    assert signature.return_annotation is not signature.empty, f"{name} does not say what it returns"
    untyped = [one.name for one in signature.parameters.values() if one.annotation is one.empty]
    assert not set(untyped) - {"self", "cls"}, f"{name} has parameters without types"


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
