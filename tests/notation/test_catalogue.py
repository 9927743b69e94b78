"""Well-known models are nothing but texts."""

from __future__ import annotations

import pytest

import pltf


def test_texts() -> None:
    assert pltf.cp(("a", "b", "c", "d"), rank=2).text == "X[a,b,c,d] = A[a,r] * B[b,r] * C[c,r] * D[d,r]"
    assert pltf.cp(rank=2) == pltf.Model("X[i,j,k] = A[i,r] * B[j,r] * C[k,r]", r=2)
    expected = pltf.Model("X[i,j,k] = A[i,p] * B[j,q] * C[k,r] * G[p,q,r]", p=3, q=2, r=2)
    assert pltf.tucker(ranks=(3, 2, 2)) == expected
    assert pltf.nmf(("doc", "word"), rank=5) == pltf.Model("X[doc,word] = W[doc,r] * H[r,word]", r=5)


def test_many_modes_keep_names_apart() -> None:
    indices = tuple(f"i{n}" for n in range(22))
    model = pltf.cp(indices, rank=1)
    assert len(model.factors) == 22
    assert not {"G", "X"} & set(model.factors)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pltf.cp("ijk", rank=2), "indices must be a sequence of index names"),
        (lambda: pltf.cp((), rank=2), "indices must be a sequence of index names"),
        (lambda: pltf.cp([f"i{n}" for n in range(23)], rank=2), "indices must be 1 to 22 names, got 23"),
        (lambda: pltf.cp(3, rank=2), "indices must be a sequence of index names .* got 3"),  # type: ignore[arg-type]
        (lambda: pltf.tucker(ranks=3.5), "ranks must have one size per index \\(i, j, k\\), got 3.5"),  # type: ignore[arg-type]
        (lambda: pltf.cp(("i", "r"), rank=2), "index 'r' is the name of the latent index of this model: rename it"),
        (lambda: pltf.cp(("i", "two words"), rank=2), "indices must be a sequence of index names"),
        (lambda: pltf.cp(rank=0), "size of 'r' must be a whole number of at least 1, got 0"),
        (lambda: pltf.tucker(ranks=(2, 2)), "ranks must have one size per index \\(i, j, k\\)"),
        (lambda: pltf.tucker(("i", "q"), ranks=(2, 2)), "index 'q' is the name of the latent index of this model"),
        (lambda: pltf.nmf(("i",), rank=2), "indices must be two names"),
        (lambda: pltf.nmf(("i", "i"), rank=2), "index 'i' is repeated in output"),
    ],
)
def test_refusals(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(pltf.PltfError, match=message):
        call()
