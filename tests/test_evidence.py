"""The evidence, against sums and integrals that are exact."""

from __future__ import annotations

import math
import os
import signal
import threading
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import gammaln

import pltf
from pltf.data.pattern import ForgottenPattern
from tests.reference import Array

SHAPE, MEAN = 0.8, 3.0
RATE = SHAPE / MEAN
PRIOR = pltf.Gamma(SHAPE, MEAN)
SCALED = pltf.Model("X[i] = A[i] * B[]")
QUICK: Any = {"stages": 8, "particles": 30, "sweeps": 1, "runs": 4, "progress": False}
ROUGH = pytest.mark.filterwarnings("ignore:the runs differ too much", "ignore:the log evidence is too low")
TINY: Any = {"stages": 3, "particles": 5, "runs": 3, "progress": False}


def fitted(model: pltf.Model, x: Any, **options: Any) -> pltf.Fit:
    return model.fit(x, **{"prior": PRIOR, "dispersion": None, "progress": False, **options})


def counts_given(x: Array, b: float, more: Array | float = 0.0) -> Array:
    """p(x) of x ~ Poisson(a*b), times exp(-more*a), with a ~ Gamma(shape, mean) integrated out."""
    known = gammaln(x + SHAPE) - gammaln(SHAPE) - gammaln(x + 1) + SHAPE * np.log(RATE) + x * np.log(b)
    return np.asarray(np.exp(known - (x + SHAPE) * np.log(RATE + b + more)))


def no_link(b: Any) -> Any:
    """p(x = 0) of x = 1 where a Poisson count of rate a*b is above zero, a integrated out."""
    return (RATE / (RATE + b)) ** SHAPE


def over_prior(given: Any) -> float:
    """log of the integral of ``given(b)`` over the prior of b."""

    def at(log_b: float) -> float:
        b = math.exp(log_b)
        return float(given(b) * stats.gamma.pdf(b, SHAPE, scale=1 / RATE) * b)

    return math.log(integrate.quad(at, -30, 10, limit=500, epsabs=0)[0])


def exact_scaled(x: Array) -> float:
    """log p(x) of counts X[i] = A[i] * B."""
    return over_prior(lambda b: counts_given(x, b).prod())


def assert_near(found: pltf.Evidence, exact: float) -> None:
    assert found.error < 0.3
    assert abs(found.log - exact) < 4 * found.error + 0.02


# -- exact values -------------------------------------------------------------------------------


def test_one_component_equals_quadrature_and_missing_cells_are_not_there() -> None:
    x = np.array([3.0, np.nan, 7.0, np.nan, 1.0])
    fit = fitted(SCALED, x)
    found = fit.evidence(seed=2, **QUICK)
    assert_near(found, exact_scaled(x[np.isfinite(x)]))
    assert found.gap == found.log - fit.bound


def test_two_components_equal_the_sum_over_all_allocations() -> None:
    """One cell, x = s_1 + s_2 with s_r ~ Poisson(A[r] * B[r]), independent of each other."""
    x = 9
    each = np.array([exact_scaled(np.array([float(s)])) for s in range(x + 1)])
    exact = math.log(np.exp(each + each[::-1]).sum())
    fit = fitted(pltf.Model("X[i] = A[i,r] * B[r]", r=2), np.array([float(x)]))
    assert_near(fit.evidence(seed=3, **QUICK), exact)


def test_a_list_of_cells_has_the_evidence_of_the_array() -> None:
    x = np.array([3.0, 0.0, 7.0, 0.0, 1.0])
    listed = pltf.observe((np.array([[0], [2], [4]]), np.array([3.0, 7.0, 1.0])), shape=(5,), missing=[(1,)])
    assert_near(fitted(SCALED, listed).evidence(seed=4, **QUICK), exact_scaled(x[[0, 2, 3, 4]]))


def test_links_of_one_component_equal_quadrature() -> None:
    x = np.array([1.0, 0.0, 1.0, np.nan, 0.0, 0.0])
    known = x[np.isfinite(x)]
    found = fitted(SCALED, x, likelihood="bernoulli").evidence(seed=1, **QUICK)
    assert_near(found, over_prior(lambda b: np.where(known > 0, 1 - no_link(b), no_link(b)).prod()))
    listed = pltf.observe((np.array([[0], [2]]), np.ones(2)), shape=(6,), missing=[(3,)])
    again = fitted(SCALED, listed, likelihood="bernoulli").evidence(seed=1, **QUICK)
    assert (again.log, again.error) == (found.log, found.error)


def test_links_of_two_components_equal_quadrature() -> None:
    x = np.array([1.0, 0.0, 0.0, 1.0])
    log_b = np.linspace(-40, 6, 400)
    prior = stats.gamma.pdf(np.exp(log_b), SHAPE, scale=1 / RATE) * np.exp(log_b) * (log_b[1] - log_b[0])
    none = np.outer(no_link(np.exp(log_b)), no_link(np.exp(log_b)))
    values = (1 - none) ** 2 * none**2
    fit = fitted(pltf.Model("X[i] = A[i,r] * B[r]", r=2), x, likelihood="bernoulli")
    assert_near(fit.evidence(seed=5, **QUICK), math.log(prior @ values @ prior))


