"""Factors in host memory: compiled, multithreaded loops, and NumPy where it is as fast."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from pltf.gamma import Array, Gamma
from pltf.inference.algebra import chance
from pltf.inference.algebra.base import Factors, Groups, Key
from pltf.inference.algebra.host import lbfgs_coefficients, prior_value, traded
from pltf.inference.algebra.newton import best_scales, scale_columns, trade_log_scales
from pltf.special import combine_loop, kl_loop, log_geomean_loop, log_ratio_loop, move_loop, stretch_loop
from pltf.threads import PART, in_parts, run_all

MOST_AT_ONCE = 1 << 20  # entries of tables: a copy of larger ones costs memory, and saves hardly any time
Part = Callable[[slice], Array]  # values aligned with a part of a flat array


class FactorRow(Mapping[str, Array]):
    """Factors together with all their entries in one flat array: one loop processes all factors at once.

    Either representation is created from the other on demand.
    """

    __slots__ = ("_arrays", "_flat", "_shapes")

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays: dict[str, Array] | None = arrays
        self._flat: Array | None = None
        self._shapes = {name: array.shape for name, array in arrays.items()}

    @classmethod
    def of(cls, factors: Factors, like: Factors) -> FactorRow:
        """The factors with the names in ``like``, in its order."""
        if isinstance(factors, FactorRow):
            alike = isinstance(like, FactorRow) and factors._shapes is like._shapes  # as in rows made of each other
            if alike or list(factors._shapes) == list(like):
                return factors
        return cls({name: factors[name] for name in like})

    def with_entries(self, flat: Array) -> FactorRow:
        """Factors with the same names and shapes and other entries."""
        flat.flags.writeable = False
        new = object.__new__(FactorRow)
        new._arrays, new._flat, new._shapes = None, flat, self._shapes
        return new

    @property
    def flat(self) -> Array:
        """All entries, factor by factor, each in C order."""
        if self._flat is None:
            self._flat = _end_to_end(self.arrays.values())
        return self._flat

    @property
    def arrays(self) -> dict[str, Array]:
        """The factors by name."""
        if self._arrays is None:
            self._arrays, flat, end = {}, self.flat, 0
            for name, shape in self._shapes.items():
                first, end = end, end + math.prod(shape)
                self._arrays[name] = flat[first:end].reshape(shape)
        return self._arrays

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def __reduce__(self) -> Any:
        return FactorRow, (self.arrays,)


class Stack:
    """Stacked rows; kept in one table unless they are long, in which case parts of them are stacked one by one."""

    def __init__(self, rows: Sequence[FactorRow]) -> None:
        self.like, self._flat = rows[0], [row.flat for row in rows]
        self.size = self._flat[0].size
        self._table = self._beside(slice(None)) if self.size <= PART else None

    def part(self, part: slice) -> Array:
        """(rows, entries) of a part."""
        return self._table if self._table is not None else self._beside(part)

    def _beside(self, part: slice) -> Array:
        cut = [flat[part] for flat in self._flat]
        return _frozen(np.concatenate(cut).reshape(len(cut), -1))


class NumbaAlgebra:
    """Arithmetic on NumPy arrays. Results are bit-identical for any number of threads.

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
        """The array itself, made read-only: engines rely on this."""
        return _frozen(np.asarray(host, dtype=np.float64))

    def get(self, array: Array) -> Array:
        """The array itself."""
        return array

    # -- posteriors -----------------------------------------------------------------------------

    def shapes(self, priors: Mapping[str, Gamma], counts: Factors) -> FactorRow:
        return FactorRow({a: _frozen(prior.shape + counts[a]) for a, prior in priors.items()})

    def scales(self, C: Array, exposure: Array, prior: Gamma) -> tuple[Array, Array]:
        D = 1 / ((_rate(prior) if _is_scalar(prior) else prior.rate) + exposure)
        return _frozen(D), _frozen(C * D)

    def geomean_kl(self, C: Array, D: Array, prior: Gamma) -> tuple[Array, float]:
        c, d, L = _flat(C), _flat(D), np.empty(C.size)
        if c.size <= PART and _is_scalar(prior):
            values = (_number(prior.shape), _rate(prior), float(prior.log_norm))
            A, rate, log_norm = [_constant(value, c.size) for value in values]
            kl = kl_loop(c, d, A, rate, log_norm, L)
        else:
            shapes, rates, log_norms = self._parts_of(prior, C.shape)

            def one_part(part: slice) -> float:
                return float(kl_loop(c[part], d[part], shapes(part), rates(part), log_norms(part), L[part]))

            kl = math.fsum(in_parts(one_part, c.size, self.threads))
        return _frozen(L.reshape(C.shape)), kl

    def log_geomean(self, C: Array, D: Array) -> Array:
        return _frozen(self._looped(log_geomean_loop, _flat(C), _flat(D)).reshape(C.shape))

    # -- learned priors -------------------------------------------------------------------------

    def best_scales(
        self, C: Array, exposure: Array, prior: Gamma, groups: Groups, limits: tuple[float, float]
    ) -> tuple[float | Array, Array, Array]:
        c, x, A = _table(C, groups), _table(exposure, groups), _table(prior.shape, groups)
        B, D, E = _table(prior.mean, groups)[0].copy(), np.empty(c.shape), np.empty(c.shape)
        best_scales(c, x, A, B, *limits, D, E)
        means = prior_value(B, groups)
        if groups.in_order and C.flags.c_contiguous and exposure.flags.c_contiguous:
            return means, _frozen(D.reshape(C.shape)), _frozen(E.reshape(C.shape))
        return means, *self.scales(C, exposure, prior.with_values(prior.shape, means))  # same memory layout

    def spreads(self, E: Array, log_L: Array, mean: ArrayLike, groups: Groups) -> Array:
        B = np.asarray(mean)
        return np.asarray((E / B + np.log(B) - log_L).mean(axis=groups.shared, keepdims=True) - 1)

    # -- estimates ------------------------------------------------------------------------------

    def em_estimate(self, Z: Array, counts: Array, exposure: Array) -> Array:
        seen = exposure > 0
        if seen.all():
            return _frozen(counts / exposure)
        return _frozen(np.where(seen, counts / np.where(seen, exposure, 1), Z))

    def map_estimate(self, counts: Array, exposure: Array, prior: Gamma) -> Array:
        return _frozen(np.maximum(np.asarray(prior.shape) - 1 + counts, 0) / (prior.rate + exposure))

    def log_prior(self, Z: Array, prior: Gamma) -> float:
        return float(prior.log_pdf(Z).sum())

    def unbounded_zeros(self, Z: Array, prior: Gamma) -> int:
        return int(((Z == 0) & (np.asarray(prior.shape) < 1)).sum())

    # -- balance --------------------------------------------------------------------------------

    def trade(
        self, axes: Mapping[str, int], basis: Array, priors: Mapping[str, Gamma], E: Factors, D: Factors
    ) -> tuple[Factors, Factors]:
        """E and D of the factors with an index after exchanging scale along it.

        Small tables with the index along their rows and scalar priors are processed in one flat array.
        """
        tables = [E[a] for a in axes]
        small = sum(table.size for table in tables) <= MOST_AT_ONCE
        simple = small and all(map(_is_table, tables)) and all(_is_scalar(priors[a]) for a in axes)
        if not simple or set(axes.values()) != {1}:
            return traded(self, axes, basis, priors, E, D)
        sizes, width = np.array([len(table) for table in tables]), tables[0].shape[1]
        shapes, rates = np.array([_number(priors[a].shape) for a in axes]), np.array([_rate(priors[a]) for a in axes])
        log_s, e, d = np.zeros((len(tables), width)), _end_to_end(tables), _end_to_end([D[a] for a in axes])
        trade_log_scales(e, sizes, shapes, rates, basis, log_s)
        new_E, new_D = np.empty(e.size), np.empty(e.size)
        scale_columns(e, d, sizes, np.exp(log_s), new_E, new_D)
        means = FactorRow(dict(zip(axes, tables, strict=True)))
        return means.with_entries(new_E).arrays, means.with_entries(new_D).arrays

    def sum_along(self, E: Array, rate: ArrayLike, axis: int) -> Array:
        others = 1 - axis if E.ndim == 2 else tuple([n for n in range(E.ndim) if n != axis])
        rates = np.asarray(rate)
        if rates.ndim == 0:
            return np.asarray(np.add.reduce(E, axis=others) * rates)
        return np.asarray(np.add.reduce(E * rates, axis=others))

    def scale_along(self, array: Array, s: Array, axis: int) -> Array:
        last = axis == array.ndim - 1
        return _frozen(array * (s if last else s.reshape(-1, *(1,) * (array.ndim - 1 - axis))))

    # -- draws ----------------------------------------------------------------------------------

    def gamma_draws(self, C: Array, D: Array, key: Key) -> Array:
        return _frozen(chance.gamma_draws(C, D, key, self.threads))

    # -- acceleration ---------------------------------------------------------------------------

    def stretch(self, old: Factors, new: Factors, eta: float, noise: float) -> FactorRow:
        a, b = FactorRow.of(old, new), FactorRow.of(new, new)
        return self._filled(lambda a, b, far: stretch_loop(a, b, eta, noise, far), a, b)

    def log_ratio(self, a: Factors, b: Factors) -> FactorRow:
        return self._filled(log_ratio_loop, FactorRow.of(a, a), FactorRow.of(b, a))

    def difference(self, a: Factors, b: Factors) -> FactorRow:
        above = FactorRow.of(a, a)
        return above.with_entries(above.flat - FactorRow.of(b, a).flat)

    def quasi_newton(self, rows: Sequence[Factors], weight: Factors, longest: float) -> Factors | None:
        stack = self.stack(rows)
        coefficients = lbfgs_coefficients(self.gram(stack, weight))
        return None if coefficients is None else self.combine(coefficients, stack, longest)

    def stack(self, rows: Sequence[Factors]) -> Stack:
        """Stack rows (sets of factors) for :meth:`gram` and :meth:`combine`."""
        return Stack([FactorRow.of(row, rows[0]) for row in rows])

    def gram(self, rows: Stack, weight: Factors) -> Array:
        """Weighted inner products of all pairs of rows of a stack."""
        w = FactorRow.of(weight, rows.like).flat

        def one_part(part: slice) -> Array:
            cut = rows.part(part)
            with np.errstate(invalid="ignore", over="ignore"):  # out-of-range steps are not used
                weighted = cut * w[part]
            return np.asarray(np.dot(weighted, cut.T))

        if rows.size <= PART:
            return one_part(slice(None))
        with np.errstate(invalid="ignore"):
            return np.asarray(sum(in_parts(one_part, rows.size, self.threads)))

    def combine(self, coefficients: Sequence[float], rows: Stack, longest: float) -> FactorRow:
        """Linear combination of the rows of a stack, clipped to +-longest; rows with coefficient 0 are ignored."""
        q, out = np.array(coefficients), np.empty(rows.size)
        if rows.size <= PART:
            combine_loop(q, rows.part(slice(None)), longest, out)
        else:
            one_part = lambda part: combine_loop(q, rows.part(part), longest, out[part])  # noqa: E731
            run_all(in_parts(one_part, rows.size, self.threads))
        return rows.like.with_entries(out)

    def move(self, old: Factors, plain: Factors, step: Factors, length: float) -> FactorRow:
        by = FactorRow.of(step, plain)
        by = by if length == 1 else by.with_entries(length * by.flat)
        return self._filled(move_loop, FactorRow.of(old, plain), FactorRow.of(plain, plain), by)

    # -- loops over parts -----------------------------------------------------------------------

    def _filled(self, loop: Callable[..., None], *rows: FactorRow) -> FactorRow:
        """Apply an elementwise loop to rows."""
        return rows[0].with_entries(self._looped(loop, *(row.flat for row in rows)))

    def _looped(self, loop: Callable[..., None], *flat: Array) -> Array:
        """Apply an elementwise loop to flat arrays."""
        out = np.empty(flat[0].size)
        if out.size <= PART:
            loop(*flat, out)
        else:
            run_all(in_parts(lambda part: loop(*(x[part] for x in flat), out[part]), out.size, self.threads))
        return out

    def _parts_of(self, prior: Gamma, shape: tuple[int, ...]) -> tuple[Part, ...]:
        """A, A/B and log Gamma(A) aligned with the entries of a factor; cached as long as the prior exists."""
        known = self._laid_out.setdefault(prior, {})
        if shape not in known:
            known[shape] = tuple(_repeated(v, shape) for v in (prior.shape, prior.rate, prior.log_norm))
        return known[shape]


