"""The folder of a store: written to a hidden folder beside it, and renamed when complete."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pltf.data.numeric import brief
from pltf.data.part_files import ABOUT, MISSING
from pltf.errors import PltfError, py
from pltf.stale_files import held_folder

_OF_A_STORE = re.compile(rf"{re.escape(ABOUT)}|{re.escape(MISSING)}|part-[0-9]+\.arrow|labels-[0-9]+\.arrow")


def checked_target(path: Any, overwrite: bool) -> Path:
    """Check the path of the store before any work."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text or Path(text).name in ("", "..") or text == ".":
        raise PltfError(f"{py:path} must be a folder name for the store, got {brief(path)}")
    target = Path(text)
    if os.path.lexists(target):
        _check_existing(target, overwrite)
    parent = target.parent
    try:
        os.lstat(parent / f".{target.name}.{'0' * 16}")  # the hidden folder
    except OSError as reason:
        if reason.errno == errno.ENAMETOOLONG:
            raise PltfError(f"{py:path} must be a shorter folder name, got {brief(text)}") from None
    if not parent.is_dir():
        raise PltfError(f"there is no folder {parent} to write {target.name} to")
    if not os.access(parent, os.W_OK):
        raise PltfError(f"the folder {parent} cannot be written to")
    return target


def _check_existing(target: Path, overwrite: bool) -> None:
    """Refuse to replace anything but a store, and a store only with ``overwrite``."""
    if not overwrite:
        raise PltfError(f"{target} exists: pass {py:overwrite=True} to replace it")
    if target.is_symlink() or not target.is_dir() or not (target / ABOUT).is_file():
        raise PltfError(f"{target} exists and is not a cell store, so it is not replaced: choose another name")
    others = [one.name for one in target.iterdir() if not _OF_A_STORE.fullmatch(one.name)]
    if others:
        raise PltfError(f"{target} contains other files besides a cell store ({others[0]!r}), so it is not replaced")


@contextmanager
def new_store(target: Path, overwrite: bool) -> Iterator[tuple[Path, Path]]:
    """Yield an empty folder for the store and one for temporary files; at the end rename the first to the target."""
    with held_folder(target.parent, f".{target.name}.") as hidden:
        store, work = hidden / "store", hidden / "work"
        store.mkdir()
        work.mkdir()
        try:
            yield store, work
        except OSError as reason:
            if reason.errno in (errno.ENOSPC, errno.EDQUOT):
                raise PltfError(f"the disk of {target.parent} is full: sorting needs more space there") from None
            raise
        _renamed(store, target, hidden / "replaced", overwrite)


def _renamed(store: Path, target: Path, aside: Path, overwrite: bool) -> None:
    """Rename a finished store; a store that has the name already is moved to the hidden folder, which is deleted."""
    try:
        if os.path.lexists(target):
            _check_existing(target, overwrite)  # another process may have written it meanwhile
            target.rename(aside)
        store.rename(target)
    except OSError as reason:  # or it does so at the same moment
        if aside.exists():
            with suppress(OSError):
                aside.rename(target)
        raise PltfError(f"{target} cannot be written: {reason.strerror}") from None
    for folder in (target, target.parent):
        with suppress(OSError):  # make the rename durable, where the system can
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
