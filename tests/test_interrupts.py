"""Ctrl-C: the fit so far, and a way to go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pltf
from pltf.inference.run import Sweep
from pltf.interrupts import first_interrupt_waits, interrupts_wait
from tests.selection.test_checkpoint import assert_same_search
from tests.store import assert_same, quietly

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")

X = np.random.default_rng(0).poisson(2.0, (9, 8, 7))
CP = pltf.cp(rank=3)


def press(at: int, restart: int = 0, times: int = 1) -> Any:
    """A callback that presses Ctrl-C after a sweep."""

    def callback(sweep: Sweep) -> None:
        if (sweep.restart, sweep.n_iter) == (restart, at):
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    return callback


# -- in this process ----------------------------------------------------------------------------


def test_the_first_one_gives_the_fit_so_far(tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGINT)
    whole = CP.fit(X, restarts=3)
    with pytest.warns(pltf.ConvergenceWarning, match=r"in restart 1 of 3, after 7 iterations: .*resume with init=fit"):
        fit = CP.fit(X, restarts=3, callback=press(7))
    assert signal.getsignal(signal.SIGINT) is handler
    assert (fit.n_iter, fit.converged, fit.stopped) == (7, False, "interrupted")
    np.testing.assert_array_equal(fit.trace, CP.fit(X, tol=0, max_iter=7).trace)

    path = tmp_path / "run.nc"
    with pytest.warns(
        pltf.ConvergenceWarning, match=r"in restart 2 of 3, after 4 iterations: .*rerun with resume=True to resume$"
    ):
        fit = CP.fit(X, restarts=3, callback=press(4, restart=1), checkpoint=path)
    assert fit.bound == whole.rows[0].bound
    assert [row.stopped == "interrupted" for row in fit.rows] == [False, True]
    with pytest.warns(pltf.ConvergenceWarning, match="in restart 3 of 3, after 2 iterations"):
        CP.fit(X, restarts=3, callback=press(2, restart=2), checkpoint=path, resume=True)
    assert_same(whole, CP.fit(X, restarts=3, checkpoint=path, resume=True), seconds=False)


def test_the_second_one_interrupts(tmp_path: Path) -> None:
    path = tmp_path / "run.nc"
    with pytest.raises(KeyboardInterrupt):
        CP.fit(X, callback=press(7, times=2), checkpoint=path, every=0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert_same(CP.fit(X), CP.fit(X, checkpoint=path, resume=True), seconds=False)


def test_a_press_between_two_restarts_is_not_the_end(tmp_path: Path) -> None:
    path, whole = tmp_path / "run.nc", CP.fit(X, restarts=3)
    with pytest.warns(pltf.ConvergenceWarning, match="interrupted"):
        CP.fit(X, restarts=3, callback=press(whole.rows[0].n_iter), checkpoint=path)
    assert_same(whole, CP.fit(X, restarts=3, checkpoint=path, resume=True), seconds=False)


def test_somebody_else_who_listens_is_left_alone() -> None:
    heard = list[int]()
    handler = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        mine = signal.getsignal(signal.SIGINT)
        fit = CP.fit(X, callback=press(5))
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, handler)
    assert heard == [signal.SIGINT]
    assert_same(fit, CP.fit(X), seconds=False)


def test_who_ignores_them_is_left_alone() -> None:
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert CP.fit(X, callback=press(5)).converged
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, handler)


def test_in_a_thread_nothing_is_touched() -> None:
    seen = list[Any]()

    def work() -> None:
        with first_interrupt_waits() as pressed, interrupts_wait() as presses:
            seen.extend([signal.getsignal(signal.SIGINT), pressed(), presses.pressed])
            presses.deliver()
        seen.append(CP.fit(X).bound)

    handler = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [handler, False, False, CP.fit(X).bound]


def test_the_handler_comes_back_after_an_error() -> None:
    def fail(sweep: Sweep) -> None:
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        raise RuntimeError

    with pytest.raises(RuntimeError):
        CP.fit(X, callback=fail)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_press_that_waits_is_delivered_when_asked_for() -> None:
    with interrupts_wait() as presses:
        assert not presses.pressed
        signal.raise_signal(signal.SIGINT)
        assert presses.pressed
        with pytest.raises(KeyboardInterrupt):
            presses.deliver()
        presses.deliver()
    with pytest.raises(KeyboardInterrupt), interrupts_wait():
        signal.raise_signal(signal.SIGINT)
    with first_interrupt_waits() as pressed:
        assert not pressed()
        signal.raise_signal(signal.SIGINT)
        assert pressed()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# -- from outside -------------------------------------------------------------------------------

CHILD = """
import itertools, sys, warnings
import numpy as np
import pltf

