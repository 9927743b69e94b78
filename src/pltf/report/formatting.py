"""Numbers and labels as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pltf.fit import Fit

LONGEST = 28  # characters of a label in a chart; the whole of it is shown on hover


def number(x: float, digits: int = 3) -> str:
    """A number with so many digits that count, and commas between thousands.

    >>> number(12345.678), number(0.97012), number(3.0), number(2e-9), number(float("nan"))
    ('12,346', '0.970', '3', '2.0e-09', '–')
    """
    if math.isnan(x):
        return "–"
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    if x and not 1e-4 <= abs(x) < 1e9:
        text = f"{abs(x):.{digits - 2}e}"
    else:
        whole = x == round(x)
        text = f"{abs(x):,.{0 if whole else max(0, digits - 1 - math.floor(math.log10(abs(x))))}f}"
    return f"−{text}" if x < 0 else text


def percent(share: float) -> str:
    """A share of one.

    >>> percent(0.256), percent(0.0123), percent(0.00001), percent(0.0), percent(0.9999)
    ('26 %', '1.2 %', '< 0.1 %', '0 %', '> 99.9 %')
    """
    if math.isnan(share):
        return "–"
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    exact = 100 * share
    return f"{exact:.1f} %" if (exact < 9.95 and share) or 99 < exact < 100 else f"{exact:.0f} %"


def probability(p: float) -> str:
    """A probability: never quite certain, and however small it is told.

    >>> probability(1.0), probability(0.25), probability(0.000206)
    ('> 99.9 %', '25 %', '0.021 %')
    """
    return f"{number(100 * p, 2)} %" if 0 < p < 0.001 else percent(min(p, 1 - 1e-9))


def nats(x: float) -> str:
    """A bound, in nats.

    >>> nats(-12345.678), nats(-12345678.9)
    ('−12,345.7', '−12,345,679')
    """
    return "–" if math.isnan(x) else f"{x:z,.{1 if abs(x) < 1e6 else 0}f}".replace("-", "−")


def scored(mean: float, error: float) -> str:
    """A score on hidden cells and its standard error.

    >>> scored(-1.23456, 0.01), scored(float("nan"), float("nan"))
    ('−1.2346 ± 0.0100', '–')
    """
    return "–" if math.isnan(mean) else f"{mean:.4f} ± {error:.4f}".replace("-", "−")


def seconds(s: float) -> str:
    """A time.

    >>> seconds(0.0123), seconds(4.25), seconds(184.4)
    ('0.012 s', '4.2 s', '184 s')
    """
    return f"{s:.0f} s" if s >= 100 else f"{s:.1f} s" if s >= 1 else f"{number(s, 2)} s"


def many(count: int, one: str, several: str | None = None) -> str:
    """So many of something.

    >>> many(1, "cell"), many(2000, "cell"), many(2, "index", "indices")
    ('1 cell', '2,000 cells', '2 indices')
    """
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def listed(words: Sequence[str]) -> str:
    """Words in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def plain(text: str) -> str:
    """Text for plotly, which takes some HTML in all its texts: with the signs of HTML as entities it stays text.

    >>> plain("<b>R&D</b>")
    '&lt;b&gt;R&amp;D&lt;/b&gt;'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def short(label: str, longest: int = LONGEST) -> str:
    """A label that fits beside a chart.

    >>> short("a" * 40, 10)
    'aaaaaaaaa…'
    """
    return label if len(label) <= longest else f"{label[: longest - 1]}…"


def names(fit: Fit, index: str, positions: Sequence[int] | NDArray[np.intp]) -> list[str]:
    """What positions of an index are called: their labels, or their numbers."""
    at = np.asarray(positions, dtype=np.intp)
    called = fit.labels[index].names(at) if index in fit.labels else [str(n) for n in at.tolist()]
    return [name if name.strip() else "(blank)" for name in called]
