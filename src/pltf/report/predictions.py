"""The most probable cells among those that are missing, or that were observed as zero."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pltf.data.cell_index import CellIndex
from pltf.data.pattern import kept
from pltf.data.split import HeldOut
from pltf.data.tables import cells_of
from pltf.errors import PltfError, ScoreWarning
from pltf.fit import Fit
from pltf.likelihoods import BERNOULLI
from pltf.report.components import LEVEL
from pltf.report.formatting import names, number, probability, reason, sentence

CERTAIN = 0.95  # above this, probabilities are all close to one, and only counts differ


@dataclass(frozen=True)
class PredictedCell:
    """A predicted cell."""

    names: tuple[str, ...]
    prob: float  # of a count
    mean: float
    rate_low: float
    rate_high: float
    count_low: float
    count_high: float
    held: float | None  # its value, if it was held out


@dataclass(frozen=True)
class Predictions:
    """The most probable cells of a tensor."""

    tensor: str
    indices: tuple[str, ...]
    among: str  # "missing" or "zero"; "unknown" if the fit does not know which cells were observed
    cells: tuple[PredictedCell, ...]
    notes: tuple[str, ...]
    links: bool = False  # 0 or 1: the probability is enough
    excess: str = ""  # how much more counts vary than Poisson, in words

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the intervals are of, the more useful one first."""
        return ("rate",) if self.links else ("count", "rate") if self.excess else ("rate", "count")

    @property
    def tells_probability(self) -> bool:
        """Whether the probability of a count says more than the expected count: not if certain, or one for all."""
        varies = len(self.cells) == 1 or len({probability(one.prob) for one in self.cells}) > 1
        return self.links or (varies and any(one.prob < CERTAIN and not self._same(one) for one in self.cells))

    @staticmethod
    def _same(cell: PredictedCell) -> bool:
        """Whether the probability is the expected count, as it is where both are small."""
        return abs(cell.prob - cell.mean) <= 0.005 * cell.mean


def predictions(fit: Fit, held: HeldOut | None, count: int, progress: bool) -> list[Predictions]:
    """Predictions for each tensor."""
    first = held_tensor(fit) if held is not None else None
    return [_of_tensor(fit, name, held if name == first else None, count, progress) for name in fit.model.observed]


def held_tensor(fit: Fit) -> str | None:
    """The tensor with held-out cells: the named one, or the first that has all of them."""
    held = fit.held_out
    if held is None or held.of is not None:
        return None if held is None else held.of
    shapes = {name: [fit.sizes[index] for index in indices] for name, indices in fit.model.observed.items()}
    fitting = (n for n, shape in shapes.items() if len(shape) == held.cells.shape[1] and (held.cells < shape).all())
    return next(fitting, None)


def _of_tensor(fit: Fit, name: str, held: HeldOut | None, count: int, progress: bool) -> Predictions:
    indices = fit.model.observed[name]
    total = math.prod(fit.sizes[index] for index in indices)
    among = "missing" if fit.n_observed[name] < total else "zero"
    try:
        kept(fit.patterns[name], "its most probable missing or empty cells cannot be listed")
    except PltfError as error:
        return Predictions(name, indices, "unknown", (), (reason(error),))
    with noted() as notes:
        at = _most_probable(fit, name, among, count, progress)
        cells = _told(fit, name, at, held, progress) if len(at) else []
    notes += _left_out(fit, name, among, count, progress)
    links = fit.likelihoods.get(name) == BERNOULLI
    excess = fit.dispersion[name].excess if name in fit.dispersion else ""
    found = Predictions(name, indices, among, tuple(cells), tuple(notes), links, excess)
    if found.tells_probability:
        return found
    return replace(found, cells=tuple(sorted(found.cells, key=lambda one: -one.mean)))


def _left_out(fit: Fit, name: str, among: str, count: int, progress: bool) -> list[str]:
    """A note on cells that would be among the most probable, if the data supported them."""
    with noted():
        try:
            table = fit.top(count, among, of=name, progress=progress, unsupported=True)
        except PltfError:  # there are no cells at all
            return []
    loose = table[~table["supported"]]
    if loose.empty:
        return []
    reason = (
        "the data say too little about them: they depend on the prior, or lie far above anything observed near them"
    )
    largest = number(float(loose["mean"].max()))
    left_out = f"{len(loose)} of the {len(table)} most probable cells are left out (expected count up to {largest})"
    return [f"{left_out} because {reason}."]


@contextmanager
def noted() -> Iterator[list[str]]:
    """Warnings about scores and predictions as notes for the reader; other warnings are passed on."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield notes
    for one in told:
        if issubclass(one.category, ScoreWarning):
            notes.append(sentence(str(one.message)))
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def _most_probable(fit: Fit, name: str, among: str, count: int, progress: bool) -> NDArray[np.intp]:
    """The predicted cells (n, modes)."""
    indices = fit.model.observed[name]
    try:
        table = fit.top(count, among, of=name, progress=progress)
    except PltfError:  # there are none
        return np.empty((0, len(indices)), dtype=np.intp)
    return cells_of(table, indices, fit.labels, name, PltfError).astype(np.intp)


def _told(fit: Fit, name: str, at: NDArray[np.intp], held: HeldOut | None, progress: bool) -> list[PredictedCell]:
    """The cells with their predictions, the most probable first."""
    prob, mean = fit.prob(at, of=name, progress=progress), fit.mean(at, of=name, progress=progress)
    ends = [
        end.tolist()
        for counts in (False, True)
        for end in fit.interval(at, LEVEL, counts=counts, of=name, progress=progress)
    ]
    called = zip(*(names(fit, index, at[:, axis]) for axis, index in enumerate(fit.model.observed[name])), strict=True)
    order = np.lexsort((-mean, -prob.round(3)))
    truth = _truth(at, held, tuple(fit.sizes[index] for index in fit.model.observed[name]))
    told = list(zip(called, prob.tolist(), mean.tolist(), *ends, truth, strict=True))
    return [PredictedCell(*told[n]) for n in order]


def _truth(at: NDArray[np.intp], held: HeldOut | None, shape: tuple[int, ...]) -> list[float | None]:
    """The values of held-out cells."""
    if held is None:
        return [None] * len(at)
    order = np.lexsort(held.cells.T[::-1])
    where = CellIndex(held.cells[order].T, shape).find(at.T)
    return [None if place < 0 else float(held.values[order[place]]) for place in where]
