"""Inputs that are not plain files: standard input, and databases given by URL."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pltf.errors import PltfError
from pltf.io.databases import is_url, without_password
from pltf.memory import Allowance

_Plain: Any = type(Path())
_FILES = ("sqlite", "duckdb")  # URLs of files that are read without SQLAlchemy
_BLOCK = 1 << 20
_PIPED = "standard input"


class ShownPath(_Plain):  # type: ignore[misc]
    """A path with another name in messages."""

    shown: str
    url: str | None

    @classmethod
    def called(cls, shown: str, path: Path, url: str | None = None) -> ShownPath:
        """A path with its name for messages, and its URL if it is a database."""
        source = cls(path)
        source.shown, source.url = shown, url
        return source

    def __str__(self) -> str:
        return str(getattr(self, "shown", super().__str__()))

    def __fspath__(self) -> str:
        return str(super().__str__())

    @property
    def name(self) -> str:
        """The name used in messages."""
        return str(getattr(self, "shown", super().name))


def name_on_the_command_line(file: Path) -> str:
    """The name of a file on the command line: ``-`` for standard input."""
    return "-" if str(file) == _PIPED else str(file)


def database_url(text: str) -> Path | None:
    """The database at a URL, or None if the text is not a URL."""
    if not is_url(text):
        return None
    scheme, _, rest = text.partition("://")
    if scheme in _FILES and rest.startswith("/") and rest != "/":
        return Path(rest[1:])
    if scheme in ("http", "https", "ftp", "s3", "gs", "file"):
        raise PltfError(f"{without_password(text)} cannot be read over the network: download it first")
    return ShownPath.called(without_password(text), Path("no-file"), url=text)


@contextmanager
def standard_input(limit: float | None) -> Iterator[Path]:
    """Copy standard input to a temporary file, which is deleted at the end."""
    if sys.stdin is None or sys.stdin.isatty():
        raise PltfError("- means standard input, but nothing is piped into it")
    allowance = Allowance(_PIPED, limit)
    with tempfile.TemporaryDirectory(prefix="pltf-") as folder:
        path = Path(folder) / "input"
        with path.open("wb") as file:
            while block := sys.stdin.buffer.read(_BLOCK):
                allowance.take(len(block))
                file.write(block)
        yield ShownPath.called(_PIPED, path)
