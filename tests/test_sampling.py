"""Fits by Gibbs sampling: options, results, predictions, files, checkpoints, and the same bits whatever happens."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pltf
import pltf.datasets
import pltf.metrics
from pltf import sampling
from pltf.dispersion import dispersions
from pltf.inference.run import ASKED
from pltf.sampling import DEFAULTS

MODEL = pltf.cp(("user", "place", "act"), rank=2)
X = pltf.datasets.draw(pltf.cp(rank=2), (7, 6, 5), prior=pltf.Gamma(0.8, 1.5), seed=3).counts["X"]
MASK = pltf.holdout(X, 0.2, seed=1)
FEW: dict[str, Any] = {"method": "gibbs", "chains": 2, "burn_in": 20, "draws": 30, "progress": False}

pytestmark = pytest.mark.filterwarnings("ignore:the chains have not converged")


@pytest.fixture(scope="module", name="vb")
def _vb() -> pltf.Fit:
    return MODEL.fit(X, mask=MASK, restarts=3)


@pytest.fixture(scope="module", name="fit")
def _fit(vb: pltf.Fit) -> pltf.Fit:
    return MODEL.fit(X, mask=MASK, init=vb, **FEW)


def same(one: pltf.Fit, other: pltf.Fit) -> bool:
    return all(np.array_equal(one.draws[a], other.draws[a]) for a in one.draws) and np.array_equal(
        one.trace, other.trace
    )


@pytest.mark.parametrize("options", [{}, {"chains": 3, "burn_in": 0, "draws": 5, "thin": 7}])
def test_dispersion_is_judged_by_chains_like_those_of_the_fit(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """VB predicts worse: around its predictions counts vary more."""
    judges = list[pltf.Fit]()

    def recorded(fit: pltf.Fit, seen: Any, ask: Any, refit: Any) -> Any:
        def kept(train: Any) -> Any:
            judges.append(refit(train))
            return judges[-1]

        return dispersions(fit, seen, ask, kept)

    monkeypatch.setattr(sampling, "dispersions", recorded)
    data = np.random.default_rng(0).negative_binomial(1, 0.2, (25, 20))
    fit = pltf.nmf(rank=2).fit(data, **{**FEW, **options})
    assert not fit.dispersion["X"].is_poisson
    assert judges
    for judge in judges:
        assert judge.method == "gibbs"
        assert judge.n_observed["X"] < data.size
        assert judge.draws["W"].shape[:2] == ((2, 13) if not options else (3, 4))
    again = pltf.nmf(rank=2).fit(data, **{**FEW, **options})
    assert str(again.dispersion["X"]) == str(fit.dispersion["X"])


# -- what comes out -----------------------------------------------------------------------------


def test_a_fit_has_its_draws(fit: pltf.Fit, vb: pltf.Fit) -> None:
    assert {a: draws.shape for a, draws in fit.draws.items()} == {
        "A": (2, 30, 7, 2),
        "B": (2, 30, 6, 2),
        "C": (2, 30, 5, 2),
    }
    assert (fit.method, fit.objective, fit.n_iter) == ("gibbs", "log-likelihood", 50)
    assert fit.sampled is not None
    assert fit.sampled.log_likelihood.shape == (2, 50)
    assert fit.bound == pytest.approx(fit.sampled.log_likelihood[:, 20:].mean())
    assert isinstance(fit.factors["A"], pltf.Samples)
    np.testing.assert_allclose(fit.factors["A"].mean, fit.draws["A"].mean(axis=(0, 1)))
    assert fit.mass["r"].sum() == pytest.approx(X[MASK].sum())  # counts are allocated, none is lost
    assert "mean of 30 draws of 2 chains" in repr(fit)
    assert np.corrcoef(fit.mean().ravel(), vb.mean().ravel())[0, 1] > 0.99


def test_the_defaults_are_those_of_the_docstring() -> None:
    told = f"{DEFAULTS.chains} chains, {DEFAULTS.burn_in} sweeps of burn-in"
    assert told in (pltf.Model.fit.__doc__ or "")
    assert f"{DEFAULTS.draws} draws, ``thin={DEFAULTS.thin}``" in (pltf.Model.fit.__doc__ or "")


@pytest.mark.parametrize(
    ("model", "shape"), [(MODEL, (7, 6, 5)), (pltf.tucker(ranks=(2, 2, 1)), (7, 6, 5)), (pltf.nmf(rank=3), (7, 30))]
)
def test_predictions_are_those_of_the_draws(model: pltf.Model, shape: tuple[int, ...]) -> None:
    """Mean, variance, probabilities and quantiles, of all cells and of listed ones, from rates made by hand."""
    data = X.reshape(shape)
    fit = model.fit(data, **FEW, seed=1)
    text = {3: "ir,jr,kr->ijk", 4: "ip,jq,kr,pqr->ijk", 2: "ir,rj->ij"}[len(fit.draws)]
    flat = [fit.draws[a].reshape(-1, *fit.draws[a].shape[2:]) for a in fit.model.factors]
    rates = np.array([np.einsum(text, *draw) for draw in zip(*flat, strict=True)])
    cells = np.argwhere(data >= 0)[::7]
    at = (slice(None), *cells.T)
    np.testing.assert_allclose(fit.mean(), rates.mean(axis=0))
    np.testing.assert_allclose(fit.mean(cells), rates.mean(axis=0)[at[1:]])
    np.testing.assert_allclose(fit.var(), rates.var(axis=0), atol=1e-12)
    np.testing.assert_allclose(fit.var(cells, counts=True), (rates.var(axis=0) + rates.mean(axis=0))[at[1:]])
    np.testing.assert_allclose(fit.prob(cells), -np.expm1(-rates[at]).mean(axis=0))
    np.testing.assert_allclose(fit.interval(cells), np.quantile(rates[at], [0.05, 0.95], axis=0))
    np.testing.assert_allclose(fit.sample(60, cells), rates[at])
    assert fit.sample(100, cells, counts=True).shape == (100, len(cells))
    zeros = np.zeros(len(cells))
    np.testing.assert_allclose(fit.log_prob(cells, zeros), np.log(np.exp(-rates[at]).mean(axis=0)))
    largest = np.unravel_index(rates.mean(axis=0).argmax(), data.shape)
    top = fit.top(1, among="all").iloc[0]
    assert tuple(int(top[index]) for index in fit.model.observed["X"]) == largest
    assert top["mean"] == pytest.approx(rates.mean(axis=0).max())


def test_quantiles_do_not_depend_on_the_parts_in_which_cells_are_gone_through(
    fit: pltf.Fit, vb: pltf.Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = [one.interval() for one in (fit, vb)]
    monkeypatch.setattr("pltf.prediction.draws.MOST_BYTES", 8 * 50_000)
    np.testing.assert_array_equal(fit.interval(), at_once[0])
    assert vb.interval(counts=True)[1].shape == vb.interval()[1].shape == X.shape


def test_everything_else_takes_it(fit: pltf.Fit, tmp_path: Path) -> None:
    from pltf.report import write

    assert list(fit.components().columns[:2]) == ["mass", "share"]
    assert fit.effective_rank == 2
    assert pltf.match(fit, fit).similarity == pytest.approx(1.0)
    assert set(fit.to_xarray()) >= {"A", "A_low", "X_sd"}
    assert pltf.metrics.score(fit, X, ~MASK, draws=20, resamples=10).log_likelihood < 0
    write(fit, tmp_path / "page.html")
    assert "Gibbs sampling" in (tmp_path / "page.html").read_text()


def test_arviz_gets_chains_and_draws(fit: pltf.Fit) -> None:
    data = fit.to_arviz()
    assert dict(data.posterior.sizes) == {"chain": 2, "draw": 30, "user": 7, "r": 2, "place": 6, "act": 5}
    np.testing.assert_array_equal(data.posterior["A"], fit.draws["A"])
    assert fit.to_arviz(draws=10).posterior.sizes["draw"] == 10


def test_fold_in_takes_the_others_at_their_means_and_spreads(fit: pltf.Fit) -> None:
    new = fit.fold_in(X[0], index="user")
    assert new.method == "vb"
    np.testing.assert_allclose(new.factors["B"].mean, fit.factors["B"].mean)
    np.testing.assert_allclose(new.factors["B"].var, fit.factors["B"].var)
    assert np.corrcoef(new.mean()[0].ravel(), fit.mean()[0].ravel())[0, 1] > 0.95


# -- models -------------------------------------------------------------------------------------


def test_fixed_factors_stay(vb: pltf.Fit) -> None:
    given = vb.factors["A"].mean
    fit = MODEL.fit(X, mask=MASK, fixed={"A": given}, **FEW)
    assert set(fit.draws) == {"B", "C"}
    np.testing.assert_array_equal(fit.factors["A"].mean, given)
    assert fit.mass["r"].sum() == pytest.approx(X[MASK].sum())
    assert fit.to_arviz().posterior["A"].shape == (2, 30, 7, 2)


def test_coupled_tensors_and_learned_shapes() -> None:
    model = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)
    drawn = pltf.datasets.draw(model, {"X": (8, 6), "Y": (6, 5)}, prior=pltf.Gamma(1.0, 2.0), seed=1)
    prior = pltf.Gamma(0.5, 1.0, learn="both", tie="component")
    fit = model.fit(drawn.counts, prior=prior, **FEW)
    assert fit.priors["A"].shape.shape == fit.priors["A"].mean.shape == (1, 2)  # type: ignore[union-attr]
    assert {name for name in fit.diagnostics().index if "median" in name} == {
        "rates of X, median",
        "rates of Y, median",
    }


def test_links() -> None:
    links = np.minimum(X, 1)
    fit = MODEL.fit(links, mask=MASK, likelihood="bernoulli", **FEW)
    assert fit.likelihoods == {"X": "bernoulli"}
    assert fit.mass["r"].sum() > links[MASK].sum()  # hidden counts are one or more
    assert set(np.unique(fit.sample(20, counts=True))) == {0, 1}


def test_large_counts_have_the_means_of_vb() -> None:
    data = np.random.default_rng(0).poisson(np.outer([400, 900, 2000], [1, 2, 3, 4]))
    fit, vb = pltf.nmf(rank=1).fit(data, **FEW), pltf.nmf(rank=1).fit(data)
    np.testing.assert_allclose(fit.mean(), vb.mean(), rtol=0.01)
    np.testing.assert_allclose(np.sqrt(fit.var()), np.sqrt(vb.var()), rtol=0.5)


# -- the same bits ------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_do_not_change_a_bit(fit: pltf.Fit, vb: pltf.Fit, threads: int) -> None:
    assert same(fit, MODEL.fit(X, mask=MASK, init=vb, threads=threads, **FEW))
    assert not same(fit, MODEL.fit(X, mask=MASK, init=vb, seed=1, **FEW))


def test_a_saved_fit_is_the_same(fit: pltf.Fit, tmp_path: Path) -> None:
    fit.save(tmp_path / "fit.nc")
    loaded = pltf.load(tmp_path / "fit.nc")
    assert isinstance(loaded, pltf.Fit)
    assert same(fit, loaded)
    assert repr(loaded) == repr(fit)
    np.testing.assert_array_equal(loaded.mean(), fit.mean())
    assert loaded.diagnostics().equals(fit.diagnostics())


@pytest.mark.parametrize("stop_at", [1, 25])
def test_what_was_interrupted_goes_on_to_the_same_bits(tmp_path: Path, stop_at: int) -> None:
    """In the chains, before the first draw and after; what is there comes back."""
    options = {**FEW, "restarts": 2}
    whole = MODEL.fit(X, mask=MASK, **options)

    def press(sweep: pltf.Sweep) -> None:
        if sweep.n_iter == stop_at + 1 and sweep.restart == 0:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.warns(pltf.ConvergenceWarning, match="interrupted"):
        broken = MODEL.fit(X, mask=MASK, callback=press, checkpoint=tmp_path / "run.nc", **options)
    assert broken.method == ("vb" if stop_at == 1 else "gibbs")
    again = MODEL.fit(X, mask=MASK, checkpoint=tmp_path / "run.nc", resume=True, **options)
    assert same(again, whole)
    finished = MODEL.fit(X, mask=MASK, checkpoint=tmp_path / "run.nc", resume=True, **options)
    assert same(finished, whole)
    with pytest.raises(pltf.PltfError, match=r"was started with a different draws|of a different call"):
        MODEL.fit(X, mask=MASK, checkpoint=tmp_path / "run.nc", resume=True, **{**options, "draws": 31})


@pytest.mark.parametrize(
    ("stop_at", "told"),
    [
        (1, "with fewer than 4 draws, the result is the fit where the chains start; resume with"),
        (12, "the fit has the first 12 of 500 draws; resume with"),
    ],
)
def test_draws_of_an_earlier_fit_are_not_told_as_draws_of_this_one(fit: pltf.Fit, stop_at: int, told: str) -> None:
    def press(sweep: pltf.Sweep) -> None:
        if sweep.n_iter == stop_at + 1 and sweep.restart == 0:
            os.kill(os.getpid(), signal.SIGINT)

    options = {**FEW, "burn_in": None, "draws": 500}
    with pytest.warns(pltf.ConvergenceWarning, match=f"sampling was interrupted: {told}"):
        broken = MODEL.fit(X, mask=MASK, init=fit, callback=press, **options)
    assert same(broken, fit) == (stop_at == 1)


def test_checkpoints_are_written_on_the_way(tmp_path: Path, vb: pltf.Fit) -> None:
    """Killed at any moment, a fit goes on from the last checkpoint."""

    class Killed(Exception):
        pass

    def kill(sweep: pltf.Sweep) -> None:
        if sweep.n_iter == 5:
            raise Killed

    path, few = tmp_path / "run.nc", {**FEW, "burn_in": 2, "draws": 6}
    with pytest.raises(Killed):
        MODEL.fit(X, mask=MASK, init=vb, callback=kill, checkpoint=path, every=0.0, **few)
    again = MODEL.fit(X, mask=MASK, init=vb, checkpoint=path, resume=True, **few)
    assert same(again, MODEL.fit(X, mask=MASK, init=vb, **few))


# -- going on, and stopping ---------------------------------------------------------------------


def test_a_gibbs_fit_goes_on_without_burn_in(fit: pltf.Fit) -> None:
    on = MODEL.fit(X, mask=MASK, init=fit, **{**FEW, "burn_in": None})
    assert on.sampled is not None
    assert (on.sampled.burn_in, on.n_iter) == (0, fit.n_iter + 30)
    assert not np.array_equal(on.draws["A"], fit.draws["A"])  # other random numbers
    assert on.bound == pytest.approx(fit.bound, abs=20)


def test_thinning_keeps_every_so_many_draws(vb: pltf.Fit, fit: pltf.Fit) -> None:
    thin = MODEL.fit(X, mask=MASK, init=vb, **{**FEW, "draws": 10, "thin": 3})
    np.testing.assert_array_equal(thin.draws["A"], fit.draws["A"][:, 2::3])


def test_a_callback_sees_chains_and_may_end_them(vb: pltf.Fit) -> None:
    told: list[tuple[int, int]] = []

    def watch(sweep: pltf.Sweep) -> bool:
        told.append((sweep.restart, sweep.n_iter))
        return sweep.n_iter == 26

    fit = MODEL.fit(X, mask=MASK, init=vb, callback=watch, **FEW)
    assert told[:3] == [(0, 1), (1, 1), (0, 2)]
    assert (fit.stopped, fit.draws["A"].shape[1]) == (ASKED, 6)


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["chains", "burn_in", "draws", "thin"])
@pytest.mark.parametrize("method", ["vb", "em", "map"])
def test_options_of_gibbs_go_with_it_alone(name: str, method: str) -> None:
    with pytest.raises(pltf.PltfError, match=f"{name} requires method='gibbs', got method='{method}'"):
        MODEL.fit(X, method=method, **dict[str, Any]({name: 5}))


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (X + 0.5, {}, r"X must hold whole counts for method='gibbs', got \d+.5: use method='vb'"),
        (X, {"draws": 10**12}, r"4 chains of 1000000000000 draws need .* this machine has .*: use fewer draws"),
        (X, {"draws": 0}, "draws must be a whole number of at least 4, got 0"),
        (X, {"burn_in": -1}, "burn_in must be a whole number of at least 0, got -1"),
        (X, {"draws": 2, "burn_in": 1}, "draws must be a whole number of at least 4, got 2"),
    ],
)
def test_refusals(data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(pltf.PltfError, match=message):
        MODEL.fit(data, method="gibbs", **options)


def test_missing_values_need_not_be_whole(vb: pltf.Fit) -> None:
    data = np.where(MASK, X, np.nan)
    assert same(MODEL.fit(data, init=vb, **FEW), MODEL.fit(X, mask=MASK, init=vb, **FEW))
    assert same(MODEL.fit(np.where(MASK, X, 0.5), mask=MASK, init=vb, **FEW), MODEL.fit(data, init=vb, **FEW))


def test_diagnostics_are_of_chains(vb: pltf.Fit) -> None:
    with pytest.raises(pltf.PltfError, match="diagnostics need chains, but this is a fit by method='vb'"):
        vb.diagnostics()


def test_chains_that_disagree_are_told_of() -> None:
    data = np.eye(6, dtype=int) * 40 + 1
    with pytest.warns(pltf.ConvergenceWarning, match=r"the chains have not converged: .*; raise draws or burn_in"):
        fit = pltf.nmf(rank=4).fit(data, method="gibbs", chains=2, burn_in=0, draws=8, progress=False)
    assert not fit.converged


def test_the_command_line_samples(tmp_path: Path) -> None:
    from pltf.cli.main import run

    np.save(tmp_path / "x.npy", X)
    options = ["--method", "gibbs", "--chains", "2", "--burn-in", "5", "--draws", "8", "--thin", "2", "--quiet"]
    assert run(["fit", str(tmp_path / "x.npy"), "--cp", "2", "-o", str(tmp_path / "run.nc"), *options]) == 0
    fit = pltf.load(tmp_path / "run.nc")
    assert isinstance(fit, pltf.Fit)
    assert fit.draws["A"].shape == (2, 8, 7, 2)
