"""Fast parsing of delimited text with pyarrow, if it is certain to find the same fields as the strict parser."""

from __future__ import annotations

import csv
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pltf.io.opening import unpacked
from pltf.io.word_columns import CELL, WordColumn
from pltf.memory import Allowance
from pltf.threads import available_threads, startable_threads

_BLOCK = 1 << 20  # bytes read at a time
_ARROW_THREADS = 8  # extra threads besides one per core
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'


class _UnsureError(Exception):
    """pyarrow may parse this text differently from the strict parser, or fail."""


def arrow_columns(
    path: Path,
    width: int,
    wanted: Sequence[int],
    separator: str,
    allowance: Allowance,
    encoding: str | None = None,
) -> list[WordColumn] | None:
    """Read the wanted columns of a table with ``width`` columns, or return None if the strict parser is needed.

    The strict parser is needed if pyarrow is not installed, if pyarrow could not start its threads and would abort the
    process, if the text is malformed, or if the two parsers may differ: line endings of ``\\r`` alone, line breaks
    inside quotes, quotes inside an unquoted field, NUL, and very long lines.
    Types are not inferred: fields stay text, and an empty field is an empty string.
    """
    threads = _ARROW_THREADS + available_threads()
    if not wanted or startable_threads(threads) < threads:
        return None
    try:
        import pyarrow as pa
    except ImportError:
        return None
    parts: list[list[Any]] = [[] for _ in wanted]
    before = allowance.taken
    try:
        with unpacked(path, encoding) as file:
            for block in _rows_of(file, ord(separator)):
                table = _parsed(block, width, wanted, separator)
                allowance.take(CELL * table.num_rows * len(wanted) + sum(_letters(column) for column in table.columns))
                for part, column in zip(parts, table.columns, strict=True):
                    part += column.chunks
        return [_merged(parts.pop(0)) for _ in wanted]  # free each part before merging the next
    except (_UnsureError, UnicodeDecodeError, pa.ArrowException, OSError, EOFError, zlib.error):
        allowance.taken = before
        return None


def _rows_of(file: IO[bytes], separator: int) -> Iterator[bytes]:
    """Blocks of whole lines without the header; raises if the two parsers may differ."""
    header = b""
    for block in whole_lines(file):
        _refuse_unsure(block, separator)
        rows = block
        if not header:
            header, _, rows = block.lstrip(b"\r\n").partition(b"\n")
        if rows.startswith(BOM_UTF8):  # part of the first field, but pyarrow would drop it
            raise _UnsureError
        if rows:
            yield rows


def whole_lines(file: IO[bytes]) -> Iterator[bytes]:
    """The text in blocks of whole lines."""
    rest = file.read(len(BOM_UTF8)).removeprefix(BOM_UTF8)
    while more := file.read(_BLOCK):
        lines, newline, begun = more.rpartition(b"\n")
        if newline:
            yield rest + lines + newline
            rest = b""
        rest += begun
        if len(rest) > csv.field_size_limit():  # otherwise a file with a single line would be read whole
            raise _UnsureError
    if rest:
        yield rest


def _refuse_unsure(block: bytes, separator: int) -> None:
    """Raise if pyarrow and the strict parser may split lines differently."""
    if b"\x00" in block or block.count(b"\r") != block.count(b"\r\n"):
        raise _UnsureError
    if not block.isascii():
        block.decode()  # all of it must be UTF-8; pyarrow only checks the wanted columns
    text = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(text == _NEWLINE)
    if np.diff(ends, prepend=-1, append=text.size).max() > csv.field_size_limit():
        raise _UnsureError
    if b'"' in block and not _is_well_quoted(text, separator):
        raise _UnsureError


def _is_well_quoted(text: NDArray[np.uint8], separator: int) -> bool:
    """Whether every field with a quote is fully quoted and ends on the line where it begins.

    Quotes alternate between opening and closing; a doubled quote closes the field and reopens it at once.
    """
    quote = text == _QUOTE
    inside = np.logical_xor.accumulate(quote)
    if inside[-1] or inside[text == _NEWLINE].any():
        return False
    framed = np.pad(text, 1, constant_values=_NEWLINE)
    before, after = framed[:-2][quote & inside], framed[2:][quote & ~inside]
    opens = np.isin(before, (separator, _NEWLINE, _QUOTE))
    closes = np.isin(after, (separator, _NEWLINE, _RETURN, _QUOTE))
    return bool(opens.all() and closes.all())


def _parsed(block: bytes, width: int, wanted: Sequence[int], separator: str) -> Any:
    """The wanted columns of a block, dictionary-encoded."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    names = [str(at) for at in range(width)]
    chosen = [names[at] for at in wanted]
    return arrow.read_csv(
        pa.BufferReader(block),
        arrow.ReadOptions(column_names=names, block_size=len(block) + 1, use_threads=False),
        arrow.ParseOptions(delimiter=separator),
        arrow.ConvertOptions(include_columns=chosen, column_types=dict.fromkeys(chosen, _words())),
        memory_pool=pa.system_memory_pool(),  # the default pool of pyarrow keeps freed memory
    )


def _letters(column: Any) -> float:
    """The memory of the distinct words of a block."""
    return float(sum(one.dictionary.nbytes for one in column.chunks))


def _merged(parts: list[Any]) -> WordColumn:
    """Concatenate the parts of a column."""
    import pyarrow as pa

    if not parts:
        return WordColumn([], np.empty(0, dtype=np.int32))
    pool = pa.system_memory_pool()
    whole = pa.chunked_array(parts, _words()).unify_dictionaries(pool).combine_chunks(pool)
    return WordColumn(whole.dictionary.to_numpy(zero_copy_only=False).tolist(), whole.indices.to_numpy())


def _words() -> Any:
    import pyarrow as pa

    return pa.dictionary(pa.int32(), pa.string())
