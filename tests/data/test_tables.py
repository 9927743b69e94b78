"""Tables and labelled arrays, against the dense array that a loop over their rows builds."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import pltf
from pltf.data import CooObservation, DenseObservation, Observation
from pltf.errors import ObservationError, PltfError
from tests.data.test_labels import KINDS, one_line, plain
from tests.extras import required
from tests.reference import Array

pl = required("polars")
pa = required("pyarrow")
sparse = required("sparse")


def dense(seen: Observation) -> Array:
    """An observation as an array, NaN where it is missing."""
    cells = np.stack(np.unravel_index(np.arange(math.prod(seen.shape)), seen.shape))
    return seen.values_at(cells).reshape(seen.shape)


def by_hand(
    rows: list[tuple[Any, ...]], values: Sequence[float | None], labels: list[list[Any]], unlisted: str
) -> Array:
    """What rows of labels list, one at a time."""
    X = np.full([len(one) for one in labels], np.nan if unlisted == "missing" else 0.0)
    for row, value in zip(rows, values, strict=True):
        at = tuple(known.index(label) for known, label in zip(labels, row, strict=True))
        X[at] = np.nan if value is None else value
    return X


def _stays(label: Any) -> bool:
    """Whether a label has no blanks around it, which would be stripped."""
    return not isinstance(label, str) or label == label.strip()


@st.composite
def tables(draw: st.DrawFn) -> tuple[pd.DataFrame, list[tuple[Any, ...]], list[int | None], list[list[Any]]]:
    """A table with columns and rows in any order, its rows, its values, and the labels that it should have."""
    modes = draw(st.integers(1, 3))
    names = ["i", "j", "k"][:modes]
    kinds = [draw(st.sampled_from(sorted(set(KINDS) - {"list", "index", "float16"}))) for _ in names]
    pools = [draw(st.lists(KINDS[kind][0].filter(_stays), min_size=1, max_size=4, unique=True)) for kind in kinds]
    rows = draw(st.lists(st.tuples(*map(st.sampled_from, pools)), min_size=1, max_size=8, unique=True))
    values = draw(st.lists(st.none() | st.integers(0, 9), min_size=len(rows), max_size=len(rows)))
    columns = {
        name: KINDS[kind][1](column) for name, kind, column in zip(names, kinds, zip(*rows, strict=True), strict=True)
    }
    held = draw(st.sampled_from(["float64", "Int64", "int64[pyarrow]", "double[pyarrow]", object]))
    columns["count"] = pd.Series(values, dtype=held)
    table = pd.DataFrame(columns)[draw(st.permutations(list(columns)))]
    table.index = pd.Index(draw(st.permutations(range(len(rows)))))  # row labels of pandas mean nothing
    labels = []
    for name in names:
        if isinstance(table[name].dtype, pd.CategoricalDtype):
            labels.append(list(table[name].cat.categories))
        else:
            labels.append(sorted({plain(row[names.index(name)]) for row in rows}))
    return table, [tuple(map(plain, row)) for row in rows], values, labels


def indexed(table: pd.DataFrame, names: list[str]) -> pd.Series:
    """table.set_index(names)["count"], which pandas 2 cannot do for the categories of pyarrow."""
    columns = [table[name].array for name in names]
    index = pd.Index(columns[0], name=names[0]) if len(names) == 1 else pd.MultiIndex.from_arrays(columns, names=names)
    return pd.Series(table["count"].array, index=index, name="count")


@given(made=tables(), unlisted=st.sampled_from(["zero", "missing"]), data=st.data())
def test_a_table_is_the_array_that_a_loop_builds(made: Any, unlisted: str, data: st.DataObject) -> None:
    table, rows, values, labels = made
    names = ["i", "j", "k"][: len(labels)]
    order = data.draw(st.permutations(range(len(names))))
    before = table.copy(deep=True)
    seen = pltf.observe(table, dims=[names[n] for n in order], value="count", unlisted=unlisted)
    pd.testing.assert_frame_equal(table, before)
    assert seen.dims == tuple(names[n] for n in order)
    assert [list(seen.labels[name].index) for name in names] == labels
    np.testing.assert_array_equal(dense(seen), by_hand(rows, values, labels, unlisted).transpose(order))
    series = indexed(table, names)
    np.testing.assert_array_equal(dense(pltf.observe(series, dims=seen.dims, unlisted=unlisted)), dense(seen))


@given(made=tables(), data=st.data())
def test_rows_are_counted_and_added_up(made: Any, data: st.DataObject) -> None:
    table, rows, _, labels = made
    names = ["i", "j", "k"][: len(labels)]
    again = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=10))
    events = table.iloc[again][names].reset_index(drop=True)
    for name in names:  # a selection of rows has fewer labels
        if isinstance(events[name].dtype, pd.CategoricalDtype):
            events[name] = events[name].cat.remove_unused_categories()
    some = [rows[n] for n in again]
    found = [sorted({row[axis] for row in some}) for axis in range(len(names))]
    X = np.zeros([len(one) for one in found])
    for row in some:
        X[tuple(known.index(label) for known, label in zip(found, row, strict=True))] += 1
    np.testing.assert_array_equal(dense(pltf.observe(events, dims=names)), X)
    weighted = events.assign(n=3)
    np.testing.assert_array_equal(dense(pltf.observe(weighted, dims=names, count=True)), X)
    np.testing.assert_array_equal(dense(pltf.observe(weighted, dims=names, value="n", duplicates="sum")), 3 * X)
    if X.max() > 1:
        with pytest.raises(ObservationError) as error:
            pltf.observe(weighted, dims=names, value="n")
        one_line(error, "is listed more than once, in row", "duplicates='sum'")
    else:
        np.testing.assert_array_equal(dense(pltf.observe(weighted, dims=names, value="n")), 3 * X)


@given(
    columns=st.lists(
        st.lists(
            st.one_of(
                st.none(),
                st.booleans(),
                st.integers(),
                st.floats(),
                st.text(max_size=3),
                st.dates(),
                st.datetimes(),
                st.binary(max_size=2),
            ),
            min_size=2,
            max_size=2,
        ),
        min_size=3,
        max_size=3,
    )
)
def test_any_table_is_read_rightly_or_refused_in_one_line(columns: list[list[Any]]) -> None:
    i, j, values = columns
    table = pd.DataFrame({name: pd.Series(one, dtype=object) for name, one in zip("ijv", columns, strict=True)})
    try:
        seen = pltf.observe(table, dims=["i", "j"], value="v", keep_blanks=True)
    except PltfError as error:
        if len(str(error).splitlines()) != 1:
            raise AssertionError(str(error)) from error
        return
    known = [[plain(label) for label in seen.labels[name].index] for name in "ij"]
    gone = [None if one is None or one != one else float(one) for one in values]
    np.testing.assert_array_equal(
        dense(seen), by_hand([(plain(a), plain(b)) for a, b in zip(i, j, strict=True)], gone, known, "zero")
    )


# -- other tables than those of pandas ----------------------------------------------------------

NAMES = ["bob", "ann", "bob", "eve"]
DATES = [dt.date(2026, 11, 9), dt.date(2026, 11, 2), dt.date(2026, 11, 2), dt.date(2026, 11, 9)]
COUNTS = [3, None, 0, 2]
EXPECTED = by_hand(list(zip(NAMES, DATES, strict=True)), COUNTS, [sorted(set(NAMES)), sorted(set(DATES))], "zero")

CONTAINERS: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame({"who": NAMES, "when": pd.DatetimeIndex(DATES), "n": COUNTS}),
    "pandas dates": lambda: pd.DataFrame({"who": NAMES, "when": DATES, "n": COUNTS}),
    "pandas nullable": lambda: pd.DataFrame({"who": NAMES, "when": DATES, "n": COUNTS}).convert_dtypes(),
    "pandas arrow": lambda: pa.table({"who": NAMES, "when": DATES, "n": COUNTS}).to_pandas(types_mapper=pd.ArrowDtype),
    "series": lambda: pd.DataFrame({"who": NAMES, "when": DATES, "n": COUNTS}).set_index(["who", "when"])["n"],
    "nameless series": lambda: pd.Series(COUNTS, index=pd.MultiIndex.from_arrays([NAMES, DATES])),
    "polars": lambda: pl.DataFrame({"when": DATES, "n": COUNTS, "who": NAMES}),
    "polars types": lambda: pl.DataFrame({"who": NAMES, "when": DATES, "n": COUNTS}).cast(
        {"who": pl.Categorical, "when": pl.Datetime("ms"), "n": pl.UInt16}
    ),
    "polars enum": lambda: (
        pl.DataFrame({"who": NAMES, "when": DATES, "n": COUNTS})
        .cast({"who": pl.Enum(["ann", "bob", "eve"]), "when": pl.Datetime("ns"), "n": pl.Float32})
        .with_columns(pl.col("when").dt.replace_time_zone("Asia/Tokyo"))
    ),
    "pyarrow": lambda: pa.table({"n": COUNTS, "who": NAMES, "when": DATES}),
    "pyarrow batch": lambda: pa.record_batch({"n": COUNTS, "who": NAMES, "when": DATES}),
    "pyarrow chunks": lambda: pa.concat_tables(
        [pa.table({"n": COUNTS, "who": NAMES, "when": DATES}).slice(a, 2) for a in (0, 2)]
    ),
    "pyarrow types": lambda: pa.table(
        {
            "n": pa.array(COUNTS, pa.int8()),
            "who": pa.array(NAMES, pa.large_string()),
            "when": pa.array(DATES).cast(pa.timestamp("s")).cast(pa.timestamp("s", "UTC")),
        }
    ),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_every_kind_of_table_gives_the_same(kind: str) -> None:
    table = CONTAINERS[kind]()
    seen = pltf.observe(table, dims=["who", "when"], value=None if "series" in kind else "n")
    assert isinstance(seen, CooObservation)
    np.testing.assert_array_equal(dense(seen), EXPECTED)
    assert list(seen.labels["who"].index) == ["ann", "bob", "eve"]
    assert seen.labels["when"].names() == ["2026-11-02", "2026-11-09"]
    assert seen.missing.T.tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("values", "labels", "at"),
    [
        (pl.Series(["b", "a"], dtype=pl.Categorical), ["a", "b"], [1, 0]),
        (pl.Series(["b", "a"], dtype=pl.Enum(["c", "b", "a"])), ["c", "b", "a"], [1, 2]),  # categories are all labels
        (pl.Series([True, False]), [False, True], [1, 0]),
        (pl.Series([3, -1], dtype=pl.Int8), [-1, 3], [1, 0]),
        (pl.Series([3, 1], dtype=pl.UInt64), [1, 3], [1, 0]),
        (pl.Series([3, 1], dtype=pl.Int128), [1, 3], [1, 0]),
        (pl.Series([2.5, 1], dtype=pl.Float32), [1, 2.5], [1, 0]),
        (pa.array(["b", "a"]).dictionary_encode(), ["b", "a"], [0, 1]),
        (pa.array(["b", "a"], pa.string_view()), ["a", "b"], [1, 0]),
        (pa.array([True, False]), [False, True], [1, 0]),
        (pa.array(np.array([2.5, 1], dtype=np.float16)), [1, 2.5], [1, 0]),
    ],
)
def test_labels_of_other_tables(values: Any, labels: list[Any], at: list[int]) -> None:
    make = pl.DataFrame if isinstance(values, pl.Series) else pa.table
    seen = pltf.observe(make({"i": values, "j": ["x", "y"]}), dims=["i", "j"])
    assert list(seen.labels["i"].index) == labels
    assert np.argwhere(dense(seen).T)[:, 1].tolist() == at


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (pl.Series([1, None]), "row 1 has no label"),
        (pl.Series(["a", None]), "row 1 has no label"),
        (pl.Series(["a", None], dtype=pl.Categorical), "row 1 has no label"),
        (pl.Series([True, None]), "row 1 has no label"),
        (pl.Series([dt.date(2026, 1, 1), None]), "row 1 has no label"),
        (pl.Series([1.0, math.nan]), "row 1 has no label"),
        (pl.Series([None, None]), "row 0 has no label"),
        (pl.Series([[1], [2]]), "list"),
        (pl.Series([{"a": 1}, {"a": 2}]), "dict"),
        (pl.Series([b"a", b"b"]), "bytes"),
        (pl.Series([dt.time(1), dt.time(2)]), "time"),
        (pl.Series(["1.5", "2"]).cast(pl.Decimal(10, 2)), "decimal"),
        (pl.Series([object(), object()], dtype=pl.Object), "object"),
        (pa.nulls(2), "row 0 has no label"),
        (pa.array([1, None]), "row 1 has no label"),
        (pa.array([[1], [2]]), "ndarray"),
        (pa.array([{"a": 1}, {"a": 2}]), "dict"),
    ],
)
def test_columns_of_other_tables_that_hold_no_labels(values: Any, word: str) -> None:
    make = pl.DataFrame if isinstance(values, pl.Series) else pa.table
    with pytest.raises(ObservationError) as error:
        pltf.observe(make({"i": values, "j": ["x", "y"]}), dims=["i", "j"])
    one_line(error, "data: column 'i'", word)


def test_dates_of_polars_are_those_of_the_clock_on_the_wall() -> None:
    early = pl.DataFrame({"w": [dt.datetime(2026, 11, 9, 0, 30)]}).with_columns(
        pl.col("w").dt.replace_time_zone("Europe/Berlin")
    )
    assert pltf.observe(early, dims={"w:day": "day"}).labels["day"].names() == ["2026-11-09"]


# -- which columns ------------------------------------------------------------------------------

TABLE = pd.DataFrame({"i": ["b", "a", "b"], "j": ["x", "y", "y"], "v": [1.0, 2.0, 3.0]})
SERIES = TABLE.set_index(["i", "j"])["v"]
WHEN = pd.DataFrame({"u": ["a", "b"], "t": pd.to_datetime(["2026-11-09 18:30", "2026-11-24 07:00"])})


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (TABLE, {}, ("requires dims=",)),
        (TABLE, {"dims": "ij"}, ("dims must be a list", "'ij'")),
        (TABLE, {"dims": []}, ("dims must be a list",)),
        (TABLE, {"dims": 3}, ("dims must be a list", "3")),
        (TABLE, {"dims": {"i", "j"}}, ("dims must be a list",)),
        (TABLE, {"dims": ["i", "q"]}, ("'q'", "i, j, v")),
        (TABLE, {"dims": ["i", None]}, ("None",)),
        (TABLE, {"dims": ["i", "i"]}, ("'i' twice",)),
        (TABLE, {"dims": {"i": "u", "j": "u"}}, ("'u' twice",)),
        (TABLE, {"dims": {"i": "u", "j": 3}}, ("names of indices", "3")),
        (TABLE, {"dims": ["i", "j:week"]}, ("column 'j'", "dates such as 2026-11-09")),
        (TABLE, {"dims": ["i", "j:fortnight"]}, ("'j:fortnight'", "'fortnight'", "week")),
        (TABLE, {"dims": ["i", "j"], "value": "q"}, ("value", "'q'")),
        (TABLE, {"dims": ["i", "j"], "value": ["v"]}, ("value", "['v']")),
        (TABLE, {"dims": ["i", "j"], "value": "i"}, ("'i'", "both")),
        (TABLE, {"dims": ["i", "j"], "value": "v", "count": True}, ("value='v'", "count=True")),
        (TABLE, {"dims": ["i", "j"], "mask": np.ones((2, 2))}, ("mask requires a dense array",)),
        (TABLE.iloc[:0], {"dims": ["i", "j"]}, ("empty table requires labels=",)),
        (pd.concat([TABLE, TABLE[["i"]]], axis=1), {"dims": ["i", "j"], "value": "v"}, ("several columns 'i'",)),
        (TABLE, {"dims": ["i", "j"], "labels": ["a", "b"]}, ("labels must map",)),
        (TABLE, {"dims": ["i", "j"], "labels": {"q": ["a"]}}, ("'q'", "i, j")),
        (TABLE, {"dims": ["i", "j"], "labels": {"i": ["a"]}}, ("column 'i': row 0 has 'b'", "labels, a")),
        (TABLE, {"dims": ["i", "j"], "labels": {"i": ["a", "b", "a"]}}, ("duplicate label 'a'",)),
        (TABLE, {"dims": ["i", "j"], "shape": (2, 2)}, ("column 'i'", "whole numbers")),
        (TABLE, {"dims": ["i", "j"], "shape": (2, 2), "labels": {"i": ["a", "b"]}}, ("shape=", "labels=")),
        (TABLE.assign(i=0, j=[0, 1, 2]), {"dims": ["i", "j"], "shape": 2}, ("shape must be", "2")),
        (TABLE.assign(i=0, j=[0, 1, 2]), {"dims": ["i", "j"], "shape": (2, 2)}, ("row 2 has 2",)),
        (TABLE.assign(v=["1", "2", "3"]), {"dims": ["i", "j"], "value": "v"}, ("column 'v'", "numbers", "str")),
        (
            TABLE.assign(v=pd.Series(["1", "2", None], dtype=object)),
            {"dims": ["i", "j"], "value": "v"},
            ("column 'v'", "numbers", "str"),
        ),
        (TABLE.assign(v=pd.Timestamp("2026")), {"dims": ["i", "j"], "value": "v"}, ("column 'v'", "datetime64")),
        (
            TABLE.assign(v=pd.Series([pd.Timestamp("2026"), None, None])),
            {"dims": ["i", "j"], "value": "v"},
            ("column 'v'", "datetime64"),
        ),
        (TABLE.assign(v=[1j, 2, 3]), {"dims": ["i", "j"], "value": "v"}, ("column 'v'", "complex")),
        (TABLE.assign(v=[1, -2, 3]), {"dims": ["i", "j"], "value": "v"}, (">= 0", "row 1 of column 'v' holds -2")),
        (
            TABLE.assign(v=[1, np.nan, np.inf]),
            {"dims": ["i", "j"], "value": "v"},
            ("finite", "row 2 of column 'v' holds inf"),
        ),
        (TABLE.assign(v=pd.array([1, None, 2**53 + 1], "Int64")), {"dims": ["i", "j"], "value": "v"}, ("2**53",)),
        (TABLE.assign(v=pd.Series([1, None, 2**53 + 1], dtype=object)), {"dims": ["i", "j"], "value": "v"}, ("2**53",)),
        (pl.DataFrame({"i": ["a", "b"], "v": [None, 2**53 + 1]}), {"dims": ["i"], "value": "v"}, ("2**53",)),
        (pa.table({"i": ["a", "b"], "v": [None, 2**53 + 1]}), {"dims": ["i"], "value": "v"}, ("2**53",)),
        (pl.LazyFrame({"i": ["a"]}), {"dims": ["i"]}, ("collected first",)),
        (TABLE, {"dims": ["i", "j"], "missing": [1, 2]}, ("missing",)),
        (TABLE.assign(v=[1, 2, np.nan]), {"dims": ["i", "j"], "missing": [1, 2]}, ("missing",)),
        (TABLE, {"dims": ["i", "j"], "missing": pd.DataFrame({"i": ["a"]})}, ("missing", "j is absent")),
        (
            TABLE,
            {"dims": ["i", "j"], "missing": pd.DataFrame({"i": ["q"], "j": ["x"]})},
            ("missing: column 'i'", "'q'"),
        ),
        (TABLE, {"dims": ["i", "j"], "missing": pd.DataFrame({"i": ["a"], "j": ["y"]})}, ("in missing",)),
        (SERIES.rename_axis([None, None]), {}, ("no names", "dims=")),
        (SERIES.rename_axis([None, None]), {"dims": ["i"]}, ("no names", "dims=")),
        (SERIES.rename_axis(["i", "i"]), {"dims": ["i", "j"]}, ("several levels", "'i'")),
        (SERIES, {"dims": ["i", "q"]}, ("'q'",)),
        (SERIES.index, {"dims": ["i", "j"]}, ("MultiIndex",)),
        (pd.Series([1, 2]), {}, ("no names",)),
        (WHEN, {"dims": ["u", "t:week", "t:hour"]}, ("'t' twice",)),
    ],
)
def test_a_table_that_cannot_be_read(data: Any, options: dict[str, Any], words: tuple[str, ...]) -> None:
    before = data.copy() if isinstance(data, (pd.DataFrame, pd.Series)) else data
    with pytest.raises(ObservationError) as error:
        pltf.observe(data, **options)
    one_line(error, *words)
    if isinstance(data, (pd.DataFrame, pd.Series)):
        assert data.equals(before)


def test_a_cell_that_is_listed_twice_is_named() -> None:
    twice = pd.concat([TABLE, TABLE.iloc[[0]]])
    with pytest.raises(
        ObservationError, match=r"cell \('b', 'x'\) is listed more than once, in row 0 and row 3; pass dup"
    ):
        pltf.observe(twice, dims=["i", "j"], value="v")
    with_gap = pd.concat([TABLE.assign(v=[np.nan, 2, 3]), TABLE.iloc[[0]]])
    for unlisted in ("zero", "missing"):  # a value cannot be added to what was not seen, nor replace it
        for duplicates in ("error", "sum"):
            with pytest.raises(
                ObservationError, match=r"cell \('b', 'x'\) is listed more than once, in row 0 and row 3;"
            ):
                pltf.observe(with_gap, dims=["i", "j"], value="v", unlisted=unlisted, duplicates=duplicates)
    both_gaps = pd.concat([with_gap, with_gap]).dropna(subset="v", how="any").iloc[:3]
    assert pltf.observe(both_gaps, dims=["i", "j"], value="v", duplicates="sum").total == 6


def test_columns_by_any_name() -> None:
    for dims in ({"i": "user", "j": "place"}, {"j": "place", "i": "user"}):
        seen = pltf.observe(TABLE, dims=dims, value="v")
        np.testing.assert_array_equal(dense(seen), dense(pltf.observe(TABLE, dims=list(dims), value="v")))
        assert seen.dims == tuple(dims.values())
    colon = TABLE.rename(columns={"i": "i:week"})  # a column may have a colon in its own name
    assert pltf.observe(colon, dims={"i:week": "i", "j": "j"}, value="v").dims == ("i", "j")
    pairs = TABLE.set_axis(pd.MultiIndex.from_tuples([("a", "i"), ("a", "j"), ("b", "v")]), axis=1)
    by_pairs: Any = {("a", "i"): "i", ("a", "j"): "j"}
    np.testing.assert_array_equal(
        dense(pltf.observe(pairs, dims=by_pairs, count=True)), dense(pltf.observe(TABLE, dims=["i", "j"], count=True))
    )
    assert pltf.observe(TABLE, dims=TABLE.columns[:2], value="v").dims == ("i", "j")
    assert pltf.observe(SERIES.rename("i")).total == pltf.observe(SERIES.rename(None)).total == 6
    assert pltf.observe(SERIES, count=True).total == 3


def test_one_column_of_dates_can_be_two_indices() -> None:
    seen = pltf.observe(WHEN, dims={"u": "u", "t:week": "week", "t:hourofday": "hour"})
    assert seen.shape == (2, 3, 24)
    assert np.argwhere(dense(seen)).tolist() == [[0, 0, 18], [1, 2, 7]]
    levels = pd.Series([1, 2], index=pd.MultiIndex.from_frame(WHEN, names=[None, None]))
    assert pltf.observe(levels, dims=["u", "t:week"]).shape == (2, 3)


def test_all_labels_can_be_given() -> None:
    given_labels = {"i": ["c", "b", "a"], "j": ["y", "x"]}
    seen = pltf.observe(TABLE, dims=["i", "j"], value="v", labels=given_labels)
    np.testing.assert_array_equal(dense(seen), [[0, 0], [3, 1], [2, 0]])
    empty = pltf.observe(TABLE.iloc[:0], dims=["i", "j"], value="v", labels=given_labels)
    assert (empty.shape, empty.total) == ((3, 2), 0)
    days = pd.date_range("2026-11-02", periods=4, freq="7D")
    assert pltf.observe(WHEN, dims={"u": "u", "t:week": "w"}, labels={"w": days}).shape == (2, 4)
    with pytest.raises(ObservationError, match="column 't': row 0 has 2026-11-09, which is not one of its 1 labels"):
        pltf.observe(WHEN, dims={"u": "u", "t:week": "w"}, labels={"w": [dt.date(2026, 11, 16)]})


def test_labels_and_columns_have_a_time_zone_both() -> None:
    moments = pd.DataFrame({"t": pd.DatetimeIndex(["2026-11-08 23:30"], tz="UTC")})
    days = pd.date_range("2026-11-08", periods=2)
    with pytest.raises(
        ObservationError, match=r"column 't' has dates with the time zone UTC, but the labels have no time zone"
    ):
        pltf.observe(moments, dims=["t:day"], labels={"t": days})
    seen = pltf.observe(moments, dims=["t:day"], labels={"t": days.tz_localize("Europe/Berlin")})
    assert dense(seen).tolist() == [0, 1]
    with pytest.raises(ObservationError, match=r"whole numbers, got dtype datetime64"):
        pltf.observe(moments, dims=["t"], shape=(2,))


def test_with_a_shape_columns_are_positions() -> None:
    numbers = pd.DataFrame({"i": [2, 0], "j": [0, 1], "v": [5, 7]})
    seen = pltf.observe(numbers, dims=["j", "i"], value="v", shape=(2, 3))
    np.testing.assert_array_equal(dense(seen), [[0, 0, 5], [7, 0, 0]])
    assert seen.labels == {}
    labelled = pltf.observe(numbers, dims=["j", "i"], value="v")  # without, they are labels: no row has user 1
    assert (labelled.shape, list(labelled.labels["i"].index)) == ((2, 2), [0, 2])
    holes = pltf.observe(numbers, dims=["j", "i"], value="v", shape=(2, 3), missing=pd.DataFrame({"i": [1], "j": [1]}))
    assert np.argwhere(np.isnan(dense(holes))).tolist() == [[1, 1]]


def test_holes_by_label() -> None:
    for holes in (
        pd.DataFrame({"j": ["x"], "i": ["a"]}),
        pl.DataFrame({"j": ["x"], "i": ["a"]}),
        pd.MultiIndex.from_tuples([("a", "x")]),
        pd.Series([True, False], index=pd.MultiIndex.from_tuples([("a", "x"), ("b", "x")])),
    ):
        seen = pltf.observe(TABLE, dims=["i", "j"], value="v", missing=holes)
        np.testing.assert_array_equal(dense(seen), [[np.nan, 2], [1, 3]])


# -- xarray -------------------------------------------------------------------------------------

X = np.arange(12.0).reshape(3, 4)
CUBE = xr.DataArray(X, dims=("i", "j"), coords={"i": ["c", "a", "b"], "j": [10, 30, 20, 40], "note": 3})


@given(
    rows=st.permutations(range(3)),
    columns=st.permutations(range(4)),
    own=st.permutations(["i", "j"]),
    asked=st.permutations(["i", "j"]),
    bits=st.lists(st.booleans(), min_size=12, max_size=12),
    plain_mask=st.booleans(),
    all_labels=st.none() | st.permutations(["a", "b", "c", "d"]),
    integers=st.booleans(),
)
def test_a_labelled_array_goes_by_its_names(
    rows: list[int],
    columns: list[int],
    own: list[str],
    asked: list[str],
    bits: list[bool],
    plain_mask: bool,
    all_labels: list[str] | None,
    integers: bool,
) -> None:
    """Whatever the order of dims and labels of the data and of the mask: each value stays with its labels."""
    data = CUBE.isel(i=rows, j=columns).transpose(*own).astype(int if integers else float)
    keep = CUBE.copy(data=np.reshape(bits, (3, 4)))
    mask = keep.isel(i=rows, j=columns).transpose(*own).values if plain_mask else keep
    labels = None if all_labels is None else {"i": all_labels}
    before = data.copy(deep=True)
    seen = pltf.observe(data, mask, dims=asked, labels=labels)
    xr.testing.assert_identical(data, before)
    assert seen.dims == tuple(asked)
    found = xr.DataArray(dense(seen), dims=seen.dims, coords={i: one.index for i, one in seen.labels.items()})
    expected = CUBE.where(keep).reindex({"i": found["i"].values, "j": found["j"].values})
    np.testing.assert_array_equal(found.transpose("i", "j").values, expected.values)
    assert list(found["i"].values) == (all_labels or [["c", "a", "b"][n] for n in rows])


TOKYO = pd.date_range("2026-01-01", periods=4, tz="Asia/Tokyo")


@pytest.mark.parametrize(
    ("index", "labels", "order"),
    [
        (pd.period_range("2026-01", periods=3, freq="M"), pd.date_range("2026-01-01", periods=4, freq="MS"), [0, 1, 2]),
        (TOKYO[:3], TOKYO.tz_convert("UTC"), [0, 1, 2]),
        (pd.CategoricalIndex(["a", "b", "c"]), ["c", "b", "a", "d"], [2, 1, 0]),
        (pd.Index([1.0, 2.0, 3.0]), [3, 2, 1, 0], [2, 1, 0]),
        (pd.Index([True, False]), [False, True], [1, 0]),
    ],
)
def test_labels_of_other_types_are_put_in_order(index: pd.Index, labels: Any, order: list[int]) -> None:
    data = xr.DataArray(np.arange(1.0, len(index) + 1), dims="w", coords={"w": index})
    seen = pltf.observe(data, labels={"w": labels})
    held = dense(seen)
    np.testing.assert_array_equal(held[: len(order)], np.arange(1, len(index) + 1)[order])
    assert np.isnan(held[len(order) :]).all()


def test_large_whole_numbers_stay_as_they_are() -> None:
    data = xr.DataArray([2**53, 2**53 - 1], dims="i", coords={"i": ["a", "b"]})
    seen = pltf.observe(data, labels={"i": ["c", "b", "a"]})
    assert isinstance(seen, DenseObservation)
    assert seen.values.dtype == np.int64
    assert seen.values[1:].tolist() == [2**53 - 1, 2**53]


def test_sparse_labelled_arrays() -> None:
    data = CUBE.copy(data=sparse.COO.from_numpy(X))
    for given_data in (data, data.T):
        seen = pltf.observe(given_data, dims=["i", "j"])
        assert isinstance(seen, CooObservation)
        np.testing.assert_array_equal(dense(seen), X)
    with pytest.raises(ObservationError, match="must be all 4 of them in a sparse array, got 3"):
        pltf.observe(data, labels={"i": ["a", "b", "c", "d"]})


def test_axes_of_plain_arrays_can_be_named() -> None:
    seen = pltf.observe(X, dims=["i", "j"], labels={"i": ["c", "a", "b"]})
    assert (seen.dims, list(seen.labels)) == (("i", "j"), ["i"])
    mask = CUBE.T > 3  # goes by its names, too
    np.testing.assert_array_equal(
        dense(pltf.observe(X, mask.isel(i=[2, 1, 0]), dims=["i", "j"], labels={"i": ["c", "a", "b"]})),
        np.where(X > 3, X, np.nan),
    )


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (CUBE, {"dims": ["i", "q"]}, ("i, j", "i, q")),
        (CUBE, {"dims": ["i", "i"]}, ("i, j", "i, i")),
        (CUBE, {"dims": ["i"]}, ("i, j",)),
        (CUBE, {"dims": "ij"}, ("dims must be a list", "'ij'")),
        (CUBE, {"dims": {"i": "user"}}, ("dims must name each of the dims i, j", "got i")),
        (CUBE, {"dims": {"i": "user", "k": "place"}}, ("dims must name each of the dims i, j", "got i, k")),
        (CUBE, {"dims": 3}, ("dims must be a list", "3")),
        (CUBE, {"labels": {"q": ["a"]}}, ("'q'", "i, j")),
        (CUBE, {"labels": {"i": ["a", "b"]}}, ("labels of 'i': row 0 has 'c'",)),
        (CUBE.drop_vars("i"), {"labels": {"i": ["a", "b"]}}, ("index 'i' has 3 positions", "2")),
        (CUBE, {"mask": np.ones((4, 3), dtype=bool)}, ("mask must have the shape of data, (3, 4)", "(4, 3)")),
        (CUBE, {"mask": np.ones((3, 4)) * 7}, ("mask must be boolean",)),
        (CUBE, {"mask": xr.DataArray(np.ones((3, 4), dtype=bool))}, ("mask must have the dims of data, i, j",)),
        (CUBE, {"mask": (CUBE > 3).isel(i=[0, 1])}, ("mask: labels of 'i'", "each of the 3 labels", "'b' is absent")),
        (CUBE, {"mask": (CUBE > 3).assign_coords(i=["c", "a", "q"])}, ("labels of 'i'", "'q'")),
        (X, {"mask": CUBE > 3}, ("mask has the dims i, j", "pass its values")),
        (CUBE, {"unlisted": "missing"}, ("unlisted",)),
        (CUBE, {"value": "v"}, ("value requires a table",)),
        (CUBE.to_dataset(name="X"), {}, ("one tensor", "Dataset")),
        (CUBE.variable, {}, ("one tensor", "Variable")),
        (CUBE.stack(k=("i", "j")), {}, ("labels of 'k'", "MultiIndex")),
        (CUBE.isel(i=[0, 0]), {}, ("duplicate label 'c'",)),
        (CUBE.copy(data=sparse.COO.from_numpy(X)), {"mask": X > 3}, ("mask requires a dense array",)),
        (CUBE - 5, {}, (">= 0", "(0, 0)")),
        (xr.DataArray(3.0), {}, ("at least one axis",)),
        (xr.DataArray(["a"], dims="i"), {}, ("numbers",)),
        (X, {"labels": {"i": ["a"]}}, ("labels requires dims=",)),
        (X, {"dims": ["i", 3]}, ("dims must be a list of names",)),
        (X, {"dims": [["i"], ["j"]]}, ("dims must be a list of names",)),
        (X, {"dims": ["i", "i"]}, ("2 different names",)),
        (X, {"dims": ["i", "j"], "labels": {"k": ["a"]}}, ("'k'", "i, j")),
    ],
)
def test_a_labelled_array_that_cannot_be_read(data: Any, options: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ObservationError) as error:
        pltf.observe(data, **options)
    one_line(error, *words)


def test_days_are_not_taken_for_weeks() -> None:
    weeks = pltf.observe(WHEN, dims={"t:week": "week"}, value=None, count=True).labels
    days = xr.DataArray(np.ones(8), dims="week", coords={"week": pd.date_range("2026-11-09", periods=8)})
    with pytest.raises(ObservationError, match="labels of 'week': several labels are in the same week"):
        pltf.observe(days, labels=weeks)
    np.testing.assert_array_equal(dense(pltf.observe(days[::7], labels=weeks)), [1, 1, np.nan])
