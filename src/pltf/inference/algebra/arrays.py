"""Factors as arrays of any library that implements the Python array API standard, on any device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from pltf.data.numeric import frozen
from pltf.engines.base import Number
from pltf.gamma import Array, Gamma
from pltf.inference.algebra import chance
from pltf.inference.algebra.base import Factors, Groups, Key
from pltf.inference.algebra.host import lbfgs_coefficients, log_scales, shapes_along

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
NEWTON_STEPS, NEWTON_SETTLED = 30, 1e-8  # for the mean of a prior

# Series of digamma and log Gamma in powers of 1/y^2; the first omitted term is below 5e-17 for y >= 10.
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


class ArrayAlgebra:
    """Plain arithmetic with the functions of the array API (2023.12 or later) in the namespace ``xp``, in float64.

    >>> import numpy as np, pltf
    >>> algebra = ArrayAlgebra(np)
    >>> C, D = np.array([2.0, 2.0]), np.array([3.0, 3.0])
    >>> L, kl = algebra.geomean_kl(C, D, pltf.Gamma(shape=2.0, mean=6.0))
    >>> L.round(4), abs(round(kl, 12))
    (array([4.5786, 4.5786]), 0.0)
    """

    on_host = False

    def __init__(self, xp: Any, device: Any = None) -> None:
        self.xp, self.device = xp, device
        self._placed: WeakKeyDictionary[Gamma, dict[str, Any]] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[type[ArrayAlgebra], tuple[Any, Any]]:
        return ArrayAlgebra, (self.xp, self.device)

    def put(self, host: Array) -> Any:
        """A copy in the memory of the device."""
        return self.xp.asarray(host, dtype=self.xp.float64, device=self.device, copy=True)

    def get(self, array: Any) -> Array:
        """A copy in the memory of the host."""
        if isinstance(array, np.generic):  # NumPy turns arrays without axes into scalars
            array = np.asarray(array)
        return frozen(np.array(np.from_dlpack(array)))

    # -- posteriors -----------------------------------------------------------------------------

    def shapes(self, priors: Mapping[str, Gamma], counts: Factors) -> Factors:
        return {a: counts[a] + self._of(prior, "shape") for a, prior in priors.items()}

    def scales(self, C: Any, exposure: Any, prior: Gamma) -> tuple[Any, Any]:
        D = 1 / (exposure + self._of(prior, "rate"))
        return D, C * D

    def geomean_kl(self, C: Any, D: Any, prior: Gamma) -> tuple[Any, Number]:
        """L = exp(digamma(C)) * D, and the sum of KL( Gamma(C, scale D) || prior ).

        The terms are those of :func:`pltf.special.kl_loop`, where large terms do not cancel.
        """
        xp, (A, rate, log_norm) = self.xp, (self._of(prior, part) for part in ("shape", "rate", "log_norm"))
        y, b, rho = _psi_parts(C)
        stirling = _series(_STIRLING, y)
        own = xp.log(rho * xp.sqrt(y)) + (C * b + 10.0) - stirling - _HALF_LOG_2PI
        scaled = D * rate
        kl = own - (xp.log(scaled * y) + b) * A + log_norm + C * scaled
        return y * xp.exp(b) * D, self._number(xp.sum(kl))

    def log_geomean(self, C: Any, D: Any) -> Any:
        y, b, _ = _psi_parts(C)
        return self.xp.log(y * D) + b

    # -- learned priors -------------------------------------------------------------------------

    def best_scales(
        self, C: Any, exposure: Any, prior: Gamma, groups: Groups, limits: tuple[float, float]
    ) -> tuple[Any, Any, Any]:
        xp = self.xp
        A, B = (xp.zeros_like(C) + self._of(prior, "shape"), xp.zeros_like(C) + self._of(prior, "mean"))
        B = self._sums(B, groups) / (math.prod(groups.shape) // groups.count)

        def sums(B: Any) -> tuple[Any, Any]:
            part = A * C / (A + B * exposure)
            return self._sums(part, groups), self._sums(part / (A + B * exposure) * exposure, groups)

        B = newton(xp, sums, B, self._sums(A, groups), limits)
        D = 1 / (exposure + A / B)
        return B, D, C * D

    def spreads(self, E: Any, log_L: Any, mean: Any, groups: Groups) -> Array:
        B = self._array(self._value(mean))
        sums = self._sums(E / B + self.xp.log(B) - log_L, groups)
        return self.get(sums / (math.prod(groups.shape) // groups.count) - 1)

    # -- estimates ------------------------------------------------------------------------------

    def em_estimate(self, Z: Any, counts: Any, exposure: Any) -> Any:
        xp, seen = self.xp, exposure > 0
        return xp.where(seen, counts / xp.where(seen, exposure, xp.ones_like(exposure)), Z)

    def map_estimate(self, counts: Any, exposure: Any, prior: Gamma) -> Any:
        above = counts + (self._of(prior, "shape") - 1)
        above = self.xp.where(above > 0, above, self.xp.zeros_like(above))
        return above / (exposure + self._of(prior, "rate"))

    def log_prior(self, Z: Any, prior: Gamma) -> Number:
        xp, (rate, log_norm) = self.xp, (self._of(prior, part) for part in ("rate", "log_norm"))
        A = xp.zeros_like(Z) + self._of(prior, "shape")
        nothing = (Z == 0) & (A <= 1)
        power = (A - 1) * xp.log(xp.where(nothing, xp.ones_like(Z), Z))
        log_rate = xp.log(xp.zeros_like(Z) + rate)
        return self._number(xp.sum(power - Z * rate + A * log_rate - log_norm))

    def unbounded_zeros(self, Z: Any, prior: Gamma) -> Number:
        xp = self.xp
        if np.min(prior.shape) >= 1:
            return 0
        zero = (Z == 0) & (xp.zeros_like(Z) + self._of(prior, "shape") < 1)
        return self._number(xp.sum(xp.astype(zero, xp.float64)))

    # -- balance --------------------------------------------------------------------------------

    def trade(
        self, axes: Mapping[str, int], basis: Array, priors: Mapping[str, Gamma], E: Factors, D: Factors
    ) -> tuple[Factors, Factors]:
        """E and D of the factors with an index after exchanging scale along it; one copy in each direction."""
        alpha = np.array([shapes_along(priors[a], tuple(E[a].shape), axis) for a, axis in axes.items()])
        beta = self.xp.stack([self._along(E[a], self._of(priors[a], "rate"), axis) for a, axis in axes.items()])
        scales = self.put(np.exp(log_scales(alpha, np.array(self.get(beta)), basis)))
        means = {a: self._scaled(E[a], scales[n, ...], axis) for n, (a, axis) in enumerate(axes.items())}
        return means, {a: self._scaled(D[a], scales[n, ...], axis) for n, (a, axis) in enumerate(axes.items())}

    def sum_along(self, E: Any, rate: ArrayLike, axis: int) -> Array:
        return self.get(self._along(E, self._value(rate), axis))

    def scale_along(self, array: Any, s: Array, axis: int) -> Any:
        return self._scaled(array, self.put(s), axis)

    # -- draws ----------------------------------------------------------------------------------

    def gamma_draws(self, C: Any, D: Any, key: Key) -> Any:
        """Draws from Gamma(shape C, scale D), all positive; made on the host, so that they are the same everywhere."""
        return self.put(chance.gamma_draws(self.get(C), self.get(D), key))

    # -- acceleration ---------------------------------------------------------------------------

    def stretch(self, old: Factors, new: Factors, eta: float, noise: float) -> Factors:
        xp = self.xp

        def far(a: Any, b: Any) -> Any:
            moves = (a > 0) & (b > 0) & (xp.abs(b - a) > noise * a)
            return xp.where(moves, a * xp.exp(eta * self._log_ratio(b, a)), b)

        return {name: far(old[name], new[name]) for name in new}

    def log_ratio(self, a: Factors, b: Factors) -> Factors:
        return {name: self._log_ratio(a[name], b[name]) for name in a}

    def difference(self, a: Factors, b: Factors) -> Factors:
        return {name: a[name] - b[name] for name in a}

    def quasi_newton(self, rows: Sequence[Factors], weight: Factors, longest: float) -> Factors | None:
        stack = self.stack(rows)
        coefficients = lbfgs_coefficients(self.gram(stack, weight))
        return None if coefficients is None else self.combine(coefficients, stack, longest)

    def stack(self, rows: Sequence[Factors]) -> dict[str, Any]:
        """Stack rows (sets of factors) for :meth:`gram` and :meth:`combine`, along a new first axis of each factor."""
        return {name: self.xp.stack([row[name] for row in rows]) for name in rows[0]}

    def gram(self, rows: Mapping[str, Any], weight: Factors) -> Array:
        """Weighted inner products of all pairs of rows of a stack."""
        xp, total = self.xp, 0.0
        for name, stacked in rows.items():
            flat = xp.reshape(stacked, (stacked.shape[0], -1))
            weighted = flat * xp.reshape(weight[name], (1, -1))
            total = xp.matmul(weighted, xp.matrix_transpose(flat)) + total
        return self.get(total)

    def combine(self, coefficients: Sequence[float], rows: Mapping[str, Any], longest: float) -> Factors:
        """Linear combination of the rows of a stack, clipped to +-longest; rows with coefficient 0 are ignored."""
        used = [(n, share) for n, share in enumerate(coefficients) if share != 0]
        combined = {}
        for name, stacked in rows.items():
            far = sum((share * stacked[n, ...] for n, share in used), self.xp.zeros_like(stacked[0, ...]))
            combined[name] = self.xp.clip(far, -longest, longest)
        return combined

    def move(self, old: Factors, plain: Factors, step: Factors, length: float) -> Factors:
        xp = self.xp
        return {
            name: xp.where((old[name] > 0) & (b > 0), old[name] * xp.exp(length * step[name]), b)
            for name, b in plain.items()
        }

    # -- helpers --------------------------------------------------------------------------------

    def _of(self, prior: Gamma, part: str) -> Any:
        """A number, or an array that broadcasts to the factor (as rates always are); copied to the device once."""
        known = self._placed.setdefault(prior, {})
        if part not in known and part == "rate":
            known[part] = self._array(self._of(prior, "shape") / self._of(prior, "mean"))
        if part not in known:
            known[part] = self._value(getattr(prior, part))
        return known[part]

    def _value(self, value: Any) -> Any:
        """A number, or an array on the device, where learned means already are."""
        if not isinstance(value, (float, np.ndarray)):
            return value
        return float(value) if np.ndim(value) == 0 else self.put(np.asarray(value))

    def _array(self, value: Any) -> Any:
        """An array on the device, filled there if the value is a number."""
        xp = self.xp
        return xp.full((), value, dtype=xp.float64, device=self.device) if isinstance(value, float) else value

    def _number(self, total: Any) -> Number:
        """A sum of all entries."""
        return float(total)

    def _along(self, E: Any, rate: Any, axis: int) -> Any:
        return self._sum(E * rate, tuple(n for n in range(E.ndim) if n != axis), keepdims=False)

    def _scaled(self, array: Any, s: Any, axis: int) -> Any:
        return array * self.xp.reshape(s, (-1, *(1,) * (array.ndim - 1 - axis)))

    def _log_ratio(self, a: Any, b: Any) -> Any:
        xp, both = self.xp, (a > 0) & (b > 0)
        one = xp.ones_like(a)
        return xp.log(xp.where(both, a, one) / xp.where(both, b, one))

    def _sums(self, array: Any, groups: Groups) -> Any:
        return self._sum(array, groups.shared, keepdims=True)

    def _sum(self, array: Any, axes: tuple[int, ...], *, keepdims: bool) -> Any:
        return self.xp.sum(array, axis=axes, keepdims=keepdims) if axes else array  # () may mean all of them


def newton(xp: Any, sums: Callable[[Any], tuple[Any, Any]], B: Any, norm: Any, limits: tuple[float, float]) -> Any:
    """The B of each group at which a decreasing sum equals ``norm``; ``sums`` gives the sum and its negative slope.

    The reciprocal of the sum is concave in B: started from below, Newton steps never overshoot.
    """
    for _ in range(NEWTON_STEPS):
        left, slope = sums(B)
        moves = slope > 0
        step = (left / norm - 1) * left / xp.where(moves, slope, xp.ones_like(slope))
        new = xp.where(moves, xp.clip(xp.maximum(B + step, B / 100), *limits), B)
        change = float(xp.max(xp.abs(new - B) / B))
        B = new
        if change <= NEWTON_SETTLED:
            break
    return B


def _psi_parts(x: Any) -> tuple[Any, Any, Any]:
    """(y, b, rho) of x > 0, for y = x + 10: digamma(x) = log(y) + b, and rho = x (x+1) ... (x+9) / y^10.

    digamma(x) = digamma(y) - rho'/rho, and from 10 on digamma is given by its asymptotic series.
    """
    y = x + 10.0
    w = 1 / y
    rho, slope = x * w, 1.0
    for k in range(1, 10):
        u = (x + float(k)) * w
        slope = slope * u + rho
        rho = rho * u
    return y, -w * (0.5 + _series(_DIGAMMA, y)) - w * slope / rho, rho


def _series(terms: Sequence[float], y: Any) -> Any:
    """``(terms[0] + terms[1]/y^2 + terms[2]/y^4 + ...) / y``."""
    w = 1 / y
    v = w * w
    total = v * terms[-1]
    for term in reversed(terms[1:-1]):
        total = v * (total + term)
    return w * (total + terms[0])
