"""Text for a terminal: what data hold cannot drive it."""

from __future__ import annotations

import re

# Control characters, line and paragraph separators, what turns the direction of writing, and halves of characters.
_DRIVING = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: object, keep: str = "\n\t") -> str:
    """Text in which characters that would drive a terminal are shown escaped, except those to ``keep``.

    Labels and names of columns come from files, perhaps of strangers.

    >>> print(printable("caf\\x1b[31mé"))
    caf\\x1b[31mé
    >>> printable("two\\nlines", keep="")
    'two\\\\nlines'
    """
    return _DRIVING.sub(lambda one: one[0] if one[0] in keep else one[0].encode("unicode_escape").decode(), str(text))
