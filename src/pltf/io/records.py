"""Tables from rows of Python objects: workbooks, JSON and databases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pltf.errors import PltfError
from pltf.io.columns import refuse_absent
from pltf.io.word_columns import CELL
from pltf.memory import Allowance

if TYPE_CHECKING:
    import pandas as pd

_ROWS, _BATCH = 1 << 12, 1 << 16  # rows per block
_OBJECT = 64  # size of a Python object in bytes, without its characters


def as_table(
    path: Path,
    names: Sequence[str],
    rows: Iterable[Sequence[Any]],
    columns: Sequence[str] | None,
    allowance: Allowance,
    most: int | None = None,
) -> pd.DataFrame:
    """A table of the wanted columns; integers with missing values stay integers."""
    import pandas as pd

    refuse_absent(path, columns or (), names)
    wanted = [at for at, name in enumerate(names) if columns is None or name in columns][:most]
    held: list[list[Any]] = [[] for _ in wanted]
    rest = iter(rows)
    while block := list(islice(rest, _ROWS)):
        for one, at in zip(held, wanted, strict=True):
            new = [row[at] if at < len(row) else None for row in block]
            letters = sum(len(value) for value in new if isinstance(value, (str, bytes)))
            allowance.take((CELL + _OBJECT) * len(new) + letters)
            one += new
    table = pd.DataFrame({at: pd.Series(one, dtype=object).infer_objects() for at, one in enumerate(held)})
    table.columns = pd.Index([names[at] for at in wanted], dtype=object)
    return table


def in_batches(
    path: Path, names: Sequence[str], rows: Iterable[Sequence[Any]], columns: Sequence[str] | None, limit: float | None
) -> Iterator[pd.DataFrame]:
    """Tables of the wanted columns of some of the rows at a time."""
    rest = iter(rows)
    while block := list(islice(rest, _BATCH)):
        yield as_table(path, names, block, columns, Allowance(path, limit))


def plain_value(path: Path, value: Any, where: str, column: str) -> Any:
    """Check that a value is a word, a number, a date or missing."""
    if isinstance(value, (list, dict, tuple, bytes)):
        kind = {"list": "a list", "dict": "an object", "tuple": "a list", "bytes": "binary data"}[type(value).__name__]
        raise PltfError(f"{path}: {where} of column {column!r} has {kind}, but must be a word, a number or a date")
    return value
