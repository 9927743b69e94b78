"""Priors that are learned: against direct maximization, against what drew the data, and as a user meets them."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from scipy.special import digamma, gammaln
from scipy.stats import poisson

import pltf
import pltf.datasets
from pltf.fit import resumable
from pltf.inference import vb
from pltf.inference.algebra import Groups
from pltf.inference.algebra.compiled import NumbaAlgebra
from pltf.inference.algebra.host import best_shapes
from pltf.inference.priors import SHAPES, with_best_mean
from tests.reference import Array, Reference
from tests.strategies import Case, cases

X = pltf.datasets.draw(pltf.cp(rank=2), (12, 10, 8), prior=pltf.Gamma(0.5, 2.0), seed=1).counts["X"].astype(float)
HOLES = np.random.default_rng(0).random(X.shape) < 0.3
LEARN = [(learn, tie) for learn in ("mean", "shape", "both") for tie in ("factor", "component")]


# -- the updates --------------------------------------------------------------------------------


def _posterior(shape: tuple[int, ...], seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.gamma(1.0, 2.0, shape) + 0.05, rng.gamma(1.0, 1.0, shape) + 0.01


def _expected_log_prior(C: Array, D: Array, A: Array, B: Array) -> Array:
    """<log Gamma(z; shape A, mean B)> under z ~ Gamma(C, scale D), entry by entry."""
    log_z, z, rate = digamma(C) + np.log(D), C * D, A / B
    return np.asarray((A - 1) * log_z - rate * z + A * np.log(rate) - gammaln(A))


def best_shape(E: Array, log_L: Array, mean: Array | float, shared: tuple[int, ...]) -> Array:
    """The A that maximizes the sum of <log p(z)> over each group."""
    return best_shapes(NumbaAlgebra().spreads(E, log_L, mean, Groups(E.shape, shared)), SHAPES)


@pytest.mark.parametrize("shared", [(0, 1), (0,), (1,)])
def test_the_learned_shape_maximizes_the_expected_log_prior(shared: tuple[int, ...]) -> None:
    C, D = _posterior((6, 4))
    E, log_L = C * D, digamma(C) + np.log(D)
    mean = E.mean(axis=shared, keepdims=True)  # the best mean, whatever the shape
    shape = best_shape(E, log_L, mean, shared)

    def lost(log_parameters: Array) -> float:
        A, B = np.exp(log_parameters).reshape(2, *mean.shape)
        return -float(_expected_log_prior(C, D, A, B).sum())

    found = minimize(lost, np.zeros(2 * mean.size), method="BFGS", options={"gtol": 1e-7}, tol=1e-14)
    A, B = np.exp(found.x).reshape(2, *mean.shape)
    np.testing.assert_allclose(shape, A, rtol=1e-3)
    np.testing.assert_allclose(mean, B, rtol=1e-3)
    assert lost(np.log(np.stack([shape, mean])).ravel()) <= found.fun + 1e-9


def test_a_learned_shape_with_a_mean_that_is_given_and_varies() -> None:
    C, D = _posterior((5, 4))
    mean = np.random.default_rng(0).uniform(0.5, 2, (5, 4))
    (shape,) = best_shape(C * D, digamma(C) + np.log(D), mean, (0, 1)).ravel()
    found = minimize_scalar(
        lambda log_A: -_expected_log_prior(C, D, np.exp(log_A), mean).sum(), bounds=(-6, 6), options={"xatol": 1e-10}
    )
    assert shape == pytest.approx(np.exp(found.x), rel=1e-5)


@pytest.mark.parametrize("spread", [1e-12, 1e-3, 1.0, 50.0, 1e4])
def test_learned_shapes_solve_their_equation_or_stop_at_the_limits(spread: float) -> None:
    (A,) = best_shape(np.ones(1), np.array([-spread]), 1.0, (0,))
    if SHAPES[0] < A < SHAPES[1]:
        assert np.log(A) - digamma(A) == pytest.approx(spread, rel=1e-6)
    else:
        assert (SHAPES[1] if spread < 1 else SHAPES[0]) == A


@pytest.mark.parametrize("shared", [(0, 1, 2), (0,), (2,), (1,), (0, 2), (1, 2)])
@pytest.mark.parametrize("varying", [False, True])
def test_the_learned_mean_is_best_together_with_the_scales(shared: tuple[int, ...], varying: bool) -> None:
    """Against a search over B for each group, of the bound with the best D for it."""
    full = (5, 3, 4)
    C, exposure = _posterior(full, 1)
    A = np.random.default_rng(2).uniform(0.3, 2.0, full) if varying else np.full(full, 0.7)
    C = C + A
    prior, D, E = with_best_mean(
        NumbaAlgebra(), pltf.Gamma(A if varying else 0.7, 1.0, learn="mean"), Groups(full, shared), C, exposure
    )
    B = np.broadcast_to(np.asarray(prior.mean), full)
    np.testing.assert_allclose(D, 1 / (A / B + exposure), rtol=1e-14)
    np.testing.assert_allclose(E, C * D, rtol=1e-14)

    def value(means: Array) -> Array:
        D = 1 / (A / means + exposure)
        entropy = C + np.log(D) + gammaln(C) + (1 - C) * digamma(C)
        likelihood = (C - A) * (digamma(C) + np.log(D)) - exposure * C * D
        return np.asarray((_expected_log_prior(C, D, A, means) + entropy + likelihood).sum(axis=shared))

    for factor in (0.99, 1.01):
        assert (value(B) > value(B * factor)).all()
    step = 1e-4
    slope = (value(B * (1 + step)) - value(B * (1 - step))) / (2 * step)
    np.testing.assert_allclose(slope, 0, atol=1e-4)


def test_a_mean_without_counts_goes_to_its_limit_in_few_sweeps() -> None:
    """It would take forever in turns with the scales: 1/B grows by a constant."""
    groups, C, exposure = Groups((4, 1), (0,)), np.full((4, 1), 0.5), np.ones((4, 1))
    prior, _, _ = with_best_mean(NumbaAlgebra(), pltf.Gamma(0.5, 1.0, learn="mean"), groups, C, exposure)
    assert np.all(np.asarray(prior.mean) < 1e-15)


# -- in the loop --------------------------------------------------------------------------------


def _bound(fit: pltf.Fit, case: Case) -> float:
    """The bound of a fit with the priors it has learned, from the equations alone."""
    factors = {a: fit.factors[a] for a in case.model.factors}
    priors = {a: fit.priors[a].broadcast(factors[a].mean.shape) for a in factors}
    reference = Reference(
        case.model, case.data, case.masks, {a: p[0] for a, p in priors.items()}, {a: p[1] for a, p in priors.items()}
    )
    E = {a: factor.mean for a, factor in factors.items()}
    L = {a: np.exp(digamma(factor.shape)) * factor.scale for a, factor in factors.items()}
    kl = sum(reference.kl(a, factor.shape, factor.scale) for a, factor in factors.items())
    return reference.log_likelihood(L, E) - kl


def _learning(prior: pltf.Gamma, learn: str, tie: str) -> pltf.Gamma:
    """A prior that learns; what it learns begins with one value."""
    shape = prior.shape if learn == "mean" else float(np.asarray(prior.shape).mean())
    mean = prior.mean if learn == "shape" else float(np.asarray(prior.mean).mean())
    return pltf.Gamma(shape, mean, learn=learn, tie=tie)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    case=cases(),
    learn=st.sampled_from(["mean", "shape", "both"]),
    tie=st.sampled_from(["factor", "component"]),
    accelerate=st.booleans(),
)
def test_the_bound_never_falls_and_is_that_of_the_learned_priors(
    case: Case, learn: str, tie: str, accelerate: bool
) -> None:
    priors = {a: _learning(prior, learn, tie) for a, prior in case.priors.items()}
    fit = case.model.fit(
        case.data, mask=case.masks, prior=priors, init=case.init, tol=0, max_iter=30, accelerate=accelerate
    )
    rises = np.diff(fit.trace)
    assert (rises >= 0).all()
    assert fit.bound == pytest.approx(_bound(fit, case), rel=1e-7, abs=1e-6)


@pytest.mark.parametrize(("learn", "tie"), LEARN)
def test_learned_values_are_stationary_points_of_the_bound(learn: str, tie: str) -> None:
    """With other values, and everything else fitted anew from there, the bound ends lower."""
    model = pltf.nmf(rank=2)
    counts = pltf.datasets.draw(model, (25, 20), prior=pltf.Gamma(1.0, 2.0), seed=3).counts["X"]
    fit = model.fit(counts, prior=pltf.Gamma(0.5, 1.0, learn=learn, tie=tie), tol=1e-11, max_iter=20_000)
    assert fit.converged
    for parts in [("shape",), ("mean",)] if learn == "both" else [(learn,)]:
        for factor in (0.93, 1.07):
            moved = {}
            for a, prior in fit.priors.items():
                values = {"shape": np.asarray(prior.shape), "mean": np.asarray(prior.mean)}
                for part in parts:
                    values[part] = values[part] * factor
                moved[a] = pltf.Gamma(values["shape"], values["mean"])
            assert model.fit(counts, prior=moved, init=fit, tol=1e-11, max_iter=20_000).bound < fit.bound


def test_learning_recovers_the_priors_that_drew_the_data() -> None:
    model = pltf.cp(rank=4)
    X = pltf.datasets.draw(model, (60, 60, 60), prior=pltf.Gamma(0.6, 1.5), seed=0).counts["X"]
    fit = model.fit(X, prior=pltf.Gamma(2.0, 10.0, learn="both"), restarts=3)
    shapes = [float(np.asarray(prior.shape)) for prior in fit.priors.values()]
    means = [float(np.asarray(prior.mean)) for prior in fit.priors.values()]
    np.testing.assert_allclose(shapes, 0.6, rtol=0.25)  # 240 entries: one standard error is some 8 %
    assert np.prod(means) == pytest.approx(1.5**3, rel=0.4)  # factors may trade their scales


def test_plain_sweeps_follow_the_equations() -> None:
    """Algorithm 1 with means learned, sweep by sweep; the root for B by bisection."""
    model, counts = pltf.nmf(rank=2), X[0]
    rng = np.random.default_rng(0)
    init = {"W": rng.gamma(1.0, 1.0, (10, 2)) + 0.1, "H": rng.gamma(1.0, 1.0, (2, 8)) + 0.1}
    prior = pltf.Gamma(0.5, 3.0, learn="mean", tie="component")
    fit = model.fit(counts, prior=prior, init=init, tol=0, max_iter=4, accelerate=False)
    A, L, E, C = 0.5, dict(init), dict(init), dict[str, Array]()
    for _ in range(4):
        ratio = counts / (L["W"] @ L["H"])
        C = {"W": A + L["W"] * (ratio @ L["H"].T), "H": A + L["H"] * (L["W"].T @ ratio)}
        for a, axis in (("W", 0), ("H", 1)):
            other = E["H"].sum(axis=1)[None, :] if a == "W" else E["W"].sum(axis=0)[:, None]
            exposure = np.broadcast_to(other, E[a].shape)
            low, high = np.full(2, 1e-12), np.full(2, 1e12)
            for _ in range(200):
                middle = np.sqrt(low * high)
                B = np.expand_dims(middle, axis)
                too_low = (C[a] / (A / B + exposure)).mean(axis=axis) > middle
                low, high = np.where(too_low, middle, low), np.where(too_low, high, middle)
            D = 1 / (A / np.expand_dims(low, axis) + exposure)
            E[a], L[a] = C[a] * D, np.exp(digamma(C[a])) * D
            np.testing.assert_array_less(0, low)
        means = {a: E[a] for a in E}
    for a in means:
        np.testing.assert_allclose(fit.factors[a].mean, means[a], rtol=1e-6)
        np.testing.assert_allclose(fit.factors[a].shape, C[a], rtol=1e-6)


@pytest.mark.parametrize(("learn", "tie"), LEARN)
def test_a_learning_fit_goes_on_bit_by_bit(learn: str, tie: str) -> None:
    model, prior = pltf.cp(rank=2), pltf.Gamma(0.5, 10.0, learn=learn, tie=tie)
    whole = model.fit(X, mask=~HOLES, prior=prior, tol=0, max_iter=40)
    half = model.fit(X, mask=~HOLES, prior=prior, tol=0, max_iter=20)
    again = model.fit(X, mask=~HOLES, prior=prior, tol=0, max_iter=20, init=half)
    np.testing.assert_array_equal(again.trace, whole.trace)
    for a in model.factors:
        np.testing.assert_array_equal(again.priors[a].mean, whole.priors[a].mean)
        np.testing.assert_array_equal(again.priors[a].shape, whole.priors[a].shape)


def test_shapes_wait_until_the_factors_have_found_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learned at once they hold the factors where they happen to be, and the bound ends lower."""
    model = pltf.nmf(rank=12)
    drawn = pltf.datasets.draw(pltf.nmf(rank=5), (150, 120), prior=pltf.Gamma(0.3, 0.2**0.5), seed=0)
    counts, keep = drawn.counts["X"], pltf.holdout(drawn.counts["X"], 0.5, seed=0)
    bounds = []
    for quiet in (vb.QUIET, np.inf):
        monkeypatch.setattr(vb, "QUIET", quiet)
        bounds.append(model.fit(counts, mask=keep, prior=pltf.Gamma(learn="both"), restarts=2).bound)
    assert bounds[0] > bounds[1] + 100


