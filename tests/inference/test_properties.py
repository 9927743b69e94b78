"""What must hold for any model and any data."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pltf
from pltf.engines import registry
from pltf.inference.algebra.compiled import NumbaAlgebra
from pltf.inference.balance import trades
from pltf.inference.em import EM
from pltf.inference.state import Method, Problem
from pltf.inference.vb import VB
from tests.strategies import Case, cases, cut_small

SWEEPS = 6


def run(case: Case, model: pltf.Model | None = None, **options: Any) -> pltf.Fit:
    settings: dict[str, Any] = {
        "mask": case.masks,
        "prior": case.priors,
        "init": case.init,
        "max_iter": SWEEPS,
        "tol": 0,
        "accelerate": False,
        "progress": False,
        "likelihood": case.likelihoods,
    } | options
    if settings.get("method") == "em":
        del settings["prior"]
    return (model or case.model).fit(case.data, **settings)


def assert_never_fell(fit: pltf.Fit) -> None:
    assert np.isfinite(fit.trace).all()
    assert (np.diff(fit.trace) >= 0).all()
    assert "more than rounding" not in fit.stopped


@given(case=cases(links=True))
def test_vb_equals_the_reference(case: Case) -> None:
    fit = run(case)
    bounds, C, D = case.reference().vb(case.init, fit.n_iter)
    np.testing.assert_allclose(fit.trace, bounds, rtol=1e-9, atol=1e-9)
    for name, factor in fit.factors.items():
        np.testing.assert_allclose(factor.shape, C[name], rtol=1e-9)
        np.testing.assert_allclose(factor.scale, D[name], rtol=1e-9)


@given(case=cases(links=True))
def test_em_equals_the_reference(case: Case) -> None:
    fit = run(case, method="em")
    likelihoods, Z = case.reference().em(case.init, fit.n_iter, tuple(case.model.factors))
    np.testing.assert_allclose(fit.trace, likelihoods, rtol=1e-9, atol=1e-9)
    for name, factor in fit.factors.items():
        np.testing.assert_allclose(factor.mean, Z[name], rtol=1e-9, atol=1e-200)


@given(case=cases(links=True))
def test_map_equals_the_reference(case: Case) -> None:
    """With shapes of at least 1 the log-posterior is a proper objective and never falls."""
    priors = {a: pltf.Gamma(np.asarray(p.shape) + 1, p.mean) for a, p in case.priors.items()}
    case = replace(case, priors=priors)
    fit = run(case, method="map")
    posteriors, Z = case.reference().map(case.init, fit.n_iter)
    np.testing.assert_allclose(fit.trace, posteriors, rtol=1e-9, atol=1e-9)
    for name, factor in fit.factors.items():
        np.testing.assert_allclose(factor.mean, Z[name], rtol=1e-9)
    assert_never_fell(fit)


@pytest.mark.slow
@given(case=cases(links=True), method=st.sampled_from(["vb", "em"]), accelerate=st.booleans())
def test_objective_never_falls(case: Case, method: str, accelerate: bool) -> None:
    assert_never_fell(run(case, method=method, max_iter=30, accelerate=accelerate))


@given(case=cases(links=True), method=st.sampled_from([VB, EM]), accelerate=st.booleans())
def test_a_step_falls_by_rounding_at_most(case: Case, method: Method, accelerate: bool) -> None:
    """The steps by themselves, without the loop that would hide a fall."""
    seen = {name: pltf.observe(x, case.masks[name]) for name, x in case.data.items()}
    planned = case.model.plan(seen).knowing({n: registry.facts_of(o) for n, o in seen.items()}, case.likelihoods)
    total = sum(one.total for one in seen.values())
    problem = Problem(
        engine=registry.build(planned, seen),
        algebra=NumbaAlgebra(),
        shapes=planned.factor_shapes,
        priors=case.priors if method is VB else {},
        fixed={},
        total=total,
        saturated=sum(one.saturated for n, one in seen.items() if case.likelihoods[n] == "poisson"),
        eps=2e-16,
        trades=trades(case.model, {}) if accelerate else None,
        links=sum(one.total for n, one in seen.items() if case.likelihoods[n] == "bernoulli"),
    )
    state = method.begin(problem, case.init, case.init)
    entries = sum(array.size for array in case.init.values())
    for _ in range(20):
        new = method.step(problem, state)
        assert new.objective >= state.objective - 1e-13 * (total + entries + abs(new.objective))
        state = new


@pytest.mark.slow
@given(case=cases(), data=st.data())
def test_acceleration_keeps_fixed_factors_and_ends_no_lower(case: Case, data: st.DataObject) -> None:
    held = data.draw(st.sampled_from(sorted(case.init)))
    free = {name: array for name, array in case.init.items() if name != held}
    priors = {name: prior for name, prior in case.priors.items() if name != held}
    options: dict[str, Any] = {"prior": priors, "init": free, "fixed": {held: case.init[held]}, "max_iter": 40}
    fast, plain = (run(case, accelerate=accelerate, **options) for accelerate in (True, False))
    assert_never_fell(fast)
    np.testing.assert_array_equal(fast.factors[held].mean, case.init[held])
    # One sweep is better by the balance alone; later the two may have gone to different optima.
    assert fast.trace[0] >= plain.trace[0] - 1e-9 * abs(plain.trace[0])


@given(case=cases(links=True), method=st.sampled_from(["vb", "em"]))
def test_fixed_factors_stay_and_the_rest_follows_the_reference(case: Case, method: str) -> None:
    held = next(iter(case.init))
    free = {name: array for name, array in case.init.items() if name != held}
    priors = {name: prior for name, prior in case.priors.items() if name != held}
    fit = run(case, method=method, prior=priors, init=free, fixed={held: case.init[held]})
    np.testing.assert_array_equal(fit.factors[held].mean, case.init[held])
    assert_never_fell(fit)
    rest = replace(case, priors=priors)
    if method == "em":
        expected, _ = rest.reference().em(case.init, fit.n_iter, tuple(free))
    else:
        expected, _, _ = rest.reference().vb(case.init, fit.n_iter)
    np.testing.assert_allclose(fit.trace, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@given(case=cases(), data=st.data())
def test_permuting_an_index_permutes_the_result(case: Case, data: st.DataObject) -> None:
    index = data.draw(st.sampled_from(sorted(case.sizes)))
    order = np.asarray(data.draw(st.permutations(range(case.sizes[index]))), dtype=np.intp)

    def permuted(array: Any, indices: tuple[str, ...]) -> Any:
        return np.take(array, order, axis=indices.index(index)) if index in indices and np.ndim(array) else array

    observed, factors = case.model.observed, case.model.factors
    moved = Case(
        case.model,
        {name: permuted(x, observed[name]) for name, x in case.data.items()},
        {name: permuted(m, observed[name]) for name, m in case.masks.items()},
        {a: pltf.Gamma(permuted(p.shape, factors[a]), permuted(p.mean, factors[a])) for a, p in case.priors.items()},
        {a: permuted(z, factors[a]) for a, z in case.init.items()},
    )
    here, there = run(case), run(moved)
    sweeps = min(here.n_iter, there.n_iter)  # rounding may end one of them earlier
    np.testing.assert_allclose(here.trace[:sweeps], there.trace[:sweeps], rtol=1e-9, atol=1e-9)
    if here.n_iter == there.n_iter:
        for name, factor in here.factors.items():
            np.testing.assert_allclose(permuted(factor.mean, factors[name]), there.factors[name].mean, rtol=1e-8)


@pytest.mark.slow
@given(case=cases(), method=st.sampled_from(["vb", "em"]))
def test_blocks_equal_the_whole(case: Case, method: str) -> None:
    whole = run(case, method=method)
    with pytest.MonkeyPatch.context() as patch:
        cut_small(patch, 64)
        cut = run(case, method=method)
    sweeps = min(whole.n_iter, cut.n_iter)
    np.testing.assert_allclose(whole.trace[:sweeps], cut.trace[:sweeps], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@given(case=cases(links=True), method=st.sampled_from(["vb", "em", "map"]))
def test_threads_do_not_change_a_bit(case: Case, method: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        cut_small(patch, 128)
        one, two = (_or_error(case, method=method, threads=threads, accelerate=True) for threads in (1, 2))
    if isinstance(one, str) or isinstance(two, str):
        assert one == two
        return
    np.testing.assert_array_equal(one.trace, two.trace)
    for name, factor in one.factors.items():
        np.testing.assert_array_equal(factor.mean, two.factors[name].mean)


def _or_error(case: Case, **options: Any) -> pltf.Fit | str:
    """MAP with small shapes may set so much to zero that a count is impossible: then it says so."""
    try:
        return run(case, **options)
    except (pltf.PltfError, pltf.ConvergenceWarning) as error:
        return str(error)


@given(case=cases(coupled=True))
def test_coupled_with_one_tensor_wholly_missing_equals_uncoupled(case: Case) -> None:
    masks = {**case.masks, "Y": np.zeros_like(case.masks["Y"])}
    both = run(case, mask=masks)
    text = str(case.model.equations[0])
    sizes = {index: size for index, size in case.model.sizes.items() if index in case.model.equations[0].summed}
    alone = pltf.Model(text, **sizes)
    case_alone = Case(
        alone,
        {"X": case.data["X"]},
        {"X": case.masks["X"]},
        {name: case.priors[name] for name in alone.factors},
        {name: case.init[name] for name in alone.factors},
    )
    single = run(case_alone)
    sweeps = min(both.n_iter, single.n_iter)
    np.testing.assert_allclose(both.trace[:sweeps], single.trace[:sweeps], rtol=1e-9, atol=1e-9)
    for name, factor in single.factors.items():
        if both.n_iter == single.n_iter:
            np.testing.assert_allclose(factor.mean, both.factors[name].mean, rtol=1e-9)
    np.testing.assert_allclose(both.factors["Own"].shape, case.priors["Own"].broadcast(case.init["Own"].shape)[0])


@pytest.mark.slow
@given(case=cases(links=True), method=st.sampled_from(["vb", "em"]), accelerate=st.booleans())
def test_going_on_equals_a_longer_fit(case: Case, method: str, accelerate: bool) -> None:
    short = run(case, method=method, max_iter=3, accelerate=accelerate)
    resumed = run(case, method=method, init=short, max_iter=3, accelerate=accelerate)
    longer = run(case, method=method, max_iter=6, accelerate=accelerate)
    np.testing.assert_array_equal(resumed.trace, longer.trace)
    for name, factor in longer.factors.items():
        np.testing.assert_array_equal(resumed.factors[name].mean, factor.mean)


@given(case=cases())
def test_values_under_the_mask_change_no_bit(case: Case) -> None:
    poison = {name: np.where(case.masks[name], x, -1e300) for name, x in case.data.items()}
    plain = run(case)
    poisoned = run(Case(case.model, poison, case.masks, case.priors, case.init))
    np.testing.assert_array_equal(plain.trace, poisoned.trace)
    for name, factor in plain.factors.items():
        np.testing.assert_array_equal(factor.shape, poisoned.factors[name].shape)
        np.testing.assert_array_equal(factor.scale, poisoned.factors[name].scale)


@given(case=cases())
def test_predictions_equal_the_reference(case: Case) -> None:
    fit = run(case)
    means = {name: factor.mean for name, factor in fit.factors.items()}
    for equation in case.model.equations:
        name = equation.output.name
        expected = case.reference().xhat(equation, means)
        np.testing.assert_allclose(fit.mean(of=name), expected, rtol=1e-10)
        hidden = ~case.masks[name]
        np.testing.assert_allclose(fit.mean(at=hidden, of=name), expected[hidden], rtol=1e-10)
        np.testing.assert_allclose(fit.mean(at=np.nonzero(hidden), of=name), expected[hidden], rtol=1e-10)


@pytest.mark.slow
def test_bits_do_not_depend_on_what_was_compiled_before(tmp_path: Path) -> None:
    """Kernels that were just compiled, and the same ones from the cache: a search may run on both."""
    program = """
        import numpy as np, pltf
        X = np.random.default_rng(0).poisson(2.0, (9, 8, 7)).astype(float)
        X[0, :3, 0] = np.nan
        for tie in ("factor", "component"):
            print(pltf.cp(rank=3).fit(X, prior=pltf.Gamma(learn="both", tie=tie), max_iter=30, tol=0).bound.hex())
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    cold, warm = (subprocess.check_output(command, env=environment, text=True) for _ in range(2))
    assert cold == warm
