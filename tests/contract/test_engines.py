"""One suite, every engine: equal to the slow reference, whatever the model, mask, dtype, blocks and threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

import pltf
from pltf.data import CooObservation, Observation
from pltf.devices import Device
from pltf.engines import listed as listed_module
from pltf.engines import plan as planning
from pltf.engines import registry
from pltf.engines.base import Engine
from pltf.engines.ways import Task, counts_ways, exposure_ways
from tests.contract.on_device import OnDevice, Unwarned
from tests.extras import TORCH
from tests.on_device import device as on_device
from tests.on_device import name as name_on_device
from tests.reference import Array, log_odds
from tests.stores import in_memory
from tests.strategies import Case, cases, cp_cases, cut_small

Build = Callable[..., Engine]
ALLOCATES = False  # whether engines are planned for sampled counts


def _built(
    case: Case,
    seen: Mapping[str, Observation],
    dtype: str,
    threads: int,
    counts: str = "",
    exposure: str = "",
    device: Device | None = None,
    site: str = "cpu",
) -> Engine:
    """An engine that goes the usual way for the storage of the data, or another one, on the host or on a device.

    With a ``site``, parts are summed there, and factors and sums are NumPy arrays.
    """
    plan = case.model.plan(dict(seen), dtype=dtype, threads=threads, device=site)
    equations = []
    for e in plan.equations:
        by_counts, by_exposure = counts_ways(e.task), exposure_ways(e.task)
        ways = (by_counts[counts or e.task.facts.storage], by_exposure.get(exposure or "closed form", e.exposure))
        task = replace(e.task, likelihood=case.likelihoods.get(e.name, "poisson"), allocates=ALLOCATES)
        equations.append(planning.TensorPlan(task, *ways))
    engine = registry.build(replace(plan, equations=tuple(equations), device=device), seen)
    if site != "cpu":
        unwarned: Any = Unwarned(engine)
        return unwarned  # type: ignore[no-any-return]
    return engine if device is None else OnDevice(engine, device)


def _arrays(case: Case) -> dict[str, Observation]:
    return {name: pltf.observe(x, case.masks[name]) for name, x in case.data.items()}


def _dense(case: Case, dtype: str = "float64", threads: int = 1) -> Engine:
    return _built(case, _arrays(case), dtype, threads)


def _lists(case: Case, unlisted: str) -> dict[str, CooObservation]:
    """The same observations as lists: of all observed cells, or of the non-zeros and the holes."""
    seen: dict[str, CooObservation] = {}
    for name, x in case.data.items():
        mask = case.masks[name]
        # Some observed zeros are listed too: a listed zero is an observed zero.
        listed = (
            mask
            if unlisted == "missing"
            else mask & ((np.nan_to_num(x) > 0) | (np.arange(x.size) % 3 == 0).reshape(x.shape))
        )
        options: Any = {"unlisted": unlisted} | ({} if unlisted == "missing" else {"missing": np.argwhere(~mask)})
        cells = np.argwhere(listed)
        order = np.random.default_rng(0).permutation(len(cells))
        one = pltf.observe((cells[order], x[listed][order]), shape=x.shape, **options)
        assert isinstance(one, CooObservation)
        seen[name] = one
    return seen


def _sparse_zero(case: Case, dtype: str = "float64", threads: int = 1) -> Engine:
    return _built(case, _lists(case, "zero"), dtype, threads, exposure="holes")


def _sparse_missing(case: Case, dtype: str = "float64", threads: int = 1) -> Engine:
    return _built(case, _lists(case, "missing"), dtype, threads, exposure="observed")


def _chains(case: Case, dtype: str = "float64", threads: int = 1) -> Engine:
    """Chains of contractions, for CP too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Task, "is_cp", False)
        return _sparse_zero(case, dtype, threads)


