"""Restarts as one batch: the steps and results of restarts one by one."""

from __future__ import annotations

import gc
import warnings
import weakref
from itertools import islice
from typing import Any

import numpy as np
import pytest

import pltf
from pltf.data.numeric import frozen
from pltf.fitting import prepare
from pltf.inference import accelerate, batch, race
from pltf.inference.batch import Lane, RestartBatch
from pltf.inference.run import Stop
from pltf.inference.vb import VB
from pltf.options import FitOptions
from pltf.planning import observations
from pltf.selection.folds import Data
from pltf.selection.search import Candidate, Here
from tests.extras import TORCH
from tests.on_device import NAMES, device

if not TORCH:
    pytest.skip("needs PyTorch", allow_module_level=True)

from pltf.inference.algebra.lanes import LaneArrays
from pltf.inference.algebra.recording import Recordings

CUBE = np.random.default_rng(0).poisson(2.0, (5, 4, 3))
HOLES = np.where(np.random.default_rng(1).random(CUBE.shape) < 0.2, np.nan, CUBE)
CP = pltf.cp(rank=2)
PROBLEMS: dict[str, tuple[pltf.Model, Any, dict[str, Any]]] = {
    "holes": (CP, HOLES, {}),
    "plain": (CP, CUBE, {"accelerate": False, "prior": pltf.Gamma(0.5, 2.0)}),
    "links": (CP, (CUBE > 1).astype(int), {"likelihood": "bernoulli"}),
    "a fixed factor": (pltf.nmf(rank=2), CUBE[:, :, 0], {"fixed": {"H": np.full((2, 4), 0.5)}}),
}
SETTINGS: dict[str, Any] = {"device": NAMES[-1], "dispersion": None, "progress": False}


@pytest.fixture(autouse=True)
def recorded_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    device(kernels=True)
    monkeypatch.setattr(Recordings, "on", classmethod(lambda cls, device: device and cls(device)))


def one_by_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RestartBatch, "of", staticmethod(lambda *_: None))


@pytest.mark.parametrize("name", PROBLEMS)
def test_lanes_take_the_steps_that_restarts_take(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (accelerate, batch):
        monkeypatch.setattr(module, "REFUSALS", 1)  # quasi-Newton steps begin soon
    model, X, how = PROBLEMS[name]
    options = {**SETTINGS, "max_iter": 9, "restarts": 2, "tol": 0, **how}
    with monkeypatch.context() as patch:
        one_by_one(patch)
        alone = model.fit(X, **options)
    together = model.fit(X, **options)
    for column in ("n_iter", "stopped", "best"):
        assert list(alone.restarts[column]) == list(together.restarts[column]), column
    np.testing.assert_allclose(together.restarts["bound"], alone.restarts["bound"], rtol=1e-10)
    np.testing.assert_allclose(together.trace, alone.trace, rtol=1e-10)
    for a in model.factors:
        np.testing.assert_allclose(together.factors[a].mean, alone.factors[a].mean, rtol=1e-6)
    assert type(together.priors) is dict
    for a, prior in alone.priors.items():
        np.testing.assert_allclose(np.asarray(together.priors[a].mean), np.asarray(prior.mean), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*converge", "ignore:.*smallest r")
def test_a_search_goes_on_with_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "BURN_IN", 3)  # rounds of 3, 5 and 8 iterations
    options = {**SETTINGS, "r": [2, 3], "restarts": 5, "criterion": "bound", "max_iter": 8, "race": True}
    with monkeypatch.context() as patch:
        one_by_one(patch)
        alone = pltf.select(CP, CUBE, **options)
    ran: list[int] = []
    run = RestartBatch.run

    def counted(self: RestartBatch, begins: Any, *given: Any) -> Any:
        ran.append(len(begins))
        return run(self, begins, *given)

    monkeypatch.setattr(RestartBatch, "run", counted)
    together = pltf.select(CP, CUBE, **options)
    assert len(ran) > 2, "rounds"
    assert min(ran) < 5, "restarts that are behind were dropped"
    for here, there in zip(together.outcomes, alone.outcomes, strict=True):
        assert [row.n_iter for row in here.rows] == [row.n_iter for row in there.rows]
        assert [row.stopped for row in here.rows] == [row.stopped for row in there.rows]
        np.testing.assert_allclose([row.bound for row in here.rows], [row.bound for row in there.rows], rtol=1e-10)


def test_a_search_interrupted_at_the_end_of_a_round_goes_on_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "BURN_IN", 3)
    ready = prepare(CP, {"X": CUBE}, {}, FitOptions(**SETTINGS, restarts=2, max_iter=5))
    source = Here(Data({"X": pltf.observe(CUBE)}))
    first, resumed = (Candidate({"r": 2}, ready, race=True) for _ in range(2))

    def done(candidate: Candidate, steps: int) -> None:
        for jobs in islice(candidate.task(0, source), steps):
            for job in jobs:
                job.then(job.function(*job.args))

    done(first, 2)  # the problem, and the first round
    resumed.runs = first.runs
    assert [len(run.trace) for run in resumed.runs.values()] == [3, 3]
    done(resumed, 9)
    assert max(len(run.trace) for run in resumed.ended) == 5


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"prior": pltf.Gamma(learn="both")}, "shapes are learned on the host"),
        ({"prior": pltf.Gamma(learn="mean", tie="component")}, "more than one mean"),
        ({"dtype": "float32"}, "sums of rounded factors are corrected"),
        ({"method": "map"}, "another method"),
        ({"engine": "sparse"}, "a list"),
        ({"restarts": 1}, "one restart"),
    ],
)
def test_other_problems_run_one_by_one(options: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RestartBatch, "run", lambda *_: pytest.fail(reason))
    CP.fit(CUBE, **{**SETTINGS, "max_iter": 1, "tol": 0, "restarts": 2, **options})


