"""What is known of how much counts vary beyond Poisson."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pltf.gamma import Array
from pltf.prediction.noise import NegativeBinomial, Noise, Poisson, ZeroInflated


@dataclass(frozen=True, eq=False)
class Dispersion:
    """How much the counts of a tensor vary beyond Poisson: a count of rate m has the variance m + m^2 / size.

    ``size`` is infinite where nothing beyond Poisson was found. It is an array where it differs along an index
    (``index``). ``zeros`` is the share of cells that are zero for another reason than their rate. ``cells`` says from
    how many held-back cells it was estimated: 0 if it was given, or if it could not be, which ``note`` explains.
    ``factor`` is the variance of these cells over that of Poisson counts with the same rates, both summed.

    >>> print(Dispersion(0.5, cells=4200, factor=41.3))
    counts vary 41 times more than Poisson allows (size 0.5, from 4,200 held-back cells)
    >>> print(Dispersion(cells=4200))
    no more variance than Poisson (from 4,200 held-back cells)
    >>> print(Dispersion(note="there are too few cells"))
    Poisson: there are too few cells
    """

    size: float | Array = math.inf
    index: str | None = None
    zeros: float = 0.0
    cells: int = 0
    factor: float = math.nan
    note: str = ""

    @property
    def is_poisson(self) -> bool:
        """Whether nothing beyond Poisson was found.

        >>> Dispersion().is_poisson, Dispersion(2.0).is_poisson
        (True, False)
        """
        return bool(np.isinf(self.size).all()) and not self.zeros

    def noise(self, indices: tuple[str, ...]) -> Noise:
        """The noise of a tensor with these indices.

        >>> Dispersion(2.0).noise(("i", "j"))
        NegativeBinomial(size=2.0, axis=None)
        """
        axis = None if self.index is None else indices.index(self.index)
        inner = Poisson() if np.isinf(self.size).all() else NegativeBinomial(self.size, axis)
        return ZeroInflated(self.zeros, inner) if self.zeros else inner

    def __str__(self) -> str:
        if self.note:
            return f"Poisson: {self.note}"
        source = f"from {self.cells:,} held-back cells" if self.cells else "given"
        if self.is_poisson:
            return f"no more variance than Poisson ({source})"
        times = "" if math.isnan(self.factor) else f" {_times(self.factor)} times"
        return f"counts vary{times} more than Poisson allows ({self._size()}{self._zeros()}, {source})"

    def _size(self) -> str:
        if self.index is None:
            return f"size {self.size:.3g}"
        return f"size {np.min(self.size):.3g} to {np.max(self.size):.3g} along '{self.index}'"

    def _zeros(self) -> str:
        return f", {self.zeros:.1%} extra zeros" if self.zeros else ""


def _times(factor: float) -> str:
    """A factor with as many digits as can be read."""
    return f"{factor:.1f}" if factor < 10 else f"{factor:,.0f}"
