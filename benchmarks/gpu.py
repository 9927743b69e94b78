"""Sweeps on a GPU beside the least that the card needs: ``make bench-gpu``, or ``python -m benchmarks.gpu PROBLEM``.

Times of sweeps are differences of two runs that differ in their sweeps alone, so neither compiling nor copying counts.
The floor is what the cells of a sweep take to be read once, or its multiplications to be done, whichever is more.
``--small`` cuts all problems down until any machine takes them, to see that they run: ``--small --device torch:cpu``.

NNEinFact runs beside, if its ``einfact.py`` (github.com/jhood3/einfact) is on ``PYTHONPATH``; its Uber data are read
from ``uber.npz`` in the folder that ``PLTF_DATA`` names.
"""

from __future__ import annotations

import argparse
import importlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import gammaln

import pltf
import pltf.datasets

BANDWIDTH, FLOPS = 4.25e12, 6.7e13  # of an H200: bytes a second as measured, float32 operations by its data sheet
PRIOR = pltf.Gamma(0.5, 1.0)
UBER = "wr,hr,dr,ikr,jkr->whdij"
UBER_SWEEPS, PEER_SWEEPS = 150, 167
HEADS = ("problem", "took", "bar", "bytes", "flops", "floor", "times the floor", "beside")


@dataclass(frozen=True)
class Problem:
    """A model, its data, options of the fit, and the numbers of sweeps whose times are compared."""

    model: pltf.Model
    X: Any
    options: dict[str, Any]
    sweeps: tuple[int, int] = (10, 210)
    mask: Any = None

    def fit(self, device: str, sweeps: int, **more: Any) -> pltf.Fit:
        """So many sweeps, and nothing else."""
        options = {"tol": 0, "max_iter": sweeps, "dispersion": None, "keep_data": False, **self.options, **more}
        return self.model.fit(self.X, mask=self.mask, device=device, **options)


@dataclass(frozen=True)
class Row:
    """What is told of a problem."""

    took: str
    moved: float = 0.0  # bytes of the floor
    operations: float = 0.0
    seconds: float = 0.0  # that are to be compared with the floor
    beside: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """Of the table, from ``bytes`` to ``beside``."""
        if not self.seconds:
            return "", "", "", "", self.beside
        least = max(self.moved / BANDWIDTH, self.operations / FLOPS)
        times = f"{self.seconds / least:.3g}"
        return f"{self.moved:.3g}", f"{self.operations:.3g}", f"{1e3 * least:.3g} ms", times, self.beside


Measure = Callable[[bool, str], Row]  # from whether the problem is to be small, and the device


@dataclass(frozen=True)
class Asked:
    """A row of the table: what it must reach, and how it is measured."""

    bar: str
    measure: Measure = field(repr=False)


# -- problems -----------------------------------------------------------------------------------


def array(size: int, rank: int, missing: float = 0.0, seed: int = 0) -> Any:
    """CP counts of a cube, as float32 if some of them are missing."""
    drawn = pltf.datasets.draw(pltf.cp(rank=rank), (size,) * 3, prior=PRIOR, seed=seed)
    X = drawn.counts["X"].astype(np.float32)
    if missing:
        X[np.random.default_rng(seed).random(X.shape, dtype=np.float32) < missing] = np.nan
    return X


def listed(shape: Sequence[int], cells: int, seed: int = 0) -> pltf.Observation:
    """So many cells at random, more of them at low positions, as real lists have."""
    rng = np.random.default_rng(seed)
    coords = np.stack([(size * rng.random(cells, dtype=np.float32) ** 2.5).astype(np.int64) for size in shape], axis=1)
    coords = np.minimum(coords, np.array(shape) - 1)
    return pltf.observe((coords, rng.integers(1, 6, cells)), shape=tuple(shape), duplicates="sum")


def swept(small: bool, full: tuple[int, int] = (10, 210)) -> tuple[int, int]:
    """The numbers of sweeps of two fits."""
    return (2, 4) if small else full


def dense(rank: int, missing: float = 0.0) -> Measure:
    """Plain sweeps of CP over a cube: those of the paper, with priors that learn nothing."""

    def measure(small: bool, device: str) -> Row:
        options: dict[str, Any] = {"dtype": "float32", "accelerate": False, "prior": PRIOR}
        X = array(20 if small else 500, rank, missing)
        return of_sweeps(Problem(pltf.cp(rank=rank), X, options, swept(small)), device)

    return measure


def sparse(shape: Sequence[int], cells: float, rank: int = 20, beside: str = "") -> Measure:
    """Accelerated sweeps of CP over a list."""

    def measure(small: bool, device: str) -> Row:
        cut = 1e5 if small else 1.0
        sizes = [max(int(size / cut), 5) for size in shape]
        model = pltf.cp(rank=rank) if len(shape) > 2 else pltf.nmf(rank=rank)
        problem = Problem(model, listed(sizes, int(cells / cut)), {"dtype": "float32"}, swept(small, (5, 65)))
        return of_sweeps(problem, device, beside, rate=rank * problem.X.n_positive)

    return measure


