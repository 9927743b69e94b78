"""Axes to draw on, and text escaped for matplotlib. matplotlib is imported only when something is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from pltf.errors import PltfError, py
from pltf.terminal import printable

LONGEST = 28  # characters of a label in a figure


def new_axes(ax: Any, size: tuple[float, float] = (6, 4)) -> Any:
    """The given axes, or new ones."""
    return pyplot().subplots(figsize=size, layout="constrained")[1] if ax is None else ax


def panels(count: int, axes: Any, sharey: bool = True, size: tuple[float, float] = (5.5, 4)) -> list[Any]:
    """One axes object per panel: the given ones, or new ones."""
    if axes is None and count != 1:
        plt = pyplot()
        return list(plt.subplots(1, count, figsize=(size[0] * count, size[1]), layout="constrained", sharey=sharey)[1])
    given = list(np.ravel(np.asarray(axes, dtype=object))) if axes is not None else [new_axes(None, size)]
    if len(given) != count or not all(hasattr(ax, "plot") for ax in given):
        raise PltfError(f"{py:axes} must hold {count} of matplotlib, one for each panel; got {len(given)}")
    return given


def pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError:
        raise PltfError("plots need matplotlib: pip install 'pltf[plot]'") from None
    return plt


def plain(label: object, longest: int = LONGEST) -> str:
    """A label as matplotlib draws it: on one line, not too long, and with escaped dollar signs.

    >>> plain("$5 to $9"), plain("a" * 40, 10)
    ('\\\\$5 to \\\\$9', 'aaaaaaaaa…')
    """
    text = printable(label, keep="")
    text = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return text.replace("$", r"\$")
