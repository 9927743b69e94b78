"""Fits to data that are on a device: they stay there, and the result is that of the same data on the host."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import pltf
import pltf.datasets
from pltf.data.on_device import DeviceObservation
from pltf.devices import INTERPRETED
from pltf.engines.plan import Plan
from pltf.engines.registry import build, facts_of
from pltf.engines.torch.dense import TorchDenseEngine
from pltf.engines.torch.plain import PlainPasses
from tests.extras import TORCH
from tests.interpreter import quicken
from tests.on_device import NAMES, ON_GPU, put

if not TORCH:
    pytest.skip("needs torch", allow_module_level=True)
if not ON_GPU:
    quicken()

CP = pltf.cp(rank=2)
CUBE = pltf.datasets.draw(CP, (6, 4, 16), prior=pltf.Gamma(0.7, 1.5), seed=0).counts["X"]  # whole tiles of kernels
MASK = np.random.default_rng(1).random(CUBE.shape) < 0.8
HOLED = np.where(MASK, CUBE, np.nan)
OF_FLOAT64 = [(came, "float64") for came in ("float64", "float32", "int32")]  # as they are kept
OF_FLOAT32 = [(came, "float32") for came in ("float32", "int16", "uint8", "bool")]
# Plain sweeps: acceleration amplifies the last digits, in which sums depend on where arrays lie in memory.
OPTIONS: dict[str, Any] = {"max_iter": 5, "tol": 0, "dispersion": None, "accelerate": False}


def engine_of(tensor: Any, device: str, dtype: str = "float64", mask: Any = None) -> tuple[Plan, TorchDenseEngine]:
    seen = pltf.observe(tensor, mask)
    plan = CP.plan(seen, dtype=dtype, device=device, engine="dense").knowing({"X": facts_of(seen)}, {"X": "poisson"})
    engine = build(plan, {"X": seen})
    assert isinstance(engine, TorchDenseEngine)
    return plan, engine


@pytest.mark.parametrize("device", NAMES)
@pytest.mark.parametrize("types", [*OF_FLOAT64, *OF_FLOAT32], ids=" ".join)
def test_the_engine_uses_the_tensor_of_the_caller(
    types: tuple[str, str], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    came, dtype = types
    tensor = put(CUBE.astype(came), monkeypatch)
    plan, engine = engine_of(tensor, device, dtype)
    elsewhere = CP.plan(pltf.observe(CUBE.astype(came)), dtype=dtype, device=device, engine="dense")
    if ON_GPU and engine._passes.width > engine._table.shape[2]:  # tiles there are wider
        assert plan.device_bytes == elsewhere.device_bytes
    else:
        assert engine._values.table.data_ptr() == tensor.data_ptr()
        assert elsewhere.device_bytes - plan.device_bytes >= tensor.numel() * tensor.element_size()


@pytest.mark.parametrize("shape", [(12, 8, 16), (16, 12, 8), (8, 16, 12), (100, 4, 4), (4, 4, 100), (4, 4, 4)])
def test_arrays_of_any_shape_are_used_where_they_are(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.random.default_rng(0).poisson(1.0, shape).astype(float)
    tensor = put(array, monkeypatch)
    device = "torch:cpu" if not ON_GPU else NAMES[0]
    _, engine = engine_of(tensor, device)
    if not ON_GPU:
        assert engine._values.table.data_ptr() == tensor.data_ptr()
    here, there = (CP.fit(X, device=device, engine="dense", **OPTIONS) for X in (array, tensor))
    np.testing.assert_allclose(there.trace, here.trace, rtol=1e-12)


@pytest.mark.parametrize("device", NAMES)
def test_the_engine_uses_the_mask_of_the_caller(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.random.default_rng(0).poisson(1.0, (20, 8, 8))  # which lies as the table does
    tensor, mask = put(array, monkeypatch), put(array < 2, monkeypatch)
    _, engine = engine_of(tensor, device, mask=mask)
    if isinstance(engine._passes, PlainPasses):
        assert engine._mask.table.data_ptr() == mask.data_ptr()
    else:  # its bits
        ones = engine._passes.ones(engine._mask.table)
        np.testing.assert_array_equal(ones.reshape(array.shape).cpu().numpy(), array < 2)
    assert engine._values.table.data_ptr() != tensor.data_ptr()  # what is missing is 0 in a copy
    np.testing.assert_array_equal(tensor.cpu().numpy(), array)


@pytest.mark.parametrize("device", NAMES)
@pytest.mark.parametrize("way", ["float64", "int64", "holes", "mask", "transposed", "strided", "em", "float32"])
def test_a_fit_is_that_of_the_same_data_on_the_host(way: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    array: Any = {"int64": CUBE, "holes": HOLED}.get(way, CUBE.astype(float))
    mask, options = MASK if way == "mask" else None, dict(OPTIONS)
    options |= {"method": "em"} if way == "em" else {"dtype": "float32"} if way == "float32" else {}
    options |= {"max_iter": 2} if device == INTERPRETED else {}
    tensor = put(array, monkeypatch)
    if way == "transposed":
        array, tensor = array.transpose(2, 0, 1), tensor.permute(2, 0, 1)
    if way == "strided":
        array, tensor = array[::2, :, 1:], tensor[::2, :, 1:]
    here = CP.fit(array, mask=mask, device=device, **options)
    there = CP.fit(tensor, mask=None if mask is None else put(mask, monkeypatch), device=device, **options)
    np.testing.assert_allclose(there.trace, here.trace, rtol=1e-12)
    for name, factor in here.factors.items():
        np.testing.assert_allclose(there.factors[name].mean, factor.mean, rtol=1e-10)


@pytest.mark.parametrize("keep_data", [False, True])
def test_nothing_is_fetched(keep_data: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = pltf.observe(put(HOLED, monkeypatch))
    assert isinstance(seen, DeviceObservation)
    X = np.random.default_rng(3).negative_binomial(1, 0.2, (16, 12))
    counts = pltf.observe(put(X, monkeypatch))
    with warnings.catch_warnings(action="ignore"):  # so few sweeps
        fit = CP.fit(seen, device=NAMES[0], engine="dense", keep_data=keep_data, max_iter=3)
        judged = pltf.nmf(rank=2).fit(counts, device=NAMES[0], engine="dense", keep_data=keep_data)
        on_host = pltf.nmf(rank=2).fit(X, device=NAMES[0], engine="dense")
    assert judged.dispersion["X"].size == pytest.approx(on_host.dispersion["X"].size, rel=1e-6)
    assert "values" not in vars(seen)
    assert "values" not in vars(counts)
    if keep_data:
        assert fit.top(3, "missing", unsupported=True).shape[0] == 3


def test_the_plan_says_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = put(CUBE, monkeypatch)
    assert f"X         6x4x16 int64 on {tensor.device}; nothing missing\n" in str(CP.plan(tensor, device=NAMES[0]))
    assert " int64; nothing missing" in str(CP.plan(CUBE, device=NAMES[0]))


@pytest.mark.parametrize("engine", ["dense", "sparse"])
def test_the_host_takes_them_too(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = CP.fit(HOLED, engine=engine, **OPTIONS)
    there = CP.fit(put(HOLED, monkeypatch), engine=engine, **OPTIONS)
    np.testing.assert_allclose(there.trace, here.trace, rtol=1e-12)


@pytest.mark.parametrize("engine", ["auto", "sparse"])
def test_lists_are_made_of_them(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = (CP.fit(X, engine=engine, device=NAMES[0], **OPTIONS) for X in (HOLED, put(HOLED, monkeypatch)))
    np.testing.assert_allclose(there.trace, here.trace, rtol=1e-12)


def test_a_search_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"r": [1, 2], "restarts": 1, "device": NAMES[0], "criterion": "bound", "max_iter": 5}
    with warnings.catch_warnings(action="ignore"):  # so few sweeps and sizes
        here, there = (pltf.select(pltf.cp(rank=1), X, **options) for X in (CUBE, put(CUBE, monkeypatch)))
    np.testing.assert_allclose(there.table["bound"], here.table["bound"], rtol=1e-12)
