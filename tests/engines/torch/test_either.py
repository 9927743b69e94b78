"""Closed forms and sums of engines take tensors of PyTorch as they take arrays of NumPy."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import pltf
from pltf.engines.base import Counts, OverArrays
from pltf.engines.closed_form import ClosedForm
from pltf.engines.contraction import plan_tree
from pltf.engines.scaled import Scaled
from pltf.engines.sum import SumEngine, Summand
from tests.extras import TORCH
from tests.strategies import Case, cases

if not TORCH:
    pytest.skip("needs PyTorch", allow_module_level=True)
import torch

from pltf.engines.torch import blocks, cells, plain


def on_device(factors: Mapping[str, Any]) -> dict[str, Any]:
    return {name: torch.tensor(array) for name, array in factors.items()}


def assert_same(tensor: Any, array: Any) -> None:
    assert tensor.dtype == torch.float64
    assert tensor.is_contiguous()
    assert tensor.shape == array.shape
    np.testing.assert_allclose(tensor.numpy(), array, rtol=1e-13)


@given(case=cases(whole=True))
def test_closed_form(case: Case) -> None:
    for equation in case.model.equations:
        engine = ClosedForm(equation, case.sizes)
        host = {name: case.init[name] for name in engine.names}
        device = on_device(host)
        assert float(engine.total(device)) == pytest.approx(engine.total(host))
        counts = engine.counts(device)
        for name in engine.names:
            assert_same(engine.exposure(device, name), engine.exposure(host, name))
            assert_same(counts.by_factor[name], np.zeros(host[name].shape))


@given(case=cases())
def test_trees(case: Case) -> None:
    for equation in case.model.equations:
        tree = plan_tree(equation, case.sizes)
        host = [case.init[name] for name in tree.names]
        device = [torch.tensor(array) for array in host]
        everything = tuple(slice(None) for _ in equation.output.indices)
        theirs, ours = (tree.forward(tree.block_leaves(arrays, everything)) for arrays in (host, device))
        np.testing.assert_allclose(np.asarray(ours[-1]), theirs[-1], rtol=1e-13)
        leaves = range(len(host))
        down, twin = tree.backward(ours, ours[-1], leaves), tree.backward(theirs, theirs[-1], leaves)
        for leaf in leaves:
            np.testing.assert_allclose(
                np.asarray(tree.unleaf(leaf, down[leaf])), tree.unleaf(leaf, twin[leaf]), rtol=1e-13
            )


class Fixed(OverArrays):
    """An engine of one factor whose sums are known."""

    names = ("A",)

    def __init__(self, exposure: Any) -> None:
        self._exposure = exposure

    def counts(self, factors: Mapping[str, Any], wanted: Collection[str] | None = None, log: bool = True) -> Counts:
        return Counts({"A": factors["A"] * 2}, 1.0)

    def exposure(self, factors: Mapping[str, Any], of: str) -> Any:
        return self._exposure

    def total(self, factors: Mapping[str, Any]) -> float:
        return float((factors["A"] * self._exposure).sum())

    def fresh(self) -> Fixed:
        return self


class Observed:
    """The observed cells of that engine, of which the second entry has none."""

    def __init__(self, exact: Any) -> None:
        self._exact = exact

    def engine(self) -> Any:
        return None if self._exact is None else Fixed(self._exact)

    def untouched(self, of: str) -> Any:
        return np.array([False, True, False])


def test_sums_with_holes() -> None:
    def tensor(*numbers: float) -> Any:
        return torch.tensor(numbers, dtype=torch.float64)

    factors = {"A": tensor(1, 2, 3)}
    whole = Scaled(Fixed(tensor(4, 4, 4)), np.float64(0.5))
    parts = [Summand(whole), Summand(Fixed(tensor(0.5, 2 + 1e-12, 1)), exposure=-1)]
    assert SumEngine(parts).exposure(factors, "A").tolist() == [1.5, 0, 1]
    engine = SumEngine(parts, Observed(None))
    assert engine.exposure(factors, "A").tolist() == [1.5, 0, 1]
    assert engine.total(factors) == 4.5
    counts = engine.counts(factors)
    assert counts.by_factor["A"].tolist() == [4, 8, 12]
    assert counts.log_term == 2
    lost = [parts[0], Summand(Fixed(tensor(0.5, 2, 2)), exposure=-1)]
    assert SumEngine(lost, Observed(tensor(7, 8, 9))).exposure(factors, "A").tolist() == [7, 8, 9]


# The name of the setting, TF32, and full precision, in this version of PyTorch.
PRECISION: tuple[str, Any, Any] = (
    ("fp32_precision", "tf32", "ieee")
    if hasattr(torch.backends.cuda.matmul, "fp32_precision")
    else ("allow_tf32", True, False)
)


@pytest.fixture
def tf32() -> Iterator[Any]:
    """Products of float32, as programs allow them that train networks."""
    products, name = torch.backends.cuda.matmul, PRECISION[0]
    asked = getattr(products, name)
    setattr(products, name, PRECISION[1])
    yield lambda: getattr(products, name)
    setattr(products, name, asked)


@pytest.mark.parametrize("engine", ["dense", "sparse"])
def test_products_in_float32_do_not_use_tf32(engine: Any, tf32: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, ratios = [], cells.ratios

    def spy(*args: Any, **options: Any) -> Any:
        seen.append(tf32())
        return ratios(*args, **options)

    for module in (plain, blocks):
        monkeypatch.setattr(module, "ratios", spy)
    X = np.random.default_rng(0).poisson(2.0, (6, 5))
    pltf.nmf(rank=2).fit(X, device="torch:cpu", engine=engine, dtype="float32", max_iter=2, tol=0, dispersion=None)
    assert set(seen) == {PRECISION[2]}
    assert tf32() == PRECISION[1]


def test_threads_do_not_take_full_precision_from_each_other(tf32: Any) -> None:
    inside, leave, found = threading.Event(), threading.Event(), []

    def other() -> None:
        with cells._full_precision.of(torch):
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(60)
    with cells._full_precision.of(torch):
        leave.set()
        thread.join()
        found.append(tf32())
    assert [*found, tf32()] == [PRECISION[2], PRECISION[1]]
