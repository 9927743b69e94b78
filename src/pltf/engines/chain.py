"""Evaluate an equation over listed cells as a chain: factors are multiplied in one by one, level by level.

Cells are sorted by their modes in some order. Everything that depends only on the first modes is computed once for
all cells that share them, as in the compressed sparse fiber format. ``ip,jq,kr,pqr->ijk`` in the order i, j, k is

    T1[p,q,r] = G;  T2[q,r] = sum_p T1 * A[i];  T3[r] = sum_q T2 * B[j];  T4 = sum_r T3 * C[k]

with T1 computed once, T2 for every i, T3 for every (i, j) and T4, the rate, for every cell. Backwards, the same steps
turn the ratios of the cells into Delta of every factor: contributions to T3 are summed over the cells of (i, j) before
they are passed on to B and T2. ``interpreted.py`` runs any chain at once; ``generated.py`` generates a kernel for it,
which takes seconds to compile and is several times faster: worthwhile for long lists.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import expm1, log1p, prod

import numpy as np

from pltf.engines.contraction import AnyArray, Indices, leaves_of
from pltf.gamma import Array
from pltf.notation import Equation

# Cost of a step in nanoseconds, as measured: see benchmarks/NOTES.md
STEP, STRIP, FLOP = 6.0, 2.5, 0.12
MOST_ORDERS = 5040  # largest number of factor orders for an exhaustive search


@dataclass(frozen=True)
class ChainStep:
    """``T_out = sum T_in * F``: multiplies one factor in, and sums indices that no later factor has."""

    factor: int
    level: int  # number of leading modes that must be known
    before: Indices  # indices of T_in
    held: Indices  # indices of the factor
    after: Indices  # indices of T_out

    def groups(self, latent: Indices) -> list[Indices]:
        """Its indices, in groups that are contiguous in all its arrays: each group is one loop."""
        every = [index for index in latent if index in self.before or index in self.held]

        def where(index: str) -> tuple[bool, ...]:
            return tuple(index in indices for indices in (self.before, self.held, self.after))

        return [tuple(group) for _, group in itertools.groupby(every, key=where)]

    def cost(self, sizes: Mapping[str, int], latent: Indices) -> float:
        """Nanoseconds of a step, forwards and backwards (to the factor and to T_in)."""
        *outer, inner = self.groups(latent) or [()]
        strips = prod(sizes[index] for group in outer for index in group)
        return STEP + 3 * strips * (STRIP + FLOP * prod(sizes[index] for index in inner))


@dataclass(frozen=True)
class Chain:
    """The steps of an equation over cells sorted by their modes in a given order."""

    equation: Equation
    modes: tuple[int, ...]  # the sort order of the cells; the first mode is cut into chunks
    steps: tuple[ChainStep, ...]
    latent: Indices  # order of the latent indices in arrays

    @property
    def indices(self) -> Indices:
        """All indices: the observed ones, then the latent ones that occur in more than one factor."""
        return (*self.equation.output.indices, *self.latent)

    def seen(self, factor: int) -> Indices:
        """The observed indices of a factor, in its own order."""
        return tuple(i for i in self.equation.factors[factor].indices if i in self.equation.output.indices)

    def cost(self, sizes: Mapping[str, int], cells: int) -> float:
        """Nanoseconds of a pass over ``cells`` cells, on one thread."""
        runs = runs_of([sizes[self.equation.output.indices[mode]] for mode in self.modes], cells)
        return sum(step.cost(sizes, self.latent) * runs[step.level] for step in self.steps) + 4.0 * cells


def runs_of(sizes: Sequence[int], cells: int) -> list[float]:
    """Expected number of distinct positions of the first 0, 1, 2, ... modes, for randomly placed cells."""
    runs, places = [1.0], 1
    for size in sizes:
        places *= size
        filled = -places * expm1(cells * log1p(-1 / places)) if places > 1 else 1.0
        runs.append(min(filled, cells))
    return runs


def plan_chain(equation: Equation, sizes: Mapping[str, int], cells: int, *first: int) -> Chain:
    """The cheapest chain over cells sorted by these modes first."""
    return _plan_chain(equation, tuple(sizes.items()), _rounded(cells), first)


def _rounded(cells: int) -> int:
    """Round to two digits, so that similar numbers of cells share one cached plan."""
    return int(float(f"{max(cells, 1):.1e}"))


@lru_cache(maxsize=256)
def _plan_chain(equation: Equation, known: tuple[tuple[str, int], ...], cells: int, first: tuple[int, ...]) -> Chain:
    sizes = dict(known)
    rest = [mode for mode in range(len(equation.output.indices)) if mode not in first]
    chains = (
        _chain(equation, (*first, *modes), factors)
        for modes in itertools.permutations(rest)
        for factors in _factor_orders(equation, (*first, *modes))
    )
    return min(itertools.islice(chains, MOST_ORDERS), key=lambda chain: chain.cost(sizes, cells))


def _factor_orders(equation: Equation, modes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Orders of the factors with non-decreasing levels; factors without observed indices may be placed anywhere."""
    levels = [_level(term.indices, equation, modes) for term in equation.factors]
    held = sorted((n for n, level in enumerate(levels) if level), key=lambda n: levels[n])
    groups = [list(group) for _, group in itertools.groupby(held, key=lambda n: levels[n])]
    free = [n for n, level in enumerate(levels) if not level]
    for parts in itertools.product(*(itertools.permutations(group) for group in groups)):
        base = tuple(itertools.chain(*parts))
        for order in itertools.permutations(free):
            yield from _merged(base, order)


