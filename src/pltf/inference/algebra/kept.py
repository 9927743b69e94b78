"""The stored draws of chains, in host memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pltf.gamma import Array, Gamma
from pltf.inference.algebra.base import Factors

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Kept:
    """Arrays with an axis for chains and one for draws; draws not made yet are NaN."""

    factors: dict[str, Array]  # free factors: (chain, draw, *shape)
    shapes: dict[str, Array]  # learned shapes of priors: (chain, draw, *shape of the values)
    mass: dict[str, Array]  # by latent index: the counts of each component, (chain, draw, component)
    log_likelihood: Array  # (chain, sweep)

    @classmethod
    def empty(cls, chains: int, draws: int, sweeps: int, factors: Shapes, shapes: Shapes, mass: Shapes) -> Kept:
        """Allocate arrays for these numbers of chains, draws and sweeps."""

        def room(of: Shapes) -> dict[str, Array]:
            return {name: np.full((chains, draws, *shape), math.nan) for name, shape in of.items()}

        return cls(room(factors), room(shapes), room(mass), np.full((chains, sweeps), math.nan))

    def keep(
        self, chain: int, draw: int, factors: Factors, priors: Mapping[str, Gamma], mass: Mapping[str, Array]
    ) -> None:
        """Store a draw of one chain."""
        for a, array in self.factors.items():
            array[chain, draw] = factors[a]
        for a, array in self.shapes.items():
            array[chain, draw] = priors[a].shape
        for index, array in self.mass.items():
            array[chain, draw] = mass[index]

    def until(self, draws: int, sweeps: int) -> Kept:
        """The first draws, and the values of the first sweeps."""
        factors, shapes, mass = (
            {name: array[:, :draws] for name, array in part.items()} for part in (self.factors, self.shapes, self.mass)
        )
        return Kept(factors, shapes, mass, self.log_likelihood[:, :sweeps])
