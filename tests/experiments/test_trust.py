"""The measures behind the page "Can I trust it?", and a quick run of all of it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.trust import measures, noise, ours, sets
from experiments.trust.peers import soft_impute
from experiments.trust.store import Store, complete
from experiments.trust.summary import recommended
from experiments.trust.tasks import FOLDS, INNER, task
from scipy import stats


def _said(x: Any, law: Any) -> measures.Predicted:
    return measures.Predicted(law.mean() * np.ones(x.shape), law.logpmf(x), law.sf(x - 1), law.cdf(x))


@pytest.mark.parametrize("mean", [0.02, 0.5, 3.0, 40.0])
def test_coverage_of_a_right_distribution_is_its_level_for_small_counts_too(mean: float) -> None:
    law = stats.poisson(mean)
    x = law.rvs(size=40_000, random_state=1)
    assert measures.covered(_said(x, law)) == pytest.approx(measures.LEVEL, abs=0.01)


def test_coverage_sees_counts_that_vary_more_than_they_should() -> None:
    x = stats.nbinom(1, 1 / 11).rvs(size=4000, random_state=1)  # mean 10
    said = _said(x, stats.poisson(10))
    assert measures.covered(said) < 0.5
    assert measures.held(said) < 0.5
    assert measures.measured(x, said)["alarms"] > 0.02


def test_noise_finds_mean_and_size() -> None:
    rng = np.random.default_rng(0)
    truth = rng.gamma(2.0, 5.0, (200, 50))
    X = rng.negative_binomial(2.0, 2.0 / (2.0 + truth)).astype(float)
    found = noise.likeliest(X.ravel(), truth.ravel() / 3, links=False)
    assert found.size == pytest.approx(2.0, rel=0.1)
    assert found.mean(truth / 3) == pytest.approx(truth, rel=0.1)


def test_probabilities_of_links_add_up() -> None:
    links = noise.Noise(scale=2.0, floor=0.1, power=0.8, size=1.0, links=True)
    predictions = np.array([0.0, 0.3, 4.0])
    one, none = (links.log_prob(np.full(3, x), predictions) for x in (1.0, 0.0))
    assert np.exp(one) + np.exp(none) == pytest.approx(1.0)


def test_settings_are_chosen_on_training_cells_alone() -> None:
    X = sets.few_imports()
    outer = task(X, 0.5, 0, links=True)
    folds = outer.inner()
    assert len(folds) == FOLDS
    assert np.sum([fold.hidden for fold in folds], axis=0).max() == 1
    for inner in folds:
        assert inner.hidden.sum() == pytest.approx(INNER * outer.keep.sum(), rel=0.01)
        assert not (inner.hidden & outer.hidden).any()
        assert ((inner.keep | inner.hidden) == outer.keep).all()


def test_soft_impute_completes_a_table_of_low_rank() -> None:
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 40))
    keep = rng.random(Y.shape) < 0.7
    for table, seen in ((Y, keep), (Y.T, keep.T)):
        found = soft_impute(table, seen, 0.01)
        assert np.corrcoef(found[~seen], table[~seen])[0, 1] > 0.98


def test_the_way_of_pltf_is_chosen_by_held_back_cells() -> None:
    ways = {"pltf, VB": ((-1.0, 0.9), (-2.0, 0.1)), "pltf, Gibbs": ((-2.0, 0.2), (-1.0, 0.8)), "SVD": ((0.0, 1.0),) * 2}
    rows = [
        {"tool": tool, "masks": [{"inner": inner, "auc": auc} for inner, auc in masks]} for tool, masks in ways.items()
    ]
    assert [mask["auc"] for mask in recommended(rows)["masks"]] == [0.9, 0.8]


@pytest.mark.parametrize("way", ours.WAYS, ids=lambda way: way.name)
def test_a_way_refers_to_what_there_is(way: ours.Way) -> None:
    others = {other.name: other for other in ours.WAYS}
    assert not way.like or others[way.like].links == way.links
    for name, prior in itertools.product(ours.MODELS, way.priors):
        assert ours.PRIORS[prior](ours.MODELS[name](2))


def test_an_option_that_pltf_does_not_have_keeps_a_way_out() -> None:
    assert ours.known(ours.Way("plain", {"dispersion": None}))
    assert not ours.known(ours.Way("odd", {"no_such_option": 1}))


def test_starts_are_averaged_as_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    outer = task(sets.few_digits(), 0.5, 0)
    fits = ours.fits(outer, ours.Way("two", starts=2), "NMF", 2, "default")
    monkeypatch.setattr(ours, "DRAWS", ours.FEWEST)  # of one fit and of two the same ones
    one, other = (ours.predicted([fit], outer) for fit in fits)
    both = ours.predicted(fits, outer)
    assert both.score == pytest.approx((one.score + other.score) / 2)
    assert np.exp(both.log_prob) == pytest.approx((np.exp(one.log_prob) + np.exp(other.log_prob)) / 2)


def test_a_run_that_was_broken_off_goes_on(tmp_path: Path) -> None:
    store, done = Store(tmp_path / "results", cores=1), []

    def work(name: str, mask: int) -> dict[str, Any]:
        if name == "bad":
            raise KeyboardInterrupt
        done.append((name, mask))
        return {"mask": mask}

    with pytest.raises(KeyboardInterrupt):
        list(complete(store, "some", work, [("a b/c", 0), ("bad", 1), ("d", 2)]))
    found = dict(complete(store, "some", work, [("a b/c", 0), ("d", 2)]))
    assert {key: one["mask"] for key, one in found.items()} == {("a b/c", 0): 0, ("d", 2): 2}
    assert all(one["seconds"] >= 0 for one in found.values())
    assert done == [("a b/c", 0), ("d", 2)]


def test_imports_are_links_between_modules() -> None:
    table = sets.imports()
    assert table.shape == (312, 150)
    assert int(table.sum()) == 1916
    assert table.max() == 1
    assert (table.sum(axis=0) >= 2).all()
    assert (table.sum(axis=1) >= 2).all()


@pytest.mark.slow
@pytest.mark.extra("plot")
def test_quick_run_writes_the_page(tmp_path: Path) -> None:
    from experiments.trust.__main__ import main

    main(["--quick", "--only", "real", "order", "drawn", "ranking", "--out", str(tmp_path)])
    text = (tmp_path / "trust.md").read_text()
    assert "| popularity |" in text
    assert "| **pltf, chosen** |" in text
    assert (tmp_path / "figures" / "trust-leads.svg").exists()
    before = text.split("## Run it again")[0]
    main(["--quick", "--only", "page", "--out", str(tmp_path)])
    assert (tmp_path / "trust.md").read_text().split("## Run it again")[0] == before
