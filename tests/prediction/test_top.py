"""The most probable cells, against sorting all of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pltf
from pltf.inference.progress import Progress
from pltf.prediction import top as module
from pltf.prediction.dispersion import Dispersion
from tests.prediction import COUPLED, CP, STORAGES, TRAIN, TUCKER, believing, every_cell, fitted, small_fit, stored
from tests.reference import Array
from tests.strategies import Case, cases

INDICES = ("i", "j", "k")
QUIET = Progress(shown=False, total=None)


def allowed(full: Array, among: str) -> Any:
    return {"missing": np.isnan(full), "zero": full == 0, "all": np.ones(full.shape, dtype=bool)}[among]


def model_for(modes: int, rank: int) -> pltf.Model:
    """CP, or for two modes a matrix product of three; for one mode a plain list of rates."""
    if modes == 1:
        return pltf.Model("X[i] = A[i] * B[]")
    return pltf.cp(rank=rank) if modes == 3 else pltf.Model("X[i,j] = A[i,p] * G[p,q] * B[q,j]", p=rank, q=2)


@st.composite
def gappy(draw: st.DrawFn) -> Array:
    """Counts with holes, of which something was observed."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    full = rng.poisson(draw(st.sampled_from([0.4, 2.0])), shape).astype(float)
    full[rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 0.8]))] = np.nan
    full.flat[0] = 1.0
    return full


def places(table: Any, modes: int) -> Array:
    rows: Array = table[list(INDICES[:modes])].to_numpy()
    return rows


