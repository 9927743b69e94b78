"""Over-relaxation: go further along the last step than the step itself, as long as the objective does not fall."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pltf.gamma import Array
from pltf.inference.state import State

NOISE = 1e-11
GROWTH, LIMIT = 1.5, 100.0  # measured: benchmarks/NOTES.md


def over_relaxed(state: State, candidate: Callable[[float], State]) -> State:
    """The over-relaxed candidate, or the plain one (eta = 1) if that falls.

    A candidate brings the pass over the data that the next sweep needs anyway, so only a refused one costs anything.
    """
    if state.eta > 1:
        new = candidate(state.eta)
        if new.objective >= state.objective and new.zeros == state.zeros:
            return replace(new, eta=min(state.eta * GROWTH, LIMIT))
    return replace(candidate(1.0), eta=GROWTH)


def stretched(old: Array, new: Array, eta: float) -> Array:
    """eta times the step from old to new, in logarithms; a zero stays what the step makes it.

    A step of the size of rounding is not stretched: in directions that have settled noise would grow sweep by sweep.
    """
    moves = (old > 0) & (new > 0) & (np.abs(new - old) > NOISE * old)
    ratio = np.where(moves, new, 1) / np.where(moves, old, 1)
    return np.where(moves, old * ratio**eta, new)
