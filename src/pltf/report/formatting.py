"""Numbers and labels as text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from pltf.errors import PltfError
from pltf.fit import Fit
from pltf.gamma import Array
from pltf.terminal import printable


def number(x: float, digits: int = 3) -> str:
    """A number with a few significant digits, and commas between thousands.

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
    """A fraction as a percentage.

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
    """A probability, never 100 %, and small ones in full.

    >>> probability(1.0), probability(0.25), probability(0.000206)
    ('> 99.9 %', '25 %', '0.021 %')
    """
    return f"{number(100 * p, 2)} %" if 0 < p < 0.001 else percent(min(p, 1 - 1e-9))


def nats(x: float, decimals: int = 1) -> str:
    """An ELBO or a log-likelihood, in nats.

    >>> nats(-12345.678), nats(-12345678.9), nats(-1.234, 2)
    ('−12,345.7', '−12,345,679', '−1.23')
    """
    return "–" if math.isnan(x) else f"{x:z,.{decimals if abs(x) < 1e6 else 0}f}".replace("-", "−")


def scored(mean: float, error: float) -> str:
    """A score on held-out cells and its standard error.

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
    """A count and its noun.

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


def sentence(text: str) -> str:
    """A message as a sentence.

    >>> sentence("no cell is missing")
    'No cell is missing.'
    """
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def reason(error: PltfError) -> str:
    """An error as a note for readers who use Python or the command line.

    >>> reason(PltfError("name the store with fit.with_store(path)"))
    'Name the store with fit.with_store(path), or with pltf report RUN --store FOLDER.'
    """
    store = "fit.with_store(path)"
    return sentence(str(error).replace(store, f"{store}, or with pltf report RUN --store FOLDER"))


def short(label: str, longest: int) -> str:
    """A label, shortened in the middle if it is too long, because labels often differ at their end.

    >>> short("a" * 20 + "b" * 20, 10)
    'aaaaaa…bbb'
    """
    end = (longest - 1) // 3
    return label if len(label) <= longest else f"{label[: longest - 1 - end]}…{label[len(label) - end :]}"


def distinct(labels: Iterable[str], longest: int) -> list[str]:
    """Shortened labels; labels that then look the same get a number.

    >>> distinct(["x" * 30, "x" * 31, "y"], 8)
    ['xxxxx…xx', 'xxxxx…xx (2)', 'y']
    """
    found: dict[str, None] = {}
    for label in labels:
        name = short(" ".join(label.split()), longest)
        numbered = (f"{name} ({n})" for n in itertools.count(2))
        found[next(one for one in itertools.chain([name], numbered) if one not in found)] = None
    return list(found)


def rounded(values: Array) -> list[float | None]:
    """Numbers with three significant digits, for the script of the page.

    >>> rounded(np.array([0.0012345, 1234.5, np.inf]))
    [0.00123, 1230.0, None]
    """
    return [float(f"{one:.3g}") if math.isfinite(one) else None for one in values.tolist()]


def names(fit: Fit, index: str, positions: Sequence[int] | NDArray[np.intp]) -> list[str]:
    """The names of positions of an index: labels, or numbers."""
    at = np.asarray(positions, dtype=np.intp)
    called = fit.labels[index].called(at) if index in fit.labels else [str(n) for n in at.tolist()]
    return [printable(name) if name.strip() else "(blank)" for name in called]
