"""Labels of an index: conversion between table columns and positions."""

from __future__ import annotations

from calendar import month_name
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
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
BINS = (*PERIODS, "weekday", "hourofday")  # the last two are cyclic
# What people call the bin of a date; strftime would refuse years after 9999.
_CALLED: dict[str, Callable[[pd.Timestamp], str]] = {
    "minute": lambda one: str(one).rpartition(":")[0],
    "hour": lambda one: str(one).rpartition(":")[0],
    "month": lambda one: f"{month_name[one.month]} {one.year}",
    "quarter": lambda one: f"Q{one.quarter} {one.year}",
    "year": lambda one: str(one.year),
}
_CYCLES = {"weekday": "a day from Monday to Sunday", "hourofday": "an hour from 0 to 23"}
_SEARCHED = 20_000  # most labels searched for a "did you mean" suggestion
_DROP = f"drop or label such rows first{py_only:, for example with .dropna()}"
_MOST_BINS = 10_000_000
_LEAST_BINS = 3  # fewer dates may lie on the first of a month by chance
_NAMED = {"string": str, "integer": np.int64, "floating": np.float64, "boolean": bool}  # types in object columns
_KINDS = {"O": "words", "i": "numbers", "f": "numbers", "b": "True and False", "M": "dates"}
_DATES = ("datetime", "datetime64", "date")


