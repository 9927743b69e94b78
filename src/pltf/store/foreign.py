"""Files from others: what is refused before they are read."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

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


def refuse_outside(path: Path, file: Any) -> None:
    """Reject an HDF5 file that would make us read another file: its sender may not be allowed to see that one.

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
