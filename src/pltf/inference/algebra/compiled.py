"""Factors in the memory of the host: compiled loops with threads, and NumPy where that is as fast."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from pltf.gamma import Array, Gamma
from pltf.inference.algebra.base import Factors, Groups
from pltf.inference.algebra.host import prior_value
from pltf.inference.algebra.newton import best_means
from pltf.special import combine_loop, kl_loop, log_geomean_loop, log_ratio_loop, move_loop, stretch_loop
from pltf.threads import PART, in_parts, run_all

Part = Callable[[slice], Array]  # what stands beside a part of a flat array


class Row(dict[str, Array]):
    """Factors, and all of their entries end to end: one loop does for all factors at once."""

    __slots__ = ("_flat",)

    def __init__(self, arrays: Mapping[str, Array], flat: Array | None = None) -> None:
        super().__init__(arrays)
        self._flat = flat

    @classmethod
    def cut(cls, flat: Array, like: Factors) -> Row:
        """A flat array as factors of the shapes of others."""
        flat.flags.writeable = False
        arrays, end = {}, 0
        for name, array in like.items():
            first, end = end, end + array.size
            arrays[name] = flat[first:end].reshape(array.shape)
        return cls(arrays, flat)

    @property
    def flat(self) -> Array:
        """All entries, factor by factor, each in C order."""
        if self._flat is None:
            self._flat = _frozen(np.concatenate([array.reshape(-1) for array in self.values()]))
        return self._flat

    def __reduce__(self) -> Any:  # the flat array holds nothing new
        return dict, (dict(self),)


class NumbaAlgebra:
    """Arithmetic on NumPy arrays. Results have the same bits for any number of threads.

    >>> import numpy as np, pltf
    >>> algebra = NumbaAlgebra(threads=2)
    >>> C, D = np.array([2.0, 2.0]), np.array([3.0, 3.0])
    >>> L, kl = algebra.geomean_kl(C, D, pltf.Gamma(shape=2.0, mean=6.0))
    >>> L.round(4), abs(round(kl, 12))
    (array([4.5786, 4.5786]), 0.0)
    """

    on_host = True

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._laid_out: WeakKeyDictionary[Gamma, dict[tuple[int, ...], tuple[Part, ...]]] = WeakKeyDictionary()

    def __reduce__(self) -> Any:
        return NumbaAlgebra, (self.threads,)

    def put(self, host: Array) -> Array:
        """The array itself, closed to changes: engines rely on it."""
        return _frozen(np.asarray(host, dtype=np.float64))

    def get(self, array: Array) -> Array:
        """The array itself."""
        return array

    # -- posteriors -----------------------------------------------------------------------------

    def shapes(self, priors: Mapping[str, Gamma], counts: Factors) -> Row:
        """C = A + counts of every factor that has a prior."""
        return Row({a: _frozen(np.asarray(prior.shape + counts[a])) for a, prior in priors.items()})

    def scales(self, C: Array, exposure: Array, prior: Gamma) -> tuple[Array, Array]:
        """D = 1 / (A/B + exposure) and E = C*D."""
        D = np.divide(1.0, np.add(prior.rate, exposure))
        return _frozen(D), _frozen(C * D)

    def geomean_kl(self, C: Array, D: Array, prior: Gamma) -> tuple[Array, float]:
        """L = exp(digamma(C)) * D, and the sum of KL( Gamma(C, scale D) || prior ), in one pass."""
        c, d, L = _flat(C), _flat(D), np.empty(C.size)
        if c.size <= PART and _is_scalar(prior):
            constants = (_constant(value, c.size) for value in (prior.shape, prior.rate, prior.log_norm))
            kl = kl_loop(c, d, *constants, L)
        else:
            parts = self._parts_of(prior, C.shape)

            def one_part(part: slice) -> float:
                return float(kl_loop(c[part], d[part], *(along(part) for along in parts), L[part]))

            kl = math.fsum(in_parts(one_part, c.size, self.threads))
        return _frozen(L.reshape(C.shape)), kl

    def log_geomean(self, C: Array, D: Array) -> Array:
        """log L, also where L itself would be zero."""
        out = np.empty(C.size)
        self._fill(log_geomean_loop, out, _flat(C), _flat(D))
        return _frozen(out.reshape(C.shape))

    # -- priors that are learned ----------------------------------------------------------------

    def best_means(
        self, C: Array, exposure: Array, prior: Gamma, groups: Groups, limits: tuple[float, float]
    ) -> float | Array:
        """The B of each group with mean( A*C/(A + B*exposure) ) = mean(A), by Newton's method from the present B."""
        B = np.array(_table(prior.mean, groups)[0])
        best_means(_table(C, groups), _table(exposure, groups), _table(prior.shape, groups), B, *limits)
        return prior_value(B, groups)

    def spreads(self, E: Array, log_L: Array, mean: ArrayLike, groups: Groups) -> Array:
        """mean( E/B + log B - log L ) - 1 over each group."""
        B = np.asarray(mean)
        return np.asarray((E / B + np.log(B) - log_L).mean(axis=groups.shared, keepdims=True) - 1)

    # -- estimates ------------------------------------------------------------------------------

    def em_estimate(self, Z: Array, counts: Array, exposure: Array) -> Array:
        """counts / exposure; entries that touch no observed cell stay what they are in Z."""
        seen = exposure > 0
        if seen.all():
            return _frozen(counts / exposure)
        return _frozen(np.where(seen, counts / np.where(seen, exposure, 1), Z))

    def map_estimate(self, counts: Array, exposure: Array, prior: Gamma) -> Array:
        """max(A - 1 + counts, 0) / (A/B + exposure)."""
        return _frozen(np.maximum(np.asarray(prior.shape) - 1 + counts, 0) / (prior.rate + exposure))

    def log_prior(self, Z: Array, prior: Gamma) -> float:
        """Sum of the log density over all entries; zeros count nothing where the shape is below 1."""
        return float(prior.log_pdf(Z).sum())

    def unbounded_zeros(self, Z: Array, prior: Gamma) -> int:
        """How many entries are zero where the density has no bound, because the shape is below 1."""
        return int(((Z == 0) & (np.asarray(prior.shape) < 1)).sum())

    # -- balance --------------------------------------------------------------------------------

    def sum_along(self, E: Array, rate: ArrayLike, axis: int) -> Array:
        """Sum of E*rate over all axes but one."""
        others = tuple([n for n in range(E.ndim) if n != axis])
        rates = np.asarray(rate)
        if rates.ndim == 0:
            return np.asarray(np.add.reduce(E, axis=others) * rates)
        return np.asarray(np.add.reduce(E * rates, axis=others))

    def scale_along(self, array: Array, s: Array, axis: int) -> Array:
        """The array times s along an axis."""
        last = axis == array.ndim - 1
        return _frozen(array * (s if last else s.reshape(-1, *(1,) * (array.ndim - 1 - axis))))

    # -- acceleration ---------------------------------------------------------------------------

    def stretch(self, old: Factors, new: Factors, eta: float, noise: float) -> Row:
        """``old * (new/old)**eta``; ``new`` where either is zero, and where it differs by no more than ``noise``."""
        a, b = _end_to_end(old, new), _end_to_end(new, new)
        out = np.empty(b.size)
        self._fill(lambda a, b, far: stretch_loop(a, b, eta, noise, far), out, a, b)
        return Row.cut(out, new)

    def log_ratio(self, a: Factors, b: Factors) -> Row:
        """``log(a / b)``; 0 where either is zero."""
        above, below = _end_to_end(a, a), _end_to_end(b, a)
        out = np.empty(above.size)
        self._fill(log_ratio_loop, out, above, below)
        return Row.cut(out, a)

    def difference(self, a: Factors, b: Factors) -> Row:
        """``a - b``."""
        return Row.cut(_end_to_end(a, a) - _end_to_end(b, a), a)

    def gram(self, rows: Sequence[Factors], weight: Factors) -> Array:
        """The weighted inner product of every two rows, a row being a set of factors."""
        flat, w = [_end_to_end(row, rows[0]) for row in rows], _end_to_end(weight, rows[0])

        def one_part(part: slice) -> Array:
            cut = _stack([row[part] for row in flat])
            return np.asarray((cut * w[part]) @ cut.T)

        with np.errstate(invalid="ignore", over="ignore"):  # steps out of range: they will not be used
            if w.size <= PART:
                return one_part(slice(None))
            return np.asarray(sum(in_parts(_quietly(one_part), w.size, self.threads)))

    def combine(self, coefficients: Sequence[float], rows: Sequence[Factors], longest: float) -> Row:
        """The rows times their coefficients, added up and cut to +-longest."""
        flat, q = [_end_to_end(row, rows[0]) for row in rows], np.array(coefficients)
        out = np.empty(flat[0].size)

        def one_part(part: slice) -> None:
            combine_loop(q, _stack([row[part] for row in flat]), longest, out[part])

        run_all(in_parts(one_part, out.size, self.threads))
        return Row.cut(out, rows[0])

    def move(self, old: Factors, plain: Factors, step: Factors, length: float) -> Row:
        """``old * exp(length*step)``; ``plain`` where it or ``old`` is zero."""
        by = _end_to_end(step, plain)
        far = by if length == 1 else _frozen(length * by)
        out = np.empty(by.size)
        self._fill(move_loop, out, _end_to_end(old, plain), _end_to_end(plain, plain), far)
        return Row.cut(out, plain)

    # -- in parts -------------------------------------------------------------------------------

    def _fill(self, loop: Callable[..., None], out: Array, *arrays: Array) -> None:
        """Run a loop over flat arrays of one size that fills ``out``."""
        if out.size <= PART:
            loop(*arrays, out)
        else:
            run_all(in_parts(lambda part: loop(*(x[part] for x in arrays), out[part]), out.size, self.threads))

    def _parts_of(self, prior: Gamma, shape: tuple[int, ...]) -> tuple[Part, ...]:
        """A, A/B and log Gamma(A) beside the entries of a factor; kept as long as the prior is."""
        known = self._laid_out.setdefault(prior, {})
        if shape not in known:
            known[shape] = tuple(_repeated(v, shape) for v in (prior.shape, prior.rate, prior.log_norm))
        return known[shape]


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _flat(array: Array) -> Array:
    """All entries in C order, closed to changes: the compiled loops then see one type of array only."""
    flat = array.reshape(-1)
    flat.flags.writeable = False
    return flat