@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-4])
def test_no_fit_is_through_before_its_shapes_are_learned(tol: float) -> None:
    fit = pltf.cp(rank=2).fit(X, prior=pltf.Gamma(2.0, 10.0, learn="shape"), tol=tol)
    assert fit.converged
    assert all(np.asarray(prior.shape) < 1.5 for prior in fit.priors.values())
    assert not resumable(fit).waiting


def test_a_trace_is_not_continued_with_another_kind_of_prior() -> None:
    model = pltf.cp(rank=2)
    fixed = model.fit(X, prior=pltf.Gamma(0.5, 10.0))
    learned = model.fit(X, init=fixed)
    assert learned.n_iter == len(learned.restarts) * learned.restarts["n_iter"].iloc[0]
    assert learned.trace[0] > fixed.bound
    again = model.fit(X, init=model.fit(X, prior=pltf.Gamma(learn="mean", tie="component")), tol=0, max_iter=2)
    assert again.n_iter == 2
    assert isinstance(again.priors["A"].mean, float)


def test_a_fit_that_learns_more_begins_with_what_was_learned() -> None:
    model = pltf.cp(rank=2)
    first = model.fit(X, prior=pltf.Gamma(learn="mean"))
    more = model.fit(X, prior=pltf.Gamma(learn="both"), init=first, tol=0, max_iter=1)
    assert more.bound > first.bound
    other_tie = model.fit(X, prior=pltf.Gamma(mean=3.0, learn="mean", tie="component"), init=first, tol=0, max_iter=1)
    assert np.shape(other_tie.priors["A"].mean) == (1, 2)


