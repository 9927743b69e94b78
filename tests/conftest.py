"""Settings of the whole suite."""

from __future__ import annotations

import matplotlib
from hypothesis import HealthCheck, settings

matplotlib.use("agg")

settings.register_profile(
    "default", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("default")
