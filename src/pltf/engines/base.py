"""The seam: what inference asks of an engine, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pltf.gamma import Array
from pltf.threads import in_parts

Factors = Mapping[str, Array]
Number = Any  # a float; or a 0-d tensor of a device, for which only float() waits


@dataclass(frozen=True, eq=False)
class Counts:
    """Result of one pass over the observed cells.

    ``by_factor[a]`` is ``L_a * Delta_a(M*X/Xhat)``, the counts that each entry of factor a is
    expected to have caused. ``log_term`` is ``sum M*X*log(Xhat/X)``: the log term of the bound less
    the constant ``sum M*X*log X``, because the difference keeps its digits when counts are huge.

    The likelihood changes two things and nothing else. Under "bernoulli" the ratio ``X/Xhat`` of a link is
    ``1/(1-exp(-Xhat))`` (its hidden count is expected to be this many times Xhat), and the log term is
    ``sum log(exp(Xhat)-1)`` over the links.
    """

    by_factor: Mapping[str, Array]
    log_term: Number


class Engine(Protocol):
    """Sums over the cells of one or more observed tensors, bound to their data.

    Factors come as mappings from name to float64 array, which are never changed in place. Of :class:`Versioned` ones an
    engine may remember partial results for as long as it is handed the same versions.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """The factors that it knows."""
        ...

    def counts(self, factors: Mapping[str, Array], wanted: Collection[str] | None = None, log: bool = True) -> Counts:
        """Expected counts of the wanted factors (of all, if None) in one pass, with the log term or without (NaN)."""
        ...

    def allocate(self, factors: Mapping[str, Array], wanted: Collection[str] | None, key: tuple[int, ...]) -> Counts:
        """Counts of the wanted factors as :meth:`counts` expects them, but drawn: what Gibbs sampling needs.

        Every count of a cell is drawn into one of the latent configurations, with probabilities in proportion to the
        products of the factors; of a link the hidden count is drawn first. ``by_factor`` are sums of these draws, whole
        numbers in float64; ``log_term`` is that of :meth:`counts`. The same key and wanted factors give the same bits,
        with any number of threads; other keys give independent draws. Keys of one sampler should have one length.

        Only counts that come from lists of cells can be allocated: plan with ``Task(..., allocates=True)``.
        """
        ...

    @property
    def together(self) -> tuple[frozenset[str], ...]:
        """The factors in groups: counts of one group that are allocated in one call are sums of one and the same draw.

        Those of different groups come from independent draws. So a sampler goes group by group: allocate at the
        present factors, then draw the factors of the group one after the other, given these counts.
        """
        ...

    def exposure(self, factors: Mapping[str, Array], of: str) -> Array:
        """``Delta_a(M)``: the mask contracted with every factor but ``of``, shaped like ``of``."""
        ...

    def total(self, factors: Mapping[str, Array]) -> Number:
        """``sum M*Xhat``, free after the exposure of the factor that changed last."""
        ...

    def fresh(self) -> Engine:
        """The same engine on the same data with nothing remembered, to be used beside this one."""
        ...


class OverArrays:
    """An engine that goes through all cells of an array: it takes expectations, and cannot allocate."""

    def allocate(self, factors: Mapping[str, Array], wanted: Collection[str] | None, key: tuple[int, ...]) -> Counts:
        raise AssertionError("counts are allocated from a list of cells: the task must say that it allocates")

    @property
    def together(self) -> tuple[frozenset[str], ...]:
        raise AssertionError("counts are allocated from a list of cells: the task must say that it allocates")


def lost_in_cast(log_term: float, counts: Factors, factors: Factors, dtype: np.dtype[Any], threads: int = 1) -> float:
    """What the log term loses when every L is rounded to L': sum of counts * log(L/L'); nothing if it is not finite.

    Rounding moves q(S) a little off its optimum, and the bound is exact for the q(S) that was used. For links too: q is
    Poisson(L') cut off at zero, and E_q[ log p(S; L) - log q(S) ] is log(exp(Xhat')-1) plus this, up to the exposure.
    """
    from pltf.special import cast_loss_loop

    def one_factor(counts: Array, L: Array) -> float:
        flat, before, after = counts.reshape(-1), L.reshape(-1), L.astype(dtype).reshape(-1)
        return math.fsum(in_parts(lambda part: cast_loss_loop(flat[part], before[part], after[part]), L.size, threads))

    if dtype == np.float64 or not math.isfinite(log_term):
        return 0.0
    return math.fsum(one_factor(counts[name], factors[name]) for name in counts)


def sum_of(terms: Sequence[float]) -> float:
    """Exact sum, or what addition makes of terms that are not finite."""
    return math.fsum(terms) if np.isfinite(terms).all() else float(np.sum(terms))
