"""Data in the files that people have: tables, arrays, lists of cells."""

from __future__ import annotations

import gzip
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pltf.data import observe
from pltf.errors import PltfError
from pltf.store.fits import as_path

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("csv", "tsv", "parquet", "tns", "npz", "npy", "mat", "netcdf")
_ENDINGS = {
    ".csv": "csv",
    ".txt": "csv",
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
_NO_VALUE = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>", "-"]
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, IndexError, EOFError, OverflowError, NotImplementedError)


@dataclass(frozen=True, eq=False)
class Cells:
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
    with _readable(where, kind):
        if kind in ("csv", "tsv"):
            return _text(where, "\t" if kind == "tsv" else None, columns, keys)
        if kind == "parquet":
            return _parquet(where, columns)
        return _READERS[kind](where, variable)


def guess(path: Path) -> str:
    """The format of a file, from its first bytes, then from its ending."""
    begin = _beginning(path)
    for mark, kind in _MARKS.items():
        if begin.startswith(mark):
            return kind
    endings = [ending.lower() for ending in path.suffixes if ending.lower() != ".gz"]
    if endings and endings[-1] in _ENDINGS:
        kind = _ENDINGS[endings[-1]]
        if kind in ("csv", "tsv", "tns"):
            return kind
        raise PltfError(f"{path} is no {kind} file, for all its name says: say what it is with format=")
    if b"\x00" in begin:
        raise PltfError(f"{path} is no kind of file that is known: say what it is with format= ({', '.join(FORMATS)})")
    return "csv"


def is_saved(path: Path) -> bool:
    """Whether a file was saved by pltf, as a fit or a search."""
    if not _beginning(path).startswith(b"\x89HDF"):
        return False
    import h5py

    with _readable(path, "netCDF"), h5py.File(path, "r") as file:
        return bool(file.attrs.get("format") == "pltf")


def _beginning(path: Path) -> bytes:
    """The first bytes of a file, unpacked."""
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
        raise PltfError(f"{path} needs {reason.name or 'another package'} to be read: pip install 'pltf[io]'") from None
    except UnicodeDecodeError as reason:
        raise PltfError(f"{path} must be text in UTF-8, but byte {reason.start} is not") from None
    except (*_UNREADABLE, zipfile.BadZipFile, Exception) as reason:
        text = " ".join(str(reason).split())[:200] or type(reason).__name__
        raise PltfError(f"{path} cannot be read as {kind}: {text}") from None


# -- tables -------------------------------------------------------------------------------------


def _text(path: Path, separator: str | None, columns: Sequence[str] | None, keys: Sequence[str]) -> pd.DataFrame:
    """A table in text. Labels are read as they are written: "007" is no number, and "NA" may be a country."""
    import pandas as pd

    packed = "gzip" if _is_gzip(path) else None
    common: dict[str, Any] = {"compression": packed, "encoding": "utf-8-sig"}
    separator = separator or _separator(path)
    names = list(pd.read_csv(path, sep=separator, nrows=0, dtype=str, **common).columns)
    refuse_absent(path, [*keys, *(columns or ())], names)
    wanted = names if columns is None else [name for name in names if name in columns or name in keys]
    table = pd.read_csv(
        path,
        sep=separator,
        usecols=wanted,
        dtype=dict.fromkeys(keys, str),
        keep_default_na=False,
        na_values={name: [""] if name in keys else _NO_VALUE for name in wanted},
        on_bad_lines="error",
        index_col=False,
        **common,
    )
    for key in keys:
        table[key] = _whole_labels(table[key].astype("category"))
    return table


def _whole_labels(column: pd.Series) -> pd.Series:
    """Labels that are all plain whole numbers as such."""
    words = column.cat.categories.astype(object)
    if len(words) and all(isinstance(word, str) and _WHOLE.fullmatch(word) for word in words):
        column = column.cat.rename_categories([int(word) for word in words])
    return column.cat.reorder_categories(sorted(column.cat.categories))


def _separator(path: Path) -> str:
    """What stands between the columns: the candidate that the first line has most of."""
    with _opened(path) as file:
        line = file.readline(1 << 16)
    return max(_SEPARATORS, key=line.count)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    opener: Callable[..., Any] = gzip.open if _is_gzip(path) else open
    with opener(path, "rt", encoding="utf-8-sig") as file:
        yield file


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == _GZIP


def _parquet(path: Path, columns: Sequence[str] | None) -> pd.DataFrame:
    import pandas as pd
    import pyarrow.parquet as pq

    refuse_absent(path, columns or (), list(pq.read_schema(path).names))
    return pd.read_parquet(path, engine="pyarrow", columns=None if columns is None else list(columns))


def refuse_absent(path: Path, wanted: Sequence[str], names: Sequence[str]) -> None:
    """Tell of a column that is not there."""
    absent = [name for name in wanted if name not in names]
    if absent:
        raise PltfError(f"{path} has no column {absent[0]!r}; it has {', '.join(map(str, names))}")


