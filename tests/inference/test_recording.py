"""Recordings of iterations: the same bits as without them, in arrays of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pltf
from pltf.inference.algebra import recording
from pltf.inference.batch import RestartBatch
from tests.extras import TORCH
from tests.on_device import NAMES, device
from tests.test_devices import COUPLED, CP, CUBE, NMF, TABLE, TUCKER, TWO, Problem, fitted, listed, with_holes

if not TORCH:
    pytest.skip("needs PyTorch", allow_module_level=True)

from pltf.inference.algebra.flat import Copied, FlatPart, FlatPlace, Late, Origin
from pltf.inference.algebra.recording import Graphs, Recording, Recordings, flattened, watched

FIXED = pltf.Gamma(0.5, 2.0)
PROBLEMS = {
    "cp": Problem(CP, CUBE),
    "plain": Problem(CP, CUBE, {"accelerate": False, "prior": FIXED}),
    "holes": Problem(CP, with_holes(CUBE), {"dtype": "float32"}),
    "list": Problem(CP, listed(CUBE)),
    "links": Problem(CP, (CUBE > 0).astype(int), {"likelihood": "bernoulli"}),
    "tucker": Problem(TUCKER, TABLE[:, :, None] + np.ones(2)),
    "tucker list": Problem(TUCKER, listed(TABLE[:, :, None] + np.ones(2)), {"engine": "sparse"}),
    "coupled": Problem(COUPLED, TWO),
    "a fixed factor": Problem(NMF, TABLE, {"fixed": {"H": np.full((2, 6), 0.5)}}),
    "ties": Problem(NMF, TABLE, {"prior": pltf.Gamma(learn="mean", tie="component")}),
    "arrays as priors": Problem(NMF, TABLE, {"prior": {"W": pltf.Gamma(np.full((8, 1), 0.5), 2.0), "H": FIXED}}),
    "shapes are learned": Problem(NMF, TABLE, {"prior": pltf.Gamma(learn="both")}),
    "em": Problem(NMF, with_holes(TABLE), {"method": "em"}),
    "map": Problem(NMF, TABLE, {"method": "map"}),
    "maximum posteriors with zeros": Problem(NMF, TABLE, {"method": "map", "prior": FIXED}),
}
LEARNED = ("shapes are learned",)  # on the host, between iterations


@pytest.fixture(autouse=True)
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RestartBatch, "of", staticmethod(lambda *_: None))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Record wherever PyTorch computes; every replay adds to the list that is returned."""
    played: list[object] = []
    monkeypatch.setattr(Recordings, "on", classmethod(lambda cls, device: device and cls(device)))
    play = Recording._played

    def watched(self: Recording, fill: Any, numbers: Any) -> Any:
        played.append(self)
        return play(self, fill, numbers)

    monkeypatch.setattr(Recording, "_played", watched)
    return played


@pytest.mark.parametrize("name", PROBLEMS)
def test_replays_give_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, options = PROBLEMS[name], {"device": NAMES[0], "max_iter": 40, "restarts": 2, "tol": 0}
    with monkeypatch.context() as patch:
        patch.setattr(Recordings, "on", classmethod(lambda cls, device: None))
        usual = fitted(problem, **options)
    played = counted(monkeypatch)
    replayed = fitted(problem, **options)
    np.testing.assert_array_equal(replayed.trace, usual.trace)
    for a, factor in usual.factors.items():
        np.testing.assert_array_equal(replayed.factors[a].mean, factor.mean)
    assert type(replayed.priors) is dict
    assert bool(played) == (name not in LEARNED)


def test_a_callback_sees_arrays_that_no_later_iteration_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    played = counted(monkeypatch)
    fitted(Problem(CP, CUBE), device=NAMES[0], max_iter=12, callback=lambda sweep: seen.append(dict(sweep.means)))
    assert played
    assert len({one["A"].tobytes() for one in seen}) == len(seen)


def test_large_factors_are_not_copied_to_a_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    played = counted(monkeypatch)
    monkeypatch.setattr(recording, "MOST_ENTRIES", 10)
    fitted(Problem(CP, CUBE), device=NAMES[0], max_iter=12)
    assert not played


