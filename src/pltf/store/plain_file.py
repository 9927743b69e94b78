"""Regular files: they can be opened without blocking."""

from __future__ import annotations

import stat
from pathlib import Path

from pltf.errors import PltfError


def check_plain_file(path: Path) -> None:
    """Raise an error if the path is not a regular file.

    Opening a pipe could block forever, and it could be read only once.

    >>> check_plain_file(Path("no/such/file.nc"))
    Traceback (most recent call last):
        ...
    pltf.errors.PltfError: there is no file no/such/file.nc
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise PltfError(f"there is no file {path}") from None
    except OSError as reason:  # for example, a cycle of links
        raise PltfError(f"{path} cannot be read: {reason.strerror or reason}") from None
    if stat.S_ISDIR(mode):
        raise PltfError(f"{path} is a folder, not a file")
    if not stat.S_ISREG(mode):
        raise PltfError(f"{path} is not a regular file: save the output of a pipe to a file first")
