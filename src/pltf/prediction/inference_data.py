"""Convert a fit for ArviZ: posterior draws, posterior predictive, log-likelihood and observed data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.cell_index import Coords
from pltf.data.observe import observed_again
from pltf.data.pattern import ListedPattern, kept
from pltf.data.stored import StoredPattern
from pltf.errors import PltfError, py
from pltf.gamma import Array, coords_of
from pltf.prediction.cells import asked
from pltf.prediction.draws import evenly
from pltf.prediction.labelled import refuse_twice
from pltf.prediction.noise import draw_counts
from pltf.prediction.rates import RatesAt
from pltf.prediction.table import refuse_huge

if TYPE_CHECKING:
    from pltf.fit import Fit


@dataclass(frozen=True, eq=False)
class Seen:
    """Observed cells of a tensor."""

    name: str
    cells: Coords  # (modes, cells)
    values: Array
    shape: tuple[int, ...]  # shape of the tensor if it has all cells, otherwise (cells,)
    whole: bool  # whether all cells are included


def as_inference_data(fit: Fit, names: Sequence[str], at: Any, draws: int, seed: int) -> Any:
    """Draws of all factors, and counts, log-likelihoods and values of the observed cells of some tensors."""
    try:
        import arviz as az
    except ModuleNotFoundError:
        raise PltfError("to_arviz needs ArviZ: pip install 'pltf[arviz]'") from None
    number = draws * (next(iter(fit.draws.values())).shape[0] if fit.draws else 1)
    tensors = [_seen(fit, name, at, number) for name in names]
    drawn = _drawn(fit, draws, seed)
    chains, draws = next(iter(drawn.values())).shape[:2]
    refuse_huge(16 * chains * draws * sum(one.values.size for one in tensors), _ADVICE)
    dims, coords = _axes(fit, tensors)
    flat = {a: one.reshape(-1, *one.shape[2:]) for a, one in drawn.items()}
    predicted, likely = {}, {}
    for place, one in enumerate(tensors):
        counts, log_prob = _predicted(fit, one, flat, np.random.default_rng([seed, 1 + place]))
        predicted[one.name] = counts.reshape(chains, draws, *one.shape)
        likely[one.name] = log_prob.reshape(chains, draws, *one.shape)
    return az.from_dict(
        posterior=drawn,
        posterior_predictive=predicted,
        log_likelihood=likely,
        observed_data={one.name: _counts(one.values).reshape(one.shape) for one in tensors},
        coords=coords,
        dims=dims,
        attrs={"model": fit.model.text, "inference_library": "pltf"},
    )


_ADVICE = f"use fewer {py:draws}, or select cells with {py:at=}"


def _drawn(fit: Fit, draws: int, seed: int) -> dict[str, Array]:
    """Draws of all factors, with chain and draw as first axes: the draws of the chains, or independent ones."""
    if fit.draws:
        chains, number = next(iter(fit.draws.values())).shape[:2]
        chosen = evenly(draws, number)
        points = {a: np.broadcast_to(one, (chains, chosen.size, *one.shape)) for a, one in fit.points.items()}
        known = {**points, **{a: one[:, chosen] for a, one in fit.draws.items()}}
        return {a: known[a] for a in fit.factors}
    entries = sum(one.mean.size for one in fit.factors.values())
    refuse_huge(8 * draws * entries, f"use fewer {py:draws}")
    return {a: one.sample(draws, seed=seed + number)[None] for number, (a, one) in enumerate(fit.factors.items())}


def _seen(fit: Fit, name: str, at: Any, draws: int) -> Seen:
    """The observed cells of a tensor, or the requested ones among them; missing cells are left out."""
    pattern = kept(fit.patterns[name], "there are no data to give to ArviZ")
    indices = fit.model.observed[name]
    sizes = tuple(fit.sizes[index] for index in indices)
    if at is not None:
        listed = asked(at, sizes, indices, fit.labels).listed
        assert listed is not None
        cells = listed
    elif isinstance(pattern, StoredPattern):
        raise PltfError(f"the cells of a store stay on disk: select those for ArviZ with {py:at=}")
    elif isinstance(pattern, ListedPattern) and pattern.missing is None:
        cells = pattern.coords.astype(np.intp)
    else:
        refuse_huge(16 * max(draws, 1 + len(sizes)) * math.prod(sizes), _ADVICE)
        cells = np.indices(sizes).reshape(len(sizes), -1)
    there = pattern.observed(cells)
    if not there.any():
        raise PltfError(f"{py:at} must list observed cells of {name}, but all {cells.shape[1]:,} are missing")
    whole = at is None and there.all() and cells.shape[1] == math.prod(sizes)
    cells = np.ascontiguousarray(cells[:, there])
    values = observed_again(pattern).values_at(cells)
    return Seen(name, cells, values, sizes if whole else values.shape, bool(whole))


def _counts(values: Array) -> NDArray[Any]:
    """Values as integers if they are whole: ArviZ plots histograms of integers, and densities of floats."""
    return values.astype(np.int64) if (values == np.floor(values)).all() else values


def _axes(fit: Fit, tensors: Sequence[Seen]) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """Dims and coordinates of all arrays; listed cells have one axis and are named by their labels."""
    coords = coords_of(tuple(fit.sizes), tuple(fit.sizes.values()), fit.labels)
    dims = {a: list(axes) for a, axes in fit.model.factors.items()}
    for one in tensors:
        indices = fit.model.observed[one.name]
        dims[one.name] = list(indices) if one.whole else [f"{one.name}_cell"]
        if not one.whole:
            columns = [
                fit.labels[i].names(at) if i in fit.labels else at.tolist()
                for i, at in zip(indices, one.cells, strict=True)
            ]
            coords[f"{one.name}_cell"] = [", ".join(map(str, cell)) for cell in zip(*columns, strict=True)]
    refuse_twice([*fit.factors, *(one.name for one in tensors), *coords, "chain", "draw"])
    return dims, coords


def _predicted(
    fit: Fit, seen: Seen, drawn: Mapping[str, Array], rng: np.random.Generator
) -> tuple[NDArray[np.int64], Array]:
    """Counts of cells and the log-probabilities of their values, a row for each draw of the factors."""
    rates = RatesAt(fit._equation(seen.name), fit.sizes, seen.cells)
    noise = fit._noise(seen.name).at(seen.cells)
    number = len(next(iter(drawn.values())))
    counts = np.empty((number, seen.values.size), dtype=np.int64)
    log_prob = np.empty(counts.shape)
    for draw in range(number):
        rate = rates({a: one[draw] for a, one in drawn.items()})
        counts[draw] = draw_counts(noise, rng, rate)
        log_prob[draw] = noise.log_prob(seen.values, rate)
    return counts, log_prob
