"""Tasks on workers: order, errors, interrupts, and data that other processes map instead of copying."""

from __future__ import annotations

import mmap
import os
import signal
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
from pltf.data import CooObservation, DenseObservation
from pltf.workers import Job, Pool, Task, drive, shared, taken

LONG = 20.0  # seconds that nothing here waits for unless it is broken


def nothing(_: Any = None) -> None:
    pass


def one_round(*jobs: Job) -> Task:
    yield jobs


def ends(tasks: Iterable[Task], pool: Pool, show: Callable[[], None] = nothing) -> dict[int, Exception | None]:
    """How each task ended; each one ends once."""
    found = list(drive(tasks, pool, show))
    assert len(dict(found)) == len(found)
    return dict(found)


def threads(workers: int) -> Pool:
    return Pool(workers, processes=False)


def living_workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("pltf-worker")]


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
    with shared(ARRAYS[name]) as folder:
        found = taken(folder)
        check_same(found, ARRAYS[name])
        assert isinstance(source(found), mmap.mmap)


def test_many_arrays_are_in_one_mapping() -> None:
    given = {"odd": np.ones(7, dtype=bool), "empty": np.empty((0, 3)), **ARRAYS, "last": np.arange(3)}
    with shared(given) as folder:
        found = taken(folder)
        assert found.keys() == given.keys()
        for name, array in given.items():
            check_same(found[name], array)
        held = {id(source(array)) for array in found.values() if array.size}
        assert len(held) == 1
        assert isinstance(source(found["last"]), mmap.mmap)


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_arrays_without_entries_need_no_mapping(shape: tuple[int, ...]) -> None:
    given = [np.empty(shape, dtype=np.int32), np.empty(shape)]
    with shared(given) as folder:
        for found, array in zip(taken(folder), given, strict=True):
            np.testing.assert_array_equal(found, array, strict=True)
            assert not found.flags.writeable


def test_things_that_are_no_arrays_come_along() -> None:
    with shared({"a": [1, "two", None], "b": 2.5}) as folder:
        assert taken(folder) == {"a": [1, "two", None], "b": 2.5}


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
    with shared(given) as folder:
        found = taken(folder)
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
        first = taken(one)
        assert taken(one) is first
        np.testing.assert_array_equal(taken(other), NUMBERS + 1)


def test_the_file_is_gone_afterwards() -> None:
    with shared(NUMBERS) as folder:
        assert sum(file.stat().st_size for file in Path(folder).iterdir()) > NUMBERS.nbytes
    assert not Path(folder).exists()


def test_the_file_is_gone_after_an_error() -> None:
    folders = []

    def fail() -> None:
        with shared(NUMBERS) as folder:
            folders.append(Path(folder))
            assert folders[0].exists()
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fail()
    assert not folders[0].exists()


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

    for number, error in drive(map(task, range(3)), threads(1), shows.show):
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


# -- ends before the end ------------------------------------------------------------------------


def test_an_interrupt_ends_everything_and_keeps_what_was_done() -> None:
    pool, started, handed_over = threads(2), threading.Barrier(3), list[str]()
    begun: list[int] = []

    def long(name: str) -> str:
        started.wait(LONG)
        return name if pool.stopping.wait(LONG) else "was not stopped"

    def task(number: int) -> Task:
        begun.append(number)
        long_ones = [Job(long, (name,), handed_over.append) for name in ("one", "other")]
        yield [Job(str, ("quick",), handed_over.append), *long_ones, Job(str, ("never",), handed_over.append)]
        handed_over.append("next round")

    def show() -> None:
        started.wait(LONG)  # the quick job is through, the workers are at the long ones
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(drive(map(task, range(3)), pool, show))
    assert sorted(handed_over) == ["one", "other", "quick"]
    assert begun == [0]
    assert not living_workers()


