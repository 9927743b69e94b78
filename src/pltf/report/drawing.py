"""The parts of charts: axes, shapes in SVG and images.

Shapes are placed in percent of the plot, so that a chart has any width without being drawn again. They have classes
instead of colours, which the style sheet gives them, on a light page, a dark one and on paper. Only numbers and names
of classes get into the SVG; text is put on the page by the template, which escapes it.
"""

from __future__ import annotations

import base64
import itertools
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.gamma import Array
from pltf.report.ordering import nice

LIGHT = ("#f1f4f8", "#6ba3d4", "#0b3c6f")  # of heat maps, from small to large
DARK = ("#222a33", "#3a7ab5", "#dcefff")
_CHARACTER = 6.5  # pixels, about
_NARROW, _WIDE = 280, 860  # pixels of a plot on a phone and on a screen
_TALL = 1000  # units of a path from the bottom of the plot to its top


@dataclass(frozen=True)
class Tick:
    """A mark at an axis, in percent of its length; minor ones are left out where the chart is narrow."""

    at: float
    text: str
    minor: bool = False
    height: float = 0.0  # of a text in the plot, in percent from the bottom


@dataclass(frozen=True)
class Axis:
    """The range of an axis, and its ticks."""

    title: str
    low: float
    high: float
    ticks: tuple[Tick, ...] = ()
    log: bool = False
    grid: bool = True

    def place(self, values: Any) -> Array:
        """Where values lie, in percent.

        >>> Axis("", 0.0, 4.0).place([1.0, 2.0]).tolist(), Axis("", 1.0, 100.0, log=True).place([10.0]).tolist()
        ([25.0, 50.0], [50.0])
        """
        of, low, high = np.asarray(values, dtype=np.float64), self.low, self.high
        if self.log:
            of, low, high = np.log(of), float(np.log(low)), float(np.log(high))
        return np.round(100 * (of - low) / (high - low), 2) + 0.0


def axis(title: str, low: float, high: float, ticks: Sequence[tuple[float, str]] | None = None, **more: Any) -> Axis:
    """An axis with the given ticks, or with ticks at round numbers."""
    if not math.isfinite(low + high):
        low, high = 0.0, 1.0
    if not high > low:
        low, high = low - 0.5, high + 0.5
    bare = Axis(title, low, high, **more)
    if ticks is None:
        at = nice(low, high)
        ticks = list(zip(at, plain_numbers(at), strict=True))
    within = [(value, text) for value, text in ticks if low <= value <= high]
    places = bare.place([value for value, _ in within]).tolist()
    return Axis(title, low, high, thinned(places, [text for _, text in within]), **more)


def plain_numbers(values: Sequence[float]) -> list[str]:
    """Numbers along an axis, with the decimals that their step needs.

    >>> plain_numbers([0.0, 0.25, 0.5]), plain_numbers([-2000.0, -1000.0])
    (['0.00', '0.25', '0.50'], ['−2,000', '−1,000'])
    """
    step = min(np.diff(values), default=abs(values[0]) if values else 1.0) or 1.0
    largest = max(map(abs, values), default=0.0)
    if largest >= 1e9 or 0 < largest < 1e-4:
        return [f"{one:.3g}".replace("-", "−") for one in values]
    decimals = next((n for n in range(8) if abs(round(step, n) - step) < 1e-6 * step), 8)
    return [f"{one:,.{decimals}f}".replace("-", "−") for one in values]


def thinned(places: Sequence[float], texts: Sequence[str]) -> tuple[Tick, ...]:
    """Ticks with labels where there is room for them; fewer on a phone."""
    room = _CHARACTER * max(map(len, texts), default=1) + 10
    wide, narrow = (max(1, int(np.ceil(len(texts) * room / width))) for width in (_WIDE, _NARROW))
    narrow = wide * int(np.ceil(narrow / wide))
    return tuple(
        Tick(at, text, bool(n % narrow))
        for n, (at, text) in enumerate(zip(places, texts, strict=True))
        if n % wide == 0
    )


