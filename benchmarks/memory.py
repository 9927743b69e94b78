"""Memory planned by :meth:`pltf.Model.plan` and measured peak: ``python -m benchmarks.memory [NAME ...]``.

Each model does each kind of work (fit, search, predictions, report) in a process of its own. The peak is what the
process took beyond interpreter, packages and compiled kernels, which a tiny problem of the same kind brings in first.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import tempfile
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import pltf
import pltf.report
from benchmarks.measure import _forget_peak, _peak_mb, _resident_mb
from benchmarks.processes import Failed, last_line, python
from pltf.engines.plan import Plan
from pltf.selection import search as searching

SWEEPS = 60  # enough for the steps of L-BFGS, which hold most
SHARE_MISSING = 0.2
PREDICTED, DRAWS = 100_000, 1000
THREADS = WORKERS = RESTARTS = 2


@dataclass(frozen=True)
class Case:
    """A model with data of some kind."""

    model: Callable[[], pltf.Model]
    sizes: tuple[int, ...]
    cells: int = 0  # listed ones; 0: an array
    missing: bool = False
    dtype: str = "int64"  # of an array
    rate: float = 2.0
    options: Mapping[str, Any] = field(default_factory=dict)

    def data(self, scale: float = 1.0) -> pltf.Observation:
        """Counts; with a ``scale`` below 1 fewer of them."""
        rng = np.random.default_rng(0)
        shape = tuple(max(4, int(size * scale)) for size in self.sizes)
        if self.cells:
            number = min(max(200, int(self.cells * scale)), math.prod(shape) // 4)
            at = np.stack([rng.integers(size, size=number) for size in shape], axis=1)
            values = 1.0 + rng.poisson(self.rate, number)
            unlisted = "missing" if self.missing else "zero"
            return pltf.observe((at, values), shape=shape, duplicates="sum", unlisted=unlisted)
        array = np.empty(shape, self.dtype)
        for row in array:
            row[...] = rng.poisson(self.rate, row.shape)
        if self.missing:
            for row in array:
                row[rng.random(row.shape) < SHARE_MISSING] = np.nan
        return pltf.observe(array)


CASES: Mapping[str, Case] = {
    "cp, array": Case(lambda: pltf.cp(rank=10), (300, 250, 200)),
    "cp, array with holes": Case(lambda: pltf.cp(rank=8), (250, 200, 200), missing=True, dtype="float64"),
    "cp, float32": Case(lambda: pltf.cp(rank=10), (300, 250, 200), dtype="float32", options={"dtype": "float32"}),
    "nmf, array": Case(lambda: pltf.nmf(rank=20), (4000, 3000)),
    "nmf, mostly zeros": Case(lambda: pltf.nmf(rank=10), (4000, 4000), rate=0.02),
    "tucker, array": Case(lambda: pltf.tucker(ranks=(6, 5, 4)), (200, 200, 150)),
    "cp, listed": Case(lambda: pltf.cp(rank=10), (20_000, 10_000, 500), cells=2_000_000),
    "nmf, listed and missing": Case(lambda: pltf.nmf(rank=20), (50_000, 20_000), cells=1_000_000, missing=True),
    "nmf, many rows": Case(lambda: pltf.nmf(rank=20), (200_000, 50_000), cells=500_000),
    "tucker, listed": Case(lambda: pltf.tucker(ranks=(6, 5, 4)), (20_000, 5_000, 300), cells=1_000_000),
    "nmf, map": Case(lambda: pltf.nmf(rank=20), (100_000, 50_000), cells=500_000, options={"method": "map"}),
}


def fit(case: Case, seen: pltf.Observation, sweeps: int = SWEEPS) -> pltf.Fit:
    """A fit with a fixed number of sweeps."""
    return case.model().fit(seen, max_iter=sweeps, tol=0, threads=THREADS, progress=False, **case.options)


def search(case: Case, seen: pltf.Observation) -> None:
    """A search over two sizes; workers are threads, as the memory of processes would not be measured."""
    searching._worth_processes = lambda *_: False
    model = case.model()
    index, size = next(iter(model.sizes.items()))
    how: dict[str, Any] = {"restarts": RESTARTS, "workers": WORKERS, "criterion": "bound", **case.options}
    how[index] = [size - 1, size]
    pltf.select(model, seen, max_iter=SWEEPS, tol=0, progress=False, **how)


def predict(known: pltf.Fit, cells: int) -> None:
    """All that ``pltf predict --cells`` tells."""
    rng, shape = np.random.default_rng(1), [known.sizes[index] for index in known.model.observed[known.tensor()]]
    at = np.stack([rng.integers(size, size=cells) for size in shape], axis=1)
    how: dict[str, Any] = {"draws": DRAWS, "progress": False}
    for counts in (False, True):
        known.interval(at, counts=counts, **how)
    known.prob(at, **how)
    known.var(at, progress=False)


def report(known: pltf.Fit) -> None:
    """A report that is discarded."""
    with tempfile.TemporaryDirectory() as folder:
        pltf.report.write(known, Path(folder) / "report.html", progress=False)


WORK: Mapping[str, Callable[[Plan], int]] = {
    "fit": lambda plan: plan.peak_bytes,
    "search": lambda plan: plan.search_bytes(WORKERS, RESTARTS),
    "predict": lambda plan: plan.predict_bytes(PREDICTED, DRAWS),
    "report": lambda plan: plan.report_bytes,
}


def _do(work: str, case: Case, seen: pltf.Observation, known: pltf.Fit | None, cells: int) -> None:
    if known is None:
        (fit if work == "fit" else search)(case, seen)
    else:
        predict(known, cells) if work == "predict" else report(known)


def measured(name: str, work: str) -> dict[str, float]:
    """Planned and measured memory, in MB."""
    case, fits = CASES[name], work in ("fit", "search")
    tiny = case.data(0.1)
    _do(work, case, tiny, None if fits else fit(case, tiny, 3), 1000)
    seen = case.data()
    known = None if fits else fit(case, seen, 3)
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    resident = _resident_mb()
    _forget_peak()
    _do(work, case, seen, known, PREDICTED)
    took = {key: case.options[key] for key in ("dtype", "method") if key in case.options}
    plan = case.model().plan(seen, threads=THREADS, **took)
    return {"planned": WORK[work](plan) / 1e6, "peak": _peak_mb() - resident + plan.data_bytes / 1e6}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {'; '.join(CASES)}")
    parser.add_argument("--work", choices=WORK, action="append", help="kinds of work; all of them if not given")
    parser.add_argument("--here", action="store_true", help="measure one of them in this process and print JSON")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.here:
        print(json.dumps(measured(options.names[0], options.work[0])))
        return 0
    for name in options.names or CASES:
        for work in options.work or WORK:
            try:
                found = json.loads(last_line(python("benchmarks.memory", name, "--work", work, "--here")))
            except Failed as error:
                print(f"{name:<26} {work:<8} failed: {error}")
                continue
            ratio = found["planned"] / found["peak"]
            print(f"{name:<26} {work:<8} planned {found['planned']:6.0f} MB, peak {found['peak']:6.0f} MB, {ratio:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
