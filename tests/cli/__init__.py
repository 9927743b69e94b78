"""The command line: through the installed script, and in this process where many runs are needed."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pltf.cli.main import run

SCRIPT = Path(sys.executable).with_name("pltf")


@dataclass(frozen=True)
class Outcome:
    """What a command said, and the code it left with."""

    code: int
    out: str
    err: str

    @property
    def refusal(self) -> str:
        """The one sentence of a command that was refused."""
        assert self.code == 2, self
        assert self.err.startswith("pltf: "), self
        assert self.err.count("\n") == 1, self
        return self.err.strip().removeprefix("pltf: ")


def script(*arguments: object, cwd: Path | None = None) -> Outcome:
    """Run the installed script."""
    command = [str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert "Traceback" not in done.stderr, done.stderr
    return Outcome(done.returncode, done.stdout, done.stderr)


def here(*arguments: object) -> Outcome:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(map(str, arguments)))
    return Outcome(code, out.getvalue(), err.getvalue())
