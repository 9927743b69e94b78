"""What contributors and packagers rely on: worked examples, the figure of layers, workflows, types for users."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import pltf
from tests.mutants import mutants_of
from tests.snippets import run_python_blocks

ROOT = Path(__file__).parents[1]

USER_SCRIPT = """
import numpy as np
import pandas as pd
import pltf
from pltf.metrics import score

events = pd.DataFrame({"user": ["a", "b"], "place": ["x", "y"]})
model: pltf.Model = pltf.nmf(("user", "place"), rank=2)
fit: pltf.Fit = model.fit(events, restarts=3, prior=pltf.Gamma(0.5, mean=1.0))
bound: float = fit.bound
means: np.ndarray = fit.factors["W"].mean
table: pd.DataFrame = fit.top(3, among="zero")
found: pltf.Selection = pltf.select(model, events, r=range(1, 3))
best: dict[str, object] = dict(found.best)
"""


@pytest.mark.slow
def test_examples_for_contributors_run() -> None:
    assert run_python_blocks(ROOT / "CONTRIBUTING.md") >= 4


def test_the_figure_of_layers_is_that_of_the_contract() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "layers.py"))
    rows = script["layers"]()
    assert script["FIGURE"].read_text() == script["svg"](rows), "run: python docs/layers.py"
    assert {"cli", "inference", "engines"} <= {name for row in rows for name in row}


def test_workflows_run_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    text = "".join(path.read_text() for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")))
    named = set(re.findall(r"run: make ([a-z-]+)", text))
    listed = re.search(r"target: \[(.*)\]", text)
    assert listed is not None
    named |= {entry.split()[0] for entry in listed.group(1).split(",")}
    assert len(named) >= 8
    assert named <= targets


def test_citation_and_package_have_one_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert pltf.__version__ == version


def test_mutants_differ_from_the_source_in_one_place() -> None:
    source = "def f(x, y):\n    return x + 1 if x < y else max(x, y)\n"
    assert {one.applied(source).splitlines()[1].strip() for one in mutants_of(source, Path("f.py"))} == {
        "return (max(x, y) if x < y else x + 1)",
        "return x - 1 if x < y else max(x, y)",
        "return x + 2 if x < y else max(x, y)",
        "return x + 1 if x <= y else max(x, y)",
        "return x + 1 if x < y else min(x, y)",
    }


def _checked(script: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-incremental", str(script)]
    return subprocess.run(command, capture_output=True, text=True, cwd=script.parent, check=False)


@pytest.mark.slow
def test_a_users_script_type_checks(tmp_path: Path) -> None:
    (right := tmp_path / "right.py").write_text(USER_SCRIPT)
    told = [line for line in _checked(right).stdout.splitlines() if "pandas" not in line]  # stubs that a user may lack
    assert not [line for line in told if "error:" in line]
    (wrong := tmp_path / "wrong.py").write_text(USER_SCRIPT.replace("bound: float", "bound: str"))
    assert 'expression has type "float", variable has type "str"' in _checked(wrong).stdout