def tucker(small: bool, device: str) -> Row:
    """Plain sweeps of a Tucker model over a cube, and NNEinFact's iterations in the same run."""
    side, rank = (12, 3) if small else (200, 10)
    X = np.random.default_rng(0).poisson(1.0, (side,) * 3).astype(np.float32)
    options: dict[str, Any] = {"dtype": "float32", "accelerate": False, "prior": PRIOR}
    row = of_sweeps(Problem(pltf.tucker(ranks=(rank,) * 3), X, options, swept(small)), device)
    peer = peer_run("ip,jq,kr,pqr->ijk", X, {"p": rank, "q": rank, "r": rank}, None, device, 5 if small else 60)
    return beside_peer(row, peer)


@cache
def uber(small: bool) -> tuple[Problem, Any]:
    """The trips of NNEinFact's paper with a tenth of the cells hidden; and where those are."""
    path = Path(os.environ.get("PLTF_DATA", ".")) / "uber.npz"
    if path.exists():
        with np.load(path, allow_pickle=False) as archive:
            Y = archive["Y"]
    elif small:
        Y = np.random.default_rng(0).poisson(0.01, (27, 24, 7, 12, 12))
    else:
        raise FileNotFoundError(f"{path}: it is data/Y.npz of github.com/jhood3/einfact")
    Y = (Y[:5, :6, :, 36:48, 26:38] if small and path.exists() else Y).astype(np.float32)
    kept = np.random.default_rng(11).random(Y.shape) > 0.1
    return Problem(pltf.Model(UBER, r=10, k=6), Y, {"dtype": "float32"}, swept(small, (10, 110)), kept), np.argwhere(
        ~kept
    )


def uber_sweeps(small: bool, device: str) -> Row:
    """A sweep, with acceleration."""
    problem, _ = uber(small)
    peer = peer_run(UBER, problem.X, {"r": 10, "k": 6}, problem.mask, device, 5 if small else 30)
    return beside_peer(of_sweeps(problem, device), peer)


def uber_heldout(small: bool, device: str) -> Row:
    """The mean log-likelihood of the hidden cells, and how long it takes to get there."""
    problem, hidden = uber(small)
    sweeps, more = (5, 5) if small else (UBER_SWEEPS, PEER_SWEEPS)
    problem.fit(device, 2)  # compiles
    began = time.perf_counter()
    fit = problem.fit(device, sweeps)
    took = time.perf_counter() - began
    x = problem.X[tuple(hidden.T)].astype(np.float64)
    told = f"{log_likelihood(x, fit.mean(hidden)):.6f} in {took:.3g} s"
    peer = peer_run(UBER, problem.X, {"r": 10, "k": 6}, problem.mask, device, more)
    if isinstance(peer, str):
        return Row(told, beside=peer)
    theirs = log_likelihood(x, peer.rates[tuple(hidden.T)].astype(np.float64))
    return Row(told, beside=f"NNEinFact {theirs:.6f} in {peer.seconds:.3g} s, {peer.iterations} iterations")


def log_likelihood(x: Any, rate: Any) -> float:
    """Mean over cells."""
    return float(np.mean(x * np.log(np.maximum(rate, 1e-300)) - rate - gammaln(x + 1)))


def search(small: bool, device: str) -> Row:
    """A search of 90 fits to convergence, CP 50^3 of order 7, 40 % missing."""
    side = 12 if small else 50
    X, orders = array(side, 7, 0.4), range(2, 4) if small else range(2, 11)
    options: dict[str, Any] = {"criterion": "bound", "device": device, "dispersion": None}
    pltf.select(pltf.cp(rank=1), X, r=[2], restarts=1, **options)
    began = time.perf_counter()
    pltf.select(pltf.cp(rank=1), X, r=orders, restarts=2 if small else 10, **options)
    return Row(f"{time.perf_counter() - began:.2f} s in all")


def golden(small: bool, device: str) -> Row:
    """How far bounds are from those of the host, relative, in plain sweeps of the reference problems."""
    from tests.inference.test_golden import FILES, STORAGES, SWEEPS, plain_fit

    worst = {"float64": 0.0, "float32": 0.0}
    for path in FILES[:2] if small else FILES:
        with np.load(path, allow_pickle=False) as archive:
            problem = dict(archive)
        for dtype in worst:
            for storage in STORAGES:
                here, there = (plain_fit(problem, storage, "vb", dtype, SWEEPS, d).trace for d in ("cpu", device))
                worst[dtype] = max(worst[dtype], float(np.abs(there / here - 1).max()))
    return Row(", ".join(f"{dtype} {apart:.1e}" for dtype, apart in worst.items()))


