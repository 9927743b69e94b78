"""Listed cells on a device, sorted by the rows of every table and cut into chunks of one row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from pltf.devices import Device
from pltf.engines.lists import CellSource, WholeList
from pltf.engines.torch.cells import Tensor
from pltf.engines.torch.sums import SegmentSums, cut, narrow, starts_of, type_of
from pltf.engines.ways import ALL, Task

LEAST_CELLS, MOST_CELLS = 64, 1024  # per chunk of a row with more cells
CHUNKS = 4096  # of a short list, to keep a GPU busy
PIECE = 1 << 24  # cells sorted at a time

Modes = tuple[int, ...]


def most_cells(cells: int) -> int:
    """Largest number of cells of a chunk, for a list of ``cells`` cells.

    >>> most_cells(10**5), most_cells(10**6), most_cells(10**8)
    (64, 244, 1024)
    """
    return min(max(cells // CHUNKS, LEAST_CELLS), MOST_CELLS)


def rows_of_key(shape: Sequence[int], modes: Modes) -> int:
    """Number of combinations of positions of some modes.

    >>> rows_of_key((4, 3, 2), (0, 2)), rows_of_key((4, 3, 2), ())
    (8, 1)
    """
    return prod(shape[mode] for mode in modes)


def flat_rows(at: Tensor, modes: Modes, shape: Sequence[int]) -> Tensor:
    """The row of every cell among all combinations of positions of some modes; ``at`` is (modes, cells).

    >>> import torch
    >>> flat_rows(torch.tensor([[3, 1], [0, 2], [1, 1]]), (0, 2), (4, 3, 2))
    tensor([7, 3])
    """
    if not modes:
        return at.new_zeros(at.shape[1])
    rows = at[modes[0]]
    for mode in modes[1:]:
        rows = rows.long() * shape[mode] + at[mode]
    return rows


@dataclass(frozen=True, eq=False)
class RowList:
    """The cells sorted by the rows of one key, and the chunks that own these rows."""

    size: int  # number of rows of the key
    starts: Tensor  # (chunks + 1,) first cell of each chunk
    owners: Tensor  # (chunks,) row of each chunk
    sums: SegmentSums  # of the chunks of each row
    positions: Tensor  # (keys, cells) rows
    x: Tensor  # None if cells have no counts
    order: Tensor  # permutation of positions and x; None: identity
    own: int  # number of its key
    held: tuple[int, ...]  # keys of the positions

    @property
    def skipped(self) -> int:
        """The owned key among the positions; -1 if it is not included."""
        return self.held.index(self.own) if self.own in self.held else -1

    @property
    def n_chunks(self) -> int:
        """Number of programs of a pass."""
        return int(self.owners.numel())

    def log_terms(self, log: bool) -> Tensor:
        """An array for the log term of every chunk; empty without ``log``."""
        return self.owners.new_zeros(self.n_chunks if log else 0, dtype=self.sums.device.torch.float64)

    def summed(self, parts: Tensor, columns: int) -> Tensor:
        """The sums of the chunks of each row: (rows, columns) in float64."""
        sums = parts.new_zeros((self.size, columns), dtype=self.sums.device.torch.float64)
        self.sums.add(parts, sums)
        return sums


class RowLists:
    """A list sorted by each of several keys: the rows of tables that have some of the observed modes.

    The table of a key has a row for each combination of positions of its modes, and rows of all keys are numbered
    together, key by key. A key without modes has one row, for which no copy is sorted.

    The list is copied from the host in pieces. Each piece is sorted, and its cells are written to their final places:
    in addition to the result, the device holds only one piece.
    """

    def __init__(
        self, device: Device, shape: Sequence[int], keys: Sequence[Modes], whole: WholeList, copies: str
    ) -> None:
        self._device, self._shape, self._keys = device, tuple(shape), tuple(keys)
        self._sizes = [rows_of_key(shape, key) for key in keys]
        self.first = list(itertools.accumulate(self._sizes, initial=0))  # first row of each key
        self.largest = 0.0 if whole.x is None else float(whole.x.max(initial=0))  # largest count
        sorting = [n for n, modes in enumerate(keys) if modes]
        longest = max(sorting, key=self._sizes.__getitem__)
        counts = self._counted(whole)
        held = self._held(sorting, longest, copies)
        made = self._copied(whole, counts, held)
        self.by_key: list[RowList] = []
        for n, modes in enumerate(keys):
            copy = n if n in made else longest
            positions, x = made[copy]
            sorted_already = n in made or not modes
            order = None if sorted_already else self._permutation(positions[held[copy].index(n)], n, counts[n])
            chunks = self._chunks(n, counts[n], len(whole))
            self.by_key.append(RowList(self._sizes[n], *chunks, positions, x, order, n, tuple(held[copy])))

    def _held(self, sorting: list[int], longest: int, copies: str) -> dict[int, list[int]]:
        """The keys whose rows each copy holds. One copy also serves a key without modes, for which it needs all."""
        if copies != ALL:
            return {longest: sorting}
        everything = len(sorting) < len(self._keys)
        return {n: [other for other in sorting if other != n or (n == longest and everything)] for n in sorting}

    def _pieces(self, whole: WholeList) -> Iterator[tuple[Tensor, Tensor]]:
        """Indices and counts, on the device."""
        for start in range(0, len(whole), PIECE):
            some = slice(start, start + PIECE)
            x = None if whole.x is None else self._device.put(whole.x[some])
            yield self._device.put(whole.coords[:, some]), x

    def _rows(self, at: Tensor, key: int) -> Tensor:
        return flat_rows(at, self._keys[key], self._shape)

    def _counted(self, whole: WholeList) -> list[Tensor]:
        """Number of cells in every row of every key."""
        torch, place = self._device.torch, self._device.place
        counts = [torch.zeros(size, dtype=torch.int64, device=place) for size in self._sizes]
        for at, _ in self._pieces(whole):
            for key, found in enumerate(counts):
                found += torch.bincount(self._rows(at, key), minlength=found.numel())
        return counts

    def _copied(
        self, whole: WholeList, counts: Sequence[Tensor], held: Mapping[int, Sequence[int]]
    ) -> dict[int, tuple[Tensor, Tensor]]:
        """Rows of some keys and counts of the cells, sorted by a key; for several keys."""
        torch, place, cells = self._device.torch, self._device.place, len(whole)
        places = {key: _Places(self._device, counts[key]) for key in held}
        narrowest = type_of(torch, self.first[-1])
        made = {}
        for key, others in held.items():
            values: Tensor = None if whole.x is None else torch.empty(cells, dtype=_dtype(torch, whole.x), device=place)
            made[key] = torch.empty((len(others), cells), dtype=narrowest, device=place), values
        for at, x in self._pieces(whole):
            for key, (positions, values) in made.items():
                order, to = places[key].of(self._rows(at, key))
                for n, other in enumerate(held[key]):
                    positions[n, to] = self._rows(at, other)[order].to(narrowest) + self.first[other]
                if x is not None:
                    values[to] = x[order]
        return made

    def _permutation(self, rows: Tensor, key: int, counts: Tensor) -> Tensor:
        """The permutation that sorts the cells of a copy by another key."""
        torch, cells = self._device.torch, rows.numel()
        permutation = torch.empty(cells, dtype=type_of(torch, cells), device=self._device.place)
        places = _Places(self._device, counts)
        for start in range(0, cells, PIECE):
            order, to = places.of(rows[start : start + PIECE] - self.first[key])
            permutation[to] = (order + start).to(permutation.dtype)
        return permutation

    def _chunks(self, key: int, counts: Tensor, cells: int) -> tuple[Tensor, Tensor, SegmentSums]:
        """First cells of the chunks, their rows, and their sums."""
        torch, first, size = self._device.torch, self.first[key], self._sizes[key]
        chunks, starts = cut(torch, counts, most_cells(cells))
        owners = torch.repeat_interleave(chunks) + first
        rows = chunks.nonzero().flatten()
        sums = SegmentSums.of(self._device, chunks[rows], rows, size)
        return narrow(torch, starts, cells + 1), narrow(torch, owners, first + size), sums


class _Places:
    """Final places of the cells of successive pieces in a list sorted by rows with the given numbers of cells."""

    def __init__(self, device: Device, counts: Tensor) -> None:
        self._torch, self._next = device.torch, starts_of(device.torch, counts)[:-1]

    def of(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The sort order of a piece by row, and the place of each of its cells."""
        torch = self._torch
        own, order = torch.sort(rows, stable=True)
        here = torch.bincount(rows, minlength=self._next.numel())
        shift = self._next - starts_of(torch, here)[:-1]
        to = shift[own] + torch.arange(own.numel(), device=own.device)
        self._next = self._next + here
        return order, to


def _dtype(torch: Tensor, values: Tensor) -> Tensor:
    """PyTorch dtype of a NumPy array."""
    return getattr(torch, values.dtype.name)


def sorted_lists(task: Task, cells: CellSource, device: Device, copies: str, keys: Sequence[Modes]) -> RowLists:
    """The lists of some cells, shared by all engines on the same data and keys."""
    key = ("torch", device.where, copies, tuple(keys))
    return cells.once(key, lambda whole: RowLists(device, task.shape, keys, whole, copies))
