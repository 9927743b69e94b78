"""Results from files."""

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
    """A fit, or a search, from the file that it was saved in.

    Loading runs no code of the file, whoever it comes from. Files of older versions of pltf can be read.
    A file that would take more than ``limit`` bytes of memory is refused; by default, more than half of what is free.

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
        raise PltfError(f"{where} is a {kind} that has not ended: go on with {py:resume=True}")
    with readable(where):
        return _READERS[kind](boxes)


def is_saved(path: Path) -> bool:
    """Whether a file was saved by pltf, as a fit or a search."""
    if not beginning(path).startswith(b"\x89HDF"):
        return False
    import h5py

    try:
        with h5py.File(path, "r") as file:
            return bool(file.attrs.get("format") == "pltf")
    except Exception:  # it may be broken in any way
        raise PltfError(f"{path} is damaged: it begins as a netCDF file does, and cannot be opened as one") from None
