"""Whole fits on a device: what it computes is what the host computes."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pltf
import pltf.datasets
from pltf.devices import CUDA, INTERPRETED, PLAIN, Device, check_device, device_of
from pltf.engines.torch.listed import TorchListedEngine
from pltf.engines.ways import ALL, ONE
from pltf.selection import selector
from pltf.selection.search import Options
from tests.extras import TORCH
from tests.interpreter import quicken
from tests.on_device import NAMES, ON_GPU

if not TORCH:
    pytest.skip("needs torch", allow_module_level=True)
if not ON_GPU:
    quicken()


@dataclass(frozen=True)
class Problem:
    """A model with data, and options of a fit."""

    model: pltf.Model
    X: Any
    options: Mapping[str, Any] = field(default_factory=dict)


def drawn(model: pltf.Model, *shape: int, seed: int = 0) -> Any:
    return pltf.datasets.draw(model, shape, prior=pltf.Gamma(0.7, 1.5), seed=seed).counts["X"]


def with_holes(X: Any) -> Any:
    holed = X.astype(float)
    holed[np.random.default_rng(5).random(X.shape) < 0.3] = np.nan
    return holed


def listed(X: Any, **options: Any) -> pltf.Observation:
    return pltf.observe((np.argwhere(X > 0), X[X > 0]), shape=X.shape, **options)


CP, NMF, TUCKER = pltf.cp(rank=2), pltf.nmf(rank=2), pltf.tucker(ranks=(2, 2, 2))
COUPLED = pltf.Model("X[i,j] = A[i,r] * B[j,r]\nY[j,m] = B[j,r] * D[m,r]", r=2)
CUBE, TABLE, CORE = drawn(CP, 7, 6, 5), drawn(NMF, 8, 6), drawn(TUCKER, 6, 5, 4)
TWO = {"X": TABLE, "Y": drawn(NMF, 6, 4, seed=1)}

PROBLEMS = {
    "cp": Problem(CP, CUBE),
    "cp with holes": Problem(CP, with_holes(CUBE)),
    "cp, listed": Problem(CP, listed(CUBE)),
    "cp, listed with holes": Problem(CP, listed(CUBE, missing=np.argwhere(CUBE == 0)[::3])),
    "cp, missing unlisted": Problem(CP, listed(CUBE, unlisted="missing")),
    "nmf, learned shapes": Problem(NMF, TABLE, {"prior": pltf.Gamma(learn="both")}),
    "nmf, means by component": Problem(NMF, TABLE, {"prior": pltf.Gamma(learn="mean", tie="component")}),
    "nmf, arrays as priors": Problem(NMF, TABLE, {"prior": {"W": pltf.Gamma(np.full((8, 1), 0.5), 2.0)}}),
    "nmf, a factor fixed": Problem(NMF, TABLE, {"fixed": {"H": np.ones((2, 6))}}),
    "tucker": Problem(TUCKER, CORE),
    "tucker, listed": Problem(TUCKER, listed(CORE), {"engine": "sparse"}),
    "coupled": Problem(COUPLED, TWO),
    "links": Problem(CP, (CUBE > 0).astype(int), {"likelihood": "bernoulli"}),
    "links with holes": Problem(CP, with_holes(CUBE > 0), {"likelihood": "bernoulli"}),
    "em": Problem(NMF, with_holes(TABLE), {"method": "em"}),
    "map": Problem(NMF, TABLE, {"method": "map"}),
    "a random start": Problem(NMF, TABLE, {"init": "random"}),
    "restarts": Problem(NMF, TABLE, {"restarts": 2}),
    "plain sweeps": Problem(CP, CUBE, {"accelerate": False}),
}


def fitted(problem: Problem, **options: Any) -> pltf.Fit:
    given = {"max_iter": 8, "tol": 0, "dispersion": None, **problem.options, **options}
    return problem.model.fit(problem.X, **given)


@pytest.mark.parametrize("device", NAMES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_fit_is_that_of_the_host(name: str, device: str) -> None:
    """Acceleration amplifies rounding: a change of 1e-15 in the start of links is one of 2e-10 after 12 iterations."""
    sweeps = 5 if device == INTERPRETED else 12  # the interpreter takes milliseconds for each program
    here, there = (fitted(PROBLEMS[name], device=where, max_iter=sweeps) for where in ("cpu", device))
    np.testing.assert_allclose(there.trace, here.trace, rtol=1e-8)
    for a, factor in here.factors.items():
        np.testing.assert_allclose(there.factors[a].mean, factor.mean, rtol=1e-6, atol=1e-9)
        assert isinstance(there.factors[a].mean, np.ndarray)


@pytest.mark.parametrize("device", NAMES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_plain_sweeps_keep_all_digits(name: str, device: str) -> None:
    options: dict[str, Any] = {"accelerate": False, "max_iter": 3}
    here, there = (fitted(PROBLEMS[name], device=where, **options) for where in ("cpu", device))
    np.testing.assert_allclose(there.trace, here.trace, rtol=1e-12)


@pytest.mark.parametrize("device", NAMES)
@pytest.mark.parametrize("name", ["cp with holes", "cp, listed", "tucker", "links"])
def test_float32_has_its_digits(name: str, device: str) -> None:
    options: dict[str, Any] = {"dtype": "float32", "max_iter": 3}
    here, there = (fitted(PROBLEMS[name], device=where, **options) for where in ("cpu", device))
    np.testing.assert_allclose(there.trace, here.trace, rtol=1e-6)


def test_an_empty_list_in_float32_has_a_log_term() -> None:
    problem = Problem(NMF, listed(0 * TABLE), {"engine": "sparse", "dtype": "float32", "accelerate": False})
    traces = [
        fitted(problem, device=device, max_iter=3, prior=pltf.Gamma(0.5, 2.0)).trace for device in ("cpu", *NAMES)
    ]
    np.testing.assert_allclose(traces[1:], [traces[0]] * len(NAMES), rtol=1e-12)


@pytest.mark.parametrize("name", ["cp with holes", "cp, listed", "tucker, listed", "coupled"])
def test_one_device_gives_the_same_bits_again(name: str) -> None:
    first, again = (fitted(PROBLEMS[name], device=NAMES[0]) for _ in range(2))
    np.testing.assert_array_equal(first.trace, again.trace)
    for a, factor in first.factors.items():
        np.testing.assert_array_equal(again.factors[a].mean, factor.mean)


def test_a_fit_goes_on_and_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    problem, path = PROBLEMS["cp with holes"], tmp_path / "run.nc"
    whole = fitted(problem, device=NAMES[0], max_iter=30)

    def press(sweep: pltf.Sweep) -> bool:
        if sweep.n_iter == 14:
            raise KeyboardInterrupt
        return False

    options: dict[str, Any] = {"device": NAMES[0], "max_iter": 30, "checkpoint": path, "every": 0}
    with pytest.raises(KeyboardInterrupt):
        fitted(problem, callback=press, **options)
    resumed = fitted(problem, resume=True, **options)
    np.testing.assert_array_equal(resumed.trace, whole.trace)
    with pytest.raises(pltf.PltfError, match="is the fit of a different call"):  # another device has other bits
        fitted(problem, resume=True, **{**options, "device": "cpu"})


OUT_OF_RANGE: dict[str, dict[str, Any]] = {
    "some positive counts have rate zero": {"fixed": {"H": np.zeros((2, 6))}},
    "the ELBO is -inf after the first iteration": {
        "fixed": {"H": np.full((2, 6), 1e300)},
        "prior": pltf.Gamma(0.5, 1e300),
    },
    "the log-likelihood is -inf after the first iteration": {
        "method": "em",
        "init": {"W": np.full((8, 2), 1e200), "H": np.full((2, 6), 1e200)},
    },
}


@pytest.mark.parametrize("device", ["cpu", *NAMES])
@pytest.mark.parametrize("told", OUT_OF_RANGE)
def test_numbers_out_of_range_are_told_as_on_the_host(told: str, device: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(pltf.PltfError, match=told):
        fitted(Problem(NMF, TABLE, OUT_OF_RANGE[told]), device=device)


def test_the_dispersion_is_judged_on_the_device_too() -> None:
    X = np.random.default_rng(3).negative_binomial(1, 0.2, (16, 12))
    here, there = (NMF.fit(X, device=where) for where in ("cpu", NAMES[0]))
    assert there.dispersion["X"].size == pytest.approx(here.dispersion["X"].size, rel=1e-3)


@pytest.mark.parametrize("name", ["cp, listed", "coupled", "links", "nmf, learned shapes"])
def test_chains_sample_the_same_posterior(name: str) -> None:
    options: dict[str, Any] = {
        "method": "gibbs",
        "chains": 2,
        "burn_in": 50,
        "draws": 150,
        "max_iter": 2000,
        "tol": 1e-4,
    }
    with warnings.catch_warnings(action="ignore"):  # so few draws have not converged
        here, there, again = (fitted(PROBLEMS[name], device=where, **options) for where in ("cpu", NAMES[0], NAMES[0]))
    spread = here.trace[30:].std() / 3
    assert there.trace[30:].mean() == pytest.approx(here.trace[30:].mean(), abs=4 * spread)
    np.testing.assert_array_equal(there.trace, again.trace)


def test_a_search_runs_on_a_device() -> None:
    X = drawn(pltf.cp(rank=2), 9, 8, 7)
    here, there = (
        pltf.select(pltf.cp(rank=1), X, r=[1, 2, 3], restarts=1, criterion="bound", device=where)
        for where in ("cpu", NAMES[0])
    )
    assert there.best == here.best == {"r": 2}
    np.testing.assert_allclose(there.table["bound"], here.table["bound"], rtol=1e-6)


@pytest.mark.parametrize(
    ("device", "pays", "alone"), [("auto", False, False), ("auto", True, True), (NAMES[0], False, True)]
)
def test_fits_of_a_search_run_side_by_side_on_the_host(
    monkeypatch: pytest.MonkeyPatch, device: str, pays: bool, alone: bool
) -> None:
    monkeypatch.setattr(selector, "gpu", lambda: device_of(NAMES[0]))
    monkeypatch.setattr("pltf.planning.gpu", lambda: device_of(NAMES[0]))
    monkeypatch.setattr("pltf.planning.PAYS", 0.0 if pays else np.inf)
    monkeypatch.setattr(selector, "available_threads", lambda: 2)
    made = []

    def spy(**options: Any) -> Options:
        made.append(Options(**options))
        return made[-1]

    monkeypatch.setattr(selector, "Options", spy)
    options: dict[str, Any] = {"restarts": 1, "criterion": "bound", "max_iter": 2, "device": device}
    with warnings.catch_warnings(action="ignore"):  # such fits have not converged
        pltf.select(NMF, TABLE, r=[1, 2], **options)
    assert [one.workers for one in made] == [1 if alone else 2]


# -- the plan -----------------------------------------------------------------------------------


def test_the_plan_names_the_device_and_its_memory() -> None:
    text = str(CP.plan(CUBE, device=NAMES[0]))
    assert f"on {device_name()}" in text
    assert "\ndevice " in text
    assert " free; it has " in text


def device_name() -> str:
    found = device_of(NAMES[0])
    assert found is not None
    return found.name


def test_a_fit_that_does_not_fit_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pltf.devices.Device.memory", lambda _: (1000.0, 2000.0))
    with pytest.raises(pltf.PltfError, match=r"the fit needs .*B on device='.*', which has 1.0 kB free"):
        fitted(PROBLEMS["cp"], device=NAMES[0])


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets how many bytes of the device are free."""
    return lambda free: monkeypatch.setattr("pltf.devices.Device.memory", lambda _: (free, 1e9))


