"""Results that hold as long as the same versions of the factors go in."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from copy import copy
from typing import Generic, Self, TypeVar

from pltf.engines.factors import Version
from pltf.gamma import Array

R = TypeVar("R")


class Memo(Generic[R]):
    """The last result of each key, with the versions of the factors that it was made from."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, tuple[tuple[Version, ...], R]] = {}

    def holds(self, key: Hashable, versions: tuple[Version, ...]) -> bool:
        """Whether the result of these versions is known."""
        entry = self._entries.get(key)
        return entry is not None and entry[0] == versions

    def known(self, key: Hashable, versions: tuple[Version, ...]) -> R | None:
        """The result of these versions, if it is known."""
        return self._entries[key][1] if self.holds(key, versions) else None

    def last(self, key: Hashable) -> tuple[tuple[Version, ...], R] | None:
        """The last result of a key and what it was made from, whatever that is now."""
        return self._entries.get(key)

    def get(self, key: Hashable, versions: tuple[Version, ...], make: Callable[[], R]) -> R:
        """The known result, or a new one."""
        if not self.holds(key, versions):
            self._entries[key] = (versions, make())
        return self._entries[key][1]


class Remembering:
    """An engine with a memo."""

    _memo: Memo[Array]

    def fresh(self) -> Self:
        """The same engine on the same data with nothing remembered, to be used beside this one."""
        twin = copy(self)
        twin._memo = Memo()
        return twin