def test_counts_and_links_that_share_a_factor_equal_quadrature() -> None:
    """p(x, y = 0 | b) has one more unit of exposure; y = 1 is what is left of p(x | b)."""
    x, y = np.array([3.0, 0.0, 5.0]), np.array([1.0, 0.0, 1.0])

    def given(b: float) -> float:
        zero = counts_given(x, b, 1.0)
        return float(np.where(y > 0, counts_given(x, b) - zero, zero).prod())

    model = pltf.Model("X[i] = A[i] * B[]\nY[i] = A[i]")
    fit = fitted(model, {"X": x, "Y": y}, likelihood={"Y": "bernoulli"})
    assert_near(fit.evidence(seed=6, **{**QUICK, "particles": 80}), over_prior(given))


def test_fixed_factors_stay_where_they_are() -> None:
    x, b = np.array([[2.0, 0.0, 5.0]]), np.array([0.5, 1.5, 2.0])
    fit = fitted(pltf.Model("X[i,j] = A[i] * B[j]"), x, fixed={"B": b})
    assert_near(fit.evidence(seed=8, **QUICK), fit.bound)  # A alone is conjugate: the bound is exact


# -- what it is the evidence of -----------------------------------------------------------------


@ROUGH
def test_learned_priors_are_taken_at_their_learned_values() -> None:
    x = np.array([[3, 1], [0, 2]])
    model = pltf.nmf(rank=1)
    fit = fitted(model, x, prior=pltf.Gamma(0.5, 1.0, learn="mean"))
    given = fitted(model, x, prior={a: pltf.Gamma(p.shape, p.mean) for a, p in fit.priors.items()})
    found, same = fit.evidence(**TINY), given.evidence(**TINY)
    assert found.runs == same.runs
    assert found.learned
    assert not same.learned
    assert "given the learned priors" in repr(found)
    assert "learned" not in repr(same)


@ROUGH
def test_a_gibbs_fit_has_an_evidence_but_no_bound() -> None:
    x = np.array([[3, 1], [0, 2]])
    fit = fitted(pltf.nmf(rank=1), x, method="gibbs", draws=100, burn_in=5)
    found = fit.evidence(**TINY)
    assert found.gap is None
    assert found.runs == fitted(pltf.nmf(rank=1), x).evidence(**TINY).runs
    assert "bound" not in repr(found)


@ROUGH
def test_data_that_were_not_kept_are_passed() -> None:
    x = np.array([[3.0, 1.0], [np.nan, 2.0]])
    fit, forgetful = (fitted(pltf.nmf(rank=1), x, keep_data=keep) for keep in (True, False))
    assert isinstance(forgetful.patterns["X"], ForgottenPattern)
    assert forgetful.evidence(x, **TINY) == fit.evidence(**TINY)
    assert forgetful.evidence(np.nan_to_num(x), mask=np.isfinite(x), **TINY) == fit.evidence(**TINY)
    with pytest.raises(pltf.PltfError, match=r"keep_data=False.*pass its data, fit.evidence\(X\)"):
        forgetful.evidence(**TINY)


CHECKED: dict[str, dict[str, Any]] = {
    "learned priors": {"prior": pltf.Gamma(0.5, 1.0, learn="both")},
    "float32": {"dtype": "float32"},
    "fixed": {"fixed": {"W": np.array([[1.0], [2.0]])}},
    "links": {"likelihood": "bernoulli"},
    "gibbs": {"method": "gibbs", "chains": 2, "burn_in": 3, "draws": 5, "thin": 2},
    "gibbs of links": {"method": "gibbs", "chains": 2, "draws": 5, "likelihood": "bernoulli"},
}


@ROUGH
@pytest.mark.filterwarnings("ignore:the chains have not converged")
@pytest.mark.parametrize("kind", CHECKED)
def test_data_that_are_passed_must_be_those_of_the_fit(kind: str) -> None:
    """Another tensor of the same shape and as many cells is not."""
    x = np.array([[1.0, 0.0, 1.0], [np.nan, 1.0, 0.0]]) * (1 if "links" in kind else 7)
    fit = fitted(pltf.nmf(rank=1), x, keep_data=False, **CHECKED[kind])
    assert fit.evidence(x, **TINY).log < 0
    for other in (x[:, [1, 0, 2]], np.where(x == 0, np.nanmax(x), x)):
        with pytest.raises(pltf.PltfError, match=r"X must be the data of the fit: its .* was -\S+ and is -\S+ here"):
            fit.evidence(other, **TINY)


@ROUGH
@pytest.mark.parametrize("likelihood", ["poisson", "bernoulli"])
def test_the_same_seed_gives_the_same_estimate_with_any_number_of_threads(likelihood: str) -> None:
    fit = fitted(pltf.nmf(rank=2), np.array([[1, 1], [0, 1]]), likelihood=likelihood)
    first, again, other = (fit.evidence(seed=s, threads=n, **TINY) for s, n in ((6, 1), (6, 2), (7, 1)))
    assert first == again
    assert first.runs != other.runs


