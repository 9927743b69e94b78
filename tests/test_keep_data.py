"""Fits without the cells that they saw, and what fits take in memory and on disk."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pltf
import pltf.metrics
import pltf.report
from tests.cli import here
from tests.store import assert_same

MODEL = pltf.cp(rank=2)
X = np.random.default_rng(0).poisson(1.5, (7, 6, 5)).astype(float)
X[::3, 1] = np.nan
AT = np.argwhere(X > 0)
DATA: dict[str, Any] = {
    "dense": X,
    "listed": pltf.observe((AT, X[tuple(AT.T)]), shape=X.shape, missing=np.argwhere(np.isnan(X))),
    "ratings": pltf.observe((AT, X[tuple(AT.T)]), shape=X.shape, unlisted="missing"),
}
UNKNOWN = (
    "this fit was made with keep_data=False, or updates a fit of a cell store, "
    "so it does not know which cells were observed: "
)


def both(data: Any = X, **options: Any) -> tuple[pltf.Fit, pltf.Fit]:
    """The same fit with its data and without."""
    whole, small = (MODEL.fit(data, tol=0, max_iter=8, keep_data=keep, **options) for keep in (True, False))
    return whole, small


@pytest.mark.parametrize("storage", DATA)
def test_what_is_believed_and_predicted_is_the_same(storage: str) -> None:
    whole, small = both(DATA[storage])
    assert (whole.keeps_data, small.keeps_data) == (True, False)
    for a, factor in whole.factors.items():
        np.testing.assert_array_equal(factor.shape, small.factors[a].shape)
        np.testing.assert_array_equal(factor.scale, small.factors[a].scale)
    for ask in _ANSWERED:
        np.testing.assert_array_equal(ask(whole), ask(small))
    pd.testing.assert_frame_equal(whole.top(5, "all"), small.top(5, "all"), check_exact=True)
    pd.testing.assert_frame_equal(whole.components(), small.components(), check_exact=True)
    assert (whole.effective_rank, whole.n_observed) == (small.effective_rank, small.n_observed)
    assert whole.to_xarray().identical(small.to_xarray())


_ANSWERED: list[Callable[[pltf.Fit], Any]] = [
    lambda fit: fit.mean(),
    lambda fit: fit.var(counts=True),
    lambda fit: fit.prob(draws=20),
    lambda fit: fit.interval(draws=20),
    lambda fit: fit.sample(3),
    lambda fit: fit.log_prob([(0, 0, 0)], [2], draws=20),
    lambda fit: fit.surprise([(0, 0, 0)], [2], draws=20),
]


@pytest.mark.parametrize("storage", DATA)
def test_it_goes_on_and_takes_new_rows(storage: str) -> None:
    whole, small = both(DATA[storage])
    more = [MODEL.fit(DATA[storage], tol=0, max_iter=4, init=one) for one in (whole, small)]
    assert_same(*more, seconds=False)
    rows = pd.DataFrame({"i": [0, 0, 1], "j": [0, 5, 2], "k": [1, 2, 4], "n": [3, 1, 2]}).set_index(["i", "j", "k"])[
        "n"
    ]
    new = [one.fold_in(rows, "i", tol=0, max_iter=4) for one in (whole, small)]  # unlisted cells are as in the fit
    assert_same(*new, seconds=False)


@pytest.mark.parametrize("storage", DATA)
def test_it_comes_back_from_a_file(storage: str, tmp_path: Path) -> None:
    _, small = both(DATA[storage])
    small.save(tmp_path / "fit.nc")
    again = pltf.load(tmp_path / "fit.nc")
    assert isinstance(again, pltf.Fit)
    assert not again.keeps_data
    assert_same(small, again)
    assert not pickle.loads(pickle.dumps(small)).keeps_data


def test_it_says_that_the_data_were_not_kept() -> None:
    whole, small = both()
    assert "(195 cells observed)" in repr(whole)
    assert "(195 cells observed, not kept)" in repr(small)
    assert (whole.options.get("keep_data"), small.options.get("keep_data")) == (None, "False")


# -- what it cannot answer ----------------------------------------------------------------------


@pytest.mark.parametrize("storage", DATA)
def test_cells_that_were_missing_or_zero_are_not_known(storage: str) -> None:
    _, small = both(DATA[storage])
    for among in ("missing", "zero"):
        with pytest.raises(pltf.PltfError, match=f"^{UNKNOWN}the most probable cells can be found with among='all'$"):
            small.top(3, among)
    full = MODEL.fit(np.nan_to_num(X), tol=0, max_iter=2, keep_data=False)
    with pytest.raises(pltf.PltfError, match=f"^{UNKNOWN}"):
        full.top(3)


def test_arviz_gets_no_data() -> None:
    with pytest.raises(pltf.PltfError, match=f"^{UNKNOWN}there are no data to give to ArviZ$"):
        both()[1].to_arviz(draws=5)


def test_scores_need_the_holdout() -> None:
    """It knows what the fit has seen."""
    held = pltf.holdout(DATA["listed"], 0.3, seed=1)
    whole, small = both(held.train)
    scores = [pltf.metrics.score(one, held, resamples=20, draws=50) for one in (whole, small)]
    pd.testing.assert_frame_equal(scores[0].table, scores[1].table, check_exact=True)
    for given in ((X, ~np.isnan(X)), (None, None)):
        with pytest.raises(pltf.PltfError, match=f"^{UNKNOWN}pass the Holdout that it was fitted to as X$"):
            pltf.metrics.score(small, *given)


@pytest.mark.parametrize("keep", [1, "no", None])
def test_other_values_are_refused(keep: Any) -> None:
    with pytest.raises(pltf.PltfError, match=r"^keep_data must be True or False, got"):
        MODEL.fit(X, keep_data=keep)


def test_a_checkpoint_that_has_ended_gives_what_is_asked_for(tmp_path: Path) -> None:
    for first in (True, False):
        path = tmp_path / f"{first}.nc"
        MODEL.fit(X, tol=0, max_iter=8, checkpoint=path, keep_data=first)
        for keep, expected in zip((True, False), both(), strict=True):
            given = MODEL.fit(X, tol=0, max_iter=8, checkpoint=path, resume=True, keep_data=keep)
            assert_same(expected, given, seconds=False)


def test_a_report_says_what_it_cannot_show(tmp_path: Path) -> None:
    whole, small = both()
    pages = []
    for fit in (whole, small):
        pltf.report.write(fit, tmp_path / "page.html", progress=False)
        pages.append((tmp_path / "page.html").read_text())
    told = "so it does not know which cells were observed: its most probable missing or empty cells cannot be listed."
    assert [told in page for page in pages] == [False, True]
    assert ["above zero" in page for page in pages] == [True, False]
    assert "There is no such cell" not in pages[1]


def test_the_command_line_answers_or_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    both()[1].save("run.nc")
    Path("cells.csv").write_text("i,j,k\n0,1,2\n")
    assert "195 cells observed, not kept" in here("info", "run.nc").out
    assert here("predict", "run.nc", "--cells", "cells.csv").code == 0
    assert here("predict", "run.nc", "--top", 3, "--among", "all").out.count("\n") == 4
    assert here("report", "run.nc", "-o", "page.html").code == 0
    told = UNKNOWN.replace("keep_data=False", "--no-keep-data")
    for among in ((), ("--among", "zero")):
        refusal = here("predict", "run.nc", "--top", 3, *among).refusal
        assert refusal == told + "the most probable cells can be found with --among all"
    assert "run.nc has no held-out cells: pass a table of cells" in here("score", "run.nc").refusal
    Path("new.csv").write_text("i,j,k,n\n0,1,2,3\n1,0,2,0\n4,2,1,1\n")
    scored = here("score", "run.nc", "new.csv", "--value", "n")
    assert (scored.code, "Scores of 3 cells" in scored.out) == (0, True)
    assert "popularity is that of its expected counts" in scored.err
    assert "run.nc" in here("convert", "run.nc", "out.csv").refusal


# -- sizes --------------------------------------------------------------------------------------


def array_bytes(thing: Any, met: set[int] | None = None) -> int:
    """Bytes of all arrays that can be reached from a thing."""
    met = set() if met is None else met
    if id(thing) in met:
        return 0
    met.add(id(thing))
    if isinstance(thing, np.ndarray):
        return array_bytes(thing.base, met) if isinstance(thing.base, np.ndarray) else thing.nbytes
    if hasattr(thing, "values") and callable(thing.values):
        parts = list(thing.values())
    elif isinstance(thing, (list, tuple)):
        parts = list(thing)
    else:
        parts = list(getattr(thing, "__dict__", {}).values())
    return sum(array_bytes(part, met) for part in parts)


def test_a_fit_takes_at_most_three_times_its_parameters(tmp_path: Path) -> None:
    rng, shape, rank, count = np.random.default_rng(0), (10_000, 8_000, 500), 20, 1_000_000
    at = np.stack([rng.integers(0, size, count) for size in shape], axis=1)
    seen = pltf.observe((at, rng.poisson(1.0, count) + 1), shape=shape, duplicates="sum")
    parameters = 2 * sum(shape) * rank * 8  # C and D in float64
    for keep, times in ((True, 3.0), (False, 1.02)):
        fit = pltf.cp(rank=rank).fit(seen, tol=0.5, max_iter=6, keep_data=keep, progress=False)
        assert fit.converged
        fit.save(tmp_path / "fit.nc")
        assert (tmp_path / "fit.nc").stat().st_size <= times * parameters
        assert parameters <= array_bytes(fit) <= times * parameters
        assert array_bytes(pltf.load(tmp_path / "fit.nc")) <= times * parameters


def test_the_last_steps_are_held_by_fits_that_have_not_converged() -> None:
    """They are several times as large as all else."""
    hasty, settled = MODEL.fit(X, tol=0, max_iter=30), MODEL.fit(X, tol=1e-7)
    assert (hasty.converged, settled.converged) == (False, True)
    assert array_bytes(settled) < array_bytes(hasty)
    assert array_bytes(pickle.loads(pickle.dumps(hasty))) < array_bytes(hasty)
