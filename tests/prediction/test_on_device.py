"""Predictions on a device: those of the host, to the last digits, in parts of bounded memory."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pltf
import pltf.metrics
from pltf.devices import Device
from pltf.prediction import on_device
from pltf.prediction.dispersion import Dispersion
from tests.extras import TORCH
from tests.on_device import NAMES, ON_GPU
from tests.prediction import COUPLED, CP, SHARED, TRAIN, TUCKER, small_fit

if not TORCH:
    pytest.skip("needs torch", allow_module_level=True)

MODELS = {"cp": CP, "tucker": TUCKER, "train": TRAIN, "shared": SHARED, "coupled": COUPLED}
LISTED = np.array([(0, 0, 0), (0, 2, 1), (3, 2, 1), (3, 2, 2), (0, 0, 0)])
VALUES = np.array([0.0, 1.0, 4.0, 40.0, 2.0])
GIBBS = {"method": "gibbs", "burn_in": 20, "draws": 60, "chains": 2, "max_iter": 1000, "tol": 1e-4}
NOISES = {
    "poisson": Dispersion(),
    "negative binomial": Dispersion(0.7),
    "one size for each": Dispersion(np.array([0.3, 2.0, 50.0]), "j"),
    "with a power": Dispersion(1.3, power=1.0),
    "large sizes": Dispersion(1e7),
    "zeros": Dispersion(2.0, zeros=0.2),
    "zeros among poisson": Dispersion(zeros=0.3),
    "strays": Dispersion(2.0, strays=0.05, typical=20.0),
    "all of it": Dispersion(0.5, zeros=0.1, strays=0.05, typical=20.0),
}


@pytest.fixture(autouse=True)
def _however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request goes to the device, part by part."""
    monkeypatch.setattr(on_device, "LEAST", 0)
    for module in ("pltf.prediction.on_device", "pltf.engines.torch.blocks"):
        monkeypatch.setattr(f"{module}.budget", lambda _: 3000)


@cache
def fit_of(name: str, method: str = "vb") -> pltf.Fit:
    with warnings.catch_warnings(action="ignore"):  # so few sweeps
        return small_fit(MODELS[name], **(GIBBS if method == "gibbs" else {"method": method}))


def both(fit: pltf.Fit) -> tuple[pltf.Fit, pltf.Fit]:
    return fit, fit.to(NAMES[0])


def assert_same(fit: pltf.Fit, question: str, *arguments: Any, **options: Any) -> None:
    here, there = (getattr(one, question)(*arguments, **options) for one in both(fit))
    assert isinstance(there, (np.ndarray, tuple))
    np.testing.assert_allclose(there, here, rtol=1e-10, atol=1e-290)


at_all = pytest.mark.parametrize("at", [None, LISTED], ids=["all", "listed"])


@at_all
@pytest.mark.parametrize("method", ["vb", "em", "gibbs"])
@pytest.mark.parametrize("name", MODELS)
def test_moments_are_those_of_the_host(name: str, method: str, at: Any) -> None:
    fit = fit_of(name, method)
    assert_same(fit, "mean", at, of="X")
    assert_same(fit, "var", at, of="X", counts=True)


@at_all
@pytest.mark.parametrize("method", ["vb", "gibbs"])
@pytest.mark.parametrize("name", ["cp", "train"])
def test_draws_are_those_of_the_host(name: str, method: str, at: Any) -> None:
    fit = fit_of(name, method)
    assert_same(fit, "sample", 70, at, seed=3)
    here, there = (one.sample(70, at, seed=3, counts=True) for one in both(fit))
    np.testing.assert_array_equal(there, here)
    assert there.dtype == np.int64


@at_all
@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("method", ["vb", "gibbs"])
def test_intervals_are_those_of_the_host(method: str, counts: bool, at: Any) -> None:
    for level in (0.9, 0.5):
        assert_same(fit_of("cp", method), "interval", at, level, counts=counts, draws=101)


@pytest.mark.parametrize("method", ["vb", "gibbs"])
@pytest.mark.parametrize("noise", NOISES)
def test_probabilities_are_those_of_the_host(noise: str, method: str) -> None:
    fit = replace(fit_of("cp", method), dispersion={"X": NOISES[noise]})
    for atleast in (0, 1, 2, 7):
        assert_same(fit, "prob", LISTED, atleast, draws=60)
    for tail in ("upper", "lower", "both"):
        assert_same(fit, "surprise", LISTED, VALUES + 0.5, tail=tail, draws=60)
    assert_same(fit, "log_prob", LISTED, VALUES, draws=60)


@pytest.mark.parametrize("values", [VALUES * 1e6, np.full(5, 3.5), np.zeros(5)], ids=["large", "halves", "zeros"])
@pytest.mark.parametrize("noise", NOISES)
def test_log_probabilities_of_any_values(noise: str, values: Any) -> None:
    fit = replace(fit_of("cp"), dispersion={"X": NOISES[noise]})
    assert_same(fit, "log_prob", LISTED, values, draws=20)