def test_it_says_what_it_found_in_words() -> None:
    found = pltf.Evidence(-10.25, 0.125, 2.0, (-10.0, -10.5), 30, learned=True, seconds=1.0)
    assert repr(found).splitlines() == [
        "<Evidence",
        "  log p(X)  -10.25 with a standard error of 0.12 (2 runs of 30 particles)",
        "  bound     -12.25, 2.00 nats below",
        "  priors    given the learned priors",
        "  time      1.00 s>",
    ]


# -- refusals and warnings ----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["em", "map"])
def test_point_estimates_have_no_evidence(method: str) -> None:
    fit = pltf.nmf(rank=1).fit(np.array([[3, 1], [4, 2]]), method=method)
    with pytest.raises(pltf.PltfError, match=f"needs a posterior, but this is a fit by method='{method}'"):
        fit.evidence()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"particles": 1}, "particles must be a whole number of at least 2, got 1"),
        ({"runs": 1}, "runs must be a whole number of at least 3, got 1"),
        ({"sweeps": 0}, "sweeps must be a whole number of at least 1, got 0"),
        ({"stages": 0}, "stages must be a whole number of at least 1, got 0"),
        ({"seed": None}, "seed must be a whole number of at least 0, got None"),
        ({"mask": np.ones((2, 2), bool)}, "mask requires X"),
        ({"X": np.ones((2, 3))}, "X must be the data of the fit: X was 2x2, 4 cells observed; got 2x3, 6 cells"),
        ({"X": [[3, 1], [2, 4]]}, r"X must be the data of the fit: its bound was -[\d.]+ and is -[\d.]+ here"),
        ({"particles": 10**6}, r"for small problems, but here \d.* sweeps would take about .* s: lower particles"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments: dict[str, Any], sentence: str) -> None:
    fit = fitted(pltf.nmf(rank=1), np.array([[3, 1], [4, 2]]))
    with pytest.raises(pltf.PltfError, match=sentence):
        fit.evidence(**arguments)


def test_fractions_are_refused() -> None:
    fit = fitted(pltf.nmf(rank=1), np.array([[3.5, 1], [4, 2]]))
    with pytest.raises(pltf.PltfError, match=r"X must hold whole counts for the evidence, got 3\.5"):
        fit.evidence()


def test_links_of_too_many_cells_are_refused() -> None:
    seen = pltf.observe((np.array([[0, 0]]), np.ones(1)), shape=(2000, 2000))
    fit = fitted(pltf.nmf(rank=1), seen, likelihood="bernoulli", max_iter=2, tol=0)
    with pytest.raises(pltf.PltfError, match=r"X must have at most 1,048,576 cells, got 4,000,000"):
        fit.evidence()


def test_runs_that_differ_come_with_a_warning() -> None:
    fit = fitted(pltf.nmf(rank=2), np.random.default_rng(0).poisson(9.0, (6, 5)))
    with pytest.warns(pltf.ConvergenceWarning, match="the runs differ too much") as caught:
        fit.evidence(**TINY)
    assert caught[0].filename == __file__


def test_an_estimate_below_the_bound_comes_with_a_warning() -> None:
    """All three runs miss the posterior by as much, so their standard error is small."""
    fit = fitted(pltf.nmf(rank=2), np.random.default_rng(0).poisson(9.0, (6, 5)))
    told = "too low: it is 31.42 nats below the ELBO, with a standard error of 0.14; raise particles or stages"
    with pytest.warns(pltf.ConvergenceWarning, match=told):
        fit.evidence(seed=2, **TINY)


@ROUGH
def test_ctrl_c_keeps_the_runs_that_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = fitted(SCALED, np.array([3.0, 7.0, 1.0]))
    effort = {**TINY, "stages": 8, "particles": 12}
    whole = fit.evidence(**effort)
    pressed = _press_after(monkeypatch, runs=3)
    with pytest.warns(pltf.ConvergenceWarning, match="interrupted: this is the estimate of 3 of 4 runs"):
        found = fit.evidence(**{**effort, "runs": 4})
    assert found.runs == whole.runs
    pressed.clear()
    _press_after(monkeypatch, runs=2)
    with pytest.raises(KeyboardInterrupt):
        fit.evidence(**effort)


def _press_after(monkeypatch: pytest.MonkeyPatch, runs: int) -> threading.Event:
    """Press Ctrl-C at the first move after so many runs."""
    from pltf import evidence

    pressed, run = threading.Event(), evidence.EvidenceJob._run

    def interrupted_run(self: evidence.EvidenceJob, number: int, moved: Any) -> float:
        if number == runs and not pressed.is_set():
            pressed.set()
            os.kill(os.getpid(), signal.SIGINT)
        return run(self, number, moved)

    monkeypatch.setattr(evidence.EvidenceJob, "_run", interrupted_run)
    return pressed
