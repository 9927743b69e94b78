"""Random numbers of cells and of entries of factors that depend on the seed and on the place alone.

So the same cell has the same draws in every request, in blocks of any size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pltf.data.cell_index import Coords
from pltf.gamma import Array

Places = NDArray[np.uint64]


def places_of(cells: Coords) -> Places:
    """A word for each cell (modes, n)."""
    from pltf.engines.kernels.keyed import places  # imports the compiler

    return np.asarray(places(np.ascontiguousarray(cells, dtype=np.int64)))


class KeyedRandom:
    """Draws for places (n), with the methods of a NumPy generator that a :class:`pltf.prediction.noise.Noise` uses.

    >>> places = places_of(np.array([[0, 1, 2], [5, 5, 5]]))
    >>> every, last = (KeyedRandom((7, 0), some).random(some.size) for some in (places, places[2:]))
    >>> bool(every[2] == last[0])
    True
    """

    def __init__(self, key: tuple[int, ...], places: Places) -> None:
        self._key, self._places, self._calls = key, places, 0

    def _next(self) -> tuple[np.uint64, Places]:
        """What the next numbers depend on."""
        self._calls += 1
        key = len(self._key), *self._key, self._calls  # the length, as (1,) and (1, 0) are the same for SeedSequence
        return np.random.SeedSequence(key).generate_state(1, np.uint64)[0], self._places

    def _each(self, values: Array | float) -> Array:
        return np.ascontiguousarray(np.broadcast_to(values, self._places.shape), dtype=np.float64)

    def random(self, size: object = None) -> Array:
        """Uniform numbers in [0, 1)."""
        from pltf.engines.kernels.keyed import uniforms

        return np.asarray(uniforms(*self._next()))

    def standard_gamma(self, shape: Array | float, size: object = None) -> Array:
        """Gamma numbers of scale 1."""
        from pltf.engines.kernels.keyed import gammas

        return np.asarray(gammas(*self._next(), self._each(shape)))

    def poisson(self, lam: Array) -> NDArray[np.int64]:
        """Poisson counts."""
        from pltf.engines.kernels.keyed import poissons

        return np.asarray(poissons(*self._next(), self._each(lam)))

    def geometric(self, p: float, size: object = None) -> NDArray[np.int64]:
        """Positive geometric counts of mean 1/p."""
        with np.errstate(divide="ignore"):  # p = 1: all are 1
            counts = 1 + np.floor(np.log1p(-self.random()) / np.log1p(-p))
        return np.asarray(counts, dtype=np.int64)
