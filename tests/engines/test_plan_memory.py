"""What a plan says of memory, beside what NumPy was seen to take (benchmarks/memory.py: beside whole processes)."""

from __future__ import annotations

import gc
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pltf

LOW, HIGH = 0.8, 1.25  # of the measured peak, that the plan may say


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pltf.ConvergenceWarning)
        yield


def _peak(work: Callable[[], object]) -> int:
    """Bytes that work takes at a time."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _array(*shape: int) -> pltf.Observation:
    return pltf.observe(np.random.default_rng(0).poisson(2.0, shape))


def _listed(cells: int, shape: tuple[int, ...], unlisted: str = "zero") -> pltf.Observation:
    rng = np.random.default_rng(0)
    at = np.stack([rng.integers(size, size=cells) for size in shape], axis=1)
    return pltf.observe((at, 1.0 + rng.poisson(2.0, cells)), shape=shape, duplicates="sum", unlisted=unlisted)


FITS: dict[str, tuple[pltf.Model, Callable[[], pltf.Observation], int]] = {
    "array": (pltf.cp(rank=4), lambda: _array(250, 200, 150), 5),
    "list": (pltf.cp(rank=3), lambda: _listed(600_000, (3000, 2000, 200)), 5),
    "list with holes": (pltf.cp(rank=3), lambda: _listed(600_000, (3000, 2000, 200), "missing"), 5),
    "many rows": (pltf.nmf(rank=20), lambda: _listed(30_000, (6000, 4000)), 60),
}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("array", {}),
        ("list", {}),
        ("list with holes", {"dispersion": None}),
        ("many rows", {"dispersion": None}),
        ("many rows", {}),
        ("many rows", {"dispersion": None, "method": "map"}),
    ],
)
def test_the_memory_of_a_fit_is_as_planned(name: str, options: dict[str, Any]) -> None:
    model, data, sweeps = FITS[name]
    seen = data()
    how: dict[str, Any] = {"max_iter": sweeps, "tol": 0, "threads": 1, "progress": False, **options}
    model.fit(seen, **how)  # compiles
    plan = model.plan(seen, threads=1, **options)
    peak = _peak(lambda: model.fit(seen, **how)) + plan.data_bytes
    assert LOW < plan.peak_bytes / peak < HIGH, (plan.peak_bytes, peak)


@pytest.mark.parametrize(("cells", "draws"), [(20_000, 200), (2_000, 1000)])
def test_the_memory_of_predictions_is_as_planned(cells: int, draws: int) -> None:
    model, seen = pltf.cp(rank=3), _array(60, 50, 40)
    fit = model.fit(seen, max_iter=3, tol=0, dispersion=None, progress=False)
    at = np.stack([np.random.default_rng(1).integers(size, size=cells) for size in seen.shape], axis=1)

    def predict() -> None:
        fit.prob(at, draws=draws, progress=False)
        fit.var(at, progress=False)
        fit.interval(at, draws=draws, progress=False)
        fit.interval(at, draws=draws, counts=True, progress=False)

    plan = model.plan(seen)
    peak = _peak(predict) + plan.data_bytes
    assert LOW < plan.predict_bytes(cells, draws) / peak < HIGH, (plan.predict_bytes(cells, draws), peak)
