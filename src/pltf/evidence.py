"""The evidence of counts under a model, for small problems: an estimate with its error, to judge bounds by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

from pltf.data import CooObservation, DenseObservation, Observation, observe
from pltf.engines import registry
from pltf.engines.registry import facts_of
from pltf.engines.scaled import Scaled
from pltf.errors import PltfError, py, whole
from pltf.fitting import Prepared, prepare
from pltf.inference.evidence import Stage, log_evidence, log_mean
from pltf.inference.factors import Factors
from pltf.inference.state import Problem
from pltf.notation import Model
from pltf.options import FitOptions
from pltf.planning import observations, tensors

_TIMES, _PRIOR, _MOVES = range(3)  # in keys: what is drawn


@dataclass(frozen=True)
class Evidence:
    """An estimate of log p(X).

    ``runs`` are the estimates of independent runs; ``log`` is the logarithm of their mean, and ``error`` its standard
    error, which can be trusted while it is well below 1.
    """

    log: float
    error: float
    runs: tuple[float, ...]

    @classmethod
    def of(cls, runs: Sequence[float]) -> Evidence:
        """The runs together."""
        log = log_mean(runs)
        spread = float(np.std(np.exp(np.array(runs) - log), ddof=1)) if len(runs) > 1 else math.nan
        return cls(log, spread / math.sqrt(len(runs)), tuple(runs))

    def __str__(self) -> str:
        return f"log evidence {self.log:.2f} +- {self.error:.2f}"


def evidence(
    model: Model, X: Any, *, mask: Any = None, stages: int = 40, particles: int = 100, sweeps: int = 2, runs: int = 4,
    **options: Any,
) -> Evidence:  # fmt: skip
    """Estimate log p(X) by sequential Monte Carlo; ``options`` are those of a fit: prior, fixed, seed, threads.

    Counts come in by stages, the first of about one count, each larger than the one before by the same factor. The
    estimate of p(X) is unbiased; more stages, particles and sweeps make it more precise.

    >>> import numpy as np, pltf
    >>> from pltf.evidence import evidence
    >>> counts, prior = np.array([[3, 1], [4, 2]]), pltf.Gamma(0.5, 10.0)
    >>> found = evidence(pltf.nmf(rank=1), counts, prior=prior, seed=0, stages=5, particles=10, runs=2)
    >>> len(found.runs)
    2
    """
    for name, value in (("stages", stages), ("particles", particles), ("sweeps", sweeps), ("runs", runs)):
        whole(name, value, 1)
    made = FitOptions(method="gibbs", accelerate=True, **options)
    made = replace(made, seed=made.entropy(None))
    data, masks = tensors(model, X, mask)
    ready = prepare(model, data, masks, made)
    if ready.learns:
        raise PltfError(f"{py:prior} must not be learned for the evidence, but that of {next(iter(ready.learns))} is")
    seen = observations(data, masks)
    if "bernoulli" in ready.likelihoods(seen).values():
        raise PltfError(f"the evidence is known for counts only: {py:likelihood} must be 'poisson'")
    assert made.seed is not None
    job = _Job(ready, seen, ready.problem(seen), stages, particles, sweeps, made.seed)
    return Evidence.of([job.run(number) for number in range(runs)])


@dataclass(frozen=True, eq=False)
class _Job:
    ready: Prepared
    seen: Mapping[str, Observation]
    problem: Problem
    stages: int
    particles: int
    sweeps: int
    seed: int

    def run(self, number: int) -> float:
        """One estimate."""
        key = (self.seed, number)
        constant = math.fsum(float(gammaln(_counts(one) + 1).sum()) for one in self.seen.values())
        rng = np.random.default_rng((*key, _PRIOR))
        drawn = [self._from_prior(rng) for _ in range(self.particles)]
        return log_evidence(self._stages((*key, _TIMES)), drawn, self.sweeps, (*key, _MOVES)) - constant

    def _from_prior(self, rng: np.random.Generator) -> Factors:
        shapes, algebra = self.problem.shapes, self.problem.algebra
        free = {a: algebra.put(prior.sample(shapes[a], rng)) for a, prior in self.problem.priors.items()}
        return {**self.problem.fixed, **free}

    def _stages(self, key: tuple[int, ...]) -> list[Stage]:
        """The slices of time, with the counts that fall into each at random."""
        ends = np.geomspace(1 / max(self.problem.total, 2.0), 1.0, self.stages) if self.stages > 1 else np.ones(1)
        lengths = np.diff(ends, prepend=0.0)
        rng = np.random.default_rng(key)
        arrived = {a: rng.multinomial(_counts(one).astype(np.int64), lengths) for a, one in self.seen.items()}
        found = []
        for k, (length, end) in enumerate(zip(lengths, ends, strict=True)):
            new = {a: _with_counts(one, arrived[a][..., k]) for a, one in self.seen.items()}
            so_far = {a: _with_counts(one, arrived[a][..., : k + 1].sum(axis=-1)) for a, one in self.seen.items()}
            saturated = math.fsum(float(xlogy(arrived[a][..., k], arrived[a][..., k]).sum()) for a in arrived)
            problem = replace(self.problem, engine=Scaled(self._engine(so_far), float(end)))
            found.append(Stage(self._engine(new), saturated, float(length), problem))
        return found

    def _engine(self, seen: Mapping[str, Observation]) -> Any:
        likelihoods = dict.fromkeys(seen, "poisson")
        return registry.build(
            self.ready.planned.knowing({a: facts_of(one) for a, one in seen.items()}, likelihoods), seen
        )


def _counts(seen: Observation) -> NDArray[np.float64]:
    """The counts of an observation, zero where it is missing."""
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
