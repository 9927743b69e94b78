"""Listed cells of a CP model on a device, sorted by every mode and cut into chunks of one row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pltf.devices import Device
from pltf.engines.lists import WholeList
from pltf.engines.torch.cells import Tensor
from pltf.engines.torch.sums import SegmentSums, cut, narrow, starts_of, type_of
from pltf.engines.ways import ALL

MOST_CELLS = 1024  # per chunk
PIECE = 1 << 24  # cells sorted at a time


@dataclass(frozen=True, eq=False)
class RowList:
    """The cells sorted by the rows of one mode, and the chunks that own these rows."""

    size: int  # number of rows of the mode
    starts: Tensor  # (chunks + 1,) first cell of each chunk
    owners: Tensor  # (chunks,) table row of each chunk
    sums: SegmentSums  # of the chunks of each row
    positions: Tensor  # (modes, cells) table rows
    x: Tensor  # None if cells have no counts
    order: Tensor  # permutation of positions and x; None: identity
    skipped: int  # the owned mode among the positions; -1 if it is not included

    @property
    def n_chunks(self) -> int:
        """Number of programs of a pass."""
        return int(self.owners.numel())


class CpLists:
    """A list sorted by each of its modes.

    The list is copied from the host in pieces. Each piece is sorted, and its cells are written to their final places:
    in addition to the result, the device holds only one piece.
    """

    def __init__(self, device: Device, shape: Sequence[int], whole: WholeList, copies: str) -> None:
        self._device, self._shape = device, tuple(shape)
        self._first = list(itertools.accumulate(shape, initial=0))  # first row of each mode
        self.largest = 0.0 if whole.x is None else float(whole.x.max(initial=0))  # largest count
        modes = list(range(len(shape)))
        longest = max(modes, key=lambda mode: shape[mode])
        counts = self._counted(whole)
        held = {mode: [other for other in modes if other != mode] for mode in modes}  # positions in each copy
        made = self._copied(whole, counts, held if copies == ALL else {longest: modes})
        self.by_mode: list[RowList] = []
        for mode in modes:
            positions, x = made.get(mode, made[longest])
            order = None if mode in made else self._permutation(positions[mode], mode, counts[mode])
            skipped = -1 if copies == ALL else mode
            self.by_mode.append(self._chunked(mode, counts[mode], positions, x, order, skipped))

    def _pieces(self, whole: WholeList) -> Iterator[tuple[Tensor, Tensor]]:
        """Indices and counts, on the device."""
        for start in range(0, len(whole), PIECE):
            some = slice(start, start + PIECE)
            x = None if whole.x is None else self._device.put(whole.x[some])
            yield self._device.put(whole.coords[:, some]), x

    def _counted(self, whole: WholeList) -> list[Tensor]:
        """Number of cells in every row of every mode."""
        torch, place = self._device.torch, self._device.place
        counts = [torch.zeros(size, dtype=torch.int64, device=place) for size in self._shape]
        for at, _ in self._pieces(whole):
            for mode, found in enumerate(counts):
                found += torch.bincount(at[mode], minlength=found.numel())
        return counts

    def _copied(
        self, whole: WholeList, counts: Sequence[Tensor], held: Mapping[int, Sequence[int]]
    ) -> dict[int, tuple[Tensor, Tensor]]:
        """Positions of some modes and counts of the cells, sorted by a mode; for several modes."""
        torch, place, cells = self._device.torch, self._device.place, len(whole)
        places = {mode: _Places(self._device, counts[mode]) for mode in held}
        narrowest = type_of(torch, self._first[-1])
        made = {}
        for mode, others in held.items():
            values: Tensor = None if whole.x is None else torch.empty(cells, dtype=_dtype(torch, whole.x), device=place)
            made[mode] = torch.empty((len(others), cells), dtype=narrowest, device=place), values
        for at, x in self._pieces(whole):
            for mode, (positions, values) in made.items():
                order, to = places[mode].of(at[mode])
                for n, other in enumerate(held[mode]):
                    positions[n, to] = at[other, order].to(narrowest) + self._first[other]
                if x is not None:
                    values[to] = x[order]
        return made

    def _permutation(self, rows: Tensor, mode: int, counts: Tensor) -> Tensor:
        """The permutation that sorts the cells of a copy by another mode."""
        torch, cells = self._device.torch, rows.numel()
        permutation = torch.empty(cells, dtype=type_of(torch, cells), device=self._device.place)
        places = _Places(self._device, counts)
        for start in range(0, cells, PIECE):
            order, to = places.of(rows[start : start + PIECE] - self._first[mode])
            permutation[to] = (order + start).to(permutation.dtype)
        return permutation

    def _chunked(self, mode: int, counts: Tensor, positions: Tensor, x: Tensor, order: Tensor, skipped: int) -> RowList:
        torch, first, size = self._device.torch, self._first[mode], self._shape[mode]
        chunks, starts = cut(torch, counts, MOST_CELLS)
        owners = torch.repeat_interleave(chunks) + first
        rows = chunks.nonzero().flatten()
        sums = SegmentSums.of(self._device, chunks[rows], rows, size)
        starts, owners = narrow(torch, starts, positions.shape[1] + 1), narrow(torch, owners, first + size)
        return RowList(size, starts, owners, sums, positions, x, order, skipped)


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
