"""One file, several groups of arrays, and a text (JSON) that tells what they are."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.errors import PltfError

FORMAT = 1  # raised when older versions of pltf could not read what is written
_SIGN = "pltf"
_MARK = b"\x89HDF\r\n\x1a\n"
_DAMAGED = (OSError, KeyError, ValueError, TypeError, IndexError, AttributeError, RuntimeError, EOFError, OverflowError)
_ABOUT = "about.json"  # a dot: no index and no factor is called so
_PACKED = 1 << 16  # entries from which on an array is worth packing


@dataclass
class Box:
    """Arrays with the names of their axes, and everything else as plain numbers, texts, lists and dictionaries."""

    about: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    dims: dict[str, tuple[str, ...]] = field(default_factory=dict)
    coords: dict[str, Any] = field(default_factory=dict)  # labels along an axis, where it has some

    def put(self, name: str, array: NDArray[Any], dims: tuple[str, ...] | None = None) -> None:
        """Add an array."""
        self.arrays[name] = np.asarray(array)
        if dims is not None:
            self.dims[name] = dims

    def get(self, name: str, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
        """An array, of the shape that it must have."""
        array = self.arrays[name]
        if shape is not None and array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape} and not {shape}")
        return array


Boxes = dict[str, Box]


def write(path: Path, kind: str, boxes: Mapping[str, Box]) -> None:
    """Write a file under another name and rename it: whoever looks finds the old one or the new one, never a part.

    A process that is killed leaves a part behind, which the next one writes over.
    """
    with replacing(path) as part:
        _write(part, kind, boxes)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Another name to write to, which is then given the right one; nothing is left of it if that fails."""
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as reason:
        raise PltfError(f"{path} cannot be written: {reason.strerror or reason}") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _write(path: Path, kind: str, boxes: Mapping[str, Box]) -> None:
    import xarray as xr

    groups = {"/": xr.Dataset(attrs={"format": _SIGN, "format_version": FORMAT, "kind": kind})}
    for name, box in boxes.items():
        variables = {key: _variable(key, array, box.dims.get(key)) for key, array in box.arrays.items()}
        group = xr.Dataset(variables, coords=box.coords)
        group[_ABOUT] = xr.Variable((), json.dumps(box.about))
        groups["/" if name == "" else name] = group.assign_attrs(groups["/"].attrs if name == "" else {})
    tree = xr.DataTree.from_dict(groups)
    packing = {
        node.path: {
            key: {"zlib": True, "complevel": 1}
            for key, variable in node.to_dataset(inherit=False).data_vars.items()
            if variable.size >= _PACKED and variable.dtype.kind in "iub"
        }
        for node in tree.subtree
    }
    tree.to_netcdf(path, engine="h5netcdf", encoding={path: some for path, some in packing.items() if some})


def _variable(name: str, array: NDArray[Any], dims: tuple[str, ...] | None) -> Any:
    """An array as it lies in memory: sums over it then take the same order when it is read again."""
    import xarray as xr

    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    names = dims or tuple(f"{name}.{axis}" for axis in range(array.ndim))
    if order == list(range(array.ndim)) or not array.size:
        return xr.Variable(names, array)
    laid_out = array.transpose(order)
    return xr.Variable(tuple(names[axis] for axis in order), laid_out, {"axes": np.argsort(order).astype(np.int64)})


def read(path: Path) -> tuple[str, Boxes]:
    """The kind of a file and what is in it."""
    import xarray as xr

    refuse_foreign(path)
    with readable(path):
        tree = xr.open_datatree(path, engine="h5netcdf", decode_timedelta=False)
        with contextlib.closing(tree):
            kind = _checked_kind(path, tree.attrs)
            return kind, {node.path.strip("/"): _box(node.to_dataset(inherit=False)) for node in tree.subtree}


def refuse_foreign(path: Path) -> None:
    """Tell at once what is not even a file of the right kind."""
    try:
        with path.open("rb") as file:
            begin = file.read(len(_MARK))
    except FileNotFoundError:
        raise PltfError(f"there is no file {path}") from None
    except OSError as reason:
        raise PltfError(f"{path} cannot be read: {reason.strerror or reason}") from None
    if begin != _MARK:
        raise PltfError(f"{path} is not a file that pltf saved")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file makes of the readers into one sentence."""
    try:
        yield
    except PltfError:
        raise
    except _DAMAGED as reason:
        text = " ".join(str(reason).split())[:200]
        raise PltfError(f"{path} is damaged or was not saved by pltf: {text}") from None


def _checked_kind(path: Path, attrs: Mapping[Any, Any]) -> str:
    if attrs.get("format") != _SIGN:
        raise PltfError(f"{path} is not a file that pltf saved")
    version = int(attrs["format_version"])
    if version > FORMAT:
        raise PltfError(f"{path} has format {version}, and this pltf reads up to {FORMAT}: use a newer pltf")
    return str(attrs["kind"])


def _box(group: Any) -> Box:
    box = Box()
    for key, variable in group.variables.items():
        if key == _ABOUT:
            box.about = json.loads(str(variable.values.item()))
        elif key in group.coords:
            box.coords[key] = group.indexes[key]
        else:
            axes = variable.attrs.get("axes")
            order = range(variable.ndim) if axes is None else np.atleast_1d(axes).tolist()
            box.put(key, variable.values.transpose(order), tuple(str(variable.dims[axis]) for axis in order))
    return box
