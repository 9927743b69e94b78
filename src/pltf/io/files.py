"""Data in the files that people have: tables, arrays, lists of cells."""

from __future__ import annotations

import csv
import gzip
import os
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pltf.data import observe
from pltf.data.labels import counted, known_labels, with_bin
from pltf.data.numeric import EXACT, brief
from pltf.errors import PltfError
from pltf.io.matlab import stored_arrays
from pltf.store.fits import as_path

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("csv", "tsv", "parquet", "tns", "npz", "npy", "mat", "netcdf")
_TEXTS = ("csv", "tsv", "tns")
_ENDINGS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".tns": "tns",
    ".npz": "npz",
    ".npy": "npy",
    ".mat": "mat",
    ".nc": "netcdf",
    ".nc4": "netcdf",
    ".netcdf": "netcdf",
}
_MARKS = {
    b"PAR1": "parquet",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
    b"CDF": "netcdf",
    b"\x89HDF\r\n\x1a\n": "netcdf",
    b"MATLAB": "mat",
}
_GZIP = b"\x1f\x8b"
_SEPARATORS = ",\t;|"
_ROWS = 1 << 10  # of a text that are read at a time
_NO_VALUE = frozenset(("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>", "-"))
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")  # as a label: nothing is lost when it is a number
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?inf(inity)?", re.IGNORECASE | re.ASCII)
_TRUTH = {"true": 1, "false": 0}
_LISTED = re.compile(rb"([0-9]+[ \t]+)+[0-9.eE+-]+")  # a line of positions and a value
_NAMELESS = re.compile(r"|Unnamed: [0-9]+|__index_level_[0-9]+__")  # columns that programs write beside the data


Rows = list[list[str]]  # in words


@dataclass(frozen=True, eq=False)
class ListedFile:
    """Listed cells: a row of positions for each value, and the sizes of the tensor."""

    coords: NDArray[Any]
    values: NDArray[Any]
    shape: tuple[int, ...]


def read_data(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    columns: Sequence[str] | None = None,
    keys: Sequence[str] = (),
    variable: str | None = None,
) -> Any:
    """What a file holds, as :func:`pltf.observe` takes it: a table, an array, or listed cells with their shape.

    ``format`` is one of ``FORMATS``; if it is not said, it is guessed from the content, then from the ending. Of tables
    only ``columns`` are read, all if none are named; in text, ``keys`` are labels, which stay as they are written but
    for plain whole numbers. ``variable`` names the array in a file that has several.

    >>> import pandas as pd, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "events.csv")
    >>> pd.DataFrame({"user": ["ann", "bob"], "zip": ["007", "123"]}).to_csv(path, index=False)
    >>> read_data(path, keys=["user", "zip"]).values.tolist()
    [['ann', '007'], ['bob', '123']]
    """
    where = as_path(path)
    kind = guess(where) if format is None else _known(format)
    _beginning(where)
    with _readable(where, kind):
        if kind in ("csv", "tsv"):
            return _text(where, kind, columns, keys)
        if kind == "parquet":
            return _parquet(where, columns)
        return _READERS[kind](where, variable)


def guess(path: Path) -> str:
    """The format of a file, from its first bytes, then from its ending."""
    begin = _beginning(path)
    marked = next((kind for mark, kind in _MARKS.items() if begin.startswith(mark)), None)
    if marked is not None:
        if _is_gzip(path):
            raise PltfError(f"{path} is a {marked} file packed with gzip: unpack it first")
        return marked
    endings = [ending.lower() for ending in path.suffixes if ending.lower() != ".gz"]
    kind = _ENDINGS.get(endings[-1]) if endings else None
    if kind in (*_TEXTS, "mat"):  # MATLAB 4 had no mark
        return str(kind)
    if kind is not None:
        raise PltfError(f"{path} is no {kind} file, for all its name says: say what it is with format=")
    if b"\x00" in begin:
        raise PltfError(f"{path} is no kind of file that is known: say what it is with format= ({', '.join(FORMATS)})")
    return "tns" if _LISTED.fullmatch(_first_line(begin)) else "csv"


def _first_line(begin: bytes) -> bytes:
    lines = (line.strip() for line in begin.splitlines())
    return next((line for line in lines if line and not line.startswith(b"#")), b"")


