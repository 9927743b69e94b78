"""The result: what it says and what it predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pltf
from pltf.prediction import rates as rates_module

X = np.random.default_rng(0).poisson(3.0, (6, 5, 4))
COUPLED = pltf.Model("X[i,j,k] = A[i,r] * B[j,r] * C[k,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)


def coupled_fit(**options: Any) -> pltf.Fit:
    return COUPLED.fit({"X": X, "Y": np.ones((5, 3))}, tol=0, max_iter=5, **options)


def test_factors_are_named_with_their_indices() -> None:
    fit = coupled_fit(fixed={"D": np.ones((3, 2))})
    assert {name: factor.indices for name, factor in fit.factors.items()} == dict(COUPLED.factors)
    assert isinstance(fit.factors["A"], pltf.Posterior)
    assert isinstance(fit.factors["D"], pltf.Point)
    with pytest.raises(TypeError):
        fit.factors["A"] = None  # type: ignore[index]


def test_results_cannot_be_changed_by_accident() -> None:
    fit = coupled_fit()
    for array in (fit.trace, fit.C["A"], fit.mass["r"], fit.factors["A"].shape):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_mean_at_cells_is_the_whole_tensor_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates_module, "_AT_A_TIME", 7)  # several rounds
    fit = coupled_fit()
    whole = fit.mean(of="X")
    cells = np.argwhere(np.ones(X.shape, dtype=bool))
    np.testing.assert_allclose(fit.mean(at=cells, of="X"), whole.ravel(), rtol=1e-12)
    np.testing.assert_allclose(fit.mean(at=[(0, 0, 0)], of="X"), whole[0, 0, 0], rtol=1e-12)
    np.testing.assert_allclose(fit.mean(at=np.empty((0, 3), dtype=int), of="X"), [])
    np.testing.assert_allclose(fit.mean(at=[], of="X"), [])
    assert fit.mean(of="Y").shape == (5, 3)


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ([(0, 0)], r"at must list cells, one row of 3 positions each; got shape \(1, 2\)"),
        ((0, 0), "at: a tuple must hold one label, position or index array for each of i, j, k"),
        ((0, [0], 0), "at: a tuple must hold one label, position or index array for each of i, j, k"),
        ([(6, 0, 0)], "at: row 0 has 6 for index 'i', which runs from 0 to 5"),
        ([(0, 0, 0), (0, -1, 0)], "at: row 1 has -1 for index 'j', which runs from 0 to 4"),
        ([(0.0, 0.0, 0.0)], "at must hold whole numbers, got dtype float64"),
        (np.ones((2, 2), dtype=bool), "at: a boolean array must have the shape of the tensor"),
    ],
)
def test_refused_cells(at: Any, message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message):
        coupled_fit().mean(at=at, of="X")


def test_several_tensors_must_be_named() -> None:
    with pytest.raises(pltf.PltfError, match=r"of must name an observed tensor \(X, Y\), got None"):
        coupled_fit().mean()


@pytest.mark.parametrize("method", ["vb", "em"])
def test_components_explain_all_counts(method: str) -> None:
    fit = pltf.Model("X[i,j,k] = N[i,j] * B[j,r] * C[k,r]", r=3).fit(X, method=method, tol=0, max_iter=20)
    table = fit.components()
    assert table["mass"].sum() == pytest.approx(X.sum())
    assert table["share"].sum() == pytest.approx(1)
    assert table["mass"].is_monotonic_decreasing
    assert list(table.columns) == ["mass", "share", "B[j]", "C[k]"]
    largest = table.index[0]
    assert table["B[j]"].iloc[0][0] == fit.factors["B"].mean[:, largest].argmax()


def test_components_of_planted_blocks_are_found_in_order() -> None:
    planted = np.zeros((6, 6))
    planted[:3, :3], planted[3:, 3:] = 20, 5
    table = pltf.nmf(rank=2).fit(planted, restarts=5).components(top=3)
    assert [set(rows) for rows in table["W[i]"]] == [{0, 1, 2}, {3, 4, 5}]
    np.testing.assert_allclose(table["mass"], [180, 45], rtol=1e-2)


def test_components_of_several_latent_indices_are_named() -> None:
    fit = pltf.tucker(ranks=(2, 3, 2)).fit(X, tol=0, max_iter=10)
    table = fit.components("q")
    assert len(table) == 3
    assert table["mass"].sum() == pytest.approx(X.sum())
    with pytest.raises(pltf.PltfError, match=r"a latent index of the model \(p, q, r\), for there are several"):
        fit.components()
    with pytest.raises(pltf.PltfError, match="got 'i'"):
        fit.components("i")


def test_refused_components() -> None:
    for top in (-1, 2.5):
        with pytest.raises(pltf.PltfError, match="top must be a whole number of at least 0"):
            coupled_fit().components(top=top)  # type: ignore[arg-type]
    apart = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[k,m] = C[k,r] * D[m,r]", r=2)
    fit = apart.fit({"X": np.ones((3, 2)), "Y": np.ones((4, 5))}, max_iter=2, tol=0)
    with pytest.raises(pltf.PltfError, match="no factor is in all equations that sum over it"):
        fit.components()


def test_components_of_a_coupled_model_count_both_tensors() -> None:
    assert coupled_fit().components()["mass"].sum() == pytest.approx(X.sum() + 15)


def test_repr_tells_what_happened() -> None:
    lines = repr(coupled_fit(seed=3)).split("\n")
    assert lines[0] == '<Fit of Model("""X[i,j,k] = A[i,r] * B[j,r] * C[k,r]'
    text = repr(pltf.cp(rank=2).fit(X, restarts=3, method="em"))
    assert "X 6x5x4 (120 cells observed)" in text
    assert "em, float64, dense engine, seed 0" in text
    assert "converged: 3 iterations added less than 1e-06 of the log-likelihood" in text
    assert "restarts 3, kept restart" in text
