"""What the dense engine of a device promises beyond the contract: passes, memory, digits, and kernels that compile."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pltf
from pltf.devices import Device
from pltf.engines import registry
from pltf.engines.base import Engine
from pltf.engines.factors import Versioned
from pltf.engines.torch import fused, plain, table
from pltf.engines.torch.dense import TorchDenseEngine, bytes_of
from tests.contract.on_device import OnDevice
from tests.extras import TORCH
from tests.on_device import ON_GPU, device

if not TORCH:
    pytest.skip("needs torch", allow_module_level=True)

import torch

from tests.engines.torch import alone_kernels
from tests.sm90 import compiled

UBER = pltf.Model("X[w,h,d,i,j] = W[w,r] * H[h,r] * D[d,r] * I[i,k,r] * J[j,k,r]", r=2, k=3)
SHARED = pltf.Model("X[i,j,k] = A[i,j,r] * B[j,k,r]", r=2)  # both sides of the root have j
CP = pltf.cp(rank=3)


def planned(model: pltf.Model, X: NDArray[Any], mask: NDArray[np.bool_] | None, **options: Any) -> Any:
    seen = {"X": pltf.observe(X, mask)}
    return model.plan(seen, **options), seen


def built(
    model: pltf.Model, X: NDArray[Any], mask: NDArray[np.bool_] | None = None, *, kernels: bool = True, **options: Any
) -> TorchDenseEngine:
    plan, seen = planned(model, X, mask, engine="dense", **options)
    engine = registry.build(replace(plan, device=device(kernels=kernels)), seen)
    assert isinstance(engine, TorchDenseEngine)
    return engine


def on_host(model: pltf.Model, X: NDArray[Any], mask: NDArray[np.bool_] | None = None, **options: Any) -> Engine:
    plan, seen = planned(model, X, mask, engine="dense", **options)
    return registry.build(plan, seen)


def drawn(model: pltf.Model, X: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
    rng, sizes = np.random.default_rng(1), model.index_sizes({"X": X.shape})
    return {a: rng.gamma(1.0, 1.0, [sizes[i] for i in held]) + 0.01 for a, held in model.factors.items()}


def there(factors: dict[str, NDArray[np.float64]], *, kernels: bool = True) -> Versioned[Any]:
    return Versioned({name: device(kernels=kernels).put(array) for name, array in factors.items()})


def counts(*shape: int) -> NDArray[Any]:
    return np.random.default_rng(0).poisson(1.0, shape).astype(float)


# -- kernels and plain PyTorch ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "shape", "batch"),
    [
        (CP, (7, 6, 5), 1),
        (pltf.nmf(rank=2), (9, 40), 1),
        (pltf.tucker(ranks=(2, 3, 2)), (6, 5, 4), 1),
        (UBER, (3, 2, 2, 4, 5), 1),
        (SHARED, (5, 4, 3), 4),
        (pltf.Model("X[i] = A[i,r]", r=2), (5,), 1),
    ],
    ids=["cp", "nmf", "tucker", "uber", "shared index", "one factor"],
)
def test_the_root_is_a_product_of_matrices(model: pltf.Model, shape: tuple[int, ...], batch: int) -> None:
    plan = planned(model, counts(*shape), None)[0].equations[0].dense
    found = table.Table(plan.tree, plan.sizes)
    assert math.prod(found.shape) == math.prod(shape)
    assert found.shape[0] == batch
    assert found.shape[1] <= found.shape[2] or not plan.tree.steps
    takes = fused.FusedPasses.take(found, plan.dtype, device(kernels=True))
    assert takes == (batch == 1 and bool(plan.tree.steps))
    assert not fused.FusedPasses.take(found, plan.dtype, device(kernels=False))


def test_bonds_that_are_too_large_for_kernels_go_the_plain_way() -> None:
    X = counts(3, 4)
    for rank, passes in ((64, fused.FusedPasses), (65, plain.PlainPasses)):
        assert isinstance(built(pltf.nmf(rank=rank), X)._passes, passes)
    assert isinstance(built(pltf.nmf(rank=128), X, dtype="float32")._passes, fused.FusedPasses)


def test_a_gpu_with_little_shared_memory_takes_fewer_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton would refuse the kernels at their launch. 99 KB are those of an RTX 4090, 163 KB of an A100."""
    gpu = Device("cuda:0", kernels=True)
    monkeypatch.setattr(fused, "has_tensor_cores", lambda _: True)
    for bytes_, most in ((99 << 10, 32), (163 << 10, 64), (227 << 10, 128)):
        monkeypatch.setattr(fused, "shared_memory", lambda _, size=bytes_: size)
        for rank in (32, 33, 64, 65, 128):
            plan = planned(pltf.nmf(rank=rank), counts(3, 4), None, dtype="float32")[0].equations[0].dense
            found = table.Table(plan.tree, plan.sizes)
            assert fused.FusedPasses.take(found, plan.dtype, gpu) == (rank <= most)


