"""Limited systems: full disks, little memory, few processes, removed folders, containers."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.limits import few_processes, little_memory

import pltf
from faults.children import WORKERS_ARE_PROCESSES, command, forked, started
from faults.samples import convert_of, events, fit_of, left_over, loads, same, search_of
from faults.tally import Bench, Tally, folder

CANDIDATES = 4
_NEW_MOUNTS, _NEW_USER, _PRIVATE = 0x20000, 0x10000000, 0x44000
CONTAINER = ("unshare", "--map-root-user", "--pid", "--fork", "--mount-proc")


def tallies(bench: Bench) -> Iterator[Tally]:
    """All of them."""
    yield from _full_disk(bench, 0.25)
    if not bench.quick:  # the behaviour of libraries out of memory is not ours to promise
        yield _limited(bench, "memory", _memories(bench), little_memory, 0.3)
    yield _limited(bench, "processes", _numbers(), few_processes, 0.25)
    yield _vanishing(bench, 0.15)
    yield _containers(bench, 0.05)


# -- full disks ----------------------------------------------------------------------------


def _full_disk(bench: Bench, share: float) -> Iterator[Tally]:
    """A small disk in memory, visible only to this process and its children."""
    tally = Tally("disk full")
    with folder() as where:
        disk, found = where / "disk", where / "found"
        disk.mkdir()

        def within() -> int:
            try:
                _alone()
                _mount(b"tmpfs", os.fsencode(disk), b"tmpfs", 0, b"size=4096")
                _unmount(disk)
            except OSError as error:
                found.write_text(json.dumps([0, [], f"small disks cannot be had here ({error})"]))
                return 0
            for number in bench.rounds(share):
                _on_small_disk(bench, number, where, disk, tally)
                found.write_text(json.dumps([tally.tried, tally.faults, ""]))
            return 0

        ended = forked(within, where / "within").wait(share * bench.seconds + 300)
        if found.exists():
            tally.tried, tally.faults, tally.why_not = json.loads(found.read_text())
        if ended.code:
            tally.count(f"the trial itself failed: {ended.said[-500:]}")
    yield tally


def _alone() -> None:
    """Enter a private mount namespace, as root or in a user namespace."""
    libc, user, group = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()
    if libc.unshare(_NEW_MOUNTS | (_NEW_USER if user else 0)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _mount(b"none", b"/", None, _PRIVATE, None)


def _mount(what: bytes, where: bytes, kind: bytes | None, flags: int, options: bytes | None) -> None:
    if ctypes.CDLL(None, use_errno=True).mount(what, where, kind, flags, options):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _on_small_disk(bench: Bench, number: int, where: Path, disk: Path, tally: Tally) -> None:
    data, fit, said = events(where), where / "fit.nc", where / "said"
    if not fit.exists():
        command(*fit_of(data, fit), said=said).wait(60)
    middle = (data.stat().st_size + fit.stat().st_size) / 2
    size = max(4096, int(middle * bench.rng.lognormal(0, 1)))
    _mount(b"tmpfs", os.fsencode(disk), b"tmpfs", 0, f"size={size}".encode())
    out = disk / "out.nc"
    works: list[list[object]] = [
        fit_of(data, out),
        search_of(data, out),
        convert_of(data, disk / "out.parquet"),
        ["predict", fit, "--top", 2000, "-o", disk / "out.csv"],
        ["report", fit, "-o", disk / "out.html"],
    ]
    work = works[number % len(works)]
    ended = command(*work, said=said).wait(60)
    files = [one.name for one in disk.iterdir() if one.name != "kept.nc"]
    wrong = f"left {files} after exit code {ended.code}" if ended.code and files else ""
    tally.count(
        f"{work[0]}, {size} bytes: {fault}" if (fault := ended.fault(seconds=60)) else "",
        wrong,
        loads(out),
        left_over(disk),
    )
    _unmount(disk)


def _unmount(disk: Path) -> None:
    ctypes.CDLL(None).umount2(os.fsencode(disk), 2)  # even if it is in use


# -- little memory, few processes -------------------------------------------------------------------


def _memories(bench: Bench) -> Iterator[int]:
    while True:
        yield int(bench.rng.uniform(150e6, 2.5e9))


def _numbers() -> Iterator[int]:
    while True:
        yield from (0, 1, 2, 3, 5, 8, 12)


def _limited(
    bench: Bench, what: str, sizes: Iterator[int], limit: Callable[[int], Callable[[], None]], share: float
) -> Tally:
    tally = Tally(f"few {what}" if what == "processes" else f"little {what}")
    with folder() as outside:
        outside.chmod(0o777)
        data, said = events(outside), outside / "said"
        for number in bench.rounds(share):
            size, work = next(sizes), (fit_of, search_of)[number % 2]
            with folder() as inside:
                inside.chmod(0o777)
                out = inside / "out.nc"
                before = WORKERS_ARE_PROCESSES if number % 4 == 1 and what == "processes" else ""
                child = started(
                    work(data, out), said, before=before, limit=limit(size), env={"OPENBLAS_NUM_THREADS": "1"}
                )
                ended = child.wait(120)
                fault = ended.fault(seconds=120)
                tally.count(fault and f"{work(data, out)[0]} with {size}: {fault}", loads(out), left_over(inside))
    return tally


# -- removed folders, and containers that share one --------------------------------------------


def _vanishing(bench: Bench, share: float) -> Tally:
    tally = Tally("the shared folder of a search removed")
    for _ in bench.rounds(share):
        with folder() as inside:
            temporary, out = inside / "tmp", inside / "out.nc"
            temporary.mkdir()
            env = {"TMPDIR": str(temporary)}
            work = search_of(events(inside), out, "--max-iter", 400)
            child = started(work, inside / "said", before=WORKERS_ARE_PROCESSES, env=env)
            until = time.monotonic() + 60
            while not (held := list(temporary.glob("pltf-*"))) and time.monotonic() < until:
                time.sleep(0.002)
            time.sleep(bench.rng.uniform(0, 1.5))
            for one in held:
                shutil.rmtree(one, ignore_errors=True)
            ended = child.wait(120)
            tally.count(ended.fault(seconds=120), "" if held else "no folder was shared", _part_of_search(out))
    return tally


def _part_of_search(out: Path) -> str:
    if not out.exists():
        return ""
    found = pltf.load(out)
    assert isinstance(found, pltf.Selection)
    missing = CANDIDATES - len(found.outcomes)
    return f"{missing} candidates are missing" if missing else ""


def _containers(bench: Bench, share: float) -> Tally:
    tally = Tally("two containers with one temporary folder")
    with folder() as outside:
        if started(["--version"], outside / "said", under=CONTAINER).wait(60).code:
            tally.why_not = "containers cannot be had here (unshare)"
            return tally
        data, whole = events(outside), outside / "whole" / "out.nc"
        whole.parent.mkdir()
        command(*search_of(data, whole), said=outside / "said").wait(60)
        for _ in bench.rounds(share):
            with folder() as temporary:
                outs = [outside / name / "out.nc" for name in "ab"]
                children = []
                for out in outs:
                    out.parent.mkdir()
                    children.append(
                        started(
                            search_of(data, out),
                            out.with_name("said"),
                            before=WORKERS_ARE_PROCESSES,
                            under=CONTAINER,
                            env={"TMPDIR": str(temporary)},
                        )
                    )
                faults = [child.wait(120).fault(seconds=120) for child in children]
                tally.count(*faults, *(same(out, whole) for out in outs), left_over(temporary))
                for out in outs:
                    shutil.rmtree(out.parent)
    return tally
