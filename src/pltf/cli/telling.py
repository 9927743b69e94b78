"""Output of the commands: text for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pltf.cli.main import told
from pltf.terminal import printable


class Teller:
    """Prints results as lines of text, or as one JSON object."""

    def __init__(self, as_json: bool, quiet: bool) -> None:
        self._json, self._quiet = as_json, quiet
        self.known: dict[str, Any] = {}
        self.saved: Path | None = None  # the output, once it is written

    def __enter__(self) -> Self:
        from pltf.inference.progress import Progress

        self._lines_every, Progress.lines_every = Progress.lines_every, 5.0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from pltf.inference.progress import Progress

        Progress.lines_every = self._lines_every
        if self._json and error is None:
            print(json.dumps(_for_json(self.known), indent=2, allow_nan=False))

    @property
    def shown(self) -> bool:
        """Whether to show progress."""
        return not self._quiet

    @property
    def talks(self) -> bool:
        """Whether the output is text."""
        return not (self._json or self._quiet)

    def say(self, name: str, text: str) -> None:
        """Print a line of text."""
        if self.talks:
            try:
                print(printable(f"{name:<12} {text}" if name else text), flush=True)
            except BrokenPipeError:  # the reader has gone; the work continues
                self._quiet = True

    def insist(self, text: str) -> None:
        """Print a note to stderr, even with --quiet."""
        told(f"note: {text}", 0)

    def know(self, **facts: Any) -> None:
        """Add facts to the JSON object."""
        self.known |= facts


def _for_json(value: Any) -> Any:
    """Values as JSON has them: no NaN, arrays or dates."""
    if isinstance(value, Mapping):
        return {str(name): _for_json(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_for_json(one) for one in value]
    if hasattr(value, "tolist"):
        return _for_json(value.tolist())
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value).removesuffix(" 00:00:00")


def plain(text: object) -> str:
    """Text of data on one line."""
    return printable(text, keep="")


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()