@dataclass(frozen=True, eq=False, repr=False)
class Labels:
    """The labels of an index: unique strings, numbers, booleans or dates, without missing values.

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
    bin: str | None = None  # how dates are binned, such as "week"
    zone: str | None = None  # time zone in which dates are local times

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
        """The positions of labels; an error names the first unknown one."""
        column = self._as_here(clean(values, what, error), what, error)
        found = np.asarray(self.index.get_indexer(column), dtype=np.intp)
        if column.dtype == object and (found < 0).any() and not self.keeps_blanks:
            unknown = found < 0
            found[unknown] = self.index.get_indexer([word.strip() for word in column[unknown]])
        if (found < 0).any():
            row = int(np.argmax(found < 0))
            known = f"one of its {len(self):,} labels, {in_short(self.index)}"
            near = suggestion(column[row], self.index[:_SEARCHED]) if column.dtype == object else ""
            raise error(f"{what}: {py:row {row}} has {shown(column[row])}, which is not {known}{near}")
        return found

    @property
    def keeps_blanks(self) -> bool:
        """Whether blanks matter: some label has leading or trailing ones."""
        return self.index.dtype == object and any(word != word.strip() for word in self.index)

    def sources(self, values: Any, what: str, error: type[PltfError] = PltfError) -> NDArray[np.intp]:
        """The position of each label in ``values``, which must contain every label exactly once.

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
            raise error(f"{what} must contain each of the {len(self):,} labels exactly once: {told}")
        return source

    def joined(self, others: Labels, what: str, error: type[PltfError] = PltfError) -> tuple[Labels, NDArray[np.intp]]:
        """Append the new labels in ``others``; return all labels, and the positions of ``others`` among them.

        >>> import pandas as pd
        >>> known, others = Labels(pd.Index(["ann", "bob"])), Labels(pd.Index(["cid", "ann"]))
        >>> all_of_them, at = known.joined(others, "who")
        >>> all_of_them, at.tolist()
        (<Labels ann, bob, cid>, [2, 0])
        """
        column = self._of_same_kind(others, what, error)
        if column.has_duplicates:
            raise error(f"{what}: several labels are in the same {self.bin}: sum them first")
        at = np.asarray(self.index.get_indexer(column), dtype=np.intp)
        new = at < 0
        at[new] = len(self) + np.arange(int(new.sum()))
        return (replace(self, index=_appended(self.index, column[new])) if new.any() else self), at

    def _of_same_kind(self, others: Labels, what: str, error: type[PltfError]) -> pd.Index:
        """Convert other labels to the bins and the type of these."""
        dates = self.index.dtype.kind == "M" or self.bin is not None
        if dates and others.zone != self.zone:
            zones = (f"the time zone {zone}" if zone else "no time zone" for zone in (others.zone, self.zone))
            raise error(f"{what} must have the same time zone, got {' and '.join(zones)}")
        column = self._as_here(others.index, what, error)
        kind, own = (_KINDS[one.dtype.kind] for one in (column, self.index))
        if kind != own:
            raise error(f"{what} must be {own} like the existing labels, got {kind}")
        if column.dtype.kind not in "if" or column.dtype == self.index.dtype:
            return column
        same = column.astype(self.index.dtype)
        if not bool((same == column).all()):
            raise error(f"{what} must be {self.index.dtype} like the existing labels, got {column[same != column][0]}")
        return same

    def _as_here(self, column: pd.Index, what: str, error: type[PltfError]) -> pd.Index:
        """Convert labels to match these: parse dates in text, convert them to the same time zone, and bin them."""
        if self.bin is None and self.index.dtype.kind != "M":
            if self.index.dtype.kind == "i" and column.dtype.kind == "f" and (np.abs(column) >= EXACT).any():
                raise error(f"{what} must hold whole numbers above 2**53 as integers: {column.dtype} rounds them")
            return column
        if self.bin in _CYCLES:
            unknown = np.asarray(~column.isin(self.index))
            if not unknown.any():  # "Monday" is already a bin
                return column
            strange = unknown & ~_could_be_dates(column)
            if strange.any():
                row = int(np.argmax(strange))
                raise error(f"{what}: {py:row {row}} has {shown(column[row])}, which is not {_CYCLES[self.bin]}")
        column = self._by_clock(_moments(self._from_shown(column), what, error), what, error)
        return column if self.bin is None else binned(column, self.bin, what, error)

    def _from_shown(self, column: pd.Index) -> pd.Index:
        """Years as numbers, and words such as "December 2015", as words in ISO format."""
        import pandas as pd

        if column.dtype.kind == "i" and self._shown_bin == "year":
            return pd.Index(list(map(str, column)), dtype=object)
        if column.dtype != object or self._shown_bin not in ("month", "quarter"):
            return column
        dates = dict(zip(self.called(), map(str, self.index), strict=True))
        return pd.Index([dates.get(word, word) for word in column], dtype=object)

    @property
    def _shown_bin(self) -> str | None:
        """The bin by which people read these labels, also if the dates were binned before."""
        return None if self.index.dtype.kind != "M" else self.bin or _bin_of(self.index)

    def _by_clock(self, dates: pd.Index, what: str, error: type[PltfError]) -> pd.Index:
        """Convert dates to local times in the time zone of these labels."""
        zone = getattr(dates.dtype, "tz", None)
        if zone is None:
            return dates
        if self.zone is None:
            advice = "remove it with .dt.tz_localize(None), after .dt.tz_convert(...) if the labels use another one"
            raise error(f"{what} has dates with the time zone {zone}, but the labels have no time zone: {advice}")
        return _on_the_wall(dates.tz_convert(self.zone), self.bin, what, error)[0]

    def names(self, positions: Any = None) -> list[str]:
        """The labels as text, all or those at some positions.

        >>> import pandas as pd
        >>> Labels(pd.DatetimeIndex(["2026-11-09", "2026-11-16"])).names()
        ['2026-11-09', '2026-11-16']
        """
        some = self.index if positions is None else self.at(positions)
        return [shown(label) for label in some] if some.dtype.kind == "M" else list(map(str, some))

    def called(self, positions: Any = None) -> list[str]:
        """The labels as people read them: a month as "December 2015".

        >>> import pandas as pd
        >>> Labels(pd.DatetimeIndex(["2015-12-01"]), bin="month").called()
        ['December 2015']
        >>> Labels(pd.DatetimeIndex(["2015-10-01"]), bin="quarter").called([0])
        ['Q4 2015']
        """
        some, bin = self.index if positions is None else self.at(positions), self._shown_bin
        return list(map(_CALLED[bin], some)) if bin in _CALLED else self.names(positions)

    def written(self, positions: Any) -> list[str] | pd.Index:
        """The labels for files of text: months and years without a day, all others as they are.

        >>> import pandas as pd
        >>> Labels(pd.DatetimeIndex(["2015-12-01"]), bin="month").written([0])
        ['2015-12']
        """
        ends = {"month": 1, "year": 2}.get(self._shown_bin or "")
        return self.at(positions) if ends is None else [name.rsplit("-", ends)[0] for name in self.names(positions)]

    @property
    def summary(self) -> str:
        """The first and last labels as people read them."""
        return in_short(self.called(None if len(self) <= 4 else [0, 1, 1, 1, -1]))  # leaves out those in the middle

    def __repr__(self) -> str:
        return f"<Labels {self.summary}>"


