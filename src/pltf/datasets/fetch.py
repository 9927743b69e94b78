"""Files that are not shipped: found in a folder or a cache, else downloaded; checked wherever they come from."""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from pltf.errors import PltfError

FOLDER = "PLTF_DATA"  # the environment variable that names a folder with data

_TIMEOUT = 30.0  # seconds without an answer
_LONGEST = 1 << 26  # bytes; what is longer is cut there, and then the checksum is wrong


@dataclass(frozen=True)
class Remote:
    """A file that others keep, and the one content that is accepted for it."""

    name: str
    url: str
    sha256: str


def contents(file: Remote) -> bytes:
    """The bytes of a file: from the folder that PLTF_DATA names, from the cache, or from the network."""
    folders = _folders()
    for folder in folders:
        path = folder / file.name
        content = _read(path)
        if content is not None:
            _check(content, file, str(path), "replace that file, or remove it to have it fetched")
            return content
    content = _download(file, folders)
    _keep(content, folders[-1] / file.name)
    return content


def _folders() -> list[Path]:
    """Where to look, in this order; the last is the folder for pltf among the caches of this user."""
    named = os.environ.get(FOLDER)
    caches = (os.environ.get(variable, "") for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"))
    base = next(filter(os.path.isabs, caches), os.path.expanduser("~/.cache"))
    return [*([Path(os.path.expanduser(named))] if named else []), Path(base, "pltf")]


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as reason:
        advice = f"make it readable, or name another folder in the environment variable {FOLDER}"
        raise PltfError(f"{path} cannot be read ({reason.strerror}): {advice}") from None


def _check(content: bytes, file: Remote, where: str, advice: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise PltfError(f"{where} must have the SHA-256 {file.sha256}, but it has {found}: {advice}")


def _download(file: Remote, searched: list[Path]) -> bytes:
    advice = f"put {file.name} into a folder and name the folder in the environment variable {FOLDER}"
    try:
        with urllib.request.urlopen(file.url, timeout=_TIMEOUT) as answer:
            content: bytes = answer.read(_LONGEST)
    except (OSError, HTTPException) as reason:
        places = " or ".join(map(str, searched))
        why = f"could not be fetched from {file.url} ({str(reason).strip('<>') or type(reason).__name__})"
        raise PltfError(f"{file.name} is not in {places} and {why}: {advice}") from None
    _check(content, file, f"what came from {file.url}", advice)
    return content


def _keep(content: bytes, path: Path) -> None:
    """Write a file so that nobody ever sees a part of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="fetching-") as folder:
            part = Path(folder, path.name)
            part.write_bytes(content)
            part.replace(path)
    except OSError as reason:
        advice = "set XDG_CACHE_HOME to a folder that can be written to"
        raise PltfError(f"{path} cannot be written ({reason.strerror}): {advice}") from None
