"""Shared by the parts: hidden cells, their scores, the popularity baseline, and runs on all cores."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
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
    """The UCLAF links and a mask, True where a cell is kept. A run has the same mask in every part."""
    X = pltf.datasets.uclaf().X
    return X, pltf.holdout(X, missing, seed=run)


def fitted(model: pltf.Model, data: Any, *, restarts: int, run: int, mask: Any = None, **options: Any) -> pltf.Fit:
    """The best of several restarts, by ELBO or likelihood; on one thread, because runs are parallel."""
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
    """Ignore warnings about convergence: such fits are counted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pltf.ConvergenceWarning)
        warnings.simplefilter("ignore", pltf.SelectionWarning)
        yield


def starts(fit: pltf.Fit) -> Json:
    """The best ELBO, the number of restarts, and how many did not converge within the maximum of iterations."""
    converged = fit.restarts["converged"]
    return {"bound": fit.bound, "fits": len(converged), "unconverged": int((~converged).sum())}


def search_starts(found: pltf.Selection) -> Json:
    """The same for a search. Restarts that were dropped from the race count as fits."""
    ended = found.table["stopped"] != "dropped"
    return {"fits": len(found.table), "unconverged": int((ended & ~found.table["converged"]).sum())}


def counted(runs: Iterable[Json]) -> Json:
    """The number of fits, and of those that did not converge, over all runs."""
    runs = list(runs)
    return {key: sum(run[key] for run in runs) for key in ("fits", "unconverged")}


def link_scores(links: Array, score: Array) -> Json:
    """Scores of hidden cells: area under the ROC curve, average precision, and the curve."""
    false_positives, true_positives, _ = roc_curve(links, score)
    return {
        "auc": float(roc_auc_score(links, score)),
        "ap": float(average_precision_score(links, score)),
        "tpr": np.interp(FPR, false_positives, true_positives).tolist(),
    }


def scored_links(model: pltf.Model, missing: float, run: int, **options: Any) -> Json:
    """Fit the UCLAF links that are kept on one mask, and score the hidden ones."""
    X, keep = uclaf_split(missing, run)
    fit = fitted(model, X, mask=keep, run=run, **options)
    return {**link_scores(X[~keep], fit.mean(at=~keep)), **starts(fit)}


def over_runs(runs: Sequence[Json]) -> Json:
    """ELBO and scores of each run, and the mean of the ROC curves."""
    return {
        "bound": [run["bound"] for run in runs],
        "auc": [run["auc"] for run in runs],
        "ap": [run["ap"] for run in runs],
        "tpr": np.round(np.mean([run["tpr"] for run in runs], axis=0), 4).tolist(),
        **counted(runs),
    }


def popularity(X: Array, keep: Array) -> Array:
    """The product-of-marginals baseline for hidden cells, without a factorization."""
    expected = np.zeros(X.shape)
    expected[~keep] = pltf.metrics.popularity(X, ~keep, mask=keep)
    return expected


def plain_popularity(X: Array, keep: Array) -> Array:
    """The plain product of observed means: zero where a user, a location or an activity has no link."""
    rate = np.ones(X.shape)
    for axis in range(X.ndim):
        others = tuple(a for a in range(X.ndim) if a != axis)
        rate *= np.where(keep, X, 0).sum(axis=others, keepdims=True) / keep.sum(axis=others, keepdims=True)
    return rate


def popularity_scores(way: str, missing: float, run: int) -> Json:
    """Scores of the popularity baseline on one mask, ``smoothed`` or ``plain``."""
    X, keep = uclaf_split(missing, run)
    said = plain_popularity(X, keep) if way == "plain" else popularity(X, keep)
    return {**link_scores(X[~keep], said[~keep]), "bound": None, "fits": 0, "unconverged": 0}


def for_all_runs(title: str, work: Callable[..., T], cases: Sequence[tuple[Any, ...]], runs: int) -> list[list[T]]:
    """Run the work for every run of every case, on all cores, with a progress bar; return the results by case."""
    jobs = [(*case, run) for case in cases for run in range(runs)]
    results = Parallel(n_jobs=-1, return_as="generator")(delayed(work)(*job) for job in jobs)
    done = list(bar(results, title, len(jobs)))
    return [done[first : first + runs] for first in range(0, len(done), runs)]


def bar(items: Iterable[T], title: str, total: int) -> Iterable[T]:
    """Show a progress bar, which is removed at the end."""
    hidden = not console.is_terminal
    return track(items, description=f"  {title}", total=total, console=console, transient=True, disable=hidden)


def parser_for(module: str, about: str | None, parts: Iterable[str], quick: str, out: str) -> argparse.ArgumentParser:
    """The command line of a module that runs parts and writes a page."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    choices = [*parts, "page"]
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--only", nargs="+", choices=choices, metavar="PART", help=", ".join(choices))
    parser.add_argument("--out", type=Path, help=out)
    return parser


def save_part(path: Path, work: Callable[[], Json], **about: Any) -> None:
    """Run a part; save its results with its time and machine."""
    console.print(f"{path.stem} ...")
    began = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - began
    about = {"seconds": round(seconds, 1), **about, "machine": machine()}
    path.write_text(json.dumps({**result, **about}) + "\n")
    fits = f", {result['fits']:,} fits, {result['unconverged']:,} not converged" if "fits" in result else ""
    console.print(f"{path.stem}: {seconds:.0f} s{fits}", style="bold")


def saved_parts(parts: Iterable[str], folder: Path) -> dict[str, Json]:
    """The results of the parts that were run."""
    return {name: json.loads(path.read_text()) for name in parts if (path := folder / f"{name}.json").exists()}


def machine() -> Json:
    """The machine on which times were measured."""
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    cpu = names[0].split(":")[1].strip() if names else platform.processor() or platform.machine()
    return {"cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__}
