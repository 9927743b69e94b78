"""Overdispersion of counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pltf.gamma import Array
from pltf.prediction.noise import NegativeBinomial, Noise, Poisson, Strays, ZeroInflated

WELL_DESCRIBED = 1000.0  # factor above which the rates are wrong rather than the counts variable


@dataclass(frozen=True, eq=False)
class Dispersion:
    """Overdispersion of a tensor: how much its counts vary beyond Poisson.

    A count with rate m has the variance m + m^2 / (size * m^power); with ``power`` 0 this is the usual negative
    binomial. ``size`` is infinite for Poisson counts, and an array if it differs along an index (``index``). ``zeros``
    is the share of excess zeros. ``strays`` is the share of outliers, counts independent of their rate, which are
    ``typical`` on average. ``cells`` is the number of held-out cells it was estimated from: 0 if it was given, or could
    not be estimated, as ``note`` explains. ``factor`` is the variance of these cells relative to Poisson counts with
    the same rates, both summed.

    >>> print(Dispersion(0.5, cells=4200, factor=41.3))
    counts vary 41 times more than Poisson allows (size 0.5, from 4,200 held-out cells)
    >>> print(Dispersion(0.002, cells=4200, factor=5e6))  # doctest: +ELLIPSIS
    counts vary over 1,000 times more than Poisson allows: the model does not describe them well, or ...
    >>> print(Dispersion(cells=4200))
    no more variance than Poisson (from 4,200 held-out cells)
    >>> print(Dispersion(note="there are too few cells"))
    Poisson: there are too few cells
    """

    size: float | Array = math.inf  # infinite for Poisson counts
    index: str | None = None  # index along which ``size`` differs
    zeros: float = 0.0  # share of excess zeros
    power: float = 0.0  # 0: negative binomial
    cells: int = 0  # number of held-out cells it was estimated from
    factor: float = math.nan  # variance of these cells relative to Poisson counts
    note: str = ""  # why there is no estimate
    strays: float = 0.0  # share of outliers
    typical: float = 1.0  # mean of outliers

    @property
    def is_poisson(self) -> bool:
        """Whether the counts are Poisson.

        >>> Dispersion().is_poisson, Dispersion(2.0).is_poisson
        (True, False)
        """
        return bool(np.isinf(self.size).all()) and not self.zeros and not self.strays

    def noise(self, indices: tuple[str, ...]) -> Noise:
        """The noise model of a tensor with these indices.

        >>> Dispersion(2.0).noise(("i", "j"))
        NegativeBinomial(size=2.0, axis=None, power=0.0)
        """
        axis = None if self.index is None else indices.index(self.index)
        inner = Poisson() if np.isinf(self.size).all() else NegativeBinomial(self.size, axis, self.power)
        counted = ZeroInflated(self.zeros, inner) if self.zeros else inner
        return Strays(self.strays, self.typical, counted) if self.strays else counted

    def without(self, index: str) -> Dispersion:
        """The same for new rows of an index: if it differs along the index, its geometric mean.

        >>> round(float(Dispersion(np.array([1.0, 4.0]), "i").without("i").size), 6)
        2.0
        """
        if self.index != index:
            return self
        return replace(self, size=float(np.exp(np.log(self.size).mean())), index=None)

    def extended(self, index: str, size: int) -> Dispersion:
        """The same for an index that has grown: if it differs along the index, new rows have its geometric mean.

        >>> Dispersion(np.array([1.0, 4.0]), "i").extended("i", 3).size.tolist()
        [1.0, 4.0, 2.0]
        """
        if self.index != index:
            return self
        new = size - np.asarray(self.size).size
        return replace(self, size=np.append(self.size, np.full(new, self.without(index).size)))

    def __str__(self) -> str:
        if self.note:
            return f"Poisson: {self.note}"
        source = f"from {self.cells:,} held-out cells" if self.cells else "given"
        if self.is_poisson:
            return f"no more variance than Poisson ({source})"
        doubt = f": {self._doubt}" if self._doubt else ""
        return f"counts vary {self.excess} than Poisson allows{doubt} ({self._size()}{self._others()}, {source})"

    @property
    def brief(self) -> str:
        """The same without the parameters.

        >>> Dispersion(0.5, cells=4200, factor=41.3).brief
        '41 times more variance than Poisson; intervals allow for it'
        """
        if self.note:
            return str(self)
        if self.is_poisson:
            return "no more variance than Poisson"
        return f"{self.excess} variance than Poisson{f': {self._doubt}' if self._doubt else '; intervals allow for it'}"

    @property
    def excess(self) -> str:
        """How much more counts vary than Poisson; empty if they do not.

        >>> Dispersion(0.5, factor=41.3).excess, Dispersion(0.5).excess, Dispersion().excess
        ('41 times more', 'more', '')
        """
        if self.is_poisson:
            return ""
        return "more" if math.isnan(self.factor) else f"{_times(self.factor)} times more"

    @property
    def _doubt(self) -> str:
        """A warning, if counts are so far from their rates that the rates must be wrong."""
        wrong = "the model does not describe them well, or a few cells are far off"
        return wrong if self.factor > WELL_DESCRIBED else ""

    def _size(self) -> str:
        rate = f" * rate^{self.power:.2g}" if self.power else ""
        if self.index is None:
            return f"size {self.size:.3g}{rate}"
        return f"size {np.min(self.size):.3g} to {np.max(self.size):.3g}{rate} along '{self.index}'"

    def _others(self) -> str:
        zeros = f", {self.zeros:.1%} excess zeros" if self.zeros else ""
        return zeros + (f", {100 * self.strays:.2g}% strays" if self.strays else "")


def _times(factor: float) -> str:
    """A factor with a readable number of digits."""
    if factor > WELL_DESCRIBED:
        return f"over {WELL_DESCRIBED:,.0f}"
    return f"{factor:.1f}" if factor < 10 else f"{factor:,.0f}"
