"""One suite for every engine that allocates: draws whose sums and moments are those of the multinomial."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

import pltf
from pltf.data import Observation
from pltf.engines import listed as listed_module
from pltf.engines import registry
from pltf.engines.base import Engine
from pltf.engines.plan import PRIVATE_BYTES, Plan, plan_tensor
from pltf.engines.ways import DENSE, LISTED, Task
from tests.contract import test_engines
from tests.contract.test_engines import ENGINES, Build, interpreted, reference_log_term
from tests.reference import Array
from tests.strategies import Case, cases, cp_cases


def planned(
    case: Case, seen: Mapping[str, Observation], engine: Any = "auto", likelihood: str = "poisson", **options: Any
) -> Plan:
    """The plan of a fit that allocates."""
    plan = case.model.plan(dict(seen), engine=engine, **options)
    tasks = [replace(e.task, allocates=True, likelihood=likelihood) for e in plan.equations]
    return replace(plan, equations=tuple(plan_tensor(task, engine) for task in tasks))


def _array(case: Case, dtype: str = "float64", threads: int = 1, likelihood: str = "poisson") -> Engine:
    """Arrays, planned to be allocated."""
    seen = {name: pltf.observe(x, case.masks[name]) for name, x in case.data.items()}
    return registry.build(planned(case, seen, likelihood=likelihood, dtype=dtype, threads=threads), seen)


LISTS = (
    "parts",
    "parts, chains",
    "sparse, absent is zero",
    "sparse, absent is missing",
    "sparse, chains",
    "list and mask",
)
ON_DEVICE = tuple(name for name in ENGINES if name.startswith("torch, list"))
ALLOCATING: Mapping[str, Build] = {
    **{name: build for name, build in ENGINES.items() if name in (*LISTS, *ON_DEVICE, "torch, parts")},
    "array": _array,
}


MANY = ("array", "sparse, chains", *(name for name in ON_DEVICE if not interpreted(ENGINES[name])))  # for many draws


@pytest.fixture(scope="module", autouse=True)
def _planned() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_engines, "ALLOCATES", True)
        yield


@pytest.fixture(params=ALLOCATING, scope="session")
def build(request: pytest.FixtureRequest) -> Build:
    return ALLOCATING[request.param]


def counted(case: Case) -> Case:
    """The case with whole numbers for data."""
    return replace(case, data={name: np.rint(x) for name, x in case.data.items()})


def held(case: Case, name: str) -> float:
    """Counts of all tensors that hold a factor."""
    tensors = [e.output.name for e in case.model.equations if name in {term.name for term in e.factors}]
    return float(sum(case.data[tensor][case.masks[tensor]].sum() for tensor in tensors))


# -- sums ---------------------------------------------------------------------------------------


def assert_sums(engine: Engine, case: Case) -> None:
    expected = engine.counts(case.init)
    for key in ((0,), (1,)):
        drawn = engine.allocate(case.init, None, key)
        assert set(drawn.by_factor) == set(case.init)
        assert drawn.log_term == pytest.approx(reference_log_term(case), rel=1e-10, abs=1e-8)
        for name, sums in drawn.by_factor.items():
            assert sums.dtype == np.float64
            assert sums.shape == case.init[name].shape
            assert sums.flags.c_contiguous
            assert ((sums >= 0) & (sums == np.floor(sums))).all()
            assert sums.sum() == held(case, name)
            assert not sums[expected.by_factor[name] == 0].any()


@given(case=cases().map(counted))
def test_every_count_is_allocated_once(case: Case, build: Build) -> None:
    assert_sums(build(case), case)


@given(case=cp_cases().map(counted))
def test_every_count_of_cp_is_allocated_once(case: Case, build: Build) -> None:
    assert_sums(build(case), case)


@settings(max_examples=10)
@given(case=cases().map(counted))
def test_threads_do_not_change_a_bit(case: Case, build: Build) -> None:
    first, *others = (build(case, threads=threads).allocate(case.init, None, (3, 4)) for threads in (1, 2, 5))
    for other in others:
        assert other.log_term == first.log_term
        for name in case.init:
            np.testing.assert_array_equal(other.by_factor[name], first.by_factor[name])


@pytest.mark.parametrize("name", ["nmf", "tucker", "coupled"])
def test_float32_allocates_every_count_once_with_any_number_of_threads(name: str, build: Build) -> None:
    """Single counts are exact in float32 (up to 2^24); their sums are not, and are made in float64."""
    case = problem(name, 2e6)
    assert max(x.max() for x in case.data.values()) < 2**24 < max(held(case, a) for a in case.init)
    one, two = (build(case, dtype="float32", threads=threads).allocate(case.init, None, (5,)) for threads in (1, 2))
    assert one.log_term == two.log_term
    for a, sums in one.by_factor.items():
        np.testing.assert_array_equal(sums, two.by_factor[a])
        assert sums.dtype == np.float64
        assert ((sums >= 0) & (sums == np.floor(sums))).all()
        assert sums.sum() == held(case, a)


# -- moments ------------------------------------------------------------------------------------


MODELS = {
    "nmf": ("ik,kj->ij", {"k": 3}),
    "cp": ("ir,jr,kr->ijk", {"r": 3}),
    "cp of order 4": ("ir,jr,kr,lr->ijkl", {"r": 2}),
    "tucker": ("ip,jq,kr,pqr->ijk", {"p": 2, "q": 2, "r": 2}),
    "train": ("ia,ajb,bk->ijk", {"a": 2, "b": 3}),
    "weights": ("ir,jr,kr,r->ijk", {"r": 3}),
    "no latent index": ("ir,jr,ij,kr->ijk", {"r": 2}),
    "lone latent index": ("irs,jrq,kr->ijk", {"r": 2, "s": 3, "q": 2}),
    "one factor": ("ij->ij", {}),
    "coupled": ("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * C[m,r] * G[m]", {"r": 2}),
}
SIZES = {"i": 4, "j": 3, "k": 3, "l": 2, "m": 5}


def problem(name: str, mean: float = 3.0) -> Case:
    text, latent = MODELS[name]
    rng = np.random.default_rng(sum(map(ord, name)))
    model = pltf.Model(text, **latent)
    sizes = {**SIZES, **latent}
    shapes = {tensor: tuple(sizes[i] for i in indices) for tensor, indices in model.observed.items()}
    data = {tensor: rng.poisson(rng.gamma(0.7, mean / 0.7, shape)).astype(float) for tensor, shape in shapes.items()}
    masks = {tensor: rng.random(shape) < 0.8 for tensor, shape in shapes.items()}
    init = {a: rng.gamma(1.0, 1.0, tuple(sizes[i] for i in indices)) for a, indices in model.factors.items()}
    return Case(model, data, masks, {}, init)


def large_problem() -> Case:
    """CP with more cells than rows, so that chunks have sums of their own if there is room."""
    rng = np.random.default_rng(0)
    data, init = (
        rng.poisson(5.0, (9, 8, 10)),
        {f"Z{n + 1}": rng.gamma(1.0, 1.0, (size, 3)) for n, size in enumerate((9, 8, 10))},
    )
    return Case(pltf.Model("ir,jr,kr->ijk", r=3), {"X": data.astype(float)}, {"X": data >= 0}, {}, init)


def moments(case: Case) -> tuple[Array, Array]:
    """Mean and covariance of the sums of all factors, end to end, by going through all cells and configurations."""
    starts = dict(zip(case.init, np.cumsum([0, *(z.size for z in case.init.values())]), strict=False))
    size = sum(z.size for z in case.init.values())
    mean, cov = np.zeros(size), np.zeros((size, size))
    for equation in case.model.equations:
        latent = equation.summed
        for cell in np.argwhere(case.masks[equation.output.name]):
            at = dict(zip(equation.output.indices, cell, strict=True))
            x, first, second, total = (
                case.data[equation.output.name][tuple(cell)],
                np.zeros(size),
                np.zeros_like(cov),
                0.0,
            )
            for config in np.ndindex(*(case.sizes[i] for i in latent)):
                where = at | dict(zip(latent, config, strict=True))
                entries = {t.name: tuple(where[i] for i in t.indices) for t in equation.factors}
                weight = math.prod(case.init[a][entry] for a, entry in entries.items())
                hit = np.array([starts[a] + _flat(entry, case.init[a].shape) for a, entry in entries.items()])
                first[hit] += weight
                second[np.ix_(hit, hit)] += weight
                total += weight
            mean += x * first / total
            cov += x * (second / total - np.outer(first, first) / total**2)
    return mean, cov


def _flat(entry: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return int(np.ravel_multi_index(entry, shape)) if entry else 0


def samples(engine: Engine, case: Case, count: int, key: int = 0) -> Array:
    """Sums of all factors, end to end, of so many draws."""
    found = (engine.allocate(case.init, None, (key, n)).by_factor for n in range(count))
    return np.array([np.concatenate([sums[a].reshape(-1) for a in case.init]) for sums in found])


@pytest.mark.parametrize("name", MODELS)
def test_the_mean_is_what_counts_expects(name: str, build: Build) -> None:
    case = problem(name, 12.0)
    assert_mean(build(case), case, 5 if interpreted(build) else 120)


@pytest.mark.parametrize("way", MANY)
@pytest.mark.parametrize("name", ["nmf", "cp of order 4", "tucker", "lone latent index"])
def test_the_mean_of_many_counts(name: str, way: str) -> None:
    """So many that all are drawn by binomials."""
    case = problem(name, 3e4)
    assert_mean(ALLOCATING[way](case), case, 120)


def assert_mean(engine: Engine, case: Case, count: int) -> None:
    exact, cov = moments(case)
    expected = engine.counts(case.init).by_factor
    np.testing.assert_allclose(np.concatenate([expected[a].reshape(-1) for a in case.init]), exact, rtol=1e-9)
    sd, found = np.sqrt(np.diag(cov)), samples(engine, case, count, key=1).mean(axis=0)
    sure = sd < 1e-6
    np.testing.assert_allclose(found[sure], exact[sure], rtol=1e-9)
    z = (found - exact)[~sure] / sd[~sure] * math.sqrt(count)
    rarity = 6.75 / (sd[~sure] * math.sqrt(count)) if count < 100 else 0.0  # few draws are not normal (Bernstein)
    assert (abs(z) < 4.5 + rarity).all()
    assert (z**2).mean() < 3 if z.size else True  # not 1: entries of one draw hang together


@pytest.mark.parametrize("way", MANY)
@pytest.mark.parametrize("name", ["large cp", "nmf", "tucker", "train", "lone latent index", "coupled"])
def test_variances_and_covariances_between_factors_are_those_of_the_multinomial(name: str, way: str) -> None:
    case, count = large_problem() if name == "large cp" else problem(name, 2.0), 1000
    engine = ALLOCATING[way](case)
    found = samples(engine, case, count, key=1)
    mean, cov = moments(case)
    group = np.concatenate([np.full(z.size, group_of(engine, a)) for a, z in case.init.items()])
    varies = np.diag(cov) > 0.01
    together = np.equal.outer(group, group)[np.ix_(varies, varies)]  # others are drawn apart
    scale = np.sqrt(np.diag(cov)[varies])
    errors = (np.cov(found.T) - cov)[np.ix_(varies, varies)] / np.outer(scale, scale)
    # An element of a sample covariance has a standard error of 1/sqrt(count), or somewhat more where counts are rare.
    rarity = 1 + 1 / np.minimum.outer(mean[varies], mean[varies])
    assert (abs(errors) < 6 * np.sqrt(rarity / count))[together].all()
    assert name != "large cp" or together.all()


def group_of(engine: Engine, name: str) -> int:
    return next(n for n, group in enumerate(engine.together) if name in group)


@pytest.mark.parametrize("chains", [False, True])
@pytest.mark.parametrize("name", ["cp", "tucker", "coupled"])
def test_links_have_a_hidden_count_that_is_allocated(name: str, chains: bool) -> None:
    case, count = problem(name), 1000
    case = replace(case, data={tensor: np.minimum(x, 1.0) for tensor, x in case.data.items()})
    with pytest.MonkeyPatch.context() as patch:
        if chains:
            patch.setattr(Task, "is_cp", False)
        engine = _array(case, likelihood="bernoulli")
    expected = engine.counts(case.init)
    exact = np.concatenate([expected.by_factor[a].reshape(-1) for a in case.init])
    found = samples(engine, case, count)
    z = (found.mean(axis=0) - exact) / np.maximum(found.std(axis=0), 1e-2) * math.sqrt(count)
    assert abs(z).max() < 4.5
    assert (found.sum(axis=1) >= sum(held(case, a) for a in case.init)).all()
    assert found.sum(axis=1).std() > 0
    assert engine.allocate(case.init, None, (0,)).log_term == pytest.approx(expected.log_term, rel=1e-12)


# -- keys, groups, wanted factors ---------------------------------------------------------------


def test_a_key_gives_one_draw_and_another_key_another(build: Build) -> None:
    case = problem("cp", 10.0)
    engine = build(case)
    first, again, other = (engine.allocate(case.init, None, key).by_factor["Z1"] for key in ((1, 2), (1, 2), (1, 3)))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_groups_are_a_partition_and_each_of_them_is_one_draw(build: Build) -> None:
    for room in (PRIVATE_BYTES, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(listed_module, "PRIVATE_BYTES", room)
            for name in ("cp", "tucker", "coupled"):
                case = problem(name, 10.0)
                engine = build(case)
                assert sorted(a for group in engine.together for a in group) == sorted(case.init)
                for group in engine.together:
                    drawn = engine.allocate(case.init, sorted(group), (0,))
                    assert set(drawn.by_factor) == group
                    assert drawn.log_term == pytest.approx(reference_log_term(case), rel=1e-12)
                    assert all(sums.sum() == held(case, a) for a, sums in drawn.by_factor.items())


def test_factors_of_one_group_agree_on_every_component() -> None:
    """All factors of CP have the same counts of a component, for they come from one draw; with no room they do not."""
    case = large_problem()
    for room, groups in ((1 << 20, 1), (0, 3)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(listed_module, "PRIVATE_BYTES", room)
            engine = _array(case)
        assert len(engine.together) == groups
        components = {tuple(sums.sum(axis=0)) for sums in engine.allocate(case.init, None, (0,)).by_factor.values()}
        assert len(components) == groups


def test_coupled_tensors_split_a_group_that_one_of_them_draws_apart() -> None:
    model = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[i,m] = A[i,r] * C[m,r]", r=2)
    rng = np.random.default_rng(0)
    init = {name: rng.gamma(1.0, 1.0, (size, 2)) for name, size in (("A", 40), ("B", 3), ("C", 60))}
    data = {"X": rng.poisson(2.0, (40, 3)).astype(float), "Y": rng.poisson(2.0, (40, 60)).astype(float)}
    case = Case(model, data, {name: np.ones(x.shape, bool) for name, x in data.items()}, {}, init)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listed_module, "PRIVATE_BYTES", 8 * 2 * 8 * 3)  # room for B beside A, not for A beside C
        engine = _array(case)
    assert engine.together == (frozenset("AB"), frozenset("C"))


# -- plans and bad ends -------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["auto", "dense", "sparse"])
def test_a_plan_that_allocates_takes_counts_from_a_list(engine: str) -> None:
    case = problem("cp", 10.0)
    seen = {"X": pltf.observe(case.data["X"], case.masks["X"])}
    plan = planned(case, seen, engine)
    assert plan.ways["X"][0] == LISTED
    assert (plan.ways["X"][1] == "mask") == (engine != "sparse")
    assert "alternatives: dense" not in str(plan).split("exposure")[0]


@pytest.mark.parametrize("name", ["cp", "tucker"])
def test_engines_over_arrays_cannot_allocate(name: str) -> None:
    case = problem(name)
    seen = {"X": pltf.observe(case.data["X"])}
    plan = case.model.plan(seen, engine=DENSE)
    engine = registry.build(plan, seen)
    with pytest.raises(AssertionError, match="list of cells"):
        engine.allocate(case.init, None, (0,))
    with pytest.raises(AssertionError, match="list of cells"):
        _ = engine.together


def test_a_count_where_the_rate_is_zero_is_told_by_the_log_term(build: Build) -> None:
    init = {"W": np.array([[0.0], [1.0]]), "H": np.array([[1.0, 1.0]])}
    data = {"X": np.array([[1.0, 0.0], [2.0, 30.0]])}
    engine = build(Case(pltf.nmf(rank=1), data, {"X": np.ones((2, 2), dtype=bool)}, {}, init))
    drawn = engine.allocate(init, None, (0,))
    assert drawn.log_term == -np.inf
    np.testing.assert_array_equal(drawn.by_factor["W"], [[0], [32]])


def test_components_without_weight_get_nothing() -> None:
    rng = np.random.default_rng(0)
    init = {"W": rng.gamma(1.0, 1.0, (4, 5)), "H": rng.gamma(1.0, 1.0, (5, 3))}
    init["W"][:, [0, 2, 4]] = 0
    data = {"X": rng.choice([1.0, 5.0, 50.0, 1e9], (4, 3))}
    drawn = _array(Case(pltf.nmf(rank=5), data, {"X": np.ones((4, 3), bool)}, {}, init)).allocate(init, None, (0,))
    assert not drawn.by_factor["W"][:, [0, 2, 4]].any()
    assert drawn.by_factor["H"].sum() == data["X"].sum()


@pytest.mark.parametrize("text", ["ir,jr,kr->ijk", "ir,jr,kr,r->ijk"])
def test_memory_does_not_hold_cells_times_components(text: str) -> None:
    rng = np.random.default_rng(0)
    cells: NDArray[np.int64] = np.unique(rng.integers(0, 60, (30_000, 3)), axis=0)
    seen = {"X": pltf.observe((cells, rng.poisson(3.0, len(cells)) + 1), shape=(60, 60, 60))}
    plan = pltf.Model(text, r=200).plan(seen, threads=1)
    engine = registry.build(plan, seen)
    factors = {name: rng.gamma(1.0, 1.0, shape) for name, shape in plan.factor_shapes.items()}
    engine.allocate(factors, None, (0,))
    tracemalloc.start()
    engine.allocate(factors, None, (1,))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < len(cells) * 200 * 8 / 10
