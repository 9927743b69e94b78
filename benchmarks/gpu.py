"""Sweeps on a GPU beside the least that the card needs: ``make bench-gpu``, or ``python -m benchmarks.gpu PROBLEM``.

A sweep is timed within one run, after the first sweeps, so neither compiling nor copying counts. The floor is what the
cells of a sweep take to be read once, or its multiplications to be done, whichever is more. Data are drawn on the
device. Every problem has a process and a time limit of its own and is told when it is done: whatever fails or takes too
long, the others are measured. With ``--total`` seconds for all, name those that were not reached in a second call.
``--small`` cuts all problems down until any machine takes them, to see that they run: ``--small --device torch:cpu``.

NNEinFact runs beside, if its ``einfact.py`` (github.com/jhood3/einfact) is on ``PYTHONPATH``; its Uber data are read
from ``uber.npz`` in the folder that ``PLTF_DATA`` names.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import gammaln
from scipy.stats import poisson

import pltf
from pltf.data.coo import CooObservation
from pltf.devices import device_of
from pltf.engines.plan import TensorPlan
from pltf.fitting import prepare
from pltf.inference.run import run
from pltf.options import FitOptions
from pltf.planning import observations, tensors

BANDWIDTH, FLOPS = 4.25e12, 6.7e13  # of an H200: bytes a second as measured, float32 operations by its data sheet
PRIOR = pltf.Gamma(0.5, 1.0)
UBER = "wr,hr,dr,ikr,jkr->whdij"
UBER_SWEEPS, PEER_SWEEPS = 150, 167
ENOUGH = 20.0  # seconds of sweeps, after which fewer of them are timed than asked for
LIMIT, TOTAL = 240.0, 570.0  # seconds for a problem, and for all of a call
HEADS = ("problem", "took", "bar", "bytes", "flops", "floor", "times the floor", "beside")


@dataclass(frozen=True)
class Problem:
    """A model, its data, options of the fit, and the sweeps that are timed: from the first to the last of these."""

    model: pltf.Model
    X: Any
    options: dict[str, Any]
    sweeps: tuple[int, int] = (10, 210)
    mask: Any = None

    def options_on(self, device: str, sweeps: int) -> dict[str, Any]:
        """So many sweeps, and nothing else."""
        options = {"tol": 0, "max_iter": sweeps, "dispersion": None, "keep_data": False, "progress": False}
        return {**options, **self.options, "device": device}

    def fit(self, device: str, sweeps: int) -> pltf.Fit:
        """A whole fit."""
        return self.model.fit(self.X, mask=self.mask, **self.options_on(device, sweeps))

    def timed(self, device: str) -> tuple[float, TensorPlan]:
        """Seconds of a sweep, and how its sums are computed."""
        few, many = self.sweeps
        options = FitOptions(**self.options_on(device, many + 1))
        data, masks = tensors(self.model, self.X, self.mask)
        ready, seen = prepare(self.model, data, masks, options), observations(data, masks)
        problem = ready.problem(seen)
        start, _ = ready.starting(problem)
        ticks: list[float] = []

        def enough() -> bool:
            """Before each sweep, when the one before it is done."""
            ticks.append(time.perf_counter())
            return len(ticks) > few + 2 and ticks[-1] - ticks[few] > ENOUGH

        run(problem, ready.method, start(0), replace(options.stop, interrupted=enough))
        (one,) = ready.planned_for(seen).equations
        first = min(few, len(ticks) - 2)  # rounding may end a run early
        return (ticks[-1] - ticks[first]) / (len(ticks) - 1 - first), one


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


def torch_on(device: str) -> tuple[Any, Any, Any]:
    """PyTorch, the place of a device, and a source of random numbers there."""
    torch, on = importlib.import_module("torch"), device_of(device)
    place = torch.device("cpu") if on is None else on.place
    return torch, place, torch.Generator(place).manual_seed(0)


def array(size: int, rank: int, device: str, missing: float = 0.0) -> Any:
    """CP counts of a cube, as float32 on the device."""
    (torch, place, source), rng = torch_on(device), np.random.default_rng(0)
    drawn = [torch.tensor(PRIOR.sample((size, rank), rng), dtype=torch.float32, device=place) for _ in range(3)]
    X = torch.poisson(torch.einsum("ir,jr,kr->ijk", *drawn), generator=source)
    if missing:
        X[torch.rand(X.shape, generator=source, device=place) < missing] = math.nan
    return X


def listed(shape: Sequence[int], cells: int, device: str) -> CooObservation:
    """So many cells at random, more of them at low positions, as real lists have; each is listed once.

    It is what ``pltf.observe`` would make of them: checking and sorting 10^9 cells on the host takes minutes.
    """
    torch, place, source = torch_on(device)
    keys = torch.zeros(cells, dtype=torch.int64, device=place)
    for size in shape:
        at = (size * torch.rand(cells, generator=source, device=place) ** 2.5).long().clamp_(max=size - 1)
        keys.mul_(size).add_(at)
    keys = torch.unique(keys)
    values = torch.randint(1, 6, keys.shape, generator=source, device=place, dtype=torch.uint8)
    numbers = np.arange(6)
    often = torch.bincount(values, minlength=6).cpu().numpy()
    coords = np.empty((len(shape), keys.numel()), np.int32)
    for mode, size in reversed(list(enumerate(shape))):
        coords[mode] = keys.remainder(size).int().cpu().numpy()
        keys.div_(size, rounding_mode="floor")
    total, saturated = float(often @ numbers), float(often @ poisson.logpmf(numbers, numbers))
    known = (math.prod(shape), total, saturated, 5.0, tuple(shape))
    missing = np.empty((len(shape), 0), np.int32)
    return CooObservation(*known, coords, values.cpu().numpy().astype(np.float64), "zero", missing)


def swept(small: bool, full: tuple[int, int] = (10, 210)) -> tuple[int, int]:
    """The numbers of sweeps of two fits."""
    return (2, 4) if small else full


def dense(rank: int, missing: float = 0.0) -> Measure:
    """Plain sweeps of CP over a cube: those of the paper, with priors that learn nothing."""

    def measure(small: bool, device: str) -> Row:
        options: dict[str, Any] = {"dtype": "float32", "accelerate": False, "prior": PRIOR}
        X = array(20 if small else 500, rank, device, missing)
        return of_sweeps(Problem(pltf.cp(rank=rank), X, options, swept(small)), device)

    return measure


def sparse(
    shape: Sequence[int], cells: float, rank: int = 20, beside: str = "", model: pltf.Model | None = None
) -> Measure:
    """Accelerated sweeps over a list: of CP, if no other model is given."""
    model = model or (pltf.cp(rank=rank) if len(shape) > 2 else pltf.nmf(rank=rank))

    def measure(small: bool, device: str) -> Row:
        cut = 1e5 if small else 1.0
        sizes = [max(int(size / cut), 5) for size in shape]
        problem = Problem(model, listed(sizes, int(cells / cut), device), {"dtype": "float32"}, swept(small, (5, 65)))
        return of_sweeps(problem, device, beside, rate=rank * problem.X.n_positive)

    return measure


def tucker(small: bool, device: str) -> Row:
    """Plain sweeps of a Tucker model over a cube, and NNEinFact's iterations in the same run."""
    side, rank = (12, 3) if small else (200, 10)
    torch, place, source = torch_on(device)
    X = torch.poisson(torch.ones((side,) * 3, device=place), generator=source)
    options: dict[str, Any] = {"dtype": "float32", "accelerate": False, "prior": PRIOR}
    row = of_sweeps(Problem(pltf.tucker(ranks=(rank,) * 3), X, options, swept(small)), device)
    peer = peer_run(
        "ip,jq,kr,pqr->ijk", X.cpu().numpy(), {"p": rank, "q": rank, "r": rank}, None, device, 5 if small else 60
    )
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