def _contracted(case: Case, dtype: str = "float64", threads: int = 1) -> Engine:
    """The blocks of contractions, for CP too: the twin of the fused kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Task, "is_cp", False)
        return _dense(case, dtype, threads)


def _list_and_mask(case: Case, dtype: str = "float64", threads: int = 1) -> Engine:
    """Counts from a list of the non-zeros, exposures from a mask of all cells."""
    return _built(case, _lists(case, "zero"), dtype, threads, "sparse", "mask")


def _array_and_holes(case: Case, dtype: str = "float64", threads: int = 1) -> Engine:
    """Counts from an array, exposures from a list of the holes."""
    return _built(case, _arrays(case), dtype, threads, "dense", "holes")


def _made_dense(case: Case, dtype: str = "float64", threads: int = 1) -> Engine:
    """A list that was made an array."""
    return _built(case, _lists(case, "missing"), dtype, threads, "dense", "mask")


def _stored(case: Case, dtype: str = "float64", threads: int = 1) -> Engine:
    """Cells in parts; what is not listed is zero."""
    seen = {name: in_memory(one, parts=5) for name, one in _lists(case, "zero").items()}
    return _built(case, seen, dtype, threads)


def _stored_chains(case: Case, dtype: str = "float64", threads: int = 1) -> Engine:
    """Parts sorted by the last mode, whose cells are all that was observed; chains, for CP too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Task, "is_cp", False)
        lists = _lists(case, "missing")
        return _built(
            case, {name: in_memory(one, 4, len(one.shape) - 1) for name, one in lists.items()}, dtype, threads
        )


def _torch_dense(case: Case, dtype: str = "float64", threads: int = 1) -> Engine:
    return _built(case, _arrays(case), dtype, threads, device=on_device(kernels=False))


def _torch_dense_kernels(case: Case, dtype: str = "float64", threads: int = 1) -> Engine:
    return _built(case, _arrays(case), dtype, threads, device=on_device(kernels=True))


def _torch_lists(case: Case, dtype: str = "float64", threads: int = 1) -> Engine:
    return _built(case, _lists(case, "zero"), dtype, threads, exposure="holes", device=on_device(kernels=False))


def _torch_list_kernels(case: Case, dtype: str = "float64", threads: int = 1) -> Engine:
    """By Triton's kernels. Its interpreter takes 2 ms a program: of random cases one in eight goes there."""
    is_random, key = bool(case.priors), next(iter(case.init.values())).sum()
    device = on_device(kernels=not is_random or int(1e6 * key) % 8 == 0)
    return _built(case, _lists(case, "missing"), dtype, threads, exposure="observed", device=device)


def _torch_parts(case: Case, dtype: str = "float64", threads: int = 1) -> Engine:
    """Cells in parts; what is not listed is zero."""
    seen = {name: in_memory(one, parts=5) for name, one in _lists(case, "zero").items()}
    return _built(case, seen, dtype, threads, site=name_on_device(kernels=False))


def _torch_part_kernels(case: Case, dtype: str = "float64", threads: int = 1) -> Engine:
    """Parts sorted by the last mode, by Triton's kernels, as seldom as lists."""
    is_random, key = bool(case.priors), next(iter(case.init.values())).sum()
    site = name_on_device(kernels=not is_random or int(1e6 * key) % 8 == 0)
    seen = {name: in_memory(one, 2, len(one.shape) - 1) for name, one in _lists(case, "missing").items()}
    return _built(case, seen, dtype, threads, site=site)


ON_DEVICE: Mapping[str, Build] = {
    "torch, dense": _torch_dense,
    "torch, dense kernels": _torch_dense_kernels,
    "torch, lists": _torch_lists,
    "torch, list kernels": _torch_list_kernels,
    "torch, parts": _torch_parts,
    "torch, part kernels": _torch_part_kernels,
}
ENGINES: Mapping[str, Build] = {
    "dense": _dense,
    "dense, contracted": _contracted,
    "sparse, absent is zero": _sparse_zero,
    "sparse, absent is missing": _sparse_missing,
    "sparse, chains": _chains,
    "list and mask": _list_and_mask,
    "array and holes": _array_and_holes,
    "list made dense": _made_dense,
    "parts": _stored,
    "parts, chains": _stored_chains,
    **(ON_DEVICE if TORCH else {}),
}


def interpreted(build: Build) -> bool:
    """Whether an engine takes seconds for what takes others milliseconds."""
    return build in (_torch_list_kernels, _torch_dense_kernels, _torch_part_kernels)


@pytest.fixture(params=ENGINES, scope="session")
def build(request: pytest.FixtureRequest) -> Build:
    return ENGINES[request.param]


def assert_matches_reference(engine: Engine, case: Case, rtol: float) -> None:
    reference, Z = case.reference(), case.init
    counts = engine.counts(Z)
    assert set(counts.by_factor) == set(Z)
    for name in Z:
        expected = reference.counts(name, Z)
        assert counts.by_factor[name].shape == expected.shape
        assert counts.by_factor[name].dtype == np.float64
        np.testing.assert_allclose(counts.by_factor[name], expected, rtol=rtol, atol=rtol * 1e-3)
        exposure = engine.exposure(Z, name)
        assert exposure.shape == expected.shape
        assert exposure.flags.c_contiguous  # as factors are: what is made of it is saved and summed in this order
        np.testing.assert_allclose(exposure, reference.exposure(name, Z), rtol=rtol, atol=rtol * 1e-3)
    np.testing.assert_allclose(engine.total(Z), reference_total(case), rtol=rtol)
    np.testing.assert_allclose(counts.log_term, reference_log_term(case), rtol=rtol, atol=rtol * 100)


