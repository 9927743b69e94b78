"""The base class of all observations."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pltf.data.cell_index import Coords
from pltf.data.labels import Labels
from pltf.data.pattern import Pattern


@dataclass(frozen=True, eq=False, repr=False)
class Observation(ABC):
    """A tensor with observed and missing cells, as returned by :func:`pltf.observe`.

    >>> import numpy as np, pltf
    >>> seen = pltf.observe(np.array([[1.0, np.nan]]))
    >>> isinstance(seen, pltf.Observation), seen.n_observed
    (True, 1)
    """

    n_observed: int  # may exceed int64
    total: float  # sum M*X
    saturated: float  # sum M*log Poisson(X; X): the log-likelihood of a perfect fit
    largest: float  # largest observed value
    dims: tuple[str, ...] | None = field(default=None, kw_only=True)  # names of the axes
    labels: Mapping[str, Labels] = field(default_factory=dict, kw_only=True)  # labels of the axes that have them

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes.

        >>> import numpy as np, pltf
        >>> pltf.observe(np.ones((2, 3))).shape
        (2, 3)
        """

    @property
    @abstractmethod
    def dtype_name(self) -> str:
        """Data type of the values, as text.

        >>> import numpy as np, pltf
        >>> pltf.observe(np.ones((2, 3), dtype=np.float32)).dtype_name
        'float32'
        """

    @property
    @abstractmethod
    def n_positive(self) -> int:
        """How many observed cells are above zero.

        >>> import numpy as np, pltf
        >>> pltf.observe(np.array([[2.0, 0.0, np.nan]])).n_positive
        1
        """

    @property
    def has_missing(self) -> bool:
        """Whether any cell is missing.

        >>> import numpy as np, pltf
        >>> pltf.observe(np.array([[2.0, 0.0, np.nan]])).has_missing
        True
        """
        return self.n_observed < math.prod(self.shape)

    @abstractmethod
    def pattern(self) -> Pattern:
        """Which cells were observed; independent of later changes to the caller's arrays."""

    @abstractmethod
    def values_at(self, cells: Coords) -> NDArray[np.float64]:
        """The values of cells (modes, n); NaN where missing.

        >>> import numpy as np, pltf
        >>> seen = pltf.observe(np.array([[2.0, 0.0, np.nan]]))
        >>> seen.values_at(np.array([[0, 0], [0, 2]]))
        array([ 2., nan])
        """

    @abstractmethod
    def first_where(self, wrong: Callable[[NDArray[Any]], NDArray[np.bool_]]) -> tuple[tuple[int, ...], float] | None:
        """The first cell with an observed value for which ``wrong`` is true, and the value, for messages."""

    def digest(self) -> str:
        """A content hash of shape, type, values and labels."""
        whole = hashlib.blake2b(repr((self.shape, self.dtype_name, self.n_observed)).encode(), digest_size=16)
        for part in self._parts():
            whole.update(np.ascontiguousarray(part).view(np.uint8).data if part.size else b"")
        for index, labels in sorted(self.labels.items()):
            words = labels.index.dtype == object and labels.zone is None
            kind = () if words else (labels.index.dtype.kind, labels.zone)  # 1 and "1" have the same name
            names = repr(labels.index) if hasattr(labels.index, "start") else labels.names()
            whole.update(repr((index, *kind, names)).encode())
        return whole.hexdigest()

    @abstractmethod
    def _parts(self) -> Iterator[NDArray[Any]]:
        """The arrays to hash, part by part."""

    def transposed(self, order: tuple[int, ...]) -> Self:
        """The data with permuted axes."""
        dims = None if self.dims is None else tuple(self.dims[axis] for axis in order)
        return replace(self, **self._permuted(order), dims=dims)

    @abstractmethod
    def _permuted(self, order: tuple[int, ...]) -> dict[str, Any]:
        """The fields that depend on the order of the axes."""

    def _repr_html_(self) -> str:
        from pltf.html import card, facts, table

        cells = math.prod(self.shape)
        told = {
            "observed": f"{self.n_observed:,} of {cells:,} cells" if self.has_missing else f"all {cells:,} cells",
            "above zero": f"{self.n_positive:,}",
            "total": f"{self.total:,.12g}, at most {self.largest:,.6g} in a cell",
            "values": self.dtype_name,
        }
        dims = self.dims or tuple(f"axis {n}" for n in range(len(self.shape)))
        rows = [(dim, f"{size:,}", *self._axis_in_words(dim, size)) for dim, size in zip(dims, self.shape, strict=True)]
        return card(type(self).__name__, facts(told), table(("index", "size", "labels", ""), rows))

    def _axis_in_words(self, dim: str, size: int) -> tuple[str, str]:
        """The first and last labels of an index, and their bin."""
        if dim not in self.labels:
            return f"0 to {size - 1:,}", "positions"
        return self.labels[dim].summary, self.labels[dim].bin or ""

    def __repr__(self) -> str:
        cells = math.prod(self.shape)
        observed = f"{self.n_observed:,} of {cells:,} cells observed"
        shape = "x".join(map(str, self.shape))
        return f"<{type(self).__name__} {shape} {self.dtype_name}: {observed}, total {self.total:g}>"
