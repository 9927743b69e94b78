"""Going further than a plain sweep, as long as the objective does not fall: over-relaxation, then quasi-Newton steps.

A sweep takes log C (for EM and MAP: the logarithms of the estimates) to better ones. Early on it pays to go further the
same way. In the tail sweeps creep along a few slow directions, and there the last steps tell enough of the curvature to
jump: L-BFGS, with what a plain sweep would do in place of a gradient. It is one, but for a weight of every entry: the
information that it would carry if the counts of every component were seen. Inner products have this weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from pltf.gamma import Array
from pltf.inference.factors import Factors, frozen
from pltf.inference.state import Pace, State, Trail
from pltf.special import log_ratio_loop, move_loop, stretch_loop
from pltf.threads import in_parts, run_all

# Measured: benchmarks/NOTES.md
GROWTH, LIMIT = 1.5, 100.0  # of over-relaxation
REFUSALS = 4  # after so many of them over-relaxation gives way to quasi-Newton steps
PAIRS = 3  # last steps that these look back to
LONGEST, SHORTER = 2.0, 0.25  # largest change of a logarithm, and the share of it for a second try
NOISE = 1e-11  # a relative step below this is rounding, and not to be stretched
CURVED = 1e-8  # of a pair of steps: what its curvature must be to be of use

Proposal = Callable[[Factors], State]


def accelerated(
    state: State, old: Factors, plain: Factors, weight: Factors, candidate: Proposal, threads: int = 1
) -> State:
    """The state after an accelerated sweep, or after the plain one if that falls.

    A sweep takes ``old`` to ``plain``. ``candidate`` makes a state of either, and of what lies beyond; it brings the
    pass over the data that the next sweep needs anyway, so only a refused candidate costs anything.
    """
    if not old:
        return candidate(plain)
    if state.pace.refused < REFUSALS:
        return _over_relaxed(state, old, plain, candidate, threads)
    return _quasi_newton(state, old, plain, weight, candidate, threads)


def _over_relaxed(state: State, old: Factors, plain: Factors, candidate: Proposal, threads: int) -> State:
    eta, refused = state.pace.eta, state.pace.refused
    if eta > 1:
        new = candidate({a: stretched(old[a], plain[a], eta, threads) for a in plain})
        if _rises(new, state):
            return replace(new, pace=Pace(min(eta * GROWTH, LIMIT), refused))
        refused += 1
    return replace(candidate(plain), pace=Pace(GROWTH, refused))


def _quasi_newton(
    state: State, old: Factors, plain: Factors, weight: Factors, candidate: Proposal, threads: int
) -> State:
    trail = longer(state.pace.trail, old, plain, threads)
    step = direction(trail, np.concatenate([weight[a].reshape(-1) for a in plain]), threads)
    if step is None:
        return replace(candidate(plain), pace=replace(state.pace, trail=trail))
    for length in (1.0, SHORTER):
        new = candidate(_moved(old, plain, length * step, threads))
        if _rises(new, state):
            return replace(new, pace=replace(state.pace, trail=trail))
    return replace(candidate(plain), pace=replace(state.pace, trail=None))  # what it told was wrong


def _rises(new: State, old: State) -> bool:
    return new.objective >= old.objective and new.zeros == old.zeros


def longer(trail: Trail | None, old: Factors, plain: Factors, threads: int = 1) -> Trail:
    """The trail with one more state, ``old``, and what a plain sweep makes of it."""
    names = tuple(plain)
    residual = _log_ratios(names, old, plain, threads)
    if trail is None:
        return Trail(old, residual, ())
    pair = (_log_ratios(names, old, trail.before, threads), residual - trail.residual)
    return Trail(old, residual, (*trail.pairs, pair)[-PAIRS:])


def direction(trail: Trail, weight: Array, threads: int = 1) -> Array | None:
    """The quasi-Newton step in logarithms, or None while there is no curvature to go by.

    The two loops of L-BFGS, on coefficients: all inner products that they need come from one pass.
    """
    rows = [*(s for s, _ in trail.pairs), *(y for _, y in trail.pairs), trail.residual]
    G = _inner_products(rows, weight, threads)
    rows, G = _curved(rows, G)
    k = len(rows) // 2
    if not (k and np.isfinite(G).all()):
        return None
    q, along = np.eye(2 * k + 1)[-1], np.zeros(k)
    for i in reversed(range(k)):
        along[i] = G[i] @ q / G[i, k + i]
        q[k + i] -= along[i]
    q *= G[k - 1, -2] / G[-2, -2]
    for i in range(k):
        q[i] += along[i] - G[k + i] @ q / G[i, k + i]
    step = np.empty(len(weight))

    def one_part(part: slice) -> None:
        far = sum(share * row[part] for share, row in zip(q, rows, strict=True))
        np.clip(-far, -LONGEST, LONGEST, out=step[part])

    run_all(in_parts(one_part, len(step), threads))
    return step


def _curved(rows: Sequence[Array], G: Array) -> tuple[list[Array], Array]:
    """The rows and their inner products without the pairs that show no curvature, or are out of range."""
    k = len(rows) // 2
    kept = [i for i in range(k) if CURVED * G[k + i, k + i] < G[i, k + i] < np.inf and np.isfinite(G[i, i])]
    used = [*kept, *(k + i for i in kept), 2 * k]
    return [rows[i] for i in used], G[np.ix_(used, used)]


def _inner_products(rows: Sequence[Array], weight: Array, threads: int) -> Array:
    """The weighted inner product of every two rows."""

    def one_part(part: slice) -> Array:
        cut = np.stack([row[part] for row in rows])
        with np.errstate(invalid="ignore", over="ignore"):  # steps out of range: they will not be used
            return (cut * weight[part]) @ cut.T

    with np.errstate(invalid="ignore"):
        return np.asarray(sum(in_parts(one_part, len(weight), threads)))


def _log_ratios(names: Sequence[str], numerator: Factors, denominator: Factors, threads: int) -> Array:
    """log(numerator / denominator) of all entries, one factor after the other; 0 where either is zero."""
    out, end = np.empty(sum(numerator[a].size for a in names)), 0
    for a in names:
        here, end = out[end : end + numerator[a].size], end + numerator[a].size
        _in_parts(log_ratio_loop, (numerator[a], denominator[a]), here, threads)
    return out


def _moved(old: Factors, plain: Factors, step: Array, threads: int) -> Factors:
    """``old * exp(step)``; what is zero, or what a plain sweep makes zero, is as in ``plain``."""
    moved, end = {}, 0
    for a, array in plain.items():
        part, end = step[end : end + array.size], end + array.size
        out = np.empty(array.size)
        _in_parts(move_loop, (old[a], array, part), out, threads)
        moved[a] = frozen(out.reshape(array.shape))
    return moved


def stretched(old: Array, new: Array, eta: float, threads: int = 1) -> Array:
    """eta times the step from old to new, in logarithms; a zero stays what the step makes it.

    A step of the size of rounding is not stretched: in directions that have settled noise would grow sweep by sweep.
    """
    out = np.empty(new.size)
    _in_parts(lambda before, after, far: stretch_loop(before, after, eta, NOISE, far), (old, new), out, threads)
    return out.reshape(new.shape)


def _in_parts(loop: Callable[..., None], arrays: Sequence[Array], out: Array, threads: int) -> None:
    """Run a loop over flat arrays of one size that fills ``out``."""
    flat = [np.ascontiguousarray(array).reshape(-1) for array in arrays]
    run_all(in_parts(lambda part: loop(*(array[part] for array in flat), out[part]), out.size, threads))