def reference_total(case: Case) -> float:
    reference = case.reference()
    return sum(float(reference.xhat(e, case.init)[case.masks[e.output.name]].sum()) for e in case.model.equations)


def reference_log_term(case: Case) -> float:
    """sum M*X*log(Xhat/X); of links sum M*X*log(exp(Xhat)-1)."""
    total = 0.0
    for equation in case.model.equations:
        x, mask = case.data[equation.output.name], case.masks[equation.output.name]
        seen = mask & (x > 0)
        if case.likelihoods.get(equation.output.name) == "bernoulli":
            total += float(log_odds(case.reference().xhat(equation, case.init)[seen]).sum())
            continue
        total += float((x[seen] * np.log(case.reference().xhat(equation, case.init)[seen] / x[seen])).sum())
    return total


@given(case=cases(links=True))
def test_equals_the_reference(case: Case, build: Build) -> None:
    assert_matches_reference(build(case), case, rtol=1e-10)


@given(case=cp_cases(links=True))
def test_cp_equals_the_reference(case: Case, build: Build) -> None:
    assert_matches_reference(build(case), case, rtol=1e-10)
    assert_matches_reference(build(case, dtype="float32", threads=2), case, rtol=2e-5)


@given(case=cases(whole=True, links=True))
def test_equals_the_reference_when_nothing_is_missing(case: Case, build: Build) -> None:
    assert_matches_reference(build(case), case, rtol=1e-10)


@given(case=cases(links=True))
def test_float32_is_near(case: Case, build: Build) -> None:
    assert_matches_reference(build(case, dtype="float32"), case, rtol=2e-5)


@pytest.mark.parametrize("shared_bytes", [0, 1 << 20], ids=["nothing kept", "partial sums kept"])
@pytest.mark.parametrize("threads", [1, 2])
@given(case=cases(links=True))
def test_blocks_equal_the_whole(case: Case, build: Build, threads: int, shared_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        cut_small(patch, 64)
        patch.setattr(planning, "SHARED_BYTES", shared_bytes)
        assert_matches_reference(build(case, threads=threads), case, rtol=1e-10)


@given(case=cases(links=True))
def test_threads_do_not_change_a_bit(case: Case, build: Build) -> None:
    with pytest.MonkeyPatch.context() as patch:
        cut_small(patch, 256)
        one, two = build(case, threads=1), build(case, threads=2)
        first, second = one.counts(case.init), two.counts(case.init)
        assert first.log_term == second.log_term
        for name in case.init:
            np.testing.assert_array_equal(first.by_factor[name], second.by_factor[name])
            np.testing.assert_array_equal(one.exposure(case.init, name), two.exposure(case.init, name))


@given(case=cases(links=True))
def test_some_factors_on_request(case: Case, build: Build) -> None:
    engine = build(case)
    everything = engine.counts(case.init)
    for name in case.init:
        one = engine.counts(case.init, [name])
        assert set(one.by_factor) == {name}
        assert one.log_term == everything.log_term
        np.testing.assert_array_equal(one.by_factor[name], everything.by_factor[name])


@given(case=cases(links=True))
def test_counts_are_the_same_bits_without_the_log(case: Case, build: Build) -> None:
    for dtype in ("float64", "float32"):
        engine, last = build(case, dtype=dtype), list(case.init)[-1]
        everything = engine.counts(case.init)
        for wanted in (None, [last]):
            quick = engine.counts(case.init, wanted, log=False)
            assert set(quick.by_factor) == set(case.init if wanted is None else wanted)
            for name in quick.by_factor:
                np.testing.assert_array_equal(quick.by_factor[name], everything.by_factor[name])


@given(case=cases(links=True))
def test_remembered_sums_follow_the_factors(case: Case, build: Build) -> None:
    """An engine that has seen other factors must give what a fresh one gives."""
    old, Z = build(case), dict(case.init)
    for name in Z:
        old.exposure(Z, name)
        Z[name] = Z[name] * 1.5 + 0.1
    for name in Z:
        np.testing.assert_allclose(old.exposure(Z, name), build(case).exposure(Z, name), rtol=1e-12)
    np.testing.assert_allclose(old.total(Z), build(case).total(Z), rtol=1e-12)


@given(case=cases(links=True))
def test_values_under_the_mask_change_no_bit(case: Case, build: Build) -> None:
    poisoned = {name: np.where(case.masks[name], x, np.nan) for name, x in case.data.items()}
    wild = {name: np.where(case.masks[name], x, -np.inf) for name, x in case.data.items()}
    results = [build(_with_data(case, data)).counts(case.init) for data in (case.data, poisoned, wild)]
    for other in results[1:]:
        assert other.log_term == results[0].log_term
        for name in case.init:
            np.testing.assert_array_equal(other.by_factor[name], results[0].by_factor[name])


def _with_data(case: Case, data: Mapping[str, Array]) -> Case:
    return replace(case, data=data)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "bool", "float16", "float32", ">f8", "longdouble"])
