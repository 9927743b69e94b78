"""Arrays of other libraries come in as what they hold."""

from __future__ import annotations

import warnings

import array_api_strict
import numpy as np
import pytest

import pltf
from tests.extras import TORCH

if not TORCH:
    pytest.skip("needs torch", allow_module_level=True)

import torch

COUNTS = np.array([[3, 0, 1], [1, 7, 2]])


def test_tensors_are_used_where_they_are() -> None:
    tensor = torch.tensor(COUNTS)
    seen = pltf.observe(tensor)
    assert isinstance(seen, pltf.data.DenseObservation)
    np.testing.assert_array_equal(seen.values, COUNTS)
    assert np.shares_memory(seen.values, tensor.numpy())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float32, torch.float64, torch.bool])
def test_tensors_of_any_type(dtype: torch.dtype) -> None:
    seen = pltf.observe(torch.tensor(COUNTS > 0).to(dtype))
    assert seen.total == 5


def test_holes_and_masks() -> None:
    known = torch.tensor(COUNTS != 7)
    assert pltf.observe(torch.tensor(COUNTS), mask=known).n_observed == 5
    assert pltf.observe(torch.tensor([[1.0, float("nan")]], requires_grad=True)).n_observed == 1


def test_lists_of_tensors_and_sparse_tensors() -> None:
    cells, values = torch.tensor(np.argwhere(COUNTS)), torch.tensor(COUNTS[COUNTS > 0])
    with warnings.catch_warnings(action="ignore"):  # PyTorch calls its CSR beta
        compressed = torch.tensor(COUNTS).to_sparse_csr()
    for data in (torch.tensor(COUNTS).to_sparse(), compressed):
        seen = pltf.observe(data)
        assert (seen.total, seen.n_observed) == (14, 6)
    assert pltf.observe((cells, values), shape=(2, 3)).total == 14
    with pytest.raises(pltf.PltfError, match=r"X already has a shape, .*2, 3.*: shape must be None"):
        pltf.observe(torch.tensor(COUNTS).to_sparse(), shape=(2, 3), name="X")


def test_a_fit_takes_them() -> None:
    here, there = (pltf.nmf(rank=1).fit(X, max_iter=3, tol=0) for X in (COUNTS, torch.tensor(COUNTS)))
    np.testing.assert_array_equal(here.trace, there.trace)
    sparse = pltf.nmf(rank=1).fit(torch.tensor(COUNTS).to_sparse(), max_iter=3, tol=0)
    assert sparse.bound == pytest.approx(here.bound, rel=1e-12)


def test_other_libraries_too() -> None:
    assert pltf.observe(array_api_strict.asarray(COUNTS)).total == 14


def test_what_cannot_be_read_is_refused_in_a_sentence() -> None:
    with pytest.raises(pltf.PltfError, match=r"X: a torch.Tensor could not be read: Unsupported dtype in DLTensor"):
        pltf.observe(torch.ones((2, 2), dtype=torch.bfloat16), name="X")
    with pytest.raises(pltf.PltfError, match=r"X: expected real or integer numbers, got dtype complex64"):
        pltf.observe(torch.ones((2, 2), dtype=torch.complex64), name="X")
