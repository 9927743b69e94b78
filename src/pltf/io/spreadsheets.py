"""Safe tables for spreadsheets, which treat text that begins with certain characters as a formula."""

from __future__ import annotations

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
    safe = table.copy()
    for at, column in enumerate(_columns(table)):
        if _has_text(column):
            safe.isetitem(at, column.astype(object).map(_quoted))
    return safe.set_axis([_quoted(name) for name in table.columns], axis=1)


def formulas_in(table: pd.DataFrame) -> list[str]:
    """The distinct texts of a table that a spreadsheet would treat as formulas."""
    words = [word for column in _columns(table) if _has_text(column) for word in column.unique()]
    return list(dict.fromkeys(word for word in [*table.columns, *words] if _is_formula(word)))


def _columns(table: pd.DataFrame) -> list[pd.Series]:
    return [table.iloc[:, at] for at in range(table.shape[1])]  # names may be duplicated


def _has_text(column: pd.Series) -> bool:
    categories = getattr(column.dtype, "categories", None)
    return (column if categories is None else categories).dtype.kind not in "biufcmM"


def _is_formula(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(FORMULA)


def _quoted(value: Any) -> Any:
    return _QUOTE + value if _is_formula(value) else value