def test_whoever_turns_away_ends_everything() -> None:
    pool, results, started = threads(2), list[bool](), threading.Barrier(2)

    def long() -> bool:
        started.wait(LONG)
        return pool.stopping.wait(LONG)

    tasks = [one_round(Job(started.wait, (LONG,), nothing)), one_round(Job(long, (), results.append))]
    driven = drive(tasks, pool, nothing)
    assert next(driven) == (0, None)
    driven.close()  # type: ignore[attr-defined]
    assert results == [True]
    assert not living_workers()


def test_an_exit_in_a_worker_is_not_an_error_of_a_task() -> None:
    pool, results, started = threads(2), list[bool](), threading.Barrier(2)

    def leave() -> None:
        started.wait(LONG)
        raise SystemExit(3)

    def long() -> bool:
        started.wait(LONG)
        return pool.stopping.wait(LONG)

    with pytest.raises(SystemExit, match="3"):
        list(drive([one_round(Job(leave, (), nothing)), one_round(Job(long, (), results.append))], pool, nothing))
    assert results == [True]
    assert not living_workers()


def test_an_error_where_results_go_comes_out() -> None:
    def refuse(result: int) -> None:
        raise LookupError(f"no place for {result}")

    with pytest.raises(LookupError, match="no place for 7"):
        list(drive([one_round(Job(abs, (-7,), refuse))], threads(1), nothing))
    assert not living_workers()


# -- processes ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def no_processes_left() -> Iterator[None]:
    yield
    Pool(2, processes=True).stop()


def looked_at(folder: str) -> tuple[int, bool, bool, float]:
    """What another process sees of a shared array."""
    array = taken(folder)["X"]
    return os.getpid(), array.flags.writeable, isinstance(source(array), mmap.mmap), float(array.sum())


def meet(folder: Path, count: int) -> int:
    """Wait until so many processes are here; which one this is."""
    (folder / str(os.getpid())).touch()
    until = time.monotonic() + LONG
    while len(list(folder.iterdir())) < count and time.monotonic() < until:
        time.sleep(0.01)
    return os.getpid()


def sleep_there(folder: Path) -> None:
    (folder / str(os.getpid())).touch()
    time.sleep(LONG)


def fail_there(number: int) -> None:
    raise ValueError(f"{number} is bad")


@pytest.mark.usefixtures("no_processes_left")
def test_processes_do_the_jobs_and_map_the_data(tmp_path: Path) -> None:
    met: list[int] = []
    seen: list[tuple[int, bool, bool, float]] = []
    handlers: list[object] = []
    with shared({"X": NUMBERS}) as folder:
        tasks = [
            one_round(*[Job(meet, (tmp_path, 2), met.append)] * 2),
            one_round(*[Job(looked_at, (folder,), seen.append)] * 4),
            one_round(Job(fail_there, (5,), nothing)),
            one_round(Job(signal.getsignal, (signal.SIGINT,), handlers.append)),
        ]
        found = ends(tasks, Pool(2, processes=True))
    assert isinstance(found[2], ValueError)
    assert str(found.pop(2)) == "5 is bad"
    assert found == {0: None, 1: None, 3: None}
    assert len({*met, os.getpid()}) == 3
    assert {pid for pid, *_ in seen} <= set(met)
    assert [view[1:] for view in seen] == [(False, True, NUMBERS.sum())] * 4
    assert handlers == [signal.SIG_IGN]


@pytest.mark.usefixtures("no_processes_left")
def test_processes_stay_for_the_next_search_unless_they_were_stopped(tmp_path: Path) -> None:
    def worker() -> int:
        found: list[int] = []
        assert ends([one_round(Job(os.getpid, (), found.append))], Pool(1, processes=True)) == {0: None}
        return found[0]

    def interrupt() -> None:
        if len(list(tmp_path.iterdir())) == 2:  # both are at work
            raise KeyboardInterrupt

    Pool(1, processes=True).stop()
    first = worker()
    assert first != os.getpid()
    assert worker() == first
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(drive([one_round(*[Job(sleep_there, (tmp_path,), nothing)] * 3)], Pool(2, processes=True), interrupt))
    assert time.monotonic() - began < LONG / 2
    for file in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.name), 0)
    assert worker() != first
