"""The door of links: what is refused, what "auto" chooses and says, and where the likelihood goes with a fit."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import pltf
import pltf.metrics
import pltf.report
from pltf.data import Observation
from pltf.likelihoods import is_binary, looks_like_links
from pltf.options import FitOptions
from pltf.sklearn import PoissonNMF
from tests.cli import here

MODEL = pltf.nmf(rank=2)
COUPLED = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,k] = B[j,r] * C[k,r]", r=2)
X = np.kron(np.eye(2), np.ones((4, 3)))
X[0, 5], X[6, 1] = 1.0, np.nan
Y = np.arange(12.0).reshape(6, 2)
LINKS = "bernoulli"
HINT = "all observed values of X are 0 or 1: if they are links, use likelihood 'bernoulli'"
QUICK: dict[str, Any] = {"max_iter": 8, "tol": 0}


@pytest.fixture(scope="module")
def links() -> pltf.Fit:
    return MODEL.fit(X, likelihood=LINKS)


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        ("gauss", "likelihood must be one of 'poisson', 'bernoulli', 'auto', or a mapping from tensor to one of these; "
         "got 'gauss'"),
        (None, "got None"),
        (["poisson"], r"got \['poisson'\]"),
        ({"X": "gauss"}, r"likelihood\['X'\] must be one of 'poisson', 'bernoulli', 'auto'; got 'gauss'"),
        ({"Q": "bernoulli"}, "unknown tensor 'Q' in likelihood: the model has X"),
    ],
)  # fmt: skip
def test_refused(likelihood: Any, message: str) -> None:
    """Before the data are read: these would be refused too."""
    with pytest.raises(pltf.PltfError, match=message) as refused:
        MODEL.fit(-np.ones((4, 3)), likelihood=likelihood)
    assert refused.value.argument == "likelihood"


def in_storages(array: Any) -> list[Observation]:
    listed = np.argwhere(array != 0)
    values = array[tuple(listed.T)]
    return [
        pltf.observe(array),
        pltf.observe((listed, values), shape=array.shape),
        pltf.observe((listed, values), shape=array.shape, unlisted="missing"),
        pltf.observe(np.where(array == 0, np.nan, array)),
    ]


@pytest.mark.parametrize(("value", "shown"), [(2.0, "2"), (0.5, "0.5"), (1e9, "1e\\+09")])
def test_other_values_than_0_and_1_are_refused(value: float, shown: str) -> None:
    data = np.eye(5)
    data[3, 2] = value
    message = rf"X must hold only 0 and 1 under likelihood='bernoulli', but cell \(3, 2\) holds {shown}"
    for seen in in_storages(data):
        for refuses in (MODEL.fit, lambda *a, **o: pltf.select(MODEL, *a, r=[1, 2], **o)):
            with pytest.raises(pltf.ObservationError, match=message):
                refuses(seen, likelihood=LINKS)


def test_what_a_missing_cell_holds_does_not_matter() -> None:
    data, mask = np.where(np.eye(4) > 0, 7.0, 1.0), ~np.eye(4, dtype=bool)
    data[0, 1] = 0.0
    assert MODEL.fit(data, mask=mask, likelihood=LINKS, **QUICK).likelihoods == {"X": LINKS}


def test_a_value_beyond_the_first_block_is_found() -> None:
    data = np.zeros((700, 800))
    data[650, 799] = 3.0
    with pytest.raises(pltf.ObservationError, match=r"cell \(650, 799\) holds 3"):
        MODEL.fit(data, likelihood=LINKS)


# -- what is chosen -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "chosen", "why"),
    [
        (X, LINKS, "X was taken as links (bernoulli): all 47 observed values are 0 or 1"),
        (X > 0, LINKS, "X was taken as links (bernoulli): all 48 observed values are 0 or 1"),
        (3 * np.eye(4), "poisson", "X was taken as counts (poisson): it holds 3"),
        (0.5 * np.eye(4), "poisson", "X was taken as counts (poisson): it holds 0.5"),
        (np.ones((3, 3)), "poisson", "X was taken as counts (poisson): all observed values are 1"),
        (np.zeros((3, 3)), "poisson", "X was taken as counts (poisson): all observed values are 0"),
    ],
)
def test_auto_looks_at_the_data(data: Any, chosen: str, why: str) -> None:
    fit = MODEL.fit(data, likelihood="auto", **QUICK)
    assert fit.likelihoods == {"X": chosen}
    assert [note for note in fit.notes if "whole numbers" not in note] == [why]
    same = MODEL.fit(data, likelihood=chosen, **QUICK)
    np.testing.assert_array_equal(fit.trace, same.trace)


def test_only_binary_data_are_binary() -> None:
    for seen in in_storages(np.eye(4)):
        assert is_binary(seen)
    assert [looks_like_links(seen) for seen in in_storages(np.eye(4))] == [True, True, False, False]
    for value in (2.0, 0.5, 1 - 1e-9):
        assert not any(is_binary(seen) for seen in in_storages(np.where(np.eye(4) > 0, [1, 1, 1, value], 0)))
    assert is_binary(pltf.observe(np.array([True, False])))


def test_the_default_is_poisson_with_a_hint() -> None:
    fit = MODEL.fit(X, **QUICK)
    assert fit.likelihoods == {"X": "poisson"}
    assert fit.notes == (HINT,)
    assert MODEL.fit(2 * X, **QUICK).notes == ()
    assert MODEL.fit(X, likelihood=LINKS, **QUICK).notes == ()
    np.testing.assert_array_equal(fit.trace, MODEL.fit(X, likelihood="poisson", **QUICK).trace)


@pytest.mark.parametrize("method", ["vb", "em", "map"])
def test_values_that_are_no_counts_are_told(method: str) -> None:
    data = np.nan_to_num(3.0 * X) + 1
    data[1, 2] = 2.5
    told = "X holds values that are not whole numbers, such as 2.5 in cell (1, 2): factors and means are valid; "
    for seen in in_storages(data):
        (note,) = MODEL.fit(seen, method=method, **QUICK).notes
        assert note.startswith(told)
        assert MODEL.fit(seen, likelihood="auto", method=method, **QUICK).notes[1:] == (note,)
    assert MODEL.fit(np.where(data == 2.5, np.nan, data), method=method, **QUICK).notes == ()
    named = pltf.observe(data, dims=("user", "place"), labels={"user": [f"u{n}" for n in range(len(data))]})
    assert "such as 2.5 in cell ('u1', 2)" in pltf.nmf(("user", "place"), rank=2).fit(named, **QUICK).notes[0]


def test_each_tensor_is_chosen_for() -> None:
    assert COUPLED.fit({"X": X, "Y": Y}, likelihood="auto", **QUICK).likelihoods == {"X": LINKS, "Y": "poisson"}
    fit = COUPLED.fit({"X": X, "Y": Y}, likelihood={"X": "auto"}, **QUICK)
    assert fit.likelihoods == {"X": LINKS, "Y": "poisson"}
    assert "vb, bernoulli for X, poisson for Y, float64" in repr(fit)
    with pytest.raises(pltf.ObservationError, match="Y must hold only 0 and 1"):
        COUPLED.fit({"X": X, "Y": Y}, likelihood=LINKS)


# -- where it goes ------------------------------------------------------------------------------


def test_predictions_are_of_links(links: pltf.Fit) -> None:
    assert "vb, bernoulli, float64" in repr(links)
    rates = links.sample(2000, at=[(6, 1)], seed=1)
    assert links.prob(at=[(6, 1)])[0] == pytest.approx(float(-np.expm1(-rates).mean()), abs=0.03)
    assert links.prob(at=[(6, 1)], atleast=2)[0] == 0
    assert set(np.unique(links.sample(50, counts=True))) == {0, 1}
    assert np.exp(links.log_prob([(0, 0)], [1])[0]) + np.exp(links.log_prob([(0, 0)], [0])[0]) == pytest.approx(1)


def test_files_keep_it(links: pltf.Fit, tmp_path: Path) -> None:
    noted = MODEL.fit(X, likelihood="auto", **QUICK)
    for fit in (links, noted, COUPLED.fit({"X": X, "Y": Y}, likelihood="auto", **QUICK)):
        fit.save(tmp_path / "fit.nc")
        for again in (pltf.load(tmp_path / "fit.nc"), pickle.loads(pickle.dumps(fit))):
            assert isinstance(again, pltf.Fit)
            assert (again.likelihoods, again.notes) == (fit.likelihoods, fit.notes)
            np.testing.assert_array_equal(again.prob(of="X", draws=20), fit.prob(of="X", draws=20))


def test_old_files_are_poisson() -> None:
    old = pltf.load(Path(__file__).parent / "files" / "fit-1.nc")
    assert isinstance(old, pltf.Fit)
    assert old.likelihoods == dict.fromkeys(old.model.observed, "poisson")


def test_a_checkpoint_is_of_one_likelihood(tmp_path: Path) -> None:
    options: dict[str, Any] = {"checkpoint": tmp_path / "kept.nc", "resume": True, "max_iter": 5, "tol": 0}
    first = MODEL.fit(X, likelihood=LINKS, **options)
    assert MODEL.fit(X, likelihood=LINKS, **options).bound == first.bound
    with pytest.raises(pltf.PltfError, match="is the fit of a different call"):
        MODEL.fit(X, **options)
    assert FitOptions(likelihood=LINKS).identity() == {**FitOptions().identity(), "likelihood": LINKS}
    assert FitOptions(likelihood={"X": LINKS}).as_code() == {"likelihood": "{'X': 'bernoulli'}"}


def test_a_fit_goes_on_from_another(links: pltf.Fit) -> None:
    """With the same likelihood its trace continues; from counts to links it starts anew, from that point."""
    short = MODEL.fit(X, likelihood=LINKS, max_iter=5, tol=0)
    longer = MODEL.fit(X, likelihood=LINKS, max_iter=5, tol=0, init=short)
    np.testing.assert_array_equal(longer.trace, MODEL.fit(X, likelihood=LINKS, max_iter=10, tol=0).trace)
    other = MODEL.fit(X, likelihood=LINKS, init=MODEL.fit(X))
    assert other.bound == pytest.approx(links.bound, rel=0.1)
    assert other.likelihoods == {"X": LINKS}


def test_fold_in_keeps_it(links: pltf.Fit) -> None:
    new = links.fold_in([1, 1, np.nan, 0, 0, 0], index="i", **QUICK)
    assert new.likelihoods == {"X": LINKS}
    kept = {"H": links.factors["H"].mean}
    prior = {"W": pltf.Gamma(links.priors["W"].shape, links.priors["W"].mean)}
    by_hand = MODEL.fit(np.array([[1, 1, np.nan, 0, 0, 0]]), fixed=kept, prior=prior, likelihood=LINKS, **QUICK)
    assert new.bound == by_hand.bound
    assert new.prob(at=[(0, 2)])[0] > new.prob(at=[(0, 5)])[0]
    with pytest.raises(pltf.ObservationError, match="must hold only 0 and 1"):
        links.fold_in([2, 0, 0, 0, 0, 0], index="i")
    coupled = COUPLED.fit({"X": X, "Y": Y}, likelihood="auto", **QUICK)
    assert coupled.fold_in({"Y": [3, 4]}, index="j", **QUICK).likelihoods == {"X": LINKS, "Y": "poisson"}


def test_a_search_hands_it_on() -> None:
    found = pltf.select(MODEL, X, r=[1, 2, 3], restarts=2, likelihood="auto", workers=1, criterion="bound")
    assert found.best_fit.likelihoods == {"X": LINKS}
    row = found.table[(found.table["r"] == 2) & (found.table["restart"] == 1)].iloc[0]
    again = MODEL.fit(X, likelihood=LINKS, seed=int(row["seed"]))
    assert again.bound == row["bound"]


def test_scikit_learn() -> None:
    data = np.nan_to_num(X)
    model = PoissonNMF(2, random_state=0, likelihood="auto").fit(data)
    assert model.fit_.likelihoods == {"X": LINKS}
    ones = model.transform(np.array([[1, 1, 1, 1, 1, 1]]))  # as links, though nothing in them is zero
    assert ones.shape == (1, 2)
    assert model.score(data) > PoissonNMF(2, random_state=0).fit(data).score(data)
    listed = PoissonNMF(2, random_state=0, likelihood=LINKS).fit(sparse.csr_array(data))
    assert listed.bound_ == pytest.approx(model.bound_, rel=1e-6)
    with pytest.raises(pltf.PltfError, match="must hold only 0 and 1"):
        PoissonNMF(2, likelihood=LINKS).fit(2 * data)


def test_the_command_line(tmp_path: Path) -> None:
    np.save(tmp_path / "links.npy", X)
    np.save(tmp_path / "counts.npy", 2 * X)
    call = ("fit", tmp_path / "links.npy", "--nmf", 2, "-o", tmp_path / "run.nc", "--force")
    assert HINT in here(*call).out
    told = here(*call, "--likelihood", "auto").out
    assert "note         X was taken as links (bernoulli): all 47 observed values are 0 or 1" in told
    facts = json.loads(here(*call, "--likelihood", "bernoulli", "--json").out)
    assert (facts["likelihoods"], facts["notes"]) == ({"X": LINKS}, [])
    refused = here("fit", tmp_path / "counts.npy", "--nmf", 2, "-o", tmp_path / "no.nc", "--likelihood", "bernoulli")
    assert refused.code == 2
    assert refused.err == "pltf: X must hold only 0 and 1 under --likelihood bernoulli, but cell (0, 0) holds 2\n"
    (tmp_path / "visits.csv").write_text("user,week,visits\nann,2026-11-09,1\nbob,2026-11-16,3\n")
    visits = (
        "--index",
        "user,week:week",
        "--value",
        "visits",
        "--nmf",
        1,
        "-o",
        tmp_path / "no.nc",
        "--likelihood",
        "bernoulli",
    )
    refused = here("fit", tmp_path / "visits.csv", *visits)
    assert refused.err.endswith("under --likelihood bernoulli, but cell ('bob', 2026-11-16) holds 3\n")
    search = ("select", tmp_path / "links.npy", "--nmf", "1:2", "--restarts", 1, "--likelihood", "auto")
    assert "X was taken as links" in here(*search).out


def test_the_report(links: pltf.Fit, tmp_path: Path) -> None:
    pltf.report.write(links, tmp_path / "links.html")
    page = (tmp_path / "links.html").read_text()
    assert "bernoulli: links, 1 where a Poisson count of the rate is above zero" in page
    assert "likelihood='bernoulli'" in page.replace("&#39;", "'")  # the call in Python
    pltf.report.write(MODEL.fit(X, **QUICK), tmp_path / "counts.html")
    assert "All observed values of X are 0 or 1" in (tmp_path / "counts.html").read_text()


def test_scores_of_links_expect_their_probability() -> None:
    rng = np.random.default_rng(0)
    data = (rng.random((20, 15)) < np.outer(rng.random(20), rng.random(15))) * 1.0
    mask = pltf.holdout(data, 0.3, seed=0)
    fit = pltf.nmf(rank=1).fit(data, mask=mask, likelihood=LINKS)
    scores = pltf.metrics.score(fit, data, ~mask, draws=400)
    p, x = fit.prob(~mask, draws=400), data[~mask]
    np.testing.assert_array_equal(scores.means, p)
    assert ((scores.means <= 1) & (scores.popularity <= 1)).all()
    log_p = np.where(x > 0, np.log(p), np.log1p(-p))
    assert scores.log_likelihood == pytest.approx(log_p.mean(), abs=0.01)
    assert scores.deviance == pytest.approx(-2 * log_p.mean(), rel=1e-9)
    assert scores.rmse == pytest.approx(np.sqrt(((x - p) ** 2).mean()))
    assert scores.table.loc["deviance", "low"] < scores.deviance < scores.table.loc["deviance", "high"]
