"""Files of version 0.1 load, give the same answers, and can be resumed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pltf
from pltf.store.container import read
from tests.store import assert_same, quietly
from tests.store.files_0_1 import make

SAVED = ("labelled", "coupled", "listed", "em", "map", "folded", "search")
FACTS = make.facts()


def loaded(name: str, folder: Path) -> pltf.Fit:
    found = pltf.load(make.unpacked(name, folder))
    return found if isinstance(found, pltf.Fit) else found.best_fit


def in_words_of_today(text: str) -> str:
    """What version 0.1 printed, in today's terms; why a fit stopped is kept in its file as it was written."""
    text = re.sub(r"(result +\S+ \S+ after \d+) sweep", r"\1 iteration", text)
    return re.sub(r"(result +|0\); )bound", r"\1ELBO", text)


@pytest.mark.parametrize("name", SAVED)
def test_it_says_what_it_said(name: str, tmp_path: Path) -> None:
    fit, facts = loaded(name, tmp_path), FACTS[name]
    assert repr(fit) == in_words_of_today(facts["text"])
    assert (fit.bound, fit.trace.tolist()) == (facts["bound"], facts["trace"])
    for a, factor in fit.factors.items():
        np.testing.assert_array_equal(factor.mean, facts["means"][a])
        np.testing.assert_array_equal(factor.var, facts["vars"][a])
    assert fit.components(top=0)["mass"].tolist() == facts["mass"]
    for tensor, expected in facts["expected"].items():
        np.testing.assert_allclose(fit.mean(of=tensor), expected, rtol=1e-14)


@pytest.mark.parametrize("name", SAVED)
def test_it_answers(name: str, tmp_path: Path) -> None:
    """Whatever needs the data, or the posterior."""
    fit = loaded(name, tmp_path)
    for tensor in fit.model.observed:
        shape = tuple(fit.sizes[index] for index in fit.model.observed[tensor])
        assert fit.sample(2, of=tensor).shape == (2, *shape)
        assert ((fit.prob(of=tensor, draws=9) > 0) & (fit.prob(of=tensor, draws=9) <= 1)).all()
        assert len(fit.top(2, "missing" if tensor == "X" else "all", of=tensor)) == 2
    if name not in ("coupled", "folded"):  # these have no zero
        assert len(fit.top(2, "zero")) == 2
    fit.to_xarray()


def test_a_search_says_what_it_said(tmp_path: Path) -> None:
    found = pltf.load(make.unpacked("search", tmp_path))
    assert isinstance(found, pltf.Selection)
    assert found.best == FACTS["search"]["best"]
    assert found.table["bound"].tolist() == FACTS["search"]["bounds"]


@pytest.mark.parametrize("name", SAVED)
def test_it_comes_back_from_a_file_of_today(name: str, tmp_path: Path) -> None:
    fit = loaded(name, tmp_path)
    fit.save(tmp_path / "today.nc")
    again = pltf.load(tmp_path / "today.nc")
    assert isinstance(again, pltf.Fit)
    assert_same(fit, again)


@pytest.mark.parametrize("name", make.FITS)
def test_a_fit_goes_on_from_it(name: str, tmp_path: Path) -> None:
    fit, problem = loaded(name, tmp_path), make.FITS[name]
    more = problem.fit(init=fit, tol=0, max_iter=5, restarts=1)
    assert more.trace[: fit.n_iter].tolist() == fit.trace.tolist()
    assert (np.diff(more.trace[fit.n_iter - 1 :]) >= 0).all()
    assert more.bound >= fit.bound


def test_a_fit_is_folded_into(tmp_path: Path) -> None:
    new = loaded("labelled", tmp_path).fold_in(make.CUBE[:2] + 1, "who")
    for a, mean in FACTS["folded"]["means"].items():
        np.testing.assert_allclose(new.factors[a].mean, mean, rtol=1e-10)


@pytest.mark.parametrize("name", ["unfinished", "unfinished_em"])
def test_a_checkpoint_is_gone_on_with(name: str, tmp_path: Path) -> None:
    problem = make.UNFINISHED if name == "unfinished" else make.UNFINISHED_EM
    whole, path = problem.fit(), make.unpacked(name, tmp_path)
    kept = read(path)[1]["going"].arrays["run.trace"]
    gone_on = problem.fit(checkpoint=path, resume=True)
    restart = len(gone_on.rows) - 1
    assert gone_on.rows[restart].n_iter > kept.size
    if gone_on.best_restart == restart:
        assert gone_on.trace[: kept.size].tolist() == kept.tolist()
    _same_as_without_a_break(whole, gone_on)


def test_a_checkpoint_of_a_search_is_gone_on_with(tmp_path: Path) -> None:
    path, whole = make.unpacked("unfinished_search", tmp_path), quietly(make.search)
    gone_on = quietly(make.search, checkpoint=path, resume=True)
    assert (gone_on.best, gone_on.n_candidates) == (whole.best, whole.n_candidates)
    np.testing.assert_allclose(gone_on.table["bound"], whole.table["bound"], rtol=1e-12)
    _same_as_without_a_break(whole.best_fit, gone_on.best_fit)


def _same_as_without_a_break(whole: pltf.Fit, gone_on: pltf.Fit) -> None:
    """To the bit, where this machine rounds as the one did that wrote the file: only then do both begin alike."""
    assert whole.bound == pytest.approx(gone_on.bound, rel=1e-9)
    if whole.best_restart != gone_on.best_restart:
        return  # two that came to the same end: the last bits decide which of them is kept
    assert_close(whole, gone_on)
    if whole.trace.tolist()[:10] == gone_on.trace.tolist()[:10]:
        assert_same(whole, gone_on, seconds=False)


def assert_close(one: pltf.Fit, other: pltf.Fit) -> None:
    np.testing.assert_allclose(one.trace, other.trace, rtol=1e-9)
    for a, factor in one.factors.items():
        np.testing.assert_allclose(factor.mean, other.factors[a].mean, rtol=1e-5)


def test_all_files_are_looked_at() -> None:
    named: Any = {*SAVED, "unfinished", "unfinished_em", "unfinished_search"}
    assert named == {path.name.removesuffix(".nc.gz") for path in make.FOLDER.glob("*.gz")}
