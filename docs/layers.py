"""Draw the layers of the import contract: ``python docs/layers.py`` writes docs/figures/layers.svg."""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "docs" / "figures" / "layers.svg"

HEIGHT, GAP, LETTER, PAD = 26, 8, 7.6, 24  # pixels: of a box, between boxes, of a letter, around a name
LEFT, WIDTH = 20, 760


def layers() -> list[list[str]]:
    """Modules of every layer, from the top down."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rows = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[name.strip() for name in row.split(":")] for row in rows]


def svg(rows: list[list[str]]) -> str:
    """The layers as boxes; a box may use all boxes of the rows below it."""
    height = len(rows) * (HEIGHT + GAP) + GAP
    boxes = "\n".join(_row(names, GAP + n * (HEIGHT + GAP)) for n, names in enumerate(rows))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" '
        'aria-label="Layers of pltf: imports go down only">\n'
        "<style>rect{fill:#4c72b022;stroke:#4c72b0}text{font:13px ui-monospace,monospace;fill:#4c72b0}</style>\n"
        f"{boxes}\n</svg>\n"
    )


def _row(names: list[str], top: int) -> str:
    widths = [LETTER * len(name) + PAD for name in names]
    left = LEFT + (WIDTH - 2 * LEFT - sum(widths) - GAP * (len(names) - 1)) / 2
    boxes = []
    for name, width in zip(names, widths, strict=True):
        boxes.append(
            f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{HEIGHT}" rx="4"/>'
            f'<text x="{left + width / 2:.1f}" y="{top + 17}" text-anchor="middle">{escape(name)}</text>'
        )
        left += width + GAP
    return "\n".join(boxes)


if __name__ == "__main__":
    FIGURE.write_text(svg(layers()), newline="\n")
    print(f"{FIGURE.relative_to(ROOT)} has {len(layers())} layers")
