"""Contraction of one equation: a binary tree of pairwise steps, evaluated forwards and backwards.

Forwards, the tree computes Xhat from the factors. Backwards, it computes ``Delta_a(Q)`` of every factor from an array
Q over the cells: Delta_a(Q) is the derivative of ``sum Q*Xhat`` with respect to Z_a, so one reverse pass over the same
steps gives all of them and shares common subexpressions.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import opt_einsum as oe
from numpy.typing import NDArray

from pltf.data.blocks import Block
from pltf.engines.either import permuted, summed, with_axes
from pltf.notation.grammar import Equation

Indices = tuple[str, ...]
AnyArray = NDArray[Any]  # floats in the dtype of the engine


def subscripts(inputs: Sequence[Indices], output: Indices) -> str:
    """Einsum subscripts for indices with long names.

    >>> subscripts([("user", "r"), ("place", "r")], ("user", "place"))
    'ab,cb->ac'
    """
    symbols = {index: oe.get_symbol(n) for n, index in enumerate(dict.fromkeys(itertools.chain(*inputs)))}
    terms = ["".join(symbols[index] for index in indices) for indices in (*inputs, output)]
    return f"{','.join(terms[:-1])}->{terms[-1]}"


class Pair:
    """One pairwise contraction, compiled: ``a[left], b[right] -> out``."""

    def __init__(self, left: Indices, right: Indices, out: Indices) -> None:
        self.left, self.right, self.out = left, right, out
        sizes = ((2,) * len(left), (2,) * len(right))  # any size: a pair has only one order
        self._contract = oe.contract_expression(subscripts([left, right], out), *sizes)

    def __call__(self, left: AnyArray, right: AnyArray) -> AnyArray:
        result: AnyArray = self._contract(left, right)
        return result

    def flops(self, sizes: Mapping[str, int]) -> int:
        """Multiplications and additions for the given index sizes."""
        return 2 * prod(sizes[index] for index in set(self.left + self.right))

    def __str__(self) -> str:
        left, right, out = (f"[{','.join(indices)}]" for indices in (self.left, self.right, self.out))
        return f"{left} {right} -> {out}"


@dataclass(frozen=True)
class Step:
    """Node ``out`` of the tree is the contraction of nodes ``left`` and ``right``."""

    left: int
    right: int
    out: int
    forward: Pair
    to_left: Pair
    to_right: Pair


@dataclass(frozen=True)
class Tree:
    """Contraction tree of an equation: leaves are its factors in order, the last node is Xhat."""

    equation: Equation
    nodes: tuple[Indices, ...]
    steps: tuple[Step, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the factors, by leaf."""
        return tuple(term.name for term in self.equation.factors)

    @cached_property
    def below(self) -> tuple[frozenset[int], ...]:
        """The leaves below each node."""
        below = [frozenset([leaf]) for leaf in range(len(self.names))]
        for step in self.steps:
            below.append(below[step.left] | below[step.right])
        return tuple(below)

    @cached_property
    def parents(self) -> Mapping[int, tuple[int, int, Pair]]:
        """Node to (parent, sibling, the step from the parent down to it)."""
        parents = {}
        for step in self.steps:
            parents[step.left] = (step.out, step.right, step.to_left)
            parents[step.right] = (step.out, step.left, step.to_right)
        return parents

    def cut(self, indices: Indices, block: Block) -> Block:
        """The block of an array with these indices that corresponds to a block of cells."""
        where = dict(zip(self.equation.output.indices, block, strict=True))
        return tuple(where.get(index, slice(None)) for index in indices)

    def block_leaves(self, factors: Sequence[AnyArray], block: Block) -> list[AnyArray]:
        """The leaves, restricted to one block of cells."""
        terms = self.equation.factors
        return [self.leaf(n, factors[n][self.cut(term.indices, block)]) for n, term in enumerate(terms)]

    def leaf(self, number: int, factor: AnyArray) -> AnyArray:
        """A factor as a leaf of the tree: indices that no other factor has are summed."""
        indices, kept = self.equation.factors[number].indices, self.nodes[number]
        lone = tuple(axis for axis, index in enumerate(indices) if index not in kept)
        order = [index for index in indices if index in kept]
        leaf: AnyArray = permuted(summed(factor, lone), [order.index(index) for index in kept])
        return leaf

    def unleaf(self, number: int, array: AnyArray) -> AnyArray:
        """An array of a leaf with the axes of its factor; summed axes have size 1."""
        indices, kept = self.equation.factors[number].indices, self.nodes[number]
        order = [kept.index(index) for index in indices if index in kept]
        lone = tuple(axis for axis, index in enumerate(indices) if index not in kept)
        unleafed: AnyArray = with_axes(permuted(array, order), lone)
        return unleafed

    def forward(self, leaves: Sequence[AnyArray], root: bool = True) -> list[AnyArray]:
        """The value of every node, optionally without the last one, which is Xhat."""
        values = list(leaves)
        for step in self.steps if root else self.steps[:-1]:
            values.append(step.forward(values[step.left], values[step.right]))
        return values

    def backward(self, values: Sequence[AnyArray], cells: AnyArray, wanted: Collection[int]) -> dict[int, AnyArray]:
        """``Delta(cells)`` of the wanted leaves; ``values`` come from :meth:`forward`, with or without the root."""
        return self.backward_from(values, {len(self.nodes) - 1: cells}, wanted)

    def backward_from(
        self, values: Sequence[AnyArray], known: Mapping[int, AnyArray], wanted: Collection[int]
    ) -> dict[int, AnyArray]:
        """As :meth:`backward`, starting from ``Delta(cells)`` of some nodes, such as the children of the root."""
        delta = dict(known)
        for step in reversed(self.steps):
            above = delta.pop(step.out, None)
            if above is None:
                continue
            if not self.below[step.left].isdisjoint(wanted):
                delta[step.left] = step.to_left(above, values[step.right])
            if not self.below[step.right].isdisjoint(wanted):
                delta[step.right] = step.to_right(above, values[step.left])
        return delta

    def descend(self, values: Sequence[AnyArray], cells: AnyArray, node: int) -> AnyArray:
        """``Delta(cells)`` of one node: follow the path from the root down to it."""
        if node not in self.parents:
            return cells
        parent, sibling, down = self.parents[node]
        return down(self.descend(values, cells, parent), values[sibling])

    def flops(self, sizes: Mapping[str, int]) -> int:
        """Flops of one forward pass; a backward pass to all leaves costs twice as much."""
        return sum(step.forward.flops(sizes) for step in self.steps)

    def root_runs(self) -> int:
        """Number of switches between the sides of the root when all factors are updated in order."""
        if not self.steps:
            return 1
        sides = [leaf in self.below[self.steps[-1].left] for leaf in range(len(self.names))]
        return len(list(itertools.groupby(sides)))

    def sweep_flops(self, sizes: Mapping[str, int]) -> int:
        """Flops of an iteration with a mask: one forward pass, one backward pass, and one mask pass per run."""
        root = self.steps[-1].forward.flops(sizes) if self.steps else 0
        return 3 * self.flops(sizes) + self.root_runs() * root


