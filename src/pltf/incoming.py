"""Align new data with the rows of a fit, by label, and find new rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pltf.data import CooObservation, Observation, observe
from pltf.data.forms import is_annotated, long_or_array
from pltf.data.labels import PERIODS, Labels
from pltf.data.observe import in_order, is_xarray
from pltf.data.pattern import ListedPattern, Pattern
from pltf.data.stored import StoredObservation, StoredPattern
from pltf.data.tables import column_names, is_table
from pltf.data.union import spread_out
from pltf.errors import ObservationError, PltfError, py, py_only
from pltf.fit import Fit
from pltf.notation import Equation, Model
from pltf.planning import by_tensor

Positions = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Incoming:
    """New data by tensor, with axes in the order of the model, and indices that may have new rows."""

    seen: Mapping[str, Observation]
    rows: Mapping[str, Positions]  # for each index of these tensors: position in the fit of each position of the data
    sizes: Mapping[str, int]  # of all indices of the fit, including new rows
    labels: Mapping[str, Labels]  # of indices with labels, new ones last

    def places(self, indices: Sequence[str]) -> list[Positions]:
        """Positions in the fit for each axis of a tensor or factor."""
        return [self.rows[i] if i in self.rows else np.arange(self.sizes[i]) for i in indices]

    @property
    def n_observed(self) -> int:
        """Number of observed cells."""
        return sum(one.n_observed for one in self.seen.values())


@dataclass(frozen=True)
class Axes:
    """How rows of new data are matched with those of a fit: names of indices."""

    append: tuple[str, ...]  # indices whose positions are all new
    zeros: tuple[str, ...]  # indices whose absent labels are observed zeros


def axes_of(known: Fit, append: Any, zeros: Any) -> Axes:
    """Check the named indices."""
    observed = known.model.observed_indices
    named: dict[str, tuple[str, ...]] = {}
    for argument, given in (("append", append), ("zeros", zeros)):
        many = (given,) if isinstance(given, str) else given
        if not isinstance(many, Sequence) or not all(isinstance(one, str) and one in observed for one in many):
            expected = f"an observed index of the model ({', '.join(observed)}), or several"
            raise PltfError(f"{py:{argument}} must name {expected}; got {given!r}")
        named[argument] = tuple(dict.fromkeys(many))
    for index in named["append"]:
        if index in known.labels:
            advice = "labels tell which rows are new"
            raise PltfError(f"{py:append} names {index!r}, which has labels in the fit: {advice}", argument="append")
    for index in named["zeros"]:
        if index not in known.labels:
            reason = "which has no labels in the fit: data without labels have all positions"
            raise PltfError(f"{py:zeros} names {index!r}, {reason}", argument="zeros")
    return Axes(**named)


def incoming(known: Fit, new: Any, mask: Any, axes: Axes) -> Incoming:
    """Read new data and align them with the rows of a fit."""
    given, masks = given_parts(known.model, new, mask, "new")
    seen = {}
    for name, one in given.items():
        all_zeros = set(known.model.observed[name]) <= set(axes.zeros)
        if all_zeros or not is_table(one) or len(one):  # other empty tables observe no cell
            seen[name] = _read(known, name, one, masks.get(name), axes)
            _refuse_unlike(known.patterns[name], seen[name], name)
    return _placed(known, seen, axes)


def given_parts(model: Model, new: Any, mask: Any, argument: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """New data of some tensors, and their masks."""
    given = by_tensor(model, new, argument, partial=True)
    if not given:
        raise PltfError(f"{py:{argument}} must have data for at least one of {', '.join(model.observed)}, got none")
    masks = {} if mask is None else by_tensor(model, mask, "mask", partial=True)
    unmatched = [name for name in masks if name not in given]
    if unmatched:
        raise PltfError(f"{py:mask} names {unmatched[0]}, for which {py:{argument}} has no data")
    return given, masks


def model_of(equations: Sequence[Equation], sizes: Mapping[str, int]) -> Model:
    """A model of some of the equations of another one."""
    seen = {i for e in equations for i in e.output.indices}
    latent = dict.fromkeys(i for e in equations for i in e.summed if i not in seen)
    return Model("\n".join(map(str, equations)), **{i: sizes[i] for i in latent})


# -- reading ------------------------------------------------------------------------------------


def _read(known: Fit, name: str, given: Any, mask: Any, axes: Axes) -> Observation:
    """The data of a tensor, with their own labels or with all positions of the fit."""
    indices, unlisted = known.model.observed[name], known.patterns[name].unlisted
    given = long_or_array(given, indices, name)
    if isinstance(given, Observation):
        seen = in_order(observe(given, mask, name=name), indices, name)
    elif is_table(given):
        seen = _from_table(known, name, given, mask)
    elif isinstance(given, tuple):
        sizes = tuple(2**62 if i in axes.append else known.sizes[i] for i in indices)
        seen = cut_to_cells(observe(given, mask, shape=sizes, unlisted=unlisted, name=name), indices, axes.append)
    else:
        named = is_xarray(given) or is_annotated(given)
        seen = observe(given, mask, dims=indices if named else None, name=name)
    if len(seen.shape) != len(indices):
        raise ObservationError(f"{name} must have the indices {', '.join(indices)}, got shape {seen.shape}")
    return seen


def _from_table(known: Fit, name: str, table: Any, mask: Any) -> Observation:
    """A table with a column for each index, of labels, or of positions where the fit has no labels."""
    import pandas as pd

    indices, unlisted = known.model.observed[name], known.patterns[name].unlisted
    columns = column_names(table)
    absent = [index for index in indices if index not in columns]
    if absent:
        expected = f"a table must have a column for each of {', '.join(indices)}"
        raise ObservationError(f"{name}: {expected}; {absent[0]} is missing")
    dims, given = [], {}
    for index in indices:
        labels = known.labels.get(index)
        if labels is None:
            given[index] = Labels(pd.RangeIndex(known.sizes[index]))
        elif labels.bin not in (None, *PERIODS) or not len(table):  # weekdays and hours have no new labels
            given[index] = labels
        dims.append(f"{index}:{labels.bin}" if labels is not None and labels.bin in PERIODS else index)
    blanks = any(known.labels[index].keeps_blanks for index in indices if index in known.labels)
    seen = observe(table, mask, dims=dims, labels=given, unlisted=unlisted, keep_blanks=blanks, name=name)
    return replace(seen, labels={i: one for i, one in seen.labels.items() if i in known.labels})


def cut_to_cells(seen: Observation, indices: tuple[str, ...], some: Sequence[str]) -> Observation:
    """Listed cells, which are also the end of the tensor along some of the indices."""
    assert isinstance(seen, CooObservation)
    longest = seen.coords.max(axis=1, initial=0) + 1
    sizes = tuple(int(last) if i in some else size for i, size, last in zip(indices, seen.shape, longest, strict=True))
    return observe((seen.coords.T, seen.values), shape=sizes, unlisted=seen.unlisted)


def _refuse_unlike(pattern: Pattern, seen: Observation, name: str) -> None:
    """Refuse lists that disagree with the fit on whether unlisted cells are zeros or missing."""
    if not isinstance(pattern, ListedPattern | StoredPattern) or not isinstance(
        seen, CooObservation | StoredObservation
    ):
        return
    if seen.unlisted != pattern.unlisted:
        words = {"zero": "zeros", "missing": "missing"}
        came, was = words[seen.unlisted], words[pattern.unlisted]
        raise ObservationError(
            f"{name}: cells that are not listed are {came}, but in the data of the fit they are {was}: "
            f"pass {py:unlisted={pattern.unlisted!r}}{py_only: to observe}"
        )


# -- positions ----------------------------------------------------------------------------------


def _placed(known: Fit, seen: Mapping[str, Observation], axes: Axes) -> Incoming:
    """Align the data with the rows of the fit."""
    rows: dict[str, Positions] = {}
    source: dict[str, str] = {}
    sizes, labels = dict(known.sizes), dict(known.labels)
    for name, one in seen.items():
        for index, size in zip(known.model.observed[name], one.shape, strict=True):
            at, labels_now = _rows(known, name, index, size, one.labels.get(index), axes)
            if index in rows and not np.array_equal(rows[index], at):
                raise ObservationError(
                    f"the rows of '{index}' must be the same in {source[index]} and {name}, in the same order"
                )
            rows[index], source[index] = at, name
            if labels_now is not None:
                labels[index] = labels_now
            sizes[index] = max(known.sizes[index], int(at.max()) + 1)
    wide = {name: _widened(known, name, one, rows, sizes, labels, axes) for name, one in seen.items()}
    return Incoming(wide, rows | {i: np.arange(sizes[i]) for i in axes.zeros if i in rows}, sizes, labels)


def _rows(
    known: Fit, name: str, index: str, size: int, labels: Labels | None, axes: Axes
) -> tuple[Positions, Labels | None]:
    """Positions of the rows of an index in the fit, and its labels including new ones."""
    before = known.sizes[index]
    if labels is None and index in axes.append:
        return before + np.arange(size), None
    if labels is None:
        if size != before:
            advice = f"pass labels, or {py:append={index!r}} if all of its rows are new"
            raise ObservationError(f"index '{index}' has size {size} in {name} and {before} in the fit: {advice}")
        return np.arange(size), None
    if index not in known.labels:
        raise ObservationError(
            f"{name} has labels for '{index}', but the fit has none to match them with: pass data without labels"
        )
    joined, at = known.labels[index].joined(labels, f"{name}: labels of {index!r}", ObservationError)
    return at, joined


def _widened(
    known: Fit,
    name: str,
    seen: Observation,
    rows: Mapping[str, Positions],
    sizes: Mapping[str, int],
    labels: Mapping[str, Labels],
    axes: Axes,
) -> Observation:
    """Extend data with zeros to all labels of the indices in ``zeros``."""
    indices = known.model.observed[name]
    wide = [index for index in indices if index in axes.zeros]
    if not wide:
        return seen
    if isinstance(seen, CooObservation) and seen.unlisted == "missing":
        raise ObservationError(f"{name}: {py:zeros} requires data in which unlisted cells are zeros")
    shape = tuple(sizes[i] if i in wide else size for i, size in zip(indices, seen.shape, strict=True))
    along = {axis: rows[index] for axis, index in enumerate(indices) if index in wide}
    return replace(
        spread_out(seen, along, shape), labels={**seen.labels, **{i: labels[i] for i in wide if i in labels}}
    )
