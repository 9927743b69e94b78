"""Count the faults that were tried and survived."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np


@dataclass
class Tally:
    """Faults of one kind."""

    what: str
    tried: int = 0
    faults: list[str] = field(default_factory=list)
    why_not: str = ""  # nothing was tried

    def count(self, *faults: str) -> None:
        """Count one more, with its problem; "" if there is none."""
        self.tried += 1
        told = [one for one in faults if one]
        if told:
            self.faults.append("; ".join(told))

    @property
    def survived(self) -> int:
        """Number without problems."""
        return self.tried - len(self.faults)


@dataclass
class Bench:
    """What a part works with: random numbers, a folder, and its time limit."""

    rng: np.random.Generator
    seconds: float
    quick: bool

    def rounds(self, share: float = 1.0) -> Iterator[int]:
        """Numbers from 0 until a share of the time is over; at least one."""
        until, number = time.monotonic() + share * self.seconds, 0
        while number == 0 or time.monotonic() < until:
            yield number
            number += 1


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for one trial."""
    path = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