@pytest.mark.parametrize(("learn", "tie"), LEARN)
def test_storages_learn_the_same(learn: str, tie: str) -> None:
    model, prior = pltf.cp(rank=2), pltf.Gamma(0.5, 10.0, learn=learn, tie=tie)
    cells = np.argwhere(~HOLES)
    hidden = np.where(HOLES, 0.0, X)  # what is missing may not be listed
    listed = [
        pltf.observe((cells, X[tuple(cells.T)]), shape=X.shape, unlisted="missing"),
        pltf.observe((np.argwhere(hidden > 0), hidden[hidden > 0]), shape=X.shape, missing=np.argwhere(HOLES)),
    ]
    dense = model.fit(X, mask=~HOLES, prior=prior)
    for data in listed:
        sparse = model.fit(data, prior=prior)
        assert sparse.bound == pytest.approx(dense.bound, rel=1e-6)
        for a in model.factors:
            one, other = (np.asarray(fit.priors[a].mean) for fit in (sparse, dense))
            np.testing.assert_allclose(one, other, rtol=1e-3)
    single = model.fit(X, mask=~HOLES, prior=prior, dtype="float32")
    assert single.bound == pytest.approx(dense.bound, rel=1e-4)


# -- ties ---------------------------------------------------------------------------------------


def _shapes(model: pltf.Model, data: object, tie: str) -> dict[str, tuple[int, ...]]:
    fit = model.fit(data, prior=pltf.Gamma(learn="mean", tie=tie), tol=0, max_iter=2)
    return {a: np.shape(prior.mean) for a, prior in fit.priors.items()}


