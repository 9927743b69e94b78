"""Settings of the whole suite: the tests, and the examples in the docstrings."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import matplotlib
import matplotlib.pyplot as plt
import pytest
from hypothesis import HealthCheck, settings

matplotlib.use("agg")
# What a shell starts in the background ignores Ctrl-C, and so would everything that is started from here.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _figures_are_closed() -> Iterator[None]:
    """Examples leave their figures open, as people do; matplotlib warns of the twenty-first."""
    yield
    plt.close("all")


settings.register_profile(
    "default", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
# A clone that is tested twice gets the same answer; at a desk every run looks at new examples.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, max_examples=80)
settings.load_profile("ci" if os.environ.get("CI") else "default")
