"""Data files that are not included in the package: read from a folder or cache, or downloaded; always verified."""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from pltf.errors import PltfError

FOLDER = "PLTF_DATA"  # environment variable with the name of a data folder

_TIMEOUT = 30.0  # seconds without a response
_LONGEST = 1 << 26  # bytes; longer files are cut, and then fail the checksum


@dataclass(frozen=True)
class Remote:
    """A remote file and its expected checksum."""

    name: str
    url: str
    sha256: str


def contents(file: Remote) -> bytes:
    """Contents of a file: from the folder in PLTF_DATA, from the cache, or downloaded."""
    folders = _folders()
    for folder in folders:
        path = folder / file.name
        content = _read(path)
        if content is not None:
            _check(content, file, str(path), "replace the file, or remove it to download it again")
            return content
    content = _download(file, folders)
    _keep(content, folders[-1] / file.name)
    return content


def _folders() -> list[Path]:
    """Folders to search, in this order; the last one is the cache folder of the current user."""
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
        advice = f"make it readable, or set the environment variable {FOLDER} to another folder"
        raise PltfError(f"{path} cannot be read ({reason.strerror}): {advice}") from None


def _check(content: bytes, file: Remote, where: str, advice: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise PltfError(f"{where} must have the SHA-256 {file.sha256}, but it has {found}: {advice}")


def _download(file: Remote, searched: list[Path]) -> bytes:
    advice = f"put {file.name} into a folder and set the environment variable {FOLDER} to this folder"
    try:
        with urllib.request.urlopen(file.url, timeout=_TIMEOUT) as answer:
            content: bytes = answer.read(_LONGEST)
    except (OSError, HTTPException) as reason:
        places = " or ".join(map(str, searched))
        why = f"could not be downloaded from {file.url} ({str(reason).strip('<>') or type(reason).__name__})"
        raise PltfError(f"{file.name} is not in {places} and {why}: {advice}") from None
    _check(content, file, f"the download from {file.url}", advice)
    return content


def _keep(content: bytes, path: Path) -> None:
    """Write a file atomically."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="fetching-") as folder:
            part = Path(folder, path.name)
            part.write_bytes(content)
            part.replace(path)
    except OSError as reason:
        advice = "set XDG_CACHE_HOME to a writable folder"
        raise PltfError(f"{path} cannot be written ({reason.strerror}): {advice}") from None