CASES = {
    "cp": (CP, (20, 9, 7), "poisson"),
    "cp of four modes": (pltf.Model("X[i,j,k,l] = A[i,r] * B[j,r] * C[k,r] * D[l,r]", r=17), (9, 4, 3, 8), "poisson"),
    "links": (pltf.nmf(rank=2), (37, 51), "bernoulli"),
    "uber": (UBER, (6, 3, 2, 4, 5), "poisson"),
    "shared index": (SHARED, (5, 4, 3), "poisson"),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_kernels_are_their_twins(name: str, masked: bool, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Larger than the contract's cases: several tiles, several slabs and groups of them."""
    monkeypatch.setattr(fused, "PARTS_BYTES", 3000)
    monkeypatch.setattr(fused, "PROGRAMS", 4)
    monkeypatch.setattr(plain, "ON_HOST", 40 * 50)
    model, shape, likelihood = CASES[name]
    X = counts(*shape) if likelihood == "poisson" else (counts(*shape) > 0).astype(float)
    mask = np.random.default_rng(2).random(shape) < 0.6 if masked else None
    factors = drawn(model, X)
    host = on_host(model, X, mask, dtype=dtype)
    for kernels in (True, False):
        ours = OnDevice(built(model, X, mask, kernels=kernels, dtype=dtype), device(kernels=kernels))
        near: dict[str, Any] = {"rtol": 1e-12} if dtype == "float64" else {"rtol": 2e-5, "atol": 1e-8}
        got, wanted = ours.counts(factors), host.counts(factors)
        assert float(got.log_term) == pytest.approx(wanted.log_term, rel=1e-12 if dtype == "float64" else 1e-6)
        assert float(ours.total(factors)) == pytest.approx(host.total(factors), rel=1e-12)
        for a in factors:
            np.testing.assert_allclose(got.by_factor[a], wanted.by_factor[a], **near)
            np.testing.assert_allclose(ours.exposure(factors, a), host.exposure(factors, a), rtol=1e-12)


def test_programs_are_cut_from_the_shape_alone() -> None:
    """A table of one block has as many groups of rows as it may, and no program is without a tile."""
    plan = planned(pltf.nmf(rank=3), counts(100, 120), None)[0].equations[0].dense
    passes = fused.FusedPasses(table.Table(plan.tree, plan.sizes), plan.dtype, device(kernels=True), links=False)
    tiles = passes._tiles
    assert passes.width % tiles.columns == 0
    assert (
        (passes._groups - 1) * passes._row_tiles * tiles.rows < 100 <= passes._groups * passes._row_tiles * tiles.rows
    )


def test_pytorch_only_contracts_the_sides_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its operations is a kernel of its own, which reads and writes whole sides."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = called(*args, **(kwargs or {}))
            if "alias" not in str(called._schema) and not called.is_view and "empty" not in called._schema.name:
                seen.append(called._schema.name)
            return found

    engine = built(CP, counts(20, 9, 7), dtype="float32")
    factors = there(drawn(CP, counts(20, 9, 7)))
    engine.counts(factors)
    monkeypatch.setattr(fused, "launched", lambda *_, **__: None)
    with Watch():
        engine.counts(factors)
    assert 3 <= len(seen) <= 6, seen  # rates of a side; two sums; times the factors


# -- cells --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize(
    ("came", "dtype", "stored"),
    [
        ("bool", "float32", "uint8"),
        ("uint8", "float32", "uint8"),
        ("int16", "float32", "int16"),
        ("int64", "float32", "float32"),
        ("uint8", "float64", "float64"),
        ("int32", "float64", "int32"),
        ("float32", "float64", "float32"),
        (">i2", "float32", "float32"),
    ],
)
def test_narrow_values_stay_narrow_and_change_no_bit(came: str, dtype: str, stored: str, kernels: bool) -> None:
    X = np.random.default_rng(0).integers(0, 2, (6, 5, 4))
    factors, mask = there(drawn(CP, X), kernels=kernels), X != 1
    mask[0] = True
    narrow, plain_ones = (built(CP, X.astype(c), mask, kernels=kernels, dtype=dtype) for c in (came, dtype))
    one, other = narrow.counts(factors), plain_ones.counts(factors)
    assert str(narrow._values.table.dtype) == f"torch.{stored}"
    assert one.log_term == other.log_term
    assert all(torch.equal(one.by_factor[a], other.by_factor[a]) for a in factors)


def test_cells_are_copied_once_and_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "PIECE_BYTES", 100)  # in many pieces
    X = counts(6, 5, 4)
    engine = built(CP, X, X != 1)
    factors = there(drawn(CP, X))
    engine.exposure(factors, "A")
    assert engine._values._cells is None
    before = engine.counts(factors)
    twin = engine.fresh()
    assert twin._values.table is engine._values.table
    assert twin._mask.table is engine._mask.table
    assert not twin._memo.holds(("delta", 0), factors.versions("BC"))
    again = twin.counts(factors)
    assert again.log_term == before.log_term
    assert all(torch.equal(again.by_factor[a], before.by_factor[a]) for a in factors)


