"""How much counts vary beyond Poisson: recovered where it is there, not found where it is not."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

import pltf
from pltf import dispersion as estimating
from pltf.dispersion import HeldBack, estimate
from pltf.prediction.dispersion import Dispersion
from pltf.prediction.noise import Bernoulli, NegativeBinomial, Poisson, ZeroInflated

Array = NDArray[np.float64]
MODEL = pltf.nmf(rank=3)


def rates(seed: int, shape: tuple[int, int] = (80, 60), mean: float = 4.0) -> Array:
    rng = np.random.default_rng(seed)
    drawn: Array = rng.gamma(0.5, 1, (shape[0], 3)) @ rng.gamma(0.5, 1, (3, shape[1]))
    return drawn * float(mean / drawn.mean())


def overdispersed(seed: int, size: Any, power: float = 0.0, **how: Any) -> NDArray[np.int64]:
    rate, rng = rates(seed, **how), np.random.default_rng(seed + 1000)
    shape = size * rate**power
    return np.asarray(rng.poisson(rate * rng.gamma(shape) / shape))


def known(mean: Array, size: Any, power: float = 0.0, zeros: float = 0.0, seed: int = 0) -> HeldBack:
    """Held-back cells of known rates."""
    rng, flat = np.random.default_rng(seed), mean.reshape(-1)
    shape = np.broadcast_to(size, mean.shape).reshape(-1) * flat**power
    drawn = rng.poisson(flat / (1 - zeros) * rng.gamma(shape) / shape) * (rng.random(flat.size) >= zeros)
    cells = np.indices(mean.shape).reshape(mean.ndim, -1)
    return HeldBack(cells, drawn.astype(float), np.ones(flat.size), flat, np.zeros(flat.size))


@pytest.mark.parametrize(("size", "power", "zeros"), [(0.3, 0, 0), (5, 0, 0), (0.5, 1, 0), (2, 0, 0.3)])
def test_estimate_recovers_what_was_drawn(size: float, power: float, zeros: float) -> None:
    found = estimate(known(rates(0, (100, 60), mean=6.0), size, power, zeros))
    assert found.size == pytest.approx(size, rel=0.15)
    assert found.power == pytest.approx(power, abs=0.1)
    assert found.zeros == pytest.approx(zeros, abs=0.02)


@pytest.mark.parametrize("share", [0.003, 0.02])
def test_counts_far_too_large_for_their_rates_are_strays(share: float) -> None:
    held = known(rates(0, (100, 60), mean=2.0), 2.0)
    rng = np.random.default_rng(5)
    stray = rng.random(held.x.size) < share
    found = estimate(replace(held, x=np.where(stray, rng.geometric(1 / 300, held.x.size), held.x)))
    assert found.strays == pytest.approx(stray.mean(), rel=0.25)
    assert found.typical == pytest.approx(300, rel=0.25)
    assert found.size == pytest.approx(2.0, rel=0.15)
    assert abs(found.power) < 0.1
    assert f"{100 * found.strays:.2g}% strays" in str(found)


def test_no_stray_among_n_cells_leaves_room_for_one() -> None:
    held = known(rates(0, (100, 60), mean=2.0), 2.0)
    assert 0.1 / held.x.size < estimate(held).strays < 5 / held.x.size


def test_counts_that_look_like_strays_throughout_are_not_all_called_so() -> None:
    """Geometric counts of one rate are strays as well as negative binomials of size 1."""
    for seed in range(12):
        X = np.random.default_rng(seed).geometric(0.1, 400).astype(float)
        held = HeldBack(np.arange(400)[None], X, np.ones(400), np.full(400, 10.0), np.zeros(400))
        assert estimate(held).strays <= 0.2
    assert pltf.nmf(rank=1).fit(np.random.default_rng(2).geometric(0.1, (30, 30))).dispersion["X"].strays <= 0.2


def test_estimate_finds_nothing_in_poisson_counts() -> None:
    for seed in range(20):
        rng, mean = np.random.default_rng(seed), rates(seed)
        held = replace(known(mean, 1.0), x=rng.poisson(mean).reshape(-1).astype(float))
        found = estimate(held)
        assert found.is_poisson
        assert found.factor == 1


def test_a_single_odd_cell_is_no_dispersion() -> None:
    rng, mean = np.random.default_rng(0), rates(0)
    x = rng.poisson(mean).reshape(-1).astype(float)
    x[7] = 500
    assert estimate(replace(known(mean, 1.0), x=x)).is_poisson


def test_sizes_along_an_index_are_recovered_and_shrunk() -> None:
    mean = np.full((30, 400), 5.0)
    truth = np.where(np.arange(30) < 15, 0.5, 8.0)
    held = known(mean, truth[:, None])
    few = (held.cells[0] != 29) | (held.cells[1] < 3)  # of the last position next to nothing is known
    held = HeldBack(held.cells[:, few], held.x[few], held.weight[few], held.mean[few], held.variance[few])
    found = estimate(held, along=("i", 0, 30))
    assert found.index == "i"
    sizes = found.size * 5.0**found.power  # rates are all the same, so any power will do
    assert 0.4 < np.median(sizes[:15]) < 0.65
    assert 5 < np.median(sizes[15:29]) < 13
    assert sizes[:15].max() < sizes[15:29].min()
    assert 0.6 < sizes[29] < 8
    alike = estimate(known(mean[:, :40], 2.0), along=("i", 0, 30))
    assert np.ptp(np.log(alike.size)) < 0.3


@pytest.mark.parametrize("seed", range(3))
def test_a_fit_recovers_the_size(seed: int) -> None:
    found = MODEL.fit(overdispersed(seed, 1.0, shape=(200, 120)), tol=1e-4).dispersion["X"]
    assert 0.6 < found.size < 1.5
    assert found.cells > 400
    assert found.factor > 3


def test_fits_to_poisson_counts_find_nothing() -> None:
    """Also with as many parameters as half of the cells, where a posterior of independent factors is far too sure."""
    found = []
    for seed, (rank, shape, mean) in itertools.product(
        range(4),
        [(3, (80, 60), 4.0), (3, (80, 60), 0.3), (12, (60, 40), 2.0), (12, (60, 40), 50.0), (1, (30, 20), 9.0)],
    ):
        rng = np.random.default_rng(seed)
        drawn = rng.gamma(0.5, 1, (shape[0], rank)) @ rng.gamma(0.5, 1, (rank, shape[1]))
        X = rng.poisson(drawn * (mean / drawn.mean()))
        found.append(pltf.nmf(rank=rank).fit(X, tol=1e-4).dispersion["X"])
    assert sum(one.is_poisson for one in found) >= 19  # of 20
    assert all(one.cells for one in found)


def test_cells_that_were_seen_say_far_less() -> None:
    """What makes the second fit worth its time."""
    X = overdispersed(0, 1.0)
    fit = pltf.nmf(rank=20).fit(X)
    at = np.argwhere(np.ones_like(X, dtype=bool))
    seen = HeldBack(at.T, X.reshape(-1).astype(float), np.ones(X.size), fit.mean(at), fit.var(at))
    assert fit.dispersion["X"].factor > 20 * estimate(seen).factor


def test_the_second_fit_never_sees_the_cells_it_is_judged_by(monkeypatch: pytest.MonkeyPatch) -> None:
    hide, told = estimating._hide, list[estimating.Hidden]()

    def recorded(seen: pltf.Observation, fold: int = 0) -> estimating.Hidden:
        told.append(hide(seen, fold))
        return told[-1]

    monkeypatch.setattr(estimating, "_hide", recorded)
    X = overdispersed(0, 1.0)
    for data in (X, X.astype(float), sparse.coo_array(X), pltf.observe(sparse.coo_array(X), unlisted="missing")):
        MODEL.fit(data, max_iter=3, tol=0)
        one = told[-1]
        assert np.isnan(one.train.values_at(one.cells)).all()
        assert np.array_equal(one.x, X[tuple(one.cells)])
        share = 1 - one.train.n_observed / pltf.observe(data).n_observed
        assert share == pytest.approx(0.1, abs=0.01)


def test_few_counts_are_hidden_several_times() -> None:
    """A tenth of them would be a few dozen, which cannot tell."""
    many, few = overdispersed(0, 1.0), overdispersed(0, 1.0)[:20, :20]
    judged = [MODEL.fit(X, max_iter=20, tol=0).dispersion["X"].cells / X.size for X in (many, few)]
    assert judged == pytest.approx([estimating.SHARE, estimating.MOST_FOLDS * estimating.SHARE], rel=0.2)


def test_zeros_of_long_lists_are_weighted() -> None:
    rng = np.random.default_rng(0)
    at = rng.integers(0, 3000, (20_000, 2))
    listed = pltf.observe((at, np.ones(len(at))), shape=(3000, 3000), duplicates="sum")
    one = estimating._hide(listed)
    assert one.train.n_observed == listed.n_observed - estimating.MOST_ZEROS - round(0.1 * listed.n_positive)
    assert one.weight.sum() == pytest.approx(0.1 * listed.n_observed, rel=1e-3)
    assert 1 < one.correction < 1 / 0.9


def test_the_fit_itself_is_the_same_with_and_without() -> None:
    X = overdispersed(1, 0.5)
    one, other = MODEL.fit(X, restarts=2), MODEL.fit(X, restarts=2, dispersion=None)
    assert np.array_equal(one.trace, other.trace)
    assert one.rows[0].bound == other.rows[0].bound
    assert all(np.array_equal(one.C[a], other.C[a]) for a in one.C)
    assert one.dispersion
    assert not other.dispersion
    short = MODEL.fit(X, max_iter=5, tol=0)
    on, at_once = MODEL.fit(X, init=short, max_iter=5, tol=0), MODEL.fit(X, max_iter=10, tol=0)
    assert np.array_equal(on.trace, at_once.trace)  # it still remembers its last sweep


def test_predictions_use_it() -> None:
    X = overdispersed(2, 0.5)
    fit = MODEL.fit(X)
    plain = replace(fit, dispersion={})
    at = [(0, 0), (1, 1), (2, 5)]
    assert (fit.mean(at) == plain.mean(at)).all()
    assert (fit.var(at) == plain.var(at)).all()
    assert (fit.var(at, counts=True) > 1.2 * plain.var(at, counts=True)).all()
    assert fit.var(counts=True).shape == X.shape
    wide, narrow = fit.interval(at, counts=True), plain.interval(at, counts=True)
    assert (wide[1] > narrow[1]).any()
    assert (wide[1] >= narrow[1]).all()
    far = X[tuple(np.array(at).T)] + 60
    assert (fit.surprise(at, far) > 1e3 * plain.surprise(at, far)).all()
    assert fit.prob(at)[2] < plain.prob(at)[2]  # of a large rate: where it is small, a stray may make up for it
    assert fit.sample(5, at, counts=True).shape == (5, 3)
    assert fit.top(3, "zero", draws=50).shape == (3, 6)
    mask = pltf.holdout(X, 0.2, seed=1)
    judged = MODEL.fit(X, mask=mask)
    scores = [
        pltf.metrics.score(one, X, ~mask, resamples=0, draws=50) for one in (judged, replace(judged, dispersion={}))
    ]
    assert scores[0].log_likelihood > scores[1].log_likelihood + 0.1
    assert scores[0].auc == scores[1].auc


def test_of_the_kinds_of_noise() -> None:
    fit = MODEL.fit(overdispersed(0, 1.0), dispersion=None)
    assert isinstance(fit._noise(None), Poisson)
    assert isinstance(replace(fit, likelihoods={"X": "bernoulli"})._noise(None), Bernoulli)
    assert isinstance(replace(fit, dispersion={"X": Dispersion(2.0)})._noise(None), NegativeBinomial)
    assert isinstance(replace(fit, dispersion={"X": Dispersion(zeros=0.1)})._noise(None), ZeroInflated)
    along = replace(fit, dispersion={"X": Dispersion(np.linspace(1, 2, 60), "j")})
    noise = along._noise(None)
    assert isinstance(noise, NegativeBinomial)
    assert noise.axis == 1
    assert along.var(counts=True)[3] == pytest.approx(along.var([(3, j) for j in range(60)], counts=True))


@pytest.mark.parametrize(
    ("X", "note"),
    [
        (np.ones((3, 4)), "fewer than 200 observed cells"),
        (np.eye(15), "fewer than 20 non-zeros"),
        (np.eye(40), "all values are 0 or 1"),
        (np.random.default_rng(0).gamma(1.0, 1.0, (30, 30)), "not whole"),
    ],
)
def test_it_says_why_there_is_no_estimate(X: Array, note: str) -> None:
    found = pltf.nmf(rank=1).fit(X).dispersion["X"]
    assert note in found.note
    assert note in str(found)
    assert found.is_poisson


def test_tensors_of_a_coupled_model_have_their_own() -> None:
    model = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)
    rng = np.random.default_rng(0)
    A, B, D = (rng.gamma(1.0, 1.0, (n, 2)) for n in (60, 50, 70))
    X, Y = A @ B.T, B @ D.T
    data = {"X": rng.poisson(X * rng.gamma(0.5, 2, X.shape)), "Y": rng.poisson(Y)}
    fit = model.fit(data, dispersion="index:i")
    assert fit.dispersion["X"].index == "i"
    assert fit.dispersion["Y"].index is None
    assert 0.3 < np.median(fit.dispersion["X"].size) < 0.9
    assert "X: counts vary" in repr(fit)
    assert "Y: " in repr(fit)


def test_what_is_given_is_taken(tmp_path: Path) -> None:
    fit = MODEL.fit(overdispersed(0, 1.0), dispersion=2.5)
    assert fit.dispersion["X"].size == 2.5
    assert "(size 2.5, given)" in repr(fit)
    assert fit.options["dispersion"] == "2.5"
    assert MODEL.fit(overdispersed(0, 1.0), dispersion=None, max_iter=3, tol=0).options["dispersion"] == "None"


@pytest.mark.parametrize("given", [0, -1, True, "often", "index", np.nan, [1.0]])
def test_bad_values_are_refused(given: Any) -> None:
    with pytest.raises(pltf.PltfError, match="dispersion must be 'auto', None, a size above 0 or 'index:NAME', got"):
        MODEL.fit(-np.ones((3, 3)), dispersion=given)


def test_an_unknown_index_is_refused_before_any_work() -> None:
    with pytest.raises(pltf.PltfError, match=r"dispersion must name an observed index \(i, j\), got 'index:r'"):
        MODEL.fit(-np.ones((3, 3)), dispersion="index:r")


@pytest.mark.parametrize("ask", ["auto", "index:j", None])
def test_files_keep_it(ask: str | None, tmp_path: Path) -> None:
    fit = MODEL.fit(overdispersed(0, 1.0), dispersion=ask)
    fit.save(tmp_path / "run.nc")
    again = pltf.load(tmp_path / "run.nc")
    assert isinstance(again, pltf.Fit)
    assert repr(again) == repr(fit)
    at = [(0, 0), (5, 7)]
    assert np.array_equal(again.prob(at, 4), fit.prob(at, 4))


def test_new_rows_take_that_of_the_fit() -> None:
    X = overdispersed(0, 1.0)
    fit = MODEL.fit(X, dispersion="index:i")
    new = fit.fold_in(X[:2], index="i")
    assert new.dispersion["X"].index is None
    assert new.dispersion["X"].size == pytest.approx(np.exp(np.log(fit.dispersion["X"].size).mean()))
    columns = fit.fold_in(X[:, :2], index="j").dispersion["X"]
    assert columns.index == "i"
    assert np.array_equal(columns.size, fit.dispersion["X"].size)


@pytest.mark.filterwarnings("ignore:the best candidate")
def test_a_search_estimates_that_of_its_winner() -> None:
    found = pltf.select(MODEL, overdispersed(0, 1.0), r=[2, 3], restarts=1, tol=1e-3, criterion="bound")
    assert found.best_fit.dispersion["X"].cells > 0
    off = pltf.select(MODEL, overdispersed(0, 1.0), r=[2, 3], restarts=1, tol=1e-3, criterion="bound", dispersion=None)
    assert not off.best_fit.dispersion


def test_checkpoints_hold_it_and_resume(tmp_path: Path) -> None:
    X, path = overdispersed(0, 1.0), tmp_path / "work.nc"
    fit = MODEL.fit(X, checkpoint=path)
    again = MODEL.fit(X, checkpoint=path, resume=True)
    assert str(again.dispersion["X"]) == str(fit.dispersion["X"])
    with pytest.raises(pltf.PltfError, match="different call"):
        MODEL.fit(X, checkpoint=path, resume=True, dispersion=3.0)


def test_an_interrupt_of_the_estimate_leaves_the_fit() -> None:
    fit = MODEL.fit(overdispersed(0, 1.0), dispersion=None)
    found = estimating.dispersions(fit, {"X": pltf.observe(overdispersed(0, 1.0))}, "auto", lambda train: None)
    assert found["X"].note == "the estimate was interrupted"
    assert found["X"].is_poisson


def test_threads_do_not_change_it() -> None:
    X = overdispersed(0, 1.0)
    one, two = (MODEL.fit(X, threads=n, max_iter=40, tol=0).dispersion["X"] for n in (1, 2))
    assert one.size == two.size
    assert one.factor == two.factor


def test_a_single_index_has_a_dispersion() -> None:
    fit = pltf.cp(("i",), rank=1).fit(np.random.default_rng(0).poisson(3.0, 300))
    assert list(fit.dispersion) == ["X"]
