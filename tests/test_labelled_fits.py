"""Labels through fits and all that comes of them: never a value at the wrong place."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import pltf
import pltf.metrics
from pltf.errors import PltfError
from tests.data.test_labels import one_line
from tests.extras import required
from tests.reference import Array

pl = required("polars")
pa = required("pyarrow")
sparse = required("sparse")

RUN: dict[str, Any] = {"max_iter": 12, "tol": 0}
USERS, PLACES, DAYS = ["eve", "ann", "bob", "dan"], [40, 10, 30, 20], ["mon", "tue", "wed", "thu"]  # all of one size
MODEL = pltf.Model("X[user,place,day] = U[user,r] * P[place,r] * D[day,r]", r=2)
FLAT = pltf.Model("X[user,place] = U[user,r] * P[place,r]", r=2)
COUNTS = np.random.default_rng(0).poisson(1.5, (4, 4, 4)).astype(float)
COUNTS[0, 1, 2] = COUNTS[3, 0, 0] = COUNTS[1, 1, 3] = np.nan
CUBE = xr.DataArray(COUNTS, dims=("user", "place", "day"), coords={"user": USERS, "place": PLACES, "day": DAYS})
LONG = CUBE.to_series().rename("n").reset_index()
ORDER: dict[str, list[Any]] = {"user": USERS, "place": PLACES, "day": DAYS}
FULL = CUBE.fillna(0)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pltf.ConvergenceWarning)
        warnings.simplefilter("ignore", pltf.ScoreWarning)
        yield


def run(data: Any, model: pltf.Model = MODEL, **options: Any) -> pltf.Fit:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pltf.ConvergenceWarning)
        return model.fit(data, **RUN | options)


@cache
def cube_fit() -> pltf.Fit:
    return run(CUBE)


def long(table: Any, **how: Any) -> pltf.Observation:
    """A long table with its values."""
    return pltf.observe(table, dims=["user", "place", "day"], value="n", **how)


def series(table: pd.DataFrame) -> pd.Series:
    """The values of a long table, by their labels."""
    return table.set_index([name for name in table.columns if name != "n"])["n"]


@cache
def listed_fit() -> pltf.Fit:
    return run(long(LONG, labels=ORDER))


@cache
def sorted_fit() -> pltf.Fit:
    return run(long(LONG))


def labelled(fit: pltf.Fit) -> xr.DataArray:
    """Expected values by their labels."""
    indices = fit.model.observed["X"]
    return xr.DataArray(fit.mean(), dims=indices, coords={i: fit.labels[i].index for i in indices if i in fit.labels})


def assert_same(fit: pltf.Fit, expected: pltf.Fit) -> None:
    """To the bit."""
    assert fit.bound == expected.bound
    np.testing.assert_array_equal(fit.trace, expected.trace)
    for name in expected.model.factors:
        np.testing.assert_array_equal(fit.factors[name].mean, expected.factors[name].mean)
    assert fit.labels == expected.labels
    assert fit.n_observed == expected.n_observed


# -- the same fit from every kind of data -------------------------------------------------------

SHUFFLED = LONG.sample(frac=1, random_state=1)
TABLES: dict[str, Callable[[], Any]] = {
    "rows in another order": lambda: long(SHUFFLED),
    "columns in another order": lambda: long(LONG[["n", "day", "user", "place"]]),
    "types of pandas": lambda: long(SHUFFLED.convert_dtypes()),
    "types of pyarrow": lambda: long(SHUFFLED.convert_dtypes(dtype_backend="pyarrow")),
    "categories": lambda: long(LONG.astype({"user": "category", "place": "category", "day": "category"})),
    "series": lambda: SHUFFLED.set_index(["day", "user", "place"])["n"],
    "nameless series": lambda: LONG.set_index(["user", "place", "day"])["n"].rename_axis([None] * 3),
    "polars": lambda: long(pl.from_pandas(SHUFFLED)),
    "polars types": lambda: long(pl.from_pandas(SHUFFLED).cast({"user": pl.Categorical, "place": pl.Int16})),
    "polars gaps": lambda: long(pl.from_pandas(SHUFFLED).with_columns(pl.col("n").fill_nan(None).cast(pl.Int8))),
    "pyarrow": lambda: long(pa.Table.from_pandas(SHUFFLED, preserve_index=False)),
    "observed": lambda: long(LONG),
    "observed in another order": lambda: pltf.observe(SHUFFLED, dims=["day", "user", "place"], value="n"),
    "with labels": lambda: long(LONG, labels={i: sorted(o) for i, o in ORDER.items()}),
    "other names": lambda: pltf.observe(
        LONG.set_axis(["a", "b", "c", "n"], axis=1), dims={"b": "place", "a": "user", "c": "day"}, value="n"
    ),
}
ARRAYS: dict[str, Callable[[], Any]] = {
    "observed": lambda: pltf.observe(CUBE),
    "float32": lambda: CUBE.astype(np.float32),
    "array with names": lambda: pltf.observe(COUNTS, dims=["user", "place", "day"], labels=ORDER),
    "labels in order again": lambda: pltf.observe(CUBE[::-1, :, ::-1], labels=ORDER),
    "other names": lambda: CUBE.rename(user="a", place="b").rename(b="place", a="user"),
    "further coordinates": lambda: CUBE.assign_coords(note=3, age=("user", [1, 2, 3, 4])),
    "mapping": lambda: {"X": CUBE},
    "dataset": lambda: xr.Dataset({"X": CUBE}),
}


@pytest.mark.parametrize("kind", TABLES)
def test_every_table_gives_the_same_fit(kind: str) -> None:
    assert_same(run(TABLES[kind]()), sorted_fit())


@pytest.mark.parametrize("kind", ARRAYS)
def test_every_array_gives_the_same_fit(kind: str) -> None:
    assert_same(run(ARRAYS[kind]()), cube_fit())


def test_a_table_is_fitted_like_the_array() -> None:
    np.testing.assert_allclose(listed_fit().mean(), cube_fit().mean(), rtol=1e-10)
    assert listed_fit().labels == cube_fit().labels
    plain = run(COUNTS)
    np.testing.assert_array_equal(plain.mean(), cube_fit().mean())
    assert plain.labels == {}
    filled = run(FULL.copy(data=sparse.COO.from_numpy(FULL.values)))
    assert_same(filled, run(pltf.observe(sparse.COO.from_numpy(FULL.values), dims=list(ORDER), labels=ORDER)))


@pytest.mark.parametrize("dims", [("day", "user", "place"), ("place", "user", "day"), ("day", "place", "user")])
def test_transposed_data_give_the_same_fit(dims: tuple[str, ...]) -> None:
    turned = CUBE.transpose(*dims)
    for data in (turned, pltf.observe(turned), pltf.observe(turned.values, dims=dims, labels=ORDER)):
        fit = run(data)
        np.testing.assert_allclose(fit.mean(), cube_fit().mean(), rtol=1e-10)  # sums go along other axes in memory
        assert fit.labels == cube_fit().labels
    without = run(turned.drop_vars(["user", "place", "day"]))
    np.testing.assert_allclose(without.mean(), cube_fit().mean(), rtol=1e-10)


def test_masks_go_by_names() -> None:
    keep = CUBE.copy(data=np.random.default_rng(3).random(CUBE.shape) < 0.7)
    expected = run(FULL.where(keep))
    turned = FULL.transpose("day", "place", "user")
    for data, mask in (
        (FULL, keep),
        (FULL, keep.values),
        (FULL, keep[::-1, ::-1].transpose("day", "user", "place")),
        (turned, keep),
        (turned, keep.transpose(*turned.dims).values),  # a plain mask has the axes of the data
    ):
        fit = run(data, mask=mask)
        np.testing.assert_allclose(fit.mean(), expected.mean(), rtol=1e-10)
        assert fit.n_observed == expected.n_observed
    hidden = pltf.holdout(turned, 0.4, seed=1)
    expected = run(FULL.values, mask=np.asarray(hidden).transpose(2, 1, 0))
    np.testing.assert_allclose(run(turned, mask=hidden).mean(), expected.mean(), rtol=1e-10)
    with pytest.raises(PltfError, match="pass its values"):
        run(FULL.values, mask=keep)


def test_names_that_do_not_fit() -> None:
    for data, words in (
        (CUBE.rename(day="hour"), ("user, place, hour", "user, place, day")),
        (pltf.observe(LONG, dims={"user": "user", "place": "place", "day": "hour"}, value="n"), ("hour", "day")),
        (LONG.rename(columns={"day": "hour"}), ("'day'", "hour")),
        (CUBE[0], ("place, day", "user, place, day")),
        (CUBE.variable, ("Variable",)),
    ):
        with pytest.raises(PltfError) as error:
            run(data)
        one_line(error, "X", *words)


# -- coupled tensors ----------------------------------------------------------------------------

COUPLED = pltf.Model(
    """X[user,place,day] = U[user,r] * P[place,r] * D[day,r]
       Y[place,kind]     = P[place,r] * K[kind,r]""",
    r=2,
)
KIND = xr.DataArray(
    np.random.default_rng(1).poisson(2.0, (4, 3)).astype(float), dims=("place", "kind"), coords={"place": PLACES}
)


def test_coupled_tensors_share_their_labels() -> None:
    fit = run({"X": CUBE, "Y": KIND}, COUPLED)
    assert {index: list(one.index) for index, one in fit.labels.items()} == ORDER
    assert_same(run(xr.Dataset({"X": CUBE, "Y": KIND}), COUPLED), fit)
    assert_same(run({"X": CUBE, "Y": KIND.values}, COUPLED), fit)
    turned = run(xr.Dataset({"X": CUBE, "Y": KIND.T}), COUPLED)
    np.testing.assert_allclose(turned.mean(of="Y"), fit.mean(of="Y"), rtol=1e-10)
    table = pd.DataFrame({"place": [30, 10], "kind": [2, 0]})
    np.testing.assert_array_equal(fit.mean(table, of="Y"), fit.mean(np.array([(2, 2), (1, 0)]), of="Y"))
    assert list(
        fit.fold_in(
            {"X": CUBE[:, :1].assign_coords(place=[50]), "Y": KIND[:1].assign_coords(place=[50])}, "place", **RUN
        )
        .labels["place"]
        .index
    ) == [50]


def test_coupled_tensors_are_aligned_by_label() -> None:
    """An outer join: labels that only one of them has are missing in the other."""
    fit = run({"X": CUBE, "Y": KIND}, COUPLED)
    turned = run({"X": CUBE, "Y": KIND[::-1]}, COUPLED)
    np.testing.assert_allclose(turned.mean(of="Y"), fit.mean(of="Y"), rtol=1e-10)
    assert_same(run({"X": long(LONG), "Y": KIND}, COUPLED), run({"X": long(LONG), "Y": KIND.sortby("place")}, COUPLED))
    fewer = KIND.sel(place=[30, 20]).assign_coords(place=[30, 60])
    wider = run({"X": CUBE, "Y": fewer}, COUPLED)
    assert wider.labels["place"].index.tolist() == [*PLACES, 60]
    assert wider.n_observed["X"] == fit.n_observed["X"]
    assert wider.n_observed["Y"] == fewer.size
    at = pd.DataFrame({"place": [60, 60], "kind": [0, 1]})
    assert (wider.mean(at, of="Y") > 0).all()


@pytest.mark.parametrize(
    ("labels", "word"),
    [
        (["a", "b", "c", "d"], "of one type, got numbers and words"),
        pytest.param(pd.date_range("2026-01-01", periods=4), "of one type, got numbers and dates"),
        ([0.5, 10, 30, 20], "must be int64"),
        ([1, 2, 3, 4], "have nothing in common: 40, 10, 30, 20 and 1, 2, 3, 4"),
    ],
)
def test_coupled_tensors_that_disagree(labels: Any, word: str) -> None:
    with pytest.raises(PltfError) as error:
        run({"X": CUBE, "Y": KIND.assign_coords(place=labels)}, COUPLED)
    one_line(error, "the labels of 'place' in X and Y", word)


# -- what comes back ----------------------------------------------------------------------------


def test_labels_come_back_everywhere() -> None:
    for name, index in (("U", "user"), ("P", "place"), ("D", "day")):
        factor = cube_fit().factors[name].to_xarray()
        assert list(factor[index].values) == ORDER[index]
        np.testing.assert_array_equal(
            factor["mean"].sel({index: ORDER[index][2]}).values, cube_fit().factors[name].mean[2]
        )
    table = cube_fit().components(top=2)
    for r, row in table.iterrows():
        for name, index in (("U", "user"), ("P", "place"), ("D", "day")):
            largest = np.argsort(-cube_fit().factors[name].mean[:, r])[:2]
            assert list(row[f"{name}[{index}]"]) == [ORDER[index][n] for n in largest]
    best = cube_fit().top(3)
    assert list(best.columns[:3]) == ["user", "place", "day"]
    assert {tuple(row) for row in best[["user", "place", "day"]].values} == {
        (USERS[i], PLACES[j], DAYS[k]) for i, j, k in np.argwhere(np.isnan(COUNTS))
    }
    np.testing.assert_array_equal(cube_fit().mean(best), best["mean"])
    turned_round = listed_fit().top(5, "zero")[::-1]
    np.testing.assert_array_equal(listed_fit().mean(turned_round), turned_round["mean"])
    for row in cube_fit().top(5, "zero").itertuples():
        assert CUBE.sel(user=row.user, place=row.place, day=row.day) == 0


def test_labels_outlive_a_search() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for data in (CUBE, CUBE.T, series(LONG), pltf.observe(CUBE.T)):
            found = pltf.select(MODEL, data, r=[1, 2], restarts=2, max_iter=8, criterion="bound").best_fit
            assert {i: set(one.index) for i, one in found.labels.items()} == {i: set(o) for i, o in ORDER.items()}
            again = found.model.fit(data, seed=int(found.restarts.query("best")["seed"].iloc[0]), max_iter=8)
            np.testing.assert_allclose(labelled(found), labelled(again), rtol=1e-6)


# -- which cells --------------------------------------------------------------------------------

CELLS = np.array([(0, 3, 1), (2, 0, 2), (2, 0, 2), (1, 1, 3)])
NAMED = [(USERS[i], PLACES[j], DAYS[k]) for i, j, k in CELLS]
FRAME = pd.DataFrame(NAMED, columns=["user", "place", "day"])
MASK = np.zeros(CUBE.shape, dtype=bool)
MASK[tuple(np.transpose(CELLS))] = True

ASKED: dict[str, Callable[[], Any]] = {
    "positions": lambda: CELLS,
    "rows of positions": lambda: list(CELLS),
    "index arrays": lambda: tuple(np.transpose(CELLS)),
    "rows of labels": lambda: NAMED,
    "lists of labels": lambda: [list(row) for row in NAMED],
    "object array": lambda: np.asarray(NAMED, dtype=object),
    "table": lambda: FRAME,
    "columns in another order": lambda: FRAME[["day", "user", "place"]].assign(more=1),
    "rows by other numbers": lambda: FRAME.set_index(pd.Index([7, 7, 1, 0])),
    "categories": lambda: FRAME.astype("category"),
    "types of pandas": lambda: FRAME.convert_dtypes(),
    "types of pyarrow": lambda: FRAME.convert_dtypes(dtype_backend="pyarrow"),
    "floats for whole numbers": lambda: FRAME.astype({"place": float}),
    "polars": lambda: pl.from_pandas(FRAME),
    "pyarrow": lambda: pa.Table.from_pandas(FRAME),
    "series": lambda: FRAME.assign(n=1).set_index(["day", "user", "place"])["n"],
    "multi-index": lambda: pd.MultiIndex.from_tuples(NAMED),
    "named multi-index": lambda: pd.MultiIndex.from_frame(FRAME[["place", "day", "user"]]),
}


@pytest.mark.parametrize("kind", ASKED)
def test_cells_in_every_form(kind: str) -> None:
    at = ASKED[kind]()
    np.testing.assert_array_equal(cube_fit().mean(at), cube_fit().mean()[tuple(np.transpose(CELLS))])
    np.testing.assert_array_equal(cube_fit().var(at), cube_fit().var()[tuple(np.transpose(CELLS))])
    np.testing.assert_array_equal(cube_fit().prob(at, draws=50), cube_fit().prob(CELLS, draws=50))
    np.testing.assert_array_equal(pltf.metrics.popularity(CUBE, at), pltf.metrics.popularity(COUNTS, CELLS))


def test_boolean_cells() -> None:
    expected = cube_fit().mean()[MASK]
    np.testing.assert_array_equal(cube_fit().mean(MASK), expected)
    series = CUBE.copy(data=MASK).to_series()
    np.testing.assert_array_equal(cube_fit().mean(series), expected)  # where it is True, not all of it
    np.testing.assert_array_equal(np.sort(cube_fit().mean(series.sample(frac=1, random_state=1))), np.sort(expected))


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (FRAME.assign(user="zoe"), ("column 'user': row 0 has 'zoe'", "4 labels")),
        (FRAME.assign(user=[*USERS[:3], None]), ("column 'user': row 3 has no label",)),
        (FRAME.assign(place=0), ("column 'place': row 0 has 0", "40, 10")),  # numbers in a table are labels
        (FRAME.assign(place="40"), ("column 'place': row 0 has '40'",)),
        (FRAME.assign(place=True), ("column 'place': row 0 has True",)),
        (FRAME.assign(place=40.5), ("column 'place': row 0 has 40.5",)),
        (FRAME.drop(columns="day"), ("day is absent",)),
        (FRAME.set_axis(["user", "place", "place"], axis=1), ("day is absent",)),
        (pd.concat([FRAME, FRAME[["day"]]], axis=1), ("several columns 'day'",)),
        (pd.DataFrame(MASK[0], index=USERS, columns=PLACES), ("user is absent",)),
        (pl.LazyFrame({"user": ["ann"]}), ("collected first",)),
        ([("zoe", 40, "mon")], ("'user': row 0 has 'zoe'",)),
        ([("ann", 0, "mon")], ("'place': row 0 has 0",)),
        ([("ann", 40)], ("at",)),
        ([("ann", 40, "mon"), ("bob", 10)], ("at",)),
        ([(0, 0, 0), ("ann", 40, "mon")], ("'user'", "one type", "int and str")),
        (["ann", 40, "mon"], ("at",)),
        ("ann", ("at",)),
        ({"user": ["ann"], "place": [40], "day": ["mon"]}, ("at",)),
        ((["ann"], [40], ["mon"]), ("at",)),
        (pa.array([1, 2]), ("at",)),
        (pd.Index(["ann"]), ("at",)),
        (MASK[0], ("at", "shape")),
        (np.array([(0, 0, 4)]), ("row 0 has 4 for index 'day'", "0 to 3")),
        (np.array([(40, 40, 40)]), ("row 0 has 40 for index 'user'",)),  # numbers in an array are positions
        ([(0, 0, 0)], ("the labels of 'place' are numbers, so numbers are ambiguous",)),
    ],
)
def test_cells_that_cannot_be(at: Any, words: tuple[str, ...]) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: cube_fit().mean(at),
        lambda: cube_fit().prob(at),
        lambda: pltf.metrics.popularity(CUBE, at),
    ]
    for call in calls:
        with pytest.raises(PltfError) as error:
            call()
        one_line(error, *words)


def test_cells_of_a_fit_without_labels() -> None:
    plain, half = run(COUNTS), run(pltf.observe(COUNTS, dims=list(ORDER), labels={"day": DAYS}))
    positions = pd.DataFrame(CELLS, columns=list(ORDER))
    for table in (
        positions,
        positions[["day", "user", "place"]],
        positions.astype("Int64"),
        pl.from_pandas(positions),
        positions.astype("uint64"),
    ):
        np.testing.assert_array_equal(plain.mean(table), plain.mean(CELLS))
    mixed = positions.assign(day=[DAYS[k] for _, _, k in CELLS])
    np.testing.assert_array_equal(half.mean(mixed), plain.mean(CELLS))
    np.testing.assert_array_equal(half.mean([tuple(row) for row in mixed.values]), plain.mean(CELLS))
    for wrong, words in (
        (positions.assign(user="ann"), ("column 'user'", "whole numbers")),
        (positions.assign(user=0.5), ("column 'user'", "whole numbers")),
        (positions.assign(user=[0, 1, 2, None]), ("column 'user'", "row 3")),
        (positions.assign(user=[0, 1, 2, None]).astype("Int64"), ("column 'user'", "row 3")),
        (positions.assign(user=9), ("row 0 has 9 for index 'user'",)),
        (positions.assign(user=True), ("column 'user'", "whole numbers")),
    ):
        with pytest.raises(PltfError) as error:
            plain.mean(wrong)
        one_line(error, *words)


def test_dates_are_asked_for_by_any_of_their_moments() -> None:
    events = pd.DataFrame(
        {
            "who": ["a", "b", "a", "b"],
            "t": pd.DatetimeIndex(["2026-11-09", "2026-11-11", "2026-11-15 23:59", "2026-12-01"]),
        }
    )
    model = pltf.Model("X[user,week] = U[user,r] * W[week,r]", r=1)
    fit = run(pltf.observe(events, dims={"who": "user", "t:week": "week"}), model)
    assert fit.labels["week"].names() == ["2026-11-09", "2026-11-16", "2026-11-23", "2026-11-30"]
    expected = fit.mean([(0, 1), (1, 3)])
    moments = [dt.datetime(2026, 11, 22, 9), dt.datetime(2026, 12, 6, 23, 59)]
    for at in (
        pd.DataFrame({"user": ["a", "b"], "week": pd.DatetimeIndex(moments)}),
        pd.DataFrame({"user": ["a", "b"], "week": [one.isoformat() for one in moments]}),
        pl.DataFrame({"user": ["a", "b"], "week": moments}),
        [("a", moments[0]), ("b", moments[1])],
        [("a", "2026-11-16"), ("b", "2026-12-06")],
    ):
        np.testing.assert_array_equal(fit.mean(at), expected)
    np.testing.assert_array_equal(fit.mean(fit.top(4, "zero")), fit.top(4, "zero")["mean"])
    assert set(fit.components(top=4)["W[week]"].iloc[0]) == set(fit.labels["week"].names())
    for bin in ("weekday", "hourofday"):
        round_fit = run(pltf.observe(events, dims={"who": "user", f"t:{bin}": "week"}), model)
        np.testing.assert_array_equal(round_fit.mean(round_fit.top(4, "zero")), round_fit.top(4, "zero")["mean"])
    new = fit.fold_in(
        pd.DataFrame({"user": "c", "week": pd.DatetimeIndex(["2026-11-10", "2026-11-12", "2026-11-30"])}), "user", **RUN
    )
    np.testing.assert_allclose(
        new.factors["U"].mean, fit.fold_in([2, 0, 0, 1], "user", **RUN).factors["U"].mean, rtol=1e-10
    )
    with pytest.raises(PltfError, match="'week': row 0 has 2027-01-04, which is not one of its 4 labels"):
        fit.mean([("a", "2027-01-10")])


# -- new rows -----------------------------------------------------------------------------------

ROW = xr.DataArray(
    np.random.default_rng(5).poisson(2.0, (4, 4)).astype(float),
    dims=("place", "day"),
    coords={"place": PLACES, "day": DAYS},
)
CELL_ROWS = ROW.to_series().rename("n").reset_index()
SINGLE: dict[str, Callable[[], Any]] = {
    "array": lambda: ROW,
    "transposed": lambda: ROW.T,
    "labels in another order": lambda: ROW[::-1, [2, 0, 3, 1]].T,
    "without labels": lambda: ROW.drop_vars(["place", "day"]).T,
    "with the label of the row": lambda: CUBE[:1].copy(data=ROW.values[None]).sel(user="eve"),
    "table": lambda: series(CELL_ROWS.sample(frac=1, random_state=2)[["day", "n", "place"]]),
    "series": lambda: CELL_ROWS.set_index(["day", "place"])["n"],
    "nameless series": lambda: CELL_ROWS.set_index(["place", "day"])["n"].rename_axis([None, None]),
    "observed": lambda: pltf.observe(ROW),
    "observed table": lambda: pltf.observe(
        CELL_ROWS, dims=["place", "day"], value="n", labels={"place": PLACES, "day": DAYS}
    ),
}
MANY: dict[str, Callable[[], Any]] = {
    "array": lambda: ROW.expand_dims(user=["new"]),
    "transposed": lambda: ROW.expand_dims(user=["new"]).T,
    "labels in another order": lambda: ROW.expand_dims(user=["new"]).T[::-1],
    "table": lambda: series(CELL_ROWS.assign(user="new").sample(frac=1, random_state=2)),
    "series": lambda: CELL_ROWS.assign(user="new").set_index(["day", "user", "place"])["n"],
    "observed": lambda: pltf.observe(ROW.expand_dims(user=["new"]).T),
}


@pytest.mark.parametrize("kind", SINGLE)
def test_a_new_row_goes_by_its_labels(kind: str) -> None:
    new = cube_fit().fold_in(SINGLE[kind](), "user", **RUN)
    expected = cube_fit().fold_in(ROW.values, "user", **RUN)
    np.testing.assert_allclose(new.factors["U"].mean, expected.factors["U"].mean, rtol=1e-10)
    assert "user" not in new.labels
    np.testing.assert_allclose(
        new.mean(pd.DataFrame({"user": [0], "place": [10], "day": ["thu"]})),
        expected.mean(np.array([(0, 1, 3)])),
        rtol=1e-10,
    )


@pytest.mark.parametrize("kind", MANY)
def test_new_rows_go_by_their_labels(kind: str) -> None:
    new = cube_fit().fold_in(MANY[kind](), "user", **RUN)
    expected = cube_fit().fold_in(ROW.values, "user", **RUN)
    np.testing.assert_allclose(new.factors["U"].mean, expected.factors["U"].mean, rtol=1e-10)
    assert list(new.labels["user"].index) == ["new"]
    np.testing.assert_allclose(new.mean([("new", 10, "thu")]), expected.mean(np.array([(0, 1, 3)])), rtol=1e-10)


def test_new_rows_that_list_fewer_labels() -> None:
    part = cube_fit().fold_in(ROW[:2], "user", **RUN)  # what an array does not have is missing
    held = cube_fit().fold_in(np.where(np.isin(PLACES, PLACES[:2])[:, None], ROW.values, np.nan), "user", **RUN)
    np.testing.assert_allclose(part.factors["U"].mean, held.factors["U"].mean, rtol=1e-10)
    listed = cube_fit().fold_in(
        series(CELL_ROWS.query("place in [40, 10]")), "user", **RUN
    )  # what a table does not list is zero
    zeros = cube_fit().fold_in(np.where(np.isin(PLACES, PLACES[:2])[:, None], ROW.values, 0), "user", **RUN)
    np.testing.assert_allclose(listed.factors["U"].mean, zeros.factors["U"].mean, rtol=1e-10)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (ROW.assign_coords(place=[40, 10, 30, 99]), ("labels of 'place': row 3 has 99",)),
        (CELL_ROWS.assign(day="sun"), ("column 'day': row 0 has 'sun'",)),
        (CELL_ROWS.assign(place=[*CELL_ROWS["place"][:-1], None]), ("column 'place': row 15 has no label",)),
        (CELL_ROWS.rename(columns={"day": "hour"}), ("'day'",)),
        (ROW.rename(day="hour"), ("place, hour", "place, day")),
        (pltf.observe(ROW[::-1]), ("different labels of 'place'",)),
        (pltf.observe(ROW.expand_dims(user=["new"])[:, ::-1]), ("different labels of 'place'",)),
        (series(pd.concat([CELL_ROWS, CELL_ROWS])), ("listed more than once",)),
    ],
)
def test_new_rows_that_do_not_fit(rows: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(PltfError) as error:
        cube_fit().fold_in(rows, "user", **RUN)
    one_line(error, *words)


OTHER_ORDER = "an observation of a single row loses the order of its dims"


def test_an_observed_row_in_another_order() -> None:
    expected = cube_fit().fold_in(ROW.values, "user", **RUN).factors["U"].mean
    np.testing.assert_allclose(
        cube_fit().fold_in(pltf.observe(ROW.T), "user", **RUN).factors["U"].mean, expected, rtol=1e-10
    )


# -- scores -------------------------------------------------------------------------------------


def scored(scores: pltf.metrics.Scores) -> list[list[float]]:
    """What was held and what was expected, sorted."""
    return sorted(
        [x, round(mean, 9), round(busy, 9)]
        for x, mean, busy in zip(scores.values, scores.means, scores.popularity, strict=True)
    )


HIDDEN = ~np.asarray(pltf.holdout(FULL.values, 0.3, seed=4))
HIDDEN_ROWS = [tuple(row) for row in FULL.copy(data=HIDDEN).to_series().loc[lambda one: one].index]
DATA: dict[str, Callable[[], Any]] = {
    "array": lambda: FULL,
    "transposed": lambda: FULL.T,
    "labels in another order": lambda: FULL[::-1, :, [1, 0, 3, 2]],
    "table": lambda: long(FULL.to_series().rename("n").reset_index().sample(frac=1, random_state=1), labels=ORDER),
    "series": lambda: FULL.transpose("day", "user", "place").to_series(),
    "polars": lambda: long(pl.from_pandas(FULL.to_series().rename("n").reset_index()), labels=ORDER),
    "observed": lambda: pltf.observe(FULL),
}
WHICH: dict[str, Callable[[], Any]] = {
    "boolean": lambda: HIDDEN,
    "rows of labels": lambda: HIDDEN_ROWS,
    "table": lambda: pd.DataFrame(HIDDEN_ROWS, columns=["user", "place", "day"])[["day", "place", "user"]],
    "boolean series": lambda: FULL.copy(data=HIDDEN).T.to_series(),
}


@cache
def half_fit() -> pltf.Fit:
    return run(FULL, mask=~HIDDEN)


@cache
def truth() -> pltf.metrics.Scores:
    return pltf.metrics.score(half_fit(), FULL.values, HIDDEN, resamples=0, draws=10)


@pytest.mark.parametrize("cells", WHICH)
@pytest.mark.parametrize("data", DATA)
def test_scores_go_by_labels(data: str, cells: str) -> None:
    which = WHICH[cells]()
    if cells == "boolean" and data in ("transposed", "labels in another order"):  # a mask has the axes of X
        seen = pltf.observe(DATA[data]())
        order = {dim: seen.labels[dim].index for dim in seen.dims or ()}
        which = FULL.copy(data=HIDDEN).transpose(*order).reindex(order).values
    if (data, cells) == ("series", "boolean"):
        which = FULL.copy(data=HIDDEN).transpose("day", "user", "place").values
    scores = pltf.metrics.score(half_fit(), DATA[data](), which, resamples=0, draws=10)
    assert scored(scores) == scored(truth())
    assert scores.auc == pytest.approx(truth().auc, rel=1e-12)


def test_scores_refuse_other_labels() -> None:
    for data, words in (
        (pltf.observe(FULL[::-1]), ("different labels of 'user'",)),
        (FULL.assign_coords(user=["eve", "ann", "bob", "zoe"]), ("'zoe'",)),
        (LONG.assign(user="zoe"), ("'zoe'",)),
    ):
        with pytest.raises(PltfError) as error:
            pltf.metrics.score(half_fit(), data, HIDDEN)
        one_line(error, *words)


@pytest.mark.parametrize("dims", [("user", "place", "day"), ("day", "user", "place")])
def test_cells_hidden_from_a_list(dims: tuple[str, ...]) -> None:
    seen = pltf.observe(FULL.to_series(), dims=dims)
    split = pltf.holdout(seen, 0.3, seed=1)
    assert (split.train.dims, split.train.labels) == (dims, seen.labels)
    fit = run(split.train)
    names = pd.DataFrame({dim: seen.labels[dim].at(split.cells[:, axis]) for axis, dim in enumerate(dims)})
    held = [float(FULL.sel(dict(row))) for row in names.to_dict("records")]
    np.testing.assert_array_equal(split.values, held)
    expected = labelled(fit)
    np.testing.assert_array_equal(fit.mean(names), [float(expected.sel(dict(row))) for row in names.to_dict("records")])
    by_name = pltf.metrics.score(fit, FULL.to_series(), names, resamples=0, draws=10)
    np.testing.assert_array_equal(by_name.values, held)
    if dims == ("user", "place", "day"):
        assert scored(pltf.metrics.score(fit, split, resamples=0, draws=10)) == scored(by_name)


# What goes wrong today, without a word. These say what should come out, or that it should be refused.

TURNED = ("day", "user", "place")


def refused_or(call: Callable[[], Any], right: Callable[[Any], bool]) -> bool:
    try:
        return right(call())
    except PltfError:
        return True


def test_a_holdout_in_another_order_is_scored_by_its_names() -> None:
    seen = pltf.observe(FULL.to_series(), dims=TURNED)
    split = pltf.holdout(seen, 0.3, seed=1)
    fit = run(split.train)
    names = pd.DataFrame({dim: seen.labels[dim].at(split.cells[:, axis]) for axis, dim in enumerate(TURNED)})
    right = pltf.metrics.score(fit, FULL.to_series(), names, resamples=0, draws=10)
    assert refused_or(
        lambda: pltf.metrics.score(fit, split, resamples=0, draws=10), lambda one: scored(one) == scored(right)
    )


QUICK: dict[str, Any] = {"resamples": 0, "draws": 10}


def test_an_observation_in_another_order_is_scored_by_its_names() -> None:
    turned = pltf.observe(FULL.transpose(*TURNED))
    assert refused_or(
        lambda: pltf.metrics.score(half_fit(), turned, FULL.copy(data=HIDDEN).transpose(*TURNED).values, **QUICK),
        lambda one: scored(one) == scored(truth()),
    )


@pytest.mark.parametrize("turn", [lambda one: one.T, lambda one: one[::-1]])
def test_labelled_boolean_cells_go_by_names(turn: Callable[[Any], Any]) -> None:
    cells = turn(CUBE.copy(data=MASK))
    expected: Array = np.sort(cube_fit().mean()[MASK])
    assert refused_or(lambda: cube_fit().mean(cells), lambda means: np.array_equal(np.sort(means), expected))


def test_hidden_cells_of_transposed_data_are_scored_where_they_were_hidden() -> None:
    turned = FULL.transpose(*TURNED)
    mask = pltf.holdout(turned, 0.3, seed=2)
    fit = run(turned, mask=mask)
    scores = pltf.metrics.score(fit, turned, ~mask, resamples=0, draws=10)
    np.testing.assert_array_equal(np.sort(scores.values), np.sort(turned.values[~np.asarray(mask)]))
    assert not fit.patterns["X"].observed(np.argwhere(~np.asarray(mask))[:, [1, 2, 0]].T).any()
    names = turned.copy(data=~np.asarray(mask)).to_series()
    assert scored(scores) == scored(pltf.metrics.score(fit, turned, names, resamples=0, draws=10))


def test_known_factors_go_by_labels() -> None:
    known = cube_fit().factors["U"].to_xarray()["mean"]
    assert refused_or(
        lambda: run(CUBE, fixed={"U": known[::-1]}), lambda fit: np.array_equal(fit.factors["U"].mean, known.values)
    )


def test_a_fit_goes_on_only_with_its_labels() -> None:
    assert refused_or(lambda: run(CUBE[::-1], init=cube_fit()), lambda fit: fit.n_iter > 2 * RUN["max_iter"])


def test_components_are_matched_by_labels() -> None:
    blocks = CUBE[:, :, 0].drop_vars("day").copy(data=np.kron(np.diag([9.0, 5.0]), np.ones((2, 2))))
    fit, other = (run(data, FLAT, max_iter=200) for data in (blocks, blocks[[0, 2, 1, 3]]))
    assert pltf.match(fit, run(blocks, FLAT, max_iter=200, seed=1)).similarity > 0.99
    assert refused_or(lambda: pltf.match(fit, other), lambda found: found.similarity > 0.99)


def test_moments_of_another_time_zone() -> None:
    moments = pd.DatetimeIndex(["2026-11-09 00:30", "2026-11-08 12:00"]).tz_localize("Europe/Berlin")
    events = pd.DataFrame({"user": ["a", "b"], "t": moments})
    fit = run(pltf.observe(events, dims={"user": "user", "t:day": "place"}), FLAT)
    asked = pd.DataFrame({"user": ["a"], "place": moments[:1].tz_convert("UTC")})
    assert refused_or(lambda: fit.mean(asked), lambda mean: bool(mean[0] == fit.mean([(0, 1)])[0]))


# -- what a table does not list -------------------------------------------------------------------

RATINGS = pd.DataFrame({"user": list("aabbc"), "place": list("xyxzy"), "stars": [5, 3, 4, 1, 2]})


def test_what_was_missing_in_the_fit_is_missing_in_further_tables() -> None:
    seen = pltf.observe(RATINGS, dims=["user", "place"], value="stars", unlisted="missing")
    fit = pltf.nmf(("user", "place"), rank=1).fit(seen)
    one = pd.DataFrame({"user": ["new"], "place": ["x"]})
    assert fit.fold_in(one, "user").n_observed == {"X": 1}
    assert fit.fold_in(one.drop(columns="user"), "user").n_observed == {"X": 1}
    with pytest.raises(PltfError, match="X must hold a value for each of the cells"):
        pltf.metrics.score(fit, RATINGS[["user", "place"]], [("a", "x"), ("a", "z")])
    counts = pltf.nmf(("user", "place"), rank=1).fit(RATINGS[["user", "place"]])
    assert counts.fold_in(one, "user").n_observed == {"X": 3}


def test_a_plain_mask_has_the_axes_of_the_data_that_it_comes_with() -> None:
    table = RATINGS.pivot(index="user", columns="place", values="stars").fillna(0)
    data = xr.DataArray(table)
    mask = np.ones(data.shape, dtype=bool)
    mask[0, 1], mask[2, 0] = False, False
    fit = pltf.nmf(("place", "user"), rank=1).fit(data, mask=mask)
    scores = pltf.metrics.score(fit, data, ~mask, resamples=0, draws=10)
    np.testing.assert_array_equal(np.sort(scores.values), np.sort(data.values[~mask]))
    with pytest.raises(PltfError, match="'d', which is not one of its 3 labels"):
        fit.mean(data.astype(bool).reindex(user=[*"abcd"], fill_value=True))


def test_the_clock_of_polars() -> None:
    moments = pd.DatetimeIndex(["2026-11-09 00:30", "2026-11-08 12:00"]).tz_localize("Europe/Berlin")
    table = pl.DataFrame({"user": ["a", "b"], "when": moments.to_series().reset_index(drop=True)})
    seen = pltf.observe(table, dims=["user", "when:day"])
    assert seen.labels["when"].zone == "Europe/Berlin"
    assert seen.labels["when"].names() == ["2026-11-08", "2026-11-09"]


# -- arrays whose labels are those of pandas ----------------------------------------------------

PLANE = CUBE.isel(day=0).drop_vars("day").fillna(1)
SEEN = pd.DataFrame(PLANE.values > 1, index=USERS, columns=PLACES)
SHUFFLES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "as it is": lambda one: one,
    "rows": lambda one: one.sort_index(),
    "columns": lambda one: one.sort_index(axis=1),
    "both": lambda one: one.iloc[::-1, ::-1],
}


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_masks_of_pandas_go_by_labels(shuffle: str) -> None:
    expected = run(PLANE, FLAT, mask=SEEN.to_numpy())
    mask = SHUFFLES[shuffle](SEEN)
    assert_same(run(PLANE, FLAT, mask=mask), expected)
    seen = pltf.observe(PLANE.values, mask, dims=("user", "place"), labels={"user": USERS, "place": PLACES})
    assert_same(run(seen, FLAT), expected)
    assert_same(run(PLANE.T, FLAT, mask=mask.T), expected)


@pytest.mark.parametrize("argument", ["fixed", "init"])
@pytest.mark.parametrize("shuffle", ["as it is", "rows"])
def test_factors_of_pandas_go_by_labels(argument: str, shuffle: str) -> None:
    U, P = np.arange(1.0, 9.0).reshape(4, 2), np.ones((4, 2))
    given: dict[str, Any] = {"U": U} if argument == "fixed" else {"U": U, "P": P}
    frame = SHUFFLES[shuffle](pd.DataFrame(U, index=USERS))
    assert_same(run(PLANE, FLAT, **{argument: {**given, "U": frame}}), run(PLANE, FLAT, **{argument: given}))


def test_vectors_of_pandas_go_by_labels() -> None:
    model = pltf.Model("X[user,place] = U[user] * P[place]")
    given = pd.Series([1.0, 2.0, 3.0, 4.0], index=USERS)
    expected = run(PLANE, model, fixed={"U": given.to_numpy()})
    assert_same(run(PLANE, model, fixed={"U": given.sort_index()}), expected)


def test_frames_that_do_not_fit() -> None:
    frame = pd.DataFrame(np.ones((4, 2)), index=USERS)
    for call, words in (
        (lambda: run(PLANE, FLAT, fixed={"U": frame.reset_index(drop=True)}), ("fixed['U']", "0, which is not one of")),
        (lambda: run(PLANE, FLAT, fixed={"U": frame[0]}), ("fixed['U']", "user, r", "Series")),
        (lambda: run(PLANE, FLAT, mask=SEEN.rename(index={"eve": "zoe"})), ("'zoe'",)),
        (lambda: run(PLANE, FLAT, mask=SEEN[SEEN.index == "eve"]), ("mask",)),
        (lambda: pltf.Gamma(1.0, frame), ("Gamma: mean", "DataFrame")),
        (lambda: pltf.Gamma(CUBE, 1.0), ("Gamma: shape", "DataArray")),
    ):
        with pytest.raises(PltfError) as error:
            call()
        one_line(error, *words)


# -- cells where an array is True ---------------------------------------------------------------


@pytest.mark.parametrize(
    "turn",
    [lambda one: one, lambda one: one.T, lambda one: one[::-1], lambda one: one.transpose(*TURNED)[:, ::-1]],
)
def test_answers_come_as_the_array_has_them(turn: Callable[[Any], Any]) -> None:
    at, whole = turn(CUBE.copy(data=MASK)), turn(labelled(cube_fit()))
    np.testing.assert_array_equal(cube_fit().mean(at), whole.values[at.values])
    held = turn(FULL)
    for ask in (cube_fit().surprise, cube_fit().log_prob):
        values = ask(at, held.values[at.values], draws=20)
        for given in (held, FULL):
            np.testing.assert_array_equal(ask(at, given, draws=20), values)
    np.testing.assert_array_equal(
        cube_fit().log_prob(None, held, draws=5), cube_fit().log_prob(None, FULL.values, draws=5)
    )


def test_some_of_the_labels_are_enough() -> None:
    at = CUBE.copy(data=MASK)[1:3]
    np.testing.assert_array_equal(cube_fit().mean(at), labelled(cube_fit())[1:3].values[at.values])


def test_boolean_arrays_that_do_not_fit() -> None:
    bare = run(FULL.values)
    wrong: list[tuple[Callable[[], Any], tuple[str, ...]]] = [
        (lambda: cube_fit().mean(CUBE), ("at", "boolean", "float64")),
        (lambda: cube_fit().mean((CUBE > 0)[[0, 0, 1]]), ("at", "'eve' occurs twice")),
        (lambda: cube_fit().mean((CUBE > 0).rename(day="when")), ("at", "when", "were expected")),
        (lambda: bare.mean((CUBE > 0)[:2]), ("at", "4 positions along 'user'", "got 2")),
        (lambda: cube_fit().surprise([("eve", 40, "mon")], FULL.rename(day="when")), ("values", "(1,)", "(4, 4, 4)")),
        (lambda: bare.surprise(None, FULL[:2]), ("values", "(4, 4, 4)", "(2, 4, 4)")),
        (lambda: cube_fit().mean(["eve", "mon"]), ("at", "a row of 3 labels (user, place, day)")),
        (lambda: cube_fit().mean([("eve", "mon")]), ("at", "a row of 3 labels (user, place, day)")),
        (lambda: pltf.metrics.score(half_fit(), FULL, [[0, 1, 2]]), ("cells", "'place'", "numbers are ambiguous")),
        (lambda: pltf.metrics.score(half_fit(), pltf.observe(FULL), [[0, 1, 2]]), ("cells", "numbers are ambiguous")),
        (lambda: pltf.metrics.score(half_fit(), FULL, 5), ("cells", "must list cells")),
    ]
    for call, words in wrong:
        with pytest.raises(PltfError) as error:
            call()
        one_line(error, *words)


# -- scores by the axes of the data -------------------------------------------------------------

VIEWS: dict[str, Callable[[], Any]] = {
    "array": lambda: FULL.transpose(*TURNED),
    "array in another order": lambda: FULL.transpose(*TURNED)[::-1, :, [2, 0, 1, 3]],
    "observation": lambda: pltf.observe(FULL.transpose(*TURNED)),
}


@pytest.mark.parametrize("view", VIEWS)
def test_positions_are_along_the_axes_of_the_data(view: str) -> None:
    data = VIEWS[view]()
    values: Array = data.values
    hidden = FULL.copy(data=HIDDEN).transpose(*TURNED)
    if view != "observation":
        hidden = hidden.reindex_like(data)
    for cells in (hidden.values, np.argwhere(hidden.values), np.nonzero(hidden.values)):
        scores = pltf.metrics.score(half_fit(), data, cells, **QUICK)
        np.testing.assert_array_equal(scores.values, values[hidden.values])
        assert scored(scores) == scored(truth())


def test_values_may_be_picked_by_xarray() -> None:
    at = xr.DataArray([0, 2], dims="cell"), xr.DataArray([3, 1], dims="cell"), xr.DataArray([1, 1], dims="cell")
    cells = np.transpose([one.values for one in at])
    picked = FULL.isel(user=at[0], place=at[1], day=at[2])
    np.testing.assert_array_equal(
        cube_fit().log_prob(cells, picked, draws=5), cube_fit().log_prob(cells, picked.values, draws=5)
    )


@pytest.mark.parametrize("order", [["user", "place", "day"], ["day", "user", "place"]])
def test_the_levels_of_a_series_are_its_axes(order: list[str]) -> None:
    series = FULL.transpose(*order).to_series()
    split = pltf.holdout(series, 0.3, seed=1)
    fit = run(split.train)
    scores = pltf.metrics.score(fit, series, split.cells, **QUICK)
    np.testing.assert_array_equal(scores.values, split.values)
    assert scored(scores) == scored(pltf.metrics.score(fit, split, **QUICK))


def test_a_series_that_lists_some_cells_goes_along_the_fit() -> None:
    counts = np.random.default_rng(0).poisson(1.0, (6, 4))
    fit = run(counts, pltf.nmf(("user", "place"), rank=1))
    listed = pd.MultiIndex.from_tuples([(0, 0), (2, 1), (4, 2)])
    for names in (["user", "place"], [None, None]):
        series = pd.Series([1.0, 2.0, 3.0], index=listed.set_names(names))
        assert pltf.metrics.score(fit, series, np.array([[4, 2], [5, 3]]), **QUICK).values.tolist() == [3.0, 0.0]


# -- dates of a time zone -----------------------------------------------------------------------

BERLIN = pd.date_range("2026-01-24", periods=4, tz="Europe/Berlin")
DATED = xr.DataArray(PLANE.values, dims=("user", "place"), coords={"user": USERS, "place": BERLIN})
CLOCKS: dict[str, pd.DatetimeIndex] = {
    "own": BERLIN,
    "on the wall": BERLIN.tz_localize(None),
    "of UTC": BERLIN.tz_convert("UTC"),
}


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("turn", [slice(None), slice(None, None, -1)])
def test_what_goes_with_dates_of_a_zone(clock: str, turn: slice) -> None:
    fit, dates = run(DATED, FLAT), CLOCKS[clock]
    P = fit.factors["P"].mean
    expected = run(DATED, FLAT, fixed={"P": P})
    for known in (
        xr.DataArray(P, dims=("place", "r"), coords={"place": dates})[turn],
        pd.DataFrame(P, index=dates)[turn],
        fit.factors["P"].to_xarray()["mean"],
    ):
        assert_same(run(DATED, FLAT, fixed={"P": known}), expected)
    seen = run(DATED, FLAT, mask=SEEN.to_numpy())
    mask = pd.DataFrame(SEEN.to_numpy(), index=USERS, columns=dates)
    array = xr.DataArray(SEEN.to_numpy(), dims=("user", "place"), coords={"user": USERS, "place": dates})
    assert_same(run(DATED, FLAT, mask=mask.loc[:, mask.columns[turn]]), seen)
    assert_same(run(DATED, FLAT, mask=array[:, turn]), seen)
    np.testing.assert_array_equal(fit.mean(array[:, turn]), fit.mean()[:, turn][SEEN.to_numpy()[:, turn]])


def test_the_hour_that_comes_twice() -> None:
    utc = pd.date_range("2026-10-24 23:30", periods=4, freq="h", tz="UTC")
    data = xr.DataArray(PLANE.values, dims=("user", "place"), coords={"user": USERS, "place": utc})
    fit = run(data, FLAT)
    for place, moment in enumerate(utc.tz_convert("Europe/Berlin")):  # the second and the third are 02:30 both
        at = xr.DataArray([[True]], dims=("user", "place"), coords={"user": ["bob"], "place": [moment]})
        at = at.assign_coords(place=pd.DatetimeIndex([moment]))
        np.testing.assert_array_equal(fit.mean(at), fit.mean()[2, [place]])
