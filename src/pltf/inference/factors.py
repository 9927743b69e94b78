"""Sets of factor arrays, never changed in place."""

from __future__ import annotations

import numpy as np

from pltf.engines.base import Factors
from pltf.gamma import Array

__all__ = ["Factors", "frozen"]


def frozen(array: Array) -> Array:
    """The array, closed to changes in place: engines rely on it."""
    array = np.asarray(array)
    array.flags.writeable = False
    return array
