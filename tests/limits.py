"""Commands under limits of the system, in processes of their own."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_DROP, _SYS_ADMIN, _SYS_RESOURCE = 24, 21, 24  # PR_CAPBSET_DROP, and capabilities that know no limits
_USERS = range(54321, 64321)  # with no other process


def few_processes(spare: int) -> Callable[[], None]:
    """What a child process does first, to have no more than so many threads and processes beside its first thread."""
    import resource

    others = 0 if os.getuid() == 0 else _threads_of(os.getuid())
    libc, somebody = ctypes.CDLL(None), _USERS[os.getpid() % len(_USERS)]  # tests that run beside this one have others

    def limit() -> None:
        if os.getuid() == 0:  # no limit holds for root: be somebody else, who may read what root may
            for capability in (_SYS_ADMIN, _SYS_RESOURCE):
                libc.prctl(_DROP, capability, 0, 0, 0)
            os.setresuid(somebody, 0, 0)
        resource.setrlimit(resource.RLIMIT_NPROC, (others + 1 + spare,) * 2)

    return limit


def little_memory(size: int) -> Callable[[], None]:
    """What a child process does first, to have no more than so many bytes of address space."""
    import resource

    return lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size))


def run_limited(command: Sequence[str], limit: Callable[[], None], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command under a limit, and not for ever; BLAS has one thread."""
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        command, preexec_fn=limit, env=env, capture_output=True, text=True, timeout=200, check=False, **options
    )


def _threads_of(user: int) -> int:
    """Threads of all processes of a user."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            count += len(os.listdir(process / "task")) if process.stat().st_uid == user else 0
        except OSError:
            continue
    return count