X = np.random.default_rng(0).poisson(2.0, (9, 8, 7))

calls = itertools.count(1)

def tell(*_):
    if next(calls) == int(sys.argv[3]):
        print("going", flush=True)
        sys.stdin.readline()  # waits until Ctrl-C was pressed: on a busy machine the work might be over before

if __name__ == "__main__":
    with warnings.catch_warnings(record=True, action="always") as told:
        if sys.argv[2] == "fit":
            found = pltf.cp(rank=3).fit(X, restarts=500, tol=1e-9, checkpoint=sys.argv[1], callback=tell)
        else:
            from pltf.selection.checkpoint import SearchCheckpoint
            def due(self, due=SearchCheckpoint.due):
                if self._n_done:  # without any there would be nothing to return
                    tell()
                return due(self)
            SearchCheckpoint.due = due
            found = pltf.select(pltf.cp(rank=3), X, r=range(1, 5), restarts=25, tol=1e-9, checkpoint=sys.argv[1],
                                workers=2, criterion="bound")
    print("done", type(found).__name__, *(str(one.message) for one in told), flush=True)
"""


def interrupted(folder: Path, what: str) -> str:
    """What is said last by a process that hears Ctrl-C in the middle of its work."""
    (folder / "child.py").write_text(CHILD)
    command = [sys.executable, str(folder / "child.py"), str(folder / "run.nc"), what, "30" if what == "fit" else "1"]
    environment, pipe = {**os.environ, "TMPDIR": str(folder)}, subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "going\n"
        child.send_signal(signal.SIGINT)
        rest, _ = child.communicate("\n", timeout=60)
    assert child.returncode == 0
    assert not list(folder.glob(".*part"))
    return rest.splitlines()[-1]


@pytest.mark.slow
def test_a_fit_in_another_process(tmp_path: Path) -> None:
    said = interrupted(tmp_path, "fit")
    assert said.startswith("done Fit the fit was interrupted in restart")
    assert said.endswith("rerun with resume=True to resume")
    with pytest.raises(pltf.PltfError, match="a checkpoint of a fit that has not ended"):
        pltf.load(tmp_path / "run.nc")

    def enough(sweep: Sweep) -> bool:
        return sweep.restart >= 3  # what was kept is from before

    options: dict[str, Any] = {"restarts": 500, "tol": 1e-9, "callback": enough}
    fit = CP.fit(X, checkpoint=tmp_path / "run.nc", resume=True, **options)
    whole = CP.fit(X, **options)
    assert [row.bound for row in fit.rows[:3]] == [row.bound for row in whole.rows[:3]]
    np.testing.assert_array_equal(fit.trace, whole.trace)


@pytest.mark.slow
def test_a_search_in_another_process(tmp_path: Path) -> None:
    said = interrupted(tmp_path, "search")
    assert said.startswith("done Selection")
    assert "the search was interrupted" in said
    path = tmp_path / "run.nc"
    with pytest.raises(pltf.PltfError, match="a checkpoint of a search that has not ended"):
        pltf.load(path)
    options: dict[str, Any] = {"r": range(1, 5), "restarts": 25, "tol": 1e-9, "workers": 2, "criterion": "bound"}
    found = quietly(pltf.select, CP, X, checkpoint=path, resume=True, **options)
    assert_same_search(quietly(pltf.select, CP, X, **options), found)
