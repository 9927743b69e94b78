"""Temporary files and folders, protected by a lock, so that leftovers of killed processes can be detected.

The system releases a lock when its owner ends for any reason. A process id would not work: in another container that
shares the folder, it belongs to another process, or to none.

Owners use a shared lock, because HDF5 locks files that it reads; the cleanup requests an exclusive lock.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

_fcntl: ModuleType | None
try:
    import fcntl as _fcntl
except ImportError:  # on Windows: without locks, nothing is considered stale or removed
    _fcntl = None

LOCK = "lock"  # the lock file of a folder
_RANDOM = "[0-9a-f]{16}"
_OPEN = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@contextmanager
def held_file(folder: Path, prefix: str, suffix: str) -> Iterator[Path]:
    """Create a file with a unique name, locked until the block ends; then removed, unless it was renamed."""
    sweep(folder, prefix, suffix)
    while True:
        path = _random(folder, prefix, suffix)
        with _held(path) as ours:
            if ours:
                try:
                    yield path
                finally:
                    remove(path)
                return


@contextmanager
def held_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Create a folder for this user only, locked until the block ends; then removed, perhaps by the next owner."""
    sweep(parent, prefix, "")
    while True:
        path = _random(parent, prefix, "")
        path.mkdir(mode=0o700)
        try:
            with _held(path / LOCK) as ours:
                if ours:
                    yield path
                    return
        finally:
            remove(path)


def sweep(folder: Path, prefix: str, suffix: str) -> None:
    """Remove files and folders with these names that no living process has locked."""
    pattern = re.compile(re.escape(prefix) + _RANDOM + re.escape(suffix))
    with suppress(OSError):
        for one in folder.iterdir():
            if pattern.fullmatch(one.name) and not one.is_symlink():
                with _abandoned(one / LOCK if one.is_dir() else one) as gone:
                    if gone:
                        remove(one)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its contents, if possible."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _random(folder: Path, prefix: str, suffix: str) -> Path:
    return folder / f"{prefix}{secrets.token_hex(8)}{suffix}"


@contextmanager
def _held(path: Path) -> Iterator[bool]:
    """Create a new file and lock it; False if another process removed it before it was locked."""
    handle = os.open(path, _OPEN | os.O_CREAT | os.O_EXCL, 0o666)
    if _fcntl is None:  # without locks, an open file cannot be renamed either
        os.close(handle)
        yield True
        return
    try:
        yield _locked(handle, alone=False) is not False and _is_at(handle, path)
    finally:
        os.close(handle)


@contextmanager
def _abandoned(path: Path) -> Iterator[bool]:
    """Whether a file exists, belongs to this user and is not locked; locked by this process in the block."""
    try:
        handle = os.open(path, _OPEN)
    except OSError:
        yield False
        return
    try:
        ours = not hasattr(os, "geteuid") or os.fstat(handle).st_uid == os.geteuid()
        yield ours and _locked(handle, alone=True) is True and _is_at(handle, path)
    finally:
        os.close(handle)


def _locked(handle: int, *, alone: bool) -> bool | None:
    """Lock an open file, exclusively if ``alone``; False if it is in use, None if the file system has no locks."""
    if _fcntl is None:
        return None
    try:
        _fcntl.flock(handle, (_fcntl.LOCK_EX if alone else _fcntl.LOCK_SH) | _fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path, follow_symlinks=False))
    except OSError:
        return False
