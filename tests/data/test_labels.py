"""Labels: from what columns hold to positions and back, and dates put together."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pltf
from pltf.data.labels import BINS, Labels, known_labels, labels_of
from pltf.errors import PltfError
from tests.extras import optional

pa = optional("pyarrow")

DAYS = st.dates(dt.date(1990, 1, 1), dt.date(2040, 1, 1))
MOMENTS = st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(2040, 1, 1)).map(lambda one: one.replace(microsecond=0))
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
FLOATS = st.floats(-1e6, 1e6, allow_nan=False)
INTS = st.integers(-(2**63), 2**63 - 1)

# How a column is made from plain values, and what the values are.
KINDS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Sequence[Any]], Any]]] = {
    "str": (WORDS, lambda v: pd.Series(v, dtype="str")),
    "object": (WORDS, lambda v: pd.Series(v, dtype=object)),
    "string": (WORDS, lambda v: pd.Series(v, dtype="string")),
    "string[pyarrow]": (WORDS, lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.string()))),
    "int": (INTS, lambda v: pd.Series(v, dtype="int64")),
    "int8": (st.integers(-128, 127), lambda v: pd.Series(v, dtype="int8")),
    "Int64": (INTS, lambda v: pd.Series(v, dtype="Int64")),
    "int64[pyarrow]": (INTS, lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.int64()))),
    "float": (FLOATS, lambda v: pd.Series(v, dtype="float64")),
    "Float64": (FLOATS, lambda v: pd.Series(v, dtype="Float64")),
    "float16": (st.sampled_from([-1.5, 0.0, 2.25]), lambda v: pd.Series(np.asarray(v, dtype=np.float16))),
    "bool": (st.booleans(), lambda v: pd.Series(v, dtype=bool)),
    "boolean": (st.booleans(), lambda v: pd.Series(v, dtype="boolean")),
    "date": (DAYS, lambda v: pd.Series(v, dtype=object)),
    "date32[pyarrow]": (DAYS, lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.date32()))),
    "datetime": (MOMENTS, lambda v: pd.Series(pd.DatetimeIndex(v))),
    "datetime[s]": (MOMENTS, lambda v: pd.Series(pd.DatetimeIndex(v).as_unit("s"))),
    "datetime[pyarrow]": (MOMENTS, lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.timestamp("us")))),
    "datetime UTC": (MOMENTS, lambda v: pd.Series(pd.DatetimeIndex(v).tz_localize("UTC"))),
    "category": (WORDS, lambda v: pd.Series(pd.Categorical(v, categories=sorted({*v, "none of them"})))),
    "dictionary[pyarrow]": (WORDS, lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string())))),
    "list": (WORDS, list),
    "index": (INTS, lambda v: pd.Index(v, dtype="int64", name="who")),
}


def plain(label: Any) -> Any:
    """A label as Python has it."""
    return pd.Timestamp(label) if isinstance(label, dt.date) else label


def one_line(error: pytest.ExceptionInfo[PltfError], *words: str) -> None:
    """One sentence, in which all these words stand."""
    text = str(error.value)
    assert len(text.splitlines()) == 1
    for word in words:
        assert word in text


@given(data=st.data(), kind=st.sampled_from(sorted(KINDS)))
def test_labels_are_what_the_column_holds(data: st.DataObject, kind: str) -> None:
    values, build = KINDS[kind]
    held = data.draw(st.lists(values, min_size=1, max_size=8))
    column = build(held)
    labels, at = labels_of(column, "c", None, keep_blanks=True)
    assert [labels.index[n] for n in at] == [plain(one) for one in held]
    named = {plain(one) for one in held} | ({"none of them"} if kind == "category" else set())
    assert list(labels.index) == sorted(named)
    np.testing.assert_array_equal(labels.positions(column, "c"), at)
    np.testing.assert_array_equal(labels.positions(held, "c"), at)
    assert len(labels.names()) == len(labels) == len(named)


@given(data=st.data(), kind=st.sampled_from(sorted(KINDS)))
def test_labels_that_are_given_keep_their_order(data: st.DataObject, kind: str) -> None:
    values, build = KINDS[kind]
    held = data.draw(st.lists(values, min_size=1, max_size=8, unique=True))
    labels = known_labels(build(held), "c")
    assert list(labels.index) == [plain(one) for one in held]
    order = data.draw(st.permutations(range(len(held))))
    np.testing.assert_array_equal(labels.positions(build([held[n] for n in order]), "c"), order)


@given(data=st.data(), here=st.sampled_from(sorted(KINDS)), there=st.sampled_from(sorted(KINDS)))
def test_labels_of_another_kind_are_found_only_where_they_are_equal(data: st.DataObject, here: str, there: str) -> None:
    """Never 1 for "1", True for 1, or a rounded number for another."""
    ours = data.draw(st.lists(KINDS[here][0], min_size=1, max_size=6, unique=True))
    asked = data.draw(KINDS[there][0])
    labels = known_labels(KINDS[here][1](ours), "c")
    try:
        (found,) = labels.positions(KINDS[there][1]([asked]), "c")
    except PltfError:
        return
    mine, other = plain(ours[found]), plain(asked)
    assert isinstance(mine, bool) == isinstance(other, bool)
    if isinstance(mine, pd.Timestamp) and isinstance(other, str):
        other = pd.Timestamp(other)
    assert mine == other or (isinstance(other, str) and mine == other.strip())  # blanks around a label do not count


def test_categories_are_labels_also_without_a_row() -> None:
    column = pd.Series(pd.Categorical(["b", "a", "b"], categories=["c", "b", "a"]))
    labels, at = labels_of(column, "c", None)
    assert (list(labels.index), at.tolist()) == (["c", "b", "a"], [1, 2, 1])


def test_labels_do_not_change_with_what_they_were_made_of() -> None:
    numbers = np.array([3, 1, 2])
    labels, (found, _) = known_labels(numbers, "c"), labels_of(pd.Series(numbers, copy=False), "c", None)
    numbers[:] = 0
    assert (list(labels.index), list(found.index)) == ([3, 1, 2], [1, 2, 3])


def test_dates_are_those_of_the_clock_on_the_wall() -> None:
    late = pd.DatetimeIndex(["2026-11-09 23:30"]).tz_localize("Europe/Istanbul")
    for column in (
        pd.Series(late),
        pd.Series(late.astype(object)),
        pd.Series(late.astype(pd.ArrowDtype(pa.timestamp("us", tz="Europe/Istanbul")))),
    ):
        labels, _ = labels_of(column, "c", "day")
        assert labels.names() == ["2026-11-09"]


def test_periods_are_their_first_moment() -> None:
    labels, _ = labels_of(pd.Series(pd.period_range("2026-01", periods=2, freq="M")), "c", None)
    assert labels.names() == ["2026-01-01", "2026-02-01"]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pd.Series(["a", None, None]), ("row 1 has no label", "1 more")),
        (pd.Series([1.0, np.nan]), ("row 1 has no label",)),
        (pd.Series([1, None], dtype="Int64"), ("row 1 has no label",)),
        (lambda: pd.Series([1, None], dtype=pd.ArrowDtype(pa.int64())), ("row 1 has no label",)),
        (pd.Series([True, None], dtype="boolean"), ("row 1 has no label",)),
        (pd.Series(pd.DatetimeIndex(["2026-01-01", None])), ("row 1 has no label",)),
        (pd.Series(pd.Categorical(["a", None])), ("row 1 has no label",)),
        (pd.Series(["a", 1], dtype=object), ("one type", "str and int")),
        (pd.Series([True, 1], dtype=object), ("one type", "bool and int")),
        (pd.Series([1, 1.5], dtype=object), ("one type", "int and float")),
        (pd.Series(["a", dt.date(2026, 1, 1)], dtype=object), ("one type", "str and date")),
        (pd.Series(pd.Categorical(["a", 1])), ("one type",)),
        (
            pd.Series([pd.Timestamp("2026", tz="UTC"), pd.Timestamp("2026", tz="Asia/Tokyo")], dtype=object),
            ("one time zone", "UTC and Asia/Tokyo"),
        ),
        (pd.Series([pd.Timestamp("2026", tz="UTC"), pd.Timestamp("2026")], dtype=object), ("time zone", "mixes dates")),
        (pd.Series([(1, 2)], dtype=object), ("tuple",)),
        (pd.Series([[1], [2]], dtype=object), ("list",)),
        (pd.Series([{}], dtype=object), ("dict",)),
        (pd.Series([b"a"], dtype=object), ("bytes",)),
        (pd.Series([1j]), ("complex",)),
        (pd.Series(pd.to_timedelta([1])), ("timedelta",)),
        (pd.Series([dt.time(3)], dtype=object), ("time",)),
        (pd.Series(pd.interval_range(0, 2)), ("interval",)),
        (lambda: pd.Series([1], dtype=pd.ArrowDtype(pa.decimal128(5, 2))), ("decimal",)),
        (pd.Series([1.0, np.inf]), ("finite", "inf")),
        (pd.Series(np.array([2**63], dtype=np.uint64)), ("below 2**63",)),
        (pd.Series([2**70], dtype=object), ("below 2**63",)),
        (pd.MultiIndex.from_tuples([(1, 2)]), ("MultiIndex",)),
        (np.ones((2, 2)), ("shape (2, 2)",)),
    ],
)
def test_what_cannot_be_labels(column: Any, words: tuple[str, ...]) -> None:
    column = column() if callable(column) else column
    for call in (lambda: labels_of(column, "who", None), lambda: known_labels(["a"], "who").positions(column, "who")):
        with pytest.raises(PltfError) as error:
            call()
        one_line(error, "who", *words)


def test_half_a_character() -> None:
    """Where pandas keeps text in pyarrow, which cannot hold it, it is refused; elsewhere it is a label like others."""
    column = pd.Series(["\ud800"], dtype=object)
    if getattr(pd.Series(["a"]).dtype, "storage", "python") == "pyarrow":
        known = known_labels(["a"], "who")
        for call in (lambda: labels_of(column, "who", None), lambda: known.positions(column, "who")):
            with pytest.raises(PltfError) as error:
                call()
            one_line(error, "who", "one type")
    else:
        assert list(labels_of(column, "who", None)[0].index) == ["\ud800"]


@pytest.mark.parametrize(
    ("given_labels", "words"),
    [
        ("ab", ("a list of labels", "'ab'")),
        (3, ("a list of labels", "3")),
        (None, ("a list of labels", "None")),
        ([], ("empty",)),
        ({"a", "b"}, ("a list of labels",)),  # in which order?
        (["a\nb", "a\nb"], ("duplicate label",)),
        ([1, 1.0], ("duplicate label",)),
        (["a", None], ("row 1 has no label",)),
        ([["a"], ["b"]], ("one type",)),
    ],
)
def test_labels_that_cannot_be_given(given_labels: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(PltfError) as error:
        known_labels(given_labels, "who")
    one_line(error, "who", *words)


def test_unknown_labels_are_named() -> None:
    with pytest.raises(PltfError) as error:
        known_labels(["ann\nlee", *map(str, range(9))], "who").positions(["0", "x" * 500], "at: 'who'")
    one_line(error, "at: 'who': row 1 has 'xxx", "one of its 10 labels, ann lee, 0, ..., 8")
    assert len(str(error.value)) < 200
    with pytest.raises(PltfError, match=r"row 0 has 2026-11-10, which is not one of its 1 labels, 2026-11-09$"):
        known_labels([dt.date(2026, 11, 9)], "w").positions([dt.date(2026, 11, 10)], "w")


def test_whole_numbers_are_not_found_by_rounded_ones() -> None:
    labels = known_labels([2**53, 2**53 + 1, 2**60 + 1], "who")
    assert labels.positions([2**53 + 1], "who").tolist() == [1]
    for rounded in ([2.0**53], [2.0**60]):
        with pytest.raises(PltfError, match=r"float64 rounds them$"):
            labels.positions(rounded, "who")
    assert known_labels([1, 2], "who").positions([2.0, 1.0], "who").tolist() == [1, 0]


def test_dates_in_words_are_in_iso_form() -> None:
    labels = known_labels([dt.date(2026, 9, 11), dt.date(2026, 11, 9)], "when")
    assert labels.positions(["2026-11-09", "2026-09-11T00:00"], "when").tolist() == [1, 0]
    for word in ("09/11/2026", "now", "today", "", "NaT", "bob", "9 November 2026"):
        with pytest.raises(PltfError, match="dates such as 2026-11-09"):
            labels.positions([word], "when")


# -- bins ---------------------------------------------------------------------------------------


def first_moment(when: dt.datetime, bin: str) -> dt.datetime:
    """Where a bin begins, by hand."""
    if bin in ("minute", "hour"):
        return when.replace(second=0, minute=when.minute if bin == "minute" else 0)
    day = dt.datetime(when.year, when.month, when.day)
    if bin == "week":
        return day - dt.timedelta(days=day.isoweekday() - 1)
    month = {"day": None, "month": when.month, "quarter": 3 * ((when.month - 1) // 3) + 1, "year": 1}[bin]
    return day if month is None else dt.datetime(when.year, month, 1)


def next_moment(first: dt.datetime, bin: str) -> dt.datetime:
    """Where the next one begins."""
    steps = {"minute": dt.timedelta(minutes=1), "hour": dt.timedelta(hours=1), "day": dt.timedelta(days=1)}
    if bin in steps | {"week": None}:
        return first + (steps.get(bin) or dt.timedelta(days=7))
    months = first.month - 1 + {"month": 1, "quarter": 3, "year": 12}[bin]
    return dt.datetime(first.year + months // 12, months % 12 + 1, 1)


@given(
    start=st.datetimes(dt.datetime(1969, 6, 1), dt.datetime(2040, 1, 1)),
    hours=st.lists(st.floats(0, 90 * 24), min_size=1, max_size=6),
    bin=st.sampled_from(["hour", "day", "week", "month", "quarter", "year"]),
    unit=st.sampled_from(["s", "us", "ns"]),
)
def test_bins_against_a_calendar(start: dt.datetime, hours: list[float], bin: str, unit: Any) -> None:
    moments = [(start + dt.timedelta(hours=h)).replace(microsecond=0) for h in hours]
    labels, at = labels_of(pd.Series(pd.DatetimeIndex(moments).as_unit(unit)), "when", bin)
    expected = [first_moment(min(moments), bin)]
    while expected[-1] < first_moment(max(moments), bin):  # gaps are kept
        expected.append(next_moment(expected[-1], bin))
    assert list(labels.index) == [pd.Timestamp(one) for one in expected]
    assert [labels.index[n] for n in at] == [pd.Timestamp(first_moment(one, bin)) for one in moments]
    np.testing.assert_array_equal(labels.positions(moments, "when"), at)
    np.testing.assert_array_equal(labels.positions([one.isoformat() for one in moments], "when"), at)
    np.testing.assert_array_equal(labels.positions(labels.index, "when"), np.arange(len(labels)))  # bins are theirs


def test_weeks_begin_on_monday() -> None:
    when = pd.Series(["2026-11-08", "2026-11-09", "2026-11-15T23:59:59", "2026-11-16"])
    labels, at = labels_of(when, "when", "week")
    assert (labels.names(), at.tolist()) == (["2026-11-02", "2026-11-09", "2026-11-16"], [0, 1, 1, 2])


@pytest.mark.parametrize("bin", ["weekday", "hourofday"])
def test_bins_that_go_round(bin: str) -> None:
    moments = pd.date_range("2026-11-09 18:30", periods=30, freq="7h")
    labels, at = labels_of(pd.Series(moments), "when", bin)
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    names = days if bin == "weekday" else list(range(24))
    assert list(labels.index) == names
    expected = [one.isoweekday() - 1 if bin == "weekday" else one.hour for one in moments]
    assert at.tolist() == expected == labels.positions(moments, "when").tolist()
    assert (
        labels.positions(labels.index[::-1], "when").tolist() == list(range(len(names)))[::-1]
    )  # they name themselves
    kept = Labels(pd.Index(list(labels.index)), bin)  # strings of another type, as a file gives them back
    assert kept.positions(labels.index[::-1], "when").tolist() == list(range(len(names)))[::-1]
    with pytest.raises(PltfError, match=r"which is not an? (day from Monday to Sunday|hour from 0 to 23)"):
        labels.positions(["Montag"] if bin == "weekday" else [24], "when")


@pytest.mark.parametrize("bin", BINS)
def test_every_bin_comes_back(bin: str) -> None:
    labels, at = labels_of(pd.Series(pd.date_range("2026-11-09 18:30", periods=5, freq="s")), "when", bin)
    assert set(at) == {labels.positions(["2026-11-09T18:30"], "when")[0]}


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ([5, 12], ("binned by week", "int64")),
        (["2026-11-09", "now"], ("dates such as", "'now'")),
        (["2026-11-09", ""], ("dates such as", "''")),
        (["2026-11-09", "NaT"], ("dates such as", "'NaT'")),
        (["2026-11-09", "09.11.2026"], ("dates such as", "09.11.2026")),
        (["2026-11-09", "bob\nlee"], ("dates such as", r"'bob\nlee'")),
        (
            ["2026-11-09T00:00+01:00", "2026-11-09T00:00+02:00"],
            ("UTC+01:00 and UTC+02:00", "tz_convert", "one UTC offset"),
        ),
        (["2026-11-09T00:00Z", "2026-11-09"], ("time zone", "mixes dates")),
        (["2026-11-09T00:00Z", "2026-11-09T00:00+02:00", "bob"], ("dates such as", "'bob'")),
        (["2026-11-09T00:00Z", "2026-11-09T00:00+02:00", "2026-13-09"], ("dates such as", "2026-13-09")),
        (["2026-11-09", None], ("row 1 has no label",)),
        ([True, False], ("binned by week", "bool")),
    ],
)
def test_what_cannot_be_binned(held: list[Any], words: tuple[str, ...]) -> None:
    with pytest.raises(PltfError) as error:
        labels_of(pd.Series(held), "data: column 'when'", "week")
    one_line(error, "data: column 'when'", *words)


@pytest.mark.parametrize("bin", BINS)
def test_categories_are_binned_as_their_rows_would_be(bin: str) -> None:
    rows = ["2026-03-02T10:30", "2026-01-20", "2026-03-02T10:30", "2026-01-07 23:59"]
    unused = ["2031-01-01", "no date"]
    column = pd.Series(pd.Categorical(rows, categories=[*unused, *sorted(set(rows))]))
    labels, positions = labels_of(column, "when", bin)
    expected, places = labels_of(pd.Series(rows, dtype=object), "when", bin)
    assert labels == expected
    assert positions.tolist() == places.tolist()
    assert positions.dtype == places.dtype


def test_the_first_row_that_is_no_date_is_told_of_categories_too() -> None:
    column = pd.Series(pd.Categorical(["2026-01-07", "soon", "later"]))  # sorted, "later" comes first
    with pytest.raises(PltfError, match=r"such as 2026-11-09 or 2026-11-09T18:30, got 'soon'"):
        labels_of(column, "when", "week")


def test_too_many_bins() -> None:
    ages = pd.Series(np.array(["1700-01-01", "2200-01-01"], dtype="M8[s]"))
    with pytest.raises(PltfError, match="too many bins by minute"):
        labels_of(ages, "when", "minute")
    assert len(labels_of(ages, "when", "year")[0]) == 501


def test_bins_of_dates_that_nanoseconds_cannot_tell() -> None:
    ages = pd.Series(np.array(["0001-01-01", "9000-01-01"], dtype="M8[s]"))
    if pd.__version__.startswith("2."):
        with pytest.raises(PltfError, match=r"when: pandas 2\..* can bin dates from 1678 to 2261, got 0001-01-01"):
            labels_of(ages, "when", "year")
    else:
        assert len(labels_of(ages, "when", "year")[0]) == 9000


def test_units_of_dates_do_not_matter() -> None:
    coarse, fine = (Labels(pd.DatetimeIndex(["2026-01-01"]).as_unit(unit)) for unit in ("s", "ns"))
    assert coarse == fine
    assert coarse.positions(fine.index, "when").tolist() == [0]
    assert pltf.observe(np.ones(1), dims=["when"], labels={"when": coarse}).labels["when"] is coarse


# -- time zones ---------------------------------------------------------------------------------

LATE = pd.Timestamp("2026-01-04 23:30", tz="UTC")  # in Berlin it is the 5th of January
MOMENTS_OF_A_ZONE: dict[str, Callable[[pd.Timestamp], Any]] = {
    "column": lambda moment: pd.Series([moment]),
    "index": lambda moment: pd.DatetimeIndex([moment]),
    "objects": lambda moment: pd.Series([moment.to_pydatetime()], dtype=object),
    "arrow": lambda moment: pd.Series([moment], dtype=pd.ArrowDtype(pa.timestamp("us", tz=str(moment.tz)))),
    "category": lambda moment: pd.Series(pd.Categorical([moment])),
    "list": lambda moment: [moment],
    "words": lambda moment: [moment.isoformat()],
}
OF_A_ZONE = [
    (["2026-01-05T00:30+01:00", "2026-01-04T12:00+01:00"], "UTC+01:00"),
    (["2026-01-05T00:30Z", "2026-01-04T12:00+00:00"], "UTC"),
    (pd.Series([LATE.tz_convert("Europe/Berlin").to_pydatetime()] * 2, dtype=object), "Europe/Berlin"),
    (lambda: pd.Series([LATE] * 2, dtype=pd.ArrowDtype(pa.timestamp("us", tz="Europe/Berlin"))), "Europe/Berlin"),
    # A zone is called CET too, and has summer time.
    (pd.Series([LATE.tz_convert(dt.timezone(dt.timedelta(hours=1), "CET"))] * 2), "UTC+01:00"),
]


@pytest.mark.parametrize("bin", ["day", "weekday"])
@pytest.mark.parametrize("given_as", MOMENTS_OF_A_ZONE)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_moments_are_found_by_the_clock_of_the_labels(zone: str, given_as: str, bin: str) -> None:
    days = pd.Series(pd.date_range("2026-01-03", "2026-01-06", tz="Europe/Berlin"))
    labels, _ = labels_of(days, "when", bin)
    (found,) = labels.positions(MOMENTS_OF_A_ZONE[given_as](LATE.tz_convert(zone)), "when")
    assert labels.index[found] == (pd.Timestamp("2026-01-05") if bin == "day" else "Monday")
    assert labels.positions(["2026-01-05T23:30"], "when")[0] == found  # without a zone, it is the clock on the wall


def test_moments_without_a_bin_are_found_by_the_clock_of_the_labels() -> None:
    labels, _ = labels_of(pd.Series([LATE]).dt.tz_convert("Europe/Berlin"), "when", None)
    for given_as in MOMENTS_OF_A_ZONE.values():
        assert labels.positions(given_as(LATE), "when").tolist() == [0]
    with pytest.raises(PltfError, match="2026-01-05 01:30:00, which is not one of"):
        labels.positions([LATE + pd.Timedelta(hours=1)], "when")


def test_a_fit_is_asked_by_the_clock_of_its_labels() -> None:
    when = pd.date_range("2026-01-04", "2026-01-05", tz="Europe/Berlin")
    table = pd.DataFrame({"who": ["a", "b"], "when": when, "n": [1, 9]})
    fit = pltf.nmf(("who", "when"), rank=1).fit(pltf.observe(table, dims=["who", "when:day"], value="n"))
    expected = fit.mean(np.array([[1, 1]]))
    assert fit.mean(np.array([[1, 0]])) != expected
    for given_as in MOMENTS_OF_A_ZONE.values():
        assert fit.mean(pd.DataFrame({"who": ["b"], "when": given_as(LATE)})) == expected
    for moment in (LATE, LATE.to_pydatetime(), LATE.isoformat()):
        assert fit.mean([("b", moment)]) == expected


@pytest.mark.parametrize(("column", "zone"), OF_A_ZONE)
def test_labels_keep_the_zone_of_their_dates(column: Any, zone: str, tmp_path: Path) -> None:
    column = column() if callable(column) else column
    table = pd.DataFrame({"who": ["a", "b"], "when": column})
    seen = pltf.observe(table, dims=["who", "when:day"])
    assert seen.labels["when"].zone == zone
    assert seen.labels["when"].names()[-1] == "2026-01-05"
    pltf.nmf(("who", "when"), rank=1).fit(seen).save(tmp_path / "fit.pltf")
    fit = pltf.load(tmp_path / "fit.pltf")
    assert isinstance(fit, pltf.Fit)
    kept = fit.labels["when"]
    assert kept.zone == zone
    late = pd.Timestamp("2026-01-05 00:30", tz=zone).tz_convert("Asia/Tokyo")
    assert kept.at(kept.positions([late], "when"))[0] == pd.Timestamp("2026-01-05")


def test_a_zone_without_a_name_is_refused() -> None:
    odd = pd.Series([LATE.tz_convert(dt.timezone(dt.timedelta(seconds=90)))])
    with pytest.raises(PltfError) as error:
        labels_of(odd, "data: column 'when'", "day")
    one_line(error, "data: column 'when'", "UTC+00:01:30", "by name", "tz_convert")


@pytest.mark.parametrize("bin", ["day", "weekday", None])
@pytest.mark.parametrize("given_as", MOMENTS_OF_A_ZONE)
def test_labels_without_a_zone_are_not_asked_with_one(given_as: str, bin: str | None) -> None:
    labels, _ = labels_of(pd.Series(pd.date_range("2026-01-03", "2026-01-06")), "when", bin)
    with pytest.raises(PltfError) as error:
        labels.positions(MOMENTS_OF_A_ZONE[given_as](LATE), "at: 'when'")
    one_line(error, "at: 'when'", "time zone UTC", "no time zone", ".dt.tz_localize(None)")


def test_one_clock_time_is_not_two_moments() -> None:
    """At the end of summer time the clock shows an hour twice."""
    twice = pd.Series(pd.DatetimeIndex(["2026-10-25 00:30", "2026-10-25 01:30"], tz="UTC")).dt.tz_convert(
        "Europe/Berlin"
    )
    calls: list[Callable[[], Any]] = [
        lambda: labels_of(twice, "column 'when'", None),
        lambda: known_labels(twice, "column 'when'"),
        lambda: labels_of(twice.astype("category"), "column 'when'", None),
        lambda: labels_of(twice[:1], "when", None)[0].positions(twice.dt.tz_convert("UTC"), "column 'when'"),
    ]
    for call in calls:
        with pytest.raises(PltfError) as error:
            call()
        one_line(error, "column 'when'", "2026-10-25 02:30:00", "Europe/Berlin", ".dt.tz_convert('UTC')", "by day")
    labels, at = labels_of(twice, "when", "hour")
    assert (labels.names(), at.tolist()) == (["2026-10-25 02:00:00"], [0, 0])
    labels, at = labels_of(twice.dt.tz_convert("UTC"), "when", None)
    assert (len(labels), at.tolist()) == (2, [0, 1])
    assert len(labels_of(pd.concat([twice[:1]] * 2), "when", None)[0]) == 1


def test_a_digest_tells_labels_of_other_types_and_zones_apart() -> None:
    days = pd.date_range("2026-01-01", periods=2)
    labels: list[Any] = [[1, 2], ["1", "2"], [1.0, 2.0], [True, False], ["True", "False"]]
    labels += [days, list(map(str, days.date)), days.tz_localize("UTC"), days.tz_localize("Europe/Berlin")]
    digests = {pltf.observe(np.ones(2), dims=["i"], labels={"i": one}).digest() for one in labels}
    assert len(digests) == len(labels)
    fine = pltf.observe(np.ones(2), dims=["i"], labels={"i": days.as_unit("s")})
    assert fine.digest() == pltf.observe(np.ones(2), dims=["i"], labels={"i": days.as_unit("ns")}).digest()


# -- more of them ---------------------------------------------------------------------------------


def named(values: Any, bin: str | None = None, zone: str | None = None) -> Labels:
    found = pd.Index(values, dtype=object) if isinstance(values[0], str) else pd.Index(values)
    return Labels(found, bin, zone)


WEEK = pd.DatetimeIndex(["2026-11-09"])


@pytest.mark.parametrize(
    ("known", "others", "names", "at"),
    [
        (named(["ann", "bob"]), named(["cid", "ann"]), ["ann", "bob", "cid"], [2, 0]),
        (named(["ann", "bob"]), named(["bob"]), ["ann", "bob"], [1]),
        (Labels(pd.RangeIndex(1, 3)), Labels(pd.RangeIndex(1, 5)), ["1", "2", "3", "4"], [0, 1, 2, 3]),
        (named([3, 1]), named([1.0, 7.0]), ["3", "1", "7"], [1, 2]),
        (named([0.5]), named([2]), ["0.5", "2.0"], [1]),
        (named(WEEK, "week"), named(["2026-11-11"]), ["2026-11-09"], [0]),
        (named(WEEK), named(["2026-11-11"]), ["2026-11-09", "2026-11-11"], [1]),
        (named(WEEK, "week", "UTC"), named(WEEK + pd.Timedelta(7, "D"), "week", "UTC"), None, [1]),
        (named(["Monday", "Tuesday"], "weekday"), named(["Tuesday"]), ["Monday", "Tuesday"], [1]),
    ],
)
def test_joined(known: Labels, others: Labels, names: list[str] | None, at: list[int]) -> None:
    both, found = known.joined(others, "X")
    assert names is None or both.names() == names
    assert found.tolist() == at
    assert (both.bin, both.zone) == (known.bin, known.zone)
    assert both.index.dtype.kind == known.index.dtype.kind
    assert both.index.dtype == object or known.index.dtype != object
    assert both.positions(both.index, "X").tolist() == list(range(len(both)))


@pytest.mark.parametrize(
    ("known", "others", "message"),
    [
        (named(["ann"]), named([1]), "X must be words like the existing labels, got numbers"),
        (named([1]), named(["ann"]), "X must be numbers like the existing labels, got words"),
        (named([True]), named([1]), "X must be True and False like the existing labels, got numbers"),
        (named([1]), named([2.0, 2.5]), "X must be int64 like the existing labels, got 2.5"),
        (named(WEEK, "week"), named(WEEK.union(WEEK + pd.Timedelta(1, "D")), "day"), "several .* the same week"),
        (named(WEEK, "week"), named(WEEK, "week", "UTC"), "the same time zone, got the time zone UTC and no time zone"),
        (named(WEEK), named([3]), "X must be dates like the existing labels, got numbers"),
        (named(WEEK), named(["soon"]), "X must hold dates such as 2026-11-09"),
    ],
)
def test_labels_of_another_kind_are_not_joined(known: Labels, others: Labels, message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message):
        known.joined(others, "X")


CALLED = {
    "minute": ("0900-01-01T18:00", "0900-01-01 18:00"),
    "month": ("20000-03-01", "March 20000"),
    "quarter": ("20000-10-01", "Q4 20000"),
    "year": ("-0100-01-01", "-100"),
}


@pytest.mark.parametrize("bin", ["minute", "hour", "day", "week", "month", "quarter", "year"])
def test_bins_are_known_by_what_they_are_called_and_written(bin: str) -> None:
    labels, _ = labels_of(pd.Series(pd.date_range("2015-11-09 18:30", periods=40, freq="h")), "when", bin)
    places = list(range(len(labels)))
    for names in (labels.called(), labels.written(places)):
        assert labels.positions(names, "when").tolist() == places
    if bin == "year":
        assert labels.positions([2015], "when").tolist() == [0]


@pytest.mark.parametrize("bin", CALLED)
def test_dates_of_any_year_have_a_name(bin: str) -> None:
    moment, name = CALLED[bin]
    labels = Labels(pd.DatetimeIndex(np.array([moment], dtype="datetime64[s]")), bin=bin)
    assert labels.called() == [name]
    assert repr(labels) == f"<Labels {name}>"