def uber_listed(small: bool, device: str) -> Row:
    """A sweep over the trips as a list, which a model other than CP visits by the kernel of ``joint_passes.py``."""
    problem, _ = uber(small)
    return of_sweeps(replace(problem, options={**problem.options, "engine": "sparse"}), device)


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
    """A search of 90 fits to convergence, CP 50^3 of order 7, 40 % missing: with compiled kernels, and before."""
    side = 12 if small else 50
    X, orders = array(side, 7, device, 0.4).cpu().numpy(), range(2, 4) if small else range(2, 11)
    options: dict[str, Any] = {"criterion": "bound", "device": device, "dispersion": None, "progress": False}
    took = []
    for _ in range(2):
        began = time.perf_counter()
        pltf.select(pltf.cp(rank=1), X, r=orders, restarts=2 if small else 10, **options)
        took.append(time.perf_counter() - began)
    return Row(f"{took[1]:.2f} s in all", beside=f"the first time, with compiling: {took[0]:.2f} s")


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
    "uber": Asked("5 ms", uber_sweeps),
    "uber-list": Asked("5 ms", uber_listed),
    "uber-heldout": Asked("-0.02224, before NNEinFact", uber_heldout),
    "tucker-200": Asked("5 times NNEinFact", tucker),
    "nmf-33e6": Asked("40 G nnz*R/s", sparse((10**6, 3 * 10**4), 3.3e7, beside="published: RcppML on an H100, 4.7 G")),
    "tucker-list-1e7": Asked("none", sparse((10**5, 10**5, 10**3), 1e7, rank=0, model=pltf.tucker(ranks=(5, 5, 5)))),
    "golden": Asked("1e-10, 1e-6 from the CPU", golden),
    "list-1e9": Asked("250 ms", sparse((10**7, 10**6, 5 * 10**3), 1e9)),  # minutes until it starts
}


