"""Suggestions at the end of error messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

_WIDE = 12  # with this many columns, a table without the expected ones is probably wide


def meant(word: Any, known: Iterable[Any]) -> str | None:
    """The known word closest to ``word``, or None.

    >>> meant("plcae", ["user", "place"]), meant("User", ["user", "place"]), meant("colour", ["user", "place"])
    ('place', 'user', None)
    """
    from difflib import get_close_matches

    alike = {str(one).casefold().strip(): str(one) for one in known}
    text = str(word).casefold().strip()
    near = [text] if text in alike else get_close_matches(text, alike, 1)
    return alike[near[0]] if near else None


def suggestion(word: Any, known: Iterable[Any]) -> str:
    """A "did you mean" suggestion to append to a message; "" if no known word is close.

    >>> suggestion("plcae", ["user", "place"]), suggestion("colour", ["user", "place"])
    ("; did you mean 'place'?", '')
    >>> suggestion("User", ["user", "place"])
    "; did you mean 'user'? Names are case-sensitive"
    """
    near = meant(word, known)
    if near is None:
        return ""
    case = str(word).casefold() == near.casefold() and str(word) != near
    return f"; did you mean {near!r}?{' Names are case-sensitive' if case else ''}"


def absent_column(name: Any, names: Sequence[Any]) -> str:
    """A suggestion to append to a message about a missing column: a typo, a separator or a wide table.

    >>> absent_column("usr", ["user", "place"])
    "; did you mean 'user'?"
    >>> absent_column("user;place", ["user", "place"])
    '; separate columns with commas: user,place'
    >>> absent_column("user", ["user place n"])
    "; are its fields separated by ' '? Use commas, semicolons, tabs or |"
    >>> absent_column("month", ["user", *map(str, range(2000, 2020))])
    '; it looks like a wide table, with a column for each label: use --wide, or make it long'
    """
    known, text = list(map(str, names)), str(name)
    pieces = re.split(r"\s*[;|/+&]\s*|\s+", text)
    if len(pieces) > 1 and set(pieces) <= set(known):
        return f"; separate columns with commas: {','.join(pieces)}"
    if len(known) == 1 and (found := re.search(r"[^\w\"'.-]", known[0].strip())):
        return f"; are its fields separated by {found[0]!r}? Use commas, semicolons, tabs or |"
    near = suggestion(text, known)
    if near or len(known) < _WIDE:
        return near
    return "; it looks like a wide table, with a column for each label: use --wide, or make it long"