def test_links() -> None:
    X = (np.random.default_rng(0).random((5, 4, 3)) < 0.4).astype(int)
    fit = CP.fit(X, likelihood="bernoulli", max_iter=5, tol=0)
    for atleast in (0, 1, 2):
        assert_same(fit, "prob", LISTED[:3], atleast, draws=60)
    assert_same(fit, "surprise", LISTED[:3], [0, 1, 0], tail="both", draws=60)
    assert_same(fit, "log_prob", LISTED[:3], [0, 1, 2], draws=60)


@pytest.mark.parametrize("among", ["missing", "all"])
def test_the_most_probable_cells(among: str) -> None:
    here, there = (one.top(5, among, draws=60, unsupported=True) for one in both(fit_of("cp")))
    pd.testing.assert_frame_equal(there, here, rtol=1e-10)
    assert_same(fit_of("cp"), "supported")


def test_scores() -> None:
    X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))
    mask = pltf.holdout(X, 0.4, seed=1)
    here, there = (pltf.metrics.score(one, X, ~mask) for one in both(pltf.nmf(rank=1).fit(X, mask=mask)))
    pd.testing.assert_frame_equal(there.table, here.table, rtol=1e-10)
    pd.testing.assert_frame_equal(there.coverage, here.coverage, rtol=1e-10)


# -- where --------------------------------------------------------------------------------------


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Device]:
    """The devices of requests, as they are made."""
    seen: list[Device] = []
    check = on_device.check_room

    def spy(device: Device, entries: int) -> None:
        seen.append(device)
        check(device, entries)

    monkeypatch.setattr(on_device, "check_room", spy)
    return seen


def test_a_fit_predicts_where_it_was_made(computed: list[Device], tmp_path: Path) -> None:
    X = np.ones((3, 4))
    fit = pltf.nmf(rank=1).fit(X, device=NAMES[0])
    assert pltf.select(pltf.nmf(rank=1), X, r=[1], restarts=1, device=NAMES[0]).best_fit.device == fit.device
    computed.clear()
    for question in (fit.mean, fit.prob, fit.interval, fit.var):
        question()
        assert computed.pop().name == fit.device
        computed.clear()
    path = tmp_path / "run.nc"
    fit.save(path)
    elsewhere: Any
    for elsewhere in (pltf.load(path), pickle.loads(pickle.dumps(fit)), fit.to("cpu")):
        assert elsewhere.device == "cpu"
        elsewhere.prob()
    assert not computed


def test_small_requests_stay_on_the_host(computed: list[Device], monkeypatch: pytest.MonkeyPatch) -> None:
    fit = fit_of("cp").to(NAMES[0])
    monkeypatch.setattr(on_device, "LEAST", 2 * 36 * 100)  # components, cells and draws
    fit.mean()
    fit.prob(draws=99)
    assert not computed
    fit.prob(draws=100)
    assert computed


def test_a_moved_fit_resumes_as_it_would_have() -> None:
    X = np.random.default_rng(0).poisson(3.0, (5, 4))
    fit, whole = (pltf.nmf(rank=2).fit(X, max_iter=n, tol=0, dispersion=None) for n in (6, 12))
    again = pltf.nmf(rank=2).fit(X, init=fit.to(NAMES[0]), max_iter=6, tol=0, dispersion=None)
    np.testing.assert_array_equal(again.trace, whole.trace)


# -- what is refused ----------------------------------------------------------------------------


def test_a_device_that_is_none() -> None:
    with pytest.raises(pltf.PltfError, match=r"^device must be 'cpu', 'cuda', .* got 'gpu'$"):
        fit_of("cp").to("gpu")


@pytest.mark.skipif(ON_GPU, reason="there is a GPU")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(pltf.PltfError, match=r"device='cuda' needs a GPU, and PyTorch .* finds none"):
        fit_of("cp").to("cuda")
    assert fit_of("cp").to("auto").device == "cpu"


def test_a_device_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = fit_of("cp").to(NAMES[0])
    monkeypatch.setattr("pltf.devices.Device.memory", lambda _: (1000.0, 2000.0))
    message = r"the prediction needs 1.\.\d kB on device='.*', which has 1.0 kB free: use device='cpu'"
    for question in (fit.mean, fit.prob):
        with pytest.raises(pltf.PltfError, match=message):
            question()


def test_the_plan_tells_what_predictions_take() -> None:
    plan = CP.plan(np.ones((4, 3, 3)), device=NAMES[0])
    assert plan.predict_device_bytes > 0
    assert CP.plan(np.ones((4, 3, 3))).predict_device_bytes == 0
