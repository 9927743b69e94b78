"""Mean and variance of Xhat, exact under the posterior, for any model."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pltf.gamma import Array
from pltf.inference.progress import Progress
from pltf.notation import Equation, Term
from pltf.prediction.cells import Asked
from pltf.prediction.noise import Noise, Poisson
from pltf.prediction.rates import RatesAt, rates

COPY = "'"  # marks an index of the second copy of Xhat; no index has such a name


@dataclass(frozen=True, eq=False)
class Belief:
    """What is known of one observed tensor: its equation, the posteriors of its factors, the noise of its values."""

    equation: Equation
    sizes: Mapping[str, int]
    E: Mapping[str, Array]
    C: Mapping[str, Array]  # shape and scale; factors that are known as a single value have none
    D: Mapping[str, Array]
    noise: Noise = field(default_factory=Poisson)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return tuple(self.sizes[index] for index in self.equation.output.indices)


def mean(belief: Belief, cells: Asked, progress: bool = False) -> Array:
    """E[Xhat]: the factors are independent under q, so it is Xhat of their means."""
    return _sum(belief, [(belief.equation, belief.E)], cells, progress)


def variance(belief: Belief, cells: Asked, progress: bool = False) -> Array:
    """Var[Xhat] = E[Xhat * Xhat] - E[Xhat]^2.

    In a product of two copies of Xhat a factor contributes E[z z'] = E E' + [same entry] C*D^2. Multiplied out there is
    one term for every set of factors that take the second part; the empty set is E[Xhat]^2.
    """
    return _sum(belief, list(_terms(belief)), cells, progress)


def _sum(belief: Belief, terms: Sequence[tuple[Equation, Mapping[str, Array]]], cells: Asked, progress: bool) -> Array:
    """The sum of some contractions at the cells."""
    sizes = {**belief.sizes, **{index + COPY: size for index, size in belief.sizes.items()}}
    total, done = np.zeros(0 if terms else cells.shape), 0
    with Progress(progress, cells.size * len(terms), time_left=True) as shown:

        def tell(more: int) -> None:
            nonlocal done
            done += more
            shown.show(done, f"moments of {cells.size:,} cells")

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
    spread = {a: belief.C[a] * belief.D[a] ** 2 for a in squares if a in belief.C}
    if all(set(equation.summed) <= set(term.indices) for term in equation.factors):
        yield from _telescoped(equation, squares, spread)
        return
    for count in range(1, len(spread) + 1):
        for chosen in itertools.combinations(spread, count):
            yield _of_subset(belief, chosen, squares, spread)


def _telescoped(
    equation: Equation, squares: Mapping[str, Array], spread: Mapping[str, Array]
) -> Iterator[tuple[Equation, dict[str, Array]]]:
    """CP, where any set ties all indices: Var = sum_r ( prod E[z^2] - prod E[z]^2 ), one difference for each factor.

    Written so, nothing cancels: prod_{b<a} E[z_b^2] * Var[z_a] * prod_{b>a} E[z_b]^2.
    """
    names = [term.name for term in equation.factors]
    for place, name in enumerate(names):
        if name in spread:
            before = {a: squares[a] + spread.get(a, 0.0) for a in names[:place]}
            yield equation, {**before, name: spread[name], **{a: squares[a] for a in names[place + 1 :]}}


def _of_subset(
    belief: Belief, chosen: Collection[str], squares: Mapping[str, Array], spread: Mapping[str, Array]
) -> tuple[Equation, dict[str, Array]]:
    """The term in which the chosen factors are at the same entry in both copies, which so share their indices."""
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
