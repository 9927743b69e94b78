"""Indices whose positions have an order: dates, numbers, weekdays and months."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pltf.data.labels import Labels
from pltf.gamma import Array

if TYPE_CHECKING:
    import pandas as pd

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
SHORTEST_CURVE = 3  # positions; fewer are bars
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
_DATE = re.compile(r"\d{4}-\d\d(-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?)?)?")


@dataclass(frozen=True, eq=False)
class Order:
    """The order of the positions of an index.

    ``values`` are their places along an axis: numbers themselves, dates in days since the first one.
    """

    kind: str  # "dates", "numbers" or "names": of weekdays or months
    positions: NDArray[np.intp]  # the first, the second, ...
    values: Array  # of these
    start: pd.Timestamp | None = None  # of dates: the first

    @property
    def curve(self) -> bool:
        """Whether a curve can be drawn: weekdays and months are bars in calendar order."""
        return self.kind != "names" and len(self.positions) >= SHORTEST_CURVE


def order_of(labels: Labels) -> Order | None:
    """The order of labels, or None if they are plain names.

    >>> import pandas as pd
    >>> order_of(Labels(pd.Index(["Tue", "Mon", "Sun"]))).positions.tolist()
    [1, 0, 2]
    >>> order_of(Labels(pd.Index(["10", "9", "8.5"]))).values.tolist()
    [8.5, 9.0, 10.0]
    >>> order_of(Labels(pd.Index(["ann", "bob"]))) is None
    True
    """
    kind = labels.index.dtype.kind
    if kind == "M":
        return _of_dates(labels.index)
    if kind in "iuf":
        return _sorted("numbers", np.asarray(labels.index, dtype=np.float64))
    return _of_words([str(one).strip() for one in labels.index]) if kind not in "b" else None


def _of_words(words: Sequence[str]) -> Order | None:
    import pandas as pd

    for names in (WEEKDAYS, MONTHS):
        places = [_place(word.lower(), names) for word in words]
        if len(words) > 1 and None not in places and len(set(places)) == len(words):
            return _sorted("names", np.asarray(places, dtype=np.float64))
    if all(map(_NUMBER.fullmatch, words)):
        return _sorted("numbers", np.asarray(words, dtype=np.float64))
    if all(map(_DATE.fullmatch, words)):
        try:
            return _of_dates(pd.DatetimeIndex(pd.to_datetime(list(words), format="ISO8601")))
        except ValueError:  # 2015-13
            return None
    return None


def _place(word: str, names: Sequence[str]) -> int | None:
    """The place of a weekday or month, written in full or as three letters."""
    return next((n for n, name in enumerate(names) if word in (name, name[:3])), None)


def _of_dates(index: pd.DatetimeIndex) -> Order:
    import pandas as pd

    start = index.min()
    return _sorted("dates", np.asarray((index - start) / pd.Timedelta(days=1), dtype=np.float64), start)


def _sorted(kind: str, values: Array, start: pd.Timestamp | None = None) -> Order:
    positions = np.argsort(values, kind="stable")
    return Order(kind, positions, values[positions], start)


# -- ticks --------------------------------------------------------------------------------------

# The step between two ticks in days, its name in pandas, and how a tick is written.
_STEPS = (
    *((hours / 24, f"{hours}h", "%H:%M") for hours in (1, 3, 6, 12)),
    *((days, f"{days}D", "%-d %b") for days in (1, 2, 7, 14)),
    *((30.4 * months, f"{months}MS", "%b") for months in (1, 2, 3, 6)),
    *((365.25 * years, f"{years}YS", "%Y") for years in (1, 2, 5, 10, 20, 50, 100)),
)


def ticks(order: Order, most: int) -> list[tuple[float, str]]:
    """The ticks of an axis of ordered values, and their text.

    >>> import pandas as pd
    >>> days = Labels(pd.date_range("2013-01-01", "2013-12-31"))
    >>> ticks(order_of(days), 4)
    [(0.0, 'Jan 2013'), (90.0, 'Apr'), (181.0, 'Jul'), (273.0, 'Oct')]
    """
    low, high = float(order.values[0]), float(order.values[-1])
    if order.kind != "dates" or order.start is None:
        few = order.values if len(order.values) <= most else nice(low, high, most)
        return [(float(one), f"{one:.10g}") for one in few]
    return _date_ticks(order.start, low, high, most)


def _date_ticks(start: pd.Timestamp, low: float, high: float, most: int) -> list[tuple[float, str]]:
    import pandas as pd

    day = pd.Timedelta(days=1)
    step, name, form = next((one for one in _STEPS if (high - low) / one[0] <= most), _STEPS[-1])
    try:
        begin = start.normalize()
        if step > 20:  # months and years, counted from a round year
            begin = begin.replace(day=1, month=1, year=max(1, begin.year - begin.year % max(1, round(step / 365.25))))
        moments = pd.date_range(begin, start + high * day, freq=name)
    except (ValueError, OverflowError):  # before 1677, or after 2262
        return []
    found = [(float((one - start) / day), one) for one in moments if one >= start]
    return [(at, _written(one, form, first=not n)) for n, (at, one) in enumerate(found)]


def _written(moment: pd.Timestamp, form: str, first: bool) -> str:
    """The text of a tick, with the year or the day at the first tick and where a new one begins."""
    if form == "%H:%M" and (first or moment.hour == 0):
        return f"{moment.day} {moment:%b}" if moment.hour == 0 else f"{moment.day} {moment:%b %H:%M}"
    if form == "%-d %b":
        return f"{moment.day} {moment:%b %Y}" if first else f"{moment.day} {moment:%b}"
    if form == "%b" and (first or moment.month == 1):
        return f"{moment:%b %Y}"
    return f"{moment:{form}}"


def nice(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two others, at most ``most``.

    >>> nice(0.0, 0.43, 5), nice(1990.0, 2013.0, 5)
    ([0.0, 0.1, 0.2, 0.3, 0.4], [1990.0, 1995.0, 2000.0, 2005.0, 2010.0])
    """
    if not high > low:
        return [low]
    rough = (high - low) / max(most, 1)
    power = 10.0 ** np.floor(np.log10(rough))
    for step in (1, 2, 5, 10, 20):
        first, last = np.ceil(low / (step * power) - 1e-9), np.floor(high / (step * power) + 1e-9)
        if last - first + 1 <= most:
            return [float(f"{n * step * power + 0.0:.12g}") for n in np.arange(first, last + 1)]
    return [low, high]
