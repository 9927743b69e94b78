"""Observations whose cells stay on disk, in the parts of a cell store."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pltf.data.base import Observation
from pltf.data.cell_index import CellIndex, Coords, first_of_each, order_of
from pltf.data.coo import UNLISTED, CooObservation, permuted_cells, sort_cells
from pltf.data.labels import Labels
from pltf.data.numeric import brief, constants, read_only
from pltf.data.part_files import (
    ABOUT,
    FORMAT,
    LONGEST,
    VALUE,
    VALUE_TYPES,
    File,
    FilePart,
    MemoryPart,
    Part,
    read_columns,
)
from pltf.data.pattern import Bools, Pattern
from pltf.data.random_cells import distinct_numbers, numbered
from pltf.data.stored_labels import read_labels
from pltf.errors import ObservationError, is_number, py
from pltf.memory import SHARE, at_hand, save_address_space

BLOCK = 1 << 18  # rows processed at a time
_LONGEST_TEXT = 1 << 28  # largest accepted store.json, in bytes
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


@dataclass(frozen=True, eq=False, repr=False)
class StoredObservation(Observation):
    """Cells in the parts of a store, as :func:`pltf.open` returns it. Fits read the parts in turn.

    Like a :class:`CooObservation`, it lists cells. A cell that is not listed is an observed zero, unless it is in
    ``missing``, or it is missing, depending on ``unlisted``.
    """

    sizes: tuple[int, ...]
    unlisted: str
    owner: int  # the axis by which cells are sorted and parts are cut
    columns: tuple[int, ...]  # for each axis, the column of a part with its positions
    parts: tuple[Part, ...]
    missing: Coords  # missing cells, where unlisted is "zero"
    listed: int  # cells in the parts, without skipped ones
    positive: int  # listed cells above zero
    value_type: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sizes

    @property
    def dtype_name(self) -> str:
        return self.value_type

    @property
    def n_positive(self) -> int:
        return self.positive

    @property
    def cell_bytes(self) -> int:
        """Bytes of all cells on disk."""
        each = 4 * len(self.sizes) + np.dtype(self.value_type).itemsize
        return each * sum(part.cells for part in self.parts)

    def pattern(self) -> Pattern:
        return StoredPattern(self)

    # -- cells ------------------------------------------------------------------------------

    def blocks(self) -> Iterator[tuple[Coords, NDArray[Any]]]:
        """All listed cells in blocks: positions (modes, n) and values."""
        for part in self.parts:
            yield from self._blocks_of(part)

    def _blocks_of(self, part: Part) -> Iterator[tuple[Coords, NDArray[Any]]]:
        columns, x = part.load()
        for start in range(0, part.cells, BLOCK):
            rows = slice(start, min(start + BLOCK, part.cells))
            coords, values, keep = self._positions(columns, rows), x[rows], part.kept(rows)
            yield (coords, values) if keep is None else (coords[:, keep], values[keep])

    def _positions(self, columns: Sequence[NDArray[np.int32]], rows: Any) -> Coords:
        return np.stack([columns[column][rows] for column in self.columns])

    def values_at(self, cells: Coords) -> NDArray[np.float64]:
        found = self.find(cells)
        return np.where(self.observed(cells, found), found.values, np.nan)

    def observed(self, cells: Coords, found: Found | None = None) -> Bools:
        """Whether each cell was observed."""
        if self.unlisted == "zero":
            return np.asarray(self._holes.find(cells) < 0)
        return (self.find(cells) if found is None else found).listed

    @cached_property
    def _holes(self) -> CellIndex:
        return CellIndex(self.missing, self.sizes)

    def find(self, cells: Coords) -> Found:
        """Where cells (modes, n) are listed, and their values."""
        firsts = np.array([part.first for part in self.parts], dtype=np.int64)
        own = cells[self.owner]
        number = np.searchsorted(firsts, own, side="right") - 1
        rows, values = np.full(own.size, -1, dtype=np.int64), np.zeros(own.size)
        order = np.argsort(number, kind="stable")
        cuts = np.searchsorted(number[order], np.arange(len(self.parts) + 1))
        for n in np.flatnonzero(np.diff(cuts)):
            at = order[cuts[n] : cuts[n + 1]]
            at = at[own[at] < self.parts[n].last]
            if at.size:
                rows[at], values[at] = self._find_in(self.parts[n], cells[:, at])
        return Found(np.where(rows < 0, -1, number), rows, values)

    def _find_in(self, part: Part, wanted: Coords) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Rows and values of cells in a part; -1 for a cell that is not listed. Only rows of their positions are read.

        Cells that share a position of the owned mode may be in any order.
        """
        columns, x = part.load()
        rank = numbered(self.sizes, wanted)
        distinct = wanted[:, np.unique(rank, return_index=True)[1]]
        index = CellIndex(distinct, self.sizes)
        rows = np.full(distinct.shape[1], -1, dtype=np.int64)
        own, places = columns[self.columns[self.owner]], np.unique(distinct[self.owner])
        starts, stops = (np.searchsorted(own, places.astype(np.int32), side=side) for side in ("left", "right"))
        for some in _runs(starts, stops):
            at = index.find(self._positions(columns, some))
            rows[at[at >= 0]] = some[at >= 0]
        if part.skipped is not None:
            rows[np.isin(rows, part.skipped)] = -1
        values = np.zeros(rows.size)
        values[rows >= 0] = x[rows[rows >= 0]]
        return rows[rank], values[rank]

    def pick(self, ranks: NDArray[np.int64], of: Callable[[NDArray[Any]], Bools] | None = None) -> Coords:
        """The cells with these sorted ranks among the listed cells, or among those whose values satisfy ``of``."""
        found: list[Coords] = [np.empty((len(self.sizes), 0), dtype=np.int32)]
        done = 0
        for part in self.parts:
            count = part.cells - (0 if part.skipped is None else part.skipped.size)
            if of is None:
                mine = ranks[slice(*np.searchsorted(ranks, (done, done + count)))] - done
                if mine.size:
                    found.append(self._positions(part.load()[0], part.unskipped(mine)))
                done += count
                continue
            for coords, values in self._blocks_of(part):
                rows = np.flatnonzero(of(values))
                mine = ranks[slice(*np.searchsorted(ranks, (done, done + rows.size)))] - done
                found.append(coords[:, rows[mine]])
                done += rows.size
        return np.concatenate(found, axis=1)

    def sample(self, rng: np.random.Generator, most: int) -> Coords:
        """A uniform sample of at most ``most`` listed cells; all of them if there are fewer."""
        if self.listed <= most:
            return self.pick(np.arange(self.listed))
        return self.pick(distinct_numbers(rng, self.listed, most))

    def first_where(self, wrong: Callable[[NDArray[Any]], NDArray[np.bool_]]) -> tuple[tuple[int, ...], float] | None:
        for coords, values in self.blocks():
            found = wrong(values)
            if found.any():
                first = int(np.argmax(found))
                return tuple(map(int, coords[:, first])), float(values[first])
        return None

    # -- other forms ------------------------------------------------------------------------

    def _parts(self) -> Iterator[NDArray[Any]]:
        yield np.frombuffer(self.unlisted.encode(), dtype=np.uint8)
        yield np.array([self.owner, *self.columns])
        for part in self.parts:
            if isinstance(part, FilePart):
                yield np.frombuffer(part.file.checksum.encode(), dtype=np.uint8)
            else:
                columns, x = part.load()
                yield from (*columns, x)
            yield from () if part.skipped is None else (part.skipped,)
        yield self.missing

    def _permuted(self, order: tuple[int, ...]) -> dict[str, Any]:
        sizes, columns = (tuple(one[axis] for axis in order) for one in (self.sizes, self.columns))
        missing = permuted_cells(self.missing, order)
        return {"sizes": sizes, "owner": order.index(self.owner), "columns": columns, "missing": missing}

    def in_memory(self) -> Self:
        """The same parts with the cells in memory."""
        return replace(self, parts=tuple(_loaded(part) for part in self.parts))

    def cells(self) -> CooObservation:
        """All cells as a list in memory, if it fits."""
        modes = len(self.sizes)
        need, have = self.listed * (8 * modes + 40), SHARE * at_hand()
        if need > have:
            raise ObservationError(
                f"{self.listed:,} cells of a store would take {need / 1e9:.1f} GB of memory, "
                f"and half of the free memory is {have / 1e9:.1f} GB"
            )
        places, held = np.empty((modes, self.listed), dtype=np.int32), np.empty(self.listed)
        at = 0
        for some, x in self.blocks():
            places[:, at : at + x.size], held[at : at + x.size] = some, x
            at += x.size
        coords, values = sort_cells(places, held, self.sizes)
        known = (self.n_observed, self.total, self.saturated, self.largest, self.sizes)
        arrays = (read_only(coords), read_only(values), self.unlisted, self.missing)
        return CooObservation(*known, *arrays, dims=self.dims, labels=self.labels)

    def hiding(self, cells: Coords) -> tuple[Self, NDArray[np.float64]]:
        """The data with some observed cells missing, and the values of these. Parts skip their rows; files stay."""
        cells = cells.astype(np.int32)
        found = self.find(cells)
        values, listed = found.values[found.listed], int(found.listed.sum())
        total, saturated = constants(values)
        missing = self.missing
        if self.unlisted == "zero":  # otherwise they would be zeros
            missing = np.concatenate([missing, cells], axis=1)
            missing = read_only(missing[:, order_of(self.sizes, missing)])
        parts = list(self.parts)
        numbers, rows = found.number[found.listed], found.row[found.listed]
        for n in np.unique(numbers):
            parts[n] = _skipping(parts[n], rows[numbers == n])
        train = replace(
            self,
            n_observed=self.n_observed - cells.shape[1],
            total=self.total - total,
            saturated=self.saturated - saturated,
            parts=tuple(parts),
            missing=missing,
            listed=self.listed - listed,
            positive=self.positive - int(np.count_nonzero(values)),
        )
        if values.size and values.max() == self.largest:
            largest = max((float(x.max(initial=0)) for _, x in train.blocks()), default=0.0)
            train = replace(train, largest=largest)
        return train, found.values