def is_saved(path: Path) -> bool:
    """Whether a file was saved by pltf, as a fit or a search."""
    if not _beginning(path).startswith(b"\x89HDF"):
        return False
    import h5py

    try:
        with h5py.File(path, "r") as file:
            return bool(file.attrs.get("format") == "pltf")
    except Exception:  # it may be broken in any way
        raise PltfError(f"{path} is damaged: it begins as a netCDF file does, and cannot be opened as one") from None


def _beginning(path: Path) -> bytes:
    """The first bytes of a file, unpacked."""
    if path.is_dir():
        raise PltfError(f"{path} is a folder, and a file is wanted")
    if path.exists() and not path.is_file():  # it could be read once only
        raise PltfError(f"{path} is no plain file: save what comes out of a pipe first")
    with _readable(path, "data"):
        with path.open("rb") as file:
            begin = file.read(1024)
        if not begin:
            raise PltfError(f"{path} is empty")
        if begin.startswith(_GZIP):
            with gzip.open(path) as unpacked:
                begin = unpacked.read(1024)
        return begin


def _known(format: Any) -> str:
    if format not in FORMATS:
        raise PltfError(f"format must be one of {', '.join(map(repr, FORMATS))}; got {format!r}")
    return str(format)


@contextmanager
def _readable(path: Path, kind: str) -> Iterator[None]:
    """Turn what readers make of a file that is not there, not whole or not what it seems into one sentence."""
    try:
        yield
    except PltfError:
        raise
    except FileNotFoundError:
        raise PltfError(f"there is no file {path}") from None
    except ImportError as reason:
        package = (reason.name or "another package").split(".")[0]
        raise PltfError(f"{path} needs {package} to be read: pip install 'pltf[io]'") from None
    except UnicodeDecodeError as reason:
        raise PltfError(f"{path} must be text in UTF-8, and it is not") from reason
    except Exception as reason:  # a file may be broken in any way
        text = str(getattr(reason, "strerror", None) or reason)
        if "allow_pickle" in text:
            raise PltfError(f"{path} holds Python objects, which are not loaded: save numbers") from reason
        text = " ".join(text.split())[:200] or type(reason).__name__
        raise PltfError(f"{path} cannot be read as {kind}: {text}") from reason


# -- tables -------------------------------------------------------------------------------------


def _text(path: Path, kind: str, columns: Sequence[str] | None, keys: Sequence[str]) -> pd.DataFrame:
    """A table in text. Labels are read as they are written: "007" is no number, and "NA" may be a country."""
    import pandas as pd

    with _table_rows(path, kind) as (names, rows):
        refuse_absent(path, [*keys, *(columns or ())], names)
        wanted = [at for at, name in enumerate(names) if columns is None or name in columns or name in keys]
        held = _columns(rows, wanted)
    made = [
        (_labels if names[at] in keys else _numbers)(*column, path) for at, column in zip(wanted, held, strict=True)
    ]
    table = pd.DataFrame(dict(enumerate(made)))
    table.columns = pd.Index([names[at] for at in wanted], dtype=object)
    return table


def _columns(rows: Iterator[Rows], wanted: Sequence[int]) -> list[tuple[list[str], NDArray[np.int64]]]:
    """Columns of words: each of them once, and which of them each row has."""
    words: list[defaultdict[str, int]] = [defaultdict(count().__next__) for _ in wanted]
    codes: list[list[NDArray[np.int64]]] = [[np.empty(0, dtype=np.int64)] for _ in wanted]
    for block in rows:
        held = list(zip(*block, strict=True))
        for number, at in enumerate(wanted):
            found = map(words[number].__getitem__, held[at])
            codes[number].append(np.fromiter(found, dtype=np.int64, count=len(block)))
    return [(list(known), np.concatenate(parts)) for known, parts in zip(words, codes, strict=True)]


@contextmanager
def _table_rows(path: Path, kind: str) -> Iterator[tuple[list[str], Iterator[Rows]]]:
    """The names of the columns of a text, and its rows, many at a time."""
    separator = "\t" if kind == "tsv" else _separator(path)
    with _opened(path) as file:
        reader = csv.reader(file, delimiter=separator, strict=True)
        names = [name.strip() for name in next(filter(None, reader), [])]
        if not any(names):
            raise PltfError(f"{path} must begin with the names of its columns")
        yield names, _whole_rows(reader, names, path, separator)


