"""What every observation has, whatever its storage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pltf.data.labels import Labels
from pltf.data.lookup import Coords
from pltf.data.pattern import Pattern


@dataclass(frozen=True, eq=False, repr=False)
class Observation(ABC):
    """A tensor of which some cells were observed; :func:`pltf.observe` makes it.

    >>> import numpy as np, pltf
    >>> seen = pltf.observe(np.array([[1.0, np.nan]]))
    >>> isinstance(seen, pltf.Observation), seen.n_observed
    (True, 1)
    """

    n_observed: int  # may be beyond any machine integer
    total: float  # sum M*X
    saturated: float  # sum M*log Poisson(X; X): the log-likelihood of a perfect fit
    largest: float  # observed value
    dims: tuple[str, ...] | None = field(default=None, kw_only=True)  # names of the axes
    labels: Mapping[str, Labels] = field(default_factory=dict, kw_only=True)  # of those that have labels

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""

    @property
    @abstractmethod
    def dtype_name(self) -> str:
        """Type of the values, in words."""

    @property
    @abstractmethod
    def has_missing(self) -> bool:
        """Whether any cell is missing."""

    @abstractmethod
    def pattern(self) -> Pattern:
        """Which cells were observed; it does not change when the caller's arrays do."""

    @abstractmethod
    def values_at(self, cells: Coords) -> NDArray[np.float64]:
        """What cells (modes, n) hold; NaN where they are missing."""

    @abstractmethod
    def transposed(self, order: tuple[int, ...]) -> Self:
        """The same data with their axes in another order."""

    def __repr__(self) -> str:
        cells = 1
        for size in self.shape:
            cells *= size
        observed = f"{self.n_observed:,} of {cells:,} cells observed"
        shape = "x".join(map(str, self.shape))
        return f"<{type(self).__name__} {shape} {self.dtype_name}: {observed}, total {self.total:g}>"
