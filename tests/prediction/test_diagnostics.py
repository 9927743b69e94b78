"""R-hat and effective sample sizes against ArviZ."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from pltf.gamma import Array
from pltf.prediction.diagnostics import ess, rhat, table, trouble

RNG = np.random.default_rng(0)


def slow(chains: int, draws: int, memory: float) -> Array:
    """Autoregressive chains."""
    out = RNG.normal(size=(chains, draws))
    for n in range(1, draws):
        out[:, n] += memory * out[:, n - 1]
    return out


CHAINS = {
    "independent": RNG.normal(size=(4, 200)),
    "slow": slow(4, 201, 0.9),
    "very slow": slow(3, 100, 0.995),
    "alternating": slow(4, 300, -0.7),
    "apart": RNG.normal(size=(4, 100)) + np.arange(4)[:, None],
    "one chain": slow(1, 150, 0.5),
    "heavy tails": RNG.standard_cauchy(size=(4, 120)),
    "ties": RNG.poisson(1.0, size=(4, 90)).astype(float),
    "few": RNG.normal(size=(2, 8)),
}


@pytest.mark.extra("arviz")
@pytest.mark.parametrize("name", CHAINS)
def test_both_are_those_of_arviz(name: str) -> None:
    arviz: Any = import_module("arviz")  # it has no types
    draws = CHAINS[name]
    assert ess(draws) == pytest.approx(float(arviz.ess(draws)), rel=1e-10)
    if len(draws) > 1:  # ArviZ wants two chains, and does not mind that each is two
        assert rhat(draws) == pytest.approx(float(arviz.rhat(draws)), rel=1e-10)


def test_what_never_changes_is_no_trouble() -> None:
    assert (rhat(np.ones((2, 10))), ess(np.ones((2, 10)))) == (1.0, 20.0)


def test_of_several_quantities_median_and_worst_are_told() -> None:
    good, bad = CHAINS["independent"], CHAINS["independent"] + 3.0 * np.arange(4)[:, None]
    found = table({"rates": np.stack([good, good, bad], axis=2), "one": good})
    assert found.index.tolist() == ["rates, median", "rates, worst", "one"]
    assert found.loc["rates, median", "rhat"] == rhat(good)
    assert found.loc["rates, worst", "rhat"] == rhat(bad)
    assert trouble(found) == ""
    assert "R-hat of one is" in trouble(table({"one": bad}))
    assert "one has an effective sample size of" in trouble(table({"one": slow(2, 80, 0.3)[:, :48]}))
