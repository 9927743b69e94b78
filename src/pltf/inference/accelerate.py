"""Acceleration: extrapolate iterations as long as the objective does not fall: over-relaxation, then L-BFGS.

An iteration improves log C (for EM and MAP: the logarithms of the estimates). Early on it pays to go further in the
same direction. In the tail, iterations creep along a few slow directions; there the last steps contain enough
curvature information for L-BFGS, with the step of a plain iteration in place of the gradient. This step equals the
gradient up to a weight per entry: the information the entry would carry if the counts of every component were
observed. Inner products use this weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pltf.inference.algebra import Algebra, Factors
from pltf.inference.algebra.host import quasi_newton
from pltf.inference.state import FIRST_PACE, Pace, State, Trail

# Measured: benchmarks/NOTES.md
GROWTH, LIMIT = 1.5, 100.0  # of over-relaxation
REFUSALS = 4  # number of rejections after which quasi-Newton steps replace over-relaxation
PAIRS = 3  # number of last steps that L-BFGS uses
LONGEST, SHORTER = 2.0, 0.25  # largest change of a logarithm, and the factor by which a rejected step is shortened
NOISE = 1e-11  # a relative step below this is rounding error: extrapolation would amplify it

Proposal = Callable[[Factors, Pace], State]  # makes a state from factors, with the step size for the next iteration


def accelerated(
    algebra: Algebra[Any], state: State, old: Factors, plain: Factors, weight: Factors, candidate: Proposal
) -> State:
    """The state after an accelerated iteration, or after the plain one if the objective would fall.

    A plain iteration maps ``old`` to ``plain``. ``candidate`` makes a state from ``plain`` or from an extrapolation;
    this includes the pass over the data that the next iteration needs anyway, so only a rejected candidate costs time.
    """
    if not old:
        return candidate(plain, FIRST_PACE)
    if state.pace.refused < REFUSALS:
        return _over_relaxed(algebra, state, old, plain, candidate)
    return _quasi_newton(algebra, state, old, plain, weight, candidate)


def _over_relaxed(algebra: Algebra[Any], state: State, old: Factors, plain: Factors, candidate: Proposal) -> State:
    eta, refused = state.pace.eta, state.pace.refused
    if eta > 1:
        new = candidate(algebra.stretch(old, plain, eta, NOISE), Pace(min(eta * GROWTH, LIMIT), refused))
        if _rises(new, state):
            return new
        refused += 1
    return candidate(plain, Pace(GROWTH, refused))


def _quasi_newton(
    algebra: Algebra[Any], state: State, old: Factors, plain: Factors, weight: Factors, candidate: Proposal
) -> State:
    eta, refused = state.pace.eta, state.pace.refused
    trail = longer(algebra, state.pace.trail, old, plain)
    pace = Pace(eta, refused, trail)
    step = direction(algebra, trail, weight)
    if step is None:
        return candidate(plain, pace)
    for length in (1.0, SHORTER):
        new = candidate(algebra.move(old, plain, step, length), pace)
        if _rises(new, state):
            return new
    return candidate(plain, Pace(eta, refused))  # the curvature information of the trail was wrong


def _rises(new: State, old: State) -> bool:
    return new.objective >= old.objective and new.zeros == old.zeros


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
    rows = algebra.stack([*(s for s, _ in trail.pairs), *(y for _, y in trail.pairs), trail.residual])
    coefficients = quasi_newton(algebra.gram(rows, weight))
    return None if coefficients is None else algebra.combine(coefficients, rows, LONGEST)
