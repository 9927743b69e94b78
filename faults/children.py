"""Run pltf commands in child processes that are killed, limited and watched."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from faults.opens import Openings
from pltf.cli.main import run

LONG, LARGE = 10.0, 1 << 30  # limits of seconds and bytes for every command
WORKERS_ARE_PROCESSES = "from pltf.selection import search; search._worth_processes = lambda *_: True"
_IMPORT = "from pltf.cli.main import main"


class Ended(NamedTuple):
    """How a process ended."""

    code: int  # below zero: the signal that killed it
    said: str
    seconds: float
    peak: int  # bytes

    def fault(self, *fine: int, seconds: float = LONG, peak: float = LARGE) -> str:
        """The problem; "" if it succeeded, failed with one clear sentence, or ended in another allowed way."""
        if self.seconds > seconds:
            return f"took more than {seconds:.0f} s"
        if "Traceback" in self.said:
            return f"a traceback: {self._last}"
        if self.code in fine:
            return ""
        if self.code < 0:
            return f"ended by signal {-self.code} ({signal.Signals(-self.code).name}): {self._last}"
        if self.code not in (0, 2):
            return f"exit code {self.code}: {self._last}"
        if self.code == 2 and not self._last.startswith("pltf: "):
            return f"no sentence: {self._last}"
        return f"took {self.peak / 1e9:.1f} GB" if self.peak > peak else ""

    @property
    def _last(self) -> str:
        return (self.said.strip().splitlines() or ["nothing was said"])[-1][:200]


class Child:
    """A running process; its output goes to a file."""

    def __init__(self, process: int, said: Path) -> None:
        self._process, self._said, self._began = process, said, time.monotonic()

    def send(self, number: int) -> None:
        """Send a signal to it and to its children."""
        os.killpg(self._process, number)

    def wait(self, seconds: float = LONG) -> Ended:
        """Wait for its end; kill it if that takes too long."""
        while True:
            process, status, usage = os.wait4(self._process, os.WNOHANG)
            taken = time.monotonic() - self._began
            if process:
                code = os.waitstatus_to_exitcode(status)
                return Ended(code, self._said.read_text(errors="replace"), taken, 1024 * usage.ru_maxrss)
            if taken > seconds + 0.5:
                self.send(signal.SIGKILL)
            time.sleep(0.002)

    def kill_after(self, seconds: float, number: int = signal.SIGKILL) -> Ended:
        """Let it run for a while, then send a signal unless it has ended; its time counts from there."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if os.waitid(os.P_PID, self._process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            time.sleep(0.0005)
        self.send(number)
        self._began = time.monotonic()
        return self.wait()


def forked(action: Callable[[], int | None], said: Path, openings: Openings | None = None) -> Child:
    """Run a function in a fork of this process, which has everything imported and compiled."""
    said.write_text("")
    process = os.fork()
    if process:
        if openings is not None:
            openings.watch()
        with suppress(PermissionError, ProcessLookupError):  # it had already ended
            os.setpgid(process, process)
        return Child(process, said)
    code = 1
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in (1, 2):
            os.dup2(os.open(said, os.O_WRONLY | os.O_APPEND), number)
        if openings is not None:
            openings.tell()
        code = action() or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def command(*arguments: object, said: Path, openings: Openings | None = None) -> Child:
    """A command in a fork."""
    return forked(lambda: run([str(one) for one in arguments]), said, openings)


def started(
    arguments: Sequence[object],
    said: Path,
    *,
    before: str = "",
    limit: Callable[[], None] | None = None,
    under: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Child:
    """A command in a new Python, as from a shell; ``before`` is code that runs first, ``under`` a wrapper command."""
    words = [*under, sys.executable, "-c", f"{_IMPORT}\n{before}\nmain()", *map(str, arguments)]

    def replace_it() -> None:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):  # nohup makes children ignore some signals
            signal.signal(number, signal.SIG_DFL)
        if limit is not None:
            limit()
        os.execvpe(words[0], words, {**os.environ, **(env or {})})

    return forked(replace_it, said)
