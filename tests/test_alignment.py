"""Draws with components in another order, and factors at other scales, come back to the reference."""

from __future__ import annotations

import numpy as np
import pytest

import pltf
from pltf.alignment import align, exchangeable
from pltf.inference.balance import trades

SIZES = {"i": 6, "j": 5, "k": 4, "r": 3, "p": 2, "q": 3}
CP, TUCKER = pltf.Model("ir,jr,kr->ijk", r=3), pltf.Model("ip,jq,kr,pqr->ijk", p=2, q=3, r=3)


@pytest.mark.parametrize("model", [CP, TUCKER])
def test_order_and_scale_come_back(model: pltf.Model) -> None:
    shapes = {a: tuple(SIZES[i] for i in indices) for a, indices in model.factors.items()}
    rng = np.random.default_rng(0)
    reference = {a: rng.gamma(0.5, size=shape) + 0.01 for a, shape in shapes.items()}
    draws = {a: np.stack([[one, one.copy()]]) for a, one in reference.items()}
    mass = {index: np.tile(np.arange(float(size)), (1, 2, 1)) for index, size in model.sizes.items()}
    for index, size in model.sizes.items():
        order = np.roll(np.arange(size), 1)
        holding = [a for a, indices in model.factors.items() if index in indices]
        for a in holding:
            axis = model.factors[a].index(index)
            scale = {holding[0]: 7.0, holding[1]: 1 / 7}.get(a, 1.0)
            draws[a][0, 1] = draws[a][0, 1].take(order, axis=axis) * scale
        mass[index][0, 1] = mass[index][0, 1][order]
    priors = dict.fromkeys(shapes, pltf.Gamma())
    moved = align(model, SIZES, priors, trades(model, {}), reference, draws, {}, mass)
    assert moved == 1
    for a, one in reference.items():
        np.testing.assert_allclose(draws[a][0, 0], one)
        np.testing.assert_allclose(draws[a][0, 1], one, rtol=1e-4)
    for index, size in model.sizes.items():
        np.testing.assert_array_equal(mass[index][0], np.tile(np.arange(size), (2, 1)))


def test_components_that_differ_beforehand_stay() -> None:
    drawn = dict.fromkeys(CP.factors, np.ones(1))
    same, own = pltf.Gamma(), pltf.Gamma(0.5, np.array([1.0, 2.0, 3.0]))
    learned = pltf.Gamma(0.5, np.array([[1.0, 2.0, 3.0]]), learn="mean", tie="component")
    assert exchangeable(CP, dict.fromkeys(drawn, same), drawn) == ("r",)
    assert exchangeable(CP, {**dict.fromkeys(drawn, same), "Z1": own}, drawn) == ()
    assert exchangeable(CP, {**dict.fromkeys(drawn, same), "Z1": learned}, drawn) == ("r",)
    assert exchangeable(CP, dict.fromkeys(drawn, same), {"Z1": np.ones(1)}) == ()  # the others are fixed
