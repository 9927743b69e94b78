"""From sorted keys to the parts of a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data.cell_index import first_of_each
from pltf.data.numeric import EXACT
from pltf.data.part_files import StoreWriter
from pltf.data.pattern import narrowest
from pltf.errors import ObservationError, py, py_only

MOST_MISSING = 50_000_000  # missing cells that are listed, where unlisted cells are zero
_BITS = 63

Keys = NDArray[np.int64]  # (keys, cells)


@dataclass(frozen=True)
class Packing:
    """How the positions of a cell are packed into a few integers that sort in the same order."""

    order: tuple[int, ...]  # modes: the longest (owned) mode first, the others by decreasing size
    places: tuple[tuple[int, int, int], ...]  # for each mode in that order: which integer, shift, bits
    numbers: int

    @classmethod
    def of(cls, sizes: Sequence[int]) -> Packing:
        """The packing for a tensor of this shape.

        >>> Packing.of((3, 1000, 20)).order
        (1, 2, 0)
        """
        order = tuple(sorted(range(len(sizes)), key=lambda mode: (-sizes[mode], mode)))
        groups: list[list[int]] = [[]]
        bits = [max(1, (size - 1).bit_length()) for size in sizes]
        for mode in order:
            if sum(bits[one] for one in groups[-1]) + bits[mode] > _BITS:
                groups.append([])
            groups[-1].append(mode)
        places = []
        for number, group in enumerate(groups):
            shift = sum(bits[one] for one in group)
            for mode in group:
                shift -= bits[mode]
                places.append((number, shift, bits[mode]))
        return cls(order, tuple(places), len(groups))

    @property
    def owner(self) -> int:
        """The mode by which parts are cut."""
        return self.order[0]

    def sql(self, codes: Sequence[str]) -> list[str]:
        """SQL for the integers, from SQL for the positions."""
        terms: list[list[str]] = [[] for _ in range(self.numbers)]
        for mode, (number, shift, _) in zip(self.order, self.places, strict=True):
            terms[number].append(f"(CAST({codes[mode]} AS BIGINT) << {shift})")
        return [" | ".join(group) for group in terms]

    def owners(self, keys: Keys) -> NDArray[np.int64]:
        """Positions of the owned mode."""
        number, shift, _ = self.places[0]
        own: NDArray[np.int64] = keys[number] >> shift
        return own

    def columns(self, keys: Keys) -> list[NDArray[np.int32]]:
        """Positions of each mode."""
        found: list[Any] = [None] * len(self.order)
        for mode, (number, shift, bits) in zip(self.order, self.places, strict=True):
            found[mode] = ((keys[number] >> shift) & ((1 << bits) - 1)).astype(np.int32)
        return found


@dataclass
class Runs:
    """Sorted rows summed by cell: key, sum, number of rows, and number of rows without a value."""

    keys: Keys
    sums: NDArray[np.float64]
    rows: NDArray[np.int64]
    absent: NDArray[np.int64]

    @classmethod
    def of(cls, keys: Keys, values: NDArray[np.float64] | None) -> Runs:
        """Sum rows by cell; without values every row counts one."""
        first = np.flatnonzero(first_of_each(keys))
        rows = np.diff(first, append=keys.shape[1])
        if values is None:
            return cls(keys[:, first], rows.astype(np.float64), rows, np.zeros_like(rows))
        absent = np.isnan(values)
        if first.size == absent.size:
            return cls(keys, np.where(absent, 0.0, values), rows, absent.astype(np.int64))
        with np.errstate(over="ignore"):
            sums = np.add.reduceat(np.where(absent, 0.0, values), first)
        return cls(keys[:, first], sums, rows, np.add.reduceat(absent.astype(np.int64), first))

    def __getitem__(self, some: slice | NDArray[np.bool_]) -> Runs:
        return Runs(self.keys[:, some], self.sums[some], self.rows[some], self.absent[some])

    def followed_by(self, others: Runs) -> Runs:
        """Join one cell with the runs that follow; it may continue in the first of them."""
        if (self.keys[:, 0] != others.keys[:, 0]).any():
            return Runs.joined([self, others])
        for mine, theirs in ((self.sums, others.sums), (self.rows, others.rows), (self.absent, others.absent)):
            theirs[0] += mine[0]
        return others

    @classmethod
    def joined(cls, some: Sequence[Runs]) -> Runs:
        """Concatenate runs."""
        if len(some) == 1:
            return some[0]
        return cls(*(np.concatenate([getattr(one, part.name) for one in some], axis=-1) for part in fields(cls)))


@dataclass(kw_only=True)
class Cells:
    """Takes sorted rows and writes parts."""

    writer: StoreWriter
    packing: Packing
    size: int  # cells of a part
    counted: bool
    whole: bool
    duplicates: str
    unlisted: str
    called: Callable[[Keys], str]

    def __post_init__(self) -> None:
        self._open: Runs | None = None  # the last cell, which may continue
        self._waiting: list[Runs] = []
        self._missing: list[Keys] = []
        self._n_waiting = self._n_missing = 0

    def take(self, keys: Keys, values: NDArray[np.float64] | None) -> None:
        """Take the next rows."""
        runs = Runs.of(keys, values)
        runs = runs if self._open is None else self._open.followed_by(runs)
        self._open = runs[-1:]
        self._put(runs[:-1])

    def finish(self) -> NDArray[np.int32]:
        """Write what is left; returns the missing cells (modes, n)."""
        if self._open is not None:
            self._put(self._open)
        if self._n_waiting:
            self._write(Runs.joined(self._waiting))
        modes = len(self.packing.order)
        if not self._missing:
            return np.empty((modes, 0), dtype=np.int32)
        return np.stack(self.packing.columns(np.concatenate(self._missing, axis=1)))

    def _put(self, runs: Runs) -> None:
        self._refuse_twice(runs)
        hole = runs.absent > 0
        if hole.any():
            if self.unlisted == "zero":
                self._missing.append(runs.keys[:, hole])
                self._n_missing += int(hole.sum())
            if self._n_missing > MOST_MISSING:
                advice = f"use {py:unlisted='missing'} and list the zeros that were observed"
                raise ObservationError(f"there are more than {MOST_MISSING:,} missing cells: {advice}")
            runs = runs[~hole]
        self._refuse_large(runs)
        if runs.sums.size:
            self._waiting.append(runs)
            self._n_waiting += runs.sums.size
        self._cut()

    def _cut(self) -> None:
        """Write complete parts: each ends where a position of the owned mode ends."""
        if self._n_waiting < self.size:
            return
        own = self.packing.owners
        if own(self._waiting[0].keys[:, :1])[0] == own(self._waiting[-1].keys[:, -1:])[0]:
            return  # only one position so far
        runs = Runs.joined(self._waiting)
        owners = own(runs.keys)
        begin, last = 0, int(np.searchsorted(owners, owners[-1]))  # the last position may continue
        while last - begin and owners.size - begin >= self.size:
            at = int(np.searchsorted(owners, owners[min(begin + self.size, owners.size - 1)]))
            if at <= begin:  # a position with more cells than a part
                at = int(np.searchsorted(owners, owners[begin], side="right"))
            at = min(at, last)
            self._write(runs[begin:at])
            begin = at
        self._waiting, self._n_waiting = [runs[begin:]], owners.size - begin

    def _write(self, runs: Runs) -> None:
        self.writer.widen(narrowest(runs.sums).name)
        self.writer.add(self.packing.columns(runs.keys), runs.sums)

    def _refuse_twice(self, runs: Runs) -> None:
        """Raise an error for cells with several rows that must not be summed."""
        if self.counted:
            return
        again = runs.rows > 1
        if self.duplicates == "sum":
            again &= (runs.absent > 0) & (runs.absent < runs.rows)
        if again.any():
            advice = "one of its rows has no value"
            if self.duplicates != "sum":
                advice = f"pass {py:duplicates='sum'}{py_only: to pltf.prepare} to add them up"
            cell = self.called(runs.keys[:, [int(np.argmax(again))]])
            raise ObservationError(f"cell {cell} is listed more than once; {advice}")

    def _refuse_large(self, runs: Runs) -> None:
        """Raise an error for sums that float64 cannot represent."""
        wrong = ~np.isfinite(runs.sums)
        if self.whole:
            wrong |= (runs.sums >= EXACT) & (runs.rows > 1)
        if wrong.any():
            cell = self.called(runs.keys[:, [int(np.argmax(wrong))]])
            limit = "less than 2**53, or float64 would round them" if self.whole else "less than 1.8e308"
            raise ObservationError(f"the values of cell {cell} must add up to {limit}")
