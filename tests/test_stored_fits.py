"""Whole fits of cells that stay on disk: they are those of the same cells in memory, and take what these take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pltf
import pltf.metrics
from pltf.cli.main import run
from pltf.data import CooObservation
from pltf.data.stored import StoredPattern
from pltf.prediction import spread
from tests.extras import TORCH
from tests.on_device import NAMES
from tests.stores import in_memory, stored, write

pytestmark = pytest.mark.extra("io")
SHAPE = (40, 12, 9)
MODEL = pltf.cp(("user", "place", "act"), rank=2)


def cells(unlisted: str = "zero", seed: int = 3, largest: float = np.inf) -> CooObservation:
    rng = np.random.default_rng(seed)
    U, P, A = rng.gamma(0.3, 1.0, (40, 2)), rng.gamma(0.5, 2.0, (12, 2)), rng.gamma(0.5, 2.0, (9, 2))
    x = np.minimum(rng.poisson(np.einsum("ur,pr,ar->upa", U, P, A)), largest)
    known = rng.random(SHAPE) < 0.8
    listed = known & ((x > 0) | (rng.random(SHAPE) < 0.02)) if unlisted == "zero" else known
    options: dict[str, Any] = {"unlisted": unlisted}
    options |= {"missing": np.argwhere(~known)} if unlisted == "zero" else {}
    seen = pltf.observe((np.argwhere(listed), x[listed]), shape=SHAPE, dims=("user", "place", "act"), **options)
    assert isinstance(seen, CooObservation)
    return seen


@pytest.fixture(params=["zero", "missing"])
def seen(request: pytest.FixtureRequest) -> CooObservation:
    return cells(request.param)


def fit(data: Any, model: pltf.Model = MODEL, **options: Any) -> pltf.Fit:
    return model.fit(data, **{"progress": False, "max_iter": 60, "tol": 0.0, **options})


def assert_alike(one: pltf.Fit, other: pltf.Fit, rtol: float = 1e-4) -> None:
    assert one.bound == pytest.approx(other.bound, rel=1e-10)
    for name in one.factors:
        np.testing.assert_allclose(one.factors[name].mean, other.factors[name].mean, rtol=rtol, atol=1e-6)


MODELS = {
    "cp": MODEL,
    "tucker": pltf.tucker(("user", "place", "act"), ranks=(2, 2, 2)),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", ["vb", "em"])
def test_a_fit_of_a_store_is_that_of_its_list(seen: CooObservation, model: str, method: str, tmp_path: Path) -> None:
    opened = stored(seen, tmp_path / "cells", parts=5, kind="uint32")
    one, other = (fit(data, MODELS[model], method=method) for data in (opened, seen))
    assert_alike(one, other)
    assert one.n_observed == other.n_observed
    assert one.engine == "parts"
    assert one.dispersion.keys() == other.dispersion.keys()
    at = np.argwhere(np.ones(SHAPE, dtype=bool))
    np.testing.assert_array_equal(one.supported(at), other.supported(at))
    for among in ("missing", "zero", "all"):
        np.testing.assert_array_equal(
            one.top(5, among).iloc[:, :3].to_numpy(), other.top(5, among).iloc[:, :3].to_numpy()
        )


def test_memory_files_and_threads_give_the_same_bits(seen: CooObservation, tmp_path: Path) -> None:
    opened = stored(seen, tmp_path / "cells", parts=5)
    fits = [fit(data, threads=threads) for data, threads in ((opened, 1), (opened, 2), (opened.in_memory(), 4))]
    for one in fits[1:]:
        np.testing.assert_array_equal(one.trace, fits[0].trace)
        np.testing.assert_array_equal(one.factors["A"].mean, fits[0].factors["A"].mean)
        assert one.spread == fits[0].spread
        assert str(one.dispersion) == str(fits[0].dispersion)


def test_other_cuts_give_the_same_sweeps_to_twelve_digits(seen: CooObservation, tmp_path: Path) -> None:
    found = []
    for parts in (1, 2, 5):
        opened = stored(seen, tmp_path / f"{parts}", parts=parts)
        fits = [
            fit(data, max_iter=8, accelerate=False, dispersion=None, threads=threads)
            for data in (opened, opened.in_memory())
            for threads in (1, 2)
        ]
        for one in fits[1:]:
            np.testing.assert_array_equal(one.trace, fits[0].trace)
            np.testing.assert_array_equal(one.factors["B"].mean, fits[0].factors["B"].mean)
        found.append(fits[0])
    for one in found[1:]:
        np.testing.assert_allclose(one.trace, found[0].trace, rtol=1e-12)
        np.testing.assert_allclose(one.factors["B"].mean, found[0].factors["B"].mean, rtol=1e-12)


def test_the_order_of_the_axes_is_that_of_the_model(seen: CooObservation, tmp_path: Path) -> None:
    opened = stored(seen, tmp_path / "cells", owner=2)
    turned = pltf.Model("X[act,user,place] = A[act,r] * U[user,r] * P[place,r]", r=2)
    assert_alike(fit(opened, turned), fit(seen, turned))


def test_links_and_float32(tmp_path: Path) -> None:
    seen = cells(largest=1)
    opened = stored(seen, tmp_path / "cells", kind="uint8")
    assert_alike(fit(opened, likelihood="auto"), fit(seen, likelihood="auto"))
    one, other = (fit(data, dtype="float32", max_iter=20) for data in (opened, seen))
    assert one.bound == pytest.approx(other.bound, rel=1e-5)
    with pytest.raises(pltf.ObservationError, match=r"X must hold only 0 and 1 .* but cell \(.*\) holds"):
        fit(stored(cells(), tmp_path / "counts"), likelihood="bernoulli")


def test_gibbs(seen: CooObservation, tmp_path: Path) -> None:
    opened = stored(seen, tmp_path / "cells")
    options: dict[str, Any] = {"method": "gibbs", "draws": 20, "burn_in": 10, "chains": 2, "progress": False}
    with pytest.warns(pltf.ConvergenceWarning):
        one, other = (
            MODEL.fit(data, threads=threads, **options) for data, threads in ((opened, 1), (opened.in_memory(), 2))
        )
    np.testing.assert_array_equal(one.draws["A"], other.draws["A"])
    np.testing.assert_allclose(one.mean().sum(), fit(seen).mean().sum(), rtol=0.1)


def test_gibbs_refuses_fractions(tmp_path: Path) -> None:
    seen = pltf.observe(([(0, 1), (3, 2)], [1.5, 2.0]), shape=(5, 5))
    assert isinstance(seen, CooObservation)
    with pytest.raises(pltf.ObservationError, match=r"X must hold whole counts for .*, got 1\.5"):
        pltf.nmf(("a", "b"), rank=1).fit(stored(seen, tmp_path / "cells"), method="gibbs")


def test_scores_of_hidden_cells(seen: CooObservation, tmp_path: Path) -> None:
    opened = stored(seen, tmp_path / "cells")
    tables = []
    for data in (opened, seen):
        split = pltf.holdout(data, 0.2, seed=1)
        one = fit(split.train)
        tables.append(pltf.metrics.score(one, split, resamples=0).table)
        others = pltf.metrics.score(one, data, split.cells, resamples=0).table
        np.testing.assert_array_equal(others["value"], tables[-1]["value"])
        assert pltf.metrics.popularity(data, split.cells).shape == split.values.shape
    one, other = (table[["value", "popularity"]].to_numpy() for table in tables)
    np.testing.assert_allclose(one, other, rtol=1e-5)
    busy, same = (pltf.metrics.popularity(data, [(0, 0, 0), (3, 2, 1)]) for data in (opened, seen))
    np.testing.assert_allclose(busy, same)


def test_a_search(seen: CooObservation, tmp_path: Path) -> None:
    opened = stored(seen, tmp_path / "cells")
    options: dict[str, Any] = {"restarts": 2, "max_iter": 30, "tol": 1e-3, "progress": False, "seed": 1, "widen": False}
    for criterion in ("bound", "heldout"):
        one, other = (
            pltf.select(MODEL, data, r=[1, 2, 3], criterion=criterion, workers=1, **options) for data in (opened, seen)
        )
        assert one.best == other.best
        np.testing.assert_allclose(one.summary()["best"], other.summary()["best"], rtol=1e-6)


def test_a_saved_fit_does_not_open_the_store(seen: CooObservation, tmp_path: Path) -> None:
    opened = stored(seen, tmp_path / "cells")
    one = fit(opened)
    one.save(tmp_path / "run.nc")
    assert one.keeps_data
    for file in (tmp_path / "cells").iterdir():
        file.unlink()
    again = pltf.load(tmp_path / "run.nc")
    assert isinstance(again, pltf.Fit)
    np.testing.assert_array_equal(again.mean(at=[(0, 1, 2)]), one.mean(at=[(0, 1, 2)]))
    assert not again.keeps_data
    assert again.n_observed == one.n_observed
    assert again.top(3, "all").shape == (3, 7)
    with pytest.raises(pltf.PltfError, match=r"a saved fit does not refer to its cell store.*fit\.with_store"):
        again.top(3, "missing")
    again.save(tmp_path / "twice.nc")
    twice = pltf.load(tmp_path / "twice.nc")
    assert isinstance(twice, pltf.Fit)
    assert twice.patterns == again.patterns


def test_a_saved_fit_takes_its_store_again(seen: CooObservation, tmp_path: Path) -> None:
    opened = stored(seen, tmp_path / "cells")
    held = pltf.holdout(opened, 0.2, seed=1)
    for data, name in ((opened, "whole.nc"), (held.train, "train.nc")):
        one = fit(data)
        one.save(tmp_path / name)
        again = pltf.load(tmp_path / name)
        assert isinstance(again, pltf.Fit)
        whole = again.with_store(tmp_path / "cells") if data is opened else again.with_store(held.train)
        assert whole.top(5).equals(one.top(5))
        other = held.train if data is opened else tmp_path / "cells"
        with pytest.raises(pltf.PltfError, match="store must be the cell store that the fit was made from"):
            again.with_store(other)
    with pytest.raises(pltf.PltfError, match="store must be the cell store that the fit was made from"):
        fit(seen).with_store(opened)


def test_without_keep_data(tmp_path: Path) -> None:
    one = fit(stored(cells(), tmp_path / "cells"), keep_data=False)
    assert not one.keeps_data
    assert one.patterns["X"].unlisted == "zero"


def test_fits_go_on_and_checkpoints_know_the_store(tmp_path: Path) -> None:
    opened = stored(cells(), tmp_path / "cells")
    kept: dict[str, Any] = {"checkpoint": tmp_path / "kept.nc"}
    one = fit(opened, max_iter=15, **kept)
    again = fit(opened, max_iter=15, resume=True, **kept)
    np.testing.assert_array_equal(again.trace, one.trace)
    assert isinstance(again.patterns["X"], StoredPattern)
    other = stored(cells(seed=4), tmp_path / "other")
    with pytest.raises(pltf.PltfError, match="data"):
        fit(other, max_iter=15, resume=True, **kept)
    longer = fit(opened, init=one, max_iter=5)
    assert longer.n_iter == 20


def test_updates_and_new_rows(tmp_path: Path) -> None:
    opened, new = stored(cells(), tmp_path / "cells"), cells(seed=5)
    one = fit(opened)
    merged = one.update(new, progress=False, max_iter=20, tol=1e-2)
    assert not merged.keeps_data
    assert len(merged.batches) == 2
    listed = fit(new).update(stored(new, tmp_path / "new"), progress=False, max_iter=20, tol=1e-2)
    assert not listed.keeps_data
    folded = one.fold_in(stored(cells(seed=6), tmp_path / "rows"), "user", progress=False, max_iter=20, tol=1e-2)
    assert folded.factors["A"].mean.shape == (40, 2)


def test_the_sample_of_a_large_store_stands_for_all(monkeypatch: pytest.MonkeyPatch, seen: CooObservation) -> None:
    monkeypatch.setattr(spread, "MOST_SAMPLED", 300)
    at, weights = spread.observed_sample(in_memory(seen), 200)
    held = in_memory(seen)
    assert weights.sum() == pytest.approx(seen.n_observed, rel=0.15)
    assert weights @ held.values_at(at) == pytest.approx(seen.total, rel=0.3)


# -- plans and what is refused ------------------------------------------------------------------


def test_the_plan_tells_that_cells_stay_on_disk(tmp_path: Path) -> None:
    plan = MODEL.plan(stored(cells(), tmp_path / "cells", kind="uint8"), threads=2)
    text = str(plan)
    assert "engine    parts: X stays on disk" in text
    assert "cells in 3 parts on disk" in text
    assert "all others are zero, except" in text
    assert "closed form less" in text
    assert "(on disk)" in text
    assert plan.seconds > 0
    assert plan.flops > 0
    ratings = str(MODEL.plan(stored(cells("missing"), tmp_path / "ratings")))
    assert "all others are missing" in ratings
    assert "the observed cells" in ratings or "observed cells" in ratings


def test_memory_does_not_grow_with_the_cells() -> None:
    small, large = cells(), in_memory(cells())
    more = MODEL.plan(large).work_bytes
    ten = replace(large, parts=large.parts * 10, listed=10 * large.listed, positive=10 * large.positive)
    assert MODEL.plan(ten).work_bytes < more + 50_000
    assert MODEL.plan(large).data_bytes == small.missing.shape[1] * 12


@pytest.mark.skipif(not TORCH, reason="needs PyTorch")
@pytest.mark.parametrize(("model", "method"), [("cp", "map"), ("tucker", "vb")])
def test_a_fit_on_a_device_is_that_of_the_host(seen: CooObservation, model: str, method: str, tmp_path: Path) -> None:
    opened = stored(seen, tmp_path / "cells", parts=5, kind="uint32")
    options: dict[str, Any] = {"method": method, "max_iter": 15, "dispersion": None}
    one, other = (fit(opened, MODELS[model], device=name, **options) for name in (NAMES[0], "cpu"))
    assert_alike(one, other)
    assert one.options["device"] == repr(NAMES[0])
    assert one.device == "cpu", "predictions are made on the host"
    assert one.mean((0, 0, 0)) == pytest.approx(other.mean((0, 0, 0)), rel=1e-4)


@pytest.mark.skipif(not TORCH, reason="needs PyTorch")
@pytest.mark.filterwarnings("ignore::pltf.SelectionWarning")
def test_a_search_on_a_device(tmp_path: Path) -> None:
    options: dict[str, Any] = {"r": [1, 2], "restarts": 1, "criterion": "bound", "max_iter": 5, "tol": 0.0}
    options |= {"progress": False, "dispersion": None}
    opened = stored(cells(), tmp_path / "cells")
    one, other = (pltf.select(MODEL, opened, device=name, **options) for name in (NAMES[0], "cpu"))
    np.testing.assert_allclose(one.table["bound"], other.table["bound"], rtol=1e-10)


def test_an_engine_for_arrays_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pltf.PltfError, match="engine='dense' needs the cells in memory, and X is a cell store"):
        fit(stored(cells(), tmp_path / "cells"), engine="dense")


def test_the_evidence_and_arviz_are_refused(tmp_path: Path) -> None:
    opened = stored(cells(), tmp_path / "cells")
    one = fit(opened)
    with pytest.raises(pltf.PltfError, match="the evidence is for small problems: X must be in memory"):
        one.evidence(opened)
    with pytest.raises(pltf.PltfError, match="the evidence is for small problems: X must be in memory"):
        one.evidence()


def test_lists_that_do_not_fit_are_told_of_stores() -> None:
    with pytest.raises(pltf.PltfError, match=r"write a cell store with pltf\.prepare"):
        pltf.cp(("user", "place", "act"), rank=10**7).fit(cells())


# -- the command line ---------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(cells(), tmp_path / "cells.pltf")


def test_commands_take_a_store(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", "cells.pltf"]) == 0
    assert "3 parts on disk, sorted by user" in capsys.readouterr().out
    assert run(["plan", "cells.pltf", "--cp", "2"]) == 0
    assert "stays on disk" in capsys.readouterr().out
    if TORCH:
        assert run(["plan", "cells.pltf", "--cp", "2", "--device", NAMES[0]]) == 0
        assert f"cells on disk on {NAMES[0]} (" in capsys.readouterr().out
    fitted = ["fit", "cells.pltf", "--cp", "2", "--max-iter", "40", "--tol", "1e-3", "-o", "run.nc", "--holdout", "0.2"]
    assert run(fitted) == 0
    assert run(["score", "run.nc", "cells.pltf"]) == 0
    assert "popularity" in capsys.readouterr().out
    assert run(["predict", "run.nc", "--top", "3", "--among", "all"]) == 0
    assert run(["predict", "run.nc", "--top", "3", "--among", "zero"]) == 2
    assert "name the store with --store" in capsys.readouterr().err
    assert run(["predict", "run.nc", "--top", "3", "--among", "zero", "--store", "cells.pltf"]) == 0
    assert run(["report", "run.nc", "-o", "report.html"]) == 0
    assert run(["report", "run.nc", "-o", "more.html", "--store", "cells.pltf"]) == 0
    assert run(["update", "run.nc", "cells.pltf", "-o", "run2.nc", "--max-iter", "30"]) == 0
    assert run(["select", "cells.pltf", "--cp", "1:2", "--restarts", "2", "-o", "search.nc", "--max-iter", "30"]) == 0
    assert run(["convert", "cells.pltf", "cells.npz"]) == 0
    assert run(["info", "cells.npz"]) == 0


def test_an_update_of_a_fit_of_a_store_has_no_store(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "cells.pltf", "--cp", "2", "--max-iter", "30", "-o", "run.nc", "--holdout", "0.2", "-q"]) == 0
    assert run(["update", "run.nc", "cells.pltf", "-o", "run2.nc", "--max-iter", "30", "-q"]) == 0
    assert run(["score", "run2.nc"]) == 2
    told = "run2.nc does not contain the data that its held-out cells come from: pass a table of cells"
    assert told in capsys.readouterr().err
    assert run(["predict", "run2.nc", "--top", "3"]) == 2
    assert "--store" not in capsys.readouterr().err


def test_commands_refuse_what_a_store_says_itself(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "cells.pltf", "--cp", "2", "--index", "a,b,c", "-o", "run.nc"]) == 2
    assert "--index cannot be used here: cells.pltf is a cell store" in capsys.readouterr().err
    assert run(["fit", "cells.pltf", "--cp", "2", "--missing", "unlisted", "-o", "run.nc"]) == 2
    assert "is a cell store with its own setting" in capsys.readouterr().err
    assert run(["fit", "cells.pltf", "--cp", "2", "--max-iter", "30", "-o", "run.nc", "--holdout", "0.2"]) == 0
    assert run(["score", "run.nc"]) == 2
    assert "its held-out cells come from: name it with --store" in capsys.readouterr().err
    assert run(["score", "run.nc", "--store", "cells.pltf"]) == 0
    Path("new.csv").write_text("user,place,act,n\n1,1,1,3\n2,2,2,0\n5,3,1,2\n")
    assert run(["score", "run.nc", "new.csv", "--value", "n"]) == 0
    assert "popularity is that of its expected counts; --store names its cell store" in capsys.readouterr().err
    assert run(["score", "run.nc", "new.csv", "--value", "n", "--store", "cells.pltf"]) == 0
    assert "of the 3 cells were used in the fit" in capsys.readouterr().err
    assert run(["report", "run.nc", "-o", "page.html"]) == 0
    assert "run.nc does not contain the cell store that it was fitted to" in capsys.readouterr().err
    write(cells(seed=9), store.parent / "other.pltf")
    assert run(["score", "run.nc", "other.pltf"]) == 2
    assert "--store must be the cell store that the fit was made from, but other.pltf is not" in capsys.readouterr().err
