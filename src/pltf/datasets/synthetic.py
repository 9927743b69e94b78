"""Tensors drawn from a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.errors import PltfError
from pltf.gamma import Array, Gamma
from pltf.notation import Model
from pltf.prediction import rates


@dataclass(frozen=True, eq=False)
class Draw:
    """Counts drawn from a model, with the truth behind them.

    >>> import pltf, pltf.datasets
    >>> drawn = pltf.datasets.draw(pltf.nmf(rank=2), (4, 3), seed=1)
    >>> drawn.counts["X"].shape, drawn.factors["H"].shape
    ((4, 3), (2, 3))
    """

    counts: Mapping[str, NDArray[np.int64]]  # tensor -> Poisson counts
    rates: Mapping[str, Array]  # tensor -> what they were drawn with
    factors: Mapping[str, Array]


def draw(model: Model, shape: Any, *, prior: Gamma | None = None, seed: int = 0) -> Draw:
    """Draw factors from a prior and counts from their rates.

    ``shape`` is the shape of the tensor, or a mapping from tensor to shape; the prior is
    ``Gamma(shape=0.5, mean=1)`` unless another one is given.

    >>> import pltf, pltf.datasets
    >>> X = pltf.datasets.draw(pltf.cp(rank=4), (5, 5, 5), seed=0).counts["X"]
    >>> X.dtype, bool(X.min() >= 0)
    (dtype('int64'), True)
    """
    names = tuple(model.observed)
    shapes = shape if isinstance(shape, Mapping) else {names[0]: tuple(shape)}
    if set(shapes) != set(names):
        raise PltfError(f"shape must give a shape for each of {', '.join(names)}, got {', '.join(shapes)}")
    sizes = model.index_sizes(shapes)
    prior = Gamma(shape=0.5, mean=1.0) if prior is None else prior
    rng = np.random.default_rng(seed)
    factors = {
        name: prior.sample(tuple(sizes[index] for index in indices), rng) for name, indices in model.factors.items()
    }
    truth = {e.output.name: rates(e, factors, sizes) for e in model.equations}
    return Draw({name: rng.poisson(rate) for name, rate in truth.items()}, truth, factors)
