"""Reference traces, written by a separate program from the equations, on the host and on a device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pltf
from pltf.devices import INTERPRETED
from tests.extras import TORCH
from tests.interpreter import quicken
from tests.on_device import NAMES, ON_GPU

FILES = sorted((Path(__file__).parents[1] / "golden").glob("*.npz"))
STORAGES = ("dense", "zeros unlisted", "holes unlisted")
TOLERANCE = {"float64": 1e-9, "float32": 1e-4}
OF_HOST = {"float64": 1e-10, "float32": 1e-6}  # that a device may differ from it
SWEEPS = 50
INTERPRETED_SWEEPS = 2  # the interpreter takes milliseconds for each program
ON_DEVICES = [(method, name) for name in NAMES for method in ("vb", "em") if (method, name) != ("em", INTERPRETED)]
VANISHED = 1e-30  # below the range of float32 one zero is as good as another

if TORCH and not ON_GPU:
    quicken()


def test_all_traces_are_here() -> None:
    assert len(FILES) == 5


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def golden(request: pytest.FixtureRequest) -> Any:
    with np.load(request.param, allow_pickle=False) as archive:
        return dict(archive)


def _model(golden: Any) -> pltf.Model:
    spec, sizes = str(golden["spec"]), json.loads(str(golden["dims"]))
    output = spec.split("->")[1]
    return pltf.Model(spec, **{index: size for index, size in sizes.items() if index not in output})


def _stored(golden: Any, storage: str) -> Any:
    """The data as an array with a mask, as non-zeros with a list of holes, or as a list of what was observed."""
    X, mask = golden["X"], golden["mask"]
    if storage == "dense":
        return pltf.observe(X, mask)
    if storage == "zeros unlisted":
        listed = mask & (X > 0)
        return pltf.observe((np.argwhere(listed), X[listed]), shape=X.shape, missing=np.argwhere(~mask))
    return pltf.observe((np.argwhere(mask), X[mask]), shape=X.shape, unlisted="missing")


def _by_factor(golden: Any, model: pltf.Model, key: str) -> dict[str, Any]:
    return {name: golden[f"{key}{number}"] for number, name in enumerate(model.factors)}


def plain_fit(golden: Any, storage: str, method: str, dtype: str, sweeps: int = 25, device: str = "cpu") -> pltf.Fit:
    """Plain sweeps from the start that is stored."""
    model = _model(golden)
    options: dict[str, Any] = {"init": _by_factor(golden, model, "init"), "dtype": dtype, "device": device}
    if method == "vb":
        shapes, means = _by_factor(golden, model, "prior_shape"), _by_factor(golden, model, "prior_mean")
        options["prior"] = {name: pltf.Gamma(shapes[name], means[name]) for name in model.factors}
    options |= {"max_iter": sweeps, "tol": 0, "accelerate": False, "dispersion": None}
    return model.fit(_stored(golden, storage), method=method, **options)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_vb(golden: Any, dtype: str, storage: str) -> None:
    model, rtol = _model(golden), TOLERANCE[dtype]
    fit = plain_fit(golden, storage, "vb", dtype)
    np.testing.assert_allclose(fit.trace, golden["bound"], rtol=rtol)
    for name, factor in fit.factors.items():
        np.testing.assert_allclose(factor.shape, _by_factor(golden, model, "shape")[name], rtol=rtol)
        np.testing.assert_allclose(factor.scale, _by_factor(golden, model, "scale")[name], rtol=rtol)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_em(golden: Any, dtype: str, storage: str) -> None:
    model, rtol = _model(golden), TOLERANCE[dtype]
    fit = plain_fit(golden, storage, "em", dtype)
    np.testing.assert_allclose(fit.trace, golden["loglik"], rtol=rtol)
    for name, factor in fit.factors.items():
        np.testing.assert_allclose(factor.mean, _by_factor(golden, model, "em")[name], rtol=rtol)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("dtype", OF_HOST)
@pytest.mark.parametrize(("method", "device"), ON_DEVICES)
def test_a_device_follows_the_host(golden: Any, method: str, dtype: str, storage: str, device: str) -> None:
    sweeps = INTERPRETED_SWEEPS if device == INTERPRETED else SWEEPS
    there, here = (plain_fit(golden, storage, method, dtype, sweeps, where) for where in (device, "cpu"))
    assert len(there.trace) == sweeps
    np.testing.assert_allclose(there.trace, here.trace, rtol=OF_HOST[dtype])
    for name, factor in here.factors.items():
        np.testing.assert_allclose(there.factors[name].mean, factor.mean, rtol=TOLERANCE[dtype], atol=VANISHED)
