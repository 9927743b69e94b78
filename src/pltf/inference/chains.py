"""The loop of the Gibbs sampler: chains run in parallel, one sweep at a time, so that they always have equal length."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pltf.errors import PltfError
from pltf.inference.algebra import Factors
from pltf.inference.algebra.kept import Kept
from pltf.inference.gibbs import Sampler
from pltf.inference.progress import Progress
from pltf.inference.run import ASKED, INTERRUPTED, Stop, Sweep, asks_to_stop
from pltf.inference.state import State, fetched, placed


@dataclass(frozen=True)
class Schedule:
    """Number of chains, and which draws are kept: after the burn-in, one every ``thin`` sweeps."""

    chains: int
    burn_in: int
    draws: int
    thin: int

    @property
    def sweeps(self) -> int:
        """Number of sweeps per chain."""
        return self.burn_in + self.draws * self.thin

    def kept(self, sweeps: int) -> int:
        """Number of draws kept from the first ``sweeps`` sweeps."""
        return max(0, sweeps - self.burn_in) // self.thin

    def half(self, fewest: int) -> Schedule:
        """The same number of chains with half the sweeps, half of them burn-in; keeps at least ``fewest`` draws.

        >>> Schedule(chains=4, burn_in=0, draws=200, thin=2).half(fewest=4)
        Schedule(chains=4, burn_in=100, draws=50, thin=2)
        """
        sweeps = self.sweeps // 2
        burn_in = sweeps // 2
        return Schedule(self.chains, burn_in, max((sweeps - burn_in) // self.thin, fewest), self.thin)


@dataclass(frozen=True, eq=False)
class Chains:
    """State of all chains after the same number of sweeps."""

    states: tuple[State, ...]  # on the host, except inside the loop
    sweeps: int
    kept: Kept  # filled while the chains run
    seconds: float = 0.0


class ChainKeeper(Protocol):
    """Saves the state of the chains, so that they can be resumed."""

    def due(self) -> bool:
        """Whether a checkpoint is due."""

    def keep(self, chains: Chains) -> None:
        """Save the chains."""


class ChainProgress(Progress):
    """Shows the sweeps of all chains."""

    def __init__(self, shown: bool, schedule: Schedule) -> None:
        super().__init__(shown, schedule.chains * schedule.sweeps, time_left=True)
        self._schedule = schedule

    def sweep(self, chain: int, sweep: int, log_likelihood: float) -> None:
        """Report a finished sweep of a chain."""
        if self.due:
            schedule = self._schedule
            phase = "burn-in" if sweep <= schedule.burn_in else "draws"
            text = f"chain {chain + 1}/{schedule.chains}, iteration {sweep}/{schedule.sweeps} ({phase})"
            self.show((sweep - 1) * schedule.chains + chain + 1, f"{text}: log-likelihood {log_likelihood:.6g}")


@dataclass(frozen=True, eq=False)
class Sampling:
    """Chains of one sampler: each has a seed; the key of a sweep is (seed, number of the sweep)."""

    sampler: Sampler
    schedule: Schedule
    seeds: Sequence[int]
    first: int  # sweeps of an earlier fit, whose keys must not be reused
    mass: Mapping[str, tuple[str, int]]  # latent index -> the factor that counts its components, and its axis

    def run(
        self, chains: Chains, stop: Stop, progress: ChainProgress, keeper: ChainKeeper | None = None
    ) -> tuple[Chains, str]:
        """Sweep until all draws are made; returns the chains and the reason for stopping."""
        algebra = self.sampler.problem.algebra
        states = [placed(state, algebra) for state in chains.states]
        chains = replace(chains, states=tuple(states))
        asked, began = False, time.perf_counter() - chains.seconds
        while chains.sweeps < self.schedule.sweeps and not asked:
            new = []
            for chain, state in enumerate(states):
                if stop.interrupted is not None and stop.interrupted():
                    return self._fetched(chains), INTERRUPTED
                new.append(self._swept(chain, state, chains, progress))
                asked |= self._asked_to_stop(stop, chain, chains.sweeps + 1, new[-1])
            states = new
            chains = replace(self._kept(chains, states), seconds=time.perf_counter() - began)
            if keeper is not None and keeper.due():
                keeper.keep(self._fetched(chains))
        return self._fetched(chains), ASKED if asked else f"every chain has done its {self.schedule.sweeps} iterations"

    def _swept(self, chain: int, state: State, chains: Chains, progress: ChainProgress) -> State:
        sweep = chains.sweeps + 1
        new = self.sampler.sweep(state, (self.seeds[chain], self.first + sweep))
        if not math.isfinite(new.objective):
            broken = f"the log-likelihood became {new.objective} at iteration {sweep} of chain {chain + 1}"
            raise PltfError(f"{broken}: the numbers are out of range")
        chains.kept.log_likelihood[chain, sweep - 1] = new.objective
        progress.sweep(chain, sweep, new.objective)
        return new

    def _asked_to_stop(self, stop: Stop, chain: int, sweep: int, state: State) -> bool:
        if stop.callback is None:
            return False
        return asks_to_stop(stop.callback(Sweep(chain, sweep, state.objective, self._on_host(state.E))))

    def _kept(self, chains: Chains, states: Sequence[State]) -> Chains:
        """The chains after one more sweep; draws that are due are kept."""
        sweeps = chains.sweeps + 1
        number = self.schedule.kept(sweeps)
        if number > self.schedule.kept(sweeps - 1):
            for chain, state in enumerate(states):
                chains.kept.keep(chain, number - 1, self._on_host(state.E), state.priors, self._mass(state))
        return replace(chains, states=tuple(states), sweeps=sweeps)

    def _fetched(self, chains: Chains) -> Chains:
        """The chains with their states on the host."""
        algebra = self.sampler.problem.algebra
        return replace(chains, states=tuple(fetched(state, algebra) for state in chains.states))

    def _mass(self, state: State) -> dict[str, Any]:
        """Allocated counts per component of every latent index."""
        counts, algebra = state.counts.by_factor, self.sampler.problem.algebra
        return {index: algebra.sum_along(counts[a], 1.0, axis) for index, (a, axis) in self.mass.items()}

    def _on_host(self, factors: Factors) -> Factors:
        return {a: self.sampler.problem.algebra.get(factors[a]) for a in factors}