def test_component_ties_follow_the_latent_indices() -> None:
    assert _shapes(pltf.cp(rank=3), X, "factor") == {"A": (), "B": (), "C": ()}
    assert _shapes(pltf.cp(rank=3), X, "component") == {"A": (1, 3), "B": (1, 3), "C": (1, 3)}
    assert _shapes(pltf.cp(rank=1), X, "component") == {"A": (), "B": (), "C": ()}
    tucker = _shapes(pltf.tucker(ranks=(2, 3, 2)), X, "component")
    assert tucker == {"A": (1, 2), "B": (1, 3), "C": (1, 2), "G": ()}  # a core has nothing to average over: one whole
    train = _shapes(pltf.Model("ia,ajb,bk->ijk", a=2, b=3), X, "component")
    assert train == {"Z1": (1, 2), "Z2": (2, 1, 3), "Z3": (3, 1)}
    assert _shapes(pltf.Model("X[i,j,k] = A[i,r] B[j,r] C[k,r] S[k]", r=2), X, "component")["S"] == ()


def test_values_of_a_group_apart_in_memory_are_their_means() -> None:
    """The middle of a tensor train keeps its groups apart along the first and the last axis."""
    model, prior = pltf.Model("ia,ajb,bk->ijk", a=2, b=3), pltf.Gamma(learn="mean", tie="component")
    fit = model.fit(X, prior=prior, accelerate=False, tol=0, max_iter=5)
    np.testing.assert_allclose(
        np.asarray(fit.priors["Z2"].mean), fit.factors["Z2"].mean.mean(axis=1, keepdims=True), rtol=1e-6
    )


