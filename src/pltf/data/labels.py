"""Names of the positions along an index: from columns of a table to positions and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import timezone, tzinfo
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.numeric import EXACT, brief
from pltf.errors import DataWarning, ObservationError, PltfError, py, py_only, warn_caller
from pltf.hints import suggestion

if TYPE_CHECKING:
    import pandas as pd

PERIODS = {"minute": "min", "hour": "h", "day": "D", "week": "W-SUN", "month": "M", "quarter": "Q", "year": "Y"}
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
BINS = (*PERIODS, "weekday", "hourofday")  # the last two go round
_SEARCHED = 20_000  # labels among which a word that somebody has meant is looked for
_MOST_BINS = 10_000_000
_NAMED = {"string": str, "integer": np.int64, "floating": np.float64, "boolean": bool}  # what columns of objects hold
_KINDS = {"O": "words", "i": "numbers", "f": "numbers", "b": "True and False", "M": "dates"}
_DATES = ("datetime", "datetime64", "date")


@dataclass(frozen=True, eq=False, repr=False)
class Labels:
    """The labels of an index: strings, numbers, True and False, or dates; each stands once, none is missing.

    >>> import pandas as pd, pltf
    >>> events = pd.DataFrame({"user": ["bob", "ann", "bob"], "place": ["bar", "gym", "gym"]})
    >>> seen = pltf.observe(events, dims=["user", "place"])
    >>> seen.labels["user"]
    <Labels ann, bob>
    >>> seen.labels["user"].at([1, 0]).tolist()
    ['bob', 'ann']
    >>> seen.labels["user"].positions(["bob", "bob"], "who").tolist()
    [1, 1]
    """

    index: pd.Index
    bin: str | None = None  # how dates are put together, as "week"
    zone: str | None = None  # time zone of the clock that dates were read from

    def __len__(self) -> int:
        return len(self.index)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Labels) or self.zone != other.zone or len(self) != len(other):
            return False
        if self.index.dtype.kind == other.index.dtype.kind == "M":  # pandas 2: `equals` is False for another unit
            return bool((self.index == other.index).all())
        return bool(self.index.equals(other.index))

    __hash__ = object.__hash__

    def at(self, positions: Any) -> pd.Index:
        """The labels of positions."""
        return self.index.take(np.asarray(positions, dtype=np.intp))

    def positions(self, values: Any, what: str, error: type[PltfError] = PltfError) -> NDArray[np.intp]:
        """The positions of labels, or one sentence about the first that is not known."""
        column = self._as_here(clean(values, what, error), what, error)
        found = np.asarray(self.index.get_indexer(column), dtype=np.intp)
        if column.dtype == object and (found < 0).any():  # blanks around a label do not count
            unknown = found < 0
            found[unknown] = self.index.get_indexer([word.strip() for word in column[unknown]])
        if (found < 0).any():
            row = int(np.argmax(found < 0))
            known = f"one of its {len(self):,} labels, {in_short(self.index)}"
            near = suggestion(column[row], self.index[:_SEARCHED]) if column.dtype == object else ""
            raise error(f"{what}: {py:row {row}} has {shown(column[row])}, which is not {known}{near}")
        return found

    def sources(self, values: Any, what: str, error: type[PltfError] = PltfError) -> NDArray[np.intp]:
        """For each label here its place among values, in which all of them have to stand once.

        >>> import pandas as pd
        >>> Labels(pd.Index(["ann", "bob"])).sources(["bob", "ann"], "who").tolist()
        [1, 0]
        """
        at = self.positions(values, what, error)
        source = np.full(len(self), -1, dtype=np.intp)
        source[at] = np.arange(at.size)
        if at.size != len(self) or (source < 0).any():
            absent = [shown(self.index[place]) for place in np.flatnonzero(source < 0)[:1]]
            told = f"{absent[0]} is absent" if absent else f"got {at.size:,}"
            raise error(f"{what} must be all {len(self):,} labels, each of them once: {told}")
        return source

    def joined(self, others: Labels, what: str, error: type[PltfError] = PltfError) -> tuple[Labels, NDArray[np.intp]]:
        """These labels followed by those of ``others`` that are new, and the positions of ``others`` among all.

        >>> import pandas as pd
        >>> known, others = Labels(pd.Index(["ann", "bob"])), Labels(pd.Index(["cid", "ann"]))
        >>> all_of_them, at = known.joined(others, "who")
        >>> all_of_them, at.tolist()
        (<Labels ann, bob, cid>, [2, 0])
        """
        column = self._of_same_kind(others, what, error)
        if column.has_duplicates:
            raise error(f"{what}: several of them are one and the same {self.bin}: add them up first")
        at = np.asarray(self.index.get_indexer(column), dtype=np.intp)
        new = at < 0
        at[new] = len(self) + np.arange(int(new.sum()))
        return (replace(self, index=_appended(self.index, column[new])) if new.any() else self), at

    def _of_same_kind(self, others: Labels, what: str, error: type[PltfError]) -> pd.Index:
        """Other labels as they would stand here: with the same bins and of the same type."""
        dates = self.index.dtype.kind == "M" or self.bin is not None
        if dates and others.zone != self.zone:
            zones = (f"the time zone {zone}" if zone else "no time zone" for zone in (others.zone, self.zone))
            raise error(f"{what} must be of one time zone: {' and '.join(zones)} differ")
        column = self._as_here(others.index, what, error)
        kind, own = (_KINDS[one.dtype.kind] for one in (column, self.index))
        if kind != own:
            raise error(f"{what} must be {own}, as those that are known; got {kind}")
        if column.dtype.kind not in "if" or column.dtype == self.index.dtype:
            return column
        same = column.astype(self.index.dtype)
        if not bool((same == column).all()):
            raise error(f"{what} must be {self.index.dtype}, as those that are known; got {column[same != column][0]}")
        return same

    def _as_here(self, column: pd.Index, what: str, error: type[PltfError]) -> pd.Index:
        """Labels as they stand here: dates by the clock of these and as their bins, dates in words as dates."""
        if self.bin is None and self.index.dtype.kind != "M":
            if self.index.dtype.kind == "i" and column.dtype.kind == "f" and (np.abs(column) >= EXACT).any():
                raise error(f"{what} must hold whole numbers beyond 2**53 as such: as {column.dtype} they are rounded")
            return column
        if self.bin not in (None, *PERIODS) and bool(column.isin(self.index).all()):  # "Monday" is a bin already
            return column
        column = self._by_clock(_moments(column, what, error), what, error)
        return column if self.bin is None else binned(column, self.bin, what, error)

    def _by_clock(self, dates: pd.Index, what: str, error: type[PltfError]) -> pd.Index:
        """Dates as the clock of these labels shows them."""
        zone = _zone_of(dates)
        if zone is None:
            return dates
        if self.zone is None:
            advice = "drop it by .dt.tz_localize(None), after .dt.tz_convert(...) if the labels are of another clock"
            raise error(f"{what} has dates of the time zone {zone}, and the labels have no zone: {advice}")
        return _on_the_wall(dates.tz_convert(self.zone), self.bin, what, error)[0]

    def names(self, positions: Any = None) -> list[str]:
        """The labels as people read them, all or those of some positions.

        >>> import pandas as pd
        >>> Labels(pd.DatetimeIndex(["2026-11-09", "2026-11-16"])).names()
        ['2026-11-09', '2026-11-16']
        """
        some = self.index if positions is None else self.at(positions)
        return [shown(label) for label in some] if some.dtype.kind == "M" else list(map(str, some))

    def __repr__(self) -> str:
        return f"<Labels {in_short(self.index)}>"


def together(one: Labels, other: Labels, what: str) -> Labels:
    """The labels of both: sorted if both are, otherwise those of the second that are new after the first.

    Of dates in bins, all bins from the first to the last.

    >>> import pandas as pd
    >>> together(Labels(pd.Index(["ann", "cid"])), Labels(pd.Index(["bob", "cid"])), "who")
    <Labels ann, bob, cid>
    """
    if one == other:
        return one
    if one.bin != other.bin:
        bins = (f"by the {bin}" if bin else "not at all" for bin in (one.bin, other.bin))
        raise ObservationError(f"{what} must be binned alike: {' and '.join(bins)} differ")
    kinds = [_KINDS[labels.index.dtype.kind] for labels in (one, other)]
    if kinds[0] != kinds[1]:
        raise ObservationError(f"{what} must be of one kind, but they are {kinds[0]} and {kinds[1]}")
    joined, at = one.joined(other, what, ObservationError)
    if (at >= len(one)).all():
        raise ObservationError(
            f"{what} have nothing in common: {in_short(one.index)} and {in_short(other.index)}; "
            "tensors that share an index must share labels"
        )
    if one.bin in PERIODS:
        return replace(joined, index=_all_bins(joined.index, str(one.bin), what))
    in_order = one.index.is_monotonic_increasing and other.index.is_monotonic_increasing
    return replace(joined, index=joined.index.sort_values()) if in_order else joined


def _appended(labels: pd.Index, new: pd.Index) -> pd.Index:
    """Labels and others behind them; words stay objects, of which pandas 3 would make strings of its own."""
    import pandas as pd

    if labels.dtype != object:
        return labels.append(new)
    return pd.Index(np.concatenate([np.asarray(one, dtype=object) for one in (labels, new)]), dtype=object)


def shown(label: Any) -> str:
    """A label as people read it; a date without the hours, if it has none.

    >>> import pandas as pd
    >>> shown("bob"), shown(3), shown(pd.Timestamp("2026-11-09")), shown(pd.Timestamp("2026-11-09 18:00"))
    ("'bob'", '3', '2026-11-09', '2026-11-09 18:00:00')
    """
    if isinstance(label, np.generic):
        label = label.item()
    return str(label).removesuffix(" 00:00:00") if hasattr(label, "isoformat") else brief(label)


def named_cell(cell: Iterable[int], dims: Sequence[str] | None, labels: Mapping[str, Labels]) -> str:
    """A cell by its labels, or its positions where an index has no labels.

    >>> import pandas as pd
    >>> named_cell((1, 4), ("user", "week"), {"user": Labels(pd.Index(["ann", "bob"]))}), named_cell((1, 4), None, {})
    ("('bob', 4)", '(1, 4)')
    """
    if dims is None:
        return str(tuple(map(int, cell)))
    named = zip(dims, cell, strict=True)
    return f"({', '.join(shown(labels[i].index[n]) if i in labels else str(n) for i, n in named)})"


def in_short(labels: Sequence[Any] | pd.Index) -> str:
    """The first and the last of some labels.

    >>> in_short(list("abcdefg"))
    'a, b, ..., g'
    """
    few = list(labels) if len(labels) <= 4 else [*labels[:2], ..., labels[-1]]
    return ", ".join("..." if label is ... else _words(label) for label in few)


def _words(label: Any) -> str:
    """A label on one line, without quotes."""
    text = " ".join(str(label).split()) or repr(label)
    return text.removesuffix(" 00:00:00") if len(text) <= 40 else f"{text[:36]} ..."


def counted(size: int) -> Labels:
    """Positions counted from 1, as labels.

    >>> counted(3)
    <Labels 1, 2, 3>
    """
    import pandas as pd

    return Labels(pd.RangeIndex(1, size + 1))


def known_labels(values: Any, what: str, error: type[PltfError] = ObservationError) -> Labels:
    """Labels in the order in which somebody gives them."""
    if isinstance(values, Labels):
        return values
    if isinstance(values, (str, Set)) or not isinstance(values, Iterable):  # a set has no order
        raise error(f"{what} must be a list of labels, got {brief(values)}")
    index, zone = _on_the_wall(clean(values, what, error), None, what, error)
    if not len(index):
        raise error(f"{what} must be a list of labels, got an empty one")
    if index.has_duplicates:
        raise error(f"{what}: the label {shown(index[index.duplicated()][0])} stands twice")
    return Labels(index.copy(deep=True), zone=zone)  # pandas 2 would share the memory of an array


def labels_of(column: Any, what: str, bin: str | None, *, keep_blanks: bool = False) -> tuple[Labels, NDArray[np.intp]]:
    """The labels that a column has, in their order, and the position of each row.

    Of categories all are labels, in the order of the categories; of binned dates, all bins from the first to the last.
    Words lose leading and trailing blanks, unless ``keep_blanks`` is set.
    """
    import pandas as pd

    if bin is None and isinstance(getattr(column, "dtype", None), pd.CategoricalDtype):
        _refuse_missing(np.asarray(column.isna()), what, ObservationError)
        codes = np.asarray(getattr(column, "cat", column).codes, dtype=np.intp)
        categories = known_labels(column.dtype.categories, f"{what}: categories")
        return (categories, codes) if keep_blanks else _without_blanks(categories, codes, what, ordered=True)
    if bin is not None and isinstance(getattr(column, "dtype", None), pd.CategoricalDtype):
        _refuse_missing(np.asarray(column.isna()), what, ObservationError)
        rows, used = pd.factorize(np.asarray(getattr(column, "cat", column).codes))  # in the order of the rows
        labels, positions = labels_of(column.dtype.categories.take(used), what, bin)
        return labels, positions[rows]
    index = clean(column, what, ObservationError)
    index = index if bin is None else _moments(index, what, ObservationError)
    index, zone = _on_the_wall(index, bin, what, ObservationError)
    if bin is not None:
        index = binned(index, bin, what, ObservationError)
        labels = Labels(_all_bins(index, bin, what), bin, zone)
        return labels, np.asarray(labels.index.get_indexer(index), dtype=np.intp)
    positions, unique = pd.factorize(index, sort=True)
    found, at = Labels(pd.Index(unique), zone=zone), positions.astype(np.intp, copy=False)
    return (found, at) if keep_blanks else _without_blanks(found, at, what, ordered=False)


def _without_blanks(
    labels: Labels, positions: NDArray[np.intp], what: str, *, ordered: bool
) -> tuple[Labels, NDArray[np.intp]]:
    """Words without leading and trailing blanks, and their positions; says so where that merges some."""
    import pandas as pd

    words = list(labels.index) if labels.index.dtype == object else []
    plain = list(map(str.strip, words))
    if plain == words:
        return labels, positions
    places, unique = pd.factorize(np.array(plain, dtype=object), sort=not ordered)
    warn_of_merged(words, plain, what)
    return replace(labels, index=pd.Index(unique, dtype=object)), places.astype(np.intp, copy=False)[positions]


def warn_of_merged(words: Sequence[str], plain: Sequence[str], what: str) -> None:
    """Say that words which differ in blanks only became one label; ``plain`` are the words without blanks."""
    first: dict[str, str] = {}
    pairs = [
        (first[short], word) for word, short in zip(words, plain, strict=True) if first.setdefault(short, word) != word
    ]
    if pairs:
        one, other = pairs[0]
        count = "2 labels that differ" if len(pairs) == 1 else f"{len(pairs) + 1:,} labels that differ"
        merged = f"{what}: {count} only in leading or trailing blanks were merged"
        advice = f"{py:keep_blanks=True} keeps them apart"
        warn_caller(f"{merged}, such as {brief(one)} and {brief(other)}: {advice}", DataWarning)


def clean(values: Any, what: str, error: type[PltfError]) -> pd.Index:
    """Labels of one type, none of them missing; dates keep their time zone."""
    import pandas as pd

    if isinstance(values, pd.Series):
        values = values.array
    if getattr(values, "ndim", 1) != 1:
        raise error(f"{what} must be a list of labels, got an array of shape {values.shape}")
    if isinstance(values, pd.MultiIndex):
        raise error(f"{what} must be a list of labels, got a MultiIndex of {values.nlevels} levels")
    if getattr(getattr(values, "dtype", None), "name", None) == "float16":
        values = np.asarray(values, dtype=np.float64)  # pandas has no index of these
    try:
        index = pd.Index(values, tupleize_cols=False) if not isinstance(values, pd.Index) else values
    except (TypeError, ValueError, OverflowError) as reason:
        raise error(f"{what} must be labels of one type: {one_line(reason)}") from None
    if isinstance(index.dtype, pd.CategoricalDtype):
        _refuse_missing(np.asarray(index.isna()), what, error)
        index = pd.Index(index.categories.take(index.codes)) if len(index) else pd.Index(index.categories[:0])
    _refuse_missing(np.asarray(index.isna()), what, error)
    return _of_one_type(index.rename(None), what, error)


def _of_one_type(index: pd.Index, what: str, error: type[PltfError]) -> pd.Index:
    import pandas as pd

    if isinstance(index, pd.PeriodIndex):
        index = index.to_timestamp()
    if isinstance(index, pd.DatetimeIndex):
        return index
    if pd.api.types.is_string_dtype(index.dtype) and not pd.api.types.is_object_dtype(index.dtype):
        return pd.Index(index.astype(object))
    kind = pd.api.types.infer_dtype(index, skipna=False) if len(index) else "empty"
    if kind == "unknown-array":  # pyarrow's own categories
        index = pd.Index(np.asarray(index, dtype=object), dtype=object)
        kind = pd.api.types.infer_dtype(index, skipna=False)
    if kind in _DATES:
        try:
            return pd.DatetimeIndex(pd.to_datetime(index))
        except (TypeError, ValueError, OverflowError) as reason:
            _refuse_several_zones(index, what, error)
            raise error(f"{what} must hold dates of one time zone that pandas can read: {one_line(reason)}") from None
    if kind in _NAMED:
        if kind == "integer" and not -(2**63) <= index.min() <= index.max() < 2**63:
            raise error(f"{what}: whole numbers must be below 2**63, got {index.max()}")
        plain: NDArray[Any] = np.asarray(index, dtype=object if kind == "string" else _NAMED[kind])
        if kind == "floating" and not np.isfinite(plain).all():
            raise error(f"{what}: labels must be finite, got {plain[~np.isfinite(plain)][0]}")
        return pd.Index(plain, dtype=plain.dtype)
    if kind == "empty":
        return pd.Index([], dtype=object)
    if kind.startswith("mixed"):
        types = list(dict.fromkeys(type(value).__name__ for value in index))
        raise error(f"{what} must hold labels of one type, got {' and '.join(types[:3])}")
    raise error(f"{what} must hold strings, numbers or dates, got {kind}")


def _refuse_missing(absent: NDArray[np.bool_], what: str, error: type[PltfError]) -> None:
    if absent.any():
        others = int(absent.sum()) - 1
        more = f", nor have {others:,} more" if others else ""
        raise error(f"{what}: {py:row {int(np.argmax(absent))}} has no label{more}: drop or name them first")


# -- dates --------------------------------------------------------------------------------------


def split_bin(column: Any, what: str) -> tuple[Any, str | None]:
    """A column and how its dates are to be binned: "when:week" is ("when", "week")."""
    if not isinstance(column, str) or ":" not in column:
        return column, None
    name, _, bin = column.rpartition(":")
    if bin not in BINS:
        raise ObservationError(
            f"{what}: {column!r} must end in one of {', '.join(BINS)}, got {bin!r}{suggestion(bin, BINS)}"
        )
    return name, bin


def binned(index: pd.Index, bin: str, what: str, error: type[PltfError]) -> pd.Index:
    """Dates put together by the week, for example: each becomes the first moment of its bin."""
    import pandas as pd

    if len(index) == 0:
        return pd.DatetimeIndex([])
    if not isinstance(index, pd.DatetimeIndex):
        raise error(f"{what} must hold dates to be binned by {bin}, got {index.dtype}")
    if bin == "weekday":
        return pd.Index(np.asarray(_WEEKDAYS, dtype=object)[index.day_of_week], dtype=object)
    if bin == "hourofday":
        return pd.Index(np.asarray(index.hour, dtype=np.int64))
    try:
        return index.to_period(PERIODS[bin]).to_timestamp()
    except pd.errors.OutOfBoundsDatetime:
        range_ = f"from {pd.Timestamp.min.year + 1} to {pd.Timestamp.max.year - 1}"
        raise error(
            f"{what}: pandas {pd.__version__} can bin dates {range_}, got {index.min()} to {index.max()}"
        ) from None


def _moments(column: pd.Index, what: str, error: type[PltfError]) -> pd.Index:
    """A column with its words as dates; by itself pandas would take 09/11 for a day in September."""
    return dates_of(column, what, error) if column.dtype == object and len(column) else column


def dates_of(words: pd.Index, what: str, error: type[PltfError]) -> pd.Index:
    """Dates from the words of a file, which are in ISO form.

    >>> import pandas as pd
    >>> dates_of(pd.Index(["2026-11-09", "2026-11-09T18:30"], dtype=object), "when", PltfError).hour.tolist()
    [0, 18]
    """
    import pandas as pd

    expected = f"{what} must hold dates such as 2026-11-09 or 2026-11-09T18:30"
    vague = [word for word in words if not str(word)[:1].isdigit()]  # to pandas "now" and "" are dates too
    if vague:
        raise error(f"{expected}, got {brief(vague[0])}")
    try:
        return pd.DatetimeIndex(pd.to_datetime(words, format="ISO8601"))
    except (ValueError, TypeError) as reason:
        _refuse_several_zones(words, what, error)
        raise error(f"{expected}: {one_line(reason).split('. ')[0].split(', at position')[0]}") from None


def _refuse_several_zones(dates: pd.Index, what: str, error: type[PltfError]) -> None:
    """Say which time zones there are, if that there are several is all that is wrong with dates or words."""
    import pandas as pd

    try:
        pd.to_datetime(dates, format="ISO8601", utc=True)
    except (TypeError, ValueError, OverflowError):
        return
    zones = dict.fromkeys(str(pd.Timestamp(one).tzinfo) for one in dates)
    if "None" in zones:
        raise error(
            f"{what} must hold dates with a time zone or dates without one, and it has both: give all of them one"
        )
    if len(zones) < 2:
        return
    one, other = list(zones)[:2]
    by_pandas = 'convert them by pd.to_datetime(..., utc=True).dt.tz_convert("Europe/Berlin"), or '
    advice = f"{py_only:{by_pandas}}write all with one offset in the file"
    raise error(f"{what} must hold dates of one time zone, got {one} and {other}: {advice}")


def _zone_of(dates: pd.Index) -> tzinfo | None:
    """The time zone of dates that have one."""
    zone: tzinfo | None = getattr(dates.dtype, "tz", None)
    return zone


def _on_the_wall(index: pd.Index, bin: str | None, what: str, error: type[PltfError]) -> tuple[pd.Index, str | None]:
    """Dates as the clock on the wall shows them, and the time zone of the clock; other labels as they are."""
    zone = _zone_of(index)
    if zone is None:
        return index, None
    name = _name_of(zone, what, error)
    if bin is None:
        clock = index.drop_duplicates().tz_localize(None)
        if clock.has_duplicates:  # at the end of summer time
            twice = f"two moments that are both {clock[clock.duplicated()][0]} by the clock of {name}"
            advice = f"make labels of them in UTC{py_only:, by .dt.tz_convert('UTC')}, or binned by the day"
            raise error(f"{what} has {twice}: {advice}")
    return index.tz_localize(None), name


def _name_of(zone: tzinfo, what: str, error: type[PltfError]) -> str:
    """The name of a time zone by which pandas knows it too: Europe/Berlin, UTC, UTC+01:00."""
    import pandas as pd

    fixed = zone.utcoffset(None)
    name = str(zone) if fixed is None else str(timezone(fixed))  # an offset may be called CET, which is a zone as well
    try:
        if pd.DatetimeTZDtype(tz=name).tz.utcoffset(None) == fixed:
            return name
    except (TypeError, ValueError, KeyError):
        pass
    advice = f"convert them{py_only:, as by .dt.tz_convert('Europe/Berlin')}"
    raise error(f"{what} has dates of the time zone {name}, which pandas does not know by name: {advice}")


def readable_zone(name: Any) -> str | None:
    """The name of a time zone from a file; None if there is none, or none that is called so here.

    After "dateutil/" pandas takes the name of any file, and opens it.
    """
    import pandas as pd

    if name is None or str(name).startswith("dateutil/"):
        return None
    try:
        pd.DatetimeTZDtype(tz=str(name))
    except (TypeError, ValueError, KeyError, OSError):
        return None
    return str(name)


def with_bin(index: pd.Index, bin: Any, zone: Any) -> Labels:
    """Labels from a file with the bin and the time zone that it tells, where such labels can have them."""
    dates = index.dtype.kind == "M"
    known = bin if isinstance(bin, str) and bin in (BINS if dates else set(BINS) - set(PERIODS)) else None
    return Labels(index, known, readable_zone(zone) if dates or known else None)


def one_line(reason: Exception) -> str:
    """What an exception of another library says, on one line."""
    return " ".join(str(reason).split())


def _all_bins(index: pd.Index, bin: str, what: str) -> pd.Index:
    """The bins from the first to the last: a week in which nothing happened is a week too."""
    import pandas as pd

    if bin == "weekday":
        return pd.Index(_WEEKDAYS, dtype=object)
    if bin == "hourofday":
        return pd.Index(np.arange(24))
    if not len(index):
        return index
    first, last = (moment.to_period(PERIODS[bin]) for moment in (index.min(), index.max()))
    if last.ordinal - first.ordinal >= _MOST_BINS:
        raise ObservationError(f"{what}: from {index.min()} to {index.max()} there are too many bins of a {bin}")
    return pd.period_range(first, last).to_timestamp()
