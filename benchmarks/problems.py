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

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

SEED = 20240607
CHUNK_CELLS = 1 << 20  # cells whose rates are made at a time


@dataclass(frozen=True)
class Spec:
    """What a problem is, without its data."""

    name: str
    shape: tuple[int, ...]  # two indices: a matrix for NMF; three: a tensor for CP
    rank: int
    missing: float
    sweeps: int  # after which the divergence is taken
    small: bool  # part of the quick check

    @property
    def title(self) -> str:
        kind = "NMF" if len(self.shape) == 2 else "CP"
        holes = f"{self.missing:.0%} missing" if self.missing else "nothing missing"
        return f"{kind} {'x'.join(map(str, self.shape))} R={self.rank}, {holes}"


SPECS = {
    spec.name: spec
    for spec in (
        Spec("cp-50", (50, 50, 50), 7, missing=0, sweeps=100, small=True),
        Spec("cp-50-masked", (50, 50, 50), 7, missing=0.4, sweeps=100, small=True),
        Spec("cp-200", (200, 200, 200), 7, missing=0, sweeps=20, small=False),
        Spec("nmf-2000", (2000, 1000), 20, missing=0, sweeps=40, small=True),
    )
}


@dataclass(frozen=True, eq=False)
class Problem:
    """Counts, their mask, the factors that drew them and those that every contender starts from."""

    X: Array
    mask: Mask | None  # True = observed; None: nothing is missing
    truth: list[Array]  # an (n, rank) matrix for each index of X
    start: list[Array]

    @property
    def rank(self) -> int:
        return int(self.start[0].shape[1])

    def divergence(self, factors: list[Array]) -> float:
        """sum x*log(x/xhat) - x + xhat over the observed cells."""
        from scipy.special import kl_div

        total = 0.0
        for rows in _chunks(self.X.shape):
            cells = kl_div(self.X[rows], rates([factors[0][rows], *factors[1:]]))
            total += float(cells.sum() if self.mask is None else cells[self.mask[rows]].sum())
        return total

    def save(self, path: Path) -> None:
        arrays: dict[str, Any] = {f"truth{n}": factor for n, factor in enumerate(self.truth)}
        arrays |= {f"start{n}": factor for n, factor in enumerate(self.start)}
        arrays["mask"] = np.zeros(0, dtype=bool) if self.mask is None else self.mask
        np.savez(path, X=self.X, **arrays)


def load(path: Path) -> Problem:
    """A saved problem."""
    with np.load(path) as file:
        X, mask = file["X"], file["mask"]
        truth, start = ([file[f"{part}{n}"] for n in range(X.ndim)] for part in ("truth", "start"))
    return Problem(X, mask if mask.size else None, truth, start)


def draw(shape: tuple[int, ...], rank: int, missing: float, seed: int = SEED) -> Problem:
    """Factor entries Gamma(shape 0.5, mean 1), counts Poisson, cells missing at random.

    The start is near-uniform and has the right total, so that no contender wastes its first sweeps.
    """
    rng = np.random.default_rng(seed)
    truth = [rng.gamma(0.5, 2.0, (size, rank)) for size in shape]
    X = np.empty(shape)
    for rows in _chunks(shape):
        X[rows] = rng.poisson(rates([truth[0][rows], *truth[1:]]))
    mask = rng.random(shape) >= missing if missing else None
    start = [rng.uniform(0.5, 1.5, (size, rank)) for size in shape]
    total = float(np.prod([factor.sum(axis=0) for factor in start], axis=0).sum())
    scale = (float(X.sum()) / total) ** (1 / len(shape))
    return Problem(X, mask, truth, [factor * scale for factor in start])


def rates(factors: list[Array]) -> Array:
    """Xhat of a matrix or a CP tensor."""
    first, *others = factors
    columns = others[0]
    for factor in others[1:]:
        columns = (columns[:, None, :] * factor).reshape(-1, factor.shape[1])
    return (first @ columns.T).reshape([factor.shape[0] for factor in factors])


def _chunks(shape: tuple[int, ...]) -> list[slice]:
    rows = max(1, CHUNK_CELLS // prod(shape[1:]))
    return [slice(first, first + rows) for first in range(0, shape[0], rows)]


if __name__ == "__main__":
    name, path = sys.argv[1:]
    spec = SPECS[name]
    draw(spec.shape, spec.rank, spec.missing).save(Path(path))