# -- exposures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", [True, False])
def test_a_sweep_passes_the_mask_twice(kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[str] = []
    kind: Any = fused.FusedPasses if kernels else plain.PlainPasses

    def counted(name: str) -> Any:
        whole = getattr(kind, name)

        def call(*arguments: Any) -> Any:
            passes.append(name)
            return whole(*arguments)

        return call

    for name in ("seen_by_rows", "seen_by_columns"):
        monkeypatch.setattr(kind, name, counted(name))
    X = counts(6, 5, 4)
    factors = there(drawn(CP, X), kernels=kernels)
    engine = built(CP, X, X != 1, kernels=kernels)
    for _ in range(3):
        for a in "ABC":
            engine.exposure(factors, a)
            factors = factors.updated({a: factors[a] * 1.5})
        engine.total(factors)
    assert sorted(passes) == ["seen_by_columns"] * 3 + ["seen_by_rows"] * 3
    whole = built(CP, X, kernels=kernels)
    whole.exposure(factors, "A")
    assert len(passes) == 6


@pytest.mark.parametrize(
    ("shape", "rank"), [((3, 5), 3), ((17, 128), 8), ((40, 129), 9), ((9, 600), 1), ((513, 20), 3), ((7, 30), 100)]
)
def test_bits_of_a_mask_are_its_cells(shape: tuple[int, int], rank: int) -> None:
    """Bytes and words, whole and cut off, along both sides."""
    rng = np.random.default_rng(0)
    X, mask = counts(*shape), rng.random(shape) < 0.7
    engine = built(pltf.nmf(rank=rank), X, mask, dtype="float32")
    passes, table = engine._passes, engine._table
    turned = table.sides[0] == 1  # rows of the table are those of the second factor
    ones, bits = (mask.T if turned else mask).astype(float), engine._mask.table
    assert isinstance(bits, fused.Bits)
    np.testing.assert_array_equal(passes.ones(bits)[0].cpu(), ones)
    held = sum(one.numel() * one.element_size() for one in (bits.by_rows, bits.by_columns))
    assert held == passes.mask_bytes
    rows, columns = (device(kernels=True).put(rng.random((n, rank))) for n in ones.shape)
    by_rows, by_columns = passes.seen_by_rows(bits, columns.T[None]), passes.seen_by_columns(bits, rows[None])
    np.testing.assert_allclose(by_rows[0].cpu(), ones @ columns.cpu().numpy(), rtol=1e-14)
    np.testing.assert_allclose(by_columns[0].cpu().T, ones.T @ rows.cpu().numpy(), rtol=1e-14)


# -- digits of float32 --------------------------------------------------------------------------


def test_rates_that_are_all_too_small_are_given_back() -> None:
    """Tensor cores cut off where others round: the sum of the rates tells how much."""
    passes = built(pltf.nmf(rank=3), counts(2, 4), dtype="float32")._passes
    assert isinstance(passes, fused.FusedPasses)

    def wide(numbers: list[list[float]]) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.float64, device=device(kernels=True).place)

    def log_term(log: float, rates: float, lost: float = 0.0) -> float:
        of_cells = wide([[log / 4] * 4, [rates / 4] * 4])
        rounded = wide([[0.5] * passes._terms] * 2), wide([[0.5 if r < 3 else 0.0 for r in range(passes._terms)]] * 4)
        finished = wide([[1.0, total - 1.0], [lost, 0.0]]), wide([[total], [2 * lost]])
        return float(passes._log_term(of_cells, rounded, finished))

    exact, total = 2 * 4 * 3 * 0.25, 1.5
    for share, known in ((1.0, True), (1 - 1e-7, True), (0.0, False), (math.inf, False), (math.nan, False)):
        lost = -total * math.log(share) if known else 0.0
        with np.errstate(all="ignore"):
            assert log_term(-7.0, exact * share) == pytest.approx(-7.0 + lost, rel=1e-15)
    assert log_term(-7.0, exact, lost=0.25) == pytest.approx(-6.25, rel=1e-15)
    assert log_term(-math.inf, exact) == -math.inf


