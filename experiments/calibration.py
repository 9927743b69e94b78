"""Simulation-based calibration of the Gibbs sampler: draw from the prior, draw data, draw from the posterior.

If the sampler is right, the rank of a true value among its posterior draws is uniform (Talts et al. 2018). This is
tested at the 1 % level for rates, the log-likelihood and the hyperparameters of small problems that mix fast.

    python -m experiments.calibration [replicates]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import pltf
from pltf.fitting import prepare
from pltf.gamma import PARTS, Gamma
from pltf.inference.gibbs import WEAK, Sampler
from pltf.inference.state import Problem, State
from pltf.options import FitOptions
from pltf.planning import observations, tensors
from pltf.prediction.rates import rates

Array = NDArray[np.float64]

HYPERPRIOR = replace(WEAK, weight=3.0, spread=0.5)  # tighter than in fits, so that data drawn from it are reasonable


@dataclass(frozen=True)
class Case:
    """A model and a prior; some cells are missing."""

    model: pltf.Model
    shape: tuple[int, ...]
    prior: Gamma | Mapping[str, Gamma]
    likelihood: str = "poisson"
    burn_in: int = 100
    draws: int = 9
    thin: int = 12  # ranks of autocorrelated draws are not uniform


CASES: Mapping[str, Case] = {
    "NMF": Case(pltf.nmf(rank=2), (4, 3), Gamma(0.8, 1.5)),
    "NMF, learned mean and shape": Case(pltf.nmf(rank=2), (5, 4), Gamma(0.8, 1.5, learn="both", tie="component")),
    "CP": Case(pltf.cp(rank=2), (4, 3, 3), Gamma(0.8, 1.2)),
    "CP, learned mean": Case(pltf.cp(rank=2), (4, 3, 3), Gamma(0.8, 1.2, learn="mean")),
    "Tucker": Case(pltf.tucker(ranks=(2, 2, 1)), (3, 3, 3), Gamma(0.8, 1.0)),
    "NMF of links": Case(pltf.nmf(rank=2), (5, 4), Gamma(1.5, 0.6), likelihood="bernoulli"),
    "NMF of links, learned mean and shape": Case(
        pltf.nmf(rank=2), (5, 4), Gamma(1.5, 0.6, learn="both", tie="component"), likelihood="bernoulli"
    ),
}


def ranks(case: Case, replicates: int, seed: int = 0) -> dict[str, NDArray[np.intp]]:
    """The rank of each true value among its posterior draws, 0 to ``draws``, one per replicate."""
    found: dict[str, list[int]] = {}
    for number in range(replicates):
        for name, rank in _replicate(case, np.random.default_rng([seed, number])).items():
            found.setdefault(name, []).append(rank)
    return {name: np.array(one) for name, one in found.items()}


def p_value(found: NDArray[np.intp], draws: int) -> float:
    """P-value of the chi-squared test that ranks are uniform, with about five expected ranks or more per bin."""
    bins = max(2, min(draws + 1, len(found) // 5))
    counts = np.bincount(found * bins // (draws + 1), minlength=bins)
    shares = np.bincount(np.arange(draws + 1) * bins // (draws + 1), minlength=bins) / (draws + 1)
    return float(stats.chisquare(counts, len(found) * shares).pvalue)


def _replicate(case: Case, rng: np.random.Generator) -> dict[str, int]:
    sizes = case.model.index_sizes({"X": case.shape})
    shapes = {a: tuple(sizes[i] for i in indices) for a, indices in case.model.factors.items()}
    blank = problem_of(case, np.ones(case.shape, dtype=int), np.ones(case.shape, dtype=bool))
    priors = {a: drawn_prior(blank, a, rng) for a in shapes}
    Z = {a: priors[a].sample(shape, rng) for a, shape in shapes.items()}
    (equation,) = case.model.equations
    X = rng.poisson(rates(equation, Z, sizes))
    X = np.minimum(X, 1) if case.likelihood == "bernoulli" else X
    problem = problem_of(case, X, rng.random(case.shape) < 0.85)
    sampler, key = Sampler(problem, hyperprior=HYPERPRIOR), int(rng.integers(2**62))
    truth = _quantities(case, sizes, sampler.begin(Z, priors, (key, 0)))
    begin = {a: np.maximum(problem.priors[a].sample(shape, rng), 1e-3) for a, shape in shapes.items()}
    state, drawn = sampler.begin(begin, problem.priors, (key, 1)), []
    for sweep in range(2, 2 + case.burn_in + case.draws * case.thin):
        state = sampler.sweep(state, (key, sweep))
        if sweep > case.burn_in + 1 and (sweep - case.burn_in) % case.thin == 0:
            drawn.append(_quantities(case, sizes, state))
    ties = rng.random(len(truth))  # log-likelihoods tie if all counts are zero
    return {
        name: sum(one[name] < truth[name] or (one[name] == truth[name] and tie < 0.5) for one in drawn)
        for name, tie in zip(truth, ties, strict=True)
    }


def problem_of(case: Case, X: NDArray[np.int64], mask: NDArray[np.bool_]) -> Problem:
    """The inference problem of a case with these data."""
    options = FitOptions(method="gibbs", prior=case.prior, likelihood=case.likelihood, threads=1)
    data, masks = tensors(case.model, X, mask)
    return prepare(case.model, data, masks, options).problem(observations(data, masks))


def drawn_prior(problem: Problem, a: str, rng: np.random.Generator) -> Gamma:
    """A prior whose learned hyperparameters are drawn from the hyperprior."""
    prior = problem.priors[a]
    if a not in problem.learns:
        return prior
    size, (A, B) = problem.learns[a].value_shape, (np.asarray(getattr(prior, part)) for part in PARTS)
    if "shape" in prior.learns:
        A = A * np.exp(rng.normal(0, HYPERPRIOR.spread, size))
    if "mean" in prior.learns:
        B = B / rng.gamma(HYPERPRIOR.weight, 1 / HYPERPRIOR.weight, size)
    return replace(prior, shape=A, mean=B)


def _quantities(case: Case, sizes: Mapping[str, int], state: State) -> dict[str, float]:
    """Identifiable quantities: single rates, their sum, the log-likelihood, and hyperparameters over all groups."""
    Xhat = rates(case.model.equations[0], state.E, sizes)
    known = {
        "first rate": float(Xhat.flat[0]),
        "last rate": float(Xhat.flat[-1]),
        "sum of rates": float(Xhat.sum()),
        "log-likelihood": state.objective,
    }
    for part in PARTS:
        learned = [np.asarray(getattr(prior, part)) for prior in state.priors.values() if part in prior.learns]
        if learned:
            known[f"learned {part}s"] = float(sum(np.log(value).sum() for value in learned))
    return known


def main(replicates: int = 200) -> int:
    """Print a p-value for every quantity of every case; fail if one is below 1 % divided by their number."""
    tested = []
    for name, case in CASES.items():
        for quantity, found in ranks(case, replicates).items():
            tested.append(p_value(found, case.draws))
            print(f"{name:<36} {quantity:<18} p = {tested[-1]:.3f}", flush=True)
    return int(min(tested) < 0.01 / len(tested))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