def together(one: Labels, other: Labels, what: str) -> Labels:
    """The union of labels: sorted if both are, otherwise the first ones followed by the new ones of the second.

    For binned dates, the union contains all bins from the first to the last.

    >>> import pandas as pd
    >>> together(Labels(pd.Index(["ann", "cid"])), Labels(pd.Index(["bob", "cid"])), "who")
    <Labels ann, bob, cid>
    """
    if one == other:
        return one
    if one.bin != other.bin:
        bins = (f"by {bin}" if bin else "not binned" for bin in (one.bin, other.bin))
        raise ObservationError(f"{what} must be binned the same way, got {' and '.join(bins)}")
    kinds = [_KINDS[labels.index.dtype.kind] for labels in (one, other)]
    if kinds[0] != kinds[1]:
        raise ObservationError(f"{what} must be of one type, got {kinds[0]} and {kinds[1]}")
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
    """Concatenate labels; words stay objects, because pandas 3 would convert them to its own string type."""
    import pandas as pd

    if labels.dtype != object:
        return labels.append(new)
    return pd.Index(np.concatenate([np.asarray(one, dtype=object) for one in (labels, new)]), dtype=object)


def shown(label: Any) -> str:
    """Format a label for messages; a date at midnight is shown without its time.

    >>> import pandas as pd
    >>> shown("bob"), shown(3), shown(pd.Timestamp("2026-11-09")), shown(pd.Timestamp("2026-11-09 18:00"))
    ("'bob'", '3', '2026-11-09', '2026-11-09 18:00:00')
    """
    if isinstance(label, np.generic):
        label = label.item()
    return str(label).removesuffix(" 00:00:00") if hasattr(label, "isoformat") else brief(label)


def named_cell(cell: Iterable[int], dims: Sequence[str] | None, labels: Mapping[str, Labels]) -> str:
    """Format a cell by its labels, or by positions where an index has no labels.

    >>> import pandas as pd
    >>> named_cell((1, 4), ("user", "week"), {"user": Labels(pd.Index(["ann", "bob"]))}), named_cell((1, 4), None, {})
    ("('bob', 4)", '(1, 4)')
    """
    if dims is None:
        return str(tuple(map(int, cell)))
    named = zip(dims, cell, strict=True)
    return f"({', '.join(shown(labels[i].index[n]) if i in labels else str(n) for i, n in named)})"


def in_short(labels: Sequence[Any] | pd.Index) -> str:
    """Format the first and last labels.

    >>> in_short(list("abcdefg"))
    'a, b, ..., g'
    """
    few = list(labels) if len(labels) <= 4 else [*labels[:2], ..., labels[-1]]
    return ", ".join("..." if label is ... else _words(label) for label in few)


def _words(label: Any) -> str:
    """Format a label on one line, without quotes."""
    text = " ".join(str(label).split()) or repr(label)
    return text.removesuffix(" 00:00:00") if len(text) <= 40 else f"{text[:36]} ..."


def counted(size: int) -> Labels:
    """Positions counted from 1, as labels.

    >>> counted(3)
    <Labels 1, 2, 3>
    """
    import pandas as pd

    return Labels(pd.RangeIndex(1, size + 1))


