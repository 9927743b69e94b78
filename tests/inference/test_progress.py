"""Progress on terminals, in notebooks, and in files."""

from __future__ import annotations

import io
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import pltf
from pltf.inference import progress as progress_module
from pltf.inference.progress import Progress, SweepProgress

X = [[5.0, 1.0, 2.0], [1.0, 7.0, 3.0], [0.0, 2.0, 4.0]]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Page:
    """Stands for IPython: what a notebook shows, one place for each output."""

    def __init__(self) -> None:
        self.places: list[dict[str, str]] = []
        self.drawn: list[dict[str, str]] = []

    def display(self, drawn: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert (raw, display_id) == (True, True)
        place = len(self.places)
        self.places.append(drawn)
        self.drawn.append(drawn)
        return SimpleNamespace(update=lambda new, raw: self._replace(place, new))

    def _replace(self, place: int, new: dict[str, str]) -> None:
        self.places[place] = new
        self.drawn.append(new)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is shown at once."""
    monkeypatch.setattr(progress_module, "PATIENCE", 0.0)
    monkeypatch.setattr(progress_module, "PERIOD", 0.0)
    monkeypatch.setattr(Progress, "lines_every", 0.0)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    """A notebook."""
    page = Page()
    ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()), display=page.display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython)
    return page


def fitted(**options: Any) -> pltf.Fit:
    return pltf.nmf(rank=2).fit(X, restarts=2, tol=0, max_iter=20, dispersion=None, **options)


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("rich.console.Console", lambda **_: Console(file=terminal, force_terminal=True, width=100))
    fitted()
    assert "restart 2/2, iteration 20" in terminal.getvalue()


def test_a_file_has_no_line_twice(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(shown=True, total=5, time_left=True) as shown:
        for done, text in ((0, "0 of 5"), (0, "0 of 5"), (1, "1 of 5"), (1, "1 of 5")):
            shown.show(done, text)
    assert capsys.readouterr().err.splitlines() == ["0%: 0 of 5", "20%: 1 of 5"]


def test_a_file_has_lines(capsys: pytest.CaptureFixture[str]) -> None:
    fitted()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("restart 1/2, iteration 1: ELBO -")
    assert lines[-1].startswith("restart 2/2, iteration 20: ELBO -")


def test_lines_are_seconds_apart(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(Progress, "lines_every", 5.0)
    with Progress(shown=True, total=80.0, time_left=True) as progress:
        for done in range(1, 81):
            clock[0] += 0.25
            progress.show(done, "work")
    assert capsys.readouterr().err.splitlines() == ["25%: work", "50%: work", "75%: work", "100%: work"]
    monkeypatch.undo()
    assert Progress.lines_every == 5.0
    assert progress_module.PATIENCE == 1.0


def test_nothing_is_shown_to_those_who_want_none(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    fitted(progress=False)
    assert page.drawn == []
    assert capsys.readouterr().err == ""


def test_without_stderr_nothing_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Progress, "lines_every", 0.0)
    monkeypatch.setattr(sys, "stderr", None)
    with Progress(shown=True, total=2.0) as progress:
        progress.show(1.0, "work")
    assert capsys.readouterr().out == ""


def test_a_reader_who_has_gone_does_not_end_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())
    with Progress(shown=True, total=2.0) as progress:
        progress.show(1.0, "work")
        assert not progress.due


def test_a_notebook_has_a_bar_that_goes_when_the_work_is_done(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    fitted()
    texts = [one["text/plain"] for one in page.drawn]
    assert any(text.startswith("restart 2/2, iteration 20: ELBO -") for text in texts)
    assert '<progress value="1.0000"></progress>' in page.drawn[-2]["text/html"]
    assert page.places == [{"text/html": "", "text/plain": ""}]
    assert capsys.readouterr().err == ""


def test_a_notebook_is_told_the_time_left_and_no_html_of_others(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with Progress(shown=True, total=4.0, time_left=True) as progress:
        clock[0] += 30
        progress.show(1.0, "<script>")
    assert "<script>, 30 s, about 90 s left" in [one["text/plain"] for one in page.drawn]
    assert not any("<script>" in one["text/html"] for one in page.drawn)
    page.drawn.clear()
    with Progress(shown=True, total=None) as progress:
        clock[0] += 30
        progress.show(1.0, "looking")
    assert "<progress></progress> <small>looking, 30 s</small>" in [one["text/html"] for one in page.drawn]


def test_work_that_shows_nothing_draws_nothing(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "PATIENCE", 60.0)
    with SweepProgress(shown=True, restarts=1, max_iter=5) as progress:
        progress.sweep(0, 1, "bound", -1.0)
    assert page.drawn == []


def test_a_bar_says_that_kernels_are_compiled(page: Page) -> None:
    with Progress(shown=True, total=3.0):
        deadline = time.monotonic() + 10
        while not page.drawn and time.monotonic() < deadline:
            time.sleep(0.01)
    assert page.drawn[0]["text/plain"].startswith("starting; kernels are compiled once and cached")
