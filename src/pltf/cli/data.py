"""Read observations from files by the options of a command, and write them to files."""

from __future__ import annotations

import gzip
import io
import itertools
import math
import shlex
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pltf.cli.dates import with_dates
from pltf.cli.models import Wanted
from pltf.cli.parsing import ending_of, indices_of, options_in_words
from pltf.cli.tables import column_of, numbers_in, wide_table
from pltf.data import CooObservation, DenseObservation, Observation, StoredObservation, holdout, observe
from pltf.data.forms import index_names, letters
from pltf.data.labels import counted, with_bin
from pltf.data.numeric import EXACT, brief
from pltf.data.split import HeldOut
from pltf.data.stored import is_store, open_store
from pltf.data.tables import warn_of_unused
from pltf.errors import DataWarning, PltfError, naming_rows
from pltf.fit import Fit
from pltf.io.columns import in_words, is_nameless, refuse_absent
from pltf.io.databases import is_url
from pltf.io.files import TABLES, SourceTable, guess, kind_of, read_data
from pltf.io.listed import ListedFile, line_of_cell
from pltf.io.reading import GO_WITH, Reading
from pltf.io.sources import database_url, standard_input
from pltf.io.spreadsheets import formulas_in, spreadsheet_safe
from pltf.store.container import replacing

if TYPE_CHECKING:
    import pandas as pd

TABLE_ENDINGS = (".csv", ".tsv", ".parquet", ".pq")
ENDINGS = (*TABLE_ENDINGS, ".tns", ".npz", ".nc")
MOST_DENSE = 20_000_000  # most cells in a conversion between an array and a list
MOST_HIDDEN = 1_000_000  # most held-out cells; beyond this, zeros are sampled
MOST_ADDED = 1_000_000  # most rows added for positions without cells
UNLISTED = {"nan": "zero", "unlisted": "missing"}


# -- reading ------------------------------------------------------------------------------------


# Options for reading: those of a file, and those of any data.
FILE = tuple(one.name for one in fields(Reading))
_ALIKE = (
    "sheet",
    "encoding",
    "decimal",
    "keep_blanks",
    "date_format",
    "timezone",
    "wide",
    "drop_missing",
)  # for further data
READING = ("index", "value", "count", "sum", "missing", *_ALIKE)


def reading_of(options: Mapping[str, Any]) -> Reading:
    """The reading options of a command."""
    return Reading(**{name: options[name] for name in FILE if name in options})


@contextmanager
def given_files(options: dict[str, Any], words: Sequence[str]) -> Iterator[None]:
    """Replace inputs that are not files in the options: standard input (-) and database URLs."""

    def source(path: Path) -> Path:
        url = next((word for word in words if is_url(word) and Path(word) == path), None)
        if path == Path("-"):
            return stack.enter_context(standard_input(math.inf if "files" in options else options.get("limit")))
        return path if url is None else database_url(url) or path

    with ExitStack() as stack:
        for name in ("file", "cells"):
            if options.get(name) is not None:
                options[name] = source(options[name])
        if options.get("files"):
            options["files"] = list(map(source, options["files"]))
        yield


def reading_in_words(options: Mapping[str, Any]) -> str:
    """The options with which a file was read, to read further files in the same way.

    >>> reading_in_words({"index": "who=user,place", "value": None, "count": True, "sum": False, "missing": "nan"})
    '--index who=user,place --count --missing nan'
    """
    return shlex.join(options_in_words({name: options.get(name) for name in READING}))


def read_before(known: Fit, name: str | None = None) -> dict[str, Any]:
    """The options with which the data of a fit were read; of one tensor if there are several."""
    words = shlex.split(known.origin.get("read", ""))
    if len(known.model.observed) > 1:
        words = _of_one(words, known.tensor(name), [f"{one}:" for one in known.model.observed])
    return {
        word.removeprefix("--").replace("-", "_"): words[at + 1]
        if at + 1 < len(words) and not words[at + 1].startswith("--")
        else True
        for at, word in enumerate(words)
        if word.startswith("--")
    }