LISTS = CP, listed(CUBE)
ONE_COPY = "; one sorted copy of each list, as there is no room for one for each mode\n"


def test_lists_are_held_once_where_memory_needs_it(tight: Callable[[float], None]) -> None:
    model, X = LISTS
    here, device = model.fit(X, engine="sparse", max_iter=2, tol=0, dispersion=None), NAMES[-1]
    tight(1e8)
    plenty = model.plan(X, engine="sparse", device=device)
    assert ONE_COPY not in str(plenty)
    tight(plenty.device_bytes - 1)
    plan = model.plan(X, engine="sparse", device=device)
    assert [e.copies for e in plan.equations] == [ONE]
    assert plan.device_bytes < plenty.device_bytes
    assert plan.seconds > plenty.seconds
    assert ONE_COPY in str(plan)
    with engines_made() as made:
        there = model.fit(X, engine="sparse", device=device, max_iter=2, tol=0, dispersion=None)
    assert made == [ONE]
    np.testing.assert_allclose(there.trace, here.trace, rtol=1e-10)
    tight(plan.device_bytes - 1)
    with pytest.raises(pltf.PltfError, match=r"the fit needs .*B on device='.*', which has .*B free"):
        model.fit(X, engine="sparse", device=device)


@contextmanager
def engines_made() -> Iterator[list[str]]:
    """How often each engine that is made holds its list."""
    made: list[str] = []
    init = TorchListedEngine.__init__

    def spy(self: TorchListedEngine, task: Any, cells: Any, device: Any, copies: str = ALL) -> None:
        made.append(copies)
        init(self, task, cells, device, copies)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TorchListedEngine, "__init__", spy)
        yield made


