"""What the tests of predictions share: slow sums from the definitions, posteriors at will, every storage of data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import pltf
from pltf.notation import Equation
from tests.reference import Array
from tests.strategies import Case

CP = pltf.cp(rank=2)
TUCKER = pltf.tucker(ranks=(2, 2, 2))
TRAIN = pltf.Model("ia,ajb,bk->ijk", a=2, b=2)
SHARED = pltf.Model("X[i,j,k] = A[i,r] * N[i,j] * B[j,r] * C[k,r]", r=2)  # two factors share i, two share j
COUPLED = pltf.Model("X[i,j,k] = A[i,r] * B[j,r] * C[k,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)


def fitted(case: Case, fixed: tuple[str, ...] = ()) -> pltf.Fit:
    """Two sweeps of a random problem, with some factors fixed where they start."""
    free = [name for name in case.init if name not in fixed]
    fit = case.model.fit(
        case.data,
        mask=case.masks,
        init={name: case.init[name] for name in free},
        fixed={name: case.init[name] for name in fixed},
        prior={name: case.priors[name] for name in free},
        max_iter=2,
        tol=0,
    )
    return independent(fit)


def independent(fit: pltf.Fit) -> pltf.Fit:
    """The fit with predictions of the very posterior that it has; tests/prediction/test_spread.py has the others."""
    return replace(fit, spread=1.0)


def believing(fit: pltf.Fit, C: Mapping[str, Array], D: Mapping[str, Array]) -> pltf.Fit:
    """The same fit with another posterior."""
    return replace(fit, C=C, D=D)


def sharpened(fit: pltf.Fit, times: float) -> pltf.Fit:
    """The same means with so many times the shapes."""
    C, D = fit.C, fit.D
    return believing(fit, {a: C[a] * times for a in C}, {a: D[a] / times for a in D})


def equation_of(fit: pltf.Fit, of: str = "X") -> Equation:
    return next(e for e in fit.model.equations if e.output.name == of)


def latent_values(fit: pltf.Fit, equation: Equation) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(fit.sizes[index]) for index in equation.summed)))


def covariance(fit: pltf.Fit, one: tuple[int, ...], other: tuple[int, ...], of: str = "X") -> float:
    """Cov of the rates of two cells: a loop over pairs of values of the latent indices, without rounding."""
    equation = equation_of(fit, of)
    total = Fraction(0)
    for left, right in itertools.product(latent_values(fit, equation), repeat=2):
        at = dict(zip((*equation.output.indices, *equation.summed), (*one, *left), strict=True))
        copy = dict(zip((*equation.output.indices, *equation.summed), (*other, *right), strict=True))
        both, apart = Fraction(1), Fraction(1)
        for term in equation.factors:
            here, there = (tuple(place[index] for index in term.indices) for place in (at, copy))
            z, E = fit.factors[term.name], fit.factors[term.name].mean
            means = Fraction(float(E[here])) * Fraction(float(E[there]))
            known = here != there or not isinstance(z, pltf.Posterior)
            spread = Fraction(0) if known else Fraction(float(z.shape[here])) * Fraction(float(z.scale[here])) ** 2
            both, apart = both * (means + spread), apart * means
        total += both - apart
    return float(total)


def drawn_rates(fit: pltf.Fit, n: int, seed: int, of: str = "X") -> Array:
    """Rates of the whole tensor under factors that are drawn here, each entry by itself."""
    equation, rng = equation_of(fit, of), np.random.default_rng(seed)
    numbers = {index: place + 1 for place, index in enumerate((*equation.output.indices, *equation.summed))}
    operands: list[Any] = []
    for term in equation.factors:
        z, axes = fit.factors[term.name], [numbers[index] for index in term.indices]
        random = isinstance(z, pltf.Posterior)
        drawn = rng.gamma(z.shape, z.scale, (n, *z.mean.shape)) if random else z.mean
        operands += [drawn, [0, *axes] if random else axes]
    einsum: Any = np.einsum
    rates: Array = einsum(*operands, [0, *(numbers[index] for index in equation.output.indices)], optimize=True)
    return rates


def small_fit(model: pltf.Model, seed: int = 0, **options: Any) -> pltf.Fit:
    """A few sweeps on a small tensor with holes: a posterior that is neither sharp nor wide."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(1.5, (4, 3, 3)).astype(float)
    X[rng.random(X.shape) < 0.2] = np.nan
    data = {"X": X, "Y": rng.poisson(2.0, (3, 5))} if "Y" in model.observed else X
    return independent(model.fit(data, **{"max_iter": 5, "tol": 0} | options))


@st.composite
def tensors(draw: st.DrawFn, most: int = 4) -> Array:
    """Small counts of one to three modes, NaN where a cell is missing."""
    shape = draw(arrays.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    full = rng.poisson(draw(st.sampled_from([0.3, 1.5])), shape).astype(float)
    full[rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 0.9]))] = np.nan
    return full


STORAGES = ("dense", "mask", "ma", "holes", "ratings")


def stored(full: Array, storage: str) -> pltf.Observation:
    """The same knowledge in one of several storages."""
    missing, cells = np.isnan(full), np.argwhere(~np.isnan(full))
    if storage == "dense":
        return pltf.observe(full.copy())
    if storage == "mask":  # what stands in masked cells must not matter
        return pltf.observe(np.where(missing, -7.0, full), ~missing)
    if storage == "ma":
        return pltf.observe(np.ma.masked_array(np.nan_to_num(full, nan=5.0).astype(np.int32), missing))
    if storage == "holes":
        listed = np.argwhere((full > 0) | (full == 0) & (np.indices(full.shape).sum(axis=0) % 2 == 0))
        return pltf.observe((listed, full[tuple(listed.T)]), shape=full.shape, missing=np.argwhere(missing))
    return pltf.observe((cells, full[tuple(cells.T)]), shape=full.shape, unlisted="missing")


def every_cell(shape: tuple[int, ...]) -> Any:
    """(cells, modes)."""
    return np.indices(shape).reshape(len(shape), math.prod(shape)).T