def _of_one(words: Sequence[str], name: str, heads: Sequence[str]) -> list[str]:
    """The options for one tensor in a text such as ``X: --index user,place; Y: --index user,word``.

    >>> _of_one(["X:", "--index", "u,p", "--count;", "Y:", "--index", "u,w"], "X", ["X:", "Y:"])
    ['--index', 'u,p', '--count']
    """
    begin = next((at for at, word in enumerate(words) if word == f"{name}:"), len(words))
    some = list(itertools.takewhile(lambda word: word not in heads, words[begin + 1 :]))
    last = begin + 1 + len(some) == len(words)
    return some if last or not some else [*some[:-1], some[-1].removesuffix(";")]


def read_alike(known: Fit, options: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """How to read further data for a fit: as its own data were read, unless options differ."""
    earlier = read_before(known)
    name = known.tensor()
    unlisted = {one: option for option, one in UNLISTED.items()}
    usual = {"missing": unlisted[known.patterns[name].unlisted], "index": ",".join(_columns_of(known, name))}
    values = ("value", "count")  # mutually exclusive
    if any(options[one] for one in values):
        earlier = {one: given for one, given in earlier.items() if one not in values}
    asked = [one for one in READING if one in options or one in earlier]
    given = {one: options.get(one) or earlier.get(one, usual.get(one, options.get(one))) for one in asked}
    if any(given.get(one) and not options.get(one) for one in GO_WITH):
        is_file = getattr(file, "url", None) is None
        kind = options.get("format") or (guess(file, given.get("encoding")) if is_file else "sql")
        given |= {one: options.get(one) for one in given if kind not in GO_WITH.get(one, (kind,))}
    return {**options, **given}


def _columns_of(known: Fit, name: str) -> Iterator[str]:
    """Columns with the labels of a fit."""
    for index in known.model.observed[name]:
        bin = known.labels[index].bin if index in known.labels else None
        yield index if bin is None else f"{index}:{bin}"


def observed(
    file: Path, options: Mapping[str, Any], wanted: Wanted | None = None, known: Fit | None = None
) -> tuple[Observation, str]:
    """Read a file with the options of the command; also return a description of the source.

    For a table that is read for a fit, numbers become words if the labels of the fit are words.
    """
    if is_store(file):
        _refuse(options, ["index", "value", "count", "sum", *FILE[:-1], *_ALIKE], f"{file} is a cell store")
        if options["missing"] == "unlisted":
            raise PltfError(f"--missing unlisted cannot be used here: {file} is a cell store with its own setting")
        return open_store(file), str(file)
    indices = indices_of(options["index"])
    if options["value"] is not None and options["count"]:
        raise PltfError("--value names a column, but --count counts rows: give only one of them")
    reading = reading_of(options)
    kind = kind_of(file, reading)
    unlisted = UNLISTED[options["missing"]]
    listed: dict[str, Any] = {"unlisted": unlisted, "duplicates": "sum" if options["sum"] else "error"}
    if kind in TABLES:
        table = SourceTable(file, kind, reading)
        dims = indices or (wanted.indices() if wanted else {})
        if options.get("wide"):
            _refuse(options, ["value", "count", "drop_missing"], f"{file} is read as a wide table")
            if unlisted == "missing":
                raise PltfError("--missing unlisted requires a list of cells, but --wide reads all cells")
            return wide_table(table, dims, options, listed["duplicates"])
        return _table(table, options, dims, listed, known)
    only = ["value", "count", "wide", "keep_blanks", "date_format", "timezone", "drop_missing"]
    _refuse(options, only, f"{file} is a {kind} file, not a table")
    if kind in ("tns", "npy"):
        _refuse(options, ["variable"], f"{file} has one array")
    held = read_data(file, **vars(reading))
    if hasattr(held, "dims") and (getattr(held, "dims", None) or not isinstance(held, Observation)):
        return _named_array(held, indices, options, file)
    if any(column != name for column, name in indices.items()):
        raise PltfError(
            f"--index must be plain names of the axes, because {file} is not a table; got {options['index']!r}"
        )
    names = tuple(indices.values()) or None
    if kind == "tns":
        with naming_rows(lambda row: f"line {line_of_cell(file, reading, row)}"):
            return _from_tns(held, names, wanted, listed, file.name), str(file)
    if isinstance(held, ListedFile):
        return held.observed(dims=names, **listed, name=file.name), str(file)
    if hasattr(held, "tocoo"):
        return observe(held, dims=names, **listed, name=file.name), str(file)
    _refuse_listing(options, file)
    if isinstance(held, Observation):
        return replace(held, dims=names), str(file)
    return observe(held, dims=names, name=file.name), str(file)


def _refuse_listing(options: Mapping[str, Any], file: Path) -> None:
    """Raise an error for options that require a list of cells."""
    _refuse(options, ["sum"], f"{file} is not a list of cells")
    if options["missing"] != "nan":
        raise PltfError(f"--missing unlisted requires a table or a list of cells, but {file} is neither")


def _named_array(
    held: Any, indices: Mapping[str, str], options: Mapping[str, Any], file: Path
) -> tuple[Observation, str]:
    """An array with named axes, which become the indices; --index can rename them."""
    _refuse_listing(options, file)
    own = list(map(str, held.dims))
    if not indices:
        names = index_names(own)
    elif set(indices) == set(own):
        names = dict(indices)
    elif len(indices) == len(own) and not set(indices) & set(own) and all(a == b for a, b in indices.items()):
        names = dict(zip(own, indices, strict=True))  # in the order of the axes
    else:
        raise PltfError(f"--index must name the dimensions of {file}, {in_words(own)}; got {options['index']!r}")
    told = [f"{index} is {dim!r}" for dim, index in names.items() if dim != index]
    source = f"{file} ({', '.join(told)})" if told else str(file)
    if isinstance(held, Observation):
        labels = {names[dim]: one for dim, one in held.labels.items()}
        return replace(held, dims=tuple(names[dim] for dim in own), labels=labels), source
    named = {dim: names[str(dim)] for dim in held.dims}
    return _with_bins(observe(held, dims=named, name=file.name), held.rename(named)), source


def _from_tns(
    held: ListedFile, names: tuple[str, ...] | None, wanted: Wanted | None, listed: Mapping[str, Any], name: str
) -> Observation:
    """Read a .tns file; its positions, counted from 1, become the labels."""
    modes = held.coords.shape[1]
    told = tuple(wanted.indices()) if wanted else ()
    dims = names or (told if len(told) == modes else letters(modes))
    try:
        seen = held.observed(dims=dims, **listed, name=name)
    except PltfError as error:
        places = "cell (" in str(error) or " for mode " in str(error)
        raise PltfError(f"{error.marked}{' (modes and positions counted from 0)' if places else ''}") from None
    return replace(seen, labels={dim: counted(size) for dim, size in zip(dims, seen.shape, strict=True)})


def _with_bins(seen: Observation, array: Any) -> Observation:
    """Restore the bins and time zones of dates from the attributes that ``pltf convert`` writes."""
    told = {dim: array[dim].attrs for dim in seen.labels}
    labels = {dim: with_bin(one.index, told[dim].get("bin"), told[dim].get("zone")) for dim, one in seen.labels.items()}
    return replace(seen, labels=labels)


def _refuse(options: Mapping[str, Any], names: list[str], why: str) -> None:
    for name in names:
        if options.get(name):
            raise PltfError(f"--{name.replace('_', '-')} cannot be used here: {why}")


def _table(
    table: SourceTable,
    options: Mapping[str, Any],
    dims: Mapping[str, str],
    listed: Mapping[str, Any],
    known: Fit | None,
) -> tuple[Observation, str]:
    """Read the named columns of a table."""
    file, columns, value = table.path, table.columns(), options["value"]
    if not dims:
        raise PltfError(f"--index must say which columns are indices; {file} has {in_words(columns)}")
    keys = [column_of(one, columns) for one in dims]
    rows = table.read(keys if value is None else [*keys, value], keys)
    if not len(rows):
        raise PltfError(f"{file} has no rows")
    if value is not None:
        rows[value] = numbers_in(table, rows[value], value)
    rows = with_dates(table, rows, dict(zip(dims, keys, strict=True)), options)
    if known is not None:
        rows = as_labelled(rows, known, dict(zip(keys, dims.values(), strict=True)))
    how = {**listed, "keep_blanks": table.reading.keep_blanks or table.kind in ("csv", "tsv")}  # already stripped
    places = _labelled_rows(table, rows, keys, drop=bool(options.get("drop_missing")))
    if len(places) < len(rows):
        rows = _only(rows, places)
    with naming_rows(lambda row: table.place(int(places[row]))):
        seen = observe(rows, dims=dims, value=value, count=value is None, **how, name=file.name)
    alike = known is not None and "index" in read_before(known)  # then it was said of the first data
    if value is None and not options["count"] and not alike:
        warn_of_unused([one for one in columns if one not in keys and not is_nameless(one)], str(file))
    return seen, f"{len(rows):,} rows of {file}, " + ("each one count" if value is None else f"values from {value!r}")


def _only(rows: pd.DataFrame, places: NDArray[np.intp]) -> pd.DataFrame:
    """Some rows of a table, with their labels only."""
    import pandas as pd

    rows = rows.iloc[places].reset_index(drop=True)
    for name, column in rows.items():
        if isinstance(column.dtype, pd.CategoricalDtype):
            rows[name] = column.cat.remove_unused_categories()
    return rows


def _labelled_rows(table: SourceTable, rows: pd.DataFrame, keys: Sequence[str], *, drop: bool) -> NDArray[np.intp]:
    """Positions of the rows that have all labels; an error if others are not to be dropped."""
    absent = {name: np.asarray(rows[name].isna()) for name in keys}
    kept = np.flatnonzero(~np.any(list(absent.values()), axis=0))
    left_out = len(rows) - kept.size
    if left_out and not drop:
        name = next(name for name in keys if absent[name].any())
        more = f" (and {left_out - 1:,} more)" if left_out > 1 else ""
        first = f"column {name!r}: {table.place(int(np.argmax(absent[name])))} has no label{more}"
        raise PltfError(f"{table.path}: {first}: --drop-missing leaves such rows out")
    if not kept.size:
        raise PltfError(f"{table.path} has no row with all labels")
    if left_out:
        text = f"{left_out:,} of the {len(rows):,} rows of {table.path} have no label and are left out"
        warnings.warn(text, DataWarning, stacklevel=2)
    return kept


def hidden(seen: Observation, share: float, seed: int, of: str) -> tuple[Observation, HeldOut]:
    """Hold out a fraction of the cells of a tensor; return the training data and the held-out cells."""
    if isinstance(seen, CooObservation | StoredObservation):
        sampled = seen.unlisted == "zero" and seen.n_observed * share > MOST_HIDDEN
        how: dict[str, Any] = {"by": "nonzeros", "negatives": 1.0} if sampled else {"by": "cells"}
        split = holdout(seen, share, seed=seed, **how)
        return split.train, HeldOut(split.cells, split.values, sampled, of)
    assert isinstance(seen, DenseObservation)
    keep = holdout(seen, share, seed=seed)
    cells = np.argwhere(seen.full_mask() & ~keep)
    return seen.within(keep), HeldOut(cells, seen.values_at(cells.T), of=of)


def as_labelled(table: pd.DataFrame, fit: Fit, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Convert integers of a file to words where the fit has words; ``columns`` maps columns to indices."""
    named = {index: index for index in fit.labels if index in table.columns} if columns is None else columns
    table = table.copy(deep=False)
    for column, index in named.items():
        if index in fit.labels and fit.labels[index].index.dtype == object and _is_whole(table[column]):
            table[column] = table[column].astype(str)
    return table


def as_words_where_some_are(seen: Mapping[str, Observation]) -> dict[str, Observation]:
    """If an index has words in one tensor, convert its integer labels in other tensors to words."""
    words = {i for one in seen.values() for i, labels in one.labels.items() if labels.index.dtype == object}
    found = dict(seen)
    for name, one in seen.items():
        whole = {i: labels for i, labels in one.labels.items() if i in words and labels.index.dtype.kind == "i"}
        if whole:
            again = {i: replace(labels, index=labels.index.astype(str).astype(object)) for i, labels in whole.items()}
            found[name] = replace(one, labels={**one.labels, **again})
    return found


def _is_whole(column: pd.Series) -> bool:
    categories = getattr(column.dtype, "categories", None)
    return column.dtype.kind in "iu" if categories is None else categories.dtype.kind in "iu"


def held_in(file: Path, fit: Fit, name: str, value: str | None, options: Mapping[str, Any]) -> HeldOut:
    """Cells of a tensor with their values, from a table."""
    from pltf.prediction.cells import observed_like

    indices = fit.model.observed[name]
    otherwise = f"{file} must be a table with the columns {', '.join(indices)} and a column of values"
    table, columns = table_of(file, fit, options, name, otherwise)
    earlier = read_before(fit, name).get("value")
    value = earlier if value is None and earlier in columns else value
    if value is None:
        raise PltfError(f"--value must say which column of {file} holds the values; it has {in_words(columns)}")
    if value in indices:
        raise PltfError(f"--value must be a column of values, but {value!r} is an index")
    rows = table.read([*indices, value], indices)
    rows[value] = numbers_in(table, rows[value], value)
    again = np.asarray(rows.duplicated(list(indices)))
    if again.any():
        raise PltfError(f"{file}: {table.place(int(np.argmax(again)))} repeats a cell of an earlier row")
    with naming_rows(table.place):
        seen = observed_like(as_labelled(rows, fit), indices, fit.labels, fit.sizes, file.name, value=value)
    assert isinstance(seen, CooObservation)
    if not seen.values.size:
        raise PltfError(f"{file} has no cell with a value")
    return HeldOut(seen.coords.T, seen.values, of=name)


def table_of(
    file: Path, fit: Fit, options: Mapping[str, Any], name: str, otherwise: str
) -> tuple[SourceTable, list[str]]:
    """A table of cells of a tensor, with blanks as in its data, and its columns; ``otherwise`` is the error if none."""
    reading = reading_of(options)
    reading = replace(reading, keep_blanks=reading.keep_blanks or bool(read_before(fit, name).get("keep_blanks")))
    kind = kind_of(file, reading)
    if kind not in TABLES:
        raise PltfError(otherwise)
    table = SourceTable(file, kind, reading)
    columns = table.columns()
    refuse_absent(file, fit.model.observed[name], columns)
    return table, columns


# -- writing ------------------------------------------------------------------------------------


def refuse_no_text(ending: str, safe: bool) -> None:
    """Raise an error for --spreadsheet-safe with a format that is not text."""
    if safe and ending not in (".csv", ".tsv", ".tns"):
        raise PltfError(f"--spreadsheet-safe requires .csv or .tsv output, got {ending}")


def for_csv(table: pd.DataFrame, safe: bool) -> pd.DataFrame:
    """Prepare a table for CSV: quote formulas, or warn about them."""
    if safe:
        return spreadsheet_safe(table)
    found = formulas_in(table)
    if found:
        first = f"{len(found):,} labels look like formulas" if len(found) > 1 else "a label looks like a formula"
        text = f"{first} ({brief(found[0])}), and spreadsheets may run them"
        warnings.warn(f"{text}: --spreadsheet-safe puts a ' before such labels", stacklevel=2)
    return table


def write_table(table: pd.DataFrame, path: Path, safe: bool = False) -> None:
    """Write a table to a file atomically; ``safe`` quotes text that spreadsheets treat as formulas."""
    ending = ending_of(path, TABLE_ENDINGS)
    with replacing(path) as part:
        if ending in (".parquet", ".pq"):
            try:
                import pyarrow.parquet  # noqa: F401
            except ModuleNotFoundError:
                raise PltfError("Parquet requires pyarrow: pip install 'pltf[io]'") from None
            table.to_parquet(part, engine="pyarrow", index=False)
        else:
            packed = "gzip" if path.suffix.lower() == ".gz" else None
            text = for_csv(table, safe)
            text.to_csv(part, index=False, sep="\t" if ending == ".tsv" else ",", compression=packed)


def write_observation(seen: Observation, path: Path, labels: Path, safe: bool = False) -> list[Path]:
    """Write data to a file, and labels to a second one if the format cannot store them; return the paths."""
    ending = ending_of(path, ENDINGS)
    seen = seen.cells() if isinstance(seen, StoredObservation) else seen
    if ending == ".tns":
        return _write_tns(seen, path, labels, safe)
    if ending == ".npz":
        _write_npz(seen, path)
    elif ending == ".nc":
        _write_netcdf(seen, path)
    else:
        write_table(_long(seen, zoned=ending in (".parquet", ".pq")), path, safe)
    return [path]


def _dims(seen: Observation) -> tuple[str, ...]:
    return seen.dims or tuple(f"axis{axis}" for axis in range(len(seen.shape)))


def _listed(seen: Observation, what: str) -> CooObservation:
    """Convert data to a list of cells; an array gives its non-zeros and missing cells."""
    if isinstance(seen, CooObservation):
        return seen
    assert isinstance(seen, DenseObservation)
    if np.size(seen.values) > MOST_DENSE:
        raise PltfError(f"an array of {np.size(seen.values):,} cells is too large for {what}: write .npz or .nc")
    known = seen.full_mask()
    cells = np.argwhere(known & (seen.values > 0))
    listed = (cells, seen.values[tuple(cells.T)])
    labels = seen.labels if seen.dims else None
    again = observe(listed, shape=seen.shape, missing=np.argwhere(~known), dims=seen.dims, labels=labels)
    assert isinstance(again, CooObservation)
    return again


def _long(seen: Observation, *, zoned: bool) -> pd.DataFrame:
    """A long table with one row per listed or missing cell; ``zoned`` keeps the time zone of dates."""
    import pandas as pd

    listed = _listed(seen, "a table")
    cells = np.concatenate([listed.coords, listed.missing], axis=1)
    values = np.concatenate([listed.values, np.full(listed.missing.shape[1], np.nan)])
    cells, values = _with_all_positions(cells, values, listed)
    columns = {}
    for dim, at in zip(_dims(seen), cells, strict=True):
        columns[dim] = seen.labels[dim].at(at) if dim in seen.labels else at
        zone = seen.labels[dim].zone if dim in seen.labels else None
        if zoned and zone is not None and columns[dim].dtype.kind == "M":
            first = np.ones(at.size, dtype=bool)  # the first of two times with the same local time
            columns[dim] = columns[dim].tz_localize(zone, ambiguous=first, nonexistent="shift_forward")
    return pd.DataFrame({**columns, value_name(columns): _whole(values)})


def value_name(columns: Collection[str]) -> str:
    """A name for the column of values that no other column has.

    >>> value_name(["user", "value"])
    'count'
    """
    return next(name for name in ("value", "count", "number", "x", "y", "z") if name not in columns)


def _with_all_positions(
    cells: NDArray[Any], values: NDArray[np.float64], listed: CooObservation
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Add a zero or missing cell for each position without cells, because a table would lose it."""
    cells = cells.astype(np.int64)
    for mode, size in enumerate(listed.shape):
        used = np.unique(cells[mode])
        if size - used.size > MOST_ADDED:
            raise PltfError(f"a table would lose {size - used.size:,} positions without cells: write .npz")
        unused = np.setdiff1d(np.arange(size), used) if used.size < size else used[:0]
        more = np.zeros((len(cells), unused.size), dtype=np.int64)
        more[mode] = unused
        cells = np.concatenate([cells, more], axis=1)
        values = np.append(values, np.full(unused.size, 0.0 if listed.unlisted == "zero" else np.nan))
    return cells, values


def _whole(values: NDArray[np.float64]) -> Any:
    """Convert to integers if all values are whole; missing values stay missing."""
    import pandas as pd

    absent = np.isnan(values)
    present = values[~absent]
    if not (present == np.floor(present)).all() or present.max(initial=0) > EXACT:
        return values
    return pd.array(values, dtype="Int64") if absent.any() else values.astype(np.int64)


def _write_tns(seen: Observation, path: Path, beside: Path, safe: bool) -> list[Path]:
    """Write FROSTT, with the sizes in a comment, because empty slices at the end would be lost."""
    import pandas as pd

    listed = _listed(seen, "a list of cells")
    if listed.missing.shape[1]:
        raise PltfError(f"a .tns file cannot store missing cells, but there are {listed.missing.shape[1]:,}")
    rows = pd.DataFrame(listed.coords.astype(np.int64).T + 1).assign(value=_whole(listed.values))
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with replacing(path) as part, opener(part, "wt", encoding="utf-8", newline="\n") as file:
        file.write(f"# sizes {' '.join(map(str, listed.shape))}\n")
        rows.to_csv(file, sep=" ", header=False, index=False)
        named = [
            pd.DataFrame({"index": dim, "position": np.arange(len(one)) + 1, "label": one.names()})
            for dim, one in seen.labels.items()
            if one != counted(len(one))
        ]
        if not named:
            return [path]
        write_table(pd.concat(named), beside, safe)
    return [path, beside]


def _write_npz(seen: Observation, path: Path) -> None:
    arrays: dict[str, Any] = {"pltf": np.array(1), "dims": np.array(seen.dims or (), dtype=str)}
    for dim, one in seen.labels.items():
        if one == counted(len(one)):
            arrays[f"counted.{dim}"] = np.array(len(one))
            continue
        held = one.index.to_numpy()
        arrays[f"labels.{dim}"] = held.astype(str) if held.dtype == object else held
        if one.bin is not None:
            arrays[f"bins.{dim}"] = np.array(one.bin)
        if one.zone is not None:
            arrays[f"zones.{dim}"] = np.array(one.zone)
    if isinstance(seen, DenseObservation):
        arrays["array"] = seen.values
        if seen.mask is not None:
            arrays["mask"] = seen.mask
    elif isinstance(seen, CooObservation):
        arrays |= {"cells": seen.coords.T, "values": seen.values, "shape": np.array(seen.shape)}
        arrays["unlisted"] = np.array(seen.unlisted)
        if seen.unlisted == "zero":
            arrays["missing"] = seen.missing.T
    _save_arrays(arrays, path)


def _save_arrays(arrays: Mapping[str, Any], path: Path) -> None:
    """Write arrays to a .npz file without pickling."""
    for name, array in arrays.items():
        if array.dtype.hasobject:  # np.savez takes allow_pickle=False from numpy 2.1 on; 2.0 stores it as an array
            raise PltfError(f"{path} cannot store {name!r}: it has Python objects, but only numbers and text are saved")
    with replacing(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _write_netcdf(seen: Observation, path: Path) -> None:
    import xarray as xr

    if isinstance(seen, CooObservation):
        values = _whole_array(seen)
    else:
        assert isinstance(seen, DenseObservation)
        values = seen.values if seen.mask is None else np.where(seen.mask, seen.values, np.nan)
    array = xr.DataArray(values, {dim: one.index for dim, one in seen.labels.items()}, _dims(seen), name="X")
    for dim, one in seen.labels.items():
        told = {name: told for name, told in (("bin", one.bin), ("zone", one.zone)) if told is not None}
        array.coords[dim].attrs.update(told)
    image = io.BytesIO()  # HDF5 may crash when a disk is full
    with replacing(path) as part:
        array.to_dataset().to_netcdf(image, engine="h5netcdf")
        part.write_bytes(image.getbuffer())


def _whole_array(seen: CooObservation) -> NDArray[np.float64]:
    size = float(np.prod([float(n) for n in seen.shape]))
    if size > MOST_DENSE:
        raise PltfError(f"netCDF stores dense arrays, and this one has {size:.3g} cells: write .npz or .parquet")
    values = np.full(seen.shape, 0.0 if seen.unlisted == "zero" else np.nan)
    values[tuple(seen.coords)] = seen.values
    values[tuple(seen.missing)] = np.nan
    return values


def demo_events() -> pd.DataFrame:
    """Example events: three habits shared by users, over weeks."""
    import pandas as pd

    rng = np.random.default_rng(7)
    places = ["office", "cafe", "gym", "pool", "park", "cinema", "club", "bar", "museum", "library"]
    habits = [[8, 5, 0, 0, 0, 0, 0, 0, 0, 3], [0, 1, 6, 4, 5, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 4, 5, 6, 2, 0]]
    users = [f"user{number:02d}" for number in range(40)]
    share = rng.gamma(0.4, 1.0, (len(users), 3))
    season = np.array([[1.0] * 20, np.linspace(0.2, 2.0, 20), 1 + np.sin(np.arange(20) / 3)])
    rate = 0.25 * np.einsum("ur,rp,rw->upw", share, np.array(habits), season)
    counts = rng.poisson(rate)
    rows = np.repeat(np.argwhere(counts), counts[counts > 0], axis=0)
    days = rows[:, 2] * 7 + rng.integers(0, 7, len(rows))
    when = pd.Timestamp("2026-01-05") + pd.to_timedelta(days, unit="D")
    table = pd.DataFrame({"user": np.array(users)[rows[:, 0]], "place": np.array(places)[rows[:, 1]], "when": when})
    return table.sort_values("when", kind="stable").assign(when=lambda one: one["when"].dt.strftime("%Y-%m-%d"))
