"""Kernels over the entries of factors: the contract of algebras tests what they compute, this how they compile."""

from __future__ import annotations

import pytest

from tests.extras import TORCH

if not TORCH:
    pytest.skip("needs triton", allow_module_level=True)

from tests.sm90 import compiled


def test_all_kernels_compile_and_none_spills() -> None:
    found = compiled("tests.inference.entry_kernels_sm90")
    assert len(found) == 12
    assert {name: one for name, one in found.items() if one.stack or one.local} == {}
