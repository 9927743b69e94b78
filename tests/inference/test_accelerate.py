"""Acceleration: the quasi-Newton step against the textbook, and what it promises of every fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pltf
import pltf.datasets
from pltf.fit import resumable
from pltf.inference import accelerate
from pltf.inference.accelerate import direction, longer
from pltf.inference.algebra.compiled import NumbaAlgebra
from pltf.inference.state import Trail
from pltf.threads import PART
from tests.inference.test_properties import run
from tests.strategies import Case, cases

Vector = Any


def textbook(pairs: list[tuple[Vector, Vector]], residual: Vector, weight: Vector) -> Vector:
    """The two loops of L-BFGS as they are always written, with a weighted inner product."""

    def inner(u: Vector, v: Vector) -> float:
        return float((weight * u * v).sum())

    q, along = residual.copy(), []
    for s, y in reversed(pairs):
        along.append(inner(s, q) / inner(s, y))
        q = q - along[-1] * y
    s, y = pairs[-1]
    q = q * inner(s, y) / inner(y, y)
    for (s, y), a in zip(pairs, reversed(along), strict=True):
        q = q + (a - inner(y, q) / inner(s, y)) * s
    return -q


@pytest.mark.parametrize("size", [7, 2 * PART + 3])
def test_direction_is_that_of_the_textbook(size: int) -> None:
    rng = np.random.default_rng(0)
    curvature, weight = rng.uniform(0.01, 1, size), rng.gamma(1.0, 5.0, size)
    steps = [rng.normal(0, 0.01, size) for _ in range(3)]
    pairs = [(s, curvature * s) for s in steps]
    residual = curvature * rng.normal(0, 0.01, size)
    wanted = textbook(pairs, residual, weight)
    one, two = (step_along(residual, *pairs, weight=weight, threads=threads) for threads in (1, 2))
    assert one is not None
    assert two is not None
    np.testing.assert_allclose(one, wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(one, two)


def step_along(residual: Vector, *pairs: tuple[Vector, Vector], weight: Vector, threads: int = 1) -> Vector:
    """The step after such a trail of a single factor."""
    rows = tuple(({"A": s}, {"A": y}) for s, y in pairs)
    step = direction(NumbaAlgebra(threads), Trail({}, {"A": residual}, rows), {"A": weight})
    return None if step is None else step["A"]


def test_three_steps_span_a_problem_of_three_unknowns() -> None:
    """On a quadratic with three unknowns three pairs tell all: the step leads to its optimum."""
    curvature, optimum, here = np.array([0.9, 0.1, 0.01]), np.array([1.0, -1.0, 0.5]), np.array([0.9, -0.9, 0.4])
    pairs = [(s, curvature * s) for s in np.eye(3)]
    step = step_along(curvature * (here - optimum), *pairs, weight=np.ones(3))
    np.testing.assert_allclose(here + step, optimum, atol=1e-12)


def test_steps_without_curvature_are_left_out() -> None:
    good, bad, nothing = np.array([0.1, 0.0]), np.array([0.0, 0.1]), np.zeros(2)
    weight, residual = np.ones(2), np.array([0.05, 0.05])
    assert step_along(residual, weight=weight) is None
    assert step_along(residual, (bad, -bad), (nothing, nothing), weight=weight) is None
    assert step_along(residual, (np.array([np.inf, 0]), good), weight=weight) is None
    with_bad = step_along(residual, (good, 0.5 * good), (bad, -bad), weight=weight)
    np.testing.assert_allclose(with_bad, textbook([(good, 0.5 * good)], residual, weight))


def test_a_trail_keeps_the_last_steps() -> None:
    states = [{"A": np.array([[1.0, 2.0]]) * 2.0**n, "B": np.array([3.0])} for n in range(6)]
    trail = None
    for state in states:
        trail = longer(NumbaAlgebra(), trail, state, {"A": 1.1 * state["A"], "B": np.zeros(1)})
    assert trail is not None
    assert len(trail.pairs) == accelerate.PAIRS
    for s, y in trail.pairs:
        np.testing.assert_allclose(s["A"], [[np.log(2), np.log(2)]], atol=1e-15)
        for nothing in (s["B"], y["A"], y["B"]):
            np.testing.assert_allclose(nothing, 0, atol=1e-15)
    np.testing.assert_allclose(trail.residual["A"], [[-np.log(1.1), -np.log(1.1)]], rtol=1e-14)
    assert trail.residual["B"] == 0


@pytest.mark.slow
@given(case=cases(), method=st.sampled_from(["vb", "em", "map"]))
def test_the_objective_never_falls_in_quasi_newton_steps(case: Case, method: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accelerate, "REFUSALS", 0)
        try:
            fit = run(case, method=method, accelerate=True, max_iter=40)
        except (pltf.PltfError, pltf.ConvergenceWarning):
            return  # MAP may set so much to zero that a count is impossible
    if method != "map":  # the objectives of MAP compare only while no further entry is zero
        assert (np.diff(fit.trace) >= 0).all()


TUCKER = pltf.tucker(ranks=(2, 2, 2))
X = pltf.datasets.draw(TUCKER, (12, 11, 10), seed=1).counts["X"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["vb", "em"])
def test_quasi_newton_steps_shorten_the_tail(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps, not seconds: to come within 1e-6 of the best."""
    options: dict[str, Any] = {"method": method, "tol": 0, "max_iter": 1500}
    newton = TUCKER.fit(X, **options)
    monkeypatch.setattr(accelerate, "REFUSALS", 10**9)
    relaxed = TUCKER.fit(X, **options)
    best = max(newton.bound, relaxed.bound)
    near = [fit.trace >= best - 1e-6 * abs(best) for fit in (newton, relaxed)]
    assert near[0].any()
    assert not near[1].any() or 1.5 * np.argmax(near[0]) < np.argmax(near[1])


@pytest.mark.parametrize(
    "stopped", [{"max_iter": 70}, {"callback": lambda sweep: sweep.n_iter == 70}], ids=["limit", "callback"]
)
@pytest.mark.parametrize("method", ["vb", "em"])
def test_a_fit_that_goes_on_takes_the_same_steps(method: str, stopped: dict[str, Any]) -> None:
    whole = TUCKER.fit(X, method=method, tol=0, max_iter=120, callback=lambda _: None)
    assert resumable(whole).pace.trail is not None  # it has come to quasi-Newton steps
    half = TUCKER.fit(X, method=method, tol=0, **stopped)
    assert half.n_iter == 70
    gone_on = TUCKER.fit(X, method=method, tol=0, max_iter=50, init=half)
    np.testing.assert_array_equal(gone_on.trace, whole.trace)
