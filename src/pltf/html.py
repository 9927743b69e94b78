"""Pieces of what notebooks show: small tables and pictures. Whatever comes from data is escaped.

The pages of models and observations are beside these, the others in :mod:`pltf.notebooks`.
"""

from __future__ import annotations

import base64
import html
import io
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pltf.terminal import printable

LONGEST = 60  # characters of a text in a table
COLOURS = 64  # of a picture: a third of the bytes
_LEFT, _RIGHT = (f"text-align:{side};vertical-align:top;padding:0.1em 0.6em" for side in ("left", "right"))
_NUMBER = re.compile(r"[<>]?\s*[-−+]?\d[\d,.]*(e[-+]\d+)?( ?%| s| nats)?")


def card(title: str, *parts: str) -> str:
    """A block with a title."""
    return f'<div style="max-width:60em"><strong>pltf.{escaped(title)}</strong>{"".join(parts)}</div>'


def escaped(text: object, longest: int = LONGEST) -> str:
    """Text of data as text of a page, cut if it is long.

    >>> escaped("<script>&"), escaped("a" * 9, 5)
    ('&lt;script&gt;&amp;', 'aaaa…')
    """
    plain = printable(text, keep="")
    return html.escape(plain if len(plain) <= longest else f"{plain[: longest - 1]}…")


def code(text: str) -> str:
    """Equations."""
    return f'<pre style="margin:0.3em 0">{html.escape(printable(text))}</pre>'


def facts(told: Mapping[str, str]) -> str:
    """A table of names and values."""
    rows = "".join(
        f'<tr><th style="{_LEFT}">{escaped(name)}</th><td style="{_LEFT}">{escaped(text, 400)}</td></tr>'
        for name, text in told.items()
    )
    return f"<table>{rows}</table>"


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, more: int = 0, bold: Iterable[bool] | None = None
) -> str:
    """A table; numbers stand on the right."""
    head = "".join(f'<th style="{_LEFT}">{escaped(column)}</th>' for column in columns)
    strong = bold if bold is not None else [False] * len(rows)
    weights = ["bold" if is_bold else "normal" for is_bold in strong]
    body = "".join(
        f'<tr style="font-weight:{weight}">{"".join(map(_cell, row))}</tr>'
        for row, weight in zip(rows, weights, strict=True)
    )
    rest = f'<tr><td colspan="{len(columns)}" style="{_LEFT}">and {more:,} more</td></tr>' if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}{rest}</tbody></table>"


def _cell(value: object) -> str:
    text = str(value)
    style = _RIGHT if _NUMBER.fullmatch(text) else _LEFT
    return f'<td style="{style}">{escaped(text)}</td>'


def picture(draw: Callable[[Any, Any], None], thing: Any, about: str) -> str:
    """A figure as an image; "" without matplotlib, or if nothing was drawn."""
    try:
        from matplotlib.figure import Figure
        from PIL import Image  # matplotlib needs it too
    except ModuleNotFoundError:
        return ""
    figure, page = Figure(layout="constrained", facecolor="white"), io.BytesIO()
    with warnings.catch_warnings(action="ignore"):  # about characters missing in the font
        draw(thing, figure)
        if not figure.axes:
            return ""
        figure.savefig(page, format="png", dpi=110)
    small = io.BytesIO()
    Image.open(page).convert("RGB").quantize(COLOURS).save(small, format="png", optimize=True)
    data = base64.b64encode(small.getvalue()).decode("ascii")
    width = round(96 * figure.get_size_inches()[0] * 0.9)
    return f'<img alt="{escaped(about)}" width="{width}" style="max-width:100%" src="data:image/png;base64,{data}">'
