"""Hiding cells on purpose, to be predicted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.dense import DenseObservation
from pltf.data.observe import is_listed, observe
from pltf.data.values import brief
from pltf.errors import PltfError, whole


def holdout(data: Any, fraction: float, *, seed: int = 0) -> NDArray[np.bool_]:
    """A mask that keeps all but a random ``fraction`` of the observed cells; True = keep.

    Cells that are missing already are False too, so the mask can go straight to ``fit``.

    >>> import numpy as np, pltf
    >>> keep = pltf.holdout(np.ones((10, 10)), 0.4, seed=1)
    >>> int(keep.sum())
    60
    """
    if not isinstance(fraction, (int, float, np.integer, np.floating)) or not 0 < fraction < 1:
        raise PltfError(f"fraction must lie between 0 and 1, got {brief(fraction)}")
    seen = None if is_listed(data) else observe(data)
    if not isinstance(seen, DenseObservation):
        raise PltfError("data must be a dense array: cells that are listed are hidden by listing them in missing=")
    keep = np.ones(seen.shape, dtype=bool) if seen.mask is None else seen.mask.copy()
    cells = np.flatnonzero(keep)
    hidden = np.random.default_rng(whole("seed", seed, 0)).choice(
        cells.size, round(fraction * cells.size), replace=False
    )
    keep.flat[cells[hidden]] = False
    return keep