def test_what_waits_for_the_device_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA refuses to record it: then it is computed as before."""

    def refuse(self: Recording, *_: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    usual = fitted(Problem(CP, CUBE), device=NAMES[0], max_iter=12, restarts=3)
    counted(monkeypatch)
    monkeypatch.setattr(Recording, "__init__", refuse)
    refused = fitted(Problem(CP, CUBE), device=NAMES[0], max_iter=12, restarts=3)
    np.testing.assert_array_equal(refused.trace, usual.trace)


def test_a_fit_with_a_mean_for_each_component_can_be_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its means begin in host memory."""
    prior = pltf.Gamma(learn="mean", tie="component")
    options: dict[str, Any] = {"device": NAMES[0], "prior": prior, "tol": 0, "dispersion": None}
    begun = NMF.fit(TABLE, max_iter=3, **options)
    usual = NMF.fit(TABLE, max_iter=8, init=begun, **options)
    played = counted(monkeypatch)
    replayed = NMF.fit(TABLE, max_iter=8, init=begun, **options)
    assert played
    np.testing.assert_array_equal(replayed.trace, usual.trace)


@pytest.mark.parametrize(
    ("work", "waits"),
    [
        (lambda torch: torch.ones(2, device="meta") * torch.tensor(2.0), False),
        (lambda torch: float(torch.ones(2).sum()), False),
        (lambda torch: torch.ones(2).to("meta"), True),
        (lambda torch: torch.ones(2, device="meta").copy_(torch.ones(2)), True),
    ],
)
def test_work_that_waits_for_the_device_is_known(work: Any, waits: bool) -> None:
    """A device without memory stands in for a GPU."""
    import torch

    assert watched(lambda: work(torch))[1] == waits


def test_what_waits_for_the_device_is_not_even_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording that CUDA breaks off leaves PyTorch's memory and random numbers in disorder."""
    played = counted(monkeypatch)
    monkeypatch.setattr(recording, "watched", lambda work: (work(), True))
    fitted(Problem(CP, CUBE), device=NAMES[0], max_iter=12, restarts=3)
    assert not played


def test_results_begin_where_kernels_read_fastest() -> None:
    import torch

    given = (torch.ones(3, dtype=torch.float64), torch.ones((), dtype=torch.float64), torch.ones(5).double())
    leaves: list[Any] = []
    form = flattened(given, leaves)
    found = Recording(Graphs(device(kernels=False)), lambda *some: tuple(2 * one for one in some), leaves, form)
    results = found.replay(leaves)
    assert [one.tolist() for one in results] == [[2.0] * 3, 2.0, [2.0] * 5]
    assert {one.data_ptr() % 16 for one in results} == {0}


def multiplied(old: Any, by: float) -> Any:
    """Work whose results are the arguments of the next one, in another order and beside others."""
    return {"A": old["A"] * by, "B": old["B"] + by}, (old["B"].sum(), {"A": old["A"]})


