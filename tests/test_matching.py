"""Matching components: profiles against whole tensors, order and scale, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from scipy.linalg import null_space

import pltf
from pltf.inference.algebra import Factors
from pltf.matching import matched, profiles, similarities
from pltf.notation import Equation
from tests.reference import Array
from tests.strategies import models

OBSERVED = {"i": 4, "j": 5, "k": 3, "m": 6}
CP = pltf.cp(rank=3)
MODELS = {
    "cp": (CP, "r"),
    "tucker": (pltf.tucker(ranks=(3, 2, 4)), "p"),
    "train": (pltf.Model("ia,ajb,bk->ijk", a=3, b=4), "b"),
    "shared": (pltf.Model("ir,jr,ij,kr->ijk", r=3), "r"),
    "coupled": (pltf.Model("X[i,j,k] = A[i,r] * B[j,r] * C[k,r]\nY[j,m] = B[j,r] * D[m,r]", r=3), "r"),
    "summed": (pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[m] = A[i,r] * D[m,r]", r=4), "r"),  # Y sums over i, X has it
    "partly": (pltf.Model("X[i,j] = A[i,p] * B[j,p]\nY[j,m] = B[j,p] * G[p,q] * D[m,q]", p=2, q=3), "q"),
    "lone": (pltf.Model("X[i,j] = A[i,r] * B[j,r] * C[s,r]", r=3, s=4), "s"),
}
every_model = pytest.mark.parametrize(("model", "index"), MODELS.values(), ids=MODELS)
seeds = st.integers(0, 2**32 - 1)


def index_sizes(model: pltf.Model, observed: Mapping[str, int] = OBSERVED) -> dict[str, int]:
    return model.index_sizes({name: tuple(observed[i] for i in held) for name, held in model.observed.items()})


def drawn(model: pltf.Model, rng: np.random.Generator, observed: Mapping[str, int] = OBSERVED) -> dict[str, Array]:
    sizes = index_sizes(model, observed)
    shapes = {name: tuple(sizes[i] for i in indices) for name, indices in model.factors.items()}
    return {name: rng.gamma(0.5, 1.0, shape) + 0.01 for name, shape in shapes.items()}


def made(model: pltf.Model, E: Factors) -> pltf.Fit:
    """A fit with these means."""
    sizes = {i: n for name, held in model.factors.items() for i, n in zip(held, E[name].shape, strict=True)}
    fit = fitted(model, tuple((i, sizes[i]) for indices in model.observed.values() for i in indices))
    return replace(fit, C={}, D={}, points=E)


@lru_cache
def fitted(model: pltf.Model, observed: tuple[tuple[str, int], ...]) -> pltf.Fit:
    sizes = dict(observed)
    ones = {name: np.ones(tuple(sizes[i] for i in indices)) for name, indices in model.observed.items()}
    return model.fit(ones, max_iter=1, tol=0)


def of_one_component(equation: Equation, E: Factors, index: str, component: int) -> Array:
    """The whole rate tensor of one value of a latent index."""
    numbers = {i: n for n, i in enumerate(dict.fromkeys(i for term in equation.factors for i in term.indices))}
    operands: list[object] = []
    for term in equation.factors:
        array = E[term.name]
        if index in term.indices:
            array = np.take(array, [component], axis=term.indices.index(index))
        operands += [array, [numbers[i] for i in term.indices]]
    return np.asarray(np.einsum(*operands, [numbers[i] for i in equation.output.indices]))  # type: ignore[call-overload]


def expected_profiles(
    model: pltf.Model, E: Factors, index: str, components: int
) -> tuple[dict[tuple[str, str], Array], Array]:
    along, mass = {}, np.zeros(components)
    for equation in model.equations:
        if not any(index in term.indices for term in equation.factors):
            continue
        tensors = [of_one_component(equation, E, index, component) for component in range(components)]
        mass += [tensor.sum() for tensor in tensors]
        for axis, observed in enumerate(equation.output.indices):
            others = tuple(n for n in range(tensors[0].ndim) if n != axis)
            rows = np.array([tensor.sum(axis=others) for tensor in tensors])
            along[equation.output.name, observed] = rows / np.sqrt((rows**2).sum(axis=1))[:, None]
    return along, mass / mass.sum()


def check_profiles(model: pltf.Model, E: Factors, sizes: Mapping[str, int], index: str) -> None:
    found = profiles(model, E, sizes, index)
    along, share = expected_profiles(model, E, index, sizes[index])
    assert found.along.keys() == along.keys()
    for key, rows in along.items():
        np.testing.assert_allclose(found.along[key], rows, rtol=1e-10, atol=1e-14, err_msg=str(key))
    np.testing.assert_allclose(found.share, share, rtol=1e-10)


def in_order(model: pltf.Model, E: Factors, index: str, order: ArrayLike) -> dict[str, Array]:
    """The same factors with the components of an index in another order."""
    axes = {name: indices.index(index) for name, indices in model.factors.items() if index in indices}
    return {
        name: np.take(E[name], np.asarray(order), axes[name]) if name in axes else E[name] for name in model.factors
    }


def rescaled(model: pltf.Model, E: Factors, index: str, rng: np.random.Generator) -> dict[str, Array]:
    """The same tensors from other factors: scales along an index, of which the product in each equation is 1."""
    holders = [name for name, indices in model.factors.items() if index in indices]
    equations = [[t.name for t in e.factors] for e in model.equations if index in e.summed]
    free = null_space(np.array([[float(name in names) for name in holders] for names in equations]))
    logs = free @ rng.normal(0, 3, (free.shape[1], model.sizes[index]))
    scaled = dict(E)
    for name, log in zip(holders, logs, strict=True):
        indices = model.factors[name]
        scaled[name] = E[name] * np.exp(log).reshape([-1 if i == index else 1 for i in indices])
    return scaled


def cosines(one: Array, other: Array) -> Array:
    """Of every column with every column."""
    dots = np.einsum("na,nb->ab", one, other)
    return np.asarray(dots / np.sqrt((one**2).sum(axis=0)[:, None] * (other**2).sum(axis=0)))


def alike_cp(a: Factors, b: Factors) -> Array:
    return cosines(a["A"], b["A"]) * cosines(a["B"], b["B"]) * cosines(a["C"], b["C"])


def shares_cp(E: Factors) -> Array:
    mass = E["A"].sum(axis=0) * E["B"].sum(axis=0) * E["C"].sum(axis=0)
    return np.asarray(mass / mass.sum())


def blocks(*heights: float) -> dict[str, Array]:
    """Means of a CP of which the components have no cell in common."""
    eye = np.kron(np.eye(len(heights)), np.ones((2, 1)))
    return {"A": eye * np.array(heights), "B": eye, "C": eye}


# -- profiles -----------------------------------------------------------------------------------


@every_model
def test_profiles_are_those_of_whole_tensors(model: pltf.Model, index: str) -> None:
    check_profiles(model, drawn(model, np.random.default_rng(1)), index_sizes(model), index)


@given(models(), seeds)
def test_profiles_of_any_model_are_those_of_whole_tensors(model: pltf.Model, seed: int) -> None:
    sizes = dict.fromkeys((i for indices in model.observed.values() for i in indices), 3)
    E = drawn(model, np.random.default_rng(seed), sizes)
    for index in model.sizes:
        check_profiles(model, E, index_sizes(model, sizes), index)


@pytest.mark.parametrize("scale", [1e-90, 1e90])
def test_components_of_any_size_have_profiles(scale: float) -> None:
    E = drawn(CP, np.random.default_rng(2))
    far = {name: array * scale for name, array in E.items()}
    near, there = (profiles(CP, means, index_sizes(CP), "r") for means in (E, far))
    for key, rows in near.along.items():
        np.testing.assert_allclose(there.along[key], rows, rtol=1e-10)
    np.testing.assert_allclose(there.share, near.share, rtol=1e-10)


# -- pairs --------------------------------------------------------------------------------------


@every_model
@given(seed=seeds)
def test_order_and_scale_of_components_do_not_matter(model: pltf.Model, index: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    E = drawn(model, rng)
    order = rng.permutation(model.sizes[index])  # component n of the second is component order[n] of the first
    other = in_order(model, rescaled(model, E, index, rng), index, order)
    found = pltf.match(made(model, E), made(model, other), index)
    assert found.similarity == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(found.similarities, 1, atol=1e-9)
    np.testing.assert_array_equal(order[found.b], found.a)
    assert sorted(found.a) == list(range(model.sizes[index]))


@given(st.integers(1, 4), st.integers(1, 4), seeds)
def test_cp_components_are_as_alike_as_the_columns_of_their_factors(rank_a: int, rank_b: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = drawn(CP.resized(r=rank_a), rng), drawn(CP.resized(r=rank_b), rng)
    found = pltf.match(made(CP.resized(r=rank_a), a), made(CP.resized(r=rank_b), b))
    alike, share_a, share_b = alike_cp(a, b), shares_cp(a), shares_cp(b)
    assert len(found.a) == len(found.b) == min(rank_a, rank_b)
    np.testing.assert_allclose(found.similarities, alike[found.a, found.b], rtol=1e-10)
    np.testing.assert_allclose(found.shares_a, share_a[found.a], rtol=1e-10)
    np.testing.assert_allclose(found.shares_b, share_b[found.b], rtol=1e-10)
    gain = alike * (share_a[:, None] + share_b) / 2
    gain = gain if rank_a <= rank_b else gain.T
    best = max(sum(gain[n, m] for n, m in enumerate(to)) for to in permutations(range(gain.shape[1]), gain.shape[0]))
    assert found.similarity == pytest.approx(best, rel=1e-10)


@given(st.integers(1, 4), seeds)
def test_matching_is_symmetric(rank: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = made(CP, drawn(CP, rng)), made(CP.resized(r=rank), drawn(CP.resized(r=rank), rng))
    there, back = pltf.match(one, other), pltf.match(other, one)
    assert there.similarity == pytest.approx(back.similarity, rel=1e-10)
    assert set(zip(there.a, there.b, strict=True)) == set(zip(back.b, back.a, strict=True))


def test_pairs_come_largest_first() -> None:
    found = pltf.match(made(CP, blocks(2, 9, 5)), made(CP, in_order(CP, blocks(4, 9, 3), "r", [2, 0, 1])))
    assert found.a.tolist() == [1, 2, 0]
    assert found.b.tolist() == [2, 0, 1]
    table = found.table
    assert table.columns.tolist() == ["a", "b", "similarity", "share_a", "share_b"]
    assert table["a"].tolist() == [1, 2, 0]
    assert table["b"].tolist() == [2, 0, 1]
    np.testing.assert_allclose(table["similarity"], 1)
    np.testing.assert_allclose(table["share_a"], [9 / 16, 5 / 16, 2 / 16])
    np.testing.assert_allclose(table["share_b"], [9 / 16, 3 / 16, 4 / 16])


def test_large_components_are_matched_before_small_ones() -> None:
    def at(large: float, small: float) -> dict[str, Array]:
        """Columns at these angles, in degrees, the second a hundredth of the first."""
        angles = np.radians([large, small])
        return {"W": np.array([np.cos(angles), np.sin(angles)]) * [1, 0.01], "H": np.ones((2, 2))}

    one, other, model = at(18, 89), at(44, 1), pltf.nmf(rank=2)
    found = pltf.match(made(model, one), made(model, other))
    assert list(zip(found.a, found.b, strict=True)) == [(0, 0), (1, 1)]
    alike = cosines(one["W"], other["W"])
    assert alike[0, 1] + alike[1, 0] > alike[0, 0] + alike[1, 1]  # so much for pairs without weights


def test_what_has_no_partner_counts_as_nothing() -> None:
    three, two = made(CP, blocks(5, 3, 2)), made(CP.resized(r=2), in_order(CP, blocks(5, 3, 2), "r", [1, 0]))
    for found in (pltf.match(three, two), pltf.match(two, three)):
        assert len(found.table) == 2
        np.testing.assert_allclose(found.similarities, 1)
        assert found.similarity == pytest.approx((5 / 10 + 3 / 10 + 1) / 2)
    assert pltf.match(three, two).a.tolist() == [0, 1]
    assert pltf.match(three, two).b.tolist() == [1, 0]


def test_components_with_nothing_in_common_are_not_alike() -> None:
    E = blocks(5, 3, 2)
    one, other = made(CP.resized(r=1), in_order(CP, E, "r", [0])), made(CP.resized(r=2), in_order(CP, E, "r", [1, 2]))
    found = pltf.match(one, other)
    assert found.similarity == 0
    assert found.similarities.tolist() == [0]


@pytest.mark.parametrize("dead", ["A", "ABC"])
@pytest.mark.parametrize("count", [1, 3])
def test_dead_components_do_not_matter(dead: str, count: int) -> None:
    rng = np.random.default_rng(4)
    E, wide = drawn(CP, rng), drawn(CP.resized(r=3 + count), rng)
    for name, array in wide.items():
        array[:, count:] = E[name]
        array[:, :count] *= name not in dead
    few, many = made(CP, E), made(CP.resized(r=3 + count), wide)
    for found in (pltf.match(few, many), pltf.match(many, few), pltf.match(many, many)):
        assert found.similarity == pytest.approx(1)
        assert found.table["share_a"].sum() == pytest.approx(1)
        assert found.table["share_b"].sum() == pytest.approx(1)
    assert (pltf.match(few, many).b - count).tolist() == pltf.match(few, many).a.tolist()


def test_models_may_differ_as_long_as_the_tensors_are_the_same() -> None:
    rng = np.random.default_rng(5)
    E = drawn(CP, rng)
    core = np.zeros((3, 3, 3))
    core[range(3), range(3), range(3)] = [1.0, 2.0, 0.5]
    tucker, turned = pltf.tucker(ranks=(3, 3, 3)), pltf.Model("X[k,i,j] = U[r,i] * V[r,j] * W[k,r]", r=3)
    as_tucker = made(tucker, {**E, "G": core})
    as_cp = {"U": E["A"].T[::-1], "V": E["B"].T[::-1], "W": (E["C"] * [1.0, 2.0, 0.5])[:, ::-1]}
    found = pltf.match(as_tucker, made(turned, as_cp), "r")
    assert found.similarity == pytest.approx(1)
    assert (found.a + found.b).tolist() == [2, 2, 2]


def test_restarts_that_found_the_same_are_the_same() -> None:
    X = np.kron(np.diag([9.0, 5.0]), np.ones((4, 4)))
    one, other = (pltf.nmf(rank=2).fit(X, seed=seed) for seed in (1, 2))
    assert pltf.match(one, other).similarity > 0.999
    wrong = made(pltf.nmf(rank=2), {"W": np.ones((8, 2)), "H": np.ones((2, 8))})
    assert pltf.match(one, wrong).similarity < 0.6


def test_repr_says_how_alike_the_fits_are() -> None:
    three, two = made(CP, blocks(5, 3, 2)), made(CP.resized(r=2), in_order(CP, blocks(5, 3, 2), "r", [1, 0]))
    assert repr(pltf.match(three, two)) == "<Match along r: 2 pairs, similarity 0.900>"
    tucker = fitted(pltf.tucker(ranks=(1, 2, 1)), (("i", 2), ("j", 2), ("k", 2)))
    assert repr(pltf.match(tucker, tucker, "q")).startswith("<Match along q: 2 pairs, ")


# -- similarity ---------------------------------------------------------------------------------


@every_model
def test_similarity_is_the_mean_over_latent_indices(model: pltf.Model, index: str) -> None:
    rng = np.random.default_rng(6)
    a, b = drawn(model, rng), drawn(model, rng)
    found = [pltf.match(made(model, a), made(model, b), latent).similarity for latent in model.sizes]
    assert similarities(model, index_sizes(model), a, [b])[0] == pytest.approx(np.mean(found), rel=1e-12)
    assert similarities(model, index_sizes(model), a, [b])[0] < 0.99
    other = in_order(model, rescaled(model, a, index, rng), index, rng.permutation(model.sizes[index]))
    assert similarities(model, index_sizes(model), a, [other])[0] == pytest.approx(1)


def test_results_without_components_are_alike() -> None:
    model, rng = pltf.Model("X[i,j] = A[i] * B[j]"), np.random.default_rng(7)
    assert similarities(model, index_sizes(model), drawn(model, rng), [drawn(model, rng)])[0] == 1


def test_profiles_can_be_matched_without_fits() -> None:
    rng = np.random.default_rng(8)
    model, index = MODELS["train"]
    a, b = drawn(model, rng), drawn(model, rng)
    one, other = (profiles(model, E, index_sizes(model), index) for E in (a, b))
    found, same = matched(index, one, other), pltf.match(made(model, a), made(model, b), index)
    assert found.index == same.index == "b"
    np.testing.assert_array_equal(found.b, same.b)
    np.testing.assert_array_equal(found.similarities, same.similarities)


# -- what is refused ----------------------------------------------------------------------------


def small(text: str, *shape: int, **sizes: int) -> pltf.Fit:
    (indices,) = pltf.Model(text, **sizes).observed.values()
    return fitted(pltf.Model(text, **sizes), tuple(zip(indices, shape, strict=True)))


def nmf() -> pltf.Fit:
    return small("ir,rj->ij", 3, 4, r=2)


def tucker() -> pltf.Fit:
    return fitted(pltf.tucker(ranks=(2, 2, 2)), (("i", 2), ("j", 2), ("k", 2)))


@pytest.mark.parametrize(
    ("fit_a", "fit_b", "index", "message"),
    [
        (lambda: np.ones((2, 2)), nmf, None, "fit_a must be a Fit, got ndarray"),
        (nmf, lambda: nmf().model, None, "fit_b must be a Fit, got Model"),
        (nmf, nmf, "z", "index must name a latent index of the model (r), got 'z'"),
        (nmf, nmf, "i", "index must name a latent index of the model (r), got 'i'"),
        (nmf, nmf, 0, "index must name a latent index of the model (r), got 0"),
        (tucker, tucker, None, "index must name a latent index of the model (p, q, r), for there are several"),
        (tucker, nmf, "p", "fit_b must have the latent index 'p', got r"),
        (
            partial(small, "i,j->ij", 3, 4),
            nmf,
            None,
            "index must name a latent index of the model (none), and there is none",
        ),
        (
            nmf,
            tucker,
            "r",
            "fit_a and fit_b must explain the same tensors, got X[i], X[j] and X[i], X[j], X[k]",
        ),
        (
            nmf,
            partial(small, "Y[i,j] = A[i,r] * B[j,r]", 3, 4, r=2),
            "r",
            "fit_a and fit_b must explain the same tensors, got X[i], X[j] and Y[i], Y[j]",
        ),
        (nmf, partial(small, "ir,rj->ij", 3, 5, r=2), None, "index 'j' of X must have one size, got 4 and 5"),
        (partial(small, "ir,rj->ij", 2, 4, r=3), nmf, "r", "index 'i' of X must have one size, got 2 and 3"),
    ],
)
def test_refused_fits(fit_a: Callable[[], Any], fit_b: Callable[[], Any], index: Any, message: str) -> None:
    with pytest.raises(pltf.PltfError, match=f"^{re.escape(message)}$"):
        pltf.match(fit_a(), fit_b(), index)


@pytest.mark.parametrize("method", ["vb", "em", "map"])
def test_a_fit_is_similar_to_itself_though_components_explain_nothing_of_one_tensor(method: str) -> None:
    X, Y = np.kron(np.diag([9, 5]), np.ones((4, 4))), np.zeros((8, 3))
    Y[:4] = 3
    model = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)
    fit = model.fit({"X": X, "Y": Y}, method=method, restarts=3)
    assert pltf.match(fit, fit).similarity == pytest.approx(1)
    nothing = pltf.nmf(rank=2).fit(np.zeros((3, 3)), method=method, max_iter=5, tol=0)
    assert pltf.match(nothing, nothing).similarity == pytest.approx(1)


def test_a_tensor_counts_by_what_components_explain_of_it() -> None:
    """Components that are alike in X, where the counts are, and not in Y, where next to none are."""
    model = pltf.Model("X[i] = A[i,r]\nY[m] = D[m,r]", r=1)
    sizes = model.index_sizes({"X": (3,), "Y": (2,)})
    A = np.array([[5.0], [9.0], [1.0]])
    one, other = ({"A": A, "D": np.array([[d], [0.1 - d]])} for d in (0.1, 0.0))
    assert similarities(model, sizes, one, [other])[0] == pytest.approx(30 / 30.2)
