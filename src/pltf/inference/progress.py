"""A progress bar for people, when work takes over a second: on a terminal, or as plain lines if those are asked for."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from pltf.terminal import printable
from pltf.threads import startable_threads

_PATIENCE = 1.0  # seconds before a bar appears
_PERIOD = 0.1  # seconds between two drawings


class Progress:
    """Shows how much of some work is done; does nothing when switched off."""

    lines_every: float | None = None  # seconds between plain lines where there is no terminal; None: no lines

    def __init__(self, shown: bool, total: float | None, *, time_left: bool = False) -> None:
        self._shown, self._total, self._time_left = shown, total, time_left
        self._bar: Any = None
        self._task: Any = None
        self._next = time.monotonic() + _PATIENCE
        self._lines = False
        self._lock = threading.Lock()
        self._timer = threading.Timer(_PATIENCE, self._getting_ready)

    def __enter__(self) -> Self:
        terminal = sys.stderr is not None and sys.stderr.isatty()
        self._lines = self._shown and not terminal and self.lines_every is not None
        if self._shown and terminal:
            self._timer.daemon = True
            with suppress(RuntimeError):  # no thread can be started: the bar comes with the first sweep
                self._timer.start()
        elif self.lines_every is not None:
            self._next = time.monotonic() + self.lines_every
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
            self._shown = False

    @property
    def due(self) -> bool:
        """Whether anything that is told now would be shown."""
        return self._shown and time.monotonic() >= self._next

    def show(self, done: float, text: str) -> None:
        """Tell how much is done."""
        if not self.due:
            return
        now, text = time.monotonic(), printable(text, keep="")
        if self._lines:
            self._next = now + (self.lines_every or 0)
            try:
                print(self._plain(done, text), file=sys.stderr, flush=True)
            except BrokenPipeError:  # nobody reads any more; the work goes on
                self._shown = False
            return
        self._next = now + _PERIOD
        with self._lock:
            if self._bar is None:
                self._start()
        self._bar.update(self._task, completed=done, description=text)

    def _plain(self, done: float, text: str) -> str:
        return text if self._total is None or not self._time_left else f"{done / self._total:.0%}: {text}"

    def _getting_ready(self) -> None:
        """Before the first sweep there may be kernels to compile."""
        with self._lock:
            if self._shown and self._bar is None:
                self._start("getting ready; kernels are compiled once and kept")

    def _start(self, text: str = "") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        columns = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
        if self._time_left:
            columns += [TextColumn("time left"), TimeRemainingColumn()]
        # The time left is guessed from all that was done so far: single steps may take minutes.
        period = float("inf")
        self._bar = Bar(
            *columns,
            console=console,
            transient=True,
            disable=not console.is_terminal,
            speed_estimate_period=period,
            auto_refresh=startable_threads(1) == 1,
        )
        self._task = self._bar.add_task(text, total=self._total)
        self._bar.start()


class SweepProgress(Progress):
    """Counts sweeps over all restarts."""

    def __init__(self, shown: bool, restarts: int, max_iter: int) -> None:
        super().__init__(shown, restarts * max_iter)
        self._restarts, self._max_iter = restarts, max_iter

    def sweep(self, restart: int, n_iter: int, objective: str, value: float) -> None:
        """Tell that sweep ``n_iter`` of ``restart`` is done."""
        if self.due:  # sweeps may be shorter than the writing of a line
            label = f"restart {restart + 1}/{self._restarts}" if self._restarts > 1 else "fit"
            self.show(restart * self._max_iter + n_iter, f"{label}, sweep {n_iter}: {objective} {value:.6g}")