def _whole_rows(reader: Iterator[list[str]], names: list[str], path: Path, separator: str) -> Iterator[Rows]:
    """Rows that have a field for each column; lines that are blank are none."""
    while block := list(islice(reader, _ROWS)):
        rows = [row for row in block if row]
        if any(len(row) != len(names) for row in rows):
            _refuse_ragged(path, separator, len(names))
        if rows:
            yield rows


def _refuse_ragged(path: Path, separator: str, width: int) -> None:
    """Tell the first line that has more or fewer fields than there are columns."""
    with _opened(path) as file:
        reader = csv.reader(file, delimiter=separator, strict=True)
        for row in filter(None, reader):
            if len(row) != width:
                raise PltfError(f"{path}: line {reader.line_num} has {len(row)} fields, and there are {width} columns")


def _labels(words: list[str], codes: NDArray[np.int64], path: Path) -> pd.Categorical:
    """Labels, sorted; if all are plain whole numbers, as such. An empty field has none."""
    import pandas as pd

    given = [word for word in words if word]
    if any("\x00" in word for word in given):
        raise PltfError(f"{path} must be text, and it holds NUL characters")
    whole = bool(given) and all(map(_WHOLE.fullmatch, given))
    names: list[Any] = sorted(map(int, given)) if whole else sorted(given)
    place = {str(name): at for at, name in enumerate(names)}
    places = np.array([place.get(word, -1) for word in words], dtype=np.int64)
    categories = pd.Index(names, dtype=np.int64 if whole else object)
    return pd.Categorical.from_codes(places[codes], categories=categories)


def _numbers(words: list[str], codes: NDArray[np.int64], path: Path) -> NDArray[Any]:
    """A column that is none of labels: numbers if all of it are numbers or absent, otherwise words."""
    numbers: list[Any] = [number_in(word) for word in words]
    if None in numbers:
        return np.array(words, dtype=object)[codes]
    whole = [one for one in numbers if isinstance(one, int)]
    mixed = len(whole) < len(numbers)
    beyond = max(map(abs, whole), default=0) > (EXACT if mixed else 2**63 - 1)  # then as they are, for others to judge
    return np.array(numbers, dtype=object if beyond else None if numbers else float)[codes]


def number_in(word: str) -> int | float | None:
    """The number that a word of a file is, NaN for an absent one; None if it is no number.

    >>> number_in("12"), number_in("0.1"), number_in("NA"), number_in("12 kg")
    (12, 0.1, nan, None)
    """
    plain = word.strip()
    if plain in _NO_VALUE:
        return float("nan")
    if plain.lower() in _TRUTH:
        return _TRUTH[plain.lower()]
    if not _NUMBER.fullmatch(plain):
        return None
    digits = plain.lstrip("+-")
    return int(plain) if digits.isdecimal() and len(digits) < 4000 else float(plain)


def _separator(path: Path) -> str:
    """What stands between the columns: the candidate that the first line has most of, outside quotes."""
    with _opened(path) as file:
        line = next((line for line in iter(lambda: file.readline(1 << 16), "") if line.strip()), "")
    bare = re.sub(r'"[^"]*"', "", line)
    return max(_SEPARATORS, key=bare.count)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    opener: Callable[..., Any] = gzip.open if _is_gzip(path) else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        yield file


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == _GZIP


