"""Factor arrays with version numbers: cached results can be matched, in this or another process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

A = TypeVar("A")

Version = int  # two factors with the same version have the same values, in any process


def _versions() -> Iterator[Version]:
    """Version numbers that are unique across processes."""
    first = int.from_bytes(os.urandom(8), "little") << 64
    return itertools.count(first)


_next_version = _versions()


def _after_fork() -> None:
    global _next_version
    _next_version = _versions()


if hasattr(os, "register_at_fork"):  # a forked child would reuse the versions of its parent
    os.register_at_fork(after_in_child=_after_fork)


class Versioned(Mapping[str, A], Generic[A]):
    """Factor arrays by name. Arrays are never changed in place: a new array gets a new version.

    >>> import numpy as np
    >>> old = Versioned({"A": np.ones(2), "B": np.ones(3)})
    >>> new = old.updated({"A": np.zeros(2)})
    >>> new.versions("B") == old.versions("B"), new.versions("A") == old.versions("A")
    (True, False)
    """

    __slots__ = ("_arrays", "_versions")

    def __init__(self, arrays: Mapping[str, A], versions: Mapping[str, Version] | None = None) -> None:
        self._arrays = dict(arrays)
        self._versions = dict(versions) if versions is not None else {name: next(_next_version) for name in arrays}

    @classmethod
    def of(cls, arrays: Mapping[str, A]) -> Versioned[A]:
        """The argument itself if it is versioned, else a copy with new versions."""
        return arrays if isinstance(arrays, Versioned) else cls(arrays)

    def updated(self, arrays: Mapping[str, A]) -> Versioned[A]:
        """A copy with some factors replaced."""
        new = Versioned.of(arrays)
        return Versioned({**self._arrays, **new._arrays}, {**self._versions, **new._versions})

    def versions(self, names: Iterable[str]) -> tuple[Version, ...]:
        """The versions of the named factors."""
        return tuple([self._versions[name] for name in names])

    def __getitem__(self, name: str) -> A:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"Versioned({', '.join(self._arrays)})"

    def __getstate__(self) -> Any:
        return self._arrays, self._versions

    def __setstate__(self, state: Any) -> None:
        self._arrays, self._versions = state