def test_any_real_dtype_and_memory_order(build: Build, dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (4, 3, 2))
    model = pltf.cp(rank=2)
    init = {name: rng.random(shape) + 0.1 for name, shape in zip("ABC", ((4, 2), (3, 2), (2, 2)), strict=True)}
    masks = {"X": rng.random(x.shape) < 0.7}
    exact = build(Case(model, {"X": x.astype(float)}, masks, {}, init))
    plain = exact.counts(init)
    middle_last: NDArray[Any] = np.ascontiguousarray(x.astype(dtype).transpose(2, 0, 1)).transpose(1, 2, 0)
    strided: NDArray[Any] = np.repeat(x.astype(dtype), 2, axis=1)[::1, ::2]
    for array in (x.astype(dtype), np.asfortranarray(x.astype(dtype)), middle_last, strided):
        engine = build(Case(model, {"X": array}, masks, {}, init))
        other = engine.counts(init)  # sums may follow memory, so the last bits may differ
        assert other.log_term == pytest.approx(plain.log_term, rel=1e-14)
        for name in "ABC":
            np.testing.assert_allclose(other.by_factor[name], plain.by_factor[name], rtol=1e-14)
            np.testing.assert_allclose(engine.exposure(init, name), exact.exposure(init, name), rtol=1e-14)


def test_float32_gives_back_what_rounding_the_factors_takes(build: Build) -> None:
    """1 + 3e-8 is 1 in float32: the log term of a million counts would lose 0.03 by it, in every entry."""
    model = pltf.Model("X[i,j] = A[i,r] * B[r,j]", r=1)
    init = {"A": np.full((5, 1), 1 + 3e-8), "B": np.ones((1, 4))}
    case = Case(model, {"X": np.full((5, 4), 1e6)}, {"X": np.ones((5, 4), dtype=bool)}, {}, init)
    exact = reference_log_term(case)
    assert build(case, dtype="float32").counts(init).log_term == pytest.approx(exact, abs=1e-3 + 2e-9 * abs(exact))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_links_of_any_rate(build: Build, dtype: str) -> None:
    """Rates from 1e-30 to 1e6: neither exp(-rate) nor 1-exp(-rate) may lose its digits."""
    rates = np.array([1e-30, 1e-12, 1e-5, 0.3, np.log(2), 5.0, 40.0, 800.0, 1e6])
    init = {"A": rates[:, None], "B": np.ones((2, 1))}
    everywhere = {"X": np.ones((rates.size, 2), dtype=bool)}
    links = np.stack([np.ones(rates.size), np.zeros(rates.size)], axis=1)
    model = pltf.Model("X[i,j] = A[i,r] * B[j,r]", r=1)
    for n in range(rates.size):  # one link at a time: in a sum the small ones would be lost
        case = Case(model, {"X": links * np.eye(rates.size)[n][:, None]}, everywhere, {}, init, {"X": "bernoulli"})
        counts, precise = build(case, dtype=dtype).counts(init), 1e-6 if dtype == "float32" else 1e-14
        assert counts.log_term == pytest.approx(float(log_odds(rates[n : n + 1])[0]), rel=precise, abs=precise)
        assert counts.by_factor["A"][n, 0] == pytest.approx(rates[n] / -np.expm1(-rates[n]), rel=precise)


