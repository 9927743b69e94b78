"""A fit as labelled arrays, for xarray and for ArviZ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.cell_index import Coords
from pltf.data.pattern import DensePattern, ListedPattern, Pattern, kept
from pltf.data.stored import StoredPattern
from pltf.engines.plan import human
from pltf.errors import PltfError, py
from pltf.gamma import Array, coords_of
from pltf.prediction.noise import draw_counts
from pltf.prediction.rates import RatesAt

if TYPE_CHECKING:
    import xarray as xr

    from pltf.fit import Fit

MOST = 1 << 31  # bytes of an answer that nobody asked for by its size


def as_dataset(fit: Fit, predictions: bool, level: float) -> xr.Dataset:
    """Factors, and tensors if they are wanted, in one Dataset."""
    import xarray as xr

    tensors = tuple(fit.model.observed) if predictions else ()
    names = [f"{a}{part}" for a in fit.factors for part in ("", "_sd", "_low", "_high")]
    _refuse_twice([*names, *(f"{name}{part}" for name in tensors for part in ("", "_sd")), *fit.sizes])
    parts: dict[str, Any] = {}
    for a, factor in fit.factors.items():
        low, high = factor.interval(level)
        known = {a: factor.mean, f"{a}_sd": np.sqrt(factor.var), f"{a}_low": low, f"{a}_high": high}
        parts |= {key: (factor.indices, values) for key, values in known.items()}
    for name in tensors:
        indices = fit.model.observed[name]
        _refuse_huge(16 * math.prod(fit.sizes[index] for index in indices), f"{py:predictions=False} leaves them out")
        parts |= {name: (indices, fit.mean(of=name)), f"{name}_sd": (indices, np.sqrt(fit.var(of=name)))}
    coords = coords_of(tuple(fit.sizes), tuple(fit.sizes.values()), fit.labels)
    about = {"model": fit.model.text, "method": fit.method, fit.objective: fit.bound, "level": level}
    return xr.Dataset(parts, coords, about)


def as_inference_data(fit: Fit, name: str, draws: int, seed: int) -> Any:
    """Draws of all factors, and of the counts of one tensor beside what was observed of it."""
    try:
        import arviz as az
    except ModuleNotFoundError:
        raise PltfError("to_arviz needs ArviZ: pip install 'pltf[arviz]'") from None
    indices, pattern = fit.model.observed[name], kept(fit.patterns[name], "there are no data to give to ArviZ")
    cells, observed, shape, dims = _observed(pattern)
    drawn = _drawn(fit, draws, seed)
    chains, draws = next(iter(drawn.values())).shape[:2]
    _refuse_huge(8 * chains * draws * observed.size, f"ask for fewer {py:draws}")
    coords = coords_of(tuple(fit.sizes), tuple(fit.sizes.values()), fit.labels)
    if dims:
        dims = [f"{name}_{dims[0]}"]
        named = [
            fit.labels[i].names(at) if i in fit.labels else at.tolist() for i, at in zip(indices, cells, strict=True)
        ]
        coords[dims[0]] = [", ".join(map(str, cell)) for cell in zip(*named, strict=True)]
    _refuse_twice([*fit.factors, name, *coords, "chain", "draw"])
    flat = {a: one.reshape(-1, *one.shape[2:]) for a, one in drawn.items()}
    counts = _predicted(fit, name, cells, flat, seed).reshape(chains, draws, *shape)
    return az.from_dict(
        posterior=drawn,
        posterior_predictive={name: counts},
        observed_data={name: observed},
        coords=coords,
        dims={**{a: list(axes) for a, axes in fit.model.factors.items()}, name: dims or list(indices)},
        attrs={"model": fit.model.text, "inference_library": "pltf"},
    )


def _drawn(fit: Fit, draws: int, seed: int) -> dict[str, Array]:
    """Draws of all factors, with axes for chain and draw first: those of the chains, or independent ones."""
    if fit.draws:
        chains, number = next(iter(fit.draws.values())).shape[:2]
        chosen = np.arange(min(draws, number)) * number // min(draws, number)
        points = {a: np.broadcast_to(one, (chains, chosen.size, *one.shape)) for a, one in fit.points.items()}
        known = {**points, **{a: one[:, chosen] for a, one in fit.draws.items()}}
        return {a: known[a] for a in fit.factors}
    entries = sum(one.mean.size for one in fit.factors.values())
    _refuse_huge(8 * draws * entries, f"ask for fewer {py:draws}")
    return {a: one.sample(draws, seed=seed + number)[None] for number, (a, one) in enumerate(fit.factors.items())}


def _observed(pattern: Pattern) -> tuple[Coords, NDArray[np.float64], tuple[int, ...], list[str]]:
    """Cells and what was seen of them: all of an array, those that were listed otherwise."""
    if isinstance(pattern, DensePattern):
        _refuse_huge(8 * (2 + len(pattern.shape)) * math.prod(pattern.shape), "the tensor is too large for ArviZ")
        cells = np.indices(pattern.shape).reshape(len(pattern.shape), -1)
        return cells, pattern.array(), pattern.shape, []
    if isinstance(pattern, StoredPattern):
        raise PltfError("the cells of a store stay on disk, and ArviZ needs them in memory: fit them as a list")
    assert isinstance(pattern, ListedPattern)
    return pattern.coords.astype(np.intp), pattern.values.astype(np.float64), pattern.values.shape, ["cell"]


def _predicted(fit: Fit, name: str, cells: Coords, drawn: Mapping[str, Array], seed: int) -> NDArray[np.int64]:
    """Counts of cells, a row for each draw of the factors."""
    equation = next(e for e in fit.model.equations if e.output.name == name)
    rates, rng = RatesAt(equation, fit.sizes, cells), np.random.default_rng([seed, 1])
    noise, counts = fit._noise(name).at(cells), []
    for number in range(len(next(iter(drawn.values())))):
        rate = rates({a: one[number] for a, one in drawn.items()})
        counts.append(draw_counts(noise, rng, rate))
    return np.stack(counts)


def _refuse_huge(size: int, advice: str) -> None:
    if size > MOST:
        raise PltfError(f"the answer would take {human(size, 'B')}: {advice}")


def _refuse_twice(names: Sequence[str]) -> None:
    """Arrays and their axes share their names with nothing else there."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise PltfError(f"two things would be called {twice!r}: give an index, a factor or a tensor another name")
