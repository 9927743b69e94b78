"""Code blocks of Markdown pages, run as a reader would."""

from __future__ import annotations

import re
import shlex
from pathlib import Path


def python_blocks(page: Path) -> list[str]:
    """The fenced Python blocks of a page, in order."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


def run_python_blocks(page: Path) -> int:
    """Run the Python blocks of a page one after the other, with the same names; return how many there are."""
    names: dict[str, object] = {"__name__": page.stem}
    blocks = python_blocks(page)
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
    return len(blocks)


def commands(page: Path) -> list[list[str]]:
    """The arguments of every `$ pltf ...` in the console blocks of a page, in order."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), flags=re.DOTALL)
    return [shlex.split(line)[2:] for block in blocks for line in block.splitlines() if line.startswith("$ pltf ")]