def _end_to_end(factors: Factors, like: Factors) -> Array:
    """The entries of the factors that ``like`` has, in its order."""
    if isinstance(factors, Row) and (factors is like or factors.keys() == like.keys()):
        return factors.flat
    return Row({name: factors[name] for name in like}).flat


def _stack(rows: Sequence[Array]) -> Array:
    stacked = np.empty((len(rows), rows[0].size))
    for n, row in enumerate(rows):
        stacked[n] = row
    return stacked


def _quietly(function: Callable[[slice], Array]) -> Callable[[slice], Array]:
    """The function without warnings, in whichever thread it runs."""
    return np.errstate(invalid="ignore", over="ignore")(function)


def _is_scalar(prior: Gamma) -> bool:
    return isinstance(prior.shape, float) and isinstance(prior.mean, float)


def _constant(value: ArrayLike, size: int) -> Array:
    array = np.empty(size)
    array.fill(value)
    return _frozen(array)


def _table(values: ArrayLike, groups: Groups) -> Array:
    """Values that broadcast to a factor, with a column for each group; one row if they do not vary in any group."""
    if isinstance(values, float):
        return _constant(values, groups.count).reshape(1, -1)
    array = np.asarray(values, dtype=np.float64)
    if array.shape != groups.shape:
        array = array.reshape((1,) * (len(groups.shape) - array.ndim) + array.shape)
        array = np.broadcast_to(array, groups.shape if groups.vary(array) else groups.value_shape)
    if groups.apart:
        array = array.transpose((*groups.shared, *groups.apart))
    table = np.ascontiguousarray(array).reshape(-1, groups.count)
    return _frozen(table)


def _repeated(values: ArrayLike, shape: tuple[int, ...]) -> Part:
    """Parts of an array that broadcasts to a shape, flat; what repeats along the first axes is not held more than once.

    Values that repeat with some period are laid out for the period and the longest part.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0:
        same = _constant(array, min(math.prod(shape), PART))
        return lambda part: same[: part.stop - part.start]
    array = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    first = next((axis for axis, size in enumerate(array.shape) if size > 1), array.ndim)
    once = _flat(np.broadcast_to(array.reshape(array.shape[first:]), shape[first:]))
    period, size = once.size, math.prod(shape)
    if period == size:
        return lambda part: once[part]
    laid_out = _frozen(np.tile(once, -(-min(size, PART) // period) + 1))
    return lambda part: laid_out[part.start % period :][: part.stop - part.start]
