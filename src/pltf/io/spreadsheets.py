"""Safe tables for spreadsheets, which treat text that begins with certain characters as a formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of text that spreadsheets evaluate
_QUOTE = "'"  # prefix that makes it text


def spreadsheet_safe(table: pd.DataFrame) -> pd.DataFrame:
    """Copy a table and prefix a ``'`` to text that a spreadsheet would treat as a formula.

    This applies to text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return, in cells and column
    names. Numbers are unchanged. Use it before ``to_csv`` if labels come from untrusted sources. The commands
    ``pltf predict`` and ``pltf convert`` have the option ``--spreadsheet-safe``.

    >>> import pandas as pd, pltf
    >>> answers = pd.DataFrame({"user": ["ann", "=1+2"], "mean": [0.5, -1.0]})
    >>> pltf.io.spreadsheet_safe(answers)
        user  mean
    0    ann   0.5
    1  '=1+2  -1.0
    """
    return with_text(table, lambda text: _QUOTE + text if text.startswith(FORMULA) else text)


def with_text(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """Copy a table and change all text in cells and column names."""

    def changed(value: Any) -> Any:
        return change(value) if isinstance(value, str) else value

    new = table.copy()
    for at, column in enumerate(_columns(table)):
        if _has_text(column):
            new.isetitem(at, column.astype(object).map(changed))
    return new.set_axis(list(map(changed, table.columns)), axis=1)


def formulas_in(table: pd.DataFrame) -> list[str]:
    """The distinct texts of a table that a spreadsheet would treat as formulas."""
    words = [word for column in _columns(table) if _has_text(column) for word in column.unique()]
    return [
        word for word in dict.fromkeys([*table.columns, *words]) if isinstance(word, str) and word.startswith(FORMULA)
    ]


def _columns(table: pd.DataFrame) -> list[pd.Series]:
    return [table.iloc[:, at] for at in range(table.shape[1])]  # names may be duplicated


def _has_text(column: pd.Series) -> bool:
    categories = getattr(column.dtype, "categories", None)
    return (column if categories is None else categories).dtype.kind not in "biufcmM"
