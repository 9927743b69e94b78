"""Fold in new rows of an observed index; all other factors stay fixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pltf.data import CooObservation, DenseObservation, Observation, StoredObservation, observe
from pltf.data.forms import is_annotated, long_or_array
from pltf.data.observe import has_names, in_order, is_listed, is_xarray, shape_and_dtype
from pltf.data.tables import column_names, is_table
from pltf.errors import ObservationError, PltfError, py
from pltf.fit import Fit
from pltf.fitting import fit
from pltf.gamma import PARTS, Gamma
from pltf.incoming import cut_to_cells, given_parts, model_of
from pltf.inference.algebra import Factors
from pltf.inference.em import EM
from pltf.inference.vb import VB
from pltf.likelihoods import POISSON, as_option
from pltf.notation import Model
from pltf.options import FitOptions
from pltf.prediction.cells import check_labels, observed_like


def fold_in(known: Fit, X_new: Any, index: str, *, mask: Any, options: FitOptions) -> Fit:
    """Learn new rows with all other factors fixed; see :meth:`pltf.Fit.fold_in`."""
    model = _around(known, index)
    given, masks = given_parts(model, X_new, mask, "X_new")
    if masks and any(is_listed(one) or has_names(one) for one in given.values()):
        raise ObservationError(f"{py:mask} requires that {py:X_new} is a plain array: pass pltf.observe(...) of it")
    rows, masks = (_as_rows(known, model, one, index, name) for one, name in ((given, "X_new"), (masks, "mask")))
    data = _unseen(known, model, rows, index) | rows
    kept = {a: known.factors[a].mean for a, indices in model.factors.items() if index not in indices}
    free = [a for a in model.factors if a not in kept]
    prior = _new_priors(known, options.prior, free, index)
    likelihood = as_option({name: known.likelihoods.get(name, POISSON) for name in model.observed})
    options = replace(
        options,
        method=VB.name if known.draws else known.method,
        prior=prior,
        fixed=kept,
        dtype=known.dtype,
        likelihood=likelihood,
        dispersion=None,
    )
    new = fit(model, data, mask=masks, options=options)
    # The new rows were learned with the other factors at their means; predictions include the uncertainty of these.
    known_C, known_D = _posteriors(known)
    C, D = ({**{a: part[a] for a in kept if a in part}, **own} for part, own in ((known_C, new.C), (known_D, new.D)))
    points = {a: point for a, point in new.points.items() if a not in C}
    labels = {i: known.labels[i] for i in known.labels if i != index and i in new.sizes} | dict(new.labels)
    dispersion = {name: one.without(index) for name, one in known.dispersion.items() if name in model.observed}
    return replace(new, C=C, D=D, points=points, labels=labels, dispersion=dispersion, spread=known.spread)


def _posteriors(known: Fit) -> tuple[Factors, Factors]:
    """Shape and scale of the posteriors of a fit; for draws, those with the same mean and variance."""
    C, D = dict(known.C), dict(known.D)
    for a in known.draws:
        factor = known.factors[a]
        D[a] = np.maximum(factor.var, np.finfo(float).tiny) / factor.mean
        C[a] = factor.mean / D[a]
    return C, D


def _around(known: Fit, index: Any) -> Model:
    """A model with the equations of the tensors that have the index."""
    observed = known.model.observed_indices
    if not isinstance(index, str) or index not in observed:
        raise PltfError(f"{py:index} must name an observed index of the model ({', '.join(observed)}), got {index!r}")
    return model_of([e for e in known.model.equations if index in e.output.indices], known.sizes)


def _unseen(known: Fit, model: Model, rows: Mapping[str, Any], index: str) -> dict[str, Observation]:
    """Tensors without data, as empty lists with as many rows as the first tensor with data."""
    first, given = next(iter(rows.items()))
    shape = dict(zip(model.observed[first], shape_and_dtype(given, first)[0], strict=False))
    sizes = {**known.sizes, index: max(1, shape.get(index, 1))}  # without axis or row: the fit raises
    unseen = {}
    for name, indices in model.observed.items():
        if name not in rows:
            nothing = np.empty((0, len(indices)), dtype=np.intp), np.empty(0)
            unseen[name] = observe(nothing, shape=[sizes[i] for i in indices], unlisted="missing", name=name)
    return unseen


def _as_rows(known: Fit, model: Model, given: Mapping[str, Any], index: str, argument: str) -> dict[str, Any]:
    """Data or masks of new rows, with the other sizes of the fit; a single row may lack its axis."""
    rows: dict[str, Any] = {}
    for name, one in given.items():
        indices = model.observed[name]
        place = indices.index(index)
        one = long_or_array(one, indices, name)
        if isinstance(one, Observation):
            whole = len(one.shape) == len(indices) or one.dims is None
            one = in_order(one, indices if whole else tuple(i for i in indices if i != index), name)
            check_labels(one, {i: known.labels[i] for i in known.labels if i != index}, name)
        elif is_annotated(one):
            one = observe(one, dims=indices, name=name)
        elif has_names(one):
            one = _named_rows(known, one, indices, index, name)
        elif is_listed(one):
            one = _listed_rows(known, one, indices, index, name)
        shape = shape_and_dtype(one, name)[0]
        if len(shape) == len(indices) - 1:
            one, shape = _with_axis(one, place), (*shape[:place], 1, *shape[place:])
        same = len(shape) == len(indices)  # the fit raises an error for another number of axes
        for i, size in zip(indices, shape, strict=True) if same else ():
            if i != index and size != known.sizes[i]:
                wide = f"index '{i}' is {size} in {name}, and {known.sizes[i]} in the fit"
                raise PltfError(f"{py:{argument}} must have the sizes of the fit, but {wide}")
        rows[name] = one
    return rows


def _named_rows(known: Fit, given: Any, indices: tuple[str, ...], index: str, name: str) -> Observation:
    """New rows from a table or a labelled array, in which all other indices have the labels of the fit."""
    unlisted = known.patterns[name].unlisted
    if index not in (given.dims if is_xarray(given) else column_names(given)):  # a single row
        others = tuple(i for i in indices if i != index)
        return observed_like(given, others, known.labels, known.sizes, name, unlisted=unlisted)
    if known.labels or is_xarray(given):
        return observed_like(given, indices, known.labels, known.sizes, name, unlisted=unlisted, new=index)
    return _listed_rows(known, given, indices, index, name)


def _listed_rows(known: Fit, given: Any, indices: tuple[str, ...], index: str, name: str) -> Observation:
    """Listed cells of new rows. Sizes come from the fit, the number of rows from the last listed cell."""
    if not isinstance(given, tuple) and not is_table(given):
        return observe(given, name=name)
    sizes, unlisted = {**known.sizes, index: 2**62}, known.patterns[name].unlisted
    seen = observe(given, shape=tuple(sizes[i] for i in indices), dims=indices, unlisted=unlisted, name=name)
    return cut_to_cells(seen, indices, (index,))


def _with_axis(row: Any, place: int) -> Any:
    """A single row with its axis."""
    if isinstance(row, CooObservation):
        coords, missing = (np.insert(cells, place, 0, axis=0) for cells in (row.coords, row.missing))
        sizes = (*row.sizes[:place], 1, *row.sizes[place:])
        return replace(row, sizes=sizes, coords=coords, missing=missing, dims=None)
    if isinstance(row, DenseObservation):
        mask = None if row.mask is None else np.expand_dims(row.mask, place)
        return replace(row, values=np.expand_dims(row.values, place), mask=mask, dims=None)
    if isinstance(row, StoredObservation):
        raise PltfError("a cell store must have all indices of the tensor")
    return np.expand_dims(row, place)


def _new_priors(known: Fit, given: Any, free: Sequence[str], index: str) -> Any:
    """Priors of new rows: the given ones, or those of the fit. Hyperparameters of single rows are learned again."""
    if known.method == EM.name or not (given is None or isinstance(given, Mapping)):
        return given
    priors = dict(given or {})
    for a in free:
        if a in priors:
            continue
        if a not in known.priors:
            raise PltfError(f"{a} was fixed in the fit, so its new rows have no prior: pass one with {py:prior=}")
        prior, indices = known.priors[a], known.model.factors[a]
        by_row = prior.learns if prior.tie == f"index:{index}" else ()
        axis = indices.index(index) - len(indices)
        values = {}
        for part in PARTS:
            value = np.asarray(getattr(prior, part))
            if part in by_row and value.ndim >= -axis:
                value = np.exp(np.log(value).mean(axis=axis, keepdims=True))
            if value.ndim >= -axis and value.shape[axis] > 1:
                raise PltfError(
                    f"the prior of {a} differs along '{index}', so new rows have none: pass one with {py:prior=}"
                )
            values[part] = value
        learning = (prior.learn, prior.tie) if by_row else (None, "factor")
        priors[a] = Gamma(values["shape"], values["mean"], *learning)
    return priors