# -- shapes: x and y in percent, y upwards ------------------------------------------------------


def path(x: Iterable[float], y: Iterable[float], css: str, close: bool = False) -> str:
    """A line or an area, stretched to the plot; the line width is fixed.

    >>> path([0, 50, 100], [0, 100, 50], "blue")
    '<path class="blue" d="M0 1000l500-1000l500 500"/>'
    """
    units = _TALL / 100
    pairs = [(a, b) for a, b in zip(x, y, strict=True) if math.isfinite(a) and math.isfinite(b)]
    points = [(round(units * a), round(_TALL - units * b)) for a, b in pairs]
    steps = [f"l{c - a}{d - b: d}".replace(" -", "-") for (a, b), (c, d) in itertools.pairwise(points)]
    start = f"M{points[0][0]} {points[0][1]}" if points else ""
    return f'<path class="{css}" d="{start}{"".join(steps)}{"Z" if close else ""}"/>'


def band(x: Sequence[float], low: Sequence[float], high: Sequence[float], css: str) -> str:
    """The area between two lines."""
    return path([*x, *reversed(x)], [*low, *reversed(high)], css, close=True)


def dots(x: Iterable[float], y: Iterable[float], css: str, radius: float = 4) -> str:
    """A dot at each place."""
    return "".join(
        f'<circle class="{css}" cx="{a:.2f}%" cy="{100 - b:.2f}%" r="{radius}"/>'
        for a, b in zip(x, y, strict=True)
        if math.isfinite(a) and math.isfinite(b)
    )


def line(x: Sequence[float], y: Sequence[float], css: str) -> str:
    """A straight line from one place to another."""
    (a, b), (c, d) = x, y
    return f'<line class="{css}" x1="{a:.2f}%" y1="{100 - c:.2f}%" x2="{b:.2f}%" y2="{100 - d:.2f}%"/>'


def whiskers(x: Iterable[float], low: Iterable[float], high: Iterable[float], css: str) -> str:
    """A vertical line at each place."""
    ends = zip(x, low, high, strict=True)
    return "".join(line((a, a), (b, c), f"whisker {css}") for a, b, c in ends if math.isfinite(a + b + c))


def bars(x: Iterable[float], width: float, y: Iterable[float], css: Iterable[str]) -> str:
    """A vertical bar at each place, with the given width."""
    return "".join(
        f'<rect class="{one}" x="{a - width / 2:.2f}%" width="{width:.2f}%" y="{100 - b:.2f}%" height="{b:.2f}%"/>'
        for a, b, one in zip(x, y, css, strict=True)
    )


# -- images -------------------------------------------------------------------------------------


def image(shares: Array, colours: tuple[str, str, str]) -> str:
    """Numbers from 0 to 1 as an image with a pixel for each: a PNG as a data URL.

    >>> image(np.eye(2), LIGHT)[:30]
    'data:image/png;base64,iVBORw0K'
    """
    rows, columns = shares.shape
    levels = np.nan_to_num(np.clip(np.round(255 * shares), 0, 255)).astype(np.uint8)
    lines = np.hstack([np.zeros((rows, 1), dtype=np.uint8), levels])  # each begins with its filter: none
    parts = [
        _chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)),
        _chunk(b"PLTE", _palette(colours).tobytes()),
        _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
        _chunk(b"IEND", b""),
    ]
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()
    return f"data:image/png;base64,{data}"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _palette(colours: tuple[str, str, str]) -> NDArray[np.uint8]:
    """256 colours between three."""
    stops = np.array([[int(one[n : n + 2], 16) for n in (1, 3, 5)] for one in colours], dtype=np.float64)
    at = np.linspace(0, 2, 256)
    return np.stack([np.interp(at, [0, 1, 2], channel) for channel in stops.T], axis=1).round().astype(np.uint8)