# -- measuring ----------------------------------------------------------------------------------


def of_sweeps(problem: Problem, device: str, beside: str = "", rate: float = 0.0) -> Row:
    """The seconds of a sweep, and its floor; ``rate``: of what it does so many."""
    seconds, plan = problem.timed(device)
    told = f"{1e3 * seconds:.3g} ms" + (f", {rate / seconds / 1e9:.3g} G nnz*R/s" if rate else "")
    return Row(told, *floor(plan), seconds, beside)


def floor(plan: TensorPlan) -> tuple[float, float]:
    """Bytes and multiplications of the cells of a sweep."""
    facts, modes = plan.task.facts, len(plan.task.shape)
    rates = plan.task.tree.flops(plan.task.sizes)  # of all cells
    if plan.counts.name == "dense":
        moved, operations = 4.0 * facts.cells, 3.0 * rates
    else:
        moved, operations = 4.0 * facts.positive * modes**2, 3.0 * rates / facts.cells * facts.positive
    if plan.exposure.name == "mask":
        moved, operations = moved + facts.cells / 4, operations + 2 * rates  # a bit for each of both sides
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
        return replace(row, beside=peer)
    one = peer.seconds / peer.iterations
    return replace(row, beside=f"NNEinFact {1e3 * one:.3g} ms an iteration: {one / row.seconds:.3g} times")


def measured(name: str, small: bool, device: str, limit: float) -> Row:
    """A problem measured in a process of its own: after a failure of CUDA, a process can no longer use the GPU."""
    command = [sys.executable, "-m", "benchmarks.gpu", name, "--device", device, "--here", *["--small"] * small]
    try:
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return Row("not run", beside=f"it took more than {limit:.3g} s")
    if ended.returncode:
        return Row("not run", beside=f"it failed with code {ended.returncode}")
    return Row(**json.loads(ended.stdout.splitlines()[-1]))


def here(name: str, small: bool, device: str) -> Row:
    """A problem measured in this process."""
    try:
        return PROBLEMS[name].measure(small, device)
    except (pltf.PltfError, OSError) as error:
        return Row("not run", beside=str(error))


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("problems", nargs="*", choices=[*PROBLEMS, []], help="default: all of them")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="the same problems, cut down")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for each problem (default: %(default).0f)")
    parser.add_argument("--total", type=float, default=TOTAL, help="seconds for all problems (default: %(default).0f)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # one problem, whose row is printed
    given = parser.parse_args()
    if given.here:
        print(json.dumps(asdict(here(given.problems[0], given.small, given.device))))
        return
    small = "; problems are cut down: times mean nothing" if given.small else ""
    table, console = Table(*HEADS, title=f"device {given.device}{small}"), Console(width=180)
    began = time.monotonic()
    for name in given.problems or PROBLEMS:
        left = given.total - (time.monotonic() - began)
        row = Row("not run", beside="no time was left")
        if left > 0:
            row = measured(name, given.small, given.device, min(given.limit, left))
        table.add_row(name, row.took, PROBLEMS[name].bar, *row.cells)
        console.print(f"{time.monotonic() - began:.0f} s", name, row.took, *filter(None, row.cells), sep="; ")
    console.print(table)


if __name__ == "__main__":
    main()