def test_an_interrupt_keeps_what_was_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = iter([False, False, False, True, True, True])
    run = RestartBatch.run

    def soon(self: RestartBatch, begins: Any, restarts: Any, stop: Stop, *progress: Any) -> Any:
        return run(self, begins, restarts, Stop(stop.max_iter, stop.tol, interrupted=lambda: next(asked)), *progress)

    monkeypatch.setattr(RestartBatch, "run", soon)
    with pytest.warns(pltf.ConvergenceWarning, match="interrupted"):
        fit = CP.fit(CUBE, **{**SETTINGS, "restarts": 2})
    assert list(fit.restarts["stopped"]) == ["interrupted"] * 2
    assert fit.n_iter == 3


def test_a_lane_that_is_refused_tries_less() -> None:
    lane = Lane(0, -10.0, [], 0, 0.0, begun=True, accelerated=True, eta=2.0, refused=3)
    stop = Stop(10, 0.0)
    problem: Any = None
    assert (lane.kind, lane.takes(-11.0, problem, stop)) == ("stretched", False)
    assert (lane.kind, lane.takes(-9.0, problem, stop)) == ("plain", True)
    assert (lane.kind, lane.takes(-8.0, problem, stop)) == ("watched", True)
    assert (lane.kind, lane.controls[1:], lane.takes(float("nan"), problem, stop)) == ("moved", (1, 1.5, 1.0), False)
    assert (lane.kind, lane.controls[1:], lane.takes(-8.5, problem, stop)) == ("moved", (1, 1.5, 0.25), False)
    assert (lane.kind, lane.takes(-8.0, problem, stop)) == ("plain", True)
    assert (lane.kind, lane.trace) == ("watched", [-9.0, -8.0, -8.0])


def test_lanes_take_arrays_that_cannot_be_written_to() -> None:
    """As a checkpoint gives them."""
    lanes = LaneArrays(device(kernels=False), 2, 1, lambda tree, controls: (tree, controls[0]))
    with warnings.catch_warnings(action="error"):
        lanes.load([{"A": frozen(np.full(3, n + 1.0))} for n in range(2)])
    lanes.proposed([False, False], [(0.0,), (0.0,)])
    assert [tree["A"].tolist() for tree in lanes.fetched([True, True])] == [[1.0] * 3, [2.0] * 3]


@pytest.mark.parametrize("takes", [True, False])
def test_a_batch_is_decided_on_once(takes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of a race go on as they began, and do not ask for the memory of the device again."""
    asked = []

    def taken(*_: object) -> bool:
        asked.append(takes)
        return takes

    monkeypatch.setattr(batch, "_takes", taken)
    ready = prepare(CP, {"X": CUBE}, {}, FitOptions(device=NAMES[-1], progress=False, dispersion=None))
    problem = ready.problem(observations({"X": CUBE}, {}))
    made = [RestartBatch.of(problem, VB, 2) for _ in range(2)]
    assert len(asked) == 1
    assert made[0] is made[1]
    assert (made[0] is not None) == takes


def test_the_memory_of_a_batch_does_not_wait_for_the_garbage_collector() -> None:
    options = FitOptions(device=NAMES[-1], progress=False, dispersion=None)
    ready = prepare(CP, {"X": CUBE}, {}, options)
    problem = ready.problem(observations({"X": CUBE}, {}))
    made = RestartBatch.of(problem, VB, 2)
    assert made is not None
    start, _ = ready.starting(problem)
    made.run([start(0), start(1)], range(2), Stop(1, 0.0))
    held = weakref.ref(made)
    gc.disable()
    try:
        del made, start, problem
        assert held() is None
    finally:
        gc.enable()