@pytest.mark.filterwarnings("ignore:the fit has not converged")  # of EM on a handful of cells
@given(gappy(), st.sampled_from(STORAGES), st.sampled_from(["missing", "zero", "all"]), st.data())
def test_the_top_is_that_of_all_cells(full: Array, storage: str, among: str, data: st.DataObject) -> None:
    """Of point estimates prob is 1 - exp(-mean): whatever is sorted, by hand, must come out, ties in any order."""
    modes, k = full.ndim, data.draw(st.integers(1, 12))
    method, least = data.draw(st.sampled_from(["em", "vb"])), data.draw(st.sampled_from([1, 2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_CHILDREN", data.draw(st.sampled_from([2**modes, 64, 1 << 12])))
        patch.setattr("pltf.fit.MOST_LISTED", data.draw(st.sampled_from([0, 1 << 22])))
        fit = model_for(modes, 2).fit(stored(full, storage), method=method, max_iter=3, tol=0, seed=k)
        if among == "missing" and not np.isnan(full).any():
            with pytest.raises(pltf.PltfError, match="no cell of X is missing: among must be 'zero' or 'all'"):
                fit.top(k, among)
            return
        may = allowed(full, among)
        if not may.any():
            with pytest.raises(pltf.PltfError, match=r"no cell of X is (zero|missing)"):
                fit.top(k, among)
            return
        table = fit.top(k, among, atleast=least, draws=20, unsupported=True)
    assert len(table) == min(k, may.sum())
    at = places(table, modes)
    assert may[tuple(at.T)].all()
    assert len(np.unique(at, axis=0)) == len(at)
    np.testing.assert_allclose(table["mean"], fit.mean(at), rtol=1e-12)
    np.testing.assert_allclose(table["sd"], np.sqrt(fit.var(at)), rtol=1e-12)
    assert (np.diff(table["prob"]) <= 0).all()
    if method == "em":
        expected = np.sort(fit.prob(atleast=least, draws=1)[may])[::-1][:k]
        np.testing.assert_allclose(table["prob"], expected, rtol=1e-9, atol=1e-15)


@given(cases(), st.integers(1, 30), st.sampled_from([4, 60, 1 << 12]), st.data())
def test_the_largest_means_are_found(case: Case, count: int, children: int, data: st.DataObject) -> None:
    """Any model, any judgement of cells: the same as sorting; no other cell is larger than ``rest``."""
    fit = fitted(case)
    of = data.draw(st.sampled_from(sorted(case.model.observed)))
    belief, seed = fit._belief(of), data.draw(st.integers(0, 5))
    whole = fit.mean(of=of)
    may = np.random.default_rng(seed).random(whole.shape) < 0.6
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_CHILDREN", children)
        found = module.largest(belief, count, lambda cells: may[tuple(cells)], QUIET)
    expected = np.sort(whole[may])[::-1]
    np.testing.assert_allclose(found.means, expected[:count], rtol=1e-9)
    np.testing.assert_allclose(found.means, whole[tuple(found.cells)], rtol=1e-12)
    assert may[tuple(found.cells)].all()
    assert len({tuple(cell) for cell in found.cells.T}) == found.means.size
    others = may.copy()
    others[tuple(found.cells)] = False
    assert whole[others].max(initial=0) <= found.rest * (1 + 1e-9)


@pytest.mark.parametrize("model", [CP, TUCKER, TRAIN], ids=["cp", "tucker", "train"])
def test_probabilities_and_not_means_decide(model: pltf.Model) -> None:
    """A large mean that is hardly known is less probable to give a count than a smaller one that is sure."""
    fit = small_fit(model)
    table = fit.top(5, "all", draws=1000, unsupported=True)
    expected = fit.prob(draws=1000, seed=1)
    np.testing.assert_allclose(table["prob"], np.sort(expected.ravel())[::-1][:5], atol=0.05)
    np.testing.assert_allclose(table["prob"], expected[tuple(places(table, 3).T)], atol=0.05)


def test_a_doubtful_giant_is_looked_past() -> None:
    """40 cells have huge means of which nearly all draws are zero; only the 41st is likely to give a count."""
    fit = pltf.Model("X[i] = A[i]").fit(np.ones(200), max_iter=1, tol=0)
    C = np.where(np.arange(200) < 40, 1e-3, 1e6)
    mean = np.where(np.arange(200) < 40, 100.0, np.where(np.arange(200) == 150, 3.0, 0.1))
    table = believing(fit, {"A": C}, {"A": mean / C}).top(2, "all", unsupported=True)
    assert table["i"].tolist()[0] == 150
    assert table["prob"][0] == pytest.approx(-math.expm1(-3), rel=1e-3)
    assert table["prob"][1] == pytest.approx(-math.expm1(-0.1), rel=1e-3)


@pytest.mark.parametrize("zeros", [0.0, 0.2])
def test_practically_certain_counts_are_ordered_by_their_mean(zeros: float) -> None:
    """The larger mean is less certain, in the fifth digit."""
    fit = pltf.Model("X[i] = A[i]").fit(np.ones(200), max_iter=1, tol=0)
    mean = np.full(200, 0.1)
    mean[:3] = 20.0, 4e4, 60.0
    C = np.where(np.arange(200) == 1, 1.3, 1e6)
    fit = replace(believing(fit, {"A": C}, {"A": mean / C}), dispersion={"X": Dispersion(zeros=zeros)})
    table = fit.top(3, "all", draws=4000, unsupported=True)
    assert table["prob"].to_numpy() == pytest.approx(1 - zeros, rel=1e-4)
    assert table["i"].tolist() == [1, 2, 0]


@pytest.mark.parametrize("unlisted", ["zero", "missing"])
def test_huge_tensors_are_not_gone_through(unlisted: str) -> None:
    """10^15 cells: what is found is at least what the three busiest rows, columns and layers give."""
    rng = np.random.default_rng(0)
    cells = np.unique(rng.integers(0, 10**5, (3000, 3)), axis=0)
    seen = pltf.observe((cells, rng.poisson(2, len(cells)) + 1), shape=(10**5,) * 3, unlisted=unlisted)
    fit = pltf.cp(rank=3).fit(seen, max_iter=5, tol=0, prior=pltf.Gamma(0.3, 1.0))
    among = "zero" if unlisted == "zero" else "missing"
    table = fit.top(10, among, draws=100, unsupported=True)
    assert len(table) == 10
    listed = set(map(tuple, cells))
    assert not any(tuple(cell) in listed for cell in places(table, 3))
    best = [np.argsort(-fit.factors[name].mean, axis=0)[:3].ravel() for name in "ABC"]
    rivals = np.stack(np.meshgrid(*best), axis=-1).reshape(-1, 3)
    rivals = np.unique([cell for cell in rivals if tuple(cell) not in listed], axis=0)
    means = np.sort(fit.mean(rivals))[::-1]
    found = module.largest(fit._belief("X"), 10, fit._choice(among, fit._belief("X")).allowed, QUIET)
    assert (found.means >= means[:10] * (1 - 1e-9)).all()


def test_ties() -> None:
    """All rates are alike: any cells will do, but each once, and the same ones each time."""
    X = np.ones((5, 4, 3))
    X[1:3, 2, :] = np.nan
    fit = CP.fit(X, fixed={"B": np.ones((4, 2)), "C": np.ones((3, 2))}, method="em", init={"A": np.ones((5, 2))})
    for among, number in (("missing", 6), ("all", 60)):
        table = fit.top(100, among)
        assert len({tuple(cell) for cell in places(table, 3)}) == number
        assert table["prob"].nunique() == 1
        some = [places(fit.top(4, among, seed=seed), 3).tolist() for seed in (0, 0, 1)]
        assert some[0] == some[1] == some[2]


def test_the_same_seed_gives_the_same_table(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = small_fit(TUCKER)
    first = fit.top(7, "all", seed=3)
    assert fit.top(7, "all", seed=3).equals(first)
    assert not fit.top(7, "all", seed=4)["prob"].equals(first["prob"])
    monkeypatch.setattr("pltf.prediction.draws.available_threads", lambda: 5)
    assert fit.top(7, "all", seed=3).equals(first)


def test_columns_and_tensors() -> None:
    fit = small_fit(COUPLED)
    table = fit.top(3, "all", of="Y")
    assert list(table.columns) == ["j", "m", "mean", "sd", "prob", "supported"]
    assert (table["m"] < 5).all()
    assert len(fit.top(3, of="X")) == 3
    with pytest.raises(pltf.PltfError, match=r"no cell of Y is missing: among must be 'zero' or 'all'"):
        fit.top(3, "missing", of="Y")
    with pytest.raises(pltf.PltfError, match=r"of must name an observed tensor \(X, Y\), got None"):
        fit.top(3)


def test_a_tensor_of_one_cell() -> None:
    fit = CP.fit(np.zeros((1, 1, 1)), max_iter=2, tol=0)
    assert places(fit.top(3, "zero"), 3).tolist() == [[0, 0, 0]]
    full = CP.fit(np.ones((1, 1, 1)), max_iter=2, tol=0)
    with pytest.raises(pltf.PltfError, match="no cell of X is zero: among='all' searches the others"):
        full.top(3, "zero")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k must be a whole number of at least 1, got 0"),
        ({"k": 2.5}, "k must be a whole number of at least 1, got 2.5"),
        ({"atleast": 0}, "atleast must be a whole number of at least 1, got 0"),
        ({"among": "holes"}, "among must be one of 'missing', 'zero', 'all'; got 'holes'"),
        ({"among": 3}, "among must be one of 'missing', 'zero', 'all'; got 3"),
        ({"among": every_cell((2, 2))}, r"among must be one of 'missing', 'zero', 'all'; got array\("),
        ({"draws": 0}, "draws must be a whole number of at least 1, got 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"progress": "no"}, "progress must be True or False, got 'no'"),
        ({"unsupported": 1}, "unsupported must be True or False, got 1"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message):
        small_fit(CP).top(**options)


def test_unknown_rows_with_huge_means_are_not_the_most_probable() -> None:
    """Under a sparse prior a row of which nothing was seen has a large mean and is zero all the same."""
    X = np.random.default_rng(0).poisson(2.0, (30, 60)).astype(float)
    keep = np.ones(X.shape, dtype=bool)
    keep[10:] = keep[0, :5] = False
    fit = pltf.nmf(rank=1).fit(X, mask=keep, prior={"W": pltf.Gamma(0.02, 40.0), "H": pltf.Gamma(1.0, 1.0)})
    assert set(fit.top(5, unsupported=True)["i"]) == {0}


def test_a_search_that_cannot_be_sure_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).poisson(2.0, (30, 60)).astype(float)
    keep = np.ones(X.shape, dtype=bool)
    keep[10:] = False
    fit = pltf.nmf(rank=1).fit(X, mask=keep, prior={"W": pltf.Gamma(0.02, 40.0), "H": pltf.Gamma(1.0, 1.0)})
    monkeypatch.setattr("pltf.fit.MOST_LISTED", 0)
    monkeypatch.setattr(module, "MOST_TRIED", 4)
    with pytest.warns(
        pltf.ScoreWarning, match="these are the most probable of the 4 cells with the largest means"
    ) as told:
        fit.top(1, unsupported=True)
    assert told[0].filename == __file__


def test_rows_that_are_all_alike_are_not_gone_through() -> None:
    """10^24 cells, all but a few with the same mean: no box is better than what was found."""
    seen = pltf.observe(([(0, 0, 0, 0)], [1.0]), shape=(10**6,) * 4)
    fit = pltf.cp(("a", "b", "c", "d"), rank=1).fit(seen, max_iter=2, tol=0)
    found = fit.top(2, "zero", draws=50)
    assert len(found) == 2
    assert found["mean"].nunique() == 1


def test_a_search_that_is_too_long_ends_with_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries without any order: bounds of boxes tell next to nothing."""
    rng = np.random.default_rng(0)
    shape = (300, 300, 300)
    cells = np.unique(rng.integers(0, 300, (2000, 3)), axis=0)
    data = pltf.observe((cells, np.ones(len(cells))), shape=shape)
    fit = pltf.cp(rank=8).fit(data, max_iter=3, tol=0)
    monkeypatch.setattr(module, "MOST_BOXES", 12)
    with pytest.warns(pltf.ScoreWarning, match="the search stopped after 12 boxes of cells: others may have means of"):
        some = fit.top(5, among="zero")
    assert len(some) == 5
    assert some["mean"].min() > fit.mean(at=np.argwhere(rng.random(shape) < 0.001)).mean()
    monkeypatch.setattr(module, "MOST_BOXES", 10**6)
    best = fit.top(5, among="zero")
    assert best["prob"].min() >= some["prob"].min()


@pytest.mark.parametrize("atleast", [1, 4])
def test_strays_raise_all_probabilities_alike(atleast: int) -> None:
    fit = small_fit(CP)
    plain, strayed = (
        replace(fit, dispersion={"X": Dispersion(2.0, strays=share, typical=9.0)}).top(
            5, "all", draws=500, atleast=atleast, unsupported=True
        )
        for share in (0.0, 0.1)
    )
    assert plain.drop(columns="prob").equals(strayed.drop(columns="prob"))
    np.testing.assert_allclose(strayed["prob"], 0.9 * plain["prob"] + 0.1 * (8 / 9) ** (atleast - 1))