def test_a_prior_for_each_position_of_an_index() -> None:
    prior = {"A": pltf.Gamma(0.5, 1.0, learn="mean", tie="index:i")}
    fit = pltf.cp(rank=3).fit(X, prior=prior, accelerate=False, tol=0, max_iter=50)
    means = np.asarray(fit.priors["A"].mean)
    assert means.shape == (12, 1)
    np.testing.assert_allclose(means, fit.factors["A"].mean.mean(axis=1, keepdims=True), rtol=1e-6)


# -- what it is good for ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_surplus_components_are_pruned(seed: int) -> None:
    truth = pltf.cp(rank=3)
    counts = pltf.datasets.draw(truth, (25, 20, 15), prior=pltf.Gamma(0.5, 2.0), seed=seed).counts["X"]
    prior = pltf.Gamma(learn="mean", tie="component")
    many, right = (pltf.cp(rank=r).fit(counts, prior=prior, restarts=2) for r in (7, 3))
    assert many.effective_rank == 3
    assert (many.components()["mass"][3:] < 1e-3).all()
    assert many.bound == pytest.approx(right.bound, abs=1.0)
    fixed = pltf.cp(rank=7).fit(counts, prior=pltf.Gamma(), tol=1e-4)
    assert fixed.bound < many.bound - 100


