"""Output of the commands: text for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pltf.terminal import printable


class Teller:
    """Tells people what came out, line by line, or machines, in one JSON object."""

    def __init__(self, as_json: bool, quiet: bool) -> None:
        self._json, self._quiet = as_json, quiet
        self.known: dict[str, Any] = {}
        self.saved: Path | None = None  # what is there already if a command is interrupted

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
            print(json.dumps(_plain(self.known), indent=2, allow_nan=False))

    @property
    def shown(self) -> bool:
        """Whether progress is to be shown."""
        return not self._quiet

    @property
    def talks(self) -> bool:
        """Whether the output is text for people."""
        return not (self._json or self._quiet)

    def say(self, name: str, text: str) -> None:
        """A line for people."""
        if self.talks:
            try:
                print(printable(f"{name:<12} {text}" if name else text), flush=True)
            except BrokenPipeError:  # whoever was reading has seen enough; the work goes on
                self._quiet = True

    def insist(self, text: str) -> None:
        """A note that is shown even to those who asked for quiet, where they can be: on stderr."""
        if sys.stderr is not None:
            with suppress(BrokenPipeError):
                print(f"pltf: note: {printable(text)}", file=sys.stderr)

    def know(self, **facts: Any) -> None:
        """Facts for machines."""
        self.known |= facts


def _plain(value: Any) -> Any:
    """What JSON can say: no NaN, no arrays, no labels that are dates."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value).removesuffix(" 00:00:00")


def human_bytes(size: int) -> str:
    """The size of a file.

    >>> human_bytes(512), human_bytes(91_000), human_bytes(4_900_000)
    ('512 B', '91.0 kB', '4.9 MB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"


def is_terminal() -> bool:
    """Whether people look at what is printed."""
    return sys.stdout is not None and sys.stdout.isatty()
