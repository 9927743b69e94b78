"""Files that carry the number of the process that works on them: what is left of a killed one can be told."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path


def sweep(folder: Path, pattern: str) -> None:
    """Remove what processes that are no more have left; the first group of the pattern is the number of the process."""
    with suppress(OSError):
        for one in folder.iterdir():
            match = re.fullmatch(pattern, one.name)
            if match is not None and not _living(int(match[1])):
                remove(one)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, if that can be done."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _living(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is somebody else's
        return True
    return True
