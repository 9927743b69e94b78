"""Sparse counts: list of non-zeros, how they are drawn, and divergence of rates from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Positions = NDArray[np.int64]

CHUNK_CELLS = 1 << 16  # cells whose rates are made at a time


@dataclass(frozen=True, eq=False)
class Listed:
    """The non-zeros; all other cells are zero."""

    coords: Positions  # (cells, indices)
    values: Array
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def nbytes(self) -> int:
        return self.coords.nbytes + self.values.nbytes

    def astype(self, dtype: str, copy: bool = True) -> Listed:
        return replace(self, values=self.values.astype(dtype, copy=copy))

    def matrix(self) -> Any:
        """The same as a scipy.sparse CSR matrix."""
        from scipy.sparse import csr_array

        return csr_array((self.values, (self.coords[:, 0], self.coords[:, 1])), shape=self.shape)


def popular(rng: np.random.Generator, size: int, rank: int) -> Array:
    """A factor with Zipf-like rows: entries Gamma(shape 0.5), of mean 1/n in the n-th most popular row; in no order."""
    mean = 1 / (1 + rng.permutation(size))
    return rng.gamma(0.5, 2.0, (size, rank)) * mean[:, None]


def draw_cells(rng: np.random.Generator, factors: list[Array], nonzeros: int) -> Listed:
    """Counts one after the other, until so many cells have one: a Poisson draw whose total is left open."""
    shape = tuple(len(factor) for factor in factors)
    keys = _draws(rng, factors, nonzeros)
    while _distinct(keys) < nonzeros:
        keys = np.concatenate([keys, _draws(rng, factors, nonzeros)])
    first = np.sort(np.unique(keys, return_index=True)[1])  # draws that hit a cell for the first time
    if first.size > nonzeros:
        keys = keys[: first[nonzeros]]
    cells, counts = np.unique(keys, return_counts=True)
    return Listed(np.stack(np.unravel_index(cells, shape), axis=1), counts.astype(np.float64), shape)


def total_rate(factors: list[Array]) -> float:
    """Sum of the rates of all cells, in closed form."""
    return float(np.prod([factor.sum(axis=0, dtype=np.float64) for factor in factors], axis=0).sum())


def divergence(X: Listed, factors: list[Array]) -> float:
    """sum x*log(x/xhat) - x + xhat over all cells: logarithms for those listed, the rest in closed form."""
    from scipy.special import rel_entr

    logs = 0.0
    for begin in range(0, len(X.values), CHUNK_CELLS):
        some = slice(begin, begin + CHUNK_CELLS)
        logs += float(rel_entr(X.values[some], _rates(factors, X.coords[some])).sum())
    return logs - float(X.values.sum()) + total_rate(factors)


def _rates(factors: list[Array], coords: Positions) -> Array:
    """Xhat of the cells of a matrix or a CP tensor."""
    rows = factors[0][coords[:, 0]]
    for n, factor in enumerate(factors[1:], start=1):
        rows *= factor[coords[:, n]]
    return np.asarray(rows.sum(axis=1))


def _draws(rng: np.random.Generator, factors: list[Array], size: int) -> Positions:
    """Where ``size`` counts fall, as positions in the flattened tensor: a component, then a row in each factor."""
    weights = np.prod([factor.sum(axis=0) for factor in factors], axis=0)
    each = rng.multinomial(size, weights / weights.sum())
    keys = np.zeros(size, dtype=np.int64)
    for r, part in enumerate(np.split(keys, np.cumsum(each)[:-1])):  # views
        for factor in factors:
            part *= len(factor)
            part += _rows(rng, factor[:, r], part.size)
    rng.shuffle(keys)
    return keys


def _rows(rng: np.random.Generator, weights: Array, size: int) -> NDArray[np.intp]:
    """Rows drawn with probabilities proportional to weights."""
    edges = np.cumsum(weights)
    return np.searchsorted(edges[:-1], rng.uniform(0, edges[-1], size), side="right")


def _distinct(keys: Positions) -> int:
    ordered = np.sort(keys)
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))
