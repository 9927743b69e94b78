"""AnnData (.h5ad) and MuData (.h5mu) files: counts of cells x genes with their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pltf.data import observe
from pltf.data.forms import warn_of_layers
from pltf.data.sparse_parts import sparse_array
from pltf.errors import ObservationError, PltfError, py
from pltf.io.arrays import hdf5_size
from pltf.io.columns import in_words
from pltf.memory import Allowance
from pltf.store.container import texts
from pltf.store.foreign import refuse_outside

_SPARSE = {"csr_matrix": "csr", "csc_matrix": "csc"}


def read_annotated(path: Path, variable: str | None, allowance: Allowance) -> Any:
    """Read X or a layer, with the names of obs and var; for MuData, prefix the modality, as in rna/counts."""
    import h5py

    with h5py.File(path, "r") as file:
        refuse_outside(path, file)
        group, layer = _place(path, file, variable)
        layers = group.get("layers", {})
        names = [*(["X"] if "X" in group else []), *layers]
        chosen = layer or ("X" if "X" in names else None)
        if chosen is None or chosen not in names:
            came = "select one with" if chosen is None else f"got {chosen!r} for"
            raise PltfError(f"{path} has the layers {in_words(names) or 'none'}: {came} {py:variable=}")
        array = _matrix(path, group["X"] if chosen == "X" else layers[chosen], allowance)
        labels = {dim: _names(path, group[dim], allowance) for dim in ("obs", "var")}
    try:
        seen = observe(array, dims=("obs", "var"), labels=labels, name=path.name)
    except ObservationError as reason:
        advice = " (make them unique with .obs_names_make_unique())" if "duplicate label" in str(reason) else ""
        raise ObservationError(f"{reason.marked}{advice}") from None
    if layer is None:
        warn_of_layers(path.name, names[1:], f"{py:variable=}")
    return seen


def _place(path: Path, file: Any, variable: str | None) -> tuple[Any, str | None]:
    """The group of the modality, and the layer in it."""
    if "mod" not in file:
        return file, variable
    modality, _, layer = (variable or "").partition("/")
    names = list(file["mod"])
    if variable is None and len(names) == 1:
        modality = names[0]
    if modality not in names:
        came = f"got {variable!r}" if variable else f"select one with {py:variable=}"
        raise PltfError(f"{path} has the modalities {in_words(names)}: {came}")
    return file["mod"][modality], layer or None


def _matrix(path: Path, held: Any, allowance: Allowance) -> Any:
    if hasattr(held, "dtype"):
        _take(path, held, allowance)
        return np.asarray(held)
    format = _SPARSE.get(_text(held.attrs.get("encoding-type", "")))
    if format is None:
        raise PltfError(
            f"{path} must contain a dense or sparse matrix, got {_text(held.attrs.get('encoding-type', ''))!r}"
        )
    parts = {}
    for part in ("data", "indices", "indptr"):
        _take(path, held[part], allowance)
        parts[part] = np.asarray(held[part])
    return sparse_array(format, parts, tuple(map(int, held.attrs["shape"])), str(path))


def _take(path: Path, held: Any, allowance: Allowance) -> None:
    if held.dtype.kind not in "iufb":
        raise PltfError(f"{path} must contain numbers, got {held.dtype}")
    allowance.take(hdf5_size(held))


def _names(path: Path, frame: Any, allowance: Allowance) -> list[Any]:
    """The names of the rows or columns."""
    if hasattr(frame, "dtype"):
        raise PltfError(f"{path} was written by an old version of anndata: open and save it with a newer one")
    held = frame[_text(frame.attrs["_index"])]
    held = held if hasattr(held, "dtype") else held["values"]  # nullable strings
    if held.dtype.kind == "O":
        return list(texts(held, allowance))
    _take(path, held, allowance)
    return list(np.asarray(held).tolist())


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
