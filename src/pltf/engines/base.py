"""The interface between inference and engines."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pltf.gamma import Array
from pltf.threads import in_parts

Factors = Mapping[str, Array]
Number = Any  # a float, or a 0-d tensor on a device, where only float() waits for the result


@dataclass(frozen=True, eq=False)
class Counts:
    """Result of one pass over the observed cells.

    ``by_factor[a]`` is ``L_a * Delta_a(M*X/Xhat)``, the expected counts of each entry of factor a. ``log_term`` is
    ``sum M*X*log(Xhat/X)``: the log term of the ELBO minus the constant ``sum M*X*log X``. The difference keeps its
    precision when counts are huge.

    The likelihood changes only two things. Under "bernoulli" the ratio ``X/Xhat`` of a link is ``1/(1-exp(-Xhat))``
    (its expected hidden count divided by Xhat), and the log term is ``sum log(exp(Xhat)-1)`` over the links.
    """

    by_factor: Mapping[str, Array]
    log_term: Number


class Engine(Protocol):
    """Sums over the cells of one or more observed tensors, bound to their data.

    Factors are mappings from name to float64 array. Arrays are never changed in place. If factors are
    :class:`Versioned`, an engine may cache partial results for as long as the versions stay the same.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the factors of this engine."""

    def counts(self, factors: Mapping[str, Array], wanted: Collection[str] | None = None, log: bool = True) -> Counts:
        """Expected counts of the wanted factors (None: all) in one pass; the log term is NaN if ``log`` is False."""

    def allocate(self, factors: Mapping[str, Array], wanted: Collection[str] | None, key: tuple[int, ...]) -> Counts:
        """Sample the counts whose expectations :meth:`counts` returns. Used by Gibbs sampling.

        The count of each cell is allocated at random to the latent configurations, with probabilities proportional to
        the products of the factors; for a link the hidden count is sampled first. ``by_factor`` holds the sums of these
        draws, whole numbers in float64; ``log_term`` is the same as in :meth:`counts`. The same key and wanted factors
        give bit-identical results with any number of threads; different keys give independent draws. All keys of a
        sampler should have the same length.

        Only counts from lists of cells can be allocated: plan with ``Task(..., allocates=True)``.
        """

    @property
    def together(self) -> tuple[frozenset[str], ...]:
        """Groups of factors: counts of one group that are allocated in one call come from the same draw.

        Counts of different groups come from independent draws. A sampler therefore works group by group: it allocates
        counts at the current factors, then samples the factors of the group one by one, given these counts.
        """

    def exposure(self, factors: Mapping[str, Array], of: str) -> Array:
        """``Delta_a(M)``: the mask contracted with every factor but ``of``, shaped like ``of``."""

    def total(self, factors: Mapping[str, Array]) -> Number:
        """``sum M*Xhat``; no extra cost after the exposure of the factor that changed last."""

    def fresh(self) -> Engine:
        """A copy of this engine on the same data with an empty cache, which can be used at the same time."""


class OverArrays:
    """An engine that visits all cells of an array: it computes expectations, but cannot allocate."""

    def allocate(self, factors: Mapping[str, Array], wanted: Collection[str] | None, key: tuple[int, ...]) -> Counts:
        raise AssertionError("counts can only be allocated from a list of cells: plan the task with allocates=True")

    @property
    def together(self) -> tuple[frozenset[str], ...]:
        raise AssertionError("counts can only be allocated from a list of cells: plan the task with allocates=True")


class Counting:
    """An engine whose counts are those of factors that are rounded to its dtype."""

    names: tuple[str, ...]
    _dtype: np.dtype[Any]
    _threads: int

    def counts(self, factors: Factors, wanted: Collection[str] | None = None, log: bool = True) -> Counts:
        return self._counted(factors, wanted, log)

    @np.errstate(invalid="ignore")  # a zero rate with a positive count gives NaN; log_term is then -inf
    def _counted(
        self, factors: Factors, wanted: Collection[str] | None, log: bool, key: tuple[int, ...] | None = None
    ) -> Counts:
        names = chosen(self.names, wanted)
        every = log and self._dtype != np.float64  # the correction for rounding needs the counts of all factors
        found, log_term = self._passed(factors, self.names if every else names, log, key)
        lost = lost_in_cast(log_term, found, factors, self._dtype, self._threads)
        return Counts({name: found[name] for name in names}, log_term + lost)

    def _passed(
        self, factors: Factors, names: Sequence[str], log: bool, key: tuple[int, ...] | None
    ) -> tuple[Factors, Number]:
        """Counts of the named factors (expected, or sampled if there is a key), and the log term or NaN."""
        raise NotImplementedError


def chosen(names: Iterable[str], wanted: Collection[str] | None) -> list[str]:
    """The wanted ones among the names of factors, in their order; all if it is None."""
    return [name for name in names if wanted is None or name in wanted]


def lost_in_cast(log_term: float, counts: Factors, factors: Factors, dtype: np.dtype[Any], threads: int = 1) -> float:
    """Loss of the log term when every L is rounded to L': sum of counts * log(L/L'); 0 if it is not finite.

    Rounding moves q(S) slightly off its optimum, and the ELBO is exact for the q(S) that was used. The same holds for
    links: q is a zero-truncated Poisson(L'), and E_q[ log p(S; L) - log q(S) ] is log(exp(Xhat')-1) plus this loss, up
    to the exposure.
    """
    from pltf.special import cast_loss_loop

    def one_factor(counts: Array, L: Array) -> float:
        flat, before, after = counts.reshape(-1), L.reshape(-1), L.astype(dtype).reshape(-1)
        return math.fsum(in_parts(lambda part: cast_loss_loop(flat[part], before[part], after[part]), L.size, threads))

    if dtype == np.float64 or not math.isfinite(log_term):
        return 0.0
    return math.fsum(one_factor(counts[name], factors[name]) for name in counts)


def sum_of(terms: Sequence[float]) -> float:
    """Exact sum, or the result of plain addition if some terms are not finite."""
    return math.fsum(terms) if np.isfinite(terms).all() else float(np.sum(terms))