@dataclass(frozen=True, eq=False)
class Found:
    """Where cells are listed: part number, row (-1 if not listed) and value (0 if not listed)."""

    number: NDArray[np.intp]
    row: NDArray[np.int64]
    values: NDArray[np.float64]

    @property
    def listed(self) -> Bools:
        """Whether each cell is listed."""
        return np.asarray(self.row >= 0)


@dataclass(frozen=True, eq=False)
class StoredPattern:
    """Looks up cells in the store. A saved fit does not contain it: files do not refer to other files."""

    seen: StoredObservation

    @property
    def unlisted(self) -> str:
        return self.seen.unlisted

    def observed(self, cells: Coords) -> Bools:
        return self.seen.observed(cells)

    def positive(self, cells: Coords) -> Bools:
        return np.asarray(self.seen.find(cells).values > 0)

    def missing_cells(self, most: int) -> Coords | None:
        missing = self.seen.missing
        if self.unlisted == "missing" or missing.shape[1] > most:
            return None
        return missing.astype(np.intp)


def _runs(starts: NDArray[np.intp], stops: NDArray[np.intp]) -> Iterator[NDArray[np.int64]]:
    """The rows of several ranges, in blocks."""
    lengths = stops - starts
    ends = np.cumsum(lengths)
    for start in range(0, int(ends[-1]) if ends.size else 0, BLOCK):
        place = np.arange(start, min(start + BLOCK, int(ends[-1])))
        run = np.searchsorted(ends, place, side="right")
        yield starts[run] + place - (ends[run] - lengths[run])


