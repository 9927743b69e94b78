"""The data: drawn from the model with a fixed seed, kept in one file that every contender reads.

``python -m benchmarks.problems NAME FILE`` writes one. It is a program of its own because on Linux a
child's peak memory begins at that of its parent: the parent must never have held the data.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import listed
from benchmarks.listed import Array, Listed, total_rate

Mask = NDArray[np.bool_]

SEED = 20240607
CHUNK_CELLS = 1 << 20  # cells whose rates are made at a time
TINY = 6  # length of every index of a tiny problem


@dataclass(frozen=True)
class Spec:
    """What a problem is, without its data."""

    name: str
    shape: tuple[int, ...]  # two indices: a matrix for NMF; three: a tensor for CP
    rank: int
    sweeps: int  # after which the divergence is taken
    missing: float = 0.0
    nonzeros: int | None = None  # cells that are listed; None: an array of all cells
    dtype: str = "float64"  # of an array; in float32 it is only for those who work in float32
    quick: bool = False  # part of the quick check
    full: bool = True  # part of the whole benchmark

    @property
    def kind(self) -> str:
        return ("sparse " if self.nonzeros else "") + ("NMF" if len(self.shape) == 2 else "CP")

    @property
    def title(self) -> str:
        holes = f"{self.missing:.0%} missing" if self.missing else "nothing missing"
        what = f"{self.nonzeros} non-zeros" if self.nonzeros else f"{self.dtype}, {holes}"
        return f"{self.kind} {'x'.join(map(str, self.shape))} R={self.rank}, {what}"

    def draw(self) -> Problem:
        if self.nonzeros:
            return draw_listed(self.shape, self.rank, self.nonzeros)
        return draw(self.shape, self.rank, self.missing, self.dtype)


SPECS = {
    spec.name: spec
    for spec in (
        Spec("cp-50", (50, 50, 50), 7, sweeps=100, quick=True),
        Spec("cp-50-masked", (50, 50, 50), 7, sweeps=100, missing=0.4, quick=True),
        Spec("cp-200", (200, 200, 200), 7, sweeps=20),
        Spec("cp-500", (500, 500, 500), 7, sweeps=6, dtype="float32"),
        Spec("nmf-2000", (2000, 1000), 20, sweeps=40, quick=True),
        Spec("cp-sparse", (10_000, 8_000, 500), 20, sweeps=6, nonzeros=1_000_000),
        Spec("nmf-sparse", (50_000, 20_000), 20, sweeps=6, nonzeros=2_000_000),
        Spec("cp-sparse-small", (1000, 800, 50), 10, sweeps=6, nonzeros=50_000, quick=True, full=False),
        Spec("nmf-sparse-small", (5000, 2000), 10, sweeps=6, nonzeros=100_000, quick=True, full=False),
    )
}


@dataclass(frozen=True, eq=False)
class Problem:
    """Counts, their mask, the factors that drew them and those that every contender starts from."""

    X: Array | Listed
    mask: Mask | None  # True = observed; None: nothing is missing
    truth: list[Array]  # an (n, rank) matrix for each index of X
    start: list[Array]

    @property
    def rank(self) -> int:
        return int(self.start[0].shape[1])

    @property
    def nbytes(self) -> int:
        return self.X.nbytes + (0 if self.mask is None else self.mask.nbytes)

    def divergence(self, factors: list[Array]) -> float:
        """sum x*log(x/xhat) - x + xhat over the observed cells."""
        if isinstance(self.X, Listed):
            return listed.divergence(self.X, factors)
        return _divergence(self.X, self.mask, factors)

    def tiny(self) -> Problem:
        """A problem of the same kind, and so small that it takes no time."""
        shape = (TINY,) * self.X.ndim
        if isinstance(self.X, Listed):
            return draw_listed(shape, self.rank, 2 * TINY)
        return draw(shape, self.rank, missing=0 if self.mask is None else 0.3)

    def save(self, path: Path) -> None:
        arrays: dict[str, Any] = {f"truth{n}": factor for n, factor in enumerate(self.truth)}
        arrays |= {f"start{n}": factor for n, factor in enumerate(self.start)}
        if self.mask is not None:
            arrays["mask"] = self.mask
        if isinstance(self.X, Listed):
            arrays |= {"coords": self.X.coords, "values": self.X.values, "shape": self.X.shape}
        else:
            arrays["X"] = self.X
        np.savez(path, **arrays)


def load(path: Path) -> Problem:
    """A saved problem."""
    with np.load(path) as file:
        X = file["X"] if "X" in file else Listed(file["coords"], file["values"], tuple(file["shape"].tolist()))
        mask = file.get("mask")
        truth, start = ([file[f"{part}{n}"] for n in range(X.ndim)] for part in ("truth", "start"))
    return Problem(X, mask, truth, start)


def draw(shape: tuple[int, ...], rank: int, missing: float, dtype: str = "float64", seed: int = SEED) -> Problem:
    """Factor entries Gamma(shape 0.5, mean 1), counts Poisson, cells missing at random."""
    rng = np.random.default_rng(seed)
    truth = [rng.gamma(0.5, 2.0, (size, rank)) for size in shape]
    X = np.empty(shape, dtype=dtype)
    for rows in _chunks(shape):
        X[rows] = rng.poisson(rates([truth[0][rows], *truth[1:]]))
    mask = rng.random(shape) >= missing if missing else None
    return Problem(X, mask, truth, _start(rng, shape, rank, float(X.sum(dtype=np.float64))))


def draw_listed(shape: tuple[int, ...], rank: int, nonzeros: int, seed: int = SEED) -> Problem:
    """Zipf-like factors, and counts until so many cells are not zero."""
    rng = np.random.default_rng(seed)
    truth = [listed.popular(rng, size, rank) for size in shape]
    X = listed.draw_cells(rng, truth, nonzeros)
    total = float(X.values.sum())
    return Problem(X, None, _scaled(truth, total), _start(rng, shape, rank, total))


def rates(factors: list[Array]) -> Array:
    """Xhat of a matrix or a CP tensor."""
    first, *others = factors
    columns = others[0]
    for factor in others[1:]:
        columns = (columns[:, None, :] * factor).reshape(-1, factor.shape[1])
    return (first @ columns.T).reshape([factor.shape[0] for factor in factors])


def _start(rng: np.random.Generator, shape: tuple[int, ...], rank: int, total: float) -> list[Array]:
    """Near-uniform and with the right total, so that no contender wastes its first sweeps."""
    return _scaled([rng.uniform(0.5, 1.5, (size, rank)) for size in shape], total)


def _scaled(factors: list[Array], total: float) -> list[Array]:
    """The same factors, all multiplied by one number, with rates that add up to ``total``."""
    scale = (total / total_rate(factors)) ** (1 / len(factors))
    return [factor * scale for factor in factors]


def _divergence(X: Array, mask: Mask | None, factors: list[Array]) -> float:
    from scipy.special import kl_div

    total = 0.0
    for rows in _chunks(X.shape):
        cells = kl_div(X[rows], rates([factors[0][rows], *factors[1:]]))
        total += float(cells.sum() if mask is None else cells[mask[rows]].sum())
    return total


def _chunks(shape: tuple[int, ...]) -> list[slice]:
    rows = max(1, CHUNK_CELLS // prod(shape[1:]))
    return [slice(first, first + rows) for first in range(0, shape[0], rows)]


if __name__ == "__main__":
    name, path = sys.argv[1:]
    SPECS[name].draw().save(Path(path))
