"""The model: sizes, immutability, repr."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given

import pltf
from tests.strategies import models

COUPLED = """X[i,j,k] = A[i,r] * B[j,r] * C[k,r]
             Y[j,m] = B[j,r] * D[m,r]"""


def test_sizes_and_names() -> None:
    model = pltf.Model(COUPLED, r=3)
    assert dict(model.sizes) == {"r": 3}
    assert list(model.factors) == ["A", "B", "C", "D"]
    assert dict(model.observed) == {"X": ("i", "j", "k"), "Y": ("j", "m")}
    assert model.observed_indices == ("i", "j", "k", "m")
    assert model.index_sizes({"X": (4, 5, 6), "Y": (5, 7)}) == {"i": 4, "j": 5, "k": 6, "m": 7, "r": 3}


def test_numpy_integers_are_sizes() -> None:
    model = pltf.Model("ir,jr->ij", r=np.int64(3))  # type: ignore[arg-type]
    assert model == pltf.Model("ir,jr->ij", r=3)
    assert type(model.sizes["r"]) is int


def test_immutable_hashable_and_equal_by_meaning() -> None:
    model = pltf.Model("ir,jr->ij", r=3)
    same = pltf.Model("X[i,j] = Z1[i,r] * Z2[j,r]", r=3)
    assert model == same
    assert hash(model) == hash(same)
    assert model != pltf.Model("ir,jr->ij", r=4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.equations = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        model.sizes["r"] = 9  # type: ignore[index]
    assert pickle.loads(pickle.dumps(model)) == model
    assert copy.deepcopy(model) == model


@given(model=models())
def test_repr_can_be_read_back(model: pltf.Model) -> None:
    assert eval(repr(model), {"Model": pltf.Model}) == model


def test_repr_of_a_coupled_model_is_readable() -> None:
    assert repr(pltf.Model(COUPLED, r=3)) == (
        'Model("""X[i,j,k] = A[i,r] * B[j,r] * C[k,r]\n         Y[j,m] = B[j,r] * D[m,r]""", r=3)'
    )


def test_resized() -> None:
    assert pltf.tucker(ranks=(2, 2, 2)).resized(q=5).sizes == {"p": 2, "q": 5, "r": 2}


def refused(text: str, **sizes: object) -> str:
    with pytest.raises(pltf.PltfError) as caught:
        pltf.Model(text, **sizes)  # type: ignore[arg-type]
    return str(caught.value)


def test_refusals_of_sizes() -> None:
    assert refused("ir,jr->ij") == "latent index 'r' has no size: give it as a keyword, for example Model(..., r=3)"
    assert refused("ir,jr->ij", r=2, q=3) == "unknown size keyword 'q': the latent indices of this model are r"
    assert refused("i,j->ij", q=3) == "unknown size keyword 'q': the latent indices of this model are none"
    assert refused("ir,jr->ij", r=2, i=3) == "index 'i' is observed in X: its size comes from the data"
    for bad in (0, -1, 2.5, "3", True, None):
        assert refused("ir,jr->ij", r=bad) == f"size of 'r' must be a whole number of at least 1, got {bad!r}"


def test_an_index_in_several_places_must_agree() -> None:
    model = pltf.Model(COUPLED, r=3)
    with pytest.raises(pltf.PltfError, match="index 'j' must have one size, but it is 5 in X and 6 in Y"):
        model.fit({"X": np.ones((4, 5, 6)), "Y": np.ones((6, 7))})
    with pytest.raises(pltf.PltfError, match=r"X must have 3 dimensions \(i, j, k\), got 2: shape \(4, 5\)"):
        model.fit({"X": np.ones((4, 5)), "Y": np.ones((6, 7))})


def test_a_model_is_a_text() -> None:
    with pytest.raises(pltf.PltfError, match="the model must be text such as 'ir,jr->ij', got int"):
        pltf.Model(3)  # type: ignore[arg-type]
