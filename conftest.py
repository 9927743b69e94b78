"""Configuration of all tests, including the examples in docstrings."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.extras import MINIMAL, TORCH
from tests.on_device import ON_GPU

# Names whose docstring examples need an extra, including everything inside them.
EXAMPLES_OF_EXTRAS = (
    "pltf.data.stored.open_store",
    "pltf.fit.Fit.to_arviz",
    "pltf.metrics.scores.Scores.plot",
    "pltf.plotting",
    "pltf.report.page.write",
    "pltf.selection.result.Selection.plot",
)
EXAMPLES_OF_TORCH = (
    "pltf.data.device_arrays",
    "pltf.data.on_device",
    "pltf.devices.Device",
    "pltf.devices.site_of",
    "pltf.engines.torch",
    "pltf.inference.algebra.on_device",
    "pltf.prediction.device_noise",
    "pltf.prediction.on_device",
)
_OF_TRITON = [
    "src/pltf/*/torch/*",
    "src/pltf/inference/algebra/*_kernels.py",
    "tests/*_sm90.py",
    "tests/*/alone_kernels.py",
]
collect_ignore_glob = [] if TORCH else _OF_TRITON

# Background jobs of a shell ignore Ctrl-C, and child processes would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["MPLBACKEND"] = "agg"
if TORCH and not ON_GPU:  # must be set before Triton is imported: its kernels then run in Python
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    """A machine with a GPU may lack pytest-timeout, without which tests have no time limit."""
    if ON_GPU and importlib.util.find_spec("pytest_timeout") is None:
        parser.addini("timeout", "unused")


@pytest.fixture(autouse=True)
def _figures_are_closed() -> Iterator[None]:
    """Close the figures of examples; matplotlib warns at the twenty-first open one."""
    yield
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


@pytest.fixture
def tensors_on_device() -> Iterator[None]:
    """Make the tensors of a test on the GPU in `make test-gpu`."""
    if not ON_GPU:
        yield
        return
    import torch

    torch.set_default_device("cuda")
    yield
    torch.set_default_device("cpu")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """On a machine with a GPU, skip tests that need a missing package."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not ON_GPU or str(error.name).partition(".")[0] in ("pltf", "tests"):
            raise
        pytest.skip(f"needs {error.name}")


def _needs_extra(item: pytest.Item) -> bool:
    if isinstance(item, pytest.DoctestItem):
        absent = (*(EXAMPLES_OF_EXTRAS if MINIMAL else ()), *(() if TORCH else EXAMPLES_OF_TORCH))
        return any(item.name == name or item.name.startswith(f"{name}.") for name in absent)
    return MINIMAL and item.get_closest_marker("extra") is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a minimal run, deselect what needs an extra; without PyTorch, what needs PyTorch."""
    if not TORCH:
        config.hook.pytest_deselected(items=[item for item in items if _needs_extra(item)])
        items[:] = [item for item in items if not _needs_extra(item)]


settings.register_profile(
    "default", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
# Deterministic in CI; new examples in every local run.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
