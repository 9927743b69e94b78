"""Acceleration: extrapolate iterations as long as the objective does not fall: over-relaxation, then L-BFGS.

An iteration improves log C (for EM and MAP: the logarithms of the estimates). Early on it pays to go further in the
same direction. In the tail, iterations creep along a few slow directions; there the last steps contain enough
curvature information for L-BFGS, with the step of a plain iteration in place of the gradient. This step equals the
gradient up to a weight per entry: the information the entry would carry if the counts of every component were
observed. Inner products use this weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from pltf.inference.algebra import Algebra, Factors
from pltf.inference.state import Pace, State, Trail

# Measured: benchmarks/NOTES.md
GROWTH, LIMIT = 1.5, 100.0  # of over-relaxation
REFUSALS = 4  # number of rejections after which quasi-Newton steps replace over-relaxation
PAIRS = 3  # number of last steps that L-BFGS uses
REMEMBERED = PAIRS - 1  # between iterations: the next one adds its own
LONGEST, SHORTER = 2.0, 0.25  # largest change of a logarithm, and the factor by which a rejected step is shortened
NOISE = 1e-11  # a relative step below this is rounding error: extrapolation would amplify it

# (algebra, old, plain, weight, *given) -> factors, and the trail that they extend. A plain iteration maps old to plain.
Make = Callable[..., tuple[Factors, Trail | None]]


class Proposal(Protocol):
    """Completes an iteration from the factors that ``make`` makes, here or in a recording."""

    def __call__(self, pace: Pace, make: Make, *given: Any) -> State:
        """The state, with the step size for the next iteration."""


def accelerated(state: State, propose: Proposal) -> State:
    """The state after an accelerated iteration, or after the plain one if the objective would fall.

    ``propose`` makes a state from the result of a plain iteration or from an extrapolation; this includes the pass over
    the data that the next iteration needs anyway, so only a rejected proposal costs time.
    """
    if state.pace.refused < REFUSALS:
        return _over_relaxed(state, propose)
    return _quasi_newton(state, propose)


def _over_relaxed(state: State, propose: Proposal) -> State:
    eta, refused = state.pace.eta, state.pace.refused
    if eta > 1:
        new = propose(Pace(min(eta * GROWTH, LIMIT), refused), stretched, eta)
        if _rises(new, state):
            return new
        del new  # frees its memory before the next proposal
        refused += 1
    return propose(Pace(GROWTH, refused), unchanged)


def _quasi_newton(state: State, propose: Proposal) -> State:
    pace, trail = Pace(state.pace.eta, state.pace.refused), state.pace.trail
    if trail is None:
        return propose(pace, watched)
    for length in (1.0, SHORTER):
        new = propose(pace, moved, trail, length)
        if _rises(new, state):
            return new
        del new
    return propose(pace, unchanged)  # the curvature information of the trail was wrong


def _rises(new: State, old: State) -> bool:
    return new.objective >= old.objective and new.zeros == old.zeros


def unchanged(_: Algebra[Any], old: Factors, plain: Factors, weight: Factors) -> tuple[Factors, None]:
    """The plain iteration."""
    return plain, None


def stretched(algebra: Algebra[Any], old: Factors, plain: Factors, weight: Factors, eta: float) -> tuple[Factors, None]:
    """Over-relaxation: further in the same direction."""
    return algebra.stretch(old, plain, eta, NOISE), None


def watched(algebra: Algebra[Any], old: Factors, plain: Factors, weight: Factors) -> tuple[Factors, Trail]:
    """The plain iteration, which begins a trail."""
    return plain, longer(algebra, None, old, plain)


def moved(
    algebra: Algebra[Any], old: Factors, plain: Factors, weight: Factors, trail: Trail, length: float
) -> tuple[Factors, Trail]:
    """A quasi-Newton step, or the plain iteration if there is no curvature information yet."""
    trail = longer(algebra, trail, old, plain)
    step = direction(algebra, trail, weight)
    trail = trail._replace(pairs=trail.pairs[-REMEMBERED:])
    return plain if step is None else algebra.move(old, plain, step, length), trail


def longer(algebra: Algebra[Any], trail: Trail | None, old: Factors, plain: Factors) -> Trail:
    """The trail extended by the state ``old`` and the result of a plain iteration from it."""
    residual = algebra.log_ratio(old, plain)
    if trail is None:
        return Trail(old, residual, ())
    pair = (algebra.log_ratio(old, trail.before), algebra.difference(residual, trail.residual))
    return Trail(old, residual, (*trail.pairs, pair)[-PAIRS:])


def direction(algebra: Algebra[Any], trail: Trail, weight: Factors) -> Factors | None:
    """The quasi-Newton step in logarithms, or None if there is no curvature information yet.

    One pass computes all inner products; the two loops of L-BFGS then only work on coefficients.
    """
    rows = [*(s for s, _ in trail.pairs), *(y for _, y in trail.pairs), trail.residual]
    return algebra.quasi_newton(rows, weight, LONGEST)
