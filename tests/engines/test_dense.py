"""What the dense engine promises beyond the contract: no wasted passes, no wasted memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pltf
from pltf.engines import dense_cp, registry
from pltf.engines import plan as planning
from pltf.engines.base import Engine
from pltf.engines.contraction import Tree
from pltf.engines.dense import DenseEngine
from pltf.engines.dense_cp import DenseCpEngine
from pltf.engines.kernels.dense import APART, ratios
from pltf.engines.ways import Task


def built(model: pltf.Model, X: NDArray[Any], mask: NDArray[np.bool_] | None = None) -> Engine:
    seen = {"X": pltf.observe(X, mask)}
    return registry.build(model.plan(seen, threads=2), seen)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the passes over the mask: each goes from the root of the tree, once a block."""
    seen: list[int] = []
    descend = Tree.descend

    def counted(self: Tree, values: list[np.ndarray], cells: np.ndarray, node: int) -> np.ndarray:
        if cells.ndim and node in self.parents:
            seen.append(node)
        return descend(self, values, cells, node)

    monkeypatch.setattr(Tree, "descend", counted)
    return seen


X = np.random.default_rng(0).poisson(2.0, (5, 5, 5))
ONE_FACTOR_MORE = pltf.Model("X[i,j,k] = A[i,r] * B[j,r] * C[k,r] * Own[r]", r=2)  # not CP: no fused kernel


def test_partial_sums_of_the_mask_are_shared_within_a_sweep(passes: list[int]) -> None:
    ONE_FACTOR_MORE.fit(X, mask=X != 3, max_iter=10, tol=0, threads=1, accelerate=False)
    assert len(passes) == 20  # two a sweep, not four, and none for the total


def test_nothing_missing_touches_no_cell(passes: list[int], fused_passes: list[str]) -> None:
    for model in (ONE_FACTOR_MORE, pltf.cp(rank=2)):
        model.fit(X, max_iter=10, tol=0, threads=1, accelerate=False)
    assert not passes
    assert not fused_passes


def test_large_partial_sums_are_not_kept(monkeypatch: pytest.MonkeyPatch, passes: list[int]) -> None:
    monkeypatch.setattr(planning, "SHARED_BYTES", 0)
    model = pltf.Model(str(ONE_FACTOR_MORE.equations[0]), r=9)
    model.fit(X, mask=X != 3, max_iter=10, tol=0, threads=1, accelerate=False)
    assert len([node for node in passes if node < 4]) >= 30  # a pass for every factor


@pytest.fixture
def fused_passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that went over the mask."""
    seen: list[str] = []

    def counted(name: str) -> Any:
        kernel = getattr(dense_cp, name)

        def call(*arguments: Any) -> None:
            seen.append(name)
            kernel(*arguments)

        return call

    for name in ("mask_by_inner", "mask_by_outer"):
        monkeypatch.setattr(dense_cp, name, counted(name))
    return seen


def test_fused_sums_of_the_mask_are_shared_within_a_sweep(fused_passes: list[str]) -> None:
    # The last mode is short: the two last go together as inner ones, and share what the first sees of the mask.
    pltf.cp(rank=2).fit(X, mask=X != 3, max_iter=10, tol=0, threads=1, accelerate=False, dispersion=None)
    assert sorted(fused_passes) == ["mask_by_inner"] * 10 + ["mask_by_outer"] * 10


@pytest.mark.parametrize(("budget", "passes_by_inner"), [(1 << 20, 10), (0, 20)])
def test_what_inner_modes_see_is_kept_while_it_is_small(
    monkeypatch: pytest.MonkeyPatch, fused_passes: list[str], budget: int, passes_by_inner: int
) -> None:
    monkeypatch.setattr(dense_cp, "SHARED_BYTES", budget)
    long = np.random.default_rng(0).poisson(2.0, (5, 5, 40))
    pltf.cp(rank=9).fit(long, mask=long != 3, max_iter=10, tol=0, threads=1, accelerate=False, dispersion=None)
    assert fused_passes.count("mask_by_inner") == passes_by_inner
    assert fused_passes.count("mask_by_outer") == 10


def test_fused_kernel_is_taken_where_it_can_be() -> None:
    cp = pltf.cp(rank=2)
    wide = np.zeros((2, dense_cp.LONGEST_INNER + 1))
    assert isinstance(built(cp, X), DenseCpEngine)
    assert isinstance(built(cp, np.asfortranarray(X)), DenseCpEngine)
    assert isinstance(built(cp, X[:, ::2]), DenseEngine)
    assert isinstance(built(pltf.nmf(rank=2), wide), DenseEngine)
    assert isinstance(built(pltf.nmf(rank=2), wide.T), DenseEngine)  # its rows are the same
    assert isinstance(built(ONE_FACTOR_MORE, X), DenseEngine)


@pytest.mark.parametrize(
    ("shape", "inner"),
    [
        ((50, 50, 50), (50,)),
        ((146, 168, 5), (168, 5)),  # short modes at the end go together
        ((2, 100_000, 20), (20,)),  # but not into more columns than a kernel should hold
        ((40, 3, 2, 2), (3, 2, 2)),
    ],
)
def test_columns_of_a_table_are_neither_few_nor_many(shape: tuple[int, ...], inner: tuple[int, ...]) -> None:
    table = dense_cp.CellTable(np.zeros(shape, dtype=bool))
    assert table.inner == inner
    assert table.outer + table.inner == shape


@pytest.mark.parametrize("shape", [(7, 900), (3, 2, 50, 40), (2, 3, 2, 3, 5), (1, 1, 6), (40, 1, 1), (70, 60, 50)])
@pytest.mark.parametrize("masked", [True, False])
def test_fused_kernel_is_its_twin(shape: tuple[int, ...], masked: bool) -> None:
    """Larger than the contract's cases: several tiles, runs that a tile cuts, several pieces."""
    rng = np.random.default_rng(0)
    indices = "ijklm"[: len(shape)]
    model = pltf.Model(f"X[{','.join(indices)}] = " + " * ".join(f"F{i}[{i},r]" for i in indices), r=3)
    data = rng.poisson(1.0, shape).astype(float)
    mask = rng.random(shape) < 0.6 if masked else None
    factors = {f"F{i}": rng.random((size, 3)) + 0.1 for i, size in zip(indices, shape, strict=True)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense_cp, "MOST_CELLS", 1 << 14)
        patch.setattr(dense_cp, "LEAST_CELLS", 1 << 10)
        fused = built(model, data, mask)
        patch.setattr(Task, "is_cp", False)
        twin = built(model, data, mask)
    assert isinstance(fused, DenseCpEngine)
    assert isinstance(twin, DenseEngine)
    ours, theirs = fused.counts(factors), twin.counts(factors)
    assert ours.log_term == pytest.approx(theirs.log_term, rel=1e-12)
    assert fused.total(factors) == pytest.approx(twin.total(factors), rel=1e-12)
    for name in factors:
        np.testing.assert_allclose(ours.by_factor[name], theirs.by_factor[name], rtol=1e-12)
        np.testing.assert_allclose(fused.exposure(factors, name), twin.exposure(factors, name), rtol=1e-12)


