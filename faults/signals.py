"""Signals in every command, at random times."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from faults.children import started
from faults.samples import INDICES, convert_of, done, events, fit_of, loads, search_of
from faults.tally import Bench, Tally, folder

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130
QUICK = ("fit", "select", "report", "convert")
Work = Callable[[Path], list[object]]  # a command that writes into a folder


def tallies(bench: Bench) -> Iterator[Tally]:
    """Each signal in each command."""
    counts = {one: Tally(f"{one.name} in every command") for one in SIGNALS}
    with folder() as outside:
        data, fit = events(outside), outside / "fit.nc"
        done(*fit_of(data, fit, "--holdout", 0.1))
        works, usual = _commands(data, fit), dict[str, float]()
        if bench.quick:
            works = {name: works[name] for name in QUICK}
        for name, work in works.items():
            with folder() as inside:
                usual[name] = started(work(inside), outside / "said").wait(60).seconds
        for _ in bench.rounds():
            for name, work in works.items():
                for one in SIGNALS[:1] if bench.quick else SIGNALS:
                    fault = _signalled(work, one, float(bench.rng.uniform(0, usual[name])), outside)
                    counts[one].count(fault and f"{name}: {fault}")
    yield from (one for one in counts.values() if one.tried)


def _commands(data: Path, fit: Path) -> dict[str, Work]:
    index = ("--index", ",".join(INDICES), "--value", "n")
    return {
        "fit": lambda here: fit_of(data, here / "out.nc"),
        "select": lambda here: search_of(data, here / "out.nc"),
        "predict": lambda here: ["predict", fit, "--top", 500, "-o", here / "out.csv"],
        "score": lambda here: ["score", fit],
        "report": lambda here: ["report", fit, "-o", here / "out.html"],
        "plan": lambda here: ["plan", data, *index, "--cp", 3],
        "info": lambda here: ["info", data],
        "convert": lambda here: convert_of(data, here / "out.parquet"),
        "demo": lambda here: ["demo", here / "demo"],
    }


def _signalled(work: Work, number: signal.Signals, seconds: float, outside: Path) -> str:
    """The problem after a signal, sent this long after the command started; before that, Python itself handles it."""
    with folder() as inside:
        up = inside / "up"
        child = started(work(inside), outside / "said", before=f"open({str(up)!r}, 'w').close()")
        until = time.monotonic() + 20
        while not up.exists() and time.monotonic() < until:
            time.sleep(0.001)
        ended = child.kill_after(seconds, number)
        return ended.fault(INTERRUPTED, -number) or loads(inside / "out.nc")
