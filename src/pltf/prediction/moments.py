"""Mean and variance of Xhat, exact under the posterior, for any model."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pltf.devices import Device
from pltf.engines.cp import is_cp
from pltf.gamma import Array
from pltf.inference.progress import Progress
from pltf.notation import Equation, Term
from pltf.prediction.cells import Asked
from pltf.prediction.noise import Noise, Poisson
from pltf.prediction.rates import RatesAt, rates
from pltf.threads import available_threads, ordered_map, single_threaded_blas

COPY = "'"  # suffix of indices of the second copy of Xhat; no index has such a name
DRAW = "'draw"  # index of the draws; no other index has this name
_LARGE = 480  # largest exponents of two of rates and factors whose squares do not overflow
_SMALL = 1e-150  # whose square is a number
_ROUNDING = 2.0**-46  # of a rate: differences between draws caused by rounding, with a margin
MOST_WHOLE = 1 << 20  # entries of factors: below this, selecting rows for a few cells saves hardly any time


@dataclass(frozen=True, eq=False)
class Belief:
    """The posterior of one observed tensor: its equation, the posteriors of its factors, the noise of its values."""

    equation: Equation
    sizes: Mapping[str, int]
    E: Mapping[str, Array]
    C: Mapping[str, Array]  # shape and scale; not for factors known as a point estimate or by draws
    D: Mapping[str, Array]
    noise: Noise = field(default_factory=Poisson)
    draws: Mapping[str, Array] = field(default_factory=dict)  # factors known by draws: (draw, *shape)
    device: Device | None = None  # device for large requests; None: the host

    def device_for(self, rates: int) -> Device | None:
        """The device for this number of rates."""
        if self.device is None:
            return None
        from pltf.prediction.on_device import pays

        return self.device if pays(self.equation, self.sizes, rates) else None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return tuple(self.sizes[index] for index in self.equation.output.indices)

    @property
    def n_draws(self) -> int:
        """Number of joint draws of the factors; 0 if there are none."""
        return len(next(iter(self.draws.values()))) if self.draws else 0

    @cached_property
    def averaged(self) -> Belief:
        """The mean of Xhat over all draws as a single Xhat, with the draw as a further latent index."""
        return averaged(self) if self.draws else self


@dataclass(frozen=True, eq=False)
class CellRows:
    """The positions of some cells along each index with more positions than cells.

    Moments need squares and copies of factors. Of large factors, a few cells need only these rows.
    """

    of: Mapping[str, NDArray[np.intp]]  # sorted positions, by index; of other indices all are kept

    @classmethod
    def at(cls, belief: Belief, cells: Asked) -> tuple[CellRows, Asked]:
        """The rows of the cells, and the cells among them."""
        entries = sum(belief.E[term.name].size for term in belief.equation.factors)
        if cells.listed is None or belief.draws or entries < MOST_WHOLE:
            return cls({}), cells
        places, of, sizes = list(cells.listed), {}, list(belief.shape)
        for mode, index in enumerate(belief.equation.output.indices):
            if cells.size < sizes[mode]:
                of[index], places[mode] = np.unique(places[mode], return_inverse=True)
                sizes[mode] = of[index].size
        return cls(of), replace(cells, sizes=tuple(sizes), listed=np.stack(places))

    def take(self, array: Array, indices: Sequence[str]) -> Array:
        """The rows of an array with these indices."""
        for axis, index in enumerate(indices):
            array = array.take(self.of[index], axis) if index in self.of else array
        return array

    def of_belief(self, belief: Belief) -> Belief:
        """The belief with these rows only, and without the factors of other tensors."""
        if not self.of:
            return belief
        indices = {term.name: term.indices for term in belief.equation.factors}
        E, C, D = (
            {a: self.take(part[a], indices[a]) for a in indices if a in part} for part in (belief.E, belief.C, belief.D)
        )
        sizes = {**belief.sizes, **{index: places.size for index, places in self.of.items()}}
        return replace(belief, sizes=sizes, E=E, C=C, D=D)


def mean(belief: Belief, cells: Asked, progress: bool = False) -> Array:
    """E[Xhat]: the factors are independent under q, so it is Xhat of their means; for draws, the mean of their Xhat."""
    if belief.draws:
        return mean_of_draws(belief, cells, progress)
    rows, cells = CellRows.at(belief, cells)
    belief = rows.of_belief(belief)
    return _sum(belief, [(belief.equation, belief.E)], cells, progress)


def variance(belief: Belief, cells: Asked, progress: bool = False) -> Array:
    """Var[Xhat] = E[Xhat * Xhat] - E[Xhat]^2.

    In the product of two copies of Xhat a factor contributes E[z z'] = E E' + [same entry] C*D^2. Expanded, there is
    one term for every set of factors that contribute the second part; the empty set gives E[Xhat]^2.
    """
    if belief.draws:
        return variance_of_draws(belief, cells, progress)
    rows, cells = CellRows.at(belief, cells)
    small, exponent = _within_range(rows.of_belief(belief))
    found = _sum(small, list(_terms(small)), cells, progress)
    return np.ldexp(found, 2 * exponent, out=found) if exponent else found


def _within_range(belief: Belief) -> tuple[Belief, int]:
    """A belief whose squared rates do not overflow, and the power of two by which to multiply its rates.

    With counts of 1e300 the squares of factors overflow although the variance does not. Powers of two are exact.
    """
    names = [term.name for term in belief.equation.factors]
    exponents = {a: int(np.frexp(np.max(belief.E[a], initial=0.0))[1]) for a in names}
    if max(exponents.values()) <= _LARGE and sum(exponents.values()) <= _LARGE:
        return belief, 0
    each = _LARGE // (2 * len(names))  # half in total: variances are as far below the squares of rates
    E = {a: np.ldexp(belief.E[a], each - exponents[a]) for a in names}
    D = {a: np.ldexp(belief.D[a], each - exponents[a]) for a in names if a in belief.D}
    return replace(belief, E={**belief.E, **E}, D={**belief.D, **D}), sum(exponents.values()) - each * len(names)


def _sum(belief: Belief, terms: Sequence[tuple[Equation, Mapping[str, Array]]], cells: Asked, progress: bool) -> Array:
    """The sum of some contractions at the cells."""
    sizes = {**belief.sizes, **{index + COPY: size for index, size in belief.sizes.items()}}
    total, done = np.zeros(0 if terms else cells.shape), 0
    with Progress(progress, cells.size * len(terms), time_left=True) as shown:

        def tell(more: int) -> None:
            nonlocal done
            done += more
            shown.show(done, f"moments of {cells.size:,} cells")

        device = belief.device_for(cells.size * len(terms))
        if device is not None and terms:
            from pltf.prediction.on_device import sums

            return sums(terms, sizes, cells, device, tell)
        for number, (equation, arrays) in enumerate(terms):
            if cells.listed is None:
                term = rates(equation, arrays, sizes, tell)
            else:
                term = RatesAt(equation, sizes, cells.listed)(arrays, tell)
            total = np.add(total, term, out=total) if number else term
    return total.reshape(cells.shape)


def _terms(belief: Belief) -> Iterator[tuple[Equation, dict[str, Array]]]:
    equation = belief.equation
    squares = {term.name: belief.E[term.name] ** 2 for term in equation.factors}
    spread = {a: _variance_of(belief, a) for a in squares if a in belief.C}
    if all(set(equation.summed) <= set(term.indices) for term in equation.factors):
        yield from _telescoped(equation, squares, spread)
        return
    for count in range(1, len(spread) + 1):
        for chosen in itertools.combinations(spread, count):
            yield _of_subset(belief, chosen, squares, spread)


def _variance_of(belief: Belief, a: str) -> Array:
    """C*D^2 of a factor, without underflow of the square of a tiny scale."""
    C, D = belief.C[a], belief.D[a]
    return C * D**2 if np.min(D, initial=1.0) > _SMALL else C * D * D


def _telescoped(
    equation: Equation, squares: Mapping[str, Array], spread: Mapping[str, Array]
) -> Iterator[tuple[Equation, dict[str, Array]]]:
    """CP, where any set ties all indices: Var = sum_r ( prod E[z^2] - prod E[z]^2 ), one term for each factor.

    In this form nothing cancels: prod_{b<a} E[z_b^2] * Var[z_a] * prod_{b>a} E[z_b]^2.
    """
    names = [term.name for term in equation.factors]
    for place, name in enumerate(names):
        if name in spread:
            before = {a: squares[a] + spread.get(a, 0.0) for a in names[:place]}
            yield equation, {**before, name: spread[name], **{a: squares[a] for a in names[place + 1 :]}}


def _of_subset(
    belief: Belief, chosen: Collection[str], squares: Mapping[str, Array], spread: Mapping[str, Array]
) -> tuple[Equation, dict[str, Array]]:
    """The term in which the chosen factors have the same entry in both copies, which then share their indices."""
    shared = set(belief.equation.output.indices)
    shared.update(i for term in belief.equation.factors if term.name in chosen for i in term.indices)
    terms: list[Term] = []
    arrays: dict[str, Array] = {}
    for term in belief.equation.factors:
        name = term.name
        terms.append(term)
        if name in chosen:
            arrays[name] = spread[name]
        elif shared.issuperset(term.indices):
            arrays[name] = squares[name]
        else:
            copy = Term(name + COPY, tuple(i if i in shared else i + COPY for i in term.indices))
            terms.append(copy)
            arrays[name] = arrays[copy.name] = belief.E[name]
    return Equation(belief.equation.output, tuple(terms)), arrays


# -- of draws -----------------------------------------------------------------------------------


def averaged(belief: Belief) -> Belief:
    """A belief with point estimates whose Xhat is the mean over the draws of another belief.

    If every factor of a CP model was drawn, draws of a component become further components: it stays a CP model.
    """
    equation, number = belief.equation, belief.n_draws
    names = [term.name for term in equation.factors if term.name in belief.draws]
    weight = dict.fromkeys(names, 1.0) | {names[0]: 1 / number}
    if is_cp(equation) and len(names) == len(equation.factors):
        (index,) = equation.summed
        arrays = {
            a: weight[a] * np.concatenate(list(belief.draws[a]), axis=indices.index(index))
            for a, indices in ((term.name, term.indices) for term in equation.factors)
        }
        sizes = {**belief.sizes, index: number * belief.sizes[index]}
        return Belief(equation, sizes, arrays, {}, {}, device=belief.device)
    terms = tuple(
        Term(term.name, (DRAW, *term.indices)) if term.name in belief.draws else term for term in equation.factors
    )
    arrays = {a: weight[a] * belief.draws[a] if a in belief.draws else array for a, array in belief.E.items()}
    sizes = {**belief.sizes, DRAW: number}
    return Belief(Equation(equation.output, terms), sizes, arrays, {}, {}, device=belief.device)


def mean_of_draws(belief: Belief, cells: Asked, progress: bool) -> Array:
    """The mean of Xhat over the draws."""
    if cells.listed is None or is_cp(belief.averaged.equation):
        return mean(belief.averaged, cells, progress)
    total = np.zeros(cells.shape)
    for rate in rates_of_draws(belief, cells, progress):
        total += rate
    return total / belief.n_draws


def variance_of_draws(belief: Belief, cells: Asked, progress: bool) -> Array:
    """The variance of Xhat over the draws.

    Draws have 16 digits, so those of a rate above about 1e27 may differ by rounding alone. Then the variance is that of
    a single count, the rate itself.
    """
    centre, total = mean_of_draws(belief, cells, progress), np.zeros(cells.shape)
    scale = np.where(centre > _ROUNDING**-2, centre, 1.0)  # their squares may overflow
    for rate in rates_of_draws(belief, cells, progress):
        total += ((rate - centre) / scale) ** 2
    relative = total / belief.n_draws
    with np.errstate(over="ignore"):
        found: Array = relative * scale * scale
    rounded = (scale > 1) & (relative <= _ROUNDING**2)
    return np.where(rounded, centre, found)


def rates_of_draws(belief: Belief, cells: Asked, progress: bool = False) -> Iterator[Array]:
    """Xhat of the cells under every draw, one after the other."""
    equation, sizes, number = belief.equation, belief.sizes, belief.n_draws
    device = belief.device_for(cells.size * number)
    at = None if cells.listed is None or device is not None else RatesAt(equation, sizes, cells.listed)

    def one(draw: int) -> Array:
        factors = {**belief.E, **{a: array[draw] for a, array in belief.draws.items()}}
        if device is not None:
            from pltf.prediction.on_device import sums

            return sums([(equation, factors)], sizes, cells, device)
        return rates(equation, factors, sizes) if at is None else at(factors)

    threads = available_threads() if device is None else 1  # one at a time, to limit device memory
    with single_threaded_blas, Progress(progress, number, time_left=True) as shown:
        for draw, rate in enumerate(ordered_map(one, range(number), threads), start=1):
            shown.show(draw, f"{number} draws of {cells.size:,} cells")
            yield rate
