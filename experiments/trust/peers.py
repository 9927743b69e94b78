"""The other tools: each is a function from a task and a setting to a number for every cell.

Packages are imported inside the functions: a tool that is not installed is left out, and named on the page.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import pltf.metrics
from experiments.common import Array
from experiments.trust.tasks import Task

SHRINKAGE = (0.5, 0.3, 0.2, 0.12, 0.07, 0.04, 0.02)
ROUNDS, SWEEPS = 15, 20  # rounds of imputing hidden cells, and iterations per round


@dataclass(frozen=True)
class Peer:
    """A tool, and the settings to choose from."""

    name: str
    predict: Callable[[Task, Any], Array]  # the whole tensor
    settings: tuple[Any, ...] | None = None  # None: the ranks of the data set
    package: str = ""  # required package


def popularity(task: Task, _: Any) -> Array:
    """The product-of-marginals baseline, without a model."""
    rates = np.zeros(task.X.shape)
    rates[task.hidden] = pltf.metrics.popularity(task.X, task.hidden, mask=task.keep)
    return rates


def scikit_learn(task: Task, rank: int) -> Array:
    """NMF by Kullback-Leibler divergence. It has no mask: hidden cells are imputed with its predictions, repeatedly."""
    from sklearn.decomposition import NMF

    X, keep = _matrix(task.X), _matrix(task.keep)
    rng = np.random.default_rng(task.seed)
    level = np.sqrt(X[keep].mean() / rank)
    W, H = (level * (0.5 + rng.random(shape)) for shape in ((len(X), rank), (rank, X.shape[1])))
    with _quiet():
        for _ in range(ROUNDS):
            filled = np.where(keep, X, W @ H)
            nmf = NMF(rank, init="custom", solver="mu", beta_loss="kullback-leibler", max_iter=SWEEPS, tol=0)
            W = nmf.fit_transform(filled, W=W.copy(), H=H.copy())
            H = nmf.components_
    return np.asarray(W @ H).reshape(task.X.shape)


def tensorly(task: Task, rank: int) -> Array:
    """Non-negative PARAFAC with a mask, by Euclidean distance."""
    from tensorly import cp_to_tensor
    from tensorly.decomposition import non_negative_parafac

    with _quiet():
        found = non_negative_parafac(
            np.where(task.keep, task.X, 0.0),
            rank,
            n_iter_max=200,
            init="random",
            random_state=task.seed,
            mask=task.keep.astype(np.float64),
        )
    return np.asarray(cp_to_tensor(found))


def hpfrec(task: Task, rank: int) -> Array:
    """Hierarchical Poisson factorization. It treats every cell that is not listed as zero, also hidden ones."""
    from hpfrec import HPF  # type: ignore[import-not-found]
    from scipy import sparse

    X = _matrix(np.where(task.keep, task.X, 0.0))
    model = HPF(
        rank,
        ncores=1,
        maxiter=200,
        stop_crit="maxiter",
        check_every=None,
        use_float=False,
        random_seed=task.seed + 1,
        verbose=False,
        reindex=False,
        keep_data=False,
        produce_dicts=False,
        keep_all_objs=False,
    )
    with _quiet():
        model.fit(sparse.coo_matrix(X))
    rates = np.zeros(X.shape)
    found = np.asarray(model.Theta @ model.Beta.T)
    rates[: found.shape[0], : found.shape[1]] = found  # it leaves out rows and columns at the end that have no count
    return rates.reshape(task.X.shape)


def svd_of_logs(task: Task, shrinkage: float) -> Array:
    """Soft-imputed singular value decomposition of log(1 + x)."""
    return np.expm1(soft_impute(np.log1p(_matrix(task.X)), _matrix(task.keep), shrinkage)).reshape(task.X.shape)


def soft_impute(Y: Array, keep: Array, shrinkage: float, rounds: int = 100, tol: float = 1e-3) -> Array:
    """Soft-impute: fill hidden cells with the shrunk SVD of the filled table, repeatedly (Mazumder et al. 2010).

    ``shrinkage`` is subtracted from every singular value, as a share of the largest one of the observed cells.
    """
    wide = len(Y) < Y.shape[1]
    Y, keep = (Y.T, keep.T) if wide else (Y, keep)
    mean = Y[keep].mean()
    low = np.zeros(Y.shape)
    less = shrinkage * np.linalg.norm(np.where(keep, Y - mean, 0), 2)
    for _ in range(rounds):
        filled = np.where(keep, Y - mean, low)
        squares, V = np.linalg.eigh(filled.T @ filled)  # of the smaller side: cheaper than an SVD
        values = np.sqrt(np.maximum(squares, 1e-300))
        new = (filled @ (V * np.maximum(1 - less / values, 0))) @ V.T
        moved = np.linalg.norm(new - low) > tol * max(float(np.linalg.norm(low)), 1e-12)
        low = new
        if not moved:
            break
    found: Array = low + mean
    return found.T if wide else found


def _matrix(X: Array) -> Array:
    """A tensor as a matrix, with its first index along the rows."""
    return X.reshape(len(X), -1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore the warnings about convergence of other tools."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


PEERS = (
    Peer("popularity", popularity, settings=(None,)),
    Peer("scikit-learn NMF", scikit_learn),
    Peer("tensorly", tensorly, package="tensorly"),
    Peer("hpfrec", hpfrec, package="hpfrec"),
    Peer("SVD of log(1+x)", svd_of_logs, settings=SHRINKAGE),
)
