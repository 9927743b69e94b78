"""Dates in SQL, read, converted and binned as in pandas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pltf.data.labels import PERIODS, dates_of, labels_of
from pltf.errors import ObservationError, py, py_only
from pltf.io.prepare.database import quoted

if TYPE_CHECKING:
    import pandas as pd

    from pltf.io.prepare.coding import Column

# Text that DuckDB and pandas read alike; pandas reads all other formats.
_PLAIN = r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?"
_DAYS = "['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday']"
_WORDS = 1 << 18  # strings that pandas reads at a time


class Clock(NamedTuple):
    """SQL for local times, and the join that it needs."""

    moment: str
    join: str
    zone: str | None


def clock(column: Column, zone: str | None = None) -> Clock:
    """Local times of a column in microseconds, in its own time zone or in ``zone``."""
    if column.kind.name == "text":
        return _of_words(column, zone)
    if column.kind.name != "dates":
        binned = f" to be binned by {column.key.bin}" if column.key.bin else ""
        raise ObservationError(f"{column.what} must hold dates{binned}, got {column.kind.description}")
    if column.kind.zone is not None:
        name = zone or zone_name(column.kind.zone, column.what)
        return Clock(on_the_wall(column.cell, name), "", name)
    types = column.database.rows(f"SELECT typeof({column.cell}) FROM {column.rows.table} r LIMIT 1")
    if types and types[0][0] == "TIMESTAMP_NS":  # a cast would round
        ns = f"epoch_ns({column.cell})"
        return Clock(f"make_timestamp(({ns} - (({ns} % 1000) + 1000) % 1000) // 1000)", "", None)
    return Clock(f"CAST({column.cell} AS TIMESTAMP)", "", None)


def on_the_wall(cell: str, zone: str) -> str:
    """SQL for the local time in a time zone."""
    import pandas as pd

    fixed = pd.DatetimeTZDtype(tz=zone).tz.utcoffset(None)
    if fixed is None:
        return f"timezone({quoted(zone)}, {cell})"
    return f"(timezone('UTC', {cell}) + to_seconds({int(fixed.total_seconds())}))"


def zone_name(zone: str, what: str) -> str:
    """The name of a time zone as used in labels."""
    import pandas as pd

    try:
        one = pd.DatetimeIndex([0]).tz_localize("UTC").tz_convert(zone)
    except (TypeError, ValueError, KeyError) as reason:
        raise ObservationError(f"{what} has dates in the time zone {zone}, which pandas does not know") from reason
    return str(labels_of(one, what, None)[0].zone)


def refuse_ambiguous(column: Column, moments: int, zone: str) -> None:
    """Raise an error if two times have the same local time, as at the end of daylight saving time."""
    if column.one(f"SELECT count(DISTINCT {column.cell}) FROM {column.rows.table} r")[0] != moments:
        advice = f"convert them to UTC{py_only:, with .dt.tz_convert('UTC')}, or bin them by day"
        raise ObservationError(f"{column.what} has two times with the same local time in {zone}: {advice}")


def bin_of(bin: str, moment: str) -> str:
    """SQL for the label of the bin of a time."""
    if bin == "weekday":
        return f"{_DAYS}[isodow({moment})]"
    if bin == "hourofday":
        return f"hour({moment})"
    assert bin in PERIODS
    return f"date_trunc({quoted(bin)}, {moment})"


# -- text ---------------------------------------------------------------------------------------


def _of_words(column: Column, zone: str | None) -> Clock:
    """Dates in ISO format; other formats go through a table that pandas fills."""
    word = column.cell
    plain = f"regexp_full_match({word}, {quoted(_PLAIN)}) AND TRY_CAST({word} AS TIMESTAMP) IS NOT NULL"
    if column.one(f"SELECT coalesce(bool_and({plain}), true) FROM {column.rows.table} r WHERE {word} IS NOT NULL")[0]:
        return Clock(f"CAST({word} AS TIMESTAMP)", "", None)
    table = f"moments{column.number}"
    column.database.run(f"CREATE TABLE words{column.number} AS SELECT DISTINCT {word} AS w FROM {column.rows.table} r")
    blocks, zones = _read(column, zone), set[str | None]()
    column.database.run(f"CREATE TABLE {table} (w VARCHAR, m TIMESTAMP)")
    for block, its in blocks:
        zones.add(its)
        if len(zones) > 1:
            given, other = (f"the time zone {one}" if one else "none" for one in sorted(zones, key=str)[:2])
            raise ObservationError(f"{column.what} must hold dates in one time zone, got {given} and {other}")
        with column.database.stream("coming", block.schema, iter([block])):
            column.database.run(f"INSERT INTO {table} SELECT w, m FROM coming")
    return Clock(
        f"m{column.number}.m", f"LEFT JOIN {table} m{column.number} ON m{column.number}.w = {word}", zones.pop()
    )


def _read(column: Column, zone: str | None) -> Iterator[tuple[Any, str | None]]:
    """Strings and their times, parsed by pandas."""
    import pandas as pd
    import pyarrow as pa

    query = f"SELECT w FROM words{column.number} WHERE w IS NOT NULL ORDER BY w"
    size = column.one(f"SELECT count(w) FROM words{column.number}")[0]
    for first in range(0, size, _WORDS):
        block = column.database.rows(f"{query} LIMIT {_WORDS} OFFSET {first}")
        words = pd.Index([word for (word,) in block], dtype=object)
        dates = dates_of(words, column.what, ObservationError)
        its = None if dates.tz is None else zone or zone_name(str(dates.tz), column.what)
        dates = dates if its is None else dates.tz_convert(its).tz_localize(None)
        moments = pa.array(dates.floor("us").as_unit("us").to_numpy())
        yield pa.record_batch({"w": pa.array(words, pa.string()), "m": moments}), its


def span(column: Column, moment: str, join: str) -> pd.DatetimeIndex:
    """The first and the last time."""
    import pandas as pd

    low, high = column.one(f"SELECT min({moment}), max({moment}) FROM {column.rows.table} r {join}")
    if low is None:
        raise ObservationError(f"{column.name} has no rows: {py:dims} have no labels")
    return pd.DatetimeIndex([pd.Timestamp(low), pd.Timestamp(high)])
