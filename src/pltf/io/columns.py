"""Column names: checks for missing names, and lists of names for messages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from pltf.errors import ObservationError
from pltf.hints import absent_column

_NAMELESS = re.compile(r"|Unnamed: [0-9]+|__index_level_[0-9]+__")  # index columns written by other programs


def refuse_absent(source: object, wanted: Sequence[str], names: Sequence[str]) -> None:
    """Raise an error for a missing or duplicate column."""
    times = Counter(names)
    for name in wanted:
        if not times[name]:
            held = f"it has {in_words(names)}{absent_column(name, names)}"
            raise ObservationError(f"{source} has no column {name!r}; {held}")
        if times[name] > 1:
            raise ObservationError(f"{source} has several columns {name!r}: rename them")


def chosen_columns(source: object, wanted: Sequence[str] | None, names: Sequence[str]) -> list[int]:
    """Positions of the wanted columns, or of all; raises an error for a missing or duplicate one.

    >>> chosen_columns("events.csv", ["n", "user"], ["user", "place", "n"])
    [0, 2]
    """
    refuse_absent(source, wanted or (), names)
    return [at for at, name in enumerate(names) if wanted is None or name in wanted]


def in_words(names: Sequence[str]) -> str:
    """List the names of columns, shortened if there are many.

    >>> in_words(["user", "", "n"])
    "user, '', n"
    """
    few = [name or repr(name) for name in map(str, names[:20])]
    return ", ".join(few) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def is_nameless(column: str) -> bool:
    """Whether a column has no name; such a column usually numbers the rows.

    >>> is_nameless(""), is_nameless("__index_level_0__"), is_nameless("count")
    (True, True, False)
    """
    return _NAMELESS.fullmatch(column) is not None
