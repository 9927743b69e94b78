"""Over-relaxation: go further along the last step than the step itself, as long as the objective does not fall."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pltf.gamma import Array
from pltf.inference.state import State
from pltf.special import stretch_loop
from pltf.threads import in_parts

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


def stretched(old: Array, new: Array, eta: float, threads: int = 1) -> Array:
    """eta times the step from old to new, in logarithms; a zero stays what the step makes it.

    A step of the size of rounding is not stretched: in directions that have settled noise would grow sweep by sweep.
    """
    before, after = np.ascontiguousarray(old).reshape(-1), np.ascontiguousarray(new).reshape(-1)
    out = np.empty(after.size)

    def one_part(part: slice) -> None:
        stretch_loop(before[part], after[part], eta, NOISE, out[part])

    list(in_parts(one_part, out.size, threads))
    return out.reshape(new.shape)
