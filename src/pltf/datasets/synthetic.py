"""Synthetic tensors drawn from a model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.engines.plan import human
from pltf.errors import PltfError, py, whole
from pltf.gamma import Array, Gamma
from pltf.memory import memory_there_is
from pltf.notation import Model
from pltf.prediction.rates import rates


@dataclass(frozen=True, eq=False, repr=False)
class Draw:
    """Counts drawn from a model, with their true factors and rates.

    >>> import pltf, pltf.datasets
    >>> drawn = pltf.datasets.draw(pltf.nmf(rank=2), (4, 3), seed=1)
    >>> drawn.counts["X"].shape, drawn.factors["H"].shape
    ((4, 3), (2, 3))
    """

    counts: Mapping[str, NDArray[np.int64]]  # tensor -> Poisson counts
    rates: Mapping[str, Array]  # tensor -> Poisson rates of the counts
    factors: Mapping[str, Array]  # the true factors, by name

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {'x'.join(map(str, x.shape))}" for name, x in self.counts.items())
        return f"<Draw of {sizes}>"


def draw(model: Model, shape: Any, *, prior: Gamma | None = None, seed: int = 0) -> Draw:
    """Draw factors from a prior and counts from their rates.

    ``shape`` is the shape of the tensor, or a mapping from tensor name to shape. The default prior is
    ``Gamma(shape=0.5, mean=1)``.

    >>> import pltf, pltf.datasets
    >>> X = pltf.datasets.draw(pltf.cp(rank=4), (5, 5, 5), seed=0).counts["X"]
    >>> X.dtype, bool(X.min() >= 0)
    (dtype('int64'), True)
    """
    if not isinstance(model, Model):
        raise PltfError(f"{py:model} must be a pltf.Model, got {type(model).__name__}")
    names = tuple(model.observed)
    given = shape if isinstance(shape, Mapping) else {names[0]: shape}
    shapes = {name: _shape(one) for name, one in given.items()}
    if set(shapes) != set(names):
        got = ", ".join(shapes) or "none"
        raise PltfError(f"{py:shape} must give a shape for each of {', '.join(names)}, got {got}")
    sizes = model.index_sizes(shapes)
    prior = Gamma(shape=0.5, mean=1.0) if prior is None else prior
    if not isinstance(prior, Gamma):
        raise PltfError(f"{py:prior} must be a Gamma, got {type(prior).__name__}")
    rng = np.random.default_rng(whole("seed", seed, 0))
    of_factor = {name: tuple(sizes[index] for index in indices) for name, indices in model.factors.items()}
    _check(shapes, of_factor, prior)
    factors = {name: prior.sample(size, rng) for name, size in of_factor.items()}
    truth = {e.output.name: rates(e, factors, sizes) for e in model.equations}
    for name, rate in truth.items():
        if rate.max() > _MOST:
            raise PltfError(f"{py:prior} gives rates of {rate.max():.2g} in {name}: counts end at {_MOST:.2g}")
    return Draw({name: rng.poisson(rate) for name, rate in truth.items()}, truth, factors)


_MOST = 2.0**53


def _check(tensors: Mapping[str, tuple[int, ...]], factors: Mapping[str, tuple[int, ...]], prior: Gamma) -> None:
    """Raise an error for shapes that exceed the memory and for priors that do not broadcast, before drawing."""
    need = 16 * sum(map(math.prod, tensors.values())) + 8 * sum(map(math.prod, factors.values()))
    have, whose = memory_there_is()
    if need > have:
        raise PltfError(f"{py:shape} needs {human(need, 'B')}, but {whose} {human(have, 'B')}")
    for name, size in factors.items():
        given = np.broadcast_shapes(np.shape(prior.shape), np.shape(prior.mean))
        try:
            fits = np.broadcast_shapes(given, size) == size
        except ValueError:
            fits = False
        if not fits:
            raise PltfError(f"{py:prior} must broadcast to every factor, but {name} is {size} and the prior {given}")


def _shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, Iterable) or isinstance(shape, str):
        raise PltfError(f"{py:shape} must be sizes such as (50, 50, 50), got {shape!r}")
    return tuple(whole("every size of shape", size, 1) for size in shape)