def test_effective_rank_of_several_latent_indices() -> None:
    counts = pltf.datasets.draw(pltf.tucker(ranks=(2, 2, 1)), (12, 10, 8), prior=pltf.Gamma(0.5, 2.0)).counts["X"]
    prior = pltf.Gamma(learn="mean", tie="component")
    fit = pltf.tucker(ranks=(4, 3, 2)).fit(counts, prior=prior, tol=1e-4)
    found = fit.effective_rank
    assert not isinstance(found, int)
    assert dict(found) == {index: int((fit.components(index)["mass"] >= 1).sum()) for index in "pqr"}
    assert found["p"] < 4


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_the_default_prior_needs_no_tuning_whatever_the_scale_of_the_counts(scale: float) -> None:
    """Hidden cells are as likely under the default prior as under the one that drew the data."""
    model, mean = pltf.nmf(rank=3), (scale / 3) ** 0.5
    drawn = pltf.datasets.draw(model, (120, 100), prior=pltf.Gamma(0.5, mean), seed=0)
    counts, keep = drawn.counts["X"], pltf.holdout(drawn.counts["X"], 0.3, seed=0)
    default, truth, paper = (
        poisson.logpmf(counts[~keep], model.fit(counts, mask=keep, prior=prior, restarts=3).mean(at=~keep)).mean()
        for prior in (None, pltf.Gamma(0.5, mean), pltf.Gamma(0.5, 10.0))
    )
    assert default > truth - 0.02 * abs(truth)
    assert default > paper - 0.02 * abs(paper)


# -- bad input and small print ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"learn": "scale"}, "learn must be None or one of 'mean', 'shape', 'both'; got 'scale'"),
        ({"learn": True}, "learn must be None or one of"),
        ({"learn": ["mean"]}, "learn must be None or one of"),
        ({"learn": "mean", "tie": "row"}, "tie must be 'factor', 'component' or as 'index:user'; got 'row'"),
        ({"learn": "mean", "tie": "index:"}, "tie must be"),
        ({"learn": "mean", "tie": None}, "tie must be"),
        ({"tie": "component"}, "tie='component' says how a learned value is shared: it needs learn="),
    ],
)
def test_a_prior_that_cannot_be_learned_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(pltf.PltfError, match=re.escape(message)):
        pltf.Gamma(0.5, 1.0, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "prior", "message"),
    [
        ("em", pltf.Gamma(learn="mean"), "method='em' has no prior"),
        ("map", pltf.Gamma(learn="mean"), "method='map' cannot learn a prior"),
        (
            "vb",
            pltf.Gamma(learn="mean", tie="index:j"),
            "tie='index:j' needs a factor with index 'j', and A has i, r",
        ),
        (
            "vb",
            {"A": pltf.Gamma(0.5, np.ones((12, 2)), learn="mean")},
            "prior of A: a learned mean must start with",
        ),
        (
            "vb",
            {"A": pltf.Gamma(np.ones((12, 1)), 1.0, learn="both", tie="component")},
            "one value for each component, got (12, 1)",
        ),
        ("vb", {"A": pltf.Gamma(learn="mean", tie="index:z")}, "needs a factor with index 'z', and A has i, r"),
    ],
)
def test_learning_where_it_makes_no_sense_is_refused(method: str, prior: object, message: str) -> None:
    with pytest.raises(pltf.PltfError, match=re.escape(message)):
        pltf.cp(rank=2).fit(X, method=method, prior=prior)  # type: ignore[arg-type]


def test_a_learned_prior_shows_itself() -> None:
    assert repr(pltf.Gamma(0.5, 2.0, learn="both", tie="component")) == (
        "Gamma(shape=0.5, mean=2.0, learn='both', tie='component')"
    )
    assert repr(pltf.Gamma(np.ones((3, 2)), 2.0)) == "Gamma(shape=<3x2 array>, mean=2.0)"
    fit = pltf.cp(rank=2).fit(X, prior=pltf.Gamma(learn="mean", tie="component"))
    loaded = pickle.loads(pickle.dumps(fit))
    np.testing.assert_array_equal(loaded.priors["A"].mean, fit.priors["A"].mean)
    assert loaded.priors["A"].learn == "mean"


def test_given_priors_are_not_changed_by_learning() -> None:
    prior = pltf.Gamma(0.5, 10.0, learn="both")
    pltf.cp(rank=2).fit(X, prior=prior)
    assert (prior.shape, prior.mean) == (0.5, 10.0)
