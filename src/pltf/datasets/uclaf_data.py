"""UCLAF: users, locations and activities, from GPS trajectories with comments."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import scipy.io
from numpy.typing import NDArray

from pltf.datasets.fetch import Remote, contents
from pltf.errors import PltfError, choice
from pltf.gamma import Array

FILE = Remote(
    name="aaai10.uclaf.data.mat",
    url="http://www.cse.ust.hk/~vincentz/aaai10.uclaf.data.mat",
    sha256="4b07264d192710b5e74d8b33206cbc4d4cd426a676965e76fcbb3f78619a20dc",
)
KINDS = ("binary", "counts")
USERS = ("active", "all")

_SHAPES = {
    "UserLocAct": (164, 168, 5),
    "UserLoc": (164, 168),
    "LocFea": (168, 14),
    "ActAct": (5, 5),
    "UserUser": (164, 164),
}
_ACTIVITIES = ("Food and Drink", "Shopping", "Movies and Shows", "Sports and Exercise", "Tourism and Amusement")


@dataclass(frozen=True, eq=False, repr=False)
class Uclaf:
    """The UCLAF data: a tensor of visits, and side information on users, locations and activities.

    ``dims`` names the indices of every array, ``labels`` the positions along every index. The file has no labels:
    users and locations are numbered by their row, activities are named in the order given by the authors.

    >>> from pltf.datasets import Uclaf
    >>> Uclaf.dims["X"], Uclaf.dims["LocFea"]
    (('user', 'location', 'activity'), ('location', 'feature'))
    """

    dims: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType(
        {
            "X": ("user", "location", "activity"),
            "UserLoc": ("user", "location"),
            "LocFea": ("location", "feature"),
            "ActAct": ("activity", "activity"),
            "UserUser": ("user", "user"),
        }
    )

    X: NDArray[np.int64]  # how often a user did an activity at a location, or whether
    UserLoc: NDArray[np.int64]  # how often a user visited a location
    LocFea: Array  # features of locations; the first column is the location number, not a feature
    ActAct: Array  # similarity of activities
    UserUser: Array  # similarity of users, from -1 to 1
    labels: Mapping[str, tuple[Any, ...]]  # index -> labels of its positions

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {'x'.join(map(str, getattr(self, name).shape))}" for name in self.dims)
        return f"<Uclaf: {sizes}>"


def uclaf(kind: str = "binary", *, users: str = "active") -> Uclaf:
    """The UCLAF data: 164 users, 168 locations in Beijing, 5 activities (Zheng, Cao, Zheng, Xie and Yang, AAAI 2010).

    ``kind="binary"`` tells whether a user did an activity at a location, ``"counts"`` how often. 18 users have no
    recorded activity; ``users="all"`` keeps them, in the tensor and in the matrices.

    The matrices are as in the file, and two of them need care before they can be coupled to the tensor:

    - ``LocFea``: the first column, ``'location'``, is the row number, 0 to 167, and not a feature. It makes up
      99.9 % of the total of the matrix: use ``data.LocFea[:, 1:]``. Eight of the other 13 columns are all zero.
    - ``UserUser``: 5,918 of the 21,316 entries of the active users are -1, but a fit requires non-negative values.
      Treat them as missing: ``np.where(data.UserUser < 0, np.nan, data.UserUser)``.

    The file ``aaai10.uclaf.data.mat`` is read from the folder in the environment variable ``PLTF_DATA``, or from the
    user cache (``pltf`` in ``$XDG_CACHE_HOME`` or ``~/.cache``). Otherwise it is downloaded from its authors to that
    cache, if their address is still valid. Its checksum is always verified.

    >>> import pltf, pltf.datasets
    >>> def links(rank):
    ...     data = pltf.datasets.uclaf()
    ...     return pltf.cp(data.dims["X"], rank=rank).fit(data.X, mask=pltf.holdout(data.X, 0.4))
    >>> pltf.datasets.uclaf("ratings")
    Traceback (most recent call last):
        ...
    pltf.errors.PltfError: kind must be one of 'binary', 'counts'; got 'ratings'
    """
    choice("kind", kind, KINDS)
    choice("users", users, USERS)
    held = _arrays(contents(FILE))
    visits = held["UserLocAct"]
    kept = np.arange(len(visits)) if users == "all" else np.flatnonzero(visits.any(axis=(1, 2)))
    X = visits > 0 if kind == "binary" else visits
    return Uclaf(
        X=_plain(X[kept], np.int64),
        UserLoc=_plain(held["UserLoc"][kept], np.int64),
        LocFea=_plain(held["LocFea"], np.float64),
        ActAct=_plain(held["ActAct"], np.float64),
        UserUser=_plain(held["UserUser"][np.ix_(kept, kept)], np.float64),
        labels={
            "user": tuple(kept.tolist()),
            "location": tuple(range(visits.shape[1])),
            "activity": _ACTIVITIES,
            "feature": ("location", *(f"feature {n}" for n in range(1, held["LocFea"].shape[1]))),
        },
    )


def _arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """Arrays of the file: only numeric arrays are accepted, so loading it cannot run code."""
    held = scipy.io.loadmat(io.BytesIO(content), variable_names=tuple(_SHAPES))
    for name, shape in _SHAPES.items():
        array = held.get(name)
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "iuf" or array.shape != shape:
            came = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            raise PltfError(f"{FILE.name}: {name} must be numbers of shape {shape}, got {came}")
    return {name: held[name] for name in _SHAPES}


def _plain(array: NDArray[Any], dtype: Any) -> NDArray[Any]:
    return np.ascontiguousarray(array, dtype=dtype)
