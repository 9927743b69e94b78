"""The folder of a store: made in a hidden one beside it, and renamed when it is whole."""

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
    """Where the store is to be, judged before any work."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text or Path(text).name in ("", "..") or text == ".":
        raise PltfError(f"{py:path} must be the name of a folder for the store, got {brief(path)}")
    target = Path(text)
    if os.path.lexists(target):
        _check_existing(target, overwrite)
    parent = target.parent
    if not parent.is_dir():
        raise PltfError(f"there is no folder {parent} to write {target.name} to")
    if not os.access(parent, os.W_OK):
        raise PltfError(f"the folder {parent} cannot be written to")
    return target


def _check_existing(target: Path, overwrite: bool) -> None:
    """Refuse to replace anything but a store, and that only if it is asked for."""
    if not overwrite:
        raise PltfError(f"{target} exists: {py:overwrite=True} replaces it")
    if target.is_symlink() or not target.is_dir() or not (target / ABOUT).is_file():
        raise PltfError(f"{target} exists and is not a cell store, so it is not replaced: choose another name")
    others = [one.name for one in target.iterdir() if not _OF_A_STORE.fullmatch(one.name)]
    if others:
        raise PltfError(f"{target} holds other files beside a cell store ({others[0]!r}), so it is not replaced")


@contextmanager
def new_store(target: Path) -> Iterator[tuple[Path, Path]]:
    """An empty folder for the store, and one for the work; at the end the first one becomes the target."""
    with held_folder(target.parent, f".{target.name}.") as hidden:
        store, work = hidden / "store", hidden / "work"
        store.mkdir()
        work.mkdir()
        try:
            yield store, work
        except OSError as reason:
            if reason.errno in (errno.ENOSPC, errno.EDQUOT):
                raise PltfError(f"the disk of {target.parent} is full: the work needs more space there") from None
            raise
        _renamed(store, target, hidden / "replaced")


def _renamed(store: Path, target: Path, aside: Path) -> None:
    """Give a finished store its name; one that has the name is put aside, and goes with the hidden folder."""
    if os.path.lexists(target):
        _check_existing(target, overwrite=True)  # it may have changed since
        target.rename(aside)
    try:
        store.rename(target)
    except OSError:
        if aside.exists():
            aside.rename(target)
        raise
    for folder in (target, target.parent):
        with suppress(OSError):  # what was renamed is on the disk, too; not every system can do this
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
