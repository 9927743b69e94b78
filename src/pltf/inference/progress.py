"""Progress display: a bar on terminals and in notebooks, lines of text elsewhere, after one second."""

from __future__ import annotations

import html
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from pltf.inference.state import shown_objective
from pltf.terminal import printable
from pltf.threads import startable_threads

PATIENCE = 1.0  # seconds before a bar appears
PERIOD = 0.1  # seconds between updates of the bar


class Progress:
    """Shows the progress of some work; does nothing if disabled.

    On terminals and in notebooks it is a bar, which appears after a second and disappears at the end. Elsewhere, for
    example in a log, it is a line on stderr every few seconds.
    """

    lines_every: float = 5.0  # seconds between lines

    def __init__(self, shown: bool, total: float | None, *, time_left: bool = False) -> None:
        self._shown, self._total, self._time_left = shown, total, time_left
        self._period = PERIOD
        self._bar: Bar | None = None
        self._next = time.monotonic() + PATIENCE
        self._lock = threading.Lock()
        self._timer = threading.Timer(PATIENCE, self._getting_ready)

    def __enter__(self) -> Self:
        self._shown &= sys.stderr is not None
        if not self._shown:
            return self
        self._bar = self._made()
        if isinstance(self._bar, ProgressLines):
            self._period = self.lines_every
            self._next = time.monotonic() + self._period
        else:
            self._timer.daemon = True
            with suppress(RuntimeError):  # no thread can be started: the bar appears with the first iteration
                self._timer.start()
        return self

    def _made(self) -> Bar:
        if sys.stderr.isatty():
            return TerminalBar(self._total, self._time_left)
        return (NotebookBar if in_notebook() else ProgressLines)(self._total, self._time_left)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            if self._bar is not None:
                self._bar.close()
            self._shown = False

    @property
    def due(self) -> bool:
        """Whether an update would be displayed now."""
        return self._shown and time.monotonic() >= self._next

    def show(self, done: float, text: str) -> None:
        """Report progress."""
        if not self.due or self._bar is None:
            return
        self._next = time.monotonic() + self._period
        with self._lock:
            try:
                self._bar.update(done, printable(text, keep=""))
            except BrokenPipeError:  # the reader is gone; the work continues
                self._shown = False

    def _getting_ready(self) -> None:
        """Before the first iteration, kernels may have to be compiled."""
        with self._lock:
            if self._shown and self._bar is not None and time.monotonic() >= self._next:
                self._bar.update(0.0, "starting; kernels are compiled once and cached")


class Bar:
    """Displays progress."""

    def __init__(self, total: float | None, time_left: bool) -> None:
        self._total, self._time_left = total, time_left
        self._began = time.monotonic()
        self._bar: Any = None

    def update(self, done: float, text: str) -> None:
        """Update the display; the first call creates it."""
        raise NotImplementedError

    def close(self) -> None:
        """Remove the display."""


class ProgressLines(Bar):
    """Lines of text, for files and pipes; none while nothing changes."""

    _last = ""

    def update(self, done: float, text: str) -> None:
        share = f"{done / self._total:.0%}: " if self._total and self._time_left else ""
        line = f"{share}{text}"
        if line != self._last:
            print(line, file=sys.stderr, flush=True)
        self._last = line


class TerminalBar(Bar):
    """A progress bar from rich."""

    def update(self, done: float, text: str) -> None:
        if self._bar is None:
            self._start()
        self._bar.update(self._bar.task_ids[0], completed=done, description=text)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        console = Console(stderr=True)
        columns = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
        if self._time_left:
            columns += [TextColumn("time left"), TimeRemainingColumn()]
        # The remaining time is estimated from all progress so far: single steps may take minutes.
        period = float("inf")
        self._bar = RichProgress(
            *columns,
            console=console,
            transient=True,
            disable=not console.is_terminal,
            speed_estimate_period=period,
            auto_refresh=startable_threads(1) == 1,
        )
        self._bar.add_task("", total=self._total)
        self._bar.start()


class NotebookBar(Bar):
    """A progress bar below a notebook cell, drawn by the browser. It needs no widgets."""

    def update(self, done: float, text: str) -> None:
        seconds = time.monotonic() - self._began
        told = f"{text}, {seconds:.0f} s"
        share = done / self._total if self._total else None
        if share and self._time_left:
            told += f", about {max(seconds / share - seconds, 0):.0f} s left"
        size = "" if share is None else f' value="{share:.4f}"'
        self._draw(f"<progress{size}></progress> <small>{html.escape(told)}</small>", told)

    def close(self) -> None:
        if self._bar is not None:
            self._draw("", "")

    def _draw(self, page: str, text: str) -> None:
        drawn = {"text/html": page, "text/plain": text}
        if self._bar is None:
            self._bar = import_module("IPython.display").display(drawn, raw=True, display_id=True)
        else:
            self._bar.update(drawn, raw=True)


def in_notebook() -> bool:
    """Whether this is a notebook kernel."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


class SweepProgress(Progress):
    """Shows the iterations of all restarts."""

    def __init__(self, shown: bool, restarts: int, max_iter: int) -> None:
        super().__init__(shown, restarts * max_iter)
        self._restarts, self._max_iter = restarts, max_iter

    def sweep(self, restart: int, n_iter: int, objective: str, value: float) -> None:
        """Report that iteration ``n_iter`` of ``restart`` is done."""
        if self.due:  # an iteration may be shorter than writing a line
            label = f"restart {restart + 1}/{self._restarts}" if self._restarts > 1 else "fit"
            told = f"{label}, iteration {n_iter}: {shown_objective(objective)} {value:.6g}"
            self.show(restart * self._max_iter + n_iter, told)

    def together(self, n_iter: int, objective: str, value: float) -> None:
        """Report that restarts that run at once have done up to ``n_iter`` iterations, and the best objective."""
        if self.due:
            told = f"{self._restarts} restarts at once, iteration {n_iter}: {shown_objective(objective)} {value:.6g}"
            self.show(self._restarts * n_iter, told)