def plan_tree(equation: Equation, sizes: Mapping[str, int]) -> Tree:
    """The cheapest tree for an iteration.

    Candidates: opt_einsum's best order for Xhat, and for each split of the factor list the best orders of its two
    halves: factors are updated in order, so a tree split there visits the mask only twice.
    """
    return _plan_tree(equation, tuple(sizes.items()))


def tree_with(equation: Equation, tree: Tree) -> Tree:
    """The tree of another equation with the same factors, contracted in the same order."""
    return _tree(equation, leaves_of(equation), [(step.left, step.right) for step in tree.steps])


@lru_cache(maxsize=128)
def _plan_tree(equation: Equation, known: tuple[tuple[str, int], ...]) -> Tree:
    sizes = dict(known)
    leaves = leaves_of(equation)
    output = equation.output.indices
    count = len(leaves)
    if count == 1:
        return Tree(equation, (output,), ())
    candidates = [_tree(equation, leaves, _path(leaves, output, sizes))]
    for cut in range(1, count):
        halves = []
        for part, rest in ((leaves[:cut], leaves[cut:]), (leaves[cut:], leaves[:cut])):
            elsewhere = set(output).union(*rest)
            kept = tuple(i for i in dict.fromkeys(itertools.chain(*part)) if i in elsewhere)
            halves.append(_path(part, kept, sizes))
        candidates.append(_tree(equation, leaves, _joined(halves, cut, count)))
    return min(candidates, key=lambda tree: (tree.sweep_flops(sizes), _largest(tree, sizes)))


def _largest(tree: Tree, sizes: Mapping[str, int]) -> int:
    return max(prod(sizes[index] for index in node) for node in tree.nodes)


def leaves_of(equation: Equation) -> list[Indices]:
    """Indices of each factor, without those that occur nowhere else in the equation."""
    terms = [*equation.factors, equation.output]
    places = [index for term in terms for index in term.indices]
    return [tuple(i for i in term.indices if places.count(i) > 1) for term in equation.factors]


Path = list[tuple[int, int]]


def _path(leaves: Sequence[Indices], output: Indices, sizes: Mapping[str, int]) -> Path:
    """opt_einsum's order as pairs of node numbers: leaves first, then one node per pair."""
    if len(leaves) == 1:
        return []
    shapes = [tuple(sizes[index] for index in leaf) for leaf in leaves]
    search = "optimal" if len(leaves) <= 5 else "auto"
    path, _ = oe.contract_path(subscripts(leaves, output), *shapes, shapes=True, optimize=search)
    live = list(range(len(leaves)))
    pairs = []
    for number, (one, two) in enumerate(path, start=len(leaves)):
        pair = (live[one], live[two])
        live = [node for node in live if node not in pair] + [number]
        pairs.append((min(pair), max(pair)))
    return pairs


def _joined(halves: Sequence[Path], cut: int, count: int) -> Path:
    """Combine the paths of the two halves of the factor list, and join them in the last step."""
    pairs: Path = []
    roots = []
    for path, first, size in zip(halves, (0, cut), (cut, count - cut), strict=True):
        shift = count + len(pairs) - size  # where the nodes of this half start

        def moved(node: int, first: int = first, size: int = size, shift: int = shift) -> int:
            return node + first if node < size else node + shift

        pairs += [(moved(one), moved(two)) for one, two in path]
        roots.append(moved(size + len(path) - 1))
    return [*pairs, (roots[0], roots[1])]


def _tree(equation: Equation, leaves: Sequence[Indices], path: Path) -> Tree:
    nodes = list(leaves)
    open_nodes = set(range(len(leaves)))
    steps = []
    for left, right in path:
        open_nodes -= {left, right}
        needed = set(equation.output.indices).union(*(nodes[node] for node in open_nodes))
        # Observed indices first, in cell order: most steps are then matrix products without a copy.
        both = dict.fromkeys((*equation.output.indices, *nodes[left], *nodes[right]))
        held = needed.intersection(nodes[left] + nodes[right])
        out = tuple(index for index in both if index in held)
        step = Step(
            left,
            right,
            len(nodes),
            Pair(nodes[left], nodes[right], out),
            Pair(out, nodes[right], nodes[left]),
            Pair(out, nodes[left], nodes[right]),
        )
        open_nodes.add(len(nodes))
        nodes.append(out)
        steps.append(step)
    return Tree(equation, tuple(nodes), tuple(steps))
