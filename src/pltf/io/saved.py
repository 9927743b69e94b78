"""Load saved results."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pltf.errors import PltfError, py
from pltf.fit import Fit
from pltf.io.opening import beginning
from pltf.selection.checkpoint import UNFINISHED as SEARCH_UNFINISHED
from pltf.selection.result import Selection
from pltf.selection.saved import SEARCH, search_from
from pltf.store.checkpoint import UNFINISHED as FIT_UNFINISHED
from pltf.store.container import Boxes, read, readable
from pltf.store.fits import FIT, as_path, fit_from

_READERS: dict[str, Callable[[Boxes], Fit | Selection]] = {FIT: fit_from, SEARCH: search_from}


def load(path: str | os.PathLike[str], *, limit: float | None = None) -> Fit | Selection:
    """Load a fit or a search from a file.

    Loading never runs code from the file, so files from untrusted sources are safe. Files written by older versions of
    pltf can be read. A file that needs more than ``limit`` bytes of memory raises an error (default: half of the free
    memory).

    >>> import numpy as np, pltf, tempfile, os
    >>> fit = pltf.nmf(rank=2).fit(np.diag([1, 2, 3, 4]))
    >>> path = os.path.join(tempfile.mkdtemp(), "run.nc")
    >>> fit.save(path)
    >>> again = pltf.load(path)
    >>> again.bound == fit.bound, bool((again.mean() == fit.mean()).all())
    (True, True)
    """
    where = as_path(path)
    kind, boxes = read(where, limit)
    if kind in (FIT_UNFINISHED, SEARCH_UNFINISHED):
        raise PltfError(f"{where} is a {kind} that has not ended: continue it with {py:resume=True}")
    with readable(where):
        return _READERS[kind](boxes)


def is_saved(path: Path) -> bool:
    """Whether a file is a fit or a search saved by pltf."""
    if not beginning(path).startswith(b"\x89HDF"):
        return False
    import h5py

    try:
        with h5py.File(path, "r") as file:
            return bool(file.attrs.get("format") == "pltf")
    except Exception:  # damaged files raise many types of error
        raise PltfError(f"{path} is damaged: it begins like a netCDF file, but cannot be opened as one") from None
