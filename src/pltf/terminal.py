"""Safe text for a terminal: data cannot send control sequences."""

from __future__ import annotations

import re

# Control characters, line and paragraph separators, bidirectional controls, and surrogates.
_DRIVING = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: object, keep: str = "\n\t") -> str:
    """Escape the characters that control a terminal, except those in ``keep``.

    Labels and column names come from files, possibly untrusted ones.

    >>> print(printable("caf\\x1b[31mé"))
    caf\\x1b[31mé
    >>> printable("two\\nlines", keep="")
    'two\\\\nlines'
    """
    return _DRIVING.sub(lambda one: one[0] if one[0] in keep else one[0].encode("unicode_escape").decode(), str(text))
