"""Collections of Dask as cell stores of this process: in a temporary folder, and gone when nobody has them any more."""

from __future__ import annotations

import math
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pltf.data.part_files import FilePart
from pltf.data.stored import StoredObservation, open_store
from pltf.data.tables import warn_of_unused
from pltf.errors import ObservationError, py, py_only
from pltf.io.prepare.run import prepare
from pltf.stale_files import held_folder

_PREFIX = "pltf-cells-"  # of temporary folders


def stored_collection(data: Any, mask: Any, indices: Sequence[str], name: str) -> StoredObservation:
    """The cells of a dask.dataframe or a dask.array, as :func:`pltf.observe` takes tables and arrays in memory."""
    import dask

    if mask is not None:
        raise ObservationError(f"{name}: {py:mask} does not go with a collection of Dask: missing cells are NaN there")
    is_table = hasattr(data, "partitions") and hasattr(data, "columns")
    if not is_table and not hasattr(data, "chunks"):
        advice = f"a dask.dataframe or a dask.array{py_only:; others can be prepared with pltf.prepare}"
        raise ObservationError(f"{name} must be {advice}, got {type(data).__name__}")
    if not is_table and math.isnan(math.prod(data.shape)):
        raise ObservationError(f"{name} has chunks of unknown sizes: call compute_chunk_sizes() first")
    if is_table:
        advice = f"to use a column of values, write a cell store with {py:pltf.prepare} and {py:value=}"
        warn_of_unused([column for column in data.columns if column not in indices], name, advice)
    with ExitStack() as stack:
        parent = Path(dask.config.get("temporary-directory", None) or tempfile.gettempdir())
        path = stack.enter_context(held_folder(parent, _PREFIX)) / "cells.pltf"
        prepare(data, path, dims=list(indices), progress=False, name=name)
        seen = open_store(path)
        _keep(stack.pop_all(), [part.file for part in seen.parts if isinstance(part, FilePart)])
    return seen


def _keep(stack: ExitStack, files: Sequence[Any]) -> None:
    """Keep a folder until all objects that stand for its files are gone, or the process ends."""
    left = set(range(len(files)))

    def one_less(number: int) -> None:
        left.discard(number)
        if not left:
            stack.close()

    for number, file in enumerate(files):
        weakref.finalize(file, one_less, number)