def _parquet(path: Path, columns: Sequence[str] | None) -> pd.DataFrame:
    """A table in Parquet, with the columns that it has in the file: whole numbers with gaps stay whole."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        refuse_absent(path, columns or (), file.schema_arrow.names)
        held = file.read(columns=None if columns is None else list(columns))
        return held.to_pandas(integer_object_nulls=True, ignore_metadata=True)


def refuse_absent(path: Path, wanted: Sequence[str], names: Sequence[str]) -> None:
    """Tell of a column that is not there, or there twice."""
    times = Counter(names)
    for name in wanted:
        if not times[name]:
            raise PltfError(f"{path} has no column {name!r}; it has {in_words(names)}")
        if times[name] > 1:
            raise PltfError(f"{path} has several columns {name!r}: rename them")


def in_words(names: Sequence[str]) -> str:
    """Names of columns, not all if there are many.

    >>> in_words(["user", "", "n"])
    "user, '', n"
    """
    few = [name or repr(name) for name in map(str, names[:20])]
    return ", ".join(few) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def is_nameless(column: str) -> bool:
    """Whether a column has no name of its own: as a rule it numbers the rows.

    >>> is_nameless(""), is_nameless("__index_level_0__"), is_nameless("count")
    (True, True, False)
    """
    return _NAMELESS.fullmatch(column) is not None


def table_columns(path: Path, kind: str) -> list[str]:
    """The columns of a table in a file."""
    _beginning(path)
    with _readable(path, kind):
        if kind == "parquet":
            import pyarrow.parquet as pq

            return list(pq.read_schema(path).names)
        with _table_rows(path, kind) as (names, _):
            return names


# -- lists of cells and arrays ------------------------------------------------------------------


def _tns(path: Path, variable: str | None) -> Any:
    """FROSTT: a line for each cell, its positions from 1 on, then its value."""
    with _opened(path) as file:
        lines = enumerate(file, 1)
        shape, first = _tns_head(lines)
        width = len(first[1]) if first is not None else len(shape or ()) + 1
        if width < 2:
            raise PltfError(f"{path} must have at least one position and a value in each line")
        *places, (words, codes) = _columns(_tns_rows(path, lines, first, width), range(width))
    coords = np.stack([_positions(path, *column) for column in places], axis=1)
    if not len(coords) and shape is None:
        raise PltfError(f"{path} lists no cells")
    if shape is not None and len(shape) != width - 1:
        raise PltfError(f"{path} has {width - 1} positions in a line, and {len(shape)} sizes at its top")
    return ListedFile(
        coords - 1, _numbers(words, codes, path), shape or tuple(int(last) for last in coords.max(axis=0))
    )


def _tns_rows(path: Path, lines: Iterator[tuple[int, str]], first: Any, width: int) -> Iterator[Rows]:
    """Lines of cells, in words."""
    told = ((number, _words(line)) for number, line in lines)
    rows = ((number, words) for number, words in chain([first] if first else [], told) if words)
    while block := list(islice(rows, _ROWS)):
        for number, words in block:
            if len(words) != width:
                raise PltfError(f"{path}: line {number} has {len(words)} numbers, and the first one {width}")
        yield [words for _, words in block]


def _words(line: str) -> list[str]:
    return line.split("#", 1)[0].split()


def _positions(path: Path, words: list[str], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    for word in words:
        if not re.fullmatch(r"[1-9][0-9]{0,17}", word):
            raise PltfError(f"{path} must have positions from 1 on, whole numbers below 10**18; got {brief(word)}")
    return np.array(words, dtype=np.int64)[codes] if words else codes


def _tns_head(lines: Iterator[tuple[int, str]]) -> tuple[tuple[int, ...] | None, tuple[int, list[str]] | None]:
    """The sizes, if the top of the file tells them, and the first line of cells.

    A comment is how pltf writes sizes; others write two lines, the number of modes and the size of each.
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
                return None, (number, modes)  # no such line, so a line of one number, which is none of a cell
            shape = _sizes(words)
        elif words:
            return shape, (number, words)
    return shape, None


def _sizes(words: list[str]) -> tuple[int, ...] | None:
    whole = all(word.isdecimal() and len(word) < 19 for word in words)
    return tuple(map(int, words)) if words and whole else None


def _npy(path: Path, variable: str | None) -> Any:
    _refuse_other(path, b"\x93NUMPY", "npy")
    return np.load(path, allow_pickle=False)


def _npz(path: Path, variable: str | None) -> Any:
    from scipy import sparse

    _refuse_other(path, b"PK", "npz")
    with np.load(path, allow_pickle=False) as held:
        names = {name for name in held.files if f"{name}.npy" in held.zip.namelist()}
        if variable is None and "fill_value" in names and held["fill_value"] != 0:
            raise PltfError(f"{path} must be filled with 0, got fill value {held['fill_value']}")
        if variable is None and {"coords", "data", "shape"} <= names:  # as pydata sparse writes it
            return ListedFile(held["coords"].T, held["data"], tuple(map(int, held["shape"])))
        if variable is None and {"format", "shape", "data"} <= names:
            return _sound(sparse.load_npz(path))
        if variable is None and {"pltf", "dims"} <= names:
            return _from_our_own(held)
        return held[_chosen(path, variable, sorted(names))]