def table_columns(path: Path, kind: str) -> list[str]:
    """The columns of a table in a file."""
    with _readable(path, kind):
        if kind == "parquet":
            import pyarrow.parquet as pq

            return list(pq.read_schema(path).names)
        import pandas as pd

        separator = "\t" if kind == "tsv" else _separator(path)
        packed = "gzip" if _is_gzip(path) else None
        head = pd.read_csv(path, sep=separator, nrows=0, dtype=str, compression=packed, encoding="utf-8-sig")
        return list(map(str, head.columns))


# -- lists of cells and arrays ------------------------------------------------------------------


def _tns(path: Path, variable: str | None) -> Any:
    """FROSTT: a line for each cell, its positions from 1 on, then its value."""
    import pandas as pd

    packed = "gzip" if _is_gzip(path) else None
    skip, shape = _tns_head(path)
    lines = pd.read_csv(path, sep=r"\s+", comment="#", header=None, skiprows=skip, compression=packed)
    if lines.shape[1] < 2:
        raise PltfError(f"{path} must have at least one position and a value in each line")
    positions, values = lines.iloc[:, :-1], lines.iloc[:, -1].to_numpy()
    if not all(dtype.kind in "iu" for dtype in positions.dtypes):
        raise PltfError(f"{path} must have whole numbers for positions in each line")
    coords = positions.to_numpy(dtype=np.int64)
    if len(coords) and coords.min() < 1:
        raise PltfError(f"{path} must count positions from 1, but there is {coords.min()}")
    sizes = shape or tuple(int(last) for last in coords.max(axis=0))
    return Cells(coords - 1, values, sizes)


def _tns_head(path: Path) -> tuple[int, tuple[int, ...] | None]:
    """Two lines that some files begin with: the number of modes, and their sizes."""
    with _opened(path) as file:
        words = [file.readline(1 << 16).split() for _ in range(2)]
    if len(words[0]) == 1 and words[0][0].isdigit() and len(words[1]) == int(words[0][0]):
        return 2, tuple(map(int, words[1]))
    return 0, None


def _npy(path: Path, variable: str | None) -> Any:
    return np.load(path, allow_pickle=False)


def _npz(path: Path, variable: str | None) -> Any:
    from scipy import sparse

    with np.load(path, allow_pickle=False) as held:
        names = set(held.files)
        if variable is None and {"format", "shape", "data"} <= names:
            return sparse.load_npz(path)
        if variable is None and {"coords", "data", "shape"} <= names:  # as pydata sparse writes it
            return Cells(held["coords"].T, held["data"], tuple(map(int, held["shape"])))
        if variable is None and {"cells", "values", "shape"} <= names:  # as pltf writes it
            return _from_our_own(held, path)
        return held[_chosen(path, variable, sorted(names))]


def _from_our_own(held: Mapping[str, Any], path: Path) -> Any:
    dims = [str(dim) for dim in held["dims"]] if "dims" in held else None
    labels = {dim: held[f"labels.{dim}"] for dim in dims or () if f"labels.{dim}" in held}
    missing = held.get("missing")
    unlisted = str(held["unlisted"]) if "unlisted" in held else "zero"
    listed, shape = (held["cells"], held["values"]), tuple(map(int, held["shape"]))
    return observe(listed, shape=shape, dims=dims, labels=labels or None, missing=missing, unlisted=unlisted)


def _mat(path: Path, variable: str | None) -> Any:
    from scipy import io

    if _beginning(path).startswith(b"MATLAB 7.3"):
        return _mat_73(path, variable)
    names = [name for name, shape, kind in io.whosmat(path) if kind not in ("char", "cell", "struct", "object")]
    name = _chosen(path, variable, names)
    return io.loadmat(path, variable_names=[name])[name]


def _mat_73(path: Path, variable: str | None) -> Any:
    import h5py

    with h5py.File(path, "r") as file:
        names = [name for name, one in file.items() if isinstance(one, h5py.Dataset) and one.dtype.kind in "iuf"]
        return np.asarray(file[_chosen(path, variable, names)]).T  # MATLAB counts the other way round


def _netcdf(path: Path, variable: str | None) -> Any:
    import xarray as xr

    with xr.open_dataset(path, decode_timedelta=False) as data:
        if data.attrs.get("format") == "pltf":
            kind = data.attrs.get("kind")
            raise PltfError(f"{path} is a {kind} that pltf saved, and data are wanted here")
        names = [str(name) for name, one in data.data_vars.items() if one.dtype.kind in "iufb" and one.ndim]
        return data[_chosen(path, variable, names)].load()


def _chosen(path: Path, variable: str | None, names: Sequence[str]) -> str:
    if variable is None and len(names) == 1:
        return names[0]
    if variable is None or variable not in names:
        came = f"got {variable!r}" if variable is not None else "say which with variable="
        raise PltfError(f"{path} has the arrays {', '.join(names) or '(none)'}: {came}")
    return variable


_READERS: dict[str, Callable[[Path, str | None], Any]] = {
    "tns": _tns,
    "npz": _npz,
    "npy": _npy,
    "mat": _mat,
    "netcdf": _netcdf,
}
