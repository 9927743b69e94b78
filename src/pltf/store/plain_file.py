"""Files that can be opened without waiting for anybody."""

from __future__ import annotations

import stat
from pathlib import Path

from pltf.errors import PltfError


def check_plain_file(path: Path) -> None:
    """Refuse, in one sentence, what is no plain file.

    A pipe would be waited for without end, and could be read once only.

    >>> check_plain_file(Path("no/such/file.nc"))
    Traceback (most recent call last):
        ...
    pltf.errors.PltfError: there is no file no/such/file.nc
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise PltfError(f"there is no file {path}") from None
    except OSError as reason:  # a loop of links, for example
        raise PltfError(f"{path} cannot be read: {reason.strerror or reason}") from None
    if stat.S_ISDIR(mode):
        raise PltfError(f"{path} is a folder, and a file is wanted")
    if not stat.S_ISREG(mode):
        raise PltfError(f"{path} is no plain file: save what comes out of a pipe first")
