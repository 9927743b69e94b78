"""Cache for results that are valid as long as the factor versions do not change."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from copy import copy
from typing import Generic, Self, TypeVar

from pltf.engines.factors import Version
from pltf.gamma import Array

R = TypeVar("R")


class Memo(Generic[R]):
    """The last result for each key, with the factor versions from which it was computed."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, tuple[tuple[Version, ...], R]] = {}

    def holds(self, key: Hashable, versions: tuple[Version, ...]) -> bool:
        """Whether the result for these versions is cached."""
        entry = self._entries.get(key)
        return entry is not None and entry[0] == versions

    def last(self, key: Hashable) -> tuple[tuple[Version, ...], R] | None:
        """The last result for a key and its versions, even if they are outdated."""
        return self._entries.get(key)

    def get(self, key: Hashable, versions: tuple[Version, ...], make: Callable[[], R]) -> R:
        """The cached result, or a new one."""
        if not self.holds(key, versions):
            self._entries[key] = (versions, make())
        return self._entries[key][1]


class Remembering:
    """An engine with a cache."""

    _memo: Memo[Array]

    def fresh(self) -> Self:
        """A copy of this engine on the same data with an empty cache, which can be used at the same time."""
        twin = copy(self)
        twin._memo = Memo()
        return twin