PROBLEMS: dict[str, Asked] = {
    "cp-500-7": Asked("0.6 ms: 2000 in 1.2 s", dense(7)),
    "cp-500-7-holes": Asked("1 ms: 2000 in 2 s", dense(7, 0.4)),
    "cp-500-20": Asked("1.5 ms", dense(20)),
    "search": Asked("90 fits in 1 s", search),
    "list-1e8": Asked("20 ms", sparse((10**6, 5 * 10**5, 10**3), 1e8)),
    "list-1e9": Asked("250 ms", sparse((10**7, 10**6, 5 * 10**3), 1e9)),  # minutes until it is sorted on the host
    "uber": Asked("5 ms", uber_sweeps),
    "uber-heldout": Asked("-0.02224, before NNEinFact", uber_heldout),
    "tucker-200": Asked("5 times NNEinFact", tucker),
    "nmf-33e6": Asked("40 G nnz*R/s", sparse((10**6, 3 * 10**4), 3.3e7, beside="published: RcppML on an H100, 4.7 G")),
    "golden": Asked("1e-10, 1e-6 from the CPU", golden),
}


# -- measuring ----------------------------------------------------------------------------------


def of_sweeps(problem: Problem, device: str, beside: str = "", rate: float = 0.0) -> Row:
    """The seconds of a sweep, and its floor; ``rate``: of what it does so many."""
    few, many = problem.sweeps
    problem.fit(device, few)  # compiles
    first, last = (problem.fit(device, sweeps).restarts["seconds"].sum() for sweeps in (few, many))
    seconds = max((last - first) / (many - few), 1e-9)  # of a tiny problem noise alone may be left
    told = f"{1e3 * seconds:.3g} ms" + (f", {rate / seconds / 1e9:.3g} G nnz*R/s" if rate else "")
    return Row(told, *floor(problem), seconds, beside)


def floor(problem: Problem) -> tuple[float, float]:
    """Bytes and multiplications of the cells of a sweep."""
    seen = pltf.observe(problem.X, problem.mask)  # a plan of an array cannot know that nothing is missing
    (one,) = problem.model.plan(seen, dtype="float32", engine=problem.options.get("engine", "auto")).equations
    facts, modes = one.task.facts, len(one.task.shape)
    rates = one.task.tree.flops(one.task.sizes)  # of all cells
    if one.counts.name == "dense":
        moved, operations = 4.0 * facts.cells, 3.0 * rates
    else:
        moved, operations = 4.0 * facts.positive * modes**2, 3.0 * rates / facts.cells * facts.positive
    if one.exposure.name == "mask":
        moved, operations = moved + facts.cells, operations + 2 * rates
    return moved, operations


@dataclass(frozen=True)
class Peer:
    """What NNEinFact did: its seconds, with its own loss, and the rates of all cells."""

    seconds: float
    iterations: int
    rates: Any


def peer_run(spec: str, X: Any, latent: dict[str, int], mask: Any, device: str, iterations: int) -> Peer | str:
    """NNEinFact for KL on the same device; or why it was not run."""
    try:
        package = importlib.import_module("einfact")
    except ImportError:
        return "NNEinFact is not installed"
    where = device.removeprefix("torch:").removeprefix("triton:")
    sizes = {**dict(zip(spec.split("->")[1], X.shape, strict=True)), **latent}
    np.random.seed(0)  # noqa: NPY002  # which it draws from
    model = package.NNEinFact(spec, sizes, device=where, alpha=1.0, beta=0.0)
    with redirect_stdout(StringIO()):
        times = model.fit(X, max_iter=iterations, verbose=False, mask=mask)["time"]
    return Peer(float(times[-1]), len(times) - 1, model.Y_hat.cpu().numpy())


def beside_peer(row: Row, peer: Peer | str) -> Row:
    """A row with how many times as fast it is as an iteration of NNEinFact."""
    if isinstance(peer, str):
        return Row(row.took, row.moved, row.operations, row.seconds, peer)
    one = peer.seconds / peer.iterations
    told = f"NNEinFact {1e3 * one:.3g} ms an iteration: {one / row.seconds:.3g} times"
    return Row(row.took, row.moved, row.operations, row.seconds, told)


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("problems", nargs="*", choices=[*PROBLEMS, []], help="default: all of them")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="the same problems, cut down")
    given = parser.parse_args()
    small = "; problems are cut down: times mean nothing" if given.small else ""
    table, console = Table(*HEADS, title=f"device {given.device}{small}"), Console(width=180)
    for name in given.problems or PROBLEMS:
        asked = PROBLEMS[name]
        try:
            row = asked.measure(given.small, given.device)
        except (pltf.PltfError, OSError) as error:
            row = Row("not run", beside=str(error))
        table.add_row(name, row.took, asked.bar, *row.cells)
        console.print(name, row.took, row.beside)
    console.print(table)


if __name__ == "__main__":
    main()
