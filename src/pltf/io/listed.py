"""Lists of cells, and the FROSTT text format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data import Observation, observe
from pltf.data.numeric import brief
from pltf.errors import PltfError
from pltf.io.opening import Lines, opened
from pltf.io.reading import Reading
from pltf.io.word_columns import Rows, WordColumn, as_numbers, word_columns
from pltf.memory import Allowance

_ROWS = 1 << 10  # lines read at a time


@dataclass(frozen=True, eq=False)
class ListedFile:
    """Listed cells: one row of positions per value, and the sizes of the tensor."""

    coords: NDArray[Any]
    values: NDArray[Any]
    shape: tuple[int, ...]

    def observed(self, **how: Any) -> Observation:
        """The cells as :func:`pltf.observe` reads them."""
        return observe((self.coords, self.values), shape=self.shape, **how)


def read_tns(path: Path, reading: Reading, allowance: Allowance) -> Any:
    """Read FROSTT: one line per cell with its positions, counted from 1, and its value."""
    with opened(path, reading.encoding) as file:
        lines = enumerate(single_lines(Lines(file, allowance)), 1)
        shape, first = tns_head(lines)
        width = len(first[1]) if first is not None else len(shape or ()) + 1
        if width < 2:
            raise PltfError(f"{path} must have at least one position and a value on each line")
        *places, values = word_columns(_tns_rows(path, lines, first, width), range(width), allowance)
    coords = np.stack([_positions(path, column) for column in places], axis=1)
    if not len(coords) and shape is None:
        raise PltfError(f"{path} lists no cells")
    if shape is not None and len(shape) != width - 1:
        raise PltfError(f"{path} has {width - 1} positions per line, but {len(shape)} sizes in its header")
    sizes = shape or tuple(int(last) for last in coords.max(axis=0))
    return ListedFile(coords - 1, as_numbers(values), sizes)


def _tns_rows(path: Path, lines: Iterator[tuple[int, str]], first: Any, width: int) -> Iterator[Rows]:
    """Split lines of cells into words."""
    told = ((number, _words(line)) for number, line in lines)
    rows = ((number, words) for number, words in chain([first] if first else [], told) if words)
    while block := list(islice(rows, _ROWS)):
        for number, words in block:
            if len(words) != width:
                raise PltfError(f"{path}: line {number} has {len(words)} numbers, but the first line has {width}")
        yield [words for _, words in block]


def single_lines(lines: Lines) -> Iterator[str]:
    """Lines that each hold one row."""
    for line in lines:
        lines.row_ended()
        yield line


def line_of_cell(path: Path, reading: Reading, row: int) -> int:
    """The line number of a cell, counted from 1."""
    with opened(path, reading.encoding) as file:
        lines = enumerate(file, 1)
        _, first = tns_head(lines)
        rest = (number for number, line in lines if _words(line))
        numbers = chain([] if first is None else [first[0]], rest)
        return next(islice(numbers, row, None))


def _words(line: str) -> list[str]:
    return line.split("#", 1)[0].split()


def _positions(path: Path, column: WordColumn) -> NDArray[np.int64]:
    for word in column.words:
        if not re.fullmatch(r"[1-9][0-9]{0,17}", word):
            raise PltfError(
                f"{path} is read as .tns, a line for each cell, and must have positions from 1 on, whole numbers below "
                f"10**18; got {brief(word)}: write other lists as CSV, with a header"
            )
    return np.array(column.words, dtype=np.int64)[column.codes]


def tns_head(lines: Iterator[tuple[int, str]]) -> tuple[tuple[int, ...] | None, tuple[int, list[str]] | None]:
    """The sizes, if the file begins with them, and the first line of cells.

    pltf writes sizes in a comment; other programs write two lines, the number of modes and the sizes.
    """
    shape, modes = None, list[str]()
    for number, line in lines:
        words = _words(line)
        if line.startswith("# sizes "):
            shape = _sizes(line.split()[2:])
        elif len(words) == 1 and shape is None and not modes:
            modes = words
        elif words and modes and shape is None:
            if not _sizes(words) or modes != [str(len(words))]:
                return None, (number, modes)  # a line with a single number is not a cell
            shape = _sizes(words)
        elif words:
            return shape, (number, words)
    return shape, None


def _sizes(words: list[str]) -> tuple[int, ...] | None:
    whole = all(word.isdecimal() and len(word) < 19 for word in words)
    return tuple(map(int, words)) if words and whole else None