def _frozen(result: Array) -> Array:
    """The array, made read-only; scalars that NumPy made of arrays without axes become arrays again."""
    array = np.asarray(result)
    array.flags.writeable = False
    return array


def _flat(array: Array) -> Array:
    """All entries in C order, read-only: the compiled loops then see only one array type."""
    flat = array.reshape(-1)
    flat.flags.writeable = False
    return flat


def _end_to_end(arrays: Iterable[Array]) -> Array:
    return _frozen(np.concatenate([array.reshape(-1) for array in arrays]))


def _is_scalar(prior: Gamma) -> bool:
    return isinstance(prior.shape, float) and isinstance(prior.mean, float)


def _rate(prior: Gamma) -> float:
    """A/B of a scalar prior."""
    return _number(prior.shape) / _number(prior.mean)


def _number(value: ArrayLike) -> float:
    assert isinstance(value, float)
    return value


def _is_table(array: Array) -> bool:
    """Whether NumPy sums the columns by adding row after row, as it does with two columns or more."""
    return array.ndim == 2 and array.shape[1] > 1 and array.flags.c_contiguous


@lru_cache(maxsize=16)  # the same few values in every iteration
def _constant(value: float, size: int) -> Array:
    return _frozen(np.full(size, value))


def _table(values: ArrayLike, groups: Groups) -> Array:
    """Values that broadcast to a factor, with one column per group; one row if they are constant within groups."""
    if isinstance(values, float):
        return _constant(values, groups.count).reshape(1, -1)
    array = np.asarray(values, dtype=np.float64)
    if array.shape != groups.shape:
        array = array.reshape((1,) * (len(groups.shape) - array.ndim) + array.shape)
        array = np.broadcast_to(array, groups.shape if groups.vary(array) else groups.value_shape)
    if not groups.in_order:
        array = array.transpose((*groups.shared, *groups.apart))
    return _frozen(array.reshape(-1, groups.count))


def _repeated(values: ArrayLike, shape: tuple[int, ...]) -> Part:
    """Parts of an array that broadcasts to a shape, flattened; values that repeat along the first axes are stored once.

    Periodic values are stored for one period plus the longest part.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0:
        same = _constant(float(array), min(math.prod(shape), PART))
        return lambda part: same[: part.stop - part.start]
    array = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    first = next((axis for axis, size in enumerate(array.shape) if size > 1), array.ndim)
    once = _flat(np.broadcast_to(array.reshape(array.shape[first:]), shape[first:]))
    period, size = once.size, math.prod(shape)
    if period == size:
        return lambda part: once[part]
    laid_out = _frozen(np.tile(once, -(-min(size, PART) // period) + 1))
    return lambda part: laid_out[part.start % period :][: part.stop - part.start]