def test_the_bound_of_large_counts_keeps_its_digits() -> None:
    """Counts of millions: a logarithm in float32 would be off by tens, and rounding all factors down by a hundred."""
    rng = np.random.default_rng(0)
    drawn = {"W": rng.gamma(2.0, 300.0, (40, 5)), "H": rng.gamma(2.0, 300.0, (5, 70))}
    factors = {a: z.astype(np.float32).astype(float) * (1 + 2.5e-8) for a, z in drawn.items()}
    X = rng.poisson(factors["W"] @ factors["H"]).astype(float)
    exact = on_host(pltf.nmf(rank=5), X).counts(factors).log_term
    for kernels in (True, False):
        engine = built(pltf.nmf(rank=5), X, kernels=kernels, dtype="float32")
        log_term = float(engine.counts(there(factors, kernels=kernels)).log_term)
        assert log_term == pytest.approx(exact, abs=3e-9 * X.sum())


def ran(kernel: Any, *arrays: NDArray[np.float32], out: int, **constants: bool) -> list[NDArray[np.float32]]:
    """What a kernel makes of arrays of one length."""
    place, n = device(kernels=True), arrays[0].size
    given = [place.put(array) for array in arrays]
    made = [torch.empty_like(given[0]) for _ in range(out)]
    with np.errstate(over="ignore"):
        kernel[(1,)](*given, *made, n, BLOCK=1 << (n - 1).bit_length(), **constants)
    return [tensor.cpu().numpy() for tensor in made]


def many(seed: int = 0) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    near_one = 1 + rng.uniform(-0.6, 0.6, 1000)
    return np.concatenate([near_one, 10.0 ** rng.uniform(-30, 30, 1000)]).astype(np.float32)


