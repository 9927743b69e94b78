"""Print pip constraints that pin every direct dependency of pltf, and of its extras for users, to the lowest version.

    python .ci/lowest.py > constraints.txt && pip install --constraint constraints.txt '.[test-all]'

`name>=version` in pyproject.toml becomes `name==version`, so that a version that does not exist, or that conflicts with
the others, is an error. Indirect dependencies and the test tools are not pinned.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

EXTRAS = ("plot", "io", "arviz", "dask")


def lowest(project: dict[str, object]) -> list[str]:
    """One constraint for each dependency."""
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *(one for extra in EXTRAS for one in extras[extra])]
    plain = [re.sub(r"\[.*?\]", "", one) for one in declared]  # constraints have no extras
    return [re.sub(r">=([^,;]+)[^;]*", r"==\1", one) for one in dict.fromkeys(plain)]


if __name__ == "__main__":
    print(*lowest(tomllib.loads(Path("pyproject.toml").read_text())["project"]), sep="\n")