def test_ratio_kernel_is_its_numpy_equivalent() -> None:
    rng = np.random.default_rng(0)
    dtypes: tuple[Any, ...] = (np.float64, np.float32)
    for dtype, precise in zip(dtypes, (1e-13, 1e-9), strict=True):
        x = rng.poisson(1.0, 1000).astype(dtype)
        x[::7] = np.nan
        known = rng.random(1000) < 0.7
        known[::7] = False
        rate = (10.0 ** rng.uniform(-30, 30, 1000)).astype(dtype)
        seen = known & (x > 0)
        expected = np.where(seen, x / rate, 0).astype(dtype)
        terms = -(x[seen].astype(float) * np.log((x[seen] / rate[seen]).astype(float)))
        got, quick = rate.copy(), rate.copy()
        assert ratios(x, known, got) == pytest.approx(terms.sum(), abs=precise * np.abs(terms).sum())
        np.testing.assert_array_equal(got, expected)
        assert np.isnan(ratios(x, known, quick, log=False))
        np.testing.assert_array_equal(quick, expected)
        whole = np.where(np.isnan(x), 0, x).astype(dtype)
        ratios(whole, None, rate)
        np.testing.assert_array_equal(rate > 0, whole > 0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("power", [-1, 1])
def test_ratios_beyond_all_exponents_have_a_logarithm(dtype: Any, power: int) -> None:
    """A quotient that is subnormal, zero or infinite."""
    limits = np.finfo(dtype)
    x = np.array([1.0, 3.0, 0.0, 2.0], dtype)
    rate = np.array([1, limits.max if power < 0 else limits.smallest_subnormal, 1, 2], dtype)
    with np.errstate(over="ignore"):
        expected = -(3.0 * np.log(np.float64(x[1] / rate[1])))
    assert ratios(x, None, rate.copy()) == pytest.approx(expected, rel=1e-6 if dtype == np.float32 else 1e-12)
    rate[3] = 0
    assert ratios(x, None, rate.copy()) == -np.inf


def test_bits_of_the_log_term_do_not_depend_on_where_arrays_lie() -> None:
    rng = np.random.default_rng(0)
    for size in (5, 30, 77, 500):
        x, rate = rng.poisson(3.0, size) + 0.5, rng.random(size) + 0.1
        seen = set()
        for gap in range(0, APART, 7):
            space = np.empty(2 * size + 3 * APART)
            counts, rates = space[gap : gap + size], space[gap + size + APART :][:size]
            counts[:], rates[:] = x, rate
            seen.add(ratios(counts, None, rates, log=True))
        assert len(seen) == 1


@pytest.mark.parametrize("model", [pltf.cp(rank=2), ONE_FACTOR_MORE], ids=["fused", "contracted"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_log_term_where_none_is_wanted(model: pltf.Model, dtype: Any) -> None:
    seen = {"X": pltf.observe(X)}
    engine = registry.build(model.plan(seen, dtype=dtype), seen)
    rng = np.random.default_rng(0)
    factors = {a: rng.random([{"r": 2}.get(i, 5) for i in held]) for a, held in model.factors.items()}
    assert np.isnan(engine.counts(factors, ["B"], log=False).log_term)
    # With it, it is that of all factors, whichever are wanted.
    assert engine.counts(factors, ["B"]).log_term == engine.counts(factors).log_term


@pytest.mark.parametrize(("dispersion", "most"), [(None, 1.2), ("auto", 1.6)])
def test_peak_memory_of_27_million_cells(dispersion: str | None, most: float) -> None:
    """All that is allocated, whatever the compiler or its cache may take; the dispersion needs a mask of its own."""
    rng, shape = np.random.default_rng(0), (300, 300, 300)
    X, mask = np.empty(shape, dtype="float32"), np.empty(shape, dtype=bool)
    for i in range(shape[0]):
        X[i] = rng.poisson(2.0, shape[1:])
        mask[i] = rng.random(shape[1:]) < 0.6

    def fit() -> pltf.Fit:
        return pltf.cp(rank=7).fit(X, mask=mask, dtype="float32", max_iter=3, tol=0, dispersion=dispersion)

    fit()  # compiles
    tracemalloc.start()
    try:
        kept = fit()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    data = X.nbytes + mask.nbytes
    assert kept.keeps_data
    assert (data + peak) / data <= most
