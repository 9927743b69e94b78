"""Engines add: however the cells are cut, the sums are those of the whole."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings

import pltf
from pltf.engines.base import Engine
from pltf.engines.closed_form import ClosedForm
from pltf.engines.factors import Versioned
from pltf.engines.sum import SumEngine, Summand
from tests.contract.test_engines import ENGINES, Build
from tests.reference import Array
from tests.strategies import Case, cases


@pytest.mark.parametrize("build", ENGINES.values(), ids=list(ENGINES))
@settings(max_examples=10)
@given(case=cases())
def test_engines_and_what_they_remember_survive_pickling(case: Case, build: Build) -> None:
    engine, factors = build(case, threads=2), Versioned(case.init)
    remembered = {name: engine.exposure(factors, name) for name in factors}
    other, there = pickle.loads(pickle.dumps((engine, factors)))
    assert there.versions(factors) == factors.versions(factors)
    for name in factors:
        np.testing.assert_array_equal(other.exposure(there, name), remembered[name])
        np.testing.assert_array_equal(other.counts(there).by_factor[name], engine.counts(factors).by_factor[name])
    changed = there.updated({name: there[name] * 2 for name in list(there)[:1]})
    for name in factors:  # and notice that a factor has changed
        np.testing.assert_allclose(other.exposure(changed, name), build(case).exposure(dict(changed), name), rtol=1e-12)


class Counting:
    """An engine that counts how often it is asked."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.names, self.asked = engine, engine.names, 0

    def exposure(self, factors: Versioned[Array], of: str) -> Array:
        self.asked += 1
        return self._engine.exposure(factors, of)

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)


def test_a_total_after_the_last_exposure_is_free() -> None:
    model = pltf.nmf(rank=2)
    closed = Counting(ClosedForm(model.equations[0], {"i": 4, "j": 3, "r": 2}))
    engine = SumEngine([Summand(closed, counts=False)])  # type: ignore[arg-type]
    factors = Versioned({"W": np.ones((4, 2)), "H": np.ones((2, 3))})
    engine.exposure(factors, "W")
    factors = factors.updated({"W": np.full((4, 2), 2.0)})
    assert engine.total(factors) == 4 * 3 * 2 * 2
    assert closed.asked == 1


def test_versions_are_never_handed_out_twice() -> None:
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2) as pool:
        seen = pool.map(_versions, range(8))
    assert len({version for some in seen for version in some}) == 8 * 3


def _versions(_: int) -> tuple[int, ...]:
    return Versioned({"A": 1, "B": 2, "C": 3}).versions("ABC")
