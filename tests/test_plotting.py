"""Figures of fits."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import pltf
from pltf.plotting.axes import plain
from tests.extras import optional

plt = optional("matplotlib.pyplot")
pytestmark = pytest.mark.extra("plot")

ODD = ["$5", "$x$ and \\frac", "_hidden", "a" * 60, "<b>"]


@pytest.fixture(scope="module")
def fit() -> pltf.Fit:
    rng = np.random.default_rng(0)
    day = pd.Timestamp("2026-01-05") + pd.to_timedelta(rng.integers(0, 300, 600), "D")
    users = [*ODD, *(f"user{n}" for n in range(60))]
    events = pd.DataFrame({"user": rng.choice(users, 600), "day": day, "hour": rng.integers(6, 20, 600)})
    seen = pltf.observe(events, dims={"user": "user", "day:week": "week", "hour": "hour"}, count=True)
    return pltf.cp(("user", "week", "hour"), rank=3).fit(seen)


def drawn(ax: object) -> None:
    """Text that matplotlib cannot set shows when the figure is drawn."""
    np.ravel(np.asarray(ax, dtype=object))[0].figure.canvas.draw()


def test_components_have_the_numbers_and_shares_of_the_table(fit: pltf.Fit) -> None:
    ax = fit.plot.components(top=2)
    table = fit.components(top=2)
    names = [one.get_text() for one in ax.get_yticklabels()]
    assert [name.split("\n")[0] for name in names] == [f"r={n}" for n in table.index]
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], table["share"])
    assert [len(name.split("\n")) for name in names] == [4, 4, 4]
    drawn(ax)


def test_more_components_than_fit_on_a_figure_are_told() -> None:
    fit = pltf.nmf(rank=45).fit(np.random.default_rng(0).poisson(3.0, (50, 50)), max_iter=3, tol=0)
    ax = fit.plot.components()
    assert ax.get_title() == "components (the largest 40 of 45)"
    assert len(ax.patches) == 40
    curves = fit.plot.time_courses("i")
    assert curves.get_title() == "components along i (the largest 10 of 45 components)"
    assert len(curves.lines) == 10


def test_factors_keep_an_order_and_tell_what_they_leave_out(fit: pltf.Fit) -> None:
    axes = fit.plot.factors(most=10)
    assert [ax.get_title().split("\n")[0] for ax in axes] == ["A[user,r]", "B[week,r]", "C[hour,r]"]
    users, weeks, hours = (ax.images[0].get_array() for ax in axes)
    assert axes[0].get_title().endswith(f"\n10 of {fit.sizes['user']} along user")
    assert len(users) == 10
    for image, name in ((weeks, "B"), (hours, "C")):
        mean = fit.factors[name].mean
        np.testing.assert_allclose(image, mean / mean.max(axis=0))
    assert [one.get_text() for one in axes[2].get_yticklabels()][:2] == ["6", "8"]  # every second
    drawn(axes)
    (alone,) = fit.plot.factors("C")
    assert alone.get_ylabel() == "hour"
    _, given = plt.subplots(1, 2)
    assert list(fit.plot.factors(["A", "B"], given)) == list(given)


def test_factors_of_any_form() -> None:
    model = pltf.Model("X[i,j,k] = A[i,a] * B[a,j,b] * C[b,k] * S[] * D[i]", a=2, b=2)
    fit = model.fit(np.ones((3, 4, 5)), max_iter=2, tol=0)
    axes = fit.plot.factors()
    shapes = {ax.get_title(): ax.images[0].get_array().shape for ax in axes}
    assert shapes == {"A[i,a]": (3, 2), "B[a,j,b]": (4, 4), "C[b,k]": (5, 2), "S[]": (1, 1), "D[i]": (3, 1)}
    drawn(axes)


def test_labels_are_drawn_as_they_are(fit: pltf.Fit) -> None:
    few = pltf.nmf(("user", "n"), rank=1).fit(pd.DataFrame({"user": ODD, "n": range(5)}))
    ax = few.plot.factors("W")[0]
    assert {one.get_text() for one in ax.get_yticklabels()} == {plain(label) for label in ODD}
    assert plain("$x$ and \\frac") == "\\$x\\$ and \\frac"
    assert len(plain("a" * 60)) == 28
    drawn(ax)
    drawn(few.plot.components())
    drawn(few.plot.time_courses("user"))


def test_courses_are_the_counts_of_each_component(fit: pltf.Fit) -> None:
    ax = fit.plot.time_courses()
    assert ax.get_xlabel() == "week"
    for n, line in enumerate(ax.lines):
        assert line.get_label() == f"r={n}"
        np.testing.assert_allclose(np.sum(line.get_ydata()), fit.mass["r"][n])
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), fit.labels["week"].index)
    low, high = fit.factors["B"].interval(0.5)
    band = fit.plot.time_courses(level=0.5).collections[0].get_paths()[0].vertices[:, 1]
    scale = fit.mass["r"][0] / fit.factors["B"].mean[:, 0].sum()
    assert (band.min(), band.max()) == pytest.approx((scale * low[:, 0].min(), scale * high[:, 0].max()))
    hours = fit.plot.time_courses("hour")
    assert hours.lines[0].get_xdata().tolist() == fit.labels["hour"].index.tolist()
    users = fit.plot.time_courses("user")
    assert len(users.lines[0].get_xdata()) == fit.sizes["user"]
    for ax in (hours, users):
        drawn(ax)


def test_calibration_of_held_out_cells() -> None:
    X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
    mask = pltf.holdout(X, 0.4, seed=1)
    fit = pltf.nmf(rank=1).fit(X, mask=mask)
    assert fit.plot.calibration(X, ~mask, resamples=10).get_title() == "calibration"
    assert fit.plot("calibration", X=X, cells=~mask & (X > 0)).get_ylabel() == "observed count of a cell"
    with pytest.raises(pltf.PltfError, match="X must be the data, because this fit has no held-out cells"):
        fit.plot.calibration()


def test_axes_that_are_given_are_drawn_on(fit: pltf.Fit) -> None:
    for kind in ("components", "time_courses", "trace"):
        ax = plt.figure().subplots()
        assert fit.plot(kind, ax=ax) is ax
        assert ax.has_data()


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        ("factor", {}, r"kind must be one of 'components', 'factors', .*; got 'factor'; did you mean 'factors'\?"),
        ("factors", {"names": "a"}, r"no factor 'a': the factors are A, B, C; did you mean 'A'\?"),
        ("factors", {"most": 0}, "most must be a whole number of at least 1, got 0"),
        (
            "time_courses",
            {"index": "weak"},
            r"index must be an observed index \(user, week, hour\), got 'weak'; ",
        ),
        ("time_courses", {"level": 1.5}, "level must lie between 0 and 1"),
        ("components", {"index": "q"}, r"index must name a latent index of the model \(r\), got 'q'"),
    ],
)
def test_arguments_that_make_no_sense(fit: pltf.Fit, kind: str, options: dict[str, object], told: str) -> None:
    with pytest.raises(pltf.PltfError, match=f"^{told}"):
        fit.plot(kind, **options)


def test_indices_that_have_no_course() -> None:
    plain = pltf.nmf(rank=1).fit(np.ones((2, 3)))
    with pytest.raises(pltf.PltfError, match="none of i, j has dates, hours, weekdays or numbers as labels"):
        plain.plot.time_courses()
    with pytest.raises(pltf.PltfError, match="no factor has 'j' and one latent index, and nothing else"):
        pltf.Model("X[i,j] = A[i] * B[j]").fit(np.ones((2, 3))).plot.time_courses("j")


def test_rows_that_an_update_appended_are_drawn_in_their_order() -> None:
    late, early = (pd.DataFrame({"user": ["ann", "bob"] * 3, "year": [y, y + 1, y + 2] * 2}) for y in (2010, 2000))
    fit = pltf.nmf(("user", "year"), rank=1).fit(late).update(early)
    assert fit.labels["year"].index[0] == 2010  # rows are appended
    years = sorted(fit.labels["year"].index)
    assert fit.plot.time_courses("year").lines[0].get_xdata().tolist() == years
    ticks = fit.plot.factors("H")[0].get_yticklabels()
    assert [one.get_text() for one in ticks] == [str(year) for year in years]


@pytest.mark.parametrize("criterion", ["bound", "heldout", "both"])
def test_a_search_won_by_a_model_without_the_size_that_others_have(criterion: str) -> None:
    models = [pltf.nmf(rank=1), pltf.Model("X[i,j] = A[i] * B[j]")]
    X = np.random.default_rng(0).poisson(3.0, (12, 10))
    with warnings.catch_warnings(action="ignore"):
        found = pltf.select(models, X, r=[2, 3], restarts=1, workers=1, criterion=criterion)
    assert "r" not in found.best
    axes = found.plot()
    drawn(axes)
    assert [ax.get_xlabel() for ax in axes] == ["model", "size of r"]
    assert "choose r" not in axes[1].get_title()


def test_the_chosen_size_has_the_ring_and_the_highest_bound_its_name() -> None:
    """Held-out cells may choose another size than the ELBO."""
    X = np.random.default_rng(0).poisson(np.outer(np.arange(1, 13), np.arange(1, 9)) / 4)
    found = pltf.select(pltf.nmf(rank=1), X, r=[1, 2, 3], restarts=1, workers=1, progress=False)
    winner = next(one for one in found.outcomes if one.label["r"] == 3)
    found = replace(found, winner=winner, best=winner.label)
    ax = found.plot()
    ring = next(line for line in ax.lines if line.get_fillstyle() == "none")
    assert [float(x) for x in ring.get_xdata()] == [3]
    assert float(ring.get_ydata()[0]) == pytest.approx(winner.bound)
    told = {text.xy[0]: text.get_text() for text in ax.texts}
    highest = int(found.table.set_index("r")["bound"].idxmax())
    assert highest != 3
    assert told[highest] == "highest"
    assert told[3].endswith("chosen")