def _loaded(part: Part) -> MemoryPart:
    columns, x = part.load()
    copied = tuple(read_only(np.array(column)) for column in columns)
    return MemoryPart(
        part.number, part.cells, part.first, part.last, copied, read_only(np.array(x)), skipped=part.skipped
    )


def _skipping(part: Part, rows: NDArray[np.int64]) -> Part:
    known = rows if part.skipped is None else np.concatenate([part.skipped, rows])
    return replace(part, skipped=read_only(np.unique(known)))


# -- opening a store ----------------------------------------------------------------------------


def open_store(path: str | os.PathLike[str]) -> StoredObservation:
    """Open a cell store, the folder that :func:`pltf.prepare` writes. Its cells stay on disk.

    Fits, searches, held-out splits, predictions and scores take it like other data. Each sweep of a fit reads the parts
    of the store in turn: it needs memory for the factors and for one part per thread, not for all cells. A store that
    is incomplete, or has changed since it was written, is an error.

    >>> import os, tempfile, pandas as pd, pltf
    >>> visits = pd.DataFrame({"user": ["ann", "bob", "ann"], "place": ["bar", "bar", "gym"]})
    >>> path = os.path.join(tempfile.mkdtemp(), "visits.pltf")
    >>> _ = pltf.prepare(visits, path, dims=("user", "place"), progress=False)
    >>> pltf.open(path)
    <StoredObservation 2x2 uint8: 4 of 4 cells observed, total 3>
    >>> fit = pltf.nmf(("user", "place"), rank=1).fit(pltf.open(path))
    >>> fit.factors["W"].mean.shape
    (2, 1)
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ObservationError(f"{py:path} must be the name of a cell store, got {brief(path)}")
    save_address_space()
    folder = Path(path).absolute()
    about = _About(folder, _read_about(folder))
    dims, sizes, owner = about.dims(), about.sizes(), about.number("owner", 0, len(about.dims()) - 1)
    unlisted, value_type = about.one_of("unlisted", UNLISTED), about.one_of("value_type", VALUE_TYPES)
    parts = about.parts(dims, sizes, owner, value_type)
    missing = about.missing(dims, sizes, unlisted)
    cells, positive = about.number("cells", 0, 2**62), about.number("positive", 0, 2**62)
    total, saturated, largest = about.real("total"), about.real("saturated"), about.real("largest")
    if cells != sum(part.cells for part in parts) or positive > cells:
        raise about.wrong("the numbers of cells are inconsistent")
    if total < 0 or largest < 0 or (positive > 0) != (largest > 0) or (positive > 0) != (total > 0):
        raise about.wrong("the totals are inconsistent")
    n_observed = cells if unlisted == "missing" else math.prod(sizes) - missing.shape[1]
    if cells > n_observed:
        raise about.wrong("it has more cells than the tensor")
    rest = (sizes, unlisted, owner, tuple(range(len(dims))), parts, missing, cells, positive, value_type)
    return StoredObservation(n_observed, total, saturated, largest, *rest, dims=dims, labels=about.labels(dims, sizes))


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the folder of a cell store."""
    return (Path(path) / ABOUT).is_file()


