"""Where threads, processes or memory are limited, work goes on with fewer or ends with one sentence."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pltf
from pltf import threads, workers
from pltf.cli.main import INTERRUPTED, NOTHING
from pltf.errors import PltfError
from pltf.io.files import read_data
from pltf.workers import CannotStart, Job, Pool, drive
from tests.cli import SCRIPT, here
from tests.limits import few_processes, little_memory, run_limited

linux = pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them")

SEARCH = """
import numpy as np, pltf
from pltf.selection import search
search._worth_processes = lambda *_: True
options = dict(restarts=1, workers=4, criterion="bound", max_iter=3, tol=0)
found = pltf.select(pltf.nmf(rank=1), np.eye(4) + 1, r=[1, 2], **options)
print(len(found.outcomes))
"""


@linux
@pytest.mark.parametrize("spare", [2, 7])
def test_a_search_goes_on_with_the_threads_there_are(spare: int) -> None:
    done = run_limited([sys.executable, "-c", SEARCH], few_processes(spare))
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    assert "4 worker processes cannot be started: threads do the work; limits on processes" in done.stderr
    fewer = re.search(r"only [123] of 4 threads can be started: continuing with these", done.stderr)
    assert (fewer is not None) == (spare == 2)


@linux
def test_without_any_thread_a_search_ends_with_one_sentence() -> None:
    done = run_limited([sys.executable, "-c", SEARCH], few_processes(0))
    assert done.returncode == 1
    told = "no thread can be started: raise the limit on processes (ulimit -u) or memory (ulimit -v)"
    assert done.stderr.splitlines()[-1] == f"pltf.errors.PltfError: {told}"


@linux
@pytest.mark.parametrize("megabytes", [250, 500])
def test_too_little_memory_for_the_libraries_is_told(megabytes: int, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b,n\n1,1,2\n1,2,3\n")
    command = [str(SCRIPT), "select", str(tmp_path / "x.csv"), "--index", "a,b", "--nmf", "1:2"]
    done = run_limited(command, little_memory(megabytes << 20))
    told = f"pltf: pltf needs at least 640 MB of memory, and the limit (ulimit -v) is {megabytes} MB\n"
    assert (done.returncode, done.stderr) == (2, told)


# -- what the system refuses ----------------------------------------------------------------------


def allow(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Let no more than so many threads start from here on, in this thread."""
    start, started, here = threading.Thread.start, list[threading.Thread](), threading.current_thread()

    def limited(one: threading.Thread) -> None:
        if threading.current_thread() is here:
            started[:] = [other for other in started if other.is_alive()]
            if len(started) >= most:
                raise RuntimeError("can't start new thread")
            started.append(one)
        start(one)

    monkeypatch.setattr(threading.Thread, "start", limited)


def one_round(*jobs: Job) -> workers.Task:
    yield jobs


def nothing(*_: Any) -> None:
    pass


def test_threads_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert threads.startable_threads(3) == 3
    allow(monkeypatch, 2)
    assert threads.startable_threads(3) == 2
    assert threads.startable_threads(1) == 1


