"""Estimates of the log evidence of small problems with their standard errors, to assess the ELBO."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

from pltf.data import CooObservation, DenseObservation, Observation, StoredObservation, observe
from pltf.data.observe import observed_again
from pltf.data.pattern import kept
from pltf.engines.base import Engine
from pltf.engines.plan import in_time
from pltf.engines.registry import facts_of, tensor_engine
from pltf.engines.scaled import Scaled
from pltf.engines.sum import SumEngine, Summand
from pltf.errors import ConvergenceWarning, PltfError, py, warn_caller, whole
from pltf.fit import Fit
from pltf.fitting import PreparedFit, prepare
from pltf.gamma import Gamma
from pltf.inference.algebra import Factors
from pltf.inference.evidence import Stage, log_evidence, log_mean
from pltf.inference.gibbs import NAME as GIBBS
from pltf.inference.progress import Progress
from pltf.inference.state import Problem
from pltf.inference.vb import VB, posterior_state
from pltf.interrupts import first_interrupt_waits
from pltf.likelihoods import BERNOULLI, POISSON, as_option
from pltf.options import FitOptions
from pltf.planning import observations, tensors
from pltf.prediction.cells import check_labels
from pltf.sampling import refuse_fractions
from pltf.threads import single_threaded_blas

MOST_SECONDS = 3600.0  # of an estimate; longer ones raise an error
MOST_CELLS = 1 << 20  # in a tensor of links: they arrive one by one, so all are listed
MOST_ERROR = 0.5  # standard error that causes a warning; with four runs it is at most 1
MOVE_SECONDS = 4e-4  # per Gibbs sweep of the smallest problem
GIBBS_SWEEP = 3.0  # time of a Gibbs sweep relative to a VB sweep
FEWEST_STAGES = 8
FEWEST_RUNS = 3  # two runs may agree by chance
BELOW = 2  # standard errors: an estimate this far below the ELBO is unreliable
ROUNDING = 1e-8  # relative, of an ELBO or a log-likelihood
_ARRIVAL, _PRIOR, _MOVES = range(3)  # in random keys: what is drawn


@dataclass(frozen=True, repr=False)
class Evidence:
    """An estimate of the log evidence, returned by :meth:`pltf.Fit.evidence`.

    >>> import numpy as np, pltf
    >>> fit = pltf.Model("X[i] = A[i]").fit(np.array([3, 0, 2]), prior=pltf.Gamma(2.0, 2.0))
    >>> fit.evidence(particles=40, stages=8, seed=1)  # the bound is exact here   # doctest: +ELLIPSIS
    <Evidence
      log p(X)  -5.1... with a standard error of 0.1... (4 runs of 40 particles)
      bound     -5.14, 0.0... nats below
      time      ...>
    """

    log: float  # log of the mean estimate of p(X) over the runs
    error: float  # its standard error; reliable while well below 1, its maximum with four runs
    gap: float | None  # log minus the ELBO of the fit; None for a Gibbs fit, which has no ELBO
    runs: tuple[float, ...]  # estimates of the independent runs
    particles: int  # of each run
    learned: bool  # whether it is conditional on learned hyperparameters
    seconds: float = field(compare=False)  # time of all runs

    @classmethod
    def of_runs(cls, runs: Sequence[float], fit: Fit, particles: int, seconds: float) -> Evidence:
        """Combine the runs, and compare with the ELBO of the fit."""
        log = log_mean(runs)
        if log == -math.inf:
            raise PltfError(f"no particle explains the data: raise {py:particles} or {py:stages}")
        error = float(np.std(np.exp(np.array(runs) - log), ddof=1)) / math.sqrt(len(runs))
        gap = log - fit.bound if fit.method == VB.name else None
        learned = any(prior.learns for prior in fit.priors.values())
        return cls(log, error, gap, tuple(runs), particles, learned, seconds)

    def __repr__(self) -> str:
        effort = f"{len(self.runs)} runs of {self.particles} particles"
        lines = [f"log p(X)  {self.log:.2f} with a standard error of {self.error:.2g} ({effort})"]
        if self.gap is not None:
            side = "below" if self.gap >= 0 else "above"
            lines.append(f"bound     {self.log - self.gap:.2f}, {abs(self.gap):.2f} nats {side}")
        if self.learned:
            lines.append("priors    given the learned priors")
        return "\n  ".join(["<Evidence", *lines, f"time      {self.seconds:.2f} s>"])


@dataclass(frozen=True)
class Effort:
    """How much to sample."""

    particles: int
    stages: int | None  # None: as many as the problem asks for
    sweeps: int
    runs: int

    def __post_init__(self) -> None:
        for name, least in (("particles", 2), ("sweeps", 1), ("runs", FEWEST_RUNS)):
            whole(name, getattr(self, name), least)
        if self.stages is not None:
            whole("stages", self.stages, 1)

    def stages_of(self, problem: Problem, size: float) -> int:
        """Number of stages for ``size`` counts: it grows with the number of entries to learn.

        A rule of thumb; the result is not sensitive to it. Half the stages with twice the particles, or the reverse,
        took as long and gave the same standard error (6x5 counts, one and four components).
        """
        if self.stages is not None:
            return self.stages
        entries = sum(math.prod(problem.shapes[a]) for a in problem.free)
        return max(FEWEST_STAGES, math.ceil(math.log(size) * math.sqrt(entries)))


def evidence(fit: Fit, X: Any, *, mask: Any, effort: Effort, options: FitOptions) -> Evidence:
    """Estimate the evidence of a fit; see :meth:`pltf.Fit.evidence`."""
    if fit.method not in (VB.name, GIBBS):
        came = f"this is a fit by {py:method={fit.method!r}}"
        raise PltfError(f"the evidence needs a posterior, but {came}: use {py:method='vb'} or {py:method='gibbs'}")
    if fit.history:
        raise PltfError("the evidence is defined for one batch of data, but this fit was updated with more")
    seen = _data(fit, X, mask)
    for name, one in seen.items():
        if isinstance(one, StoredObservation):
            raise PltfError(f"the evidence is for small problems: {name} must be in memory, but it is a cell store")
    refuse_fractions(seen, "the evidence")
    likelihoods = {name: fit.likelihoods.get(name, POISSON) for name in seen}
    seen = {name: _all_listed(one, name) if likelihoods[name] == BERNOULLI else one for name, one in seen.items()}
    options = replace(
        options,
        method=GIBBS,
        prior={a: Gamma(prior.shape, prior.mean) for a, prior in fit.priors.items()},
        fixed={a: fit.factors[a].mean for a in fit.fixed},
        likelihood=as_option(likelihoods),
        dispersion=None,
    )
    job = EvidenceJob.of(prepare(fit.model, seen, {}, options), seen, effort)
    if X is not None:
        _check_data(fit, job.problem)
    began = time.perf_counter()
    runs = job.runs()
    found = Evidence.of_runs(runs, fit, effort.particles, time.perf_counter() - began)
    for text in _doubts(found, effort):
        warn_caller(text, ConvergenceWarning)
    return found


def _data(fit: Fit, X: Any, mask: Any) -> dict[str, Observation]:
    """The data of the fit: those stored in it, or ``X`` if its shape and number of cells match."""
    if X is None:
        if mask is not None:
            raise PltfError(f"{py:mask} requires {py:X}")
        patterns = {name: kept(fit.patterns[name], f"pass its data, {py:fit.evidence(X)}") for name in fit.patterns}
        return {name: observed_again(pattern) for name, pattern in patterns.items()}
    seen = observations(*tensors(fit.model, X, mask))
    for name, one in seen.items():
        check_labels(one, fit.labels, name)
        shape = tuple(fit.sizes[index] for index in fit.model.observed[name])
        if (one.shape, one.n_observed) != (shape, fit.n_observed[name]):
            came, was = (f"{'x'.join(map(str, s))}, {n:,} cells observed" for s, n in
                         ((one.shape, one.n_observed), (shape, fit.n_observed[name])))  # fmt: skip
            raise PltfError(f"{py:X} must be the data of the fit: {name} was {was}; got {came}")
    return seen


def _check_data(fit: Fit, problem: Problem) -> None:
    """Raise an error if the data give another objective than the fit has: they are other data."""
    was, found = (_of_bound if fit.method == VB.name else _of_last_draw)(fit, problem)
    size = abs(was) + problem.total + sum(math.prod(shape) for shape in problem.shapes.values())
    if not abs(found - was) <= max(ROUNDING, 100 * float(np.finfo(fit.dtype).eps)) * size:
        raise PltfError(
            f"{py:X} must be the data of the fit: its {fit.objective} was {was:.6g} and is {found:.6g} here"
        )


def _of_bound(fit: Fit, problem: Problem) -> tuple[float, float]:
    """The ELBO of a VB fit, and its value with these data."""
    put = problem.algebra.put
    E = {a: put(mean) for a, mean in fit._means.items()} | dict(problem.fixed)
    C, D = ({a: put(part[a]) for a in problem.free} for part in (fit.C, fit.D))
    return fit.bound, posterior_state(problem, problem.priors, E, C, D, problem.engine.total(E)).objective


def _of_last_draw(fit: Fit, problem: Problem) -> tuple[float, float]:
    """The log-likelihood of the last draw of a chain, and its value with these data."""
    assert fit.sampled is not None
    Z = {a: problem.algebra.put(draws[0, -1].copy()) for a, draws in fit.draws.items()} | dict(problem.fixed)
    kept = max(draws.shape[1] for draws in fit.draws.values())
    was = float(fit.sampled.log_likelihood[0, fit.sampled.burn_in + kept * fit.sampled.thin - 1])
    return was, float(problem.log_likelihood(problem.engine.counts(Z, ()).log_term, problem.engine.total(Z)))


def _doubts(found: Evidence, effort: Effort) -> Iterator[str]:
    """Problems with an estimate."""
    if len(found.runs) < effort.runs:
        yield f"the evidence was interrupted: this is the estimate of {len(found.runs)} of {effort.runs} runs"
    advice = f"raise {py:particles} or {py:stages}"
    if found.gap is not None and found.gap < -BELOW * found.error - ROUNDING * abs(found.log):
        told = f"it is {-found.gap:.2f} nats below the ELBO, with a standard error of {found.error:.2g}"
        yield f"the log evidence is too low: {told}; {advice}"
    elif found.error > MOST_ERROR:
        text = f"the runs differ too much: the standard error is {found.error:.2g}, and the log evidence may be too low"
        yield f"{text}; {advice}"


class _Interrupted(Exception):
    """Ctrl-C was pressed."""


@dataclass(frozen=True, eq=False)
class EvidenceJob:
    """An estimate that is ready to start."""

    ready: PreparedFit
    seen: Mapping[str, Observation]
    likelihoods: Mapping[str, str]
    problem: Problem
    effort: Effort
    size: float  # counts, and cells of links
    stages: int

    @classmethod
    def of(cls, ready: PreparedFit, seen: Mapping[str, Observation], effort: Effort) -> EvidenceJob:
        """Raises an error if the estimate would take too long."""
        likelihoods, problem = ready.likelihoods(seen), ready.problem(seen)
        size = max(2.0, math.fsum(
            one.n_observed if likelihoods[name] == BERNOULLI else one.total for name, one in seen.items()
        ))  # fmt: skip
        stages = effort.stages_of(problem, size)
        sweeps = effort.runs * stages * effort.particles * (effort.sweeps + 1)
        seconds = sweeps * (MOVE_SECONDS + GIBBS_SWEEP * ready.planned.seconds)
        if seconds > MOST_SECONDS:
            number = f"{sweeps:,} sweeps would take about {in_time(seconds)}"
            raise PltfError(
                f"the evidence is for small problems, but here {number}: lower {py:particles}, {py:stages} or {py:runs}"
            )
        return cls(ready, seen, likelihoods, problem, effort, size, stages)

    def runs(self) -> list[float]:
        """The estimates of all runs, or of the finished ones after an interrupt."""
        effort, found, done = self.effort, list[float](), 0
        total = effort.runs * (self.stages - 1) * effort.particles
        with (
            single_threaded_blas,
            first_interrupt_waits() as interrupted,
            Progress(self.ready.options.progress, total, time_left=True) as progress,
        ):

            def moved(stage: int) -> None:
                nonlocal done
                done += 1
                progress.show(done, f"evidence, run {len(found) + 1}/{effort.runs}, stage {stage + 1}/{self.stages}")
                if interrupted():
                    raise _Interrupted

            try:
                while len(found) < effort.runs:
                    found.append(self._run(len(found), moved))
            except _Interrupted:
                if len(found) < FEWEST_RUNS:
                    raise KeyboardInterrupt from None
        return found

    def _run(self, number: int, moved: Any) -> float:
        """Estimate of one run."""
        key = (self.ready.seed, number)
        rng = np.random.default_rng((*key, _PRIOR))
        drawn = [self._from_prior(rng) for _ in range(self.effort.particles)]
        counts = [_counts(one) for name, one in self.seen.items() if self.likelihoods[name] == POISSON]
        constant = math.fsum(float(gammaln(one + 1).sum()) for one in counts)
        stages = self._stages(np.random.default_rng((*key, _ARRIVAL)))
        return log_evidence(stages, drawn, self.effort.sweeps, (*key, _MOVES), moved) - constant

    def _from_prior(self, rng: np.random.Generator) -> Factors:
        shapes, algebra = self.problem.shapes, self.problem.algebra
        free = {a: algebra.put(prior.sample(shapes[a], rng)) for a, prior in self.problem.priors.items()}
        return {**self.problem.fixed, **free}

    def _stages(self, rng: np.random.Generator) -> Iterator[Stage]:
        """Counts grow geometrically: the first stage adds about one."""
        ends = np.geomspace(1 / self.size, 1.0, self.stages) if self.stages > 1 else np.ones(1)
        arrivals = {name: self._arrival(name, rng) for name in self.seen}
        for begin, end in zip([0.0, *ends[:-1]], ends, strict=True):
            slices = {name: arrival.slice(begin, end) for name, arrival in arrivals.items()}
            if any(one.share != 1 or one.new.n_observed for one in slices.values()):
                new = self._engine({name: (one.new, one.share) for name, one in slices.items()})
                so_far = self._engine({name: (one.so_far, one.share_so_far) for name, one in slices.items()})
                saturated = math.fsum(one.saturated for one in slices.values())
                yield Stage(new, saturated, replace(self.problem, engine=so_far))

    def _arrival(self, name: str, rng: np.random.Generator) -> CountArrival | LinkArrival:
        seen = self.seen[name]
        if self.likelihoods[name] == POISSON:
            return CountArrival(seen, rng)
        assert isinstance(seen, CooObservation)
        return LinkArrival(seen, rng.permutation(seen.coords.shape[1]))

    def _engine(self, parts: Mapping[str, tuple[Observation, float]]) -> Engine:
        """Sums over the tensors, each with a fraction of its exposure."""
        planned = self.ready.planned.knowing({a: facts_of(one) for a, (one, _) in parts.items()}, self.likelihoods)
        engines = [
            Scaled(tensor_engine(plan, parts[plan.name][0], planned.threads), parts[plan.name][1])
            for plan in planned.equations
        ]
        return engines[0] if len(engines) == 1 else SumEngine([Summand(engine) for engine in engines])


# -- arriving data -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Slice:
    """The data that a tensor gains in a stage, and its data after it, with fractions of the total exposure."""

    new: Observation
    share: float
    so_far: Observation
    share_so_far: float
    saturated: float = 0.0  # sum y*log y of the new counts


class CountArrival:
    """Counts whose events have random times."""

    def __init__(self, seen: Observation, rng: np.random.Generator) -> None:
        self._seen, self._rng = seen, rng
        self._to_come = _counts(seen).astype(np.int64)
        self._arrived = np.zeros_like(self._to_come)

    def slice(self, begin: float, end: float) -> Slice:
        """The events between two times."""
        new = self._rng.binomial(self._to_come, min(1.0, (end - begin) / (1 - begin)))
        self._to_come, self._arrived = self._to_come - new, self._arrived + new
        now, so_far = _with_counts(self._seen, new), _with_counts(self._seen, self._arrived)
        return Slice(now, float(end - begin), so_far, float(end), float(xlogy(new, new).sum()))


class LinkArrival:
    """Cells with and without links, in random order."""

    def __init__(self, seen: CooObservation, order: NDArray[np.intp]) -> None:
        self._seen, self._order, self._arrived = seen, order, 0

    def slice(self, _: float, end: float) -> Slice:
        """The cells up to a time."""
        before, self._arrived = self._arrived, math.ceil(len(self._order) * end)
        now, so_far = self._order[before : self._arrived], self._order[: self._arrived]
        return Slice(self._cells(now), 1.0, self._cells(so_far), 1.0)

    def _cells(self, some: NDArray[np.intp]) -> Observation:
        cells = self._seen.coords[:, some].T, self._seen.values[some]
        return observe(cells, shape=self._seen.shape, unlisted="missing")


def _all_listed(seen: Observation, name: str) -> Observation:
    """The same observed cells, all listed."""
    if isinstance(seen, CooObservation) and seen.unlisted == "missing":
        return seen
    if math.prod(seen.shape) > MOST_CELLS:
        came = f"got {math.prod(seen.shape):,}"
        raise PltfError(f"the evidence is for small problems: {name} must have at most {MOST_CELLS:,} cells, {came}")
    cells, pattern = np.indices(seen.shape).reshape(len(seen.shape), -1), seen.pattern()
    cells = cells[:, pattern.observed(cells)]
    return observe((cells.T, pattern.positive(cells).astype(float)), shape=seen.shape, unlisted="missing")


def _counts(seen: Observation) -> NDArray[np.float64]:
    """The counts of an observation, zero for missing cells."""
    if isinstance(seen, CooObservation):
        return np.asarray(seen.values, dtype=np.float64)
    assert isinstance(seen, DenseObservation)
    values = np.asarray(seen.values, dtype=np.float64)
    return values if seen.mask is None else np.where(seen.mask, values, 0.0)


def _with_counts(seen: Observation, counts: NDArray[np.int64]) -> Observation:
    """The same cells with other counts."""
    if isinstance(seen, CooObservation):
        rest: Any = {"unlisted": seen.unlisted} | ({"missing": seen.missing.T} if seen.unlisted == "zero" else {})
        return observe((seen.coords.T, counts), shape=seen.shape, **rest)
    assert isinstance(seen, DenseObservation)
    return observe(counts, seen.mask)