def _read_about(folder: Path) -> Mapping[str, Any]:
    if not folder.exists():
        raise ObservationError(f"{folder} does not exist: write a cell store with pltf.prepare")
    if not folder.is_dir():
        raise ObservationError(f"{folder} is a file, but a cell store is a folder: write one with pltf.prepare")
    path = folder / ABOUT
    if not path.is_file():
        raise ObservationError(f"{folder} is not a cell store: it has no {ABOUT}")
    if path.stat().st_size > _LONGEST_TEXT:
        raise ObservationError(f"{path} is too large to describe a cell store")
    try:
        about = json.loads(path.read_bytes())
    except OSError as reason:
        raise ObservationError(f"{path} cannot be read: {reason.strerror}") from None
    except (ValueError, RecursionError):
        raise ObservationError(f"{path} is damaged: it must be JSON") from None
    if not isinstance(about, dict) or about.get("format") != "pltf cells":
        raise ObservationError(f"{path} does not describe a cell store of pltf")
    version: Any = about.get("version")
    if not is_number(version, whole=True) or version < 1:
        raise ObservationError(f"{path} is damaged: 'version' must be a whole number from 1, got {brief(version)}")
    if version > FORMAT:
        raise ObservationError(
            f"{folder} has version {brief(version)} of the format, and this pltf reads up to {FORMAT}: "
            "install a newer pltf"
        )
    return about