@pytest.mark.parametrize("most", [0, 1, 2])
def test_blocks_are_worked_on_by_the_threads_there_are(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    threads._workers.cache_clear()
    allow(monkeypatch, most)
    with pytest.warns(RuntimeWarning, match=rf"only {most + 1} of 4 threads can be started"):
        assert list(threads.ordered_map(abs, range(-9, 0), 4)) == list(range(9, 0, -1))
    threads._workers.cache_clear()


class Block:
    """What is worked on."""


@pytest.mark.filterwarnings("ignore:only 1 of 4 threads")
def test_without_other_threads_nothing_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    threads._workers.cache_clear()
    allow(monkeypatch, 0)
    blocks = [Block() for _ in range(9)]
    seen = [weakref.ref(block) for block in blocks]
    assert list(threads.ordered_map(type, blocks, 4)) == [Block] * 9
    del blocks
    gc.collect()
    assert not any(ref() for ref in seen)
    threads._workers.cache_clear()


@pytest.mark.parametrize("most", [1, 2])
def test_jobs_are_done_by_the_threads_there_are(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, most)
    with pytest.warns(RuntimeWarning, match=rf"only {most} of 3 threads can be started"):
        pool = Pool(3, processes=False)
    assert pool.workers == most
    results = list[int]()
    assert list(drive([one_round(*[Job(abs, (-3,), results.append)] * 5)], pool, nothing, nothing)) == [(0, None)]
    assert results == [3] * 5


def test_processes_that_would_not_all_start_are_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    workers._end_processes()
    allow(monkeypatch, 6)
    monkeypatch.setattr("loky.ProcessPoolExecutor", None)
    with pytest.raises(CannotStart):
        Pool(2, processes=True)


def wait_for_ever() -> None:
    time.sleep(600)


def leave() -> None:
    os._exit(1)


@pytest.mark.parametrize("trial", [leave, wait_for_ever])
def test_processes_that_fail_their_trial_are_told(trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    workers._end_processes()
    monkeypatch.setattr(workers, "_START", 0.1 if trial is wait_for_ever else 60)
    with pytest.raises(CannotStart):
        Pool(1, processes=True, trial=trial)


def test_processes_that_cannot_be_started_again_are_told_and_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    workers._end_processes()
    pool, tries = Pool(1, processes=True), list[int]()
    allow(monkeypatch, 0)

    def count(most: int) -> int:
        tries.append(most)
        return threads.startable_threads(most)

    monkeypatch.setattr(workers, "startable_threads", count)
    ends = list(drive([one_round(Job(leave, (), nothing)) for _ in range(4)], pool, nothing, nothing))
    assert [number for number, _ in ends] == [0, 1, 2, 3]
    for _, error in ends:
        assert isinstance(error, PltfError)
        assert str(error).startswith("a worker process was killed and no others can be started: raise the limit")
    assert len(tries) == 1
    assert not workers._idle  # the next pool does not get what is left of this one


def test_jobs_that_nobody_serves_fail() -> None:
    pool, futures = Pool(1, processes=False), [Future[None](), Future[None]()]
    futures[0].set_result(None)
    pool._executor._executor_manager_thread = threading.Thread()  # type: ignore[attr-defined]
    pool.watch(futures)
    assert futures[0].exception() is None
    assert isinstance(futures[1].exception(timeout=0), BrokenExecutor)
    pool.close()


# -- signals --------------------------------------------------------------------------------------

HANG_UP = """
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup makes children ignore it
sys.path.insert(0, sys.argv[1])
from tests.test_limits import Job, Pool, drive, nothing, one_round, wait_for_ever
pool = Pool(2, processes=True)
print("going", flush=True)
list(drive([one_round(Job(wait_for_ever, (), nothing))], pool, nothing, nothing))
"""


@linux
def test_nothing_is_left_when_a_terminal_is_closed() -> None:
    """Which signals the process and its children alike, as one group."""
    command = [sys.executable, "-c", HANG_UP, str(Path(__file__).parents[1])]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=quiet, text=True, start_new_session=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "going\n"
        assert list(Path("/dev/shm").glob(f"*loky-{child.pid}-*"))
        os.killpg(child.pid, signal.SIGHUP)
    until = time.monotonic() + 60
    while list(Path("/dev/shm").glob(f"*loky-{child.pid}-*")) and time.monotonic() < until:
        time.sleep(0.1)
    assert not list(Path("/dev/shm").glob(f"*loky-{child.pid}-*"))


EARLY = """
import sys
class Press:  # Ctrl-C while a module is looked for
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Press())
before = set(sys.modules)
from pltf.cli import main
assert set(sys.modules) - before == {"pltf", "pltf.cli", "pltf.cli.main"}  # until main is called, it is not told
main(["info", "x.csv"])
"""


@pytest.mark.parametrize("module", ["resource", "typer", "numpy"])
def test_an_early_interrupt_is_told_in_one_sentence(module: str) -> None:
    command = [sys.executable, "-c", EARLY, module]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    told = "pltf: interrupted\n" if module == "resource" else f"pltf: {NOTHING}\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "", told)


def test_an_interrupt_in_the_body_of_a_class_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until 3.12, Python makes another error of it."""

    def press(*_: Any, **__: Any) -> None:
        class Named:
            def __set_name__(self, owner: type, name: str) -> None:
                raise KeyboardInterrupt

        type("Owner", (), {"named": Named()})

    monkeypatch.setattr("pltf.cli.commands.info", press)
    told = here("info", "x.csv")
    assert (told.code, told.err) == (INTERRUPTED, f"pltf: {NOTHING}\n")


# -- packages that are too large ------------------------------------------------------------------


def test_a_package_that_does_not_fit_is_not_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pltf.io.opening import readable

    def unloaded() -> None:
        raise ImportError("libarrow.so: failed to map segment from shared object")

    with pytest.raises(MemoryError), readable(tmp_path / "x.parquet", "Parquet"):
        unloaded()
    monkeypatch.setattr("pltf.cli.commands.info", lambda *_, **__: unloaded())
    assert here("info", tmp_path / "x.csv").refusal == ("out of memory: pltf plan estimates what a fit needs")


def test_a_file_is_not_blamed_for_too_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise MemoryError("Unable to allocate 5 GiB")

    pltf.nmf(rank=1).fit(np.ones((3, 4))).save(tmp_path / "fit.nc")
    np.save(tmp_path / "x.npy", np.ones((3, 4)))
    monkeypatch.setattr("pltf.store.container._stored", full)
    monkeypatch.setattr("pltf.io.arrays._npy_size", full)
    for name in ("fit.nc", "x.npy"):
        told = here("info", tmp_path / name)
        assert told.refusal == "out of memory: pltf plan estimates what a fit needs"
    with pytest.raises(MemoryError):
        pltf.load(tmp_path / "fit.nc")
    with pytest.raises(MemoryError):
        read_data(tmp_path / "x.npy")
