"""Opening files: their first bytes, gzip or not, and one sentence for whatever goes wrong."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, cast

from pltf.errors import PltfError
from pltf.memory import Allowance
from pltf.store.plain_file import check_plain_file

_GZIP = b"\x1f\x8b"
_FIELD = 64  # bytes that a field of a line takes, which has at least one character


def beginning(path: Path) -> bytes:
    """The first bytes of a file, unpacked."""
    check_plain_file(path)
    with readable(path, "data"):
        with path.open("rb") as file:
            begin = file.read(1024)
        if not begin:
            raise PltfError(f"{path} is empty")
        if begin.startswith(_GZIP):
            with gzip.open(path) as unpacked:
                begin = unpacked.read(1024)
        return begin


@contextmanager
def readable(path: Path, kind: str) -> Iterator[None]:
    """Turn what readers make of a file that is not there, not whole or not what it seems into one sentence."""
    try:
        yield
    except (PltfError, MemoryError):  # the file may be all right
        raise
    except FileNotFoundError:
        raise PltfError(f"there is no file {path}") from None
    except ImportError as reason:
        if "failed to map segment" in str(reason):  # it is there, and too large for the memory that is left
            raise MemoryError(str(reason)) from reason
        package = (reason.name or "another package").split(".")[0]
        raise PltfError(f"{path} needs {package} to be read: pip install 'pltf[io]'") from None
    except UnicodeDecodeError as reason:
        raise PltfError(f"{path} must be text in UTF-8, and it is not") from reason
    except Exception as reason:  # a file may be broken in any way
        text = str(getattr(reason, "strerror", None) or reason)
        if "allow_pickle" in text:
            raise PltfError(f"{path} holds Python objects, which are not loaded: save numbers") from reason
        text = " ".join(text.split())[:200] or type(reason).__name__
        raise PltfError(f"{path} cannot be read as {kind}: {text}") from reason


@contextmanager
def opened(path: Path) -> Iterator[TextIOWrapper]:
    """A text in UTF-8, unpacked, with its line ends as they are."""
    with unpacked(path) as file, TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        yield text


class Lines:
    """The lines of a text, and how many characters were read since the last whole row.

    A line, or a row that goes on over several, is never longer than its fields may be: a packed file can be one line.
    """

    def __init__(self, file: TextIOWrapper, allowance: Allowance) -> None:
        self._file, self._allowance = file, allowance
        self._longest = int(min(allowance.left / _FIELD, 2**62))
        self._pending = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._file.readline(self._longest + 1)
        if not line:
            raise StopIteration
        self._pending += len(line)
        if self._pending > self._longest:
            self._allowance.refuse()
        return line

    def row_ended(self) -> int:
        """The characters of the row that has ended."""
        size, self._pending = self._pending, 0
        return size


def unpacked(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked if it is packed with gzip."""
    return cast("IO[bytes]", gzip.open(path)) if is_gzip(path) else path.open("rb")


def is_gzip(path: Path) -> bool:
    """Whether a file is packed with gzip, whatever its name says."""
    with path.open("rb") as file:
        return file.read(2) == _GZIP
