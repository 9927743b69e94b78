"""Getting it right (Geweke 2004): sweeps keep the joint distribution of hyperparameters, factors and data.

That distribution is drawn from in two ways. Independently: hyperparameters from their hyperprior, then factors from
their prior. And in turns: data given the factors, then one sweep given the data. A sampler with an error in any of its
densities drifts away from the independent draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from experiments.calibration import HYPERPRIOR, Case, drawn_prior, problem_of
from numpy.typing import NDArray

import pltf
from pltf.engines import listed
from pltf.gamma import Array, Gamma
from pltf.inference.algebra import Factors
from pltf.inference.algebra.chance import stream
from pltf.inference.gibbs import Sampler
from pltf.inference.state import Problem

CHAINS, TURNS, INDEPENDENT = 200, 60, 100  # 100 times as many independent draws as chains
ROWS, COLUMNS, RANK = 3, 2, 2  # of a chain, which is an NMF of its own
UNLIKELY = 5.0  # standard errors

# A sweep moves all chains at once: they are slices of one tensor, or blocks on the diagonal of a matrix, where all
# other cells are missing. They have nothing in common but the trade of scales along r.
SLICES = Case(
    pltf.Model("X[b,i,j] = W[b,i,r] * H[b,j,r]", r=RANK),
    (CHAINS, ROWS, COLUMNS),
    Gamma(0.8, 1.2, learn="both", tie="index:b"),
)
LINKS = replace(SLICES, prior=Gamma(1.5, 0.6, learn="both", tie="index:b"), likelihood="bernoulli")
BLOCKS = Case(
    pltf.Model("X[i,j] = W[i,r] * H[j,r]", r=RANK),
    (CHAINS * ROWS, CHAINS * COLUMNS),
    {"W": Gamma(0.8, 1.2, learn="both", tie="index:i"), "H": Gamma(0.8, 1.2, learn="mean", tie="index:j")},
)
KNOWN = stream((0,)).random((CHAINS, ROWS, COLUMNS)) < 0.85  # observed cells


def placed(case: Case, cells: NDArray[Any]) -> NDArray[Any]:
    """Cells of the chains, (chain, row, column), as data of the model; zero elsewhere."""
    if len(case.shape) == cells.ndim:
        return cells
    data, diagonal = np.zeros((CHAINS, ROWS, CHAINS, COLUMNS), dtype=cells.dtype), np.arange(CHAINS)
    data[diagonal, :, diagonal] = cells
    return data.reshape(case.shape)


def problem_given(case: Case, X: NDArray[np.int64]) -> Problem:
    return problem_of(case, placed(case, X), placed(case, KNOWN))


def rates(Z: Factors) -> Array:
    W, H = (np.reshape(Z[a], (CHAINS, -1, RANK)) for a in "WH")
    return np.asarray(np.einsum("bir,bjr->bij", W, H))


def from_prior(problem: Problem, rng: np.random.Generator) -> tuple[dict[str, Gamma], dict[str, Array]]:
    priors = {a: drawn_prior(problem, a, rng) for a in problem.shapes}
    return priors, {a: priors[a].sample(shape, rng) for a, shape in problem.shapes.items()}


def data_given(case: Case, Z: Factors, rng: np.random.Generator) -> NDArray[np.int64]:
    counts = rng.poisson(rates(Z))
    return np.minimum(counts, 1) if case.likelihood == "bernoulli" else counts


def moments(priors: Mapping[str, Gamma], Z: Factors, X: NDArray[np.int64]) -> dict[str, Array]:
    """Of each chain: moments of the logarithms of all but the data, and how far the data lie from the rates."""
    values = {"rates": rates(Z), **Z}
    for a, prior in priors.items():
        values |= {f"{part} of {a}": np.asarray(getattr(prior, part)) for part in prior.learns}
    logs = {name: np.log(value).reshape(CHAINS, -1) for name, value in values.items()}
    found = {f"{name} ^{k}": (log**k).mean(axis=1) for name, log in logs.items() for k in (1, 2)}
    misfit = (X - values["rates"]) ** 2 / (1 + values["rates"])
    return found | {"misfit": (misfit * KNOWN).mean(axis=(1, 2))}


def in_turns(case: Case, seed: int) -> dict[str, Array]:
    """Moments of each chain, over all of its turns. A chain begins at the prior, so it needs no burn-in."""
    rng, found = stream((seed, 0)), []
    priors, Z = from_prior(problem_given(case, KNOWN.astype(int)), rng)
    for turn in range(TURNS):
        X = data_given(case, Z, rng)
        sampler = Sampler(problem_given(case, X), hyperprior=HYPERPRIOR)
        state = sampler.sweep(sampler.begin(Z, priors, (seed, 2 * turn)), (seed, 2 * turn + 1))
        priors, Z = dict(state.priors), dict(state.E)
        found.append(moments(priors, Z, X))
    return {name: np.mean([one[name] for one in found], axis=0) for name in found[0]}


def independent(case: Case, seed: int) -> dict[str, Array]:
    """The same moments of independent draws."""
    problem, rng, found = problem_given(case, KNOWN.astype(int)), stream((seed, 1)), []
    for _ in range(INDEPENDENT):
        priors, Z = from_prior(problem, rng)
        found.append(moments(priors, Z, data_given(case, Z, rng)))
    return {name: np.concatenate([one[name] for one in found]) for name in found[0]}


def z_scores(case: Case, seed: int = 1) -> dict[str, float]:
    """How far the two ways differ, in standard errors. Turns hang together, chains do not: they tell the errors."""
    ways, scores = (in_turns(case, seed), independent(case, seed)), {}
    for name in ways[0]:
        one, other = (way[name] for way in ways)
        error = math.hypot(*(float(np.std(drawn, ddof=1)) / math.sqrt(drawn.size) for drawn in (one, other)))
        scores[name] = float(one.mean() - other.mean()) / error
    return scores


def assert_no_drift(scores: Mapping[str, float]) -> None:
    assert all(abs(score) < UNLIKELY for score in scores.values()), scores


@pytest.mark.parametrize("case", [SLICES, LINKS], ids=lambda case: case.likelihood)
def test_sweeps_keep_the_joint_distribution(case: Case) -> None:
    assert_no_drift(z_scores(case))


def test_sweeps_group_by_group_keep_the_joint_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """W and H get their counts from draws of their own, each at the other factor as it is then."""
    monkeypatch.setattr(listed, "PRIVATE_BYTES", 0)
    assert problem_given(BLOCKS, KNOWN.astype(int)).engine.together == (frozenset("W"), frozenset("H"))
    assert_no_drift(z_scores(BLOCKS))
