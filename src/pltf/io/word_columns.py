"""Convert columns of words to labels or numbers."""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pltf.data.labels import warn_of_merged
from pltf.data.numeric import EXACT
from pltf.errors import PltfError
from pltf.memory import Allowance

if TYPE_CHECKING:
    import pandas as pd

NO_VALUE = frozenset(("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>", "-"))
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")  # labels that convert to integers without loss
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?inf(?:inity)?", re.IGNORECASE | re.ASCII)
TRUTH = {"true": 1, "false": 0}
_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}")  # ambiguous, such as 6.200
_WHOLE_PART = r"[0-9]{{1,3}}(?:[{other}'’ \u00a0\u202f][0-9]{{3}})+|[0-9]+|(?=[{decimal}])"  # grouped or not
# For each decimal sign: the sign of the number, its integer part, decimals and exponent.
_LOCAL = {
    decimal: re.compile(
        rf"([+-]?)({_WHOLE_PART.format(decimal=decimal, other=other)})([{decimal}][0-9]*)?([eE][+-]?[0-9]+)?"
    )
    for decimal, other in ((",", "."), (".", ","))
}

# Peak bytes between a table of words and an observation: per field, and per word without its characters.
CELL, WORD = 32, 150

Rows = list[list[str]]  # of words


class WordColumn(NamedTuple):
    """A column of words: the distinct words, and the code of each row."""

    words: list[str]
    codes: NDArray[np.int32] | NDArray[np.int64]


def word_columns(rows: Iterator[Rows], wanted: Sequence[int], allowance: Allowance) -> list[WordColumn]:
    """Collect the wanted columns of rows."""
    words: list[defaultdict[str, int]] = [defaultdict(count().__next__) for _ in wanted]
    codes = [array("q") for _ in wanted]
    for block in rows:
        allowance.take(CELL * len(block) * len(wanted))
        held = list(zip(*block, strict=True))
        for known, places, at in zip(words, codes, wanted, strict=True):
            before = len(known)
            places.extend(map(known.__getitem__, held[at]))
            new = len(known) - before
            if new:
                allowance.take(WORD * new + sum(map(len, islice(reversed(known), new))))
    return [WordColumn(list(known), np.asarray(places)) for known, places in zip(words, codes, strict=True)]


def as_labels(column: WordColumn, path: Path, name: str, *, keep_blanks: bool = False) -> pd.Categorical:
    """Sorted labels, as integers if all are plain whole numbers. Empty fields are missing."""
    import pandas as pd

    column = column if keep_blanks else _stripped(column, f"{path}: column {name!r}")
    words = column.words
    if any("\x00" in word for word in words):
        raise PltfError(f"{path} must be text, but it contains NUL characters")
    given = [at for at, word in enumerate(words) if word]
    whole = bool(given) and all(_WHOLE.fullmatch(words[at]) for at in given)
    names: Sequence[Any] = [int(word or 0) for word in words] if whole else words
    order = sorted(given, key=names.__getitem__)
    places = np.full(len(words), -1)
    places[order] = np.arange(len(order))
    categories = pd.Index([names[at] for at in order], dtype=np.int64 if whole else object)
    return pd.Categorical.from_codes(places[column.codes], categories=categories)


def _stripped(column: WordColumn, what: str) -> WordColumn:
    """Strip leading and trailing blanks from a column; warns if this merges labels."""
    plain = list(map(str.strip, column.words))
    if plain == column.words:
        return column
    given = [at for at, word in enumerate(plain) if word]
    warn_of_merged([column.words[at] for at in given], [plain[at] for at in given], what)
    known: defaultdict[str, int] = defaultdict(count().__next__)
    places = np.fromiter(map(known.__getitem__, plain), dtype=np.int64, count=len(plain))
    return WordColumn(list(known), places[column.codes])


def as_numbers(column: WordColumn, decimal: str | None = None) -> NDArray[Any]:
    """Convert a column to numbers if all fields are numbers or empty, otherwise keep the words."""
    plain = _plain_numbers(column.words) if decimal is None else None
    if plain is not None:
        return plain[column.codes]
    numbers: list[Any] = [number_in(word, decimal) for word in column.words]
    if None in numbers:
        return np.array(column.words, dtype=object)[column.codes]
    whole = [one for one in numbers if isinstance(one, int)]
    mixed = len(whole) < len(numbers)
    beyond = max(map(abs, whole), default=0) > (EXACT if mixed else 2**63 - 1)  # keep them exact; checked later
    return np.array(numbers, dtype=object if beyond else None if numbers else float)[column.codes]


def _plain_numbers(words: list[str]) -> NDArray[Any] | None:
    """Convert simple numbers (digits, points, negative exponents) in one pass; None for others or large integers.

    For these characters, ``float`` and ``number_in`` agree; a column may have a million distinct numbers.
    """
    text = "".join(words)
    if text.encode().translate(None, b"0123456789.e-") or text.count("-") != text.count("e-"):
        return None
    whole = [len(word) for word in words if word.isdecimal()]
    if not words or max(whole, default=0) > 15:
        return None
    kind = np.int64 if len(whole) == len(words) else np.float64
    try:
        return np.fromiter(map(int if kind is np.int64 else float, words), dtype=kind, count=len(words))
    except ValueError:  # 1.2.3, or empty
        return None


def number_in(word: str, decimal: str | None = None) -> int | float | None:
    """Parse a word as a number; NaN if it is empty, None if it is not a number.

    With ``decimal``, the decimal sign, thousands separators are allowed.

    >>> number_in("12"), number_in("0.1"), number_in("NA"), number_in("12 kg")
    (12, 0.1, nan, None)
    >>> number_in("6.200,5", ","), number_in("6.200", ","), number_in("6.200", "."), number_in("6.2", ",")
    (6200.5, 6200, 6.2, None)
    """
    plain = word.strip()
    if decimal is not None:
        plain = _with_point(plain, decimal)
    if _NUMBER.fullmatch(plain):
        digits = plain.lstrip("+-")
        return int(plain) if digits.isdecimal() and len(digits) < 4000 else float(plain)
    return float("nan") if plain in NO_VALUE else TRUTH.get(plain.lower())


def _with_point(word: str, decimal: str) -> str:
    """Rewrite a number with a decimal point and without separators; other words are never read as numbers."""
    found = _LOCAL[decimal].fullmatch(word)
    if found is None:
        return f"{word} " if _NUMBER.fullmatch(word) and "inf" not in word.lower() else word
    sign, whole, decimals, exponent = found.groups(default="")
    return sign + re.sub("[^0-9]", "", whole) + decimals.replace(",", ".") + exponent


def ambiguous_number(words: Sequence[str]) -> str | None:
    """The first number such as 6.200 if its point may be a decimal point or a thousands separator.

    >>> ambiguous_number(["7", "6.200"]), ambiguous_number(["0.250", "6.200"])
    ('6.200', None)
    """
    points = [word for word in words if "." in word]
    grouped = [word for word in points if _GROUPED.fullmatch(word.strip())]
    others = (word for word in points if not _GROUPED.fullmatch(word.strip()))
    return grouped[0] if grouped and all(number_in(word) is None for word in others) else None
