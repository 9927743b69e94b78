"""The dense engine: evaluates blocks of cells through the contraction tree, forwards and backwards."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pltf.data import DenseObservation
from pltf.data.blocks import Block
from pltf.data.numeric import read_only
from pltf.engines.base import Counting, sum_of
from pltf.engines.contraction import AnyArray
from pltf.engines.factors import Versioned
from pltf.engines.kernels.dense import APART, ratios
from pltf.engines.over_tree import OverTree
from pltf.engines.plan import EquationPlan
from pltf.gamma import Array
from pltf.threads import keep_freed_memory, ordered_map

R = TypeVar("R")


class DenseEngine(Counting, OverTree):
    """Sums over the cells of one dense tensor."""

    def __init__(self, plan: EquationPlan, seen: DenseObservation, threads: int) -> None:
        super().__init__(plan.tree, plan.sizes, masked=seen.mask is not None)
        self._plan, self._seen, self._dtype = plan, seen, plan.dtype
        self._threads = min(threads, len(plan.blocks))
        keep_freed_memory()

    # -- counts ---------------------------------------------------------------------------------

    def _passed(
        self, factors: Mapping[str, Array], names: Sequence[str], log: bool, key: tuple[int, ...] | None
    ) -> tuple[dict[str, Array], float]:
        tree = self._tree
        arrays = [array.astype(self._dtype, copy=False) for array in self._arrays(factors)]
        leaves = [n for n, name in enumerate(tree.names) if name in names]

        def one_block(block: Block) -> tuple[dict[int, AnyArray], float]:
            values = tree.forward(tree.block_leaves(arrays, block))
            rate = self._own_rates(values[-1])
            log_term = ratios(*self._flat_data(block), rate.reshape(-1), log, self._plan.links)
            with np.errstate(invalid="ignore"):  # the same in the worker threads
                return tree.backward(values, rate, leaves), log_term

        sums = {n: np.zeros(arrays[n].shape) for n in leaves}
        log_terms = []
        for block, (delta, log_term) in self._over_blocks(one_block):
            log_terms.append(log_term)
            for n in leaves:
                sums[n][tree.cut(tree.equation.factors[n].indices, block)] += tree.unleaf(n, delta[n])
        return {tree.names[n]: sums[n] * arrays[n] for n in leaves}, sum_of(log_terms) if log else math.nan

    def _own_rates(self, rates: AnyArray) -> AnyArray:
        """Xhat in a separate array that may be overwritten; without steps in the tree, Xhat is the array of a factor.

        Short arrays are placed away from all others, as :func:`ratios` requires.
        """
        if rates.size < APART:
            own = np.empty(rates.size + 2 * APART, self._dtype)[APART : APART + rates.size].reshape(rates.shape)
            own[...] = rates
            return own
        return np.require(rates, requirements=["C", "W"]) if self._tree.steps else rates.copy("C")

    def _flat_data(self, block: Block) -> tuple[AnyArray, NDArray[np.bool_] | None]:
        """Values and mask, always read-only: one compiled kernel serves parts and copies."""
        with np.errstate(over="ignore"):  # missing cells may contain values that overflow, which are ignored
            values = np.ascontiguousarray(self._seen.values[block], dtype=self._dtype).reshape(-1)
        mask = self._seen.mask
        return read_only(values), None if mask is None else read_only(np.ascontiguousarray(mask[block]).reshape(-1))

    def _new_mask_delta(self, node: int, factors: Versioned[Array]) -> Array:
        tree, mask = self._tree, self._seen.mask
        assert mask is not None
        if self._plan.shares and node in tree.parents:
            parent, sibling, down = tree.parents[node]
            if parent in tree.parents:  # not below the root: no pass over the cells
                return down(self._mask_delta(parent, factors), self._value(sibling, factors))
        arrays = self._arrays(factors)

        def one_block(block: Block) -> AnyArray:
            cells = mask[block].astype(np.float64)
            return tree.descend(tree.forward(tree.block_leaves(arrays, block), root=False), cells, node)

        delta = np.zeros([self._plan.sizes[index] for index in tree.nodes[node]])
        for block, part in self._over_blocks(one_block):
            delta[tree.cut(tree.nodes[node], block)] += part
        return delta

    # -- blocks ---------------------------------------------------------------------------------

    def _over_blocks(self, one_block: Callable[[Block], R]) -> Iterator[tuple[Block, R]]:
        """Every block with its result, in cell order for any number of threads."""
        blocks = self._plan.blocks
        return zip(blocks, ordered_map(one_block, blocks, self._threads), strict=True)

    def _arrays(self, factors: Mapping[str, Array]) -> list[Array]:
        return [factors[name] for name in self._tree.names]