def given_labels(labels: Any, what: str) -> dict[str, Labels]:
    """The labels of indices given by the caller; ``what`` begins messages."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        raise ObservationError(f"{what}{py:labels} must map an index to its labels, got {brief(labels)}")
    return {index: known_labels(given, f"{what}labels of {index!r}") for index, given in labels.items()}


def refuse_unknown(labels: Iterable[str], dims: Sequence[str], name: str) -> None:
    """Raise an error for labels of an index that the data do not have."""
    for index in labels:
        if index not in dims:
            raise ObservationError(f"{name}: {py:labels} names {index!r}, but the indices are {', '.join(dims)}")


def known_labels(values: Any, what: str) -> Labels:
    """Labels given by the caller, in their order."""
    if isinstance(values, Labels):
        return values
    if isinstance(values, (str, Set)) or not isinstance(values, Iterable):  # a set has no order
        raise ObservationError(f"{what} must be a list of labels, got {brief(values)}")
    index, zone = _on_the_wall(clean(values, what, ObservationError), None, what, ObservationError)
    if not len(index):
        raise ObservationError(f"{what} must be a list of labels, got an empty one")
    if index.has_duplicates:
        raise ObservationError(f"{what}: duplicate label {shown(index[index.duplicated()][0])}")
    return Labels(index.copy(deep=True), zone=zone)  # pandas 2 would share memory with an array


def labels_of(column: Any, what: str, bin: str | None, *, keep_blanks: bool = False) -> tuple[Labels, NDArray[np.intp]]:
    """The sorted labels of a column, and the position of each row.

    For categorical columns, the labels are all categories in their order; for binned dates, all bins from the first to
    the last. Leading and trailing blanks are stripped from words unless ``keep_blanks`` is set.
    """
    import pandas as pd

    if isinstance(getattr(column, "dtype", None), pd.CategoricalDtype):
        _refuse_missing(np.asarray(column.isna()), what, ObservationError)
        codes = np.asarray(getattr(column, "cat", column).codes, dtype=np.intp)
        if bin is None:
            categories = known_labels(column.dtype.categories, f"{what}: categories")
            return (categories, codes) if keep_blanks else _without_blanks(categories, codes, what, ordered=True)
        rows, used = pd.factorize(codes)  # in the order of the rows
        labels, positions = labels_of(column.dtype.categories.take(used), what, bin)
        return labels, positions[rows]
    index = clean(column, what, ObservationError)
    index = index if bin is None else _moments(index, what, ObservationError)
    index, zone = _on_the_wall(index, bin, what, ObservationError)
    if bin is not None:
        index = binned(index, bin, what, ObservationError)
        labels = Labels(_all_bins(index, bin, what), bin, zone)
        return labels, np.asarray(labels.index.get_indexer(index), dtype=np.intp)
    positions, unique = _factorized(index, sort=True)
    found = Labels(pd.Index(unique), zone=zone)
    return (found, positions) if keep_blanks else _without_blanks(found, positions, what, ordered=False)


def _factorized(index: pd.Index, *, sort: bool) -> tuple[NDArray[np.intp], Any]:
    """``pd.factorize``, which before pandas 3 merges words that differ only after a NUL character."""
    import pandas as pd

    if index.dtype == object and int(pd.__version__.split(".")[0]) < 3 and any("\0" in str(one) for one in index):
        unique = sorted(set(index)) if sort else list(dict.fromkeys(index))
        places = {word: place for place, word in enumerate(unique)}
        return np.array([places[word] for word in index], dtype=np.intp), np.array(unique, dtype=object)
    positions, unique = pd.factorize(index, sort=sort)
    return np.asarray(positions, dtype=np.intp), unique


def _without_blanks(
    labels: Labels, positions: NDArray[np.intp], what: str, *, ordered: bool
) -> tuple[Labels, NDArray[np.intp]]:
    """Strip leading and trailing blanks from words; warns if this merges labels."""
    import pandas as pd

    words = list(labels.index) if labels.index.dtype == object else []
    plain = list(map(str.strip, words))
    if plain == words:
        return labels, positions
    places, unique = _factorized(pd.Index(plain, dtype=object), sort=not ordered)
    warn_of_merged(words, plain, what)
    return replace(labels, index=pd.Index(unique, dtype=object)), places[positions]


def warn_of_merged(words: Sequence[str], plain: Sequence[str], what: str) -> None:
    """Warn that words that differ only in blanks were merged; ``plain`` are the stripped words."""
    first: dict[str, str] = {}
    pairs = [
        (first[short], word) for word, short in zip(words, plain, strict=True) if first.setdefault(short, word) != word
    ]
    if pairs:
        one, other = pairs[0]
        count = "2 labels that differ" if len(pairs) == 1 else f"{len(pairs) + 1:,} labels that differ"
        merged = f"{what}: {count} only in leading or trailing blanks were merged"
        advice = f"{py:keep_blanks=True} keeps them distinct"
        warn_caller(f"{merged}, such as {brief(one)} and {brief(other)}: {advice}", DataWarning)


def clean(values: Any, what: str, error: type[PltfError]) -> pd.Index:
    """Check that labels have one type and none is missing; dates keep their time zone."""
    import pandas as pd

    if isinstance(values, pd.Series):
        values = values.array
    if getattr(values, "ndim", 1) != 1:
        raise error(f"{what} must be a list of labels, got an array of shape {values.shape}")
    if isinstance(values, pd.MultiIndex):
        raise error(f"{what} must be a list of labels, got a MultiIndex of {values.nlevels} levels")
    if getattr(getattr(values, "dtype", None), "name", None) == "float16":
        values = np.asarray(values, dtype=np.float64)  # pandas has no index of this type
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
    if kind == "unknown-array":  # pyarrow categories
        index = pd.Index(np.asarray(index, dtype=object), dtype=object)
        kind = pd.api.types.infer_dtype(index, skipna=False)
    if kind in _DATES:
        try:
            return pd.DatetimeIndex(pd.to_datetime(index))
        except (TypeError, ValueError, OverflowError) as reason:
            _refuse_several_zones(index, what, error)
            raise error(f"{what} must hold dates in one time zone that pandas can read: {one_line(reason)}") from None
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
        more = f" (and {others:,} more)" if others else ""
        raise error(f"{what}: {py:row {int(np.argmax(absent))}} has no label{more}: {_DROP}")


# -- dates --------------------------------------------------------------------------------------


def split_bin(column: Any, what: str) -> tuple[Any, str | None]:
    """Split a column from the bin of its dates: "when:week" gives ("when", "week")."""
    if not isinstance(column, str) or ":" not in column:
        return column, None
    name, _, bin = column.rpartition(":")
    if bin not in BINS:
        raise ObservationError(
            f"{what}: {column!r} must end in one of {', '.join(BINS)}, got {bin!r}{suggestion(bin, BINS)}"
        )
    return name, bin


def binned(index: pd.Index, bin: str, what: str, error: type[PltfError]) -> pd.Index:
    """Bin dates, for example by week: each becomes the start of its bin."""
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


def _could_be_dates(column: pd.Index) -> NDArray[np.bool_]:
    """Whether labels are dates or begin like ISO dates."""
    if column.dtype != object:
        return np.full(len(column), column.dtype.kind == "M")
    return np.array([str(word)[:4].isdecimal() and len(str(word)) > 4 for word in column], dtype=bool)


def _moments(column: pd.Index, what: str, error: type[PltfError]) -> pd.Index:
    """Parse the words of a column as ISO dates; pandas would read 09/11 as a day in September."""
    return dates_of(column, what, error) if column.dtype == object and len(column) else column


def dates_of(words: pd.Index, what: str, error: type[PltfError]) -> pd.Index:
    """Parse dates in ISO format.

    >>> import pandas as pd
    >>> dates_of(pd.Index(["2026-11-09", "2026-11-09T18:30"], dtype=object), "when", PltfError).hour.tolist()
    [0, 18]
    """
    import pandas as pd

    expected = f"{what} must hold dates such as 2026-11-09 or 2026-11-09T18:30"
    vague = [word for word in words if not str(word)[:1].isdigit()]  # pandas also parses "now" and ""
    if vague:
        raise error(f"{expected}, got {brief(vague[0])}")
    try:
        return pd.DatetimeIndex(pd.to_datetime(words, format="ISO8601"))
    except (ValueError, TypeError) as reason:
        _refuse_several_zones(words, what, error)
        raise error(f"{expected}: {one_line(reason).split('. ')[0].split(', at position')[0]}") from None


def _refuse_several_zones(dates: pd.Index, what: str, error: type[PltfError]) -> None:
    """Raise an error that names the time zones if several of them are the only problem."""
    import pandas as pd

    try:
        pd.to_datetime(dates, format="ISO8601", utc=True)
    except (TypeError, ValueError, OverflowError):
        return
    zones = dict.fromkeys(str(pd.Timestamp(one).tzinfo) for one in dates)
    if "None" in zones:
        raise error(f"{what} mixes dates with and without a time zone: give all of them a time zone")
    if len(zones) < 2:
        return
    one, other = list(zones)[:2]
    by_pandas = 'convert them with pd.to_datetime(..., utc=True).dt.tz_convert("Europe/Berlin"), or '
    advice = f"{py_only:{by_pandas}}use one UTC offset throughout the file"
    raise error(f"{what} must hold dates in one time zone, got {one} and {other}: {advice}")


def _on_the_wall(index: pd.Index, bin: str | None, what: str, error: type[PltfError]) -> tuple[pd.Index, str | None]:
    """Convert dates with a time zone to local times, and return the zone; leave others unchanged."""
    zone = getattr(index.dtype, "tz", None)
    if zone is None:
        return index, None
    name = _name_of(zone, what, error)
    if bin is None:
        clock = index.drop_duplicates().tz_localize(None)
        if clock.has_duplicates:  # at the end of summer time
            twice = f"two times that are both {clock[clock.duplicated()][0]} in local time of {name}"
            advice = f"convert the dates to UTC{py_only: with .dt.tz_convert('UTC')}, or bin them by day"
            raise error(f"{what} has {twice}: {advice}")
    return index.tz_localize(None), name


def _name_of(zone: tzinfo, what: str, error: type[PltfError]) -> str:
    """The name of a time zone that pandas can read back: Europe/Berlin, UTC, UTC+01:00."""
    import pandas as pd

    fixed = zone.utcoffset(None)
    name = str(zone) if fixed is None else str(timezone(fixed))  # an offset may be called CET, which is also a zone
    try:
        if pd.DatetimeTZDtype(tz=name).tz.utcoffset(None) == fixed:
            return name
    except (TypeError, ValueError, KeyError):
        pass
    advice = f"convert them{py_only:, for example with .dt.tz_convert('Europe/Berlin')}"
    raise error(f"{what} has dates in the time zone {name}, which pandas does not know by name: {advice}")


def readable_zone(name: Any) -> str | None:
    """The name of a time zone from a file, or None if it is absent or unknown.

    Names that begin with "dateutil/" are rejected, because pandas would open the file that follows.
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
    """Labels from a file with its bin and time zone, where they apply to such labels."""
    dates = index.dtype.kind == "M"
    known = bin if isinstance(bin, str) and bin in (BINS if dates else set(BINS) - set(PERIODS)) else None
    return Labels(index, known, readable_zone(zone) if dates or known else None)


def one_line(reason: Exception) -> str:
    """The message of an exception on one line."""
    return " ".join(str(reason).split())


def _bin_of(index: pd.DatetimeIndex) -> str | None:
    """The bin of dates that were binned before: full minutes, or the first of each month or year."""
    days = index.normalize()
    if (index != days).any():
        return "minute" if (index == index.floor("min")).all() else None
    if len(index) < _LEAST_BINS or (index.day != 1).any():
        return None
    return "year" if (index.month == 1).all() else "month"


def _all_bins(index: pd.Index, bin: str, what: str) -> pd.Index:
    """All bins from the first to the last, including those without events."""
    import pandas as pd

    if bin == "weekday":
        return pd.Index(_WEEKDAYS, dtype=object)
    if bin == "hourofday":
        return pd.Index(np.arange(24))
    if not len(index):
        return index
    first, last = (moment.to_period(PERIODS[bin]) for moment in (index.min(), index.max()))
    if last.ordinal - first.ordinal >= _MOST_BINS:
        raise ObservationError(f"{what}: there are too many bins by {bin} from {index.min()} to {index.max()}")
    return pd.period_range(first, last).to_timestamp()
