"""Going further than a plain sweep, as long as the objective does not fall: over-relaxation, then quasi-Newton steps.

A sweep takes log C (for EM and MAP: the logarithms of the estimates) to better ones. Early on it pays to go further the
same way. In the tail sweeps creep along a few slow directions, and there the last steps tell enough of the curvature to
jump: L-BFGS, with what a plain sweep would do in place of a gradient. It is one, but for a weight of every entry: the
information that it would carry if the counts of every component were seen. Inner products have this weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pltf.inference.algebra import Algebra, Factors
from pltf.inference.algebra.host import quasi_newton
from pltf.inference.state import FIRST_PACE, Pace, State, Trail

# Measured: benchmarks/NOTES.md
GROWTH, LIMIT = 1.5, 100.0  # of over-relaxation
REFUSALS = 4  # after so many of them over-relaxation gives way to quasi-Newton steps
PAIRS = 3  # last steps that these look back to
LONGEST, SHORTER = 2.0, 0.25  # largest change of a logarithm, and the share of it for a second try
NOISE = 1e-11  # a relative step below this is rounding: stretched, it would grow sweep by sweep

Proposal = Callable[[Factors, Pace], State]  # the state that factors make, with the pace to go on at


def accelerated(
    algebra: Algebra[Any], state: State, old: Factors, plain: Factors, weight: Factors, candidate: Proposal
) -> State:
    """The state after an accelerated sweep, or after the plain one if that falls.

    A sweep takes ``old`` to ``plain``. ``candidate`` makes a state of either, and of what lies beyond; it brings the
    pass over the data that the next sweep needs anyway, so only a refused candidate costs anything.
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
    return candidate(plain, Pace(eta, refused))  # what the trail told was wrong


def _rises(new: State, old: State) -> bool:
    return new.objective >= old.objective and new.zeros == old.zeros


def longer(algebra: Algebra[Any], trail: Trail | None, old: Factors, plain: Factors) -> Trail:
    """The trail with one more state, ``old``, and what a plain sweep makes of it."""
    residual = algebra.log_ratio(old, plain)
    if trail is None:
        return Trail(old, residual, ())
    pair = (algebra.log_ratio(old, trail.before), algebra.difference(residual, trail.residual))
    return Trail(old, residual, (*trail.pairs, pair)[-PAIRS:])


def direction(algebra: Algebra[Any], trail: Trail, weight: Factors) -> Factors | None:
    """The quasi-Newton step in logarithms, or None while there is no curvature to go by.

    All inner products come from one pass; the two loops of L-BFGS then work on coefficients.
    """
    rows = algebra.stack([*(s for s, _ in trail.pairs), *(y for _, y in trail.pairs), trail.residual])
    coefficients = quasi_newton(algebra.gram(rows, weight))
    return None if coefficients is None else algebra.combine(coefficients, rows, LONGEST)
