"""Tasks on workers: order, errors, interrupts, and data that other processes map instead of copying."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pltf
from pltf import workers as workers_module
from pltf.data import CooObservation, DenseObservation
from pltf.workers import Job, Pool, Shared, Task, drive, may_have_children, shared

LONG = 20.0  # seconds that nothing here waits for unless it is broken


def nothing(_: Any = None) -> None:
    pass


def one_round(*jobs: Job) -> Task:
    yield jobs


class Stop:
    """Tells jobs in threads to stop, and counts how often that was asked for."""

    def __init__(self) -> None:
        self.calls, self._event = 0, threading.Event()

    def __call__(self) -> None:
        self.calls += 1
        self._event.set()

    def wait(self) -> bool:
        return self._event.wait(LONG)


def ends(tasks: Iterable[Task], pool: Pool, show: Callable[[], None] = nothing) -> dict[int, Exception | None]:
    """How each task ended; each one ends once, and nothing is told to stop."""
    stop = Stop()
    found = list(drive(tasks, pool, show, stop))
    assert len(dict(found)) == len(found)
    assert not stop.calls
    return dict(found)


def threads(workers: int) -> Pool:
    return Pool(workers, processes=False)


_of_others = set[threading.Thread]()


@pytest.fixture(autouse=True)
def _pools_of_others() -> None:
    """Thread pools that libraries started in earlier tests and keep, such as those of distributed."""
    _of_others.update(_pool_threads())


def _pool_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]


def living_workers() -> list[threading.Thread]:
    return [thread for thread in _pool_threads() if thread not in _of_others]


# -- data for other processes -------------------------------------------------------------------


def source(array: NDArray[Any]) -> object:
    """What holds the memory of an array in the end."""
    held: object = array
    while isinstance(held, np.ndarray | memoryview):
        held = held.obj if isinstance(held, memoryview) else held.base
    return held


NUMBERS = np.arange(60.0).reshape(3, 4, 5)
ARRAYS: dict[str, NDArray[Any]] = {
    "C order": NUMBERS,
    "F order": np.asfortranarray(NUMBERS),
    "mask": NUMBERS % 7 > 2,
    "mask in F order": np.asfortranarray(NUMBERS % 7 > 2),
    "several pages": np.arange(mmap.PAGESIZE, dtype=np.int32),
    "one page": np.arange(mmap.PAGESIZE, dtype=np.uint8),
    "one number": np.array(3.5),
}


def check_same(found: NDArray[Any], given: NDArray[Any]) -> None:
    np.testing.assert_array_equal(found, given, strict=True)
    for flag in ("C_CONTIGUOUS", "F_CONTIGUOUS", "ALIGNED"):
        assert found.flags[flag] == given.flags[flag], flag
    assert not found.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        found[...] = 0


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_mapped_from_the_file_as_it_was(name: str) -> None:
    with shared(ARRAYS[name]) as given_away:
        found = given_away.value()
        check_same(found, ARRAYS[name])
        assert isinstance(source(found), mmap.mmap)


def test_many_arrays_are_in_one_mapping() -> None:
    given = {"odd": np.ones(7, dtype=bool), "empty": np.empty((0, 3)), **ARRAYS, "last": np.arange(3)}
    with shared(given) as given_away:
        found = given_away.value()
        assert found.keys() == given.keys()
        for name, array in given.items():
            check_same(found[name], array)
        held = {id(source(array)) for array in found.values() if array.size}
        assert len(held) == 1
        assert isinstance(source(found["last"]), mmap.mmap)


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_arrays_without_entries_need_no_mapping(shape: tuple[int, ...]) -> None:
    given = [np.empty(shape, dtype=np.int32), np.empty(shape)]
    with shared(given) as given_away:
        for found, array in zip(given_away.value(), given, strict=True):
            np.testing.assert_array_equal(found, array, strict=True)
            assert not found.flags.writeable


def test_things_that_are_no_arrays_come_along() -> None:
    with shared({"a": [1, "two", None], "b": 2.5}) as given_away:
        assert given_away.value() == {"a": [1, "two", None], "b": 2.5}


def test_observations_come_out_as_they_were() -> None:
    holes = np.where(NUMBERS % 7 > 2, NUMBERS, np.nan)
    cells = [(0, 1, 2), (4, 0, 0), (2, 2, 2)]
    given: dict[str, dict[str, pltf.Observation]] = {
        "dense": {"whole": pltf.observe(np.asfortranarray(NUMBERS)), "holes": pltf.observe(holes)},
        "listed": {
            "zero": pltf.observe((cells, [5, 1, 3]), shape=(5, 5, 5), missing=[(1, 1, 1)]),
            "missing": pltf.observe((cells, [5, 1, 3]), shape=(10**6, 5, 5), unlisted="missing"),
        },
    }
    with shared(given) as given_away:
        found = given_away.value()
        for kind, observations in given.items():
            for name, seen in observations.items():
                other = found[kind][name]
                assert repr(other) == repr(seen)
                assert (other.n_observed, other.total, other.saturated) == (seen.n_observed, seen.total, seen.saturated)
                for array, before in zip(arrays_of(other), arrays_of(seen), strict=True):
                    check_same(array, before)
                    assert isinstance(source(array), mmap.mmap) or not array.size
        assert found["listed"]["missing"].unlisted == "missing"
        assert found["dense"]["whole"].mask is None


def arrays_of(seen: pltf.Observation) -> list[NDArray[Any]]:
    if isinstance(seen, DenseObservation):
        return [seen.values] if seen.mask is None else [seen.values, seen.mask]
    assert isinstance(seen, CooObservation)
    return [seen.coords, seen.values, seen.missing]


def test_what_was_taken_once_is_not_read_again() -> None:
    with shared(NUMBERS) as one, shared(NUMBERS + 1) as other:
        first = one.value()
        assert one.value() is first
        assert Shared(one.folder).value() is first
        np.testing.assert_array_equal(other.value(), NUMBERS + 1)
        np.testing.assert_array_equal(one.value(), NUMBERS)


def test_the_file_is_gone_afterwards() -> None:
    with shared(NUMBERS) as given_away:
        assert sum(file.stat().st_size for file in Path(given_away.folder).iterdir()) > NUMBERS.nbytes
    assert not Path(given_away.folder).exists()


def test_the_file_is_gone_after_an_error() -> None:
    folders = []

    def fail() -> None:
        with shared(NUMBERS) as given_away:
            folders.append(Path(given_away.folder))
            assert folders[0].exists()
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fail()
    assert not folders[0].exists()


def test_a_stop_is_seen_by_every_copy() -> None:
    with shared(NUMBERS) as one, shared(NUMBERS) as other:
        stopping = pickle.loads(pickle.dumps(one.stopping))
        assert not one.stopping()
        assert not stopping()
        assert not stopping("what a callback is called with", 3)
        one.stop()
        one.stop()
        assert one.stopping()
        assert stopping()
        assert stopping("what a callback is called with", 3)
        assert not other.stopping()
        np.testing.assert_array_equal(one.value(), NUMBERS)


# -- threads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_all_jobs_are_done_round_by_round(workers: int) -> None:
    lock, begun, results, handed_over_in = threading.Lock(), defaultdict[int, list[int]](list), [], set()
    after: dict[tuple[int, int], int] = {}

    def work(number: int, turn: int, job: int) -> tuple[int, int, int]:
        assert threading.current_thread() is not threading.main_thread()
        with lock:
            begun[number].append(turn)
        time.sleep(0.001 * ((number + 2 * job) % 4))
        return number, turn, job

    def then(result: tuple[int, int, int]) -> None:
        results.append(result)
        handed_over_in.add(threading.current_thread())

    def task(number: int) -> Task:
        for turn in range(number % 4):
            yield [Job(work, (number, turn, job), then) for job in range(number % 3 + 1)]
            after[number, turn] = sum(result[:2] == (number, turn) for result in results)

    assert ends(map(task, range(12)), threads(workers)) == dict.fromkeys(range(12))
    turns = [(number, turn) for number in range(12) for turn in range(number % 4)]
    assert sorted(results) == [(*at, job) for at in turns for job in range(at[0] % 3 + 1)]
    assert after == {(number, turn): number % 3 + 1 for number, turn in turns}
    assert all(order == sorted(order) for order in begun.values())
    assert handed_over_in == {threading.current_thread()}
    assert not living_workers()


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("tasks", ["one task", "many tasks"])
def test_all_workers_work_at_once(workers: int, tasks: str) -> None:
    together = threading.Barrier(workers)
    jobs = [Job(together.wait, (LONG,), nothing) for _ in range(2 * workers)]
    given = [one_round(*jobs)] if tasks == "one task" else map(one_round, jobs)
    assert not any(ends(given, threads(workers)).values())


class Shows:
    """Counts what is shown. A job that waits for the next show ends after all tasks have begun that are to begin."""

    def __init__(self) -> None:
        self.count, self._changed = 0, threading.Condition()

    def show(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait_for_more_than(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count > count, LONG)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_task_begins_only_when_a_worker_is_free(workers: int) -> None:
    shows, lock, handed_out, through, on_their_way = Shows(), threading.Lock(), 0, 0, list[int]()

    def work(since: int) -> None:
        nonlocal through
        shows.wait_for_more_than(since)
        with lock:
            through += 1

    def task(rounds: int) -> Task:
        nonlocal handed_out
        with lock:
            on_their_way.append(handed_out - through)
        for _ in range(rounds):
            handed_out += 1
            yield [Job(work, (shows.count,), nothing)]

    assert ends((task(n % 3 + 1) for n in range(10)), threads(workers), shows.show) == dict.fromkeys(range(10))
    assert on_their_way[:workers] == list(range(workers))
    assert max(on_their_way) == workers - 1
    assert through == handed_out == sum(n % 3 + 1 for n in range(10))


def test_one_worker_ends_a_task_before_the_next() -> None:
    log: list[tuple[str, int]] = []
    shows = Shows()

    def task(number: int) -> Task:
        for _ in range(2):
            log.append(("round", number))
            yield [Job(shows.wait_for_more_than, (shows.count,), lambda _: log.append(("done", number)))]

    for number, error in drive(map(task, range(3)), threads(1), shows.show, nothing):
        assert error is None
        log.append(("end", number))
    one = ["round", "done", "round", "done", "end"]
    assert log == [(what, number) for number in range(3) for what in one]


def test_a_round_without_jobs_goes_on() -> None:
    results: list[int] = []

    def task() -> Task:
        yield []
        yield [Job(abs, (-3,), results.append)]
        yield []

    assert ends([task(), task()], threads(1)) == {0: None, 1: None}
    assert results == [3, 3]
    assert ends([], threads(2)) == {}


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_failing_job_ends_its_task_alone(workers: int) -> None:
    results: list[int] = []
    went_on: list[int] = []

    def work(number: int, job: int) -> int:
        if number == 1 and job == 1:
            raise ValueError("job 1 of task 1 is bad")
        return 10 * number + job

    def task(number: int) -> Task:
        yield [Job(work, (number, job), results.append) for job in range(3)]
        went_on.append(number)
        yield [Job(work, (number, 5), results.append)]

    found = ends(map(task, range(4)), threads(workers))
    assert isinstance(found[1], ValueError)
    assert str(found.pop(1)) == "job 1 of task 1 is bad"
    assert found == {0: None, 2: None, 3: None}
    assert sorted(results) == sorted([0, 1, 2, 5, 10, 12, 20, 21, 22, 25, 30, 31, 32, 35])
    assert sorted(went_on) == [0, 2, 3]


def test_of_several_errors_of_a_task_one_is_told() -> None:
    def fail(job: int) -> None:
        raise ValueError(f"job {job}")

    found = ends([one_round(*(Job(fail, (job,), nothing) for job in range(5)))], threads(2))
    assert list(map(str, found.values())) in [[f"job {job}"] for job in range(5)]


@pytest.mark.parametrize("rounds", [0, 1])
def test_a_task_that_fails_between_its_jobs_is_told(rounds: int) -> None:
    results: list[int] = []

    def task(number: int) -> Task:
        for _ in range(rounds):
            yield [Job(abs, (-number,), results.append)]
        if number == 2:
            raise RuntimeError("no more jobs")
        yield [Job(abs, (-number - 10,), results.append)]

    found = ends(map(task, range(4)), threads(2))
    assert isinstance(found[2], RuntimeError)
    assert str(found.pop(2)) == "no more jobs"
    assert found == {0: None, 1: None, 3: None}
    assert sorted(results) == [*range(4 * rounds), 10, 11, 13]


def test_something_is_shown_while_a_job_takes_long() -> None:
    shown = threading.Semaphore(0)

    def long() -> bool:
        return all(shown.acquire(timeout=LONG) for _ in range(3))

    results: list[bool] = []
    assert ends([one_round(Job(long, (), results.append))], threads(1), shown.release) == {0: None}
    assert results == [True]


def test_a_job_that_cannot_be_handed_out_ends_its_task_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, results = threads(1), list[int]()
    submit = pool.submit

    def refuse(job: Job) -> Any:
        if job.args == (-1,):
            raise OSError("no place for a job")
        return submit(job)

    monkeypatch.setattr(pool, "submit", refuse)
    found = ends([one_round(Job(abs, (-number,), results.append)) for number in range(3)], pool)
    assert isinstance(found[1], OSError)
    assert str(found.pop(1)) == "no place for a job"
    assert found == {0: None, 2: None}
    assert results == [0, 2]


# -- ends before the end ------------------------------------------------------------------------


def test_an_interrupt_ends_everything_and_keeps_what_was_done() -> None:
    stop, started, handed_over = Stop(), threading.Barrier(3), list[str]()
    begun: list[int] = []

    def long(name: str) -> str:
        started.wait(LONG)
        return name if stop.wait() else "was not stopped"

    def task(number: int) -> Task:
        begun.append(number)
        long_ones = [Job(long, (name,), handed_over.append) for name in ("one", "other")]
        yield [Job(str, ("quick",), handed_over.append), *long_ones, Job(str, ("never",), handed_over.append)]
        handed_over.append("next round")

    def show() -> None:
        started.wait(LONG)  # the quick job is through, the workers are at the long ones
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(drive(map(task, range(3)), threads(2), show, stop))
    assert stop.calls == 1
    assert sorted(handed_over) == ["one", "other", "quick"]
    assert begun == [0]
    assert not living_workers()


def test_whoever_turns_away_ends_everything() -> None:
    stop, results, started = Stop(), list[bool](), threading.Barrier(2)

    def long() -> bool:
        started.wait(LONG)
        return stop.wait()

    tasks = [one_round(Job(started.wait, (LONG,), nothing)), one_round(Job(long, (), results.append))]
    driven = drive(tasks, threads(2), nothing, stop)
    assert next(driven) == (0, None)
    driven.close()
    assert stop.calls == 1
    assert results == [True]
    assert not living_workers()


def test_an_exit_in_a_worker_is_not_an_error_of_a_task() -> None:
    stop, results, started = Stop(), list[bool](), threading.Barrier(2)

    def leave() -> None:
        started.wait(LONG)
        raise SystemExit(3)

    def long() -> bool:
        started.wait(LONG)
        return stop.wait()

    with pytest.raises(SystemExit, match="3"):
        list(
            drive(
                [one_round(Job(leave, (), nothing)), one_round(Job(long, (), results.append))],
                threads(2),
                nothing,
                stop,
            )
        )
    assert stop.calls == 1
    assert results == [True]
    assert not living_workers()


def test_an_error_where_results_go_comes_out() -> None:
    def refuse(result: int) -> None:
        raise LookupError(f"no place for {result}")

    stop = Stop()
    with pytest.raises(LookupError, match="no place for 7"):
        list(drive([one_round(Job(abs, (-7,), refuse))], threads(1), nothing, stop))
    assert stop.calls == 1
    assert not living_workers()


# -- processes ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def no_processes_left() -> Iterator[None]:
    yield
    workers_module._end_processes()


def processes(workers: int) -> Pool:
    return Pool(workers, processes=True)


def looked_at(given_away: Shared) -> tuple[int, bool, bool, float]:
    """What another process sees of a shared array."""
    array = given_away.value()["X"]
    return os.getpid(), array.flags.writeable, isinstance(source(array), mmap.mmap), float(array.sum())


def meet(folder: Path, count: int) -> int:
    """Wait until so many processes are here; which one this is."""
    (folder / str(os.getpid())).touch()
    until = time.monotonic() + LONG
    while len(list(folder.iterdir())) < count and time.monotonic() < until:
        time.sleep(0.01)
    return os.getpid()


def wait_there(folder: Path, stopping: Callable[[], bool]) -> tuple[int, bool]:
    """Wait until it is time to stop; which process this is, and whether it was told."""
    (folder / str(os.getpid())).touch()
    until = time.monotonic() + LONG
    while not stopping() and time.monotonic() < until:
        time.sleep(0.01)
    return os.getpid(), stopping()


def fail_there(number: int) -> None:
    raise ValueError(f"{number} is bad")


def die_there(folder: Path, times: int) -> int:
    """Kill the process this runs in, so many times; which process it was that lived on."""
    before = len(list(folder.iterdir()))
    (folder / str(os.getpid())).touch()
    if before < times:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def living(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.usefixtures("no_processes_left")
def test_processes_do_the_jobs_and_map_the_data(tmp_path: Path) -> None:
    met: list[int] = []
    seen: list[tuple[int, bool, bool, float]] = []
    handlers: list[object] = []
    with shared({"X": NUMBERS}) as given_away:
        tasks = [
            one_round(*[Job(meet, (tmp_path, 2), met.append)] * 2),
            one_round(*[Job(looked_at, (given_away,), seen.append)] * 4),
            one_round(Job(fail_there, (5,), nothing)),
            one_round(Job(signal.getsignal, (signal.SIGINT,), handlers.append)),
        ]
        found = ends(tasks, processes(2))
    assert isinstance(found[2], ValueError)
    assert str(found.pop(2)) == "5 is bad"
    assert found == {0: None, 1: None, 3: None}
    assert len({*met, os.getpid()}) == 3
    assert {pid for pid, *_ in seen} <= set(met)
    assert [view[1:] for view in seen] == [(False, True, NUMBERS.sum())] * 4
    assert handlers == [signal.SIG_IGN]


@pytest.mark.usefixtures("no_processes_left")
def test_processes_live_through_an_interrupt_and_do_the_next_jobs(tmp_path: Path) -> None:
    def workers(name: str) -> list[int]:
        found: list[int] = []
        (tmp_path / name).mkdir()
        assert ends([one_round(*[Job(meet, (tmp_path / name, 2), found.append)] * 2)], processes(2)) == {0: None}
        return sorted(found)

    def interrupt() -> None:
        if len(list(there.iterdir())) == 2:  # both are at work
            raise KeyboardInterrupt

    first = workers("before")
    assert len({*first, os.getpid()}) == 3
    assert workers("again") == first

    results: list[tuple[int, bool]] = []
    stops: list[None] = []
    there = tmp_path / "long"
    there.mkdir()
    with shared(NUMBERS) as given_away:

        def stop() -> None:
            stops.append(None)
            given_away.stop()

        # More jobs than processes and their queue take: some of them are dropped, the others end at once.
        job = Job(wait_there, (there, given_away.stopping), results.append)
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            list(drive([one_round(*[job] * 20), one_round(job)], processes(2), interrupt, stop))
        assert time.monotonic() - began < LONG / 2
    assert len(stops) == 1
    assert len(results) == 20
    assert {pid for pid, _ in results} == set(first)
    assert all(told for _, told in results)
    assert all(map(living, first))
    assert workers("after") == first


@pytest.mark.usefixtures("no_processes_left")
def test_two_pools_at_once_have_different_processes() -> None:
    found: dict[str, list[int]] = {"outer": [], "inner": [], "again": []}

    def ask(name: str) -> Job:
        return Job(os.getpid, (), found[name].append)

    def outer() -> Task:
        yield [ask("outer")]
        assert ends([one_round(ask("inner"))], processes(1)) == {0: None}
        yield [ask("outer")]

    assert ends([outer()], processes(1)) == {0: None}
    assert len({*found["outer"], *found["inner"], os.getpid()}) == 3
    assert len(found["outer"]) == 2
    assert ends([one_round(ask("again"))], processes(1)) == {0: None}
    assert {*found["again"]} <= {*found["outer"], *found["inner"]}


@pytest.mark.usefixtures("no_processes_left")
def test_the_job_of_a_killed_process_is_done_by_a_new_one(tmp_path: Path) -> None:
    found: list[int] = []
    results: list[int] = []

    def task() -> Task:
        yield [Job(die_there, (tmp_path, 1), found.append)]
        yield [Job(os.getpid, (), found.append)]

    assert ends([task(), one_round(Job(abs, (-3,), results.append))], processes(1)) == {0: None, 1: None}
    assert found[0] == found[1]
    assert len(found) == 2
    (killed,) = {int(file.name) for file in tmp_path.iterdir()} - {found[0]}
    assert not living(killed)
    assert results == [3]
    assert ends([one_round(Job(os.getpid, (), results.append))], processes(1)) == {0: None}
    assert results[1] != killed


@pytest.mark.slow
@pytest.mark.usefixtures("no_processes_left")
def test_processes_end_after_a_while_and_new_ones_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "_IDLE", 0.1)
    workers_module._end_processes()
    found: list[int] = []
    assert ends([one_round(Job(os.getpid, (), found.append))], processes(1)) == {0: None}
    until = time.monotonic() + LONG
    while living(found[0]) and time.monotonic() < until:
        time.sleep(0.01)
    assert not living(found[0])
    assert not workers_module._idle
    assert ends([one_round(Job(die_there, (tmp_path, 1), found.append))], processes(1)) == {0: None}
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.usefixtures("no_processes_left")
def test_processes_that_were_taken_are_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "_IDLE", 0.5)
    workers_module._end_processes()
    found: list[int] = []

    def task() -> Task:
        for _ in range(4):  # longer than they would have been kept
            yield [Job(os.getpid, (), found.append), Job(time.sleep, (0.2,), nothing)]

    for _ in range(2):
        assert ends([task()], processes(1)) == {0: None}
    assert len(set(found)) == 1
    assert len(found) == 8


@pytest.mark.usefixtures("no_processes_left")
def test_a_job_that_kills_every_process_ends_its_task_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "RETRIES", 1)  # each takes a second
    results: list[int] = []

    def task() -> Task:
        yield [Job(die_there, (tmp_path, 100), nothing)]
        results.append(-1)

    tasks = [one_round(Job(abs, (-3,), results.append)), task(), one_round(Job(abs, (-4,), results.append))]
    found = ends(tasks, processes(1))
    assert isinstance(found[1], pltf.PltfError)
    assert str(found.pop(1)) == "a worker process was killed, possibly out of memory"
    assert found == {0: None, 2: None}
    assert results == [3, 4]
    assert len(list(tmp_path.iterdir())) == 2
    assert not any(living(int(file.name)) for file in tmp_path.iterdir())


def test_a_daemonic_process_may_not_have_children() -> None:
    assert may_have_children()
    with multiprocessing.get_context("spawn").Pool(1) as daemons:
        assert daemons.apply_async(may_have_children).get(LONG) is False


def test_processes_end_with_the_one_that_started_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed, it cannot tell them; nor can it remove what it shared with them, which the next one does.

    In a temporary folder of its own: in the usual one the next one may be any process of another test.
    """
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    code = (
        "import os, sys; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "from tests.test_workers import die_here, drive, nothing, one_round, Job, processes, shared\n"
        "with shared([1]) as given:\n"
        "    Path(sys.argv[1], 'folder').write_text(given.folder)\n"
        "    list(drive([one_round(Job(die_here, (sys.argv[1],), nothing))], processes(1), nothing, nothing))\n"
    )
    root = Path(__file__).parents[1]
    command = [sys.executable, "-c", code, str(tmp_path), str(root)]
    killed = subprocess.run(command, cwd=root, stderr=subprocess.DEVNULL, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    worker, folder = int((tmp_path / "worker").read_text()), Path((tmp_path / "folder").read_text())
    until = time.monotonic() + LONG
    while living(worker) and time.monotonic() < until:
        time.sleep(0.1)
    assert not living(worker)
    assert folder.exists()
    assert folder.parent == tmp_path
    with shared([2]):
        assert not folder.exists()


def die_here(folder: str) -> None:
    """Kill the process that started this one, and wait for ever."""
    Path(folder, "worker").write_text(str(os.getpid()))
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(10 * LONG)
