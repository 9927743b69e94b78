"""Tables from rows of Python objects: workbooks, JSON and databases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pltf.errors import PltfError
from pltf.io.word_columns import CELL
from pltf.memory import Allowance

if TYPE_CHECKING:
    import pandas as pd

_ROWS, _BATCH = 1 << 12, 1 << 16  # rows per block
_OBJECT = 64  # size of a Python object in bytes, without its characters


def as_table(
    names: Sequence[str], rows: Iterable[Sequence[Any]], allowance: Allowance, most: int | None = None
) -> pd.DataFrame:
    """A table of these columns, at most ``most`` of them; integers with missing values stay integers."""
    import pandas as pd

    held: list[list[Any]] = [[] for _ in names[:most]]
    rest = iter(rows)
    while block := list(islice(rest, _ROWS)):
        for at, one in enumerate(held):
            new = [row[at] for row in block]
            letters = sum(len(value) for value in new if isinstance(value, (str, bytes)))
            allowance.take((CELL + _OBJECT) * len(new) + letters)
            one += new
    table = pd.DataFrame({at: pd.Series(one, dtype=object).infer_objects() for at, one in enumerate(held)})
    table.columns = pd.Index(names[:most], dtype=object)
    return table


def in_batches(
    path: Path, names: Sequence[str], rows: Iterable[Sequence[Any]], limit: float | None
) -> Iterator[pd.DataFrame]:
    """Tables of some of the rows at a time."""
    rest = iter(rows)
    while block := list(islice(rest, _BATCH)):
        yield as_table(names, block, Allowance(path, limit))


def plain_value(path: Path, value: Any, where: str, column: str) -> Any:
    """Check that a value is a word, a number, a date or missing."""
    if isinstance(value, (list, dict, tuple, bytes)):
        kind = {"list": "a list", "dict": "an object", "tuple": "a list", "bytes": "binary data"}[type(value).__name__]
        raise PltfError(f"{path}: {where} of column {column!r} has {kind}, but must be a word, a number or a date")
    return value
