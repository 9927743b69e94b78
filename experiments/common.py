"""What the parts have in common: hidden cells, their scores, the popularity of rows, and runs on all cores."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

import pltf
import pltf.datasets
import pltf.metrics
from experiments.settings import MAX_ITER, TOL

Array = NDArray[Any]
Json = dict[str, Any]
T = TypeVar("T")

console = Console(soft_wrap=True)

# False positive rates at which ROC curves are averaged: dense where the curves are steep
FPR = np.round(np.concatenate([np.linspace(0, 0.1, 51), np.linspace(0.11, 1, 90)]), 4)


def uclaf_split(missing: float, run: int) -> tuple[Array, Array]:
    """The UCLAF links and a mask, True where a cell is kept. The same run has the same mask in every part."""
    X = pltf.datasets.uclaf().X
    return X, pltf.holdout(X, missing, seed=run)


def fitted(model: pltf.Model, data: Any, *, restarts: int, run: int, mask: Any = None, **options: Any) -> pltf.Fit:
    """The best of some random starts, by the bound or the likelihood; on one thread, for runs go side by side."""
    with quietly():
        return model.fit(
            data,
            mask=mask,
            restarts=restarts,
            seed=run,
            max_iter=MAX_ITER,
            tol=TOL,
            threads=1,
            progress=False,
            **options,
        )


@contextmanager
def quietly() -> Iterator[None]:
    """Fits that do not converge are counted, not shouted about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pltf.ConvergenceWarning)
        warnings.simplefilter("ignore", pltf.SelectionWarning)
        yield


def starts(fit: pltf.Fit) -> Json:
    """The best bound, how many starts there were, and how many had not converged when their sweeps were used up."""
    converged = fit.restarts["converged"]
    return {"bound": fit.bound, "fits": len(converged), "unconverged": int((~converged).sum())}


def search_starts(found: pltf.Selection) -> Json:
    """The same of a search. Starts that were dropped from the race count as fits."""
    ended = found.table["stopped"] != "dropped"
    return {"fits": len(found.table), "unconverged": int((ended & ~found.table["converged"]).sum())}


def counted(runs: Iterable[Json]) -> Json:
    """Fits and failures to converge of all runs together."""
    runs = list(runs)
    return {key: sum(run[key] for run in runs) for key in ("fits", "unconverged")}


def link_scores(links: Array, score: Array) -> Json:
    """Of hidden cells: area under the ROC curve, average precision, and the curve itself."""
    false_positives, true_positives, _ = roc_curve(links, score)
    return {
        "auc": float(roc_auc_score(links, score)),
        "ap": float(average_precision_score(links, score)),
        "tpr": np.interp(FPR, false_positives, true_positives).tolist(),
    }


def over_runs(runs: Sequence[Json]) -> Json:
    """Bounds and scores of each run, and the mean of their ROC curves."""
    return {
        "bound": [run["bound"] for run in runs],
        "auc": [run["auc"] for run in runs],
        "ap": [run["ap"] for run in runs],
        "tpr": np.round(np.mean([run["tpr"] for run in runs], axis=0), 4).tolist(),
        **counted(runs),
    }


def popularity(X: Array, keep: Array) -> Array:
    """How busy the user, the location and the activity of each hidden cell were: no factorization at all."""
    expected = np.zeros(X.shape)
    expected[~keep] = pltf.metrics.popularity(X, ~keep, mask=keep)
    return expected


def plain_popularity(X: Array, keep: Array) -> Array:
    """The bare product of observed means: zero wherever a user, a location or an activity has no link."""
    rate = np.ones(X.shape)
    for axis in range(X.ndim):
        others = tuple(a for a in range(X.ndim) if a != axis)
        rate *= np.where(keep, X, 0).sum(axis=others, keepdims=True) / keep.sum(axis=others, keepdims=True)
    return rate


def popularity_scores(way: str, missing: float, run: int) -> Json:
    """Scores of popularity on one mask: ``smoothed`` or ``plain``."""
    X, keep = uclaf_split(missing, run)
    said = plain_popularity(X, keep) if way == "plain" else popularity(X, keep)
    return {**link_scores(X[~keep], said[~keep]), "bound": None, "fits": 0, "unconverged": 0}


def for_all_runs(title: str, work: Callable[..., T], cases: Sequence[tuple[Any, ...]], runs: int) -> list[list[T]]:
    """Do the work for every run of every case, on all cores, with a bar; for each case the results of its runs."""
    jobs = [(*case, run) for case in cases for run in range(runs)]
    results = Parallel(n_jobs=-1, return_as="generator")(delayed(work)(*job) for job in jobs)
    done = list(bar(results, title, len(jobs)))
    return [done[first : first + runs] for first in range(0, len(done), runs)]


def bar(items: Iterable[T], title: str, total: int) -> Iterable[T]:
    """Show how far the work is; nothing is left of the bar afterwards."""
    hidden = not console.is_terminal
    return track(items, description=f"  {title}", total=total, console=console, transient=True, disable=hidden)


def machine() -> Json:
    """What the times were measured on."""
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    cpu = names[0].split(":")[1].strip() if names else platform.processor() or platform.machine()
    return {"cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__}
