"""The page of common mistakes: each is made, and answered as the page says.

``python -m tests.test_mistakes`` writes the answers of today into the page.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import pltf
from pltf.cli.main import run
from tests.snippets import python_blocks

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "mistakes.md"
_ROW = re.compile(r"\| `(?P<typed>.+?)` \|(?P<answer>.*)\|")
ROWS = [(row["typed"], row["answer"].strip()) for row in map(_ROW.fullmatch, PAGE.read_text().splitlines()) if row]


def answer(typed: str, names: dict[str, object]) -> str:
    """What is said to a command or a piece of Python that is a mistake."""
    if typed.startswith("pltf ") and not typed.startswith("pltf."):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(shlex.split(typed)[1:])
        assert code == 2, (typed, code, err.getvalue())
        return err.getvalue().splitlines()[0].removeprefix("pltf: ")
    try:
        eval(typed, names)
    except pltf.PltfError as error:
        return str(error).splitlines()[0]
    raise AssertionError(f"{typed} is no mistake")


def as_cell(text: str) -> str:
    """A message as a cell of a table holds it."""
    return f"`` {text} ``".replace("|", "\\|") if text else ""


@contextlib.contextmanager
def desk(folder: Path) -> Iterator[dict[str, object]]:
    """A folder with the files of the page, and the names of its code."""
    names: dict[str, object] = {}
    before = Path.cwd()
    os.chdir(folder)
    try:
        for block in python_blocks(PAGE):
            exec(compile(block, str(PAGE), "exec"), names)
        yield names
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """What the code of the page defines, where its files are."""
    with desk(tmp_path_factory.mktemp("mistakes")) as found:
        yield found


def test_there_are_many() -> None:
    typed = [typed for typed, _ in ROWS]
    assert len(set(typed)) == len(typed) >= 80


@pytest.mark.parametrize(("typed", "expected"), ROWS, ids=[typed for typed, _ in ROWS])
def test_mistake(typed: str, expected: str, names: dict[str, object]) -> None:
    before = sorted(os.listdir())
    assert as_cell(answer(typed, names)) == expected
    assert sorted(os.listdir()) == before


def rewritten(text: str) -> str:
    """The page with the answers of today."""
    lines = text.splitlines()
    with tempfile.TemporaryDirectory() as folder, desk(Path(folder)) as known, warnings.catch_warnings(action="ignore"):
        for at, line in enumerate(lines):
            if row := _ROW.fullmatch(line):
                lines[at] = f"| `{row['typed']}` | {as_cell(answer(row['typed'], known))} |"
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