def _from_our_own(held: Mapping[str, Any]) -> Any:
    """Data as ``pltf convert`` writes them."""
    dims = [str(dim) for dim in held["dims"]] or None
    labels = {}
    for dim in dims or ():
        if f"counted.{dim}" in held:
            labels[dim] = counted(int(held[f"counted.{dim}"]))
        elif f"labels.{dim}" in held:
            bin, zone = (str(held[f"{kind}.{dim}"]) if f"{kind}.{dim}" in held else None for kind in ("bins", "zones"))
            names = known_labels(held[f"labels.{dim}"], f"labels of {dim!r}").index
            labels[dim] = with_bin(names, bin, zone)
    named: dict[str, Any] = {"dims": dims, "labels": labels or None}
    if "array" in held:
        return observe(held["array"], held.get("mask"), **named)
    listed, shape = (held["cells"], held["values"]), tuple(map(int, held["shape"]))
    return observe(listed, shape=shape, missing=held.get("missing"), unlisted=str(held["unlisted"]), **named)


def _mat(path: Path, variable: str | None) -> Any:
    from scipy import io

    if _beginning(path).startswith((b"MATLAB 7.3", b"\x89HDF")):
        return _mat_73(path, variable)
    stored = stored_arrays(path)
    if stored is not None:
        return _sound(stored[_chosen(path, variable, list(stored))].array())
    names = [name for name, _, kind in io.whosmat(path) if kind not in ("char", "cell", "struct", "object", "function")]
    name = _chosen(path, variable, names)
    return io.loadmat(path, variable_names=[name])[name]


def _mat_73(path: Path, variable: str | None) -> Any:
    """MATLAB 7.3 is HDF5, with the axes the other way round, and sparse matrices by their columns."""
    import h5py
    from scipy import sparse

    with h5py.File(path, "r") as file:
        names = [name for name, one in file.items() if _is_array(one)]
        one = file[_chosen(path, variable, names)]
        if not isinstance(one, h5py.Group):
            return np.asarray(one).T
        data, rows, starts = (np.asarray(one[part]) for part in ("data", "ir", "jc"))
        shape = (int(one.attrs["MATLAB_sparse"]), len(starts) - 1)
        return _sound(sparse.csc_array((data, rows.astype(np.int64), starts.astype(np.int64)), shape=shape))


def _sound(array: Any) -> Any:
    """An array; of a sparse one, its parts fit together, or those who go through it would leave their memory."""
    if hasattr(array, "check_format"):
        array.check_format(full_check=True)
    return array


def _is_array(one: Any) -> bool:
    """Whether something in a MATLAB file is an array of numbers."""
    if "MATLAB_sparse" in one.attrs:
        return "data" in one
    kind = getattr(getattr(one, "dtype", None), "kind", "")
    return (
        kind in "iufb" and kind != "" and one.attrs.get("MATLAB_class") != b"char" and "MATLAB_empty" not in one.attrs
    )


def _netcdf(path: Path, variable: str | None) -> Any:
    import xarray as xr

    if is_saved(path):  # which opens it, too: what HDF5 cannot open is not to reach others
        raise PltfError(f"{path} is a fit or a search that pltf saved, and data are wanted here")
    with warnings.catch_warnings(action="ignore"), xr.open_dataset(path, decode_timedelta=False) as data:
        names = [str(name) for name, one in data.data_vars.items() if one.dtype.kind in "iufb" and one.ndim]
        array = data[_chosen(path, variable, names)].load()
    stored = np.dtype(array.encoding.get("dtype", array.dtype))
    if stored.kind in "iu" and array.dtype.kind == "f" and array.size and float(array.max()) >= EXACT:
        raise PltfError(f"{path} has whole numbers beyond 2**53 and cells without a value: float64 would round them")
    return array


def _chosen(path: Path, variable: str | None, names: Sequence[str]) -> str:
    if variable is None and len(names) == 1:
        return names[0]
    if not names:
        raise PltfError(f"{path} has no array of numbers")
    if variable is None or variable not in names:
        came = f"got {variable!r}" if variable is not None else "say which with variable="
        raise PltfError(f"{path} has the arrays {in_words(names)}: {came}")
    return variable


def _refuse_other(path: Path, mark: bytes, kind: str) -> None:
    with path.open("rb") as file:
        if not file.read(len(mark)).startswith(mark):
            raise PltfError(f"{path} is no {kind} file")


_READERS: dict[str, Callable[[Path, str | None], Any]] = {
    "tns": _tns,
    "npz": _npz,
    "npy": _npy,
    "mat": _mat,
    "netcdf": _netcdf,
}
