"""Files of every format that there has been: each is kept here, and stays readable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pltf

FILES = Path(__file__).parents[1] / "files"


def test_a_fit_of_format_1() -> None:
    fit = pltf.load(FILES / "fit-1.nc")
    assert isinstance(fit, pltf.Fit)
    assert repr(fit.model) == 'Model("X[who,n,day] = A[who,r] * B[n,r] * C[day,r]", r=2)'
    assert (fit.method, fit.dtype, fit.engine, fit.seed, fit.best_restart) == ("vb", "float64", "dense", 7, 1)
    assert (fit.bound, fit.n_iter, fit.converged) == (-73.3443273931814, 9, True)
    assert fit.trace[-1] == fit.bound
    assert list(fit.restarts["best"]) == [False, True]
    assert list(fit.labels["who"].index) == ["ann", "bob", "\0", "çelik"]
    assert list(fit.labels["n"].index) == [-1, 3, 2]
    assert list(fit.labels["day"].index) == [pd.Timestamp("2026-11-09"), pd.Timestamp("0001-01-01")]
    np.testing.assert_allclose(fit.mean().sum(), 224.52172525123063, rtol=1e-14)
    assert fit.factors["A"].mean[:, 1].tolist() == [
        0.6121973243191061,
        0.08294448246264055,
        0.3746802483657212,
        0.22595221084650363,
    ]
    assert (fit.priors["A"].learn, fit.priors["A"].tie) == ("mean", "component")
    assert np.shape(fit.priors["A"].mean) == (1, 2)
    np.testing.assert_array_equal(fit.priors["B"].shape, np.full((3, 1), 0.5))
    assert fit.n_observed == {"X": 23}
    missing = fit.top(1)
    assert missing[["who", "n", "day"]].values.tolist() == [["ann", 3, pd.Timestamp("2026-11-09")]]
    assert fit.held_out is not None
    assert (fit.held_out.cells.tolist(), fit.held_out.values.tolist()) == ([[0, 1, 0]], [5.0])
    assert fit.origin["file"] == "visits.csv"
    assert fit.origin["saved"].startswith("2026-")


def test_a_search_of_format_1() -> None:
    found = pltf.load(FILES / "search-1.nc")
    assert isinstance(found, pltf.Selection)
    assert found.best == {"r": 2}
    assert found.table["bound"].tolist() == [
        -23.500987107059785,
        -23.500987107059792,
        -21.10346578073579,
        -21.34523496877126,
    ]
    assert found.table["sweeps"].tolist() == [5, 5, 8, 10]
    assert found.table["seed"].tolist()[:2] == [3, 9221857584964276806]
    assert found.doubts == ("the best candidate (r=2) has the largest r tried: widen the grid",)
    assert found.n_candidates == 2
    assert found.best_fit.engine == "sparse"
    np.testing.assert_allclose(found.best_fit.mean(at=[(0, 1), (3, 0)]), [2.439418700746173, 5.084818454817478])
    assert found.best_fit.top(1)[["i", "j"]].values.tolist() == [[1, 1]]


@pytest.mark.parametrize("name", ["fit-1.nc", "search-1.nc"])
def test_what_was_loaded_can_be_saved_again(name: str, tmp_path: Path) -> None:
    again = pltf.load(FILES / name)
    again.save(tmp_path / name)
    assert repr(pltf.load(tmp_path / name)) == repr(again)
    assert (FILES / name).stat().st_size < 100_000


def test_paths_may_be_text_or_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fit = pltf.nmf(rank=1).fit(np.ones((2, 3)))
    for name in ("a.nc", "with space.nc", "no_ending", "日本.nc", "~tilde.nc", ".hidden", "file:name.nc"):
        fit.save(name)
        assert pltf.load(name).bound == pltf.load(tmp_path / name).bound == fit.bound  # type: ignore[union-attr]
    (tmp_path / "link.nc").symlink_to(tmp_path / "a.nc")
    assert pltf.load("link.nc").bound == fit.bound  # type: ignore[union-attr]
