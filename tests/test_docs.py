"""The pages of the site: their code runs, and every public name is on one of them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import pltf
import pltf.datasets
import pltf.metrics
import pltf.plotting
import pltf.report
import pltf.sklearn
from pltf.cli.main import run
from tests.snippets import commands, python_blocks, run_python_blocks

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(
    page
    for page in DOCS.rglob("*.md")
    if page.relative_to(DOCS).parts[0] not in ("_build", "gallery") and python_blocks(page)
)


@pytest.mark.extra("plot")
@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(DOCS)) for page in PAGES])
def test_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    assert run_python_blocks(page)
    for command in commands(page):  # they use the files that the code has written
        assert run(command) == 0


def test_every_public_name_is_in_the_reference() -> None:
    text = "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    described = set(re.findall(r"^\.\. auto\w+:: ([\w.]+)", text, flags=re.MULTILINE))
    public = {
        f"{m.__name__}.{name}"
        for m in (pltf, pltf.datasets, pltf.metrics, pltf.report, pltf.sklearn)
        for name in m.__all__
    }
    plots = inspect.getmembers(pltf.plotting, inspect.isfunction)
    public |= {f"pltf.plotting.{name}" for name, _ in plots if name[0] != "_"}
    assert public <= described
