"""What the cells hold that were not seen, or that were seen empty."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import opt_einsum
from numpy.typing import NDArray

from pltf.data.lookup import CellIndex
from pltf.data.split import HeldOut
from pltf.errors import PltfError, ScoreWarning
from pltf.fit import MOST_LISTED, Fit
from pltf.gamma import Array
from pltf.report.components import LEVEL, largest
from pltf.report.words import names

SMALL = 1_000_000  # cells of a tensor in which the most probable ones are looked for everywhere
BLOCK = 2_000_000  # cells of the busiest labels that are looked at in larger ones


@dataclass(frozen=True)
class Cell:
    """A cell that may hold something."""

    names: tuple[str, ...]
    prob: float  # of a count
    mean: float
    low: float  # interval of the count
    high: float
    held: float | None  # what it held, if it was held out


@dataclass(frozen=True)
class Predictions:
    """The most probable cells of a tensor."""

    tensor: str
    indices: tuple[str, ...]
    among: str  # "missing" or "zero"
    candidates: int  # how many such cells there are; -1 if that was not counted
    cells: tuple[Cell, ...]
    notes: tuple[str, ...]


def predictions(fit: Fit, held: HeldOut | None, count: int, progress: bool) -> list[Predictions]:
    """Of each tensor."""
    first = held_tensor(fit) if held is not None else None
    return [_of_tensor(fit, name, held if name == first else None, count, progress) for name in fit.model.observed]


def held_tensor(fit: Fit) -> str | None:
    """The tensor that cells were held out of: the first with as many modes."""
    if fit.held_out is None:
        return None
    modes = fit.held_out.cells.shape[1]
    return next((name for name, indices in fit.model.observed.items() if len(indices) == modes), None)


def _of_tensor(fit: Fit, name: str, held: HeldOut | None, count: int, progress: bool) -> Predictions:
    indices = fit.model.observed[name]
    total = math.prod(fit.sizes[index] for index in indices)
    missing = total - fit.n_observed[name]
    among = "missing" if missing else "zero"
    with noted() as notes:
        at = _most_probable(fit, name, among, count, missing, notes, progress)
        cells = _told(fit, name, at, held, progress) if len(at) else []
    return Predictions(name, indices, among, missing or -1, tuple(cells), tuple(notes))


@contextmanager
def noted() -> Iterator[list[str]]:
    """Warnings about scores and predictions as notes for the reader; all others go their way."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield notes
    for one in told:
        if issubclass(one.category, ScoreWarning):
            notes.append(sentence(str(one.message)))
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def sentence(text: str) -> str:
    """A message as a sentence.

    >>> sentence("no cell is missing")
    'No cell is missing.'
    """
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _most_probable(
    fit: Fit, name: str, among: str, count: int, missing: int, notes: list[str], progress: bool
) -> NDArray[np.intp]:
    """The cells (n, modes). A tensor that is too large to be searched is looked at where it is busiest."""
    indices = fit.model.observed[name]
    small = math.prod(fit.sizes[index] for index in indices) <= SMALL
    listed = among == "missing" and fit.patterns[name].missing_cells(MOST_LISTED) is not None
    if not small and not listed:
        return _among_busiest(fit, name, among, count, notes, progress)
    try:
        table = fit.top(count, among, of=name, progress=progress)
    except PltfError:  # there are none
        return np.empty((0, len(indices)), dtype=np.intp)
    columns = [
        fit.labels[index].positions(table[index], index) if index in fit.labels else table[index].to_numpy()
        for index in indices
    ]
    return np.stack(columns, axis=1).astype(np.intp)


def _among_busiest(fit: Fit, name: str, among: str, count: int, notes: list[str], progress: bool) -> NDArray[np.intp]:
    """The most probable cells of a block of the tensor: that of the labels that weigh most in some component."""
    indices = fit.model.observed[name]
    busy = dict(zip(indices, _busiest(fit, name), strict=True))
    rates = _block(fit, name, busy)
    order = np.argsort(-rates, axis=None, kind="stable")
    pattern, found = fit.patterns[name], []
    for start in range(0, order.size, 1 << 16):
        places = np.unravel_index(order[start : start + (1 << 16)], rates.shape)
        cells = np.stack([busy[index][place] for index, place in zip(indices, places, strict=True)])
        seen = pattern.observed(cells)
        found.append(cells[:, ~seen if among == "missing" else seen & ~pattern.positive(cells)])
        if sum(some.shape[1] for some in found) >= 4 * count:
            break
    likely = np.concatenate(found, axis=1)[:, : 4 * count].T
    looked = " × ".join(f"{len(busy[index]):,}" for index in indices)
    notes.append(f"The tensor is too large to go through: looked for among the cells of its {looked} busiest labels.")
    if not len(likely):
        return likely
    prob = fit.prob(likely, of=name, progress=progress)
    return np.asarray(likely[largest(prob, count)], dtype=np.intp)


