"""Reference traces, written by a separate program from the equations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pltf

FILES = sorted((Path(__file__).parents[1] / "golden").glob("*.npz"))
STORAGES = ("dense", "zeros unlisted", "holes unlisted")
TOLERANCE = {"float64": 1e-9, "float32": 1e-4}


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


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_vb(golden: Any, dtype: str, storage: str) -> None:
    model, rtol = _model(golden), TOLERANCE[dtype]
    shapes, means = _by_factor(golden, model, "prior_shape"), _by_factor(golden, model, "prior_mean")
    priors = {name: pltf.Gamma(shapes[name], means[name]) for name in model.factors}
    init = _by_factor(golden, model, "init")
    options: Any = {"init": init, "max_iter": 25, "tol": 0, "dtype": dtype, "accelerate": False}
    fit = model.fit(_stored(golden, storage), prior=priors, **options)
    np.testing.assert_allclose(fit.trace, golden["bound"], rtol=rtol)
    for name, factor in fit.factors.items():
        np.testing.assert_allclose(factor.shape, _by_factor(golden, model, "shape")[name], rtol=rtol)
        np.testing.assert_allclose(factor.scale, _by_factor(golden, model, "scale")[name], rtol=rtol)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_em(golden: Any, dtype: str, storage: str) -> None:
    model, rtol = _model(golden), TOLERANCE[dtype]
    init = _by_factor(golden, model, "init")
    options: Any = {"init": init, "max_iter": 25, "tol": 0, "dtype": dtype, "accelerate": False}
    fit = model.fit(_stored(golden, storage), method="em", **options)
    np.testing.assert_allclose(fit.trace, golden["loglik"], rtol=rtol)
    for name, factor in fit.factors.items():
        np.testing.assert_allclose(factor.mean, _by_factor(golden, model, "em")[name], rtol=rtol)
