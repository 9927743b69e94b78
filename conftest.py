"""Settings of the whole suite: the tests, and the examples in the docstrings."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.extras import MINIMAL, TORCH
from tests.on_device import ON_GPU

# Examples in docstrings that need an extra: of these names, and of all that is in them.
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

# What a shell starts in the background ignores Ctrl-C, and so would everything that is started from here.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["MPLBACKEND"] = "agg"
if TORCH and not ON_GPU:  # before Triton is imported: its kernels run in Python
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(autouse=True)
def _figures_are_closed() -> Iterator[None]:
    """Examples leave their figures open, as people do; matplotlib warns of the twenty-first."""
    yield
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """On a machine with a GPU, leave out what needs a package that it does not have."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not ON_GPU:
            raise
        pytest.skip(f"needs {error.name}")


def _needs_extra(item: pytest.Item) -> bool:
    if isinstance(item, pytest.DoctestItem):
        absent = (*(EXAMPLES_OF_EXTRAS if MINIMAL else ()), *(() if TORCH else EXAMPLES_OF_TORCH))
        return any(item.name == name or item.name.startswith(f"{name}.") for name in absent)
    return MINIMAL and item.get_closest_marker("extra") is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a minimal run, leave out what needs an extra; without PyTorch what needs that."""
    if not TORCH:
        config.hook.pytest_deselected(items=[item for item in items if _needs_extra(item)])
        items[:] = [item for item in items if not _needs_extra(item)]


settings.register_profile(
    "default", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
# A clone that is tested twice gets the same answer; at a desk every run looks at new examples.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
