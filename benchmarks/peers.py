"""The contenders: one function each, from a problem and a number of sweeps to factors and times.

Packages are imported inside the functions: a contender's process holds its own package and no other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from math import prod
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.listed import Array, Listed
from benchmarks.machine import read
from benchmarks.problems import SEED, Problem, Spec


@dataclass(frozen=True)
class Outcome:
    """Result of a contender."""

    factors: list[Array]  # an (n, rank) matrix for each index of the data; none if nothing was fitted
    marks: list[float] = field(default_factory=list)  # clock after each sweep; none if it is not told


Runner = Callable[[Problem, int], Outcome]


@dataclass(frozen=True)
class Contender:
    """A program with its settings."""

    name: str
    run: Runner
    kinds: frozenset[str]  # of problems that it can take
    masks: bool = True  # whether it can leave cells out
    dtype: str = "float64"
    least: int = 0  # cells below which it says nothing
    remark: str = ""

    def takes(self, spec: Spec) -> bool:
        fits = spec.dtype == "float64" or spec.dtype == self.dtype
        return spec.kind in self.kinds and fits and prod(spec.shape) >= self.least

    def remarks(self, spec: Spec) -> str:
        """Notes for its row of the table."""
        blind = "has no mask: was given every cell" if spec.missing and not self.masks else ""
        return "; ".join(filter(None, (self.remark, blind)))


def _pltf(problem: Problem, sweeps: int, *, method: str, dtype: str) -> Outcome:
    import pltf

    matrix = problem.X.ndim == 2
    model = (pltf.nmf if matrix else pltf.cp)(rank=problem.rank)
    # The second factor of an NMF is (rank, columns) in pltf and (columns, rank) here.
    turned = [n == 1 and matrix for n in range(problem.X.ndim)]
    start = [factor.T if turn else factor for factor, turn in zip(problem.start, turned, strict=True)]
    X = problem.X
    data = pltf.observe((X.coords, X.values), shape=X.shape) if isinstance(X, Listed) else X
    marks: list[float] = []
    fit = model.fit(
        data,
        mask=problem.mask,
        method=method,
        prior=pltf.Gamma(shape=0.5, mean=float(problem.start[0].mean())) if method == "vb" else None,
        max_iter=sweeps,
        tol=0,
        init=dict(zip(model.factors, start, strict=True)),
        dtype=dtype,
        progress=False,
        callback=lambda _: marks.append(perf_counter()),
    )
    means = [np.asarray(factor.mean) for factor in fit.factors.values()]
    return Outcome([mean.T if turn else mean for mean, turn in zip(means, turned, strict=True)], marks)


def _pyttb(problem: Problem, sweeps: int) -> Outcome:
    from pyttb.cp_apr import cp_apr
    from pyttb.ktensor import ktensor
    from pyttb.sptensor import sptensor
    from pyttb.tensor import tensor

    X = problem.X
    found, _, told = cp_apr(
        sptensor(X.coords, X.values[:, None], X.shape) if isinstance(X, Listed) else tensor(X),
        problem.rank,
        algorithm="mu",
        init=ktensor(problem.start),
        maxiters=sweeps,
        maxinneriters=1,
        stoptol=0,
        printitn=0,
    )
    first, *others = found.factor_matrices
    return Outcome([first * found.weights, *others], list(told["times"]))


def _tensorly(problem: Problem, sweeps: int) -> Outcome:
    from tensorly.decomposition import non_negative_parafac

    mask = None if problem.mask is None else problem.mask.astype(problem.X.dtype)
    weights, (first, *others) = non_negative_parafac(
        problem.X, problem.rank, n_iter_max=sweeps, init=(None, problem.start), tol=0, mask=mask
    )
    return Outcome([first * weights, *others])


def _torchnmf_cp(problem: Problem, sweeps: int) -> Outcome:
    """BetaMu on a CP written as an einsum; a mask goes on data and rates alike, which drops the cell."""
    import torch
    from torchnmf.trainer import BetaMu

    X = torch.from_numpy(problem.X)
    mask = None if problem.mask is None else torch.from_numpy(problem.mask.astype(problem.X.dtype))
    target = X if mask is None else X * mask
    factors = [torch.nn.Parameter(torch.tensor(factor)) for factor in problem.start]

    def predict() -> tuple[Any, Any]:
        trainer.zero_grad()  # BetaMu adds to the gradients that it finds
        rate = torch.einsum("ir,jr,kr->ijk", *factors)
        return target, rate if mask is None else rate * mask

    trainer = BetaMu(factors, beta=1)
    marks = []
    for _ in range(sweeps):
        trainer.step(predict)
        marks.append(perf_counter())
    return Outcome([factor.detach().numpy() for factor in factors], marks)


def _torchnmf_matrix(problem: Problem, sweeps: int) -> Outcome:
    import torch
    from torchnmf.nmf import NMF

    X = torch.from_numpy(problem.X)
    torch.set_default_dtype(X.dtype)  # NMF makes its parameters in the default dtype
    rows, columns = map(torch.from_numpy, problem.start)
    net = NMF(H=rows, W=columns)  # its model is H @ W.T
    net.fit(X, beta=1, tol=-np.inf, max_iter=sweeps)
    return Outcome([net.H.detach().numpy(), net.W.detach().numpy()])


def _torchnmf(problem: Problem, sweeps: int) -> Outcome:
    return (_torchnmf_matrix if problem.X.ndim == 2 else _torchnmf_cp)(problem, sweeps)


def _sklearn(problem: Problem, sweeps: int) -> Outcome:
    from sklearn.decomposition import NMF

    X = problem.X.matrix() if isinstance(problem.X, Listed) else problem.X
    W, H = problem.start[0].copy(), np.ascontiguousarray(problem.start[1].T)
    estimator = NMF(problem.rank, init="custom", solver="mu", beta_loss="kullback-leibler", tol=0, max_iter=sweeps)
    W = estimator.fit_transform(X, W=W, H=H)
    return Outcome([W, estimator.components_.T])


def _hpfrec(problem: Problem, sweeps: int) -> Outcome:
    """Variational Bayes of a hierarchical model; nothing is checked, kept or saved between the sweeps."""
    from hpfrec import HPF  # type: ignore[import-not-found]

    assert isinstance(problem.X, Listed)
    model = HPF(
        problem.rank,
        ncores=os.cpu_count() or 1,
        maxiter=sweeps,
        stop_crit="maxiter",
        check_every=None,
        use_float=problem.X.dtype == np.float32,
        random_seed=SEED,
        verbose=False,
        reindex=False,
        keep_data=False,
        produce_dicts=False,
        keep_all_objs=False,
    )
    model.fit(problem.X.matrix().tocoo())
    return Outcome([model.Theta, model.Beta])


def _read(problem: Problem, sweeps: int) -> Outcome:
    """No fit: every cell is read once per sweep, by all cores. A lower bound on the time of any fit."""
    assert not isinstance(problem.X, Listed)
    cores = os.cpu_count() or 1
    parts = np.array_split(problem.X.reshape(-1), cores)
    marks = []
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(sweeps):
            read(pool, parts)
            marks.append(perf_counter())
    return Outcome([], marks)


CP, NMF = frozenset({"CP"}), frozenset({"NMF"})
SPARSE_CP, SPARSE_NMF = frozenset({"sparse CP"}), frozenset({"sparse NMF"})
ALL = CP | NMF | SPARSE_CP | SPARSE_NMF
OURS = ("pltf vb", "pltf vb f32", "pltf em", "pltf em f32")
READ = "one read"
BAYES = "KL at the posterior means"
OTHER = "another prior, its own start"

CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("pltf vb", partial(_pltf, method="vb", dtype="float64"), ALL, remark=BAYES),
        Contender("pltf vb f32", partial(_pltf, method="vb", dtype="float32"), ALL, dtype="float32", remark=BAYES),
        Contender("pltf em", partial(_pltf, method="em", dtype="float64"), ALL),
        Contender("pltf em f32", partial(_pltf, method="em", dtype="float32"), ALL, dtype="float32"),
        Contender("pyttb cp_apr mu", _pyttb, CP | SPARSE_CP, masks=False),
        Contender("tensorly mu", _tensorly, CP, remark="Euclidean"),
        Contender("torchnmf", _torchnmf, CP | NMF),
        Contender("torchnmf f32", _torchnmf, CP | NMF, dtype="float32"),
        Contender("scikit-learn mu", _sklearn, NMF | SPARSE_NMF, masks=False),
        Contender("scikit-learn mu f32", _sklearn, NMF | SPARSE_NMF, masks=False, dtype="float32"),
        Contender("hpfrec", _hpfrec, SPARSE_NMF, masks=False, remark=OTHER),
        Contender("hpfrec f32", _hpfrec, SPARSE_NMF, masks=False, dtype="float32", remark=OTHER),
        Contender(READ, _read, CP, dtype="float32", least=10**8, remark="no fit: the data, read by all cores"),
    )
}
