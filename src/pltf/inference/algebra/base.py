"""The interface between inference and algebras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Protocol, TypeVar

from numpy.typing import ArrayLike, NDArray

from pltf.engines.base import Number
from pltf.gamma import Gamma

A = TypeVar("A")

Host = NDArray[Any]
Factors = Mapping[str, Any]  # arrays of an algebra, by factor
Key = tuple[int, ...]  # identifies random draws: a seed, and numbers that are unique for that seed


@dataclass(frozen=True)
class Groups:
    """Which entries of a factor share a learned value."""

    shape: tuple[int, ...]  # of the factor
    shared: tuple[int, ...]  # axes along which the value is shared

    @cached_property
    def apart(self) -> tuple[int, ...]:
        """Axes along which the values differ."""
        return tuple(axis for axis in range(len(self.shape)) if axis not in self.shared)

    @cached_property
    def value_shape(self) -> tuple[int, ...]:
        """Shape of the values, such that they broadcast to the factor."""
        return tuple(1 if axis in self.shared else size for axis, size in enumerate(self.shape))

    @cached_property
    def in_order(self) -> bool:
        """Whether the shared axes come first: the stride between entries of a group is then the number of groups."""
        return (*self.shared, *self.apart) == tuple(range(len(self.shape)))

    @cached_property
    def count(self) -> int:
        """Number of groups."""
        return prod(self.value_shape)

    def vary(self, values: ArrayLike) -> bool:
        """Whether values that broadcast to the factor vary within a group."""
        shape: tuple[int, ...] = getattr(values, "shape", ())
        padded = (1,) * (len(self.shape) - len(shape)) + shape
        return any(padded[axis] > 1 for axis in self.shared)


class Algebra(Protocol[A]):
    """Arithmetic on factor-sized arrays. Arrays are never changed in place.

    Symbols are those of the method: a prior has shape A and mean B; a posterior has shape C, scale D, mean E and
    geometric mean L. Small results (one value per index position, a matrix of inner products) are returned on the host.
    """

    on_host: bool  # whether its arrays are NumPy arrays

    def put(self, host: Host) -> A:
        """Convert a host array to an array of this algebra."""

    def get(self, array: A) -> Host:
        """Convert an array of this algebra to a read-only host array."""

    # -- posteriors -----------------------------------------------------------------------------

    def shapes(self, priors: Mapping[str, Gamma], counts: Factors) -> Factors:
        """C = A + counts for every factor with a prior."""

    def scales(self, C: A, exposure: A, prior: Gamma) -> tuple[A, A]:
        """D = 1 / (A/B + exposure) and E = C*D."""

    def geomean_kl(self, C: A, D: A, prior: Gamma) -> tuple[A, Number]:
        """L = exp(digamma(C)) * D, and the sum over all entries of KL( Gamma(C, scale D) || prior )."""

    def log_geomean(self, C: A, D: A) -> A:
        """log L; finite even if L underflows."""

    # -- learned priors -------------------------------------------------------------------------

    def best_scales(
        self, C: A, exposure: A, prior: Gamma, groups: Groups, limits: tuple[float, float]
    ) -> tuple[Any, A, A]:
        """The B of each group with mean( A*C/(A + B*exposure) ) = mean(A), with the resulting D and E.

        Solved by Newton's method, starting from the current B. The result is the mean of the next prior: a number, or
        an array that may stay where the factors are (:func:`pltf.inference.algebra.host.prior_on_host`).
        """

    def spreads(self, E: A, log_L: A, mean: Any, groups: Groups) -> Host:
        """mean( E/B + log B - log L ) - 1 over each group."""

    # -- estimates ------------------------------------------------------------------------------

    def em_estimate(self, Z: A, counts: A, exposure: A) -> A:
        """counts / exposure; entries without observed cells keep their value in Z."""

    def map_estimate(self, counts: A, exposure: A, prior: Gamma) -> A:
        """max(A - 1 + counts, 0) / (A/B + exposure)."""

    def log_prior(self, Z: A, prior: Gamma) -> Number:
        """Sum of the log density over all entries; zeros contribute nothing where the shape is below 1."""

    def unbounded_zeros(self, Z: A, prior: Gamma) -> Number:
        """Number of zero entries where the density is unbounded because the shape is below 1."""

    # -- balance --------------------------------------------------------------------------------

    def trade(
        self, axes: Mapping[str, int], basis: Host, priors: Mapping[str, Gamma], E: Factors, D: Factors
    ) -> tuple[Factors, Factors]:
        """E and D of the factors with an index (each along its own axis) after exchanging scale along it.

        Their log-scales are ``basis @ t``, with the t that is optimal for the priors.
        """

    def sum_along(self, E: A, rate: ArrayLike, axis: int) -> Host:
        """Sum of E*rate over all axes but one."""

    def scale_along(self, array: A, s: Host, axis: int) -> A:
        """The array multiplied by s along an axis."""

    # -- draws ----------------------------------------------------------------------------------

    def gamma_draws(self, C: A, D: A, key: Key) -> A:
        """Draws from Gamma(shape C, scale D), all positive; the same key gives the same result."""

    # -- acceleration ---------------------------------------------------------------------------

    def stretch(self, old: Factors, new: Factors, eta: float, noise: float) -> Factors:
        """``old * (new/old)**eta``; ``new`` where either is zero, and where it differs by no more than ``noise``."""

    def log_ratio(self, a: Factors, b: Factors) -> Factors:
        """``log(a / b)``; 0 where either is zero."""

    def difference(self, a: Factors, b: Factors) -> Factors:
        """``a - b``."""

    def quasi_newton(self, rows: Sequence[Factors], weight: Factors, longest: float) -> Factors | None:
        """The L-BFGS step from the changes s, the matching y and the residual, clipped to +-longest.

        Pairs without positive curvature are ignored: their entries may be infinite or NaN. If none is left, the step is
        None, or NaN where only a device knows.
        """

    def move(self, old: Factors, plain: Factors, step: Factors, length: float) -> Factors:
        """``old * exp(length*step)``; ``plain`` where it or ``old`` is zero, or the step is NaN."""