def test_float32_gives_back_what_rounding_the_factors_takes_from_links(build: Build) -> None:
    """The bound is exact for the q that was used: log(exp(Xhat')-1) + sum of counts * log(L/L')."""
    rng = np.random.default_rng(0)
    init = {"A": rng.gamma(1.0, 1.0, (60, 3)), "B": rng.gamma(1.0, 1.0, (3, 50))}
    X = (rng.random((60, 50)) < 0.5).astype(np.float64)
    case = Case(pltf.nmf(rank=3), {"X": X}, {"X": np.ones(X.shape, dtype=bool)}, {}, init, {"X": "bernoulli"})
    case = replace(case, model=pltf.Model("X[i,j] = A[i,r] * B[r,j]", r=3))
    rounded = {name: array.astype(np.float32).astype(float) for name, array in init.items()}
    reference = case.reference()
    q = replace(case, init=rounded)
    lost = sum(float((reference.counts(a, rounded) * np.log(init[a] / rounded[a])).sum()) for a in init)
    exact = reference_log_term(q) + lost
    got = build(case, dtype="float32").counts(init).log_term
    assert got == pytest.approx(exact, abs=3e-7 * X.sum())
    assert got == pytest.approx(reference_log_term(case), abs=3e-7 * X.sum())


def test_a_zero_rate_under_a_link_is_minus_infinity(build: Build) -> None:
    init = {"W": np.array([[0.0], [1.0]]), "H": np.array([[1.0, 1.0]])}
    everywhere = {"X": np.ones((2, 2), dtype=bool)}
    case = Case(pltf.nmf(rank=1), {"X": np.eye(2)}, everywhere, {}, init, {"X": "bernoulli"})
    for dtype in ("float64", "float32"):
        assert build(case, dtype=dtype).counts(init).log_term == -np.inf


def test_a_zero_rate_under_a_count_is_minus_infinity(build: Build) -> None:
    model = pltf.nmf(rank=1)
    init = {"W": np.array([[0.0], [1.0]]), "H": np.array([[1.0, 1.0]])}
    everywhere = {"X": np.ones((2, 2), dtype=bool)}
    case = Case(model, {"X": np.array([[1.0, 0.0], [2.0, 3.0]])}, everywhere, {}, init)
    for dtype in ("float64", "float32"):
        assert build(case, dtype=dtype).counts(init).log_term == -np.inf
    harmless = Case(model, {"X": np.array([[0.0, 0.0], [2.0, 3.0]])}, everywhere, {}, init)
    counts = build(harmless).counts(init)
    assert np.isfinite(counts.log_term)
    np.testing.assert_allclose(counts.by_factor["W"], [[0], [5]])


def test_holes_may_hold_nearly_all_of_a_slice(build: Build) -> None:
    """Closed form less holes would leave no digit: a hole has 1e17 times the rate of the observed cells beside it."""
    model = pltf.cp(rank=2)
    rng = np.random.default_rng(0)
    init = {name: rng.random((size, 2)) + 0.5 for name, size in zip("ABC", (4, 5, 6), strict=True)}
    init["B"][2] *= 1e17
    mask = np.ones((4, 5, 6), dtype=bool)
    mask[:, 2, :] = False
    mask[3, 2, 1] = True  # but one: its slices are not empty
    case = Case(model, {"X": rng.poisson(2.0, mask.shape).astype(float)}, {"X": mask}, {}, init)
    engine = build(case)
    for name, spec in (("A", "ijk,jr,kr->ir"), ("B", "ijk,ir,kr->jr"), ("C", "ijk,ir,jr->kr")):
        others = [init[other] for other in "ABC" if other != name]
        np.testing.assert_allclose(engine.exposure(init, name), np.einsum(spec, mask, *others), rtol=1e-12)


@pytest.mark.parametrize("rank", [4, 5, 6, 8])
def test_where_arrays_lie_does_not_change_a_bit(build: Build, rank: int) -> None:
    """Compiled loops may take another way if arrays begin close to each other: stir the heap and look."""
    rng = np.random.default_rng(0)
    x = rng.poisson(0.7, (12, 11, 10)).astype(float)
    init = {name: rng.random((size, rank)) + 0.1 for name, size in zip("ABC", x.shape, strict=True)}
    case = Case(pltf.cp(rank=rank), {"X": x}, {"X": rng.random(x.shape) < 0.8}, {}, init)
    engine, seen, kept = build(case, threads=2), set(), []
    for _ in range(3 if interpreted(build) else 60):
        counts = engine.counts(init)
        seen.add((counts.log_term, *(part.tobytes() for part in counts.by_factor.values())))
        kept += [np.empty(rng.integers(1, 300), np.uint8) for _ in range(40)]
        del kept[:: rng.integers(2, 4)]
    assert len(seen) == 1


@given(case=cp_cases(links=True))
def test_modes_too_long_for_private_sums_have_a_pass_of_their_own(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listed_module, "PRIVATE_BYTES", 0)
        engines = [_sparse_zero(case, threads=2), _sparse_missing(case, threads=2)]
    for engine in engines:
        assert_matches_reference(engine, case, 1e-9)