def test_logarithms_have_the_digits_of_float32() -> None:
    x = many()
    powers, rest = ran(alone_kernels.logs, x, out=2)
    found = powers.astype(float) * (math.log(2) / 2**23) + rest
    exact = np.log(x.astype(float))
    assert np.abs(found - exact).max() < 3e-8
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-8)
    powers, rest = ran(alone_kernels.logs, np.array([2.0**121, np.inf, 0.0], np.float32), out=2)
    assert powers[0] == powers[1] == np.inf
    assert np.isfinite(rest).all()
    assert powers[2] * 0 == 0  # a cell without a count adds nothing


def test_ratios_have_the_digits_of_float32() -> None:
    rate = many()
    x = np.random.default_rng(1).poisson(2.0, rate.size).astype(np.float32)
    (ratio,) = ran(alone_kernels.ratios, x, rate, out=1, NATIVE=ON_GPU)
    np.testing.assert_allclose(ratio, x / rate, rtol=1.3e-7)
    (ratio,) = ran(
        alone_kernels.ratios, np.array([0, 1, 0.02], np.float32), np.zeros(3, np.float32), out=1, NATIVE=ON_GPU
    )
    assert ratio[0] == 0
    assert (ratio[1:] > 2.0**120).all()  # whose logarithm counts as infinite


def test_three_numbers_of_eight_bits_are_a_float32() -> None:
    x = many()
    parts = ran(alone_kernels.pieces, x, out=3, NATIVE=ON_GPU)
    np.testing.assert_array_equal(parts[0].astype(float) + parts[1] + parts[2], x)
    for part in parts:
        assert not (part.view(np.int32) & 0xFFFF).any()


# -- memory, and what the compiler makes of it --------------------------------------------------


def peak(work: Callable[[], object]) -> int:
    """Bytes that PyTorch holds at a time for some work."""
    if ON_GPU:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return int(torch.cuda.max_memory_allocated() - before)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        work()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    taken = np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())])
    return int(taken.max())


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize(("model", "dtype"), [(pltf.cp(rank=20), "float32"), (CP, "float64"), (SHARED, "float32")])
def test_memory_is_known_before(model: pltf.Model, dtype: str, kernels: bool) -> None:
    X = counts(24, 20, 40)
    mask = X != 1
    factors = there(drawn(model, X), kernels=kernels)

    def sweep() -> None:
        engine = built(model, X, mask, kernels=kernels, dtype=dtype)
        engine.counts(factors)
        for a in factors:
            engine.exposure(factors, a)

    plan = planned(model, X, mask, engine="dense", dtype=dtype)[0].equations[0].dense
    sweep()  # libraries take what they need for themselves
    said = bytes_of(plan, device(kernels=kernels))
    assert 0.4 * said <= peak(sweep) <= 1.1 * said


def test_narrow_cells_take_less_memory() -> None:
    plan = planned(CP, np.zeros((50, 40, 30), np.uint8), None, dtype="float32")[0].equations[0].dense
    wide = replace(plan, data_dtype=np.dtype("i8"))
    for kernels in (True, False):
        assert bytes_of(wide, device(kernels=kernels)) - bytes_of(plan, device(kernels=kernels)) >= 3 * 50 * 40 * 30


def test_kernels_compile_for_a_gpu_and_keep_to_its_registers() -> None:
    found = compiled("tests.engines.torch.dense_kernels_sm90")
    spills = {name: one.stack + one.local for name, one in found.items()}
    assert spills.pop("64 terms") <= 320  # two tiles of 64 x 64 float32 sums do not leave room for more
    assert max(spills.values()) <= 64, spills
    for name, terms, dtype in (("7 terms", 16, "f4"), ("64 terms", 64, "f4"), ("7 terms, float64", 16, "f8")):
        assert found[name].shared <= fused.shared_bytes(np.dtype(dtype), terms)
