"""Available memory: of the machine, the container, and within the limits of the process."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pltf.errors import PltfError, py

SHARE = 0.5  # share of the available memory that reading a file may use: a fit needs memory, too
_GROUPS = Path("/sys/fs/cgroup")


def at_hand() -> float:
    """Bytes that this process can still allocate; infinite if unknown.

    >>> at_hand() > 0
    True
    """
    return max(min(_of_machine(), _of_container(), _of_process()), 0.0)


def memory_there_is() -> tuple[float, str]:
    """Bytes that this process can have in total, infinite if unknown, and words for what limits them.

    >>> memory_there_is()[0] > 0
    True
    """
    machine = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) if hasattr(os, "sysconf") else math.inf
    limit = limited()
    return (machine, "this machine has") if machine <= limit else (limit, "the limit of this process is")


def limited() -> float:
    """Bytes that the limits of the container and of ``ulimit`` allow this process in total; infinite without limits."""
    left = math.inf
    for group, names in _control_groups():
        with suppress(OSError, ValueError):  # no such group, or "max"
            left = min(left, float((group / names[0]).read_text()))
    with suppress(ImportError, OSError, ValueError):
        import resource

        most = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
        left = min([left, *(float(one) for one in most if one != resource.RLIM_INFINITY)])
    return left


def _of_machine() -> float:
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024.0 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    with suppress(OSError, ValueError, AttributeError):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return math.inf


def _of_container() -> float:
    """Bytes left in the control groups of this process (Linux); cached files do not count, they are freed on demand."""
    left = math.inf
    for group, (most, used, cached) in _control_groups():
        with suppress(OSError, ValueError):  # no such group, or "max"
            limit, taken = (int((group / name).read_text()) for name in (most, used))
            counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            left = min(left, float(limit - taken + int(counts.get(cached, 0))))
    return left


def _control_groups() -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """The control groups of this process, from inner to outer, and their files: limit, usage, and cached bytes."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, inner = line.split(":", 2)
        if kinds == "":
            root, names = _GROUPS, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in kinds.split(","):
            root, names = _GROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        folder = root / inner.lstrip("/")
        yield from ((group, names) for group in (folder, *folder.parents) if group.is_relative_to(root))


def _of_process() -> float:
    """Bytes left by ``ulimit``."""
    left = math.inf
    with suppress(ImportError, OSError, ValueError):
        import resource

        pages = Path("/proc/self/statm").read_text().split()
        for kind, taken in ((resource.RLIMIT_AS, pages[0]), (resource.RLIMIT_DATA, pages[5])):
            most = resource.getrlimit(kind)[0]
            if most != resource.RLIM_INFINITY:
                left = min(left, float(most - int(taken) * resource.getpagesize()))
    return left


_M_ARENA_MAX = -8  # parameter of mallopt, in glibc


def save_address_space() -> None:
    """Where address space is limited (``ulimit -v``), keep glibc from reserving 64 MB of it per thread."""
    with suppress(ImportError, OSError, AttributeError):  # on systems without such limits, or another C library
        import resource

        if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


class Allowance:
    """The memory that reading a file may use: readers request memory before they allocate it.

    >>> allowance = Allowance("events.csv.gz", 1e9)
    >>> allowance.take(6e8)
    >>> allowance.take(6e8)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    pltf.errors.PltfError: events.csv.gz would take more than 1.0 GB of memory to read: raise this with limit=, or ...
    """

    def __init__(self, path: str | os.PathLike[str], limit: float | None = None) -> None:
        """``limit`` is in bytes; None means a share of the available memory."""
        self._path = path
        self._why = "" if limit is not None else f", {SHARE:.0%} of the free memory"
        self.limit = SHARE * at_hand() if limit is None else checked_limit(limit)
        self.taken = 0.0

    @property
    def left(self) -> float:
        """Bytes that can still be requested."""
        return self.limit - self.taken

    def take(self, size: float) -> None:
        """Request memory; raises an error if it exceeds the limit."""
        self.taken += size
        if self.taken > self.limit:
            self.refuse()

    def refuse(self) -> None:
        """Raise the error for exceeding the limit."""
        most = f"{self.limit / 1e9:.1f} GB" if self.limit >= 1e9 else f"{self.limit / 1e6:.1f} MB"
        raise PltfError(
            f"{self._path} would take more than {most} of memory to read{self._why}: raise this with {py:limit=}, "
            f"or write a cell store with {py:pltf.prepare}"
        )


def checked_limit(limit: object) -> float:
    """A positive number of bytes, or a clear error."""
    number = isinstance(limit, (int, float)) and not isinstance(limit, bool)
    if not number or not limit > 0:  # type: ignore[operator]
        raise PltfError(f"{py:limit} must be a number of bytes above 0, got {limit!r}")
    return float(limit)  # type: ignore[arg-type]
