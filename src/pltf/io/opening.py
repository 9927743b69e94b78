"""Opening files: their first bytes, gzip or not, and one sentence for whatever goes wrong."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, cast

from pltf.errors import PltfError

_GZIP = b"\x1f\x8b"


def beginning(path: Path) -> bytes:
    """The first bytes of a file, unpacked."""
    if path.is_dir():
        raise PltfError(f"{path} is a folder, and a file is wanted")
    if path.exists() and not path.is_file():  # it could be read once only
        raise PltfError(f"{path} is no plain file: save what comes out of a pipe first")
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
    except PltfError:
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


def unpacked(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked if it is packed with gzip."""
    return cast("IO[bytes]", gzip.open(path)) if is_gzip(path) else path.open("rb")


def is_gzip(path: Path) -> bool:
    """Whether a file is packed with gzip, whatever its name says."""
    with path.open("rb") as file:
        return file.read(2) == _GZIP