def test_a_fit_that_is_resumed_holds_its_lists_as_before(tight: Callable[[float], None], tmp_path: Path) -> None:
    model, X = LISTS
    device, path = NAMES[-1], tmp_path / "run.nc"
    options: dict[str, Any] = {"engine": "auto", "device": device, "tol": 0, "max_iter": 3, "dispersion": None}
    tight(1e8)
    plenty = model.plan(X, device=device)
    assert plenty.engine == "sparse"
    tight(plenty.device_bytes - 1)
    whole = model.fit(X, **options)

    def press(sweep: pltf.Sweep) -> bool:
        if sweep.n_iter == 2:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        model.fit(X, callback=press, checkpoint=path, every=0, **options)
    tight(1e8)
    with engines_made() as made:
        resumed = model.fit(X, checkpoint=path, every=0, resume=True, **options)
    assert made == [ONE]
    np.testing.assert_array_equal(resumed.trace, whole.trace)


def test_auto_takes_the_host_for_small_problems() -> None:
    assert CP.plan(CUBE, device="auto").device is None


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.skipif(ON_GPU, reason="there is a GPU")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(pltf.PltfError, match=r"device='cuda' needs a GPU, and PyTorch .* finds none: use device='cpu'"):
        CP.fit(CUBE, device=CUDA)


def test_torch_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(pltf.PltfError, match=r"^device='torch:cpu' needs PyTorch: pip install 'pltf\[gpu\]'$"):
        CP.fit(CUBE, device=PLAIN)


def test_devices_of_pytorch_are_names_too() -> None:
    torch = importlib.import_module("torch")
    assert check_device("device", torch.device("cuda:1")) == "cuda:1"
    assert check_device("device", torch.device("cpu")) == "cpu"


def test_memory_that_pytorch_holds_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    stats: dict[str, Any] = {"reserved_bytes": {"all": {"current": 7}}, "allocated_bytes": {"all": {"current": 4}}}
    monkeypatch.setattr("torch.cuda.memory_stats_as_nested_dict", lambda _: stats)
    gpu = Device("cuda:0", kernels=False)
    assert gpu.unused == 3
    stats.clear()  # before CUDA is used
    assert gpu.unused == 0