def _merged(base: tuple[int, ...], others: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """All ways to insert the others, in their order, between the elements of the base."""
    if not others:
        yield base
        return
    total = len(base) + len(others)
    for places in itertools.combinations(range(total), len(others)):
        left, right = iter(base), iter(others)
        yield tuple(next(right) if place in places else next(left) for place in range(total))


def _level(indices: Indices, equation: Equation, modes: Sequence[int]) -> int:
    """Number of leading modes that must be known to select a row of the factor."""
    observed = equation.output.indices
    return max((modes.index(observed.index(index)) + 1 for index in indices if index in observed), default=0)


def _chain(equation: Equation, modes: tuple[int, ...], factors: Sequence[int]) -> Chain:
    observed = set(equation.output.indices)
    held = [tuple(index for index in leaf if index not in observed) for leaf in leaves_of(equation)]
    last = {index: place for place, factor in enumerate(factors) for index in held[factor]}
    # Indices that are summed first come first, so that the rest is contiguous.
    latent = tuple(sorted(last, key=lambda index: (last[index], sum(index in one for one in held))))
    steps: list[ChainStep] = []
    level = 0
    before: Indices = ()
    for place, factor in enumerate(factors):
        level = max(level, _level(equation.factors[factor].indices, equation, modes))
        mine = tuple(index for index in latent if index in held[factor])
        after = tuple(index for index in latent if index in (*before, *mine) and last[index] > place)
        steps.append(ChainStep(factor, level, before, mine, after))
        before = after
    return Chain(equation, modes, tuple(steps), latent)


class Layout:
    """Memory layout of a factor in the kernel: one row per position of its observed indices."""

    def __init__(self, equation: Equation, number: int, latent: Indices, sizes: Mapping[str, int]) -> None:
        indices, kept = equation.factors[number].indices, leaves_of(equation)[number]
        seen = [index for index in indices if index in equation.output.indices]
        held = [index for index in latent if index in kept and index not in seen]
        self._lone = tuple(axis for axis, index in enumerate(indices) if index not in (*seen, *held))
        rest = [index for index in indices if index in (*seen, *held)]
        self._order = tuple(rest.index(index) for index in (*seen, *held))
        self.shape = tuple(sizes[index] for index in (*seen, *held))  # of flat sums
        self._full = tuple(sizes[index] for index in indices)
        axes = [indices.index(index) for index in (*seen, *held)]
        self._to_rows = (*axes, *self._lone)

    def flat(self, factor: AnyArray) -> AnyArray:
        """A factor, flattened; indices that no other factor has are summed."""
        summed = factor.sum(axis=self._lone) if self._lone else factor
        return summed.transpose(self._order).reshape(-1)

    def unflat(self, sums: Array) -> Array:
        """Reshape flat sums to the layout of the factor."""
        back = sums.reshape(self.shape).transpose(np.argsort(self._order))
        return np.array(np.broadcast_to(np.expand_dims(back, self._lone), self._full), order="C")

    def rows(self, factor: AnyArray) -> AnyArray:
        """A factor with one row per entry of :meth:`flat`; a row contains the entries that are summed there."""
        return np.ascontiguousarray(factor.transpose(self._to_rows)).reshape(prod(self.shape), -1)

    def from_rows(self, rows: Array) -> Array:
        """Inverse of :meth:`rows`."""
        shape = tuple(self._full[axis] for axis in self._to_rows)
        return np.array(rows.reshape(shape).transpose(np.argsort(self._to_rows)), order="C")
