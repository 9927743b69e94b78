"""Convert a fit to labelled arrays (xarray)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pltf.errors import PltfError, py
from pltf.gamma import coords_of
from pltf.prediction.table import INTERVALS, intervals, refuse_huge

if TYPE_CHECKING:
    import xarray as xr

    from pltf.fit import Fit


def as_dataset(fit: Fit, predictions: bool, level: float, **drawn: Any) -> xr.Dataset:
    """Factors, and tensors if requested, in one Dataset; ``drawn``: the draws for intervals of the tensors, if any."""
    import xarray as xr

    tensors = tuple(fit.model.observed) if predictions else ()
    columns = ("", "_sd", *(f"_{end}" for end in INTERVALS if drawn))
    names = [f"{a}{part}" for a in fit.factors for part in ("", "_sd", "_low", "_high")]
    refuse_twice([*names, *(f"{name}{part}" for name in tensors for part in columns), *fit.sizes])
    parts: dict[str, Any] = {}
    for a, factor in fit.factors.items():
        low, high = factor.interval(level)
        known = {a: factor.mean, f"{a}_sd": np.sqrt(factor.var), f"{a}_low": low, f"{a}_high": high}
        parts |= {key: (factor.indices, values) for key, values in known.items()}
    for name in tensors:
        indices = fit.model.observed[name]
        size = 8 * len(columns) * math.prod(fit.sizes[index] for index in indices)
        refuse_huge(size, f"{py:predictions=False} leaves them out")
        found = {name: fit.mean(of=name), f"{name}_sd": np.sqrt(fit.var(of=name))}
        ends = intervals(fit, None, level, of=name, **drawn) if drawn else {}
        found |= {f"{name}_{end}": values for end, values in ends.items()}
        parts |= {key: (indices, values) for key, values in found.items()}
    coords = coords_of(tuple(fit.sizes), tuple(fit.sizes.values()), fit.labels)
    about = {"model": fit.model.text, "method": fit.method, fit.objective: fit.bound, "level": level}
    return xr.Dataset(parts, coords, about)


def refuse_twice(names: Sequence[str]) -> None:
    """Raise an error if arrays and axes do not have unique names."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise PltfError(f"two variables would be named {twice!r}: rename an index, a factor or a tensor")
