"""Run programs of this package in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT = 900  # seconds that a process may take


class Failed(Exception):
    """A program failed; the message says why."""


def python(module: str, *arguments: str, source: Path | None = None) -> str:
    """The output of a module of this package; optionally with the pltf in another source folder."""
    command = [sys.executable, "-m", module, *arguments]
    env = None if source is None else {**os.environ, "PYTHONPATH": str(source)}
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT, check=True)
    except subprocess.TimeoutExpired:
        raise Failed(f"no result in {LIMIT} s") from None
    except subprocess.CalledProcessError as error:
        raise Failed(_reason(error)) from None
    return done.stdout


def last_line(said: str) -> str:
    """The last line that a program printed: its result."""
    lines = said.splitlines()
    if not lines:
        raise Failed("printed no result")
    return lines[-1]


def _reason(error: subprocess.CalledProcessError) -> str:
    if error.returncode < 0:
        return f"ended by signal {-error.returncode}"
    return str((error.stderr.strip().splitlines() or [f"exit status {error.returncode}"])[-1])
