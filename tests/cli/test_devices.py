"""`--device` of the commands."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pltf
from pltf.prediction import on_device
from tests.cli import here
from tests.extras import TORCH
from tests.on_device import NAMES, ON_GPU

if not TORCH:
    pytest.skip("needs torch", allow_module_level=True)

X = np.random.default_rng(0).poisson(np.outer([9, 1, 5, 2], [3, 0.1, 1, 0.5]))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a fit; every request is large enough for a device."""
    monkeypatch.setattr(on_device, "LEAST", 0)
    np.save(tmp_path / "counts.npy", X)
    path = tmp_path / "run.nc"
    fitted = here("fit", tmp_path / "counts.npy", "--nmf", 1, "--holdout", 0.4, "-q", "-o", path)
    assert fitted.code == 0, fitted
    return path


def test_predictions_and_scores(run: Path) -> None:
    there, on_host = (here("predict", run, "--top", 3, "--unsupported", "--device", d) for d in (NAMES[0], "cpu"))
    tables = (pd.read_csv(StringIO(done.out)) for done in (there, on_host))
    pd.testing.assert_frame_equal(*tables, rtol=1e-10)
    scores = [json.loads(here("score", run, "--json", "--device", d).out)["scores"] for d in (NAMES[0], "cpu")]
    assert scores[0]["rmse"]["value"] == pytest.approx(scores[1]["rmse"]["value"], rel=1e-10)


def test_the_request_goes_there(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    to = pltf.Fit.to

    def spy(fit: pltf.Fit, device: str) -> pltf.Fit:
        asked.append(device)
        return to(fit, device)

    monkeypatch.setattr(pltf.Fit, "to", spy)
    here("predict", run, "--top", 1, "-q", "--device", NAMES[0])
    here("score", run, "-q", "--device", NAMES[0])
    assert asked == [NAMES[0], NAMES[0]]


def test_the_plan_tells_the_memory_of_predictions(run: Path) -> None:
    data = run.with_name("counts.npy")
    assert " on the device\n" in here("plan", data, "--nmf", 1, "--device", NAMES[0]).out
    assert json.loads(here("plan", data, "--nmf", 1, "--json", "--device", NAMES[0]).out)["predict_device_bytes"] > 0
    assert " on the device" not in here("plan", data, "--nmf", 1).out


@pytest.mark.parametrize("command", [("predict", "--top", 1), ("score",)])
def test_a_device_that_is_none(run: Path, command: tuple[object, ...]) -> None:
    name, *options = command
    refusal = here(name, run, *options, "--device", "gpu").refusal
    assert refusal.startswith("--device must be 'cpu', 'cuda', 'cuda:1' (or another number) or 'auto', got 'gpu'")
    if not ON_GPU:
        assert here(name, run, *options, "--device", "cuda").refusal.startswith("--device cuda needs a GPU, and")