@dataclass(frozen=True)
class _About:
    """The content of store.json, checked field by field."""

    folder: Path
    content: Mapping[str, Any]

    def wrong(self, what: str) -> ObservationError:
        """The error for a damaged field."""
        return ObservationError(f"{self.folder / ABOUT} is damaged: {what}")

    def field(self, name: str, kind: type, entry: Mapping[str, Any] | None = None) -> Any:
        """A field of a given type."""
        value = (self.content if entry is None else entry).get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(f"{name!r} must be {_JSON[kind]}, got {brief(value)}")
        return value

    def number(self, name: str, least: int, most: int, entry: Mapping[str, Any] | None = None) -> int:
        """A whole number within bounds."""
        value: int = self.field(name, int, entry)
        if not least <= value <= most:
            raise self.wrong(f"{name!r} must be from {least} to {most}, got {brief(value)}")
        return value

    def real(self, name: str) -> float:
        """A finite number."""
        value: Any = self.content.get(name)
        if not is_number(value) or not abs(value) <= sys.float_info.max:
            raise self.wrong(f"{name!r} must be a finite number, got {brief(value)}")
        return float(value)

    def one_of(self, name: str, choices: Sequence[str]) -> str:
        """One of several strings."""
        value: str = self.field(name, str)
        if value not in choices:
            raise self.wrong(f"{name!r} must be one of {', '.join(map(repr, choices))}, got {brief(value)}")
        return value

    def dims(self) -> tuple[str, ...]:
        """The names of the modes."""
        dims = self.field("dims", list)
        named = all(isinstance(one, str) and one and one != VALUE for one in dims)
        if not dims or not named or len(set(dims)) < len(dims):
            raise self.wrong(f"'dims' must be different names, got {brief(dims)}")
        return tuple(dims)

    def sizes(self) -> tuple[int, ...]:
        """The sizes of the modes."""
        sizes = self.field("sizes", list)
        whole = all(is_number(n, whole=True) and 0 < n <= LONGEST for n in sizes)
        if not whole or len(sizes) != len(self.dims()):
            raise self.wrong(f"'sizes' must be a number from 1 to {LONGEST} for each mode, got {brief(sizes)}")
        return tuple(sizes)

    def parts(self, dims: tuple[str, ...], sizes: tuple[int, ...], owner: int, value_type: str) -> tuple[Part, ...]:
        """The parts, which must be in the order of the owned mode and must not share its positions."""
        parts: list[Part] = []
        names: set[Path] = set()
        for number, entry in enumerate(self.field("parts", list)):
            if not isinstance(entry, dict):
                raise self.wrong(f"a part must be an object, got {brief(entry)}")
            least = parts[-1].last if parts else 0
            first = self.number("first", least, sizes[owner] - 1, entry)
            last = self.number("last", first + 1, sizes[owner], entry)
            cells = self.number("cells", 1, 2**62, entry)
            file = self.file(entry)
            if file.path in names:
                raise self.wrong(f"{file.path.name} is listed twice")
            names.add(file.path)
            known: Any = {"value_type": value_type, "sizes": sizes, "owner": owner}
            parts.append(FilePart(number, cells, first, last, file, dims, **known))
        return tuple(parts)

    def file(self, entry: Mapping[str, Any]) -> File:
        """A file inside the folder with the right size."""
        name, checksum = self.field("file", str, entry), self.field("checksum", str, entry)
        if not _PLAIN_NAME.fullmatch(name):
            raise self.wrong(f"a file must be a plain name inside the folder, got {brief(name)}")
        file = File(self.folder / name, self.number("size", 0, 2**62, entry), checksum)
        file.check_size()
        return file

    def missing(self, dims: tuple[str, ...], sizes: tuple[int, ...], unlisted: str) -> Coords:
        """Cells that are missing among observed zeros, sorted."""
        if "missing" not in self.content:
            return read_only(np.empty((len(dims), 0), dtype=np.int32))
        entry = self.field("missing", dict)
        if unlisted == "missing":
            raise self.wrong("'missing' lists cells, but all cells that are not in a part are missing")
        file, count = self.file(entry), self.number("cells", 1, 2**62, entry)
        if count * 4 * len(dims) > file.size:
            raise self.wrong(f"{file.path.name} is too small for {count:,} cells")
        file.check()
        columns = read_columns(file.path, dims)
        good = all(column.dtype == np.int32 and len(column) == count for column in columns)
        if not good or any(one.min() < 0 or one.max() >= size for one, size in zip(columns, sizes, strict=True)):
            raise self.wrong(f"{file.path.name} must have {count:,} cells of the tensor")
        cells = np.stack(columns)
        cells = cells[:, order_of(sizes, cells)]
        if not first_of_each(cells).all():
            raise self.wrong(f"{file.path.name} has a cell twice")
        return read_only(cells)

    def labels(self, dims: tuple[str, ...], sizes: tuple[int, ...]) -> dict[str, Labels]:
        """The labels of the modes that have labels."""
        found = {}
        for dim, entry in self.field("labels", dict).items():
            if dim not in dims or not isinstance(entry, dict):
                raise self.wrong(f"'labels' must name a mode ({', '.join(dims)}), got {brief(dim)}")
            labels = read_labels(self.file(entry), entry)
            if len(labels) != sizes[dims.index(dim)]:
                wanted = sizes[dims.index(dim)]
                raise self.wrong(f"{dim!r} has {wanted:,} positions and {len(labels):,} labels")
            found[dim] = labels
        return found


_JSON: Mapping[type, str] = {int: "a whole number", str: "a string", list: "a list", dict: "an object"}