def test_results_are_known_again_as_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are copied at once, also if the recording has run on other arguments since."""
    import torch

    recordings, whole = Recordings(device(kernels=False)), list[Any]()
    replay = Recording.replay

    def watched(self: Recording, leaves: Any) -> Any:
        whole.append(leaves)
        return replay(self, leaves)

    monkeypatch.setattr(Recording, "replay", watched)
    start = {"A": torch.arange(3).double(), "B": torch.ones(2, 2).double()}
    wanted, kept = [start], [start]
    for before, by in ((0, 2.0), (1, 3.0), (2, 3.0), (3, 0.5), (4, 0.5), (3, 2.0), (5, 1.5)):
        wanted.append(multiplied(wanted[before], by)[0])
        kept.append(recordings.replayed("key", multiplied, (kept[before], by))[0])
    for found, expected in zip(kept, wanted, strict=True):
        assert {a: array.tolist() for a, array in found.items()} == {a: z.tolist() for a, z in expected.items()}
    assert len(whole) == 2, "one of arguments that no recording has made, one of its first results"


def test_a_number_between_arrays_is_not_copied_over() -> None:
    """One of the results has its size and lies where it would."""
    import torch

    def work(a: Any, x: float, b: Any) -> Any:
        return {"A": a["A"] + 1}, b["B"].sum() * 100, {"B": b["B"] * x}

    recordings = Recordings(device(kernels=False))
    one, other = {"A": torch.ones(2).double()}, {"B": torch.ones(2).double()}
    for n in range(1, 6):
        one, _, other = recordings.replayed("key", work, (one, 0.5, other))
        assert other["B"].tolist() == [0.5**n] * 2


def test_results_of_several_replays_are_told_apart() -> None:
    import torch

    recordings = Recordings(device(kernels=False))
    start = {"A": torch.ones(3).double(), "B": torch.ones(2).double()}

    def both(one: Any, other: Any) -> Any:
        return {a: one[a] + 10 * other[a] for a in one}

    made = [recordings.replayed("make", multiplied, (start, by))[0] for by in (1.0, 2.0, 3.0, 4.0)]
    for _ in range(4):
        found = recordings.replayed("add", both, (made[2], made[3]))
        assert {a: array.tolist() for a, array in found.items()} == {"A": [43.0] * 3, "B": [54.0] * 2}


def test_neighbours_in_one_array_are_copied_at_once() -> None:
    import torch

    one, other = torch.zeros(8), torch.zeros(8)
    first, second = FlatPlace(0, 3, (3,)), FlatPlace(4, 2, (2,))
    a, b = FlatPart({"A": first}), FlatPart({"B": second})
    assert Origin((Late(a, one), 0.5, Late(b, one))).runs([first, second]) == [Copied(0, 0, 6, 0)]
    assert Origin((Late(a, one), Late(b, other))).runs([first, second]) == [Copied(0, 0, 3, 0), Copied(1, 4, 2, 4)]
    assert Origin((Late(a, one), Late(b, one))).runs([first, FlatPlace(6, 2, (2,))]) == [
        Copied(0, 0, 3, 0),
        Copied(0, 4, 2, 6),
    ]
    assert Origin((Late(b, one), Late(a, one))).runs([first, second]) == [Copied(0, 4, 2, 0), Copied(0, 0, 3, 4)]
    assert not Origin((Late(a, one), {"B": other})).known


class Cuda:
    """Stands in for torch.cuda, and writes down what is asked of it."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.current = SimpleNamespace(name="first", wait_stream=self.told.append)

    def current_blas_handle(self) -> None:
        pass

    def graph_pool_handle(self) -> str:
        return f"pool {len(self.told)}"

    def Stream(self, _: Any) -> str:  # its name in PyTorch
        return f"stream {len(self.told)}"

    @contextmanager
    def device(self, _: Any) -> Iterator[None]:
        yield

    @contextmanager
    def stream(self, stream: str) -> Iterator[None]:
        self.told.append(stream)
        yield

    def CUDAGraph(self) -> Any:
        def begin(pool: str, capture_error_mode: str) -> None:
            self.told.append(("begin", pool, capture_error_mode))

        return SimpleNamespace(capture_begin=begin, capture_end=partial(self.told.append, "end"), replay=None)

    def current_stream(self, _: Any) -> Any:
        return self.current


def fake_graphs() -> tuple[Graphs, Cuda]:
    cuda = Cuda()
    place: Any = SimpleNamespace(where="cuda:0", place="cuda:0", unused=0, torch=SimpleNamespace(cuda=cuda))
    return Graphs(place), cuda


def test_graphs_share_a_stream_and_its_memory() -> None:
    graphs, cuda = fake_graphs()
    for work in ("one", "two"):
        graphs.recorded(partial(cuda.told.append, work))
    begin = ("begin", "pool 0", "thread_local")
    assert cuda.told == ["stream 0", begin, "one", "end", "stream 0", begin, "two", "end"]


def test_replays_wait_for_each_other() -> None:
    """On one stream they are in order; another stream waits for the last one."""
    graphs, cuda = fake_graphs()
    first, second = cuda.current, SimpleNamespace(name="second", wait_stream=cuda.told.append)
    for stream in (first, first, second, second, first):
        cuda.current = stream
        with graphs.in_turn():
            cuda.told.append("replay")
    assert cuda.told == ["replay", "replay", first, "replay", "replay", second, "replay"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_recording_that_fails_ends(error: type[BaseException]) -> None:
    def fail() -> None:
        raise error

    graphs, cuda = fake_graphs()
    with pytest.raises(error):
        graphs.recorded(fail)
    assert cuda.told[-1] == "end"
