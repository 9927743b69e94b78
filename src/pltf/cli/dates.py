"""Dates in files: in any format, as seconds since 1970, and in a time zone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.data.labels import dates_of, readable_zone, split_bin
from pltf.data.numeric import brief
from pltf.errors import PltfError, py

if TYPE_CHECKING:
    import pandas as pd

    from pltf.io.files import SourceTable

EPOCHS = {"epoch": "s", "epoch-ms": "ms", "epoch-us": "us", "epoch-ns": "ns"}


def with_dates(
    table: SourceTable, rows: pd.DataFrame, keys: Mapping[str, str], options: Mapping[str, Any]
) -> pd.DataFrame:
    """Parse the dates in binned columns; ``keys`` maps columns, possibly with a bin, to their names."""
    form, zone = options.get("date_format"), options.get("timezone")
    binned = {column for key, column in keys.items() if key != column and split_bin(key, f"{table.path}: {py:dims}")}
    if (form or zone) and not binned:
        option = "--date-format" if form else "--timezone"
        raise PltfError(f"{option} requires an index of dates, such as --index user,when:day")
    if zone is not None and readable_zone(zone) is None:
        raise PltfError(f"--timezone must be a time zone such as Europe/Berlin or UTC, got {brief(zone)}")
    rows = rows.copy(deep=False)  # assign takes no column named self
    for column in binned:
        rows[column] = _dates_in(table, rows[column], column, form, zone)
    return rows


def _dates_in(table: SourceTable, column: pd.Series, name: str, form: str | None, zone: str | None) -> Any:
    """Parse the unique values of a column as dates; errors name the line."""
    import pandas as pd

    codes, once = pd.factorize(column)
    once = pd.Index(once.categories.take(once.codes) if hasattr(once, "categories") else once)
    what = f"{table.path}: column {name!r}"
    try:
        dates = _by_clock(_moments(once, form, zone, what), zone)
    except _WrongError as wrong:
        row = int(np.argmax(codes == wrong.at))
        raise PltfError(f"{table.path}: {table.place(row)} of column {name!r} {wrong}") from None
    places, different = pd.factorize(dates)
    at = np.where(codes >= 0, np.append(places, -1)[codes], -1)
    return pd.Categorical.from_codes(at, categories=pd.DatetimeIndex(different))


class _WrongError(Exception):
    """The first invalid value of a column."""

    def __init__(self, at: int, text: str) -> None:
        super().__init__(text)
        self.at = at


def _moments(once: pd.Index, form: str | None, zone: str | None, what: str) -> pd.DatetimeIndex:
    """Parse words or numbers as timestamps."""
    import pandas as pd

    if once.dtype.kind == "M" or not len(once):
        return pd.DatetimeIndex(once)
    if form in EPOCHS:
        return _of_epoch(once, EPOCHS[str(form)], str(form))
    if form is None and _are_counts(once):
        raise _WrongError(0, f"has {once[0]}, which is not a date: {_advice(str(once[0]))}")
    words = pd.Index([str(word) for word in once], dtype=object)
    if form is None:
        return _of_iso(words, zone, what)
    try:
        return pd.DatetimeIndex(pd.to_datetime(words, format=form, exact=True, utc=zone is not None and "%z" in form))
    except (ValueError, TypeError):
        pass
    for at, word in enumerate(words):
        try:
            pd.to_datetime(word, format=form, exact=True)
        except (ValueError, TypeError):
            raise _WrongError(at, f"has {brief(word)}, which does not match --date-format {form}") from None
    raise PltfError(f"{what} must hold dates in one time zone: convert them with --timezone")


def _are_counts(once: pd.Index) -> bool:
    """Whether all values are numbers; the text 20261109 is an ISO date."""
    return once.dtype.kind in "iuf" or all(str(word).isdecimal() and len(str(word)) > 8 for word in once)


def _advice(number: str) -> str:
    """The likely format of a number that is not a date."""
    digits = len(number.partition(".")[0].lstrip("-"))
    if digits == 4:
        return "--date-format %Y reads years"
    if digits == 8:
        return "--date-format %Y%m%d reads days such as 20261109"
    form = next(
        (name for name, most in (("epoch", 11), ("epoch-ms", 14), ("epoch-us", 17)) if digits <= most), "epoch-ns"
    )
    return f"--date-format {form} reads time since 1970"


def _of_iso(words: pd.Index, zone: str | None, what: str) -> pd.DatetimeIndex:
    """Parse ISO dates; if a time zone is given, their UTC offsets may differ."""
    import pandas as pd

    try:
        offsets = zone is not None and any(word[-1:] == "Z" or "+" in word or "-" in word[10:] for word in words)
        if offsets and all(word[:1].isdigit() for word in words):
            return pd.DatetimeIndex(pd.to_datetime(words, format="ISO8601", utc=True))
        return pd.DatetimeIndex(dates_of(words, what, PltfError))
    except (ValueError, TypeError) as reason:
        for at, word in enumerate(words):
            try:
                pd.DatetimeIndex(dates_of(pd.Index([word], dtype=object), what, PltfError))
            except PltfError:
                advice = "set the format with --date-format, for example %d.%m.%Y"
                raise _WrongError(at, f"has {brief(word)}, which is not a date such as 2026-11-09; {advice}") from None
        if isinstance(reason, PltfError):
            raise PltfError(f"{reason.marked}, or convert them with --timezone") from None
        raise PltfError(f"{what} must hold dates in one format") from None


def _of_epoch(once: pd.Index, unit: str, form: str) -> pd.DatetimeIndex:
    """Parse numbers, possibly as text, as time since 1970 in UTC."""
    import pandas as pd

    numbers = pd.to_numeric(once, errors="coerce")
    wrong = np.flatnonzero(~np.isfinite(np.asarray(numbers, dtype=np.float64)))
    if not wrong.size:
        try:
            return pd.DatetimeIndex(pd.to_datetime(numbers, unit=unit, utc=True))
        except (ValueError, OverflowError):  # out of the supported range
            wrong = np.array([int(np.argmax(np.abs(np.asarray(numbers, dtype=np.float64))))])
    at = int(wrong[0])
    raise _WrongError(at, f"has {brief(once[at])}, which does not match --date-format {form}")


def _by_clock(dates: pd.DatetimeIndex, zone: str | None) -> pd.DatetimeIndex:
    """Convert dates with a time zone to another one; dates without one are local times there."""
    if zone is None:
        return dates
    if dates.tz is not None:
        return dates.tz_convert(zone)
    first = np.ones(len(dates), dtype=bool)  # when an hour repeats, take the first
    there = dates.tz_localize(zone, ambiguous=first, nonexistent="NaT")
    never = np.flatnonzero(np.asarray(there.isna()))
    if never.size:
        at = int(never[0])
        reason = "clocks were set forward; for dates in UTC, append Z or omit --timezone"
        raise _WrongError(at, f"has {dates[at]}, which does not exist in {zone}: {reason}")
    return there
