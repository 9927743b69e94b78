"""Detect HDF5 files that read data from other files: links, external storage, virtual data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pltf.errors import PltfError


def refuse_outside(path: Path, file: Any) -> None:
    """Reject a file that would make us read another file: its sender may not be allowed to see that one.

    A soft link points to a name in the same file; it can leave the file only through an external link.

    >>> import h5py, io
    >>> with h5py.File(io.BytesIO(), "w") as file:
    ...     file["link"] = h5py.ExternalLink("other.nc", "/")
    ...     refuse_outside(Path("a.nc"), file)
    Traceback (most recent call last):
        ...
    pltf.errors.PltfError: a.nc takes 'link' from another file, which is unsupported: store it inside
    """
    import h5py

    def leads_out(name: bytes, link: Any) -> str | None:
        return None if link.type in (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT) else name.decode(errors="replace")

    def lies_out(name: str, one: Any) -> str | None:
        return name if isinstance(one, h5py.Dataset) and (one.is_virtual or one.external) else None

    name = file.id.links.visit(leads_out, info=True) or file.visititems(lies_out)
    if name is not None:
        raise PltfError(f"{path} takes {name!r} from another file, which is unsupported: store it inside")
