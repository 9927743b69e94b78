"""Results that hold as long as the very same arrays go in (arrays are never changed in place)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from copy import copy
from typing import Self

from pltf.gamma import Array


class Memo:
    """The last result of each key, with the arrays that it was made from."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, tuple[tuple[Array, ...], Array]] = {}

    def holds(self, key: Hashable, inputs: tuple[Array, ...]) -> bool:
        """Whether the result of these very arrays is known."""
        entry = self._entries.get(key)
        return entry is not None and all(a is b for a, b in zip(entry[0], inputs, strict=True))

    def known(self, key: Hashable, inputs: tuple[Array, ...]) -> Array | None:
        """The result of these very arrays, if it is known."""
        return self._entries[key][1] if self.holds(key, inputs) else None

    def get(self, key: Hashable, inputs: tuple[Array, ...], make: Callable[[], Array]) -> Array:
        """The known result, or a new one."""
        if not self.holds(key, inputs):
            self._entries[key] = (inputs, make())
        return self._entries[key][1]


class Remembering:
    """An engine with a memo."""

    _memo: Memo

    def fresh(self) -> Self:
        """The same engine on the same data with nothing remembered, to be used beside this one."""
        twin = copy(self)
        twin._memo = Memo()
        return twin
