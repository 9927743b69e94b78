"""SIGKILL at random times: files stay valid, and resumed work has an identical result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pltf
from faults.children import WORKERS_ARE_PROCESSES, Child, command, forked, started
from faults.samples import convert_of, done, events, fit_of, left_over, loads, same, search_of
from faults.tally import Bench, Tally, folder
from pltf.cli.main import run

SUFFIXES = (".nc", ".npz", ".parquet", ".tns.gz", ".csv")


def tallies(bench: Bench) -> Iterator[Tally]:
    """Fits, searches, saving and conversion of files."""
    yield _resumed(bench, "fit", fit_of, _forked, 0.25)
    yield _resumed(bench, "search with threads", search_of, _forked, 0.25)
    yield _resumed(bench, "search with processes", search_of, _with_processes, 0.25)
    yield _saving(bench, 0.1)
    yield _converting(bench, 0.15)


def _forked(arguments: list[object], said: Path) -> Child:
    return command(*arguments, said=said)


def _with_processes(arguments: list[object], said: Path) -> Child:
    return started(arguments, said, before=WORKERS_ARE_PROCESSES)


def _resumed(
    bench: Bench,
    what: str,
    work: Callable[..., list[object]],
    start: Callable[[list[object], Path], Child],
    share: float,
) -> Tally:
    tally = Tally(f"killed: {what}")
    with folder() as outside:
        data, whole = events(outside), outside / "whole.nc"
        began = time.monotonic()
        start(work(data, whole), outside / "said").wait(60)
        usual = time.monotonic() - began
        for _ in bench.rounds(share):
            with folder() as inside:
                out, said = inside / "out.nc", outside / "said"
                start(work(data, out), said).kill_after(bench.rng.uniform(0, 1.1 * usual))
                before = loads(out)
                ended = start(work(data, out), said).wait(60)
                wrong = same(out, whole) if ended.code == 0 else "it was not resumed"
                tally.count(before, ended.fault(seconds=60), wrong, left_over(inside))
    return tally


def _saving(bench: Bench, share: float) -> Tally:
    tally = Tally("killed: a fit that is saved over another")
    with folder() as outside:
        fits = [outside / "1.nc", outside / "2.nc"]
        for seed, path in enumerate(fits):
            done(*fit_of(events(outside), path, "--seed", seed))
            (outside / "kept.nc").unlink()
        saved = [pltf.load(path) for path in fits]
        for _ in bench.rounds(share):
            with folder() as inside:
                path = inside / "fit.nc"
                saved[0].save(path)

                def save_for_ever(path: Path = path) -> None:
                    while True:
                        for one in saved:
                            one.save(path)

                forked(save_for_ever, outside / "said").kill_after(bench.rng.uniform(0, 0.1))
                fault = "" if "" in (same(path, one) for one in fits) else same(path, fits[0])
                saved[0].save(path)  # which removes what the other left behind
                tally.count(fault, left_over(inside))
    return tally


def _converting(bench: Bench, share: float) -> Tally:
    tally = Tally("killed: a file that is converted")
    with folder() as outside:
        data, said = events(outside), outside / "said"
        whole = {}
        for suffix in SUFFIXES:
            done(*convert_of(data, outside / f"whole{suffix}"))
            whole[suffix] = _told(outside / f"whole{suffix}", said)
        for number in bench.rounds(share):
            suffix = SUFFIXES[number % len(SUFFIXES)]
            with folder() as inside:
                out = inside / f"whole{suffix}"
                command(*convert_of(data, out), said=said).kill_after(bench.rng.uniform(0, 0.08))
                fault = "" if not out.exists() or _told(out, said) == whole[suffix] else f"half a {suffix}"
                again = run([str(one) for one in convert_of(data, out, "--force")])
                tally.count(fault, f"exit code {again}" if again else "", left_over(inside))
    return tally


def _told(path: Path, said: Path) -> str:
    """The output of `info` for a file, without its path."""
    return command("info", path, "--json", said=said).wait().said.replace(str(path), "")