def _busiest(fit: Fit, name: str) -> list[NDArray[np.intp]]:
    """Labels of each index that weigh most in some component, as many as a block may have."""
    indices = fit.model.observed[name]
    room = {index: fit.sizes[index] for index in indices}
    while math.prod(room.values()) > BLOCK:  # short indices are kept whole, long ones share what is left
        longest = max(room.values())
        shorter = [size for size in room.values() if size < longest]
        alike = len(room) - len(shorter)
        next_size = max(int((BLOCK / math.prod(shorter)) ** (1 / alike)), max(shorter, default=1), 1)
        next_size = next_size if next_size < longest else longest - 1
        room = {index: min(size, next_size) for index, size in room.items()}
    return [_heaviest(fit, name, index, room[index]) for index in indices]


def _heaviest(fit: Fit, name: str, index: str, count: int) -> NDArray[np.intp]:
    """The labels of an index that hold the largest share of a column of a factor."""
    weight = np.zeros(fit.sizes[index])
    equation = next(e for e in fit.model.equations if e.output.name == name)
    for term in equation.factors:
        if index in term.indices:
            axis = term.indices.index(index)
            flat = np.moveaxis(fit.state.E[term.name], axis, 0).reshape(len(weight), -1)
            weight = np.maximum(weight, (flat / np.maximum(flat.max(axis=0), np.finfo(float).tiny)).max(axis=1))
            weight += 1e-3 * flat.sum(axis=1) / max(flat.sum(axis=1).max(), np.finfo(float).tiny)  # ties
    return np.sort(largest(weight, count))


def _block(fit: Fit, name: str, busy: dict[str, NDArray[np.intp]]) -> Array:
    """Expected counts of all cells of some labels."""
    equation = next(e for e in fit.model.equations if e.output.name == name)
    letters = {index: opt_einsum.get_symbol(n) for n, index in enumerate(fit.sizes)}
    operands = []
    for term in equation.factors:
        part = fit.state.E[term.name]
        for axis, index in enumerate(term.indices):
            part = part.take(busy[index], axis=axis) if index in busy else part
        operands.append(part)
    terms = ",".join("".join(letters[index] for index in term.indices) for term in equation.factors)
    output = "".join(letters[index] for index in equation.output.indices)
    return np.asarray(opt_einsum.contract(f"{terms}->{output}", *operands))


def _told(fit: Fit, name: str, at: NDArray[np.intp], held: HeldOut | None, progress: bool) -> list[Cell]:
    """The cells with all that is to be told of them, the most probable first."""
    prob, mean = fit.prob(at, of=name, progress=progress), fit.mean(at, of=name, progress=progress)
    low, high = fit.interval(at, LEVEL, counts=True, of=name, progress=progress)
    called = zip(*(names(fit, index, at[:, axis]) for axis, index in enumerate(fit.model.observed[name])), strict=True)
    order = np.lexsort((-mean, -prob.round(3)))
    truth = _truth(at, held, tuple(fit.sizes[index] for index in fit.model.observed[name]))
    told = list(zip(called, prob.tolist(), mean.tolist(), low.tolist(), high.tolist(), truth, strict=True))
    return [Cell(*told[n]) for n in order]


def _truth(at: NDArray[np.intp], held: HeldOut | None, shape: tuple[int, ...]) -> list[float | None]:
    """What held-out cells held."""
    if held is None:
        return [None] * len(at)
    order = np.lexsort(held.cells.T[::-1])
    where = CellIndex(held.cells[order].T, shape).find(at.T)
    return [None if place < 0 else float(held.values[order[place]]) for place in where]
