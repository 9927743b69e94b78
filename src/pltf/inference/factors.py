"""Sets of factor arrays, never changed in place."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pltf.gamma import Array

Factors = Mapping[str, Array]


def frozen(array: Array) -> Array:
    """The array, closed to changes in place: engines rely on it."""
    array = np.asarray(array)
    array.flags.writeable = False
    return array
